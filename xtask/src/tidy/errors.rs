//! Rules for error codes: `server/src/http/problem.rs` is the one list, each code has its page, and each page has its code.

use super::{File, Finding};

/// Where the codes are.
const LIST: &str = "server/src/http/problem.rs";
/// Where their pages are.
const PAGES: &str = "docs/errors/";
/// The table of all codes.
const INDEX: &str = "docs/errors/README.md";
/// What a page says, in this order.
const PARTS: [&str; 4] = ["\n## What happened\n", "\n## Side effects\n", "\n## What to do\n", "\n## Example\n"];

/// Checks the list against the pages.
pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let Some(list) = files.iter().find(|file| file.path == LIST) else { return Vec::new() };
    let codes: Vec<(usize, &str)> = codes(&list.text).collect();
    let mut found = Vec::new();
    for (line, code) in &codes {
        let path = format!("{PAGES}{code}.md");
        match files.iter().find(|file| file.path == path) {
            Some(page) => found.extend(one(page, code)),
            None => found.push(list.at(*line, format!("`{code}` has no page `{path}`"))),
        }
        let row = format!("| [{code}]({code}.md) |");
        if !files.iter().any(|file| file.path == INDEX && file.text.contains(&row)) {
            found.push(list.at(*line, format!("`{code}` has no row `{row}` in {INDEX}")));
        }
    }
    let pages = files.iter().filter(|file| file.path.starts_with(PAGES) && file.has_extension("md") && file.path != INDEX);
    for page in pages {
        let name = page.path.trim_start_matches(PAGES).trim_end_matches(".md");
        if !codes.iter().any(|(_, code)| *code == name) {
            found.push(page.at(1, format!("`{name}` is no code of {LIST}")));
        }
    }
    found
}

/// The codes as their list writes them: `Self::Name => "CODE",`, each with its line from 1.
fn codes(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter_map(|(number, line)| {
        let code = line.trim().strip_prefix("Self::")?.split_once(" => \"")?.1.strip_suffix("\",")?;
        let is_code = !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
        is_code.then_some((number + 1, code))
    })
}

/// A page has its title and its parts, in order.
fn one(page: &File, code: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    if !page.text.starts_with(&format!("# {code}\n")) {
        found.push(page.at(1, format!("does not begin with `# {code}`")));
    }
    let mut rest = page.text.as_str();
    for part in PARTS {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => found.push(page.at(1, format!("`{}` is missing or out of order", part.trim()))),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::kit;

    const CODES: (&str, &str) = (LIST, "match self {\n    Self::Full => \"FULL\",\n    Self::Odd => (\"odd\", \"x\"),\n}\n");
    const ROW: (&str, &str) = (INDEX, "| [FULL](FULL.md) | 503 |\n");
    const PAGE: &str = "# FULL\n\n## What happened\n\n## Side effects\n\n## What to do\n\n## Example\n";

    #[test]
    fn every_code_has_a_page_and_a_row() {
        kit::check(check, &[CODES, ROW, ("docs/errors/FULL.md", PAGE)], &[]);
        kit::check(check, &[CODES, ROW], &["server/src/http/problem.rs:2: `FULL` has no page"]);
        kit::check(check, &[CODES, ("docs/errors/FULL.md", PAGE)], &["server/src/http/problem.rs:2: `FULL` has no row"]);
        kit::check(check, &[ROW], &[]);
    }

    #[test]
    fn every_page_has_a_code() {
        let gone = ("docs/errors/GONE.md", PAGE);
        kit::check(check, &[CODES, ROW, ("docs/errors/FULL.md", PAGE), gone], &["docs/errors/GONE.md:1: `GONE` is no code"]);
    }

    #[test]
    fn a_page_says_everything_in_order() {
        let check = |page: &str, want: &[&str]| kit::check(check, &[CODES, ROW, ("docs/errors/FULL.md", page)], want);
        check(&PAGE.replace("# FULL\n", "# Full\n"), &["docs/errors/FULL.md:1: does not begin with `# FULL`"]);
        check(&PAGE.replace("## Side effects\n", ""), &["docs/errors/FULL.md:1: `## Side effects` is missing"]);
        check(
            &PAGE.replace("Example", "What").replace("Side effects", "Example"),
            &["docs/errors/FULL.md:1: `## Side effects`", "docs/errors/FULL.md:1: `## Example`"],
        );
    }
}

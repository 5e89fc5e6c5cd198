//! Rules for what is written: no dead link, no page that nobody finds, no crate without its invariant.

use std::collections::BTreeSet;

use super::{File, Finding};

/// From here every page below `docs/` can be reached.
const INDEX: &str = "docs/README.md";
/// One file a change, collected into the release notes; no pages.
const FRAGMENTS: &str = "docs/changelog.d/";
/// What a fragment says, as the beginning of a line.
const FRAGMENT_PARTS: [&str; 3] = ["What:", "Impact:", "What to do:"];
/// Where every crate has a section with its invariant.
const ARCHITECTURE: &str = "docs/architecture.md";

/// Checks every page.
pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let pages: Vec<&File> = files.iter().filter(|file| file.has_extension("md")).collect();
    let mut found: Vec<Finding> = pages.iter().flat_map(|page| dead_links(page, files)).collect();
    found.extend(unreachable(&pages));
    found.extend(pages.iter().flat_map(|page| fragment(page)));
    found.extend(invariants(files));
    found
}

/// Links that lead to no file, or to no heading of it.
fn dead_links(page: &File, files: &[File]) -> Vec<Finding> {
    let mut found = Vec::new();
    for (line, target) in links(&page.text) {
        let (path, anchor) = target.split_once('#').map_or((target.as_str(), None), |(path, anchor)| (path, Some(anchor)));
        let path = if path.is_empty() { page.path.clone() } else { join(&page.path, path) };
        let file = files.iter().find(|file| file.path == path);
        let is_folder = files.iter().any(|file| file.path.starts_with(&format!("{path}/")));
        if file.is_none() && !is_folder {
            found.push(page.at(line, format!("dead link `{target}`: there is no `{path}`")));
        }
        if let (Some(file), Some(anchor)) = (file, anchor)
            && file.has_extension("md")
            && !headings(&file.text).any(|(_, heading)| slug(heading) == anchor)
        {
            found.push(page.at(line, format!("dead link `{target}`: `{path}` has no such heading")));
        }
    }
    found
}

/// Pages below `docs/` to which no chain of links leads from the index.
fn unreachable(pages: &[&File]) -> Vec<Finding> {
    let mut seen = BTreeSet::from([INDEX.to_owned()]);
    let mut next = vec![INDEX.to_owned()];
    while let Some(path) = next.pop() {
        let Some(page) = pages.iter().find(|page| page.path == path) else { continue };
        for (_, target) in links(&page.text) {
            let path = join(&page.path, target.split('#').next().unwrap_or_default());
            if seen.insert(path.clone()) {
                next.push(path);
            }
        }
    }
    let lost =
        pages.iter().filter(|page| page.path.starts_with("docs/") && !page.path.starts_with(FRAGMENTS) && !seen.contains(&page.path));
    lost.map(|page| page.at(1, format!("no link leads here from {INDEX}"))).collect()
}

/// A changelog fragment says what, with what impact, and what to do.
fn fragment(page: &File) -> Vec<Finding> {
    if !page.path.starts_with(FRAGMENTS) || page.path.ends_with("/README.md") {
        return Vec::new();
    }
    let missing = FRAGMENT_PARTS.iter().filter(|part| !page.text.lines().any(|line| line.starts_with(**part)));
    missing.map(|part| page.at(1, format!("a changelog fragment has a line that begins with `{part}`"))).collect()
}

/// Every crate has a section in the architecture page, and in it a line that says what is absent.
fn invariants(files: &[File]) -> Vec<Finding> {
    let Some(page) = files.iter().find(|file| file.path == ARCHITECTURE) else { return Vec::new() };
    let crates = files.iter().filter_map(|file| file.path.strip_suffix("/Cargo.toml"));
    let lacking = crates.filter(|folder| {
        let title = format!("### `{folder}/`");
        let section = page.text.split_once(&title).map(|(_, rest)| rest.split("\n#").next().unwrap_or_default());
        !section.is_some_and(|section| section.contains("*Invariant*"))
    });
    lacking.map(|folder| page.at(1, format!("no section ### `{folder}/` with an *Invariant* line"))).collect()
}

/// The relative links of a page, each with its line from 1; code is no link.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let bare: String = line.split('`').step_by(2).collect::<Vec<_>>().join("code");
        for part in bare.split("](").skip(1) {
            let target = part.split([')', ' ']).next().unwrap_or_default();
            if !(target.contains("://") || target.starts_with("mailto:") || target.is_empty()) {
                found.push((number, target.to_owned()));
            }
        }
    }
    found
}

/// The headings of a page, without their `#`, each with its line from 1.
fn headings(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).filter(|(_, line)| line.starts_with('#')).map(|(number, line)| (number, line.trim_start_matches('#').trim()))
}

/// The lines outside fenced code, each with its number from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        (!in_code && !is_fence).then_some((number + 1, line))
    })
}

/// The anchor that a heading gets: lower case, spaces become dashes, other punctuation goes.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// `target` as seen from the page at `from`, with `.` and `..` resolved.
fn join(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::kit;

    const HOME: (&str, &str) = (INDEX, "# Docs\n[one](one.md)\n");

    #[test]
    fn links_lead_somewhere() {
        let check = |text: &str, want: &[&str]| kit::check(check, &[HOME, ("docs/one.md", text), ("core/src/lib.rs", "")], want);
        check("# One, and `more`: of it\n[a](../core/src/lib.rs) [b](README.md#docs) [c](#one-and-more-of-it) [d](../core)", &[]);
        check("[x](https://example.org/none) `[x](none.md)` [m](mailto:a@b)\n```\n[x](none.md)\n```\n", &[]);
        check("\n[x](none.md)", &["docs/one.md:2: dead link `none.md`: there is no `docs/none.md`"]);
        check("[x](README.md#none)", &["docs/one.md:1: dead link `README.md#none`: `docs/README.md` has no such heading"]);
    }

    #[test]
    fn every_page_is_found_from_the_index() {
        let fragment = ("docs/changelog.d/1.md", "What: x\nImpact: y\nWhat to do: z\n");
        kit::check(check, &[HOME, ("docs/one.md", "[two](sub/two.md)"), ("docs/sub/two.md", ""), fragment], &[]);
        kit::check(check, &[HOME, ("docs/one.md", ""), ("docs/sub/two.md", "")], &["docs/sub/two.md:1: no link leads here"]);
    }

    #[test]
    fn a_fragment_says_what_to_do() {
        let bad = ("docs/changelog.d/1.md", "What: x\nImpact: y\n");
        kit::check(check, &[bad], &["docs/changelog.d/1.md:1: a changelog fragment has a line that begins with `What to do:`"]);
    }

    #[test]
    fn every_crate_has_an_invariant() {
        let home = (INDEX, "[a](architecture.md)");
        let page = |text| (ARCHITECTURE, text);
        let store = ("store/Cargo.toml", "");
        kit::check(check, &[home, page("### `store/`\nKeeps.\n*Invariant*: none.\n"), store], &[]);
        kit::check(
            check,
            &[home, page("### `store/`\nKeeps.\n### `core/`\n*Invariant*: none.\n"), store],
            &["docs/architecture.md:1: no section ### `store/`"],
        );
    }
}

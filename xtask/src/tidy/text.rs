//! Rules for every text file: it works on any machine and shows nobody's.

use super::{File, Finding};

/// What names one machine or one registry, in two parts so that this file passes its own rule.
const BANNED: [(&str, &str, &str); 9] = [
    ("/ro", "ot/", "a path of one machine"),
    ("/ho", "me/", "a path of one machine"),
    ("/wo", "rk/", "a path of one machine"),
    ("/Us", "ers/", "a path of one machine"),
    ("registry.", "npmjs.org", "clients know their registry; hint: npm config set omit-lockfile-registry-resolved true"),
    ("index.", "crates.io", "clients know their registry"),
    ("static.", "crates.io", "clients know their registry"),
    ("py", "pi.org", "clients know their registry"),
    ("python", "hosted.org", "clients know their registry"),
];
/// Written by cargo, which names its registry in its own way.
const EXEMPT: [&str; 1] = ["Cargo.lock"];
/// Lock files of npm hold this key only if they were told to name hosts.
const RESOLVED: &str = "\"resolved\": \"http";

/// Checks every text file.
pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| !EXEMPT.contains(&file.path.as_str())) {
        let is_npm_lock = file.path.ends_with("package-lock.json");
        for (number, line) in file.text.lines().enumerate() {
            for (head, tail, why) in BANNED {
                if line.contains(&format!("{head}{tail}")) {
                    found.push(file.at(number + 1, format!("`{head}{tail}`: {why}")));
                }
            }
            if is_npm_lock && line.contains(RESOLVED) && !line.contains(&format!("{}{}", BANNED[4].0, BANNED[4].1)) {
                found.push(file.at(number + 1, format!("a host in a lock file: {}", BANNED[4].2)));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::kit;

    #[test]
    fn no_machine_and_no_registry_is_named() {
        for (head, tail, _) in BANNED {
            let text = format!("fine\nsee {head}{tail}x\n");
            kit::check(check, &[("docs/a.md", &text), ("Cargo.lock", &text)], &[&format!("docs/a.md:2: `{head}{tail}`")]);
        }
        let lock = "{\n\"resolved\": \"https://mirror.example/x.tgz\"\n}";
        kit::check(check, &[("tests/mcp/package-lock.json", lock)], &["tests/mcp/package-lock.json:2: a host in a lock file"]);
    }
}

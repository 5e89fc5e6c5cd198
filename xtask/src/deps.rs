//! What may come in: licences, banned crates, duplicates and sources of every dependency that is really built.
//!
//! The rules stand in `deny.toml`, in the form that cargo-deny reads; this reads the same file with the few lines it
//! needs, from `cargo tree`, which (other than `cargo metadata`) lists no dependency that no feature turns on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::exec::Run;

/// Checks the tree of dependencies against `deny.toml`. The error lists all that is wrong.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(root.join("deny.toml")).map_err(|e| format!("deny.toml: {e}"))?;
    let rules = Rules::parse(&text)?;
    let args =
        ["tree", "--locked", "--workspace", "--target", "all", "--edges", "normal,build,dev", "--prefix", "none", "--format", "{p}|{l}"];
    let tree = Run::cargo(root, &args, 5).stdout()?;
    let used: BTreeSet<Used> = tree.iter().filter_map(|line| Used::parse(line)).collect();
    let mut users = Users::new();
    for name in rules.with_wrappers().filter(|name| used.iter().any(|used| used.name == **name)) {
        users.insert(name.clone(), who_uses(root, name)?);
    }
    let wrong = rules.judge(&used, &users, root);
    if wrong.is_empty() { Ok(()) } else { Err(format!("{} dependencies break deny.toml\n  {}", wrong.len(), wrong.join("\n  "))) }
}

/// The direct users of some crates, by the crate's name.
type Users = BTreeMap<String, BTreeSet<String>>;

/// The crates that depend on `name` themselves.
fn who_uses(root: &Path, name: &str) -> Result<BTreeSet<String>, String> {
    let args = ["tree", "--locked", "--workspace", "--target", "all", "--edges", "normal,build,dev", "--prefix", "depth", "--depth", "1"];
    let tree = Run::cargo(root, &[&args[..], &["--invert", name]].concat(), 5).stdout()?;
    // The crate itself stands at depth 0.
    let direct = tree.iter().filter_map(|line| line.strip_prefix('1')).filter_map(|line| line.split(' ').next());
    Ok(direct.map(str::to_owned).collect())
}

/// One crate of the tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Used {
    name: String,
    version: String,
    /// What cargo puts in brackets: a folder, a git address, `proc-macro`.
    origin: Option<String>,
    licence: String,
}

impl Used {
    /// From `name v1.2.3 (origin)|licence (*)`.
    fn parse(line: &str) -> Option<Self> {
        let (package, licence) = line.trim_end_matches(" (*)").split_once('|')?;
        let mut words = package.splitn(3, ' ');
        let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
        let origin = words.next().map(|rest| rest.replace("(proc-macro)", "").trim().trim_matches(['(', ')']).to_owned());
        let origin = origin.filter(|origin| !origin.is_empty());
        Some(Self { name: name.to_owned(), version: version.to_owned(), origin, licence: licence.to_owned() })
    }
}

/// The lists of `deny.toml`.
#[derive(Debug, PartialEq, Eq)]
struct Rules {
    licences: BTreeSet<String>,
    /// Crate and ban.
    banned: BTreeMap<String, Ban>,
    /// Crate and reason.
    single: BTreeMap<String, String>,
}

/// A crate that must not come in.
#[derive(Debug, PartialEq, Eq)]
struct Ban {
    reason: String,
    /// Crates that may bring it in all the same.
    wrappers: BTreeSet<String>,
}

impl Rules {
    fn parse(text: &str) -> Result<Self, String> {
        let mut rules = Self { licences: BTreeSet::new(), banned: BTreeMap::new(), single: BTreeMap::new() };
        let mut section = "";
        for line in text.lines().map(str::trim) {
            if line.starts_with('[') {
                section = line;
            } else if section == "[licenses]" && line.starts_with('"') {
                rules.licences.extend(quoted(line).into_iter().next().map(str::to_owned));
            } else if section == "[bans]" && line.starts_with("{ crate") {
                let (line, wrappers) = without_wrappers(line);
                let strings = quoted(&line);
                let [name, .., reason] = strings.as_slice() else { return Err(format!("deny.toml: no reason in `{line}`")) };
                let (name, reason) = ((*name).to_owned(), (*reason).to_owned());
                if line.contains("deny-multiple-versions = true") {
                    rules.single.insert(name, reason);
                } else {
                    rules.banned.insert(name, Ban { reason, wrappers });
                }
            }
        }
        if rules.licences.is_empty() || rules.banned.is_empty() || rules.single.is_empty() {
            return Err("deny.toml: a list is empty".to_owned());
        }
        Ok(rules)
    }

    /// Banned crates that somebody may bring in all the same.
    fn with_wrappers(&self) -> impl Iterator<Item = &String> {
        self.banned.iter().filter(|(_, ban)| !ban.wrappers.is_empty()).map(|(name, _)| name)
    }

    /// Everything that is wrong, one sentence each.
    fn judge(&self, used: &BTreeSet<Used>, users: &Users, root: &Path) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for Used { name, version, origin, licence } in used {
            versions.entry(name).or_default().insert(version);
            if let Some(Ban { reason, wrappers }) = self.banned.get(name) {
                let known = users.get(name);
                if !known.is_some_and(|users| users.iter().all(|user| wrappers.contains(user))) {
                    wrong.push(format!("`{name}` is banned: {reason}; hint: cargo tree --workspace --target all -i {name}"));
                }
            }
            if !allowed(licence, &self.licences) {
                wrong.push(format!("`{name}` {version} has licence `{licence}`; hint: deny.toml lists what is allowed"));
            }
            if let Some(origin) = origin.as_deref().filter(|origin| !Path::new(origin).starts_with(root)) {
                wrong.push(format!("`{name}` comes from `{origin}`: only the registry and this workspace are sources"));
            }
        }
        for (name, reason) in &self.single {
            if let Some(several) = versions.get(name.as_str()).filter(|several| several.len() > 1) {
                let several: Vec<_> = several.iter().copied().collect();
                wrong.push(format!("`{name}` is there in versions {}: {reason}", several.join(" and ")));
            }
        }
        wrong
    }
}

/// A line without its `wrappers = [..]`, and what stood in there.
fn without_wrappers(line: &str) -> (String, BTreeSet<String>) {
    let parts =
        line.split_once("wrappers = [").and_then(|(before, rest)| rest.split_once(']').map(|(inside, after)| (before, inside, after)));
    match parts {
        Some((before, inside, after)) => (format!("{before}{after}"), quoted(inside).into_iter().map(str::to_owned).collect()),
        None => (line.to_owned(), BTreeSet::new()),
    }
}

/// The strings in double quotes of a line.
fn quoted(line: &str) -> Vec<&str> {
    line.split('"').skip(1).step_by(2).collect()
}

/// True if an SPDX expression can be met from `allow`: every side of an AND, one side of an OR.
fn allowed(expression: &str, allow: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any(&mut rest, allow) == Some(true) && rest.is_empty()
}

/// `all OR all ..`; `None` if the expression has no such form.
fn any(rest: &mut &[&str], allow: &BTreeSet<String>) -> Option<bool> {
    let mut met = all(rest, allow)?;
    while let ["OR", tail @ ..] = *rest {
        *rest = tail;
        met |= all(rest, allow)?;
    }
    Some(met)
}

/// `term AND term ..`
fn all(rest: &mut &[&str], allow: &BTreeSet<String>) -> Option<bool> {
    let mut met = term(rest, allow)?;
    while let ["AND", tail @ ..] = *rest {
        *rest = tail;
        met &= term(rest, allow)?;
    }
    Some(met)
}

/// `( any )`, `id WITH exception` or `id`.
fn term(rest: &mut &[&str], allow: &BTreeSet<String>) -> Option<bool> {
    match *rest {
        ["(", tail @ ..] => {
            *rest = tail;
            let met = any(rest, allow)?;
            let [")", tail @ ..] = *rest else { return None };
            *rest = tail;
            Some(met)
        }
        [id, "WITH", exception, tail @ ..] => {
            *rest = tail;
            Some(allow.contains(&format!("{id} WITH {exception}")))
        }
        [id, tail @ ..] if !["OR", "AND", "WITH", ")"].contains(id) => {
            *rest = tail;
            Some(allow.contains(*id))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = r#"
[licenses]
allow = [
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
]
[bans]
deny = [
    { crate = "ring", reason = "one TLS provider" },
    { crate = "loose", wrappers = ["macro-of-theirs"], reason = "one error enum" },
    { crate = "tokio", deny-multiple-versions = true, reason = "one runtime" },
]
"#;

    #[test]
    fn licence_expressions_are_judged_as_written() {
        let allow = Rules::parse(RULES).unwrap().licences;
        let check = |expression, want| assert_eq!(allowed(expression, &allow), want, "{expression}");
        check("MIT", true);
        check("MIT/Apache-2.0", true);
        check("GPL-3.0 OR MIT", true);
        check("GPL-3.0 AND MIT", false);
        check("MIT AND (GPL-3.0 OR Apache-2.0)", true);
        check("(MIT OR GPL-3.0) AND GPL-3.0", false);
        check("Apache-2.0 WITH LLVM-exception", true);
        check("MIT WITH LLVM-exception", false);
        check("", false);
        check("MIT AND", false);
        check("(MIT", false);
        check("MIT)", false);
    }

    #[test]
    fn each_rule_names_the_crate_that_breaks_it() {
        let rules = Rules::parse(RULES).unwrap();
        let users = |names: &[&str]| Users::from([("loose".to_owned(), names.iter().map(|name| (*name).to_owned()).collect())]);
        let loose = |users: &Users| rules.judge(&BTreeSet::from([Used::parse("loose v1.0.0|MIT").unwrap()]), users, Path::new("/repo"));
        assert_eq!(loose(&users(&["macro-of-theirs"])), Vec::<String>::new());
        assert!(loose(&users(&["macro-of-theirs", "ours"]))[0].contains("`loose` is banned: one error enum"));
        assert_eq!(loose(&Users::new()).len(), 1, "nobody knows who brings it in");
        let check = |tree: &[&str], want: &[&str]| {
            let used: BTreeSet<Used> = tree.iter().map(|line| Used::parse(line).unwrap()).collect();
            let wrong = rules.judge(&used, &Users::new(), Path::new("/repo"));
            assert_eq!(wrong.len(), want.len(), "{wrong:?}");
            for (wrong, want) in wrong.iter().zip(want) {
                assert!(wrong.contains(want), "{wrong} lacks {want}");
            }
        };
        check(&["tokio v1.54.0|MIT", "ours v0.1.0 (/repo/ours)|Apache-2.0", "derive v1.0.0 (proc-macro)|MIT (*)"], &[]);
        check(&["ring v0.17.0|Apache-2.0"], &["`ring` is banned: one TLS provider"]);
        check(&["tokio v1.54.0|MIT", "tokio v0.2.0|MIT"], &["`tokio` is there in versions 0.2.0 and 1.54.0: one runtime"]);
        check(&["odd v1.0.0|GPL-3.0"], &["`odd` 1.0.0 has licence `GPL-3.0`"]);
        check(&["odd v1.0.0 (proc-macro) (/elsewhere/odd)|MIT"], &["`odd` comes from `/elsewhere/odd`"]);
        check(&["odd v1.0.0 (https://git.example/odd#1)|MIT"], &["`odd` comes from `https://git.example/odd#1`"]);
    }

    #[test]
    fn a_ban_without_a_reason_is_refused() {
        let without = RULES.replace(", reason = \"one TLS provider\"", "");
        assert!(Rules::parse(&without).unwrap_err().contains("no reason"));
    }
}

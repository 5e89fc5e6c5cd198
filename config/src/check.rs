//! The form of one document against the shape of the settings: unknown keys, wrong kinds, values out of range.
//!
//! Finds everything at once and takes what is wrong out of the tree, so that the rest can still be checked as a whole.

use crate::error::Problem;
use crate::node::{Node, Tree};
use crate::shape::{Kind, Shape, listed};
use crate::unbuilt;
use crate::value::{Period, Size, Wait};

/// Longest name of a model, chain, agent, tool or server: what providers accept as a tool's name.
pub const NAME_CHARS_MAX: usize = 64;
/// Most keys listed when none is alike.
const LISTED_MAX: usize = 20;
/// How alike two names must be for one to be meant by the other (Jaro-Winkler, 0 to 1).
const ALIKE: f64 = 0.8;

/// Checks `node` against `shape` and removes what is wrong; `path` is where it stands.
pub(crate) fn check(node: &mut Node, shape: &Shape, path: &[&str], problems: &mut Vec<Problem>) {
    match (&mut node.value, &shape.kind) {
        (Tree::Table(entries), Kind::Table(known)) => entries.retain(|key, entry| {
            let path = [path, &[key]].concat();
            match known.iter().find(|(name, _)| name == key) {
                Some((_, shape)) => keep(entry, shape, &path, problems),
                None => {
                    problems.push(unknown(entry, &path, known.iter().map(|(name, _)| name.as_str())));
                    false
                }
            }
        }),
        (Tree::Table(entries), Kind::Map { of, free }) => entries.retain(|key, entry| {
            let path = [path, &[key]].concat();
            if !free && !is_name(key) {
                let reason = format!("`{}` is no name", key.escape_debug());
                problems.push(
                    Problem::new(Some(entry.place.clone()), path.join("."), reason)
                        .hint(format!("1 to {NAME_CHARS_MAX} of the characters A-Z, a-z, 0-9, `_` and `-`")),
                );
                return false;
            }
            keep(entry, of, &path, problems)
        }),
        (Tree::List(items), Kind::List(of)) => {
            let mut index = 0_usize;
            items.retain_mut(|item| {
                let position = index.to_string();
                index += 1;
                keep(item, of, &[path, &[&position]].concat(), problems)
            });
        }
        _ => {}
    }
}

/// Checks an entry; false means that it has to go.
fn keep(node: &mut Node, shape: &Shape, path: &[&str], problems: &mut Vec<Problem>) -> bool {
    if let Some(reason) = misfit(node, shape) {
        let text = if let Tree::Text(text) = &node.value { Some(text.as_str()) } else { None };
        let problem = Problem::new(Some(node.place.clone()), path.join("."), reason);
        let problem = match unbuilt::setting(path, text) {
            Some(what) => Problem { reason: format!("not built yet: {what}"), ..problem },
            None => problem.hint(format!("allowed: {}", shape.allowed())),
        };
        // What stands where a secret or a table was wanted may be a secret.
        let tells = !matches!(shape.kind, Kind::Secret | Kind::Table(_) | Kind::Map { .. } | Kind::Any);
        problems.push(if tells { problem.value(shortened(&node.to_string())) } else { problem });
        return false;
    }
    check(node, shape, path, problems);
    true
}

/// Says why a value does not fit, as far as its own kind and range go.
fn misfit(node: &Node, shape: &Shape) -> Option<String> {
    let wrong_kind = || Some(format!("is {}", node.kind()));
    match (&shape.kind, &node.value) {
        (Kind::Table(_) | Kind::Map { .. } | Kind::Any, Tree::Table(_))
        | (Kind::List(_), Tree::List(_))
        | (Kind::Text | Kind::Secret | Kind::Several, Tree::Text(_))
        | (Kind::Flag, Tree::Flag(_)) => None,
        (Kind::Several, Tree::List(items)) => {
            items.iter().find(|item| !matches!(item.value, Tree::Text(_))).map(|item| format!("holds {}", item.kind()))
        }
        (Kind::Period { max }, Tree::Text(text)) => ranged(Period::parse(text), max.as_deref().map(Period::parse)),
        (Kind::Wait { max }, Tree::Text(text)) => ranged(Wait::parse(text), max.as_deref().map(Wait::parse)),
        (Kind::Size { max }, Tree::Text(text)) => ranged(Size::parse(text), max.as_deref().map(Size::parse)),
        (Kind::Period { .. } | Kind::Wait { .. } | Kind::Size { .. }, Tree::Integer(_) | Tree::Number(_)) => Some("has no unit".into()),
        (Kind::Word(words), Tree::Text(text)) => (!words.contains(text)).then(|| match alike(text, words.iter().map(String::as_str)) {
            Some(meant) => format!("is no known word; did you mean `{meant}`?"),
            None => "is no known word".into(),
        }),
        (Kind::Integer { min, max }, Tree::Integer(number)) => {
            if number < min {
                Some(format!("is less than {min}"))
            } else if number > max {
                Some(format!("is more than {max}"))
            } else {
                None
            }
        }
        // A whole number is a number; nothing here is large enough to lose digits.
        #[expect(clippy::cast_precision_loss, reason = "compared with bounds below 2^53")]
        (Kind::Number { min, max }, Tree::Integer(number)) => {
            (!(*min..=*max).contains(&(*number as f64))).then(|| "is out of range".into())
        }
        (Kind::Number { min, max }, Tree::Number(number)) => (!(*min..=*max).contains(number)).then(|| "is out of range".into()),
        _ => wrong_kind(),
    }
}

/// Joins the error of a text with its upper bound.
fn ranged<T: PartialOrd + std::fmt::Display>(value: Result<T, String>, max: Option<Result<T, String>>) -> Option<String> {
    match (value, max) {
        (Err(reason), _) => Some(reason),
        (Ok(value), Some(Ok(max))) if value > max => Some(format!("is more than {max}")),
        (Ok(_), _) => None,
    }
}

/// An unknown key: not built, misspelt, or neither.
fn unknown<'a>(entry: &Node, path: &[&str], known: impl Iterator<Item = &'a str> + Clone) -> Problem {
    let key = path.last().copied().unwrap_or_default();
    let problem = Problem::new(Some(entry.place.clone()), path.join("."), "unknown key");
    if let Some(what) = unbuilt::setting(path, None) {
        return Problem { reason: format!("not built yet: {what}"), ..problem };
    }
    match alike(key, known.clone()) {
        Some(meant) => problem.hint(format!("did you mean `{meant}`?")),
        None if known.clone().count() <= LISTED_MAX => problem.hint(format!("known here: {}", listed(known))),
        None => problem.hint("`ambit config schema` has all keys"),
    }
}

/// The name that is most like a given one, if any is.
pub(crate) fn alike<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|candidate| (strsim::jaro_winkler(&name.to_ascii_lowercase(), candidate), candidate))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}

/// True for what can name a thing of the user's own.
pub(crate) fn is_name(text: &str) -> bool {
    (1..=NAME_CHARS_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// At most 80 characters of a value.
pub(crate) fn shortened(text: &str) -> String {
    const CHARS: usize = 80;
    if text.chars().count() <= CHARS { text.to_owned() } else { format!("{}..", text.chars().take(CHARS).collect::<String>()) }
}

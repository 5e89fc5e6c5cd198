//! Settings from the environment and from arguments: texts that become what their key may hold.
//!
//! figment guesses a type from the text, so that a key `0123` or a model `4` would become numbers. Here the key decides:
//! where a text is wanted, every text is one.

use std::collections::BTreeMap;

use crate::error::Problem;
use crate::node::{Node, Place, Tree, parse_value};
use crate::shape::{Kind, SETTINGS};
use crate::sources::{INJECTED, PREFIX, RESERVED};

/// Parts of a variable's name are separated by this.
const SEPARATOR: &str = "__";

/// The settings of an environment, and the variables that look like ours and were ignored.
pub(crate) fn environment(env: &BTreeMap<String, String>, problems: &mut Vec<Problem>) -> (Node, Vec<String>) {
    let mut root = Node::table(Place::Variable(PREFIX.into()));
    let mut ignored = Vec::new();
    for (name, value) in env {
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        if RESERVED.contains(&name.as_str()) {
            continue;
        }
        if INJECTED.iter().any(|beginning| name.starts_with(beginning)) {
            ignored.push(name.clone());
            continue;
        }
        let key = rest.to_ascii_lowercase();
        let path: Vec<&str> = key.split(SEPARATOR).collect();
        put(&mut root, &path, typed(value, &path, Place::Variable(name.as_str().into())), problems);
    }
    (root, ignored)
}

/// The settings of arguments `a.b=c`, in order.
pub(crate) fn arguments(sets: &[String], problems: &mut Vec<Problem>) -> Node {
    let mut root = Node::table(Place::Argument("".into()));
    for set in sets {
        let Some((key, value)) = set.split_once('=').filter(|(key, _)| !key.trim().is_empty()) else {
            let place = Place::Argument(set.split('=').next().unwrap_or_default().into());
            problems.push(Problem::new(Some(place), "", "an argument without a key or a value").hint("write `--set limits.deadline=20s`"));
            continue;
        };
        let path: Vec<&str> = key.trim().split('.').collect();
        put(&mut root, &path, typed(value, &path, Place::Argument(key.trim().into())), problems);
    }
    root
}

/// Puts a setting into its place. What stands in the way of a table is a problem, and not lost in silence.
fn put(root: &mut Node, path: &[&str], node: Node, problems: &mut Vec<Problem>) {
    let key = path.join(".");
    if let Some(replaced) = root.put(path, node) {
        let reason = format!("is {} that stands in the way of `{key}`", replaced.kind());
        problems.push(Problem::new(Some(replaced.place), "", reason).hint("set the one or the other"));
    }
}

/// Reads a text as what the key may hold. What cannot be read that way stays a text, for the check to complain about.
fn typed(text: &str, path: &[&str], place: Place) -> Node {
    let as_toml = || parse_value(text, &place);
    let as_text = || Node { place: place.clone(), value: Tree::Text(text.to_owned()) };
    let Some(shape) = SETTINGS.at(path) else { return as_text() };
    match &shape.kind {
        Kind::Integer { .. } | Kind::Number { .. } | Kind::Flag | Kind::Table(_) | Kind::Map { .. } | Kind::List(_) | Kind::Any => {
            as_toml().unwrap_or_else(as_text)
        }
        Kind::Several if text.trim_start().starts_with('[') => as_toml().unwrap_or_else(as_text),
        Kind::Several | Kind::Text | Kind::Period { .. } | Kind::Wait { .. } | Kind::Size { .. } | Kind::Secret | Kind::Word(_) => {
            as_text()
        }
    }
}

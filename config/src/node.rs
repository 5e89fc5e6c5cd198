//! One document of settings as a tree in which every value knows where it stands.
//!
//! figment merges values; this tree is kept beside it, so that each error and `explain` can name file and line, variable or
//! argument, also for a value that was overridden.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use figment::value::{Dict, Value};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::shape::{Kind, Shape};

/// Where a value stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In Ambit's own defaults.
    BuiltIn,
    /// In a profile that comes with the binary.
    Shipped {
        /// Its file.
        file: Arc<str>,
        /// Line, from 1.
        line: usize,
    },
    /// In a file.
    File {
        /// As it was given.
        path: Arc<Path>,
        /// Line, from 1; 0 for the file as a whole.
        line: usize,
    },
    /// In an environment variable of this name.
    Variable(Arc<str>),
    /// In an argument `--set`, for this key.
    Argument(Arc<str>),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built-in default"),
            Self::Shipped { file, line } => write!(f, "shipped {file}:{line}"),
            Self::File { path, line: 0 } => write!(f, "{}", path.display()),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::Argument(key) => write!(f, "--set {key}"),
        }
    }
}

/// A value and where it stands; an entry of a table stands where its key does.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) value: Tree,
}

/// The values that a configuration can hold.
#[derive(Debug, Clone)]
pub(crate) enum Tree {
    Text(String),
    Integer(i64),
    Number(f64),
    Flag(bool),
    List(Vec<Node>),
    Table(BTreeMap<String, Node>),
}

impl Node {
    pub(crate) fn table(place: Place) -> Self {
        Self { place, value: Tree::Table(BTreeMap::new()) }
    }

    /// The node under a path, if there is one.
    pub(crate) fn at(&self, path: &[&str]) -> Option<&Self> {
        let Some((first, rest)) = path.split_first() else { return Some(self) };
        match &self.value {
            Tree::Table(entries) => entries.get(*first)?.at(rest),
            Tree::List(items) => items.get(first.parse::<usize>().ok()?)?.at(rest),
            Tree::Text(_) | Tree::Integer(_) | Tree::Number(_) | Tree::Flag(_) => None,
        }
    }

    /// Puts a node under a path, making tables on the way; gives back what was no table and had to make room for one.
    pub(crate) fn put(&mut self, path: &[&str], node: Self) -> Option<Self> {
        let Some((first, rest)) = path.split_first() else {
            *self = node;
            return None;
        };
        let replaced = match &self.value {
            Tree::Table(_) => None,
            Tree::Text(_) | Tree::Integer(_) | Tree::Number(_) | Tree::Flag(_) | Tree::List(_) => Some(self.clone()),
        };
        if replaced.is_some() {
            self.value = Tree::Table(BTreeMap::new());
        }
        let mut below = None;
        if let Tree::Table(entries) = &mut self.value {
            let place = node.place.clone();
            below = entries.entry((*first).to_owned()).or_insert_with(|| Self::table(place)).put(rest, node);
        }
        replaced.or(below)
    }

    /// Replaces every secret in it by `mask`.
    pub(crate) fn mask(&mut self, shape: &Shape, mask: &str) {
        match (&shape.kind, &mut self.value) {
            (Kind::Secret, value) => *value = Tree::Text(mask.to_owned()),
            (Kind::Table(known), Tree::Table(entries)) => {
                for (key, of) in known {
                    if let Some(node) = entries.get_mut(key) {
                        node.mask(of, mask);
                    }
                }
            }
            (Kind::Map { of, .. }, Tree::Table(entries)) => entries.values_mut().for_each(|node| node.mask(of, mask)),
            _ => {}
        }
    }

    /// What it is, in words, without its content.
    pub(crate) fn kind(&self) -> &'static str {
        match self.value {
            Tree::Text(_) => "a text",
            Tree::Integer(_) => "a whole number",
            Tree::Number(_) => "a number",
            Tree::Flag(_) => "true or false",
            Tree::List(_) => "a list",
            Tree::Table(_) => "a table",
        }
    }

    /// Its content as figment holds it.
    pub(crate) fn to_figment(&self) -> Value {
        match &self.value {
            Tree::Text(text) => Value::from(text.clone()),
            Tree::Integer(number) => Value::from(*number),
            Tree::Number(number) => Value::from(*number),
            Tree::Flag(flag) => Value::from(*flag),
            Tree::List(items) => Value::from(items.iter().map(Self::to_figment).collect::<Vec<_>>()),
            Tree::Table(_) => Value::from(self.to_dict()),
        }
    }

    /// Its entries as figment holds them; empty for what is no table.
    pub(crate) fn to_dict(&self) -> Dict {
        match &self.value {
            Tree::Table(entries) => entries.iter().map(|(key, node)| (key.clone(), node.to_figment())).collect(),
            Tree::Text(_) | Tree::Integer(_) | Tree::Number(_) | Tree::Flag(_) | Tree::List(_) => Dict::new(),
        }
    }
}

/// As it would be written in TOML, on one line.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Tree::Text(text) => write!(f, "{text:?}"),
            Tree::Integer(number) => write!(f, "{number}"),
            Tree::Number(number) => write!(f, "{number}"),
            Tree::Flag(flag) => write!(f, "{flag}"),
            Tree::List(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
            Tree::Table(entries) => {
                f.write_str("{")?;
                for (i, (key, node)) in entries.iter().enumerate() {
                    write!(f, "{} {key} = {node}", if i == 0 { "" } else { "," })?;
                }
                f.write_str(" }")
            }
        }
    }
}

/// Why a text is no document.
#[derive(Debug)]
pub(crate) struct Malformed {
    pub(crate) line: usize,
    pub(crate) reason: String,
}

/// Reads TOML; `place` makes a place from a line.
pub(crate) fn parse(text: &str, place: &dyn Fn(usize) -> Place) -> Result<Node, Malformed> {
    let starts: Vec<usize> = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
    let line = |offset: usize| starts.partition_point(|start| *start <= offset);
    let parsed: Parsed = toml::from_str(text)
        .map_err(|e| Malformed { line: e.span().map_or(1, |span| line(span.start)), reason: e.message().trim().replace('\n', ", ") })?;
    Ok(parsed.located(place(1), &|offset| place(line(offset))))
}

/// Reads one value as TOML has it to the right of `=`.
pub(crate) fn parse_value(text: &str, place: &Place) -> Option<Node> {
    let document = parse(&format!("value = {text}"), &|_| place.clone()).ok()?;
    match document.value {
        Tree::Table(mut entries) if entries.len() == 1 => entries.remove("value"),
        Tree::Table(_) | Tree::Text(_) | Tree::Integer(_) | Tree::Number(_) | Tree::Flag(_) | Tree::List(_) => None,
    }
}

/// A value whose keys know the offset at which they begin.
enum Parsed {
    Leaf(Tree),
    List(Vec<Parsed>),
    Table(Vec<(toml::Spanned<String>, Parsed)>),
}

impl Parsed {
    fn located(self, here: Place, place: &dyn Fn(usize) -> Place) -> Node {
        let value = match self {
            Self::Leaf(value) => value,
            Self::List(items) => Tree::List(items.into_iter().map(|item| item.located(here.clone(), place)).collect()),
            Self::Table(entries) => Tree::Table(
                entries
                    .into_iter()
                    .map(|(key, value)| {
                        let at = place(key.span().start);
                        (key.into_inner(), value.located(at, place))
                    })
                    .collect(),
            ),
        };
        Node { place: here, value }
    }
}

impl<'de> Deserialize<'de> for Parsed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Parsed;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a number, true, false, a list or a table; dates are none of these")
            }
            fn visit_bool<E>(self, flag: bool) -> Result<Parsed, E> {
                Ok(Parsed::Leaf(Tree::Flag(flag)))
            }
            fn visit_i64<E>(self, number: i64) -> Result<Parsed, E> {
                Ok(Parsed::Leaf(Tree::Integer(number)))
            }
            fn visit_f64<E>(self, number: f64) -> Result<Parsed, E> {
                Ok(Parsed::Leaf(Tree::Number(number)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Parsed, E> {
                Ok(Parsed::Leaf(Tree::Text(text.to_owned())))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Parsed, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Parsed::List(items))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parsed, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Parsed::Table(entries))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, lines: &[(&str, usize)]) {
        let node = parse(text, &|line| Place::File { path: Path::new("a.toml").into(), line }).unwrap();
        for (path, expected) in lines {
            let keys: Vec<&str> = path.split('.').collect();
            let at = node.at(&keys).unwrap_or_else(|| panic!("{path} is missing"));
            assert_eq!(at.place, Place::File { path: Path::new("a.toml").into(), line: *expected }, "{path}");
        }
    }

    #[test]
    fn every_key_knows_its_line_however_it_is_written() {
        check(
            "[default.limits]\ndeadline = \"1s\"\n\n[dev]\nlimits.deadline = \"2s\"",
            &[("default.limits", 1), ("default.limits.deadline", 2), ("dev.limits.deadline", 5)],
        );
        check("\na = { b = 1, c = { d = 2 } }", &[("a.b", 2), ("a.c.d", 2)]);
        check("# comment\r\n[a.b.c]\r\nd = '''\r\nx'''\r\ne = [1,\r\n2]", &[("a", 2), ("a.b.c.d", 3), ("a.b.c.e", 5), ("a.b.c.e.1", 5)]);
        check("\"a\".b = 1\n[[list]]\nx = 1\n[[list]]\nx = 2", &[("a.b", 1), ("list.0.x", 3), ("list.1.x", 5)]);
    }

    #[test]
    fn what_is_no_toml_says_where() {
        for (text, line) in [("a = 1\nb = \n", 2), ("a = 1\na = 2", 2), ("[a]\n[a]", 2), ("x = 1979-05-27", 1), ("\u{feff}[", 1)] {
            let got = parse(text, &|_| Place::BuiltIn).unwrap_err();
            assert_eq!(got.line, line, "{text}: {}", got.reason);
        }
    }
}

//! What each key may hold, read from the JSON Schema that the settings' own doc comments make.
//!
//! The schema is the one description: the checks, the typing of variables, the built-in defaults, the masking of secrets,
//! the reference and the editor all follow it. **Invariant:** the schema uses only the few forms that [`Kind`] names;
//! anything else is a bug that a test of this file finds.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value as Json};

use crate::settings::Settings;

/// What one key may hold.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) kind: Kind,
    /// First line of its doc comment, without the full stop.
    pub(crate) title: String,
    /// The rest of its doc comment.
    pub(crate) meaning: String,
    /// The built-in default.
    pub(crate) default: Option<Json>,
    /// The default in words, where it depends on other settings.
    pub(crate) default_in_words: Option<String>,
    pub(crate) unit: Option<String>,
    /// What raising it costs at worst.
    pub(crate) cost: Option<String>,
    /// True if it may be absent although it has no default.
    pub(crate) optional: bool,
    /// True if it is a path, which starts at the folder of the file that says it.
    pub(crate) is_path: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// Known keys.
    Table(Vec<(String, Shape)>),
    /// Free keys: names of the user's own, or (if `free`) any text.
    Map {
        of: Box<Shape>,
        free: bool,
    },
    List(Box<Shape>),
    /// One text or a list of texts.
    Several,
    Text,
    Period {
        max: Option<String>,
    },
    /// A period that may be nothing.
    Wait {
        max: Option<String>,
    },
    Size {
        max: Option<String>,
    },
    Secret,
    Word(Vec<String>),
    Integer {
        min: i64,
        max: i64,
    },
    Number {
        min: f64,
        max: f64,
    },
    Flag,
    /// Any table: a JSON Schema.
    Any,
}

/// What stands below a key.
pub(crate) enum Inside<'a> {
    /// Known keys.
    Table(&'a [(String, Shape)]),
    /// Free keys, each with this shape.
    Map(&'a Shape),
    /// Nothing: it is a value.
    Value,
}

/// The shape of one profile.
pub(crate) static SETTINGS: LazyLock<Shape> = LazyLock::new(|| shape(generated::<Settings>().as_value()));

impl Shape {
    /// What stands below it.
    pub(crate) fn inside(&self) -> Inside<'_> {
        match &self.kind {
            Kind::Table(entries) => Inside::Table(entries),
            Kind::Map { of, .. } => Inside::Map(of),
            Kind::List(_)
            | Kind::Several
            | Kind::Text
            | Kind::Period { .. }
            | Kind::Wait { .. }
            | Kind::Size { .. }
            | Kind::Secret
            | Kind::Word(_)
            | Kind::Integer { .. }
            | Kind::Number { .. }
            | Kind::Flag
            | Kind::Any => Inside::Value,
        }
    }

    /// The shape under a path, with every user's name standing for itself; `None` for an unknown key.
    pub(crate) fn at(&self, path: &[&str]) -> Option<&Self> {
        let Some((first, rest)) = path.split_first() else { return Some(self) };
        match &self.kind {
            Kind::Table(entries) => entries.iter().find(|(key, _)| key == first)?.1.at(rest),
            Kind::Map { of, .. } | Kind::List(of) => of.at(rest),
            Kind::Any => Some(self),
            Kind::Several
            | Kind::Text
            | Kind::Period { .. }
            | Kind::Wait { .. }
            | Kind::Size { .. }
            | Kind::Secret
            | Kind::Word(_)
            | Kind::Integer { .. }
            | Kind::Number { .. }
            | Kind::Flag => None,
        }
    }

    /// What is allowed, in words.
    pub(crate) fn allowed(&self) -> String {
        let up_to = |max: &Option<String>| max.as_ref().map(|max| format!(", at most `{max}`")).unwrap_or_default();
        match &self.kind {
            Kind::Table(entries) => format!("a table with {}", listed(entries.iter().map(|(key, _)| key.as_str()))),
            Kind::Map { .. } => "a table".into(),
            Kind::List(_) => "a list of texts".into(),
            Kind::Several => "a text or a list of texts".into(),
            Kind::Text => "a text".into(),
            Kind::Period { max } => format!("a length of time like `\"45s\"` or `\"200ms\"`{}", up_to(max)),
            Kind::Wait { max } => format!("a length of time like `\"2s\"`, or `\"0ms\"`{}", up_to(max)),
            Kind::Size { max } => format!("a size like `\"10KiB\"` or `\"1MiB\"`{}", up_to(max)),
            Kind::Secret => "a reference `\"env:NAME\"`, `\"file:/path\"` or `\"cred:name\"`".into(),
            Kind::Word(words) => format!("one of {}", listed(words.iter().map(String::as_str))),
            Kind::Integer { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Number { min, max } => format!("a number from {min} to {max}"),
            Kind::Flag => "true or false".into(),
            Kind::Any => "a table (a JSON Schema)".into(),
        }
    }
}

/// Names in backticks, with commas.
pub(crate) fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The JSON Schema of a file: profiles by name. Pretty-printed, ends with a line feed; `config/schema.json` is this text.
#[must_use]
pub fn schema() -> String {
    let profile = generated::<Settings>().to_value();
    let document = serde_json::json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Ambit configuration",
        "description": "One table a profile: `[default]`, and any others, of which one is laid over it.",
        "type": "object",
        "additionalProperties": profile,
    });
    format!("{document:#}\n")
}

/// The schema of a type, inlined, with titles, without nulls and requirements.
fn generated<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().with(|s| {
        s.inline_subschemas = true;
        s.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    RecursiveTransform(Tidy).transform(&mut schema);
    schema
}

/// Makes a derived schema fit a file of which every key may be absent, since defaults come from elsewhere.
struct Tidy;

impl Transform for Tidy {
    fn transform(&mut self, schema: &mut Schema) {
        let Some(object) = schema.as_object_mut() else { return };
        object.remove("required");
        if let Some(Json::Array(types)) = object.get("type") {
            let only: Vec<&Json> = types.iter().filter(|t| *t != "null").collect();
            if let [one] = only.as_slice() {
                let one = (*one).clone();
                object.insert("type".into(), one);
                object.insert("x-optional".into(), true.into());
            }
        }
        if let Some(Json::Array(of)) = object.get("anyOf") {
            let only: Vec<Json> = of.iter().filter(|s| s.get("type").is_none_or(|t| t != "null")).cloned().collect();
            if only.len() < of.len() {
                object.remove("anyOf");
                object.insert("x-optional".into(), true.into());
                if let [Json::Object(one)] = only.as_slice() {
                    for (key, value) in one {
                        object.entry(key.clone()).or_insert_with(|| value.clone());
                    }
                } else {
                    object.insert("anyOf".into(), Json::Array(only));
                }
            }
        }
        object.remove("format"); // `uint32`: says nothing that minimum and maximum do not
        if let Some(Json::String(text)) = object.get("description").cloned() {
            let (title, rest) = text.split_once("\n\n").unwrap_or((&text, ""));
            let title = title.replace('\n', " ");
            object.insert("title".into(), title.trim_end_matches('.').into());
            match rest.trim() {
                "" => drop(object.remove("description")),
                rest => drop(object.insert("description".into(), rest.replace('\n', " ").into())),
            }
        } else {
            // The title that a type's name would give says nothing to a user.
            object.remove("title");
        }
    }
}

/// Reads a tidied schema.
fn shape(schema: &Json) -> Shape {
    let text = |key: &str| schema.get(key).and_then(Json::as_str).map(str::to_owned);
    let flag = |key: &str| schema.get(key).and_then(Json::as_bool).unwrap_or(false);
    Shape {
        kind: kind(schema),
        title: text("title").unwrap_or_default(),
        meaning: text("description").unwrap_or_default(),
        default: schema.get("default").cloned(),
        default_in_words: text("x-default"),
        unit: text("x-unit"),
        cost: text("x-cost"),
        optional: flag("x-optional"),
        is_path: flag("x-path"),
    }
}

fn kind(schema: &Json) -> Kind {
    let text = |key: &str| schema.get(key).and_then(Json::as_str);
    let max = || text("x-max").map(str::to_owned);
    match text("x-kind") {
        Some("period") => return Kind::Period { max: max() },
        Some("wait") => return Kind::Wait { max: max() },
        Some("size") => return Kind::Size { max: max() },
        Some("secret") => return Kind::Secret,
        Some("several") => return Kind::Several,
        Some(_) => return Kind::Any,
        None => {}
    }
    let empty = Map::new();
    let object = schema.as_object().unwrap_or(&empty);
    match text("type") {
        Some("string") => match object.get("enum").and_then(Json::as_array) {
            Some(words) => Kind::Word(words.iter().filter_map(Json::as_str).map(str::to_owned).collect()),
            None => Kind::Text,
        },
        Some("integer") => {
            let bound = |key: &str, or: i64| object.get(key).and_then(Json::as_i64).unwrap_or(or);
            Kind::Integer { min: bound("minimum", 0), max: bound("maximum", i64::MAX) }
        }
        Some("number") => {
            let bound = |key: &str, or: f64| object.get(key).and_then(Json::as_f64).unwrap_or(or);
            Kind::Number { min: bound("minimum", 0.0), max: bound("maximum", f64::MAX) }
        }
        Some("boolean") => Kind::Flag,
        Some("array") => Kind::List(Box::new(shape(object.get("items").unwrap_or(&Json::Null)))),
        Some("object") => match (object.get("properties").and_then(Json::as_object), object.get("additionalProperties")) {
            (Some(entries), _) => Kind::Table(entries.iter().map(|(key, of)| (key.clone(), shape(of))).collect()),
            (None, Some(of @ Json::Object(_))) => Kind::Map { of: Box::new(shape(of)), free: text("x-names") == Some("free") },
            (None, _) => Kind::Any,
        },
        Some(_) | None => Kind::Any,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every leaf, with its path; names of the user's own are `*`.
    fn leaves<'a>(shape: &'a Shape, path: String, found: &mut Vec<(String, &'a Shape)>) {
        match shape.inside() {
            Inside::Table(entries) => entries.iter().for_each(|(key, of)| leaves(of, format!("{path}.{key}"), found)),
            Inside::Map(of) => leaves(of, format!("{path}.*"), found),
            Inside::Value => found.push((path, shape)),
        }
    }

    #[test]
    fn every_key_says_what_it_is_and_what_it_is_by_default() {
        let mut found = Vec::new();
        leaves(&SETTINGS, String::new(), &mut found);
        assert!(found.len() > 100, "{}", found.len());
        for (path, shape) in found {
            if path.ends_with(".*") {
                continue;
            }
            assert!(!shape.title.is_empty(), "{path} has no title");
            assert!(!matches!(shape.kind, Kind::Any) || path.ends_with(".schema"), "{path} has a form that the checks do not know");
            if let Kind::Integer { max, .. } = shape.kind {
                assert!(max < i64::MAX, "{path} has no bound");
                assert!(shape.unit.is_some(), "{path} has no unit");
            }
            assert!(!(shape.default.is_some() && shape.optional), "{path} is optional and has a default");
        }
    }
}

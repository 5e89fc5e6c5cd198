//! A tool's schema: checked once, at load, so that validating a call cannot hang, overflow or fetch anything.
//!
//! What is refused here would hurt later: references out of the schema (a fetch), references in a circle that consume
//! no input (a stack overflow, which ends the process), patterns that need backtracking, and sizes without reason.

use std::collections::HashMap;

use jsonschema::{PatternOptions, Validator};
use serde_json::{Map, Value};

use super::json::{DEPTH_MAX, Json};

/// Most bytes of one schema: it is sent with every model call.
const SCHEMA_BYTES_MAX: usize = 64 << 10;
/// Most mistakes that one refusal names: enough to correct a call in one go, and bounded.
const MISTAKES_MAX: usize = 5;
/// Most characters of one mistake's reason; it may quote the model's own value.
const REASON_CHARS_MAX: usize = 200;
/// Largest compiled pattern, bytes: about what `regex` itself allows by default, less a factor of ten.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// A schema that can be validated against without surprise.
#[derive(Debug)]
pub(crate) struct Schema {
    validator: Validator,
}

/// One thing that does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mistake {
    /// JSON pointer to the value.
    pub(crate) pointer: String,
    /// Why it does not fit.
    pub(crate) reason: String,
}

impl Schema {
    /// Compiles a schema of an object, or says why it cannot be used.
    pub(crate) fn compile(schema: &Value) -> Result<Self, String> {
        if !schema.is_object() {
            return Err("its schema is no object".into());
        }
        if depth(schema) > DEPTH_MAX {
            return Err(format!("its schema is nested deeper than {DEPTH_MAX}"));
        }
        let bytes = schema.to_string().len();
        if bytes > SCHEMA_BYTES_MAX {
            return Err(format!("its schema has {bytes} bytes, more than {SCHEMA_BYTES_MAX}"));
        }
        References::check(schema)?;
        let validator = jsonschema::options()
            .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES_MAX))
            .should_validate_formats(true)
            .build(schema)
            .map_err(|error| format!("its schema cannot be compiled: {}", shorten(&error.to_string())))?;
        Ok(Self { validator })
    }

    /// What does not fit, at most the first few.
    pub(crate) fn mistakes(&self, arguments: &Json) -> Vec<Mistake> {
        let value = arguments.to_value();
        self.validator
            .iter_errors(&value)
            .take(MISTAKES_MAX)
            .map(|error| Mistake { pointer: error.instance_path().to_string(), reason: shorten(&error.to_string()) })
            .collect()
    }

    /// True if the value fits.
    pub(crate) fn is_valid(&self, value: &Value) -> bool {
        self.validator.is_valid(value)
    }
}

/// The schema as a model sees it: without the arguments that Ambit fills in.
pub(crate) fn without(schema: &Value, hidden: &[&str]) -> Value {
    let mut shown = schema.clone();
    if let Some(members) = shown.as_object_mut() {
        if let Some(properties) = members.get_mut("properties").and_then(Value::as_object_mut) {
            properties.retain(|name, _| !hidden.contains(&name.as_str()));
        }
        if let Some(required) = members.get_mut("required").and_then(Value::as_array_mut) {
            required.retain(|name| name.as_str().is_none_or(|name| !hidden.contains(&name)));
        }
    }
    shown
}

/// The schema of one property of the arguments.
pub(crate) fn property<'a>(schema: &'a Value, name: &str) -> Option<&'a Map<String, Value>> {
    schema.get("properties")?.get(name)?.as_object()
}

/// True if the arguments must have this property.
pub(crate) fn is_required(schema: &Value, name: &str) -> bool {
    schema.get("required").and_then(Value::as_array).is_some_and(|required| required.iter().any(|item| item.as_str() == Some(name)))
}

/// Why a property may not become part of an address; `None` if its values are bounded in form.
pub(crate) fn loose(property: &Map<String, Value>) -> Option<&'static str> {
    if property.contains_key("enum") || property.contains_key("const") || property.contains_key("format") {
        return None;
    }
    if matches!(property.get("type").and_then(Value::as_str), Some("integer" | "boolean")) {
        return None;
    }
    match property.get("pattern").and_then(Value::as_str) {
        Some(pattern) if is_anchored(pattern) => None,
        Some(_) => Some("has a pattern that is not anchored: begin it with `^`, end it with `$`, group alternatives"),
        None => Some("has neither format nor pattern"),
    }
}

/// True if a pattern must match the whole text: `^` first, `$` last, no alternative beside them.
fn is_anchored(pattern: &str) -> bool {
    let Some(inner) = pattern.strip_prefix('^').and_then(|rest| rest.strip_suffix('$')) else { return false };
    let (mut groups, mut in_class, mut escaped) = (0_u32, false, false);
    for c in inner.chars() {
        if escaped {
            escaped = false;
            continue;
        }
        match c {
            '\\' => escaped = true,
            '[' => in_class = true,
            ']' => in_class = false,
            '(' if !in_class => groups += 1,
            ')' if !in_class => groups = groups.saturating_sub(1),
            '|' if !in_class && groups == 0 => return false,
            _ => {}
        }
    }
    // An odd backslash before the last `$` makes it a dollar sign.
    !escaped
}

/// Nesting of a value.
fn depth(value: &Value) -> usize {
    // A level at a time, so that measuring cannot overflow what it guards.
    let (mut level, mut depth) = (vec![value], 0);
    while !level.is_empty() && depth <= DEPTH_MAX + 1 {
        level = level
            .into_iter()
            .flat_map(|value| -> Box<dyn Iterator<Item = &Value>> {
                match value {
                    Value::Array(items) => Box::new(items.iter()),
                    Value::Object(members) => Box::new(members.values()),
                    Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Box::new(std::iter::empty()),
                }
            })
            .collect();
        depth += 1;
    }
    depth.saturating_sub(1)
}

/// At most so many characters of a reason.
fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(REASON_CHARS_MAX).collect();
    if short.len() < text.len() {
        short.push_str("..");
    }
    short
}

/// Finds references that leave the schema, and circles of them that consume no input.
struct References<'a> {
    root: &'a Value,
    anchors: HashMap<&'a str, &'a Value>,
    /// By address of the subschema: `true` while it is on the path, `false` once it is done.
    seen: HashMap<*const Value, bool>,
}

/// Keywords whose subschemas look at the same value as the schema that holds them.
const IN_PLACE_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const IN_PLACE: [&str; 4] = ["not", "if", "then", "else"];
const IN_PLACE_MAPS: [&str; 2] = ["dependentSchemas", "dependencies"];
/// Keywords that hold data, not schemas.
const DATA: [&str; 5] = ["const", "enum", "default", "examples", "example"];
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

impl<'a> References<'a> {
    fn check(root: &'a Value) -> Result<(), String> {
        let mut this = Self { root, anchors: HashMap::new(), seen: HashMap::new() };
        let mut all = Vec::new();
        collect(root, &mut all, true, &mut this.anchors)?;
        for schema in all {
            this.follow(schema)?;
        }
        Ok(())
    }

    /// Walks in place from one subschema; the stack is bounded by the schema's own number of parts.
    fn follow(&mut self, schema: &'a Value) -> Result<(), String> {
        // An explicit stack: a chain of references may be as long as the schema.
        let mut stack = vec![(schema, self.neighbours(schema)?)];
        match self.seen.insert(schema, true) {
            None => {}
            Some(state) => {
                self.seen.insert(schema, state);
                return Ok(());
            }
        }
        while let Some((here, next)) = stack.last_mut() {
            let Some(target) = next.pop() else {
                let here: *const Value = *here;
                self.seen.insert(here, false);
                stack.pop();
                continue;
            };
            match self.seen.get(&std::ptr::from_ref(target)) {
                Some(true) => return Err("its schema refers to itself in a circle that consumes no input".into()),
                Some(false) => {}
                None => {
                    self.seen.insert(target, true);
                    let neighbours = self.neighbours(target)?;
                    stack.push((target, neighbours));
                }
            }
        }
        Ok(())
    }

    fn neighbours(&self, schema: &'a Value) -> Result<Vec<&'a Value>, String> {
        let Some(members) = schema.as_object() else { return Ok(Vec::new()) };
        let mut next = Vec::new();
        for key in REFERENCES {
            if let Some(Value::String(reference)) = members.get(key) {
                next.push(self.resolve(reference)?);
            }
        }
        for key in IN_PLACE_LISTS {
            next.extend(members.get(key).and_then(Value::as_array).into_iter().flatten());
        }
        next.extend(IN_PLACE.iter().filter_map(|key| members.get(*key)));
        for key in IN_PLACE_MAPS {
            next.extend(members.get(key).and_then(Value::as_object).into_iter().flat_map(Map::values).filter(|v| v.is_object()));
        }
        Ok(next)
    }

    fn resolve(&self, reference: &str) -> Result<&'a Value, String> {
        let missing = || format!("its schema refers to `{}`, which is not in it; nothing is fetched", shorten(reference));
        let fragment = reference.strip_prefix('#').ok_or_else(missing)?;
        if !fragment.is_empty() && !fragment.starts_with('/') {
            return self.anchors.get(fragment).copied().ok_or_else(missing);
        }
        let pointer = percent_encoding::percent_decode_str(fragment).decode_utf8().map_err(|_| missing())?;
        self.root.pointer(&pointer).ok_or_else(missing)
    }
}

/// Lists every part that may be a schema, and where anchors point.
fn collect<'a>(value: &'a Value, all: &mut Vec<&'a Value>, is_root: bool, anchors: &mut HashMap<&'a str, &'a Value>) -> Result<(), String> {
    match value {
        Value::Array(items) => {
            for item in items {
                collect(item, all, false, anchors)?;
            }
        }
        Value::Object(members) => {
            all.push(value);
            for key in ["$anchor", "$dynamicAnchor"] {
                if let Some(Value::String(name)) = members.get(key) {
                    anchors.insert(name, value);
                }
            }
            for key in ["$id", "id"] {
                if let Some(Value::String(id)) = members.get(key) {
                    match id.strip_prefix('#') {
                        Some(name) => {
                            anchors.insert(name, value);
                        }
                        // It would change what `#` means below it.
                        None if key == "$id" && !is_root => return Err("its schema holds another one with an `$id` of its own".into()),
                        None => {}
                    }
                }
            }
            for (key, member) in members {
                if !DATA.contains(&key.as_str()) {
                    collect(member, all, false, anchors)?;
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(schema: &Value, arguments: &str) -> Vec<(String, String)> {
        let arguments = Json::parse(arguments).unwrap();
        Schema::compile(schema).unwrap().mistakes(&arguments).into_iter().map(|m| (m.pointer, m.reason)).collect()
    }

    #[test]
    fn drafts_types_and_references_are_strict() {
        let of = |kind: &str| json!({"type": "object", "properties": {"a": {"type": kind}}});
        assert_eq!(check(&of("integer"), r#"{"a": 7.0}"#), []);
        assert_eq!(check(&of("integer"), r#"{"a": 123456789012345678901234567890}"#), []);
        assert_eq!(check(&of("integer"), r#"{"a": true}"#)[0].0, "/a");
        assert_eq!(check(&of("integer"), r#"{"a": 7.5}"#)[0].0, "/a");
        assert_eq!(check(&of("string"), r#"{"a": 7}"#)[0].0, "/a");
        // Draft 4's exclusiveMaximum is a boolean; 2020-12's is a number.
        let draft4 =
            json!({"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"a": {"maximum": 5, "exclusiveMaximum": true}}});
        assert_eq!(check(&draft4, r#"{"a": 5}"#).len(), 1);
        let dependent = json!({"dependentRequired": {"a": ["b"]}});
        assert_eq!(check(&dependent, r#"{"a": 1}"#).len(), 1);
        let one = json!({"properties": {"a": {"oneOf": [{"minimum": 3}, {"maximum": 5}]}}});
        assert_eq!(check(&one, r#"{"a": 4}"#).len(), 1);
        let tree = json!({"$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "required": ["v"]}}, "$ref": "#/$defs/node"});
        assert_eq!(check(&tree, r#"{"v": 1, "next": {"v": 2, "next": {}}}"#)[0].0, "/next/next");
        let format = json!({"properties": {"a": {"format": "uuid"}}});
        assert_eq!(check(&format, r#"{"a": "x"}"#).len(), 1);
    }

    #[test]
    fn mistakes_are_few_and_short() {
        let schema = json!({"additionalProperties": {"type": "integer"}});
        let long = "x".repeat(10_000);
        let many: Vec<String> = (0..20).map(|i| format!("\"k{i}\":\"{long}\"")).collect();
        let mistakes = check(&schema, &format!("{{{}}}", many.join(",")));
        assert_eq!(mistakes.len(), MISTAKES_MAX);
        assert!(mistakes.iter().all(|(_, reason)| reason.chars().count() <= REASON_CHARS_MAX + 2));
    }

    #[test]
    fn a_schema_that_could_hurt_is_refused_with_its_reason() {
        let mut deep = json!({});
        for _ in 0..DEPTH_MAX + 1 {
            deep = json!({"not": deep});
        }
        for (schema, reason) in [
            (json!(true), "no object"),
            (json!({"type": "objekt"}), "cannot be compiled"),
            (json!({"$ref": "https://example.com/s.json"}), "nothing is fetched"),
            (json!({"properties": {"a": {"$ref": "file:///etc/passwd"}}}), "nothing is fetched"),
            (json!({"$ref": "#/$defs/none"}), "nothing is fetched"),
            (json!({"$ref": "#"}), "circle"),
            (json!({"allOf": [{"$ref": "#"}]}), "circle"),
            (json!({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}}), "circle"),
            (json!({"$defs": {"a": {"$anchor": "x", "$ref": "#x"}}}), "circle"),
            (json!({"properties": {"a": {"$id": "https://example.com/a", "type": "string"}}}), "`$id` of its own"),
            (json!({"properties": {"a": {"pattern": "(?=x)"}}}), "cannot be compiled"),
            (json!({"properties": {"a": {"pattern": "(a{1000}){1000}"}}}), "cannot be compiled"),
            (json!({"description": "x".repeat(SCHEMA_BYTES_MAX)}), "bytes, more than"),
            (deep, "nested deeper"),
        ] {
            let refused = Schema::compile(&schema).map(|_| schema.to_string()).unwrap_err();
            assert!(refused.contains(reason), "{schema}: {refused}");
        }
    }

    #[test]
    fn what_only_looks_dangerous_is_taken() {
        for schema in [
            json!({"properties": {"$ref": {"type": "string"}}}),
            json!({"properties": {"a": {"const": {"$ref": "https://example.com"}}}}),
            json!({"properties": {"children": {"type": "array", "items": {"$ref": "#"}}}}),
            json!({"$id": "https://example.com/root", "type": "object"}),
        ] {
            assert!(Schema::compile(&schema).is_ok(), "{schema}");
        }
    }

    #[test]
    fn a_pattern_that_backtracks_elsewhere_runs_in_linear_time() {
        let schema = json!({"properties": {"a": {"pattern": "^(a+)+$"}}});
        assert_eq!(check(&schema, &format!("{{\"a\":\"{}b\"}}", "a".repeat(100_000))).len(), 1);
    }

    #[test]
    fn a_pattern_bounds_a_value_only_if_it_is_anchored() {
        for (pattern, anchored) in [
            ("^[a-z]+$", true),
            ("^(a|b)$", true),
            ("^[|]$", true),
            ("^a\\|b$", true),
            ("^a|b$", false),
            ("[a-z]+", false),
            ("^a", false),
            ("^a\\$", false),
            ("^a\\\\$", true),
        ] {
            assert_eq!(is_anchored(pattern), anchored, "{pattern}");
        }
    }

    #[test]
    fn bound_arguments_are_hidden() {
        let schema = json!({"properties": {"a": {}, "tenant": {}}, "required": ["a", "tenant"]});
        assert_eq!(without(&schema, &["tenant"]), json!({"properties": {"a": {}}, "required": ["a"]}));
    }
}

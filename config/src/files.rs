//! Files that settings name and that are part of the configuration: scripts and schemas, read once when it is loaded.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value as Json;

use crate::demo;
use crate::error::Problem;
use crate::layers::Layers;
use crate::secret::read_bounded;
use crate::settings::{Dialect, Settings};

/// Largest script of a scripted model, in bytes.
pub const SCRIPT_BYTES_MAX: u64 = 1 << 20;
/// Largest file with the schema of a tool's arguments, in bytes; the model reads it in every call.
pub const SCHEMA_BYTES_MAX: u64 = 256 << 10;

/// What was read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Files {
    /// Where a model's script came from, and its text.
    pub(crate) scripts: BTreeMap<String, (String, String)>,
    /// The schema of a tool's arguments, wherever it stands.
    pub(crate) schemas: BTreeMap<String, Json>,
}

/// Reads every file that the settings name.
pub(crate) fn read(settings: &Settings, layers: &Layers, problems: &mut Vec<Problem>) -> Files {
    let mut files = Files::default();
    let mut say = |key: String, reason: String, hint: &str| problems.push(Problem::new(layers.place(&key), key, reason).hint(hint));
    for (name, model) in settings.models.iter().filter(|(_, model)| model.spoken() == Dialect::Scripted) {
        let script = match &model.script {
            None => ("built in".to_owned(), demo::SCRIPT.to_owned()),
            Some(path) => match read_bounded(Path::new(path), SCRIPT_BYTES_MAX) {
                Ok(text) => (path.clone(), text),
                Err(why) => {
                    say(
                        format!("models.{name}.script"),
                        format!("cannot read `{path}`: {why}"),
                        "name a file of rules, or leave it away for the demo",
                    );
                    continue;
                }
            },
        };
        files.scripts.insert(name.clone(), script);
    }
    for (name, tool) in &settings.tools {
        let schema = match (&tool.schema, &tool.schema_file) {
            (Some(schema), _) => schema.0.clone(),
            (None, None) => serde_json::json!({ "type": "object", "properties": {}, "additionalProperties": false }),
            (None, Some(path)) => {
                let read =
                    read_bounded(Path::new(path), SCHEMA_BYTES_MAX).and_then(|text| serde_json::from_str(&text).map_err(|e| e.to_string()));
                match read {
                    Ok(schema @ Json::Object(_)) => schema,
                    Ok(_) => {
                        say(
                            format!("tools.{name}.schema_file"),
                            format!("`{path}` holds no JSON object"),
                            "a JSON Schema of the arguments is one",
                        );
                        continue;
                    }
                    Err(why) => {
                        say(
                            format!("tools.{name}.schema_file"),
                            format!("cannot read `{path}`: {why}"),
                            "name a file that holds a JSON Schema",
                        );
                        continue;
                    }
                }
            }
        };
        files.schemas.insert(name.clone(), schema);
    }
    files
}

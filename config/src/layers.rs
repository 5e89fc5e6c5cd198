//! The layers of a configuration in order of precedence, and what each of them says about a key.
//!
//! Lowest first: built-in defaults; `[default]` of the shipped profiles, then of the files; the selected profile of the
//! shipped ones, then of the files; the environment; arguments. figment does the merging. Left to itself it would let the
//! environment lose to a profile (its data is global here) and take an unknown profile for `default` (refused in `load`).

use std::collections::BTreeMap;
use std::path::Path;

use figment::value::{Dict, Map};
use figment::{Figment, Metadata, Profile, Provider};
use serde_json::Value as Json;

use crate::node::{Node, Place, Tree};
use crate::shape::{Kind, SETTINGS, Shape};

/// One file: its profiles by name.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    pub(crate) profiles: BTreeMap<String, Node>,
}

/// Everything that was read, after the check of its form.
#[derive(Debug, Clone)]
pub(crate) struct Layers {
    pub(crate) profile: String,
    pub(crate) documents: Vec<Document>,
    pub(crate) environment: Node,
    pub(crate) arguments: Node,
    pub(crate) defaults: Node,
}

impl Layers {
    /// Every node that says something about a key, the one in force first.
    pub(crate) fn candidates<'a>(&'a self, path: &[&str]) -> Vec<&'a Node> {
        let of = |profile: &'a str| self.documents.iter().rev().filter_map(move |document| document.profiles.get(profile));
        let selected = (self.profile != DEFAULT).then_some(self.profile.as_str());
        [&self.arguments, &self.environment]
            .into_iter()
            .chain(selected.into_iter().flat_map(of))
            .chain(of(DEFAULT))
            .chain([&self.defaults])
            .filter_map(|layer| layer.at(path))
            .collect()
    }

    /// Where a key gets its value from.
    pub(crate) fn place(&self, key: &str) -> Option<Place> {
        let path: Vec<&str> = key.split('.').collect();
        self.candidates(&path).first().map(|node| node.place.clone())
    }

    /// Masks every secret in every layer: from here on nothing has to remember which value is one.
    pub(crate) fn mask(&mut self, mask: &str) {
        let of_files = self.documents.iter_mut().flat_map(|document| document.profiles.values_mut());
        for layer in of_files.chain([&mut self.environment, &mut self.arguments]) {
            layer.mask(&SETTINGS, mask);
        }
    }

    /// Merges the layers; the selected profile over `default`, the environment and the arguments over both.
    pub(crate) fn merged(&self) -> Figment {
        let mut figment = Figment::new();
        for document in &self.documents {
            figment = figment.merge(Layer(document.profiles.iter().map(|(name, node)| (Profile::new(name), node.to_dict())).collect()));
        }
        figment
            .merge(Layer::everywhere(self.environment.to_dict()))
            .merge(Layer::everywhere(self.arguments.to_dict()))
            .join(Layer(Map::from([(Profile::Default, self.defaults.to_dict())])))
            .select(self.profile.as_str())
    }
}

/// The profile that all others lie over.
pub(crate) const DEFAULT: &str = "default";

/// Values by profile, as figment takes them.
pub(crate) struct Layer(Map<Profile, Dict>);

impl Layer {
    /// Values that win over every profile.
    pub(crate) fn everywhere(values: Dict) -> Self {
        Self(Map::from([(Profile::Global, values)]))
    }
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named("settings")
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(self.0.clone())
    }
}

/// The built-in defaults of everything that is there.
pub(crate) fn defaults(present: &Json) -> Node {
    default_of(&SETTINGS, present).unwrap_or_else(|| Node::table(Place::BuiltIn))
}

fn default_of(shape: &Shape, present: &Json) -> Option<Node> {
    let nothing = Json::Null;
    let under = |key: &str| present.get(key).unwrap_or(&nothing);
    match &shape.kind {
        Kind::Table(_) if shape.optional && present.is_null() => None,
        Kind::Table(entries) => {
            Some(built_in(Tree::Table(entries.iter().filter_map(|(key, of)| Some((key.clone(), default_of(of, under(key))?))).collect())))
        }
        Kind::Map { of, .. } => Some(built_in(Tree::Table(
            present.as_object().into_iter().flatten().filter_map(|(key, value)| Some((key.clone(), default_of(of, value)?))).collect(),
        ))),
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
        | Kind::Any => shape.default.as_ref().and_then(from_json),
    }
}

fn built_in(value: Tree) -> Node {
    Node { place: Place::BuiltIn, value }
}

fn from_json(value: &Json) -> Option<Node> {
    Some(built_in(match value {
        Json::Null => return None,
        Json::Bool(flag) => Tree::Flag(*flag),
        Json::Number(number) => number.as_i64().map_or_else(|| Tree::Number(number.as_f64().unwrap_or_default()), Tree::Integer),
        Json::String(text) => Tree::Text(text.clone()),
        Json::Array(items) => Tree::List(items.iter().filter_map(from_json).collect()),
        Json::Object(entries) => Tree::Table(entries.iter().filter_map(|(key, value)| Some((key.clone(), from_json(value)?))).collect()),
    }))
}

/// The folder at which a relative path starts: that of the file that says it, else the working directory.
pub(crate) fn folder(place: Option<&Place>) -> &Path {
    match place {
        Some(Place::File { path, .. }) => path.parent().unwrap_or_else(|| Path::new("")),
        Some(Place::BuiltIn | Place::Shipped { .. } | Place::Variable(_) | Place::Argument(_)) | None => Path::new(""),
    }
}

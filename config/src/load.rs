//! From sources to a configuration: read, check the form, merge, follow references, check the sense.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::changes::SecretDigests;
use crate::check::{alike, check};
use crate::config::Config;
use crate::error::{ConfigErrors, Problem};
use crate::layers::{DEFAULT, Document, Layer, Layers, defaults, folder};
use crate::node::{Node, Place, Tree, parse};
use crate::secret::{Lookup, read_bounded};
use crate::settings::Settings;
use crate::shape::{Inside, Kind, SETTINGS, Shape, listed};
use crate::sources::{FILE_BYTES_MAX, File, Sources};
use crate::{files, otel, revision, unbuilt, validate, variables};

/// The profiles that come with the binary: file name and text.
pub(crate) const SHIPPED: &[(&str, &str)] =
    &[("default.toml", include_str!("../profiles/default.toml")), ("dev.toml", include_str!("../profiles/dev.toml"))];
/// The profile in which literal secrets and mapped hosts are accepted.
pub(crate) const DEV: &str = "dev";
/// figment's own profile above all others: no name for a user's.
const GLOBAL: &str = "global";

/// Reads and checks a configuration.
///
/// # Errors
/// Everything that is wrong with it, at once.
pub fn load(sources: &Sources) -> Result<Config, ConfigErrors> {
    let mut problems = Vec::new();
    let profile = sources.profile.as_deref().unwrap_or(DEFAULT).to_ascii_lowercase();

    let mut documents: Vec<Document> = SHIPPED
        .iter()
        .map(|(name, text)| {
            let file: Arc<str> = (*name).into();
            document(text, &|line| Place::Shipped { file: file.clone(), line }, &mut problems)
        })
        .collect();
    documents.extend(sources.files.iter().filter_map(|file| read(file, &mut problems)));
    if let Some(problem) = unknown_profile(&profile, &documents) {
        problems.push(problem);
        // Nothing else that could be said would be about the configuration that was meant.
        return Err(ConfigErrors::new(problems));
    }

    let (mut environment, ignored) = variables::environment(&sources.env, &mut problems);
    let mut arguments = variables::arguments(&sources.sets, &mut problems);
    for node in documents.iter_mut().flat_map(|d| d.profiles.values_mut()).chain([&mut environment, &mut arguments]) {
        check(node, &SETTINGS, &[], &mut problems);
    }

    let mut layers = Layers { profile, documents, environment, arguments, defaults: Node::table(Place::BuiltIn) };
    let present: Json = layers.merged().extract().unwrap_or_default();
    layers.defaults = defaults(&present);
    let merged = layers.merged();
    let effective: Json = merged.extract().unwrap_or_default();

    let mut broken: Vec<String> = problems.iter().map(|p| p.key.clone()).collect();
    let mut resolved = Node::table(Place::BuiltIn);
    for (table, problem) in missing(&SETTINGS, &effective, &layers, &mut resolved) {
        // What was taken out for its form is not missing.
        if !broken.contains(&problem.key) {
            problems.push(problem);
        }
        broken.push(table);
    }
    let lookup = Lookup { env: &sources.env, literals: layers.profile == DEV };
    resolve(&SETTINGS, &effective, &mut Vec::new(), &layers, &lookup, &mut resolved, &mut problems);

    let whole = merged.merge(Layer::everywhere(resolved.to_dict()));
    let settings = match whole.extract::<Settings>() {
        Ok(settings) => settings,
        Err(error) => {
            // The shape should have said it; what it did not say is said here.
            problems.extend(error.into_iter().map(|e| Problem::new(layers.place(&e.path.join(".")), e.path.join("."), e.kind.to_string())));
            return Err(ConfigErrors::new(problems));
        }
    };
    let mut notices = Vec::new();
    if !ignored.is_empty() {
        notices.push(format!("ignored variables that Kubernetes makes for a service called `ambit`: {}", ignored.join(", ")));
    }
    layers.mask(revision::MASK);
    let files = files::read(&settings, &layers, &mut problems);
    let path = sources.env.get("PATH").cloned().unwrap_or_default();
    let traces = otel::traces(&sources.env, &mut notices, &mut problems);
    let config = Config::new(settings, layers, revision::masked(&SETTINGS, effective), files, path, notices);
    let config = config.with_secrets(SecretDigests::of(&whole.extract().unwrap_or_default())).with_traces(traces);
    // A problem of form explains those of sense that follow from it: the value stands for another one now.
    let follows = |problem: &Problem| {
        std::iter::once(&problem.key).chain(&problem.also).any(|key| broken.iter().any(|b| key == b || key.starts_with(&format!("{b}."))))
    };
    problems.extend(validate::validate(&config).into_iter().filter(|problem| !follows(problem)));
    if problems.is_empty() { Ok(config) } else { Err(ConfigErrors::new(problems)) }
}

/// Reads a file as far as it can be read.
fn read(file: &File, problems: &mut Vec<Problem>) -> Option<Document> {
    let (path, text): (Arc<Path>, _) = match file {
        File::Text { path, text } => (path.as_path().into(), text.clone()),
        File::Path(path) => match read_bounded(path, FILE_BYTES_MAX) {
            Ok(text) => (path.as_path().into(), text),
            Err(why) => {
                let place = Place::File { path: path.as_path().into(), line: 0 };
                problems
                    .push(Problem::new(Some(place), "", format!("cannot read the file: {why}")).hint("check the path and who may read it"));
                return None;
            }
        },
    };
    Some(document(&text, &|line| Place::File { path: path.clone(), line }, problems))
}

/// Parses a file and sorts its tables into profiles.
fn document(text: &str, place: &dyn Fn(usize) -> Place, problems: &mut Vec<Problem>) -> Document {
    let mut profiles = BTreeMap::new();
    let root = match parse(text, place) {
        Ok(root) => root,
        Err(malformed) => {
            problems.push(
                Problem::new(Some(place(malformed.line)), "", format!("no TOML: {}", malformed.reason))
                    .hint("texts, lengths of time and sizes stand in quotes: `deadline = \"45s\"`"),
            );
            return Document { profiles };
        }
    };
    let Tree::Table(entries) = root.value else { return Document { profiles } };
    for (name, node) in entries {
        match no_profile(&name, &node) {
            Some(problem) => problems.push(problem),
            None => drop(profiles.insert(name.to_ascii_lowercase(), node)),
        }
    }
    Document { profiles }
}

/// Says why a table of a file is no profile. figment would take any name, and never look at it again.
fn no_profile(name: &str, node: &Node) -> Option<Problem> {
    let problem = |reason: String| Some(Problem::new(Some(node.place.clone()), name, reason));
    if SETTINGS.at(&[name]).is_some() || unbuilt::setting(&[name], None).is_some() {
        return problem("stands outside of a profile".into()).map(|p| p.hint(format!("write `[default.{name}]`")));
    }
    if let Some(what) = unbuilt::profile(name) {
        return problem(format!("the profile is not built yet: it will be shipped with {what}"))
            .map(|p| p.hint("take another name for yours"));
    }
    if name.eq_ignore_ascii_case(GLOBAL) {
        return problem("no name for a profile".into()).map(|p| p.hint("settings for all profiles stand in `[default]`"));
    }
    if !matches!(node.value, Tree::Table(_)) {
        return problem(format!("is {}, where only profiles can stand", node.kind()))
            .map(|p| p.hint("settings stand in tables like `[default.limits]`"));
    }
    None
}

/// Says that a profile does not exist. figment would take `default` for it.
fn unknown_profile(profile: &str, documents: &[Document]) -> Option<Problem> {
    let mut names: Vec<&str> = documents.iter().flat_map(|d| d.profiles.keys()).map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    if names.contains(&profile) {
        return None;
    }
    let known = format!("known: {}", listed(names.iter().copied()));
    let problem = |reason: String| Problem::new(None, "", reason);
    Some(match (unbuilt::profile(profile), alike(profile, names.iter().copied())) {
        (Some(what), _) => problem(format!("the profile `{profile}` is not built yet: it will be shipped with {what}")).hint(known),
        (None, Some(meant)) => problem(format!("there is no profile `{profile}`")).hint(format!("did you mean `{meant}`? {known}")),
        (None, None) => problem(format!("there is no profile `{profile}`")).hint(known),
    })
}

/// Finds keys that must be there and are not, each with the table that lacks it; puts something in their place, so that
/// all else can be checked.
fn missing(shape: &Shape, value: &Json, layers: &Layers, stand_ins: &mut Node) -> Vec<(String, Problem)> {
    let mut found = Vec::new();
    let mut open = vec![(shape, value, Vec::<&str>::new())];
    while let Some((shape, value, path)) = open.pop() {
        let Json::Object(present) = value else { continue };
        match shape.inside() {
            Inside::Map(of) => open.extend(present.iter().map(|(key, value)| (of, value, [path.as_slice(), &[key]].concat()))),
            Inside::Table(entries) => {
                for (key, of) in entries {
                    let full = [path.as_slice(), &[key]].concat();
                    match present.get(key) {
                        Some(value) => open.push((of, value, full)),
                        None if of.optional || of.default.is_some() || matches!(of.kind, Kind::Table(_) | Kind::Map { .. }) => {}
                        None => {
                            let table = path.join(".");
                            let hint = format!("needed: {}", of.allowed());
                            found.push((table.clone(), Problem::new(layers.place(&table), full.join("."), "is missing").hint(hint)));
                            let _ = stand_ins.put(&full, Node { place: Place::BuiltIn, value: stand_in(&of.kind) });
                        }
                    }
                }
            }
            Inside::Value => {}
        }
    }
    found
}

/// Something of this kind.
fn stand_in(kind: &Kind) -> Tree {
    match kind {
        Kind::Table(_) | Kind::Map { .. } | Kind::Any => Tree::Table(BTreeMap::new()),
        Kind::List(_) => Tree::List(Vec::new()),
        Kind::Several | Kind::Text | Kind::Secret => Tree::Text(String::new()),
        Kind::Period { .. } | Kind::Wait { .. } => Tree::Text("1s".into()),
        Kind::Size { .. } => Tree::Text("1B".into()),
        Kind::Word(words) => Tree::Text(words.first().cloned().unwrap_or_default()),
        Kind::Integer { min, .. } => Tree::Integer(*min),
        Kind::Number { min, .. } => Tree::Number(*min),
        Kind::Flag => Tree::Flag(false),
    }
}

/// Follows references of secrets, and makes paths start at the folder of the file that says them.
fn resolve(
    shape: &Shape,
    value: &Json,
    path: &mut Vec<String>,
    layers: &Layers,
    lookup: &Lookup<'_>,
    out: &mut Node,
    problems: &mut Vec<Problem>,
) {
    match (&shape.kind, value) {
        (Kind::Table(entries), Json::Object(present)) => {
            for (key, of) in entries {
                if let Some(value) = present.get(key) {
                    path.push(key.clone());
                    resolve(of, value, path, layers, lookup, out, problems);
                    path.pop();
                }
            }
        }
        (Kind::Map { of, .. }, Json::Object(present)) => {
            for (key, value) in present {
                path.push(key.clone());
                resolve(of, value, path, layers, lookup, out, problems);
                path.pop();
            }
        }
        (Kind::Secret, Json::String(text)) => {
            let keys: Vec<&str> = path.iter().map(String::as_str).collect();
            let place = layers.candidates(&keys).first().map_or(Place::BuiltIn, |node| node.place.clone());
            let value = match lookup.resolve(text, &place, folder(Some(&place)), is_public(&keys)) {
                Ok(value) => value,
                Err(unknown) => {
                    problems.push(Problem::new(Some(place), path.join("."), unknown.reason).hint(unknown.hint));
                    // Stands for the secret, so that all else can be checked.
                    "unknown".into()
                }
            };
            let _ = out.put(&keys, Node { place: Place::BuiltIn, value: Tree::Text(value) });
        }
        (_, Json::String(text)) if shape.is_path && !text.starts_with(crate::demo::SAMPLE) => {
            let keys: Vec<&str> = path.iter().map(String::as_str).collect();
            let place = layers.candidates(&keys).first().map(|node| node.place.clone());
            let file = folder(place.as_ref()).join(text).to_string_lossy().into_owned();
            let _ = out.put(&keys, Node { place: Place::BuiltIn, value: Tree::Text(file) });
        }
        _ => {}
    }
}

/// True for headers and variables whose name does not sound like a secret: a literal is fine there.
fn is_public(path: &[&str]) -> bool {
    const SECRETIVE: &[&str] = &["auth", "key", "token", "secret", "password", "passwd", "cookie", "credential"];
    match path {
        [.., "headers" | "env", name] => {
            let name = name.to_ascii_lowercase();
            !SECRETIVE.iter().any(|word| name.contains(word))
        }
        _ => false,
    }
}

//! `[models.NAME]` and `[chains.NAME]`.

use super::{Report, http_url};
use crate::check::alike;
use crate::settings::{Dialect, Model};

/// Checks every model and every chain.
pub(super) fn check(report: &mut Report<'_>) {
    let settings = report.config.settings();
    for (name, model) in &settings.models {
        let key = format!("models.{name}");
        match model.spoken() {
            Dialect::OpenaiChat => provider(report, &key, name, model, "/chat/completions"),
            Dialect::OpenaiResponses => provider(report, &key, name, model, "/responses"),
            Dialect::Anthropic => provider(report, &key, name, model, "/messages"),
            Dialect::Scripted => scripted(report, &key, name, model),
        }
        if let (Some(output), Some(window)) = (model.max_output_tokens, model.context_window)
            && output >= window
        {
            report.say(
                &format!("{key}.max_output_tokens"),
                format!("{output} leaves nothing of the context window of {window} for the input"),
                "`context_window` counts input and output together",
            );
        }
        if model.retry.min_delay.0 > model.retry.max_delay.0 {
            let (min, max) = (model.retry.min_delay, model.retry.max_delay);
            report.say(
                &format!("{key}.retry.min_delay"),
                format!("{min} is longer than `max_delay` {max}"),
                "the shortest wait comes first",
            );
        }
    }
    for (name, chain) in &settings.chains {
        let key = format!("chains.{name}.targets");
        match chain.targets.as_slice() {
            [] => report.say(&key, "is empty", "name one of `models`"),
            [target] if !settings.models.contains_key(target) => {
                let hint = match alike(target, settings.models.keys().map(String::as_str)) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => format!("known models: {}", crate::shape::listed(settings.models.keys().map(String::as_str))),
                };
                report.say(&key, format!("there is no model `{target}`"), hint);
            }
            [_] => {}
            [_, ..] => report.say(&key, "not built yet: fallback to a second target", "name exactly one"),
        }
    }
}

/// A model at a provider whose dialect adds this path to its address.
fn provider(report: &mut Report<'_>, key: &str, name: &str, model: &Model, path: &str) {
    let variable = |part: &str| format!("AMBIT_MODELS__{}__{part}", name.to_ascii_uppercase());
    match &model.base_url {
        None => report.say(&format!("{key}.base_url"), "is missing", format!("set it, or `{}`", variable("BASE_URL"))),
        Some(urls) => {
            if urls.0.is_empty() {
                report.say(&format!("{key}.base_url"), "is an empty list", format!("set it, or `{}`", variable("BASE_URL")));
            }
            for url in &urls.0 {
                if let Err(reason) = http_url(url) {
                    let hint = format!("write `https://host/v1`, without `{path}`");
                    report.say_value(&format!("{key}.base_url"), url, reason, hint);
                } else if url.trim_end_matches('/').ends_with(path) {
                    report.say_value(&format!("{key}.base_url"), url, "holds the path that is added to it", format!("leave `{path}` away"));
                }
            }
        }
    }
    if model.model.as_deref().is_none_or(str::is_empty) {
        report.say(
            &format!("{key}.model"),
            "is missing",
            format!("set it, or `{}`, to the name that the provider knows", variable("MODEL")),
        );
    }
    if model.script.is_some() {
        report.say(&format!("{key}.script"), "is for the dialect `scripted`", "leave it away, or leave `base_url` away");
    }
}

/// A demo model with the marks of a real one was meant to be a real one.
fn scripted(report: &mut Report<'_>, key: &str, name: &str, model: &Model) {
    let said = model.dialect.is_some();
    let hint = if said {
        "leave it away, or take the dialect of a provider".to_owned()
    } else {
        format!("set `{key}.base_url`, or `AMBIT_MODELS__{}__BASE_URL`, to reach a provider", name.to_ascii_uppercase())
    };
    let why = if said { "is for a provider, and the dialect is `scripted`" } else { "is for a provider, and `base_url` is not set" };
    let present = [("base_url", model.base_url.is_some()), ("api_key", model.api_key.is_some()), ("model", model.model.is_some())];
    for (part, _) in present.into_iter().filter(|(_, is_there)| *is_there) {
        report.say(&format!("{key}.{part}"), why, hint.clone());
    }
}

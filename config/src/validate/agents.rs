//! `[limits]` and `[agents.NAME]`.

use std::collections::BTreeSet;

use ambit_core::limit::Limits;

use super::Report;
use crate::check::alike;
use crate::shape::listed;
use crate::value::Size;

/// Checks the profile's limits and every agent.
pub(super) fn check(report: &mut Report<'_>) {
    let profile = report.config.limits();
    relations(report, "limits", &profile);
    let settings = report.config.settings();
    for (name, agent) in report.config.agents() {
        let key = format!("agents.{name}");
        looser(report, &key, name);
        let own = &settings.agents[name].limits;
        let tightens = [own.events.is_some(), own.model_calls.is_some(), own.tool_calls.is_some()].contains(&true)
            || [own.output_tokens_per_call.is_some(), own.total_tokens.is_some(), own.context_chars.is_some(), own.prompt_chars.is_some()]
                .contains(&true)
            || own.tool_output.is_some()
            || own.transcript.is_some();
        if tightens {
            relations(report, &format!("{key}.limits"), &agent.limits);
        }
        if agent.instructions.is_empty() {
            report.say(&format!("{key}.instructions"), "is empty", "say what the agent is for and how it should work");
        }
        let chars = agent.instructions.chars().count();
        let max = usize::try_from(agent.limits.prompt_chars).unwrap_or(usize::MAX);
        if chars >= max {
            report.say(
                &format!("{key}.instructions"),
                format!("{chars} characters leave no room for an input in `limits.prompt_chars` {max}"),
                "shorten it, or raise the limit",
            );
        }
        if !settings.chains.contains_key(&agent.chain) {
            let hint = unknown(&agent.chain, settings.chains.keys().map(String::as_str), "chains");
            report.say_value(&format!("{key}.chain"), &agent.chain, "there is no such chain", hint);
        }
        let mut seen = BTreeSet::new();
        for tool in &settings.agents[name].tools {
            if !seen.insert(tool) {
                report.say(&format!("{key}.tools"), format!("`{tool}` stands there twice"), "name each tool once");
            } else if !settings.tools.contains_key(tool) && !settings.mcp.contains_key(tool) {
                let known = settings.tools.keys().chain(settings.mcp.keys()).map(String::as_str);
                report.say(
                    &format!("{key}.tools"),
                    format!("there is no tool and no MCP server `{tool}`"),
                    unknown(tool, known, "tools and servers"),
                );
            }
        }
    }
}

fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone, what: &str) -> String {
    match alike(name, known.clone()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None if known.clone().next().is_none() => format!("there are no {what}"),
        None => format!("known {what}: {}", listed(known)),
    }
}

/// Limits that contradict each other, whoever set them.
fn relations(report: &mut Report<'_>, table: &str, limits: &Limits) {
    let key = |axis: &str| format!("{table}.{axis}");
    let needed = limits.events_needed();
    if needed > limits.events {
        let fixed = needed - limits.model_calls - 5 * limits.tool_calls;
        let reason = format!(
            "{} events do not hold what the other limits allow: {fixed} + model_calls {} + 5 x tool_calls {} = {needed}",
            limits.events, limits.model_calls, limits.tool_calls
        );
        report.say(&key("events"), reason, format!("raise it to {needed}, or lower the calls"));
        if let Some(problem) = report.problems.pop() {
            report.problems.push(problem.also(key("model_calls")).also(key("tool_calls")));
        }
    }
    if u64::from(limits.output_tokens_per_call) > limits.total_tokens {
        let reason = format!("{} is more than `total_tokens` {}", limits.output_tokens_per_call, limits.total_tokens);
        report.say(&key("output_tokens_per_call"), reason, "one call has to fit into the session");
    }
    if limits.context_chars > limits.prompt_chars {
        let reason = format!("{} is more than `prompt_chars` {}, which it is a part of", limits.context_chars, limits.prompt_chars);
        report.say(&key("context_chars"), reason, "lower it");
    }
    if u64::from(limits.tool_output) > limits.transcript {
        let reason = format!("{} is more than `transcript` {}", Size(limits.tool_output.into()), Size(limits.transcript));
        report.say(&key("tool_output"), reason, "a result has to fit into the transcript");
    }
}

/// An agent's limit above the profile's: it would be cut in silence.
fn looser(report: &mut Report<'_>, agent: &str, name: &str) {
    let settings = report.config.settings();
    let (profile, own) = (&settings.limits, &settings.agents[name].limits);
    let mut above: Vec<(&str, String, String)> = Vec::new();
    macro_rules! compare {
        ($($axis:ident),+) => { $(
            if let Some(value) = own.$axis && value > profile.$axis {
                above.push((stringify!($axis), value.to_string(), profile.$axis.to_string()));
            }
        )+ };
    }
    compare!(
        deadline,
        model_calls,
        tool_calls,
        parallel_tools,
        model_attempts,
        tool_attempts,
        prompt_chars,
        context_chars,
        tool_output,
        output_tokens_per_call,
        total_tokens,
        cost_usd,
        answer_reserve,
        transcript,
        events
    );
    for (axis, value, max) in above {
        let source = report.source(&format!("limits.{axis}"));
        report.say(
            &format!("{agent}.limits.{axis}"),
            format!("{value} is more than `limits.{axis}` {max} ({source}): an agent can only tighten"),
            format!("lower it, or raise `limits.{axis}`"),
        );
    }
}

//! What can only be checked by reaching out. Nothing here asks a model for anything, and nothing is called that acts.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ambit_config::{Config, Surroundings};
use ambit_core::signal::Silent;
use ambit_model_gateway::{Found, Probe, TargetOptions, probe};
use ambit_orchestrator::wall_ms;
use ambit_tool_executor::{Executor, ExecutorOptions, ToolKind};
use futures_util::future::join_all;
use tokio::net::lookup_host;
use tokio::time::timeout;

use super::Check;
use crate::workshop::wall_clock;

/// Longest wait for one address of a model.
const MODEL: Duration = Duration::from_secs(10);
/// Longest wait for a name to be looked up.
const NAME: Duration = Duration::from_secs(5);
/// Furthest that a provider's clock may be from ours, milliseconds: signed requests and leases allow about a minute.
const SKEW_MAX: u64 = 60_000;

/// All of them, all at once within each group.
pub(super) async fn checks(config: &Config) -> Vec<Check> {
    let (mut models, servers, hosts) = tokio::join!(models(config), servers(config), hosts(config));
    models.extend(servers);
    models.extend(hosts);
    models
}

/// What a tool executor would be built from; nothing of it reads the sample or asks the demo service.
pub(super) fn executor_options(config: &Config) -> ExecutorOptions {
    config.executor_options(&Surroundings { sample_root: PathBuf::new(), demo_service: None, seed: 0 })
}

async fn models(config: &Config) -> Vec<Check> {
    let options = config.gateway_options(wall_clock(), 0);
    let asked = options.targets.iter().map(|target| async move {
        let probes = probe(target, MODEL).await;
        let now = wall_ms();
        probes.iter().flat_map(|probe| judge(target, probe, now)).collect::<Vec<_>>()
    });
    join_all(asked).await.into_iter().flatten().collect()
}

fn judge(target: &TargetOptions, probe: &Probe, now: u64) -> Vec<Check> {
    let (name, model, address) = (format!("online model {}", target.name), &target.model, &probe.address);
    let first = match &probe.found {
        Found::Model => Check::ok(&name, format!("{address} lists `{model}`")),
        Found::NoList => Check::ok(&name, format!("{address} answers, and has no list of models")),
        Found::NoModel { known } => Check::warn(
            &name,
            format!("{address} does not list `{model}`"),
            format!("set `models.{}.model` to one of its models, for example: {}", target.name, known.join(", ")),
        ),
        Found::KeyRefused { status } => Check::fail(
            &name,
            format!("{address} does not accept the key (status {status})"),
            format!("look at `models.{}.api_key` and at what the key may do", target.name),
        ),
        Found::Failed { status } => Check::fail(
            &name,
            format!("{address} answers with status {status}"),
            "look at the provider's status page, or at the proxy in between",
        ),
        Found::Unreachable { reason } => Check::fail(
            &name,
            format!("{address} cannot be reached: {reason}"),
            format!("look at `models.{}.base_url`, at DNS and at the network", target.name),
        ),
    };
    let skew = probe.clock_ms.map(|theirs| theirs.abs_diff(now)).filter(|skew| *skew > SKEW_MAX);
    let second = skew.map(|skew| {
        Check::warn(
            "online clock",
            format!("{address} has a clock that is {} s away from ours", skew / 1_000),
            "set the system's clock, and let it be kept by NTP",
        )
    });
    std::iter::once(first).chain(second).collect()
}

/// Starts every MCP server, has it list its tools, and ends it.
async fn servers(config: &Config) -> Vec<Check> {
    let options = ExecutorOptions { tools: BTreeMap::new(), ..executor_options(config) };
    let names: Vec<Arc<str>> = options.mcp.keys().cloned().collect();
    if names.is_empty() {
        return Vec::new();
    }
    let executor = match Executor::new(options, Arc::new(Silent)) {
        Ok(executor) => executor,
        Err(failed) => return vec![Check::fail("online mcp", failed.to_string(), "look at the tables `[mcp.NAME]`")],
    };
    let absent: BTreeMap<Arc<str>, String> = executor.ready(&names).await.into_iter().collect();
    let listed = executor.tools();
    executor.close().await;
    let of_server = |name: &Arc<str>| {
        let check = format!("online mcp {name}");
        match absent.get(name) {
            Some(reason) => {
                Check::fail(check, reason.as_str(), format!("start it by hand as `mcp.{name}` says, and look at what it writes"))
            }
            None => {
                // A server's tools are named after it.
                let tools = listed.iter().filter(|tool| tool.name.starts_with(&format!("{name}__"))).count();
                Check::ok(check, format!("it starts, and {tools} of its tools are allowed"))
            }
        }
    };
    names.iter().map(of_server).collect()
}

/// Looks up the host of every HTTP tool.
async fn hosts(config: &Config) -> Vec<Check> {
    let options = executor_options(config);
    let mut hosts: BTreeMap<(String, u16), Vec<Arc<str>>> = BTreeMap::new();
    for (name, tool) in &options.tools {
        let ToolKind::Http(http) = &tool.kind else { continue };
        let Ok(url) = url::Url::parse(&http.url) else { continue };
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else { continue };
        // The demo service is ours, and names mapped for tests are not looked up.
        if host != ambit_config::demo::SERVICE_HOST && !options.http.hosts.contains_key(host) {
            hosts.entry((host.to_owned(), port)).or_default().push(name.clone());
        }
    }
    let asked = hosts.into_iter().map(|((host, port), tools)| async move {
        let check = format!("online host {host}");
        let found = timeout(NAME, lookup_host((host.trim_matches(['[', ']']), port))).await;
        let addresses: Vec<String> = match found {
            Ok(Ok(addresses)) => addresses.map(|address| address.ip().to_string()).collect(),
            Ok(Err(_)) | Err(_) => Vec::new(),
        };
        match addresses.first() {
            Some(first) => Check::ok(check, format!("{first} and {} more, for {}", addresses.len() - 1, tools.join(", "))),
            None => Check::fail(check, format!("no address is found, for {}", tools.join(", ")), "look at the tool's `url` and at DNS"),
        }
    });
    join_all(asked).await
}

#[cfg(test)]
mod tests {
    use super::super::Grade;
    use super::*;

    #[test]
    fn every_finding_has_its_grade_and_a_clock_far_away_is_told() {
        let config = ambit_config::load(&ambit_config::Sources::default()).unwrap();
        let target = config.gateway_options(wall_clock(), 0).targets.remove(0);
        let check = |found: Found, clock_ms, grades: &[Grade]| {
            let probe = Probe { address: "http://p/v1/models".into(), found: found.clone(), clock_ms };
            let told: Vec<Grade> = judge(&target, &probe, 1_000_000).iter().map(|check| check.grade).collect();
            assert_eq!(told, grades, "{found:?}");
        };
        check(Found::Model, None, &[Grade::Ok]);
        check(Found::Model, Some(1_000_000 + SKEW_MAX), &[Grade::Ok]);
        check(Found::Model, Some(1_000_000 + SKEW_MAX + 1), &[Grade::Ok, Grade::Warn]);
        check(Found::NoList, None, &[Grade::Ok]);
        check(Found::NoModel { known: vec!["a".into()] }, None, &[Grade::Warn]);
        check(Found::KeyRefused { status: 401 }, None, &[Grade::Fail]);
        check(Found::Failed { status: 500 }, None, &[Grade::Fail]);
        check(Found::Unreachable { reason: "no".into() }, None, &[Grade::Fail]);
    }
}

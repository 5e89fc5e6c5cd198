//! From settings to the options of the other crates.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use ambit_model_gateway::{GatewayOptions, WallClock};
use ambit_tool_executor::{ExecutorOptions, McpAllow, McpEndpoint, ToolKind, Treat};
use tokio::time::Instant;

use super::{file, good};
use crate::{Config, Sources, Surroundings};

pub(super) fn gateway(config: &Config) -> GatewayOptions {
    config.gateway_options(WallClock::new(SystemTime::UNIX_EPOCH, Instant::now()), 7)
}

fn executor(config: &Config) -> ExecutorOptions {
    let demo_service = config.needs_demo_service().then(|| "127.0.0.1:9999".parse().unwrap());
    config.executor_options(&Surroundings { sample_root: PathBuf::from("/sample"), demo_service, seed: 7 })
}

#[test]
fn the_numbers_of_the_design_reach_the_gateway() {
    let options = gateway(&good(&Sources::default()));
    let target = &options.targets[0];
    let s = Duration::from_secs;
    assert_eq!(
        (target.request, target.attempt, target.chunk, target.connect, target.idle, target.min_useful),
        (s(30), s(20), s(15), s(5), s(60), s(3))
    );
    assert_eq!((target.retry.attempts.get(), target.bulkhead.permits.get(), target.bulkhead.queue), (2, 8, 56));
    assert_eq!((target.bulkhead.fresh_wait, target.bulkhead.continuing_wait, target.margin), (s(0), s(2), Duration::from_millis(150)));
    assert_eq!((options.chains.len(), &*options.chains[0].targets[0]), (1, "primary"));
}

#[test]
fn the_numbers_of_the_design_reach_the_tools() {
    let config = good(&Sources::default());
    let options = executor(&config);
    let (read, write) = (&options.tools["service_health"].policy, &options.tools["restart_service"].policy);
    let ms = Duration::from_millis;
    assert_eq!((read.timeout, read.attempt, read.attempts.get(), read.permits.get(), read.trusted), (ms(12_000), ms(2_000), 3, 32, true));
    assert_eq!((write.timeout, write.attempt, write.attempts.get(), write.permits.get()), (ms(12_000), ms(4_000), 1, 16));
    assert_eq!((read.min_useful, read.output_cap.get(), read.repeats), (ms(300), 10_240, 3));
    let ToolKind::Http(restart) = &options.tools["restart_service"].kind else { panic!("no HTTP tool") };
    assert_eq!((restart.method.as_str(), restart.key_header.as_deref()), ("POST", Some("Idempotency-Key")));
    assert_eq!(restart.schema["required"][0], "service");
    let ToolKind::Builtin(read_file) = &options.tools["read_file"].kind else { panic!("no builtin") };
    assert_eq!(read_file.root, PathBuf::from("/sample"));
    let host = options.http.hosts["demo.ambit.internal"];
    assert_eq!((host.address.port(), host.treat), (9999, Treat::Public));
    assert_eq!((options.http.tool_body.get(), options.http.margin), (1 << 20, ms(150)));
}

#[test]
fn a_demo_that_is_off_leaves_nothing_behind() {
    let options = executor(&good(&file("[default.server]\ndemo_service = false")));
    assert!(options.http.hosts.is_empty() && !options.tools.contains_key("service_health"));
}

#[test]
fn a_server_gets_its_environment_and_nothing_else() {
    use secrecy::ExposeSecret as _;
    let text = r#"
[default.mcp.fs]
command = "mcp-server-filesystem"
args = ["/data"]
env = { LEVEL = "low", API_TOKEN = "env:TOKEN" }
allow = ["read_file", "write_file"]
trust = "trusted"
[default.mcp.fs.tools.read_file]
effect = "read"
attempts = 2
[default.mcp.web]
url = "https://example.com/mcp"
allow = ["*"]
"#;
    let config = good(&file(text).with_env(&[("PATH", "/bin"), ("TOKEN", "t0ken"), ("HOME", "/root")]));
    let options = executor(&config);
    let fs = &options.mcp["fs"];
    let McpEndpoint::Stdio { env, path, .. } = &fs.endpoint else { panic!("no command") };
    let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (name.as_str(), value.expose_secret())).collect();
    assert_eq!((env, path.as_str()), (vec![("API_TOKEN", "t0ken"), ("LEVEL", "low")], "/bin"));
    assert_eq!(fs.allow, McpAllow::Only(vec!["read_file".into(), "write_file".into()]));
    assert_eq!((fs.policy.effect, fs.policy.attempts.get(), fs.policy.trusted), (ambit_core::Effect::Write, 1, true));
    assert_eq!(fs.overrides["read_file"].effect, Some(ambit_core::Effect::Read));
    assert_eq!(options.mcp["web"].allow, McpAllow::All);
}

#[test]
fn paths_start_at_the_folder_of_their_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("rules.toml"), "# rules").unwrap();
    std::fs::write(folder.path().join("args.json"), "{\"type\": \"object\"}").unwrap();
    let text = "[default.models.primary]\nscript = \"rules.toml\"\n[default.tools.t]\nkind = \"http\"\ndescription = \"d\"\nurl = \"http://a/\"\nschema_file = \"args.json\"\n[default.tools.list_files]\nroot = \"data\"";
    let mut sources = file(text);
    if let crate::File::Text { path, .. } = &mut sources.files[0] {
        *path = folder.path().join("ambit.toml");
    }
    let config = good(&sources);
    let ToolKind::Builtin(list) = &executor(&config).tools["list_files"].kind else { panic!("no builtin") };
    assert_eq!(list.root, folder.path().join("data"));
    super::refused(
        &file(text),
        &[
            "ambit.toml:2: `models.primary.script`: cannot read `rules.toml`: No such file or directory (os error 2)",
            "ambit.toml:7: `tools.t.schema_file`: cannot read `args.json`: No such file or directory (os error 2)",
        ],
    );
}

#[test]
fn the_store_opens_the_file_that_is_named() {
    let config = good(&file("[default.store]\nurl = \"sqlite:///var/lib/ambit.db\""));
    assert_eq!(config.store_options("node", ambit_store::Clock::from_fn(|| 0)).path, PathBuf::from("/var/lib/ambit.db"));
}

//! What can be checked without leaving this machine.

use std::ffi::OsStr;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroU32;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ambit_config::settings::Dialect;
use ambit_config::{Config, bounds};
use ambit_orchestrator::{Desk, wall_ms};
use ambit_store::{Clock, Order, Page, StoreError};
use ambit_tool_executor::McpEndpoint;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::statvfs::statvfs;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Check;
use super::online::executor_options;
use crate::cli::sessions::seconds_of;
use crate::output::plain;

/// With less room than this on the store's disk nothing should be started, bytes.
const ROOM_MIN: u64 = 64 << 20;
/// Room in full journals of a full process: with less than this an operator has little time.
const ROOM_JOURNALS: u64 = 4;
/// No clock that is right shows less: the beginning of 2025, milliseconds since 1970.
const CLOCK_MIN: u64 = 1_735_689_600_000;
/// How far in the future a session may have begun before the clock is doubted, milliseconds.
const CLOCK_AHEAD_MAX: u64 = 60_000;
/// Open files that a process needs before it does anything: its own, the store's, the runtime's.
const FILES_FIXED: u64 = 64;
/// Longest wait for whoever has a port to say who it is.
const WHO: Duration = Duration::from_secs(1);
/// Most bytes of what it says.
const WHO_MAX: u64 = 16 << 10;

/// All of them, in the order in which they are shown.
pub(super) async fn checks(config: &Config) -> Vec<Check> {
    let mut checks = configured(config);
    let store = store(config).await;
    checks.push(store.check);
    checks.push(disk(config));
    checks.extend(config.needs_sample().then(temporary));
    checks.push(clock(wall_ms(), store.newest_ms));
    let server = &config.settings().server;
    for (key, address) in [("server.listen", &server.listen), ("server.admin_listen", &server.admin_listen)] {
        checks.push(port(key, address, config.revision()).await);
    }
    checks.push(open_files(config));
    checks.extend(models(config));
    checks.extend(programs(config));
    checks
}

/// What loading the configuration has checked already.
fn configured(config: &Config) -> Vec<Check> {
    let settings = config.settings();
    let agents: Vec<&str> = config.agents().keys().map(String::as_str).collect();
    let mut checks = vec![
        if agents.is_empty() {
            Check::warn("config", "no agent is configured", "add a table `[default.agents.NAME]`")
        } else {
            Check::ok("config", format!("revision {}, agents: {}", config.revision(), agents.join(", ")))
        },
        Check::ok("profile", config.profile()),
        Check::ok(
            "ladder",
            format!(
                "every inner time fits its outer one: request {}, deadline {}, {} of it kept for the answer",
                config.request(),
                settings.limits.deadline,
                settings.limits.answer_reserve
            ),
        ),
    ];
    checks.extend(config.notices().iter().map(|notice| Check::warn("config", notice, "look at the configuration")));
    checks
}

/// The store, and when its youngest session began.
struct StoreFound {
    check: Check,
    newest_ms: Option<u64>,
}

async fn store(config: &Config) -> StoreFound {
    const NAME: &str = "store";
    let options = config.store_options("doctor", Clock::system());
    let path = options.path.clone();
    let bare = |check| StoreFound { check, newest_ms: None };
    let desk = match Desk::open(options).await {
        Ok(desk) => desk,
        Err(StoreError::Missing { .. }) => {
            return bare(match try_folder(&folder_of(&path)) {
                Ok(()) => Check::ok(NAME, format!("`{}` is not there yet and will be made", path.display())),
                Err(failed) => Check::fail(
                    NAME,
                    format!("`{}` is not there, and its folder cannot be written: {failed}", path.display()),
                    "make the folder of `store.url` and let this user write it",
                ),
            });
        }
        Err(failed @ StoreError::Outdated { .. }) => return bare(Check::warn(NAME, failed.to_string(), hint_of(&failed))),
        Err(failed) => return bare(Check::fail(NAME, format!("`{}` cannot be read: {failed}", path.display()), hint_of(&failed))),
    };
    let page = Page { after: None, limit: NonZeroU32::MIN, order: Order::NewestFirst, status: None, agent: None, tenant: None };
    let newest = desk.list(page).await;
    let check = match (desk.try_write().await, &newest) {
        (Ok(()), Ok(_)) => Check::ok(NAME, format!("`{}`, schema version {}, readable and writable", path.display(), desk.schema())),
        (Ok(()), Err(failed)) => {
            Check::fail(NAME, format!("`{}` cannot be read: {failed}", path.display()), "look at the disk and at the system's log")
        }
        (Err(failed), _) => Check::fail(NAME, format!("`{}` cannot be written: {failed}", path.display()), hint_of(&failed)),
    };
    let newest_ms = newest.ok().and_then(|found| found.rows.first().map(|row| row.created_ms));
    // Only readers: whether they close in time changes nothing.
    let _ = desk.close().await;
    StoreFound { check, newest_ms }
}

fn hint_of(failed: &StoreError) -> String {
    failed.hint().unwrap_or("look at the disk and at the system's log").to_owned()
}

fn folder_of(path: &Path) -> PathBuf {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

/// Makes a file in a folder and removes it.
fn try_folder(folder: &Path) -> io::Result<()> {
    let path = folder.join(format!(".ambit-doctor-{:016x}", rand::random::<u64>()));
    std::fs::File::create_new(&path)?;
    std::fs::remove_file(path)
}

/// Where the demo's folder is made.
fn temporary() -> Check {
    let folder = std::env::temp_dir();
    match try_folder(&folder) {
        Ok(()) => Check::ok("temporary", format!("`{}` is writable", folder.display())),
        Err(failed) => Check::fail(
            "temporary",
            format!("the demo's folder cannot be made in `{}`: {failed}", folder.display()),
            "set TMPDIR to a folder that this user can write, or leave the demo's tools away",
        ),
    }
}

fn disk(config: &Config) -> Check {
    let path = config.store_options("doctor", Clock::system()).path;
    let folder = folder_of(&path);
    match statvfs(&folder) {
        Ok(found) => {
            #[expect(clippy::useless_conversion, reason = "other systems count in other integers")]
            let room = u64::from(found.blocks_available()).saturating_mul(u64::from(found.fragment_size()));
            room_for(room, bounds(config).process.journal_bytes)
        }
        Err(failed) => {
            Check::warn("disk", format!("the room in `{}` cannot be told: {failed}", folder.display()), "make the folder of `store.url`")
        }
    }
}

/// Judges the room on the store's disk against the journals that a full process writes.
fn room_for(room: u64, journals: u64) -> Check {
    let said = format!(
        "{} MiB free, a full process writes {} MiB of journal at most before its sessions end",
        room >> 20,
        journals.div_ceil(1 << 20)
    );
    let hint = "free some space, or put the store on another disk with `store.url`";
    if room < ROOM_MIN {
        Check::fail("disk", said, hint)
    } else if room < journals.saturating_mul(ROOM_JOURNALS) {
        Check::warn("disk", said, hint)
    } else {
        Check::ok("disk", said)
    }
}

/// Judges the wall clock by what it cannot show.
fn clock(now: u64, newest: Option<u64>) -> Check {
    let hint = "set the system's clock, and let it be kept by NTP: leases and deadlines of other processes are told in it";
    if now < CLOCK_MIN {
        return Check::fail("clock", format!("shows {}, which is long past", seconds_of(now)), hint);
    }
    match newest {
        Some(newest) if newest > now.saturating_add(CLOCK_AHEAD_MAX) => {
            Check::warn("clock", format!("shows {}, and the youngest session began at {}", seconds_of(now), seconds_of(newest)), hint)
        }
        Some(_) | None => Check::ok("clock", seconds_of(now)),
    }
}

async fn port(key: &str, address: &str, revision: &str) -> Check {
    let Ok(place) = address.parse::<SocketAddr>() else {
        return Check::fail(key, format!("`{address}` is no address"), "write `127.0.0.1:8080`, or port 0 for any free one");
    };
    if place.port() == 0 {
        return Check::ok(key, format!("{address}: any free port"));
    }
    match TcpListener::bind(place) {
        Ok(_) => Check::ok(key, format!("{address} is free")),
        Err(failed) if failed.kind() == io::ErrorKind::AddrInUse => match who(place).await {
            Some(own) if own.revision == revision => Check::ok(key, format!("{address}: ambit {} serves there", own.version)),
            Some(other) => Check::ok(
                key,
                format!("{address}: ambit {} serves there, with configuration {} (this one is {revision})", other.version, other.revision),
            ),
            None => Check::fail(key, format!("{address} is taken by another program"), format!("end it, or set `{key}` to another port")),
        },
        Err(failed) => {
            Check::fail(key, format!("{address} cannot be listened on: {failed}"), format!("set `{key}` to an address of this machine"))
        }
    }
}

/// An `ambit` that serves already.
struct Own {
    version: String,
    revision: String,
}

/// Asks whoever has a port for its version; `None` for a stranger.
async fn who(place: SocketAddr) -> Option<Own> {
    let asked = async {
        let mut stream = TcpStream::connect(place).await.ok()?;
        let request = format!("GET /version HTTP/1.1\r\nhost: {place}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.take(WHO_MAX).read_to_string(&mut answer).await.ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        let body: Value = serde_json::from_str(body).ok()?;
        let text = |key: &str| body.get(key).and_then(Value::as_str).map(plain);
        Some(Own { version: text("version")?, revision: text("config_revision")? })
    };
    timeout(WHO, asked).await.ok().flatten()
}

fn open_files(config: &Config) -> Check {
    let settings = config.settings();
    let models: u64 = settings.models.values().map(|model| u64::from(model.bulkhead.permits)).sum();
    let tools: u64 = settings.tools.values().map(|tool| u64::from(tool.permits())).sum();
    // A connection of a caller and what it waits on; three pipes a server; a socket a call.
    let needed = FILES_FIXED + 2 * u64::from(settings.server.max_in_flight) + models + tools + 3 * settings.mcp.len() as u64;
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((soft, _)) => files_for(soft, needed),
        Err(failed) => Check::warn("open files", format!("the limit cannot be told: {failed}"), "look at `ulimit -n`"),
    }
}

/// Judges the limit of open files against what a full process holds.
fn files_for(soft: u64, needed: u64) -> Check {
    let said = format!("{soft} allowed, a full process needs about {needed}");
    if soft < needed {
        Check::warn(
            "open files",
            said,
            format!("raise it (`ulimit -n {needed}`, or `LimitNOFILE=` of the unit), or lower `server.max_in_flight`"),
        )
    } else {
        Check::ok("open files", said)
    }
}

fn models(config: &Config) -> Vec<Check> {
    let of_model = |(name, model): (&String, &ambit_config::settings::Model)| {
        let check = format!("model {name}");
        let Some(urls) = &model.base_url else {
            let what = if model.spoken() == Dialect::Scripted { "the scripted demo model: no provider is asked" } else { "no address" };
            return Check::ok(check, what);
        };
        let key = config.explain(&format!("models.{name}.api_key")).ok().and_then(|found| found.candidates.into_iter().next());
        let said = format!("{} {} at {}", model.spoken().as_str(), model.model.as_deref().unwrap_or_default(), urls.0.join(", "));
        let is_remote = urls.0.iter().any(|url| !is_loopback(url));
        match key {
            Some(key) => Check::ok(check, format!("{said}, key found (set in {})", key.source)),
            None if is_remote => Check::warn(
                check,
                format!("{said}, without a key"),
                format!("set `models.{name}.api_key` to a reference like `\"env:NAME\"`, unless the provider wants none"),
            ),
            None => Check::ok(check, format!("{said}, without a key")),
        }
    };
    config.settings().models.iter().map(of_model).collect()
}

fn is_loopback(url: &str) -> bool {
    let Ok(url) = url::Url::parse(url) else { return false };
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// The programs of MCP servers.
fn programs(config: &Config) -> Vec<Check> {
    executor_options(config)
        .mcp
        .iter()
        .map(|(name, server)| {
            let check = format!("mcp {name}");
            match &server.endpoint {
                McpEndpoint::Http { url, .. } => Check::ok(check, format!("at {url}")),
                McpEndpoint::Stdio { command, path, .. } => match program(command, path) {
                    Some(found) => Check::ok(check, format!("starts {}", found.display())),
                    None => Check::fail(
                        check,
                        format!("there is no program `{command}`"),
                        format!("install it, or write its whole path in `mcp.{name}.command`; looked for in PATH={path}"),
                    ),
                },
            }
        })
        .collect()
}

/// The file that a command's name leads to.
fn program(command: &str, path: &str) -> Option<PathBuf> {
    let runs = |file: &Path| file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    if command.contains('/') {
        let file = PathBuf::from(command);
        return runs(&file).then_some(file);
    }
    std::env::split_paths(OsStr::new(path)).map(|folder| folder.join(command)).find(|file| runs(file))
}

#[cfg(test)]
mod tests {
    use super::super::Grade;
    use super::*;

    #[test]
    fn room_is_judged_at_its_bounds() {
        let check = |room, journals, grade| assert_eq!(room_for(room, journals).grade, grade, "{room} {journals}");
        check(ROOM_MIN - 1, 0, Grade::Fail);
        check(ROOM_MIN, 0, Grade::Ok);
        check(400 << 20, 100 << 20, Grade::Ok);
        check((400 << 20) - 1, 100 << 20, Grade::Warn);
    }

    #[test]
    fn the_clock_is_judged_by_what_it_cannot_show() {
        assert_eq!(clock(CLOCK_MIN - 1, None).grade, Grade::Fail);
        assert_eq!(clock(CLOCK_MIN, None).grade, Grade::Ok);
        assert_eq!(clock(CLOCK_MIN, Some(CLOCK_MIN + CLOCK_AHEAD_MAX)).grade, Grade::Ok);
        assert_eq!(clock(CLOCK_MIN, Some(CLOCK_MIN + CLOCK_AHEAD_MAX + 1)).grade, Grade::Warn);
    }

    #[test]
    fn files_are_judged_at_their_bound() {
        assert_eq!((files_for(300, 300).grade, files_for(299, 300).grade), (Grade::Ok, Grade::Warn));
    }

    #[test]
    fn a_program_is_found_where_it_can_be_run() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tool");
        std::fs::write(&file, "").unwrap();
        let path = format!("/nowhere:{}", folder.path().display());
        assert_eq!(program("tool", &path), None, "it may not be run");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(program("tool", &path), Some(file.clone()));
        assert_eq!(program(file.to_str().unwrap(), ""), Some(file));
        assert_eq!(program("other", &path), None);
    }

    #[test]
    fn loopback_needs_no_key() {
        for (url, loopback) in
            [("http://127.0.0.1:9/v1", true), ("http://[::1]:9", true), ("http://localhost", true), ("https://api.example.org", false)]
        {
            assert_eq!(is_loopback(url), loopback, "{url}");
        }
    }
}

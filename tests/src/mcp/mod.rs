//! MCP servers for the tests: real ones from the registry, and a [`fake`] one that misbehaves as told.
//!
//! The real ones are installed by `tests/mcp/install.sh` from a lock file. Over stdio they are started by Ambit itself, so
//! only their command is given here; over HTTP they are started here.

pub mod fake;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::within;

/// Most tries to find a port that is still free when the server binds it.
const PORT_TRIES: u32 = 5;

/// What `server-everything` prints on stderr when it is ready.
const READY: &str = "listening on port";

/// The script of the real file server; it takes the folders that it may read as arguments.
///
/// # Panics
/// When it is not installed.
#[must_use]
pub fn filesystem() -> PathBuf {
    installed("server-filesystem")
}

/// The script of the real server with a tool for every feature; it takes `stdio` or `streamableHttp` as argument.
///
/// # Panics
/// When it is not installed.
#[must_use]
pub fn everything() -> PathBuf {
    installed("server-everything")
}

/// A real MCP server over streamable HTTP. Dropping it kills it.
#[derive(Debug)]
pub struct HttpServer {
    url: String,
    _child: Child,
}

impl HttpServer {
    /// The endpoint: `http://127.0.0.1:PORT/mcp`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// Starts `server-everything` over streamable HTTP on a free port and waits until it is ready.
///
/// # Panics
/// When it does not come up.
pub async fn everything_http() -> HttpServer {
    for _ in 0..PORT_TRIES {
        let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
        let port = free.expect("a free port").port();
        let mut command = Command::new("node");
        command.arg(everything()).arg("streamableHttp").env("PORT", port.to_string()).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("node starts");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr is piped")).lines();
        let ready = within("the MCP server to come up", async {
            while let Ok(Some(line)) = lines.next_line().await {
                if line.contains(READY) {
                    return true;
                }
            }
            false
        });
        if ready.await {
            // Its pipe must not fill, nor break.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return HttpServer { url: format!("http://127.0.0.1:{port}/mcp"), _child: child };
        }
    }
    panic!("`server-everything` did not find a free port in {PORT_TRIES} tries")
}

fn installed(package: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("mcp");
    let script = folder.join("node_modules/@modelcontextprotocol").join(package).join("dist/index.js");
    assert!(script.is_file(), "`{package}` is not installed; hint: run `{}`", folder.join("install.sh").display());
    script
}

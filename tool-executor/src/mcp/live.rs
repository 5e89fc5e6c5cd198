//! One running connection to a server, and who uses it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::{ClientConfig, Implementation};
use rmcp::service::RunningService;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::common::client_side_sse::{ExponentialBackoff, SseRetryPolicy};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{Peer, RoleClient, ServiceExt};
use tokio::process::ChildStderr;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::http::{Http, header};
use crate::mcp::child::Group;
use crate::mcp::watch::{Late, Watched};
use crate::options::{McpEndpoint, McpOptions};

/// Largest message of a server over stdio, over HTTP, and event of a stream: the most that a result may have on its
/// way, base64 of images included; what is passed on is bounded far below.
const MESSAGE_BYTES_MAX: usize = 8 << 20;
/// Most of an error page that is read.
const ERROR_BYTES_MAX: usize = 4 << 10;
/// Times a broken stream of answers is taken up again, within the time of the call.
const STREAM_RESUMES_MAX: usize = 2;
/// Longest wait before that.
const STREAM_RESUME_WAIT: Duration = Duration::from_secs(1);
/// How long a server may take to end by itself before it is killed.
const END_PATIENCE: Duration = Duration::from_millis(500);

type Client = RunningService<RoleClient, ClientConfig>;

/// A running connection. Its process group dies with the last who uses it.
pub(crate) struct Live {
    pub(crate) peer: Peer<RoleClient>,
    pub(crate) late: Arc<Late>,
    pub(crate) started: Instant,
    client: Mutex<Option<Client>>,
    group: Mutex<Option<Group>>,
    retiring: AtomicBool,
    in_flight: AtomicUsize,
    used: Mutex<Instant>,
    gone: CancellationToken,
    _gone: DropGuard,
}

/// Why a server is not there.
#[derive(Debug)]
pub(crate) struct NotStarted(pub(crate) String);

impl Live {
    /// Starts or connects, up to the end of the handshake. Whoever drops the future kills what was started.
    ///
    /// What the program complains about goes to `drain` before anything is awaited: one that complains much while it
    /// starts would wait for a reader for ever.
    pub(crate) async fn start(options: &McpOptions, http: &Http, drain: impl FnOnce(ChildStderr)) -> Result<Self, NotStarted> {
        let info = ClientConfig::new(Default::default(), Implementation::new("ambit", env!("CARGO_PKG_VERSION")));
        let late = Arc::new(Late::default());
        let (client, group) = match &options.endpoint {
            endpoint @ McpEndpoint::Stdio { command, .. } => {
                let (group, pipes) =
                    Group::start(endpoint).map_err(|error| NotStarted(format!("`{command}` cannot be started: {error}")))?;
                drain(pipes.stderr);
                let transport = AsyncRwTransport::new_client(pipes.stdout, pipes.stdin).with_max_line_length(MESSAGE_BYTES_MAX);
                let client = Box::pin(info.serve(Watched::new(transport, Arc::clone(&late)))).await;
                (client, Some(group))
            }
            McpEndpoint::Http { url, headers } => {
                let parsed = url::Url::parse(url).map_err(|error| NotStarted(format!("`{url}`: {error}")))?;
                http.guard.check(&parsed, parsed.host_str().unwrap_or_default()).map_err(|blocked| NotStarted(blocked.0))?;
                let headers = headers.iter().map(|(name, value)| header(name, value)).collect::<Result<_, _>>().map_err(NotStarted)?;
                let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
                    .custom_headers(headers)
                    .max_sse_event_size(MESSAGE_BYTES_MAX)
                    .max_json_response_size(MESSAGE_BYTES_MAX)
                    .max_error_response_size(ERROR_BYTES_MAX);
                let mut resume = ExponentialBackoff::default();
                resume.max_times = Some(STREAM_RESUMES_MAX);
                resume.max_delay = Some(STREAM_RESUME_WAIT);
                config.retry_config = Arc::new(resume) as Arc<dyn SseRetryPolicy>;
                let transport = StreamableHttpClientTransport::with_client(http.client.clone(), config);
                (Box::pin(info.serve(transport)).await, None)
            }
        };
        let client = client.map_err(|error| NotStarted(format!("no handshake: {}", first_line(&error.to_string()))))?;
        let gone = CancellationToken::new();
        Ok(Self {
            peer: client.peer().clone(),
            late,
            started: Instant::now(),
            client: Mutex::new(Some(client)),
            group: Mutex::new(group),
            retiring: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            used: Mutex::new(Instant::now()),
            gone: gone.clone(),
            _gone: gone.drop_guard(),
        })
    }

    /// True if new calls may use it.
    pub(crate) fn is_usable(&self) -> bool {
        !self.retiring.load(Ordering::Acquire) && !self.peer.is_transport_closed()
    }

    /// True if it ended by itself.
    pub(crate) fn is_dead(&self) -> bool {
        self.peer.is_transport_closed() && !self.retiring.load(Ordering::Acquire)
    }

    /// No new calls; it ends with those it has.
    pub(crate) fn retire(&self) {
        self.retiring.store(true, Ordering::Release);
    }

    /// True if it has a process that can be replaced.
    pub(crate) fn has_process(&self) -> bool {
        self.group.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// When it was last used; `None` while it is.
    pub(crate) fn unused_since(&self) -> Option<Instant> {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        (self.in_flight.load(Ordering::Acquire) == 0).then_some(*used)
    }

    /// Resolves when nobody holds it any more.
    pub(crate) fn gone(&self) -> CancellationToken {
        self.gone.clone()
    }

    /// Ends it in good order, and kills what is left after a moment.
    pub(crate) async fn end(&self) {
        self.retire();
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).take();
        let group = self.group.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut client) = client {
            // Closes the server's input, or ends its HTTP session.
            let _ = client.close_with_timeout(END_PATIENCE).await;
        }
        if let Some(group) = group {
            group.end(END_PATIENCE).await;
        }
    }
}

/// The use of a connection by one call; counted from its making to its drop.
pub(crate) struct Use(pub(crate) Arc<Live>);

impl Use {
    pub(crate) fn of(live: &Arc<Live>) -> Self {
        live.in_flight.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(live))
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        *self.0.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

/// One line of what went wrong, short enough for a log.
pub(crate) fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(200).collect()
}

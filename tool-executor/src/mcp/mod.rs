//! Tools of MCP servers: one client a server and process, shared by all calls, kept alive as long as it is used.
//!
//! **Invariant:** no process outlives its use. Each child leads a process group of its own, the group dies when the
//! last call that uses it is over, and every call is bounded; nobody has to remember to kill it.

mod child;
mod convert;
mod live;
mod names;
mod server;
mod watch;

use std::sync::Arc;

use ambit_core::signal::Peer;
use ambit_resilience::Leg;
use serde_json::Value;

use crate::fault::{Answer, Departure, Fault};
use crate::http;
use crate::options::McpEndpoint;
use crate::prepare::json::Json;
use crate::prepare::schema::Schema;

pub(crate) use self::convert::effect;
pub(crate) use self::names::offered_name;
pub use self::server::Standing;
pub(crate) use self::server::{Listed, Server};

/// One tool of a server.
#[derive(Debug)]
pub(crate) struct McpTool {
    pub(crate) server: Arc<Server>,
    /// What the server calls it.
    pub(crate) name: Arc<str>,
    /// What its structured output must look like, where the server says so.
    pub(crate) output: Option<Schema>,
}

impl McpTool {
    /// What spans of its calls say about it.
    pub(crate) fn peer(&self) -> Peer {
        let address = match &self.server.options.endpoint {
            McpEndpoint::Stdio { .. } => None,
            McpEndpoint::Http { url, .. } => http::address(url),
        };
        Peer::Mcp { server: Arc::clone(&self.server.name), address }
    }

    /// Makes one attempt.
    pub(crate) async fn call(
        &self,
        members: &[(String, Json)],
        trace_state: Option<&str>,
        leg: Leg<'_>,
        departure: &Departure<'_>,
    ) -> Result<Answer, Fault> {
        let arguments = members.iter().map(|(key, value)| (key.clone(), value.to_value())).collect::<serde_json::Map<String, Value>>();
        let result = self.server.call(&self.name, arguments, trace_state, leg, departure).await?;
        convert::answer(result, self.output.as_ref())
    }
}

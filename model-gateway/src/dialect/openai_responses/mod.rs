//! Dialect `openai_responses`: OpenAI's Responses API, without anything kept on its side.

mod assemble;
mod encode;
mod wire;

use ambit_resilience::Failure;

use self::assemble::ResponseAssembly;
use crate::dialect::provider::{Key, Protocol, Provider};
use crate::dialect::{Answer, Ask};
use crate::error::GatewayError;
use crate::options::{ProviderOptions, TargetOptions};
use crate::stage::LegStage;
use crate::wall::WallClock;

/// Its name, by which what a turn carries is told apart from that of others.
const NAME: &str = "openai_responses";

/// How its servers are asked.
pub(super) const PROTOCOL: Protocol = Protocol { path: "responses", key: Key::Bearer, headers: &[] };

/// One provider.
#[derive(Debug)]
pub(crate) struct Client(Provider);

impl Client {
    pub(crate) fn new(
        target: &TargetOptions,
        options: &ProviderOptions,
        http: reqwest::Client,
        clock: WallClock,
    ) -> Result<Self, GatewayError> {
        Provider::new(target, options, PROTOCOL, http, clock).map(Self)
    }

    /// Sends one request and reads its answer.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub(crate) async fn ask(&self, ask: &Ask<'_>, leg: &LegStage<'_>) -> Result<Answer, Failure> {
        self.0.ask::<ResponseAssembly>(ask, leg, |_, stream| encode::body(ask, stream)).await
    }
}

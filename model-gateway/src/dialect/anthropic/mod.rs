//! Dialect `anthropic`: the Messages API.

mod assemble;
mod encode;
mod wire;

use ambit_resilience::Failure;

use self::assemble::MessageAssembly;
use crate::dialect::provider::{Key, Protocol, Provider};
use crate::dialect::{Answer, Ask};
use crate::error::GatewayError;
use crate::options::{ProviderOptions, TargetOptions};
use crate::stage::LegStage;
use crate::wall::WallClock;

/// Its name, by which what a turn carries is told apart from that of others.
const NAME: &str = "anthropic";

/// How its servers are asked. The version is that of the API's form; there is no newer one.
pub(super) const PROTOCOL: Protocol =
    Protocol { path: "messages", key: Key::Header("x-api-key"), headers: &[("anthropic-version", "2023-06-01")] };

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
        self.0.ask::<MessageAssembly>(ask, leg, |_, stream| encode::body(ask, stream)).await
    }
}

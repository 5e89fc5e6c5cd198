//! Dialect `openai_chat`: chat completions as OpenAI defined them and most servers speak them.

mod assemble;
mod encode;
mod wire;

use ambit_resilience::Failure;

use self::assemble::ChatAssembly;
use self::encode::OutputMember;
use crate::dialect::provider::{Key, Protocol, Provider};
use crate::dialect::{Answer, Ask};
use crate::error::GatewayError;
use crate::options::{ProviderOptions, TargetOptions};
use crate::stage::LegStage;
use crate::wall::WallClock;

/// How its servers are asked.
pub(super) const PROTOCOL: Protocol = Protocol { path: "chat/completions", key: Key::Bearer, headers: &[] };

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
        self.0.ask::<ChatAssembly>(ask, leg, |url, stream| encode::body(ask, stream, OutputMember::wanted_by(url))).await
    }
}

//! A furnished house for the tests: a provider, tools, a configuration that fits them, and `ambit serve` in between.

use ambit_tests::client::{Answer, Api};
use ambit_tests::process::{Ambit, Launch};
use ambit_tests::quiet::assert_quiet;
use ambit_tests::upstream::{Builder, Script, Upstream};
use serde_json::{Value, json};

/// The agent of every house.
pub(crate) const AGENT: &str = "clerk";

/// What every house has. The ladder is that of the defaults, shorter; waits between attempts are short, since nothing is
/// measured here.
const BASE: &str = r#"
[default.limits]
deadline = "30s"
answer_reserve = "4s"

[default.models.primary]
model = "m"
request = "20s"
attempt = "10s"
chunk = "10s"
min_useful = "500ms"
retry = { base = "20ms", min_delay = "10ms", max_delay = "100ms" }

[default.chains.default]
targets = ["primary"]

[default.http]
allow = ["127.0.0.1"]
"#;

/// A house being planned.
pub(crate) struct Setup {
    chat: Script,
    routes: Builder,
    tools: Vec<(String, Kind)>,
    offered: Vec<String>,
    more: String,
    sets: Vec<(String, String)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Read,
    Write,
    Keyed,
    Irreversible,
}

impl Setup {
    /// With this provider and no tools.
    pub(crate) fn new(chat: impl Into<Script>) -> Setup {
        Setup {
            chat: chat.into(),
            routes: Upstream::builder(),
            tools: Vec::new(),
            offered: Vec::new(),
            more: String::new(),
            sets: Vec::new(),
        }
    }

    /// With a reading tool: `GET /tools/NAME/{id}`, further arguments as query.
    pub(crate) fn read(self, name: &str, script: impl Into<Script>) -> Setup {
        self.tool(name, Kind::Read, script.into())
    }

    /// With a writing tool without a key: `POST /tools/NAME/{id}`, further arguments as body.
    pub(crate) fn write(self, name: &str, script: impl Into<Script>) -> Setup {
        self.tool(name, Kind::Write, script.into())
    }

    /// The same with a key.
    pub(crate) fn keyed(self, name: &str, script: impl Into<Script>) -> Setup {
        self.tool(name, Kind::Keyed, script.into())
    }

    /// The same without a key, and nothing undoes it.
    pub(crate) fn irreversible(self, name: &str, script: impl Into<Script>) -> Setup {
        self.tool(name, Kind::Irreversible, script.into())
    }

    fn tool(mut self, name: &str, kind: Kind, script: Script) -> Setup {
        self.routes = self.routes.route(name, &format!("/tools/{name}/*"), script);
        self.tools.push((name.to_owned(), kind));
        self.offered.push(name.to_owned());
        self
    }

    /// With more configuration, and a name that the agent is offered.
    pub(crate) fn offer(mut self, name: &str, config: &str) -> Setup {
        self.offered.push(name.to_owned());
        self.more.push_str(config);
        self
    }

    /// With this setting, over the file.
    pub(crate) fn set(mut self, key: &str, value: &str) -> Setup {
        let name = key.replace('.', "__").to_uppercase();
        self.sets.push((format!("AMBIT_{name}"), value.to_owned()));
        self
    }

    /// Starts provider and tools, and writes the configuration.
    pub(crate) async fn furnish(self) -> (Launch, Upstream, Upstream) {
        let provider = Upstream::start(self.chat).await;
        let tools = self.routes.start().await;
        let mut config = format!("{BASE}\n{}\n[default.agents.{AGENT}]\ninstructions = \"Answer.\"\n", self.more);
        config.push_str(&format!("chain = \"default\"\ntaint = \"allow\"\ntools = {}\n", json!(self.offered)));
        for (name, kind) in &self.tools {
            config.push_str(&declaration(name, *kind, &tools));
        }
        let mut launch = Launch::with(&config)
            .env("AMBIT_MODELS__PRIMARY__BASE_URL", &provider.base_url())
            .env("AMBIT_MODELS__PRIMARY__API_KEY", "key-of-the-provider");
        for (name, value) in &self.sets {
            launch = launch.env(name, value);
        }
        (launch, provider, tools)
    }

    /// Builds the house.
    pub(crate) async fn serve(self) -> House {
        let (launch, provider, tools) = self.furnish().await;
        let ambit = launch.serve().await;
        let api = Api::of(&ambit);
        House { launch, provider, tools, ambit, api }
    }
}

fn declaration(name: &str, kind: Kind, tools: &Upstream) -> String {
    let (method, effect) = match kind {
        Kind::Read => ("GET", "read"),
        Kind::Write | Kind::Keyed => ("POST", "write"),
        Kind::Irreversible => ("POST", "irreversible"),
    };
    let key = if kind == Kind::Keyed { "idempotency = { header = \"Idempotency-Key\" }\n" } else { "" };
    let url = tools.url(&format!("/tools/{name}/{{id}}"));
    format!(
        r#"
[default.tools.{name}]
kind = "http"
description = "For the test."
method = "{method}"
url = "{url}"
effect = "{effect}"
trust = "trusted"
timeout = "12s"
attempt = "6s"
retry = {{ base = "20ms", min_delay = "10ms", max_delay = "100ms" }}
{key}
[default.tools.{name}.schema]
type = "object"
required = ["id"]
[default.tools.{name}.schema.properties.id]
type = "string"
pattern = "^.{{1,40}}$"
"#
    )
}

/// A running server with everything around it.
pub(crate) struct House {
    pub(crate) launch: Launch,
    pub(crate) provider: Upstream,
    pub(crate) tools: Upstream,
    pub(crate) ambit: Ambit,
    pub(crate) api: Api,
}

impl House {
    /// A session's request of the house's agent.
    pub(crate) fn request(input: &str) -> Value {
        json!({"agent": AGENT, "input": input})
    }

    /// Runs a session and returns the whole answer.
    pub(crate) async fn answer(&self, input: &str) -> Answer {
        self.api.run(&House::request(input)).await
    }

    /// Runs a session that must be answered with a session object.
    pub(crate) async fn session(&self, input: &str) -> Value {
        self.answer(input).await.assert_status(200).json()
    }

    /// The results that the model was told last: call id and what stands in it.
    pub(crate) fn told(&self) -> Vec<(String, String)> {
        self.provider.arrivals().last().map(|arrival| arrival.tool_results()).unwrap_or_default()
    }

    /// Waits for a session's verdict and returns it as it then stands.
    pub(crate) async fn verdict(&self, id: &str) -> Value {
        let request = self.api.request(reqwest::Method::GET, &format!("/v1/sessions/{id}")).header("prefer", "wait=25");
        self.api.send(request).await.assert_status(200).json()
    }

    /// The leak check and what else holds at the end of every test: sound histories, no stray, nothing logged as our fault, and
    /// an end in order.
    pub(crate) async fn close(self) {
        assert_quiet(&self.api).await;
        self.provider.assert_clean();
        self.tools.assert_clean();
        let end = self.ambit.terminate().await;
        end.assert_code(0);
        assert_unhurt(&end.stderr);
    }
}

/// Asserts that nothing was logged as a fault of ours.
pub(crate) fn assert_unhurt(stderr: &str) {
    let ours = |line: &&str| line.contains("\"level\":\"ERROR\"") && line.contains("\"target\":\"ambit");
    let faults = stderr.lines().filter(|line| ours(line) || line.contains("panicked at"));
    assert_eq!(faults.collect::<Vec<_>>(), Vec::<&str>::new(), "the log holds faults of ours");
}

/// Asserts status and reason of a session, showing all of it where they differ.
pub(crate) fn assert_end(session: &Value, status: &str, reason: &str) {
    assert!(session["status"] == status && session["reason"] == reason, "{status}({reason}) was expected: {session:#}");
}

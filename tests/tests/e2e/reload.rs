//! Another configuration while sessions run: by request, by signal, by a change of the file; and what it does not touch.

use std::os::unix::fs::symlink;

use ambit_tests::upstream::{Act, Call, Script};
use ambit_tests::within;
use serde_json::{Value, json};

use crate::house::{AGENT, House, Setup, assert_end};

impl House {
    /// Rewrites the configuration's file.
    fn rewrite(&self, change: impl FnOnce(String) -> String) {
        let path = self.launch.folder().join("ambit.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        // Written beside and moved over: whoever looks meanwhile sees the one or the other.
        self.launch.write("ambit.toml.new", &change(text));
        std::fs::rename(self.launch.folder().join("ambit.toml.new"), path).unwrap();
    }

    /// Reloads what has to be right.
    async fn reload(&self) -> Value {
        self.api.post_admin("/admin/reload").await.assert_status(200).json()
    }

    /// Starts a session that goes on without us.
    async fn start(&self, input: &str) -> String {
        let request = self.api.session(&House::request(input)).header("prefer", "respond-async");
        self.api.send(request).await.assert_status(202).json()["id"].as_str().unwrap().to_owned()
    }

    async fn revision(&self) -> String {
        self.api.get("/version").await.json()["config_revision"].as_str().unwrap().to_owned()
    }

    async fn reloads(&self, outcome: &str) -> u64 {
        self.api.metrics().await.count("ambit_config_reloads_total", &[("outcome", outcome)])
    }

    /// What the model was told to be, in the n-th request.
    fn instructions(&self, nth: usize) -> String {
        let body = self.provider.arrivals()[nth].body.clone().unwrap();
        body["messages"][0]["content"].as_str().unwrap_or_default().to_owned()
    }
}

fn keys(changes: &Value) -> Vec<&str> {
    changes.as_array().unwrap().iter().map(|change| change["key"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn new_sessions_have_the_new_and_running_ones_keep_the_old() {
    let chat = Script::new([Act::calls([Call::new("look", &json!({"id": "a"})).id("c")]).held(), Act::text("new"), Act::text("old")]);
    let house = Setup::new(chat).read("look", Act::json(json!(41))).serve().await;
    let before = house.revision().await;
    let running = house.start("first").await;
    house.provider.wait_for("the first call", |seen| seen.in_flight == 1).await;

    house.rewrite(|text| {
        text.replace("instructions = \"Answer.\"", "instructions = \"Be brief.\"").replace("tools = [\"look\"]", "tools = []")
    });
    let report = house.reload().await;
    assert_eq!((&report["outcome"], &report["previous_revision"]), (&json!("applied"), &json!(before)), "{report:#}");
    assert_eq!(keys(&report["changed"]), ["agents.clerk.instructions", "agents.clerk.tools"]);
    assert_eq!((&report["changed"][0]["before"], &report["changed"][0]["after"]), (&json!("\"Answer.\""), &json!("\"Be brief.\"")));
    assert!(report["changed"][0]["source"].as_str().unwrap().contains("ambit.toml:"), "{report:#}");
    let after = house.revision().await;
    assert_eq!(report["revision"], json!(after));

    let second = house.session("second").await;
    assert_eq!((&second["config_revision"], &second["output_text"]), (&json!(after), &json!("new")));
    assert_eq!((house.instructions(0).as_str(), house.instructions(1).as_str()), ("Answer.", "Be brief."));
    assert_eq!(house.provider.arrivals()[1].offered(), Vec::<String>::new());

    // The one that runs still has its tool, its instructions and its revision.
    house.provider.release();
    let first = house.verdict(&running).await;
    assert_end(&first, "completed", "answered");
    assert_eq!((&first["config_revision"], &first["output_text"]), (&json!(before), &json!("old")));
    assert_eq!((house.instructions(2).as_str(), house.tools.calls()), ("Answer.", 1));

    assert_eq!(house.reload().await["outcome"], "unchanged");
    assert_eq!((house.reloads("applied").await, house.reloads("unchanged").await), (1, 1));
    let info = house.api.metrics().await;
    assert_eq!(info.sum("ambit_build_info", &[("revision", &after)]), Some(1.0));
    assert_eq!(info.sum("ambit_build_info", &[]), Some(1.0), "the former revision is not shown any more");
    house.close().await;
}

#[tokio::test]
async fn what_cannot_be_used_changes_nothing_and_says_everything() {
    let house = Setup::new("ok").serve().await;
    let before = (house.revision().await, house.api.get_admin("/admin/config").await.json());
    let right = std::fs::read_to_string(house.launch.folder().join("ambit.toml")).unwrap();
    house.rewrite(|text| text.replace("deadline = \"30s\"", "deadline = \"soon\"").replace("chain = \"default\"", "chain = \"nowhere\""));
    let problem = house.api.post_admin("/admin/reload").await.assert_problem(422, "CONFIG_INVALID");
    let pointers: Vec<&str> = problem["errors"].as_array().unwrap().iter().map(|error| error["pointer"].as_str().unwrap()).collect();
    assert!(pointers.contains(&"limits.deadline") && pointers.contains(&"agents.clerk.chain"), "{problem:#}");
    assert!(problem["errors"][0]["detail"].as_str().unwrap().contains("ambit.toml:"), "{problem:#}");
    assert_eq!((house.revision().await, house.api.get_admin("/admin/config").await.json()), before);
    let successful = async || house.api.metrics().await.sum("ambit_config_last_reload_successful", &[]);
    assert_eq!((house.reloads("invalid").await >= 1, successful().await), (true, Some(0.0)));
    assert_end(&house.session("still there").await, "completed", "answered");
    house.rewrite(|_| right);
    assert_eq!((&house.reload().await["outcome"], successful().await), (&json!("unchanged"), Some(1.0)));
    house.close().await;
}

#[tokio::test]
async fn a_signal_reloads() {
    let mut house = Setup::new("ok").serve().await;
    house.ambit.process().hang_up();
    let said = |text: &str| text.lines().any(|line| line.contains("configuration reloaded") && line.contains("\"trigger\":\"signal\""));
    house.ambit.process().stderr_says("that it reloaded on the signal", said).await;
    assert_end(&house.session("still there").await, "completed", "answered");
    house.close().await;
}

/// As a ConfigMap is mounted: the file is a link through a folder that is a link, and only the inner one is turned.
#[tokio::test]
async fn a_link_that_is_turned_reloads() {
    let (launch, provider, tools) = Setup::new("ok").furnish().await;
    let folder = launch.folder().to_owned();
    let text = std::fs::read_to_string(folder.join("ambit.toml")).unwrap();
    launch.write("one/ambit.toml", &text);
    launch.write("two/ambit.toml", &text.replace("Answer.", "Be brief."));
    symlink("one", folder.join("data")).unwrap();
    symlink("data/ambit.toml", folder.join("mounted.toml")).unwrap();
    let launch = launch.env("AMBIT_CONFIG", "mounted.toml");
    let ambit = launch.serve().await;
    let api = ambit_tests::client::Api::of(&ambit);
    let mut house = House { launch, provider, tools, ambit, api };
    symlink("two", folder.join("data.new")).unwrap();
    std::fs::rename(folder.join("data.new"), folder.join("data")).unwrap();
    let said = |text: &str| text.lines().any(|line| line.contains("configuration reloaded") && line.contains("\"trigger\":\"file\""));
    house.ambit.process().stderr_says("that it reloaded the file", said).await;
    house.session("hi").await;
    assert_eq!(house.instructions(0), "Be brief.");
    house.close().await;
}

#[tokio::test]
async fn what_needs_a_restart_is_listed_and_not_ignored() {
    let house = Setup::new("ok").serve().await;
    house.rewrite(|text| format!("{text}\n[default.server]\nmax_in_flight = 3\n[default.store]\nurl = \"sqlite:other.db\"\n"));
    let report = house.reload().await;
    assert_eq!(report["outcome"], "unchanged", "{report:#}");
    assert_eq!(keys(&report["needs_restart"]), ["server.max_in_flight", "store.url"]);
    let shown = house.api.get_admin("/admin/config").await.json();
    assert_eq!(
        (&shown["settings"]["server"]["max_in_flight"], &shown["settings"]["store"]["url"]),
        (&json!(64), &json!("sqlite:ambit.db"))
    );
    assert_eq!(shown["needs_restart"], report["needs_restart"]);
    assert_eq!(house.api.get("/v1/health").await.json()["sessions"]["places"], 64);
    assert!(house.ambit.stderr().contains("the configuration says what only a restart brings"));
    house.close().await;
}

/// One pool a name: sessions that began before and those that begin now share its permits.
#[tokio::test]
async fn permits_are_not_doubled_by_a_reload() {
    let limit = |n: u32| format!("\n[default.models.primary.bulkhead]\npermits = {n}\nqueue = 0\n");
    let house = Setup::new("held ok x2, ok").serve().await;
    house.rewrite(|text| text + &limit(1));
    house.reload().await;
    let first = house.start("first").await;
    house.provider.wait_for("the first call", |seen| seen.in_flight == 1).await;

    // Another setting elsewhere: the permit that is out counts.
    house.rewrite(|text| text.replace("Answer.", "Be brief."));
    assert_eq!(house.reload().await["outcome"], "applied");
    house.answer("one too many").await.assert_problem(503, "SATURATED");

    house.rewrite(|text| text.replace(&limit(1), &limit(2)));
    house.reload().await;
    let second = house.start("second").await;
    house.provider.wait_for("the second call", |seen| seen.in_flight == 2).await;
    house.answer("one too many").await.assert_problem(503, "SATURATED");

    // Two are out of one: nobody gets in until both have come back.
    house.rewrite(|text| text.replace(&limit(2), &limit(1)));
    house.reload().await;
    let pool = house.api.get("/v1/health").await.json()["bulkheads"][0].clone();
    assert_eq!((&pool["pool"], &pool["limit"], &pool["in_use"]), (&json!("primary"), &json!(1), &json!(2)));
    house.answer("one too many").await.assert_problem(503, "SATURATED");
    house.provider.release();
    for id in [first, second] {
        assert_end(&house.verdict(&id).await, "completed", "answered");
    }
    assert_end(&house.session("afterwards").await, "completed", "answered");
    assert_eq!(house.provider.seen().max_in_flight, 2);
    house.close().await;
}

#[tokio::test]
async fn an_agent_and_a_model_that_are_gone_serve_the_session_that_has_them() {
    let (launch, provider, tools) = Setup::new("held ok(from the old one)").furnish().await;
    let text = std::fs::read_to_string(launch.folder().join("ambit.toml")).unwrap();
    let address = provider.base_url();
    let model = format!("[default.models.former]\nbase_url = \"{address}\"\nmodel = \"m\"\nrequest = \"20s\"\nattempt = \"10s\"\n");
    launch.write("ambit.toml", &(text.replace("targets = [\"primary\"]", "targets = [\"former\"]") + &model));
    let ambit = launch.serve().await;
    let api = ambit_tests::client::Api::of(&ambit);
    let house = House { launch, provider, tools, ambit, api };
    let running = house.start("hi").await;
    house.provider.wait_for("the call", |seen| seen.in_flight == 1).await;
    house.rewrite(|text| text.replace("agents.clerk", "agents.other").replace("former", "latter"));
    house.reload().await;
    house.answer("hi").await.assert_problem(404, "AGENT_NOT_FOUND");
    let metrics = house.api.metrics().await;
    assert_eq!(metrics.sum("ambit_sessions_in_flight", &[("agent", AGENT)]), Some(1.0));
    assert_eq!(metrics.sum("ambit_bulkhead_permits", &[("pool", "former"), ("state", "in_use")]), Some(1.0));
    house.provider.release();
    let session = house.verdict(&running).await;
    assert_end(&session, "completed", "answered");
    assert_eq!(session["output_text"], "from the old one");
    within("the former pool to be gone", async {
        while house.api.metrics().await.sum("ambit_bulkhead_permits", &[("pool", "former")]).is_some() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    house.close().await;
}

#[tokio::test]
async fn reloads_under_traffic_fail_nobody_and_leak_nothing() {
    let call = Call::new("look", &json!({"id": "a"})).id("c");
    let chat = Script::new([Act::calls([call]), Act::text("done")]).by_turn();
    let house = Setup::new(chat).read("look", Act::json(json!(41))).serve().await;
    let traffic = async {
        let mut ends = Vec::new();
        for _ in 0..10 {
            let five = (0..5).map(|_| house.session("hi"));
            ends.extend(futures_util::future::join_all(five).await);
        }
        ends
    };
    let reloads = async {
        for n in 0..12 {
            let permits = 8 + n % 3;
            house.rewrite(|text| {
                let text = text.split("\n#").next().unwrap().to_owned();
                format!("{text}\n# {n}\n[default.models.primary.bulkhead]\npermits = {permits}\n[default.tools.look.bulkhead]\npermits = {permits}\n")
            });
            house.reload().await;
        }
    };
    let (ends, ()) = tokio::join!(traffic, reloads);
    assert_eq!(ends.len(), 50);
    for session in &ends {
        assert_end(session, "completed", "answered");
    }
    let revisions: std::collections::BTreeSet<&str> = ends.iter().map(|session| session["config_revision"].as_str().unwrap()).collect();
    assert!(revisions.len() > 1, "no session ran under another configuration: {revisions:?}");
    house.close().await;
}

/// A house whose agent is offered a fake MCP server's tool `level`.
async fn with_server(script: Value) -> House {
    let config = "[default.mcp.depot]\ncommand = \"COMMAND\"\nargs = [\"play.json\"]\nallow = [\"*\"]\nstart = \"3s\"\n\
         [default.mcp.depot.tools.level]\neffect = \"read\"\n";
    let config = config.replace("COMMAND", env!("CARGO_BIN_EXE_ambit-fake-mcp"));
    let chat = Script::new([Act::calls([Call::new("*level", &json!({})).id("c")]), Act::text("end")]).by_turn();
    let (launch, provider, tools) = Setup::new(chat).offer("depot", &config).furnish().await;
    let play = json!({
        "server": "depot",
        "tools": [{"name": "level", "description": "How full it is.", "inputSchema": {"type": "object"}}],
        "on_call": {"level": {"content": [{"type": "text", "text": "41 crates"}]}},
        "script": script,
        "record": launch.folder().join("seen.jsonl"),
    });
    launch.write("play.json", &play.to_string());
    let config = std::fs::read_to_string(launch.folder().join("ambit.toml")).unwrap();
    launch.write("ambit.toml", &config.replace("play.json", &launch.folder().join("play.json").display().to_string()));
    let ambit = launch.serve().await;
    let api = ambit_tests::client::Api::of(&ambit);
    House { launch, provider, tools, ambit, api }
}

impl House {
    fn starts(&self) -> usize {
        let seen = std::fs::read_to_string(self.launch.folder().join("seen.jsonl")).unwrap_or_default();
        seen.matches(r#""event":"start""#).count()
    }
}

#[tokio::test]
async fn an_mcp_server_stays_unless_something_about_it_changes() {
    let house = with_server(json!([])).await;
    house.session("hi").await;
    assert!(house.told()[0].1.contains("41 crates"));
    let first = house.ambit.descendants();
    house.rewrite(|text| text.replace("Answer.", "Be brief."));
    assert_eq!(house.reload().await["outcome"], "applied");
    house.session("hi").await;
    assert!(house.told()[0].1.contains("41 crates"));
    assert_eq!((house.starts(), house.ambit.descendants()), (1, first.clone()), "it is the same process");

    house.rewrite(|text| text.replace("start = \"3s\"", "start = \"4s\""));
    assert_eq!(keys(&house.reload().await["changed"]), ["mcp.depot.start"]);
    house.session("hi").await;
    assert!(house.told()[0].1.contains("41 crates"));
    assert_eq!(house.starts(), 2);
    within("the former process to be ended", async {
        while first.iter().any(ambit_tests::process::Member::lives) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    let now = house.ambit.descendants();
    assert!(now.len() == 1 && now[0].lives(), "{now:?}");
    house.close().await;
    assert!(!now[0].lives());
}

#[tokio::test]
async fn one_reload_runs_and_one_waits_and_no_more() {
    let house = with_server(json!([])).await;
    // The first reload waits three seconds for a server that does not greet any more.
    let play = std::fs::read_to_string(house.launch.folder().join("play.json")).unwrap();
    house.launch.write("play.json", &play.replace("\"script\":[]", "\"script\":[{\"on\":\"initialize\",\"behaviour\":\"hang\"}]"));
    house.rewrite(|text| text.replace("[default.mcp.depot]", "[default.mcp.depot]\nidle = \"50s\""));
    let (first, rest) = tokio::join!(house.api.post_admin("/admin/reload"), async {
        within("the server to be asked", async {
            while house.starts() < 2 {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        })
        .await;
        futures_util::future::join_all((0..4).map(|_| house.api.post_admin("/admin/reload"))).await
    });
    let statuses: Vec<u16> = rest.iter().map(|answer| answer.status).collect();
    assert_eq!((first.status, statuses.iter().filter(|status| **status == 200).count()), (200, 1), "{statuses:?}");
    assert_eq!(first.json()["left_out"][0]["server"], "depot");
    for refused in rest.iter().filter(|answer| answer.status != 200) {
        refused.assert_problem(503, "OVERLOADED");
    }
    house.close().await;
}

#[tokio::test]
async fn a_file_that_is_gone_leaves_what_it_said_in_force() {
    let house = Setup::new("ok").serve().await;
    let before = house.revision().await;
    let (path, away) = (house.launch.folder().join("ambit.toml"), house.launch.folder().join("away.toml"));
    std::fs::rename(&path, &away).unwrap();
    house.api.post_admin("/admin/reload").await.assert_problem(422, "CONFIG_INVALID");
    assert_eq!(house.revision().await, before);
    assert_end(&house.session("hi").await, "completed", "answered");
    std::fs::rename(away, path).unwrap();
    house.reload().await;
    house.close().await;
}

#[tokio::test]
async fn what_was_deleted_cannot_be_tightened() {
    let house = Setup::new("ok").serve().await;
    let id = house.session("hi").await["id"].as_str().unwrap().to_owned();
    house.api.send(house.api.request(reqwest::Method::DELETE, &format!("/v1/responses/{id}"))).await.assert_status(200);
    let patch = house.api.request(reqwest::Method::PATCH, &format!("/v1/sessions/{id}/limits")).json(&json!({"model_calls": 99}));
    house.api.send(patch).await.assert_problem(404, "SESSION_NOT_FOUND");
    house.close().await;
}

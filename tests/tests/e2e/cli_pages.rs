//! Completions, manual pages, and the difference between two configurations.

use std::process::{Command, Stdio};

use ambit_tests::process::Launch;
use serde_json::{Value, json};

/// What bash offers behind a beginning.
fn completed(script: &str, words: &str) -> Vec<String> {
    let all: Vec<&str> = words.split(' ').collect();
    let (before, last) = (all[all.len() - 2], all[all.len() - 1]);
    let line = format!(
        "{script}\nCOMP_WORDS=({words}); COMP_CWORD={}; _ambit ambit '{last}' '{before}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        all.len() - 1,
    );
    let output = Command::new("bash").arg("--norc").arg("-c").arg(line).output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn bash_completes_commands_and_their_arguments() {
    let end = Launch::bare().run(&["completions", "bash"]).await;
    let script = &end.assert_code(0).stdout;
    assert_eq!(completed(script, "ambit sess"), ["sessions"]);
    assert_eq!(completed(script, "ambit sessions li"), ["list"]);
    assert!(completed(script, "ambit run --st").contains(&"--stream".to_owned()));
    assert!(completed(script, "ambit sessions list --status comp").contains(&"completed".to_owned()));
}

#[tokio::test]
async fn every_shell_has_completions_and_an_unknown_one_is_refused() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let end = Launch::bare().run(&["completions", shell]).await;
        assert!(end.assert_code(0).stdout.contains("sessions") && end.stderr.is_empty(), "{shell}");
    }
    Launch::bare().run(&["completions", "tcsh"]).await.assert_code(2).assert_stderr("zsh");
}

/// Renders a page with groff where there is one, which says everything that it stumbles over; else looks at its structure.
fn rendered(page: &str) -> String {
    use std::io::Write as _;
    let mut groff = Command::new("groff");
    groff.args(["-man", "-ww", "-Tascii"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = groff.spawn();
    let Ok(mut groff) = started else { return page.replace("\\-", "-") };
    groff.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = groff.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    // Bold is a letter, a step back, the letter again.
    let mut text = String::new();
    for c in String::from_utf8_lossy(&output.stdout).chars() {
        if c == '\u{8}' {
            text.pop();
        } else {
            text.push(c);
        }
    }
    text
}

#[tokio::test]
async fn manual_pages_render() {
    let launch = Launch::bare();
    for (command, says) in
        [(&[][..], "always stop"), (&["sessions", "list"], "--status"), (&["doctor"], "--online"), (&["run"], "--stream")]
    {
        let end = launch.run(&[&["man"], command].concat()).await;
        let page = &end.assert_code(0).stdout;
        assert!(page.contains(".TH ambit") && page.contains(".SH NAME"), "{page}");
        assert!(rendered(page).contains(says), "{command:?}: {}", rendered(page));
    }
    launch.run(&["man", "fly"]).await.assert_code(2).assert_stderr("there are: run");
    launch.run(&["man", "run", "fly"]).await.assert_code(2).assert_stderr("it has no commands");
}

#[tokio::test]
async fn all_manual_pages_are_written_into_a_folder() {
    let launch = Launch::bare();
    launch.run(&["man", "--dir", "."]).await.assert_code(0);
    let pages = std::fs::read_dir(launch.folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let pages: Vec<String> = pages.filter(|name| name.ends_with(".1")).collect();
    for page in ["ambit.1", "ambit-sessions-cancel.1", "ambit-replay.1"] {
        assert!(pages.contains(&page.to_owned()), "{pages:?}");
    }
    assert!(!pages.iter().any(|page| page.contains("help")), "{pages:?}");
    launch.run(&["man", "--dir", "nowhere"]).await.assert_code(1).assert_stderr("hint:");
}

#[tokio::test]
async fn two_configurations_are_told_apart() {
    let launch =
        Launch::with("[default.limits]\nmodel_calls = 3\n[default.models.primary]\nbase_url = \"http://127.0.0.1:9/v1\"\nmodel = \"m\"\napi_key = \"env:KEY\"\n").env("KEY", "topsecret");
    let end = launch.run(&["config", "diff"]).await;
    assert!(end.assert_code(0).stdout.lines().any(|line| line.split_whitespace().eq(["limits.model_calls", "8", "3"])), "{}", end.stdout);
    assert!(!end.stdout.contains("topsecret"), "{}", end.stdout);
    launch.write("other.toml", "[default.limits]\nmodel_calls = 2\n");
    let end = launch.run(&["config", "diff", "--with-config", "other.toml", "--json"]).await;
    let found: Value = serde_json::from_str(&end.assert_code(0).stdout).unwrap();
    assert!(found.as_array().unwrap().contains(&json!({"key": "limits.model_calls", "there": 2, "here": 3})), "{found:#}");
    launch.run(&["config", "diff", "--with-profile", "default"]).await.assert_code(0).assert_stderr("no difference");
    launch.run(&["config", "diff", "--with-profile", "nobody"]).await.assert_code(78).assert_stderr("nobody");
}

#[tokio::test]
async fn a_program_can_read_what_is_wrong_with_a_configuration() {
    let fine: Value = serde_json::from_str(&Launch::bare().run(&["config", "check", "--json"]).await.assert_code(0).stdout).unwrap();
    assert_eq!((&fine["ok"], &fine["agents"]), (&json!(true), &json!(["ops"])), "{fine:#}");
    let end = Launch::with("[default.limits]\nmodel_calls = 0\n").run(&["config", "check", "--json"]).await;
    let wrong: Value = serde_json::from_str(&end.assert_code(78).stdout).unwrap();
    let problem = &wrong["problems"][0];
    assert_eq!((&wrong["ok"], &problem["place"], &problem["key"]), (&json!(false), &json!("ambit.toml:2"), &json!("limits.model_calls")));
    assert!(problem["hint"].is_string(), "{wrong:#}");
}

//! `[server]`, `[http]`, `[store]`.

use std::net::SocketAddr;

use ambit_store::StoreOptions;
use ambit_tool_executor::AllowRule;

use super::Report;
use crate::load::DEV;

/// Checks addresses and the store's URL.
pub(super) fn check(report: &mut Report<'_>) {
    let settings = report.config.settings();
    for (key, text) in [("server.listen", &settings.server.listen), ("server.admin_listen", &settings.server.admin_listen)] {
        match text.parse::<SocketAddr>() {
            Err(_) => report.say_value(key, text, "is no address with a port", "write `127.0.0.1:8080`, or port 0 for any free one"),
            Ok(address) if !address.ip().is_loopback() => report.say_value(
                key,
                text,
                "is not loopback, and not built yet: authentication, without which nothing else may be listened on",
                "listen on 127.0.0.1 or [::1], and put a proxy with authentication in front",
            ),
            Ok(_) => {}
        }
    }
    if settings.server.listen == settings.server.admin_listen && !settings.server.listen.ends_with(":0") {
        report.say_value(
            "server.admin_listen",
            &settings.server.admin_listen,
            "is the address of `server.listen`, too",
            "take another port",
        );
    }
    for (name, host) in &settings.http.hosts {
        let key = format!("http.hosts.{name}");
        if report.config.profile() != DEV {
            report.say(&key, "is for tests, in profile `dev` only", "select the profile `dev`, or use DNS");
        }
        if host.address.parse::<SocketAddr>().is_err() {
            report.say_value(&format!("{key}.address"), &host.address, "is no address with a port", "write `127.0.0.1:9000`");
        }
    }
    for text in &settings.http.allow {
        if let Err(error) = text.parse::<AllowRule>() {
            report.say_value("http.allow", text, error.to_string(), "write `payments.internal`, `*.internal`, `10.0.0.7` or `10.0.0.0/8`");
        }
    }
    if let Err(error) = StoreOptions::path_of_url(&settings.store.url) {
        let reason = if settings.store.url.starts_with("postgres") { "not built yet: PostgreSQL".to_owned() } else { error.to_string() };
        report.say_value("store.url", &settings.store.url, reason, "write `sqlite:ambit.db`");
    }
}

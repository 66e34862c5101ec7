//! Transports: built as `serve` builds them, and connected to up to the login.

use mailonce_core::{handoff::transport_request::ConnectionCheck, ports::transport::Transport};
use std::{sync::Arc, time::Duration};

use super::DoctorCheck;
use crate::{config::Config, engine_deps};

/// Timeout of the check of one transport.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// Checks every configured transport.
pub(super) async fn check_transports(config: &Config, offline: bool) -> Vec<DoctorCheck> {
    let built = match engine_deps::engine_deps(config) {
        Ok(deps) => deps.transports,
        Err(error) => {
            let next = "correct mailonce.toml; until then `mailonce serve` does not start";
            return vec![DoctorCheck::fail("transport", format!("{error:#}"), next)];
        }
    };
    let is_configured =
        |transport: &&Arc<dyn Transport>| config.transports.iter().any(|file| file.name == transport.name());
    let transports: Vec<&Arc<dyn Transport>> = built.iter().filter(is_configured).collect();
    if transports.is_empty() {
        let found = "only the sandbox: mail is captured and does not leave this machine";
        let next = "to send real mail, add [[transports]] to mailonce.toml (docs/transports.md)";
        return vec![DoctorCheck::ok("transport", found).with_next_step(next)];
    }
    let mut checks = Vec::new();
    for transport in transports {
        checks.push(if offline {
            DoctorCheck::ok(
                "transport",
                format!("{} ({}), not connected to (--offline)", transport.name(), transport.kind()),
            )
        } else {
            let result = tokio::time::timeout(CHECK_TIMEOUT, transport.check_connection()).await;
            let late =
                |_elapsed| ConnectionCheck::Unreachable(format!("no answer within {} s", CHECK_TIMEOUT.as_secs()));
            describe_connection_check(transport.name(), transport.kind(), result.unwrap_or_else(late))
        });
    }
    checks
}

fn describe_connection_check(name: &str, kind: &str, result: ConnectionCheck) -> DoctorCheck {
    let credential = if kind == "smtp" { "username and password" } else { "the API key" };
    match result {
        ConnectionCheck::LoggedIn => DoctorCheck::ok("transport", format!("{name} ({kind}): login succeeded")),
        ConnectionCheck::Reached if kind == "smtp" => {
            DoctorCheck::ok("transport", format!("{name} (smtp): connected; no login is configured"))
        }
        ConnectionCheck::Reached => DoctorCheck::ok(
            "transport",
            format!("{name} ({kind}): connected; the API key is used with the first email"),
        ),
        ConnectionCheck::LoginRefused(reply) => DoctorCheck::fail(
            "transport",
            format!("{name} ({kind}): login refused: {reply}"),
            format!("correct {credential} of the transport `{name}` in mailonce.toml"),
        ),
        ConnectionCheck::Unreachable(why) => {
            let fields = if kind == "smtp" { "host, port and tls" } else { "base_url" };
            DoctorCheck::fail(
                "transport",
                format!("{name} ({kind}): cannot connect: {why}"),
                format!("correct {fields} of the transport `{name}`, or open the firewall"),
            )
        }
    }
}

//! Transports: built as `serve` would build them, and visited as far as their log-in.

use mailonce_core::{handoff::transport_request::ConnectionCheck, ports::transport::Transport};
use std::{sync::Arc, time::Duration};

use super::DoctorCheck;
use crate::{config::Config, engine_deps};

/// How long one of them may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// Every way out that is configured.
pub(super) async fn check_transports(config: &Config, offline: bool) -> Vec<DoctorCheck> {
    let built = match engine_deps::engine_deps(config) {
        Ok(outside) => outside.transports,
        Err(error) => {
            let next = "correct mailonce.toml: `serve` would not start";
            return vec![DoctorCheck::fail("transport", format!("{error:#}"), next)];
        }
    };
    let ours = |way: &&Arc<dyn Transport>| config.transports.iter().any(|file| file.name == way.name());
    let ways: Vec<&Arc<dyn Transport>> = built.iter().filter(ours).collect();
    if ways.is_empty() {
        let found = "sandbox: mail is captured, nothing leaves this machine";
        let next = "for real mail add [[transports]] to mailonce.toml (docs/transports.md)";
        return vec![DoctorCheck::ok("transport", found).with_next_step(next)];
    }
    let mut checks = Vec::new();
    for way in ways {
        checks.push(if offline {
            DoctorCheck::ok("transport", format!("{} ({}), not dialled", way.name(), way.kind()))
        } else {
            let visited = tokio::time::timeout(CHECK_TIMEOUT, way.check_connection()).await;
            let late = |_late| ConnectionCheck::Unreachable(format!("no answer within {} s", CHECK_TIMEOUT.as_secs()));
            describe_connection_check(way.name(), way.kind(), visited.unwrap_or_else(late))
        });
    }
    checks
}

fn describe_connection_check(name: &str, kind: &str, visit: ConnectionCheck) -> DoctorCheck {
    let credential = if kind == "smtp" { "username and password" } else { "the key" };
    match visit {
        ConnectionCheck::LoggedIn => DoctorCheck::ok("transport", format!("{name} ({kind}) takes our log-in")),
        ConnectionCheck::Reached if kind == "smtp" => {
            DoctorCheck::ok("transport", format!("{name} (smtp) is there; no log-in is set"))
        }
        ConnectionCheck::Reached => {
            DoctorCheck::ok("transport", format!("{name} ({kind}) is there; its key is tried with the first mail"))
        }
        ConnectionCheck::LoginRefused(said) => DoctorCheck::fail(
            "transport",
            format!("{name} ({kind}) does not take our log-in: {said}"),
            format!("correct {credential} of the transport `{name}` in mailonce.toml"),
        ),
        ConnectionCheck::Unreachable(why) => {
            let place = if kind == "smtp" { "host, port and tls" } else { "base_url" };
            DoctorCheck::fail(
                "transport",
                format!("{name} ({kind}) cannot be reached: {why}"),
                format!("correct {place} of the transport `{name}`, or let it through the firewall"),
            )
        }
    }
}

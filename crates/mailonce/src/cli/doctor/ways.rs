//! Transports: built as `serve` would build them, and visited as far as their log-in.

use mailonce_core::port::transport::{Transport, Visit};
use std::{sync::Arc, time::Duration};

use super::Check;
use crate::{config::Config, outside};

/// How long one of them may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Every way out that is configured.
pub(super) async fn transports(config: &Config, offline: bool) -> Vec<Check> {
    let built = match outside::outside(config) {
        Ok(outside) => outside.transports,
        Err(error) => {
            let next = "correct mailonce.toml: `serve` would not start";
            return vec![Check::fail("transport", format!("{error:#}"), next)];
        }
    };
    let ours = |way: &&Arc<dyn Transport>| config.transports.iter().any(|file| file.name == way.name());
    let ways: Vec<&Arc<dyn Transport>> = built.iter().filter(ours).collect();
    if ways.is_empty() {
        let found = "sandbox: mail is captured, nothing leaves this machine";
        let next = "for real mail add [[transports]] to mailonce.toml (docs/transports.md)";
        return vec![Check::ok("transport", found).and(next)];
    }
    let mut checks = Vec::new();
    for way in ways {
        checks.push(if offline {
            Check::ok("transport", format!("{} ({}), not dialled", way.name(), way.kind()))
        } else {
            let visited = tokio::time::timeout(PATIENCE, way.visit()).await;
            let late = |_late| Visit::Unreachable(format!("no answer within {} s", PATIENCE.as_secs()));
            judge(way.name(), way.kind(), visited.unwrap_or_else(late))
        });
    }
    checks
}

fn judge(name: &str, kind: &str, visit: Visit) -> Check {
    let credential = if kind == "smtp" { "username and password" } else { "the key" };
    match visit {
        Visit::LoggedIn => Check::ok("transport", format!("{name} ({kind}) takes our log-in")),
        Visit::Reached if kind == "smtp" => Check::ok("transport", format!("{name} (smtp) is there; no log-in is set")),
        Visit::Reached => {
            Check::ok("transport", format!("{name} ({kind}) is there; its key is tried with the first mail"))
        }
        Visit::Refused(said) => Check::fail(
            "transport",
            format!("{name} ({kind}) does not take our log-in: {said}"),
            format!("correct {credential} of the transport `{name}` in mailonce.toml"),
        ),
        Visit::Unreachable(why) => {
            let place = if kind == "smtp" { "host, port and tls" } else { "base_url" };
            Check::fail(
                "transport",
                format!("{name} ({kind}) cannot be reached: {why}"),
                format!("correct {place} of the transport `{name}`, or let it through the firewall"),
            )
        }
    }
}

//! Whether the host may send for the envelope's domain (RFC 7208).

use mail_auth::{MessageAuthenticator, SpfResult, spf::verify::SpfParameters};
use mailonce_core::port::authenticate::{Arrived, AuthResult};
use tokio::time::Instant;

use super::{Checked, by, dmarc::a_label};
use crate::guard::is_public;

/// What a domain's macros get for a host that did not say its name, and for ours.
const NAMELESS: &str = "unknown";

/// Asks about the sender's domain, or about the host's own name when the return path is null (§2.4).
pub(super) async fn check(dns: &MessageAuthenticator, mail: &Arrived<'_>, until: Instant) -> Checked {
    let result = |domain: &str, result| Checked { domain: domain.to_owned(), result };
    let (Some(ip), Some(sender)) = (mail.ip, mail.sender) else { return result("", AuthResult::None) };
    let ip = ip.to_canonical();
    // A host of a network of ours is a relay in front of us, and no domain could name it.
    if !is_public(ip) {
        return result("", AuthResult::None);
    }
    let helo = mail.helo.unwrap_or(NAMELESS);
    let named = if sender.is_empty() { mail.helo } else { sender.rsplit_once('@').map(|(_, domain)| domain) };
    let Some(domain) = named.and_then(a_label) else { return result("", AuthResult::None) };
    let asked = if sender.is_empty() {
        SpfParameters::verify_ehlo(ip, &domain, NAMELESS)
    } else {
        SpfParameters::new(ip, &domain, helo, NAMELESS, sender)
    };
    let said = async { word(dns.check_host(asked.into()).await.result()) };
    result(&domain, by(until, said, AuthResult::TempError).await)
}

fn word(result: SpfResult) -> AuthResult {
    match result {
        SpfResult::Pass => AuthResult::Pass,
        SpfResult::Fail => AuthResult::Fail,
        SpfResult::SoftFail => AuthResult::SoftFail,
        SpfResult::Neutral => AuthResult::Neutral,
        SpfResult::TempError => AuthResult::TempError,
        SpfResult::PermError => AuthResult::PermError,
        SpfResult::None => AuthResult::None,
    }
}

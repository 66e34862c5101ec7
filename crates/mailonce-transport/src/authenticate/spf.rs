//! Whether the host may send for the envelope's domain (RFC 7208).

use mail_auth::{MessageAuthenticator, SpfResult, spf::verify::SpfParameters};
use mailonce_core::inbound::sender_auth::{AuthResult, UnauthenticatedMail};
use tokio::time::Instant;

use super::{DomainCheck, dmarc::a_label, with_deadline};
use crate::egress::is_public;

/// What a domain's macros get for a host that did not say its name, and for ours.
const UNKNOWN_HOST: &str = "unknown";

/// Asks about the sender's domain, or about the host's own name when the return path is null (§2.4).
pub(super) async fn check_spf(
    dns: &MessageAuthenticator,
    mail: &UnauthenticatedMail<'_>,
    until: Instant,
) -> DomainCheck {
    let result = |domain: &str, result| DomainCheck { domain: domain.to_owned(), result };
    let (Some(ip), Some(sender)) = (mail.ip, mail.sender) else { return result("", AuthResult::None) };
    let ip = ip.to_canonical();
    // A host of a network of ours is a relay in front of us, and no domain could name it.
    if !is_public(ip) {
        return result("", AuthResult::None);
    }
    let helo = mail.helo.unwrap_or(UNKNOWN_HOST);
    let named = if sender.is_empty() { mail.helo } else { sender.rsplit_once('@').map(|(_, domain)| domain) };
    let Some(domain) = named.and_then(a_label) else { return result("", AuthResult::None) };
    let asked = if sender.is_empty() {
        SpfParameters::verify_ehlo(ip, &domain, UNKNOWN_HOST)
    } else {
        SpfParameters::new(ip, &domain, helo, UNKNOWN_HOST, sender)
    };
    let said = async { to_auth_result(dns.check_host(asked.into()).await.result()) };
    result(&domain, with_deadline(until, said, AuthResult::TempError).await)
}

fn to_auth_result(result: SpfResult) -> AuthResult {
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

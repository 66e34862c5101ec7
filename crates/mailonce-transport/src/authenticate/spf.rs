//! SPF: whether the connecting host may send for the domain of the envelope sender (RFC 7208).

use mail_auth::{MessageAuthenticator, SpfResult, spf::verify::SpfParameters};
use mailonce_core::inbound::sender_auth::{AuthResult, UnauthenticatedMail};
use tokio::time::Instant;

use super::{DomainCheck, dmarc::a_label, with_deadline};
use crate::egress::is_public;

/// The value of SPF macros for a host without a HELO name, and for our own host name.
const UNKNOWN_HOST: &str = "unknown";

/// Checks the domain of the envelope sender, or the HELO name if the return path is null (§2.4).
pub(super) async fn check_spf(
    dns: &MessageAuthenticator,
    mail: &UnauthenticatedMail<'_>,
    deadline: Instant,
) -> DomainCheck {
    let result = |domain: &str, result| DomainCheck { domain: domain.to_owned(), result };
    let (Some(ip), Some(sender)) = (mail.ip, mail.sender) else { return result("", AuthResult::None) };
    let ip = ip.to_canonical();
    // A private address is a relay in front of us, and no SPF record could authorize it.
    if !is_public(ip) {
        return result("", AuthResult::None);
    }
    let helo = mail.helo.unwrap_or(UNKNOWN_HOST);
    let checked_domain = if sender.is_empty() { mail.helo } else { sender.rsplit_once('@').map(|(_, domain)| domain) };
    let Some(domain) = checked_domain.and_then(a_label) else { return result("", AuthResult::None) };
    let parameters = if sender.is_empty() {
        SpfParameters::verify_ehlo(ip, &domain, UNKNOWN_HOST)
    } else {
        SpfParameters::new(ip, &domain, helo, UNKNOWN_HOST, sender)
    };
    let check = async { to_auth_result(dns.check_host(parameters.into()).await.result()) };
    result(&domain, with_deadline(deadline, check, AuthResult::TempError).await)
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

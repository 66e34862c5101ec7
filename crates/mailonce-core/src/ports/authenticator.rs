//! Sender authentication of received mail: SPF, DKIM and DMARC, checked over DNS.

use async_trait::async_trait;

use crate::inbound::sender_auth::{AuthResult, SenderAuth, UnauthenticatedMail};

/// Authenticates senders.
#[async_trait]
pub trait Authenticator: Send + Sync + 'static {
    /// Checks a mail. Takes two seconds at most; checks unfinished by then are `temperror`.
    async fn authenticate(&self, mail: UnauthenticatedMail<'_>) -> SenderAuth;

    /// Whether it names the sender's domain of each mail in [`SenderAuth::domain`]. The engine then fails a mail that
    /// shows a sender although no domain was checked.
    fn checks_domain(&self) -> bool {
        true
    }
}

/// Makes no DNS queries and trusts mail from this machine. For `dev`, where the user sends all mail.
#[derive(Clone, Copy, Debug)]
pub struct TrustLoopback;

#[async_trait]
impl Authenticator for TrustLoopback {
    async fn authenticate(&self, mail: UnauthenticatedMail<'_>) -> SenderAuth {
        match mail.ip {
            Some(ip) if ip.to_canonical().is_loopback() => {
                SenderAuth { verdict: AuthResult::Pass, ..SenderAuth::default() }
            }
            _ => SenderAuth::default(),
        }
    }

    fn checks_domain(&self) -> bool {
        false
    }
}

/// Makes no DNS queries: every result is `none`.
#[derive(Clone, Copy, Debug)]
pub struct NoSenderCheck;

#[async_trait]
impl Authenticator for NoSenderCheck {
    async fn authenticate(&self, _: UnauthenticatedMail<'_>) -> SenderAuth {
        SenderAuth::default()
    }

    fn checks_domain(&self) -> bool {
        false
    }
}

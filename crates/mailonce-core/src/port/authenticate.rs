//! Whether a mail's sender is who it says: SPF, DKIM and DMARC, asked of the domain name system.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

use crate::string_enum::string_enum;

string_enum! {
    /// What one method says.
    AuthResult {
        /// It holds.
        Pass = "pass",
        /// It does not.
        Fail = "fail",
        /// It does not, but the domain is not sure.
        SoftFail = "softfail",
        /// The domain does not say.
        Neutral = "neutral",
        /// There is nothing to check, or nobody checked.
        None = "none",
        /// Nobody could be asked in time.
        TempError = "temperror",
        /// What there is to check is broken.
        PermError = "permerror",
    }
}

/// What is known about a mail's sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SenderAuth {
    /// Whether the host may send for the envelope's domain.
    pub spf: AuthResult,
    /// Whether a signature holds.
    pub dkim: AuthResult,
    /// Whether one of the two holds for the domain that people see.
    pub dmarc: AuthResult,
    /// Our own verdict: `pass` when SPF or DKIM holds for the domain that people see (aligned), whatever that domain
    /// publishes; `fail` when it publishes that it should and nothing does; else `none` or `temperror`.
    pub verdict: AuthResult,
    /// The domain that people see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
}

impl Default for SenderAuth {
    fn default() -> Self {
        let none = AuthResult::None;
        Self { spf: none, dkim: none, dmarc: none, verdict: none, domain: None }
    }
}

impl SenderAuth {
    /// Nobody answered in time.
    pub fn timed_out() -> Self {
        let late = AuthResult::TempError;
        Self { spf: late, dkim: late, dmarc: late, verdict: late, domain: None }
    }

    /// Whether the sender's domain disowns the mail.
    pub fn is_fail(&self) -> bool {
        self.verdict == AuthResult::Fail
    }

    /// Whether the sender is who it says.
    pub fn is_pass(&self) -> bool {
        self.verdict == AuthResult::Pass
    }
}

/// A mail as it arrived.
#[derive(Clone, Copy, Debug)]
pub struct UnauthenticatedMail<'a> {
    /// The mail as it travelled.
    pub raw: &'a [u8],
    /// Where it came from. Without it SPF cannot be asked.
    pub ip: Option<IpAddr>,
    /// What that host called itself.
    pub helo: Option<&'a str>,
    /// The sender of the envelope; empty for the null return path.
    pub sender: Option<&'a str>,
}

/// Asks whether a mail's sender is who it says.
#[async_trait]
pub trait Authenticator: Send + Sync + 'static {
    /// What is known. Takes two seconds at the most; what could not be asked by then is `temperror`.
    async fn authenticate(&self, mail: UnauthenticatedMail<'_>) -> SenderAuth;

    /// Whether it names the sender's domain of each mail in [`SenderAuth::domain`]. The engine then fails a mail that
    /// shows a sender although no domain was checked.
    fn checks_domain(&self) -> bool {
        true
    }
}

/// Asks nobody, and believes mail from this machine itself. For `dev`, where every mail is one's own.
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

/// Asks nobody: nothing is known about any sender.
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

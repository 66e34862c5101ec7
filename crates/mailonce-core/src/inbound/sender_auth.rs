//! Whether the sender of a received mail is authenticated.

use crate::string_enum::string_enum;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

string_enum! {
    /// The result of one authentication method, with the names of RFC 8601.
    AuthResult {
        /// The check succeeded.
        Pass = "pass",
        /// The check failed.
        Fail = "fail",
        /// The check failed, but the domain asks not to reject for it.
        SoftFail = "softfail",
        /// The domain makes no statement.
        Neutral = "neutral",
        /// There was nothing to check, or no check ran.
        None = "none",
        /// DNS did not answer in time.
        TempError = "temperror",
        /// The record or signature is malformed.
        PermError = "permerror",
    }
}

/// The authentication results of a mail's sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SenderAuth {
    /// SPF: whether the sending host may send for the domain of the envelope sender.
    pub spf: AuthResult,
    /// DKIM: whether a signature is valid.
    pub dkim: AuthResult,
    /// DMARC: whether SPF or DKIM passed, aligned with the domain of the From header.
    pub dmarc: AuthResult,
    /// The verdict of mailonce. `pass`: SPF or DKIM passed and is aligned with the From domain, with or without a DMARC
    /// record. `fail`: the domain publishes a DMARC record and neither passed. Otherwise `none` or `temperror`.
    pub verdict: AuthResult,
    /// The domain of the From header.
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
    /// The result when DNS did not answer in time.
    pub fn timed_out() -> Self {
        let late = AuthResult::TempError;
        Self { spf: late, dkim: late, dmarc: late, verdict: late, domain: None }
    }

    /// Whether the sender failed authentication.
    pub fn is_fail(&self) -> bool {
        self.verdict == AuthResult::Fail
    }

    /// Whether the sender is authenticated.
    pub fn is_pass(&self) -> bool {
        self.verdict == AuthResult::Pass
    }
}

/// A received mail to authenticate.
#[derive(Clone, Copy, Debug)]
pub struct UnauthenticatedMail<'a> {
    /// The original RFC 5322 bytes.
    pub raw: &'a [u8],
    /// The IP address of the sending host. SPF cannot be checked without it.
    pub ip: Option<IpAddr>,
    /// The name that the host gave in HELO or EHLO.
    pub helo: Option<&'a str>,
    /// The envelope sender. Empty for the null return path.
    pub sender: Option<&'a str>,
}

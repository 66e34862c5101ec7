//! Whether what holds speaks for the domain that people see (RFC 9989), and our own verdict.

use mail_auth::{
    DnsError, Error, MessageAuthenticator, Txt,
    common::cache::NoCache,
    dmarc::{Alignment, Dmarc, Policy as Wish},
};
use mailonce_core::{address::remove_obsolete_spacing, inbound::sender_auth::AuthResult};
use std::sync::Arc;
use tokio::time::Instant;

use super::{DomainCheck, with_deadline};

/// What a domain publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DmarcPolicy {
    /// Nothing.
    None,
    /// How its mail is aligned.
    Published {
        /// Whether SPF's domain must be the very same.
        strict_spf: bool,
        /// Whether the signature's domain must be the very same.
        strict_dkim: bool,
        /// Whether it asks that mail which is not aligned be treated as such.
        is_enforced: bool,
    },
    /// Nobody could be asked in time.
    Unavailable,
}

/// A domain as A-label in lower case. `None` when it is none.
pub(super) fn a_label(domain: &str) -> Option<String> {
    let name = idna::domain_to_ascii(domain.trim_end_matches('.')).ok()?;
    let is_plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    (is_plain && name.contains('.') && name.len() <= 253).then_some(name)
}

/// The domain that people see in `From`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FromDomain {
    /// There is no address with a domain.
    Absent,
    /// All addresses have this domain.
    Domain(String),
    /// Nobody can say which domain a reader sees: the addresses have several domains, or `From` cannot be read. Whoever
    /// forges a sender could choose such a `From`, so the mail fails.
    Ambiguous,
}

impl FromDomain {
    /// Of the addresses in `From`. `raw` is the mail: an `@` in a `From` without any address means that it was not read.
    pub(super) fn from_addresses(from: &[String], raw: &[u8]) -> Self {
        let mut domains = from
            .iter()
            .map(|address| remove_obsolete_spacing(address).rsplit_once('@').and_then(|(_, domain)| a_label(domain)));
        match domains.next() {
            Some(Some(first)) if domains.all(|domain| domain.as_ref() == Some(&first)) => Self::Domain(first),
            None if !has_from_with_at(raw) => Self::Absent,
            Some(None) if from.iter().all(|address| !address.contains('@')) && !has_from_with_at(raw) => Self::Absent,
            Some(_) | None => Self::Ambiguous,
        }
    }

    pub(super) fn domain(&self) -> Option<&str> {
        match self {
            Self::Domain(domain) => Some(domain),
            Self::Absent | Self::Ambiguous => None,
        }
    }
}

/// Whether a field `From` of the mail has an `@`, in any reading.
fn has_from_with_at(raw: &[u8]) -> bool {
    let mut in_from = false;
    // A line of spaces continues a field; only an empty line ends the header.
    for line in raw.split(|&b| b == b'\n').take_while(|line| !matches!(*line, b"" | b"\r")) {
        let continues = line.starts_with(b" ") || line.starts_with(b"\t");
        let name = line.split(|&b| b == b':').next().unwrap_or_default().trim_ascii();
        in_from = if continues { in_from } else { name.eq_ignore_ascii_case(b"from") };
        if in_from && line.contains(&b'@') {
            return true;
        }
    }
    false
}

/// Asks what a domain publishes, else what the one it is registered under does.
pub(super) async fn find_policy(dns: &MessageAuthenticator, domain: Option<&str>, until: Instant) -> DmarcPolicy {
    let Some(domain) = domain else { return DmarcPolicy::None };
    with_deadline(until, lookup_policy(dns, domain), DmarcPolicy::Unavailable).await
}

async fn lookup_policy(dns: &MessageAuthenticator, domain: &str) -> DmarcPolicy {
    match lookup_record(dns, domain).await {
        Ok(Some(record)) => return to_policy(&record, record.p),
        Ok(None) => {}
        Err(LookupFailed) => return DmarcPolicy::Unavailable,
    }
    match registrable_domain(domain).filter(|above| *above != domain) {
        None => DmarcPolicy::None,
        Some(above) => match lookup_record(dns, above).await {
            Ok(Some(record)) => to_policy(&record, record.sp),
            Ok(None) => DmarcPolicy::None,
            Err(LookupFailed) => DmarcPolicy::Unavailable,
        },
    }
}

struct LookupFailed;

async fn lookup_record(dns: &MessageAuthenticator, domain: &str) -> Result<Option<Arc<Dmarc>>, LookupFailed> {
    let asked = dns.txt_lookup::<Dmarc>(format!("_dmarc.{domain}."), None::<&NoCache<Box<str>, Txt>>).await;
    match asked {
        // Without a wish and without an address for reports it is no record (RFC 9989 §4.10.1).
        Ok(record) => Ok(Some(record).filter(|record| record.p != Wish::Unspecified || !record.rua.is_empty())),
        Err(Error::Dns(DnsError::Resolver(_))) => Err(LookupFailed),
        // A record that cannot be read is none.
        Err(_) => Ok(None),
    }
}

fn to_policy(record: &Dmarc, wish: Wish) -> DmarcPolicy {
    DmarcPolicy::Published {
        strict_spf: record.aspf == Alignment::Strict,
        strict_dkim: record.adkim == Alignment::Strict,
        is_enforced: matches!(wish, Wish::Quarantine | Wish::Reject),
    }
}

/// The domain that somebody registered.
fn registrable_domain(domain: &str) -> Option<&str> {
    psl::domain_str(domain)
}

/// Whether one domain speaks for another.
fn is_aligned(seen: &str, other: &str, strict: bool) -> bool {
    seen == other
        || (!strict && registrable_domain(seen).is_some() && registrable_domain(seen) == registrable_domain(other))
}

/// What DMARC says, and our own verdict.
pub(super) fn evaluate(
    sender: &FromDomain,
    spf: &DomainCheck,
    signed: &[DomainCheck],
    policy: &DmarcPolicy,
) -> (AuthResult, AuthResult) {
    let seen = match sender {
        FromDomain::Domain(domain) => domain,
        FromDomain::Absent => return (AuthResult::None, AuthResult::None),
        FromDomain::Ambiguous => return (AuthResult::PermError, AuthResult::Fail),
    };
    let (strict_spf, strict_dkim) = match policy {
        DmarcPolicy::None => (false, false),
        DmarcPolicy::Published { strict_spf, strict_dkim, .. } => (*strict_spf, *strict_dkim),
        // What is aligned when it must be the very same is so in any case.
        DmarcPolicy::Unavailable => (true, true),
    };
    let any = |wanted: AuthResult| {
        let says =
            |checked: &DomainCheck, strict| checked.result == wanted && is_aligned(seen, &checked.domain, strict);
        says(spf, strict_spf) || signed.iter().any(|checked| says(checked, strict_dkim))
    };
    let (holds, late) = (any(AuthResult::Pass), any(AuthResult::TempError));
    let known = match (holds, late) {
        (true, _) => AuthResult::Pass,
        (false, true) => AuthResult::TempError,
        (false, false) => AuthResult::Fail,
    };
    match policy {
        DmarcPolicy::None if known == AuthResult::Fail => (AuthResult::None, AuthResult::None),
        DmarcPolicy::None => (AuthResult::None, known),
        DmarcPolicy::Published { is_enforced: false, .. } if known == AuthResult::Fail => {
            (AuthResult::Fail, AuthResult::None)
        }
        DmarcPolicy::Published { .. } => (known, known),
        DmarcPolicy::Unavailable => {
            (AuthResult::TempError, if holds { AuthResult::Pass } else { AuthResult::TempError })
        }
    }
}

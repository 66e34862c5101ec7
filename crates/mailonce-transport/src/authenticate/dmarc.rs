//! DMARC: whether SPF or DKIM passed for the domain that readers see in `From` (RFC 9989), and our own verdict.

use mail_auth::{
    DnsError, Error, MessageAuthenticator, Txt,
    common::cache::NoCache,
    dmarc::{Alignment, Dmarc, Policy as Disposition},
};
use mailonce_core::{address::remove_obsolete_spacing, inbound::sender_auth::AuthResult};
use std::sync::Arc;
use tokio::time::Instant;

use super::{DomainCheck, with_deadline};

/// The DMARC policy of a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DmarcPolicy {
    /// The domain publishes no policy.
    None,
    /// The domain publishes a policy.
    Published {
        /// Whether the SPF domain must equal the `From` domain (strict alignment).
        strict_spf: bool,
        /// Whether the DKIM domain must equal the `From` domain (strict alignment).
        strict_dkim: bool,
        /// Whether the policy asks receivers to quarantine or reject mail that fails.
        is_enforced: bool,
    },
    /// DNS did not answer in time, or failed.
    Unavailable,
}

/// `@` and the signs that readers take for it: U+FF20 is wide, U+FE6B is small.
const AT_SIGNS: [char; 3] = ['@', '\u{ff20}', '\u{fe6b}'];

/// A domain as A-label in lower case. `None` for an invalid domain.
pub(super) fn a_label(domain: &str) -> Option<String> {
    let name = idna::domain_to_ascii(domain.trim_end_matches('.')).ok()?;
    let is_plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    (is_plain && name.contains('.') && name.len() <= 253).then_some(name)
}

/// The domain that readers see in `From`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FromDomain {
    /// There is no address with a domain.
    Absent,
    /// All addresses have this domain.
    Domain(String),
    /// The visible domain cannot be determined: the addresses have several domains, or `From` cannot be parsed. A
    /// forger could choose such a `From`, so the mail fails.
    Ambiguous,
}

impl FromDomain {
    /// Takes the addresses in `From` and the raw mail. If `From` has an `@` but no parsed address, the parser failed.
    pub(super) fn from_addresses(from: &[String], raw: &[u8]) -> Self {
        let mut domains = from.iter().map(|address| domain_of(address));
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

/// The domain of an address. `None` if it has a second `@`: `a@b.example@c.example` could be read as either domain.
fn domain_of(address: &str) -> Option<String> {
    let address = remove_obsolete_spacing(address);
    let (local, domain) = address.rsplit_once('@')?;
    if local.contains('@') { None } else { a_label(domain) }
}

/// Whether any `From` field of the raw header contains an `@` or a sign that looks like it, however it is parsed.
fn has_from_with_at(raw: &[u8]) -> bool {
    let mut in_from = false;
    // A line of spaces continues a field; only an empty line ends the header.
    for line in raw.split(|&b| b == b'\n').take_while(|line| !matches!(*line, b"" | b"\r")) {
        let continues = line.starts_with(b" ") || line.starts_with(b"\t");
        let name = line.split(|&b| b == b':').next().unwrap_or_default().trim_ascii();
        in_from = if continues { in_from } else { name.eq_ignore_ascii_case(b"from") };
        if in_from && String::from_utf8_lossy(line).contains(AT_SIGNS) {
            return true;
        }
    }
    false
}

/// Looks up the policy of a domain, and that of its organizational domain if there is none.
pub(super) async fn find_policy(dns: &MessageAuthenticator, domain: Option<&str>, deadline: Instant) -> DmarcPolicy {
    let Some(domain) = domain else { return DmarcPolicy::None };
    with_deadline(deadline, lookup_policy(dns, domain), DmarcPolicy::Unavailable).await
}

async fn lookup_policy(dns: &MessageAuthenticator, domain: &str) -> DmarcPolicy {
    match lookup_record(dns, domain).await {
        Ok(Some(record)) => return to_policy(&record, record.p),
        Ok(None) => {}
        Err(LookupFailed) => return DmarcPolicy::Unavailable,
    }
    match registrable_domain(domain).filter(|parent| *parent != domain) {
        None => DmarcPolicy::None,
        Some(parent) => match lookup_record(dns, parent).await {
            Ok(Some(record)) => to_policy(&record, record.sp),
            Ok(None) => DmarcPolicy::None,
            Err(LookupFailed) => DmarcPolicy::Unavailable,
        },
    }
}

struct LookupFailed;

async fn lookup_record(dns: &MessageAuthenticator, domain: &str) -> Result<Option<Arc<Dmarc>>, LookupFailed> {
    let answer = dns.txt_lookup::<Dmarc>(format!("_dmarc.{domain}."), None::<&NoCache<Box<str>, Txt>>).await;
    match answer {
        // A record without a policy and without a report address is invalid (RFC 9989 §4.10.1).
        Ok(record) => Ok(Some(record).filter(|record| record.p != Disposition::Unspecified || !record.rua.is_empty())),
        Err(Error::Dns(DnsError::Resolver(_))) => Err(LookupFailed),
        // A record that cannot be parsed counts as absent.
        Err(_) => Ok(None),
    }
}

fn to_policy(record: &Dmarc, requested: Disposition) -> DmarcPolicy {
    DmarcPolicy::Published {
        strict_spf: record.aspf == Alignment::Strict,
        strict_dkim: record.adkim == Alignment::Strict,
        is_enforced: matches!(requested, Disposition::Quarantine | Disposition::Reject),
    }
}

/// The organizational domain, by the public suffix list.
fn registrable_domain(domain: &str) -> Option<&str> {
    psl::domain_str(domain)
}

/// Whether an authenticated domain is aligned with the `From` domain.
fn is_aligned(from_domain: &str, authenticated: &str, strict: bool) -> bool {
    from_domain == authenticated
        || (!strict
            && registrable_domain(from_domain).is_some()
            && registrable_domain(from_domain) == registrable_domain(authenticated))
}

/// The DMARC result and our own verdict.
pub(super) fn evaluate(
    sender: &FromDomain,
    spf: &DomainCheck,
    signatures: &[DomainCheck],
    policy: &DmarcPolicy,
) -> (AuthResult, AuthResult) {
    let from_domain = match sender {
        FromDomain::Domain(domain) => domain,
        FromDomain::Absent => return (AuthResult::None, AuthResult::None),
        FromDomain::Ambiguous => return (AuthResult::PermError, AuthResult::Fail),
    };
    let (strict_spf, strict_dkim) = match policy {
        DmarcPolicy::None => (false, false),
        DmarcPolicy::Published { strict_spf, strict_dkim, .. } => (*strict_spf, *strict_dkim),
        // The policy is unknown, so strict alignment is required: what passes it also passes relaxed alignment.
        DmarcPolicy::Unavailable => (true, true),
    };
    let any_aligned = |wanted: AuthResult| {
        let matches = |checked: &DomainCheck, strict| {
            checked.result == wanted && is_aligned(from_domain, &checked.domain, strict)
        };
        matches(spf, strict_spf) || signatures.iter().any(|checked| matches(checked, strict_dkim))
    };
    let (passed, temporary) = (any_aligned(AuthResult::Pass), any_aligned(AuthResult::TempError));
    let result = match (passed, temporary) {
        (true, _) => AuthResult::Pass,
        (false, true) => AuthResult::TempError,
        (false, false) => AuthResult::Fail,
    };
    match policy {
        DmarcPolicy::None if result == AuthResult::Fail => (AuthResult::None, AuthResult::None),
        DmarcPolicy::None => (AuthResult::None, result),
        DmarcPolicy::Published { is_enforced: false, .. } if result == AuthResult::Fail => {
            (AuthResult::Fail, AuthResult::None)
        }
        DmarcPolicy::Published { .. } => (result, result),
        DmarcPolicy::Unavailable => {
            (AuthResult::TempError, if passed { AuthResult::Pass } else { AuthResult::TempError })
        }
    }
}

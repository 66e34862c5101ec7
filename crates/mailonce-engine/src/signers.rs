//! The sending domains behind a sender: whose keys sign its mail, and whether it may send at all.
//!
//! Kept in memory for a moment, so that neither a hand-over nor an accept reads the ledger for it.

use mailonce_core::{
    email::Email,
    id::TeamId,
    port::store::StoreError,
    problem::{Code, Problem},
    record::{Record, RecordKind},
    time::Time,
};
use mailonce_mail::dkim::{self, DkimKey, Signer};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    Engine,
    domains::{AboutDomain, key_place},
    unavailable,
};

/// How long a domain is believed from memory: while other nodes may change it, and while they cannot.
const SHARED_MS: i64 = 2_000;
const ALONE_MS: i64 = 30_000;
/// Senders' domains remembered.
const REMEMBERED: usize = 10_000;
/// The domain itself and so many above it are looked for.
const LEVELS: usize = 8;

/// A domain that may sign.
pub(crate) struct SendingDomain {
    name: String,
    verified: bool,
    /// Selectors and keys, or why they cannot be used.
    keys: Result<Vec<(String, DkimKey)>, String>,
}

struct Known {
    /// The nearest first.
    domains: Arc<Vec<SendingDomain>>,
    read_at: Time,
}

/// Domains in memory.
#[derive(Default)]
pub(crate) struct Signers(Mutex<HashMap<(TeamId, String), Known>>);

impl Signers {
    fn known(&self) -> MutexGuard<'_, HashMap<(TeamId, String), Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what was read of a team's domains.
    pub(crate) fn forget(&self, team: TeamId) {
        self.known().retain(|(known, _), _| *known != team);
    }
}

/// The domain and those above it, down to two labels.
fn levels(domain: &str) -> impl Iterator<Item = &str> {
    let all = std::iter::successors(Some(domain), |below| below.split_once('.').map(|(_, above)| above));
    all.filter(|name| name.contains('.')).take(LEVELS)
}

impl Engine {
    /// The team's domains that cover a sender's, the nearest first.
    async fn sending_domains(&self, team: TeamId, sender: &str) -> Result<Arc<Vec<SendingDomain>>, StoreError> {
        let now = self.now();
        let lifetime = if self.alone { ALONE_MS } else { SHARED_MS };
        let domain = sender.rsplit_once('@').map_or(sender, |(_, domain)| domain);
        let place = (team, domain.to_owned());
        if let Some(known) = self.signers.known().get(&place).filter(|known| now.since(known.read_at) < lifetime) {
            return Ok(Arc::clone(&known.domains));
        }
        let mut domains = Vec::new();
        for name in levels(domain) {
            if let Some(record) = self.store.record_named(team, RecordKind::Domain, name).await? {
                domains.push(self.sending_domain(&record)?);
            }
        }
        let domains = Arc::new(domains);
        let mut known = self.signers.known();
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(place, Known { domains: Arc::clone(&domains), read_at: now });
        Ok(domains)
    }

    fn sending_domain(&self, record: &Record) -> Result<SendingDomain, StoreError> {
        let about: AboutDomain = serde_json::from_str(&record.about)
            .map_err(|error| StoreError::Unreachable(format!("the domain {} cannot be read: {error}", record.name)))?;
        let open = |sealed: &str| {
            let pkcs8 = self.unseal(key_place(record.team, record.id), sealed);
            let pkcs8 = pkcs8.ok_or_else(|| format!("the keys of {} cannot be opened", record.name))?;
            DkimKey::from_pkcs8(&pkcs8).map_err(|error| error.to_string())
        };
        let keys = about.keys.iter().map(|kept| Ok((kept.selector.clone(), open(&kept.sealed)?))).collect();
        Ok(SendingDomain { name: record.name.clone(), verified: about.verified_at.is_some(), keys })
    }

    /// Refuses a sender whose domain the team has not proven to own, when that is asked for.
    pub(crate) async fn check_sender(&self, team: TeamId, sender: &str) -> Result<(), Problem> {
        if !self.outside.verify_domains {
            return Ok(());
        }
        let domains = self.sending_domains(team, sender).await.map_err(unavailable)?;
        if domains.iter().any(|domain| domain.verified) {
            return Ok(());
        }
        let detail = format!("{sender} is not at a verified domain of this team");
        Err(Problem::field(Code::SenderNotVerified, "from", detail))
    }

    /// The mail with the signatures of its sender's domain, when the team has one.
    pub(crate) async fn signed(&self, email: &Email, plain: Vec<u8>) -> Result<Vec<u8>, Unsigned> {
        let domains = self.sending_domains(email.team, &email.head.from).await;
        let domains = domains.map_err(|error| Unsigned::NotNow(error.to_string()))?;
        let Some(domain) = domains.first() else { return Ok(plain) };
        let keys = domain.keys.as_ref().map_err(|why| Unsigned::Never(why.clone()))?;
        let signers: Vec<Signer<'_>> =
            keys.iter().map(|(selector, key)| Signer { domain: &domain.name, selector, key }).collect();
        if signers.is_empty() {
            return Ok(plain);
        }
        let signed = dkim::sign(&plain, &signers, email.head.created_at);
        signed.map_err(|error| Unsigned::Never(format!("the mail cannot be signed: {error}")))
    }
}

/// Why there are no bytes of a mail to send.
pub(crate) enum Unsigned {
    /// The ledger could not be asked.
    NotNow(String),
    /// The mail, or the keys of its domain, are no good.
    Never(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_covered_by_itself_and_those_above_it() {
        assert_eq!(levels("a.b.example.com").collect::<Vec<_>>(), ["a.b.example.com", "b.example.com", "example.com"]);
        assert_eq!(levels("localhost").count(), 0);
        assert_eq!(levels(&"a.".repeat(100)).count(), LEVELS);
    }
}

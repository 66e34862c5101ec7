//! The sending domains of a sender: which DKIM keys sign its mail, and whether it may send at all.
//!
//! They are cached briefly, so that neither an attempt nor an accept has to read the store for them.

use crate::{
    access::{
        Domains,
        domains::{DomainDetails, dkim_key_location},
    },
    runtime::problems::unavailable,
};
use mailonce_core::{
    id::TeamId,
    outbound::email::Email,
    ports::store::StoreError,
    problem::{Code, Problem},
    record::{Record, RecordKind},
    time::Time,
};
use mailonce_mail::dkim::{self, DkimKey, DkimSigner};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// How long a cached domain is valid, with and without other nodes that may change it.
const MULTI_NODE_TTL_MS: i64 = 2_000;
const SINGLE_NODE_TTL_MS: i64 = 30_000;
/// Sender domains in the cache.
const CACHE_CAPACITY: usize = 10_000;
/// How many levels are searched: the domain itself and its parents.
const MAX_DOMAIN_LEVELS: usize = 8;

/// A domain whose keys may sign.
pub(crate) struct SendingDomain {
    name: String,
    verified: bool,
    /// Selectors and keys, or why they can't be used.
    keys: Result<Vec<(String, DkimKey)>, String>,
}

struct CachedDomains {
    /// The closest domain first.
    domains: Arc<Vec<SendingDomain>>,
    read_at: Time,
}

/// Sending domains in memory.
#[derive(Default)]
pub(crate) struct SigningDomainCache(Mutex<HashMap<(TeamId, String), CachedDomains>>);

impl SigningDomainCache {
    fn entries(&self) -> MutexGuard<'_, HashMap<(TeamId, String), CachedDomains>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the cached domains of a team.
    pub(crate) fn invalidate(&self, team: TeamId) {
        self.entries().retain(|(known, _), _| *known != team);
    }
}

/// The domain and its parents, down to two labels.
fn domain_and_parents(domain: &str) -> impl Iterator<Item = &str> {
    let all = std::iter::successors(Some(domain), |below| below.split_once('.').map(|(_, above)| above));
    all.filter(|name| name.contains('.')).take(MAX_DOMAIN_LEVELS)
}

impl Domains {
    /// The team's domains that cover a sender, the closest first.
    async fn sending_domains(&self, team: TeamId, sender: &str) -> Result<Arc<Vec<SendingDomain>>, StoreError> {
        let now = self.ctx.now();
        let ttl_ms = if self.ctx.is_single_node { SINGLE_NODE_TTL_MS } else { MULTI_NODE_TTL_MS };
        let domain = sender.rsplit_once('@').map_or(sender, |(_, domain)| domain);
        let cache_key = (team, domain.to_owned());
        if let Some(known) =
            self.signing_cache.entries().get(&cache_key).filter(|known| now.since(known.read_at) < ttl_ms)
        {
            return Ok(Arc::clone(&known.domains));
        }
        let mut domains = Vec::new();
        for name in domain_and_parents(domain) {
            if let Some(record) = self.ctx.store.record_by_name(team, RecordKind::Domain, name).await? {
                domains.push(self.sending_domain(&record)?);
            }
        }
        let domains = Arc::new(domains);
        let mut known = self.signing_cache.entries();
        if known.len() >= CACHE_CAPACITY {
            known.clear();
        }
        known.insert(cache_key, CachedDomains { domains: Arc::clone(&domains), read_at: now });
        Ok(domains)
    }

    fn sending_domain(&self, record: &Record) -> Result<SendingDomain, StoreError> {
        let details: DomainDetails = serde_json::from_str(&record.json)
            .map_err(|error| StoreError::Unreachable(format!("the domain {} cannot be read: {error}", record.name)))?;
        let open = |sealed: &str| {
            let pkcs8 = self.ctx.open_secret(dkim_key_location(record.team, record.id), sealed);
            let pkcs8 = pkcs8.ok_or_else(|| format!("the DKIM keys of {} cannot be decrypted", record.name))?;
            DkimKey::from_pkcs8(&pkcs8).map_err(|error| error.to_string())
        };
        let keys = details.keys.iter().map(|stored| Ok((stored.selector.clone(), open(&stored.sealed)?))).collect();
        Ok(SendingDomain { name: record.name.clone(), verified: details.verified_at.is_some(), keys })
    }

    /// Refuses a sender without a verified domain of the team, if the configuration requires one.
    pub(crate) async fn check_sender(&self, team: TeamId, sender: &str) -> Result<(), Problem> {
        if !self.ctx.deps.verify_domains {
            return Ok(());
        }
        let domains = self.sending_domains(team, sender).await.map_err(unavailable)?;
        if domains.iter().any(|domain| domain.verified) {
            return Ok(());
        }
        let detail = format!("{sender} is not at a verified domain of this team");
        Err(Problem::for_field(Code::SenderNotVerified, "from", detail))
    }

    /// Signs an email with the keys of its sender's domain. Without such a domain it stays unsigned.
    pub(crate) async fn sign_email(&self, email: &Email, plain: Vec<u8>) -> Result<Vec<u8>, FreezeError> {
        self.sign_mail((email.team, &email.head.from), plain, email.head.created_at).await
    }

    /// Signs a mail from this bare address of a team.
    pub(crate) async fn sign_mail(
        &self,
        (team, from): (TeamId, &str),
        plain: Vec<u8>,
        at: Time,
    ) -> Result<Vec<u8>, FreezeError> {
        let domains = self.sending_domains(team, from).await;
        let domains = domains.map_err(|error| FreezeError::Temporary(error.to_string()))?;
        let Some(domain) = domains.first() else { return Ok(plain) };
        let keys = domain.keys.as_ref().map_err(|why| FreezeError::Permanent(why.clone()))?;
        let signers: Vec<DkimSigner<'_>> =
            keys.iter().map(|(selector, key)| DkimSigner { domain: &domain.name, selector, key }).collect();
        if signers.is_empty() {
            return Ok(plain);
        }
        let signed = dkim::sign(&plain, &signers, at);
        signed.map_err(|error| FreezeError::Permanent(format!("the email cannot be signed: {error}")))
    }
}

/// Why the bytes of an email could not be created.
pub(crate) enum FreezeError {
    /// The store could not be read; try again later.
    Temporary(String),
    /// The email can't be composed, or the keys of its domain can't be used.
    Permanent(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_covered_by_itself_and_those_above_it() {
        assert_eq!(
            domain_and_parents("a.b.example.com").collect::<Vec<_>>(),
            ["a.b.example.com", "b.example.com", "example.com"]
        );
        assert_eq!(domain_and_parents("localhost").count(), 0);
        assert_eq!(domain_and_parents(&"a.".repeat(100)).count(), MAX_DOMAIN_LEVELS);
    }
}

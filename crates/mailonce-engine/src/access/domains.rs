//! Sending domains: their DKIM keys, the DNS records to publish, and the verification that the team owns the domain.

use crate::{
    access::{Domains, caller::Caller},
    runtime::{
        keyed_call::{KeyedCall, operation},
        problems::{key_mismatch, unavailable},
        records::{self, CreateOutcome, CursorPage},
        vault::SecretLocation,
    },
};
use mailonce_core::{
    access::team::ApiKeyScope,
    id::{DomainId, TeamId},
    operation::IdempotentResult,
    problem::{Code, Problem},
    record::{CreateRecordResult, Record, RecordChangeResult, RecordKind},
    time::Time,
};
use mailonce_mail::dkim::{DkimAlgorithm, DkimDnsRecord, DkimKey};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use uuid::Uuid;

/// The prefix of the TXT record that proves ownership.
const OWNERSHIP_TOKEN_PREFIX: &str = "mailonce-domain=";
/// The timeout of one DNS query.
const DNS_TIMEOUT: Duration = Duration::from_secs(5);
/// Domains read per page.
const PAGE_SIZE: usize = 100;
/// How often the result of a check is written again after a conflict.
const MAX_CONFLICT_RETRIES: usize = 3;

/// A sending domain.
#[derive(Clone, Debug)]
pub struct Domain {
    /// Its id.
    pub id: DomainId,
    /// Its name in ASCII form (A-labels).
    pub name: String,
    /// Its rev.
    pub rev: u32,
    /// When it was added.
    pub created_at: Time,
    /// Since when all required records have been published.
    pub verified_at: Option<Time>,
    /// When the records were last checked.
    pub checked_at: Option<Time>,
    /// The DNS records to publish.
    pub records: Vec<DnsEntry>,
}

/// A TXT record to publish.
#[derive(Clone, Debug)]
pub struct DnsEntry {
    /// `ownership`, `dkim`, `spf` or `dmarc`.
    pub purpose: &'static str,
    /// Its name.
    pub name: String,
    /// Its value in one piece.
    pub value: String,
    /// Whether verification requires it. Other records are recommendations.
    pub required: bool,
    /// The result of the last check: `found`, `missing`, `different` or `unknown`.
    pub status: Option<DnsCheckResult>,
}

/// The result of checking one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DnsCheckResult {
    /// The record is published as required.
    Found,
    /// There is no TXT record of this name.
    Missing,
    /// There are TXT records of this name, but with other values.
    Different,
    /// The DNS query failed.
    Unknown,
}

impl DnsCheckResult {
    /// The name in APIs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::Missing => "missing",
            Self::Different => "different",
            Self::Unknown => "unknown",
        }
    }
}

/// The stored form of a domain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DomainDetails {
    token: String,
    pub(crate) keys: Vec<StoredDkimKey>,
    #[serde(default)]
    pub(crate) verified_at: Option<Time>,
    #[serde(default)]
    checked_at: Option<Time>,
    /// The results of the last check, in the order of the required records.
    #[serde(default)]
    seen: Vec<DnsCheckResult>,
}

/// A DKIM key of a domain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredDkimKey {
    /// Its DKIM selector.
    pub(crate) selector: String,
    /// The value of its TXT record.
    value: String,
    /// The private key as PKCS#8, sealed.
    pub(crate) sealed: String,
}

/// Where the vault seals the private keys of a domain.
pub(crate) fn dkim_key_location(team: TeamId, record: Uuid) -> SecretLocation {
    SecretLocation { team, record, purpose: "dkim" }
}

impl DomainDetails {
    /// The required records, in order: ownership, then the DKIM keys.
    fn required_records(&self, domain: &str) -> Vec<DnsEntry> {
        let entry = |at: usize, purpose, name, value: &str| DnsEntry {
            purpose,
            name,
            value: value.to_owned(),
            required: true,
            status: self.seen.get(at).copied(),
        };
        let own = entry(0, "ownership", format!("_mailonce.{domain}"), &self.token);
        let key = |(at, key): (usize, &StoredDkimKey)| {
            entry(at + 1, "dkim", format!("{}._domainkey.{domain}", key.selector), &key.value)
        };
        std::iter::once(own).chain(self.keys.iter().enumerate().map(key)).collect()
    }
}

/// Records that help delivery. Their final values are up to the domain's owner.
fn recommended_records(domain: &str) -> [DnsEntry; 2] {
    let entry = |purpose, name: String, value: String| DnsEntry { purpose, name, value, required: false, status: None };
    [
        entry("spf", domain.to_owned(), "v=spf1 include:YOUR-RELAY ~all".into()),
        entry("dmarc", format!("_dmarc.{domain}"), format!("v=DMARC1; p=none; rua=mailto:postmaster@{domain}")),
    ]
}

fn view(record: &Record) -> Result<Domain, Problem> {
    let details: DomainDetails = records::decode(record)?;
    let mut entries = details.required_records(&record.name);
    entries.extend(recommended_records(&record.name));
    Ok(Domain {
        id: DomainId(record.id),
        name: record.name.clone(),
        rev: record.rev,
        created_at: record.created_at,
        verified_at: details.verified_at,
        checked_at: details.checked_at,
        records: entries,
    })
}

impl Domains {
    /// Adds a domain with new keys. A domain that already exists is returned unchanged.
    pub async fn create_domain(
        &self,
        caller: &Caller,
        name: &str,
        keyed_call: Option<KeyedCall>,
    ) -> Result<CreateOutcome<Domain>, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        caller.require_unrestricted_key()?;
        let (team, kind) = (caller.team.id, RecordKind::Domain);
        // Generating keys is expensive, so a repeat is answered before that.
        let is_repeat = self.ctx.is_repeated_call(caller, keyed_call.as_ref()).await?;
        if let Some(found) = self.ctx.store.record_by_name(team, kind, name).await.map_err(unavailable)? {
            return Ok(CreateOutcome { value: view(&found)?, is_new: false });
        }
        if is_repeat {
            return Err(Problem::new(
                Code::NotFound,
                format!("the domain {name} was created with this idempotency key and removed since"),
            ));
        }
        let now = self.ctx.now();
        let id = self.ctx.new_id(now);
        let json = records::encode(&self.generate_domain(team, id, name).await?)?;
        let record = Record { team, kind, id, name: name.to_owned(), rev: 1, created_at: now, json };
        let operation = operation(caller, keyed_call.as_ref(), Vec::new(), now);
        let created = self.ctx.store.create_record(record, operation).await.map_err(unavailable)?;
        self.signing_cache.invalidate(team);
        match created {
            IdempotentResult::Done(CreateRecordResult::Created(record)) => {
                Ok(CreateOutcome { value: view(&record)?, is_new: true })
            }
            IdempotentResult::Done(CreateRecordResult::NameTaken(record)) => {
                Ok(CreateOutcome { value: view(&record)?, is_new: false })
            }
            IdempotentResult::Replayed(_) => {
                let found = self.ctx.store.record_by_name(team, kind, name).await.map_err(unavailable)?;
                Ok(CreateOutcome { value: view(&found.ok_or_else(|| records::not_found(kind, name))?)?, is_new: false })
            }
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }

    /// Generates an ownership token and two sealed DKIM keys.
    async fn generate_domain(&self, team: TeamId, id: Uuid, name: &str) -> Result<DomainDetails, Problem> {
        let mut token = [0; 16];
        self.ctx.entropy.fill(&mut token);
        // Part of every selector, so that a domain that is added again doesn't meet old records in DNS caches.
        let suffix = format!("{:08x}", self.ctx.entropy.next_u64() as u32);
        let mut keys = Vec::new();
        for (prefix, algorithm) in [("rsa", DkimAlgorithm::Rsa), ("ed", DkimAlgorithm::Ed25519)] {
            let selector = format!("mailonce-{prefix}-{suffix}");
            let key = self.generate_dkim_key(algorithm).await?;
            let broken = |error: mailonce_mail::dkim::DkimError| Problem::new(Code::Internal, error.to_string());
            let value = DkimDnsRecord::for_key(&key, &selector, name).map_err(broken)?.value;
            let sealed = self.ctx.seal_secret(dkim_key_location(team, id), key.to_pkcs8());
            let sealed = sealed.ok_or_else(|| Problem::new(Code::Internal, "the DKIM key could not be encrypted"))?;
            keys.push(StoredDkimKey { selector, value, sealed });
        }
        let token = format!("{OWNERSHIP_TOKEN_PREFIX}{:032x}", u128::from_be_bytes(token));
        Ok(DomainDetails { token, keys, verified_at: None, checked_at: None, seen: Vec::new() })
    }

    async fn generate_dkim_key(&self, algorithm: DkimAlgorithm) -> Result<DkimKey, Problem> {
        let mut seed = [0; 32];
        self.ctx.entropy.fill(&mut seed);
        // One at a time, because the search for RSA primes keeps a CPU core busy.
        let _guard = self.key_generation.lock().await;
        let generated = tokio::task::spawn_blocking(move || DkimKey::generate(algorithm, seed)).await;
        let broken = |why: String| Problem::new(Code::Internal, format!("the DKIM key could not be generated: {why}"));
        generated.map_err(|error| broken(error.to_string()))?.map_err(|error| broken(error.to_string()))
    }

    /// The team's domains, newest first.
    pub async fn domains(
        &self,
        caller: &Caller,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<CursorPage<Domain>, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        caller.require_unrestricted_key()?;
        self.ctx.team_records(caller, RecordKind::Domain, before, limit, view).await
    }

    /// The domains of all teams. For the command line, which opens the ledger directly.
    pub async fn all_domains(&self) -> Result<Vec<Domain>, Problem> {
        let mut all = Vec::new();
        for team in self.ctx.store.teams().await.map_err(unavailable)? {
            let mut before = None;
            loop {
                let page = self
                    .ctx
                    .store
                    .records(team.id, RecordKind::Domain, before, PAGE_SIZE)
                    .await
                    .map_err(unavailable)?;
                all.extend(page.rows.iter().map(view).collect::<Result<Vec<_>, _>>()?);
                before = page.next;
                if before.is_none() {
                    break;
                }
            }
        }
        Ok(all)
    }

    /// One domain.
    pub async fn domain(&self, caller: &Caller, id: DomainId) -> Result<Domain, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        caller.require_unrestricted_key()?;
        view(&self.ctx.team_record(caller, RecordKind::Domain, id.0).await?)
    }

    /// Removes a domain with its keys. Mail from it is no longer signed.
    pub async fn remove_domain(&self, caller: &Caller, id: DomainId) -> Result<Domain, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        caller.require_unrestricted_key()?;
        let removed =
            self.ctx.store.remove_record(caller.team.id, RecordKind::Domain, id.0).await.map_err(unavailable)?;
        self.signing_cache.invalidate(caller.team.id);
        view(&removed.ok_or_else(|| records::not_found(RecordKind::Domain, &id.to_string()))?)
    }

    /// Checks the domain's DNS records. It is verified while all required records are published. A failed DNS query
    /// changes nothing.
    pub async fn verify_domain(
        &self,
        caller: &Caller,
        id: DomainId,
        keyed_call: Option<KeyedCall>,
    ) -> Result<Domain, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        caller.require_unrestricted_key()?;
        let mut record = self.ctx.team_record(caller, RecordKind::Domain, id.0).await?;
        if self.ctx.is_repeated_call(caller, keyed_call.as_ref()).await? {
            return view(&record);
        }
        let entries = records::decode::<DomainDetails>(&record)?.required_records(&record.name);
        let mut results = Vec::new();
        for entry in &entries {
            results.push(self.check_dns_record(entry).await);
        }
        for _ in 0..MAX_CONFLICT_RETRIES {
            let mut details: DomainDetails = records::decode(&record)?;
            details.record_check(results.clone(), self.ctx.now());
            let edit = record.edit(records::encode(&details)?);
            let operation = operation(caller, keyed_call.as_ref(), Vec::new(), self.ctx.now());
            let changed = self.ctx.store.change_record(edit, operation, self.ctx.now()).await.map_err(unavailable)?;
            self.signing_cache.invalidate(record.team);
            match changed {
                IdempotentResult::Done(RecordChangeResult::Changed(changed)) => return view(&changed),
                IdempotentResult::Done(RecordChangeResult::Stale(now)) => record = now,
                IdempotentResult::Done(RecordChangeResult::Missing) => break,
                IdempotentResult::Replayed(_) => return self.domain(caller, id).await,
                IdempotentResult::KeyMismatch(bound) => return Err(key_mismatch(&bound)),
            }
        }
        Err(Problem::new(
            Code::StaleRev,
            format!("the domain {} has changed or was removed; read it again", record.name),
        ))
    }

    async fn check_dns_record(&self, entry: &DnsEntry) -> DnsCheckResult {
        let answer = tokio::time::timeout(DNS_TIMEOUT, self.ctx.deps.dns.lookup_txt(&entry.name)).await;
        match answer.unwrap_or_else(|_late| Err("no answer in time".into())) {
            Ok(found) if found.iter().any(|text| is_same_dns_value(text, &entry.value)) => DnsCheckResult::Found,
            Ok(found) if found.is_empty() => DnsCheckResult::Missing,
            Ok(_) => DnsCheckResult::Different,
            Err(why) => {
                tracing::warn!(name = entry.name, why, "a DNS query failed");
                DnsCheckResult::Unknown
            }
        }
    }
}

impl DomainDetails {
    /// Records the results of a check.
    fn record_check(&mut self, results: Vec<DnsCheckResult>, now: Time) {
        if results.iter().all(|result| *result == DnsCheckResult::Found) {
            self.verified_at.get_or_insert(now);
        } else if results.iter().any(|result| matches!(result, DnsCheckResult::Missing | DnsCheckResult::Different)) {
            self.verified_at = None;
        }
        self.checked_at = Some(now);
        self.seen = results;
    }
}

/// Whether a published TXT value matches. For DKIM records only the key is compared: DNS consoles add and remove
/// spaces, and the other tags have defaults.
pub fn is_same_dns_value(found: &str, wanted: &str) -> bool {
    match (parse_dkim_public_key(found), parse_dkim_public_key(wanted)) {
        (found, Some(wanted)) => found.as_deref() == Some(wanted.as_str()),
        (_, None) => found.trim() == wanted,
    }
}

fn parse_dkim_public_key(text: &str) -> Option<String> {
    let tags = text.trim().starts_with("v=DKIM1").then(|| text.split(';'))?;
    let key = tags.map(str::trim).find_map(|tag| tag.strip_prefix("p="))?;
    Some(key.chars().filter(|c| !c.is_whitespace()).collect())
}

/// Parses a domain name into ASCII form (A-labels). It must contain a dot.
pub fn parse_domain_name(text: &str) -> Result<String, Problem> {
    let fault = |message: &str| Problem::invalid_field("name", message);
    let text = text.trim().trim_end_matches('.');
    let address = mailonce_core::address::Address::parse(&format!("x@{text}"));
    let name = address.map_err(|_invalid| fault("is not a domain name"))?.domain().to_owned();
    if name.contains('.') { Ok(name) } else { Err(fault("must contain a dot, such as example.com")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_key_counts_and_its_spaces_do_not() {
        let wanted = "v=DKIM1; k=rsa; p=MIIB/x==";
        for same in [wanted, "v=DKIM1;p=MIIB/x==", " v=DKIM1; p= MIIB /x== ; "] {
            assert!(is_same_dns_value(same, wanted), "{same}");
        }
        for other in ["", "v=DKIM1; p=", "p=MIIB/x==", "v=spf1 -all", "v=DKIM1; p=MIIB/y=="] {
            assert!(!is_same_dns_value(other, wanted), "{other}");
        }
        assert!(is_same_dns_value(" mailonce-domain=1 ", "mailonce-domain=1"));
        assert!(!is_same_dns_value("mailonce-domain=12", "mailonce-domain=1"));
    }

    #[test]
    fn an_unknown_dns_result_changes_nothing() {
        let now = Time(5);
        let mut details = DomainDetails {
            token: "t".into(),
            keys: Vec::new(),
            verified_at: None,
            checked_at: None,
            seen: Vec::new(),
        };
        details.record_check(vec![DnsCheckResult::Found, DnsCheckResult::Unknown], now);
        assert_eq!(details.verified_at, None);
        details.record_check(vec![DnsCheckResult::Found, DnsCheckResult::Found], now);
        assert_eq!(details.verified_at, Some(now));
        details.record_check(vec![DnsCheckResult::Unknown, DnsCheckResult::Found], Time(6));
        assert_eq!(details.verified_at, Some(now));
        details.record_check(vec![DnsCheckResult::Missing, DnsCheckResult::Unknown], Time(7));
        assert_eq!(details.verified_at, None);
    }

    #[test]
    fn names_of_domains_are_a_labels_with_a_dot() {
        assert_eq!(parse_domain_name(" Bücher.Example. ").unwrap(), "xn--bcher-kva.example");
        for bad in ["", "localhost", "a b.test", "x@y.test", "-.test", "a..test"] {
            assert!(parse_domain_name(bad).is_err(), "{bad}");
        }
    }
}

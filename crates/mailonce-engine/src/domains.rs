//! Sending domains: keys that sign, the DNS records that publish them, and the proof that the domain is the team's.

use mailonce_core::{
    id::{DomainId, TeamId},
    port::store::Once,
    problem::{Code, FieldError, Problem},
    record::{Created, Record, RecordChange, RecordKind},
    team::Scope,
    time::Time,
};
use mailonce_mail::dkim::{Algorithm, DkimKey, DnsRecord};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use uuid::Uuid;

use crate::{
    Asked, Caller, Engine,
    change::taken,
    operation,
    records::{self, Listed, Made},
    unavailable,
    vault::Place,
};

/// What the TXT record that proves ownership begins with.
const TOKEN: &str = "mailonce-domain=";
/// How long a caller waits for one name.
const LOOK_TIME: Duration = Duration::from_secs(5);
/// Domains that are read at a time.
const PAGE: usize = 100;
/// How often a check is written down anew when somebody else changed the domain meanwhile.
const TRIES: usize = 3;

/// A sending domain.
#[derive(Clone, Debug)]
pub struct Domain {
    /// Its id.
    pub id: DomainId,
    /// Its name, as A-label.
    pub name: String,
    /// Its rev.
    pub rev: u32,
    /// When it was added.
    pub created_at: Time,
    /// Since when all required records are published.
    pub verified_at: Option<Time>,
    /// When they were last looked for.
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
    /// Whether the domain counts as verified only with it. The others are advice.
    pub required: bool,
    /// What the last check found: `found`, `missing`, `different` or `unknown`.
    pub status: Option<Seen>,
}

/// What a check found of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Seen {
    /// As it should be.
    Found,
    /// Nothing of the kind.
    Missing,
    /// Something else is there.
    Different,
    /// Nobody could be asked.
    Unknown,
}

impl Seen {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::Missing => "missing",
            Self::Different => "different",
            Self::Unknown => "unknown",
        }
    }
}

/// What the ledger keeps of a domain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AboutDomain {
    token: String,
    pub(crate) keys: Vec<KeptKey>,
    #[serde(default)]
    pub(crate) verified_at: Option<Time>,
    #[serde(default)]
    checked_at: Option<Time>,
    /// What the last check found, in the order of the required records.
    #[serde(default)]
    seen: Vec<Seen>,
}

/// A key that signs for a domain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KeptKey {
    /// Its name in the domain.
    pub(crate) selector: String,
    /// What its TXT record says.
    value: String,
    /// The private half as PKCS#8, sealed.
    pub(crate) sealed: String,
}

/// Where the private keys of a domain are sealed for.
pub(crate) fn key_place(team: TeamId, record: Uuid) -> Place {
    Place { team, record, purpose: "dkim" }
}

impl AboutDomain {
    /// The records that prove and publish, in order.
    fn required(&self, domain: &str) -> Vec<DnsEntry> {
        let entry = |at: usize, purpose, name, value: &str| DnsEntry {
            purpose,
            name,
            value: value.to_owned(),
            required: true,
            status: self.seen.get(at).copied(),
        };
        let own = entry(0, "ownership", format!("_mailonce.{domain}"), &self.token);
        let key = |(at, key): (usize, &KeptKey)| {
            entry(at + 1, "dkim", format!("{}._domainkey.{domain}", key.selector), &key.value)
        };
        std::iter::once(own).chain(self.keys.iter().enumerate().map(key)).collect()
    }
}

/// Lines that help delivery and that only the domain's owner can word in the end.
fn advice(domain: &str) -> [DnsEntry; 2] {
    let entry = |purpose, name: String, value: String| DnsEntry { purpose, name, value, required: false, status: None };
    [
        entry("spf", domain.to_owned(), "v=spf1 include:YOUR-RELAY ~all".into()),
        entry("dmarc", format!("_dmarc.{domain}"), format!("v=DMARC1; p=none; rua=mailto:postmaster@{domain}")),
    ]
}

fn view(record: &Record) -> Result<Domain, Problem> {
    let about: AboutDomain = records::read(record)?;
    let mut entries = about.required(&record.name);
    entries.extend(advice(&record.name));
    Ok(Domain {
        id: DomainId(record.id),
        name: record.name.clone(),
        rev: record.rev,
        created_at: record.created_at,
        verified_at: about.verified_at,
        checked_at: about.checked_at,
        records: entries,
    })
}

impl Engine {
    /// Adds a domain with fresh keys. One that is there already stays as it is.
    pub async fn create_domain(
        &self,
        caller: &Caller,
        name: &str,
        asked: Option<Asked>,
    ) -> Result<Made<Domain>, Problem> {
        caller.need(Scope::Admin)?;
        caller.need_whole_team()?;
        let (team, kind) = (caller.team.id, RecordKind::Domain);
        // Keys are dear to make: a repeat is answered before it comes to that.
        let again = self.was_asked(caller, asked.as_ref()).await?;
        if let Some(found) = self.store.record_named(team, kind, name).await.map_err(unavailable)? {
            return Ok(Made { thing: view(&found)?, first: false });
        }
        if again {
            return Err(Problem::new(Code::NotFound, format!("the domain {name} was made under this key and removed")));
        }
        let now = self.now();
        let id = self.new_id(now);
        let about = records::write(&self.new_domain(team, id, name).await?)?;
        let record = Record { team, kind, id, name: name.to_owned(), rev: 1, created_at: now, about };
        let operation = operation(caller, asked.as_ref(), Vec::new(), now);
        let created = self.store.create_record(record, operation).await.map_err(unavailable)?;
        self.signers.forget(team);
        match created {
            Once::Done(Created::Made(record)) => Ok(Made { thing: view(&record)?, first: true }),
            Once::Done(Created::Taken(record)) => Ok(Made { thing: view(&record)?, first: false }),
            Once::Repeated(_) => {
                let found = self.store.record_named(team, kind, name).await.map_err(unavailable)?;
                Ok(Made { thing: view(&found.ok_or_else(|| records::missing(kind, name))?)?, first: false })
            }
            Once::Mismatch(bound) => Err(taken(&bound)),
        }
    }

    /// A token and two sealed keys.
    async fn new_domain(&self, team: TeamId, id: Uuid, name: &str) -> Result<AboutDomain, Problem> {
        let mut token = [0; 16];
        self.chance.fill(&mut token);
        // In every selector, so that a domain that is added again does not find old records in the caches of the world.
        let tail = format!("{:08x}", self.chance.number() as u32);
        let mut keys = Vec::new();
        for (word, algorithm) in [("rsa", Algorithm::Rsa), ("ed", Algorithm::Ed25519)] {
            let selector = format!("mailonce-{word}-{tail}");
            let key = self.new_key(algorithm).await?;
            let broken = |error: mailonce_mail::dkim::DkimError| Problem::new(Code::Internal, error.to_string());
            let value = DnsRecord::of(&key, &selector, name).map_err(broken)?.value;
            let sealed = self.seal(key_place(team, id), key.to_pkcs8());
            let sealed = sealed.ok_or_else(|| Problem::new(Code::Internal, "the key could not be sealed"))?;
            keys.push(KeptKey { selector, value, sealed });
        }
        let token = format!("{TOKEN}{:032x}", u128::from_be_bytes(token));
        Ok(AboutDomain { token, keys, verified_at: None, checked_at: None, seen: Vec::new() })
    }

    async fn new_key(&self, algorithm: Algorithm) -> Result<DkimKey, Problem> {
        let mut seed = [0; 32];
        self.chance.fill(&mut seed);
        // One at a time: the search for primes takes a processor for itself.
        let _turn = self.making_keys.lock().await;
        let made = tokio::task::spawn_blocking(move || DkimKey::generate(algorithm, seed)).await;
        let broken = |why: String| Problem::new(Code::Internal, format!("no key could be made: {why}"));
        made.map_err(|error| broken(error.to_string()))?.map_err(|error| broken(error.to_string()))
    }

    /// The caller's domains, newest first.
    pub async fn domains(
        &self,
        caller: &Caller,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<Listed<Domain>, Problem> {
        caller.need(Scope::Admin)?;
        caller.need_whole_team()?;
        self.own_records(caller, RecordKind::Domain, before, limit, view).await
    }

    /// Every team's domains. For the command line, which works on the ledger itself.
    pub async fn all_domains(&self) -> Result<Vec<Domain>, Problem> {
        let mut all = Vec::new();
        for team in self.teams().await? {
            let mut before = None;
            loop {
                let page = self.store.records(team.id, RecordKind::Domain, before, PAGE).await.map_err(unavailable)?;
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
        caller.need(Scope::Admin)?;
        caller.need_whole_team()?;
        view(&self.own_record(caller, RecordKind::Domain, id.0).await?)
    }

    /// Removes a domain with its keys. Mail from it is no longer signed.
    pub async fn remove_domain(&self, caller: &Caller, id: DomainId) -> Result<Domain, Problem> {
        caller.need(Scope::Admin)?;
        caller.need_whole_team()?;
        let removed = self.store.remove_record(caller.team.id, RecordKind::Domain, id.0).await.map_err(unavailable)?;
        self.signers.forget(caller.team.id);
        view(&removed.ok_or_else(|| records::missing(RecordKind::Domain, &id.to_string()))?)
    }

    /// Looks for the domain's records. It is verified while all that are required are published; that nobody could be
    /// asked changes nothing.
    pub async fn verify_domain(&self, caller: &Caller, id: DomainId, asked: Option<Asked>) -> Result<Domain, Problem> {
        caller.need(Scope::Admin)?;
        caller.need_whole_team()?;
        let mut record = self.own_record(caller, RecordKind::Domain, id.0).await?;
        if self.was_asked(caller, asked.as_ref()).await? {
            return view(&record);
        }
        let entries = records::read::<AboutDomain>(&record)?.required(&record.name);
        let mut seen = Vec::new();
        for entry in &entries {
            seen.push(self.look_for(entry).await);
        }
        for _ in 0..TRIES {
            let mut about: AboutDomain = records::read(&record)?;
            about.learn(seen.clone(), self.now());
            let edit = record.edit(records::write(&about)?);
            let operation = operation(caller, asked.as_ref(), Vec::new(), self.now());
            let changed = self.store.change_record(edit, operation, self.now()).await.map_err(unavailable)?;
            self.signers.forget(record.team);
            match changed {
                Once::Done(RecordChange::Changed(changed)) => return view(&changed),
                Once::Done(RecordChange::Stale(now)) => record = now,
                Once::Done(RecordChange::Missing) => break,
                Once::Repeated(_) => return self.domain(caller, id).await,
                Once::Mismatch(bound) => return Err(taken(&bound)),
            }
        }
        Err(Problem::new(Code::StaleRev, format!("the domain {} changed meanwhile", record.name)))
    }

    async fn look_for(&self, entry: &DnsEntry) -> Seen {
        let asked = tokio::time::timeout(LOOK_TIME, self.outside.names.txt(&entry.name)).await;
        match asked.unwrap_or_else(|_late| Err("no answer in time".into())) {
            Ok(found) if found.iter().any(|text| says_the_same(text, &entry.value)) => Seen::Found,
            Ok(found) if found.is_empty() => Seen::Missing,
            Ok(_) => Seen::Different,
            Err(why) => {
                tracing::warn!(name = entry.name, why, "looking for a DNS record");
                Seen::Unknown
            }
        }
    }
}

impl AboutDomain {
    /// Notes what a check found.
    fn learn(&mut self, seen: Vec<Seen>, now: Time) {
        if seen.iter().all(|seen| *seen == Seen::Found) {
            self.verified_at.get_or_insert(now);
        } else if seen.iter().any(|seen| matches!(seen, Seen::Missing | Seen::Different)) {
            self.verified_at = None;
        }
        self.checked_at = Some(now);
        self.seen = seen;
    }
}

/// Whether a published text means what it should. Of a DKIM record only the key counts: DNS consoles add and drop
/// spaces, and the other tags have defaults.
pub fn says_the_same(found: &str, wanted: &str) -> bool {
    match (public_key(found), public_key(wanted)) {
        (found, Some(wanted)) => found.as_deref() == Some(wanted.as_str()),
        (_, None) => found.trim() == wanted,
    }
}

fn public_key(text: &str) -> Option<String> {
    let tags = text.trim().starts_with("v=DKIM1").then(|| text.split(';'))?;
    let key = tags.map(str::trim).find_map(|tag| tag.strip_prefix("p="))?;
    Some(key.chars().filter(|c| !c.is_whitespace()).collect())
}

/// A domain's name as A-label, with a dot in it.
pub fn domain_name(text: &str) -> Result<String, Problem> {
    let fault = |message: &str| Problem::from(vec![FieldError::new("name", message)]);
    let text = text.trim().trim_end_matches('.');
    let address = mailonce_core::address::Address::parse(&format!("x@{text}"));
    let name = address.map_err(|_invalid| fault("is not a domain name"))?.domain().to_owned();
    if name.contains('.') { Ok(name) } else { Err(fault("is not a domain name that can be published")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_key_counts_and_its_spaces_do_not() {
        let wanted = "v=DKIM1; k=rsa; p=MIIB/x==";
        for same in [wanted, "v=DKIM1;p=MIIB/x==", " v=DKIM1; p= MIIB /x== ; "] {
            assert!(says_the_same(same, wanted), "{same}");
        }
        for other in ["", "v=DKIM1; p=", "p=MIIB/x==", "v=spf1 -all", "v=DKIM1; p=MIIB/y=="] {
            assert!(!says_the_same(other, wanted), "{other}");
        }
        assert!(says_the_same(" mailonce-domain=1 ", "mailonce-domain=1"));
        assert!(!says_the_same("mailonce-domain=12", "mailonce-domain=1"));
    }

    #[test]
    fn what_nobody_could_tell_changes_nothing() {
        let now = Time(5);
        let mut about =
            AboutDomain { token: "t".into(), keys: Vec::new(), verified_at: None, checked_at: None, seen: Vec::new() };
        about.learn(vec![Seen::Found, Seen::Unknown], now);
        assert_eq!(about.verified_at, None);
        about.learn(vec![Seen::Found, Seen::Found], now);
        assert_eq!(about.verified_at, Some(now));
        about.learn(vec![Seen::Unknown, Seen::Found], Time(6));
        assert_eq!(about.verified_at, Some(now));
        about.learn(vec![Seen::Missing, Seen::Unknown], Time(7));
        assert_eq!(about.verified_at, None);
    }

    #[test]
    fn names_of_domains_are_a_labels_with_a_dot() {
        assert_eq!(domain_name(" Bücher.Example. ").unwrap(), "xn--bcher-kva.example");
        for bad in ["", "localhost", "a b.test", "x@y.test", "-.test", "a..test"] {
            assert!(domain_name(bad).is_err(), "{bad}");
        }
    }
}

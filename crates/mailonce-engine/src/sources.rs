//! Sources of provider events: which provider speaks, for which transport, and how it proves itself.
//!
//! What proves a provider is sealed and never shown again. Two secrets may live at a time, so that one can replace
//! the other without a gap.

use mailonce_core::{
    id::{SourceId, TeamId},
    port::store::Once,
    problem::{Code, FieldError, Problem},
    record::{Created, Record, RecordChange, RecordEdit, RecordKind},
    team::Scope,
    time::Time,
};
use mailonce_mail::hook::{BadSecret, Kind, Knock, Secrets};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    Asked, Caller, Engine,
    change::taken,
    operation,
    records::{self, Listed, Made},
    unavailable,
    vault::Place,
};

/// Secrets that live at a time.
const LIVE: usize = 2;
/// How often a rotation is tried anew when somebody else changed the source meanwhile.
const TRIES: usize = 3;

/// Where provider events come from.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its id, which is also the end of its address.
    pub id: SourceId,
    /// Its name.
    pub name: String,
    /// Its rev.
    pub rev: u32,
    /// When it was added.
    pub created_at: Time,
    /// The provider.
    pub kind: &'static str,
    /// The transport it speaks for.
    pub transport: String,
    /// How many secrets, or topics, are live.
    pub secrets: usize,
    /// When the last one was added.
    pub rotated_at: Option<Time>,
}

/// How a provider proves itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// The key of its signatures.
    Key(String),
    /// HTTP basic.
    Basic {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// A bearer token.
    Bearer(String),
    /// A header of its own.
    Header {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// A parameter of the address.
    Query {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// Topics of Amazon SNS.
    Topics {
        /// Their ARNs.
        topics: Vec<String>,
        /// Whether SHA-1 is good enough.
        allow_sha1: bool,
    },
}

/// A source to make.
#[derive(Clone, Debug)]
pub struct NewSource {
    /// Its name.
    pub name: String,
    /// The provider's word.
    pub kind: String,
    /// The transport it speaks for.
    pub transport: String,
    /// How it proves itself.
    pub proof: Proof,
}

/// What the ledger keeps of a source.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct AboutSource {
    kind: Kind,
    transport: String,
    /// The proofs, newest first, as sealed JSON.
    sealed: String,
    live: usize,
    #[serde(default)]
    rotated_at: Option<Time>,
}

/// A source as a hook uses it.
pub(crate) struct LiveSource {
    pub(crate) id: SourceId,
    pub(crate) team: TeamId,
    pub(crate) kind: Kind,
    pub(crate) transport: String,
    pub(crate) secrets: Secrets,
}

fn place(team: TeamId, record: Uuid) -> Place {
    Place { team, record, purpose: "source" }
}

fn fault(path: &str, message: impl Into<String>) -> Problem {
    Problem::from(vec![FieldError::new(path, message)])
}

/// The proofs in the form in which requests are checked.
fn secrets(kind: Kind, proofs: &[Proof]) -> Result<Secrets, BadSecret> {
    let mut keys = Vec::new();
    let mut knocks = Vec::new();
    for proof in proofs {
        match proof.clone() {
            Proof::Topics { topics, allow_sha1 } if kind == Kind::Ses => return Secrets::topics(topics, allow_sha1),
            Proof::Key(key) => keys.push(key),
            Proof::Basic { user, password } => knocks.push(Knock::Basic { user, password }),
            Proof::Bearer(token) => knocks.push(Knock::Bearer(token)),
            Proof::Header { name, value } => knocks.push(Knock::Header { name, value }),
            Proof::Query { name, value } => knocks.push(Knock::Query { name, value }),
            Proof::Topics { .. } => return Err(BadSecret::Kind(kind)),
        }
    }
    match (keys.is_empty(), knocks.is_empty()) {
        (false, true) => Secrets::keys(kind, &keys.iter().map(String::as_str).collect::<Vec<_>>()),
        (true, false) => Secrets::knocks(kind, knocks),
        _ => Err(BadSecret::Kind(kind)),
    }
}

fn view(record: &Record) -> Result<Source, Problem> {
    let about: AboutSource = records::read(record)?;
    Ok(Source {
        id: SourceId(record.id),
        name: record.name.clone(),
        rev: record.rev,
        created_at: record.created_at,
        kind: about.kind.word(),
        transport: about.transport,
        secrets: about.live,
        rotated_at: about.rotated_at,
    })
}

impl Engine {
    /// Adds a source. Its name must be free.
    pub async fn create_source(
        &self,
        caller: &Caller,
        new: NewSource,
        asked: Option<Asked>,
    ) -> Result<Made<Source>, Problem> {
        caller.need(Scope::Admin)?;
        let (team, now) = (caller.team.id, self.now());
        let id = self.new_id(now);
        // Asked again, it is answered even if the transport is gone since.
        let again = self.was_asked(caller, asked.as_ref()).await?;
        if !again {
            self.check_transport(&new.transport)?;
        }
        let kind = Kind::parse(&new.kind).ok_or_else(|| {
            let known: Vec<&str> = Kind::ALL.iter().map(|kind| kind.word()).collect();
            fault("kind", format!("is one of {}", known.join(", ")))
        })?;
        let about = self.about_source((team, id), kind, new.transport, &[new.proof])?;
        let about = records::write(&about)?;
        let name = new.name.clone();
        let record = Record { team, kind: RecordKind::Source, id, name: new.name, rev: 1, created_at: now, about };
        let operation = operation(caller, asked.as_ref(), Vec::new(), now);
        match self.store.create_record(record, operation).await.map_err(unavailable)? {
            Once::Done(Created::Made(record)) => Ok(Made { thing: view(&record)?, first: true }),
            Once::Done(Created::Taken(record)) => {
                let detail =
                    format!("there is a source named {} already; rotate its secret or take another name", record.name);
                Err(Problem::field(Code::NameTaken, "name", detail).with("id", record.id.to_string()))
            }
            Once::Repeated(_) => {
                let found = self.store.record_named(team, RecordKind::Source, &name).await.map_err(unavailable)?;
                let found = found.ok_or_else(|| records::missing(RecordKind::Source, &name))?;
                Ok(Made { thing: view(&found)?, first: false })
            }
            Once::Mismatch(bound) => Err(taken(&bound)),
        }
    }

    /// A keyed hash of what a call means, so that a secret in it does not lie in the ledger as a hash that can be
    /// tried out.
    pub fn blind(&self, meaning: &[u8]) -> [u8; 32] {
        self.secret.mac("meaning", &[meaning])
    }

    fn check_transport(&self, transport: &str) -> Result<(), Problem> {
        let names = self.ways.names();
        if names.contains(&transport) {
            return Ok(());
        }
        Err(fault("transport", format!("names no transport that is configured; known are {}", names.join(", "))))
    }

    /// What is kept of a source, its proofs checked and sealed.
    fn about_source(
        &self,
        (team, id): (TeamId, Uuid),
        kind: Kind,
        transport: String,
        proofs: &[Proof],
    ) -> Result<AboutSource, Problem> {
        secrets(kind, proofs).map_err(|bad| fault("secret", bad.to_string()))?;
        let broken = || Problem::new(Code::Internal, "the secrets could not be sealed");
        let json = serde_json::to_vec(proofs).map_err(|_error| broken())?;
        let sealed = self.seal(place(team, id), &json).ok_or_else(broken)?;
        let live = match proofs {
            [Proof::Topics { topics, .. }] => topics.len(),
            _ => proofs.len(),
        };
        Ok(AboutSource { kind, transport, sealed, live, rotated_at: None })
    }

    fn proofs(&self, record: &Record, about: &AboutSource) -> Result<Vec<Proof>, Problem> {
        let opened = self.unseal(place(record.team, record.id), &about.sealed);
        let proofs = opened.and_then(|json| serde_json::from_slice(&json).ok());
        proofs.ok_or_else(|| {
            tracing::error!(source = %record.id, "the secrets of a source cannot be opened");
            Problem::new(Code::Unavailable, "the secrets of this source cannot be opened; an operator must look")
        })
    }

    /// Gives a source another secret. The one before stays live, unless it is to go.
    pub async fn rotate_source(
        &self,
        caller: &Caller,
        id: SourceId,
        (proof, keep): (Proof, bool),
        asked: Option<Asked>,
    ) -> Result<Source, Problem> {
        caller.need(Scope::Admin)?;
        let mut record = self.own_record(caller, RecordKind::Source, id.0).await?;
        for _ in 0..TRIES {
            let now = self.now();
            let old: AboutSource = records::read(&record)?;
            let proofs = rotated(self.proofs(&record, &old)?, proof.clone(), keep);
            let mut about = self.about_source((record.team, record.id), old.kind, old.transport, &proofs)?;
            about.rotated_at = Some(now);
            let Record { team, kind, id, rev, .. } = record;
            let edit = RecordEdit { team, kind, id, rev, about: records::write(&about)? };
            let operation = operation(caller, asked.as_ref(), Vec::new(), now);
            match self.store.change_record(edit, operation, now).await.map_err(unavailable)? {
                Once::Done(RecordChange::Changed(changed)) => return view(&changed),
                Once::Done(RecordChange::Stale(now)) => record = now,
                Once::Done(RecordChange::Missing) => return Err(records::missing(kind, &id.to_string())),
                Once::Repeated(_) => return self.source(caller, SourceId(id)).await,
                Once::Mismatch(bound) => return Err(taken(&bound)),
            }
        }
        Err(Problem::new(Code::StaleRev, format!("the source {} changed meanwhile", record.name)))
    }

    /// The caller's sources, newest first.
    pub async fn sources(
        &self,
        caller: &Caller,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<Listed<Source>, Problem> {
        caller.need(Scope::Admin)?;
        self.own_records(caller, RecordKind::Source, before, limit, view).await
    }

    /// One source.
    pub async fn source(&self, caller: &Caller, id: SourceId) -> Result<Source, Problem> {
        caller.need(Scope::Admin)?;
        view(&self.own_record(caller, RecordKind::Source, id.0).await?)
    }

    /// Removes a source. What comes to its address afterwards is not found.
    pub async fn remove_source(&self, caller: &Caller, id: SourceId) -> Result<Source, Problem> {
        caller.need(Scope::Admin)?;
        let removed = self.store.remove_record(caller.team.id, RecordKind::Source, id.0).await.map_err(unavailable)?;
        view(&removed.ok_or_else(|| records::missing(RecordKind::Source, &id.to_string()))?)
    }

    /// The source behind an address.
    pub(crate) async fn live_source(&self, id: SourceId) -> Result<LiveSource, Problem> {
        let found = self.store.record_anywhere(RecordKind::Source, id.0).await.map_err(unavailable)?;
        let record = found.ok_or_else(|| records::missing(RecordKind::Source, &id.to_string()))?;
        let about: AboutSource = records::read(&record)?;
        let proofs = self.proofs(&record, &about)?;
        let secrets = secrets(about.kind, &proofs)
            .map_err(|bad| Problem::new(Code::Unavailable, format!("this source cannot be used: {bad}")))?;
        Ok(LiveSource { id, team: record.team, kind: about.kind, transport: about.transport, secrets })
    }
}

/// The new proof first, then the one before. The same one again changes nothing, so that a repeat pushes nothing out.
fn rotated(old: Vec<Proof>, new: Proof, keep: bool) -> Vec<Proof> {
    if let (Proof::Topics { topics, allow_sha1 }, Some(Proof::Topics { topics: before, .. })) = (&new, old.first()) {
        let mut all = topics.clone();
        all.extend(before.iter().filter(|topic| keep && !topics.contains(topic)).cloned());
        return vec![Proof::Topics { topics: all, allow_sha1: *allow_sha1 }];
    }
    let before: Vec<Proof> = old.into_iter().filter(|proof| keep && *proof != new).collect();
    std::iter::once(new).chain(before).take(LIVE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Proof {
        Proof::Key(text.into())
    }

    #[test]
    fn two_secrets_live_and_a_repeat_pushes_none_out() {
        let one = rotated(vec![key("a")], key("b"), true);
        assert_eq!(one, [key("b"), key("a")]);
        assert_eq!(rotated(one.clone(), key("b"), true), one);
        assert_eq!(rotated(one.clone(), key("c"), true), [key("c"), key("b")]);
        assert_eq!(rotated(one, key("b"), false), [key("b")]);
    }

    #[test]
    fn topics_are_added_or_replaced() {
        let topics =
            |list: &[&str]| Proof::Topics { topics: list.iter().map(ToString::to_string).collect(), allow_sha1: false };
        assert_eq!(rotated(vec![topics(&["a"])], topics(&["b"]), true), [topics(&["b", "a"])]);
        assert_eq!(rotated(vec![topics(&["a"])], topics(&["b"]), false), [topics(&["b"])]);
    }

    #[test]
    fn each_provider_takes_its_own_proof_and_no_other() {
        let long = "0123456789abcdef";
        let bearer = || [Proof::Bearer(long.into())];
        let topic =
            || [Proof::Topics { topics: vec!["arn:aws:sns:eu-west-1:123456789012:t".into()], allow_sha1: false }];
        assert!(secrets(Kind::Postmark, &bearer()).is_ok());
        assert!(secrets(Kind::Mailgun, &[key(long)]).is_ok());
        assert!(secrets(Kind::Ses, &topic()).is_ok());
        for (kind, proofs) in [(Kind::Mailgun, bearer()), (Kind::Postmark, topic()), (Kind::Ses, [key(long)])] {
            assert!(secrets(kind, &proofs).is_err(), "{kind}");
        }
        assert!(secrets(Kind::Mailgun, &[key("short")]).is_err());
        assert!(secrets(Kind::Postmark, &[key(long), Proof::Bearer(long.into())]).is_err());
    }
}

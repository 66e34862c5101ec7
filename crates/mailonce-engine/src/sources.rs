//! Sources of provider events and of mail: which provider speaks, for which transport, and how it proves itself.
//!
//! What proves a provider is sealed and never shown again. Two secrets may live at a time, so that one can replace
//! the other without a gap.

use mailonce_core::{
    id::{SourceId, TeamId},
    port::store::Once,
    problem::{Code, Problem},
    record::{Created, Record, RecordChange, RecordKind},
    team::Scope,
    time::Time,
};
use mailonce_mail::hook::{Kind, Secrets};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    Asked, Caller, Engine,
    change::taken,
    collect::{AboutCollecting, Collecting},
    fault, operation,
    proofs::{rotated, secrets},
    records::{self, Listed, Made},
    unavailable,
    vault::Place,
};

/// How often a rotation is tried anew when somebody else changed the source meanwhile.
const TRIES: usize = 3;

pub use crate::proofs::Proof;

/// Where provider events and mail come from.
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
    /// The transport whose events it tells.
    pub transport: Option<String>,
    /// What it may bring.
    pub takes: Takes,
    /// How many secrets, or topics, are live.
    pub secrets: usize,
    /// When the last one was added.
    pub rotated_at: Option<Time>,
    /// Whether mail that it only tells of can be fetched.
    pub fetches: bool,
    /// Where it is fetched, when that is not the provider's usual place.
    pub base_url: Option<String>,
    /// How often the provider is asked which mails came, in milliseconds.
    pub poll_ms: Option<i64>,
    /// How that goes.
    pub polled: Polled,
}

/// How the polling of a source goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Polled {
    /// When a round ended last.
    pub at: Option<Time>,
    /// What went wrong since.
    pub error: Option<String>,
}

/// What a source may bring. At least one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Takes {
    /// What became of mail we sent.
    pub events: bool,
    /// Mail.
    pub inbound: bool,
}

impl Takes {
    /// What sources brought before they could bring mail.
    fn events() -> Self {
        Self { events: true, inbound: false }
    }

    /// What a provider brings when nobody says: events where it has them.
    fn usual(kind: Kind) -> Self {
        Self { events: kind.tells(), inbound: !kind.tells() }
    }

    /// The words of it.
    pub fn words(self) -> Vec<&'static str> {
        [(self.events, "events"), (self.inbound, "inbound")]
            .into_iter()
            .filter_map(|(is, word)| is.then_some(word))
            .collect()
    }

    /// Reads the words.
    pub fn parse(words: &[String]) -> Result<Self, Problem> {
        let has = |word: &str| words.iter().any(|given| given == word);
        let takes = Self { events: has("events"), inbound: has("inbound") };
        if words.is_empty() || takes.words().len() != words.len() {
            return Err(fault("takes", "is a list of events, inbound or both"));
        }
        Ok(takes)
    }

    /// Whether a provider can bring that, with that proof.
    fn check(self, kind: Kind, proof: &Proof) -> Result<(), Problem> {
        if self.events && !kind.tells() {
            return Err(fault("takes", format!("{kind} tells of no events")));
        }
        if self.inbound && !kind.brings() {
            return Err(fault("takes", format!("{kind} brings no mail")));
        }
        if self.events && kind == Kind::Sendgrid && !matches!(proof, Proof::Key(_)) {
            return Err(fault(
                "secret",
                "is missing: sendgrid signs its events, only its mail may come with a password",
            ));
        }
        Ok(())
    }
}

/// A source to make.
#[derive(Clone, Debug)]
pub struct NewSource {
    /// Its name.
    pub name: String,
    /// The provider's word.
    pub kind: String,
    /// The transport whose events it tells. Needed only for those.
    pub transport: Option<String>,
    /// What it may bring; what its provider usually does when nobody says.
    pub takes: Option<Takes>,
    /// How it proves itself.
    pub proof: Proof,
    /// How mail is collected from its provider.
    pub collecting: Collecting,
}

/// What a source gets anew.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// How it proves itself, unless that stays.
    pub proof: Option<Proof>,
    /// Whether the proof before stays live.
    pub keep: bool,
    /// How mail is collected. What is not said stays.
    pub collecting: Collecting,
}

/// What the ledger keeps of a source.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AboutSource {
    pub(crate) kind: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    transport: Option<String>,
    #[serde(default = "Takes::events")]
    takes: Takes,
    /// The proofs, newest first, as sealed JSON.
    sealed: String,
    live: usize,
    #[serde(default)]
    rotated_at: Option<Time>,
    /// How mail is collected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) collecting: Option<AboutCollecting>,
}

impl AboutSource {
    /// How often it polls, if it does.
    pub(crate) fn poll_ms(&self) -> Option<i64> {
        self.collecting.as_ref().and_then(|collecting| collecting.poll_ms).filter(|_| self.takes.inbound)
    }

    /// Whether it polls.
    pub(crate) fn polls(&self) -> bool {
        self.poll_ms().is_some()
    }
}

/// Who tells of a mail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Teller {
    pub(crate) id: SourceId,
    pub(crate) team: TeamId,
    pub(crate) kind: Kind,
}

impl LiveSource {
    pub(crate) fn teller(&self) -> Teller {
        Teller { id: self.id, team: self.team, kind: self.kind }
    }
}

/// A source as a hook uses it.
pub(crate) struct LiveSource {
    pub(crate) id: SourceId,
    pub(crate) team: TeamId,
    pub(crate) kind: Kind,
    pub(crate) transport: Option<String>,
    pub(crate) takes: Takes,
    pub(crate) secrets: Secrets,
}

fn place(team: TeamId, record: Uuid) -> Place {
    Place { team, record, purpose: "source" }
}

fn view(record: &Record) -> Result<Source, Problem> {
    let about: AboutSource = records::read(record)?;
    let poll_ms = about.poll_ms();
    Ok(Source {
        id: SourceId(record.id),
        name: record.name.clone(),
        rev: record.rev,
        created_at: record.created_at,
        kind: about.kind.word(),
        transport: about.transport,
        takes: about.takes,
        secrets: about.live,
        rotated_at: about.rotated_at,
        poll_ms,
        fetches: about.collecting.is_some(),
        base_url: about.collecting.and_then(|collecting| collecting.base_url),
        polled: Polled::default(),
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
        caller.need_whole_team()?;
        let (team, now) = (caller.team.id, self.now());
        let id = self.new_id(now);
        // Asked again, it is answered even if the transport is gone since.
        let again = self.was_asked(caller, asked.as_ref()).await?;
        let kind = Kind::parse(&new.kind).ok_or_else(|| {
            let known: Vec<&str> = Kind::ALL.iter().map(|kind| kind.word()).collect();
            fault("kind", format!("is one of {}", known.join(", ")))
        })?;
        let takes = new.takes.unwrap_or_else(|| Takes::usual(kind));
        takes.check(kind, &new.proof)?;
        if !again {
            self.check_transport(takes, new.transport.as_deref())?;
        }
        let mut about = self.about_source((team, id), kind, &[new.proof])?;
        about.takes = takes;
        about.transport = new.transport;
        about.collecting = self.about_collecting((team, id), kind, &new.collecting)?;
        if about.collecting.is_some() && !takes.inbound {
            return Err(fault("api_key", "is for mail, which this source does not take"));
        }
        let about = records::write(&about)?;
        let name = new.name.clone();
        let record = Record { team, kind: RecordKind::Source, id, name: new.name, rev: 1, created_at: now, about };
        let operation = operation(caller, asked.as_ref(), Vec::new(), now);
        match self.store.create_record(record, operation).await.map_err(unavailable)? {
            Once::Done(Created::Made(record)) => {
                self.collecting_changed(SourceId(record.id));
                Ok(Made { thing: view(&record)?, first: true })
            }
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

    /// Events count for the handoffs of one transport; mail needs none.
    fn check_transport(&self, takes: Takes, transport: Option<&str>) -> Result<(), Problem> {
        let names = self.ways.names();
        match transport {
            None if takes.events => return Err(fault("transport", "is missing: events count for one transport")),
            None => return Ok(()),
            Some(transport) if names.contains(&transport) => return Ok(()),
            Some(_) => {}
        }
        Err(fault("transport", format!("names no transport that is configured; known are {}", names.join(", "))))
    }

    /// What is kept of a source, its proofs checked and sealed.
    fn about_source(&self, (team, id): (TeamId, Uuid), kind: Kind, proofs: &[Proof]) -> Result<AboutSource, Problem> {
        secrets(kind, proofs).map_err(|bad| fault("secret", bad.to_string()))?;
        let broken = || Problem::new(Code::Internal, "the secrets could not be sealed");
        let json = serde_json::to_vec(proofs).map_err(|_error| broken())?;
        let sealed = self.seal(place(team, id), &json).ok_or_else(broken)?;
        let live = match proofs {
            [Proof::Topics { topics, .. }] => topics.len(),
            _ => proofs.len(),
        };
        let takes = Takes::usual(kind);
        Ok(AboutSource { kind, transport: None, takes, sealed, live, rotated_at: None, collecting: None })
    }

    fn proofs(&self, record: &Record, about: &AboutSource) -> Result<Vec<Proof>, Problem> {
        let opened = self.unseal(place(record.team, record.id), &about.sealed);
        let proofs = opened.and_then(|json| serde_json::from_slice(&json).ok());
        proofs.ok_or_else(|| {
            tracing::error!(source = %record.id, "the secrets of a source cannot be opened");
            Problem::new(Code::Unavailable, "the secrets of this source cannot be opened; an operator must look")
        })
    }

    /// Gives a source another secret, another credential to collect mail with, or both. The secret before stays live,
    /// unless it is to go.
    pub async fn rotate_source(
        &self,
        caller: &Caller,
        id: SourceId,
        rotation: Rotation,
        asked: Option<Asked>,
    ) -> Result<Source, Problem> {
        caller.need(Scope::Admin)?;
        caller.need_whole_team()?;
        let mut record = self.own_record(caller, RecordKind::Source, id.0).await?;
        for _ in 0..TRIES {
            let now = self.now();
            let about = self.rotated_about(&record, &rotation, now)?;
            let edit = record.edit(records::write(&about)?);
            let operation = operation(caller, asked.as_ref(), Vec::new(), now);
            match self.store.change_record(edit, operation, now).await.map_err(unavailable)? {
                Once::Done(RecordChange::Changed(changed)) => {
                    self.collecting_changed(id);
                    return self.viewed(&changed).await;
                }
                Once::Done(RecordChange::Stale(now)) => record = now,
                Once::Done(RecordChange::Missing) => return Err(records::missing(RecordKind::Source, &id.to_string())),
                Once::Repeated(_) => return self.source(caller, id).await,
                Once::Mismatch(bound) => return Err(taken(&bound)),
            }
        }
        Err(Problem::new(Code::StaleRev, format!("the source {} changed meanwhile", record.name)))
    }

    /// What a source says after a rotation.
    fn rotated_about(&self, record: &Record, rotation: &Rotation, now: Time) -> Result<AboutSource, Problem> {
        let mut about: AboutSource = records::read(record)?;
        let place = (record.team, record.id);
        if let Some(proof) = &rotation.proof {
            let proofs = rotated(self.proofs(record, &about)?, proof.clone(), rotation.keep);
            about.takes.check(about.kind, proof)?;
            let AboutSource { sealed, live, .. } = self.about_source(place, about.kind, &proofs)?;
            about = AboutSource { sealed, live, rotated_at: Some(now), ..about };
        }
        if rotation.collecting != Collecting::default() {
            if !about.takes.inbound {
                return Err(fault("api_key", "is for mail, which this source does not take"));
            }
            let Collecting { api_key, base_url, poll_ms } = rotation.collecting.clone();
            let before = about.collecting.as_ref();
            // The credential goes to the place it was given for and to no other.
            let kept = before.filter(|_| base_url.is_none()).and_then(|_| self.account(record, &about).ok());
            let merged = Collecting {
                api_key: api_key.or_else(|| kept.map(|account| account.api_key)),
                base_url: base_url.or_else(|| before.and_then(|before| before.base_url.clone())),
                poll_ms: poll_ms.or_else(|| before.and_then(|before| before.poll_ms)),
            };
            about.collecting = self.about_collecting(place, about.kind, &merged)?;
        }
        Ok(about)
    }

    /// A source with how its polling goes.
    async fn viewed(&self, record: &Record) -> Result<Source, Problem> {
        let mut source = view(record)?;
        if source.poll_ms.is_some() {
            source.polled = self.polled(record.team, source.id).await.map_err(unavailable)?;
        }
        Ok(source)
    }

    /// The caller's sources, newest first.
    pub async fn sources(
        &self,
        caller: &Caller,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<Listed<Source>, Problem> {
        caller.need(Scope::Admin)?;
        caller.need_whole_team()?;
        let mut page = self.own_records(caller, RecordKind::Source, before, limit, view).await?;
        for source in page.rows.iter_mut().filter(|source| source.poll_ms.is_some()) {
            source.polled = self.polled(caller.team.id, source.id).await.map_err(unavailable)?;
        }
        Ok(page)
    }

    /// One source.
    pub async fn source(&self, caller: &Caller, id: SourceId) -> Result<Source, Problem> {
        caller.need(Scope::Admin)?;
        caller.need_whole_team()?;
        self.viewed(&self.own_record(caller, RecordKind::Source, id.0).await?).await
    }

    /// Removes a source. What comes to its address afterwards is not found.
    pub async fn remove_source(&self, caller: &Caller, id: SourceId) -> Result<Source, Problem> {
        caller.need(Scope::Admin)?;
        caller.need_whole_team()?;
        let removed = self.store.remove_record(caller.team.id, RecordKind::Source, id.0).await.map_err(unavailable)?;
        let removed = removed.ok_or_else(|| records::missing(RecordKind::Source, &id.to_string()))?;
        self.forget_polling(caller.team.id, id).await.map_err(unavailable)?;
        view(&removed)
    }

    /// The source behind an address.
    pub(crate) async fn live_source(&self, id: SourceId) -> Result<LiveSource, Problem> {
        let found = self.store.record_anywhere(RecordKind::Source, id.0).await.map_err(unavailable)?;
        let record = found.ok_or_else(|| records::missing(RecordKind::Source, &id.to_string()))?;
        let about: AboutSource = records::read(&record)?;
        let proofs = self.proofs(&record, &about)?;
        let secrets = secrets(about.kind, &proofs)
            .map_err(|bad| Problem::new(Code::Unavailable, format!("this source cannot be used: {bad}")))?;
        let AboutSource { kind, transport, takes, .. } = about;
        Ok(LiveSource { id, team: record.team, kind, transport, takes, secrets })
    }
}

//! Codes and links: each is taken once. Watches: one run of an agent that waits for one.

use mailonce_core::{
    artifact::{Applied, Artifact, ArtifactKind, Taken, Taking},
    id::{ArtifactId, InboxId, MessageId, WatchId},
    message::{MessagePlace, MessageQuery},
    port::store::Once,
    problem::{Code, Problem},
    team::Scope,
    time::Time,
    watch::{Spent, Watch},
};
use std::borrow::Cow;
use uuid::Uuid;

use crate::{Asked, Caller, Engine, change::taken, operation, records::Made, unavailable};

/// Artifacts of an inbox that are looked through for a match.
const LOOKED_AT: usize = 100;

/// Which artifact of an inbox is wanted.
#[derive(Clone, Debug)]
pub struct Match {
    /// What it is.
    pub kind: ArtifactKind,
    /// From this address, or `@domain`.
    pub from: Option<String>,
    /// With this in the subject of its message.
    pub subject: Option<String>,
}

fn missing(id: ArtifactId) -> Problem {
    Problem::new(Code::NotFound, format!("there is no artifact {id}"))
}

fn gone(artifact: &Artifact) -> Problem {
    let (at, purpose) = artifact.consumed.as_ref().map_or((Time(0), ""), |by| (by.at, by.purpose.as_str()));
    Problem::new(Code::AlreadyConsumed, format!("this {} was taken at {at} for {purpose}", artifact.kind.word()))
        .with("artifact", artifact.id.to_string())
        .with("consumed_at", at.to_string())
        .with("consumed_for", purpose)
}

/// Whether a caller may see the value: whoever took it, or a credential for secrets.
pub fn may_see(caller: &Caller, artifact: &Artifact) -> bool {
    let took = artifact.consumed.as_ref().is_some_and(|consumed| consumed.by == caller.key.id);
    took || caller.key.may(Scope::Secrets)
}

impl Engine {
    /// An artifact with its value opened.
    fn opened(&self, mut artifact: Artifact) -> Result<Artifact, Problem> {
        let value = self.bodies.unpack_text(&artifact.found.value).map(Cow::into_owned);
        artifact.found.value = value.ok_or_else(|| Problem::new(Code::Internal, "the value cannot be opened"))?;
        Ok(artifact)
    }

    /// One artifact of an inbox that the caller may use.
    pub async fn artifact(&self, caller: &Caller, id: ArtifactId) -> Result<Artifact, Problem> {
        caller.need(Scope::Read)?;
        let found = self.store.artifact(caller.team.id, id).await.map_err(unavailable)?;
        let artifact = found.ok_or_else(|| missing(id))?;
        self.inbox(caller, artifact.inbox).await.map_err(|_not_theirs| missing(id))?;
        self.opened(artifact)
    }

    /// What was found in a message, best first.
    pub async fn artifacts_of(&self, caller: &Caller, id: MessageId) -> Result<Vec<Artifact>, Problem> {
        let message = self.message(caller, id).await?;
        let mut artifacts = Vec::with_capacity(message.head.artifacts.len());
        for (_, id) in &message.head.artifacts {
            let found = self.store.artifact(caller.team.id, *id).await.map_err(unavailable)?;
            artifacts.extend(found.map(|artifact| self.opened(artifact)).transpose()?);
        }
        Ok(artifacts)
    }

    /// Takes an artifact, once.
    pub async fn consume(
        &self,
        caller: &Caller,
        id: ArtifactId,
        purpose: String,
        watch: Option<WatchId>,
        asked: Option<Asked>,
    ) -> Result<Artifact, Problem> {
        let artifact = self.artifact(caller, id).await?;
        if let Some(watch) = watch {
            let watch = self.watch_in(caller, watch, artifact.inbox).await?;
            if artifact.seq <= watch.after && !artifact.is_with(&purpose, Some(watch.id)) {
                return Err(Problem::field(Code::InvalidField, "watch", "began after this artifact arrived"));
            }
            if watch.require_auth && !artifact.authenticated {
                let detail = "requires authentication, and the sender of this artifact is not authenticated";
                return Err(Problem::field(Code::InvalidField, "watch", detail));
            }
        }
        let now = self.now();
        let taking = Taking { purpose, watch, by: caller.key.id };
        let operation = operation(caller, asked.as_ref(), Vec::new(), now);
        crate::failpoint!("before-consume");
        let taken_now = self.store.consume(caller.team.id, id, taking, operation, now).await.map_err(unavailable)?;
        crate::failpoint!("after-consume");
        let (outcome, answer) = match taken_now {
            Once::Done(Taken::First(artifact)) => ("first", self.opened(artifact)),
            Once::Done(Taken::Again(artifact)) => ("again", self.opened(artifact)),
            Once::Done(Taken::Gone(artifact)) => ("gone", Err(gone(&artifact))),
            Once::Done(Taken::Missing) => ("missing", Err(missing(id))),
            Once::Repeated(_) => ("again", self.artifact(caller, id).await),
            Once::Mismatch(bound) => ("mismatch", Err(taken(&bound))),
        };
        self.metrics.artifact(outcome);
        answer
    }

    /// Takes the latest match of an inbox, consumed or not: an older one is never given out in its place.
    pub async fn consume_match(
        &self,
        caller: &Caller,
        inbox: InboxId,
        wanted: &Match,
        (purpose, watch): (String, Option<WatchId>),
        asked: Option<Asked>,
    ) -> Result<Artifact, Problem> {
        self.inbox(caller, inbox).await?;
        let (after, require_auth) = match watch {
            Some(id) => {
                let watch = self.watch_in(caller, id, inbox).await?;
                (watch.after, watch.require_auth)
            }
            None => (0, false),
        };
        let all = self.store.artifacts(caller.team.id, inbox, Some(wanted.kind), after, LOOKED_AT).await;
        let mut matches = Vec::new();
        for artifact in all.map_err(unavailable)? {
            if (artifact.authenticated || !require_auth) && self.is_match(caller, &artifact, wanted).await? {
                matches.push(artifact);
            }
        }
        // Inside a watch a sender that proved itself beats one that did not.
        let proven = watch.and_then(|_| matches.iter().find(|artifact| artifact.authenticated));
        let best = proven.or_else(|| matches.first()).ok_or_else(|| {
            let detail = format!("no {} in this inbox matches", wanted.kind.word());
            Problem::new(Code::NotFound, detail)
        })?;
        self.consume(caller, best.id, purpose, watch, asked).await
    }

    async fn is_match(&self, caller: &Caller, artifact: &Artifact, wanted: &Match) -> Result<bool, Problem> {
        let from = wanted.from.as_ref().map(|from| from.to_ascii_lowercase());
        let is_from = |from: &String| {
            artifact.sender == *from || (from.starts_with('@') && artifact.sender.ends_with(from.as_str()))
        };
        if !from.as_ref().is_none_or(is_from) {
            return Ok(false);
        }
        // A sender that proved itself, and no other condition: nothing more is looked at.
        let proven = from.is_none() || artifact.authenticated;
        if proven && wanted.subject.is_none() {
            return Ok(true);
        }
        // The latest message that holds it is the one whose subject people mean.
        let query = MessageQuery {
            place: MessagePlace::After(artifact.seq.saturating_sub(1)),
            limit: 1,
            ..MessageQuery::default()
        };
        let page = self.store.messages(caller.team.id, artifact.inbox, query).await.map_err(unavailable)?;
        let Some(message) = page.rows.first().filter(|message| message.seq == artifact.seq) else { return Ok(false) };
        let holds = |subject: &String| message.head.subject.to_lowercase().contains(&subject.to_lowercase());
        Ok((proven || !message.head.auth.is_fail()) && wanted.subject.as_ref().is_none_or(holds))
    }

    /// Notes that whoever took an artifact has used it.
    pub async fn applied(&self, caller: &Caller, id: ArtifactId, purpose: &str) -> Result<Artifact, Problem> {
        self.artifact(caller, id).await?;
        match self.store.apply(caller.team.id, id, purpose, self.now()).await.map_err(unavailable)? {
            Applied::Done(artifact) => {
                self.metrics.artifact("applied");
                self.opened(artifact)
            }
            Applied::NotYours(artifact) if artifact.consumed.is_none() => {
                Err(Problem::new(Code::NotConsumed, "nobody has taken this artifact: consume it first"))
            }
            Applied::NotYours(artifact) => Err(gone(&artifact)),
            Applied::Missing => Err(missing(id)),
        }
    }

    /// Begins a watch.
    pub async fn create_watch(
        &self,
        caller: &Caller,
        inbox: InboxId,
        (budget, lasts_ms, require_auth): (u32, i64, bool),
        asked: Option<Asked>,
    ) -> Result<Made<Watch>, Problem> {
        self.inbox(caller, inbox).await?;
        let now = self.now();
        let watch = Watch {
            id: WatchId(self.new_id(now)),
            team: caller.team.id,
            inbox,
            rev: 1,
            started_at: now,
            after: 0,
            deadline: now.plus(lasts_ms),
            budget,
            spent: 0,
            require_auth,
        };
        let operation = operation(caller, asked.as_ref(), watch.id.0.as_bytes().to_vec(), now);
        match self.store.create_watch(watch, operation).await.map_err(unavailable)? {
            Once::Done(Some(watch)) => Ok(Made { thing: watch, first: true }),
            Once::Done(None) => Err(crate::inboxes::missing(inbox)),
            Once::Repeated(answer) => {
                let id = Uuid::from_slice(&answer).map_err(|_bytes| no_watch("of this key"))?;
                Ok(Made { thing: self.watch(caller, WatchId(id)).await?, first: false })
            }
            Once::Mismatch(bound) => Err(taken(&bound)),
        }
    }

    /// One watch at an inbox that the caller may use.
    pub async fn watch(&self, caller: &Caller, id: WatchId) -> Result<Watch, Problem> {
        caller.need(Scope::Read)?;
        let found = self.store.watch_of(caller.team.id, id).await.map_err(unavailable)?;
        let watch = found.ok_or_else(|| no_watch(id))?;
        self.inbox(caller, watch.inbox).await.map_err(|_not_theirs| no_watch(id))?;
        Ok(watch)
    }

    /// A watch that must be at this inbox.
    pub(crate) async fn watch_in(&self, caller: &Caller, id: WatchId, inbox: InboxId) -> Result<Watch, Problem> {
        let watch = self.watch(caller, id).await?;
        if watch.inbox == inbox { Ok(watch) } else { Err(no_watch(id)) }
    }

    /// Spends one of a watch's resends.
    pub async fn spend(&self, caller: &Caller, id: WatchId, asked: Option<Asked>) -> Result<Watch, Problem> {
        self.watch(caller, id).await?;
        let now = self.now();
        let operation = operation(caller, asked.as_ref(), Vec::new(), now);
        match self.store.spend(caller.team.id, id, operation, now).await.map_err(unavailable)? {
            Once::Done(Spent::Done(watch)) => Ok(watch),
            Once::Done(Spent::Nothing(watch)) => {
                let detail = format!("this watch may ask for the mail again {} times, and did", watch.budget);
                Err(Problem::new(Code::BudgetSpent, detail))
            }
            Once::Done(Spent::Over(watch)) => {
                Err(Problem::new(Code::WatchOver, format!("this watch ended at {}", watch.deadline)))
            }
            Once::Done(Spent::Missing) => Err(no_watch(id)),
            Once::Repeated(_) => self.watch(caller, id).await,
            Once::Mismatch(bound) => Err(taken(&bound)),
        }
    }
}

fn no_watch(id: impl std::fmt::Display) -> Problem {
    Problem::new(Code::NotFound, format!("there is no watch {id}"))
}

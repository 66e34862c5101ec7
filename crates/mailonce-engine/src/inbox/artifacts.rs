//! Artifacts are codes and links in messages; each is consumed once. A watch is one run of an agent that waits for one.

use crate::{
    access::caller::Caller,
    inbox::{Artifacts, Inboxes},
    runtime::{
        keyed_call::{KeyedCall, operation},
        problems::{key_mismatch, unavailable},
        records::CreateOutcome,
    },
};
use mailonce_core::{
    access::team::ApiKeyScope,
    events::event::EventCursor,
    id::{ArtifactId, InboxId, MessageId, WatchId},
    inbox::{
        artifact::{Artifact, ArtifactKind, ConsumeRequest, ConsumeResult, HeldArtifacts, MarkAppliedResult},
        message::{MessagePosition, MessageQuery},
        watch::{SpendResendResult, Watch},
    },
    operation::IdempotentResult,
    problem::{Code, Problem},
    time::Time,
};
use std::borrow::Cow;
use uuid::Uuid;

/// How many artifacts of an inbox are searched for a match at first. The search goes on while none of them will do.
const FIRST_SCAN: usize = 100;
/// How many artifacts of an inbox are searched at most.
const MAX_SCAN: usize = 12_800;

/// A watch to be started.
#[derive(Clone, Copy, Debug)]
pub struct WatchRequest {
    /// How many resends it may ask for.
    pub resend_budget: u32,
    /// How long it lasts, in milliseconds.
    pub duration_ms: i64,
    /// Whether only artifacts of authenticated senders count.
    pub require_auth: bool,
}

/// Which artifact of an inbox to consume.
#[derive(Clone, Debug)]
pub struct ArtifactQuery {
    /// Code or link.
    pub kind: ArtifactKind,
    /// The sender's address, or `@domain`.
    pub from: Option<String>,
    /// Text that the subject of its message contains.
    pub subject: Option<String>,
}

fn artifact_not_found(id: ArtifactId) -> Problem {
    Problem::new(Code::NotFound, format!("there is no artifact {id}"))
}

pub(super) fn already_consumed(artifact: &Artifact) -> Problem {
    let (at, purpose) = artifact.consumption.as_ref().map_or((Time(0), ""), |by| (by.at, by.purpose.as_str()));
    Problem::new(Code::AlreadyConsumed, format!("this {} was consumed at {at} for {purpose}", artifact.kind.as_str()))
        .with_extension("artifact", artifact.id.to_string())
        .with_extension("consumed_at", at.to_string())
        .with_extension("consumed_for", purpose)
}

pub(super) fn no_match(query: &ArtifactQuery) -> Problem {
    Problem::new(Code::NotFound, format!("no {} in this inbox matches", query.kind.as_str()))
}

/// Whether a caller may see the value: the API key that consumed it, or any with the scope `secrets`.
pub fn may_see_value(caller: &Caller, artifact: &Artifact) -> bool {
    let is_consumer = artifact.consumption.as_ref().is_some_and(|consumed| consumed.by == caller.key.id);
    is_consumer || caller.key.has_scope(ApiKeyScope::Secrets)
}

impl Inboxes {
    /// Decrypts the value of an artifact.
    pub(super) fn decrypt_artifact(&self, mut artifact: Artifact) -> Result<Artifact, Problem> {
        let value = self.ctx.packer.unpack_text(&artifact.extracted.value).map(Cow::into_owned);
        artifact.extracted.value =
            value.ok_or_else(|| Problem::new(Code::Internal, "the value cannot be decrypted"))?;
        Ok(artifact)
    }

    /// The artifacts of a message, best first.
    pub async fn artifacts_of(&self, caller: &Caller, id: MessageId) -> Result<Vec<Artifact>, Problem> {
        let message = self.message(caller, id).await?;
        let mut artifacts = Vec::with_capacity(message.head.artifacts.len());
        for (_, id) in &message.head.artifacts {
            let found = self.ctx.store.artifact(caller.team.id, *id).await.map_err(unavailable)?;
            artifacts.extend(found.map(|artifact| self.decrypt_artifact(artifact)).transpose()?);
        }
        Ok(artifacts)
    }
}

impl Artifacts {
    /// One artifact of an inbox that the caller may use.
    pub async fn artifact(&self, caller: &Caller, id: ArtifactId) -> Result<Artifact, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        let found = self.ctx.store.artifact(caller.team.id, id).await.map_err(unavailable)?;
        let artifact = found.ok_or_else(|| artifact_not_found(id))?;
        self.inboxes.inbox(caller, artifact.inbox).await.map_err(|_not_theirs| artifact_not_found(id))?;
        self.inboxes.decrypt_artifact(artifact)
    }

    /// Consumes an artifact. Only the first purpose gets it; a repeat for the same purpose gets it again.
    pub async fn consume(
        &self,
        caller: &Caller,
        id: ArtifactId,
        purpose: String,
        watch: Option<WatchId>,
        keyed_call: Option<KeyedCall>,
    ) -> Result<Artifact, Problem> {
        let held_before = None;
        self.consume_with_request(
            caller,
            id,
            ConsumeRequest { purpose, watch, by: caller.key.id, held_before },
            keyed_call,
        )
        .await
    }

    /// Consumes an artifact. With `held_before`, only if the consumer got no other meanwhile.
    pub(super) async fn consume_with_request(
        &self,
        caller: &Caller,
        id: ArtifactId,
        request: ConsumeRequest,
        keyed_call: Option<KeyedCall>,
    ) -> Result<Artifact, Problem> {
        let ConsumeRequest { purpose, watch, .. } = request.clone();
        let artifact = self.artifact(caller, id).await?;
        if let Some(watch) = watch {
            let watch = self.watch_of_inbox(caller, watch, artifact.inbox).await?;
            if artifact.seq <= watch.after_seq && !artifact.is_consumed_by(&purpose, Some(watch.id)) {
                return Err(Problem::for_field(Code::InvalidField, "watch", "began after this artifact arrived"));
            }
            if watch.require_auth && !artifact.authenticated {
                let detail = "requires authentication, and the sender of this artifact is not authenticated";
                return Err(Problem::for_field(Code::InvalidField, "watch", detail));
            }
        }
        let now = self.ctx.now();
        let operation = operation(caller, keyed_call.as_ref(), id.0.as_bytes().to_vec(), now);
        crate::failpoint!("before-consume");
        let result =
            self.ctx.store.consume_artifact(caller.team.id, id, request, operation, now).await.map_err(unavailable)?;
        crate::failpoint!("after-consume");
        let (outcome, answer) = match result {
            IdempotentResult::Done(ConsumeResult::First(artifact)) => {
                ("first", self.inboxes.decrypt_artifact(artifact))
            }
            IdempotentResult::Done(ConsumeResult::Replayed(artifact)) => {
                ("again", self.inboxes.decrypt_artifact(artifact))
            }
            IdempotentResult::Done(ConsumeResult::ConsumedByOther(artifact)) => {
                ("gone", Err(already_consumed(&artifact)))
            }
            IdempotentResult::Done(ConsumeResult::TookMeanwhile(other)) => ("raced", Err(already_consumed(&other))),
            IdempotentResult::Done(ConsumeResult::Missing) => ("missing", Err(artifact_not_found(id))),
            IdempotentResult::Replayed(taken) => {
                ("again", self.replayed_artifact(caller, &taken, (id, &purpose)).await)
            }
            IdempotentResult::KeyMismatch(bound) => ("mismatch", Err(key_mismatch(&bound))),
        };
        self.ctx.metrics.record_artifact(outcome);
        answer
    }

    /// The artifact that the first call under this key took. It may be another than the one that matches now.
    async fn replayed_artifact(
        &self,
        caller: &Caller,
        taken: &[u8],
        (asked, purpose): (ArtifactId, &str),
    ) -> Result<Artifact, Problem> {
        // An older release stored no id.
        let id = Uuid::from_slice(taken).map_or(asked, ArtifactId);
        let artifact = self.artifact(caller, id).await?;
        let is_theirs = artifact.consumption.as_ref().is_some_and(|consumed| consumed.purpose == purpose);
        if is_theirs { Ok(artifact) } else { Err(already_consumed(&artifact)) }
    }

    /// Consumes the latest match of an inbox after a cursor, however old. When that is already consumed, an older match is
    /// never used in its place.
    pub async fn consume_latest_match(
        &self,
        caller: &Caller,
        inbox: InboxId,
        query: &ArtifactQuery,
        (purpose, after): (String, EventCursor),
        keyed_call: Option<KeyedCall>,
    ) -> Result<Artifact, Problem> {
        self.inboxes.inbox(caller, inbox).await?;
        let after = self.ctx.seq_of(Some(after))?;
        let matches = self.matching_artifacts(caller, inbox, query, (after, &|_| true)).await?;
        let best = matches.first().ok_or_else(|| no_match(query))?;
        self.consume(caller, best.id, purpose, None, keyed_call).await
    }

    /// The artifacts that match, those of the latest messages first. Searches on until one of them is enough.
    pub(crate) async fn matching_artifacts(
        &self,
        caller: &Caller,
        inbox: InboxId,
        query: &ArtifactQuery,
        (after, is_enough): (u64, &(dyn Fn(&Artifact) -> bool + Sync)),
    ) -> Result<Vec<Artifact>, Problem> {
        let (mut limit, mut searched, mut matches) = (FIRST_SCAN, 0, Vec::new());
        loop {
            let all = self.ctx.store.artifacts(caller.team.id, inbox, Some(query.kind), after, limit).await;
            let all = all.map_err(unavailable)?;
            let found = all.len();
            for artifact in all.into_iter().skip(searched) {
                if self.matches_artifact_query(caller, &artifact, query).await? {
                    matches.push(artifact);
                }
            }
            if matches.iter().any(is_enough) || found < limit || limit >= MAX_SCAN {
                return Ok(matches);
            }
            (searched, limit) = (found, limit * 2);
        }
    }

    /// What the consumer took and has not reported as used, in the place of what matches: a repeat gets it again. Also
    /// returns all that it has.
    pub(super) async fn held_match(
        &self,
        caller: &Caller,
        inbox: InboxId,
        (query, purpose): (&ArtifactQuery, &str),
        after: u64,
    ) -> Result<(Option<Artifact>, HeldArtifacts), Problem> {
        let held = self.ctx.store.held_artifacts(caller.team.id, inbox, query.kind, after, purpose).await;
        let held = held.map_err(unavailable)?;
        let known = held.iter().map(|artifact| artifact.id).collect();
        let mut own = None;
        for artifact in held.into_iter().filter(|artifact| artifact.applied_at.is_none()) {
            if self.matches_artifact_query(caller, &artifact, query).await? {
                own = Some(artifact);
                break;
            }
        }
        Ok((own, HeldArtifacts { after, known }))
    }

    async fn matches_artifact_query(
        &self,
        caller: &Caller,
        artifact: &Artifact,
        artifact_query: &ArtifactQuery,
    ) -> Result<bool, Problem> {
        let from = artifact_query.from.as_ref().map(|from| from.to_ascii_lowercase());
        let is_from = |from: &String| {
            artifact.sender == *from || (from.starts_with('@') && artifact.sender.ends_with(from.as_str()))
        };
        if !from.as_ref().is_none_or(is_from) {
            return Ok(false);
        }
        // Without a condition on an unauthenticated sender or the subject, the message need not be read.
        let is_sender_proven = from.is_none() || artifact.authenticated;
        if is_sender_proven && artifact_query.subject.is_none() {
            return Ok(true);
        }
        // The subject of the latest message that contains the artifact decides.
        let query = MessageQuery {
            position: MessagePosition::After(artifact.seq.saturating_sub(1)),
            limit: 1,
            ..MessageQuery::default()
        };
        let page = self.ctx.store.messages(caller.team.id, artifact.inbox, query).await.map_err(unavailable)?;
        let Some(message) = page.rows.first().filter(|message| message.seq == artifact.seq) else { return Ok(false) };
        let contains = |subject: &String| message.head.subject.to_lowercase().contains(&subject.to_lowercase());
        Ok((is_sender_proven || !message.head.auth.is_fail()) && artifact_query.subject.as_ref().is_none_or(contains))
    }

    /// Records that the consumer of an artifact has used it.
    pub async fn mark_applied(&self, caller: &Caller, id: ArtifactId, purpose: &str) -> Result<Artifact, Problem> {
        self.artifact(caller, id).await?;
        match self
            .ctx
            .store
            .mark_artifact_applied(caller.team.id, id, purpose, self.ctx.now())
            .await
            .map_err(unavailable)?
        {
            MarkAppliedResult::Done(artifact) => {
                self.ctx.metrics.record_artifact("applied");
                self.inboxes.decrypt_artifact(artifact)
            }
            MarkAppliedResult::NotYours(artifact) if artifact.consumption.is_none() => {
                Err(Problem::new(Code::NotConsumed, "this artifact has not been consumed yet; consume it first"))
            }
            MarkAppliedResult::NotYours(artifact) => Err(already_consumed(&artifact)),
            MarkAppliedResult::Missing => Err(artifact_not_found(id)),
        }
    }

    /// Starts a watch.
    pub async fn create_watch(
        &self,
        caller: &Caller,
        inbox: InboxId,
        request: WatchRequest,
        keyed_call: Option<KeyedCall>,
    ) -> Result<CreateOutcome<Watch>, Problem> {
        self.inboxes.inbox(caller, inbox).await?;
        let now = self.ctx.now();
        let watch = Watch {
            id: WatchId(self.ctx.new_id(now)),
            team: caller.team.id,
            inbox,
            rev: 1,
            started_at: now,
            after_seq: 0,
            deadline: now.plus(request.duration_ms),
            resend_budget: request.resend_budget,
            resends_used: 0,
            require_auth: request.require_auth,
        };
        let operation = operation(caller, keyed_call.as_ref(), watch.id.0.as_bytes().to_vec(), now);
        match self.ctx.store.create_watch(watch, operation).await.map_err(unavailable)? {
            IdempotentResult::Done(Some(watch)) => Ok(CreateOutcome { value: watch, is_new: true }),
            IdempotentResult::Done(None) => Err(crate::inbox::inboxes::inbox_not_found(inbox)),
            IdempotentResult::Replayed(answer) => {
                let id = Uuid::from_slice(&answer).map_err(|_bytes| watch_not_found("of this key"))?;
                Ok(CreateOutcome { value: self.watch(caller, WatchId(id)).await?, is_new: false })
            }
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }

    /// One watch at an inbox that the caller may use.
    pub async fn watch(&self, caller: &Caller, id: WatchId) -> Result<Watch, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        let found = self.ctx.store.watch_of(caller.team.id, id).await.map_err(unavailable)?;
        let watch = found.ok_or_else(|| watch_not_found(id))?;
        self.inboxes.inbox(caller, watch.inbox).await.map_err(|_not_theirs| watch_not_found(id))?;
        Ok(watch)
    }

    /// A watch, which must belong to this inbox.
    pub(crate) async fn watch_of_inbox(&self, caller: &Caller, id: WatchId, inbox: InboxId) -> Result<Watch, Problem> {
        let watch = self.watch(caller, id).await?;
        if watch.inbox == inbox { Ok(watch) } else { Err(watch_not_found(id)) }
    }

    /// Spends one of a watch's resends.
    pub async fn spend_resend(
        &self,
        caller: &Caller,
        id: WatchId,
        keyed_call: Option<KeyedCall>,
    ) -> Result<Watch, Problem> {
        self.watch(caller, id).await?;
        let now = self.ctx.now();
        let operation = operation(caller, keyed_call.as_ref(), Vec::new(), now);
        match self.ctx.store.spend_resend(caller.team.id, id, operation, now).await.map_err(unavailable)? {
            IdempotentResult::Done(SpendResendResult::Spent(watch)) => Ok(watch),
            IdempotentResult::Done(SpendResendResult::BudgetSpent(watch)) => {
                let detail = format!("this watch has used all of its {} resends", watch.resend_budget);
                Err(Problem::new(Code::BudgetSpent, detail))
            }
            IdempotentResult::Done(SpendResendResult::WatchEnded(watch)) => {
                Err(Problem::new(Code::WatchOver, format!("this watch ended at {}", watch.deadline)))
            }
            IdempotentResult::Done(SpendResendResult::Missing) => Err(watch_not_found(id)),
            IdempotentResult::Replayed(_) => self.watch(caller, id).await,
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }
}

fn watch_not_found(id: impl std::fmt::Display) -> Problem {
    Problem::new(Code::NotFound, format!("there is no watch {id}"))
}

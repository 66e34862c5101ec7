//! Artifacts (codes and links found in messages) and watches (runs of agents that wait for mail).

use mailonce_core::{
    events::event::EventKind,
    id::{ArtifactId, InboxId, TeamId, WatchId},
    inbox::{
        artifact::{Artifact, ArtifactKind, ConsumeRequest, ConsumeResult, MarkAppliedResult},
        watch::{ImplicitWatch, SpendResendResult, Watch},
    },
    mutant,
    operation::{IdempotentResult, KeyedOperation},
    time::Time,
};
use std::cmp::Reverse;

use crate::memory::{Tables, inbound::tables::InboundTables};

impl Tables {
    pub(crate) fn consume_artifact(
        &mut self,
        team: TeamId,
        id: ArtifactId,
        taking: ConsumeRequest,
        operation: Option<&KeyedOperation>,
        now: Time,
    ) -> IdempotentResult<ConsumeResult> {
        if let Some(answer) = operation.and_then(|operation| self.outbound.find_replay(operation, now)) {
            return answer;
        }
        let Some(artifact) = self.inbound.artifact(team, id) else {
            return IdempotentResult::Done(ConsumeResult::Missing);
        };
        if let Some(held_before) = &taking.held_before {
            let place = (team, artifact.inbox);
            let held = self.inbound.held_artifacts(place, artifact.kind, held_before.after, &taking.purpose);
            if let Some(other) = held_before.concurrently_taken(held) {
                return IdempotentResult::Done(ConsumeResult::TookMeanwhile(other));
            }
        }
        let taken = artifact.into_consume_result(taking, now);
        if let (ConsumeResult::First(artifact), false) = (&taken, mutant!("take-unsaved")) {
            self.save_artifact(artifact, EventKind::ArtifactConsumed, now);
        }
        if let (Some(operation), ConsumeResult::First(_) | ConsumeResult::Replayed(_)) = (operation, &taken) {
            self.outbound.bind_operation(operation);
        }
        IdempotentResult::Done(taken)
    }

    pub(crate) fn mark_artifact_applied(
        &mut self,
        team: TeamId,
        id: ArtifactId,
        purpose: &str,
        now: Time,
    ) -> MarkAppliedResult {
        let Some(artifact) = self.inbound.artifact(team, id) else { return MarkAppliedResult::Missing };
        let (applied, changed) = artifact.mark_applied(purpose, now);
        if let (MarkAppliedResult::Done(artifact), true) = (&applied, changed) {
            self.save_artifact(artifact, EventKind::ArtifactApplied, now);
        }
        applied
    }

    fn save_artifact(&mut self, artifact: &Artifact, kind: EventKind, now: Time) {
        self.events.log.entry(artifact.team).or_default().push(artifact.to_event(kind, now));
        self.inbound.artifacts.entry(artifact.id).and_modify(|(_, known)| *known = artifact.clone());
    }

    pub(crate) fn create_watch(
        &mut self,
        mut watch: Watch,
        operation: Option<&KeyedOperation>,
    ) -> IdempotentResult<Option<Watch>> {
        if let Some(answer) = operation.and_then(|operation| self.outbound.find_replay(operation, watch.started_at)) {
            return answer;
        }
        if let Some(before) = self.inbound.watch_of(watch.team, watch.id) {
            // The same id: this call is a retry.
            return IdempotentResult::Done(Some(before));
        }
        let Some(inbox) = self.inbound.inbox(watch.team, watch.inbox) else { return IdempotentResult::Done(None) };
        watch.after_seq = inbox.latest_seq;
        self.reserve_id(watch.id.0);
        self.inbound.watches.insert(watch.id, watch.clone());
        if let Some(operation) = operation {
            self.outbound.bind_operation(operation);
        }
        IdempotentResult::Done(Some(watch))
    }

    pub(crate) fn spend_resend(
        &mut self,
        team: TeamId,
        id: WatchId,
        operation: Option<&KeyedOperation>,
        now: Time,
    ) -> IdempotentResult<SpendResendResult> {
        if let Some(answer) = operation.and_then(|operation| self.outbound.find_replay(operation, now)) {
            return answer;
        }
        let Some(watch) = self.inbound.watch_of(team, id) else {
            return IdempotentResult::Done(SpendResendResult::Missing);
        };
        let spent = watch.spend_resend(now);
        if let SpendResendResult::Spent(watch) = &spent {
            self.inbound.watches.insert(watch.id, watch.clone());
            if let Some(operation) = operation {
                self.outbound.bind_operation(operation);
            }
        }
        IdempotentResult::Done(spent)
    }
}

impl InboundTables {
    pub(crate) fn artifact(&self, team: TeamId, id: ArtifactId) -> Option<Artifact> {
        self.artifacts.get(&id).map(|(_, artifact)| artifact).filter(|artifact| artifact.team == team).cloned()
    }

    pub(crate) fn artifacts(
        &self,
        team: TeamId,
        inbox: InboxId,
        kind: Option<ArtifactKind>,
        after: u64,
        limit: usize,
    ) -> Vec<Artifact> {
        let wanted = |artifact: &&Artifact| {
            artifact.team == team
                && artifact.inbox == inbox
                && artifact.seq > after
                && kind.is_none_or(|kind| artifact.kind == kind)
        };
        let all = self.artifacts.values().map(|(_, artifact)| artifact);
        let mut found: Vec<Artifact> = all.filter(wanted).cloned().collect();
        found.sort_by_key(|artifact| (Reverse(artifact.seq), artifact.id));
        found.truncate(limit);
        found
    }

    pub(crate) fn held_artifacts(
        &self,
        (team, inbox): (TeamId, InboxId),
        kind: ArtifactKind,
        after: u64,
        purpose: &str,
    ) -> Vec<Artifact> {
        let mut held = self.artifacts(team, inbox, Some(kind), after, usize::MAX);
        held.retain(|artifact| artifact.is_held_by(purpose));
        held
    }

    pub(crate) fn touch_implicit_watch(&mut self, watch: ImplicitWatch, now: Time) -> ImplicitWatch {
        self.implicit_watches.retain(|_, other| other.ends_at > now);
        let key = (watch.team, watch.inbox, watch.consumer);
        let watch = watch.continuing(self.implicit_watches.get(&key).copied(), now);
        self.implicit_watches.insert(key, watch);
        watch
    }

    pub(crate) fn watch_of(&self, team: TeamId, id: WatchId) -> Option<Watch> {
        self.watches.get(&id).filter(|watch| watch.team == team).cloned()
    }
}

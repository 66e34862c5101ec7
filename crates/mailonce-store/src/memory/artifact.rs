//! Artifacts and watches: what agents take from messages, and their runs.

use mailonce_core::{
    artifact::{Applied, Artifact, ArtifactKind, Taken, Taking},
    event::Kind,
    id::{ArtifactId, InboxId, TeamId, WatchId},
    mutant,
    port::store::{Once, Operation},
    time::Time,
    watch::{Spent, Watch},
};
use std::cmp::Reverse;

use super::World;

impl World {
    pub(super) fn artifact(&self, team: TeamId, id: ArtifactId) -> Option<Artifact> {
        self.inbound.artifacts.get(&id).map(|(_, artifact)| artifact).filter(|artifact| artifact.team == team).cloned()
    }

    pub(super) fn artifacts(
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
        let all = self.inbound.artifacts.values().map(|(_, artifact)| artifact);
        let mut found: Vec<Artifact> = all.filter(wanted).cloned().collect();
        found.sort_by_key(|artifact| (Reverse(artifact.seq), artifact.id));
        found.truncate(limit);
        found
    }

    pub(super) fn consume(
        &mut self,
        team: TeamId,
        id: ArtifactId,
        taking: Taking,
        operation: Option<&Operation>,
        now: Time,
    ) -> Once<Taken> {
        if let Some(answer) = operation.and_then(|operation| self.repeat_of(operation, now)) {
            return answer;
        }
        let Some(artifact) = self.artifact(team, id) else { return Once::Done(Taken::Missing) };
        let taken = artifact.taken(taking, now);
        if let (Taken::First(artifact), false) = (&taken, mutant!("take-unsaved")) {
            self.save_artifact(artifact, Kind::ArtifactConsumed, now);
        }
        if let (Some(operation), Taken::First(_) | Taken::Again(_)) = (operation, &taken) {
            self.bind_operation(operation);
        }
        Once::Done(taken)
    }

    pub(super) fn apply(&mut self, team: TeamId, id: ArtifactId, purpose: &str, now: Time) -> Applied {
        let Some(artifact) = self.artifact(team, id) else { return Applied::Missing };
        let (applied, changed) = artifact.apply(purpose, now);
        if let (Applied::Done(artifact), true) = (&applied, changed) {
            self.save_artifact(artifact, Kind::ArtifactApplied, now);
        }
        applied
    }

    fn save_artifact(&mut self, artifact: &Artifact, kind: Kind, now: Time) {
        self.events.entry(artifact.team).or_default().push(artifact.told(kind, now));
        self.inbound.artifacts.entry(artifact.id).and_modify(|(_, known)| *known = artifact.clone());
    }

    pub(super) fn create_watch(&mut self, mut watch: Watch, operation: Option<&Operation>) -> Once<Option<Watch>> {
        if let Some(answer) = operation.and_then(|operation| self.repeat_of(operation, watch.started_at)) {
            return answer;
        }
        if let Some(before) = self.watch_of(watch.team, watch.id) {
            // The very same one: this call was made before.
            return Once::Done(Some(before));
        }
        let Some(inbox) = self.inbound.inbox(watch.team, watch.inbox) else { return Once::Done(None) };
        watch.after = inbox.seq;
        self.note_id(watch.id.0);
        self.inbound.watches.insert(watch.id, watch.clone());
        if let Some(operation) = operation {
            self.bind_operation(operation);
        }
        Once::Done(Some(watch))
    }

    pub(super) fn watch_of(&self, team: TeamId, id: WatchId) -> Option<Watch> {
        self.inbound.watches.get(&id).filter(|watch| watch.team == team).cloned()
    }

    pub(super) fn spend(&mut self, team: TeamId, id: WatchId, operation: Option<&Operation>, now: Time) -> Once<Spent> {
        if let Some(answer) = operation.and_then(|operation| self.repeat_of(operation, now)) {
            return answer;
        }
        let Some(watch) = self.watch_of(team, id) else { return Once::Done(Spent::Missing) };
        let spent = watch.spend(now);
        if let Spent::Done(watch) = &spent {
            self.inbound.watches.insert(watch.id, watch.clone());
            if let Some(operation) = operation {
                self.bind_operation(operation);
            }
        }
        Once::Done(spent)
    }
}

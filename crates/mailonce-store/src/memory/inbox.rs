//! Inboxes: making, changing and removing them, and the names by which they are found.

use mailonce_core::{
    id::{InboxId, TeamId},
    inbox::{Inbox, InboxChange, InboxEdit, InboxMade},
    port::store::{Once, Operation},
    time::Time,
};

use super::World;

impl World {
    pub(super) fn create_inbox(&mut self, inbox: Inbox, operation: Option<&Operation>) -> Once<InboxMade> {
        if let Some(answer) = operation.and_then(|operation| self.repeat_of(operation, inbox.created_at)) {
            return answer;
        }
        if let Some(made) = self.inbound.inbox(inbox.team, inbox.id) {
            // The very same one: this call was made before.
            return Once::Done(InboxMade::Made(made.clone()));
        }
        let wanted = |known: &&Inbox| known.team == inbox.team && known.client_id == inbox.client_id;
        if inbox.client_id.is_some()
            && let Some(before) = self.inbound.inboxes.values().find(wanted)
        {
            return Once::Done(InboxMade::Before(before.clone()));
        }
        let names = inbox.names();
        if names.iter().any(|name| !self.is_free(name, inbox.id)) {
            return Once::Done(InboxMade::Taken);
        }
        self.take_names(names, inbox.id);
        self.note_id(inbox.id.0);
        self.inbound.inboxes.insert(inbox.id, inbox.clone());
        if let Some(operation) = operation {
            self.bind_operation(operation);
        }
        Once::Done(InboxMade::Made(inbox))
    }

    fn is_free(&self, name: &str, id: InboxId) -> bool {
        self.inbound.names.get(name).is_none_or(|(owner, _)| *owner == id)
    }

    fn take_names(&mut self, names: Vec<String>, id: InboxId) {
        self.inbound.names.extend(names.into_iter().map(|name| (name, (id, true))));
    }

    pub(super) fn inbox_at(&self, places: &[String]) -> Option<Inbox> {
        let (id, reaches) = places.iter().find_map(|place| self.inbound.names.get(place))?;
        self.inbound.inboxes.get(id).filter(|_| *reaches).cloned()
    }

    pub(super) fn team_at(&self, places: &[String]) -> Option<TeamId> {
        let (id, _) = places.iter().find_map(|place| self.inbound.names.get(place))?;
        let there = self.inbound.inboxes.get(id).map(|inbox| inbox.team);
        there.or_else(|| self.inbound.removed.get(id).copied())
    }

    pub(super) fn inboxes(&self, team: TeamId, before: Option<InboxId>, limit: usize) -> Vec<Inbox> {
        let listed = |inbox: &&Inbox| inbox.team == team && before.is_none_or(|before| inbox.id < before);
        self.inbound.inboxes.values().rev().filter(listed).take(limit).cloned().collect()
    }

    pub(super) fn change_inbox(
        &mut self,
        edit: InboxEdit,
        operation: Option<&Operation>,
        now: Time,
    ) -> Once<InboxChange> {
        if let Some(answer) = operation.and_then(|operation| self.repeat_of(operation, now)) {
            return answer;
        }
        let Some(inbox) = self.inbound.inbox(edit.team, edit.id) else { return Once::Done(InboxChange::Missing) };
        if inbox.rev != edit.rev {
            return Once::Done(InboxChange::Stale(inbox.clone()));
        }
        let edited = edit.of(inbox);
        let id = edited.inbox.id;
        if edited.takes.iter().any(|name| !self.is_free(name, id)) {
            return Once::Done(InboxChange::Taken);
        }
        if let Some(name) = edited.frees {
            self.inbound.names.remove(&name);
        }
        if let Some(name) = edited.retires {
            self.inbound.names.insert(name, (id, false));
        }
        self.take_names(edited.takes, id);
        self.inbound.inboxes.insert(id, edited.inbox.clone());
        if let Some(operation) = operation {
            self.bind_operation(operation);
        }
        Once::Done(InboxChange::Changed(edited.inbox))
    }

    /// Removes an inbox with everything in it; its deliveries go with the next sweeps.
    pub(super) fn remove_inbox(&mut self, team: TeamId, id: InboxId) -> Option<Inbox> {
        self.inbound.inbox(team, id)?;
        let inbound = &mut self.inbound;
        inbound.messages.retain(|_, message| message.inbox != id);
        inbound.artifacts.retain(|_, (_, artifact)| artifact.inbox != id);
        inbound.watches.retain(|_, watch| watch.inbox != id);
        inbound.known.retain(|(inbox, _), _| *inbox != id);
        inbound.threads.retain(|(inbox, _), _| *inbox != id);
        inbound.removed.insert(id, team);
        let removed = inbound.inboxes.remove(&id);
        self.forget_threads(id);
        removed
    }
}

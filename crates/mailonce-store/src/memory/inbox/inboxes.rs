//! Inboxes: creating, changing and removing them, and the addresses that lead to them.

use mailonce_core::{
    control::{audit::act::Act, erasure::AddressEraser},
    id::{InboxId, TeamId},
    inbox::{CreateInboxResult, Inbox, InboxChangeResult, InboxEdit},
    operation::{IdempotentResult, KeyedOperation},
    time::Time,
};

use crate::memory::{Tables, inbound::tables::InboundTables};

impl InboundTables {
    /// Replaces the address in the names and the metadata of a team's inboxes. Returns in how many.
    pub(crate) fn redact_inboxes(&mut self, eraser: &AddressEraser) -> usize {
        let ours = self.inboxes.values_mut().filter(|inbox| inbox.team == eraser.team);
        ours.filter_map(|inbox| inbox.settings.redact(eraser).then(|| inbox.rev += 1)).count()
    }
}

impl Tables {
    pub(crate) fn create_inbox(
        &mut self,
        inbox: Inbox,
        operation: Option<&KeyedOperation>,
    ) -> IdempotentResult<CreateInboxResult> {
        if let Some(answer) = operation.and_then(|operation| self.outbound.find_replay(operation, inbox.created_at)) {
            return answer;
        }
        if let Some(made) = self.inbound.inbox(inbox.team, inbox.id) {
            // The same id: this call is a retry.
            return IdempotentResult::Done(CreateInboxResult::Created(made.clone()));
        }
        let wanted = |known: &&Inbox| known.team == inbox.team && known.client_id == inbox.client_id;
        if inbox.client_id.is_some()
            && let Some(before) = self.inbound.inboxes.values().find(wanted)
        {
            return IdempotentResult::Done(CreateInboxResult::AlreadyExists(before.clone()));
        }
        let names = inbox.lookup_addresses();
        if names.iter().any(|name| !self.inbound.is_address_free(name, inbox.id)) {
            return IdempotentResult::Done(CreateInboxResult::AddressTaken);
        }
        self.inbound.claim_addresses(names, inbox.id);
        self.reserve_id(inbox.id.0);
        self.inbound.inboxes.insert(inbox.id, inbox.clone());
        if let Some(operation) = operation {
            self.outbound.bind_operation(operation);
        }
        self.record_act(Act::of_inbox(None, Some(&inbox)), inbox.created_at);
        IdempotentResult::Done(CreateInboxResult::Created(inbox))
    }

    pub(crate) fn change_inbox(
        &mut self,
        edit: InboxEdit,
        operation: Option<&KeyedOperation>,
        now: Time,
    ) -> IdempotentResult<InboxChangeResult> {
        if let Some(answer) = operation.and_then(|operation| self.outbound.find_replay(operation, now)) {
            return answer;
        }
        let Some(inbox) = self.inbound.inbox(edit.team, edit.id) else {
            return IdempotentResult::Done(InboxChangeResult::Missing);
        };
        if inbox.rev != edit.rev {
            return IdempotentResult::Done(InboxChangeResult::Stale(inbox.clone()));
        }
        let before = inbox.clone();
        let edited = edit.plan_for(inbox);
        let id = edited.inbox.id;
        if edited.claimed_addresses.iter().any(|name| !self.inbound.is_address_free(name, id)) {
            return IdempotentResult::Done(InboxChangeResult::AddressTaken);
        }
        if let Some(name) = edited.freed_catch_all {
            self.inbound.addresses.remove(&name);
        }
        if let Some(name) = edited.retired_address {
            self.inbound.addresses.insert(name, (id, false));
        }
        self.inbound.claim_addresses(edited.claimed_addresses, id);
        self.inbound.inboxes.insert(id, edited.inbox.clone());
        if let Some(operation) = operation {
            self.outbound.bind_operation(operation);
        }
        self.record_act(Act::of_inbox(Some(&before), Some(&edited.inbox)), now);
        IdempotentResult::Done(InboxChangeResult::Changed(edited.inbox))
    }

    /// Removes an inbox with everything in it. The next sweeps delete its deliveries.
    pub(crate) fn remove_inbox(&mut self, team: TeamId, id: InboxId, now: Time) -> Option<Inbox> {
        self.inbound.inbox(team, id)?;
        let inbound = &mut self.inbound;
        inbound.messages.retain(|_, message| message.inbox != id);
        inbound.artifacts.retain(|_, (_, artifact)| artifact.inbox != id);
        inbound.watches.retain(|_, watch| watch.inbox != id);
        inbound.messages_by_message_id.retain(|(inbox, _), _| *inbox != id);
        inbound.threads_by_message_id.retain(|(inbox, _), _| *inbox != id);
        inbound.removed_inboxes.insert(id, team);
        let removed = inbound.inboxes.remove(&id);
        self.conversations.remove_threads_of_inbox(id);
        self.record_act(Act::of_inbox(removed.as_ref(), None), now);
        self.erase_from_search();
        removed
    }
}

impl InboundTables {
    pub(crate) fn is_address_free(&self, name: &str, id: InboxId) -> bool {
        self.addresses.get(name).is_none_or(|(owner, _)| *owner == id)
    }

    pub(crate) fn claim_addresses(&mut self, names: Vec<String>, id: InboxId) {
        self.addresses.extend(names.into_iter().map(|name| (name, (id, true))));
    }

    pub(crate) fn inbox_by_address(&self, places: &[String]) -> Option<Inbox> {
        let (id, reaches) = places.iter().find_map(|place| self.addresses.get(place))?;
        self.inboxes.get(id).filter(|_| *reaches).cloned()
    }

    pub(crate) fn team_by_address(&self, places: &[String]) -> Option<TeamId> {
        let (id, _) = places.iter().find_map(|place| self.addresses.get(place))?;
        let there = self.inboxes.get(id).map(|inbox| inbox.team);
        there.or_else(|| self.removed_inboxes.get(id).copied())
    }

    pub(crate) fn inboxes(&self, team: TeamId, before: Option<InboxId>, limit: usize) -> Vec<Inbox> {
        let listed = |inbox: &&Inbox| inbox.team == team && before.is_none_or(|before| inbox.id < before);
        self.inboxes.values().rev().filter(listed).take(limit).cloned().collect()
    }
}

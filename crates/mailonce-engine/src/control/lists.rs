//! Allow and block lists of a team: their entries, and the checks of received and sent mail against them.

use crate::{
    access::caller::Caller,
    control::Control,
    runtime::{
        problems::unavailable,
        records::{self, CreateOutcome},
    },
};
use mailonce_core::{
    access::team::ApiKeyScope,
    address::{Address, NamedAddress},
    control::{
        erasure::is_alias,
        list::{ListDirection, ListEntry, ListName, ListType, list_refusal, normalize_entry},
    },
    id::{InboxId, TeamId},
    inbound::sender_auth::SenderAuth,
    inbox::Inbox,
    operation::IdempotentResult,
    outbound::content::EmailContent,
    ports::store::StoreError,
    problem::{Code, Problem},
    record::{CreateRecordResult, Record, RecordKind},
};
use std::sync::Arc;

/// The most entries on all lists of a team.
pub(crate) const MAX_ENTRIES: usize = 1_000;
/// The longest reason, in characters.
const REASON_CHARS: usize = 500;

fn entry_not_found(entry: &str) -> Problem {
    Problem::new(Code::NotFound, format!("there is no entry {entry} on this list"))
}

/// Refuses access to a list when the API key is restricted to inboxes, unless it is a list of one of them.
fn require_list_access(caller: &Caller, list: &ListName) -> Result<(), Problem> {
    match &list.inbox {
        Some((inbox, _)) if caller.may_access_inboxes(&[*inbox]) => Ok(()),
        _ => caller.require_unrestricted_key(),
    }
}

impl Control {
    /// Adds an address or a domain to a list.
    pub async fn add_to_list(
        &self,
        caller: &Caller,
        list: ListName,
        entry: &str,
        (reason, require_auth): (Option<String>, bool),
    ) -> Result<CreateOutcome<ListEntry>, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        require_list_access(caller, &list)?;
        if require_auth && (list.kind != ListType::Allow || list.direction == ListDirection::Send) {
            return Err(Problem::invalid_field(
                "require_auth",
                "is only possible on the allow lists for received mail: receive and reply",
            ));
        }
        let entry =
            normalize_entry(entry).ok_or_else(|| Problem::invalid_field("entry", "must be an address or a domain"))?;
        // An entry with a wildcard would count as an address that never matches.
        if entry.contains('*') {
            return Err(Problem::invalid_field(
                "entry",
                "must be an address or a domain without `*`; a domain alone matches every address there",
            ));
        }
        if reason.as_deref().is_some_and(|reason| reason.chars().count() > REASON_CHARS) {
            return Err(Problem::invalid_field("reason", format!("must have at most {REASON_CHARS} characters")));
        }
        let (team, kind, now) = (caller.team.id, RecordKind::ListEntry, self.ctx.now());
        if self.list_entries_of_team(team).await.map_err(unavailable)?.len() >= MAX_ENTRIES {
            return Err(Problem::invalid_field("entry", "is one too many: a team can have at most 1,000 list entries"));
        }
        let name = list.record_name(&entry);
        let new_entry = ListEntry { list, entry, reason, created_at: now, require_auth };
        let id = self.ctx.new_id(now);
        let record = Record { team, kind, id, name, rev: 1, created_at: now, json: records::encode(&new_entry)? };
        let created = self.ctx.store.create_record(record, None).await.map_err(unavailable)?;
        self.record_caches.lists.invalidate(team);
        match created {
            IdempotentResult::Done(CreateRecordResult::Created(_)) => {
                Ok(CreateOutcome { value: new_entry, is_new: true })
            }
            IdempotentResult::Done(CreateRecordResult::NameTaken(record)) => {
                Ok(CreateOutcome { value: records::decode(&record)?, is_new: false })
            }
            // Impossible: the call has no idempotency key.
            IdempotentResult::Replayed(_) | IdempotentResult::KeyMismatch(_) => Err(entry_not_found(&new_entry.entry)),
        }
    }

    /// The entries of a list, sorted.
    pub async fn list_entries(&self, caller: &Caller, list: &ListName) -> Result<Vec<ListEntry>, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        require_list_access(caller, list)?;
        let all = self.list_entries_of_team(caller.team.id).await.map_err(unavailable)?;
        let mut entries: Vec<ListEntry> = all.iter().filter(|entry| entry.list == *list).cloned().collect();
        entries.sort_by(|one, other| one.entry.cmp(&other.entry));
        Ok(entries)
    }

    /// One entry of a list.
    pub async fn list_entry(&self, caller: &Caller, list: &ListName, entry: &str) -> Result<ListEntry, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        require_list_access(caller, list)?;
        records::decode(&self.entry_record(caller, list, entry).await?)
    }

    async fn entry_record(&self, caller: &Caller, list: &ListName, entry: &str) -> Result<Record, Problem> {
        let normalized = normalize_entry(entry).ok_or_else(|| entry_not_found(entry))?;
        let name = list.record_name(&normalized);
        let found = self.ctx.store.record_by_name(caller.team.id, RecordKind::ListEntry, &name).await;
        found.map_err(unavailable)?.ok_or_else(|| entry_not_found(entry))
    }

    /// Removes an entry from a list.
    pub async fn remove_from_list(&self, caller: &Caller, list: &ListName, entry: &str) -> Result<ListEntry, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        require_list_access(caller, list)?;
        let record = self.entry_record(caller, list, entry).await?;
        let removed = self.ctx.store.remove_record(caller.team.id, RecordKind::ListEntry, record.id).await;
        self.record_caches.lists.invalidate(caller.team.id);
        records::decode(&removed.map_err(unavailable)?.ok_or_else(|| entry_not_found(entry))?)
    }

    /// All entries of a team's lists.
    async fn list_entries_of_team(&self, team: TeamId) -> Result<Arc<[ListEntry]>, StoreError> {
        let read = |record: Record| serde_json::from_str(&record.json);
        self.cached_records(&self.record_caches.lists, team, read, |_| {}).await
    }

    /// All entries of a team's lists, with these addresses in the place of their aliases.
    async fn list_entries_for(
        &self,
        team: TeamId,
        addresses: impl IntoIterator<Item = &str>,
    ) -> Result<Arc<[ListEntry]>, StoreError> {
        let entries = self.list_entries_of_team(team).await?;
        if !entries.iter().any(|entry| is_alias(&entry.entry)) {
            return Ok(entries);
        }
        let addresses = self.addresses_by_alias(team, addresses);
        let with_address = |entry: &ListEntry| {
            let known = addresses.get(&entry.entry).map(ToString::to_string);
            ListEntry { entry: known.unwrap_or_else(|| entry.entry.clone()), ..entry.clone() }
        };
        Ok(entries.iter().map(with_address).collect())
    }

    /// Whether a list refuses a received mail.
    pub(crate) async fn is_arrival_blocked(
        &self,
        inbox: &Inbox,
        (from, auth): (Option<&str>, &SenderAuth),
        is_reply: bool,
    ) -> Result<bool, StoreError> {
        let entries = self.list_entries_for(inbox.team, from).await?;
        let direction = if is_reply { ListDirection::Reply } else { ListDirection::Receive };
        let is_inbox = |(id, _): &(InboxId, String)| *id == inbox.id;
        let is_refused = |sender: &str| list_refusal(&entries, direction, is_inbox, (sender, auth.is_pass())).is_some();
        // A forged sender address must not pass an allow list, so the mail is also checked without a sender.
        Ok(is_refused(from.unwrap_or_default()) || (auth.is_fail() && is_refused("")))
    }

    /// Refuses an email to a recipient that a list blocks.
    pub(crate) async fn check_lists(&self, team: TeamId, content: &EmailContent) -> Result<(), Problem> {
        let recipients: Vec<Address> =
            [&content.to, &content.cc, &content.bcc].into_iter().flatten().map(NamedAddress::to_address).collect();
        let entries = self.list_entries_for(team, recipients.iter().map(Address::as_str)).await.map_err(unavailable)?;
        if entries.is_empty() {
            return Ok(());
        }
        let from = content.from.to_address();
        let is_inbox = |(_, address): &(InboxId, String)| address == from.as_str();
        for (field, recipients) in [("to", &content.to), ("cc", &content.cc), ("bcc", &content.bcc)] {
            for (index, to) in recipients.iter().enumerate() {
                let address = to.to_address();
                if let Some(why) = list_refusal(&entries, ListDirection::Send, is_inbox, (address.as_str(), true)) {
                    let problem = Problem::for_field(Code::BlockedByRule, format!("{field}[{index}]"), why);
                    return Err(problem.with_extension("recipient", address.as_str()));
                }
            }
        }
        Ok(())
    }
}

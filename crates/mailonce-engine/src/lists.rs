//! Allow and block lists of a team: who is on them, and what they stop.

use mailonce_core::{
    content::Content,
    id::{InboxId, TeamId},
    inbox::Inbox,
    list::{ListDirection, ListEntry, ListName, ListType, entry_form, stopped},
    port::{
        authenticate::Auth,
        store::{Once, StoreError},
    },
    problem::{Code, Problem},
    record::{Created, Record, RecordKind},
    team::Scope,
};
use std::sync::Arc;

use crate::{Caller, Engine, fault, records, records::Made, unavailable};

/// Entries of one team.
pub(crate) const ENTRIES: usize = 1_000;
/// Characters of a reason.
const REASON_CHARS: usize = 500;

fn missing(entry: &str) -> Problem {
    Problem::new(Code::NotFound, format!("there is no entry {entry} on this list"))
}

/// Refuses a key that is tied to inboxes on every list but those of its inboxes.
fn need_inbox_of(caller: &Caller, list: &ListName) -> Result<(), Problem> {
    match &list.inbox {
        Some((inbox, _)) if caller.covers(&[*inbox]) => Ok(()),
        _ => caller.need_whole_team(),
    }
}

impl Engine {
    /// Puts somebody on a list.
    pub async fn add_to_list(
        &self,
        caller: &Caller,
        list: ListName,
        entry: &str,
        (reason, require_auth): (Option<String>, bool),
    ) -> Result<Made<ListEntry>, Problem> {
        caller.need(Scope::Admin)?;
        need_inbox_of(caller, &list)?;
        if require_auth && (list.kind != ListType::Allow || list.direction == ListDirection::Send) {
            return Err(fault("require_auth", "is only for allow lists of mail that comes in: receive and reply"));
        }
        let entry = entry_form(entry).ok_or_else(|| fault("entry", "is an address or a domain"))?;
        // It would be taken for an address, at which nobody is.
        if entry.contains('*') {
            return Err(fault(
                "entry",
                "is an address or a domain, and a domain alone is everybody there: no `*` is needed",
            ));
        }
        if reason.as_deref().is_some_and(|reason| reason.chars().count() > REASON_CHARS) {
            return Err(fault("reason", "is too long"));
        }
        let (team, kind, now) = (caller.team.id, RecordKind::ListEntry, self.now());
        if self.lists_of(team).await.map_err(unavailable)?.len() >= ENTRIES {
            return Err(fault("entry", "is one too many: a team has at most 1,000 entries on its lists"));
        }
        let name = list.record_name(&entry);
        let about = ListEntry { list, entry, reason, created_at: now, require_auth };
        let id = self.new_id(now);
        let record = Record { team, kind, id, name, rev: 1, created_at: now, about: records::write(&about)? };
        let made = self.store.create_record(record, None).await.map_err(unavailable)?;
        self.caches.lists.forget(team);
        match made {
            Once::Done(Created::Made(_)) => Ok(Made { thing: about, first: true }),
            Once::Done(Created::Taken(record)) => Ok(Made { thing: records::read(&record)?, first: false }),
            // No key was given.
            Once::Repeated(_) | Once::Mismatch(_) => Err(missing(&about.entry)),
        }
    }

    /// Who is on a list, in the order of their names.
    pub async fn list_entries(&self, caller: &Caller, list: &ListName) -> Result<Vec<ListEntry>, Problem> {
        caller.need(Scope::Read)?;
        need_inbox_of(caller, list)?;
        let all = self.lists_of(caller.team.id).await.map_err(unavailable)?;
        let mut entries: Vec<ListEntry> = all.iter().filter(|entry| entry.list == *list).cloned().collect();
        entries.sort_by(|one, other| one.entry.cmp(&other.entry));
        Ok(entries)
    }

    /// One entry of a list.
    pub async fn list_entry(&self, caller: &Caller, list: &ListName, entry: &str) -> Result<ListEntry, Problem> {
        caller.need(Scope::Read)?;
        need_inbox_of(caller, list)?;
        records::read(&self.entry_record(caller, list, entry).await?)
    }

    async fn entry_record(&self, caller: &Caller, list: &ListName, entry: &str) -> Result<Record, Problem> {
        let form = entry_form(entry).ok_or_else(|| missing(entry))?;
        let name = list.record_name(&form);
        let found = self.store.record_named(caller.team.id, RecordKind::ListEntry, &name).await;
        found.map_err(unavailable)?.ok_or_else(|| missing(entry))
    }

    /// Takes somebody off a list.
    pub async fn remove_from_list(&self, caller: &Caller, list: &ListName, entry: &str) -> Result<ListEntry, Problem> {
        caller.need(Scope::Admin)?;
        need_inbox_of(caller, list)?;
        let record = self.entry_record(caller, list, entry).await?;
        let removed = self.store.remove_record(caller.team.id, RecordKind::ListEntry, record.id).await;
        self.caches.lists.forget(caller.team.id);
        records::read(&removed.map_err(unavailable)?.ok_or_else(|| missing(entry))?)
    }

    /// Everybody on the lists of a team.
    async fn lists_of(&self, team: TeamId) -> Result<Arc<[ListEntry]>, StoreError> {
        let read = |record: Record| serde_json::from_str(&record.about);
        self.cached_records(&self.caches.lists, team, read, |_| {}).await
    }

    /// Whether a list stops mail that came in.
    pub(crate) async fn lists_stop_arrival(
        &self,
        inbox: &Inbox,
        (from, auth): (Option<&str>, &Auth),
        answers_ours: bool,
    ) -> Result<bool, StoreError> {
        let entries = self.lists_of(inbox.team).await?;
        let direction = if answers_ours { ListDirection::Reply } else { ListDirection::Receive };
        let is_inbox = |(id, _): &(InboxId, String)| *id == inbox.id;
        let stops = |sender: &str| stopped(&entries, direction, is_inbox, (sender, auth.is_pass())).is_some();
        // Whoever forged the address of somebody on an allow-list is nobody on it.
        Ok(stops(from.unwrap_or_default()) || (auth.is_fail() && stops("")))
    }

    /// Refuses a mail to somebody whom a list stops.
    pub(crate) async fn check_lists(&self, team: TeamId, content: &Content) -> Result<(), Problem> {
        let entries = self.lists_of(team).await.map_err(unavailable)?;
        if entries.is_empty() {
            return Ok(());
        }
        let from = content.from.bare();
        let is_inbox = |(_, address): &(InboxId, String)| address == from.as_str();
        for (field, boxes) in [("to", &content.to), ("cc", &content.cc), ("bcc", &content.bcc)] {
            for (at, to) in boxes.iter().enumerate() {
                let address = to.bare();
                if let Some(why) = stopped(&entries, ListDirection::Send, is_inbox, (address.as_str(), true)) {
                    let problem = Problem::field(Code::BlockedByRule, format!("{field}[{at}]"), why);
                    return Err(problem.with("recipient", address.as_str()));
                }
            }
        }
        Ok(())
    }
}

//! The tables of emails and of their idempotency keys, as plain maps.

use mailonce_core::{
    commit_clock::CommitClock,
    events::event::{EventKind, NewEvent},
    id::{EmailId, TeamId},
    key::KeyHash,
    mutant,
    outbound::{email::Email, suppressed_call::SuppressedCall},
    time::Time,
};
use std::{collections::BTreeMap, sync::Arc};

use crate::memory::{Tables, outbound::templates::TemplateTable};

/// The row of an idempotency key.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyRow {
    /// How often the key was bound.
    pub(crate) bind_number: u32,
    pub(crate) target: Option<KeyTarget>,
    /// The email to several recipients that occupies this key as a shadow key of one of them.
    pub(crate) slot: Option<EmailId>,
    pub(crate) forgotten_at: Option<Time>,
    /// When the tombstone of an operation expires.
    pub(crate) tombstone_until: Option<Time>,
}

/// What a key is bound to.
#[derive(Clone, Debug)]
pub(crate) enum KeyTarget {
    Email(EmailId),
    Operation { digest: [u8; 32], answer: Vec<u8>, expires_at: Time },
}

/// The tables of emails and keys.
#[derive(Default)]
pub(crate) struct OutboundTables {
    /// Decides which keys count as forgotten.
    pub(crate) time: Arc<CommitClock>,
    pub(crate) keys: BTreeMap<(TeamId, KeyHash), KeyRow>,
    pub(crate) emails: BTreeMap<EmailId, Email>,
    pub(crate) bodies: BTreeMap<EmailId, Vec<u8>>,
    pub(crate) suppressed: BTreeMap<EmailId, Vec<SuppressedCall>>,
    pub(crate) sweep_at: BTreeMap<EmailId, Time>,
    pub(crate) templates: TemplateTable,
}

impl OutboundTables {
    /// The email, if it belongs to this team.
    pub(crate) fn email_of_team(&self, team: TeamId, id: EmailId) -> Option<Email> {
        let theirs = |email: &&Email| email.team == team || mutant!("team-ignored");
        self.emails.get(&id).filter(theirs).cloned()
    }

    pub(crate) fn schedule_sweep(&mut self, email: &Email, now: Time) {
        match email.expiry().next_after(now) {
            Some(at) => self.sweep_at.insert(email.id, at),
            None => self.sweep_at.remove(&email.id),
        };
    }

    /// Releases an email's shadow keys and turns its key into a tombstone. Returns whether the key was bound to it.
    pub(crate) fn release_key_and_slots(&mut self, email: &Email, at: Time) -> bool {
        for slot in email.head.all_shadow_keys(email.team) {
            self.edit_key(email.team, slot, |row| {
                if row.slot == Some(email.id) {
                    row.slot = None;
                }
            });
        }
        let Some(key) = email.head.key.as_ref().map(|name| name.hash(email.team)) else { return false };
        self.edit_key(email.team, key, |row| {
            let bound = matches!(row.target, Some(KeyTarget::Email(id)) if id == email.id);
            if bound {
                row.target = None;
                row.forgotten_at = Some(at);
            }
            bound
        })
        .unwrap_or(false)
    }

    /// Changes the row of a key. Deletes the row if it holds neither a binding nor a shadow key afterwards.
    pub(crate) fn edit_key<T>(&mut self, team: TeamId, key: KeyHash, edit: impl FnOnce(&mut KeyRow) -> T) -> Option<T> {
        let row = self.keys.get_mut(&(team, key))?;
        let answer = edit(row);
        if row.bind_number == 0 && row.slot.is_none() {
            self.keys.remove(&(team, key));
        }
        Some(answer)
    }
}

impl Tables {
    /// Saves a changed email with its event.
    pub(crate) fn save_email(&mut self, email: &Email, event: NewEvent) {
        let team = self.access.teams.keys().next().copied().filter(|_| mutant!("event-to-another-team"));
        if !(mutant!("acceptance-untold") && event.kind == EventKind::EmailAccepted) {
            self.events.log.entry(team.unwrap_or(email.team)).or_default().push(event);
        }
        // The earliest sweep time, even one in the past: an email that is due but not yet swept must stay due.
        self.outbound.schedule_sweep(email, Time(i64::MIN));
        self.outbound.emails.insert(email.id, email.clone());
    }
}

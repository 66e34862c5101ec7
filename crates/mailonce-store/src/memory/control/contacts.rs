//! Contacts: whom a team mailed.

use mailonce_core::{control::contact::ContactHash, id::TeamId};

use crate::memory::control::ControlTables;

impl ControlTables {
    /// Remembers the recipients of an email that leaves.
    pub(crate) fn remember_contacts(&mut self, team: TeamId, contacts: &[ContactHash]) {
        self.contacts.extend(contacts.iter().map(|contact| (team, *contact)));
    }

    pub(crate) fn is_known_contact(&self, team: TeamId, contact: ContactHash) -> bool {
        self.contacts.contains(&(team, contact))
    }
}

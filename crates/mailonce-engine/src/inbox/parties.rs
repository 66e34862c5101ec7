//! The people of a message.

use mailonce_core::{address::NamedAddress, inbox::message::Party, limits};
use mailonce_mail::minimise;
use sha2::Digest as _;

pub(crate) fn party(mailbox: &NamedAddress) -> Party {
    Party { name: mailbox.name.as_deref().map(minimise::sanitize_line), address: mailbox.address.to_ascii_lowercase() }
}

fn parties(mailboxes: &[NamedAddress]) -> Vec<Party> {
    mailboxes.iter().take(limits::RECIPIENTS).map(party).collect()
}

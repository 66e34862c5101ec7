//! Senders and recipients of a received message, as they are stored.

use mailonce_core::{address::NamedAddress, inbox::message::Party, limits};
use mailonce_mail::minimise;

/// A party with a display name that is safe to show and a lowercase address.
pub(crate) fn party(mailbox: &NamedAddress) -> Party {
    Party { name: mailbox.name.as_deref().map(minimise::sanitize_line), address: mailbox.address.to_ascii_lowercase() }
}

/// The parties of an address list, up to the limit of recipients.
pub(crate) fn parties(mailboxes: &[NamedAddress]) -> Vec<Party> {
    mailboxes.iter().take(limits::RECIPIENTS).map(party).collect()
}

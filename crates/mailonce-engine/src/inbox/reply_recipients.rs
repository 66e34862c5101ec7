//! The recipients of a reply to a message. Our own addresses are never among them.

use crate::{
    inbox::{Inboxes, parties::party},
    runtime::{blocking::run_blocking, problems::unavailable},
};
use mailonce_core::{
    address::{Address, NamedAddress},
    id::TeamId,
    inbox::{
        Inbox,
        message::{Message, MessageHead, Party},
    },
    limits,
    ports::store::StoreError,
    problem::Problem,
};
use mailonce_mail::parse;
use std::collections::BTreeSet;

/// The longest subject or display name that is copied from a message, in characters.
const MAX_LINE_CHARS: usize = 900;

/// The recipients of a reply.
pub(crate) struct ReplyRecipients {
    pub(crate) to: Vec<String>,
    pub(crate) cc: Vec<String>,
    /// Those from the Reply-To or From field, as bare addresses.
    pub(crate) requested: Vec<String>,
    /// Whether all recipients are our own addresses. Such a reply is refused.
    pub(crate) is_to_self: bool,
}

/// Formats a name and an address as `"name" <address>`.
pub(crate) fn format_party(name: Option<&str>, address: &str) -> String {
    let name = name.map(sanitize_name).unwrap_or_default();
    if name.is_empty() {
        return address.to_owned();
    }
    format!("\"{}\" <{address}>", name.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Makes a display name safe for a header and cuts it to the limit.
pub(crate) fn sanitize_name(name: &str) -> String {
    sanitize_line(name).trim().chars().take(limits::NAME_CHARS).collect()
}

/// Replaces control characters with spaces and cuts the text to the longest line.
pub(crate) fn sanitize_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_LINE_CHARS).collect()
}

/// The parties to reply to: those in Reply-To, or else in From. Invalid addresses are left out.
pub(crate) fn addressees(head: &MessageHead) -> Vec<&Party> {
    let wanted = if head.reply_to.is_empty() { head.from.as_slice() } else { head.reply_to.as_slice() };
    wanted.iter().filter(|party| is_valid_recipient(party)).collect()
}

fn is_valid_recipient(party: &Party) -> bool {
    NamedAddress::parse(&party.address).is_ok()
}

/// The addresses that stand for the inbox itself.
fn own_addresses(inbox: &Inbox, head: &MessageHead) -> Vec<String> {
    vec![inbox.address.clone(), head.recipient.to_ascii_lowercase()]
}

/// The problem when a reply to all would have too many recipients.
fn too_many_recipients(head: &MessageHead, to: &[Party], cc: &[Party]) -> Problem {
    let people = addressees(head).into_iter().chain(to).chain(cc).filter(|party| is_valid_recipient(party));
    let people: BTreeSet<String> = people.map(|party| party.address.to_ascii_lowercase()).collect();
    let text = format!(
        "is not possible: the message names {} people, and an email can have at most {} recipients; reply without it",
        people.len(),
        limits::RECIPIENTS
    );
    Problem::invalid_field("reply_all", text)
}

impl Inboxes {
    /// Whether an address, without its plus tag, is or was that of an inbox of a team.
    pub(crate) async fn is_inbox_address(&self, team: TeamId, address: &str) -> Result<bool, StoreError> {
        let Ok(address) = Address::parse(address) else { return Ok(false) };
        let mut candidates = mailonce_core::inbox::candidate_addresses(address.as_str());
        // The last candidate is the catch-all. An address that only a catch-all matches doesn't count as ours.
        candidates.pop();
        Ok(self.ctx.store.team_by_address(&candidates).await? == Some(team))
    }

    /// Whether a reply would have a recipient other than ourselves.
    pub(crate) async fn has_reply_recipient(&self, inbox: &Inbox, head: &MessageHead) -> Result<bool, StoreError> {
        let mut known = own_addresses(inbox, head);
        // The sender is not ours, otherwise `own` would be set. So most mails need no query.
        let goes_to_sender = head.own.is_none() && head.reply_to.is_empty();
        if goes_to_sender && addressees(head).iter().any(|party| !known.contains(&party.address)) {
            return Ok(true);
        }
        let others = head.to.iter().chain(&head.cc).filter(|party| is_valid_recipient(party));
        for party in addressees(head).into_iter().chain(others) {
            if self.add_recipient_if_new(inbox.team, &mut known, party).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The recipients of a reply, with all recipients of the message when `all` is set. Our own addresses are left out,
    /// so that a sender cannot make us write to ourselves.
    pub(crate) async fn reply_recipients(
        &self,
        message: &Message,
        inbox: &Inbox,
        all: bool,
    ) -> Result<ReplyRecipients, Problem> {
        let (team, head) = (message.team, &message.head);
        let primary = addressees(head);
        let mut known = own_addresses(inbox, head);
        let (mut to, mut cc, mut requested) = (Vec::new(), Vec::new(), Vec::new());
        for party in &primary {
            if self.add_recipient_if_new(team, &mut known, party).await.map_err(unavailable)? {
                to.push(format_party(party.name.as_deref(), &party.address));
                requested.extend(NamedAddress::parse(&party.address).map(|mailbox| mailbox.to_address().into()));
            }
        }
        let (others, copies) = if all { self.all_recipients(message).await? } else { (Vec::new(), Vec::new()) };
        let candidates = others.iter().map(|party| (party, true)).chain(copies.iter().map(|party| (party, false)));
        for (party, is_to) in candidates.filter(|(party, _)| is_valid_recipient(party)) {
            if !self.add_recipient_if_new(team, &mut known, party).await.map_err(unavailable)? {
                continue;
            }
            let list = if is_to { &mut to } else { &mut cc };
            list.push(format_party(party.name.as_deref(), &party.address));
            if to.len() + cc.len() > limits::RECIPIENTS {
                return Err(too_many_recipients(head, &others, &copies));
            }
        }
        if to.is_empty() {
            to = std::mem::take(&mut cc);
        }
        let is_to_self = to.is_empty();
        if is_to_self && primary.is_empty() {
            return Err(Problem::invalid_field("message", "has no address to reply to"));
        }
        if is_to_self {
            // The caller refuses a reply to ourselves. Until then it needs recipients like any other reply.
            to = primary.iter().map(|party| format_party(party.name.as_deref(), &party.address)).collect();
        }
        Ok(ReplyRecipients { to, cc, requested, is_to_self })
    }

    /// All parties in To and in Cc. The stored lists are limited, so longer ones are parsed from the raw mail.
    pub(crate) async fn all_recipients(&self, message: &Message) -> Result<(Vec<Party>, Vec<Party>), Problem> {
        let head = &message.head;
        let full = |list: &[Party]| list.len() >= limits::RECIPIENTS;
        if (full(&head.to) || full(&head.cc))
            && let Some(raw) = self.raw_bytes(message).await?
            && let Ok(parsed) = run_blocking(move || parse::parse(&raw)).await
        {
            return Ok((parsed.to.iter().map(party).collect(), parsed.cc.iter().map(party).collect()));
        }
        Ok((head.to.clone(), head.cc.clone()))
    }

    /// Adds a party to `known`, unless it is ours or in there already. Returns whether it was added.
    pub(crate) async fn add_recipient_if_new(
        &self,
        team: TeamId,
        known: &mut Vec<String>,
        party: &Party,
    ) -> Result<bool, StoreError> {
        let address = party.address.to_ascii_lowercase();
        if known.contains(&address) || self.is_inbox_address(team, &address).await? {
            return Ok(false);
        }
        known.push(address);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_written_as_they_are_read() {
        for (name, shown) in
            [(Some("Ann"), Some("Ann")), (None, None), (Some("A \"B\" \\C, D"), Some("A \"B\" \\C, D"))]
        {
            let read = NamedAddress::parse(&format_party(name, "ann@x.test")).unwrap();
            assert_eq!((read.name.as_deref(), read.address.as_str()), (shown, "ann@x.test"));
        }
    }
}

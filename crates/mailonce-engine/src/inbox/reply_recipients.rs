//! Who receives a reply to a message. Our own addresses never do.

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
    problem::{FieldError, Problem},
};
use mailonce_mail::parse;
use std::collections::BTreeSet;
/// The longest subject or display name that is copied from a message, in characters.
const MAX_LINE_CHARS: usize = 900;

/// Who gets an answer.
pub(crate) struct ReplyRecipients {
    pub(crate) to: Vec<String>,
    pub(crate) cc: Vec<String>,
    /// Those of them whom the message asks to answer, by bare address.
    pub(crate) requested: Vec<String>,
    /// Nobody but ourselves: it must not go.
    pub(crate) is_to_self: bool,
}

/// Somebody as a caller would write them.
pub(crate) fn format_party(name: Option<&str>, address: &str) -> String {
    let name = name.map(sanitize_name).unwrap_or_default();
    if name.is_empty() {
        return address.to_owned();
    }
    format!("\"{}\" <{address}>", name.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A name that fits beside an address.
pub(crate) fn sanitize_name(name: &str) -> String {
    sanitize_line(name).trim().chars().take(limits::NAME_CHARS).collect()
}

/// Words of a stranger on one line.
pub(crate) fn sanitize_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_LINE_CHARS).collect()
}

/// Who is answered: where answers are wanted, else who wrote it. Whoever cannot be written to is left out.
pub(crate) fn addressees(head: &MessageHead) -> Vec<&Party> {
    let wanted = if head.reply_to.is_empty() { head.from.as_slice() } else { head.reply_to.as_slice() };
    wanted.iter().filter(|party| is_valid_recipient(party)).collect()
}

fn is_valid_recipient(party: &Party) -> bool {
    NamedAddress::parse(&party.address).is_ok()
}

/// Addresses of a message that are the inbox itself, whoever names them.
fn own_addresses(inbox: &Inbox, head: &MessageHead) -> Vec<String> {
    vec![inbox.address.clone(), head.recipient.to_ascii_lowercase()]
}

/// More people than fit one email: how many the mail names, and what is possible instead.
fn too_many_recipients(head: &MessageHead, to: &[Party], cc: &[Party]) -> Problem {
    let people = addressees(head).into_iter().chain(to).chain(cc).filter(|party| is_valid_recipient(party));
    let people: BTreeSet<String> = people.map(|party| party.address.to_ascii_lowercase()).collect();
    let text = format!(
        "is too much here: the mail names {} people, and at most {} fit one email; an answer without reply_all is possible",
        people.len(),
        limits::RECIPIENTS
    );
    Problem::from(vec![FieldError::new("reply_all", text)])
}

impl Inboxes {
    /// Whether an address is or was that of an inbox of a team, its plus tag apart.
    pub(crate) async fn is_inbox_address(&self, team: TeamId, address: &str) -> Result<bool, StoreError> {
        let Ok(address) = Address::parse(address) else { return Ok(false) };
        let mut places = mailonce_core::inbox::candidate_addresses(address.as_str());
        // A catch-all takes mail for addresses that are nobody's; that makes them not ours.
        places.pop();
        Ok(self.ctx.store.team_by_address(&places).await? == Some(team))
    }

    /// Whether an answer has somebody to go to, besides ourselves.
    pub(crate) async fn has_reply_recipient(&self, inbox: &Inbox, head: &MessageHead) -> Result<bool, StoreError> {
        let mut known = own_addresses(inbox, head);
        // Who wrote it is not ours, or it would be our own mail; so most mails need no look into the ledger.
        let wrote = head.own.is_none() && head.reply_to.is_empty();
        if wrote && addressees(head).iter().any(|party| !known.contains(&party.address)) {
            return Ok(true);
        }
        let others = head.to.iter().chain(&head.cc).filter(|party| is_valid_recipient(party));
        for party in addressees(head).into_iter().chain(others) {
            if self.is_new_recipient(inbox.team, &mut known, party).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Who gets a reply, and who gets copies of it. Our own addresses do not, whoever names them: a stranger must not
    /// make us write to ourselves.
    pub(crate) async fn reply_recipients(
        &self,
        message: &Message,
        inbox: &Inbox,
        all: bool,
    ) -> Result<ReplyRecipients, Problem> {
        let (team, head) = (message.team, &message.head);
        let first = addressees(head);
        let mut known = own_addresses(inbox, head);
        let (mut to, mut cc, mut asked) = (Vec::new(), Vec::new(), Vec::new());
        for party in &first {
            if self.is_new_recipient(team, &mut known, party).await.map_err(unavailable)? {
                to.push(format_party(party.name.as_deref(), &party.address));
                asked.extend(NamedAddress::parse(&party.address).map(|mailbox| mailbox.to_address().into()));
            }
        }
        let (others, copies) = if all { self.all_recipients(message).await? } else { (Vec::new(), Vec::new()) };
        let named = others.iter().map(|party| (party, true)).chain(copies.iter().map(|party| (party, false)));
        for (party, direct) in named.filter(|(party, _)| is_valid_recipient(party)) {
            if !self.is_new_recipient(team, &mut known, party).await.map_err(unavailable)? {
                continue;
            }
            let list = if direct { &mut to } else { &mut cc };
            list.push(format_party(party.name.as_deref(), &party.address));
            if to.len() + cc.len() > limits::RECIPIENTS {
                return Err(too_many_recipients(head, &others, &copies));
            }
        }
        if to.is_empty() {
            to = std::mem::take(&mut cc);
        }
        let itself = to.is_empty();
        if itself && first.is_empty() {
            return Err(Problem::from(vec![FieldError::new("message", "names nobody to answer")]));
        }
        if itself {
            // It is refused, with a word; until then it is an answer like others.
            to = first.iter().map(|party| format_party(party.name.as_deref(), &party.address)).collect();
        }
        Ok(ReplyRecipients { to, cc, requested: asked, is_to_self: itself })
    }

    /// Everybody in To and in Cc. A message keeps so many of each; of longer lists the mail itself tells.
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

    /// Whether somebody is neither ours nor named before.
    pub(crate) async fn is_new_recipient(
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

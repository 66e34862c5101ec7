//! P14 at the end: sent replies, events, and unanswered messages.

use super::history::Email;
use crate::proof::conversations::ConversationChecker;
use crate::proof::inbound_history::Message;
use crate::proof::invariants::Rule;
use std::collections::{BTreeMap, BTreeSet};

impl ConversationChecker<'_, '_> {
    /// At most one reply per slot was sent, and every reply was requested.
    pub(super) fn check_replies_sent(&mut self) {
        let view = self.view;
        let left = |id: &&&str| {
            let taken = view.arrivals(id).iter().any(|arrival| arrival.taken);
            // An expired email is checked by what was recorded earlier.
            let unsent = |email: &&Email| matches!(&*email.state, "failed" | "cancelled");
            let stands = view.emails_by_id.get(**id).map_or_else(|| !self.is_unsent(id), |email| !unsent(email));
            taken || stands
        };
        let often = |(_, emails): &(&(&str, &str), &Vec<&str>)| emails.iter().filter(left).count() > 1;
        let twice: Vec<_> = self.slots.iter().filter(often).map(|(subject, ids)| (*subject, ids.join(" "))).collect();
        for ((message, slot), ids) in twice {
            self.add_violation(Rule::AnsweredTwice, message, format!("{slot} by {ids}"));
        }
        let wanted: BTreeSet<&str> = self.slots.values().flatten().copied().collect();
        let stray = |email: &&Email| {
            !email.answers.is_empty() && email.resend_of.is_empty() && !wanted.contains(email.id.as_str())
        };
        for email in view.history.emails.iter().filter(stray) {
            self.violations.push(view.email_violation(
                Rule::Unasked,
                email,
                "it answers a message and nobody wrote it",
            ));
        }
    }

    /// Each reply, refusal, lease and cap has one event.
    pub(super) fn check_conversation_events(&mut self) {
        const KINDS: [&str; 5] =
            ["message.answered", "message.forwarded", "reply.refused", "thread.leased", "thread.cap_reached"];
        if self.view.history.events.is_empty() {
            return;
        }
        let mut counted: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for event in self.view.history.events.iter().filter(|event| KINDS.contains(&event.kind.as_str())) {
            *counted.entry((&event.kind, &event.about)).or_default() += 1;
        }
        let wanted: BTreeMap<(&str, &str), usize> = self
            .expected_events
            .iter()
            .filter(|(subject, _)| KINDS.contains(&subject.0))
            .map(|(subject, n)| (*subject, *n))
            .collect();
        let subjects: BTreeSet<(&str, &str)> = counted.keys().chain(wanted.keys()).copied().collect();
        for subject in subjects {
            let (is, must) = (counted.get(&subject).copied().unwrap_or(0), wanted.get(&subject).copied().unwrap_or(0));
            // A message that was reopened for a while may have a second event, since its reply was sent after all.
            let more = self
                .view
                .history
                .events
                .iter()
                .filter(|event| event.kind == "message.reopened" && event.about == subject.1);
            let most = if subject.0 == "message.answered" { must + more.count() } else { must };
            if is < must || is > most {
                self.add_violation(Rule::ConversationEvents, subject.1, format!("{is} times {} for {must}", subject.0));
            }
        }
    }

    /// After all faults ended, each message of a person was answered, skipped or escalated, and every held reply and
    /// every message that was offered in vain has an escalation.
    pub(super) fn check_nothing_left(&mut self) {
        let view = self.view;
        let escalations = &view.history.conversations.escalations;
        let asked = |message: &Message| escalations.iter().any(|question| question.message == message.id);
        for message in &view.history.inbound.messages {
            let Some(known) = self.messages.get(message.id.as_str()) else { continue };
            let left = known.kind == "person" && message.state == "unanswered";
            if left && !asked(message) {
                self.add_violation(Rule::Unattended, &message.id, "nobody answered it, skipped it or was asked");
            }
            if message.state == "answered" && self.is_open_again(&message.id) {
                self.add_violation(Rule::Unattended, &message.id, "it counts as answered, by what surely never left");
            }
            if message.dead && !asked(message) {
                self.add_violation(Rule::Unescalated, &message.id, "it was offered in vain and nobody was asked");
            }
        }
        for email in view.history.emails.iter().filter(|email| email.state == "held" && !email.answers.is_empty()) {
            if !escalations.iter().any(|question| question.email == email.id) {
                self.violations.push(view.email_violation(Rule::Unescalated, email, "it is held and nobody was asked"));
            }
        }
    }
}

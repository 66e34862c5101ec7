//! P12: acknowledged mail is there once, a code has one artifact and one consumer, and each has one event.

use crate::proof::history_index::HistoryIndex;
use crate::proof::inbound_history::{Artifact, ConsumeTry, ConsumedCode, DeliveryTry, Message, ShownDelivery};
use crate::proof::invariants::Rule;
use crate::proof::violation::{Violation, ViolationSubject};
use std::collections::{BTreeMap, BTreeSet};

/// Equal codes of a sender within this many milliseconds are one artifact.
const SAME_CODE_WINDOW_MS: i64 = 3_600_000;

/// An inbox, and a Message-ID or the sender of a code.
type InboxKey<'a> = (&'a str, &'a str);

pub(super) fn check(view: &HistoryIndex<'_>, found: &mut Vec<Violation>) {
    let inbound = &view.history.inbound;
    let mut mails: BTreeMap<InboxKey<'_>, Vec<&DeliveryTry>> = BTreeMap::new();
    for delivery_try in &inbound.delivery_tries {
        mails.entry((&delivery_try.inbox, &delivery_try.message_id)).or_default().push(delivery_try);
    }
    let mut messages: BTreeMap<InboxKey<'_>, Vec<&Message>> = BTreeMap::new();
    for message in &inbound.messages {
        messages.entry((&message.inbox, &message.message_id)).or_default().push(message);
    }
    for (mail_key, tries) in &mails {
        check_messages(view, *mail_key, tries, messages.get(mail_key).map_or(&[], Vec::as_slice), found);
    }
    for (mail_key, strangers) in messages.iter().filter(|(mail_key, _)| !mails.contains_key(*mail_key)) {
        let why = format!("{} messages in {} that no sender delivered", strangers.len(), mail_key.0);
        found.push(view.violation(Rule::MailUnasked, mail_key.1, why, &ViolationSubject::id(mail_key.1)));
    }
    check_codes(view, &mails, &messages, found);
    check_consumes(view, found);
    check_inbox_sequence(view, found);
    check_all_read(view, found);
    check_inbound_events(view, found);
}

/// One message for each mail and inbox, and a delivery for each acknowledgement.
fn check_messages(
    view: &HistoryIndex<'_>,
    (inbox, name): InboxKey<'_>,
    tries: &[&DeliveryTry],
    there: &[&Message],
    found: &mut Vec<Violation>,
) {
    let acknowledged = tries.iter().filter(|delivery_try| delivery_try.acknowledged).count();
    let subject = ViolationSubject::id(name);
    if there.len() > 1 {
        found.push(view.violation(Rule::MailTwice, name, format!("{} messages in {inbox}", there.len()), &subject));
    }
    let Some(message) = there.first() else {
        if acknowledged > 0 && view.history.healed {
            let why = format!("acknowledged {acknowledged} times, and not in {inbox}");
            found.push(view.violation(Rule::MailLost, name, why, &subject));
        }
        return;
    };
    let rows = deliveries_of(&view.history.inbound.deliveries, &message.id);
    if rows.len() < acknowledged && view.history.healed {
        let why = format!("acknowledged {acknowledged} times in {inbox}, and {} rows say so", rows.len());
        found.push(view.violation(Rule::Unrecorded, name, why, &subject));
    }
    let made = rows.iter().filter(|row| row.state == "done").count();
    if made != 1 && view.history.healed {
        found.push(view.violation(Rule::StoredTwice, name, format!("{made} deliveries made it in {inbox}"), &subject));
    }
    for channel in ["smtp", "hook"] {
        let stored = rows.iter().filter(|row| row.channel == channel && row.reason != "same_delivery").count();
        if stored > 1 {
            found.push(view.violation(
                Rule::StoredTwice,
                name,
                format!("{stored} times by {channel} in {inbox}"),
                &subject,
            ));
        }
    }
}

/// The deliveries of a message. One that arrived before the first was parsed refers to that delivery only.
fn deliveries_of<'a>(deliveries: &'a [ShownDelivery], message: &str) -> Vec<&'a ShownDelivery> {
    let own = |row: &ShownDelivery| row.message.as_deref() == Some(message);
    let firsts: BTreeSet<&str> = deliveries.iter().filter(|row| own(row)).map(|row| row.id.as_str()).collect();
    let repeats = |row: &ShownDelivery| row.of.as_deref().is_some_and(|of| firsts.contains(of));
    deliveries.iter().filter(|row| own(row) || repeats(row)).collect()
}

/// Equal codes of a sender are one artifact, and a message has the code of its mail.
fn check_codes(
    view: &HistoryIndex<'_>,
    mails: &BTreeMap<InboxKey<'_>, Vec<&DeliveryTry>>,
    messages: &BTreeMap<InboxKey<'_>, Vec<&Message>>,
    found: &mut Vec<Violation>,
) {
    let mut by_sender: BTreeMap<InboxKey<'_>, Vec<&Artifact>> = BTreeMap::new();
    for artifact in &view.history.inbound.artifacts {
        by_sender.entry((&artifact.inbox, &artifact.sender)).or_default().push(artifact);
    }
    for (mail_key, own) in &by_sender {
        let same = |a: &Artifact, b: &Artifact| {
            !a.value.is_empty() && a.value == b.value && (a.found_at - b.found_at).abs() < SAME_CODE_WINDOW_MS
        };
        let twin = |n: usize| own[..n].iter().find(|earlier| same(earlier, own[n])).map(|earlier| (earlier, own[n]));
        if let Some((first, second)) = (0..own.len()).find_map(twin) {
            let why = format!("{} and {} hold one code of {}", first.id, second.id, mail_key.1);
            found.push(view.violation(Rule::CodeTwice, mail_key.1, why, &ViolationSubject::id(&second.id)));
        }
    }
    for (mail_key, tries) in mails.iter().filter(|(mail_key, _)| messages.contains_key(*mail_key)) {
        let Some(first) = tries.first().filter(|first| !first.code.is_empty()) else { continue };
        let own = by_sender.get(&(mail_key.0, first.sender.as_str())).map_or(&[][..], Vec::as_slice);
        // A value that the test may not see counts as right.
        if !own.iter().any(|artifact| artifact.value.is_empty() || artifact.value == first.code) {
            let why = format!("no artifact holds {} in {}", first.code, mail_key.0);
            found.push(view.violation(Rule::CodeLost, mail_key.1, why, &ViolationSubject::id(mail_key.1)));
        }
    }
}

/// Each artifact has one consumer, who got the value of the mail and is recorded in the ledger.
fn check_consumes(view: &HistoryIndex<'_>, found: &mut Vec<Violation>) {
    let inbound = &view.history.inbound;
    let mut consumers: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for take in &inbound.consume_tries {
        let Some(ConsumedCode { artifact, value }) = &take.consumed else { continue };
        consumers.entry(artifact).or_default().insert(&take.purpose);
        let theirs =
            |delivery_try: &&DeliveryTry| delivery_try.inbox == take.inbox && delivery_try.sender == take.sender;
        if !inbound.delivery_tries.iter().filter(theirs).any(|delivery_try| delivery_try.code == *value) {
            let why = format!("{} was given {value}, which {} never wrote", take.purpose, take.sender);
            found.push(view.violation(Rule::WrongCode, artifact, why, &ViolationSubject::id(artifact)));
        }
        let shown = inbound.artifacts.iter().find(|shown| shown.id == *artifact);
        let holder = shown.and_then(|shown| shown.consumed_for.as_deref());
        if holder != Some(&take.purpose) {
            let why = format!("{} was given it, and it stands as taken for {holder:?}", take.purpose);
            found.push(view.violation(Rule::ConsumptionLost, artifact, why, &ViolationSubject::id(artifact)));
        }
    }
    for (artifact, purposes) in consumers.iter().filter(|(_, purposes)| purposes.len() > 1) {
        found.push(view.violation(
            Rule::TwoConsumers,
            artifact,
            format!("{purposes:?}"),
            &ViolationSubject::id(artifact),
        ));
    }
    let known = ["", "already_consumed", "not_found", "unavailable"];
    for take in inbound.consume_tries.iter().filter(|take| !known.contains(&take.refused.as_str())) {
        let why = format!("{} was refused: {}", take.purpose, take.refused);
        found.push(view.violation(Rule::ConsumptionLost, &take.sender, why, &ViolationSubject::default()));
    }
}

/// The messages of an inbox are numbered from 1 without gaps.
fn check_inbox_sequence(view: &HistoryIndex<'_>, found: &mut Vec<Violation>) {
    let mut numbers: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for message in &view.history.inbound.messages {
        numbers.entry(&message.inbox).or_default().push(message.seq);
    }
    for (inbox, mut seqs) in numbers {
        seqs.sort_unstable();
        if !(1..).zip(&seqs).all(|(expected, seq)| expected == *seq) {
            found.push(view.violation(Rule::InboxGap, inbox, format!("{seqs:?}"), &ViolationSubject::default()));
        }
    }
}

/// After all faults ended, every delivery is parsed.
fn check_all_read(view: &HistoryIndex<'_>, found: &mut Vec<Violation>) {
    let unread = |delivery: &&ShownDelivery| matches!(delivery.state.as_str(), "waiting" | "dead");
    for delivery in view.history.inbound.deliveries.iter().filter(|delivery| view.history.healed && unread(delivery)) {
        found.push(view.violation(
            Rule::Unread,
            &delivery.id,
            format!("it is {}", delivery.state),
            &ViolationSubject::id(&delivery.id),
        ));
    }
}

/// Each message, artifact, consumer and repeat has one event.
fn check_inbound_events(view: &HistoryIndex<'_>, found: &mut Vec<Violation>) {
    let inbound = &view.history.inbound;
    if view.history.events.is_empty() {
        return;
    }
    let mut event_counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for event in &view.history.events {
        *event_counts.entry((event.kind.as_str(), event.about.as_str())).or_default() += 1;
    }
    let messages = inbound.messages.iter().map(|message| ("message.received", &message.id));
    let artifacts = inbound.artifacts.iter().map(|artifact| ("artifact.found", &artifact.id));
    let consumed = inbound.artifacts.iter().filter(|artifact| artifact.consumed_for.is_some());
    let consumed = consumed.map(|artifact| ("artifact.consumed", &artifact.id));
    let repeats = inbound.deliveries.iter().filter(|delivery| delivery.state == "duplicate");
    let repeats = repeats.map(|delivery| ("delivery.duplicate", &delivery.id));
    let mut wanted = BTreeSet::new();
    for (kind, id) in messages.chain(artifacts).chain(consumed).chain(repeats) {
        wanted.insert((kind, id.as_str()));
        let count = event_counts.get(&(kind, id.as_str())).copied().unwrap_or(0);
        if count != 1 {
            found.push(view.violation(
                Rule::InboundEvents,
                id,
                format!("{count} times {kind}"),
                &ViolationSubject::id(id),
            ));
        }
    }
    let kinds = ["message.received", "artifact.found", "artifact.consumed", "delivery.duplicate"];
    for ((kind, id), _) in
        event_counts.iter().filter(|(mail_key, _)| kinds.contains(&mail_key.0) && !wanted.contains(*mail_key))
    {
        found.push(view.violation(Rule::InboundEvents, id, format!("{kind} about nothing"), &ViolationSubject::id(id)));
    }
}

impl ConsumeTry {
    /// Whether it got a code or a final error.
    pub fn is_answered(&self) -> bool {
        self.consumed.is_some() || !matches!(self.refused.as_str(), "" | "unavailable")
    }
}

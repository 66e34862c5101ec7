//! A correct history, which the other tests forge.

use mailonce_sim::proof::history::{
    Attempt, CallKind, CallOutcome, CallRecord, Email, Event, Evidence, ExpectedEmail, FaultRecord, Handoff,
    HandoffTransition, HopArrival, HopCapability,
};
use mailonce_sim::proof::{History, Invariant, Rule, Violation, check};
use std::collections::BTreeSet;

/// The email under a key that was sent at once.
pub(crate) const PLAIN_EMAIL: usize = 0;
/// The email whose reply was lost, and that its policy resent.
pub(crate) const RESENT_EMAIL: usize = 1;
/// The first item of a batch of two; it failed, and the next was cancelled.
pub(crate) const FAILED_EMAIL: usize = 2;
/// The second item of the batch.
pub(crate) const CANCELLED_EMAIL: usize = 3;
/// An email of the other team, still unknown.
pub(crate) const UNKNOWN_EMAIL: usize = 4;

/// Writes the records of a history in order.
#[derive(Default)]
pub(crate) struct HistoryBuilder {
    pub(crate) history: History,
    at: u64,
}

impl HistoryBuilder {
    pub(crate) fn next_position(&mut self) -> u64 {
        self.at += 1;
        self.at
    }

    pub(crate) fn add_call(
        &mut self,
        team: &str,
        verb: CallKind,
        key: Option<&str>,
        wanted: Vec<ExpectedEmail>,
        end: CallOutcome,
    ) {
        let at = self.next_position();
        let call = CallRecord { key: key.map(str::to_owned), wanted, ..CallRecord::new(at, team, verb) };
        let call = self.history.begin_call(call);
        let at = self.next_position();
        self.history.end_call(call, at, end);
    }

    /// An email with one handoff, and the states it goes through.
    pub(crate) fn add_email(&mut self, team: &str, id: &str, key: &str, transport: &str, states: &[&str]) {
        let to = vec![format!("{id}@example.org")];
        let state = (*states.last().unwrap()).to_owned();
        let mut email = Email {
            id: id.to_owned(),
            team: team.to_owned(),
            key: key.to_owned(),
            bind: 1,
            to: to.clone(),
            body: Some(7),
            message_id: format!("<{id}@mailonce>"),
            state: if state == "leased" { "sending".into() } else { state.clone() },
            ..Email::default()
        };
        let mut handoff = Handoff { transport: transport.to_owned(), to, state, ..Handoff::default() };
        let (mut from, mut fence) = ("", 0);
        for state in states {
            email.rev += 1;
            fence += u64::from(*state == "leased");
            let at = self.next_position();
            let (from_, to) = (from.to_owned(), (*state).to_owned());
            self.history.moves.push(HandoffTransition {
                at,
                email: id.to_owned(),
                handoff: 0,
                from: from_,
                to,
                fence,
                rev: email.rev,
            });
            if *state == "sending" {
                let number = handoff.attempts.len() as u32 + 1;
                handoff.attempts.push(Attempt { number, fence: Some(fence), ..Attempt::default() });
            }
            self.add_outcome(&mut handoff, from, state);
            self.add_state_event(team, id, from, state, email.rev);
            from = state;
        }
        email.handoffs.push(handoff);
        self.history.emails.push(email);
    }

    fn add_outcome(&mut self, handoff: &mut Handoff, from: &str, state: &str) {
        let outcome = match (from, state) {
            ("sending", "sent") => "accepted",
            ("sending", "failed") => "refused",
            ("sending", "unknown") => "unknown",
            _ => return,
        };
        if let Some(attempt) = handoff.attempts.last_mut() {
            attempt.outcome = outcome.to_owned();
        }
    }

    fn add_state_event(&mut self, team: &str, id: &str, from: &str, state: &str, rev: u32) {
        let kind = match (from, state) {
            ("", _) => "email.accepted",
            ("unknown", "queued") => "email.resolved",
            (_, "sent" | "failed" | "unknown" | "cancelled" | "delivered") => &format!("email.{state}"),
            _ => return,
        };
        self.add_event(team, id, kind, rev);
    }

    pub(crate) fn add_event(&mut self, team: &str, about: &str, kind: &str, rev: u32) {
        let seq = self.history.events.iter().filter(|event| event.team == team).count() as u64 + 1;
        let at = self.next_position();
        let (team, about, kind) = (team.to_owned(), about.to_owned(), kind.to_owned());
        let id = format!("{team}-{seq}");
        self.history.events.push(Event { at, team, seq, id, kind, about, rev });
    }

    pub(crate) fn add_arrival(&mut self, transport: &str, email: &str, key: Option<&str>, taken: bool) {
        let at = self.next_position();
        self.history.arrivals.push(HopArrival {
            at,
            transport: transport.to_owned(),
            email: email.to_owned(),
            handoff: Some(0),
            message_id: format!("<{email}@mailonce>"),
            key: key.map(str::to_owned),
            bytes: 99,
            to: vec![format!("{email}@example.org")],
            taken,
            early: false,
            is_known_accepted: false,
        });
    }

    fn add_fault(&mut self, kind: &str, email: &str) {
        let at = self.next_position();
        let (kind, emails) = (kind.to_owned(), vec![email.to_owned()]);
        self.history.faults.push(FaultRecord { at, kind, ambiguous: true, emails });
    }
}

pub(crate) fn expected_emails(ids: &[&str]) -> Vec<ExpectedEmail> {
    ids.iter().map(|id| ExpectedEmail { to: vec![format!("{id}@example.org")], body: 7 }).collect()
}

pub(crate) fn ok(first: bool, ids: &[&str]) -> CallOutcome {
    CallOutcome::Ok { first, ids: ids.iter().map(|id| (*id).to_owned()).collect() }
}

pub(crate) fn fail(status: u16, code: &str) -> CallOutcome {
    CallOutcome::Fail { status, code: code.to_owned() }
}

/// Three sends of one team, one of another; each unanswered once, answered once and repeated once.
pub(crate) fn valid_history() -> HistoryBuilder {
    let mut scribe = HistoryBuilder::default();
    scribe.history.hops.insert("relay".into(), HopCapability::Blind);
    scribe.history.hops.insert("keyed".into(), HopCapability::Keyed(1_000));
    for (team, verb, key, ids) in [
        ("ours", CallKind::Send, "plain", &["e0"][..]),
        ("ours", CallKind::Send, "resent", &["e1"]),
        ("ours", CallKind::Batch, "batch", &["e2", "e3"]),
        ("theirs", CallKind::Send, "plain", &["e4"]),
    ] {
        for end in [CallOutcome::Info, ok(true, ids), ok(false, ids)] {
            scribe.add_call(team, verb, Some(key), expected_emails(ids), end);
        }
    }
    scribe.add_arrival("keyed", "e0", Some("k0"), true);
    scribe.add_email("ours", "e0", "plain", "keyed", &["queued", "leased", "sending", "sent", "delivered"]);
    scribe.add_arrival("keyed", "e0", Some("k0"), false);
    scribe.add_arrival("relay", "e1", None, true);
    scribe.add_fault("the answer was lost", "e1");
    let path = ["queued", "leased", "sending", "unknown", "queued", "leased", "sending", "sent"];
    scribe.add_email("ours", "e1", "resent", "relay", &path);
    scribe.add_arrival("relay", "e1", None, true);
    scribe.add_email("ours", "e2", "batch[0]", "relay", &["queued", "leased", "sending", "failed"]);
    scribe.add_email("ours", "e3", "batch[1]", "relay", &["queued", "cancelled"]);
    scribe.add_fault("the answer was lost", "e4");
    scribe.add_email("theirs", "e4", "plain", "relay", &["queued", "leased", "sending", "unknown"]);
    let history = &mut scribe.history;
    history.emails[RESENT_EMAIL].resend = true;
    let handoff = &mut history.emails[RESENT_EMAIL].handoffs[0];
    handoff.may_duplicate = true;
    handoff.evidence.push(Evidence { source: "policy".into(), says: "again".into(), ..Evidence::default() });
    history.healed = true;
    crate::inbound::add_inbound(&mut scribe);
    crate::claims::add_claims(&mut scribe);
    scribe
}

/// Forges the correct history and returns the broken rules.
pub(crate) fn broken_rules(forge: impl FnOnce(&mut HistoryBuilder)) -> Vec<Rule> {
    let mut rules: Vec<Rule> = violations_of(forge).iter().map(|found| found.rule).collect();
    rules.dedup();
    rules
}

pub(crate) fn violations_of(forge: impl FnOnce(&mut HistoryBuilder)) -> Vec<Violation> {
    let mut scribe = valid_history();
    forge(&mut scribe);
    check(&scribe.history)
}

#[test]
fn a_correct_history_has_no_violations() {
    assert_eq!(violations_of(|_| {}), []);
}

#[test]
fn every_rule_detects_a_forged_history() {
    let (accepts, copies, settled) = (crate::accepts::FORGED, crate::copies::FORGED, crate::unfinished_work::FORGED);
    let (events, inbound, conversations) =
        (crate::events::FORGED, crate::inbound::FORGED, crate::conversations::FORGED);
    let forged = [accepts, copies, settled, events, inbound, conversations, crate::claims::FORGED].concat();
    let forged: BTreeSet<Rule> = forged.into_iter().collect();
    let missing: Vec<&Rule> = Rule::ALL.iter().filter(|rule| !forged.contains(rule)).collect();
    assert!(missing.is_empty(), "nothing is forged for {missing:?}");
    let checked: BTreeSet<Invariant> = Rule::ALL.iter().map(|rule| rule.promise()).collect();
    assert_eq!(checked.into_iter().collect::<Vec<_>>(), Invariant::CHECKED);
}

#[test]
fn a_violation_lists_the_lines_of_its_email_in_order() {
    let found = violations_of(|scribe| scribe.add_arrival("keyed", "e0", Some("k0"), true));
    let [violation, ..] = found.as_slice() else { panic!("{found:?}") };
    let text = violation.to_string();
    assert!(text.starts_with("P3 TakenTwice: e0: e0@example.org has 2 copies"), "{text}");
    assert!(!text.contains("e1") && !text.contains("e4"), "{text}");
    let places: Vec<u64> =
        violation.story.iter().filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
    assert!(places.len() > 10 && places.is_sorted(), "{text}");
}

//! The effect of each action in each state.

mod random_runs;

use super::{apply::new_evidence, *};
use crate::{
    events::event::EventKind,
    handoff::{
        EvidenceFinding, EvidenceSource, HandoffState, Transition,
        reply::{AttemptPhase, ReplyMeaning},
    },
    id::{EmailId, TeamId},
    outbound::{
        accept::NewEmail,
        accept_decision::FirstSend,
        content::{EmailContent, RawContent},
        digest::Digest,
        email::{Channel, Email, EmailHead, EmailState, Guard, OnUnknown},
    },
    ttl,
};
use uuid::Uuid;

pub(crate) const T0: Time = Time(1_731_628_800_000);
pub(crate) const NODE: NodeId = NodeId(Uuid::from_u128(7));
pub(crate) const PLAN: HandoffRetryPolicy =
    HandoffRetryPolicy { max_attempts: 12, max_age_ms: 86_400_000, jitter_seed: 500 };

/// An email with this number of envelopes.
pub(crate) fn email(envelopes: usize) -> Email {
    let to: Vec<String> = (0..envelopes).map(|i| format!("u{i}@example.com")).collect();
    let raw =
        RawContent { from: "a@example.com".into(), to: to.clone(), subject: "Hi".into(), ..RawContent::default() };
    let content = EmailContent::validate(RawContent { text: Some("hello".into()), ..raw }).unwrap();
    let head = EmailHead {
        from: "a@example.com".into(),
        to: to.clone(),
        cc: Vec::new(),
        bcc: Vec::new(),
        subject: "Hi".into(),
        key: None,
        intent: None,
        created_at: T0,
        on_unknown: OnUnknown::Hold,
        caller: None,
        channel: Channel::Http,
        version: 1,
        transport: None,
        resend_of: None,
        reason: None,
        answers: None,
        thread: None,
        call: None,
        held_by: None,
        policy: None,
        inbox: None,
        template: None,
        identical_place: None,
        erased: None,
    };
    let email = NewEmail {
        id: EmailId(Uuid::from_u128(1)),
        team: TeamId(Uuid::from_u128(2)),
        head,
        digest: Digest::of_content(&content),
        key: None,
        shadow_keys: Vec::new(),
        first_wins: false,
        ttl: ttl::DEFAULT,
        envelopes: to.into_iter().map(|to| Envelope { transport: "relay".into(), recipients: vec![to] }).collect(),
        due_at: None,
        body: Arc::from([]),
        guard_input: crate::outbound::accept::GuardInput::default(),
    };
    email.into_email(&FirstSend::default(), T0).0
}

pub(crate) fn reply(meaning: ReplyMeaning) -> TransportReply {
    TransportReply::new(meaning, AttemptPhase::Final, Some(250), meaning.as_str())
}

/// The lease of a worker that holds the first handoff now.
fn hold(email: &Email) -> LeaseRef {
    let fence = email.handoffs[0].fence;
    LeaseRef { number: 0, fence, transport: "relay".into(), account: "A".into() }
}

fn mark(email: &mut Email) -> LeaseRef {
    let hold = hold(email);
    assert_eq!(
        email
            .apply_action(&HandoffAction::Mark { lease: hold.clone(), frozen_bytes: None, contacts: Vec::new() }, T0)
            .status,
        HandoffActionStatus::Done
    );
    hold
}

fn outcome_action(hold: LeaseRef, attempt: Option<u32>, meaning: ReplyMeaning) -> HandoffAction {
    HandoffAction::RecordOutcome { lease: hold, attempt, started_at: T0, reply: reply(meaning), retry_policy: PLAN }
}

fn evidence_action(says: EvidenceFinding) -> HandoffAction {
    HandoffAction::AddEvidence(new_evidence(0, EvidenceSource::ProviderEvent, says, "told", T0))
}

fn resolve(email: &Email, choice: Resolution) -> HandoffAction {
    HandoffAction::Resolve { resolution: choice, rev: email.rev, handoff: None, reason: "seen".into() }
}

/// An email whose attempt was marked and got a reply with this meaning.
fn answered(meaning: ReplyMeaning) -> Email {
    let mut email = in_state(HandoffState::Sending);
    let act = outcome_action(hold(&email), Some(1), meaning);
    assert_eq!(email.apply_action(&act, T0).status, HandoffActionStatus::Done);
    email
}

/// An email whose handoff reached a state by legal transitions.
fn in_state(state: HandoffState) -> Email {
    let mut email = match state {
        HandoffState::Sent | HandoffState::Delivered | HandoffState::Bounced | HandoffState::Complained => {
            answered(ReplyMeaning::Accepted)
        }
        HandoffState::Failed => answered(ReplyMeaning::Refused),
        HandoffState::Unknown | HandoffState::Abandoned => answered(ReplyMeaning::Unknown),
        _ => email(1),
    };
    match state {
        HandoffState::Scheduled => {
            email.handoffs[0].state = HandoffState::Scheduled;
            email.handoffs[0].due_at = Some(T0.plus(1_000));
        }
        HandoffState::Leased => assert!(email.lease_handoff(0, NODE, T0)),
        HandoffState::Sending => {
            assert!(email.lease_handoff(0, NODE, T0));
            mark(&mut email);
        }
        HandoffState::Delivered => drop(email.apply_action(&evidence_action(EvidenceFinding::Delivered), T0)),
        HandoffState::Bounced => drop(email.apply_action(&evidence_action(EvidenceFinding::Bounced), T0)),
        HandoffState::Complained => drop(email.apply_action(&evidence_action(EvidenceFinding::Complained), T0)),
        HandoffState::Abandoned => drop(email.apply_action(&resolve(&email, Resolution::Abandon), T0)),
        HandoffState::Held => email.hold(Guard::Overlaps.into(), T0),
        HandoffState::Cancelled => drop(email.cancel(T0).unwrap()),
        _ => {}
    }
    assert_eq!(email.handoffs[0].state, state);
    email
}

/// Checks where an action leads from the states in which it is allowed, and its status in all others.
fn assert_allowed_in(
    name: &str,
    act: impl Fn(&Email) -> HandoffAction,
    moves: &[(HandoffState, HandoffState)],
    otherwise: HandoffActionStatus,
) {
    for from in HandoffState::ALL {
        let mut email = in_state(*from);
        let act = act(&email);
        let before = email.clone();
        let effects = email.apply_action(&act, T0.plus(5));
        let (to, verdict) = match moves.iter().find(|(state, _)| state == from) {
            Some((_, to)) => (*to, HandoffActionStatus::Done),
            None => (*from, otherwise),
        };
        assert_eq!((email.handoffs[0].state, effects.status), (to, verdict), "{name} in {}", from.as_str());
        assert_eq!(effects.changed, email != before, "{name} in {}", from.as_str());
    }
}

#[test]
fn workers_command_only_what_they_hold() {
    use HandoffState as S;
    let mark = |email: &Email| HandoffAction::Mark { lease: hold(email), frozen_bytes: None, contacts: Vec::new() };
    let park = |email: &Email| HandoffAction::ReturnLease { lease: hold(email), due_at: T0, reason: "busy".into() };
    let crash = |_: &Email| HandoffAction::Crash { number: 0, holder: NODE };
    assert_allowed_in("mark", mark, &[(S::Leased, S::Sending)], HandoffActionStatus::Stale);
    assert_allowed_in("park", park, &[(S::Leased, S::Queued)], HandoffActionStatus::Stale);
    assert_allowed_in(
        "crash",
        crash,
        &[(S::Leased, S::Queued), (S::Sending, S::Unknown)],
        HandoffActionStatus::Unchanged,
    );
}

#[test]
fn only_the_unknown_is_repeated_waited_for_and_resolved() {
    use HandoffState as S;
    let repeat = |_: &Email| HandoffAction::RetryInWindow { number: 0, holder: NODE, account: "A".into() };
    let elsewhere = |_: &Email| HandoffAction::RetryInWindow { number: 0, holder: NODE, account: "B".into() };
    let wait = |_: &Email| HandoffAction::CheckLater { number: 0, evidence: None, next_check_at: Some(T0.plus(9)) };
    let policy = |_: &Email| HandoffAction::ResendByPolicy { number: 0 };
    let refused = HandoffActionStatus::Refused(EmailChangeRefusal::NotUnknown);
    assert_allowed_in("repeat", repeat, &[(S::Unknown, S::Leased)], HandoffActionStatus::Stale);
    assert_allowed_in("repeat elsewhere", elsewhere, &[], HandoffActionStatus::Stale);
    assert_allowed_in("wait", wait, &[(S::Unknown, S::Unknown)], HandoffActionStatus::Stale);
    assert_allowed_in("policy", policy, &[(S::Unknown, S::Queued)], HandoffActionStatus::Stale);
    for (choice, to) in
        [(Resolution::Sent, S::Sent), (Resolution::Resend, S::Queued), (Resolution::Abandon, S::Abandoned)]
    {
        assert_allowed_in(choice.as_str(), |email| resolve(email, choice), &[(S::Unknown, to)], refused);
    }
}

#[test]
fn only_queued_and_scheduled_handoffs_fail_over() {
    let reroute = |_: &Email| HandoffAction::FailOverHandoff { number: 0, from: "relay".into(), to: "other".into() };
    let moves = [(HandoffState::Queued, HandoffState::Queued), (HandoffState::Scheduled, HandoffState::Scheduled)];
    assert_allowed_in("reroute", reroute, &moves, HandoffActionStatus::Stale);
    let elsewhere =
        |_: &Email| HandoffAction::FailOverHandoff { number: 0, from: "nowhere".into(), to: "other".into() };
    assert_allowed_in("reroute from elsewhere", elsewhere, &[], HandoffActionStatus::Stale);
}

#[test]
fn only_what_waits_is_moved_or_given_up_and_only_what_is_open_is_reported() {
    use HandoffState as S;
    let people = vec!["u0@example.com".into()];
    let envelopes = vec![Envelope { transport: "other".into(), recipients: people }];
    let relocate = |_: &Email| HandoffAction::RerouteByOperator { from: "relay".into(), envelopes: envelopes.clone() };
    let waits = [(S::Queued, S::Queued), (S::Scheduled, S::Scheduled)];
    assert_allowed_in("relocate", relocate, &waits, HandoffActionStatus::Stale);

    let orphan = |_: &Email| HandoffAction::ReportOrphan { number: 0, transport: "relay".into(), since: T0 };
    let open = [(S::Queued, S::Queued), (S::Scheduled, S::Scheduled), (S::Unknown, S::Unknown)];
    assert_allowed_in("orphan", orphan, &open, HandoffActionStatus::Stale);

    for from in HandoffState::ALL {
        let mut email = in_state(*from);
        email.handoffs[0].progress.transport_missing_since = Some(T0.plus(-9));
        let act = HandoffAction::GiveUpOrphan { number: 0, transport: "relay".into(), max_age_ms: 9 };
        let verdict = email.apply_action(&act, T0.plus(2_000)).status;
        let waits = matches!(from, S::Queued | S::Scheduled);
        assert_eq!(verdict == HandoffActionStatus::Done, waits, "{}", from.as_str());
        let end = if waits { S::Failed } else { *from };
        assert_eq!(email.handoffs[0].state, end, "{}", from.as_str());
    }
}

#[test]
fn a_node_with_the_transport_leases_an_orphan_normally() {
    let orphan = || HandoffAction::ReportOrphan { number: 0, transport: "relay".into(), since: T0 };
    let mut queued = in_state(HandoffState::Queued);
    drop(queued.apply_action(&orphan(), T0));
    assert!(queued.lease_handoff(0, NODE, T0));
    assert_eq!(queued.handoffs[0].progress.transport_missing_since, None);
    for act in [
        HandoffAction::RetryInWindow { number: 0, holder: NODE, account: "A".into() },
        HandoffAction::CheckLater { number: 0, evidence: None, next_check_at: None },
    ] {
        let mut unknown = in_state(HandoffState::Unknown);
        drop(unknown.apply_action(&orphan(), T0));
        assert_eq!(unknown.handoffs[0].progress.transport_missing_since, Some(T0));
        drop(unknown.apply_action(&act, T0));
        assert_eq!(unknown.handoffs[0].progress.transport_missing_since, None, "{act:?}");
    }
}

#[test]
fn an_orphan_that_may_have_left_is_unknown_in_the_end_and_stays_where_it_is() {
    let mut email = in_state(HandoffState::Unknown);
    drop(email.apply_action(&resolve(&email, Resolution::Resend), T0));
    drop(email.apply_action(&HandoffAction::ReportOrphan { number: 0, transport: "relay".into(), since: T0 }, T0));
    let envelopes = vec![Envelope { transport: "other".into(), recipients: email.handoffs[0].recipients.clone() }];
    assert_eq!(
        email.apply_action(&HandoffAction::RerouteByOperator { from: "relay".into(), envelopes }, T0).status,
        HandoffActionStatus::Stale
    );
    let give_up = HandoffAction::GiveUpOrphan { number: 0, transport: "relay".into(), max_age_ms: 0 };
    let effects = email.apply_action(&give_up, T0);
    assert_eq!((effects.status, email.handoffs[0].state), (HandoffActionStatus::Done, HandoffState::Unknown));
    assert_eq!(effects.events[0].kind, EventKind::EmailUnknown);
}

#[test]
fn proof_moves_any_state_to_sent() {
    for from in HandoffState::ALL {
        for proof in [
            EvidenceFinding::Accepted,
            EvidenceFinding::Delayed,
            EvidenceFinding::Delivered,
            EvidenceFinding::Bounced,
            EvidenceFinding::Complained,
        ] {
            let mut email = in_state(*from);
            let effects = email.apply_action(&evidence_action(proof), T0);
            let state = email.handoffs[0].state;
            let gone = matches!(
                state,
                HandoffState::Sent | HandoffState::Delivered | HandoffState::Bounced | HandoffState::Complained
            );
            assert!(gone && effects.status == HandoffActionStatus::Done, "{} in {}", proof.as_str(), from.as_str());
            assert_eq!(effects.evidence.len(), 1);
        }
    }
}

#[test]
fn provider_events_in_any_order_end_in_the_worst() {
    for (news, end) in [
        ([EvidenceFinding::Delivered, EvidenceFinding::Bounced], HandoffState::Bounced),
        ([EvidenceFinding::Delivered, EvidenceFinding::Complained], HandoffState::Complained),
        ([EvidenceFinding::Bounced, EvidenceFinding::Complained], HandoffState::Complained),
        ([EvidenceFinding::Accepted, EvidenceFinding::Delivered], HandoffState::Delivered),
        ([EvidenceFinding::Delayed, EvidenceFinding::Delivered], HandoffState::Delivered),
        ([EvidenceFinding::Delayed, EvidenceFinding::Bounced], HandoffState::Bounced),
    ] {
        for order in [[news[0], news[1]], [news[1], news[0]]] {
            let mut email = in_state(HandoffState::Sending);
            order.iter().for_each(|news| drop(email.apply_action(&evidence_action(*news), T0)));
            assert_eq!(email.handoffs[0].state, end, "{order:?}");
        }
    }
}

#[test]
fn what_an_answer_means_after_the_marker_and_before_it() {
    use HandoffState as S;
    for (meaning, after, before) in [
        (ReplyMeaning::Accepted, S::Sent, S::Unknown),
        (ReplyMeaning::Repeated, S::Sent, S::Unknown),
        (ReplyMeaning::Deferred, S::Queued, S::Queued),
        (ReplyMeaning::Fault, S::Queued, S::Queued),
        (ReplyMeaning::Refused, S::Failed, S::Failed),
        (ReplyMeaning::Concurrent, S::Unknown, S::Unknown),
        (ReplyMeaning::Mismatch, S::Unknown, S::Unknown),
        (ReplyMeaning::Unknown, S::Unknown, S::Unknown),
    ] {
        let email = answered(meaning);
        assert_eq!(email.handoffs[0].state, after, "{}", meaning.as_str());
        assert_eq!(email.handoffs[0].progress.needs_person, meaning == ReplyMeaning::Mismatch);

        let mut email = in_state(S::Leased);
        let effects = email.apply_action(&outcome_action(hold(&email), None, meaning), T0);
        let attempt = (effects.attempts[0].number, effects.attempts[0].outcome);
        assert_eq!(email.handoffs[0].state, before, "{} before the marker", meaning.as_str());
        assert_eq!(
            (email.handoffs[0].attempts, attempt),
            (1, (1, Some(crate::handoff::Outcome::from_meaning(meaning))))
        );
    }
}

#[test]
fn a_handoff_is_put_off_with_backoff_or_as_long_as_the_next_hop_asks() {
    for (asks, due) in [(None, 500), (Some(9_000), 9_000), (Some(-5), 500), (Some(i64::MAX), 3_600_000)] {
        let mut email = in_state(HandoffState::Sending);
        let reply = reply(ReplyMeaning::Deferred).with_retry_after(asks);
        let act = HandoffAction::RecordOutcome {
            lease: hold(&email),
            attempt: Some(1),
            started_at: T0,
            reply,
            retry_policy: PLAN,
        };
        let effects = email.apply_action(&act, T0.plus(10));
        assert_eq!(email.handoffs[0].due_at, Some(T0.plus(10 + due)), "{asks:?}");
        assert_eq!(effects.events[0].kind, EventKind::EmailDeferred);
    }
}

#[test]
fn tries_end_by_number_and_by_age_but_faults_are_not_counted() {
    let last = HandoffRetryPolicy { max_attempts: 1, ..PLAN };
    let old = HandoffRetryPolicy { max_age_ms: 0, ..PLAN };
    for (meaning, plan, end) in [
        (ReplyMeaning::Deferred, last, HandoffState::Failed),
        (ReplyMeaning::Fault, last, HandoffState::Queued),
        (ReplyMeaning::Deferred, old, HandoffState::Failed),
        (ReplyMeaning::Fault, old, HandoffState::Failed),
    ] {
        let mut email = in_state(HandoffState::Sending);
        let act = HandoffAction::RecordOutcome {
            lease: hold(&email),
            attempt: Some(1),
            started_at: T0,
            reply: reply(meaning),
            retry_policy: plan,
        };
        drop(email.apply_action(&act, T0));
        assert_eq!(email.handoffs[0].state, end, "{} {plan:?}", meaning.as_str());
    }
}

#[test]
fn an_attempt_in_doubt_is_only_repeated_at_its_account() {
    let mut email = in_state(HandoffState::Unknown);
    let repeat = HandoffAction::RetryInWindow { number: 0, holder: NODE, account: "A".into() };
    assert_eq!(email.apply_action(&repeat, T0).status, HandoffActionStatus::Done);
    let elsewhere = LeaseRef { account: "B".into(), ..hold(&email) };

    let effects =
        email.apply_action(&HandoffAction::Mark { lease: elsewhere, frozen_bytes: None, contacts: Vec::new() }, T0);

    assert_eq!((effects.status, effects.changed, effects.attempts.len()), (HandoffActionStatus::Stale, true, 0));
    assert_eq!((email.handoffs[0].state, email.handoffs[0].attempts), (HandoffState::Unknown, 1));
}

#[test]
fn what_was_tried_at_two_accounts_is_repeated_at_neither() {
    let mut email = in_state(HandoffState::Unknown);
    drop(email.apply_action(&resolve(&email, Resolution::Resend), T0));
    assert!(email.lease_handoff(0, NODE, T0));
    let elsewhere = LeaseRef { account: "B".into(), ..hold(&email) };
    assert_eq!(
        email
            .apply_action(
                &HandoffAction::Mark { lease: elsewhere.clone(), frozen_bytes: None, contacts: Vec::new() },
                T0
            )
            .status,
        HandoffActionStatus::Done
    );
    drop(email.apply_action(&outcome_action(elsewhere, Some(2), ReplyMeaning::Unknown), T0));

    for account in ["A", "B"] {
        let repeat = HandoffAction::RetryInWindow { number: 0, holder: NODE, account: account.into() };
        assert_eq!(email.apply_action(&repeat, T0).status, HandoffActionStatus::Stale, "{account}");
    }
}

#[test]
fn a_busy_next_hop_is_in_doubt_besides_what_was_before() {
    let mut email = in_state(HandoffState::Unknown);
    drop(email.apply_action(&HandoffAction::RetryInWindow { number: 0, holder: NODE, account: "A".into() }, T0));
    let hold = mark(&mut email);
    drop(email.apply_action(&outcome_action(hold, Some(2), ReplyMeaning::Concurrent), T0));
    assert_eq!(
        (email.handoffs[0].state, &email.handoffs[0].progress.attempts_in_doubt[..]),
        (HandoffState::Unknown, &[1, 2][..])
    );
}

#[test]
fn a_person_must_have_seen_the_email_as_it_is() {
    let mut email = in_state(HandoffState::Unknown);
    let seen = resolve(&email, Resolution::Sent);
    drop(email.apply_action(&HandoffAction::ResendByPolicy { number: 0 }, T0));
    let effects = email.apply_action(&seen, T0);
    assert_eq!((effects.status, effects.changed), (HandoffActionStatus::Refused(EmailChangeRefusal::StaleRev), false));
}

#[test]
fn proof_that_contradicts_the_state_makes_a_correction_event() {
    for (from, corrected) in
        [(HandoffState::Sending, false), (HandoffState::Unknown, true), (HandoffState::Cancelled, true)]
    {
        let mut email = in_state(from);
        let effects = email.apply_action(&evidence_action(EvidenceFinding::Accepted), T0);
        assert_eq!(effects.events[0].kind, EventKind::EmailSent);
        assert_eq!(effects.events[0].data.get("corrected").is_some(), corrected, "{}", from.as_str());
    }
}

/// Whether the next event is the first one that says that the email was sent.
fn is_first_sent(email: &mut Email, number: u16) -> bool {
    let (_, event) = email.capture(number, T0).unwrap();
    assert_eq!(event.kind, EventKind::EmailSent);
    event.data.get("sent_before").is_none()
}

#[test]
fn one_sent_event_of_an_email_is_the_first_also_if_a_part_was_proven_otherwise() {
    let in_doubt = || {
        let mut email = email(3);
        assert!(email.lease_handoff(0, NODE, T0));
        let hold = mark(&mut email);
        drop(email.apply_action(&outcome_action(hold, Some(1), ReplyMeaning::Unknown), T0));
        email
    };
    let by_report = |says| (says, evidence_action(says));
    for (says, proof) in [
        by_report(EvidenceFinding::Delivered),
        by_report(EvidenceFinding::Bounced),
        (EvidenceFinding::Accepted, resolve(&in_doubt(), Resolution::Sent)),
    ] {
        let mut email = in_doubt();
        let effects = email.apply_action(&proof, T0);
        assert_eq!(effects.status, HandoffActionStatus::Done, "{}", says.as_str());
        assert!(effects.events.iter().all(|event| event.kind != EventKind::EmailSent), "{}", says.as_str());
        assert!(is_first_sent(&mut email, 1), "{}", says.as_str());
        assert!(!is_first_sent(&mut email, 2), "{}", says.as_str());
    }
    // A report that the next hop has it is itself the first one.
    let mut email = in_doubt();
    let effects = email.apply_action(&evidence_action(EvidenceFinding::Accepted), T0);
    assert_eq!(effects.events[0].kind, EventKind::EmailSent);
    assert!(!is_first_sent(&mut email, 1));
}

#[test]
fn a_persons_word_is_the_first_sent_event_of_an_email_that_has_no_other() {
    let unknown = |parts: u16| {
        let mut email = email(usize::from(parts));
        for number in 0..parts {
            assert!(email.lease_handoff(number, NODE, T0));
            let fence = email.handoffs[usize::from(number)].fence;
            let lease = LeaseRef { number, fence, ..hold(&email) };
            let mark = HandoffAction::Mark { lease: lease.clone(), frozen_bytes: None, contacts: Vec::new() };
            assert_eq!(email.apply_action(&mark, T0).status, HandoffActionStatus::Done);
            drop(email.apply_action(&outcome_action(lease, Some(1), ReplyMeaning::Unknown), T0));
        }
        email
    };
    // One part, and two that are resolved at once: only the last event says so.
    for parts in [1, 2] {
        let mut email = unknown(parts);
        let effects = email.apply_action(&resolve(&email, Resolution::Sent), T0);
        let marks: Vec<bool> = effects.events.iter().map(|event| event.data.get("first_sent").is_some()).collect();
        assert_eq!(marks, if parts == 1 { vec![true] } else { vec![false, true] });
        // A later proof that contradicts nothing is no second one.
        let effects = email.apply_action(&evidence_action(EvidenceFinding::Accepted), T0);
        assert!(effects.events.is_empty());
    }
    for choice in [Resolution::Abandon, Resolution::Resend] {
        let mut email = unknown(1);
        let effects = email.apply_action(&resolve(&email, choice), T0);
        assert!(effects.events.iter().all(|event| event.data.get("first_sent").is_none()), "{}", choice.as_str());
    }
}

#[test]
fn a_key_mismatch_at_the_provider_is_left_to_a_person() {
    let mut email = answered(ReplyMeaning::Mismatch);
    let repeat = HandoffAction::RetryInWindow { number: 0, holder: NODE, account: "A".into() };
    assert_eq!(email.apply_action(&repeat, T0).status, HandoffActionStatus::Stale);
    assert_eq!(email.apply_action(&HandoffAction::ResendByPolicy { number: 0 }, T0).status, HandoffActionStatus::Stale);
    assert_eq!(email.apply_action(&resolve(&email, Resolution::Resend), T0).status, HandoffActionStatus::Done);
}

#[test]
fn a_resend_that_surely_did_not_leave_is_tried_again() {
    use ReplyMeaning as M;
    for (meaning, end, again) in [
        (M::Deferred, HandoffState::Queued, true),
        (M::Fault, HandoffState::Queued, true),
        (M::Refused, HandoffState::Unknown, false),
        (M::Unknown, HandoffState::Unknown, false),
        (M::Accepted, HandoffState::Sent, false),
    ] {
        let mut email = in_state(HandoffState::Unknown);
        drop(email.apply_action(
            &HandoffAction::CheckLater { number: 0, evidence: None, next_check_at: Some(T0.plus(86_400_000)) },
            T0,
        ));
        drop(email.apply_action(&resolve(&email, Resolution::Resend), T0));
        // At once, not when the next check was due.
        assert_eq!((email.handoffs[0].due_at, email.handoffs[0].progress.may_duplicate), (Some(T0), true));
        for _ in 0..2 {
            assert!(email.lease_handoff(0, NODE, T0));
            drop(email.apply_action(
                &HandoffAction::ReturnLease { lease: hold(&email), due_at: T0, reason: "busy".into() },
                T0,
            ));
            assert_eq!(email.handoffs[0].state, HandoffState::Queued);
        }
        assert!(email.lease_handoff(0, NODE, T0));
        let hold = mark(&mut email);
        drop(email.apply_action(&outcome_action(hold, Some(2), meaning), T0));
        assert_eq!(
            (email.handoffs[0].state, email.handoffs[0].progress.retry_despite_doubt),
            (end, again),
            "{}",
            meaning.as_str()
        );
    }
}

#[test]
fn a_refusal_frees_a_handoff_only_when_nothing_else_is_in_doubt() {
    let mut email = in_state(HandoffState::Unknown);
    let first = hold(&email);
    drop(email.apply_action(&HandoffAction::RetryInWindow { number: 0, holder: NODE, account: "A".into() }, T0));
    let second = mark(&mut email);
    drop(email.apply_action(&outcome_action(second.clone(), Some(2), ReplyMeaning::Unknown), T0));
    assert_eq!(email.handoffs[0].progress.attempts_in_doubt, [1, 2]);

    let effects = email.apply_action(&outcome_action(first, Some(1), ReplyMeaning::Refused), T0);
    assert_eq!((effects.status, effects.changed), (HandoffActionStatus::Stale, true));
    assert_eq!(
        (email.handoffs[0].state, &email.handoffs[0].progress.attempts_in_doubt[..]),
        (HandoffState::Unknown, &[2][..])
    );

    let effects = email.apply_action(&outcome_action(second, Some(2), ReplyMeaning::Refused), T0);
    assert_eq!((email.handoffs[0].state, email.handoffs[0].progress.in_doubt_since), (HandoffState::Queued, None));
    assert_eq!(effects.events.iter().map(|event| event.kind).collect::<Vec<_>>(), [EventKind::EmailResolved]);
    assert!(!email.handoffs[0].progress.may_duplicate);
}

#[test]
fn an_email_fails_over_only_while_no_attempt_may_have_sent_it() {
    let envelopes = vec![Envelope { transport: "api".into(), recipients: vec!["u0@example.com".into()] }];
    let redirect = HandoffAction::FailOverEmail { from: "relay".into(), envelopes };
    let mut fresh = email(2);
    let effects = fresh.apply_action(&redirect, T0.plus(5));
    assert_eq!((effects.status, effects.new_handoffs.len()), (HandoffActionStatus::Done, 1));
    let states: Vec<_> = fresh.handoffs.iter().map(|h| (h.number, h.state, h.transport.as_str())).collect();
    let (off, on) = (HandoffState::Cancelled, HandoffState::Queued);
    assert_eq!(states, [(0, off, "relay"), (1, off, "relay"), (2, on, "api")]);
    assert_eq!(fresh.handoffs[2].due_at, Some(T0));
    assert_eq!(fresh.state(), EmailState::Queued);
    assert_eq!(fresh.apply_action(&redirect, T0).status, HandoffActionStatus::Stale, "it goes by another way already");

    for state in [
        HandoffState::Leased,
        HandoffState::Sending,
        HandoffState::Sent,
        HandoffState::Unknown,
        HandoffState::Held,
        HandoffState::Abandoned,
    ] {
        let mut begun = email(2);
        begun.handoffs[1].state = state;
        assert_eq!(begun.apply_action(&redirect, T0).status, HandoffActionStatus::Stale, "{}", state.as_str());
        assert_eq!(begun.handoffs.len(), 2);
    }
    let mut doubted = email(2);
    doubted.handoffs[0].progress.attempts_in_doubt.push(1);
    assert_eq!(doubted.apply_action(&redirect, T0).status, HandoffActionStatus::Stale);
}

fn held_email(holds: &[Guard]) -> Email {
    let mut email = email(2);
    email.hold(holds.iter().copied().collect(), T0);
    email
}

fn release_of(hold: Guard, ignores_budgets: bool) -> HoldRelease {
    let (period_start, ends_at, at_limit) = (T0, T0.plus(60_000), crate::control::budget::AtLimit::Hold);
    let budget = Uuid::from_u128(5);
    let charge = Charge { budget, counter: budget, period_start, ends_at, amount: 1, limit: 3, at_limit };
    HoldRelease { hold, charges: vec![charge], ignores_budgets }
}

fn usage_of(used: u64) -> BudgetUsage {
    let mut usage = BudgetUsage::default();
    usage.load((Uuid::from_u128(5), T0), used);
    usage
}

#[test]
fn an_email_leaves_when_its_last_hold_is_removed() {
    let mut email = held_email(&[Guard::Approval, Guard::LooksDuplicate]);
    let effects = email.release_hold(&release_of(Guard::LooksDuplicate, false), &usage_of(0), T0);
    assert_eq!((email.state(), email.guard), (EmailState::Held, Some(Guard::Approval)));
    assert_eq!((effects.events[0].kind, effects.charges.len()), (EventKind::EmailHoldRemoved, 0));
    let again = email.release_hold(&release_of(Guard::LooksDuplicate, false), &usage_of(0), T0);
    assert_eq!((again.status, again.changed), (HandoffActionStatus::Unchanged, false));
    let effects = email.release_hold(&release_of(Guard::Approval, false), &usage_of(2), T0);
    assert_eq!((email.state(), email.guard, email.holds.is_empty()), (EmailState::Queued, Some(Guard::Approval), true));
    assert_eq!((effects.events[0].kind, effects.charges.len()), (EventKind::EmailReleased, 1));
}

#[test]
fn a_budget_without_room_holds_what_was_approved() {
    let mut email = held_email(&[Guard::Approval]);
    let effects = email.release_hold(&release_of(Guard::Approval, false), &usage_of(3), T0);
    assert_eq!((email.state(), email.guard, effects.charges.len()), (EmailState::Held, Some(Guard::Budget), 0));
    let waits = email.release_hold(&release_of(Guard::Budget, false), &usage_of(3), T0);
    assert_eq!((waits.status, email.guard), (HandoffActionStatus::Unchanged, Some(Guard::Budget)));
    let mut overridden = email.clone();
    let effects = overridden.release_hold(&release_of(Guard::Budget, true), &usage_of(3), T0);
    assert_eq!((overridden.state(), effects.charges.len()), (EmailState::Queued, 1));
    let effects = email.release_hold(&release_of(Guard::Budget, false), &usage_of(2), T0);
    assert_eq!((email.state(), effects.charges.len()), (EmailState::Queued, 1));
}

#[test]
fn a_budget_that_a_person_waived_does_not_hold_again() {
    let mut email = held_email(&[Guard::Approval, Guard::Budget]);
    drop(email.release_hold(&release_of(Guard::Budget, true), &usage_of(3), T0));
    assert_eq!((email.state(), email.guard), (EmailState::Held, Some(Guard::Approval)));
    let effects = email.release_hold(&release_of(Guard::Approval, false), &usage_of(3), T0);
    assert_eq!((email.state(), effects.charges.len()), (EmailState::Queued, 1));
}

#[test]
fn a_cancelled_email_is_not_released() {
    let mut email = held_email(&[Guard::Approval, Guard::Budget]);
    email.cancel(T0).unwrap();
    assert_eq!(email.holds, Guard::Approval.into());
    let effects = email.release_hold(&release_of(Guard::Approval, true), &usage_of(0), T0);
    assert_eq!((effects.status, email.state()), (HandoffActionStatus::Unchanged, EmailState::Cancelled));
}

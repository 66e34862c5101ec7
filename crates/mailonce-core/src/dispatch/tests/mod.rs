//! What each act means in each state.

mod play;

use super::{rules::fact, *};
use crate::{
    content::{Content, RawContent},
    digest::Digest,
    email::{Channel, Email, EmailHead, EmailState, Guard, OnUnknown},
    event::Kind,
    handoff::{Says, Source, State, Step},
    id::{EmailId, TeamId},
    port::{
        store::Wish,
        transport::{Meaning, Phase},
    },
    ttl,
};
use uuid::Uuid;

pub(super) const T0: Time = Time(1_731_628_800_000);
pub(super) const NODE: NodeId = NodeId(Uuid::from_u128(7));
pub(super) const PLAN: Plan = Plan { max_attempts: 12, max_age_ms: 86_400_000, chance: 500 };

/// An email with so many envelopes.
pub(super) fn email(envelopes: usize) -> Email {
    let to: Vec<String> = (0..envelopes).map(|i| format!("u{i}@example.com")).collect();
    let raw =
        RawContent { from: "a@example.com".into(), to: to.clone(), subject: "Hi".into(), ..RawContent::default() };
    let content = Content::check(RawContent { text: Some("hello".into()), ..raw }).unwrap();
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
    };
    let wish = Wish {
        id: EmailId(Uuid::from_u128(1)),
        team: TeamId(Uuid::from_u128(2)),
        head,
        digest: Digest::of(&content),
        key: None,
        slots: Vec::new(),
        first_wins: false,
        ttl: ttl::DEFAULT,
        envelopes: to.into_iter().map(|to| Envelope { transport: "relay".into(), recipients: vec![to] }).collect(),
        due: None,
        body: Arc::from([]),
        care: crate::port::store::Care::default(),
    };
    wish.become_email(0, None, T0).0
}

pub(super) fn reply(meaning: Meaning) -> Reply {
    Reply::new(meaning, Phase::Final, Some(250), meaning.word())
}

/// A worker that holds the first handoff as it is now.
fn hold(email: &Email) -> Hold {
    let fence = email.handoffs[0].fence;
    Hold { number: 0, fence, transport: "relay".into(), account: "A".into() }
}

fn mark(email: &mut Email) -> Hold {
    let hold = hold(email);
    assert_eq!(email.act(&Act::Mark { hold: hold.clone(), wire: None }, T0).verdict, Verdict::Done);
    hold
}

fn settle(hold: Hold, attempt: Option<u32>, meaning: Meaning) -> Act {
    Act::Settle { hold, attempt, began: T0, reply: reply(meaning), plan: PLAN }
}

fn says(says: Says) -> Act {
    Act::Fact(fact(0, Source::ProviderEvent, says, "told", T0))
}

fn resolve(email: &Email, choice: Choice) -> Act {
    Act::Resolve { choice, rev: email.rev, handoff: None, reason: "seen".into() }
}

/// An email that was marked and whose answer means this.
fn answered(meaning: Meaning) -> Email {
    let mut email = in_state(State::Sending);
    let act = settle(hold(&email), Some(1), meaning);
    assert_eq!(email.act(&act, T0).verdict, Verdict::Done);
    email
}

/// An email whose handoff came to a state by legal means.
fn in_state(state: State) -> Email {
    let mut email = match state {
        State::Sent | State::Delivered | State::Bounced | State::Complained => answered(Meaning::Accepted),
        State::Failed => answered(Meaning::Refused),
        State::Unknown | State::Abandoned => answered(Meaning::Unknown),
        _ => email(1),
    };
    match state {
        State::Scheduled => {
            email.handoffs[0].state = State::Scheduled;
            email.handoffs[0].due_at = Some(T0.plus(1_000));
        }
        State::Leased => assert!(email.lease(0, NODE, T0)),
        State::Sending => {
            assert!(email.lease(0, NODE, T0));
            mark(&mut email);
        }
        State::Delivered => drop(email.act(&says(Says::Delivered), T0)),
        State::Bounced => drop(email.act(&says(Says::Bounced), T0)),
        State::Complained => drop(email.act(&says(Says::Complained), T0)),
        State::Abandoned => drop(email.act(&resolve(&email, Choice::Abandon), T0)),
        State::Held => email.hold(Guard::Overlaps, T0),
        State::Cancelled => drop(email.cancel(T0).unwrap()),
        _ => {}
    }
    assert_eq!(email.handoffs[0].state, state);
    email
}

/// Where an act leads from the states it is meant for, and what it says in every other.
fn holds_in(name: &str, act: impl Fn(&Email) -> Act, moves: &[(State, State)], otherwise: Verdict) {
    for from in State::ALL {
        let mut email = in_state(*from);
        let act = act(&email);
        let before = email.clone();
        let effects = email.act(&act, T0.plus(5));
        let (to, verdict) = match moves.iter().find(|(state, _)| state == from) {
            Some((_, to)) => (*to, Verdict::Done),
            None => (*from, otherwise),
        };
        assert_eq!((email.handoffs[0].state, effects.verdict), (to, verdict), "{name} in {}", from.word());
        assert_eq!(effects.changed, email != before, "{name} in {}", from.word());
    }
}

#[test]
fn workers_command_only_what_they_hold() {
    use State as S;
    let mark = |email: &Email| Act::Mark { hold: hold(email), wire: None };
    let park = |email: &Email| Act::Park { hold: hold(email), due: T0, why: "busy".into() };
    let crash = |_: &Email| Act::Crash { number: 0, holder: NODE };
    holds_in("mark", mark, &[(S::Leased, S::Sending)], Verdict::Stale);
    holds_in("park", park, &[(S::Leased, S::Queued)], Verdict::Stale);
    holds_in("crash", crash, &[(S::Leased, S::Queued), (S::Sending, S::Unknown)], Verdict::Unchanged);
}

#[test]
fn only_the_unknown_is_repeated_waited_for_and_resolved() {
    use State as S;
    let repeat = |_: &Email| Act::Repeat { number: 0, holder: NODE, account: "A".into() };
    let elsewhere = |_: &Email| Act::Repeat { number: 0, holder: NODE, account: "B".into() };
    let wait = |_: &Email| Act::Wait { number: 0, evidence: None, next: Some(T0.plus(9)) };
    let policy = |_: &Email| Act::ResendByPolicy { number: 0 };
    let refused = Verdict::Refused(Refusal::NotUnknown);
    holds_in("repeat", repeat, &[(S::Unknown, S::Leased)], Verdict::Stale);
    holds_in("repeat elsewhere", elsewhere, &[], Verdict::Stale);
    holds_in("wait", wait, &[(S::Unknown, S::Unknown)], Verdict::Stale);
    holds_in("policy", policy, &[(S::Unknown, S::Queued)], Verdict::Stale);
    for (choice, to) in [(Choice::Sent, S::Sent), (Choice::Resend, S::Queued), (Choice::Abandon, S::Abandoned)] {
        holds_in(choice.word(), |email| resolve(email, choice), &[(S::Unknown, to)], refused);
    }
}

#[test]
fn only_what_was_not_begun_takes_another_way() {
    let reroute = |_: &Email| Act::Reroute { number: 0, from: "relay".into(), to: "other".into() };
    let moves = [(State::Queued, State::Queued), (State::Scheduled, State::Scheduled)];
    holds_in("reroute", reroute, &moves, Verdict::Stale);
    let elsewhere = |_: &Email| Act::Reroute { number: 0, from: "nowhere".into(), to: "other".into() };
    holds_in("reroute from elsewhere", elsewhere, &[], Verdict::Stale);
}

#[test]
fn only_what_waits_is_moved_or_given_up_and_only_what_is_open_is_reported() {
    use State as S;
    let people = vec!["u0@example.com".into()];
    let envelopes = vec![Envelope { transport: "other".into(), recipients: people }];
    let relocate = |_: &Email| Act::Relocate { from: "relay".into(), envelopes: envelopes.clone() };
    let waits = [(S::Queued, S::Queued), (S::Scheduled, S::Scheduled)];
    holds_in("relocate", relocate, &waits, Verdict::Stale);

    let orphan = |_: &Email| Act::Orphan { number: 0, transport: "relay".into(), since: T0 };
    let open = [(S::Queued, S::Queued), (S::Scheduled, S::Scheduled), (S::Unknown, S::Unknown)];
    holds_in("orphan", orphan, &open, Verdict::Stale);

    for from in State::ALL {
        let mut email = in_state(*from);
        email.handoffs[0].work.orphaned = Some(T0.plus(-9));
        let act = Act::GiveUpOrphan { number: 0, transport: "relay".into(), max_age_ms: 9 };
        let verdict = email.act(&act, T0.plus(2_000)).verdict;
        let waits = matches!(from, S::Queued | S::Scheduled);
        assert_eq!(verdict == Verdict::Done, waits, "{}", from.word());
        let end = if waits { S::Failed } else { *from };
        assert_eq!(email.handoffs[0].state, end, "{}", from.word());
    }
}

#[test]
fn who_has_the_transport_takes_an_orphan_as_any_other() {
    let orphan = || Act::Orphan { number: 0, transport: "relay".into(), since: T0 };
    let mut queued = in_state(State::Queued);
    drop(queued.act(&orphan(), T0));
    assert!(queued.lease(0, NODE, T0));
    assert_eq!(queued.handoffs[0].work.orphaned, None);
    for act in [
        Act::Repeat { number: 0, holder: NODE, account: "A".into() },
        Act::Wait { number: 0, evidence: None, next: None },
    ] {
        let mut unknown = in_state(State::Unknown);
        drop(unknown.act(&orphan(), T0));
        assert_eq!(unknown.handoffs[0].work.orphaned, Some(T0));
        drop(unknown.act(&act, T0));
        assert_eq!(unknown.handoffs[0].work.orphaned, None, "{act:?}");
    }
}

#[test]
fn an_orphan_that_may_have_left_is_unknown_in_the_end_and_stays_where_it_is() {
    let mut email = in_state(State::Unknown);
    drop(email.act(&resolve(&email, Choice::Resend), T0));
    drop(email.act(&Act::Orphan { number: 0, transport: "relay".into(), since: T0 }, T0));
    let envelopes = vec![Envelope { transport: "other".into(), recipients: email.handoffs[0].recipients.clone() }];
    assert_eq!(email.act(&Act::Relocate { from: "relay".into(), envelopes }, T0).verdict, Verdict::Stale);
    let give_up = Act::GiveUpOrphan { number: 0, transport: "relay".into(), max_age_ms: 0 };
    let effects = email.act(&give_up, T0);
    assert_eq!((effects.verdict, email.handoffs[0].state), (Verdict::Done, State::Unknown));
    assert_eq!(effects.events[0].kind, Kind::EmailUnknown);
}

#[test]
fn proof_moves_any_state_to_sent() {
    for from in State::ALL {
        for proof in [Says::Accepted, Says::Delayed, Says::Delivered, Says::Bounced, Says::Complained] {
            let mut email = in_state(*from);
            let effects = email.act(&says(proof), T0);
            let state = email.handoffs[0].state;
            let gone = matches!(state, State::Sent | State::Delivered | State::Bounced | State::Complained);
            assert!(gone && effects.verdict == Verdict::Done, "{} in {}", proof.word(), from.word());
            assert_eq!(effects.evidence.len(), 1);
        }
    }
}

#[test]
fn news_in_any_order_ends_in_the_worst() {
    for (news, end) in [
        ([Says::Delivered, Says::Bounced], State::Bounced),
        ([Says::Delivered, Says::Complained], State::Complained),
        ([Says::Bounced, Says::Complained], State::Complained),
        ([Says::Accepted, Says::Delivered], State::Delivered),
        ([Says::Delayed, Says::Delivered], State::Delivered),
        ([Says::Delayed, Says::Bounced], State::Bounced),
    ] {
        for order in [[news[0], news[1]], [news[1], news[0]]] {
            let mut email = in_state(State::Sending);
            order.iter().for_each(|news| drop(email.act(&says(*news), T0)));
            assert_eq!(email.handoffs[0].state, end, "{order:?}");
        }
    }
}

#[test]
fn what_an_answer_means_after_the_marker_and_before_it() {
    use State as S;
    for (meaning, after, before) in [
        (Meaning::Accepted, S::Sent, S::Unknown),
        (Meaning::Repeated, S::Sent, S::Unknown),
        (Meaning::Deferred, S::Queued, S::Queued),
        (Meaning::Fault, S::Queued, S::Queued),
        (Meaning::Refused, S::Failed, S::Failed),
        (Meaning::Concurrent, S::Unknown, S::Unknown),
        (Meaning::Mismatch, S::Unknown, S::Unknown),
        (Meaning::Unknown, S::Unknown, S::Unknown),
    ] {
        let email = answered(meaning);
        assert_eq!(email.handoffs[0].state, after, "{}", meaning.word());
        assert_eq!(email.handoffs[0].work.puzzling, meaning == Meaning::Mismatch);

        let mut email = in_state(S::Leased);
        let effects = email.act(&settle(hold(&email), None, meaning), T0);
        let attempt = (effects.attempts[0].number, effects.attempts[0].outcome);
        assert_eq!(email.handoffs[0].state, before, "{} before the marker", meaning.word());
        assert_eq!((email.handoffs[0].attempts, attempt), (1, (1, Some(crate::handoff::Outcome::of(meaning)))));
    }
}

#[test]
fn a_handoff_is_put_off_with_backoff_or_as_long_as_the_next_hop_asks() {
    for (asks, due) in [(None, 500), (Some(9_000), 9_000), (Some(-5), 500), (Some(i64::MAX), 3_600_000)] {
        let mut email = in_state(State::Sending);
        let reply = reply(Meaning::Deferred).after(asks);
        let act = Act::Settle { hold: hold(&email), attempt: Some(1), began: T0, reply, plan: PLAN };
        let effects = email.act(&act, T0.plus(10));
        assert_eq!(email.handoffs[0].due_at, Some(T0.plus(10 + due)), "{asks:?}");
        assert_eq!(effects.events[0].kind, Kind::EmailDeferred);
    }
}

#[test]
fn tries_end_by_number_and_by_age_but_faults_are_not_counted() {
    let last = Plan { max_attempts: 1, ..PLAN };
    let old = Plan { max_age_ms: 0, ..PLAN };
    for (meaning, plan, end) in [
        (Meaning::Deferred, last, State::Failed),
        (Meaning::Fault, last, State::Queued),
        (Meaning::Deferred, old, State::Failed),
        (Meaning::Fault, old, State::Failed),
    ] {
        let mut email = in_state(State::Sending);
        let act = Act::Settle { hold: hold(&email), attempt: Some(1), began: T0, reply: reply(meaning), plan };
        drop(email.act(&act, T0));
        assert_eq!(email.handoffs[0].state, end, "{} {plan:?}", meaning.word());
    }
}

#[test]
fn an_attempt_in_doubt_is_only_repeated_at_its_account() {
    let mut email = in_state(State::Unknown);
    let repeat = Act::Repeat { number: 0, holder: NODE, account: "A".into() };
    assert_eq!(email.act(&repeat, T0).verdict, Verdict::Done);
    let elsewhere = Hold { account: "B".into(), ..hold(&email) };

    let effects = email.act(&Act::Mark { hold: elsewhere, wire: None }, T0);

    assert_eq!((effects.verdict, effects.changed, effects.attempts.len()), (Verdict::Stale, true, 0));
    assert_eq!((email.handoffs[0].state, email.handoffs[0].attempts), (State::Unknown, 1));
}

#[test]
fn what_was_tried_at_two_accounts_is_repeated_at_neither() {
    let mut email = in_state(State::Unknown);
    drop(email.act(&resolve(&email, Choice::Resend), T0));
    assert!(email.lease(0, NODE, T0));
    let elsewhere = Hold { account: "B".into(), ..hold(&email) };
    assert_eq!(email.act(&Act::Mark { hold: elsewhere.clone(), wire: None }, T0).verdict, Verdict::Done);
    drop(email.act(&settle(elsewhere, Some(2), Meaning::Unknown), T0));

    for account in ["A", "B"] {
        let repeat = Act::Repeat { number: 0, holder: NODE, account: account.into() };
        assert_eq!(email.act(&repeat, T0).verdict, Verdict::Stale, "{account}");
    }
}

#[test]
fn a_busy_next_hop_is_in_doubt_besides_what_was_before() {
    let mut email = in_state(State::Unknown);
    drop(email.act(&Act::Repeat { number: 0, holder: NODE, account: "A".into() }, T0));
    let hold = mark(&mut email);
    drop(email.act(&settle(hold, Some(2), Meaning::Concurrent), T0));
    assert_eq!((email.handoffs[0].state, &email.handoffs[0].work.doubts[..]), (State::Unknown, &[1, 2][..]));
}

#[test]
fn a_person_must_have_seen_the_email_as_it_is() {
    let mut email = in_state(State::Unknown);
    let seen = resolve(&email, Choice::Sent);
    drop(email.act(&Act::ResendByPolicy { number: 0 }, T0));
    let effects = email.act(&seen, T0);
    assert_eq!((effects.verdict, effects.changed), (Verdict::Refused(Refusal::StaleRev), false));
}

#[test]
fn proof_that_contradicts_us_is_told_as_a_correction() {
    for (from, corrected) in [(State::Sending, false), (State::Unknown, true), (State::Cancelled, true)] {
        let mut email = in_state(from);
        let effects = email.act(&says(Says::Accepted), T0);
        assert_eq!(effects.events[0].kind, Kind::EmailSent);
        assert_eq!(effects.events[0].data.get("corrected").is_some(), corrected, "{}", from.word());
    }
}

#[test]
fn a_puzzling_handoff_is_left_to_a_person() {
    let mut email = answered(Meaning::Mismatch);
    let repeat = Act::Repeat { number: 0, holder: NODE, account: "A".into() };
    assert_eq!(email.act(&repeat, T0).verdict, Verdict::Stale);
    assert_eq!(email.act(&Act::ResendByPolicy { number: 0 }, T0).verdict, Verdict::Stale);
    assert_eq!(email.act(&resolve(&email, Choice::Resend), T0).verdict, Verdict::Done);
}

#[test]
fn a_resend_that_surely_did_not_leave_is_tried_again() {
    use Meaning as M;
    for (meaning, end, again) in [
        (M::Deferred, State::Queued, true),
        (M::Fault, State::Queued, true),
        (M::Refused, State::Unknown, false),
        (M::Unknown, State::Unknown, false),
        (M::Accepted, State::Sent, false),
    ] {
        let mut email = in_state(State::Unknown);
        drop(email.act(&Act::Wait { number: 0, evidence: None, next: Some(T0.plus(86_400_000)) }, T0));
        drop(email.act(&resolve(&email, Choice::Resend), T0));
        // At once, not when the next look was due.
        assert_eq!((email.handoffs[0].due_at, email.handoffs[0].work.may_duplicate), (Some(T0), true));
        for _ in 0..2 {
            assert!(email.lease(0, NODE, T0));
            drop(email.act(&Act::Park { hold: hold(&email), due: T0, why: "busy".into() }, T0));
            assert_eq!(email.handoffs[0].state, State::Queued);
        }
        assert!(email.lease(0, NODE, T0));
        let hold = mark(&mut email);
        drop(email.act(&settle(hold, Some(2), meaning), T0));
        assert_eq!((email.handoffs[0].state, email.handoffs[0].work.again), (end, again), "{}", meaning.word());
    }
}

#[test]
fn a_refusal_frees_a_handoff_only_when_nothing_else_is_in_doubt() {
    let mut email = in_state(State::Unknown);
    let first = hold(&email);
    drop(email.act(&Act::Repeat { number: 0, holder: NODE, account: "A".into() }, T0));
    let second = mark(&mut email);
    drop(email.act(&settle(second.clone(), Some(2), Meaning::Unknown), T0));
    assert_eq!(email.handoffs[0].work.doubts, [1, 2]);

    let effects = email.act(&settle(first, Some(1), Meaning::Refused), T0);
    assert_eq!((effects.verdict, effects.changed), (Verdict::Stale, true));
    assert_eq!((email.handoffs[0].state, &email.handoffs[0].work.doubts[..]), (State::Unknown, &[2][..]));

    let effects = email.act(&settle(second, Some(2), Meaning::Refused), T0);
    assert_eq!((email.handoffs[0].state, email.handoffs[0].work.doubt_since), (State::Queued, None));
    assert_eq!(effects.events.iter().map(|event| event.kind).collect::<Vec<_>>(), [Kind::EmailResolved]);
    assert!(!email.handoffs[0].work.may_duplicate);
}

#[test]
fn an_email_takes_another_way_only_while_nothing_of_it_left() {
    let envelopes = vec![Envelope { transport: "api".into(), recipients: vec!["u0@example.com".into()] }];
    let redirect = Act::Redirect { from: "relay".into(), envelopes };
    let mut fresh = email(2);
    let effects = fresh.act(&redirect, T0.plus(5));
    assert_eq!((effects.verdict, effects.appended.len()), (Verdict::Done, 1));
    let states: Vec<_> = fresh.handoffs.iter().map(|h| (h.number, h.state, h.transport.as_str())).collect();
    let (off, on) = (State::Cancelled, State::Queued);
    assert_eq!(states, [(0, off, "relay"), (1, off, "relay"), (2, on, "api")]);
    assert_eq!(fresh.handoffs[2].due_at, Some(T0));
    assert_eq!(fresh.state(), EmailState::Queued);
    assert_eq!(fresh.act(&redirect, T0).verdict, Verdict::Stale, "it goes by another way already");

    for state in [State::Leased, State::Sending, State::Sent, State::Unknown, State::Held, State::Abandoned] {
        let mut begun = email(2);
        begun.handoffs[1].state = state;
        assert_eq!(begun.act(&redirect, T0).verdict, Verdict::Stale, "{}", state.word());
        assert_eq!(begun.handoffs.len(), 2);
    }
    let mut doubted = email(2);
    doubted.handoffs[0].work.doubts.push(1);
    assert_eq!(doubted.act(&redirect, T0).verdict, Verdict::Stale);
}

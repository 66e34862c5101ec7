//! Promises about what a next hop answers, in time and late.

use mailonce_core::{
    dispatch::{Act, Hold, Verdict},
    email::EmailState,
    handoff::{Attempt, AttemptAbout, Outcome, Says, Source, State},
    port::{
        store::TransportAccount,
        transport::{Meaning, Phase, Reply},
    },
};

use super::{
    HOUR, Ledger, MINUTE, SANDBOX, SECOND, T0, detail, events, keyed, kinds, the,
    work::{
        Job, NODE, SECOND_NODE, act, answer, fact, handoff, leased, lost, mark, marked, marker, repeated, reply,
        settle, take,
    },
};

pub(super) async fn an_accepted_answer_sends(store: Ledger) {
    let job = marked(&store, &keyed("k")).await;
    let now = T0.plus(7);

    let said = reply(Meaning::Accepted).named(Some("<1@relay>".into()));
    let (verdict, email) = act(&store, job.id, settle(&job, said, T0), now).await;

    assert_eq!((verdict, email.state(), email.settled_at), (Verdict::Done, EmailState::Sent, Some(now)));
    assert_eq!(the(&store, job.id).await, email);
    assert_eq!(kinds(&store).await, ["email.accepted", "email.sent"]);
    let last = events(&store, super::TEAM).await.pop().unwrap().event;
    assert_eq!(
        (last.rev, last.at, &last.data["handoff"], &last.data["reply"]["code"]),
        (email.rev, now, &0.into(), &299.into())
    );
}

pub(super) async fn attempts_are_read_back_whole_and_in_order(store: Ledger) {
    let job = marked(&store, &keyed("k")).await;
    let begun = Attempt {
        handoff: 0,
        number: 1,
        at: T0,
        ended_at: None,
        outcome: None,
        reply: String::new(),
        about: AttemptAbout { transport: SANDBOX.into(), account: "A".into(), fence: 1, ..AttemptAbout::default() },
    };
    assert_eq!(detail(&store, job.id).await.attempts, std::slice::from_ref(&begun));

    let _deferred = answer(&store, &job, Meaning::Deferred, T0.plus(4)).await;
    let next = mark(&store, take(&store, T0.plus(MINUTE)).await, T0.plus(MINUTE)).await;
    let said = Reply::new(Meaning::Accepted, Phase::Final, None, "grüß \"dich\"").named(Some("r-1".into()));
    let _sent = act(&store, next.id, settle(&next, said, T0.plus(MINUTE)), T0.plus(MINUTE + 2)).await;

    let first = Attempt {
        at: T0.plus(4),
        ended_at: Some(T0.plus(4)),
        outcome: Some(Outcome::Deferred),
        reply: "the next hop says deferred".into(),
        about: AttemptAbout { phase: Some(Phase::Final), code: Some(299), ..begun.about.clone() },
        ..begun.clone()
    };
    let second = Attempt {
        number: 2,
        at: T0.plus(MINUTE),
        ended_at: Some(T0.plus(MINUTE + 2)),
        outcome: Some(Outcome::Accepted),
        reply: "grüß \"dich\"".into(),
        about: AttemptAbout {
            fence: 2,
            phase: Some(Phase::Final),
            remote_id: Some("r-1".into()),
            ..begun.about.clone()
        },
        ..begun
    };
    assert_eq!(detail(&store, job.id).await.attempts, [first, second]);
}

pub(super) async fn a_deferred_answer_waits_for_the_backoff_or_as_asked(store: Ledger) {
    let job = marked(&store, &keyed("k")).await;
    let (_, email) = answer(&store, &job, Meaning::Deferred, T0).await;
    let after = &email.handoffs[0];
    assert_eq!((after.state, after.due_at, after.attempts), (State::Queued, Some(T0.plus(SECOND)), 1));
    assert_eq!(store.next_due(SANDBOX).await.unwrap(), Some(T0.plus(SECOND)));

    let job = mark(&store, take(&store, T0.plus(SECOND)).await, T0.plus(SECOND)).await;
    let said = reply(Meaning::Deferred).after(Some(30 * SECOND));
    let (_, email) = act(&store, job.id, settle(&job, said, T0), T0.plus(SECOND)).await;
    assert_eq!(email.handoffs[0].due_at, Some(T0.plus(31 * SECOND)));
    assert_eq!(kinds(&store).await, ["email.accepted", "email.deferred", "email.deferred"]);
}

pub(super) async fn a_refusal_fails(store: Ledger) {
    let job = marked(&store, &keyed("k")).await;
    let (_, email) = answer(&store, &job, Meaning::Refused, T0.plus(2)).await;

    assert_eq!((email.state(), email.settled_at), (EmailState::Failed, Some(T0.plus(2))));
    assert_eq!(email.handoffs[0].work.reason.as_deref(), Some("the next hop says refused"));
    assert_eq!(kinds(&store).await, ["email.accepted", "email.failed"]);
}

pub(super) async fn a_fault_is_put_off_and_does_not_count(store: Ledger) {
    let mut job = marked(&store, &keyed("k")).await;
    for round in 1..=20 {
        let now = T0.plus(round * MINUTE);
        let (_, email) = answer(&store, &job, Meaning::Fault, now).await;
        let after = &email.handoffs[0];
        assert_eq!((after.state, after.work.faults), (State::Queued, round as u32));
        job = mark(&store, take(&store, now.plus(MINUTE)).await, now.plus(MINUTE)).await;
    }
}

pub(super) async fn tries_end_by_their_number(store: Ledger) {
    let mut job = marked(&store, &keyed("k")).await;
    for round in 1..12 {
        let now = T0.plus(round * MINUTE);
        assert_eq!(answer(&store, &job, Meaning::Deferred, now).await.1.state(), EmailState::Queued);
        job = mark(&store, take(&store, now.plus(MINUTE)).await, now.plus(MINUTE)).await;
    }
    let (_, email) = answer(&store, &job, Meaning::Deferred, T0.plus(HOUR)).await;
    assert_eq!((email.state(), email.handoffs[0].attempts), (EmailState::Failed, 12));
}

pub(super) async fn an_answer_that_decides_nothing_is_unknown(store: Ledger) {
    for meaning in [Meaning::Unknown, Meaning::Concurrent, Meaning::Mismatch] {
        let job = marked(&store, &keyed(meaning.word())).await;
        let (verdict, email) = answer(&store, &job, meaning, T0).await;

        let (state, work) = (email.handoffs[0].state, &email.handoffs[0].work);
        assert_eq!((verdict, state, &work.doubts[..]), (Verdict::Done, State::Unknown, &[1][..]));
        assert_eq!((work.doubt_since, work.account.as_deref()), (Some(T0), Some("A")));
        assert_eq!((work.puzzling, email.settled_at), (meaning == Meaning::Mismatch, None));
        assert_eq!(email.handoffs[0].due_at, Some(T0.plus(SECOND)));
        assert_eq!(kinds(&store).await.last(), Some(&"email.unknown"));
    }
}

pub(super) async fn an_answer_before_the_marker_leaves_an_attempt(store: Ledger) {
    for (meaning, state) in
        [(Meaning::Deferred, State::Queued), (Meaning::Fault, State::Queued), (Meaning::Refused, State::Failed)]
    {
        let job = leased(&store, &keyed(meaning.word())).await;
        let said = Reply::new(meaning, Phase::Rcpt, Some(450), "before the marker");
        let (verdict, email) = act(&store, job.id, settle(&job, said, T0.plus(-3)), T0).await;

        assert_eq!((verdict, email.handoffs[0].state, email.handoffs[0].attempts), (Verdict::Done, state, 1));
        let attempts = detail(&store, job.id).await.attempts;
        assert_eq!((attempts.len(), attempts[0].at, attempts[0].outcome), (1, T0.plus(-3), Some(Outcome::of(meaning))));
        assert_eq!(attempts[0].about.phase, Some(Phase::Rcpt));
        assert!(!email.handoffs[0].is_in_doubt());
        if state == State::Queued {
            let _gone = super::cancelled(&store, job.id, T0).await;
        }
    }
}

pub(super) async fn a_marker_that_its_worker_never_heard_of_is_answered(store: Ledger) {
    let job = marked(&store, &keyed("k")).await;
    let unheard = Job { attempt: None, ..job };
    let (verdict, email) = answer(&store, &unheard, Meaning::Fault, T0).await;

    assert_eq!((verdict, email.state(), email.handoffs[0].attempts), (Verdict::Done, EmailState::Queued, 1));
    assert_eq!(detail(&store, unheard.id).await.attempts.len(), 1);
}

pub(super) async fn a_late_accept_corrects(store: Ledger) {
    let job = marked(&store, &keyed("k")).await;
    let _recovered = store.recover(SECOND_NODE, 10, T0).await.unwrap();
    let (_, email) = act(&store, job.id, Act::ResendByPolicy { number: 0 }, T0).await;
    assert_eq!(email.state(), EmailState::Queued);

    let (verdict, email) = answer(&store, &job, Meaning::Accepted, T0.plus(9)).await;

    assert_eq!((verdict, email.state(), email.settled_at), (Verdict::Stale, EmailState::Sent, Some(T0.plus(9))));
    assert_eq!(email, the(&store, job.id).await);
    assert!(!email.handoffs[0].is_in_doubt());
    let found = detail(&store, job.id).await;
    let late = found.evidence.last().unwrap();
    assert_eq!((late.source, late.says, late.attempt), (Source::LateReply, Says::Accepted, Some(1)));
    assert_eq!(found.attempts[0].outcome, Some(Outcome::Accepted));
    assert_eq!(events(&store, super::TEAM).await.pop().unwrap().event.data["corrected"], true);
    assert_eq!(super::work::lease(&store, 10, T0.plus(HOUR)).await, []);
}

pub(super) async fn a_late_refusal_frees_only_what_is_not_in_doubt_otherwise(store: Ledger) {
    let first = lost(&store, &keyed("k")).await;
    let second = repeated(&store, &first, T0).await;
    let _unknown = answer(&store, &second, Meaning::Unknown, T0).await;

    let (verdict, email) = answer(&store, &first, Meaning::Refused, T0).await;
    assert_eq!((verdict, email.state()), (Verdict::Stale, EmailState::Unknown));
    assert_eq!(handoff(&store, &first).await.work.doubts, [2]);

    let (verdict, email) = answer(&store, &second, Meaning::Deferred, T0.plus(3)).await;
    assert_eq!((verdict, email.state()), (Verdict::Stale, EmailState::Queued));
    let after = handoff(&store, &first).await;
    assert_eq!((after.is_in_doubt(), after.work.may_duplicate, after.due_at), (false, false, Some(T0.plus(3))));
    assert_eq!(kinds(&store).await.last(), Some(&"email.resolved"));
    assert_eq!(detail(&store, first.id).await.evidence.len(), 3);
}

pub(super) async fn a_stale_worker_starts_nothing_and_puts_nothing_off(store: Ledger) {
    let old = leased(&store, &keyed("k")).await;
    let _recovered = store.recover(SECOND_NODE, 10, T0).await.unwrap();
    let new = take(&store, T0).await;
    let before = the(&store, old.id).await;

    let park = Act::Park { hold: old.hold.clone(), due: T0.plus(HOUR), why: "late".into() };
    for late in [marker(&old, b"late"), park, settle(&old, reply(Meaning::Refused), T0)] {
        assert_eq!(act(&store, old.id, late, T0).await, (Verdict::Stale, before.clone()));
    }
    assert_eq!(detail(&store, old.id).await.email, before);
    let _marked = mark(&store, new, T0).await;
}

pub(super) async fn a_repeat_is_held_at_once_and_only_at_its_account(store: Ledger) {
    let job = lost(&store, &keyed("k")).await;
    let repeat = |account: &str| Act::Repeat { number: 0, holder: NODE, account: account.into() };
    assert_eq!(act(&store, job.id, repeat("B"), T0).await.0, Verdict::Stale);

    let (verdict, email) = act(&store, job.id, repeat("A"), T0).await;
    let after = &email.handoffs[0];
    assert_eq!((verdict, after.state, after.fence, after.holder), (Verdict::Done, State::Leased, 2, Some(NODE)));
    assert_eq!((&after.work.doubts[..], after.work.asked, after.work.may_duplicate), (&[1][..], 1, false));
    assert_eq!(act(&store, job.id, repeat("A"), T0).await.0, Verdict::Stale);

    let elsewhere = Job { hold: Hold { fence: 2, account: "B".into(), ..job.hold.clone() }, ..job.clone() };
    let (verdict, email) = act(&store, job.id, marker(&elsewhere, b"other"), T0).await;
    assert_eq!((verdict, email.state(), email.handoffs[0].attempts), (Verdict::Stale, EmailState::Unknown, 1));
    assert_eq!(the(&store, job.id).await, email);
}

pub(super) async fn a_refused_repeat_leaves_the_first_in_doubt(store: Ledger) {
    for (meaning, state) in [
        (Meaning::Refused, EmailState::Unknown),
        (Meaning::Deferred, EmailState::Unknown),
        (Meaning::Repeated, EmailState::Sent),
    ] {
        let first = lost(&store, &keyed(meaning.word())).await;
        let second = repeated(&store, &first, T0).await;
        let (_, email) = answer(&store, &second, meaning, T0).await;
        let doubts: &[u32] = if state == EmailState::Unknown { &[1] } else { &[] };
        assert_eq!((email.state(), &email.handoffs[0].work.doubts[..]), (state, doubts), "{}", meaning.word());
    }
}

pub(super) async fn the_policy_resends_once_and_says_so(store: Ledger) {
    let job = lost(&store, &keyed("k")).await;
    let policy = || Act::ResendByPolicy { number: 0 };
    let (verdict, email) = act(&store, job.id, policy(), T0).await;
    let after = &email.handoffs[0];
    assert_eq!((verdict, after.state, after.due_at), (Verdict::Done, State::Queued, Some(T0)));
    assert!(after.work.resent && after.work.may_duplicate && after.is_in_doubt());

    // Deferred, it goes on being tried; lost again, it does not.
    let again = mark(&store, take(&store, T0).await, T0).await;
    assert!(detail(&store, job.id).await.attempts[1].about.may_duplicate);
    assert_eq!(answer(&store, &again, Meaning::Deferred, T0).await.1.state(), EmailState::Queued);
    let again = mark(&store, take(&store, T0.plus(MINUTE)).await, T0).await;
    assert_eq!(answer(&store, &again, Meaning::Unknown, T0).await.1.state(), EmailState::Unknown);
    assert_eq!(act(&store, job.id, policy(), T0).await.0, Verdict::Stale);
    assert_eq!(handoff(&store, &job).await.work.doubts, [1, 3]);
}

pub(super) fn mine() -> Vec<TransportAccount> {
    vec![TransportAccount { name: SANDBOX.into(), account: "A".into() }]
}

pub(super) async fn unknown_handoffs_are_looked_at_when_due(store: Ledger) {
    let early = lost(&store, &keyed("early")).await;
    let late = lost(&store, &keyed("late")).await;
    let wait = |next, evidence| Act::Wait { number: 0, evidence, next };
    let noted = fact(Says::NotFound, None, T0);
    let before = the(&store, late.id).await;
    let (verdict, email) = act(&store, late.id, wait(Some(T0.plus(900)), Some(noted.clone())), T0).await;
    assert_eq!((verdict, email.rev, email.handoffs[0].work.asked), (Verdict::Done, before.rev, 1));

    let due = store.doubts(&mine(), 10, T0.plus(SECOND)).await.unwrap();
    let ids: Vec<_> = due.iter().map(|(email, number)| (email.id, *number)).collect();
    assert_eq!(ids, [(late.id, 0), (early.id, 0)]);
    assert_eq!(due[0].0, the(&store, late.id).await);
    assert_eq!(store.doubts(&mine(), 1, T0.plus(SECOND)).await.unwrap().len(), 1);
    assert_eq!(store.doubts(&mine(), 10, T0.plus(899)).await.unwrap(), []);

    assert_eq!(act(&store, early.id, wait(None, None), T0).await.0, Verdict::Done);
    assert_eq!(store.doubts(&mine(), 10, T0.plus(HOUR)).await.unwrap().len(), 1);
    assert_eq!(detail(&store, late.id).await.evidence, [noted]);
}

//! Promises about leases and markers.

use mailonce_core::{
    dispatch::{Act, Verdict},
    email::{EmailState, Refusal},
    handoff::State,
    port::{
        store::{Acted, Backlog, Change, Envelope, LeaseWish, Once},
        transport::Meaning,
    },
};

use super::{
    HOUR, Ledger, MINUTE, OTHER, SANDBOX, SECOND, T0, TEAM, accepted, cancelled, detail, keyed, kinds, the,
    work::{
        Job, NODE, SECOND_NODE, WIRE, act, answer, handoff, job, lease, leased, lost, mark, marked, marker, take, wish,
    },
};

pub(super) async fn leases_go_to_the_longest_due_first(store: Ledger) {
    let mut ids = Vec::new();
    for (key, due) in [("late", 30), ("early", 10), ("middle", 20), ("not yet", 2_000)] {
        ids.push(accepted(&store, &keyed(key).due(T0.plus(due)), T0).await.id);
    }

    let first: Vec<_> = lease(&store, 2, T0.plus(1_000)).await.iter().map(|leased| leased.email.id).collect();
    let rest: Vec<_> = lease(&store, 2, T0.plus(1_000)).await.iter().map(|leased| leased.email.id).collect();

    assert_eq!((first, rest), (vec![ids[1], ids[2]], vec![ids[0]]));
    assert_eq!(the(&store, ids[3]).await.state(), EmailState::Scheduled);
}

pub(super) async fn each_lease_raises_the_fence(store: Ledger) {
    let email = accepted(&store, &keyed("k"), T0).await;
    for fence in 1..=3 {
        let leased = lease(&store, 1, T0).await.remove(0);
        let after = &leased.email.handoffs[0];
        assert_eq!((after.state, after.fence, after.holder, after.due_at), (State::Leased, fence, Some(NODE), None));
        assert_eq!(the(&store, email.id).await, leased.email);
        assert!(leased.email.rev > email.rev);
        let park = Act::Park { hold: job(&leased).hold, due: T0, why: "busy".into() };
        assert_eq!(act(&store, email.id, park, T0).await.0, Verdict::Done);
    }
    assert_eq!(kinds(&store).await, ["email.accepted"]);
}

pub(super) async fn what_is_leased_is_leased_to_nobody_else(store: Ledger) {
    let job = leased(&store, &keyed("k")).await;
    let other = LeaseWish { node: SECOND_NODE, ..wish(10) };

    assert_eq!(store.lease(other.clone(), T0.plus(HOUR)).await.unwrap(), []);
    assert_eq!(store.capture(SANDBOX, 10, Some(T0.plus(HOUR)), T0.plus(HOUR)).await.unwrap(), 0);
    let job = mark(&store, job, T0).await;
    assert_eq!(store.lease(other.clone(), T0.plus(HOUR)).await.unwrap(), []);
    let _unknown = answer(&store, &job, Meaning::Unknown, T0).await;
    assert_eq!(store.lease(other, T0.plus(HOUR)).await.unwrap(), []);
    assert_eq!(handoff(&store, &job).await.fence, 1);
}

pub(super) async fn only_work_of_the_transport_is_leased_of_every_team(store: Ledger) {
    let mine = accepted(&store, &keyed("k"), T0).await.id;
    let theirs = accepted(&store, &keyed("k").team(OTHER), T0).await.id;
    let _elsewhere = accepted(&store, &keyed("elsewhere").by("relay"), T0).await;

    let ids: Vec<_> = lease(&store, 10, T0).await.iter().map(|leased| leased.email.id).collect();

    assert_eq!(ids, [mine, theirs]);
}

pub(super) async fn busy_domains_are_passed_over(store: Ledger) {
    let slow = accepted(&store, &keyed("slow").to(&["a@slow.test"]), T0).await.id;
    let mixed = accepted(&store, &keyed("mixed").to(&["a@example.com", "b@slow.test"]), T0).await.id;
    let near = accepted(&store, &keyed("near").to(&["a@very.slow.test"]), T0).await.id;
    let busy = LeaseWish { but: vec!["slow.test".into(), "other.test".into()], ..wish(1) };

    let ids: Vec<_> = store.lease(busy.clone(), T0).await.unwrap().iter().map(|leased| leased.email.id).collect();
    assert_eq!(ids, [near]);
    assert_eq!(store.lease(busy, T0).await.unwrap(), []);
    let ids: Vec<_> = lease(&store, 10, T0).await.iter().map(|leased| leased.email.id).collect();
    assert_eq!(ids, [slow, mixed]);
}

pub(super) async fn a_scheduled_handoff_is_leased_when_due_and_only_if_wished(store: Ledger) {
    let id = accepted(&store, &keyed("k").due(T0.plus(HOUR)), T0).await.id;
    let by = |scheduled_by| LeaseWish { scheduled_by, ..wish(10) };

    assert_eq!(lease(&store, 10, T0.plus(HOUR - 1)).await, []);
    assert_eq!(store.lease(by(None), T0.plus(HOUR)).await.unwrap(), []);
    // Ledger time is ahead of the clock that decides schedules.
    let early = by(Some(T0.plus(HOUR - 1)));
    assert_eq!(store.lease(early.clone(), T0.plus(2 * HOUR)).await.unwrap(), []);
    assert_eq!(store.capture(SANDBOX, 10, early.scheduled_by, T0.plus(2 * HOUR)).await.unwrap(), 0);
    assert_eq!(store.capture(SANDBOX, 10, None, T0.plus(2 * HOUR)).await.unwrap(), 0);
    assert_eq!(take(&store, T0.plus(HOUR)).await.id, id);
}

pub(super) async fn a_lease_gives_the_body_and_after_a_marker_the_wire(store: Ledger) {
    let email = accepted(&store, &keyed("k"), T0).await;
    let body = detail(&store, email.id).await.body;
    let first = lease(&store, 1, T0).await.remove(0);
    assert!(body.is_some());
    assert_eq!((&first.body, &first.wire), (&body, &None));

    let marked = mark(&store, job(&first), T0).await;
    let held = store.leased(TEAM, email.id, 0).await.unwrap().unwrap();
    assert_eq!(
        (held.email, held.number, held.body, held.wire.as_deref()),
        (the(&store, email.id).await, 0, body.clone(), Some(WIRE))
    );

    let _deferred = answer(&store, &marked, Meaning::Deferred, T0).await;
    let second = lease(&store, 1, T0.plus(MINUTE)).await.remove(0);
    assert_eq!((second.body, second.wire.as_deref()), (body, Some(WIRE)));
}

pub(super) async fn bytes_are_frozen_once_for_each_transport(store: Ledger) {
    let job = marked(&store, &keyed("k")).await;
    let _deferred = answer(&store, &job, Meaning::Deferred, T0).await;
    let again = take(&store, T0.plus(MINUTE)).await;
    assert_eq!(act(&store, again.id, marker(&again, b"other"), T0).await.0, Verdict::Done);
    let wire = |store: Ledger| async move { store.leased(TEAM, job.id, 0).await.unwrap().unwrap().wire };
    assert_eq!(wire(store.clone()).await.as_deref(), Some(WIRE));

    let again = Job { attempt: Some(2), ..again };
    let _deferred = answer(&store, &again, Meaning::Deferred, T0).await;
    let away = Act::Reroute { number: 0, from: SANDBOX.into(), to: "relay".into() };
    assert_eq!(act(&store, again.id, away, T0).await.0, Verdict::Done);
    assert_eq!(wire(store.clone()).await, None);
}

pub(super) async fn a_marker_needs_the_right_fence(store: Ledger) {
    let old = leased(&store, &keyed("k")).await;
    let park = Act::Park { hold: old.hold.clone(), due: T0, why: "busy".into() };
    assert_eq!(act(&store, old.id, park, T0).await.0, Verdict::Done);
    let new = take(&store, T0).await;
    let before = the(&store, old.id).await;

    let (verdict, email) = act(&store, old.id, marker(&old, b"stale"), T0).await;
    assert_eq!((verdict, &email), (Verdict::Stale, &before));
    let found = detail(&store, old.id).await;
    assert_eq!((&found.email, found.attempts.len()), (&before, 0));

    let new = mark(&store, new, T0).await;
    assert_eq!(act(&store, new.id, marker(&new, b"twice"), T0).await.0, Verdict::Stale);
    let found = detail(&store, new.id).await;
    assert_eq!((found.attempts.len(), found.attempts[0].outcome, found.attempts[0].at), (1, None, T0));
    assert_eq!(store.leased(TEAM, new.id, 0).await.unwrap().unwrap().wire.as_deref(), Some(WIRE));
}

pub(super) async fn handoffs_of_one_email_are_worked_on_apart(store: Ledger) {
    let draft = keyed("k").to(&["a@example.com", "b@example.com", "c@example.com"]).apart();
    let id = accepted(&store, &draft, T0).await.id;
    let jobs: Vec<Job> = lease(&store, 10, T0).await.iter().map(job).collect();
    assert_eq!(jobs.iter().map(|job| job.hold.number).collect::<Vec<_>>(), [0, 1, 2]);

    let one = mark(&store, jobs[1].clone(), T0).await;
    let _sent = answer(&store, &one, Meaning::Accepted, T0).await;
    let two = mark(&store, jobs[2].clone(), T0).await;
    let (_, email) = answer(&store, &two, Meaning::Refused, T0).await;

    let states: Vec<State> = email.handoffs.iter().map(|handoff| handoff.state).collect();
    assert_eq!(states, [State::Leased, State::Sent, State::Failed]);
    let numbers: Vec<_> = detail(&store, id).await.attempts.iter().map(|a| (a.handoff, a.number)).collect();
    assert_eq!((numbers, email.settled_at), (vec![(1, 1), (2, 1)], None));
}

pub(super) async fn a_cancel_makes_the_marker_of_a_lease_stale(store: Ledger) {
    let job = leased(&store, &keyed("k")).await;
    assert_eq!(cancelled(&store, job.id, T0).await.state(), EmailState::Cancelled);

    assert_eq!(act(&store, job.id, marker(&job, WIRE), T0).await.0, Verdict::Stale);

    let found = detail(&store, job.id).await;
    assert_eq!(
        (found.email.state(), found.attempts.len(), found.email.handoffs[0].holder),
        (EmailState::Cancelled, 0, None)
    );
    assert_eq!(store.leased(TEAM, job.id, 0).await.unwrap().unwrap().wire, None);
}

pub(super) async fn a_cancel_after_the_marker_is_too_late(store: Ledger) {
    let job = marked(&store, &keyed("k")).await;

    let answer = store.cancel(TEAM, job.id, None, T0).await.unwrap();

    let refused = Change::Refused(Refusal::TooLate, the(&store, job.id).await);
    assert_eq!((answer, handoff(&store, &job).await.state), (Once::Done(refused), State::Sending));
}

pub(super) async fn a_parked_handoff_waits_for_its_time(store: Ledger) {
    let job = leased(&store, &keyed("k")).await;
    let due = T0.plus(5 * SECOND);
    let park = Act::Park { hold: job.hold.clone(), due, why: "the breaker is open".into() };
    assert_eq!(act(&store, job.id, park, T0).await.0, Verdict::Done);

    let after = handoff(&store, &job).await;
    assert_eq!((after.state, after.due_at, after.attempts), (State::Queued, Some(due), 0));
    assert_eq!((after.holder, after.work.reason.as_deref()), (None, Some("the breaker is open")));
    assert_eq!(store.next_due(SANDBOX).await.unwrap(), Some(due));
    assert_eq!(lease(&store, 10, due.plus(-1)).await, []);
    assert_eq!(take(&store, due).await.id, job.id);
}

pub(super) async fn another_way_is_taken_only_while_nothing_was_begun(store: Ledger) {
    let away = |from: &str, to: &str| Act::Reroute { number: 0, from: from.into(), to: to.into() };
    let id = accepted(&store, &keyed("k").by("relay"), T0).await.id;
    assert_eq!(act(&store, id, away("nowhere", SANDBOX), T0).await.0, Verdict::Stale);
    let (verdict, email) = act(&store, id, away("relay", SANDBOX), T0).await;
    assert_eq!((verdict, email.handoffs[0].transport.as_str()), (Verdict::Done, SANDBOX));
    assert_eq!(store.next_due("relay").await.unwrap(), None);

    let job = take(&store, T0).await;
    assert_eq!(act(&store, id, away(SANDBOX, "relay"), T0).await.0, Verdict::Stale);
    let job = mark(&store, job, T0).await;
    assert_eq!(act(&store, id, away(SANDBOX, "relay"), T0).await.0, Verdict::Stale);
    let _unknown = answer(&store, &job, Meaning::Unknown, T0).await;
    let (_, email) = act(&store, id, Act::ResendByPolicy { number: 0 }, T0).await;
    assert_eq!(email.handoffs[0].state, State::Queued);
    assert_eq!(act(&store, id, away(SANDBOX, "relay"), T0).await.0, Verdict::Stale);
    assert_eq!(the(&store, id).await.handoffs[0].transport, SANDBOX);
}

pub(super) async fn a_whole_email_takes_another_way_in_other_envelopes(store: Ledger) {
    let draft = keyed("k").to(&["a@example.com", "b@example.com"]).apart().by("relay");
    let id = accepted(&store, &draft, T0).await.id;
    let all = vec!["a@example.com".to_owned(), "b@example.com".to_owned()];
    let away = Act::Redirect {
        from: "relay".into(),
        envelopes: vec![Envelope { transport: SANDBOX.into(), recipients: all.clone() }],
    };

    let (verdict, email) = act(&store, id, away.clone(), T0.plus(1)).await;

    assert_eq!((verdict, email.handoffs.len()), (Verdict::Done, 3));
    assert_eq!(the(&store, id).await, email);
    assert_eq!((&email.handoffs[2].recipients, email.handoffs[2].state), (&all, State::Queued));
    assert_eq!(store.next_due("relay").await.unwrap(), None);
    assert_eq!(act(&store, id, away, T0.plus(2)).await.0, Verdict::Stale);
    let job = take(&store, T0.plus(3)).await;
    assert_eq!((job.id, job.hold.number), (id, 2));
    let job = mark(&store, job, T0.plus(3)).await;
    let (_, sent) = answer(&store, &job, Meaning::Accepted, T0.plus(4)).await;
    assert_eq!(sent.state(), EmailState::Sent);
    assert_eq!(the(&store, id).await, sent);
}

pub(super) async fn nothing_of_another_team_is_acted_on(store: Ledger) {
    let job = leased(&store, &keyed("k")).await;
    let before = the(&store, job.id).await;

    let answer = store.act(OTHER, job.id, marker(&job, WIRE), None, T0).await.unwrap();

    assert_eq!(answer, Once::Done(Acted::Missing));
    assert_eq!(store.leased(OTHER, job.id, 0).await.unwrap(), None);
    assert_eq!(the(&store, job.id).await, before);
}

pub(super) async fn the_backlog_counts_what_waits_and_what_is_unknown(store: Ledger) {
    assert_eq!(store.backlog().await.unwrap(), Backlog::default());
    let _lost = lost(&store, &keyed("lost")).await;
    let _sending = marked(&store, &keyed("sending")).await;
    let two = keyed("two").to(&["a@example.com", "b@example.com"]).apart();
    let _two = accepted(&store, &two, T0.plus(5)).await;
    let _later = accepted(&store, &keyed("later").due(T0.plus(HOUR)), T0).await;
    let _relay = accepted(&store, &keyed("relay").by("relay").team(OTHER), T0.plus(9)).await;

    let waiting = vec![("relay".into(), 1), (SANDBOX.into(), 3)];
    let wanted = Backlog { waiting, unknown: 1, oldest: Some(T0.plus(5)) };
    assert_eq!(store.backlog().await.unwrap(), wanted);
}

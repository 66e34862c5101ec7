//! Promises about notices: what is owed, to whom, in which order, and until when.

use mailonce_core::{
    endpoint::EndpointState,
    event::Kind,
    limits,
    notice::{Answer, NoticeQuery, NoticeState, Recovering, Recovery, Since, Spread, notice_id},
    port::store::Once,
};

use super::{
    DAY, HOUR, Ledger, OTHER, SECOND, T0, TEAM, accepted, cancelled,
    deed::node,
    events,
    herald::{
        again, all, draft, ended, happen, lease, lease_as, listening, make, numbers, settle, spread, switch, tell,
        the_endpoint,
    },
    keyless, operation,
};

pub(super) async fn every_event_is_owed_once_to_each_endpoint_that_wants_it(store: Ledger) {
    let everything = listening(&store, &["*"]).await;
    let cancels = listening(&store, &["email.cancelled"]).await;
    let mail = listening(&store, &["message.*"]).await;
    let theirs = make(&store, &draft(OTHER, &["*"]), mailonce_core::endpoint::Start::After(0)).await;
    let email = accepted(&store, &keyless(), T0).await;
    cancelled(&store, email.id, T0).await;
    assert_eq!(spread(&store, T0).await, 3);
    assert_eq!(spread(&store, T0).await, 0);
    for (endpoint, wanted) in [(&everything, vec![1, 2]), (&cancels, vec![2]), (&mail, vec![]), (&theirs, vec![])] {
        let notices = all(&store, endpoint).await;
        assert_eq!(notices.iter().map(|notice| notice.seq).collect::<Vec<_>>(), wanted);
        for notice in &notices {
            let event = &events(&store, TEAM).await[notice.seq as usize - 1];
            assert_eq!(notice.id, notice_id(endpoint.id, event.id()));
            assert_eq!((notice.kind, notice.about), (event.event.kind, email.id.0));
        }
    }
    assert_eq!(the_endpoint(&store, mail.id).await.cursor, 2);
}

pub(super) async fn a_spread_is_bounded_and_no_endpoint_takes_anothers_share(store: Ledger) {
    let (one, two) = (listening(&store, &["*"]).await, listening(&store, &["email.sent"]).await);
    happen(&store, 10, T0).await;
    assert_eq!(store.spread(6, T0).await.unwrap(), Spread { read: 6, owed: 3, more: true });
    for endpoint in [&one, &two] {
        assert_eq!(the_endpoint(&store, endpoint.id).await.cursor, 3);
    }
    assert_eq!(store.spread(100, T0).await.unwrap(), Spread { read: 14, owed: 7, more: false });
    assert_eq!(store.spread(100, T0).await.unwrap(), Spread::default());
    assert_eq!(store.spread(0, T0).await.unwrap(), Spread::default());
}

pub(super) async fn endpoints_that_waited_longest_are_spread_first(store: Ledger) {
    let mut made = Vec::new();
    for _ in 0..=limits::SPREAD_ENDPOINTS {
        made.push(listening(&store, &["*"]).await);
    }
    happen(&store, 2, T0).await;
    let first = store.spread(1, T0).await.unwrap();
    assert_eq!((first.read, first.more), (limits::SPREAD_ENDPOINTS, true));
    assert_eq!(the_endpoint(&store, made[limits::SPREAD_ENDPOINTS].id).await.cursor, 0);
    store.spread(1, T0.plus(1)).await.unwrap();
    assert_eq!(the_endpoint(&store, made[limits::SPREAD_ENDPOINTS].id).await.cursor, 1);
    assert_eq!(the_endpoint(&store, made[limits::SPREAD_ENDPOINTS - 1].id).await.cursor, 1);
}

pub(super) async fn of_each_subject_only_the_earliest_is_leased(store: Ledger) {
    let made = listening(&store, &["*"]).await;
    let (one, two) = (accepted(&store, &keyless(), T0).await, accepted(&store, &keyless(), T0).await);
    for id in [one.id, two.id] {
        cancelled(&store, id, T0).await;
    }
    spread(&store, T0).await;
    let first = lease(&store, &made, 10, T0).await;
    assert_eq!(numbers(&first), [1, 2]);
    assert_eq!(first[0].event, events(&store, TEAM).await[0]);
    assert_eq!((first[0].notice.attempts, first[0].notice.next_at), (1, Some(T0.plus(limits::NOTICE_HELD_MS))));
    assert_eq!(lease(&store, &made, 10, T0).await, []);
    // One that fails keeps those behind it waiting; the other subject goes on.
    settle(&store, &first[0].notice, Answer::Again(None), T0).await;
    settle(&store, &first[1].notice, Answer::Delivered, T0).await;
    assert_eq!(numbers(&lease(&store, &made, 10, T0).await), [4]);
    assert_eq!(all(&store, &made).await[2].next_at, None);
    let later = T0.plus(5 * SECOND);
    assert_eq!(numbers(&lease(&store, &made, 10, later).await), [1]);
    // What comes later gets in line too.
    store.note_suppressed(vec![suppressed(one.id)], later).await.unwrap();
    spread(&store, later).await;
    assert_eq!(lease(&store, &made, 10, later).await, []);
    let held = all(&store, &made).await.remove(0);
    settle(&store, &held, Answer::Dropped, later).await;
    for number in [3, 5] {
        let owed = lease(&store, &made, 10, later).await;
        assert_eq!(numbers(&owed), [number]);
        settle(&store, &owed[0].notice, Answer::Delivered, later).await;
    }
}

fn suppressed(email: mailonce_core::id::EmailId) -> mailonce_core::port::store::Suppressed {
    mailonce_core::port::store::Suppressed { team: TEAM, email, count: 1, latest: Vec::new() }
}

pub(super) async fn the_longest_due_are_leased_first_and_at_most_so_many(store: Ledger) {
    let made = listening(&store, &["*"]).await;
    happen(&store, 2, T0).await;
    spread(&store, T0.plus(SECOND)).await;
    happen(&store, 2, T0).await;
    spread(&store, T0).await;
    assert_eq!(store.next_notice_due().await.unwrap(), Some(T0));
    assert_eq!(numbers(&lease(&store, &made, 3, T0.plus(SECOND)).await), [3, 4, 1]);
    assert_eq!(numbers(&lease(&store, &made, 3, T0.plus(SECOND)).await), [2]);
    assert_eq!(store.next_notice_due().await.unwrap(), Some(T0.plus(SECOND + limits::NOTICE_HELD_MS)));
    assert_eq!(store.endpoints_due(9, T0.plus(SECOND)).await.unwrap(), []);
}

pub(super) async fn a_notice_that_a_process_keeps_for_too_long_is_leased_again(store: Ledger) {
    let made = listening(&store, &["*"]).await;
    happen(&store, 1, T0).await;
    spread(&store, T0).await;
    let slow = lease_as(&store, &made, node(1), 9, T0).await.remove(0).notice;
    let later = T0.plus(limits::NOTICE_HELD_MS);
    assert_eq!(lease_as(&store, &made, node(2), 9, later.plus(-1)).await, []);
    let fast = lease_as(&store, &made, node(2), 9, later).await.remove(0).notice;
    assert_eq!((fast.id, fast.attempts, fast.holder), (slow.id, 2, Some(node(2))));
    // The slow one's failure decides nothing, its success does.
    let kept = settle(&store, &slow, Answer::Again(None), later).await;
    assert_eq!((kept.holder, kept.failures, kept.next_at), (Some(node(2)), 0, fast.next_at));
    assert_eq!(settle(&store, &fast, Answer::Delivered, later).await.state, NoticeState::Delivered);
}

pub(super) async fn an_attempt_is_settled_once_and_read_back_whole(store: Ledger) {
    let made = listening(&store, &["*"]).await;
    happen(&store, 1, T0).await;
    spread(&store, T0).await;
    let owed = lease(&store, &made, 9, T0).await.remove(0).notice;
    let failed = settle(&store, &owed, Answer::Again(Some(60 * SECOND)), T0).await;
    assert_eq!((failed.failures, failed.next_at, failed.holder), (1, Some(T0.plus(60 * SECOND)), None));
    assert_eq!(failed.log, [ended(&owed, Answer::Again(None), T0).attempt]);
    assert_eq!(settle(&store, &owed, Answer::Delivered, T0.plus(1)).await, failed);
    assert_eq!(store.notice(TEAM, owed.id).await.unwrap(), Some(failed));
    let done = tell(&store, &made, Answer::Delivered, T0.plus(60 * SECOND)).await;
    assert_eq!((done.state, done.settled_at), (NoticeState::Delivered, Some(T0.plus(60 * SECOND))));
    assert_eq!((done.log.len(), done.log[1].number, done.rev), (2, 2, 3));
    assert_eq!(store.notice(TEAM, owed.id).await.unwrap(), Some(done));
    assert_eq!(store.next_notice_due().await.unwrap(), None);
}

pub(super) async fn a_notice_is_tried_for_a_week_and_then_given_up(store: Ledger) {
    let made = listening(&store, &["*"]).await;
    let email = accepted(&store, &keyless(), T0).await;
    cancelled(&store, email.id, T0).await;
    spread(&store, T0).await;
    let mut now = T0;
    while tell(&store, &made, Answer::Again(None), now).await.is_open() {
        now = store.next_notice_due().await.unwrap().unwrap();
    }
    assert!((6 * DAY..7 * DAY).contains(&now.since(T0)), "{}", now.since(T0));
    let dead = all(&store, &made).await.remove(0);
    assert_eq!((dead.state, dead.seq), (NoticeState::Dead, 1));
    // It does not keep those behind it for ever.
    assert_eq!(numbers(&lease(&store, &made, 9, now).await), [2]);
}

pub(super) async fn notices_are_listed_and_found(store: Ledger) {
    let made = listening(&store, &["*"]).await;
    let email = accepted(&store, &keyless(), T0).await;
    happen(&store, 3, T0).await;
    cancelled(&store, email.id, T0).await;
    spread(&store, T0).await;
    settle(&store, &lease(&store, &made, 1, T0).await[0].notice, Answer::Delivered, T0).await;
    let list = async |query: NoticeQuery| {
        let found = store.notices(TEAM, made.id, query).await.unwrap();
        found.iter().map(|notice| notice.seq).collect::<Vec<u64>>()
    };
    let whole = NoticeQuery { limit: 10, ..NoticeQuery::default() };
    assert_eq!(list(whole.clone()).await, [5, 4, 3, 2, 1]);
    assert_eq!(list(NoticeQuery { limit: 2, before: Some(4), ..whole.clone() }).await, [3, 2]);
    assert_eq!(list(NoticeQuery { state: Some(NoticeState::Delivered), ..whole.clone() }).await, [1]);
    assert_eq!(list(NoticeQuery { kind: Some(Kind::EmailCancelled), ..whole.clone() }).await, [5]);
    assert_eq!(list(NoticeQuery { about: Some(email.id.0), ..whole }).await, [5, 1]);
}

pub(super) async fn a_replayed_notice_is_told_again_under_its_id(store: Ledger) {
    let made = listening(&store, &["*"]).await;
    let email = accepted(&store, &keyless(), T0).await;
    cancelled(&store, email.id, T0).await;
    spread(&store, T0).await;
    let told = tell(&store, &made, Answer::Delivered, T0).await;
    let call = operation("replay", 1, T0);
    let replayed = store.replay_notice(TEAM, told.id, Some(call.clone()), T0.plus(1)).await.unwrap();
    let Once::Done(Some(replayed)) = replayed else { panic!("{replayed:?}") };
    assert_eq!((replayed.id, replayed.state, replayed.next_at), (told.id, NoticeState::Pending, Some(T0.plus(1))));
    // The one behind it was due and is in line again.
    assert_eq!(all(&store, &made).await[1].next_at, None);
    let done = tell(&store, &made, Answer::Delivered, T0.plus(1)).await;
    assert_eq!((done.id, done.attempts), (told.id, 2));
    let repeated = store.replay_notice(TEAM, told.id, Some(call.clone()), T0.plus(2)).await.unwrap();
    assert_eq!(repeated, Once::Repeated(call.answer));
    assert_eq!(store.notice(TEAM, told.id).await.unwrap(), Some(done));
    // One that a process is at stays as it is.
    let held = lease(&store, &made, 9, T0.plus(2)).await.remove(0).notice;
    assert_eq!(store.replay_notice(TEAM, held.id, None, T0.plus(3)).await.unwrap(), Once::Done(Some(held)));
    let nobody = mailonce_core::id::NoticeId(super::next_id(T0));
    assert_eq!(store.replay_notice(TEAM, nobody, None, T0).await.unwrap(), Once::Done(None));
}

pub(super) async fn what_failed_is_due_again_in_its_order(store: Ledger) {
    let made = listening(&store, &["*"]).await;
    let email = accepted(&store, &keyless(), T0).await;
    cancelled(&store, email.id, T0).await;
    happen(&store, 3, T0).await;
    spread(&store, T0).await;
    let mut now = T0;
    // The first two are given up one after the other, the third is told, the fourth waits for its next try.
    for owed in lease(&store, &made, 9, now).await {
        let answer = if owed.notice.seq == 3 { Answer::Delivered } else { Answer::Again(None) };
        settle(&store, &owed.notice, answer, now).await;
    }
    while all(&store, &made).await[1].is_open() {
        now = store.next_notice_due().await.unwrap().unwrap();
        for owed in lease(&store, &made, 9, now).await {
            let answer = if owed.notice.seq == 5 { Answer::Dropped } else { Answer::Again(None) };
            settle(&store, &owed.notice, answer, now).await;
        }
    }
    let states: Vec<_> = all(&store, &made).await.iter().map(|notice| notice.state).collect();
    let (dead, told, unwanted) = (NoticeState::Dead, NoticeState::Delivered, NoticeState::Dropped);
    assert_eq!(states, [dead, dead, told, dead, unwanted]);
    let failed = Recovery { since: Since::Event(0), everything: false };
    let only_last = Recovery { since: Since::Event(3), everything: false };
    assert_eq!(again(&store, &made, only_last, now).await, Recovering { after: 3, due: 1 });
    assert_eq!(again(&store, &made, failed, now).await, Recovering { after: 0, due: 2 });
    assert_eq!(again(&store, &made, failed, now).await, Recovering { after: 0, due: 0 });
    assert_eq!(numbers(&lease(&store, &made, 9, now).await), [1, 4]);
}

pub(super) async fn everything_is_told_again_under_the_same_ids(store: Ledger) {
    let made = listening(&store, &["*"]).await;
    for hour in 0..3 {
        happen(&store, 2, T0.plus(hour * HOUR)).await;
    }
    spread(&store, T0).await;
    for owed in lease(&store, &made, 9, T0).await {
        settle(&store, &owed.notice, Answer::Delivered, T0).await;
    }
    let before = all(&store, &made).await;
    let since = Recovery { since: Since::Time(T0.plus(HOUR)), everything: true };
    let call = operation("recover", 1, T0);
    let answer = store.recover_notices(TEAM, made.id, since, Some(call.clone()), T0).await.unwrap();
    assert_eq!(answer, Once::Done(Some(Recovering { after: 2, due: 0 })));
    let repeated = store.recover_notices(TEAM, made.id, since, Some(call.clone()), T0).await.unwrap();
    assert_eq!(repeated, Once::Repeated(call.answer));
    assert_eq!(spread(&store, T0).await, 4);
    let owed = lease(&store, &made, 9, T0).await;
    assert_eq!(numbers(&owed), [3, 4, 5, 6]);
    assert!(owed.iter().zip(&before[2..]).all(|(owed, before)| owed.notice.id == before.id));
    for owed in &owed {
        settle(&store, &owed.notice, Answer::Delivered, T0).await;
    }
    // What happens meanwhile is owed once, and times behind the end mean nothing.
    happen(&store, 1, T0.plus(3 * HOUR)).await;
    let late = Recovery { since: Since::Time(T0.plus(DAY)), everything: true };
    assert_eq!(again(&store, &made, late, T0).await, Recovering { after: 7, due: 0 });
    assert_eq!(spread(&store, T0).await, 1);
}

pub(super) async fn what_was_swept_is_told_again_under_the_same_id(store: Ledger) {
    let made = listening(&store, &["*"]).await;
    happen(&store, 3, T0).await;
    spread(&store, T0).await;
    let first = lease(&store, &made, 9, T0).await;
    for owed in &first {
        settle(&store, &owed.notice, Answer::Delivered, T0).await;
    }
    let month = T0.plus(limits::NOTICE_KEPT_MS);
    assert_eq!(store.sweep(100, month.plus(-1)).await.unwrap().notices, 0);
    assert_eq!(store.sweep(2, month).await.unwrap().notices, 2);
    assert_eq!(store.sweep(2, month).await.unwrap().notices, 1);
    assert_eq!((all(&store, &made).await, spread(&store, month).await), (vec![], 0));
    again(&store, &made, Recovery { since: Since::Event(1), everything: true }, month).await;
    assert_eq!(spread(&store, month).await, 2);
    let ids = |owed: &[mailonce_core::notice::Owed]| owed.iter().map(|owed| owed.notice.id).collect::<Vec<_>>();
    assert_eq!(ids(&lease(&store, &made, 9, month).await), ids(&first[1..]));
}

pub(super) async fn what_an_ended_process_was_telling_is_due_at_once(store: Ledger) {
    let made = listening(&store, &["*"]).await;
    happen(&store, 3, T0).await;
    spread(&store, T0).await;
    lease_as(&store, &made, node(1), 9, T0).await;
    store.heartbeat(node(1), T0).await.unwrap();
    assert_eq!(store.recover(node(2), 100, T0).await.unwrap().notices, 0, "it lives");
    assert_eq!(store.recover(node(1), 100, T0).await.unwrap().notices, 0, "it takes nothing from itself");
    let settled = all(&store, &made).await.remove(2);
    settle(&store, &settled, Answer::Delivered, T0).await;
    lease_as(&store, &made, node(3), 9, T0.plus(limits::NOTICE_HELD_MS)).await;
    let now = T0.plus(limits::NOTICE_HELD_MS + 1);
    assert_eq!(store.recover(node(2), 1, now).await.unwrap().notices, 1);
    assert_eq!(store.recover(node(2), 100, now).await.unwrap().notices, 1);
    let owed = lease_as(&store, &made, node(2), 9, now).await;
    assert_eq!(owed.iter().map(|owed| owed.notice.attempts).collect::<Vec<_>>(), [3, 3]);
}

pub(super) async fn gauges_say_how_far_each_endpoint_is(store: Ledger) {
    let (busy, paused) = (listening(&store, &["*"]).await, listening(&store, &["*"]).await);
    happen(&store, 3, T0).await;
    store.spread(4, T0).await.unwrap();
    switch(&store, paused.id, EndpointState::Paused, T0).await;
    let gauges = store.endpoint_gauges().await.unwrap();
    let seen: Vec<_> = gauges.iter().map(|g| (g.id, g.state, g.lag, g.pending, g.dead)).collect();
    let wanted = [(busy.id, EndpointState::Enabled, 1, 2, 0), (paused.id, EndpointState::Paused, 1, 2, 0)];
    assert_eq!(seen, wanted);
    let mut now = T0;
    while store.endpoint_gauges().await.unwrap()[0].dead < 2 {
        for owed in lease(&store, &busy, 9, now).await {
            settle(&store, &owed.notice, Answer::Again(None), now).await;
        }
        now = store.next_notice_due().await.unwrap().unwrap_or(now);
    }
    assert_eq!(store.endpoint_gauges().await.unwrap()[0].pending, 0);
    assert!(gauges.iter().all(|gauge| gauge.team == TEAM));
}

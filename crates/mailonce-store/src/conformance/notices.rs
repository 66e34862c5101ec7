//! Promises about notices: what is owed, to whom, in which order, and until when.

use mailonce_core::{
    events::{
        endpoint::EndpointState,
        event::EventKind,
        notice::{
            FanOutCounts, NoticeQuery, NoticeRecovery, NoticeRecoveryResult, NoticeState, ReplayFrom, WebhookVerdict,
            notice_id,
        },
    },
    limits,
    operation::IdempotentResult,
};

use super::{
    DAY, HOUR, OTHER_TEAM, SECOND, T0, TEAM, TestStore, accept_first, all_events, cancel_email,
    deed::node_id,
    herald::{
        accept_emails, all_notices, attempt_outcome, create_endpoint, deliver_only_notice, endpoint_from_start,
        fan_out_all, lease_notices, lease_notices_as, load_endpoint, new_endpoint, notice_seqs, record_outcome,
        recover_notices, set_endpoint_state,
    },
    keyless_email, new_operation,
};

pub(super) async fn every_event_is_owed_once_to_each_endpoint_that_wants_it(store: TestStore) {
    let everything = endpoint_from_start(&store, &["*"]).await;
    let cancels = endpoint_from_start(&store, &["email.cancelled"]).await;
    let mail = endpoint_from_start(&store, &["message.*"]).await;
    let theirs = create_endpoint(
        &store,
        &new_endpoint(OTHER_TEAM, &["*"]),
        mailonce_core::events::endpoint::EndpointStart::After(0),
    )
    .await;
    let email = accept_first(&store, &keyless_email(), T0).await;
    cancel_email(&store, email.id, T0).await;
    assert_eq!(fan_out_all(&store, T0).await, 3);
    assert_eq!(fan_out_all(&store, T0).await, 0);
    for (endpoint, wanted) in [(&everything, vec![1, 2]), (&cancels, vec![2]), (&mail, vec![]), (&theirs, vec![])] {
        let notices = all_notices(&store, endpoint).await;
        assert_eq!(notices.iter().map(|notice| notice.seq).collect::<Vec<_>>(), wanted);
        for notice in &notices {
            let event = &all_events(&store, TEAM).await[notice.seq as usize - 1];
            assert_eq!(notice.id, notice_id(endpoint.id, event.id()));
            assert_eq!((notice.kind, notice.subject_id), (event.event.kind, email.id.0));
        }
    }
    assert_eq!(load_endpoint(&store, mail.id).await.cursor, 2);
}

pub(super) async fn a_spread_is_bounded_and_no_endpoint_takes_anothers_share(store: TestStore) {
    let (one, two) = (endpoint_from_start(&store, &["*"]).await, endpoint_from_start(&store, &["email.sent"]).await);
    accept_emails(&store, 10, T0).await;
    assert_eq!(
        store.fan_out(6, T0).await.unwrap(),
        FanOutCounts { events_read: 6, notices_created: 3, has_more: true }
    );
    for endpoint in [&one, &two] {
        assert_eq!(load_endpoint(&store, endpoint.id).await.cursor, 3);
    }
    assert_eq!(
        store.fan_out(100, T0).await.unwrap(),
        FanOutCounts { events_read: 14, notices_created: 7, has_more: false }
    );
    assert_eq!(store.fan_out(100, T0).await.unwrap(), FanOutCounts::default());
    assert_eq!(store.fan_out(0, T0).await.unwrap(), FanOutCounts::default());
}

pub(super) async fn endpoints_that_waited_longest_are_spread_first(store: TestStore) {
    let mut made = Vec::new();
    for _ in 0..=limits::FAN_OUT_ENDPOINTS {
        made.push(endpoint_from_start(&store, &["*"]).await);
    }
    accept_emails(&store, 2, T0).await;
    let first = store.fan_out(1, T0).await.unwrap();
    assert_eq!((first.events_read, first.has_more), (limits::FAN_OUT_ENDPOINTS, true));
    assert_eq!(load_endpoint(&store, made[limits::FAN_OUT_ENDPOINTS].id).await.cursor, 0);
    store.fan_out(1, T0.plus(1)).await.unwrap();
    assert_eq!(load_endpoint(&store, made[limits::FAN_OUT_ENDPOINTS].id).await.cursor, 1);
    assert_eq!(load_endpoint(&store, made[limits::FAN_OUT_ENDPOINTS - 1].id).await.cursor, 1);
}

pub(super) async fn of_each_subject_only_the_earliest_is_leased(store: TestStore) {
    let made = endpoint_from_start(&store, &["*"]).await;
    let (one, two) =
        (accept_first(&store, &keyless_email(), T0).await, accept_first(&store, &keyless_email(), T0).await);
    for id in [one.id, two.id] {
        cancel_email(&store, id, T0).await;
    }
    fan_out_all(&store, T0).await;
    let first = lease_notices(&store, &made, 10, T0).await;
    assert_eq!(notice_seqs(&first), [1, 2]);
    assert_eq!(first[0].event, all_events(&store, TEAM).await[0]);
    assert_eq!((first[0].notice.attempts, first[0].notice.due_at), (1, Some(T0.plus(limits::NOTICE_LEASE_MS))));
    assert_eq!(lease_notices(&store, &made, 10, T0).await, []);
    // One that fails keeps those behind it waiting; the other subject goes on.
    record_outcome(&store, &first[0].notice, WebhookVerdict::Retry(None), T0).await;
    record_outcome(&store, &first[1].notice, WebhookVerdict::Delivered, T0).await;
    assert_eq!(notice_seqs(&lease_notices(&store, &made, 10, T0).await), [4]);
    assert_eq!(all_notices(&store, &made).await[2].due_at, None);
    let later = T0.plus(5 * SECOND);
    assert_eq!(notice_seqs(&lease_notices(&store, &made, 10, later).await), [1]);
    // What comes later gets in line too.
    store.record_suppressed_calls(vec![one_suppressed_call(one.id)], later).await.unwrap();
    fan_out_all(&store, later).await;
    assert_eq!(lease_notices(&store, &made, 10, later).await, []);
    let held = all_notices(&store, &made).await.remove(0);
    record_outcome(&store, &held, WebhookVerdict::Dropped, later).await;
    for number in [3, 5] {
        let owed = lease_notices(&store, &made, 10, later).await;
        assert_eq!(notice_seqs(&owed), [number]);
        record_outcome(&store, &owed[0].notice, WebhookVerdict::Delivered, later).await;
    }
}

fn one_suppressed_call(email: mailonce_core::id::EmailId) -> mailonce_core::outbound::suppressed_call::SuppressedCalls {
    mailonce_core::outbound::suppressed_call::SuppressedCalls { team: TEAM, email, count: 1, latest: Vec::new() }
}

pub(super) async fn the_longest_due_are_leased_first_and_at_most_so_many(store: TestStore) {
    let made = endpoint_from_start(&store, &["*"]).await;
    accept_emails(&store, 2, T0).await;
    fan_out_all(&store, T0.plus(SECOND)).await;
    accept_emails(&store, 2, T0).await;
    fan_out_all(&store, T0).await;
    assert_eq!(store.next_notice_due().await.unwrap(), Some(T0));
    assert_eq!(notice_seqs(&lease_notices(&store, &made, 3, T0.plus(SECOND)).await), [3, 4, 1]);
    assert_eq!(notice_seqs(&lease_notices(&store, &made, 3, T0.plus(SECOND)).await), [2]);
    assert_eq!(store.next_notice_due().await.unwrap(), Some(T0.plus(SECOND + limits::NOTICE_LEASE_MS)));
    assert_eq!(store.endpoints_with_due_notices(9, T0.plus(SECOND)).await.unwrap(), []);
}

pub(super) async fn a_notice_that_a_process_keeps_for_too_long_is_leased_again(store: TestStore) {
    let made = endpoint_from_start(&store, &["*"]).await;
    accept_emails(&store, 1, T0).await;
    fan_out_all(&store, T0).await;
    let slow = lease_notices_as(&store, &made, node_id(1), 9, T0).await.remove(0).notice;
    let later = T0.plus(limits::NOTICE_LEASE_MS);
    assert_eq!(lease_notices_as(&store, &made, node_id(2), 9, later.plus(-1)).await, []);
    let fast = lease_notices_as(&store, &made, node_id(2), 9, later).await.remove(0).notice;
    assert_eq!((fast.id, fast.attempts, fast.holder), (slow.id, 2, Some(node_id(2))));
    // The slow one's failure decides nothing, its success does.
    let kept = record_outcome(&store, &slow, WebhookVerdict::Retry(None), later).await;
    assert_eq!((kept.holder, kept.failures, kept.due_at), (Some(node_id(2)), 0, fast.due_at));
    assert_eq!(record_outcome(&store, &fast, WebhookVerdict::Delivered, later).await.state, NoticeState::Delivered);
}

pub(super) async fn an_attempt_is_settled_once_and_read_back_whole(store: TestStore) {
    let made = endpoint_from_start(&store, &["*"]).await;
    accept_emails(&store, 1, T0).await;
    fan_out_all(&store, T0).await;
    let owed = lease_notices(&store, &made, 9, T0).await.remove(0).notice;
    let failed = record_outcome(&store, &owed, WebhookVerdict::Retry(Some(60 * SECOND)), T0).await;
    assert_eq!((failed.failures, failed.due_at, failed.holder), (1, Some(T0.plus(60 * SECOND)), None));
    assert_eq!(failed.attempt_log, [attempt_outcome(&owed, WebhookVerdict::Retry(None), T0).attempt]);
    assert_eq!(record_outcome(&store, &owed, WebhookVerdict::Delivered, T0.plus(1)).await, failed);
    assert_eq!(store.notice(TEAM, owed.id).await.unwrap(), Some(failed));
    let done = deliver_only_notice(&store, &made, WebhookVerdict::Delivered, T0.plus(60 * SECOND)).await;
    assert_eq!((done.state, done.settled_at), (NoticeState::Delivered, Some(T0.plus(60 * SECOND))));
    assert_eq!((done.attempt_log.len(), done.attempt_log[1].number, done.rev), (2, 2, 3));
    assert_eq!(store.notice(TEAM, owed.id).await.unwrap(), Some(done));
    assert_eq!(store.next_notice_due().await.unwrap(), None);
}

pub(super) async fn a_notice_is_tried_for_a_week_and_then_given_up(store: TestStore) {
    let made = endpoint_from_start(&store, &["*"]).await;
    let email = accept_first(&store, &keyless_email(), T0).await;
    cancel_email(&store, email.id, T0).await;
    fan_out_all(&store, T0).await;
    let mut now = T0;
    while deliver_only_notice(&store, &made, WebhookVerdict::Retry(None), now).await.is_open() {
        now = store.next_notice_due().await.unwrap().unwrap();
    }
    assert!((6 * DAY..7 * DAY).contains(&now.since(T0)), "{}", now.since(T0));
    let dead = all_notices(&store, &made).await.remove(0);
    assert_eq!((dead.state, dead.seq), (NoticeState::Dead, 1));
    // It does not keep those behind it for ever.
    assert_eq!(notice_seqs(&lease_notices(&store, &made, 9, now).await), [2]);
}

pub(super) async fn notices_are_listed_and_found(store: TestStore) {
    let made = endpoint_from_start(&store, &["*"]).await;
    let email = accept_first(&store, &keyless_email(), T0).await;
    accept_emails(&store, 3, T0).await;
    cancel_email(&store, email.id, T0).await;
    fan_out_all(&store, T0).await;
    record_outcome(&store, &lease_notices(&store, &made, 1, T0).await[0].notice, WebhookVerdict::Delivered, T0).await;
    let list = async |query: NoticeQuery| {
        let found = store.notices(TEAM, made.id, query).await.unwrap();
        found.iter().map(|notice| notice.seq).collect::<Vec<u64>>()
    };
    let whole = NoticeQuery { limit: 10, ..NoticeQuery::default() };
    assert_eq!(list(whole.clone()).await, [5, 4, 3, 2, 1]);
    assert_eq!(list(NoticeQuery { limit: 2, before: Some(4), ..whole.clone() }).await, [3, 2]);
    assert_eq!(list(NoticeQuery { state: Some(NoticeState::Delivered), ..whole.clone() }).await, [1]);
    assert_eq!(list(NoticeQuery { kind: Some(EventKind::EmailCancelled), ..whole.clone() }).await, [5]);
    assert_eq!(list(NoticeQuery { subject_id: Some(email.id.0), ..whole }).await, [5, 1]);
}

pub(super) async fn a_replayed_notice_is_told_again_under_its_id(store: TestStore) {
    let made = endpoint_from_start(&store, &["*"]).await;
    let email = accept_first(&store, &keyless_email(), T0).await;
    cancel_email(&store, email.id, T0).await;
    fan_out_all(&store, T0).await;
    let told = deliver_only_notice(&store, &made, WebhookVerdict::Delivered, T0).await;
    let call = new_operation("replay", 1, T0);
    let replayed = store.replay_notice(TEAM, told.id, Some(call.clone()), T0.plus(1)).await.unwrap();
    let IdempotentResult::Done(Some(replayed)) = replayed else { panic!("{replayed:?}") };
    assert_eq!((replayed.id, replayed.state, replayed.due_at), (told.id, NoticeState::Pending, Some(T0.plus(1))));
    // The one behind it was due and is in line again.
    assert_eq!(all_notices(&store, &made).await[1].due_at, None);
    let done = deliver_only_notice(&store, &made, WebhookVerdict::Delivered, T0.plus(1)).await;
    assert_eq!((done.id, done.attempts), (told.id, 2));
    let repeated = store.replay_notice(TEAM, told.id, Some(call.clone()), T0.plus(2)).await.unwrap();
    assert_eq!(repeated, IdempotentResult::Replayed(call.response));
    assert_eq!(store.notice(TEAM, told.id).await.unwrap(), Some(done));
    // One that a process is at stays as it is.
    let held = lease_notices(&store, &made, 9, T0.plus(2)).await.remove(0).notice;
    assert_eq!(store.replay_notice(TEAM, held.id, None, T0.plus(3)).await.unwrap(), IdempotentResult::Done(Some(held)));
    let nobody = mailonce_core::id::NoticeId(super::next_id(T0));
    assert_eq!(store.replay_notice(TEAM, nobody, None, T0).await.unwrap(), IdempotentResult::Done(None));
}

pub(super) async fn what_failed_is_due_again_in_its_order(store: TestStore) {
    let made = endpoint_from_start(&store, &["*"]).await;
    let email = accept_first(&store, &keyless_email(), T0).await;
    cancel_email(&store, email.id, T0).await;
    accept_emails(&store, 3, T0).await;
    fan_out_all(&store, T0).await;
    let mut now = T0;
    // The first two are given up one after the other, the third is told, the fourth waits for its next try.
    for owed in lease_notices(&store, &made, 9, now).await {
        let answer = if owed.notice.seq == 3 { WebhookVerdict::Delivered } else { WebhookVerdict::Retry(None) };
        record_outcome(&store, &owed.notice, answer, now).await;
    }
    while all_notices(&store, &made).await[1].is_open() {
        now = store.next_notice_due().await.unwrap().unwrap();
        for owed in lease_notices(&store, &made, 9, now).await {
            let answer = if owed.notice.seq == 5 { WebhookVerdict::Dropped } else { WebhookVerdict::Retry(None) };
            record_outcome(&store, &owed.notice, answer, now).await;
        }
    }
    let states: Vec<_> = all_notices(&store, &made).await.iter().map(|notice| notice.state).collect();
    let (dead, told, unwanted) = (NoticeState::Dead, NoticeState::Delivered, NoticeState::Dropped);
    assert_eq!(states, [dead, dead, told, dead, unwanted]);
    let failed = NoticeRecovery { from: ReplayFrom::Event(0), include_delivered: false };
    let only_last = NoticeRecovery { from: ReplayFrom::Event(3), include_delivered: false };
    assert_eq!(
        recover_notices(&store, &made, only_last, now).await,
        NoticeRecoveryResult { after_seq: 3, requeued: 1 }
    );
    assert_eq!(recover_notices(&store, &made, failed, now).await, NoticeRecoveryResult { after_seq: 0, requeued: 2 });
    assert_eq!(recover_notices(&store, &made, failed, now).await, NoticeRecoveryResult { after_seq: 0, requeued: 0 });
    assert_eq!(notice_seqs(&lease_notices(&store, &made, 9, now).await), [1, 4]);
}

pub(super) async fn everything_is_told_again_under_the_same_ids(store: TestStore) {
    let made = endpoint_from_start(&store, &["*"]).await;
    for hour in 0..3 {
        accept_emails(&store, 2, T0.plus(hour * HOUR)).await;
    }
    fan_out_all(&store, T0).await;
    for owed in lease_notices(&store, &made, 9, T0).await {
        record_outcome(&store, &owed.notice, WebhookVerdict::Delivered, T0).await;
    }
    let before = all_notices(&store, &made).await;
    let since = NoticeRecovery { from: ReplayFrom::Time(T0.plus(HOUR)), include_delivered: true };
    let call = new_operation("recover", 1, T0);
    let answer = store.recover_notices(TEAM, made.id, since, Some(call.clone()), T0).await.unwrap();
    assert_eq!(answer, IdempotentResult::Done(Some(NoticeRecoveryResult { after_seq: 2, requeued: 0 })));
    let repeated = store.recover_notices(TEAM, made.id, since, Some(call.clone()), T0).await.unwrap();
    assert_eq!(repeated, IdempotentResult::Replayed(call.response));
    assert_eq!(fan_out_all(&store, T0).await, 4);
    let owed = lease_notices(&store, &made, 9, T0).await;
    assert_eq!(notice_seqs(&owed), [3, 4, 5, 6]);
    assert!(owed.iter().zip(&before[2..]).all(|(owed, before)| owed.notice.id == before.id));
    for owed in &owed {
        record_outcome(&store, &owed.notice, WebhookVerdict::Delivered, T0).await;
    }
    // What happens meanwhile is owed once, and times behind the end mean nothing.
    accept_emails(&store, 1, T0.plus(3 * HOUR)).await;
    let late = NoticeRecovery { from: ReplayFrom::Time(T0.plus(DAY)), include_delivered: true };
    assert_eq!(recover_notices(&store, &made, late, T0).await, NoticeRecoveryResult { after_seq: 7, requeued: 0 });
    assert_eq!(fan_out_all(&store, T0).await, 1);
}

pub(super) async fn what_was_swept_is_told_again_under_the_same_id(store: TestStore) {
    let made = endpoint_from_start(&store, &["*"]).await;
    accept_emails(&store, 3, T0).await;
    fan_out_all(&store, T0).await;
    let first = lease_notices(&store, &made, 9, T0).await;
    for owed in &first {
        record_outcome(&store, &owed.notice, WebhookVerdict::Delivered, T0).await;
    }
    let month = T0.plus(limits::NOTICE_RETENTION_MS);
    assert_eq!(store.sweep(100, month.plus(-1)).await.unwrap().notices, 0);
    assert_eq!(store.sweep(2, month).await.unwrap().notices, 2);
    assert_eq!(store.sweep(2, month).await.unwrap().notices, 1);
    assert_eq!((all_notices(&store, &made).await, fan_out_all(&store, month).await), (vec![], 0));
    recover_notices(&store, &made, NoticeRecovery { from: ReplayFrom::Event(1), include_delivered: true }, month).await;
    assert_eq!(fan_out_all(&store, month).await, 2);
    let ids = |owed: &[mailonce_core::events::notice::LeasedNotice]| {
        owed.iter().map(|owed| owed.notice.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(&lease_notices(&store, &made, 9, month).await), ids(&first[1..]));
}

pub(super) async fn what_an_ended_process_was_telling_is_due_at_once(store: TestStore) {
    let made = endpoint_from_start(&store, &["*"]).await;
    accept_emails(&store, 3, T0).await;
    fan_out_all(&store, T0).await;
    lease_notices_as(&store, &made, node_id(1), 9, T0).await;
    store.heartbeat(node_id(1), T0).await.unwrap();
    assert_eq!(store.recover_dead_nodes(node_id(2), 100, T0).await.unwrap().notices, 0, "it lives");
    assert_eq!(store.recover_dead_nodes(node_id(1), 100, T0).await.unwrap().notices, 0, "it takes nothing from itself");
    let settled = all_notices(&store, &made).await.remove(2);
    record_outcome(&store, &settled, WebhookVerdict::Delivered, T0).await;
    lease_notices_as(&store, &made, node_id(3), 9, T0.plus(limits::NOTICE_LEASE_MS)).await;
    let now = T0.plus(limits::NOTICE_LEASE_MS + 1);
    assert_eq!(store.recover_dead_nodes(node_id(2), 1, now).await.unwrap().notices, 1);
    assert_eq!(store.recover_dead_nodes(node_id(2), 100, now).await.unwrap().notices, 1);
    let owed = lease_notices_as(&store, &made, node_id(2), 9, now).await;
    assert_eq!(owed.iter().map(|owed| owed.notice.attempts).collect::<Vec<_>>(), [3, 3]);
}

pub(super) async fn gauges_say_how_far_each_endpoint_is(store: TestStore) {
    let (busy, paused) = (endpoint_from_start(&store, &["*"]).await, endpoint_from_start(&store, &["*"]).await);
    accept_emails(&store, 3, T0).await;
    store.fan_out(4, T0).await.unwrap();
    set_endpoint_state(&store, paused.id, EndpointState::Paused, T0).await;
    let gauges = store.endpoint_gauges().await.unwrap();
    let seen: Vec<_> = gauges.iter().map(|g| (g.id, g.state, g.lag, g.pending, g.dead)).collect();
    let wanted = [(busy.id, EndpointState::Enabled, 1, 2, 0), (paused.id, EndpointState::Paused, 1, 2, 0)];
    assert_eq!(seen, wanted);
    let mut now = T0;
    while store.endpoint_gauges().await.unwrap()[0].dead < 2 {
        for owed in lease_notices(&store, &busy, 9, now).await {
            record_outcome(&store, &owed.notice, WebhookVerdict::Retry(None), now).await;
        }
        now = store.next_notice_due().await.unwrap().unwrap_or(now);
    }
    assert_eq!(store.endpoint_gauges().await.unwrap()[0].pending, 0);
    assert!(gauges.iter().all(|gauge| gauge.team == TEAM));
}

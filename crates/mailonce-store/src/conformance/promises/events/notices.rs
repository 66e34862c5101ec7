//! Promises about notices: fan-out, order, leases, retries, replays and recovery.

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

use crate::conformance::{
    DAY, HOUR, OTHER_TEAM, SECOND, T0, TEAM, TestStore, accept_first, all_events, cancel_email,
    fixtures::{
        handoffs::node_id,
        webhooks::{
            accept_emails, all_notices, attempt_outcome, create_endpoint, deliver_only_notice, endpoint_from_start,
            fan_out_all, lease_notices, lease_notices_as, load_endpoint, new_endpoint, notice_seqs, record_outcome,
            recover_notices, set_endpoint_state,
        },
    },
    keyless_email, new_operation, next_id,
};

pub(super) async fn every_event_makes_one_notice_for_each_matching_endpoint(store: TestStore) {
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

pub(super) async fn a_fan_out_is_bounded_and_fair_to_all_endpoints(store: TestStore) {
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

pub(super) async fn the_fan_out_starts_with_the_endpoints_that_waited_longest(store: TestStore) {
    let mut endpoints = Vec::new();
    for _ in 0..=limits::FAN_OUT_ENDPOINTS {
        endpoints.push(endpoint_from_start(&store, &["*"]).await);
    }
    accept_emails(&store, 2, T0).await;
    let first = store.fan_out(1, T0).await.unwrap();
    assert_eq!((first.events_read, first.has_more), (limits::FAN_OUT_ENDPOINTS, true));
    assert_eq!(load_endpoint(&store, endpoints[limits::FAN_OUT_ENDPOINTS].id).await.cursor, 0);
    store.fan_out(1, T0.plus(1)).await.unwrap();
    assert_eq!(load_endpoint(&store, endpoints[limits::FAN_OUT_ENDPOINTS].id).await.cursor, 1);
    assert_eq!(load_endpoint(&store, endpoints[limits::FAN_OUT_ENDPOINTS - 1].id).await.cursor, 1);
}

pub(super) async fn only_the_earliest_open_notice_of_a_subject_is_leased(store: TestStore) {
    let endpoint = endpoint_from_start(&store, &["*"]).await;
    let (one, two) =
        (accept_first(&store, &keyless_email(), T0).await, accept_first(&store, &keyless_email(), T0).await);
    for id in [one.id, two.id] {
        cancel_email(&store, id, T0).await;
    }
    fan_out_all(&store, T0).await;
    let first = lease_notices(&store, &endpoint, 10, T0).await;
    assert_eq!(notice_seqs(&first), [1, 2]);
    assert_eq!(first[0].event, all_events(&store, TEAM).await[0]);
    assert_eq!((first[0].notice.attempts, first[0].notice.due_at), (1, Some(T0.plus(limits::NOTICE_LEASE_MS))));
    assert_eq!(lease_notices(&store, &endpoint, 10, T0).await, []);
    // A failed notice blocks the later ones of its subject, but not those of other subjects.
    record_outcome(&store, &first[0].notice, WebhookVerdict::Retry(None), T0).await;
    record_outcome(&store, &first[1].notice, WebhookVerdict::Delivered, T0).await;
    assert_eq!(notice_seqs(&lease_notices(&store, &endpoint, 10, T0).await), [4]);
    assert_eq!(all_notices(&store, &endpoint).await[2].due_at, None);
    let later = T0.plus(5 * SECOND);
    assert_eq!(notice_seqs(&lease_notices(&store, &endpoint, 10, later).await), [1]);
    // A later event of the subject waits, too.
    store.record_suppressed_calls(vec![one_suppressed_call(one.id)], later).await.unwrap();
    fan_out_all(&store, later).await;
    assert_eq!(lease_notices(&store, &endpoint, 10, later).await, []);
    let held = all_notices(&store, &endpoint).await.remove(0);
    record_outcome(&store, &held, WebhookVerdict::Dropped, later).await;
    for number in [3, 5] {
        let leased = lease_notices(&store, &endpoint, 10, later).await;
        assert_eq!(notice_seqs(&leased), [number]);
        record_outcome(&store, &leased[0].notice, WebhookVerdict::Delivered, later).await;
    }
}

fn one_suppressed_call(email: mailonce_core::id::EmailId) -> mailonce_core::outbound::suppressed_call::SuppressedCalls {
    mailonce_core::outbound::suppressed_call::SuppressedCalls { team: TEAM, email, count: 1, latest: Vec::new() }
}

pub(super) async fn notices_are_leased_longest_due_first_up_to_the_limit(store: TestStore) {
    let endpoint = endpoint_from_start(&store, &["*"]).await;
    accept_emails(&store, 2, T0).await;
    fan_out_all(&store, T0.plus(SECOND)).await;
    accept_emails(&store, 2, T0).await;
    fan_out_all(&store, T0).await;
    assert_eq!(store.next_notice_due().await.unwrap(), Some(T0));
    assert_eq!(notice_seqs(&lease_notices(&store, &endpoint, 3, T0.plus(SECOND)).await), [3, 4, 1]);
    assert_eq!(notice_seqs(&lease_notices(&store, &endpoint, 3, T0.plus(SECOND)).await), [2]);
    assert_eq!(store.next_notice_due().await.unwrap(), Some(T0.plus(SECOND + limits::NOTICE_LEASE_MS)));
    assert_eq!(store.endpoints_with_due_notices(9, T0.plus(SECOND)).await.unwrap(), []);
}

pub(super) async fn a_notice_is_leased_again_after_its_lease_expired(store: TestStore) {
    let endpoint = endpoint_from_start(&store, &["*"]).await;
    accept_emails(&store, 1, T0).await;
    fan_out_all(&store, T0).await;
    let slow = lease_notices_as(&store, &endpoint, node_id(1), 9, T0).await.remove(0).notice;
    let later = T0.plus(limits::NOTICE_LEASE_MS);
    assert_eq!(lease_notices_as(&store, &endpoint, node_id(2), 9, later.plus(-1)).await, []);
    let fast = lease_notices_as(&store, &endpoint, node_id(2), 9, later).await.remove(0).notice;
    assert_eq!((fast.id, fast.attempts, fast.holder), (slow.id, 2, Some(node_id(2))));
    // A failure that the slow node reports late changes nothing.
    let kept = record_outcome(&store, &slow, WebhookVerdict::Retry(None), later).await;
    assert_eq!((kept.holder, kept.failures, kept.due_at), (Some(node_id(2)), 0, fast.due_at));
    assert_eq!(record_outcome(&store, &fast, WebhookVerdict::Delivered, later).await.state, NoticeState::Delivered);
}

pub(super) async fn an_attempt_outcome_is_recorded_once_and_read_back_unchanged(store: TestStore) {
    let endpoint = endpoint_from_start(&store, &["*"]).await;
    accept_emails(&store, 1, T0).await;
    fan_out_all(&store, T0).await;
    let notice = lease_notices(&store, &endpoint, 9, T0).await.remove(0).notice;
    let failed = record_outcome(&store, &notice, WebhookVerdict::Retry(Some(60 * SECOND)), T0).await;
    assert_eq!((failed.failures, failed.due_at, failed.holder), (1, Some(T0.plus(60 * SECOND)), None));
    assert_eq!(failed.attempt_log, [attempt_outcome(&notice, WebhookVerdict::Retry(None), T0).attempt]);
    assert_eq!(record_outcome(&store, &notice, WebhookVerdict::Delivered, T0.plus(1)).await, failed);
    assert_eq!(store.notice(TEAM, notice.id).await.unwrap(), Some(failed));
    let done = deliver_only_notice(&store, &endpoint, WebhookVerdict::Delivered, T0.plus(60 * SECOND)).await;
    assert_eq!((done.state, done.settled_at), (NoticeState::Delivered, Some(T0.plus(60 * SECOND))));
    assert_eq!((done.attempt_log.len(), done.attempt_log[1].number, done.rev), (2, 2, 3));
    assert_eq!(store.notice(TEAM, notice.id).await.unwrap(), Some(done));
    assert_eq!(store.next_notice_due().await.unwrap(), None);
}

pub(super) async fn a_notice_is_retried_for_a_week_and_then_dead(store: TestStore) {
    let endpoint = endpoint_from_start(&store, &["*"]).await;
    let email = accept_first(&store, &keyless_email(), T0).await;
    cancel_email(&store, email.id, T0).await;
    fan_out_all(&store, T0).await;
    let mut now = T0;
    while deliver_only_notice(&store, &endpoint, WebhookVerdict::Retry(None), now).await.is_open() {
        now = store.next_notice_due().await.unwrap().unwrap();
    }
    assert!((6 * DAY..7 * DAY).contains(&now.since(T0)), "{}", now.since(T0));
    let dead = all_notices(&store, &endpoint).await.remove(0);
    assert_eq!((dead.state, dead.seq), (NoticeState::Dead, 1));
    // A dead notice no longer blocks the later ones of its subject.
    assert_eq!(notice_seqs(&lease_notices(&store, &endpoint, 9, now).await), [2]);
}

pub(super) async fn notices_are_listed_newest_first_and_can_be_filtered(store: TestStore) {
    let endpoint = endpoint_from_start(&store, &["*"]).await;
    let email = accept_first(&store, &keyless_email(), T0).await;
    accept_emails(&store, 3, T0).await;
    cancel_email(&store, email.id, T0).await;
    fan_out_all(&store, T0).await;
    record_outcome(&store, &lease_notices(&store, &endpoint, 1, T0).await[0].notice, WebhookVerdict::Delivered, T0)
        .await;
    let list = async |query: NoticeQuery| {
        let found = store.notices(TEAM, endpoint.id, query).await.unwrap();
        found.iter().map(|notice| notice.seq).collect::<Vec<u64>>()
    };
    let whole = NoticeQuery { limit: 10, ..NoticeQuery::default() };
    assert_eq!(list(whole.clone()).await, [5, 4, 3, 2, 1]);
    assert_eq!(list(NoticeQuery { limit: 2, before: Some(4), ..whole.clone() }).await, [3, 2]);
    assert_eq!(list(NoticeQuery { state: Some(NoticeState::Delivered), ..whole.clone() }).await, [1]);
    assert_eq!(list(NoticeQuery { kind: Some(EventKind::EmailCancelled), ..whole.clone() }).await, [5]);
    assert_eq!(list(NoticeQuery { subject_id: Some(email.id.0), ..whole }).await, [5, 1]);
}

pub(super) async fn a_replayed_notice_is_delivered_again_under_its_id(store: TestStore) {
    let endpoint = endpoint_from_start(&store, &["*"]).await;
    let email = accept_first(&store, &keyless_email(), T0).await;
    cancel_email(&store, email.id, T0).await;
    fan_out_all(&store, T0).await;
    let delivered = deliver_only_notice(&store, &endpoint, WebhookVerdict::Delivered, T0).await;
    let call = new_operation("replay", 1, T0);
    let replayed = store.replay_notice(TEAM, delivered.id, Some(call.clone()), T0.plus(1)).await.unwrap();
    let IdempotentResult::Done(Some(replayed)) = replayed else { panic!("{replayed:?}") };
    assert_eq!((replayed.id, replayed.state, replayed.due_at), (delivered.id, NoticeState::Pending, Some(T0.plus(1))));
    // The next notice of the subject was due and waits again.
    assert_eq!(all_notices(&store, &endpoint).await[1].due_at, None);
    let done = deliver_only_notice(&store, &endpoint, WebhookVerdict::Delivered, T0.plus(1)).await;
    assert_eq!((done.id, done.attempts), (delivered.id, 2));
    let repeated = store.replay_notice(TEAM, delivered.id, Some(call.clone()), T0.plus(2)).await.unwrap();
    assert_eq!(repeated, IdempotentResult::Replayed(call.response));
    assert_eq!(store.notice(TEAM, delivered.id).await.unwrap(), Some(done));
    // A leased notice does not change.
    let held = lease_notices(&store, &endpoint, 9, T0.plus(2)).await.remove(0).notice;
    assert_eq!(store.replay_notice(TEAM, held.id, None, T0.plus(3)).await.unwrap(), IdempotentResult::Done(Some(held)));
    let missing = mailonce_core::id::NoticeId(next_id(T0));
    assert_eq!(store.replay_notice(TEAM, missing, None, T0).await.unwrap(), IdempotentResult::Done(None));
}

pub(super) async fn a_recovery_requeues_failed_notices_in_order(store: TestStore) {
    let endpoint = endpoint_from_start(&store, &["*"]).await;
    let email = accept_first(&store, &keyless_email(), T0).await;
    cancel_email(&store, email.id, T0).await;
    accept_emails(&store, 3, T0).await;
    fan_out_all(&store, T0).await;
    let mut now = T0;
    // Notices 1 and 2 fail until they are dead, 3 is delivered, 4 fails until it is dead, and 5 is dropped.
    for leased in lease_notices(&store, &endpoint, 9, now).await {
        let answer = if leased.notice.seq == 3 { WebhookVerdict::Delivered } else { WebhookVerdict::Retry(None) };
        record_outcome(&store, &leased.notice, answer, now).await;
    }
    while all_notices(&store, &endpoint).await[1].is_open() {
        now = store.next_notice_due().await.unwrap().unwrap();
        for leased in lease_notices(&store, &endpoint, 9, now).await {
            let answer = if leased.notice.seq == 5 { WebhookVerdict::Dropped } else { WebhookVerdict::Retry(None) };
            record_outcome(&store, &leased.notice, answer, now).await;
        }
    }
    let states: Vec<_> = all_notices(&store, &endpoint).await.iter().map(|notice| notice.state).collect();
    let (dead, delivered, dropped) = (NoticeState::Dead, NoticeState::Delivered, NoticeState::Dropped);
    assert_eq!(states, [dead, dead, delivered, dead, dropped]);
    let failed = NoticeRecovery { from: ReplayFrom::Event(0), include_delivered: false };
    let only_last = NoticeRecovery { from: ReplayFrom::Event(3), include_delivered: false };
    assert_eq!(
        recover_notices(&store, &endpoint, only_last, now).await,
        NoticeRecoveryResult { after_seq: 3, requeued: 1 }
    );
    assert_eq!(
        recover_notices(&store, &endpoint, failed, now).await,
        NoticeRecoveryResult { after_seq: 0, requeued: 2 }
    );
    assert_eq!(
        recover_notices(&store, &endpoint, failed, now).await,
        NoticeRecoveryResult { after_seq: 0, requeued: 0 }
    );
    assert_eq!(notice_seqs(&lease_notices(&store, &endpoint, 9, now).await), [1, 4]);
}

pub(super) async fn a_full_recovery_delivers_everything_again_under_the_same_ids(store: TestStore) {
    let endpoint = endpoint_from_start(&store, &["*"]).await;
    for hour in 0..3 {
        accept_emails(&store, 2, T0.plus(hour * HOUR)).await;
    }
    fan_out_all(&store, T0).await;
    for leased in lease_notices(&store, &endpoint, 9, T0).await {
        record_outcome(&store, &leased.notice, WebhookVerdict::Delivered, T0).await;
    }
    let before = all_notices(&store, &endpoint).await;
    let since = NoticeRecovery { from: ReplayFrom::Time(T0.plus(HOUR)), include_delivered: true };
    let call = new_operation("recover", 1, T0);
    let answer = store.recover_notices(TEAM, endpoint.id, since, Some(call.clone()), T0).await.unwrap();
    assert_eq!(answer, IdempotentResult::Done(Some(NoticeRecoveryResult { after_seq: 2, requeued: 0 })));
    let repeated = store.recover_notices(TEAM, endpoint.id, since, Some(call.clone()), T0).await.unwrap();
    assert_eq!(repeated, IdempotentResult::Replayed(call.response));
    assert_eq!(fan_out_all(&store, T0).await, 4);
    let leased = lease_notices(&store, &endpoint, 9, T0).await;
    assert_eq!(notice_seqs(&leased), [3, 4, 5, 6]);
    assert!(leased.iter().zip(&before[2..]).all(|(leased, before)| leased.notice.id == before.id));
    for leased in &leased {
        record_outcome(&store, &leased.notice, WebhookVerdict::Delivered, T0).await;
    }
    // A new event makes one notice, and a recovery from a time after the last event requeues nothing.
    accept_emails(&store, 1, T0.plus(3 * HOUR)).await;
    let late = NoticeRecovery { from: ReplayFrom::Time(T0.plus(DAY)), include_delivered: true };
    assert_eq!(recover_notices(&store, &endpoint, late, T0).await, NoticeRecoveryResult { after_seq: 7, requeued: 0 });
    assert_eq!(fan_out_all(&store, T0).await, 1);
}

pub(super) async fn a_recovery_recreates_swept_notices_under_the_same_ids(store: TestStore) {
    let endpoint = endpoint_from_start(&store, &["*"]).await;
    accept_emails(&store, 3, T0).await;
    fan_out_all(&store, T0).await;
    let first = lease_notices(&store, &endpoint, 9, T0).await;
    for leased in &first {
        record_outcome(&store, &leased.notice, WebhookVerdict::Delivered, T0).await;
    }
    let month = T0.plus(limits::NOTICE_RETENTION_MS);
    assert_eq!(store.sweep(100, month.plus(-1)).await.unwrap().notices, 0);
    assert_eq!(store.sweep(2, month).await.unwrap().notices, 2);
    assert_eq!(store.sweep(2, month).await.unwrap().notices, 1);
    assert_eq!((all_notices(&store, &endpoint).await, fan_out_all(&store, month).await), (vec![], 0));
    recover_notices(&store, &endpoint, NoticeRecovery { from: ReplayFrom::Event(1), include_delivered: true }, month)
        .await;
    assert_eq!(fan_out_all(&store, month).await, 2);
    let ids = |leased: &[mailonce_core::events::notice::LeasedNotice]| {
        leased.iter().map(|leased| leased.notice.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(&lease_notices(&store, &endpoint, 9, month).await), ids(&first[1..]));
}

pub(super) async fn notices_leased_by_a_dead_node_are_due_at_once(store: TestStore) {
    let endpoint = endpoint_from_start(&store, &["*"]).await;
    accept_emails(&store, 3, T0).await;
    fan_out_all(&store, T0).await;
    lease_notices_as(&store, &endpoint, node_id(1), 9, T0).await;
    store.heartbeat(node_id(1), T0).await.unwrap();
    assert_eq!(store.recover_dead_nodes(node_id(2), 100, T0).await.unwrap().notices, 0, "its heartbeat is recent");
    assert_eq!(
        store.recover_dead_nodes(node_id(1), 100, T0).await.unwrap().notices,
        0,
        "a node does not reclaim its own leases"
    );
    let settled = all_notices(&store, &endpoint).await.remove(2);
    record_outcome(&store, &settled, WebhookVerdict::Delivered, T0).await;
    lease_notices_as(&store, &endpoint, node_id(3), 9, T0.plus(limits::NOTICE_LEASE_MS)).await;
    let now = T0.plus(limits::NOTICE_LEASE_MS + 1);
    assert_eq!(store.recover_dead_nodes(node_id(2), 1, now).await.unwrap().notices, 1);
    assert_eq!(store.recover_dead_nodes(node_id(2), 100, now).await.unwrap().notices, 1);
    let leased = lease_notices_as(&store, &endpoint, node_id(2), 9, now).await;
    assert_eq!(leased.iter().map(|leased| leased.notice.attempts).collect::<Vec<_>>(), [3, 3]);
}

pub(super) async fn gauges_report_the_lag_of_each_endpoint(store: TestStore) {
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
        for leased in lease_notices(&store, &busy, 9, now).await {
            record_outcome(&store, &leased.notice, WebhookVerdict::Retry(None), now).await;
        }
        now = store.next_notice_due().await.unwrap().unwrap_or(now);
    }
    assert_eq!(store.endpoint_gauges().await.unwrap()[0].pending, 0);
    assert!(gauges.iter().all(|gauge| gauge.team == TEAM));
}

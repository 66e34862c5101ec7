//! Promises about deleting old events: which go, which stay, and what follows them.

use mailonce_core::{
    events::{
        endpoint::EndpointState,
        notice::{NoticeState, WebhookVerdict},
        retention::EventRetention,
    },
    id::TeamId,
    operation::IdempotentResult,
};

use crate::conformance::{
    OTHER_TEAM, SECOND, T0, TEAM, TestStore, accept_first, all_at_once, all_events,
    fixtures::{
        search::{found, index_all},
        webhooks::{
            accept_emails, all_notices, endpoint_from_start, fan_out_all, lease_notices, load_endpoint, record_outcome,
            set_endpoint_state,
        },
    },
    keyed_email, keyless_email,
};

/// Deletes the events of a team up to `ms` after the start, in rounds. Returns the numbers of those that are left.
async fn delete_and_list_remaining(store: &TestStore, team: TeamId, ms: i64, search_enabled: bool) -> Vec<u64> {
    // Stores that number events later number them before they return any.
    all_events(store, team).await;
    let retention = EventRetention { happened_by: T0.plus(ms), search_enabled, max_rows: 2 };
    while store.drop_events(team, retention).await.unwrap() {}
    all_events(store, team).await.iter().map(|event| event.seq).collect()
}

async fn accept_one_per_second(store: &TestStore, count: i64) {
    for number in 0..count {
        accept_emails(store, 1, T0.plus(number * SECOND)).await;
    }
}

pub(super) async fn old_events_are_deleted_and_numbers_go_on(store: TestStore) {
    accept_one_per_second(&store, 7).await;
    let other = accept_first(&store, &keyed_email("k").team(OTHER_TEAM), T0).await;

    assert_eq!(delete_and_list_remaining(&store, TEAM, 4 * SECOND - 1, false).await, [5, 6, 7]);

    let after = async |seq| store.events(TEAM, seq, 1).await.unwrap().first().map(|event| event.seq);
    assert_eq!((after(1).await, after(4).await, after(5).await, after(7).await), (Some(5), Some(5), Some(6), None));
    store.replace_event_data(TEAM, vec![(2, serde_json::json!(2)), (6, serde_json::json!(6))]).await.unwrap();
    let events = all_events(&store, TEAM).await;
    assert_eq!((events.len(), &events[1].event.data), (3, &serde_json::json!(6)));
    assert_eq!(all_events(&store, OTHER_TEAM).await[0].event.subject_id, other.id.0);
    accept_emails(&store, 1, T0.plus(8 * SECOND)).await;
    assert_eq!(delete_and_list_remaining(&store, TEAM, 0, false).await, [5, 6, 7, 8]);
}

pub(super) async fn the_latest_event_is_never_deleted(store: TestStore) {
    assert!(delete_and_list_remaining(&store, TEAM, SECOND, false).await.is_empty());
    accept_one_per_second(&store, 3).await;

    assert_eq!(delete_and_list_remaining(&store, TEAM, 9 * SECOND, false).await, [3]);

    accept_emails(&store, 1, T0).await;
    assert_eq!(delete_and_list_remaining(&store, TEAM, 9 * SECOND, false).await, [4]);
}

pub(super) async fn an_event_stays_until_every_endpoint_was_looked_at_for_it(store: TestStore) {
    let (one, paused) = (endpoint_from_start(&store, &["*"]).await, endpoint_from_start(&store, &["email.sent"]).await);
    set_endpoint_state(&store, paused.id, EndpointState::Paused, T0).await;
    accept_one_per_second(&store, 3).await;
    assert_eq!(delete_and_list_remaining(&store, TEAM, 9 * SECOND, false).await, [1, 2, 3]);
    fan_out_all(&store, T0.plus(9 * SECOND)).await;
    for leased in lease_notices(&store, &one, 10, T0.plus(9 * SECOND)).await {
        record_outcome(&store, &leased.notice, WebhookVerdict::Delivered, T0.plus(9 * SECOND)).await;
    }
    assert_eq!(
        delete_and_list_remaining(&store, TEAM, 9 * SECOND, false).await,
        [1, 2, 3],
        "the paused one needs them"
    );

    set_endpoint_state(&store, paused.id, EndpointState::Enabled, T0).await;
    fan_out_all(&store, T0.plus(9 * SECOND)).await;

    assert_eq!(delete_and_list_remaining(&store, TEAM, 9 * SECOND, false).await, [3]);
    assert_eq!(load_endpoint(&store, paused.id).await.cursor, 3);
    accept_emails(&store, 1, T0.plus(9 * SECOND)).await;
    assert_eq!(fan_out_all(&store, T0.plus(9 * SECOND)).await, 1);
}

pub(super) async fn an_event_stays_until_its_notices_are_settled(store: TestStore) {
    let endpoint = endpoint_from_start(&store, &["*"]).await;
    accept_one_per_second(&store, 4).await;
    let now = T0.plus(9 * SECOND);
    fan_out_all(&store, now).await;
    let leased = lease_notices(&store, &endpoint, 10, now).await;
    let deliver = async |place: usize, verdict| record_outcome(&store, &leased[place].notice, verdict, now).await;
    deliver(0, WebhookVerdict::Delivered).await;
    deliver(1, WebhookVerdict::Retry(None)).await;
    deliver(2, WebhookVerdict::Delivered).await;

    assert_eq!(delete_and_list_remaining(&store, TEAM, 9 * SECOND, false).await, [2, 3, 4]);

    let notices = all_notices(&store, &endpoint).await;
    let states: Vec<_> = notices.iter().map(|notice| (notice.seq, notice.state == NoticeState::Pending)).collect();
    assert_eq!(states, [(2, true), (3, false), (4, true)]);
    let replayed = store.replay_notice(TEAM, leased[0].notice.id, None, now).await.unwrap();
    assert_eq!(replayed, IdempotentResult::Done(None), "it went with its event");
    let retried = lease_notices(&store, &endpoint, 10, T0.plus(3_600 * SECOND)).await;
    let retried = retried.into_iter().find(|leased| leased.notice.seq == 2).unwrap();
    assert_eq!(retried.event.seq, 2);
    record_outcome(&store, &retried.notice, WebhookVerdict::Delivered, T0.plus(3_600 * SECOND)).await;
    assert_eq!(delete_and_list_remaining(&store, TEAM, 9 * SECOND, false).await, [4]);
    store.remove_endpoint(TEAM, endpoint.id).await.unwrap().unwrap();
    accept_emails(&store, 1, now).await;
    assert_eq!(delete_and_list_remaining(&store, TEAM, 9 * SECOND, false).await, [5], "a removed endpoint needs none");
}

pub(super) async fn a_replayed_notice_keeps_its_event(store: TestStore) {
    let endpoint = endpoint_from_start(&store, &["*"]).await;
    accept_emails(&store, 20, T0).await;
    let now = T0.plus(SECOND);
    fan_out_all(&store, now).await;
    let leased = lease_notices(&store, &endpoint, 100, now).await;
    for leased in &leased {
        record_outcome(&store, &leased.notice, WebhookVerdict::Delivered, now).await;
    }

    let retention = EventRetention { happened_by: now, search_enabled: false, max_rows: 5 };
    let replays = leased.iter().map(|leased| Some(leased.notice.id)).chain([None; 4]).map(|replayed| {
        let store = store.clone();
        async move {
            let Some(id) = replayed else {
                store.drop_events(TEAM, retention).await.unwrap();
                return 0;
            };
            let replayed = store.replay_notice(TEAM, id, None, now).await.unwrap();
            u64::from(matches!(replayed, IdempotentResult::Done(Some(_))))
        }
    });
    let replayed: u64 = all_at_once(replays).await.into_iter().sum();

    assert_eq!(lease_notices(&store, &endpoint, 100, now).await.len() as u64, replayed);
}

pub(super) async fn an_event_stays_until_search_has_read_it(store: TestStore) {
    accept_first(&store, &keyless_email().text("a secret word"), T0).await;
    accept_emails(&store, 2, T0).await;
    assert_eq!(delete_and_list_remaining(&store, TEAM, SECOND, true).await, [1, 2, 3]);
    index_all(&store).await;

    assert_eq!(delete_and_list_remaining(&store, TEAM, SECOND, true).await, [3]);

    accept_first(&store, &keyless_email().text("another word"), T0).await;
    index_all(&store).await;
    assert_eq!((found(&store, "secret").await.len(), found(&store, "another").await.len()), (1, 1));
}

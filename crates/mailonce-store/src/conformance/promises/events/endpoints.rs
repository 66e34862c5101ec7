//! Promises about webhook endpoints: their settings, cursors and states.

use mailonce_core::{
    events::{
        endpoint::{Endpoint, EndpointChangeResult, EndpointEdit, EndpointReason, EndpointStart, EndpointState},
        notice::{NoticeQuery, NoticeRecovery, ReplayFrom, WebhookVerdict},
    },
    id::EndpointId,
    operation::IdempotentResult,
};

use crate::conformance::{
    DAY, OTHER_TEAM, SECOND, T0, TEAM, TestStore, event_kinds,
    fixtures::{
        handoffs::NODE,
        webhooks::{
            accept_emails, all_notices, attempt_outcome, create_endpoint, deliver_only_notice, endpoint_from_start,
            fan_out_all, lease_notices, load_endpoint, new_endpoint, record_outcome, set_endpoint_state,
        },
    },
    new_operation, next_id,
};

fn endpoint_edit(endpoint: &Endpoint, state: EndpointState) -> EndpointEdit {
    let Endpoint { team, id, rev, config, .. } = endpoint.clone();
    EndpointEdit { team, id, rev, config, state }
}

pub(super) async fn an_endpoint_is_read_back_unchanged(store: TestStore) {
    let wanted = new_endpoint(TEAM, &["email.*", "message.received"]);
    let endpoint = create_endpoint(&store, &wanted, EndpointStart::NextEvent).await;
    assert_eq!(endpoint, wanted);
    assert_eq!(load_endpoint(&store, endpoint.id).await, endpoint);
    assert_eq!(store.endpoint(TEAM, EndpointId(next_id(T0))).await.unwrap(), None);
    // The time and the reason of a failure are stored, too.
    accept_emails(&store, 1, T0).await;
    fan_out_all(&store, T0).await;
    deliver_only_notice(&store, &endpoint, WebhookVerdict::Gone, T0).await;
    let gone = load_endpoint(&store, endpoint.id).await;
    assert_eq!((gone.state, gone.reason, gone.state_since), (EndpointState::Disabled, Some(EndpointReason::Gone), T0));
    assert_eq!((gone.rev, gone.cursor, gone.config), (2, 1, endpoint.config));
}

pub(super) async fn creating_an_endpoint_twice_creates_it_once(store: TestStore) {
    let wanted = new_endpoint(TEAM, &["*"]);
    let call = new_operation("make", 1, T0);
    let once = store.create_endpoint(wanted.clone(), EndpointStart::NextEvent, Some(call.clone())).await.unwrap();
    assert_eq!(once, IdempotentResult::Done(wanted.clone()));
    let twice =
        store.create_endpoint(new_endpoint(TEAM, &["*"]), EndpointStart::NextEvent, Some(call.clone())).await.unwrap();
    assert_eq!(twice, IdempotentResult::Replayed(call.response.clone()));
    let other = new_operation("make", 2, T0);
    let other = store.create_endpoint(new_endpoint(TEAM, &["*"]), EndpointStart::NextEvent, Some(other)).await.unwrap();
    assert!(matches!(other, IdempotentResult::KeyMismatch(_)), "{other:?}");
    assert_eq!(create_endpoint(&store, &wanted, EndpointStart::NextEvent).await, wanted);
    assert_eq!(store.endpoints(TEAM, None, 10).await.unwrap(), [wanted]);
}

pub(super) async fn endpoints_are_listed_newest_first_in_pages(store: TestStore) {
    let mut expected = Vec::new();
    for _ in 0..5 {
        expected.push(create_endpoint(&store, &new_endpoint(TEAM, &["*"]), EndpointStart::NextEvent).await);
    }
    expected.reverse();
    let first = store.endpoints(TEAM, None, 3).await.unwrap();
    let rest = store.endpoints(TEAM, Some(first[2].id), 3).await.unwrap();
    assert_eq!([first, rest].concat(), expected);
}

pub(super) async fn an_endpoint_change_needs_the_current_rev(store: TestStore) {
    let endpoint = endpoint_from_start(&store, &["*"]).await;
    let call = new_operation("change", 1, T0);
    let mut wanted = endpoint_edit(&endpoint, EndpointState::Disabled);
    wanted.config.url = "https://elsewhere.test/".into();
    let changed = store.change_endpoint(wanted.clone(), Some(call.clone()), T0.plus(SECOND)).await.unwrap();
    let IdempotentResult::Done(EndpointChangeResult::Changed(changed)) = changed else { panic!("{changed:?}") };
    assert_eq!((changed.rev, changed.state_since, changed.reason), (2, T0.plus(SECOND), Some(EndpointReason::Asked)));
    assert_eq!(changed.config.url, wanted.config.url);
    assert_eq!(load_endpoint(&store, endpoint.id).await, changed);
    assert_eq!(event_kinds(&store).await, ["endpoint.disabled"]);
    let repeated = store.change_endpoint(wanted.clone(), Some(call.clone()), T0).await.unwrap();
    assert_eq!(repeated, IdempotentResult::Replayed(call.response));
    let stale = store.change_endpoint(wanted.clone(), None, T0).await.unwrap();
    assert_eq!(stale, IdempotentResult::Done(EndpointChangeResult::Stale(changed)));
    let missing = EndpointEdit { id: EndpointId(next_id(T0)), ..wanted };
    assert_eq!(
        store.change_endpoint(missing, None, T0).await.unwrap(),
        IdempotentResult::Done(EndpointChangeResult::Missing)
    );
}

pub(super) async fn a_new_endpoint_starts_at_the_next_event_or_as_requested(store: TestStore) {
    accept_emails(&store, 3, T0).await;
    for (start, cursor) in [
        (EndpointStart::NextEvent, 3),
        (EndpointStart::After(0), 0),
        (EndpointStart::After(2), 2),
        (EndpointStart::After(9), 3),
    ] {
        assert_eq!(create_endpoint(&store, &new_endpoint(TEAM, &["*"]), start).await.cursor, cursor, "{start:?}");
    }
    assert_eq!(create_endpoint(&store, &new_endpoint(OTHER_TEAM, &["*"]), EndpointStart::NextEvent).await.cursor, 0);
    assert_eq!(fan_out_all(&store, T0).await, 3 + 1);
}

pub(super) async fn a_removed_endpoint_is_not_found_and_its_notices_are_swept(store: TestStore) {
    let (gone, kept) = (endpoint_from_start(&store, &["*"]).await, endpoint_from_start(&store, &["*"]).await);
    accept_emails(&store, 5, T0).await;
    fan_out_all(&store, T0).await;
    let leased = lease_notices(&store, &gone, 1, T0).await;
    let removed = store.remove_endpoint(TEAM, gone.id).await.unwrap().unwrap();
    assert_eq!((removed.id, removed.cursor), (gone.id, 5));
    assert_eq!(store.remove_endpoint(TEAM, gone.id).await.unwrap(), None);
    assert_eq!(store.endpoints(TEAM, None, 10).await.unwrap(), [load_endpoint(&store, kept.id).await]);
    assert_eq!(store.notice(TEAM, leased[0].notice.id).await.unwrap(), None);
    assert_eq!(lease_notices(&store, &gone, 9, T0).await, []);
    assert_eq!(all_notices(&store, &gone).await, []);
    assert_eq!(store.endpoint_gauges().await.unwrap().len(), 1);
    accept_emails(&store, 1, T0).await;
    assert_eq!(fan_out_all(&store, T0).await, 1);
    for left in [2, 2, 1, 0] {
        assert_eq!(store.sweep(2, T0).await.unwrap().notices, left);
    }
    assert_eq!(all_notices(&store, &kept).await.len(), 6);
    let id = mailonce_core::id::ordered_bits(kept.id.0.max(gone.id.0));
    assert!(store.installation().await.unwrap().last_id >= id);
}

pub(super) async fn endpoints_and_notices_of_another_team_are_not_found(store: TestStore) {
    let theirs = create_endpoint(&store, &new_endpoint(OTHER_TEAM, &["*"]), EndpointStart::After(0)).await;
    let ours = endpoint_from_start(&store, &["*"]).await;
    accept_emails(&store, 1, T0).await;
    assert_eq!(fan_out_all(&store, T0).await, 1);
    let notice = lease_notices(&store, &ours, 9, T0).await.remove(0).notice;
    assert_eq!(lease_notices(&store, &theirs, 9, T0).await, []);
    assert_eq!(store.endpoint(OTHER_TEAM, ours.id).await.unwrap(), None);
    assert_eq!(store.endpoints(OTHER_TEAM, None, 10).await.unwrap(), [theirs]);
    assert_eq!(store.remove_endpoint(OTHER_TEAM, ours.id).await.unwrap(), None);
    assert_eq!(store.notice(OTHER_TEAM, notice.id).await.unwrap(), None);
    let query = NoticeQuery { limit: 9, ..NoticeQuery::default() };
    assert_eq!(store.notices(OTHER_TEAM, ours.id, query).await.unwrap(), []);
    assert_eq!(store.replay_notice(OTHER_TEAM, notice.id, None, T0).await.unwrap(), IdempotentResult::Done(None));
    let recovery = NoticeRecovery { from: ReplayFrom::Event(0), include_delivered: true };
    assert_eq!(
        store.recover_notices(OTHER_TEAM, ours.id, recovery, None, T0).await.unwrap(),
        IdempotentResult::Done(None)
    );
    let change = EndpointEdit { team: OTHER_TEAM, ..endpoint_edit(&ours, EndpointState::Paused) };
    assert_eq!(
        store.change_endpoint(change, None, T0).await.unwrap(),
        IdempotentResult::Done(EndpointChangeResult::Missing)
    );
    assert_eq!(store.lease_notices(OTHER_TEAM, ours.id, NODE, 9, T0.plus(DAY)).await.unwrap(), []);
    let settle_theirs = mailonce_core::events::notice::NoticeOutcome {
        team: OTHER_TEAM,
        ..attempt_outcome(&notice, WebhookVerdict::Delivered, T0)
    };
    assert_eq!(store.record_notice_outcome(settle_theirs, T0).await.unwrap(), None);
    assert!(store.notice(TEAM, notice.id).await.unwrap().unwrap().is_open());
}

pub(super) async fn a_paused_or_disabled_endpoint_gets_its_notices_later(store: TestStore) {
    let endpoint = endpoint_from_start(&store, &["email.*"]).await;
    accept_emails(&store, 1, T0).await;
    fan_out_all(&store, T0).await;
    for state in [EndpointState::Paused, EndpointState::Disabled] {
        set_endpoint_state(&store, endpoint.id, state, T0).await;
        accept_emails(&store, 2, T0).await;
        assert_eq!(
            (fan_out_all(&store, T0).await, lease_notices(&store, &endpoint, 9, T0).await),
            (0, vec![]),
            "{state:?}"
        );
        assert_eq!(
            (store.next_notice_due().await.unwrap(), store.endpoints_with_due_notices(9, T0).await.unwrap()),
            (None, vec![])
        );
    }
    set_endpoint_state(&store, endpoint.id, EndpointState::Enabled, T0).await;
    assert_eq!(fan_out_all(&store, T0).await, 4);
    assert_eq!(store.endpoints_with_due_notices(9, T0).await.unwrap(), [load_endpoint(&store, endpoint.id).await]);
    assert_eq!(lease_notices(&store, &endpoint, 9, T0).await.len(), 5);
}

pub(super) async fn a_410_answer_disables_the_endpoint_and_emits_one_event(store: TestStore) {
    let (gone, other) = (endpoint_from_start(&store, &["*"]).await, endpoint_from_start(&store, &["endpoint.*"]).await);
    accept_emails(&store, 2, T0).await;
    fan_out_all(&store, T0).await;
    let leased = lease_notices(&store, &gone, 9, T0).await;
    for leased in &leased {
        assert!(record_outcome(&store, &leased.notice, WebhookVerdict::Gone, T0).await.is_open());
    }
    assert_eq!(event_kinds(&store).await, ["email.accepted", "email.accepted", "endpoint.disabled"]);
    assert_eq!(fan_out_all(&store, T0).await, 1);
    let leased = lease_notices(&store, &other, 9, T0).await.remove(0);
    assert_eq!((leased.event.event.subject_id, &leased.event.event.data["reason"]), (gone.id.0, &"gone".into()));
}

pub(super) async fn two_weeks_of_failures_disable_an_endpoint_and_a_success_resets_the_count(store: TestStore) {
    let endpoint = endpoint_from_start(&store, &["email.*"]).await;
    let fail = async |day: i64, answer| {
        let now = T0.plus(day * DAY);
        accept_emails(&store, 1, now).await;
        fan_out_all(&store, now).await;
        for leased in lease_notices(&store, &endpoint, 100, now).await {
            record_outcome(&store, &leased.notice, answer, now).await;
        }
        load_endpoint(&store, endpoint.id).await
    };
    assert_eq!(fail(0, WebhookVerdict::Retry(None)).await.failing_since, Some(T0));
    assert_eq!(fail(13, WebhookVerdict::Delivered).await.failing_since, None);
    assert_eq!(fail(14, WebhookVerdict::Retry(None)).await.failing_since, Some(T0.plus(14 * DAY)));
    assert_eq!(fail(27, WebhookVerdict::Retry(None)).await.state, EndpointState::Enabled);
    let disabled = fail(28, WebhookVerdict::Retry(None)).await;
    assert_eq!((disabled.state, disabled.reason), (EndpointState::Disabled, Some(EndpointReason::Failing)));
    assert_eq!(event_kinds(&store).await.iter().filter(|kind| **kind == "endpoint.disabled").count(), 1);
}

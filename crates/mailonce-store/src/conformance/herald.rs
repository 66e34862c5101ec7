//! Steps of telling others: endpoints, and what is owed to them.

use mailonce_core::{
    events::{
        endpoint::{
            Dialect, Endpoint, EndpointChangeResult, EndpointConfig, EndpointEdit, EndpointStart, EndpointState,
            EventTypeFilter,
        },
        notice::{
            FanOutCounts, LeasedNotice, Notice, NoticeAttempt, NoticeOutcome, NoticeQuery, NoticeRecovery,
            NoticeRecoveryResult, WebhookError, WebhookVerdict,
        },
    },
    id::{EndpointId, NodeId, TeamId},
    operation::IdempotentResult,
    time::Time,
};
use std::collections::BTreeMap;

use super::{T0, TEAM, TestStore, accept_first, keyless_email, next_id, work::NODE};

/// What an endpoint of these events says.
pub(super) fn endpoint_about(events: &[&str]) -> EndpointConfig {
    EndpointConfig {
        url: "https://receiver.test/hook".into(),
        description: "Ümlaut \"quotes\" \0".into(),
        events: events.iter().map(|text| EventTypeFilter::parse(text).unwrap()).collect(),
        inboxes: Vec::new(),
        secrets: Vec::new(),
        headers: BTreeMap::from([("x-a".into(), "b".into())]),
        rate_per_s: Some(7),
        version: "2026-11-15".into(),
        bodies: true,
        tongue: Some(Dialect { dialect: "resend".into(), types: vec!["email.sent".into()], ..Dialect::default() }),
        changed_at: Some(T0.plus(3)),
    }
}

/// An endpoint before it is made.
pub(super) fn new_endpoint(team: TeamId, events: &[&str]) -> Endpoint {
    let mut endpoint = Endpoint::new(EndpointId(next_id(T0)), team, endpoint_about(events), T0);
    endpoint.config.rotate_secret("sealed".into(), 1_000, T0);
    endpoint
}

pub(super) async fn create_endpoint(store: &TestStore, endpoint: &Endpoint, start: EndpointStart) -> Endpoint {
    match store.create_endpoint(endpoint.clone(), start, None).await.unwrap() {
        IdempotentResult::Done(made) => made,
        other => panic!("{other:?}"),
    }
}

/// Our team's new endpoint for these events, from the very first on.
pub(super) async fn endpoint_from_start(store: &TestStore, events: &[&str]) -> Endpoint {
    create_endpoint(store, &new_endpoint(TEAM, events), EndpointStart::After(0)).await
}

pub(super) async fn load_endpoint(store: &TestStore, id: EndpointId) -> Endpoint {
    store.endpoint(TEAM, id).await.unwrap().unwrap()
}

pub(super) async fn set_endpoint_state(store: &TestStore, id: EndpointId, state: EndpointState, now: Time) -> Endpoint {
    let Endpoint { team, rev, config: about, .. } = load_endpoint(store, id).await;
    match store.change_endpoint(EndpointEdit { team, id, rev, config: about, state }, None, now).await.unwrap() {
        IdempotentResult::Done(EndpointChangeResult::Changed(endpoint)) => endpoint,
        other => panic!("{other:?}"),
    }
}

/// Spreads until nothing is left.
pub(super) async fn fan_out_all(store: &TestStore, now: Time) -> usize {
    let mut owed = 0;
    loop {
        let FanOutCounts { notices_created: more, has_more: goes_on, .. } = store.fan_out(1_000, now).await.unwrap();
        owed += more;
        if !goes_on {
            return owed;
        }
    }
}

/// So many emails, and with each an event about a subject of its own. The numbers of their events are not looked at.
pub(super) async fn accept_emails(store: &TestStore, count: usize, now: Time) {
    for _ in 0..count {
        accept_first(store, &keyless_email(), now).await;
    }
}

pub(super) async fn lease_notices(store: &TestStore, endpoint: &Endpoint, max: usize, now: Time) -> Vec<LeasedNotice> {
    lease_notices_as(store, endpoint, NODE, max, now).await
}

pub(super) async fn lease_notices_as(
    store: &TestStore,
    endpoint: &Endpoint,
    node: NodeId,
    max: usize,
    now: Time,
) -> Vec<LeasedNotice> {
    store.lease_notices(endpoint.team, endpoint.id, node, max, now).await.unwrap()
}

/// How an attempt ended, with everything that can be said of it.
pub(super) fn attempt_outcome(notice: &Notice, answer: WebhookVerdict, now: Time) -> NoticeOutcome {
    let (status, trouble) = match answer {
        WebhookVerdict::Delivered => (Some(204), None),
        WebhookVerdict::Dropped => (Some(422), Some(WebhookError::Status)),
        WebhookVerdict::Gone => (Some(410), Some(WebhookError::Status)),
        WebhookVerdict::Retry(_) => (None, Some(WebhookError::Timeout)),
    };
    let attempt =
        NoticeAttempt { number: notice.attempts, at: now, status, latency_ms: 12, answer: "ä\0\"".into(), trouble };
    NoticeOutcome { team: notice.team, id: notice.id, attempt, verdict: answer, jitter_seed: 0 }
}

pub(super) async fn record_outcome(store: &TestStore, notice: &Notice, answer: WebhookVerdict, now: Time) -> Notice {
    store.record_notice_outcome(attempt_outcome(notice, answer, now), now).await.unwrap().unwrap()
}

/// Leases the only notice that is due and settles it.
pub(super) async fn deliver_only_notice(
    store: &TestStore,
    endpoint: &Endpoint,
    answer: WebhookVerdict,
    now: Time,
) -> Notice {
    let owed = lease_notices(store, endpoint, 10, now).await;
    assert_eq!(owed.len(), 1, "{owed:?}");
    record_outcome(store, &owed[0].notice, answer, now).await
}

pub(super) fn notice_seqs(owed: &[LeasedNotice]) -> Vec<u64> {
    owed.iter().map(|owed| owed.notice.seq).collect()
}

/// Every notice of an endpoint, in the order of its events.
pub(super) async fn all_notices(store: &TestStore, endpoint: &Endpoint) -> Vec<Notice> {
    let query = NoticeQuery { limit: 10_000, ..NoticeQuery::default() };
    let mut all = store.notices(endpoint.team, endpoint.id, query).await.unwrap();
    all.reverse();
    all
}

pub(super) async fn recover_notices(
    store: &TestStore,
    endpoint: &Endpoint,
    recovery: NoticeRecovery,
    now: Time,
) -> NoticeRecoveryResult {
    match store.recover_notices(endpoint.team, endpoint.id, recovery, None, now).await.unwrap() {
        IdempotentResult::Done(Some(recovering)) => recovering,
        other => panic!("{other:?}"),
    }
}

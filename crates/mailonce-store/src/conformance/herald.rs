//! Steps of telling others: endpoints, and what is owed to them.

use mailonce_core::{
    endpoint::{AboutEndpoint, Endpoint, EndpointChange, EndpointEdit, EndpointState, Filter, Start, Tongue},
    id::{EndpointId, NodeId, TeamId},
    notice::{Answer, Notice, NoticeAttempt, NoticeQuery, NoticeSettle, Owed, Recovering, Recovery, Spread, Trouble},
    port::store::Once,
    time::Time,
};
use std::collections::BTreeMap;

use super::{Ledger, T0, TEAM, accepted, keyless, next_id, work::NODE};

/// What an endpoint of these events says.
pub(super) fn wanting(events: &[&str]) -> AboutEndpoint {
    AboutEndpoint {
        url: "https://receiver.test/hook".into(),
        description: "Ümlaut \"quotes\" \0".into(),
        events: events.iter().map(|text| Filter::parse(text).unwrap()).collect(),
        inboxes: Vec::new(),
        secrets: Vec::new(),
        headers: BTreeMap::from([("x-a".into(), "b".into())]),
        rate_per_s: Some(7),
        version: "2026-11-15".into(),
        bodies: true,
        tongue: Some(Tongue { dialect: "resend".into(), types: vec!["email.sent".into()], ..Tongue::default() }),
        changed_at: Some(T0.plus(3)),
    }
}

/// An endpoint before it is made.
pub(super) fn draft(team: TeamId, events: &[&str]) -> Endpoint {
    let mut endpoint = Endpoint::new(EndpointId(next_id(T0)), team, wanting(events), T0);
    endpoint.about.rotate("sealed".into(), 1_000, T0);
    endpoint
}

pub(super) async fn make(store: &Ledger, endpoint: &Endpoint, start: Start) -> Endpoint {
    match store.create_endpoint(endpoint.clone(), start, None).await.unwrap() {
        Once::Done(made) => made,
        other => panic!("{other:?}"),
    }
}

/// Our team's new endpoint for these events, from the very first on.
pub(super) async fn listening(store: &Ledger, events: &[&str]) -> Endpoint {
    make(store, &draft(TEAM, events), Start::After(0)).await
}

pub(super) async fn the_endpoint(store: &Ledger, id: EndpointId) -> Endpoint {
    store.endpoint(TEAM, id).await.unwrap().unwrap()
}

pub(super) async fn switch(store: &Ledger, id: EndpointId, state: EndpointState, now: Time) -> Endpoint {
    let Endpoint { team, rev, about, .. } = the_endpoint(store, id).await;
    match store.change_endpoint(EndpointEdit { team, id, rev, about, state }, None, now).await.unwrap() {
        Once::Done(EndpointChange::Changed(endpoint)) => endpoint,
        other => panic!("{other:?}"),
    }
}

/// Spreads until nothing is left.
pub(super) async fn spread(store: &Ledger, now: Time) -> usize {
    let mut owed = 0;
    loop {
        let Spread { owed: more, more: goes_on, .. } = store.spread(1_000, now).await.unwrap();
        owed += more;
        if !goes_on {
            return owed;
        }
    }
}

/// So many emails, and with each an event about a subject of its own. The numbers of their events are not looked at.
pub(super) async fn happen(store: &Ledger, count: usize, now: Time) {
    for _ in 0..count {
        accepted(store, &keyless(), now).await;
    }
}

pub(super) async fn lease(store: &Ledger, endpoint: &Endpoint, max: usize, now: Time) -> Vec<Owed> {
    lease_as(store, endpoint, NODE, max, now).await
}

pub(super) async fn lease_as(store: &Ledger, endpoint: &Endpoint, node: NodeId, max: usize, now: Time) -> Vec<Owed> {
    store.lease_notices(endpoint.team, endpoint.id, node, max, now).await.unwrap()
}

/// How an attempt ended, with everything that can be said of it.
pub(super) fn ended(notice: &Notice, answer: Answer, now: Time) -> NoticeSettle {
    let (status, trouble) = match answer {
        Answer::Delivered => (Some(204), None),
        Answer::Dropped => (Some(422), Some(Trouble::Status)),
        Answer::Gone => (Some(410), Some(Trouble::Status)),
        Answer::Again(_) => (None, Some(Trouble::Timeout)),
    };
    let attempt =
        NoticeAttempt { number: notice.attempts, at: now, status, latency_ms: 12, answer: "ä\0\"".into(), trouble };
    NoticeSettle { team: notice.team, id: notice.id, attempt, answer, chance: 0 }
}

pub(super) async fn settle(store: &Ledger, notice: &Notice, answer: Answer, now: Time) -> Notice {
    store.settle_notice(ended(notice, answer, now), now).await.unwrap().unwrap()
}

/// Leases the only notice that is due and settles it.
pub(super) async fn tell(store: &Ledger, endpoint: &Endpoint, answer: Answer, now: Time) -> Notice {
    let owed = lease(store, endpoint, 10, now).await;
    assert_eq!(owed.len(), 1, "{owed:?}");
    settle(store, &owed[0].notice, answer, now).await
}

pub(super) fn numbers(owed: &[Owed]) -> Vec<u64> {
    owed.iter().map(|owed| owed.notice.seq).collect()
}

/// Every notice of an endpoint, in the order of its events.
pub(super) async fn all(store: &Ledger, endpoint: &Endpoint) -> Vec<Notice> {
    let query = NoticeQuery { limit: 10_000, ..NoticeQuery::default() };
    let mut all = store.notices(endpoint.team, endpoint.id, query).await.unwrap();
    all.reverse();
    all
}

pub(super) async fn again(store: &Ledger, endpoint: &Endpoint, recovery: Recovery, now: Time) -> Recovering {
    match store.recover_notices(endpoint.team, endpoint.id, recovery, None, now).await.unwrap() {
        Once::Done(Some(recovering)) => recovering,
        other => panic!("{other:?}"),
    }
}

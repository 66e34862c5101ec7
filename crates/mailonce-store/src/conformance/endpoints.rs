//! Promises about endpoints: who is told of events, and from where on.

use mailonce_core::{
    endpoint::{Endpoint, EndpointChange, EndpointEdit, EndpointReason, EndpointState, Start},
    id::EndpointId,
    notice::{Answer, NoticeQuery, Recovery, Since},
    port::store::Once,
};

use super::{
    DAY, Ledger, OTHER, SECOND, T0, TEAM,
    herald::{all, draft, happen, lease, listening, make, settle, spread, switch, tell, the_endpoint},
    kinds, next_id, operation,
};

fn edit(endpoint: &Endpoint, state: EndpointState) -> EndpointEdit {
    let Endpoint { team, id, rev, about, .. } = endpoint.clone();
    EndpointEdit { team, id, rev, about, state }
}

pub(super) async fn an_endpoint_is_read_back_whole(store: Ledger) {
    let wanted = draft(TEAM, &["email.*", "message.received"]);
    let made = make(&store, &wanted, Start::End).await;
    assert_eq!(made, wanted);
    assert_eq!(the_endpoint(&store, made.id).await, made);
    assert_eq!(store.endpoint(TEAM, EndpointId(next_id(T0))).await.unwrap(), None);
    // Time and kind of a failure are kept too.
    happen(&store, 1, T0).await;
    spread(&store, T0).await;
    tell(&store, &made, Answer::Gone, T0).await;
    let gone = the_endpoint(&store, made.id).await;
    assert_eq!((gone.state, gone.reason, gone.since), (EndpointState::Disabled, Some(EndpointReason::Gone), T0));
    assert_eq!((gone.rev, gone.cursor, gone.about), (2, 1, made.about));
}

pub(super) async fn an_endpoint_made_twice_is_the_same_endpoint(store: Ledger) {
    let wanted = draft(TEAM, &["*"]);
    let call = operation("make", 1, T0);
    let once = store.create_endpoint(wanted.clone(), Start::End, Some(call.clone())).await.unwrap();
    assert_eq!(once, Once::Done(wanted.clone()));
    let twice = store.create_endpoint(draft(TEAM, &["*"]), Start::End, Some(call.clone())).await.unwrap();
    assert_eq!(twice, Once::Repeated(call.answer.clone()));
    let other = operation("make", 2, T0);
    let other = store.create_endpoint(draft(TEAM, &["*"]), Start::End, Some(other)).await.unwrap();
    assert!(matches!(other, Once::Mismatch(_)), "{other:?}");
    assert_eq!(make(&store, &wanted, Start::End).await, wanted);
    assert_eq!(store.endpoints(TEAM, None, 10).await.unwrap(), [wanted]);
}

pub(super) async fn endpoints_are_listed_newest_first_in_pages(store: Ledger) {
    let mut made = Vec::new();
    for _ in 0..5 {
        made.push(make(&store, &draft(TEAM, &["*"]), Start::End).await);
    }
    made.reverse();
    let first = store.endpoints(TEAM, None, 3).await.unwrap();
    let rest = store.endpoints(TEAM, Some(first[2].id), 3).await.unwrap();
    assert_eq!([first, rest].concat(), made);
}

pub(super) async fn an_endpoint_is_changed_only_as_it_was_seen(store: Ledger) {
    let made = listening(&store, &["*"]).await;
    let call = operation("change", 1, T0);
    let mut wanted = edit(&made, EndpointState::Disabled);
    wanted.about.url = "https://elsewhere.test/".into();
    let changed = store.change_endpoint(wanted.clone(), Some(call.clone()), T0.plus(SECOND)).await.unwrap();
    let Once::Done(EndpointChange::Changed(changed)) = changed else { panic!("{changed:?}") };
    assert_eq!((changed.rev, changed.since, changed.reason), (2, T0.plus(SECOND), Some(EndpointReason::Asked)));
    assert_eq!(changed.about.url, wanted.about.url);
    assert_eq!(the_endpoint(&store, made.id).await, changed);
    assert_eq!(kinds(&store).await, ["endpoint.disabled"]);
    let repeated = store.change_endpoint(wanted.clone(), Some(call.clone()), T0).await.unwrap();
    assert_eq!(repeated, Once::Repeated(call.answer));
    let stale = store.change_endpoint(wanted.clone(), None, T0).await.unwrap();
    assert_eq!(stale, Once::Done(EndpointChange::Stale(changed)));
    let missing = EndpointEdit { id: EndpointId(next_id(T0)), ..wanted };
    assert_eq!(store.change_endpoint(missing, None, T0).await.unwrap(), Once::Done(EndpointChange::Missing));
}

pub(super) async fn a_new_endpoint_begins_at_the_end_or_where_it_is_asked_to(store: Ledger) {
    happen(&store, 3, T0).await;
    for (start, cursor) in [(Start::End, 3), (Start::After(0), 0), (Start::After(2), 2), (Start::After(9), 3)] {
        assert_eq!(make(&store, &draft(TEAM, &["*"]), start).await.cursor, cursor, "{start:?}");
    }
    assert_eq!(make(&store, &draft(OTHER, &["*"]), Start::End).await.cursor, 0);
    assert_eq!(spread(&store, T0).await, 3 + 1);
}

pub(super) async fn a_removed_endpoint_is_nowhere_and_what_it_left_is_swept(store: Ledger) {
    let (gone, kept) = (listening(&store, &["*"]).await, listening(&store, &["*"]).await);
    happen(&store, 5, T0).await;
    spread(&store, T0).await;
    let owed = lease(&store, &gone, 1, T0).await;
    let removed = store.remove_endpoint(TEAM, gone.id).await.unwrap().unwrap();
    assert_eq!((removed.id, removed.cursor), (gone.id, 5));
    assert_eq!(store.remove_endpoint(TEAM, gone.id).await.unwrap(), None);
    assert_eq!(store.endpoints(TEAM, None, 10).await.unwrap(), [the_endpoint(&store, kept.id).await]);
    assert_eq!(store.notice(TEAM, owed[0].notice.id).await.unwrap(), None);
    assert_eq!(lease(&store, &gone, 9, T0).await, []);
    assert_eq!(all(&store, &gone).await, []);
    assert_eq!(store.endpoint_gauges().await.unwrap().len(), 1);
    happen(&store, 1, T0).await;
    assert_eq!(spread(&store, T0).await, 1);
    for left in [2, 2, 1, 0] {
        assert_eq!(store.sweep(2, T0).await.unwrap().notices, left);
    }
    assert_eq!(all(&store, &kept).await.len(), 6);
    let id = mailonce_core::id::ordered_bits(kept.id.0.max(gone.id.0));
    assert!(store.install().await.unwrap().last_id >= id);
}

pub(super) async fn endpoints_and_notices_of_another_team_are_not_there(store: Ledger) {
    let theirs = make(&store, &draft(OTHER, &["*"]), Start::After(0)).await;
    let ours = listening(&store, &["*"]).await;
    happen(&store, 1, T0).await;
    assert_eq!(spread(&store, T0).await, 1);
    let owed = lease(&store, &ours, 9, T0).await.remove(0).notice;
    assert_eq!(lease(&store, &theirs, 9, T0).await, []);
    assert_eq!(store.endpoint(OTHER, ours.id).await.unwrap(), None);
    assert_eq!(store.endpoints(OTHER, None, 10).await.unwrap(), [theirs]);
    assert_eq!(store.remove_endpoint(OTHER, ours.id).await.unwrap(), None);
    assert_eq!(store.notice(OTHER, owed.id).await.unwrap(), None);
    let query = NoticeQuery { limit: 9, ..NoticeQuery::default() };
    assert_eq!(store.notices(OTHER, ours.id, query).await.unwrap(), []);
    assert_eq!(store.replay_notice(OTHER, owed.id, None, T0).await.unwrap(), Once::Done(None));
    let recovery = Recovery { since: Since::Event(0), everything: true };
    assert_eq!(store.recover_notices(OTHER, ours.id, recovery, None, T0).await.unwrap(), Once::Done(None));
    let change = EndpointEdit { team: OTHER, ..edit(&ours, EndpointState::Paused) };
    assert_eq!(store.change_endpoint(change, None, T0).await.unwrap(), Once::Done(EndpointChange::Missing));
    assert_eq!(store.lease_notices(OTHER, ours.id, super::work::NODE, 9, T0.plus(DAY)).await.unwrap(), []);
    let settle_theirs =
        mailonce_core::notice::NoticeSettle { team: OTHER, ..super::herald::ended(&owed, Answer::Delivered, T0) };
    assert_eq!(store.settle_notice(settle_theirs, T0).await.unwrap(), None);
    assert!(store.notice(TEAM, owed.id).await.unwrap().unwrap().is_open());
}

pub(super) async fn a_paused_or_disabled_endpoint_is_told_later(store: Ledger) {
    let made = listening(&store, &["email.*"]).await;
    happen(&store, 1, T0).await;
    spread(&store, T0).await;
    for state in [EndpointState::Paused, EndpointState::Disabled] {
        switch(&store, made.id, state, T0).await;
        happen(&store, 2, T0).await;
        assert_eq!((spread(&store, T0).await, lease(&store, &made, 9, T0).await), (0, vec![]), "{state:?}");
        assert_eq!((store.next_notice_due().await.unwrap(), store.endpoints_due(9, T0).await.unwrap()), (None, vec![]));
    }
    switch(&store, made.id, EndpointState::Enabled, T0).await;
    assert_eq!(spread(&store, T0).await, 4);
    assert_eq!(store.endpoints_due(9, T0).await.unwrap(), [the_endpoint(&store, made.id).await]);
    assert_eq!(lease(&store, &made, 9, T0).await.len(), 5);
}

pub(super) async fn a_receiver_that_is_gone_disables_its_endpoint_and_that_is_told_once(store: Ledger) {
    let (gone, other) = (listening(&store, &["*"]).await, listening(&store, &["endpoint.*"]).await);
    happen(&store, 2, T0).await;
    spread(&store, T0).await;
    let owed = lease(&store, &gone, 9, T0).await;
    for owed in &owed {
        assert!(settle(&store, &owed.notice, Answer::Gone, T0).await.is_open());
    }
    assert_eq!(kinds(&store).await, ["email.accepted", "email.accepted", "endpoint.disabled"]);
    assert_eq!(spread(&store, T0).await, 1);
    let told = lease(&store, &other, 9, T0).await.remove(0);
    assert_eq!((told.event.event.about, &told.event.event.data["reason"]), (gone.id.0, &"gone".into()));
}

pub(super) async fn two_weeks_of_failures_disable_an_endpoint_and_a_success_begins_anew(store: Ledger) {
    let made = listening(&store, &["email.*"]).await;
    let fail = async |day: i64, answer| {
        let now = T0.plus(day * DAY);
        happen(&store, 1, now).await;
        spread(&store, now).await;
        for owed in lease(&store, &made, 100, now).await {
            settle(&store, &owed.notice, answer, now).await;
        }
        the_endpoint(&store, made.id).await
    };
    assert_eq!(fail(0, Answer::Again(None)).await.failing_since, Some(T0));
    assert_eq!(fail(13, Answer::Delivered).await.failing_since, None);
    assert_eq!(fail(14, Answer::Again(None)).await.failing_since, Some(T0.plus(14 * DAY)));
    assert_eq!(fail(27, Answer::Again(None)).await.state, EndpointState::Enabled);
    let disabled = fail(28, Answer::Again(None)).await;
    assert_eq!((disabled.state, disabled.reason), (EndpointState::Disabled, Some(EndpointReason::Failing)));
    assert_eq!(kinds(&store).await.iter().filter(|kind| **kind == "endpoint.disabled").count(), 1);
}

//! Promises about artifacts, which are consumed once, and about watches.

use mailonce_core::{
    events::event::EventKind,
    id::{ApiKeyId, ArtifactId, WatchId},
    inbox::{
        Inbox,
        artifact::{Artifact, ArtifactKind, ConsumeRequest, ConsumeResult, HeldArtifacts, MarkAppliedResult},
        watch::{ImplicitWatch, SpendResendResult, Watch},
    },
    limits,
    operation::IdempotentResult,
    outbound::key_binding::KeyBinding,
    time::Time,
};
use uuid::Uuid;

use crate::conformance::{
    MINUTE, OTHER_TEAM, SECOND, T0, TEAM, TestStore, accept_first, all_events, event_kinds,
    fixtures::inbound::{
        consume_request, file_new, from_sender, new_message, open_inbox, with_artifacts, with_passed_auth,
    },
    keyed_email, new_operation, next_id,
};

const CODE: ArtifactKind = ArtifactKind::Code;
const LINK: ArtifactKind = ArtifactKind::Link;

async fn load_artifact(store: &TestStore, id: ArtifactId) -> Artifact {
    store.artifact(TEAM, id).await.unwrap().unwrap()
}

/// A new inbox with one code.
async fn inbox_with_code(store: &TestStore) -> (Inbox, Artifact) {
    let inbox = open_inbox(store, "a@d.test").await;
    let (_, artifacts) = file_new(store, &inbox, with_artifacts(new_message(Some(1), 1), &[(CODE, 1)]), T0).await;
    (inbox, artifacts[0].clone())
}

pub(super) async fn artifacts_are_stored_with_their_message(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let wanted = with_passed_auth(with_artifacts(new_message(Some(1), 1), &[(LINK, 1), (CODE, 2)]));
    let new = wanted.artifacts.clone();
    let (message, artifacts) = file_new(&store, &inbox, wanted, T0).await;
    assert_eq!(message.head.artifacts, [(LINK, new[0].id), (CODE, new[1].id)]);
    assert_eq!(store.message(TEAM, message.id).await.unwrap(), Some(message.clone()));
    for (artifact, new) in artifacts.iter().zip(&new) {
        let expected = Artifact {
            id: new.id,
            team: TEAM,
            inbox: inbox.id,
            message: message.id,
            rev: 1,
            kind: new.kind,
            extracted: new.extracted.clone(),
            sender: "no-reply@sender.test".into(),
            found_at: T0,
            seq: 1,
            authenticated: true,
            consumption: None,
            applied_at: None,
        };
        assert_eq!(artifact, &expected);
        assert_eq!(load_artifact(&store, new.id).await, expected);
    }
    let events: Vec<_> = all_events(&store, TEAM).await.into_iter().map(|event| event.event).collect();
    let found = |n: usize| artifacts[n].to_event(EventKind::ArtifactFound, T0);
    assert_eq!(events, [message.received_event(T0), found(0), found(1)]);
    assert_eq!(store.artifact(TEAM, ArtifactId(next_id(T0))).await.unwrap(), None);
}

pub(super) async fn the_same_value_within_an_hour_is_the_same_artifact(store: TestStore) {
    let (inbox, first) = inbox_with_code(&store).await;
    let soon = T0.plus(limits::ARTIFACT_DEDUP_MS - 1);
    let again = with_passed_auth(with_artifacts(new_message(Some(2), 2), &[(CODE, 2), (CODE, 1)]));
    let (message, artifacts) = file_new(&store, &inbox, again, soon).await;
    let expected = Artifact { rev: 2, seq: 2, authenticated: true, ..first.clone() };
    assert_eq!(artifacts[1], expected);
    assert_eq!(load_artifact(&store, first.id).await, expected);
    assert_eq!(message.head.artifacts, [(CODE, artifacts[0].id), (CODE, first.id)]);
    let events = event_kinds(&store).await;
    assert_eq!(events, ["message.received", "artifact.found", "message.received", "artifact.found"]);
    // Once authenticated, an artifact stays authenticated.
    let (_, third) = file_new(&store, &inbox, with_artifacts(new_message(Some(3), 3), &[(CODE, 1)]), soon).await;
    assert!(third[0].authenticated && third[0].rev == 3);
}

pub(super) async fn another_hour_sender_kind_or_inbox_is_another_artifact(store: TestStore) {
    let (inbox, first) = inbox_with_code(&store).await;
    let mut ids = vec![first.id];
    let elsewhere = open_inbox(&store, "b@d.test").await;
    let late = T0.plus(limits::ARTIFACT_DEDUP_MS);
    for (at, message, now) in [
        (&inbox, with_artifacts(new_message(Some(2), 2), &[(LINK, 1)]), T0),
        (&inbox, from_sender(with_artifacts(new_message(Some(3), 3), &[(CODE, 1)]), "other@sender.test"), T0),
        (&elsewhere, with_artifacts(new_message(Some(4), 4), &[(CODE, 1)]), T0),
        (&inbox, with_artifacts(new_message(Some(5), 5), &[(CODE, 1)]), late),
    ] {
        let (_, artifacts) = file_new(&store, at, message, now).await;
        assert!(!ids.contains(&artifacts[0].id));
        ids.push(artifacts[0].id);
    }
    // From now on the latest artifact with this value is the one that is found again.
    let (_, again) = file_new(&store, &inbox, with_artifacts(new_message(Some(6), 6), &[(CODE, 1)]), late).await;
    assert_eq!(again[0].id, ids[4]);
}

pub(super) async fn a_value_twice_in_one_message_is_one_artifact(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let twice = with_artifacts(new_message(Some(1), 1), &[(CODE, 1), (LINK, 1), (CODE, 1)]);
    let (message, artifacts) = file_new(&store, &inbox, twice, T0).await;
    let kinds: Vec<_> = artifacts.iter().map(|artifact| artifact.kind).collect();
    assert_eq!((kinds, message.head.artifacts.len()), (vec![CODE, LINK], 2));
}

pub(super) async fn artifacts_are_listed_by_their_latest_message(store: TestStore) {
    let (inbox, first) = inbox_with_code(&store).await;
    let (_, second) =
        file_new(&store, &inbox, with_artifacts(new_message(Some(2), 2), &[(LINK, 2), (CODE, 3)]), T0).await;
    let (_, third) = file_new(&store, &inbox, with_artifacts(new_message(Some(3), 3), &[(CODE, 4)]), T0).await;
    let listed = |kind, after, limit| {
        let (store, inbox) = (store.clone(), inbox.id);
        async move {
            let found = store.artifacts(TEAM, inbox, kind, after, limit).await.unwrap();
            found.iter().map(|artifact| artifact.id).collect::<Vec<_>>()
        }
    };
    let ids = [third[0].id, second[0].id, second[1].id, first.id];
    assert_eq!(listed(None, 0, 10).await, ids);
    assert_eq!(listed(None, 0, 2).await, ids[..2]);
    assert_eq!(listed(None, 1, 10).await, ids[..3]);
    assert_eq!(listed(Some(LINK), 0, 10).await, ids[1..2]);
    assert_eq!(listed(Some(CODE), 2, 10).await, ids[..1]);
    // An artifact that is found again is listed by its latest message.
    file_new(&store, &inbox, with_artifacts(new_message(Some(4), 4), &[(CODE, 1)]), T0).await;
    assert_eq!(listed(None, 0, 1).await, [first.id]);
    let found = store.artifacts(TEAM, inbox.id, None, 3, 10).await.unwrap();
    assert_eq!(found, [load_artifact(&store, first.id).await]);
}

async fn consume(store: &TestStore, id: ArtifactId, request: ConsumeRequest, now: Time) -> ConsumeResult {
    match store.consume_artifact(TEAM, id, request, None, now).await.unwrap() {
        IdempotentResult::Done(consumed) => consumed,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn an_artifact_is_consumed_by_its_first_consumer_only(store: TestStore) {
    let (inbox, artifact) = inbox_with_code(&store).await;
    let ConsumeResult::First(consumed) = consume(&store, artifact.id, consume_request("run-1"), T0).await else {
        panic!("not first")
    };
    assert_eq!(consumed.clone(), {
        let mut wanted = artifact;
        assert!(wanted.consume(consume_request("run-1"), T0));
        wanted
    });
    let later = T0.plus(SECOND);
    let other_key = ConsumeRequest { by: ApiKeyId(Uuid::from_u128(9)), ..consume_request("run-1") };
    assert_eq!(consume(&store, consumed.id, other_key, later).await, ConsumeResult::Replayed(consumed.clone()));
    assert_eq!(
        consume(&store, consumed.id, consume_request("run-2"), later).await,
        ConsumeResult::ConsumedByOther(consumed.clone())
    );
    let watched = ConsumeRequest { watch: Some(WatchId(next_id(T0))), ..consume_request("run-1") };
    assert_eq!(consume(&store, consumed.id, watched, later).await, ConsumeResult::ConsumedByOther(consumed.clone()));
    assert_eq!(load_artifact(&store, consumed.id).await, consumed);
    let events = all_events(&store, TEAM).await;
    assert_eq!(event_kinds(&store).await[2..], ["artifact.consumed"]);
    assert_eq!(events[2].event, consumed.to_event(EventKind::ArtifactConsumed, T0));
    // The same value in another message is still consumed.
    let (_, again) = file_new(&store, &inbox, with_artifacts(new_message(Some(2), 2), &[(CODE, 1)]), later).await;
    assert!(matches!(
        consume(&store, again[0].id, consume_request("run-2"), later).await,
        ConsumeResult::ConsumedByOther(_)
    ));
    assert_eq!(consume(&store, ArtifactId(next_id(T0)), consume_request("run-1"), T0).await, ConsumeResult::Missing);
}

pub(super) async fn consuming_under_an_operation_is_done_once(store: TestStore) {
    let (_, artifact) = inbox_with_code(&store).await;
    let operation = |key: &str, digest| Some(new_operation(key, digest, T0));
    let consume_as = async |purpose: &str, operation| {
        store.consume_artifact(TEAM, artifact.id, consume_request(purpose), operation, T0).await.unwrap()
    };
    assert!(matches!(consume_as("run-1", operation("k", 1)).await, IdempotentResult::Done(ConsumeResult::First(_))));
    assert_eq!(consume_as("run-1", operation("k", 1)).await, IdempotentResult::Replayed(b"answer 1".to_vec()));
    assert_eq!(
        consume_as("run-1", operation("k", 2)).await,
        IdempotentResult::KeyMismatch(KeyBinding::Operation { digest: [1; 32] })
    );
    assert!(matches!(
        consume_as("run-1", operation("again", 1)).await,
        IdempotentResult::Done(ConsumeResult::Replayed(_))
    ));
    assert_eq!(consume_as("run-1", operation("again", 1)).await, IdempotentResult::Replayed(b"answer 1".to_vec()));
    // A refused attempt binds no key.
    assert!(matches!(
        consume_as("run-2", operation("gone", 1)).await,
        IdempotentResult::Done(ConsumeResult::ConsumedByOther(_))
    ));
    let missing = store
        .consume_artifact(TEAM, ArtifactId(next_id(T0)), consume_request("x"), operation("gone", 1), T0)
        .await
        .unwrap();
    assert_eq!(missing, IdempotentResult::Done(ConsumeResult::Missing));
    accept_first(&store, &keyed_email("gone"), T0).await;
}

pub(super) async fn only_the_consumer_can_mark_an_artifact_applied_and_once(store: TestStore) {
    let (_, artifact) = inbox_with_code(&store).await;
    let apply = async |purpose: &str, now| store.mark_artifact_applied(TEAM, artifact.id, purpose, now).await.unwrap();
    assert_eq!(apply("run-1", T0).await, MarkAppliedResult::NotYours(artifact.clone()));
    let ConsumeResult::First(consumed) = consume(&store, artifact.id, consume_request("run-1"), T0).await else {
        panic!("not first")
    };
    assert_eq!(apply("run-2", T0).await, MarkAppliedResult::NotYours(consumed.clone()));
    let later = T0.plus(SECOND);
    let done = Artifact { rev: 3, applied_at: Some(later), ..consumed };
    assert_eq!(apply("run-1", later).await, MarkAppliedResult::Done(done.clone()));
    assert_eq!(apply("run-1", T0.plus(MINUTE)).await, MarkAppliedResult::Done(done.clone()));
    assert_eq!(load_artifact(&store, artifact.id).await, done);
    assert_eq!(event_kinds(&store).await[2..], ["artifact.consumed", "artifact.applied"]);
    assert_eq!(
        store.mark_artifact_applied(TEAM, ArtifactId(next_id(T0)), "run-1", T0).await.unwrap(),
        MarkAppliedResult::Missing
    );
}

fn new_watch(inbox: &Inbox, budget: u32) -> Watch {
    Watch {
        id: WatchId(next_id(T0)),
        team: TEAM,
        inbox: inbox.id,
        rev: 1,
        started_at: T0,
        after_seq: 0,
        deadline: T0.plus(MINUTE),
        resend_budget: budget,
        resends_used: 0,
        require_auth: true,
    }
}

async fn create_watch(store: &TestStore, watch: &Watch) -> Option<Watch> {
    match store.create_watch(watch.clone(), None).await.unwrap() {
        IdempotentResult::Done(created) => created,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn an_implicit_watch_goes_on_while_its_consumer_calls(store: TestStore) {
    let (inbox, _) = inbox_with_code(&store).await;
    let touch = async |consumer: u8, after_seq: u64, now: Time| {
        let ends_at = now.plus(MINUTE);
        let watch = ImplicitWatch { team: TEAM, inbox: inbox.id, consumer: [consumer; 16], after_seq, ends_at };
        let touched = store.touch_implicit_watch(watch, now).await.unwrap();
        assert_eq!(ImplicitWatch { after_seq: touched.after_seq, ..watch }, touched);
        touched.after_seq
    };
    assert_eq!(touch(1, 5, T0).await, 5);
    assert_eq!(touch(1, 9, T0.plus(MINUTE - 1)).await, 5, "it goes on");
    assert_eq!(touch(2, 7, T0.plus(MINUTE)).await, 7, "each consumer has its own");
    assert_eq!(touch(1, 9, T0.plus(2 * MINUTE - 2)).await, 5, "each call extends it");
    assert_eq!(touch(1, 9, T0.plus(3 * MINUTE - 2)).await, 9, "it ended");
    // Rows of watches that ended are removed; those that go on stay.
    for consumer in 10..40 {
        assert_eq!(touch(consumer, 1, T0.plus(3 * MINUTE)).await, 1);
    }
    assert_eq!(touch(1, 11, T0.plus(3 * MINUTE)).await, 9);
}

pub(super) async fn a_watch_starts_after_the_latest_message(store: TestStore) {
    let (inbox, _) = inbox_with_code(&store).await;
    let wanted = new_watch(&inbox, 2);
    let created = Watch { after_seq: 1, ..wanted.clone() };
    assert_eq!(create_watch(&store, &wanted).await, Some(created.clone()));
    file_new(&store, &inbox, new_message(Some(2), 2), T0).await;
    assert_eq!(create_watch(&store, &wanted).await, Some(created.clone()), "a second creation changes nothing");
    assert_eq!(store.watch_of(TEAM, wanted.id).await.unwrap(), Some(created));
    assert_eq!(create_watch(&store, &new_watch(&inbox, 2)).await.unwrap().after_seq, 2);
    let nowhere = Watch { inbox: mailonce_core::id::InboxId(next_id(T0)), ..new_watch(&inbox, 1) };
    let missing = store.create_watch(nowhere, Some(new_operation("w", 1, T0))).await.unwrap();
    assert_eq!(missing, IdempotentResult::Done(None));
    let one = new_watch(&inbox, 1);
    let created = store.create_watch(one.clone(), Some(new_operation("w", 1, T0))).await.unwrap();
    assert!(matches!(created, IdempotentResult::Done(Some(_))), "{created:?}");
    let again = store.create_watch(new_watch(&inbox, 1), Some(new_operation("w", 1, T0))).await.unwrap();
    assert_eq!(again, IdempotentResult::Replayed(b"answer 1".to_vec()));
}

pub(super) async fn a_watchs_resend_budget_can_be_spent_until_empty(store: TestStore) {
    let (inbox, _) = inbox_with_code(&store).await;
    let first = create_watch(&store, &new_watch(&inbox, 2)).await.unwrap();
    let spend = async |now| match store.spend_resend(TEAM, first.id, None, now).await.unwrap() {
        IdempotentResult::Done(spent) => spent,
        other => panic!("{other:?}"),
    };
    let once = Watch { rev: 2, resends_used: 1, ..first.clone() };
    assert_eq!(spend(T0).await, SpendResendResult::Spent(once.clone()));
    assert_eq!(spend(T0.plus(MINUTE)).await, SpendResendResult::WatchEnded(once));
    let twice = Watch { rev: 3, resends_used: 2, ..first.clone() };
    assert_eq!(spend(T0).await, SpendResendResult::Spent(twice.clone()));
    assert_eq!(spend(T0).await, SpendResendResult::BudgetSpent(twice.clone()));
    assert_eq!(store.watch_of(TEAM, first.id).await.unwrap(), Some(twice));
}

pub(super) async fn spending_a_resend_under_an_operation_is_done_once(store: TestStore) {
    let (inbox, _) = inbox_with_code(&store).await;
    let watch = create_watch(&store, &new_watch(&inbox, 1)).await.unwrap();
    let spend =
        async |key: &str| store.spend_resend(TEAM, watch.id, Some(new_operation(key, 1, T0)), T0).await.unwrap();
    assert!(matches!(spend("one").await, IdempotentResult::Done(SpendResendResult::Spent(_))));
    assert_eq!(spend("one").await, IdempotentResult::Replayed(b"answer 1".to_vec()));
    assert!(matches!(spend("two").await, IdempotentResult::Done(SpendResendResult::BudgetSpent(_))));
    let missing = store.spend_resend(TEAM, WatchId(next_id(T0)), Some(new_operation("two", 1, T0)), T0).await.unwrap();
    assert_eq!(missing, IdempotentResult::Done(SpendResendResult::Missing));
    accept_first(&store, &keyed_email("two"), T0).await;
}

pub(super) async fn artifacts_and_watches_of_another_team_are_not_found(store: TestStore) {
    let (inbox, artifact) = inbox_with_code(&store).await;
    let ours = create_watch(&store, &new_watch(&inbox, 1)).await.unwrap();
    assert_eq!(store.artifact(OTHER_TEAM, artifact.id).await.unwrap(), None);
    assert!(store.artifacts(OTHER_TEAM, inbox.id, None, 0, 10).await.unwrap().is_empty());
    let consumed = store.consume_artifact(OTHER_TEAM, artifact.id, consume_request("x"), None, T0).await.unwrap();
    assert_eq!(consumed, IdempotentResult::Done(ConsumeResult::Missing));
    assert_eq!(
        store.mark_artifact_applied(OTHER_TEAM, artifact.id, "x", T0).await.unwrap(),
        MarkAppliedResult::Missing
    );
    assert_eq!(store.watch_of(OTHER_TEAM, ours.id).await.unwrap(), None);
    assert_eq!(
        store.spend_resend(OTHER_TEAM, ours.id, None, T0).await.unwrap(),
        IdempotentResult::Done(SpendResendResult::Missing)
    );
    let theirs = Watch { team: OTHER_TEAM, ..new_watch(&inbox, 1) };
    assert_eq!(create_watch(&store, &theirs).await, None);
    assert_eq!(load_artifact(&store, artifact.id).await, artifact);
    assert_eq!(store.watch_of(TEAM, ours.id).await.unwrap(), Some(ours));
}

pub(super) async fn removing_an_inbox_ends_its_artifacts_and_watches(store: TestStore) {
    let (inbox, artifact) = inbox_with_code(&store).await;
    let ours = create_watch(&store, &new_watch(&inbox, 1)).await.unwrap();
    store.remove_inbox(TEAM, inbox.id, T0).await.unwrap().unwrap();
    assert_eq!(consume(&store, artifact.id, consume_request("run-1"), T0).await, ConsumeResult::Missing);
    assert_eq!(store.mark_artifact_applied(TEAM, artifact.id, "run-1", T0).await.unwrap(), MarkAppliedResult::Missing);
    assert_eq!(store.watch_of(TEAM, ours.id).await.unwrap(), None);
    assert_eq!(
        store.spend_resend(TEAM, ours.id, None, T0).await.unwrap(),
        IdempotentResult::Done(SpendResendResult::Missing)
    );
    assert_eq!(create_watch(&store, &new_watch(&inbox, 1)).await, None);
}

pub(super) async fn a_consumer_sees_what_it_holds_in_whichever_watch(store: TestStore) {
    let (inbox, first) = inbox_with_code(&store).await;
    let (_, second) =
        file_new(&store, &inbox, with_artifacts(new_message(Some(2), 2), &[(CODE, 2), (LINK, 3)]), T0).await;
    let watched = ConsumeRequest { watch: Some(WatchId(next_id(T0))), ..consume_request("it's \"run\" 1") };
    let plain = || consume_request("it's \"run\" 1");
    for (id, request) in [(first.id, watched), (second[0].id, plain()), (second[1].id, plain())] {
        assert!(matches!(consume(&store, id, request, T0).await, ConsumeResult::First(_)));
    }

    let held = async |kind, after, purpose: &str| {
        let held = store.held_artifacts(TEAM, inbox.id, kind, after, purpose).await.unwrap();
        held.iter().map(|artifact| artifact.id).collect::<Vec<_>>()
    };
    assert_eq!(held(CODE, 0, "it's \"run\" 1").await, [second[0].id, first.id]);
    assert_eq!(held(CODE, 1, "it's \"run\" 1").await, [second[0].id]);
    assert_eq!(held(LINK, 0, "it's \"run\" 1").await, [second[1].id]);
    assert_eq!(held(CODE, 0, "run").await, []);
    assert_eq!(store.held_artifacts(OTHER_TEAM, inbox.id, CODE, 0, "it's \"run\" 1").await.unwrap(), []);
}

pub(super) async fn a_consumer_that_took_one_meanwhile_gets_no_second_artifact(store: TestStore) {
    let (inbox, first) = inbox_with_code(&store).await;
    let (_, second) = file_new(&store, &inbox, with_artifacts(new_message(Some(2), 2), &[(CODE, 2)]), T0).await;
    let knowing = |after, known: &[ArtifactId]| ConsumeRequest {
        held_before: Some(HeldArtifacts { after, known: known.to_vec() }),
        ..consume_request("run-1")
    };
    let ConsumeResult::First(taken) = consume(&store, first.id, knowing(0, &[]), T0).await else { panic!("not first") };

    let operation = Some(new_operation("k", 1, T0));
    let refused = store.consume_artifact(TEAM, second[0].id, knowing(0, &[]), operation, T0).await.unwrap();
    assert_eq!(refused, IdempotentResult::Done(ConsumeResult::TookMeanwhile(taken.clone())));
    assert_eq!(load_artifact(&store, second[0].id).await.consumption, None);
    accept_first(&store, &keyed_email("k"), T0).await;

    // What the caller knows, what is older and what is used does not count.
    let MarkAppliedResult::Done(_) = store.mark_artifact_applied(TEAM, first.id, "run-1", T0).await.unwrap() else {
        panic!("not applied")
    };
    assert!(matches!(consume(&store, second[0].id, knowing(0, &[]), T0).await, ConsumeResult::First(_)));
    let (_, third) = file_new(&store, &inbox, with_artifacts(new_message(Some(3), 3), &[(CODE, 3)]), T0).await;
    assert!(matches!(consume(&store, third[0].id, knowing(2, &[]), T0).await, ConsumeResult::First(_)));
    let (_, fourth) = file_new(&store, &inbox, with_artifacts(new_message(Some(4), 4), &[(CODE, 4)]), T0).await;
    let known = [second[0].id, third[0].id];
    assert!(matches!(consume(&store, fourth[0].id, knowing(0, &known), T0).await, ConsumeResult::First(_)));
}

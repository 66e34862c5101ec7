//! Promises about artifacts, each taken once, and about watches.

use mailonce_core::{
    artifact::{Applied, Artifact, ArtifactKind, Taken, Taking},
    event::Kind,
    id::{ApiKeyId, ArtifactId, WatchId},
    inbox::Inbox,
    limits,
    port::store::{Bound, Once},
    time::Time,
    watch::{Spent, Watch},
};
use uuid::Uuid;

use super::{
    Ledger, MINUTE, OTHER, SECOND, T0, TEAM, accepted, events, keyed, kinds, next_id, operation,
    post::{filed, from, holding, letter, open, passed, taking},
};

const CODE: ArtifactKind = ArtifactKind::Code;
const LINK: ArtifactKind = ArtifactKind::Link;

async fn the_artifact(store: &Ledger, id: ArtifactId) -> Artifact {
    store.artifact(TEAM, id).await.unwrap().unwrap()
}

/// A code in a new inbox.
async fn found(store: &Ledger) -> (Inbox, Artifact) {
    let inbox = open(store, "a@d.test").await;
    let (_, artifacts) = filed(store, &inbox, holding(letter(Some(1), 1), &[(CODE, 1)]), T0).await;
    (inbox, artifacts[0].clone())
}

pub(super) async fn artifacts_are_filed_with_their_message(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    let wanted = passed(holding(letter(Some(1), 1), &[(LINK, 1), (CODE, 2)]));
    let new = wanted.artifacts.clone();
    let (message, artifacts) = filed(&store, &inbox, wanted, T0).await;
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
            found: new.found.clone(),
            sender: "no-reply@sender.test".into(),
            found_at: T0,
            seq: 1,
            authenticated: true,
            consumed: None,
            applied_at: None,
        };
        assert_eq!(artifact, &expected);
        assert_eq!(the_artifact(&store, new.id).await, expected);
    }
    let told: Vec<_> = events(&store, TEAM).await.into_iter().map(|event| event.event).collect();
    let found = |n: usize| artifacts[n].told(Kind::ArtifactFound, T0);
    assert_eq!(told, [message.received(T0), found(0), found(1)]);
    assert_eq!(store.artifact(TEAM, ArtifactId(next_id(T0))).await.unwrap(), None);
}

pub(super) async fn the_same_value_within_an_hour_is_the_same_artifact(store: Ledger) {
    let (inbox, first) = found(&store).await;
    let soon = T0.plus(limits::SAME_VALUE_MS - 1);
    let again = passed(holding(letter(Some(2), 2), &[(CODE, 2), (CODE, 1)]));
    let (message, artifacts) = filed(&store, &inbox, again, soon).await;
    let expected = Artifact { rev: 2, seq: 2, authenticated: true, ..first.clone() };
    assert_eq!(artifacts[1], expected);
    assert_eq!(the_artifact(&store, first.id).await, expected);
    assert_eq!(message.head.artifacts, [(CODE, artifacts[0].id), (CODE, first.id)]);
    let told = kinds(&store).await;
    assert_eq!(told, ["message.received", "artifact.found", "message.received", "artifact.found"]);
    // Once authenticated it stays so.
    let (_, third) = filed(&store, &inbox, holding(letter(Some(3), 3), &[(CODE, 1)]), soon).await;
    assert!(third[0].authenticated && third[0].rev == 3);
}

pub(super) async fn another_hour_sender_kind_or_inbox_is_another_artifact(store: Ledger) {
    let (inbox, first) = found(&store).await;
    let mut ids = vec![first.id];
    let elsewhere = open(&store, "b@d.test").await;
    let late = T0.plus(limits::SAME_VALUE_MS);
    for (at, letter, now) in [
        (&inbox, holding(letter(Some(2), 2), &[(LINK, 1)]), T0),
        (&inbox, from(holding(letter(Some(3), 3), &[(CODE, 1)]), "other@sender.test"), T0),
        (&elsewhere, holding(letter(Some(4), 4), &[(CODE, 1)]), T0),
        (&inbox, holding(letter(Some(5), 5), &[(CODE, 1)]), late),
    ] {
        let (_, artifacts) = filed(&store, at, letter, now).await;
        assert!(!ids.contains(&artifacts[0].id));
        ids.push(artifacts[0].id);
    }
    // From now on the latest is the one that comes again.
    let (_, again) = filed(&store, &inbox, holding(letter(Some(6), 6), &[(CODE, 1)]), late).await;
    assert_eq!(again[0].id, ids[4]);
}

pub(super) async fn a_value_that_stands_twice_in_a_message_is_one_artifact(store: Ledger) {
    let inbox = open(&store, "a@d.test").await;
    let twice = holding(letter(Some(1), 1), &[(CODE, 1), (LINK, 1), (CODE, 1)]);
    let (message, artifacts) = filed(&store, &inbox, twice, T0).await;
    let kinds: Vec<_> = artifacts.iter().map(|artifact| artifact.kind).collect();
    assert_eq!((kinds, message.head.artifacts.len()), (vec![CODE, LINK], 2));
}

pub(super) async fn artifacts_are_listed_by_their_latest_message(store: Ledger) {
    let (inbox, first) = found(&store).await;
    let (_, second) = filed(&store, &inbox, holding(letter(Some(2), 2), &[(LINK, 2), (CODE, 3)]), T0).await;
    let (_, third) = filed(&store, &inbox, holding(letter(Some(3), 3), &[(CODE, 4)]), T0).await;
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
    // What comes again is among the latest.
    filed(&store, &inbox, holding(letter(Some(4), 4), &[(CODE, 1)]), T0).await;
    assert_eq!(listed(None, 0, 1).await, [first.id]);
    let found = store.artifacts(TEAM, inbox.id, None, 3, 10).await.unwrap();
    assert_eq!(found, [the_artifact(&store, first.id).await]);
}

async fn consume(store: &Ledger, id: ArtifactId, taking: Taking, now: Time) -> Taken {
    match store.consume(TEAM, id, taking, None, now).await.unwrap() {
        Once::Done(taken) => taken,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn an_artifact_is_taken_by_its_first_consumer(store: Ledger) {
    let (inbox, artifact) = found(&store).await;
    let Taken::First(taken) = consume(&store, artifact.id, taking("run-1"), T0).await else { panic!("not first") };
    assert_eq!(taken.clone(), {
        let mut wanted = artifact;
        assert!(wanted.take(taking("run-1"), T0));
        wanted
    });
    let later = T0.plus(SECOND);
    let other_key = Taking { by: ApiKeyId(Uuid::from_u128(9)), ..taking("run-1") };
    assert_eq!(consume(&store, taken.id, other_key, later).await, Taken::Again(taken.clone()));
    assert_eq!(consume(&store, taken.id, taking("run-2"), later).await, Taken::Gone(taken.clone()));
    let watched = Taking { watch: Some(WatchId(next_id(T0))), ..taking("run-1") };
    assert_eq!(consume(&store, taken.id, watched, later).await, Taken::Gone(taken.clone()));
    assert_eq!(the_artifact(&store, taken.id).await, taken);
    let told = events(&store, TEAM).await;
    assert_eq!(kinds(&store).await[2..], ["artifact.consumed"]);
    assert_eq!(told[2].event, taken.told(Kind::ArtifactConsumed, T0));
    // The same value again: still taken.
    let (_, again) = filed(&store, &inbox, holding(letter(Some(2), 2), &[(CODE, 1)]), later).await;
    assert!(matches!(consume(&store, again[0].id, taking("run-2"), later).await, Taken::Gone(_)));
    assert_eq!(consume(&store, ArtifactId(next_id(T0)), taking("run-1"), T0).await, Taken::Missing);
}

pub(super) async fn a_taking_under_an_operation_is_done_once(store: Ledger) {
    let (_, artifact) = found(&store).await;
    let under = |key: &str, digest| Some(operation(key, digest, T0));
    let take = async |purpose: &str, operation| {
        store.consume(TEAM, artifact.id, taking(purpose), operation, T0).await.unwrap()
    };
    assert!(matches!(take("run-1", under("k", 1)).await, Once::Done(Taken::First(_))));
    assert_eq!(take("run-1", under("k", 1)).await, Once::Repeated(b"answer 1".to_vec()));
    assert_eq!(take("run-1", under("k", 2)).await, Once::Mismatch(Bound::Operation { digest: [1; 32] }));
    assert!(matches!(take("run-1", under("again", 1)).await, Once::Done(Taken::Again(_))));
    assert_eq!(take("run-1", under("again", 1)).await, Once::Repeated(b"answer 1".to_vec()));
    // What was gone or missing binds no key.
    assert!(matches!(take("run-2", under("gone", 1)).await, Once::Done(Taken::Gone(_))));
    let nobody = store.consume(TEAM, ArtifactId(next_id(T0)), taking("x"), under("gone", 1), T0).await.unwrap();
    assert_eq!(nobody, Once::Done(Taken::Missing));
    accepted(&store, &keyed("gone"), T0).await;
}

pub(super) async fn only_its_consumer_says_that_it_was_used_and_once(store: Ledger) {
    let (_, artifact) = found(&store).await;
    let apply = async |purpose: &str, now| store.apply(TEAM, artifact.id, purpose, now).await.unwrap();
    assert_eq!(apply("run-1", T0).await, Applied::NotYours(artifact.clone()));
    let Taken::First(taken) = consume(&store, artifact.id, taking("run-1"), T0).await else { panic!("not first") };
    assert_eq!(apply("run-2", T0).await, Applied::NotYours(taken.clone()));
    let later = T0.plus(SECOND);
    let done = Artifact { rev: 3, applied_at: Some(later), ..taken };
    assert_eq!(apply("run-1", later).await, Applied::Done(done.clone()));
    assert_eq!(apply("run-1", T0.plus(MINUTE)).await, Applied::Done(done.clone()));
    assert_eq!(the_artifact(&store, artifact.id).await, done);
    assert_eq!(kinds(&store).await[2..], ["artifact.consumed", "artifact.applied"]);
    assert_eq!(store.apply(TEAM, ArtifactId(next_id(T0)), "run-1", T0).await.unwrap(), Applied::Missing);
}

fn watch(inbox: &Inbox, budget: u32) -> Watch {
    Watch {
        id: WatchId(next_id(T0)),
        team: TEAM,
        inbox: inbox.id,
        rev: 1,
        started_at: T0,
        after: 0,
        deadline: T0.plus(MINUTE),
        budget,
        spent: 0,
        require_auth: true,
    }
}

async fn begin(store: &Ledger, watch: &Watch) -> Option<Watch> {
    match store.create_watch(watch.clone(), None).await.unwrap() {
        Once::Done(begun) => begun,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn a_watch_begins_behind_the_latest_message(store: Ledger) {
    let (inbox, _) = found(&store).await;
    let wanted = watch(&inbox, 2);
    let begun = Watch { after: 1, ..wanted.clone() };
    assert_eq!(begin(&store, &wanted).await, Some(begun.clone()));
    filed(&store, &inbox, letter(Some(2), 2), T0).await;
    assert_eq!(begin(&store, &wanted).await, Some(begun.clone()), "begun twice is begun once");
    assert_eq!(store.watch_of(TEAM, wanted.id).await.unwrap(), Some(begun));
    assert_eq!(begin(&store, &watch(&inbox, 2)).await.unwrap().after, 2);
    let nowhere = Watch { inbox: mailonce_core::id::InboxId(next_id(T0)), ..watch(&inbox, 1) };
    let missing = store.create_watch(nowhere, Some(operation("w", 1, T0))).await.unwrap();
    assert_eq!(missing, Once::Done(None));
    let one = watch(&inbox, 1);
    let begun = store.create_watch(one.clone(), Some(operation("w", 1, T0))).await.unwrap();
    assert!(matches!(begun, Once::Done(Some(_))), "{begun:?}");
    let again = store.create_watch(watch(&inbox, 1), Some(operation("w", 1, T0))).await.unwrap();
    assert_eq!(again, Once::Repeated(b"answer 1".to_vec()));
}

pub(super) async fn a_budget_is_spent_until_nothing_is_left(store: Ledger) {
    let (inbox, _) = found(&store).await;
    let first = begin(&store, &watch(&inbox, 2)).await.unwrap();
    let spend = async |now| match store.spend(TEAM, first.id, None, now).await.unwrap() {
        Once::Done(spent) => spent,
        other => panic!("{other:?}"),
    };
    let once = Watch { rev: 2, spent: 1, ..first.clone() };
    assert_eq!(spend(T0).await, Spent::Done(once.clone()));
    assert_eq!(spend(T0.plus(MINUTE)).await, Spent::Over(once));
    let twice = Watch { rev: 3, spent: 2, ..first.clone() };
    assert_eq!(spend(T0).await, Spent::Done(twice.clone()));
    assert_eq!(spend(T0).await, Spent::Nothing(twice.clone()));
    assert_eq!(store.watch_of(TEAM, first.id).await.unwrap(), Some(twice));
}

pub(super) async fn a_spending_under_an_operation_is_done_once(store: Ledger) {
    let (inbox, _) = found(&store).await;
    let watch = begin(&store, &watch(&inbox, 1)).await.unwrap();
    let spend = async |key: &str| store.spend(TEAM, watch.id, Some(operation(key, 1, T0)), T0).await.unwrap();
    assert!(matches!(spend("one").await, Once::Done(Spent::Done(_))));
    assert_eq!(spend("one").await, Once::Repeated(b"answer 1".to_vec()));
    assert!(matches!(spend("two").await, Once::Done(Spent::Nothing(_))));
    let nobody = store.spend(TEAM, WatchId(next_id(T0)), Some(operation("two", 1, T0)), T0).await.unwrap();
    assert_eq!(nobody, Once::Done(Spent::Missing));
    accepted(&store, &keyed("two"), T0).await;
}

pub(super) async fn artifacts_and_watches_of_another_team_are_not_there(store: Ledger) {
    let (inbox, artifact) = found(&store).await;
    let ours = begin(&store, &watch(&inbox, 1)).await.unwrap();
    assert_eq!(store.artifact(OTHER, artifact.id).await.unwrap(), None);
    assert!(store.artifacts(OTHER, inbox.id, None, 0, 10).await.unwrap().is_empty());
    let taken = store.consume(OTHER, artifact.id, taking("x"), None, T0).await.unwrap();
    assert_eq!(taken, Once::Done(Taken::Missing));
    assert_eq!(store.apply(OTHER, artifact.id, "x", T0).await.unwrap(), Applied::Missing);
    assert_eq!(store.watch_of(OTHER, ours.id).await.unwrap(), None);
    assert_eq!(store.spend(OTHER, ours.id, None, T0).await.unwrap(), Once::Done(Spent::Missing));
    let theirs = Watch { team: OTHER, ..watch(&inbox, 1) };
    assert_eq!(begin(&store, &theirs).await, None);
    assert_eq!(the_artifact(&store, artifact.id).await, artifact);
    assert_eq!(store.watch_of(TEAM, ours.id).await.unwrap(), Some(ours));
}

pub(super) async fn a_removed_inbox_ends_what_was_found_and_watched_in_it(store: Ledger) {
    let (inbox, artifact) = found(&store).await;
    let ours = begin(&store, &watch(&inbox, 1)).await.unwrap();
    store.remove_inbox(TEAM, inbox.id, T0).await.unwrap().unwrap();
    assert_eq!(consume(&store, artifact.id, taking("run-1"), T0).await, Taken::Missing);
    assert_eq!(store.apply(TEAM, artifact.id, "run-1", T0).await.unwrap(), Applied::Missing);
    assert_eq!(store.watch_of(TEAM, ours.id).await.unwrap(), None);
    assert_eq!(store.spend(TEAM, ours.id, None, T0).await.unwrap(), Once::Done(Spent::Missing));
    assert_eq!(begin(&store, &watch(&inbox, 1)).await, None);
}

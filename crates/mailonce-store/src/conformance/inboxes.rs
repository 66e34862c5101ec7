//! Promises about inboxes and the names by which they are found.

use mailonce_core::{
    id::InboxId,
    inbox::{AboutInbox, Inbox, InboxChange, InboxEdit, InboxMade},
    port::store::{Bound, Once},
    time::Time,
};

use super::{
    Ledger, OTHER, SECOND, T0, TEAM, accepted, keyed, next_id, operation,
    post::{at, catching, change, edit, inbox, made, make, open, whose},
};

fn catch_all() -> AboutInbox {
    AboutInbox { catch_all: true, ..AboutInbox::default() }
}

pub(super) async fn an_inbox_is_read_back_whole(store: Ledger) {
    let about = AboutInbox {
        agent: Some("signup \"bot\"".into()),
        name: Some("Ünï".into()),
        expires_at: Some(Time(T0.0 + 7)),
        catch_all: true,
        link_domains: vec!["shop.test".into()],
        caps: Some(mailonce_core::conversation::caps::Caps::default()),
        answers_soft: true,
        says_automatic: true,
        metadata: [("k".to_owned(), "v".to_owned())].into(),
        changed_at: Some(Time(T0.0 + 9)),
    };
    let wanted = Inbox { client_id: Some("ü-1".into()), about, ..inbox("a@d.test") };
    assert_eq!(made(&store, &wanted).await, wanted);
    assert_eq!(store.inbox(TEAM, wanted.id).await.unwrap().as_ref(), Some(&wanted));
    assert_eq!(store.inbox_at(&["a@d.test".into()]).await.unwrap().as_ref(), Some(&wanted));
    let plain = open(&store, "b@d.test").await;
    assert_eq!(store.inbox(TEAM, plain.id).await.unwrap(), Some(plain));
    assert_eq!(store.inbox(TEAM, InboxId(next_id(T0))).await.unwrap(), None);
}

pub(super) async fn an_inbox_is_found_at_the_closest_of_its_places(store: Ledger) {
    assert_eq!(at(&store, "a@d.test").await, None);
    let all = made(&store, &catching(inbox("all@d.test"))).await;
    assert_eq!(at(&store, "a+x@d.test").await, Some(all.id));
    let plain = open(&store, "a@d.test").await;
    assert_eq!(at(&store, "a+x@d.test").await, Some(plain.id));
    let tagged = open(&store, "a+x@d.test").await;
    assert_eq!(at(&store, "a+x@d.test").await, Some(tagged.id));
    assert_eq!(at(&store, "a+y@d.test").await, Some(plain.id));
    assert_eq!(at(&store, "a@e.test").await, None);
    assert_eq!(store.inbox_at(&[]).await.unwrap(), None);
}

pub(super) async fn an_address_is_taken_once_in_all_teams(store: Ledger) {
    open(&store, "a@d.test").await;
    assert_eq!(make(&store, &inbox("a@d.test")).await, InboxMade::Taken);
    assert_eq!(make(&store, &Inbox { team: OTHER, ..inbox("a@d.test") }).await, InboxMade::Taken);
    made(&store, &catching(inbox("b@d.test"))).await;
    let other = catching(Inbox { team: OTHER, ..inbox("c@d.test") });
    assert_eq!(make(&store, &other).await, InboxMade::Taken);
    assert_eq!(store.inbox(OTHER, other.id).await.unwrap(), None);
    assert_eq!(at(&store, "c@d.test").await, at(&store, "b@d.test").await);
    made(&store, &Inbox { team: OTHER, ..inbox("c@d.test") }).await;
}

pub(super) async fn a_client_id_makes_an_inbox_once_in_its_team(store: Ledger) {
    let named = |address: &str| Inbox { client_id: Some("c".into()), ..inbox(address) };
    let first = made(&store, &named("a@d.test")).await;
    assert_eq!(make(&store, &named("b@d.test")).await, InboxMade::Before(first.clone()));
    assert_eq!(at(&store, "b@d.test").await, None);
    made(&store, &Inbox { team: OTHER, ..named("b@d.test") }).await;
    store.remove_inbox(TEAM, first.id, T0).await.unwrap().unwrap();
    made(&store, &named("c@d.test")).await;
}

pub(super) async fn an_inbox_made_twice_is_the_same_inbox(store: Ledger) {
    let (plain, named) = (inbox("a@d.test"), Inbox { client_id: Some("c".into()), ..inbox("b@d.test") });
    for wanted in [&plain, &named] {
        assert_eq!(make(&store, wanted).await, InboxMade::Made(wanted.clone()));
        assert_eq!(make(&store, wanted).await, InboxMade::Made(wanted.clone()));
    }
    assert_eq!(store.inboxes(TEAM, None, 10).await.unwrap(), [named, plain]);
}

pub(super) async fn a_repeated_making_of_an_inbox_makes_no_other(store: Ledger) {
    let under = |digest| Some(operation("make", digest, T0));
    let (one, two) = (inbox("a@d.test"), inbox("b@d.test"));
    assert_eq!(store.create_inbox(one.clone(), under(1)).await.unwrap(), Once::Done(InboxMade::Made(one)));

    let again = store.create_inbox(two.clone(), under(1)).await.unwrap();
    let other = store.create_inbox(two, under(2)).await.unwrap();

    assert_eq!(again, Once::Repeated(b"answer 1".to_vec()));
    assert_eq!(other, Once::Mismatch(Bound::Operation { digest: [1; 32] }));
    assert_eq!(at(&store, "b@d.test").await, None);
}

pub(super) async fn an_inbox_that_was_not_made_or_changed_binds_no_key(store: Ledger) {
    let under = || Some(operation("k", 1, T0));
    let first = made(&store, &Inbox { client_id: Some("c".into()), ..inbox("a@d.test") }).await;
    let again = Inbox { client_id: Some("c".into()), ..inbox("b@d.test") };
    let before = store.create_inbox(again, under()).await.unwrap();
    assert_eq!(before, Once::Done(InboxMade::Before(first.clone())));
    let taken = store.create_inbox(inbox("a@d.test"), under()).await.unwrap();
    assert_eq!(taken, Once::Done(InboxMade::Taken));
    let stale = InboxEdit { rev: 9, ..edit(&first, "a@d.test", catch_all()) };
    let stale = store.change_inbox(stale, under(), T0).await.unwrap();
    assert_eq!(stale, Once::Done(InboxChange::Stale(first)));
    accepted(&store, &keyed("k"), T0).await;
}

pub(super) async fn inboxes_are_listed_newest_first_in_pages(store: Ledger) {
    let mut all = Vec::new();
    for number in 0..5 {
        all.push(open(&store, &format!("{number}@d.test")).await);
        made(&store, &Inbox { team: OTHER, ..inbox(&format!("{number}@e.test")) }).await;
    }
    let gone = all.remove(2);
    store.remove_inbox(TEAM, gone.id, T0).await.unwrap().unwrap();
    all.reverse();
    let (first, second) = all.split_at(2);
    assert_eq!(store.inboxes(TEAM, None, 2).await.unwrap(), first);
    assert_eq!(store.inboxes(TEAM, Some(first[1].id), 9).await.unwrap(), second);
}

pub(super) async fn an_inbox_is_changed_only_as_it_was_seen(store: Ledger) {
    let first = open(&store, "a@d.test").await;
    let about = AboutInbox { agent: Some("bot".into()), ..AboutInbox::default() };
    let second = Inbox { rev: 2, about: about.clone(), ..first.clone() };
    assert_eq!(change(&store, edit(&first, "a@d.test", about)).await, InboxChange::Changed(second.clone()));
    let late = edit(&first, "b@d.test", AboutInbox::default());
    assert_eq!(change(&store, late).await, InboxChange::Stale(second.clone()));
    assert_eq!(store.inbox(TEAM, first.id).await.unwrap(), Some(second.clone()));
    let nobody = InboxEdit { id: InboxId(next_id(T0)), ..edit(&second, "b@d.test", AboutInbox::default()) };
    assert_eq!(change(&store, nobody).await, InboxChange::Missing);
    assert_eq!(at(&store, "b@d.test").await, None);
}

pub(super) async fn an_old_address_reaches_nobody_and_stays_taken(store: Ledger) {
    made(&store, &catching(Inbox { team: OTHER, ..inbox("all@d.test") })).await;
    let first = open(&store, "a@d.test").await;
    let moved = change(&store, edit(&first, "b@d.test", AboutInbox::default())).await;
    let InboxChange::Changed(moved) = moved else { panic!("{moved:?}") };
    assert_eq!(at(&store, "b@d.test").await, Some(first.id));
    // Not even the catch-all: who writes to an old address must not reach a stranger.
    assert_eq!(at(&store, "a@d.test").await, None);
    assert_eq!(at(&store, "a+x@d.test").await, None);
    assert_eq!(make(&store, &inbox("a@d.test")).await, InboxMade::Taken);
    let other = open(&store, "c@d.test").await;
    assert_eq!(change(&store, edit(&other, "a@d.test", AboutInbox::default())).await, InboxChange::Taken);
    let back = change(&store, edit(&moved, "a@d.test", AboutInbox::default())).await;
    assert!(matches!(back, InboxChange::Changed(_)), "its own old address is no stranger's: {back:?}");
    assert_eq!((at(&store, "a@d.test").await, at(&store, "b@d.test").await), (Some(first.id), None));
}

pub(super) async fn a_catch_all_is_free_again_when_its_inbox_lets_go_of_it(store: Ledger) {
    let first = made(&store, &catching(inbox("a@d.test"))).await;
    let other = made(&store, &Inbox { team: OTHER, ..inbox("b@d.test") }).await;
    assert_eq!(change(&store, edit(&other, "b@d.test", catch_all())).await, InboxChange::Taken);
    assert_eq!(store.inbox(OTHER, other.id).await.unwrap().as_ref(), Some(&other));

    let moved = change(&store, edit(&first, "a@e.test", catch_all())).await;
    let InboxChange::Changed(moved) = moved else { panic!("{moved:?}") };
    assert_eq!((at(&store, "x@d.test").await, at(&store, "x@e.test").await), (None, Some(first.id)));
    let taken = change(&store, edit(&other, "b@d.test", catch_all())).await;
    assert!(matches!(taken, InboxChange::Changed(_)), "{taken:?}");
    assert_eq!(at(&store, "x@d.test").await, Some(other.id));

    let closed = change(&store, edit(&moved, "a@e.test", AboutInbox::default())).await;
    assert!(matches!(closed, InboxChange::Changed(_)), "{closed:?}");
    assert_eq!(at(&store, "x@e.test").await, None);
    made(&store, &catching(inbox("c@e.test"))).await;
}

pub(super) async fn a_change_to_a_taken_name_changes_nothing(store: Ledger) {
    made(&store, &catching(inbox("all@e.test"))).await;
    let first = made(&store, &catching(inbox("a@d.test"))).await;
    // The address is free, the catch-all of its domain is not.
    assert_eq!(change(&store, edit(&first, "a@e.test", catch_all())).await, InboxChange::Taken);
    assert_eq!(store.inbox(TEAM, first.id).await.unwrap(), Some(first.clone()));
    assert_eq!((at(&store, "a@d.test").await, at(&store, "x@d.test").await), (Some(first.id), Some(first.id)));
    open(&store, "a@e.test").await;
}

pub(super) async fn a_repeated_change_of_an_inbox_changes_nothing(store: Ledger) {
    let first = open(&store, "a@d.test").await;
    let under = |digest| Some(operation("change", digest, T0));
    let one = store.change_inbox(edit(&first, "b@d.test", catch_all()), under(1), T0).await.unwrap();
    let Once::Done(InboxChange::Changed(second)) = one else { panic!("{one:?}") };

    let later = Time(T0.0 + SECOND);
    let again = store.change_inbox(edit(&second, "c@d.test", catch_all()), under(1), later).await.unwrap();
    let other = store.change_inbox(edit(&second, "c@d.test", catch_all()), under(2), later).await.unwrap();

    assert_eq!(again, Once::Repeated(b"answer 1".to_vec()));
    assert_eq!(other, Once::Mismatch(Bound::Operation { digest: [1; 32] }));
    assert_eq!(store.inbox(TEAM, first.id).await.unwrap(), Some(second));
}

pub(super) async fn a_removed_inbox_is_nowhere_and_its_names_stay_taken(store: Ledger) {
    let first = made(&store, &catching(inbox("a@d.test"))).await;
    assert_eq!(store.remove_inbox(TEAM, first.id, T0).await.unwrap(), Some(first.clone()));
    assert_eq!(store.remove_inbox(TEAM, first.id, T0).await.unwrap(), None);
    assert_eq!(store.inbox(TEAM, first.id).await.unwrap(), None);
    assert_eq!((at(&store, "a@d.test").await, at(&store, "x@d.test").await), (None, None));
    assert_eq!(change(&store, edit(&first, "b@d.test", AboutInbox::default())).await, InboxChange::Missing);
    for address in ["a@d.test", "b@d.test"] {
        assert_eq!(make(&store, &catching(inbox(address))).await, InboxMade::Taken);
    }
    let swept = store.sweep(100, T0).await.unwrap();
    assert_eq!(swept.deliveries, 0);
    assert_eq!(make(&store, &inbox("a@d.test")).await, InboxMade::Taken);
    open(&store, "b@d.test").await;
}

pub(super) async fn an_address_stays_its_teams_when_it_reaches_nobody(store: Ledger) {
    assert_eq!(whose(&store, "a@d.test").await, None);
    made(&store, &catching(Inbox { team: OTHER, ..inbox("all@d.test") })).await;
    let (moved, removed) = (open(&store, "a@d.test").await, open(&store, "c@d.test").await);
    let changed = change(&store, edit(&moved, "b@d.test", AboutInbox::default())).await;
    assert!(matches!(changed, InboxChange::Changed(_)), "{changed:?}");
    store.remove_inbox(TEAM, removed.id, T0).await.unwrap().unwrap();
    let _swept = store.sweep(100, T0).await.unwrap();
    for address in ["a@d.test", "a+x@d.test", "b@d.test", "c@d.test"] {
        assert_eq!(whose(&store, address).await, Some(TEAM), "{address}");
    }
    for address in ["all@d.test", "x@d.test"] {
        assert_eq!(whose(&store, address).await, Some(OTHER), "{address}");
    }
    assert_eq!(store.team_at(&[]).await.unwrap(), None);
}

pub(super) async fn inboxes_of_another_team_are_not_there(store: Ledger) {
    let ours = open(&store, "a@d.test").await;
    assert_eq!(store.inbox(OTHER, ours.id).await.unwrap(), None);
    assert!(store.inboxes(OTHER, None, 10).await.unwrap().is_empty());
    let theirs = InboxEdit { team: OTHER, ..edit(&ours, "b@d.test", AboutInbox::default()) };
    assert_eq!(change(&store, theirs).await, InboxChange::Missing);
    assert_eq!(store.remove_inbox(OTHER, ours.id, T0).await.unwrap(), None);
    assert_eq!(store.inbox(TEAM, ours.id).await.unwrap(), Some(ours));
}

//! Promises about inboxes and the addresses that reach them.

use mailonce_core::{
    id::InboxId,
    inbox::{CreateInboxResult, Inbox, InboxChangeResult, InboxEdit, InboxRetention, InboxSettings},
    operation::IdempotentResult,
    outbound::key_binding::KeyBinding,
    time::Time,
};

use crate::conformance::{
    OTHER_TEAM, SECOND, T0, TEAM, TestStore, accept_first,
    fixtures::inbound::{
        as_catch_all, change_inbox, create_inbox, created_inbox, inbox_edit, inbox_id_at, new_inbox, open_inbox,
        team_at,
    },
    keyed_email, new_operation, next_id,
};

fn catch_all() -> InboxSettings {
    InboxSettings { catch_all: true, ..InboxSettings::default() }
}

pub(super) async fn an_inbox_is_read_back_unchanged(store: TestStore) {
    let settings = InboxSettings {
        agent: Some("signup \"bot\"".into()),
        name: Some("Ünï".into()),
        expires_at: Some(Time(T0.0 + 7)),
        catch_all: true,
        allowed_link_domains: vec!["shop.test".into()],
        caps: Some(mailonce_core::conversation::caps::ReplyCaps::default()),
        reply_to_likely_automatic: true,
        mark_auto_submitted: true,
        retention: InboxRetention { raw_ms: Some(3_600_000) },
        metadata: [("k".to_owned(), "v".to_owned())].into(),
        changed_at: Some(Time(T0.0 + 9)),
    };
    let wanted = Inbox { client_id: Some("ü-1".into()), settings, ..new_inbox("a@d.test") };
    assert_eq!(created_inbox(&store, &wanted).await, wanted);
    assert_eq!(store.inbox(TEAM, wanted.id).await.unwrap().as_ref(), Some(&wanted));
    assert_eq!(store.inbox_by_address(&["a@d.test".into()]).await.unwrap().as_ref(), Some(&wanted));
    let plain = open_inbox(&store, "b@d.test").await;
    assert_eq!(store.inbox(TEAM, plain.id).await.unwrap(), Some(plain));
    assert_eq!(store.inbox(TEAM, InboxId(next_id(T0))).await.unwrap(), None);
}

pub(super) async fn an_inbox_is_found_by_exact_then_plain_then_catch_all_address(store: TestStore) {
    assert_eq!(inbox_id_at(&store, "a@d.test").await, None);
    let all = created_inbox(&store, &as_catch_all(new_inbox("all@d.test"))).await;
    assert_eq!(inbox_id_at(&store, "a+x@d.test").await, Some(all.id));
    let plain = open_inbox(&store, "a@d.test").await;
    assert_eq!(inbox_id_at(&store, "a+x@d.test").await, Some(plain.id));
    let tagged = open_inbox(&store, "a+x@d.test").await;
    assert_eq!(inbox_id_at(&store, "a+x@d.test").await, Some(tagged.id));
    assert_eq!(inbox_id_at(&store, "a+y@d.test").await, Some(plain.id));
    assert_eq!(inbox_id_at(&store, "a@e.test").await, None);
    assert_eq!(store.inbox_by_address(&[]).await.unwrap(), None);
}

pub(super) async fn an_address_is_unique_across_teams(store: TestStore) {
    open_inbox(&store, "a@d.test").await;
    assert_eq!(create_inbox(&store, &new_inbox("a@d.test")).await, CreateInboxResult::AddressTaken);
    assert_eq!(
        create_inbox(&store, &Inbox { team: OTHER_TEAM, ..new_inbox("a@d.test") }).await,
        CreateInboxResult::AddressTaken
    );
    created_inbox(&store, &as_catch_all(new_inbox("b@d.test"))).await;
    let other = as_catch_all(Inbox { team: OTHER_TEAM, ..new_inbox("c@d.test") });
    assert_eq!(create_inbox(&store, &other).await, CreateInboxResult::AddressTaken);
    assert_eq!(store.inbox(OTHER_TEAM, other.id).await.unwrap(), None);
    assert_eq!(inbox_id_at(&store, "c@d.test").await, inbox_id_at(&store, "b@d.test").await);
    created_inbox(&store, &Inbox { team: OTHER_TEAM, ..new_inbox("c@d.test") }).await;
}

pub(super) async fn a_client_id_creates_one_inbox_per_team(store: TestStore) {
    let named = |address: &str| Inbox { client_id: Some("c".into()), ..new_inbox(address) };
    let first = created_inbox(&store, &named("a@d.test")).await;
    assert_eq!(create_inbox(&store, &named("b@d.test")).await, CreateInboxResult::AlreadyExists(first.clone()));
    assert_eq!(inbox_id_at(&store, "b@d.test").await, None);
    created_inbox(&store, &Inbox { team: OTHER_TEAM, ..named("b@d.test") }).await;
    store.remove_inbox(TEAM, first.id, T0).await.unwrap().unwrap();
    created_inbox(&store, &named("c@d.test")).await;
}

pub(super) async fn creating_an_inbox_twice_creates_it_once(store: TestStore) {
    let (plain, named) = (new_inbox("a@d.test"), Inbox { client_id: Some("c".into()), ..new_inbox("b@d.test") });
    for wanted in [&plain, &named] {
        assert_eq!(create_inbox(&store, wanted).await, CreateInboxResult::Created(wanted.clone()));
        assert_eq!(create_inbox(&store, wanted).await, CreateInboxResult::Created(wanted.clone()));
    }
    assert_eq!(store.inboxes(TEAM, None, 10).await.unwrap(), [named, plain]);
}

pub(super) async fn replaying_an_inbox_creation_creates_no_second_inbox(store: TestStore) {
    let operation = |digest| Some(new_operation("make", digest, T0));
    let (one, two) = (new_inbox("a@d.test"), new_inbox("b@d.test"));
    assert_eq!(
        store.create_inbox(one.clone(), operation(1)).await.unwrap(),
        IdempotentResult::Done(CreateInboxResult::Created(one))
    );

    let again = store.create_inbox(two.clone(), operation(1)).await.unwrap();
    let other = store.create_inbox(two, operation(2)).await.unwrap();

    assert_eq!(again, IdempotentResult::Replayed(b"answer 1".to_vec()));
    assert_eq!(other, IdempotentResult::KeyMismatch(KeyBinding::Operation { digest: [1; 32] }));
    assert_eq!(inbox_id_at(&store, "b@d.test").await, None);
}

pub(super) async fn a_refused_inbox_creation_or_change_binds_no_key(store: TestStore) {
    let operation = || Some(new_operation("k", 1, T0));
    let first = created_inbox(&store, &Inbox { client_id: Some("c".into()), ..new_inbox("a@d.test") }).await;
    let again = Inbox { client_id: Some("c".into()), ..new_inbox("b@d.test") };
    let before = store.create_inbox(again, operation()).await.unwrap();
    assert_eq!(before, IdempotentResult::Done(CreateInboxResult::AlreadyExists(first.clone())));
    let taken = store.create_inbox(new_inbox("a@d.test"), operation()).await.unwrap();
    assert_eq!(taken, IdempotentResult::Done(CreateInboxResult::AddressTaken));
    let stale = InboxEdit { rev: 9, ..inbox_edit(&first, "a@d.test", catch_all()) };
    let stale = store.change_inbox(stale, operation(), T0).await.unwrap();
    assert_eq!(stale, IdempotentResult::Done(InboxChangeResult::Stale(first)));
    accept_first(&store, &keyed_email("k"), T0).await;
}

pub(super) async fn inboxes_are_listed_newest_first_in_pages(store: TestStore) {
    let mut all = Vec::new();
    for number in 0..5 {
        all.push(open_inbox(&store, &format!("{number}@d.test")).await);
        created_inbox(&store, &Inbox { team: OTHER_TEAM, ..new_inbox(&format!("{number}@e.test")) }).await;
    }
    let gone = all.remove(2);
    store.remove_inbox(TEAM, gone.id, T0).await.unwrap().unwrap();
    all.reverse();
    let (first, second) = all.split_at(2);
    assert_eq!(store.inboxes(TEAM, None, 2).await.unwrap(), first);
    assert_eq!(store.inboxes(TEAM, Some(first[1].id), 9).await.unwrap(), second);
}

pub(super) async fn an_inbox_change_needs_the_current_rev(store: TestStore) {
    let first = open_inbox(&store, "a@d.test").await;
    let settings = InboxSettings { agent: Some("bot".into()), ..InboxSettings::default() };
    let second = Inbox { rev: 2, settings: settings.clone(), ..first.clone() };
    assert_eq!(
        change_inbox(&store, inbox_edit(&first, "a@d.test", settings)).await,
        InboxChangeResult::Changed(second.clone())
    );
    let late = inbox_edit(&first, "b@d.test", InboxSettings::default());
    assert_eq!(change_inbox(&store, late).await, InboxChangeResult::Stale(second.clone()));
    assert_eq!(store.inbox(TEAM, first.id).await.unwrap(), Some(second.clone()));
    let missing = InboxEdit { id: InboxId(next_id(T0)), ..inbox_edit(&second, "b@d.test", InboxSettings::default()) };
    assert_eq!(change_inbox(&store, missing).await, InboxChangeResult::Missing);
    assert_eq!(inbox_id_at(&store, "b@d.test").await, None);
}

pub(super) async fn a_former_address_receives_nothing_and_stays_reserved(store: TestStore) {
    created_inbox(&store, &as_catch_all(Inbox { team: OTHER_TEAM, ..new_inbox("all@d.test") })).await;
    let first = open_inbox(&store, "a@d.test").await;
    let moved = change_inbox(&store, inbox_edit(&first, "b@d.test", InboxSettings::default())).await;
    let InboxChangeResult::Changed(moved) = moved else { panic!("{moved:?}") };
    assert_eq!(inbox_id_at(&store, "b@d.test").await, Some(first.id));
    // Not even the catch-all gets it: mail to a former address must not reach another owner.
    assert_eq!(inbox_id_at(&store, "a@d.test").await, None);
    assert_eq!(inbox_id_at(&store, "a+x@d.test").await, None);
    assert_eq!(create_inbox(&store, &new_inbox("a@d.test")).await, CreateInboxResult::AddressTaken);
    let other = open_inbox(&store, "c@d.test").await;
    assert_eq!(
        change_inbox(&store, inbox_edit(&other, "a@d.test", InboxSettings::default())).await,
        InboxChangeResult::AddressTaken
    );
    let back = change_inbox(&store, inbox_edit(&moved, "a@d.test", InboxSettings::default())).await;
    assert!(matches!(back, InboxChangeResult::Changed(_)), "an inbox may return to its former address: {back:?}");
    assert_eq!((inbox_id_at(&store, "a@d.test").await, inbox_id_at(&store, "b@d.test").await), (Some(first.id), None));
}

pub(super) async fn a_catch_all_is_free_again_when_its_inbox_drops_it(store: TestStore) {
    let first = created_inbox(&store, &as_catch_all(new_inbox("a@d.test"))).await;
    let other = created_inbox(&store, &Inbox { team: OTHER_TEAM, ..new_inbox("b@d.test") }).await;
    assert_eq!(
        change_inbox(&store, inbox_edit(&other, "b@d.test", catch_all())).await,
        InboxChangeResult::AddressTaken
    );
    assert_eq!(store.inbox(OTHER_TEAM, other.id).await.unwrap().as_ref(), Some(&other));

    let moved = change_inbox(&store, inbox_edit(&first, "a@e.test", catch_all())).await;
    let InboxChangeResult::Changed(moved) = moved else { panic!("{moved:?}") };
    assert_eq!((inbox_id_at(&store, "x@d.test").await, inbox_id_at(&store, "x@e.test").await), (None, Some(first.id)));
    let taken = change_inbox(&store, inbox_edit(&other, "b@d.test", catch_all())).await;
    assert!(matches!(taken, InboxChangeResult::Changed(_)), "{taken:?}");
    assert_eq!(inbox_id_at(&store, "x@d.test").await, Some(other.id));

    let closed = change_inbox(&store, inbox_edit(&moved, "a@e.test", InboxSettings::default())).await;
    assert!(matches!(closed, InboxChangeResult::Changed(_)), "{closed:?}");
    assert_eq!(inbox_id_at(&store, "x@e.test").await, None);
    created_inbox(&store, &as_catch_all(new_inbox("c@e.test"))).await;
}

pub(super) async fn a_change_to_a_taken_address_changes_nothing(store: TestStore) {
    created_inbox(&store, &as_catch_all(new_inbox("all@e.test"))).await;
    let first = created_inbox(&store, &as_catch_all(new_inbox("a@d.test"))).await;
    // The address is free, the catch-all of its domain is not.
    assert_eq!(
        change_inbox(&store, inbox_edit(&first, "a@e.test", catch_all())).await,
        InboxChangeResult::AddressTaken
    );
    assert_eq!(store.inbox(TEAM, first.id).await.unwrap(), Some(first.clone()));
    assert_eq!(
        (inbox_id_at(&store, "a@d.test").await, inbox_id_at(&store, "x@d.test").await),
        (Some(first.id), Some(first.id))
    );
    open_inbox(&store, "a@e.test").await;
}

pub(super) async fn replaying_an_inbox_change_changes_nothing(store: TestStore) {
    let first = open_inbox(&store, "a@d.test").await;
    let operation = |digest| Some(new_operation("change", digest, T0));
    let one = store.change_inbox(inbox_edit(&first, "b@d.test", catch_all()), operation(1), T0).await.unwrap();
    let IdempotentResult::Done(InboxChangeResult::Changed(second)) = one else { panic!("{one:?}") };

    let later = Time(T0.0 + SECOND);
    let again = store.change_inbox(inbox_edit(&second, "c@d.test", catch_all()), operation(1), later).await.unwrap();
    let other = store.change_inbox(inbox_edit(&second, "c@d.test", catch_all()), operation(2), later).await.unwrap();

    assert_eq!(again, IdempotentResult::Replayed(b"answer 1".to_vec()));
    assert_eq!(other, IdempotentResult::KeyMismatch(KeyBinding::Operation { digest: [1; 32] }));
    assert_eq!(store.inbox(TEAM, first.id).await.unwrap(), Some(second));
}

pub(super) async fn a_removed_inbox_is_not_found_and_its_addresses_stay_reserved(store: TestStore) {
    let first = created_inbox(&store, &as_catch_all(new_inbox("a@d.test"))).await;
    assert_eq!(store.remove_inbox(TEAM, first.id, T0).await.unwrap(), Some(first.clone()));
    assert_eq!(store.remove_inbox(TEAM, first.id, T0).await.unwrap(), None);
    assert_eq!(store.inbox(TEAM, first.id).await.unwrap(), None);
    assert_eq!((inbox_id_at(&store, "a@d.test").await, inbox_id_at(&store, "x@d.test").await), (None, None));
    assert_eq!(
        change_inbox(&store, inbox_edit(&first, "b@d.test", InboxSettings::default())).await,
        InboxChangeResult::Missing
    );
    for address in ["a@d.test", "b@d.test"] {
        assert_eq!(create_inbox(&store, &as_catch_all(new_inbox(address))).await, CreateInboxResult::AddressTaken);
    }
    let swept = store.sweep(100, T0).await.unwrap();
    assert_eq!(swept.deliveries, 0);
    assert_eq!(create_inbox(&store, &new_inbox("a@d.test")).await, CreateInboxResult::AddressTaken);
    open_inbox(&store, "b@d.test").await;
}

pub(super) async fn a_former_address_still_belongs_to_its_team(store: TestStore) {
    assert_eq!(team_at(&store, "a@d.test").await, None);
    created_inbox(&store, &as_catch_all(Inbox { team: OTHER_TEAM, ..new_inbox("all@d.test") })).await;
    let (moved, removed) = (open_inbox(&store, "a@d.test").await, open_inbox(&store, "c@d.test").await);
    let changed = change_inbox(&store, inbox_edit(&moved, "b@d.test", InboxSettings::default())).await;
    assert!(matches!(changed, InboxChangeResult::Changed(_)), "{changed:?}");
    store.remove_inbox(TEAM, removed.id, T0).await.unwrap().unwrap();
    let _swept = store.sweep(100, T0).await.unwrap();
    for address in ["a@d.test", "a+x@d.test", "b@d.test", "c@d.test"] {
        assert_eq!(team_at(&store, address).await, Some(TEAM), "{address}");
    }
    for address in ["all@d.test", "x@d.test"] {
        assert_eq!(team_at(&store, address).await, Some(OTHER_TEAM), "{address}");
    }
    assert_eq!(store.team_by_address(&[]).await.unwrap(), None);
}

pub(super) async fn inboxes_of_another_team_are_not_found(store: TestStore) {
    let ours = open_inbox(&store, "a@d.test").await;
    assert_eq!(store.inbox(OTHER_TEAM, ours.id).await.unwrap(), None);
    assert!(store.inboxes(OTHER_TEAM, None, 10).await.unwrap().is_empty());
    let theirs = InboxEdit { team: OTHER_TEAM, ..inbox_edit(&ours, "b@d.test", InboxSettings::default()) };
    assert_eq!(change_inbox(&store, theirs).await, InboxChangeResult::Missing);
    assert_eq!(store.remove_inbox(OTHER_TEAM, ours.id, T0).await.unwrap(), None);
    assert_eq!(store.inbox(TEAM, ours.id).await.unwrap(), Some(ours));
}

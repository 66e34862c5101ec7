//! Promises about records: the small things a team owns that are not mail.

use mailonce_core::{
    event::{Event, Kind, NewEvent},
    id::TeamId,
    port::store::{Bound, Once},
    record::{Created, Record, RecordChange, RecordEdit, RecordKind},
    time::Time,
};
use uuid::Uuid;

use super::{Ledger, OTHER, SECOND, T0, TEAM, accepted, all_at_once, events, keyed, next_id, operation};

const KINDS: [RecordKind; 3] = [RecordKind::Domain, RecordKind::Suppression, RecordKind::Source];

fn draft(team: TeamId, kind: RecordKind, name: &str) -> Record {
    let about = format!(r#"{{"says":"{name}, \u00fc and \"quotes\""}}"#);
    Record { team, kind, id: next_id(T0), name: name.into(), rev: 1, created_at: T0, about }
}

fn domain(name: &str) -> Record {
    draft(TEAM, RecordKind::Domain, name)
}

async fn create(store: &Ledger, record: &Record) -> Created {
    match store.create_record(record.clone(), None).await.unwrap() {
        Once::Done(created) => created,
        other => panic!("{other:?}"),
    }
}

async fn made(store: &Ledger, record: &Record) -> Record {
    match create(store, record).await {
        Created::Made(made) => made,
        other @ Created::Taken(_) => panic!("{other:?}"),
    }
}

fn edit(record: &Record, about: &str) -> RecordEdit {
    record.edit(about.into())
}

async fn change(store: &Ledger, edit: RecordEdit) -> RecordChange {
    match store.change_record(edit, None, T0).await.unwrap() {
        Once::Done(change) => change,
        other => panic!("{other:?}"),
    }
}

/// Our team's domain as it is now.
async fn the_domain(store: &Ledger, id: Uuid) -> Option<Record> {
    store.record(TEAM, RecordKind::Domain, id).await.unwrap()
}

pub(super) async fn a_record_is_read_back_whole(store: Ledger) {
    for kind in KINDS {
        let record = draft(TEAM, kind, "Ümlaut@example.com");
        assert_eq!(made(&store, &record).await, record);
        assert_eq!(store.record(TEAM, kind, record.id).await.unwrap().as_ref(), Some(&record));
        assert_eq!(store.record_named(TEAM, kind, &record.name).await.unwrap().as_ref(), Some(&record));
        assert_eq!(store.record_anywhere(kind, record.id).await.unwrap().as_ref(), Some(&record));
        let elsewhere = KINDS.into_iter().find(|other| *other != kind).unwrap();
        assert_eq!(store.record(TEAM, elsewhere, record.id).await.unwrap(), None);
        assert_eq!(store.record_anywhere(elsewhere, record.id).await.unwrap(), None);
    }
}

pub(super) async fn a_name_is_taken_once_in_its_team_and_kind(store: Ledger) {
    let first = made(&store, &domain("a.test")).await;
    assert_eq!(create(&store, &domain("a.test")).await, Created::Taken(first.clone()));
    assert_eq!(the_domain(&store, first.id).await, Some(first));
    made(&store, &domain("A.test")).await;
    made(&store, &draft(TEAM, RecordKind::Source, "a.test")).await;
    made(&store, &draft(OTHER, RecordKind::Domain, "a.test")).await;
}

pub(super) async fn a_record_made_twice_is_the_same_record(store: Ledger) {
    let record = domain("a.test");
    assert_eq!(create(&store, &record).await, Created::Made(record.clone()));
    assert_eq!(create(&store, &record).await, Created::Made(record.clone()));
    assert_eq!(store.records(TEAM, RecordKind::Domain, None, 10).await.unwrap().rows, [record]);
}

pub(super) async fn a_repeated_making_of_a_record_makes_no_other(store: Ledger) {
    let under = |digest| Some(operation("make", digest, T0));
    let (one, two) = (domain("a.test"), domain("b.test"));
    assert_eq!(store.create_record(one.clone(), under(1)).await.unwrap(), Once::Done(Created::Made(one)));

    let again = store.create_record(two.clone(), under(1)).await.unwrap();
    let other = store.create_record(two.clone(), under(2)).await.unwrap();

    assert_eq!(again, Once::Repeated(b"answer 1".to_vec()));
    assert_eq!(other, Once::Mismatch(Bound::Operation { digest: [1; 32] }));
    let email = accepted(&store, &keyed("mail"), T0).await;
    let mail = store.create_record(two, Some(operation("mail", 1, T0))).await.unwrap();
    assert_eq!(mail, Once::Mismatch(Bound::Email(email)));
    assert_eq!(store.record_named(TEAM, RecordKind::Domain, "b.test").await.unwrap(), None);
}

pub(super) async fn a_taken_name_binds_no_key(store: Ledger) {
    let first = made(&store, &domain("a.test")).await;
    let refused = store.create_record(domain("a.test"), Some(operation("k", 1, T0))).await.unwrap();
    assert_eq!(refused, Once::Done(Created::Taken(first.clone())));
    let stale = RecordEdit { rev: 7, ..edit(&first, "{}") };
    let refused = store.change_record(stale, Some(operation("k", 1, T0)), T0).await.unwrap();
    assert_eq!(refused, Once::Done(RecordChange::Stale(first)));
    accepted(&store, &keyed("k"), T0).await;
}

pub(super) async fn records_are_listed_newest_first_in_pages(store: Ledger) {
    let mut all = Vec::new();
    for number in 0..7 {
        all.push(made(&store, &domain(&format!("{number}.test"))).await);
        made(&store, &draft(TEAM, RecordKind::Source, &format!("{number}"))).await;
        made(&store, &draft(OTHER, RecordKind::Domain, &format!("{number}.test"))).await;
    }
    all.reverse();
    for limit in [1, 3, 7, 8] {
        let (mut found, mut before) = (Vec::new(), None);
        loop {
            let page = store.records(TEAM, RecordKind::Domain, before, limit).await.unwrap();
            assert!(page.rows.len() <= limit);
            found.extend(page.rows);
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        assert_eq!(found, all, "in pages of {limit}");
    }
}

pub(super) async fn a_record_is_changed_only_as_it_was_seen(store: Ledger) {
    let first = made(&store, &domain("a.test")).await;
    let second = Record { rev: 2, about: "{}".into(), ..first.clone() };
    assert_eq!(change(&store, edit(&first, "{}")).await, RecordChange::Changed(second.clone()));
    assert_eq!(change(&store, edit(&first, "[]")).await, RecordChange::Stale(second.clone()));
    assert_eq!(the_domain(&store, first.id).await, Some(second.clone()));
    let nobody = RecordEdit { id: next_id(T0), ..edit(&second, "[]") };
    assert_eq!(change(&store, nobody).await, RecordChange::Missing);
    let other_kind = RecordEdit { kind: RecordKind::Source, ..edit(&second, "[]") };
    assert_eq!(change(&store, other_kind).await, RecordChange::Missing);
}

pub(super) async fn a_repeated_change_of_a_record_changes_nothing(store: Ledger) {
    let first = made(&store, &domain("a.test")).await;
    let under = |digest| Some(operation("change", digest, T0));
    let one = store.change_record(edit(&first, "{}"), under(1), T0).await.unwrap();
    let Once::Done(RecordChange::Changed(second)) = one else { panic!("{one:?}") };

    let later = Time(T0.0 + SECOND);
    let again = store.change_record(edit(&second, "[]"), under(1), later).await.unwrap();
    let other = store.change_record(edit(&second, "[]"), under(2), later).await.unwrap();

    assert_eq!(again, Once::Repeated(b"answer 1".to_vec()));
    assert_eq!(other, Once::Mismatch(Bound::Operation { digest: [1; 32] }));
    assert_eq!(the_domain(&store, first.id).await, Some(second));
}

pub(super) async fn a_removed_record_frees_its_name(store: Ledger) {
    let first = made(&store, &domain("a.test")).await;
    assert_eq!(store.remove_record(TEAM, RecordKind::Source, first.id).await.unwrap(), None);
    assert_eq!(store.remove_record(TEAM, RecordKind::Domain, first.id).await.unwrap(), Some(first.clone()));
    assert_eq!(store.remove_record(TEAM, RecordKind::Domain, first.id).await.unwrap(), None);
    assert_eq!(the_domain(&store, first.id).await, None);
    assert_eq!(store.record_anywhere(RecordKind::Domain, first.id).await.unwrap(), None);
    made(&store, &domain("a.test")).await;
}

pub(super) async fn records_of_another_team_are_not_there(store: Ledger) {
    let ours = made(&store, &domain("a.test")).await;
    let kind = RecordKind::Domain;
    assert_eq!(store.record(OTHER, kind, ours.id).await.unwrap(), None);
    assert_eq!(store.record_named(OTHER, kind, "a.test").await.unwrap(), None);
    assert!(store.records(OTHER, kind, None, 10).await.unwrap().rows.is_empty());
    assert_eq!(change(&store, RecordEdit { team: OTHER, ..edit(&ours, "{}") }).await, RecordChange::Missing);
    assert_eq!(store.remove_record(OTHER, kind, ours.id).await.unwrap(), None);
    assert_eq!(store.record_anywhere(kind, ours.id).await.unwrap(), Some(ours));
}

pub(super) async fn of_32_records_of_one_name_one_is_made(store: Ledger) {
    let drafts: Vec<Record> = (0..32).map(|_| domain("a.test")).collect();
    let racers = drafts.into_iter().map(|draft| {
        let store = store.clone();
        async move { create(&store, &draft).await }
    });
    let answers = all_at_once(racers).await;
    let made: Vec<&Record> =
        answers.iter().filter_map(|answer| if let Created::Made(made) = answer { Some(made) } else { None }).collect();
    assert_eq!(made.len(), 1);
    for answer in &answers {
        let (Created::Made(record) | Created::Taken(record)) = answer;
        assert_eq!(record, made[0]);
    }
}

pub(super) async fn of_32_changes_of_one_record_one_is_done(store: Ledger) {
    let first = made(&store, &domain("a.test")).await;
    let racers = (0..32).map(|number| {
        let (store, edit) = (store.clone(), edit(&first, &number.to_string()));
        async move { change(&store, edit).await }
    });
    let answers = all_at_once(racers).await;
    let changed = answers.iter().filter(|answer| matches!(answer, RecordChange::Changed(_))).count();
    assert_eq!(changed, 1);
    assert_eq!(the_domain(&store, first.id).await.unwrap().rev, 2);
}

pub(super) async fn of_32_makings_under_one_key_one_is_done(store: Ledger) {
    let drafts: Vec<Record> = (0..32).map(|number| domain(&format!("{number}.test"))).collect();
    let racers = drafts.into_iter().map(|draft| {
        let store = store.clone();
        async move { store.create_record(draft, Some(operation("k", 1, T0))).await.unwrap() }
    });
    let answers = all_at_once(racers).await;
    let done = answers.iter().filter(|answer| matches!(answer, Once::Done(Created::Made(_)))).count();
    let again = answers.iter().filter(|answer| matches!(answer, Once::Repeated(_))).count();
    assert_eq!((done, again), (1, 31));
    assert_eq!(store.records(TEAM, RecordKind::Domain, None, 100).await.unwrap().rows.len(), 1);
}

pub(super) async fn what_is_told_of_a_change_is_told_once_and_only_when_it_is_done(store: Ledger) {
    let made = made(&store, &domain("a.test")).await;
    let (kind, data) = (Kind::DomainVerified, serde_json::json!({ "name": "a.test" }));
    let told = NewEvent { kind, at: T0, about: made.id, rev: 2, data };
    let wanted = edit(&made, r#"{"verified_at":1}"#);
    let call = operation("verify", 1, T0);
    for _ in 0..2 {
        let _answer = store.change_record(wanted.clone(), Some(call.clone()), T0).await.unwrap();
    }
    assert!(matches!(change(&store, wanted).await, RecordChange::Stale(_)));
    assert_eq!(events(&store, TEAM).await, [Event { seq: 1, event: told }]);
}

//! Promises about records, the small things that a team owns, such as domains and suppressions.

use mailonce_core::{
    events::event::{Event, EventKind, NewEvent},
    id::TeamId,
    operation::IdempotentResult,
    outbound::key_binding::KeyBinding,
    record::{CreateRecordResult, Record, RecordChangeResult, RecordEdit, RecordKind},
    time::Time,
};
use uuid::Uuid;

use crate::conformance::{
    OTHER_TEAM, SECOND, T0, TEAM, TestStore, accept_first, all_at_once, all_events, keyed_email, new_operation, next_id,
};

const KINDS: [RecordKind; 3] = [RecordKind::Domain, RecordKind::Suppression, RecordKind::Source];

fn new_record(team: TeamId, kind: RecordKind, name: &str) -> Record {
    let json = format!(r#"{{"says":"{name}, \u00fc and \"quotes\""}}"#);
    Record { team, kind, id: next_id(T0), name: name.into(), rev: 1, created_at: T0, json }
}

fn new_domain(name: &str) -> Record {
    new_record(TEAM, RecordKind::Domain, name)
}

async fn create_record(store: &TestStore, record: &Record) -> CreateRecordResult {
    match store.create_record(record.clone(), None).await.unwrap() {
        IdempotentResult::Done(created) => created,
        other => panic!("{other:?}"),
    }
}

async fn created_record(store: &TestStore, record: &Record) -> Record {
    match create_record(store, record).await {
        CreateRecordResult::Created(created) => created,
        other @ CreateRecordResult::NameTaken(_) => panic!("{other:?}"),
    }
}

fn record_edit(record: &Record, json: &str) -> RecordEdit {
    record.edit(json.into())
}

async fn change_record(store: &TestStore, edit: RecordEdit) -> RecordChangeResult {
    match store.change_record(edit, None, T0).await.unwrap() {
        IdempotentResult::Done(change) => change,
        other => panic!("{other:?}"),
    }
}

/// The current state of our team's domain.
async fn load_domain(store: &TestStore, id: Uuid) -> Option<Record> {
    store.record(TEAM, RecordKind::Domain, id).await.unwrap()
}

pub(super) async fn a_record_is_read_back_unchanged(store: TestStore) {
    for kind in KINDS {
        let record = new_record(TEAM, kind, "Ümlaut@example.com");
        assert_eq!(created_record(&store, &record).await, record);
        assert_eq!(store.record(TEAM, kind, record.id).await.unwrap().as_ref(), Some(&record));
        assert_eq!(store.record_by_name(TEAM, kind, &record.name).await.unwrap().as_ref(), Some(&record));
        assert_eq!(store.record_of_any_team(kind, record.id).await.unwrap().as_ref(), Some(&record));
        let elsewhere = KINDS.into_iter().find(|other| *other != kind).unwrap();
        assert_eq!(store.record(TEAM, elsewhere, record.id).await.unwrap(), None);
        assert_eq!(store.record_of_any_team(elsewhere, record.id).await.unwrap(), None);
    }
}

pub(super) async fn a_record_name_is_unique_in_its_team_and_kind(store: TestStore) {
    let first = created_record(&store, &new_domain("a.test")).await;
    assert_eq!(create_record(&store, &new_domain("a.test")).await, CreateRecordResult::NameTaken(first.clone()));
    assert_eq!(load_domain(&store, first.id).await, Some(first));
    created_record(&store, &new_domain("A.test")).await;
    created_record(&store, &new_record(TEAM, RecordKind::Source, "a.test")).await;
    created_record(&store, &new_record(OTHER_TEAM, RecordKind::Domain, "a.test")).await;
}

pub(super) async fn creating_a_record_twice_creates_it_once(store: TestStore) {
    let record = new_domain("a.test");
    assert_eq!(create_record(&store, &record).await, CreateRecordResult::Created(record.clone()));
    assert_eq!(create_record(&store, &record).await, CreateRecordResult::Created(record.clone()));
    assert_eq!(store.records(TEAM, RecordKind::Domain, None, 10).await.unwrap().rows, [record]);
}

pub(super) async fn replaying_a_record_creation_creates_no_second_record(store: TestStore) {
    let operation = |digest| Some(new_operation("make", digest, T0));
    let (one, two) = (new_domain("a.test"), new_domain("b.test"));
    assert_eq!(
        store.create_record(one.clone(), operation(1)).await.unwrap(),
        IdempotentResult::Done(CreateRecordResult::Created(one))
    );

    let again = store.create_record(two.clone(), operation(1)).await.unwrap();
    let other = store.create_record(two.clone(), operation(2)).await.unwrap();

    assert_eq!(again, IdempotentResult::Replayed(b"answer 1".to_vec()));
    assert_eq!(other, IdempotentResult::KeyMismatch(KeyBinding::Operation { digest: [1; 32] }));
    let email = accept_first(&store, &keyed_email("mail"), T0).await;
    let mail = store.create_record(two, Some(new_operation("mail", 1, T0))).await.unwrap();
    assert_eq!(mail, IdempotentResult::KeyMismatch(KeyBinding::Email(email)));
    assert_eq!(store.record_by_name(TEAM, RecordKind::Domain, "b.test").await.unwrap(), None);
}

pub(super) async fn a_refused_record_creation_or_change_binds_no_key(store: TestStore) {
    let first = created_record(&store, &new_domain("a.test")).await;
    let refused = store.create_record(new_domain("a.test"), Some(new_operation("k", 1, T0))).await.unwrap();
    assert_eq!(refused, IdempotentResult::Done(CreateRecordResult::NameTaken(first.clone())));
    let stale = RecordEdit { rev: 7, ..record_edit(&first, "{}") };
    let refused = store.change_record(stale, Some(new_operation("k", 1, T0)), T0).await.unwrap();
    assert_eq!(refused, IdempotentResult::Done(RecordChangeResult::Stale(first)));
    accept_first(&store, &keyed_email("k"), T0).await;
}

pub(super) async fn records_are_listed_newest_first_in_pages(store: TestStore) {
    let mut all = Vec::new();
    for number in 0..7 {
        all.push(created_record(&store, &new_domain(&format!("{number}.test"))).await);
        created_record(&store, &new_record(TEAM, RecordKind::Source, &format!("{number}"))).await;
        created_record(&store, &new_record(OTHER_TEAM, RecordKind::Domain, &format!("{number}.test"))).await;
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

pub(super) async fn a_record_change_needs_the_current_rev(store: TestStore) {
    let first = created_record(&store, &new_domain("a.test")).await;
    let second = Record { rev: 2, json: "{}".into(), ..first.clone() };
    assert_eq!(change_record(&store, record_edit(&first, "{}")).await, RecordChangeResult::Changed(second.clone()));
    assert_eq!(change_record(&store, record_edit(&first, "[]")).await, RecordChangeResult::Stale(second.clone()));
    assert_eq!(load_domain(&store, first.id).await, Some(second.clone()));
    let missing = RecordEdit { id: next_id(T0), ..record_edit(&second, "[]") };
    assert_eq!(change_record(&store, missing).await, RecordChangeResult::Missing);
    let other_kind = RecordEdit { kind: RecordKind::Source, ..record_edit(&second, "[]") };
    assert_eq!(change_record(&store, other_kind).await, RecordChangeResult::Missing);
}

pub(super) async fn replaying_a_record_change_changes_nothing(store: TestStore) {
    let first = created_record(&store, &new_domain("a.test")).await;
    let operation = |digest| Some(new_operation("change", digest, T0));
    let one = store.change_record(record_edit(&first, "{}"), operation(1), T0).await.unwrap();
    let IdempotentResult::Done(RecordChangeResult::Changed(second)) = one else { panic!("{one:?}") };

    let later = Time(T0.0 + SECOND);
    let again = store.change_record(record_edit(&second, "[]"), operation(1), later).await.unwrap();
    let other = store.change_record(record_edit(&second, "[]"), operation(2), later).await.unwrap();

    assert_eq!(again, IdempotentResult::Replayed(b"answer 1".to_vec()));
    assert_eq!(other, IdempotentResult::KeyMismatch(KeyBinding::Operation { digest: [1; 32] }));
    assert_eq!(load_domain(&store, first.id).await, Some(second));
}

pub(super) async fn a_removed_record_frees_its_name(store: TestStore) {
    let first = created_record(&store, &new_domain("a.test")).await;
    assert_eq!(store.remove_record(TEAM, RecordKind::Source, first.id).await.unwrap(), None);
    assert_eq!(store.remove_record(TEAM, RecordKind::Domain, first.id).await.unwrap(), Some(first.clone()));
    assert_eq!(store.remove_record(TEAM, RecordKind::Domain, first.id).await.unwrap(), None);
    assert_eq!(load_domain(&store, first.id).await, None);
    assert_eq!(store.record_of_any_team(RecordKind::Domain, first.id).await.unwrap(), None);
    created_record(&store, &new_domain("a.test")).await;
}

pub(super) async fn records_of_another_team_are_not_found(store: TestStore) {
    let ours = created_record(&store, &new_domain("a.test")).await;
    let kind = RecordKind::Domain;
    assert_eq!(store.record(OTHER_TEAM, kind, ours.id).await.unwrap(), None);
    assert_eq!(store.record_by_name(OTHER_TEAM, kind, "a.test").await.unwrap(), None);
    assert!(store.records(OTHER_TEAM, kind, None, 10).await.unwrap().rows.is_empty());
    assert_eq!(
        change_record(&store, RecordEdit { team: OTHER_TEAM, ..record_edit(&ours, "{}") }).await,
        RecordChangeResult::Missing
    );
    assert_eq!(store.remove_record(OTHER_TEAM, kind, ours.id).await.unwrap(), None);
    assert_eq!(store.record_of_any_team(kind, ours.id).await.unwrap(), Some(ours));
}

pub(super) async fn of_32_concurrent_records_of_one_name_one_is_created(store: TestStore) {
    let records: Vec<Record> = (0..32).map(|_| new_domain("a.test")).collect();
    let racers = records.into_iter().map(|record| {
        let store = store.clone();
        async move { create_record(&store, &record).await }
    });
    let answers = all_at_once(racers).await;
    let created: Vec<&Record> = answers
        .iter()
        .filter_map(|answer| if let CreateRecordResult::Created(created) = answer { Some(created) } else { None })
        .collect();
    assert_eq!(created.len(), 1);
    for answer in &answers {
        let (CreateRecordResult::Created(record) | CreateRecordResult::NameTaken(record)) = answer;
        assert_eq!(record, created[0]);
    }
}

pub(super) async fn of_32_concurrent_changes_of_one_record_one_is_applied(store: TestStore) {
    let first = created_record(&store, &new_domain("a.test")).await;
    let racers = (0..32).map(|number| {
        let (store, edit) = (store.clone(), record_edit(&first, &number.to_string()));
        async move { change_record(&store, edit).await }
    });
    let answers = all_at_once(racers).await;
    let changed = answers.iter().filter(|answer| matches!(answer, RecordChangeResult::Changed(_))).count();
    assert_eq!(changed, 1);
    assert_eq!(load_domain(&store, first.id).await.unwrap().rev, 2);
}

pub(super) async fn of_32_concurrent_creations_under_one_key_one_is_executed(store: TestStore) {
    let records: Vec<Record> = (0..32).map(|number| new_domain(&format!("{number}.test"))).collect();
    let racers = records.into_iter().map(|record| {
        let store = store.clone();
        async move { store.create_record(record, Some(new_operation("k", 1, T0))).await.unwrap() }
    });
    let answers = all_at_once(racers).await;
    let done = answers
        .iter()
        .filter(|answer| matches!(answer, IdempotentResult::Done(CreateRecordResult::Created(_))))
        .count();
    let again = answers.iter().filter(|answer| matches!(answer, IdempotentResult::Replayed(_))).count();
    assert_eq!((done, again), (1, 31));
    assert_eq!(store.records(TEAM, RecordKind::Domain, None, 100).await.unwrap().rows.len(), 1);
}

pub(super) async fn a_record_change_emits_its_event_once_and_only_when_applied(store: TestStore) {
    let record = created_record(&store, &new_domain("a.test")).await;
    let (kind, data) = (EventKind::DomainVerified, serde_json::json!({ "name": "a.test" }));
    let event = NewEvent { kind, at: T0, subject_id: record.id, rev: 2, data };
    let edit = record_edit(&record, r#"{"verified_at":1}"#);
    let operation = new_operation("verify", 1, T0);
    for _ in 0..2 {
        let _answer = store.change_record(edit.clone(), Some(operation.clone()), T0).await.unwrap();
    }
    assert!(matches!(change_record(&store, edit).await, RecordChangeResult::Stale(_)));
    assert_eq!(all_events(&store, TEAM).await, [Event { seq: 1, event }]);
}

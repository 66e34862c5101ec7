//! Promises about templates: their names, versions and limits.

use mailonce_core::{
    control::audit::chain::check_row,
    id::TeamId,
    limits,
    operation::IdempotentResult,
    outbound::template::{AddVersionResult, CreateTemplateResult, Template, TemplateKey, TemplateSource},
    time::Time,
};
use serde_json::json;
use uuid::Uuid;

use crate::conformance::{
    HOUR, OTHER_TEAM, SECOND, T0, TEAM, TestStore, all_at_once, fixtures::emails::next_id, new_operation,
};

fn source(subject: &str) -> TemplateSource {
    let json = json!({
        "subject": subject, "text": "Hello {{ name }}\n\u{e9}", "html": "<p>{{ name }}</p>",
        "variables": { "name": { "default": "\u{0}" }, "other": {} },
    });
    serde_json::from_value(json).unwrap()
}

fn new_template(team: TeamId, name: &str) -> Template {
    let source = source("one");
    Template { team, id: next_id(T0), name: name.into(), version: 1, created_at: T0, updated_at: T0, source }
}

async fn create(store: &TestStore, template: &Template) -> CreateTemplateResult {
    match store.create_template(template.clone(), None).await.unwrap() {
        IdempotentResult::Done(result) => result,
        other => panic!("{other:?}"),
    }
}

async fn created(store: &TestStore, team: TeamId, name: &str) -> Template {
    let template = new_template(team, name);
    assert_eq!(create(store, &template).await, CreateTemplateResult::Created(template.clone()));
    template
}

async fn add(store: &TestStore, template: &Template, seen: u32, subject: &str, now: Time) -> AddVersionResult {
    store.add_template_version(template.team, template.id, (seen, source(subject)), now).await.unwrap()
}

async fn read(store: &TestStore, team: TeamId, name: &str, version: Option<u32>) -> Option<Template> {
    store.template(team, TemplateKey::Name(name.into()), version).await.unwrap()
}

async fn names(store: &TestStore, team: TeamId) -> Vec<String> {
    let page = store.templates(team, None, 2000).await.unwrap();
    page.rows.into_iter().map(|template| template.name).collect()
}

/// The actions about templates in the audit log.
async fn acts(store: &TestStore, team: TeamId) -> Vec<String> {
    let page = store.audit_page(team, 0, 10_000).await.unwrap();
    let entries = page.rows.iter().map(|row| check_row(team, row).unwrap().content.action);
    entries.filter(|action| action.starts_with("template.")).collect()
}

pub(super) async fn a_template_is_read_back_unchanged_by_name_and_id(store: TestStore) {
    let template = created(&store, TEAM, "welcome").await;

    assert_eq!(read(&store, TEAM, "welcome", None).await, Some(template.clone()));
    assert_eq!(read(&store, TEAM, "welcome", Some(1)).await, Some(template.clone()));
    let by_id = store.template(TEAM, TemplateKey::Id(template.id), None).await.unwrap();
    assert_eq!(by_id, Some(template));
    assert_eq!(read(&store, TEAM, "Welcome", None).await, None);
    assert_eq!(read(&store, TEAM, "welcome", Some(2)).await, None);
}

pub(super) async fn a_name_is_used_once_in_a_team(store: TestStore) {
    let first = created(&store, TEAM, "welcome").await;

    let (again, other) = (create(&store, &first).await, create(&store, &new_template(TEAM, "welcome")).await);

    assert_eq!(again, CreateTemplateResult::Created(first.clone()));
    assert_eq!(other, CreateTemplateResult::NameTaken(first));
    created(&store, OTHER_TEAM, "welcome").await;
}

pub(super) async fn a_replayed_creation_creates_nothing(store: TestStore) {
    let (template, operation) = (new_template(TEAM, "welcome"), new_operation("create", 1, T0));
    let first = store.create_template(template.clone(), Some(operation.clone())).await.unwrap();
    assert_eq!(first, IdempotentResult::Done(CreateTemplateResult::Created(template.clone())));

    let replayed = store.create_template(new_template(TEAM, "another"), Some(operation)).await.unwrap();

    assert!(matches!(replayed, IdempotentResult::Replayed(_)), "{replayed:?}");
    assert_eq!(names(&store, TEAM).await, ["welcome"]);
}

pub(super) async fn a_change_adds_a_version_and_keeps_the_earlier_ones(store: TestStore) {
    let first = created(&store, TEAM, "welcome").await;
    let later = T0.plus(HOUR);

    let added = add(&store, &first, 1, "two", later).await;

    let second = Template { version: 2, updated_at: later, source: source("two"), ..first.clone() };
    assert_eq!(added, AddVersionResult::Added(second.clone()));
    assert_eq!(read(&store, TEAM, "welcome", None).await, Some(second));
    assert_eq!(read(&store, TEAM, "welcome", Some(1)).await, Some(first.clone()));
    assert_eq!(store.template_versions(TEAM, first.id).await.unwrap(), [(2, later), (1, T0)]);
}

pub(super) async fn a_version_follows_the_one_that_was_read(store: TestStore) {
    let first = created(&store, TEAM, "welcome").await;
    let AddVersionResult::Added(second) = add(&store, &first, 1, "two", T0).await else { panic!("not added") };

    let (retried, stale) = (add(&store, &first, 1, "two", T0).await, add(&store, &first, 1, "three", T0).await);

    assert_eq!(retried, AddVersionResult::Added(second.clone()));
    assert_eq!(stale, AddVersionResult::Stale(second));
    assert_eq!(store.template_versions(TEAM, first.id).await.unwrap().len(), 2);
    let missing = store.add_template_version(TEAM, Uuid::from_u128(7), (1, source("x")), T0).await.unwrap();
    assert_eq!(missing, AddVersionResult::Missing);
}

pub(super) async fn of_concurrent_changes_one_adds_a_version(store: TestStore) {
    let first = created(&store, TEAM, "welcome").await;

    let changes = (0..8).map(|i| {
        let (store, first) = (store.clone(), first.clone());
        async move { add(&store, &first, 1, &format!("subject {i}"), T0).await }
    });
    let results = all_at_once(changes).await;

    let added = results.iter().filter(|result| matches!(result, AddVersionResult::Added(_))).count();
    let stale = results.iter().filter(|result| matches!(result, AddVersionResult::Stale(_))).count();
    assert_eq!((added, stale), (1, 7), "{results:?}");
}

pub(super) async fn a_template_has_at_most_a_hundred_versions(store: TestStore) {
    let template = created(&store, TEAM, "welcome").await;
    for seen in 1..limits::TEMPLATE_VERSIONS as u32 {
        let added = add(&store, &template, seen, &format!("subject {seen}"), T0).await;
        assert!(matches!(added, AddVersionResult::Added(_)), "{added:?}");
    }
    assert_eq!(add(&store, &template, 100, "more", T0).await, AddVersionResult::TooMany);

    let removed = store.remove_template_version(TEAM, template.id, 1, T0).await.unwrap();

    assert_eq!(removed, Some(template.clone()));
    let AddVersionResult::Added(next) = add(&store, &template, 100, "more", T0).await else { panic!("not added") };
    assert_eq!(next.version, 101, "the number of a removed version is not used again");
}

pub(super) async fn the_newest_version_stays(store: TestStore) {
    let first = created(&store, TEAM, "welcome").await;
    let _second = add(&store, &first, 1, "two", T0).await;

    let newest = store.remove_template_version(TEAM, first.id, 2, T0).await.unwrap();
    let unknown = store.remove_template_version(TEAM, first.id, 9, T0).await.unwrap();
    let theirs = store.remove_template_version(OTHER_TEAM, first.id, 1, T0).await.unwrap();
    let oldest = store.remove_template_version(TEAM, first.id, 1, T0).await.unwrap();

    assert_eq!((newest, unknown, theirs, oldest), (None, None, None, Some(first.clone())));
    assert_eq!(read(&store, TEAM, "welcome", None).await.map(|template| template.version), Some(2));
}

pub(super) async fn a_team_has_at_most_a_thousand_templates(store: TestStore) {
    for i in 1..limits::TEMPLATES {
        created(&store, TEAM, &format!("t{i}")).await;
    }

    let creations = (0..4).map(|i| {
        let (store, template) = (store.clone(), new_template(TEAM, &format!("last{i}")));
        async move { create(&store, &template).await }
    });
    let results = all_at_once(creations).await;

    let refused = results.iter().filter(|result| **result == CreateTemplateResult::TooMany).count();
    assert_eq!(refused, 3, "{results:?}");
    assert_eq!(names(&store, TEAM).await.len(), limits::TEMPLATES);
    created(&store, OTHER_TEAM, "first").await;
}

pub(super) async fn templates_are_listed_newest_first_in_pages(store: TestStore) {
    for name in ["a", "b", "c"] {
        created(&store, TEAM, name).await;
    }
    created(&store, OTHER_TEAM, "theirs").await;
    let b = read(&store, TEAM, "b", None).await.unwrap();
    let _changed = add(&store, &b, 1, "two", T0.plus(SECOND)).await;

    let first = store.templates(TEAM, None, 2).await.unwrap();
    let rest = store.templates(TEAM, first.next, 2).await.unwrap();

    let rows: Vec<_> = first.rows.iter().chain(&rest.rows).map(|t| (t.name.as_str(), t.version)).collect();
    assert_eq!(rows, [("c", 1), ("b", 2), ("a", 1)]);
    assert_eq!(rest.next, None);
}

pub(super) async fn a_removed_template_is_gone_with_its_versions(store: TestStore) {
    let first = created(&store, TEAM, "welcome").await;
    let _second = add(&store, &first, 1, "two", T0).await;

    let removed = store.remove_template(TEAM, first.id, T0).await.unwrap();

    assert_eq!(removed.map(|template| template.version), Some(2));
    assert_eq!(read(&store, TEAM, "welcome", None).await, None);
    assert_eq!(read(&store, TEAM, "welcome", Some(1)).await, None);
    assert_eq!(store.template_versions(TEAM, first.id).await.unwrap(), []);
    assert_eq!(store.remove_template(TEAM, first.id, T0).await.unwrap(), None);
    let again = created(&store, TEAM, "welcome").await;
    assert_eq!(read(&store, TEAM, "welcome", None).await, Some(again));
}

pub(super) async fn templates_of_another_team_are_not_found(store: TestStore) {
    let theirs = created(&store, OTHER_TEAM, "theirs").await;

    let added = store.add_template_version(TEAM, theirs.id, (1, source("x")), T0).await.unwrap();
    let removed = store.remove_template(TEAM, theirs.id, T0).await.unwrap();

    assert_eq!((added, removed), (AddVersionResult::Missing, None));
    assert_eq!(read(&store, TEAM, "theirs", None).await, None);
    assert_eq!(store.template(TEAM, TemplateKey::Id(theirs.id), None).await.unwrap(), None);
    assert_eq!(store.template_versions(TEAM, theirs.id).await.unwrap(), []);
    assert_eq!(names(&store, TEAM).await, [] as [&str; 0]);
    assert_eq!(read(&store, OTHER_TEAM, "theirs", None).await, Some(theirs));
}

pub(super) async fn every_change_of_a_template_is_audited_without_its_wording(store: TestStore) {
    let first = created(&store, TEAM, "welcome").await;
    let _second = add(&store, &first, 1, "canary", T0).await;
    let _retried = add(&store, &first, 1, "canary", T0).await;
    store.remove_template_version(TEAM, first.id, 1, T0).await.unwrap();
    store.remove_template(TEAM, first.id, T0).await.unwrap();

    let actions = acts(&store, TEAM).await;

    let expected = ["template.created", "template.changed", "template.version_removed", "template.removed"];
    assert_eq!(actions, expected);
    let page = store.audit_page(TEAM, 0, 10_000).await.unwrap();
    let log: Vec<_> = page.rows.iter().map(|row| check_row(TEAM, row).unwrap().content).collect();
    let log = format!("{log:?}");
    assert!(!log.contains("canary") && log.contains("subject"), "{log}");
}

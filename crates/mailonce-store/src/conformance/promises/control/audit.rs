//! Promises about the audit log: that every act has its entry, and that the entries form one chain per team.

use mailonce_core::{
    access::{
        call_origin::{ActorKind, Alias, AliasKey, CallOrigin, CallSource},
        team::{ApiKey, ApiKeyDetails, ApiKeyScope, Team},
    },
    control::{
        audit::{
            AuditEntry, AuditPage,
            act::Act,
            chain::{self, check_row},
        },
        stop::{Stop, StopAuthor, StopMode, StopScope},
    },
    conversation::escalation::{Decision, DecisionRecord, Escalation, EscalationReason, EscalationSubject},
    events::endpoint::{EndpointEdit, EndpointStart, EndpointState},
    handoff::action::{HandoffAction, Resolution},
    id::{ApiKeyId, StopId, TeamId},
    inbox::InboxEdit,
    key::InstallSecret,
    operation::IdempotentResult,
    record::{Record, RecordKind, TEAM_SETTINGS},
    time::Time,
    ttl::Ttl,
};
use std::{net::IpAddr, sync::Arc};

use crate::conformance::{
    DAY, HOUR, OTHER_TEAM, T0, TEAM, TestStore, accept_and_send, accept_first, all_at_once, cancel_email, event_kinds,
    fixtures::{
        handoffs::accept_with_unknown_outcome,
        inbound::open_inbox,
        webhooks::{create_endpoint, endpoint_config, new_endpoint},
    },
    given_key_hash, keyed_email, keyless_email, load_email, new_operation, next_id,
};

const CALLER: ApiKeyId = ApiKeyId(TEAM.0);

fn caller_origin() -> CallOrigin {
    let from = CallSource::Address(IpAddr::from([192, 0, 2, 7]), AliasKey::of(&InstallSecret([7; 32])));
    CallOrigin::of_api_key(CALLER, TEAM, from, T0)
}

/// The id that stands for the address of the caller.
fn caller_address() -> String {
    caller_origin().source().0
}

/// Runs a call of an API key of our team.
async fn as_caller<T>(call: impl Future<Output = T>) -> T {
    CallOrigin::scope(Some(Arc::new(caller_origin())), call).await
}

fn new_record(kind: RecordKind, name: &str, json: &str) -> Record {
    Record { team: TEAM, kind, id: next_id(T0), name: name.into(), rev: 1, created_at: T0, json: json.into() }
}

fn new_rule(name: &str) -> Record {
    new_record(RecordKind::Rule, name, r#"{"enabled":true}"#)
}

async fn create_record(store: &TestStore, record: &Record) {
    assert!(matches!(store.create_record(record.clone(), None).await.unwrap(), IdempotentResult::Done(_)));
}

async fn change_record(store: &TestStore, record: &Record, json: &str) {
    let _changed = store.change_record(record.edit(json.into()), None, T0).await.unwrap();
}

async fn whole_log(store: &TestStore, team: TeamId) -> AuditPage {
    let page = store.audit_page(team, 0, 10_000).await.unwrap();
    assert_eq!(chain::verify(team, &page), Ok(()));
    page
}

/// The entries since the two that every test begins with: the team and its API key.
async fn entries(store: &TestStore, team: TeamId) -> Vec<AuditEntry> {
    let page = whole_log(store, team).await;
    page.rows.iter().skip(2).map(|row| check_row(team, row).unwrap()).collect()
}

async fn actions(store: &TestStore) -> Vec<String> {
    entries(store, TEAM).await.into_iter().map(|entry| entry.content.action).collect()
}

async fn act_on_records(store: &TestStore) {
    let record = new_rule("ours");
    create_record(store, &record).await;
    change_record(store, &record, r#"{"enabled":false}"#).await;
    store.remove_record(TEAM, RecordKind::Rule, record.id).await.unwrap().unwrap();
    let open = Escalation::open(EscalationReason::Asked, EscalationSubject::default(), None);
    let question = new_record(RecordKind::Escalation, "question", &serde_json::to_string(&open).unwrap());
    create_record(store, &question).await;
    let decision = DecisionRecord {
        decision: Decision::Reject,
        at: T0,
        by: Some(CALLER),
        person: None,
        reason: Some("a canary reason".into()),
        edit: None,
        shown: None,
    };
    let state = mailonce_core::conversation::escalation::EscalationState::Resolved;
    let decided = Escalation { state, decision: Some(decision), ..open };
    change_record(store, &question, &serde_json::to_string(&decided).unwrap()).await;
}

async fn act_on_access(store: &TestStore) {
    let details = ApiKeyDetails::unrestricted("second", vec![ApiKeyScope::Send]);
    let id = ApiKeyId(next_id(T0));
    let key = ApiKey { id, team: TEAM, hash: [9; 32], details, created_at: T0, revoked_at: None, last_used_at: None };
    let _created = store.create_api_key(key, None).await.unwrap();
    store.revoke_api_key(TEAM, id, T0).await.unwrap().unwrap();
    store.set_require_keys(TEAM, true).await.unwrap().unwrap();
}

async fn act_on_endpoint_and_inbox(store: &TestStore) {
    let endpoint = create_endpoint(store, &new_endpoint(TEAM, &["*"]), EndpointStart::NextEvent).await;
    let config = endpoint_config(&["email.*"]);
    let edit = EndpointEdit { team: TEAM, id: endpoint.id, rev: 1, config, state: EndpointState::Paused };
    let _changed = store.change_endpoint(edit, None, T0).await.unwrap();
    store.remove_endpoint(TEAM, endpoint.id).await.unwrap().unwrap();
    let inbox = open_inbox(store, "agent@canary.test").await;
    let edit = InboxEdit { team: TEAM, id: inbox.id, rev: 1, address: inbox.address, settings: inbox.settings };
    let _changed = store.change_inbox(edit, None, T0).await.unwrap();
    store.remove_inbox(TEAM, inbox.id, T0).await.unwrap().unwrap();
}

fn new_stop(scope: StopScope) -> Stop {
    let by = StopAuthor { api_key: Some(CALLER), name: "tests".into() };
    Stop { id: StopId(next_id(T0)), scope, mode: StopMode::Wait, reason: None, by, created_at: T0, release: None }
}

async fn act_on_emails(store: &TestStore) {
    let stop = new_stop(StopScope::Team(OTHER_TEAM));
    let theirs = stop.clone();
    let _created = store.create_stop(theirs, None, T0).await.unwrap();
    let stop = Stop { id: StopId(next_id(T0)), scope: StopScope::Transport("relay".into()), ..stop };
    let _created = store.create_stop(stop.clone(), None, T0).await.unwrap();
    store.end_stop(None, stop.id, Some(5), T0).await.unwrap().unwrap();
    let unknown = accept_with_unknown_outcome(store, &keyless_email()).await;
    let rev = load_email(store, unknown.id).await.rev;
    let reason = "a canary reason".to_owned();
    let action = HandoffAction::Resolve { resolution: Resolution::Sent, rev, handoff: None, reason };
    let _resolved = store.apply_action(TEAM, unknown.id, action, None, T0).await.unwrap();
    accept_and_send(store, &keyed_email("order-1"), T0).await;
    let key = given_key_hash(TEAM, "order-1");
    let _extended = store.extend_key(TEAM, key, Ttl(DAY), T0).await.unwrap();
    let _forgotten = store.forget_key(TEAM, key, T0).await.unwrap();
}

pub(super) async fn every_act_has_its_entry(store: TestStore) {
    as_caller(async {
        act_on_records(&store).await;
        act_on_access(&store).await;
        act_on_endpoint_and_inbox(&store).await;
        act_on_emails(&store).await;
    })
    .await;

    let expected = "rule.created rule.changed rule.removed escalation.decided api_key.created api_key.revoked \
                    team.changed endpoint.created endpoint.changed endpoint.removed inbox.created inbox.changed \
                    inbox.removed stop.created stop.ended email.resolved key.extended key.forgotten";
    assert_eq!(actions(&store).await.join(" "), expected);
    for entry in entries(&store, TEAM).await {
        let content = entry.content;
        assert_eq!((content.actor.kind, content.actor.id), (ActorKind::ApiKey, CALLER.to_string()));
        assert_eq!((content.from, content.at), (caller_address(), T0));
        let json = format!("{:?}{:?}", content.before, content.after);
        assert!(!json.contains("canary") && !json.contains("sealed"), "{json}");
    }
    let theirs = entries(&store, OTHER_TEAM).await;
    assert_eq!((theirs.len(), theirs[0].content.action.as_str()), (1, "stop.created"));
}

pub(super) async fn an_entry_shows_the_values_before_and_after(store: TestStore) {
    let record = new_rule("ours");
    create_record(&store, &record).await;
    change_record(&store, &record, r#"{"enabled":false,"conditions":["canary"]}"#).await;

    let entries = entries(&store, TEAM).await;
    let content = &entries[1].content;
    assert_eq!(content.about, format!("rule/{}", record.id));
    assert_eq!(content.before.as_deref(), Some(r#"{"enabled":true}"#));
    assert_eq!(content.after.as_deref(), Some(r#"{"changed":["match.conditions"],"enabled":false}"#));
}

pub(super) async fn a_refused_or_repeated_act_has_no_entry(store: TestStore) {
    let record = new_rule("ours");
    create_record(&store, &record).await;
    create_record(&store, &record).await;
    create_record(&store, &new_rule("ours")).await;
    change_record(&store, &Record { rev: 7, ..record.clone() }, "{}").await;
    assert_eq!(store.remove_record(OTHER_TEAM, RecordKind::Rule, record.id).await.unwrap(), None);
    let operation = || Some(new_operation("once", 1, T0));
    for _ in 0..2 {
        let _replayed = store.change_record(record.edit("{}".into()), operation(), T0).await.unwrap();
    }
    store.set_require_keys(TEAM, false).await.unwrap().unwrap();
    for _ in 0..2 {
        store.revoke_api_key(TEAM, CALLER, T0).await.unwrap().unwrap();
    }
    let stop = new_stop(StopScope::Team(TEAM));
    for _ in 0..2 {
        let again = Stop { id: StopId(next_id(T0)), ..stop.clone() };
        let _created = store.create_stop(again, None, T0).await.unwrap();
    }

    assert_eq!(actions(&store).await, ["rule.created", "rule.changed", "api_key.revoked", "stop.created"]);
}

pub(super) async fn sending_leaves_no_entry(store: TestStore) {
    as_caller(async {
        accept_and_send(&store, &keyed_email("a"), T0).await;
        let waiting = accept_first(&store, &keyless_email(), T0).await;
        cancel_email(&store, waiting.id, T0).await;
    })
    .await;

    assert_eq!(actions(&store).await, [""; 0]);
}

pub(super) async fn without_a_caller_the_system_acts(store: TestStore) {
    create_record(&store, &new_rule("ours")).await;
    create_record(&store, &new_record(RecordKind::Suppression, "ada@canary.test", "{}")).await;
    create_record(&store, &new_record(RecordKind::Poll, "position", "{}")).await;

    let entries = entries(&store, TEAM).await;
    assert_eq!(entries.len(), 1, "a worker suppresses addresses and stores positions");
    let content = &entries[0].content;
    assert_eq!((content.actor.kind, content.actor.id.as_str()), (ActorKind::System, "server"));
    assert_eq!((content.from.as_str(), content.action.as_str()), ("server", "rule.created"));
}

pub(super) async fn an_act_on_no_team_is_in_the_log_of_its_actor_or_in_all(store: TestStore) {
    let act = || Act::new(None, "ledger.restored", "installation/1".into());
    as_caller(store.record_act(act(), T0)).await.unwrap();
    assert_eq!((entries(&store, TEAM).await.len(), entries(&store, OTHER_TEAM).await.len()), (1, 0));

    store.record_act(act(), T0.plus(HOUR)).await.unwrap();

    assert_eq!((entries(&store, TEAM).await.len(), entries(&store, OTHER_TEAM).await.len()), (2, 1));
}

pub(super) async fn concurrent_acts_form_one_chain(store: TestStore) {
    let records: Vec<Record> = (0..32).map(|number| new_rule(&format!("rule {number}"))).collect();
    let ids: Vec<String> = records.iter().map(|record| format!("rule/{}", record.id)).collect();
    let act = |record: Record| {
        let store = store.clone();
        async move { as_caller(create_record(&store, &record)).await }
    };
    all_at_once(records.into_iter().map(act)).await;

    let entries = entries(&store, TEAM).await;
    assert_eq!(entries.iter().map(|entry| entry.seq).collect::<Vec<_>>(), (3..=34).collect::<Vec<_>>());
    let mut about: Vec<String> = entries.into_iter().map(|entry| entry.content.about).collect();
    about.sort();
    assert_eq!(about, ids);
}

pub(super) async fn pages_of_a_log_are_read_in_order(store: TestStore) {
    for number in 0..5 {
        create_record(&store, &new_rule(&format!("rule {number}"))).await;
    }

    let head = whole_log(&store, TEAM).await.ends.head;
    let page = store.audit_page(TEAM, 3, 2).await.unwrap();
    assert_eq!(page.rows.iter().map(|row| row.seq).collect::<Vec<_>>(), [4, 5]);
    assert_eq!((page.ends.head, head.seq), (head, 7));
    assert_eq!(store.audit_page(TEAM, 7, 2).await.unwrap(), AuditPage { rows: Vec::new(), ..page });
    let nobody = TeamId(next_id(T0));
    assert_eq!(store.audit_page(nobody, 0, 2).await.unwrap(), AuditPage::default());
}

pub(super) async fn a_name_is_resolved_outside_of_the_chain(store: TestStore) {
    let address = "ada@canary.test";
    let record = new_record(RecordKind::Suppression, address, "{}");
    as_caller(create_record(&store, &record)).await;
    let ids = [caller_address(), format!("suppression/{}", record.id), "nobody".to_owned()];
    let alias = |id: &str, name: &str| Alias { id: id.into(), name: name.into() };
    let names = store.audit_names(TEAM, &ids).await.unwrap();
    assert_eq!(names, [alias(&ids[0], "192.0.2.7"), alias(&ids[1], address)]);
    assert_eq!(store.audit_names(OTHER_TEAM, &ids).await.unwrap(), []);

    assert_eq!(store.forget_audit_name(OTHER_TEAM, address).await.unwrap(), 0);
    assert_eq!(store.forget_audit_name(TEAM, address).await.unwrap(), 1);

    assert_eq!(store.audit_names(TEAM, &ids).await.unwrap(), [alias(&ids[0], "192.0.2.7")]);
    let page = whole_log(&store, TEAM).await;
    let has_address = |bytes: &[u8]| bytes.windows(6).any(|window| window == b"canary" || window == b"192.0.");
    assert!(!page.rows.iter().any(|row| has_address(&row.entry)));
}

pub(super) async fn an_expired_log_is_verified_from_its_start(store: TestStore) {
    for number in 0..6 {
        let created_at = Time(T0.0 + number * HOUR);
        create_record(&store, &Record { created_at, ..new_rule(&format!("rule {number}")) }).await;
    }
    let before = whole_log(&store, TEAM).await;

    assert_eq!(store.prune_audit(TEAM, T0.plus(2 * HOUR), 3).await.unwrap(), 3);
    assert_eq!(store.prune_audit(TEAM, T0.plus(2 * HOUR), 3).await.unwrap(), 1);
    assert_eq!(store.prune_audit(TEAM, T0.plus(2 * HOUR), 3).await.unwrap(), 0);

    let after = whole_log(&store, TEAM).await;
    assert_eq!((after.ends.start, after.ends.head), (before.rows[3].link(), before.ends.head));
    assert_eq!(after.rows, before.rows[4..]);
    assert_eq!(store.prune_audit(TEAM, T0.plus(DAY), 100).await.unwrap(), 4);
    create_record(&store, &new_rule("later")).await;
    let page = whole_log(&store, TEAM).await;
    assert_eq!((page.ends.start, page.rows[0].seq), (before.ends.head, 9));
}

pub(super) async fn names_go_with_the_entries_that_used_them(store: TestStore) {
    let suppression = |number: i64| {
        let name = format!("ada{number}@canary.test");
        Record { created_at: Time(T0.0 + number * HOUR), ..new_record(RecordKind::Suppression, &name, "{}") }
    };
    let person = new_record(RecordKind::Person, "Ada", r#"{"name":"Ada"}"#);
    for record in [&suppression(0), &person, &suppression(3)] {
        as_caller(create_record(&store, record)).await;
    }
    let known = async |names: &[&str]| {
        let all: Vec<Alias> = store.audit_name_page(TEAM, "", 100).await.unwrap();
        names.iter().map(|name| all.iter().any(|alias| alias.name == *name)).collect::<Vec<_>>()
    };
    let names = ["ada0@canary.test", "Ada", "ada3@canary.test", "192.0.2.7"];
    assert_eq!(known(&names).await, [true; 4]);

    assert!(store.prune_audit(TEAM, T0.plus(2 * HOUR), 100).await.unwrap() >= 2);
    assert_eq!(known(&names).await, [false, true, true, true], "the person acts, and the address called later, too");

    assert_eq!(store.prune_audit(TEAM, T0.plus(DAY), 100).await.unwrap(), 1);
    assert_eq!(known(&names).await, [false, true, false, false]);
}

pub(super) async fn an_entry_has_an_event_if_the_team_asks_for_it(store: TestStore) {
    create_record(&store, &new_rule("silent")).await;
    let settings = new_record(RecordKind::Settings, TEAM_SETTINGS, r#"{"audit_events":true}"#);
    create_record(&store, &settings).await;
    create_record(&store, &new_rule("loud")).await;
    change_record(&store, &settings, r#"{"audit_events":false}"#).await;

    assert_eq!(event_kinds(&store).await, ["audit.recorded"; 2]);
    let event = &store.events(TEAM, 1, 10).await.unwrap()[0].event;
    let entry = &entries(&store, TEAM).await[2];
    let expected = serde_json::json!({ "seq": 5, "action": "rule.created", "about": entry.content.about });
    assert_eq!((&event.data, event.subject_id, entry.seq), (&expected, TEAM.0, 5));
}

pub(super) async fn a_new_team_begins_its_log(store: TestStore) {
    let team = TeamId(next_id(T0));
    let key = ApiKey {
        id: ApiKeyId(next_id(T0)),
        team,
        hash: [8; 32],
        details: ApiKeyDetails::unrestricted("first key", vec![ApiKeyScope::Admin]),
        created_at: T0,
        revoked_at: None,
        last_used_at: None,
    };
    let new = Team { id: team, name: "new".into(), created_at: T0, require_keys: false };
    for _ in 0..2 {
        let _created = as_caller(store.create_team(new.clone(), key.clone(), None)).await.unwrap();
    }

    let page = whole_log(&store, team).await;
    let actions: Vec<String> = page.rows.iter().map(|row| check_row(team, row).unwrap().content.action).collect();
    assert_eq!(actions, ["team.created", "api_key.created"]);
}

pub(super) async fn an_act_with_a_key_has_one_entry(store: TestStore) {
    let act = || Act::of_replayed_row(TEAM, "shop", TEAM.0);
    let record = async |digest| store.record_keyed_act(act(), new_operation("again", digest, T0), T0).await.unwrap();
    let before = store.audit_page(TEAM, 0, 1_000).await.unwrap().rows.len();
    assert_eq!(record(1).await, IdempotentResult::Done(()));
    assert_eq!(record(1).await, IdempotentResult::Replayed(b"answer 1".to_vec()));
    assert!(matches!(record(2).await, IdempotentResult::KeyMismatch(_)));

    let rows = store.audit_page(TEAM, 0, 1_000).await.unwrap().rows;
    assert_eq!(rows.len(), before + 1);
    assert_eq!(AuditEntry::decode(&rows[before].entry).unwrap().content.action, "outbox.row_replayed");
}

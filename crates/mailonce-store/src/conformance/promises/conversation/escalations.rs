//! Promises about what waits for a person: held emails, unknown outcomes, and escalations with their events.

use mailonce_core::{
    conversation::escalation::{
        Decision, DecisionRecord, Escalation, EscalationReason, EscalationState, EscalationSubject,
    },
    handoff::{action::HandoffActionStatus, lease::HandoffActionResult, reply::ReplyMeaning},
    id::{ApiKeyId, TeamId},
    operation::IdempotentResult,
    outbound::email::{EmailState, Guard},
    record::{CreateRecordResult, Record, RecordChangeResult, RecordKind},
};
use uuid::Uuid;

use crate::conformance::{
    HOUR, OTHER_TEAM, T0, TEAM, TestStore, accept_first, all_events, cancel_email, capture_due, event_kinds,
    fixtures::handoffs, keyed_email, keyless_email, load_email, new_operation, next_id,
};

pub(super) async fn a_held_email_is_released_once(store: TestStore) {
    let held = accept_first(&store, &keyed_email("k").held(Guard::Approval), T0).await;
    let (status, email) = handoffs::apply_action(&store, held.id, handoffs::release_of(Guard::Approval), T0).await;
    assert_eq!((status, email.state(), email.rev), (HandoffActionStatus::Done, EmailState::Queued, held.rev + 1));
    assert_eq!((email.guard, load_email(&store, held.id).await), (Some(Guard::Approval), email.clone()));
    assert_eq!(
        handoffs::apply_action(&store, held.id, handoffs::release_of(Guard::Approval), T0).await,
        (HandoffActionStatus::Unchanged, email)
    );
    assert_eq!(event_kinds(&store).await, ["email.held", "email.released"]);
    assert_eq!(capture_due(&store, 10, T0).await, 1);
}

pub(super) async fn an_email_with_two_holds_leaves_after_both_are_removed(store: TestStore) {
    let fixture = keyed_email("k").held(Guard::Approval).held(Guard::LooksDuplicate);
    let held = accept_first(&store, &fixture, T0).await;
    assert_eq!(held.holds.to_column().as_deref(), Some("approval,looks_duplicate"));
    assert_eq!((held.guard, load_email(&store, held.id).await), (Some(Guard::Approval), held.clone()));
    let (status, email) = handoffs::apply_action(&store, held.id, handoffs::release_of(Guard::Approval), T0).await;
    assert_eq!((status, email.state()), (HandoffActionStatus::Done, EmailState::Held));
    assert_eq!((email.guard, load_email(&store, held.id).await), (Some(Guard::LooksDuplicate), email));
    assert_eq!(capture_due(&store, 10, T0).await, 0);
    let _again = handoffs::apply_action(&store, held.id, handoffs::release_of(Guard::Approval), T0).await;
    assert_eq!(capture_due(&store, 10, T0).await, 0, "removing the same hold twice does not remove the other");
    let (_, email) = handoffs::apply_action(&store, held.id, handoffs::release_of(Guard::LooksDuplicate), T0).await;
    assert_eq!((email.state(), email.holds.is_empty()), (EmailState::Queued, true));
    assert_eq!(event_kinds(&store).await, ["email.held", "email.hold_removed", "email.released"]);
    assert_eq!(capture_due(&store, 10, T0).await, 1);
}

pub(super) async fn only_held_emails_can_be_released(store: TestStore) {
    let queued = accept_first(&store, &keyed_email("k"), T0).await;
    let gone = accept_first(&store, &keyless_email().held(Guard::Cap), T0).await;
    let gone = cancel_email(&store, gone.id, T0).await;
    for email in [queued, gone] {
        assert_eq!(
            handoffs::apply_action(&store, email.id, handoffs::release_of(Guard::Cap), T0).await,
            (HandoffActionStatus::Unchanged, email)
        );
    }
    let theirs = accept_first(&store, &keyless_email().team(OTHER_TEAM).held(Guard::Cap), T0).await;
    let missing = store.apply_action(TEAM, theirs.id, handoffs::release_of(Guard::Cap), None, T0).await.unwrap();
    assert_eq!(missing, IdempotentResult::Done(HandoffActionResult::Missing));
}

pub(super) async fn a_released_scheduled_email_keeps_its_due_time(store: TestStore) {
    let due = T0.plus(HOUR);
    let held = accept_first(&store, &keyed_email("k").held(Guard::Approval).due(due), T0).await;
    let _released = handoffs::apply_action(&store, held.id, handoffs::release_of(Guard::Approval), T0).await;
    assert_eq!(capture_due(&store, 10, due.plus(-1)).await, 0);
    assert_eq!(capture_due(&store, 10, due).await, 1);
}

pub(super) async fn held_and_unknown_emails_of_all_teams_are_listed_in_order(store: TestStore) {
    let theirs = accept_first(&store, &keyless_email().team(OTHER_TEAM).held(Guard::Cap), T0).await;
    let _queued = accept_first(&store, &keyless_email().via_transport("relay"), T0).await;
    let lost = handoffs::accept_with_unknown_outcome(&store, &keyed_email("k")).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(accept_first(&store, &keyless_email().held(Guard::Approval), T0).await.id);
    }
    let apart =
        accept_first(&store, &keyless_email().to(&["a@e.test", "b@e.test"]).separate_envelopes().held(Guard::Cap), T0)
            .await;
    let _gone = cancel_email(&store, held.remove(1), T0).await;
    let wanted: Vec<_> = [lost.id, held[0], held[1], apart.id]
        .map(|id| (TEAM, id))
        .into_iter()
        .chain([(OTHER_TEAM, theirs.id)])
        .collect();

    let mut found = Vec::new();
    while let page = store.held_or_unknown_emails(found.last().copied(), 2).await.unwrap()
        && !page.is_empty()
    {
        assert!(page.len() <= 2 && found.len() < 5, "pages advance: {found:?}");
        for email in page {
            assert_eq!(store.email(email.team, email.id).await.unwrap().as_ref(), Some(&email));
            found.push((email.team, email.id));
        }
    }
    assert_eq!(found, wanted);
    assert_eq!(store.held_or_unknown_emails(None, 100).await.unwrap().len(), 5);

    let _answered = handoffs::record_attempt(&store, &lost, ReplyMeaning::Accepted, T0).await;
    let _released = handoffs::apply_action(&store, apart.id, handoffs::release_of(Guard::Cap), T0).await;
    assert_eq!(store.held_or_unknown_emails(None, 100).await.unwrap().len(), 3);
}

fn new_escalation() -> Escalation {
    let subject = EscalationSubject { question: Some("May I?".into()), ..EscalationSubject::default() };
    Escalation::open(EscalationReason::Asked, subject, None)
}

fn escalation_record(team: TeamId, escalation: &Escalation) -> Record {
    let json = serde_json::to_string(escalation).unwrap();
    let (kind, name) = (RecordKind::Escalation, escalation.dedup_name());
    Record { team, kind, id: next_id(T0), name, rev: 1, created_at: T0, json }
}

async fn change_escalation(store: &TestStore, record: &Record, escalation: &Escalation) -> RecordChangeResult {
    let edit = record.edit(serde_json::to_string(escalation).unwrap());
    match store
        .change_record(edit, Some(new_operation(&format!("op{}", record.rev), 1, T0)), T0.plus(HOUR))
        .await
        .unwrap()
    {
        IdempotentResult::Done(change) => change,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn an_escalation_emits_an_event_when_it_opens_and_when_it_is_resolved(store: TestStore) {
    let mut escalation = new_escalation();
    let record = escalation_record(TEAM, &escalation);
    for _ in 0..2 {
        let created = store.create_record(record.clone(), None).await.unwrap();
        assert_eq!(created, IdempotentResult::Done(CreateRecordResult::Created(record.clone())));
    }
    let again = self::escalation_record(TEAM, &escalation);
    assert!(matches!(
        store.create_record(again, None).await.unwrap(),
        IdempotentResult::Done(CreateRecordResult::NameTaken(_))
    ));
    assert_eq!(event_kinds(&store).await, ["escalation.opened"]);

    let by = Some(ApiKeyId(Uuid::from_u128(9)));
    assert!(escalation.decide(DecisionRecord {
        decision: Decision::Reject,
        at: T0,
        by,
        person: None,
        reason: None,
        edit: None,
        shown: None
    }));
    let RecordChangeResult::Changed(resolved) = change_escalation(&store, &record, &escalation).await else { panic!() };
    assert_eq!(event_kinds(&store).await, ["escalation.opened", "escalation.resolved"]);
    let event = all_events(&store, TEAM).await.pop().unwrap().event;
    assert_eq!((event.subject_id, event.rev, event.at), (record.id, 2, T0.plus(HOUR)));
    assert_eq!((&event.data["state"], &event.data["as"]), (&"resolved".into(), &"reject".into()));

    escalation.executed_at = Some(T0);
    let stale = store.change_record(record.edit(record.json.clone()), None, T0);
    assert_eq!(stale.await.unwrap(), IdempotentResult::Done(RecordChangeResult::Stale(resolved.clone())));
    assert!(matches!(change_escalation(&store, &resolved, &escalation).await, RecordChangeResult::Changed(_)));
    assert_eq!(all_events(&store, TEAM).await.len(), 2, "carrying out the decision emits no event");
}

pub(super) async fn escalation_events_come_only_from_escalation_records(store: TestStore) {
    let mut escalation = new_escalation();
    let other = Record { kind: RecordKind::Domain, ..escalation_record(TEAM, &escalation) };
    let _created = store.create_record(other.clone(), None).await.unwrap();
    escalation.state = EscalationState::Moot;
    assert!(matches!(change_escalation(&store, &other, &escalation).await, RecordChangeResult::Changed(_)));
    assert!(all_events(&store, TEAM).await.is_empty());
    let theirs = escalation_record(OTHER_TEAM, &escalation);
    let _created = store.create_record(theirs, None).await.unwrap();
    assert_eq!((all_events(&store, TEAM).await.len(), all_events(&store, OTHER_TEAM).await.len()), (0, 1));
}

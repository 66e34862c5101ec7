//! Promises about what waits for a person: held emails that are let go, what is stuck, and questions that are told.

use mailonce_core::{
    conversation::escalation::{Decided, Decision, Escalation, EscalationState, Matter, Reason},
    dispatch::{Act, Verdict},
    email::{EmailState, Guard},
    id::{ApiKeyId, TeamId},
    port::{
        store::{Acted, Once},
        transport::Meaning,
    },
    record::{Created, Record, RecordChange, RecordKind},
};
use uuid::Uuid;

use super::{
    HOUR, Ledger, OTHER, T0, TEAM, accepted, cancelled, capture, events, keyed, keyless, kinds, next_id, operation,
    the, work,
};

pub(super) async fn a_held_email_is_let_go_once(store: Ledger) {
    let held = accepted(&store, &keyed("k").held(Guard::Approval), T0).await;
    let (verdict, email) = work::act(&store, held.id, Act::Release, T0).await;
    assert_eq!((verdict, email.state(), email.rev), (Verdict::Done, EmailState::Queued, held.rev + 1));
    assert_eq!((email.guard, the(&store, held.id).await), (Some(Guard::Approval), email.clone()));
    assert_eq!(work::act(&store, held.id, Act::Release, T0).await, (Verdict::Unchanged, email));
    assert_eq!(kinds(&store).await, ["email.held", "email.released"]);
    assert_eq!(capture(&store, 10, T0).await, 1);
}

pub(super) async fn only_what_is_held_is_let_go(store: Ledger) {
    let queued = accepted(&store, &keyed("k"), T0).await;
    let gone = accepted(&store, &keyless().held(Guard::Cap), T0).await;
    let gone = cancelled(&store, gone.id, T0).await;
    for email in [queued, gone] {
        assert_eq!(work::act(&store, email.id, Act::Release, T0).await, (Verdict::Unchanged, email));
    }
    let theirs = accepted(&store, &keyless().team(OTHER).held(Guard::Cap), T0).await;
    let missing = store.act(TEAM, theirs.id, Act::Release, None, T0).await.unwrap();
    assert_eq!(missing, Once::Done(Acted::Missing));
}

pub(super) async fn what_was_wished_for_later_is_let_go_for_later(store: Ledger) {
    let due = T0.plus(HOUR);
    let held = accepted(&store, &keyed("k").held(Guard::Approval).due(due), T0).await;
    let _released = work::act(&store, held.id, Act::Release, T0).await;
    assert_eq!(capture(&store, 10, due.plus(-1)).await, 0);
    assert_eq!(capture(&store, 10, due).await, 1);
}

pub(super) async fn stuck_emails_of_all_teams_are_listed_in_order(store: Ledger) {
    let theirs = accepted(&store, &keyless().team(OTHER).held(Guard::Cap), T0).await;
    let _queued = accepted(&store, &keyless().by("relay"), T0).await;
    let lost = work::lost(&store, &keyed("k")).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(accepted(&store, &keyless().held(Guard::Approval), T0).await.id);
    }
    let apart = accepted(&store, &keyless().to(&["a@e.test", "b@e.test"]).apart().held(Guard::Cap), T0).await;
    let _gone = cancelled(&store, held.remove(1), T0).await;
    let wanted: Vec<_> =
        [lost.id, held[0], held[1], apart.id].map(|id| (TEAM, id)).into_iter().chain([(OTHER, theirs.id)]).collect();

    let mut found = Vec::new();
    while let page = store.stuck(found.last().copied(), 2).await.unwrap()
        && !page.is_empty()
    {
        assert!(page.len() <= 2 && found.len() < 5, "pages go on: {found:?}");
        for email in page {
            assert_eq!(store.email(email.team, email.id).await.unwrap().as_ref(), Some(&email));
            found.push((email.team, email.id));
        }
    }
    assert_eq!(found, wanted);
    assert_eq!(store.stuck(None, 100).await.unwrap().len(), 5);

    let _answered = work::answer(&store, &lost, Meaning::Accepted, T0).await;
    let _released = work::act(&store, apart.id, Act::Release, T0).await;
    assert_eq!(store.stuck(None, 100).await.unwrap().len(), 3);
}

fn question() -> Escalation {
    let about = Matter { question: Some("May I?".into()), ..Matter::default() };
    Escalation::open(Reason::Asked, about, None)
}

fn record(team: TeamId, question: &Escalation) -> Record {
    let about = serde_json::to_string(question).unwrap();
    let (kind, name) = (RecordKind::Escalation, question.name());
    Record { team, kind, id: next_id(T0), name, rev: 1, created_at: T0, about }
}

async fn change(store: &Ledger, record: &Record, says: &Escalation) -> RecordChange {
    let edit = record.edit(serde_json::to_string(says).unwrap());
    match store.change_record(edit, Some(operation(&format!("op{}", record.rev), 1, T0)), T0.plus(HOUR)).await.unwrap()
    {
        Once::Done(change) => change,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn a_question_is_told_when_it_opens_and_when_it_ends(store: Ledger) {
    let mut question = question();
    let record = record(TEAM, &question);
    for _ in 0..2 {
        let made = store.create_record(record.clone(), None).await.unwrap();
        assert_eq!(made, Once::Done(Created::Made(record.clone())));
    }
    let again = self::record(TEAM, &question);
    assert!(matches!(store.create_record(again, None).await.unwrap(), Once::Done(Created::Taken(_))));
    assert_eq!(kinds(&store).await, ["escalation.opened"]);

    let by = Some(ApiKeyId(Uuid::from_u128(9)));
    assert!(question.decide(Decided { decision: Decision::Reject, at: T0, by, reason: None, edit: None, shown: None }));
    let RecordChange::Changed(resolved) = change(&store, &record, &question).await else { panic!() };
    assert_eq!(kinds(&store).await, ["escalation.opened", "escalation.resolved"]);
    let told = events(&store, TEAM).await.pop().unwrap().event;
    assert_eq!((told.about, told.rev, told.at), (record.id, 2, T0.plus(HOUR)));
    assert_eq!((&told.data["state"], &told.data["as"]), (&"resolved".into(), &"reject".into()));

    question.done_at = Some(T0);
    let stale = store.change_record(record.edit(record.about.clone()), None, T0);
    assert_eq!(stale.await.unwrap(), Once::Done(RecordChange::Stale(resolved.clone())));
    assert!(matches!(change(&store, &resolved, &question).await, RecordChange::Changed(_)));
    assert_eq!(events(&store, TEAM).await.len(), 2, "that it was done is not told again");
}

pub(super) async fn only_questions_are_told(store: Ledger) {
    let mut question = question();
    let other = Record { kind: RecordKind::Domain, ..record(TEAM, &question) };
    let _made = store.create_record(other.clone(), None).await.unwrap();
    question.state = EscalationState::Moot;
    assert!(matches!(change(&store, &other, &question).await, RecordChange::Changed(_)));
    assert!(events(&store, TEAM).await.is_empty());
    let theirs = record(OTHER, &question);
    let _made = store.create_record(theirs, None).await.unwrap();
    assert_eq!((events(&store, TEAM).await.len(), events(&store, OTHER).await.len()), (0, 1));
}

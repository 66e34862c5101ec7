//! Promises about erasing: what is removed with a row, what stays, and that other rows and teams are untouched.

use mailonce_core::{
    access::{
        call_origin::Alias,
        team::{ApiKey, ApiKeyDetails, ApiKeyScope},
    },
    claims::{
        ClaimClock, ClaimQuery, LostHolderPolicy, ResultPresence,
        acquire::{AcquireAnswer, NewClaim},
        action::{ClaimAction, ReportedResult},
        offer::{NewOffer, OfferAnswer},
    },
    control::{
        erasure::{AddressEraser, is_alias},
        stop::{Stop, StopAuthor, StopMode, StopScope},
        typed_text::TypedText,
    },
    conversation::thread::ThreadEdit,
    events::endpoint::EndpointStart,
    handoff::EvidenceFinding,
    id::{ApiKeyId, ClaimId, StopId, TeamId},
    inbound::delivery::{DeliveryOutcome, DeliveryState, DeliverySuppression},
    inbox::{artifact::ArtifactKind, message::MessageQuery},
    key::{InstallSecret, Key, KeyHash},
    limits,
    ports::erasure_store::{EraseClaimResult, EraseEmailResult},
    record::{CreateRecordResult, Record, RecordKind},
    ttl::Ttl,
};
use serde_json::json;

use crate::conformance::{
    DAY, MINUTE, OTHER_TEAM, SECOND, T0, TEAM, TestStore, accept_and_send, accept_email, accept_first, accept_replay,
    all_events, cancel_email, event_kinds,
    fixtures::{
        conversations::inbox_with_message,
        emails::next_id,
        handoffs::{accept_and_mark, apply_action, new_evidence},
        inbound::{
            all_messages, consume_request, created_inbox, file_duplicate, file_new, finish_delivery, load_delivery,
            new_delivery, new_inbox, new_message, open_inbox, receive_all, receive_one, with_artifacts,
        },
        search::{found, index_all},
        webhooks::{create_endpoint, load_endpoint, new_endpoint},
    },
    given_key_hash, intent_email, keyed_email, keyless_email, load_detail, load_email,
};
use mailonce_core::{handoff::action::HandoffAction, operation::IdempotentResult};

const ZOE: &str = "zoe@person.test";

fn eraser_of(team: TeamId) -> AddressEraser {
    AddressEraser::new(&InstallSecret([7; 32]), team, ZOE)
}

async fn erase(store: &TestStore, id: mailonce_core::id::EmailId) -> EraseEmailResult {
    store.erase_email(&eraser_of(TEAM), id).await.unwrap()
}

pub(super) async fn an_erased_email_keeps_its_key_and_nothing_else(store: TestStore) {
    let fixture = keyed_email("for zoe").to(&[ZOE, "bob@example.com"]).text("a secret word").with_call_id("zoe-1");
    let email = accept_and_send(&store, &fixture, T0).await;
    let fact = new_evidence(EvidenceFinding::Delivered, Some("zoe@person.test 1"), T0);
    apply_action(&store, email.id, HandoffAction::AddEvidence(fact), T0).await;
    index_all(&store).await;
    assert_eq!(found(&store, "secret").await.len(), 1);

    assert_eq!(erase(&store, email.id).await, EraseEmailResult::Erased);

    let detail = load_detail(&store, email.id).await;
    let (head, alias) = (&detail.email.head, eraser_of(TEAM).alias().to_owned());
    assert!(is_alias(&alias));
    assert_eq!((&head.to, head.subject.as_str()), (&vec!["bob@example.com".to_owned(), alias.clone()], ""));
    assert_eq!((head.call.is_none(), detail.body, detail.email.digest.is_keyed()), (true, None, true));
    assert!(detail.email.handoffs.iter().all(|handoff| !handoff.recipients.iter().any(|to| to == ZOE)));
    assert!(detail.evidence.iter().all(|fact| fact.detail.is_empty()), "{:?}", detail.evidence);
    assert!(!format!("{:?}", detail.evidence).contains(ZOE), "{:?}", detail.evidence);
    for text in ["secret", "hello", "to:zoe", "to:bob"] {
        assert_eq!(found(&store, text).await, [], "{text}");
    }
    // A retry finds the email by its key, as before.
    assert_eq!(accept_replay(&store, &fixture, T0.plus(SECOND)).await.id, email.id);
    assert!(store.key(TEAM, given_key_hash(TEAM, "for zoe"), T0).await.unwrap().is_some());
    // Erasing it again, and for another person, changes nothing more of it.
    assert_eq!(erase(&store, email.id).await, EraseEmailResult::Erased);
    assert_eq!(load_email(&store, email.id).await.head.to, ["bob@example.com".to_owned(), alias]);
}

pub(super) async fn an_email_in_doubt_is_not_erased(store: TestStore) {
    let job = accept_and_mark(&store, &keyless_email().to(&[ZOE])).await;
    assert_eq!(erase(&store, job.id).await, EraseEmailResult::NotSettled);
    let queued = accept_first(&store, &keyless_email().to(&[ZOE]), T0).await;
    assert_eq!(erase(&store, queued.id).await, EraseEmailResult::NotSettled);
    assert_eq!(load_email(&store, job.id).await.head.to, [ZOE]);
    cancel_email(&store, queued.id, T0).await;
    assert_eq!(erase(&store, queued.id).await, EraseEmailResult::Erased);
}

pub(super) async fn keys_of_an_erased_email_are_released_in_time(store: TestStore) {
    let both = intent_email("o", &[ZOE, "bob@example.com"]).ttl(DAY);
    let email = accept_first(&store, &both, T0).await;
    cancel_email(&store, email.id, T0).await;
    assert_eq!(erase(&store, email.id).await, EraseEmailResult::Erased);
    store.sweep(100, T0.plus(limits::BODY_RETENTION_MS + limits::TOMBSTONE_MS + 2 * DAY)).await.unwrap();
    assert!(store.email(TEAM, email.id).await.unwrap().is_none(), "it is deleted like any other email");
    let later = T0.plus(3_000 * DAY);
    for fixture in [&both, &intent_email("o", &[ZOE])] {
        let accepted = accept_email(&store, fixture, later).await;
        let mailonce_core::outbound::accept::AcceptResult::First(email) = accepted else { panic!("{accepted:?}") };
        cancel_email(&store, email.id, later).await;
    }
}

/// A request for the claim of an invoice for the person.
fn invoice_for_zoe() -> NewClaim {
    NewClaim {
        id: ClaimId(next_id(T0)),
        team: TEAM,
        key: Key::parse(&format!("invoice-{ZOE}")).unwrap(),
        intent: None,
        fingerprint: Some(format!("100 EUR from {ZOE}")),
        holder: None,
        label: Some(format!("for {ZOE}")),
        api_key: None,
        lease_ms: MINUTE,
        ttl: Ttl(DAY),
        begins_now: true,
        on_unknown: LostHolderPolicy::Hold,
    }
}

pub(super) async fn an_erased_claim_keeps_its_key_and_nothing_else(store: TestStore) {
    let clock = ClaimClock { now: T0, policy: Some(T0) };
    let NewClaim { id, team, key, .. } = invoice_for_zoe();
    let offer = NewOffer { id, team, key: key.clone(), digest: "d".into(), payload: ZOE.into() };
    let _offered = store.offer_claim(offer.clone(), clock).await.unwrap();
    let erase = async |team| store.erase_claim(&eraser_of(team), id).await.unwrap();
    assert_eq!(erase(TEAM).await, EraseClaimResult::NotEnded, "a worker needs its payload");
    let won = store.acquire_claim(invoice_for_zoe(), clock).await.unwrap();
    let AcquireAnswer::Won(token) = won.answer else { panic!("{won:?}") };
    assert_eq!(erase(TEAM).await, EraseClaimResult::NotEnded, "its holder has it");
    let action = ClaimAction::Complete { token, result: ReportedResult::Stored(ZOE.into()) };
    let _completed = store.apply_claim_action(TEAM, id, action, None, clock).await.unwrap();

    let others = [(OTHER_TEAM, EraseClaimResult::Missing), (TEAM, EraseClaimResult::Erased)];
    for (team, erased) in others.into_iter().chain([(TEAM, EraseClaimResult::Erased)]) {
        assert_eq!(erase(team).await, erased);
    }

    let (claim, result) = store.claim(TEAM, id).await.unwrap().unwrap();
    assert_eq!((claim.result, result), (ResultPresence::Omitted, None));
    assert_eq!(store.claim_payload(TEAM, id).await.unwrap(), None);
    assert!(!format!("{claim:?}").contains("zoe"), "{claim:?}");
    let query = ClaimQuery { key: Some(KeyHash::of_claim(TEAM, &key)), limit: 10, ..ClaimQuery::default() };
    assert_eq!(store.claims(TEAM, query).await.unwrap(), [claim], "it is still found by the text of its key");
    let retried = store.acquire_claim(invoice_for_zoe(), clock).await.unwrap();
    assert_eq!((retried.answer, retried.claim.unwrap().id, retried.result), (AcquireAnswer::Ended, id, None));
    let other = NewClaim { fingerprint: Some("200 EUR".into()), ..invoice_for_zoe() };
    assert_eq!(store.acquire_claim(other, clock).await.unwrap().answer, AcquireAnswer::Mismatch);
    assert_eq!(store.offer_claim(offer, clock).await.unwrap().answer, OfferAnswer::Offered);
    assert_eq!(store.forget_claims(10, T0.plus(3_000 * DAY)).await.unwrap(), 1, "it is forgotten like any other");
    let again = store.acquire_claim(invoice_for_zoe(), clock).await.unwrap().claim.unwrap();
    assert_eq!(again.bind_number, 2);
}

pub(super) async fn an_erased_message_is_gone_and_stays_known(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let message = || with_artifacts(new_message(Some(1), 1), &[(ArtifactKind::Code, 7)]);
    let (first, artifacts) = file_new(&store, &inbox, message(), T0).await;
    let (other, _) = file_new(&store, &inbox, new_message(Some(2), 2), T0).await;
    index_all(&store).await;

    assert!(store.erase_message(TEAM, first.id, T0.plus(1)).await.unwrap());

    assert!(store.message(TEAM, first.id).await.unwrap().is_none());
    assert!(store.raw_message(TEAM, first.id).await.unwrap().is_none());
    assert!(store.artifact(TEAM, artifacts[0].id).await.unwrap().is_none());
    let query = MessageQuery { limit: 10, ..MessageQuery::default() };
    let listed: Vec<_> = all_messages(&store, &inbox, query).await.iter().map(|message| message.id).collect();
    assert_eq!(listed, [other.id]);
    assert_eq!(store.thread(TEAM, first.thread).await.unwrap().unwrap().details.subject, "");
    assert_eq!(found(&store, "täg").await.len(), 1);
    let delivery = load_delivery(&store, first.delivery).await;
    assert_eq!((delivery.details.recipient.as_str(), delivery.details.sender.clone()), ("", None));
    let (_, (known, why)) = file_duplicate(&store, &inbox, message(), T0.plus(2)).await;
    assert_eq!((known, why), (first.id, DeliverySuppression::SameMessage), "the same mail makes no second message");
    assert!(!store.erase_message(TEAM, first.id, T0.plus(3)).await.unwrap());
    assert!(!store.erase_message(OTHER_TEAM, other.id, T0.plus(3)).await.unwrap());
}

pub(super) async fn bodies_and_bytes_are_dropped_before_their_time(store: TestStore) {
    let fixture = keyed_email("k").text("a secret word");
    let email = accept_first(&store, &fixture, T0).await;
    let inbox = open_inbox(&store, "a@d.test").await;
    let (message, _) = file_new(&store, &inbox, new_message(Some(1), 1), T0).await;
    index_all(&store).await;
    assert_eq!(store.drop_bodies(TEAM, T0, 10).await.unwrap(), 0, "it has not settled");
    cancel_email(&store, email.id, T0).await;
    assert_eq!(store.drop_bodies(TEAM, T0.plus(-1), 10).await.unwrap(), 0, "it settled later");
    for (team, dropped) in [(OTHER_TEAM, false), (TEAM, true), (TEAM, false)] {
        assert_eq!(store.drop_bodies(team, T0, 10).await.unwrap(), usize::from(dropped));
        assert_eq!(store.drop_message_bytes(team, message.id).await.unwrap(), dropped);
    }
    assert_eq!(load_detail(&store, email.id).await.body, None);
    assert_eq!(store.raw_message(TEAM, message.id).await.unwrap(), None);
    assert_eq!(store.message(TEAM, message.id).await.unwrap().unwrap().head, message.head);
    assert_eq!(found(&store, "secret").await, []);
    assert_eq!(found(&store, "täg").await.len(), 1, "the subject is still found");
    assert_eq!(accept_replay(&store, &fixture, T0.plus(SECOND)).await.id, email.id);
}

pub(super) async fn bodies_are_dropped_in_bounded_steps(store: TestStore) {
    let mut emails = Vec::new();
    for (number, size) in [(1, 10), (2, 10), (3, 100_000), (4, 10)] {
        let fixture = keyed_email(&format!("k{number}")).text(&format!("{number}").repeat(size));
        let email = accept_first(&store, &fixture, T0).await;
        if number < 4 {
            cancel_email(&store, email.id, T0.plus(number)).await;
        }
        emails.push(email.id);
    }

    let mut dropped = Vec::new();
    for _ in 0..3 {
        dropped.push(store.drop_bodies(TEAM, T0.plus(SECOND), 2).await.unwrap());
    }

    assert_eq!(dropped, [2, 1, 0], "a body that is gone is not due again");
    for (number, id) in (1..).zip(emails) {
        assert_eq!(load_detail(&store, id).await.body.is_some(), number == 4, "email {number}");
    }
}

pub(super) async fn the_bytes_of_dead_deliveries_are_dropped(store: TestStore) {
    let (inbox, second) = (open_inbox(&store, "a@d.test").await, open_inbox(&store, "b@d.test").await);
    let mut dead = Vec::new();
    for number in 0..3 {
        let at = T0.plus(number);
        // One mail for two inboxes: the other one still needs its bytes.
        let (for_it, for_other) = (new_delivery(&inbox, at), new_delivery(&second, at));
        dead.push((for_it.id, for_other.id));
        receive_all(&store, vec![for_it, for_other], at).await;
        finish_delivery(&store, dead[dead.len() - 1].0, DeliveryOutcome::Dead("broken".into()), at).await;
    }
    let before = load_delivery(&store, dead[0].0).await;

    assert_eq!(store.drop_dead_mail(OTHER_TEAM, None, T0.plus(1), 10).await.unwrap(), 0);
    assert_eq!(store.drop_dead_mail(TEAM, Some(second.id), T0.plus(1), 10).await.unwrap(), 0, "its mail waits");
    let mut dropped = Vec::new();
    for of_inbox in [Some(inbox.id), None, None] {
        dropped.push(store.drop_dead_mail(TEAM, of_inbox, T0.plus(1), 1).await.unwrap());
    }

    assert_eq!(dropped, [1, 1, 0], "the last one came later");
    for (number, (id, other)) in dead.into_iter().enumerate() {
        let has_bytes = async |id| store.delivery_bytes(TEAM, id).await.unwrap().is_some();
        assert_eq!((has_bytes(id).await, has_bytes(other).await), (number == 2, true), "mail {number}");
        let replayed = store.replay_delivery(TEAM, id, T0.plus(SECOND)).await.unwrap().unwrap();
        assert_eq!(replayed.state == DeliveryState::Waiting, number == 2, "mail {number}");
    }
    assert_eq!(load_delivery(&store, before.id).await, before);
}

pub(super) async fn texts_of_others_lose_the_address(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let message = with_artifacts(new_message(Some(1), 1), &[(ArtifactKind::Code, 7)]);
    let (message, artifacts) = file_new(&store, &inbox, message, T0).await;
    let edit = ThreadEdit { labels: Some(vec![format!("about {ZOE}"), "open".into()]), ..ThreadEdit::default() };
    let _changed = store.change_thread(TEAM, message.thread, edit, T0).await.unwrap();
    let request = consume_request(&format!("sign-up of {ZOE}"));
    let _consumed = store.consume_artifact(TEAM, artifacts[0].id, request, None, T0).await.unwrap();
    let (eraser, other) = (eraser_of(TEAM), eraser_of(OTHER_TEAM));

    for (eraser, is_named) in [(&other, false), (&eraser, true), (&eraser, false)] {
        assert_eq!(store.redact_thread(eraser, message.thread).await.unwrap(), is_named);
        let redacted = store.redact_consumers(eraser, inbox.id, message.id).await.unwrap();
        assert_eq!(redacted, usize::from(is_named));
    }

    let thread = store.thread(TEAM, message.thread).await.unwrap().unwrap();
    assert_eq!(thread.details.labels, [format!("about {}", eraser.alias()), "open".into()]);
    let artifact = store.artifact(TEAM, artifacts[0].id).await.unwrap().unwrap();
    assert_eq!(artifact.consumption.unwrap().purpose, format!("sign-up of {}", eraser.alias()));
}

pub(super) async fn texts_that_people_typed_lose_the_address(store: TestStore) {
    let (api_key, stop) = (ApiKeyId(next_id(T0)), StopId(next_id(T0)));
    let details = ApiKeyDetails::unrestricted(&format!("for {ZOE}"), vec![ApiKeyScope::Read]);
    let (created_at, hash) = (T0, [77; 32]);
    let key = ApiKey { id: api_key, team: TEAM, hash, details, created_at, revoked_at: None, last_used_at: None };
    let _created = store.create_api_key(key.clone(), None).await.unwrap();
    let by = StopAuthor { api_key: None, name: "tests".into() };
    let (scope, reason) = (StopScope::ApiKey { team: TEAM, id: api_key }, Some(format!("{ZOE} asked")));
    let stop = Stop { id: stop, scope, mode: StopMode::Wait, reason, by, created_at, release: None };
    let _created = store.create_stop(stop.clone(), None, T0).await.unwrap();
    let mut endpoint = new_endpoint(TEAM, &["*"]);
    endpoint.config.description = format!("mail of {}", ZOE.to_uppercase());
    let endpoint = create_endpoint(&store, &endpoint, EndpointStart::NextEvent).await;
    let mut inbox = new_inbox("a@d.test");
    inbox.settings.name = Some(format!("Desk of {ZOE}"));
    inbox.settings.metadata.insert("url".into(), "https://shop.test/?to=zoe%40person.test".into());
    let inbox = created_inbox(&store, &inbox).await;
    let other_inbox = open_inbox(&store, "b@d.test").await;

    for (team, count) in [(OTHER_TEAM, 0), (TEAM, 1), (TEAM, 0)] {
        for kind in TypedText::ALL {
            assert_eq!(store.redact_typed_texts(&eraser_of(team), kind).await.unwrap(), count, "{kind:?}");
        }
    }

    let alias = eraser_of(TEAM).alias().to_owned();
    let keys = store.api_keys(TEAM).await.unwrap();
    let redacted = keys.into_iter().find(|key| key.id == api_key).unwrap();
    let details = ApiKeyDetails { name: format!("for {alias}"), ..key.details.clone() };
    assert_eq!(redacted, ApiKey { details, ..key });
    let stops = store.stops(Some(TEAM)).await.unwrap();
    assert_eq!(stops, [Stop { reason: Some(format!("{alias} asked")), ..stop }]);
    let redacted = load_endpoint(&store, endpoint.id).await;
    assert_eq!((redacted.config.description, redacted.rev), (format!("mail of {alias}"), endpoint.rev + 1));
    let redacted = store.inbox(TEAM, inbox.id).await.unwrap().unwrap();
    assert_eq!((redacted.settings.name, redacted.rev), (Some(format!("Desk of {alias}")), inbox.rev + 1));
    assert_eq!(redacted.settings.metadata["url"], format!("https://shop.test/?to={alias}"));
    assert_eq!(store.inbox(TEAM, other_inbox.id).await.unwrap(), Some(other_inbox));
}

pub(super) async fn a_thread_is_removed_when_its_messages_are(store: TestStore) {
    let (inbox, message) = inbox_with_message(&store).await;
    assert!(!store.remove_thread(TEAM, message.thread, T0).await.unwrap(), "it has a message");
    assert!(store.erase_message(TEAM, message.id, T0).await.unwrap());
    assert!(!store.remove_thread(OTHER_TEAM, message.thread, T0).await.unwrap());
    assert!(store.remove_thread(TEAM, message.thread, T0).await.unwrap());
    assert!(store.thread(TEAM, message.thread).await.unwrap().is_none());
    assert!(!store.remove_thread(TEAM, message.thread, T0).await.unwrap());
    let (later, _) = file_new(&store, &inbox, new_message(Some(9), 9), T0).await;
    assert!(store.thread(TEAM, later.thread).await.unwrap().is_some());
}

pub(super) async fn a_delivery_without_a_message_is_removed(store: TestStore) {
    let inbox = open_inbox(&store, "a@d.test").await;
    let waiting = receive_one(&store, new_delivery(&inbox, T0), T0).await;
    assert!(store.delivery_bytes(TEAM, waiting).await.unwrap().is_some());
    assert!(!store.remove_delivery(TEAM, waiting).await.unwrap(), "a waiting delivery is still processed");
    finish_delivery(&store, waiting, DeliveryOutcome::Dead("unreadable".into()), T0).await;
    assert_eq!(load_delivery(&store, waiting).await.state, DeliveryState::Dead);
    assert!(!store.remove_delivery(OTHER_TEAM, waiting).await.unwrap());
    assert!(store.remove_delivery(TEAM, waiting).await.unwrap());
    assert!(store.delivery(TEAM, waiting).await.unwrap().is_none());
    assert!(store.delivery_bytes(TEAM, waiting).await.unwrap().is_none());
    let (message, _) = file_new(&store, &inbox, new_message(Some(1), 1), T0).await;
    assert!(!store.remove_delivery(TEAM, message.delivery).await.unwrap(), "it goes with its message");
}

pub(super) async fn a_replaced_record_has_another_name_and_no_entry(store: TestStore) {
    let record = Record {
        team: TEAM,
        kind: RecordKind::Suppression,
        id: next_id(T0),
        name: ZOE.into(),
        rev: 1,
        created_at: T0,
        json: "{}".into(),
    };
    let created = store.create_record(record.clone(), None).await.unwrap();
    assert!(matches!(created, IdempotentResult::Done(CreateRecordResult::Created(_))));
    let entries = store.audit_page(TEAM, 0, 100).await.unwrap().rows.len();
    let replacement = Record { name: "alias".into(), json: r#"{"a":1}"#.into(), ..record };
    assert!(store.replace_record(&replacement).await.unwrap());
    assert!(!store.replace_record(&replacement).await.unwrap(), "it has another revision by now");
    let kind = RecordKind::Suppression;
    assert!(store.record_by_name(TEAM, kind, ZOE).await.unwrap().is_none());
    let found = store.record_by_name(TEAM, kind, "alias").await.unwrap().unwrap();
    assert_eq!((found.id, found.rev, found.json.as_str()), (replacement.id, 2, r#"{"a":1}"#));
    assert_eq!(store.audit_page(TEAM, 0, 100).await.unwrap().rows.len(), entries);
}

pub(super) async fn only_the_data_of_an_event_is_replaced(store: TestStore) {
    for number in 0..5 {
        accept_first(&store, &keyed_email(&format!("key {number}")), T0.plus(number)).await;
    }
    let before = all_events(&store, TEAM).await;
    store
        .replace_event_data(TEAM, vec![(2, json!({ "n": 2 })), (5, json!({ "n": 5 })), (900, json!(9))])
        .await
        .unwrap();
    let after = all_events(&store, TEAM).await;
    assert_eq!(before.len(), after.len());
    for (was, is) in before.iter().zip(&after) {
        assert_eq!((was.id(), was.seq, was.event.kind), (is.id(), is.seq, is.event.kind));
        let expected = if [2, 5].contains(&is.seq) { json!({ "n": is.seq }) } else { was.event.data.clone() };
        assert_eq!(is.event.data, expected, "event {}", is.seq);
    }
    store.replace_event_data(OTHER_TEAM, vec![(1, json!({ "n": 1 }))]).await.unwrap();
    assert_eq!(all_events(&store, TEAM).await, after, "events of another team stay");
    assert_eq!(event_kinds(&store).await.len(), 5, "erasing is no event");
}

pub(super) async fn names_of_the_log_are_paged(store: TestStore) {
    for number in 0..3 {
        let name = format!("n{number}@example.com");
        let (kind, id) = (RecordKind::Rule, next_id(T0));
        let record = Record { team: TEAM, kind, id, name, rev: 1, created_at: T0, json: "{}".into() };
        let _created = store.create_record(record, None).await.unwrap();
    }
    let (mut after, mut names) = (String::new(), Vec::new());
    loop {
        let page: Vec<Alias> = store.audit_name_page(TEAM, &after, 2).await.unwrap();
        names.extend(page.iter().map(|alias| alias.name.clone()));
        match page.last() {
            Some(last) => after.clone_from(&last.id),
            None => break,
        }
    }
    names.retain(|name| name.ends_with("@example.com"));
    names.sort_unstable();
    assert_eq!(names, ["n0@example.com", "n1@example.com", "n2@example.com"]);
    store.overwrite_freed_storage().await.unwrap();
    assert_eq!(store.forget_audit_name(TEAM, "n1@example.com").await.unwrap(), 1);
}

//! Promises about offered claims: what their worker gets, and what a repeated offer does.

use mailonce_core::{
    claims::{
        Claim, ClaimState, ClaimToken,
        acquire::{AcquireAnswer, AcquireResult, NewClaim},
        action::ClaimActionStatus,
        offer::{ClaimOffer, NewOffer, OfferAnswer, OfferResult, payload_digest},
    },
    control::stop::{Stop, StopMode, StopScope},
    exact_json::ExactJson,
    id::ClaimId,
    key::Key,
    time::Time,
    ttl::{self, Ttl},
};
use serde_json::json;

use super::holders::{acquire, apply, begin, claim_to_begin_later, clock, complete, load, new_claim, stop_of, win};
use crate::conformance::{
    HOUR, MINUTE, OTHER_TEAM, SECOND, T0, TEAM, TestStore, all_at_once, event_kinds, fixtures::emails::next_id,
};

const DAY: i64 = 24 * HOUR;

fn new_offer(key: &str, invoice: u32) -> NewOffer {
    let payload = ExactJson::parse(&json!({ "invoice": invoice }).to_string()).unwrap();
    NewOffer {
        id: ClaimId(next_id(T0)),
        team: TEAM,
        key: Key::parse(key).unwrap(),
        digest: payload_digest(&payload).unwrap(),
        payload: payload.as_str().as_bytes().to_vec(),
    }
}

async fn offer(store: &TestStore, new: NewOffer, now: Time) -> Claim {
    match store.offer_claim(new, clock(now)).await.unwrap() {
        OfferResult { answer: OfferAnswer::Offered, claim: Some(claim) } => claim,
        other => panic!("{other:?}"),
    }
}

async fn payload(store: &TestStore, id: ClaimId) -> Option<Vec<u8>> {
    store.claim_payload(TEAM, id).await.unwrap()
}

/// Wins a claim, and returns the payload that came with it.
async fn win_payload(store: &TestStore, new: NewClaim, now: Time) -> (ClaimToken, Option<Vec<u8>>) {
    match acquire(store, new, now).await {
        AcquireResult { answer: AcquireAnswer::Won(token), payload, .. } => (token, payload),
        other => panic!("{other:?}"),
    }
}

pub(super) async fn of_32_concurrent_offers_one_makes_the_claim(store: TestStore) {
    let offers = (0..32).map(|_| {
        let (store, new) = (store.clone(), new_offer("invoice-7", 7));
        async move { offer(&store, new, T0).await }
    });
    let claims = all_at_once(offers).await;
    assert!(claims.iter().all(|claim| claim.id == claims[0].id), "one claim");
    let claim = load(&store, claims[0].id).await;
    assert_eq!((claim.state, claim.lease.clone(), claim.fence), (ClaimState::Claimed, None, 0));
    assert!(claim.is_free());
    assert_eq!(event_kinds(&store).await, ["claim.offered"]);
}

pub(super) async fn the_holder_of_an_offered_claim_gets_its_payload(store: TestStore) {
    let offered = offer(&store, new_offer("invoice-7", 7), T0).await;
    let (first, with) = win_payload(&store, claim_to_begin_later("invoice-7"), T0).await;
    assert_eq!(with, Some(new_offer("invoice-7", 7).payload));

    let later = T0.plus(MINUTE);
    let (second, with) = win_payload(&store, new_claim("invoice-7"), later).await;
    assert_eq!(with, Some(new_offer("invoice-7", 7).payload), "the lease of the first holder has ended");
    assert_eq!((first.fence, second.fence), (1, 2));
    apply(&store, offered.id, complete(second, b"17"), later).await;
    assert_eq!(payload(&store, offered.id).await, Some(new_offer("invoice-7", 7).payload));
    let (plain, _) = win(&store, new_claim("without"), T0).await;
    assert_eq!(payload(&store, plain.id).await, None);
}

pub(super) async fn another_payload_under_the_same_key_is_a_mismatch(store: TestStore) {
    let offered = offer(&store, new_offer("invoice-7", 7), T0).await;
    let other = store.offer_claim(new_offer("invoice-7", 8), clock(T0)).await.unwrap();
    assert_eq!(other, OfferResult { answer: OfferAnswer::Mismatch, claim: Some(offered.clone()) });
    assert_eq!(load(&store, offered.id).await, offered);
    assert_eq!(payload(&store, offered.id).await, Some(new_offer("invoice-7", 7).payload));
}

pub(super) async fn a_repeated_offer_changes_nothing(store: TestStore) {
    let offered = offer(&store, new_offer("invoice-7", 7), T0).await;
    assert_eq!(offer(&store, new_offer("invoice-7", 7), T0.plus(HOUR)).await, offered);
    let (token, _) = win_payload(&store, new_claim("invoice-7"), T0).await;
    let (_, done) = apply(&store, offered.id, complete(token, b"17"), T0).await;
    let again = offer(&store, new_offer("invoice-7", 7), T0.plus(HOUR)).await;
    let offered_again = again.offer.clone().map(|offer| ClaimOffer { at: T0.plus(HOUR), ..offer });
    assert_eq!(again, Claim { offer: offered_again, rev: done.rev + 1, ..done });
    assert_eq!(load(&store, offered.id).await, again);
    assert_eq!(acquire(&store, new_claim("invoice-7"), T0).await.answer, AcquireAnswer::Ended);
    assert_eq!(event_kinds(&store).await, ["claim.offered", "claim.begun", "claim.completed"]);
}

pub(super) async fn a_claim_without_a_payload_gets_that_of_an_offer(store: TestStore) {
    let (early, token) = win(&store, claim_to_begin_later("invoice-7"), T0).await;
    let offered = offer(&store, new_offer("invoice-7", 7), T0.plus(SECOND)).await;
    assert_eq!((offered.id, offered.lease.clone()), (early.id, early.lease), "its holder keeps it");
    assert_eq!(apply(&store, early.id, begin(token), T0.plus(SECOND)).await.0, ClaimActionStatus::Applied);
    assert_eq!(payload(&store, early.id).await, Some(new_offer("invoice-7", 7).payload));

    let (ended, token) = win(&store, new_claim("invoice-8"), T0).await;
    apply(&store, ended.id, complete(token, b"17"), T0).await;
    let offered = offer(&store, new_offer("invoice-8", 8), T0.plus(SECOND)).await;
    assert_eq!((offered.id, offered.state), (ended.id, ClaimState::Completed), "it is not done again");
}

pub(super) async fn a_stop_refuses_an_offer_or_its_worker(store: TestStore) {
    let refusing = Stop { mode: StopMode::Refuse, ..stop_of(StopScope::Team(TEAM)) };
    let _created = store.create_stop(refusing.clone(), None, T0).await.unwrap();
    let refused = store.offer_claim(new_offer("invoice-7", 7), clock(T0)).await.unwrap();
    assert!(matches!(refused, OfferResult { answer: OfferAnswer::Stopped(_), claim: None }), "{refused:?}");
    store.end_stop(Some(TEAM), refusing.id, None, T0).await.unwrap();

    let waiting = Stop { mode: StopMode::Wait, ..stop_of(StopScope::Team(TEAM)) };
    let _created = store.create_stop(waiting, None, T0).await.unwrap();
    let offered = offer(&store, new_offer("invoice-7", 7), T0).await;
    let stopped = acquire(&store, new_claim("invoice-7"), T0).await;
    assert!(matches!(stopped.answer, AcquireAnswer::Stopped(_)), "{stopped:?}");
    assert!(load(&store, offered.id).await.is_free());
}

pub(super) async fn an_offered_claim_is_kept_for_its_worker_and_its_row(store: TestStore) {
    let offered = offer(&store, new_offer("invoice-7", 7), T0).await;
    win(&store, claim_to_begin_later("invoice-7"), T0).await;
    let late = T0.plus(2 * ttl::MAX_MS);
    store.apply_claim_deadlines(100, clock(late)).await.unwrap();
    assert_eq!(store.forget_claims(100, late).await.unwrap(), 0, "nobody began it");

    let brief = NewClaim { ttl: Ttl(SECOND), ..new_claim("invoice-7") };
    let (token, _) = win_payload(&store, brief, late).await;
    apply(&store, offered.id, complete(token, b"17"), late).await;
    assert_eq!(store.forget_claims(100, late.plus(35 * DAY - 1)).await.unwrap(), 0);
    assert_eq!(store.forget_claims(100, late.plus(35 * DAY)).await.unwrap(), 1);
    assert_eq!(payload(&store, offered.id).await, None);

    // A claim that ended long before the row came: the row finds it for 35 days from its first offer.
    let (old, token) = win(&store, NewClaim { ttl: Ttl(40 * DAY), ..new_claim("invoice-8") }, T0).await;
    apply(&store, old.id, complete(token, b"17"), T0).await;
    offer(&store, new_offer("invoice-8", 8), T0.plus(39 * DAY)).await;
    assert_eq!(store.forget_claims(100, T0.plus((39 + 35) * DAY - 1)).await.unwrap(), 0);

    // A second row with the same key comes just before the claim is forgotten. It may be offered again until it is marked.
    let second_row = T0.plus((39 + 40) * DAY - 1);
    offer(&store, new_offer("invoice-8", 8), second_row).await;
    assert_eq!(store.forget_claims(100, second_row.plus(40 * DAY - 1)).await.unwrap(), 0);
    let again = offer(&store, new_offer("invoice-8", 8), second_row.plus(MINUTE)).await;
    assert_eq!((again.id, again.state), (old.id, ClaimState::Completed));
    assert_eq!(store.forget_claims(100, second_row.plus(MINUTE + 40 * DAY)).await.unwrap(), 1);
}

pub(super) async fn an_offer_belongs_to_its_team(store: TestStore) {
    let offered = offer(&store, new_offer("invoice-7", 7), T0).await;
    assert_eq!(store.claim_payload(OTHER_TEAM, offered.id).await.unwrap(), None);
    let other = NewOffer { team: OTHER_TEAM, ..new_offer("invoice-7", 8) };
    assert_ne!(offer(&store, other, T0).await.id, offered.id);
}

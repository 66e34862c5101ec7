//! The erasure of claims: nothing in them names the person, and their retries are still answered.

use serde_json::json;

use super::erasures::{ADDRESS, NAME, SUBJECT, TEXT, erase, run};
use crate::fixtures::api_fixture::World;

/// Claims about the person: one is completed, one has failed, and one is free again.
pub(super) async fn plant_claims(world: &World) {
    let reason = format!("{NAME} does not answer at {ADDRESS}");
    for (key, verb, mut report) in [
        (format!("invoice-{ADDRESS}"), "complete", json!({ "result": { "to": ADDRESS, "text": TEXT } })),
        (format!("refund {ADDRESS}"), "fail", json!({ "retryable": false, "reason": reason })),
        ("call-17".to_owned(), "fail", json!({ "retryable": true, "reason": reason })),
    ] {
        let intent = json!({ "type": "contact", "entity": format!("{NAME} {key}") });
        let fingerprint = format!("{SUBJECT}: {TEXT}");
        let claim = json!({ "key": key, "intent": intent, "label": NAME, "fingerprint": fingerprint, "lease_s": 60 });
        let won = world.post("/v1/claims", &claim).await.expect_status(201);
        report["token"] = won["token"].clone();
        world.post(&format!("/v1/claims/{}/{verb}", won.string_field("id")), &report).await.expect_status(200);
    }
}

over_every_engine! {
    async fn an_erased_claim_still_answers_its_retries(world) {
        let claim = |fingerprint: &str| json!({ "key": format!("invoice-{ADDRESS}"), "fingerprint": fingerprint, "lease_s": 60 });
        let won = world.post("/v1/claims", &claim("100 EUR")).await.expect_status(201);
        let erasure = erase(&world, ADDRESS).await;
        let running = run(&world, &erasure).await;
        assert_eq!((&running["stage"], &running["in_doubt"]), (&json!("waiting"), &json!(1)), "its holder still has it: {running}");
        let report = json!({ "token": won["token"], "result": { "for": ADDRESS } });
        world.post(&format!("/v1/claims/{}/complete", won.string_field("id")), &report).await.expect_status(200);
        let done = run(&world, &erasure).await;
        assert_eq!((&done["state"], &done["in_doubt"], &done["counts"]["claims"]), (&json!("done"), &json!(0), &json!(1)), "{done}");

        let retried = world.post("/v1/claims", &claim("100 EUR")).await.expect_status(200);
        assert_eq!((&retried["id"], &retried["state"], &retried["result_omitted"]), (&won["id"], &json!("completed"), &json!(true)));
        assert!(!retried.text.contains(ADDRESS) && retried.body.get("result").is_none(), "{}", retried.text);
        assert!(!world.get("/v1/events").await.expect_status(200).text.contains(ADDRESS));
        world.post("/v1/claims", &claim("200 EUR")).await.expect_problem(422, "key_mismatch");
    }
}

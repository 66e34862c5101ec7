//! Makes the example of a response agree with its operation: an email is cancelled after `cancel`, and a `200` of a send
//! is a replay. It never changes the shape of an example.

use serde_json::{Value, json};

/// When the attempt of a sent email ended.
const ENDED: &str = "2026-11-17T09:30:01.000Z";

/// Adjusts the example of one response.
pub(super) fn agree(operation: &str, status: &str, example: &mut Value) {
    let receipts: Vec<&mut Value> = match example.get_mut("data") {
        Some(Value::Array(items)) => items.iter_mut().collect(),
        _ => vec![&mut *example],
    };
    for receipt in receipts {
        if status == "200" && receipt.get("dedupe").is_some() {
            set(receipt, &[("/dedupe/outcome", json!("replayed")), ("/dedupe/suppressed", json!(1))]);
        }
    }
    match operation {
        "read_email" => fill_sent_example(example),
        "reschedule_email" => {
            example["scheduled_at"] = json!("2026-11-17T11:30:00.000Z");
            set(example, &[("/state", json!("scheduled")), ("/rev", json!(2))]);
        }
        "cancel_email" => set(example, &[("/state", json!("cancelled")), ("/rev", json!(2))]),
        "resolve_email" => set(example, &[("/state", json!("sent")), ("/rev", json!(2))]),
        "pause_endpoint" => set(example, &[("/state", json!("paused"))]),
        "resolve_escalation" => set(example, &[("/state", json!("resolved"))]),
        "pause_handoff" => set(example, &[("/state", json!("paused"))]),
        _ => agree_on_claim(operation, status, example),
    }
}

/// Changes the example into a sent email: one handoff, whose only attempt was accepted, and one repeated call.
fn fill_sent_example(email: &mut Value) {
    let reply =
        [("outcome", json!("accepted")), ("phase", json!("final")), ("code", json!(250)), ("ended_at", json!(ENDED))];
    if let Some(attempt) = email.pointer_mut("/handoffs/0/attempts/0") {
        reply.into_iter().for_each(|(name, value)| attempt[name] = value);
    }
    email["settled_at"] = json!(ENDED);
    email["evidence"] = json!([]);
    email["timeline"] = json!([
        { "at": "2026-11-17T09:30:00.000Z", "description": "accepted" },
        { "at": ENDED, "description": "final state: sent" },
    ]);
    let why = json!("nothing holds it");
    let states = [("/state", json!("sent")), ("/handoffs/0/state", json!("sent")), ("/suppressed", json!(1))];
    set(email, &states);
    set(email, &[("/rev", json!(3)), ("/policy/0/why", why)]);
}

fn agree_on_claim(operation: &str, status: &str, example: &mut Value) {
    let (state, completions) = match (operation, status) {
        ("list_claims" | "read_claim" | "complete_claim" | "add_claim_evidence" | "resolve_claim", _)
        | ("create_claim", "200") => ("completed", 1),
        ("begin_claim" | "renew_claim", _) => ("begun", 0),
        ("fail_claim", _) => ("failed", 0),
        _ => return,
    };
    let place = if operation == "list_claims" { "/data/0" } else { "" };
    if let Some(claim) = example.pointer_mut(place) {
        set(claim, &[("/state", json!(state)), ("/completions", json!(completions))]);
    }
}

/// Replaces the values at these places. One that the example does not have stays absent.
fn set(example: &mut Value, values: &[(&str, Value)]) {
    for (place, value) in values {
        if let Some(found) = example.pointer_mut(place) {
            value.clone_into(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::api::openapi::{document, examples::sent_key};

    fn example(path: &str, method: &str, status: &str) -> Value {
        document()["paths"][path][method]["responses"][status]["content"]["application/json"]["example"].clone()
    }

    #[test]
    fn the_first_answer_of_a_send_and_that_of_its_retry_differ() {
        for path in ["/v1/emails", "/v1/emails/{id}/resend", "/v1/messages/{id}/reply", "/v1/messages/{id}/forward"] {
            let (first, replay) = (example(path, "post", "202"), example(path, "post", "200"));
            assert_eq!(
                (&first["dedupe"]["outcome"], &first["dedupe"]["suppressed"]),
                (&json!("first"), &json!(0)),
                "{path}"
            );
            assert_eq!(
                (&replay["dedupe"]["outcome"], &replay["dedupe"]["suppressed"]),
                (&json!("replayed"), &json!(1)),
                "{path}"
            );
            assert_eq!((&first["id"], &first["state"]), (&replay["id"], &json!("queued")), "{path}");
            assert_eq!(first["dedupe"]["key"], sent_key(), "{path}");
        }
        let outcome = |status| example("/v1/emails/batch", "post", status)["data"][0]["dedupe"]["outcome"].clone();
        assert_eq!((outcome("202"), outcome("200")), (json!("first"), json!("replayed")));
    }

    #[test]
    fn an_example_has_the_state_that_its_operation_leaves() {
        for (path, method, state) in [
            ("/v1/emails/{id}", "get", "sent"),
            ("/v1/emails/{id}", "patch", "scheduled"),
            ("/v1/emails/{id}/cancel", "post", "cancelled"),
            ("/v1/emails/{id}/resolve", "post", "sent"),
            ("/v1/endpoints/{id}/pause", "post", "paused"),
            ("/v1/escalations/{id}/resolve", "post", "resolved"),
            ("/v1/handoff/pause", "post", "paused"),
            ("/v1/claims/{id}/complete", "post", "completed"),
            ("/v1/claims/{id}/fail", "post", "failed"),
        ] {
            assert_eq!(example(path, method, "200")["state"], state, "{method} {path}");
        }
        let sent = example("/v1/emails/{id}", "get", "200");
        let attempt = &sent["handoffs"][0]["attempts"][0];
        assert_eq!((&sent["handoffs"][0]["state"], &attempt["outcome"]), (&json!("sent"), &json!("accepted")));
    }
}

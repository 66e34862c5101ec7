//! What mailonce posts to endpoints.

use mailonce_core::events::event::EventKind;
use serde_json::{Map, Value, json};

/// The `webhooks` member of the document: one entry for each type of event.
pub(super) fn describe() -> Value {
    let entry = |kind: &EventKind| {
        let operation = json!({ "post": {
            "operationId": format!("on_{}", kind.as_str().replace('.', "_")),
            "tags": ["endpoints"],
            "summary": format!("`{}`", kind.as_str()),
            "description": "Posted to every endpoint that asks for this type of event, signed as Standard Webhooks \
                            describes. It may arrive more than once: `webhook-id` is the same each time.",
            "security": [],
            "parameters": [
                header("webhook-id", "Id of the notice; the same for every attempt"),
                header("webhook-timestamp", "When it was sent, in seconds since 1970"),
                header("webhook-signature", "`v1,` and the base64 of an HMAC-SHA-256 over id, timestamp and body"),
            ],
            "requestBody": {
                "required": true,
                "content": { "application/json": { "schema": { "$ref": "#/components/schemas/EventBody" } } },
            },
            "responses": { "200": { "description": "Any status from 200 to 299 confirms it" } },
        } });
        (kind.as_str().to_owned(), operation)
    };
    Value::Object(EventKind::ALL.iter().map(entry).collect::<Map<_, _>>())
}

fn header(name: &str, about: &str) -> Value {
    json!({ "name": name, "in": "header", "required": true, "description": about, "schema": { "type": "string" } })
}

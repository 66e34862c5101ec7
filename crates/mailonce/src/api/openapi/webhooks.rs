//! What mailonce posts to endpoints.

use mailonce_core::events::event::EventKind;
use serde_json::{Map, Value, json};

/// The page on events. Its table says what each type means.
const PAGE: &str = include_str!("../../../../../docs/events.md");

/// What holds for every type.
const DELIVERY: &str = "Posted to every endpoint that asks for this type of event, signed as Standard Webhooks describes. \
                        It may arrive more than once: `webhook-id` is the same each time.";

/// The `webhooks` member of the document: one entry for each type of event.
pub(super) fn describe() -> Value {
    let entry = |kind: &EventKind| {
        let meaning = meaning(*kind);
        let mut body = json!({ "schema": { "$ref": "#/components/schemas/EventBody" } });
        if let Some(example) = example(*kind) {
            body["example"] = example;
        }
        let operation = json!({ "post": {
            "operationId": format!("on_{}", kind.as_str().replace('.', "_")),
            "tags": ["endpoints"],
            "summary": format!("`{}`", kind.as_str()),
            "description": format!("{meaning}\n\n{DELIVERY}"),
            "security": [],
            "parameters": [
                header("webhook-id", "Id of the notice; the same for every attempt"),
                header("webhook-timestamp", "When it was sent, in seconds since 1970"),
                header("webhook-signature", "`v1,` and the base64 of an HMAC-SHA-256 over id, timestamp and body"),
            ],
            "requestBody": { "required": true, "content": { "application/json": body } },
            "responses": { "200": { "description": "Any status from 200 to 299 confirms it" } },
        } });
        (kind.as_str().to_owned(), operation)
    };
    Value::Object(EventKind::ALL.iter().map(entry).collect::<Map<_, _>>())
}

fn header(name: &str, about: &str) -> Value {
    json!({ "name": name, "in": "header", "required": true, "description": about, "schema": { "type": "string" } })
}

/// What a type of event means: a sentence, from the table of the page.
fn meaning(kind: EventKind) -> String {
    let start = format!("| `{}` | ", kind.as_str());
    let row = PAGE.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_default();
    let text = without_links(row.trim_end_matches(" |"));
    let mut letters = text.chars();
    letters.next().map(|first| format!("{}{}.", first.to_uppercase(), letters.as_str())).unwrap_or_default()
}

/// The text with `[words](target)` replaced by the words.
fn without_links(text: &str) -> String {
    let mut parts = text.split('[');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once("](").and_then(|(words, rest)| Some((words, rest.split_once(')')?.1))) {
            Some((words, rest)) => plain.extend([words, rest]),
            None => plain.extend(["[", part]),
        }
    }
    plain
}

/// An event of an email that left. Other types have data of their own.
fn example(kind: EventKind) -> Option<Value> {
    let state = match kind {
        EventKind::EmailAccepted => "queued",
        EventKind::EmailSent => "sent",
        EventKind::EmailDelivered => "delivered",
        EventKind::EmailBounced => "bounced",
        EventKind::EmailComplained => "complained",
        EventKind::EmailFailed => "failed",
        EventKind::EmailUnknown => "unknown",
        EventKind::EmailCancelled => "cancelled",
        _ => return None,
    };
    let id = "0197a3c2-7d3e-7c11-9b1e-2f6d3a4b5c6d";
    Some(json!({
        "seq": 42,
        "cursor": "1-42",
        "id": "0197a3c2-8a10-7f02-8c44-51d0c2b7e913",
        "type": kind.as_str(),
        "at": "2026-11-17T09:30:00.000Z",
        "about": { "kind": kind.subject_type(), "id": id, "rev": 3 },
        "data": { "key": "order-4821-shipped", "state": state },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_of_event_says_what_it_means() {
        let mut meanings = std::collections::BTreeSet::new();
        for kind in EventKind::ALL {
            let meaning = meaning(*kind);
            assert!(meaning.len() > 10 && !meaning.contains("]("), "{}: {meaning}", kind.as_str());
            assert!(meanings.insert(meaning), "{} means the same as another", kind.as_str());
        }
        assert_eq!(without_links("a [claim](claims.md) of [x"), "a claim of [x");
    }

    #[test]
    fn the_examples_are_events_of_their_type() {
        let webhooks = describe();
        let body = |kind: &str| webhooks[kind]["post"]["requestBody"]["content"]["application/json"]["example"].clone();
        assert_eq!(
            (&body("email.sent")["data"]["state"], &body("email.sent")["type"]),
            (&json!("sent"), &json!("email.sent"))
        );
        assert!(
            webhooks["thread.leased"]["post"]["requestBody"]["content"]["application/json"].get("example").is_none()
        );
    }
}

//! Examples: for each operation a request and a response that fit its schema.
//!
//! They are derived from the schemas, so that they cannot lag behind. A reader copies them, so that the values are real
//! ones: the schema and the name of a property choose the value, and a test sends every example to a server. What depends
//! on the operation and on the status of its response is in `example_states`.

use mailonce_core::{address::Address, intent::Intent};
use serde_json::{Map, Value, json};

use super::{example_states, operations};

/// An id.
const ID: &str = "0197a3c2-7d3e-7c11-9b1e-2f6d3a4b5c6d";
/// A time.
const TIME: &str = "2026-11-17T09:30:00.000Z";
/// How deep an example goes. Schemas that contain each other would not end.
const MAX_DEPTH: usize = 12;

/// Adds an example to every request and every successful response with a JSON body.
pub(super) fn add_examples(document: &mut Value) {
    let schemas = document["components"]["schemas"].clone();
    let add = |content: &mut Value| {
        if let Some(json) = content.get_mut("application/json")
            && let Some(schema) = json.get("schema")
        {
            json["example"] = example(&schemas, schema, ("", ""), 0);
        }
    };
    for operation in operations(document) {
        if let Some(body) = operation.get_mut("requestBody") {
            add(&mut body["content"]);
        }
        let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
        let responses = operation["responses"].as_object_mut().into_iter().flatten();
        for (status, response) in responses.filter(|(status, _)| status.starts_with('2')) {
            if response.get("content").is_some() {
                add(&mut response["content"]);
            }
            if let Some(example) = response.pointer_mut("/content/application~1json/example") {
                example_states::agree(&id, status, example);
            }
        }
    }
}

/// The example of a schema. `place` is the schema and the property that it stands in.
fn example(schemas: &Value, schema: &Value, place: (&str, &str), depth: usize) -> Value {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = reference.rsplit('/').next().unwrap_or_default();
        let deeper = || example(schemas, &schemas[target], (target, place.1), depth + 1);
        return if depth >= MAX_DEPTH { json!({}) } else { deeper() };
    }
    if let Some(words) = schema["enum"].as_array().or_else(|| schema["x-extensible-enum"].as_array()) {
        return words.first().cloned().unwrap_or_default();
    }
    if let Some(parts) = schema["allOf"].as_array() {
        let objects = parts.iter().map(|part| example(schemas, part, place, depth));
        let members = objects.filter_map(|object| object.as_object().cloned()).flatten();
        return Value::Object(members.collect::<Map<_, _>>());
    }
    if let Some(parts) = schema["oneOf"].as_array() {
        let first = parts.iter().find(|part| part["type"] != "null");
        return first.map_or(Value::Null, |part| example(schemas, part, place, depth));
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        Value::String(one) => vec![one],
        _ => Vec::new(),
    };
    match types.first().copied() {
        Some("object") => object_example(schemas, schema, place.0, depth),
        Some("array") => {
            // An item may be a reference to an object, which needs room for its own properties.
            if depth + 4 >= MAX_DEPTH || is_usually_empty(place.1) {
                json!([])
            } else {
                json!([example(schemas, &schema["items"], place, depth + 1)])
            }
        }
        Some("integer") => json!(schema["minimum"].as_i64().unwrap_or(0).max(1)),
        Some("number") => json!(1.5),
        Some("boolean") => json!(false),
        Some("string") => json!(text_example(place.1, types.contains(&"null"))),
        _ => json!({}),
    }
}

/// Required properties, and of the others those that a reader expects. A nullable one is null unless its name says more.
fn object_example(schemas: &Value, schema: &Value, name: &str, depth: usize) -> Value {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema["properties"].as_object().into_iter().flatten();
    let member = |(property, schema): (&String, &Value)| {
        let is_shown =
            required.contains(&property.as_str()) || matches!(property.as_str(), "subject" | "text" | "intent");
        let derived = || is_shown.then(|| example(schemas, schema, (name, property), depth + 1));
        Some((
            property.clone(),
            value_in_schema(name, property).or_else(|| value_of_outcome(name, property)).or_else(derived)?,
        ))
    };
    Value::Object(properties.filter_map(member).collect::<Map<_, _>>())
}

/// A value that the name of the property alone does not tell. An optional property that has one is shown.
fn value_in_schema(schema: &str, property: &str) -> Option<Value> {
    Some(match (schema, property) {
        ("NewApiKeyBody", "scopes") => json!(["send", "read"]),
        ("NewApiKeyBody" | "ApiKeyBody", "name") => json!("billing agent"),
        ("NewBudgetBody" | "BudgetBody", "name") => json!("100 an hour"),
        ("NewBudgetBody" | "BudgetPatchBody" | "BudgetBody", "limit") => json!(100),
        ("NewBudgetBody" | "BudgetBody", "per") => json!("hour"),
        ("BudgetScopeBody" | "StopScopeBody", "team") => json!(true),
        ("NewStopBody", "reason") => json!("wrong prices in the last hour"),
        ("ClaimIntentBody", "type") => json!("invoice.create"),
        ("NewClaimBody" | "RenewClaimBody", "lease_s") => json!(60),
        ("ClaimTokenBody" | "CompleteClaimBody" | "FailClaimBody" | "RenewClaimBody" | "WonClaimBody", "token") => {
            json!("ct_1_1795080600000_5f3a9c1e7b2d48605f3a9c1e7b2d48605f3a9c1e")
        }
        ("CompleteClaimBody", "result") => json!({ "invoice": "inv_4821" }),
        ("FailClaimBody", "reason") => json!("the billing system is down"),
        ("DomainBody" | "NewDomainBody", "name") => json!("mail.example.com"),
        ("DnsRecordBody", "type") => json!("TXT"),
        ("DnsRecordBody", "value") => json!("v=spf1 include:example.com ~all"),
        ("EndpointPatchBody" | "EndpointBody", "description") => json!("orders service"),
        ("NewEndpointBody", "events") => json!(["email.*"]),
        ("HealthBody", "status") => json!("ok"),
        ("InboxPatchBody" | "NewInboxBody", "name") => json!("Support"),
        ("NewInboxBody", "username") => json!("support"),
        ("NewListEntryBody" | "ListEntryBody", "entry") => json!("example.com"),
        ("NewNotificationTargetBody" | "NotificationTargetBody", "name") => json!("on-call"),
        ("NewPersonBody" | "PersonBody", "name") => json!("Ada Lovelace"),
        ("NewPersonBody", "address") => json!("ada@example.com"),
        ("PersonPatchBody", "role") => json!("approver"),
        ("NewRuleBody" | "RuleBody", "name") => json!("ask before mail to the board"),
        ("NewRuleBody" | "RuleBody", "direction") => json!("outbound"),
        ("RuleActionBody", "type") => json!("approve"),
        ("RulePatchBody" | "BudgetPatchBody", "enabled") => json!(true),
        ("ConditionBody", "value") => json!("board.example.com"),
        ("NewSourceBody" | "SourceBody", "kind") => json!("postmark"),
        ("NewSourceBody" | "SourceBody", "name") => json!("postmark"),
        ("NewSourceBody", "accepts") => json!(["inbound"]),
        ("NewSourceBody" | "RotateSourceBody", "basic_auth") => {
            json!({ "username": "hook", "password": "a-secret-of-16-characters" })
        }
        ("SettingsPatchBody", "time_zone") => json!("Europe/Berlin"),
        ("NewTeamBody" | "TeamBody" | "TeamRefBody", "name") => json!("acme"),
        ("TeamPatchBody", "require_keys") => json!(true),
        ("NewTemplateBody" | "TemplateBody", "name") => json!("order-shipped"),
        ("ThreadPatchBody", "handled") => json!(true),
        ("ThreadPatchBody", "labels") => json!(["billing"]),
        ("RecoverBody", "since") => json!(TIME),
        ("ReleaseLeaseBody", "token") => json!("lt_5f3a9c1e7b2d48605f3a9c1e7b2d4860"),
        ("RerouteBody", "to") => json!("relay-2"),
        ("ProblemBody", "type") => json!("https://example.com/docs/errors/invalid_field"),
        ("ProblemBody" | "BatchItemError", "code") => json!("invalid_field"),
        ("TemplateErrorBody", "part") => json!("subject"),
        ("TransportBody", "kind") => json!("smtp"),
        ("TransportBody", "name") => json!("relay"),
        ("EventSubjectBody", "kind") => json!("email"),
        ("EventSubjectBody", "id") => json!(ID),
        ("UnsubscribeSettingsBody", "tags") => json!(["newsletter"]),
        ("ClaimReportBody", "says") => json!("done"),
        _ => return None,
    })
}

/// The same, for what happened to an email, a code, a row or a claim.
fn value_of_outcome(schema: &str, property: &str) -> Option<Value> {
    Some(match (schema, property) {
        ("BatchItemError", "field") => json!("to"),
        ("BatchItemError", "message") => json!("`to` must be an address such as name@example.com"),
        ("SendReceiptBody" | "EmailBody", "state") => json!("queued"),
        ("EmailBody" | "DedupeBody", "key") => json!(sent_key()),
        ("EmailBody" | "DedupeBody", "suppressed") => json!(0),
        ("ArtifactBody", "message") => json!(ID),
        ("ParkedRowBody", "detail") => json!("the key was used for a different email"),
        ("ClaimBody", "evidence") => json!([]),
        _ => return None,
    })
}

/// The key of the email in the examples, derived from its intent.
pub(super) fn sent_key() -> String {
    let (kind, entity) = ("order.shipped".to_owned(), "order_4821".to_owned());
    let to = Address::parse("ada@example.com").into_iter().collect::<Vec<_>>();
    Intent { kind, entity, version: 1, period: None }.derive_key(&to)
}

/// Whether a list in a response usually has no items.
fn is_usually_empty(property: &str) -> bool {
    let notes = matches!(property, "warnings" | "missing" | "unused" | "newer_messages" | "replies" | "holds");
    notes || matches!(property, "allow_ips" | "allowed_senders" | "allowed_link_domains" | "inboxes" | "headers")
}

/// A plausible text for a property of this name; `None` for one that is usually null.
fn text_example(name: &str, is_nullable: bool) -> Option<&'static str> {
    let known = match address_or_text(name).or_else(|| identifier(name)).or_else(|| fact(name)) {
        Some(known) => known,
        None if is_nullable => return None,
        None => "…",
    };
    // Times and links of nullable properties are usually set; reasons are not.
    let is_usually_null = is_nullable && matches!(name, "reason" | "name" | "html" | "next_cursor");
    (!is_usually_null).then_some(known)
}

fn address_or_text(name: &str) -> Option<&'static str> {
    Some(match name {
        "from" | "sender" => "bot@example.com",
        "to" | "cc" | "bcc" | "reply_to" | "recipient" | "recipients" | "address" => "ada@example.com",
        "subject" => "Your order 4821",
        "text" | "preview" | "snippet" => "It is on its way.",
        "html" => "<p>It is on its way.</p>",
        "question" => "May I refund order 4821?",
        "url" => "https://example.com/hooks/mailonce",
        "domain" | "redirect_host" => "example.com",
        "next" => "Accepted; it will be sent once, so do not send it again.",
        "reason" => "asked by the customer",
        "reply" | "response" => "250 2.0.0 Ok: queued",
        "description" | "detail" | "why" | "message" => "the next hop accepted the email",
        _ => return None,
    })
}

fn identifier(name: &str) -> Option<&'static str> {
    Some(match name {
        "key" => "order-4821-shipped",
        "message_id" => "<m1.4f2a@example.com>",
        "entity" => "order_4821",
        "type" => "order.shipped",
        "for" => "signup-7",
        "holder" | "by" => "billing-7",
        "cursor" | "next_cursor" | "event" => "1-42",
        "token" | "lease" => "lt_5f3a9c1e7b2d48605f3a9c1e7b2d4860",
        "api_key" => "mo_5f3a9c1e7b2d48605f3a9c1e7b2d4860",
        "secret_prefix" => "mo_5f3a",
        "secret" => "whsec_Xzqcnnsr0GBfOpweeytIYF86nB57LUhg",
        "csrf_token" | "downstream_key" | "hash" | "prev" | "alias" => "5f3a9c1e7b2d48605f3a9c1e7b2d4860",
        "hook_path" => "/hooks/0197a3c2-7d3e-7c11-9b1e-2f6d3a4b5c6d",
        "about" => "email/0197a3c2-7d3e-7c11-9b1e-2f6d3a4b5c6d",
        "id" | "person" | "team" | "endpoint" => ID,
        _ if name.ends_with("_id") => ID,
        _ => return None,
    })
}

fn fact(name: &str) -> Option<&'static str> {
    Some(match name {
        "time_zone" => "Europe/Berlin",
        "name" => "orders",
        // A time that has passed is no schedule.
        "scheduled_at" => "in 2 hours",
        "ttl" => "35d",
        "window" => "10m",
        "action" => "rule.changed",
        "field" => "recipient.domain",
        "value" => "4821",
        "transport" | "account" => "relay",
        "content_type" => "application/pdf",
        "dkim" | "spf" | "dmarc" => "pass",
        "masked" => "••••••",
        "flag" => "hidden_instruction",
        "labels" => "billing",
        "reasons" => "near the word code",
        "events" => "email.sent",
        "version" => "2026-11-17",
        "view" => "min",
        "stage" => "emails",
        "kind" => "email",
        "allowed_decisions" => "release",
        "scopes" => "send",
        "code" => "key_mismatch",
        _ if name.ends_with("_at") => TIME,
        "at" | "date" | "since" | "until" | "deadline" | "state_since" | "ledger_time" => TIME,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use crate::api::openapi::document;

    #[test]
    fn every_request_and_successful_response_in_json_has_an_example() {
        let (mut document, mut count) = (document().clone(), 0);
        for operation in super::operations(&mut document) {
            let name = operation["operationId"].as_str().unwrap_or_default().to_owned();
            let responses = operation["responses"].as_object().into_iter().flatten();
            let successful = responses.filter(|(status, _)| status.starts_with('2')).map(|(_, response)| response);
            for body in successful.chain(operation.get("requestBody")) {
                if let Some(json) = body.pointer("/content/application~1json") {
                    assert!(json.get("example").is_some_and(|example| !example.is_null()), "{name}");
                    count += 1;
                }
            }
        }
        assert!(count > 150, "{count} examples");
    }

    #[test]
    fn no_example_has_a_placeholder() {
        let mut document = document().clone();
        for operation in super::operations(&mut document) {
            let name = operation["operationId"].as_str().unwrap_or_default().to_owned();
            let mut contents = vec![&operation["requestBody"]["content"]["application/json"]["example"]];
            let responses = operation["responses"].as_object().into_iter().flatten();
            contents.extend(responses.map(|(_, response)| &response["content"]["application/json"]["example"]));
            for example in contents {
                assert!(!example.to_string().contains('…'), "{name}: {example}");
            }
        }
    }
}

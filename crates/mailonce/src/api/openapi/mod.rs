//! The OpenAPI document: built from the routes, then completed with what their types do not say.
//!
//! | file | what it holds |
//! |---|---|
//! | `vocabulary` | the words that a field may have |
//! | `examples` | an example for each operation |
//! | `example_states` | what the example of a response owes to its operation and status |
//! | `query_types` | the types of query parameters |
//! | `webhooks` | what mailonce posts to endpoints |

mod example_states;
mod examples;
mod query_types;
mod vocabulary;
mod webhooks;

use super::served_file::gzip;
use axum::body::Bytes;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use std::sync::LazyLock;

/// Tags in the order in which a reader needs them, with what they are about.
const TAGS: &[(&str, &str)] = &[
    ("emails", "Send emails once, and see what became of them."),
    ("keys", "Idempotency keys: which email has one, and for how long."),
    ("inboxes", "Addresses that receive mail for agents."),
    ("messages", "Received mail."),
    ("artifacts", "One-time codes and links in received mail, each taken once."),
    ("conversations", "Replies, threads and leases: one agent answers at a time."),
    ("escalations", "Questions for people: approvals and decisions."),
    ("search", "Full text over sent and received mail."),
    ("events", "What happened, as a list and as a stream."),
    ("endpoints", "Webhooks: where events are posted to."),
    ("claims", "Any other side effect, once."),
    ("outboxes", "Emails from transactions of your own database."),
    ("rules", "What is blocked, filed, labelled or held, and whom the team may write to."),
    ("budgets", "How much may be sent in a period."),
    ("templates", "Stored wording of emails, in versions."),
    ("stops", "Switches that keep email from leaving."),
    ("suppressions", "Addresses that the team does not send to."),
    ("erasures", "Removing a person's data."),
    ("audit", "Who changed what."),
    ("settings", "Settings of the team."),
    ("access", "API keys and teams."),
    ("people", "Who may see and decide: roles, sign-in links and sessions."),
    ("domains", "Domains that the team sends from."),
    ("sources", "Webhooks of providers that report deliveries and bring mail."),
    ("hooks", "Where those providers post to."),
    ("handoff", "For operators: transports, pauses and clocks."),
    ("system", "Health, metrics and documents."),
];

/// Error responses that operations share: status, name and description.
const PROBLEMS: &[(&str, &str, &str)] = &[
    ("400", "Malformed", "The request is malformed"),
    ("401", "Unauthorized", "The API key is missing or not valid"),
    ("403", "Forbidden", "The API key does not allow this"),
    ("404", "NotFound", "There is no such object or path"),
    ("408", "TooSlow", "The body did not arrive in time"),
    ("413", "TooLarge", "The request is too large"),
    ("415", "NotJson", "The body is not declared as JSON"),
    ("421", "Misdirected", "The server does not serve this host"),
    ("422", "Invalid", "A value is not valid, or a rule refuses the request"),
    ("429", "TooMany", "A rate limit or budget is exceeded"),
    ("500", "Internal", "Internal error"),
    ("503", "Unavailable", "The ledger is not available"),
];

/// Those that a call without an API key may get.
const PUBLIC_PROBLEMS: [&str; 4] = ["404", "421", "500", "503"];

/// The document, built once.
pub(super) fn document() -> &'static Value {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(build);
    &DOCUMENT
}

/// The document as it is committed: indented, with a final line break.
pub(super) fn pretty() -> String {
    let mut text = serde_json::to_string_pretty(document()).unwrap_or_default();
    text.push('\n');
    text
}

/// The document as it is served: without white space, also compressed, with its entity tag.
pub(super) struct ServedDocument {
    pub(super) plain: Bytes,
    pub(super) gzip: Bytes,
    pub(super) etag: String,
}

/// The document as it is served, built once.
pub(super) fn served() -> &'static ServedDocument {
    static SERVED: LazyLock<ServedDocument> = LazyLock::new(|| {
        let plain = Bytes::from(serde_json::to_vec(document()).unwrap_or_default());
        let digest = Sha256::digest(&plain);
        let etag = format!("\"{}\"", URL_SAFE_NO_PAD.encode(&digest[..12]));
        ServedDocument { gzip: gzip(&plain), plain, etag }
    });
    &SERVED
}

fn build() -> Value {
    let (_, document) = super::routes().split_for_parts();
    let mut document = serde_json::to_value(document).unwrap_or_default();
    document["info"] = json!({
        "title": "mailonce",
        "version": env!("CARGO_PKG_VERSION"),
        "summary": "Send each email once.",
        "description": "Idempotent sends, inboxes for agents, one reply at a time, and webhooks. A call with an \
                        `Idempotency-Key` can be repeated: it has an effect once, for as long as the key is remembered \
                        (35 days by default).",
        "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
    });
    document["servers"] = json!([
        { "url": "/", "description": "The server that serves this document" },
        { "url": "http://127.0.0.1:6245", "description": "`mailonce dev`" },
    ]);
    document["components"]["securitySchemes"] =
        json!({ "api_key": { "type": "http", "scheme": "bearer", "description": "An API key, `mo_…`" } });
    document["security"] = json!([{ "api_key": [] }]);
    document["tags"] = TAGS.iter().map(|(name, about)| json!({ "name": name, "description": about })).collect();
    share_problems(&mut document);
    mark_times(&mut document["components"]["schemas"]);
    open_objects(&mut document["components"]["schemas"]);
    mark_bytes(&mut document);
    vocabulary::add_words(&mut document["components"]["schemas"]);
    vocabulary::add_parameter_words(&mut document);
    query_types::add_query_types(&mut document);
    document["webhooks"] = webhooks::describe();
    examples::add_examples(&mut document);
    document
}

/// Defines the common error responses once, and refers to them from every operation.
fn share_problems(document: &mut Value) {
    let content = json!({ "application/problem+json": { "schema": { "$ref": "#/components/schemas/ProblemBody" } } });
    let shared = |(_, name, description): &(&str, &str, &str)| {
        ((*name).to_owned(), json!({ "description": description, "content": content }))
    };
    document["components"]["responses"] = Value::Object(PROBLEMS.iter().map(shared).collect::<Map<_, _>>());
    for operation in operations(document) {
        // Only operations that need no API key have an entry of their own.
        let is_public = operation.get("security").is_some();
        let Some(responses) = operation["responses"].as_object_mut() else { continue };
        for (status, name, _) in PROBLEMS.iter().filter(|(status, ..)| !is_public || PUBLIC_PROBLEMS.contains(status)) {
            let reference = || json!({ "$ref": format!("#/components/responses/{name}") });
            responses.entry(*status).or_insert_with(reference);
        }
    }
}

/// Every operation of the document.
fn operations(document: &mut Value) -> impl Iterator<Item = &mut Value> {
    let paths = document["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut());
    let methods = paths.filter_map(Value::as_object_mut).flat_map(|methods| methods.iter_mut());
    methods
        .filter(|(name, _)| matches!(name.as_str(), "get" | "post" | "patch" | "put" | "delete"))
        .map(|(_, operation)| operation)
}

/// Properties that hold a time, beside those whose names end with `_at`.
const TIMES: [&str; 6] = ["at", "date", "failing_since", "missing_since", "state_since", "ledger_time"];

/// Gives every property that holds a time the format of times. One that a caller may also write as a duration has none.
fn mark_times(schemas: &mut Value) {
    for_each_property(schemas, &mut |name, property| {
        let is_text = property["type"] == "string" || property["type"] == json!(["string", "null"]);
        if is_text && (TIMES.contains(&name) || (name.ends_with("_at") && name != "scheduled_at")) {
            property["format"] = json!("date-time");
        }
    });
    for (schema, property) in
        [("EmailBody", "scheduled_at"), ("WatchBody", "deadline"), ("StatsBody", "since"), ("StatsBody", "until")]
    {
        if let Some(found) = vocabulary::find_property(&mut schemas[schema], property) {
            found["format"] = json!("date-time");
        }
    }
}

/// Says that objects without declared members have members of any name. Code generators take them for empty otherwise.
fn open_objects(schemas: &mut Value) {
    for_each_property(schemas, &mut |_, property| {
        let value = if property["type"] == "array" { &mut property["items"] } else { property };
        let is_object = value["type"] == "object" || value["type"] == json!(["object", "null"]);
        if is_object && value.get("properties").is_none() && value.get("additionalProperties").is_none() {
            value["additionalProperties"] = json!(true);
        }
    });
}

/// Describes bodies that are not JSON as bytes, and not as a list of numbers.
fn mark_bytes(document: &mut Value) {
    for operation in operations(document) {
        let responses = operation["responses"].as_object_mut().into_iter().flatten();
        let contents = responses.filter_map(|(_, response)| response.get_mut("content")?.as_object_mut()).flatten();
        for (_, content) in contents.filter(|(name, _)| *name != "application/json") {
            if content["schema"]["type"] == "array" {
                content["schema"] = json!({ "type": "string", "format": "binary" });
            }
        }
    }
}

/// Visits the properties of all schemas, also those inside `allOf` and `oneOf`.
fn for_each_property(value: &mut Value, visit: &mut impl FnMut(&str, &mut Value)) {
    match value {
        Value::Object(members) => {
            if let Some(Value::Object(properties)) = members.get_mut("properties") {
                for (name, property) in properties {
                    visit(name, property);
                }
            }
            members.values_mut().for_each(|member| for_each_property(member, visit));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| for_each_property(item, visit)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn the_compressed_document_is_the_same_and_small() {
        let served = served();
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(&*served.gzip).read_to_end(&mut unpacked).unwrap();
        assert!(unpacked == served.plain);
        assert!(served.gzip.len() <= 60_000, "{} bytes", served.gzip.len());
    }

    #[test]
    fn every_time_has_the_format_of_times_and_every_free_object_has_members() {
        let mut schemas = document()["components"]["schemas"].clone();
        let mut has_format = |schema: &str, property: &str| {
            vocabulary::find_property(&mut schemas[schema], property).unwrap().get("format").is_some()
        };
        for (schema, property) in [
            ("WatchBody", "deadline"),
            ("EndpointBody", "failing_since"),
            ("EndpointBody", "state_since"),
            ("EmailBody", "scheduled_at"),
            ("StatsBody", "until"),
        ] {
            assert!(has_format(schema, property), "{schema}.{property}");
        }
        // Callers may write these as a duration.
        for (schema, property) in [("NewWatchBody", "deadline"), ("SendBody", "scheduled_at")] {
            assert!(!has_format(schema, property), "{schema}.{property}");
        }
        let detail = &schemas["EmailDetailBody"]["allOf"][1]["properties"];
        for object in [&schemas["EventBody"]["properties"]["data"], &detail["tags"], &detail["metadata"]] {
            assert_eq!(object["additionalProperties"], true, "{object}");
        }
    }

    #[test]
    fn every_operation_has_a_known_tag_and_every_tag_an_operation() {
        let mut document = document().clone();
        let tags: std::collections::BTreeSet<String> =
            operations(&mut document).map(|operation| operation["tags"][0].as_str().unwrap().to_owned()).collect();
        let known: std::collections::BTreeSet<String> = TAGS.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(tags, known);
    }
}

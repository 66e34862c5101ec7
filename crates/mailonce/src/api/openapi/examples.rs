//! Examples: for each operation a request and a response that fit its schema.
//!
//! They are derived from the schemas, so that they cannot lag behind. A reader needs plausible values, so the name of a
//! property chooses the value.

use serde_json::{Map, Value, json};

use super::operations;

/// How deep an example goes. Schemas that contain each other would not end.
const MAX_DEPTH: usize = 12;

/// Adds an example to every request and every successful response with a JSON body.
pub(super) fn add_examples(document: &mut Value) {
    let schemas = document["components"]["schemas"].clone();
    let add = |content: &mut Value| {
        if let Some(json) = content.get_mut("application/json")
            && let Some(schema) = json.get("schema")
        {
            json["example"] = example(&schemas, schema, "", 0);
        }
    };
    for operation in operations(document) {
        if let Some(body) = operation.get_mut("requestBody") {
            add(&mut body["content"]);
        }
        let responses = operation["responses"].as_object_mut().into_iter().flatten();
        for (_, response) in responses.filter(|(status, _)| status.starts_with('2')) {
            if response.get("content").is_some() {
                add(&mut response["content"]);
            }
        }
    }
}

fn example(schemas: &Value, schema: &Value, name: &str, depth: usize) -> Value {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = reference.rsplit('/').next().unwrap_or_default();
        return if depth >= MAX_DEPTH { json!({}) } else { example(schemas, &schemas[target], name, depth + 1) };
    }
    if let Some(words) = schema["enum"].as_array() {
        return words.first().cloned().unwrap_or_default();
    }
    if let Some(parts) = schema["allOf"].as_array() {
        let objects = parts.iter().map(|part| example(schemas, part, name, depth));
        let members = objects.filter_map(|object| object.as_object().cloned()).flatten();
        return Value::Object(members.collect::<Map<_, _>>());
    }
    if let Some(parts) = schema["oneOf"].as_array() {
        let first = parts.iter().find(|part| part["type"] != "null");
        return first.map_or(Value::Null, |part| example(schemas, part, name, depth));
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        Value::String(one) => vec![one],
        _ => Vec::new(),
    };
    match types.first().copied() {
        Some("object") => object_example(schemas, schema, depth),
        Some("array") => {
            // An item may be a reference to an object, which needs room for its own properties.
            if depth + 4 >= MAX_DEPTH {
                json!([])
            } else {
                json!([example(schemas, &schema["items"], name, depth + 1)])
            }
        }
        Some("integer") => json!(schema["minimum"].as_i64().unwrap_or(0).max(1)),
        Some("number") => json!(1.5),
        Some("boolean") => json!(false),
        Some("string") => json!(text_example(name, types.contains(&"null"))),
        _ => json!({}),
    }
}

/// Required properties, and of the others those that a reader expects. A nullable one is null unless its name says more.
fn object_example(schemas: &Value, schema: &Value, depth: usize) -> Value {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema["properties"].as_object().into_iter().flatten();
    let is_shown = |name: &str| required.contains(&name) || matches!(name, "subject" | "text" | "intent");
    let shown = properties.filter(|(name, _)| is_shown(name));
    let members = shown.map(|(name, property)| (name.clone(), example(schemas, property, name, depth + 1)));
    Value::Object(members.collect::<Map<_, _>>())
}

/// A plausible text for a property of this name; `None` for one that is usually null.
fn text_example(name: &str, is_nullable: bool) -> Option<&'static str> {
    let known = match name {
        "from" | "sender" => "bot@example.com",
        "to" | "cc" | "bcc" | "reply_to" | "recipient" | "recipients" | "address" => "ada@example.com",
        "subject" => "Your order 4821",
        "text" => "It is on its way.",
        "html" => "<p>It is on its way.</p>",
        "key" => "order-4821-shipped",
        "message_id" => "<m1.4f2a@example.com>",
        "entity" => "order_4821",
        "url" => "https://example.com/hooks/mailonce",
        "domain" => "example.com",
        "time_zone" => "Europe/Berlin",
        "cursor" | "next_cursor" => "1-42",
        "next" => "Accepted; it will be sent once, so do not send it again.",
        "id" => "0197a3c2-7d3e-7c11-9b1e-2f6d3a4b5c6d",
        "name" => "orders",
        "reason" => "asked by the customer",
        _ if name.ends_with("_id") => "0197a3c2-7d3e-7c11-9b1e-2f6d3a4b5c6d",
        _ if name.ends_with("_at") || name == "at" || name == "date" => "2026-11-17T09:30:00.000Z",
        _ if is_nullable => return None,
        _ => "…",
    };
    // Times and links of nullable properties are usually set; reasons are not.
    let is_usually_null = is_nullable && matches!(name, "reason" | "name" | "html" | "next_cursor");
    (!is_usually_null).then_some(known)
}

//! The types of query parameters. The handlers read text, so that a wrong value gets our error; the document says what the
//! text must be.

use mailonce_core::{
    control::{audit::MAX_PAGE, stop::MAX_RELEASE_RATE},
    limits,
};
use serde_json::{Value, json};

use super::operations;
use crate::api::outbound::stats::MAX_HOURS;

/// Gives every query parameter that is no free text its type, with the bounds that the server enforces.
pub(super) fn add_query_types(document: &mut Value) {
    for operation in operations(document) {
        let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
        let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
        for parameter in parameters.into_iter().flatten().filter(|parameter| parameter["in"] == "query") {
            if let Some(schema) = query_type(&id, parameter["name"].as_str().unwrap_or_default()) {
                parameter["schema"] = schema;
            }
        }
    }
}

/// The type of a parameter. `None`: it is text.
fn query_type(operation: &str, name: &str) -> Option<Value> {
    Some(match name {
        "limit" => {
            let most = match operation {
                "list_events" | "stream_events" => limits::EVENT_ROWS,
                "list_audit_entries" => MAX_PAGE,
                _ => limits::PAGE_ROWS,
            };
            json!({ "type": "integer", "minimum": 1, "maximum": most })
        }
        // A longer wait is no error: it ends after the longest.
        "timeout" => json!({ "type": "integer", "minimum": 0 }),
        "hours" => json!({ "type": "integer", "minimum": 0, "maximum": MAX_HOURS }),
        "version" => json!({ "type": "integer", "minimum": 1 }),
        "rate_per_s" => json!({ "type": "integer", "minimum": 1, "maximum": MAX_RELEASE_RATE }),
        "since" | "until" if operation == "list_emails" => json!({ "type": "string", "format": "date-time" }),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn numbers_and_times_are_no_text() {
        let (mut document, mut found) = (crate::api::openapi::document().clone(), BTreeSet::new());
        for operation in operations(&mut document) {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            for parameter in parameters.filter(|parameter| parameter["in"] == "query") {
                let (name, schema) = (parameter["name"].as_str().unwrap(), &parameter["schema"]);
                let expected = match name {
                    "limit" | "timeout" | "hours" | "version" | "rate_per_s" => schema["type"] == "integer",
                    "since" | "until" => schema["format"] == "date-time",
                    _ => continue,
                };
                assert!(expected, "{}: {parameter}", operation["operationId"]);
                found.insert(name.to_owned());
            }
        }
        assert_eq!(found.len(), 7, "{found:?}");
    }
}

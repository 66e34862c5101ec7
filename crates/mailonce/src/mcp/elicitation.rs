//! The protocol's own request for input: it leads the person behind a client to the page on which people decide.
//!
//! It is a way to the page and nothing else. What the client says back decides nothing, because a program may have said
//! it: the call is only answered as any repeat of it is.

use serde_json::{Map, Value, json};

use super::object;
use crate::mcp::protocol_revision;

/// What the person is told. No word of a model or a stranger is in it.
const PROMPT: &str = "An agent asked for something that a person must decide. Open the page of mailonce to see it and to \
    decide; it asks for a key with the scope admin. Nothing happens until then.";
/// Our name for the request in the client's answer.
const REQUEST_NAME: &str = "decision";

/// The request for input that comes in the place of an answer, for a client that can open a page and was not asked yet.
pub(super) fn input_request(params: &Map<String, Value>, page: &str) -> Option<Map<String, Value>> {
    let asked_before = params.contains_key("inputResponses");
    if asked_before || !supports_url_mode(params) {
        return None;
    }
    let request = json!({
        "method": "elicitation/create",
        "params": { "mode": "url", "message": PROMPT, "url": page },
    });
    Some(object([("resultType", json!("input_required")), ("inputRequests", json!({ REQUEST_NAME: request }))]))
}

/// Whether the client says that it can lead a person to a page. Without a word about modes it can show forms alone, and
/// a form that a model could fill in must not decide.
fn supports_url_mode(params: &Map<String, Value>) -> bool {
    protocol_revision::capabilities(params)
        .and_then(|all| all.get("elicitation"))
        .is_some_and(|modes| modes.get("url").is_some_and(Value::is_object))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(capabilities: &Value, more: Value) -> bool {
        let Value::Object(mut params) = more else { return false };
        params.insert("_meta".into(), json!({ "io.modelcontextprotocol/clientCapabilities": capabilities }));
        input_request(&params, "https://mail.example.com/approve/1").is_some()
    }

    #[test]
    fn only_who_can_open_a_page_is_asked_and_once() {
        let able = json!({ "elicitation": { "form": {}, "url": {} } });
        assert!(asked(&able, json!({})));
        assert!(!asked(&able, json!({ "inputResponses": { "decision": { "action": "accept" } } })));
        assert!(!asked(&able, json!({ "inputResponses": {} })));
        for unable in [json!({}), json!({ "elicitation": {} }), json!({ "elicitation": { "form": {} } }), json!(7)] {
            assert!(!asked(&unable, json!({})), "{unable}");
        }
    }
}

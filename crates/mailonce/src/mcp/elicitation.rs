//! Elicitation, the protocol's request for user input: sends the person behind a client to the approval page.
//!
//! It only opens the page. The client's response decides nothing, because a program may have written it: the repeated
//! call gets the same answer as any other replay.

use serde_json::{Map, Value, json};

use super::object;
use crate::mcp::protocol_revision;

/// The text that the person sees. It contains nothing written by a model or a stranger.
const PROMPT: &str = "An agent needs a decision by a person. Open its page on the mailonce dashboard to see the question and \
    decide; you sign in there once. Nothing happens until you decide.";
/// The name under which the client returns its response.
const REQUEST_NAME: &str = "decision";

/// The request for input, returned in place of the result. `None` if the client cannot open a page or has already
/// responded.
pub(super) fn input_request(params: &Map<String, Value>, page: &str) -> Option<Map<String, Value>> {
    let already_responded = params.contains_key("inputResponses");
    if already_responded || !supports_url_mode(params) {
        return None;
    }
    let request = json!({
        "method": "elicitation/create",
        "params": { "mode": "url", "message": PROMPT, "url": page },
    });
    Some(object([("resultType", json!("input_required")), ("inputRequests", json!({ REQUEST_NAME: request }))]))
}

/// Whether the client declares that it can open a URL. A client that declares no modes supports forms only. A model
/// could fill in a form, so forms must not decide.
fn supports_url_mode(params: &Map<String, Value>) -> bool {
    protocol_revision::capabilities(params)
        .and_then(|capabilities| capabilities.get("elicitation"))
        .is_some_and(|modes| modes.get("url").is_some_and(Value::is_object))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(capabilities: &Value, more: Value) -> bool {
        let Value::Object(mut params) = more else { return false };
        params.insert("_meta".into(), json!({ "io.modelcontextprotocol/clientCapabilities": capabilities }));
        input_request(&params, "https://mail.example.com/needs-you/1").is_some()
    }

    #[test]
    fn only_who_can_open_a_page_is_asked_and_once() {
        let capable = json!({ "elicitation": { "form": {}, "url": {} } });
        assert!(asked(&capable, json!({})));
        assert!(!asked(&capable, json!({ "inputResponses": { "decision": { "action": "accept" } } })));
        assert!(!asked(&capable, json!({ "inputResponses": {} })));
        for incapable in [json!({}), json!({ "elicitation": {} }), json!({ "elicitation": { "form": {} } }), json!(7)] {
            assert!(!asked(&incapable, json!({})), "{incapable}");
        }
    }
}

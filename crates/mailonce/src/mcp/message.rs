//! JSON-RPC 2.0 as MCP uses it: one message at a time, ids that are texts or whole numbers.

use mailonce_core::json_limits;
use serde_json::{Map, Value, json};

/// The codes of JSON-RPC, and those that MCP added.
const PARSE: i64 = -32_700;
const INVALID_REQUEST: i64 = -32_600;
const NO_METHOD: i64 = -32_601;
const INVALID_PARAMS: i64 = -32_602;
const INTERNAL: i64 = -32_603;
/// Headers and body contradict each other.
pub(super) const HEADER_MISMATCH: i64 = -32_020;
/// A revision that is not spoken here.
pub(super) const UNSUPPORTED_VERSION: i64 = -32_022;
/// Refused at the door, before anything was understood.
pub(super) const REFUSED: i64 = -32_001;

/// A request that wants an answer.
#[derive(Debug)]
pub(super) struct Request {
    /// To be given back as it came.
    pub(super) id: Value,
    pub(super) method: String,
    pub(super) params: Map<String, Value>,
}

/// What came.
#[derive(Debug)]
pub(super) enum Incoming {
    Request(Request),
    /// A notification, or an answer to something that we never ask. Nobody waits for a word about it.
    Told,
}

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fault {
    pub(super) code: i64,
    pub(super) message: String,
    pub(super) data: Option<Value>,
}

impl Fault {
    pub(super) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    pub(super) fn with(self, data: Value) -> Self {
        Self { data: Some(data), ..self }
    }

    pub(super) fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message)
    }

    pub(super) fn no_method(method: &str) -> Self {
        Self::new(NO_METHOD, format!("there is no method {method}"))
    }

    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(INTERNAL, message)
    }

    /// The HTTP status that the stateless revision wants beside it.
    pub(super) fn status(&self) -> u16 {
        match self.code {
            NO_METHOD => 404,
            INTERNAL => 200,
            _ => 400,
        }
    }

    /// The message that tells it.
    pub(super) fn told(&self, id: &Value) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        json!({ "jsonrpc": "2.0", "id": id, "error": error })
    }
}

/// The message that tells a result.
pub(super) fn result(id: &Value, result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

/// Reads one message.
pub(super) fn read(bytes: &[u8]) -> Result<Incoming, Fault> {
    json_limits::check(bytes).map_err(|excess| Fault::new(PARSE, format!("the message {excess}")))?;
    let value: Value =
        serde_json::from_slice(bytes).map_err(|error| Fault::new(PARSE, format!("this is not JSON: {error}")))?;
    let invalid = |why: &str| Fault::new(INVALID_REQUEST, why.to_owned());
    let Value::Object(mut message) = value else {
        return Err(invalid("a message is one JSON object; batches are not taken"));
    };
    if message.get("jsonrpc") != Some(&json!("2.0")) {
        return Err(invalid("jsonrpc is \"2.0\""));
    }
    let method = match message.remove("method") {
        Some(Value::String(method)) => method,
        Some(_) => return Err(invalid("method is a text")),
        None if message.contains_key("result") || message.contains_key("error") => return Ok(Incoming::Told),
        None => return Err(invalid("a request has a method")),
    };
    let Some(id) = message.remove("id") else { return Ok(Incoming::Told) };
    if !(id.is_string() || id.is_i64() || id.is_u64()) {
        return Err(invalid("id is a text or a whole number"));
    }
    let params = match message.remove("params") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(params)) => params,
        Some(_) => return Err(invalid("params is an object")),
    };
    Ok(Incoming::Request(Request { id, method, params }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Option<i64> {
        read(text.as_bytes()).err().map(|fault| fault.code)
    }

    #[test]
    fn only_whole_requests_are_taken() {
        for (text, fault) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, None),
            (r#"{"jsonrpc":"2.0","id":"a","method":"ping","params":{}}"#, None),
            (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, None),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None),
            ("{", Some(PARSE)),
            ("[]", Some(INVALID_REQUEST)),
            (r#"{"id":1,"method":"ping"}"#, Some(INVALID_REQUEST)),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, Some(INVALID_REQUEST)),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, Some(INVALID_REQUEST)),
            (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, Some(INVALID_REQUEST)),
            (r#"{"jsonrpc":"2.0","id":1}"#, Some(INVALID_REQUEST)),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#, Some(INVALID_REQUEST)),
        ] {
            assert_eq!(code(text), fault, "{text}");
        }
    }
}

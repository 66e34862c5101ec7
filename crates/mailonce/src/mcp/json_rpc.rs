//! JSON-RPC 2.0 as MCP uses it: one message at a time, ids that are texts or whole numbers.

use mailonce_core::json_limits;
use serde_json::{Map, Value, json};

/// The codes of JSON-RPC, and those that MCP added.
const PARSE_ERROR: i64 = -32_700;
const INVALID_REQUEST: i64 = -32_600;
const METHOD_NOT_FOUND: i64 = -32_601;
const INVALID_PARAMS: i64 = -32_602;
const INTERNAL_ERROR: i64 = -32_603;
/// Headers and body contradict each other.
pub(super) const HEADER_MISMATCH: i64 = -32_020;
/// A revision that is not spoken here.
pub(super) const UNSUPPORTED_VERSION: i64 = -32_022;
/// Refused at the door, before anything was understood.
pub(super) const REJECTED: i64 = -32_001;

/// A request that wants an answer.
#[derive(Debug)]
pub(super) struct RpcRequest {
    /// To be given back as it came.
    pub(super) id: Value,
    pub(super) method: String,
    pub(super) params: Map<String, Value>,
}

/// What came.
#[derive(Debug)]
pub(super) enum IncomingMessage {
    Request(RpcRequest),
    /// A notification, or an answer to something that we never ask. Nobody waits for a word about it.
    Notification,
}

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RpcError {
    pub(super) code: i64,
    pub(super) message: String,
    pub(super) data: Option<Value>,
}

impl RpcError {
    pub(super) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    pub(super) fn with_data(self, data: Value) -> Self {
        Self { data: Some(data), ..self }
    }

    pub(super) fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message)
    }

    pub(super) fn method_not_found(method: &str) -> Self {
        Self::new(METHOD_NOT_FOUND, format!("there is no method {method}"))
    }

    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(INTERNAL_ERROR, message)
    }

    /// The HTTP status that the stateless revision wants beside it.
    pub(super) fn http_status(&self) -> u16 {
        match self.code {
            METHOD_NOT_FOUND => 404,
            INTERNAL_ERROR => 200,
            _ => 400,
        }
    }

    /// The message that tells it.
    pub(super) fn to_message(&self, id: &Value) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        json!({ "jsonrpc": "2.0", "id": id, "error": error })
    }
}

/// The message that tells a result.
pub(super) fn result_message(id: &Value, result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

/// Reads one message.
pub(super) fn parse(bytes: &[u8]) -> Result<IncomingMessage, RpcError> {
    json_limits::check(bytes).map_err(|excess| RpcError::new(PARSE_ERROR, format!("the message {excess}")))?;
    let value: Value = serde_json::from_slice(bytes)
        .map_err(|error| RpcError::new(PARSE_ERROR, format!("this is not JSON: {error}")))?;
    let invalid = |why: &str| RpcError::new(INVALID_REQUEST, why.to_owned());
    let Value::Object(mut message) = value else {
        return Err(invalid("a message is one JSON object; batches are not taken"));
    };
    if message.get("jsonrpc") != Some(&json!("2.0")) {
        return Err(invalid("jsonrpc is \"2.0\""));
    }
    let method = match message.remove("method") {
        Some(Value::String(method)) => method,
        Some(_) => return Err(invalid("method is a text")),
        None if message.contains_key("result") || message.contains_key("error") => {
            return Ok(IncomingMessage::Notification);
        }
        None => return Err(invalid("a request has a method")),
    };
    let Some(id) = message.remove("id") else { return Ok(IncomingMessage::Notification) };
    if !(id.is_string() || id.is_i64() || id.is_u64()) {
        return Err(invalid("id is a text or a whole number"));
    }
    let params = match message.remove("params") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(params)) => params,
        Some(_) => return Err(invalid("params is an object")),
    };
    Ok(IncomingMessage::Request(RpcRequest { id, method, params }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Option<i64> {
        parse(text.as_bytes()).err().map(|fault| fault.code)
    }

    #[test]
    fn only_whole_requests_are_taken() {
        for (text, fault) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, None),
            (r#"{"jsonrpc":"2.0","id":"a","method":"ping","params":{}}"#, None),
            (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, None),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None),
            ("{", Some(PARSE_ERROR)),
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

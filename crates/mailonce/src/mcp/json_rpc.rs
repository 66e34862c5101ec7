//! JSON-RPC 2.0 as MCP uses it: one message at a time, ids that are strings or integers.

use mailonce_core::json_limits;
use serde_json::{Map, Value, json};

/// The error codes of JSON-RPC, followed by those that MCP adds.
const PARSE_ERROR: i64 = -32_700;
const INVALID_REQUEST: i64 = -32_600;
const METHOD_NOT_FOUND: i64 = -32_601;
const INVALID_PARAMS: i64 = -32_602;
const INTERNAL_ERROR: i64 = -32_603;
/// Headers and body contradict each other.
pub(super) const HEADER_MISMATCH: i64 = -32_020;
/// The server does not support this protocol revision.
pub(super) const UNSUPPORTED_VERSION: i64 = -32_022;
/// Rejected before the message was parsed, for example because of a missing API key.
pub(super) const REJECTED: i64 = -32_001;

/// A request that expects a response.
#[derive(Debug)]
pub(super) struct RpcRequest {
    /// Echoed unchanged in the response.
    pub(super) id: Value,
    pub(super) method: String,
    pub(super) params: Map<String, Value>,
}

/// A message from the client.
#[derive(Debug)]
pub(super) enum IncomingMessage {
    Request(RpcRequest),
    /// A notification, or a response to a request that this server never sends. It gets no response.
    Notification,
}

/// A JSON-RPC error.
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
        Self::new(METHOD_NOT_FOUND, format!("unknown method {method}"))
    }

    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(INTERNAL_ERROR, message)
    }

    /// The HTTP status that the stateless revision requires for this error.
    pub(super) fn http_status(&self) -> u16 {
        match self.code {
            METHOD_NOT_FOUND => 404,
            INTERNAL_ERROR => 200,
            _ => 400,
        }
    }

    /// The error response.
    pub(super) fn to_message(&self, id: &Value) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        json!({ "jsonrpc": "2.0", "id": id, "error": error })
    }
}

/// The response with a result.
pub(super) fn result_message(id: &Value, result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

/// Parses one message.
pub(super) fn parse(bytes: &[u8]) -> Result<IncomingMessage, RpcError> {
    json_limits::check(bytes).map_err(|excess| RpcError::new(PARSE_ERROR, format!("the message {excess}")))?;
    let value: Value = serde_json::from_slice(bytes)
        .map_err(|error| RpcError::new(PARSE_ERROR, format!("the message is not valid JSON: {error}")))?;
    let invalid = |message: &str| RpcError::new(INVALID_REQUEST, message.to_owned());
    let Value::Object(mut message) = value else {
        return Err(invalid("the message must be one JSON object; batches are not supported"));
    };
    if message.get("jsonrpc") != Some(&json!("2.0")) {
        return Err(invalid("`jsonrpc` must be \"2.0\""));
    }
    let method = match message.remove("method") {
        Some(Value::String(method)) => method,
        Some(_) => return Err(invalid("`method` must be a string")),
        None if message.contains_key("result") || message.contains_key("error") => {
            return Ok(IncomingMessage::Notification);
        }
        None => return Err(invalid("`method` is missing")),
    };
    let Some(id) = message.remove("id") else { return Ok(IncomingMessage::Notification) };
    if !(id.is_string() || id.is_i64() || id.is_u64()) {
        return Err(invalid("`id` must be a string or an integer"));
    }
    let params = match message.remove("params") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(params)) => params,
        Some(_) => return Err(invalid("`params` must be an object")),
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

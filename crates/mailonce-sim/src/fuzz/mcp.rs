//! Messages of models' clients.

use mailonce_core::call;
use serde_json::Value;

use super::{Came, Check, holds};

/// `POST /mcp`, and a line of `mailonce mcp`.
pub fn message(bytes: &[u8]) -> Check {
    let request = match mailonce::mcp::read_message(bytes) {
        Ok(Some(request)) => request,
        Ok(None) => return Ok(Came::Short),
        Err(answer) => {
            is_fault(&answer, &Value::Null)?;
            return Ok(Came::Short);
        }
    };
    let id = &request.id;
    holds(id.is_string() || id.is_i64() || id.is_u64(), "an id that is neither a text nor a whole number")?;
    if let Some(answer) = &request.refused {
        is_fault(answer, id)?;
    }
    let mark = request.call.unwrap_or_default();
    holds(mark.id.is_none_or(|id| call::is_call_id(&id)), "a name of a call that cannot be kept")?;
    let trace = mark.traceparent;
    holds(trace.is_none_or(|trace| call::trace_of(&trace) == Some(trace.as_str())), "a trace that is none")?;
    Ok(Came::Through)
}

fn is_fault(answer: &Value, id: &Value) -> Result<(), String> {
    let error = &answer["error"];
    holds(answer["jsonrpc"] == "2.0" && answer["id"] == *id, "an answer to somebody else")?;
    holds(error["code"].as_i64().is_some_and(|code| code < 0), "a fault without a code")?;
    holds(error["message"].as_str().is_some_and(|text| !text.is_empty()), "a fault without a reason")
}

//! Messages of MCP clients.

use mailonce_core::call_trace;
use serde_json::Value;

use super::{FuzzResult, InputOutcome, ensure_holds};

/// `POST /mcp`, and a line of `mailonce mcp`.
pub fn message(bytes: &[u8]) -> FuzzResult {
    let request = match mailonce::mcp::read_message(bytes) {
        Ok(Some(request)) => request,
        Ok(None) => return Ok(InputOutcome::Rejected),
        Err(answer) => {
            check_response(&answer, &Value::Null)?;
            return Ok(InputOutcome::Rejected);
        }
    };
    let id = &request.id;
    ensure_holds(id.is_string() || id.is_i64() || id.is_u64(), "an id that is neither a text nor a whole number")?;
    if let Some(answer) = &request.rejection {
        check_response(answer, id)?;
    }
    let mark = request.call.unwrap_or_default();
    ensure_holds(mark.id.is_none_or(|id| call_trace::is_valid_call_id(&id)), "a name of a call that cannot be kept")?;
    let trace = mark.traceparent;
    ensure_holds(
        trace.is_none_or(|trace| call_trace::parse_traceparent(&trace) == Some(trace.as_str())),
        "a trace that is none",
    )?;
    Ok(InputOutcome::Accepted)
}

fn check_response(answer: &Value, id: &Value) -> Result<(), String> {
    let error = &answer["error"];
    ensure_holds(answer["jsonrpc"] == "2.0" && answer["id"] == *id, "an answer to somebody else")?;
    ensure_holds(error["code"].as_i64().is_some_and(|code| code < 0), "a fault without a code")?;
    ensure_holds(error["message"].as_str().is_some_and(|text| !text.is_empty()), "a fault without a reason")
}

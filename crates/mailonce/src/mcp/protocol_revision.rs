//! Detects the protocol revision of a request. A stateless request states its revision in the body and in a header.
//! Older clients agree on a revision in a handshake, which the server need not store, because the tools are the same.

use axum::http::HeaderMap;
use mailonce_core::call_trace::{self, CallTrace};
use serde_json::{Map, Value, json};

use crate::mcp::json_rpc::{HEADER_MISMATCH, RpcError, RpcRequest, UNSUPPORTED_VERSION};

/// The revision without a handshake: every request carries its own context.
pub(super) const STATELESS_VERSION: &str = "2026-07-28";
/// Revisions with a handshake, latest first.
pub(super) const HANDSHAKE_VERSIONS: [&str; 2] = ["2025-11-25", "2025-06-18"];
/// The revision that MCP assumes for a client that sends no version header. Its tools look the same.
const IMPLIED_VERSION: &str = "2025-03-26";

/// The `_meta` member in which a stateless request states its revision.
pub(super) const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
/// Headers that repeat members of the body, so that proxies can route by them.
pub(super) const VERSION_HEADER: &str = "mcp-protocol-version";
pub(super) const METHOD_HEADER: &str = "mcp-method";
pub(super) const NAME_HEADER: &str = "mcp-name";

/// `_meta` members in which clients put their own call id. It is stored with the call and never affects a decision.
const CALL_ID_KEYS: [&str; 2] = ["claudecode/toolUseId", "dev.mailonce/call-id"];

/// The protocol variant in which a request must be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Revision {
    Handshake,
    Stateless,
}

/// The `_meta` object of a request.
pub(super) fn meta(params: &Map<String, Value>) -> Option<&Map<String, Value>> {
    params.get("_meta").and_then(Value::as_object)
}

/// The client capabilities that a stateless request declares.
pub(super) fn capabilities(params: &Map<String, Value>) -> Option<&Map<String, Value>> {
    meta(params)?.get(CAPABILITIES_KEY)?.as_object()
}

/// The caller's own call id and trace context: from the message, else from the headers. Invalid values are ignored,
/// because a model cannot correct what its client sends.
pub(super) fn call_trace(params: &Map<String, Value>, from_headers: Option<CallTrace>) -> Option<CallTrace> {
    let meta = meta(params);
    let text_of = |key: &str| meta.and_then(|meta| meta.get(key)).and_then(Value::as_str);
    let id = CALL_ID_KEYS.iter().find_map(|key| text_of(key).filter(|id| call_trace::is_valid_call_id(id)));
    let trace = text_of("traceparent").and_then(call_trace::parse_traceparent);
    let from_headers = from_headers.unwrap_or_default();
    CallTrace::from_parts(
        id.map(str::to_owned).or(from_headers.id),
        trace.map(str::to_owned).or(from_headers.traceparent),
    )
}

fn header_mismatch(message: &str) -> RpcError {
    RpcError::new(HEADER_MISMATCH, message.to_owned())
}

fn unsupported_version(requested: &str) -> RpcError {
    let known: Vec<&str> = std::iter::once(STATELESS_VERSION).chain(HANDSHAKE_VERSIONS).collect();
    let data = json!({ "supported": known, "requested": requested });
    RpcError::new(UNSUPPORTED_VERSION, "Unsupported protocol version").with_data(data)
}

/// The value of a header that may occur once.
fn single_header<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, RpcError> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(header_mismatch(&format!("the {name} header is given more than once")));
    }
    value.to_str().map(Some).map_err(|_bytes| header_mismatch(&format!("the {name} header is not plain text")))
}

/// The revision that the version header states.
pub(super) fn header_revision(headers: &HeaderMap) -> Result<Option<Revision>, RpcError> {
    match single_header(headers, VERSION_HEADER)? {
        None => Ok(None),
        Some(STATELESS_VERSION) => Ok(Some(Revision::Stateless)),
        Some(version) if HANDSHAKE_VERSIONS.contains(&version) || version == IMPLIED_VERSION => {
            Ok(Some(Revision::Handshake))
        }
        Some(other) => Err(unsupported_version(other)),
    }
}

/// The revision of a request. Fails if headers and body contradict each other.
pub(super) fn detect(request: &RpcRequest, headers: &HeaderMap) -> Result<Revision, RpcError> {
    let stated = meta(&request.params).and_then(|meta| meta.get(VERSION_KEY));
    match header_revision(headers)? {
        None if stated.is_some() => Err(header_mismatch("the MCP-Protocol-Version header is missing")),
        None | Some(Revision::Handshake) => Ok(Revision::Handshake),
        Some(Revision::Stateless) => check_stateless(request, headers).map(|()| Revision::Stateless),
    }
}

fn check_stateless(request: &RpcRequest, headers: &HeaderMap) -> Result<(), RpcError> {
    let meta = meta(&request.params);
    let missing: Vec<&str> = [VERSION_KEY, CAPABILITIES_KEY]
        .into_iter()
        .filter(|key| meta.is_none_or(|meta| !meta.contains_key(*key)))
        .collect();
    if !missing.is_empty() {
        return Err(RpcError::invalid_params(format!("params._meta must have {}", missing.join(", "))));
    }
    if meta.and_then(|meta| meta.get(VERSION_KEY)).and_then(Value::as_str) != Some(STATELESS_VERSION) {
        return Err(header_mismatch("the MCP-Protocol-Version header and params._meta name different revisions"));
    }
    if single_header(headers, METHOD_HEADER)? != Some(request.method.as_str()) {
        return Err(header_mismatch("the Mcp-Method header is not the method of the request"));
    }
    let name = (request.method == "tools/call").then(|| request.params.get("name").and_then(Value::as_str)).flatten();
    if name.is_some() && single_header(headers, NAME_HEADER)? != name {
        return Err(header_mismatch("the Mcp-Name header is not the name of the tool"));
    }
    Ok(())
}

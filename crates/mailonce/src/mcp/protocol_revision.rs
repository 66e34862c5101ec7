//! Which revision of the protocol a request speaks. The stateless one says so in every request, twice where there are
//! headers; the older ones agreed in a handshake that we need not remember, because their tools are the same.

use axum::http::HeaderMap;
use mailonce_core::call_trace::{self, CallTrace};
use serde_json::{Map, Value, json};

use crate::mcp::json_rpc::{HEADER_MISMATCH, RpcError, RpcRequest, UNSUPPORTED_VERSION};

/// The revision without a handshake.
pub(super) const STATELESS_VERSION: &str = "2026-07-28";
/// Revisions with one, the latest first.
pub(super) const HANDSHAKE_VERSIONS: [&str; 2] = ["2025-11-25", "2025-06-18"];
/// What a client of the handshake speaks when no header says it. Its tools look the same.
const IMPLIED_VERSION: &str = "2025-03-26";

/// Where a stateless request says its revision.
pub(super) const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
/// Headers that repeat what the body says, so that what stands between may route by them.
pub(super) const VERSION_HEADER: &str = "mcp-protocol-version";
pub(super) const METHOD_HEADER: &str = "mcp-method";
pub(super) const NAME_HEADER: &str = "mcp-name";

/// Where clients put their own names for a call. They are kept beside what it did and never decide anything.
const CALL_ID_KEYS: [&str; 2] = ["claudecode/toolUseId", "dev.mailonce/call-id"];

/// How a request is to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Revision {
    Handshake,
    Stateless,
}

/// What a request says about itself and its caller.
pub(super) fn meta(params: &Map<String, Value>) -> Option<&Map<String, Value>> {
    params.get("_meta").and_then(Value::as_object)
}

/// What a stateless request says that its client can do.
pub(super) fn capabilities(params: &Map<String, Value>) -> Option<&Map<String, Value>> {
    meta(params)?.get(CAPABILITIES_KEY)?.as_object()
}

/// What the caller calls this call: in the message itself, else in its headers. What cannot be kept is passed over,
/// because a model cannot mend what its client says.
pub(super) fn call_trace(params: &Map<String, Value>, told: Option<CallTrace>) -> Option<CallTrace> {
    let meta = meta(params);
    let word = |key: &str| meta.and_then(|meta| meta.get(key)).and_then(Value::as_str);
    let id = CALL_ID_KEYS.iter().find_map(|key| word(key).filter(|id| call_trace::is_valid_call_id(id)));
    let trace = word("traceparent").and_then(call_trace::parse_traceparent);
    let told = told.unwrap_or_default();
    CallTrace::from_parts(id.map(str::to_owned).or(told.id), trace.map(str::to_owned).or(told.traceparent))
}

fn header_mismatch(why: &str) -> RpcError {
    RpcError::new(HEADER_MISMATCH, why.to_owned())
}

fn unsupported_version(asked: &str) -> RpcError {
    let known: Vec<&str> = std::iter::once(STATELESS_VERSION).chain(HANDSHAKE_VERSIONS).collect();
    let data = json!({ "supported": known, "requested": asked });
    RpcError::new(UNSUPPORTED_VERSION, "Unsupported protocol version").with_data(data)
}

/// The one value of a header.
fn single_header<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, RpcError> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(header_mismatch(&format!("the {name} header is given more than once")));
    }
    value.to_str().map(Some).map_err(|_bytes| header_mismatch(&format!("the {name} header is not plain text")))
}

/// The revision that a header names for a message without an answer.
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

/// The revision of a request, once its headers and its body agree.
pub(super) fn detect(request: &RpcRequest, headers: &HeaderMap) -> Result<Revision, RpcError> {
    let said = meta(&request.params).and_then(|meta| meta.get(VERSION_KEY));
    match header_revision(headers)? {
        None if said.is_some() => Err(header_mismatch("the MCP-Protocol-Version header is missing")),
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
        return Err(RpcError::invalid_params(format!("params._meta lacks {}", missing.join(", "))));
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

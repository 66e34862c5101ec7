//! Which revision of the protocol a request speaks. The stateless one says so in every request, twice where there are
//! headers; the older ones agreed in a handshake that we need not remember, because their tools are the same.

use axum::http::HeaderMap;
use mailonce_core::call::{self, CallMark};
use serde_json::{Map, Value, json};

use super::message::{Fault, HEADER_MISMATCH, Request, UNSUPPORTED_VERSION};

/// The revision without a handshake.
pub(super) const STATELESS: &str = "2026-07-28";
/// Revisions with one, the latest first.
pub(super) const HANDSHAKE: [&str; 2] = ["2025-11-25", "2025-06-18"];
/// What a client of the handshake speaks when no header says it. Its tools look the same.
const UNSAID: &str = "2025-03-26";

/// Where a stateless request says its revision.
pub(super) const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
/// Headers that repeat what the body says, so that what stands between may route by them.
pub(super) const VERSION_HEADER: &str = "mcp-protocol-version";
pub(super) const METHOD_HEADER: &str = "mcp-method";
pub(super) const NAME_HEADER: &str = "mcp-name";

/// Where clients put their own names for a call. They are kept beside what it did and never decide anything.
const CALL_KEYS: [&str; 2] = ["claudecode/toolUseId", "dev.mailonce/call-id"];

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
pub(super) fn marked(params: &Map<String, Value>, told: Option<CallMark>) -> Option<CallMark> {
    let meta = meta(params);
    let word = |key: &str| meta.and_then(|meta| meta.get(key)).and_then(Value::as_str);
    let id = CALL_KEYS.iter().find_map(|key| word(key).filter(|id| call::is_call_id(id)));
    let trace = word("traceparent").and_then(call::trace_of);
    let told = told.unwrap_or_default();
    CallMark::of(id.map(str::to_owned).or(told.id), trace.map(str::to_owned).or(told.traceparent))
}

fn mismatch(why: &str) -> Fault {
    Fault::new(HEADER_MISMATCH, why.to_owned())
}

fn unsupported(asked: &str) -> Fault {
    let known: Vec<&str> = std::iter::once(STATELESS).chain(HANDSHAKE).collect();
    let data = json!({ "supported": known, "requested": asked });
    Fault::new(UNSUPPORTED_VERSION, "Unsupported protocol version").with(data)
}

/// The one value of a header.
fn header<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Fault> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(mismatch(&format!("the {name} header is given more than once")));
    }
    value.to_str().map(Some).map_err(|_bytes| mismatch(&format!("the {name} header is not plain text")))
}

/// The revision that a header names for a message without an answer.
pub(super) fn named(headers: &HeaderMap) -> Result<Option<Revision>, Fault> {
    match header(headers, VERSION_HEADER)? {
        None => Ok(None),
        Some(STATELESS) => Ok(Some(Revision::Stateless)),
        Some(version) if HANDSHAKE.contains(&version) || version == UNSAID => Ok(Some(Revision::Handshake)),
        Some(other) => Err(unsupported(other)),
    }
}

/// The revision of a request, once its headers and its body agree.
pub(super) fn of(request: &Request, headers: &HeaderMap) -> Result<Revision, Fault> {
    let said = meta(&request.params).and_then(|meta| meta.get(VERSION_KEY));
    match named(headers)? {
        None if said.is_some() => Err(mismatch("the MCP-Protocol-Version header is missing")),
        None | Some(Revision::Handshake) => Ok(Revision::Handshake),
        Some(Revision::Stateless) => stateless(request, headers).map(|()| Revision::Stateless),
    }
}

fn stateless(request: &Request, headers: &HeaderMap) -> Result<(), Fault> {
    let meta = meta(&request.params);
    let missing: Vec<&str> = [VERSION_KEY, CAPABILITIES_KEY]
        .into_iter()
        .filter(|key| meta.is_none_or(|meta| !meta.contains_key(*key)))
        .collect();
    if !missing.is_empty() {
        return Err(Fault::invalid_params(format!("params._meta lacks {}", missing.join(", "))));
    }
    if meta.and_then(|meta| meta.get(VERSION_KEY)).and_then(Value::as_str) != Some(STATELESS) {
        return Err(mismatch("the MCP-Protocol-Version header and params._meta name different revisions"));
    }
    if header(headers, METHOD_HEADER)? != Some(request.method.as_str()) {
        return Err(mismatch("the Mcp-Method header is not the method of the request"));
    }
    let name = (request.method == "tools/call").then(|| request.params.get("name").and_then(Value::as_str)).flatten();
    if name.is_some() && header(headers, NAME_HEADER)? != name {
        return Err(mismatch("the Mcp-Name header is not the name of the tool"));
    }
    Ok(())
}

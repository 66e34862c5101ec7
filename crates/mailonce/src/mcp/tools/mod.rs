//! The ten tools. Each parses its arguments, calls the engine and builds a result with `status`, `next` and details.
//!
//! A replay, a held email or a conflict is a normal result. `isError` is set only where calling again can help: after
//! an invalid argument, or when the store could not answer.

mod artifact;
mod ask_human;
mod message_view;
mod messages;
mod outcome;
mod reply;
mod send;
mod template_arg;
mod thread;
mod tool_list;
mod tool_reply;

use mailonce_core::{
    id::EmailId,
    inbox::Inbox,
    intent::Intent,
    problem::{Code, Problem},
};
use mailonce_engine::Caller;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::time::Duration;
use uuid::Uuid;

use super::{ToolContext, object};
use crate::{http::json_body, mcp::json_rpc::RpcError};
use tool_reply::ToolReply;

pub(super) use tool_list::list;

/// The result of a tool, or the problem that prevented it.
type ToolResult = Result<ToolReply, Problem>;

/// How long one call may wait, in seconds. Clients time out after a minute.
const MAX_WAIT_S: u64 = 50;
/// How long a call without `timeout_s` waits, in seconds. Some clients give up after five.
const DEFAULT_WAIT_S: u64 = 4;
/// Inbox addresses listed when the caller must choose one.
const MAX_LISTED_INBOXES: usize = 10;
/// Characters of an unknown tool name that the error repeats.
const MAX_ECHOED_CHARS: usize = 128;

/// Whether a tool may wait for mail before it returns.
pub(super) fn is_waiting_tool(name: &str) -> bool {
    matches!(name, "wait_for_message" | "take_artifact")
}

/// How long a call waits at most, in seconds.
pub(super) fn wait_seconds(params: &Map<String, Value>) -> u64 {
    let stated = params.get("arguments").and_then(|arguments| arguments.get("timeout_s")).and_then(Value::as_u64);
    stated.unwrap_or(DEFAULT_WAIT_S).min(MAX_WAIT_S)
}

/// How long a call asks to wait. A wait beyond the limit is refused, because it would end unexpectedly.
fn parse_wait(timeout_s: Option<u64>) -> Result<Duration, Problem> {
    let seconds = timeout_s.unwrap_or(DEFAULT_WAIT_S);
    if seconds > MAX_WAIT_S {
        return Err(invalid_argument("timeout_s", format!("must be at most {MAX_WAIT_S}; call again to wait longer")));
    }
    Ok(Duration::from_secs(seconds))
}

/// A tool result, and the URL of the approval page if this call created a question for a person.
pub(super) type ToolCallResult = (Map<String, Value>, Option<String>);

/// Calls a tool.
pub(super) async fn call(ctx: &ToolContext<'_>, params: &Map<String, Value>) -> Result<ToolCallResult, RpcError> {
    let name = params.get("name").and_then(Value::as_str).unwrap_or_default();
    let no_arguments = Value::Object(Map::new());
    let arguments = match params.get("arguments") {
        None | Some(Value::Null) => &no_arguments,
        Some(arguments @ Value::Object(_)) => arguments,
        Some(_) => return Err(RpcError::invalid_params("`arguments` must be an object")),
    };
    let arguments = &tool_list::without_empty_values(name, arguments);
    let result = match name {
        "send_email" => send::send_email(ctx, arguments).await,
        "reply_email" => reply::reply_email(ctx, arguments).await,
        "resend_email" => send::resend_email(ctx, arguments).await,
        "get_outcome" => outcome::get_outcome(ctx, arguments).await,
        "find_messages" => messages::find_messages(ctx, arguments).await,
        "read_message" => messages::read_message(ctx, arguments).await,
        "wait_for_message" => messages::wait_for_message(ctx, arguments).await,
        "take_artifact" => artifact::take_artifact(ctx, arguments).await,
        "claim_thread" => thread::claim_thread(ctx, arguments).await,
        "ask_human" => ask_human::ask_human(ctx, arguments).await,
        _ => return Err(RpcError::invalid_params(format!("Unknown tool: {}", sanitize_name(name)))),
    };
    let reply = result.unwrap_or_else(ToolReply::from);
    log_call(ctx.caller, name, &reply);
    let page = reply.approval_page().map(str::to_owned);
    Ok((to_mcp_result(reply), page))
}

/// Returns the result both as structured content and as text, because clients differ in which one they show.
fn to_mcp_result(reply: ToolReply) -> Map<String, Value> {
    let (is_error, body) = reply.into_parts();
    let text = Value::Object(body.clone()).to_string();
    object([
        ("content", json!([{ "type": "text", "text": text }])),
        ("structuredContent", Value::Object(body)),
        ("isError", json!(is_error)),
    ])
}

fn sanitize_name(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_ECHOED_CHARS).collect()
}

/// Logs the call with the caller's call id and trace context, so that agent traces can be correlated with ours.
fn log_call(caller: &Caller, tool: &str, reply: &ToolReply) {
    let call_trace = caller.call.as_ref();
    let call = call_trace.and_then(|call_trace| call_trace.id.as_deref());
    let trace = call_trace.and_then(|call_trace| call_trace.traceparent.as_deref());
    let (status, email) = (reply.text_member("status"), reply.text_member("email"));
    tracing::info!(tool, status, email, call, trace, api_key = %caller.key.id, "MCP tool call");
}

/// Parses the arguments of a tool.
fn parse_args<T: DeserializeOwned>(arguments: &Value) -> Result<T, Problem> {
    json_body::parse(arguments.to_string().as_bytes())
}

fn invalid_argument(field: &str, detail: impl std::fmt::Display) -> Problem {
    Problem::for_field(Code::InvalidField, field, format!("{field} {detail}"))
}

/// Parses an id of mailonce.
fn parse_id<T: std::str::FromStr>(field: &str, text: &str) -> Result<T, Problem> {
    text.parse().map_err(|_not_an_id| invalid_argument(field, "must be an id that a tool returned"))
}

/// Builds the intent from tool arguments and validates it.
fn parse_intent(kind: String, entity: String, version: Option<u32>, period: Option<String>) -> Result<Intent, Problem> {
    // A model that repeats a call may add a space, which must not make another key.
    let trimmed = |text: String| text.trim().to_owned();
    let (kind, entity, period) = (trimmed(kind), trimmed(entity), period.map(trimmed));
    let intent = Intent { kind, entity, version: version.unwrap_or(1), period };
    intent.validate().map_err(|error| invalid_argument(error.field, error.rule))?;
    Ok(intent)
}

/// The approval page of an email, if a person must decide about it.
async fn approval_url(ctx: &ToolContext<'_>, email: EmailId) -> Result<Option<String>, Problem> {
    let escalation = ctx.app.engine.escalations.escalation_of_email(ctx.caller, email).await?;
    Ok(escalation.map(|id| approval_page_url(ctx, id)))
}

/// The page of the dashboard on which a person decides. It asks whoever is not signed in to do so, and never for an API
/// key: a key with the scope `admin` on a clipboard may end up in a conversation with a model.
fn approval_page_url(ctx: &ToolContext<'_>, escalation: Uuid) -> String {
    format!("{}/needs-you/{escalation}", ctx.app.public_url)
}

/// The inbox that the caller named, else the only one that the caller may use.
async fn find_inbox(ctx: &ToolContext<'_>, inbox: Option<&str>) -> Result<Inbox, Problem> {
    find_inbox_where(ctx, inbox, |_| true).await
}

/// The same, but a caller who named none gets the only inbox for which `fits` returns true.
async fn find_inbox_where(
    ctx: &ToolContext<'_>,
    id_or_address: Option<&str>,
    fits: impl Fn(&Inbox) -> bool,
) -> Result<Inbox, Problem> {
    let (engine, caller) = (&ctx.app.engine, ctx.caller);
    if let Some(text) = id_or_address {
        if text.contains('@') {
            return engine.inboxes.inbox_by_address(caller, text).await;
        }
        return engine.inboxes.inbox(caller, parse_id("inbox", text)?).await;
    }
    let mut usable = Vec::new();
    if caller.key.details.inboxes.is_empty() {
        usable = engine.inboxes.inboxes(caller, None, MAX_LISTED_INBOXES + 1).await?.rows;
    } else {
        for one in caller.key.details.inboxes.iter().take(MAX_LISTED_INBOXES + 1) {
            let found = match one.parse() {
                Ok(id) => engine.inboxes.inbox(caller, id).await,
                Err(_not_an_id) => engine.inboxes.inbox_by_address(caller, one).await,
            };
            usable.extend(found.ok());
        }
    }
    let now = engine.ctx.now();
    usable.retain(|inbox| inbox.is_open(now) && fits(inbox));
    match usable.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(invalid_argument("inbox", "is required: your API key has no inbox; ask the operator for one")),
        several => {
            let names: Vec<&str> =
                several.iter().take(MAX_LISTED_INBOXES).map(|inbox| inbox.address.as_str()).collect();
            Err(invalid_argument("inbox", format!("is required: choose one of {}", names.join(", "))))
        }
    }
}

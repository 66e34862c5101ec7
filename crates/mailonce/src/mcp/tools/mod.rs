//! The ten tools. Each reads its arguments, calls a verb and words the answer: `status`, `next` and what belongs to it.
//!
//! A replay, a hold or a conflict is an answer. An error is only what the model can mend by calling again: a wrong
//! argument, or a ledger that could not tell.

mod artifact;
mod ask_human;
mod message_view;
mod messages;
mod outcome;
mod reply;
mod send;
mod thread;
mod tool_list;
mod tool_reply;

use mailonce_core::{
    inbox::Inbox,
    problem::{Code, Problem},
};
use mailonce_engine::Caller;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{ToolContext, object};
use crate::api::door;
use crate::mcp::json_rpc::RpcError;
use tool_reply::ToolReply;

pub(super) use tool_list::list;

/// What a tool has to say, or why it cannot.
type ToolResult = Result<ToolReply, Problem>;

/// Names of inboxes that a question lists.
const MAX_LISTED_INBOXES: usize = 10;
/// Characters of a name that no tool has that are said back.
const MAX_ECHOED_CHARS: usize = 128;

/// A result, and the page for a person when the call left something for one to decide.
pub(super) type ToolCallResult = (Map<String, Value>, Option<String>);

/// Calls a tool.
pub(super) async fn call(desk: &ToolContext<'_>, params: &Map<String, Value>) -> Result<ToolCallResult, RpcError> {
    let name = params.get("name").and_then(Value::as_str).unwrap_or_default();
    let nothing = Value::Object(Map::new());
    let arguments = match params.get("arguments") {
        None | Some(Value::Null) => &nothing,
        Some(arguments @ Value::Object(_)) => arguments,
        Some(_) => return Err(RpcError::invalid_params("arguments is an object")),
    };
    let told = match name {
        "send_email" => send::send_email(desk, arguments).await,
        "reply_email" => reply::reply_email(desk, arguments).await,
        "resend_email" => send::resend_email(desk, arguments).await,
        "get_outcome" => outcome::get_outcome(desk, arguments).await,
        "find_messages" => messages::find_messages(desk, arguments).await,
        "read_message" => messages::read_message(desk, arguments).await,
        "wait_for_message" => messages::wait_for_message(desk, arguments).await,
        "take_artifact" => artifact::take_artifact(desk, arguments).await,
        "claim_thread" => thread::claim_thread(desk, arguments).await,
        "ask_human" => ask_human::ask_human(desk, arguments).await,
        _ => return Err(RpcError::invalid_params(format!("Unknown tool: {}", sanitize_name(name)))),
    };
    let said = told.unwrap_or_else(ToolReply::from);
    log_call(desk.caller, name, &said);
    let page = said.approval_page().map(str::to_owned);
    Ok((to_mcp_result(said), page))
}

/// The same as members and as text: some clients show one, some the other.
fn to_mcp_result(said: ToolReply) -> Map<String, Value> {
    let (is_error, body) = said.into_parts();
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

/// Writes down which call of whom this was, so that a trace of the agent can be laid beside ours.
fn log_call(caller: &Caller, tool: &str, said: &ToolReply) {
    let mark = caller.call.as_ref();
    let call = mark.and_then(|mark| mark.id.as_deref());
    let trace = mark.and_then(|mark| mark.traceparent.as_deref());
    let (status, email) = (said.text_member("status"), said.text_member("email"));
    tracing::info!(tool, status, email, call, trace, api_key = %caller.key.id, "a model called a tool");
}

/// Reads the arguments of a tool.
fn parse_args<T: DeserializeOwned>(arguments: &Value) -> Result<T, Problem> {
    door::parse(arguments.to_string().as_bytes())
}

fn invalid_argument(field: &str, detail: impl std::fmt::Display) -> Problem {
    Problem::for_field(Code::InvalidField, field, format!("{field} {detail}"))
}

/// An id in the form of ours.
fn parse_id<T: std::str::FromStr>(field: &str, text: &str) -> Result<T, Problem> {
    text.parse().map_err(|_not_an_id| invalid_argument(field, "is an id that a tool gave you"))
}

/// The inbox that is meant: the one that is named, else the only one that the caller may use.
async fn find_inbox(desk: &ToolContext<'_>, named: Option<&str>) -> Result<Inbox, Problem> {
    find_inbox_where(desk, named, |_| true).await
}

/// The same among those that `fits` is true of, for whoever names none.
async fn find_inbox_where(
    desk: &ToolContext<'_>,
    named: Option<&str>,
    fits: impl Fn(&Inbox) -> bool,
) -> Result<Inbox, Problem> {
    let (engine, caller) = (&desk.app.engine, desk.caller);
    if let Some(text) = named {
        if text.contains('@') {
            return engine.inbox_by_address(caller, text).await;
        }
        return engine.inbox(caller, parse_id("inbox", text)?).await;
    }
    let mut usable = Vec::new();
    if caller.key.details.inboxes.is_empty() {
        usable = engine.inboxes(caller, None, MAX_LISTED_INBOXES + 1).await?.rows;
    } else {
        for one in caller.key.details.inboxes.iter().take(MAX_LISTED_INBOXES + 1) {
            let found = match one.parse() {
                Ok(id) => engine.inbox(caller, id).await,
                Err(_not_an_id) => engine.inbox_by_address(caller, one).await,
            };
            usable.extend(found.ok());
        }
    }
    let now = engine.now();
    usable.retain(|inbox| inbox.is_open(now) && fits(inbox));
    match usable.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(invalid_argument("inbox", "is needed: your key has no inbox; ask the operator for one")),
        several => {
            let names: Vec<&str> =
                several.iter().take(MAX_LISTED_INBOXES).map(|inbox| inbox.address.as_str()).collect();
            Err(invalid_argument("inbox", format!("is needed: which of {} do you mean?", names.join(", "))))
        }
    }
}

//! `take_artifact`: hands out each code or link once.

use mailonce_core::{
    access::team::ApiKeyScope,
    id::MessageId,
    inbox::artifact::{Artifact, ArtifactKind},
    problem::{Code, Problem},
};
use mailonce_engine::inbox::{artifacts::ArtifactQuery, take::TakeRequest};
use serde::Deserialize;
use serde_json::Value;

use super::{ToolContext, ToolReply, ToolResult, find_inbox, invalid_argument, parse_args, parse_id, parse_wait};
use crate::http::json::check_text;

/// The longest code that is returned without a fence.
const MAX_PLAIN_CODE_CHARS: usize = 16;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TakeToolArgs {
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "for")]
    purpose: String,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    inbox: Option<String>,
    #[serde(default)]
    from: Option<String>,
    #[serde(default)]
    subject: Option<String>,
    #[serde(default)]
    timeout_s: Option<u64>,
}

pub(super) async fn take_artifact(ctx: &ToolContext<'_>, arguments: &Value) -> ToolResult {
    ctx.caller.require_scope(ApiKeyScope::Read)?;
    let args: TakeToolArgs = parse_args(arguments)?;
    let kind = ArtifactKind::parse(&args.kind).ok_or_else(|| invalid_argument("type", "must be `code` or `link`"))?;
    if args.purpose.is_empty() {
        return Err(invalid_argument("for", "must name the account or workflow that needs the value"));
    }
    check_text("for", &args.purpose)?;
    for (field, text) in [("from", &args.from), ("subject", &args.subject)] {
        check_text(field, text.as_deref().unwrap_or_default())?;
    }
    let engine = &ctx.app.engine;
    let called_at = engine.ctx.now();
    let artifact = if let Some(message) = &args.message {
        let best = best_artifact(ctx, parse_id("message", message)?, kind).await?;
        engine.artifacts.consume(ctx.caller, best.id, args.purpose, None, None).await?
    } else {
        let inbox = find_inbox(ctx, args.inbox.as_deref()).await?;
        let query = ArtifactQuery { kind, from: args.from, subject: args.subject };
        let timeout = parse_wait(args.timeout_s)?;
        let request = TakeRequest { query, purpose: args.purpose, watch: None, timeout };
        match Box::pin(engine.artifacts.take_artifact(ctx.caller, inbox.id, &request, None)).await {
            // What another `for` took was never this caller's: its own may be on the way.
            Err(problem) if matches!(problem.code, Code::NotFound | Code::AlreadyConsumed) => {
                return Ok(no_artifact_reply(kind, &problem));
            }
            taken => taken?,
        }
    };
    let already_taken = artifact.consumption.as_ref().is_some_and(|consumed| consumed.at < called_at);
    let next = match kind {
        _ if already_taken => {
            "You took it before, at taken_at, and it is still assigned to you. If you used it then, do not use it \
             again: ask the sender for a new one, wait_for_message, and take it with its `message`."
        }
        ArtifactKind::Code => "The code is assigned to you: use the code once, now. Nobody else gets it.",
        ArtifactKind::Link => {
            "The link is assigned to you: open the link between the fences once, only if you expected it. Nobody else \
             gets it."
        }
    };
    let value = &artifact.extracted.value;
    // A link can contain arbitrary text, so it is fenced. A short alphanumeric code cannot.
    let value =
        if is_plain_code(value) { value.clone() } else { engine.inboxes.fence_untrusted(std::slice::from_ref(value)) };
    Ok(ToolReply::new("taken", next)
        .with("artifact", artifact.id.to_string())
        .with("type", kind.as_str())
        .with("value", value)
        .with("confidence", artifact.extracted.confidence)
        .with("authenticated", artifact.authenticated)
        .with("message", artifact.message.to_string())
        .with("taken_at", artifact.consumption.as_ref().map(|consumed| consumed.at.to_string())))
}

/// The result when the inbox has no message with such an artifact.
fn no_artifact_reply(kind: ArtifactKind, problem: &Problem) -> ToolReply {
    let next = match kind {
        ArtifactKind::Code => {
            "No new mail with a code has arrived yet. Call take_artifact again with the same `for`: it waits."
        }
        ArtifactKind::Link => {
            "No new mail with a link has arrived yet. Call take_artifact again with the same `for`: it waits."
        }
    };
    ToolReply::new("none", next).with("detail", &problem.detail)
}

/// Whether a value is so short and simple that it cannot carry a prompt injection.
fn is_plain_code(value: &str) -> bool {
    value.len() <= MAX_PLAIN_CODE_CHARS && value.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

/// The best artifact of this kind in a message. The engine lists the best first.
async fn best_artifact(ctx: &ToolContext<'_>, message: MessageId, kind: ArtifactKind) -> Result<Artifact, Problem> {
    let found = ctx.app.engine.inboxes.artifacts_of(ctx.caller, message).await?;
    let none = || {
        let detail = format!("no unambiguous {} in this message; read it, and ask a person if in doubt", kind.as_str());
        Problem::new(Code::NotFound, detail)
    };
    found.into_iter().find(|artifact| artifact.kind == kind).ok_or_else(none)
}

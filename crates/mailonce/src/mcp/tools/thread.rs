//! `claim_thread`: leases a thread, so that one agent at a time replies to it.

use mailonce_core::{
    access::team::ApiKeyScope,
    id::ThreadId,
    key::{EmailKey, Key},
    outbound::digest,
    problem::Problem,
};
use mailonce_engine::{
    KeyedCall,
    conversation::threads::{MAX_LEASE_MS, NewThreadLease},
};
use serde::Deserialize;
use serde_json::Value;
use std::fmt::Write as _;

use super::{ToolContext, ToolReply, ToolResult, invalid_argument, parse_args, parse_id};
use crate::http::json::check_required_text;

/// The default duration of a lease, in seconds. Long, because models are slow.
const DEFAULT_LEASE_S: u32 = 120;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimArgs {
    thread: String,
    #[serde(default)]
    ttl_s: Option<u32>,
    #[serde(default)]
    holder: Option<String>,
    #[serde(default)]
    lease: Option<String>,
}

pub(super) async fn claim_thread(ctx: &ToolContext<'_>, arguments: &Value) -> ToolResult {
    ctx.caller.require_scope(ApiKeyScope::Reply)?;
    let ClaimArgs { thread, ttl_s, holder, lease } = parse_args(arguments)?;
    let thread: ThreadId = parse_id("thread", &thread)?;
    // 0 releases a lease. Without one it says nothing: a strict schema makes a model fill it in.
    let ttl_s = ttl_s.filter(|seconds| *seconds > 0 || lease.is_some());
    if let (Some(0), Some(lease)) = (ttl_s, &lease) {
        return release(ctx, thread, lease).await;
    }
    let ttl_ms = i64::from(ttl_s.unwrap_or(DEFAULT_LEASE_S)) * 1000;
    if ttl_ms > MAX_LEASE_MS {
        return Err(invalid_argument("ttl_s", "must be at most 600"));
    }
    holder.as_deref().map_or(Ok(()), |holder| check_required_text("holder", holder))?;
    let keyed_call = match (&lease, &holder) {
        (None, Some(holder)) => Some(claim_call(ctx, thread, holder).await?),
        _ => None,
    };
    let holder = holder.unwrap_or_else(|| ctx.caller.key.details.name.clone());
    let request = NewThreadLease { renew: lease, holder, ttl_ms };
    let lease = ctx.app.engine.conversations.lease_thread(ctx.caller, thread, request, keyed_call).await?;
    Ok(ToolReply::new("claimed", "You hold the thread until `expires_at`: pass `lease` to reply_email.")
        .with("thread", thread.to_string())
        .with("lease", lease.token)
        .with("fence", lease.fence)
        .with("holder", lease.holder)
        .with("expires_at", lease.expires_at.to_string()))
}

async fn release(ctx: &ToolContext<'_>, thread: ThreadId, lease: &str) -> ToolResult {
    ctx.app.engine.conversations.release_thread(ctx.caller, thread, lease).await?;
    let next = "The thread is released; leave it to other agents, or claim it again before you reply.";
    Ok(ToolReply::new("released", next).with("thread", thread.to_string()))
}

/// Derives an idempotency key for the claim, so that a holder who lost its lease token gets the same lease back. The
/// key covers the fence of the lease: the current one, or the next one if the thread is free.
async fn claim_call(ctx: &ToolContext<'_>, id: ThreadId, holder: &str) -> Result<KeyedCall, Problem> {
    let (thread, _) = ctx.app.engine.inboxes.thread(ctx.caller, id).await?;
    let is_leased = thread.active_lease(ctx.app.engine.ctx.now()).is_some();
    let fence = thread.details.fence + u64::from(!is_leased);
    let holder_id = format!("{}\n{holder}", ctx.caller.key.id);
    let digest = digest::operation_digest("mcp/claim_thread", &format!("{id}/{fence}"), holder_id.as_bytes());
    let mut name = String::from("mcp_claim_");
    for byte in digest {
        // Writing to a String cannot fail.
        write!(name, "{byte:02x}").ok();
    }
    let key = Key::parse(&name).map_err(|error| invalid_argument("holder", error))?;
    Ok(KeyedCall { key: EmailKey::Given(key), digest })
}

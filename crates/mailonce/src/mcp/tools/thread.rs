//! `claim_thread`: one agent at a time answers a thread.

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
use crate::api::check_required_text;

/// How long a lease lasts when nobody says, in seconds: a model thinks slowly.
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

pub(super) async fn claim_thread(desk: &ToolContext<'_>, arguments: &Value) -> ToolResult {
    desk.caller.require_scope(ApiKeyScope::Reply)?;
    let ClaimArgs { thread, ttl_s, holder, lease } = parse_args(arguments)?;
    let thread: ThreadId = parse_id("thread", &thread)?;
    let ttl_ms = i64::from(ttl_s.unwrap_or(DEFAULT_LEASE_S)) * 1000;
    if ttl_ms == 0 {
        return release(desk, thread, lease).await;
    }
    if ttl_ms > MAX_LEASE_MS {
        return Err(invalid_argument("ttl_s", "is at most 600"));
    }
    holder.as_deref().map_or(Ok(()), |holder| check_required_text("holder", holder))?;
    let asked = match (&lease, &holder) {
        (None, Some(holder)) => Some(claim_call(desk, thread, holder).await?),
        _ => None,
    };
    let holder = holder.unwrap_or_else(|| desk.caller.key.details.name.clone());
    let request = NewThreadLease { renew: lease, holder, ttl_ms };
    let lease = desk.app.engine.lease_thread(desk.caller, thread, request, asked).await?;
    Ok(ToolReply::new("claimed", "The thread is yours until `expires_at`: pass `lease` to reply_email.")
        .with("thread", thread.to_string())
        .with("lease", lease.token)
        .with("fence", lease.fence)
        .with("holder", lease.holder)
        .with("expires_at", lease.expires_at.to_string()))
}

async fn release(desk: &ToolContext<'_>, thread: ThreadId, lease: Option<String>) -> ToolResult {
    let Some(lease) = lease else { return Err(invalid_argument("lease", "is needed to give a thread back")) };
    desk.app.engine.release_thread(desk.caller, thread, &lease).await?;
    let next = "The thread is free; leave it to others, or claim it anew before you answer.";
    Ok(ToolReply::new("released", next).with("thread", thread.to_string()))
}

/// A holder who forgot its lease gets the same one again. The name of the wish is the lease that it is about: the one
/// that is held now, or the next one.
async fn claim_call(desk: &ToolContext<'_>, id: ThreadId, holder: &str) -> Result<KeyedCall, Problem> {
    let (thread, _) = desk.app.engine.thread(desk.caller, id).await?;
    let held = thread.active_lease(desk.app.engine.now()).is_some();
    let fence = thread.details.fence + u64::from(!held);
    let who = format!("{}\n{holder}", desk.caller.key.id);
    let digest = digest::operation_digest("mcp/claim_thread", &format!("{id}/{fence}"), who.as_bytes());
    let mut name = String::from("mcp_claim_");
    for byte in digest {
        // Writing to a String cannot fail.
        write!(name, "{byte:02x}").ok();
    }
    let key = Key::parse(&name).map_err(|error| invalid_argument("holder", error))?;
    Ok(KeyedCall { key: EmailKey::Given(key), digest })
}

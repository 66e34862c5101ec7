//! `claim_thread`: one agent at a time answers a thread.

use mailonce_core::{
    digest,
    id::ThreadId,
    key::{Key, KeyName},
    problem::Problem,
    team::Scope,
};
use mailonce_engine::{
    Asked,
    threads::{LEASE_MS, LeaseRequest},
};
use serde::Deserialize;
use serde_json::Value;
use std::fmt::Write as _;

use super::{Desk, Said, Told, fault, id, read};
use crate::api::named_words;

/// How long a lease lasts when nobody says, in seconds: a model thinks slowly.
const LEASE_S: u32 = 120;

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

pub(super) async fn claim_thread(desk: &Desk<'_>, arguments: &Value) -> Told {
    desk.caller.need(Scope::Reply)?;
    let ClaimArgs { thread, ttl_s, holder, lease } = read(arguments)?;
    let thread: ThreadId = id("thread", &thread)?;
    let ttl_ms = i64::from(ttl_s.unwrap_or(LEASE_S)) * 1000;
    if ttl_ms == 0 {
        return release(desk, thread, lease).await;
    }
    if ttl_ms > LEASE_MS {
        return Err(fault("ttl_s", "is at most 600"));
    }
    holder.as_deref().map_or(Ok(()), |holder| named_words("holder", holder))?;
    let asked = match (&lease, &holder) {
        (None, Some(holder)) => Some(asked(desk, thread, holder).await?),
        _ => None,
    };
    let holder = holder.unwrap_or_else(|| desk.caller.key.about.name.clone());
    let request = LeaseRequest { renew: lease, holder, ttl_ms };
    let lease = desk.app.engine.lease_thread(desk.caller, thread, request, asked).await?;
    Ok(Said::new("claimed", "The thread is yours until `expires_at`: pass `lease` to reply_email.")
        .with("thread", thread.to_string())
        .with("lease", lease.token)
        .with("fence", lease.fence)
        .with("holder", lease.holder)
        .with("expires_at", lease.expires_at.to_string()))
}

async fn release(desk: &Desk<'_>, thread: ThreadId, lease: Option<String>) -> Told {
    let Some(lease) = lease else { return Err(fault("lease", "is needed to give a thread back")) };
    desk.app.engine.release_thread(desk.caller, thread, &lease).await?;
    let next = "The thread is free; leave it to others, or claim it anew before you answer.";
    Ok(Said::new("released", next).with("thread", thread.to_string()))
}

/// A holder who forgot its lease gets the same one again. The name of the wish is the lease that it is about: the one
/// that is held now, or the next one.
async fn asked(desk: &Desk<'_>, id: ThreadId, holder: &str) -> Result<Asked, Problem> {
    let (thread, _) = desk.app.engine.thread(desk.caller, id).await?;
    let held = thread.lease_at(desk.app.engine.now()).is_some();
    let fence = thread.about.fence + u64::from(!held);
    let who = format!("{}\n{holder}", desk.caller.key.id);
    let digest = digest::of_operation("mcp/claim_thread", &format!("{id}/{fence}"), who.as_bytes());
    let mut name = String::from("mcp_claim_");
    for byte in digest {
        // Writing to a String cannot fail.
        write!(name, "{byte:02x}").ok();
    }
    let key = Key::parse(&name).map_err(|error| fault("holder", error))?;
    Ok(Asked { name: KeyName::Given(key), digest })
}

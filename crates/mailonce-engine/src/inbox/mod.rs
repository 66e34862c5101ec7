//! Inboxes and what agents read from them.

pub mod artifacts;
mod deletion;
mod implicit_watch;
pub mod inboxes;
pub mod labels;
pub mod messages;
pub(crate) mod parties;
pub(crate) mod reply_recipients;
pub mod take;
pub mod team_messages;
pub mod wait;

use std::sync::Arc;

use crate::{access::Access, runtime::context::Context};

/// Inboxes and what agents read from them.
pub struct Inboxes {
    ctx: Arc<Context>,
    access: Arc<Access>,
}

impl Inboxes {
    pub(crate) fn new(ctx: Arc<Context>, access: Arc<Access>) -> Self {
        Self { ctx, access }
    }
}

/// Codes and links in messages, watches for them, and waiting for messages.
pub struct Artifacts {
    ctx: Arc<Context>,
    access: Arc<Access>,
    inboxes: Arc<Inboxes>,
}

impl Artifacts {
    pub(crate) fn new(ctx: &Arc<Context>, access: &Arc<Access>, inboxes: &Arc<Inboxes>) -> Self {
        Self { ctx: Arc::clone(ctx), access: Arc::clone(access), inboxes: Arc::clone(inboxes) }
    }
}

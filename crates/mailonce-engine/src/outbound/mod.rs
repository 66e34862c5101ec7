//! Sending: accepts emails under idempotency keys, and holds drafts.

pub(crate) mod content_guard;
pub mod draft_send_cycles;
pub mod drafts;
pub mod email_commands;
pub mod idempotency_keys;
pub mod keyed_send;
pub mod message_ids;
pub mod queries;
pub(crate) mod replay_cache;
pub(crate) mod reply_terms;
pub mod send;
pub mod send_receipt;
pub mod simulate;
pub(crate) mod suppressed_calls;
pub mod templates;

use std::sync::Arc;

use crate::{
    access::Access,
    control::{Budgets, Control},
    inbox::Inboxes,
    runtime::context::Context,
};

/// Accepts emails, once for each idempotency key, and answers retries and queries about them.
pub struct Outbound {
    ctx: Arc<Context>,
    access: Arc<Access>,
    control: Arc<Control>,
    budgets: Arc<Budgets>,
    replay_cache: Arc<replay_cache::ReplayCache>,
    suppressed_calls: suppressed_calls::SuppressedCallBuffer,
    pub(crate) content_guard: content_guard::ContentGuard,
    message_ids: message_ids::MessageIdCache,
    /// Stored wording of emails.
    pub templates: templates::Templates,
}

impl Outbound {
    pub(crate) fn new(
        ctx: Arc<Context>,
        access: Arc<Access>,
        control: Arc<Control>,
        budgets: Arc<Budgets>,
        replay_cache: Arc<replay_cache::ReplayCache>,
    ) -> Self {
        Self {
            templates: templates::Templates::new(Arc::clone(&ctx)),
            content_guard: content_guard::ContentGuard::new(Arc::clone(&ctx), Arc::clone(&access)),
            ctx,
            access,
            control,
            budgets,
            replay_cache,
            suppressed_calls: suppressed_calls::SuppressedCallBuffer::default(),
            message_ids: message_ids::MessageIdCache::default(),
        }
    }
}

/// Drafts: emails that callers prepare and send later.
pub struct Drafts {
    ctx: Arc<Context>,
    inboxes: Arc<Inboxes>,
    outbound: Arc<Outbound>,
}

impl Drafts {
    pub(crate) fn new(ctx: Arc<Context>, inboxes: Arc<Inboxes>, outbound: Arc<Outbound>) -> Self {
        Self { ctx, inboxes, outbound }
    }
}

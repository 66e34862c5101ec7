//! Receiving mail and provider events: storing deliveries, parsing them, and filing them as messages.

pub(crate) mod bounces;
pub mod collect;
pub(crate) mod hook_mail;
pub mod hooks;
pub mod local;
pub(crate) mod loop_guard;
pub(crate) mod poll;
pub mod receive;
pub(crate) mod worker;

use std::sync::Arc;

use crate::{access::Sources, control::Control, inbox::Inboxes, outbound::Outbound, runtime::context::Context};

/// Receiving mail and provider events.
pub struct Inbound {
    ctx: Arc<Context>,
    sources: Arc<Sources>,
    control: Arc<Control>,
    inboxes: Arc<Inboxes>,
    outbound: Arc<Outbound>,
    certificate_cache: hooks::CertificateCache,
}

impl Inbound {
    pub(crate) fn new(
        ctx: &Arc<Context>,
        sources: &Arc<Sources>,
        control: &Arc<Control>,
        inboxes: &Arc<Inboxes>,
        outbound: &Arc<Outbound>,
    ) -> Self {
        Self {
            ctx: Arc::clone(ctx),
            sources: Arc::clone(sources),
            control: Arc::clone(control),
            inboxes: Arc::clone(inboxes),
            outbound: Arc::clone(outbound),
            certificate_cache: hooks::CertificateCache::default(),
        }
    }
}

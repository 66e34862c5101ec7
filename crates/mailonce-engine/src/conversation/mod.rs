//! Threads, replies, the work queue, and escalations: questions that a person decides.

mod approval_emails;
pub mod approval_links;
pub(crate) mod decisions;
pub(crate) mod diff;
pub(crate) mod escalation_worker;
pub mod escalations;
pub(crate) mod exposed_links;
pub mod links;
pub mod mailbox_reader;
mod notification_attempts;
mod notification_order;
mod notification_progress;
mod notification_recipients;
pub mod notification_state;
pub mod notification_targets;
mod notifications;
pub mod preview;
pub(crate) mod quote;
pub mod reply;
pub mod threads;
pub(crate) mod word_diff;
pub mod work_queue;

use std::sync::Arc;

use crate::{
    access::Access,
    control::Budgets,
    handoff::Handoffs,
    inbox::Inboxes,
    outbound::{Drafts, Outbound},
    runtime::context::Context,
};

/// Opens escalations, notifies people about them and carries out their decisions.
pub struct Escalations {
    ctx: Arc<Context>,
    access: Arc<Access>,
    budgets: Arc<Budgets>,
    inboxes: Arc<Inboxes>,
    handoffs: Arc<Handoffs>,
    outbound: Arc<Outbound>,
    /// Where the next round of the escalation worker resumes its scan.
    escalation_progress: escalation_worker::EscalationProgress,
    notification_progress: Arc<notification_progress::NotificationProgress>,
}

impl Escalations {
    pub(crate) fn new(
        ctx: Arc<Context>,
        access: Arc<Access>,
        budgets: Arc<Budgets>,
        inboxes: Arc<Inboxes>,
        handoffs: Arc<Handoffs>,
        outbound: Arc<Outbound>,
    ) -> Self {
        let escalation_progress = escalation_worker::EscalationProgress::default();
        let notification_progress = Arc::default();
        Self { ctx, access, budgets, inboxes, handoffs, outbound, escalation_progress, notification_progress }
    }
}

/// Tells people about escalations, by email and by cards of targets, and lets them decide by links.
pub struct Notifications {
    ctx: Arc<Context>,
    access: Arc<Access>,
    escalations: Arc<Escalations>,
    /// Which notifications are being sent, and which need no further attempt.
    progress: Arc<notification_progress::NotificationProgress>,
}

impl Notifications {
    pub(crate) fn new(ctx: &Arc<Context>, access: &Arc<Access>, escalations: &Arc<Escalations>) -> Self {
        Self {
            ctx: Arc::clone(ctx),
            access: Arc::clone(access),
            escalations: Arc::clone(escalations),
            progress: Arc::clone(&escalations.notification_progress),
        }
    }
}

/// Threads, replies and forwards, the work queue, and mailboxes with received and sent mail.
pub struct Conversations {
    pub(crate) ctx: Arc<Context>,
    pub(crate) access: Arc<Access>,
    pub(crate) budgets: Arc<Budgets>,
    pub(crate) inboxes: Arc<Inboxes>,
    pub(crate) handoffs: Arc<Handoffs>,
    pub(crate) outbound: Arc<Outbound>,
    pub(crate) drafts: Arc<Drafts>,
    pub(crate) escalations: Arc<Escalations>,
}

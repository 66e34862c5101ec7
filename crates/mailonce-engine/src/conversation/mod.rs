//! Threads, replies, the work queue, and escalations: questions that a person decides.

mod approval_emails;
pub mod approval_links;
pub(crate) mod decisions;
pub(crate) mod diff;
pub(crate) mod escalation_worker;
pub mod escalations;
pub mod links;
pub mod mailbox_reader;
mod notification_attempts;
mod notification_order;
mod notification_progress;
mod notification_recipients;
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
    control::Control,
    handoff::Handoffs,
    inbox::Inboxes,
    outbound::{Drafts, Outbound},
    runtime::context::Context,
};

/// Opens escalations, notifies people about them and carries out their decisions.
pub struct Escalations {
    ctx: Arc<Context>,
    access: Arc<Access>,
    control: Arc<Control>,
    inboxes: Arc<Inboxes>,
    handoffs: Arc<Handoffs>,
    outbound: Arc<Outbound>,
    /// Where the next round of the escalation worker resumes its scan.
    escalation_progress: escalation_worker::EscalationProgress,
    /// Which notifications are being sent, and which need no further attempt.
    notifications: notification_progress::NotificationProgress,
}

impl Escalations {
    pub(crate) fn new(
        ctx: Arc<Context>,
        access: Arc<Access>,
        control: Arc<Control>,
        inboxes: Arc<Inboxes>,
        handoffs: Arc<Handoffs>,
        outbound: Arc<Outbound>,
    ) -> Self {
        let escalation_progress = escalation_worker::EscalationProgress::default();
        let notifications = notification_progress::NotificationProgress::default();
        Self { ctx, access, control, inboxes, handoffs, outbound, escalation_progress, notifications }
    }
}

/// Threads, replies and forwards, the work queue, and mailboxes with received and sent mail.
pub struct Conversations {
    pub(crate) ctx: Arc<Context>,
    pub(crate) access: Arc<Access>,
    pub(crate) control: Arc<Control>,
    pub(crate) inboxes: Arc<Inboxes>,
    pub(crate) handoffs: Arc<Handoffs>,
    pub(crate) outbound: Arc<Outbound>,
    pub(crate) drafts: Arc<Drafts>,
    pub(crate) escalations: Arc<Escalations>,
}

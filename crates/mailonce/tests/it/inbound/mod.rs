//! Mail and events that arrive: by SMTP, by webhook and by polling.

mod amazon_ses;
mod announced_mail;
mod forged_mail;
mod loop_guard;
mod polling;
mod provider_events;
mod received_mail;
mod removed_inboxes;
mod webhook_mail;

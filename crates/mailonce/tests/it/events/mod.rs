//! The event log, its stream, and webhooks.

mod endpoints;
mod event_log;
mod notices;
mod signature_verifiers;
mod stream;

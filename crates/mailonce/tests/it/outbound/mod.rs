//! Sends: idempotency keys, intents, batches, templates, and commands on accepted email.

mod attachments;
mod batch;
mod call_ids;
pub(super) mod client_disconnects;
mod concurrent_sends;
mod content_guard;
mod email_commands;
mod email_queries;
mod equivalent_requests;
mod header_injection_and_size_limits;
mod idempotency_keys;
mod invalid_batches;
mod invalid_requests;
mod key_mismatch;
mod key_ttl;
mod key_vectors;
mod keyless_dialect_sends;
mod recipient_overlap;
mod resend;
mod send;
mod stats;
mod templates;

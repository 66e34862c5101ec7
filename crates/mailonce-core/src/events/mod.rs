//! Events, the webhook endpoints that receive them, and the notices that deliver them.

pub mod endpoint;
pub mod event;
pub mod formatted_event;
pub mod notice;
pub mod retention;
pub mod webhook;

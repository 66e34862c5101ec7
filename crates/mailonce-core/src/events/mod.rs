//! Events, the webhook endpoints that receive them, and the notices that deliver them.

pub mod endpoint;
pub mod event;
pub mod notice;

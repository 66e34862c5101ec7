//! Events, webhook endpoints and notices.

pub mod endpoint;
pub mod event;
pub mod notice;

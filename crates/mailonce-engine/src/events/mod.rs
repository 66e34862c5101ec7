//! Events, webhook endpoints and notices.

pub mod endpoints;
pub(crate) mod event_format;
pub mod event_view;
pub mod notices;
pub mod notifier;
pub mod tail;

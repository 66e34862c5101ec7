//! Events, webhook endpoints and notices.

pub(crate) mod endpoints;
pub(crate) mod event_log;
pub(crate) mod notices;
pub(crate) mod stream;

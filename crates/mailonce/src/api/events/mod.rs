//! Events, webhook endpoints and notices.

pub(crate) mod endpoints;
pub(crate) mod events;
pub(crate) mod notices;
pub(crate) mod stream;

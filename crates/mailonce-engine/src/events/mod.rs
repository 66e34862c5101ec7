//! Events, webhook endpoints and notices.

pub mod endpoints;
pub mod notices;
pub mod notify;
pub mod tail;
pub mod told;
pub(crate) mod wording;

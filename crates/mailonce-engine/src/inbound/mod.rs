//! Receiving mail: deliveries, parsing, filing.

pub mod collect;
pub(crate) mod cursor;
pub mod hook;
pub(crate) mod hook_mail;
pub(crate) mod inbound;
pub mod local;
pub(crate) mod own;
pub(crate) mod poll;
pub(crate) mod read;
pub mod receive;
pub(crate) mod returned;

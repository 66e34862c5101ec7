//! Teams and API keys.

pub(crate) mod teams;

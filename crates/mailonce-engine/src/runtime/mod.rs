//! What the services share: the context, clocks, node ids, metrics, and the encoding and encryption of stored data.

pub(crate) mod blocking;
pub mod context;
pub(crate) mod derived_ids;
pub(crate) mod epoch;
pub(crate) mod escalation_hook;
pub(crate) mod fetch_limiter;
pub(crate) mod heartbeat;
pub(crate) mod hex;
pub(crate) mod inbound_runtime;
pub(crate) mod keyed_call;
pub(crate) mod lease_identity;
pub mod metrics;
pub(crate) mod pack;
pub(crate) mod panics;
pub(crate) mod problems;
pub mod records;
pub(crate) mod sealed_answers;
pub(crate) mod team_round;
pub mod time;
pub(crate) mod vault;

//! What every domain uses: keyed calls, metrics and upkeep.

mod keyed_calls;
mod metrics;
mod upkeep;

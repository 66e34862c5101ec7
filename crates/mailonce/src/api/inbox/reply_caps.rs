//! Limits on the number of replies from an inbox.

use mailonce_core::{conversation::caps::ReplyCaps, problem::Problem};
use mailonce_engine::inbox::inboxes::CapsPatch;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::http::json::given;

/// Limits on the number of replies. A reply beyond a limit is held.
///
/// Absent fields keep their value. The defaults are 3 in 300 seconds and 20 a day in a thread, and 20 a day to one
/// recipient.
#[derive(Clone, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CapsBody {
    /// Replies in a thread within `window_s`.
    #[serde(default)]
    per_window: Option<u32>,
    /// Length of the window in seconds, 1 to 86400.
    #[serde(default)]
    window_s: Option<u32>,
    /// Replies in a thread per day.
    #[serde(default)]
    per_thread_per_day: Option<u32>,
    /// Replies to one recipient per day, over all threads.
    #[serde(default)]
    per_recipient_per_day: Option<u32>,
    /// Replies in a thread in total; `null` removes the limit. No limit by default.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>)]
    per_thread_total: Option<Option<u32>>,
}

impl From<ReplyCaps> for CapsBody {
    fn from(caps: ReplyCaps) -> Self {
        Self {
            per_window: Some(caps.per_window),
            window_s: u32::try_from(caps.window_ms / 1000).ok(),
            per_thread_per_day: Some(caps.per_day),
            per_recipient_per_day: Some(caps.per_person),
            per_thread_total: caps.per_thread.map(Some),
        }
    }
}

impl CapsBody {
    pub(super) fn validate(self) -> Result<CapsPatch, Problem> {
        let count = |field: &str, limit: Option<u32>| match limit {
            Some(limit) if limit > ReplyCaps::MAX => {
                Err(Problem::invalid_field(format!("caps.{field}"), format!("must be at most {}", ReplyCaps::MAX)))
            }
            limit => Ok(limit),
        };
        if self.window_s.is_some_and(|seconds| !(1..=86_400).contains(&seconds)) {
            return Err(Problem::invalid_field("caps.window_s", "must be 1 to 86400"));
        }
        Ok(CapsPatch {
            per_window: count("per_window", self.per_window)?,
            window_ms: self.window_s.map(|seconds| i64::from(seconds) * 1000),
            per_day: count("per_thread_per_day", self.per_thread_per_day)?,
            per_person: count("per_recipient_per_day", self.per_recipient_per_day)?,
            per_thread: self.per_thread_total,
        })
    }
}

//! What happens to emails without a key through dialects, for a team or for the installation.

use mailonce_core::outbound::content_guard::IdenticalMode;
use serde::{Deserialize, Serialize};

/// How long an identical email is a repeat, unless a setting says otherwise: ten minutes.
const DEFAULT_WINDOW_MS: i64 = 600_000;

/// What a team, or the installation by default, does with emails without a key through dialects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CompatSettings {
    /// What happens to an identical email. `None`: the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keyless: Option<IdenticalMode>,
    /// How long after its acceptance an email is repeated, in milliseconds. `None`: the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_ms: Option<i64>,
}

impl CompatSettings {
    /// What happens to an identical email, and for how long, with the installation's settings where the team has none.
    pub fn resolve(self, installation: Self) -> (IdenticalMode, i64) {
        (
            self.keyless.or(installation.keyless).unwrap_or(IdenticalMode::Replay),
            self.window_ms.or(installation.window_ms).unwrap_or(DEFAULT_WINDOW_MS),
        )
    }

    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

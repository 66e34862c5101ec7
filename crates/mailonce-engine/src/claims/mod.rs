//! Claims: the once-only right to any side effect other than an email.
//!
//! | file | what it holds |
//! |---|---|
//! | [`requests`] | acquiring a claim, commands and facts about it, lists |
//! | `tokens` | tokens of holders and keys for other systems, derived from the install secret |
//! | `worker` | the loop that notices ended leases, opens escalations and forgets old claims |

pub mod requests;
mod tokens;
mod worker;

use std::sync::Arc;

use crate::{access::Access, runtime::context::Context};

/// The once-only right to any side effect other than an email.
pub struct Claims {
    ctx: Arc<Context>,
    access: Arc<Access>,
    /// Where the next scan for unknown claims goes on.
    scan_position: tokio::sync::Mutex<Option<mailonce_core::id::ClaimId>>,
}

impl Claims {
    pub(crate) fn new(ctx: Arc<Context>, access: Arc<Access>) -> Self {
        Self { ctx, access, scan_position: tokio::sync::Mutex::default() }
    }
}

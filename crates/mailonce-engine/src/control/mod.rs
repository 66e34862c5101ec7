//! What a team limits: rules, allow and block lists, budgets, stops and suppressions.
//!
//! | file | what it holds |
//! |---|---|
//! | `rules`, `outbound_rule_facts` | rules for received and sent mail |
//! | `lists` | allow and block lists |
//! | [`audit`] | who changed what: reading the log, and its retention |
//! | [`budgets`] | budgets, and what an email counts for in them |
//! | [`stops`] | switches that keep email from leaving |
//! | `policy_trace` | collects what each check decides about an email |
//! | `suppressions` | addresses that a team doesn't send to |
//! | [`unsubscribe`] | links with which a recipient unsubscribes |
//! | `record_cache` | the rules, lists and budgets of teams, cached |

pub mod audit;
pub mod budgets;
pub mod lists;
pub(crate) mod outbound_rule_facts;
pub(crate) mod policy_trace;
pub(crate) mod record_cache;
pub mod rules;
pub mod stops;
pub mod suppressions;
pub mod unsubscribe;

use mailonce_core::id::{EmailId, TeamId};
use std::sync::Arc;

use crate::{access::Access, runtime::context::Context};

/// What a team limits: rules, lists, budgets, suppressions.
pub struct Control {
    ctx: Arc<Context>,
    access: Arc<Access>,
    record_caches: record_cache::RecordCaches,
    /// Who changed what.
    pub audit: audit::AuditLog,
    /// Switches that keep email from leaving.
    pub stops: stops::StopControl,
    /// Suppressed addresses, in memory.
    suppression_index: suppressions::SuppressionIndex,
    /// Where the next round that releases email held by budgets goes on.
    budget_release_position: tokio::sync::Mutex<Option<(TeamId, EmailId)>>,
}

impl Control {
    pub(crate) fn new(ctx: Arc<Context>, access: Arc<Access>) -> Self {
        Self {
            audit: audit::AuditLog::new(Arc::clone(&ctx)),
            stops: stops::StopControl::new(Arc::clone(&ctx)),
            ctx,
            access,
            record_caches: record_cache::RecordCaches::default(),
            suppression_index: suppressions::SuppressionIndex::default(),
            budget_release_position: tokio::sync::Mutex::default(),
        }
    }
}

//! What a team limits: rules, allow and block lists, budgets, stops and suppressions.
//!
//! | file | what it holds |
//! |---|---|
//! | `rules`, `outbound_rule_facts` | rules for received and sent mail |
//! | `lists` | allow and block lists |
//! | [`audit`] | who changed what: reading the log, and its retention |
//! | [`budgets`] | budgets, and what an email counts for in them |
//! | [`erasures`], `erasure_steps`, `erasure_find`, `erasure_claims` | erasing a person |
//! | `retention` | deletes bodies, received mail and events early |
//! | [`stops`] | switches that keep email from leaving |
//! | [`policy_trace`] | what each check decided about an email |
//! | `suppressions` | addresses that a team doesn't send to |
//! | [`unsubscribe`] | links with which a recipient unsubscribes |
//! | `record_cache` | the rules, lists and budgets of teams, cached |

pub mod audit;
pub mod budgets;
mod erasure_claims;
mod erasure_find;
mod erasure_steps;
pub mod erasures;
pub mod lists;
pub(crate) mod outbound_rule_facts;
pub mod policy_trace;
pub(crate) mod record_cache;
mod retention;
pub mod rules;
pub mod stops;
pub mod suppressions;
pub mod unsubscribe;

use mailonce_core::{
    control::erasure::alias_of,
    id::{EmailId, TeamId},
};
use std::{collections::HashMap, sync::Arc};

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
    retention_progress: tokio::sync::Mutex<retention::RetentionProgress>,
}

impl Control {
    /// Reads a team's rules, lists, budgets and settings again at their next use.
    fn forget_cached_records(&self, team: TeamId) {
        self.record_caches.rules.invalidate(team);
        self.record_caches.lists.invalidate(team);
        self.record_caches.budgets.invalidate(team);
        self.access.forget_cached_settings(team);
    }

    /// These addresses by their aliases. Lists, rules and budgets name an erased person by the alias, and still apply.
    fn addresses_by_alias<'a>(
        &self,
        team: TeamId,
        addresses: impl IntoIterator<Item = &'a str>,
    ) -> HashMap<String, &'a str> {
        addresses.into_iter().map(|address| (alias_of(&self.ctx.secret, team, address), address)).collect()
    }

    pub(crate) fn new(ctx: Arc<Context>, access: Arc<Access>) -> Self {
        Self {
            audit: audit::AuditLog::new(Arc::clone(&ctx)),
            stops: stops::StopControl::new(Arc::clone(&ctx)),
            ctx,
            access,
            record_caches: record_cache::RecordCaches::default(),
            suppression_index: suppressions::SuppressionIndex::default(),
            retention_progress: tokio::sync::Mutex::default(),
        }
    }
}

/// Limits on emails or recipients per period, and what each email counts for in them.
pub struct Budgets {
    ctx: Arc<Context>,
    access: Arc<Access>,
    control: Arc<Control>,
    /// Where the next round that releases held email goes on.
    release_position: tokio::sync::Mutex<Option<(TeamId, EmailId)>>,
}

impl Budgets {
    pub(crate) fn new(ctx: Arc<Context>, access: Arc<Access>, control: Arc<Control>) -> Self {
        Self { ctx, access, control, release_position: tokio::sync::Mutex::default() }
    }
}

/// Removes a person's address, names and mail.
pub struct Erasures {
    ctx: Arc<Context>,
    control: Arc<Control>,
    active_erasures: erasures::ActiveErasures,
}

impl Erasures {
    pub(crate) fn new(ctx: Arc<Context>, control: Arc<Control>) -> Self {
        Self { ctx, control, active_erasures: erasures::ActiveErasures::default() }
    }
}

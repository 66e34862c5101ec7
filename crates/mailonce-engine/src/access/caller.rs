//! The caller of an operation: API key, team and channel.

use mailonce_core::{
    access::team::{ApiKey, ApiKeyDetails, ApiKeyScope, Team},
    call_trace::CallTrace,
    id::{ApiKeyId, InboxId, PersonId},
    outbound::{
        email::Channel,
        suppressed_call::{SuppressedCall, SuppressedReason},
    },
    problem::{Code, Problem},
    time::Time,
};
use std::sync::Arc;
use uuid::Uuid;

/// The inboxes that an API key is restricted to. Removed inboxes are not among them.
#[derive(Debug, Default)]
pub struct InboxRestriction {
    pub(super) inboxes: Vec<(InboxId, String)>,
}

impl InboxRestriction {
    /// The addresses of the inboxes.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.inboxes.iter().map(|(_, address)| address.clone()).collect()
    }

    /// The ids of the inboxes.
    pub(crate) fn inbox_ids(&self) -> Vec<InboxId> {
        self.inboxes.iter().map(|(inbox, _)| *inbox).collect()
    }

    /// The first inbox. It gets the questions that are not about a message.
    pub(crate) fn first_inbox(&self) -> Option<InboxId> {
        self.inboxes.first().map(|(inbox, _)| *inbox)
    }

    /// Whether an inbox is among them.
    pub(crate) fn has_inbox(&self, id: InboxId) -> bool {
        self.inboxes.iter().any(|(inbox, _)| *inbox == id)
    }

    /// Whether an address belongs to one of them.
    pub(crate) fn has_address(&self, address: &str) -> bool {
        self.inboxes.iter().any(|(_, own)| own.eq_ignore_ascii_case(address))
    }
}

/// An authenticated caller and the channel of the call.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The API key of the call.
    pub key: Arc<ApiKey>,
    /// The team of the API key.
    pub team: Arc<Team>,
    /// The channel of the call, such as HTTP, the command line, MCP or a dialect.
    pub channel: Channel,
    /// The trace of this call, when the caller sent one.
    pub call: Option<CallTrace>,
    /// The inboxes that the API key is restricted to; `None` for a key of the whole team.
    pub inbox_restriction: Option<Arc<InboxRestriction>>,
}

impl Caller {
    /// mailonce itself, acting for a team without an API key.
    pub(crate) fn of_system(team: Team, channel: Channel, now: Time) -> Self {
        let key = ApiKey {
            id: ApiKeyId(Uuid::nil()),
            team: team.id,
            hash: [0; 32],
            details: ApiKeyDetails::unrestricted("mailonce", vec![ApiKeyScope::Send]),
            created_at: now,
            revoked_at: None,
            last_used_at: None,
        };
        Self { key: Arc::new(key), team: Arc::new(team), channel, call: None, inbox_restriction: None }
    }

    /// The API key of the call; `None` when mailonce itself acts.
    pub(crate) fn api_key_id(&self) -> Option<ApiKeyId> {
        Some(self.key.id).filter(|id| !id.0.is_nil())
    }

    /// The person who calls; `None` for a program.
    pub fn person(&self) -> Option<PersonId> {
        self.key.details.on_behalf_of.as_ref().map(|access| access.person)
    }

    /// Returns `wrong_scope` unless the caller may decide what waits for a person.
    pub fn require_decider(&self) -> Result<(), Problem> {
        if self.key.has_scope(ApiKeyScope::Admin) { Ok(()) } else { self.require_scope(ApiKeyScope::Approve) }
    }

    /// Returns `wrong_scope` unless the API key has the scope.
    pub fn require_scope(&self, scope: ApiKeyScope) -> Result<(), Problem> {
        if scope == ApiKeyScope::Operator {
            self.require_unrestricted_key()?;
        }
        if self.key.has_scope(scope) {
            return Ok(());
        }
        let has: Vec<&str> = self.key.details.scopes.iter().map(|scope| scope.as_str()).collect();
        Err(Problem::new(Code::WrongScope, format!("this call needs the scope `{}`", scope.as_str()))
            .with_extension("has", has))
    }

    /// The record of this call, for a call that was answered with an earlier email.
    pub(crate) fn suppressed_call(&self, reason: SuppressedReason, now: Time) -> SuppressedCall {
        SuppressedCall { at: now, caller: self.api_key_id(), channel: self.channel, reason, call: self.call.clone() }
    }
}

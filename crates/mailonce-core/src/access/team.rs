//! Teams and their API keys.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;

use crate::{
    access::person::{PersonalAccess, PersonalAccessKind},
    cidr::Cidr,
    control::erasure::AddressEraser,
    id::{ApiKeyId, TeamId},
    string_enum::string_enum,
    time::Time,
};

string_enum! {
    /// A permission of an API key.
    ApiKeyScope {
        /// Accept, cancel and resend emails.
        Send = "send",
        /// Read emails, keys and events.
        Read = "read",
        /// Reply to messages.
        Reply = "reply",
        /// See secrets found in mail.
        Secrets = "secrets",
        /// Decide what waits for a person. Agents should not have it.
        Approve = "approve",
        /// Manage the team: API keys and remembered idempotency keys.
        Admin = "admin",
        /// Manage teams.
        Operator = "operator",
    }
}

/// A tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Team {
    /// Its id.
    pub id: TeamId,
    /// Its display name.
    pub name: String,
    /// When it was created.
    pub created_at: Time,
    /// Whether a send without an idempotency key is refused.
    pub require_keys: bool,
}

/// An API key. The secret itself is never stored, only a keyed hash of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// Its id.
    pub id: ApiKeyId,
    /// Its team.
    pub team: TeamId,
    /// HMAC of the secret under the install secret.
    pub hash: [u8; 32],
    /// Everything else about it.
    pub details: ApiKeyDetails,
    /// When it was created.
    pub created_at: Time,
    /// When it was revoked.
    pub revoked_at: Option<Time>,
    /// When it was last used, to the minute.
    pub last_used_at: Option<Time>,
}

/// The permissions and display data of an API key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKeyDetails {
    /// The display name.
    pub name: String,
    /// The first characters of the secret, to distinguish keys.
    pub hint: String,
    /// Its permissions.
    pub scopes: Vec<ApiKeyScope>,
    /// Addresses or `@domains` it may send from; any when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub senders: Vec<String>,
    /// Inboxes it is restricted to; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inboxes: Vec<String>,
    /// The rate limit in calls per second, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<u32>,
    /// When it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    /// IP addresses it may be used from; any when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_ips: Vec<Cidr>,
    /// The person for whom it acts; `None` for an API key of a program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<PersonalAccess>,
}

impl ApiKeyDetails {
    /// Replaces a person's address in the name. Returns whether it was there.
    pub fn redact(&mut self, eraser: &AddressEraser) -> bool {
        eraser.redact_all(std::iter::once(&mut self.name))
    }

    /// An API key with these scopes and no other restrictions.
    pub fn unrestricted(name: &str, scopes: Vec<ApiKeyScope>) -> Self {
        Self {
            name: name.to_owned(),
            hint: String::new(),
            scopes,
            senders: Vec::new(),
            inboxes: Vec::new(),
            rate_per_s: None,
            expires_at: None,
            allow_ips: Vec::new(),
            on_behalf_of: None,
        }
    }
}

impl ApiKey {
    /// Whether it is valid at `now`.
    pub fn is_active(&self, now: Time) -> bool {
        self.revoked_at.is_none() && self.details.expires_at.is_none_or(|at| now < at)
    }

    /// Whether a program uses it: a plain API key, or the connection of a client. Sessions and approval links are used by
    /// the person alone.
    pub fn is_used_by_program(&self) -> bool {
        let access = self.details.on_behalf_of.as_ref();
        access.is_none_or(|access| access.kind == PersonalAccessKind::Connection)
    }

    /// Whether it may be used from this IP address. A key that is restricted to addresses cannot be used when the
    /// caller's address is not known.
    pub fn may_call_from(&self, ip: Option<IpAddr>) -> bool {
        let allowed = |ip: IpAddr| self.details.allow_ips.iter().any(|block| block.contains_ip(ip.to_canonical()));
        self.details.allow_ips.is_empty() || ip.is_some_and(allowed)
    }

    /// Whether it has this permission.
    pub fn has_scope(&self, scope: ApiKeyScope) -> bool {
        self.details.scopes.contains(&scope)
    }

    /// Whether it may send from this bare address.
    pub fn may_send_from(&self, address: &str) -> bool {
        let allowed = |rule: &String| rule == address || (rule.starts_with('@') && address.ends_with(rule.as_str()));
        self.details.senders.is_empty() || self.details.senders.iter().any(allowed)
    }
}

/// The result of creating a team.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum CreateTeamResult {
    /// The team was created, or this very team existed already.
    Created,
    /// Another team has the name. Nothing was created.
    NameTaken,
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn key(senders: &[&str], expires_at: Option<i64>) -> ApiKey {
        ApiKey {
            id: ApiKeyId(Uuid::nil()),
            team: TeamId(Uuid::nil()),
            hash: [0; 32],
            details: ApiKeyDetails {
                name: "k".into(),
                hint: "mo_a".into(),
                scopes: vec![ApiKeyScope::Send],
                senders: senders.iter().map(ToString::to_string).collect(),
                inboxes: Vec::new(),
                rate_per_s: None,
                expires_at: expires_at.map(Time),
                allow_ips: Vec::new(),
                on_behalf_of: None,
            },
            created_at: Time(0),
            revoked_at: None,
            last_used_at: None,
        }
    }

    #[test]
    fn senders_are_matched_by_address_or_whole_domain() {
        let key = key(&["bot@a.test", "@b.test"], None);
        for (address, may) in [("bot@a.test", true), ("x@a.test", false), ("x@b.test", true), ("x@evilb.test", false)] {
            assert_eq!(key.may_send_from(address), may, "{address}");
        }
    }

    #[test]
    fn a_key_that_is_limited_to_addresses_is_refused_elsewhere() {
        let mut key = key(&[], None);
        let from = |key: &ApiKey, ip: &str| key.may_call_from(Some(ip.parse().unwrap()));
        assert!(from(&key, "192.0.2.1") && key.may_call_from(None));
        key.details.allow_ips = vec!["10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
        assert!(from(&key, "10.1.2.3") && from(&key, "::ffff:10.1.2.3") && from(&key, "2001:db8::1"));
        assert!(!from(&key, "192.0.2.1") && !from(&key, "2001:db9::1") && !key.may_call_from(None));
    }

    #[test]
    fn a_credential_ends_at_its_time() {
        assert!(key(&[], Some(10)).is_active(Time(9)));
        assert!(!key(&[], Some(10)).is_active(Time(10)));
    }
}

//! People: who they are, and what their role allows.

use serde::{Deserialize, Serialize};

use crate::{
    access::team::ApiKeyScope,
    id::{PersonId, TeamId},
    string_enum::string_enum,
    time::Time,
};

string_enum! {
    /// What a person may do in a team.
    Role {
        /// See everything but secrets.
        Viewer = "viewer",
        /// See everything but secrets, and decide what waits for a person.
        Approver = "approver",
        /// Everything that belongs to the team.
        Admin = "admin",
    }
}

impl Role {
    /// The scopes of a person with this role.
    pub fn scopes(self) -> &'static [ApiKeyScope] {
        match self {
            Self::Viewer => &[ApiKeyScope::Read],
            Self::Approver => &[ApiKeyScope::Read, ApiKeyScope::Approve],
            Self::Admin => &[
                ApiKeyScope::Send,
                ApiKeyScope::Read,
                ApiKeyScope::Reply,
                ApiKeyScope::Secrets,
                ApiKeyScope::Approve,
                ApiKeyScope::Admin,
            ],
        }
    }
}

/// A person in a team, as the record stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Person {
    /// The display name.
    pub name: String,
    /// The email address to which notices go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// What the person may do.
    pub role: Role,
    /// Whether the person may also manage the installation. Only a caller who may do so can grant it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub operator: bool,
    /// Sessions and connections that began before this time are over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_out_at: Option<Time>,
}

impl Person {
    /// The scopes of the person.
    pub fn scopes(&self) -> Vec<ApiKeyScope> {
        let operator = self.operator.then_some(ApiKeyScope::Operator);
        self.role.scopes().iter().copied().chain(operator).collect()
    }

    /// Whether a session or connection that began at this time is over.
    pub fn has_signed_out_since(&self, began: Time) -> bool {
        self.signed_out_at.is_some_and(|at| began <= at)
    }
}

string_enum! {
    /// How a person uses a credential.
    PersonalAccessKind {
        /// In a browser, as a cookie.
        Session = "session",
        /// Through a client that the person connected, such as a model's.
        Connection = "connection",
    }
}

/// The person for whom a credential acts. A plain API key has none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PersonalAccess {
    /// How the person uses it.
    pub kind: PersonalAccessKind,
    /// The person.
    pub person: PersonId,
    /// The same person in the other teams that the sign-in proved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_teams: Vec<(TeamId, PersonId)>,
    /// When the person signed in. `None`: when the credential was created. A session that changes its team is a new
    /// credential of the same sign-in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_in_at: Option<Time>,
}

/// A link that signs a person in once, as the record stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignInLink {
    /// The person.
    pub person: PersonId,
    /// The keyed hash of the link's secret, in hexadecimal digits.
    pub secret_hash: String,
    /// When it expires.
    pub expires_at: Time,
    /// Whether it works only in a browser on the server's own machine.
    pub loopback_only: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn person(role: Role, operator: bool) -> Person {
        Person { name: "Ada".into(), address: None, role, operator, signed_out_at: None }
    }

    #[test]
    fn only_admins_may_change_the_team_and_only_operators_the_installation() {
        for (role, decides, changes) in
            [(Role::Viewer, false, false), (Role::Approver, true, false), (Role::Admin, true, true)]
        {
            let scopes = person(role, false).scopes();
            assert_eq!(scopes.contains(&ApiKeyScope::Approve), decides);
            assert_eq!(scopes.contains(&ApiKeyScope::Admin), changes);
            assert_eq!(scopes.contains(&ApiKeyScope::Send), changes);
            assert!(!scopes.contains(&ApiKeyScope::Operator));
            assert!(person(role, true).scopes().contains(&ApiKeyScope::Operator));
        }
    }

    #[test]
    fn signing_out_ends_what_began_before() {
        let out = Person { signed_out_at: Some(Time(10)), ..person(Role::Admin, false) };
        assert!(out.has_signed_out_since(Time(10)) && !out.has_signed_out_since(Time(11)));
        assert!(!person(Role::Admin, false).has_signed_out_since(Time(0)));
    }
}

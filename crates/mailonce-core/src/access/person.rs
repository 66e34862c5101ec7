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
    /// When the person last signed out everywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_out_at: Option<Time>,
    /// How often the person signed out everywhere. Sessions, connections and links that were made under a lower count are
    /// over. It is a count and not a time, because the clocks of nodes differ.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sign_outs: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(crate) fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl Person {
    /// The scopes of the person.
    pub fn scopes(&self) -> Vec<ApiKeyScope> {
        let operator = self.operator.then_some(ApiKeyScope::Operator);
        self.role.scopes().iter().copied().chain(operator).collect()
    }

    /// The person after signing out everywhere.
    #[must_use]
    pub fn signed_out(self, now: Time) -> Self {
        let signed_out_at = self.signed_out_at.map_or(now, |before| before.max(now));
        Self { signed_out_at: Some(signed_out_at), sign_outs: self.sign_outs.saturating_add(1), ..self }
    }

    /// Whether what was made then, after so many sign-outs, is over.
    pub fn has_signed_out_since(&self, sign_outs: u32, made_at: Time) -> bool {
        // A person who signed out under an earlier version has only the time.
        sign_outs < self.sign_outs || (self.sign_outs == 0 && self.signed_out_at.is_some_and(|at| made_at <= at))
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
    /// How often the person, here and in the other teams, had signed out everywhere before. A person who is not listed
    /// never had.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sign_outs: Vec<(PersonId, u32)>,
}

impl PersonalAccess {
    /// How often a person of the sign-in had signed out everywhere before.
    pub fn sign_outs_of(&self, person: PersonId) -> u32 {
        self.sign_outs.iter().find(|(known, _)| *known == person).map_or(0, |(_, count)| *count)
    }
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
    /// How often the person had signed out everywhere before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sign_outs: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn person(role: Role, operator: bool) -> Person {
        Person { name: "Ada".into(), address: None, role, operator, signed_out_at: None, sign_outs: 0 }
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
    fn signing_out_ends_what_was_made_before_whatever_the_clocks_say() {
        let ada = person(Role::Admin, false);
        assert!(!ada.has_signed_out_since(0, Time(0)));
        let once = ada.signed_out(Time(10));
        assert!(once.has_signed_out_since(0, Time(99)) && !once.has_signed_out_since(1, Time(0)));
        let twice = once.signed_out(Time(5));
        assert!(twice.has_signed_out_since(1, Time(99)) && !twice.has_signed_out_since(2, Time(0)));
        assert_eq!(twice.signed_out_at, Some(Time(10)), "the latest");
    }

    #[test]
    fn records_of_earlier_versions_are_compared_by_time_until_the_next_sign_out() {
        let stored = r#"{"name":"Ada","role":"admin","signed_out_at":10}"#;
        let ada: Person = serde_json::from_str(stored).unwrap();
        assert!(ada.has_signed_out_since(0, Time(10)) && !ada.has_signed_out_since(0, Time(11)));
        assert_eq!(serde_json::to_string(&ada).unwrap(), stored);
        assert!(ada.signed_out(Time(20)).has_signed_out_since(0, Time(30)));
        let access = PersonalAccess {
            kind: PersonalAccessKind::Session,
            person: PersonId(uuid::Uuid::nil()),
            other_teams: Vec::new(),
            signed_in_at: None,
            sign_outs: Vec::new(),
        };
        let json = serde_json::to_string(&access).unwrap();
        assert!(!json.contains("sign_outs"), "{json}");
        assert_eq!(serde_json::from_str::<PersonalAccess>(&json).unwrap().sign_outs_of(access.person), 0);
    }
}

//! Sign-in of people whom an identity provider vouches for.
//!
//! The server stores nothing while the browser is at the provider. The browser keeps the flow in a cookie, and everything
//! that must be unpredictable is derived from it under the secret of the installation.

use mailonce_core::{
    access::person::{Person, Role},
    address::Address,
    id::TeamId,
    key::KeyHash,
    operation::{IdempotentResult, KeyedOperation},
    problem::{Code, Problem},
    record::RecordKind,
    time::Time,
};
use std::net::IpAddr;

use crate::{
    access::{
        People,
        oauth_tokens::challenge_of,
        people::PersonView,
        sessions::{NewSession, SignIn},
    },
    runtime::{hex::hex, problems::unavailable},
};

/// How long a person may take at the provider, in milliseconds.
pub const FLOW_MS: i64 = 10 * 60_000;

/// A sign-in that is on its way to the provider and back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalFlow {
    /// The cookie that ties it to one browser.
    pub cookie: String,
    /// Comes back in the callback.
    pub state: String,
    /// Comes back in the ID token.
    pub nonce: String,
    /// Proves to the provider that the code is redeemed by whoever asked for it (RFC 7636).
    pub code_verifier: String,
}

impl ExternalFlow {
    /// The hash of the verifier, which the provider gets first.
    pub fn code_challenge(&self) -> String {
        challenge_of(&self.code_verifier)
    }
}

/// Whom a provider vouches for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalIdentity {
    /// The provider.
    pub issuer: String,
    /// The id of the account at the provider, which never changes.
    pub subject: String,
    /// The display name.
    pub name: String,
    /// The verified address.
    pub address: Option<String>,
    /// The role. `None`: the provider says that the person has none.
    pub role: Option<Role>,
    /// Whether the provider decides about roles. Otherwise the role is that of new people, and admins may change it.
    pub is_role_claimed: bool,
    /// The names of the person's teams. `None`: everybody belongs to the only team.
    pub teams: Option<Vec<String>>,
}

fn refused(detail: impl Into<String>) -> Problem {
    Problem::new(Code::LinkGone, detail)
}

impl People {
    /// Begins a sign-in.
    pub fn new_external_flow(&self) -> ExternalFlow {
        let mut random = [0; 32];
        self.ctx.entropy.fill(&mut random);
        self.derive_flow(format!("{}.{}", self.ctx.now().0, hex(&random)))
    }

    /// The sign-in of a cookie, if it has not expired.
    pub fn external_flow(&self, cookie: &str) -> Result<ExternalFlow, Problem> {
        let began = cookie.split_once('.').and_then(|(began, _)| began.parse().ok()).map(Time);
        let now = self.ctx.now();
        // A forged time is of no use: the state of the callback is derived from it under a secret.
        if began.is_some_and(|began| began <= now && now.since(began) < FLOW_MS) {
            return Ok(self.derive_flow(cookie.to_owned()));
        }
        Err(refused("the sign-in took longer than ten minutes, or began in another browser"))
    }

    fn derive_flow(&self, cookie: String) -> ExternalFlow {
        let derive = |label| hex(&self.ctx.secret.mac(label, &[cookie.as_bytes()]));
        ExternalFlow {
            state: derive("oidc-state"),
            nonce: derive("oidc-nonce"),
            code_verifier: derive("oidc-verifier"),
            cookie,
        }
    }

    /// Signs a person in whom a provider vouches for. Each flow signs in once.
    pub async fn sign_in_external(
        &self,
        flow: &ExternalFlow,
        identity: &ExternalIdentity,
        client: Option<IpAddr>,
    ) -> Result<NewSession, Problem> {
        let teams = self.teams_of_identity(identity).await?;
        self.remove_lost_people(identity, &teams).await?;
        let Some(role) = identity.role else {
            return Err(refused(
                "your account has no role for mailonce: the claim of `oidc.role_claim` must be viewer, approver or admin",
            ));
        };
        let Some(first) = teams.first() else {
            return Err(refused("your account belongs to no team of this server; ask an admin"));
        };
        self.mark_flow_used(flow, *first).await?;
        let (mut people, mut sign_outs) = (Vec::with_capacity(teams.len()), Vec::with_capacity(teams.len()));
        for team in teams {
            let view = self.ensure_external_person(team, identity, role).await?;
            sign_outs.push((view.id, view.person.sign_outs));
            people.push((team, view.id));
        }
        let (team, person) = people.remove(0);
        self.start_session(SignIn { team, person, other_teams: people, sign_outs, client }).await
    }

    async fn teams_of_identity(&self, identity: &ExternalIdentity) -> Result<Vec<TeamId>, Problem> {
        let teams = self.access.teams().await?;
        let Some(names) = &identity.teams else {
            let is_only = teams.len() == 1;
            let only = teams.into_iter().next().filter(|_| is_only).map(|team| vec![team.id]);
            return only.ok_or_else(|| refused("this server has several teams, so oidc.team_claim must be set"));
        };
        Ok(teams.into_iter().filter(|team| names.contains(&team.name)).map(|team| team.id).collect())
    }

    /// Marks a flow as used. Fails if it was used before, on any node.
    async fn mark_flow_used(&self, flow: &ExternalFlow, team: TeamId) -> Result<(), Problem> {
        let mac = self.ctx.secret.mac("oidc-flow", &[flow.cookie.as_bytes()]);
        let (mut key, mut digest, now) = ([0; 16], [0; 32], self.ctx.now());
        key.copy_from_slice(&mac[..16]);
        // Random, so that a second use is a mismatch and not a repeat.
        self.ctx.entropy.fill(&mut digest);
        let expires_at = now.plus(2 * FLOW_MS);
        let operation = KeyedOperation { team, key: KeyHash(key), digest, response: Vec::new(), expires_at };
        match self.ctx.store.bind_operation(operation, now).await.map_err(unavailable)? {
            IdempotentResult::Done(()) => Ok(()),
            IdempotentResult::Replayed(_) | IdempotentResult::KeyMismatch(_) => {
                Err(refused("this sign-in was completed before; begin a new one"))
            }
        }
    }

    /// The name of the record of an account. Nobody can guess it, and so nobody can prepare one for somebody else's.
    fn account_name(&self, identity: &ExternalIdentity) -> String {
        let account = [identity.issuer.as_bytes(), identity.subject.as_bytes()];
        format!("oidc:{}", hex(&self.ctx.secret.mac("oidc-account", &account)))
    }

    /// Removes the person of an account from the teams that the provider no longer names, and from all teams when it
    /// names no role. Otherwise a person who may not sign in any more would go on getting approval links.
    async fn remove_lost_people(&self, identity: &ExternalIdentity, kept: &[TeamId]) -> Result<(), Problem> {
        let (name, kind, mut has_removed) = (self.account_name(identity), RecordKind::Person, false);
        for team in self.access.teams().await? {
            if identity.role.is_some() && (identity.teams.is_none() || kept.contains(&team.id)) {
                continue;
            }
            let found = self.ctx.store.record_by_name(team.id, kind, &name).await.map_err(unavailable)?;
            let Some(record) = found else { continue };
            has_removed |= self.ctx.store.remove_record(team.id, kind, record.id).await.map_err(unavailable)?.is_some();
        }
        if has_removed {
            self.access.clear_credentials();
            self.access.check_active_keys().await;
        }
        Ok(())
    }

    /// The person of an identity in a team, added or brought up to date.
    async fn ensure_external_person(
        &self,
        team: TeamId,
        identity: &ExternalIdentity,
        role: Role,
    ) -> Result<PersonView, Problem> {
        let describe = |existing: Option<&Person>| Person {
            name: identity.name.clone(),
            address: identity.address.clone().filter(|address| Address::parse(address).is_ok()),
            role: match existing {
                Some(person) if !identity.is_role_claimed => person.role,
                _ => role,
            },
            operator: existing.is_some_and(|person| person.operator),
            signed_out_at: None,
            sign_outs: 0,
        };
        self.ensure_person(team, &self.account_name(identity), describe).await
    }
}

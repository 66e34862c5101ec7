//! Sign-in links and the sessions of people in a browser.
//!
//! A session is stored as an API key that acts for a person. So scopes, stops, streams and revocation work for people
//! as they do for programs. Its scopes are those of the person's current role, and its hash is derived under another
//! label, so that the secret of a session is no API key and an API key is no session.

use mailonce_core::{
    access::{
        call_origin::{AliasKey, CallOrigin, CallSource},
        person::{Person, PersonalAccess, PersonalAccessKind, SignInLink},
        team::{ApiKey, ApiKeyDetails, ApiKeyScope, Team},
    },
    id::{ApiKeyId, PersonId, TeamId},
    limits,
    operation::IdempotentResult,
    problem::{Code, Problem},
    record::{Record, RecordKind},
    time::Time,
};
use std::net::IpAddr;
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

use crate::{
    access::{
        People,
        api_keys::{CredentialKind, credential_hash},
        caller::Caller,
        people::PersonView,
    },
    runtime::{
        hex::hex,
        keyed_call::{KeyedCall, operation},
        problems::{key_mismatch, unavailable},
        records::{self, CreateOutcome},
    },
};

/// How long a sign-in link works, in milliseconds.
const SIGN_IN_LINK_MS: i64 = 10 * 60_000;
/// How long a session may be unused, in milliseconds.
pub(super) const IDLE_MS: i64 = 12 * 3_600_000;
/// How long a session lasts at most, in milliseconds.
const SESSION_MS: i64 = 7 * 24 * 3_600_000;

/// A new sign-in link.
#[derive(Clone, Debug)]
pub struct NewSignInLink {
    /// The last part of its URL: `/sign-in/TOKEN`.
    pub token: String,
    /// When it expires.
    pub expires_at: Time,
    /// The person.
    pub person: PersonView,
}

/// A new session.
#[derive(Clone, Debug)]
pub struct NewSession {
    /// The secret, for the cookie.
    pub secret: String,
    /// When it ends at the latest.
    pub expires_at: Time,
}

/// A person who signs in, and where.
#[derive(Clone, Debug)]
pub struct SignIn {
    /// The team.
    pub team: TeamId,
    /// The person.
    pub person: PersonId,
    /// The same person in other teams.
    pub other_teams: Vec<(TeamId, PersonId)>,
    /// How often each of these people had signed out everywhere before.
    pub sign_outs: Vec<(PersonId, u32)>,
    /// The client's address, if it is known.
    pub client: Option<IpAddr>,
}

/// The problem for a sign-in link that is unknown, used or expired. They are not distinguished: a link that was used is
/// removed.
fn link_gone() -> Problem {
    Problem::new(Code::LinkGone, "this sign-in link was used before, has expired, or is not one of this server")
}

/// The problem for a session that is over.
pub(super) fn session_ended(why: &str) -> Problem {
    Problem::new(Code::SessionEnded, format!("the session is over: {why}"))
}

/// The parts of a token: the id of the link and its secret.
fn parse_token(token: &str) -> Option<(Uuid, &str)> {
    let (id, secret) = token.split_once('-')?;
    Some((Uuid::try_parse(id).ok().filter(|_| id.len() == 32)?, secret))
}

/// When the person of a session signed in. Changing the team starts a new session, but proves nothing anew.
fn signed_in_at(key: &ApiKey) -> Time {
    key.details.on_behalf_of.as_ref().and_then(|access| access.signed_in_at).unwrap_or(key.created_at)
}

/// Whether the person of a session signed out everywhere since.
fn is_signed_out(key: &ApiKey, person: &Person) -> bool {
    let access = key.details.on_behalf_of.as_ref();
    person.has_signed_out_since(access.map_or(0, |access| access.sign_outs_of(access.person)), signed_in_at(key))
}

/// Refuses a session that its person ended, or that was unused for too long. Returns the person's scopes otherwise.
pub(super) fn check_session(
    key: &ApiKey,
    person: Option<&Person>,
    last_used_at: Time,
    now: Time,
) -> Result<Vec<ApiKeyScope>, Problem> {
    let person = person.ok_or_else(|| session_ended("the person was removed"))?;
    if key.revoked_at.is_some() || is_signed_out(key, person) {
        return Err(session_ended("you signed out"));
    }
    if !key.is_active(now) {
        return Err(session_ended("sessions last seven days"));
    }
    if now.since(last_used_at.max(key.created_at)) >= IDLE_MS {
        return Err(session_ended("it was not used for twelve hours"));
    }
    Ok(person.scopes())
}

impl People {
    /// Makes a link that signs a person of the caller's team in, or returns the one that an earlier call with the same key
    /// made.
    pub async fn create_sign_in_link(
        &self,
        caller: &Caller,
        id: PersonId,
        keyed_call: Option<KeyedCall>,
    ) -> Result<CreateOutcome<NewSignInLink>, Problem> {
        let person = self.person(caller, id).await?;
        // Otherwise an admin of one team could become an operator of the installation.
        if person.person.operator {
            caller.require_scope(ApiKeyScope::Operator)?;
        }
        let keyed_call = keyed_call.as_ref();
        let (new, record) = self.new_sign_in_link(caller.team.id, person, false).await?;
        let (now, answer) = (self.ctx.now(), (new.token.clone(), new.expires_at));
        let operation = operation(caller, keyed_call, self.ctx.seal_answer(keyed_call, &answer), now);
        match self.ctx.store.create_record(record, operation).await.map_err(unavailable)? {
            IdempotentResult::Done(_) => Ok(CreateOutcome { value: new, is_new: true }),
            IdempotentResult::Replayed(first) => {
                let (token, expires_at) = self.ctx.open_answer(keyed_call, &first)?;
                Ok(CreateOutcome { value: NewSignInLink { token, expires_at, ..new }, is_new: false })
            }
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }

    /// Makes a sign-in link for the person who was added under this name, or who is added now. The role and the address
    /// become those given; a name that was changed since stays. For `dev` and the command line, which open the ledger
    /// directly.
    pub async fn create_sign_in_link_directly(
        &self,
        team: TeamId,
        person: Person,
        loopback_only: bool,
    ) -> Result<NewSignInLink, Problem> {
        let name = person.name.trim().to_owned();
        let describe = |existing: Option<&Person>| Person {
            name: existing.map_or_else(|| name.clone(), |existing| existing.name.clone()),
            ..person.clone()
        };
        let person = self.ensure_person(team, &name, describe).await?;
        let (new, record) = self.new_sign_in_link(team, person, loopback_only).await?;
        self.ctx.store.create_record(record, None).await.map(|_created| ()).map_err(unavailable)?;
        Ok(new)
    }

    /// A new sign-in link, and the record to store.
    async fn new_sign_in_link(
        &self,
        team: TeamId,
        person: PersonView,
        loopback_only: bool,
    ) -> Result<(NewSignInLink, Record), Problem> {
        self.remove_expired_links(team).await?;
        let now = self.ctx.now();
        let (id, secret, expires_at) = (self.ctx.new_id(now), self.access.new_secret(), now.plus(SIGN_IN_LINK_MS));
        let link = SignInLink {
            person: person.id,
            secret_hash: self.link_hash(id, &secret),
            expires_at,
            loopback_only,
            sign_outs: person.person.sign_outs,
        };
        let json = records::encode(&link)?;
        let record =
            Record { team, kind: RecordKind::SignInLink, id, name: id.to_string(), rev: 1, created_at: now, json };
        Ok((NewSignInLink { token: format!("{}-{secret}", id.simple()), expires_at, person }, record))
    }

    fn link_hash(&self, id: Uuid, secret: &str) -> String {
        hex(&self.ctx.secret.mac("sign-in-link", &[id.as_bytes(), secret.as_bytes()]))
    }

    async fn remove_expired_links(&self, team: TeamId) -> Result<(), Problem> {
        let (kind, now) = (RecordKind::SignInLink, self.ctx.now());
        let page = self.ctx.store.records(team, kind, None, limits::PAGE_ROWS).await.map_err(unavailable)?;
        for record in page.rows {
            if records::decode::<SignInLink>(&record)?.expires_at <= now {
                self.ctx.store.remove_record(team, kind, record.id).await.map_err(unavailable)?;
            }
        }
        Ok(())
    }

    /// The link of a token with its person, if it can still be used. `is_local`: by a browser on the server's own machine.
    async fn find_link(&self, token: &str, is_local: bool) -> Result<(Record, PersonView), Problem> {
        let (id, secret) = parse_token(token).ok_or_else(link_gone)?;
        let record = self.ctx.store.record_of_any_team(RecordKind::SignInLink, id).await.map_err(unavailable)?;
        let record = record.ok_or_else(link_gone)?;
        let link: SignInLink = records::decode(&record)?;
        let is_right: bool = link.secret_hash.as_bytes().ct_eq(self.link_hash(id, secret).as_bytes()).into();
        if !is_right || link.expires_at <= self.ctx.time.later_time() {
            return Err(link_gone());
        }
        if link.loopback_only && !is_local {
            return Err(Problem::new(
                Code::LinkGone,
                "this sign-in link works only in a browser on the server's own machine; make one for elsewhere with \
                 `mailonce login`",
            ));
        }
        let person = self.access.person_of(record.team, link.person).await?.ok_or_else(link_gone)?;
        // Whoever signs out everywhere ends the links that were made before, too.
        if person.person.has_signed_out_since(link.sign_outs, record.created_at) {
            return Err(link_gone());
        }
        Ok((record, person))
    }

    /// The person whom a link would sign in. It changes nothing, because programs that check links open them.
    pub async fn preview_sign_in_link(&self, token: &str, is_local: bool) -> Result<PersonView, Problem> {
        Ok(self.find_link(token, is_local).await?.1)
    }

    /// Signs a person in with a link. It works once.
    pub async fn redeem_sign_in_link(
        &self,
        token: &str,
        client: Option<IpAddr>,
        is_local: bool,
    ) -> Result<NewSession, Problem> {
        let (record, view) = self.find_link(token, is_local).await?;
        let (team, person, sign_outs) = (record.team, view.id, vec![(view.id, view.person.sign_outs)]);
        // Of two that come at the same time, one removes it.
        let removed = self.ctx.store.remove_record(team, record.kind, record.id).await.map_err(unavailable)?;
        removed.ok_or_else(link_gone)?;
        self.start_session(SignIn { team, person, other_teams: Vec::new(), sign_outs, client }).await
    }

    /// Starts a session of a person who proved who they are.
    pub async fn start_session(&self, sign_in: SignIn) -> Result<NewSession, Problem> {
        let now = self.ctx.now();
        let from = CallSource::of_client(sign_in.client, AliasKey::of(&self.ctx.secret));
        CallOrigin::of_person(sign_in.person, sign_in.team, from, now).set();
        self.store_session(sign_in, now, now.plus(SESSION_MS)).await
    }

    async fn store_session(
        &self,
        sign_in: SignIn,
        signed_in_at: Time,
        expires_at: Time,
    ) -> Result<NewSession, Problem> {
        let (now, secret) = (self.ctx.now(), self.access.new_secret());
        let mut sign_outs = sign_in.sign_outs;
        sign_outs.retain(|(_, count)| *count > 0);
        let access = PersonalAccess {
            kind: PersonalAccessKind::Session,
            person: sign_in.person,
            other_teams: sign_in.other_teams,
            signed_in_at: Some(signed_in_at),
            sign_outs,
        };
        let details = ApiKeyDetails {
            expires_at: Some(expires_at),
            on_behalf_of: Some(access),
            // The scopes are those of the role at the time of each call.
            ..ApiKeyDetails::unrestricted("session", Vec::new())
        };
        let key = ApiKey {
            id: ApiKeyId(self.ctx.new_id(now)),
            team: sign_in.team,
            hash: credential_hash(&self.ctx.secret, CredentialKind::Session, &secret),
            details,
            created_at: now,
            revoked_at: None,
            last_used_at: None,
        };
        self.ctx.store.create_api_key(key, None).await.map(|_created| ()).map_err(unavailable)?;
        Ok(NewSession { secret, expires_at })
    }

    /// The person of the calling session, and the teams that it may change to.
    pub async fn session_person(&self, caller: &Caller) -> Result<(PersonView, Vec<Team>), Problem> {
        let access = caller.key.details.on_behalf_of.as_ref().ok_or_else(not_a_session)?;
        let view = self.access.person_of(caller.team.id, access.person).await?;
        let view = view.ok_or_else(|| session_ended("the person was removed"))?;
        let mut teams = if access.other_teams.is_empty() { Vec::new() } else { self.access.teams().await? };
        teams.retain(|team| access.other_teams.iter().any(|(other, _)| *other == team.id));
        Ok((view, teams))
    }

    /// Ends the calling session, and starts one in another team that the sign-in proved. It lasts no longer.
    pub async fn change_session_team(&self, caller: &Caller, team: TeamId) -> Result<NewSession, Problem> {
        let access = caller.key.details.on_behalf_of.as_ref().ok_or_else(not_a_session)?;
        let not_found = || Problem::new(Code::NotFound, format!("you have no team {team}"));
        let (_, person) = *access.other_teams.iter().find(|(other, _)| *other == team).ok_or_else(not_found)?;
        let view = self.access.person_of(team, person).await?.ok_or_else(not_found)?;
        let signed_in_at = signed_in_at(&caller.key);
        if view.person.has_signed_out_since(access.sign_outs_of(person), signed_in_at) {
            return Err(Problem::new(Code::NotFound, "you signed out of this team; sign in again to act in it"));
        }
        let mut other_teams = access.other_teams.clone();
        other_teams.retain(|(other, _)| *other != team);
        other_teams.push((caller.team.id, access.person));
        let expires_at = caller.key.details.expires_at.unwrap_or_else(|| self.ctx.now());
        let sign_in = SignIn { team, person, other_teams, sign_outs: access.sign_outs.clone(), client: None };
        let new = self.store_session(sign_in, signed_in_at, expires_at).await?;
        self.end_session(caller).await?;
        Ok(new)
    }

    /// Ends the calling session.
    pub async fn end_session(&self, caller: &Caller) -> Result<(), Problem> {
        let revoked = self.ctx.store.revoke_api_key(caller.team.id, caller.key.id, self.ctx.now()).await;
        self.access.credentials.clear();
        revoked.map_err(unavailable)?;
        self.access.check_active_keys().await;
        Ok(())
    }

    /// The token that proves that a request of this session comes from a page of this server.
    pub fn csrf_token(&self, session_secret: &str) -> String {
        hex(&self.ctx.secret.mac("csrf", &[session_secret.as_bytes()]))
    }
}

fn not_a_session() -> Problem {
    Problem::new(Code::WrongScope, "this call needs the session of a person; an API key has none")
}

#[cfg(test)]
mod tests {
    use super::*;
    use mailonce_core::access::person::Role;

    fn session(created_at: i64, expires_at: i64) -> ApiKey {
        let details =
            ApiKeyDetails { expires_at: Some(Time(expires_at)), ..ApiKeyDetails::unrestricted("session", Vec::new()) };
        ApiKey {
            id: ApiKeyId(Uuid::nil()),
            team: TeamId(Uuid::nil()),
            hash: [0; 32],
            details,
            created_at: Time(created_at),
            revoked_at: None,
            last_used_at: None,
        }
    }

    #[test]
    fn a_session_ends_by_time_by_rest_and_by_its_person() {
        let ada = Person {
            name: "Ada".into(),
            address: None,
            role: Role::Viewer,
            operator: false,
            signed_out_at: None,
            sign_outs: 0,
        };
        let key = session(100, SESSION_MS);
        let check = |person: Option<&Person>, used: i64, now: i64| check_session(&key, person, Time(used), Time(now));
        assert_eq!(check(Some(&ada), 0, 200).unwrap(), [ApiKeyScope::Read]);
        assert!(check(Some(&ada), 0, 100 + IDLE_MS - 1).is_ok() && check(Some(&ada), 0, 100 + IDLE_MS).is_err());
        assert!(check(Some(&ada), IDLE_MS, 100 + IDLE_MS).is_ok());
        assert!(check(Some(&ada), SESSION_MS, SESSION_MS).is_err() && check(None, 0, 200).is_err());
        let out = ada.clone().signed_out(Time(50));
        assert_eq!(check(Some(&out), 0, 200).unwrap_err().code, Code::SessionEnded);
        let admin = Person { role: Role::Admin, ..ada };
        assert!(check(Some(&admin), 0, 200).unwrap().contains(&ApiKeyScope::Admin));
    }

    #[test]
    fn a_token_has_an_id_and_a_secret() {
        let id = Uuid::from_u128(7);
        assert_eq!(parse_token(&format!("{}-mo_abc", id.simple())), Some((id, "mo_abc")));
        for bad in ["", "x-y", "mo_abc", &format!("{id}-mo_abc")] {
            assert_eq!(parse_token(bad), None, "{bad}");
        }
    }
}

//! Connections: a person lets an OAuth client call `/mcp`, sees what is connected, and ends it.
//!
//! A connection is a record, and a credential that is stored as an API key which acts for the person. So the caller stays
//! the same when tokens are renewed. The hash of the credential is derived from the id of the connection and is never
//! compared with anything that a client sends: the access tokens are in the record.

use mailonce_core::{
    access::{
        connection::{AuthorizationCode, CODE_MS, CONNECTION_SCOPES, Connection, ConnectionEndReason},
        oauth_client::OauthClient,
        person::{Person, PersonalAccess, PersonalAccessKind},
        team::{ApiKey, ApiKeyDetails, ApiKeyScope},
    },
    id::{ApiKeyId, ConnectionId, InboxId, PersonId, TeamId},
    limits,
    operation::IdempotentResult,
    outbound::email::Channel,
    problem::{Code, Problem},
    record::{Record, RecordChangeResult, RecordKind},
    time::Time,
};
use std::sync::Arc;
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

use crate::{
    access::{
        Access, Connections,
        api_keys::{CachedCredential, CredentialKind, credential_hash},
        caller::Caller,
        oauth_tokens::{ACCESS_TOKEN_PREFIX, parse_token},
        people::{MAX_CONFLICT_RETRIES, PersonView},
    },
    runtime::{
        hex::hex,
        problems::unavailable,
        records::{self, CursorPage},
    },
};

/// What a person allows a client.
#[derive(Clone, Debug)]
pub struct ConnectionApproval {
    /// The client.
    pub client: OauthClient,
    /// Where the code is sent.
    pub redirect_uri: String,
    /// The scopes.
    pub scopes: Vec<ApiKeyScope>,
    /// The inboxes; all when empty.
    pub inboxes: Vec<InboxId>,
    /// The URL for which the tokens will be.
    pub resource: String,
    /// The PKCE challenge of the client.
    pub challenge: String,
}

/// A connection with its id and person.
#[derive(Clone, Debug)]
pub struct ConnectionView {
    /// The id.
    pub id: ConnectionId,
    /// The person.
    pub person: PersonView,
    /// When the person agreed.
    pub created_at: Time,
    /// When it was last used, to the minute.
    pub last_used_at: Option<Time>,
    /// Everything else.
    pub connection: Connection,
}

/// The problem for an access token that is unknown.
fn unknown_access_token() -> Problem {
    Problem::new(Code::Unauthorized, "the access token is unknown or no longer valid")
}

/// The problem for a connection that is over.
fn connection_over(why: &str) -> Problem {
    Problem::new(Code::SessionEnded, format!("the connection is over: {why}"))
}

fn connection_not_found(id: ConnectionId) -> Problem {
    Problem::new(Code::NotFound, format!("there is no connection {id}"))
}

/// The scopes that a person can give to a client.
pub fn offered_scopes(of_person: &[ApiKeyScope]) -> Vec<ApiKeyScope> {
    CONNECTION_SCOPES.into_iter().filter(|scope| of_person.contains(scope)).collect()
}

impl Access {
    /// The hash under which the credential of a connection is stored.
    fn connection_hash(&self, id: ConnectionId) -> [u8; 32] {
        self.ctx.secret.mac("connection", &[id.0.as_bytes()])
    }

    /// A connection of any team.
    pub(super) async fn find_connection(&self, id: ConnectionId) -> Result<Option<(Record, Connection)>, Problem> {
        let record = self.ctx.store.record_of_any_team(RecordKind::Connection, id.0).await.map_err(unavailable)?;
        record.map(|record| Ok((record.clone(), records::decode(&record)?))).transpose()
    }

    /// Refuses the credential of a connection that is over. Returns the scopes that the person's role still allows.
    pub(super) async fn check_connection(
        &self,
        key: &ApiKey,
        person: Option<&Person>,
    ) -> Result<Vec<ApiKeyScope>, Problem> {
        let person = person.ok_or_else(|| connection_over("the person was removed"))?;
        let signed_out = || connection_over("the person signed out everywhere");
        if key.revoked_at.is_some() {
            return Err(signed_out());
        }
        let record = self.ctx.store.record(key.team, RecordKind::Connection, key.id.0).await.map_err(unavailable)?;
        let connection = record.as_ref().map(records::decode::<Connection>).transpose()?;
        let connection = connection.filter(|connection| connection.ended.is_none());
        let connection = connection.ok_or_else(|| connection_over("it was ended"))?;
        if person.has_signed_out_since(connection.sign_outs, key.created_at) {
            return Err(signed_out());
        }
        Ok(connection.allowed_scopes(&person.scopes()))
    }
}

impl Connections {
    /// Connects a client for the person who signed in. Returns the code that the client exchanges for tokens.
    pub async fn approve_connection(&self, caller: &Caller, approval: ConnectionApproval) -> Result<String, Problem> {
        let access = caller.key.details.on_behalf_of.as_ref();
        let access = access.filter(|access| access.kind == PersonalAccessKind::Session);
        let no_person = || Problem::new(Code::WrongScope, "only a person who signed in can connect a client");
        let access = access.ok_or_else(no_person)?;
        let offered = offered_scopes(&caller.key.details.scopes);
        if approval.scopes.is_empty() || approval.scopes.iter().any(|scope| !offered.contains(scope)) {
            return Err(Problem::invalid_field("scope", "choose at least one of the scopes that your role has"));
        }
        for inbox in &approval.inboxes {
            let known = self.ctx.store.inbox(caller.team.id, *inbox).await.map_err(unavailable)?;
            known.ok_or_else(|| Problem::invalid_field("inbox", format!("there is no inbox {inbox}")))?;
        }
        self.remove_old_connections(caller.team.id).await?;
        let is_registered = self
            .ctx
            .store
            .mark_oauth_client_connected(approval.client.id, self.ctx.now())
            .await
            .map_err(unavailable)?;
        if !is_registered {
            return Err(Problem::new(Code::NotFound, "the client is no longer registered"));
        }
        let person = (access.person, access.sign_outs_of(access.person));
        self.store_connection(caller.team.id, person, approval).await
    }

    async fn store_connection(
        &self,
        team: TeamId,
        (person, sign_outs): (PersonId, u32),
        approval: ConnectionApproval,
    ) -> Result<String, Problem> {
        let now = self.ctx.now();
        let id = ConnectionId(self.ctx.new_id(now));
        let access = PersonalAccess {
            kind: PersonalAccessKind::Connection,
            person,
            other_teams: Vec::new(),
            signed_in_at: None,
            sign_outs: Vec::new(),
        };
        let key = ApiKey {
            id: ApiKeyId(id.0),
            team,
            hash: self.access.connection_hash(id),
            details: ApiKeyDetails {
                inboxes: approval.inboxes.iter().map(ToString::to_string).collect(),
                on_behalf_of: Some(access),
                ..ApiKeyDetails::unrestricted(&approval.client.details.name, approval.scopes.clone())
            },
            created_at: now,
            revoked_at: None,
            last_used_at: None,
        };
        let code = self.new_code(id);
        let connection = Connection {
            person,
            client: approval.client.id,
            client_name: approval.client.details.name,
            redirect_uri: approval.redirect_uri,
            scopes: approval.scopes,
            inboxes: approval.inboxes,
            resource: approval.resource,
            code: AuthorizationCode {
                hash: self.code_hash(&code),
                challenge: approval.challenge,
                expires_at: now.plus(CODE_MS),
            },
            generation: 0,
            refresh_token: None,
            access_tokens: Vec::new(),
            ended: None,
            sign_outs,
        };
        let (kind, name, json) = (RecordKind::Connection, id.to_string(), records::encode(&connection)?);
        let record = Record { team, kind, id: id.0, name, rev: 1, created_at: now, json };
        self.ctx.store.create_record(record, None).await.map(|_created| ()).map_err(unavailable)?;
        self.ctx.store.create_api_key(key, None).await.map(|_created| ()).map_err(unavailable)?;
        Ok(code)
    }

    /// Removes the records of connections that nobody can use again.
    async fn remove_old_connections(&self, team: TeamId) -> Result<(), Problem> {
        let (kind, now) = (RecordKind::Connection, self.ctx.now());
        let mut before = None;
        loop {
            let page = self.ctx.store.records(team, kind, before, limits::PAGE_ROWS).await.map_err(unavailable)?;
            for record in &page.rows {
                if records::decode::<Connection>(record)?.is_over(now) {
                    self.ctx.store.remove_record(team, kind, record.id).await.map_err(unavailable)?;
                }
            }
            before = page.next;
            if before.is_none() {
                return Ok(());
            }
        }
    }

    /// Saves a change of a connection. Returns false when it changed since it was read.
    pub(super) async fn save_connection(&self, record: &Record, next: &Connection) -> Result<bool, Problem> {
        let json = records::encode(next)?;
        let changed = self.ctx.store.change_record(record.edit(json.clone()), None, self.ctx.now()).await;
        match changed.map_err(unavailable)? {
            IdempotentResult::Done(RecordChangeResult::Changed(_)) => Ok(true),
            // The store repeats a commit whose answer was lost. Then this very change is what it finds.
            IdempotentResult::Done(RecordChangeResult::Stale(found)) => Ok(found.json == json),
            _ => Ok(false),
        }
    }

    /// Ends a connection: here at once, on other nodes within a second.
    pub(super) async fn end_connection_because(
        &self,
        id: ConnectionId,
        reason: ConnectionEndReason,
    ) -> Result<(), Problem> {
        for _ in 0..MAX_CONFLICT_RETRIES {
            let Some((record, connection)) = self.access.find_connection(id).await? else { return Ok(()) };
            let next = connection.ended(reason, self.ctx.now());
            let saved = if next == connection { Ok(true) } else { self.save_connection(&record, &next).await };
            self.access.credentials.clear();
            if saved? {
                self.access.check_active_keys().await;
                return Ok(());
            }
        }
        Err(Problem::new(Code::Unavailable, "the connection was changed several times meanwhile; try again"))
    }

    /// The live connections that the caller may see, newest first: one's own, and for an admin those of the team.
    pub async fn connections(
        &self,
        caller: &Caller,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<CursorPage<ConnectionView>, Problem> {
        let sees_all = caller.key.has_scope(ApiKeyScope::Admin);
        if !sees_all && caller.person().is_none() {
            caller.require_scope(ApiKeyScope::Admin)?;
        }
        caller.require_unrestricted_key()?;
        let team = caller.team.id;
        let page = self.ctx.store.records(team, RecordKind::Connection, before, limit).await.map_err(unavailable)?;
        let mut rows = Vec::new();
        for record in &page.rows {
            let connection: Connection = records::decode(record)?;
            if sees_all || caller.person() == Some(connection.person) {
                rows.extend(self.view_connection(record, connection).await?);
            }
        }
        Ok(CursorPage { rows, next: page.next })
    }

    /// A connection as it is shown; `None` when it is not live.
    async fn view_connection(
        &self,
        record: &Record,
        connection: Connection,
    ) -> Result<Option<ConnectionView>, Problem> {
        if !connection.is_live(self.ctx.now()) {
            return Ok(None);
        }
        let id = ConnectionId(record.id);
        let person = self.access.person_of(record.team, connection.person).await?;
        let person = person.filter(|view| !view.person.has_signed_out_since(connection.sign_outs, record.created_at));
        let Some(person) = person else { return Ok(None) };
        let found = self.ctx.store.api_key_by_hash(self.access.connection_hash(id)).await.map_err(unavailable)?;
        let last_used_at = found.and_then(|(key, _)| key.last_used_at);
        Ok(Some(ConnectionView { id, person, created_at: record.created_at, last_used_at, connection }))
    }

    /// Ends a connection. Its person may do this, and so may an admin of the team.
    pub async fn end_connection(&self, caller: &Caller, id: ConnectionId) -> Result<ConnectionView, Problem> {
        caller.require_unrestricted_key()?;
        let may_end_all = caller.key.has_scope(ApiKeyScope::Admin);
        if !may_end_all && caller.person().is_none() {
            caller.require_scope(ApiKeyScope::Admin)?;
        }
        let found = self.ctx.store.record(caller.team.id, RecordKind::Connection, id.0).await.map_err(unavailable)?;
        let record = found.ok_or_else(|| connection_not_found(id))?;
        let connection: Connection = records::decode(&record)?;
        if !may_end_all && caller.person() != Some(connection.person) {
            return Err(connection_not_found(id));
        }
        let view = self.view_connection(&record, connection).await?.ok_or_else(|| connection_not_found(id))?;
        self.end_connection_because(id, ConnectionEndReason::Ended).await?;
        Ok(view)
    }

    /// Authenticates the client of a connection by an access token. `resource` is the URL that it calls.
    pub async fn authenticate_access_token(&self, token: &str, resource: &str) -> Result<Caller, Problem> {
        let now = self.ctx.now();
        let hash = credential_hash(&self.ctx.secret, CredentialKind::AccessToken, token);
        let known = match self.access.credentials.get(&hash, now) {
            Some(known) => known,
            None => self.load_access_token((token, hash), resource, now).await?,
        };
        self.access.caller_of(&known, Channel::Mcp, now)
    }

    async fn load_access_token(
        &self,
        (token, hash): (&str, [u8; 32]),
        resource: &str,
        now: Time,
    ) -> Result<Arc<CachedCredential>, Problem> {
        let (id, _) = parse_token(ACCESS_TOKEN_PREFIX, token).ok_or_else(unknown_access_token)?;
        let (_, connection) = self.access.find_connection(id).await?.ok_or_else(unknown_access_token)?;
        let digits = hex(&hash);
        let mut tokens = connection.access_tokens.iter();
        let found = tokens.find(|known| known.hash.as_bytes().ct_eq(digits.as_bytes()).into());
        let found = found.ok_or_else(unknown_access_token)?;
        if connection.resource != resource {
            let detail = format!("the access token is for {}, not for {resource}", connection.resource);
            return Err(Problem::new(Code::Unauthorized, detail));
        }
        let stored = self.ctx.store.api_key_by_hash(self.access.connection_hash(id)).await.map_err(unavailable)?;
        let (mut key, team) = stored.ok_or_else(unknown_access_token)?;
        key.details.expires_at = Some(found.expires_at);
        self.access.apply_role(&mut key, now).await?;
        let restriction = self.access.inbox_restriction_of(&key).await.map_err(unavailable)?;
        Ok(self.access.credentials.put(hash, (key, team), restriction, now))
    }
}

//! The codes and tokens of connections: how they look, how clients exchange and renew them, and how they end.
//!
//! | token | form | stored |
//! |---|---|---|
//! | code | `moc_ID_SECRET` | hash, also after its use |
//! | access token | `moa_ID_SECRET` | hash of the latest four |
//! | refresh token | `mor_ID_GENERATION-SECRET-MAC` | generation and hash of the current one |
//!
//! `ID` is the id of the connection. The MAC proves that this server made a refresh token, so an old one is recognized
//! although its hash is gone, and nobody can end a connection by guessing.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use mailonce_core::{
    access::{
        connection::{ACCESS_TOKEN_MS, CodeExchange, Connection, ConnectionEndReason, GrantRefusal, TokenHash},
        team::ApiKeyScope,
    },
    id::{ConnectionId, OauthClientId},
    problem::Problem,
    record::Record,
    time::Time,
};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

use crate::{
    access::{
        Connections,
        api_keys::{CredentialKind, credential_hash},
        people::MAX_CONFLICT_RETRIES,
    },
    runtime::hex::hex,
};

const CODE_PREFIX: &str = "moc_";
pub(super) const ACCESS_TOKEN_PREFIX: &str = "moa_";
const REFRESH_TOKEN_PREFIX: &str = "mor_";

/// New tokens for a client.
#[derive(Clone, Debug)]
pub struct NewTokens {
    /// The access token.
    pub access_token: String,
    /// For how many seconds it works.
    pub expires_in: i64,
    /// The refresh token.
    pub refresh_token: String,
    /// What the access token allows now.
    pub scopes: Vec<ApiKeyScope>,
}

/// Why a client gets no tokens.
#[derive(Clone, Debug)]
pub enum GrantError {
    /// This server never made the code or token.
    Unknown,
    /// The code or token does not work, or no longer.
    Invalid(&'static str),
    /// The request failed for another reason.
    Failed(Problem),
}

impl From<Problem> for GrantError {
    fn from(problem: Problem) -> Self {
        Self::Failed(problem)
    }
}

/// What a client sends to exchange a code.
#[derive(Clone, Copy, Debug)]
pub struct CodeGrant<'a> {
    /// The code.
    pub code: &'a str,
    /// The client.
    pub client: OauthClientId,
    /// The redirect URI, if the client repeats it.
    pub redirect_uri: Option<&'a str>,
    /// The secret whose hash the client sent with the authorization request.
    pub verifier: &'a str,
    /// The URL for which the tokens must be.
    pub resource: &'a str,
}

/// Whether a credential is an access token, by its form.
pub fn is_access_token(credential: &str) -> bool {
    credential.starts_with(ACCESS_TOKEN_PREFIX)
}

/// The id of the connection and the rest of a token.
pub(super) fn parse_token<'a>(prefix: &str, token: &'a str) -> Option<(ConnectionId, &'a str)> {
    let (id, rest) = token.strip_prefix(prefix)?.split_once('_')?;
    Some((ConnectionId(Uuid::try_parse(id).ok().filter(|_| id.len() == 32)?), rest))
}

/// The PKCE challenge of a verifier (RFC 7636, method S256).
pub(super) fn challenge_of(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()))
}

/// A refresh token that this server made.
struct RefreshTokenParts {
    connection: ConnectionId,
    generation: u32,
    hash: String,
}

impl Connections {
    pub(super) fn new_code(&self, id: ConnectionId) -> String {
        format!("{CODE_PREFIX}{}_{}", id.0.simple(), self.access.random_letters())
    }

    pub(super) fn code_hash(&self, code: &str) -> String {
        hex(&self.ctx.secret.mac("oauth-code", &[code.as_bytes()]))
    }

    fn refresh_token_mac(&self, id: ConnectionId, rest: &str) -> String {
        hex(&self.ctx.secret.mac("refresh-token-mac", &[id.0.as_bytes(), rest.as_bytes()]))
    }

    fn new_refresh_token(&self, id: ConnectionId, generation: u32) -> String {
        let rest = format!("{generation}-{}", self.access.random_letters());
        format!("{REFRESH_TOKEN_PREFIX}{}_{rest}-{}", id.0.simple(), self.refresh_token_mac(id, &rest))
    }

    fn refresh_token_hash(&self, token: &str) -> String {
        hex(&self.ctx.secret.mac("refresh-token", &[token.as_bytes()]))
    }

    /// The parts of a refresh token, if this server made it.
    fn parse_refresh_token(&self, token: &str) -> Option<RefreshTokenParts> {
        let (connection, rest) = parse_token(REFRESH_TOKEN_PREFIX, token)?;
        let (rest, mac) = rest.rsplit_once('-')?;
        let is_ours: bool = mac.as_bytes().ct_eq(self.refresh_token_mac(connection, rest).as_bytes()).into();
        let generation = rest.split_once('-')?.0.parse().ok().filter(|_| is_ours)?;
        Some(RefreshTokenParts { connection, generation, hash: self.refresh_token_hash(token) })
    }

    /// Exchanges a code for tokens. A second exchange ends the connection.
    pub async fn exchange_code(&self, grant: CodeGrant<'_>) -> Result<NewTokens, GrantError> {
        let (id, _) = parse_token(CODE_PREFIX, grant.code).ok_or(GrantError::Unknown)?;
        let hash = self.code_hash(grant.code);
        let challenge = challenge_of(grant.verifier);
        let exchange = CodeExchange { client: grant.client, redirect_uri: grant.redirect_uri, challenge: &challenge };
        for _ in 0..MAX_CONFLICT_RETRIES {
            let (record, connection) = self.access.find_connection(id).await?.ok_or(GrantError::Unknown)?;
            let is_right: bool = connection.code.hash.as_bytes().ct_eq(hash.as_bytes()).into();
            if !is_right {
                return Err(GrantError::Unknown);
            }
            if connection.resource != grant.resource {
                return Err(GrantError::Invalid("resource is not the one for which the code was made"));
            }
            self.end_if_stolen(id, connection.check_code(&exchange, self.ctx.now())).await?;
            if let Some(tokens) = self.issue_tokens(&record, &connection).await? {
                return Ok(tokens);
            }
        }
        Err(GrantError::Invalid("the code was used several times at once"))
    }

    /// Exchanges a refresh token for new tokens. A second exchange ends the connection.
    pub async fn refresh_tokens(
        &self,
        token: &str,
        client: OauthClientId,
        resource: &str,
    ) -> Result<NewTokens, GrantError> {
        let parts = self.parse_refresh_token(token).ok_or(GrantError::Unknown)?;
        for _ in 0..MAX_CONFLICT_RETRIES {
            let gone = GrantError::Invalid("the connection has ended");
            let (record, connection) = self.access.find_connection(parts.connection).await?.ok_or(gone)?;
            let checked = connection.check_refresh_token((parts.generation, &parts.hash), client, self.ctx.now());
            self.end_if_stolen(parts.connection, checked).await?;
            if connection.resource != resource {
                return Err(GrantError::Invalid("resource is not the one for which the refresh token was made"));
            }
            if let Some(tokens) = self.issue_tokens(&record, &connection).await? {
                return Ok(tokens);
            }
        }
        Err(GrantError::Invalid("the refresh token was used several times at once"))
    }

    /// Ends the connection when a refusal is a sign of theft.
    async fn end_if_stolen(&self, id: ConnectionId, checked: Result<(), GrantRefusal>) -> Result<(), GrantError> {
        match checked {
            Ok(()) => Ok(()),
            Err(GrantRefusal::Invalid(why)) => Err(GrantError::Invalid(why)),
            Err(GrantRefusal::EndsConnection(reason)) => {
                self.end_connection_because(id, reason).await?;
                tracing::warn!(connection = %id, reason = reason.as_str(), "ended a connection that may be stolen");
                Err(GrantError::Invalid(match reason {
                    ConnectionEndReason::WrongVerifier => "code_verifier is wrong; the connection was ended",
                    _ => "it was used before; the connection was ended, because somebody else may have it",
                }))
            }
        }
    }

    /// Stores new tokens of a connection. `None` when it changed since it was read.
    async fn issue_tokens(&self, record: &Record, connection: &Connection) -> Result<Option<NewTokens>, GrantError> {
        let person = self.access.person_of(record.team, connection.person).await?;
        let person = person.filter(|view| !view.person.has_signed_out_since(connection.sign_outs, record.created_at));
        let person = person.ok_or(GrantError::Invalid("the person was removed or signed out everywhere"))?;
        let (id, now): (_, Time) = (ConnectionId(record.id), self.ctx.now());
        let access_token = format!("{ACCESS_TOKEN_PREFIX}{}_{}", id.0.simple(), self.access.random_letters());
        let refresh_token = self.new_refresh_token(id, connection.generation + 1);
        let access_hash = hex(&credential_hash(&self.ctx.secret, CredentialKind::AccessToken, &access_token));
        let next = connection.with_tokens(access_hash, self.refresh_token_hash(&refresh_token), now);
        let scopes = connection.allowed_scopes(&person.person.scopes());
        let is_saved = self.save_connection(record, &next).await?;
        let tokens = NewTokens { access_token, expires_in: ACCESS_TOKEN_MS / 1000, refresh_token, scopes };
        Ok(is_saved.then_some(tokens))
    }

    /// Ends what a token stands for (RFC 7009): a refresh token the connection, an access token only itself. Tokens that
    /// are unknown are ignored.
    pub async fn revoke_token(&self, token: &str, client: OauthClientId) -> Result<(), GrantError> {
        if let Some(parts) = self.parse_refresh_token(token) {
            let Some((_, connection)) = self.access.find_connection(parts.connection).await? else { return Ok(()) };
            if connection.client != client {
                return Err(GrantError::Invalid("the token belongs to another client"));
            }
            return Ok(self.end_connection_because(parts.connection, ConnectionEndReason::Revoked).await?);
        }
        let Some((id, _)) = parse_token(ACCESS_TOKEN_PREFIX, token) else { return Ok(()) };
        let hash = hex(&credential_hash(&self.ctx.secret, CredentialKind::AccessToken, token));
        for _ in 0..MAX_CONFLICT_RETRIES {
            let Some((record, mut connection)) = self.access.find_connection(id).await? else { return Ok(()) };
            let is_other = |known: &TokenHash| known.hash != hash;
            if connection.access_tokens.iter().all(is_other) {
                return Ok(());
            }
            if connection.client != client {
                return Err(GrantError::Invalid("the token belongs to another client"));
            }
            connection.access_tokens.retain(is_other);
            let saved = self.save_connection(&record, &connection).await;
            self.access.credentials.clear();
            if saved? {
                return Ok(());
            }
        }
        Err(GrantError::Invalid("the connection was changed several times meanwhile; try again"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_that_of_the_standard() {
        // RFC 7636, appendix B.
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        assert_eq!(challenge_of(verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn a_token_names_its_connection() {
        let id = Uuid::from_u128(7);
        let token = format!("moa_{}_abc", id.simple());
        assert_eq!(parse_token(ACCESS_TOKEN_PREFIX, &token), Some((ConnectionId(id), "abc")));
        for bad in ["", "moa_", "moa_x_y", "mo_abc", &format!("moa_{id}_abc"), &token.replace("moa_", "moc_")] {
            assert_eq!(parse_token(ACCESS_TOKEN_PREFIX, bad), None, "{bad}");
        }
    }
}

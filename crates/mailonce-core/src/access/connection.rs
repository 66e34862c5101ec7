//! Connections: the access that a person gave to an OAuth client.
//!
//! A connection is one record with the hashes of its current code and tokens, so that each step is one change of one
//! record. Of two steps that use the same code or refresh token, one sees the other and ends the connection.

use serde::{Deserialize, Serialize};

use crate::{
    access::{person::is_zero, team::ApiKeyScope},
    id::{InboxId, OauthClientId, PersonId},
    string_enum::string_enum,
    time::Time,
};

/// How long an authorization code works, in milliseconds.
pub const CODE_MS: i64 = 60_000;
/// How long an access token works, in milliseconds.
pub const ACCESS_TOKEN_MS: i64 = 3_600_000;
/// How long a refresh token works, in milliseconds.
pub const REFRESH_TOKEN_MS: i64 = 30 * 24 * 3_600_000;
/// Access tokens that are remembered. Clients refresh early, and calls with the previous token may still be running.
const MAX_ACCESS_TOKENS: usize = 4;

/// The scopes that a connection may have: those that tools of `/mcp` need.
pub const CONNECTION_SCOPES: [ApiKeyScope; 3] = [ApiKeyScope::Send, ApiKeyScope::Read, ApiKeyScope::Reply];

string_enum! {
    /// Why a connection ended.
    ConnectionEndReason {
        /// The person or an admin ended it.
        Ended = "ended",
        /// The client revoked its token.
        Revoked = "revoked",
        /// A code was used twice, so somebody else may have it.
        CodeReused = "code_reused",
        /// A code was used without the secret of the client that requested it.
        WrongVerifier = "wrong_verifier",
        /// A refresh token was used twice, so somebody else may have it.
        RefreshTokenReused = "refresh_token_reused",
    }
}

/// The end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionEnd {
    /// When.
    pub at: Time,
    /// Why.
    pub reason: ConnectionEndReason,
}

/// The code that a client exchanges for tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorizationCode {
    /// The keyed hash, in hexadecimal digits.
    pub hash: String,
    /// The PKCE challenge: SHA-256 of the client's verifier, in base64url.
    pub challenge: String,
    /// When it expires.
    pub expires_at: Time,
}

/// A token of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenHash {
    /// The keyed hash, in hexadecimal digits.
    pub hash: String,
    /// When it expires.
    pub expires_at: Time,
}

/// The access that a person gave to a client, as the record stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// The person.
    pub person: PersonId,
    /// The client.
    pub client: OauthClientId,
    /// What the client called itself. Not trusted.
    pub client_name: String,
    /// Where the code was sent.
    pub redirect_uri: String,
    /// What the person allowed. The role of the person may allow less by now.
    pub scopes: Vec<ApiKeyScope>,
    /// The inboxes that the person allowed; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inboxes: Vec<InboxId>,
    /// The URL for which the tokens are.
    pub resource: String,
    /// The code. It stays after its use, to recognize a second one.
    pub code: AuthorizationCode,
    /// The generation of the refresh token; 0 before the code was used.
    pub generation: u32,
    /// The current refresh token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<TokenHash>,
    /// The latest access tokens, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub access_tokens: Vec<TokenHash>,
    /// Its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<ConnectionEnd>,
    /// How often the person had signed out everywhere before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sign_outs: u32,
}

/// Why a code or refresh token was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantRefusal {
    /// It does not work. The text says why.
    Invalid(&'static str),
    /// It is a sign of theft: the connection must end.
    EndsConnection(ConnectionEndReason),
}

/// What a client sends with a code.
#[derive(Clone, Copy, Debug)]
pub struct CodeExchange<'a> {
    /// The client.
    pub client: OauthClientId,
    /// The redirect URI, if the client repeats it.
    pub redirect_uri: Option<&'a str>,
    /// The challenge of the client's verifier.
    pub challenge: &'a str,
}

impl Connection {
    /// Whether the client has used its code and the connection has not ended.
    pub fn is_live(&self, now: Time) -> bool {
        self.ended.is_none() && self.refresh_token.as_ref().is_some_and(|token| now < token.expires_at)
    }

    /// Whether nobody can ever use it again, so that its record may be removed.
    pub fn is_over(&self, now: Time) -> bool {
        match (&self.ended, &self.refresh_token) {
            (Some(end), _) => now.since(end.at) >= REFRESH_TOKEN_MS,
            (None, Some(token)) => token.expires_at <= now,
            (None, None) => self.code.expires_at <= now,
        }
    }

    /// Checks a code. The caller has compared its hash.
    pub fn check_code(&self, exchange: &CodeExchange<'_>, now: Time) -> Result<(), GrantRefusal> {
        if self.ended.is_some() {
            return Err(GrantRefusal::Invalid("the connection has ended"));
        }
        if self.generation > 0 {
            return Err(GrantRefusal::EndsConnection(ConnectionEndReason::CodeReused));
        }
        if self.code.expires_at <= now {
            return Err(GrantRefusal::Invalid("the code has expired; codes work for 60 seconds"));
        }
        if self.client != exchange.client {
            return Err(GrantRefusal::Invalid("the code was made for another client"));
        }
        if exchange.redirect_uri.is_some_and(|uri| uri != self.redirect_uri) {
            return Err(GrantRefusal::Invalid("redirect_uri is not the one to which the code was sent"));
        }
        if self.code.challenge != exchange.challenge {
            return Err(GrantRefusal::EndsConnection(ConnectionEndReason::WrongVerifier));
        }
        Ok(())
    }

    /// Checks a refresh token that this server made for this connection.
    pub fn check_refresh_token(
        &self,
        (generation, hash): (u32, &str),
        client: OauthClientId,
        now: Time,
    ) -> Result<(), GrantRefusal> {
        if self.ended.is_some() {
            return Err(GrantRefusal::Invalid("the connection has ended"));
        }
        let Some(current) = &self.refresh_token else {
            return Err(GrantRefusal::Invalid("the connection has no refresh token"));
        };
        if generation != self.generation || current.hash != hash {
            return Err(GrantRefusal::EndsConnection(ConnectionEndReason::RefreshTokenReused));
        }
        if self.client != client {
            return Err(GrantRefusal::Invalid("the refresh token belongs to another client"));
        }
        if current.expires_at <= now {
            return Err(GrantRefusal::Invalid("the refresh token has expired; connect again"));
        }
        Ok(())
    }

    /// The connection with new tokens. The earlier refresh token no longer works.
    #[must_use]
    pub fn with_tokens(&self, access_hash: String, refresh_hash: String, now: Time) -> Self {
        let mut next = self.clone();
        next.generation += 1;
        next.access_tokens.push(TokenHash { hash: access_hash, expires_at: now.plus(ACCESS_TOKEN_MS) });
        let excess = next.access_tokens.len().saturating_sub(MAX_ACCESS_TOKENS);
        next.access_tokens.drain(..excess);
        next.refresh_token = Some(TokenHash { hash: refresh_hash, expires_at: now.plus(REFRESH_TOKEN_MS) });
        next
    }

    /// The connection after its end. The first reason counts.
    #[must_use]
    pub fn ended(&self, reason: ConnectionEndReason, now: Time) -> Self {
        let end = self.ended.clone().unwrap_or(ConnectionEnd { at: now, reason });
        Self { ended: Some(end), ..self.clone() }
    }

    /// The scopes of the connection that these scopes of a person still allow.
    pub fn allowed_scopes(&self, of_person: &[ApiKeyScope]) -> Vec<ApiKeyScope> {
        let is_allowed = |scope: &ApiKeyScope| CONNECTION_SCOPES.contains(scope) && of_person.contains(scope);
        self.scopes.iter().copied().filter(is_allowed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const CLIENT: OauthClientId = OauthClientId(Uuid::from_u128(2));

    fn connection() -> Connection {
        Connection {
            person: PersonId(Uuid::from_u128(1)),
            client: CLIENT,
            client_name: "Robot".into(),
            redirect_uri: "https://robot.test/cb".into(),
            scopes: vec![ApiKeyScope::Read, ApiKeyScope::Send],
            inboxes: Vec::new(),
            resource: "https://mail.test/mcp".into(),
            code: AuthorizationCode { hash: "c".into(), challenge: "x".into(), expires_at: Time(CODE_MS) },
            generation: 0,
            refresh_token: None,
            access_tokens: Vec::new(),
            ended: None,
            sign_outs: 0,
        }
    }

    #[test]
    fn a_code_works_once_in_time_and_for_its_client() {
        let right = CodeExchange { client: CLIENT, redirect_uri: None, challenge: "x" };
        let new = connection();
        assert_eq!(new.check_code(&right, Time(CODE_MS - 1)), Ok(()));
        let refused = |exchange: CodeExchange<'_>, now: i64| new.check_code(&exchange, Time(now)).unwrap_err();
        assert!(matches!(refused(right, CODE_MS), GrantRefusal::Invalid(_)));
        let other = OauthClientId(Uuid::from_u128(3));
        assert!(matches!(refused(CodeExchange { client: other, ..right }, 0), GrantRefusal::Invalid(_)));
        let elsewhere = CodeExchange { redirect_uri: Some("https://robot.test/cb2"), ..right };
        assert!(matches!(refused(elsewhere, 0), GrantRefusal::Invalid(_)));
        let wrong = GrantRefusal::EndsConnection(ConnectionEndReason::WrongVerifier);
        assert_eq!(refused(CodeExchange { challenge: "y", ..right }, 0), wrong);
        let used = new.with_tokens("a".into(), "r".into(), Time(5));
        let reused = GrantRefusal::EndsConnection(ConnectionEndReason::CodeReused);
        assert_eq!(used.check_code(&right, Time(CODE_MS + 1)), Err(reused), "also after the code expired");
    }

    #[test]
    fn a_refresh_token_works_once() {
        let first = connection().with_tokens("a1".into(), "r1".into(), Time(0));
        assert_eq!(first.check_refresh_token((1, "r1"), CLIENT, Time(1)), Ok(()));
        let second = first.with_tokens("a2".into(), "r2".into(), Time(1));
        let reused = Err(GrantRefusal::EndsConnection(ConnectionEndReason::RefreshTokenReused));
        assert_eq!(second.check_refresh_token((1, "r1"), CLIENT, Time(2)), reused);
        assert_eq!(second.check_refresh_token((2, "r1"), CLIENT, Time(2)), reused);
        assert_eq!(second.check_refresh_token((2, "r2"), CLIENT, Time(2)), Ok(()));
        let late = second.check_refresh_token((2, "r2"), CLIENT, Time(1 + REFRESH_TOKEN_MS));
        assert!(matches!(late, Err(GrantRefusal::Invalid(_))));
        let over = second.ended(ConnectionEndReason::Ended, Time(3));
        assert!(matches!(over.check_refresh_token((2, "r2"), CLIENT, Time(4)), Err(GrantRefusal::Invalid(_))));
        assert_eq!(over.ended(ConnectionEndReason::Revoked, Time(9)), over, "the first end counts");
    }

    #[test]
    fn memory_of_access_tokens_is_bounded() {
        let many =
            (0..9).fold(connection(), |connection, n| connection.with_tokens(n.to_string(), "r".into(), Time(n)));
        let hashes: Vec<&str> = many.access_tokens.iter().map(|token| token.hash.as_str()).collect();
        assert_eq!((hashes, many.generation), (vec!["5", "6", "7", "8"], 9));
    }

    #[test]
    fn a_connection_never_has_more_than_its_person() {
        let connection = connection();
        assert_eq!(connection.allowed_scopes(&[ApiKeyScope::Read, ApiKeyScope::Admin]), [ApiKeyScope::Read]);
        let greedy = Connection { scopes: ApiKeyScope::ALL.to_vec(), ..connection };
        assert_eq!(greedy.allowed_scopes(ApiKeyScope::ALL), CONNECTION_SCOPES);
    }
}

//! Sign-in by an identity provider: the authorization code flow of OpenID Connect, with PKCE.

pub(crate) mod id_token;

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::{
    access::{display_name::plain_name, person::Role},
    time::Time,
};
use mailonce_engine::access::external_sign_in::{ExternalFlow, ExternalIdentity};
use mailonce_transport::{
    http::base::percent_encode,
    identity_provider::{IdentityProviderClient, ProviderAnswer, is_protected},
};
use serde::Deserialize;
use serde_json::Value;
use std::sync::{Mutex, PoisonError};
use url::Url;

use crate::{config::OidcFile, tls::load_ca_file};
use id_token::{ExpectedClaims, IdTokenError, Jwk};

/// How long the provider's description and keys are used before they are read again, in milliseconds.
const CACHE_MS: i64 = 3_600_000;
/// How often the keys are read again because a token names an unknown one, in milliseconds at least.
const KEY_REFRESH_MS: i64 = 10_000;
/// The longest name of a person, in characters.
const MAX_NAME_CHARS: usize = 100;
/// Groups with this prefix are read as roles, too: `mailonce-admin`.
const GROUP_PREFIX: &str = "mailonce-";

/// The identity provider, as the operator configured it.
pub struct OidcProvider {
    issuer: String,
    client_id: String,
    client_secret: Option<String>,
    role_claim: Option<String>,
    team_claim: Option<String>,
    default_role: Option<Role>,
    client: IdentityProviderClient,
    cache: Mutex<Cache>,
}

#[derive(Default)]
struct Cache {
    endpoints: Option<(Time, Endpoints)>,
    keys: Option<(Time, Vec<Jwk>)>,
}

/// The parts of the provider's description that are used.
#[derive(Clone, Debug, Deserialize)]
struct Endpoints {
    issuer: String,
    #[serde(deserialize_with = "parse_url")]
    authorization_endpoint: Url,
    #[serde(deserialize_with = "parse_url")]
    token_endpoint: Url,
    #[serde(deserialize_with = "parse_url")]
    jwks_uri: Url,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

fn parse_url<'de, D: serde::Deserializer<'de>>(text: D) -> Result<Url, D::Error> {
    String::deserialize(text)?.parse().map_err(serde::de::Error::custom)
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

/// The answer of the provider in the browser's address.
#[derive(Debug, Deserialize)]
pub(crate) struct CallbackQuery {
    #[serde(default)]
    pub(crate) code: Option<String>,
    #[serde(default)]
    pub(crate) state: Option<String>,
    /// The issuer (RFC 9207).
    #[serde(default)]
    iss: Option<String>,
    #[serde(default)]
    pub(crate) error: Option<String>,
}

/// Why nobody was signed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RedeemError {
    /// What the browser brought is not for this sign-in.
    Refused(String),
    /// The provider cannot be reached, or does not answer as it should.
    Provider(String),
}

impl OidcProvider {
    /// The provider of the section `[oidc]`. It is not called yet.
    pub fn new(file: &OidcFile) -> anyhow::Result<Self> {
        let issuer: Url = file.issuer.parse().with_context(|| format!("oidc.issuer `{}`", file.issuer))?;
        anyhow::ensure!(is_protected(&issuer), "oidc.issuer must be an https URL without credentials");
        anyhow::ensure!(!file.client_id.is_empty(), "oidc.client_id must not be empty");
        let secret = file.client_secret_file.as_ref().map(|path| {
            std::fs::read_to_string(path).with_context(|| format!("reading oidc.client_secret_file {}", path.display()))
        });
        let default_role = file.default_role.as_deref().map(|role| {
            Role::parse(role).with_context(|| format!("oidc.default_role `{role}` must be viewer, approver or admin"))
        });
        let default_role = default_role.transpose()?;
        anyhow::ensure!(
            default_role.is_some() || file.role_claim.is_some(),
            "[oidc] needs role_claim or default_role; without both nobody could sign in"
        );
        let roots = load_ca_file(file.ca_file.as_deref()).context("oidc.ca_file")?;
        Ok(Self {
            issuer: file.issuer.clone(),
            client_id: file.client_id.clone(),
            client_secret: secret.transpose()?.map(|secret| secret.trim().to_owned()),
            role_claim: file.role_claim.clone(),
            team_claim: file.team_claim.clone(),
            default_role,
            client: IdentityProviderClient::new(&roots)?,
            cache: Mutex::default(),
        })
    }

    /// The host of the provider, for people.
    pub(crate) fn host(&self) -> String {
        self.issuer.parse::<Url>().ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default()
    }

    /// Where the browser is sent to sign in.
    pub(crate) async fn authorization_url(
        &self,
        flow: &ExternalFlow,
        redirect_uri: &str,
        now: Time,
    ) -> Result<String, String> {
        let mut url = self.endpoints(now).await?.authorization_endpoint;
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.client_id)
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("scope", "openid profile email")
            .append_pair("state", &flow.state)
            .append_pair("nonce", &flow.nonce)
            .append_pair("code_challenge", &flow.code_challenge())
            .append_pair("code_challenge_method", "S256");
        Ok(url.into())
    }

    /// Redeems the code of a callback, and returns who signed in. The caller has checked `state`.
    pub(crate) async fn redeem(
        &self,
        query: &CallbackQuery,
        flow: &ExternalFlow,
        redirect_uri: &str,
        now: Time,
    ) -> Result<ExternalIdentity, RedeemError> {
        let refused = |why: &str| RedeemError::Refused(why.into());
        if query.iss.as_ref().is_some_and(|issuer| *issuer != self.issuer) {
            return Err(refused("the answer comes from another identity provider"));
        }
        let code = query.code.as_deref().ok_or_else(|| refused("the identity provider sent no code"))?;
        let token = self.exchange_code(code, flow, redirect_uri, now).await?;
        let claims = self.verify(&token, flow, now).await?;
        Ok(self.identity(&claims))
    }

    async fn exchange_code(
        &self,
        code: &str,
        flow: &ExternalFlow,
        redirect_uri: &str,
        now: Time,
    ) -> Result<String, RedeemError> {
        let endpoints = self.endpoints(now).await.map_err(RedeemError::Provider)?;
        let (form, authorization) = self.token_request(&endpoints, code, flow, redirect_uri);
        let answer = self.client.post_form(&endpoints.token_endpoint, form, authorization).await;
        let answer = answer.map_err(RedeemError::Provider)?;
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        if answer.status != 200 {
            let error: String = body["error"].as_str().unwrap_or("no reason").chars().take(100).collect();
            let why = format!("the identity provider refused the code with {} ({error})", answer.status);
            // Of its refusals only this one is about the code (RFC 6749 §5.2).
            let is_code_wrong = error == "invalid_grant";
            return Err(if is_code_wrong { RedeemError::Refused(why) } else { RedeemError::Provider(why) });
        }
        let missing = || RedeemError::Provider("the identity provider sent no ID token".into());
        body["id_token"].as_str().map(str::to_owned).ok_or_else(missing)
    }

    /// The form that redeems a code, and the header that authenticates this server.
    fn token_request(
        &self,
        endpoints: &Endpoints,
        code: &str,
        flow: &ExternalFlow,
        redirect_uri: &str,
    ) -> (String, Option<String>) {
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", code)
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("code_verifier", &flow.code_verifier);
        let mut authorization = None;
        match &self.client_secret {
            // Basic authentication is the default of the standard.
            Some(secret) if endpoints.supports_basic() => {
                let pair = format!("{}:{}", percent_encode(&self.client_id), percent_encode(secret));
                authorization = Some(format!("Basic {}", STANDARD.encode(pair)));
            }
            secret => {
                form.append_pair("client_id", &self.client_id);
                if let Some(secret) = secret {
                    form.append_pair("client_secret", secret);
                }
            }
        }
        (form.finish(), authorization)
    }

    async fn verify(&self, token: &str, flow: &ExternalFlow, now: Time) -> Result<Value, RedeemError> {
        let expected = ExpectedClaims {
            issuer: &self.issuer,
            client_id: &self.client_id,
            nonce: &flow.nonce,
            now_s: now.0 / 1000,
        };
        let keys = async |max_age_ms| self.keys(max_age_ms, now).await.map_err(RedeemError::Provider);
        let verified = match id_token::verify(token, &keys(CACHE_MS).await?, expected) {
            // The provider changed its keys since they were read.
            Err(IdTokenError::UnknownKey) => id_token::verify(token, &keys(KEY_REFRESH_MS).await?, expected),
            verified => verified,
        };
        verified.map_err(|error| RedeemError::Refused(error.to_string()))
    }

    /// Who signed in, from the claims of a verified token.
    fn identity(&self, claims: &Value) -> ExternalIdentity {
        let text = |name: &str| claims[name].as_str().map(str::trim).filter(|text| !text.is_empty());
        // Exactly as the provider writes it: accounts may differ in a space only.
        let subject = claims["sub"].as_str().unwrap_or_default().to_owned();
        // Approval links go to this address, so what is absent proves nothing. Some providers write booleans as text.
        let is_verified = claims["email_verified"] == true || claims["email_verified"] == "true";
        let address = text("email").filter(|_| is_verified).map(str::to_owned);
        // People choose these names themselves.
        let names = [text("name"), text("preferred_username"), address.as_deref(), Some(&*subject)];
        let name =
            names.into_iter().flatten().map(|name| plain_name(name, MAX_NAME_CHARS)).find(|name| !name.is_empty());
        let claimed = self.role_claim.as_deref().map(|claim| claimed_role(&strings(claim_value(claims, claim))));
        let role = claimed.flatten().or(self.default_role);
        let teams = self.team_claim.as_deref().map(|claim| strings(claim_value(claims, claim)));
        ExternalIdentity {
            issuer: self.issuer.clone(),
            name: name.unwrap_or_default(),
            address,
            role,
            is_role_claimed: self.role_claim.is_some(),
            teams: teams.map(|teams| teams.into_iter().map(str::to_owned).collect()),
            subject,
        }
    }

    async fn endpoints(&self, now: Time) -> Result<Endpoints, String> {
        if let Some((read_at, endpoints)) = &self.cache().endpoints
            && now.since(*read_at) < CACHE_MS
        {
            return Ok(endpoints.clone());
        }
        let url = format!("{}/.well-known/openid-configuration", self.issuer.trim_end_matches('/'));
        let url = url.parse().map_err(|error| format!("{url}: {error}"))?;
        let endpoints: Endpoints = parse_answer(&url, &self.client.get(&url).await?)?;
        if endpoints.issuer != self.issuer {
            return Err(format!("{url} describes another issuer than oidc.issuer"));
        }
        for endpoint in [&endpoints.authorization_endpoint, &endpoints.token_endpoint, &endpoints.jwks_uri] {
            if !is_protected(endpoint) {
                return Err(format!("{endpoint} of the identity provider is not https"));
            }
        }
        self.cache().endpoints = Some((now, endpoints.clone()));
        Ok(endpoints)
    }

    /// The provider's keys, no older than this.
    async fn keys(&self, max_age_ms: i64, now: Time) -> Result<Vec<Jwk>, String> {
        if let Some((read_at, keys)) = &self.cache().keys
            && now.since(*read_at) < max_age_ms
        {
            return Ok(keys.clone());
        }
        let url = self.endpoints(now).await?.jwks_uri;
        let set: KeySet = parse_answer(&url, &self.client.get(&url).await?)?;
        // Keys of kinds that are not used may have any form.
        let keys: Vec<Jwk> = set.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok()).collect();
        self.cache().keys = Some((now, keys.clone()));
        Ok(keys)
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Endpoints {
    fn supports_basic(&self) -> bool {
        let methods = self.token_endpoint_auth_methods_supported.as_ref();
        methods.is_none_or(|methods| methods.iter().any(|method| method == "client_secret_basic"))
    }
}

fn parse_answer<T: for<'de> Deserialize<'de>>(url: &Url, answer: &ProviderAnswer) -> Result<T, String> {
    if answer.status != 200 {
        return Err(format!("{url} answered {}", answer.status));
    }
    serde_json::from_slice(&answer.body).map_err(|error| format!("{url}: {error}"))
}

/// A claim by its name, or by a path such as `realm_access.roles`.
fn claim_value<'a>(claims: &'a Value, name: &str) -> &'a Value {
    claims.get(name).unwrap_or_else(|| name.split('.').fold(claims, |value, part| &value[part]))
}

/// A text or a list of texts.
fn strings(value: &Value) -> Vec<&str> {
    match value {
        Value::String(one) => vec![one],
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// The role that allows most, of those that a claim names.
fn claimed_role(values: &[&str]) -> Option<Role> {
    let roles = values.iter().filter_map(|value| Role::parse(value.strip_prefix(GROUP_PREFIX).unwrap_or(value)));
    roles.max_by_key(|role| role.scopes().len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn provider(role_claim: Option<&str>, default_role: Option<&str>) -> OidcProvider {
        OidcProvider::new(&OidcFile {
            issuer: "https://id.test".into(),
            client_id: "mailonce".into(),
            role_claim: role_claim.map(str::to_owned),
            team_claim: Some("teams".into()),
            default_role: default_role.map(str::to_owned),
            ..OidcFile::default()
        })
        .unwrap()
    }

    #[test]
    fn the_role_comes_from_the_claim_or_is_the_default() {
        let role = |provider: &OidcProvider, claims: Value| provider.identity(&claims).role;
        let by_claim = provider(Some("realm_access.roles"), None);
        let claims = |roles: Value| json!({ "sub": "a", "realm_access": { "roles": roles } });
        assert_eq!(role(&by_claim, claims(json!(["other", "viewer", "mailonce-approver"]))), Some(Role::Approver));
        assert_eq!(role(&by_claim, claims(json!("admin"))), Some(Role::Admin));
        assert_eq!(role(&by_claim, claims(json!(["Admin", 7]))), None);
        assert_eq!(role(&by_claim, json!({ "sub": "a" })), None);
        let with_default = provider(Some("https://example.com/role"), Some("viewer"));
        assert_eq!(role(&with_default, json!({ "sub": "a" })), Some(Role::Viewer));
        assert_eq!(role(&with_default, json!({ "sub": "a", "https://example.com/role": "admin" })), Some(Role::Admin));
    }

    #[test]
    fn an_address_that_the_provider_did_not_verify_is_not_used() {
        let provider = provider(None, Some("viewer"));
        let identity = |claims: Value| provider.identity(&claims);
        for verified in [json!(false), json!("false"), json!(null), json!(1), json!("yes"), json!([true])] {
            let claims =
                json!({ "sub": "a", "email": "ada@example.com", "email_verified": verified, "teams": ["x", 1, "y"] });
            let unverified = identity(claims);
            assert_eq!((unverified.address, unverified.name.as_str()), (None, "a"), "{verified}");
            assert_eq!(unverified.teams, Some(vec!["x".into(), "y".into()]));
        }
        assert_eq!(identity(json!({ "sub": "a", "email": "ada@example.com" })).address, None, "the claim is absent");
        let as_text = identity(json!({ "sub": "a", "email": "ada@example.com", "email_verified": "true" }));
        assert_eq!(as_text.address.as_deref(), Some("ada@example.com"));
        let claims = json!({ "sub": "a", "email": "ada@example.com", "email_verified": true, "name": " Ada " });
        let verified = identity(claims);
        assert_eq!((verified.address.as_deref(), verified.name.as_str()), (Some("ada@example.com"), "Ada"));
        assert_eq!(verified.teams, Some(vec![]));
    }

    #[test]
    fn accounts_that_differ_in_a_space_are_different_people() {
        let provider = provider(None, Some("viewer"));
        for subject in ["ada", "ada ", " ada"] {
            let identity = provider.identity(&json!({ "sub": subject }));
            assert_eq!((identity.subject.as_str(), identity.name.as_str()), (subject, "ada"));
        }
    }

    #[test]
    fn a_configuration_that_could_not_work_is_refused() {
        let good = OidcFile { issuer: "https://id.test".into(), client_id: "m".into(), ..OidcFile::default() };
        assert!(OidcProvider::new(&good).is_err(), "no role for anybody");
        for (issuer, role) in [("http://id.test", "viewer"), ("id.test", "viewer"), ("https://id.test", "boss")] {
            let file = OidcFile { issuer: issuer.into(), default_role: Some(role.into()), ..good.clone() };
            assert!(OidcProvider::new(&file).is_err(), "{issuer} {role}");
        }
    }
}

//! Webhook endpoints, and verification of webhook signatures (Standard Webhooks).

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use hyper::Method;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use subtle::ConstantTimeEq as _;

use crate::{
    call::{Call, Caller, Idempotency, Parts, at},
    error::Error,
    page::PageQuery,
    wire::{
        Endpoint, EndpointPage, EndpointPatch, EndpointTest, Event, NewEndpoint, Notice, NoticePage, Recover, Recovery,
        RotateEndpoint,
    },
};

/// Most time between a webhook's timestamp and now.
const TOLERANCE: Duration = Duration::from_mins(5);

/// Verifies a webhook and returns its event; fails with `bad_signature`. Pass the body as received, not JSON that was
/// parsed and serialized again. A webhook may arrive twice: deduplicate by the header `webhook-id`.
pub fn verify_webhook<N: AsRef<str>, V: AsRef<[u8]>>(
    body: &[u8],
    headers: impl IntoIterator<Item = (N, V)>,
    secret: &str,
) -> Result<Event, Error> {
    Verifier::new([secret])?.verify(body, headers)
}

/// Verifies webhooks with the secrets of an endpoint; it has several during a rotation.
#[derive(Clone)]
pub struct Verifier {
    secrets: Vec<Vec<u8>>,
    tolerance: Duration,
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never print the secrets.
        f.debug_struct("Verifier").field("secrets", &self.secrets.len()).finish_non_exhaustive()
    }
}

impl Verifier {
    /// A verifier for secrets as the API returned them: `whsec_…`.
    pub fn new<S: AsRef<str>>(secrets: impl IntoIterator<Item = S>) -> Result<Self, Error> {
        let bytes = |secret: S| {
            let text = secret.as_ref();
            let found = STANDARD.decode(text.strip_prefix("whsec_").unwrap_or(text));
            found.map_err(|_base64| Error::invalid("secret", "is not whsec_ and base64"))
        };
        Ok(Self { secrets: secrets.into_iter().map(bytes).collect::<Result<_, _>>()?, tolerance: TOLERANCE })
    }

    /// Most time between a webhook's timestamp and now; five minutes by default.
    #[must_use]
    pub fn tolerance(self, tolerance: Duration) -> Self {
        Self { tolerance, ..self }
    }

    /// Verifies a webhook that was received now.
    pub fn verify<N: AsRef<str>, V: AsRef<[u8]>>(
        &self,
        body: &[u8],
        headers: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Event, Error> {
        self.verify_at(body, headers, SystemTime::now())
    }

    /// Verifies a webhook that was received at `now`.
    pub fn verify_at<N: AsRef<str>, V: AsRef<[u8]>>(
        &self,
        body: &[u8],
        headers: impl IntoIterator<Item = (N, V)>,
        now: SystemTime,
    ) -> Result<Event, Error> {
        let headers = SignatureHeaders::read(headers);
        let time: u64 = match headers.time.parse() {
            Ok(time) if !headers.id.is_empty() && headers.time.bytes().all(|byte| byte.is_ascii_digit()) => time,
            _ => return Err(forged("the headers of a notice are missing")),
        };
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if now.abs_diff(time) > self.tolerance.as_secs() {
            return Err(forged("the timestamp is too far from now"));
        }
        let received: Vec<&str> = headers.signature.split(' ').filter_map(|part| part.strip_prefix("v1,")).collect();
        for secret in &self.secrets {
            let mut mac = Hmac::<Sha256>::new_from_slice(secret)
                .map_err(|_length| Error::invalid("secret", "cannot be a key"))?;
            mac.update(format!("{}.{}.", headers.id, headers.time).as_bytes());
            mac.update(body);
            let expected = STANDARD.encode(mac.finalize().into_bytes());
            // Constant time, so that the response time does not reveal the signature.
            if received.iter().any(|candidate| bool::from(candidate.as_bytes().ct_eq(expected.as_bytes()))) {
                return event(body).map_err(|error| forged(&format!("it is no event: {error}")));
            }
        }
        Err(forged("no signature fits"))
    }
}

/// The event in a webhook. A test webhook is not stored as an event, so its `cursor` is `null`.
fn event(body: &[u8]) -> Result<Event, serde_json::Error> {
    let mut members: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(body)?;
    members.retain(|_, value| !value.is_null());
    members.entry("cursor").or_insert_with(|| String::new().into());
    serde_json::from_value(members.into())
}

fn forged(detail: &str) -> Error {
    Error::local("bad_signature", detail, "Answer 401 and do not act on it.").with_status(401)
}

/// The signature headers of a webhook. `webhook-*` takes precedence over the older `svix-*`.
#[derive(Default)]
struct SignatureHeaders {
    id: String,
    time: String,
    signature: String,
}

impl SignatureHeaders {
    fn read<N: AsRef<str>, V: AsRef<[u8]>>(headers: impl IntoIterator<Item = (N, V)>) -> Self {
        let (mut standard, mut svix) = (Self::default(), Self::default());
        for (name, value) in headers {
            let name = name.as_ref().to_ascii_lowercase();
            let value = String::from_utf8_lossy(value.as_ref()).into_owned();
            let (headers, part) = match (name.strip_prefix("webhook-"), name.strip_prefix("svix-")) {
                (Some(part), _) => (&mut standard, part),
                (_, Some(part)) => (&mut svix, part),
                _ => continue,
            };
            match part {
                "id" => headers.id = value,
                "timestamp" => headers.time = value,
                "signature" if headers.signature.is_empty() => headers.signature = value,
                "signature" => headers.signature = format!("{} {value}", headers.signature),
                _ => {}
            }
        }
        let or = |one: String, other: String| if one.is_empty() { other } else { one };
        Self {
            id: or(standard.id, svix.id),
            time: or(standard.time, svix.time),
            signature: or(standard.signature, svix.signature),
        }
    }
}

/// Filters for the notices of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the names of the query say what they are")]
pub struct NoticeQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Calls for webhook endpoints.
#[derive(Clone)]
pub struct Webhooks {
    caller: Arc<Caller>,
}

impl Webhooks {
    pub(crate) fn new(caller: &Arc<Caller>) -> Self {
        Self { caller: Arc::clone(caller) }
    }

    fn path(id: &str, verb: &str) -> Result<String, Error> {
        Ok(format!("/v1/endpoints/{}{verb}", at(id)?))
    }

    fn posted(id: &str, verb: &str) -> Result<Parts, Error> {
        Ok(Parts::post(Self::path(id, verb)?, Idempotency::RandomKey))
    }

    /// Creates an endpoint. Only this response contains `secret`.
    pub fn create(&self, body: &NewEndpoint) -> Call<Endpoint> {
        Call::new(&self.caller, Parts::post("/v1/endpoints".to_owned(), Idempotency::RandomKey).body(body))
    }

    /// Returns an endpoint.
    pub fn get(&self, id: &str) -> Call<Endpoint> {
        Call::new(&self.caller, Self::path(id, "").map(Parts::get))
    }

    /// A page of endpoints, newest first.
    pub fn list(&self, query: &PageQuery) -> Call<EndpointPage> {
        Call::new(&self.caller, Parts::get("/v1/endpoints".to_owned()).query(query))
    }

    /// Changes the given fields.
    pub fn update(&self, id: &str, body: &EndpointPatch) -> Call<Endpoint> {
        let path = Self::path(id, "");
        Call::new(&self.caller, path.and_then(|path| Parts::new(Method::PATCH, path, Idempotency::Inherent).body(body)))
    }

    /// Deletes an endpoint.
    pub fn delete(&self, id: &str) -> Call<Endpoint> {
        let path = Self::path(id, "");
        Call::new(&self.caller, path.map(|path| Parts::new(Method::DELETE, path, Idempotency::Inherent)))
    }

    /// Creates a new secret. Earlier secrets keep signing for `previous_secret_ttl`.
    pub fn rotate(&self, id: &str, body: &RotateEndpoint) -> Call<Endpoint> {
        Call::new(&self.caller, Self::posted(id, "/rotate").and_then(|parts| parts.body(body)))
    }

    /// Pauses delivery to an endpoint.
    pub fn pause(&self, id: &str) -> Call<Endpoint> {
        Call::new(&self.caller, Self::posted(id, "/pause"))
    }

    /// Resumes delivery to an endpoint.
    pub fn resume(&self, id: &str) -> Call<Endpoint> {
        Call::new(&self.caller, Self::posted(id, "/resume"))
    }

    /// Sends a test webhook now.
    pub fn test(&self, id: &str) -> Call<EndpointTest> {
        Call::new(&self.caller, Self::posted(id, "/test"))
    }

    /// Resends the notices that failed since a given time.
    pub fn recover(&self, id: &str, body: &Recover) -> Call<Recovery> {
        Call::new(&self.caller, Self::posted(id, "/recover").and_then(|parts| parts.body(body)))
    }

    /// A page of the notices to an endpoint.
    pub fn notices(&self, id: &str, query: &NoticeQuery) -> Call<NoticePage> {
        let path = Self::path(id, "/notices");
        Call::new(&self.caller, path.and_then(|path| Parts::get(path).query(query)))
    }

    /// Sends one notice again.
    pub fn replay(&self, notice: &str) -> Call<Notice> {
        let parts = at(notice).map(|id| Parts::post(format!("/v1/notices/{id}/replay"), Idempotency::RandomKey));
        Call::new(&self.caller, parts)
    }
}

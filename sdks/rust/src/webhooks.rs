//! Webhooks: receivers of events, and the proof that a request comes from the server (Standard Webhooks).

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
    call::{Call, Caller, Naming, Parts, at},
    error::Error,
    page::PageQuery,
    wire::{
        Endpoint, EndpointPage, EndpointPatch, EndpointTest, Event, NewEndpoint, Notice, NoticePage, Recover, Recovery,
        RotateEndpoint,
    },
};

/// How old or early a request may be.
const TOLERANCE: Duration = Duration::from_mins(5);

/// Whether a request comes from mailonce: its event if so, `bad_signature` if not. Pass the body as it came, not JSON that
/// was read and written again. A notice may come twice: remember the header `webhook-id`.
pub fn verify_webhook<N: AsRef<str>, V: AsRef<[u8]>>(
    body: &[u8],
    headers: impl IntoIterator<Item = (N, V)>,
    secret: &str,
) -> Result<Event, Error> {
    Verifier::new([secret])?.verify(body, headers)
}

/// Secrets of an endpoint, several while one is rotated.
#[derive(Clone)]
pub struct Verifier {
    secrets: Vec<Vec<u8>>,
    tolerance: Duration,
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Secrets are nobody's business.
        f.debug_struct("Verifier").field("secrets", &self.secrets.len()).finish_non_exhaustive()
    }
}

impl Verifier {
    /// Takes secrets as they were shown when the endpoint was made: `whsec_…`.
    pub fn new<S: AsRef<str>>(secrets: impl IntoIterator<Item = S>) -> Result<Self, Error> {
        let bytes = |secret: S| {
            let text = secret.as_ref();
            let found = STANDARD.decode(text.strip_prefix("whsec_").unwrap_or(text));
            found.map_err(|_base64| Error::invalid("secret", "is not whsec_ and base64"))
        };
        Ok(Self { secrets: secrets.into_iter().map(bytes).collect::<Result<_, _>>()?, tolerance: TOLERANCE })
    }

    /// How old or early a request may be; five minutes by default.
    #[must_use]
    pub fn tolerance(self, tolerance: Duration) -> Self {
        Self { tolerance, ..self }
    }

    /// Whether a request that came now is believed.
    pub fn verify<N: AsRef<str>, V: AsRef<[u8]>>(
        &self,
        body: &[u8],
        headers: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Event, Error> {
        self.verify_at(body, headers, SystemTime::now())
    }

    /// Whether a request that came then is believed.
    pub fn verify_at<N: AsRef<str>, V: AsRef<[u8]>>(
        &self,
        body: &[u8],
        headers: impl IntoIterator<Item = (N, V)>,
        now: SystemTime,
    ) -> Result<Event, Error> {
        let said = Said::read(headers);
        let time: u64 = match said.time.parse() {
            Ok(time) if !said.id.is_empty() && said.time.bytes().all(|byte| byte.is_ascii_digit()) => time,
            _ => return Err(forged("the headers of a notice are missing")),
        };
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if now.abs_diff(time) > self.tolerance.as_secs() {
            return Err(forged("the timestamp is too far from now"));
        }
        let theirs: Vec<&str> = said.signature.split(' ').filter_map(|part| part.strip_prefix("v1,")).collect();
        for secret in &self.secrets {
            let mut mac = Hmac::<Sha256>::new_from_slice(secret)
                .map_err(|_length| Error::invalid("secret", "cannot be a key"))?;
            mac.update(format!("{}.{}.", said.id, said.time).as_bytes());
            mac.update(body);
            let ours = STANDARD.encode(mac.finalize().into_bytes());
            // Takes as long for the first difference as for the last.
            if theirs.iter().any(|their| bool::from(their.as_bytes().ct_eq(ours.as_bytes()))) {
                return event(body).map_err(|error| forged(&format!("it is no event: {error}")));
            }
        }
        Err(forged("no signature fits"))
    }
}

/// The event of a notice. A test is no event of the ledger and has no place there, which the wire says by `null`.
fn event(body: &[u8]) -> Result<Event, serde_json::Error> {
    let mut members: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(body)?;
    members.retain(|_, value| !value.is_null());
    members.entry("cursor").or_insert_with(|| String::new().into());
    serde_json::from_value(members.into())
}

fn forged(detail: &str) -> Error {
    Error::here("bad_signature", detail, "Answer 401 and do not act on it.").with_status(401)
}

/// What the headers of a request say, ours before those of the older name.
#[derive(Default)]
struct Said {
    id: String,
    time: String,
    signature: String,
}

impl Said {
    fn read<N: AsRef<str>, V: AsRef<[u8]>>(headers: impl IntoIterator<Item = (N, V)>) -> Self {
        let (mut ours, mut older) = (Self::default(), Self::default());
        for (name, value) in headers {
            let name = name.as_ref().to_ascii_lowercase();
            let value = String::from_utf8_lossy(value.as_ref()).into_owned();
            let (said, part) = match (name.strip_prefix("webhook-"), name.strip_prefix("svix-")) {
                (Some(part), _) => (&mut ours, part),
                (_, Some(part)) => (&mut older, part),
                _ => continue,
            };
            match part {
                "id" => said.id = value,
                "timestamp" => said.time = value,
                "signature" if said.signature.is_empty() => said.signature = value,
                "signature" => said.signature = format!("{} {value}", said.signature),
                _ => {}
            }
        }
        let or = |one: String, other: String| if one.is_empty() { other } else { one };
        Self {
            id: or(ours.id, older.id),
            time: or(ours.time, older.time),
            signature: or(ours.signature, older.signature),
        }
    }
}

/// Which notices of an endpoint.
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

/// Endpoints of the server.
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
        Ok(Parts::post(Self::path(id, verb)?, Naming::Mint))
    }

    /// Makes an endpoint; `secret` is shown this once.
    pub fn create(&self, body: &NewEndpoint) -> Call<Endpoint> {
        Call::new(&self.caller, Parts::post("/v1/endpoints".to_owned(), Naming::Mint).body(body))
    }

    /// One endpoint.
    pub fn get(&self, id: &str) -> Call<Endpoint> {
        Call::new(&self.caller, Self::path(id, "").map(Parts::get))
    }

    /// A page of endpoints, newest first.
    pub fn list(&self, query: &PageQuery) -> Call<EndpointPage> {
        Call::new(&self.caller, Parts::get("/v1/endpoints".to_owned()).query(query))
    }

    /// Changes what is given.
    pub fn update(&self, id: &str, body: &EndpointPatch) -> Call<Endpoint> {
        let path = Self::path(id, "");
        Call::new(&self.caller, path.and_then(|path| Parts::new(Method::PATCH, path, Naming::Nature).body(body)))
    }

    /// Removes it.
    pub fn delete(&self, id: &str) -> Call<Endpoint> {
        let path = Self::path(id, "");
        Call::new(&self.caller, path.map(|path| Parts::new(Method::DELETE, path, Naming::Nature)))
    }

    /// Another secret; those before sign beside it for `previous_secret_ttl`.
    pub fn rotate(&self, id: &str, body: &RotateEndpoint) -> Call<Endpoint> {
        Call::new(&self.caller, Self::posted(id, "/rotate").and_then(|parts| parts.body(body)))
    }

    /// Holds its notices back.
    pub fn pause(&self, id: &str) -> Call<Endpoint> {
        Call::new(&self.caller, Self::posted(id, "/pause"))
    }

    /// Lets them go again.
    pub fn resume(&self, id: &str) -> Call<Endpoint> {
        Call::new(&self.caller, Self::posted(id, "/resume"))
    }

    /// Tells it something now.
    pub fn test(&self, id: &str) -> Call<EndpointTest> {
        Call::new(&self.caller, Self::posted(id, "/test"))
    }

    /// Tells again what failed since then.
    pub fn recover(&self, id: &str, body: &Recover) -> Call<Recovery> {
        Call::new(&self.caller, Self::posted(id, "/recover").and_then(|parts| parts.body(body)))
    }

    /// A page of what is owed to it.
    pub fn notices(&self, id: &str, query: &NoticeQuery) -> Call<NoticePage> {
        let path = Self::path(id, "/notices");
        Call::new(&self.caller, path.and_then(|path| Parts::get(path).query(query)))
    }

    /// Tells one notice again.
    pub fn replay(&self, notice: &str) -> Call<Notice> {
        let parts = at(notice).map(|id| Parts::post(format!("/v1/notices/{id}/replay"), Naming::Mint));
        Call::new(&self.caller, parts)
    }
}

//! Test harness: requests that can be modified, and helpers for assertions.

use hmac::{Hmac, KeyInit as _, Mac as _};
use mailonce_core::{id::EmailId, time::Time};
use mailonce_mail::hooks::{
    self, HookEvent, HookMail, HookParseError, HookRejection, HookRequest, HookSecrets, Kind, ReportedStatus,
};
use serde_json::Value;
use sha2::Sha256;

/// Our email id, as providers return it.
pub(crate) const OUR_EMAIL_ID: &str = "01930a7c-5e1b-7cc0-8f3a-0123456789ab";

/// 2026-11-15T10:00:00Z.
pub(crate) const NOW: Time = Time(1_794_736_800_000);

pub(crate) const HARD_BOUNCE: ReportedStatus = ReportedStatus::Bounced { permanent: true };
pub(crate) const SOFT_BOUNCE: ReportedStatus = ReportedStatus::Bounced { permanent: false };

#[derive(Clone, Default)]
pub(crate) struct HookTestRequest {
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) query: String,
    pub(crate) body: Vec<u8>,
    pub(crate) certificate: Option<Vec<u8>>,
}

impl HookTestRequest {
    pub(crate) fn new(body: impl Into<Vec<u8>>) -> Self {
        Self { body: body.into(), ..Self::default() }
    }

    pub(crate) fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        let before = self.headers.len();
        self.headers.retain(|(header, _)| !header.eq_ignore_ascii_case(name));
        assert!(self.headers.len() < before, "there is no header {name}");
        self
    }

    /// The same request with another body under the same headers.
    pub(crate) fn with_body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// The same request with its headers in another case.
    pub(crate) fn with_uppercase_headers(mut self) -> Self {
        self.headers.iter_mut().for_each(|(name, _)| *name = name.to_ascii_uppercase());
        self
    }

    fn with_request<T>(&self, use_request: impl FnOnce(&HookRequest<'_>) -> T) -> T {
        let headers: Vec<_> = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        use_request(&HookRequest {
            headers: &headers,
            query: &self.query,
            body: &self.body,
            certificate: self.certificate.as_deref(),
            max_body_bytes: hooks::MAX_EVENT_BODY_BYTES,
        })
    }

    pub(crate) fn verify(&self, secrets: &HookSecrets, now: Time) -> Result<(), HookRejection> {
        self.with_request(|request| hooks::verify(secrets.kind(), secrets, request, now))
    }

    pub(crate) fn verify_as(&self, kind: Kind, secrets: &HookSecrets, now: Time) -> Result<(), HookRejection> {
        self.with_request(|request| hooks::verify(kind, secrets, request, now))
    }

    /// Parses the mail in the request.
    pub(crate) fn parse_mail(&self, kind: Kind) -> Result<Option<HookMail>, HookParseError> {
        self.with_request(|request| hooks::parse_mail(kind, request))
    }

    pub(crate) fn token(&self) -> Option<String> {
        self.with_request(hooks::mailgun::request_token)
    }

    pub(crate) fn parse_events(&self, kind: Kind) -> Result<Vec<HookEvent>, HookParseError> {
        self.with_request(|request| hooks::parse_events(kind, request))
    }
}

/// The only event of a body.
pub(crate) fn sole_event(kind: Kind, body: &Value) -> HookEvent {
    let mut events = HookTestRequest::new(body.to_string()).parse_events(kind).unwrap();
    assert_eq!(events.len(), 1, "{events:?}");
    events.remove(0)
}

pub(crate) fn our_email_id() -> Option<EmailId> {
    let id = OUR_EMAIL_ID.parse().ok();
    assert!(id.is_some());
    id
}

pub(crate) fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text);
    mac.finalize().into_bytes().to_vec()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// The same object with one field set.
pub(crate) fn with_field(body: &Value, pointer: &str, value: impl Into<Value>) -> Value {
    let mut body = body.clone();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    body.pointer_mut(parent).unwrap().as_object_mut().unwrap().insert(name.to_owned(), value.into());
    body
}

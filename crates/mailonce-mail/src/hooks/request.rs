//! A raw webhook request, and its size limits.

use mailonce_core::limits;

use super::HookRejection;

/// Maximum size of a body with events. The largest batches of providers are smaller.
pub const MAX_EVENT_BODY_BYTES: usize = 1 << 20;

/// Maximum size of a body with a mail.
pub const MAX_MAIL_BODY_BYTES: usize = limits::BODY_BYTES;

/// Maximum number of events in one request.
pub const MAX_EVENTS: usize = 1_000;

/// A webhook request. The body is raw, before any decoding.
#[derive(Clone, Copy, Debug)]
pub struct HookRequest<'a> {
    /// The headers: names in any case, values as bytes.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// The raw query string without the `?`. May be empty.
    pub query: &'a str,
    /// The body.
    pub body: &'a [u8],
    /// The PEM behind [`super::ses::SnsUrls::certificate_url`]. Only SES needs it.
    pub certificate: Option<&'a [u8]>,
    /// The body limit of the source: [`MAX_EVENT_BODY_BYTES`], or [`MAX_MAIL_BODY_BYTES`] if it delivers mail.
    pub max_body_bytes: usize,
}

impl<'a> HookRequest<'a> {
    /// A header's value. A duplicate header is rejected: two readers could see different values.
    pub(crate) fn header(&self, name: &'static str) -> Result<Option<&'a str>, HookRejection> {
        self.header_named(name).map_err(|why| HookRejection::Malformed(format!("header {name} {why}")))
    }

    /// The value of a required header.
    pub(crate) fn required_header(&self, name: &'static str) -> Result<&'a str, HookRejection> {
        self.header(name)?.ok_or(HookRejection::MissingHeader(name))
    }

    /// A header whose name comes from a source's configuration.
    pub(crate) fn header_named(&self, name: &str) -> Result<Option<&'a str>, &'static str> {
        let mut values = self.headers.iter().filter(|(header, _)| header.eq_ignore_ascii_case(name));
        let Some((_, value)) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err("came twice");
        }
        match std::str::from_utf8(value) {
            Ok(text) => Ok(Some(text.trim())),
            Err(_) => Err("is not text"),
        }
    }

    /// A query parameter, without decoding. `None` if it occurs twice.
    pub(crate) fn query_parameter(&self, name: &str) -> Option<&'a str> {
        let mut values = self.query.split('&').filter_map(|pair| pair.split_once('=')).filter(|(key, _)| *key == name);
        let (_, value) = values.next()?;
        values.next().is_none().then_some(value)
    }
}

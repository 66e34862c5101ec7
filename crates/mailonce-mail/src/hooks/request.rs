//! A webhook request as it came in, and how much of it is looked at.

use mailonce_core::limits;

use super::HookRejection;

/// Bytes of a body with events. The largest batches of providers stay below.
pub const MAX_EVENT_BODY_BYTES: usize = 1 << 20;

/// Bytes of a body with a mail.
pub const MAX_MAIL_BODY_BYTES: usize = limits::BODY_BYTES;

/// Events in one request.
pub const MAX_EVENTS: usize = 1_000;

/// What came in. The body is the raw one, before any decoding.
#[derive(Clone, Copy, Debug)]
pub struct HookRequest<'a> {
    /// Names in any case, values as bytes.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// What follows the `?` of the address, as it came. May be empty.
    pub query: &'a str,
    /// The body.
    pub body: &'a [u8],
    /// The PEM behind [`super::ses::Needs::certificate_url`]. Only SES needs it.
    pub certificate: Option<&'a [u8]>,
    /// Bytes of body that this source may send: [`MAX_BODY_BYTES`], or [`MAX_MAIL_BYTES`] when it brings mail.
    pub max_body_bytes: usize,
}

impl<'a> HookRequest<'a> {
    /// A header's value. Twice the same header is refused: two readers could see two values.
    pub(crate) fn header(&self, name: &'static str) -> Result<Option<&'a str>, HookRejection> {
        self.header_named(name).map_err(|why| HookRejection::Malformed(format!("header {name} {why}")))
    }

    /// The same for a header that must be there.
    pub(crate) fn required_header(&self, name: &'static str) -> Result<&'a str, HookRejection> {
        self.header(name)?.ok_or(HookRejection::MissingHeader(name))
    }

    /// A header whose name comes from a source's configuration.
    pub(crate) fn header_named(&self, name: &str) -> Result<Option<&'a str>, &'static str> {
        let mut values = self.headers.iter().filter(|(given, _)| given.eq_ignore_ascii_case(name));
        let Some((_, value)) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err("came twice");
        }
        match std::str::from_utf8(value) {
            Ok(text) => Ok(Some(text.trim())),
            Err(_) => Err("is not text"),
        }
    }

    /// A parameter of the query, undecoded. Twice the same one is none.
    pub(crate) fn query_parameter(&self, name: &str) -> Option<&'a str> {
        let mut values = self.query.split('&').filter_map(|pair| pair.split_once('=')).filter(|(key, _)| *key == name);
        let (_, value) = values.next()?;
        values.next().is_none().then_some(value)
    }
}

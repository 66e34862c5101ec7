//! Formats the parts of a mail for the requests of providers.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::{
    address::NamedAddress,
    handoff::transport_request::{OutboundMail, UnsupportedMail},
    outbound::content::{Attachment, EmailContent, MetadataValue},
};
use serde::Serialize;
use std::{collections::BTreeMap, fmt::Write as _};

/// The header that carries our email id at providers without a better field.
pub(super) const ID_HEADER: &str = "X-Mailonce-Id";
/// The name of our correlation id at providers that accept named values.
pub(super) const ID_NAME: &str = "mailonce";

/// Formats one address with its display name, such as `Ada <ada@example.com>`.
pub(super) fn mailbox(of: &NamedAddress) -> String {
    let Some(name) = &of.name else { return of.address.clone() };
    let plain = |c: char| c.is_alphanumeric() || " !#$%&'*+-/=?^_`{|}~".contains(c);
    if name.chars().all(plain) {
        return format!("{name} <{}>", of.address);
    }
    format!("\"{}\" <{}>", name.replace('\\', "\\\\").replace('"', "\\\""), of.address)
}

/// Formats several addresses, one string each.
pub(super) fn mailboxes(of: &[NamedAddress]) -> Vec<String> {
    of.iter().map(mailbox).collect()
}

/// Formats several addresses as one comma-separated string. `None` when there are none.
pub(super) fn mailbox_list(of: &[NamedAddress]) -> Option<String> {
    (!of.is_empty()).then(|| mailboxes(of).join(", "))
}

/// An address and its display name as separate JSON fields.
#[derive(Serialize)]
pub(super) struct AddressObject<'a> {
    pub(super) email: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<&'a str>,
}

impl<'a> AddressObject<'a> {
    pub(super) fn from_mailbox(mailbox: &'a NamedAddress) -> Self {
        Self { email: &mailbox.address, name: mailbox.name.as_deref() }
    }

    pub(super) fn from_mailboxes(of: &'a [NamedAddress]) -> Vec<Self> {
        of.iter().map(Self::from_mailbox).collect()
    }
}

/// The custom headers and our own. Ours replace custom headers of the same name.
pub(super) fn headers<'a>(content: &'a EmailContent, ours: &[(&'a str, &'a str)]) -> BTreeMap<&'a str, &'a str> {
    let custom = content.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    custom.chain(ours.iter().copied()).collect()
}

/// Attachment bytes as base64.
pub(super) fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// An attachment's file name. Providers require one, so a missing name becomes `attachment-1` and so on.
pub(super) fn filename(index: usize, attachment: &Attachment) -> String {
    let own_name = attachment.filename.clone().filter(|name| !name.is_empty());
    own_name.unwrap_or_else(|| format!("attachment-{}", index + 1))
}

/// An attachment's media type; `application/octet-stream` if it has none.
pub(super) fn content_type(attachment: &Attachment) -> &str {
    attachment.content_type.as_deref().filter(|kind| !kind.is_empty()).unwrap_or("application/octet-stream")
}

/// An attachment's content id without its angle brackets.
pub(super) fn content_id(attachment: &Attachment) -> Option<&str> {
    let id = attachment.content_id.as_deref()?.trim();
    let id = id.strip_prefix('<').and_then(|id| id.strip_suffix('>')).unwrap_or(id);
    (!id.is_empty()).then_some(id)
}

/// Bytes of all attachments together.
pub(super) fn attachment_bytes(content: &EmailContent) -> usize {
    content.attachments.iter().map(|attachment| attachment.bytes.len()).sum()
}

/// A metadata value as text.
pub(super) fn scalar_text(value: &MetadataValue) -> String {
    match value {
        MetadataValue::Bool(truth) => truth.to_string(),
        MetadataValue::Integer(number) => number.to_string(),
        MetadataValue::Number(number) => number.to_string(),
        MetadataValue::Text(text) => text.clone(),
    }
}

/// The labels of a mail: tags without a value, and named values (tags with a value, metadata, our email id).
pub(super) struct MailLabels {
    pub(super) bare: Vec<String>,
    pub(super) named: BTreeMap<String, String>,
}

impl MailLabels {
    /// Collects all labels, with our email id under `id_name`. Fails if two values have the same name.
    pub(super) fn collect(mail: &OutboundMail<'_>, id_name: &str) -> Result<Self, UnsupportedMail> {
        let mut labels = Self { bare: Vec::new(), named: BTreeMap::new() };
        labels.named.insert(id_name.to_owned(), mail.id.to_string());
        for (name, value) in &mail.content.tags {
            match value {
                None => labels.bare.push(name.clone()),
                Some(value) => labels.add(name, value.clone())?,
            }
        }
        for (name, value) in &mail.content.metadata {
            labels.add(name, scalar_text(value))?;
        }
        Ok(labels)
    }

    fn add(&mut self, name: &str, value: String) -> Result<(), UnsupportedMail> {
        match self.named.insert(name.to_owned(), value) {
            None => Ok(()),
            Some(_) => Err(UnsupportedMail(format!(
                "tags, metadata and mailonce's own values use the name {name} twice; rename one"
            ))),
        }
    }
}

/// Rejects what exceeds a provider's limit.
pub(super) fn check_limit(what: &str, size: usize, limit: usize) -> Result<(), UnsupportedMail> {
    if size <= limit { Ok(()) } else { Err(UnsupportedMail(format!("{what}: {size}, the limit is {limit}"))) }
}

/// Serializes a request as JSON.
pub(super) fn to_json<T: Serialize>(body: &T) -> Result<Vec<u8>, UnsupportedMail> {
    serde_json::to_vec(body).map_err(|e| UnsupportedMail(format!("the mail cannot be serialized as JSON: {e}")))
}

/// The mail's RFC 5322 bytes. The engine composes them for transports with the payload format `Mime`.
pub(super) fn require_mime<'a>(mail: &OutboundMail<'a>) -> Result<&'a [u8], UnsupportedMail> {
    mail.mime.ok_or_else(|| UnsupportedMail("the mail was not composed".into()))
}

/// Lower-case hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

/// Whether a list is empty. For `skip_serializing_if`.
pub(super) fn none<T>(list: &[T]) -> bool {
    list.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_when_they_must_be() {
        let formatted = |name: Option<&str>| {
            mailbox(&NamedAddress { name: name.map(str::to_owned), address: "ada@example.com".into() })
        };
        assert_eq!(formatted(None), "ada@example.com");
        assert_eq!(formatted(Some("Ada Müller")), "Ada Müller <ada@example.com>");
        assert_eq!(formatted(Some("Lovelace, Ada")), "\"Lovelace, Ada\" <ada@example.com>");
        assert_eq!(formatted(Some("A \"B\" \\")), "\"A \\\"B\\\" \\\\\" <ada@example.com>");
        for name in ["Lovelace, Ada", "A \"B\"", "x <y@z>", "a@b"] {
            let read = NamedAddress::parse(&formatted(Some(name))).unwrap();
            assert_eq!(read.name.as_deref(), Some(name));
        }
    }
}

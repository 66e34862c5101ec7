//! How the parts of a mail are written in the requests of providers.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::{
    address::NamedAddress,
    handoff::transport_request::{OutboundMail, UnsupportedMail},
    outbound::content::{Attachment, EmailContent, MetadataValue},
};
use serde::Serialize;
use std::{collections::BTreeMap, fmt::Write as _};

/// The header by which a mail names itself where a provider has no better place.
pub(super) const ID_HEADER: &str = "X-Mailonce-Id";
/// The name of our correlation value where a provider takes named values.
pub(super) const ID_NAME: &str = "mailonce";

/// An address with its name as one text.
pub(super) fn mailbox(of: &NamedAddress) -> String {
    let Some(name) = &of.name else { return of.address.clone() };
    let plain = |c: char| c.is_alphanumeric() || " !#$%&'*+-/=?^_`{|}~".contains(c);
    if name.chars().all(plain) {
        return format!("{name} <{}>", of.address);
    }
    format!("\"{}\" <{}>", name.replace('\\', "\\\\").replace('"', "\\\""), of.address)
}

/// Several of them, one text each.
pub(super) fn mailboxes(of: &[NamedAddress]) -> Vec<String> {
    of.iter().map(mailbox).collect()
}

/// Several of them in one text, where a provider wants that. `None` when there are none.
pub(super) fn mailbox_list(of: &[NamedAddress]) -> Option<String> {
    (!of.is_empty()).then(|| mailboxes(of).join(", "))
}

/// An address and its name apart.
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

/// Custom headers and our own beside them.
pub(super) fn headers<'a>(content: &'a EmailContent, ours: &[(&'a str, &'a str)]) -> BTreeMap<&'a str, &'a str> {
    let theirs = content.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    theirs.chain(ours.iter().copied()).collect()
}

/// An attachment's bytes as they travel.
pub(super) fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// An attachment's name. Providers ask for one; without any it is numbered.
pub(super) fn filename(index: usize, attachment: &Attachment) -> String {
    let given = attachment.filename.clone().filter(|name| !name.is_empty());
    given.unwrap_or_else(|| format!("attachment-{}", index + 1))
}

/// An attachment's type.
pub(super) fn content_type(attachment: &Attachment) -> &str {
    attachment.content_type.as_deref().filter(|kind| !kind.is_empty()).unwrap_or("application/octet-stream")
}

/// A content id without its angle brackets.
pub(super) fn content_id(attachment: &Attachment) -> Option<&str> {
    let id = attachment.content_id.as_deref()?.trim();
    let id = id.strip_prefix('<').and_then(|id| id.strip_suffix('>')).unwrap_or(id);
    (!id.is_empty()).then_some(id)
}

/// Bytes of all attachments together.
pub(super) fn attachment_bytes(content: &EmailContent) -> usize {
    content.attachments.iter().map(|attachment| attachment.bytes.len()).sum()
}

/// A value of metadata as text.
pub(super) fn scalar_text(value: &MetadataValue) -> String {
    match value {
        MetadataValue::Bool(truth) => truth.to_string(),
        MetadataValue::Integer(number) => number.to_string(),
        MetadataValue::Number(number) => number.to_string(),
        MetadataValue::Text(text) => text.clone(),
    }
}

/// What a mail carries besides its words: bare labels, and named values (tags with a value, metadata, our id).
pub(super) struct MailLabels {
    pub(super) bare: Vec<String>,
    pub(super) named: BTreeMap<String, String>,
}

impl MailLabels {
    /// Everything, with the mail's id under `id_name`. A name that says two things cannot be passed on.
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
                "{name} is the name of two values, among tags, metadata and mailonce's own"
            ))),
        }
    }
}

/// Refuses what is too long for a provider.
pub(super) fn check_limit(what: &str, size: usize, most: usize) -> Result<(), UnsupportedMail> {
    if size <= most { Ok(()) } else { Err(UnsupportedMail(format!("{what}: {size}, and at most {most} are taken"))) }
}

/// The bytes of a request as JSON.
pub(super) fn to_json<T: Serialize>(body: &T) -> Result<Vec<u8>, UnsupportedMail> {
    serde_json::to_vec(body).map_err(|e| UnsupportedMail(format!("the mail cannot be written as JSON: {e}")))
}

/// The mail's RFC 5322 bytes, which the engine gives to transports that ask for them.
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

/// Skips an empty list when a request is written.
pub(super) fn none<T>(list: &[T]) -> bool {
    list.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_when_they_must_be() {
        let shown = |name: Option<&str>| {
            mailbox(&NamedAddress { name: name.map(str::to_owned), address: "ada@example.com".into() })
        };
        assert_eq!(shown(None), "ada@example.com");
        assert_eq!(shown(Some("Ada Müller")), "Ada Müller <ada@example.com>");
        assert_eq!(shown(Some("Lovelace, Ada")), "\"Lovelace, Ada\" <ada@example.com>");
        assert_eq!(shown(Some("A \"B\" \\")), "\"A \\\"B\\\" \\\\\" <ada@example.com>");
        for name in ["Lovelace, Ada", "A \"B\"", "x <y@z>", "a@b"] {
            let read = NamedAddress::parse(&shown(Some(name))).unwrap();
            assert_eq!(read.name.as_deref(), Some(name));
        }
    }
}

//! Rebuilds a mail from the fields that a provider parsed out of it.
//!
//! The result has the content of the mail but not its original bytes, so DKIM signatures cannot be verified. Unusual
//! values are not rejected: control characters, which could inject a header, become spaces.

use mailonce_core::{
    address::NamedAddress,
    outbound::content::{Attachment, EmailContent},
};
use std::collections::BTreeMap;

use super::{ComposeError, MAX_HEADER_WORD_OCTETS, part};
use crate::compose::{header_writer::HeaderWriter, headers};

/// The fields that a provider parsed out of a mail.
#[derive(Clone, Debug, Default)]
pub struct ProviderFields {
    /// The original headers. They take precedence over the fields below.
    pub headers: Vec<(String, String)>,
    /// From.
    pub from: Vec<NamedAddress>,
    /// To.
    pub to: Vec<NamedAddress>,
    /// Cc.
    pub cc: Vec<NamedAddress>,
    /// Reply-To.
    pub reply_to: Vec<NamedAddress>,
    /// The subject, decoded.
    pub subject: Option<String>,
    /// The original Date.
    pub date: Option<String>,
    /// The original Message-ID.
    pub message_id: Option<String>,
    /// The plain text body.
    pub text: Option<String>,
    /// The HTML body.
    pub html: Option<String>,
    /// The attachments.
    pub attachments: Vec<Attachment>,
}

/// Rebuilds the mail. The MIME boundaries are derived from `seed`, so the same mail gives the same bytes.
pub fn rebuild_mail(mut fields: ProviderFields, seed: &str) -> Result<Vec<u8>, ComposeError> {
    let mut out = Vec::with_capacity(4_096);
    for (name, value) in &fields.headers {
        if is_header_name(name) && !is_mime_header(name) {
            write_raw_header(&mut out, name, value);
        }
    }
    let has = |name: &str| fields.headers.iter().any(|(header, _)| header.eq_ignore_ascii_case(name));
    for (name, mailboxes) in
        [("From", &fields.from), ("To", &fields.to), ("Cc", &fields.cc), ("Reply-To", &fields.reply_to)]
    {
        if !has(name) {
            headers::write_provider_mailboxes(&mut out, name, mailboxes);
        }
    }
    if let Some(subject) = fields.subject.as_deref().filter(|_| !has("Subject")) {
        HeaderWriter::write_text(&mut out, "Subject", &one_line(subject));
    }
    for (name, value) in [("Date", &fields.date), ("Message-ID", &fields.message_id)] {
        if let Some(value) = value.as_deref().filter(|_| !has(name)) {
            write_raw_header(&mut out, name, value);
        }
    }
    HeaderWriter::write_text(&mut out, "MIME-Version", "1.0");
    let content = take_content(&mut fields);
    let root = part::build_parts(&content, seed)?;
    out.reserve(root.estimated_octets());
    root.write(&mut out);
    Ok(out)
}

/// Whether the header describes MIME parts. The parts are rebuilt, so these headers are written anew.
fn is_mime_header(name: &str) -> bool {
    name.eq_ignore_ascii_case("mime-version")
        || name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("content-"))
}

fn is_header_name(name: &str) -> bool {
    (1..=200).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic() && b != b':')
}

/// Writes a raw header value, including its encoded words, with new folding.
fn write_raw_header(out: &mut Vec<u8>, name: &str, value: &str) {
    let value = one_line(value);
    HeaderWriter::write_words(out, name, value.split_whitespace());
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The bodies and attachments, cleaned of what `compose` would reject.
fn take_content(fields: &mut ProviderFields) -> EmailContent {
    let body = |text: Option<String>| text.filter(|text| !text.is_empty()).map(|text| text.replace('\0', "\u{fffd}"));
    let mut attachments = std::mem::take(&mut fields.attachments);
    for attachment in &mut attachments {
        let words = [&mut attachment.filename, &mut attachment.content_type, &mut attachment.content_id];
        for word in words.into_iter().flatten() {
            *word = one_line(word);
        }
        // Percent-encoding can triple its length.
        if attachment.content_id.as_ref().is_some_and(|id| id.len() > MAX_HEADER_WORD_OCTETS / 3) {
            attachment.content_id = None;
        }
    }
    EmailContent {
        from: NamedAddress { name: None, address: String::new() },
        to: Vec::new(),
        cc: Vec::new(),
        bcc: Vec::new(),
        reply_to: Vec::new(),
        subject: String::new(),
        text: body(fields.text.take()),
        html: body(fields.html.take()),
        headers: Vec::new(),
        attachments,
        tags: BTreeMap::new(),
        metadata: BTreeMap::new(),
        scheduled_at: None,
        template: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    fn person(name: &str, address: &str) -> NamedAddress {
        NamedAddress { name: Some(name.into()), address: address.into() }
    }

    #[test]
    fn the_fields_survive_a_round_trip() {
        let fields = ProviderFields {
            headers: vec![("Message-ID".into(), "<1@shop.test>".into()), ("References".into(), "<0@shop.test>".into())],
            from: vec![person("Zoë, of the shop", "zoe@shop.test")],
            to: vec![person("", "a@agents.test"), person("B", "b@agents.test")],
            subject: Some("Grüße =?utf-8?Q?x?=".into()),
            text: Some("Plain ünd simple\r\nSecond".into()),
            html: Some("<p>Rich</p>".into()),
            attachments: vec![Attachment {
                filename: Some("a\r\nb.txt".into()),
                content_type: Some("text/plain".into()),
                content_id: None,
                bytes: b"file".to_vec(),
            }],
            ..ProviderFields::default()
        };
        let parsed = parse::parse(&rebuild_mail(fields, "seed").unwrap());
        assert_eq!(parsed.message_id.as_deref(), Some("<1@shop.test>"));
        assert_eq!(parsed.from, [person("Zoë, of the shop", "zoe@shop.test")]);
        assert_eq!(parsed.to.len(), 2);
        assert_eq!(parsed.subject, "Grüße =?utf-8?Q?x?=", "a decoded subject is not decoded again");
        assert_eq!(parsed.text.as_deref().map(str::trim_end), Some("Plain ünd simple\nSecond"));
        assert!(parsed.html.is_some_and(|html| html.contains("Rich")));
        assert_eq!(parsed.attachments.len(), 1);
    }

    #[test]
    fn a_value_cannot_inject_a_header() {
        let fields = ProviderFields {
            headers: vec![
                ("X-One".into(), "a\r\nBcc: b@c.test\r\n\r\nbody".into()),
                ("Bad Name".into(), "x".into()),
                ("Content-Type".into(), "text/html".into()),
            ],
            from: vec![person("x\r\nX-Two: y", "a@b.test>\r\nX-Three: z")],
            subject: Some("s\r\nX-Four: y".into()),
            text: Some("nul \0".into()),
            ..ProviderFields::default()
        };
        let bytes = String::from_utf8(rebuild_mail(fields, "seed").unwrap()).unwrap();
        let (head, _) = bytes.split_once("\r\n\r\n").unwrap();
        let names: Vec<&str> =
            head.lines().filter(|line| !line.starts_with(' ')).filter_map(|l| l.split(':').next()).collect();
        assert_eq!(names, ["X-One", "From", "Subject", "MIME-Version", "Content-Type", "Content-Transfer-Encoding"]);
    }
}

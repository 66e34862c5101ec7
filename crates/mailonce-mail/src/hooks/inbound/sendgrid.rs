//! SendGrid Inbound Parse: one form per mail, with the raw mail in `email` if raw posts are enabled.

use mail_parser::decoders::charsets::map::charset_decoder;
use mailonce_core::outbound::content::Attachment;
use serde_json::Value;

use super::{
    HookMail, MailBytes,
    form::{FormField, HookForm},
    hash_key, non_empty,
};
use crate::hooks::inbound::mailboxes;
use crate::{
    compose::ProviderFields,
    hooks::{HookParseError, HookRequest, json},
};

pub(crate) fn parse_mail(request: &HookRequest<'_>) -> Result<Option<HookMail>, HookParseError> {
    let Some(form) = HookForm::from_request(request)? else { return Ok(None) };
    let envelope = form.field("envelope").ok_or(HookParseError::Unexpected("a form with envelope"))?;
    let envelope = json::parse(&envelope.bytes)?;
    let dedupe_key = hash_key(form.0.iter().flat_map(|field| [field.name.as_bytes(), &field.bytes]));
    let content = match form.field("email") {
        Some(raw) => MailBytes::original(raw.bytes.to_vec()),
        None => MailBytes::rebuild(SendGridForm::new(&form).provider_fields(), &dedupe_key)?,
    };
    Ok(Some(HookMail {
        dedupe_key,
        envelope_sender: envelope.pointer("/from").and_then(Value::as_str).map(str::to_owned),
        recipients: mailboxes::addresses([&mailboxes::from_json(envelope.pointer("/to"))]),
        has_envelope_recipients: true,
        content: Some(content),
        location: None,
    }))
}

/// A form, with its JSON fields that describe the other fields.
struct SendGridForm<'a> {
    form: &'a HookForm<'a>,
    charsets: Value,
    attachment_info: Value,
}

impl<'a> SendGridForm<'a> {
    fn new(form: &'a HookForm<'a>) -> Self {
        let json = |name: &str| form.field(name).and_then(|field| json::parse(&field.bytes).ok()).unwrap_or_default();
        Self { form, charsets: json("charsets"), attachment_info: json("attachment-info") }
    }

    /// A field's text, decoded from the charset of the mail.
    fn text(&self, name: &str) -> Option<String> {
        let field = self.form.field(name)?;
        let charset = self.charsets.get(name).and_then(Value::as_str).unwrap_or("utf-8");
        let decoder = charset_decoder(charset.as_bytes()).filter(|_| std::str::from_utf8(&field.bytes).is_err());
        let text =
            decoder.map_or_else(|| String::from_utf8_lossy(&field.bytes).into_owned(), |decode| decode(&field.bytes));
        non_empty(Some(&text))
    }

    fn provider_fields(&self) -> ProviderFields {
        let mailboxes_of = |name: &str| self.text(name).map(|text| mailboxes::from_header(&text)).unwrap_or_default();
        let headers = self.text("headers").unwrap_or_default();
        ProviderFields {
            headers: unfold_headers(&headers),
            from: mailboxes_of("from"),
            to: mailboxes_of("to"),
            cc: mailboxes_of("cc"),
            subject: self.text("subject"),
            text: self.text("text"),
            html: self.text("html"),
            attachments: self.form.0.iter().filter_map(|field| self.attachment(field)).collect(),
            ..ProviderFields::default()
        }
    }

    fn attachment(&self, field: &FormField<'_>) -> Option<Attachment> {
        field.name.strip_prefix("attachment")?.parse::<u32>().ok()?;
        let info = self.attachment_info.get(&field.name).cloned().unwrap_or_default();
        let info_text = |pointers: &[&str]| non_empty(json::first_str_at(&info, pointers));
        Some(Attachment {
            filename: info_text(&["/filename", "/name"]).or_else(|| field.filename.clone()),
            content_type: info_text(&["/type"]).or_else(|| field.content_type.clone()),
            content_id: info_text(&["/content-id"]),
            bytes: field.bytes.to_vec(),
        })
    }
}

/// Unfolds header lines into names and values.
fn unfold_headers(text: &str) -> Vec<(String, String)> {
    let mut headers: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = headers.last_mut() {
                value.push_str(line);
            }
        } else if let Some((name, value)) = line.split_once(':') {
            headers.push((name.trim().to_owned(), value.trim().to_owned()));
        }
    }
    headers
}

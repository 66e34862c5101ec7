//! SendGrid's Inbound Parse: a form for each mail, with the whole mail in `email` when raw posts are switched on.

use mail_parser::decoders::charsets::map::charset_decoder;
use mailonce_core::content::Attachment;
use serde_json::Value;

use super::{
    Bytes, Mail, filled,
    form::{Form, FormField},
    hashed, people,
};
use crate::{
    compose::Fields,
    hook::{HookRequest, Unreadable, json},
};

pub(super) fn read(request: &HookRequest<'_>) -> Result<Option<Mail>, Unreadable> {
    let Some(form) = Form::read(request)? else { return Ok(None) };
    let envelope = form.field("envelope").ok_or(Unreadable::Shape("a form with envelope"))?;
    let envelope = json::parse(&envelope.bytes)?;
    let name = hashed(form.0.iter().flat_map(|field| [field.name.as_bytes(), &field.bytes]));
    let content = match form.field("email") {
        Some(raw) => Bytes::whole(raw.bytes.to_vec()),
        None => Bytes::rebuilt(Read::of(&form).fields(), &name)?,
    };
    Ok(Some(Mail {
        name,
        sender: envelope.pointer("/from").and_then(Value::as_str).map(str::to_owned),
        recipients: people::addresses([&people::list(envelope.pointer("/to"))]),
        envelope: true,
        content: Some(content),
        notice: None,
    }))
}

/// A form and what its JSON fields say about the others.
struct Read<'a> {
    form: &'a Form<'a>,
    charsets: Value,
    about: Value,
}

impl<'a> Read<'a> {
    fn of(form: &'a Form<'a>) -> Self {
        let json = |name: &str| form.field(name).and_then(|field| json::parse(&field.bytes).ok()).unwrap_or_default();
        Self { form, charsets: json("charsets"), about: json("attachment-info") }
    }

    /// A field's text in the charset that the mail had.
    fn text(&self, name: &str) -> Option<String> {
        let field = self.form.field(name)?;
        let charset = self.charsets.get(name).and_then(Value::as_str).unwrap_or("utf-8");
        let decoder = charset_decoder(charset.as_bytes()).filter(|_| std::str::from_utf8(&field.bytes).is_err());
        let text =
            decoder.map_or_else(|| String::from_utf8_lossy(&field.bytes).into_owned(), |read| read(&field.bytes));
        filled(Some(&text))
    }

    fn fields(&self) -> Fields {
        let listed = |name: &str| self.text(name).map(|text| people::in_header(&text)).unwrap_or_default();
        let headers = self.text("headers").unwrap_or_default();
        Fields {
            headers: unfolded(&headers),
            from: listed("from"),
            to: listed("to"),
            cc: listed("cc"),
            subject: self.text("subject"),
            text: self.text("text"),
            html: self.text("html"),
            attachments: self.form.0.iter().filter_map(|field| self.attachment(field)).collect(),
            ..Fields::default()
        }
    }

    fn attachment(&self, field: &FormField<'_>) -> Option<Attachment> {
        field.name.strip_prefix("attachment")?.parse::<u32>().ok()?;
        let about = self.about.get(&field.name).cloned().unwrap_or_default();
        let told = |at: &[&str]| filled(json::first_text(&about, at));
        Some(Attachment {
            filename: told(&["/filename", "/name"]).or_else(|| field.filename.clone()),
            content_type: told(&["/type"]).or_else(|| field.content_type.clone()),
            content_id: told(&["/content-id"]),
            bytes: field.bytes.to_vec(),
        })
    }
}

/// Header lines as names and values.
fn unfolded(text: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = found.last_mut() {
                value.push_str(line);
            }
        } else if let Some((name, value)) = line.split_once(':') {
            found.push((name.trim().to_owned(), value.trim().to_owned()));
        }
    }
    found
}

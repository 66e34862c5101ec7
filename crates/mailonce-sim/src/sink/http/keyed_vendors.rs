//! Vendors with idempotency keys: Resend, useSend, Brevo, and a custom one like Loops.

use serde::Deserialize;
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};

use super::{API_KEY, DOMAIN, Vendor, VendorRequest, VendorResponse};
use crate::sink::http::vendor_ledger::{VendorLedger, VendorMail, sha256_hex};

const ONE_DAY: Duration = Duration::from_hours(24);
const BREVO_WINDOW: Duration = Duration::from_mins(30);

type KeyedVendorResult = Result<VendorResponse, VendorResponse>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResendEmail {
    from: String,
    to: Vec<String>,
    #[serde(default)]
    cc: Vec<String>,
    #[serde(default)]
    bcc: Vec<String>,
    #[serde(default, rename = "reply_to")]
    _reply_to: Vec<String>,
    #[serde(rename = "subject")]
    _subject: String,
    text: Option<String>,
    html: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    attachments: Vec<ResendFile>,
    #[serde(default)]
    tags: Vec<ResendTag>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResendFile {
    #[serde(rename = "filename")]
    _filename: String,
    content: String,
    #[serde(rename = "content_type")]
    _content_type: Option<String>,
    #[serde(rename = "content_id")]
    _content_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResendTag {
    name: String,
    value: String,
}

pub(super) fn resend_send(ledger: &mut VendorLedger, request: &VendorRequest) -> KeyedVendorResult {
    let no = |status, name: &str, message: &str| Vendor::Resend.error_response(status, name, message);
    check_bearer(request).map_err(|()| no(401, "missing_api_key", "Missing API key in the authorization header."))?;
    let email: ResendEmail = parse_json_body(request).map_err(|why| no(422, "missing_required_field", &why))?;
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if email.tags.iter().any(|tag| !plain(&tag.name) || !plain(&tag.value)) {
        return Err(no(
            422,
            "validation_error",
            "Tags should only contain ASCII letters, numbers, underscores, or dashes.",
        ));
    }
    if email.to.is_empty() || !email.from.contains('@') || (email.text.is_none() && email.html.is_none()) {
        return Err(no(422, "missing_required_field", "The request body is missing one or more required fields."));
    }
    if email.attachments.iter().any(|file| decode_base64(&file.content).is_none()) {
        return Err(no(422, "invalid_attachment", "Attachment must have either a `content` or `path`."));
    }
    let key = Some(request.header("idempotency-key").to_owned()).filter(|key| !key.is_empty());
    if let Some(known) = key.as_deref().and_then(|key| ledger.known_key(Vendor::Resend, key, ONE_DAY)) {
        if known.body_hash != sha256_hex(&request.body) {
            let message = "Same idempotency key used with a different request payload.";
            return Err(no(409, "invalid_idempotent_request", message));
        }
        return Ok(VendorResponse::json(200, &json!({"id": known.id})));
    }
    let correlation = email.tags.iter().find(|tag| tag.name == "mailonce").map(|tag| tag.value.clone());
    let message_id = email.headers.get("Message-ID").cloned();
    let recipients = bare_addresses([&email.to, &email.cc, &email.bcc]);
    let id = ledger.accept(Vendor::Resend, VendorMail { key, message_id, correlation, recipients }, &request.body);
    Ok(VendorResponse::json(200, &json!({"id": id})))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UseSendEmail {
    from: String,
    to: Value,
    #[serde(default)]
    cc: Vec<String>,
    #[serde(default)]
    bcc: Vec<String>,
    subject: String,
    text: Option<String>,
    html: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    attachments: Vec<UseSendFile>,
    in_reply_to_id: Option<String>,
}

#[derive(Deserialize)]
struct UseSendFile {
    filename: String,
    content: String,
}

/// Schema, then key, then the sender's domain: the order of the vendor's own code.
pub(super) fn usesend_send(ledger: &mut VendorLedger, request: &VendorRequest) -> KeyedVendorResult {
    let no = |status, code: &str, message: &str| Vendor::UseSend.error_response(status, code, message);
    check_bearer(request).map_err(|()| no(403, "FORBIDDEN", "Invalid API token"))?;
    let zod = |why: String| {
        VendorResponse::json(400, &json!({"success": false, "error": {"issues": [why], "name": "ZodError"}}))
    };
    let email: UseSendEmail = parse_json_body(request).map_err(zod)?;
    let to: Vec<String> = match &email.to {
        Value::String(one) => vec![one.clone()],
        Value::Array(many) => many.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => return Err(zod("to".into())),
    };
    let filled = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    let files_fit =
        email.attachments.iter().all(|file| !file.filename.is_empty() && decode_base64(&file.content).is_some());
    let shaped = !to.is_empty() && !email.subject.is_empty() && (filled(&email.text) || filled(&email.html));
    if !shaped || !files_fit || email.attachments.len() > 10 || email.headers.values().any(String::is_empty) {
        return Err(zod("shape".into()));
    }
    let key = Some(request.header("idempotency-key").to_owned()).filter(|key| !key.is_empty());
    if let Some(known) = key.as_deref().and_then(|key| ledger.known_key(Vendor::UseSend, key, ONE_DAY)) {
        if known.body_hash != sha256_hex(&request.body) {
            return Err(no(409, "NOT_UNIQUE", "Idempotency-Key already used with a different payload"));
        }
        return Ok(VendorResponse::json(200, &json!({"emailId": known.id})));
    }
    let domain = email.from.trim_end_matches('>').rsplit_once('@').map_or("", |(_, domain)| domain);
    if domain != DOMAIN {
        let text = format!("Domain: {domain} of from email is wrong. Use the domain verified by useSend");
        return Err(no(400, "BAD_REQUEST", &text));
    }
    if email.in_reply_to_id.is_some() {
        return Err(no(400, "BAD_REQUEST", "\"inReplyTo\" is invalid"));
    }
    let correlation = email.headers.get("X-Mailonce-Id").cloned();
    let recipients = bare_addresses([&to, &email.cc, &email.bcc]);
    let id =
        ledger.accept(Vendor::UseSend, VendorMail { key, message_id: None, correlation, recipients }, &request.body);
    Ok(VendorResponse::json(200, &json!({"emailId": id})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BrevoAddress {
    email: String,
    #[serde(rename = "name")]
    _name: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct BrevoEmail {
    sender: BrevoAddress,
    to: Vec<BrevoAddress>,
    #[serde(default)]
    cc: Vec<BrevoAddress>,
    #[serde(default)]
    bcc: Vec<BrevoAddress>,
    #[serde(rename = "replyTo")]
    _reply_to: Option<BrevoAddress>,
    subject: String,
    text_content: Option<String>,
    html_content: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    attachment: Vec<BrevoFile>,
    #[serde(default, rename = "tags")]
    _tags: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BrevoFile {
    #[serde(rename = "name")]
    _name: String,
    content: String,
}

pub(super) fn brevo_send(ledger: &mut VendorLedger, request: &VendorRequest) -> KeyedVendorResult {
    let no = |status, code: &str, message: &str| Vendor::Brevo.error_response(status, code, message);
    if request.header("api-key") != API_KEY {
        return Err(no(401, "unauthorized", "Key not found"));
    }
    let email: BrevoEmail = parse_json_body(request).map_err(|why| no(400, "invalid_parameter", &why))?;
    let shaped = email.sender.email.contains('@') && !email.to.is_empty() && !email.subject.is_empty();
    if !shaped || (email.text_content.is_none() && email.html_content.is_none()) {
        return Err(no(400, "missing_parameter", "a required parameter is missing"));
    }
    if email.attachment.iter().any(|file| decode_base64(&file.content).is_none()) {
        return Err(no(400, "invalid_parameter", "attachment content is not valid"));
    }
    let key = email.headers.get("idempotencyKey").cloned();
    if key.as_deref().is_some_and(|key| ledger.known_key(Vendor::Brevo, key, BREVO_WINDOW).is_some()) {
        return Err(no(400, "duplicate_parameter", "A request with the same idempotencyKey was processed"));
    }
    let recipients = email.to.iter().chain(&email.cc).chain(&email.bcc).map(|person| person.email.clone()).collect();
    let correlation = email.headers.get("X-Mailonce-Id").cloned();
    let id = ledger.accept(Vendor::Brevo, VendorMail { key, message_id: None, correlation, recipients }, &request.body);
    Ok(VendorResponse::json(201, &json!({"messageId": format!("<{id}@smtp-relay.mailin.fr>")})))
}

/// Accepts any JSON object and refuses a repeat with 409, as Loops does.
pub(super) fn custom_send(ledger: &mut VendorLedger, request: &VendorRequest) -> KeyedVendorResult {
    check_bearer(request).map_err(|()| Vendor::Other.error_response(401, "", "unauthorized"))?;
    let body: Value = parse_json_body(request).map_err(|why| Vendor::Other.error_response(400, "", &why))?;
    let key = Some(request.header("idempotency-key").to_owned()).filter(|key| !key.is_empty());
    if key.as_deref().is_some_and(|key| ledger.known_key(Vendor::Other, key, ONE_DAY).is_some()) {
        return Err(Vendor::Other.error_response(409, "", "Idempotency key has been used"));
    }
    let recipients = body["to"].as_array().into_iter().flatten().filter_map(Value::as_str).map(bare_address).collect();
    let correlation = body["id"].as_str().map(str::to_owned);
    let id = ledger.accept(Vendor::Other, VendorMail { key, message_id: None, correlation, recipients }, &request.body);
    Ok(VendorResponse::json(200, &json!({"data": {"id": id}})))
}

fn check_bearer(request: &VendorRequest) -> Result<(), ()> {
    if request.header("authorization") == format!("Bearer {API_KEY}") { Ok(()) } else { Err(()) }
}

/// Parses the body as JSON of the expected form.
pub(super) fn parse_json_body<'a, T: Deserialize<'a>>(request: &'a VendorRequest) -> Result<T, String> {
    if request.header("content-type") != "application/json" {
        return Err("Content-Type must be application/json".into());
    }
    serde_json::from_slice(&request.body).map_err(|e| e.to_string())
}

/// Non-empty base64.
pub(super) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    STANDARD.decode(text).ok().filter(|bytes| !bytes.is_empty())
}

fn bare_addresses(lists: [&Vec<String>; 3]) -> Vec<String> {
    lists.into_iter().flatten().map(|text| bare_address(text)).collect()
}

/// The address of `Name <address>`.
pub(super) fn bare_address(text: &str) -> String {
    text.trim_end_matches('>').rsplit('<').next().unwrap_or_default().trim().to_owned()
}

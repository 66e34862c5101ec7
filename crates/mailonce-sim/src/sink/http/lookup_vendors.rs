//! Vendors without idempotency keys that can be searched: Postmark, Mailgun, SendGrid.

use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

use super::{API_KEY, Vendor, VendorRequest, VendorResponse};
use crate::sink::http::{
    keyed_vendors::{bare_address, decode_base64, parse_json_body},
    vendor_ledger::{VendorLedger, VendorMail},
};

type LookupVendorResult = Result<VendorResponse, VendorResponse>;

/// The decoded value of a query parameter.
fn query_parameter(request: &VendorRequest, name: &str) -> Option<String> {
    request
        .query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .find(|(known, _)| *known == name)
        .map(|(_, v)| percent_decode(v))
}

fn percent_decode(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&first, after)) = rest.split_first() {
        let code = (first == b'%').then(|| after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok())).flatten();
        let byte = code.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct PostmarkEmail {
    from: String,
    to: String,
    cc: Option<String>,
    bcc: Option<String>,
    #[serde(rename = "ReplyTo")]
    _reply_to: Option<String>,
    #[serde(rename = "Subject")]
    _subject: Option<String>,
    text_body: Option<String>,
    html_body: Option<String>,
    #[serde(rename = "Tag")]
    _tag: Option<String>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    #[serde(default)]
    headers: Vec<PostmarkHeader>,
    #[serde(default)]
    attachments: Vec<PostmarkFile>,
    #[serde(rename = "MessageStream")]
    _message_stream: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct PostmarkHeader {
    name: String,
    value: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct PostmarkFile {
    #[serde(rename = "Name")]
    _name: String,
    content: String,
    #[serde(rename = "ContentType")]
    _content_type: String,
    #[serde(rename = "ContentID")]
    content_id: Option<String>,
}

/// The addresses of a list. A comma inside a quoted name does not separate.
fn split_addresses(list: &str) -> Vec<&str> {
    let mut quoted = false;
    let comma = |c: char| {
        quoted ^= c == '"';
        c == ',' && !quoted
    };
    list.split(comma).collect()
}

fn check_postmark_token(request: &VendorRequest) -> Result<(), VendorResponse> {
    if request.header("x-postmark-server-token") == API_KEY && request.header("accept") == "application/json" {
        return Ok(());
    }
    Err(Vendor::Postmark.error_response(
        401,
        "10",
        "No Account or Server API tokens were supplied in the HTTP headers.",
    ))
}

pub(super) fn postmark_send(ledger: &mut VendorLedger, request: &VendorRequest) -> LookupVendorResult {
    check_postmark_token(request)?;
    let no = |code: &str, message: &str| Vendor::Postmark.error_response(422, code, message);
    let email: PostmarkEmail = parse_json_body(request).map_err(|why| no("402", &why))?;
    let limits = email.metadata.iter().all(|(name, value)| name.len() <= 20 && value.len() <= 80);
    if !email.from.contains('@') || !limits || (email.text_body.is_none() && email.html_body.is_none()) {
        return Err(no("300", "Invalid email request"));
    }
    let files = |file: &PostmarkFile| {
        decode_base64(&file.content).is_some() && file.content_id.as_ref().is_none_or(|id| id.starts_with("cid:"))
    };
    if !email.attachments.iter().all(files) {
        return Err(no("300", "Invalid attachment"));
    }
    let header = |name: &str| email.headers.iter().find(|header| header.name == name).map(|h| h.value.clone());
    let kept = header("X-PM-KeepID").as_deref() == Some("true");
    let lists = [Some(&email.to), email.cc.as_ref(), email.bcc.as_ref()];
    let recipients = lists.into_iter().flatten().flat_map(|list| split_addresses(list)).map(bare_address).collect();
    let read = VendorMail {
        key: None,
        message_id: header("Message-ID").filter(|_| kept),
        correlation: email.metadata.get("mailonce").cloned(),
        recipients,
    };
    let id = ledger.accept(Vendor::Postmark, read, &request.body);
    Ok(VendorResponse::json(
        200,
        &json!({"To": email.to, "SubmittedAt": "2026-11-15T04:00:00.0000000-05:00", "MessageID": id, "ErrorCode": 0,
            "Message": "OK"}),
    ))
}

pub(super) fn postmark_search(ledger: &mut VendorLedger, request: &VendorRequest) -> LookupVendorResult {
    check_postmark_token(request)?;
    if query_parameter(request, "count").is_none() || query_parameter(request, "offset").is_none() {
        return Err(Vendor::Postmark.error_response(422, "700", "Parameters 'count' and 'offset' are required."));
    }
    let (wanted, to) = (query_parameter(request, "metadata_mailonce"), query_parameter(request, "recipient"));
    let matches = ledger.found_by_lookup(Vendor::Postmark).filter(|taken| {
        (wanted.is_none() || wanted == taken.correlation) && to.as_ref().is_none_or(|to| taken.recipients.contains(to))
    });
    let mails: Vec<Value> = matches
        .map(|taken| json!({"MessageID": taken.id, "Status": "Sent", "Metadata": {"mailonce": taken.correlation}}))
        .collect();
    Ok(VendorResponse::json(200, &json!({"TotalCount": mails.len(), "Messages": mails})))
}

fn check_mailgun_key(request: &VendorRequest) -> Result<(), VendorResponse> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let expected = format!("Basic {}", STANDARD.encode(format!("api:{API_KEY}")));
    if request.header("authorization") == expected { Ok(()) } else { Err(Vendor::Mailgun.error_response(401, "", "")) }
}

/// The parts of a form: name, whether it is a file, and content.
fn form_parts(request: &VendorRequest) -> Option<Vec<(String, bool, Vec<u8>)>> {
    let boundary = request.header("content-type").strip_prefix("multipart/form-data; boundary=")?;
    let text = String::from_utf8(request.body.to_vec()).ok()?;
    let inner = text.strip_prefix(&format!("--{boundary}\r\n"))?.strip_suffix(&format!("\r\n--{boundary}--\r\n"))?;
    let one = |part: &str| {
        let (head, body) = part.split_once("\r\n\r\n")?;
        let name = head.split_once("name=\"")?.1.split('"').next()?;
        Some((name.to_owned(), head.contains("filename=\""), body.as_bytes().to_vec()))
    };
    inner.split(&format!("\r\n--{boundary}\r\n")).map(one).collect()
}

pub(super) fn mailgun_send(ledger: &mut VendorLedger, request: &VendorRequest) -> LookupVendorResult {
    check_mailgun_key(request)?;
    let no = |message: &str| Vendor::Mailgun.error_response(400, "", message);
    let parts = form_parts(request).ok_or_else(|| no("the form cannot be read"))?;
    let field = |name: &str| {
        let part = parts.iter().find(|(known, file, _)| known == name && !file);
        part.map(|(_, _, body)| String::from_utf8_lossy(body).into_owned())
    };
    let to = field("to").ok_or_else(|| no("to parameter is missing"))?;
    let mail = parts.iter().find(|(name, file, _)| name == "message" && *file);
    let mail = mail.ok_or_else(|| no("message parameter is missing"))?;
    let head = String::from_utf8_lossy(&mail.2).into_owned();
    let message_id = head.lines().find_map(|line| line.strip_prefix("Message-ID: ")).map(str::to_owned);
    let recipients = to.split(',').map(str::to_owned).collect();
    let read = VendorMail { key: None, message_id: message_id.clone(), correlation: field("v:mailonce"), recipients };
    ledger.accept(Vendor::Mailgun, read, &request.body);
    Ok(VendorResponse::json(200, &json!({"id": message_id, "message": "Queued. Thank you."})))
}

pub(super) fn mailgun_events(ledger: &mut VendorLedger, request: &VendorRequest) -> LookupVendorResult {
    check_mailgun_key(request)?;
    let wanted = query_parameter(request, "message-id");
    let bare = |id: &str| id.trim_matches(['<', '>']).to_owned();
    let matches = ledger
        .found_by_lookup(Vendor::Mailgun)
        .filter(|taken| wanted.is_none() || taken.message_id.as_deref().map(bare).as_ref() == wanted.as_ref());
    let items: Vec<Value> = matches
        .map(|taken| {
            json!({"event": "accepted", "id": taken.id, "timestamp": 1_700_000_000.5,
                "message": {"headers": {"message-id": taken.message_id.as_deref().map(bare)}},
                "user-variables": {"mailonce": taken.correlation}})
        })
        .collect();
    Ok(VendorResponse::json(200, &json!({"items": items, "paging": {"next": "https://api.mailgun.net/v3/…"}})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SendGridEmail {
    personalizations: Vec<Personalization>,
    from: SendGridAddress,
    #[serde(rename = "reply_to")]
    _reply_to: Option<SendGridAddress>,
    #[serde(default, rename = "reply_to_list")]
    _reply_to_list: Vec<SendGridAddress>,
    subject: String,
    content: Vec<SendGridContentPart>,
    #[serde(default)]
    attachments: Vec<SendGridFile>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    categories: Vec<String>,
    #[serde(default)]
    custom_args: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Personalization {
    to: Vec<SendGridAddress>,
    #[serde(default)]
    cc: Vec<SendGridAddress>,
    #[serde(default)]
    bcc: Vec<SendGridAddress>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SendGridAddress {
    email: String,
    #[serde(rename = "name")]
    _name: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SendGridContentPart {
    r#type: String,
    value: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SendGridFile {
    content: String,
    #[serde(rename = "type")]
    _type: String,
    #[serde(rename = "filename")]
    _filename: String,
    disposition: String,
    content_id: Option<String>,
}

fn check_sendgrid_key(request: &VendorRequest) -> Result<(), VendorResponse> {
    if request.header("authorization") == format!("Bearer {API_KEY}") {
        return Ok(());
    }
    let text = "The provided authorization grant is invalid, expired, or revoked";
    Err(Vendor::SendGrid.error_response(401, "", text))
}

pub(super) fn sendgrid_send(ledger: &mut VendorLedger, request: &VendorRequest) -> LookupVendorResult {
    check_sendgrid_key(request)?;
    let no = |message: &str| Vendor::SendGrid.error_response(400, "", message);
    let email: SendGridEmail = parse_json_body(request).map_err(|why| no(&why))?;
    let [whom] = email.personalizations.as_slice() else { return Err(no("The personalizations field is required")) };
    let recipients: Vec<String> =
        whom.to.iter().chain(&whom.cc).chain(&whom.bcc).map(|person| person.email.clone()).collect();
    if whom.to.is_empty() || recipients.iter().collect::<BTreeSet<_>>().len() != recipients.len() {
        return Err(no("Each email address in the personalization block should be unique between to, cc, and bcc."));
    }
    let kinds: Vec<&str> = email.content.iter().map(|part| part.r#type.as_str()).collect();
    let ordered = matches!(kinds.as_slice(), ["text/plain" | "text/html"] | ["text/plain", "text/html"]);
    let filled = email.content.iter().all(|part| !part.value.is_empty()) && !email.subject.is_empty();
    if !ordered || !filled || !email.from.email.contains('@') || email.categories.len() > 10 {
        return Err(no("The content value must be a string at least one character in length."));
    }
    let file = |file: &SendGridFile| {
        let inline = file.disposition == "inline";
        decode_base64(&file.content).is_some()
            && inline == file.content_id.is_some()
            && (inline || file.disposition == "attachment")
    };
    if !email.attachments.iter().all(file) {
        return Err(no("The attachment is not valid."));
    }
    let correlation = email.custom_args.get("mailonce").cloned();
    let message_id = email.headers.get("Message-ID").cloned();
    let id =
        ledger.accept(Vendor::SendGrid, VendorMail { key: None, message_id, correlation, recipients }, &request.body);
    Ok(VendorResponse { status: 202, headers: vec![("x-message-id", id)], body: Vec::new() })
}

pub(super) fn sendgrid_activity(ledger: &mut VendorLedger, request: &VendorRequest) -> LookupVendorResult {
    check_sendgrid_key(request)?;
    let query = query_parameter(request, "query").unwrap_or_default();
    let wanted = query.strip_prefix("(unique_args['mailonce']=\"").and_then(|rest| rest.strip_suffix("\")"));
    let wanted = wanted.ok_or_else(|| Vendor::SendGrid.error_response(400, "", "invalid query"))?;
    let matches = ledger.found_by_lookup(Vendor::SendGrid).filter(|taken| taken.correlation.as_deref() == Some(wanted));
    let mails: Vec<Value> = matches
        .flat_map(|taken| taken.recipients.iter().map(move |to| (taken, to)))
        .map(|(taken, to)| {
            json!({"from_email": "agent@example.com", "msg_id": taken.id, "subject": "s", "to_email": to,
                "status": "processed", "opens_count": 0, "clicks_count": 0, "last_event_time": "2026-11-15T04:00:00Z"})
        })
        .collect();
    Ok(VendorResponse::json(200, &json!({"messages": mails})))
}

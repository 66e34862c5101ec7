//! SES: requests with AWS Signature Version 4, verified from the received bytes.

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::Deserialize;
use serde_json::json;
use sha2::Sha256;

use super::{ACCESS_KEY_ID, SECRET_ACCESS_KEY, Vendor, VendorRequest, VendorResponse};
use crate::sink::http::{
    keyed_vendors::{decode_base64, parse_json_body},
    vendor_ledger::{VendorLedger, VendorMail, hex, sha256_hex},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct SesEmail {
    from_email_address: String,
    destination: SesDestination,
    content: SesContentBody,
    email_tags: Vec<SesEmailTag>,
    #[serde(rename = "ConfigurationSetName")]
    _configuration_set_name: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct SesDestination {
    to_addresses: Vec<String>,
    #[serde(default)]
    cc_addresses: Vec<String>,
    #[serde(default)]
    bcc_addresses: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct SesContentBody {
    raw: SesRawMessage,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct SesRawMessage {
    data: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct SesEmailTag {
    name: String,
    value: String,
}

pub(super) fn ses_send(ledger: &mut VendorLedger, request: &VendorRequest) -> Result<VendorResponse, VendorResponse> {
    let no = |status, name: &str, message: &str| Vendor::Ses.error_response(status, name, message);
    if given_and_expected_signature(request).is_none_or(|(given, expected)| given != expected) {
        let text = "The request signature we calculated does not match the signature you provided.";
        return Err(no(403, "InvalidSignatureException", text));
    }
    let email: SesEmail = parse_json_body(request).map_err(|why| no(400, "BadRequestException", &why))?;
    let mime =
        decode_base64(&email.content.raw.data).ok_or_else(|| no(400, "BadRequestException", "Raw.Data is empty"))?;
    let SesDestination { to_addresses, cc_addresses, bcc_addresses } = email.destination;
    let recipients = [to_addresses, cc_addresses, bcc_addresses].concat();
    if recipients.is_empty() || recipients.len() > 50 || !email.from_email_address.contains('@') {
        return Err(no(400, "BadRequestException", "Recipient count is wrong"));
    }
    let text = String::from_utf8_lossy(&mime).into_owned();
    let message_id = text.lines().find_map(|line| line.strip_prefix("Message-ID: ")).map(str::to_owned);
    let correlation = email.email_tags.into_iter().find(|tag| tag.name == "mailonce").map(|tag| tag.value);
    let id = ledger.accept(Vendor::Ses, VendorMail { key: None, message_id, correlation, recipients }, &request.body);
    Ok(VendorResponse::json(200, &json!({"MessageId": id})))
}

/// The given and the expected signature of a request.
fn given_and_expected_signature(request: &VendorRequest) -> Option<(String, String)> {
    let given = request.header("authorization").strip_prefix("AWS4-HMAC-SHA256 Credential=")?;
    let (credential, rest) = given.split_once(", SignedHeaders=")?;
    let (names, given) = rest.split_once(", Signature=")?;
    let scope = credential.strip_prefix(ACCESS_KEY_ID)?.strip_prefix('/')?;
    let [day, region, "ses", "aws4_request"] = scope.split('/').collect::<Vec<_>>()[..] else { return None };
    let stamp = request.header("x-amz-date");
    if !stamp.starts_with(day) || !names.split(';').any(|name| name == "host") {
        return None;
    }
    let headers: String = names.split(';').flat_map(|name| [name, ":", request.header(name), "\n"]).collect();
    let request = [&request.method, &request.path, &request.query, &headers, names, &sha256_hex(&request.body)]
        .map(str::to_owned)
        .join("\n");
    let text = format!("AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{}", sha256_hex(request.as_bytes()));
    let mut key = format!("AWS4{SECRET_ACCESS_KEY}").into_bytes();
    for part in [day, region, "ses", "aws4_request", &text] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&key).ok()?;
        mac.update(part.as_bytes());
        key = mac.finalize().into_bytes().to_vec();
    }
    Some((given.to_owned(), hex(&key)))
}

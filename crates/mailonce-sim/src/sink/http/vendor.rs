//! The vendor of a request, and the errors of each vendor.

use serde_json::json;

use super::{VendorRequest, VendorResponse};
use crate::sink::http::{keyed_vendors, lookup_vendors, ses, vendor_ledger::VendorLedger};

/// A provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Vendor {
    /// Keys for 24 hours, replayed.
    Resend,
    /// Metadata that can be searched.
    Postmark,
    /// Events that can be searched.
    Mailgun,
    /// An activity feed.
    SendGrid,
    /// Signed requests.
    Ses,
    /// Keys for 24 hours, weakly.
    UseSend,
    /// Keys whose repeats are refused.
    Brevo,
    /// A provider with a key header that answers a repeat with 409.
    Other,
}

/// An error in place of an acceptance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VendorError {
    /// 500.
    ServerError,
    /// 429 with this `Retry-After` in seconds.
    RateLimited(u32),
    /// The API key is not valid any more.
    Revoked,
    /// The mail is not acceptable.
    Refused,
    /// 409: an earlier request under this key is not finished.
    Concurrent,
    /// 409: the key is known for another body.
    Mismatch,
    /// 503.
    Unavailable,
    /// A response that quotes the client's API key.
    EchoesCredential,
}

impl Vendor {
    /// All vendors.
    pub const ALL: [Self; 8] = [
        Self::Resend,
        Self::Postmark,
        Self::Mailgun,
        Self::SendGrid,
        Self::Ses,
        Self::UseSend,
        Self::Brevo,
        Self::Other,
    ];

    /// The vendor of a request's path.
    pub(super) fn from_path(request: &VendorRequest) -> Option<Self> {
        match (request.method.as_str(), request.path.as_str()) {
            ("POST", "/emails") => Some(Self::Resend),
            ("POST", "/email") | ("GET", "/messages/outbound") => Some(Self::Postmark),
            ("POST", "/v3/mail/send") | ("GET", "/v3/messages") => Some(Self::SendGrid),
            ("POST", "/v2/email/outbound-emails") => Some(Self::Ses),
            ("POST", "/api/v1/emails") => Some(Self::UseSend),
            ("POST", "/v3/smtp/email") => Some(Self::Brevo),
            ("POST", "/other/send") => Some(Self::Other),
            ("POST", "/v3/example.com/messages.mime") | ("GET", "/v3/example.com/events") => Some(Self::Mailgun),
            _ => None,
        }
    }

    /// The response without faults.
    pub(super) fn respond(self, ledger: &mut VendorLedger, request: &VendorRequest) -> VendorResponse {
        let answer = match self {
            Self::Resend => keyed_vendors::resend_send(ledger, request),
            Self::UseSend => keyed_vendors::usesend_send(ledger, request),
            Self::Brevo => keyed_vendors::brevo_send(ledger, request),
            Self::Other => keyed_vendors::custom_send(ledger, request),
            Self::Postmark if request.method == "GET" => lookup_vendors::postmark_search(ledger, request),
            Self::Postmark => lookup_vendors::postmark_send(ledger, request),
            Self::Mailgun if request.method == "GET" => lookup_vendors::mailgun_events(ledger, request),
            Self::Mailgun => lookup_vendors::mailgun_send(ledger, request),
            Self::SendGrid if request.method == "GET" => lookup_vendors::sendgrid_activity(ledger, request),
            Self::SendGrid => lookup_vendors::sendgrid_send(ledger, request),
            Self::Ses => ses::ses_send(ledger, request),
        };
        answer.unwrap_or_else(|refusal| refusal)
    }

    /// An error in the vendor's format.
    pub(super) fn error_response(self, status: u16, name: &str, message: &str) -> VendorResponse {
        match self {
            Self::Resend => {
                VendorResponse::json(status, &json!({"statusCode": status, "name": name, "message": message}))
            }
            Self::Postmark => {
                let code = name.parse::<i64>().unwrap_or(300);
                VendorResponse::json(status, &json!({"ErrorCode": code, "Message": message}))
            }
            // Mailgun reports a wrong key as plain text.
            Self::Mailgun if status == 401 => {
                let headers = vec![("content-type", "text/html; charset=utf-8".to_owned())];
                VendorResponse { status, headers, body: b"Forbidden".to_vec() }
            }
            Self::Mailgun => VendorResponse::json(status, &json!({"message": message})),
            Self::SendGrid => {
                VendorResponse::json(status, &json!({"errors": [{"message": message, "field": null, "help": null}]}))
            }
            Self::Ses => {
                VendorResponse::json(status, &json!({"message": message})).with_header("x-amzn-errortype", name)
            }
            Self::UseSend => VendorResponse::json(status, &json!({"error": {"code": name, "message": message}})),
            Self::Brevo => VendorResponse::json(status, &json!({"code": name, "message": message})),
            Self::Other => VendorResponse::json(status, &json!({"error": message})),
        }
    }

    pub(super) fn error_reply(self, trouble: VendorError) -> VendorResponse {
        match trouble {
            VendorError::ServerError => self.error_response(500, self.error_name(500), "An unexpected error occurred."),
            VendorError::RateLimited(s) => self
                .error_response(429, self.error_name(429), "Too many requests.")
                .with_header("retry-after", s.to_string()),
            VendorError::Revoked => self.error_response(401, self.error_name(401), "The credential is not valid."),
            VendorError::Refused if matches!(self, Self::Resend | Self::Postmark) => {
                self.error_response(422, self.error_name(422), "The `to` field is not acceptable.")
            }
            VendorError::Refused => self.error_response(400, self.error_name(400), "The `to` field is not acceptable."),
            VendorError::Concurrent => self.conflict_response(
                "concurrent_idempotent_requests",
                "Request with same Idempotency-Key is in progress. Retry later.",
            ),
            VendorError::Mismatch => self.conflict_response(
                "invalid_idempotent_request",
                "Idempotency-Key already used with a different payload",
            ),
            VendorError::Unavailable => self.error_response(503, self.error_name(503), "Temporarily unavailable."),
            VendorError::EchoesCredential => {
                let secret = if self == Self::Ses { super::SECRET_ACCESS_KEY } else { super::API_KEY };
                self.error_response(403, self.error_name(403), &format!("{secret} may not do this"))
            }
        }
    }

    /// Resend names both conflicts; useSend has messages only.
    fn conflict_response(self, name: &str, message: &str) -> VendorResponse {
        self.error_response(409, if self == Self::UseSend { "NOT_UNIQUE" } else { name }, message)
    }

    /// The vendor's name of a status.
    fn error_name(self, status: u16) -> &'static str {
        match (self, status) {
            (Self::Resend, 401) => "restricted_api_key",
            (Self::Resend, 403) => "invalid_api_key",
            (Self::Resend, 422) => "validation_error",
            (Self::Resend, 429) => "rate_limit_exceeded",
            (Self::Resend, _) => "application_error",
            (Self::Postmark, 401 | 403) => "10",
            (Self::Postmark, 503) => "100",
            (Self::Postmark, _) => "300",
            (Self::Ses, 400) => "MessageRejected",
            (Self::Ses, 401 | 403) => "InvalidSignatureException",
            (Self::Ses, 429) => "TooManyRequestsException",
            (Self::Ses, _) => "InternalServiceErrorException",
            (Self::UseSend, 400) => "BAD_REQUEST",
            (Self::UseSend, 401) => "UNAUTHORIZED",
            (Self::UseSend, 403) => "FORBIDDEN",
            (Self::UseSend, 429) => "RATE_LIMITED",
            (Self::UseSend, _) => "INTERNAL_SERVER_ERROR",
            (Self::Brevo, 401 | 403) => "unauthorized",
            (Self::Brevo, 429) => "too_many_requests",
            (Self::Brevo, _) => "invalid_parameter",
            _ => "error",
        }
    }
}

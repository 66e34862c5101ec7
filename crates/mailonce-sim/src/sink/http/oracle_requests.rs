//! How an oracle handles requests: their recipients, the fault, and the log.

use super::{HttpSinkState, ScriptedResponse, Vendor, VendorError, VendorRequest, VendorResponse, sha256_hex};
use crate::sink::{
    http::keyed_vendors::bare_address,
    oracle::{
        behavior::{LATE_ACCEPT_DELAY, SinkAction},
        provider_webhooks::HookTarget,
        sink_log::SinkLogLine,
        webhook_receiver::WebhookLogLine,
    },
};
use serde_json::{Value, json};

/// The envelope of a request, in the dialects that an oracle supports.
struct RequestSubject {
    email: String,
    to: Vec<String>,
    message_id: String,
}

impl RequestSubject {
    fn read(vendor: Vendor, request: &VendorRequest) -> Self {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (email, to) = match vendor {
            Vendor::Resend => {
                let tags = body["tags"].as_array().into_iter().flatten();
                (tags.filter(|tag| tag["name"] == "mailonce").map(|tag| text(&tag["value"])).collect(), &body["to"])
            }
            Vendor::Postmark => (text(&body["Metadata"]["mailonce"]), &body["To"]),
            _ => (text(&body["id"]), &body["to"]),
        };
        let to: Vec<String> = match to {
            Value::Array(all) => all.iter().filter_map(Value::as_str).map(bare_address).collect(),
            one => one.as_str().unwrap_or_default().split(',').map(bare_address).collect(),
        };
        let headers = body["Headers"].as_array().into_iter().flatten();
        let message_id = headers.filter(|header| header["Name"] == "Message-ID").map(|header| text(&header["Value"]));
        Self { email, to, message_id: message_id.collect() }
    }
}

/// The oracle's action for a request, if there is an oracle.
pub(super) fn draw_behavior(shared: &HttpSinkState, vendor: Vendor, request: &VendorRequest) -> SinkAction {
    let first = |oracle: &super::SinkOracle| {
        RequestSubject::read(vendor, request).to.first().map(|to| oracle.behavior.next_action(to))
    };
    shared.oracle.as_deref().and_then(first).unwrap_or(SinkAction::Normal)
}

/// The scripted response of an action.
pub(super) fn to_scripted_response(action: SinkAction) -> ScriptedResponse {
    match action {
        SinkAction::Normal => ScriptedResponse::Normal,
        SinkAction::AcceptThenDrop => ScriptedResponse::AcceptThenDrop,
        SinkAction::AcceptThenServerError => ScriptedResponse::AcceptThenServerError,
        SinkAction::AcceptThenStall => ScriptedResponse::AcceptThenStall,
        SinkAction::AcceptLate => ScriptedResponse::AcceptAfter(LATE_ACCEPT_DELAY),
        // `Retry-After: 0` leaves the delay to the client.
        SinkAction::Defer | SinkAction::RejectRecipient(true) => ScriptedResponse::Error(VendorError::RateLimited(0)),
        SinkAction::Refuse | SinkAction::RejectRecipient(false) => ScriptedResponse::Error(VendorError::Refused),
        SinkAction::Drop => ScriptedResponse::Drop,
    }
}

/// The vendor's normal response, logged.
pub(super) fn accept_and_log(
    shared: &HttpSinkState,
    vendor: Vendor,
    request: &VendorRequest,
    action: SinkAction,
) -> VendorResponse {
    let mut ledger = shared.ledger();
    let before = ledger.accepted.len();
    let response = vendor.respond(&mut ledger, request);
    let taken = ledger.accepted.len() > before;
    drop(ledger);
    log_request(shared, vendor, request, action, taken);
    response
}

/// Logs a request, if there is an oracle.
pub(super) fn log_request(
    shared: &HttpSinkState,
    vendor: Vendor,
    request: &VendorRequest,
    action: SinkAction,
    taken: bool,
) {
    let Some(oracle) = &shared.oracle else { return };
    let RequestSubject { email, to, message_id } = RequestSubject::read(vendor, request);
    let transport = match vendor {
        Vendor::Resend => "keyed",
        Vendor::Postmark => "look_up",
        _ => "keyless",
    };
    oracle.log_arrival(SinkLogLine {
        transport: transport.into(),
        connection: request.connection,
        email,
        message_id,
        key: Some(request.header("idempotency-key").to_owned()).filter(|key| !key.is_empty()),
        to,
        body: sha256_hex(&request.body),
        taken,
        action: action.as_str().into(),
        ambiguous: action.is_ambiguous(),
        ..SinkLogLine::default()
    });
}

/// A webhook for the application next to the sink: `/receiver/` and the team of the endpoint.
pub(super) fn receive_webhook(shared: &HttpSinkState, request: &VendorRequest) -> Option<VendorResponse> {
    let team = request.path.strip_prefix("/receiver/")?;
    let oracle = shared.oracle.as_ref()?;
    oracle.log_webhook(|| WebhookLogLine::from_request(team, &request.body, |name| request.header(name).to_owned()));
    Some(VendorResponse::json(200, &json!({})))
}

/// Commands for the oracle: `/control/calm`, `/control/rough`, `/control/hooks`, `/control/count`.
pub(super) fn handle_control(shared: &HttpSinkState, request: &VendorRequest) -> Option<VendorResponse> {
    let what = request.path.strip_prefix("/control/")?;
    let oracle = shared.oracle.as_ref()?;
    match what {
        "calm" => oracle.behavior.set_calm(true),
        "rough" => oracle.behavior.set_calm(false),
        "hooks" => match serde_json::from_slice::<HookTarget>(&request.body) {
            Ok(to) => oracle.set_hook_target(to),
            Err(why) => return Some(VendorResponse::json(400, &json!({"error": why.to_string()}))),
        },
        "count" => {}
        _ => return None,
    }
    Some(VendorResponse::json(200, &json!({"count": oracle.logged_count()})))
}

//! useSend: one event in a request, HMAC over the time (in milliseconds) and the raw body.
//!
//! Its key is the whole text of the secret, `whsec_` included. The body counts attempts, so only its id is stable.

use mailonce_core::time::Time;
use serde_json::Value;

use super::{
    HookRequest, Reject, Report, Says, Unreadable, json, proof,
    report::{Draft, ours},
    resend::only,
};

pub(super) fn verify(keys: &[Vec<u8>], request: &HookRequest<'_>, now: Time, tolerance_ms: i64) -> Result<(), Reject> {
    let timestamp = request.required("x-usesend-timestamp")?;
    let signature = request.required("x-usesend-signature")?;
    let millis = proof::digits(timestamp, "the timestamp")?;
    let signature = signature.strip_prefix("v1=").and_then(proof::hex32);
    let signature = signature.ok_or_else(|| Reject::Malformed("the signature is not v1= and hex".into()))?;
    proof::any_hmac(keys, &[timestamp.as_bytes(), b".", request.body], &[signature])?;
    proof::fresh(Time(millis), now, tolerance_ms)
}

pub(super) fn read(body: &[u8]) -> Result<Vec<Report>, Unreadable> {
    let event = json::parse(body)?;
    let kind = json::text(&event, "/type").ok_or(Unreadable::Shape("an object with type"))?;
    let headed = json::entry(event.pointer("/data/headers"), "x-mailonce-id");
    let reasons = ["/data/bounce/message", "/data/failed/reason", "/data/suppression/reason", "/data/bounce/subType"];
    let report = Draft {
        event_id: json::text(&event, "/id").map(str::to_owned),
        mark: None,
        event: kind,
        email: ours(headed).or_else(|| ours(json::text(&event, "/data/metadata/mailonce"))),
        remote_id: json::text(&event, "/data/id").filter(|_| kind.starts_with("email.")),
        recipient: only(event.pointer("/data/to")),
        says: says(kind, &event),
        reason: json::first_text(&event, &reasons),
        at: json::instant(&event, "/data/occurredAt").or_else(|| json::instant(&event, "/createdAt")),
        test: kind == "webhook.test",
    };
    Ok(vec![report.finish()])
}

fn says(kind: &str, event: &Value) -> Says {
    match kind {
        "email.queued" | "email.sent" => Says::Accepted,
        "email.delivered" => Says::Delivered,
        "email.delivery_delayed" => Says::Deferred,
        "email.bounced" => Says::Bounced { permanent: json::text(event, "/data/bounce/type") == Some("Permanent") },
        "email.complained" => Says::Complained,
        // Its word only: a time-out between useSend and SES is called `failed` too.
        "email.rejected" | "email.rendering_failure" | "email.failed" | "email.cancelled" => Says::Refused,
        "email.suppressed" => Says::Suppressed,
        _ => Says::Other,
    }
}

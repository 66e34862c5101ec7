//! Webhooks that report mails to a server, signed as Resend signs them: some are missing, some repeated, all in any
//! order.

use crate::harness::http;
use crate::harness::rng::{SeededRng, fnv1a};
use crate::sink::oracle::behavior::FaultRates;
use crate::sink::oracle::sink_log::SinkLogLine;
use anyhow::Result;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::Sha256;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime::Handle;
use tokio::time::sleep;

/// How often a webhook is retried while the server is down, and the delay between.
const WEBHOOK_TRIES: usize = 40;
const RETRY_DELAY: Duration = Duration::from_millis(150);
/// The maximum delay of a webhook in milliseconds.
const MAX_DELAY_MS: u64 = 250;

/// A part of a recipient's name for which nothing is reported.
pub const SILENT_RECIPIENT: &str = ".quiet.";

/// The webhook URL of a server, and its signing secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookTarget {
    /// The server.
    pub at: SocketAddr,
    /// `/hooks/…`.
    pub path: String,
    /// The signing secret as the source has it: `whsec_` and base64.
    pub secret: String,
}

/// One event about a mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VendorWebhookEvent<'a> {
    /// Its id, under which it counts once.
    pub id: String,
    /// `email.delivered` and so on.
    pub kind: &'a str,
    /// The id of the email.
    pub email: &'a str,
    /// The recipient.
    pub to: &'a str,
}

/// The signed request of an event.
pub fn signed_request(to: &HookTarget, event: &VendorWebhookEvent<'_>) -> Vec<u8> {
    let body = json!({
        "type": event.kind,
        "created_at": "2026-11-15T04:00:00Z",
        "data": {"to": [event.to], "tags": {"mailonce": event.email}, "bounce": {"type": "Transient"}},
    })
    .to_string();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let key = STANDARD.decode(to.secret.trim_start_matches("whsec_")).unwrap_or_default();
    let signature = Hmac::<Sha256>::new_from_slice(&key).map(|mut mac| {
        mac.update(format!("{}.{now}.{body}", event.id).as_bytes());
        STANDARD.encode(mac.finalize().into_bytes())
    });
    format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\nsvix-id: {}\r\nsvix-timestamp: {now}\r\nsvix-signature: v1,{}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        to.path,
        to.at,
        event.id,
        signature.unwrap_or_default(),
        body.len()
    )
    .into_bytes()
}

/// Sends an event once and returns the status of the reply.
pub fn send_event(to: &HookTarget, event: &VendorWebhookEvent<'_>) -> Result<u16> {
    Ok(http::exchange(to.at, &signed_request(to, event))?.status)
}

/// The planned reports and their target.
#[derive(Debug)]
pub(super) struct ProviderWebhooks {
    seed: u64,
    rates: FaultRates,
    target: Arc<Mutex<Option<HookTarget>>>,
    runtime: Option<Handle>,
}

impl ProviderWebhooks {
    /// Sends webhooks on the current runtime; without one it sends none.
    pub(super) fn start(seed: u64, rates: FaultRates) -> Self {
        Self { seed, rates, target: Arc::default(), runtime: Handle::try_current().ok() }
    }

    pub(super) fn set_target(&self, to: HookTarget) {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = Some(to);
    }

    /// Plans the reports about an accepted mail.
    pub(super) fn schedule_events(&self, line: &SinkLogLine) {
        let (Some(runtime), Some(to)) = (&self.runtime, line.to.first()) else { return };
        let mut rng = SeededRng::derive(self.seed, &[fnv1a(&line.email), fnv1a(to), 3]);
        if rng.below(100) >= u64::from(self.rates.tell) || to.contains(SILENT_RECIPIENT) {
            return;
        }
        let kinds: &[&str] = match rng.below(10) {
            0 => &["email.sent"],
            1 => &["email.delivery_delayed", "email.delivered"],
            2 => &["email.sent", "email.bounced"],
            3 => &["email.opened"],
            _ => &["email.sent", "email.delivered"],
        };
        for kind in kinds {
            let id = format!("{}-{}-{}", line.email, fnv1a(to), kind.trim_start_matches("email."));
            let often = if rng.below(100) < u64::from(self.rates.again) { rng.between(2, 3) } else { 1 };
            for _ in 0..often {
                let after = Duration::from_millis(rng.below(MAX_DELAY_MS));
                let webhook = PendingWebhook {
                    target: Arc::clone(&self.target),
                    id: id.clone(),
                    kind: (*kind).to_owned(),
                    email: line.email.clone(),
                    recipient: to.clone(),
                };
                runtime.spawn(async move {
                    sleep(after).await;
                    webhook.send_until_accepted().await;
                });
            }
        }
    }
}

/// A webhook that the server has not acknowledged yet.
#[derive(Clone)]
struct PendingWebhook {
    target: Arc<Mutex<Option<HookTarget>>>,
    id: String,
    kind: String,
    email: String,
    recipient: String,
}

impl PendingWebhook {
    /// Retries until the server acknowledges it, or gives up.
    async fn send_until_accepted(self) {
        for _ in 0..WEBHOOK_TRIES {
            let target = self.target.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(target) = target {
                let Self { id, kind, email, recipient, .. } = self.clone();
                let reply = tokio::task::spawn_blocking(move || {
                    send_event(&target, &VendorWebhookEvent { id, kind: &kind, email: &email, to: &recipient })
                });
                if matches!(reply.await, Ok(Ok(200))) {
                    return;
                }
            }
            sleep(RETRY_DELAY).await;
        }
    }
}

//! Hooks that tell a server what became of its mail, signed as Resend signs them: some never come, some come twice,
//! and they come in any order.

use super::journal::Line;
use super::mood::Rates;
use crate::rig::chance::{Chance, number_of};
use crate::rig::http;
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

/// How often a hook is tried while the server is away, and the pause between.
const TRIES: usize = 40;
const PAUSE: Duration = Duration::from_millis(150);
/// The longest a hook takes by itself, in milliseconds.
const DELAY_MS: u64 = 250;

/// A part of a recipient's name of whom nothing is ever told.
pub const QUIET: &str = ".quiet.";

/// Where a server takes hooks, and the secret that proves them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Where {
    /// The server.
    pub at: SocketAddr,
    /// `/hooks/…`.
    pub path: String,
    /// The key of the signature, as it was given to the source: `whsec_` and base64.
    pub secret: String,
}

/// One event about a mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event<'a> {
    /// Its name, by which it counts once.
    pub id: String,
    /// `email.delivered` and so on.
    pub kind: &'a str,
    /// The email, by our own id.
    pub email: &'a str,
    /// Whom it is about.
    pub to: &'a str,
}

/// The whole request that tells of an event, signed now.
pub fn signed(to: &Where, event: &Event<'_>) -> Vec<u8> {
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

/// Tells of an event, once, and gives the status of the answer.
pub fn tell(to: &Where, event: &Event<'_>) -> Result<u16> {
    Ok(http::exchange(to.at, &signed(to, event))?.status)
}

/// What is told, and where.
#[derive(Debug)]
pub(super) struct Callbacks {
    seed: u64,
    rates: Rates,
    to: Arc<Mutex<Option<Where>>>,
    runtime: Option<Handle>,
}

impl Callbacks {
    /// Calls back on the runtime that this is called on; without one never.
    pub(super) fn start(seed: u64, rates: Rates) -> Self {
        Self { seed, rates, to: Arc::default(), runtime: Handle::try_current().ok() }
    }

    pub(super) fn direct(&self, to: Where) {
        *self.to.lock().unwrap_or_else(PoisonError::into_inner) = Some(to);
    }

    /// A mail was taken: plans what is told of it.
    pub(super) fn taken(&self, line: &Line) {
        let (Some(runtime), Some(to)) = (&self.runtime, line.to.first()) else { return };
        let mut chance = Chance::at(self.seed, &[number_of(&line.email), number_of(to), 3]);
        if chance.below(100) >= u64::from(self.rates.tell) || to.contains(QUIET) {
            return;
        }
        let kinds: &[&str] = match chance.below(10) {
            0 => &["email.sent"],
            1 => &["email.delivery_delayed", "email.delivered"],
            2 => &["email.sent", "email.bounced"],
            3 => &["email.opened"],
            _ => &["email.sent", "email.delivered"],
        };
        for kind in kinds {
            let id = format!("{}-{}-{}", line.email, number_of(to), kind.trim_start_matches("email."));
            let often = if chance.below(100) < u64::from(self.rates.again) { chance.between(2, 3) } else { 1 };
            for _ in 0..often {
                let after = Duration::from_millis(chance.below(DELAY_MS));
                let call = (Arc::clone(&self.to), id.clone(), (*kind).to_owned(), line.email.clone(), to.clone());
                runtime.spawn(async move {
                    sleep(after).await;
                    insist(call).await;
                });
            }
        }
    }
}

/// Tries until the server says that it has it, or for too long.
async fn insist((to, id, kind, email, recipient): (Arc<Mutex<Option<Where>>>, String, String, String, String)) {
    for _ in 0..TRIES {
        let there = to.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(there) = there {
            let (id, kind, email, recipient) = (id.clone(), kind.clone(), email.clone(), recipient.clone());
            let told = tokio::task::spawn_blocking(move || {
                tell(&there, &Event { id, kind: &kind, email: &email, to: &recipient })
            });
            if matches!(told.await, Ok(Ok(200))) {
                return;
            }
        }
        sleep(PAUSE).await;
    }
}

//! The generated sends: each is a pure function of the seed, the cycle and its number in the cycle.

use super::server::API_KEY;
use crate::harness::rng::SeededRng;
use std::fmt;
use std::fmt::Write as _;

/// Emails of one batch.
pub const BATCH_SIZE: usize = 20;
/// Calls per block. The first ones of a block are identical and concurrent.
const TWIN_BLOCK: u64 = 64;
/// How many calls of a block are identical.
const TWINS: u64 = 8;
/// Calls of an earlier cycle that a later one may repeat.
const REPEATABLE_CALLS: u64 = 100;

/// The form of a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SendKind {
    /// One email under its own key.
    Single,
    /// One email identified by its intent.
    Intent,
    /// [`BATCH_SIZE`] emails under one key.
    Batch,
}

/// A send that can be repeated: however often it is sent, it creates one email, or one for each item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GeneratedSend {
    /// The cycle.
    pub cycle: u32,
    /// The number in the cycle.
    pub n: u32,
    /// The form.
    pub kind: SendKind,
}

impl fmt::Display for GeneratedSend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            SendKind::Single => "single",
            SendKind::Intent => "intent",
            SendKind::Batch => "batch",
        };
        write!(f, "{kind}-{}-{}", self.cycle, self.n)
    }
}

/// The send of the n-th call of a cycle: a new one, a concurrent duplicate, or a repeat of an earlier one.
pub fn generate_send(seed: u64, cycle: u32, n: u64) -> GeneratedSend {
    let (mut cycle, mut n) = (u64::from(cycle), n);
    loop {
        let mut rng = SeededRng::derive(seed, &[cycle, n]);
        let roll = rng.below(100);
        if (1..TWINS).contains(&(n % TWIN_BLOCK)) {
            n -= n % TWIN_BLOCK;
        } else if roll < 10 && n > 0 {
            n -= 1;
        } else if roll < 16 && n > 0 {
            n = rng.below(n);
        } else if roll < 22 && cycle > 0 {
            (cycle, n) = (rng.below(cycle), rng.below(REPEATABLE_CALLS));
        } else {
            let kind = match roll {
                96.. => SendKind::Batch,
                80.. => SendKind::Intent,
                _ => SendKind::Single,
            };
            return GeneratedSend { cycle: cycle as u32, n: n as u32, kind };
        }
    }
}

impl GeneratedSend {
    /// The number of emails.
    pub fn email_count(&self) -> usize {
        if self.kind == SendKind::Batch { BATCH_SIZE } else { 1 }
    }

    /// The recipients of its emails in order. They are unique, so a recipient identifies an email.
    pub fn recipients(&self) -> Vec<String> {
        let slot = |item| format!("{self}-{item}@example.org");
        (0..self.email_count()).map(slot).collect()
    }

    /// The send that a recipient belongs to.
    pub fn from_recipient(slot: &str) -> Option<Self> {
        let mut parts = slot.strip_suffix("@example.org")?.split('-');
        let kind = match parts.next()? {
            "single" => SendKind::Single,
            "intent" => SendKind::Intent,
            "batch" => SendKind::Batch,
            _ => return None,
        };
        let (cycle, n) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { cycle, n, kind })
    }

    /// The JSON body. `variant` changes what must not matter: the order of members, and the text under an intent.
    pub fn body(&self, variant: u64) -> String {
        let slots = self.recipients();
        match self.kind {
            SendKind::Single if variant.is_multiple_of(2) => email_json(&slots[0], "As you asked.", ""),
            SendKind::Single => format!(
                r#"{{"text":"As you asked.\nThis is about {slot}.","subject":"About {slot}","to":["{slot}"],"from":"agent@example.com"}}"#,
                slot = slots[0]
            ),
            SendKind::Intent => {
                let intent = format!(r#","intent":{{"type":"test.send","entity":"{self}"}}"#);
                email_json(&slots[0], &format!("Text variant {}.", variant % 3), &intent)
            }
            SendKind::Batch => {
                let items: Vec<_> = slots.iter().map(|slot| email_json(slot, "One of many.", "")).collect();
                format!("[{}]", items.join(","))
            }
        }
    }

    /// Appends the HTTP request.
    pub fn write_request(&self, variant: u64, out: &mut Vec<u8>) {
        let body = self.body(variant);
        let path = if self.kind == SendKind::Batch { "/v1/emails/batch" } else { "/v1/emails" };
        let mut head = format!("POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {API_KEY}\r\n");
        if self.kind != SendKind::Intent {
            // Writing to a `String` cannot fail.
            let _infallible = write!(head, "Idempotency-Key: {self}\r\n");
        }
        let length = body.len();
        let _infallible = write!(head, "Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n");
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(body.as_bytes());
    }
}

fn email_json(to: &str, text: &str, more: &str) -> String {
    format!(
        r#"{{"from":"agent@example.com","to":"{to}","subject":"About {to}","text":"{text}\nThis is about {to}."{more}}}"#
    )
}

#[cfg(test)]
mod tests {
    use super::{GeneratedSend, SendKind, generate_send};
    use std::collections::BTreeMap;

    #[test]
    fn every_kind_and_every_repeat_occurs() {
        let (mut kinds, mut earlier, mut repeated) = (BTreeMap::new(), 0, 0);
        let mut seen = std::collections::BTreeSet::new();
        for n in 0..1000 {
            let send = generate_send(7, 3, n);
            *kinds.entry(send.kind).or_insert(0) += 1;
            earlier += usize::from(send.cycle < 3);
            repeated += usize::from(!seen.insert(send));
        }
        assert!(kinds[&SendKind::Single] > 400 && kinds[&SendKind::Intent] > 80 && kinds[&SendKind::Batch] > 10);
        assert!(earlier > 20 && repeated > 150, "{earlier} earlier, {repeated} repeated");
    }

    #[test]
    fn bodies_are_json_and_slots_lead_back() {
        for n in 0..300 {
            let send = generate_send(1, 0, n);
            for variant in 0..3 {
                serde_json::from_str::<serde_json::Value>(&send.body(variant)).unwrap();
            }
            for slot in send.recipients() {
                assert_eq!(GeneratedSend::from_recipient(&slot), Some(send));
            }
        }
    }
}

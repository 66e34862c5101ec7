//! What is sent: every call is a pure function of the seed, the cycle and its number in the cycle.

use super::chance::Chance;
use super::server::API_KEY;
use std::fmt;
use std::fmt::Write as _;

/// Emails of one batch.
pub const BATCH: usize = 20;
/// Calls in a row of which the first few ask for the same thing at the same time.
const BLOCK: u64 = 64;
/// How many those are.
const TWINS: u64 = 8;
/// Calls of an earlier cycle that a later one repeats.
const REPEATED: u64 = 100;

/// How a wish is worded on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// One email under a key of its own.
    Single,
    /// One email under the key of its intent.
    Intent,
    /// [`BATCH`] emails under one key.
    Batch,
}

/// One wish: whatever becomes of it, it is one email, or one of each item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wish {
    /// The cycle that it belongs to.
    pub cycle: u32,
    /// Its number in that cycle.
    pub n: u32,
    /// How it is worded.
    pub kind: Kind,
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Single => "single",
            Kind::Intent => "intent",
            Kind::Batch => "batch",
        };
        write!(f, "{kind}-{}-{}", self.cycle, self.n)
    }
}

/// The wish of the n-th call of a cycle: a new one, a twin of one that is on its way, or one from before.
pub fn wish(seed: u64, cycle: u32, n: u64) -> Wish {
    let (mut cycle, mut n) = (u64::from(cycle), n);
    loop {
        let mut chance = Chance::at(seed, &[cycle, n]);
        let roll = chance.below(100);
        if (1..TWINS).contains(&(n % BLOCK)) {
            n -= n % BLOCK;
        } else if roll < 10 && n > 0 {
            n -= 1;
        } else if roll < 16 && n > 0 {
            n = chance.below(n);
        } else if roll < 22 && cycle > 0 {
            (cycle, n) = (chance.below(cycle), chance.below(REPEATED));
        } else {
            let kind = match roll {
                96.. => Kind::Batch,
                80.. => Kind::Intent,
                _ => Kind::Single,
            };
            return Wish { cycle: cycle as u32, n: n as u32, kind };
        }
    }
}

impl Wish {
    /// How many emails it asks for.
    pub fn size(&self) -> usize {
        if self.kind == Kind::Batch { BATCH } else { 1 }
    }

    /// The recipients of its emails in order. No other wish has one of them, so a recipient names an email.
    pub fn slots(&self) -> Vec<String> {
        let slot = |item| format!("{self}-{item}@example.org");
        (0..self.size()).map(slot).collect()
    }

    /// The wish behind a recipient.
    pub fn of_slot(slot: &str) -> Option<Self> {
        let mut parts = slot.strip_suffix("@example.org")?.split('-');
        let kind = match parts.next()? {
            "single" => Kind::Single,
            "intent" => Kind::Intent,
            "batch" => Kind::Batch,
            _ => return None,
        };
        let (cycle, n) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { cycle, n, kind })
    }

    /// Its JSON. `turn` changes what must not matter: the order of members, and the words of an intent.
    pub fn body(&self, turn: u64) -> String {
        let slots = self.slots();
        match self.kind {
            Kind::Single if turn.is_multiple_of(2) => email(&slots[0], "As you asked.", ""),
            Kind::Single => format!(
                r#"{{"text":"As you asked.\nThis is about {slot}.","subject":"About {slot}","to":["{slot}"],"from":"agent@example.com"}}"#,
                slot = slots[0]
            ),
            Kind::Intent => {
                let intent = format!(r#","intent":{{"type":"rig.wish","entity":"{self}"}}"#);
                email(&slots[0], &format!("Said in way {}.", turn % 3), &intent)
            }
            Kind::Batch => {
                let items: Vec<_> = slots.iter().map(|slot| email(slot, "One of many.", "")).collect();
                format!("[{}]", items.join(","))
            }
        }
    }

    /// Appends the whole request.
    pub fn write(&self, turn: u64, out: &mut Vec<u8>) {
        let body = self.body(turn);
        let path = if self.kind == Kind::Batch { "/v1/emails/batch" } else { "/v1/emails" };
        let mut head = format!("POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {API_KEY}\r\n");
        if self.kind != Kind::Intent {
            // Writing to a `String` cannot fail.
            let _infallible = write!(head, "Idempotency-Key: {self}\r\n");
        }
        let length = body.len();
        let _infallible = write!(head, "Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n");
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(body.as_bytes());
    }
}

fn email(to: &str, words: &str, more: &str) -> String {
    format!(
        r#"{{"from":"agent@example.com","to":"{to}","subject":"About {to}","text":"{words}\nThis is about {to}."{more}}}"#
    )
}

#[cfg(test)]
mod tests {
    use super::{Kind, Wish, wish};
    use std::collections::BTreeMap;

    #[test]
    fn every_kind_and_every_repeat_occurs() {
        let (mut kinds, mut earlier, mut repeated) = (BTreeMap::new(), 0, 0);
        let mut seen = std::collections::BTreeSet::new();
        for n in 0..1000 {
            let wish = wish(7, 3, n);
            *kinds.entry(wish.kind).or_insert(0) += 1;
            earlier += usize::from(wish.cycle < 3);
            repeated += usize::from(!seen.insert(wish));
        }
        assert!(kinds[&Kind::Single] > 400 && kinds[&Kind::Intent] > 80 && kinds[&Kind::Batch] > 10);
        assert!(earlier > 20 && repeated > 150, "{earlier} earlier, {repeated} repeated");
    }

    #[test]
    fn bodies_are_json_and_slots_lead_back() {
        for n in 0..300 {
            let wish = wish(1, 0, n);
            for turn in 0..3 {
                serde_json::from_str::<serde_json::Value>(&wish.body(turn)).unwrap();
            }
            for slot in wish.slots() {
                assert_eq!(Wish::of_slot(&slot), Some(wish));
            }
        }
    }
}

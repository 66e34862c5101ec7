//! The accepted mails and the remembered keys.

use sha2::{Digest as _, Sha256};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    time::{Duration, Instant},
};

use super::Vendor;

/// An accepted mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedMail {
    /// The vendor.
    pub vendor: Vendor,
    /// The vendor's id for it.
    pub id: String,
    /// Its key.
    pub key: Option<String>,
    /// Its Message-ID.
    pub message_id: Option<String>,
    /// The correlation id by which mailonce finds it.
    pub correlation: Option<String>,
    /// Recipients without names, sorted.
    pub recipients: Vec<String>,
    /// The SHA-256 of the request body in hexadecimal.
    pub body_hash: String,
}

/// A remembered key.
pub(super) struct KnownKey {
    pub(super) body_hash: String,
    pub(super) id: String,
    bound_at: Instant,
}

#[derive(Default)]
pub(super) struct VendorLedger {
    pub(super) accepted: Vec<AcceptedMail>,
    /// When each mail was accepted.
    accepted_at: Vec<Instant>,
    /// How long a look-up does not find a new mail.
    lookup_lag: Duration,
    keys: BTreeMap<(Vendor, String), KnownKey>,
}

/// The fields that a vendor reads from a request.
#[derive(Default)]
pub(super) struct VendorMail {
    pub(super) key: Option<String>,
    pub(super) message_id: Option<String>,
    pub(super) correlation: Option<String>,
    pub(super) recipients: Vec<String>,
}

impl VendorLedger {
    /// An empty ledger whose look-ups lag behind.
    pub(super) fn with_lag(lag: Duration) -> Self {
        Self { lookup_lag: lag, ..Self::default() }
    }

    /// A key that the vendor still remembers.
    pub(super) fn known_key(&self, vendor: Vendor, key: &str, window: Duration) -> Option<&KnownKey> {
        self.keys.get(&(vendor, key.to_owned())).filter(|known| known.bound_at.elapsed() < window)
    }

    /// Forgets every key.
    pub(super) fn forget_keys(&mut self) {
        self.keys.clear();
    }

    /// Accepts a mail and gives it an id.
    pub(super) fn accept(&mut self, vendor: Vendor, read: VendorMail, body: &[u8]) -> String {
        let id = format!("00000000-0000-4000-8000-{:012}", self.accepted.len() + 1);
        let body_hash = sha256_hex(body);
        if let Some(key) = &read.key {
            let known = KnownKey { body_hash: body_hash.clone(), id: id.clone(), bound_at: Instant::now() };
            self.keys.insert((vendor, key.clone()), known);
        }
        let VendorMail { key, message_id, correlation, mut recipients } = read;
        recipients.sort_unstable();
        self.accepted_at.push(Instant::now());
        self.accepted.push(AcceptedMail {
            vendor,
            id: id.clone(),
            key,
            message_id,
            correlation,
            recipients,
            body_hash,
        });
        id
    }

    /// The result of a look-up.
    pub(super) fn found_by_lookup(&self, vendor: Vendor) -> impl Iterator<Item = &AcceptedMail> {
        let found = self.accepted.iter().zip(&self.accepted_at).filter(|(_, at)| at.elapsed() >= self.lookup_lag);
        found.map(|(taken, _)| taken).filter(move |taken| taken.vendor == vendor)
    }
}

/// SHA-256 in hexadecimal.
pub(in crate::sink) fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

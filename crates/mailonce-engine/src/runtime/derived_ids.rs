//! Identifiers derived from the install secret: stable across retries and restores, and impossible to guess.

use crate::{
    access::caller::Caller,
    outbound::{replay_cache::CachedEmail, send_receipt},
    runtime::context::Context,
};
use mailonce_core::{
    id::TeamId,
    key::Key,
    mutant,
    outbound::email::Email,
    problem::{Code, Problem},
};
use mailonce_mail::return_path::AttemptTag;
use uuid::Uuid;

impl Context {
    /// An idempotency key that is derived from an object, such as a draft. Without the install secret it can't be
    /// guessed.
    pub fn derived_key(&self, caller: &Caller, purpose: &str, id: Uuid, cycle: u32) -> Result<Key, Problem> {
        let parts: [&[u8]; 4] = [caller.team.id.0.as_bytes(), purpose.as_bytes(), id.as_bytes(), &cycle.to_be_bytes()];
        let mac = self.secret.mac("own-key", &parts);
        let text = format!("{purpose}_{id}_{}", crate::runtime::hex::hex(&mac[..16]));
        Key::parse(&text).map_err(|error| Problem::new(Code::Internal, error.to_string()))
    }

    /// The Message-ID of an email, with angle brackets.
    pub fn message_id(&self, email: &Email) -> String {
        let mut cached = CachedEmail::from(email);
        if mutant!("message-id-anew") {
            cached.bind_number += email.rev;
        }
        send_receipt::message_id(&self.secret, email.team, &cached)
    }

    /// The marker by which a team's own mail is recognized when it comes back. It is the same for all emails of a
    /// team, and also after a restore. Copying it gains nothing: it can only suppress a reply.
    pub(crate) fn loop_mark(&self, team: TeamId) -> String {
        let mac = self.secret.mac("loop", &[team.0.as_bytes()]);
        crate::runtime::hex::hex(&mac[..16])
    }

    /// The idempotency key for the provider: a UUID, which fits every provider's limits. It is derived from the
    /// email's key and bind number, so it stays the same even after a restore. Without a key it is derived from the
    /// email's id.
    pub(crate) fn downstream_key(&self, email: &Email, number: u16) -> Uuid {
        let number = number.to_be_bytes();
        let team = email.team.0.as_bytes();
        let mac = match &email.head.key {
            Some(key) => {
                let bind = if mutant!("bind-ignored") { 1 } else { email.bind_number };
                let (hash, bind) = (key.hash(email.team), bind.to_be_bytes());
                self.secret.mac("downstream-key", &[team, &hash.0, &bind, &number])
            }
            None => self.secret.mac("downstream-key", &[team, email.id.0.as_bytes(), &number]),
        };
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&mac[..16]);
        // Formatted as a random (version 4) UUID, because strict providers accept no other.
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }

    /// The envelope sender and the ENVID of an attempt. They identify the handoff and the attempt in a bounce.
    pub fn return_path(&self, email: &Email, number: u16, attempt: u32) -> (String, String) {
        let mac = self.secret.mac("return-path", &[&AttemptTag::mac_payload(email.id, number, attempt)]);
        let tag = AttemptTag::new(email.id, number, attempt, &mac);
        let path = self.deps.bounce_domain.as_ref().map(|domain| tag.return_path(domain));
        (path.unwrap_or_else(|| email.head.from.clone()), tag.envelope_id())
    }
}

//! Frozen bytes: what every attempt by a transport sends, made once and kept with the first marker.

use mailonce_core::{
    email::Email,
    mutant,
    port::{
        store::Leased,
        transport::{Mail, Wire},
    },
};
use mailonce_mail::{
    compose::{self, Letter},
    return_path::Tag,
};
use std::sync::Arc;
use uuid::Uuid;

use crate::{Engine, pack, signers::Unsigned, ways::Way};

impl Engine {
    /// The bytes for a handoff's transport, and whether they were made just now.
    pub(crate) async fn frozen(&self, way: &Way, leased: &Leased) -> Result<(Arc<[u8]>, bool), Unsigned> {
        if let Some(wire) = leased.wire.as_ref().filter(|_| !mutant!("bytes-made-anew")) {
            return Ok((wire.as_slice().into(), false));
        }
        let never = |why: &str| Unsigned::Never(why.to_owned());
        let packed = leased.body.as_deref().ok_or_else(|| never("the body is no longer kept"))?;
        let content = pack::unpack(packed).ok_or_else(|| never("the body cannot be read"))?;
        let email = &leased.email;
        let message_id = self.message_id(email);
        let date = if mutant!("bytes-made-anew") { self.now() } else { email.head.created_at };
        let mime = match way.capability().wire {
            Wire::Content => None,
            Wire::Mime => {
                let letter = Letter {
                    content: &content,
                    message_id: &message_id,
                    date,
                    id: email.id,
                    in_reply_to: &[],
                    references: &[],
                    auto_submitted: None,
                };
                let plain = compose::compose(&letter)
                    .map_err(|error| never(&format!("the mail cannot be composed: {error}")))?;
                Some(self.signed(email, plain).await?)
            }
        };
        let mail = Mail {
            id: email.id,
            content: &content,
            message_id: &message_id,
            created_at: date,
            key: self.downstream_key(email, leased.number),
            mime: mime.as_deref(),
        };
        let bytes = way.transport.freeze(&mail).map_err(|unfit| never(&unfit.to_string()))?;
        Ok((bytes.into(), true))
    }

    /// The key passed downstream: a UUID, which fits every provider's limits. The same again for the same key and
    /// bind number, even after a restore; without a key it follows from the email's id.
    pub(crate) fn downstream_key(&self, email: &Email, number: u16) -> Uuid {
        let number = number.to_be_bytes();
        let team = email.team.0.as_bytes();
        let mac = match &email.head.key {
            Some(name) => {
                let bind = if mutant!("bind-ignored") { 1 } else { email.bind };
                let bind = if mutant!("downstream-key-anew") { email.rev } else { bind };
                let (hash, bind) = (name.hash(email.team), bind.to_be_bytes());
                self.secret.mac("downstream-key", &[team, &hash.0, &bind, &number])
            }
            None => self.secret.mac("downstream-key", &[team, email.id.0.as_bytes(), &number]),
        };
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&mac[..16]);
        // In the form of a random UUID, because strict providers take no other.
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }

    /// The envelope's sender and the ENVID of an attempt: a bounce names its recipient and attempt.
    pub(crate) fn return_path(&self, email: &Email, number: u16, attempt: u32) -> (String, String) {
        let mac = self.secret.mac("return-path", &[&Tag::claim(email.id, number, attempt)]);
        let tag = Tag::new(email.id, number, attempt, &mac);
        let path = self.outside.bounce_domain.as_ref().map(|domain| tag.return_path(domain));
        (path.unwrap_or_else(|| email.head.from.clone()), tag.envelope_id())
    }
}

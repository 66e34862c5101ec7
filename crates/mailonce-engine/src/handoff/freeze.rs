//! Frozen bytes: what every attempt at a transport sends. They are created once and stored with the first marker.

use mailonce_core::{
    handoff::{capabilities::PayloadFormat, lease::LeasedHandoff, transport_request::OutboundMail},
    id::TeamId,
    mutant,
    outbound::{content::EmailContent, email::Email},
    time::Time,
};
use mailonce_mail::{
    compose::{self, AutoSubmitted, ComposeInput, LOOP_HEADER},
    return_path::AttemptTag,
};
use std::sync::Arc;
use uuid::Uuid;

use crate::{
    Engine,
    handoff::{signers::FreezeError, transport_selector::OutboundRoute},
};

/// The headers of a reply that the composer writes itself.
#[derive(Default)]
struct ReplyHeaders {
    in_reply_to: Vec<String>,
    references: Vec<String>,
    automatic: bool,
}

/// Removes the headers that were added when a reply was accepted. Other emails keep the headers of their callers.
fn take_reply_headers(email: &Email, content: &mut EmailContent) -> ReplyHeaders {
    if email.head.answers.is_none() {
        return ReplyHeaders::default();
    }
    let mut take = |name: &str| {
        let at = content.headers.iter().position(|(known, _)| known.eq_ignore_ascii_case(name))?;
        Some(content.headers.remove(at).1)
    };
    let ids = |text: Option<String>| -> Vec<String> {
        let text = text.unwrap_or_default();
        text.split_whitespace().filter(|id| compose::is_message_id(id)).map(str::to_owned).collect()
    };
    ReplyHeaders {
        in_reply_to: ids(take("In-Reply-To")),
        references: ids(take("References")),
        automatic: take("Auto-Submitted").is_some(),
    }
}

impl Engine {
    /// The bytes for a handoff's transport, and whether they were created just now.
    pub(crate) async fn load_or_freeze(
        &self,
        way: &OutboundRoute,
        leased: &LeasedHandoff,
    ) -> Result<(Arc<[u8]>, bool), FreezeError> {
        let never = |why: &str| FreezeError::Permanent(why.to_owned());
        if let Some(wire) = leased.frozen_bytes.as_ref().filter(|_| !mutant!("bytes-made-anew")) {
            let bytes = self.packer.unpack_frozen(wire).ok_or_else(|| never("the frozen mail cannot be opened"))?;
            return Ok((bytes.into(), false));
        }
        let packed = leased.body.as_deref().ok_or_else(|| never("the body is no longer kept"))?;
        let mut content = self.packer.unpack(packed).ok_or_else(|| never("the body cannot be read"))?;
        let email = &leased.email;
        let message_id = self.message_id(email);
        let date = if mutant!("bytes-made-anew") { self.now() } else { email.head.created_at };
        let mime = match way.capability().payload_format {
            // The provider composes the message, so it gets the loop marker as a header.
            PayloadFormat::Content => {
                content.headers.push((LOOP_HEADER.to_owned(), self.loop_mark(email.team)));
                None
            }
            PayloadFormat::Mime => {
                let plain = self.compose_mime(email, &mut content, date);
                let plain = plain.map_err(|error| never(&format!("the mail cannot be composed: {error}")))?;
                Some(self.sign_email(email, plain).await?)
            }
        };
        let mail = OutboundMail {
            id: email.id,
            content: &content,
            message_id: &message_id,
            created_at: date,
            key: self.downstream_key(email, leased.handoff),
            mime: mime.as_deref(),
        };
        let bytes = way.transport.freeze(&mail).map_err(|unfit| never(&unfit.to_string()))?;
        Ok((bytes.into(), true))
    }

    /// Composes the unsigned MIME message. Headers that the composer writes itself are removed from `content`.
    pub(crate) fn compose_mime(
        &self,
        email: &Email,
        content: &mut EmailContent,
        date: Time,
    ) -> Result<Vec<u8>, compose::ComposeError> {
        let answer = take_reply_headers(email, content);
        compose::compose(&ComposeInput {
            content,
            message_id: &self.message_id(email),
            date,
            id: email.id,
            in_reply_to: &answer.in_reply_to,
            references: &answer.references,
            auto_submitted: answer.automatic.then_some(AutoSubmitted::Replied),
            loop_marker: Some(&self.loop_mark(email.team)),
        })
    }

    /// The marker by which a team's own mail is recognized when it comes back. It is the same for all emails of a
    /// team, and also after a restore. Copying it gains nothing: it can only suppress a reply.
    pub(crate) fn loop_mark(&self, team: TeamId) -> String {
        let mac = self.secret.mac("loop", &[team.0.as_bytes()]);
        crate::hex(&mac[..16])
    }

    /// The idempotency key for the provider: a UUID, which fits every provider's limits. It is derived from the
    /// email's key and bind number, so it stays the same even after a restore. Without a key it is derived from the
    /// email's id.
    pub(crate) fn downstream_key(&self, email: &Email, number: u16) -> Uuid {
        let number = number.to_be_bytes();
        let team = email.team.0.as_bytes();
        let mac = match &email.head.key {
            Some(name) => {
                let bind = if mutant!("bind-ignored") { 1 } else { email.bind_number };
                let bind = if mutant!("downstream-key-anew") { email.rev } else { bind };
                let (hash, bind) = (name.hash(email.team), bind.to_be_bytes());
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

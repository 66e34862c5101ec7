//! Frozen bytes: what every attempt by a transport sends, made once and kept with the first marker.

use mailonce_core::{
    content::Content,
    email::Email,
    id::TeamId,
    mutant,
    port::{
        store::Leased,
        transport::{Mail, Wire},
    },
    time::Time,
};
use mailonce_mail::{
    compose::{self, AutoSubmitted, LOOP_FIELD, Letter},
    return_path::Tag,
};
use std::sync::Arc;
use uuid::Uuid;

use crate::{Engine, signers::Unsigned, ways::Way};

/// What of an answer's head the composer writes itself.
#[derive(Default)]
struct AnswerHead {
    in_reply_to: Vec<String>,
    references: Vec<String>,
    automatic: bool,
}

/// Takes from an answer's headers what was put there when it was accepted. Other mails keep what their callers wrote.
fn answer_head(email: &Email, content: &mut Content) -> AnswerHead {
    if email.head.answers.is_none() {
        return AnswerHead::default();
    }
    let mut take = |name: &str| {
        let at = content.headers.iter().position(|(known, _)| known.eq_ignore_ascii_case(name))?;
        Some(content.headers.remove(at).1)
    };
    let ids = |text: Option<String>| -> Vec<String> {
        let text = text.unwrap_or_default();
        text.split_whitespace().filter(|id| compose::is_message_id(id)).map(str::to_owned).collect()
    };
    AnswerHead {
        in_reply_to: ids(take("In-Reply-To")),
        references: ids(take("References")),
        automatic: take("Auto-Submitted").is_some(),
    }
}

impl Engine {
    /// The bytes for a handoff's transport, and whether they were made just now.
    pub(crate) async fn frozen(&self, way: &Way, leased: &Leased) -> Result<(Arc<[u8]>, bool), Unsigned> {
        let never = |why: &str| Unsigned::Never(why.to_owned());
        if let Some(wire) = leased.wire.as_ref().filter(|_| !mutant!("bytes-made-anew")) {
            let bytes = self.bodies.unpack_frozen(wire).ok_or_else(|| never("the frozen mail cannot be opened"))?;
            return Ok((bytes.into(), false));
        }
        let packed = leased.body.as_deref().ok_or_else(|| never("the body is no longer kept"))?;
        let mut content = self.bodies.unpack(packed).ok_or_else(|| never("the body cannot be read"))?;
        let email = &leased.email;
        let message_id = self.message_id(email);
        let date = if mutant!("bytes-made-anew") { self.now() } else { email.head.created_at };
        let mime = match way.capability().wire {
            // The provider writes the mail, so it is told what to put into its head.
            Wire::Content => {
                content.headers.push((LOOP_FIELD.to_owned(), self.loop_mark(email.team)));
                None
            }
            Wire::Mime => {
                let plain = self.composed(email, &mut content, date);
                let plain = plain.map_err(|error| never(&format!("the mail cannot be composed: {error}")))?;
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

    /// A mail as it is before anybody signs it. What the composer writes itself is taken out of its headers.
    pub(crate) fn composed(
        &self,
        email: &Email,
        content: &mut Content,
        date: Time,
    ) -> Result<Vec<u8>, compose::ComposeError> {
        let answer = answer_head(email, content);
        compose::compose(&Letter {
            content,
            message_id: &self.message_id(email),
            date,
            id: email.id,
            in_reply_to: &answer.in_reply_to,
            references: &answer.references,
            auto_submitted: answer.automatic.then_some(AutoSubmitted::Replied),
            loop_mark: Some(&self.loop_mark(email.team)),
        })
    }

    /// By which a team's own mail is known when it comes round. The same for every mail, so that it is the same again
    /// after a restore, and of no use to whoever copies it: it can only keep an answer from being sent.
    pub(crate) fn loop_mark(&self, team: TeamId) -> String {
        let mac = self.secret.mac("loop", &[team.0.as_bytes()]);
        crate::hex(&mac[..16])
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
    pub fn return_path(&self, email: &Email, number: u16, attempt: u32) -> (String, String) {
        let mac = self.secret.mac("return-path", &[&Tag::claim(email.id, number, attempt)]);
        let tag = Tag::new(email.id, number, attempt, &mac);
        let path = self.outside.bounce_domain.as_ref().map(|domain| tag.return_path(domain));
        (path.unwrap_or_else(|| email.head.from.clone()), tag.envelope_id())
    }
}

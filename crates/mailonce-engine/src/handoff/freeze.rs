//! Frozen bytes: what every attempt at a transport sends. They are created once and stored with the first marker.

use crate::{
    access::sending_domains::FreezeError,
    handoff::{Handoffs, transport_selector::OutboundRoute},
};
use mailonce_core::{
    handoff::{capabilities::PayloadFormat, lease::LeasedHandoff, transport_request::OutboundMail},
    outbound::{content::EmailContent, email::Email},
    problem::Code,
    time::Time,
};
use mailonce_mail::compose::{self, AutoSubmitted, ComposeInput, LOOP_HEADER};
use std::sync::Arc;

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

impl Handoffs {
    /// The bytes for a handoff's transport, and whether they were created just now.
    pub(crate) async fn load_or_freeze(
        &self,
        route: &OutboundRoute,
        leased: &LeasedHandoff,
    ) -> Result<(Arc<[u8]>, bool), FreezeError> {
        let permanent = |why: &str| FreezeError::Permanent(why.to_owned());
        self.check_suppressions(leased).await?;
        if let Some(frozen_bytes) = &leased.frozen_bytes {
            let bytes = self
                .ctx
                .packer
                .open_frozen(frozen_bytes)
                .ok_or_else(|| permanent("the frozen bytes cannot be decrypted"))?;
            return Ok((bytes.into(), false));
        }
        let packed = leased.body.as_deref().ok_or_else(|| permanent("the body is no longer stored"))?;
        let mut content =
            self.ctx.packer.unpack(packed).ok_or_else(|| permanent("the stored body cannot be decoded"))?;
        let email = &leased.email;
        let plain_headers = content.headers.clone();
        let headers_added = self.control.add_unsubscribe_headers(email.team, &mut content).await;
        let has_link = headers_added.map_err(|error| FreezeError::Temporary(error.to_string()))?;
        let message_id = self.ctx.message_id(email);
        let date = email.head.created_at;
        let mime = match route.capability().payload_format {
            // The provider composes the message, so it gets the loop marker as a header.
            PayloadFormat::Content => {
                content.headers.push((LOOP_HEADER.to_owned(), self.ctx.loop_mark(email.team)));
                None
            }
            PayloadFormat::Mime => {
                let plain = self.compose_mime(email, &mut content, date);
                let plain = plain.map_err(|error| permanent(&format!("the email cannot be composed: {error}")))?;
                Some(self.access.domains.sign_email(email, plain).await?)
            }
        };
        let freeze = |content: &EmailContent| {
            route.transport.freeze(&OutboundMail {
                id: email.id,
                content,
                message_id: &message_id,
                created_at: date,
                key: self.ctx.downstream_key(email, leased.handoff),
                mime: mime.as_deref(),
            })
        };
        let frozen = freeze(&content).or_else(|unfit| {
            if !has_link {
                return Err(unfit);
            }
            // Some transports carry no headers. Without a link the email is better than none.
            content.headers = plain_headers;
            freeze(&content)
        });
        Ok((frozen.map_err(|unfit| permanent(&unfit.to_string()))?.into(), true))
    }

    /// Refuses a handoff to an address that was suppressed while the email waited. A handoff that may have arrived is
    /// not checked: it repeats the same bytes, so that the provider recognizes them.
    async fn check_suppressions(&self, leased: &LeasedHandoff) -> Result<(), FreezeError> {
        let email = &leased.email;
        let Some(handoff) = email.handoffs.get(usize::from(leased.handoff)) else { return Ok(()) };
        if handoff.is_in_doubt() {
            return Ok(());
        }
        let content = leased.body.as_deref().and_then(|body| self.ctx.packer.unpack(body));
        let tags = content.map(|content| content.tags).unwrap_or_default();
        match self.control.check_recipient_addresses(email.team, "recipient", &handoff.recipients, &tags).await {
            Err(problem) if problem.code == Code::RecipientSuppressed => Err(FreezeError::Permanent(problem.detail)),
            checked => checked.map_err(|problem| FreezeError::Temporary(problem.detail)),
        }
    }

    /// Composes the unsigned MIME message. Headers that the composer writes itself are removed from `content`.
    pub(crate) fn compose_mime(
        &self,
        email: &Email,
        content: &mut EmailContent,
        date: Time,
    ) -> Result<Vec<u8>, compose::ComposeError> {
        let reply_headers = take_reply_headers(email, content);
        compose::compose(&ComposeInput {
            content,
            message_id: &self.ctx.message_id(email),
            date,
            id: email.id,
            in_reply_to: &reply_headers.in_reply_to,
            references: &reply_headers.references,
            auto_submitted: reply_headers.automatic.then_some(AutoSubmitted::Replied),
            loop_marker: Some(&self.ctx.loop_mark(email.team)),
        })
    }
}

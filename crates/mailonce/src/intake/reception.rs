//! The engine at the SMTP door: whom mail is for, and that it is kept before anybody says `250`.

use async_trait::async_trait;
use mailonce_core::delivery::{Form, Intake};
use mailonce_engine::{
    Engine,
    receive::{Incoming, Place},
};
use std::sync::Arc;

use super::smtp::{Mail, NotTaken, Reception, Verdict};

/// The engine, as the listener sees it.
pub struct FrontDesk(pub Arc<Engine>);

#[async_trait]
impl Reception for FrontDesk {
    async fn recipient(&self, sender: &str, address: &str) -> Verdict {
        match self.0.place_of(Some(sender), address).await {
            Ok(Place::Inbox(_) | Place::Return(..)) => Verdict::Here,
            Ok(Place::Unknown) => Verdict::Unknown,
            Ok(Place::Expired(_)) => Verdict::Expired,
            Ok(Place::Blocked(_)) => Verdict::Blocked,
            Ok(Place::Elsewhere) => Verdict::Elsewhere,
            Err(error) => {
                tracing::warn!(%error, "looking for an inbox");
                Verdict::Trouble
            }
        }
    }

    async fn take(&self, mail: Mail) -> Result<(), NotTaken> {
        let accepted = mail.recipients.len();
        let incoming = Incoming {
            intake: Intake::Smtp,
            source: None,
            name: None,
            ip: Some(mail.ip),
            helo: Some(mail.helo),
            sender: Some(mail.sender),
            recipients: mail.recipients,
            form: Form::Mime,
            raw: mail.raw.into(),
        };
        let received = self.0.take_mail(incoming).await.map_err(|error| {
            tracing::warn!(%error, "keeping a mail");
            NotTaken::Trouble
        })?;
        match received.iter().filter(|received| received.is_taken()).count() {
            taken if taken == accepted => Ok(()),
            0 => Err(NotTaken::AllGone),
            _ => Err(NotTaken::SomeGone),
        }
    }
}

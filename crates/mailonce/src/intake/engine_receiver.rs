//! Connects the SMTP listener to the engine: routes recipients, and commits a mail before the listener answers `250`.

use async_trait::async_trait;
use mailonce_core::inbound::delivery::{DeliveryFormat, Intake};
use mailonce_engine::{
    Engine,
    inbound::receive::{IntakeMail, RecipientRoute},
};
use std::sync::Arc;

use super::smtp::{MailReceiver, NotAccepted, ReceivedMail, RecipientStatus};

/// The engine as the listener's mail receiver.
pub struct EngineReceiver(pub Arc<Engine>);

#[async_trait]
impl MailReceiver for EngineReceiver {
    async fn check_recipient(&self, sender: &str, address: &str) -> RecipientStatus {
        match self.0.inbound.route_recipient(Some(sender), address).await {
            Ok(RecipientRoute::Inbox(_) | RecipientRoute::ReturnPath(..)) => RecipientStatus::Accepted,
            Ok(RecipientRoute::UnknownInbox) => RecipientStatus::Unknown,
            Ok(RecipientRoute::Expired(_)) => RecipientStatus::Expired,
            Ok(RecipientRoute::Blocked(_)) => RecipientStatus::Blocked,
            Ok(RecipientRoute::NotLocal) => RecipientStatus::NotLocal,
            Err(error) => {
                tracing::warn!(%error, "routing a recipient failed; the sender is told to try again");
                RecipientStatus::TemporaryError
            }
        }
    }

    async fn accept(&self, mail: ReceivedMail) -> Result<(), NotAccepted> {
        let recipient_count = mail.recipients.len();
        let incoming = IntakeMail {
            intake: Intake::Smtp,
            source: None,
            provider_delivery_id: None,
            ip: Some(mail.ip),
            helo: Some(mail.helo),
            sender: Some(mail.sender),
            recipients: mail.recipients,
            form: DeliveryFormat::Mime,
            raw: mail.raw.into(),
        };
        let received = self.0.inbound.receive_mail(incoming).await.map_err(|error| {
            tracing::warn!(%error, "storing a mail failed; the sender is told to try again");
            NotAccepted::TemporaryError
        })?;
        match received.iter().filter(|received| received.is_accepted()).count() {
            stored if stored == recipient_count => Ok(()),
            0 => Err(NotAccepted::AllRecipientsGone),
            _ => Err(NotAccepted::SomeRecipientsGone),
        }
    }
}

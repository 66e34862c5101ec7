//! The transport that delivers to inboxes of this installation. The sandbox uses it, so that two agents can exchange
//! mail without any configuration. It deduplicates by idempotency key for as long as deliveries are deduplicated.

use crate::{
    handoff::transport_selector::LOCAL_TRANSPORT,
    inbound::{Inbound, receive::IntakeMail},
};
use async_trait::async_trait;
use mailonce_core::{
    handoff::{
        capabilities::{HandoffSplit, PayloadFormat, RecoveryMethod, TransportCapabilities},
        reply::{AttemptPhase, ReplyMeaning, TransportReply},
        transport_request::{FrozenEnvelope, LookUpRequest, LookUpResult, OutboundMail, UnsupportedMail},
    },
    inbound::delivery::{DeliveryFormat, Intake},
    limits,
    ports::{
        store::StoreError,
        transport::{PreparedHandoff, Transport},
    },
};
use std::sync::{Arc, OnceLock, Weak};

/// How long a hand-off may take, in milliseconds. It is one commit.
const HANDOFF_TIMEOUT_MS: i64 = 30_000;

/// The transport that delivers to our own inboxes.
#[derive(Default)]
pub(crate) struct LocalTransport {
    inbound: OnceLock<Weak<Inbound>>,
}

impl LocalTransport {
    /// Sets the service that receives the mail. Only the first call has an effect.
    pub(crate) fn attach_inbound(&self, inbound: &Arc<Inbound>) {
        self.inbound.get_or_init(|| Arc::downgrade(inbound));
    }
}

struct LocalDelivery {
    inbound: Arc<Inbound>,
    envelope: FrozenEnvelope,
}

fn final_reply(meaning: ReplyMeaning, text: &str) -> TransportReply {
    TransportReply::new(meaning, AttemptPhase::Final, None, text)
}

#[async_trait]
impl PreparedHandoff for LocalDelivery {
    async fn hand_over(self: Box<Self>) -> TransportReply {
        let Self { inbound, envelope } = *self;
        let mail = IntakeMail {
            intake: Intake::Local,
            source: None,
            provider_delivery_id: Some(format!("{}:{}", envelope.key, envelope.handoff)),
            ip: None,
            helo: None,
            sender: Some(envelope.return_path),
            recipients: envelope.recipients,
            form: DeliveryFormat::Mime,
            raw: envelope.bytes.to_vec(),
        };
        match inbound.receive_mail(mail).await {
            Ok(received) if !received.iter().any(|received| received.is_accepted()) => {
                final_reply(ReplyMeaning::Accepted, "captured; no inbox accepts mail at this address")
            }
            Ok(_) => final_reply(ReplyMeaning::Accepted, "in the inbox"),
            Err(StoreError::Unreachable(why)) => {
                TransportReply::new(ReplyMeaning::Deferred, AttemptPhase::Final, None, &why)
            }
            Err(error) => final_reply(ReplyMeaning::Unknown, &error.to_string()),
        }
    }
}

#[async_trait]
impl Transport for LocalTransport {
    fn name(&self) -> &'static str {
        LOCAL_TRANSPORT
    }

    fn kind(&self) -> &'static str {
        "sandbox"
    }

    fn account(&self) -> &'static str {
        LOCAL_TRANSPORT
    }

    fn capabilities(&self) -> TransportCapabilities {
        TransportCapabilities {
            split: HandoffSplit::PerRecipient,
            payload_format: PayloadFormat::Mime,
            recovery: RecoveryMethod::IdempotencyKey { window_ms: limits::PROVIDER_DEDUP_MS },
            timeout_ms: HANDOFF_TIMEOUT_MS,
            max_concurrency: 16,
        }
    }

    fn freeze(&self, mail: &OutboundMail<'_>) -> Result<Vec<u8>, UnsupportedMail> {
        mail.mime.map(<[u8]>::to_vec).ok_or_else(|| UnsupportedMail("the mail was not composed".into()))
    }

    async fn prepare(&self, envelope: FrozenEnvelope) -> Result<Box<dyn PreparedHandoff>, TransportReply> {
        match self.inbound.get().and_then(Weak::upgrade) {
            Some(inbound) => Ok(Box::new(LocalDelivery { inbound, envelope })),
            None => Err(TransportReply::new(
                ReplyMeaning::Fault,
                AttemptPhase::Connect,
                None,
                "the server is shutting down",
            )),
        }
    }

    async fn look_up(&self, _: LookUpRequest) -> LookUpResult {
        LookUpResult::Unavailable("not supported; a retry with the same key is safe".into())
    }
}

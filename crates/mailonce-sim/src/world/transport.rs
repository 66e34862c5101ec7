//! The transport from a node's process to a next hop, and the network between them.

use super::plan::{FaultKind, HopProfile};
use crate::world::{mutants::ports, next_hop::SimulatedHop, node_process::NodeProcess};
use async_trait::async_trait;
use mailonce_core::{
    handoff::{
        capabilities::{HandoffSplit, PayloadFormat, RecoveryMethod, TransportCapabilities},
        reply::{AttemptPhase, ReplyMeaning, TransportReply},
        transport_request::{FrozenEnvelope, LookUpRequest, LookUpResult, OutboundMail, UnsupportedMail},
    },
    mutant,
    ports::transport::{PreparedHandoff, Transport},
};
use std::{sync::Arc, time::Duration};

/// How long an attempt may take, in milliseconds.
const HAND_OVER_TIMEOUT_MS: i64 = 2_000;
/// The age above which a connection is not used for a new request, in milliseconds.
const MAX_CONNECTION_AGE_MS: i64 = 60_000;

/// A transport to a next hop.
pub(super) struct SimulatedTransport {
    pub(super) hop: Arc<SimulatedHop>,
    pub(super) process: Arc<NodeProcess>,
    pub(super) account: String,
}

/// A request that is ready to be sent.
struct ReadyRequest {
    transport: Arc<TransportParts>,
    envelope: FrozenEnvelope,
    connected_at: i64,
}

/// What a request needs of its transport.
struct TransportParts {
    hop: Arc<SimulatedHop>,
    process: Arc<NodeProcess>,
    account: String,
}

#[async_trait]
impl Transport for SimulatedTransport {
    fn name(&self) -> &str {
        &self.hop.name
    }

    fn kind(&self) -> &'static str {
        match self.hop.class {
            HopProfile::Keyed(_) => "keyed",
            HopProfile::LookUp(_) => "asked",
            HopProfile::Keyless => "plain",
            HopProfile::Relay => "smtp",
        }
    }

    fn account(&self) -> &str {
        if mutant::is_on("any-account") { &self.hop.name } else { &self.account }
    }

    fn capabilities(&self) -> TransportCapabilities {
        let (shape, wire) = match self.hop.class {
            HopProfile::Relay => (HandoffSplit::PerRecipient, PayloadFormat::Mime),
            _ => (HandoffSplit::PerEmail, PayloadFormat::Content),
        };
        let recovery = match self.hop.class {
            HopProfile::Keyed(window_ms) => RecoveryMethod::IdempotencyKey { window_ms },
            HopProfile::LookUp(settle_ms) => RecoveryMethod::LookUp { settle_delay_ms: settle_ms },
            HopProfile::Keyless | HopProfile::Relay => RecoveryMethod::None,
        };
        ports::alter_capabilities(TransportCapabilities {
            split: shape,
            payload_format: wire,
            recovery,
            timeout_ms: HAND_OVER_TIMEOUT_MS,
            max_concurrency: 4,
        })
    }

    fn freeze(&self, mail: &OutboundMail<'_>) -> Result<Vec<u8>, UnsupportedMail> {
        if let Some(mime) = mail.mime {
            return Ok(mime.to_vec());
        }
        let content = serde_json::to_string(mail.content).map_err(|why| UnsupportedMail(why.to_string()))?;
        Ok(format!("Message-ID: {}\nDate: {}\n{content}", mail.message_id, mail.created_at).into_bytes())
    }

    async fn prepare(&self, mut envelope: FrozenEnvelope) -> Result<Box<dyn PreparedHandoff>, TransportReply> {
        ports::alter_request(&mut envelope);
        let shared = &self.process.shared;
        self.process.wait_while_paused().await;
        self.draw_latency().await;
        let relay = self.hop.class == HopProfile::Relay;
        if shared.draw_fault(FaultKind::Unreachable) {
            shared.record_fault(FaultKind::Unreachable, vec![envelope.email.to_string()]);
            return Err(TransportReply::new(ReplyMeaning::Fault, AttemptPhase::Connect, None, "nobody there"));
        }
        if relay && shared.draw_fault(FaultKind::Unauthorized) {
            shared.record_fault(FaultKind::Unauthorized, vec![envelope.email.to_string()]);
            return Err(TransportReply::new(ReplyMeaning::Fault, AttemptPhase::Login, Some(535), "not you"));
        }
        if relay && shared.below(2) == 0 && shared.draw_fault(FaultKind::Refuse) {
            shared.record_fault(FaultKind::Refuse, vec![envelope.email.to_string()]);
            return Err(TransportReply::new(ReplyMeaning::Refused, AttemptPhase::Rcpt, Some(550), "nobody here"));
        }
        if mutant::is_on("sent-on-approach") {
            self.hop.process_request(&envelope, &self.account);
        }
        let parts = TransportParts {
            hop: Arc::clone(&self.hop),
            process: Arc::clone(&self.process),
            account: self.account.clone(),
        };
        self.process.wait_while_paused().await;
        Ok(Box::new(ReadyRequest { transport: Arc::new(parts), envelope, connected_at: shared.elapsed_ms() }))
    }

    async fn look_up(&self, asked: LookUpRequest) -> LookUpResult {
        self.process.wait_while_paused().await;
        self.draw_latency().await;
        let shared = &self.process.shared;
        if shared.draw_fault(FaultKind::LookUp) {
            shared.record_fault(FaultKind::LookUp, vec![asked.email.to_string()]);
            return ports::alter_look_up(LookUpResult::Unavailable("not now".into()));
        }
        let found = self.hop.is_found_by_lookup(asked.email, asked.handoff);
        self.process.wait_while_paused().await;
        if found { LookUpResult::Found { remote_id: None, text: "it is here".into() } } else { LookUpResult::NotFound }
    }
}

impl SimulatedTransport {
    async fn draw_latency(&self) {
        let ms = self.process.shared.below(30);
        if ms > 10 {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
    }
}

#[async_trait]
impl PreparedHandoff for ReadyRequest {
    async fn hand_over(self: Box<Self>) -> TransportReply {
        self.transport.process.wait_while_paused().await;
        let old = self.transport.process.shared.elapsed_ms() - self.connected_at > MAX_CONNECTION_AGE_MS;
        if old && !mutant::is_on("old-connection-used") {
            return TransportReply::new(
                ReplyMeaning::Deferred,
                AttemptPhase::Data,
                None,
                "the connection grew too old; nothing was sent",
            );
        }
        let (body, email) = (Arc::clone(&self.transport.process), self.envelope.email.to_string());
        let to = self.envelope.recipients.clone();
        let reply = self.send().await;
        let ms = body.shared.below(40);
        if ms > 15 {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
        body.wait_while_paused().await;
        if matches!(reply.meaning, ReplyMeaning::Accepted | ReplyMeaning::Repeated) {
            body.record_accepted(email, to);
        }
        reply
    }
}

impl ReadyRequest {
    /// Sends a request through the network.
    async fn send(self: Box<Self>) -> TransportReply {
        let hop = Arc::clone(&self.transport.hop);
        hop.run_due(false);
        if mutant::is_on("sent-on-approach") {
            return TransportReply::new(
                ReplyMeaning::Accepted,
                AttemptPhase::Final,
                Some(250),
                "it went before its marker",
            );
        }
        let reply = match self.draw_fault() {
            None => self.reply_normally(),
            Some(kind) => self.reply_with_fault(kind).await,
        };
        if mutant::is_on("tries-again-by-itself") && reply.meaning == ReplyMeaning::Unknown {
            return self.reply_normally();
        }
        reply
    }

    /// The fault that affects it, if any.
    fn draw_fault(&self) -> Option<FaultKind> {
        use FaultKind as F;
        let shared = &self.transport.process.shared;
        let mut kinds = vec![F::LoseReply, F::LoseRequest, F::Stall, F::LateAccept, F::Defer, F::Refuse];
        match self.transport.hop.class {
            HopProfile::Keyed(_) => kinds.extend([F::ServerError, F::Unauthorized, F::Concurrent, F::Mismatch]),
            HopProfile::LookUp(_) | HopProfile::Keyless => kinds.extend([F::ServerError, F::Unauthorized]),
            HopProfile::Relay => {}
        }
        kinds.retain(|kind| shared.plan.has_fault(*kind));
        let kind = (!kinds.is_empty()).then(|| shared.pick(&kinds))?;
        shared.draw_fault(kind).then_some(kind)
    }

    fn reply_normally(&self) -> TransportReply {
        let TransportParts { hop, process: body, account } = &*self.transport;
        let meaning = hop.reply_for(hop.process_request(&self.envelope, account));
        if meaning == ReplyMeaning::Concurrent {
            body.shared.record_fault(FaultKind::Concurrent, vec![self.envelope.email.to_string()]);
        }
        TransportReply::new(meaning, AttemptPhase::Final, Some(250), "as it is")
    }

    async fn reply_with_fault(&self, kind: FaultKind) -> TransportReply {
        let TransportParts { hop, process: body, account } = &*self.transport;
        let shared = &body.shared;
        shared.record_fault(kind, vec![self.envelope.email.to_string()]);
        let reply = |meaning, code: Option<u16>| TransportReply::new(meaning, AttemptPhase::Final, code, kind.as_str());
        let maybe = || {
            if shared.below(2) == 0 {
                hop.process_request(&self.envelope, account);
            } else {
                hop.record_arrival(&self.envelope, false);
            }
        };
        match kind {
            FaultKind::LoseReply => {
                hop.process_request(&self.envelope, account);
                reply(ReplyMeaning::Unknown, None)
            }
            FaultKind::LoseRequest => reply(ReplyMeaning::Unknown, None),
            FaultKind::ServerError => {
                maybe();
                reply(ReplyMeaning::Unknown, Some(502))
            }
            FaultKind::Stall => {
                maybe();
                std::future::pending().await
            }
            FaultKind::LateAccept => {
                hop.accept_later(self.envelope.clone(), account);
                reply(ReplyMeaning::Unknown, None)
            }
            FaultKind::Defer => {
                hop.record_arrival(&self.envelope, false);
                let pause = shared.pick(&[None, Some(2_000), Some(30_000)]);
                reply(ReplyMeaning::Deferred, Some(451)).with_retry_after(pause)
            }
            FaultKind::Refuse => {
                hop.record_arrival(&self.envelope, false);
                reply(ReplyMeaning::Refused, Some(550))
            }
            FaultKind::Unauthorized => reply(ReplyMeaning::Fault, Some(401)),
            // A middlebox sent it twice, and this is the reply to the second.
            FaultKind::Concurrent => {
                maybe();
                reply(ReplyMeaning::Concurrent, Some(409))
            }
            _ => {
                maybe();
                reply(ReplyMeaning::Mismatch, Some(409))
            }
        }
    }
}

//! Addresses that fail on purpose, for demos and tests: `unknown@`, `bounce@`, `complain@`, `defer@`,
//! `refuse@` and `slow@sandbox.mailonce.test`, and the test addresses of other services. Nothing leaves the machine.
//!
//! Bounces and complaints arrive after acceptance, so this transport accepts `bounce@` and `complain@` like any other.

use async_trait::async_trait;
use mailonce_core::{
    handoff::{
        capabilities::{HandoffSplit, PayloadFormat, RecoveryMethod, TransportCapabilities},
        reply::{AttemptPhase, ReplyMeaning, TransportReply},
        transport_request::{FrozenEnvelope, LookUpRequest, LookUpResult, OutboundMail, UnsupportedMail},
    },
    outbound::test_recipient::TestRecipient,
    ports::transport::{PreparedHandoff, Transport},
};
use serde_json::json;
use std::time::Duration;

/// The domain of the addresses that fail on purpose.
pub const SANDBOX_DOMAIN: &str = "sandbox.mailonce.test";
/// How many attempts `defer@` defers before it accepts.
const DEFERRED_ATTEMPTS: u32 = 2;
/// Margin between the engine's timeout and the delay of `slow@`.
const TIMEOUT_MARGIN: Duration = Duration::from_secs(5);

/// A transport without a network that simulates failures by recipient address.
#[derive(Clone, Debug)]
pub struct SandboxFaultTransport {
    slow_delay: Duration,
}

impl Default for SandboxFaultTransport {
    fn default() -> Self {
        Self::new(Duration::from_secs(10))
    }
}

impl SandboxFaultTransport {
    /// `slow_delay` is how long `slow@` takes to answer.
    pub fn new(slow_delay: Duration) -> Self {
        Self { slow_delay }
    }
}

/// What the sandbox simulates for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SandboxBehavior {
    Accept,
    Defer,
    Refuse,
    Slow,
    Unknown,
}

impl SandboxBehavior {
    fn for_address(address: &str) -> Self {
        match address.rsplit_once('@') {
            Some((local, domain)) if domain.eq_ignore_ascii_case(SANDBOX_DOMAIN) => {
                match &*local.to_ascii_lowercase() {
                    "defer" => Self::Defer,
                    "refuse" => Self::Refuse,
                    "slow" => Self::Slow,
                    "unknown" => Self::Unknown,
                    _ => Self::Accept,
                }
            }
            _ if TestRecipient::parse(address) == Some(TestRecipient::Suppressed) => Self::Refuse,
            _ => Self::Accept,
        }
    }
}

struct PreparedSandboxHandoff {
    behavior: SandboxBehavior,
    envelope: FrozenEnvelope,
    slow_delay: Duration,
}

#[async_trait]
impl PreparedHandoff for PreparedSandboxHandoff {
    async fn hand_over(self: Box<Self>) -> TransportReply {
        let reply = |meaning, code, text| TransportReply::new(meaning, AttemptPhase::Final, code, text);
        match self.behavior {
            SandboxBehavior::Unknown => {
                return reply(ReplyMeaning::Unknown, None, "the sandbox simulates a lost reply");
            }
            SandboxBehavior::Defer if self.envelope.attempt <= DEFERRED_ATTEMPTS => {
                return reply(
                    ReplyMeaning::Deferred,
                    Some(451),
                    "4.7.1 the sandbox simulates a deferral, try again later",
                );
            }
            SandboxBehavior::Slow => tokio::time::sleep(self.slow_delay).await,
            SandboxBehavior::Accept | SandboxBehavior::Defer | SandboxBehavior::Refuse => {}
        }
        let id = format!("sandbox-{}-{}", self.envelope.email, self.envelope.handoff);
        reply(ReplyMeaning::Accepted, Some(250), "2.0.0 accepted by the sandbox").with_remote_id(Some(id))
    }
}

#[async_trait]
impl Transport for SandboxFaultTransport {
    fn name(&self) -> &'static str {
        "sandbox-faults"
    }

    fn kind(&self) -> &'static str {
        "sandbox"
    }

    fn account(&self) -> &'static str {
        "sandbox"
    }

    fn capabilities(&self) -> TransportCapabilities {
        TransportCapabilities {
            split: HandoffSplit::PerRecipient,
            payload_format: PayloadFormat::Content,
            recovery: RecoveryMethod::None,
            timeout_ms: i64::try_from((self.slow_delay + TIMEOUT_MARGIN).as_millis()).unwrap_or(i64::MAX),
            max_concurrency: 64,
        }
    }

    fn freeze(&self, mail: &OutboundMail<'_>) -> Result<Vec<u8>, UnsupportedMail> {
        Ok(json!({ "id": mail.id, "message_id": mail.message_id }).to_string().into_bytes())
    }

    async fn prepare(&self, envelope: FrozenEnvelope) -> Result<Box<dyn PreparedHandoff>, TransportReply> {
        let [recipient] = &envelope.recipients[..] else {
            return Err(TransportReply::new(
                ReplyMeaning::Refused,
                AttemptPhase::Rcpt,
                None,
                "the sandbox takes one recipient per envelope",
            ));
        };
        let behavior = SandboxBehavior::for_address(recipient);
        if behavior == SandboxBehavior::Refuse {
            return Err(TransportReply::new(
                ReplyMeaning::Refused,
                AttemptPhase::Rcpt,
                Some(550),
                "5.1.1 the sandbox refuses this address",
            ));
        }
        Ok(Box::new(PreparedSandboxHandoff { behavior, envelope, slow_delay: self.slow_delay }))
    }

    async fn look_up(&self, _asked: LookUpRequest) -> LookUpResult {
        LookUpResult::Unavailable("the sandbox has no lookup".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mailonce_core::id::{EmailId, TeamId};
    use std::sync::Arc;
    use tokio::time::Instant;

    fn frozen_envelope(to: &str, attempt: u32) -> FrozenEnvelope {
        let id = "00000000-0000-0000-0000-000000000001";
        FrozenEnvelope {
            team: id.parse::<TeamId>().unwrap(),
            email: id.parse::<EmailId>().unwrap(),
            handoff: 0,
            attempt,
            return_path: String::new(),
            envelope_id: String::new(),
            recipients: vec![to.to_owned()],
            key: id.parse::<EmailId>().unwrap().0,
            bytes: Arc::from(&b"{}"[..]),
        }
    }

    async fn send(to: &str, attempt: u32) -> TransportReply {
        match SandboxFaultTransport::default().prepare(frozen_envelope(to, attempt)).await {
            Ok(ready) => ready.hand_over().await,
            Err(reply) => reply,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_address_has_its_own_behavior() {
        for (to, attempt, meaning, code) in [
            ("refuse@sandbox.mailonce.test", 1, ReplyMeaning::Refused, Some(550)),
            ("refuse@sandbox.mailonce.test", 9, ReplyMeaning::Refused, Some(550)),
            ("defer@sandbox.mailonce.test", 1, ReplyMeaning::Deferred, Some(451)),
            ("defer@sandbox.mailonce.test", 2, ReplyMeaning::Deferred, Some(451)),
            ("defer@sandbox.mailonce.test", 3, ReplyMeaning::Accepted, Some(250)),
            ("unknown@sandbox.mailonce.test", 1, ReplyMeaning::Unknown, None),
            ("Unknown@Sandbox.Mailonce.Test", 3, ReplyMeaning::Unknown, None),
            ("bounce@sandbox.mailonce.test", 1, ReplyMeaning::Accepted, Some(250)),
            ("complain@sandbox.mailonce.test", 1, ReplyMeaning::Accepted, Some(250)),
            ("slow@sandbox.mailonce.test", 1, ReplyMeaning::Accepted, Some(250)),
            ("unknown@elsewhere.test", 1, ReplyMeaning::Accepted, Some(250)),
        ] {
            let reply = send(to, attempt).await;
            assert_eq!((reply.meaning, reply.code), (meaning, code), "{to} at attempt {attempt}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_slow_is_slow_and_only_after_the_point_of_no_return() {
        let begun = Instant::now();
        let ready =
            SandboxFaultTransport::default().prepare(frozen_envelope("slow@sandbox.mailonce.test", 1)).await.unwrap();
        assert_eq!(begun.elapsed(), Duration::ZERO);
        ready.hand_over().await;
        assert_eq!(begun.elapsed(), Duration::from_secs(10));
        send("bounce@sandbox.mailonce.test", 1).await;
        assert_eq!(begun.elapsed(), Duration::from_secs(10));
    }
}

//! The addresses that misbehave on purpose, for demos and tests: `unknown@`, `bounce@`, `complain@`, `defer@`,
//! `refuse@` and `slow@sandbox.mailonce.test`. Nothing leaves the machine.
//!
//! Bounces and complaints come after a mail was taken, so that here they are taken like any other.

use async_trait::async_trait;
use mailonce_core::port::transport::{
    Asked, Capability, Found, Mail, Meaning, Parcel, Phase, Ready, Recovery, Reply, Shape, Transport, Unfit, Wire,
};
use serde_json::json;
use std::time::Duration;

/// Where the addresses that misbehave live.
pub const DOMAIN: &str = "sandbox.mailonce.test";
/// Attempts that `defer@` puts off.
const DEFERRED: u32 = 2;
/// What the engine's patience has above the slow address.
const MARGIN: Duration = Duration::from_secs(5);

/// The way out to the addresses that misbehave.
#[derive(Clone, Debug)]
pub struct SandboxFaults {
    slow: Duration,
}

impl Default for SandboxFaults {
    fn default() -> Self {
        Self::new(Duration::from_secs(10))
    }
}

impl SandboxFaults {
    /// With the time that `slow@` takes.
    pub fn new(slow: Duration) -> Self {
        Self { slow }
    }
}

/// How an address misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Accept,
    Defer,
    Refuse,
    Slow,
    Unknown,
}

impl Manner {
    fn of(address: &str) -> Self {
        match address.rsplit_once('@') {
            Some((local, domain)) if domain.eq_ignore_ascii_case(DOMAIN) => match &*local.to_ascii_lowercase() {
                "defer" => Self::Defer,
                "refuse" => Self::Refuse,
                "slow" => Self::Slow,
                "unknown" => Self::Unknown,
                _ => Self::Accept,
            },
            _ => Self::Accept,
        }
    }
}

struct Armed {
    manner: Manner,
    parcel: Parcel,
    slow: Duration,
}

#[async_trait]
impl Ready for Armed {
    async fn hand_over(self: Box<Self>) -> Reply {
        let reply = |meaning, code, text| Reply::new(meaning, Phase::Final, code, text);
        match self.manner {
            Manner::Unknown => return reply(Meaning::Unknown, None, "the sandbox does not tell"),
            Manner::Defer if self.parcel.attempt <= DEFERRED => {
                return reply(Meaning::Deferred, Some(451), "4.7.1 the sandbox asks to come again");
            }
            Manner::Slow => tokio::time::sleep(self.slow).await,
            Manner::Accept | Manner::Defer | Manner::Refuse => {}
        }
        let id = format!("sandbox-{}-{}", self.parcel.email, self.parcel.handoff);
        reply(Meaning::Accepted, Some(250), "2.0.0 taken by the sandbox").named(Some(id))
    }
}

#[async_trait]
impl Transport for SandboxFaults {
    fn name(&self) -> &'static str {
        "sandbox-faults"
    }

    fn kind(&self) -> &'static str {
        "sandbox"
    }

    fn account(&self) -> &'static str {
        "sandbox"
    }

    fn capability(&self) -> Capability {
        Capability {
            shape: Shape::PerRecipient,
            wire: Wire::Content,
            recovery: Recovery::None,
            patience_ms: i64::try_from((self.slow + MARGIN).as_millis()).unwrap_or(i64::MAX),
            at_once: 64,
        }
    }

    fn freeze(&self, mail: &Mail<'_>) -> Result<Vec<u8>, Unfit> {
        Ok(json!({ "id": mail.id, "message_id": mail.message_id }).to_string().into_bytes())
    }

    async fn approach(&self, parcel: Parcel) -> Result<Box<dyn Ready>, Reply> {
        let [recipient] = &parcel.recipients[..] else {
            return Err(Reply::new(
                Meaning::Refused,
                Phase::Rcpt,
                None,
                "an envelope of the sandbox has one recipient",
            ));
        };
        let manner = Manner::of(recipient);
        if manner == Manner::Refuse {
            return Err(Reply::new(Meaning::Refused, Phase::Rcpt, Some(550), "5.1.1 the sandbox refuses this address"));
        }
        Ok(Box::new(Armed { manner, parcel, slow: self.slow }))
    }

    async fn look_up(&self, _asked: Asked) -> Found {
        Found::Silent("the sandbox cannot be asked".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mailonce_core::id::{EmailId, TeamId};
    use std::sync::Arc;
    use tokio::time::Instant;

    fn parcel(to: &str, attempt: u32) -> Parcel {
        let id = "00000000-0000-0000-0000-000000000001";
        Parcel {
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

    async fn send(to: &str, attempt: u32) -> Reply {
        match SandboxFaults::default().approach(parcel(to, attempt)).await {
            Ok(ready) => ready.hand_over().await,
            Err(reply) => reply,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_address_misbehaves_in_its_own_way() {
        for (to, attempt, meaning, code) in [
            ("refuse@sandbox.mailonce.test", 1, Meaning::Refused, Some(550)),
            ("refuse@sandbox.mailonce.test", 9, Meaning::Refused, Some(550)),
            ("defer@sandbox.mailonce.test", 1, Meaning::Deferred, Some(451)),
            ("defer@sandbox.mailonce.test", 2, Meaning::Deferred, Some(451)),
            ("defer@sandbox.mailonce.test", 3, Meaning::Accepted, Some(250)),
            ("unknown@sandbox.mailonce.test", 1, Meaning::Unknown, None),
            ("Unknown@Sandbox.Mailonce.Test", 3, Meaning::Unknown, None),
            ("bounce@sandbox.mailonce.test", 1, Meaning::Accepted, Some(250)),
            ("complain@sandbox.mailonce.test", 1, Meaning::Accepted, Some(250)),
            ("slow@sandbox.mailonce.test", 1, Meaning::Accepted, Some(250)),
            ("unknown@elsewhere.test", 1, Meaning::Accepted, Some(250)),
        ] {
            let reply = send(to, attempt).await;
            assert_eq!((reply.meaning, reply.code), (meaning, code), "{to} at attempt {attempt}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_slow_is_slow_and_only_after_the_point_of_no_return() {
        let begun = Instant::now();
        let ready = SandboxFaults::default().approach(parcel("slow@sandbox.mailonce.test", 1)).await.unwrap();
        assert_eq!(begun.elapsed(), Duration::ZERO);
        ready.hand_over().await;
        assert_eq!(begun.elapsed(), Duration::from_secs(10));
        send("bounce@sandbox.mailonce.test", 1).await;
        assert_eq!(begun.elapsed(), Duration::from_secs(10));
    }
}

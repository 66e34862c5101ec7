//! The transport that leads one life of a node to a next hop, and the network between them.

use super::body::Body;
use super::hop::Hop;
use super::plan::{Class, FaultKind};
use async_trait::async_trait;
use mailonce_core::mutant;
use mailonce_core::port::transport::{
    Asked, Capability, Found, Mail, Meaning, Parcel, Phase, Ready, Recovery, Reply, Shape, Transport, Unfit, Wire,
};
use std::sync::Arc;
use std::time::Duration;

/// How long a hand-over may take, in milliseconds.
const PATIENCE_MS: i64 = 2_000;
/// After so long a connection is too old for anything to be begun on it, in milliseconds.
const FRESH_MS: i64 = 60_000;

/// The way to a next hop.
pub(super) struct Way {
    pub(super) hop: Arc<Hop>,
    pub(super) body: Arc<Body>,
    pub(super) account: String,
}

/// A request that is ready to go.
struct Letter {
    way: Arc<WayParts>,
    parcel: Parcel,
    made: i64,
}

/// What a request needs of its way.
struct WayParts {
    hop: Arc<Hop>,
    body: Arc<Body>,
    account: String,
}

#[async_trait]
impl Transport for Way {
    fn name(&self) -> &str {
        &self.hop.name
    }

    fn kind(&self) -> &'static str {
        match self.hop.class {
            Class::Keyed(_) => "keyed",
            Class::Asked(_) => "asked",
            Class::Plain => "plain",
            Class::Relay => "smtp",
        }
    }

    fn account(&self) -> &str {
        &self.account
    }

    fn capability(&self) -> Capability {
        let (shape, wire) = match self.hop.class {
            Class::Relay => (Shape::PerRecipient, Wire::Mime),
            _ => (Shape::PerEmail, Wire::Content),
        };
        let recovery = match self.hop.class {
            Class::Keyed(window_ms) => Recovery::Key { window_ms },
            Class::Asked(settle_ms) => Recovery::LookUp { settle_ms },
            Class::Plain | Class::Relay => Recovery::None,
        };
        Capability { shape, wire, recovery, patience_ms: PATIENCE_MS, at_once: 4 }
    }

    fn freeze(&self, mail: &Mail<'_>) -> Result<Vec<u8>, Unfit> {
        if let Some(mime) = mail.mime {
            return Ok(mime.to_vec());
        }
        let content = serde_json::to_string(mail.content).map_err(|why| Unfit(why.to_string()))?;
        Ok(format!("Message-ID: {}\nDate: {}\n{content}", mail.message_id, mail.created_at).into_bytes())
    }

    async fn approach(&self, parcel: Parcel) -> Result<Box<dyn Ready>, Reply> {
        let shared = &self.body.shared;
        self.body.pass().await;
        self.latency().await;
        let relay = self.hop.class == Class::Relay;
        if shared.strikes(FaultKind::Unreachable) {
            shared.fault(FaultKind::Unreachable, vec![parcel.email.to_string()]);
            return Err(Reply::new(Meaning::Fault, Phase::Connect, None, "nobody there"));
        }
        if relay && shared.strikes(FaultKind::Unauthorized) {
            shared.fault(FaultKind::Unauthorized, vec![parcel.email.to_string()]);
            return Err(Reply::new(Meaning::Fault, Phase::Login, Some(535), "not you"));
        }
        if relay && shared.below(2) == 0 && shared.strikes(FaultKind::Refuse) {
            shared.fault(FaultKind::Refuse, vec![parcel.email.to_string()]);
            return Err(Reply::new(Meaning::Refused, Phase::Rcpt, Some(550), "nobody here"));
        }
        if mutant::is_on("sent-on-approach") {
            self.hop.take(&parcel, &self.account);
        }
        let way = WayParts { hop: Arc::clone(&self.hop), body: Arc::clone(&self.body), account: self.account.clone() };
        self.body.pass().await;
        Ok(Box::new(Letter { way: Arc::new(way), parcel, made: shared.passed() }))
    }

    async fn look_up(&self, asked: Asked) -> Found {
        self.body.pass().await;
        self.latency().await;
        let shared = &self.body.shared;
        if shared.strikes(FaultKind::LookUp) {
            shared.fault(FaultKind::LookUp, vec![asked.email.to_string()]);
            return Found::Silent("not now".into());
        }
        let found = self.hop.finds(asked.email, asked.handoff);
        self.body.pass().await;
        if found { Found::Yes { remote_id: None, text: "it is here".into() } } else { Found::No }
    }
}

impl Way {
    async fn latency(&self) {
        let ms = self.body.shared.below(30);
        if ms > 10 {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
    }
}

#[async_trait]
impl Ready for Letter {
    async fn hand_over(self: Box<Self>) -> Reply {
        self.way.body.pass().await;
        let old = self.way.body.shared.passed() - self.made > FRESH_MS;
        if old && !mutant::is_on("old-connection-used") {
            return Reply::new(Meaning::Deferred, Phase::Data, None, "the connection grew too old; nothing was sent");
        }
        let (body, email) = (Arc::clone(&self.way.body), self.parcel.email.to_string());
        let to = self.parcel.recipients.clone();
        let reply = self.go().await;
        let ms = body.shared.below(40);
        if ms > 15 {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
        body.pass().await;
        if matches!(reply.meaning, Meaning::Accepted | Meaning::Repeated) {
            body.hears(email, to);
        }
        reply
    }
}

impl Letter {
    /// What becomes of a request that is on its way.
    async fn go(self: Box<Self>) -> Reply {
        let hop = Arc::clone(&self.way.hop);
        hop.catch_up(false);
        if mutant::is_on("sent-on-approach") {
            return Reply::new(Meaning::Accepted, Phase::Final, Some(250), "it went before its marker");
        }
        let reply = match self.trouble() {
            None => self.honest(),
            Some(kind) => self.troubled(kind).await,
        };
        if mutant::is_on("tries-again-by-itself") && reply.meaning == Meaning::Unknown {
            return self.honest();
        }
        reply
    }

    /// The fault that meets it, if one does.
    fn trouble(&self) -> Option<FaultKind> {
        use FaultKind as F;
        let shared = &self.way.body.shared;
        let mut kinds = vec![F::LoseReply, F::LoseRequest, F::Stall, F::LateAccept, F::Defer, F::Refuse];
        match self.way.hop.class {
            Class::Keyed(_) => kinds.extend([F::ServerError, F::Unauthorized, F::Concurrent, F::Mismatch]),
            Class::Asked(_) | Class::Plain => kinds.extend([F::ServerError, F::Unauthorized]),
            Class::Relay => {}
        }
        kinds.retain(|kind| shared.plan.has(*kind));
        let kind = (!kinds.is_empty()).then(|| shared.pick(&kinds))?;
        shared.strikes(kind).then_some(kind)
    }

    fn honest(&self) -> Reply {
        let WayParts { hop, body, account } = &*self.way;
        let meaning = hop.answer(hop.take(&self.parcel, account));
        if meaning == Meaning::Concurrent {
            body.shared.fault(FaultKind::Concurrent, vec![self.parcel.email.to_string()]);
        }
        Reply::new(meaning, Phase::Final, Some(250), "as it is")
    }

    async fn troubled(&self, kind: FaultKind) -> Reply {
        let WayParts { hop, body, account } = &*self.way;
        let shared = &body.shared;
        shared.fault(kind, vec![self.parcel.email.to_string()]);
        let reply = |meaning, code: Option<u16>| Reply::new(meaning, Phase::Final, code, kind.word());
        let maybe = || {
            if shared.below(2) == 0 {
                hop.take(&self.parcel, account);
            } else {
                hop.arrive(&self.parcel, false);
            }
        };
        match kind {
            FaultKind::LoseReply => {
                hop.take(&self.parcel, account);
                reply(Meaning::Unknown, None)
            }
            FaultKind::LoseRequest => reply(Meaning::Unknown, None),
            FaultKind::ServerError => {
                maybe();
                reply(Meaning::Unknown, Some(502))
            }
            FaultKind::Stall => {
                maybe();
                std::future::pending().await
            }
            FaultKind::LateAccept => {
                hop.take_later(self.parcel.clone(), account);
                reply(Meaning::Unknown, None)
            }
            FaultKind::Defer => {
                hop.arrive(&self.parcel, false);
                let pause = shared.pick(&[None, Some(2_000), Some(30_000)]);
                reply(Meaning::Deferred, Some(451)).after(pause)
            }
            FaultKind::Refuse => {
                hop.arrive(&self.parcel, false);
                reply(Meaning::Refused, Some(550))
            }
            FaultKind::Unauthorized => reply(Meaning::Fault, Some(401)),
            // Something between has sent it twice, and this is the answer to the second.
            FaultKind::Concurrent => {
                maybe();
                reply(Meaning::Concurrent, Some(409))
            }
            _ => {
                maybe();
                reply(Meaning::Mismatch, Some(409))
            }
        }
    }
}

//! The way out to our own inboxes: what the sandbox does with mail for them, so that two agents can talk with nothing
//! configured. It takes a key, the delivery's, and remembers it for as long as deliveries are known.

use async_trait::async_trait;
use mailonce_core::{
    delivery::{Form, Intake},
    limits,
    port::{
        store::StoreError,
        transport::{
            Asked, Capability, Found, Mail, Meaning, Parcel, Phase, Ready, Recovery, Reply, Shape, Transport, Unfit,
            Wire,
        },
    },
};
use std::sync::{Arc, OnceLock, Weak};

use crate::{Engine, receive::Incoming};

/// Its name among the transports.
pub const LOCAL: &str = "local";
/// How long a hand-over may take: it is a commit.
const PATIENCE_MS: i64 = 30_000;

/// The way out to our own inboxes.
#[derive(Default)]
pub(crate) struct Local {
    engine: OnceLock<Weak<Engine>>,
}

impl Local {
    /// Tells it who takes the mail. Once.
    pub(crate) fn belongs_to(&self, engine: &Arc<Engine>) {
        self.engine.get_or_init(|| Arc::downgrade(engine));
    }
}

struct Letter {
    engine: Arc<Engine>,
    parcel: Parcel,
}

fn said(meaning: Meaning, text: &str) -> Reply {
    Reply::new(meaning, Phase::Final, None, text)
}

#[async_trait]
impl Ready for Letter {
    async fn hand_over(self: Box<Self>) -> Reply {
        let Self { engine, parcel } = *self;
        let mail = Incoming {
            intake: Intake::Local,
            source: None,
            name: Some(format!("{}:{}", parcel.key, parcel.handoff)),
            ip: None,
            helo: None,
            sender: Some(parcel.return_path),
            recipients: parcel.recipients,
            form: Form::Mime,
            raw: parcel.bytes.to_vec(),
        };
        match engine.take_mail(mail).await {
            Ok(received) if !received.iter().any(|received| received.is_taken()) => {
                said(Meaning::Accepted, "captured; no inbox takes mail at this address")
            }
            Ok(_) => said(Meaning::Accepted, "in the inbox"),
            Err(StoreError::Unreachable(why)) => Reply::new(Meaning::Deferred, Phase::Final, None, &why),
            Err(error) => said(Meaning::Unknown, &error.to_string()),
        }
    }
}

#[async_trait]
impl Transport for Local {
    fn name(&self) -> &'static str {
        LOCAL
    }

    fn kind(&self) -> &'static str {
        "sandbox"
    }

    fn account(&self) -> &'static str {
        LOCAL
    }

    fn capability(&self) -> Capability {
        Capability {
            shape: Shape::PerRecipient,
            wire: Wire::Mime,
            recovery: Recovery::Key { window_ms: limits::DELIVERY_KNOWN_MS },
            patience_ms: PATIENCE_MS,
            at_once: 16,
        }
    }

    fn freeze(&self, mail: &Mail<'_>) -> Result<Vec<u8>, Unfit> {
        mail.mime.map(<[u8]>::to_vec).ok_or_else(|| Unfit("the mail was not composed".into()))
    }

    async fn approach(&self, parcel: Parcel) -> Result<Box<dyn Ready>, Reply> {
        match self.engine.get().and_then(Weak::upgrade) {
            Some(engine) => Ok(Box::new(Letter { engine, parcel })),
            None => Err(Reply::new(Meaning::Fault, Phase::Connect, None, "the inboxes are closed")),
        }
    }

    async fn look_up(&self, _: Asked) -> Found {
        Found::Silent("inboxes are not asked; the same key is safe".into())
    }
}

//! An outside made for tests: relays that note what they are given, a zone of names, and pages to fetch.

use async_trait::async_trait;
use mailonce_core::{
    dispatch::{Act, Hold, Plan, Verdict},
    id::NodeId,
    port::{
        net::{Fetch, Names},
        store::{Acted, LeaseWish, Leased, Once},
        transport::{
            Asked, Capability, Found, Mail, Meaning, Parcel, Phase, Ready, Recovery, Reply, Shape, Transport, Unfit,
            Wire,
        },
    },
    time::Time,
};
use mailonce_engine::ways::{Outside, Routing};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::world::World;

/// A way out that takes everything and shows what it froze.
pub(crate) struct Relay {
    name: &'static str,
    shape: Shape,
    frozen: mpsc::UnboundedSender<Vec<u8>>,
}

impl Relay {
    /// A transport of this name; nobody looks at what it freezes.
    pub(crate) fn named(name: &'static str, shape: Shape) -> Arc<dyn Transport> {
        Arc::new(Self { name, shape, frozen: mpsc::unbounded_channel().0 })
    }
}

struct Takes;

#[async_trait]
impl Ready for Takes {
    async fn hand_over(self: Box<Self>) -> Reply {
        Reply::new(Meaning::Accepted, Phase::Final, Some(250), "ok")
    }
}

#[async_trait]
impl Transport for Relay {
    fn name(&self) -> &str {
        self.name
    }

    fn kind(&self) -> &'static str {
        "test"
    }

    fn account(&self) -> &str {
        self.name
    }

    fn capability(&self) -> Capability {
        Capability { shape: self.shape, wire: Wire::Mime, recovery: Recovery::None, patience_ms: 10_000, at_once: 64 }
    }

    fn freeze(&self, mail: &Mail<'_>) -> Result<Vec<u8>, Unfit> {
        let bytes = mail.mime.ok_or_else(|| Unfit("no bytes".into()))?.to_vec();
        self.frozen.send(bytes.clone()).ok();
        Ok(bytes)
    }

    async fn approach(&self, _: Parcel) -> Result<Box<dyn Ready>, Reply> {
        Ok(Box::new(Takes))
    }

    async fn look_up(&self, _: Asked) -> Found {
        Found::No
    }
}

/// Names and their texts, as the test publishes them.
#[derive(Clone, Default)]
pub(crate) struct Zone(Arc<Mutex<BTreeMap<String, Result<Vec<String>, String>>>>);

impl Zone {
    pub(crate) fn publish(&self, name: &str, text: &str) {
        self.0.lock().unwrap().insert(name.to_owned(), Ok(vec!["v=spf1 -all".into(), text.to_owned()]));
    }

    pub(crate) fn break_down(&self, name: &str) {
        self.0.lock().unwrap().insert(name.to_owned(), Err("no answer in time".into()));
    }
}

#[async_trait]
impl Names for Zone {
    async fn txt(&self, name: &str) -> Result<Vec<String>, String> {
        self.0.lock().unwrap().get(name).cloned().unwrap_or_else(|| Ok(Vec::new()))
    }
}

/// Pages by address, and every address that was asked for.
#[derive(Clone, Default)]
pub(crate) struct Pages {
    pages: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Pages {
    pub(crate) fn put(&self, url: &str, page: &[u8]) {
        self.pages.lock().unwrap().insert(url.to_owned(), page.to_vec());
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

#[async_trait]
impl Fetch for Pages {
    async fn get(&self, url: &str) -> Result<Vec<u8>, String> {
        self.asked.lock().unwrap().push(url.to_owned());
        self.pages.lock().unwrap().get(url).cloned().ok_or_else(|| "404".into())
    }
}

/// A world with an outside: `relay` (one handoff per recipient, the default), `provider` (one per email).
pub(crate) struct Wired {
    pub(crate) world: World,
    pub(crate) zone: Zone,
    pub(crate) pages: Pages,
    /// What the relays froze.
    pub(crate) frozen: mpsc::UnboundedReceiver<Vec<u8>>,
}

impl Wired {
    pub(crate) async fn new(world: World, verify_domains: bool) -> Self {
        let (sender, frozen) = mpsc::unbounded_channel();
        let relay = |name, shape| Arc::new(Relay { name, shape, frozen: sender.clone() }) as Arc<dyn Transport>;
        let (zone, pages) = (Zone::default(), Pages::default());
        let outside = Outside {
            transports: vec![relay("relay", Shape::PerRecipient), relay("provider", Shape::PerEmail)],
            routing: Routing { rules: Vec::new(), default: vec!["relay".into()] },
            verify_domains,
            names: Arc::new(zone.clone()),
            fetch: Arc::new(pages.clone()),
            ..Outside::default()
        };
        Self { world: Box::pin(world.rewired(outside)).await, zone, pages, frozen }
    }

    /// Leases the one handoff that is due by a transport.
    pub(crate) async fn lease(&self, transport: &str) -> Held {
        let wish = LeaseWish { transport: transport.into(), node: NODE, max: 1, but: Vec::new(), scheduled_by: None };
        let leased = self.world.engine.store().lease(wish, self.world.engine.now()).await.unwrap();
        Held { leased: leased.into_iter().next().expect("a handoff is due"), transport: transport.into() }
    }

    async fn act(&self, held: &Held, act: Act) -> Verdict {
        let email = &held.leased.email;
        let now = self.world.engine.now();
        match self.world.engine.store().act(email.team, email.id, act, None, now).await.unwrap() {
            Once::Done(Acted::Email(verdict, _)) => verdict,
            other => panic!("{other:?}"),
        }
    }

    /// Puts the durable marker.
    pub(crate) async fn mark(&self, held: &Held) {
        let act = Act::Mark { hold: held.hold(), wire: None };
        assert_eq!(self.act(held, act).await, Verdict::Done);
    }

    /// The next hop took it, under its own name.
    pub(crate) async fn settle(&self, held: &Held, remote_id: &str) -> Verdict {
        let reply = Reply::new(Meaning::Accepted, Phase::Final, Some(200), "ok").named(Some(remote_id.into()));
        let plan = Plan { max_attempts: 12, max_age_ms: 86_400_000, chance: 0 };
        let began = self.world.engine.now();
        self.act(held, Act::Settle { hold: held.hold(), attempt: Some(1), began, reply, plan }).await
    }

    /// The process that held it ended.
    pub(crate) async fn crash(&self, held: &Held) {
        let act = Act::Crash { number: held.leased.number, holder: NODE };
        assert_eq!(self.act(held, act).await, Verdict::Done);
    }

    /// Hands over the one handoff that is due by a transport.
    pub(crate) async fn hand_over(&self, transport: &str, remote_id: &str) {
        let held = self.lease(transport).await;
        self.mark(&held).await;
        assert_eq!(self.settle(&held, remote_id).await, Verdict::Done);
    }
}

const NODE: NodeId = NodeId(Uuid::from_u128(77));

/// A handoff that the test holds.
pub(crate) struct Held {
    leased: Leased,
    transport: String,
}

impl Held {
    fn hold(&self) -> Hold {
        let handoff = &self.leased.email.handoffs[usize::from(self.leased.number)];
        Hold {
            number: handoff.number,
            fence: handoff.fence,
            transport: self.transport.clone(),
            account: self.transport.clone(),
        }
    }
}

/// Seconds since the epoch, as providers sign them.
pub(crate) fn seconds(at: Time) -> String {
    (at.0 / 1000).to_string()
}

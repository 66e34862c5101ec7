//! Transports that only some nodes have, or that nobody has any more: nothing waits in silence, nobody decides about a
//! transport that it does not have, and what is in doubt is never moved.

use async_trait::async_trait;
use mailonce_core::{
    limits,
    port::transport::{
        Asked, Capability, Found, Mail, Meaning, Parcel, Phase, Ready, Recovery, Reply, Shape, Transport, Unfit, Wire,
    },
};
use mailonce_engine::{
    Engine,
    ways::{Outside, Routing},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::watch;
use uuid::Uuid;

use crate::{
    call::post,
    wired::{Relay, Wired},
    world::{HOUR, MINUTE, SECOND, World, mail, mail_with},
};

/// The way of a node that has these transports. The first is the default.
fn outside(transports: Vec<Arc<dyn Transport>>) -> Outside {
    let default = transports.iter().take(1).map(|one| one.name().to_owned()).collect();
    Outside { transports, routing: Routing { rules: Vec::new(), default }, ..Outside::default() }
}

/// The same ledger after a restart with relays of these names.
async fn restarted(world: World, names: &[&'static str]) -> World {
    let relays = names.iter().map(|name| Relay::named(name, Shape::PerRecipient)).collect();
    Box::pin(world.rewired(outside(relays))).await
}

/// Long enough for every engine to call what is missing orphaned.
async fn look(world: &World) {
    world.engine.tend_orphans().await;
    world.pass(limits::ORPHANED_AFTER_MS);
    world.engine.tend_orphans().await;
}

async fn count(world: &World, kind: &str) -> usize {
    world.events().await.iter().filter(|event| event["type"] == kind).count()
}

async fn questions(world: &World) -> Vec<(Value, Value)> {
    let rows = world.get("/v1/escalations").await.is(200).rows();
    let orphaned = rows.into_iter().filter(|row| row["reason"] == "orphaned");
    orphaned.map(|row| (row["about"]["transport"].clone(), row["state"].clone())).collect()
}

async fn notes(world: &World) -> String {
    world.get("/readyz").await.is(200).body["notes"].to_string()
}

over_every_engine! {
    async fn mail_for_a_renamed_transport_is_reported_once_for_each_time(world) {
        let world = restarted(world, &["old"]).await;
        let id = world.send("k", &mail()).await.is(202).word("id");
        world.engine.tend_orphans().await;
        assert_eq!((count(&world, "handoff.orphaned").await, questions(&world).await.len()), (0, 0));

        let world = restarted(world, &["new"]).await;
        for _ in 0..2 {
            look(&world).await;
        }
        assert_eq!(count(&world, "handoff.orphaned").await, 1);
        assert_eq!(questions(&world).await, [(json!("old"), json!("open"))]);
        let told = notes(&world).await;
        assert!(told.contains("no node has the transport `old`: 1 handoffs wait for it, 0 are unknown"), "{told}");
        let figures = world.engine.render_metrics("").await;
        assert!(figures.contains("mailonce_handoff_orphaned{transport=\"old\"} 1"), "{figures}");
        let listed = world.get("/v1/transports").await.is(200).body["orphaned"].clone();
        assert_eq!(listed, json!([{ "name": "old", "waiting": 1, "unknown": 0 }]));
        assert_eq!(world.email(&id).await["state"], "queued");

        let world = restarted(world, &["new", "old"]).await;
        world.engine.tend_orphans().await;
        assert_eq!(questions(&world).await, [(json!("old"), json!("moot"))]);
        assert!(!notes(&world).await.contains("old"));

        let world = restarted(world, &["new"]).await;
        look(&world).await;
        assert_eq!(count(&world, "handoff.orphaned").await, 2);
        assert_eq!(questions(&world).await, [(json!("old"), json!("open")), (json!("old"), json!("moot"))]);
    }

    async fn an_orphan_is_given_up_after_its_time_and_an_unknown_one_never(world) {
        let wired = Wired::new(world, false).await;
        let waits = wired.world.send("waits", &mail()).await.is(202).word("id");
        let later = mail_with(json!({ "scheduled_at": wired.world.at(20 * HOUR), "subject": "Later" }));
        let later = wired.world.send("later", &later).await.is(202).word("id");
        let provider = mail_with(json!({ "transport": "provider", "subject": "Lost" }));
        let lost = wired.world.send("lost", &provider).await.is(202).word("id");
        let held = wired.lease("provider").await;
        wired.mark(&held).await;
        wired.crash(&held).await;

        let world = restarted(wired.world, &["new"]).await;
        look(&world).await;
        assert_eq!(state(&world, &waits).await, "queued");
        world.pass(24 * HOUR - 6 * MINUTE);
        world.engine.tend_orphans().await;
        assert_eq!(state(&world, &waits).await, "queued", "a person has the whole time to act");
        world.pass(6 * MINUTE);
        world.engine.tend_orphans().await;
        let failed = world.email(&waits).await;
        assert_eq!(failed["state"], "failed");
        assert!(failed["handoffs"][0]["reason"].as_str().unwrap().contains("no transport named `relay`"), "{failed}");
        assert_eq!(state(&world, &later).await, "scheduled", "it was due for four hours only");
        assert_eq!(state(&world, &lost).await, "unknown");
        // A person can decide about it.
        world.engine.tend_questions().await;
        let asked = world.get("/v1/escalations").await.is(200).rows();
        assert!(asked.iter().any(|row| row["reason"] == "unknown" && row["about"]["email"] == lost.as_str()));
    }

    async fn an_operator_moves_what_waits_and_never_what_is_in_doubt(world) {
        let wired = Wired::new(world, false).await;
        let lost = wired.world.send("lost", &mail()).await.is(202).word("id");
        let held = wired.lease("relay").await;
        wired.mark(&held).await;
        wired.crash(&held).await;
        let two = mail_with(json!({ "to": ["a@example.com", "b@example.com"], "subject": "Two" }));
        let two = wired.world.send("two", &two).await.is(202).word("id");
        let later = mail_with(json!({ "scheduled_at": wired.world.at(HOUR), "subject": "Later" }));
        let later = wired.world.send("later", &later).await.is(202).word("id");
        let relays = vec![Relay::named("new", Shape::PerRecipient), Relay::named("api", Shape::PerEmail)];
        let world = Box::pin(wired.world.rewired(outside(relays))).await;
        look(&world).await;

        let away = |to: &str| post("/v1/transports/relay/reroute").json(&json!({ "to": to }));
        world.call(away("nowhere")).await.is(422);
        world.call(post("/v1/transports/new/reroute").json(&json!({ "to": "new" }))).await.is(422);
        let first = world.call(away("api").key("move")).await.is(200).body;
        assert_eq!(first, json!({ "from": "relay", "to": "api", "moved": 3, "left": 1, "more": false }));
        assert_eq!(world.call(away("api").key("move")).await.is(200).body, first, "a repeat gets the first answer");
        world.call(away("new").key("move")).await.is(422);
        assert_eq!(world.call(away("api")).await.is(200).body["moved"], 0);

        assert_eq!((state(&world, &lost).await, place(&world, &lost).await), ("unknown".into(), "relay".into()));
        let email = world.email(&two).await;
        assert_eq!(email["counts"], json!({ "cancelled": 2, "queued": 1 }));
        assert_eq!((state(&world, &later).await, place(&world, &later).await), ("scheduled".into(), "api".into()));
        assert_eq!(count(&world, "handoff.rerouted").await, 2);
        world.engine.tend_orphans().await;
        assert_eq!(questions(&world).await, [(json!("relay"), json!("open"))], "one is unknown there still");
        let rev = world.email(&lost).await["rev"].clone();
        world.post(&format!("/v1/emails/{lost}/resolve"), &json!({ "as": "abandon", "rev": rev })).await.is(200);
        world.engine.tend_orphans().await;
        assert_eq!(questions(&world).await, [(json!("relay"), json!("moot"))]);
    }

    async fn only_an_operator_reroutes(world) {
        let theirs = world.team("other").await;
        let call = post("/v1/transports/relay/reroute").json(&json!({ "to": "sandbox" })).by(&theirs);
        world.call(call).await.is(403);
    }
}

async fn state(world: &World, id: &str) -> String {
    world.email(id).await["state"].as_str().unwrap().to_owned()
}

async fn place(world: &World, id: &str) -> String {
    world.email(id).await["handoffs"][0]["transport"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_rolling_restart_stays_quiet() {
    let world = restarted(World::postgres().await, &["relay"]).await;
    let relay = Arc::clone(&world.engine);
    world.send("k", &mail()).await.is(202);
    // The node that has the relay is away for a moment; this one never had it.
    let world = restarted(world, &["other"]).await;
    world.engine.tend_orphans().await;
    world.pass(limits::ORPHANED_AFTER_MS - SECOND);
    world.engine.tend_orphans().await;
    assert!(!notes(&world).await.contains("relay"));

    relay.recover().await.unwrap();
    for _ in 0..2 {
        look(&world).await;
    }
    assert!(!notes(&world).await.contains("relay"));
    assert_eq!((count(&world, "handoff.orphaned").await, questions(&world).await.len()), (0, 0));
}

/// A provider that takes a key: the answer to the first request is lost, and a repeat is taken for the first.
#[derive(Default)]
struct Keyed(Arc<Mutex<BTreeMap<Uuid, u32>>>);

struct Request(Uuid, Arc<Mutex<BTreeMap<Uuid, u32>>>);

#[async_trait]
impl Ready for Request {
    async fn hand_over(self: Box<Self>) -> Reply {
        let mut asked = self.1.lock().unwrap();
        let times = asked.entry(self.0).or_default();
        *times += 1;
        let meaning = if *times == 1 { Meaning::Unknown } else { Meaning::Accepted };
        Reply::new(meaning, Phase::Final, None, "as it happens")
    }
}

#[async_trait]
impl Transport for Keyed {
    fn name(&self) -> &'static str {
        "keyed"
    }

    fn kind(&self) -> &'static str {
        "test"
    }

    fn account(&self) -> &'static str {
        "A"
    }

    fn capability(&self) -> Capability {
        let recovery = Recovery::Key { window_ms: 24 * HOUR };
        Capability { shape: Shape::PerEmail, wire: Wire::Mime, recovery, patience_ms: 10_000, at_once: 64 }
    }

    fn freeze(&self, mail: &Mail<'_>) -> Result<Vec<u8>, Unfit> {
        Ok(mail.mime.unwrap_or_default().to_vec())
    }

    async fn approach(&self, parcel: Parcel) -> Result<Box<dyn Ready>, Reply> {
        Ok(Box::new(Request(parcel.key, Arc::clone(&self.0))))
    }

    async fn look_up(&self, _: Asked) -> Found {
        Found::No
    }
}

/// Waits until so many emails are in a state.
async fn all_are(world: &World, wanted: &str, many: usize) {
    let there = async {
        while world.get(&format!("/v1/emails?limit=100&state={wanted}")).await.is(200).rows().len() < many {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let shown = async |world: &World| {
        let rows = world.get("/v1/emails?limit=100").await.is(200).rows();
        rows.iter().map(|row| row["state"].to_string()).collect::<Vec<_>>()
    };
    let in_time = tokio::time::timeout(Duration::from_secs(20), there).await.is_ok();
    assert!(in_time, "not all are {wanted}: {:?}", shown(world).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_the_transport_decides_nothing_about_its_unknown_outcomes() {
    const MANY: usize = 30;
    let (stop, stopped) = watch::channel(false);
    let run = |engine: &Arc<Engine>| tokio::spawn(Arc::clone(engine).hand_off(stopped.clone()));
    let keyed = Keyed::default();
    let requests = Arc::clone(&keyed.0);
    let world = Box::pin(World::postgres().await.rewired(outside(vec![Arc::new(keyed)]))).await;
    for i in 0..MANY {
        world.send(&format!("k{i}"), &mail_with(json!({ "to": [format!("u{i}@example.com")] }))).await.is(202);
    }
    let with = run(&world.engine);
    all_are(&world, "unknown", MANY).await;

    let without = run(&world.node(outside(vec![Relay::named("other", Shape::PerRecipient)])).await);
    world.pass(2 * SECOND);
    all_are(&world, "sent", MANY).await;

    assert!(requests.lock().unwrap().values().all(|times| *times == 2));
    stop.send(true).unwrap();
    with.await.unwrap();
    without.await.unwrap();
}

//! Transports that only some nodes have, or that no node has any more. Waiting mail is reported, a node decides nothing
//! about transports that it does not have, and unknown handoffs are never rerouted.

use async_trait::async_trait;
use mailonce_core::{
    handoff::{
        capabilities::{HandoffSplit, PayloadFormat, RecoveryMethod, TransportCapabilities},
        reply::{AttemptPhase, ReplyMeaning, TransportReply},
        transport_request::{FrozenEnvelope, LookUpRequest, LookUpResult, OutboundMail, UnsupportedMail},
    },
    limits,
    ports::transport::{PreparedHandoff, Transport},
};
use mailonce_engine::{Engine, EngineDeps, handoff::transport_selector::Routing};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::watch;
use uuid::Uuid;

use crate::fixtures::{
    api_fixture::{HOUR, MINUTE, SECOND, World, mail, mail_with},
    engine_deps::{RecordingTransport, TransportFixture},
    requests::post,
};

/// The dependencies of a node with these transports. The first is the default.
fn engine_deps(transports: Vec<Arc<dyn Transport>>) -> EngineDeps {
    let default = transports.iter().take(1).map(|one| one.name().to_owned()).collect();
    EngineDeps { transports, routing: Routing { rules: Vec::new(), default }, ..EngineDeps::default() }
}

/// The same ledger after a restart with relays of these names.
async fn restart_with_relays(world: World, names: &[&'static str]) -> World {
    let relays = names.iter().map(|name| RecordingTransport::named(name, HandoffSplit::PerRecipient)).collect();
    Box::pin(world.with_engine_deps(engine_deps(relays))).await
}

/// Waits long enough for a missing transport to be reported as orphaned.
async fn detect_orphans(world: &World) {
    world.engine.handoffs.run_orphan_round().await;
    world.advance_clock(limits::ORPHANED_AFTER_MS);
    world.engine.handoffs.run_orphan_round().await;
}

async fn event_count(world: &World, kind: &str) -> usize {
    world.events().await.iter().filter(|event| event["type"] == kind).count()
}

async fn orphan_escalations(world: &World) -> Vec<(Value, Value)> {
    let rows = world.get("/v1/escalations").await.expect_status(200).rows();
    let orphaned = rows.into_iter().filter(|row| row["reason"] == "orphaned");
    orphaned.map(|row| (row["about"]["transport"].clone(), row["state"].clone())).collect()
}

async fn readiness_notes(world: &World) -> String {
    world.get("/readyz").await.expect_status(200).body["warnings"].to_string()
}

over_every_engine! {
    async fn mail_for_a_removed_transport_is_reported_once_per_removal(world) {
        let world = restart_with_relays(world, &["old"]).await;
        let id = world.send("k", &mail()).await.expect_status(202).string_field("id");
        world.engine.handoffs.run_orphan_round().await;
        assert_eq!((event_count(&world, "handoff.orphaned").await, orphan_escalations(&world).await.len()), (0, 0));

        let world = restart_with_relays(world, &["new"]).await;
        for _ in 0..2 {
            detect_orphans(&world).await;
        }
        assert_eq!(event_count(&world, "handoff.orphaned").await, 1);
        assert_eq!(orphan_escalations(&world).await, [(json!("old"), json!("open"))]);
        let warnings = readiness_notes(&world).await;
        assert!(warnings.contains("no node has the transport `old`: 1 handoffs wait for it, 0 are unknown"), "{warnings}");
        let metrics = world.engine.render_metrics("").await;
        assert!(metrics.contains("mailonce_handoff_orphaned{transport=\"old\"} 1"), "{metrics}");
        let listed = world.get("/v1/transports").await.expect_status(200).body["orphaned"].clone();
        assert_eq!(listed, json!([{ "name": "old", "waiting": 1, "unknown": 0 }]));
        assert_eq!(world.email(&id).await["state"], "queued");

        let world = restart_with_relays(world, &["new", "old"]).await;
        world.engine.handoffs.run_orphan_round().await;
        assert_eq!(orphan_escalations(&world).await, [(json!("old"), json!("moot"))]);
        assert!(!readiness_notes(&world).await.contains("old"));

        let world = restart_with_relays(world, &["new"]).await;
        detect_orphans(&world).await;
        assert_eq!(event_count(&world, "handoff.orphaned").await, 2);
        assert_eq!(orphan_escalations(&world).await, [(json!("old"), json!("open")), (json!("old"), json!("moot"))]);
    }

    async fn an_orphaned_email_fails_after_its_time_limit_and_an_unknown_one_never(world) {
        let fixture = TransportFixture::new(world, false).await;
        let waiting = fixture.world.send("waits", &mail()).await.expect_status(202).string_field("id");
        let later = mail_with(json!({ "scheduled_at": fixture.world.timestamp_in(20 * HOUR), "subject": "Later" }));
        let later = fixture.world.send("later", &later).await.expect_status(202).string_field("id");
        let provider = mail_with(json!({ "transport": "provider", "subject": "Lost" }));
        let lost = fixture.world.send("lost", &provider).await.expect_status(202).string_field("id");
        let held = fixture.lease_handoff("provider").await;
        fixture.commit_marker(&held).await;
        fixture.crash_holder(&held).await;

        let world = restart_with_relays(fixture.world, &["new"]).await;
        detect_orphans(&world).await;
        assert_eq!(email_state(&world, &waiting).await, "queued");
        world.advance_clock(24 * HOUR - 6 * MINUTE);
        world.engine.handoffs.run_orphan_round().await;
        assert_eq!(email_state(&world, &waiting).await, "queued", "an operator has the full time limit to act");
        world.advance_clock(6 * MINUTE);
        world.engine.handoffs.run_orphan_round().await;
        let failed = world.email(&waiting).await;
        assert_eq!(failed["state"], "failed");
        assert!(failed["handoffs"][0]["reason"].as_str().unwrap().contains("no transport named `relay`"), "{failed}");
        assert_eq!(email_state(&world, &later).await, "scheduled", "it has been due for only four hours");
        assert_eq!(email_state(&world, &lost).await, "unknown");
        // The unknown one has an escalation for a person.
        world.engine.escalations.run_escalation_round().await;
        let escalations = world.get("/v1/escalations").await.expect_status(200).rows();
        assert!(escalations.iter().any(|row| row["reason"] == "unknown" && row["about"]["email"] == lost.as_str()));
    }

    async fn rerouting_moves_waiting_handoffs_and_never_unknown_ones(world) {
        let fixture = TransportFixture::new(world, false).await;
        let lost = fixture.world.send("lost", &mail()).await.expect_status(202).string_field("id");
        let held = fixture.lease_handoff("relay").await;
        fixture.commit_marker(&held).await;
        fixture.crash_holder(&held).await;
        let two = mail_with(json!({ "to": ["a@example.com", "b@example.com"], "subject": "Two" }));
        let two = fixture.world.send("two", &two).await.expect_status(202).string_field("id");
        let later = mail_with(json!({ "scheduled_at": fixture.world.timestamp_in(HOUR), "subject": "Later" }));
        let later = fixture.world.send("later", &later).await.expect_status(202).string_field("id");
        let relays = vec![RecordingTransport::named("new", HandoffSplit::PerRecipient), RecordingTransport::named("api", HandoffSplit::PerEmail)];
        let world = Box::pin(fixture.world.with_engine_deps(engine_deps(relays))).await;
        detect_orphans(&world).await;

        let reroute = |to: &str| post("/v1/transports/relay/reroute").json(&json!({ "to": to }));
        world.call(reroute("nowhere")).await.expect_status(422);
        world.call(post("/v1/transports/new/reroute").json(&json!({ "to": "new" }))).await.expect_status(422);
        let first = world.call(reroute("api").key("move")).await.expect_status(200).body;
        assert_eq!(first, json!({ "from": "relay", "to": "api", "moved": 3, "not_moved": 1, "has_more": false }));
        let acts = world.get("/v1/audit?limit=100&action=transport.rerouted").await.expect_status(200).rows();
        assert_eq!(acts[0]["after"]["rerouted_to"], "api", "{acts:?}");
        assert_eq!(world.call(reroute("api").key("move")).await.expect_status(200).body, first, "a replay gets the first response");
        world.call(reroute("new").key("move")).await.expect_status(422);
        assert_eq!(world.call(reroute("api")).await.expect_status(200).body["moved"], 0);

        assert_eq!((email_state(&world, &lost).await, handoff_transport(&world, &lost).await), ("unknown".into(), "relay".into()));
        let email = world.email(&two).await;
        assert_eq!(email["counts"], json!({ "cancelled": 2, "queued": 1 }));
        assert_eq!((email_state(&world, &later).await, handoff_transport(&world, &later).await), ("scheduled".into(), "api".into()));
        assert_eq!(event_count(&world, "handoff.rerouted").await, 2);
        world.engine.handoffs.run_orphan_round().await;
        assert_eq!(orphan_escalations(&world).await, [(json!("relay"), json!("open"))], "one handoff is still unknown");
        let rev = world.email(&lost).await["rev"].clone();
        world.post(&format!("/v1/emails/{lost}/resolve"), &json!({ "as": "abandon", "rev": rev })).await.expect_status(200);
        world.engine.handoffs.run_orphan_round().await;
        assert_eq!(orphan_escalations(&world).await, [(json!("relay"), json!("moot"))]);
    }

    async fn only_an_operator_may_reroute(world) {
        let theirs = world.create_team("other").await;
        let call = post("/v1/transports/relay/reroute").json(&json!({ "to": "sandbox" })).bearer(&theirs);
        world.call(call).await.expect_status(403);
    }
}

async fn email_state(world: &World, id: &str) -> String {
    world.email(id).await["state"].as_str().unwrap().to_owned()
}

async fn handoff_transport(world: &World, id: &str) -> String {
    world.email(id).await["handoffs"][0]["transport"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_rolling_restart_reports_no_orphans() {
    let world = restart_with_relays(World::postgres().await, &["relay"]).await;
    let relay = Arc::clone(&world.engine);
    world.send("k", &mail()).await.expect_status(202);
    // The node with the relay is down for a moment. This node never had the relay.
    let world = restart_with_relays(world, &["other"]).await;
    world.engine.handoffs.run_orphan_round().await;
    world.advance_clock(limits::ORPHANED_AFTER_MS - SECOND);
    world.engine.handoffs.run_orphan_round().await;
    assert!(!readiness_notes(&world).await.contains("relay"));

    relay.handoffs.heartbeat_and_recover().await.unwrap();
    for _ in 0..2 {
        detect_orphans(&world).await;
    }
    assert!(!readiness_notes(&world).await.contains("relay"));
    assert_eq!((event_count(&world, "handoff.orphaned").await, orphan_escalations(&world).await.len()), (0, 0));
}

/// A provider with idempotency keys: the response to the first request is lost, and a retry is deduplicated.
#[derive(Default)]
struct IdempotentTransport(Arc<Mutex<BTreeMap<Uuid, u32>>>);

struct IdempotentRequest(Uuid, Arc<Mutex<BTreeMap<Uuid, u32>>>);

#[async_trait]
impl PreparedHandoff for IdempotentRequest {
    async fn hand_over(self: Box<Self>) -> TransportReply {
        let mut request_counts = self.1.lock().unwrap();
        let times = request_counts.entry(self.0).or_default();
        *times += 1;
        let meaning = if *times == 1 { ReplyMeaning::Unknown } else { ReplyMeaning::Accepted };
        TransportReply::new(meaning, AttemptPhase::Final, None, "scripted")
    }
}

#[async_trait]
impl Transport for IdempotentTransport {
    fn name(&self) -> &'static str {
        "keyed"
    }

    fn kind(&self) -> &'static str {
        "test"
    }

    fn account(&self) -> &'static str {
        "A"
    }

    fn capabilities(&self) -> TransportCapabilities {
        let recovery = RecoveryMethod::IdempotencyKey { window_ms: 24 * HOUR };
        TransportCapabilities {
            split: HandoffSplit::PerEmail,
            payload_format: PayloadFormat::Mime,
            recovery,
            timeout_ms: 10_000,
            max_concurrency: 64,
        }
    }

    fn freeze(&self, mail: &OutboundMail<'_>) -> Result<Vec<u8>, UnsupportedMail> {
        Ok(mail.mime.unwrap_or_default().to_vec())
    }

    async fn prepare(&self, envelope: FrozenEnvelope) -> Result<Box<dyn PreparedHandoff>, TransportReply> {
        Ok(Box::new(IdempotentRequest(envelope.key, Arc::clone(&self.0))))
    }

    async fn look_up(&self, _: LookUpRequest) -> LookUpResult {
        LookUpResult::NotFound
    }
}

/// Waits until `many` emails are in the state `wanted`.
async fn wait_for_states(world: &World, wanted: &str, many: usize) {
    let reached = async {
        while world.get(&format!("/v1/emails?limit=100&state={wanted}")).await.expect_status(200).rows().len() < many {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let states = async |world: &World| {
        let rows = world.get("/v1/emails?limit=100").await.expect_status(200).rows();
        rows.iter().map(|row| row["state"].to_string()).collect::<Vec<_>>()
    };
    let in_time = tokio::time::timeout(Duration::from_secs(20), reached).await.is_ok();
    assert!(in_time, "not all are {wanted}: {:?}", states(world).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_the_transport_decides_nothing_about_its_unknown_outcomes() {
    const MANY: usize = 30;
    let (stop, stopped) = watch::channel(false);
    let run = |engine: &Arc<Engine>| tokio::spawn(Arc::clone(&engine.handoffs).run_handoff(stopped.clone()));
    let keyed = IdempotentTransport::default();
    let requests = Arc::clone(&keyed.0);
    let world = Box::pin(World::postgres().await.with_engine_deps(engine_deps(vec![Arc::new(keyed)]))).await;
    for i in 0..MANY {
        world
            .send(&format!("k{i}"), &mail_with(json!({ "to": [format!("u{i}@example.com")] })))
            .await
            .expect_status(202);
    }
    let with = run(&world.engine);
    wait_for_states(&world, "unknown", MANY).await;

    let without = run(&world
        .second_engine(engine_deps(vec![RecordingTransport::named("other", HandoffSplit::PerRecipient)]))
        .await);
    world.advance_clock(2 * SECOND);
    wait_for_states(&world, "sent", MANY).await;

    assert!(requests.lock().unwrap().values().all(|times| *times == 2));
    stop.send(true).unwrap();
    with.await.unwrap();
    without.await.unwrap();
}

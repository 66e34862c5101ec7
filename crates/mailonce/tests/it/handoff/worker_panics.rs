//! Workers that panic: their leases are released at once, without a restart of the process.

use async_trait::async_trait;
use mailonce_core::{
    handoff::{
        capabilities::{HandoffSplit, PayloadFormat, RecoveryMethod, TransportCapabilities},
        reply::{AttemptPhase, ReplyMeaning, TransportReply},
        transport_request::{FrozenEnvelope, LookUpRequest, LookUpResult, OutboundMail, UnsupportedMail},
    },
    ports::transport::{PreparedHandoff, Transport},
};
use mailonce_engine::{EngineDeps, handoff::transport_selector::Routing};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::watch;

use crate::fixtures::{
    api_fixture::{SECOND, World, mail},
    requests::get,
};

/// One step in the behavior of a scripted next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScriptedStep {
    PanicOnApproach,
    PanicOnHandOver,
    PanicOnLookUp,
    Accept,
    LoseReply,
    FindOnLookUp,
}

/// A next hop that follows a script.
#[derive(Clone)]
struct ScriptedTransport {
    steps: Arc<Mutex<VecDeque<ScriptedStep>>>,
    recovery: RecoveryMethod,
}

impl ScriptedTransport {
    fn next_step(&self) -> ScriptedStep {
        self.steps.lock().unwrap().pop_front().expect("called more often than scripted")
    }

    /// Takes the next step if it is `wanted`.
    fn take_if_next(&self, wanted: ScriptedStep) -> bool {
        let mut script = self.steps.lock().unwrap();
        let is = script.front() == Some(&wanted);
        if is {
            script.pop_front();
        }
        is
    }
}

#[async_trait]
impl PreparedHandoff for ScriptedTransport {
    async fn hand_over(self: Box<Self>) -> TransportReply {
        match self.next_step() {
            ScriptedStep::Accept => TransportReply::new(ReplyMeaning::Accepted, AttemptPhase::Final, Some(250), "ok"),
            ScriptedStep::LoseReply => {
                TransportReply::new(ReplyMeaning::Unknown, AttemptPhase::Final, None, "no answer")
            }
            other => panic!("scripted panic: {other:?}"),
        }
    }
}

#[async_trait]
impl Transport for ScriptedTransport {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn kind(&self) -> &'static str {
        "test"
    }

    fn account(&self) -> &'static str {
        "scripted"
    }

    fn capabilities(&self) -> TransportCapabilities {
        let (shape, wire) = (HandoffSplit::PerRecipient, PayloadFormat::Mime);
        TransportCapabilities {
            split: shape,
            payload_format: wire,
            recovery: self.recovery,
            timeout_ms: 10_000,
            max_concurrency: 4,
        }
    }

    fn freeze(&self, mail: &OutboundMail<'_>) -> Result<Vec<u8>, UnsupportedMail> {
        Ok(mail.mime.unwrap_or_default().to_vec())
    }

    async fn prepare(&self, _: FrozenEnvelope) -> Result<Box<dyn PreparedHandoff>, TransportReply> {
        assert!(!self.take_if_next(ScriptedStep::PanicOnApproach), "scripted panic");
        Ok(Box::new(self.clone()))
    }

    async fn look_up(&self, _: LookUpRequest) -> LookUpResult {
        match self.next_step() {
            ScriptedStep::FindOnLookUp => LookUpResult::Found { remote_id: None, text: "found".into() },
            other => panic!("scripted panic: {other:?}"),
        }
    }
}

/// Sends one mail through a next hop with this script and runs the workers until the mail has this state.
async fn run_until_state(world: World, recovery: RecoveryMethod, script: &[ScriptedStep], state: &str) -> World {
    let scripted = ScriptedTransport { steps: Arc::new(Mutex::new(script.iter().copied().collect())), recovery };
    let routing = Routing { rules: Vec::new(), default: vec!["scripted".into()] };
    let deps = EngineDeps { transports: vec![Arc::new(scripted.clone())], routing, ..EngineDeps::default() };
    let world = world.with_engine_deps(deps).await;
    let id = world.send("k", &mail()).await.expect_status(202).string_field("id");
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn(Arc::clone(&world.engine.handoffs).run_handoff(stopped));
    let mut last = String::new();
    for _ in 0..500 {
        world.email(&id).await["state"].as_str().unwrap().clone_into(&mut last);
        if last == state && scripted.steps.lock().unwrap().is_empty() {
            break;
        }
        world.advance_clock(SECOND);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stop.send_replace(true);
    running.await.unwrap();
    let left = scripted.steps.lock().unwrap().clone();
    assert!(last == state && left.is_empty(), "state {last}, steps not done: {left:?}");
    world
}

over_every_engine! {
    async fn a_panic_before_the_marker_requeues_the_handoff(world) {
        let script = [ScriptedStep::PanicOnApproach, ScriptedStep::Accept];
        let world = run_until_state(world, RecoveryMethod::None, &script, "sent").await;
        let metrics = world.call(get("/metrics")).await.text;
        assert!(metrics.contains("mailonce_worker_panics_total{worker=\"handoff\"} 1"), "{metrics}");
    }

    async fn a_panic_after_the_marker_leaves_the_outcome_unknown(world) {
        run_until_state(world, RecoveryMethod::None, &[ScriptedStep::PanicOnHandOver], "unknown").await;
    }

    async fn an_idempotent_retry_that_panics_is_retried(world) {
        let script = [ScriptedStep::LoseReply, ScriptedStep::PanicOnHandOver, ScriptedStep::PanicOnApproach, ScriptedStep::Accept];
        run_until_state(world, RecoveryMethod::IdempotencyKey { window_ms: 86_400_000 }, &script, "sent").await;
    }

    async fn a_look_up_that_panics_is_retried(world) {
        let script = [ScriptedStep::LoseReply, ScriptedStep::PanicOnLookUp, ScriptedStep::FindOnLookUp];
        run_until_state(world, RecoveryMethod::LookUp { settle_delay_ms: 60_000 }, &script, "sent").await;
    }
}

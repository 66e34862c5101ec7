//! Workers that panic: what they held is given back, and nothing waits for the end of the process.

use async_trait::async_trait;
use mailonce_core::port::transport::{
    Asked, Capability, Found, Mail, Meaning, Parcel, Phase, Ready, Recovery, Reply, Shape, Transport, Unfit, Wire,
};
use mailonce_engine::ways::{Outside, Routing};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::watch;

use crate::world::{SECOND, World, mail};

/// What a next hop does when it is spoken to, step by step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    PanicOnApproach,
    PanicOnHandOver,
    PanicOnLookUp,
    Accept,
    Lose,
    Find,
}

/// A next hop that follows a plan.
#[derive(Clone)]
struct Scripted {
    plan: Arc<Mutex<VecDeque<Plan>>>,
    recovery: Recovery,
}

impl Scripted {
    fn next(&self) -> Plan {
        self.plan.lock().unwrap().pop_front().expect("spoken to more often than planned")
    }

    /// Takes the next step if it is this one.
    fn is_next(&self, wanted: Plan) -> bool {
        let mut plan = self.plan.lock().unwrap();
        let is = plan.front() == Some(&wanted);
        if is {
            plan.pop_front();
        }
        is
    }
}

#[async_trait]
impl Ready for Scripted {
    async fn hand_over(self: Box<Self>) -> Reply {
        match self.next() {
            Plan::Accept => Reply::new(Meaning::Accepted, Phase::Final, Some(250), "ok"),
            Plan::Lose => Reply::new(Meaning::Unknown, Phase::Final, None, "no answer"),
            other => panic!("as planned: {other:?}"),
        }
    }
}

#[async_trait]
impl Transport for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn kind(&self) -> &'static str {
        "test"
    }

    fn account(&self) -> &'static str {
        "scripted"
    }

    fn capability(&self) -> Capability {
        let (shape, wire) = (Shape::PerRecipient, Wire::Mime);
        Capability { shape, wire, recovery: self.recovery, patience_ms: 10_000, at_once: 4 }
    }

    fn freeze(&self, mail: &Mail<'_>) -> Result<Vec<u8>, Unfit> {
        Ok(mail.mime.unwrap_or_default().to_vec())
    }

    async fn approach(&self, _: Parcel) -> Result<Box<dyn Ready>, Reply> {
        assert!(!self.is_next(Plan::PanicOnApproach), "as planned");
        Ok(Box::new(self.clone()))
    }

    async fn look_up(&self, _: Asked) -> Found {
        match self.next() {
            Plan::Find => Found::Yes { remote_id: None, text: "found".into() },
            other => panic!("as planned: {other:?}"),
        }
    }
}

/// Sends one mail by a next hop with this plan, and lets everything run until the mail is as it should be.
async fn ends(world: World, recovery: Recovery, plan: &[Plan], state: &str) -> World {
    let scripted = Scripted { plan: Arc::new(Mutex::new(plan.iter().copied().collect())), recovery };
    let routing = Routing { rules: Vec::new(), default: vec!["scripted".into()] };
    let outside = Outside { transports: vec![Arc::new(scripted.clone())], routing, ..Outside::default() };
    let world = world.rewired(outside).await;
    let id = world.send("k", &mail()).await.is(202).word("id");
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn(Arc::clone(&world.engine).hand_off(stopped));
    let mut last = String::new();
    for _ in 0..500 {
        world.email(&id).await["state"].as_str().unwrap().clone_into(&mut last);
        if last == state && scripted.plan.lock().unwrap().is_empty() {
            break;
        }
        world.pass(SECOND);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stop.send_replace(true);
    running.await.unwrap();
    let left = scripted.plan.lock().unwrap().clone();
    assert!(last == state && left.is_empty(), "{last}, and not done: {left:?}");
    world
}

over_every_engine! {
    async fn a_panic_before_the_marker_queues_again(world) {
        let plan = [Plan::PanicOnApproach, Plan::Accept];
        let world = ends(world, Recovery::None, &plan, "sent").await;
        let figures = world.call(crate::call::get("/metrics")).await.text;
        assert!(figures.contains("mailonce_worker_panics_total{worker=\"handoff\"} 1"), "{figures}");
    }

    async fn a_panic_after_the_marker_is_unknown(world) {
        ends(world, Recovery::None, &[Plan::PanicOnHandOver], "unknown").await;
    }

    async fn a_repeat_that_panics_is_repeated_again(world) {
        let plan = [Plan::Lose, Plan::PanicOnHandOver, Plan::PanicOnApproach, Plan::Accept];
        ends(world, Recovery::Key { window_ms: 86_400_000 }, &plan, "sent").await;
    }

    async fn a_look_up_that_panics_is_made_again(world) {
        let plan = [Plan::Lose, Plan::PanicOnLookUp, Plan::Find];
        ends(world, Recovery::LookUp { settle_ms: 60_000 }, &plan, "sent").await;
    }
}

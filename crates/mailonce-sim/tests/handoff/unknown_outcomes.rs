//! Unknown outcomes stay at their transport: a refused repeat causes no failure, no failover and no duplicate.

use mailonce_core::{
    control::stop::{StopMode, StopScope},
    id::EmailId,
    outbound::email::{EmailState, OnUnknown},
};
use mailonce_engine::control::stops::NewStop;
use mailonce_sim::sink::{
    http::{ScriptedResponse, Vendor, VendorError},
    smtp,
};
use mailonce_transport::http::HttpTransportConfig;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    engine_fixture::{EngineStore, EngineStoreKind, HOUR, MINUTE, ManualClock, SECOND, TestEngine, WAIT_TIMEOUT},
    hop_faults::HopFault,
    next_hop::{HopKind, HopSink, TestHop, provider_setting, provider_transport},
};

/// Long enough for every repeat, and shorter than every window but Brevo's.
const RETRY_STEPS: [i64; 8] = [2 * SECOND, 5 * SECOND, 10 * SECOND, 20 * SECOND, MINUTE, 2 * MINUTE, 4 * MINUTE, HOUR];

/// An email with an unknown outcome at its first transport, and a second transport that works.
struct UnknownEmailFixture {
    world: TestEngine,
    first: TestHop,
    second: TestHop,
    id: EmailId,
    _store: EngineStore,
}

impl UnknownEmailFixture {
    async fn new(kind: EngineStoreKind, next: HopKind, script: impl FnOnce(&TestHop)) -> Self {
        let (store, clock) = (EngineStore::new(kind), ManualClock::new());
        let first = next.open("first", &clock).await;
        let second = next.open("second", &clock).await;
        script(&first);
        let transports = vec![Arc::clone(&first.transport), Arc::clone(&second.transport)];
        let world = TestEngine::start(&store, transports, &["first", "second"], clock).await;
        let id = world.send_sample("order-1", None, OnUnknown::Hold).await;
        world.wait_for_attempts(id, 1).await;
        Self { world, first, second, id, _store: store }
    }

    async fn with_providers(kind: EngineStoreKind, vendor: Vendor, acts: &[ScriptedResponse]) -> Self {
        Self::new(kind, HopKind::Provider(vendor), |hop| hop.http().queue_responses(acts)).await
    }

    /// Time passes, and the email never fails, fails over or arrives twice.
    async fn advance_and_check(&self, mails: usize) {
        for step in RETRY_STEPS {
            self.world.advance(&[self.id], &[step]).await;
            let email = self.world.email(self.id).await;
            assert!(email.state() != EmailState::Failed, "{:?}", self.world.detail(self.id).await);
            assert_eq!(email.handoffs[0].transport, "first");
            assert_eq!((self.first.accepted_mail().len(), self.second.accepted_mail().len()), (mails, 0));
        }
    }

    async fn assert_final_state(&self, state: EmailState) {
        assert_eq!(self.world.state(self.id).await, state, "{:?}", self.world.detail(self.id).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_whose_credential_was_revoked_is_not_a_failure() {
    for kind in [EngineStoreKind::Memory, EngineStoreKind::Sqlite] {
        let revoked = [ScriptedResponse::Error(VendorError::Revoked); 60];
        let acts = [&[ScriptedResponse::AcceptThenDrop], &revoked[..]].concat();
        let fixture = UnknownEmailFixture::with_providers(kind, Vendor::Resend, &acts).await;
        fixture.advance_and_check(1).await;
        fixture.assert_final_state(EmailState::Unknown).await;
        fixture.first.http().clear_script();
        fixture.advance_and_check(1).await;
        fixture.assert_final_state(EmailState::Sent).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_that_is_refused_as_a_repeat_proves_the_first() {
    for (kind, vendor) in [(EngineStoreKind::Memory, Vendor::Brevo), (EngineStoreKind::Sqlite, Vendor::Other)] {
        let fixture = UnknownEmailFixture::with_providers(kind, vendor, &[ScriptedResponse::AcceptThenDrop]).await;
        fixture.advance_and_check(1).await;
        fixture.assert_final_state(EmailState::Sent).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_that_contradicts_the_first_waits_for_a_person() {
    for kind in [EngineStoreKind::Memory, EngineStoreKind::Sqlite] {
        let fixture = UnknownEmailFixture::with_providers(
            kind,
            Vendor::Resend,
            &[ScriptedResponse::AcceptThenDrop, ScriptedResponse::Error(VendorError::Mismatch)],
        )
        .await;
        fixture.advance_and_check(1).await;
        fixture.assert_final_state(EmailState::Unknown).await;
        assert_eq!(fixture.world.ended_attempts(fixture.id).await.len(), 2, "a puzzle is not tried again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_or_deferred_repeat_says_nothing_about_the_first() {
    for kind in [EngineStoreKind::Memory, EngineStoreKind::Sqlite] {
        let faults =
            [VendorError::Refused, VendorError::RateLimited(3), VendorError::Concurrent, VendorError::Unavailable]
                .map(ScriptedResponse::Error);
        let acts = [
            &[ScriptedResponse::AcceptThenDrop],
            &faults[..],
            &[ScriptedResponse::CaptivePortal, ScriptedResponse::Redirect],
        ]
        .concat();
        let fixture = UnknownEmailFixture::with_providers(kind, Vendor::Resend, &acts).await;
        fixture.advance_and_check(1).await;
        fixture.assert_final_state(EmailState::Sent).await;
        assert!(fixture.world.ended_attempts(fixture.id).await.len() >= 4, "the repeats never met the refusals");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_mail_at_a_dead_relay_does_not_fail_over() {
    for kind in [EngineStoreKind::Memory, EngineStoreKind::Sqlite] {
        let plant = |hop: &TestHop| {
            HopFault::AcceptThenDrop.inject(hop);
            let HopSink::Smtp(sink) = &hop.sink else { return };
            // From now on it refuses connections, so that the breaker opens.
            sink.always_at(smtp::SmtpStep::Greeting, smtp::SmtpAction::reply_line_and_close("554 not today"));
        };
        let fixture = UnknownEmailFixture::new(kind, HopKind::Relay, |hop| HopFault::AcceptThenDrop.inject(hop)).await;
        plant(&fixture.first);
        for n in 0..4 {
            // Other mail finds the breaker open and fails over.
            fixture.world.send_sample(&format!("other-{n}"), None, OnUnknown::Hold).await;
        }
        fixture.world.advance(&[fixture.id], &RETRY_STEPS).await;
        fixture.assert_final_state(EmailState::Unknown).await;
        assert_eq!(fixture.first.accepted_mail().len(), 1);
        let order = |mail: &String| mail.contains("order-1");
        assert!(!fixture.second.accepted_mail().iter().any(order), "an email with an unknown outcome failed over");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resend_waits_for_its_own_transport() {
    for kind in [EngineStoreKind::Memory, EngineStoreKind::Sqlite] {
        let (store, clock) = (EngineStore::new(kind), ManualClock::new());
        let (first, second) = (HopKind::Relay.open("first", &clock).await, HopKind::Relay.open("second", &clock).await);
        HopFault::AcceptThenDrop.inject(&first);
        let transports = vec![Arc::clone(&first.transport), Arc::clone(&second.transport)];
        let world = TestEngine::start(&store, transports, &["first", "second"], clock).await;
        let id = world.send_sample("order-1", None, OnUnknown::Resend).await;
        world.wait_for_attempts(id, 1).await;
        let HopSink::Smtp(sink) = &first.sink else { return };
        sink.always_at(smtp::SmtpStep::Greeting, smtp::SmtpAction::reply_line_and_close("554 not today"));
        world.clock.advance(11 * MINUTE);
        world.wait_for_email(id, "the resend", |email| email.handoffs[0].progress.retry_despite_doubt).await;
        for round in 0..3 {
            // Mail that was certainly not sent fails over while the breaker is open or half-open.
            for n in 0..4 {
                let other = world.send_sample(&format!("other-{round}-{n}"), None, OnUnknown::Hold).await;
                world.clock.advance(20 * SECOND);
                world.wait_for_email(other, "the fail-over", |email| email.state() == EmailState::Sent).await;
            }
            assert!(
                world.engine.outbound.cancel(&world.caller, id, None).await.is_err(),
                "what is in doubt was taken back"
            );
            world.clock.advance(HOUR);
        }
        assert_eq!(world.email(id).await.handoffs[0].transport, "first");
        assert!(
            !second.accepted_mail().iter().any(|mail| mail.contains("order-1")),
            "what is in doubt left by another way"
        );
        assert_eq!(first.accepted_mail().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_email_that_was_certainly_not_sent_may_fail_over() {
    // The counterpart: without it the tests above would also pass with broken failover.
    let fixture = UnknownEmailFixture::with_providers(
        EngineStoreKind::Memory,
        Vendor::Resend,
        &[ScriptedResponse::Error(VendorError::Revoked); 60],
    )
    .await;
    fixture.world.advance(&[fixture.id], &RETRY_STEPS).await;
    fixture.assert_final_state(EmailState::Sent).await;
    assert_eq!((fixture.first.accepted_mail().len(), fixture.second.accepted_mail().len()), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_resend_policy_resends_once() {
    for kind in [EngineStoreKind::Memory, EngineStoreKind::Sqlite] {
        let (store, clock) = (EngineStore::new(kind), ManualClock::new());
        let hop = HopKind::Relay.open("out", &clock).await;
        let HopSink::Smtp(sink) = &hop.sink else { return };
        sink.always_at(smtp::SmtpStep::Dot, smtp::SmtpAction::accept_then(smtp::SmtpAction::Close));
        let world = TestEngine::start(&store, vec![Arc::clone(&hop.transport)], &["out"], clock).await;
        let id = world.send_sample("order-1", None, OnUnknown::Resend).await;
        world.wait_for_attempts(id, 1).await;
        world.advance(&[id], &[5 * MINUTE, 4 * MINUTE]).await;
        assert_eq!(hop.accepted_mail().len(), 1, "it was resent before its time");
        world.clock.advance(2 * MINUTE);
        world.wait_for_attempts(id, 2).await;
        world.advance(&[id], &[HOUR, 24 * HOUR, 72 * HOUR]).await;
        let email = world.email(id).await;
        assert_eq!((hop.accepted_mail().len(), email.state()), (2, EmailState::Unknown));
        assert!(email.handoffs[0].progress.may_duplicate);
        assert_eq!(hop.accepted_mail()[0], hop.accepted_mail()[1], "the copies differ");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resend_that_a_stop_delays_resolves_nothing() {
    for kind in [EngineStoreKind::Memory, EngineStoreKind::Sqlite] {
        let (store, clock) = (EngineStore::new(kind), ManualClock::new());
        let hop = HopKind::Relay.open("out", &clock).await;
        HopFault::AcceptThenDrop.inject(&hop);
        let world = TestEngine::start(&store, vec![Arc::clone(&hop.transport)], &["out"], clock).await;
        let id = world.send_sample("order-1", None, OnUnknown::Resend).await;
        world.wait_for_attempts(id, 1).await;
        let (stops, scope) = (&world.engine.control.stops, StopScope::Team(world.caller.team.id));
        let new = NewStop { scope, mode: StopMode::Wait, reason: None };
        let stop = stops.create_stop(&world.caller, new, None).await.unwrap().value;

        let resolved = "mailonce_handoff_resolved_total{by=\"policy\"}";
        // Each minute the policy tries again, and each round begins after the one before it has ended.
        world.advance(&[id], &[11 * MINUTE, MINUTE, MINUTE]).await;
        assert_eq!(world.state(id).await, EmailState::Unknown);
        let metrics = world.engine.render_metrics("").await;
        assert!(!metrics.contains(resolved), "{metrics}");

        stops.end_stop(&world.caller, stop.id, None).await.unwrap();
        world.clock.advance(MINUTE);
        world.wait_for_attempts(id, 2).await;
        let deadline = Instant::now() + WAIT_TIMEOUT;
        while !world.engine.render_metrics("").await.contains(&format!("{resolved} 1\n")) {
            assert!(Instant::now() < deadline, "the resend was not counted");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_outcome_at_one_account_is_not_repeated_at_another() {
    let (store, clock) = (EngineStore::new(EngineStoreKind::Sqlite), ManualClock::new());
    let hop = HopKind::Provider(Vendor::Resend).open("out", &clock).await;
    hop.http().queue_responses(&[ScriptedResponse::AcceptThenDrop]);
    let before = TestEngine::start(&store, vec![Arc::clone(&hop.transport)], &["out"], Arc::clone(&clock)).await;
    let id = before.send_sample("order-1", None, OnUnknown::Hold).await;
    before.wait_for_attempts(id, 1).await;
    before.stop();
    assert!(before.wait_stopped().await);
    let moved = HttpTransportConfig { account: Some("another".into()), ..provider_setting("out", hop.http().url()) };
    let moved = provider_transport(Vendor::Resend, moved, &clock);
    hop.http().forget_keys();
    // A process that used the first account within the last minutes might still decide.
    clock.advance(6 * MINUTE);
    let after = TestEngine::start(&store, vec![moved], &["out"], clock).await;
    after.advance(&[id], &RETRY_STEPS).await;
    assert_eq!((hop.accepted_mail().len(), after.state(id).await), (1, EmailState::Unknown));
}

//! Clocks that jump by hours and years while mail is being sent: no duplicate, nothing early, no key lost.

use mailonce_core::outbound::{
    content::RawContent,
    email::{EmailState, OnUnknown},
};
use mailonce_sim::{
    harness::rng::{SeededRng, seed_from_env},
    sink::{
        http::{ScriptedResponse, Vendor},
        smtp,
    },
};
use std::{sync::Arc, time::Duration};

use crate::{
    engine_fixture::{
        DAY, EngineStore, EngineStoreKind, HOUR, MINUTE, ManualClock, SECOND, TestEngine, sample_content,
    },
    next_hop::{HopKind, HopSink, TestHop},
};

const YEAR: i64 = 365 * DAY;
const JUMPS: [i64; 6] = [HOUR, -HOUR, 20 * HOUR, -3 * DAY, 2 * YEAR, -2 * YEAR];

async fn clock_fixture(kind: EngineStoreKind, next: HopKind) -> (TestEngine, TestHop, EngineStore) {
    let (store, clock) = (EngineStore::new(kind), ManualClock::new());
    let hop = next.open("out", &clock).await;
    let world = TestEngine::start(&store, vec![Arc::clone(&hop.transport)], &["out"], clock).await;
    (world, hop, store)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_jump_while_an_outcome_is_unknown_makes_no_second_mail() {
    for jump in JUMPS {
        let (world, hop, _place) = clock_fixture(EngineStoreKind::Memory, HopKind::Provider(Vendor::Resend)).await;
        hop.http().queue_responses(&[ScriptedResponse::AcceptThenDrop]);
        let id = world.send_sample("order-1", None, OnUnknown::Hold).await;
        world.wait_for_email(id, "the doubt", |email| email.state() == EmailState::Unknown).await;
        world.clock.set_wall_clock(jump);
        // The provider's clock does not jump with ours, so our clock proves nothing about its window.
        hop.http().forget_keys();
        world.advance(&[id], &[2 * SECOND, MINUTE, HOUR]).await;
        assert!(!world.engine.ctx.is_time_trusted(), "a jump of {jump} ms was not noticed");
        // A day of the boot clock confirms the wall clock.
        world.advance(&[id], &[DAY]).await;
        assert_eq!((hop.accepted_mail().len(), world.state(id).await), (1, EmailState::Unknown), "{jump}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_was_set_right_again_goes_on_where_it_was() {
    let (world, hop, _place) = clock_fixture(EngineStoreKind::Sqlite, HopKind::Provider(Vendor::Resend)).await;
    hop.http().queue_responses(&[ScriptedResponse::AcceptThenDrop]);
    let id = world.send_sample("order-1", None, OnUnknown::Hold).await;
    world.wait_for_email(id, "the doubt", |email| email.state() == EmailState::Unknown).await;
    world.clock.set_wall_clock(2 * YEAR);
    world.advance(&[id], &[MINUTE]).await;
    world.clock.set_wall_clock(-2 * YEAR);
    world.engine.ctx.confirm_time();
    world.advance(&[id], &[MINUTE, MINUTE]).await;
    world.wait_for_email(id, "the repeat", |email| email.state() == EmailState::Sent).await;
    assert_eq!(hop.accepted_mail().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_was_fast_and_is_set_back_does_not_stretch_a_window() {
    let (world, hop, _place) = clock_fixture(EngineStoreKind::Memory, HopKind::Provider(Vendor::Resend)).await;
    hop.http().queue_responses(&[&[ScriptedResponse::AcceptThenDrop][..], &[ScriptedResponse::Drop; 4]].concat());
    let id = world.send_sample("order-1", None, OnUnknown::Hold).await;
    world.wait_for_attempts(id, 1).await;
    world.clock.set_wall_clock(-10 * HOUR);
    world.engine.ctx.now();
    world.engine.ctx.confirm_time();
    // By our ledger it is still the same hour when the provider forgets the key, a day later.
    world.advance(&[id], &[HOUR; 12]).await;
    world.advance(&[id], &[HOUR; 13]).await;
    hop.http().forget_keys();
    world.advance(&[id], &[30 * MINUTE; 40]).await;
    assert_eq!(hop.accepted_mail().len(), 1, "{:?}", world.detail(id).await);
    assert_eq!(world.state(id).await, EmailState::Unknown);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_jump_during_a_hand_over_leaves_its_answer_alone() {
    for (n, jump) in JUMPS.into_iter().enumerate() {
        let kind = if n % 2 == 0 { EngineStoreKind::Memory } else { EngineStoreKind::Sqlite };
        let (world, hop, _place) = clock_fixture(kind, HopKind::Relay).await;
        let HopSink::Smtp(sink) = &hop.sink else { return };
        sink.once_at(smtp::SmtpStep::Dot, smtp::SmtpAction::Late(Duration::from_millis(500)));
        let id = world.send_sample("order-1", None, OnUnknown::Hold).await;
        world.wait_for_email(id, "the marker", |email| email.state() == EmailState::Sending).await;
        world.clock.set_wall_clock(jump);
        world.wait_for_email(id, "the answer", |email| email.state() == EmailState::Sent).await;
        world.advance(&[id], &[HOUR, DAY]).await;
        assert_eq!(hop.accepted_mail().len(), 1, "{jump}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_scheduled_is_early_and_no_key_is_forgotten() {
    for jump in JUMPS {
        let (world, hop, _place) = clock_fixture(EngineStoreKind::Sqlite, HopKind::Relay).await;
        let sent = world.send_sample("sent", None, OnUnknown::Hold).await;
        world.wait_for_email(sent, "the first mail", |email| email.state() == EmailState::Sent).await;
        let due = world.engine.ctx.now().plus(2 * HOUR);
        let later = RawContent { scheduled_at: Some(due.to_string()), ..sample_content("later") };
        let later = world.send_content("later", later, None, OnUnknown::Hold).await;
        world.clock.set_wall_clock(jump);
        world.advance(&[sent], &[SECOND, MINUTE, HOUR]).await;
        assert_eq!(world.state(later).await, EmailState::Scheduled, "{jump}");
        assert_eq!(hop.accepted_mail().len(), 1, "{jump}");
        assert_eq!(world.send_sample("sent", None, OnUnknown::Hold).await, sent, "the key was forgotten after {jump}");
        // Once the clock is corrected and confirmed, the mail is sent on time.
        world.clock.set_wall_clock(-jump);
        world.engine.ctx.confirm_time();
        world.clock.advance(HOUR + MINUTE);
        world.wait_for_email(later, "the scheduled mail", |email| email.state() == EmailState::Sent).await;
        assert_eq!(hop.accepted_mail().len(), 2, "{jump}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_never_stands_still_makes_no_second_mail() {
    let seed = seed_from_env();
    let mut rng = SeededRng::derive(seed, &[5]);
    let (store, clock) = (EngineStore::new(EngineStoreKind::Memory), ManualClock::new());
    let relay = HopKind::Relay.open("relay", &clock).await;
    let resend = HopKind::Provider(Vendor::Resend).open("resend", &clock).await;
    let transports = vec![Arc::clone(&relay.transport), Arc::clone(&resend.transport)];
    let world = TestEngine::start(&store, transports, &["relay"], clock).await;
    let mut ids = Vec::new();
    for n in 0..40 {
        let way = if rng.below(2) == 0 { "relay" } else { "resend" };
        if rng.below(2) == 0 {
            resend.http().queue_responses(&[ScriptedResponse::AcceptThenDrop]);
            if let HopSink::Smtp(sink) = &relay.sink {
                sink.once_at(smtp::SmtpStep::Dot, smtp::SmtpAction::accept_then(smtp::SmtpAction::Close));
            }
        }
        ids.push(world.send_sample(&format!("order-{n}"), Some(way), OnUnknown::Hold).await);
        world.clock.set_wall_clock(rng.between(0, 2 * 10 * DAY as u64) as i64 - 10 * DAY);
        world.clock.advance(rng.below(5 * MINUTE as u64) as i64);
        if rng.below(4) == 0 {
            world.engine.ctx.confirm_time();
        }
        if rng.below(4) == 0 {
            world.wait_until_idle(&ids).await;
        }
    }
    world.engine.ctx.confirm_time();
    world.advance(&ids, &[MINUTE, HOUR, DAY, 30 * DAY, 30 * DAY]).await;
    let replay = format!("MAILONCE_SEED={seed} cargo test -p mailonce-sim --test handoff clocks");
    for (n, id) in ids.iter().enumerate() {
        let subject = format!("order-{n}@");
        let at_relay = match &relay.sink {
            HopSink::Smtp(sink) => {
                sink.mails().iter().filter(|mail| mail.recipients[0].0.starts_with(&subject)).count()
            }
            HopSink::Http(_) => 0,
        };
        let taken = resend.http().accepted_mail();
        let at_resend = taken.iter().filter(|mail| mail.recipients[0].starts_with(&subject)).count();
        let (mails, state) = (at_relay + at_resend, world.state(*id).await);
        let right = match state {
            EmailState::Sent => mails == 1,
            EmailState::Unknown => mails <= 1,
            _ => false,
        };
        assert!(right, "order-{n} is {} with {mails} mails; replay: {replay}", state.as_str());
    }
}

//! Clocks that are set forward and back by hours and years while mail is on its way: no second mail, nothing early,
//! nothing forgotten.

use mailonce_core::{
    content::RawContent,
    email::{EmailState, OnUnknown},
};
use mailonce_sim::{
    rig::chance::{Chance, seed},
    sink::{
        http::{Act, Vendor},
        smtp,
    },
};
use std::{sync::Arc, time::Duration};

use crate::{
    hop::{Hop, Next, Oracle},
    world::{DAY, HOUR, Hands, Kind, MINUTE, Place, SECOND, World, letter},
};

const YEAR: i64 = 365 * DAY;
const JUMPS: [i64; 6] = [HOUR, -HOUR, 20 * HOUR, -3 * DAY, 2 * YEAR, -2 * YEAR];

async fn scene(kind: Kind, next: Next) -> (World, Hop, Place) {
    let (place, clock) = (Place::new(kind), Hands::new());
    let hop = next.open("out", &clock).await;
    let world = World::at(&place, vec![Arc::clone(&hop.transport)], &["out"], clock).await;
    (world, hop, place)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_jump_while_an_outcome_is_unknown_makes_no_second_mail() {
    for jump in JUMPS {
        let (world, hop, _place) = scene(Kind::Memory, Next::Provider(Vendor::Resend)).await;
        hop.http().script(&[Act::TakeThenDrop]);
        let id = world.send("order-1", None, OnUnknown::Hold).await;
        world.until(id, "the doubt", |email| email.state() == EmailState::Unknown).await;
        world.clock.jump(jump);
        // The provider's clock does not jump with ours; ours says nothing about its window.
        hop.http().forget_keys();
        world.pass(&[id], &[2 * SECOND, MINUTE, HOUR]).await;
        assert!(!world.engine.time_is_sure(), "nobody noticed a jump of {jump} ms");
        // A day of the boot clock confirms the wall clock as it is.
        world.pass(&[id], &[DAY]).await;
        assert_eq!((hop.taken().len(), world.state(id).await), (1, EmailState::Unknown), "{jump}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_was_set_right_again_goes_on_where_it_was() {
    let (world, hop, _place) = scene(Kind::Sqlite, Next::Provider(Vendor::Resend)).await;
    hop.http().script(&[Act::TakeThenDrop]);
    let id = world.send("order-1", None, OnUnknown::Hold).await;
    world.until(id, "the doubt", |email| email.state() == EmailState::Unknown).await;
    world.clock.jump(2 * YEAR);
    world.pass(&[id], &[MINUTE]).await;
    world.clock.jump(-2 * YEAR);
    world.engine.confirm_time();
    world.pass(&[id], &[MINUTE, MINUTE]).await;
    world.until(id, "the repeat", |email| email.state() == EmailState::Sent).await;
    assert_eq!(hop.taken().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_was_fast_and_is_set_back_does_not_stretch_a_window() {
    let (world, hop, _place) = scene(Kind::Memory, Next::Provider(Vendor::Resend)).await;
    hop.http().script(&[&[Act::TakeThenDrop][..], &[Act::Drop; 4]].concat());
    let id = world.send("order-1", None, OnUnknown::Hold).await;
    world.tried(id, 1).await;
    world.clock.jump(-10 * HOUR);
    world.engine.now();
    world.engine.confirm_time();
    // By our ledger it is still the same hour when the provider forgets, a day later.
    world.pass(&[id], &[HOUR; 12]).await;
    world.pass(&[id], &[HOUR; 13]).await;
    hop.http().forget_keys();
    world.pass(&[id], &[30 * MINUTE; 40]).await;
    assert_eq!(hop.taken().len(), 1, "{:?}", world.detail(id).await);
    assert_eq!(world.state(id).await, EmailState::Unknown);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_jump_during_a_hand_over_leaves_its_answer_alone() {
    for (n, jump) in JUMPS.into_iter().enumerate() {
        let kind = if n % 2 == 0 { Kind::Memory } else { Kind::Sqlite };
        let (world, hop, _place) = scene(kind, Next::Relay).await;
        let Oracle::Smtp(sink) = &hop.sink else { return };
        sink.once(smtp::Step::Dot, smtp::Act::Late(Duration::from_millis(500)));
        let id = world.send("order-1", None, OnUnknown::Hold).await;
        world.until(id, "the marker", |email| email.state() == EmailState::Sending).await;
        world.clock.jump(jump);
        world.until(id, "the answer", |email| email.state() == EmailState::Sent).await;
        world.pass(&[id], &[HOUR, DAY]).await;
        assert_eq!(hop.taken().len(), 1, "{jump}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_scheduled_is_early_and_no_key_is_forgotten() {
    for jump in JUMPS {
        let (world, hop, _place) = scene(Kind::Sqlite, Next::Relay).await;
        let sent = world.send("sent", None, OnUnknown::Hold).await;
        world.until(sent, "the first mail", |email| email.state() == EmailState::Sent).await;
        let due = world.engine.now().plus(2 * HOUR);
        let later = RawContent { scheduled_at: Some(due.to_string()), ..letter("later") };
        let later = world.wish("later", later, None, OnUnknown::Hold).await;
        world.clock.jump(jump);
        world.pass(&[sent], &[SECOND, MINUTE, HOUR]).await;
        assert_eq!(world.state(later).await, EmailState::Scheduled, "{jump}");
        assert_eq!(hop.taken().len(), 1, "{jump}");
        assert_eq!(world.send("sent", None, OnUnknown::Hold).await, sent, "the key was forgotten after {jump}");
        // Set right again and confirmed, it leaves when its time comes.
        world.clock.jump(-jump);
        world.engine.confirm_time();
        world.clock.pass(HOUR + MINUTE);
        world.until(later, "the scheduled mail", |email| email.state() == EmailState::Sent).await;
        assert_eq!(hop.taken().len(), 2, "{jump}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_never_stands_still_makes_no_second_mail() {
    let seed = seed();
    let mut chance = Chance::at(seed, &[5]);
    let (place, clock) = (Place::new(Kind::Memory), Hands::new());
    let relay = Next::Relay.open("relay", &clock).await;
    let resend = Next::Provider(Vendor::Resend).open("resend", &clock).await;
    let transports = vec![Arc::clone(&relay.transport), Arc::clone(&resend.transport)];
    let world = World::at(&place, transports, &["relay"], clock).await;
    let mut ids = Vec::new();
    for n in 0..40 {
        let way = if chance.below(2) == 0 { "relay" } else { "resend" };
        if chance.below(2) == 0 {
            resend.http().script(&[Act::TakeThenDrop]);
            if let Oracle::Smtp(sink) = &relay.sink {
                sink.once(smtp::Step::Dot, smtp::Act::taken(smtp::Act::Cut));
            }
        }
        ids.push(world.send(&format!("order-{n}"), Some(way), OnUnknown::Hold).await);
        world.clock.jump(chance.between(0, 2 * 10 * DAY as u64) as i64 - 10 * DAY);
        world.clock.pass(chance.below(5 * MINUTE as u64) as i64);
        if chance.below(4) == 0 {
            world.engine.confirm_time();
        }
        if chance.below(4) == 0 {
            world.quiet(&ids).await;
        }
    }
    world.engine.confirm_time();
    world.pass(&ids, &[MINUTE, HOUR, DAY, 30 * DAY, 30 * DAY]).await;
    let replay = format!("MAILONCE_SEED={seed} cargo test -p mailonce-sim --test handoff clocks");
    for (n, id) in ids.iter().enumerate() {
        let subject = format!("order-{n}@");
        let at_relay = match &relay.sink {
            Oracle::Smtp(sink) => sink.mails().iter().filter(|mail| mail.recipients[0].0.starts_with(&subject)).count(),
            Oracle::Http(_) => 0,
        };
        let taken = resend.http().taken();
        let at_resend = taken.iter().filter(|mail| mail.recipients[0].starts_with(&subject)).count();
        let (mails, state) = (at_relay + at_resend, world.state(*id).await);
        let right = match state {
            EmailState::Sent => mails == 1,
            EmailState::Unknown => mails <= 1,
            _ => false,
        };
        assert!(right, "order-{n} is {} with {mails} mails; replay: {replay}", state.word());
    }
}

//! What is in doubt stays where it is: no refusal of a repeat makes it failed, none makes it leave for another way,
//! and none makes a second mail.

use mailonce_core::{
    email::{EmailState, OnUnknown},
    id::EmailId,
};
use mailonce_sim::sink::{
    http::{Act, Trouble, Vendor},
    smtp,
};
use mailonce_transport::http::Setting;
use std::sync::Arc;

use crate::{
    fault::Fault,
    hop::{Hop, Next, Oracle, provider, setting},
    world::{HOUR, Hands, Kind, MINUTE, Place, SECOND, World},
};

/// Long enough for every repeat, short enough for every window but Brevo's.
const AFTERWARDS: [i64; 8] = [2 * SECOND, 5 * SECOND, 10 * SECOND, 20 * SECOND, MINUTE, 2 * MINUTE, 4 * MINUTE, HOUR];

/// An email whose first way is in doubt, with a second way that works.
struct Scene {
    world: World,
    first: Hop,
    second: Hop,
    id: EmailId,
    _place: Place,
}

impl Scene {
    async fn new(kind: Kind, next: Next, script: impl FnOnce(&Hop)) -> Self {
        let (place, clock) = (Place::new(kind), Hands::new());
        let first = next.open("first", &clock).await;
        let second = next.open("second", &clock).await;
        script(&first);
        let transports = vec![Arc::clone(&first.transport), Arc::clone(&second.transport)];
        let world = World::at(&place, transports, &["first", "second"], clock).await;
        let id = world.send("order-1", None, OnUnknown::Hold).await;
        world.tried(id, 1).await;
        Self { world, first, second, id, _place: place }
    }

    async fn providers(kind: Kind, vendor: Vendor, acts: &[Act]) -> Self {
        Self::new(kind, Next::Provider(vendor), |hop| hop.http().script(acts)).await
    }

    /// Time passes, and at no rest is the email failed, elsewhere or twice.
    async fn passes(&self, mails: usize) {
        for step in AFTERWARDS {
            self.world.pass(&[self.id], &[step]).await;
            let email = self.world.email(self.id).await;
            assert!(email.state() != EmailState::Failed, "{:?}", self.world.detail(self.id).await);
            assert_eq!(email.handoffs[0].transport, "first");
            assert_eq!((self.first.taken().len(), self.second.taken().len()), (mails, 0));
        }
    }

    async fn ends(&self, state: EmailState) {
        assert_eq!(self.world.state(self.id).await, state, "{:?}", self.world.detail(self.id).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_whose_credential_was_revoked_is_not_a_failure() {
    for kind in [Kind::Memory, Kind::Sqlite] {
        let revoked = [Act::Trouble(Trouble::Revoked); 60];
        let acts = [&[Act::TakeThenDrop], &revoked[..]].concat();
        let scene = Scene::providers(kind, Vendor::Resend, &acts).await;
        scene.passes(1).await;
        scene.ends(EmailState::Unknown).await;
        scene.first.http().clear_script();
        scene.passes(1).await;
        scene.ends(EmailState::Sent).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_that_is_refused_as_a_repeat_proves_the_first() {
    for (kind, vendor) in [(Kind::Memory, Vendor::Brevo), (Kind::Sqlite, Vendor::Other)] {
        let scene = Scene::providers(kind, vendor, &[Act::TakeThenDrop]).await;
        scene.passes(1).await;
        scene.ends(EmailState::Sent).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_that_contradicts_the_first_waits_for_a_person() {
    for kind in [Kind::Memory, Kind::Sqlite] {
        let scene = Scene::providers(kind, Vendor::Resend, &[Act::TakeThenDrop, Act::Trouble(Trouble::Mismatch)]).await;
        scene.passes(1).await;
        scene.ends(EmailState::Unknown).await;
        assert_eq!(scene.world.ended(scene.id).await.len(), 2, "a puzzle is not tried again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_that_is_refused_or_put_off_says_nothing_of_the_first() {
    for kind in [Kind::Memory, Kind::Sqlite] {
        let troubles = [Trouble::Refused, Trouble::Busy(3), Trouble::Concurrent, Trouble::Away].map(Act::Trouble);
        let acts = [&[Act::TakeThenDrop], &troubles[..], &[Act::Portal, Act::Redirect]].concat();
        let scene = Scene::providers(kind, Vendor::Resend, &acts).await;
        scene.passes(1).await;
        scene.ends(EmailState::Sent).await;
        assert!(scene.world.ended(scene.id).await.len() >= 4, "the repeats never met the refusals");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_took_a_mail_and_went_away_keeps_it() {
    for kind in [Kind::Memory, Kind::Sqlite] {
        let plant = |hop: &Hop| {
            Fault::AcceptThenDrop.plant(hop);
            let Oracle::Smtp(sink) = &hop.sink else { return };
            // From now on it lets nobody in, so that the way rests.
            sink.on(smtp::Step::Greeting, smtp::Act::say_and_close("554 not today"));
        };
        let scene = Scene::new(kind, Next::Relay, |hop| Fault::AcceptThenDrop.plant(hop)).await;
        plant(&scene.first);
        for n in 0..4 {
            // Other mail finds the way closed and leaves for the second one.
            scene.world.send(&format!("other-{n}"), None, OnUnknown::Hold).await;
        }
        scene.world.pass(&[scene.id], &AFTERWARDS).await;
        scene.ends(EmailState::Unknown).await;
        assert_eq!(scene.first.taken().len(), 1);
        let order = |mail: &String| mail.contains("order-1");
        assert!(!scene.second.taken().iter().any(order), "what is in doubt left for another way");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_email_that_is_to_be_resent_waits_for_its_own_way() {
    for kind in [Kind::Memory, Kind::Sqlite] {
        let (place, clock) = (Place::new(kind), Hands::new());
        let (first, second) = (Next::Relay.open("first", &clock).await, Next::Relay.open("second", &clock).await);
        Fault::AcceptThenDrop.plant(&first);
        let transports = vec![Arc::clone(&first.transport), Arc::clone(&second.transport)];
        let world = World::at(&place, transports, &["first", "second"], clock).await;
        let id = world.send("order-1", None, OnUnknown::Resend).await;
        world.tried(id, 1).await;
        let Oracle::Smtp(sink) = &first.sink else { return };
        sink.on(smtp::Step::Greeting, smtp::Act::say_and_close("554 not today"));
        world.clock.pass(11 * MINUTE);
        world.until(id, "the resend", |email| email.handoffs[0].work.again).await;
        for round in 0..3 {
            // What surely did not leave takes the other way, while this one rests or tries.
            for n in 0..4 {
                let other = world.send(&format!("other-{round}-{n}"), None, OnUnknown::Hold).await;
                world.clock.pass(20 * SECOND);
                world.until(other, "the fail-over", |email| email.state() == EmailState::Sent).await;
            }
            assert!(world.engine.cancel(&world.caller, id, None).await.is_err(), "what is in doubt was taken back");
            world.clock.pass(HOUR);
        }
        assert_eq!(world.email(id).await.handoffs[0].transport, "first");
        assert!(!second.taken().iter().any(|mail| mail.contains("order-1")), "what is in doubt left by another way");
        assert_eq!(first.taken().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mail_that_surely_did_not_leave_may_take_another_way() {
    // The counterpart: without it the tests above would also pass with fail-over broken.
    let scene = Scene::providers(Kind::Memory, Vendor::Resend, &[Act::Trouble(Trouble::Revoked); 60]).await;
    scene.world.pass(&[scene.id], &AFTERWARDS).await;
    scene.ends(EmailState::Sent).await;
    assert_eq!((scene.first.taken().len(), scene.second.taken().len()), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_email_that_wishes_it_is_resent_once_and_no_more() {
    for kind in [Kind::Memory, Kind::Sqlite] {
        let (place, clock) = (Place::new(kind), Hands::new());
        let hop = Next::Relay.open("out", &clock).await;
        let Oracle::Smtp(sink) = &hop.sink else { return };
        sink.on(smtp::Step::Dot, smtp::Act::taken(smtp::Act::Cut));
        let world = World::at(&place, vec![Arc::clone(&hop.transport)], &["out"], clock).await;
        let id = world.send("order-1", None, OnUnknown::Resend).await;
        world.tried(id, 1).await;
        world.pass(&[id], &[5 * MINUTE, 4 * MINUTE]).await;
        assert_eq!(hop.taken().len(), 1, "it was resent before its time");
        world.clock.pass(2 * MINUTE);
        world.tried(id, 2).await;
        world.pass(&[id], &[HOUR, 24 * HOUR, 72 * HOUR]).await;
        let email = world.email(id).await;
        assert_eq!((hop.taken().len(), email.state()), (2, EmailState::Unknown));
        assert!(email.handoffs[0].work.may_duplicate);
        assert_eq!(hop.taken()[0], hop.taken()[1], "the copies differ");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_doubt_at_one_account_is_not_repeated_at_another() {
    let (place, clock) = (Place::new(Kind::Sqlite), Hands::new());
    let hop = Next::Provider(Vendor::Resend).open("out", &clock).await;
    hop.http().script(&[Act::TakeThenDrop]);
    let before = World::at(&place, vec![Arc::clone(&hop.transport)], &["out"], Arc::clone(&clock)).await;
    let id = before.send("order-1", None, OnUnknown::Hold).await;
    before.tried(id, 1).await;
    before.stop();
    assert!(before.over().await);
    let moved = Setting { account: Some("another".into()), ..setting("out", hop.http().url()) };
    let moved = provider(Vendor::Resend, moved, &clock);
    hop.http().forget_keys();
    // A process that had the first account within the last minutes might still decide.
    clock.pass(6 * MINUTE);
    let after = World::at(&place, vec![moved], &["out"], clock).await;
    after.pass(&[id], &AFTERWARDS).await;
    assert_eq!((hop.taken().len(), after.state(id).await), (1, EmailState::Unknown));
}

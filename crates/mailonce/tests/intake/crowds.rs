//! Many at once: bounds of connections and networks, and what an idle connection costs.

use crate::world::{Client, ENVELOPE, World, settings};
use mailonce::intake::smtp::{PerIp, Reason, Settings};
use std::time::{Duration, Instant};

#[tokio::test]
async fn one_connection_too_many_is_told_to_come_again() {
    let world = World::new(Settings { max_connections: 2, ..settings() });
    let (at, _listening) = world.listen().await;
    let mut first = Client::dial(at).await;
    assert!(first.hear().await.starts_with("220"));
    let mut second = Client::dial(at).await;
    assert!(second.hear().await.starts_with("220"));
    let mut third = Client::dial(at).await;
    assert!(third.hear().await.starts_with("421 4.3.2"));
    assert_eq!(third.hear().await, "", "closed");
    assert!(first.ask("QUIT\r\n").await.starts_with("221"));
    drop(first);
    // The place is free once the listener has noticed, which the next ones find out by asking.
    let began = Instant::now();
    while !Client::dial(at).await.hear().await.starts_with("220") {
        assert!(began.elapsed() < Duration::from_secs(20), "a place that was left is not given again");
    }
    assert!(world.tally.refused(Reason::Busy) >= 1);
}

#[tokio::test]
async fn a_network_has_its_bounds_and_this_machine_only_when_told() {
    let bounds = PerIp { connections: Some(1), mails_per_minute: Some(1), ..PerIp::default() };
    let free = World::new(Settings { per_ip: bounds, ..settings() });
    let (at, _listening) = free.listen().await;
    for _ in 0..3 {
        assert!(Client::dial(at).await.hear().await.starts_with("220"));
    }
    let bound = World::new(Settings { per_ip_loopback: bounds, ..settings() });
    let (at, _listening) = bound.listen().await;
    let mut first = Client::dial(at).await;
    assert!(first.hear().await.starts_with("220"));
    assert!(Client::dial(at).await.hear().await.starts_with("421 4.7.0"));
    first.say(format!("{ENVELOPE}x\r\n.\r\nMAIL FROM:<>\r\n")).await;
    assert_eq!(first.codes(6).await, ["250", "250", "250", "354", "250", "450"]);
    assert_eq!(bound.tally.refused(Reason::Rate), 2);
}

#[tokio::test]
async fn a_stop_closes_the_door_and_ends() {
    let world = World::new(Settings {
        patience: mailonce::intake::smtp::Patience { farewell: Duration::from_millis(200), ..settings().patience },
        ..settings()
    });
    let (at, listening) = world.listen().await;
    let mut idle = Client::dial(at).await;
    assert!(idle.hear().await.starts_with("220"));
    let mut busy = Client::dial(at).await;
    busy.say(ENVELOPE).await;
    busy.codes(5).await;
    world.stop();
    assert!(idle.hear().await.starts_with("421 4.3.2"));
    drop(idle);
    listening.await.unwrap();
    assert_eq!(busy.hear().await, "", "it had its time");
    assert!(tokio::net::TcpStream::connect(at).await.is_err(), "nobody listens");
    assert_eq!((world.tally.open(), world.recorder.mails().len()), (0, 0));
}

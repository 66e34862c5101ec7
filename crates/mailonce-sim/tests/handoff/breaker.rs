//! A way out that rests: every team is told so once, and once that it works again.

use mailonce_core::{
    email::{EmailState, OnUnknown},
    id::TeamId,
    record::RecordKind,
};
use mailonce_sim::sink::smtp::{Act, Step};
use std::sync::Arc;

use crate::{
    hop::{Next, Oracle},
    world::{Hands, Kind, Place, SECOND, World},
};

/// What a team was told of ways out.
async fn told(place: &Place, team: TeamId) -> Vec<(String, String)> {
    let events = place.store.events(team, 0, 1_000).await.unwrap();
    let of_ways = events.into_iter().filter(|event| event.event.kind.about() == "transport");
    of_ways.map(|event| (event.event.kind.word().to_owned(), event.event.data["transport"].to_string())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_team_is_told_once_that_a_way_rests_and_once_that_it_works() {
    for kind in [Kind::Memory, Kind::Sqlite] {
        let (place, clock) = (Place::new(kind), Hands::new());
        let hop = Next::Relay.open("relay", &clock).await;
        let Oracle::Smtp(sink) = &hop.sink else { panic!("a relay speaks SMTP") };
        // Three open it, and two more find that it still rests.
        for _ in 0..5 {
            sink.once(Step::Greeting, Act::say_and_close("554 not today"));
        }
        let world = World::at(&place, vec![Arc::clone(&hop.transport)], &["relay"], clock).await;
        let about = place.store.api_keys(world.caller.team.id).await.unwrap().remove(0).about;
        world.engine.create_team(&world.caller, "other", about, None).await.unwrap();
        let id = world.send("order-1", None, OnUnknown::Hold).await;
        world.tried(id, 3).await;
        for _ in 0..600 {
            if world.state(id).await == EmailState::Sent {
                break;
            }
            world.clock.pass(10 * SECOND);
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        world.until(id, "the hand-over", |email| email.state() == EmailState::Sent).await;
        let relay = "\"relay\"".to_owned();
        let wanted = [("transport.opened".to_owned(), relay.clone()), ("transport.closed".to_owned(), relay)];
        let teams = place.store.teams().await.unwrap();
        assert_eq!(teams.len(), 2);
        for team in teams.iter().map(|team| team.id) {
            let close = async {
                while told(&place, team).await.len() < 2 {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(std::time::Duration::from_secs(30), close).await.expect("a team was not told");
            assert_eq!(told(&place, team).await, wanted);
            assert_eq!(place.store.records(team, RecordKind::Transport, None, 10).await.unwrap().rows.len(), 1);
        }
    }
}

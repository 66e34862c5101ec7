//! A circuit breaker that opens and closes: every team gets one event for each.

use mailonce_core::{
    id::TeamId,
    outbound::email::{EmailState, OnUnknown},
    record::RecordKind,
};
use mailonce_sim::sink::smtp::{SmtpAction, SmtpStep};
use std::sync::Arc;

use crate::{
    engine_fixture::{EngineStore, EngineStoreKind, ManualClock, SECOND, TestEngine},
    next_hop::{HopKind, HopSink},
};

/// The transport events of a team.
async fn transport_events(store: &EngineStore, team: TeamId) -> Vec<(String, String)> {
    let events = store.store.events(team, 0, 1_000).await.unwrap();
    let of_ways = events.into_iter().filter(|event| event.event.kind.subject_type() == "transport");
    of_ways.map(|event| (event.event.kind.as_str().to_owned(), event.event.data["transport"].to_string())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_team_is_notified_once_when_a_breaker_opens_and_once_when_it_closes() {
    for kind in [EngineStoreKind::Memory, EngineStoreKind::Sqlite] {
        let (store, clock) = (EngineStore::new(kind), ManualClock::new());
        let hop = HopKind::Relay.open("relay", &clock).await;
        let HopSink::Smtp(sink) = &hop.sink else { panic!("a relay speaks SMTP") };
        // Three failures open it, and two more calls find it open.
        for _ in 0..5 {
            sink.once_at(SmtpStep::Greeting, SmtpAction::reply_line_and_close("554 not today"));
        }
        let world = TestEngine::start(&store, vec![Arc::clone(&hop.transport)], &["relay"], clock).await;
        let about = store.store.api_keys(world.caller.team.id).await.unwrap().remove(0).details;
        world.engine.access.create_team(&world.caller, "other", about, None).await.unwrap();
        let id = world.send_sample("order-1", None, OnUnknown::Hold).await;
        world.wait_for_attempts(id, 3).await;
        for _ in 0..600 {
            if world.state(id).await == EmailState::Sent {
                break;
            }
            world.clock.advance(10 * SECOND);
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        world.wait_for_email(id, "the hand-over", |email| email.state() == EmailState::Sent).await;
        let relay = "\"relay\"".to_owned();
        let wanted =
            [("transport.breaker_opened".to_owned(), relay.clone()), ("transport.breaker_closed".to_owned(), relay)];
        let teams = store.store.teams().await.unwrap();
        assert_eq!(teams.len(), 2);
        for team in teams.iter().map(|team| team.id) {
            let close = async {
                while transport_events(&store, team).await.len() < 2 {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(std::time::Duration::from_secs(30), close).await.expect("a team was not told");
            assert_eq!(transport_events(&store, team).await, wanted);
            assert_eq!(store.store.records(team, RecordKind::Transport, None, 10).await.unwrap().rows.len(), 1);
        }
    }
}

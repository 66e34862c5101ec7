//! Upkeep: a full sweep batch is followed by another, and work recovered from dead nodes is counted.

use mailonce_core::{
    id::{EndpointId, NodeId, TeamId},
    outbound::{email::EmailState, email_query::EmailQuery},
    record::{Record, RecordKind, TEAM_SETTINGS},
};
use mailonce_engine::EngineDeps;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::fixtures::{
    api_fixture::{DAY, HOUR, World, mail},
    conversations::TestMail,
    database::connect_client,
    requests::{delete, get, patch, post},
    webhook_receivers::{ScriptedReceiver, respond_with},
};

/// Creates an endpoint with one pending notice for each of this many emails.
async fn endpoint_with_pending_notices(world: World, emails: usize) -> (World, String) {
    let world = world.with_notifier(ScriptedReceiver::new(|_| respond_with(200))).await;
    let endpoint = json!({ "url": "https://hooks.example.com/in", "events": ["email.accepted"] });
    let endpoint = world.post("/v1/endpoints", &endpoint).await.expect_status(201).string_field("id");
    let batch: Vec<Value> = (0..emails).map(|_| mail()).collect();
    world.call(post("/v1/emails/batch").key("k").json(&json!(batch))).await.expect_status(202);
    while world.engine.ctx.store().fan_out(512, world.engine.ctx.now()).await.unwrap().has_more {}
    (world, endpoint)
}

/// Three teams, each with an email that was sent two days ago and one that waits for room in a budget. Returns the API
/// key of each.
async fn three_teams_with_old_mail(world: &World) -> [String; 3] {
    let keys = [world.secret().to_owned(), world.create_team("second").await, world.create_team("third").await];
    let scope = json!({ "team": true });
    let budget =
        json!({ "name": "one", "scope": scope, "measure": "mails", "per": "day", "limit": 1, "at_limit": "hold" });
    let settings = json!({ "retention": { "bodies": "1h", "audit": "1d" } });
    for key in &keys {
        world.call(post("/v1/budgets").bearer(key).json(&budget)).await.expect_status(201);
        world.call(patch("/v1/settings").bearer(key).json(&settings)).await.expect_status(200);
        for n in ["1", "2"] {
            world.call(post("/v1/emails").key(n).bearer(key).json(&mail())).await.expect_status(202);
        }
    }
    world.hand_off_due().await;
    world.advance_clock(2 * DAY);
    world.engine.ctx.confirm_time();
    keys
}

/// Makes the settings of a team unreadable. The engine is a new one, which has nothing cached.
async fn with_damaged_settings(world: World, team: TeamId) -> World {
    let store = world.engine.ctx.store();
    let found = store.record_by_name(team, RecordKind::Settings, TEAM_SETTINGS).await.unwrap().unwrap();
    assert!(store.replace_record(&Record { json: r#""damaged""#.into(), ..found }).await.unwrap());
    world.with_engine_deps(EngineDeps::default()).await
}

/// Whether the body of the sent email of a team is stored, and how many audit entries are.
async fn remaining_body_and_audit_rows(world: &World, team: TeamId) -> (bool, usize) {
    let store = world.engine.ctx.store();
    let emails = store.emails(team, EmailQuery { limit: 10, ..EmailQuery::default() }).await.unwrap().rows;
    let sent = emails.iter().find(|email| email.state() == EmailState::Sent).unwrap().id;
    let body = store.email_detail(team, sent).await.unwrap().unwrap().body;
    (body.is_some(), store.audit_page(team, 0, 100).await.unwrap().rows.len())
}

over_every_engine! {
    async fn held_email_of_a_damaged_team_keeps_no_other_team_waiting(world) {
        three_teams_with_old_mail(&world).await;
        let first = world.engine.ctx.store().emails_held_by_budget(None, 10).await.unwrap()[0].team;
        let world = with_damaged_settings(world, first).await;

        world.engine.budgets.release_held_by_budget().await.unwrap_err();

        let held = world.engine.ctx.store().emails_held_by_budget(None, 10).await.unwrap();
        assert_eq!(held.iter().map(|email| email.team).collect::<Vec<_>>(), [first]);
    }

    async fn retention_of_a_damaged_team_keeps_no_other_team_waiting(world) {
        three_teams_with_old_mail(&world).await;
        let teams: Vec<TeamId> = world.engine.ctx.store().teams().await.unwrap().iter().map(|team| team.id).collect();
        let world = with_damaged_settings(world, teams[0]).await;
        let mut before = Vec::new();
        for team in &teams {
            before.push(remaining_body_and_audit_rows(&world, *team).await);
        }

        world.engine.control.apply_retention().await.unwrap_err();
        world.engine.prune_audit().await;

        for (team, (had_body, entries)) in teams.iter().zip(before) {
            assert!(had_body && entries > 1);
            let (has_body, left) = remaining_body_and_audit_rows(&world, *team).await;
            assert_eq!((has_body, left == entries), (*team == teams[0], *team == teams[0]));
        }
    }

    async fn all_notices_of_a_deleted_endpoint_are_swept_in_one_round(world) {
        let (world, endpoint) = endpoint_with_pending_notices(world, 510).await;
        world.call(delete(&format!("/v1/endpoints/{endpoint}"))).await.expect_status(200);
        world.engine.sweep().await;
        assert_eq!(world.engine.ctx.store().sweep(10_000, world.engine.ctx.now()).await.unwrap().notices, 0);
    }

    async fn notices_recovered_from_a_dead_node_are_counted(world) {
        let (world, endpoint) = endpoint_with_pending_notices(world, 3).await;
        let (store, now) = (world.engine.ctx.store(), world.engine.ctx.now());
        let endpoint: EndpointId = endpoint.parse().unwrap();
        let team = store.endpoints_with_due_notices(1, now).await.unwrap()[0].team;
        let dead_node = NodeId(Uuid::from_u128(9));
        assert_eq!(store.lease_notices(team, endpoint, dead_node, 3, now).await.unwrap().len(), 3);
        assert_eq!(world.engine.handoffs.heartbeat_and_recover().await.unwrap().notices, 3);
        let metrics = world.call(get("/metrics")).await.text;
        assert!(metrics.contains("mailonce_recovered_work_total{kind=\"notices\"} 3"), "{metrics}");
    }
}

#[tokio::test]
async fn a_held_email_that_cannot_be_read_keeps_no_other_team_waiting() {
    let world = World::postgres().await;
    let keys = three_teams_with_old_mail(&world).await;
    let held = world.engine.ctx.store().emails_held_by_budget(None, 10).await.unwrap();
    assert_eq!(held.len(), 3);
    let database = connect_client(world.database_url().unwrap()).await;
    let damage = format!("UPDATE mailonce.emails SET head = 'damaged' WHERE id = '{}'", held[0].id);
    assert_eq!(database.execute(&damage, &[]).await.unwrap(), 1);

    world.engine.budgets.release_held_by_budget().await.unwrap_err();

    let mut without_held = 0;
    for key in &keys {
        let listed = world.call(get("/v1/emails?state=held").bearer(key)).await;
        without_held += usize::from(listed.status == 200 && listed.rows().is_empty());
    }
    assert_eq!(without_held, 2);
}

#[tokio::test]
async fn old_messages_without_bytes_cost_no_transaction_after_a_restart() {
    let world = World::sqlite().await.with_inbox_domain().await;
    world.create_inbox("a").await;
    world.call(patch("/v1/settings").json(&json!({ "retention": { "raw": "1h" } }))).await.expect_status(200);
    world.receive_message(TestMail::default()).await;
    world.advance_clock(2 * HOUR);
    world.engine.ctx.confirm_time();
    let operations = |world: &World| world.engine.ctx.store().gauges().operations;
    let before = operations(&world);
    world.engine.control.apply_retention().await.unwrap();
    assert!(operations(&world) > before);

    let world = world.restart().await;
    let before = operations(&world);
    world.engine.control.apply_retention().await.unwrap();
    assert_eq!(operations(&world), before);
}

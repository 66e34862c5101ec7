//! API keys that are tied to an inbox, on every documented route: they can read and change only what belongs to it.

use serde_json::{Value, json};
use std::collections::BTreeSet;

use crate::{
    access::tenant_isolation::{TeamResources, documented_routes},
    fixtures::{
        api_fixture::{World, mail_with},
        requests::{TestRequest, delete, get, post},
    },
};

/// How a route answers a key that is tied to another inbox.
#[derive(Clone, Copy, PartialEq)]
enum TiedKeyAccess {
    /// Needs no key.
    Public,
    /// Concerns the whole team: `403 wrong_scope`.
    TeamWide,
    /// Takes the id of something in one inbox: `404 not_found`.
    OtherInbox,
    /// Shows or creates only what belongs to the key's own inbox.
    OwnInbox,
    /// Would create something outside of the key's inbox: refused with this status.
    Refused(u16),
}

/// Every documented route. A new one belongs here.
const ROUTES: &[(&str, &str, TiedKeyAccess)] = &[
    ("post", "/v1/emails", TiedKeyAccess::Refused(403)),
    ("get", "/v1/emails", TiedKeyAccess::OwnInbox),
    ("post", "/v1/emails/batch", TiedKeyAccess::Refused(403)),
    ("get", "/v1/emails/{id}", TiedKeyAccess::OtherInbox),
    ("patch", "/v1/emails/{id}", TiedKeyAccess::OtherInbox),
    ("get", "/v1/emails/{id}/attachments/{n}", TiedKeyAccess::OtherInbox),
    ("post", "/v1/emails/{id}/cancel", TiedKeyAccess::OtherInbox),
    ("post", "/v1/emails/{id}/resend", TiedKeyAccess::OtherInbox),
    ("post", "/v1/emails/{id}/resolve", TiedKeyAccess::OtherInbox),
    ("get", "/v1/transports", TiedKeyAccess::TeamWide),
    ("post", "/v1/transports/{name}/test", TiedKeyAccess::TeamWide),
    ("post", "/v1/transports/{name}/reroute", TiedKeyAccess::TeamWide),
    ("post", "/v1/handoff/pause", TiedKeyAccess::TeamWide),
    ("post", "/v1/handoff/resume", TiedKeyAccess::TeamWide),
    ("post", "/v1/clock/confirm", TiedKeyAccess::TeamWide),
    ("get", "/v1/keys", TiedKeyAccess::OwnInbox),
    ("get", "/v1/stats", TiedKeyAccess::TeamWide),
    ("get", "/v1/keys/{key}", TiedKeyAccess::OtherInbox),
    ("patch", "/v1/keys/{key}", TiedKeyAccess::OtherInbox),
    ("delete", "/v1/keys/{key}", TiedKeyAccess::OtherInbox),
    ("get", "/v1/events", TiedKeyAccess::OwnInbox),
    ("get", "/v1/events/stream", TiedKeyAccess::OwnInbox),
    ("post", "/v1/endpoints", TiedKeyAccess::Refused(422)),
    ("get", "/v1/endpoints", TiedKeyAccess::OwnInbox),
    ("get", "/v1/endpoints/{id}", TiedKeyAccess::OtherInbox),
    ("patch", "/v1/endpoints/{id}", TiedKeyAccess::OtherInbox),
    ("delete", "/v1/endpoints/{id}", TiedKeyAccess::OtherInbox),
    ("post", "/v1/endpoints/{id}/rotate", TiedKeyAccess::OtherInbox),
    ("post", "/v1/endpoints/{id}/pause", TiedKeyAccess::OtherInbox),
    ("post", "/v1/endpoints/{id}/resume", TiedKeyAccess::OtherInbox),
    ("post", "/v1/endpoints/{id}/test", TiedKeyAccess::OtherInbox),
    ("get", "/v1/endpoints/{id}/notices", TiedKeyAccess::OtherInbox),
    ("post", "/v1/endpoints/{id}/recover", TiedKeyAccess::OtherInbox),
    ("get", "/v1/notices/{id}", TiedKeyAccess::OtherInbox),
    ("post", "/v1/notices/{id}/replay", TiedKeyAccess::OtherInbox),
    ("post", "/v1/inboxes", TiedKeyAccess::TeamWide),
    ("get", "/v1/inboxes", TiedKeyAccess::OwnInbox),
    ("get", "/v1/inboxes/{id}", TiedKeyAccess::OtherInbox),
    ("patch", "/v1/inboxes/{id}", TiedKeyAccess::OtherInbox),
    ("delete", "/v1/inboxes/{id}", TiedKeyAccess::OtherInbox),
    ("post", "/v1/inboxes/{id}/rotate", TiedKeyAccess::OtherInbox),
    ("get", "/v1/inboxes/{id}/messages", TiedKeyAccess::OtherInbox),
    ("get", "/v1/inboxes/{id}/wait", TiedKeyAccess::OtherInbox),
    ("post", "/v1/inboxes/{id}/watches", TiedKeyAccess::OtherInbox),
    ("post", "/v1/inboxes/{id}/consume", TiedKeyAccess::OtherInbox),
    ("get", "/v1/watches/{id}", TiedKeyAccess::OtherInbox),
    ("post", "/v1/watches/{id}/resend", TiedKeyAccess::OtherInbox),
    ("get", "/v1/messages/{id}", TiedKeyAccess::OtherInbox),
    ("get", "/v1/messages/{id}/raw", TiedKeyAccess::OtherInbox),
    ("get", "/v1/messages/{id}/attachments/{n}", TiedKeyAccess::OtherInbox),
    ("get", "/v1/messages/{id}/artifacts", TiedKeyAccess::OtherInbox),
    ("get", "/v1/artifacts/{id}", TiedKeyAccess::OtherInbox),
    ("post", "/v1/artifacts/{id}/consume", TiedKeyAccess::OtherInbox),
    ("post", "/v1/artifacts/{id}/applied", TiedKeyAccess::OtherInbox),
    ("post", "/v1/messages/{id}/reply", TiedKeyAccess::OtherInbox),
    ("post", "/v1/messages/{id}/forward", TiedKeyAccess::OtherInbox),
    ("post", "/v1/messages/{id}/ack", TiedKeyAccess::OtherInbox),
    ("post", "/v1/messages/{id}/nack", TiedKeyAccess::OtherInbox),
    ("post", "/v1/messages/{id}/extend", TiedKeyAccess::OtherInbox),
    ("post", "/v1/inboxes/{id}/next", TiedKeyAccess::OtherInbox),
    ("get", "/v1/threads", TiedKeyAccess::OwnInbox),
    ("get", "/v1/threads/{id}", TiedKeyAccess::OtherInbox),
    ("patch", "/v1/threads/{id}", TiedKeyAccess::OtherInbox),
    ("post", "/v1/threads/{id}/lease", TiedKeyAccess::OtherInbox),
    ("delete", "/v1/threads/{id}/lease", TiedKeyAccess::OtherInbox),
    ("get", "/v1/escalations", TiedKeyAccess::OwnInbox),
    ("post", "/v1/escalations", TiedKeyAccess::OwnInbox),
    ("get", "/v1/escalations/{id}", TiedKeyAccess::OtherInbox),
    ("post", "/v1/escalations/{id}/resolve", TiedKeyAccess::OtherInbox),
    ("get", "/v1/settings", TiedKeyAccess::TeamWide),
    ("patch", "/v1/settings", TiedKeyAccess::TeamWide),
    ("get", "/v1/deliveries", TiedKeyAccess::TeamWide),
    ("get", "/v1/deliveries/{id}", TiedKeyAccess::OtherInbox),
    ("post", "/v1/deliveries/{id}/replay", TiedKeyAccess::OtherInbox),
    ("post", "/v1/api-keys", TiedKeyAccess::Refused(403)),
    ("get", "/v1/api-keys", TiedKeyAccess::OwnInbox),
    ("delete", "/v1/api-keys/{id}", TiedKeyAccess::OtherInbox),
    ("post", "/v1/domains", TiedKeyAccess::TeamWide),
    ("get", "/v1/domains", TiedKeyAccess::TeamWide),
    ("get", "/v1/domains/{id}", TiedKeyAccess::TeamWide),
    ("delete", "/v1/domains/{id}", TiedKeyAccess::TeamWide),
    ("post", "/v1/domains/{id}/verify", TiedKeyAccess::TeamWide),
    ("post", "/v1/suppressions", TiedKeyAccess::TeamWide),
    ("get", "/v1/suppressions", TiedKeyAccess::TeamWide),
    ("get", "/v1/suppressions/{address}", TiedKeyAccess::TeamWide),
    ("delete", "/v1/suppressions/{address}", TiedKeyAccess::TeamWide),
    ("post", "/v1/people", TiedKeyAccess::TeamWide),
    ("get", "/v1/people", TiedKeyAccess::TeamWide),
    ("get", "/v1/people/{id}", TiedKeyAccess::TeamWide),
    ("patch", "/v1/people/{id}", TiedKeyAccess::TeamWide),
    ("delete", "/v1/people/{id}", TiedKeyAccess::TeamWide),
    ("post", "/v1/people/{id}/sign-out", TiedKeyAccess::TeamWide),
    ("post", "/v1/people/{id}/sign-in-links", TiedKeyAccess::TeamWide),
    ("post", "/v1/escalations/{id}/approval-links", TiedKeyAccess::TeamWide),
    ("post", "/v1/notification-targets", TiedKeyAccess::TeamWide),
    ("get", "/v1/notification-targets", TiedKeyAccess::TeamWide),
    ("delete", "/v1/notification-targets/{id}", TiedKeyAccess::TeamWide),
    ("post", "/v1/notification-targets/{id}/test", TiedKeyAccess::TeamWide),
    ("get", "/v1/session", TiedKeyAccess::TeamWide),
    ("patch", "/v1/session", TiedKeyAccess::TeamWide),
    ("delete", "/v1/session", TiedKeyAccess::TeamWide),
    ("post", "/v1/budgets", TiedKeyAccess::TeamWide),
    ("get", "/v1/budgets", TiedKeyAccess::TeamWide),
    ("get", "/v1/budgets/{id}", TiedKeyAccess::TeamWide),
    ("patch", "/v1/budgets/{id}", TiedKeyAccess::TeamWide),
    ("delete", "/v1/budgets/{id}", TiedKeyAccess::TeamWide),
    ("post", "/v1/templates", TiedKeyAccess::TeamWide),
    ("get", "/v1/templates", TiedKeyAccess::TeamWide),
    ("get", "/v1/templates/{name}", TiedKeyAccess::TeamWide),
    ("patch", "/v1/templates/{name}", TiedKeyAccess::TeamWide),
    ("delete", "/v1/templates/{name}", TiedKeyAccess::TeamWide),
    ("post", "/v1/templates/{name}/preview", TiedKeyAccess::TeamWide),
    ("post", "/v1/templates/{name}/validate", TiedKeyAccess::TeamWide),
    ("get", "/v1/search", TiedKeyAccess::OwnInbox),
    ("post", "/v1/policy/simulate", TiedKeyAccess::OwnInbox),
    ("post", "/v1/erasures", TiedKeyAccess::TeamWide),
    ("get", "/v1/erasures", TiedKeyAccess::TeamWide),
    ("get", "/v1/erasures/{id}", TiedKeyAccess::TeamWide),
    ("delete", "/v1/messages/{id}", TiedKeyAccess::OtherInbox),
    ("delete", "/v1/threads/{id}", TiedKeyAccess::OtherInbox),
    ("post", "/v1/stops", TiedKeyAccess::TeamWide),
    ("get", "/v1/stops", TiedKeyAccess::OwnInbox),
    ("delete", "/v1/stops/{id}", TiedKeyAccess::OtherInbox),
    ("get", "/v1/outboxes", TiedKeyAccess::TeamWide),
    ("get", "/v1/outboxes/{name}/parked", TiedKeyAccess::TeamWide),
    ("post", "/v1/parked/{id}/replay", TiedKeyAccess::TeamWide),
    ("post", "/v1/claims", TiedKeyAccess::TeamWide),
    ("get", "/v1/claims", TiedKeyAccess::TeamWide),
    ("get", "/v1/claims/{id}", TiedKeyAccess::TeamWide),
    ("post", "/v1/claims/{id}/begin", TiedKeyAccess::TeamWide),
    ("post", "/v1/claims/{id}/renew", TiedKeyAccess::TeamWide),
    ("post", "/v1/claims/{id}/complete", TiedKeyAccess::TeamWide),
    ("post", "/v1/claims/{id}/fail", TiedKeyAccess::TeamWide),
    ("post", "/v1/claims/{id}/evidence", TiedKeyAccess::TeamWide),
    ("post", "/v1/claims/{id}/resolve", TiedKeyAccess::TeamWide),
    ("get", "/v1/audit", TiedKeyAccess::TeamWide),
    ("post", "/v1/rules", TiedKeyAccess::TeamWide),
    ("get", "/v1/rules", TiedKeyAccess::TeamWide),
    ("get", "/v1/rules/{id}", TiedKeyAccess::TeamWide),
    ("patch", "/v1/rules/{id}", TiedKeyAccess::TeamWide),
    ("delete", "/v1/rules/{id}", TiedKeyAccess::TeamWide),
    ("post", "/v1/lists/{direction}/{type}", TiedKeyAccess::TeamWide),
    ("get", "/v1/lists/{direction}/{type}", TiedKeyAccess::TeamWide),
    ("delete", "/v1/lists/{direction}/{type}/{entry}", TiedKeyAccess::TeamWide),
    ("post", "/v1/sources", TiedKeyAccess::TeamWide),
    ("get", "/v1/sources", TiedKeyAccess::TeamWide),
    ("get", "/v1/sources/{id}", TiedKeyAccess::TeamWide),
    ("delete", "/v1/sources/{id}", TiedKeyAccess::TeamWide),
    ("post", "/v1/sources/{id}/rotate", TiedKeyAccess::TeamWide),
    ("get", "/u/{token}", TiedKeyAccess::Public),
    ("post", "/u/{token}", TiedKeyAccess::Public),
    ("post", "/hooks/{source_id}", TiedKeyAccess::Public),
    ("get", "/hooks/{source_id}", TiedKeyAccess::Public),
    ("post", "/v1/teams", TiedKeyAccess::TeamWide),
    ("get", "/v1/teams", TiedKeyAccess::TeamWide),
    ("patch", "/v1/teams/{id}", TiedKeyAccess::TeamWide),
    ("get", "/v1/connections", TiedKeyAccess::TeamWide),
    ("delete", "/v1/connections/{id}", TiedKeyAccess::TeamWide),
    ("get", "/healthz", TiedKeyAccess::Public),
    ("get", "/readyz", TiedKeyAccess::Public),
    ("get", "/metrics", TiedKeyAccess::Public),
    ("get", "/openapi.json", TiedKeyAccess::Public),
    ("get", "/llms.txt", TiedKeyAccess::Public),
    ("get", "/docs", TiedKeyAccess::Public),
    ("get", "/docs/errors/{code}", TiedKeyAccess::Public),
];

const EVERY_SCOPE: [&str; 6] = ["send", "read", "reply", "secrets", "admin", "operator"];
const AGENT_SCOPES: [&str; 4] = ["send", "read", "reply", "secrets"];

async fn create_tied_key(world: &World, inbox: &str, scopes: &[&str]) -> String {
    world.create_api_key(&json!({ "name": "tied", "scopes": scopes, "inboxes": [inbox] })).await
}

/// Whether a route opens an escalation of the key's own, which changes the team's events.
fn opens_escalation(route: &(&str, &str, TiedKeyAccess)) -> bool {
    (route.0, route.1) == ("post", "/v1/escalations")
}

fn mail_from(address: &str, subject: &str) -> Value {
    mail_with(json!({ "from": address, "subject": subject }))
}

/// Two inboxes of a team, `a` and `b`, and a key that is tied to `a`.
async fn create_two_inboxes(world: World, scopes: &[&str]) -> (World, String, String) {
    let world = world.with_inbox_domain().await;
    let a = world.create_inbox("a").await;
    let b = world.create_inbox("b").await;
    let key = create_tied_key(&world, &a, scopes).await;
    (world, key, b)
}

#[test]
fn the_route_table_matches_the_document() {
    let ours: BTreeSet<_> = ROUTES.iter().map(|(method, path, _)| ((*method).to_owned(), (*path).to_owned())).collect();
    let theirs: BTreeSet<_> = documented_routes().into_iter().map(|(method, path, _)| (method, path)).collect();
    assert_eq!(ours, theirs, "a route was added or removed: state in ROUTES how it answers a tied key");
}

over_memory_and_sqlite! {
    async fn an_admin_key_of_one_inbox_reaches_no_other(world) {
        let world = world.with_inbox_domain().await;
        let owned = TeamResources::create(&world).await;
        world.create_inbox("a").await;
        let key = create_tied_key(&world, "a@agents.test", &EVERY_SCOPE).await;
        let before = owned.snapshot(&world).await;
        for (method, path, access) in ROUTES.iter().filter(|route| !opens_escalation(route)) {
            let answer = world.call(owned.request_for(method, path).bearer(&key)).await;
            let as_expected = match access {
                TiedKeyAccess::Public => continue,
                TiedKeyAccess::TeamWide => answer.status == 403,
                TiedKeyAccess::OtherInbox => answer.status == 404,
                TiedKeyAccess::OwnInbox => answer.status < 300,
                TiedKeyAccess::Refused(status) => answer.status == *status,
            };
            assert!(as_expected, "{method} {path}: {} {}", answer.status, answer.text);
            for id in owned.ids() {
                let echoes_requested_id = path.contains('{') && answer.status == 404;
                assert!(echoes_requested_id || !answer.text.contains(id.as_str()), "{method} {path} shows {id}: {}", answer.text);
            }
        }
        assert_eq!(owned.snapshot(&world).await, before, "a key that is tied to another inbox changed something");
    }

    async fn an_agent_key_of_one_inbox_reaches_no_other(world) {
        let world = world.with_inbox_domain().await;
        let owned = TeamResources::create(&world).await;
        let a = world.create_inbox("a").await;
        let key = create_tied_key(&world, &a, &AGENT_SCOPES).await;
        let before = owned.snapshot(&world).await;
        for (method, path, access) in ROUTES.iter().filter(|route| route.2 != TiedKeyAccess::Public && !opens_escalation(route)) {
            let answer = world.call(owned.request_for(method, path).bearer(&key)).await;
            // The scope is checked before anything else.
            let as_expected = answer.status == 403 && answer.text.contains("wrong_scope")
                || match access {
                    TiedKeyAccess::OtherInbox => answer.status == 404,
                    TiedKeyAccess::Refused(status) => answer.status == *status,
                    _ => answer.status < 300,
                };
            assert!(as_expected, "{method} {path}: {} {}", answer.status, answer.text);
        }
        assert_eq!(owned.snapshot(&world).await, before, "a key that is tied to another inbox changed something");
    }

    async fn an_untied_key_is_refused_nowhere(world) {
        let world = world.with_inbox_domain().await;
        let owned = TeamResources::create(&world).await;
        // Deletions come last, so that the resources exist until then.
        let (last, first): (Vec<_>, Vec<_>) = ROUTES.iter().partition(|(method, _, _)| *method == "delete");
        // An API key has no session.
        let routes = first.into_iter().chain(last).filter(|(_, path, _)| *path != "/v1/session");
        for (method, path, _) in routes {
            let answer = world.call(owned.request_for(method, path)).await;
            let is_problem = |code: &str| answer.text.contains(&format!("\"code\":\"{code}\""));
            let refused = is_problem("wrong_scope") || is_problem("sender_not_allowed");
            assert!(!refused, "{method} {path}: {}", answer.text);
        }
    }

    async fn a_tied_key_reaches_everything_of_its_own_inbox(world) {
        let world = world.with_inbox_domain().await;
        let owned = TeamResources::create(&world).await;
        let key = create_tied_key(&world, &owned.inbox, &EVERY_SCOPE).await;
        let inbound = ["inboxes", "messages", "watches", "artifacts", "threads", "escalations", "deliveries"];
        let is_inbound = |path: &str| inbound.contains(&path.split('/').nth(2).unwrap_or_default());
        for (method, path, access) in ROUTES {
            if *method == "get" && *access == TiedKeyAccess::OtherInbox && is_inbound(path) && !path.contains("{n}") {
                world.call(owned.request_for(method, path).bearer(&key)).await.expect_status(200);
            }
        }
        let mine = mail_from("owned@agents.test", "mine");
        let sent = world.call(post("/v1/emails").key("own").bearer(&key).json(&mine)).await.expect_status(202).string_field("id");
        world.call(get(&format!("/v1/emails/{sent}")).bearer(&key)).await.expect_status(200);
        world.call(get("/v1/keys/own").bearer(&key)).await.expect_status(200);
        let rows = world.call(get("/v1/emails").bearer(&key)).await.expect_status(200).rows();
        assert_eq!(rows.len(), 1, "{rows:?}");
        let hook = json!({ "url": "https://own.example/in", "inboxes": [owned.inbox], "include_text": true });
        let endpoint = world.call(post("/v1/endpoints").bearer(&key).json(&hook)).await.expect_status(201).string_field("id");
        world.call(get(&format!("/v1/endpoints/{endpoint}")).bearer(&key)).await.expect_status(200);
        let list = format!("/v1/lists/receive/block?inbox={}", owned.inbox);
        world.call(post(&list).bearer(&key).json(&json!({ "entry": "stranger.example" }))).await.expect_status(201);
    }

    async fn events_of_other_inboxes_are_left_out(world) {
        let (world, key, _) = create_two_inboxes(world, &AGENT_SCOPES).await;
        world.send("of-a", &mail_from("a@agents.test", "said by a")).await.expect_status(202);
        world.send("of-b", &mail_from("b@agents.test", "said by b")).await.expect_status(202);
        world.receive_mail(&["a@agents.test"], "From: x@shop.test\nMessage-ID: <1@x>\nSubject: to a\n\nhi\n").await;
        world.receive_mail(&["b@agents.test"], "From: x@shop.test\nMessage-ID: <2@x>\nSubject: to b\n\nhi\n").await;
        world.hand_off_due().await;
        let page = world.call(get("/v1/events?limit=1000").bearer(&key)).await.expect_status(200);
        for (seen, word) in [(true, "of-a"), (true, "to a"), (false, "of-b"), (false, "to b")] {
            assert_eq!(page.text.contains(word), seen, "{word}: {}", page.text);
        }
        world.engine.events.end_streams();
        let all = world.events().await;
        assert!(all.len() > page.rows().len());
        world.call(post("/v1/escalations").bearer(&key).json(&json!({ "question": "Shall I?" }))).await.expect_status(201);
        let one_by_one = world.call(get("/v1/events?limit=1").bearer(&key)).await.expect_status(200);
        assert_eq!(one_by_one.rows(), page.rows()[..1]);
    }

    async fn the_same_question_from_two_inboxes_is_two_escalations(world) {
        let (world, a, b) = create_two_inboxes(world, &AGENT_SCOPES).await;
        let other = create_tied_key(&world, &b, &AGENT_SCOPES).await;
        let question = json!({ "question": "May I pay invoice 7?", "entity": "inv7" });
        let theirs = world.call(post("/v1/escalations").bearer(&other).json(&question)).await.expect_status(201).body;
        let path = format!("/v1/escalations/{}/resolve", theirs["id"].as_str().unwrap());
        let release = json!({ "as": "release", "rev": 1, "reason": "Yes, the secret budget allows it" });
        world.post(&path, &release).await.expect_status(200);
        let mine = world.call(post("/v1/escalations").bearer(&a).json(&question)).await.expect_status(201);
        assert!(mine["id"] != theirs["id"] && mine["decision"].is_null(), "{}", mine.text);
        let again = world.call(post("/v1/escalations").bearer(&other).json(&question)).await.expect_status(200);
        assert_eq!((&again["id"], &again["decision"]["as"]), (&theirs["id"], &json!("release")), "{}", again.text);
    }

    async fn a_tied_key_sends_and_cancels_only_for_its_inbox(world) {
        let (world, key, _) = create_two_inboxes(world, &EVERY_SCOPE).await;
        let later = mail_with(json!({ "from": "b@agents.test", "scheduled_at": "in 1 hour" }));
        let of_b = world.send("of-b", &later).await.expect_status(202).string_field("id");
        let with_tied_key = |call: TestRequest| call.bearer(&key);
        world.call(with_tied_key(post("/v1/emails").key("x")).json(&mail_from("b@agents.test", "x"))).await.expect_problem(403, "sender_not_allowed");
        // A retry of another inbox's email does not show that email.
        world.call(with_tied_key(post("/v1/emails").key("of-b")).json(&later)).await.expect_problem(403, "sender_not_allowed");
        let batch = json!([mail_from("a@agents.test", "1"), mail_from("b@agents.test", "2")]);
        world.call(with_tied_key(post("/v1/emails/batch").key("batch")).json(&batch)).await.expect_status(403);
        world.call(with_tied_key(post(&format!("/v1/emails/{of_b}/cancel")))).await.expect_problem(404, "not_found");
        world.call(with_tied_key(delete("/v1/keys/of-b"))).await.expect_problem(404, "not_found");
        assert_eq!(world.email(&of_b).await["state"], "scheduled");
        assert_eq!(world.email_count().await, 1);
    }

    async fn endpoints_and_keys_of_a_tied_admin_key_stay_within_its_inboxes(world) {
        let (world, key, b) = create_two_inboxes(world, &EVERY_SCOPE).await;
        let a = world.get("/v1/inboxes/a@agents.test").await.expect_status(200).string_field("id");
        let hook = |inboxes: Value| json!({ "url": "https://own.example/in", "include_text": true, "inboxes": inboxes });
        for inboxes in [json!([]), json!([b]), json!([a, b])] {
            world.call(post("/v1/endpoints").bearer(&key).json(&hook(inboxes))).await.expect_problem(422, "invalid_field");
        }
        let own = world.call(post("/v1/endpoints").bearer(&key).json(&hook(json!([a])))).await.expect_status(201).string_field("id");
        let wider = TestRequest::new("PATCH", &format!("/v1/endpoints/{own}")).bearer(&key).json(&json!({ "inboxes": [] }));
        world.call(wider).await.expect_problem(422, "invalid_field");
        for inboxes in [json!([]), json!([b])] {
            let key_body = json!({ "name": "x", "scopes": ["read"], "inboxes": inboxes });
            world.call(post("/v1/api-keys").bearer(&key).json(&key_body)).await.expect_problem(403, "wrong_scope");
        }
        let rows = world.call(get("/v1/api-keys").bearer(&key)).await.expect_status(200).rows();
        assert_eq!(rows.len(), 1, "only its own key: {rows:?}");
    }

    async fn a_tied_key_follows_address_rotation_and_ends_with_its_inbox(world) {
        let (world, key, _) = create_two_inboxes(world, &AGENT_SCOPES).await;
        let a = world.get("/v1/inboxes/a@agents.test").await.expect_status(200).string_field("id");
        world.post(&format!("/v1/inboxes/{a}/rotate"), &json!({})).await.expect_status(200);
        let send = |address: &str| post("/v1/emails").bearer(&key).json(&mail_from(address, "x"));
        world.call(send("a@agents.test")).await.expect_problem(403, "sender_not_allowed");
        let now = world.get(&format!("/v1/inboxes/{a}")).await.expect_status(200).string_field("address");
        world.call(send(&now)).await.expect_status(202);
        world.call(delete(&format!("/v1/inboxes/{a}"))).await.expect_status(200);
        world.call(send(&now)).await.expect_problem(403, "sender_not_allowed");
        assert!(world.call(get("/v1/emails").bearer(&key)).await.expect_status(200).rows().is_empty());
    }
}

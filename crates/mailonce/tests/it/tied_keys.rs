//! API keys that are tied to an inbox, on every route of the document: they see and do what concerns it and nothing
//! else.

use serde_json::{Value, json};
use std::collections::BTreeSet;

use crate::{
    call::{Call, delete, get, post},
    tenants::{Owned, documented},
    world::{World, mail_with},
};

/// What a route says to a key that is tied to another inbox.
#[derive(Clone, Copy, PartialEq)]
enum Reach {
    /// Needs no key.
    Public,
    /// Concerns the whole team: `403 wrong_scope`.
    Team,
    /// Names something of one inbox: `404 not_found`.
    Inbox,
    /// Shows or makes what concerns the key's own inbox, and leaves out everything else.
    Own,
    /// Would make something outside of the key's inbox: refused with this status.
    Refused(u16),
}

/// Every documented route. A new one belongs here.
const ROUTES: &[(&str, &str, Reach)] = &[
    ("post", "/v1/emails", Reach::Refused(403)),
    ("get", "/v1/emails", Reach::Own),
    ("post", "/v1/emails/batch", Reach::Refused(403)),
    ("get", "/v1/emails/{id}", Reach::Inbox),
    ("patch", "/v1/emails/{id}", Reach::Inbox),
    ("post", "/v1/emails/{id}/cancel", Reach::Inbox),
    ("post", "/v1/emails/{id}/resend", Reach::Inbox),
    ("post", "/v1/emails/{id}/resolve", Reach::Inbox),
    ("get", "/v1/transports", Reach::Team),
    ("post", "/v1/transports/{name}/reroute", Reach::Team),
    ("post", "/v1/handoff/pause", Reach::Team),
    ("post", "/v1/handoff/resume", Reach::Team),
    ("post", "/v1/clock/confirm", Reach::Team),
    ("get", "/v1/keys/{key}", Reach::Inbox),
    ("patch", "/v1/keys/{key}", Reach::Inbox),
    ("delete", "/v1/keys/{key}", Reach::Inbox),
    ("get", "/v1/events", Reach::Own),
    ("get", "/v1/events/stream", Reach::Own),
    ("post", "/v1/endpoints", Reach::Refused(422)),
    ("get", "/v1/endpoints", Reach::Own),
    ("get", "/v1/endpoints/{id}", Reach::Inbox),
    ("patch", "/v1/endpoints/{id}", Reach::Inbox),
    ("delete", "/v1/endpoints/{id}", Reach::Inbox),
    ("post", "/v1/endpoints/{id}/rotate", Reach::Inbox),
    ("post", "/v1/endpoints/{id}/pause", Reach::Inbox),
    ("post", "/v1/endpoints/{id}/resume", Reach::Inbox),
    ("post", "/v1/endpoints/{id}/test", Reach::Inbox),
    ("get", "/v1/endpoints/{id}/notices", Reach::Inbox),
    ("post", "/v1/endpoints/{id}/recover", Reach::Inbox),
    ("get", "/v1/notices/{id}", Reach::Inbox),
    ("post", "/v1/notices/{id}/replay", Reach::Inbox),
    ("post", "/v1/inboxes", Reach::Team),
    ("get", "/v1/inboxes", Reach::Own),
    ("get", "/v1/inboxes/{id}", Reach::Inbox),
    ("patch", "/v1/inboxes/{id}", Reach::Inbox),
    ("delete", "/v1/inboxes/{id}", Reach::Inbox),
    ("post", "/v1/inboxes/{id}/rotate", Reach::Inbox),
    ("get", "/v1/inboxes/{id}/messages", Reach::Inbox),
    ("get", "/v1/inboxes/{id}/wait", Reach::Inbox),
    ("post", "/v1/inboxes/{id}/watches", Reach::Inbox),
    ("post", "/v1/inboxes/{id}/consume", Reach::Inbox),
    ("get", "/v1/watches/{id}", Reach::Inbox),
    ("post", "/v1/watches/{id}/resend", Reach::Inbox),
    ("get", "/v1/messages/{id}", Reach::Inbox),
    ("get", "/v1/messages/{id}/raw", Reach::Inbox),
    ("get", "/v1/messages/{id}/attachments/{n}", Reach::Inbox),
    ("get", "/v1/messages/{id}/artifacts", Reach::Inbox),
    ("get", "/v1/artifacts/{id}", Reach::Inbox),
    ("post", "/v1/artifacts/{id}/consume", Reach::Inbox),
    ("post", "/v1/artifacts/{id}/applied", Reach::Inbox),
    ("post", "/v1/messages/{id}/reply", Reach::Inbox),
    ("post", "/v1/messages/{id}/forward", Reach::Inbox),
    ("post", "/v1/messages/{id}/ack", Reach::Inbox),
    ("post", "/v1/messages/{id}/nack", Reach::Inbox),
    ("post", "/v1/messages/{id}/extend", Reach::Inbox),
    ("post", "/v1/inboxes/{id}/next", Reach::Inbox),
    ("get", "/v1/threads", Reach::Own),
    ("get", "/v1/threads/{id}", Reach::Inbox),
    ("patch", "/v1/threads/{id}", Reach::Inbox),
    ("post", "/v1/threads/{id}/lease", Reach::Inbox),
    ("delete", "/v1/threads/{id}/lease", Reach::Inbox),
    ("get", "/v1/escalations", Reach::Own),
    ("post", "/v1/escalations", Reach::Own),
    ("get", "/v1/escalations/{id}", Reach::Inbox),
    ("post", "/v1/escalations/{id}/resolve", Reach::Inbox),
    ("get", "/v1/settings", Reach::Team),
    ("patch", "/v1/settings", Reach::Team),
    ("get", "/v1/deliveries", Reach::Team),
    ("get", "/v1/deliveries/{id}", Reach::Inbox),
    ("post", "/v1/deliveries/{id}/replay", Reach::Inbox),
    ("post", "/v1/api-keys", Reach::Refused(403)),
    ("get", "/v1/api-keys", Reach::Own),
    ("delete", "/v1/api-keys/{id}", Reach::Inbox),
    ("post", "/v1/domains", Reach::Team),
    ("get", "/v1/domains", Reach::Team),
    ("get", "/v1/domains/{id}", Reach::Team),
    ("delete", "/v1/domains/{id}", Reach::Team),
    ("post", "/v1/domains/{id}/verify", Reach::Team),
    ("post", "/v1/suppressions", Reach::Team),
    ("get", "/v1/suppressions", Reach::Team),
    ("get", "/v1/suppressions/{address}", Reach::Team),
    ("delete", "/v1/suppressions/{address}", Reach::Team),
    ("post", "/v1/budgets", Reach::Team),
    ("get", "/v1/budgets", Reach::Team),
    ("get", "/v1/budgets/{id}", Reach::Team),
    ("patch", "/v1/budgets/{id}", Reach::Team),
    ("delete", "/v1/budgets/{id}", Reach::Team),
    ("post", "/v1/rules", Reach::Team),
    ("get", "/v1/rules", Reach::Team),
    ("get", "/v1/rules/{id}", Reach::Team),
    ("patch", "/v1/rules/{id}", Reach::Team),
    ("delete", "/v1/rules/{id}", Reach::Team),
    ("post", "/v1/lists/{direction}/{type}", Reach::Team),
    ("get", "/v1/lists/{direction}/{type}", Reach::Team),
    ("delete", "/v1/lists/{direction}/{type}/{entry}", Reach::Team),
    ("post", "/v1/sources", Reach::Team),
    ("get", "/v1/sources", Reach::Team),
    ("get", "/v1/sources/{id}", Reach::Team),
    ("delete", "/v1/sources/{id}", Reach::Team),
    ("post", "/v1/sources/{id}/rotate", Reach::Team),
    ("post", "/hooks/{source_id}", Reach::Public),
    ("get", "/hooks/{source_id}", Reach::Public),
    ("post", "/v1/teams", Reach::Team),
    ("get", "/v1/teams", Reach::Team),
    ("patch", "/v1/teams/{id}", Reach::Team),
    ("get", "/healthz", Reach::Public),
    ("get", "/readyz", Reach::Public),
    ("get", "/metrics", Reach::Public),
    ("get", "/openapi.json", Reach::Public),
    ("get", "/llms.txt", Reach::Public),
    ("get", "/docs", Reach::Public),
    ("get", "/docs/errors/{code}", Reach::Public),
];

const EVERY_SCOPE: [&str; 6] = ["send", "read", "reply", "secrets", "admin", "operator"];
const AGENT: [&str; 4] = ["send", "read", "reply", "secrets"];

async fn tied_to(world: &World, inbox: &str, scopes: &[&str]) -> String {
    world.api_key(&json!({ "name": "tied", "scopes": scopes, "inboxes": [inbox] })).await
}

/// Whether a route asks a person something of the key's own, which the team's events show.
fn asks(route: &(&str, &str, Reach)) -> bool {
    (route.0, route.1) == ("post", "/v1/escalations")
}

fn from(address: &str, subject: &str) -> Value {
    mail_with(json!({ "from": address, "subject": subject }))
}

/// Two inboxes of a team, `a` and `b`, and a key that is tied to `a`.
async fn two_inboxes(world: World, scopes: &[&str]) -> (World, String, String) {
    let world = world.with_inboxes().await;
    let a = world.inbox("a").await;
    let b = world.inbox("b").await;
    let key = tied_to(&world, &a, scopes).await;
    (world, key, b)
}

#[test]
fn the_table_of_routes_is_the_document() {
    let ours: BTreeSet<_> = ROUTES.iter().map(|(method, path, _)| ((*method).to_owned(), (*path).to_owned())).collect();
    let theirs: BTreeSet<_> = documented().into_iter().map(|(method, path, _)| (method, path)).collect();
    assert_eq!(ours, theirs, "a route was added or removed: say in ROUTES what it answers to a key that is tied");
}

over_memory_and_sqlite! {
    async fn an_administrator_of_one_inbox_reaches_no_other(world) {
        let world = world.with_inboxes().await;
        let owned = Owned::make(&world).await;
        world.inbox("a").await;
        let key = tied_to(&world, "a@agents.test", &EVERY_SCOPE).await;
        let before = owned.look(&world).await;
        for (method, path, reach) in ROUTES.iter().filter(|route| !asks(route)) {
            let answer = world.call(owned.call(method, path).by(&key)).await;
            let right = match reach {
                Reach::Public => continue,
                Reach::Team => answer.status == 403,
                Reach::Inbox => answer.status == 404,
                Reach::Own => answer.status < 300,
                Reach::Refused(status) => answer.status == *status,
            };
            assert!(right, "{method} {path}: {} {}", answer.status, answer.text);
            for id in owned.ids() {
                let asked = path.contains('{') && answer.status == 404;
                assert!(asked || !answer.text.contains(id.as_str()), "{method} {path} shows {id}: {}", answer.text);
            }
        }
        assert_eq!(owned.look(&world).await, before, "a key that is tied to another inbox changed something");
    }

    async fn an_agent_of_one_inbox_reaches_no_other(world) {
        let world = world.with_inboxes().await;
        let owned = Owned::make(&world).await;
        let a = world.inbox("a").await;
        let key = tied_to(&world, &a, &AGENT).await;
        let before = owned.look(&world).await;
        for (method, path, reach) in ROUTES.iter().filter(|route| route.2 != Reach::Public && !asks(route)) {
            let answer = world.call(owned.call(method, path).by(&key)).await;
            // Without the scope that a route needs, nothing else is looked at.
            let right = answer.status == 403 && answer.text.contains("wrong_scope")
                || match reach {
                    Reach::Inbox => answer.status == 404,
                    Reach::Refused(status) => answer.status == *status,
                    _ => answer.status < 300,
                };
            assert!(right, "{method} {path}: {} {}", answer.status, answer.text);
        }
        assert_eq!(owned.look(&world).await, before, "a key that is tied to another inbox changed something");
    }

    async fn a_key_of_the_whole_team_is_refused_nowhere(world) {
        let world = world.with_inboxes().await;
        let owned = Owned::make(&world).await;
        // What removes something comes last, so that there is something to reach until then.
        let (last, first): (Vec<_>, Vec<_>) = ROUTES.iter().partition(|(method, _, _)| *method == "delete");
        for (method, path, _) in first.into_iter().chain(last) {
            let answer = world.call(owned.call(method, path)).await;
            let lacks = answer.text.contains("wrong_scope") || answer.text.contains("sender_not_allowed");
            assert!(!lacks, "{method} {path}: {}", answer.text);
        }
    }

    async fn a_key_reaches_everything_of_its_own_inbox(world) {
        let world = world.with_inboxes().await;
        let owned = Owned::make(&world).await;
        let key = tied_to(&world, &owned.inbox, &EVERY_SCOPE).await;
        let inbound = ["inboxes", "messages", "watches", "artifacts", "threads", "escalations", "deliveries"];
        let is_inbound = |path: &str| inbound.contains(&path.split('/').nth(2).unwrap_or_default());
        for (method, path, reach) in ROUTES {
            if *method == "get" && *reach == Reach::Inbox && is_inbound(path) && !path.contains("{n}") {
                world.call(owned.call(method, path).by(&key)).await.is(200);
            }
        }
        let mine = from("owned@agents.test", "mine");
        let sent = world.call(post("/v1/emails").key("own").by(&key).json(&mine)).await.is(202).word("id");
        world.call(get(&format!("/v1/emails/{sent}")).by(&key)).await.is(200);
        world.call(get("/v1/keys/own").by(&key)).await.is(200);
        let rows = world.call(get("/v1/emails").by(&key)).await.is(200).rows();
        assert_eq!(rows.len(), 1, "{rows:?}");
        let hook = json!({ "url": "https://own.example/in", "inboxes": [owned.inbox], "bodies": true });
        let endpoint = world.call(post("/v1/endpoints").by(&key).json(&hook)).await.is(201).word("id");
        world.call(get(&format!("/v1/endpoints/{endpoint}")).by(&key)).await.is(200);
        let list = format!("/v1/lists/receive/block?inbox={}", owned.inbox);
        world.call(post(&list).by(&key).json(&json!({ "entry": "stranger.example" }))).await.is(201);
    }

    async fn events_of_other_inboxes_are_left_out(world) {
        let (world, key, _) = two_inboxes(world, &AGENT).await;
        world.send("of-a", &from("a@agents.test", "said by a")).await.is(202);
        world.send("of-b", &from("b@agents.test", "said by b")).await.is(202);
        world.arrives(&["a@agents.test"], "From: x@shop.test\nMessage-ID: <1@x>\nSubject: to a\n\nhi\n").await;
        world.arrives(&["b@agents.test"], "From: x@shop.test\nMessage-ID: <2@x>\nSubject: to b\n\nhi\n").await;
        world.hand_over().await;
        let page = world.call(get("/v1/events?limit=1000").by(&key)).await.is(200);
        for (seen, word) in [(true, "of-a"), (true, "to a"), (false, "of-b"), (false, "to b")] {
            assert_eq!(page.text.contains(word), seen, "{word}: {}", page.text);
        }
        world.engine.end_streams();
        let all = world.events().await;
        assert!(all.len() > page.rows().len());
        world.call(post("/v1/escalations").by(&key).json(&json!({ "question": "Shall I?" }))).await.is(201);
        let one_by_one = world.call(get("/v1/events?limit=1").by(&key)).await.is(200);
        assert_eq!(one_by_one.rows(), page.rows()[..1]);
    }

    async fn the_same_question_of_two_inboxes_has_two_answers(world) {
        let (world, a, b) = two_inboxes(world, &AGENT).await;
        let other = tied_to(&world, &b, &AGENT).await;
        let question = json!({ "question": "May I pay invoice 7?", "entity": "inv7" });
        let theirs = world.call(post("/v1/escalations").by(&other).json(&question)).await.is(201).body;
        let path = format!("/v1/escalations/{}/resolve", theirs["id"].as_str().unwrap());
        let yes = json!({ "as": "release", "rev": 1, "reason": "Yes, the secret budget allows it" });
        world.post(&path, &yes).await.is(200);
        let mine = world.call(post("/v1/escalations").by(&a).json(&question)).await.is(201);
        assert!(mine["id"] != theirs["id"] && mine["decided"].is_null(), "{}", mine.text);
        let again = world.call(post("/v1/escalations").by(&other).json(&question)).await.is(200);
        assert_eq!((&again["id"], &again["decided"]["as"]), (&theirs["id"], &json!("release")), "{}", again.text);
    }

    async fn a_tied_key_sends_and_cancels_for_its_inbox_alone(world) {
        let (world, key, _) = two_inboxes(world, &EVERY_SCOPE).await;
        let later = mail_with(json!({ "from": "b@agents.test", "scheduled_at": "in 1 hour" }));
        let of_b = world.send("of-b", &later).await.is(202).word("id");
        let by = |call: Call| call.by(&key);
        world.call(by(post("/v1/emails").key("x")).json(&from("b@agents.test", "x"))).await.refused(403, "sender_not_allowed");
        // Neither does a retry of an email that is not its own show that email.
        world.call(by(post("/v1/emails").key("of-b")).json(&later)).await.refused(403, "sender_not_allowed");
        let batch = json!([from("a@agents.test", "1"), from("b@agents.test", "2")]);
        world.call(by(post("/v1/emails/batch").key("batch")).json(&batch)).await.is(403);
        world.call(by(post(&format!("/v1/emails/{of_b}/cancel")))).await.refused(404, "not_found");
        world.call(by(delete("/v1/keys/of-b"))).await.refused(404, "not_found");
        assert_eq!(world.email(&of_b).await["state"], "scheduled");
        assert_eq!(world.count().await, 1);
    }

    async fn endpoints_and_keys_of_a_tied_administrator_stay_within_its_inboxes(world) {
        let (world, key, b) = two_inboxes(world, &EVERY_SCOPE).await;
        let a = world.get("/v1/inboxes/a@agents.test").await.is(200).word("id");
        let hook = |inboxes: Value| json!({ "url": "https://own.example/in", "bodies": true, "inboxes": inboxes });
        for inboxes in [json!([]), json!([b]), json!([a, b])] {
            world.call(post("/v1/endpoints").by(&key).json(&hook(inboxes))).await.refused(422, "invalid_field");
        }
        let own = world.call(post("/v1/endpoints").by(&key).json(&hook(json!([a])))).await.is(201).word("id");
        let wider = Call::new("PATCH", &format!("/v1/endpoints/{own}")).by(&key).json(&json!({ "inboxes": [] }));
        world.call(wider).await.refused(422, "invalid_field");
        for inboxes in [json!([]), json!([b])] {
            let about = json!({ "name": "x", "scopes": ["read"], "inboxes": inboxes });
            world.call(post("/v1/api-keys").by(&key).json(&about)).await.refused(403, "wrong_scope");
        }
        let rows = world.call(get("/v1/api-keys").by(&key)).await.is(200).rows();
        assert_eq!(rows.len(), 1, "its own alone: {rows:?}");
    }

    async fn a_tie_follows_an_inbox_and_ends_with_it(world) {
        let (world, key, _) = two_inboxes(world, &AGENT).await;
        let a = world.get("/v1/inboxes/a@agents.test").await.is(200).word("id");
        world.post(&format!("/v1/inboxes/{a}/rotate"), &json!({})).await.is(200);
        let send = |address: &str| post("/v1/emails").by(&key).json(&from(address, "x"));
        world.call(send("a@agents.test")).await.refused(403, "sender_not_allowed");
        let now = world.get(&format!("/v1/inboxes/{a}")).await.is(200).word("address");
        world.call(send(&now)).await.is(202);
        world.call(delete(&format!("/v1/inboxes/{a}"))).await.is(200);
        world.call(send(&now)).await.refused(403, "sender_not_allowed");
        assert!(world.call(get("/v1/emails").by(&key)).await.is(200).rows().is_empty());
    }
}

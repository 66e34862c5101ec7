//! Provider events from the request to the email: proven, counted once, in any order, inside team and transport.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use mailonce_core::{dispatch::Verdict, port::store::TransportAccount};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::{
    call::{Answer, Call, delete, post},
    wired::{Wired, seconds},
    world::{MINUTE, World, mail, mail_with},
};

const KEY: &[u8; 24] = b"a secret of 24 letters!!";

/// Resend's secret, as its console shows it.
fn secret() -> String {
    format!("whsec_{}", STANDARD.encode(KEY))
}

/// A source of Resend's events for a transport.
async fn source(world: &World, name: &str, transport: &str) -> String {
    let body = json!({ "name": name, "kind": "resend", "transport": transport, "secret": secret() });
    world.post("/v1/sources", &body).await.is(201).word("path")
}

/// A request that Resend signed.
pub(crate) fn signed(world: &World, path: &str, id: &str, event: &Value) -> Call {
    let (at, body) = (seconds(world.engine.now()), event.to_string());
    let mut mac = Hmac::<Sha256>::new_from_slice(KEY).unwrap();
    mac.update(format!("{id}.{at}.{body}").as_bytes());
    let signature = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    let call = post(path).anonymous().header("svix-id", id).header("svix-timestamp", &at);
    call.header("svix-signature", &signature).text(body)
}

/// What became of our email, in Resend's words.
fn event(kind: &str, email: &str, to: &str) -> Value {
    json!({ "type": kind, "created_at": "2026-11-15T10:00:00.000Z", "data": {
        "email_id": "re_1", "to": [to], "tags": { "mailonce": email },
        "bounce": { "type": "Permanent", "message": "no such user" },
    }})
}

/// An email on its way, its source, and a call that tells of it.
struct Told {
    wired: Wired,
    path: String,
    email: String,
}

impl Told {
    /// An email that the relay took.
    async fn sent(world: World) -> Self {
        let told = Self::queued(world).await;
        told.wired.hand_over("relay", "re_1").await;
        assert_eq!(told.state().await, "sent");
        told
    }

    async fn queued(world: World) -> Self {
        let wired = Wired::new(world, false).await;
        let path = source(&wired.world, "resend", "relay").await;
        let email = wired.world.send("k", &mail()).await.is(202).word("id");
        Self { wired, path, email }
    }

    async fn tell(&self, id: &str, kind: &str) -> Answer {
        let event = event(kind, &self.email, "User@Example.com");
        self.wired.world.call(signed(&self.wired.world, &self.path, id, &event)).await.is(200)
    }

    async fn state(&self) -> String {
        self.wired.world.email(&self.email).await["state"].as_str().unwrap().to_owned()
    }
}

over_every_engine! {
    async fn a_delivered_mail_is_delivered(world) {
        let told = Told::sent(world).await;
        let answer = told.tell("e1", "email.delivered").await;
        assert_eq!((&answer["reports"], &answer["learnt"]), (&json!(1), &json!(1)));
        assert_eq!(told.state().await, "delivered");
        let evidence = told.wired.world.engine.store();
        let team = told.wired.world.engine.teams().await.unwrap()[0].id;
        let detail = evidence.email_detail(team, told.email.parse().unwrap()).await.unwrap().unwrap();
        assert_eq!(detail.evidence.len(), 1);
        let kinds: Vec<Value> = told.wired.world.events().await.iter().map(|event| event["type"].clone()).collect();
        assert_eq!(kinds.last(), Some(&json!("email.delivered")));
    }

    async fn a_bounce_stops_the_next_mail_and_says_why(world) {
        let told = Told::sent(world).await;
        let answer = told.tell("e1", "email.bounced").await;
        assert_eq!((&answer["learnt"], &answer["suppressed"]), (&json!(1), &json!(1)));
        assert_eq!(told.state().await, "bounced");
        let world = &told.wired.world;
        let entry = world.get("/v1/suppressions/user@example.com").await.is(200);
        assert_eq!((&entry["reason"], &entry["email"]), (&json!("bounced"), &json!(told.email)));
        assert_eq!(entry["detail"], "no such user");
        let refused = world.send("next", &mail()).await.refused(422, "recipient_suppressed").at("to[0]");
        assert_eq!(refused["reason"], "bounced");
        assert_eq!(world.send("k", &mail()).await.is(200)["id"], told.email.as_str(), "the first is still answered");
    }

    async fn a_complaint_stops_the_next_mail_too(world) {
        let told = Told::sent(world).await;
        told.tell("e1", "email.complained").await;
        assert_eq!(told.state().await, "complained");
        let refused = told.wired.world.send("next", &mail()).await.refused(422, "recipient_suppressed");
        assert_eq!(refused["reason"], "complained");
    }

    async fn repeats_and_any_order_are_harmless(world) {
        let told = Told::sent(world).await;
        let steps = [("e3", "email.bounced"), ("e1", "email.sent"), ("e2", "email.delivered"), ("e4", "email.opened")];
        for (id, kind) in steps {
            told.tell(id, kind).await;
            assert_eq!(told.state().await, "bounced", "{kind}");
        }
        let before = told.wired.world.events().await.len();
        for (id, kind) in steps {
            let again = told.tell(id, kind).await;
            assert_eq!(again["learnt"], 0, "{kind}: {}", again.text);
        }
        assert_eq!((told.state().await.as_str(), told.wired.world.events().await.len()), ("bounced", before));
    }

    async fn an_event_that_precedes_our_own_commit_counts(world) {
        let told = Told::queued(world).await;
        let held = told.wired.lease("relay").await;
        told.wired.mark(&held).await;
        assert_eq!(told.state().await, "sending");
        told.tell("e1", "email.delivered").await;
        assert_eq!(told.state().await, "delivered");
        assert_eq!(told.wired.settle(&held, "re_1").await, Verdict::Stale, "the late answer is written down, no more");
        assert_eq!(told.state().await, "delivered");
    }

    async fn an_event_settles_what_was_unknown(world) {
        let told = Told::queued(world).await;
        let held = told.wired.lease("relay").await;
        told.wired.mark(&held).await;
        told.wired.crash(&held).await;
        assert_eq!(told.state().await, "unknown");
        told.tell("e1", "email.sent").await;
        assert_eq!(told.state().await, "sent");
    }

    async fn a_report_of_delay_settles_what_was_unknown(world) {
        let wired = Wired::new(world, false).await;
        let path = source(&wired.world, "resend", "relay").await;
        let email = wired.world.send("k", &mail_with(json!({ "on_unknown": "resend" }))).await.is(202).word("id");
        let told = Told { wired, path, email };
        let held = told.wired.lease("relay").await;
        told.wired.mark(&held).await;
        told.wired.crash(&held).await;
        assert_eq!(told.state().await, "unknown");

        assert_eq!(told.tell("e1", "email.delivery_delayed").await["learnt"], 1);

        assert_eq!(told.state().await, "sent");
        let shown = told.wired.world.email(&told.email).await;
        let facts: Vec<&Value> = shown["evidence"].as_array().unwrap().iter().map(|fact| &fact["says"]).collect();
        assert_eq!(facts, ["lost", "delayed"]);
        told.wired.world.pass(11 * MINUTE);
        let engine = &told.wired.world.engine;
        let mine = [TransportAccount { name: "relay".into(), account: "relay".into() }];
        let doubts = engine.store().doubts(&mine, 10, engine.now()).await.unwrap();
        assert_eq!(doubts, [], "nothing is left for the policy to resend");
    }

    async fn another_teams_email_is_untouched(world) {
        let told = Told::sent(world).await;
        let world = &told.wired.world;
        let other = world.team("other").await;
        let body = json!({ "name": "resend", "kind": "resend", "transport": "relay", "secret": secret() });
        let path = world.call(post("/v1/sources").by(&other).json(&body)).await.is(201).word("path");
        let event = event("email.bounced", &told.email, "user@example.com");
        let answer = world.call(signed(world, &path, "e1", &event)).await.is(200);
        assert_eq!((&answer["unknown"], &answer["learnt"], &answer["suppressed"]), (&json!(1), &json!(0), &json!(0)));
        assert_eq!(told.state().await, "sent");
        world.call(post("/v1/emails").by(&other).json(&mail())).await.is(202);
    }

    async fn an_event_of_another_transport_is_ignored(world) {
        let told = Told::sent(world).await;
        let world = &told.wired.world;
        let path = source(world, "elsewhere", "provider").await;
        for id in [told.email.as_str(), ""] {
            let event = event("email.bounced", id, "user@example.com");
            let answer = world.call(signed(world, &path, &format!("e{id}"), &event)).await.is(200);
            assert_eq!((&answer["unknown"], &answer["suppressed"]), (&json!(1), &json!(0)), "{}", answer.text);
        }
        assert_eq!(told.state().await, "sent");
        world.send("next", &mail()).await.is(202);
    }

    async fn an_event_names_one_of_several_recipients(world) {
        let wired = Wired::new(world, false).await;
        let path = source(&wired.world, "resend", "relay").await;
        let both = mail_with(json!({ "to": ["a@example.com", "b@example.com"] }));
        let email = wired.world.send("k", &both).await.is(202).word("id");
        wired.hand_over("relay", "re_a").await;
        wired.hand_over("relay", "re_b").await;
        let event = event("email.bounced", &email, "b@example.com");
        wired.world.call(signed(&wired.world, &path, "e1", &event)).await.is(200);
        let states: Vec<Value> = wired.world.email(&email).await["handoffs"].as_array().unwrap().iter()
            .map(|handoff| json!([handoff["recipients"][0], handoff["state"]])).collect();
        assert_eq!(states, [json!(["a@example.com", "sent"]), json!(["b@example.com", "bounced"])]);
        wired.world.send("a", &mail_with(json!({ "to": "a@example.com" }))).await.is(202);
        wired.world.send("b", &mail_with(json!({ "to": "b@example.com" }))).await.refused(422, "recipient_suppressed");
    }

    async fn an_event_is_found_by_the_providers_own_name(world) {
        let told = Told::sent(world).await;
        let event = event("email.delivered", "not our id", "user@example.com");
        let answer = told.wired.world.call(signed(&told.wired.world, &told.path, "e1", &event)).await.is(200);
        assert_eq!(answer["learnt"], 1);
        assert_eq!(told.state().await, "delivered");
    }

    async fn a_repeat_does_not_undo_what_a_person_did(world) {
        let told = Told::sent(world).await;
        told.tell("e1", "email.bounced").await;
        let world = &told.wired.world;
        world.call(delete("/v1/suppressions/user@example.com")).await.is(200);
        let again = told.tell("e1", "email.bounced").await;
        assert_eq!((&again["repeated"], &again["suppressed"]), (&json!(1), &json!(0)));
        world.send("next", &mail()).await.is(202);
    }

    async fn what_is_not_proven_is_not_believed(world) {
        let told = Told::sent(world).await;
        let world = &told.wired.world;
        let event = event("email.bounced", &told.email, "user@example.com");
        let plain = |path: &str| post(path).anonymous().json(&event);
        world.call(plain(&told.path)).await.refused(401, "bad_signature");
        let forged = signed(world, &told.path, "e1", &event).text(event.to_string().replace("bounced", "complained"));
        world.call(forged).await.refused(401, "bad_signature");
        let old = signed(world, &told.path, "e1", &event);
        world.pass(10 * MINUTE);
        // Ours to repair, perhaps: the provider must come again.
        let late = world.call(old).await.refused(503, "unavailable");
        assert!(late.header("retry-after").is_some());
        world.call(plain("/hooks/01a1dd04-6b9c-7000-a6ea-eb0dbef0a296")).await.refused(404, "not_found");
        world.call(plain("/hooks/nonsense")).await.refused(404, "not_found");
        let large = post(&told.path).anonymous().bytes(vec![b' '; (1 << 20) + 1]);
        world.call(large).await.refused(413, "too_large");
        assert_eq!(told.state().await, "sent");
        assert!(world.get("/v1/suppressions").await.is(200).rows().is_empty());
    }

    async fn an_email_nobody_knows_is_answered_and_counted(world) {
        let told = Told::sent(world).await;
        let mut event = event("email.bounced", "01a1dd04-6b9c-7000-a6ea-eb0dbef0a296", "user@example.com");
        event["data"]["email_id"] = json!("re_9");
        let world = &told.wired.world;
        let answer = world.call(signed(world, &told.path, "e1", &event)).await.is(200);
        assert_eq!((&answer["unknown"], &answer["suppressed"]), (&json!(1), &json!(0)));
        let figures = world.get("/metrics").await.is(200).text;
        let counted = |line: &str| line.starts_with("mailonce_hook_reports") && line.contains("\"unknown\"") && line.ends_with(" 1");
        assert!(figures.lines().any(counted), "{figures}");
    }
}

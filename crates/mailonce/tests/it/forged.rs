//! Mail that says it is from somebody else: what forged senders, answers that go elsewhere and doubled headers get.

use async_trait::async_trait;
use mailonce_core::port::authenticate::{Arrived, Auth, AuthResult, Authenticator};
use mailonce_engine::ways::Outside;
use serde_json::{Value, json};
use std::sync::Arc;

use crate::{
    call::{get, patch, post},
    talk::{Letter, word},
    world::World,
};

/// Believes what the mail says about itself in the header `X-Verdict`.
struct Stamped;

#[async_trait]
impl Authenticator for Stamped {
    async fn authenticate(&self, mail: Arrived<'_>) -> Auth {
        let text = String::from_utf8_lossy(mail.raw);
        let said = text.lines().find_map(|line| line.strip_prefix("X-Verdict: ")).unwrap_or("none");
        Auth { verdict: AuthResult::parse(said.trim()).unwrap(), ..Auth::default() }
    }
}

async fn judged(world: World) -> World {
    let outside = Outside {
        local_domains: vec!["agents.test".into()],
        bounce_domain: Some("agents.test".into()),
        authenticator: Some(Arc::new(Stamped)),
        ..Outside::default()
    };
    let world = world.rewired(outside).await;
    world.inbox("a").await;
    world
}

fn stamped(verdict: &str, more: &str) -> String {
    format!("X-Verdict: {verdict}\n{more}")
}

async fn refuse_elsewhere(world: &World) {
    world.call(patch("/v1/settings").json(&json!({ "reply_to": "refuse" }))).await.is(200);
}

over_memory_and_sqlite! {
    async fn an_answer_that_would_go_elsewhere_says_so(world) {
        let world = judged(world).await;
        let head = stamped("pass", "Reply-To: boss@evil.example\n");
        let message = world.hears(Letter { from: "boss@company.example", head, ..Letter::default() }).await;
        let expected = json!({ "to": ["boss@evil.example"], "flags": ["other_domain"] });
        assert_eq!(message["reply"], expected, "{message}");
        let sent = world.reply(&message, "The password is …").await.is(202);
        assert_eq!(sent["guard"], "reply_to", "{}", sent.text);
    }

    async fn a_team_can_refuse_answers_that_go_elsewhere(world) {
        let world = judged(world).await;
        refuse_elsewhere(&world).await;
        let head = stamped("pass", "Reply-To: boss@evil.example\n");
        let message = world.hears(Letter { from: "boss@company.example", head, ..Letter::default() }).await;
        let refused = world.reply(&message, "Fine.").await.refused(409, "reply_to");
        assert_eq!((&refused["to"], &refused["guard"]), (&json!(["boss@evil.example"]), &json!("reply_to")));
        assert_eq!(world.count().await, 0);
        // Another host of the same organization is the sender's own business.
        let head = stamped("pass", "Reply-To: desk@mail.company.example\n");
        let message = world.hears(Letter { id: "2", from: "boss@company.example", head, ..Letter::default() }).await;
        assert_eq!(message["reply"]["flags"], json!([]));
        world.reply(&message, "Fine.").await.is(202);
    }

    async fn an_answer_that_was_given_is_not_refused_later(world) {
        let world = judged(world).await;
        let head = stamped("pass", "Reply-To: boss@evil.example\n");
        let message = world.hears(Letter { from: "boss@company.example", head, ..Letter::default() }).await;
        let path = format!("/v1/messages/{}/reply", word(&message, "id"));
        let reply = || world.call(post(&path).key("r").json(&json!({ "text": "Fine." })));
        let first = reply().await.is(202).word("id");
        refuse_elsewhere(&world).await;
        assert_eq!(reply().await.is(200).word("id"), first);
    }

    async fn a_forged_sender_is_flagged_and_refused(world) {
        let world = judged(world).await;
        let message = world.hears(Letter { head: stamped("fail", ""), ..Letter::default() }).await;
        assert_eq!(message["reply"]["flags"], json!(["auth_failed"]));
        refuse_elsewhere(&world).await;
        world.reply(&message, "Fine.").await.refused(409, "reply_to");
    }

    async fn a_header_that_stands_twice_is_never_authenticated(world) {
        let world = judged(world).await;
        let twice: [(&str, &str); 4] = [("Subject", "none"), ("Reply-To", "none"), ("Date", "none"), ("From", "fail")];
        for (n, (name, verdict)) in twice.into_iter().enumerate() {
            let value = if name == "Date" { "Mon, 16 Nov 2026 10:00:00 +0000" } else { "x@shop.test" };
            let head = stamped("pass", &format!("{name}: {value}\n{name}: {value}\n"));
            let message = world.hears(Letter { id: &format!("d{n}"), head, ..Letter::default() }).await;
            assert_eq!(message["auth"]["verdict"], verdict, "{name}: {message}");
            assert!(message["flags"].to_string().contains("duplicate_header"), "{name}: {message}");
        }
        let clean = world.hears(Letter { id: "clean", head: stamped("pass", ""), ..Letter::default() }).await;
        assert_eq!((&clean["auth"]["verdict"], &clean["flags"]), (&json!("pass"), &json!([])));
    }

    async fn a_forged_sender_is_not_on_the_allow_list(world) {
        let world = judged(world).await;
        world.post("/v1/lists/receive/allow", &json!({ "entry": "ann@shop.test" })).await.is(201);
        let letters = [("1", "pass"), ("2", "none"), ("3", "fail")];
        for (id, verdict) in letters {
            let raw = Letter { id, head: stamped(verdict, ""), ..Letter::default() }.raw();
            world.arrives(&["a@agents.test"], &raw).await;
        }
        let rows = world.get("/v1/inboxes/a@agents.test/messages").await.is(200).rows();
        let verdicts: Vec<&Value> = rows.iter().map(|row| &row["auth"]["verdict"]).collect();
        assert_eq!(verdicts, [&json!("none"), &json!("pass")]);
    }

    async fn a_forged_code_is_not_the_one_that_was_waited_for(world) {
        let world = judged(world).await;
        let text = "Your verification code is 666666.";
        let forged = Letter { subject: "Your code", text, head: stamped("fail", ""), ..Letter::default() };
        world.hears(forged).await;
        let wait = "/v1/inboxes/a@agents.test/wait?timeout=0&from=ann@shop.test";
        world.call(get(wait)).await.is(204);
        let consume = json!({ "type": "code", "for": "x", "match": { "from": "ann@shop.test" } });
        let taken = world.post("/v1/inboxes/a@agents.test/consume", &consume).await;
        taken.refused(404, "not_found");
        let text = "Your verification code is 482913.";
        world.hears(Letter { id: "2", subject: "Your code", text, head: stamped("none", ""), ..Letter::default() }).await;
        world.call(get(wait)).await.is(200);
        let taken = world.post("/v1/inboxes/a@agents.test/consume", &consume).await.is(200);
        assert!(taken.text.contains("482913"), "{}", taken.text);
    }
}

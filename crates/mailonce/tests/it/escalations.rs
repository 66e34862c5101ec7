//! Questions for people: asked once, decided once, and what was decided is done.

use mailonce_core::{
    conversation::escalation::{Decision, DecisionRecord, EmailEdit, Escalation},
    handoff::action::HandoffAction,
    id::ApiKeyId,
    operation::IdempotentResult,
    record::{RecordChangeResult, RecordKind},
};
use serde_json::{Value, json};

use crate::{
    call::{get, patch, post},
    talk::{TestMail, reply_path, str_field},
    wired::TransportFixture,
    world::{DAY, HOUR, MINUTE, World, mail, mail_with},
};

/// Two mails of the same words, the second of which is held.
async fn send_held_duplicate(world: &World) -> (Value, Value) {
    world.send_without_key(&mail()).await.expect_status(202);
    let held = world
        .send_without_key(&mail_with(json!({ "text": "Thank you for your order!" })))
        .await
        .expect_status(202)
        .body;
    assert_eq!(held["state"], "held");
    let asked = world.escalations("reason=looks_duplicate&state=open").await.remove(0);
    (held, asked)
}

async fn hand_off_and_get_state(world: &World, email: &Value) -> String {
    world.hand_off_due().await;
    str_field(&world.email(email["id"].as_str().unwrap()).await, "state").to_owned()
}

over_every_engine! {
    async fn a_person_lets_a_held_email_go(world) {
        let (email, asked) = send_held_duplicate(&world).await;
        let read = world.get(&format!("/v1/escalations/{}", str_field(&asked, "id"))).await.expect_status(200);
        assert_eq!(read["draft"]["text"], "Thank you for your order!");
        let diff = json!(["  Order 4821", "- Thank you for your order.", "+ Thank you for your order!"]);
        assert_eq!(read["looks_like"]["diff"], diff, "{}", read.text);
        let done = world.resolve_escalation(&asked, "release").await.expect_status(200);
        assert_eq!((&done["state"], &done["decided"]["as"]), (&json!("resolved"), &json!("release")));
        assert!(done["done_at"].is_string() && done["decided"]["by"].is_string());
        assert_eq!(hand_off_and_get_state(&world, &email).await, "sent");
        world.resolve_escalation(&asked, "reject").await.expect_problem(409, "not_open");
        let told: Vec<Value> = world.events().await;
        let kinds: Vec<&str> = told.iter().map(|event| str_field(event, "type")).filter(|kind| kind.starts_with("escalation")).collect();
        assert_eq!(kinds, ["escalation.opened", "escalation.resolved"]);
        assert!(told.iter().any(|event| event["type"] == "email.released"));
    }

    async fn a_person_sees_everything_that_will_be_sent(world) {
        let attack = mail_with(json!({
            "cc": ["Carl <cc@example.com>"], "bcc": ["spy@evil.example"], "reply_to": ["spy@evil.example"],
            "text": "Thank you for your order!", "html": "<p>Pay 9000 euros to evil.example</p>",
            "attachments": [{ "filename": "invoice.exe", "content": "TVo=", "content_type": "application/pdf" }],
        }));
        world.send_without_key(&attack).await.expect_status(202);
        let held = world.send_without_key(&attack).await.expect_status(202).body;
        assert_eq!(held["state"], "held");
        let asked = world.escalations("state=open").await.remove(0);
        let path = format!("/v1/escalations/{}", str_field(&asked, "id"));
        let read = world.get(&path).await.expect_status(200).body;
        let shown = str_field(&read["draft"], "shown");
        for part in ["cc@example.com", "Bcc:      spy@evil.example", "Reply-To: spy@evil.example", "invoice.exe", "Pay 9000 euros", "Thank you for your order!"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert_eq!(read["draft"]["warnings"].as_array().unwrap().len(), 4, "{read}");
        let decide = |digest: &str| json!({ "as": "release", "rev": read["rev"], "digest": digest });
        world.post(&format!("{path}/resolve"), &decide("of something else")).await.expect_problem(409, "stale_rev");
        assert_eq!(hand_off_and_get_state(&world, &held).await, "held");
        world.post(&format!("{path}/resolve"), &decide(str_field(&read["draft"], "digest"))).await.expect_status(200);
        assert_eq!(hand_off_and_get_state(&world, &held).await, "sent");
    }

    async fn a_person_rejects_a_held_email(world) {
        let (email, asked) = send_held_duplicate(&world).await;
        world.resolve_escalation(&asked, "reject").await.expect_status(200);
        assert_eq!(hand_off_and_get_state(&world, &email).await, "cancelled");
        assert_eq!(world.hand_off_and_count_sent().await, 1);
    }

    async fn a_person_finds_other_words_and_they_go_once(world) {
        let (email, asked) = send_held_duplicate(&world).await;
        let path = format!("/v1/escalations/{}/resolve", str_field(&asked, "id"));
        let body = json!({ "as": "edit", "rev": 1, "edit": { "subject": "Invoice 17", "text": "Here it is." } });
        for bad in [json!({ "as": "edit", "rev": 1 }), json!({ "as": "edit", "rev": 1, "edit": {} })] {
            world.post(&path, &bad).await.expect_problem(422, "invalid_field");
        }
        world.post(&path, &json!({ "as": "sent", "rev": 1 })).await.expect_problem(422, "invalid_field");
        world.post(&path, &json!({ "as": "release", "rev": 9 })).await.expect_problem(409, "stale_rev");
        let decide = || world.call(post(&path).key("d1").json(&body));
        decide().await.expect_status(200);
        decide().await.expect_status(200);
        assert_eq!(hand_off_and_get_state(&world, &email).await, "cancelled");
        let old = world.email(email["id"].as_str().unwrap()).await;
        let new = world.email(old["resent_as"].as_str().unwrap()).await;
        assert_eq!((&new["subject"], &new["text"], &new["state"]), (&json!("Invoice 17"), &json!("Here it is."), &json!("sent")));
        assert_eq!(world.hand_off_and_count_sent().await, 2);
    }

    async fn what_was_decided_is_done_after_a_crash(world) {
        let (email, asked) = send_held_duplicate(&world).await;
        let store = world.engine.store();
        let team = store.teams().await.unwrap()[0].id;
        let record = store.records(team, RecordKind::Escalation, None, 10).await.unwrap().rows.remove(0);
        assert_eq!(record.id.to_string(), str_field(&asked, "id"));
        let mut escalation: Escalation = serde_json::from_str(&record.json).unwrap();
        let by = Some(ApiKeyId(uuid::Uuid::from_u128(1)));
        let edit = Some(EmailEdit { text: Some("Other words".into()), ..EmailEdit::default() });
        let decided = DecisionRecord { decision: Decision::Edit, at: world.engine.now(), by, reason: None, edit, shown: None };
        assert!(escalation.decide(decided));
        // The process ends right here: the decision is written, and nothing was done.
        let about = serde_json::to_string(&escalation).unwrap();
        let changed = store.change_record(record.edit(about), None, world.engine.now()).await.unwrap();
        assert!(matches!(changed, IdempotentResult::Done(RecordChangeResult::Changed(_))));
        assert_eq!(hand_off_and_get_state(&world, &email).await, "held");
        for _ in 0..3 {
            world.engine.run_escalation_round().await;
        }
        assert_eq!(hand_off_and_get_state(&world, &email).await, "cancelled");
        let read = world.get(&format!("/v1/escalations/{}", str_field(&asked, "id"))).await.expect_status(200);
        assert!(read["done_at"].is_string());
        assert_eq!((world.hand_off_and_count_sent().await, world.email_count().await), (2, 3), "the first, the held one, and its other words once");
    }

    async fn an_agent_asks_and_never_decides(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let message = world.receive_message(TestMail::default()).await;
        let agent = world.create_api_key(&json!({ "name": "agent", "scopes": ["read", "reply", "send"] })).await;
        let body = json!({ "question": "May I refund 40 EUR?", "message": message["id"] });
        let asked = world.call(post("/v1/escalations").bearer(&agent).json(&body)).await.expect_status(201);
        let again = world.call(post("/v1/escalations").bearer(&agent).json(&body)).await.expect_status(200);
        assert_eq!(again["id"], asked["id"]);
        assert_eq!((&asked["reason"], &asked["about"]["thread"]), (&json!("asked"), &message["thread_id"]));
        let path = format!("/v1/escalations/{}/resolve", asked.string_field("id"));
        let yes = json!({ "as": "release", "rev": 1, "reason": "yes, once" });
        world.call(post(&path).bearer(&agent).json(&yes)).await.expect_problem(403, "wrong_scope");
        world.post(&path, &yes).await.expect_status(200);
        let read = world.call(get(&format!("/v1/escalations/{}", asked.string_field("id"))).bearer(&agent)).await.expect_status(200);
        assert_eq!(read["decided"]["reason"], "yes, once");
        world.post("/v1/escalations", &json!({ "question": " " })).await.expect_problem(422, "invalid_field");
    }

    async fn whoever_may_only_decide_is_told_what_was_decided(world) {
        let (email, asked) = send_held_duplicate(&world).await;
        let person = world.create_api_key(&json!({ "name": "person", "scopes": ["admin"] })).await;
        let path = format!("/v1/escalations/{}", str_field(&asked, "id"));
        world.call(get(&path).bearer(&person)).await.expect_problem(403, "wrong_scope");
        let yes = json!({ "as": "release", "rev": 1 });
        let done = world.call(post(&format!("{path}/resolve")).bearer(&person).json(&yes)).await.expect_status(200);
        assert_eq!((&done["state"], &done["draft"]["id"]), (&json!("resolved"), &email["id"]), "{}", done.text);
        let set = json!({ "held_expires": "2h" });
        assert_eq!(world.call(patch("/v1/settings").bearer(&person).json(&set)).await.expect_status(200)["held_expires"], "2h");
        let rule = json!({ "name": "r", "actions": [{ "type": "block" }],
            "match": { "conditions": [{ "field": "subject", "operator": "is", "value": "x" }] } });
        let made = world.call(post("/v1/rules").bearer(&person).json(&rule)).await.expect_status(201);
        let change = patch(&format!("/v1/rules/{}", made.string_field("id"))).bearer(&person).json(&json!({ "rev": 1, "priority": 7 }));
        assert_eq!(world.call(change).await.expect_status(200)["priority"], 7);
    }

    async fn whoever_is_tied_to_an_inbox_decides_nothing_that_is_not_about_it(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let (email, asked) = send_held_duplicate(&world).await;
        let tied = json!({ "name": "tied", "scopes": ["admin", "read"], "inboxes": ["a@agents.test"] });
        let tied = world.create_api_key(&tied).await;
        let path = format!("/v1/escalations/{}/resolve", str_field(&asked, "id"));
        world.call(post(&path).bearer(&tied).json(&json!({ "as": "release", "rev": 1 }))).await.expect_problem(404, "not_found");
        assert_eq!(hand_off_and_get_state(&world, &email).await, "held");
    }

    async fn an_agents_own_key_cannot_release_what_a_cap_holds(world) {
        let world = world.with_inbox_domain().await;
        world.post("/v1/inboxes", &json!({ "username": "a", "caps": { "per_window": 0 } })).await.expect_status(201);
        let message = world.receive_message(TestMail::default()).await;
        let agent = world.create_api_key(&json!({ "name": "agent", "scopes": ["read", "reply", "send"] })).await;
        let body = json!({ "text": "x" });
        let held = world.call(post(&reply_path(&message)).bearer(&agent).json(&body)).await.expect_status(202);
        assert_eq!((&held["guard"], &held["state"]), (&json!("cap"), &json!("held")));
        let asked = world.escalations("reason=cap").await.remove(0);
        let path = format!("/v1/escalations/{}/resolve", str_field(&asked, "id"));
        let yes = json!({ "as": "release", "rev": asked["rev"] });
        world.call(post(&path).bearer(&agent).json(&yes)).await.expect_problem(403, "wrong_scope");
        assert_eq!(world.hand_off_and_count_sent().await, 0);
        world.resolve_escalation(&asked, "edit").await.expect_problem(422, "invalid_field");
        world.resolve_escalation(&asked, "release").await.expect_status(200);
        assert_eq!(world.hand_off_and_count_sent().await, 1);
    }

    async fn an_agents_key_does_not_send_what_a_person_rejected(world) {
        let world = world.with_inbox_domain().await;
        world.post("/v1/inboxes", &json!({ "username": "a", "caps": { "per_window": 0 } })).await.expect_status(201);
        let message = world.receive_message(TestMail::default()).await;
        let agent = world.create_api_key(&json!({ "name": "agent", "scopes": ["read", "reply", "send"] })).await;
        let reply = || world.call(post(&reply_path(&message)).bearer(&agent).key("r1").json(&json!({ "text": "x" })));
        let held = reply().await.expect_status(202);
        let asked = world.escalations("reason=cap").await.remove(0);
        world.resolve_escalation(&asked, "reject").await.expect_status(200);
        assert!(str_field(&reply().await.expect_status(200).body, "next").contains("unless a person says so"));
        let again = format!("/v1/emails/{}/resend", held.string_field("id"));
        let next = world.call(post(&again).bearer(&agent).json(&json!({}))).await.expect_status(202);
        assert_eq!((&next["state"], &next["guard"]), (&json!("held"), &json!("cap")));
        assert_eq!(world.hand_off_and_count_sent().await, 0);
        let asked = world.escalations("reason=cap&state=open").await.remove(0);
        assert_eq!(asked["about"]["email"], next["id"]);
        world.resolve_escalation(&asked, "release").await.expect_status(200);
        assert_eq!(world.hand_off_and_count_sent().await, 1);
        let once_more = format!("/v1/emails/{}/resend", next.string_field("id"));
        world.call(post(&once_more).bearer(&agent).json(&json!({}))).await.expect_problem(409, "already_answered");
    }

    async fn an_agents_key_does_not_let_go_a_look_alike_that_a_person_rejected(world) {
        let agent = world.create_api_key(&json!({ "name": "agent", "scopes": ["read", "reply", "send"] })).await;
        let send = |body: &Value| world.call(post("/v1/emails").bearer(&agent).json(body));
        let mut meant = mail_with(json!({ "text": "Thank you for your order!" }));
        send(&mail()).await.expect_status(202);
        let held = send(&meant).await.expect_status(202);
        assert!(held["distinct_token"].is_string());
        let asked = world.escalations("reason=looks_duplicate&state=open").await.remove(0);
        world.resolve_escalation(&asked, "reject").await.expect_status(200);
        let again = post(&format!("/v1/emails/{}/resend", held.string_field("id"))).bearer(&agent).json(&json!({}));
        let again = world.call(again).await.expect_status(202);
        assert_eq!((&again["state"], &again["guard"]), (&json!("held"), &json!("looks_duplicate")));
        assert!(again.body.get("distinct_token").is_none() && again.string_field("next").contains("a person must decide"), "{}", again.text);
        // Nor by the token that it had before.
        meant["distinct_token"] = held["distinct_token"].clone();
        assert_eq!(send(&meant).await["state"], "cancelled");
        assert_eq!(world.hand_off_and_count_sent().await, 1);
        let asked = world.escalations("reason=looks_duplicate&state=open").await.remove(0);
        world.resolve_escalation(&asked, "release").await.expect_status(200);
        assert_eq!(world.hand_off_and_count_sent().await, 2);
    }

    async fn other_words_go_at_the_time_that_was_wished_for(world) {
        let rule = json!({ "name": "ask", "direction": "outbound", "actions": [{ "type": "approve" }],
            "match": { "conditions": [{ "field": "subject", "operator": "contains", "value": "Order" }] } });
        world.post("/v1/rules", &rule).await.expect_status(201);
        let due = world.timestamp_in(2 * HOUR);
        let held = world.send("later", &mail_with(json!({ "scheduled_at": due }))).await.expect_status(202);
        assert_eq!((&held["state"], &held["guard"]), (&json!("held"), &json!("approval")));
        let asked = world.escalations("reason=approval&state=open").await.remove(0);
        let path = format!("/v1/escalations/{}", str_field(&asked, "id"));
        assert_eq!(world.get(&path).await.expect_status(200)["draft"]["scheduled_at"], json!(due));
        let resolve = |edit: Value| json!({ "as": "edit", "rev": asked["rev"], "edit": edit });
        let nothing = resolve(json!({ "subject": "", "text": "" }));
        world.post(&format!("{path}/resolve"), &nothing).await.expect_problem(422, "invalid_field");
        let other = resolve(json!({ "subject": "", "text": "At noon." }));
        world.post(&format!("{path}/resolve"), &other).await.expect_status(200);
        assert_eq!(world.hand_off_and_count_sent().await, 0);
        let old = world.email(&held.string_field("id")).await;
        let new = world.email(str_field(&old, "resent_as")).await;
        let told = (&new["state"], &new["scheduled_at"], &new["subject"], &new["text"]);
        assert_eq!(told, (&json!("scheduled"), &json!(due), &json!("Order 4821"), &json!("At noon.")));
        // Who repeats the wish is told of the version that stands.
        let again = world.send("later", &mail_with(json!({ "scheduled_at": due }))).await.expect_status(200);
        assert_eq!((&again["id"], &again["resent_as"]), (&held["id"], &new["id"]));
        assert!(again.string_field("next").contains("resent_as"), "{}", again.text);
        world.advance_clock(3 * HOUR);
        assert_eq!(world.hand_off_and_count_sent().await, 1);
    }

    async fn nobody_decides_about_what_its_sender_took_back(world) {
        let other = json!({ "as": "edit", "rev": 1, "edit": { "text": "Other words." } });
        for verdict in [json!({ "as": "release", "rev": 1 }), other] {
            let held = world.send_without_key(&mail_with(json!({ "text": "Thank you for your order!" }))).await.expect_status(202);
            let held = if held["state"] == "held" { held } else { world.send_without_key(&mail()).await.expect_status(202) };
            let asked = world.escalations("reason=looks_duplicate&state=open").await.remove(0);
            world.post(&format!("/v1/emails/{}/cancel", held.string_field("id")), &json!({})).await.expect_status(200);
            let path = format!("/v1/escalations/{}", str_field(&asked, "id"));
            let refused = world.post(&format!("{path}/resolve"), &verdict).await.expect_problem(409, "not_open");
            assert_eq!(refused["state"], "moot", "{}", refused.text);
            assert_eq!(world.get(&path).await.expect_status(200)["state"], "moot");
            assert_eq!(world.email(&held.string_field("id")).await["resent_as"], Value::Null);
        }
        assert_eq!(world.hand_off_and_count_sent().await, 1);
    }

    async fn a_person_words_a_held_version_anew_on_the_day_it_was_made(world) {
        let (email, asked) = send_held_duplicate(&world).await;
        world.resolve_escalation(&asked, "reject").await.expect_status(200);
        let agent = world.create_api_key(&json!({ "name": "agent", "scopes": ["read", "reply", "send"] })).await;
        let again = post(&format!("/v1/emails/{}/resend", str_field(&email, "id"))).bearer(&agent).json(&json!({}));
        let again = world.call(again).await.expect_status(202);
        let asked = world.escalations("reason=looks_duplicate&state=open").await.remove(0);
        assert_eq!(asked["about"]["email"], again["id"]);
        let other = json!({ "as": "edit", "rev": asked["rev"], "edit": { "text": "Something else." } });
        world.post(&format!("/v1/escalations/{}/resolve", str_field(&asked, "id")), &other).await.expect_status(200);
        assert_eq!(world.hand_off_and_count_sent().await, 2);
    }

    async fn a_rule_is_asked_before_a_mail_is_sent_again(world) {
        let first = world.send_without_key(&mail()).await.expect_status(202);
        assert_eq!(world.hand_off_and_count_sent().await, 1);
        let rule = json!({
            "name": "stop", "direction": "outbound", "actions": [{ "type": "block" }],
            "match": { "conditions": [{ "field": "subject", "operator": "contains", "value": "Order" }] },
        });
        world.post("/v1/rules", &rule).await.expect_status(201);
        world.post(&format!("/v1/emails/{}/resend", first.string_field("id")), &json!({})).await.expect_problem(422, "blocked_by_rule");
    }

    async fn other_words_for_a_held_answer_are_the_only_answer(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.post("/v1/inboxes", &json!({ "username": "a", "caps": { "per_window": 0 } })).await.expect_status(201);
        let message = world.receive_message(TestMail::default()).await;
        world.reply(&message, "first").await.expect_status(202);
        let asked = world.escalations("reason=cap").await.remove(0);
        let caps = json!({ "caps": { "per_window": 9 } });
        world.call(patch(&format!("/v1/inboxes/{}", inbox.string_field("id"))).json(&caps)).await.expect_status(200);
        let path = format!("/v1/escalations/{}/resolve", str_field(&asked, "id"));
        let edit = json!({ "as": "edit", "rev": asked["rev"], "edit": { "text": "other words" } });
        let reply = || world.reply(&message, "another");
        let (one, edited, two, three) = tokio::join!(reply(), world.post(&path, &edit), reply(), reply());
        edited.expect_status(200);
        for reply in [one, two, three] {
            assert_eq!(reply.expect_status(200)["guard"], "already_answered");
        }
        assert_eq!(world.hand_off_and_count_sent().await, 1);
        assert!(world.events().await.iter().all(|event| event["type"] != "message.reopened"));
    }

    async fn what_answers_itself_is_closed(world) {
        let (email, asked) = send_held_duplicate(&world).await;
        world.post(&format!("/v1/emails/{}/cancel", str_field(&email, "id")), &json!({})).await.expect_status(200);
        world.engine.run_escalation_round().await;
        let read = world.get(&format!("/v1/escalations/{}", str_field(&asked, "id"))).await.expect_status(200);
        assert_eq!((&read["state"], &read["decided"]), (&json!("moot"), &Value::Null));
        world.resolve_escalation(&json!({ "id": asked["id"], "rev": read["rev"] }), "release").await.expect_problem(409, "not_open");
    }

    async fn a_held_email_is_rejected_in_time_where_a_team_wants_that(world) {
        let set = json!({ "held_expires": "2h", "content_guard": { "keyed": "hold" } });
        let settings = world.call(patch("/v1/settings").json(&set)).await.expect_status(200);
        assert_eq!((&settings["held_expires"], &settings["content_guard"]["keyed"]), (&json!("2h"), &json!("hold")));
        let (email, asked) = send_held_duplicate(&world).await;
        assert!(asked["expires_at"].is_string());
        world.advance_clock(HOUR);
        world.engine.run_escalation_round().await;
        assert_eq!(hand_off_and_get_state(&world, &email).await, "held");
        world.advance_clock(HOUR + MINUTE);
        world.engine.run_escalation_round().await;
        let read = world.get(&format!("/v1/escalations/{}", str_field(&asked, "id"))).await.expect_status(200);
        assert_eq!((&read["state"], &read["decided"]["by"]), (&json!("expired"), &Value::Null));
        assert_eq!(hand_off_and_get_state(&world, &email).await, "cancelled");
        world.advance_clock(DAY);
    }

    async fn people_are_told_by_mail_once(world) {
        let set = json!({ "notify": { "from": "mailonce@example.com", "to": ["boss@example.com"] } });
        world.call(patch("/v1/settings").json(&set)).await.expect_status(200);
        let wrong = json!({ "notify": { "from": "nobody", "to": ["boss@example.com"] } });
        world.call(patch("/v1/settings").json(&wrong)).await.expect_problem(422, "invalid_field");
        let (_, asked) = send_held_duplicate(&world).await;
        world.engine.run_escalation_round().await;
        let notices = world.get("/v1/emails?to=boss@example.com").await.expect_status(200).rows();
        assert_eq!(notices.len(), 1);
        assert_eq!(notices[0]["subject"], "mailonce asks: looks_duplicate");
        let text = world.email(str_field(&notices[0], "id")).await["text"].clone();
        let text = text.as_str().unwrap();
        assert!(text.starts_with("An email is held: it looks like one") && text.contains("Subject:  Order 4821"), "{text}");
        let answer = format!("mailonce escalations resolve {} --as release", str_field(&asked, "id"));
        assert!(text.contains(&answer), "{text}");
        assert!(text.contains("--as edit --text \"…\""), "words are needed: {text}");
        assert_eq!(world.escalations("").await.len(), 1, "a notice is not asked about");
    }

    async fn what_was_held_before_anybody_could_ask_is_asked_about(world) {
        let to = |all: Value| mail_with(json!({ "to": all, "intent": { "type": "t", "entity": "e" } }));
        world.send_without_key(&to(json!(["a@x.test", "b@x.test"]))).await.expect_status(202);
        let held = world.send_without_key(&to(json!(["b@x.test", "c@x.test"]))).await.expect_status(202);
        assert_eq!(held["guard"], "overlaps");
        for _ in 0..3 {
            world.engine.run_escalation_round().await;
        }
        let asked = world.escalations("").await;
        assert_eq!((asked.len(), &asked[0]["reason"]), (1, &json!("overlaps")));
        assert_eq!(asked[0]["about"]["email"], held["id"]);
    }

    async fn whoever_decides_about_an_overlap_sees_what_went_before(world) {
        let to = |all: Value, text: &str| {
            mail_with(json!({ "to": all, "text": text, "intent": { "type": "t", "entity": "e" } }))
        };
        world.send_without_key(&mail_with(json!({ "to": "b@x.test", "intent": { "type": "t", "entity": "another" } }))).await.expect_status(202);
        let first = world.send_without_key(&to(json!(["a@x.test", "b@x.test"]), "Once.")).await.expect_status(202);
        world.send_without_key(&mail_with(json!({ "to": "b@x.test", "intent": { "type": "t", "entity": "later" } }))).await.expect_status(202);
        world.send_without_key(&to(json!(["c@x.test", "b@x.test"]), "Again.")).await.expect_status(202);
        let asked = world.escalations("reason=overlaps").await.remove(0);
        let read = world.get(&format!("/v1/escalations/{}", str_field(&asked, "id"))).await.expect_status(200);
        assert_eq!(read["looks_like"]["email"]["id"], first["id"], "{}", read.text);
        assert_eq!(read["looks_like"]["diff"], json!(["  Order 4821", "- Once.", "+ Again."]));
    }

    async fn a_page_of_questions_is_full_however_rare_they_are(world) {
        let ask = |n: usize| json!({ "question": format!("Question {n}?") });
        for n in 0..40 {
            world.post("/v1/escalations", &ask(n)).await.expect_status(201);
        }
        let wanted = world.escalations("").await;
        for rare in [&wanted[5], &wanted[35]] {
            world.resolve_escalation(rare, "release").await.expect_status(200);
        }
        let page = world.get("/v1/escalations?state=resolved&limit=1").await.expect_status(200);
        assert_eq!(page.rows()[0]["id"], wanted[5]["id"]);
        let path = format!("/v1/escalations?state=resolved&limit=1&cursor={}", str_field(&page.body, "next_cursor"));
        let page = world.get(&path).await.expect_status(200);
        assert_eq!(page.rows()[0]["id"], wanted[35]["id"]);
        let last = world.get("/v1/escalations?limit=40").await.expect_status(200);
        assert_eq!((last.rows().len(), &last["next_cursor"]), (40, &Value::Null));
    }

    async fn a_person_settles_what_nobody_can_tell(world) {
        let wired = TransportFixture::new(world, false).await;
        let world = &wired.world;
        let id = world.send("k", &mail()).await.expect_status(202).string_field("id");
        let held = wired.lease_handoff("relay").await;
        wired.commit_marker(&held).await;
        wired.crash_holder(&held).await;
        world.engine.run_escalation_round().await;
        assert!(world.escalations("").await.is_empty(), "something is still tried by itself");
        let (store, now) = (world.engine.store(), world.engine.now());
        let team = store.teams().await.unwrap()[0].id;
        let wait = HandoffAction::CheckLater { number: 0, evidence: None, next_check_at: None };
        let _waits = store.apply_action(team, id.parse().unwrap(), wait, None, now).await.unwrap();
        for _ in 0..2 {
            world.engine.run_escalation_round().await;
        }
        let asked = world.escalations("").await;
        assert_eq!((asked.len(), &asked[0]["reason"], &asked[0]["state"]), (1, &json!("unknown"), &json!("open")));
        assert_eq!(asked[0]["choices"], json!(["sent", "resend", "abandon"]));
        world.resolve_escalation(&asked[0], "release").await.expect_problem(422, "invalid_field");
        world.resolve_escalation(&asked[0], "abandon").await.expect_status(200);
        assert_eq!(world.email(&id).await["state"], "abandoned");
    }

    async fn a_rule_wants_a_person_to_look_first(world) {
        let rule = |name: &str, field: &str| json!({
            "name": name, "direction": "outbound", "actions": [{ "type": "approve" }],
            "match": { "conditions": [{ "field": field, "operator": "is", "value": "true" }] },
        });
        let made = world.post("/v1/rules", &rule("new people", "recipient.is_new")).await.expect_status(201);
        let first = world.send("1", &mail()).await.expect_status(202);
        assert_eq!((&first["state"], &first["guard"]), (&json!("held"), &json!("approval")));
        assert!(first.body.get("distinct_token").is_none());
        let asked = world.escalations("reason=approval").await.remove(0);
        assert_eq!(asked["about"]["rule"], json!({ "id": made["id"], "name": "new people" }));
        for _ in 0..2 {
            world.engine.run_escalation_round().await;
        }
        assert_eq!(world.escalations("reason=approval").await.len(), 1, "it is asked once");
        world.resolve_escalation(&asked, "release").await.expect_status(200);
        let other = mail_with(json!({ "subject": "Other", "text": "Something else entirely." }));
        assert_eq!(world.send("2", &other).await.expect_status(202)["state"], "queued", "by now they are known");
        world.call(crate::call::delete(&format!("/v1/rules/{}", made.string_field("id")))).await.expect_status(200);
        for (field, mail) in [
            ("has_attachments", mail_with(json!({ "attachments": [{ "content": "AAEC" }] }))),
            ("recipient.is_outside", mail_with(json!({ "to": "x@elsewhere.test" }))),
            ("is_first", mail_with(json!({ "from": "fresh@example.com" }))),
        ] {
            let made = world.post("/v1/rules", &rule(field, field)).await.expect_status(201);
            let held = world.send(field, &mail).await.expect_status(202);
            assert_eq!(held["guard"], "approval", "{field}");
            let plain = mail_with(json!({ "to": "user@example.com", "text": format!("A mail about {field} alone.") }));
            assert_eq!(world.send(&format!("plain {field}"), &plain).await.expect_status(202)["state"], "queued", "{field}");
            world.call(crate::call::delete(&format!("/v1/rules/{}", made.string_field("id")))).await.expect_status(200);
        }
        let inbound = json!({ "name": "in", "actions": [{ "type": "approve" }],
            "match": { "conditions": [{ "field": "subject", "operator": "is", "value": "x" }] } });
        world.post("/v1/rules", &inbound).await.expect_problem(422, "invalid_field");
    }
}

//! Escalations: opened once, resolved once, and every decision is executed.

use mailonce_core::{
    conversation::escalation::{Decision, DecisionRecord, EmailEdit, Escalation},
    handoff::action::HandoffAction,
    id::ApiKeyId,
    operation::IdempotentResult,
    record::{RecordChangeResult, RecordKind},
};
use serde_json::{Value, json};

use crate::fixtures::{
    api_fixture::{DAY, HOUR, MINUTE, World, mail, mail_with},
    conversations::{TestMail, reply_path, str_field},
    engine_deps::TransportFixture,
    requests::{delete, get, patch, post},
};

/// Sends two similar mails and returns the second one, which is held, with its escalation.
async fn send_held_duplicate(world: &World) -> (Value, Value) {
    world.send_without_key(&mail()).await.expect_status(202);
    let held = world
        .send_without_key(&mail_with(json!({ "text": "Thank you for your order!" })))
        .await
        .expect_status(202)
        .body;
    assert_eq!(held["state"], "held");
    let escalation = world.escalations("reason=looks_duplicate&state=open").await.remove(0);
    (held, escalation)
}

async fn hand_off_and_get_state(world: &World, email: &Value) -> String {
    world.hand_off_due().await;
    str_field(&world.email(email["id"].as_str().unwrap()).await, "state").to_owned()
}

over_every_engine! {
    async fn a_person_releases_a_held_email(world) {
        let (email, escalation) = send_held_duplicate(&world).await;
        let read = world.get(&format!("/v1/escalations/{}", str_field(&escalation, "id"))).await.expect_status(200);
        assert_eq!(read["email"]["text"], "Thank you for your order!");
        let diff = json!(["  Order 4821", "- Thank you for your order.", "+ Thank you for your order!"]);
        assert_eq!(read["similar_email"]["diff"], diff, "{}", read.text);
        let done = world.resolve_escalation(&escalation, "release").await.expect_status(200);
        assert_eq!((&done["state"], &done["decision"]["as"]), (&json!("resolved"), &json!("release")));
        assert!(done["executed_at"].is_string() && done["decision"]["by"].is_string());
        assert_eq!(hand_off_and_get_state(&world, &email).await, "sent");
        world.resolve_escalation(&escalation, "reject").await.expect_problem(409, "not_open");
        let events: Vec<Value> = world.events().await;
        let kinds: Vec<&str> = events.iter().map(|event| str_field(event, "type")).filter(|kind| kind.starts_with("escalation")).collect();
        assert_eq!(kinds, ["escalation.opened", "escalation.resolved"]);
        assert!(events.iter().any(|event| event["type"] == "email.released"));
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
        let escalation = world.escalations("state=open").await.remove(0);
        let path = format!("/v1/escalations/{}", str_field(&escalation, "id"));
        let read = world.get(&path).await.expect_status(200).body;
        let shown = str_field(&read["email"], "approval_text");
        for part in ["cc@example.com", "Bcc:      spy@evil.example", "Reply-To: spy@evil.example", "invoice.exe", "Pay 9000 euros", "Thank you for your order!"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert_eq!(read["email"]["warnings"].as_array().unwrap().len(), 4, "{read}");
        let decide = |digest: &str| json!({ "as": "release", "rev": read["rev"], "digest": digest });
        world.post(&format!("{path}/resolve"), &decide("of something else")).await.expect_problem(409, "stale_rev");
        assert_eq!(hand_off_and_get_state(&world, &held).await, "held");
        world.post(&format!("{path}/resolve"), &decide(str_field(&read["email"], "digest"))).await.expect_status(200);
        assert_eq!(hand_off_and_get_state(&world, &held).await, "sent");
    }

    async fn a_person_rejects_a_held_email(world) {
        let (email, escalation) = send_held_duplicate(&world).await;
        world.resolve_escalation(&escalation, "reject").await.expect_status(200);
        assert_eq!(hand_off_and_get_state(&world, &email).await, "cancelled");
        assert_eq!(world.hand_off_and_count_sent().await, 1);
    }

    async fn a_person_edits_a_held_email_and_the_edit_is_sent_once(world) {
        let (email, escalation) = send_held_duplicate(&world).await;
        let path = format!("/v1/escalations/{}/resolve", str_field(&escalation, "id"));
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

    async fn a_recorded_decision_is_executed_after_a_crash(world) {
        let (email, escalation) = send_held_duplicate(&world).await;
        let store = world.engine.ctx.store();
        let team = store.teams().await.unwrap()[0].id;
        let record = store.records(team, RecordKind::Escalation, None, 10).await.unwrap().rows.remove(0);
        assert_eq!(record.id.to_string(), str_field(&escalation, "id"));
        let mut stored: Escalation = serde_json::from_str(&record.json).unwrap();
        let by = Some(ApiKeyId(uuid::Uuid::from_u128(1)));
        let edit = Some(EmailEdit { text: Some("Other words".into()), ..EmailEdit::default() });
        let decided = DecisionRecord { decision: Decision::Edit, at: world.engine.ctx.now(), by, person: None, reason: None, edit, shown: None };
        assert!(stored.decide(decided));
        // The process crashes here: the decision is committed and not yet executed.
        let json = serde_json::to_string(&stored).unwrap();
        let changed = store.change_record(record.edit(json), None, world.engine.ctx.now()).await.unwrap();
        assert!(matches!(changed, IdempotentResult::Done(RecordChangeResult::Changed(_))));
        assert_eq!(hand_off_and_get_state(&world, &email).await, "held");
        for _ in 0..3 {
            world.engine.escalations.run_escalation_round().await;
        }
        assert_eq!(hand_off_and_get_state(&world, &email).await, "cancelled");
        let read = world.get(&format!("/v1/escalations/{}", str_field(&escalation, "id"))).await.expect_status(200);
        assert!(read["executed_at"].is_string());
        assert_eq!((world.hand_off_and_count_sent().await, world.email_count().await), (2, 3), "the first email, the held one, and its edited version once");
    }

    async fn an_agent_opens_an_escalation_and_cannot_resolve_it(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let message = world.receive_message(TestMail::default()).await;
        let agent = world.create_api_key(&json!({ "name": "agent", "scopes": ["read", "reply", "send"] })).await;
        let body = json!({ "question": "May I refund 40 EUR?", "message": message["id"] });
        let escalation = world.call(post("/v1/escalations").bearer(&agent).json(&body)).await.expect_status(201);
        let again = world.call(post("/v1/escalations").bearer(&agent).json(&body)).await.expect_status(200);
        assert_eq!(again["id"], escalation["id"]);
        assert_eq!((&escalation["reason"], &escalation["about"]["thread"]), (&json!("asked"), &message["thread_id"]));
        let path = format!("/v1/escalations/{}/resolve", escalation.string_field("id"));
        let release = json!({ "as": "release", "rev": 1, "reason": "yes, once" });
        world.call(post(&path).bearer(&agent).json(&release)).await.expect_problem(403, "wrong_scope");
        world.post(&path, &release).await.expect_status(200);
        let read = world.call(get(&format!("/v1/escalations/{}", escalation.string_field("id"))).bearer(&agent)).await.expect_status(200);
        assert_eq!(read["decision"]["reason"], "yes, once");
        world.post("/v1/escalations", &json!({ "question": " " })).await.expect_problem(422, "invalid_field");
    }

    async fn an_admin_key_without_read_scope_sees_the_result_of_its_changes(world) {
        let (email, escalation) = send_held_duplicate(&world).await;
        let admin = world.create_api_key(&json!({ "name": "person", "scopes": ["admin"] })).await;
        let path = format!("/v1/escalations/{}", str_field(&escalation, "id"));
        world.call(get(&path).bearer(&admin)).await.expect_problem(403, "wrong_scope");
        let release = json!({ "as": "release", "rev": 1 });
        let done = world.call(post(&format!("{path}/resolve")).bearer(&admin).json(&release)).await.expect_status(200);
        assert_eq!((&done["state"], &done["email"]["id"]), (&json!("resolved"), &email["id"]), "{}", done.text);
        let set = json!({ "held_expires_after": "2h" });
        assert_eq!(world.call(patch("/v1/settings").bearer(&admin).json(&set)).await.expect_status(200)["held_expires_after"], "2h");
        let rule = json!({ "name": "r", "actions": [{ "type": "block" }],
            "match": { "conditions": [{ "field": "subject", "operator": "is", "value": "x" }] } });
        let created = world.call(post("/v1/rules").bearer(&admin).json(&rule)).await.expect_status(201);
        let change = patch(&format!("/v1/rules/{}", created.string_field("id"))).bearer(&admin).json(&json!({ "rev": 1, "priority": 7 }));
        assert_eq!(world.call(change).await.expect_status(200)["priority"], 7);
    }

    async fn a_key_tied_to_an_inbox_resolves_only_escalations_of_that_inbox(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let (email, escalation) = send_held_duplicate(&world).await;
        let tied = json!({ "name": "tied", "scopes": ["admin", "read"], "inboxes": ["a@agents.test"] });
        let tied = world.create_api_key(&tied).await;
        let path = format!("/v1/escalations/{}/resolve", str_field(&escalation, "id"));
        world.call(post(&path).bearer(&tied).json(&json!({ "as": "release", "rev": 1 }))).await.expect_problem(404, "not_found");
        assert_eq!(hand_off_and_get_state(&world, &email).await, "held");
    }

    async fn an_agent_key_cannot_release_an_email_held_by_a_cap(world) {
        let world = world.with_inbox_domain().await;
        world.post("/v1/inboxes", &json!({ "username": "a", "caps": { "per_window": 0 } })).await.expect_status(201);
        let message = world.receive_message(TestMail::default()).await;
        let agent = world.create_api_key(&json!({ "name": "agent", "scopes": ["read", "reply", "send"] })).await;
        let body = json!({ "text": "x" });
        let held = world.call(post(&reply_path(&message)).bearer(&agent).json(&body)).await.expect_status(202);
        assert_eq!((&held["guard"], &held["state"]), (&json!("cap"), &json!("held")));
        let escalation = world.escalations("reason=cap").await.remove(0);
        let path = format!("/v1/escalations/{}/resolve", str_field(&escalation, "id"));
        let release = json!({ "as": "release", "rev": escalation["rev"] });
        world.call(post(&path).bearer(&agent).json(&release)).await.expect_problem(403, "wrong_scope");
        assert_eq!(world.hand_off_and_count_sent().await, 0);
        world.resolve_escalation(&escalation, "edit").await.expect_problem(422, "invalid_field");
        world.resolve_escalation(&escalation, "release").await.expect_status(200);
        assert_eq!(world.hand_off_and_count_sent().await, 1);
    }

    async fn an_agent_key_cannot_resend_an_email_that_a_person_rejected(world) {
        let world = world.with_inbox_domain().await;
        world.post("/v1/inboxes", &json!({ "username": "a", "caps": { "per_window": 0 } })).await.expect_status(201);
        let message = world.receive_message(TestMail::default()).await;
        let agent = world.create_api_key(&json!({ "name": "agent", "scopes": ["read", "reply", "send"] })).await;
        let reply = || world.call(post(&reply_path(&message)).bearer(&agent).key("r1").json(&json!({ "text": "x" })));
        let held = reply().await.expect_status(202);
        let escalation = world.escalations("reason=cap").await.remove(0);
        world.resolve_escalation(&escalation, "reject").await.expect_status(200);
        assert!(str_field(&reply().await.expect_status(200).body, "next").contains("unless a person says so"));
        let again = format!("/v1/emails/{}/resend", held.string_field("id"));
        let next = world.call(post(&again).bearer(&agent).json(&json!({}))).await.expect_status(202);
        assert_eq!((&next["state"], &next["guard"]), (&json!("held"), &json!("cap")));
        assert_eq!(world.hand_off_and_count_sent().await, 0);
        let escalation = world.escalations("reason=cap&state=open").await.remove(0);
        assert_eq!(escalation["about"]["email"], next["id"]);
        world.resolve_escalation(&escalation, "release").await.expect_status(200);
        assert_eq!(world.hand_off_and_count_sent().await, 1);
        let once_more = format!("/v1/emails/{}/resend", next.string_field("id"));
        world.call(post(&once_more).bearer(&agent).json(&json!({}))).await.expect_problem(409, "already_answered");
    }

    async fn an_agent_key_cannot_release_a_look_alike_that_a_person_rejected(world) {
        let agent = world.create_api_key(&json!({ "name": "agent", "scopes": ["read", "reply", "send"] })).await;
        let send = |body: &Value| world.call(post("/v1/emails").bearer(&agent).json(body));
        let mut with_token = mail_with(json!({ "text": "Thank you for your order!" }));
        send(&mail()).await.expect_status(202);
        let held = send(&with_token).await.expect_status(202);
        assert!(held["distinct_token"].is_string());
        let escalation = world.escalations("reason=looks_duplicate&state=open").await.remove(0);
        world.resolve_escalation(&escalation, "reject").await.expect_status(200);
        let again = post(&format!("/v1/emails/{}/resend", held.string_field("id"))).bearer(&agent).json(&json!({}));
        let again = world.call(again).await.expect_status(202);
        assert_eq!((&again["state"], &again["guard"]), (&json!("held"), &json!("looks_duplicate")));
        assert!(again.body.get("distinct_token").is_none() && again.string_field("next").contains("a person must decide"), "{}", again.text);
        // The old token does not release it either.
        with_token["distinct_token"] = held["distinct_token"].clone();
        assert_eq!(send(&with_token).await["state"], "cancelled");
        assert_eq!(world.hand_off_and_count_sent().await, 1);
        let escalation = world.escalations("reason=looks_duplicate&state=open").await.remove(0);
        world.resolve_escalation(&escalation, "release").await.expect_status(200);
        assert_eq!(world.hand_off_and_count_sent().await, 2);
    }

    async fn an_edited_email_keeps_its_schedule(world) {
        let rule = json!({ "name": "ask", "direction": "outbound", "actions": [{ "type": "approve" }],
            "match": { "conditions": [{ "field": "subject", "operator": "contains", "value": "Order" }] } });
        world.post("/v1/rules", &rule).await.expect_status(201);
        let due = world.timestamp_in(2 * HOUR);
        let held = world.send("later", &mail_with(json!({ "scheduled_at": due }))).await.expect_status(202);
        assert_eq!((&held["state"], &held["guard"]), (&json!("held"), &json!("approval")));
        let escalation = world.escalations("reason=approval&state=open").await.remove(0);
        let path = format!("/v1/escalations/{}", str_field(&escalation, "id"));
        assert_eq!(world.get(&path).await.expect_status(200)["email"]["scheduled_at"], json!(due));
        let resolve = |edit: Value| json!({ "as": "edit", "rev": escalation["rev"], "edit": edit });
        let empty_edit = resolve(json!({ "subject": "", "text": "" }));
        world.post(&format!("{path}/resolve"), &empty_edit).await.expect_problem(422, "invalid_field");
        let other = resolve(json!({ "subject": "", "text": "At noon." }));
        world.post(&format!("{path}/resolve"), &other).await.expect_status(200);
        assert_eq!(world.hand_off_and_count_sent().await, 0);
        let old = world.email(&held.string_field("id")).await;
        let new = world.email(str_field(&old, "resent_as")).await;
        let edited = (&new["state"], &new["scheduled_at"], &new["subject"], &new["text"]);
        assert_eq!(edited, (&json!("scheduled"), &json!(due), &json!("Order 4821"), &json!("At noon.")));
        // A replay of the original send names the edited version.
        let again = world.send("later", &mail_with(json!({ "scheduled_at": due }))).await.expect_status(200);
        assert_eq!((&again["id"], &again["resent_as"]), (&held["id"], &new["id"]));
        assert!(again.string_field("next").contains("resent_as"), "{}", again.text);
        world.advance_clock(3 * HOUR);
        assert_eq!(world.hand_off_and_count_sent().await, 1);
    }

    async fn the_escalation_of_a_cancelled_email_cannot_be_resolved(world) {
        let other = json!({ "as": "edit", "rev": 1, "edit": { "text": "Other words." } });
        for verdict in [json!({ "as": "release", "rev": 1 }), other] {
            let held = world.send_without_key(&mail_with(json!({ "text": "Thank you for your order!" }))).await.expect_status(202);
            let held = if held["state"] == "held" { held } else { world.send_without_key(&mail()).await.expect_status(202) };
            let escalation = world.escalations("reason=looks_duplicate&state=open").await.remove(0);
            world.post(&format!("/v1/emails/{}/cancel", held.string_field("id")), &json!({})).await.expect_status(200);
            let path = format!("/v1/escalations/{}", str_field(&escalation, "id"));
            let refused = world.post(&format!("{path}/resolve"), &verdict).await.expect_problem(409, "not_open");
            assert_eq!(refused["state"], "moot", "{}", refused.text);
            assert_eq!(world.get(&path).await.expect_status(200)["state"], "moot");
            assert_eq!(world.email(&held.string_field("id")).await["resent_as"], Value::Null);
        }
        assert_eq!(world.hand_off_and_count_sent().await, 1);
    }

    async fn a_person_edits_a_held_resend_on_the_same_day(world) {
        let (email, escalation) = send_held_duplicate(&world).await;
        world.resolve_escalation(&escalation, "reject").await.expect_status(200);
        let agent = world.create_api_key(&json!({ "name": "agent", "scopes": ["read", "reply", "send"] })).await;
        let again = post(&format!("/v1/emails/{}/resend", str_field(&email, "id"))).bearer(&agent).json(&json!({}));
        let again = world.call(again).await.expect_status(202);
        let escalation = world.escalations("reason=looks_duplicate&state=open").await.remove(0);
        assert_eq!(escalation["about"]["email"], again["id"]);
        let other = json!({ "as": "edit", "rev": escalation["rev"], "edit": { "text": "Something else." } });
        world.post(&format!("/v1/escalations/{}/resolve", str_field(&escalation, "id")), &other).await.expect_status(200);
        assert_eq!(world.hand_off_and_count_sent().await, 2);
    }

    async fn a_resend_is_checked_against_the_rules(world) {
        let first = world.send_without_key(&mail()).await.expect_status(202);
        assert_eq!(world.hand_off_and_count_sent().await, 1);
        let rule = json!({
            "name": "stop", "direction": "outbound", "actions": [{ "type": "block" }],
            "match": { "conditions": [{ "field": "subject", "operator": "contains", "value": "Order" }] },
        });
        world.post("/v1/rules", &rule).await.expect_status(201);
        world.post(&format!("/v1/emails/{}/resend", first.string_field("id")), &json!({})).await.expect_problem(422, "blocked_by_rule");
    }

    async fn an_edited_reply_is_the_only_reply_to_its_message(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.post("/v1/inboxes", &json!({ "username": "a", "caps": { "per_window": 0 } })).await.expect_status(201);
        let message = world.receive_message(TestMail::default()).await;
        world.reply(&message, "first").await.expect_status(202);
        let escalation = world.escalations("reason=cap").await.remove(0);
        let caps = json!({ "caps": { "per_window": 9 } });
        world.call(patch(&format!("/v1/inboxes/{}", inbox.string_field("id"))).json(&caps)).await.expect_status(200);
        let path = format!("/v1/escalations/{}/resolve", str_field(&escalation, "id"));
        let edit = json!({ "as": "edit", "rev": escalation["rev"], "edit": { "text": "other words" } });
        let reply = || world.reply(&message, "another");
        let (one, edited, two, three) = tokio::join!(reply(), world.post(&path, &edit), reply(), reply());
        edited.expect_status(200);
        for reply in [one, two, three] {
            assert_eq!(reply.expect_status(200)["guard"], "already_answered");
        }
        assert_eq!(world.hand_off_and_count_sent().await, 1);
        assert!(world.events().await.iter().all(|event| event["type"] != "message.reopened"));
    }

    async fn an_escalation_about_a_cancelled_email_becomes_moot(world) {
        let (email, escalation) = send_held_duplicate(&world).await;
        world.post(&format!("/v1/emails/{}/cancel", str_field(&email, "id")), &json!({})).await.expect_status(200);
        world.engine.escalations.run_escalation_round().await;
        let read = world.get(&format!("/v1/escalations/{}", str_field(&escalation, "id"))).await.expect_status(200);
        assert_eq!((&read["state"], &read["decision"]), (&json!("moot"), &Value::Null));
        world.resolve_escalation(&json!({ "id": escalation["id"], "rev": read["rev"] }), "release").await.expect_problem(409, "not_open");
    }

    async fn a_held_email_expires_after_the_configured_time(world) {
        let set = json!({ "held_expires_after": "2h", "content_guard": { "keyed": "hold" } });
        let settings = world.call(patch("/v1/settings").json(&set)).await.expect_status(200);
        assert_eq!((&settings["held_expires_after"], &settings["content_guard"]["keyed"]), (&json!("2h"), &json!("hold")));
        let (email, escalation) = send_held_duplicate(&world).await;
        assert!(escalation["expires_at"].is_string());
        world.advance_clock(HOUR);
        world.engine.escalations.run_escalation_round().await;
        assert_eq!(hand_off_and_get_state(&world, &email).await, "held");
        world.advance_clock(HOUR + MINUTE);
        world.engine.escalations.run_escalation_round().await;
        let read = world.get(&format!("/v1/escalations/{}", str_field(&escalation, "id"))).await.expect_status(200);
        assert_eq!((&read["state"], &read["decision"]["by"]), (&json!("expired"), &Value::Null));
        assert_eq!(hand_off_and_get_state(&world, &email).await, "cancelled");
        world.advance_clock(DAY);
    }

    async fn an_escalation_is_notified_by_email_once(world) {
        let set = json!({ "escalation_email": { "from": "mailonce@example.com", "to": ["boss@example.com"] } });
        world.call(patch("/v1/settings").json(&set)).await.expect_status(200);
        let wrong = json!({ "escalation_email": { "from": "nobody", "to": ["boss@example.com"] } });
        world.call(patch("/v1/settings").json(&wrong)).await.expect_problem(422, "invalid_field");
        let (_, escalation) = send_held_duplicate(&world).await;
        world.engine.escalations.run_escalation_round().await;
        let notices = world.get("/v1/emails?to=boss@example.com").await.expect_status(200).rows();
        assert_eq!(notices.len(), 1);
        assert_eq!(notices[0]["subject"], "mailonce asks: looks_duplicate");
        let text = world.email(str_field(&notices[0], "id")).await["text"].clone();
        let text = text.as_str().unwrap();
        assert!(text.starts_with("An email is held: it looks like a recently sent email."), "{text}");
        assert!(text.contains("Subject:  Order 4821"), "{text}");
        let answer = format!("mailonce escalations resolve {} --as release", str_field(&escalation, "id"));
        assert!(text.contains(&answer), "{text}");
        assert!(text.contains("--as edit --text \"…\""), "the edit command needs a text: {text}");
        assert_eq!(world.escalations("").await.len(), 1, "the notification email itself opens no escalation");
    }

    async fn an_overlapping_email_opens_one_escalation(world) {
        let to = |all: Value| mail_with(json!({ "to": all, "intent": { "type": "t", "entity": "e" } }));
        world.send_without_key(&to(json!(["a@x.test", "b@x.test"]))).await.expect_status(202);
        let held = world.send_without_key(&to(json!(["b@x.test", "c@x.test"]))).await.expect_status(202);
        assert_eq!(held["guard"], "overlaps");
        for _ in 0..3 {
            world.engine.escalations.run_escalation_round().await;
        }
        let escalations = world.escalations("").await;
        assert_eq!((escalations.len(), &escalations[0]["reason"]), (1, &json!("overlaps")));
        assert_eq!(escalations[0]["about"]["email"], held["id"]);
    }

    async fn an_overlap_escalation_shows_the_earlier_email(world) {
        let to = |all: Value, text: &str| {
            mail_with(json!({ "to": all, "text": text, "intent": { "type": "t", "entity": "e" } }))
        };
        world.send_without_key(&mail_with(json!({ "to": "b@x.test", "intent": { "type": "t", "entity": "another" } }))).await.expect_status(202);
        let first = world.send_without_key(&to(json!(["a@x.test", "b@x.test"]), "Once.")).await.expect_status(202);
        world.send_without_key(&mail_with(json!({ "to": "b@x.test", "intent": { "type": "t", "entity": "later" } }))).await.expect_status(202);
        world.send_without_key(&to(json!(["c@x.test", "b@x.test"]), "Again.")).await.expect_status(202);
        let escalation = world.escalations("reason=overlaps").await.remove(0);
        let read = world.get(&format!("/v1/escalations/{}", str_field(&escalation, "id"))).await.expect_status(200);
        assert_eq!(read["similar_email"]["email"]["id"], first["id"], "{}", read.text);
        assert_eq!(read["similar_email"]["diff"], json!(["  Order 4821", "- Once.", "+ Again."]));
    }

    async fn a_filtered_page_of_escalations_is_filled(world) {
        let question_body = |n: usize| json!({ "question": format!("Question {n}?") });
        for n in 0..40 {
            world.post("/v1/escalations", &question_body(n)).await.expect_status(201);
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

    async fn a_person_resolves_an_unknown_outcome(world) {
        let fixture = TransportFixture::new(world, false).await;
        let world = &fixture.world;
        let id = world.send("k", &mail()).await.expect_status(202).string_field("id");
        let held = fixture.lease_handoff("relay").await;
        fixture.commit_marker(&held).await;
        fixture.crash_holder(&held).await;
        world.engine.escalations.run_escalation_round().await;
        assert!(world.escalations("").await.is_empty(), "no escalation while an automatic check is still planned");
        let (store, now) = (world.engine.ctx.store(), world.engine.ctx.now());
        let team = store.teams().await.unwrap()[0].id;
        let wait = HandoffAction::CheckLater { number: 0, evidence: None, next_check_at: None };
        let _waits = store.apply_action(team, id.parse().unwrap(), wait, None, now).await.unwrap();
        for _ in 0..2 {
            world.engine.escalations.run_escalation_round().await;
        }
        let escalations = world.escalations("").await;
        assert_eq!((escalations.len(), &escalations[0]["reason"], &escalations[0]["state"]), (1, &json!("unknown"), &json!("open")));
        assert_eq!(escalations[0]["allowed_decisions"], json!(["sent", "resend", "abandon"]));
        world.resolve_escalation(&escalations[0], "release").await.expect_problem(422, "invalid_field");
        world.resolve_escalation(&escalations[0], "abandon").await.expect_status(200);
        assert_eq!(world.email(&id).await["state"], "abandoned");
    }

    async fn the_earlier_address_of_a_question_leads_to_the_dashboard(world) {
        let asked = world.post("/v1/escalations", &json!({ "question": "May I?" })).await.expect_status(201).string_field("id");
        let moved = world.call(get(&format!("/approve/{asked}")).anonymous()).await.expect_status(303);
        assert_eq!(moved.header("location"), Some(format!("/needs-you/{asked}").as_str()));
        for id in ["x", "%2F%2Fevil.example", "..%2F..%2Fevil"] {
            world.call(get(&format!("/approve/{id}")).anonymous()).await.expect_problem(404, "not_found");
        }
    }

    async fn a_rule_can_require_approval_by_a_person(world) {
        let rule = |name: &str, field: &str| json!({
            "name": name, "direction": "outbound", "actions": [{ "type": "approve" }],
            "match": { "conditions": [{ "field": field, "operator": "is", "value": "true" }] },
        });
        let created = world.post("/v1/rules", &rule("new people", "recipient.is_new")).await.expect_status(201);
        let first = world.send("1", &mail()).await.expect_status(202);
        assert_eq!((&first["state"], &first["guard"]), (&json!("held"), &json!("approval")));
        assert!(first.body.get("distinct_token").is_none());
        let escalation = world.escalations("reason=approval").await.remove(0);
        assert_eq!(escalation["about"]["rule"], json!({ "id": created["id"], "name": "new people" }));
        for _ in 0..2 {
            world.engine.escalations.run_escalation_round().await;
        }
        assert_eq!(world.escalations("reason=approval").await.len(), 1, "one escalation is opened");
        world.resolve_escalation(&escalation, "release").await.expect_status(200);
        let other = mail_with(json!({ "subject": "Other", "text": "Something else entirely." }));
        world.hand_off_due().await;
        assert_eq!(world.send("2", &other).await.expect_status(202)["state"], "queued", "the recipient is no longer new");
        world.call(delete(&format!("/v1/rules/{}", created.string_field("id")))).await.expect_status(200);
        for (field, mail) in [
            ("has_attachments", mail_with(json!({ "attachments": [{ "content": "AAEC" }] }))),
            ("recipient.is_outside", mail_with(json!({ "to": "x@elsewhere.test" }))),
            ("is_first", mail_with(json!({ "from": "fresh@example.com" }))),
        ] {
            let created = world.post("/v1/rules", &rule(field, field)).await.expect_status(201);
            let held = world.send(field, &mail).await.expect_status(202);
            assert_eq!(held["guard"], "approval", "{field}");
            let plain = mail_with(json!({ "to": "user@example.com", "text": format!("A mail about {field} alone.") }));
            assert_eq!(world.send(&format!("plain {field}"), &plain).await.expect_status(202)["state"], "queued", "{field}");
            world.call(delete(&format!("/v1/rules/{}", created.string_field("id")))).await.expect_status(200);
        }
        let inbound = json!({ "name": "in", "actions": [{ "type": "approve" }],
            "match": { "conditions": [{ "field": "subject", "operator": "is", "value": "x" }] } });
        world.post("/v1/rules", &inbound).await.expect_problem(422, "invalid_field");
    }
}

//! Replies: one for each message, however many agents try and however often.

use serde_json::{Value, json};
use std::sync::Arc;
use tower::ServiceExt as _;

use crate::fixtures::{
    api_fixture::{DAY, MINUTE, World, mail, mail_with},
    conversations::{TestMail, reply_path, str_field},
    requests::{self, TestResponse, delete, get, post},
};

async fn get_email(world: &World, email: &str) -> Value {
    world.get(&format!("/v1/emails/{email}")).await.expect_status(200).body
}

over_every_engine! {
    async fn a_reply_goes_to_reply_to_with_thread_headers(world) {
        let world = world.with_inbox_domain().await;
        world.post("/v1/inboxes", &json!({ "username": "a", "name": "Agent, A" })).await.expect_status(201);
        let head = "Reply-To: Desk <desk@shop.test>\nReferences: <0@shop.test>\n".to_owned();
        let message = world.receive_message(TestMail { subject: "RE: AW: Hello", extra_headers: head, ..TestMail::default() }).await;
        let sent = world.reply(&message, "Fine.").await.expect_status(202);
        assert_eq!((&sent["thread_id"], &sent["fence"]), (&message["thread_id"], &json!(0)));
        let email = get_email(&world, &sent.string_field("id")).await;
        assert_eq!(email["from"], "a@agents.test");
        assert_eq!(email["to"], json!(["desk@shop.test"]));
        assert_eq!(email["subject"], "Re: Hello");
        assert_eq!((&email["reply_to_message"], &email["thread_id"]), (&message["id"], &message["thread_id"]));
        let headers = email["headers"].clone();
        assert_eq!(headers["In-Reply-To"], "<1@shop.test>", "{email}");
        assert_eq!(headers["References"], "<0@shop.test> <1@shop.test>");
    }

    async fn reply_all_goes_to_everyone_except_our_own_addresses(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        world.create_inbox("b").await;
        let raw = "From: ann@shop.test\nTo: A <a@agents.test>, bob@shop.test, b+x@agents.test\n\
            Cc: cyd@shop.test, Ann@shop.test\nMessage-ID: <1@shop.test>\nSubject: Hi\n\nHello\n";
        let message = world.receive_raw_message(raw).await;
        let sent = world.reply_with(&message, json!({ "text": "Hi", "reply_all": true })).await.expect_status(202);
        let email = get_email(&world, &sent.string_field("id")).await;
        assert_eq!((&email["to"], &email["cc"]), (&json!(["ann@shop.test", "bob@shop.test"]), &json!(["cyd@shop.test"])));
    }

    async fn a_quoted_message_does_not_contain_its_code(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let text = "Your verification code is 482913.";
        let message = world.receive_message(TestMail { subject: "Your sign-in code", text, ..TestMail::default() }).await;
        let agent = world.create_api_key(&json!({ "name": "agent", "scopes": ["read", "reply"] })).await;
        let body = json!({ "text": "Thanks.", "html": "<p>Thanks.</p>", "quote": true });
        let sent = world.call(post(&reply_path(&message)).bearer(&agent).json(&body)).await.expect_status(202);
        let email = get_email(&world, &sent.string_field("id")).await;
        let text_body = str_field(&email, "text");
        assert!(text_body.starts_with("Thanks.\n\nOn ") && text_body.contains("\n> Your verification code is "), "{text_body}");
        assert!(!email.to_string().contains("482913"), "{email}");
        assert!(str_field(&email, "html").contains("<blockquote>"));
    }

    async fn fifty_replies_by_8_workers_are_one_mail_and_49_already_answered(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        let raw = TestMail::default().to_raw();
        for _ in 0..50 {
            world.receive_mail(&["a@agents.test"], &raw).await;
        }
        let messages = world.get(&format!("/v1/inboxes/{inbox}/messages")).await.expect_status(200).rows();
        assert_eq!(messages.len(), 1);
        let answers = Arc::new(tokio::sync::Mutex::new(Vec::new()));
        let calls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let mut workers = tokio::task::JoinSet::new();
        for worker in 0..8 {
            let (router, secret, path) = (world.router(), world.secret.clone(), reply_path(&messages[0]));
            let (answers, calls) = (Arc::clone(&answers), Arc::clone(&calls));
            workers.spawn(async move {
                while calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) < 50 {
                    // Each worker words its reply differently.
                    let body = json!({ "text": format!("Answer in the words of worker {worker}") });
                    let request = post(&path).json(&body).build(&secret);
                    let answer = TestResponse::from_response(router.clone().oneshot(request).await.unwrap()).await;
                    answers.lock().await.push(answer);
                }
            });
        }
        while workers.join_next().await.is_some() {}
        let answers = answers.lock().await;
        assert_eq!(answers.len(), 50);
        let firsts: Vec<&TestResponse> = answers.iter().filter(|answer| answer.status == 202).collect();
        assert_eq!(firsts.len(), 1);
        for answer in answers.iter().filter(|answer| answer.status != 202) {
            assert_eq!((answer.status, &answer["guard"]), (200, &json!("already_answered")), "{}", answer.text);
            assert_eq!(answer["id"], firsts[0]["id"]);
            assert!(answer.is_replay() && answer["next"].as_str().unwrap().contains("already answered"));
        }
        assert_eq!(world.hand_off_and_count_sent().await, 1);
        world.engine.outbound.flush_suppressed_calls().await;
        let email = get_email(&world, &firsts[0].string_field("id")).await;
        assert_eq!(email["suppressed"], 49);
        assert_eq!(email["suppressed_calls"][0]["reason"], "already_answered", "{email}");
    }

    async fn the_tool_call_and_the_final_text_of_one_turn_are_one_mail(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let message = world.receive_message(TestMail::default()).await;
        let tool = world.reply(&message, "I have booked the table for eight.").await.expect_status(202);
        // The framework also sends the model's final text, under its own key.
        let body = json!({ "text": "Done! Your table is booked." });
        let last = world.call(post(&reply_path(&message)).key("turn-1").json(&body)).await.expect_status(200);
        assert_eq!((&last["guard"], &last["id"]), (&json!("already_answered"), &tool["id"]));
        assert_eq!(world.hand_off_and_count_sent().await, 1);
        let read = world.get(&format!("/v1/messages/{}", str_field(&message, "id"))).await.expect_status(200);
        assert_eq!((&read["state"], &read["replies"]), (&json!("answered"), &json!([tool["id"]])));
    }

    async fn a_follow_up_is_sent_once(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let message = world.receive_message(TestMail::default()).await;
        let first = world.reply(&message, "One").await.expect_status(202);
        let body = |text: &str| json!({ "text": text, "follow_up": 1 });
        let second = world.reply_with(&message, body("And another thing")).await.expect_status(202);
        assert_ne!(first["id"], second["id"]);
        let again = world.reply_with(&message, body("And yet another")).await.expect_status(200);
        assert_eq!((&again["id"], &again["guard"]), (&second["id"], &json!("already_answered")));
        assert_eq!(world.hand_off_and_count_sent().await, 2);
    }

    async fn a_message_can_be_answered_again_after_its_reply_was_cancelled(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let message = world.receive_message(TestMail::default()).await;
        let first = world.reply(&message, "Wrong").await.expect_status(202).string_field("id");
        world.post(&format!("/v1/emails/{first}/cancel"), &json!({})).await.expect_status(200);
        let second = world.reply(&message, "Right").await.expect_status(202);
        assert_ne!(second["id"], json!(first));
        assert_eq!(world.hand_off_and_count_sent().await, 1);
    }

    async fn a_key_is_looked_up_before_any_guard(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let message = world.receive_message(TestMail::default()).await;
        let body = json!({ "text": "Fine" });
        let call = || world.call(post(&reply_path(&message)).key("k").json(&body));
        let first = call().await.expect_status(202);
        let again = call().await.expect_status(200);
        assert_eq!((&again["id"], again.body.get("guard")), (&first["id"], None));
        let other = json!({ "text": "Other" });
        world.call(post(&reply_path(&message)).key("k").json(&other)).await.expect_problem(422, "key_mismatch");
        world.send("k", &mail()).await.expect_problem(422, "key_mismatch");
    }

    async fn a_reply_is_refused_until_newer_messages_are_listed_as_seen(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let old = world.receive_message(TestMail::default()).await;
        let head = "In-Reply-To: <1@shop.test>\n".to_owned();
        let new = world.receive_message(TestMail { id: "2", extra_headers: head, text: "Forget it!", ..TestMail::default() }).await;
        assert_eq!(old["thread_id"], new["thread_id"]);
        let refused = world.reply(&old, "Sure").await.expect_problem(409, "newer_message");
        assert_eq!((&refused["message"], &refused["guard"]), (&new["id"], &json!("newer_message")));
        assert_eq!(world.hand_off_and_count_sent().await, 0);
        let seen = json!({ "text": "Never mind", "seen": [new["id"]] });
        world.reply_with(&old, seen).await.expect_status(202);
        world.reply(&new, "All right").await.expect_status(202);
        assert_eq!(world.hand_off_and_count_sent().await, 2);
    }

    async fn the_fourth_reply_within_minutes_is_held_with_an_escalation(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let message = world.receive_message(TestMail::default()).await;
        for n in 0..3 {
            world.reply_with(&message, json!({ "text": format!("{n}"), "follow_up": n })).await.expect_status(202);
        }
        let held = world.reply_with(&message, json!({ "text": "more", "follow_up": 3 })).await.expect_status(202);
        assert_eq!((&held["state"], &held["guard"]), (&json!("held"), &json!("cap")));
        assert!(held.body.get("distinct_token").is_none(), "an agent must not be able to release it: {}", held.text);
        let escalations = world.escalations("reason=cap").await;
        assert_eq!(escalations.len(), 1);
        assert_eq!(escalations[0]["about"]["email"], held["id"]);
        assert_eq!(escalations[0]["allowed_decisions"], json!(["release", "edit", "reject"]));
        let thread = world.get(&format!("/v1/threads/{}", str_field(&message, "thread_id"))).await.expect_status(200);
        assert_eq!((&thread["replies"]["in_window"], &thread["replies"]["caps"]["per_window"]), (&json!(3), &json!(3)));
        world.advance_clock(6 * MINUTE);
        world.reply_with(&message, json!({ "text": "later", "follow_up": 4 })).await.expect_status(202);
        assert_eq!(world.hand_off_and_count_sent().await, 4);
    }

    async fn each_inbox_has_its_own_caps(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        let patch = json!({ "caps": { "per_window": 1 } });
        let path = format!("/v1/inboxes/{inbox}");
        let changed = world.call(requests::patch(&path).json(&patch)).await.expect_status(200);
        assert_eq!((&changed["caps"]["per_window"], &changed["caps"]["per_thread_per_day"]), (&json!(1), &json!(20)));
        let wrong = json!({ "caps": { "per_thread_per_day": 100_000 } });
        world.call(requests::patch(&path).json(&wrong)).await.expect_problem(422, "invalid_field");
        let message = world.receive_message(TestMail::default()).await;
        world.reply(&message, "one").await.expect_status(202);
        let held = world.reply_with(&message, json!({ "text": "two", "follow_up": 1 })).await.expect_status(202);
        assert_eq!(held["state"], "held");
    }

    async fn changing_one_cap_keeps_the_others(world) {
        let world = world.with_inbox_domain().await;
        let path = format!("/v1/inboxes/{}", world.create_inbox("a").await);
        let mut seen = Vec::new();
        for caps in [
            json!({ "per_window": 2, "window_s": 60, "per_thread_total": 9 }),
            json!({ "per_thread_per_day": 5 }),
            json!({ "per_thread_total": null, "per_recipient_per_day": 7 }),
            json!(null),
        ] {
            let changed = world.call(requests::patch(&path).json(&json!({ "caps": caps }))).await.expect_status(200);
            seen.push(changed["caps"].clone());
        }
        assert_eq!(seen, [
            json!({ "per_window": 2, "window_s": 60, "per_thread_per_day": 20, "per_recipient_per_day": 20, "per_thread_total": 9 }),
            json!({ "per_window": 2, "window_s": 60, "per_thread_per_day": 5, "per_recipient_per_day": 20, "per_thread_total": 9 }),
            json!({ "per_window": 2, "window_s": 60, "per_thread_per_day": 5, "per_recipient_per_day": 7 }),
            json!({ "per_window": 3, "window_s": 300, "per_thread_per_day": 20, "per_recipient_per_day": 20 }),
        ]);
    }

    async fn an_inbox_can_cap_the_total_replies_of_a_thread(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        let patch = json!({ "caps": { "per_thread_total": 2 } });
        world.call(requests::patch(&format!("/v1/inboxes/{inbox}")).json(&patch)).await.expect_status(200);
        let message = world.receive_message(TestMail::default()).await;
        for n in 0..2 {
            let answer = world.reply_with(&message, json!({ "text": format!("Part {n}"), "follow_up": n })).await.expect_status(202);
            assert_ne!(answer["state"], "held");
            world.advance_clock(2 * DAY);
        }
        let held = world.reply_with(&message, json!({ "text": "The rest", "follow_up": 2 })).await.expect_status(202);
        assert_eq!((&held["state"], &held["guard"]), (&json!("held"), &json!("cap")));
        let thread = world.get(&format!("/v1/threads/{}", str_field(&message, "thread_id"))).await.expect_status(200);
        let replies = &thread["replies"];
        assert_eq!((&replies["last_24h"], &replies["total"]), (&json!(0), &json!(2)), "{}", thread.text);
        assert_eq!(replies["caps"]["per_thread_total"], 2);
    }

    async fn a_message_whose_reply_was_rejected_is_offered_again(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        let patch = json!({ "caps": { "per_recipient_per_day": 1 } });
        world.call(requests::patch(&format!("/v1/inboxes/{inbox}")).json(&patch)).await.expect_status(200);
        let first = world.receive_message(TestMail::default()).await;
        world.reply(&first, "one").await.expect_status(202);
        let message = world.receive_message(TestMail { id: "2", ..TestMail::default() }).await;
        let held = world.reply(&message, "two").await.expect_status(202);
        assert_eq!((&held["state"], &held["guard"]), (&json!("held"), &json!("cap")));
        let again = world.reply(&message, "two").await.expect_status(200);
        assert!(str_field(&again.body, "next").contains("held until a person decides"), "{}", again.text);
        let next = async || world.post("/v1/inboxes/a@agents.test/next", &json!({})).await.expect_status(200).rows();
        assert_eq!(next().await, Vec::<Value>::new());
        let escalation = world.escalations("reason=cap").await.remove(0);
        world.resolve_escalation(&escalation, "reject").await.expect_status(200);
        let offered = next().await;
        assert_eq!(offered.len(), 1);
        assert_eq!(offered[0]["message"]["id"], message["id"]);
        let events: Vec<Value> = world.events().await;
        assert_eq!(events.iter().filter(|event| event["type"] == "message.reopened").count(), 1);
    }

    async fn a_message_is_forwarded_once_to_the_same_recipients(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let head = "Content-Type: multipart/mixed; boundary=b\n".to_owned();
        let text = "--b\nContent-Type: text/plain\n\nSee the file.\n--b\nContent-Type: text/csv\n\
            Content-Disposition: attachment; filename=x.csv\n\n1,2\n--b--\n";
        let message = world.receive_message(TestMail { extra_headers: head, text, ..TestMail::default() }).await;
        let path = format!("/v1/messages/{}/forward", str_field(&message, "id"));
        let first = world.post(&path, &json!({ "to": "boss@shop.test", "text": "For you" })).await.expect_status(202);
        let again = world.post(&path, &json!({ "to": ["Boss@shop.test"], "text": "In other words" })).await.expect_status(200);
        assert_eq!((&again["id"], &again["guard"]), (&first["id"], &json!("already_answered")));
        let other = world.post(&path, &json!({ "to": "team@shop.test" })).await.expect_status(202);
        assert_ne!(other["id"], first["id"]);
        let copied = json!({ "to": "boss@shop.test", "cc": "desk@shop.test" });
        let copied = world.post(&path, &copied).await.expect_status(202);
        assert_ne!(copied["id"], first["id"], "an additional cc recipient makes another forward");
        let swapped = json!({ "to": "desk@shop.test", "cc": "boss@shop.test" });
        assert_eq!(world.post(&path, &swapped).await.expect_status(200)["id"], copied["id"], "swapping to and cc is the same set of recipients");
        let email = get_email(&world, &first.string_field("id")).await;
        assert_eq!(email["subject"], "Fwd: Hello");
        let text_body = str_field(&email, "text");
        assert!(text_body.starts_with("For you\n\n---------- Forwarded message") && text_body.contains("See the file."), "{text_body}");
        assert_eq!(email["attachments"][0]["filename"], "x.csv", "{email}");
        // A forward does not count as a reply.
        assert_eq!(world.get(&format!("/v1/messages/{}", str_field(&message, "id"))).await["state"], "unanswered");
        world.reply(&message, "Passed on").await.expect_status(202);
    }

    async fn a_thread_shows_both_directions_in_order(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let first = world.receive_message(TestMail::default()).await;
        world.advance_clock(MINUTE);
        let sent = world.reply(&first, "Fine").await.expect_status(202);
        world.advance_clock(MINUTE);
        // A mail program that sets only In-Reply-To.
        let head = format!("In-Reply-To: {}\n", sent.string_field("message_id"));
        let second = world.receive_message(TestMail { id: "2", extra_headers: head, text: "Good", ..TestMail::default() }).await;
        assert_eq!(second["thread_id"], first["thread_id"]);
        let thread = world.get(&format!("/v1/threads/{}", str_field(&first, "thread_id"))).await.expect_status(200);
        let entries = thread["entries"].as_array().unwrap();
        let kinds: Vec<&str> = entries.iter().map(|entry| str_field(entry, "type")).collect();
        assert_eq!(kinds, ["message", "email", "message"], "{}", thread.text);
        assert_eq!((&entries[1]["email"]["id"], &entries[2]["message"]["id"]), (&sent["id"], &second["id"]));
        assert_eq!((&thread["message_count"], &thread["email_count"]), (&json!(2), &json!(1)));
        let path = format!("/v1/threads/{}", str_field(&first, "thread_id"));
        let patch = json!({ "labels": ["vip", "vip"], "handled": true });
        let changed = world.call(requests::patch(&path).json(&patch)).await.expect_status(200);
        assert!(changed["labels"] == json!(["vip"]) && changed["handled_at"].is_string());
        assert_eq!(world.get("/v1/threads?label=vip&handled=true").await.expect_status(200).rows().len(), 1);
        assert_eq!(world.get("/v1/threads?handled=false").await.expect_status(200).rows().len(), 0);
        world.get("/v1/threads?handled=perhaps").await.expect_problem(400, "invalid_query");
    }

    async fn a_thread_started_by_our_email_counts_that_email(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let sent = world.send_without_key(&mail_with(json!({ "from": "a@agents.test", "to": "ann@shop.test" }))).await.expect_status(202);
        world.advance_clock(MINUTE);
        let head = format!("In-Reply-To: {}\n", sent.string_field("message_id"));
        let message = world.receive_message(TestMail { extra_headers: head, ..TestMail::default() }).await;
        let thread = world.get(&format!("/v1/threads/{}", str_field(&message, "thread_id"))).await.expect_status(200);
        assert_eq!((&thread["message_count"], &thread["email_count"]), (&json!(1), &json!(1)), "{}", thread.text);
        assert_eq!(thread["entries"][0]["email"]["id"], sent["id"]);
    }

    async fn mail_without_a_usable_reply_address_is_not_offered(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        world.create_inbox("b").await;
        let heads = ["", "From: bob@\n", "From: Bob\n", "From: bob@shop.test\nReply-To: B@agents.test\nTo: a@agents.test\n",
            "From: bob@shop.test\nReply-To: nobody@\n"];
        for (at, head) in heads.iter().enumerate() {
            let message = world.receive_raw_message(&format!("{head}Subject: Hello\nMessage-ID: <{at}@shop.test>\n\nFrom nobody.\n")).await;
            assert_eq!(message["state"], "skipped", "{head}");
            assert_eq!(world.reply(&message, "Hello?").await.status, 422, "{head}");
        }
        let offered = world.post(&format!("/v1/inboxes/{inbox}/next"), &json!({})).await.expect_status(200);
        assert_eq!(offered.rows().len(), 0, "{}", offered.text);
        // With another recipient, a reply to all is possible.
        let raw = "From: bob@\nTo: a@agents.test\nCc: cyd@shop.test\nMessage-ID: <c@shop.test>\nSubject: Hi\n\nHello\n";
        let message = world.receive_raw_message(raw).await;
        assert_eq!(message["state"], "unanswered");
        world.reply(&message, "Hello?").await.expect_problem(422, "invalid_field").expect_field("message");
        let sent = world.reply_with(&message, json!({ "text": "Hi", "reply_all": true })).await.expect_status(202).string_field("id");
        assert_eq!(get_email(&world, &sent).await["to"], json!(["cyd@shop.test"]));
    }

    async fn a_refusal_because_of_a_cc_recipient_suggests_a_reply_without_reply_all(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let head = "Cc: gone@shop.test, foe@rival.test\n".to_owned();
        let message = world.receive_message(TestMail { extra_headers: head, ..TestMail::default() }).await;
        let to_all = json!({ "text": "Hi", "reply_all": true });
        let next_of = async |code: &str, recipient: &str| {
            let refused = world.reply_with(&message, to_all.clone()).await.expect_problem(422, code);
            assert_eq!(refused["recipient"], recipient, "{}", refused.text);
            refused.string_field("next")
        };
        world.post("/v1/suppressions", &json!({ "address": "gone@shop.test" })).await.expect_status(201);
        let next = next_of("recipient_suppressed", "gone@shop.test").await;
        assert!(next.contains("without `reply_all`") && next.contains("/v1/suppressions") && !next.contains("field"), "{next}");
        world.call(delete("/v1/suppressions/gone@shop.test")).await.expect_status(200);
        world.post("/v1/lists/send/block", &json!({ "entry": "rival.test" })).await.expect_status(201);
        let next = next_of("blocked_by_rule", "foe@rival.test").await;
        assert!(next.contains("without `reply_all`") && next.contains("list"), "{next}");
        // The sender is always a recipient, so leaving out `reply_all` would not help.
        world.post("/v1/suppressions", &json!({ "address": "ann@shop.test" })).await.expect_status(201);
        let next = next_of("recipient_suppressed", "ann@shop.test").await;
        assert!(!next.contains("reply_all"), "{next}");
        world.call(delete("/v1/suppressions/ann@shop.test")).await.expect_status(200);
        world.reply(&message, "Hi").await.expect_status(202);
    }

    async fn a_reply_to_too_many_recipients_is_refused_with_their_number(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let people = |from: usize, to: usize| {
            let all: Vec<String> = (from..to).map(|n| format!("p{n}@shop.test")).collect();
            all.join(", ")
        };
        let to = |list: String| format!("To: a@agents.test,\n {list}\n");
        let raw = |id: &str, head: String| format!("From: ann@shop.test\n{head}Message-ID: <{id}@shop.test>\nSubject: Hi\n\nHi\n");
        let message = world.receive_raw_message(&raw("1", to(people(0, 70)) + &format!("Cc: {}\n", people(65, 119)))).await;
        let to_all = json!({ "text": "Hi", "reply_all": true });
        let refused = world.reply_with(&message, to_all.clone()).await.expect_problem(422, "invalid_field").expect_field("reply_all");
        // Everyone in To and Cc once, including the inbox, plus the sender.
        assert!(refused.string_field("detail").contains("names 121 people"), "{}", refused.text);
        world.reply(&message, "Only to you").await.expect_status(202);
        // A reply to all never leaves out recipients, even when the message view shows only some.
        let message = world.receive_raw_message(&raw("2", to(people(0, 52)))).await;
        world.reply_with(&message, to_all.clone()).await.expect_problem(422, "invalid_field").expect_field("reply_all");
        let message = world.receive_raw_message(&raw("3", to(people(0, 49)))).await;
        let sent = world.reply_with(&message, to_all).await.expect_status(202).string_field("id");
        assert_eq!(get_email(&world, &sent).await["to"].as_array().unwrap().len(), 50);
    }

    async fn a_reply_needs_the_scope_and_the_inbox(world) {
        let world = world.with_inbox_domain().await;
        let (a, _) = (world.create_inbox("a").await, world.create_inbox("b").await);
        let message = world.receive_message(TestMail::default()).await;
        let reader = world.create_api_key(&json!({ "name": "r", "scopes": ["read", "send"] })).await;
        let body = json!({ "text": "x" });
        let reply = |secret: &str| world.call(post(&reply_path(&message)).bearer(secret).json(&body));
        reply(&reader).await.expect_problem(403, "wrong_scope");
        let key_body = |inbox: &str| json!({ "name": "t", "scopes": ["read", "reply"], "inboxes": [inbox] });
        let other = world.create_api_key(&key_body("b@agents.test")).await;
        reply(&other).await.expect_problem(404, "not_found");
        let thread = format!("/v1/threads/{}", str_field(&message, "thread_id"));
        world.call(get(&thread).bearer(&other)).await.expect_problem(404, "not_found");
        assert!(world.call(get("/v1/threads").bearer(&other)).await.expect_status(200).rows().is_empty());
        let own = world.create_api_key(&key_body(&a)).await;
        reply(&own).await.expect_status(202);
    }

    async fn mark_auto_submitted_adds_the_auto_submitted_header(world) {
        let world = world.with_inbox_domain().await;
        world.post("/v1/inboxes", &json!({ "username": "a", "mark_auto_submitted": true })).await.expect_status(201);
        let message = world.receive_message(TestMail::default()).await;
        let sent = world.reply(&message, "Fine").await.expect_status(202).string_field("id");
        let email = get_email(&world, &sent).await;
        assert_eq!(email["headers"]["Auto-Submitted"], "auto-replied", "{email}");
    }
}

//! The loop guard: our own agents, automatic mail and mailing lists are not answered, and an escalation is opened.

use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

use crate::fixtures::{
    api_fixture::{MINUTE, mail_with},
    conversations::{TestMail, str_field},
    engine_deps::TransportFixture,
    requests::{delete, patch, post},
};

/// One of our own mails that comes back with rewritten headers.
fn looped_back_mail(email: &Value, to: &str) -> String {
    format!(
        "From: {}\nTo: {to}\nMessage-ID: {}\nSubject: {}\nIn-Reply-To: <x@y>\n\nHello\n",
        str_field(email, "from"),
        str_field(email, "message_id"),
        str_field(email, "subject")
    )
}

over_every_engine! {
    async fn two_agents_of_one_team_do_not_answer_each_other(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        world.create_inbox("b").await;
        let raw = "From: Agent B <b+sales@agents.test>\nTo: a@agents.test\nMessage-ID: <1@x>\nSubject: Hi\n\nHello\n";
        let message = world.receive_raw_message(raw).await;
        assert_eq!((&message["own_reason"], &message["state"]), (&json!("address"), &json!("skipped")));
        let refused = world.reply(&message, "Hello back").await.expect_problem(422, "self");
        assert_eq!((&refused["reason"], &refused["guard"]), (&json!("address"), &json!("self")));
        world.reply(&message, "Hello once more").await.expect_problem(422, "self");
        let escalations = world.escalations("reason=loop").await;
        assert_eq!((escalations.len(), &escalations[0]["about"]["thread"]), (1, &message["thread_id"]));
        assert_eq!(world.hand_off_and_count_sent().await, 0);
        let next = world.post("/v1/inboxes/a@agents.test/next", &json!({})).await.expect_status(200);
        assert!(next.rows().is_empty(), "it is not offered to agents either");
    }

    async fn our_own_mail_is_recognized_by_its_message_id(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let mail = mail_with(json!({ "from": "news@example.com", "to": ["a@agents.test"] }));
        let sent = world.send("k", &mail).await.expect_status(202).string_field("id");
        let email = world.email(&sent).await;
        let message = world.receive_raw_message(&looped_back_mail(&email, "a@agents.test")).await;
        assert_eq!(message["own_reason"], "message_id");
        world.reply(&message, "x").await.expect_problem(422, "self");
        // Without our Message-ID the mail is not treated as our own.
        let raw = "From: news@example.com\nTo: a@agents.test\nMessage-ID: <other@x>\nSubject: Hi\n\nHello\n";
        assert_eq!(world.receive_raw_message(raw).await["own_reason"], Value::Null);
    }

    async fn our_own_mail_is_recognized_when_a_list_sends_it_back(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let mail = |n: usize| {
            let (from, to) = ("a@agents.test", "list@lists.test");
            mail_with(json!({ "from": from, "to": [to], "subject": format!("Note {n}"), "text": format!("Words {n}") }))
        };
        let sent = world.send("k", &mail(0)).await.expect_status(202).string_field("message_id");
        // Recognition does not depend on how many mails were sent since then.
        for n in 1..=120 {
            world.send(&format!("k{n}"), &mail(n)).await.expect_status(202);
        }
        let looped_back = |id: &str, text: &str| {
            let head = "From: list@lists.test\nTo: members@lists.test";
            format!("{head}\nMessage-ID: {id}\nSubject: [list] Note\n\n{text}\n")
        };
        let message = world.receive_raw_message(&looped_back(&sent, "Words 0, and a footer")).await;
        assert_eq!((&message["own_reason"], &message["state"]), (&json!("message_id"), &json!("skipped")), "{message}");
        world.reply(&message, "x").await.expect_problem(422, "self");
        // A forged Message-ID and one of another team are not treated as our own.
        let other_team = world.create_team("strangers").await;
        let theirs = mail_with(json!({ "to": ["list@lists.test"] }));
        let theirs = world.call(post("/v1/emails").bearer(&other_team).key("k").json(&theirs)).await.expect_status(202).string_field("message_id");
        let forged = format!("<{}@agents.test>", "a".repeat(28));
        for id in [&theirs, &forged] {
            let message = world.receive_raw_message(&looped_back(id, id)).await;
            assert_eq!((&message["own_reason"], &message["state"]), (&Value::Null, &json!("unanswered")), "{id}");
        }
    }

    async fn a_reply_is_never_sent_to_our_own_addresses(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        world.create_inbox("b").await;
        let mail_with_header = |at: usize, head: &str| {
            let (id, head) = (format!("s{at}"), format!("{head}\n"));
            TestMail { id: &id, extra_headers: head, ..TestMail::default() }.to_raw()
        };
        for (at, ours) in ["b@agents.test", "A+x@agents.test", "BOB <B+1@Agents.Test>, a@agents.test"].iter().enumerate() {
            let message = world.receive_raw_message(&mail_with_header(at, &format!("Reply-To: {ours}"))).await;
            assert_eq!(message["own_reason"], Value::Null, "the sender is not one of us");
            for all in [false, true] {
                let answer = world.reply_with(&message, json!({ "text": "Hi", "reply_all": all })).await;
                let refused = answer.expect_problem(422, "self");
                assert_eq!((&refused["reason"], &refused["guard"]), (&json!("recipients"), &json!("self")));
            }
            assert_eq!(message["state"], "skipped", "it cannot be answered");
        }
        assert_eq!((world.hand_off_and_count_sent().await, world.escalations("reason=loop").await.len()), (0, 3));
        // Other recipients still get the reply.
        let message = world.receive_raw_message(&mail_with_header(8, "Reply-To: b+x@agents.test, Eve <eve@shop.test>")).await;
        let sent = world.reply(&message, "Only Eve").await.expect_status(202).string_field("id");
        assert_eq!(world.email(&sent).await["to"], json!(["eve@shop.test"]));
        let message = world.receive_raw_message(&mail_with_header(9, "Reply-To: b@agents.test\nCc: zoe@shop.test, B+2@agents.test")).await;
        assert_eq!(message["state"], "unanswered");
        let sent = world.reply_with(&message, json!({ "text": "Only Zoe", "reply_all": true })).await.expect_status(202).string_field("id");
        let email = world.email(&sent).await;
        assert_eq!((&email["to"], &email["cc"]), (&json!(["zoe@shop.test"]), &Value::Null));
    }

    async fn a_former_address_still_counts_as_our_own(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let (moved, removed) = (world.create_inbox("b").await, world.create_inbox("c").await);
        let other_team = world.create_team("strangers").await;
        let theirs = world.call(post("/v1/inboxes").bearer(&other_team).json(&json!({ "username": "z" }))).await.expect_status(201).string_field("id");
        world.post(&format!("/v1/inboxes/{moved}/rotate"), &json!({})).await.expect_status(200);
        world.call(delete(&format!("/v1/inboxes/{removed}"))).await.expect_status(200);
        world.call(delete(&format!("/v1/inboxes/{theirs}")).bearer(&other_team)).await.expect_status(200);
        for (from, own) in [("b+x@agents.test", json!("address")), ("C@agents.test", json!("address")), ("z@agents.test", Value::Null)] {
            let message = world.receive_message(TestMail { from, id: from.split('@').next().unwrap(), ..TestMail::default() }).await;
            assert_eq!(message["own_reason"], own, "{from}");
        }
    }

    async fn a_calendar_reply_is_automatic(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let raw = |id: &str, method: &str| {
            let parts = format!("--b\nContent-Type: text/plain\n\nAnn has accepted\n--b\nContent-Type: text/calendar; charset=utf-8; method={method}\n\nBEGIN:VCALENDAR\n--b--");
            let head = "Content-Type: multipart/alternative; boundary=b\n".to_owned();
            TestMail { id, subject: "Accepted: Lunch", extra_headers: head, text: &parts, ..TestMail::default() }.to_raw()
        };
        let message = world.receive_raw_message(&raw("c1", "REPLY")).await;
        assert_eq!(message["automatic"], json!({ "reason": "calendar_reply", "overridable": true }));
        world.reply(&message, "Fine").await.expect_problem(422, "automatic");
        let message = world.receive_raw_message(&raw("c2", "REQUEST")).await;
        assert_eq!(message["automatic"], Value::Null, "an invitation may be answered");
    }

    async fn a_reply_carries_thread_headers_and_a_loop_mark_that_is_recognized(world) {
        let mut fixture = TransportFixture::new(world, false).await;
        let inbox_body = json!({ "address": "a@agents.test", "mark_auto_submitted": true });
        fixture.world.post("/v1/inboxes", &inbox_body).await.expect_status(201);
        let head = "References: <0@shop.test>\n".to_owned();
        let message = fixture.world.receive_message(TestMail { extra_headers: head, ..TestMail::default() }).await;
        fixture.world.reply(&message, "Fine").await.expect_status(202);
        let (stop, stopped) = watch::channel(false);
        let working = tokio::spawn(Arc::clone(&fixture.world.engine.handoffs).run_handoff(stopped));
        let bytes = tokio::time::timeout(Duration::from_secs(20), fixture.frozen_bytes.recv()).await.unwrap().unwrap();
        stop.send_replace(true);
        working.await.unwrap();
        let mail = String::from_utf8(bytes).unwrap().replace("\r\n", "\n");
        for line in ["In-Reply-To: <1@shop.test>", "References: <0@shop.test> <1@shop.test>", "Auto-Submitted: auto-replied"] {
            assert_eq!(mail.matches(line).count(), 1, "{line} in {mail}");
        }
        // A mailing list sends it back with a new sender and Message-ID.
        let looped_back = |mark: bool| {
            let rewritten = mail.lines().map(|line| match line.split_once(": ") {
                Some(("From", _)) => "From: list@lists.test".to_owned(),
                Some(("Message-ID", _)) => format!("Message-ID: <{mark}@lists.test>"),
                Some(("X-Mailonce-Loop", _)) if !mark => "X-Mailonce-Loop: 00000000000000000000000000000000".to_owned(),
                Some(("Auto-Submitted", _)) => "X-Was: automatic".to_owned(),
                _ => line.to_owned(),
            });
            rewritten.collect::<Vec<_>>().join("\n")
        };
        let own = fixture.world.receive_raw_message(&looped_back(true)).await;
        assert_eq!(own["own_reason"], "loop_mark", "{own}");
        fixture.world.reply(&own, "x").await.expect_problem(422, "self");
        assert_eq!(fixture.world.receive_raw_message(&looped_back(false)).await["own_reason"], Value::Null);
    }

    async fn mail_from_another_teams_inbox_is_answered(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let other_team = world.create_team("strangers").await;
        world.call(post("/v1/inboxes").bearer(&other_team).json(&json!({ "username": "z" }))).await.expect_status(201);
        let raw = "From: z@agents.test\nTo: a@agents.test\nMessage-ID: <1@x>\nSubject: Hi\n\nHello\n";
        let message = world.receive_raw_message(raw).await;
        assert_eq!((&message["own_reason"], &message["state"]), (&Value::Null, &json!("unanswered")));
        world.reply(&message, "Hello").await.expect_status(202);
    }

    async fn an_out_of_office_reply_is_not_answered(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let head = "Auto-Submitted: auto-replied\n".to_owned();
        let message = world.receive_message(TestMail { extra_headers: head, subject: "I am away", ..TestMail::default() }).await;
        assert_eq!(message["state"], "skipped");
        let refused = world.reply(&message, "x").await.expect_problem(422, "automatic");
        assert_eq!((&refused["reason"], &refused["overridable"]), (&json!("auto_submitted"), &json!(false)));
        assert_eq!(world.escalations("reason=loop&state=open").await.len(), 1);
        assert_eq!(world.hand_off_and_count_sent().await, 0);
    }

    async fn an_undetectable_robot_is_stopped_by_the_reply_cap(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let (mut ids, mut answered, mut held) = (Vec::<String>::new(), 0, None);
        for round in 0..6 {
            let head = match ids.last() {
                Some(last) => format!("In-Reply-To: {last}\n"),
                None => String::new(),
            };
            let (from, id, subject) =
                (format!("robot-{round}@shop.test"), format!("r{round}"), format!("Ticket [#{round}] changed"));
            let robot_mail = TestMail { from: &from, id: &id, subject: &subject, extra_headers: head, text: "We got your mail." };
            let message = world.receive_message(robot_mail).await;
            let answer = world.reply(&message, "Thank you").await.expect_status(202);
            if answer["state"] == "held" {
                assert_eq!(answer["guard"], "cap");
                held = Some(answer);
                break;
            }
            answered += 1;
            ids.push(answer.string_field("message_id"));
            world.advance_clock(MINUTE / 2);
        }
        assert!(held.is_some(), "the loop was not stopped after {answered} replies");
        assert_eq!((answered, world.hand_off_and_count_sent().await), (3, 3));
        assert_eq!(world.escalations("reason=cap&state=open").await.len(), 1);
    }

    async fn a_mailing_list_is_answered_only_when_the_inbox_allows_it(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        let head = || "List-Id: <dev.shop.test>\nPrecedence: list\n".to_owned();
        let message = world.receive_message(TestMail { extra_headers: head(), ..TestMail::default() }).await;
        let refused = world.reply(&message, "x").await.expect_problem(422, "automatic");
        assert_eq!((&refused["reason"], &refused["overridable"]), (&json!("list"), &json!(true)));
        assert_eq!(world.escalations("reason=loop").await.len(), 1);
        let allow_automatic = json!({ "reply_to_likely_automatic": true });
        world.call(patch(&format!("/v1/inboxes/{inbox}")).json(&allow_automatic)).await.expect_status(200);
        world.reply(&message, "Dear list").await.expect_status(202);
        let later = world.receive_message(TestMail { id: "2", extra_headers: head(), ..TestMail::default() }).await;
        assert_eq!(later["state"], "unanswered", "it is now offered to agents");
        let hard = world.receive_message(TestMail { id: "3", extra_headers: "Auto-Submitted: auto-replied\n".into(), ..TestMail::default() }).await;
        world.reply(&hard, "x").await.expect_problem(422, "automatic");
    }

    async fn published_examples_of_automatic_mail_are_recognized(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        for (at, (head, subject, automatic)) in AUTOMATIC_MAIL_EXAMPLES.iter().enumerate() {
            let (id, head) = (format!("e{at}"), format!("{head}\n"));
            let message = world.receive_message(TestMail { id: &id, subject, extra_headers: head, ..TestMail::default() }).await;
            assert_eq!(message["automatic"]["reason"].as_str(), *automatic, "{id} {subject}");
            let answer = world.reply(&message, &format!("answer {at}")).await;
            assert_eq!(answer.status, if automatic.is_some() { 422 } else { 202 }, "{}", answer.text);
            world.advance_clock(10 * MINUTE);
        }
    }
}

/// Headers as RFC 3834, RFC 5230 and common programs write them, a subject, and the expected reason.
const AUTOMATIC_MAIL_EXAMPLES: &[(&str, &str, Option<&str>)] = &[
    ("Auto-Submitted: auto-replied (vacation)", "Auto: Hello", Some("auto_submitted")),
    ("Auto-Submitted: auto-generated", "Backup done", Some("auto_submitted")),
    ("Auto-Submitted: auto-notified; owner-email=\"me@example.com\"", "New mail", Some("auto_submitted")),
    ("Auto-Submitted: no", "Hello", None),
    ("X-Auto-Response-Suppress: None", "Hello", None),
    ("X-Auto-Response-Suppress: DR, RN, NRN", "Hello", None),
    ("X-Auto-Response-Suppress: OOF, AutoReply", "Report", Some("suppressed")),
    ("X-Auto-Response-Suppress: All", "Report", Some("suppressed")),
    ("Precedence: bulk", "News", Some("precedence")),
    ("Precedence: auto_reply", "Away", Some("precedence")),
    ("X-Autoreply: yes", "Away", Some("auto_reply")),
    ("List-Unsubscribe: <https://shop.test/u>", "Offers", Some("list")),
    ("X-Loop: robot@shop.test", "Hello", Some("loop")),
    ("X-Mailer: Outlook", "Automatic reply: Hello", Some("absence")),
    ("X-Mailer: Outlook", "Re: Out of office policy", None),
];

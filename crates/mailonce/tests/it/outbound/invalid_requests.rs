//! Invalid input is refused with the field's name, stores nothing and leaves the idempotency key free.

use serde_json::{Value, json};

use crate::fixtures::{
    api_fixture::{World, mail, mail_with},
    conversations::{TestMail, str_field},
    requests::{TestRequest, patch, post},
};

/// Makes the call with an idempotency key and checks that it is refused as expected.
async fn expect_refused(world: &World, what: &str, call: TestRequest, expected: (u16, &str, Option<&str>)) {
    let (status, code, field) = expected;
    let answer = world.call(call.key("k")).await;
    assert_eq!((answer.status, answer["code"].as_str()), (status, Some(code)), "{what}: {}", answer.text);
    assert_eq!(answer["field"].as_str(), field, "{what}: {}", answer.text);
    answer.expect_problem_format();
}

/// Checks that refused calls stored nothing and that their key is still free.
async fn expect_nothing_stored(world: &World) {
    assert!(world.events().await.is_empty(), "an event was stored");
    assert_eq!(world.email_count().await, 0, "an email was stored");
    world.get("/v1/keys/k").await.expect_problem(404, "not_found");
    world.send("k", &mail()).await.expect_status(202);
}

async fn expect_texts_refused(world: World, status: u16, code: &str, texts: &[(&str, Option<&str>)]) {
    for (text, field) in texts {
        expect_refused(&world, text, post("/v1/emails").json_bytes((*text).to_owned()), (status, code, *field)).await;
    }
    expect_nothing_stored(&world).await;
}

async fn expect_members_refused(world: World, status: u16, code: &str, members: &[(Value, &str)]) {
    for (more, field) in members {
        let call = post("/v1/emails").json(&mail_with(more.clone()));
        expect_refused(&world, &more.to_string(), call, (status, code, Some(field))).await;
    }
    expect_nothing_stored(&world).await;
}

/// An email followed by another JSON value.
const EMAIL_WITH_TRAILING_JSON: &str = r#"{"from":"a@x.test","to":"b@x.test","text":"t"} {}"#;

over_memory_and_sqlite! {
    async fn malformed_json_is_refused(world) {
        let texts = ["", " ", "{", "}", "nonsense", "{\"from\":", "{'from':'a'}", "{\"from\":\"a\",}", EMAIL_WITH_TRAILING_JSON, "\u{feff}{}", "{\"text\":\"\n\"}", "{\"text\":NaN}", "{\"from\":\"a\" \"to\":\"b\"}"];
        expect_texts_refused(world, 400, "invalid_json", &texts.map(|text| (text, None))).await;
    }

    async fn invalid_utf_8_and_deeply_nested_json_are_refused(world) {
        let bytes = b"{\"from\":\"a@x.test\",\"to\":\"b@x.test\",\"text\":\"\xff\"}".to_vec();
        expect_refused(&world, "latin", post("/v1/emails").json_bytes(bytes), (400, "invalid_json", None)).await;
        let deep = format!("{{\"metadata\":{}", "[".repeat(100_000));
        expect_refused(&world, "deep", post("/v1/emails").json_bytes(deep), (413, "too_large", None)).await;
        expect_nothing_stored(&world).await;
    }

    async fn json_that_is_costly_to_parse_is_refused_before_parsing(world) {
        let object = |members: usize| {
            let members: Vec<String> = (0..members).map(|n| format!(r#""X-{n}":"v""#)).collect();
            format!("{{{}}}", members.join(","))
        };
        let email = |member: &str| format!(r#"{{"from":"a@x.test","to":"b@x.test","text":"t",{member}}}"#);
        let costly = [
            email(&format!(r#""headers":{}"#, object(200_000))),
            email(&format!(r#""metadata":{}"#, object(200_000))),
            email(&format!(r#""{}":1"#, "n".repeat(6_000_000))),
            email(&format!(r#""to":[{}""]"#, r#""","#.repeat(1_000_000))),
        ];
        for body in costly {
            for path in ["/v1/emails", "/v1/emails/batch", "/compat/resend/emails", "/compat/usesend/api/v1/emails", "/mcp"] {
                let answer = world.call(post(path).json_bytes(body.clone())).await;
                assert!((400..500).contains(&answer.status), "{path}: {}", answer.text);
                assert!(answer.text.len() < 2_000, "{path} answers with {} bytes", answer.text.len());
            }
            expect_refused(&world, "costly", post("/v1/emails").json_bytes(body), (413, "too_large", None)).await;
        }
        expect_nothing_stored(&world).await;
    }

    async fn a_long_unknown_name_gets_no_suggestion_and_is_shown_truncated(world) {
        let long = "a".repeat(60_000);
        let answer = world.get(&format!("/{long}")).await.expect_problem(404, "not_found");
        assert!(answer.text.len() < 1_000 && !answer.text.contains("did you mean"), "{}", answer.text);
        let answer = world.get(&format!("/v1/emails?{long}=1")).await.expect_problem(400, "invalid_query");
        assert!(answer.text.len() < 1_500, "{}", answer.text.len());
        let body = format!(r#"{{"from":"a@x.test","{}":1}}"#, "s".repeat(4_000));
        let answer = world.call(post("/v1/emails").json_bytes(body)).await;
        assert_eq!(answer["code"], "unknown_field");
        assert!(answer.text.len() < 2_000, "{}", answer.text);
    }

    async fn a_body_that_is_not_an_object_is_refused(world) {
        let texts = ["null", "5", "\"x\"", "true"];
        expect_texts_refused(world, 400, "invalid_type", &texts.map(|text| (text, None))).await;
    }

    async fn an_array_is_not_accepted_as_an_email(world) {
        let text = r#"["agent@example.com",["user@example.com"],[],[],[],"subject","text"]"#;
        let answer = world.call(post("/v1/emails").key("k").json_bytes(text)).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        let intent = mail_with(json!({ "intent": ["order.confirmation", "order_1"] }));
        let answer = world.call(post("/v1/emails").key("k").json(&intent)).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        expect_nothing_stored(&world).await;
    }

    async fn a_missing_field_is_named(world) {
        expect_texts_refused(world, 400, "invalid_type", &[
            ("{}", Some("from")),
            (r#"{"from":"a@x.test","text":"t"}"#, Some("to")),
            (r#"{"to":"b@x.test","text":"t"}"#, Some("from")),
            (r#"{"from":"a@x.test","to":"b@x.test","text":"t","intent":{"type":"t"}}"#, Some("intent.entity")),
            (r#"{"from":"a@x.test","to":"b@x.test","text":"t","intent":{"entity":"e"}}"#, Some("intent.type")),
            (r#"{"from":"a@x.test","to":"b@x.test","text":"t","attachments":[{"content":"aGk="},{"filename":"f"}]}"#, Some("attachments[1].content")),
        ]).await;
    }

    async fn a_wrong_type_is_refused_with_its_path(world) {
        expect_members_refused(world, 400, "invalid_type", &[
            (json!({ "from": 5 }), "from"),
            (json!({ "from": null }), "from"),
            (json!({ "from": ["a@x.test"] }), "from"),
            (json!({ "to": 5 }), "to"),
            (json!({ "to": { "email": "a@x.test" } }), "to"),
            (json!({ "to": ["a@x.test", 5] }), "to[1]"),
            (json!({ "cc": [null] }), "cc[0]"),
            (json!({ "subject": ["x"] }), "subject"),
            (json!({ "text": 5 }), "text"),
            (json!({ "html": {} }), "html"),
            (json!({ "headers": [] }), "headers"),
            (json!({ "headers": { "X-A": 1 } }), "headers.X-A"),
            (json!({ "attachments": {} }), "attachments"),
            (json!({ "attachments": [{ "content": 5 }] }), "attachments[0].content"),
            (json!({ "attachments": [{ "content": "aGk=", "filename": 5 }] }), "attachments[0].filename"),
            (json!({ "tags": "x" }), "tags"),
            (json!({ "tags": [5] }), "tags[0]"),
            (json!({ "metadata": [] }), "metadata"),
            (json!({ "metadata": { "a": {} } }), "metadata.a"),
            (json!({ "metadata": { "a": [1] } }), "metadata.a"),
            (json!({ "scheduled_at": 1_794_736_800 }), "scheduled_at"),
            (json!({ "intent": "order" }), "intent"),
            (json!({ "intent": { "type": "t", "entity": 5 } }), "intent.entity"),
            (json!({ "intent": { "type": "t", "entity": "e", "version": "1" } }), "intent.version"),
            (json!({ "intent": { "type": "t", "entity": "e", "version": -1 } }), "intent.version"),
            (json!({ "intent": { "type": "t", "entity": "e", "version": 1.5 } }), "intent.version"),
            (json!({ "intent": { "type": "t", "entity": "e", "version": 9_007_199_254_740_992_u64 } }), "intent.version"),
            (json!({ "on_mismatch": 1 }), "on_mismatch"),
            (json!({ "transport": [] }), "transport"),
        ]).await;
    }

    async fn a_number_out_of_range_is_refused_with_the_range(world) {
        let versions = [(json!(0), "1"), (json!(-1), "0"), (json!(9_007_199_254_740_993_u64), "0")];
        for (version, least) in versions {
            let body = mail_with(json!({ "intent": { "type": "t", "entity": "e", "version": version } }));
            let problem = world.post("/v1/emails", &body).await.string_field("detail");
            assert!(problem.ends_with(&format!("a whole number from {least} to 4294967295")), "{problem}");
            assert!(problem.matches("intent.version").count() <= 1, "{problem}");
        }
        let body = json!({ "name": "x", "rate_per_s": 1_000_000_000_000_u64 });
        let problem = world.post("/v1/api-keys", &body).await.expect_problem(400, "invalid_type").string_field("detail");
        assert!(problem.contains("expected a whole number from 0 to 4294967295"), "{problem}");
    }

    async fn the_next_text_mentions_a_field_only_when_one_is_named(world) {
        let many = json!(vec![mail(); 1_001]).to_string();
        let (one, batch) = ("/v1/emails", "/v1/emails/batch");
        for (path, body) in [(one, "[]"), (one, "null"), (one, "\"x\""), (batch, "{}"), (batch, "[]"), (batch, &many)] {
            let problem = world.call(post(path).json_bytes(body.to_owned())).await;
            problem.expect_problem_format();
            assert_eq!((&problem["field"], problem.string_field("next").contains("`field`")), (&json!(null), false), "{}", problem.text);
        }
    }

    async fn an_invalid_body_under_a_bound_key_says_that_nothing_was_stored(world) {
        world.send("k", &mail()).await.expect_status(202);
        let problem = world.send("k", &mail_with(json!({ "to": "nobody" }))).await.expect_problem(422, "invalid_field").string_field("next");
        assert!(problem.ends_with("this call stored nothing and bound no key."), "{problem}");
    }

    async fn an_unknown_field_is_refused_with_the_nearest_name(world) {
        let members = [
            (json!({ "subjct": "x" }), "subjct", Some("subject")),
            (json!({ "body": "x" }), "body", None),
            (json!({ "replyTo": "x@x.test" }), "replyTo", Some("reply_to")),
            (json!({ "Subject": "x" }), "Subject", Some("subject")),
            (json!({ "attachments": [{ "content": "aGk=", "file_name": "f" }] }), "attachments[0].file_name", Some("filename")),
            (json!({ "attachments": [{ "content": "aGk=", "path": "https://x.test/f" }] }), "attachments[0].path", None),
            (json!({ "intent": { "type": "t", "entity": "e", "perod": "p" } }), "intent.perod", Some("period")),
        ];
        for (more, field, near) in members {
            let call = post("/v1/emails").key("k").json(&mail_with(more));
            let refused = world.call(call).await.expect_problem(400, "unknown_field").expect_field(field);
            let hint = near.map(|near| format!("did you mean `{near}`?"));
            assert!(hint.is_none_or(|hint| refused.string_field("detail").contains(&hint)), "{}", refused.text);
        }
        expect_nothing_stored(&world).await;
    }

    async fn a_bad_address_is_refused_in_every_field(world) {
        let bad = ["", " ", "user", "@example.com", "user@", "a b@example.com", "a..b@example.com", "user@example..com", "user@127.0.0.1", "user@[127.0.0.1]", "A <user@example.com", "user@example.com>", "a@b@c@", "a@x.test, b@x.test", "user@exa_mple!.com"];
        for address in bad {
            for field in ["from", "to", "cc", "bcc", "reply_to"] {
                let path = if field == "from" { "from".to_owned() } else { format!("{field}[0]") };
                let call = post("/v1/emails").json(&mail_with(json!({ field: address })));
                expect_refused(&world, &format!("{field} {address:?}"), call, (422, "invalid_field", Some(&path))).await;
            }
        }
        let long = format!("{}@example.com", "a".repeat(65));
        let second = mail_with(json!({ "to": ["user@example.com", long] }));
        expect_refused(&world, "long", post("/v1/emails").json(&second), (422, "invalid_field", Some("to[1]"))).await;
        expect_nothing_stored(&world).await;
    }

    async fn an_email_without_a_body_or_a_recipient_or_with_too_many_is_refused(world) {
        let many: Vec<String> = (0..51).map(|n| format!("r{n}@example.com")).collect();
        expect_members_refused(world, 422, "invalid_field", &[
            (json!({ "text": null }), "text"),
            (json!({ "text": "" }), "text"),
            (json!({ "text": "", "html": "" }), "text"),
            (json!({ "to": [] }), "to"),
            (json!({ "to": null, "cc": "a@x.test" }), "to"),
            (json!({ "to": many }), "to"),
            (json!({ "to": many[..20], "cc": many[20..40], "bcc": many[40..] }), "to"),
        ]).await;
    }

    async fn fifty_recipients_pass(world) {
        let many: Vec<String> = (0..50).map(|n| format!("r{n}@example.com")).collect();
        world.send("k", &mail_with(json!({ "to": many[..20], "cc": many[20..40], "bcc": many[40..] }))).await.expect_status(202);
    }

    async fn a_value_that_cannot_be_used_is_refused_with_its_path(world) {
        let files: Vec<Value> = (0..101).map(|_| json!({ "content": "" })).collect();
        expect_members_refused(world, 422, "invalid_field", &[
            (json!({ "attachments": [{ "content": "not base64!" }] }), "attachments[0].content"),
            (json!({ "attachments": [{ "content": "aGk=" }, { "content": "a" }] }), "attachments[1].content"),
            (json!({ "attachments": [{ "content": "aGk===" }] }), "attachments[0].content"),
            (json!({ "attachments": files }), "attachments"),
            (json!({ "scheduled_at": "tomorrow" }), "scheduled_at"),
            (json!({ "scheduled_at": "2026-02-30T10:00:00Z" }), "scheduled_at"),
            (json!({ "scheduled_at": "2026-11-16T10:00:00" }), "scheduled_at"),
            (json!({ "scheduled_at": "2026-11-16" }), "scheduled_at"),
            (json!({ "scheduled_at": "in -5 minutes" }), "scheduled_at"),
            (json!({ "scheduled_at": "in 401 days" }), "scheduled_at"),
            (json!({ "scheduled_at": "9999-12-31T23:59:59Z" }), "scheduled_at"),
            (json!({ "scheduled_at": "in 4294967295 weeks" }), "scheduled_at"),
            (json!({ "scheduled_at": "" }), "scheduled_at"),
            (json!({ "intent": { "type": "", "entity": "e" } }), "intent.type"),
            (json!({ "intent": { "type": "t", "entity": "e".repeat(257) } }), "intent.entity"),
            (json!({ "intent": { "type": "t", "entity": "e", "version": 0 } }), "intent.version"),
            (json!({ "intent": { "type": "t", "entity": "e", "period": "" } }), "intent.period"),
            (json!({ "subject": "s".repeat(999) }), "subject"),
            (json!({ "on_mismatch": "accept" }), "on_mismatch"),
            (json!({ "on_unknown": "panic" }), "on_unknown"),
            (json!({ "transport": "pigeon" }), "transport"),
            (json!({ "distinct_token": "made-up" }), "distinct_token"),
            (json!({ "tags": [""] }), "tags[0]"),
            (json!({ "tags": ["a", { "name": "a", "value": "b" }] }), "tags[1]"),
            (json!({ "metadata": { "": 1 } }), "metadata."),
        ]).await;
    }

    async fn a_list_is_refused_wherever_an_object_is_expected(world) {
        let world = world.with_inbox_domain().await;
        let inbox = format!("/v1/inboxes/{}", world.create_inbox("a").await);
        for (call, body, field) in [
            (patch(&inbox), json!({ "caps": [] }), "caps"),
            (patch(&inbox), json!({ "caps": [1, 60, 2, 3] }), "caps"),
            (post("/v1/inboxes"), json!({ "username": "b", "caps": [] }), "caps"),
            (patch("/v1/settings"), json!({ "content_guard": [] }), "content_guard"),
            (patch("/v1/settings"), json!({ "escalation_email": ["a@example.com", ["b@example.com"]] }), "escalation_email"),
        ] {
            world.call(call.json(&body)).await.expect_problem(400, "invalid_type").expect_field(field);
        }
        assert_eq!(world.get(&inbox).await.expect_status(200)["caps"]["per_window"], 3);
        assert_eq!(world.get("/v1/settings").await.expect_status(200)["escalation_email"], Value::Null);
    }

    async fn empty_names_and_zero_durations_are_refused(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        let message = world.receive_message(TestMail::default()).await;
        let thread = format!("/v1/threads/{}", str_field(&message, "thread_id"));
        for (call, body, field) in [
            (post(&format!("{thread}/lease")), json!({ "holder": "" }), "holder"),
            (post("/v1/inboxes/a@agents.test/next"), json!({ "holder": " " }), "holder"),
            (patch(&thread), json!({ "labels": ["ok", ""] }), "labels"),
            (post("/v1/escalations"), json!({ "question": "May I?", "entity": "" }), "entity"),
            (patch("/v1/settings"), json!({ "held_expires_after": "0s" }), "held_expires_after"),
            (patch("/v1/settings"), json!({ "held_expires_after": "59s" }), "held_expires_after"),
        ] {
            world.call(call.json(&body)).await.expect_problem(422, "invalid_field").expect_field(field);
        }
        world.call(patch("/v1/settings").json(&json!({ "held_expires_after": "1m" }))).await.expect_status(200);
        assert_eq!(world.get(&thread).await.expect_status(200)["labels"], json!([]));
    }

    async fn reserved_headers_cannot_be_set(world) {
        let names = ["Message-ID", "date", "Auto-Submitted", "DKIM-Signature", "Return-Path", "X-Mailonce-Id", "Resend-Idempotency-Key", "Idempotency-Key", "From", "To", "Bcc", "Subject", "Content-Type", "Resent-Bcc", "Resent-To", "Apparently-To", "Authentication-Results", "ARC-Seal", "Received-SPF", "Content-Disposition", "Content-ID", "Delivered-To"];
        for name in names {
            let call = post("/v1/emails").json(&mail_with(json!({ "headers": { name: "x" } })));
            expect_refused(&world, name, call, (422, "invalid_field", Some(&format!("headers.{name}")))).await;
        }
        expect_nothing_stored(&world).await;
        let allowed = json!({ "Content-Language": "de", "List-Unsubscribe": "<https://example.com/u>", "X-Campaign": "7", "Arcade": "yes" });
        world.send("allowed", &mail_with(json!({ "headers": allowed }))).await.expect_status(202);
    }

    async fn every_error_is_listed_and_the_first_one_leads(world) {
        let body = mail_with(json!({ "from": "nobody", "to": ["user@example.com", "x"], "subject": "a\nb" }));
        let refused = world.send("k", &body).await.expect_problem(422, "invalid_field").expect_field("from");
        let fields: Vec<_> = refused["errors"].as_array().unwrap().iter().map(|fault| fault["field"].clone()).collect();
        assert_eq!(fields, ["from", "to[1]", "subject"]);
        expect_nothing_stored(&world).await;
    }
}

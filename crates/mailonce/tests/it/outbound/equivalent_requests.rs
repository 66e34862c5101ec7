//! Equivalent requests are replays, however they are written. Ambiguous requests are refused.

use serde_json::json;

use crate::fixtures::{
    api_fixture::{World, mail, mail_with},
    requests::{TestResponse, post},
};

/// Sends the first body with a key, then each of the others, which must be replays of it.
async fn expect_same_email(world: &World, bodies: &[&str]) {
    let send = |body: &str| world.call(post("/v1/emails").key("one").json_bytes(body.to_owned()));
    let (first, others) = bodies.split_first().unwrap();
    let first = send(first).await.expect_status(202);
    for body in others {
        let again = send(body).await;
        assert_eq!(again.status, 200, "{body} is not a replay: {}", again.text);
        assert_eq!(again["id"], first["id"], "{body}");
        assert_eq!(again["dedupe"]["payload_differs"], false, "{body}");
    }
}

async fn send_raw(world: &World, body: &str) -> TestResponse {
    world.call(post("/v1/emails").key("k").json_bytes(body.to_owned())).await
}

over_memory_and_sqlite! {
    async fn the_order_of_json_members_does_not_matter(world) {
        expect_same_email(&world, &[
            r#"{"from":"a@x.test","to":"b@x.test","text":"t","metadata":{"a":1,"b":2},"headers":{"X-A":"1","X-B":"2"}}"#,
            r#"{"headers":{"x-b":"2","x-a":"1"},"metadata":{"b":2,"a":1},"text":"t","to":"b@x.test","from":"a@x.test"}"#,
        ]).await;
    }

    async fn recipients_may_be_a_string_or_a_list_in_any_case_and_order(world) {
        expect_same_email(&world, &[
            r#"{"from":"a@x.test","to":["b@x.test","c@müller.test"],"cc":["d@x.test"],"text":"t"}"#,
            r#"{"from":"A@X.test","to":["C@XN--MLLER-KVA.test","B@x.TEST"],"cc":"d@x.test","text":"t"}"#,
            r#"{"from":"a@x.test","to":["b@x.test","b@x.test","c@müller.test"],"cc":"d@x.test","text":"t"}"#,
        ]).await;
    }

    async fn null_is_absent(world) {
        expect_same_email(&world, &[
            r#"{"from":"a@x.test","to":"b@x.test","text":"t"}"#,
            r#"{"from":"a@x.test","to":"b@x.test","text":"t","html":null,"subject":null,"cc":null,"bcc":null,"reply_to":null,"headers":null,"attachments":null,"tags":null,"metadata":null,"scheduled_at":null,"intent":null,"ttl":null,"on_mismatch":null,"on_unknown":null,"transport":null,"distinct_token":null}"#,
            r#"{"from":"a@x.test","to":"b@x.test","text":"t","html":"","subject":"","cc":[],"bcc":[],"reply_to":[],"headers":{},"attachments":[],"tags":[],"metadata":{"x":null}}"#,
        ]).await;
    }

    async fn lines_may_end_in_crlf_or_lf(world) {
        expect_same_email(&world, &[
            r#"{"from":"a@x.test","to":"b@x.test","text":"one\ntwo\n","html":"<p>\n</p>"}"#,
            r#"{"from":"a@x.test","to":"b@x.test","text":"one\r\ntwo\r\n","html":"<p>\r\n</p>"}"#,
        ]).await;
    }

    async fn base64_may_be_broken_into_lines_and_lack_its_padding(world) {
        expect_same_email(&world, &[
            r#"{"from":"a@x.test","to":"b@x.test","text":"t","attachments":[{"filename":"f","content":"aGVsbG8gd29ybGQhIQ=="}]}"#,
            r#"{"from":"a@x.test","to":"b@x.test","text":"t","attachments":[{"filename":"f","content":"aGVsbG8g\r\nd29ybGQhIQ==\r\n"}]}"#,
            r#"{"from":"a@x.test","to":"b@x.test","text":"t","attachments":[{"filename":"f","content":"aGVsbG8gd29ybGQhIQ"}]}"#,
        ]).await;
    }

    async fn one_instant_may_be_written_in_any_time_zone(world) {
        expect_same_email(&world, &[
            r#"{"from":"a@x.test","to":"b@x.test","text":"t","scheduled_at":"2026-11-16T10:00:00Z"}"#,
            r#"{"from":"a@x.test","to":"b@x.test","text":"t","scheduled_at":"2026-11-16T15:30:00.000+05:30"}"#,
            r#"{"from":"a@x.test","to":"b@x.test","text":"t","scheduled_at":"2026-11-16T02:00:00-08:00"}"#,
        ]).await;
    }

    async fn a_relative_time_is_compared_as_written(world) {
        let body = mail_with(json!({ "scheduled_at": "in 5 minutes" }));
        let first = world.send("k", &body).await.expect_status(202);
        world.advance_clock(60_000);
        let again = world.send("k", &mail_with(json!({ "scheduled_at": "In  5  Minutes" }))).await.expect_status(200);
        assert_eq!(again["id"], first["id"]);
        let other = world.send("k", &mail_with(json!({ "scheduled_at": "in 6 minutes" }))).await;
        assert_eq!(other.expect_problem(422, "key_mismatch")["differing_fields"], json!(["scheduled_at"]));
    }

    async fn numbers_may_be_written_in_several_notations(world) {
        expect_same_email(&world, &[
            r#"{"from":"a@x.test","to":"b@x.test","text":"\u00e9","metadata":{"n":4821}}"#,
            r#"{"from":"a@x.test","to":"b@x.test","text":"é","metadata":{"n":4821.0}}"#,
            r#"{"from":"a@x.test","to":"b@x.test","text":"é","metadata":{"n":4.821e3}}"#,
        ]).await;
    }

    async fn a_string_and_a_number_are_different_values(world) {
        world.send("k", &mail_with(json!({ "metadata": { "n": 1 } }))).await.expect_status(202);
        world.send("k", &mail_with(json!({ "metadata": { "n": "1" } }))).await.expect_problem(422, "key_mismatch");
        world.send("k", &mail_with(json!({ "metadata": { "n": true } }))).await.expect_problem(422, "key_mismatch");
    }

    async fn integers_beyond_2_to_the_53_are_refused_positive_and_negative(world) {
        let numbers = [
            "9007199254740992", "-9007199254740992", "9223372036854775807", "-9223372036854775808",
            "18446744073709551615", "-9223372036854775809", "1e300", "123456789012345678901234567890",
        ];
        for number in numbers {
            let body = format!(r#"{{"from":"a@x.test","to":"b@x.test","text":"t","metadata":{{"order":{number}}}}}"#);
            let refused = send_raw(&world, &body).await;
            assert_eq!(refused.status, 422, "{number}: {}", refused.text);
            let refused = refused.expect_problem(422, "invalid_field").expect_field("metadata.order");
            assert!(refused.string_field("detail").contains("2^53-1"), "{}", refused.text);
        }
        assert!(world.events().await.is_empty());
        for number in ["9007199254740991", "-9007199254740991"] {
            let body = format!(r#"{{"from":"a@x.test","to":"b@x.test","text":"t","metadata":{{"order":{number}}}}}"#);
            world.call(post("/v1/emails").key(number).json_bytes(body)).await.expect_status(202);
        }
    }

    async fn a_duplicate_json_member_is_refused_everywhere(world) {
        let start = r#""from":"a@x.test","to":"b@x.test","text":"t""#;
        let bodies = [
            (format!(r#"{{{start},"text":"u"}}"#), "text"),
            (format!(r#"{{{start},"text":"t"}}"#), "text"),
            (format!(r#"{{{start},"\u0074o":"c@x.test"}}"#), "to"),
            (format!(r#"{{{start},"intent":{{"type":"t","entity":"e","entity":"f"}}}}"#), "entity"),
            (format!(r#"{{{start},"attachments":[{{"content":"aGk=","content":"aGk="}}]}}"#), "content"),
            (format!(r#"{{{start},"headers":{{"X-A":"1","X-A":"2"}}}}"#), "X-A"),
            (format!(r#"{{{start},"metadata":{{"a":1,"a":2}}}}"#), "a"),
            (format!(r#"{{{start},"metadata":{{"a":1,"\u0061":1}}}}"#), "a"),
        ];
        for (body, name) in bodies {
            let refused = send_raw(&world, &body).await;
            assert_eq!(refused.status, 400, "{body}: {}", refused.text);
            let refused = refused.expect_problem(400, "invalid_json");
            let detail = refused.string_field("detail");
            assert!(detail.contains("duplicate") && detail.contains(&format!("`{name}`")), "{detail}");
        }
        assert!(world.events().await.is_empty());
        world.send("k", &mail()).await.expect_status(202);
    }

    async fn a_duplicate_json_member_in_a_tag_a_ttl_or_a_batch_is_refused(world) {
        let start = r#""from":"a@x.test","to":"b@x.test","text":"t""#;
        for more in [r#""tags":[{"name":"a","name":"b"}]"#, r#""ttl":{"class":"scheduled","interval":"1d","interval":"7d"}"#] {
            let refused = send_raw(&world, &format!("{{{start},{more}}}")).await.expect_status(400);
            refused.expect_problem_format();
        }
        let batch = format!(r#"[{{{start}}},{{{start},"text":"u"}}]"#);
        world.call(post("/v1/emails/batch").key("b").json_bytes(batch)).await.expect_problem(400, "invalid_json");
        assert!(world.events().await.is_empty());
    }

    async fn a_header_given_twice_in_different_case_is_refused(world) {
        let body = mail_with(json!({ "headers": { "X-A": "1", "x-a": "2" } }));
        world.send("k", &body).await.expect_problem(422, "invalid_field").expect_field("headers.x-a");
    }
}

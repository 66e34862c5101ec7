//! Control characters in header values, sends that are too large, and bodies that are not JSON.

use serde_json::{Value, json};

use crate::fixtures::{
    api_fixture::{World, mail, mail_with},
    requests::post,
};

/// Emails with the text in one field each, with the path that the error must name.
fn emails_with_text_in_each_field(text: &str) -> Vec<(Value, String)> {
    let file = |member: &str| json!({ "attachments": [{ "content": "aGk=", member: text }] });
    let intent = |member: &str| {
        let mut intent = json!({ "type": "t", "entity": "e", "period": "p" });
        intent[member] = json!(text);
        json!({ "intent": intent })
    };
    let mut cases = vec![
        (json!({ "from": text }), "from".to_owned()),
        (json!({ "from": format!("{text} <agent@example.com>") }), "from".into()),
        (json!({ "to": format!("{text} <user@example.com>") }), "to[0]".into()),
        (json!({ "subject": text }), "subject".into()),
        (json!({ "headers": { "X-A": text } }), "headers.X-A".into()),
        (json!({ "headers": { text: "x" } }), "headers".into()),
        (json!({ "tags": [text] }), "tags[0]".into()),
        (json!({ "tags": [{ "name": "n", "value": text }] }), "tags[0]".into()),
    ];
    for field in ["to", "cc", "bcc", "reply_to"] {
        cases.push((json!({ field: [text] }), format!("{field}[0]")));
    }
    for member in ["filename", "content_type", "content_id"] {
        cases.push((file(member), format!("attachments[0].{member}")));
    }
    for member in ["type", "entity", "period"] {
        cases.push((intent(member), format!("intent.{member}")));
    }
    cases
}

async fn expect_nothing_stored(world: &World) {
    assert!(world.events().await.is_empty());
    world.send("k", &mail()).await.expect_status(202);
}

over_memory_and_sqlite! {
    async fn cr_lf_and_nul_are_refused_in_every_header_value(world) {
        let evil = ["user@example.com\r\nBcc: evil@x.test", "user@example.com\nX: y", "user@example.com\ry", "user@example.com\0", "\nuser@example.com", "user@example.com\r\n"];
        for text in evil {
            for (more, field) in emails_with_text_in_each_field(text) {
                let answer = world.send("k", &mail_with(more.clone())).await;
                assert_eq!(answer.status, 422, "{more}: {}", answer.text);
                answer.expect_problem(422, "invalid_field").expect_field(&field);
            }
        }
        expect_nothing_stored(&world).await;
    }

    async fn nul_is_refused_in_a_body(world) {
        for field in ["text", "html"] {
            world.send("k", &mail_with(json!({ field: "a\0b" }))).await.expect_problem(422, "invalid_field").expect_field(field);
        }
        expect_nothing_stored(&world).await;
    }

    async fn invalid_header_names_are_refused(world) {
        for name in ["", "X A", "X:A", "Ünï", "X\tA", &"X".repeat(77)] {
            world.send("k", &mail_with(json!({ "headers": { name: "x" } }))).await.expect_problem(422, "invalid_field").expect_field("headers");
        }
        expect_nothing_stored(&world).await;
    }

    async fn a_body_of_more_than_40_mb_is_413(world) {
        let most = mailonce_core::limits::BODY_BYTES;
        let mut body = mail_with(json!({ "text": "x" })).to_string().into_bytes();
        body.resize(most + 1, b' ');
        let refused = world.call(post("/v1/emails").key("k").json_bytes(body.clone())).await.expect_problem(413, "too_large");
        assert!(refused.string_field("detail").contains(&most.to_string()), "{}", refused.text);
        assert!(world.events().await.is_empty());
        // One byte less is accepted.
        body.pop();
        world.call(post("/v1/emails").key("k").json_bytes(body)).await.expect_status(202);
    }

    async fn attachments_of_more_than_25_mb_are_413(world) {
        let content = "AAAA".repeat(26 * 1024 * 1024 / 3);
        let body = mail_with(json!({ "attachments": [{ "filename": "f", "content": content }] }));
        world.send("k", &body).await.expect_problem(413, "too_large").expect_field("attachments");
        expect_nothing_stored(&world).await;
    }

    async fn a_body_that_is_not_declared_as_json_is_415(world) {
        let text = mail().to_string();
        for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml", "json", ""] {
            for path in ["/v1/emails", "/v1/emails/batch", "/v1/api-keys"] {
                let call = post(path).key("k").header("content-type", kind).raw_body(text.clone());
                world.call(call).await.expect_problem(415, "unsupported_media_type");
            }
        }
        assert!(world.events().await.is_empty());
        for (n, kind) in ["application/json", "application/json; charset=utf-8", "Application/JSON", "application/vnd.x+json"].into_iter().enumerate() {
            let call = post("/v1/emails").key(&format!("k{n}")).header("content-type", kind).raw_body(text.clone());
            world.call(call).await.expect_status(202);
        }
        world.call(post("/v1/emails").key("undeclared").raw_body(text)).await.expect_status(202);
    }
}

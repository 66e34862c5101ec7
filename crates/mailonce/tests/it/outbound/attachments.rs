//! Downloading the attachments of an email.

use serde_json::{Value, json};

use crate::fixtures::{
    api_fixture::{HOUR, mail_with},
    requests::{get, patch},
};

/// Two files: bytes that are no text, and a page that would run a script.
fn mail_with_files(from: &str) -> Value {
    mail_with(json!({
        "from": from,
        "attachments": [
            { "filename": "three.bin", "content": "AAEC", "content_type": "application/pdf" },
            { "filename": "../evil.html", "content": "PHNjcmlwdD4=", "content_type": "text/html" },
        ],
    }))
}

over_memory_and_sqlite! {
    async fn the_attachments_of_an_email_are_downloads(world) {
        let id = world.send("k", &mail_with_files("a@example.com")).await.expect_status(202).string_field("id");
        let read = async |number: &str| world.get(&format!("/v1/emails/{id}/attachments/{number}")).await;
        let first = read("0").await.expect_status(200);
        assert_eq!(first.text.as_bytes(), [0, 1, 2]);
        let second = read("1").await.expect_status(200);
        assert_eq!(second.text, "<script>");
        // A browser shows nothing of a stranger's file on this origin, whatever type it declares.
        assert_eq!(second.header("content-type"), Some("application/octet-stream"));
        assert_eq!(second.header("content-disposition"), Some("attachment; filename=\"..evil.html\""));
        assert_eq!((second.header("x-content-type-options"), second.header("cache-control")), (Some("nosniff"), Some("no-store")));
        for number in ["2", "-1", "x", "99999999999999999999"] {
            read(number).await.expect_problem(404, "not_found");
        }
        world.get("/v1/emails/x/attachments/0").await.expect_problem(404, "not_found");
    }

    async fn only_readers_of_the_email_read_its_attachments(world) {
        let world = world.with_inbox_domain().await;
        let (a, b) = (world.create_inbox("a").await, world.create_inbox("b").await);
        let id = world.send("k", &mail_with_files("b@agents.test")).await.expect_status(202).string_field("id");
        let key = async |scope: &str, inbox: &str| {
            world.create_api_key(&json!({ "name": format!("{scope} {inbox}"), "scopes": [scope], "inboxes": [inbox] })).await
        };
        let read = async |key: &str| world.call(get(&format!("/v1/emails/{id}/attachments/0")).bearer(key)).await;
        read(&key("read", &b).await).await.expect_status(200);
        read(&key("read", &a).await).await.expect_problem(404, "not_found");
        read(&key("send", &b).await).await.expect_problem(403, "wrong_scope");
        read(&world.create_team("strangers").await).await.expect_problem(404, "not_found");
    }

    async fn attachments_end_with_the_retention_of_the_content(world) {
        let retention = json!({ "retention": { "bodies": "1h" } });
        world.call(patch("/v1/settings").json(&retention)).await.expect_status(200);
        let id = world.send("k", &mail_with_files("a@example.com")).await.expect_status(202).string_field("id");
        world.hand_off_due().await;
        let path = format!("/v1/emails/{id}/attachments/0");
        world.get(&path).await.expect_status(200);
        world.advance_clock(2 * HOUR);
        world.engine.ctx.confirm_time();
        world.engine.apply_retention().await;
        world.get(&path).await.expect_problem(404, "not_found");
    }
}

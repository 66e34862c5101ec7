//! Sends without a key through a dialect: an identical retry is answered with the first email, anything else is sent.

use serde_json::{Value, json};

use crate::{
    call::{TestResponse, patch, post},
    world::{MINUTE, World},
};

const RESEND: &str = "/compat/resend/emails";

/// What Resend's SDK sends.
fn resend_mail() -> Value {
    json!({
        "from": "Shop <agent@example.com>",
        "to": ["ann@example.com"],
        "subject": "Your order 4821",
        "text": "Hello Ann, your order 4821 has shipped and arrives on Monday. See https://shop.example/o/4821 for details.",
        "html": "<p>Hello Ann, your order 4821 has shipped and arrives on Monday.</p>",
    })
}

/// That mail with fields replaced, or removed where the value is null.
fn changed(more: &Value) -> Value {
    let mut mail = resend_mail();
    for (name, value) in more.as_object().unwrap() {
        if value.is_null() {
            mail.as_object_mut().unwrap().remove(name);
        } else {
            mail[name] = value.clone();
        }
    }
    mail
}

fn id_of(response: &TestResponse) -> String {
    response.string_field("id")
}

async fn send_by_resend(world: &World, mail: &Value) -> TestResponse {
    world.post(RESEND, mail).await.expect_status(200)
}

async fn change_settings(world: &World, compat: Value) {
    world.call(patch("/v1/settings").json(&json!({ "compat": compat }))).await.expect_status(200);
}

/// What is changed in the second mail, and whether both are one mail.
fn pairs() -> Vec<(&'static str, Value, bool)> {
    let file = |name: &str, bytes: &str| json!([{ "filename": name, "content": bytes }]);
    vec![
        ("nothing", json!({}), true),
        ("a tag", json!({ "tags": [{ "name": "attempt", "value": "2" }] }), true),
        ("a header made anew", json!({ "headers": { "X-Entity-Ref-ID": "9f1c" } }), true),
        ("the sender's name", json!({ "from": "Your shop <agent@example.com>" }), true),
        ("the recipient's name", json!({ "to": ["Ann <ann@example.com>"] }), true),
        ("the case of the domain", json!({ "to": ["ann@EXAMPLE.com"] }), true),
        ("one recipient as text", json!({ "to": "ann@example.com" }), true),
        ("an empty cc list", json!({ "cc": [] }), true),
        ("an empty cc and schedule", json!({ "cc": "", "scheduled_at": "" }), true),
        ("reply_to", json!({ "reply_to": "desk@example.com" }), true),
        ("another subject", json!({ "subject": "Your order 4821!" }), false),
        ("another number", json!({ "subject": "Your order 4822" }), false),
        ("the case of the subject", json!({ "subject": "your order 4821" }), false),
        ("reworded", json!({ "text": "Hi Ann, your order 4821 has shipped and arrives on Monday." }), false),
        ("another link", json!({ "text": "Hello Ann, see https://shop.example/o/4822 for details." }), false),
        ("another date", json!({ "text": "Hello Ann, your order 4821 has shipped and arrives on Tuesday." }), false),
        (
            "white space at the end",
            json!({ "text": "Hello Ann, your order 4821 has shipped and arrives on Monday. See https://shop.example/o/4821 for details. " }),
            false,
        ),
        ("other HTML", json!({ "html": "<p>Hello Ann</p>" }), false),
        (
            "the markup alone",
            json!({ "html": "<div>Hello Ann, your order 4821 has shipped and arrives on Monday.</div>" }),
            false,
        ),
        ("no HTML", json!({ "html": null }), false),
        ("no text", json!({ "text": null }), false),
        ("another recipient", json!({ "to": ["bob@example.com"] }), false),
        ("one more recipient", json!({ "to": ["ann@example.com", "bob@example.com"] }), false),
        ("a cc recipient", json!({ "cc": ["bob@example.com"] }), false),
        ("a bcc recipient", json!({ "bcc": ["bob@example.com"] }), false),
        ("another sender", json!({ "from": "Shop <desk@example.com>" }), false),
        ("an attachment", json!({ "attachments": file("a.txt", "aGVsbG8=") }), false),
        ("a schedule", json!({ "scheduled_at": "2027-01-01T00:00:00Z" }), false),
        ("a plus address", json!({ "to": ["ann+shop@example.com"] }), false),
    ]
}

over_every_engine! {
    async fn of_pairs_of_mails_only_identical_ones_are_one_mail(world) {
        for (number, (what, change, is_one)) in pairs().into_iter().enumerate() {
            world.advance_clock(11 * MINUTE);
            let first = send_by_resend(&world, &resend_mail()).await;
            let second = send_by_resend(&world, &changed(&change)).await;
            assert_eq!(id_of(&first) == id_of(&second), is_one, "{number}: {what}");
        }
        // The order of several recipients and of attachments, and attachments that differ.
        let two = |first: &str, second: &str| changed(&json!({ "to": [first, second] }));
        let one = send_by_resend(&world, &two("ann@example.com", "bob@example.com")).await;
        let other = send_by_resend(&world, &two("bob@example.com", "ann@example.com")).await;
        assert_eq!(id_of(&one), id_of(&other), "the order of recipients");
        let file = |bytes: &str| changed(&json!({ "attachments": [{ "filename": "a.txt", "content": bytes }] }));
        let one = send_by_resend(&world, &file("aGVsbG8=")).await;
        assert_eq!(id_of(&one), id_of(&send_by_resend(&world, &file("aGVsbG8=")).await), "the same attachment");
        assert_ne!(id_of(&one), id_of(&send_by_resend(&world, &file("aGVsbG8h")).await), "another attachment");
    }

    async fn the_first_answers_until_its_window_ends(world) {
        let first = send_by_resend(&world, &resend_mail()).await;
        assert!(first.headers.get("idempotent-replayed").is_none());
        world.advance_clock(6 * MINUTE);
        let again = send_by_resend(&world, &resend_mail()).await;
        assert_eq!((id_of(&again), &again.headers["idempotent-replayed"]), (id_of(&first), &"true".parse().unwrap()));
        assert_eq!(again.headers["mailonce-replay-reason"], "identical");
        assert_eq!(world.hand_off_and_count_sent().await, 1);
        // Ten minutes after the first, not after its repetition.
        world.advance_clock(4 * MINUTE);
        assert_ne!(id_of(&send_by_resend(&world, &resend_mail()).await), id_of(&first));
        assert_eq!(world.hand_off_and_count_sent().await, 2);
    }

    async fn a_replay_is_in_the_timeline_the_events_and_the_metrics(world) {
        let first = send_by_resend(&world, &resend_mail()).await;
        send_by_resend(&world, &resend_mail()).await;
        world.engine.outbound.flush_suppressed_calls().await;
        let email = world.email(&id_of(&first)).await;
        assert_eq!(email["suppressed_calls"][0]["reason"], "identical", "{email}");
        let events = world.events().await;
        assert_eq!(events.last().unwrap()["type"], "email.duplicate");
    }

    async fn a_key_decides_where_there_is_one(world) {
        let keyed = |key: &str| post(RESEND).key(key).json(&resend_mail());
        let first = world.call(keyed("one")).await.expect_status(200);
        let other = world.call(keyed("two")).await.expect_status(200);
        assert_ne!(id_of(&first), id_of(&other));
        assert_ne!(id_of(&send_by_resend(&world, &resend_mail()).await), id_of(&first), "the first has a caller's key");
    }

    async fn a_retry_is_answered_although_a_check_would_refuse_it(world) {
        let first = send_by_resend(&world, &resend_mail()).await;
        let suppressed = json!({ "address": "ann@example.com" });
        world.post("/v1/suppressions", &suppressed).await.expect_status(201);
        assert_eq!(id_of(&send_by_resend(&world, &resend_mail()).await), id_of(&first));
        let other = changed(&json!({ "subject": "Another" }));
        assert_ne!(world.post(RESEND, &other).await.status, 200);
        let batch = world.post("/compat/resend/emails/batch", &json!([resend_mail()])).await.expect_status(200);
        assert_eq!(batch["data"][0]["id"], first["id"]);
    }

    async fn a_mail_that_was_cancelled_is_not_repeated(world) {
        let later = changed(&json!({ "scheduled_at": "2027-01-01T00:00:00Z" }));
        let first = send_by_resend(&world, &later).await;
        world.post(&format!("{RESEND}/{}/cancel", id_of(&first)), &json!({})).await.expect_status(200);
        assert_ne!(id_of(&send_by_resend(&world, &later).await), id_of(&first));
    }

    async fn a_batch_that_is_run_twice_is_sent_once(world) {
        let batch = json!([resend_mail(), resend_mail(), changed(&json!({ "to": ["bob@example.com"] }))]);
        let first = world.post("/compat/resend/emails/batch", &batch).await.expect_status(200);
        assert_ne!(first["data"][0]["id"], first["data"][1]["id"], "items of one batch are separate mails");
        let again = world.post("/compat/resend/emails/batch", &batch).await.expect_status(200);
        assert_eq!(again["data"], first["data"]);
        assert_eq!(world.hand_off_and_count_sent().await, 3);
    }

    async fn a_mail_that_was_resent_is_not_repeated(world) {
        let later = changed(&json!({ "scheduled_at": "2027-01-01T00:00:00Z" }));
        let first = id_of(&send_by_resend(&world, &later).await);
        world.post(&format!("{RESEND}/{first}/cancel"), &json!({})).await.expect_status(200);
        let resent = world.post(&format!("/v1/emails/{first}/resend"), &json!({ "reason": "wanted after all" })).await;
        let resent = resent.expect_status(202).string_field("id");
        assert_eq!(id_of(&send_by_resend(&world, &later).await), resent);
    }

    async fn a_team_chooses_what_happens(world) {
        let settings = world.get("/v1/settings").await.expect_status(200);
        assert_eq!(settings["compat"], json!({ "keyless": "replay", "window": "10m" }));
        change_settings(&world, json!({ "window": "2m" })).await;
        let first = send_by_resend(&world, &resend_mail()).await;
        world.advance_clock(3 * MINUTE);
        assert_ne!(id_of(&send_by_resend(&world, &resend_mail()).await), id_of(&first));
        change_settings(&world, json!({ "keyless": "hold" })).await;
        let held = world.post(RESEND, &changed(&json!({ "subject": "Your order 4821!" }))).await.expect_status(422);
        assert!(held.text.contains("held"), "{}", held.text);
        change_settings(&world, json!({ "keyless": "send" })).await;
        let count = world.email_count().await;
        send_by_resend(&world, &resend_mail()).await;
        assert_eq!(world.email_count().await, count + 1);
        change_settings(&world, json!({ "keyless": null, "window": null })).await;
        assert_eq!(world.get("/v1/settings").await["compat"], json!({ "keyless": "replay", "window": "10m" }));
        for (field, wrong) in [("keyless", "never"), ("window", "59s"), ("window", "2h"), ("window", "soon")] {
            let refused = world.call(patch("/v1/settings").json(&json!({ "compat": { field: wrong } }))).await;
            assert_eq!(refused.expect_problem(422, "invalid_field")["field"], format!("compat.{field}"));
        }
    }

    async fn the_other_dialects_do_the_same(world) {
        let mail = json!({ "from": "agent@example.com", "to": "ann@example.com", "subject": "Hi", "text": "Hello" });
        let path = "/compat/usesend/api/v1/emails";
        let first = world.post(path, &mail).await.expect_status(200);
        assert_eq!(world.post(path, &mail).await.expect_status(200)["emailId"], first["emailId"]);
        // One mail, whichever dialect it came through.
        assert_eq!(send_by_resend(&world, &mail).await["id"], first["emailId"]);
    }
}

//! Sends without a key through a dialect: an identical retry is answered with the first email, anything else is sent.

use mailonce_engine::EngineDeps;
use serde_json::{Value, json};

use crate::fixtures::{
    api_fixture::{MINUTE, World},
    requests::{TestResponse, patch, post},
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

/// What becomes of the second mail of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    One,
    Two,
    TwoFlagged,
}

impl Verdict {
    fn words(self) -> &'static str {
        match self {
            Self::One => "one mail",
            Self::Two => "two mails",
            Self::TwoFlagged => "two mails, the second flagged",
        }
    }
}

/// Two mails, as changes of the same one.
struct Pair {
    what: &'static str,
    first: Value,
    second: Value,
    verdict: Verdict,
}

fn file(name: &str, kind: &str, bytes: &str) -> Value {
    json!({ "attachments": [{ "filename": name, "content_type": kind, "content": bytes }] })
}

/// The pairs of `docs/dialects.md`.
fn pairs() -> Vec<Pair> {
    use Verdict::{One, Two, TwoFlagged};
    let mut all = Vec::new();
    let mut pair = |what, first, second, verdict| all.push(Pair { what, first, second, verdict });
    let text = |text: &str| json!({ "text": text });
    for (what, second, verdict) in [
        ("nothing", json!({}), One),
        ("a tag", json!({ "tags": [{ "name": "attempt", "value": "2" }] }), One),
        ("a header that is made anew", json!({ "headers": { "X-Entity-Ref-ID": "9f1c" } }), One),
        ("the sender's name", json!({ "from": "Your shop <agent@example.com>" }), One),
        ("the recipient's name", json!({ "to": ["Ann <ann@example.com>"] }), One),
        ("the case of the recipient's domain", json!({ "to": ["ann@EXAMPLE.com"] }), One),
        ("one recipient as a text instead of a list", json!({ "to": "ann@example.com" }), One),
        ("an empty list of cc recipients", json!({ "cc": [] }), One),
        ("an empty text as cc recipient and schedule", json!({ "cc": "", "scheduled_at": "" }), One),
        ("the reply address", json!({ "reply_to": "desk@example.com" }), One),
        ("a punctuation mark in the subject", json!({ "subject": "Your order 4821!" }), TwoFlagged),
        ("the case of the subject", json!({ "subject": "your order 4821" }), TwoFlagged),
        ("a number in the subject", json!({ "subject": "Your order 4822" }), Two),
        (
            "some words",
            text(
                "Hi Ann, your order 4821 has shipped and arrives on Monday. See https://shop.example/o/4821 for details.",
            ),
            TwoFlagged,
        ),
        ("most words", text("Good news: 4821 left our warehouse. https://shop.example/o/4821"), Two),
        (
            "a link",
            text(
                "Hello Ann, your order 4821 has shipped and arrives on Monday. See https://shop.example/o/4822 for details.",
            ),
            Two,
        ),
        (
            "a day of the week",
            text(
                "Hello Ann, your order 4821 has shipped and arrives on Tuesday. See https://shop.example/o/4821 for details.",
            ),
            TwoFlagged,
        ),
        (
            "white space at the end",
            text(
                "Hello Ann, your order 4821 has shipped and arrives on Monday. See https://shop.example/o/4821 for details. ",
            ),
            TwoFlagged,
        ),
        ("the HTML", json!({ "html": "<p>Hello Ann</p>" }), TwoFlagged),
        (
            "only the markup",
            json!({ "html": "<div>Hello Ann, your order 4821 has shipped and arrives on Monday.</div>" }),
            TwoFlagged,
        ),
        ("no HTML", json!({ "html": null }), TwoFlagged),
        ("no text", json!({ "text": null }), Two),
        ("another recipient", json!({ "to": ["bob@example.com"] }), Two),
        ("one more recipient", json!({ "to": ["ann@example.com", "bob@example.com"] }), Two),
        ("a plus address", json!({ "to": ["ann+shop@example.com"] }), Two),
        ("a cc recipient", json!({ "cc": ["bob@example.com"] }), TwoFlagged),
        ("a bcc recipient", json!({ "bcc": ["bob@example.com"] }), TwoFlagged),
        ("another sender", json!({ "from": "Shop <desk@example.com>" }), Two),
        ("an attachment more", file("a.pdf", "application/pdf", "aGVsbG8="), TwoFlagged),
        ("a schedule", json!({ "scheduled_at": "2027-01-01T00:00:00Z" }), TwoFlagged),
    ] {
        pair(what, json!({}), second, verdict);
    }
    all.extend(pairs_of_changed_mails());
    all
}

/// Pairs in which both mails differ from the usual one.
fn pairs_of_changed_mails() -> Vec<Pair> {
    use Verdict::{One, TwoFlagged};
    let mut all = Vec::new();
    let mut pair = |what, first, second, verdict| all.push(Pair { what, first, second, verdict });
    let (pdf, hello) = ("application/pdf", "aGVsbG8=");
    let (two, swapped) = (json!(["bob@example.com", "cid@example.com"]), json!(["cid@example.com", "bob@example.com"]));
    pair("the order of the recipients", json!({ "to": two }), json!({ "to": swapped }), One);
    pair("the order of the bcc recipients", json!({ "bcc": two }), json!({ "bcc": swapped }), One);
    pair("nothing, with the same attachment", file("a.pdf", pdf, hello), file("a.pdf", pdf, hello), One);
    pair("the content of the attachment", file("a.pdf", pdf, hello), file("a.pdf", pdf, "aGVsbG8h"), TwoFlagged);
    pair("the name of the attachment", file("a.pdf", pdf, hello), file("b.pdf", pdf, hello), TwoFlagged);
    pair("the type of the attachment", file("a.pdf", pdf, hello), file("a.pdf", "text/plain", hello), TwoFlagged);
    let at = |time: &str| json!({ "scheduled_at": time });
    let (utc, offset) = (at("2027-01-01T00:00:00Z"), at("2027-01-01T02:00:00+02:00"));
    pair("the time zone of the same schedule", utc.clone(), offset, One);
    pair("the time of the schedule", utc, at("2027-01-01T00:00:01Z"), TwoFlagged);
    all
}

#[test]
fn the_page_has_the_table_of_pairs() {
    let rows: Vec<String> =
        pairs().iter().map(|Pair { what, verdict, .. }| format!("| {what} | {} |\n", verdict.words())).collect();
    let table = format!("| what differs | the result |\n|---|---|\n{}", rows.concat());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/dialects.md");
    let page = std::fs::read_to_string(path).unwrap();
    assert!(rows.len() >= 30 && page.contains(&table), "docs/dialects.md needs this table:\n{table}");
    // The headline promises what the table shows, and says what it does not give.
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    for said in [
        "an identical retry within 10 minutes is one mail even without a key",
        "a re-worded retry without a key is a second mail",
        "idempotencyKey: `order-shipped/${order.id}`",
    ] {
        assert!(readme.contains(said), "README.md does not say: {said}");
    }
}

over_every_engine! {
    async fn of_pairs_of_mails_only_identical_ones_are_one_mail(world) {
        for Pair { what, first, second, verdict } in pairs() {
            world.advance_clock(11 * MINUTE);
            let first = send_by_resend(&world, &changed(&first)).await;
            let second = send_by_resend(&world, &changed(&second)).await;
            let email = world.email(&id_of(&second)).await;
            let found = if id_of(&first) == id_of(&second) {
                Verdict::One
            } else if email["guard"] == "looks_duplicate" {
                Verdict::TwoFlagged
            } else {
                Verdict::Two
            };
            assert_eq!(found, verdict, "{what}");
        }
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
        let is_replay = |entry: &Value| entry["description"] == "duplicate call via resend stopped: no key, same email";
        assert!(email["timeline"].as_array().unwrap().iter().any(is_replay), "{email}");
        let events = world.events().await;
        assert_eq!(events.last().unwrap()["type"], "email.duplicate");
        let metrics = world.get("/metrics").await.expect_status(200).text;
        let counted = |line: &&str| line.contains("deduplicated") && line.contains(r#"reason="identical""#);
        let line = metrics.lines().find(counted).unwrap_or_else(|| panic!("{metrics}"));
        assert!(line.ends_with(" 1"), "{line}");
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

    async fn the_items_of_a_batch_keep_their_ids_when_a_check_refuses_them(world) {
        let batch = json!([resend_mail(), resend_mail()]);
        let first = world.post("/compat/resend/emails/batch", &batch).await.expect_status(200);
        world.post("/v1/suppressions", &json!({ "address": "ann@example.com" })).await.expect_status(201);
        let again = world.post("/compat/resend/emails/batch", &batch).await.expect_status(200);
        assert_eq!(again["data"], first["data"]);
    }

    async fn an_item_of_a_batch_that_was_resent_keeps_its_place(world) {
        let later = changed(&json!({ "scheduled_at": "2027-01-01T00:00:00Z" }));
        let batch = json!([later, later]);
        let first = world.post("/compat/resend/emails/batch", &batch).await.expect_status(200);
        let second = first["data"][1]["id"].as_str().unwrap();
        world.post(&format!("{RESEND}/{second}/cancel"), &json!({})).await.expect_status(200);
        let resent = world.post(&format!("/v1/emails/{second}/resend"), &json!({ "reason": "wanted after all" })).await;
        let resent = resent.expect_status(202).string_field("id");
        let again = world.post("/compat/resend/emails/batch", &batch).await.expect_status(200);
        assert_eq!(again["data"], json!([{ "id": first["data"][0]["id"] }, { "id": resent }]));
        assert_eq!(world.email_count().await, 3);
    }

    async fn a_mail_that_is_nearly_equal_is_sent_and_flagged(world) {
        let first = send_by_resend(&world, &resend_mail()).await;
        let near = send_by_resend(&world, &changed(&json!({ "subject": "Your order 4821!" }))).await;
        assert_ne!(id_of(&near), id_of(&first));
        let email = world.email(&id_of(&near)).await;
        assert_eq!((&email["state"], &email["guard"]), (&json!("queued"), &json!("looks_duplicate")), "{email}");
        assert_eq!(world.hand_off_and_count_sent().await, 2);
    }

    async fn a_mail_that_is_nearly_equal_is_flagged_by_a_node_that_did_not_see_the_first(world) {
        let first = send_by_resend(&world, &resend_mail()).await;
        // Another engine over the same ledger remembers nothing of the first.
        let world = world.with_engine_deps(EngineDeps::default()).await;
        let near = send_by_resend(&world, &changed(&json!({ "subject": "Your order 4821!" }))).await;
        assert_ne!(id_of(&near), id_of(&first));
        let email = world.email(&id_of(&near)).await;
        assert_eq!((&email["state"], &email["guard"]), (&json!("queued"), &json!("looks_duplicate")), "{email}");
        let other = send_by_resend(&world, &changed(&json!({ "subject": "Your order 4822" }))).await;
        assert_eq!(world.email(&id_of(&other)).await["guard"], Value::Null);
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
        for mail in [resend_mail(), changed(&json!({ "subject": "Your order 4821!" }))] {
            let held = world.post(RESEND, &mail).await.expect_status(422);
            assert!(held.text.contains("held"), "{}", held.text);
        }
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
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("agent").await;
        let inbox = world.get(&format!("/v1/inboxes/{inbox}")).await.string_field("address");
        let path = format!("/compat/agentmail/v0/inboxes/{inbox}/messages/send");
        let mail = json!({ "to": "ann@example.com", "subject": "Hi", "text": "Hello" });
        let first = world.post(&path, &mail).await.expect_status(200);
        let again = world.post(&path, &mail).await.expect_status(200);
        assert_eq!((&again["message_id"], again.header("mailonce-replay-reason")), (&first["message_id"], Some("identical")));
        assert_eq!(world.email_count().await, 1);
        let mail = json!({ "from": "agent@example.com", "to": "ann@example.com", "subject": "Hi", "text": "Hello" });
        let path = "/compat/usesend/api/v1/emails";
        let first = world.post(path, &mail).await.expect_status(200);
        assert_eq!(world.post(path, &mail).await.expect_status(200)["emailId"], first["emailId"]);
        // One mail, whichever dialect it came through.
        assert_eq!(send_by_resend(&world, &mail).await["id"], first["emailId"]);
    }
}

//! The content guard: a reworded retry is held, and a merely similar mail is not.

use serde_json::{Value, json};

use crate::fixtures::{
    api_fixture::{MINUTE, World, mail, mail_with},
    conversations::{TestMail, reply_path, str_field},
    requests::{delete, patch, post},
};

fn mail_with_content(subject: &str, text: &str) -> Value {
    mail_with(json!({ "subject": subject, "text": text }))
}

over_every_engine! {
    async fn a_reworded_retry_without_a_key_is_held_until_its_token_releases_it(world) {
        world.send_without_key(&mail_with_content("Your order 4821", "Hello Ann, your order 4821 has shipped and arrives on Monday.")).await.expect_status(202);
        let again = mail_with_content("Your order 4821", "Hi Ann, your order 4821 has shipped and arrives on Monday!");
        let held = world.send_without_key(&again).await.expect_status(202);
        assert_eq!((&held["state"], &held["guard"]), (&json!("held"), &json!("looks_duplicate")));
        assert!(held["next"].as_str().unwrap().contains("distinct_token"));
        assert_eq!(world.hand_off_and_count_sent().await, 1);
        let token = held.string_field("distinct_token");
        let mut with_token = again.clone();
        with_token["distinct_token"] = json!(token);
        let other_recipient = mail_with(json!({ "to": "x@y.test", "distinct_token": token }));
        let refused = world.send_without_key(&other_recipient).await.expect_problem(422, "key_mismatch");
        assert!(refused.body.get("key").is_none() && !refused.text.contains("``"), "{}", refused.text);
        let mut other_text = mail_with_content("Your refund", "Hi Ann, your money is on its way back.");
        other_text["distinct_token"] = json!(token);
        let refused = world.send_without_key(&other_text).await.expect_problem(422, "key_mismatch");
        assert!(refused.string_field("detail").starts_with("the token belongs to a different email"), "{}", refused.text);
        assert_eq!((&refused["original_email"], &refused["differing_fields"]), (&held["id"], &json!(["subject", "text"])));
        assert_eq!(world.email(&held.string_field("id")).await["state"], "held", "nothing was released");
        let mut forged = with_token.clone();
        forged["distinct_token"] = json!(format!("{}0", &token[..token.len() - 1]));
        if forged["distinct_token"] != with_token["distinct_token"] {
            world.send_without_key(&forged).await.expect_problem(422, "invalid_field");
        }
        world.send("another key", &with_token).await.expect_problem(422, "key_mismatch");
        let other_team = world.create_team("strangers").await;
        world.call(post("/v1/emails").bearer(&other_team).json(&with_token)).await.expect_problem(422, "invalid_field");
        let released = world.send_without_key(&with_token).await.expect_status(200);
        assert_eq!((&released["id"], &released["state"]), (&held["id"], &json!("queued")));
        assert!(released.body.get("distinct_token").is_none());
        assert_eq!(world.hand_off_and_count_sent().await, 2);
        // A used token returns the same mail and creates no other.
        assert_eq!(world.send_without_key(&with_token).await.expect_status(200)["id"], held["id"]);
        assert_eq!((world.hand_off_and_count_sent().await, world.email_count().await), (2, 2));
        assert_eq!(world.escalations("").await[0]["state"], "moot");
    }

    async fn a_keyless_retry_of_a_keyed_mail_is_held(world) {
        world.send("k", &mail()).await.expect_status(202);
        assert_eq!(world.send_without_key(&mail()).await.expect_status(202)["guard"], "looks_duplicate");
    }

    async fn keyed_mails_are_only_flagged(world) {
        world.send("1", &mail()).await.expect_status(202);
        let second = world.send("2", &mail()).await.expect_status(202);
        assert_eq!((&second["state"], &second["guard"]), (&json!("queued"), &json!("looks_duplicate")));
        assert!(second.body.get("distinct_token").is_none());
        assert_eq!(world.hand_off_and_count_sent().await, 2);
        assert!(world.escalations("").await.is_empty());
        world.advance_clock(11 * MINUTE);
        assert!(world.send("3", &mail()).await.expect_status(202).body.get("guard").is_none());
    }

    async fn items_of_a_keyed_batch_are_compared_with_each_other(world) {
        let other = mail_with(json!({ "to": "else@example.com" }));
        let call = || post("/v1/emails/batch").key("b").json(&json!([mail(), other, mail(), mail()]));
        let rows = world.call(call()).await.expect_status(202).rows();
        let guards: Vec<Option<&str>> = rows.iter().map(|row| row["guard"].as_str()).collect();
        assert_eq!(guards, [None, None, Some("looks_duplicate"), Some("looks_duplicate")]);
        assert!(rows.iter().all(|row| row["state"] == "queued"), "{rows:?}");
        // A replay is not flagged again. A similar mail after the batch is flagged.
        let again = world.call(call()).await.expect_status(200).rows();
        assert_eq!(again[0]["guard"], rows[0]["guard"]);
        assert_eq!(world.send("k", &other).await.expect_status(202)["guard"], "looks_duplicate");
        assert_eq!((world.hand_off_and_count_sent().await, world.escalations("").await.len()), (5, 0));
    }

    async fn a_refused_batch_is_not_compared_with_later_mails(world) {
        let items = json!([mail(), mail_with(json!({ "to": "nobody" }))]);
        world.call(post("/v1/emails/batch").key("b").json(&items)).await.expect_problem(422, "invalid_field");
        assert!(world.send("k", &mail()).await.expect_status(202).body.get("guard").is_none());
    }

    async fn a_team_configures_the_content_guard(world) {
        let set = |keyed: &str, keyless: &str| json!({ "content_guard": { "keyed": keyed, "keyless": keyless } });
        world.call(patch("/v1/settings").json(&set("hold", "off"))).await.expect_status(200);
        world.send("1", &mail()).await.expect_status(202);
        let held = world.send("2", &mail()).await.expect_status(202);
        assert_eq!(held["state"], "held");
        let mut with_token = mail();
        with_token["distinct_token"] = held["distinct_token"].clone();
        let released = world.send("2", &with_token).await.expect_status(200);
        assert_eq!((&released["id"], &released["state"]), (&held["id"], &json!("queued")));
        assert!(world.send_without_key(&mail()).await.expect_status(202).body.get("guard").is_none());
        world.call(patch("/v1/settings").json(&set("loud", "off"))).await.expect_problem(422, "invalid_field");
    }

    async fn the_distinct_token_of_a_held_reply_releases_that_reply(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        world.call(patch("/v1/settings").json(&json!({ "content_guard": { "keyed": "hold" } }))).await.expect_status(200);
        let text = "We open at nine o'clock in the morning, every day of the week.";
        let first = world.receive_message(TestMail::default()).await;
        let second = world.receive_message(TestMail { id: "2", ..TestMail::default() }).await;
        let third = world.receive_message(TestMail { id: "3", ..TestMail::default() }).await;
        world.reply(&first, text).await.expect_status(202);
        let held = world.reply(&second, text).await.expect_status(202);
        assert_eq!((&held["state"], &held["guard"]), (&json!("held"), &json!("looks_duplicate")));
        let repeated = world.reply(&second, text).await.expect_status(200);
        for member in ["id", "guard", "distinct_token", "next"] {
            assert_eq!(repeated[member], held[member], "{}", repeated.text);
        }
        let others = world.reply(&second, "Never on Sundays.").await.expect_status(200);
        assert_eq!((&others["guard"], others.body.get("distinct_token")), (&json!("already_answered"), None));
        let agent = world.create_api_key(&json!({ "name": "another", "scopes": ["read", "reply", "send"] })).await;
        let other = post(&reply_path(&second)).bearer(&agent).json(&json!({ "text": text }));
        assert_eq!(world.call(other).await.expect_status(200)["guard"], "already_answered");
        let with_token = |text: &str| json!({ "text": text, "distinct_token": held["distinct_token"] });
        world.reply_with(&second, with_token("Never on Sundays.")).await.expect_problem(422, "key_mismatch");
        world.reply_with(&third, with_token(text)).await.expect_problem(422, "key_mismatch");
        world.reply_with(&third, json!({ "text": text, "distinct_token": "dt_made_up" })).await.expect_problem(422, "invalid_field");
        assert_eq!(world.hand_off_and_count_sent().await, 1);
        for _ in 0..2 {
            assert_eq!(world.reply_with(&second, with_token(text)).await.expect_status(200)["id"], held["id"]);
        }
        assert_eq!((world.hand_off_and_count_sent().await, world.email_count().await), (2, 2));
    }

    async fn a_distinct_token_bypasses_neither_cap_nor_lease(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        world.call(patch("/v1/settings").json(&json!({ "content_guard": { "keyed": "hold" } }))).await.expect_status(200);
        let text = "We open at nine o'clock in the morning, every day of the week.";
        let message = world.receive_message(TestMail::default()).await;
        let answer = |n: u32| json!({ "text": text, "follow_up": n });
        world.reply_with(&message, answer(0)).await.expect_status(202);
        for n in 1..3 {
            let held = world.reply_with(&message, answer(n)).await.expect_status(202);
            let mut with_token = answer(n);
            with_token["distinct_token"] = held["distinct_token"].clone();
            world.reply_with(&message, with_token).await.expect_status(200);
        }
        let fourth = world.reply_with(&message, answer(3)).await.expect_status(202);
        assert_eq!((&fourth["guard"], &fourth["holds"]), (&json!("cap"), &json!(["cap", "looks_duplicate"])), "{}", fourth.text);
        let mut confirmed = answer(3);
        confirmed["distinct_token"] = fourth["distinct_token"].clone();
        let capped = world.reply_with(&message, confirmed).await.expect_status(200);
        assert_eq!((&capped["state"], &capped["holds"]), (&json!("held"), &json!(["cap"])), "{}", capped.text);

        let other = world.receive_message(TestMail { id: "2", ..TestMail::default() }).await;
        let held = world.reply(&other, text).await.expect_status(202);
        assert_eq!(held["guard"], "looks_duplicate", "{}", held.text);
        let with_token = json!({ "text": text, "distinct_token": held["distinct_token"] });
        let lease = format!("/v1/threads/{}/lease", str_field(&other, "thread_id"));
        let taken = world.post(&lease, &json!({ "holder": "another" })).await.expect_status(201);
        world.reply_with(&other, with_token.clone()).await.expect_problem(409, "leased");
        world.call(delete(&lease).json(&json!({ "token": taken["token"] }))).await;
        world.reply_with(&other, with_token).await.expect_status(200);
        assert_eq!(world.hand_off_and_count_sent().await, 4);
    }

    async fn the_distinct_token_of_a_held_forward_releases_that_forward(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        world.call(patch("/v1/settings").json(&json!({ "content_guard": { "keyed": "hold" } }))).await.expect_status(200);
        let (first, second) = (world.receive_message(TestMail::default()).await, world.receive_message(TestMail { id: "2", ..TestMail::default() }).await);
        let path = |message: &Value| format!("/v1/messages/{}/forward", str_field(message, "id"));
        let mut body = json!({ "to": "boss@example.com", "text": "Please look at this." });
        world.post(&path(&first), &body).await.expect_status(202);
        let held = world.post(&path(&second), &body).await.expect_status(202);
        assert_eq!(held["guard"], "looks_duplicate", "{}", held.text);
        body["distinct_token"] = held["distinct_token"].clone();
        let released = world.post(&path(&second), &body).await.expect_status(200);
        assert_eq!((&released["id"], &released["state"]), (&held["id"], &json!("queued")));
        assert_eq!(world.hand_off_and_count_sent().await, 2);
    }

    async fn of_two_concurrent_look_alikes_one_is_held(world) {
        let mail = mail();
        let (one, two) = tokio::join!(world.send_without_key(&mail), world.send_without_key(&mail));
        let states = [one.expect_status(202)["state"].clone(), two.expect_status(202)["state"].clone()];
        assert!(states.contains(&json!("queued")) && states.contains(&json!("held")), "{states:?}");
        assert_eq!(world.hand_off_and_count_sent().await, 1);
    }

    async fn mails_with_different_periods_or_numbers_are_not_held(world) {
        let reminder = |period: &str| mail_with(json!({
            "subject": "Reminder", "text": "Please pay your invoice.",
            "intent": { "type": "invoice.reminder", "entity": "inv_7", "period": period },
        }));
        world.call(patch("/v1/settings").json(&json!({ "content_guard": { "keyed": "hold" } }))).await.expect_status(200);
        for week in ["2026-W46", "2026-W47", "2026-W48"] {
            assert_eq!(world.send_without_key(&reminder(week)).await.expect_status(202)["state"], "queued");
        }
        for build in [41, 42] {
            let text = format!("Build {build} failed on main. See https://ci.test/{build} for the log.");
            let sent = world.send_without_key(&mail_with_content(&format!("Build {build} failed"), &text)).await.expect_status(202);
            assert_eq!(sent["state"], "queued");
        }
        assert_eq!(world.hand_off_and_count_sent().await, 5);
    }

    async fn the_corpus_of_pairs_is_classified_as_labelled(world) {
        evaluate_corpus(&world).await;
    }
}

/// Sends each pair to its own recipients and prints how the guard judged it.
async fn evaluate_corpus(world: &World) {
    let pairs: Vec<(&str, &str, bool)> = CORPUS
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        .map(|line| {
            let mut parts = line.split('|').map(str::trim);
            let same = parts.next().unwrap() == "same";
            (parts.next().unwrap(), parts.next().expect("a pair has two mails"), same)
        })
        .collect();
    assert!(pairs.len() >= 60, "{} pairs", pairs.len());
    let (mut table, mut wrong) = ([[0; 2]; 2], Vec::new());
    for (at, (one, two, same)) in pairs.iter().enumerate() {
        let mail = |text: &str| {
            let (subject, text) = text.split_once("//").unwrap_or(("News", text));
            mail_with(json!({ "to": format!("u{at}@example.com"), "subject": subject.trim(), "text": text.trim() }))
        };
        world.send_without_key(&mail(one)).await.expect_status(202);
        let held = world.send_without_key(&mail(two)).await.expect_status(202)["state"] == "held";
        table[usize::from(*same)][usize::from(held)] += 1;
        if held != *same {
            wrong.push(format!(
                "{} though {}: {one} | {two}",
                if held { "held" } else { "sent" },
                if *same { "the same" } else { "two mails" }
            ));
        }
    }
    let [[passed, false_alarms], [missed, caught]] = table;
    println!("content guard over {} pairs", pairs.len());
    println!("                 held  sent");
    println!("re-worded retry  {caught:>4}  {missed:>4}");
    println!("two mails        {false_alarms:>4}  {passed:>4}");
    wrong.iter().for_each(|line| println!("  {line}"));
    // Some short mails that differ in one word are held. That is the price of catching reworded retries.
    assert!(false_alarms * 100 <= (false_alarms + passed) * 3, "too many distinct mails were held: {wrong:#?}");
    assert!(caught * 100 >= (caught + missed) * 85, "too many reworded retries were sent: {wrong:#?}");
}

const CORPUS: &str = include_str!("../fixtures/look_alikes.txt");

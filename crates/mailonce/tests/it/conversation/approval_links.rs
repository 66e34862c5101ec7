//! Approval links: one tap decides once, and only about the email that the page showed.

use mailonce_engine::EngineDeps;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::fixtures::{
    api_fixture::{World, mail_with},
    conversations::str_field,
    requests::{TestRequest, TestResponse, delete, get, patch, post},
};

const HOUR: i64 = 3_600_000;

/// Holds every email for approval, and sends one. Returns the email and its escalation.
pub(crate) async fn send_for_approval(world: &World, key: &str, subject: &str) -> (String, Value) {
    let mail = mail_with(json!({ "subject": subject, "text": "Dear <b>Ada</b>, pay & smile." }));
    let held = world.send(key, &mail).await.expect_status(202).string_field("id");
    assert_eq!(world.email(&held).await["state"], "held");
    let asked = world.get("/v1/escalations?state=open").await.expect_status(200).rows().remove(0);
    (held, asked)
}

pub(crate) async fn require_approval(world: &World) {
    let rule = json!({
        "name": "all", "direction": "outbound", "actions": [{ "type": "approve" }],
        "match": { "conditions": [{ "field": "subject", "operator": "contains", "value": "Invoice" }] },
    });
    world.post("/v1/rules", &rule).await.expect_status(201);
}

async fn add_person(world: &World, name: &str, role: &str) -> String {
    world.post("/v1/people", &json!({ "name": name, "role": role })).await.expect_status(201).string_field("id")
}

/// The path of a person's link to a question.
async fn link_path(world: &World, escalation: &Value, person: &str) -> String {
    let path = format!("/v1/escalations/{}/approval-links", str_field(escalation, "id"));
    let link = world.post(&path, &json!({ "person": person })).await.expect_status(201);
    let url = link.string_field("url");
    url[url.find("/a/").unwrap()..].to_owned()
}

/// Posts the form of a page, as a browser without scripts does.
pub(crate) async fn press(world: &World, path: &str, fields: &[(&str, &str)]) -> TestResponse {
    let form: String = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let call = post(path).anonymous().header("content-type", "application/x-www-form-urlencoded").raw_body(form);
    world.call(call).await
}

over_every_engine! {
    async fn one_tap_approves_once_and_the_second_is_told_who_did(world) {
        require_approval(&world).await;
        let (ada, bob) = (add_person(&world, "Ada", "approver").await, add_person(&world, "Bob", "admin").await);
        let (email, asked) = send_for_approval(&world, "k", "Invoice 7").await;
        let (hers, his) = (link_path(&world, &asked, &ada).await, link_path(&world, &asked, &bob).await);
        assert_ne!(hers, his);
        assert_eq!(link_path(&world, &asked, &ada).await, hers, "the same link again");
        for method in ["GET", "HEAD", "GET"] {
            let shown = world.call(TestRequest::new(method, &hers).anonymous()).await.expect_status(200);
            assert_eq!(shown.header("referrer-policy"), Some("same-origin"));
            assert!(shown.header("content-security-policy").unwrap().contains("frame-ancestors 'none'"));
        }
        let shown = world.call(get(&hers).anonymous()).await.text;
        for part in ["Approve this email?", "Invoice 7", "Dear &lt;b&gt;Ada&lt;/b&gt;, pay &amp; smile.", "You decide as <strong>Ada</strong>"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert_eq!(world.email(&email).await["state"], "held", "looking decides nothing");
        let done = press(&world, &hers, &[("as", "release"), ("rev", "1"), ("reason", "fine\r\nby me")]).await.expect_status(200);
        assert!(done.text.contains("Decided: Approve and send") && done.text.contains("<strong>Ada</strong>"), "{}", done.text);
        assert_ne!(world.email(&email).await["state"], "held");
        for (path, method) in [(&his, "reject"), (&hers, "reject")] {
            let late = press(&world, path, &[("as", method), ("rev", "1")]).await.expect_status(410);
            assert!(late.text.contains("<strong>Ada</strong> decided"), "{}", late.text);
        }
        let read = world.get(&format!("/v1/escalations/{}", str_field(&asked, "id"))).await.expect_status(200);
        assert_eq!((&read["decision"]["as"], &read["decided_by"], &read["decision"]["person"]), (&json!("release"), &json!("Ada"), &json!(ada)));
        let row = world.get("/v1/audit?limit=1000&action=escalation.decided").await.rows().remove(0);
        assert_eq!(row["actor"], json!({ "kind": "person", "id": ada }));
        let links = |action: &str| format!("/v1/audit?limit=1000&action=approval_link.{action}");
        assert_eq!(world.get(&links("created")).await.rows().len(), 2);
        assert_eq!(world.get(&links("shown")).await.rows().len(), 1, "whoever gets a link could decide in her name");
        let path = format!("/v1/escalations/{}/approval-links", str_field(&asked, "id"));
        world.post(&path, &json!({ "person": bob })).await.expect_problem(409, "not_open");
    }

    async fn attachments_can_be_read_while_the_link_is_open(world) {
        require_approval(&world).await;
        let ada = add_person(&world, "Ada", "approver").await;
        // The bytes are `<script>alert(1)</script>`. The name has a character that reverses the display order.
        let file = |name: &str, content: &str| json!({ "filename": name, "content_type": "text/html", "content": content });
        let files = [file("a<b>\u{202e}.html", "PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg=="), file("two.txt", "dHdv")];
        let mail = mail_with(json!({ "subject": "Invoice 7", "attachments": files }));
        world.send("k", &mail).await.expect_status(202);
        let asked = world.get("/v1/escalations?state=open").await.expect_status(200).rows().remove(0);
        let link = link_path(&world, &asked, &ada).await;
        let page = world.call(get(&link).anonymous()).await.expect_status(200).text;
        let token = link.strip_prefix("/a/").unwrap();
        assert!(page.contains(&format!("<a href=\"{token}/attachments/0\" download>Download a&lt;b&gt;\\u{{202e}}.html</a>")), "{page}");
        let read = async |number: &str| world.call(get(&format!("{link}/attachments/{number}")).anonymous()).await;
        let first = read("0").await.expect_status(200);
        assert_eq!(first.text, "<script>alert(1)</script>");
        assert_eq!(first.header("content-type"), Some("application/octet-stream"));
        assert!(first.header("content-disposition").unwrap().starts_with("attachment; "), "a browser would show it");
        assert_eq!(read("1").await.expect_status(200).text, "two");
        for number in ["2", "-1", "x", "99999999999999999999"] {
            read(number).await.expect_status(404);
        }
        let forged = link.replace(&token[token.len() - 4..], "0000");
        world.call(get(&format!("{forged}/attachments/0")).anonymous()).await.expect_status(404);
        press(&world, &link, &[("as", "reject"), ("rev", "1")]).await.expect_status(200);
        read("0").await.expect_status(404);
    }

    async fn of_two_who_tap_at_the_same_time_one_decides(world) {
        require_approval(&world).await;
        let (_, asked) = send_for_approval(&world, "k", "Invoice 7").await;
        let mut paths = Vec::new();
        for name in ["Ada", "Bob", "Eve"] {
            let person = add_person(&world, name, "approver").await;
            paths.push(link_path(&world, &asked, &person).await);
        }
        let mut taps = tokio::task::JoinSet::new();
        for (n, path) in paths.iter().enumerate() {
            let form = format!("rev=1&as={}", if n == 1 { "reject" } else { "release" });
            let call = post(path).anonymous().header("content-type", "application/x-www-form-urlencoded").raw_body(form);
            taps.spawn(world.router().oneshot(call.build("")));
        }
        let mut winners = std::collections::BTreeSet::new();
        for answer in taps.join_all().await {
            let text = TestResponse::from_response(answer.unwrap()).await.text;
            winners.insert(["Ada", "Bob", "Eve"].into_iter().find(|name| text.contains(&format!("<strong>{name}</strong> decided"))));
        }
        assert!(winners.len() == 1 && !winners.contains(&None), "{winners:?}");
        assert_eq!(world.get("/v1/audit?limit=1000&action=escalation.decided").await.rows().len(), 1);
    }

    async fn whoever_decides_too_late_by_the_api_is_told_who_did(world) {
        require_approval(&world).await;
        let ada = add_person(&world, "Ada", "approver").await;
        let (_, asked) = send_for_approval(&world, "k", "Invoice 7").await;
        press(&world, &link_path(&world, &asked, &ada).await, &[("as", "reject"), ("rev", "1")]).await.expect_status(200);
        let path = format!("/v1/escalations/{}/resolve", str_field(&asked, "id"));
        for rev in [1, 99] {
            let late = world.post(&path, &json!({ "as": "release", "rev": rev })).await.expect_problem(409, "not_open");
            assert_eq!((&late["decided_by"], &late["as"], &late["state"]), (&json!("Ada"), &json!("reject"), &json!("resolved")));
            assert!(late.string_field("detail").contains("Ada decided `reject`"), "{}", late.text);
        }
        let (_, asked) = send_for_approval(&world, "l", "Invoice 8").await;
        let path = format!("/v1/escalations/{}/resolve", str_field(&asked, "id"));
        world.post(&path, &json!({ "as": "release", "rev": 99 })).await.expect_problem(409, "stale_rev");
        world.post(&path, &json!({ "as": "release", "rev": 1 })).await.expect_status(200);
        let late = world.post(&path, &json!({ "as": "release", "rev": 1 })).await.expect_problem(409, "not_open");
        assert_eq!(late["decided_by"], "API key test");
    }

    async fn a_link_says_so_when_something_else_would_be_sent(world) {
        let world = world.with_inbox_domain().await;
        require_approval(&world).await;
        let ada = add_person(&world, "Ada", "approver").await;
        let inbox = world.create_inbox("desk").await;
        let raw = "From: ann@people.test\nReply-To: x@elsewhere.test\nMessage-ID: <1@p>\nSubject: Invoice 7\n\nWhat is it?\n";
        world.receive_mail(&["desk@agents.test"], raw).await;
        let messages = world.get(&format!("/v1/inboxes/{inbox}/messages")).await.expect_status(200);
        let message = messages.rows().remove(0)["id"].clone();
        let reply = format!("/v1/messages/{}/reply", message.as_str().unwrap());
        let held = world.post(&reply, &json!({ "text": "It is paid." })).await.expect_status(202);
        assert_eq!(held["state"], "held", "{}", held.text);
        let asked = world.get("/v1/escalations?state=open&reason=approval").await.expect_status(200).rows().remove(0);
        let path = link_path(&world, &asked, &ada).await;
        assert!(world.call(get(&path).anonymous()).await.expect_status(200).text.contains("elsewhere.test"));
        // Without the message nothing warns of the other address any more, so the page would show something else.
        let (store, now) = (world.engine.ctx.store(), world.engine.ctx.now());
        let team = store.teams().await.unwrap()[0].id;
        assert!(store.erase_message(team, message.as_str().unwrap().parse().unwrap(), now).await.unwrap());
        for _ in 0..2 {
            let shown = world.call(get(&path).anonymous()).await.expect_status(409);
            assert!(shown.text.contains("changed") && !shown.text.contains("<form"), "{}", shown.text);
            let sign_in = format!("href=\"/sign-in?next=%2Fneeds-you%2F{}\"", str_field(&asked, "id"));
            assert!(shown.text.contains(&sign_in), "{}", shown.text);
            press(&world, &path, &[("as", "release"), ("rev", "1")]).await.expect_status(409);
        }
        assert_eq!(world.email(&held.string_field("id")).await["state"], "held");
        let other = link_path(&world, &asked, &ada).await;
        assert_ne!(other, path);
        press(&world, &other, &[("as", "release"), ("rev", "1")]).await.expect_status(200);
    }

    async fn signing_out_everywhere_and_a_removal_end_the_links(world) {
        require_approval(&world).await;
        let (ada, bob) = (add_person(&world, "Ada", "approver").await, add_person(&world, "Bob", "approver").await);
        let (email, asked) = send_for_approval(&world, "k", "Invoice 7").await;
        let (hers, his) = (link_path(&world, &asked, &ada).await, link_path(&world, &asked, &bob).await);
        world.advance_clock(1);
        world.post(&format!("/v1/people/{ada}/sign-out"), &json!({})).await.expect_status(200);
        world.call(delete(&format!("/v1/people/{bob}"))).await.expect_status(200);
        for ended in [&hers, &his] {
            world.call(get(ended).anonymous()).await.expect_status(410);
            press(&world, ended, &[("as", "release"), ("rev", "1")]).await.expect_status(410);
        }
        assert_eq!(world.email(&email).await["state"], "held");
        world.advance_clock(1);
        let again = link_path(&world, &asked, &ada).await;
        assert_ne!(again, hers);
        press(&world, &again, &[("as", "release"), ("rev", "1")]).await.expect_status(200);
    }

    async fn a_person_edits_first_and_a_wrong_form_decides_nothing(world) {
        require_approval(&world).await;
        let ada = add_person(&world, "Ada", "approver").await;
        let (email, asked) = send_for_approval(&world, "k", "Invoice 7").await;
        let path = link_path(&world, &asked, &ada).await;
        for bad in [&[][..], &[("rev", "1")], &[("as", "release")], &[("as", "burn"), ("rev", "1")], &[("as", "sent"), ("rev", "1")]] {
            let again = press(&world, &path, bad).await.expect_status(422);
            assert!(again.text.contains("role=\"alert\"") && again.text.contains("Approve and send"), "{}", again.text);
        }
        assert_eq!(world.email(&email).await["state"], "held");
        press(&world, &path, &[("as", "edit"), ("rev", "1"), ("subject", "Invoice 8"), ("text", "Dear Ada,\r\nthank you.")]).await;
        let before = world.email(&email).await;
        let sent = world.email(str_field(&before, "resent_as")).await;
        assert_eq!((&sent["subject"], &sent["text"]), (&json!("Invoice 8"), &json!("Dear Ada,\nthank you.")), "{sent}");
    }

    async fn forged_old_and_withdrawn_links_say_so(world) {
        require_approval(&world).await;
        let (ada, bob) = (add_person(&world, "Ada", "approver").await, add_person(&world, "Bob", "approver").await);
        let (email, asked) = send_for_approval(&world, "k", "Invoice 7").await;
        let (hers, his) = (link_path(&world, &asked, &ada).await, link_path(&world, &asked, &bob).await);
        let id = hers.split('-').next().unwrap();
        let forged = format!("{}-{}", id, his.split_once('-').unwrap().1);
        for bad in [forged.as_str(), &hers[..hers.len() - 1], "/a/x", "/a/-", &hers.to_uppercase().replace("/A/", "/a/")] {
            world.call(get(bad).anonymous()).await.expect_status(404);
            press(&world, bad, &[("as", "release"), ("rev", "1")]).await.expect_status(404);
            // The body of whoever has no link is not read.
            press(&world, bad, &[("reason", &"x".repeat(5 << 20))]).await.expect_status(404);
        }
        let viewer = json!({ "rev": 1, "role": "viewer" });
        world.call(patch(&format!("/v1/people/{bob}")).json(&viewer)).await.expect_status(200);
        press(&world, &his, &[("as", "release"), ("rev", "1")]).await.expect_status(410);
        world.advance_clock(72 * HOUR);
        let expired = press(&world, &hers, &[("as", "release"), ("rev", "1")]).await.expect_status(410);
        let sign_in = format!("href=\"/sign-in?next=%2Fneeds-you%2F{}\"", str_field(&asked, "id"));
        assert!(expired.text.contains("has expired") && expired.text.contains(&sign_in), "{}", expired.text);
        assert_eq!(world.email(&email).await["state"], "held");
        assert_ne!(link_path(&world, &asked, &ada).await, hers, "an expired link is replaced");
        let path = format!("/v1/escalations/{}/approval-links", str_field(&asked, "id"));
        world.post(&path, &json!({ "person": bob })).await.expect_problem(422, "invalid_field").expect_field("person");
    }

    async fn the_page_keeps_the_reason_and_shows_what_ended_without_a_decision(world) {
        require_approval(&world).await;
        world.call(patch("/v1/settings").json(&json!({ "held_expires_after": "2h" }))).await.expect_status(200);
        let ada = add_person(&world, "Ada", "approver").await;
        let (_, asked) = send_for_approval(&world, "k", "Invoice 7").await;
        let path = link_path(&world, &asked, &ada).await;
        press(&world, &path, &[("as", "reject"), ("rev", "1"), ("reason", "not <b>ours</b>")]).await.expect_status(200);
        let late = world.call(get(&path).anonymous()).await.expect_status(410);
        assert!(late.text.contains("Decided: Reject") && late.text.contains("<pre>not &lt;b&gt;ours&lt;/b&gt;</pre>"), "{}", late.text);
        let read = world.get(&format!("/v1/escalations/{}", str_field(&asked, "id"))).await.expect_status(200);
        assert_eq!(read["decision"]["reason"], "not <b>ours</b>");

        let (email, asked) = send_for_approval(&world, "l", "Invoice 8").await;
        let path = link_path(&world, &asked, &ada).await;
        world.post(&format!("/v1/emails/{email}/cancel"), &json!({})).await.expect_status(200);
        world.engine.escalations.run_escalation_round().await;
        let moot = world.call(get(&path).anonymous()).await.expect_status(410);
        assert!(moot.text.contains("Nothing to decide any more.") && !moot.text.contains("<form"), "{}", moot.text);

        let (_, asked) = send_for_approval(&world, "m", "Invoice 9").await;
        let path = link_path(&world, &asked, &ada).await;
        world.advance_clock(3 * HOUR);
        world.engine.escalations.run_escalation_round().await;
        let over = world.call(get(&path).anonymous()).await.expect_status(410);
        assert!(over.text.contains("<strong>The deadline</strong> decided") && !over.text.contains("<form"), "{}", over.text);
    }

    async fn after_a_decision_the_page_links_the_next_waiting_email(world) {
        require_approval(&world).await;
        let ada = add_person(&world, "Ada", "approver").await;
        let mut paths = Vec::new();
        for n in 0..3 {
            let (_, asked) = send_for_approval(&world, &format!("k{n}"), &format!("Invoice {n}")).await;
            paths.push(link_path(&world, &asked, &ada).await);
        }
        assert!(!world.call(get(&paths[0]).anonymous()).await.expect_status(200).text.contains("/a/"), "a link shows no other");
        let first = press(&world, &paths[0], &[("as", "release"), ("rev", "1")]).await;
        assert!(first.text.contains("2 more wait") && first.text.contains(&format!("href=\"{}\"", paths[1])), "{}", first.text);
        let second = press(&world, &paths[1], &[("as", "reject"), ("rev", "1")]).await;
        assert!(second.text.contains("One more waits") && second.text.contains(&paths[2]), "{}", second.text);
        let last = press(&world, &paths[2], &[("as", "release"), ("rev", "1")]).await;
        assert!(!last.text.contains("wait"), "{}", last.text);
        let (_, asked) = send_for_approval(&world, "later", "Invoice, later").await;
        link_path(&world, &asked, &ada).await;
        for old in &paths {
            assert!(!world.call(get(old).anonymous()).await.expect_status(410).text.contains("/a/"), "an old link leads to no new one");
        }
    }

    async fn more_wait_than_those_of_the_newest_links_of_the_team(world) {
        let (ada, bob) = (add_person(&world, "Ada", "approver").await, add_person(&world, "Bob", "approver").await);
        let mut hers = Vec::new();
        for n in 0..103 {
            let question = json!({ "question": format!("May I do {n}?") });
            let asked = world.post("/v1/escalations", &question).await.expect_status(201).body;
            let person = if n < 2 { &ada } else { &bob };
            hers.push(link_path(&world, &asked, person).await);
        }
        let decided = press(&world, &hers[0], &[("as", "release"), ("rev", "1")]).await.expect_status(200);
        assert!(decided.text.contains("One more waits") && decided.text.contains(&hers[1]), "{}", decided.text);
    }

    async fn a_link_is_forgotten_a_week_after_it_expired(world) {
        require_approval(&world).await;
        let ada = add_person(&world, "Ada", "approver").await;
        let (_, asked) = send_for_approval(&world, "k", "Invoice 7").await;
        let path = link_path(&world, &asked, &ada).await;
        press(&world, &path, &[("as", "reject"), ("rev", "1")]).await.expect_status(200);
        let open_later = async |ms: i64| {
            world.advance_clock(ms);
            world.engine.notifications.run_notification_round().await;
            world.call(get(&path).anonymous()).await
        };
        let late = open_later(72 * HOUR + 7 * 24 * HOUR - 1).await.expect_status(410);
        assert!(late.text.contains("<strong>Ada</strong> decided"), "{}", late.text);
        open_later(HOUR).await.expect_status(404);
        let store = world.engine.ctx.store();
        let team = store.teams().await.unwrap()[0].id;
        let left = store.records(team, mailonce_core::record::RecordKind::ApprovalLink, None, 100).await.unwrap();
        assert!(left.rows.is_empty(), "{left:?}");
    }

    async fn an_agent_finds_no_link_and_cannot_make_one(world) {
        require_approval(&world).await;
        let ada = add_person(&world, "Ada", "approver").await;
        let (email, asked) = send_for_approval(&world, "k", "Invoice 7").await;
        let path = link_path(&world, &asked, &ada).await;
        let token = path.strip_prefix("/a/").unwrap();
        let agent = world.create_api_key(&json!({ "name": "agent", "scopes": ["send", "read", "reply", "approve"] })).await;
        let id = str_field(&asked, "id");
        let wish = post(&format!("/v1/escalations/{id}/approval-links")).bearer(&agent).json(&json!({ "person": ada }));
        world.call(wish).await.expect_problem(403, "wrong_scope");
        let escalation = format!("/v1/escalations/{id}");
        for path in ["/v1/emails", &format!("/v1/emails/{email}"), "/v1/events?limit=1000", "/v1/escalations", &escalation, "/v1/threads"] {
            let seen = world.call(get(path).bearer(&agent)).await.expect_status(200);
            assert!(!seen.text.contains(token) && !seen.text.contains("/a/"), "{path}: {}", seen.text);
        }
    }
}

/// A node whose clock is behind the database's does not open a link for longer.
#[tokio::test]
async fn a_link_expires_by_the_later_of_node_and_database_clock() {
    let world = World::postgres().await;
    let ada = add_person(&world, "Ada", "approver").await;
    let asked = world.post("/v1/escalations", &json!({ "question": "May I?" })).await.expect_status(201).body;
    let approval = link_path(&world, &asked, &ada).await;
    world.advance_clock(72 * HOUR - 600_000);
    let made = world.post(&format!("/v1/people/{ada}/sign-in-links"), &json!({})).await.expect_status(201);
    let url = made.string_field("url");
    let sign_in = &url[url.find("/sign-in/").unwrap()..];
    world.advance_clock(600_000);
    let behind = world.node_with_clock(-20_000, EngineDeps::default()).await;
    behind.handoffs.heartbeat_and_recover().await.unwrap();
    let router = mailonce::api::router(behind, false);
    for path in [approval.as_str(), sign_in] {
        let response = router.clone().oneshot(get(path).anonymous().build("")).await.unwrap();
        TestResponse::from_response(response).await.expect_status(410);
    }
}

/// Two nodes with connections of their own decide at the same moment, and each sees the decision of the other.
#[tokio::test]
async fn of_two_nodes_one_decides_and_the_other_says_who() {
    let world = World::postgres().await;
    let router = mailonce::api::router(world.node_with_own_store().await, false);
    let there = async |request: TestRequest| {
        TestResponse::from_response(router.clone().oneshot(request.build(world.secret())).await.unwrap()).await
    };
    require_approval(&world).await;
    let (ada, bob) = (add_person(&world, "Ada", "approver").await, add_person(&world, "Bob", "approver").await);
    for n in 0..5 {
        let (_, asked) = send_for_approval(&world, &format!("k{n}"), &format!("Invoice {n}")).await;
        let (hers, his) = (link_path(&world, &asked, &ada).await, link_path(&world, &asked, &bob).await);
        let tap = |path: &str, form: &str| {
            post(path).anonymous().header("content-type", "application/x-www-form-urlencoded").raw_body(form.to_owned())
        };
        let (first, second) =
            tokio::join!(world.call(tap(&hers, "as=release&rev=1")), there(tap(&his, "as=reject&rev=1")));
        let (winner, loser) =
            if first.text.contains("<strong>Ada</strong> decided") { ("Ada", "Bob") } else { ("Bob", "Ada") };
        for answer in [&first, &second] {
            assert!(answer.text.contains(&format!("<strong>{winner}</strong> decided")), "{}", answer.text);
            assert!(!answer.text.contains(&format!("<strong>{loser}</strong> decided")), "{}", answer.text);
        }
        let resolve = format!("/v1/escalations/{}/resolve", str_field(&asked, "id"));
        let late = there(post(&resolve).json(&json!({ "as": "release", "rev": 1 }))).await;
        assert_eq!(late.expect_problem(409, "not_open")["decided_by"], winner);
        let seen = there(get(&format!("/v1/escalations/{}", str_field(&asked, "id")))).await.expect_status(200);
        assert_eq!((&seen["state"], &seen["decided_by"]), (&json!("resolved"), &json!(winner)));
    }
}

/// Nodes do not remember who may decide: whoever was signed out, demoted or removed on one decides nothing on another.
#[tokio::test]
async fn a_link_ends_at_once_on_the_other_node() {
    let world = World::postgres().await;
    let router = mailonce::api::router(world.node_with_own_store().await, false);
    let there = async |request: TestRequest| {
        TestResponse::from_response(router.clone().oneshot(request.build("")).await.unwrap()).await
    };
    require_approval(&world).await;
    let (email, asked) = send_for_approval(&world, "k", "Invoice 7").await;
    for way in ["sign out", "demote", "remove"] {
        let ada = add_person(&world, way, "approver").await;
        let link = link_path(&world, &asked, &ada).await;
        there(get(&link).anonymous()).await.expect_status(200);
        world.advance_clock(1);
        let path = format!("/v1/people/{ada}");
        let end = match way {
            "sign out" => post(&format!("{path}/sign-out")).json(&json!({})),
            "demote" => patch(&path).json(&json!({ "rev": 1, "role": "viewer" })),
            _ => delete(&path),
        };
        world.call(end).await.expect_status(200);
        let form = post(&link).anonymous().header("content-type", "application/x-www-form-urlencoded");
        let refused = there(form.raw_body("as=release&rev=1")).await.expect_status(410);
        assert!(refused.text.contains("has expired"), "{way}: {}", refused.text);
        there(get(&link).anonymous()).await.expect_status(410);
    }
    assert_eq!(world.email(&email).await["state"], "held");
}

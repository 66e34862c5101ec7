//! Forged mail: false senders, replies that go to another domain, and duplicate headers.

use async_trait::async_trait;
use mailonce_core::{
    inbound::sender_auth::{AuthResult, SenderAuth, UnauthenticatedMail},
    ports::authenticator::Authenticator,
};
use mailonce_engine::EngineDeps;
use serde_json::{Value, json};
use std::sync::Arc;

use crate::fixtures::{
    api_fixture::World,
    conversations::{TestMail, str_field},
    requests::{get, patch, post},
};

/// Takes the verdict and domain from the headers `X-Verdict` and `X-Domain`. Without `X-Domain` it uses the domain of
/// `From`. Like many programs, it ends the header at the first blank line, even one with spaces.
struct HeaderAuthenticator;

#[async_trait]
impl Authenticator for HeaderAuthenticator {
    async fn authenticate(&self, mail: UnauthenticatedMail<'_>) -> SenderAuth {
        let text = String::from_utf8_lossy(mail.raw);
        let header = text.lines().take_while(|line| !line.trim().is_empty());
        let header_value =
            |name: &str| header.clone().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned());
        let verdict = header_value("X-Verdict: ").map_or(AuthResult::None, |word| AuthResult::parse(&word).unwrap());
        let domain =
            header_value("From: ").and_then(|from| Some(from.rsplit_once('@')?.1.trim_end_matches('>').to_owned()));
        SenderAuth { verdict, domain: header_value("X-Domain: ").or(domain), ..SenderAuth::default() }
    }
}

async fn with_authenticator(world: World) -> World {
    let deps = EngineDeps {
        local_domains: vec!["agents.test".into()],
        bounce_domain: Some("agents.test".into()),
        authenticator: Some(Arc::new(HeaderAuthenticator)),
        ..EngineDeps::default()
    };
    let world = world.with_engine_deps(deps).await;
    world.create_inbox("a").await;
    world
}

fn auth_headers(verdict: &str, more: &str) -> String {
    format!("X-Verdict: {verdict}\n{more}")
}

async fn refuse_foreign_reply_to(world: &World) {
    world.call(patch("/v1/settings").json(&json!({ "reply_to": "refuse" }))).await.expect_status(200);
}

over_memory_and_sqlite! {
    async fn a_reply_to_another_domain_is_flagged(world) {
        let world = with_authenticator(world).await;
        let head = auth_headers("pass", "Reply-To: boss@evil.example\n");
        let message = world.receive_message(TestMail { from: "boss@company.example", extra_headers: head, ..TestMail::default() }).await;
        let expected = json!({ "to": ["boss@evil.example"], "flags": ["other_domain"] });
        assert_eq!(message["reply_target"], expected, "{message}");
        let sent = world.reply(&message, "The password is …").await.expect_status(202);
        assert_eq!(sent["guard"], "reply_to", "{}", sent.text);
    }

    async fn an_approval_warns_that_the_reply_goes_to_another_domain(world) {
        let world = with_authenticator(world).await;
        let rule = json!({
            "name": "ask", "direction": "outbound", "actions": [{ "type": "approve" }],
            "match": { "operator": "all", "conditions": [{ "field": "recipient.domain", "operator": "is", "value": "evil.example" }] },
        });
        world.post("/v1/rules", &rule).await.expect_status(201);
        let head = auth_headers("pass", "Reply-To: boss@evil.example\n");
        let message = world.receive_message(TestMail { from: "boss@company.example", extra_headers: head, ..TestMail::default() }).await;
        let held = world.reply(&message, "The password is …").await.expect_status(202);
        assert_eq!(held["guard"], "approval");
        let escalation = world.escalations("state=open").await.remove(0);
        let path = format!("/v1/escalations/{}", str_field(&escalation, "id"));
        let read = world.get(&path).await.expect_status(200);
        let shown = str_field(&read["email"], "approval_text");
        let warning = "Warning:  This replies to a message from boss@company.example, but goes to boss@evil.example";
        assert!(shown.contains(warning), "{shown}");
        let decision = json!({ "as": "release", "rev": read["rev"], "digest": read["email"]["digest"] });
        world.post(&format!("{path}/resolve"), &decision).await.expect_status(200);
    }

    async fn a_team_can_refuse_replies_to_another_domain(world) {
        let world = with_authenticator(world).await;
        refuse_foreign_reply_to(&world).await;
        let head = auth_headers("pass", "Reply-To: boss@evil.example\n");
        let message = world.receive_message(TestMail { from: "boss@company.example", extra_headers: head, ..TestMail::default() }).await;
        let refused = world.reply(&message, "Fine.").await.expect_problem(409, "reply_to");
        assert_eq!((&refused["to"], &refused["guard"]), (&json!(["boss@evil.example"]), &json!("reply_to")));
        assert_eq!(world.email_count().await, 0);
        // A host of the same organization is not flagged.
        let head = auth_headers("pass", "Reply-To: desk@mail.company.example\n");
        let message = world.receive_message(TestMail { id: "2", from: "boss@company.example", extra_headers: head, ..TestMail::default() }).await;
        assert_eq!(message["reply_target"]["flags"], json!([]));
        world.reply(&message, "Fine.").await.expect_status(202);
    }

    async fn a_retried_reply_is_replayed_after_the_policy_changed(world) {
        let world = with_authenticator(world).await;
        let head = auth_headers("pass", "Reply-To: boss@evil.example\n");
        let message = world.receive_message(TestMail { from: "boss@company.example", extra_headers: head, ..TestMail::default() }).await;
        let path = format!("/v1/messages/{}/reply", str_field(&message, "id"));
        let reply = || world.call(post(&path).key("r").json(&json!({ "text": "Fine." })));
        let first = reply().await.expect_status(202).string_field("id");
        refuse_foreign_reply_to(&world).await;
        assert_eq!(reply().await.expect_status(200).string_field("id"), first);
    }

    async fn a_forged_sender_is_flagged_and_refused(world) {
        let world = with_authenticator(world).await;
        let message = world.receive_message(TestMail { extra_headers: auth_headers("fail", ""), ..TestMail::default() }).await;
        assert_eq!(message["reply_target"]["flags"], json!(["auth_failed"]));
        refuse_foreign_reply_to(&world).await;
        world.reply(&message, "Fine.").await.expect_problem(409, "reply_to");
    }

    async fn a_mail_with_a_duplicate_header_never_passes_authentication(world) {
        let world = with_authenticator(world).await;
        let value_of = |name| match name {
            "Date" => "Mon, 16 Nov 2026 10:00:00 +0000",
            "Content-Type" => "text/html",
            "Content-Transfer-Encoding" => "base64",
            "Content-Disposition" => "attachment",
            "MIME-Version" => "1.0",
            "In-Reply-To" | "References" | "Content-ID" => "<x@shop.test>",
            _ => "x@shop.test",
        };
        let twice = [
            "Subject", "Reply-To", "Date", "Bcc", "In-Reply-To", "References", "MIME-Version", "Content-Type",
            "Content-Transfer-Encoding", "Content-Disposition", "Content-ID", "Content-Description", "From",
        ];
        for (n, name) in twice.into_iter().enumerate() {
            let verdict = if name == "From" { "fail" } else { "none" };
            let value = value_of(name);
            let head = auth_headers("pass", &format!("{name}: {value}\n{name}: {value}\n"));
            let message = world.receive_message(TestMail { id: &format!("d{n}"), extra_headers: head, ..TestMail::default() }).await;
            assert_eq!(message["auth"]["verdict"], verdict, "{name}: {message}");
            assert!(message["flags"].to_string().contains("duplicate_header"), "{name}: {message}");
        }
        let clean = world.receive_message(TestMail { id: "clean", extra_headers: auth_headers("pass", ""), ..TestMail::default() }).await;
        assert_eq!((&clean["auth"]["verdict"], &clean["flags"]), (&json!("pass"), &json!([])));
    }

    async fn an_ambiguous_header_never_passes_authentication(world) {
        let world = with_authenticator(world).await;
        let stamp = |domain: &str| format!("X-Verdict: pass\nX-Domain: {domain}\n");
        let pad = format!("{}\n", " ".repeat(1_500)).repeat(24);
        let far = format!("From: ceo@bank.test\n{pad} <me@evil.test>\n{}", stamp("evil.test"));
        let signed = format!("{}{}From: news@bank.test\n", stamp("bank.test"), "X: n\n".repeat(500));
        let headers = [
            ("an address beyond the length limit of a field", far),
            ("a sender beyond the limit of header fields", format!("From: ceo@bank.test\n{signed}")),
            ("several domains", format!("From: ceo@bank.test, me@evil.test\n{}", stamp("evil.test"))),
            ("several domains, none of them checked", "From: ceo@bank.test, me@evil.test\n".to_owned()),
            ("another domain than the one that was checked", format!("From: ceo@bank.test\n{}", stamp("evil.test"))),
            ("two senders", "From: ceo@bank.test\nFrom: me@evil.test\nX-Verdict: none\n".to_owned()),
            ("a line that is no field above the sender that was checked", format!("From: ceo@bank.test\n<p>Your code is: 482913 <a href=\"https://evil.test/x\">\n{}From: news@bank.test\n", stamp("bank.test"))),
            ("a line that is no field above the only sender", format!("X Y: z\nFrom: ceo@bank.test\n{}", stamp("bank.test"))),
            ("a sender that was checked and is not shown", stamp("bank.test")),
            ("two addresses that run together", format!("From: <ceo@bank.test> <me@evil.test>\n{}", stamp("evil.test"))),
            ("an address with two domains", format!("From: ceo@bank.test@evil.test\n{}", stamp("evil.test"))),
        ];
        for (n, (name, header)) in headers.iter().enumerate() {
            let raw = format!("{header}Message-ID: <f{n}@bank.test>\nSubject: Your code\n\nYour code is 482913.\n");
            let message = world.receive_raw_message(&raw).await;
            assert_eq!(message["auth"]["verdict"], "fail", "{name}: {message}");
        }
        world.call(get("/v1/inboxes/a@agents.test/wait?timeout=0&from=ceo@bank.test")).await.expect_status(204);
        let honest = format!("From: ceo@bank.test\n{}Message-ID: <h@bank.test>\nSubject: Hi\n\nHi\n", stamp("bank.test"));
        assert_eq!(world.receive_raw_message(&honest).await["auth"]["verdict"], "pass");
        world.call(get("/v1/inboxes/a@agents.test/wait?timeout=0&from=ceo@bank.test")).await.expect_status(200);
    }

    async fn a_sender_that_was_not_checked_is_never_trusted(world) {
        let world = with_authenticator(world).await;
        world.post("/v1/lists/receive/allow?inbox=a@agents.test", &json!({ "entry": "ceo@bank.test" })).await.expect_status(201);
        let prefixes = ["\n", " \n", "\n>From foo\n", "From foo\n \n", " folded\n \n"];
        let raw = |n: usize| {
            let text = format!("Message-ID: <u{n}@bank.test>\nSubject: Your code\n\nYour code is 48291{n}.\n");
            format!("{}From: ceo@bank.test\n{text}", prefixes[n])
        };
        for n in 0..prefixes.len() {
            world.receive_mail(&["a@agents.test"], &raw(n)).await;
        }
        assert_eq!(world.get("/v1/inboxes/a@agents.test/messages").await.expect_status(200).rows().len(), 0);
        world.create_inbox("b").await;
        for (n, prefix) in prefixes.iter().enumerate() {
            world.receive_mail(&["b@agents.test"], &raw(n)).await;
            let row = world.get("/v1/inboxes/b@agents.test/messages?limit=1").await.expect_status(200).rows().remove(0);
            assert_eq!((&row["from"]["address"], &row["auth"]["verdict"]), (&json!("ceo@bank.test"), &json!("fail")), "{prefix:?}");
        }
        world.call(get("/v1/inboxes/b@agents.test/wait?timeout=0&from=ceo@bank.test")).await.expect_status(204);
        let consume = json!({ "type": "code", "for": "x", "match": { "from": "ceo@bank.test" } });
        world.post("/v1/inboxes/b@agents.test/consume", &consume).await.expect_problem(404, "not_found");
        // A mail without a sender address forges nobody.
        world.receive_mail(&["b@agents.test"], "From: nobody\nMessage-ID: <n@bank.test>\nSubject: Hi\n\nHi\n").await;
        let row = world.get("/v1/inboxes/b@agents.test/messages?limit=1").await.expect_status(200).rows().remove(0);
        assert_eq!(row["auth"]["verdict"], "none", "{row}");
    }

    async fn a_sender_is_shown_without_obsolete_spaces(world) {
        let world = with_authenticator(world).await;
        let raw = "From: Ceo <ceo @ bank . test>\nX-Verdict: pass\nX-Domain: bank.test\nMessage-ID: <s@bank.test>\nSubject: Hi\n\nHi\n";
        let message = world.receive_raw_message(raw).await;
        assert_eq!((&message["from"]["address"], &message["auth"]["verdict"]), (&json!("ceo@bank.test"), &json!("pass")), "{message}");
    }

    async fn a_forged_sender_does_not_match_the_allow_list(world) {
        let world = with_authenticator(world).await;
        world.post("/v1/lists/receive/allow", &json!({ "entry": "ann@shop.test" })).await.expect_status(201);
        let cases = [("1", "pass"), ("2", "none"), ("3", "fail")];
        for (id, verdict) in cases {
            let raw = TestMail { id, extra_headers: auth_headers(verdict, ""), ..TestMail::default() }.to_raw();
            world.receive_mail(&["a@agents.test"], &raw).await;
        }
        let rows = world.get("/v1/inboxes/a@agents.test/messages").await.expect_status(200).rows();
        let verdicts: Vec<&Value> = rows.iter().map(|row| &row["auth"]["verdict"]).collect();
        assert_eq!(verdicts, [&json!("none"), &json!("pass")]);
    }

    async fn a_wait_for_a_code_ignores_a_forged_sender(world) {
        let world = with_authenticator(world).await;
        let text = "Your verification code is 666666.";
        let forged = TestMail { subject: "Your code", text, extra_headers: auth_headers("fail", ""), ..TestMail::default() };
        world.receive_message(forged).await;
        let wait = "/v1/inboxes/a@agents.test/wait?timeout=0&from=ann@shop.test";
        world.call(get(wait)).await.expect_status(204);
        let consume = json!({ "type": "code", "for": "x", "match": { "from": "ann@shop.test" } });
        let taken = world.post("/v1/inboxes/a@agents.test/consume", &consume).await;
        taken.expect_problem(404, "not_found");
        let text = "Your verification code is 482913.";
        world.receive_message(TestMail { id: "2", subject: "Your code", text, extra_headers: auth_headers("none", ""), ..TestMail::default() }).await;
        world.call(get(wait)).await.expect_status(200);
        let taken = world.post("/v1/inboxes/a@agents.test/consume", &consume).await.expect_status(200);
        assert!(taken.text.contains("482913"), "{}", taken.text);
    }

    async fn a_code_of_an_authenticated_sender_comes_before_a_newer_one(world) {
        let world = with_authenticator(world).await;
        let watch = world.post("/v1/inboxes/a@agents.test/watches", &json!({})).await.expect_status(201).string_field("id");
        // Returns the id of the older message, which passed authentication.
        let receive_pair = async |n: &str, code: &str| {
            let mut ids = Vec::new();
            for (verdict, code) in [("pass", code.to_owned()), ("none", format!("99{}", &code[2..]))] {
                let (id, text) = (format!("{n}-{verdict}"), format!("Your verification code is {code}."));
                let extra_headers = auth_headers(verdict, "");
                let message = world.receive_message(TestMail { id: &id, subject: "Your code", text: &text, extra_headers, ..TestMail::default() }).await;
                assert_eq!(message["auth"]["verdict"], verdict, "{message}");
                ids.push(str_field(&message, "id").to_owned());
            }
            ids.swap_remove(0)
        };
        let older = receive_pair("1", "482913").await;
        for query in ["for=x".to_owned(), format!("watch={watch}"), format!("for=x&watch={watch}")] {
            let path = format!("/v1/inboxes/a@agents.test/wait?timeout=0&has=code&{query}");
            let found = world.get(&path).await.expect_status(200);
            assert_eq!(found["message"]["id"], older, "{query}: {}", found.text);
        }
        let consume = "/v1/inboxes/a@agents.test/consume";
        let taken = world.post(consume, &json!({ "type": "code", "for": "x" })).await.expect_status(200);
        assert_eq!(taken["artifact"]["value"], "482913", "{}", taken.text);
        // Another consumer gets what is left.
        let left = world.post(consume, &json!({ "type": "code", "for": "y" })).await.expect_status(200);
        assert_eq!(left["artifact"]["value"], "992913", "{}", left.text);

        receive_pair("2", "318406").await;
        let taken = world.post(consume, &json!({ "type": "code", "for": "z", "watch": watch })).await.expect_status(200);
        assert_eq!(taken["artifact"]["value"], "318406", "{}", taken.text);
    }

    async fn an_allow_list_entry_can_require_authentication(world) {
        let world = with_authenticator(world).await;
        let entry = json!({ "entry": "shop.test", "require_auth": true });
        assert_eq!(world.post("/v1/lists/receive/allow", &entry).await.expect_status(201)["require_auth"], true);
        for (id, verdict) in [("1", "pass"), ("2", "none"), ("3", "fail")] {
            let raw = TestMail { id, extra_headers: auth_headers(verdict, ""), ..TestMail::default() }.to_raw();
            world.receive_mail(&["a@agents.test"], &raw).await;
        }
        let rows = world.get("/v1/inboxes/a@agents.test/messages").await.expect_status(200).rows();
        let verdicts: Vec<&Value> = rows.iter().map(|row| &row["auth"]["verdict"]).collect();
        assert_eq!(verdicts, [&json!("pass")]);
        for list in ["receive/block", "send/allow"] {
            let refused = world.post(&format!("/v1/lists/{list}"), &entry).await;
            refused.expect_problem(422, "invalid_field").expect_field("require_auth");
        }
    }

    async fn a_rule_about_a_sender_does_not_match_a_forged_one(world) {
        let world = with_authenticator(world).await;
        let from = json!([{ "field": "from.domain", "operator": "is", "value": "shop.test" }]);
        let rule = |name: &str, require_auth: bool| {
            let matching = json!({ "conditions": from, "require_auth": require_auth });
            json!({ "name": name, "match": matching, "actions": [{ "type": "label", "value": name }] })
        };
        world.post("/v1/rules", &rule("known", false)).await.expect_status(201);
        let proven = world.post("/v1/rules", &rule("proven", true)).await.expect_status(201);
        assert_eq!(proven["match"]["require_auth"], true);
        for (id, verdict, labels) in [("1", "pass", json!(["known", "proven"])), ("2", "none", json!(["known"])), ("3", "fail", json!([]))] {
            let message = world.receive_message(TestMail { id, extra_headers: auth_headers(verdict, ""), ..TestMail::default() }).await;
            assert_eq!(message["labels"], labels, "{verdict}");
        }
        let out = json!({ "name": "out", "direction": "outbound", "match": { "conditions": from, "require_auth": true },
            "actions": [{ "type": "block" }] });
        world.post("/v1/rules", &out).await.expect_problem(422, "invalid_field").expect_field("match.require_auth");
        // A forged sender does not bypass a rule that blocks the claimed sender.
        let block = json!({ "name": "block", "match": { "conditions": from }, "actions": [{ "type": "block" }] });
        world.post("/v1/rules", &block).await.expect_status(201);
        let raw = TestMail { id: "4", extra_headers: auth_headers("fail", ""), ..TestMail::default() }.to_raw();
        world.receive_mail(&["a@agents.test"], &raw).await;
        assert_eq!(world.get("/v1/inboxes/a@agents.test/messages").await.expect_status(200).rows().len(), 3);
    }

    async fn a_watch_can_require_authentication(world) {
        let world = with_authenticator(world).await;
        let created = world.post("/v1/inboxes/a@agents.test/watches", &json!({ "require_auth": true })).await.expect_status(201);
        assert_eq!(created["require_auth"], true);
        let watch = created.string_field("id");
        let text = "Your verification code is 482913.";
        let code_mail = |id, verdict| TestMail { id, subject: "Your code", text, extra_headers: auth_headers(verdict, ""), ..TestMail::default() };
        let unknown = world.receive_message(code_mail("1", "none")).await;
        let wait = format!("/v1/inboxes/a@agents.test/wait?timeout=0&watch={watch}");
        world.call(get(&wait)).await.expect_status(204);
        let consume = json!({ "type": "code", "for": "x", "watch": watch });
        world.post("/v1/inboxes/a@agents.test/consume", &consume).await.expect_problem(404, "not_found");
        let message = world.get(&format!("/v1/messages/{}", str_field(&unknown, "id"))).await.expect_status(200);
        let artifact = message["artifacts"][0]["id"].as_str().unwrap().to_owned();
        let direct = json!({ "for": "x", "watch": watch });
        let refused = world.post(&format!("/v1/artifacts/{artifact}/consume"), &direct).await;
        refused.expect_problem(422, "invalid_field").expect_field("watch");
        world.receive_message(code_mail("2", "pass")).await;
        world.call(get(&wait)).await.expect_status(200);
        world.post("/v1/inboxes/a@agents.test/consume", &consume).await.expect_status(200);
    }
}

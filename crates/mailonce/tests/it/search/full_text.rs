//! Full-text search over outbound and received mail.

use mailonce_engine::EngineDeps;
use serde_json::{Value, json};
use url::form_urlencoded::byte_serialize;

use crate::fixtures::{
    api_fixture::{DAY, World, mail, mail_with},
    binary::{CliFixture, SpawnedServer, send_args},
    database::connect_client,
    requests::{TestResponse, delete, get, post},
};

const CODE_MAIL: &str = "From: Shop <no-reply@shop.test>\nTo: a@agents.test\nMessage-ID: <code-1@shop.test>\n\
    Subject: 482913 is your code\n\nWelcome back. Your verification code is 482 913. It is valid for ten minutes.\n";

fn path(query: &str) -> String {
    format!("/v1/search?q={}", byte_serialize(query.as_bytes()).collect::<String>())
}

async fn search(world: &World, query: &str) -> TestResponse {
    world.engine.search.index_all().await.unwrap();
    world.get(&path(query)).await
}

async fn found(world: &World, query: &str) -> Vec<String> {
    search(world, query).await.expect_status(200).ids()
}

async fn send(world: &World, key: &str, mail: &Value) -> String {
    world.send(key, mail).await.expect_status(202).string_field("id")
}

over_every_engine! {
    async fn both_directions_are_found_in_one_list(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        let email = send(&world, "order-4821", &mail_with(json!({ "text": "Your verification is done." }))).await;
        world.advance_clock(1_000);
        world.receive_mail(&["a@agents.test"], CODE_MAIL).await;
        let message = world.get(&format!("/v1/inboxes/{inbox}/messages")).await.expect_status(200).ids().remove(0);

        let rows = search(&world, "verification").await.expect_status(200).rows();
        assert_eq!((&rows[0]["kind"], &rows[0]["id"]), (&json!("message"), &json!(message)));
        assert_eq!((&rows[1]["kind"], &rows[1]["id"]), (&json!("email"), &json!(email)));
        assert_eq!(rows[1]["snippet"], "Your verification is done.");
        assert_eq!(rows[1]["at"], world.email(&email).await["created_at"]);
        let message_id = world.email(&email).await["message_id"].as_str().unwrap().to_owned();
        for (query, expected) in [
            (email.as_str(), vec![&email]),
            (message.as_str(), vec![&message]),
            ("key:order-4821", vec![&email]),
            ("key:order-4821 from:shop.test", vec![]),
            ("key:other", vec![]),
            (message_id.as_str(), vec![&email]),
            ("<code-1@shop.test>", vec![&message]),
            ("inbox:a@agents.test", vec![&message]),
            (&format!("inbox:{inbox} welcome"), vec![&message]),
            ("from:no-reply@shop.test has:code state:skipped", vec![&message]),
            ("to:user@example.com state:queued", vec![&email]),
            ("verification after:2026-11-15 before:2026-11-16", vec![&message, &email]),
            ("verification before:2026-11-15", vec![]),
            ("-welcome verification", vec![&email]),
        ] {
            assert_eq!(found(&world, query).await.iter().collect::<Vec<_>>(), expected, "{query}");
        }
        for (within, expected) in [("emails", vec![&email]), ("messages", vec![&message]), ("all", vec![&message, &email])] {
            let page = world.get(&format!("/v1/search?q=verification&in={within}")).await.expect_status(200).ids();
            assert_eq!(page.iter().collect::<Vec<_>>(), expected, "{within}");
        }
    }

    async fn codes_are_neither_found_nor_shown(world) {
        let world = world.with_inbox_domain().await;
        world.create_inbox("a").await;
        world.receive_mail(&["a@agents.test"], CODE_MAIL).await;

        for query in ["482913", "\"482 913\"", "482", "subject:482913"] {
            assert_eq!(found(&world, query).await, [""; 0], "{query}");
        }
        for query in ["welcome", "subject:code"] {
            let answer = search(&world, query).await.expect_status(200);
            assert_eq!(answer.rows().len(), 1, "{query}");
            assert!(!answer.text.contains("482") && !answer.text.contains("913"), "{}", answer.text);
        }
    }

    async fn deleted_mail_is_not_found(world) {
        let world = world.with_inbox_domain().await;
        let inbox = world.create_inbox("a").await;
        world.receive_mail(&["a@agents.test"], CODE_MAIL).await;
        let email = send(&world, "1", &mail_with(json!({ "text": "A secret plan." }))).await;
        world.hand_off_due().await;
        assert_eq!(found(&world, "secret").await, [email.as_str()]);
        assert_eq!(found(&world, "welcome").await.len(), 1);

        world.call(delete(&format!("/v1/inboxes/{inbox}"))).await.expect_status(200);
        assert_eq!(found(&world, "welcome").await, [""; 0]);
        world.advance_clock(31 * DAY);
        world.engine.ctx.confirm_time();
        world.engine.sweep().await;
        assert_eq!(found(&world, "secret").await, [""; 0]);
        assert_eq!(found(&world, "subject:order from:agent").await, [email.as_str()]);
    }

    async fn a_page_continues_with_its_cursor(world) {
        let mut sent = Vec::new();
        for n in 0..5 {
            world.advance_clock(10);
            sent.insert(0, send(&world, &n.to_string(), &mail()).await);
        }
        world.engine.search.index_all().await.unwrap();
        let (mut pages, mut query) = (Vec::new(), "/v1/search?q=order&limit=2".to_owned());
        loop {
            let page = world.get(&query).await.expect_status(200);
            pages.extend(page.ids());
            let Some(cursor) = page["next_cursor"].as_str() else { break };
            query = format!("/v1/search?q=order&limit=2&cursor={cursor}");
        }
        assert_eq!(pages, sent);
    }

    async fn bad_queries_get_a_problem(world) {
        for (query, detail) in [
            (path(""), "at least one term"),
            ("/v1/search".to_owned(), "at least one term"),
            (path("form:alice"), "`form:` is not a field; use from: to:"),
            (path("before:tomorrow"), "2026-11-17"),
            (path("state:gone"), "must be one of scheduled"),
            (path(&"a".repeat(513)), "at most 512"),
            (path(&"ab ".repeat(17)), "more than 16 terms"),
            (path("inbox:nobody@agents.test"), "is not an inbox of the team"),
            (path("key:ü"), "`key:`"),
            ("/v1/search?q=a&in=drafts".to_owned(), "in must be emails, messages or all"),
            ("/v1/search?q=a&limit=101".to_owned(), "limit must be 1 to 100"),
            ("/v1/search?q=a&cursor=-1".to_owned(), "next_cursor"),
            ("/v1/search?q=a&cursor=x".to_owned(), "next_cursor"),
        ] {
            let problem = world.get(&query).await.expect_problem(400, "invalid_query");
            assert!(problem.string_field("detail").contains(detail), "{query}: {}", problem.text);
        }
    }

    async fn a_key_of_an_inbox_finds_only_its_mail(world) {
        let world = world.with_inbox_domain().await;
        let (own, _other) = (world.create_inbox("own").await, world.create_inbox("other").await);
        for to in ["own@agents.test", "other@agents.test"] {
            world.receive_mail(&[to], &CODE_MAIL.replace("code-1", to)).await;
        }
        let from = |address: &str| mail_with(json!({ "from": address, "text": "Welcome." }));
        let email = send(&world, "1", &from("Own@agents.test")).await;
        send(&world, "2", &from("other@agents.test")).await;
        assert_eq!(found(&world, "welcome").await.len(), 4);

        let message = world.get(&format!("/v1/inboxes/{own}/messages")).await.expect_status(200).ids().remove(0);
        let key = world.create_api_key(&json!({ "name": "own", "scopes": ["read"], "inboxes": [own] })).await;
        let mut seen = world.call(get(&path("welcome")).bearer(&key)).await.expect_status(200).ids();
        seen.sort_unstable();
        let mut expected = vec![email, message];
        expected.sort_unstable();
        assert_eq!(seen, expected);
        world.call(get(&path("inbox:other@agents.test")).bearer(&key)).await.expect_problem(400, "invalid_query");
        let sender = world.create_api_key(&json!({ "name": "send", "scopes": ["send"] })).await;
        world.call(get(&path("welcome")).bearer(&sender)).await.expect_problem(403, "wrong_scope");
    }

    async fn with_sealed_bodies_only_addresses_and_subjects_are_found(world) {
        let local_domains = vec!["agents.test".to_owned()];
        let world = world.with_engine_deps(EngineDeps { local_domains, seal_bodies: true, ..EngineDeps::default() }).await;
        world.create_inbox("a").await;
        world.receive_mail(&["a@agents.test"], CODE_MAIL).await;
        let sealed = send(&world, "1", &mail_with(json!({ "text": "A secret plan." }))).await;
        for query in ["secret", "welcome", "plan"] {
            assert_eq!(found(&world, query).await, [""; 0], "{query}");
        }
        assert_eq!(found(&world, "from:agent@example.com order").await, [sealed.as_str()]);
        assert_eq!(found(&world, "from:shop.test subject:code").await.len(), 1);
    }

    async fn sealed_bodies_stay_unsearchable_when_sealing_ends(world) {
        let world = world.with_engine_deps(EngineDeps { seal_bodies: true, ..EngineDeps::default() }).await;
        let sealed = send(&world, "1", &mail_with(json!({ "text": "A secret plan." }))).await;
        let world = world.with_engine_deps(EngineDeps::default()).await;
        let open = send(&world, "2", &mail_with(json!({ "text": "An open plan." }))).await;
        assert_eq!(found(&world, "plan").await, [open.as_str()]);
        assert_eq!(found(&world, "order").await, [open, sealed]);
    }

    async fn search_can_be_turned_off(world) {
        let off = EngineDeps { search_enabled: false, ..EngineDeps::default() };
        let world = world.with_engine_deps(off).await;
        send(&world, "1", &mail()).await;
        let problem = world.get("/v1/search?q=order").await.expect_problem(403, "search_disabled");
        assert!(problem.string_field("next").contains("enabled = true"));
        let (_stop, stopped) = tokio::sync::watch::channel(false);
        std::sync::Arc::clone(&world.engine.search).run_indexer(stopped).await;
        // PostgreSQL numbers events when they are read.
        assert!(!world.events().await.is_empty());
        assert_eq!(world.engine.ctx.store().search_backlog(10).await.unwrap().len(), 1);

        let world = world.with_engine_deps(EngineDeps::default()).await;
        assert_eq!(found(&world, "order").await.len(), 1);
    }

    async fn text_of_html_and_names_of_files_are_found(world) {
        let html = "<p>An <b>invoice</b><script>alert(1)</script> for <i>you</i></p><div style='display:none'>hidden</div>";
        let file = json!([{ "filename": "report-7.pdf", "content": "aGk=", "content_type": "application/pdf" }]);
        let mut body = mail_with(json!({ "html": html, "attachments": file, "to": ["Bob Smith <bob@example.com>"] }));
        body.as_object_mut().unwrap().remove("text");
        let email = send(&world, "1", &body).await;
        for query in ["\"an invoice for you\"", "report-7.pdf has:attachment", "to:\"bob smith\""] {
            assert_eq!(found(&world, query).await, [email.as_str()], "{query}");
        }
        let answer = search(&world, "invoice").await.expect_status(200);
        assert!(!answer.text.contains('<') && !answer.text.contains("alert"), "{}", answer.text);
    }
}

/// Waits until a search of the running server finds this many mails.
async fn wait_for_hits(server: &SpawnedServer, query: &str, count: usize) {
    let bearer = format!("Bearer {}", server.api_key);
    for _ in 0..200 {
        let (status, page) = server.call("GET", &path(query), &[("authorization", &bearer)], "").await;
        assert_eq!(status, 200, "{page}");
        if page["data"].as_array().unwrap().len() == count {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("{query} does not find {count} mails");
}

#[tokio::test]
async fn a_killed_server_catches_up() {
    let home = CliFixture::new();
    let server = home.start_dev(&[("MAILONCE_SEARCH_ENABLED", "false")]).await;
    home.run(&send_args("k1", "the first parcel")).await.expect_exit(0);
    server.kill().await;
    let server = home.start_dev(&[]).await;
    wait_for_hits(&server, "parcel", 1).await;
    home.run(&send_args("k2", "the second parcel")).await.expect_exit(0);
    wait_for_hits(&server, "parcel", 2).await;
    server.kill().await;
    let server = home.start_dev(&[]).await;
    wait_for_hits(&server, "parcel", 2).await;
    let found = home.run(&["search", "parcel -first", "--in", "emails"]).await.expect_exit(0);
    assert_eq!(found.json()["data"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_team_whose_mail_cannot_be_indexed_delays_no_other_team() {
    let world = World::postgres().await;
    send(&world, "k", &mail()).await;
    for team in ["second", "third"] {
        let key = world.create_team(team).await;
        world.call(post("/v1/emails").key("k").bearer(&key).json(&mail())).await.expect_status(202);
    }
    let store = world.engine.ctx.store();
    for team in store.teams().await.unwrap() {
        // Events are numbered before they are read.
        store.events(team.id, 0, 1).await.unwrap();
    }
    let behind = store.search_backlog(10).await.unwrap();
    assert_eq!(behind.len(), 3);
    let database = connect_client(world.database_url().unwrap()).await;
    let damage = format!("UPDATE mailonce.emails SET head = 'damaged' WHERE team = '{}'", behind[0].team);
    assert_eq!(database.execute(&damage, &[]).await.unwrap(), 1);

    world.engine.search.index_all().await.unwrap_err();

    let left = store.search_backlog(10).await.unwrap();
    assert_eq!(left, behind[..1], "the teams after the damaged one are indexed in the same round");
}

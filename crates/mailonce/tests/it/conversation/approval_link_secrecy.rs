//! Approval links are shown to their addressees and to nobody else: no route, dialect, stream, tool, webhook, audit
//! export or log has one.

use http_body_util::BodyExt as _;
use mailonce_core::{handoff::reply::ReplyMeaning, ports::webhook_client::WebhookClient};
use mailonce_engine::{Engine, EngineDeps};
use serde_json::{Value, json};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tower::ServiceExt as _;

use crate::{
    access::tenant_isolation::{ROUTES, TeamResources},
    conversation::{
        approval_emails::{PUBLIC_URL, Relay, deps_with, link_in, set_emails},
        approval_links::{press, require_approval, send_for_approval},
        notification_targets::{RecordingClient, create_target},
    },
    fixtures::{
        api_fixture::World,
        requests::{TestRequest, get, post},
    },
};

/// What the server logged.
#[derive(Clone, Default)]
struct CapturedLog(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The secrets of links, which nobody but the addressees may see.
struct Secrets(Vec<String>);

impl Secrets {
    fn of(links: &[String]) -> Self {
        Self(links.iter().map(|link| link.rsplit_once('-').unwrap().1.to_owned()).collect())
    }

    #[track_caller]
    fn expect_absent(&self, place: &str, text: &str) {
        assert!(!self.0.iter().any(|secret| text.contains(secret)), "{place}: {text}");
    }
}

/// Everything that an event stream of this node sends, from the first event up to one of this type.
async fn read_stream(world: &World, node: Arc<Engine>, last: &str) -> String {
    let open = get("/v1/events/stream?after=0").build(world.secret());
    let response = mailonce::api::router(node, false).oneshot(open).await.unwrap();
    assert_eq!(response.status(), 200);
    let (mut body, mut text) = (response.into_body(), String::new());
    while !text.contains(last) {
        let frame = tokio::time::timeout(Duration::from_mins(1), body.frame()).await.expect("no data in time");
        text += std::str::from_utf8(frame.expect("the stream ended").unwrap().data_ref().unwrap()).unwrap();
    }
    text
}

/// What the routes with these methods answer to a key.
async fn call_routes(world: &World, (key, methods): (&str, &[&str]), own: &TeamResources, secrets: &Secrets) {
    for (method, path, _) in ROUTES.iter().filter(|(method, ..)| methods.contains(method)) {
        secrets.expect_absent(path, &world.call(own.request_for(method, path).bearer(key)).await.text);
    }
}

/// Lists of the dialects that every key with the scope `read` may read.
const DIALECT_LISTS: [&str; 3] = [
    "/compat/resend/emails",
    "/compat/usesend/api/v1/emails",
    "/compat/agentmail/v0/inboxes/owned@agents.test/messages",
];

/// What the dialects show.
async fn read_dialects(world: &World, key: &str, own: &TeamResources, secrets: &Secrets) {
    let TeamResources { email, inbox, message, thread, endpoint, .. } = own;
    let resend = [
        format!("emails/{email}"),
        format!("emails/{email}/attachments"),
        "emails/metrics".into(),
        "emails/receiving".into(),
        format!("emails/receiving/{message}"),
        "inboxes".into(),
        format!("inboxes/{inbox}"),
        format!("inboxes/{inbox}/threads"),
        format!("inboxes/{inbox}/threads/{thread}"),
        format!("inboxes/{inbox}/threads/{thread}/emails"),
        format!("inboxes/{inbox}/threads/{thread}/emails/{message}"),
        format!("inboxes/{inbox}/labels"),
        format!("inboxes/{inbox}/drafts"),
        "webhooks".into(),
        format!("webhooks/{endpoint}"),
        format!("webhooks/{endpoint}/events"),
        "domains".into(),
        "templates".into(),
        "api-keys".into(),
        "suppressions".into(),
    ];
    let usesend = [
        format!("emails/{email}"),
        "domains".into(),
        "analytics/email-time-series".into(),
        "analytics/reputation-metrics".into(),
    ];
    let agentmail = [
        "organizations",
        "auth/me",
        "pods",
        "inboxes",
        "inboxes/owned@agents.test",
        "inboxes/owned@agents.test/threads",
        "inboxes/owned@agents.test/drafts",
        "inboxes/owned@agents.test/metrics/events",
        "threads",
        "drafts",
        "webhooks",
        "api-keys",
        "domains",
        "metrics/events",
        "metrics/usage",
    ];
    let paths = DIALECT_LISTS.map(str::to_owned).into_iter();
    let paths = paths.chain(resend.map(|path| format!("/compat/resend/{path}")));
    let paths = paths.chain(usesend.map(|path| format!("/compat/usesend/api/v1/{path}")));
    for path in paths.chain(agentmail.map(|path| format!("/compat/agentmail/v0/{path}"))) {
        let answer = world.call(get(&path).bearer(key)).await;
        assert!(answer.status == 200 || !DIALECT_LISTS.contains(&path.as_str()), "{path}: {}", answer.text);
        secrets.expect_absent(&path, &answer.text);
    }
}

/// What models see.
async fn call_tools(world: &World, key: &str, own: &TeamResources, secrets: &Secrets) {
    for (tool, arguments) in [
        ("find_messages", json!({ "inbox": "owned@agents.test" })),
        ("read_message", json!({ "message": own.message })),
        ("get_outcome", json!({ "email": own.email })),
        ("ask_human", json!({ "entity": "x", "question": "Which links wait?" })),
        (
            "send_email",
            json!({ "to": "a@example.com", "subject": "Invoice 7", "text": "Pay.", "type": "invoice", "entity": "7" }),
        ),
        ("reply_email", json!({ "message": own.message, "text": "Which links wait?" })),
        ("resend_email", json!({ "email": own.email, "reason": "to see a link" })),
        ("wait_for_message", json!({ "inbox": "owned@agents.test", "timeout_s": 0 })),
        ("take_artifact", json!({ "type": "link", "for": "approvals", "inbox": "owned@agents.test", "timeout_s": 0 })),
        ("claim_thread", json!({ "thread": own.thread })),
    ] {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": tool, "arguments": arguments } });
        let call = post("/mcp").bearer(key).header("accept", "application/json, text/event-stream").json(&call);
        secrets.expect_absent(tool, &world.call(call).await.expect_status(200).text);
    }
}

/// A held email, and the approval links that were just sent about it.
struct AskedWorld {
    world: World,
    own: TeamResources,
    client: Arc<RecordingClient>,
    /// The link in the email to a person, and the one on the card of a target.
    links: [String; 2],
    secrets: Secrets,
}

impl AskedWorld {
    async fn create(world: World) -> Self {
        let (relay, client) = (Relay::new(), RecordingClient::new());
        let deps = EngineDeps { webhook_sender: Arc::clone(&client) as Arc<dyn WebhookClient>, ..deps_with(&relay) };
        let world = world.with_engine_deps(deps).await;
        require_approval(&world).await;
        let mut own = TeamResources::create(&world).await;
        set_emails(&world, json!({ "from": "desk@example.com" })).await;
        let eve = json!({ "name": "eve", "role": "approver", "address": "eve@people.example" });
        world.post("/v1/people", &eve).await.expect_status(201);
        create_target(&world, "slack").await;
        let (email, asked) = send_for_approval(&world, "held", "Invoice 7").await;
        (own.email, own.escalation) = (email, asked["id"].as_str().unwrap().to_owned());
        client.take();
        // A failure is logged, and so is what a request does.
        *relay.meaning.lock().unwrap() = ReplyMeaning::Refused;
        world.engine.notifications.run_notification_round().await;
        let posts = client.take();
        let card = posts.iter().find(|post| post.url.ends_with("/T0/secret")).expect("no card");
        let card: Value = serde_json::from_slice(&card.body).unwrap();
        let card = card["blocks"][1]["elements"][0]["url"].as_str().unwrap().strip_prefix(PUBLIC_URL).unwrap();
        let links = [link_in(&relay.take()[0].1), card.to_owned()];
        let secrets = Secrets::of(&links);
        Self { world, own, client, links, secrets }
    }

    /// Fails unless both links can still decide.
    async fn expect_open_links(&self) {
        for link in &self.links {
            for method in ["GET", "HEAD"] {
                self.world.call(TestRequest::new(method, link).anonymous()).await.expect_status(200);
            }
        }
    }
}

over_every_engine! {
    async fn no_route_dialect_or_tool_shows_a_link_that_can_still_decide(world) {
        let asked = AskedWorld::create(world).await;
        let AskedWorld { world, own, secrets, .. } = &asked;
        world.engine.search.index_all().await.unwrap();
        let agent = json!({ "name": "reader", "scopes": ["send", "read", "reply", "secrets"] });
        let approver = json!({ "name": "approver", "scopes": ["read", "approve"] });
        let keys = [world.create_api_key(&agent).await, world.create_api_key(&approver).await];
        for key in &keys {
            call_routes(world, (key, &["get"]), own, secrets).await;
            read_dialects(world, key, own, secrets).await;
            call_tools(world, key, own, secrets).await;
        }
        asked.expect_open_links().await;
        // Some of these cancel the email or decide the question.
        for key in &keys {
            call_routes(world, (key, &["post", "patch", "put"]), own, secrets).await;
        }
    }

    async fn no_route_stream_tool_webhook_or_log_shows_a_link(world) {
        let log = CapturedLog::default();
        let writer = log.clone();
        let capture = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_writer(move || writer.clone()).finish();
        let _guard = tracing::subscriber::set_default(capture);
        // Whether the server logs anything on this thread depends on how busy the machine is.
        tracing::info!("the log is captured");
        let asked = AskedWorld::create(world).await;
        asked.expect_open_links().await;
        let AskedWorld { world, own, client, links, secrets } = &asked;
        press(world, &links[0], &[("as", "burn"), ("rev", "1")]).await.expect_status(422);
        press(world, &links[0], &[("as", "reject"), ("rev", "1"), ("reason", "no")]).await.expect_status(200);
        press(world, &links[1], &[("as", "reject"), ("rev", "1")]).await.expect_status(410);

        world.engine.search.index_all().await.unwrap();
        let mut notices = String::new();
        // Notices about one subject are delivered one after another.
        for _ in 0..10 {
            world.engine.events.deliver_due_notices().await;
            client.take().iter().for_each(|post| notices += &String::from_utf8_lossy(&post.body));
        }
        assert!(notices.contains("escalation.resolved"), "{notices}");
        secrets.expect_absent("webhooks", &notices);
        // The streams of the first node were ended, so that its routes can be read completely.
        let node = world.second_engine(EngineDeps::default()).await;
        secrets.expect_absent("the event stream", &read_stream(world, node, "escalation.resolved").await);
        let agent = world.create_api_key(&json!({ "name": "reader", "scopes": ["send", "read", "reply", "secrets"] })).await;
        for key in [agent.as_str(), world.secret()] {
            call_routes(world, (key, &["get"]), own, secrets).await;
            call_tools(world, key, own, secrets).await;
        }
        read_dialects(world, world.secret(), own, secrets).await;
        call_routes(world, (&agent, &["post", "patch", "put"]), own, secrets).await;
        let audit = world.get("/v1/audit?limit=1000").await.expect_status(200);
        assert!(audit.text.contains("escalation.decided") && audit.rows().len() < 1_000, "{}", audit.text);
        secrets.expect_absent("the audit log", &audit.text);
        // What `mailonce audit export` prints.
        secrets.expect_absent("the audit export", &world.get("/v1/audit?after=0&limit=1000").await.expect_status(200).text);
        let log = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
        assert!(log.contains("the log is captured"), "{log}");
        secrets.expect_absent("the log", &log);
    }
}

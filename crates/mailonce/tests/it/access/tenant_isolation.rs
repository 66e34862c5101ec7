//! Tenant isolation on every documented route: without an API key, without scopes, and with another team's ids.

use mailonce_core::{
    access::team::{ApiKey, ApiKeyDetails},
    id::ApiKeyId,
    operation::IdempotentResult,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

use crate::{
    access::oauth::create_connection,
    fixtures::{
        api_fixture::{World, mail, mail_with},
        requests::{TestRequest, get, post},
    },
};

/// Who may call a route and what another team may see of it.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum RouteAccess {
    /// Needs no API key.
    Public,
    /// Takes no resource id: it lists or creates the caller's own resources.
    CallerScoped,
    /// Takes the id of a team's resource.
    ByResourceId,
    /// For operators, who see every team.
    Operator,
    /// For people who signed in: an API key has no session.
    Session,
}

/// Every documented route. A new one belongs here.
pub(crate) const ROUTES: &[(&str, &str, RouteAccess)] = &[
    ("post", "/v1/emails", RouteAccess::CallerScoped),
    ("get", "/v1/emails", RouteAccess::CallerScoped),
    ("post", "/v1/emails/batch", RouteAccess::CallerScoped),
    ("get", "/v1/emails/{id}", RouteAccess::ByResourceId),
    ("patch", "/v1/emails/{id}", RouteAccess::ByResourceId),
    ("get", "/v1/emails/{id}/attachments/{n}", RouteAccess::ByResourceId),
    ("post", "/v1/emails/{id}/cancel", RouteAccess::ByResourceId),
    ("post", "/v1/emails/{id}/resend", RouteAccess::ByResourceId),
    ("post", "/v1/emails/{id}/resolve", RouteAccess::ByResourceId),
    ("get", "/v1/transports", RouteAccess::CallerScoped),
    ("post", "/v1/transports/{name}/test", RouteAccess::Operator),
    ("post", "/v1/transports/{name}/reroute", RouteAccess::Operator),
    ("post", "/v1/handoff/pause", RouteAccess::Operator),
    ("post", "/v1/handoff/resume", RouteAccess::Operator),
    ("post", "/v1/clock/confirm", RouteAccess::Operator),
    ("get", "/v1/keys", RouteAccess::CallerScoped),
    ("get", "/v1/stats", RouteAccess::CallerScoped),
    ("get", "/v1/keys/{key}", RouteAccess::ByResourceId),
    ("patch", "/v1/keys/{key}", RouteAccess::ByResourceId),
    ("delete", "/v1/keys/{key}", RouteAccess::ByResourceId),
    ("get", "/v1/events", RouteAccess::CallerScoped),
    ("get", "/v1/events/stream", RouteAccess::CallerScoped),
    ("post", "/v1/endpoints", RouteAccess::CallerScoped),
    ("get", "/v1/endpoints", RouteAccess::CallerScoped),
    ("get", "/v1/endpoints/{id}", RouteAccess::ByResourceId),
    ("patch", "/v1/endpoints/{id}", RouteAccess::ByResourceId),
    ("delete", "/v1/endpoints/{id}", RouteAccess::ByResourceId),
    ("post", "/v1/endpoints/{id}/rotate", RouteAccess::ByResourceId),
    ("post", "/v1/endpoints/{id}/pause", RouteAccess::ByResourceId),
    ("post", "/v1/endpoints/{id}/resume", RouteAccess::ByResourceId),
    ("post", "/v1/endpoints/{id}/test", RouteAccess::ByResourceId),
    ("get", "/v1/endpoints/{id}/notices", RouteAccess::ByResourceId),
    ("post", "/v1/endpoints/{id}/recover", RouteAccess::ByResourceId),
    ("get", "/v1/notices/{id}", RouteAccess::ByResourceId),
    ("post", "/v1/notices/{id}/replay", RouteAccess::ByResourceId),
    ("post", "/v1/inboxes", RouteAccess::CallerScoped),
    ("get", "/v1/inboxes", RouteAccess::CallerScoped),
    ("get", "/v1/inboxes/{id}", RouteAccess::ByResourceId),
    ("patch", "/v1/inboxes/{id}", RouteAccess::ByResourceId),
    ("delete", "/v1/inboxes/{id}", RouteAccess::ByResourceId),
    ("post", "/v1/inboxes/{id}/rotate", RouteAccess::ByResourceId),
    ("get", "/v1/inboxes/{id}/messages", RouteAccess::ByResourceId),
    ("get", "/v1/inboxes/{id}/wait", RouteAccess::ByResourceId),
    ("post", "/v1/inboxes/{id}/watches", RouteAccess::ByResourceId),
    ("post", "/v1/inboxes/{id}/consume", RouteAccess::ByResourceId),
    ("get", "/v1/watches/{id}", RouteAccess::ByResourceId),
    ("post", "/v1/watches/{id}/resend", RouteAccess::ByResourceId),
    ("get", "/v1/messages/{id}", RouteAccess::ByResourceId),
    ("get", "/v1/messages/{id}/raw", RouteAccess::ByResourceId),
    ("get", "/v1/messages/{id}/attachments/{n}", RouteAccess::ByResourceId),
    ("get", "/v1/messages/{id}/artifacts", RouteAccess::ByResourceId),
    ("get", "/v1/artifacts/{id}", RouteAccess::ByResourceId),
    ("post", "/v1/artifacts/{id}/consume", RouteAccess::ByResourceId),
    ("post", "/v1/artifacts/{id}/applied", RouteAccess::ByResourceId),
    ("post", "/v1/messages/{id}/reply", RouteAccess::ByResourceId),
    ("post", "/v1/messages/{id}/forward", RouteAccess::ByResourceId),
    ("post", "/v1/messages/{id}/ack", RouteAccess::ByResourceId),
    ("post", "/v1/messages/{id}/nack", RouteAccess::ByResourceId),
    ("post", "/v1/messages/{id}/extend", RouteAccess::ByResourceId),
    ("post", "/v1/inboxes/{id}/next", RouteAccess::ByResourceId),
    ("get", "/v1/threads", RouteAccess::CallerScoped),
    ("get", "/v1/threads/{id}", RouteAccess::ByResourceId),
    ("patch", "/v1/threads/{id}", RouteAccess::ByResourceId),
    ("post", "/v1/threads/{id}/lease", RouteAccess::ByResourceId),
    ("delete", "/v1/threads/{id}/lease", RouteAccess::ByResourceId),
    ("get", "/v1/escalations", RouteAccess::CallerScoped),
    ("post", "/v1/escalations", RouteAccess::CallerScoped),
    ("get", "/v1/escalations/{id}", RouteAccess::ByResourceId),
    ("post", "/v1/escalations/{id}/resolve", RouteAccess::ByResourceId),
    ("get", "/v1/settings", RouteAccess::CallerScoped),
    ("patch", "/v1/settings", RouteAccess::CallerScoped),
    ("get", "/v1/deliveries", RouteAccess::CallerScoped),
    ("get", "/v1/deliveries/{id}", RouteAccess::ByResourceId),
    ("post", "/v1/deliveries/{id}/replay", RouteAccess::ByResourceId),
    ("post", "/v1/api-keys", RouteAccess::CallerScoped),
    ("get", "/v1/api-keys", RouteAccess::CallerScoped),
    ("delete", "/v1/api-keys/{id}", RouteAccess::ByResourceId),
    ("post", "/v1/domains", RouteAccess::CallerScoped),
    ("get", "/v1/domains", RouteAccess::CallerScoped),
    ("get", "/v1/domains/{id}", RouteAccess::ByResourceId),
    ("delete", "/v1/domains/{id}", RouteAccess::ByResourceId),
    ("post", "/v1/domains/{id}/verify", RouteAccess::ByResourceId),
    ("post", "/v1/suppressions", RouteAccess::CallerScoped),
    ("get", "/v1/suppressions", RouteAccess::CallerScoped),
    ("get", "/v1/suppressions/{address}", RouteAccess::ByResourceId),
    ("delete", "/v1/suppressions/{address}", RouteAccess::ByResourceId),
    ("post", "/v1/budgets", RouteAccess::CallerScoped),
    ("get", "/v1/budgets", RouteAccess::CallerScoped),
    ("get", "/v1/budgets/{id}", RouteAccess::ByResourceId),
    ("patch", "/v1/budgets/{id}", RouteAccess::ByResourceId),
    ("delete", "/v1/budgets/{id}", RouteAccess::ByResourceId),
    ("post", "/v1/templates", RouteAccess::CallerScoped),
    ("get", "/v1/templates", RouteAccess::CallerScoped),
    ("get", "/v1/templates/{name}", RouteAccess::ByResourceId),
    ("patch", "/v1/templates/{name}", RouteAccess::ByResourceId),
    ("delete", "/v1/templates/{name}", RouteAccess::ByResourceId),
    ("post", "/v1/templates/{name}/preview", RouteAccess::ByResourceId),
    ("post", "/v1/templates/{name}/validate", RouteAccess::ByResourceId),
    ("get", "/v1/search", RouteAccess::CallerScoped),
    ("post", "/v1/policy/simulate", RouteAccess::CallerScoped),
    ("get", "/v1/outboxes", RouteAccess::CallerScoped),
    ("get", "/v1/outboxes/{name}/parked", RouteAccess::ByResourceId),
    ("post", "/v1/parked/{id}/replay", RouteAccess::ByResourceId),
    ("post", "/v1/claims", RouteAccess::CallerScoped),
    ("get", "/v1/claims", RouteAccess::CallerScoped),
    ("get", "/v1/claims/{id}", RouteAccess::ByResourceId),
    ("post", "/v1/claims/{id}/begin", RouteAccess::ByResourceId),
    ("post", "/v1/claims/{id}/renew", RouteAccess::ByResourceId),
    ("post", "/v1/claims/{id}/complete", RouteAccess::ByResourceId),
    ("post", "/v1/claims/{id}/fail", RouteAccess::ByResourceId),
    ("post", "/v1/claims/{id}/evidence", RouteAccess::ByResourceId),
    ("post", "/v1/claims/{id}/resolve", RouteAccess::ByResourceId),
    ("post", "/v1/stops", RouteAccess::CallerScoped),
    ("get", "/v1/stops", RouteAccess::CallerScoped),
    ("delete", "/v1/stops/{id}", RouteAccess::ByResourceId),
    ("post", "/v1/erasures", RouteAccess::CallerScoped),
    ("get", "/v1/erasures", RouteAccess::CallerScoped),
    ("get", "/v1/erasures/{id}", RouteAccess::ByResourceId),
    ("delete", "/v1/messages/{id}", RouteAccess::ByResourceId),
    ("delete", "/v1/threads/{id}", RouteAccess::ByResourceId),
    ("get", "/v1/audit", RouteAccess::CallerScoped),
    ("post", "/v1/rules", RouteAccess::CallerScoped),
    ("get", "/v1/rules", RouteAccess::CallerScoped),
    ("get", "/v1/rules/{id}", RouteAccess::ByResourceId),
    ("patch", "/v1/rules/{id}", RouteAccess::ByResourceId),
    ("delete", "/v1/rules/{id}", RouteAccess::ByResourceId),
    ("post", "/v1/lists/{direction}/{type}", RouteAccess::CallerScoped),
    ("get", "/v1/lists/{direction}/{type}", RouteAccess::CallerScoped),
    ("delete", "/v1/lists/{direction}/{type}/{entry}", RouteAccess::ByResourceId),
    ("post", "/v1/sources", RouteAccess::CallerScoped),
    ("get", "/v1/sources", RouteAccess::CallerScoped),
    ("get", "/v1/sources/{id}", RouteAccess::ByResourceId),
    ("delete", "/v1/sources/{id}", RouteAccess::ByResourceId),
    ("post", "/v1/sources/{id}/rotate", RouteAccess::ByResourceId),
    ("get", "/u/{token}", RouteAccess::Public),
    ("post", "/u/{token}", RouteAccess::Public),
    ("post", "/hooks/{source_id}", RouteAccess::Public),
    ("get", "/hooks/{source_id}", RouteAccess::Public),
    ("post", "/v1/teams", RouteAccess::Operator),
    ("get", "/v1/teams", RouteAccess::Operator),
    ("patch", "/v1/teams/{id}", RouteAccess::Operator),
    ("post", "/v1/people", RouteAccess::CallerScoped),
    ("get", "/v1/people", RouteAccess::CallerScoped),
    ("get", "/v1/people/{id}", RouteAccess::ByResourceId),
    ("patch", "/v1/people/{id}", RouteAccess::ByResourceId),
    ("delete", "/v1/people/{id}", RouteAccess::ByResourceId),
    ("post", "/v1/people/{id}/sign-out", RouteAccess::ByResourceId),
    ("post", "/v1/people/{id}/sign-in-links", RouteAccess::ByResourceId),
    ("post", "/v1/escalations/{id}/approval-links", RouteAccess::ByResourceId),
    ("post", "/v1/notification-targets", RouteAccess::CallerScoped),
    ("get", "/v1/notification-targets", RouteAccess::CallerScoped),
    ("delete", "/v1/notification-targets/{id}", RouteAccess::ByResourceId),
    ("post", "/v1/notification-targets/{id}/test", RouteAccess::ByResourceId),
    ("get", "/v1/connections", RouteAccess::CallerScoped),
    ("delete", "/v1/connections/{id}", RouteAccess::ByResourceId),
    ("get", "/v1/session", RouteAccess::Session),
    ("patch", "/v1/session", RouteAccess::Session),
    ("delete", "/v1/session", RouteAccess::Session),
    ("get", "/healthz", RouteAccess::Public),
    ("get", "/readyz", RouteAccess::Public),
    ("get", "/metrics", RouteAccess::Public),
    ("get", "/openapi.json", RouteAccess::Public),
    ("get", "/llms.txt", RouteAccess::Public),
    ("get", "/docs", RouteAccess::Public),
    ("get", "/docs/errors/{code}", RouteAccess::Public),
];

/// The resources of the first team.
pub(crate) struct TeamResources {
    pub(crate) email: String,
    key: String,
    pub(crate) api_key: String,
    team: String,
    domain: String,
    source: String,
    pub(crate) inbox: String,
    pub(crate) message: String,
    artifact: String,
    delivery: String,
    watch: String,
    budget: String,
    person: String,
    target: String,
    template: String,
    claim: String,
    stop: String,
    rule: String,
    pub(crate) endpoint: String,
    notice: String,
    pub(crate) thread: String,
    pub(crate) escalation: String,
    erasure: String,
    connection: String,
}

/// A mail for the first team's inbox.
const CODE_MAIL: &str =
    "From: x@shop.test\nMessage-ID: <1@x>\nSubject: Your code\n\nYour verification code is 482913.\n";

/// An address on the first team's suppression list.
const SUPPRESSED_ADDRESS: &str = "gone@example.com";
/// The token that authenticates webhooks of the first team's source.
const TOKEN: &str = "0123456789abcdef";

/// The request body of a source.
fn source_body(name: &str) -> Value {
    json!({ "name": name, "kind": "postmark", "transport": "sandbox", "auth_header": { "name": "x-token", "value": TOKEN } })
}

fn template_body(name: &str) -> Value {
    json!({ "name": name, "subject": "Hello", "text": "Thank you." })
}

/// The request body of a notification target.
fn target_body(name: &str) -> Value {
    json!({ "name": name, "kind": "webhook", "url": "https://hooks.example.com/approve" })
}

/// The request body of a budget.
fn budget_body(name: &str) -> Value {
    json!({ "name": name, "scope": { "team": true }, "measure": "mails", "per": "day", "limit": 100_000 })
}

/// The request body of a rule.
fn rule_body(name: &str) -> Value {
    let never = json!({ "field": "subject", "operator": "is", "value": "never" });
    json!({ "name": name, "match": { "conditions": [never] }, "actions": [{ "type": "mark_read" }] })
}

impl TeamResources {
    pub(crate) async fn create(world: &World) -> Self {
        let later = mail_with(json!({ "scheduled_at": "in 1 hour" }));
        let hook = json!({ "url": "https://hooks.example.com/in" });
        let endpoint = world.post("/v1/endpoints", &hook).await.expect_status(201).string_field("id");
        let email = world.send("k", &later).await.expect_status(202).string_field("id");
        let api_key =
            world.post("/v1/api-keys", &json!({ "name": "worker" })).await.expect_status(201).string_field("id");
        let team = world.get("/v1/teams").await.expect_status(200).rows()[0]["id"].as_str().unwrap().to_owned();
        let domain =
            world.post("/v1/domains", &json!({ "name": "example.com" })).await.expect_status(201).string_field("id");
        let source = world.post("/v1/sources", &source_body("first")).await.expect_status(201).string_field("id");
        world.post("/v1/suppressions", &json!({ "address": SUPPRESSED_ADDRESS })).await.expect_status(201);
        world.post("/v1/lists/receive/block", &json!({ "entry": "stranger.example" })).await.expect_status(201);
        let budget = world.post("/v1/budgets", &budget_body("first")).await.expect_status(201).string_field("id");
        let person = json!({ "name": "Ada", "role": "approver" });
        let person = world.post("/v1/people", &person).await.expect_status(201).string_field("id");
        let target =
            world.post("/v1/notification-targets", &target_body("first")).await.expect_status(201).string_field("id");
        let template = world.post("/v1/templates", &template_body("first")).await.expect_status(201).string_field("id");
        let claim = json!({ "key": "claimed", "lease_s": 60 });
        let claim = world.post("/v1/claims", &claim).await.expect_status(201).string_field("id");
        let stopped_key = json!({ "scope": { "api_key": api_key } });
        let stop = world.post("/v1/stops", &stopped_key).await.expect_status(201).string_field("id");
        let rule = world.post("/v1/rules", &rule_body("first")).await.expect_status(201).string_field("id");
        let inbox = world.create_inbox("owned").await;
        let watch =
            world.post(&format!("/v1/inboxes/{inbox}/watches"), &json!({})).await.expect_status(201).string_field("id");
        world.receive_mail(&["owned@agents.test"], CODE_MAIL).await;
        let first =
            async |path: String| world.get(&path).await.expect_status(200).rows()[0]["id"].as_str().unwrap().to_owned();
        let message = first(format!("/v1/inboxes/{inbox}/messages")).await;
        let artifact = first(format!("/v1/messages/{message}/artifacts")).await;
        let delivery = first("/v1/deliveries".into()).await;
        world.engine.search.index_all().await.unwrap();
        world.engine.events.deliver_due_notices().await;
        let notice = first(format!("/v1/endpoints/{endpoint}/notices")).await;
        // Event streams are ended first, because an endless response cannot be read completely.
        world.engine.events.end_streams();
        let thread = first("/v1/threads".into()).await;
        let question = json!({ "question": "Shall I?", "thread": thread });
        let escalation = world.post("/v1/escalations", &question).await.expect_status(201).string_field("id");
        let erased = json!({ "address": "gone@example.com" });
        let erasure = world.post("/v1/erasures", &erased).await.expect_status(202).string_field("id");
        let connection = create_connection(world).await;
        Self {
            email,
            key: "k".into(),
            api_key,
            team,
            domain,
            source,
            inbox,
            message,
            artifact,
            delivery,
            watch,
            budget,
            person,
            target,
            template,
            claim,
            stop,
            rule,
            thread,
            escalation,
            endpoint,
            notice,
            erasure,
            connection,
        }
    }

    pub(crate) fn ids(&self) -> [&String; 23] {
        [
            &self.email,
            &self.api_key,
            &self.team,
            &self.domain,
            &self.source,
            &self.inbox,
            &self.message,
            &self.artifact,
            &self.delivery,
            &self.watch,
            &self.budget,
            &self.person,
            &self.target,
            &self.template,
            &self.claim,
            &self.stop,
            &self.rule,
            &self.endpoint,
            &self.notice,
            &self.thread,
            &self.escalation,
            &self.erasure,
            &self.connection,
        ]
    }

    /// The route's path with the ids of these resources.
    fn fill_path(&self, path: &str) -> String {
        let id = match path.split('/').nth(2) {
            Some("emails") => &self.email,
            Some("api-keys") => &self.api_key,
            Some("teams") => &self.team,
            Some("domains") => &self.domain,
            Some("sources") => &self.source,
            Some("inboxes") => &self.inbox,
            Some("messages") => &self.message,
            Some("artifacts") => &self.artifact,
            Some("deliveries") => &self.delivery,
            Some("watches") => &self.watch,
            Some("rules") => &self.rule,
            Some("budgets") => &self.budget,
            Some("people") => &self.person,
            Some("notification-targets") => &self.target,
            // A template has both, and `{name}` takes either.
            Some("templates") => return path.replace("{name}", &self.template),
            Some("claims") => &self.claim,
            // No outbox is configured: any id will do.
            Some("parked") => &self.email,
            Some("stops") => &self.stop,
            Some("endpoints") => &self.endpoint,
            Some("notices") => &self.notice,
            Some("threads") => &self.thread,
            Some("escalations") => &self.escalation,
            Some("erasures") => &self.erasure,
            Some("connections") => &self.connection,
            _ => "",
        };
        let path = path.replace("{source_id}", &self.source).replace("{address}", SUPPRESSED_ADDRESS);
        let path = path.replace("{direction}/{type}", "receive/block").replace("{entry}", "stranger.example");
        path.replace("{id}", id).replace("{key}", &self.key).replace("{n}", "0").replace("{code}", "not_found")
    }

    /// A request to the route that would have an effect if it were allowed.
    pub(crate) fn request_for(&self, method: &str, path: &str) -> TestRequest {
        let call = TestRequest::new(method, &self.fill_path(path));
        match (method, path) {
            // Finds everything.
            ("get", "/v1/search") => TestRequest::new(method, "/v1/search?q=-nothing"),
            ("post", "/v1/emails") => call.key("own").json(&mail()),
            ("post", "/v1/policy/simulate") => call.json(&mail()),
            ("post", "/v1/emails/batch") => call.key("batch").json(&json!([mail()])),
            ("patch", "/v1/emails/{id}") => call.json(&json!({ "scheduled_at": "in 5 days" })),
            ("post", "/v1/emails/{id}/resolve") => call.json(&json!({ "as": "sent", "rev": 1 })),
            ("patch", "/v1/keys/{key}") => call.json(&json!({ "ttl": "1d" })),
            ("post", "/v1/transports/{name}/test") => {
                call.json(&json!({ "from": "a@example.com", "to": "b@example.com" }))
            }
            ("post", "/v1/api-keys") => call.json(&json!({ "name": "x", "scopes": ["read"] })),
            ("post", "/v1/teams") => call.json(&json!({ "name": "x" })),
            ("post", "/v1/domains") => call.json(&json!({ "name": "own.example" })),
            ("post", "/v1/suppressions") => call.json(&json!({ "address": "own@example.com" })),
            ("post", "/v1/budgets") => call.json(&budget_body("own")),
            ("post", "/v1/people") => call.json(&json!({ "name": "Own", "role": "admin" })),
            ("patch", "/v1/people/{id}") => call.json(&json!({ "rev": 1, "role": "admin" })),
            ("post", "/v1/escalations/{id}/approval-links") => call.json(&json!({ "person": self.person })),
            ("post", "/v1/notification-targets") => call.json(&target_body("own")),
            ("patch", "/v1/session") => call.json(&json!({ "team": self.team })),
            ("post", "/v1/templates") => call.json(&template_body("own")),
            ("patch", "/v1/templates/{name}") => call.json(&json!({ "subject": "Changed" })),
            ("post", "/v1/templates/{name}/preview" | "/v1/templates/{name}/validate") => call.json(&json!({})),
            ("post", "/v1/erasures") => call.json(&json!({ "address": "own@example.com" })),
            ("post", "/v1/claims") => call.json(&json!({ "key": "own", "lease_s": 60 })),
            ("post", "/v1/claims/{id}/begin" | "/v1/claims/{id}/complete") => call.json(&json!({ "token": "ct_x" })),
            ("post", "/v1/claims/{id}/renew") => call.json(&json!({ "token": "ct_x", "lease_s": 60 })),
            ("post", "/v1/claims/{id}/fail") => call.json(&json!({ "token": "ct_x", "retryable": true })),
            ("post", "/v1/claims/{id}/evidence") => call.json(&json!({ "says": "not_found" })),
            ("post", "/v1/claims/{id}/resolve") => call.json(&json!({ "as": "done", "rev": 1 })),
            ("post", "/v1/stops") => call.json(&json!({ "scope": { "team": true } })),
            ("patch", "/v1/budgets/{id}") => call.json(&json!({ "rev": 1, "limit": 5 })),
            ("post", "/v1/rules") => call.json(&rule_body("own")),
            ("post", "/v1/lists/{direction}/{type}") => call.json(&json!({ "entry": "own.example" })),
            ("patch", "/v1/rules/{id}") => call.json(&json!({ "rev": 1, "enabled": false })),
            ("post", "/v1/endpoints") => call.json(&json!({ "url": "https://own.example/in" })),
            ("patch", "/v1/endpoints/{id}") => call.json(&json!({ "events": ["email.sent"] })),
            ("post", "/v1/endpoints/{id}/recover") => call.json(&json!({ "after": "0", "include": "all" })),
            ("post", "/v1/sources") => call.json(&source_body("own")),
            ("post", "/v1/sources/{id}/rotate") => call.json(&json!({ "bearer_token": "another-secret-of-16" })),
            ("post", "/hooks/{source_id}") => call.header("x-token", TOKEN).json(&json!({ "RecordType": "Open" })),
            ("post", "/v1/inboxes") => call.json(&json!({ "username": "another" })),
            ("patch", "/v1/inboxes/{id}") => call.json(&json!({ "agent": "x" })),
            ("get", "/v1/inboxes/{id}/wait") => {
                TestRequest::new(method, &format!("{}?timeout=0", self.fill_path(path)))
            }
            ("post", "/v1/inboxes/{id}/consume") => call.json(&json!({ "type": "code", "for": "x" })),
            ("post", "/v1/artifacts/{id}/consume" | "/v1/artifacts/{id}/applied") => call.json(&json!({ "for": "x" })),
            ("post", "/v1/messages/{id}/reply") => call.json(&json!({ "text": "x" })),
            ("post", "/v1/messages/{id}/forward") => call.json(&json!({ "to": "x@example.com" })),
            ("post", "/v1/messages/{id}/ack" | "/v1/messages/{id}/nack" | "/v1/messages/{id}/extend") => {
                call.json(&json!({ "lease": "lt_x" }))
            }
            ("patch", "/v1/threads/{id}") => call.json(&json!({ "labels": ["x"] })),
            ("delete", "/v1/threads/{id}/lease") => call.json(&json!({ "token": "lt_x" })),
            ("post", "/v1/escalations") => call.json(&json!({ "question": "own?" })),
            ("post", "/v1/escalations/{id}/resolve") => call.json(&json!({ "as": "reject", "rev": 1 })),
            ("patch", "/v1/settings") => call.json(&json!({ "content_guard": { "keyed": "off" } })),
            ("patch", "/v1/teams/{id}") => call.json(&json!({ "require_keys": true })),
            _ => call,
        }
    }

    /// The current state of all these resources.
    pub(crate) async fn snapshot(&self, world: &World) -> Vec<Value> {
        let mut seen = Vec::new();
        for path in [
            format!("/v1/emails/{}", self.email),
            format!("/v1/domains/{}", self.domain),
            format!("/v1/sources/{}", self.source),
            format!("/v1/rules/{}", self.rule),
            format!("/v1/budgets/{}", self.budget),
            format!("/v1/people/{}", self.person),
            "/v1/notification-targets".into(),
            format!("/v1/templates/{}", self.template),
            format!("/v1/claims/{}", self.claim),
            "/v1/stops".into(),
            "/v1/lists/receive/block".into(),
            format!("/v1/endpoints/{}", self.endpoint),
            format!("/v1/notices/{}", self.notice),
            format!("/v1/suppressions/{SUPPRESSED_ADDRESS}"),
            format!("/v1/inboxes/{}", self.inbox),
            format!("/v1/inboxes/{}/messages", self.inbox),
            format!("/v1/artifacts/{}", self.artifact),
            format!("/v1/watches/{}", self.watch),
            format!("/v1/deliveries/{}", self.delivery),
            format!("/v1/threads/{}", self.thread),
            format!("/v1/escalations/{}", self.escalation),
            "/v1/settings".into(),
            "/v1/keys/k".into(),
            "/v1/teams".into(),
            "/v1/events".into(),
        ] {
            seen.push(world.get(&path).await.expect_status(200).body);
        }
        let own = |key: &Value| key["id"] == self.api_key.as_str();
        seen.push(world.get("/v1/api-keys").await.expect_status(200).rows().into_iter().find(own).unwrap());
        seen
    }
}

/// Method, path and whether it is public, of every route in the document.
pub(crate) fn documented_routes() -> Vec<(String, String, bool)> {
    let document = serde_json::to_value(mailonce::api::openapi()).unwrap();
    assert_eq!(
        document["security"],
        json!([{ "api_key": [] }]),
        "every route needs an API key unless its operation says otherwise"
    );
    let mut routes = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            if ["get", "put", "post", "delete", "options", "head", "patch", "trace"].contains(&method.as_str()) {
                routes.push((method.clone(), path.clone(), operation.get("security") == Some(&json!([{}]))));
            }
        }
    }
    routes
}

#[test]
fn the_route_table_matches_the_document() {
    let table: BTreeSet<(String, String, bool)> = ROUTES
        .iter()
        .map(|(method, path, kind)| ((*method).into(), (*path).into(), *kind == RouteAccess::Public))
        .collect();
    let document: BTreeSet<_> = documented_routes().into_iter().collect();
    assert_eq!(
        table, document,
        "a route was added, removed or made public: add it to ROUTES in tests/it/access/tenant_isolation.rs"
    );
    assert_eq!(table.len(), ROUTES.len());
}

/// An API key without scopes. It can no longer be created, but older ledgers may contain one.
async fn create_scopeless_key(world: &World) -> String {
    let (store, secret) = (world.engine.ctx.store(), "mo_powerless_but_known");
    let key = ApiKey {
        id: ApiKeyId(uuid::Uuid::from_u128(1)),
        team: store.teams().await.unwrap()[0].id,
        hash: store.installation().await.unwrap().secret.mac("api-key", &[secret.as_bytes()]),
        details: ApiKeyDetails::unrestricted("powerless", Vec::new()),
        created_at: world.engine.ctx.now(),
        revoked_at: None,
        last_used_at: None,
    };
    assert_eq!(store.create_api_key(key, None).await.unwrap(), IdempotentResult::Done(()));
    secret.to_owned()
}

over_memory_and_sqlite! {
    async fn without_an_api_key_only_public_routes_answer(world) {
        let world = world.with_inbox_domain().await;
        let owned = TeamResources::create(&world).await;
        let before = owned.snapshot(&world).await;
        for (method, path, public) in documented_routes() {
            let answer = world.call(owned.request_for(&method, &path).anonymous()).await;
            if public {
                // Only some kinds of source answer a GET challenge, and this one does not. The token is no link of ours.
                let is_challenge = (method.as_str(), path.as_str()) == ("get", "/hooks/{source_id}");
                let expected = if is_challenge || path == "/u/{token}" { 404 } else { 200 };
                assert_eq!(answer.status, expected, "{method} {path}: {}", answer.text);
            } else {
                assert_eq!(answer.status, 401, "{method} {path}: {}", answer.text);
                answer.expect_problem(401, "unauthorized");
            }
        }
        assert_eq!(owned.snapshot(&world).await, before);
    }

    async fn an_api_key_without_scopes_is_refused_everywhere(world) {
        let world = world.with_inbox_domain().await;
        let owned = TeamResources::create(&world).await;
        let scopeless = create_scopeless_key(&world).await;
        let before = owned.snapshot(&world).await;
        for (method, path, kind) in ROUTES {
            if *kind != RouteAccess::Public {
                let answer = world.call(owned.request_for(method, path).bearer(&scopeless)).await;
                assert_eq!(answer.status, 403, "{method} {path}: {}", answer.text);
                answer.expect_problem(403, "wrong_scope");
            }
        }
        assert_eq!(owned.snapshot(&world).await, before);
    }

    async fn the_ids_of_another_team_are_not_found(world) {
        let world = world.with_inbox_domain().await;
        let owned = TeamResources::create(&world).await;
        let other_team = world.create_team("strangers").await;
        let before = owned.snapshot(&world).await;
        for (method, path, kind) in ROUTES {
            let answer = world.call(owned.request_for(method, path).bearer(&other_team)).await;
            match kind {
                RouteAccess::ByResourceId => {
                    assert_eq!(answer.status, 404, "{method} {path}: {}", answer.text);
                    answer.expect_problem(404, "not_found");
                }
                RouteAccess::Operator | RouteAccess::Session => drop(answer.expect_problem(403, "wrong_scope")),
                RouteAccess::CallerScoped => {
                    assert!(answer.status < 300, "{method} {path}: {}", answer.text);
                    for id in owned.ids() {
                        assert!(!answer.text.contains(id.as_str()), "{method} {path} shows {id}: {}", answer.text);
                    }
                }
                RouteAccess::Public => {}
            }
        }
        assert_eq!(owned.snapshot(&world).await, before, "another team changed something");
    }

    async fn a_cursor_of_another_team_shows_none_of_its_emails(world) {
        let world = world.with_inbox_domain().await;
        let owned = TeamResources::create(&world).await;
        let other_team = world.create_team("strangers").await;
        world.call(post("/v1/emails").bearer(&other_team).json(&mail())).await.expect_status(202);
        let page = world.call(get(&format!("/v1/emails?cursor={}", owned.email)).bearer(&other_team)).await.expect_status(200);
        assert!(page.rows().is_empty());
        let found = world.call(get("/v1/emails?key=k").bearer(&other_team)).await.expect_status(200);
        assert!(found.rows().is_empty());
    }
}

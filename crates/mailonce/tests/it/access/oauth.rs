//! OAuth for `/mcp`: registration, consent, codes and tokens, reuse of a stolen token, and revocation.

use axum::Router;
use mailonce::{api::router_with_options, client_address::ClientAddress, http::app::RouterOptions};
use mailonce_core::{access::call_origin::CallOrigin, key::Key};
use mailonce_engine::Engine;
use serde_json::{Value, json};
use std::sync::Arc;
use tower::ServiceExt as _;

use crate::{
    access::people::{Browser, next_query, sign_in_as},
    fixtures::{
        api_fixture::{DAY, HOUR, MINUTE, SECOND, World, mail},
        requests::{TestRequest, TestResponse, delete, get, patch, post},
    },
};

const SITE: &str = "https://mail.example.com";
const REDIRECT: &str = "https://robot.test/cb";
/// The example of RFC 7636.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

/// A server with a public URL.
struct Site {
    router: Router,
}

/// What a client has after it was connected.
struct Tokens {
    access: String,
    refresh: String,
}

fn encode(pairs: &[(&str, &str)]) -> String {
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

fn form(path: &str, pairs: &[(&str, &str)]) -> TestRequest {
    let call = post(path).anonymous().header("content-type", "application/x-www-form-urlencoded");
    call.raw_body(encode(pairs))
}

/// The parameters of an authorization request, with some replaced. An empty value leaves one out.
fn request_params<'a>(client: &'a str, changes: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut params = vec![
        ("response_type", "code"),
        ("client_id", client),
        ("redirect_uri", REDIRECT),
        ("state", "s&1"),
        ("code_challenge", CHALLENGE),
        ("code_challenge_method", "S256"),
        ("resource", "https://mail.example.com/mcp"),
    ];
    params.retain(|(name, _)| !changes.iter().any(|(other, _)| name == other));
    params.extend(changes.iter().filter(|(_, value)| !value.is_empty()));
    params
}

/// A parameter of the URL to which a response sends the browser.
fn redirect_param(response: &TestResponse, name: &str) -> Option<String> {
    let url: url::Url = response.header("location").expect("no location").parse().unwrap();
    url.query_pairs().find(|(own, _)| own == name).map(|(_, value)| value.into_owned())
}

impl Site {
    fn new(engine: &Arc<Engine>, url: &str) -> Self {
        let options = RouterOptions { public_url: url.to_owned(), ..RouterOptions::default() };
        Self { router: router_with_options(Arc::clone(engine), false, options) }
    }

    fn of(world: &World) -> Self {
        Self::new(&world.engine, SITE)
    }

    async fn call(&self, call: TestRequest) -> TestResponse {
        TestResponse::from_response(self.router.clone().oneshot(call.build("")).await.unwrap()).await
    }

    async fn register_from(&self, address: &str, body: &Value) -> TestResponse {
        let mut request = post("/oauth/register").anonymous().json(body).build("");
        request.extensions_mut().insert(ClientAddress(address.parse().unwrap()));
        TestResponse::from_response(self.router.clone().oneshot(request).await.unwrap()).await
    }

    async fn register(&self) -> String {
        let body = json!({ "client_name": "Robot", "redirect_uris": [REDIRECT, "http://127.0.0.1/cb"] });
        self.register_from("192.0.2.1", &body).await.expect_status(201).string_field("client_id")
    }

    async fn show(&self, browser: &Browser, client: &str, changes: &[(&str, &str)]) -> TestResponse {
        let path = format!("/oauth/authorize?{}", encode(&request_params(client, changes)));
        self.call(browser.request("GET", &path)).await
    }

    /// Sends the form of the consent page.
    async fn decide(&self, browser: &Browser, client: &str, fields: &[(&str, &str)]) -> TestResponse {
        let mut all = request_params(client, &[]);
        let is_given = |name: &str| fields.iter().any(|(own, _)| *own == name);
        all.extend(
            [("csrf", browser.csrf.as_str()), ("decision", "allow"), ("inboxes", "all")]
                .iter()
                .filter(|(name, _)| !is_given(name)),
        );
        if !is_given("grant") {
            all.extend([("grant", "read")]);
        }
        all.extend(fields);
        self.call(form("/oauth/authorize", &all).header("cookie", &browser.cookie)).await
    }

    async fn code(&self, browser: &Browser, client: &str, fields: &[(&str, &str)]) -> String {
        let back = self.decide(browser, client, fields).await.expect_status(303);
        redirect_param(&back, "code").expect("no code")
    }

    async fn exchange(&self, client: &str, code: &str, changes: &[(&str, &str)]) -> TestResponse {
        let mut params = vec![
            ("grant_type", "authorization_code"),
            ("client_id", client),
            ("code", code),
            ("code_verifier", VERIFIER),
            ("redirect_uri", REDIRECT),
        ];
        params.retain(|(name, _)| !changes.iter().any(|(other, _)| name == other));
        params.extend(changes.iter().filter(|(_, value)| !value.is_empty()));
        self.call(form("/oauth/token", &params)).await
    }

    async fn refresh(&self, client: &str, token: &str) -> TestResponse {
        let params = [("grant_type", "refresh_token"), ("client_id", client), ("refresh_token", token)];
        self.call(form("/oauth/token", &params)).await
    }

    /// Connects a client for a person.
    async fn connect(&self, browser: &Browser, client: &str, fields: &[(&str, &str)]) -> Tokens {
        let code = self.code(browser, client, fields).await;
        tokens_of(&self.exchange(client, &code, &[]).await.expect_status(200))
    }

    async fn list_tools(&self, credential: &str) -> TestResponse {
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
        let call = post("/mcp").bearer(credential).header("mcp-protocol-version", "2025-11-25").json(&message);
        self.call(call).await
    }

    async fn tool_names(&self, credential: &str) -> Vec<String> {
        let listed = self.list_tools(credential).await.expect_status(200);
        let tools = listed["result"]["tools"].as_array().unwrap().clone();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    async fn call_tool(&self, credential: &str, tool: &str, arguments: Value) -> Value {
        let params = json!({ "name": tool, "arguments": arguments });
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let call = post("/mcp").bearer(credential).header("mcp-protocol-version", "2025-11-25").json(&message);
        self.call(call).await.expect_status(200)["result"]["structuredContent"].clone()
    }
}

fn tokens_of(response: &TestResponse) -> Tokens {
    Tokens { access: response.string_field("access_token"), refresh: response.string_field("refresh_token") }
}

/// Connects a client for a new person of the first team, and returns the id of the connection.
pub(crate) async fn create_connection(world: &World) -> String {
    let site = Site::of(world);
    let (client, person) = (site.register().await, sign_in_as(world, "Cora", "viewer").await);
    site.connect(&person, &client, &[]).await;
    world.get("/v1/connections").await.expect_status(200).ids()[0].clone()
}

#[track_caller]
fn expect_oauth_error(response: TestResponse, status: u16, error: &str) -> TestResponse {
    assert_eq!((response.status, response["error"].as_str()), (status, Some(error)), "{}", response.text);
    assert!(response["error_description"].as_str().is_some_and(|text| !text.is_empty()), "{}", response.text);
    response
}

/// The entries about connections: who, what and the recorded values.
async fn connection_acts(world: &World) -> Vec<(String, String, Value)> {
    let rows = world.get("/v1/audit?limit=1000&action=connection.*").await.expect_status(200).rows();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    rows.iter().map(|row| (text(&row["actor"]["kind"]), text(&row["action"]), row["after"].clone())).collect()
}

over_every_engine! {
    async fn a_person_connects_a_client_and_it_calls_the_tools(world) {
        let site = Site::of(&world);
        let (client, ada) = (site.register().await, sign_in_as(&world, "Ada", "admin").await);
        let page = site.show(&ada, &client, &[]).await.expect_status(200);
        for part in ["“Robot”", "<strong>Ada</strong>", "(admin)", "<strong>robot.test</strong>", "value=\"send\"", "value=\"read\"", "value=\"reply\"", &ada.csrf] {
            assert!(page.text.contains(part), "{part}: {}", page.text);
        }
        let policy = page.header("content-security-policy").unwrap();
        assert!(policy.contains("frame-ancestors 'none'") && policy.contains("form-action 'self' https://robot.test;"), "{policy}");
        assert!(!page.text.contains("<script") && policy.contains("default-src 'none'"));
        let back = site.decide(&ada, &client, &[("grant", "read"), ("grant", "send")]).await.expect_status(303);
        assert!(back.header("location").unwrap().starts_with("https://robot.test/cb?"));
        assert_eq!(redirect_param(&back, "state").as_deref(), Some("s&1"));
        assert_eq!(redirect_param(&back, "iss").as_deref(), Some(SITE));
        assert_eq!(world.get("/v1/connections").await.expect_status(200).rows().len(), 0, "the code was not used yet");
        let code = redirect_param(&back, "code").unwrap();
        let answer = site.exchange(&client, &code, &[]).await.expect_status(200);
        assert_eq!((&answer["token_type"], &answer["expires_in"], &answer["scope"]), (&json!("Bearer"), &json!(3600), &json!("send read")));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        let tokens = tokens_of(&answer);
        let names = site.tool_names(&tokens.access).await;
        assert!(names.contains(&"send_email".to_owned()) && !names.contains(&"reply_email".to_owned()), "{names:?}");
        let mail = json!({ "to": "ann@example.com", "type": "greeting", "entity": "e1", "subject": "Hi", "text": "Hello", "inbox": null });
        let sent = site.call_tool(&tokens.access, "send_email", mail).await;
        assert!(sent["status"].is_string(), "{sent}");
        let listed = world.get("/v1/connections").await.expect_status(200).rows();
        assert_eq!(listed.len(), 1);
        assert_eq!((&listed[0]["client"]["name"], &listed[0]["client"]["redirect_host"]), (&json!("Robot"), &json!("robot.test")));
        assert_eq!((&listed[0]["person"]["name"], &listed[0]["scopes"], &listed[0]["inboxes"]), (&json!("Ada"), &json!(["send", "read"]), &json!(null)));
        let acts = connection_acts(&world).await;
        assert_eq!((acts.len(), acts[0].0.as_str(), acts[0].1.as_str()), (1, "person", "connection.approved"), "{acts:?}");
        assert_eq!(acts[0].2["scopes"], json!(["send", "read"]), "{acts:?}");
    }

    async fn whoever_signs_in_first_comes_back_to_the_consent_page(world) {
        let site = Site::of(&world);
        let client = site.register().await;
        let path = format!("/oauth/authorize?{}", encode(&request_params(&client, &[])));
        let page = site.call(get(&path).anonymous()).await.expect_status(401);
        let sign_in = format!("href=\"/sign-in?{}\"", next_query(&path));
        assert!(page.text.contains(&sign_in), "{}", page.text);
        let options = site.call(get(&format!("/sign-in?{}", next_query(&path))).anonymous()).await.expect_status(200);
        assert!(options.text.contains(&format!("href=\"{}\"", path.replace('&', "&amp;"))), "{}", options.text);
        // What is too long for a cookie is not kept.
        let state = "x".repeat(4_000);
        let long = format!("/oauth/authorize?{}", encode(&request_params(&client, &[("state", &state)])));
        let page = site.call(get(&long).anonymous()).await.expect_status(401);
        assert!(page.text.contains("href=\"/sign-in\""), "{}", page.text);
    }

    async fn clients_find_the_server_by_its_documents(world) {
        let site = Site::of(&world);
        for (credential, error) in [(None, ""), (Some("mo_wrong"), "error=\"invalid_token\", "), (Some("moa_wrong"), "error=\"invalid_token\", ")] {
            let call = post("/mcp").anonymous().json(&json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }));
            let call = credential.into_iter().fold(call, TestRequest::bearer);
            let refused = site.call(call).await.expect_status(401);
            let url = format!("{SITE}/.well-known/oauth-protected-resource/mcp");
            assert_eq!(refused.header("www-authenticate"), Some(format!("Bearer {error}resource_metadata=\"{url}\"").as_str()));
        }
        for path in ["/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"] {
            let document = site.call(get(path).anonymous().header("origin", "https://app.test")).await.expect_status(200);
            assert_eq!((&document["resource"], &document["authorization_servers"]), (&json!(format!("{SITE}/mcp")), &json!([SITE])));
            assert_eq!(document.header("access-control-allow-origin"), Some("*"));
        }
        let server = site.call(get("/.well-known/oauth-authorization-server").anonymous()).await.expect_status(200);
        assert_eq!((&server["issuer"], &server["code_challenge_methods_supported"]), (&json!(SITE), &json!(["S256"])));
        assert_eq!(server["token_endpoint_auth_methods_supported"], json!(["none"]));
        for name in ["authorization", "token", "registration", "revocation"] {
            let path = server.string_field(&format!("{name}_endpoint"));
            let path = path.strip_prefix(SITE).unwrap().to_owned();
            assert_ne!(site.call(post(&path).anonymous()).await.status, 404, "{path}");
        }
        for path in ["/oauth/register", "/oauth/token", "/.well-known/oauth-authorization-server"] {
            let preflight = site.call(TestRequest::new("OPTIONS", path).anonymous()).await.expect_status(204);
            assert_eq!(preflight.header("access-control-allow-origin"), Some("*"), "{path}");
            assert!(preflight.header("access-control-allow-headers").unwrap().contains("Mcp-Protocol-Version"));
        }
        let page = site.call(TestRequest::new("GET", "/oauth/authorize").anonymous()).await;
        assert!(page.header("access-control-allow-origin").is_none());
    }

    async fn tokens_sessions_and_api_keys_do_not_work_in_each_others_place(world) {
        let site = Site::of(&world);
        let (client, ada) = (site.register().await, sign_in_as(&world, "Ada", "admin").await);
        let code = site.code(&ada, &client, &[]).await;
        let tokens = tokens_of(&site.exchange(&client, &code, &[]).await.expect_status(200));
        site.call(get("/v1/emails").bearer(&tokens.access)).await.expect_problem(401, "unauthorized");
        site.call(get("/v1/connections").bearer(&tokens.access)).await.expect_problem(401, "unauthorized");
        let cookie = format!("mailonce={}", tokens.access);
        site.call(get("/v1/emails").anonymous().header("cookie", &cookie)).await.expect_problem(401, "unauthorized");
        let session = ada.cookie.split_once('=').unwrap().1;
        for bad in [session, &tokens.refresh, &code, &tokens.access.replace("moa_", "mo_"), &format!("{}x", tokens.access), "moa_", ""] {
            site.list_tools(bad).await.expect_status(401);
        }
        assert_eq!(site.tool_names(world.secret()).await.len(), 10, "API keys go on working");
        assert_eq!(world.get("/v1/api-keys").await.expect_status(200).rows().len(), 1);
    }

    async fn a_second_use_of_a_code_ends_the_tokens_that_it_made(world) {
        let site = Site::of(&world);
        let (client, ada) = (site.register().await, sign_in_as(&world, "Ada", "viewer").await);
        let code = site.code(&ada, &client, &[]).await;
        let tokens = tokens_of(&site.exchange(&client, &code, &[]).await.expect_status(200));
        site.list_tools(&tokens.access).await.expect_status(200);
        world.advance_clock(2 * MINUTE);
        expect_oauth_error(site.exchange(&client, &code, &[]).await, 400, "invalid_grant");
        site.list_tools(&tokens.access).await.expect_status(401);
        expect_oauth_error(site.refresh(&client, &tokens.refresh).await, 400, "invalid_grant");
        let acts = connection_acts(&world).await;
        assert_eq!(acts.last().map(|act| (act.1.as_str(), &act.2["reason"])), Some(("connection.ended", &json!("code_reused"))), "{acts:?}");
    }

    async fn a_code_works_for_sixty_seconds_with_its_verifier_and_for_its_client(world) {
        let site = Site::of(&world);
        let (client, ada) = (site.register().await, sign_in_as(&world, "Ada", "viewer").await);
        let other = site.register().await;
        let code = site.code(&ada, &client, &[]).await;
        expect_oauth_error(site.exchange(&other, &code, &[]).await, 400, "invalid_grant");
        expect_oauth_error(site.exchange("nobody", &code, &[]).await, 400, "invalid_client");
        expect_oauth_error(site.exchange(&client, &code, &[("redirect_uri", "https://robot.test/other")]).await, 400, "invalid_grant");
        expect_oauth_error(site.exchange(&client, &code, &[("resource", "https://other.test/mcp")]).await, 400, "invalid_target");
        expect_oauth_error(site.exchange(&client, &code, &[("code_verifier", "")]).await, 400, "invalid_request");
        expect_oauth_error(site.exchange(&client, &code, &[("code_verifier", "short")]).await, 400, "invalid_request");
        expect_oauth_error(site.exchange(&client, &format!("{code}x"), &[]).await, 400, "invalid_grant");
        expect_oauth_error(site.exchange(&client, &code, &[("grant_type", "password")]).await, 400, "unsupported_grant_type");
        world.advance_clock(59 * SECOND);
        site.exchange(&client, &code, &[]).await.expect_status(200);
        let late = site.code(&ada, &client, &[]).await;
        world.advance_clock(60 * SECOND);
        expect_oauth_error(site.exchange(&client, &late, &[]).await, 400, "invalid_grant");
        // Whoever has the code but not the verifier stole it.
        let stolen = site.code(&ada, &client, &[]).await;
        let guess = "x".repeat(43);
        expect_oauth_error(site.exchange(&client, &stolen, &[("code_verifier", &guess)]).await, 400, "invalid_grant");
        expect_oauth_error(site.exchange(&client, &stolen, &[]).await, 400, "invalid_grant");
    }

    async fn using_a_refresh_token_twice_ends_the_connection(world) {
        let site = Site::of(&world);
        let (client, ada) = (site.register().await, sign_in_as(&world, "Ada", "viewer").await);
        let first = site.connect(&ada, &client, &[]).await;
        let other = site.connect(&ada, &client, &[]).await;
        let second = tokens_of(&site.refresh(&client, &first.refresh).await.expect_status(200));
        let third = tokens_of(&site.refresh(&client, &second.refresh).await.expect_status(200));
        for access in [&first.access, &second.access, &third.access] {
            site.list_tools(access).await.expect_status(200);
        }
        expect_oauth_error(site.refresh(&client, &first.refresh).await, 400, "invalid_grant");
        for access in [&first.access, &second.access, &third.access] {
            site.list_tools(access).await.expect_status(401);
        }
        expect_oauth_error(site.refresh(&client, &third.refresh).await, 400, "invalid_grant");
        site.list_tools(&other.access).await.expect_status(200);
        let acts = connection_acts(&world).await;
        let (kind, action, after) = acts.last().unwrap();
        assert_eq!((kind.as_str(), action.as_str(), &after["reason"]), ("system", "connection.ended", &json!("refresh_token_reused")), "{acts:?}");
        assert_eq!(world.get("/v1/connections").await.rows().len(), 1);
    }

    async fn a_refresh_token_that_was_never_made_ends_nothing(world) {
        let site = Site::of(&world);
        let (client, ada) = (site.register().await, sign_in_as(&world, "Ada", "viewer").await);
        let tokens = site.connect(&ada, &client, &[]).await;
        let (stem, mac) = tokens.refresh.rsplit_once('-').unwrap();
        let forged = format!("{}-{mac}", stem.replace("_1-", "_0-"));
        for bad in [forged.as_str(), &tokens.refresh[..tokens.refresh.len() - 1], &format!("{stem}-{}", "0".repeat(64)), "mor_", "x"] {
            expect_oauth_error(site.refresh(&client, bad).await, 400, "invalid_grant");
        }
        let other = site.register().await;
        expect_oauth_error(site.refresh(&other, &tokens.refresh).await, 400, "invalid_grant");
        site.list_tools(&tokens.access).await.expect_status(200);
        site.refresh(&client, &tokens.refresh).await.expect_status(200);
    }

    async fn of_several_that_use_a_token_at_once_one_gets_new_tokens_and_all_end(world) {
        let site = Site::of(&world);
        let (client, ada) = (site.register().await, sign_in_as(&world, "Ada", "viewer").await);
        let code = site.code(&ada, &client, &[]).await;
        let exchange = [("grant_type", "authorization_code"), ("client_id", &client), ("code", &code), ("code_verifier", VERIFIER)];
        let connected = site.connect(&ada, &client, &[]).await;
        let refresh = [("grant_type", "refresh_token"), ("client_id", &client), ("refresh_token", &connected.refresh)];
        for params in [exchange.as_slice(), refresh.as_slice()] {
            let mut calls = tokio::task::JoinSet::new();
            for _ in 0..6 {
                calls.spawn(site.router.clone().oneshot(form("/oauth/token", params).build("")));
            }
            let mut won = Vec::new();
            for response in calls.join_all().await {
                let response = TestResponse::from_response(response.unwrap()).await;
                won.extend((response.status == 200).then(|| tokens_of(&response)));
            }
            assert!(won.len() <= 1, "{}", won.len());
            for tokens in won {
                site.list_tools(&tokens.access).await.expect_status(401);
                expect_oauth_error(site.refresh(&client, &tokens.refresh).await, 400, "invalid_grant");
            }
        }
        assert_eq!(world.get("/v1/connections").await.rows().len(), 0);
    }

    async fn tokens_last_an_hour_and_thirty_days(world) {
        let site = Site::of(&world);
        let (client, ada) = (site.register().await, sign_in_as(&world, "Ada", "viewer").await);
        let tokens = site.connect(&ada, &client, &[]).await;
        world.advance_clock(HOUR - 1);
        site.list_tools(&tokens.access).await.expect_status(200);
        world.advance_clock(1);
        let expired = site.list_tools(&tokens.access).await.expect_status(401);
        assert_eq!(expired["error"]["data"]["code"], "key_expired", "{}", expired.text);
        world.advance_clock(30 * DAY - HOUR - 1);
        let next = tokens_of(&site.refresh(&client, &tokens.refresh).await.expect_status(200));
        site.list_tools(&next.access).await.expect_status(200);
        world.advance_clock(30 * DAY);
        expect_oauth_error(site.refresh(&client, &next.refresh).await, 400, "invalid_grant");
        assert_eq!(world.get("/v1/connections").await.rows().len(), 0);
    }

    /// No tool does today what the audit log records, so the test calls the engine as `/mcp` would.
    async fn the_audit_log_names_the_person_of_a_connection(world) {
        let site = Site::of(&world);
        let (client, ada) = (site.register().await, sign_in_as(&world, "Ada", "admin").await);
        let tokens = site.connect(&ada, &client, &[]).await;
        world.send("k", &mail()).await.expect_status(202);
        world.hand_off_due().await;
        let (engine, key) = (&world.engine, Key::parse("k").unwrap());
        let act = async {
            let resource = format!("{SITE}/mcp");
            let caller = engine.connections.authenticate_access_token(&tokens.access, &resource).await.unwrap();
            engine.control.audit.set_call_origin(&caller, None);
            engine.outbound.forget_key(&caller, &key).await.map(drop).unwrap();
        };
        CallOrigin::scope(None, act).await;
        let row = world.get("/v1/audit?limit=1000&action=key.forgotten").await.expect_status(200).rows().remove(0);
        assert_eq!(row["actor"], json!({ "kind": "person", "id": ada.person }));
        assert_eq!(row["names"][&ada.person], "Ada", "{row}");
    }

    async fn a_connection_ends_at_the_other_server_within_a_second(world) {
        let here = Site::of(&world);
        let there = Site::new(&world.second_engine(mailonce_engine::EngineDeps::default()).await, SITE);
        let client = here.register().await;
        for name in ["Ada", "Bob"] {
            let person = sign_in_as(&world, name, "viewer").await;
            let tokens = here.connect(&person, &client, &[]).await;
            there.list_tools(&tokens.access).await.expect_status(200);
            let connection = world.get("/v1/connections").await.expect_status(200).ids()[0].clone();
            let end = match name {
                "Ada" => delete(&format!("/v1/connections/{connection}")),
                _ => post(&format!("/v1/people/{}/sign-out", person.person)).json(&json!({})),
            };
            world.advance_clock(1);
            world.call(end).await.expect_status(200);
            let mut tenths = 0;
            while there.list_tools(&tokens.access).await.status != 401 {
                tenths += 1;
                assert!(tenths < 10, "{name}: the token still works at the other server");
                world.advance_clock(100);
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
            expect_oauth_error(there.refresh(&client, &tokens.refresh).await, 400, "invalid_grant");
        }
    }

    async fn tokens_for_another_audience_are_refused(world) {
        let site = Site::of(&world);
        let (client, ada) = (site.register().await, sign_in_as(&world, "Ada", "viewer").await);
        for resource in ["https://other.test/mcp", "https://mail.example.com", "https://mail.example.com/v1", "https://mail.example.com.evil.test/mcp"] {
            let page = site.show(&ada, &client, &[("resource", resource)]).await.expect_status(400);
            assert!(page.header("location").is_none() && page.text.contains("?error=invalid_target&amp;"), "{}", page.text);
        }
        for resource in ["", "https://mail.example.com/mcp/"] {
            site.show(&ada, &client, &[("resource", resource)]).await.expect_status(200);
        }
        let tokens = site.connect(&ada, &client, &[]).await;
        // The same ledger under another address: what was made for the first is not for the second.
        let elsewhere = Site::new(&world.second_engine(mailonce_engine::EngineDeps::default()).await, "https://other.example.com");
        elsewhere.list_tools(&tokens.access).await.expect_status(401);
        expect_oauth_error(elsewhere.refresh(&client, &tokens.refresh).await, 400, "invalid_grant");
        site.list_tools(&tokens.access).await.expect_status(200);
    }

    async fn a_flood_of_registrations_is_bounded(world) {
        let site = Site::of(&world);
        let body = json!({ "redirect_uris": [REDIRECT] });
        for _ in 0..20 {
            site.register_from("2001:db8::1", &body).await.expect_status(201);
        }
        let refused = expect_oauth_error(site.register_from("2001:db8::2", &body).await, 429, "temporarily_unavailable");
        assert_eq!(refused.header("retry-after"), Some("3600"));
        site.register_from("2001:db8:0:1::1", &body).await.expect_status(201);
        world.advance_clock(HOUR);
        site.register_from("2001:db8::1", &body).await.expect_status(201);
    }

    async fn a_registration_is_checked_and_small(world) {
        let site = Site::of(&world);
        let uris = |uris: Value| json!({ "client_name": "R", "redirect_uris": uris });
        for (body, error) in [
            (json!({}), "invalid_client_metadata"),
            (json!([]), "invalid_client_metadata"),
            (uris(json!([])), "invalid_redirect_uri"),
            (uris(json!(["https://a.test/1", "https://a.test/2", "https://a.test/3", "https://a.test/4", "https://a.test/5", "https://a.test/6"])), "invalid_redirect_uri"),
            (uris(json!(["http://robot.test/cb"])), "invalid_redirect_uri"),
            (uris(json!(["javascript:alert(1)"])), "invalid_redirect_uri"),
            (uris(json!([REDIRECT, "robot://cb"])), "invalid_redirect_uri"),
            (json!({ "client_name": "a\u{202e}b", "redirect_uris": [REDIRECT] }), "invalid_client_metadata"),
        ] {
            expect_oauth_error(site.register_from("192.0.2.1", &body).await, 400, error);
        }
        let large = json!({ "redirect_uris": [REDIRECT], "software_statement": "x".repeat(16 * 1024) });
        expect_oauth_error(site.register_from("192.0.2.1", &large).await, 413, "invalid_request");
        let registered = site.register_from("192.0.2.1", &json!({ "redirect_uris": [REDIRECT], "token_endpoint_auth_method": "client_secret_basic" })).await.expect_status(201);
        assert_eq!((&registered["token_endpoint_auth_method"], &registered["redirect_uris"]), (&json!("none"), &json!([REDIRECT])));
        assert!(registered["client_secret"].is_null());
    }

    async fn a_browser_is_never_sent_to_an_address_that_was_not_registered(world) {
        let site = Site::of(&world);
        let (client, ada) = (site.register().await, sign_in_as(&world, "Ada", "admin").await);
        let nobody = "0197a3c2-7d3e-7c11-9b1e-2f6d3a4b5c6d";
        for (client, uri) in [
            (nobody, REDIRECT), ("x", REDIRECT), (client.as_str(), "https://evil.test/cb"), (&client, "https://robot.test/cb/../x"),
            (&client, "https://robot.test/cb?x=1"), (&client, "http://127.0.0.1:99/other"), (&client, "javascript:alert(1)"), (&client, ""),
        ] {
            for changes in [vec![("redirect_uri", uri)], vec![("redirect_uri", uri), ("response_type", "token")]] {
                let page = site.show(&ada, client, &changes).await.expect_status(400);
                assert!(page.header("location").is_none() && page.text.contains("<h1>"), "{uri}");
            }
            let mut fields = request_params(client, &[("redirect_uri", uri)]);
            fields.extend([("csrf", ada.csrf.as_str()), ("decision", "allow"), ("inboxes", "all"), ("grant", "read")]);
            let page = site.call(form("/oauth/authorize", &fields).header("cookie", &ada.cookie)).await.expect_status(400);
            assert!(page.header("location").is_none(), "{uri}");
        }
        let local = site.show(&ada, &client, &[("redirect_uri", "http://127.0.0.1:51004/cb")]).await.expect_status(200);
        assert!(local.text.contains("a program on your own computer (<strong>127.0.0.1</strong>)"), "{}", local.text);
        assert!(local.header("content-security-policy").unwrap().contains("http://127.0.0.1:51004;"));
        for (changes, error) in [
            ([("response_type", "token")], "unsupported_response_type"),
            ([("code_challenge_method", "plain")], "invalid_request"),
            ([("code_challenge_method", "")], "invalid_request"),
            ([("code_challenge", "")], "invalid_request"),
            ([("code_challenge", "abc")], "invalid_request"),
        ] {
            // Everybody can register a client: only the person sends the browser there.
            let page = site.show(&ada, &client, &changes).await.expect_status(400);
            assert!(page.header("location").is_none(), "{changes:?}");
            let link = format!("href=\"https://robot.test/cb?error={error}&amp;");
            assert!(page.text.contains(&link) && page.text.contains("iss=https%3A%2F%2Fmail.example.com"), "{}", page.text);
        }
    }

    async fn only_the_person_at_the_page_decides(world) {
        let site = Site::of(&world);
        let (client, ada) = (site.register().await, sign_in_as(&world, "Ada", "admin").await);
        let eve = sign_in_as(&world, "Eve", "admin").await;
        for csrf in ["", "0", eve.csrf.as_str()] {
            let refused = site.decide(&ada, &client, &[("csrf", csrf)]).await.expect_status(403);
            assert!(refused.header("location").is_none());
        }
        for cookie in ["", "mailonce=mo_planted"] {
            let stranger = Browser { cookie: cookie.to_owned(), csrf: ada.csrf.clone(), person: String::new() };
            let page = site.decide(&stranger, &client, &[]).await.expect_status(401);
            assert!(page.text.contains("Sign in") && page.header("location").is_none(), "{}", page.text);
            let page = site.show(&stranger, &client, &[("scope", "read \"><b>")]).await.expect_status(401);
            assert!(page.text.contains("/oauth/authorize?response_type=code&amp;") && !page.text.contains("<b>"), "{}", page.text);
        }
        // An API key is no person.
        let path = format!("/oauth/authorize?{}", encode(&request_params(&client, &[])));
        site.call(get(&path).bearer(world.secret())).await.expect_status(401);
        let denied = site.decide(&ada, &client, &[("decision", "deny")]).await.expect_status(303);
        assert_eq!((redirect_param(&denied, "error").as_deref(), redirect_param(&denied, "code")), (Some("access_denied"), None));
        assert_eq!(connection_acts(&world).await, []);
    }

    async fn the_name_of_a_client_cannot_change_the_page(world) {
        let site = Site::of(&world);
        let ada = sign_in_as(&world, "Ada", "viewer").await;
        let body = json!({ "client_name": "</h1><script>alert(1)</script>\"'{{content}}", "redirect_uris": [REDIRECT] });
        let client = site.register_from("192.0.2.1", &body).await.expect_status(201).string_field("client_id");
        let page = site.show(&ada, &client, &[("state", "\"><script>alert(2)</script>")]).await.expect_status(200);
        assert!(!page.text.contains("<script") && page.text.contains("&lt;script&gt;alert(1)"), "{}", page.text);
    }

    async fn a_connection_never_has_more_than_its_person(world) {
        let site = Site::of(&world);
        let client = site.register().await;
        let viewer = sign_in_as(&world, "Vera", "viewer").await;
        let page = site.show(&viewer, &client, &[]).await.expect_status(200);
        assert!(page.text.contains("value=\"read\"") && !page.text.contains("value=\"send\""), "{}", page.text);
        site.show(&viewer, &client, &[("scope", "send")]).await.expect_status(403);
        let refused = site.decide(&viewer, &client, &[("grant", "send"), ("grant", "read")]).await.expect_status(422);
        assert!(refused.header("location").is_none());
        site.decide(&viewer, &client, &[("grant", "admin")]).await.expect_status(422);
        let ada = sign_in_as(&world, "Ada", "admin").await;
        let all = [("grant", "read"), ("grant", "send"), ("grant", "reply"), ("grant", "admin")];
        let tokens = site.connect(&ada, &client, &all).await;
        assert_eq!(site.tool_names(&tokens.access).await.len(), 10);
        let path = format!("/v1/people/{}", ada.person);
        world.call(patch(&path).json(&json!({ "rev": 1, "role": "viewer" }))).await.expect_status(200);
        let names = site.tool_names(&tokens.access).await;
        assert!(!names.contains(&"send_email".to_owned()) && names.contains(&"read_message".to_owned()), "{names:?}");
        let next = site.refresh(&client, &tokens.refresh).await.expect_status(200);
        assert_eq!(next["scope"], "read");
        world.call(delete(&path)).await.expect_status(200);
        site.list_tools(&tokens.access).await.expect_status(401);
        expect_oauth_error(site.refresh(&client, &next.string_field("refresh_token")).await, 400, "invalid_grant");
    }

    async fn signing_out_everywhere_ends_connections(world) {
        let site = Site::of(&world);
        let (client, ada) = (site.register().await, sign_in_as(&world, "Ada", "viewer").await);
        let tokens = site.connect(&ada, &client, &[]).await;
        world.call(ada.request("DELETE", "/v1/session")).await.expect_status(204);
        site.list_tools(&tokens.access).await.expect_status(200);
        world.advance_clock(1);
        world.post(&format!("/v1/people/{}/sign-out", ada.person), &json!({})).await.expect_status(200);
        site.list_tools(&tokens.access).await.expect_status(401);
        expect_oauth_error(site.refresh(&client, &tokens.refresh).await, 400, "invalid_grant");
        assert_eq!(world.get("/v1/connections").await.rows().len(), 0);
    }

    async fn a_person_chooses_the_inboxes(world) {
        let world = world.with_inbox_domain().await;
        let site = Site::of(&world);
        let (client, ada) = (site.register().await, sign_in_as(&world, "Ada", "admin").await);
        let (mine, other) = (world.create_inbox("mine").await, world.create_inbox("other").await);
        let page = site.show(&ada, &client, &[]).await.expect_status(200);
        assert!(page.text.contains("mine@agents.test") && page.text.contains("other@agents.test"), "{}", page.text);
        let none = site.decide(&ada, &client, &[("inboxes", "some")]).await.expect_status(422);
        assert!(none.text.contains("at least one"), "{}", none.text);
        site.decide(&ada, &client, &[("inboxes", "some"), ("inbox", "0197a3c2-7d3e-7c11-9b1e-2f6d3a4b5c6d")]).await.expect_status(422);
        let tokens = site.connect(&ada, &client, &[("inboxes", "some"), ("inbox", &mine)]).await;
        let found = site.call_tool(&tokens.access, "find_messages", json!({ "inbox": mine })).await;
        assert_eq!(found["status"], "none", "{found}");
        let hidden = site.call_tool(&tokens.access, "find_messages", json!({ "inbox": other })).await;
        assert_eq!(hidden["status"], "not_found", "{hidden}");
        assert_eq!(world.get("/v1/connections").await.rows()[0]["inboxes"], json!([mine]));
    }

    async fn people_see_and_end_their_own_connections_and_admins_all(world) {
        let site = Site::of(&world);
        let client = site.register().await;
        let (vera, otto) = (sign_in_as(&world, "Vera", "viewer").await, sign_in_as(&world, "Otto", "approver").await);
        let (hers, his) = (site.connect(&vera, &client, &[]).await, site.connect(&otto, &client, &[]).await);
        let seen = async |browser: &Browser| world.call(browser.request("GET", "/v1/connections")).await.expect_status(200);
        let (of_vera, of_otto) = (seen(&vera).await, seen(&otto).await);
        assert_eq!((of_vera.rows().len(), of_otto.rows().len()), (1, 1));
        assert_eq!(of_vera.rows()[0]["person"]["name"], "Vera");
        assert_eq!(world.get("/v1/connections").await.rows().len(), 2);
        let agent = world.create_api_key(&json!({ "name": "agent", "scopes": ["read", "send"] })).await;
        world.call(get("/v1/connections").bearer(&agent)).await.expect_problem(403, "wrong_scope");
        let path = format!("/v1/connections/{}", of_otto.ids()[0]);
        world.call(vera.request("DELETE", &path)).await.expect_problem(404, "not_found");
        world.call(delete(&path).bearer(&agent)).await.expect_problem(403, "wrong_scope");
        site.list_tools(&his.access).await.expect_status(200);
        world.call(otto.request("DELETE", &path)).await.expect_status(200);
        site.list_tools(&his.access).await.expect_status(401);
        world.call(otto.request("DELETE", &path)).await.expect_problem(404, "not_found");
        world.call(delete(&format!("/v1/connections/{}", of_vera.ids()[0]))).await.expect_status(200);
        site.list_tools(&hers.access).await.expect_status(401);
        let ends: Vec<_> = connection_acts(&world).await.into_iter().filter(|act| act.1 == "connection.ended").collect();
        let kinds: Vec<&str> = ends.iter().map(|act| act.0.as_str()).collect();
        assert_eq!(kinds, ["person", "api_key"], "{ends:?}");
    }

    async fn a_client_revokes_its_own_tokens(world) {
        let site = Site::of(&world);
        let (client, ada) = (site.register().await, sign_in_as(&world, "Ada", "viewer").await);
        let other = site.register().await;
        let revoke = async |client: &str, token: &str| site.call(form("/oauth/revoke", &[("client_id", client), ("token", token)])).await;
        let first = site.connect(&ada, &client, &[]).await;
        expect_oauth_error(revoke(&other, &first.access).await, 400, "invalid_grant");
        expect_oauth_error(revoke(&other, &first.refresh).await, 400, "invalid_grant");
        for unknown in ["x", "moa_x", "mor_x"] {
            revoke(&client, unknown).await.expect_status(200);
        }
        site.list_tools(&first.access).await.expect_status(200);
        revoke(&client, &first.access).await.expect_status(200);
        site.list_tools(&first.access).await.expect_status(401);
        let second = tokens_of(&site.refresh(&client, &first.refresh).await.expect_status(200));
        site.list_tools(&second.access).await.expect_status(200);
        revoke(&client, &second.refresh).await.expect_status(200);
        site.list_tools(&second.access).await.expect_status(401);
        expect_oauth_error(site.refresh(&client, &second.refresh).await, 400, "invalid_grant");
        let acts = connection_acts(&world).await;
        assert_eq!(acts.last().map(|act| &act.2["reason"]), Some(&json!("revoked")), "{acts:?}");
    }
}

#[tokio::test]
async fn another_node_sees_the_end_of_a_connection_within_a_second() {
    let world = World::postgres().await;
    let site = Site::of(&world);
    let node = world.node_with_own_store().await;
    let there = Site::new(&node, SITE);
    let client = site.register().await;
    let (ada, bob) = (sign_in_as(&world, "Ada", "viewer").await, sign_in_as(&world, "Bob", "viewer").await);
    let ended = site.connect(&ada, &client, &[]).await;
    // The code of one node is exchanged at the other.
    let code = site.code(&ada, &client, &[]).await;
    let stolen = tokens_of(&there.exchange(&client, &code, &[]).await.expect_status(200));
    let removed = site.connect(&bob, &client, &[]).await;
    for tokens in [&ended, &stolen, &removed] {
        there.list_tools(&tokens.access).await.expect_status(200);
    }
    let rows = world.get("/v1/connections").await.rows();
    let first = rows.iter().rfind(|row| row["person"]["name"] == "Ada").unwrap();
    world.call(delete(&format!("/v1/connections/{}", first["id"].as_str().unwrap()))).await.expect_status(200);
    site.refresh(&client, &stolen.refresh).await.expect_status(200);
    expect_oauth_error(site.refresh(&client, &stolen.refresh).await, 400, "invalid_grant");
    world.call(delete(&format!("/v1/people/{}", bob.person))).await.expect_status(200);
    world.advance_clock(999);
    for tokens in [&ended, &stolen, &removed] {
        there.list_tools(&tokens.access).await.expect_status(401);
    }
}

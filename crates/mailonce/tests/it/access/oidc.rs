//! Sign-in through an OpenID Connect provider.
//!
//! The fake provider signs with its own keys, shares no code with the verifier, and returns wrong tokens on request.

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
    routing::{get as on_get, post as on_post},
};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use mailonce::{
    client_address::ClientAddress,
    config::OidcFile,
    http::{IsHttps, app::RouterOptions},
    oidc::OidcProvider,
};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};
use tower::ServiceExt as _;

use crate::{
    access::people::{HOSTILE_PAGES, NEXT_PAGES, next_query},
    fixtures::{
        api_fixture::World,
        requests::{TestRequest, TestResponse, get, patch, post},
    },
};

const CLIENT: &str = "mailonce";
const SECRET: &str = "s3cret:with%signs";
const MINUTE: i64 = 60_000;

/// What the provider does, and what it was asked.
struct Provider {
    issuer: String,
    key: EcdsaKeyPair,
    key_id: String,
    /// Claims that replace those of an honest token. Null removes one.
    claims: Value,
    /// The header's algorithm.
    alg: &'static str,
    /// The status with which it answers about codes, instead of redeeming them.
    token_status: Option<StatusCode>,
    /// The description that it serves, with these replaced.
    description: Value,
    /// Challenges by code. A code is redeemed once.
    codes: HashMap<String, (String, String)>,
    redeemed: usize,
    key_reads: usize,
    answer_bytes: usize,
    now_s: i64,
}

type Shared = Arc<Mutex<Provider>>;

fn new_key() -> EcdsaKeyPair {
    let random = SystemRandom::new();
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random).unwrap()
}

fn merge(mut base: Value, changes: &Value) -> Value {
    for (name, value) in changes.as_object().into_iter().flatten() {
        base[name] = value.clone();
    }
    base.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    base
}

impl Provider {
    fn token(&self, nonce: &str) -> String {
        let honest = json!({
            "iss": self.issuer, "aud": CLIENT, "sub": "account-1", "nonce": nonce, "iat": self.now_s,
            "exp": self.now_s + 300, "name": "Ada", "email": "ada@example.com", "email_verified": true, "role": "viewer",
        });
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let header = json!({ "alg": self.alg, "kid": self.key_id });
        let signed = format!("{}.{}", part(&header), part(&merge(honest, &self.claims)));
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

async fn description(State(shared): State<Shared>) -> Response {
    let provider = shared.lock().unwrap();
    let issuer = &provider.issuer;
    let honest = json!({
        "issuer": issuer, "authorization_endpoint": format!("{issuer}/auth?tenant=1"), "token_endpoint": format!("{issuer}/token"),
        "jwks_uri": format!("{issuer}/keys"), "padding": "x".repeat(provider.answer_bytes),
    });
    axum::Json(merge(honest, &provider.description)).into_response()
}

async fn keys(State(shared): State<Shared>) -> Response {
    let mut provider = shared.lock().unwrap();
    provider.key_reads += 1;
    let point = provider.key.public_key().as_ref();
    let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let (x, y) = (part(&point[1..33]), part(&point[33..]));
    let key = json!({ "kty": "EC", "crv": "P-256", "use": "sig", "kid": provider.key_id, "x": x, "y": y });
    axum::Json(json!({ "keys": [{ "kty": "oct", "k": "AA" }, { "odd": 1 }, key] })).into_response()
}

async fn token(State(shared): State<Shared>, headers: HeaderMap, body: Bytes) -> Response {
    let mut provider = shared.lock().unwrap();
    let form: HashMap<String, String> = url::form_urlencoded::parse(&body).into_owned().collect();
    let expected = format!("Basic {}", STANDARD.encode("mailonce:s3cret%3Awith%25signs"));
    let refuse = |error: &str| (StatusCode::BAD_REQUEST, axum::Json(json!({ "error": error }))).into_response();
    if headers.get("authorization").map(|value| value.to_str().unwrap()) != Some(&expected) {
        return refuse("invalid_client");
    }
    if let Some(status) = provider.token_status {
        return (status, "down").into_response();
    }
    let Some((challenge, nonce)) = provider.codes.remove(&form["code"]) else { return refuse("invalid_grant") };
    if URL_SAFE_NO_PAD.encode(Sha256::digest(&form["code_verifier"])) != challenge {
        return refuse("invalid_grant");
    }
    provider.redeemed += 1;
    axum::Json(json!({ "access_token": "a", "token_type": "Bearer", "id_token": provider.token(&nonce) }))
        .into_response()
}

/// A browser at a server with an identity provider.
struct OidcWorld {
    world: World,
    router: Router,
    provider: Shared,
}

impl OidcWorld {
    async fn start(world: World, file: OidcFile) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let provider = Arc::new(Mutex::new(Provider {
            issuer: issuer.clone(),
            key: new_key(),
            key_id: "one".into(),
            claims: json!({}),
            alg: "ES256",
            token_status: None,
            description: json!({}),
            codes: HashMap::new(),
            redeemed: 0,
            key_reads: 0,
            answer_bytes: 0,
            now_s: world.engine.ctx.now().0 / 1000,
        }));
        let routes = Router::new()
            .route("/.well-known/openid-configuration", on_get(description))
            .route("/keys", on_get(keys))
            .route("/token", on_post(token))
            .with_state(Arc::clone(&provider));
        tokio::spawn(async move { axum::serve(listener, routes).await });
        let secret_file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(secret_file.path(), format!("{SECRET}\n")).unwrap();
        let client_secret_file = Some(secret_file.path().to_owned());
        let file = OidcFile { issuer, client_id: CLIENT.into(), client_secret_file, ..file };
        let oidc = Some(Arc::new(OidcProvider::new(&file).unwrap()));
        let options = RouterOptions { public_url: "https://mail.test".into(), oidc, ..RouterOptions::default() };
        let router = mailonce::api::router_with_options(Arc::clone(&world.engine), false, options);
        Self { world, router, provider }
    }

    async fn get(&self, path: &str, cookie: &str) -> TestResponse {
        let request = get(path).anonymous().header("cookie", cookie).build("");
        TestResponse::from_response(self.router.clone().oneshot(request).await.unwrap()).await
    }

    /// Goes to the provider. Returns the cookie, and the query of the provider's answer.
    async fn authorize(&self) -> (String, String) {
        let (cookies, query) = self.authorize_for("/sign-in/oidc", "").await;
        (cookies[0].clone(), query)
    }

    /// Goes to the provider by this path. Returns the cookies, that of the flow first, and the query of the provider's
    /// answer.
    async fn authorize_for(&self, path: &str, cookie: &str) -> (Vec<String>, String) {
        let sent = self.get(path, cookie).await.expect_status(303);
        let url: url::Url = sent.header("location").unwrap().parse().unwrap();
        let asked: HashMap<String, String> = url.query_pairs().into_owned().collect();
        assert_eq!((url.path(), &*asked["tenant"], &*asked["response_type"]), ("/auth", "1", "code"));
        assert_eq!((&*asked["code_challenge_method"], &*asked["scope"]), ("S256", "openid profile email"));
        assert_eq!(asked["redirect_uri"], "https://mail.test/sign-in/oidc/callback");
        let code = format!("code-{}", asked["state"]);
        let entry = (asked["code_challenge"].clone(), asked["nonce"].clone());
        self.provider.lock().unwrap().codes.insert(code.clone(), entry);
        let cookies = sent.headers("set-cookie");
        assert!(cookies[0].contains("HttpOnly; SameSite=Lax; Max-Age=600"), "{cookies:?}");
        let cookies = cookies.iter().map(|cookie| cookie.split(';').next().unwrap().to_owned()).collect();
        (cookies, format!("code={code}&state={}", asked["state"]))
    }

    async fn callback(&self, cookie: &str, query: &str) -> TestResponse {
        self.get(&format!("/sign-in/oidc/callback?{query}"), cookie).await
    }

    /// Signs in, and returns the session.
    async fn sign_in(&self) -> TestResponse {
        let cookie = self.sign_in_browser().await;
        self.get("/v1/session", &cookie).await.expect_status(200)
    }

    /// Changes something in a session.
    async fn change(&self, request: TestRequest, cookie: &str) -> TestResponse {
        let session = self.get("/v1/session", cookie).await.expect_status(200);
        let request =
            request.anonymous().header("cookie", cookie).header("mailonce-csrf", &session.string_field("csrf_token"));
        TestResponse::from_response(self.router.clone().oneshot(request.build("")).await.unwrap()).await
    }

    /// Changes the team of a session. Returns the cookie of the new one.
    async fn change_team(&self, cookie: &str, team: &Value) -> String {
        let changed = self.change(patch("/v1/session").json(&json!({ "team": team })), cookie).await.expect_status(204);
        changed.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
    }

    /// Signs in, and returns the cookie.
    async fn sign_in_browser(&self) -> String {
        let (cookie, query) = self.authorize().await;
        let signed_in = self.callback(&cookie, &query).await.expect_status(303);
        assert_eq!(signed_in.header("location"), Some("/"));
        let cookies: Vec<&str> = signed_in.headers("set-cookie");
        assert!(cookies.iter().any(|cookie| cookie.starts_with("mailonce-oidc=;")), "{cookies:?}");
        let session = cookies.iter().find(|cookie| cookie.starts_with("mailonce=")).unwrap();
        session.split(';').next().unwrap().to_owned()
    }

    /// The callback over HTTPS, as a browser at this address.
    async fn callback_from(&self, client: [u8; 4], cookie: &str, query: &str) -> TestResponse {
        let path = format!("/sign-in/oidc/callback?{query}");
        let cookie = cookie.replace("mailonce-oidc", "__Host-mailonce-oidc");
        let mut request = get(&path).anonymous().header("cookie", &cookie).build("");
        request.extensions_mut().insert(ClientAddress(client.into()));
        request.extensions_mut().insert(IsHttps(true));
        TestResponse::from_response(self.router.clone().oneshot(request).await.unwrap()).await
    }

    async fn expect_refusal(&self, why: &str) {
        let (cookie, query) = self.authorize().await;
        let refused = self.callback(&cookie, &query).await.expect_status(403);
        assert!(refused.text.contains(why), "{why}: {}", refused.text);
        assert!(refused.headers("set-cookie").iter().all(|cookie| cookie.starts_with("mailonce-oidc=;")));
    }

    fn set(&self, change: impl FnOnce(&mut Provider)) {
        change(&mut self.provider.lock().unwrap());
    }
}

fn by_claim() -> OidcFile {
    OidcFile { role_claim: Some("role".into()), ..OidcFile::default() }
}

over_every_engine! {
    async fn a_person_signs_in_by_the_identity_provider(world) {
        let oidc = OidcWorld::start(world, by_claim()).await;
        let options = oidc.get("/sign-in", "").await.expect_status(200);
        assert!(options.text.contains("href=\"/sign-in/oidc\""), "{}", options.text);
        let session = oidc.sign_in().await;
        let person = &session["person"];
        assert_eq!((&person["name"], &person["address"], &person["role"]), (&json!("Ada"), &json!("ada@example.com"), &json!("viewer")));
        oidc.set(|provider| provider.claims = json!({ "role": ["other", "mailonce-admin"], "name": "Ada L." }));
        let again = oidc.sign_in().await;
        assert_eq!((&again["person"]["id"], &again["person"]["role"]), (&person["id"], &json!("admin")), "the same account is the same person");
        assert_eq!(again["person"]["name"], "Ada L.");
        oidc.set(|provider| provider.claims = json!({ "sub": "account-2" }));
        assert_ne!(oidc.sign_in().await["person"]["id"], person["id"]);
        assert_eq!(oidc.world.get("/v1/people").await.expect_status(200).rows().len(), 2);
        let actors = oidc.world.get("/v1/audit?action=session.*&limit=100").await.expect_status(200).rows();
        assert!(actors.iter().all(|entry| entry["actor"]["kind"] == "person") && actors.len() == 3, "{actors:?}");
    }

    async fn a_token_that_is_not_for_this_sign_in_is_refused(world) {
        let oidc = OidcWorld::start(world, by_claim()).await;
        for (claims, why) in [
            (json!({ "iss": "https://evil.test" }), "`iss`"),
            (json!({ "aud": "another" }), "`aud`"),
            (json!({ "aud": [CLIENT, "another"] }), "`azp`"),
            (json!({ "nonce": "another" }), "`nonce`"),
            (json!({ "nonce": null }), "`nonce`"),
            (json!({ "exp": 1000 }), "expired"),
            (json!({ "sub": null }), "`sub`"),
            (json!({ "role": "boss" }), "no role for mailonce"),
            (json!({ "role": null }), "no role for mailonce"),
        ] {
            oidc.set(|provider| provider.claims = claims);
            oidc.expect_refusal(why).await;
        }
        oidc.set(|provider| provider.claims = json!({}));
        for alg in ["none", "HS256"] {
            oidc.set(|provider| provider.alg = alg);
            oidc.expect_refusal("only RS256 and ES256").await;
        }
        oidc.set(|provider| provider.alg = "ES256");
        assert_eq!(oidc.world.get("/v1/people").await.expect_status(200).rows().len(), 0);
        oidc.sign_in().await;
    }

    async fn a_callback_works_once_and_only_in_the_browser_that_began(world) {
        let oidc = OidcWorld::start(world, by_claim()).await;
        let (cookie, query) = oidc.authorize().await;
        let (other, _) = oidc.authorize().await;
        for stolen in ["", "mailonce-oidc=x", &other] {
            oidc.callback(stolen, &query).await.expect_status(403);
        }
        assert_eq!(oidc.provider.lock().unwrap().redeemed, 0, "the code is not even redeemed");
        let denied = oidc.callback(&cookie, &format!("error=access_denied&{}", query.split_once('&').unwrap().1)).await;
        assert!(denied.expect_status(403).text.contains("access_denied"));
        oidc.callback(&cookie, &format!("{query}&iss=https%3A%2F%2Fevil.test")).await.expect_status(403);
        oidc.callback(&cookie, &query).await.expect_status(303);
        // The provider refuses the code a second time. Even one that did not would be refused.
        oidc.callback(&cookie, &query).await.expect_status(403);
        let code = query.strip_prefix("code=").unwrap().split('&').next().unwrap().to_owned();
        let flow = oidc.world.engine.people.external_flow(cookie.split_once('=').unwrap().1).unwrap();
        oidc.set(|provider| drop(provider.codes.insert(code, (flow.code_challenge(), flow.nonce.clone()))));
        let again = oidc.callback(&cookie, &query).await.expect_status(403);
        assert!(again.text.contains("completed before"), "{}", again.text);
        let (late, query) = oidc.authorize().await;
        oidc.world.advance_clock(10 * MINUTE);
        assert!(oidc.callback(&late, &query).await.expect_status(403).text.contains("ten minutes"));
    }

    async fn a_sign_in_leads_to_the_page_that_was_asked_for_and_to_no_other_site(world) {
        let oidc = OidcWorld::start(world, by_claim()).await;
        for page in NEXT_PAGES {
            let query = next_query(page);
            let options = oidc.get(&format!("/sign-in?{query}"), "").await.expect_status(200);
            assert!(options.text.contains(&format!("href=\"/sign-in/oidc?{query}\"")), "{}", options.text);
            let (cookies, query) = oidc.authorize_for(&format!("/sign-in/oidc?{query}"), "").await;
            let signed_in = oidc.callback(&cookies.join("; "), &query).await.expect_status(303);
            assert_eq!(signed_in.header("location"), Some(page));
            let ended = signed_in.headers("set-cookie");
            assert!(ended.iter().any(|cookie| cookie.starts_with("mailonce-next=;")), "{ended:?}");
        }
        for page in HOSTILE_PAGES {
            let next = next_query(page);
            let options = oidc.get(&format!("/sign-in?{next}"), "").await.expect_status(200);
            assert!(options.text.contains("href=\"/sign-in/oidc\""), "{page}: {}", options.text);
            let (cookies, query) = oidc.authorize_for(&format!("/sign-in/oidc?{next}"), "").await;
            assert_eq!(cookies.len(), 1, "{cookies:?}");
            // Also when somebody wrote the cookie.
            let forged = format!("{}; mailonce-{next}", cookies[0]);
            let signed_in = oidc.callback(&forged, &query).await.expect_status(303);
            assert_eq!(signed_in.header("location"), Some("/"), "{page}");
        }
        // The page of a sign-in that was not finished is forgotten.
        let stale = format!("mailonce-{}", next_query(NEXT_PAGES[1]));
        let (cookies, _) = oidc.authorize_for("/sign-in/oidc", &stale).await;
        assert_eq!(cookies[1], "mailonce-next=");
        let (cookie, query) = oidc.authorize().await;
        let state = query.split_once('&').unwrap().1;
        let denied = oidc.callback(&format!("{cookie}; {stale}"), &format!("error=access_denied&{state}")).await;
        let again = format!("href=\"/sign-in?{}\"", next_query(NEXT_PAGES[1]));
        assert!(denied.text.contains(&again), "{}", denied.text);
    }

    async fn only_what_may_be_forged_counts_as_a_failed_authentication(world) {
        let oidc = OidcWorld::start(world, by_claim()).await;
        let home = [192, 0, 2, 1];
        for _ in 0..25 {
            let (cookie, query) = oidc.authorize().await;
            let state = query.split_once('&').unwrap().1;
            oidc.callback_from(home, &cookie, &format!("error=access_denied&{state}")).await.expect_status(403);
            oidc.set(|provider| provider.token_status = Some(StatusCode::SERVICE_UNAVAILABLE));
            let down = oidc.callback_from(home, &cookie, &query).await.expect_status(502);
            assert!(down.text.contains("503"), "{}", down.text);
            oidc.set(|provider| (provider.token_status, provider.claims) = (None, json!({ "role": "boss" })));
            oidc.callback_from(home, &cookie, &query).await.expect_status(403);
            oidc.set(|provider| provider.claims = json!({}));
        }
        let (cookie, query) = oidc.authorize().await;
        oidc.callback_from(home, &cookie, &query).await.expect_status(303);
        let (cookie, _) = oidc.authorize().await;
        for _ in 0..25 {
            oidc.callback_from([192, 0, 2, 2], &cookie, "code=guess&state=guess").await;
        }
        let (cookie, query) = oidc.authorize().await;
        oidc.callback_from([192, 0, 2, 2], &cookie, &query).await.expect_status(429);
        oidc.callback_from(home, &cookie, &query).await.expect_status(303);
    }

    async fn a_name_of_the_provider_cannot_look_like_other_text(world) {
        let oidc = OidcWorld::start(world, by_claim()).await;
        for (name, expected) in [
            ("Ada\u{202e}nimda", "Ada nimda"),
            ("Ada\r\n409: Bob decided", "Ada 409: Bob decided"),
            ("\u{200b}\u{7}", "ada@example.com"),
        ] {
            oidc.set(|provider| provider.claims = json!({ "name": name }));
            assert_eq!(oidc.sign_in().await["person"]["name"], expected);
        }
    }

    async fn keys_may_change_and_a_provider_may_be_down_or_lie_about_itself(world) {
        let oidc = OidcWorld::start(world, by_claim()).await;
        oidc.sign_in().await;
        oidc.set(|provider| (provider.key, provider.key_id) = (new_key(), "two".into()));
        oidc.world.advance_clock(MINUTE);
        oidc.sign_in().await;
        let reads = oidc.provider.lock().unwrap().key_reads;
        oidc.set(|provider| provider.key = new_key());
        oidc.expect_refusal("signature").await;
        oidc.set(|provider| provider.key_id = "three".into());
        oidc.world.advance_clock(11_000);
        oidc.sign_in().await;
        assert_eq!(oidc.provider.lock().unwrap().key_reads, reads + 1, "only an unknown key is looked for");
        let hour = |oidc: &OidcWorld| oidc.world.advance_clock(61 * MINUTE);
        for description in [json!({ "issuer": "https://evil.test" }), json!({ "token_endpoint": "http://evil.test/token" }), json!({ "jwks_uri": null })] {
            hour(&oidc);
            oidc.set(|provider| provider.description = description);
            assert!(oidc.get("/sign-in/oidc", "").await.expect_status(502).text.contains("The sign-in failed"));
        }
        hour(&oidc);
        oidc.set(|provider| (provider.description, provider.answer_bytes) = (json!({}), 70_000));
        assert!(oidc.get("/sign-in/oidc", "").await.expect_status(502).text.contains("more than 65536 bytes"));
    }

    async fn teams_come_from_a_claim_and_roles_may_be_left_to_admins(world) {
        let made = world.post("/v1/teams", &json!({ "name": "blue" })).await.expect_status(201);
        let blue = made["id"].clone();
        let file = OidcFile { team_claim: Some("groups".into()), default_role: Some("viewer".into()), ..OidcFile::default() };
        let oidc = OidcWorld::start(world, file).await;
        oidc.expect_refusal("no team of this server").await;
        oidc.set(|provider| provider.claims = json!({ "groups": ["nowhere", "blue"] }));
        let session = oidc.sign_in().await;
        assert_eq!((&session["team"]["id"], &session["other_teams"]), (&blue, &json!([])));
        oidc.set(|provider| provider.claims = json!({ "groups": ["blue", "default"] }));
        let names = oidc.world.get("/v1/teams").await.expect_status(200).rows();
        let own = names.iter().find(|team| team["id"] != blue).unwrap()["name"].clone();
        oidc.set(|provider| provider.claims = json!({ "groups": ["blue", own] }));
        assert_eq!(oidc.sign_in().await["other_teams"].as_array().unwrap().len(), 1);
        let person = oidc.world.get("/v1/people").await.expect_status(200).rows()[0].clone();
        let path = format!("/v1/people/{}", person["id"].as_str().unwrap());
        oidc.world.call(patch(&path).json(&json!({ "rev": person["rev"], "role": "approver" }))).await.expect_status(200);
        oidc.sign_in().await;
        assert_eq!(oidc.world.get(&path).await.expect_status(200)["role"], "approver", "the provider does not decide about roles here");
    }

    async fn signing_out_everywhere_reaches_the_sessions_in_other_teams(world) {
        let blue = world.post("/v1/teams", &json!({ "name": "blue" })).await.expect_status(201)["id"].clone();
        let own = world.get("/v1/teams").await.expect_status(200).rows();
        let own = own.into_iter().find(|team| team["id"] != blue).unwrap();
        let file = OidcFile { team_claim: Some("groups".into()), default_role: Some("viewer".into()), ..OidcFile::default() };
        let oidc = OidcWorld::start(world, file).await;
        oidc.set(|provider| provider.claims = json!({ "groups": ["blue", own["name"]] }));
        let in_own = async || {
            let cookie = oidc.sign_in_browser().await;
            let session = oidc.get("/v1/session", &cookie).await.expect_status(200);
            if session["team"]["id"] == own["id"] { cookie } else { oidc.change_team(&cookie, &own["id"]).await }
        };
        let (home, stolen) = (in_own().await, in_own().await);
        let stolen_in_own = stolen.clone();
        let stolen = oidc.change_team(&stolen, &blue).await;
        let session = oidc.get("/v1/session", &stolen).await.expect_status(200);
        assert_eq!((&session["team"]["id"], &session["other_teams"][0]["id"]), (&blue, &own["id"]));
        oidc.get("/v1/session", &stolen_in_own).await.expect_problem(401, "session_ended");
        let back = oidc.change_team(&stolen, &own["id"]).await;
        let stolen = oidc.change_team(&back, &blue).await;
        // An admin of one team ends the sessions there, and nobody comes back from another team.
        oidc.world.advance_clock(1);
        let person = oidc.get("/v1/session", &home).await.expect_status(200)["person"]["id"].as_str().unwrap().to_owned();
        oidc.world.post(&format!("/v1/people/{person}/sign-out"), &json!({})).await.expect_status(200);
        oidc.get("/v1/session", &home).await.expect_problem(401, "session_ended");
        oidc.world.advance_clock(1_000);
        let refused = oidc.change(patch("/v1/session").json(&json!({ "team": own["id"] })), &stolen).await;
        refused.expect_problem(404, "not_found");
        // The person ends them in all teams.
        let home = in_own().await;
        oidc.world.advance_clock(1);
        oidc.change(post(&format!("/v1/people/{person}/sign-out")).json(&json!({})), &home).await.expect_status(200);
        oidc.world.advance_clock(1_000);
        for over in [&home, &stolen] {
            oidc.get("/v1/session", over).await.expect_problem(401, "session_ended");
        }
    }

    async fn whom_the_provider_no_longer_names_is_removed(world) {
        let made = world.post("/v1/teams", &json!({ "name": "blue" })).await.expect_status(201);
        let (blue_key, own_name) = (made.string_field("api_key"), world.get("/v1/teams").await.expect_status(200).rows());
        let own_name = own_name.iter().find(|team| team["id"] != made["id"]).unwrap()["name"].clone();
        let file = OidcFile { team_claim: Some("groups".into()), ..by_claim() };
        let oidc = OidcWorld::start(world, file).await;
        oidc.set(|provider| provider.claims = json!({ "groups": ["blue", own_name], "role": "approver" }));
        let in_blue = oidc.sign_in_browser().await;
        let in_blue = if oidc.get("/v1/session", &in_blue).await["team"]["id"] == made["id"] { in_blue } else { oidc.change_team(&in_blue, &made["id"]).await };
        let people = async |key: &str| oidc.world.call(get("/v1/people").bearer(key)).await.expect_status(200).rows().len();
        assert_eq!((people(&blue_key).await, people(oidc.world.secret()).await), (1, 1));
        oidc.set(|provider| provider.claims = json!({ "groups": [own_name], "role": "approver" }));
        oidc.sign_in().await;
        assert_eq!((people(&blue_key).await, people(oidc.world.secret()).await), (0, 1));
        oidc.world.advance_clock(1_000);
        oidc.get("/v1/session", &in_blue).await.expect_problem(401, "session_ended");
        oidc.set(|provider| provider.claims = json!({ "groups": [own_name], "role": "none" }));
        oidc.expect_refusal("no role for mailonce").await;
        assert_eq!(people(oidc.world.secret()).await, 0);
    }

    async fn without_a_team_claim_there_must_be_one_team(world) {
        let oidc = OidcWorld::start(world, by_claim()).await;
        oidc.sign_in().await;
        oidc.world.post("/v1/teams", &json!({ "name": "blue" })).await.expect_status(201);
        oidc.expect_refusal("oidc.team_claim").await;
        let plain = oidc.world.call(get("/sign-in/oidc").anonymous()).await;
        plain.expect_problem(404, "not_found");
        oidc.world.call(post("/sign-in/oidc").anonymous()).await.expect_problem(405, "method_not_allowed");
    }
}

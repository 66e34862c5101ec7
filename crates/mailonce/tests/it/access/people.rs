//! People: sign-in links, sessions, roles, and protection against requests from other sites.

use mailonce_core::{
    access::person::{Person, Role},
    outbound::email::Channel,
};
use mailonce_engine::EngineDeps;
use serde_json::{Value, json};
use std::sync::Arc;
use tower::ServiceExt as _;

use crate::fixtures::{
    api_fixture::{World, mail_with},
    requests::{TestRequest, TestResponse, delete, get, patch, post},
};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;

/// Pages to which a sign-in leads when it is asked to.
pub(crate) const NEXT_PAGES: [&str; 3] = [
    "/emails/01890a5d-ac96-774b-bcce-b302099a8057",
    "/needs-you/01890a5d-ac96-774b-bcce-b302099a8057",
    "/oauth/authorize?client_id=1&redirect_uri=https%3A%2F%2Frobot.test%2Fcb&state=s%261",
];

/// Pages to which a sign-in must not lead.
pub(crate) const HOSTILE_PAGES: [&str; 14] = [
    "",
    "//evil.example",
    "https://evil.example",
    "\\\\evil.example",
    "/emails//evil.example",
    "/emails/%0d%0aSet-Cookie:x=1",
    "/emails/01890a5d-ac96-774b-bcce-b302099a8057/../../sign-in",
    "/needs-you//evil.example",
    "/needs-you/01890a5d-ac96-774b-bcce-b302099a8057\r\nSet-Cookie: x=1",
    "/needs-you/01890a5d-ac96-774b-bcce-b302099a8057/../..//evil.example",
    "/oauth/authorize/..//evil.example?x=1",
    "/oauth/authorize?x=1\r\nSet-Cookie: x=1",
    "https://evil.example/oauth/authorize?x=1",
    "javascript:alert(1)",
];

/// The query that asks a sign-in to lead to a page.
pub(crate) fn next_query(page: &str) -> String {
    url::form_urlencoded::Serializer::new(String::new()).append_pair("next", page).finish()
}

/// A person who signed in.
pub(crate) struct Browser {
    pub(crate) cookie: String,
    pub(crate) csrf: String,
    pub(crate) person: String,
}

impl Browser {
    /// Adds the cookie to a request, and the token to one that changes something.
    pub(crate) fn request(&self, method: &str, path: &str) -> TestRequest {
        let call = TestRequest::new(method, path).anonymous().header("cookie", &self.cookie);
        if method == "GET" { call } else { call.header("mailonce-csrf", &self.csrf) }
    }
}

async fn add_person(world: &World, name: &str, role: &str) -> String {
    world.post("/v1/people", &json!({ "name": name, "role": role })).await.expect_status(201).string_field("id")
}

/// The path of a new sign-in link.
async fn create_link(world: &World, person: &str) -> String {
    let link = world.post(&format!("/v1/people/{person}/sign-in-links"), &json!({})).await.expect_status(201);
    let url = link.string_field("url");
    url[url.find("/sign-in/").unwrap()..].to_owned()
}

/// The cookie that a response sets, as a browser sends it back.
fn cookie_of(response: &TestResponse) -> String {
    response.header("set-cookie").expect("no cookie").split(';').next().unwrap().to_owned()
}

async fn sign_in(world: &World, person: &str) -> Browser {
    let path = create_link(world, person).await;
    let signed_in = world.call(post(&path).anonymous()).await.expect_status(303);
    assert_eq!(signed_in.header("location"), Some("/"));
    let cookie = cookie_of(&signed_in);
    let session = world.call(get("/v1/session").anonymous().header("cookie", &cookie)).await.expect_status(200);
    Browser { cookie, csrf: session.string_field("csrf_token"), person: person.to_owned() }
}

pub(crate) async fn sign_in_as(world: &World, name: &str, role: &str) -> Browser {
    let person = add_person(world, name, role).await;
    sign_in(world, &person).await
}

async fn audit_actions(world: &World) -> Vec<(String, String)> {
    let rows = world.get("/v1/audit?limit=1000").await.expect_status(200).rows();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    rows.iter().map(|row| (text(&row["actor"]["kind"]), text(&row["action"]))).collect()
}

over_every_engine! {
    async fn a_link_signs_in_once_and_opening_it_changes_nothing(world) {
        let ada = add_person(&world, "Ada", "viewer").await;
        let path = create_link(&world, &ada).await;
        for method in ["GET", "HEAD", "GET"] {
            let shown = world.call(TestRequest::new(method, &path).anonymous()).await.expect_status(200);
            assert!(shown.header("set-cookie").is_none());
            assert!(shown.header("content-security-policy").unwrap().contains("frame-ancestors 'none'"));
        }
        let entry = world.call(get("/sign-in").anonymous()).await.expect_status(200);
        assert!(entry.header("content-security-policy").unwrap().contains("frame-ancestors 'none'"));
        let shown = world.call(get(&path).anonymous()).await.expect_status(200);
        assert!(shown.text.contains("<strong>Ada</strong>") && shown.text.contains("(viewer)"), "{}", shown.text);
        let signed_in = world.call(post(&path).anonymous()).await.expect_status(303);
        let cookie = signed_in.header("set-cookie").unwrap();
        for part in ["HttpOnly", "SameSite=Lax", "Path=/"] {
            assert!(cookie.contains(part), "{cookie}");
        }
        for method in ["POST", "GET"] {
            let gone = world.call(TestRequest::new(method, &path).anonymous()).await.expect_status(410);
            assert!(gone.text.contains("used before") && gone.header("set-cookie").is_none(), "{}", gone.text);
        }
        let session = world.call(get("/v1/session").anonymous().header("cookie", &cookie_of(&signed_in))).await.expect_status(200);
        assert_eq!((&session["person"]["name"], &session["scopes"]), (&json!("Ada"), &json!(["read"])), "{}", session.text);
        let acts = audit_actions(&world).await;
        for act in [("api_key", "person.created"), ("api_key", "sign_in_link.created"), ("person", "session.began")] {
            assert!(acts.contains(&(act.0.into(), act.1.into())), "{act:?}: {acts:?}");
        }
    }

    async fn two_who_open_a_link_at_the_same_time_get_one_session(world) {
        let ada = add_person(&world, "Ada", "admin").await;
        let path = create_link(&world, &ada).await;
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..8 {
            calls.spawn(world.router().oneshot(post(&path).anonymous().build("")));
        }
        let statuses: Vec<u16> = calls.join_all().await.into_iter().map(|answer| answer.unwrap().status().as_u16()).collect();
        assert_eq!(statuses.iter().filter(|status| **status == 303).count(), 1, "{statuses:?}");
    }

    async fn an_old_a_forged_and_a_cut_link_do_not_sign_in(world) {
        let ada = add_person(&world, "Ada", "viewer").await;
        let path = create_link(&world, &ada).await;
        let changed = if path.ends_with('0') { "1" } else { "0" };
        let forged = format!("{}{changed}", &path[..path.len() - 1]);
        for bad in [forged.as_str(), &path[..path.len() - 5], "/sign-in/x", "/sign-in/-", "/sign-in/%00-%00"] {
            world.call(post(bad).anonymous()).await.expect_status(410);
        }
        world.advance_clock(10 * MINUTE);
        world.call(post(&path).anonymous()).await.expect_status(410);
        let path = create_link(&world, &ada).await;
        world.call(delete(&format!("/v1/people/{ada}"))).await.expect_status(200);
        world.call(post(&path).anonymous()).await.expect_status(410);
    }

    async fn a_role_says_what_a_person_may_do_and_a_new_one_counts_at_once(world) {
        let viewer = sign_in_as(&world, "Vera", "viewer").await;
        world.call(viewer.request("GET", "/v1/emails")).await.expect_status(200);
        let send = |browser: &Browser| browser.request("POST", "/v1/emails").key("k").json(&mail_with(json!({})));
        world.call(send(&viewer)).await.expect_problem(403, "wrong_scope");
        world.call(viewer.request("GET", "/v1/people")).await.expect_problem(403, "wrong_scope");
        let path = format!("/v1/people/{}", viewer.person);
        world.call(patch(&path).json(&json!({ "rev": 1, "role": "admin" }))).await.expect_status(200);
        world.call(send(&viewer)).await.expect_status(202);
        world.call(patch(&path).json(&json!({ "rev": 1, "role": "viewer" }))).await.expect_problem(409, "stale_rev");
        world.call(patch(&path).json(&json!({ "rev": 2, "role": "viewer" }))).await.expect_status(200);
        world.call(viewer.request("GET", "/v1/people")).await.expect_problem(403, "wrong_scope");
        world.call(patch(&path).json(&json!({ "rev": 3, "role": "king" }))).await.expect_problem(422, "invalid_field");
    }

    async fn an_approver_decides_and_the_log_names_the_person(world) {
        let approver = sign_in_as(&world, "Otto", "approver").await;
        let asked = world.post("/v1/escalations", &json!({ "question": "Shall I?" })).await.expect_status(201);
        let path = format!("/v1/escalations/{}/resolve", asked.string_field("id"));
        let release = json!({ "as": "release", "rev": 1 });
        let viewer = sign_in_as(&world, "Vera", "viewer").await;
        world.call(viewer.request("POST", &path).json(&release)).await.expect_problem(403, "wrong_scope");
        world.call(approver.request("POST", &path).json(&release)).await.expect_status(200);
        world.call(approver.request("POST", "/v1/api-keys").json(&json!({ "name": "x" }))).await.expect_problem(403, "wrong_scope");
        let rows = world.get("/v1/audit?limit=1000&action=escalation.decided").await.expect_status(200).rows();
        assert_eq!(rows[0]["actor"]["kind"], "person", "{rows:?}");
        assert_eq!(rows[0]["actor"]["id"], approver.person.as_str(), "{rows:?}");
        assert_eq!(rows[0]["names"][approver.person.as_str()], "Otto", "{rows:?}");
    }

    async fn a_page_of_another_site_cannot_act_for_a_person(world) {
        let admin = sign_in_as(&world, "Ada", "admin").await;
        let other = sign_in_as(&world, "Eve", "admin").await;
        let body = json!({ "name": "Mallory", "role": "admin" });
        let forged = |token: Option<&str>| {
            let call = post("/v1/people").anonymous().header("cookie", &admin.cookie).json(&body);
            token.into_iter().fold(call, |call, token| call.header("mailonce-csrf", token))
        };
        for token in [None, Some(""), Some("0"), Some(other.csrf.as_str())] {
            world.call(forged(token)).await.expect_problem(403, "csrf_failed");
        }
        assert_eq!(world.get("/v1/people").await.rows().len(), 2);
        world.call(forged(Some(&admin.csrf))).await.expect_status(201);
    }

    async fn a_session_is_no_api_key_and_an_api_key_is_no_session(world) {
        let admin = sign_in_as(&world, "Ada", "admin").await;
        let secret = admin.cookie.split_once('=').unwrap().1;
        world.call(get("/v1/emails").bearer(secret)).await.expect_problem(401, "unauthorized");
        let cookie = format!("mailonce={}", world.secret());
        world.call(get("/v1/emails").anonymous().header("cookie", &cookie)).await.expect_problem(401, "unauthorized");
        // With both, the API key counts: a program that sends one means it.
        let both = get("/v1/session").header("cookie", &admin.cookie);
        world.call(both).await.expect_problem(403, "wrong_scope");
        let listed = world.get("/v1/api-keys").await.expect_status(200);
        assert_eq!(listed.rows().len(), 1, "{}", listed.text);
    }

    async fn a_session_ends_after_twelve_idle_hours_and_after_seven_days(world) {
        let ada = add_person(&world, "Ada", "viewer").await;
        let idle = sign_in(&world, &ada).await;
        let busy = sign_in(&world, &ada).await;
        let emails = |browser: &Browser| browser.request("GET", "/v1/emails");
        for _ in 0..27 {
            world.advance_clock(6 * HOUR);
            world.call(emails(&busy)).await.expect_status(200);
            world.engine.access.flush_key_usage().await;
        }
        let ended = world.call(emails(&idle)).await.expect_problem(401, "session_ended");
        assert!(ended.string_field("detail").contains("twelve hours"), "{}", ended.text);
        world.advance_clock(6 * HOUR);
        let ended = world.call(emails(&busy)).await.expect_problem(401, "session_ended");
        assert!(ended.string_field("detail").contains("seven days"), "{}", ended.text);
    }

    async fn signing_out_ends_one_session_and_signing_out_everywhere_all(world) {
        let ada = add_person(&world, "Ada", "viewer").await;
        let (first, second, third) = (sign_in(&world, &ada).await, sign_in(&world, &ada).await, sign_in(&world, &ada).await);
        let emails = |browser: &Browser| browser.request("GET", "/v1/emails");
        let out = world.call(first.request("DELETE", "/v1/session")).await.expect_status(204);
        assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"));
        world.call(emails(&first)).await.expect_problem(401, "session_ended");
        world.call(emails(&second)).await.expect_status(200);
        let everywhere = format!("/v1/people/{ada}/sign-out");
        let eve = sign_in_as(&world, "Eve", "viewer").await;
        world.call(eve.request("POST", &everywhere)).await.expect_problem(403, "wrong_scope");
        world.advance_clock(1);
        world.call(second.request("POST", &everywhere)).await.expect_status(200);
        for over in [&second, &third] {
            world.call(emails(over)).await.expect_problem(401, "session_ended");
        }
        world.call(emails(&eve)).await.expect_status(200);
        world.advance_clock(1);
        let again = sign_in(&world, &ada).await;
        world.call(emails(&again)).await.expect_status(200);
    }

    async fn signing_out_everywhere_ends_the_links_too(world) {
        let ada = sign_in_as(&world, "Ada", "admin").await;
        let stolen = create_link(&world, &ada.person).await;
        world.advance_clock(1);
        world.call(ada.request("POST", &format!("/v1/people/{}/sign-out", ada.person))).await.expect_status(200);
        world.call(post(&stolen).anonymous()).await.expect_status(410);
        world.advance_clock(1);
        let again = sign_in(&world, &ada.person).await;
        world.advance_clock(1);
        world.engine.people.sign_out_everybody().await.unwrap();
        world.call(again.request("GET", "/v1/emails")).await.expect_problem(401, "session_ended");
    }

    async fn signing_out_everywhere_counts_although_the_clocks_of_nodes_differ(world) {
        let ahead = mailonce::api::router(world.node_with_clock(20_000, EngineDeps::default()).await, false);
        let there = async |call: TestRequest| {
            TestResponse::from_response(ahead.clone().oneshot(call.build(world.secret())).await.unwrap()).await
        };
        let ada = add_person(&world, "Ada", "admin").await;
        let asked = world.post("/v1/escalations", &json!({ "question": "May I?" })).await.expect_status(201);
        let approval = format!("/v1/escalations/{}/approval-links", asked.string_field("id"));
        let path_in = |link: &TestResponse, mark: &str| {
            let url = link.string_field("url");
            url[url.find(mark).unwrap()..].to_owned()
        };
        let everywhere = format!("/v1/people/{ada}/sign-out");
        let old = cookie_of(&there(post(&create_link(&world, &ada).await).anonymous()).await.expect_status(303));
        let emails = |cookie: &str| get("/v1/emails").anonymous().header("cookie", cookie);
        world.call(emails(&old)).await.expect_status(200);
        let sign_in_link = path_in(&there(post(&format!("/v1/people/{ada}/sign-in-links"))).await.expect_status(201), "/sign-in/");
        let approval_link = path_in(&there(post(&approval).json(&json!({ "person": ada }))).await.expect_status(201), "/a/");
        // This node writes an earlier time than the other one wrote.
        world.advance_clock(10_000);
        world.post(&everywhere, &json!({})).await.expect_status(200);
        world.call(emails(&old)).await.expect_problem(401, "session_ended");
        world.call(post(&sign_in_link).anonymous()).await.expect_status(410);
        world.call(get(&approval_link).anonymous()).await.expect_status(410);
        // A sign-out by the fast clock does not end what begins after it by the slow one.
        there(post(&everywhere)).await.expect_status(200);
        let again = sign_in(&world, &ada).await;
        world.call(again.request("GET", "/v1/emails")).await.expect_status(200);
        let fresh = path_in(&world.post(&approval, &json!({ "person": ada })).await.expect_status(201), "/a/");
        world.call(get(&fresh).anonymous()).await.expect_status(200);
        world.advance_clock(1_000);
        world.call(emails(&old)).await.expect_problem(401, "session_ended");
    }

    async fn a_sign_in_link_leads_to_the_page_that_was_asked_for_and_to_no_other_site(world) {
        let ada = add_person(&world, "Ada", "viewer").await;
        let lands_on = async |query: &str| {
            let path = format!("{}?{query}", create_link(&world, &ada).await);
            let signed_in = world.call(post(&path).anonymous()).await.expect_status(303);
            signed_in.header("location").unwrap().to_owned()
        };
        for page in NEXT_PAGES {
            assert_eq!(lands_on(&next_query(page)).await, page);
            let options = world.call(get(&format!("/sign-in?{}", next_query(page))).anonymous()).await.expect_status(200);
            assert!(options.text.contains(&format!("href=\"{}\"", page.replace('&', "&amp;"))), "{}", options.text);
        }
        for page in HOSTILE_PAGES {
            assert_eq!(lands_on(&next_query(page)).await, "/", "{page}");
            let options = world.call(get(&format!("/sign-in?{}", next_query(page))).anonymous()).await.expect_status(200);
            assert!(!options.text.contains("href="), "{page}: {}", options.text);
        }
        assert_eq!(lands_on(&format!("next={}", NEXT_PAGES[0])).await, NEXT_PAGES[0], "as the demo writes it");
        assert_eq!(lands_on("next=//evil.example").await, "/");
    }

    async fn whoever_is_signed_in_as_a_person_does_not_become_an_operator_with_them(world) {
        let team = world.engine.access.teams().await.unwrap()[0].id;
        let admin = sign_in_as(&world, "Root", "admin").await;
        world.advance_clock(1);
        let operator = Person { name: "Root".into(), address: None, role: Role::Admin, operator: true, signed_out_at: None, sign_outs: 0 };
        world.engine.people.create_sign_in_link_directly(team, operator, true).await.unwrap();
        world.call(admin.request("GET", "/v1/teams")).await.expect_problem(401, "session_ended");
    }

    async fn a_session_cannot_be_stopped_or_limited_as_an_api_key(world) {
        sign_in_as(&world, "Ada", "admin").await;
        let store = world.engine.ctx.store();
        let keys = store.api_keys(store.teams().await.unwrap()[0].id).await.unwrap();
        let session = keys.iter().find(|key| key.details.on_behalf_of.is_some()).unwrap().id.to_string();
        let scope = json!({ "api_key": session });
        world.post("/v1/stops", &json!({ "scope": scope })).await.expect_problem(422, "invalid_field");
        let budget = json!({ "name": "b", "scope": scope, "measure": "mails", "per": "day", "limit": 1 });
        world.post("/v1/budgets", &budget).await.expect_problem(422, "invalid_field");
    }

    async fn an_erased_person_leaves_no_name(world) {
        let ada = json!({ "name": "Ada Lovelace", "role": "admin", "address": "ada@example.com" });
        let id = world.post("/v1/people", &ada).await.expect_status(201).string_field("id");
        let browser = sign_in(&world, &id).await;
        world.call(browser.request("POST", "/v1/stops").json(&json!({ "scope": { "team": true } }))).await.expect_status(201);
        world.post("/v1/erasures", &json!({ "address": "ada@example.com" })).await.expect_status(202);
        while world.get("/v1/erasures").await.rows()[0]["state"] == "running" {
            world.engine.erasures.run_erasures(100).await.unwrap();
        }
        world.call(get(&format!("/v1/people/{id}"))).await.expect_problem(404, "not_found");
        let log = world.get("/v1/audit?limit=1000").await.expect_status(200).text;
        assert!(!log.contains("Lovelace") && log.contains(&id), "{log}");
        world.advance_clock(1_000);
        world.call(browser.request("GET", "/v1/emails")).await.expect_problem(401, "session_ended");
    }

    async fn a_new_sign_in_ends_the_session_that_the_browser_had(world) {
        let ada = add_person(&world, "Ada", "viewer").await;
        let before = sign_in(&world, &ada).await;
        let path = create_link(&world, &ada).await;
        let again = world.call(post(&path).anonymous().header("cookie", &before.cookie)).await.expect_status(303);
        assert_ne!(cookie_of(&again), before.cookie);
        world.call(before.request("GET", "/v1/emails")).await.expect_problem(401, "session_ended");
        // A cookie that somebody planted is not adopted.
        let path = create_link(&world, &ada).await;
        let planted = world.call(post(&path).anonymous().header("cookie", "mailonce=mo_planted")).await.expect_status(303);
        assert_ne!(cookie_of(&planted), "mailonce=mo_planted");
    }

    async fn an_admin_of_a_team_cannot_become_an_operator(world) {
        let team = world.engine.access.teams().await.unwrap()[0].id;
        let operator = Person { name: "Root".into(), address: None, role: Role::Admin, operator: true, signed_out_at: None, sign_outs: 0 };
        let link = world.engine.people.create_sign_in_link_directly(team, operator, true).await.unwrap();
        let (root, admin) = (link.person.id.to_string(), sign_in_as(&world, "Ada", "admin").await);
        let path = format!("/v1/people/{root}/sign-in-links");
        world.call(admin.request("POST", &path)).await.expect_problem(403, "wrong_scope");
        world.call(admin.request("GET", "/v1/teams")).await.expect_problem(403, "wrong_scope");
        // The link of `dev` works only on the machine itself. Here the address of the caller is unknown.
        world.call(post(&format!("/sign-in/{}", link.token)).anonymous()).await.expect_status(410);
    }

    async fn a_key_that_a_person_makes_outlives_the_session(world) {
        let admin = sign_in_as(&world, "Ada", "admin").await;
        let key = world.call(admin.request("POST", "/v1/api-keys").json(&json!({ "name": "job" }))).await.expect_status(201);
        world.call(admin.request("POST", "/v1/api-keys").json(&json!({ "name": "x", "scopes": ["operator"] }))).await.expect_problem(403, "wrong_scope");
        world.call(admin.request("DELETE", "/v1/session")).await.expect_status(204);
        world.advance_clock(30 * 24 * HOUR);
        world.call(get("/v1/emails").bearer(&key.string_field("api_key"))).await.expect_status(200);
    }

    async fn links_and_sign_outs_can_be_repeated_with_a_key(world) {
        let (ada, bob) = (add_person(&world, "Ada", "viewer").await, add_person(&world, "Bob", "viewer").await);
        let link = async |person: &str, key: &str| world.call(post(&format!("/v1/people/{person}/sign-in-links")).key(key)).await;
        let first = link(&ada, "k").await.expect_status(201);
        world.advance_clock(1);
        assert_eq!(link(&ada, "k").await.expect_status(200)["url"], first["url"]);
        assert_ne!(link(&ada, "l").await.expect_status(201)["url"], first["url"]);
        link(&bob, "k").await.expect_problem(422, "key_mismatch");
        let out = async |key: &str| world.call(post(&format!("/v1/people/{ada}/sign-out")).key(key)).await;
        let ended = out("o").await.expect_status(200);
        world.advance_clock(1);
        let browser = sign_in(&world, &ada).await;
        assert_eq!(out("o").await.expect_status(200)["signed_out_at"], ended["signed_out_at"]);
        world.call(browser.request("GET", "/v1/emails")).await.expect_status(200);
        out("k").await.expect_problem(422, "key_mismatch");
    }

    async fn a_name_may_be_shared_and_stays_that_of_whoever_was_added_under_it(world) {
        let (ada, eve) = (add_person(&world, "Ada", "viewer").await, add_person(&world, "Eve", "viewer").await);
        let rename = async |id: &str, name: &str| {
            let call = patch(&format!("/v1/people/{id}")).json(&json!({ "rev": 1, "name": name }));
            world.call(call).await.expect_status(200);
        };
        rename(&eve, "Ada").await;
        rename(&ada, "Countess").await;
        let taken = world.post("/v1/people", &json!({ "name": "Ada", "role": "viewer" })).await.expect_problem(409, "name_taken");
        assert_eq!(taken.string_field("id"), ada);
        assert_eq!(taken.string_field("detail"), "a person was added as Ada before");
        // `dev` makes its link in the ledger: for the person who was added, under the name of today.
        let team = world.engine.access.teams().await.unwrap()[0].id;
        let person = Person { name: "Ada".into(), address: None, role: Role::Admin, operator: false, signed_out_at: None, sign_outs: 0 };
        let link = world.engine.people.create_sign_in_link_directly(team, person, true).await.unwrap();
        assert_eq!((link.person.id.to_string(), link.person.person.name.as_str()), (ada, "Countess"));
        assert_eq!(world.get(&format!("/v1/people/{eve}")).await["role"], "viewer");
    }

    async fn the_person_is_checked_and_named_once(world) {
        let ada = json!({ "name": "Ada", "role": "viewer", "address": "Ada@Example.com" });
        let created = world.call(post("/v1/people").key("k").json(&ada)).await.expect_status(201);
        assert_eq!(world.call(post("/v1/people").key("k").json(&ada)).await.expect_status(200).body, created.body);
        world.post("/v1/people", &ada).await.expect_problem(409, "name_taken");
        for (body, field) in [
            (json!({ "name": " ", "role": "viewer" }), "name"),
            (json!({ "name": "B", "role": "boss" }), "role"),
            (json!({ "name": "B", "role": "viewer", "address": "nobody" }), "address"),
        ] {
            world.post("/v1/people", &body).await.expect_problem(422, "invalid_field").expect_field(field);
        }
        let path = format!("/v1/people/{}", created.string_field("id"));
        let cleared = world.call(patch(&path).json(&json!({ "rev": 1, "address": null }))).await.expect_status(200);
        assert!(cleared["address"].is_null(), "{}", cleared.text);
    }
}

#[tokio::test]
async fn another_node_sees_a_sign_out_a_removal_and_a_new_role_within_a_second() {
    let world = World::postgres().await;
    let node = world.node_with_own_store().await;
    let router = mailonce::api::router(Arc::clone(&node), false);
    let there = async |browser: &Browser, path: &str| {
        let request = browser.request("GET", path).build("");
        TestResponse::from_response(router.clone().oneshot(request).await.unwrap()).await
    };
    let ada = sign_in_as(&world, "Ada", "admin").await;
    let bob = sign_in_as(&world, "Bob", "admin").await;
    let eve = sign_in_as(&world, "Eve", "admin").await;
    for browser in [&ada, &bob, &eve] {
        there(browser, "/v1/people").await.expect_status(200);
    }
    world.advance_clock(1);
    world.call(ada.request("POST", &format!("/v1/people/{}/sign-out", ada.person))).await.expect_status(200);
    world.call(delete(&format!("/v1/people/{}", bob.person))).await.expect_status(200);
    let viewer = json!({ "rev": 1, "role": "viewer" });
    world.call(patch(&format!("/v1/people/{}", eve.person)).json(&viewer)).await.expect_status(200);
    world.advance_clock(999);
    there(&ada, "/v1/people").await.expect_problem(401, "session_ended");
    there(&bob, "/v1/people").await.expect_problem(401, "session_ended");
    there(&eve, "/v1/people").await.expect_problem(403, "wrong_scope");
    there(&eve, "/v1/emails").await.expect_status(200);
    assert!(node.access.authenticate(world.secret(), Channel::Http).await.is_ok());
}

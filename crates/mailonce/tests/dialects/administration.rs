//! Administration through the dialects: scopes are respected, and every act is in the audit log. Test addresses of Resend
//! count only there.

use serde_json::{Value, json};

use crate::{
    api_fixture::{World, mail_with},
    requests::{TestRequest, delete, get, patch, post},
};

const RESEND: &str = "/compat/resend";
const AGENTMAIL: &str = "/compat/agentmail/v0";

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

/// The acts in the audit log, oldest first, with the channel of their caller.
async fn acts(world: &World) -> Vec<String> {
    let rows = world.get("/v1/audit?limit=1000").await.expect_status(200).rows();
    rows.iter().map(|row| text(&row["action"])).collect()
}

#[tokio::test]
async fn acts_through_a_dialect_are_in_the_audit_log() {
    let world = World::sqlite().await;
    let key = world.post(&format!("{RESEND}/api-keys"), &json!({ "name": "one" })).await.expect_status(201);
    let path = format!("{RESEND}/api-keys/{}", text(&key.body["id"]));
    for name in ["two", "two", "three"] {
        world.call(patch(&path).json(&json!({ "name": name }))).await.expect_status(200);
    }
    // The native API shows the new name, and a key that is gone cannot be renamed.
    let listed = world.get("/v1/api-keys").await.expect_status(200).rows();
    assert!(listed.iter().any(|row| row["id"] == key.body["id"] && row["name"] == "three"), "{listed:?}");
    world.call(delete(&path)).await.expect_status(200);
    world.call(patch(&path).json(&json!({ "name": "four" }))).await.expect_status(404);
    let gone = json!({ "email": "gone@example.com" });
    world.post(&format!("{RESEND}/suppressions"), &gone).await.expect_status(200);
    world.call(delete(&format!("{RESEND}/suppressions/gone@example.com"))).await.expect_status(200);
    let domain = json!({ "domain": "audit.example.com" });
    world.post(&format!("{AGENTMAIL}/domains"), &domain).await.expect_status(200);
    world.call(delete(&format!("{AGENTMAIL}/domains/audit.example.com"))).await.expect_status(204);
    let made = world.post(&format!("{AGENTMAIL}/api-keys"), &json!({ "name": "am" })).await.expect_status(200);
    world.call(delete(&format!("{AGENTMAIL}/api-keys/{}", text(&made.body["api_key_id"])))).await.expect_status(204);
    let found = acts(&world).await;
    let expected = [
        "api_key.created",
        "api_key.renamed",
        "api_key.renamed",
        "api_key.revoked",
        "suppression.created",
        "suppression.removed",
        "domain.created",
        "domain.removed",
        "api_key.created",
        "api_key.revoked",
    ];
    assert!(found.ends_with(&expected.map(str::to_owned)), "{found:?}");
}

#[tokio::test]
async fn a_key_without_the_scope_admin_administers_nothing() {
    let world = World::sqlite().await;
    let scopes = ["send", "read", "reply", "secrets"];
    let key = world.create_api_key(&json!({ "name": "agent", "scopes": scopes })).await;
    let id = uuid::Uuid::from_u128(7);
    let own =
        world.get("/v1/api-keys").await.expect_status(200).rows().iter().find(|row| row["name"] == "agent").cloned();
    let own = text(&own.unwrap()["id"]);
    let body = json!({ "name": "x", "email": "x@example.com", "emails": ["x@example.com"], "domain": "x.example.com" });
    for (method, path) in [
        ("POST", format!("{RESEND}/api-keys")),
        ("PATCH", format!("{RESEND}/api-keys/{own}")),
        ("POST", format!("{RESEND}/suppressions")),
        ("POST", format!("{RESEND}/suppressions/batch/add")),
        ("PATCH", format!("{RESEND}/domains/{id}")),
        ("POST", format!("{AGENTMAIL}/api-keys")),
        ("GET", format!("{AGENTMAIL}/api-keys")),
        ("PATCH", format!("{AGENTMAIL}/api-keys/{own}")),
        ("DELETE", format!("{AGENTMAIL}/api-keys/{own}")),
        ("GET", format!("{AGENTMAIL}/domains")),
        ("POST", format!("{AGENTMAIL}/pods/{id}/domains")),
    ] {
        let answer = world.call(TestRequest::new(method, &path).bearer(&key).json(&body)).await;
        let is_refused = matches!(answer.status, 401 | 403) || (path.contains("/pods/") && answer.status == 404);
        assert!(is_refused, "{method} {path}: {} {}", answer.status, answer.text);
    }
    // The figures of mail are for everybody who may read it.
    world.call(get(&format!("{RESEND}/emails/metrics")).bearer(&key)).await.expect_status(200);
    world.call(get(&format!("{AGENTMAIL}/metrics/events")).bearer(&key)).await.expect_status(200);
}

#[tokio::test]
async fn test_addresses_count_only_in_the_dialect_of_their_service() {
    let world = World::sqlite().await;
    let to = |address: &str| mail_with(json!({ "to": [address] }));
    let sent =
        world.call(post(&format!("{RESEND}/emails")).json(&to("delivered+a@resend.dev"))).await.expect_status(200);
    let simulated = world.email(&text(&sent.body["id"])).await;
    let usesend = "/compat/usesend/api/v1/emails";
    let other = world.call(post(usesend).json(&to("delivered@resend.dev"))).await.expect_status(200);
    let native = world.send("native", &to("delivered@resend.dev")).await.expect_status(202);
    let transports = |email: &Value| -> Vec<String> {
        email["handoffs"].as_array().unwrap().iter().map(|handoff| text(&handoff["transport"])).collect()
    };
    assert_eq!(transports(&simulated), ["sandbox-faults"]);
    assert_eq!(transports(&world.email(&text(&other.body["emailId"])).await), ["sandbox"]);
    assert_eq!(transports(&world.email(&text(&native.body["id"])).await), ["sandbox"]);
    let mixed = mail_with(json!({ "to": ["delivered@resend.dev", "ada@example.com"] }));
    world.call(post(&format!("{RESEND}/emails")).json(&mixed)).await.expect_status(422);
}

//! An API key that is tied to one inbox, with every tool: it can neither see nor change anything of another inbox.

use serde_json::{Value, json};

use crate::fixtures::{AGENT_INBOX, McpFixture};

/// Appears in the subject, the text and the recipient of everything that belongs to the other inbox.
const CANARY: &str = "otherinbox";
const CODE: &str = "482913";

/// What exists in the other inbox.
struct OtherInboxData {
    message: Value,
    thread: Value,
    email: Value,
}

async fn fill_other_inbox(fixture: &McpFixture) -> OtherInboxData {
    let text = format!("Your {CANARY} code is {CODE}.");
    fixture.receive_text("no-reply@shop.test", &format!("Your {CANARY} code"), &text).await;
    let arrived = fixture.call_tool("wait_for_message", json!({ "inbox": AGENT_INBOX, "has": "code" })).await;
    let mail = json!({
        "to": format!("{CANARY}@people.test"), "subject": CANARY, "text": CANARY, "type": "note", "entity": "n_1",
        "inbox": AGENT_INBOX,
    });
    let sent = fixture.call_tool("send_email", mail).await;
    assert_eq!(fixture.wait_for_mail_count(&format!("{CANARY}@people.test"), 1).await, 1);
    OtherInboxData {
        message: arrived["message"].clone(),
        thread: arrived["thread"].clone(),
        email: sent["email"].clone(),
    }
}

/// Calls that try to reach the other inbox. Add every new tool here.
fn calls_to_other_inbox(theirs: &OtherInboxData) -> Vec<(&'static str, Value)> {
    let OtherInboxData { message, thread, email } = theirs;
    let mail = |inbox: Option<&str>| json!({ "to": "ann@people.test", "subject": "Hi", "text": "Hello", "type": "note", "entity": "n_2", "inbox": inbox });
    vec![
        ("send_email", mail(Some(AGENT_INBOX))),
        ("reply_email", json!({ "message": message, "text": "Yes." })),
        ("resend_email", json!({ "email": email, "reason": "asked for" })),
        ("get_outcome", json!({ "email": email })),
        ("get_outcome", json!({ "type": "note", "entity": "n_1", "to": format!("{CANARY}@people.test") })),
        ("find_messages", json!({})),
        ("find_messages", json!({ "inbox": AGENT_INBOX })),
        ("find_messages", json!({ "thread": thread })),
        ("read_message", json!({ "message": message })),
        ("wait_for_message", json!({ "timeout_s": 0 })),
        ("wait_for_message", json!({ "inbox": AGENT_INBOX, "timeout_s": 0 })),
        ("take_artifact", json!({ "type": "code", "for": "run-1", "message": message })),
        ("take_artifact", json!({ "type": "code", "for": "run-1", "inbox": AGENT_INBOX })),
        ("take_artifact", json!({ "type": "code", "for": "run-1" })),
        ("claim_thread", json!({ "thread": thread, "holder": "mallory" })),
        ("ask_human", json!({ "entity": "n_1", "question": "May I?", "message": message })),
        ("ask_human", json!({ "entity": "n_1", "question": "May I?", "thread": thread })),
        ("ask_human", json!({ "entity": "n_1", "question": "May I?", "email": email })),
    ]
}

#[tokio::test]
async fn no_tool_reaches_another_inbox() {
    let fixture = McpFixture::start().await;
    let theirs = fill_other_inbox(&fixture).await;
    let (status, _) = fixture.api_call("POST", "/v1/inboxes", &json!({ "username": "second" })).await;
    assert_eq!(status, 201);
    let every_scope = json!(["send", "read", "reply", "secrets", "admin"]);
    let key_body = json!({ "name": "tied", "scopes": every_scope, "inboxes": ["second@mailonce.test"] });
    let (_, key) = fixture.api_call("POST", "/v1/api-keys", &key_body).await;
    let key = key["api_key"].as_str().unwrap();

    let calls = calls_to_other_inbox(&theirs);
    let mut untested = fixture.tool_names().await;
    untested.retain(|tool| !calls.iter().any(|(name, _)| name == tool));
    assert!(untested.is_empty(), "no call of {untested:?} is tested here");

    for (tool, arguments) in &calls {
        let result = fixture.call_tool_as(key, tool, arguments).await;
        let answer = &result["structuredContent"];
        let refused = result["isError"] == true
            || ["none", "timeout", "nothing", "not_accepted"].map(Value::from).contains(&answer["status"]);
        let text = answer.to_string();
        assert!(refused || answer["messages"] == json!([]), "{tool} {arguments}: {text}");
        assert!(!text.contains(CANARY) && !text.contains(CODE), "{tool} {arguments}: {text}");
    }
    assert_eq!(fixture.wait_for_mail_count("ann@people.test", 1).await, 0);
    let taken =
        fixture.call_tool("take_artifact", json!({ "type": "code", "for": "owner", "message": theirs.message })).await;
    assert_eq!(taken["value"], CODE, "the code is still available to its owner: {taken}");
    let lease = fixture.call_tool("claim_thread", json!({ "thread": theirs.thread, "holder": "owner" })).await;
    assert_eq!(lease["holder"], "owner", "{lease}");
}

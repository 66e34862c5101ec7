//! The MCP protocol: both revisions, authentication and origins, and invalid messages.

use serde_json::{Value, json};

use crate::fixtures::McpFixture;

const STATELESS_VERSION: &str = "2026-07-28";

fn json_rpc_request(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params })
}

fn stateless_params(more: Value) -> Value {
    let mut params = json!({ "_meta": {
        "io.modelcontextprotocol/protocolVersion": STATELESS_VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
    } });
    for (name, value) in more.as_object().unwrap() {
        params[name] = value.clone();
    }
    params
}

#[tokio::test]
async fn both_revisions_are_supported_and_others_get_the_supported_ones() {
    let fixture = McpFixture::start().await;
    for (requested, agreed) in
        [("2025-11-25", "2025-11-25"), ("2025-06-18", "2025-06-18"), ("1999-01-01", "2025-11-25")]
    {
        let params =
            json!({ "protocolVersion": requested, "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
        let (status, answer) = fixture.post_mcp(&[], &json_rpc_request("initialize", params)).await;
        assert_eq!((status, &answer["result"]["protocolVersion"]), (200, &json!(agreed)), "{answer}");
        assert!(answer["result"]["instructions"].as_str().unwrap().contains("untrusted"));
    }
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(fixture.post_mcp(&[("MCP-Protocol-Version", "2025-11-25")], &note).await.0, 202);
    assert_eq!(fixture.post_mcp(&[], &json_rpc_request("ping", json!({}))).await.1["result"], json!({}));
    let (status, unknown) = fixture.post_mcp(&[], &json_rpc_request("prompts/list", json!({}))).await;
    assert_eq!((status, &unknown["error"]["code"]), (200, &json!(-32601)));

    let headers_for = |method: &'static str| [("MCP-Protocol-Version", STATELESS_VERSION), ("Mcp-Method", method)];
    let discover = json_rpc_request("server/discover", stateless_params(json!({})));
    let (status, answer) = fixture.post_mcp(&headers_for("server/discover"), &discover).await;
    assert_eq!(status, 200, "{answer}");
    assert!(answer["result"]["supportedVersions"].as_array().unwrap().contains(&json!(STATELESS_VERSION)));
    assert_eq!(answer["result"]["resultType"], "complete");
    let (status, unknown) =
        fixture.post_mcp(&headers_for("ping"), &json_rpc_request("ping", stateless_params(json!({})))).await;
    assert_eq!((status, &unknown["error"]["code"], &unknown["id"]), (404, &json!(-32601), &json!(7)));
    let (status, future) = fixture.post_mcp(&[("MCP-Protocol-Version", "2031-01-01")], &discover).await;
    assert_eq!((status, &future["error"]["code"]), (400, &json!(-32022)));
    assert_eq!(future["error"]["data"]["requested"], "2031-01-01");
}

#[tokio::test]
async fn headers_that_contradict_the_body_are_refused() {
    let fixture = McpFixture::start().await;
    let list = json_rpc_request("tools/list", stateless_params(json!({})));
    let call = json_rpc_request("tools/call", stateless_params(json!({ "name": "find_messages", "arguments": {} })));
    let version = ("MCP-Protocol-Version", STATELESS_VERSION);
    for (headers, body, status, code) in [
        (vec![version, ("Mcp-Method", "tools/list")], &list, 200, Value::Null),
        (vec![version, ("Mcp-Method", "tools/call")], &list, 400, json!(-32020)),
        (vec![version], &list, 400, json!(-32020)),
        (vec![], &list, 400, json!(-32020)),
        (vec![version, ("Mcp-Method", "tools/list")], &json_rpc_request("tools/list", json!({})), 400, json!(-32602)),
        (vec![version, ("Mcp-Method", "tools/call"), ("Mcp-Name", "find_messages")], &call, 200, Value::Null),
        (vec![version, ("Mcp-Method", "tools/call"), ("Mcp-Name", "send_email")], &call, 400, json!(-32020)),
        (vec![version, ("Mcp-Method", "tools/call")], &call, 400, json!(-32020)),
    ] {
        let (actual_status, answer) = fixture.post_mcp(&headers, body).await;
        assert_eq!((actual_status, &answer["error"]["code"]), (status, &code), "{headers:?}: {answer}");
    }
}

#[tokio::test]
async fn only_known_keys_and_local_origins_are_accepted() {
    let fixture = McpFixture::start().await;
    let list = json_rpc_request("tools/list", json!({}));
    for (headers, status) in [
        (vec![("Authorization", "")], 401),
        (vec![("Authorization", "Bearer mo_nobody_has_this_key")], 401),
        (vec![("Origin", "http://evil.example.com")], 403),
        (vec![("Origin", "null")], 403),
        (vec![("Origin", "http://localhost:6274")], 200),
        (vec![("Accept", "text/html")], 406),
        (vec![("Accept", "application/json, text/event-stream")], 200),
        (vec![("Content-Type", "text/plain")], 415),
    ] {
        let (actual_status, answer) = fixture.post_mcp(&headers, &list).await;
        assert_eq!(actual_status, status, "{headers:?}: {answer}");
        assert_eq!(answer["error"].is_object(), status != 200, "{answer}");
    }
    for method in ["GET", "DELETE", "PUT"] {
        let (status, answer) = fixture.server.call(method, "/mcp", &[], "").await;
        assert_eq!(status, 405, "{method}: {answer}");
    }
    for (body, code) in [("{", -32700), ("[]", -32600), (r#"{"jsonrpc":"2.0","id":1}"#, -32600)] {
        let bearer = format!("Bearer {}", fixture.server.api_key);
        let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
        let (status, answer) = fixture.server.call("POST", "/mcp", &headers, body).await;
        assert_eq!((status, &answer["error"]["code"], &answer["id"]), (400, &json!(code), &Value::Null), "{body}");
    }
    let huge = json_rpc_request("tools/call", json!({ "name": "x".repeat(5 * 1024 * 1024) }));
    assert_eq!(fixture.post_mcp(&[], &huge).await.0, 413);
}

#[tokio::test]
async fn tool_hints_are_correct_and_tools_are_listed_by_scope() {
    let fixture = McpFixture::start().await;
    let (_, answer) = fixture.post_mcp(&[], &json_rpc_request("tools/list", json!({}))).await;
    let tools = answer["result"]["tools"].as_array().unwrap();
    let hints = |name: &str| {
        let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
        let hint = |hint: &str| tool["annotations"][hint].as_bool().unwrap();
        [hint("readOnlyHint"), hint("destructiveHint"), hint("idempotentHint"), hint("openWorldHint")]
    };
    for (name, expected_hints) in [
        ("send_email", [false, true, true, true]),
        ("reply_email", [false, true, true, true]),
        ("resend_email", [false, true, true, true]),
        ("get_outcome", [true, false, true, false]),
        ("find_messages", [true, false, true, true]),
        ("read_message", [true, false, true, true]),
        ("wait_for_message", [true, false, true, true]),
        ("take_artifact", [false, true, true, true]),
        ("claim_thread", [false, false, true, false]),
        ("ask_human", [false, false, true, false]),
    ] {
        assert_eq!(hints(name), expected_hints, "{name}");
    }
    assert_eq!(tools.len(), 10);
    let send = tools.iter().find(|tool| tool["name"] == "send_email").unwrap();
    for intent in ["type", "entity"] {
        assert!(send["inputSchema"]["required"].as_array().unwrap().contains(&json!(intent)));
    }
    let (_, reader) = fixture.api_call("POST", "/v1/api-keys", &json!({ "name": "reader", "scopes": ["read"] })).await;
    let bearer = format!("Bearer {}", reader["api_key"].as_str().unwrap());
    let (_, answer) = fixture.post_mcp(&[("Authorization", &bearer)], &json_rpc_request("tools/list", json!({}))).await;
    let names: Vec<&str> =
        answer["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["get_outcome", "find_messages", "read_message", "wait_for_message", "take_artifact"]);
    let mail = json!({ "to": "ann@people.test", "subject": "s", "text": "t", "type": "t", "entity": "e" });
    let refused = fixture.call_tool_as(reader["api_key"].as_str().unwrap(), "send_email", &mail).await;
    assert_eq!((&refused["isError"], &refused["structuredContent"]["status"]), (&json!(false), &json!("wrong_scope")));
    assert_eq!(fixture.wait_for_mail_count("ann@people.test", 0).await, 0);
    let (_, unknown) =
        fixture.post_mcp(&[], &json_rpc_request("tools/call", json!({ "name": "resolve_escalation" }))).await;
    assert_eq!(unknown["error"]["code"], -32602);
}

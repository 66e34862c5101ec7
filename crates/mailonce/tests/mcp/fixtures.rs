//! The MCP fixture: a server with an SMTP sink, helpers to receive mail, and a plain client for its tools.

use serde_json::{Value, json};
use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    sync::{Mutex, OnceCell},
};

use crate::{
    binary::{CliFixture, SpawnedServer},
    sink::SmtpMailSink,
};

/// The inbox that `dev` creates.
pub(crate) const AGENT_INBOX: &str = "agent@mailonce.test";

pub(crate) struct McpFixture {
    pub(crate) cli: CliFixture,
    pub(crate) server: SpawnedServer,
    pub(crate) sink: SmtpMailSink,
    smtp_connection: Mutex<Option<BufReader<TcpStream>>>,
    smtp_address: String,
    next_id: AtomicU64,
    output_schemas: OnceCell<HashMap<String, Value>>,
}

impl McpFixture {
    /// Starts a server whose mail goes to a new sink.
    pub(crate) async fn start() -> Self {
        Self::with_sink(SmtpMailSink::start().await, &[]).await
    }

    /// Starts a server whose mail goes to this sink, with extra environment variables.
    pub(crate) async fn with_sink(sink: SmtpMailSink, env: &[(&str, &str)]) -> Self {
        let cli = CliFixture::new();
        let config = format!(
            "[[transports]]\nname = \"relay\"\nkind = \"smtp\"\nhost = \"127.0.0.1\"\nport = {}\ntls = \"none\"\n",
            sink.port
        );
        std::fs::write(cli.path().join("mailonce.toml"), config).unwrap();
        Self::start_in(cli, sink, env).await
    }

    /// Starts a server without transports, so all mail goes to the sandbox with its misbehaving addresses.
    pub(crate) async fn with_sandbox() -> Self {
        Self::start_in(CliFixture::new(), SmtpMailSink::start().await, &[]).await
    }

    async fn start_in(cli: CliFixture, sink: SmtpMailSink, env: &[(&str, &str)]) -> Self {
        let server = cli.start_dev(env).await;
        let smtp_address =
            server.startup_banner.split("SMTP at ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
        // Two servers of one test never see the same call id.
        let next_id =
            AtomicU64::new(u64::from(smtp_address.rsplit(':').next().unwrap().parse::<u16>().unwrap()) * 1_000_000);
        Self {
            cli,
            server,
            sink,
            smtp_connection: Mutex::default(),
            smtp_address,
            next_id,
            output_schemas: OnceCell::new(),
        }
    }

    /// Posts one message to `/mcp` with extra headers.
    pub(crate) async fn post_mcp(&self, headers: &[(&str, &str)], body: &Value) -> (u16, Value) {
        let bearer = format!("Bearer {}", self.server.api_key);
        let mut all = vec![("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
        all.retain(|(name, _)| !headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)));
        all.extend_from_slice(headers);
        all.retain(|(_, value)| !value.is_empty());
        self.server.call("POST", "/mcp", &all, &body.to_string()).await
    }

    fn tool_request(&self, tool: &str, arguments: &Value) -> Value {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let meta = json!({ "claudecode/toolUseId": format!("toolu_{id}") });
        let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
    }

    /// Calls a tool with a new call id and this API key. Returns the whole result.
    pub(crate) async fn call_tool_as(&self, api_key: &str, tool: &str, arguments: &Value) -> Value {
        let bearer = format!("Bearer {api_key}");
        let (status, answer) = self.post_mcp(&[("Authorization", &bearer)], &self.tool_request(tool, arguments)).await;
        assert_eq!(status, 200, "{answer}");
        let result = answer["result"].clone();
        assert!(result.is_object(), "{answer}");
        let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text, result["structuredContent"], "the text content differs from structuredContent");
        check_schema(&self.output_schemas().await[tool], &result["structuredContent"]);
        result
    }

    /// Calls a tool that must not return an error.
    pub(crate) async fn call_tool(&self, tool: &str, arguments: Value) -> Value {
        let result = self.call_tool_as(&self.server.api_key, tool, &arguments).await;
        assert_eq!(result["isError"], false, "{tool} {arguments}: {result}");
        result["structuredContent"].clone()
    }

    /// Calls a tool that must return an error.
    pub(crate) async fn call_tool_expect_error(&self, tool: &str, arguments: Value) -> Value {
        let result = self.call_tool_as(&self.server.api_key, tool, &arguments).await;
        assert_eq!(result["isError"], true, "{tool} {arguments}: {result}");
        result["structuredContent"].clone()
    }

    /// Sends a call and disconnects before the response.
    pub(crate) async fn call_and_disconnect(&self, tool: &str, arguments: &Value) {
        let body = self.tool_request(tool, arguments).to_string();
        let address = self.server.url.strip_prefix("http://").unwrap();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.server.api_key,
            body.len()
        );
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
    }

    /// Calls the HTTP API.
    pub(crate) async fn api_call(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let bearer = format!("Bearer {}", self.server.api_key);
        let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.server.call(method, path, &headers, &body).await
    }

    /// From now on mail to people.test needs approval by a person.
    pub(crate) async fn require_approval(&self) {
        let rule = json!({
            "name": "ask", "direction": "outbound",
            "match": { "operator": "all", "conditions": [{ "field": "recipient.domain", "operator": "is", "value": "people.test" }] },
            "actions": [{ "type": "approve" }],
        });
        let (status, created) = self.api_call("POST", "/v1/rules", &rule).await;
        assert_eq!(status, 201, "{created}");
    }

    /// Creates an agent's API key, which can send, read and reply but not resolve escalations.
    pub(crate) async fn create_agent_key(&self) -> String {
        let agent = json!({ "name": "agent", "scopes": ["send", "read", "reply"] });
        let (_, agent) = self.api_call("POST", "/v1/api-keys", &agent).await;
        agent["api_key"].as_str().unwrap().to_owned()
    }

    /// The names of all tools.
    pub(crate) async fn tool_names(&self) -> Vec<String> {
        self.output_schemas().await.keys().cloned().collect()
    }

    /// The output schemas of the tools.
    async fn output_schemas(&self) -> &HashMap<String, Value> {
        let listed = async {
            let list = json!({ "jsonrpc": "2.0", "id": "list", "method": "tools/list" });
            let (_, answer) = self.post_mcp(&[], &list).await;
            let tools = answer["result"]["tools"].as_array().unwrap();
            tools.iter().map(|tool| (tool["name"].as_str().unwrap().to_owned(), tool["outputSchema"].clone())).collect()
        };
        self.output_schemas.get_or_init(|| listed).await
    }

    /// Receives a mail by SMTP.
    pub(crate) async fn receive_mail(&self, from: &str, to: &str, head: &str, body: &str) {
        self.receive_mail_from(from, from, to, head, body).await;
    }

    /// Receives a mail whose From header differs from its envelope sender.
    pub(crate) async fn receive_mail_from(&self, envelope: &str, from: &str, to: &str, head: &str, body: &str) {
        let mut line = self.smtp_connection.lock().await;
        if line.is_none() {
            let mut fresh = BufReader::new(TcpStream::connect(&self.smtp_address).await.unwrap());
            expect_reply(&mut fresh, '2').await;
            smtp_command(&mut fresh, "EHLO people.test", '2').await;
            *line = Some(fresh);
        }
        let stream = line.as_mut().unwrap();
        smtp_command(stream, &format!("MAIL FROM:<{envelope}>"), '2').await;
        smtp_command(stream, &format!("RCPT TO:<{to}>"), '2').await;
        smtp_command(stream, "DATA", '3').await;
        let number = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mail = format!("From: {from}\nTo: {to}\nMessage-ID: <{number}@people.test>\n{head}\n\n{body}");
        let lines: Vec<String> =
            mail.lines().map(|line| if line.starts_with('.') { format!(".{line}") } else { line.to_owned() }).collect();
        smtp_command(stream, &format!("{}\r\n.", lines.join("\r\n")), '2').await;
    }

    /// Receives a plain text mail from a person.
    pub(crate) async fn receive_text(&self, from: &str, subject: &str, text: &str) {
        self.receive_mail(from, AGENT_INBOX, &format!("Subject: {subject}"), text).await;
    }

    /// Waits until `count` mails to an address are in the sink, and a little longer to detect one too many.
    pub(crate) async fn wait_for_mail_count(&self, address: &str, count: usize) -> usize {
        for _ in 0..200 {
            if self.sink.mails_to(address).len() >= count {
                break;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        tokio::time::sleep(Duration::from_millis(150)).await;
        self.sink.mails_to(address).len()
    }
}

/// Fails unless a result matches its output schema: required members and types.
#[track_caller]
fn check_schema(schema: &Value, answer: &Value) {
    for name in schema["required"].as_array().unwrap() {
        assert!(answer.get(name.as_str().unwrap()).is_some(), "no {name} in {answer}");
    }
    for (name, property) in schema["properties"].as_object().unwrap() {
        let Some(value) = answer.get(name) else { continue };
        let kind = match value {
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "integer",
            Value::Null => "null",
        };
        assert_eq!(property["type"], kind, "{name} in {answer}");
    }
}

async fn smtp_command(stream: &mut BufReader<TcpStream>, command: &str, answer: char) {
    stream.get_mut().write_all(format!("{command}\r\n").as_bytes()).await.unwrap();
    expect_reply(stream, answer).await;
}

async fn expect_reply(stream: &mut BufReader<TcpStream>, answer: char) {
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        assert!(line.starts_with(answer), "{line}");
        if line.as_bytes().get(3) == Some(&b' ') {
            return;
        }
    }
}

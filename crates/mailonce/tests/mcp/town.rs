//! A server with a sink behind it, people who write to it, and a plain client for its tools.

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

/// The inbox that `dev` makes.
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
    /// Everything that is sent reaches the sink.
    pub(crate) async fn start() -> Self {
        Self::with_sink(SmtpMailSink::start().await, &[]).await
    }

    /// A server in front of this sink, with more in its environment.
    pub(crate) async fn with_sink(sink: SmtpMailSink, env: &[(&str, &str)]) -> Self {
        let desk = CliFixture::new();
        let config = format!(
            "[[transports]]\nname = \"relay\"\nkind = \"smtp\"\nhost = \"127.0.0.1\"\nport = {}\ntls = \"none\"\n",
            sink.port
        );
        std::fs::write(desk.path().join("mailonce.toml"), config).unwrap();
        Self::start_in(desk, sink, env).await
    }

    /// Nothing is configured, so the sandbox has all mail, with its addresses that misbehave.
    pub(crate) async fn with_sandbox() -> Self {
        Self::start_in(CliFixture::new(), SmtpMailSink::start().await, &[]).await
    }

    async fn start_in(desk: CliFixture, sink: SmtpMailSink, env: &[(&str, &str)]) -> Self {
        let server = desk.start_dev(env).await;
        let smtp_at =
            server.startup_banner.split("SMTP at ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
        // No two servers of one test see the same id of a call.
        let ids = AtomicU64::new(u64::from(smtp_at.rsplit(':').next().unwrap().parse::<u16>().unwrap()) * 1_000_000);
        Self {
            cli: desk,
            server,
            sink,
            smtp_connection: Mutex::default(),
            smtp_address: smtp_at,
            next_id: ids,
            output_schemas: OnceCell::new(),
        }
    }

    /// One message to `/mcp` with more headers.
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

    /// Calls a tool under an id of its own, with the credential of somebody. The whole result.
    pub(crate) async fn call_tool_as(&self, api_key: &str, tool: &str, arguments: &Value) -> Value {
        let bearer = format!("Bearer {api_key}");
        let (status, answer) = self.post_mcp(&[("Authorization", &bearer)], &self.tool_request(tool, arguments)).await;
        assert_eq!(status, 200, "{answer}");
        let result = answer["result"].clone();
        assert!(result.is_object(), "{answer}");
        let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text, result["structuredContent"], "the text is not the same as the members");
        check_schema(&self.output_schemas().await[tool], &result["structuredContent"]);
        result
    }

    /// Calls a tool that must not err.
    pub(crate) async fn call_tool(&self, tool: &str, arguments: Value) -> Value {
        let result = self.call_tool_as(&self.server.api_key, tool, &arguments).await;
        assert_eq!(result["isError"], false, "{tool} {arguments}: {result}");
        result["structuredContent"].clone()
    }

    /// Calls a tool that must err.
    pub(crate) async fn call_tool_expect_error(&self, tool: &str, arguments: Value) -> Value {
        let result = self.call_tool_as(&self.server.api_key, tool, &arguments).await;
        assert_eq!(result["isError"], true, "{tool} {arguments}: {result}");
        result["structuredContent"].clone()
    }

    /// Sends a call and goes away before its answer.
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

    /// A call of the HTTP API.
    pub(crate) async fn api_call(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let bearer = format!("Bearer {}", self.server.api_key);
        let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.server.call(method, path, &headers, &body).await
    }

    /// From now on mail to people waits for a person who approves it.
    pub(crate) async fn require_approval(&self) {
        let rule = json!({
            "name": "ask", "direction": "outbound",
            "match": { "operator": "all", "conditions": [{ "field": "recipient.domain", "operator": "is", "value": "people.test" }] },
            "actions": [{ "type": "approve" }],
        });
        let (status, made) = self.api_call("POST", "/v1/rules", &rule).await;
        assert_eq!(status, 201, "{made}");
    }

    /// An agent's credential: it sends, reads and answers, and decides nothing.
    pub(crate) async fn create_agent_key(&self) -> String {
        let agent = json!({ "name": "agent", "scopes": ["send", "read", "reply"] });
        let (_, agent) = self.api_call("POST", "/v1/api-keys", &agent).await;
        agent["api_key"].as_str().unwrap().to_owned()
    }

    /// The names of all tools.
    pub(crate) async fn tool_names(&self) -> Vec<String> {
        self.output_schemas().await.keys().cloned().collect()
    }

    /// What the tools say that their answers look like.
    async fn output_schemas(&self) -> &HashMap<String, Value> {
        let listed = async {
            let list = json!({ "jsonrpc": "2.0", "id": "list", "method": "tools/list" });
            let (_, answer) = self.post_mcp(&[], &list).await;
            let tools = answer["result"]["tools"].as_array().unwrap();
            tools.iter().map(|tool| (tool["name"].as_str().unwrap().to_owned(), tool["outputSchema"].clone())).collect()
        };
        self.output_schemas.get_or_init(|| listed).await
    }

    /// A mail arrives by SMTP.
    pub(crate) async fn receive_mail(&self, from: &str, to: &str, head: &str, body: &str) {
        self.receive_mail_from(from, from, to, head, body).await;
    }

    /// A mail arrives whose writer has another name than its envelope.
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

    /// A person writes plain words.
    pub(crate) async fn receive_text(&self, from: &str, subject: &str, text: &str) {
        self.receive_mail(from, AGENT_INBOX, &format!("Subject: {subject}"), text).await;
    }

    /// Waits until so many mails to an address are in the sink, and a little longer for one too many.
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

/// Fails unless an answer is what its schema says, as far as our schemas say anything: objects, members and types.
#[track_caller]
fn check_schema(schema: &Value, answer: &Value) {
    for name in schema["required"].as_array().unwrap() {
        assert!(answer.get(name.as_str().unwrap()).is_some(), "no {name} in {answer}");
    }
    for (name, about) in schema["properties"].as_object().unwrap() {
        let Some(value) = answer.get(name) else { continue };
        let kind = match value {
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "integer",
            Value::Null => "null",
        };
        assert_eq!(about["type"], kind, "{name} in {answer}");
    }
}

async fn smtp_command(stream: &mut BufReader<TcpStream>, words: &str, answer: char) {
    stream.get_mut().write_all(format!("{words}\r\n").as_bytes()).await.unwrap();
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

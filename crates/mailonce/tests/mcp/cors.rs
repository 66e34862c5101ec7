//! CORS at `/mcp`: pages of configured origins may call the tools, all other pages may not.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{fixtures::McpFixture, sink::SmtpMailSink};

const PAGE: &str = "https://app.example.com";
const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

/// Makes one call and returns its status and the head of the response in lower case.
async fn call(fixture: &McpFixture, line: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
    let address = fixture.server.url.strip_prefix("http://").unwrap();
    let headers: String = headers.iter().flat_map(|(name, value)| [*name, ": ", *value, "\r\n"]).collect();
    let request = format!(
        "{line} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let head = answer.split("\r\n\r\n").next().unwrap().to_ascii_lowercase();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), head)
}

fn preflight(origin: &str) -> [(&str, &str); 3] {
    let headers = "authorization,content-type,mcp-protocol-version";
    [("Origin", origin), ("Access-Control-Request-Method", "POST"), ("Access-Control-Request-Headers", headers)]
}

#[tokio::test]
async fn a_page_of_an_allowed_origin_may_call_the_tools() {
    let env = [("MAILONCE_HTTP_ALLOWED_ORIGINS", PAGE)];
    let fixture = McpFixture::with_sink(SmtpMailSink::start().await, &env).await;
    let (status, head) = call(&fixture, "OPTIONS /mcp", &preflight(PAGE), "").await;
    assert_eq!(status, 204, "{head}");
    for expected in [
        "access-control-allow-origin: https://app.example.com\r\n",
        "access-control-allow-methods: post\r\n",
        "access-control-max-age: 600\r\n",
        "vary: origin\r\n",
    ] {
        assert!(format!("{head}\r\n").contains(expected), "{expected} in {head}");
    }
    let allowed = head.lines().find(|line| line.starts_with("access-control-allow-headers")).unwrap();
    for header in ["authorization", "content-type", "mcp-protocol-version", "mcp-session-id", "mcp-method", "mcp-name"]
    {
        assert!(allowed.contains(header), "{header} in {allowed}");
    }

    let bearer = format!("Bearer {}", fixture.server.api_key);
    for (key, expected) in [(bearer.as_str(), 200), ("Bearer mo_unknown", 401)] {
        let headers = [("Origin", PAGE), ("Authorization", key), ("Content-Type", "application/json")];
        let (status, head) = call(&fixture, "POST /mcp", &headers, LIST).await;
        assert_eq!(status, expected, "{head}");
        assert!(head.contains("access-control-allow-origin: https://app.example.com"), "{head}");
        let exposed = head.lines().find(|line| line.starts_with("access-control-expose-headers")).unwrap();
        assert!(exposed.contains("mcp-session-id") && exposed.contains("mcp-protocol-version"), "{exposed}");
        assert!(!head.contains("access-control-allow-credentials"), "{head}");
    }
}

#[tokio::test]
async fn other_pages_and_other_paths_get_no_cors_headers() {
    let env = [("MAILONCE_HTTP_ALLOWED_ORIGINS", PAGE)];
    let configured = McpFixture::with_sink(SmtpMailSink::start().await, &env).await;
    let by_default = McpFixture::start().await;
    for (fixture, path, origin) in [
        (&configured, "/mcp", "https://evil.example.com"),
        (&configured, "/mcp", "http://app.example.com"),
        (&configured, "/mcp", "null"),
        (&configured, "/v1/emails", PAGE),
        (&by_default, "/mcp", PAGE),
    ] {
        let bearer = format!("Bearer {}", fixture.server.api_key);
        let (status, head) = call(fixture, &format!("OPTIONS {path}"), &preflight(origin), "").await;
        assert!(status >= 400 && !head.contains("access-control-"), "{path} {origin}: {head}");
        let headers = [("Origin", origin), ("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
        let (status, head) = call(fixture, &format!("POST {path}"), &headers, LIST).await;
        assert_eq!(status, 403, "{path} {origin}: {head}");
        assert!(!head.contains("access-control-"), "{path} {origin}: {head}");
    }
}

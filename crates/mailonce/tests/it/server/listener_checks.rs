//! What the listener refuses before the API sees it: foreign hosts and origins, guessed API keys and slow bodies. Also
//! the security headers of every response.

use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

use crate::fixtures::binary::{CliFixture, SpawnedServer};

const TIMEOUT: Duration = Duration::from_mins(1);

/// A response with its headers.
struct RawResponse {
    status: u16,
    headers: BTreeMap<String, String>,
    body: Value,
}

impl RawResponse {
    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no response: {text:?}"));
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let pair = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self { status, headers: lines.filter_map(pair).collect(), body: serde_json::from_str(body).unwrap_or_default() }
    }

    fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }
}

fn socket_addr(server: &SpawnedServer) -> SocketAddr {
    server.url.strip_prefix("http://").unwrap().parse().unwrap()
}

/// Makes one call with exactly these headers.
async fn raw_request(server: &SpawnedServer, line: &str, headers: &[(&str, &str)]) -> RawResponse {
    let headers: String = headers.iter().flat_map(|(name, value)| [*name, ": ", *value, "\r\n"]).collect();
    let mut stream = TcpStream::connect(socket_addr(server)).await.unwrap();
    stream.write_all(format!("{line} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(TIMEOUT, stream.read_to_string(&mut answer)).await.expect("no answer").unwrap();
    RawResponse::parse(&answer)
}

#[tokio::test]
async fn a_foreign_host_is_refused_with_the_setting_to_change() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[("MAILONCE_HTTP_HOSTS", "mailonce,Mail.internal")]).await;
    let bearer = format!("Bearer {}", server.api_key);
    for (line, host, status) in [
        ("GET /v1/emails", "127.0.0.1:6245", 200),
        ("GET /v1/emails", "localhost", 200),
        ("GET /v1/emails", "mailonce:8080", 200),
        ("GET /v1/emails", "mail.internal", 200),
        // DNS rebinding: an attacker's name that resolves to this machine.
        ("GET /v1/emails", "rebind.evil.example.com", 421),
        ("GET /docs", "rebind.evil.example.com", 421),
        ("GET /nothing", "rebind.evil.example.com", 421),
        ("GET http://rebind.evil.example.com/v1/emails", "localhost", 421),
        ("GET /v1/emails", "192.0.2.7", 421),
        ("GET /healthz", "rebind.evil.example.com", 200),
        ("GET /readyz", "10.1.2.3:8080", 200),
        ("GET /metrics", "mailonce.default.svc", 200),
        ("POST /hooks/00000000-0000-0000-0000-000000000000", "hooks.example.com", 404),
    ] {
        let answer = raw_request(&server, line, &[("Host", host), ("Authorization", &bearer)]).await;
        assert_eq!(answer.status, status, "{line} at {host}: {}", answer.body);
        assert_eq!(answer.code() == "misdirected_host", status == 421, "{}", answer.body);
    }
    let refused = raw_request(&server, "GET /v1/emails", &[("Host", "other:8080"), ("Authorization", &bearer)]).await;
    let detail = refused.body["detail"].as_str().unwrap();
    assert!(detail.contains("MAILONCE_HTTP_HOSTS=other,") && detail.contains("http.public_url"), "{detail}");
    let mcp = raw_request(&server, "POST /mcp", &[("Host", "evil.example.com"), ("Authorization", &bearer)]).await;
    assert_eq!((mcp.status, &mcp.body["error"]["data"]["code"]), (421, &"misdirected_host".into()), "{}", mcp.body);
    assert_eq!(raw_request(&server, "GET /v1/emails", &[("Authorization", &bearer)]).await.status, 421);
}

/// Starts a server whose public URL is that of a proxy.
async fn start_behind_proxy(cli: &CliFixture) -> SpawnedServer {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = cli.command(&["dev", "--http", &free.to_string()]);
    let key = "a-key-of-this-test-alone";
    let env = [("MAILONCE_HTTP_PUBLIC_URL", "https://mail.example.com"), ("MAILONCE_API_KEY", key)];
    let mut server = SpawnedServer::spawn(command.envs(env));
    server.read_stderr_until("Ctrl-C stops it.").await;
    (server.url, server.api_key) = (format!("http://{free}"), key.to_owned());
    server
}

#[tokio::test]
async fn a_foreign_origin_can_neither_read_nor_change_anything() {
    let cli = CliFixture::new();
    let server = start_behind_proxy(&cli).await;
    let bearer = format!("Bearer {}", server.api_key);
    let with_key = ("Authorization", bearer.as_str());
    for (line, origin, key, status) in [
        ("GET /v1/emails", "https://mail.example.com", true, 200),
        ("GET /v1/emails", "https://evil.example.com", true, 403),
        ("GET /v1/emails", "null", true, 403),
        ("GET /v1/emails", "http://mail.example.com", true, 403),
        ("POST /v1/handoff/pause", "https://evil.example.com", false, 403),
        ("POST /v1/handoff/pause", "https://evil.example.com", true, 403),
        ("GET /openapi.json", "https://evil.example.com", false, 200),
        ("GET /healthz", "https://evil.example.com", true, 200),
        ("GET /mcp", "https://evil.example.com", true, 403),
    ] {
        let mut headers = vec![("Host", "mail.example.com"), ("Origin", origin), ("Content-Length", "0")];
        headers.extend(key.then_some(with_key));
        let answer = raw_request(&server, line, &headers).await;
        assert_eq!(answer.status, status, "{line} from {origin}: {}", answer.body);
        if status == 403 && !line.ends_with("/mcp") {
            assert_eq!(answer.code(), "foreign_origin", "{}", answer.body);
        }
    }
}

#[tokio::test]
async fn every_response_has_security_headers() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    for (path, host) in [
        ("/v1/emails", "localhost"),
        ("/docs", "localhost"),
        ("/nothing", "localhost"),
        ("/healthz", "x"),
        ("/docs", "x"),
    ] {
        let headers = raw_request(&server, &format!("GET {path}"), &[("Host", host)]).await.headers;
        assert_eq!(headers["x-content-type-options"], "nosniff", "{path}");
        assert_eq!(headers["referrer-policy"], "no-referrer", "{path}");
        assert_eq!(headers["cross-origin-resource-policy"], "same-origin", "{path}");
        assert_eq!(headers["cache-control"], "no-store", "{path}");
        assert!(!headers.contains_key("strict-transport-security"), "no HSTS without TLS");
    }
    let docs = raw_request(&server, "GET /docs", &[("Host", "localhost")]).await.headers;
    assert!(docs["content-security-policy"].contains("frame-ancestors 'none'"), "{docs:?}");
}

#[tokio::test]
async fn guessing_api_keys_is_rate_limited_per_address() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[("MAILONCE_HTTP_TRUSTED_PROXIES", "127.0.0.0/8")]).await;
    let bearer = format!("Bearer {}", server.api_key);
    let from = async |address: &str, bearer: &str| {
        let headers = [("Host", "localhost"), ("X-Forwarded-For", address), ("Authorization", bearer)];
        raw_request(&server, "GET /v1/emails", &headers).await
    };
    for n in 0..20 {
        // The proxy appends the real client address to whatever the client sends.
        let forged = format!("192.0.2.{n}, 198.51.100.7");
        assert_eq!(from(&forged, &format!("Bearer mo_guess_{n}")).await.status, 401, "{n}");
    }
    let refused = from("198.51.100.7", "Bearer mo_guess").await;
    assert_eq!((refused.status, refused.code()), (429, "too_many_failures"), "{}", refused.body);
    let seconds: u64 = refused.headers["retry-after"].parse().unwrap();
    assert!((1..=60).contains(&seconds), "{seconds}");
    assert_eq!(from("198.51.100.7", "").await.status, 429, "also without an API key");
    assert_eq!(from("198.51.100.8", "Bearer mo_guess").await.status, 401, "another address");
    assert_eq!(from("198.51.100.8", &bearer).await.status, 200, "a valid key from another address");
    assert_eq!(
        from("198.51.100.7", &bearer).await.status,
        200,
        "a key that was accepted before, from the limited address"
    );
    let resend = [("Host", "localhost"), ("X-Forwarded-For", "198.51.100.7"), ("Authorization", "Bearer re_x")];
    assert_eq!(raw_request(&server, "GET /compat/resend/emails", &resend).await.status, 429);
    assert_eq!(raw_request(&server, "POST /mcp", &resend).await.status, 429);
}

#[tokio::test]
async fn a_base_url_of_a_dialect_may_end_with_a_slash() {
    let server = CliFixture::new().start_dev(&[]).await;
    let bearer = format!("Bearer {}", server.api_key);
    let headers = [("Host", "localhost"), ("Authorization", bearer.as_str())];
    for path in ["/compat/resend/emails", "/compat/resend//emails?limit=1", "/compat/resend/emails/"] {
        let answer = raw_request(&server, &format!("GET {path}"), &headers).await;
        assert_eq!(answer.status, 200, "{path} {}", answer.body);
    }
    assert_eq!(raw_request(&server, "GET /v1//emails", &headers).await.status, 404, "only in dialects");
    assert_eq!(raw_request(&server, "GET /mcp/", &headers).await.status, 405);
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    let mail = json!({ "from": "agent@mailonce.test", "to": "ann@people.test", "subject": "Hi", "text": "Hello" });
    let tools = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    for (path, body, member) in [
        ("/compat/resend/emails/", &mail, "/id"),
        ("/compat/usesend/api/v1/emails/", &mail, "/emailId"),
        ("/compat/agentmail/v0/inboxes/", &json!({ "username": "slash" }), "/inbox_id"),
        ("/mcp/", &tools, "/result/tools/0/name"),
    ] {
        let (status, answer) = server.call("POST", path, &headers, &body.to_string()).await;
        assert!(status == 200 && answer.pointer(member).is_some_and(Value::is_string), "{path} {status} {answer}");
    }
}

#[tokio::test]
async fn an_api_key_works_only_from_its_allowed_addresses() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[("MAILONCE_HTTP_TRUSTED_PROXIES", "127.0.0.0/8")]).await;
    let create_key = async |by: &str, from: &str, request: Value| {
        let bearer = format!("Bearer {by}");
        let headers =
            [("content-type", "application/json"), ("authorization", bearer.as_str()), ("x-forwarded-for", from)];
        server.call("POST", "/v1/api-keys", &headers, &request.to_string()).await
    };
    let request = json!({ "name": "office", "scopes": ["read", "admin"], "allow_ips": ["198.51.100.0/24"] });
    let (_, created) = create_key(&server.api_key, "203.0.113.9", request).await;
    let office = created["api_key"].as_str().unwrap();
    let bearer = format!("Bearer {office}");
    let from = async |line: &str, address: &str| {
        let headers = [("Host", "localhost"), ("X-Forwarded-For", address), ("Authorization", bearer.as_str())];
        raw_request(&server, line, &headers).await
    };
    assert_eq!(from("GET /v1/emails", "198.51.100.7").await.status, 200);
    for line in ["GET /v1/emails", "GET /v1/events/stream", "POST /v1/emails"] {
        let refused = from(line, "203.0.113.9").await;
        assert_eq!((refused.status, refused.code()), (403, "ip_not_allowed"), "{line} {}", refused.body);
        // A forged address in front of the real one does not help.
        assert_eq!(from(line, "198.51.100.7, 203.0.113.9").await.status, 403, "{line}");
    }
    assert_eq!(from("GET /compat/resend/emails", "203.0.113.9").await.status, 401);
    assert_eq!(from("POST /mcp", "203.0.113.9").await.status, 403);
    // These refusals are not counted as failed authentications.
    for _ in 0..25 {
        assert_eq!(from("GET /v1/emails", "203.0.113.9").await.status, 403);
    }
    assert_eq!(from("GET /v1/emails", "198.51.100.7").await.status, 200);
    // The key cannot create a key with wider addresses.
    for (allow_ips, status) in [
        (json!([]), 403),
        (json!(["0.0.0.0/0"]), 403),
        (json!(["198.51.100.7", "203.0.113.9"]), 403),
        (json!(["198.51.100.128/25"]), 201),
    ] {
        let request = json!({ "name": "more", "scopes": ["read"], "allow_ips": allow_ips });
        let (response_status, body) = create_key(office, "198.51.100.7", request).await;
        assert_eq!(response_status, status, "{allow_ips} {body}");
    }
}

#[tokio::test]
async fn forwarded_addresses_from_untrusted_peers_are_ignored() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[("MAILONCE_HTTP_TRUSTED_PROXIES", "10.0.0.0/8")]).await;
    for n in 0..25 {
        // The peer is loopback, which is no trusted proxy here and is never limited.
        let headers =
            [("Host", "localhost"), ("X-Forwarded-For", "198.51.100.7"), ("Authorization", "Bearer mo_guess")];
        assert_eq!(raw_request(&server, "GET /v1/emails", &headers).await.status, 401, "{n}");
    }
}

/// An address of this machine that is not loopback.
fn non_loopback_address() -> IpAddr {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    // Connecting UDP sends nothing; it only chooses a route.
    socket.connect("198.51.100.1:9").expect("this test needs a network besides loopback");
    socket.local_addr().unwrap().ip()
}

#[tokio::test]
async fn connections_per_address_are_limited_and_its_own_ip_is_a_valid_host() {
    let (cli, ip) = (CliFixture::new(), non_loopback_address());
    let key = "a-key-of-this-test-alone";
    let mut command = cli.command(&["dev", "--http", "0.0.0.0:0"]);
    let env = [("MAILONCE_HTTP_CONNECTIONS_PER_ADDRESS", "3"), ("MAILONCE_API_KEY", key)];
    let mut server = SpawnedServer::spawn(command.envs(env));
    let banner = server.read_stderr_until("Ctrl-C stops it.").await;
    let url = banner.lines().find_map(|line| line.trim().strip_prefix("API ")).unwrap().trim();
    let port: u16 = url.rsplit(':').next().unwrap().parse().unwrap();
    server.url = format!("http://{ip}:{port}");
    let bearer = format!("Bearer {key}");
    let host = format!("{ip}:{port}");
    let own = [("Host", host.as_str()), ("Authorization", &bearer)];
    assert_eq!(raw_request(&server, "GET /v1/emails", &own).await.status, 200);
    assert_eq!(raw_request(&server, "GET /v1/emails", &[("Host", "mailonce"), own[1]]).await.status, 421);

    let mut open = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect((ip, port)).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        assert!(timeout(TIMEOUT, stream.read(&mut [0; 512])).await.unwrap().unwrap() > 0);
        open.push(stream);
    }
    let mut fourth = TcpStream::connect((ip, port)).await.unwrap();
    let read = timeout(TIMEOUT, fourth.read(&mut [0])).await.expect("the fourth connection is served");
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    server.url = format!("http://127.0.0.1:{port}");
    assert_eq!(raw_request(&server, "GET /healthz", &[("Host", "x")]).await.status, 200, "loopback is not limited");
    drop(open);
    let served = async {
        // The server notices the closed connections a moment later.
        loop {
            let mut stream = TcpStream::connect((ip, port)).await.unwrap();
            let written = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await;
            if written.is_ok() && stream.read(&mut [0]).await.is_ok_and(|read| read > 0) {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(TIMEOUT, served).await.expect("closed connections still count");
}

#[tokio::test]
async fn a_body_that_trickles_in_is_refused_with_408() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let mut stream = TcpStream::connect(socket_addr(&server)).await.unwrap();
    let head = format!(
        "POST /v1/emails HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n",
        server.api_key
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let began = Instant::now();
    let (mut reading, mut writing) = stream.split();
    let mut answer = vec![0; 4_096];
    let trickle = async {
        loop {
            if writing.write_all(b" ").await.is_err() {
                std::future::pending::<()>().await;
            }
            sleep(Duration::from_millis(200)).await;
        }
    };
    let read = tokio::select! {
        read = timeout(TIMEOUT, reading.read(&mut answer)) => read.expect("no timeout response").unwrap(),
        () = trickle => unreachable!("the writer loops forever"),
    };
    let took = began.elapsed().as_secs();
    let answer = RawResponse::parse(&String::from_utf8_lossy(&answer[..read]));
    assert_eq!((answer.status, answer.code()), (408, "timeout"), "{}", answer.body);
    assert!((29..45).contains(&took), "after {took} s");
}

/// Sends a request with a text of `octets` bytes from an address, without its last `held_back` bytes.
async fn start_large_request(server: &SpawnedServer, client: &str, octets: usize, held_back: usize) -> TcpStream {
    let mail = json!({ "from": "a@mailonce.test", "to": "b@example.com", "subject": "x", "text": "y".repeat(octets) });
    let (body, key) = (mail.to_string(), &server.api_key);
    let head = format!(
        "POST /v1/emails HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nX-Forwarded-For: {client}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(socket_addr(server)).await.unwrap();
    // When the body is refused, the connection may close before all of it is written.
    let _refused_early = stream.write_all(format!("{head}{}", &body[..body.len() - held_back]).as_bytes()).await;
    stream
}

/// Reads the response to its end.
async fn read_response(mut stream: TcpStream) -> RawResponse {
    let mut bytes = Vec::new();
    let _reset = timeout(TIMEOUT, stream.read_to_end(&mut bytes)).await.expect("no answer");
    RawResponse::parse(&String::from_utf8_lossy(&bytes))
}

#[tokio::test]
async fn large_bodies_of_one_address_leave_memory_for_others() {
    const MIB: usize = 1024 * 1024;
    let cli = CliFixture::new();
    let limits = [("MAILONCE_HTTP_BODY_MEMORY", "100000000"), ("MAILONCE_HTTP_BODY_MEMORY_PER_ADDRESS", "50000000")];
    let env = [limits.as_slice(), &[("MAILONCE_HTTP_TRUSTED_PROXIES", "127.0.0.1")]].concat();
    let server = cli.start_dev(&env).await;
    let held = start_large_request(&server, "192.0.2.1", 38 * MIB, 10).await;
    let is_read = |answer: &RawResponse| answer.status == 202;
    let refused = loop {
        let answer = read_response(start_large_request(&server, "192.0.2.1", 20 * MIB, 0).await).await;
        // The first body may not have arrived yet.
        if !is_read(&answer) {
            break answer;
        }
    };
    assert_eq!((refused.status, refused.code()), (503, "unavailable"), "{}", refused.body);
    let other = read_response(start_large_request(&server, "192.0.2.2", 20 * MIB, 0).await).await;
    assert!(is_read(&other), "{} {}", other.status, other.body);
    let small = read_response(start_large_request(&server, "192.0.2.1", 1_000, 0).await).await;
    assert_eq!(small.status, 202, "{}", small.body);
    drop(held);
    let freed = async {
        while !is_read(&read_response(start_large_request(&server, "192.0.2.1", 20 * MIB, 0).await).await) {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(TIMEOUT, freed).await.expect("the memory of a finished request is not released");
}

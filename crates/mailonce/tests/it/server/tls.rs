//! TLS on the HTTP listener: ALPN, certificates that are replaced while requests run, and curl as a client.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Version};
use rustls::pki_types::CertificateDer;
use serde_json::Value;
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    process::Command,
    time::{sleep, timeout},
};

use crate::fixtures::{
    binary::{CliFixture, SpawnedServer},
    tls_client::{AlpnClient, TestCertificate, json_body, peer_certificate, tls_connect},
};

const TIMEOUT: Duration = Duration::from_secs(30);
const BOTH_ALPN: [&str; 2] = ["h2", "http/1.1"];

/// Starts a server with this certificate.
async fn start_tls_server(cli: &CliFixture, pair: &TestCertificate) -> (SpawnedServer, SocketAddr) {
    pair.write_pem_files(cli.path());
    let env = [("MAILONCE_HTTP_TLS_CERT", "cert.pem"), ("MAILONCE_HTTP_TLS_KEY", "key.pem"), ("MAILONCE_LOG", "info")];
    let server = cli.start_dev(&env).await;
    let at = server.url.strip_prefix("https://").expect("the URL is https").parse().unwrap();
    (server, at)
}

/// Waits until new handshakes present this certificate.
async fn wait_for_certificate(at: SocketAddr, expected: &CertificateDer<'static>, trusted: &[CertificateDer<'static>]) {
    let waiting = async {
        while peer_certificate(&tls_connect(at, &BOTH_ALPN, trusted).await.unwrap()) != *expected {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(TIMEOUT, waiting).await.expect("the new certificate is not used");
}

#[tokio::test]
async fn alpn_chooses_the_protocol() {
    let (cli, pair) = (CliFixture::new(), TestCertificate::generate());
    let (_server, at) = start_tls_server(&cli, &pair).await;
    let trusted = [pair.certificate()];
    for (alpn, version) in [
        (&["h2"][..], Version::HTTP_2),
        (&BOTH_ALPN, Version::HTTP_2),
        (&["http/1.1"], Version::HTTP_11),
        (&[], Version::HTTP_11),
    ] {
        let mut client = AlpnClient::handshake(tls_connect(at, alpn, &trusted).await.unwrap()).await;
        for _ in 0..2 {
            let answer = client.get("/healthz").await.unwrap();
            assert_eq!((answer.status().as_u16(), answer.version()), (200, version), "{alpn:?}");
            assert_eq!(json_body(answer).await["status"], "ok");
        }
    }
    let untrusting = tls_connect(at, &BOTH_ALPN, &[TestCertificate::generate().certificate()]).await;
    assert!(untrusting.is_err(), "a client trusts only its own certificate authority");
}

/// Calls the server with curl. Returns what curl prints.
async fn curl(cli: &CliFixture, at: SocketAddr, path: &str, args: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["-sS", "--cacert", "cert.pem"])
        .args(args)
        .arg(format!("https://localhost:{}{path}", at.port()))
        .current_dir(cli.path())
        .output();
    let output = timeout(TIMEOUT, output).await.unwrap().expect("curl is installed");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn a_session_cookie_over_https_is_bound_to_the_host() {
    let (cli, pair) = (CliFixture::new(), TestCertificate::generate());
    let (server, at) = start_tls_server(&cli, &pair).await;
    let bearer = format!("Authorization: Bearer {}", server.api_key);
    let create = async |path: &str, body: &str| -> Value {
        let args = ["-H", &bearer, "-H", "Content-Type: application/json", "-d", body];
        serde_json::from_str(&curl(&cli, at, path, &args).await).unwrap()
    };
    let ada = create("/v1/people", r#"{"name":"Ada","role":"viewer"}"#).await;
    let links = format!("/v1/people/{}/sign-in-links", ada["id"].as_str().unwrap());
    let link = create(&links, "{}").await["url"].as_str().unwrap().to_owned();
    let path = &link[link.find("/sign-in/").unwrap()..];
    let signed_in = curl(&cli, at, path, &["-X", "POST", "-D", "-", "-c", "cookies"]).await;
    let cookie = signed_in.lines().find(|line| line.starts_with("set-cookie: __Host-mailonce="));
    let cookie = cookie.unwrap_or_else(|| panic!("{signed_in}"));
    assert!(cookie.contains("; Secure") && cookie.contains("; Path=/") && !cookie.contains("Domain"), "{cookie}");
    let session = curl(&cli, at, "/v1/session", &["-b", "cookies"]).await;
    assert!(session.contains(r#""name":"Ada""#), "{session}");
}

#[tokio::test]
async fn curl_sends_an_email_over_http2() {
    let (cli, pair) = (CliFixture::new(), TestCertificate::generate());
    let (server, at) = start_tls_server(&cli, &pair).await;
    let send = async |version: &str| {
        let bearer = format!("Authorization: Bearer {}", server.api_key);
        let mail = r#"{"from":"agent@mailonce.test","to":"ada@example.com","subject":"Hi","text":"One."}"#;
        let headers = ["-H", &bearer, "-H", "Content-Type: application/json", "-H", "Idempotency-Key: k"];
        let written = [version, "-w", " %{http_version} %{http_code}", "-d", mail];
        curl(&cli, at, "/v1/emails", &[&headers[..], &written].concat()).await
    };
    let first = send("--http2").await;
    assert!(first.ends_with(" 2 202") && first.contains(r#""outcome":"first""#), "{first}");
    let again = send("--http1.1").await;
    assert!(again.ends_with(" 1.1 200") && again.contains(r#""outcome":"replayed""#), "{again}");
}

/// Opens connections and sends requests until stopped. Nothing may fail.
async fn request_until_stopped(
    at: SocketAddr,
    trusted: Vec<CertificateDer<'static>>,
    stop: Arc<AtomicBool>,
    request_count: Arc<AtomicUsize>,
) {
    while !stop.load(Ordering::Relaxed) {
        let alpn = if request_count.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            &BOTH_ALPN[..]
        } else {
            &BOTH_ALPN[1..]
        };
        let mut client =
            AlpnClient::handshake(tls_connect(at, alpn, &trusted).await.expect("a handshake failed")).await;
        for _ in 0..3 {
            assert_eq!(client.get("/healthz").await.expect("a request failed").status(), 200);
        }
    }
}

#[tokio::test]
async fn a_certificate_is_replaced_under_load_and_no_request_fails() {
    let (cli, first, second) = (CliFixture::new(), TestCertificate::generate(), TestCertificate::generate());
    let (_server, at) = start_tls_server(&cli, &first).await;
    let trusted = vec![first.certificate(), second.certificate()];
    let (stop, request_count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            tokio::spawn(request_until_stopped(at, trusted.clone(), Arc::clone(&stop), Arc::clone(&request_count)))
        })
        .collect();
    let mut old = Vec::new();
    for alpn in [&BOTH_ALPN[..], &BOTH_ALPN[1..]] {
        let stream = tls_connect(at, alpn, &trusted).await.unwrap();
        assert_eq!(peer_certificate(&stream), first.certificate());
        old.push(AlpnClient::handshake(stream).await);
    }
    second.write_pem_files(cli.path());
    wait_for_certificate(at, &second.certificate(), &trusted).await;
    for client in &mut old {
        assert_eq!(client.get("/healthz").await.expect("an old connection ended").status(), 200);
    }
    let before = request_count.load(Ordering::Relaxed);
    while request_count.load(Ordering::Relaxed) < before + 8 {
        sleep(Duration::from_millis(20)).await;
    }
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        timeout(TIMEOUT, caller).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_broken_certificate_pair_is_ignored_until_repaired() {
    let (cli, first, second) = (CliFixture::new(), TestCertificate::generate(), TestCertificate::generate());
    let (mut server, at) = start_tls_server(&cli, &first).await;
    let trusted = [first.certificate(), second.certificate()];
    std::fs::write(cli.path().join("key.pem"), "no key").unwrap();
    let log = server.read_stderr_until("the previous one stays in use").await;
    assert!(log.contains("key.pem"), "{log}");
    assert_eq!(peer_certificate(&tls_connect(at, &BOTH_ALPN, &trusted).await.unwrap()), first.certificate());
    second.write_pem_files(cli.path());
    wait_for_certificate(at, &second.certificate(), &trusted).await;
}

#[tokio::test]
async fn sighup_reloads_the_certificate() {
    let (cli, pair) = (CliFixture::new(), TestCertificate::generate());
    let (mut server, at) = start_tls_server(&cli, &pair).await;
    let mut client = AlpnClient::handshake(tls_connect(at, &BOTH_ALPN, &[pair.certificate()]).await.unwrap()).await;
    assert_eq!(client.get("/healthz").await.unwrap().status(), 200);
    server.send_signal(rustix::process::Signal::HUP);
    server.read_stderr_until("using a new certificate").await;
    assert!(tls_connect(at, &BOTH_ALPN, &[pair.certificate()]).await.is_ok());
}

#[tokio::test]
async fn a_client_without_a_tls_handshake_delays_no_other() {
    let (cli, pair) = (CliFixture::new(), TestCertificate::generate());
    let (_server, at) = start_tls_server(&cli, &pair).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(at).await.unwrap());
    }
    let request_count = async {
        let mut client = AlpnClient::handshake(tls_connect(at, &BOTH_ALPN, &[pair.certificate()]).await.unwrap()).await;
        assert_eq!(client.get("/healthz").await.unwrap().status(), 200);
    };
    timeout(Duration::from_secs(5), request_count).await.expect("other clients had to wait");
    for stream in &mut silent {
        let ended = timeout(TIMEOUT, stream.read(&mut [0])).await.expect("still open");
        assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    }
    // Plain HTTP is not answered either.
    let mut plain = TcpStream::connect(at).await.unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    drop(timeout(TIMEOUT, plain.read_to_end(&mut answer)).await.expect("still open"));
    assert!(!answer.starts_with(b"HTTP/"), "{answer:?}");
}

#[tokio::test]
async fn events_stream_over_http2_and_shutdown_ends_the_stream() {
    let (cli, pair) = (CliFixture::new(), TestCertificate::generate());
    let (server, at) = start_tls_server(&cli, &pair).await;
    let mut client = AlpnClient::handshake(tls_connect(at, &["h2"], &[pair.certificate()]).await.unwrap()).await;
    let to = |path: &str| Request::builder().uri(format!("https://localhost{path}"));
    let bearer = format!("Bearer {}", server.api_key);
    let stream = to("/v1/events/stream?after=0").header("authorization", &bearer).body(Full::default()).unwrap();
    let stream = client.request(stream).await.unwrap();
    assert_eq!((stream.status().as_u16(), stream.version()), (200, Version::HTTP_2));
    let mail = r#"{"from":"agent@mailonce.test","to":"ada@example.com","subject":"Hi","text":"One."}"#;
    let send = to("/v1/emails").method("POST").header("authorization", &bearer);
    let send = send.header("content-type", "application/json").body(Full::new(Bytes::from(mail))).unwrap();
    assert_eq!(client.request(send).await.unwrap().status(), 202);
    let mut body = stream.into_body();
    let mut text = String::new();
    let reading = async {
        while !text.contains("email.accepted") {
            let frame = body.frame().await.expect("the stream ended").unwrap();
            text.push_str(&String::from_utf8_lossy(frame.data_ref().unwrap_or(&Bytes::new())));
        }
    };
    timeout(TIMEOUT, reading).await.expect("no event");
    assert!(server.terminate().await.success());
    let rest = timeout(TIMEOUT, body.collect()).await.expect("the stream did not end");
    assert!(rest.is_ok(), "the stream broke off: {rest:?}");
}

#[tokio::test]
async fn a_websocket_opens_over_tls_with_hsts() {
    let (cli, pair) = (CliFixture::new(), TestCertificate::generate());
    let (server, at) = start_tls_server(&cli, &pair).await;
    let mut stream = tls_connect(at, &["http/1.1"], &[pair.certificate()]).await.unwrap();
    let request = format!(
        "GET /compat/agentmail/v0 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        server.api_key
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = vec![0; 1_024];
    let read = timeout(TIMEOUT, stream.read(&mut answer)).await.unwrap().unwrap();
    let head = String::from_utf8_lossy(&answer[..read]).to_lowercase();
    assert!(head.starts_with("http/1.1 101"), "{head}");
    assert!(head.contains("strict-transport-security: max-age=31536000"), "{head}");
    // A masked ping without content is answered with a pong without content.
    stream.write_all(&[0x89, 0x80, 0, 0, 0, 0]).await.unwrap();
    timeout(TIMEOUT, stream.read_exact(&mut answer[..2])).await.unwrap().unwrap();
    assert_eq!(answer[..2], [0x8a, 0]);
}

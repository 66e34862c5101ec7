//! Failures before a request is sent, and invalid replies.

use mailonce_core::handoff::reply::{AttemptPhase, ReplyMeaning};
use mailonce_sim::sink::http::{API_KEY, HttpSink, Vendor};
use mailonce_transport::dial::AddressFilter;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::{sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use crate::fixtures::{build_transport, provider_setting, run_attempt, sample_envelope, vendor_transport};

#[tokio::test]
async fn an_unreachable_provider_is_a_transport_fault() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let reply = run_attempt(&*vendor_transport(Vendor::Resend, &url), 1).await;
    assert_eq!((reply.meaning, reply.phase), (ReplyMeaning::Fault, AttemptPhase::Connect), "{}", reply.text);
}

#[tokio::test]
async fn an_address_that_the_guard_forbids_is_never_dialled() {
    let sink = HttpSink::start().await.unwrap();
    let mut setting = provider_setting(sink.url());
    setting.address_filter = Some(AddressFilter::new(|address| !address.is_loopback()));
    let reply = run_attempt(&*build_transport(Vendor::Resend, setting, API_KEY).unwrap(), 1).await;
    assert_eq!((reply.meaning, reply.phase), (ReplyMeaning::Fault, AttemptPhase::Connect), "{}", reply.text);
    assert!(sink.accepted_mail().is_empty());
}

#[tokio::test]
async fn a_connection_that_grew_old_carries_nothing() {
    let sink = HttpSink::start().await.unwrap();
    let mut setting = provider_setting(sink.url());
    setting.max_connection_age = Duration::ZERO;
    let reply = run_attempt(&*build_transport(Vendor::Resend, setting, API_KEY).unwrap(), 1).await;
    assert_eq!((reply.meaning, reply.phase), (ReplyMeaning::Deferred, AttemptPhase::Connect), "{}", reply.text);
    assert!(sink.accepted_mail().is_empty());
}

#[tokio::test]
async fn dropping_a_prepared_request_sends_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let transport = vendor_transport(Vendor::Resend, &format!("http://{}", listener.local_addr().unwrap()));
    let ready = transport.prepare(sample_envelope(&*transport, 1)).await.unwrap();
    let (mut socket, _) = listener.accept().await.unwrap();
    drop(ready);
    let mut heard = Vec::new();
    socket.read_to_end(&mut heard).await.unwrap();
    assert!(heard.is_empty(), "{}", String::from_utf8_lossy(&heard));
}

#[tokio::test]
async fn an_answer_that_is_no_http_or_too_long_proves_nothing() {
    let endless = format!("HTTP/1.1 200 OK\r\nX-Long: {}\r\n\r\n", "x".repeat(64 * 1024));
    let short = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{\"id\":\"1\"}";
    for answer in ["220 mail.example.com ESMTP\r\n", "", endless.as_str(), short] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let transport = vendor_transport(Vendor::Resend, &format!("http://{}", listener.local_addr().unwrap()));
        let answering = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            // A part of the request has to arrive before a reply.
            let mut some = [0; 64];
            assert!(socket.read(&mut some).await.unwrap() > 0);
            // The client may disconnect in the middle of it.
            drop(socket.write_all(answer.as_bytes()).await);
            drop(socket.shutdown().await);
        };
        let (reply, ()) = tokio::join!(run_attempt(&*transport, 1), answering);
        assert_eq!(
            (reply.meaning, reply.phase),
            (ReplyMeaning::Unknown, AttemptPhase::Final),
            "{answer:.40}: {}",
            reply.text
        );
    }
}

#[tokio::test]
async fn tls_requires_a_trusted_certificate() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let root: CertificateDer<'static> = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![root.clone()], key)
        .unwrap();
    let sink = HttpSink::start_tls(Arc::new(config)).await.unwrap();

    let mut trusting = provider_setting(sink.url());
    trusting.extra_roots = vec![root];
    let reply = run_attempt(&*build_transport(Vendor::Resend, trusting, API_KEY).unwrap(), 1).await;
    assert_eq!(reply.meaning, ReplyMeaning::Accepted, "{}", reply.text);

    let reply = run_attempt(&*vendor_transport(Vendor::Resend, sink.url()), 2).await;
    assert_eq!((reply.meaning, reply.phase), (ReplyMeaning::Fault, AttemptPhase::Tls), "{}", reply.text);
    assert_eq!(sink.accepted_mail().len(), 1);
}

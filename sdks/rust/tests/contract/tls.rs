//! Over TLS: a server whose authority is known is believed, and any other is not.

use mailonce_sdk::{Client, EmailQuery};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use std::sync::Arc;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

/// Answers every request with an empty page, and gives its address and its certificate.
async fn server() -> (String, String) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut head = [0; 4096];
            if stream.read(&mut head).await.is_ok_and(|read| read > 0) {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\nconnection: close\r\n\r\n{\"data\":[]}";
                stream.write_all(answer).await.unwrap();
                stream.shutdown().await.ok(); // the caller may be gone already
            }
        }
    });
    (url, cert.pem())
}

#[tokio::test]
async fn a_server_whose_authority_is_known_is_believed_and_any_other_is_not() {
    let (url, authority) = server().await;
    let known = Client::builder().base_url(&url).api_key("key").authorities(authority).build().unwrap();
    assert!(known.emails.list(&EmailQuery::default()).await.unwrap().data.is_empty());
    let unknown = Client::builder().base_url(&url).api_key("key").max_retries(0).build().unwrap();
    let error = unknown.emails.list(&EmailQuery::default()).await.unwrap_err();
    assert_eq!(error.code, "no_answer");
    assert!(error.cause.as_ref().unwrap().to_string().contains("UnknownIssuer"));
}

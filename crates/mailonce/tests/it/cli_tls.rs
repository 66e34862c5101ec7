//! The command line over TLS: every client verb, with a certificate authority of one's own.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    },
};

use crate::binary::{CliFixture, send_args};

/// TLS in front of a plain server, with a certificate that only the file's readers trust.
async fn start_tls_proxy(desk: &CliFixture, plain: &str) -> (SocketAddr, PathBuf) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let file = desk.path().join("ca.pem");
    std::fs::write(&file, made.cert.pem()).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let plain = plain.strip_prefix("http://").unwrap().to_owned();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, plain) = (acceptor.clone(), plain.clone());
            tokio::spawn(async move {
                let Ok(mut inside) = acceptor.accept(stream).await else { return };
                let mut outside = TcpStream::connect(plain).await.unwrap();
                tokio::io::copy_bidirectional(&mut inside, &mut outside).await.ok();
            });
        }
    });
    (address, file)
}

#[tokio::test]
async fn every_client_verb_speaks_tls_and_trusts_only_whom_it_is_told_to() {
    let desk = CliFixture::new();
    let server = desk.start_dev(&[]).await;
    let (address, file) = start_tls_proxy(&desk, &server.url).await;
    let (url, file) = (format!("https://localhost:{}", address.port()), file.to_str().unwrap().to_owned());
    let env = [("MAILONCE_URL", url.as_str()), ("MAILONCE_API_KEY", &server.api_key), ("MAILONCE_CA_FILE", &file)];
    let sent = desk.run_with_env(&send_args("k", "Hello"), &env).await.expect_exit(4).json();
    let id = sent["id"].as_str().unwrap();
    desk.run_with_env(&["emails", "show", id], &env).await.expect_exit(0);
    desk.run_with_env(&["emails", "list"], &env).await.expect_exit(0);
    desk.run_with_env(&["key", "inspect", "k"], &env).await.expect_exit(0);
    let proven = desk.run_with_env(&["prove", "--callers", "10"], &env).await.expect_exit(0).json();
    assert_eq!((&proven["target"], &proven["held"]), (&url.as_str().into(), &true.into()));

    let stranger = desk.run_with_env(&["emails", "list"], &env[..2]).await.expect_exit(5);
    assert!(stranger.stderr.contains("TLS with localhost"), "{}", stranger.stderr);
    let words = ["emails", "list", "--ca-file", &file];
    desk.run_with_env(&words, &env[..2]).await.expect_exit(0);
    desk.run_with_env(&["prove"], &env[..2]).await.expect_exit(2);
}

//! The command line over TLS: every client verb, with a private certificate authority.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    },
};

use crate::fixtures::binary::{CliFixture, send_args};

/// Starts a TLS proxy in front of a plain server. Returns its address and the file with its self-signed certificate.
async fn start_tls_proxy(cli: &CliFixture, plain: &str) -> (SocketAddr, PathBuf) {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let file = cli.path().join("ca.pem");
    std::fs::write(&file, certified.cert.pem()).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der()));
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let plain = plain.strip_prefix("http://").unwrap().to_owned();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, plain) = (acceptor.clone(), plain.clone());
            tokio::spawn(async move {
                let Ok(mut tls_stream) = acceptor.accept(stream).await else { return };
                let mut plain_stream = TcpStream::connect(plain).await.unwrap();
                tokio::io::copy_bidirectional(&mut tls_stream, &mut plain_stream).await.ok();
            });
        }
    });
    (address, file)
}

#[tokio::test]
async fn every_client_verb_uses_tls_and_trusts_only_the_given_certificate() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let (address, file) = start_tls_proxy(&cli, &server.url).await;
    let (url, file) = (format!("https://localhost:{}", address.port()), file.to_str().unwrap().to_owned());
    let env = [("MAILONCE_URL", url.as_str()), ("MAILONCE_API_KEY", &server.api_key), ("MAILONCE_CA_FILE", &file)];
    let sent = cli.run_with_env(&send_args("k", "Hello"), &env).await.expect_exit(0).json();
    let id = sent["id"].as_str().unwrap();
    cli.run_with_env(&["emails", "show", id], &env).await.expect_exit(0);
    cli.run_with_env(&["emails", "list"], &env).await.expect_exit(0);
    cli.run_with_env(&["key", "inspect", "k"], &env).await.expect_exit(0);
    let proven = cli.run_with_env(&["prove", "--callers", "10"], &env).await.expect_exit(0).json();
    assert_eq!((&proven["target"], &proven["passed"]), (&url.as_str().into(), &true.into()));

    let untrusted = cli.run_with_env(&["emails", "list"], &env[..2]).await.expect_exit(5);
    assert!(untrusted.stderr.contains("TLS with localhost"), "{}", untrusted.stderr);
    let args = ["emails", "list", "--ca-file", &file];
    cli.run_with_env(&args, &env[..2]).await.expect_exit(0);
    cli.run_with_env(&["prove"], &env[..2]).await.expect_exit(2);
}

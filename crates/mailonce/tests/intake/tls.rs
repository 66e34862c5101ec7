//! STARTTLS, with a client that trusts only the given certificate.

use crate::fixtures::{ENVELOPE_COMMANDS, LineClient, SmtpFixture, test_settings};
use mailonce::intake::smtp::{Reason, SmtpSettings, Tls};
use rustls::{ClientConfig, RootCertStore, pki_types::CertificateDer};
use std::{path::Path, sync::Arc};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Writes a new certificate with its key and returns the certificate that a client must trust.
fn write_certificate(folder: &Path) -> CertificateDer<'static> {
    let created = rcgen::generate_simple_self_signed(["mx.in.test".to_owned()]).unwrap();
    std::fs::write(folder.join("key.pem"), created.signing_key.serialize_pem()).unwrap();
    std::fs::write(folder.join("cert.pem"), created.cert.pem()).unwrap();
    created.cert.der().clone()
}

fn tls_settings(folder: &Path) -> SmtpSettings {
    let tls = Tls::from_files(&folder.join("cert.pem"), &folder.join("key.pem")).unwrap();
    SmtpSettings { tls: Some(Arc::new(tls)), ..test_settings() }
}

async fn tls_handshake<S: mailonce::intake::smtp::ByteStream>(
    stream: S,
    trusted: &CertificateDer<'static>,
) -> std::io::Result<TlsStream<S>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config)).connect("mx.in.test".try_into().unwrap(), stream).await
}

/// Connects and returns the client after the reply to STARTTLS.
async fn connect_and_starttls(at: std::net::SocketAddr) -> LineClient<TcpStream> {
    let mut client = LineClient::connect(at).await;
    client.send("EHLO out.test\r\n").await;
    assert_eq!(client.read_codes(2).await, ["220", "250"]);
    assert!(client.command("STARTTLS\r\n").await.starts_with("220 2.0.0"));
    client
}

#[tokio::test]
async fn a_mail_is_received_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let trusted = write_certificate(folder.path());
    let world = SmtpFixture::new(tls_settings(folder.path()));
    let (at, _listening) = world.listen().await;
    let stream = tls_handshake(connect_and_starttls(at).await.stream, &trusted).await.unwrap();
    let mut client = LineClient::new(stream);
    assert!(client.command("MAIL FROM:<>\r\n").await.starts_with("503"), "the EHLO before TLS is discarded");
    client.send(format!("{ENVELOPE_COMMANDS}secret\r\n.\r\nSTARTTLS\r\nQUIT\r\n")).await;
    assert_eq!(client.read_codes(7).await, ["250", "250", "250", "354", "250", "503", "221"]);
    assert_eq!(world.receiver.raw_mails(), [b"secret\r\n"]);
}

#[tokio::test]
async fn a_large_mail_is_received_over_tls_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let trusted = write_certificate(folder.path());
    let world = SmtpFixture::new(tls_settings(folder.path()));
    let (at, _listening) = world.listen().await;
    let mut client = LineClient::new(tls_handshake(connect_and_starttls(at).await.stream, &trusted).await.unwrap());
    client.send(ENVELOPE_COMMANDS).await;
    assert_eq!(client.read_codes(4).await, ["250", "250", "250", "354"]);
    let text = (0..100_000).fold(String::new(), |text, n: u32| text + "line " + &n.to_string() + "\r\n");
    assert!(client.command(format!("{text}.\r\n")).await.starts_with("250"));
    assert!(world.receiver.raw_mails()[0] == text.as_bytes(), "the bytes differ");
}

#[tokio::test]
async fn plain_commands_after_starttls_are_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let trusted = write_certificate(folder.path());
    let world = SmtpFixture::new(tls_settings(folder.path()));
    let (at, _listening) = world.listen().await;
    // Commands in the same packet as STARTTLS are refused before TLS.
    let mut client = LineClient::connect(at).await;
    client.send(format!("EHLO out.test\r\nSTARTTLS\r\n{ENVELOPE_COMMANDS}x\r\n.\r\n")).await;
    assert_eq!(client.read_codes(3).await, ["220", "250", "554"]);
    assert_eq!(client.read_reply().await, "", "closed");
    // A plain command after STARTTLS is not a handshake.
    let mut client = connect_and_starttls(at).await;
    client.send("MAIL FROM:<eve@out.test>\r\n").await;
    assert!(tls_handshake(client.stream, &trusted).await.is_err());
    assert_eq!((world.receiver.mails().len(), world.metrics.refused(Reason::OutOfTurn)), (0, 1));
}

#[tokio::test]
async fn a_self_signed_certificate_is_rejected_unless_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let other_certificate = write_certificate(folder.path());
    let created = Tls::self_signed("mx.in.test").unwrap();
    let world = SmtpFixture::new(SmtpSettings { tls: Some(Arc::new(created)), ..test_settings() });
    let (at, _listening) = world.listen().await;
    let failed = tls_handshake(connect_and_starttls(at).await.stream, &other_certificate).await.unwrap_err();
    assert!(failed.to_string().contains("certificate"), "{failed}");
}

#[tokio::test]
async fn without_a_certificate_tls_is_not_offered() {
    let world = SmtpFixture::new(test_settings());
    let (mut client, _served) = world.connect_pipe(4096);
    client.send("EHLO out.test\r\nSTARTTLS\r\n").await;
    assert_eq!(client.read_codes(3).await, ["220", "250", "502"]);
}

#[tokio::test]
async fn mismatched_certificate_files_are_refused() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_certificate(one.path());
    write_certificate(other.path());
    let mixed = Tls::from_files(&one.path().join("cert.pem"), &other.path().join("key.pem"));
    assert!(format!("{:#}", mixed.unwrap_err()).contains("do not belong together"));
    std::fs::write(one.path().join("cert.pem"), "no certificate").unwrap();
    let empty = Tls::from_files(&one.path().join("cert.pem"), &one.path().join("key.pem"));
    assert!(format!("{:#}", empty.unwrap_err()).contains("contains no certificate"));
}

/// Lets the listener compare its files twice. Paused time does not advance while another thread reads them.
async fn wait_for_reload() {
    tokio::time::sleep(std::time::Duration::from_millis(2_500)).await;
}

#[tokio::test(start_paused = true)]
async fn a_changed_certificate_is_reloaded_and_a_broken_one_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let first = write_certificate(folder.path());
    let world = SmtpFixture::new(tls_settings(folder.path()));
    let (_at, _listening) = world.listen().await;
    let handshake_succeeds = async |trusted: &CertificateDer<'static>| {
        let (mut client, _served) = world.connect_pipe(64 * 1024);
        client.send("EHLO out.test\r\nSTARTTLS\r\n").await;
        assert_eq!(client.read_codes(3).await, ["220", "250", "220"]);
        tls_handshake(client.stream, trusted).await.is_ok()
    };
    assert!(handshake_succeeds(&first).await);
    std::fs::write(folder.path().join("cert.pem"), "broken").unwrap();
    wait_for_reload().await;
    assert!(handshake_succeeds(&first).await, "the last valid certificate stays in use");
    let second = write_certificate(folder.path());
    wait_for_reload().await;
    assert!(handshake_succeeds(&second).await && !handshake_succeeds(&first).await, "the new certificate is in use");
}

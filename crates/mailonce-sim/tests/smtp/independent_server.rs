//! Against aiosmtpd, an independent server. It is installed from PyPI on first use, under `target`.

use crate::fixtures::{config_at_port, sample_envelope, send_envelope};
use mailonce_core::handoff::reply::{AttemptPhase, ReplyMeaning};
use mailonce_sim::sink::certificate::SinkCertificate;
use mailonce_transport::smtp::{RelayConfig, SmtpTransport, TlsMode};
use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Stdio,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

/// Prints its port, and then each mail as sender, recipient, parameters and hex.
const SERVER: &str = r#"
import asyncio, ssl, sys
from aiosmtpd.smtp import SMTP, AuthResult

class Taker:
    async def handle_DATA(self, server, session, envelope):
        if b"refuse me" in envelope.content:
            return "554 5.6.0 refused"
        words = [envelope.mail_from, ",".join(envelope.rcpt_tos), ";".join(envelope.mail_options), envelope.content.hex()]
        print("|".join(words), flush=True)
        return "250 2.0.0 Ok: queued as AIO1"

def login(server, session, envelope, mechanism, data):
    return AuthResult(success=data.login == b"ada" and data.password == b"correct horse", handled=False)

async def main():
    extra = {}
    if len(sys.argv) > 1:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[1], sys.argv[2])
        extra = dict(tls_context=context, require_starttls=True, authenticator=login, auth_required=True)
    make = lambda: SMTP(Taker(), enable_SMTPUTF8=True, hostname="aio.test", **extra)
    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"#;

/// The interpreter with aiosmtpd.
fn python() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("aiosmtpd-1.4.6");
    // One installation at a time, across tests and processes.
    let alone = File::create(dir.with_extension("lock")).unwrap();
    alone.lock().unwrap();
    let python = dir.join("bin/python");
    let run = |program: &Path, arguments: &[&str]| {
        let out = std::process::Command::new(program).args(arguments).output();
        let out = out.unwrap_or_else(|error| panic!("{} does not run: {error}", program.display()));
        assert!(
            out.status.success(),
            "aiosmtpd could not be installed ({} {arguments:?}): {}",
            program.display(),
            String::from_utf8_lossy(&out.stderr)
        );
    };
    // The marker file is created last, so that a partial installation is repeated.
    let mark = dir.join("installed");
    if !mark.exists() {
        run(Path::new("python3"), &["-m", "venv", "--clear", &dir.to_string_lossy()]);
        run(&python, &["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "aiosmtpd==1.4.6"]);
        std::fs::write(mark, "").unwrap();
    }
    python
}

struct AiosmtpdServer {
    port: u16,
    out: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl AiosmtpdServer {
    async fn start(arguments: &[&Path]) -> Self {
        let mut child = Command::new(python())
            .args(["-c", SERVER])
            .args(arguments)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("python did not start");
        let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = out.next_line().await.unwrap().expect("aiosmtpd said nothing").parse().unwrap();
        Self { port, out, _child: child }
    }

    /// The next accepted mail: sender, recipients, parameters, bytes in hex.
    async fn next_mail(&mut self) -> [String; 4] {
        let line = self.out.next_line().await.unwrap().expect("aiosmtpd ended");
        let words: Vec<_> = line.split('|').map(ToOwned::to_owned).collect();
        words.try_into().unwrap()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

#[tokio::test]
async fn a_foreign_server_takes_the_bytes_as_they_are() {
    let mut server = AiosmtpdServer::start(&[]).await;
    let smtp = SmtpTransport::new(config_at_port(server.port)).unwrap();
    for mime in [
        &b"Subject: dots\r\n\r\n.\r\n..\r\n.a\r\nb.\r\n"[..],
        b"Subject: end\r\n\r\nhello\r\n.\r\n",
        "Subject: eight\r\n\r\ngrüße\r\n".as_bytes(),
    ] {
        let reply = send_envelope(&smtp, sample_envelope(mime)).await;
        assert_eq!((reply.meaning, reply.remote_id.as_deref()), (ReplyMeaning::Accepted, Some("AIO1")), "{reply:?}");
        let [sender, recipients, parameters, bytes] = server.next_mail().await;
        assert_eq!((sender.as_str(), recipients.as_str()), ("bounce+1@out.test", "ada@in.test"));
        assert!(parameters.contains(&format!("SIZE={}", mime.len())), "{parameters}");
        assert_eq!(bytes, hex(mime));
    }
    let reply = send_envelope(&smtp, sample_envelope(b"Subject: x\r\n\r\nrefuse me\r\n")).await;
    assert_eq!((reply.meaning, reply.phase), (ReplyMeaning::Refused, AttemptPhase::Final), "{reply:?}");
}

#[tokio::test]
async fn a_foreign_server_takes_mail_by_starttls_and_log_in() {
    let certificate = SinkCertificate::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (pem, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&pem, &certificate.pem).unwrap();
    std::fs::write(&key, &certificate.key_pem).unwrap();
    let mut server = AiosmtpdServer::start(&[&pem, &key]).await;
    let right = RelayConfig {
        tls: TlsMode::Starttls,
        username: Some("ada".to_owned()),
        password: Some("correct horse".to_owned()),
        extra_roots: vec![certificate.root_certificate()],
        ..config_at_port(server.port)
    };
    let wrong = RelayConfig { password: Some("battery staple".to_owned()), ..right.clone() };
    let reply = send_envelope(&SmtpTransport::new(wrong).unwrap(), sample_envelope(b"a: b\r\n")).await;
    assert_eq!(
        (reply.meaning, reply.phase, reply.code),
        (ReplyMeaning::Fault, AttemptPhase::Login, Some(535)),
        "{reply:?}"
    );
    let smtp = SmtpTransport::new(right).unwrap();
    for _ in 0..2 {
        let reply = send_envelope(&smtp, sample_envelope(b"a: b\r\n\r\nhello\r\n")).await;
        assert_eq!(reply.meaning, ReplyMeaning::Accepted, "{reply:?}");
        assert_eq!(server.next_mail().await[3], hex(b"a: b\r\n\r\nhello\r\n"));
    }
}

//! Third-party clients: Python's smtplib, swaks, and Postfix with its smtp-source. Every byte is compared.

use crate::fixtures::{SmtpFixture, TIMEOUT, test_settings};
use mailonce::intake::smtp::{SmtpSettings, Tls};
use std::{
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Output, Stdio},
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, Command},
    time::{Instant, sleep},
};

/// Sends mails and writes the bytes of each to folder/0, folder/1 and so on.
const SMTPLIB_SCRIPT: &str = r#"
import email.message, email.policy, pathlib, smtplib, ssl, sys
port, folder, tls = int(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3] == "tls"

class Tapped(smtplib.SMTP):
    sent = 0
    def data(self, msg):
        (folder / str(self.sent)).write_bytes(msg if msg.endswith(b"\r\n") else msg + b"\r\n")
        self.sent += 1
        return super().data(msg)

smtp = Tapped("127.0.0.1", port, local_hostname="out.test", timeout=120)
if tls:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    smtp.starttls(context=context)

def build_message(subject, text):
    made = email.message.EmailMessage(policy=email.policy.SMTP)
    made["From"], made["To"], made["Subject"] = "eve@out.test", "ada@in.test", subject
    made.set_content(text)
    return made

smtp.send_message(build_message("plain", "hello\n"))
many = build_message("many parts", "see below\n")
many.add_alternative("<p>see below</p>", subtype="html")
many.add_attachment(bytes(range(256)) * 40, maintype="application", subtype="octet-stream", filename="b.bin")
smtp.send_message(many)
smtp.sendmail("eve@out.test", ["ada@in.test"], b"Subject: dots\r\n\r\n.\r\n..\r\n.a\r\n...\r\nb.\r\n.")
smtp.sendmail("eve@out.test", ["ada@in.test"], b"")
smtp.sendmail("", ["ada@in.test", "bob@in.test"], b"Subject: nul\r\n\r\na\0b \xff\xfe\r\n")
world = build_message("Grüße", "über alles\n")
del world["To"]
world["To"] = "jürgen@in.test"
smtp.send_message(world)
line = b"x" * 998 + b"\r\n"
smtp.sendmail("eve@out.test", ["ada@in.test"], b"Subject: large\r\n\r\n" + line * 25000)
smtp.sendmail("eve@out.test", ["ada@in.test"], b"Subject: long line\r\n\r\n" + b"y" * 3000000 + b"\r\n")
for to, code in [("gone@in.test", 550), ("ada@else.test", 550)]:
    try:
        smtp.sendmail("eve@out.test", [to], b"Subject: no\r\n\r\n")
        sys.exit(f"{to} was accepted")
    except smtplib.SMTPRecipientsRefused as refused:
        assert refused.recipients[to][0] == code, refused.recipients
try:
    smtp.sendmail("eve@out.test", ["ada@in.test"], b"Subject: bare\r\n\r\nhi\n.\r\nQUIT\r\n")
    sys.exit("a bare line feed was accepted")
except smtplib.SMTPDataError as refused:
    assert refused.smtp_code == 554, refused
print(smtp.sent - 1)
"#;

/// Runs a program to its end, with `input`, and fails unless it succeeds.
async fn run_program(program: &str, arguments: &[&str], input: &[u8]) -> Output {
    let path = format!("{}:/usr/sbin:/usr/local/sbin", std::env::var("PATH").unwrap_or_default());
    let mut child = Command::new(program)
        .args(arguments)
        .env("PATH", path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap_or_else(|error| panic!("{program} does not run ({error}); scripts/test installs it"));
    let mut stdin = child.stdin.take().unwrap();
    let feed_stdin = async move {
        stdin.write_all(input).await.unwrap();
        drop(stdin);
    };
    let (out, ()) = tokio::time::timeout(TIMEOUT, async { tokio::join!(child.wait_with_output(), feed_stdin) })
        .await
        .unwrap_or_else(|_| panic!("{program} did not exit"));
    let out = out.unwrap();
    let output = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{program} failed ({}):\n{output}", out.status);
    out
}

/// Starts a listener that offers TLS and returns its address.
async fn start_tls_listener() -> (SmtpFixture, SocketAddr) {
    let world = SmtpFixture::new(SmtpSettings {
        tls: Some(Arc::new(Tls::self_signed("mx.in.test").unwrap())),
        ..test_settings()
    });
    let (at, _listening) = world.listen().await;
    (world, at)
}

/// Checks that every mail of smtplib arrives byte for byte, in order.
async fn check_smtplib(protection: &str) {
    let (world, at) = start_tls_listener().await;
    let folder = tempfile::tempdir().unwrap();
    let folder_path = folder.path().to_string_lossy().into_owned();
    let out =
        run_program("python3", &["-c", SMTPLIB_SCRIPT, &at.port().to_string(), &folder_path, protection], b"").await;
    let count: usize = String::from_utf8(out.stdout).unwrap().trim().parse().unwrap();
    let mails = world.receiver.mails();
    assert_eq!((mails.len(), count), (8, 8));
    for (n, mail) in mails.iter().enumerate() {
        let sent = std::fs::read(folder.path().join(n.to_string())).unwrap();
        assert!(mail.raw == sent, "mail {n}: {} bytes were sent, {} arrived", sent.len(), mail.raw.len());
        assert_eq!(mail.helo, "out.test");
    }
    assert_eq!((mails[4].sender.as_str(), mails[4].recipients.len()), ("", 2));
    assert_eq!(mails[5].recipients, ["jürgen@in.test"]);
    assert!(mails[6].raw.len() > 25_000_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn smtplib_sends_every_kind_of_mail() {
    check_smtplib("plain").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn smtplib_sends_every_kind_of_mail_by_tls() {
    check_smtplib("tls").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn swaks_sends_in_each_of_its_modes() {
    let (world, at) = start_tls_listener().await;
    let server = at.to_string();
    let common_args = ["--server", &server, "--helo", "out.test", "--from", "eve@out.test", "--data", "-"];
    let text = b"Subject: swaks\n\n.\n..\n.dots\nend\n";
    let modes: [&[&str]; 4] = [&[], &["--pipeline"], &["--tls"], &["--protocol", "SMTP"]];
    for mode_args in modes {
        run_program("swaks", &[&common_args[..], &["--to", "ada@in.test,bob@in.test"], mode_args].concat(), text).await;
    }
    let mails = world.receiver.mails();
    assert_eq!(mails.len(), modes.len());
    for mail in mails {
        assert_eq!(mail.raw, &b"Subject: swaks\r\n\r\n.\r\n..\r\n.dots\r\nend\r\n\r\n"[..]);
        assert_eq!(mail.recipients, ["ada@in.test", "bob@in.test"]);
        assert_eq!((mail.sender.as_str(), mail.helo.as_str()), ("eve@out.test", "out.test"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn smtp_source_sends_many_mails_per_connection() {
    let (world, at) = start_tls_listener().await;
    let mails = ["-s", "10", "-m", "300", "-l", "1200", "-f", "eve@out.test", "-t", "ada@in.test"];
    run_program("smtp-source", &[&mails[..], &["-d", &at.to_string()]].concat(), b"").await;
    run_program("smtp-source", &[&mails[..], &[&at.to_string()]].concat(), b"").await;
    assert_eq!((world.receiver.mails().len(), world.metrics.accepted()), (600, 600));
    assert!(world.receiver.raw_mails().iter().all(|text| text.len() >= 1200 && text.ends_with(b"\r\n")));
    assert_eq!(world.metrics.connections(), 310);
}

/// Starts a private Postfix that relays everything to `at`, with all its files in `home`.
async fn start_postfix(home: &Path, at: SocketAddr) -> Child {
    assert!(rustix::process::geteuid().is_root(), "Postfix runs its programs as other users, so this test needs root");
    let etc = home.join("etc");
    for name in ["etc", "queue", "data"] {
        std::fs::create_dir(home.join(name)).unwrap();
    }
    // Its programs access their files as the postfix user, which also owns the data directory.
    std::fs::set_permissions(home, std::fs::Permissions::from_mode(0o711)).unwrap();
    run_program("chown", &["postfix", &home.join("data").to_string_lossy()], b"").await;
    let (host, port, home) = (at.ip(), at.port(), home.display());
    let main = format!(
        "compatibility_level = 3.6\nqueue_directory = {home}/queue\ndata_directory = {home}/data\n\
         maillog_file = {home}/maillog\nmaillog_file_prefixes = {home}\nmyhostname = out.test\nmydestination =\n\
         alias_maps =\nalias_database =\nlocal_recipient_maps =\nmynetworks = 127.0.0.0/8\n\
         smtpd_relay_restrictions = permit_mynetworks, reject\nsmtpd_peername_lookup = no\ninet_interfaces = 127.0.0.1\n\
         inet_protocols = ipv4\nrelayhost = [{host}]:{port}\nsmtp_tls_security_level = encrypt\nsmtp_tls_loglevel = 1\n\
         smtp_dns_support_level = disabled\n"
    );
    let services = "feed unix n - n - - smtpd\ncleanup unix n - n - 0 cleanup\nqmgr unix n - n 300 1 qmgr\n\
        rewrite unix - - n - - trivial-rewrite\nbounce unix - - n - 0 bounce\ndefer unix - - n - 0 bounce\n\
        trace unix - - n - 0 bounce\ntlsmgr unix - - n 1000? 1 tlsmgr\nproxymap unix - - n - - proxymap\n\
        smtp unix - - n - - smtp\nrelay unix - - n - - smtp\nerror unix - - n - - error\nretry unix - - n - - error\n\
        anvil unix - - n - 1 anvil\nscache unix - - n - 1 scache\npostlog unix-dgram n - n - 1 postlogd\n";
    std::fs::write(etc.join("main.cf"), main).unwrap();
    std::fs::write(etc.join("master.cf"), services).unwrap();
    run_program("postfix", &["-c", &etc.to_string_lossy(), "check"], b"").await;
    let daemons = run_program("postconf", &["-h", "daemon_directory"], b"").await.stdout;
    let master = Path::new(String::from_utf8(daemons).unwrap().trim()).join("master");
    // The master runs as our child, so its own children exit when it is killed.
    let command = Command::new(master).arg("-s").arg("-c").arg(&etc).stdin(Stdio::null()).kill_on_drop(true).spawn();
    command.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postfix_relays_to_us_by_tls() {
    let (world, at) = start_tls_listener().await;
    let home = tempfile::tempdir().unwrap();
    let mut master = start_postfix(home.path(), at).await;
    let feed_socket = home.path().join("queue/public/feed");
    let started = Instant::now();
    while tokio::net::UnixStream::connect(&feed_socket).await.is_err() {
        assert!(started.elapsed() < TIMEOUT, "Postfix does not answer: {}", read_maillog(home.path()));
        sleep(Duration::from_millis(50)).await;
    }
    let mails = ["-s", "4", "-m", "40", "-l", "1200", "-f", "eve@out.test", "-t", "ada@in.test"];
    run_program("smtp-source", &[&mails[..], &[&format!("unix:{}", feed_socket.display())]].concat(), b"").await;
    let received = world.receiver.wait_for_mails(40).await;
    assert_eq!(received.len(), 40);
    assert!(received.iter().all(|mail| mail.helo == "out.test" && mail.raw.starts_with(b"Received: from ")));
    // A mail counts as accepted when Postfix has its reply, which comes after the mail is stored.
    while world.metrics.accepted() < 40 {
        assert!(started.elapsed() < TIMEOUT, "{} of 40 mails accepted", world.metrics.accepted());
        sleep(Duration::from_millis(20)).await;
    }
    let pid = rustix::process::Pid::from_raw(master.id().unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    master.wait().await.unwrap();
    assert!(read_maillog(home.path()).contains("TLS connection established to"), "{}", read_maillog(home.path()));
    assert_eq!(world.metrics.accepted(), 40, "each mail is accepted once");
}

fn read_maillog(home: &Path) -> String {
    std::fs::read_to_string(home.join("maillog")).unwrap_or_default()
}

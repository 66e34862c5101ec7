//! `doctor` against records and relays that are right, wrong and missing.

use serde_json::Value;
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, UdpSocket},
};

use crate::binary::CliFixture;

/// A name and the type of a record.
type DnsQuestion = (String, u16);
const MX: u16 = 15;
const TXT: u16 = 16;

/// A resolver that knows what it is told.
struct FakeResolver {
    address: SocketAddr,
    records: Arc<Mutex<BTreeMap<DnsQuestion, Vec<Vec<u8>>>>>,
}

impl FakeResolver {
    async fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (at, records) = (socket.local_addr().unwrap(), Arc::new(Mutex::new(BTreeMap::new())));
        let known: Arc<Mutex<BTreeMap<DnsQuestion, Vec<Vec<u8>>>>> = Arc::clone(&records);
        tokio::spawn(async move {
            let mut bytes = [0; 600];
            loop {
                let (length, from) = socket.recv_from(&mut bytes).await.unwrap();
                let answer = answer_dns(&bytes[..length], &known.lock().unwrap());
                socket.send_to(&answer, from).await.unwrap();
            }
        });
        Self { address: at, records }
    }

    fn add_txt(&self, name: &str, text: &str) {
        let data = text.as_bytes().chunks(255).flat_map(|part| [&[part.len() as u8], part].concat()).collect();
        self.records.lock().unwrap().entry((name.to_lowercase(), TXT)).or_default().push(data);
    }

    fn add_mx(&self, name: &str, host: &str) {
        let mut data = vec![0, 10];
        host.split('.').for_each(|label| data.extend([&[label.len() as u8], label.as_bytes()].concat()));
        data.push(0);
        self.records.lock().unwrap().entry((name.to_lowercase(), MX)).or_default().push(data);
    }
}

fn answer_dns(question: &[u8], known: &BTreeMap<DnsQuestion, Vec<Vec<u8>>>) -> Vec<u8> {
    let (mut labels, mut at) = (Vec::new(), 12);
    while question[at] != 0 {
        let end = at + 1 + usize::from(question[at]);
        labels.push(String::from_utf8_lossy(&question[at + 1..end]).to_lowercase());
        at = end;
    }
    let kind = u16::from_be_bytes([question[at + 1], question[at + 2]]);
    let found = known.get(&(labels.join("."), kind)).cloned().unwrap_or_default();
    let mut bytes = [&question[..2], &[0x81, 0x80, 0, 1], &(found.len() as u16).to_be_bytes(), &[0; 4]].concat();
    bytes.extend(&question[12..at + 5]);
    for data in found {
        bytes.extend([0xc0, 12]);
        bytes.extend(kind.to_be_bytes());
        bytes.extend([0, 1, 0, 0, 0, 60]);
        bytes.extend((data.len() as u16).to_be_bytes());
        bytes.extend(data);
    }
    bytes
}

/// The checks of one name, as `level: found → next`.
fn checks_named(report: &Value, name: &str) -> Vec<String> {
    let all = report["checks"].as_array().unwrap().iter().filter(|check| check["check"] == name);
    let part = |check: &Value, name: &str| check[name].as_str().unwrap().to_owned();
    all.map(|check| format!("{}: {} → {}", part(check, "level"), part(check, "finding"), part(check, "next"))).collect()
}

#[tokio::test]
async fn records_that_are_missing_or_wrong_are_named_with_what_to_publish() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let bearer = format!("Bearer {}", server.api_key);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let (status, made) = server.call("POST", "/v1/domains", &headers, r#"{"name":"example.com"}"#).await;
    assert_eq!(status, 201, "{made}");
    let zone = FakeResolver::start().await;
    let dns = zone.address.to_string();
    let config = "smtp.domains = [\"agents.example.com\"]\nsmtp.hostname = \"mx.example.com\"\n";
    std::fs::write(cli.path().join("mailonce.toml"), config).unwrap();
    let words = ["doctor", "--dns", dns.as_str()];

    // Nothing is published. A running server tells its domains.
    let ill = cli.run(&words).await.expect_exit(5).json();
    let record = |purpose: &str| {
        made["records"].as_array().unwrap().iter().find(|record| record["purpose"] == purpose).unwrap().clone()
    };
    let own = record("ownership");
    let (name, value) = (own["name"].as_str().unwrap(), own["value"].as_str().unwrap());
    let publish = format!("fail: {name} is missing → publish TXT {name} \"{value}\"");
    assert_eq!(checks_named(&ill, "ownership"), [publish]);
    assert_eq!(checks_named(&ill, "dkim").len(), 2);
    assert!(checks_named(&ill, "spf")[0].starts_with("warn: "), "{ill}");
    assert!(checks_named(&ill, "dmarc")[0].starts_with("warn: "), "{ill}");
    assert!(checks_named(&ill, "mx")[0].ends_with("publish MX agents.example.com \"10 mx.example.com\""), "{ill}");
    server.terminate().await;

    // The same from the ledger itself, with one record that says something else.
    for record in made["records"].as_array().unwrap().iter().filter(|record| record["required"] == true) {
        zone.add_txt(record["name"].as_str().unwrap(), record["value"].as_str().unwrap());
    }
    zone.add_txt("example.com", "v=spf1 include:relay.test ~all");
    zone.add_mx("agents.example.com", "mx.other.test");
    let odd = cli.run(&words).await.expect_exit(0).json();
    assert!(checks_named(&odd, "ownership")[0].starts_with("ok: "), "{odd}");
    assert!(checks_named(&odd, "dkim").iter().all(|check| check.starts_with("ok: ")), "{odd}");
    assert!(checks_named(&odd, "spf")[0].starts_with("ok: "), "{odd}");
    assert!(checks_named(&odd, "mx")[0].starts_with("warn: "), "{odd}");
    zone.add_mx("agents.example.com", "mx.example.com");
    zone.add_txt("_dmarc.example.com", "v=DMARC1; p=none");
    zone.add_txt("example.com", "v=spf1 -all");
    let two = cli.run(&words).await.expect_exit(5).json();
    assert!(checks_named(&two, "spf")[0].starts_with("fail: "), "two policies are none: {two}");
    assert!(
        checks_named(&two, "mx")[0].starts_with("ok: ") && checks_named(&two, "dmarc")[0].starts_with("ok: "),
        "{two}"
    );
}

/// A relay that takes one password.
async fn start_relay() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut lines = BufReader::new(stream);
                lines.write_all(b"220 relay ESMTP\r\n").await.unwrap();
                let mut line = String::new();
                while lines.read_line(&mut line).await.is_ok_and(|length| length > 0) {
                    let answer: &[u8] = match line.split_whitespace().collect::<Vec<_>>().as_slice() {
                        ["EHLO", _] => b"250-relay\r\n250 AUTH PLAIN\r\n",
                        // \0agents\0right
                        ["AUTH", "PLAIN", "AGFnZW50cwByaWdodA=="] => b"235 welcome\r\n",
                        ["AUTH", ..] => b"535 5.7.8 not with this password\r\n",
                        ["MAIL", ..] => panic!("a mail was begun"),
                        _ => b"250 ok\r\n",
                    };
                    lines.write_all(answer).await.unwrap();
                    line.clear();
                }
            });
        }
    });
    at
}

#[tokio::test]
async fn private_keys_that_others_can_read_are_named() {
    let cli = CliFixture::new();
    for name in ["http.key", "smtp.key"] {
        std::fs::write(cli.path().join(name), "not read here").unwrap();
    }
    let config = "[http]\ntls_cert = \"http.pem\"\ntls_key = \"http.key\"\n\
                  [smtp]\ntls_cert = \"smtp.pem\"\ntls_key = \"smtp.key\"\n";
    std::fs::write(cli.path().join("mailonce.toml"), config).unwrap();
    let found = cli.run(&["doctor", "--offline"]).await.json();
    assert!(checks_named(&found, "permissions")[0].contains("chmod 600 http.key smtp.key"), "{found}");
}

#[tokio::test]
async fn a_relay_is_visited_as_far_as_its_log_in_and_no_mail_is_begun() {
    let cli = CliFixture::new();
    let port = start_relay().await.port();
    let file = cli.path().join("mailonce.toml");
    let write = |port: u16, password: &str| {
        let text = format!(
            "[[transports]]\nname = \"relay\"\nkind = \"smtp\"\nhost = \"127.0.0.1\"\nport = {port}\ntls = \"none\"\n\
             username = \"agents\"\npassword = \"{password}\"\n"
        );
        std::fs::write(&file, text).unwrap();
    };
    write(port, "right");
    let well = cli.run(&["doctor"]).await.expect_exit(0).json();
    assert_eq!(checks_named(&well, "transport"), ["ok: relay (smtp): login succeeded → "]);
    // A password in a file that others can read is worth a word.
    assert!(checks_named(&well, "permissions")[0].contains("chmod 600 mailonce.toml"), "{well}");
    write(port, "wrong");
    let ill = cli.run(&["doctor"]).await.expect_exit(5).json();
    let said = checks_named(&ill, "transport").remove(0);
    assert!(
        said.contains("5.7.8 not with this password")
            && said.contains("username and password of the transport `relay`"),
        "{said}"
    );
    write(1, "right");
    let gone = cli.run(&["doctor"]).await.expect_exit(5).json();
    assert!(checks_named(&gone, "transport")[0].contains("cannot connect"), "{gone}");
    cli.run(&["doctor", "--offline"]).await.expect_exit(0);
}

#[tokio::test]
async fn the_server_that_has_the_ledger_is_the_one_that_is_named() {
    let cli = CliFixture::new();
    let elsewhere = cli.path().join("elsewhere");
    let server = cli.start_dev(&[("MAILONCE_DATA", elsewhere.to_str().unwrap())]).await;
    let report = cli.run(&["doctor", "--data", "elsewhere"]).await.expect_exit(0).json();
    assert_eq!(checks_named(&report, "server"), [format!("ok: running at {}, ready → ", server.url)]);
    server.terminate().await;
}

#[tokio::test]
async fn doctor_reports_queued_stopped_and_unknown_emails_online_and_offline() {
    let cli = CliFixture::new();
    let server = cli.start_dev(&[]).await;
    let report = cli.run(&["doctor", "--offline"]).await.expect_exit(0).json();
    assert!(checks_named(&report, "ledger")[0].starts_with("ok: sqlite, schema "), "{report}");
    assert_eq!(checks_named(&report, "hand-off"), ["ok: running, queue empty → "]);
    let doubt = ["send", "--from", "a@x.test", "--to", "unknown@sandbox.mailonce.test", "--text", "x", "--key", "d"];
    for _ in 0..200 {
        if cli.run(&doubt).await.exit_code == 7 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let report = cli.run(&["doctor", "--offline"]).await.expect_exit(0).json();
    let said = checks_named(&report, "hand-off").remove(0);
    assert!(
        said.starts_with("warn: running, queue empty, 1 with an unknown outcome") && said.contains("emails resolve"),
        "{said}"
    );
    cli.run(&["pause"]).await.expect_exit(0);
    cli.run(&crate::binary::send_args("k", "x")).await.expect_exit(0);
    let report = cli.run(&["doctor", "--offline"]).await.expect_exit(0).json();
    let said = checks_named(&report, "hand-off").remove(0);
    assert!(said.contains("stopped, 1 queued") && said.contains("mailonce resume"), "{said}");
    server.terminate().await;
    let report = cli.run(&["doctor", "--offline"]).await.expect_exit(0).json();
    let said = checks_named(&report, "hand-off").remove(0);
    assert!(said.contains("1 queued") && said.contains("1 with an unknown outcome"), "{said}");
    assert!(checks_named(&report, "ledger")[0].starts_with("ok: sqlite, schema "), "{report}");
}

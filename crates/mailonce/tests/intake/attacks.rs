//! Attacks from one address against the real binary: other senders can still deliver their mail.

use crate::{
    binary::{CliFixture, SpawnedServer},
    fixtures::{LineClient, TIMEOUT},
};
use std::{
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::MetadataExt as _,
    time::Duration,
};
use tokio::{
    net::{TcpSocket, TcpStream},
    time::{sleep, timeout},
};

const MIB: usize = 1024 * 1024;
/// Two loopback addresses. Limits per address treat them separately once they apply to loopback.
const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const VICTIM: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// Starts a server that accepts mails of up to 4 MiB for `ada@mailonce.test`.
async fn start_server(cli: &CliFixture, env: &[(&str, &str)]) -> SpawnedServer {
    let server = cli.start_dev(&[&[("MAILONCE_SMTP_MAX_SIZE", "4194304")], env].concat()).await;
    let bearer = format!("Bearer {}", server.api_key);
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    let (status, body) = server.call("POST", "/v1/inboxes", &headers, r#"{"username":"ada"}"#).await;
    assert_eq!(status, 201, "{body}");
    server
}

/// Waits for `count` messages in the inbox and returns their sizes.
async fn wait_for_message_sizes(server: &SpawnedServer, count: usize) -> Vec<u64> {
    let bearer = format!("Bearer {}", server.api_key);
    let read = async {
        loop {
            let path = "/v1/inboxes/ada@mailonce.test/messages?limit=100";
            let (status, body) = server.call("GET", path, &[("Authorization", &bearer)], "").await;
            assert_eq!(status, 200, "{body}");
            let rows = body["data"].as_array().unwrap_or_else(|| panic!("{body}"));
            if rows.len() >= count {
                return rows.iter().map(|row| row["size"].as_u64().unwrap_or_else(|| panic!("{row}"))).collect();
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(TIMEOUT, read).await.unwrap_or_else(|_| panic!("{count} messages did not arrive in time"))
}

/// Connects from this address and returns the reply to `DATA`.
async fn connect_to_data(server: &SpawnedServer, from: Ipv4Addr) -> (LineClient<TcpStream>, String) {
    let at = server.startup_banner.split("by SMTP at ").nth(1).unwrap().lines().next().unwrap().trim();
    let at: SocketAddr = at.parse().unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    let mut client = LineClient::new(socket.connect(at).await.unwrap());
    client.send("EHLO out.test\r\nMAIL FROM:<eve@out.test>\r\nRCPT TO:<ada@mailonce.test>\r\nDATA\r\n").await;
    assert_eq!(client.read_codes(4).await, ["220", "250", "250", "250"]);
    let answer = client.read_reply().await;
    (client, answer)
}

/// A mail of this many bytes, without the final dot. Each name makes a different mail.
fn mail_text(name: &str, octets: usize) -> String {
    let head = format!("Message-ID: <{name}@out.test>\r\nSubject: {name}\r\n\r\n");
    let line = format!("{}\r\n", "x".repeat(998));
    let body = line.repeat((octets - head.len()) / line.len());
    let rest = "y".repeat(octets - head.len() - body.len() - 2);
    format!("{head}{body}{rest}\r\n")
}

/// The total size of unlinked files in the data directory that the server has open. Only their owner may read them.
fn spooled_bytes(server: &SpawnedServer, cli: &CliFixture) -> u64 {
    let data = cli.data_dir().canonicalize().unwrap();
    let files = std::fs::read_dir(server.proc_dir().join("fd")).unwrap().filter_map(|entry| {
        // A descriptor may be closed meanwhile.
        let path = entry.ok()?.path();
        let (at, metadata) = (std::fs::read_link(&path).ok()?, std::fs::metadata(&path).ok()?);
        // The mode of a file is set before its first byte is written.
        (at.starts_with(&data) && metadata.is_file() && metadata.nlink() == 0 && metadata.len() > 0).then_some(metadata)
    });
    files.inspect(|metadata| assert_eq!(metadata.mode() & 0o777, 0o600)).map(|metadata| metadata.len()).sum()
}

/// Waits until the spool holds this many bytes, except for the last ones, which stay in memory.
async fn wait_until_spooled(server: &SpawnedServer, cli: &CliFixture, octets: usize) {
    let arrived = async {
        while spooled_bytes(server, cli) < octets as u64 - 128 * 1024 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(TIMEOUT, arrived).await.expect("the mail was not spooled");
}

/// Delivers a mail and returns the reply.
async fn deliver(server: &SpawnedServer, from: Ipv4Addr, text: &str) -> String {
    let (mut client, answer) = connect_to_data(server, from).await;
    assert!(answer.starts_with("354"), "{answer}");
    timeout(TIMEOUT, client.command(format!("{text}.\r\n"))).await.expect("no answer")
}

#[tokio::test]
async fn eight_slow_large_mails_do_not_block_others_and_are_accepted() {
    let cli = CliFixture::new();
    let server = start_server(&cli, &[("MAILONCE_SMTP_MAX_MEMORY", "8388608")]).await;
    let mut slow = Vec::new();
    for n in 0..8 {
        let (mut client, answer) = connect_to_data(&server, ATTACKER).await;
        assert!(answer.starts_with("354"), "mail {n}: {answer}");
        client.send(mail_text(&format!("slow-{n}"), 3 * MIB)).await;
        slow.push(client);
    }
    wait_until_spooled(&server, &cli, 8 * 3 * MIB - 8 * 64 * 1024).await;
    let (mut victim, answer) = connect_to_data(&server, VICTIM).await;
    assert!(answer.starts_with("354"), "{answer}");
    let answer = victim.command(format!("{}.\r\n", mail_text("honest", 2 * MIB))).await;
    assert!(answer.starts_with("250 2.0.0"), "{answer}");
    for client in &mut slow {
        let answer = client.command(".\r\n").await;
        assert!(answer.starts_with("250 2.0.0"), "{answer}");
    }
    let mut sizes = wait_for_message_sizes(&server, 9).await;
    sizes.sort_unstable();
    let expected: Vec<u64> = [vec![2 * MIB as u64], vec![3 * MIB as u64; 8]].concat();
    assert_eq!(sizes, expected, "every mail is complete");
    assert_eq!(spooled_bytes(&server, &cli), 0, "the spool is empty again");
}

#[tokio::test]
async fn one_address_cannot_use_more_than_its_share_of_the_spool() {
    let cli = CliFixture::new();
    // An explicit limit applies to loopback too.
    let env = [("MAILONCE_SMTP_MAX_SPOOL", "16777216"), ("MAILONCE_SMTP_PER_IP_SPOOL", "4194304")];
    let server = start_server(&cli, &env).await;
    let (mut held, answer) = connect_to_data(&server, ATTACKER).await;
    assert!(answer.starts_with("354"), "{answer}");
    held.send(mail_text("held", 3 * MIB)).await;
    wait_until_spooled(&server, &cli, 3 * MIB).await;
    let refused = deliver(&server, ATTACKER, &mail_text("second", 3 * MIB)).await;
    assert!(refused.starts_with("452 4.7.0"), "{refused}");
    let taken = deliver(&server, VICTIM, &mail_text("honest", 3 * MIB)).await;
    assert!(taken.starts_with("250 2.0.0"), "{taken}");
    assert!(held.command(".\r\n").await.starts_with("250 2.0.0"));
    assert_eq!(wait_for_message_sizes(&server, 2).await, [3 * MIB as u64; 2], "the refused mail left nothing");
}

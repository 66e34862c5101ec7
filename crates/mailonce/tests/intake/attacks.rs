//! One address against the real binary: whatever it holds, others still deliver their mail.

use crate::{
    binary::{Desk, Server},
    world::{Client, PATIENCE},
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
/// Two addresses of this machine. Limits per address tell them apart once they apply to loopback.
const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const VICTIM: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// A server that takes mails of up to 4 MiB for `ada@mailonce.test`.
async fn server(desk: &Desk, env: &[(&str, &str)]) -> Server {
    let server = desk.dev(&[&[("MAILONCE_SMTP_MAX_SIZE", "4194304")], env].concat()).await;
    let bearer = format!("Bearer {}", server.api_key);
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    let (status, body) = server.call("POST", "/v1/inboxes", &headers, r#"{"username":"ada"}"#).await;
    assert_eq!(status, 201, "{body}");
    server
}

/// The sizes of the mails in the inbox, as its API shows them.
async fn sizes(server: &Server, count: usize) -> Vec<u64> {
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
    timeout(PATIENCE, read).await.unwrap_or_else(|_| panic!("{count} mails do not become messages"))
}

/// A connection from this address, up to the answer to `DATA`.
async fn in_data(server: &Server, from: Ipv4Addr) -> (Client<TcpStream>, String) {
    let at = server.greeting.split("by SMTP at ").nth(1).unwrap().lines().next().unwrap().trim();
    let at: SocketAddr = at.parse().unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    let mut client = Client::new(socket.connect(at).await.unwrap());
    client.say("EHLO out.test\r\nMAIL FROM:<eve@out.test>\r\nRCPT TO:<ada@mailonce.test>\r\nDATA\r\n").await;
    assert_eq!(client.codes(4).await, ["220", "250", "250", "250"]);
    let answer = client.hear().await;
    (client, answer)
}

/// A text of so many octets without the dot that ends it. Each is another mail.
fn text(name: &str, octets: usize) -> String {
    let head = format!("Message-ID: <{name}@out.test>\r\nSubject: {name}\r\n\r\n");
    let line = format!("{}\r\n", "x".repeat(998));
    let body = line.repeat((octets - head.len()) / line.len());
    let rest = "y".repeat(octets - head.len() - body.len() - 2);
    format!("{head}{body}{rest}\r\n")
}

/// Octets of the unlinked files in the data directory that the server has open. Nobody else may read them.
fn spooled(server: &Server, desk: &Desk) -> u64 {
    let data = desk.data().canonicalize().unwrap();
    let files = std::fs::read_dir(server.proc_dir().join("fd")).unwrap().filter_map(|entry| {
        // A descriptor may be closed in between.
        let path = entry.ok()?.path();
        let (at, about) = (std::fs::read_link(&path).ok()?, std::fs::metadata(&path).ok()?);
        // A file gets its mode before its first octet.
        (at.starts_with(&data) && about.is_file() && about.nlink() == 0 && about.len() > 0).then_some(about)
    });
    files.inspect(|about| assert_eq!(about.mode() & 0o777, 0o600)).map(|about| about.len()).sum()
}

/// Waits until the spool has this mail, except for the last octets, which stay in memory.
async fn until_spooled(server: &Server, desk: &Desk, octets: usize) {
    let arrived = async {
        while spooled(server, desk) < octets as u64 - 128 * 1024 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, arrived).await.expect("the mail does not go to the spool");
}

/// Delivers a mail and returns its answer.
async fn deliver(server: &Server, from: Ipv4Addr, text: &str) -> String {
    let (mut client, answer) = in_data(server, from).await;
    assert!(answer.starts_with("354"), "{answer}");
    timeout(PATIENCE, client.ask(format!("{text}.\r\n"))).await.expect("no answer")
}

#[tokio::test]
async fn eight_slow_large_mails_keep_nobody_out_and_are_taken_in_the_end() {
    let desk = Desk::new();
    let server = server(&desk, &[("MAILONCE_SMTP_MAX_MEMORY", "8388608")]).await;
    let mut slow = Vec::new();
    for n in 0..8 {
        let (mut client, answer) = in_data(&server, ATTACKER).await;
        assert!(answer.starts_with("354"), "mail {n}: {answer}");
        client.say(text(&format!("slow-{n}"), 3 * MIB)).await;
        slow.push(client);
    }
    until_spooled(&server, &desk, 8 * 3 * MIB - 8 * 64 * 1024).await;
    let (mut victim, answer) = in_data(&server, VICTIM).await;
    assert!(answer.starts_with("354"), "{answer}");
    let answer = victim.ask(format!("{}.\r\n", text("honest", 2 * MIB))).await;
    assert!(answer.starts_with("250 2.0.0"), "{answer}");
    for client in &mut slow {
        let answer = client.ask(".\r\n").await;
        assert!(answer.starts_with("250 2.0.0"), "{answer}");
    }
    let mut sizes = sizes(&server, 9).await;
    sizes.sort_unstable();
    let expected: Vec<u64> = [vec![2 * MIB as u64], vec![3 * MIB as u64; 8]].concat();
    assert_eq!(sizes, expected, "every mail is whole");
    assert_eq!(spooled(&server, &desk), 0, "the spool is empty again");
}

#[tokio::test]
async fn one_address_gets_a_quarter_of_the_spool_and_others_the_rest() {
    let desk = Desk::new();
    // A limit that is given holds for this machine, too.
    let env = [("MAILONCE_SMTP_MAX_SPOOL", "16777216"), ("MAILONCE_SMTP_PER_IP_SPOOL", "4194304")];
    let server = server(&desk, &env).await;
    let (mut held, answer) = in_data(&server, ATTACKER).await;
    assert!(answer.starts_with("354"), "{answer}");
    held.say(text("held", 3 * MIB)).await;
    until_spooled(&server, &desk, 3 * MIB).await;
    let refused = deliver(&server, ATTACKER, &text("second", 3 * MIB)).await;
    assert!(refused.starts_with("452 4.7.0"), "{refused}");
    let taken = deliver(&server, VICTIM, &text("honest", 3 * MIB)).await;
    assert!(taken.starts_with("250 2.0.0"), "{taken}");
    assert!(held.ask(".\r\n").await.starts_with("250 2.0.0"));
    assert_eq!(sizes(&server, 2).await, [3 * MIB as u64; 2], "what was refused left nothing");
}

//! A local DNS server with scripted records and failures.

use mailonce_core::{
    inbound::sender_auth::{SenderAuth, UnauthenticatedMail},
    ports::authenticator::Authenticator as _,
};
use mailonce_transport::{authenticate::DnsSenderAuthenticator, dns::Resolver};
use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
};
use tokio::{net::UdpSocket, task::JoinHandle};

const A: u16 = 1;
const PTR: u16 = 12;
const MX: u16 = 15;
const TXT: u16 = 16;
const AAAA: u16 = 28;

/// The records and failures of the DNS server.
#[derive(Clone, Default)]
pub(crate) struct DnsZone {
    records: HashMap<(String, u16), Vec<Vec<u8>>>,
    silent: Vec<String>,
    failing: Vec<String>,
}

impl DnsZone {
    fn with(mut self, name: &str, kind: u16, data: Vec<u8>) -> Self {
        self.records.entry((name.to_ascii_lowercase(), kind)).or_default().push(data);
        self
    }

    pub(crate) fn txt(self, name: &str, text: &str) -> Self {
        let strings = text.as_bytes().chunks(255).flat_map(|part| [&[part.len() as u8], part].concat());
        let data = strings.collect();
        self.with(name, TXT, data)
    }

    pub(crate) fn ip(self, name: &str, ip: &str) -> Self {
        match ip.parse().unwrap() {
            IpAddr::V4(ip) => self.with(name, A, ip.octets().to_vec()),
            IpAddr::V6(ip) => self.with(name, AAAA, ip.octets().to_vec()),
        }
    }

    pub(crate) fn mx(self, name: &str, host: &str) -> Self {
        self.with(name, MX, [vec![0, 10], labels(host)].concat())
    }

    pub(crate) fn ptr(self, ip: Ipv4Addr, host: &str) -> Self {
        let [a, b, c, d] = ip.octets();
        self.with(&format!("{d}.{c}.{b}.{a}.in-addr.arpa"), PTR, labels(host))
    }

    /// Queries for this name are never answered.
    pub(crate) fn silent(mut self, name: &str) -> Self {
        self.silent.push(name.to_owned());
        self
    }

    /// Queries for this name are answered with SERVFAIL.
    pub(crate) fn failing(mut self, name: &str) -> Self {
        self.failing.push(name.to_owned());
        self
    }

    /// The answer to a query. `None` if it stays unanswered.
    fn answer(&self, query: &[u8]) -> Option<Vec<u8>> {
        let (name, kind, end) = parse_question(query);
        if self.silent.contains(&name) {
            return None;
        }
        let found = self.records.get(&(name.clone(), kind)).map(Vec::as_slice).unwrap_or_default();
        let name_exists = self.records.keys().any(|(owner, _)| *owner == name);
        let code = match (self.failing.contains(&name), name_exists) {
            (true, _) => 2,
            (false, true) => 0,
            (false, false) => 3,
        };
        let mut bytes = [&query[..2], &[0x81, 0x80 | code, 0, 1, 0, found.len() as u8, 0, 0, 0, 0]].concat();
        bytes.extend(&query[12..end]);
        for data in found {
            bytes.extend([0xc0, 12]);
            bytes.extend(kind.to_be_bytes());
            bytes.extend([0, 1, 0, 0, 0, 60]);
            bytes.extend((data.len() as u16).to_be_bytes());
            bytes.extend(data);
        }
        Some(bytes)
    }

    /// Starts the server.
    pub(crate) async fn serve(self) -> DnsServer {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let at = socket.local_addr().unwrap();
        let queried_names = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&queried_names);
        let task = tokio::spawn(async move {
            let mut bytes = [0; 1_500];
            loop {
                let (length, from) = socket.recv_from(&mut bytes).await.unwrap();
                log.lock().unwrap().push(parse_question(&bytes[..length]).0);
                if let Some(answer) = self.answer(&bytes[..length]) {
                    socket.send_to(&answer, from).await.unwrap();
                }
            }
        });
        DnsServer { at, queried_names, task }
    }
}

/// The name and type of a query, and where its question section ends.
fn parse_question(query: &[u8]) -> (String, u16, usize) {
    let (mut at, mut name) = (12, Vec::new());
    while query[at] != 0 {
        let end = at + 1 + usize::from(query[at]);
        name.push(String::from_utf8_lossy(&query[at + 1..end]).to_ascii_lowercase());
        at = end;
    }
    (name.join("."), u16::from_be_bytes([query[at + 1], query[at + 2]]), at + 5)
}

fn labels(name: &str) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        name.split('.').flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat()).collect();
    bytes.push(0);
    bytes
}

/// A DNS server that runs until it is dropped.
pub(crate) struct DnsServer {
    at: SocketAddr,
    queried_names: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl DnsServer {
    /// Authenticates a mail with this DNS server.
    pub(crate) async fn authenticate(&self, mail: UnauthenticatedMail<'_>) -> SenderAuth {
        DnsSenderAuthenticator::new(&Resolver::with_servers(vec![self.at])).unwrap().authenticate(mail).await
    }

    /// All queried names.
    pub(crate) fn queried_names(&self) -> Vec<String> {
        self.queried_names.lock().unwrap().clone()
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A mail without an envelope.
pub(crate) fn without_envelope(raw: &[u8]) -> UnauthenticatedMail<'_> {
    UnauthenticatedMail { raw, ip: None, helo: None, sender: None }
}

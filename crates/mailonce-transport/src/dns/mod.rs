//! DNS lookups of TXT and MX records, answered by the configured DNS servers.
//!
//! The crate `hickory-net` encodes queries, decodes responses and exchanges them over UDP. This module decides which
//! servers are asked and what a response means (docs/decisions/0036). It caches nothing: the check of a domain has to
//! see a record as soon as it is published.
//!
//! Invariant: only NOERROR and NXDOMAIN count as an answer. Every other outcome is an error, so that a failure of DNS
//! never looks like a missing record.

#[cfg(test)]
mod tests;

use async_trait::async_trait;
use hickory_net::{
    NetError,
    proto::{
        op::{DnsRequest, DnsRequestOptions, DnsResponse, Query, ResponseCode},
        rr::{DNSClass, Name, RData, Record, RecordType},
    },
    runtime::TokioRuntimeProvider,
    udp::UdpClientStream,
    xfer::{DnsRequestSender as _, FirstAnswer as _},
};
use mailonce_core::ports::network::DnsResolver;
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// How long one server may take for one answer, over UDP and again over TCP.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);
/// How often each server is asked before the lookup fails.
const ROUNDS: usize = 2;
/// How many servers of `resolv.conf` are used, as in resolv.conf(5).
const MAX_SERVERS: usize = 3;
/// The largest UDP response that we announce (EDNS). Packets of this size are not fragmented.
const MAX_UDP_BYTES: u16 = 1_232;
/// How many records of a response are read.
const MAX_RECORDS: usize = 100;

/// Looks up DNS records at a list of DNS servers.
#[derive(Clone, Debug)]
pub struct Resolver {
    servers: ServerList,
    timeout: Duration,
}

#[derive(Clone, Debug)]
enum ServerList {
    /// A `resolv.conf`. It is read for every lookup, because it may change.
    File(PathBuf),
    Fixed(Vec<SocketAddr>),
}

impl Resolver {
    /// Uses the DNS servers in `/etc/resolv.conf`.
    pub fn system() -> Self {
        Self { servers: ServerList::File("/etc/resolv.conf".into()), timeout: QUERY_TIMEOUT }
    }

    /// Uses these DNS servers.
    pub fn with_servers(servers: Vec<SocketAddr>) -> Self {
        Self { servers: ServerList::Fixed(servers), timeout: QUERY_TIMEOUT }
    }

    /// The servers in the order in which they are asked.
    pub(crate) fn servers(&self) -> Vec<SocketAddr> {
        match &self.servers {
            ServerList::Fixed(servers) => servers.clone(),
            ServerList::File(path) => parse_resolv_conf(&std::fs::read_to_string(path).unwrap_or_default()),
        }
    }

    /// The MX records of a name, each as `preference host`. Empty when there is none; an error means that DNS did not
    /// answer.
    pub async fn lookup_mx(&self, name: &str) -> Result<Vec<String>, String> {
        self.lookup(name, RecordType::MX).await
    }

    /// Asks the servers in turn until one of them answers.
    async fn lookup(&self, name: &str, record_type: RecordType) -> Result<Vec<String>, String> {
        let query = Query::query(parse_name(name)?, record_type);
        let servers = self.servers();
        let mut last_error = "no DNS server is configured".to_owned();
        for server in servers.iter().cycle().take(servers.len() * ROUNDS) {
            match self.ask(*server, &query).await {
                Ok(texts) => return Ok(texts),
                Err(error) => last_error = format!("{server} {error}"),
            }
        }
        Err(last_error)
    }

    /// Asks one server, over TCP if its UDP response is truncated.
    async fn ask(&self, server: SocketAddr, query: &Query) -> Result<Vec<String>, String> {
        let mut options = DnsRequestOptions::default();
        options.edns_payload_len = MAX_UDP_BYTES;
        // Each request has a fresh random id.
        let request = || DnsRequest::from_query(query.clone(), options);
        let response = match self.send_over_udp(server, request()).await {
            // Some servers cut a truncated response within a record, so that it cannot be decoded.
            Ok(response) if response.truncation => self.send_over_tcp(server, request()).await,
            Err(NetError::Proto(_)) => self.send_over_tcp(server, request()).await,
            response => response,
        };
        match response {
            Ok(response) => read_response(&response, query),
            Err(NetError::Timeout) => Err(format!("did not answer within {:?}", self.timeout)),
            Err(error) => Err(format!("could not be asked: {error}")),
        }
    }

    /// Sends a request from a random port and ignores packets with another sender, id or question.
    async fn send_over_udp(&self, server: SocketAddr, request: DnsRequest) -> Result<DnsResponse, NetError> {
        let mut stream = UdpClientStream::builder(server, TokioRuntimeProvider::new())
            .with_timeout(Some(self.timeout))
            // A retransmission would have the same id and make it easier to guess. The next round has a new one.
            .with_max_retries(1)
            .build();
        stream.send_message(request).first_answer().await
    }

    /// Sends a request over a connection of its own and reads one message. hickory's TCP client would decode any number
    /// of messages until one has the right id.
    async fn send_over_tcp(&self, server: SocketAddr, request: DnsRequest) -> Result<DnsResponse, NetError> {
        let exchange = async {
            let query = request.to_vec()?;
            let mut stream = TcpStream::connect(server).await?;
            stream.write_all(&[&(query.len() as u16).to_be_bytes(), query.as_slice()].concat()).await?;
            let mut message = vec![0; usize::from(stream.read_u16().await?)];
            stream.read_exact(&mut message).await?;
            let response = DnsResponse::from_buffer(message)?;
            if response.id == request.id { Ok(response) } else { Err("the response has another id".into()) }
        };
        timeout(self.timeout, exchange).await.unwrap_or(Err(NetError::Timeout))
    }
}

#[async_trait]
impl DnsResolver for Resolver {
    async fn lookup_txt(&self, name: &str) -> Result<Vec<String>, String> {
        self.lookup(name, RecordType::TXT).await
    }
}

/// A domain name without escapes. A trailing dot makes no difference, and search domains are never appended.
fn parse_name(name: &str) -> Result<Name, String> {
    let labels = name.trim_end_matches('.').split('.').map(str::as_bytes);
    let parsed = Name::from_labels(labels).ok().filter(|_| name.is_ascii());
    parsed.ok_or_else(|| format!("`{name}` is not a domain name"))
}

/// The servers of a `resolv.conf`. Without any, resolv.conf(5) means the server on this machine.
fn parse_resolv_conf(text: &str) -> Vec<SocketAddr> {
    let parse_line = |line: &str| {
        let mut words = line.split_whitespace();
        let address = words.next().filter(|word| *word == "nameserver").and_then(|_| words.next())?;
        address.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, 53))
    };
    let servers: Vec<_> = text.lines().filter_map(parse_line).take(MAX_SERVERS).collect();
    if servers.is_empty() { vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 53))] } else { servers }
}

/// The records in a response to a query.
fn read_response(response: &DnsResponse, query: &Query) -> Result<Vec<String>, String> {
    // hickory has done this for a response over UDP.
    if response.queries != [query.clone()] {
        return Err("answered another question".to_owned());
    }
    if response.truncation {
        return Err("truncated its answer over TCP".to_owned());
    }
    match response.response_code {
        ResponseCode::NoError => Ok(read_records(&response.answers, query)),
        ResponseCode::NXDomain => Ok(Vec::new()),
        code => Err(format!("answered with code {} ({code})", u16::from(code))),
    }
}

/// The records of the queried name, and of the names that its CNAME records lead to.
fn read_records(records: &[Record], query: &Query) -> Vec<String> {
    let (mut owners, mut texts) = (vec![query.name()], Vec::new());
    for record in records.iter().take(MAX_RECORDS) {
        if record.dns_class != DNSClass::IN || !owners.contains(&&record.name) {
            continue;
        }
        match &record.data {
            RData::CNAME(target) => owners.push(&target.0),
            data if data.record_type() == query.query_type() => texts.extend(to_text(data)),
            _ => {}
        }
    }
    texts
}

fn to_text(data: &RData) -> Option<String> {
    match data {
        // The strings of a record are one text. A character may begin in one and end in the next.
        RData::TXT(txt) => Some(String::from_utf8_lossy(&txt.txt_data.concat()).into_owned()),
        RData::MX(mx) => {
            let host = mx.exchange.to_lowercase().to_ascii();
            Some(format!("{} {}", mx.preference, host.trim_end_matches('.')))
        }
        _ => None,
    }
}

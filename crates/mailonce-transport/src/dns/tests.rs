//! The resolver against DNS servers on loopback, whose responses are written byte by byte.

use super::*;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};
use tokio::{
    net::{TcpListener, UdpSocket},
    task::JoinSet,
};

const CNAME: u16 = 5;
const MX: u16 = 15;
const TXT: u16 = 16;

/// Flags of a response: the answer is complete, truncated, or an error.
const NOERROR: u16 = 0x8180;
const TRUNCATED: u16 = 0x8380;
const SERVFAIL: u16 = 0x8182;
const NXDOMAIN: u16 = 0x8183;
const REFUSED: u16 = 0x8185;
/// A code that no RFC assigns.
const UNASSIGNED: u16 = 0x818c;

/// The queried name as owner of a record: a pointer to the question.
const QUERIED: &[u8] = &[0xc0, 12];
/// The length of the OPT record at the end of our queries.
const OPT_BYTES: usize = 11;

/// A record: its owner, type and data.
type RawRecord<'a> = (&'a [u8], u16, Vec<u8>);

/// A response to a query, with these flags and records.
fn response(query: &[u8], flags: u16, records: &[RawRecord<'_>]) -> Vec<u8> {
    let mut bytes = [&query[..2], &flags.to_be_bytes(), &[0, 1]].concat();
    bytes.extend((records.len() as u16).to_be_bytes());
    bytes.extend([0, 0, 0, 0]);
    bytes.extend(&query[12..query.len() - OPT_BYTES]);
    for (owner, kind, data) in records {
        bytes.extend(*owner);
        bytes.extend(kind.to_be_bytes());
        bytes.extend([0, 1, 0, 0, 0, 60]);
        bytes.extend((data.len() as u16).to_be_bytes());
        bytes.extend(data);
    }
    bytes
}

/// The data of a TXT record.
fn strings(texts: &[&str]) -> Vec<u8> {
    texts.iter().flat_map(|text| [&[text.len() as u8], text.as_bytes()].concat()).collect()
}

/// A name on the wire, without compression.
fn labels(name: &str) -> Vec<u8> {
    let mut bytes = strings(&name.split('.').collect::<Vec<_>>());
    bytes.push(0);
    bytes
}

/// A DNS server that listens on the same port over UDP and TCP, until it is dropped.
struct DnsServer {
    address: SocketAddr,
    queries: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl DnsServer {
    /// Sends these messages for each query over UDP, and accepts no query over TCP.
    async fn udp(answers: impl Fn(&[u8]) -> Vec<Vec<u8>> + Send + 'static) -> Self {
        Self::start(answers, |_| Vec::new()).await
    }

    /// Sends this message for each query over UDP.
    async fn answering(flags: u16, records: &[RawRecord<'static>]) -> Self {
        let records = records.to_vec();
        Self::udp(move |query| vec![response(query, flags, &records)]).await
    }

    /// Sends these messages for each query. A TCP connection without an answer is closed.
    async fn start(
        over_udp: impl Fn(&[u8]) -> Vec<Vec<u8>> + Send + 'static,
        over_tcp: impl Fn(&[u8]) -> Vec<u8> + Send + 'static,
    ) -> Self {
        let (tcp, udp) = bind_both().await;
        let (address, queries) = (udp.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let mut tasks = JoinSet::new();
        let count = Arc::clone(&queries);
        tasks.spawn(async move {
            let mut bytes = [0; 600];
            loop {
                let (length, from) = udp.recv_from(&mut bytes).await.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                for message in over_udp(&bytes[..length]) {
                    udp.send_to(&message, from).await.unwrap();
                }
            }
        });
        tasks.spawn(async move {
            let mut open = Vec::new();
            loop {
                let (mut stream, _) = tcp.accept().await.unwrap();
                let mut query = vec![0; usize::from(stream.read_u16().await.unwrap())];
                stream.read_exact(&mut query).await.unwrap();
                let message = over_tcp(&query);
                if !message.is_empty() {
                    stream.write_all(&(message.len() as u16).to_be_bytes()).await.unwrap();
                    stream.write_all(&message).await.unwrap();
                    open.push(stream);
                }
            }
        });
        Self { address, queries, _tasks: tasks }
    }

    fn queries(&self) -> usize {
        self.queries.load(Ordering::Relaxed)
    }
}

/// A port that is free over both protocols.
async fn bind_both() -> (TcpListener, UdpSocket) {
    loop {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()).await {
            return (tcp, udp);
        }
    }
}

fn resolver(servers: &[&DnsServer]) -> Resolver {
    let servers = servers.iter().map(|server| server.address).collect();
    Resolver { timeout: Duration::from_millis(500), ..Resolver::with_servers(servers) }
}

/// A resolver for servers that do not answer.
fn impatient_resolver(servers: &[&DnsServer]) -> Resolver {
    Resolver { timeout: Duration::from_millis(40), ..resolver(servers) }
}

async fn lookup_txt(server: &DnsServer) -> Result<Vec<String>, String> {
    resolver(&[server]).lookup_txt("a.test").await
}

#[tokio::test]
async fn the_strings_of_a_record_are_one_text() {
    // The two bytes of `ü` are in different strings.
    let data = b"\x02a\xc3\x02\xbcb".to_vec();
    let server = DnsServer::answering(NOERROR, &[(QUERIED, TXT, data), (QUERIED, TXT, strings(&["second"]))]).await;
    assert_eq!(lookup_txt(&server).await.unwrap(), ["aüb", "second"]);
}

#[tokio::test]
async fn mx_records_have_a_preference_and_a_host() {
    let records = [(QUERIED, MX, b"\0\x0a\x02MX\xc0\x0c".to_vec()), (QUERIED, TXT, strings(&["no"]))];
    let server = DnsServer::answering(NOERROR, &records).await;
    assert_eq!(resolver(&[&server]).lookup_mx("a.test").await.unwrap(), ["10 mx.a.test"]);
    let null_mx = DnsServer::answering(NOERROR, &[(QUERIED, MX, b"\0\0\0".to_vec())]).await;
    assert_eq!(resolver(&[&null_mx]).lookup_mx("a.test").await.unwrap(), ["0 "]);
}

#[tokio::test]
async fn a_chain_of_cname_records_is_followed() {
    let server = DnsServer::udp(|query| {
        let (one, two) = (labels("one.test"), labels("two.test"));
        let records = [
            (QUERIED, CNAME, one.clone()),
            (one.as_slice(), CNAME, two.clone()),
            (two.as_slice(), TXT, strings(&["v=DKIM1; p=AA", "BB"])),
            (b"\x05other\x04test\0".as_slice(), TXT, strings(&["of another name"])),
        ];
        vec![response(query, NOERROR, &records)]
    })
    .await;
    let found = resolver(&[&server]).lookup_txt("_X.Example.com").await;
    assert_eq!(found.unwrap(), ["v=DKIM1; p=AABB"]);
    assert_eq!(server.queries(), 1);
}

#[tokio::test]
async fn a_cname_record_without_a_target_or_in_a_loop_has_no_records() {
    let dangling = DnsServer::answering(NOERROR, &[(QUERIED, CNAME, labels("gone.test"))]).await;
    assert_eq!(lookup_txt(&dangling).await.unwrap(), Vec::<String>::new());
    let in_a_loop = DnsServer::answering(NOERROR, &[(QUERIED, CNAME, labels("a.test"))]).await;
    assert_eq!(lookup_txt(&in_a_loop).await.unwrap(), Vec::<String>::new());
    assert_eq!(dangling.queries() + in_a_loop.queries(), 2);
}

#[tokio::test]
async fn nxdomain_and_nodata_mean_no_record() {
    for flags in [NXDOMAIN, NOERROR] {
        let server = DnsServer::answering(flags, &[]).await;
        assert_eq!(lookup_txt(&server).await.unwrap(), Vec::<String>::new(), "{flags:x}");
        assert_eq!(server.queries(), 1, "an answer is final");
    }
}

#[tokio::test]
async fn an_error_code_is_never_a_missing_record() {
    for (flags, code) in [(SERVFAIL, "code 2"), (REFUSED, "code 5"), (UNASSIGNED, "code 12")] {
        let server = DnsServer::answering(flags, &[]).await;
        let error = lookup_txt(&server).await.unwrap_err();
        assert!(error.contains(code), "{error}");
        assert_eq!(server.queries(), ROUNDS);
    }
}

#[tokio::test]
async fn an_extended_error_code_is_never_a_missing_record() {
    // BADVERS is 16. Its upper bits are in the OPT record, and the lower four are those of NOERROR.
    let server = DnsServer::udp(|query| {
        let mut bytes = response(query, NOERROR, &[]);
        bytes[11] = 1;
        bytes.extend([0, 0, 41, 4, 208, 1, 0, 0, 0, 0, 0]);
        vec![bytes]
    })
    .await;
    let error = lookup_txt(&server).await.unwrap_err();
    assert!(error.contains("code 16"), "{error}");
}

#[tokio::test]
async fn the_next_server_is_asked_after_a_failure() {
    let failing = DnsServer::answering(SERVFAIL, &[]).await;
    let silent = DnsServer::udp(|_| Vec::new()).await;
    let good = DnsServer::answering(NOERROR, &[(QUERIED, TXT, strings(&["good"]))]).await;
    let found = impatient_resolver(&[&failing, &silent, &good]).lookup_txt("a.test").await;
    assert_eq!(found.unwrap(), ["good"]);
    assert_eq!((failing.queries(), silent.queries(), good.queries()), (1, 1, 1));
}

#[tokio::test]
async fn a_silent_server_times_out() {
    let silent = DnsServer::udp(|_| Vec::new()).await;
    let (resolver, start) = (impatient_resolver(&[&silent]), Instant::now());
    let error = resolver.lookup_txt("a.test").await.unwrap_err();
    assert!(error.contains("did not answer within 40ms"), "{error}");
    assert!(start.elapsed() >= resolver.timeout * ROUNDS as u32);
    assert_eq!(silent.queries(), ROUNDS, "one packet per round");
}

#[tokio::test]
async fn a_truncated_answer_is_fetched_over_tcp() {
    let long = "x".repeat(200);
    let data = strings(&[long.as_str(); 20]);
    let over_udp = |query: &[u8]| vec![response(query, TRUNCATED, &[(QUERIED, TXT, strings(&["a part"]))])];
    let server =
        DnsServer::start(over_udp, move |query| response(query, NOERROR, &[(QUERIED, TXT, data.clone())])).await;
    assert_eq!(lookup_txt(&server).await.unwrap(), ["x".repeat(4_000)]);
}

#[tokio::test]
async fn an_answer_that_is_cut_within_a_record_is_fetched_over_tcp() {
    let over_udp = |query: &[u8]| {
        let whole = response(query, TRUNCATED, &[(QUERIED, TXT, strings(&["a part"]))]);
        vec![whole[..whole.len() - 3].to_vec()]
    };
    let server =
        DnsServer::start(over_udp, |query| response(query, NOERROR, &[(QUERIED, TXT, strings(&["all"]))])).await;
    assert_eq!(lookup_txt(&server).await.unwrap(), ["all"]);
}

#[tokio::test]
async fn a_failure_over_tcp_is_never_a_missing_record() {
    let truncated = |query: &[u8]| vec![response(query, TRUNCATED, &[])];
    let over_tcp: [fn(&[u8]) -> Vec<u8>; 6] = [
        |_| Vec::new(), // closes the connection
        |query| response(query, TRUNCATED, &[]),
        |query| response(query, SERVFAIL, &[]),
        |query| response(query, NOERROR, &[])[..20].to_vec(),
        |query| {
            let mut bytes = response(query, NOERROR, &[]);
            bytes[1] ^= 1; // another id
            bytes
        },
        |query| {
            let mut bytes = response(query, NOERROR, &[]);
            bytes[13] = b'b'; // the question is b.test
            bytes
        },
    ];
    for (case, over_tcp) in over_tcp.into_iter().enumerate() {
        let server = DnsServer::start(truncated, over_tcp).await;
        let found = impatient_resolver(&[&server]).lookup_txt("a.test").await;
        assert!(found.is_err(), "case {case}: {found:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_silent_over_tcp_times_out() {
    let (tcp, udp) = bind_both().await;
    let server = udp.local_addr().unwrap();
    let udp = tokio::spawn(async move {
        let mut bytes = [0; 600];
        loop {
            let (length, from) = udp.recv_from(&mut bytes).await.unwrap();
            udp.send_to(&response(&bytes[..length], TRUNCATED, &[]), from).await.unwrap();
        }
    });
    let resolver = Resolver { timeout: Duration::from_millis(40), ..Resolver::with_servers(vec![server]) };
    let error = resolver.lookup_txt("a.test").await.unwrap_err();
    assert!(error.contains("did not answer within 40ms"), "{error}");
    drop(tcp); // it was open and nobody accepted a connection
    udp.abort();
}

#[tokio::test]
async fn forged_responses_are_ignored() {
    let server = DnsServer::udp(|query| {
        let forged = response(query, NOERROR, &[(QUERIED, TXT, strings(&["forged"]))]);
        let (mut other_id, mut other_name, mut other_type) = (forged.clone(), forged.clone(), forged);
        other_id[1] ^= 1;
        other_name[13] = b'b';
        other_type[12 + labels("a.test").len() + 1] = MX as u8;
        let good = response(query, NOERROR, &[(QUERIED, TXT, strings(&["good"]))]);
        vec![other_id, other_name, other_type, b"noise".to_vec(), good]
    })
    .await;
    assert_eq!(lookup_txt(&server).await.unwrap(), ["good"]);
    assert_eq!(server.queries(), 1);
}

#[tokio::test]
async fn a_query_that_comes_back_is_not_an_answer() {
    let echo = DnsServer::start(|query| vec![query.to_vec()], <[u8]>::to_vec).await;
    impatient_resolver(&[&echo]).lookup_txt("a.test").await.unwrap_err();
}

#[tokio::test]
async fn broken_responses_are_never_a_missing_record() {
    let record = [(QUERIED, TXT, strings(&["hello"]))];
    let whole = {
        let query = [vec![0; 12], labels("a.test"), vec![0, 16, 0, 1], vec![0; OPT_BYTES]].concat();
        response(&query, NOERROR, &record).len()
    };
    let mut lookups = JoinSet::new();
    for end in 0..whole {
        lookups.spawn(async move {
            let cut = move |query: &[u8]| {
                let whole = response(query, NOERROR, &[(QUERIED, TXT, strings(&["hello"]))]);
                whole[..end].to_vec()
            };
            let server = DnsServer::start(move |query| vec![cut(query)], cut).await;
            (end, impatient_resolver(&[&server]).lookup_txt("a.test").await)
        });
    }
    // An owner that points to itself.
    let in_a_circle = DnsServer::answering(NOERROR, &[(&[0xc0, 24], TXT, strings(&["x"]))]).await;
    impatient_resolver(&[&in_a_circle]).lookup_txt("a.test").await.unwrap_err();
    while let Some(lookup) = lookups.join_next().await {
        let (end, found) = lookup.unwrap();
        assert!(found.is_err(), "cut at {end}: {found:?}");
    }
}

#[tokio::test]
async fn any_wrong_byte_ends_in_an_answer_or_an_error() {
    let mut lookups = JoinSet::new();
    for byte in [0, 1, 0x3f, 0x40, 0xc0, 0xff] {
        for at in 2..44 {
            lookups.spawn(async move {
                let wrong = move |query: &[u8]| {
                    let mut bytes = response(query, NOERROR, &[(QUERIED, TXT, strings(&["hello"]))]);
                    bytes[at] = byte;
                    bytes
                };
                let server = DnsServer::start(move |query| vec![wrong(query)], wrong).await;
                drop(impatient_resolver(&[&server]).lookup_txt("a.test").await);
            });
        }
    }
    while let Some(lookup) = lookups.join_next().await {
        lookup.unwrap();
    }
}

#[tokio::test]
async fn only_the_first_records_of_an_answer_are_read() {
    let over_udp = |query: &[u8]| vec![response(query, TRUNCATED, &[])];
    let records = vec![(QUERIED, TXT, strings(&["x"])); MAX_RECORDS + 1];
    let server = DnsServer::start(over_udp, move |query| response(query, NOERROR, &records)).await;
    assert_eq!(lookup_txt(&server).await.unwrap().len(), MAX_RECORDS);
}

#[tokio::test]
async fn an_answer_is_not_cached() {
    let asked = AtomicUsize::new(0);
    let server = DnsServer::udp(move |query| {
        let text = asked.fetch_add(1, Ordering::Relaxed).to_string();
        vec![response(query, NOERROR, &[(QUERIED, TXT, strings(&[&text]))])]
    })
    .await;
    let resolver = resolver(&[&server]);
    assert_eq!(resolver.lookup_txt("a.test").await.unwrap(), ["0"]);
    assert_eq!(resolver.lookup_txt("a.test").await.unwrap(), ["1"]);
}

#[tokio::test]
async fn special_names_are_asked_like_any_other() {
    let server = DnsServer::answering(NOERROR, &[(QUERIED, TXT, strings(&["x"]))]).await;
    for name in ["localhost", "a.invalid", "single", "a.test."] {
        assert_eq!(resolver(&[&server]).lookup_txt(name).await.unwrap(), ["x"], "{name}");
    }
    assert_eq!(server.queries(), 4, "no search domain is appended");
}

#[tokio::test]
async fn only_domain_names_are_asked_for() {
    let server = DnsServer::answering(NOERROR, &[]).await;
    for bad in ["", ".", "a..b", &"a".repeat(64), &"a.".repeat(200), "ü.test"] {
        let error = resolver(&[&server]).lookup_txt(bad).await.unwrap_err();
        assert!(error.contains("is not a domain name"), "{bad}: {error}");
    }
    assert_eq!(server.queries(), 0);
}

#[tokio::test]
async fn a_lookup_without_servers_fails() {
    let error = Resolver::with_servers(Vec::new()).lookup_txt("a.test").await.unwrap_err();
    assert_eq!(error, "no DNS server is configured");
}

#[test]
fn the_servers_of_resolv_conf_are_read() {
    let text = "# comment\nsearch x.test\nnameserver 9.9.9.9\n nameserver\t::1\nnameserver nonsense\n";
    assert_eq!(parse_resolv_conf(text), ["9.9.9.9:53".parse().unwrap(), "[::1]:53".parse().unwrap()]);
    assert_eq!(parse_resolv_conf(""), ["127.0.0.1:53".parse().unwrap()]);
    let many: Vec<String> = (1..=5).map(|n| format!("nameserver 10.0.0.{n}\n")).collect();
    assert_eq!(parse_resolv_conf(&many.concat()).len(), MAX_SERVERS);
}

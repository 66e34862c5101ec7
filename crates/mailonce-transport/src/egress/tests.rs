//! URLs and addresses that must never be dialled. A listener counts the connections.

use super::*;
use std::{
    net::Ipv4Addr,
    sync::atomic::{AtomicUsize, Ordering},
};
use tokio::net::TcpListener;

const PATIENCE: Duration = Duration::from_secs(5);

/// A resolver that returns these answers in order, and the last one forever.
struct ScriptedLookup {
    answers: Vec<Vec<IpAddr>>,
    lookups: AtomicUsize,
}

impl ScriptedLookup {
    fn new(lines: &[&[&str]]) -> Arc<Self> {
        let line = |line: &&[&str]| line.iter().map(|ip| ip.parse().unwrap()).collect();
        Arc::new(Self { answers: lines.iter().map(line).collect(), lookups: AtomicUsize::new(0) })
    }
}

#[async_trait]
impl AddressLookup for ScriptedLookup {
    async fn lookup(&self, _: &str) -> Result<Vec<IpAddr>, String> {
        let at = self.lookups.fetch_add(1, Ordering::SeqCst);
        self.answers.get(at.min(self.answers.len().saturating_sub(1))).cloned().ok_or_else(|| "no such name".into())
    }
}

/// A listener that counts its connections.
struct CountingListener {
    port: u16,
    connections: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl CountingListener {
    async fn at(address: &str) -> Self {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let (port, seen) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { port, connections: seen, task }
    }

    /// The number of connections so far. One connection of its own, which is not counted, flushes the accept queue.
    async fn connections(&self) -> usize {
        let before = self.connections.load(Ordering::SeqCst);
        let own = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await.unwrap();
        while self.connections.load(Ordering::SeqCst) == before {
            tokio::task::yield_now().await;
        }
        drop(own);
        self.connections.fetch_sub(1, Ordering::SeqCst) - 1
    }
}

impl Drop for CountingListener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// URLs that must be rejected: IP addresses in every spelling, internal names, credentials, other schemes.
const SPELLINGS: [&str; 44] = [
    "https://127.0.0.1:PORT/",
    "https://127.1:PORT/",
    "https://127.0.1:PORT/",
    "https://0177.0.0.1:PORT/",
    "https://0177.0.0.01:PORT/",
    "https://0x7f.0.0.1:PORT/",
    "https://0x7f000001:PORT/",
    "https://0X7F.1:PORT/",
    "https://2130706433:PORT/",
    "https://017700000001:PORT/",
    "https://127.0.0.1.:PORT/",
    "https://%31%32%37.0.0.1:PORT/",
    "https://127.0.0.%31:PORT/",
    "https://①②⑦.⓪.⓪.①:PORT/",
    "https://127。0。0。1:PORT/",
    "https://0:PORT/",
    "https://0.0.0.0:PORT/",
    "https://[::1]:PORT/",
    "https://[0:0:0:0:0:0:0:1]:PORT/",
    "https://[::]:PORT/",
    "https://[::ffff:127.0.0.1]:PORT/",
    "https://[::ffff:7f00:1]:PORT/",
    "https://[::127.0.0.1]:PORT/",
    "https://[64:ff9b::127.0.0.1]:PORT/",
    "https://[2002:7f00:1::]:PORT/",
    "https://[fe80::1]:PORT/",
    "https://[fe80::1%25lo]:PORT/",
    "https://169.254.169.254/latest/meta-data/",
    "https://2852039166/",
    "https://[fd00:ec2::254]/",
    "https://10.0.0.1:PORT/",
    "https://8.8.8.8/",
    "https://localhost:PORT/",
    "https://LOCALHOST:PORT/",
    "https://localhost.:PORT/",
    "https://x.localhost:PORT/",
    "https://printer/",
    "https://metadata.google.internal/",
    "https://db.svc.cluster.local/",
    "https://user@hooks.example.com:PORT/",
    "https://a:b@127.0.0.1:PORT/",
    "https://hooks.example.com\\@127.0.0.1:PORT/",
    "http://hooks.example.com:PORT/",
    "ftp://hooks.example.com/",
];

/// DNS answers that must be rejected for a name that looks public.
const ANSWERS: [&[&str]; 46] = [
    &["127.0.0.1"],
    &["127.8.9.1"],
    &["0.0.0.0"],
    &["0.1.2.3"],
    &["10.0.0.1"],
    &["172.16.0.1"],
    &["172.31.255.255"],
    &["192.168.1.1"],
    &["169.254.169.254"],
    &["169.254.170.2"],
    &["100.64.0.1"],
    &["100.100.100.200"],
    &["100.127.255.255"],
    &["168.63.129.16"],
    &["192.0.0.192"],
    &["192.0.0.8"],
    &["192.0.2.1"],
    &["192.88.99.1"],
    &["198.18.0.1"],
    &["198.19.255.255"],
    &["198.51.100.7"],
    &["203.0.113.7"],
    &["224.0.0.1"],
    &["239.255.255.250"],
    &["240.0.0.1"],
    &["255.255.255.255"],
    &["::"],
    &["::1"],
    &["::ffff:127.0.0.1"],
    &["::ffff:8.8.8.8"],
    &["::ffff:0:127.0.0.1"],
    &["::8.8.8.8"],
    &["64:ff9b::7f00:1"],
    &["64:ff9b:1::a00:1"],
    &["2002:7f00:1::1"],
    &["2001::1"],
    &["2001:db8::1"],
    &["3fff::1"],
    &["2600:1f18::5efe:7f00:1"],
    &["2600:1f18::200:5efe:a00:1"],
    &["fc00::1"],
    &["fd00:ec2::254"],
    &["fe80::1"],
    &["fec0::1"],
    &["ff02::1"],
    // One forbidden address rejects the whole answer.
    &["93.184.216.34", "2606:2800:220:1::1", "127.0.0.1"],
];

#[tokio::test]
async fn no_url_spelling_and_no_dns_answer_reaches_an_internal_address() {
    let listener = CountingListener::at("0.0.0.0").await;
    let policy = EgressPolicy::new(Vec::new(), false);
    for spelling in SPELLINGS {
        let url = spelling.replace("PORT", &listener.port.to_string());
        assert!(policy.check_url(&url).is_err(), "{url}");
        // Dialling applies the same checks, even if the caller skipped `check_url`.
        if let Ok(target) = TargetUrl::parse(&url) {
            let lookup = ScriptedLookup::new(&[&["127.0.0.1"]]);
            let result = policy.clone().with_lookup(lookup).open_tcp(&target, PATIENCE).await;
            assert!(matches!(result, Err(DialError::Forbidden(_))), "{url} {result:?}");
        }
    }
    for answers in ANSWERS {
        let policy = policy.clone().with_lookup(ScriptedLookup::new(&[answers]));
        let target = policy.check_url(&format!("https://hooks.example.com:{}/", listener.port)).unwrap();
        let result = policy.open_tcp(&target, PATIENCE).await;
        assert!(matches!(result, Err(DialError::Forbidden(_))), "{answers:?} {result:?}");
    }
    assert_eq!(listener.connections().await, 0);
}

#[tokio::test]
async fn a_rebinding_name_is_resolved_once_per_connection() {
    let (allowed, inside) = (CountingListener::at("127.0.0.2").await, CountingListener::at("127.0.0.1").await);
    let (allowed_connections, allowed_port) = (Arc::clone(&allowed.connections), allowed.port);
    let lookup = ScriptedLookup::new(&[&["127.0.0.2"], &["127.0.0.1"], &["127.0.0.2", "127.0.0.1"], &["127.0.0.2"]]);
    let policy = EgressPolicy::new(vec!["127.0.0.2/32".parse().unwrap()], false).with_lookup(lookup.clone());
    for port in [allowed_port, inside.port] {
        let target = policy.check_url(&format!("https://hooks.example.com:{port}/")).unwrap();
        lookup.lookups.store(0, Ordering::SeqCst);
        let first = policy.open_tcp(&target, PATIENCE).await;
        assert_eq!(first.is_ok(), port == allowed_port, "the checked answer is the one that is dialled: {first:?}");
        assert_eq!(lookup.lookups.load(Ordering::SeqCst), 1, "one look-up for one connection");
        for _ in 0..2 {
            let answer = policy.open_tcp(&target, PATIENCE).await;
            assert!(matches!(answer, Err(DialError::Forbidden(_))), "{answer:?}");
        }
        let again = policy.open_tcp(&target, PATIENCE).await;
        assert_eq!(again.is_ok(), port == allowed_port);
    }
    while allowed_connections.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!((allowed_connections.load(Ordering::SeqCst), inside.connections().await), (2, 0));
}

#[tokio::test]
async fn a_refused_internal_address_names_the_setting_that_permits_it() {
    let hint = "the operator of the server can permit its network with the setting `webhooks.allow`";
    let policy = EgressPolicy::new(Vec::new(), false).with_lookup(ScriptedLookup::new(&[&["10.0.0.1"]]));
    for url in ["https://127.0.0.1/", "https://10.0.0.1/", "https://localhost/"] {
        let refusal = policy.check_url(url).unwrap_err();
        assert!(refusal.contains(hint), "{url}: {refusal}");
    }
    let target = policy.check_url("https://hooks.example.com/").unwrap();
    let Err(DialError::Forbidden(refusal)) = policy.open_tcp(&target, PATIENCE).await else { panic!("not refused") };
    assert!(refusal.contains(hint), "{refusal}");
    let refusal = policy.check_url("https://user@hooks.example.com/").unwrap_err();
    assert!(!refusal.contains("webhooks.allow"), "the setting does not permit credentials: {refusal}");
}

#[tokio::test]
async fn a_dns_error_opens_no_connection() {
    let policy = EgressPolicy::new(Vec::new(), true).with_lookup(ScriptedLookup::new(&[]));
    let target = policy.check_url("https://hooks.example.com/").unwrap();
    assert!(matches!(policy.open_tcp(&target, PATIENCE).await, Err(DialError::Unresolved { .. })));
    let empty_answer = policy.with_lookup(ScriptedLookup::new(&[&[]]));
    assert!(matches!(empty_answer.open_tcp(&target, PATIENCE).await, Err(DialError::Unresolved { .. })));
}

#[tokio::test]
async fn dev_mode_reaches_loopback_and_no_other_internal_address() {
    let listener = CountingListener::at("0.0.0.0").await;
    let dev = EgressPolicy::new(Vec::new(), true);
    for host in ["127.0.0.1", "localhost", "x.localhost"] {
        let policy = dev.clone().with_lookup(ScriptedLookup::new(&[&["127.0.0.1"]]));
        let target = policy.check_url(&format!("http://{host}:{}/hook", listener.port)).unwrap();
        assert!(policy.open_tcp(&target, PATIENCE).await.is_ok(), "{host}");
    }
    for url in ["http://169.254.169.254/", "http://10.0.0.1/", "http://[fe80::1]/", "http://2130706433/", "http://db/"]
    {
        assert!(dev.check_url(url).is_err(), "{url}");
    }
    for answer in ["10.0.0.1", "169.254.169.254", "192.168.0.1", "fd00::1", "100.64.0.1"] {
        let policy = dev.clone().with_lookup(ScriptedLookup::new(&[&[answer]]));
        let target = policy.check_url("http://hooks.example.com/").unwrap();
        assert!(matches!(policy.open_tcp(&target, PATIENCE).await, Err(DialError::Forbidden(_))), "{answer}");
    }
}

#[tokio::test]
async fn an_allowed_block_permits_only_its_addresses() {
    let listener = CountingListener::at("0.0.0.0").await;
    let policy = EgressPolicy::new(vec!["127.0.0.0/8".parse().unwrap()], false);
    for url in
        ["http://127.0.0.1:PORT/", "https://127.0.0.1:PORT/", "http://hooks.corp:PORT/", "http://a.example:PORT/"]
    {
        let policy = policy.clone().with_lookup(ScriptedLookup::new(&[&["127.0.0.1"]]));
        let target = policy.check_url(&url.replace("PORT", &listener.port.to_string())).unwrap();
        assert!(policy.open_tcp(&target, PATIENCE).await.is_ok(), "{url}");
    }
    for (url, answer) in [
        ("http://hooks.corp/", "10.0.0.1"),
        ("https://hooks.corp/", "93.184.216.34"),
        ("http://hooks.example.com/", "93.184.216.34"),
        ("https://hooks.example.com/", "::1"),
    ] {
        let policy = policy.clone().with_lookup(ScriptedLookup::new(&[&[answer]]));
        let target = policy.check_url(url).unwrap();
        assert!(matches!(policy.open_tcp(&target, PATIENCE).await, Err(DialError::Forbidden(_))), "{url} {answer}");
    }
    assert!(policy.check_url("http://0x7f.1/").is_err(), "a non-canonical spelling stays rejected");
}

#[test]
fn public_addresses_are_allowed() {
    for ip in ["8.8.8.8", "93.184.216.34", "172.32.0.1", "100.128.0.1", "2600:1f18::1", "2a05:d018::1"] {
        assert!(is_public(ip.parse().unwrap()), "{ip}");
    }
    let policy = EgressPolicy::new(Vec::new(), false);
    for url in ["https://hooks.example.com/in", "https://hooks.example.com:8443/?q=1", "https://xn--bcher-kva.example/"]
    {
        assert!(policy.check_url(url).is_ok(), "{url}");
    }
}

//! Addresses that must never be dialled, with a listener that would notice.

use super::*;
use std::{
    net::Ipv4Addr,
    sync::atomic::{AtomicUsize, Ordering},
};
use tokio::net::TcpListener;

const PATIENCE: Duration = Duration::from_secs(5);

/// A name server that gives these answers, one after the other; the last one for good.
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

/// Counts connections at every address of this machine.
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

    /// How many came, once everything that was dialled before must have been seen.
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

/// Addresses that name an address, in every spelling, or that say what nobody should say.
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

/// What a name server may answer for a name that looks good.
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
    // One bad among good ones is bad.
    &["93.184.216.34", "2606:2800:220:1::1", "127.0.0.1"],
];

#[tokio::test]
async fn no_spelling_and_no_answer_leads_inside() {
    let counted = CountingListener::at("0.0.0.0").await;
    let reach = EgressPolicy::new(Vec::new(), false);
    for spelling in SPELLINGS {
        let url = spelling.replace("PORT", &counted.port.to_string());
        assert!(reach.check_url(&url).is_err(), "{url}");
        // Whoever forgets to ask first meets the same guard at the door.
        if let Ok(place) = TargetUrl::parse(&url) {
            let names = ScriptedLookup::new(&[&["127.0.0.1"]]);
            let answer = reach.clone().with_lookup(names).open_tcp(&place, PATIENCE).await;
            assert!(matches!(answer, Err(DialError::Forbidden(_))), "{url} {answer:?}");
        }
    }
    for answers in ANSWERS {
        let reach = reach.clone().with_lookup(ScriptedLookup::new(&[answers]));
        let place = reach.check_url(&format!("https://hooks.example.com:{}/", counted.port)).unwrap();
        let answer = reach.open_tcp(&place, PATIENCE).await;
        assert!(matches!(answer, Err(DialError::Forbidden(_))), "{answers:?} {answer:?}");
    }
    assert_eq!(counted.connections().await, 0);
}

#[tokio::test]
async fn a_name_that_changes_its_mind_is_asked_once_for_each_connection() {
    let (good, inside) = (CountingListener::at("127.0.0.2").await, CountingListener::at("127.0.0.1").await);
    let (seen, own) = (Arc::clone(&good.connections), good.port);
    let names = ScriptedLookup::new(&[&["127.0.0.2"], &["127.0.0.1"], &["127.0.0.2", "127.0.0.1"], &["127.0.0.2"]]);
    let reach = EgressPolicy::new(vec!["127.0.0.2/32".parse().unwrap()], false).with_lookup(names.clone());
    for port in [own, inside.port] {
        let place = reach.check_url(&format!("https://hooks.example.com:{port}/")).unwrap();
        names.lookups.store(0, Ordering::SeqCst);
        let first = reach.open_tcp(&place, PATIENCE).await;
        assert_eq!(first.is_ok(), port == own, "the first answer was good, and is the one that is dialled: {first:?}");
        assert_eq!(names.lookups.load(Ordering::SeqCst), 1, "one look-up for one connection");
        for _ in 0..2 {
            let answer = reach.open_tcp(&place, PATIENCE).await;
            assert!(matches!(answer, Err(DialError::Forbidden(_))), "{answer:?}");
        }
        let again = reach.open_tcp(&place, PATIENCE).await;
        assert_eq!(again.is_ok(), port == own);
    }
    while seen.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!((seen.load(Ordering::SeqCst), inside.connections().await), (2, 0));
}

#[tokio::test]
async fn an_error_of_the_name_server_opens_nothing() {
    let reach = EgressPolicy::new(Vec::new(), true).with_lookup(ScriptedLookup::new(&[]));
    let place = reach.check_url("https://hooks.example.com/").unwrap();
    assert!(matches!(reach.open_tcp(&place, PATIENCE).await, Err(DialError::Unresolved { .. })));
    let nobody = reach.with_lookup(ScriptedLookup::new(&[&[]]));
    assert!(matches!(nobody.open_tcp(&place, PATIENCE).await, Err(DialError::Unresolved { .. })));
}

#[tokio::test]
async fn dev_reaches_this_machine_and_nothing_else_inside() {
    let counted = CountingListener::at("0.0.0.0").await;
    let dev = EgressPolicy::new(Vec::new(), true);
    for host in ["127.0.0.1", "localhost", "x.localhost"] {
        let reach = dev.clone().with_lookup(ScriptedLookup::new(&[&["127.0.0.1"]]));
        let place = reach.check_url(&format!("http://{host}:{}/hook", counted.port)).unwrap();
        assert!(reach.open_tcp(&place, PATIENCE).await.is_ok(), "{host}");
    }
    for url in ["http://169.254.169.254/", "http://10.0.0.1/", "http://[fe80::1]/", "http://2130706433/", "http://db/"]
    {
        assert!(dev.check_url(url).is_err(), "{url}");
    }
    for answer in ["10.0.0.1", "169.254.169.254", "192.168.0.1", "fd00::1", "100.64.0.1"] {
        let reach = dev.clone().with_lookup(ScriptedLookup::new(&[&[answer]]));
        let place = reach.check_url("http://hooks.example.com/").unwrap();
        assert!(matches!(reach.open_tcp(&place, PATIENCE).await, Err(DialError::Forbidden(_))), "{answer}");
    }
}

#[tokio::test]
async fn the_operator_may_allow_a_block_and_nothing_beside_it() {
    let counted = CountingListener::at("0.0.0.0").await;
    let reach = EgressPolicy::new(vec!["127.0.0.0/8".parse().unwrap()], false);
    for url in
        ["http://127.0.0.1:PORT/", "https://127.0.0.1:PORT/", "http://hooks.corp:PORT/", "http://a.example:PORT/"]
    {
        let reach = reach.clone().with_lookup(ScriptedLookup::new(&[&["127.0.0.1"]]));
        let place = reach.check_url(&url.replace("PORT", &counted.port.to_string())).unwrap();
        assert!(reach.open_tcp(&place, PATIENCE).await.is_ok(), "{url}");
    }
    for (url, answer) in [
        ("http://hooks.corp/", "10.0.0.1"),
        ("https://hooks.corp/", "93.184.216.34"),
        ("http://hooks.example.com/", "93.184.216.34"),
        ("https://hooks.example.com/", "::1"),
    ] {
        let reach = reach.clone().with_lookup(ScriptedLookup::new(&[&[answer]]));
        let place = reach.check_url(url).unwrap();
        assert!(matches!(reach.open_tcp(&place, PATIENCE).await, Err(DialError::Forbidden(_))), "{url} {answer}");
    }
    assert!(reach.check_url("http://0x7f.1/").is_err(), "an unusual spelling stays one");
}

#[test]
fn good_addresses_are_good() {
    for ip in ["8.8.8.8", "93.184.216.34", "172.32.0.1", "100.128.0.1", "2600:1f18::1", "2a05:d018::1"] {
        assert!(is_public(ip.parse().unwrap()), "{ip}");
    }
    let reach = EgressPolicy::new(Vec::new(), false);
    for url in ["https://hooks.example.com/in", "https://hooks.example.com:8443/?q=1", "https://xn--bcher-kva.example/"]
    {
        assert!(reach.check_url(url).is_ok(), "{url}");
    }
}

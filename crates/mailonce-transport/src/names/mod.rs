//! The domain name system, as far as a domain's proof needs it: TXT and MX records, asked of the machine's own
//! resolvers.
//!
//! Each question has an id and a port of its own that nobody can foresee, and what answers another question is not
//! listened to. UDP first, TCP when the answer does not fit.

mod message;

use async_trait::async_trait;
use mailonce_core::ports::network::DnsResolver;
use message::Answer;
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, UdpSocket},
    time::timeout,
};

/// How long one server may take for one answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often every server is asked.
const ROUNDS: usize = 2;
/// Servers of the list that are asked.
const SERVERS: usize = 3;
/// The largest answer by UDP that is read.
const UDP_BYTES: usize = 4 * 1024;

/// Asks resolvers.
#[derive(Clone, Debug)]
pub struct Resolver {
    servers: Servers,
    patience: Duration,
}

#[derive(Clone, Debug)]
enum Servers {
    /// Named in a file that may change.
    In(PathBuf),
    At(Vec<SocketAddr>),
}

impl Resolver {
    /// Asks the resolvers that this machine is configured with.
    pub fn system() -> Self {
        Self { servers: Servers::In("/etc/resolv.conf".into()), patience: PATIENCE }
    }

    /// Asks these servers.
    pub fn at(servers: Vec<SocketAddr>) -> Self {
        Self { servers: Servers::At(servers), patience: PATIENCE }
    }

    /// The servers that are asked.
    pub(crate) fn servers(&self) -> Vec<SocketAddr> {
        match &self.servers {
            Servers::At(servers) => servers.clone(),
            // Without the file the resolver of this machine is meant, as resolv.conf(5) says.
            Servers::In(path) => listed(&std::fs::read_to_string(path).unwrap_or_default()),
        }
    }

    /// The MX records of a name, each as its preference and its host. An error means that nobody could be asked.
    pub async fn mx(&self, name: &str) -> Result<Vec<String>, String> {
        self.look(name, message::MX).await
    }

    async fn look(&self, name: &str, kind: u16) -> Result<Vec<String>, String> {
        let servers = self.servers();
        let mut why = "no resolver is configured".to_owned();
        for server in servers.iter().cycle().take(servers.len() * ROUNDS) {
            match self.ask(*server, name, kind).await {
                Ok(texts) => return Ok(texts),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    async fn ask(&self, server: SocketAddr, name: &str, kind: u16) -> Result<Vec<String>, String> {
        let told = |error: io::Error| format!("{server}: {error}");
        let late = |_elapsed| format!("{server} did not answer in time");
        let mut id = [0; 2];
        getrandom::fill(&mut id).map_err(|error| error.to_string())?;
        let id = u16::from_be_bytes(id);
        let question = message::question(id, name, kind).ok_or_else(|| format!("{name} is no name"))?;
        let mut answer =
            timeout(self.patience, by_udp(server, &question, id, (name, kind))).await.map_err(late)?.map_err(told)?;
        if answer == Answer::Truncated {
            let asked = timeout(self.patience, by_tcp(server, &question, id, (name, kind))).await;
            answer = asked.map_err(late)?.map_err(told)?;
        }
        match answer {
            Answer::Texts(texts) => Ok(texts),
            Answer::Truncated => Err(format!("{server} cuts its answers short")),
            Answer::Failed(code) => Err(format!("{server} could not tell (code {code})")),
        }
    }
}

#[async_trait]
impl DnsResolver for Resolver {
    async fn lookup_txt(&self, name: &str) -> Result<Vec<String>, String> {
        self.look(name, message::TXT).await
    }
}

/// The servers that a resolv.conf names.
fn listed(text: &str) -> Vec<SocketAddr> {
    let named = |line: &str| {
        let mut words = line.split_whitespace();
        let address = words.next().filter(|word| *word == "nameserver").and_then(|_| words.next())?;
        address.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, 53))
    };
    let found: Vec<_> = text.lines().filter_map(named).take(SERVERS).collect();
    if found.is_empty() { vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 53))] } else { found }
}

/// By UDP, on a port of its own. Only what comes from the server and answers the question counts.
async fn by_udp(server: SocketAddr, question: &[u8], id: u16, (name, kind): (&str, u16)) -> io::Result<Answer> {
    let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(question).await?;
    let mut bytes = vec![0; UDP_BYTES];
    loop {
        let length = socket.recv(&mut bytes).await?;
        if let Some(answer) = bytes.get(..length).and_then(|bytes| message::answer(bytes, id, name, kind)) {
            return Ok(answer);
        }
    }
}

/// By TCP, where each message has its length in front.
async fn by_tcp(server: SocketAddr, question: &[u8], id: u16, (name, kind): (&str, u16)) -> io::Result<Answer> {
    let mut stream = TcpStream::connect(server).await?;
    let length = (question.len() as u16).to_be_bytes();
    stream.write_all(&[length.as_slice(), question].concat()).await?;
    let length = stream.read_u16().await?;
    let mut bytes = vec![0; usize::from(length)];
    stream.read_exact(&mut bytes).await?;
    let broken = || io::Error::new(io::ErrorKind::InvalidData, "not an answer");
    message::answer(&bytes, id, name, kind).ok_or_else(broken)
}

#[cfg(test)]
mod tests {
    use super::{
        message::tests::{ASKED, reply, strings},
        *,
    };
    use tokio::net::TcpListener;

    const TXT: u16 = 16;

    /// A server on a port that is free for both, which answers each question by UDP as told.
    async fn server(answers: impl Fn(&[u8]) -> Vec<Vec<u8>> + Send + 'static) -> (SocketAddr, UdpPort) {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let at = socket.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let mut bytes = [0; 600];
            loop {
                let (length, from) = socket.recv_from(&mut bytes).await.unwrap();
                for answer in answers(&bytes[..length]) {
                    socket.send_to(&answer, from).await.unwrap();
                }
            }
        });
        (at, UdpPort(task))
    }

    /// Ends the server with the test.
    struct UdpPort(tokio::task::JoinHandle<()>);

    impl Drop for UdpPort {
        fn drop(&mut self) {
            self.0.abort();
        }
    }

    fn at(servers: &[SocketAddr]) -> Resolver {
        Resolver { patience: Duration::from_millis(500), ..Resolver::at(servers.to_vec()) }
    }

    #[tokio::test]
    async fn forged_answers_are_not_listened_to() {
        let (at_udp, _server) = server(|question| {
            let mut forged = reply(question, 0x8180, &[(ASKED, TXT, strings(&["forged"]))]);
            forged[1] ^= 1;
            vec![forged, b"noise".to_vec(), reply(question, 0x8180, &[(ASKED, TXT, strings(&["true"]))])]
        })
        .await;
        assert_eq!(at(&[at_udp]).lookup_txt("_mailonce.example.com").await.unwrap(), ["true"]);
    }

    #[tokio::test]
    async fn a_server_in_trouble_is_followed_by_the_next() {
        let (broken, _one) = server(|question| vec![reply(question, 0x8182, &[])]).await;
        let (good, _two) = server(|question| vec![reply(question, 0x8183, &[])]).await;
        assert_eq!(at(&[broken, good]).lookup_txt("a.test").await.unwrap(), Vec::<String>::new());
        assert!(at(&[broken]).lookup_txt("a.test").await.unwrap_err().contains("code 2"));
    }

    #[tokio::test]
    async fn a_silent_server_is_waited_for_in_bounds() {
        let (silent, _server) = server(|_| Vec::new()).await;
        let resolver = Resolver { patience: Duration::from_millis(20), ..Resolver::at(vec![silent]) };
        assert!(resolver.lookup_txt("a.test").await.unwrap_err().contains("in time"));
    }

    #[tokio::test]
    async fn an_answer_that_does_not_fit_is_asked_for_by_tcp() {
        // The same port for both: the second is taken while the first is held.
        let (tcp, at_both) = loop {
            let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let at = tcp.local_addr().unwrap();
            if UdpSocket::bind(at).await.is_ok() {
                break (tcp, at);
            }
        };
        let udp = UdpSocket::bind(at_both).await.unwrap();
        let long = "x".repeat(200);
        let data = strings(&[long.as_str(); 20]);
        tokio::spawn(async move {
            let mut bytes = [0; 600];
            let (length, from) = udp.recv_from(&mut bytes).await.unwrap();
            udp.send_to(&reply(&bytes[..length], 0x8380, &[]), from).await.unwrap();
            let (mut stream, _) = tcp.accept().await.unwrap();
            let length = stream.read_u16().await.unwrap();
            let mut question = vec![0; usize::from(length)];
            stream.read_exact(&mut question).await.unwrap();
            let answer = reply(&question, 0x8180, &[(ASKED, TXT, data)]);
            stream.write_all(&(answer.len() as u16).to_be_bytes()).await.unwrap();
            stream.write_all(&answer).await.unwrap();
        });
        assert_eq!(at(&[at_both]).lookup_txt("a.test").await.unwrap(), ["x".repeat(4_000)]);
    }

    #[test]
    fn the_list_of_servers_is_read() {
        let text = "# comment\nsearch x.test\nnameserver 9.9.9.9\n nameserver\t::1\nnameserver nonsense\n";
        assert_eq!(listed(text), ["9.9.9.9:53".parse().unwrap(), "[::1]:53".parse().unwrap()]);
        assert_eq!(listed(""), ["127.0.0.1:53".parse().unwrap()]);
    }
}

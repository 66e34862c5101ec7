//! A guarded GET: https on its usual port, hosts of a short list, public addresses, no redirects, bounded in size and
//! time.

use async_trait::async_trait;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{Request, body::Bytes, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use mailonce_core::port::net::Fetch;
use rustls::ClientConfig;
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
    time::Duration,
};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::dial::{self, Guard};

/// The largest page.
const MOST_BYTES: usize = 64 * 1024;
/// From the first look-up to the last byte.
const PATIENCE: Duration = Duration::from_secs(5);

/// Fetches pages of a few hosts.
#[derive(Clone, Debug)]
pub struct HttpsFetch {
    hosts: Vec<String>,
    trust: Arc<ClientConfig>,
    guard: Guard,
}

impl HttpsFetch {
    /// Fetches from hosts with these endings, each of which begins with a dot.
    pub fn new(endings: &[&str]) -> Result<Self, rustls::Error> {
        Ok(Self {
            hosts: endings.iter().map(ToString::to_string).collect(),
            trust: dial::trust(&[])?,
            guard: Guard::new(is_public),
        })
    }

    /// Host and path of an address that may be fetched.
    fn parts<'a>(&self, url: &'a str) -> Option<(&'a str, &'a str)> {
        let rest = url.strip_prefix("https://")?;
        let (host, path) = rest.split_at(rest.find('/')?);
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
        let listed = self.hosts.iter().any(|ending| host.ends_with(ending.as_str()));
        let fits = host.bytes().all(plain) && path.bytes().all(|b| b.is_ascii_graphic()) && url.len() <= 2_048;
        (fits && listed).then_some((host, path))
    }

    async fn fetch(&self, host: &str, path: &str) -> Result<Vec<u8>, String> {
        let stream = dial::open(host, 443, PATIENCE, Some(&self.guard)).await.map_err(|error| error.to_string())?;
        let stream = dial::secure(stream, host, &self.trust, PATIENCE).await.map_err(|error| error.to_string())?;
        ask(stream, host, path).await
    }
}

#[async_trait]
impl Fetch for HttpsFetch {
    async fn get(&self, url: &str) -> Result<Vec<u8>, String> {
        let (host, path) = self.parts(url).ok_or("this address may not be fetched")?;
        match tokio::time::timeout(PATIENCE, self.fetch(host, path)).await {
            Ok(fetched) => fetched,
            Err(_elapsed) => Err(format!("{host} took longer than {} s", PATIENCE.as_secs())),
        }
    }
}

/// One request on a connection of its own.
async fn ask(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    host: &str,
    path: &str,
) -> Result<Vec<u8>, String> {
    let text = |error: hyper::Error| error.to_string();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(text)?;
    let request = Request::get(path).header(header::HOST, host).header(header::CONNECTION, "close");
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
    let asking = async {
        let answer = sender.send_request(request).await.map_err(text)?;
        if answer.status() != 200 {
            return Err(format!("{host} answered {}", answer.status().as_u16()));
        }
        let body = Limited::new(answer.into_body(), MOST_BYTES).collect().await.map_err(|error| error.to_string())?;
        Ok(body.to_bytes().to_vec())
    };
    // The connection is driven beside the request and ends with it.
    let driving = async {
        match connection.await {
            Ok(()) => std::future::pending::<Result<Vec<u8>, String>>().await,
            Err(error) => Err(text(error)),
        }
    };
    tokio::select! {
        answer = asking => answer,
        broken = driving => broken,
    }
}

/// Whether an address is one of the open Internet: not of this machine, a private network, or a cloud's metadata.
pub fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    let reserved = ip.is_private()
        || ip.is_loopback()
        || ip.is_link_local()
        || ip.is_multicast()
        || ip.is_broadcast()
        || ip.is_documentation()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (b == 18 || b == 19));
    !reserved
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    // Only global unicast, without the ranges in it that lead elsewhere: Teredo, documentation, 6to4.
    let [first, second, ..] = ip.segments();
    let global = first & 0xe000 == 0x2000;
    let elsewhere = (first == 0x2001 && (second < 0x200 || second == 0x0db8)) || first == 0x2002 || first == 0x3fff;
    global && !elsewhere
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    #[test]
    fn only_listed_hosts_are_fetched_by_plain_https() {
        let fetch = HttpsFetch::new(&[".amazonaws.com"]).unwrap();
        let good = "https://sns.eu-west-1.amazonaws.com/x.pem?a=b";
        assert_eq!(fetch.parts(good), Some(("sns.eu-west-1.amazonaws.com", "/x.pem?a=b")));
        for bad in [
            "http://sns.eu-west-1.amazonaws.com/x.pem",
            "https://evil.test/x.pem",
            "https://evilamazonaws.com/x.pem",
            "https://amazonaws.com.evil.test/x",
            "https://user@sns.eu-west-1.amazonaws.com/x",
            "https://sns.eu-west-1.amazonaws.com:8443/x",
            "https://sns.eu-west-1.amazonaws.com",
            "https://sns.eu-west-1.amazonaws.com/a b",
        ] {
            assert_eq!(fetch.parts(bad), None, "{bad}");
        }
    }

    #[test]
    fn private_addresses_are_not_public_in_any_spelling() {
        for text in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "2002:7f00:1::",
            "64:ff9b::7f00:1",
            "2001::1",
            "ff02::1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
        for text in ["8.8.8.8", "52.94.5.1", "2600:1f18::1", "2a05:d018::1"] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }

    /// A server that reads a request and says this.
    async fn served(says: Vec<u8>) -> Result<Vec<u8>, String> {
        let (ours, theirs): (DuplexStream, DuplexStream) = duplex(256 * 1024);
        let server = tokio::spawn(async move {
            let mut theirs = theirs;
            let mut head = [0; 1024];
            let read = theirs.read(&mut head).await.unwrap();
            theirs.write_all(&says).await.ok();
            String::from_utf8_lossy(&head[..read]).into_owned()
        });
        let answer = ask(ours, "host.test", "/page?x=y").await;
        assert!(server.await.unwrap().starts_with("GET /page?x=y HTTP/1.1\r\nhost: host.test\r\n"));
        answer
    }

    fn page(status: &str, body: &[u8]) -> Vec<u8> {
        let head =
            format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nlocation: https://evil.test/\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    }

    #[tokio::test]
    async fn a_plain_success_is_read_and_nothing_else_is() {
        assert_eq!(served(page("200 OK", b"pem")).await.unwrap(), b"pem");
        assert!(served(page("302 Found", b"")).await.unwrap_err().contains("302"));
        assert!(served(page("500 Oops", b"")).await.is_err());
        assert!(served(b"nonsense\r\n\r\n".to_vec()).await.is_err());
    }

    #[tokio::test]
    async fn a_page_over_the_limit_is_not_read() {
        assert_eq!(served(page("200 OK", &vec![7; MOST_BYTES])).await.unwrap().len(), MOST_BYTES);
        assert!(served(page("200 OK", &vec![7; MOST_BYTES + 1])).await.is_err());
    }
}

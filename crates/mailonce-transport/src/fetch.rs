//! A guarded GET: https on its usual port, hosts of a short list, public addresses, no redirects, bounded in size and
//! time.

use async_trait::async_trait;
use http_body_util::Full;
use hyper::{Request, header};
use mailonce_core::port::net::Fetch;
use rustls::ClientConfig;
use std::{sync::Arc, time::Duration};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    dial,
    exchange::exchange,
    guard::{Place, Reach},
};

/// The largest page.
const MOST_BYTES: usize = 64 * 1024;
/// From the first look-up to the last byte.
const PATIENCE: Duration = Duration::from_secs(5);

/// Fetches pages of a few hosts.
#[derive(Clone, Debug)]
pub struct HttpsFetch {
    hosts: Vec<String>,
    trust: Arc<ClientConfig>,
    reach: Reach,
}

impl HttpsFetch {
    /// Fetches from hosts with these endings, each of which begins with a dot.
    pub fn new(endings: &[&str]) -> Result<Self, rustls::Error> {
        Ok(Self {
            hosts: endings.iter().map(ToString::to_string).collect(),
            trust: dial::trust(&[])?,
            // Nothing is fetched from inside, whatever the operator allows for webhooks.
            reach: Reach::new(Vec::new(), false),
        })
    }

    /// An address that may be fetched: of a listed host, by its usual port, written plainly.
    fn listed(&self, url: &str) -> Option<Place> {
        let place = self.reach.place(url).ok()?;
        let listed = self.hosts.iter().any(|ending| place.host.ends_with(ending.as_str()));
        let plain = place.https && place.authority == place.host && url.ends_with(&place.target);
        (listed && plain).then_some(place)
    }

    async fn fetch(&self, place: &Place) -> Result<Vec<u8>, String> {
        let stream = self.reach.open(place, PATIENCE).await.map_err(|error| error.to_string())?;
        let stream =
            dial::secure(stream, &place.host, &self.trust, PATIENCE).await.map_err(|error| error.to_string())?;
        ask(stream, &place.host, &place.target).await
    }
}

#[async_trait]
impl Fetch for HttpsFetch {
    async fn get(&self, url: &str) -> Result<Vec<u8>, String> {
        let place = self.listed(url).ok_or("this address may not be fetched")?;
        match tokio::time::timeout(PATIENCE, self.fetch(&place)).await {
            Ok(fetched) => fetched,
            Err(_elapsed) => Err(format!("{} took longer than {} s", place.host, PATIENCE.as_secs())),
        }
    }
}

/// One page over a connection of its own.
async fn ask(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    host: &str,
    path: &str,
) -> Result<Vec<u8>, String> {
    let request = Request::get(path).header(header::HOST, host).header(header::CONNECTION, "close");
    let request = request.body(Full::default()).map_err(|error| error.to_string())?;
    let answer = exchange(stream, request, MOST_BYTES).await?;
    if answer.status != 200 {
        return Err(format!("{host} answered {}", answer.status));
    }
    if !answer.whole {
        return Err(format!("{host} sent more than {MOST_BYTES} bytes, or broke off"));
    }
    Ok(answer.body.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    #[test]
    fn only_listed_hosts_are_fetched_by_plain_https() {
        let fetch = HttpsFetch::new(&[".amazonaws.com"]).unwrap();
        let good = "https://sns.eu-west-1.amazonaws.com/x.pem?a=b";
        let place = fetch.listed(good).unwrap();
        assert_eq!((place.host.as_str(), place.target.as_str()), ("sns.eu-west-1.amazonaws.com", "/x.pem?a=b"));
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
            assert_eq!(fetch.listed(bad), None, "{bad}");
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

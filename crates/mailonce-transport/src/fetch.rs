//! A guarded GET: https on its usual port, hosts of a short list, public addresses, no redirects, bounded in size and
//! time.

use async_trait::async_trait;
use http_body_util::Full;
use hyper::{Request, header};
use mailonce_core::ports::network::HttpFetcher;
use rustls::ClientConfig;
use std::{sync::Arc, time::Duration};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    dial,
    egress::{EgressPolicy, TargetUrl},
    http_exchange::send_once,
};

/// The largest page.
const MAX_PAGE_BYTES: usize = 64 * 1024;
/// From the first look-up to the last byte.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Fetches pages of a few hosts.
#[derive(Clone, Debug)]
pub struct AllowlistFetcher {
    host_suffixes: Vec<String>,
    tls_config: Arc<ClientConfig>,
    egress: EgressPolicy,
}

impl AllowlistFetcher {
    /// Fetches from hosts with these endings, each of which begins with a dot.
    pub fn new(endings: &[&str]) -> Result<Self, rustls::Error> {
        Ok(Self {
            host_suffixes: endings.iter().map(ToString::to_string).collect(),
            tls_config: dial::tls_client_config(&[])?,
            // Nothing is fetched from inside, whatever the operator allows for webhooks.
            egress: EgressPolicy::new(Vec::new(), false),
        })
    }

    /// An address that may be fetched: of a listed host, by its usual port, written plainly.
    fn allowed_url(&self, url: &str) -> Option<TargetUrl> {
        let place = self.egress.check_url(url).ok()?;
        let listed = self.host_suffixes.iter().any(|ending| place.host.ends_with(ending.as_str()));
        let plain = place.is_https && place.authority == place.host && url.ends_with(&place.path_and_query);
        (listed && plain).then_some(place)
    }

    async fn fetch_url(&self, place: &TargetUrl) -> Result<Vec<u8>, String> {
        let stream = self.egress.open_tcp(place, FETCH_TIMEOUT).await.map_err(|error| error.to_string())?;
        let stream = dial::open_tls(stream, &place.host, &self.tls_config, FETCH_TIMEOUT)
            .await
            .map_err(|error| error.to_string())?;
        get_page(stream, &place.host, &place.path_and_query).await
    }
}

#[async_trait]
impl HttpFetcher for AllowlistFetcher {
    async fn get(&self, url: &str) -> Result<Vec<u8>, String> {
        let place = self.allowed_url(url).ok_or("this address may not be fetched")?;
        match tokio::time::timeout(FETCH_TIMEOUT, self.fetch_url(&place)).await {
            Ok(fetched) => fetched,
            Err(_elapsed) => Err(format!("{} took longer than {} s", place.host, FETCH_TIMEOUT.as_secs())),
        }
    }
}

/// One page over a connection of its own.
async fn get_page(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    host: &str,
    path: &str,
) -> Result<Vec<u8>, String> {
    let request = Request::get(path).header(header::HOST, host).header(header::CONNECTION, "close");
    let request = request.body(Full::default()).map_err(|error| error.to_string())?;
    let answer = send_once(stream, request, MAX_PAGE_BYTES).await?;
    if answer.status != 200 {
        return Err(format!("{host} answered {}", answer.status));
    }
    if !answer.is_complete {
        return Err(format!("{host} sent more than {MAX_PAGE_BYTES} bytes, or broke off"));
    }
    Ok(answer.body.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    #[test]
    fn only_listed_hosts_are_fetched_by_plain_https() {
        let fetch = AllowlistFetcher::new(&[".amazonaws.com"]).unwrap();
        let good = "https://sns.eu-west-1.amazonaws.com/x.pem?a=b";
        let place = fetch.allowed_url(good).unwrap();
        assert_eq!((place.host.as_str(), place.path_and_query.as_str()), ("sns.eu-west-1.amazonaws.com", "/x.pem?a=b"));
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
            assert_eq!(fetch.allowed_url(bad), None, "{bad}");
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
        let answer = get_page(ours, "host.test", "/page?x=y").await;
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
        assert_eq!(served(page("200 OK", &vec![7; MAX_PAGE_BYTES])).await.unwrap().len(), MAX_PAGE_BYTES);
        assert!(served(page("200 OK", &vec![7; MAX_PAGE_BYTES + 1])).await.is_err());
    }
}

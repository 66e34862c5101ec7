//! A restricted GET: https on port 443, an allowlist of hosts, public addresses only, no redirects, with limits on size
//! and time.

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

/// The largest response body that is accepted.
const MAX_PAGE_BYTES: usize = 64 * 1024;
/// The timeout from name resolution to the last byte.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Fetches documents from an allowlist of hosts.
#[derive(Clone, Debug)]
pub struct AllowlistFetcher {
    host_suffixes: Vec<String>,
    tls_config: Arc<ClientConfig>,
    egress: EgressPolicy,
}

impl AllowlistFetcher {
    /// Allows hosts with these suffixes. Each suffix begins with a dot.
    pub fn new(host_suffixes: &[&str]) -> Result<Self, rustls::Error> {
        Ok(Self {
            host_suffixes: host_suffixes.iter().map(ToString::to_string).collect(),
            tls_config: dial::tls_client_config(&[])?,
            // Internal addresses are never fetched, even if the operator allows them for webhooks.
            egress: EgressPolicy::new(Vec::new(), false),
        })
    }

    /// The parsed URL if it may be fetched: https, an allowed host, the default port and no unusual spelling.
    fn allowed_url(&self, url: &str) -> Option<TargetUrl> {
        let target = self.egress.check_url(url).ok()?;
        let listed = self.host_suffixes.iter().any(|suffix| target.host.ends_with(suffix.as_str()));
        let plain = target.is_https && target.authority == target.host && url.ends_with(&target.path_and_query);
        (listed && plain).then_some(target)
    }

    async fn fetch_url(&self, target: &TargetUrl) -> Result<Vec<u8>, String> {
        let stream = self.egress.open_tcp(target, FETCH_TIMEOUT).await.map_err(|error| error.to_string())?;
        let stream = dial::open_tls(stream, &target.host, &self.tls_config, FETCH_TIMEOUT)
            .await
            .map_err(|error| error.to_string())?;
        get_page(stream, &target.host, &target.path_and_query).await
    }
}

#[async_trait]
impl HttpFetcher for AllowlistFetcher {
    async fn get(&self, url: &str) -> Result<Vec<u8>, String> {
        let target = self.allowed_url(url).ok_or("this URL is not on the allowlist")?;
        match tokio::time::timeout(FETCH_TIMEOUT, self.fetch_url(&target)).await {
            Ok(fetched) => fetched,
            Err(_elapsed) => Err(format!("{} took longer than {} s", target.host, FETCH_TIMEOUT.as_secs())),
        }
    }
}

/// Sends one GET over a connection of its own and returns the body of a 200.
async fn get_page(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    host: &str,
    path: &str,
) -> Result<Vec<u8>, String> {
    let request = Request::get(path).header(header::HOST, host).header(header::CONNECTION, "close");
    let request = request.body(Full::default()).map_err(|error| error.to_string())?;
    let response = send_once(stream, request, MAX_PAGE_BYTES).await?;
    if response.status != 200 {
        return Err(format!("{host} answered {}", response.status));
    }
    if !response.is_complete {
        return Err(format!("{host} sent more than {MAX_PAGE_BYTES} bytes, or closed the connection early"));
    }
    Ok(response.body.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    #[test]
    fn only_listed_hosts_are_fetched_by_plain_https() {
        let fetch = AllowlistFetcher::new(&[".amazonaws.com"]).unwrap();
        let good = "https://sns.eu-west-1.amazonaws.com/x.pem?a=b";
        let target = fetch.allowed_url(good).unwrap();
        assert_eq!(
            (target.host.as_str(), target.path_and_query.as_str()),
            ("sns.eu-west-1.amazonaws.com", "/x.pem?a=b")
        );
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

    /// Fetches from a server that reads one request and sends `response`.
    async fn served(response: Vec<u8>) -> Result<Vec<u8>, String> {
        let (client, server_stream): (DuplexStream, DuplexStream) = duplex(256 * 1024);
        let server = tokio::spawn(async move {
            let mut server_stream = server_stream;
            let mut head = [0; 1024];
            let read = server_stream.read(&mut head).await.unwrap();
            server_stream.write_all(&response).await.ok();
            String::from_utf8_lossy(&head[..read]).into_owned()
        });
        let result = get_page(client, "host.test", "/page?x=y").await;
        assert!(server.await.unwrap().starts_with("GET /page?x=y HTTP/1.1\r\nhost: host.test\r\n"));
        result
    }

    fn page(status: &str, body: &[u8]) -> Vec<u8> {
        let head =
            format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nlocation: https://evil.test/\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    }

    #[tokio::test]
    async fn only_a_200_is_accepted() {
        assert_eq!(served(page("200 OK", b"pem")).await.unwrap(), b"pem");
        assert!(served(page("302 Found", b"")).await.unwrap_err().contains("302"));
        assert!(served(page("500 Oops", b"")).await.is_err());
        assert!(served(b"nonsense\r\n\r\n".to_vec()).await.is_err());
    }

    #[tokio::test]
    async fn a_body_over_the_limit_is_rejected() {
        assert_eq!(served(page("200 OK", &vec![7; MAX_PAGE_BYTES])).await.unwrap().len(), MAX_PAGE_BYTES);
        assert!(served(page("200 OK", &vec![7; MAX_PAGE_BYTES + 1])).await.is_err());
    }
}

//! HTTP calls to the identity provider that the operator configured: size and time are limited, redirects are not followed.

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, header};
use rustls::{ClientConfig, pki_types::CertificateDer};
use std::{sync::Arc, time::Duration};
use url::Url;

use crate::{
    dial,
    http_exchange::{HttpResponse, send_once},
};

/// The largest answer that is read.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// The timeout from name resolution to the last byte.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// An answer with its status and complete body.
#[derive(Debug)]
pub struct ProviderAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// Calls the identity provider.
#[derive(Clone, Debug)]
pub struct IdentityProviderClient {
    tls_config: Arc<ClientConfig>,
}

/// Whether a URL is protected on its way: https, or a server on this machine.
pub fn is_protected(url: &Url) -> bool {
    let is_local = match url.host() {
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    };
    url.username().is_empty()
        && url.password().is_none()
        && (url.scheme() == "https" || (url.scheme() == "http" && is_local))
}

impl IdentityProviderClient {
    /// Trusts the public certificate authorities and these.
    pub fn new(extra_roots: &[CertificateDer<'static>]) -> Result<Self, rustls::Error> {
        Ok(Self { tls_config: dial::tls_client_config(extra_roots)? })
    }

    /// Reads a document.
    pub async fn get(&self, url: &Url) -> Result<ProviderAnswer, String> {
        let request = Request::get(target(url)).header(header::ACCEPT, "application/json");
        self.call(url, request, Bytes::new()).await
    }

    /// Posts a form. `authorization` is the value of the header of that name.
    pub async fn post_form(
        &self,
        url: &Url,
        form: String,
        authorization: Option<String>,
    ) -> Result<ProviderAnswer, String> {
        let mut request = Request::post(target(url))
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        if let Some(value) = authorization {
            request = request.header(header::AUTHORIZATION, value);
        }
        self.call(url, request, form.into()).await
    }

    async fn call(
        &self,
        url: &Url,
        request: hyper::http::request::Builder,
        body: Bytes,
    ) -> Result<ProviderAnswer, String> {
        if !is_protected(url) {
            return Err(format!("{url} is neither https nor on this machine"));
        }
        let host = url.host_str().ok_or_else(|| format!("{url} has no host"))?;
        let authority = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let request = request.header(header::HOST, authority).header(header::CONNECTION, "close");
        let request = request.body(Full::new(body)).map_err(|error| error.to_string())?;
        let called = tokio::time::timeout(CALL_TIMEOUT, self.exchange(url, host, request)).await;
        let answer = called.map_err(|_elapsed| format!("{host} took longer than {} s", CALL_TIMEOUT.as_secs()))??;
        if !answer.is_complete {
            return Err(format!("{host} sent more than {MAX_ANSWER_BYTES} bytes, or closed the connection early"));
        }
        Ok(ProviderAnswer { status: answer.status, body: answer.body.to_vec() })
    }

    async fn exchange(&self, url: &Url, host: &str, request: Request<Full<Bytes>>) -> Result<HttpResponse, String> {
        let port = url.port_or_known_default().unwrap_or(443);
        let stream = dial::open_tcp(host, port, CALL_TIMEOUT, None).await.map_err(|error| error.to_string())?;
        if url.scheme() == "http" {
            return send_once(stream, request, MAX_ANSWER_BYTES).await;
        }
        let name = host.trim_start_matches('[').trim_end_matches(']');
        let stream = dial::open_tls(stream, name, &self.tls_config, CALL_TIMEOUT).await;
        send_once(stream.map_err(|error| error.to_string())?, request, MAX_ANSWER_BYTES).await
    }
}

fn target(url: &Url) -> String {
    url[url::Position::BeforePath..url::Position::AfterQuery].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_and_this_machine_are_called() {
        for (url, expected) in [
            ("https://id.example.com/x", true),
            ("http://127.0.0.1:9000/x", true),
            ("http://[::1]:9000/x", true),
            ("http://localhost/x", true),
            ("http://id.example.com/x", false),
            ("http://localhost.example.com/x", false),
            ("https://user:pass@id.example.com/x", false),
            ("ftp://127.0.0.1/x", false),
        ] {
            assert_eq!(is_protected(&url.parse().unwrap()), expected, "{url}");
        }
        assert_eq!(target(&"https://id.example.com/a?b=c#d".parse().unwrap()), "/a?b=c");
    }
}

//! Sends one HTTP request over a connection that is not reused. There are no retries and no redirects.

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, body::Incoming, client::conn::http1, header::HeaderMap};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// Maximum size of a response's status line and headers.
const MAX_HEAD_BYTES: usize = 32 * 1024;
/// Maximum number of response headers.
const MAX_HEADERS: usize = 100;

/// A response, possibly with a truncated body.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// The part of the body that was read.
    pub(crate) body: Bytes,
    /// Whether the body is complete.
    pub(crate) is_complete: bool,
}

/// HTTP with limits on the head of a response.
pub(crate) fn limited_http() -> http1::Builder {
    let mut http = http1::Builder::new();
    http.max_buf_size(MAX_HEAD_BYTES).max_headers(MAX_HEADERS);
    http
}

/// Sends the request once. At most `max_body_bytes` of the body are read; the rest stays unread.
pub(crate) async fn send_once(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
    max_body_bytes: usize,
) -> Result<HttpResponse, String> {
    let handshake = limited_http().handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error_chain(&error))?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(|error| error_chain(&error))?;
        let (head, body) = response.into_parts();
        let (body, is_complete) = read_body(body, max_body_bytes).await;
        Ok(HttpResponse { status: head.status.as_u16(), headers: head.headers, body, is_complete })
    };
    // hyper needs the connection to be polled while the request runs. Both end together.
    let drive = async {
        match connection.await {
            Ok(()) => std::future::pending::<Result<HttpResponse, String>>().await,
            Err(error) => Err(error_chain(&error)),
        }
    };
    tokio::select! {
        biased;
        response = exchange => response,
        broken = drive => broken,
    }
}

/// Reads a body up to a limit. The second value is true if the body is complete.
async fn read_body(mut body: Incoming, max_bytes: usize) -> (Bytes, bool) {
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return (read.freeze(), false) };
        let Some(data) = frame.data_ref() else { continue };
        let room = max_bytes - read.len();
        read.extend_from_slice(data.get(..room).unwrap_or(data));
        if data.len() > room {
            return (read.freeze(), false);
        }
    }
    (read.freeze(), true)
}

/// The error together with its source, because hyper keeps the system's error there.
pub(crate) fn error_chain(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

//! One request and its answer over a connection that nobody uses again. No second tries and no redirects.

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, body::Incoming, client::conn::http1, header::HeaderMap};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// Bytes of an answer's status line and headers.
const MAX_HEAD_BYTES: usize = 32 * 1024;
/// Headers of an answer.
const MAX_HEADERS: usize = 100;

/// What came back.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// As much of the body as was read.
    pub(crate) body: Bytes,
    /// Whether that is all of it.
    pub(crate) is_complete: bool,
}

/// Asks once. Of the body no more than `most` bytes are read; the rest is left on the wire.
pub(crate) async fn send_once(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
    most: usize,
) -> Result<HttpResponse, String> {
    let mut http = http1::Builder::new();
    http.max_buf_size(MAX_HEAD_BYTES).max_headers(MAX_HEADERS);
    let (mut sender, connection) = http.handshake(TokioIo::new(stream)).await.map_err(|error| error_chain(&error))?;
    let asking = async {
        let answer = sender.send_request(request).await.map_err(|error| error_chain(&error))?;
        let (head, body) = answer.into_parts();
        let (body, whole) = read_body(body, most).await;
        Ok(HttpResponse { status: head.status.as_u16(), headers: head.headers, body, is_complete: whole })
    };
    // The connection is driven beside the request and ends with it.
    let driving = async {
        match connection.await {
            Ok(()) => std::future::pending::<Result<HttpResponse, String>>().await,
            Err(error) => Err(error_chain(&error)),
        }
    };
    tokio::select! {
        biased;
        answer = asking => answer,
        broken = driving => broken,
    }
}

/// What can be read of a body, and whether that is all.
async fn read_body(mut body: Incoming, most: usize) -> (Bytes, bool) {
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return (read.freeze(), false) };
        let Some(data) = frame.data_ref() else { continue };
        let room = most - read.len();
        read.extend_from_slice(data.get(..room).unwrap_or(data));
        if data.len() > room {
            return (read.freeze(), false);
        }
    }
    (read.freeze(), true)
}

/// The error with what caused it: hyper keeps the system's words one level below.
pub(crate) fn error_chain(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

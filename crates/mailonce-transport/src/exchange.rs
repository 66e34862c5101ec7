//! One request and its answer over a connection that nobody uses again. No second tries and no redirects.

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, body::Incoming, client::conn::http1, header::HeaderMap};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// Bytes of an answer's status line and headers.
const HEAD_BYTES: usize = 32 * 1024;
/// Headers of an answer.
const HEAD_LINES: usize = 100;

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// As much of the body as was read.
    pub(crate) body: Bytes,
    /// Whether that is all of it.
    pub(crate) whole: bool,
}

/// Asks once. Of the body no more than `most` bytes are read; the rest is left on the wire.
pub(crate) async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
    most: usize,
) -> Result<Answer, String> {
    let mut http = http1::Builder::new();
    http.max_buf_size(HEAD_BYTES).max_headers(HEAD_LINES);
    let (mut sender, connection) = http.handshake(TokioIo::new(stream)).await.map_err(|error| reason(&error))?;
    let asking = async {
        let answer = sender.send_request(request).await.map_err(|error| reason(&error))?;
        let (head, body) = answer.into_parts();
        let (body, whole) = read(body, most).await;
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, body, whole })
    };
    // The connection is driven beside the request and ends with it.
    let driving = async {
        match connection.await {
            Ok(()) => std::future::pending::<Result<Answer, String>>().await,
            Err(error) => Err(reason(&error)),
        }
    };
    tokio::select! {
        biased;
        answer = asking => answer,
        broken = driving => broken,
    }
}

/// What can be read of a body, and whether that is all.
async fn read(mut body: Incoming, most: usize) -> (Bytes, bool) {
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
pub(crate) fn reason(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

//! A response of server-sent events whose chunks are made one after the other, when the connection can take them.

use axum::{
    body::Body,
    http::header,
    response::{IntoResponse, Response},
};
use hyper::body::{Bytes, Frame};
use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

/// Makes the chunks of a stream.
pub(crate) trait ChunkSource: Sized + Send + 'static {
    /// The next chunk, and the source of the chunks after it. `None` as a chunk ends the stream.
    fn next_chunk(self) -> impl Future<Output = (Option<String>, Option<Self>)> + Send;
}

/// The response that streams the chunks of a source.
pub(crate) fn response(source: impl ChunkSource) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::new(ChunkedBody(Some(Box::pin(source.next_chunk()))))).into_response()
}

type PendingChunk<S> = Pin<Box<dyn Future<Output = (Option<String>, Option<S>)> + Send>>;

/// The body of a stream. A client that disconnects drops it, and with it the source.
struct ChunkedBody<S>(Option<PendingChunk<S>>);

impl<S: ChunkSource> hyper::body::Body for ChunkedBody<S> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(step) = self.0.as_mut() else { return Poll::Ready(None) };
        let Poll::Ready((chunk, source)) = step.as_mut().poll(cx) else { return Poll::Pending };
        self.0 = source.map(|source| Box::pin(source.next_chunk()) as PendingChunk<S>);
        Poll::Ready(chunk.map(|chunk| Ok(Frame::data(chunk.into()))))
    }
}

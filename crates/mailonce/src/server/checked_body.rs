//! A request body that is checked while it arrives. A failed check ends the body with the error of the check.

use axum::{
    BoxError,
    body::{Body, Bytes, HttpBody},
};
use hyper::body::{Frame, SizeHint};
use std::{
    error::Error,
    pin::Pin,
    task::{Context, Poll},
};

/// A check of an arriving body.
pub(super) trait BodyCheck: Send + Unpin + 'static {
    /// Called with the size of each frame, zero for a frame without data.
    fn on_received(&mut self, bytes: usize) -> Result<(), BoxError>;

    /// Called while the body has to wait for data.
    fn on_wait(&mut self, _: &mut Context<'_>) -> Result<(), BoxError> {
        Ok(())
    }
}

struct CheckedBody<C> {
    inner: Body,
    check: C,
}

/// Adds a check to a body.
pub(super) fn check_body(inner: Body, check: impl BodyCheck) -> Body {
    Body::new(CheckedBody { inner, check })
}

impl<C: BodyCheck> HttpBody for CheckedBody<C> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match Pin::new(&mut self.inner).poll_frame(cx) {
            Poll::Ready(frame) => {
                let received = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref().map(Bytes::len));
                Poll::Ready(match self.check.on_received(received.unwrap_or(0)) {
                    Ok(()) => frame.map(|frame| frame.map_err(Into::into)),
                    Err(error) => Some(Err(error)),
                })
            }
            Poll::Pending => match self.check.on_wait(cx) {
                Ok(()) => Poll::Pending,
                Err(error) => Poll::Ready(Some(Err(error))),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Whether an error is an `E`, or was caused by one.
pub(crate) fn has_cause<E: Error + 'static>(error: &(dyn Error + 'static)) -> bool {
    error.is::<E>() || error.source().is_some_and(has_cause::<E>)
}

//! A request body with a minimum rate, so that a client cannot keep a request open by sending single bytes.

use axum::body::{Body, Bytes, HttpBody};
use std::{
    error::Error,
    fmt,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::arrival_rate::{ArrivalRate, MIN_RATE};

/// How long a body may arrive below the minimum rate.
const GRACE: Duration = Duration::from_secs(30);
/// How far ahead of the rate a body can get. In effect unlimited, because reading a body has a timeout of its own.
const MAX_AHEAD: Duration = Duration::from_hours(24);

/// A body that fails with [`TooSlow`] when it arrives below the minimum rate.
pub(crate) struct MinRateBody {
    inner: Body,
    grace_until: Instant,
    rate: ArrivalRate,
    /// When the rate is checked next. Set the first time that reading has to wait.
    timer: Option<Pin<Box<Sleep>>>,
}

impl MinRateBody {
    pub(crate) fn new(inner: Body) -> Self {
        let grace_until = Instant::now() + GRACE;
        Self { inner, grace_until, rate: ArrivalRate::new(Duration::ZERO, MAX_AHEAD), timer: None }
    }
}

impl HttpBody for MinRateBody {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) {
            let arrived = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref().map(Bytes::len));
            self.rate.record(arrived.unwrap_or(0));
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let deadline = self.grace_until.max(self.rate.deadline());
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        while timer.as_mut().poll(cx).is_ready() {
            if timer.deadline() >= deadline {
                return Poll::Ready(Some(Err(TooSlow.into())));
            }
            timer.as_mut().reset(deadline);
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.inner.size_hint()
    }
}

/// The body arrived below the minimum rate.
#[derive(Debug)]
pub(crate) struct TooSlow;

impl TooSlow {
    /// Whether an error was caused by this one.
    pub(crate) fn is_cause_of(error: &(dyn Error + 'static)) -> bool {
        error.is::<Self>() || error.source().is_some_and(Self::is_cause_of)
    }
}

impl fmt::Display for TooSlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the body arrived at less than {MIN_RATE} bytes a second for {} s", GRACE.as_secs())
    }
}

impl Error for TooSlow {}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;
    use tokio::sync::mpsc;

    struct Chunks(mpsc::Receiver<Bytes>);

    impl HttpBody for Chunks {
        type Data = Bytes;
        type Error = axum::BoxError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
            self.0.poll_recv(cx).map(|chunk| chunk.map(|bytes| Ok(hyper::body::Frame::data(bytes))))
        }
    }

    /// Sends `times` chunks at this interval in seconds. Returns after how many seconds reading ended, and its result.
    async fn read(chunk: usize, every: u64, times: usize) -> (u64, Result<usize, bool>) {
        let (sender, chunks) = mpsc::channel(1);
        let began = Instant::now();
        tokio::spawn(async move {
            for _ in 0..times {
                if sender.send(Bytes::from(vec![0; chunk])).await.is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_secs(every)).await;
            }
        });
        let read = to_bytes(Body::new(MinRateBody::new(Body::new(Chunks(chunks)))), usize::MAX).await;
        (began.elapsed().as_secs(), read.map(|bytes| bytes.len()).map_err(|error| TooSlow::is_cause_of(&error)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_is_cut_after_the_grace_and_a_steady_one_is_read() {
        assert_eq!(read(1, 1, 100).await, (30, Err(true)));
        assert_eq!(read(0, 1, 100).await, (30, Err(true)));
        assert_eq!(read(2_048, 1, 100).await, (100, Ok(204_800)));
        assert_eq!(read(10, 1, 20).await, (20, Ok(200)), "it ends within the grace period");
        // 100 KiB allow for 100 s.
        assert_eq!(read(102_400, 1_000, 2).await, (100, Err(true)));
    }
}

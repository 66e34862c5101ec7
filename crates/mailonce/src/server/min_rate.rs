//! A request body with a minimum rate, so that a client cannot keep a request open by sending single bytes.

use axum::{BoxError, body::Body};
use std::{error::Error, fmt, pin::Pin, task::Context, time::Duration};
use tokio::time::{Instant, Sleep, sleep_until};

use super::checked_body::{BodyCheck, check_body};
use crate::arrival_rate::{ArrivalRate, MIN_RATE};

/// How long a body may arrive below the minimum rate.
const GRACE: Duration = Duration::from_secs(30);
/// How far ahead of the rate a body can get. In effect unlimited, because reading a body has a timeout of its own.
const MAX_AHEAD: Duration = Duration::from_hours(24);

/// A body that fails with [`TooSlow`] when it arrives below the minimum rate.
pub(crate) fn require_min_rate(body: Body) -> Body {
    let (grace_until, rate) = (Instant::now() + GRACE, ArrivalRate::new(Duration::ZERO, MAX_AHEAD));
    check_body(body, MinRate { grace_until, rate, timer: None })
}

struct MinRate {
    grace_until: Instant,
    rate: ArrivalRate,
    /// When the rate is checked next. Set the first time that reading has to wait.
    timer: Option<Pin<Box<Sleep>>>,
}

impl BodyCheck for MinRate {
    fn on_received(&mut self, bytes: usize) -> Result<(), BoxError> {
        self.rate.record(bytes);
        Ok(())
    }

    fn on_wait(&mut self, cx: &mut Context<'_>) -> Result<(), BoxError> {
        let deadline = self.grace_until.max(self.rate.deadline());
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        while timer.as_mut().poll(cx).is_ready() {
            if timer.deadline() >= deadline {
                return Err(TooSlow.into());
            }
            timer.as_mut().reset(deadline);
        }
        Ok(())
    }
}

/// The body arrived below the minimum rate.
#[derive(Debug)]
pub(crate) struct TooSlow;

impl fmt::Display for TooSlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the body arrived at less than {MIN_RATE} bytes a second for {} s", GRACE.as_secs())
    }
}

impl Error for TooSlow {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::checked_body::has_cause;
    use axum::body::{Bytes, HttpBody, to_bytes};
    use std::task::Poll;
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
        let read = to_bytes(require_min_rate(Body::new(Chunks(chunks))), usize::MAX).await;
        (began.elapsed().as_secs(), read.map(|bytes| bytes.len()).map_err(|error| has_cause::<TooSlow>(&error)))
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

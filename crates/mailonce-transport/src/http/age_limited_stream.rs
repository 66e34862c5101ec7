//! A connection on which nothing may be begun once it is too old.
//!
//! Between looking at its age and writing the request other tasks run, and the whole process may sleep. So the age is
//! looked at again where the first byte goes to the system.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::boot_instant::BootInstant;

pub(super) struct AgeLimitedStream<S> {
    inner: S,
    connected_at: BootInstant,
    max_age: Duration,
    has_written: bool,
    too_old: Arc<AtomicBool>,
}

impl<S> AgeLimitedStream<S> {
    /// A connection made just now, and the flag that says that it grew too old before its first byte.
    pub(super) fn new(inner: S, fresh: Duration) -> (Self, Arc<AtomicBool>) {
        let too_old = Arc::new(AtomicBool::new(false));
        (
            Self {
                inner,
                connected_at: BootInstant::now(),
                max_age: fresh,
                has_written: false,
                too_old: Arc::clone(&too_old),
            },
            too_old,
        )
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for AgeLimitedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for AgeLimitedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if !self.has_written && self.connected_at.elapsed() > self.max_age {
            self.too_old.store(true, Ordering::Release);
            return Poll::Ready(Err(io::Error::other("the connection grew too old")));
        }
        self.has_written = true;
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt as _;

    #[tokio::test(start_paused = true)]
    async fn only_what_was_begun_in_time_is_written() {
        let minute = Duration::from_mins(1);
        let (mut fresh, too_old) = AgeLimitedStream::new(Vec::new(), minute);
        fresh.write_all(b"GET ").await.unwrap();
        tokio::time::advance(2 * minute).await;
        fresh.write_all(b"/").await.unwrap();
        assert!(!too_old.load(Ordering::Acquire));

        let (mut late, too_old) = AgeLimitedStream::new(Vec::new(), minute);
        tokio::time::advance(2 * minute).await;
        assert!(late.write_all(b"GET ").await.is_err());
        assert!(too_old.load(Ordering::Acquire) && late.inner.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_begun_after_the_machine_was_suspended_for_long() {
        let (mut late, too_old) = AgeLimitedStream::new(Vec::new(), Duration::from_mins(1));
        late.connected_at = crate::boot_instant::before_suspension();
        assert!(late.write_all(b"GET ").await.is_err());
        assert!(too_old.load(Ordering::Acquire) && late.inner.is_empty());
    }
}

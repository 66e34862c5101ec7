//! A stream that rejects its first write once the connection is too old.
//!
//! Between the age check in `connection` and the actual write, other tasks run and the whole process may be suspended.
//! So the age is checked again when the first byte is passed to the system.

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
    /// Wraps a connection made just now. The flag becomes true if it was too old for its first byte.
    pub(super) fn new(inner: S, max_age: Duration) -> (Self, Arc<AtomicBool>) {
        let too_old = Arc::new(AtomicBool::new(false));
        (
            Self {
                inner,
                connected_at: BootInstant::now(),
                max_age,
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
            return Poll::Ready(Err(io::Error::other("the connection is too old")));
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
    async fn only_the_first_write_is_subject_to_the_age_limit() {
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
    async fn a_long_suspension_makes_the_connection_too_old() {
        let (mut late, too_old) = AgeLimitedStream::new(Vec::new(), Duration::from_mins(1));
        late.connected_at = crate::boot_instant::before_suspension();
        assert!(late.write_all(b"GET ").await.is_err());
        assert!(too_old.load(Ordering::Acquire) && late.inner.is_empty());
    }
}

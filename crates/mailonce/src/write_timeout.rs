//! A connection that is cut when the other side takes nothing for a while, so that nobody keeps an answer lying here.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

/// How long a write may make no progress.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// A stream with a limit on how long a write may stand still.
pub(crate) struct WriteTimeout<S> {
    inner: S,
    timeout: Duration,
    /// Runs while a write stands still.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    pub(crate) fn new(inner: S, patience: Duration) -> Self {
        Self { inner, timeout: patience, timer: None }
    }

    /// Passes on what came of a write, or cuts when too many in a row came to nothing.
    fn check_progress<T>(&mut self, cx: &mut Context<'_>, came: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if came.is_ready() {
            self.timer = None;
            return came;
        }
        let patience = self.timeout;
        let alarm = self.timer.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + patience)));
        match alarm.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let came = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.check_progress(cx, came)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        all: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let came = Pin::new(&mut self.inner).poll_write_vectored(cx, all);
        self.check_progress(cx, came)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let came = Pin::new(&mut self.inner).poll_flush(cx);
        self.check_progress(cx, came)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let came = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.check_progress(cx, came)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_cut_and_who_takes_a_little_is_not() {
        let (ours, mut theirs) = duplex(8);
        let mut watched = WriteTimeout::new(ours, Duration::from_secs(30));
        let slow = tokio::spawn(async move {
            for _ in 0..4 {
                tokio::time::sleep(Duration::from_secs(20)).await;
                theirs.read_exact(&mut [0; 8]).await.unwrap();
            }
            theirs
        });
        watched.write_all(&[1; 40]).await.unwrap();
        let _theirs = slow.await.unwrap();
        let began = Instant::now();
        let cut = watched.write_all(&[1; 40]).await.unwrap_err();
        assert_eq!((cut.kind(), began.elapsed().as_secs()), (io::ErrorKind::TimedOut, 30));
    }
}

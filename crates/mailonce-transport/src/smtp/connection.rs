//! One connection as commands out and answers in. It knows what was read and not yet understood, so that an answer
//! that nobody asked for is always noticed.

use crate::smtp::reply::{RelayReply, RelayReplyError, RelayReplyParser};
use std::{future::poll_fn, io, pin::Pin, task::Poll};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    time::{Instant, timeout_at},
};

/// Bytes read at once.
const READ_BUFFER_OCTETS: usize = 4 * 1024;

/// Anything that carries bytes both ways.
pub(super) trait RelayStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> RelayStream for T {}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum RelayConnectionError {
    #[error("the server closed the connection")]
    Closed,
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    #[error("the server did not answer in time")]
    TimedOut,
    #[error("the server spoke out of turn")]
    UnexpectedReply,
    #[error("{0}")]
    Malformed(#[from] RelayReplyError),
}

/// What a server does while it is not its turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RelayState {
    /// It keeps silent.
    Silent,
    /// It spoke.
    Spoke,
    /// It is gone.
    Closed,
}

/// A connection.
pub(super) struct RelayConnection {
    stream: Box<dyn RelayStream>,
    unread: Vec<u8>,
    secrets: Vec<String>,
}

impl RelayConnection {
    pub(super) fn new(stream: impl RelayStream + 'static) -> Self {
        Self { stream: Box::new(stream), unread: Vec::new(), secrets: Vec::new() }
    }

    /// From now on these are struck out of whatever the server says, should it repeat them.
    pub(super) fn redact(&mut self, secrets: Vec<String>) {
        self.secrets = secrets;
        self.secrets.retain(|secret| !secret.is_empty());
    }

    /// Whether everything that came was understood. What came too much would answer for something else.
    pub(super) fn is_in_sync(&self) -> bool {
        self.unread.is_empty()
    }

    /// The bare stream, for TLS. What was read before must not count afterwards.
    pub(super) fn into_stream(self) -> Box<dyn RelayStream> {
        self.stream
    }

    /// Writes everything.
    pub(super) async fn write(&mut self, bytes: &[u8], end: Instant) -> Result<(), RelayConnectionError> {
        let write = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        timeout_at(end, write)
            .await
            .map_err(|_elapsed| RelayConnectionError::TimedOut)?
            .map_err(RelayConnectionError::Broken)
    }

    /// Reads one answer. `end` bounds all of it, not each byte.
    pub(super) async fn read_reply(&mut self, end: Instant) -> Result<RelayReply, RelayConnectionError> {
        timeout_at(end, self.read_whole_reply()).await.map_err(|_elapsed| RelayConnectionError::TimedOut)?
    }

    async fn read_whole_reply(&mut self) -> Result<RelayReply, RelayConnectionError> {
        let mut partial = RelayReplyParser::default();
        loop {
            if let Some(answer) = partial.parse(&mut self.unread)? {
                return Ok(self.redacted(answer));
            }
            let begun = partial.has_started() || !self.unread.is_empty();
            match self.read().await {
                Ok(0) if begun => return Err(RelayConnectionError::Broken(io::ErrorKind::UnexpectedEof.into())),
                Ok(0) => return Err(RelayConnectionError::Closed),
                Ok(_) => {}
                Err(error) => return Err(RelayConnectionError::Broken(error)),
            }
        }
    }

    fn redacted(&self, mut answer: RelayReply) -> RelayReply {
        for secret in &self.secrets {
            answer.lines.iter_mut().for_each(|line| *line = line.replace(secret.as_str(), "***"));
        }
        answer
    }

    /// A further answer that has come already. None also when what came is no whole answer.
    pub(super) fn buffered_reply(&mut self) -> Option<RelayReply> {
        RelayReplyParser::default().parse(&mut self.unread).ok().flatten()
    }

    async fn read(&mut self) -> io::Result<usize> {
        poll_fn(|cx| poll_read(&mut *self.stream, &mut self.unread, cx)).await
    }

    /// Writes everything as long as the server keeps silent, and looks at both directions all the while.
    pub(super) async fn write_while_silent(
        &mut self,
        bytes: &[u8],
        end: Instant,
    ) -> Result<RelayState, RelayConnectionError> {
        if !self.unread.is_empty() {
            return Ok(RelayState::Spoke);
        }
        let mut written = 0;
        let write = poll_fn(|cx| {
            match poll_read(&mut *self.stream, &mut self.unread, cx) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(RelayState::Closed)),
                Poll::Ready(Ok(_)) => return Poll::Ready(Ok(RelayState::Spoke)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {}
            }
            while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
                match Pin::new(&mut *self.stream).poll_write(cx, rest) {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    Poll::Ready(Ok(count)) => written += count,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => return Poll::Pending,
                }
            }
            Pin::new(&mut *self.stream).poll_flush(cx).map_ok(|()| RelayState::Silent)
        });
        match timeout_at(end, write).await {
            Ok(Ok(silence)) => Ok(silence),
            // A server that is fed up often says why before it closes.
            Ok(Err(error)) => match timeout_at(end, self.read()).await {
                Ok(Ok(1..)) => Ok(RelayState::Spoke),
                _ => Err(RelayConnectionError::Broken(error)),
            },
            Err(_elapsed) => Err(RelayConnectionError::TimedOut),
        }
    }

    /// Looks whether the server spoke or went, without waiting.
    pub(super) async fn relay_state(&mut self) -> RelayState {
        if !self.unread.is_empty() {
            return RelayState::Spoke;
        }
        // The runtime learns of bytes that arrived only when it asks the system. Yielding lets it ask.
        tokio::task::yield_now().await;
        poll_fn(|cx| {
            Poll::Ready(match poll_read(&mut *self.stream, &mut self.unread, cx) {
                Poll::Pending => RelayState::Silent,
                Poll::Ready(Ok(1..)) => RelayState::Spoke,
                Poll::Ready(_) => RelayState::Closed,
            })
        })
        .await
    }
}

/// Reads some bytes behind what is there.
fn poll_read(
    stream: &mut dyn RelayStream,
    unread: &mut Vec<u8>,
    cx: &mut std::task::Context<'_>,
) -> Poll<io::Result<usize>> {
    let mut space = [0; READ_BUFFER_OCTETS];
    let mut space = ReadBuf::new(&mut space);
    Pin::new(stream).poll_read(cx, &mut space).map_ok(|()| {
        unread.extend_from_slice(space.filled());
        space.filled().len()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt as _, duplex};

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    #[tokio::test]
    async fn a_server_that_speaks_into_the_body_stops_it() {
        let (near, mut far) = duplex(64);
        let mut wire = RelayConnection::new(near);
        let server = tokio::spawn(async move {
            let mut some = [0; 64];
            far.read_exact(&mut some).await.unwrap();
            far.write_all(b"552 enough\r\n").await.unwrap();
            far
        });
        // Nobody reads the rest, so that this could never end by itself.
        let silence = wire.write_while_silent(&vec![b'x'; 100_000], soon()).await.unwrap();
        assert_eq!(silence, RelayState::Spoke);
        assert_eq!(wire.read_reply(soon()).await.unwrap().code, 552);
        drop(server.await.unwrap());
    }

    #[tokio::test]
    async fn silence_speech_and_absence_are_told_apart_without_waiting() {
        let (near, mut far) = duplex(64);
        let mut wire = RelayConnection::new(near);
        assert_eq!(wire.relay_state().await, RelayState::Silent);
        far.write_all(b"421 bye\r\n").await.unwrap();
        assert_eq!(wire.relay_state().await, RelayState::Spoke);
        assert!(!wire.is_in_sync());
        wire.read_reply(soon()).await.unwrap();
        drop(far);
        assert_eq!(wire.relay_state().await, RelayState::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn drops_of_bytes_do_not_stretch_the_deadline() {
        let (near, mut far) = duplex(4096);
        let mut wire = RelayConnection::new(near);
        let drip = tokio::spawn(async move {
            while far.write_all(b"2").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let begun = Instant::now();
        let lost = wire.read_reply(begun + Duration::from_secs(30)).await;
        assert!(matches!(lost, Err(RelayConnectionError::TimedOut)), "{lost:?}");
        assert_eq!(begun.elapsed().as_secs(), 30);
        drip.abort();
    }

    #[tokio::test]
    async fn half_an_answer_is_not_the_same_as_none() {
        for (said, closed) in [(&b""[..], true), (b"250 o", false), (b"250-ok\r\n", false)] {
            let (near, mut far) = duplex(64);
            far.write_all(said).await.unwrap();
            drop(far);
            let lost = RelayConnection::new(near).read_reply(soon()).await;
            assert_eq!(matches!(lost, Err(RelayConnectionError::Closed)), closed, "{lost:?}");
            assert!(lost.is_err());
        }
    }
}

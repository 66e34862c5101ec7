//! One SMTP connection: writes commands and reads replies. It keeps unparsed input, so that an unsolicited reply is
//! always detected.

use crate::smtp::reply::{RelayReply, RelayReplyError, RelayReplyParser};
use std::{future::poll_fn, io, pin::Pin, task::Poll};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    time::{Instant, timeout_at},
};

/// Size of the read buffer.
const READ_BUFFER_OCTETS: usize = 4 * 1024;

/// A bidirectional byte stream: TCP or TLS.
pub(super) trait RelayStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> RelayStream for T {}

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub(super) enum RelayConnectionError {
    #[error("the server closed the connection")]
    Closed,
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    #[error("the server did not reply in time")]
    TimedOut,
    #[error("the server sent an unexpected reply")]
    UnexpectedReply,
    #[error("{0}")]
    Malformed(#[from] RelayReplyError),
}

/// What the server did while no reply was expected.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RelayState {
    /// It sent nothing.
    Silent,
    /// It sent something.
    Spoke,
    /// It closed the connection.
    Closed,
}

/// A connection to a relay.
pub(super) struct RelayConnection {
    stream: Box<dyn RelayStream>,
    unread: Vec<u8>,
    secrets: Vec<String>,
}

impl RelayConnection {
    pub(super) fn new(stream: impl RelayStream + 'static) -> Self {
        Self { stream: Box::new(stream), unread: Vec::new(), secrets: Vec::new() }
    }

    /// Masks these secrets in all later replies, in case the server echoes them.
    pub(super) fn redact(&mut self, secrets: Vec<String>) {
        self.secrets = secrets;
        self.secrets.retain(|secret| !secret.is_empty());
    }

    /// Whether all received bytes were parsed. Leftover bytes would be mistaken for the reply to the next command.
    pub(super) fn is_in_sync(&self) -> bool {
        self.unread.is_empty()
    }

    /// The raw stream, for the TLS handshake. Unparsed input is discarded: it must not count under TLS.
    pub(super) fn into_stream(self) -> Box<dyn RelayStream> {
        self.stream
    }

    /// Writes and flushes all bytes.
    pub(super) async fn write(&mut self, bytes: &[u8], deadline: Instant) -> Result<(), RelayConnectionError> {
        let write = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        timeout_at(deadline, write)
            .await
            .map_err(|_elapsed| RelayConnectionError::TimedOut)?
            .map_err(RelayConnectionError::Broken)
    }

    /// Reads one reply. `deadline` limits the whole reply, not each byte.
    pub(super) async fn read_reply(&mut self, deadline: Instant) -> Result<RelayReply, RelayConnectionError> {
        timeout_at(deadline, self.read_whole_reply()).await.map_err(|_elapsed| RelayConnectionError::TimedOut)?
    }

    async fn read_whole_reply(&mut self) -> Result<RelayReply, RelayConnectionError> {
        let mut parser = RelayReplyParser::default();
        loop {
            if let Some(reply) = parser.parse(&mut self.unread)? {
                return Ok(self.redacted(reply));
            }
            let has_input = parser.has_started() || !self.unread.is_empty();
            match self.read().await {
                Ok(0) if has_input => return Err(RelayConnectionError::Broken(io::ErrorKind::UnexpectedEof.into())),
                Ok(0) => return Err(RelayConnectionError::Closed),
                Ok(_) => {}
                Err(error) => return Err(RelayConnectionError::Broken(error)),
            }
        }
    }

    fn redacted(&self, mut reply: RelayReply) -> RelayReply {
        for secret in &self.secrets {
            reply.lines.iter_mut().for_each(|line| *line = line.replace(secret.as_str(), "***"));
        }
        reply
    }

    /// A further reply that was already received. `None` also if the input is not a complete reply.
    pub(super) fn buffered_reply(&mut self) -> Option<RelayReply> {
        RelayReplyParser::default().parse(&mut self.unread).ok().flatten()
    }

    async fn read(&mut self) -> io::Result<usize> {
        poll_fn(|cx| poll_read(&mut *self.stream, &mut self.unread, cx)).await
    }

    /// Writes all bytes, but stops as soon as the server sends something or closes.
    pub(super) async fn write_while_silent(
        &mut self,
        bytes: &[u8],
        deadline: Instant,
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
        match timeout_at(deadline, write).await {
            Ok(Ok(state)) => Ok(state),
            // A server that closes early often sends the reason first.
            Ok(Err(error)) => match timeout_at(deadline, self.read()).await {
                Ok(Ok(1..)) => Ok(RelayState::Spoke),
                _ => Err(RelayConnectionError::Broken(error)),
            },
            Err(_elapsed) => Err(RelayConnectionError::TimedOut),
        }
    }

    /// Checks without waiting whether the server sent something or closed.
    pub(super) async fn relay_state(&mut self) -> RelayState {
        if !self.unread.is_empty() {
            return RelayState::Spoke;
        }
        // Yielding lets the runtime poll the system for bytes that have already arrived.
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

/// Appends available bytes to `unread`.
fn poll_read(
    stream: &mut dyn RelayStream,
    unread: &mut Vec<u8>,
    cx: &mut std::task::Context<'_>,
) -> Poll<io::Result<usize>> {
    let mut buffer = [0; READ_BUFFER_OCTETS];
    let mut buffer = ReadBuf::new(&mut buffer);
    Pin::new(stream).poll_read(cx, &mut buffer).map_ok(|()| {
        unread.extend_from_slice(buffer.filled());
        buffer.filled().len()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt as _, duplex};

    fn read_deadline() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    #[tokio::test]
    async fn a_reply_during_the_body_stops_the_body() {
        let (client_end, mut server_end) = duplex(64);
        let mut connection = RelayConnection::new(client_end);
        let server = tokio::spawn(async move {
            let mut bytes = [0; 64];
            server_end.read_exact(&mut bytes).await.unwrap();
            server_end.write_all(b"552 enough\r\n").await.unwrap();
            server_end
        });
        // The server does not read the rest, so only its reply can end the write.
        let state = connection.write_while_silent(&vec![b'x'; 100_000], read_deadline()).await.unwrap();
        assert_eq!(state, RelayState::Spoke);
        assert_eq!(connection.read_reply(read_deadline()).await.unwrap().code, 552);
        drop(server.await.unwrap());
    }

    #[tokio::test]
    async fn silence_input_and_close_are_detected_without_waiting() {
        let (client_end, mut server_end) = duplex(64);
        let mut connection = RelayConnection::new(client_end);
        assert_eq!(connection.relay_state().await, RelayState::Silent);
        server_end.write_all(b"421 bye\r\n").await.unwrap();
        assert_eq!(connection.relay_state().await, RelayState::Spoke);
        assert!(!connection.is_in_sync());
        connection.read_reply(read_deadline()).await.unwrap();
        drop(server_end);
        assert_eq!(connection.relay_state().await, RelayState::Closed);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_bytes_do_not_extend_the_deadline() {
        let (client_end, mut server_end) = duplex(4096);
        let mut connection = RelayConnection::new(client_end);
        let drip = tokio::spawn(async move {
            while server_end.write_all(b"2").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let started = Instant::now();
        let result = connection.read_reply(started + Duration::from_secs(30)).await;
        assert!(matches!(result, Err(RelayConnectionError::TimedOut)), "{result:?}");
        assert_eq!(started.elapsed().as_secs(), 30);
        drip.abort();
    }

    #[tokio::test]
    async fn a_partial_reply_differs_from_a_clean_close() {
        for (sent, closed) in [(&b""[..], true), (b"250 o", false), (b"250-ok\r\n", false)] {
            let (client_end, mut server_end) = duplex(64);
            server_end.write_all(sent).await.unwrap();
            drop(server_end);
            let result = RelayConnection::new(client_end).read_reply(read_deadline()).await;
            assert_eq!(matches!(result, Err(RelayConnectionError::Closed)), closed, "{result:?}");
            assert!(result.is_err());
        }
    }
}

//! One keep-alive connection with a buffer each way.

use crate::load::response::{LoadResponse, ParseState, parse};
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Room for a usual reply; a longer one makes it grow once.
const BUFFER_BYTES: usize = 2048;

/// A connection that does one exchange at a time.
pub(super) struct LoadConnection {
    stream: TcpStream,
    buffer: Vec<u8>,
    open: bool,
}

impl LoadConnection {
    pub(super) async fn open(to: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; BUFFER_BYTES], open: true })
    }

    /// Whether the last reply left the connection usable.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// Writes a request, with one system call if the socket accepts it, and reads its reply.
    pub(super) async fn exchange(&mut self, request: &[u8]) -> io::Result<LoadResponse<'_>> {
        self.open = false;
        self.stream.write_all(request).await?;
        let mut filled = 0;
        loop {
            if filled == self.buffer.len() {
                self.buffer.resize(filled * 2, 0);
            }
            let read = self.stream.read(&mut self.buffer[filled..]).await?;
            if read == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed before the answer ended"));
            }
            filled += read;
            match parse(&mut self.buffer[..filled]) {
                ParseState::Partial => {}
                ParseState::Invalid(why) => return Err(io::Error::new(io::ErrorKind::InvalidData, why)),
                ParseState::Complete { status, body, keep_alive } => {
                    self.open = keep_alive;
                    return Ok(LoadResponse { status, body: &self.buffer[body] });
                }
            }
        }
    }
}

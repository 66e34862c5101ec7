//! One HTTP exchange on a connection of its own, for looking at a server apart from its load.

use super::server::API_KEY;
use crate::load::parse_complete;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long an answer may take.
const REPLY_TIMEOUT: Duration = Duration::from_mins(1);

/// An answer.
#[derive(Debug, Default)]
pub struct HttpReply {
    /// The status code.
    pub status: u16,
    /// Status line and headers, in small letters.
    pub head: String,
    /// The body; null when it is no JSON.
    pub body: Value,
}

impl HttpReply {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let named = |line: &'_ str| -> bool { line.split(':').next() == Some(name) };
        let line = self.head.lines().find(|line| named(line))?;
        Some(line.split_once(':')?.1.trim())
    }
}

/// Writes a whole request and reads the one answer to it.
pub fn exchange(at: SocketAddr, request: &[u8]) -> Result<HttpReply> {
    exchange_on(&mut connect(at)?, request)
}

/// The same, with another patience.
pub fn exchange_within(at: SocketAddr, request: &[u8], patience: Duration) -> Result<HttpReply> {
    let mut stream = connect(at)?;
    stream.set_read_timeout(Some(patience))?;
    exchange_on(&mut stream, request)
}

/// A connection on which nobody waits for ever.
pub fn connect(at: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&at, REPLY_TIMEOUT)?;
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Writes a whole request on a connection and reads the one answer to it.
pub fn exchange_on(stream: &mut TcpStream, request: &[u8]) -> Result<HttpReply> {
    stream.write_all(request)?;
    let mut bytes = Vec::new();
    let mut piece = [0; 16 * 1024];
    loop {
        let read = stream.read(&mut piece)?;
        ensure!(read > 0, "closed before the answer ended");
        bytes.extend_from_slice(&piece[..read]);
        if let Some((status, body)) = parse_complete(&mut bytes)? {
            return Ok(HttpReply {
                status,
                head: String::from_utf8_lossy(&bytes[..body.start]).to_ascii_lowercase(),
                body: serde_json::from_slice(&bytes[body]).unwrap_or_default(),
            });
        }
    }
}

/// A `GET` under our key.
pub fn get(at: SocketAddr, path: &str) -> Result<HttpReply> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {API_KEY}\r\n\r\n");
    exchange(at, request.as_bytes()).with_context(|| format!("GET {path}"))
}

/// A `POST` of JSON under our key, and under an idempotency key when one is given.
pub fn post(at: SocketAddr, path: &str, key: Option<&str>, body: &Value) -> Result<HttpReply> {
    post_within(REPLY_TIMEOUT, at, path, key, body)
}

/// The same with another patience.
pub fn post_within(
    patience: Duration,
    at: SocketAddr,
    path: &str,
    key: Option<&str>,
    body: &Value,
) -> Result<HttpReply> {
    let body = body.to_string();
    let key = key.map(|key| format!("Idempotency-Key: {key}\r\n")).unwrap_or_default();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {API_KEY}\r\n{key}\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = connect(at)?;
    stream.set_read_timeout(Some(patience))?;
    let request = [head.as_bytes(), body.as_bytes()].concat();
    exchange_on(&mut stream, &request).with_context(|| format!("POST {path}"))
}

/// The status that a plain `GET` is answered with, when it is answered.
pub fn get_status(at: SocketAddr, path: &str) -> Option<u16> {
    get(at, path).ok().map(|reply| reply.status)
}

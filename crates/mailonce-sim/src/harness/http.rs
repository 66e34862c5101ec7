//! One HTTP exchange on its own connection, apart from the load.

use super::server::API_KEY;
use crate::load::parse_complete;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long a reply may take.
const REPLY_TIMEOUT: Duration = Duration::from_mins(1);

/// A reply.
#[derive(Debug, Default)]
pub struct HttpReply {
    /// The status code.
    pub status: u16,
    /// Status line and headers in lower case.
    pub head: String,
    /// The body; null if it is not JSON.
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

/// Writes a request and reads its reply.
pub fn exchange(at: SocketAddr, request: &[u8]) -> Result<HttpReply> {
    exchange_on(&mut connect(at)?, request)
}

/// Like [`exchange`], with another timeout.
pub fn exchange_within(at: SocketAddr, request: &[u8], timeout: Duration) -> Result<HttpReply> {
    let mut stream = connect(at)?;
    stream.set_read_timeout(Some(timeout))?;
    exchange_on(&mut stream, request)
}

/// Opens a connection with read and write timeouts.
pub fn connect(at: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&at, REPLY_TIMEOUT)?;
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Writes a request on a connection and reads its reply.
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

/// A `GET` with the test API key.
pub fn get(at: SocketAddr, path: &str) -> Result<HttpReply> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {API_KEY}\r\n\r\n");
    exchange(at, request.as_bytes()).with_context(|| format!("GET {path}"))
}

/// A `DELETE` with the test API key.
pub fn delete(at: SocketAddr, path: &str) -> Result<HttpReply> {
    let request = format!("DELETE {path} HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {API_KEY}\r\n\r\n");
    exchange(at, request.as_bytes()).with_context(|| format!("DELETE {path}"))
}

/// A `POST` of JSON with the test API key and an optional idempotency key.
pub fn post(at: SocketAddr, path: &str, key: Option<&str>, body: &Value) -> Result<HttpReply> {
    post_within(REPLY_TIMEOUT, at, path, key, body)
}

/// Like [`post`], with another timeout.
pub fn post_within(
    timeout: Duration,
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
    stream.set_read_timeout(Some(timeout))?;
    let request = [head.as_bytes(), body.as_bytes()].concat();
    exchange_on(&mut stream, &request).with_context(|| format!("POST {path}"))
}

/// The status of a plain `GET`, if there is a reply.
pub fn get_status(at: SocketAddr, path: &str) -> Option<u16> {
    get(at, path).ok().map(|reply| reply.status)
}

//! Reads the public API with one credential, over one connection.

use super::http::{self, HttpReply};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::net::{SocketAddr, TcpStream};

/// A reader with an open connection.
#[derive(Debug)]
pub struct ApiReader<'a> {
    credential: &'a str,
    stream: TcpStream,
}

impl<'a> ApiReader<'a> {
    /// Connects to a server.
    pub fn new(at: SocketAddr, credential: &'a str) -> Result<Self> {
        Ok(Self { credential, stream: http::connect(at)? })
    }

    /// The JSON at a path. Any status but 200 is an error.
    pub fn get(&mut self, path: &str) -> Result<Value> {
        let credential = self.credential;
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {credential}\r\n\r\n");
        let HttpReply { status, body, .. } = http::exchange_on(&mut self.stream, request.as_bytes())?;
        ensure!(status == 200, "GET {path} was answered {status}: {body}");
        Ok(body)
    }

    /// The rows of every page. `path` has a query already; `cursor` is the name of the parameter for the next page.
    pub fn get_all_pages(&mut self, path: &str, cursor: &str) -> Result<Vec<Value>> {
        let (mut rows, mut next) = (Vec::new(), String::new());
        loop {
            let mut page = self.get(&format!("{path}{next}"))?;
            rows.append(page["data"].as_array_mut().context("a page without data")?);
            match page["next_cursor"].as_str() {
                Some(value) => next = format!("&{cursor}={value}"),
                None => return Ok(rows),
            }
        }
    }
}

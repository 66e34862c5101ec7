//! The two channels of received mail: SMTP, and a provider's webhook signed as Standard Webhooks prescribes.

use crate::crash::injected_mail::InjectedMail;
use crate::harness::http;
use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a sender waits for a reply before it retries.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);
/// The secret of the source that delivers mail.
pub const INBOUND_HOOK_SECRET: &str = "whsec_bWFpbG9uY2UtY3Jhc2gtcmlnLXNlY3JldC0y";

/// The data directories of servers, by API address. Each server writes its SMTP address to its data directory.
#[derive(Debug, Default)]
pub struct SmtpAddressBook(Mutex<BTreeMap<SocketAddr, PathBuf>>);

impl SmtpAddressBook {
    /// Adds a server.
    pub fn register(&self, at: SocketAddr, data: PathBuf) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(at, data);
    }

    /// A server's SMTP address, if it has written one by now. A file with another API address is from the previous
    /// server.
    pub fn smtp_address(&self, at: SocketAddr) -> Option<SocketAddr> {
        let data = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&at)?.clone();
        let dev: Value = serde_json::from_slice(&std::fs::read(data.join("dev.json")).ok()?).ok()?;
        let own = dev["url"].as_str()?.ends_with(&at.to_string());
        dev["smtp"].as_str().filter(|_| own)?.parse().ok()
    }
}

/// An SMTP session with the listener.
struct SmtpDialogue {
    stream: TcpStream,
    replies: BufReader<TcpStream>,
}

impl SmtpDialogue {
    fn command(&mut self, words: &str) -> Result<u16> {
        self.stream.write_all(words.as_bytes())?;
        self.read_code()
    }

    /// Reads a reply, which may have several lines, and returns its code.
    fn read_code(&mut self) -> Result<u16> {
        let mut line = String::new();
        loop {
            line.clear();
            ensure!(self.replies.read_line(&mut line)? > 3, "closed before the answer ended");
            if line.as_bytes()[3] != b'-' {
                return line[..3].parse().with_context(|| format!("no answer: {line}"));
            }
        }
    }
}

/// Delivers a mail by SMTP. Returns true if it was acknowledged, and an error if the outcome is unknown.
pub fn deliver_by_smtp(stream: TcpStream, mail: &InjectedMail) -> Result<bool> {
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    let mut dialogue = SmtpDialogue { replies: BufReader::new(stream.try_clone()?), stream };
    dialogue.read_code()?;
    dialogue.command("EHLO sender.example\r\n")?;
    dialogue.command(&format!("MAIL FROM:<{}>\r\n", mail.sender))?;
    for inbox in &mail.inboxes {
        let code = dialogue.command(&format!("RCPT TO:<{inbox}>\r\n"))?;
        ensure!(code == 250 || code / 100 == 4, "{inbox} was refused with {code}");
        if code != 250 {
            return Ok(false);
        }
    }
    dialogue.command("DATA\r\n")?;
    let code = dialogue.command(&format!("{}\r\n.\r\n", mail.raw))?;
    ensure!(code / 100 != 5, "a mail was refused for good with {code}");
    Ok(code == 250)
}

/// Delivers a mail by webhook. Returns true if it was acknowledged, and an error if the outcome is unknown.
pub fn deliver_by_hook(stream: &mut TcpStream, path: &str, mail: &InjectedMail) -> Result<bool> {
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    let reply = http::exchange_on(stream, &signed_request(path, mail))?;
    ensure!(matches!(reply.status, 200 | 503), "a hook was answered {}: {}", reply.status, reply.body);
    Ok(reply.status == 200)
}

fn signed_request(path: &str, mail: &InjectedMail) -> Vec<u8> {
    let body = json!({"id": mail.name, "sender": mail.sender, "recipients": mail.inboxes,
        "raw": STANDARD.encode(mail.raw.as_bytes())})
    .to_string();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let key = STANDARD.decode(INBOUND_HOOK_SECRET.trim_start_matches("whsec_")).unwrap_or_default();
    let signature = Hmac::<Sha256>::new_from_slice(&key).map(|mut mac| {
        mac.update(format!("{}.{now}.{body}", mail.name).as_bytes());
        STANDARD.encode(mac.finalize().into_bytes())
    });
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nwebhook-id: {}\r\nwebhook-timestamp: {now}\r\n\
         webhook-signature: v1,{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        mail.name,
        signature.unwrap_or_default(),
        body.len()
    )
    .into_bytes()
}

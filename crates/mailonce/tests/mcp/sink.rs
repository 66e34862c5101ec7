//! An SMTP server that accepts and stores every mail.

use std::sync::{Arc, Mutex};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};

/// A mail that the sink accepted.
#[derive(Clone, Debug)]
pub(crate) struct SinkMail {
    pub(crate) to: String,
    pub(crate) raw: String,
}

impl SinkMail {
    /// The value of a header field that fits on one line.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let head = self.raw.split("\n\n").next().unwrap_or_default();
        head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

#[derive(Clone, Default)]
pub(crate) struct SmtpMailSink {
    mails: Arc<Mutex<Vec<SinkMail>>>,
    pub(crate) port: u16,
}

impl SmtpMailSink {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let sink = Self { port: listener.local_addr().unwrap().port(), ..Self::default() };
        let mails_received = Arc::clone(&sink.mails);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve_connection(stream, Arc::clone(&mails_received)));
            }
        });
        sink
    }

    pub(crate) fn all(&self) -> Vec<SinkMail> {
        self.mails.lock().unwrap().clone()
    }

    /// Mails to this address.
    pub(crate) fn mails_to(&self, address: &str) -> Vec<SinkMail> {
        self.all().into_iter().filter(|mail| mail.to == address).collect()
    }
}

async fn serve_connection(stream: TcpStream, mails_received: Arc<Mutex<Vec<SinkMail>>>) {
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    let mut to = Vec::new();
    writer.write_all(b"220 sink.test\r\n").await.ok();
    while let Ok(Some(line)) = lines.next_line().await {
        let verb = line.get(..4).unwrap_or_default().to_ascii_uppercase();
        let reply = match verb.as_str() {
            "RCPT" => {
                to.push(line.split(['<', '>']).nth(1).unwrap_or_default().to_owned());
                "250 ok"
            }
            "DATA" => {
                writer.write_all(b"354 go on\r\n").await.ok();
                let mut raw = String::new();
                loop {
                    // A mail that is cut off was not accepted.
                    let Ok(Some(line)) = lines.next_line().await else { return };
                    if line == "." {
                        break;
                    }
                    raw += line.strip_prefix('.').unwrap_or(&line);
                    raw.push('\n');
                }
                let mails = to.drain(..).map(|to| SinkMail { to, raw: raw.clone() });
                mails_received.lock().unwrap().extend(mails);
                "250 taken"
            }
            "QUIT" => "221 bye",
            _ => "250 ok",
        };
        if writer.write_all(format!("{reply}\r\n").as_bytes()).await.is_err() || verb == "QUIT" {
            return;
        }
    }
}

//! An application that receives every webhook and records it before it replies.

use serde_json::Value;
use std::{
    collections::BTreeSet,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

/// The ids and bodies of webhooks, in order of arrival.
type ReceivedNotices = Arc<Mutex<Vec<(String, Value)>>>;

/// The application. It stops with the process.
pub(crate) struct NoticeReceiver {
    pub(crate) at: SocketAddr,
    received: ReceivedNotices,
}

impl NoticeReceiver {
    pub(crate) fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (at, notices) = (listener.local_addr().unwrap(), ReceivedNotices::default());
        let shared_notices = Arc::clone(&notices);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let notices = Arc::clone(&shared_notices);
                std::thread::spawn(move || receive_one(stream, &notices));
            }
        });
        Self { at, received: notices }
    }

    /// The events with their webhook ids.
    pub(crate) fn received(&self) -> Vec<(String, Value)> {
        self.received.lock().unwrap().clone()
    }

    /// The ids of all received events.
    pub(crate) fn event_ids(&self) -> BTreeSet<String> {
        self.received().iter().map(|(_, event)| event["id"].as_str().unwrap().to_owned()).collect()
    }
}

/// Handles one request. A server that is killed in the middle of it has delivered nothing.
fn receive_one(mut stream: TcpStream, notices: &ReceivedNotices) {
    let (mut read, mut some) = (Vec::new(), [0; 4_096]);
    while let Ok(count @ 1..) = stream.read(&mut some) {
        read.extend_from_slice(&some[..count]);
        let text = String::from_utf8_lossy(&read);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let Ok(event) = serde_json::from_str(body) else { continue };
        let name = head.lines().find_map(|line| line.strip_prefix("webhook-id: ")).unwrap();
        notices.lock().unwrap().push((name.to_owned(), event));
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").ok();
        return;
    }
}

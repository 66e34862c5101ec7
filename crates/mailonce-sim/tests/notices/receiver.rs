//! An application that takes every notice and remembers it before it answers.

use serde_json::Value;
use std::{
    collections::BTreeSet,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

/// The names and bodies of notices, in the order in which they came.
type ReceivedNotices = Arc<Mutex<Vec<(String, Value)>>>;

/// The application. It ends with the process.
pub(crate) struct NoticeReceiver {
    pub(crate) at: SocketAddr,
    received: ReceivedNotices,
}

impl NoticeReceiver {
    pub(crate) fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (at, told) = (listener.local_addr().unwrap(), ReceivedNotices::default());
        let remember = Arc::clone(&told);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let told = Arc::clone(&remember);
                std::thread::spawn(move || receive_one(stream, &told));
            }
        });
        Self { at, received: told }
    }

    /// What was told, and under which names.
    pub(crate) fn received(&self) -> Vec<(String, Value)> {
        self.received.lock().unwrap().clone()
    }

    /// The ids of all events that were told.
    pub(crate) fn event_ids(&self) -> BTreeSet<String> {
        self.received().iter().map(|(_, event)| event["id"].as_str().unwrap().to_owned()).collect()
    }
}

/// Takes one request. A server that dies in the middle of it has told nothing.
fn receive_one(mut stream: TcpStream, told: &ReceivedNotices) {
    let (mut read, mut some) = (Vec::new(), [0; 4_096]);
    while let Ok(count @ 1..) = stream.read(&mut some) {
        read.extend_from_slice(&some[..count]);
        let text = String::from_utf8_lossy(&read);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let Ok(event) = serde_json::from_str(body) else { continue };
        let name = head.lines().find_map(|line| line.strip_prefix("webhook-id: ")).unwrap();
        told.lock().unwrap().push((name.to_owned(), event));
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").ok();
        return;
    }
}

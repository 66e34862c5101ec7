//! An application that takes every notice and remembers it before it answers.

use serde_json::Value;
use std::{
    collections::BTreeSet,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

/// The names and bodies of notices, in the order in which they came.
type Told = Arc<Mutex<Vec<(String, Value)>>>;

/// The application. It ends with the process.
pub(crate) struct Receiver {
    pub(crate) at: SocketAddr,
    told: Told,
}

impl Receiver {
    pub(crate) fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (at, told) = (listener.local_addr().unwrap(), Told::default());
        let remember = Arc::clone(&told);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let told = Arc::clone(&remember);
                std::thread::spawn(move || take(stream, &told));
            }
        });
        Self { at, told }
    }

    /// What was told, and under which names.
    pub(crate) fn told(&self) -> Vec<(String, Value)> {
        self.told.lock().unwrap().clone()
    }

    /// The ids of all events that were told.
    pub(crate) fn events(&self) -> BTreeSet<String> {
        self.told().iter().map(|(_, event)| event["id"].as_str().unwrap().to_owned()).collect()
    }
}

/// Takes one request. A server that dies in the middle of it has told nothing.
fn take(mut stream: TcpStream, told: &Told) {
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

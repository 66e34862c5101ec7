//! Receivers of webhooks: one behind the port that a test scripts, and one behind a socket of this machine.

use async_trait::async_trait;
use mailonce_core::{
    notice::Trouble,
    port::notify::{Notify, Post, Reply, Told},
};
use mailonce_engine::ways::Outside;
use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{Notify as Bell, watch},
    task::JoinHandle,
};

use crate::world::World;

/// What a scripted receiver does with a request.
#[derive(Clone)]
pub(crate) enum Does {
    Says(Reply),
    Breaks,
    /// Nothing, until the bell rings.
    Waits(Arc<Bell>),
}

pub(crate) fn says(status: u16) -> Does {
    Does::Says(Reply { status, ..Reply::default() })
}

type Script = Box<dyn Fn(&Post) -> Does + Send + Sync>;

/// Behind the port.
pub(crate) struct Scripted {
    script: Mutex<Script>,
    posts: watch::Sender<Vec<(Post, bool)>>,
}

impl Scripted {
    pub(crate) fn new(script: impl Fn(&Post) -> Does + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { script: Mutex::new(Box::new(script)), posts: watch::Sender::new(Vec::new()) })
    }

    pub(crate) fn now(&self, script: impl Fn(&Post) -> Does + Send + Sync + 'static) {
        *self.script.lock().unwrap() = Box::new(script);
    }

    /// Every request so far, and whether it was taken.
    pub(crate) fn posts(&self) -> Vec<(Post, bool)> {
        self.posts.borrow().clone()
    }

    /// What was taken, as JSON, in order.
    pub(crate) fn taken(&self) -> Vec<Value> {
        let took = |(post, taken): (Post, bool)| taken.then(|| serde_json::from_slice(&post.body).unwrap());
        self.posts().into_iter().filter_map(took).collect()
    }

    /// Waits for so many requests that were answered.
    pub(crate) async fn until(&self, count: usize) {
        let mut posts = self.posts.subscribe();
        let enough = posts.wait_for(|posts| posts.len() >= count);
        tokio::time::timeout(std::time::Duration::from_mins(5), enough).await.expect("too few requests").unwrap();
    }
}

#[async_trait]
impl Notify for Scripted {
    fn check(&self, url: &str) -> Result<(), String> {
        if url.starts_with("https://") { Ok(()) } else { Err("does not begin with https://".into()) }
    }

    async fn post(&self, post: Post) -> Told {
        let does = (self.script.lock().unwrap())(&post);
        let answer = match does {
            Does::Says(reply) => Ok(reply),
            Does::Breaks => Err((Trouble::Connect, "nobody took the connection".into())),
            Does::Waits(bell) => {
                bell.notified().await;
                Ok(Reply { status: 200, ..Reply::default() })
            }
        };
        let taken = answer.as_ref().is_ok_and(|reply| (200..300).contains(&reply.status));
        self.posts.send_modify(|posts| posts.push((post, taken)));
        Told { answer, ms: 1 }
    }
}

impl World {
    /// The same ledger with a receiver outside.
    pub(crate) async fn told_to(self, notify: Arc<dyn Notify>) -> Self {
        self.rewired(Outside { notify, ..Outside::default() }).await
    }

    /// Makes an endpoint. The answer, with its secret.
    pub(crate) async fn endpoint(&self, url: &str) -> Value {
        self.post("/v1/endpoints", &json!({ "url": url })).await.is(201).body
    }
}

/// Behind a socket: it takes everything.
pub(crate) struct Hall {
    pub(crate) at: SocketAddr,
    requests: watch::Sender<Vec<String>>,
    task: JoinHandle<()>,
}

impl Hall {
    pub(crate) async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let requests = watch::Sender::new(Vec::new());
        let told = requests.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, told.clone()));
            }
        });
        Self { at, requests, task }
    }

    /// The head and the body of every request.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.borrow().clone()
    }

    pub(crate) async fn until(&self, count: usize) {
        let mut requests = self.requests.subscribe();
        let enough = requests.wait_for(|requests| requests.len() >= count);
        tokio::time::timeout(std::time::Duration::from_mins(5), enough).await.expect("too few requests").unwrap();
    }
}

impl Drop for Hall {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(mut stream: TcpStream, told: watch::Sender<Vec<String>>) {
    let mut read = Vec::new();
    let whole = |read: &[u8]| {
        let text = String::from_utf8_lossy(read);
        let (head, body) = text.split_once("\r\n\r\n")?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?.parse().ok()?;
        (body.len() >= length).then(|| text.into_owned())
    };
    loop {
        if let Some(request) = whole(&read) {
            told.send_modify(|requests| requests.push(request));
            stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await.ok();
            return;
        }
        let mut some = [0; 4_096];
        match stream.read(&mut some).await {
            Ok(0) | Err(_) => return,
            Ok(count) => read.extend_from_slice(&some[..count]),
        }
    }
}

//! Webhook receivers: a scripted one that implements the client port, and a real HTTP server.

use async_trait::async_trait;
use mailonce_core::{
    events::{
        notice::WebhookError,
        webhook::{OutgoingWebhook, WebhookResponse, WebhookResult},
    },
    ports::webhook_client::WebhookClient,
};
use mailonce_engine::EngineDeps;
use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{Notify, watch},
    task::JoinHandle,
};

use crate::world::World;

/// What a scripted receiver does with a request.
#[derive(Clone)]
pub(crate) enum ReceiverAction {
    Respond(WebhookResponse),
    Disconnect,
    /// Responds once it is notified.
    WaitFor(Arc<Notify>),
}

pub(crate) fn respond_with(status: u16) -> ReceiverAction {
    ReceiverAction::Respond(WebhookResponse { status, ..WebhookResponse::default() })
}

type ReceiverScript = Box<dyn Fn(&OutgoingWebhook) -> ReceiverAction + Send + Sync>;

/// A receiver that implements the webhook client port and follows a script.
pub(crate) struct ScriptedReceiver {
    script: Mutex<ReceiverScript>,
    posts: watch::Sender<Vec<(OutgoingWebhook, bool)>>,
}

impl ScriptedReceiver {
    pub(crate) fn new(script: impl Fn(&OutgoingWebhook) -> ReceiverAction + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { script: Mutex::new(Box::new(script)), posts: watch::Sender::new(Vec::new()) })
    }

    pub(crate) fn set_script(&self, script: impl Fn(&OutgoingWebhook) -> ReceiverAction + Send + Sync + 'static) {
        *self.script.lock().unwrap() = Box::new(script);
    }

    /// Every request so far, and whether it was accepted.
    pub(crate) fn posts(&self) -> Vec<(OutgoingWebhook, bool)> {
        self.posts.borrow().clone()
    }

    /// The accepted events as JSON, in order.
    pub(crate) fn accepted_events(&self) -> Vec<Value> {
        let accepted_body =
            |(post, accepted): (OutgoingWebhook, bool)| accepted.then(|| serde_json::from_slice(&post.body).unwrap());
        self.posts().into_iter().filter_map(accepted_body).collect()
    }

    /// Waits until this many requests were answered.
    pub(crate) async fn wait_for_requests(&self, count: usize) {
        let mut posts = self.posts.subscribe();
        let enough = posts.wait_for(|posts| posts.len() >= count);
        tokio::time::timeout(std::time::Duration::from_mins(5), enough).await.expect("too few requests").unwrap();
    }
}

#[async_trait]
impl WebhookClient for ScriptedReceiver {
    fn check_url(&self, url: &str) -> Result<(), String> {
        if url.starts_with("https://") { Ok(()) } else { Err("does not begin with https://".into()) }
    }

    async fn post(&self, post: OutgoingWebhook) -> WebhookResult {
        let action = (self.script.lock().unwrap())(&post);
        let response = match action {
            ReceiverAction::Respond(reply) => Ok(reply),
            ReceiverAction::Disconnect => Err((WebhookError::Connect, "the connection could not be opened".into())),
            ReceiverAction::WaitFor(release) => {
                release.notified().await;
                Ok(WebhookResponse { status: 200, ..WebhookResponse::default() })
            }
        };
        let accepted = response.as_ref().is_ok_and(|reply| (200..300).contains(&reply.status));
        self.posts.send_modify(|posts| posts.push((post, accepted)));
        WebhookResult { response, latency_ms: 1 }
    }
}

impl World {
    /// The same ledger with this webhook client.
    pub(crate) async fn with_notifier(self, webhook_client: Arc<dyn WebhookClient>) -> Self {
        self.with_engine_deps(EngineDeps { webhook_sender: webhook_client, ..EngineDeps::default() }).await
    }

    /// Creates an endpoint and returns the response, with its secret.
    pub(crate) async fn create_endpoint(&self, url: &str) -> Value {
        self.post("/v1/endpoints", &json!({ "url": url })).await.expect_status(201).body
    }
}

/// An HTTP server that accepts every webhook.
pub(crate) struct WebhookServer {
    pub(crate) address: SocketAddr,
    requests: watch::Sender<Vec<String>>,
    task: JoinHandle<()>,
}

impl WebhookServer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = watch::Sender::new(Vec::new());
        let received = requests.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve_connection(stream, received.clone()));
            }
        });
        Self { address, requests, task }
    }

    /// The headers and body of every request.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.borrow().clone()
    }

    pub(crate) async fn wait_for_requests(&self, count: usize) {
        let mut requests = self.requests.subscribe();
        let enough = requests.wait_for(|requests| requests.len() >= count);
        tokio::time::timeout(std::time::Duration::from_mins(5), enough).await.expect("too few requests").unwrap();
    }
}

impl Drop for WebhookServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve_connection(mut stream: TcpStream, received: watch::Sender<Vec<String>>) {
    let mut read = Vec::new();
    let complete_request = |read: &[u8]| {
        let text = String::from_utf8_lossy(read);
        let (head, body) = text.split_once("\r\n\r\n")?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?.parse().ok()?;
        (body.len() >= length).then(|| text.into_owned())
    };
    loop {
        if let Some(request) = complete_request(&read) {
            received.send_modify(|requests| requests.push(request));
            stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await.ok();
            return;
        }
        let mut chunk = [0; 4_096];
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return,
            Ok(count) => read.extend_from_slice(&chunk[..count]),
        }
    }
}

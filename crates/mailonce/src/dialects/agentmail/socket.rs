//! AgentMail's WebSocket. Subscribers receive events as they happen, from the same event log as every other consumer.

use axum::{
    extract::{
        FromRequestParts as _, Request,
        ws::{Message as Frame, WebSocket, WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    },
    response::Response,
};
use mailonce_core::{
    access::team::ApiKeyScope,
    events::event::EventKind,
    id::{EmailId, InboxId, MessageId, ThreadId},
    json_limits,
    outbound::email::Channel,
    problem::{Code, Problem},
    time::Time,
};
use mailonce_engine::{
    Caller, Engine,
    events::tail::{EventFollower, EventLine, EventSelection},
    inbox::messages::{MessageView, RenderedBody},
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

use super::{
    contract::{AgentMail, AgentMailResult},
    query::AgentMailQuery,
};
use crate::{
    dialects::{
        DialectContract as _, DialectError,
        agentmail::event_format::{self, EventContext},
    },
    http::{
        app::App,
        extract::{authenticate, bearer},
    },
};

/// How often an idle connection gets a ping.
const PING_INTERVAL: Duration = Duration::from_secs(15);
/// How long a client may take to answer the close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a client frame. Clients send only subscribe messages.
const MAX_FRAME_OCTETS: usize = 64 * 1024;
/// Maximum inboxes of one subscription.
const MAX_IDS: usize = 100;

/// The subscribe message of a client.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SubscribeBody {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    event_types: Option<Vec<String>>,
    #[serde(default)]
    inbox_ids: Option<Vec<String>>,
    #[serde(default)]
    pod_ids: Option<Vec<String>>,
}

/// The event types and inboxes that a client subscribed to. An empty list means all.
struct Subscription {
    types: Vec<String>,
    inboxes: Vec<InboxId>,
}

struct SocketSession {
    engine: Arc<Engine>,
    caller: Caller,
    reader: EventFollower,
    subscription: Option<Subscription>,
}

/// Upgrades an authenticated request to a WebSocket. The credential is in the header or in the query.
pub(super) async fn open(app: App, request: Request) -> AgentMailResult {
    let (mut parts, _) = request.into_parts();
    let query = AgentMailQuery::parse(parts.uri.query().unwrap_or_default());
    let credential = bearer(&parts.headers).or_else(|| query.last("api_key")).map(str::to_owned);
    let found = authenticate(&app, &parts.extensions, credential.as_deref(), Channel::Agentmail).await?;
    let Some(caller) = found else { return Err(DialectError::from_response(AgentMail::unauthorized())) };
    caller.require_scope(ApiKeyScope::Read)?;
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &app).await;
    let not_a_websocket =
        |rejection: WebSocketUpgradeRejection| Problem::new(Code::InvalidField, rejection.body_text());
    let upgrade = upgrade.map_err(not_a_websocket)?.max_message_size(MAX_FRAME_OCTETS).max_frame_size(MAX_FRAME_OCTETS);
    // Follows the log from now on, so that no event is lost between the upgrade and the subscribe message.
    let reader = app.engine.events.follow_events(&caller, None, EventSelection::default()).await?;
    let session = SocketSession { engine: Arc::clone(&app.engine), caller, reader, subscription: None };
    let response: Response = upgrade.on_upgrade(|socket| Box::pin(session.run(socket)));
    Ok(response)
}

impl SocketSession {
    async fn run(mut self, mut socket: WebSocket) {
        loop {
            let done = tokio::select! {
                received = socket.recv() => match received {
                    Some(Ok(frame)) => self.handle_frame(&mut socket, frame).await,
                    Some(Err(_)) | None => true,
                },
                lines = self.reader.next_events(PING_INTERVAL) => match lines {
                    Ok(Some(lines)) => self.send_events(&mut socket, &lines).await,
                    Ok(None) => true,
                    Err(problem) => {
                        send_json(&mut socket, &error_json(&problem)).await;
                        true
                    }
                },
            };
            if done {
                break;
            }
        }
        close(&mut socket).await;
    }

    /// Handles a client frame. Returns true when the connection should close.
    async fn handle_frame(&mut self, socket: &mut WebSocket, frame: Frame) -> bool {
        let text = match frame {
            Frame::Text(text) => text,
            Frame::Close(_) => return true,
            Frame::Binary(_) => {
                return !send_json(socket, &error_json(&Problem::invalid_field("a frame", "must be text"))).await;
            }
            Frame::Ping(_) | Frame::Pong(_) => return false,
        };
        let response = match self.subscribe(&text).await {
            Ok(response) => response,
            Err(problem) => error_json(&problem),
        };
        !send_json(socket, &response).await
    }

    async fn subscribe(&mut self, text: &str) -> Result<Value, Problem> {
        json_limits::check(text.as_bytes())
            .map_err(|limit_error| Problem::invalid_field("a frame", limit_error.to_string()))?;
        let body: SubscribeBody = serde_json::from_str(text)
            .map_err(|error| Problem::invalid_field("a frame", format!("cannot be read: {error}")))?;
        if body.kind != "subscribe" {
            return Err(Problem::invalid_field("type", "must be subscribe"));
        }
        let types = body.event_types.clone().unwrap_or_default();
        event_format::native_types(&types)?;
        let names = body.inbox_ids.clone().unwrap_or_default();
        if names.len() > MAX_IDS {
            return Err(Problem::invalid_field("inbox_ids", format!("must name at most {MAX_IDS} inboxes")));
        }
        let mut inboxes = Vec::new();
        for name in &names {
            inboxes.push(self.engine.inboxes.inbox_by_address(&self.caller, name).await?.id);
        }
        let pods = body.pod_ids.clone().unwrap_or_default();
        if let Some(pod) = pods.iter().find(|pod| **pod != self.caller.team.id.to_string()) {
            return Err(Problem::new(Code::NotFound, format!("there is no pod {pod}")));
        }
        self.subscription = Some(Subscription { types, inboxes });
        let mut response = json!({ "type": "subscribed" });
        let echoed = [("event_types", body.event_types), ("inbox_ids", body.inbox_ids), ("pod_ids", body.pod_ids)];
        for (name, list) in echoed {
            if let Some(list) = list {
                response[name] = list.into();
            }
        }
        Ok(response)
    }

    /// Sends the events that the client subscribed to. Returns true when the connection should close.
    async fn send_events(&self, socket: &mut WebSocket, lines: &[Arc<EventLine>]) -> bool {
        if lines.is_empty() {
            return socket.send(Frame::Ping(axum::body::Bytes::new())).await.is_err();
        }
        let Some(subscription) = &self.subscription else { return false };
        for line in lines {
            match self.format_event(subscription, line).await {
                Ok(Some(body)) => {
                    if !send_json(socket, &body).await {
                        return true;
                    }
                }
                Ok(None) => {}
                Err(problem) => {
                    // Clients have no cursor to resume from, so closing the connection makes the lost event visible.
                    send_json(socket, &error_json(&problem)).await;
                    return true;
                }
            }
        }
        false
    }

    /// Formats an event for AgentMail; `None` if the client did not subscribe to it.
    async fn format_event(&self, subscription: &Subscription, line: &EventLine) -> Result<Option<Value>, Problem> {
        let event: Value = serde_json::from_str(&line.json).unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (Some(kind), Ok(subject_id)) =
            (EventKind::parse(&text(&event["type"])), Uuid::try_parse(&text(&event["about"]["id"])))
        else {
            return Ok(None);
        };
        if !event_format::EVENT_TYPES.iter().any(|(_, known)| *known == kind) {
            return Ok(None);
        }
        let at = Time::parse(&text(&event["at"])).unwrap_or_default();
        let subject = match self.load_subject(kind, subject_id).await {
            Ok(subject) => subject,
            // The subject was deleted, or this key may not read it.
            Err(problem) if problem.code == Code::NotFound => return Ok(None),
            Err(problem) => return Err(problem),
        };
        let context = EventContext {
            kind,
            id: text(&event["id"]),
            at,
            data: &event["data"],
            inbox: Some(&subject.inbox),
            message: subject.message.as_ref(),
            thread: subject.thread.as_ref(),
            text: subject.text.as_deref(),
            email: subject.email.as_ref().map(|(email, name)| (email, name.as_str())),
        };
        let in_scope = subscription.inboxes.is_empty() || subscription.inboxes.contains(&subject.inbox.id);
        let formatted = context.format().filter(|(name, _)| {
            in_scope && (subscription.types.is_empty() || subscription.types.iter().any(|requested| requested == name))
        });
        Ok(formatted.map(|(_, body)| body))
    }

    async fn load_subject(&self, kind: EventKind, subject_id: Uuid) -> Result<SubjectRecords, Problem> {
        let (engine, caller) = (&self.engine, &self.caller);
        if kind != EventKind::MessageReceived {
            let email = engine.outbound.email(caller, EmailId(subject_id)).await?;
            let inbox = engine.inboxes.inbox_by_address(caller, &email.head.from).await?;
            let message_id = engine.outbound.cache_message_id(&email);
            return Ok(SubjectRecords {
                inbox,
                message: None,
                thread: None,
                text: None,
                email: Some((email, message_id)),
            });
        }
        let rendered = engine.inboxes.render_message(caller, MessageId(subject_id), MessageView::Plain).await?;
        let text = match rendered.body {
            RenderedBody::Plain { text } => Some(text),
            _ => None,
        };
        let message = rendered.message;
        let inbox = engine.inboxes.inbox(caller, message.inbox).await?;
        let (thread, _) = engine.inboxes.thread(caller, ThreadId(message.thread.0)).await?;
        Ok(SubjectRecords { inbox, message: Some(message), thread: Some(thread), text, email: None })
    }
}

/// Completes the close handshake: sends the close frame, or the reply to the client's, and reads until the connection
/// ends. Without the reads, the frame may stay in the buffer and the client sees an abnormal closure.
async fn close(socket: &mut WebSocket) {
    if let Err(error) = socket.send(Frame::Close(None)).await {
        tracing::debug!(%error, "the client closed the WebSocket first");
    }
    let finish = async { while let Some(Ok(_)) = socket.recv().await {} };
    if tokio::time::timeout(CLOSE_TIMEOUT, finish).await.is_err() {
        tracing::debug!("the client did not answer the close frame of a WebSocket");
    }
}

/// The records that an event is about.
struct SubjectRecords {
    inbox: mailonce_core::inbox::Inbox,
    message: Option<mailonce_core::inbox::message::Message>,
    thread: Option<mailonce_core::conversation::thread::Thread>,
    text: Option<String>,
    email: Option<(mailonce_core::outbound::email::Email, String)>,
}

fn error_json(problem: &Problem) -> Value {
    let (_, name, _) = crate::dialects::agentmail::errors::classify(problem);
    json!({ "type": "error", "name": name, "message": problem.detail })
}

/// Sends a JSON frame. Returns false when the connection is closed.
async fn send_json(socket: &mut WebSocket, body: &Value) -> bool {
    socket.send(Frame::Text(body.to_string().into())).await.is_ok()
}

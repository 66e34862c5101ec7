//! AgentMail's WebSocket: whoever subscribes hears of events as they happen, from the same log as everybody else.

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
    problem::{Code, FieldError, Problem},
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

use super::{AgentMail, AgentMailResult, query::AgentMailQuery};
use crate::dialects::agentmail::event_format::{self, EventContext};
use crate::{
    api::{
        App,
        door::{authenticate, bearer},
    },
    dialects::{DialectContract as _, DialectError},
};

/// A sign of life when nothing happens.
const PING_INTERVAL: Duration = Duration::from_secs(15);
/// Octets of a frame that a client may send: a wish, and nothing more.
const MAX_FRAME_OCTETS: usize = 64 * 1024;
/// Inboxes and pods that one wish names.
const MAX_IDS: usize = 100;

/// What a client wants to hear of.
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

/// What a client hears of.
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

/// Opens a socket for whoever has a credential, in the header or in the address.
pub(super) async fn open(app: App, request: Request) -> AgentMailResult {
    let (mut parts, _) = request.into_parts();
    let query = AgentMailQuery::parse(parts.uri.query().unwrap_or_default());
    let credential = bearer(&parts.headers).or_else(|| query.last("api_key")).map(str::to_owned);
    let found = authenticate(&app, &parts.extensions, credential.as_deref(), Channel::Agentmail).await?;
    let Some(caller) = found else { return Err(DialectError::from_response(AgentMail::unauthorized())) };
    caller.require_scope(ApiKeyScope::Read)?;
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &app).await;
    let not_one = |why: WebSocketUpgradeRejection| Problem::new(Code::InvalidField, why.body_text());
    let upgrade = upgrade.map_err(not_one)?.max_message_size(MAX_FRAME_OCTETS).max_frame_size(MAX_FRAME_OCTETS);
    // From here on: what happens between the opening and the wish is not lost to a client that asks at once.
    let reader = app.engine.follow_events(&caller, None, EventSelection::default()).await?;
    let session = SocketSession { engine: Arc::clone(&app.engine), caller, reader, subscription: None };
    let response: Response = upgrade.on_upgrade(|socket| Box::pin(session.run(socket)));
    Ok(response)
}

impl SocketSession {
    async fn run(mut self, mut socket: WebSocket) {
        loop {
            let done = tokio::select! {
                said = socket.recv() => match said {
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
        if let Err(error) = socket.send(Frame::Close(None)).await {
            tracing::debug!(%error, "closing a socket");
        }
    }

    /// Hears a client. True when it goes.
    async fn handle_frame(&mut self, socket: &mut WebSocket, frame: Frame) -> bool {
        let text = match frame {
            Frame::Text(text) => text,
            Frame::Close(_) => return true,
            Frame::Binary(_) => return !send_json(socket, &error_json(&invalid_field("a frame", "is text"))).await,
            Frame::Ping(_) | Frame::Pong(_) => return false,
        };
        let answer = match self.subscribe(&text).await {
            Ok(answer) => answer,
            Err(problem) => error_json(&problem),
        };
        !send_json(socket, &answer).await
    }

    async fn subscribe(&mut self, text: &str) -> Result<Value, Problem> {
        json_limits::check(text.as_bytes()).map_err(|excess| invalid_field("a frame", &excess.to_string()))?;
        let body: SubscribeBody = serde_json::from_str(text)
            .map_err(|error| invalid_field("a frame", &format!("cannot be read: {error}")))?;
        if body.kind != "subscribe" {
            return Err(invalid_field("type", "is subscribe"));
        }
        let types = body.event_types.clone().unwrap_or_default();
        event_format::native_types(&types)?;
        let names = body.inbox_ids.clone().unwrap_or_default();
        if names.len() > MAX_IDS {
            return Err(invalid_field("inbox_ids", "names too many inboxes"));
        }
        let mut inboxes = Vec::new();
        for name in &names {
            inboxes.push(self.engine.inbox_by_address(&self.caller, name).await?.id);
        }
        let pods = body.pod_ids.clone().unwrap_or_default();
        if let Some(pod) = pods.iter().find(|pod| **pod != self.caller.team.id.to_string()) {
            return Err(Problem::new(Code::NotFound, format!("there is no pod {pod}")));
        }
        self.subscription = Some(Subscription { types, inboxes });
        let mut answer = json!({ "type": "subscribed" });
        let said = [("event_types", body.event_types), ("inbox_ids", body.inbox_ids), ("pod_ids", body.pod_ids)];
        for (name, list) in said {
            if let Some(list) = list {
                answer[name] = list.into();
            }
        }
        Ok(answer)
    }

    /// Tells a client what it wants to hear of. True when it is gone.
    async fn send_events(&self, socket: &mut WebSocket, lines: &[Arc<EventLine>]) -> bool {
        if lines.is_empty() {
            return socket.send(Frame::Ping(axum::body::Bytes::new())).await.is_err();
        }
        let Some(wanted) = &self.subscription else { return false };
        for line in lines {
            match self.format_event(wanted, line).await {
                Ok(Some(body)) => {
                    if !send_json(socket, &body).await {
                        return true;
                    }
                }
                Ok(None) => {}
                Err(problem) => {
                    // What cannot be told now would be lost: there is no cursor to come back with.
                    send_json(socket, &error_json(&problem)).await;
                    return true;
                }
            }
        }
        false
    }

    /// An event in AgentMail's words, if this client wants it.
    async fn format_event(&self, wanted: &Subscription, line: &EventLine) -> Result<Option<Value>, Problem> {
        let event: Value = serde_json::from_str(&line.json).unwrap_or_default();
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (Some(kind), Ok(about)) =
            (EventKind::parse(&word(&event["type"])), Uuid::try_parse(&word(&event["about"]["id"])))
        else {
            return Ok(None);
        };
        if !event_format::EVENT_TYPES.iter().any(|(_, known)| *known == kind) {
            return Ok(None);
        }
        let at = Time::parse(&word(&event["at"])).unwrap_or_default();
        let gathered = match self.load_subject(kind, about).await {
            Ok(gathered) => gathered,
            // It is gone since, or not for this credential.
            Err(problem) if problem.code == Code::NotFound => return Ok(None),
            Err(problem) => return Err(problem),
        };
        let fact = EventContext {
            kind,
            id: word(&event["id"]),
            at,
            data: &event["data"],
            inbox: Some(&gathered.inbox),
            message: gathered.message.as_ref(),
            thread: gathered.thread.as_ref(),
            text: gathered.text.as_deref(),
            email: gathered.email.as_ref().map(|(email, name)| (email, name.as_str())),
        };
        let here = wanted.inboxes.is_empty() || wanted.inboxes.contains(&gathered.inbox.id);
        let told = fact
            .format()
            .filter(|(name, _)| here && (wanted.types.is_empty() || wanted.types.iter().any(|one| one == name)));
        Ok(told.map(|(_, body)| body))
    }

    async fn load_subject(&self, kind: EventKind, about: Uuid) -> Result<SubjectRecords, Problem> {
        let (engine, caller) = (&self.engine, &self.caller);
        if kind != EventKind::MessageReceived {
            let email = engine.email(caller, EmailId(about)).await?;
            let inbox = engine.inbox_by_address(caller, &email.head.from).await?;
            let message_id = engine.cache_message_id(&email);
            return Ok(SubjectRecords {
                inbox,
                message: None,
                thread: None,
                text: None,
                email: Some((email, message_id)),
            });
        }
        let shown = engine.render_message(caller, MessageId(about), MessageView::Plain).await?;
        let text = match shown.body {
            RenderedBody::Plain { text } => Some(text),
            _ => None,
        };
        let message = shown.message;
        let inbox = engine.inbox(caller, message.inbox).await?;
        let (thread, _) = engine.thread(caller, ThreadId(message.thread.0)).await?;
        Ok(SubjectRecords { inbox, message: Some(message), thread: Some(thread), text, email: None })
    }
}

/// What an event is about.
struct SubjectRecords {
    inbox: mailonce_core::inbox::Inbox,
    message: Option<mailonce_core::inbox::message::Message>,
    thread: Option<mailonce_core::conversation::thread::Thread>,
    text: Option<String>,
    email: Option<(mailonce_core::outbound::email::Email, String)>,
}

fn invalid_field(path: &str, text: &str) -> Problem {
    Problem::from(vec![FieldError::new(path, text)])
}

fn error_json(problem: &Problem) -> Value {
    let (_, name, _) = crate::dialects::agentmail::errors::classify(problem);
    json!({ "type": "error", "name": name, "message": problem.detail })
}

/// Says something. False when nobody hears it.
async fn send_json(socket: &mut WebSocket, body: &Value) -> bool {
    socket.send(Frame::Text(body.to_string().into())).await.is_ok()
}

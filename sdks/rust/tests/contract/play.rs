//! How a scenario's call is made with this SDK, and how its result is compared.

use mailonce_sdk::{
    Client, EmailQuery, Error, EventQuery, Intent, Item, Mail, Mails, MessageQuery, NoticeQuery, Once, PageQuery,
    ThreadQuery, WaitFor, Work, WorkError,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{cell::Cell, time::Duration};

/// The arguments of a call, in the words of the wire.
struct Args<'a>(&'a Value);

impl Args<'_> {
    fn id(&self) -> &str {
        self.0["id"].as_str().unwrap_or_default()
    }

    fn body<T: DeserializeOwned>(&self) -> T {
        read(&self.0["body"])
    }

    fn query<T: DeserializeOwned>(&self) -> T {
        read(&self.0["query"])
    }

    fn text(&self, name: &str) -> Option<String> {
        self.0[name].as_str().map(str::to_owned)
    }

    fn work_time(&self) -> Duration {
        Duration::from_millis(self.0["work_ms"].as_u64().unwrap_or(0))
    }
}

fn read<T: DeserializeOwned>(value: &Value) -> T {
    let value = if value.is_null() { json!({}) } else { value.clone() };
    serde_json::from_value(value).expect("arguments of a scenario fit the types of the SDK")
}

fn shown(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("answers can be written")
}

/// A mail of the wire: in this SDK the intent stands beside it.
fn apart(body: &Value) -> (Mail, Option<Intent>) {
    let mut body = body.clone();
    let intent = body.as_object_mut().and_then(|members| members.remove("intent"));
    (read(&body), intent.map(|intent| read(&intent)))
}

/// Makes a call with the options of a scenario and shows its answer.
macro_rules! made {
    ($args:expr, $call:expr) => {{
        let mut call = $call;
        if let Some(key) = $args.text("idempotency_key") {
            call = call.idempotency_key(key);
        }
        if let Some(id) = $args.text("call_id") {
            call = call.call_id(&id);
        }
        Ok(shown(&call.await?))
    }};
}

pub(crate) async fn make(mo: &Client, call: &str, args: &Value) -> Result<Value, Error> {
    let args = Args(args);
    match call.split_once('.').expect("a call has a resource and a method") {
        ("emails", method) => emails(mo, method, &args).await,
        ("inboxes", method) => inboxes(mo, method, &args).await,
        ("messages", method) => messages(mo, method, &args).await,
        ("artifacts", method) => match method {
            "get" => made!(args, mo.artifacts.get(args.id())),
            "consume" => made!(args, mo.artifacts.consume(args.id(), &args.body())),
            "applied" => made!(args, mo.artifacts.applied(args.id(), &args.body())),
            other => panic!("artifacts.{other}"),
        },
        ("threads", method) => threads(mo, method, &args).await,
        ("events", method) => events(mo, method, &args).await,
        ("webhooks", method) => webhooks(mo, method, &args).await,
        (other, _) => panic!("there is no resource {other}"),
    }
}

async fn emails(mo: &Client, method: &str, args: &Args<'_>) -> Result<Value, Error> {
    match method {
        "send" => send(mo, args).await,
        "batch" => batch(mo, args).await,
        "get" => made!(args, mo.emails.get(args.id())),
        "list" => made!(args, mo.emails.list(&args.query::<EmailQuery>())),
        "each" => Ok(json!({ "data": shown(&mo.emails.each(args.query()).all().await?) })),
        "cancel" => made!(args, mo.emails.cancel(args.id())),
        "resend" => made!(args, mo.emails.resend(args.id(), &args.body())),
        "resolve" => made!(args, mo.emails.resolve(args.id(), &args.body())),
        "reschedule" => {
            let at = args.0["body"]["scheduled_at"].as_str().unwrap_or_default();
            made!(args, mo.emails.reschedule(args.id(), at))
        }
        other => panic!("emails.{other}"),
    }
}

async fn send(mo: &Client, args: &Args<'_>) -> Result<Value, Error> {
    let (mail, intent) = apart(&args.0["body"]);
    let once = if args.0["without_key"] == true {
        Once::without_key()
    } else {
        Once::from_parts(intent, args.text("idempotency_key"))?
    };
    let mut call = mo.emails.send(mail, once);
    if let Some(wait) = args.0["wait"].as_u64() {
        call = call.wait(wait as u32);
    }
    if let Some(id) = args.text("call_id") {
        call = call.call_id(&id);
    }
    Ok(shown(&call.await?))
}

async fn batch(mo: &Client, args: &Args<'_>) -> Result<Value, Error> {
    let items = args.0["body"].as_array().expect("a batch is a list").iter().map(apart);
    let items: Vec<Item> = items
        .map(|(mail, intent)| match intent {
            Some(intent) => (mail, intent).into(),
            None => mail.into(),
        })
        .collect();
    let call = mo.emails.batch(Mails::from_parts(items, args.text("idempotency_key"))?);
    Ok(shown(&if args.0["permissive"] == true { call.permissive().await? } else { call.await? }))
}

async fn inboxes(mo: &Client, method: &str, args: &Args<'_>) -> Result<Value, Error> {
    match method {
        "create" => made!(args, mo.inboxes.create(&args.body())),
        "get" => made!(args, mo.inboxes.get(args.id())),
        "list" => made!(args, mo.inboxes.list(&args.query::<PageQuery>())),
        "each" => Ok(json!({ "data": shown(&mo.inboxes.each(args.query()).all().await?) })),
        "update" => made!(args, mo.inboxes.update(args.id(), &args.body())),
        "delete" => made!(args, mo.inboxes.delete(args.id())),
        "messages" => made!(args, mo.inboxes.messages(args.id(), &args.query::<MessageQuery>())),
        "wait" => Ok(shown(&mo.inboxes.wait(args.id(), &args.query::<WaitFor>()).await?)),
        "consume" => made!(args, mo.inboxes.consume(args.id(), &args.body())),
        "watch" => made!(args, mo.inboxes.watch(args.id(), &args.body())),
        "next" => made!(args, mo.inboxes.next(args.id(), &args.body())),
        "work" => work(mo, args).await,
        other => panic!("inboxes.{other}"),
    }
}

async fn work(mo: &Client, args: &Args<'_>) -> Result<Value, Error> {
    let body = &args.0["body"];
    let how = Work {
        holder: body["holder"].as_str().map(str::to_owned),
        ttl_s: body["ttl_s"].as_u64().map(|ttl| ttl as u32),
        delay_s: None,
    };
    let (worked, done) = (std::sync::Mutex::new(Vec::new()), tokio::sync::Notify::new());
    let ended = mo
        .inboxes
        .work(args.id(), &how, done.notified(), async |message, _| {
            worked.lock().expect("nobody panicked").push(message.id);
            done.notify_one();
            tokio::time::sleep(args.work_time()).await;
            args.text("fail").map_or(Ok(()), Err)
        })
        .await;
    let failed = match ended {
        Ok(()) => None,
        Err(WorkError::Work(words)) => Some(words),
        Err(WorkError::Call(error)) => return Err(error),
    };
    Ok(json!({ "worked": worked.into_inner().expect("nobody panicked"), "failed": failed }))
}

async fn messages(mo: &Client, method: &str, args: &Args<'_>) -> Result<Value, Error> {
    match method {
        "get" => made!(args, mo.messages.view(args.id(), args.0["query"]["view"].as_str().unwrap_or("min"))),
        "raw" => {
            let file = mo.messages.raw(args.id()).await?;
            Ok(json!({ "content_type": file.content_type, "text": String::from_utf8_lossy(&file.content) }))
        }
        "attachment" => {
            let file = mo.messages.attachment(args.id(), args.0["n"].as_u64().unwrap_or(0)).await?;
            Ok(json!({ "content_type": file.content_type, "text": String::from_utf8_lossy(&file.content) }))
        }
        "artifacts" => made!(args, mo.messages.artifacts(args.id())),
        "reply" => {
            if let Some(wait) = args.0["wait"].as_u64() {
                return made!(args, mo.messages.reply(args.id(), &args.body()).wait(wait as u32));
            }
            made!(args, mo.messages.reply(args.id(), &args.body()))
        }
        "forward" => made!(args, mo.messages.forward(args.id(), &args.body())),
        "ack" => made!(args, mo.messages.ack(args.id(), &args.body())),
        "nack" => made!(args, mo.messages.nack(args.id(), &args.body())),
        "extend" => made!(args, mo.messages.extend(args.id(), &args.body())),
        other => panic!("messages.{other}"),
    }
}

async fn threads(mo: &Client, method: &str, args: &Args<'_>) -> Result<Value, Error> {
    match method {
        "get" => made!(args, mo.threads.get(args.id())),
        "list" => made!(args, mo.threads.list(&args.query::<ThreadQuery>())),
        "each" => Ok(json!({ "data": shown(&mo.threads.each(args.query()).all().await?) })),
        "update" => made!(args, mo.threads.update(args.id(), &args.body())),
        "lease" => {
            let lost = Cell::new(false);
            let shown = mo.threads.with_lease(args.id(), args.body(), async |lease| {
                tokio::time::sleep(args.work_time()).await;
                lost.set(lease.is_lost());
                Ok::<_, Error>(json!({ "token": lease.token, "fence": lease.fence }))
            });
            let shown = shown.await?;
            assert_eq!(lost.get(), args.0["lost"] == true, "whether the lease is lost");
            Ok(shown)
        }
        other => panic!("threads.{other}"),
    }
}

async fn events(mo: &Client, method: &str, args: &Args<'_>) -> Result<Value, Error> {
    match method {
        "list" => made!(args, mo.events.list(&args.query::<EventQuery>())),
        "stream" => {
            let mut followed = mo.events.stream(args.query());
            let mut data = Vec::new();
            while (data.len() as u64) < args.0["take"].as_u64().unwrap_or(0) {
                data.push(shown(&followed.next().await?));
            }
            Ok(json!({ "data": data }))
        }
        other => panic!("events.{other}"),
    }
}

async fn webhooks(mo: &Client, method: &str, args: &Args<'_>) -> Result<Value, Error> {
    match method {
        "create" => made!(args, mo.webhooks.create(&args.body())),
        "get" => made!(args, mo.webhooks.get(args.id())),
        "list" => made!(args, mo.webhooks.list(&args.query::<PageQuery>())),
        "update" => made!(args, mo.webhooks.update(args.id(), &args.body())),
        "delete" => made!(args, mo.webhooks.delete(args.id())),
        "rotate" => made!(args, mo.webhooks.rotate(args.id(), &args.body())),
        "pause" => made!(args, mo.webhooks.pause(args.id())),
        "resume" => made!(args, mo.webhooks.resume(args.id())),
        "test" => made!(args, mo.webhooks.test(args.id())),
        "replay" => made!(args, mo.webhooks.replay(args.id())),
        "notices" => made!(args, mo.webhooks.notices(args.id(), &args.query::<NoticeQuery>())),
        "recover" => made!(args, mo.webhooks.recover(args.id(), &args.body())),
        other => panic!("webhooks.{other}"),
    }
}

/// The parts of an error that scenarios speak of.
pub(crate) fn error_shown(error: &Error) -> Value {
    let retry = match error.retry {
        mailonce_sdk::Retry::Never => "never",
        mailonce_sdk::Retry::Same => "same",
        mailonce_sdk::Retry::Later => "later",
    };
    json!({
        "code": error.code, "status": error.status, "retry": retry, "next": error.next, "field": error.field,
        "details": error.details,
    })
}

/// What `found` lacks of what `wanted` names; `null` is absent.
pub(crate) fn lacks(wanted: &Value, found: &Value, at: &str) -> Option<String> {
    match wanted {
        Value::Object(members) => {
            members.iter().find_map(|(name, value)| lacks(value, &found[name], &format!("{at}.{name}")))
        }
        Value::Array(items) => {
            let others = found.as_array().map(Vec::as_slice).unwrap_or_default();
            if !found.is_array() || items.len() != others.len() {
                return Some(format!("{at} is {found}, wanted {wanted}"));
            }
            let mut pairs = items.iter().zip(others).enumerate();
            pairs.find_map(|(number, (item, other))| lacks(item, other, &format!("{at}[{number}]")))
        }
        _ if wanted == found => None,
        _ => Some(format!("{at} is {found}, wanted {wanted}")),
    }
}

//! `webhooks`: create and list endpoints, forward events to a local receiver, and replay notices.

use anyhow::Context as _;
use clap::{Args, Subcommand};
use hyper::Method;
use mailonce_core::{
    events::{notice::notice_id, webhook::OutgoingWebhook},
    id::{EndpointId, EventId},
    ports::webhook_client::WebhookClient as _,
};
use mailonce_engine::events::endpoints::{secret_bytes, secret_text};
use mailonce_transport::{
    egress::{Cidr, EgressPolicy},
    http::base::percent_encode,
    webhook::HttpWebhookSender,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::{
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};
use uuid::Uuid;

use super::{
    ServerArgs, UsageError,
    client::CliClient,
    inbox::show,
    listing::{PageArgs, fetch_list, show_list},
    tail::{EventTail, TailArgs},
};
use crate::{
    cli::printer::{Printer, display_text, print_stderr},
    entropy::fresh_secret,
    tls::load_ca_file,
};

#[derive(Debug, Subcommand)]
pub(crate) enum WebhooksVerb {
    /// Create an endpoint: a URL that receives events as signed webhooks
    Create(Box<CreateEndpointArgs>),
    /// Forward events to a receiver on this machine, signed like webhooks
    Listen {
        #[command(flatten)]
        tail: TailArgs,
        /// URL of the receiver, such as http://127.0.0.1:3000/hooks
        #[arg(long, value_name = "URL")]
        forward_to: String,
        /// Secret to sign with; default: a new one, which is printed
        #[arg(long, env = "MAILONCE_WEBHOOK_SECRET", value_name = "WHSEC", hide_env_values = true)]
        secret: Option<String>,
    },
    /// Send a notice again, now and with the same id
    Replay {
        #[command(flatten)]
        server: ServerArgs,
        /// Id of the notice, which is the header `webhook-id` of its requests
        notice: String,
    },
    /// List endpoints and their state
    List {
        #[command(flatten)]
        server: ServerArgs,
        #[command(flatten)]
        page: PageArgs,
    },
}

/// A new endpoint.
#[derive(Debug, Args)]
pub(crate) struct CreateEndpointArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// URL that receives the webhooks
    #[arg(value_name = "ENDPOINT_URL")]
    endpoint: String,
    /// Event type such as email.sent, or family such as message.*; may be repeated; default: all
    #[arg(long = "event", value_name = "TYPE")]
    events: Vec<String>,
    /// Only events of this inbox (id); may be repeated; default: all
    #[arg(long = "inbox", value_name = "ID")]
    inboxes: Vec<String>,
    /// Description, for people
    #[arg(long)]
    description: Option<String>,
    /// Requests per second; default: no limit
    #[arg(long, value_name = "N")]
    rate_per_s: Option<u32>,
    /// Include the text of messages in message.received
    #[arg(long)]
    include_text: bool,
    /// Secret to sign with: whsec_ and base64; default: a new one, which is printed
    #[arg(long, env = "MAILONCE_WEBHOOK_SECRET", value_name = "WHSEC", hide_env_values = true)]
    secret: Option<String>,
    /// Send events after this cursor; `0` sends all there are; default: new events
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    /// Format and signature of another service: resend or usesend; default: mailonce
    #[arg(long)]
    dialect: Option<String>,
    /// Idempotency key: a retry with the same key returns the same endpoint
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

impl CreateEndpointArgs {
    /// The body of `POST /v1/endpoints`, without what was left out.
    fn to_body(&self) -> Value {
        let list = |values: &[String]| if values.is_empty() { Value::Null } else { json!(values) };
        let fields = [
            ("url", json!(self.endpoint)),
            ("events", list(&self.events)),
            ("inboxes", list(&self.inboxes)),
            ("description", json!(self.description)),
            ("rate_per_s", json!(self.rate_per_s)),
            ("include_text", json!(self.include_text.then_some(true))),
            ("secret", json!(self.secret)),
            ("after", json!(self.after)),
            ("dialect", json!(self.dialect)),
        ];
        let given = fields.into_iter().filter(|(_, value)| !value.is_null());
        Value::Object(given.map(|(name, value)| (name.to_owned(), value)).collect())
    }
}

/// Runs a verb of `webhooks`.
pub(super) async fn webhooks(out: &Printer, verb: WebhooksVerb) -> anyhow::Result<ExitCode> {
    match verb {
        WebhooksVerb::Create(args) => {
            let client = CliClient::find(&args.server)?;
            let (_, endpoint) =
                client.call(Method::POST, "/v1/endpoints", args.key.as_deref(), Some(&args.to_body())).await?;
            show(out, &endpoint, &["id", "url", "events", "inboxes", "state", "cursor", "secret"]);
            if !out.is_json() {
                print_stderr("Keep the secret: it is shown only now, and verifies the signature of each request.");
            }
        }
        WebhooksVerb::Listen { tail, forward_to, secret } => forward_events(out, &tail, forward_to, secret).await?,
        WebhooksVerb::Replay { server, notice } => {
            let path = format!("/v1/notices/{}/replay", percent_encode(&notice));
            let (_, notice) = CliClient::find(&server)?.call(Method::POST, &path, None, None).await?;
            if out.is_json() {
                out.print_json(&notice);
            } else {
                let [id, kind] = ["id", "type"].map(|name| display_text(&notice[name]));
                out.print_line(&format!("notice {id} ({kind}) is sent again"));
            }
        }
        WebhooksVerb::List { server, page } => {
            let page = fetch_list(&CliClient::find(&server)?, "/v1/endpoints", Vec::new(), &page).await?;
            show_list(out, &page, &["id", "state", "cursor", "~url"], |endpoint| {
                ["id", "state", "cursor", "url"].map(|name| display_text(&endpoint[name])).to_vec()
            });
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The notice id of a forwarded event. It depends only on the receiver and the event, like the id of an endpoint's
/// notice, so that a receiver can deduplicate.
fn forwarded_notice_id(url: &str, event: &Value) -> anyhow::Result<String> {
    let event: Uuid = event["id"].as_str().unwrap_or_default().parse().context("the event has no id")?;
    let digest = Sha256::digest(url.as_bytes());
    let receiver = digest.first_chunk().map(|half| Uuid::from_bytes(*half)).unwrap_or_default();
    Ok(notice_id(EndpointId(receiver), EventId(event)).to_string())
}

/// Forwards events until the user stops it. Every address is allowed, because the user typed it.
async fn forward_events(out: &Printer, tail: &TailArgs, url: String, secret: Option<String>) -> anyhow::Result<()> {
    let everywhere = ["0.0.0.0/0", "::/0"].map(str::parse::<Cidr>).into_iter().collect::<Result<_, _>>()?;
    let webhooks =
        HttpWebhookSender::new(EgressPolicy::new(everywhere, true), &load_ca_file(tail.server.ca_file.as_deref())?)?;
    webhooks.check_url(&url).map_err(|why| UsageError(format!("--forward-to {why}")))?;
    let secret_shown = secret.unwrap_or_else(|| secret_text(&fresh_secret()));
    let secret = secret_bytes(&secret_shown).map_err(|problem| UsageError(problem.detail))?;
    let mut events = EventTail::open(tail)?;
    print_stderr(&format!("forwarding to {url}, signed with {secret_shown}"));
    while let Some(event) = events.next().await? {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let notice_id = forwarded_notice_id(&url, &event)?;
        let post = OutgoingWebhook {
            url: url.clone(),
            id: notice_id.clone(),
            timestamp_s: at as i64,
            secrets: vec![secret.clone()],
            headers: Vec::new(),
            body: event.to_string().into_bytes(),
        };
        let result = webhooks.post(post).await;
        let (status, response) = match &result.response {
            Ok(reply) => (Some(reply.status), reply.status.to_string()),
            Err((_, why)) => (None, why.clone()),
        };
        if out.is_json() {
            let forwarded = json!({ "id": notice_id, "event": event["id"], "type": event["type"], "cursor": event["cursor"], "status": status, "ms": result.latency_ms, "response": response });
            out.print_json(&forwarded);
        } else {
            let response = if status.is_some_and(|status| (200..300).contains(&status)) {
                out.green(&response)
            } else {
                out.red(&response)
            };
            out.print_line(&format!("{response}  {}  {} ms", display_text(&event["type"]), result.latency_ms));
        }
    }
    Ok(())
}

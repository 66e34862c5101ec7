//! Webhooks at hand: a receiver on this machine without an endpoint, and telling again.

use anyhow::Context as _;
use clap::Subcommand;
use hyper::Method;
use mailonce_core::{
    events::{notice::notice_id, webhook::OutgoingWebhook},
    id::{EndpointId, EventId},
    ports::webhook_client::WebhookClient as _,
};
use mailonce_engine::events::endpoints::{secret_bytes, secret_text};
use mailonce_transport::{
    egress::{Cidr, EgressPolicy as Dialled},
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
    inbox::show_rows,
    tail::{EventTail, TailArgs},
};
use crate::{
    cli::printer::{Printer, display_text, print_stderr},
    engine_deps::load_ca_file,
    entropy::fresh_secret,
};

#[derive(Debug, Subcommand)]
pub(crate) enum WebhooksVerb {
    /// Forward events to a receiver on this machine as they happen, signed like every webhook
    Listen {
        #[command(flatten)]
        tail: TailArgs,
        /// Where to, such as http://127.0.0.1:3000/hooks
        #[arg(long, value_name = "URL")]
        forward_to: String,
        /// The secret to sign with; else a fresh one, which is printed
        #[arg(long, env = "MAILONCE_WEBHOOK_SECRET", value_name = "WHSEC", hide_env_values = true)]
        secret: Option<String>,
    },
    /// Tell a notice again, at once and under its id
    Replay {
        #[command(flatten)]
        reach: ServerArgs,
        /// The id of the notice, which is the `webhook-id` of its requests
        notice: String,
    },
    /// List endpoints and how they are
    List {
        #[command(flatten)]
        reach: ServerArgs,
    },
}

pub(super) async fn webhooks(out: &Printer, verb: WebhooksVerb) -> anyhow::Result<ExitCode> {
    match verb {
        WebhooksVerb::Listen { tail, forward_to, secret } => forward_events(out, &tail, forward_to, secret).await?,
        WebhooksVerb::Replay { reach, notice } => {
            let path = format!("/v1/notices/{}/replay", percent_encode(&notice));
            let (_, notice) = CliClient::find(&reach)?.call(Method::POST, &path, None, None).await?;
            if out.is_json() {
                out.print_json(&notice);
            } else {
                out.print_line(&format!(
                    "{} is told again: {}",
                    display_text(&notice["id"]),
                    display_text(&notice["type"])
                ));
            }
        }
        WebhooksVerb::List { reach } => {
            let page = CliClient::find(&reach)?.get("/v1/endpoints?limit=100").await?;
            show_rows(out, &page, &["id", "state", "cursor", "~url"], |endpoint| {
                ["id", "state", "cursor", "url"].map(|name| display_text(&endpoint[name])).to_vec()
            });
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The id under which a receiver is told of an event: one for each receiver and event, whoever forwards it and how
/// often, as an endpoint's notices have it.
fn forwarded_notice_id(url: &str, event: &Value) -> anyhow::Result<String> {
    let event: Uuid = event["id"].as_str().unwrap_or_default().parse().context("an event without an id")?;
    let sum = Sha256::digest(url.as_bytes());
    let receiver = sum.first_chunk().map(|half| Uuid::from_bytes(*half)).unwrap_or_default();
    Ok(notice_id(EndpointId(receiver), EventId(event)).to_string())
}

/// Forwards events until told to stop. Whoever types the address may have anything dialled.
async fn forward_events(out: &Printer, tail: &TailArgs, url: String, secret: Option<String>) -> anyhow::Result<()> {
    let everywhere = ["0.0.0.0/0", "::/0"].map(str::parse::<Cidr>).into_iter().collect::<Result<_, _>>()?;
    let webhooks =
        HttpWebhookSender::new(Dialled::new(everywhere, true), &load_ca_file(tail.reach.ca_file.as_deref())?)?;
    webhooks.check_url(&url).map_err(|why| UsageError(format!("--forward-to {why}")))?;
    let shown = secret.unwrap_or_else(|| secret_text(&fresh_secret()));
    let secret = secret_bytes(&shown).map_err(|problem| UsageError(problem.detail))?;
    let mut events = EventTail::open(tail)?;
    print_stderr(&format!("forwarding to {url}, signed with {shown}"));
    while let Some(event) = events.next().await? {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let told_as = forwarded_notice_id(&url, &event)?;
        let post = OutgoingWebhook {
            url: url.clone(),
            id: told_as.clone(),
            timestamp_s: at as i64,
            secrets: vec![secret.clone()],
            headers: Vec::new(),
            body: event.to_string().into_bytes(),
        };
        let told = webhooks.post(post).await;
        let (status, said) = match &told.response {
            Ok(reply) => (Some(reply.status), reply.status.to_string()),
            Err((_, why)) => (None, why.clone()),
        };
        if out.is_json() {
            let forwarded = json!({ "id": told_as, "event": event["id"], "type": event["type"], "cursor": event["cursor"], "status": status, "ms": told.latency_ms, "said": said });
            out.print_json(&forwarded);
        } else {
            let said = if status.is_some_and(|status| (200..300).contains(&status)) {
                out.green(&said)
            } else {
                out.red(&said)
            };
            out.print_line(&format!("{said}  {}  {} ms", display_text(&event["type"]), told.latency_ms));
        }
    }
    Ok(())
}

//! Senders that deliver mail until it is acknowledged, and agents that wait for codes and consume them.

use crate::crash::failpoints::Trigger;
use crate::crash::inbound_delivery;
use crate::crash::injected_mail::{INBOXES, InjectedMail, InjectedMailKind};
use crate::crash::operations::{self, OperationGenerator};
use crate::crash::recording_client::TeamCredential;
use crate::crash::workload::{Workload, lock};
use crate::harness::http::{self, HttpReply};
use crate::proof::history::{ConsumeTry, ConsumedCode, DeliveryTry};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

/// Consumers that compete for each code.
const CONSUMERS: u64 = 2;
/// How often unacknowledged mail is redelivered at the end.
const REDELIVERY_ROUNDS: usize = 20;
/// Seconds that an agent waits for a mail.
const WAIT_SECONDS: u64 = 2;

impl Workload {
    /// Runs one inbound operation, usually the one that triggers the failpoint.
    pub(super) fn run_inbound_operation(
        &self,
        source: &OperationGenerator,
        at: SocketAddr,
        n: u64,
        trigger: Option<Trigger>,
    ) {
        let what = match trigger {
            Some(Trigger::InboundSmtp) => InjectedMailKind::Smtp,
            Some(Trigger::InboundHook) => InjectedMailKind::Hook,
            Some(Trigger::InboundLarge) => InjectedMailKind::Large,
            Some(Trigger::ReplyToPerson) => InjectedMailKind::Person,
            _ if n.is_multiple_of(5) => InjectedMailKind::Person,
            _ => InjectedMailKind::Any,
        };
        let mail = source.draw_mail(n, what, lock(&self.teams).len());
        lock(&self.sent_mail).push(mail.clone());
        self.deliver(at, &mail);
        // Some senders deliver again although they were acknowledged.
        if n.is_multiple_of(3) {
            self.deliver(at, &mail);
        }
        if what == InjectedMailKind::Person {
            self.reply_from_agents(at, &mail);
        } else if trigger == Some(Trigger::ConsumeCode) || n.is_multiple_of(2) {
            let _heard = self.wait_for_message(at, &mail);
            (0..CONSUMERS).for_each(|consumer| self.consume_code(at, &mail, (n + consumer) % CONSUMERS));
        }
    }

    /// Delivers a mail once and records the reply.
    fn deliver(&self, at: SocketAddr, mail: &InjectedMail) {
        let channel = if mail.by_hook { "hook" } else { "smtp" };
        let path = lock(&self.inbound_hook_path).clone();
        let stream = match (&path, mail.by_hook) {
            // Mail must not be refused because its inbox does not exist yet.
            (None, _) => return,
            (_, true) => http::connect(at).ok(),
            (_, false) => self.smtp_addresses.smtp_address(at).and_then(|door| http::connect(door).ok()),
        };
        // No connection, so nothing was delivered.
        let Some(mut stream) = stream else { return };
        self.client.track_connection(&stream);
        let delivery_tries: Vec<DeliveryTry> = mail
            .inboxes
            .iter()
            .map(|inbox| DeliveryTry {
                channel: channel.to_owned(),
                inbox: inbox.clone(),
                message_id: mail.message_id.clone(),
                sender: mail.sender.clone(),
                code: mail.code.clone(),
                ..DeliveryTry::default()
            })
            .collect();
        let tries = self.client.begin_deliveries(delivery_tries);
        let end = match (&path, mail.by_hook) {
            (Some(path), true) => inbound_delivery::deliver_by_hook(&mut stream, path, mail),
            _ => inbound_delivery::deliver_by_smtp(stream, mail),
        };
        if let Err(why) = &end
            && why.to_string().contains("refused")
        {
            lock(&self.unexpected_refusals).push(format!("{}: {why:#}", mail.name));
        }
        self.client.end_deliveries(tries, end.unwrap_or(false));
    }

    /// Waits for a mail as an agent does. The reply is not checked, since the ledger has the mail.
    fn wait_for_message(&self, at: SocketAddr, mail: &InjectedMail) -> Option<HttpReply> {
        let (inbox, sender, TeamCredential { credential, .. }) =
            (&mail.inboxes[0], &mail.sender, self.team_of_inbox(&mail.inboxes[0]));
        let has = if mail.code.is_empty() { "" } else { "&has=code" };
        let request = format!(
            "GET /v1/inboxes/{inbox}/wait?timeout={WAIT_SECONDS}{has}&from={sender} HTTP/1.1\r\nHost: {at}\r\n\
             Authorization: Bearer {credential}\r\n\r\n"
        );
        let mut stream = http::connect(at).ok()?;
        self.client.track_connection(&stream);
        // A crashed server does not reply, and a timeout has no body.
        let _patience = stream.set_read_timeout(Some(Duration::from_secs(WAIT_SECONDS)));
        http::exchange_on(&mut stream, request.as_bytes()).ok()
    }

    /// Several agents read a person's mail, and each sends its own reply.
    fn reply_from_agents(&self, at: SocketAddr, mail: &InjectedMail) {
        let heard = self.wait_for_message(at, mail).unwrap_or_default();
        let Some(message) = heard.body["message"]["id"].as_str() else { return };
        for agent in 0..CONSUMERS {
            let reply_request = operations::reply_call(self.team_index(&mail.inboxes[0]), message, &mail.sender, agent);
            lock(&self.requests).push(reply_request.clone());
            self.send(at, &reply_request);
        }
    }

    /// Consumes the code of a mail for a consumer.
    fn consume_code(&self, at: SocketAddr, mail: &InjectedMail, consumer: u64) {
        let (inbox, team) = (&mail.inboxes[0], self.team_of_inbox(&mail.inboxes[0]));
        let Ok(mut stream) = http::connect(at) else { return };
        self.client.track_connection(&stream);
        let purpose = format!("run-{consumer}");
        let body = json!({"type": "code", "for": purpose, "match": {"from": mail.sender}}).to_string();
        let request = format!(
            "POST /v1/inboxes/{inbox}/consume HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            team.credential,
            body.len()
        );
        let take = ConsumeTry {
            team: team.name,
            inbox: inbox.clone(),
            sender: mail.sender.clone(),
            purpose,
            ..ConsumeTry::default()
        };
        let index = self.client.begin_consume(take);
        let (consumed, refused) = match http::exchange_on(&mut stream, request.as_bytes()) {
            Ok(HttpReply { status: 200, body, .. }) => {
                let field = |name: &str| body["artifact"][name].as_str().unwrap_or_default().to_owned();
                (Some(ConsumedCode { artifact: field("id"), value: field("value") }), String::new())
            }
            Ok(HttpReply { body, .. }) => (None, body["code"].as_str().unwrap_or("no_code").to_owned()),
            Err(_) => (None, String::new()),
        };
        self.client.end_consume(index, consumed, refused);
    }

    /// Replays a dead delivery.
    pub(super) fn replay_delivery(&self, at: SocketAddr, team: &TeamCredential, id: &str) {
        let request = format!(
            "POST /v1/deliveries/{id}/replay HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {}\r\n\
             Content-Length: 0\r\n\r\n",
            team.credential
        );
        // The checkers report a delivery that stays dead.
        let _answer = http::exchange(at, request.as_bytes());
    }

    /// The team of an inbox.
    fn team_of_inbox(&self, inbox: &str) -> TeamCredential {
        self.team(self.team_index(inbox))
    }

    /// The index of an inbox's team.
    fn team_index(&self, inbox: &str) -> usize {
        let known = INBOXES.iter().find(|(_, address)| *address == inbox).map_or(0, |(team, _)| *team);
        known.min(lock(&self.teams).len().saturating_sub(1))
    }

    /// Creates the inboxes and the source of received mail. Repeating it has no effect.
    pub(super) fn open_inboxes(&self, at: SocketAddr, timeout: Duration) -> Result<()> {
        for (team, address) in INBOXES {
            let credential = self.team(team).credential;
            let body = json!({"address": address, "client_id": address}).to_string();
            let request = format!(
                "POST /v1/inboxes HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {credential}\r\n\
                 Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            let made = http::exchange_within(at, request.as_bytes(), timeout)?;
            ensure!(matches!(made.status, 200..=201), "no inbox {address}: {} {}", made.status, made.body);
        }
        let body = json!({"name": "mail", "kind": "standard", "accepts": ["inbound"], "secret": inbound_delivery::INBOUND_HOOK_SECRET});
        let made = http::post_within(timeout, at, "/v1/sources", Some("mail"), &body)?;
        let path = made.body["hook_path"].as_str().with_context(|| format!("no source: {}", made.body))?;
        *lock(&self.inbound_hook_path) = Some(path.to_owned());
        Ok(())
    }

    /// Redelivers every unacknowledged mail, and repeats every unanswered consume.
    pub(super) fn redeliver_unacknowledged(&self, at: SocketAddr) -> Result<()> {
        for _ in 0..REDELIVERY_ROUNDS {
            let (open, unserved) = (self.unacknowledged(), self.unanswered_consumes());
            if open.is_empty() && unserved.is_empty() {
                let refusals = lock(&self.unexpected_refusals).clone();
                ensure!(refusals.is_empty(), "mail was refused: {}", refusals.join("; "));
                return Ok(());
            }
            open.iter().for_each(|mail| self.deliver(at, mail));
            unserved.iter().for_each(|(mail, consumer)| self.consume_code(at, mail, *consumer));
        }
        bail!(
            "{} mails were never acknowledged, {} takes never answered",
            self.unacknowledged().len(),
            self.unanswered_consumes().len()
        )
    }

    /// Mails that were delivered and never acknowledged.
    fn unacknowledged(&self) -> Vec<InjectedMail> {
        let history = self.client.history();
        let delivery_tries = &history.inbound.delivery_tries;
        let known: BTreeSet<&str> = delivery_tries.iter().map(|one| one.message_id.as_str()).collect();
        let acknowledged = delivery_tries.iter().filter(|one| one.acknowledged).map(|one| one.message_id.as_str());
        let acknowledged: BTreeSet<&str> = acknowledged.collect();
        let mails = lock(&self.sent_mail);
        let open = |mail: &&InjectedMail| {
            known.contains(mail.message_id.as_str()) && !acknowledged.contains(mail.message_id.as_str())
        };
        mails.iter().filter(open).cloned().collect()
    }

    /// Consume calls that were never answered, with their mails.
    fn unanswered_consumes(&self) -> Vec<(InjectedMail, u64)> {
        let history = self.client.history();
        let consume_tries = &history.inbound.consume_tries;
        let mails = lock(&self.sent_mail);
        let mut open = Vec::new();
        for mail in mails.iter() {
            for consumer in 0..CONSUMERS {
                let purpose = format!("run-{consumer}");
                let own = |take: &&ConsumeTry| {
                    take.sender == mail.sender && take.inbox == mail.inboxes[0] && take.purpose == purpose
                };
                if consume_tries.iter().any(|take| own(&take))
                    && !consume_tries.iter().filter(own).any(ConsumeTry::is_answered)
                {
                    open.push((mail.clone(), consumer));
                }
            }
        }
        open
    }
}

//! Senders that bring mail until it is acknowledged, and agents that wait for codes and take them.

use super::callers::{Callers, held};
use super::client::Team;
use super::deed::{self, Source};
use super::door;
use super::mail::{INBOXES, Mail, Trait};
use super::table::Bait;
use crate::proof::history::{Brought, Got, Take};
use crate::rig::http::{self, Reply};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

/// Consumers that want each code.
const CONSUMERS: u64 = 2;
/// How often what was not acknowledged is brought again in the end.
const TRIES: usize = 20;
/// Seconds that an agent waits for a mail.
const WAITS: u64 = 2;

impl Callers {
    /// Does something about mail that comes in, most of it what leads to the point.
    pub(super) fn receive(&self, source: &Source, at: SocketAddr, n: u64, bait: Option<Bait>) {
        let what = match bait {
            Some(Bait::Letter) => Trait::Letter,
            Some(Bait::Parcel) => Trait::Parcel,
            Some(Bait::Large) => Trait::Large,
            Some(Bait::Person) => Trait::Person,
            _ if n.is_multiple_of(5) => Trait::Person,
            _ => Trait::Any,
        };
        let mail = source.incoming(n, what, held(&self.teams).len());
        held(&self.mails).push(mail.clone());
        self.bring(at, &mail);
        // Some senders come again although they were heard.
        if n.is_multiple_of(3) {
            self.bring(at, &mail);
        }
        if what == Trait::Person {
            self.answer(at, &mail);
        } else if bait == Some(Bait::Code) || n.is_multiple_of(2) {
            let _heard = self.wait(at, &mail);
            (0..CONSUMERS).for_each(|consumer| self.take(at, &mail, (n + consumer) % CONSUMERS));
        }
    }

    /// Brings a mail once, and writes down what its sender was told.
    fn bring(&self, at: SocketAddr, mail: &Mail) {
        let way = if mail.hook { "hook" } else { "smtp" };
        let path = held(&self.inbound).clone();
        let stream = match (&path, mail.hook) {
            // Before the inboxes are there nobody may be refused.
            (None, _) => return,
            (_, true) => http::connect(at).ok(),
            (_, false) => self.doors.smtp(at).and_then(|door| http::connect(door).ok()),
        };
        // Nobody listened, so nothing was brought.
        let Some(mut stream) = stream else { return };
        self.client.holds(&stream);
        let brought: Vec<Brought> = mail
            .inboxes
            .iter()
            .map(|inbox| Brought {
                way: way.to_owned(),
                inbox: inbox.clone(),
                message_id: mail.message_id.clone(),
                sender: mail.sender.clone(),
                code: mail.code.clone(),
                ..Brought::default()
            })
            .collect();
        let tries = self.client.brings(brought);
        let end = match (&path, mail.hook) {
            (Some(path), true) => door::by_hook(&mut stream, path, mail),
            _ => door::by_smtp(stream, mail),
        };
        if let Err(why) = &end
            && why.to_string().contains("refused")
        {
            held(&self.trouble).push(format!("{}: {why:#}", mail.name));
        }
        self.client.brought(tries, end.unwrap_or(false));
    }

    /// Waits for a mail, as an agent does. What it hears is in the ledger anyway.
    fn wait(&self, at: SocketAddr, mail: &Mail) -> Option<Reply> {
        let (inbox, sender, Team { credential, .. }) = (&mail.inboxes[0], &mail.sender, self.owner(&mail.inboxes[0]));
        let has = if mail.code.is_empty() { "" } else { "&has=code" };
        let request = format!(
            "GET /v1/inboxes/{inbox}/wait?timeout={WAITS}{has}&from={sender} HTTP/1.1\r\nHost: {at}\r\n\
             Authorization: Bearer {credential}\r\n\r\n"
        );
        let mut stream = http::connect(at).ok()?;
        self.client.holds(&stream);
        // A server that dies of it does not answer, and one that has nothing answers without a body.
        let _patience = stream.set_read_timeout(Some(Duration::from_secs(WAITS)));
        http::converse(&mut stream, request.as_bytes()).ok()
    }

    /// Some agents see the mail of a person, and each has an answer of its own.
    fn answer(&self, at: SocketAddr, mail: &Mail) {
        let heard = self.wait(at, mail).unwrap_or_default();
        let Some(message) = heard.body["message"]["id"].as_str() else { return };
        for agent in 0..CONSUMERS {
            let wish = deed::answer(self.place(&mail.inboxes[0]), message, &mail.sender, agent);
            held(&self.wishes).push(wish.clone());
            self.ask(at, &wish);
        }
    }

    /// Takes the code of a mail for a consumer.
    fn take(&self, at: SocketAddr, mail: &Mail, consumer: u64) {
        let (inbox, team) = (&mail.inboxes[0], self.owner(&mail.inboxes[0]));
        let Ok(mut stream) = http::connect(at) else { return };
        self.client.holds(&stream);
        let purpose = format!("run-{consumer}");
        let body = json!({"type": "code", "for": purpose, "match": {"from": mail.sender}}).to_string();
        let request = format!(
            "POST /v1/inboxes/{inbox}/consume HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            team.credential,
            body.len()
        );
        let take =
            Take { team: team.name, inbox: inbox.clone(), sender: mail.sender.clone(), purpose, ..Take::default() };
        let place = self.client.takes(take);
        let (got, refused) = match http::converse(&mut stream, request.as_bytes()) {
            Ok(Reply { status: 200, body, .. }) => {
                let word = |name: &str| body["artifact"][name].as_str().unwrap_or_default().to_owned();
                (Some(Got { artifact: word("id"), value: word("value") }), String::new())
            }
            Ok(Reply { body, .. }) => (None, body["code"].as_str().unwrap_or("no_code").to_owned()),
            Err(_) => (None, String::new()),
        };
        self.client.took(place, got, refused);
    }

    /// Lets a delivery that was given up be read again.
    pub(super) fn replay(&self, at: SocketAddr, team: &Team, id: &str) {
        let request = format!(
            "POST /v1/deliveries/{id}/replay HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {}\r\n\
             Content-Length: 0\r\n\r\n",
            team.credential
        );
        // What is not replayed is found dead by the judges.
        let _answer = http::exchange(at, request.as_bytes());
    }

    /// The team of an inbox.
    fn owner(&self, inbox: &str) -> Team {
        self.team(self.place(inbox))
    }

    /// Its place among the teams.
    fn place(&self, inbox: &str) -> usize {
        let known = INBOXES.iter().find(|(_, address)| *address == inbox).map_or(0, |(team, _)| *team);
        known.min(held(&self.teams).len().saturating_sub(1))
    }

    /// Makes the inboxes and the source that brings mail, each once however often it is asked for.
    pub(super) fn open_inboxes(&self, at: SocketAddr, patience: Duration) -> Result<()> {
        for (team, address) in INBOXES {
            let credential = self.team(team).credential;
            let body = json!({"address": address, "client_id": address}).to_string();
            let request = format!(
                "POST /v1/inboxes HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {credential}\r\n\
                 Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            let made = http::exchange_within(at, request.as_bytes(), patience)?;
            ensure!(matches!(made.status, 200..=201), "no inbox {address}: {} {}", made.status, made.body);
        }
        let body = json!({"name": "mail", "kind": "standard", "takes": ["inbound"], "secret": door::SECRET});
        let made = http::post_within(patience, at, "/v1/sources", Some("mail"), &body)?;
        let path = made.body["path"].as_str().with_context(|| format!("no source: {}", made.body))?;
        *held(&self.inbound) = Some(path.to_owned());
        Ok(())
    }

    /// Brings every mail that was never acknowledged, and lets every consumer be answered.
    pub(super) fn bring_the_rest(&self, at: SocketAddr) -> Result<()> {
        for _ in 0..TRIES {
            let (open, unserved) = (self.unacknowledged(), self.unserved());
            if open.is_empty() && unserved.is_empty() {
                let trouble = held(&self.trouble).clone();
                ensure!(trouble.is_empty(), "mail was refused: {}", trouble.join("; "));
                return Ok(());
            }
            open.iter().for_each(|mail| self.bring(at, mail));
            unserved.iter().for_each(|(mail, consumer)| self.take(at, mail, *consumer));
        }
        bail!(
            "{} mails were never acknowledged, {} takes never answered",
            self.unacknowledged().len(),
            self.unserved().len()
        )
    }

    /// Mails that were brought and never acknowledged.
    fn unacknowledged(&self) -> Vec<Mail> {
        let history = self.client.history();
        let brought = &history.inbound.brought;
        let known: BTreeSet<&str> = brought.iter().map(|one| one.message_id.as_str()).collect();
        let kept = brought.iter().filter(|one| one.acknowledged).map(|one| one.message_id.as_str());
        let kept: BTreeSet<&str> = kept.collect();
        let mails = held(&self.mails);
        let open = |mail: &&Mail| known.contains(mail.message_id.as_str()) && !kept.contains(mail.message_id.as_str());
        mails.iter().filter(open).cloned().collect()
    }

    /// Takes that were asked for and never answered, by the mail they were about.
    fn unserved(&self) -> Vec<(Mail, u64)> {
        let history = self.client.history();
        let takes = &history.inbound.takes;
        let mails = held(&self.mails);
        let mut open = Vec::new();
        for mail in mails.iter() {
            for consumer in 0..CONSUMERS {
                let purpose = format!("run-{consumer}");
                let own = |take: &&Take| {
                    take.sender == mail.sender && take.inbox == mail.inboxes[0] && take.purpose == purpose
                };
                if takes.iter().any(|take| own(&take)) && !takes.iter().filter(own).any(Take::is_answered) {
                    open.push((mail.clone(), consumer));
                }
            }
        }
        open
    }
}

//! Inboxes from which agents reply, and the mail that arrives there: from people, machines and ourselves.

use super::plan::WorldPlan;
use crate::proof::history::{DeliveryTry, EscalationRow, ReplyLimits};
use crate::world::clients::team_name;
use crate::world::cluster::SimulatedCluster;
use crate::world::code_mail::{self, SimulatedInbox};
use crate::world::world_state::WorldState;
use mailonce_core::{
    conversation::{caps::ReplyCaps, escalation::Escalation},
    id::SourceId,
    inbound::delivery::{DeliveryFormat, Intake},
    inbox::{
        InboxSettings,
        message::{Message, MessagePosition, MessageQuery, MessageState},
    },
    outbound::email::{Email, EmailState},
    ports::{
        conversation_store::ConversationStore as _,
        inbound_store::InboundStore as _,
        store::{Store as _, StoreError},
    },
    record::RecordKind,
};
use mailonce_engine::inbound::receive::IntakeMail;
use std::collections::BTreeSet;
use std::sync::Arc;
use uuid::Uuid;

/// Maximum number of rows that are read from an inbox.
const ROW_LIMIT: usize = 1_000;
/// A limit that no world reaches.
const UNREACHABLE_LIMIT: u32 = 50;
/// The window of the limit per thread, in milliseconds.
const CAP_WINDOW_MS: i64 = 300_000;

/// The reply limits of a world. One is tight, so that each is reached in some worlds.
pub(super) fn draw_reply_limits(plan: &WorldPlan) -> ReplyLimits {
    let (tight, caps) = match plan.seed % 6 {
        0 | 3 => ("window", (1, UNREACHABLE_LIMIT, UNREACHABLE_LIMIT, None)),
        1 => ("day", (UNREACHABLE_LIMIT, 2, UNREACHABLE_LIMIT, None)),
        4 => ("total", (UNREACHABLE_LIMIT, UNREACHABLE_LIMIT, UNREACHABLE_LIMIT, Some(2))),
        _ => ("person", (UNREACHABLE_LIMIT, UNREACHABLE_LIMIT, 2, None)),
    };
    let (per_window, per_day, per_person, per_thread) = caps;
    ReplyLimits {
        tight: tight.to_owned(),
        per_window: per_window as usize,
        window_ms: CAP_WINDOW_MS,
        per_day: per_day as usize,
        per_person: per_person as usize,
        per_thread,
        answers_soft: plan.seed.is_multiple_of(2),
    }
}

/// The settings of an inbox with these limits.
pub(super) fn inbox_settings(limits: &ReplyLimits) -> InboxSettings {
    let caps = ReplyCaps {
        per_window: limits.per_window as u32,
        window_ms: limits.window_ms,
        per_day: limits.per_day as u32,
        per_person: limits.per_person as u32,
        per_thread: limits.per_thread.map(|most| most as u32),
    };
    InboxSettings { caps: Some(caps), reply_to_likely_automatic: limits.answers_soft, ..InboxSettings::default() }
}

/// A received mail.
#[derive(Clone)]
pub(super) struct ConversationMail {
    pub(super) inbox: SimulatedInbox,
    number: usize,
    /// Its conversation.
    conversation: usize,
    kind: &'static str,
}

/// The mails of a world: two conversations, or one if there are few mails.
pub(super) fn draw_conversation_mail(shared: &WorldState, inboxes: &[SimulatedInbox]) -> Vec<ConversationMail> {
    let agent_inboxes: Vec<&SimulatedInbox> = inboxes.iter().filter(|inbox| inbox.has_agents).collect();
    let kinds = ["person", "person", "person", "person", "machine", "soft", "own"];
    let lines = 1 + shared.plan.conversation_mails / 3;
    let letter = |number: usize| {
        // A person writes the first mail of a conversation.
        let kind = if number < lines { "person" } else { shared.pick(&kinds) };
        ConversationMail {
            inbox: agent_inboxes[number % lines % agent_inboxes.len()].clone(),
            number,
            conversation: number % lines,
            kind,
        }
    };
    (0..shared.plan.conversation_mails).filter(|_| !agent_inboxes.is_empty()).map(letter).collect()
}

impl ConversationMail {
    fn message_id(&self) -> String {
        format!("<letter{}@people.example>", self.number)
    }

    fn sender(&self) -> String {
        match self.kind {
            "machine" => format!("machine{}@machines.example", self.conversation),
            "own" => self.inbox.address.clone(),
            // One person with two addresses.
            _ => format!("ann+{}@people.example", self.conversation),
        }
    }

    fn mime_bytes(&self) -> Vec<u8> {
        let (sender, to, id, line) = (self.sender(), &self.inbox.address, self.message_id(), self.conversation);
        let first = format!("<letter{line}@people.example>");
        let follows = if self.number == line {
            String::new()
        } else {
            format!("In-Reply-To: {first}\r\nReferences: {first}\r\n")
        };
        let sign = match self.kind {
            "machine" => "Auto-Submitted: auto-replied\r\n",
            "soft" => "Precedence: bulk\r\n",
            _ => "",
        };
        let head =
            format!("From: {sender}\r\nTo: {to}\r\nSubject: Question {line}\r\nMessage-ID: {id}\r\n{follows}{sign}");
        format!("{head}\r\nThis is letter {} and it asks something.\r\n", self.number).into_bytes()
    }

    fn to_incoming(&self, hook: bool) -> IntakeMail {
        IntakeMail {
            intake: if hook { Intake::Hook } else { Intake::Smtp },
            source: hook.then(|| (self.inbox.team, SourceId(Uuid::from_u128(11 + self.inbox.number as u128)))),
            provider_delivery_id: hook.then(|| format!("letter-{}", self.number)),
            ip: None,
            helo: None,
            sender: Some(self.sender()),
            recipients: vec![self.inbox.address.clone()],
            form: DeliveryFormat::Mime,
            raw: self.mime_bytes(),
        }
    }

    fn to_delivery_attempt(&self, hook: bool) -> DeliveryTry {
        DeliveryTry {
            channel: if hook { "hook" } else { "smtp" }.to_owned(),
            inbox: self.inbox.address.clone(),
            message_id: self.message_id(),
            sender: self.sender(),
            kind: self.kind.to_owned(),
            ..DeliveryTry::default()
        }
    }
}

/// One step: the next mails arrive, and others are redelivered.
pub(super) fn deliver_due_mail(cluster: &SimulatedCluster, letters: &[ConversationMail], step: usize) {
    let shared = &cluster.shared;
    let seen = &letters[..letters.len().min(2 * step + 2)];
    let mut turns: Vec<&ConversationMail> = letters.iter().skip(2 * step).take(2).collect();
    while !seen.is_empty() && shared.below(10) < 2 {
        turns.push(&seen[shared.below(seen.len() as u64) as usize]);
    }
    for letter in turns {
        let (Some(engine), hook) = (cluster.any_engine(), shared.below(2) == 0) else { continue };
        tokio::spawn(code_mail::deliver(
            Arc::clone(shared),
            engine,
            letter.to_delivery_attempt(hook),
            letter.to_incoming(hook),
        ));
    }
}

/// After all faults ended, redelivers every unacknowledged mail.
pub(super) async fn redeliver_unacknowledged(cluster: &SimulatedCluster, letters: &[ConversationMail]) {
    for letter in letters.iter().filter(|letter| !cluster.shared.is_acknowledged(&letter.message_id())) {
        let Some(engine) = cluster.any_engine() else { continue };
        code_mail::deliver(
            Arc::clone(&cluster.shared),
            engine,
            letter.to_delivery_attempt(false),
            letter.to_incoming(false),
        )
        .await;
    }
}

/// The messages of an inbox, oldest first.
pub(super) async fn inbox_messages(
    cluster: &SimulatedCluster,
    inbox: &SimulatedInbox,
) -> Result<Vec<Message>, StoreError> {
    let query = MessageQuery { position: MessagePosition::After(0), limit: ROW_LIMIT, ..MessageQuery::default() };
    Ok(cluster.store.messages(inbox.team, inbox.id, query).await?.rows)
}

/// Whether a held reply has no escalation yet, which a periodic task creates.
async fn has_pending_escalation(cluster: &SimulatedCluster) -> Result<bool, StoreError> {
    let held = |email: &Email| email.state() == EmailState::Held && email.head.answers.is_some();
    let asked: BTreeSet<String> = read_escalations(cluster).await?.into_iter().map(|question| question.email).collect();
    let stuck = cluster.store.held_or_unknown_emails(None, ROW_LIMIT).await?;
    Ok(stuck.iter().any(|email| held(email) && !asked.contains(&email.id.to_string())))
}

/// When the next unanswered message can be leased, or the next escalation is due, if there is one.
pub(super) async fn next_due(cluster: &SimulatedCluster) -> Result<Option<i64>, StoreError> {
    if cluster.shared.plan.conversation_mails == 0 {
        return Ok(None);
    }
    let mut due = has_pending_escalation(cluster).await?.then_some(0);
    for inbox in cluster.inboxes.iter().filter(|inbox| inbox.has_agents) {
        for message in inbox_messages(cluster, inbox).await? {
            if message.state != MessageState::Unanswered {
                continue;
            }
            let thread = cluster.store.thread(inbox.team, message.thread).await?;
            let leased = thread.and_then(|thread| thread.details.lease).map(|lease| lease.expires_at);
            let at = [leased, message.annotations.progress.not_before].into_iter().flatten().max().map_or(0, |at| at.0);
            due = Some(due.map_or(at, |due: i64| due.min(at)));
        }
    }
    Ok(due)
}

/// Records the escalations at the end.
pub(super) async fn read_escalations(cluster: &SimulatedCluster) -> Result<Vec<EscalationRow>, StoreError> {
    let rows = all_escalations(cluster).await?.into_iter().map(|asked| EscalationRow {
        reason: asked.reason.as_str().to_owned(),
        email: asked.about.email.map(|id| id.to_string()).unwrap_or_default(),
        message: asked.about.message.map(|id| id.to_string()).unwrap_or_default(),
    });
    Ok(rows.collect())
}

/// The escalations of all teams.
pub(super) async fn all_escalations(cluster: &SimulatedCluster) -> Result<Vec<Escalation>, StoreError> {
    let mut all = Vec::new();
    for caller in &cluster.callers {
        let page = cluster.store.records(caller.team.id, RecordKind::Escalation, None, ROW_LIMIT).await?;
        for record in page.rows {
            all.push(serde_json::from_str(&record.json).map_err(|why| StoreError::Corrupt(why.to_string()))?);
        }
    }
    Ok(all)
}

/// The name of an inbox's team.
pub(super) fn team_of_inbox(inbox: &SimulatedInbox) -> String {
    team_name(inbox.number)
}

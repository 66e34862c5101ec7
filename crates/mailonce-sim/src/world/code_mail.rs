//! Received mail with codes: senders deliver it by SMTP or webhook until it is acknowledged, and agents consume the
//! codes.

use crate::proof::history::{
    Artifact, ConsumeTry, ConsumedCode, DeliveryTry, InboundHistory, Message, ReplyLimits, ShownDelivery,
};
use crate::world::clients::{SimulatedClients, team_name};
use crate::world::cluster::SimulatedCluster;
use crate::world::conversation_mail;
use crate::world::world_state::WorldState;
use mailonce_core::{
    id::{InboxId, SourceId, TeamId},
    inbound::delivery::{DeliveryFormat, DeliveryQuery, DeliveryState, DeliverySuppression, Intake, ReceiveResult},
    inbox::{
        Inbox,
        artifact::ArtifactKind,
        message::{MessagePosition, MessageQuery},
    },
    ports::{inbound_store::InboundStore as _, store::StoreError},
    time::Time,
};
use mailonce_engine::{Engine, inbound::receive::IntakeMail, inbox::artifacts::ArtifactQuery};
use mailonce_store::memory::Memory;
use std::sync::Arc;
use uuid::Uuid;

/// Maximum number of rows that are read from an inbox.
const ROW_LIMIT: usize = 1_000;
/// Consumers that compete for each code.
const CONSUMERS_PER_CODE: u64 = 2;

/// An inbox of a world.
#[derive(Clone)]
pub(super) struct SimulatedInbox {
    pub(super) id: InboxId,
    pub(super) team: TeamId,
    pub(super) number: usize,
    pub(super) address: String,
    /// Whether agents reply from it; otherwise they wait for codes.
    pub(super) has_agents: bool,
}

/// Creates one inbox per team: with reply limits for agents, or for codes.
pub(super) async fn create_inboxes(
    store: &Memory,
    teams: &[TeamId],
    limits: Option<&ReplyLimits>,
) -> Result<Vec<SimulatedInbox>, StoreError> {
    let mut inboxes = Vec::new();
    for (number, team) in teams.iter().enumerate() {
        // Ids contain their time, and this one is older than all others.
        let (kind, local_part) = if limits.is_some() { (10, "desk") } else { (9, "agent") };
        let id = InboxId(Uuid::from_u128((kind << 32) | number as u128));
        let address = format!("{local_part}{number}@inbox.example");
        let inbox = Inbox {
            id,
            team: *team,
            rev: 1,
            address: address.clone(),
            client_id: None,
            created_at: Time(0),
            latest_seq: 0,
            settings: limits.map(conversation_mail::inbox_settings).unwrap_or_default(),
        };
        let _made = store.create_inbox(inbox, None).await?;
        inboxes.push(SimulatedInbox { id, team: *team, number, address, has_agents: limits.is_some() });
    }
    Ok(inboxes)
}

/// A mail.
#[derive(Clone)]
pub(super) struct CodeMail {
    inbox: SimulatedInbox,
    number: u64,
}

impl CodeMail {
    /// Two consecutive mails share sender and code.
    fn sender(&self) -> String {
        format!("no-reply@shop{}.example", self.number / 2)
    }

    fn code(&self) -> String {
        format!("{}", 402_625 + 1_111 * (self.number / 2))
    }

    fn message_id(&self) -> String {
        format!("<mail{}@shop.example>", self.number)
    }

    fn to_delivery_attempt(&self, hook: bool) -> DeliveryTry {
        DeliveryTry {
            channel: if hook { "hook" } else { "smtp" }.to_owned(),
            inbox: self.inbox.address.clone(),
            message_id: self.message_id(),
            sender: self.sender(),
            code: self.code(),
            ..DeliveryTry::default()
        }
    }

    fn to_incoming(&self, hook: bool) -> IntakeMail {
        let (sender, code, message_id) = (self.sender(), self.code(), self.message_id());
        let raw = format!(
            "From: {sender}\r\nTo: {}\r\nSubject: Your verification code\r\nMessage-ID: {message_id}\r\n\r\n\
             Your verification code is {code}.\r\nIt expires in 10 minutes.\r\n\r\nMail {}.\r\n",
            self.inbox.address, self.number
        );
        IntakeMail {
            intake: if hook { Intake::Hook } else { Intake::Smtp },
            source: hook.then(|| (self.inbox.team, SourceId(Uuid::from_u128(11 + self.inbox.number as u128)))),
            provider_delivery_id: hook.then(|| format!("mail-{}", self.number)),
            ip: None,
            helo: None,
            sender: Some(sender),
            recipients: vec![self.inbox.address.clone()],
            form: DeliveryFormat::Mime,
            raw: raw.into_bytes(),
        }
    }
}

/// The mails of a world.
pub(super) fn draw_code_mail(shared: &WorldState, inboxes: &[SimulatedInbox]) -> Vec<CodeMail> {
    let inboxes: Vec<&SimulatedInbox> = inboxes.iter().filter(|inbox| !inbox.has_agents).collect();
    let inbox = |number: usize| SimulatedInbox::clone(inboxes[number / 2 % inboxes.len()]);
    (0..shared.plan.code_mails).map(|number| CodeMail { inbox: inbox(number), number: number as u64 }).collect()
}

/// One step: the next mail arrives, others are redelivered, and agents consume codes.
pub(super) fn deliver_due_mail(
    cluster: &SimulatedCluster,
    clients: &SimulatedClients,
    mails: &[CodeMail],
    step: usize,
) {
    let shared = &cluster.shared;
    let seen = &mails[..mails.len().min(step + 1)];
    let mut turns: Vec<&CodeMail> = mails.iter().skip(step).take(1).collect();
    while !seen.is_empty() && shared.below(10) < 4 {
        turns.push(&seen[shared.below(seen.len() as u64) as usize]);
    }
    for mail in turns {
        let (Some(engine), hook) = (cluster.any_engine(), shared.below(2) == 0) else { continue };
        tokio::spawn(deliver(Arc::clone(shared), engine, mail.to_delivery_attempt(hook), mail.to_incoming(hook)));
    }
    while !seen.is_empty() && shared.below(10) < 5 {
        let (mail, consumer) = (&seen[shared.below(seen.len() as u64) as usize], shared.below(CONSUMERS_PER_CODE));
        let Some(engine) = cluster.any_engine() else { continue };
        tokio::spawn(consume_code(clients.clone(), engine, mail.clone(), consumer));
    }
}

/// After all faults ended, redelivers every unacknowledged mail and consumes every code.
pub(super) async fn redeliver_unacknowledged(
    cluster: &SimulatedCluster,
    clients: &SimulatedClients,
    mails: &[CodeMail],
) {
    for mail in mails {
        let Some(engine) = cluster.any_engine() else { continue };
        if !cluster.shared.is_acknowledged(&mail.message_id()) {
            deliver(
                Arc::clone(&cluster.shared),
                Arc::clone(&engine),
                mail.to_delivery_attempt(false),
                mail.to_incoming(false),
            )
            .await;
        }
        consume_code(clients.clone(), engine, mail.clone(), 0).await;
    }
}

/// Delivers a mail once.
pub(super) async fn deliver(
    shared: Arc<WorldState>,
    engine: Arc<Engine>,
    delivery_try: DeliveryTry,
    incoming: IntakeMail,
) {
    let index = shared.begin_delivery(delivery_try);
    let received = engine.inbound.receive_mail(incoming).await;
    let kept =
        |received: &[ReceiveResult]| matches!(received, [ReceiveResult::Stored(_) | ReceiveResult::Duplicate { .. }]);
    shared.end_delivery(index, received.is_ok_and(|received| kept(&received)));
}

/// Consumes the code of a mail.
async fn consume_code(clients: SimulatedClients, engine: Arc<Engine>, mail: CodeMail, consumer: u64) {
    let (caller, purpose) = (&clients.callers[mail.inbox.number], format!("run-{consumer}"));
    let index = clients.shared.begin_consume(ConsumeTry {
        team: team_name(mail.inbox.number),
        inbox: mail.inbox.address.clone(),
        sender: mail.sender(),
        purpose: purpose.clone(),
        ..ConsumeTry::default()
    });
    let wanted = ArtifactQuery { kind: ArtifactKind::Code, from: Some(mail.sender()), subject: None };
    let all = engine.ctx.cursor(0);
    let (consumed, refused) =
        match engine.artifacts.consume_latest_match(caller, mail.inbox.id, &wanted, (purpose, all), None).await {
            Ok(artifact) => (
                Some(ConsumedCode { artifact: artifact.id.to_string(), value: artifact.extracted.value }),
                String::new(),
            ),
            Err(problem) => (None, problem.code.as_str().to_owned()),
        };
    clients.shared.end_consume(index, consumed, refused);
}

/// An operator replays dead deliveries: a lost reply counts as a failed attempt at parsing.
pub(super) async fn replay_dead_deliveries(
    cluster: &SimulatedCluster,
    clients: &SimulatedClients,
) -> Result<(), StoreError> {
    for inbox in &cluster.inboxes {
        let query = DeliveryQuery { state: Some(DeliveryState::Dead), limit: ROW_LIMIT, ..DeliveryQuery::default() };
        for delivery in cluster.store.deliveries(inbox.team, query).await? {
            if let Some(engine) = cluster.any_engine() {
                // A delivery that is not replayed now is still dead in the next round.
                let _later = engine.inboxes.replay_delivery(&clients.callers[inbox.number], delivery.id).await;
            }
        }
    }
    Ok(())
}

/// When the next waiting delivery is due, if there is one.
pub(super) async fn next_due(cluster: &SimulatedCluster) -> Result<Option<i64>, StoreError> {
    let mut due = None::<i64>;
    for inbox in &cluster.inboxes {
        let query = DeliveryQuery { state: Some(DeliveryState::Waiting), limit: ROW_LIMIT, ..DeliveryQuery::default() };
        for delivery in cluster.store.deliveries(inbox.team, query).await? {
            due = [due, delivery.due_at.map(|at| at.0)].into_iter().flatten().min();
        }
    }
    Ok(due)
}

/// Records the inboxes at the end.
pub(super) async fn read_inboxes(cluster: &SimulatedCluster) -> Result<InboundHistory, StoreError> {
    let mut shown = InboundHistory::default();
    for inbox in &cluster.inboxes {
        let query = MessageQuery { position: MessagePosition::After(0), limit: ROW_LIMIT, ..MessageQuery::default() };
        for message in cluster.store.messages(inbox.team, inbox.id, query).await?.rows {
            shown.messages.push(Message {
                id: message.id.to_string(),
                team: team_name(inbox.number),
                inbox: inbox.address.clone(),
                seq: message.seq,
                message_id: message.head.message_id.clone().unwrap_or_default(),
                state: message.state.as_str().to_owned(),
                dead: message.annotations.progress.dead,
            });
        }
        for artifact in cluster.store.artifacts(inbox.team, inbox.id, None, 0, ROW_LIMIT).await? {
            shown.artifacts.push(Artifact {
                id: artifact.id.to_string(),
                inbox: inbox.address.clone(),
                sender: artifact.sender,
                value: artifact.extracted.value,
                found_at: artifact.found_at.0,
                consumed_for: artifact.consumption.map(|consumed| consumed.purpose),
            });
        }
        let query = DeliveryQuery { inbox: Some(inbox.id), limit: ROW_LIMIT, ..DeliveryQuery::default() };
        for delivery in cluster.store.deliveries(inbox.team, query).await? {
            shown.deliveries.push(ShownDelivery {
                id: delivery.id.to_string(),
                state: delivery.state.as_str().to_owned(),
                channel: delivery.details.intake.as_str().to_owned(),
                reason: delivery.suppressed.map(DeliverySuppression::as_str).unwrap_or_default().to_owned(),
                of: delivery.duplicate_of.map(|id| id.to_string()),
                message: delivery.message.map(|id| id.to_string()),
            });
        }
    }
    Ok(shown)
}

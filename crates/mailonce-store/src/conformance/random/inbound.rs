//! The calls for random steps with received mail, their answers, and what both stores return.

use mailonce_core::{
    id::{ArtifactId, DeliveryId, EmailId, InboxId, NodeId, TeamId, WatchId},
    inbound::delivery::{
        Delivery, DeliveryDetails, DeliveryFormat, DeliveryOutcome, DeliveryQuery, DeliveryState, DeliveryTarget,
        FetchedContent, InboundMail, LeasedDelivery, NewDelivery, ReceiveResult,
    },
    inbox::{
        CreateInboxResult, Inbox, InboxChangeResult, InboxEdit, InboxSettings,
        artifact::{Artifact, ConsumeRequest, ConsumeResult, HeldArtifacts, MarkAppliedResult},
        candidate_addresses,
        message::{FileMessageResult, Message, MessagePage, MessagePosition, MessageQuery, MessageState, NewMessage},
        watch::{SpendResendResult, Watch},
    },
    operation::{IdempotentResult, KeyedOperation},
    time::Time,
};
use uuid::Uuid;

use crate::conformance::{
    HOUR, TestStore,
    fixtures::{
        handoffs::node_id,
        inbound::{
            all_messages, automatic_message, consume_request, fetched_mail, from_own_address, from_sender, in_reply_to,
            keyed_delivery, new_inbox, new_message, unleased_mail, with_artifacts, with_passed_auth,
        },
    },
    next_id,
    random::{
        inbound_commands::{self, DeliverySpec, InboundCommand, MessageSpec, test_address},
        step::OperationSpec,
    },
};

/// A complete call, the same for both stores.
#[derive(Clone, Debug)]
pub(super) enum InboundCall {
    Create(Inbox, Option<KeyedOperation>),
    Change(InboxEdit, Option<KeyedOperation>),
    Remove(TeamId, InboxId),
    Find(Vec<String>),
    Receive(InboundMail),
    Lease(NodeId, usize),
    File(TeamId, DeliveryId, Box<NewMessage>),
    RecordOutcome(TeamId, DeliveryId, DeliveryOutcome),
    Replay(TeamId, DeliveryId),
    AttachFetched(TeamId, DeliveryId, FetchedContent),
    Consume(TeamId, ArtifactId, ConsumeRequest, Option<KeyedOperation>),
    MarkApplied(TeamId, ArtifactId, String),
    Watch(Watch, Option<KeyedOperation>),
    SpendResend(TeamId, WatchId, Option<KeyedOperation>),
    Nothing,
}

/// The answer of a store.
#[derive(Debug, PartialEq)]
pub(super) enum InboundAnswer {
    Create(IdempotentResult<CreateInboxResult>),
    Change(IdempotentResult<InboxChangeResult>),
    Inbox(Option<Inbox>),
    Receive(Vec<ReceiveResult>),
    Lease(Vec<LeasedDelivery>),
    File(FileMessageResult),
    Delivery(Option<Delivery>),
    Consume(IdempotentResult<ConsumeResult>),
    MarkApplied(MarkAppliedResult),
    Watch(IdempotentResult<Option<Watch>>),
    SpendResend(IdempotentResult<SpendResendResult>),
    Nothing,
}

pub(super) async fn call_store(store: &TestStore, request: InboundCall, now: Time) -> InboundAnswer {
    match request {
        InboundCall::Create(inbox, call) => InboundAnswer::Create(store.create_inbox(inbox, call).await.unwrap()),
        InboundCall::Change(edit, call) => InboundAnswer::Change(store.change_inbox(edit, call, now).await.unwrap()),
        InboundCall::Remove(team, id) => InboundAnswer::Inbox(store.remove_inbox(team, id, now).await.unwrap()),
        InboundCall::Find(candidates) => InboundAnswer::Inbox(store.inbox_by_address(&candidates).await.unwrap()),
        InboundCall::Receive(mail) => InboundAnswer::Receive(store.receive(mail, now).await.unwrap()),
        InboundCall::Lease(node, max) => InboundAnswer::Lease(store.lease_deliveries(node, max, now).await.unwrap()),
        InboundCall::File(team, id, message) => {
            InboundAnswer::File(store.file_message(team, id, *message, now).await.unwrap())
        }
        InboundCall::RecordOutcome(team, id, outcome) => {
            InboundAnswer::Delivery(store.record_delivery_outcome(team, id, outcome, now).await.unwrap())
        }
        InboundCall::Replay(team, id) => InboundAnswer::Delivery(store.replay_delivery(team, id, now).await.unwrap()),
        InboundCall::AttachFetched(team, id, content) => {
            InboundAnswer::Delivery(store.attach_fetched_content(team, id, content).await.unwrap())
        }
        InboundCall::Consume(team, id, consume, call) => {
            InboundAnswer::Consume(store.consume_artifact(team, id, consume, call, now).await.unwrap())
        }
        InboundCall::MarkApplied(team, id, purpose) => {
            InboundAnswer::MarkApplied(store.mark_artifact_applied(team, id, &purpose, now).await.unwrap())
        }
        InboundCall::Watch(watch, call) => InboundAnswer::Watch(store.create_watch(watch, call).await.unwrap()),
        InboundCall::SpendResend(team, id, call) => {
            InboundAnswer::SpendResend(store.spend_resend(team, id, call, now).await.unwrap())
        }
        InboundCall::Nothing => InboundAnswer::Nothing,
    }
}

/// What was created so far, in order.
#[derive(Default)]
pub(super) struct InboundState {
    inboxes: Vec<Inbox>,
    deliveries: Vec<(TeamId, DeliveryId)>,
    artifacts: Vec<ArtifactId>,
    watches: Vec<WatchId>,
    last: Option<InboundMail>,
}

/// An element by its recency; 0 is the latest.
fn by_recency<T: Clone>(all: &[T], recency: u8) -> Option<T> {
    all.iter().rev().nth(usize::from(recency) % all.len().max(1)).cloned()
}

impl InboundState {
    /// Records the result of a call.
    pub(super) fn record(&mut self, request: &InboundCall, answer: &InboundAnswer) {
        match answer {
            InboundAnswer::Create(IdempotentResult::Done(CreateInboxResult::Created(inbox))) => {
                self.inboxes.push(inbox.clone())
            }
            InboundAnswer::Change(IdempotentResult::Done(InboxChangeResult::Changed(inbox))) => {
                self.inboxes.iter_mut().filter(|known| known.id == inbox.id).for_each(|known| *known = inbox.clone());
            }
            InboundAnswer::File(FileMessageResult::New(_, artifacts)) => {
                self.artifacts.extend(artifacts.iter().map(|artifact| artifact.id))
            }
            InboundAnswer::Watch(IdempotentResult::Done(Some(watch))) => self.watches.push(watch.id),
            _ => {}
        }
        if let InboundCall::Receive(mail) = request {
            self.deliveries.extend(mail.deliveries.iter().map(|delivery| (delivery.team, delivery.id)));
            self.last = Some(mail.clone());
        }
    }

    /// Turns a command into a call. Nothing if the command names something that does not exist.
    pub(super) fn call_for(
        &self,
        team: TeamId,
        command: &InboundCommand,
        operation: impl Fn(OperationSpec) -> KeyedOperation,
        now: Time,
    ) -> InboundCall {
        let call = |call: &Option<OperationSpec>| call.map(&operation);
        self.try_call_for(team, command, call, now).unwrap_or(InboundCall::Nothing)
    }

    fn try_call_for(
        &self,
        team: TeamId,
        command: &InboundCommand,
        operation: impl Fn(&Option<OperationSpec>) -> Option<KeyedOperation>,
        now: Time,
    ) -> Option<InboundCall> {
        Some(match command {
            InboundCommand::Create { address: n, client, catch_all, call } => {
                let client_id = client.map(|n| format!("c{n}"));
                InboundCall::Create(Inbox { client_id, ..random_inbox(team, *n, *catch_all, now) }, operation(call))
            }
            InboundCommand::Change { inbox, address: n, catch_all, is_current_rev, call } => {
                let known = by_recency(&self.inboxes, *inbox)?;
                let address = n.map_or(known.address.clone(), test_address);
                let settings = InboxSettings { catch_all: *catch_all, ..known.settings };
                let rev = if *is_current_rev { known.rev } else { known.rev + 1 };
                InboundCall::Change(InboxEdit { team, id: known.id, rev, address, settings }, operation(call))
            }
            InboundCommand::Remove(recency) => InboundCall::Remove(team, by_recency(&self.inboxes, *recency)?.id),
            InboundCommand::Find(n, tagged) => {
                let address = test_address(*n);
                InboundCall::Find(candidate_addresses(&if *tagged { address.replacen('@', "+x@", 1) } else { address }))
            }
            InboundCommand::Receive { repeat: true, .. } => InboundCall::Receive(self.last.clone()?),
            InboundCommand::Receive { deliveries, leased_to, .. } => {
                let deliveries = deliveries.iter().map(|spec| self.new_delivery(team, *spec, now)).collect();
                InboundCall::Receive(InboundMail { leased_to: leased_to.map(node_id), ..unleased_mail(deliveries) })
            }
            InboundCommand::Lease { node: n, max } => InboundCall::Lease(node_id(*n), *max),
            InboundCommand::File(recency, spec) => {
                let (team, id) = by_recency(&self.deliveries, *recency)?;
                InboundCall::File(team, id, Box::new(spec.new_message()))
            }
            InboundCommand::RecordOutcome(recency, n) => {
                let (team, id) = by_recency(&self.deliveries, *recency)?;
                InboundCall::RecordOutcome(team, id, inbound_commands::random_outcome(*n, now))
            }
            InboundCommand::Replay(recency) => InboundCall::Replay(team, by_recency(&self.deliveries, *recency)?.1),
            InboundCommand::AttachFetched(recency) => {
                let (team, id) = by_recency(&self.deliveries, *recency)?;
                InboundCall::AttachFetched(team, id, fetched_mail(now))
            }
            InboundCommand::Consume { artifact, purpose, only_after, call } => {
                let id = by_recency(&self.artifacts, *artifact)?;
                let held_before = only_after.map(|after| HeldArtifacts { after, known: Vec::new() });
                let request = ConsumeRequest { held_before, ..consume_request(&format!("run-{purpose}")) };
                InboundCall::Consume(team, id, request, operation(call))
            }
            InboundCommand::MarkApplied(recency, purpose) => {
                InboundCall::MarkApplied(team, by_recency(&self.artifacts, *recency)?, format!("run-{purpose}"))
            }
            InboundCommand::Watch { inbox, budget, call } => InboundCall::Watch(
                new_watch(team, by_recency(&self.inboxes, *inbox)?.id, *budget, now),
                operation(call),
            ),
            InboundCommand::SpendResend(recency, call) => {
                InboundCall::SpendResend(team, by_recency(&self.watches, *recency)?, operation(call))
            }
        })
    }

    /// A delivery for an inbox, which may be removed, or for no inbox.
    fn new_delivery(&self, team: TeamId, spec: DeliverySpec, now: Time) -> NewDelivery {
        let known = by_recency(&self.inboxes, spec.inbox);
        let target = known.as_ref().map_or(DeliveryTarget::Nobody, |inbox| DeliveryTarget::Inbox(inbox.id));
        let inbox = known.unwrap_or_else(|| random_inbox(team, 0, false, now));
        let (dedup_until, suppression) = (now.plus(spec.dedup_ms), spec.suppression);
        let delivery = keyed_delivery(&inbox, spec.key, now);
        let details = DeliveryDetails {
            form: if spec.is_notice { DeliveryFormat::Notice } else { DeliveryFormat::Mime },
            ..delivery.details
        };
        NewDelivery { target, dedup_until, suppression, details, ..delivery }
    }

    /// All inboxes, deliveries, messages, artifacts and watches that a team can read.
    pub(super) async fn view_all(&self, store: &TestStore, team: TeamId) -> Vec<InboundView> {
        let mut views = vec![InboundView::Inboxes(store.inboxes(team, None, 100).await.unwrap())];
        for state in [None, Some(DeliveryState::Waiting), Some(DeliveryState::Duplicate)] {
            let query = DeliveryQuery { state, limit: 1_000, ..DeliveryQuery::default() };
            views.push(InboundView::Deliveries(store.deliveries(team, query).await.unwrap()));
        }
        for inbox in &self.inboxes {
            views.push(InboundView::Inbox(store.inbox(team, inbox.id).await.unwrap()));
            let inbox = Inbox { team, ..inbox.clone() };
            let query = MessageQuery { position: MessagePosition::After(0), limit: 7, ..MessageQuery::default() };
            let messages = all_messages(store, &inbox, query).await;
            for message in &messages {
                views.push(InboundView::Raw(store.raw_message(team, message.id).await.unwrap()));
                views.push(InboundView::Message(store.message(team, message.id).await.unwrap()));
            }
            views.push(InboundView::Messages(messages));
            let latest = MessageQuery { limit: 2, only_authenticated: true, ..MessageQuery::default() };
            views.push(InboundView::Page(store.messages(team, inbox.id, latest).await.unwrap()));
            views.push(InboundView::Artifacts(store.artifacts(team, inbox.id, None, 0, 100).await.unwrap()));
        }
        for id in &self.watches {
            views.push(InboundView::Watch(store.watch_of(team, *id).await.unwrap()));
        }
        views
    }
}

/// One result of a read.
#[derive(Debug, PartialEq)]
pub(super) enum InboundView {
    Inboxes(Vec<Inbox>),
    Inbox(Option<Inbox>),
    Deliveries(Vec<Delivery>),
    Messages(Vec<Message>),
    Message(Option<Message>),
    Page(MessagePage),
    Raw(Option<Vec<u8>>),
    Artifacts(Vec<Artifact>),
    Watch(Option<Watch>),
}

fn random_inbox(team: TeamId, n: u8, catch_all: bool, now: Time) -> Inbox {
    let settings = InboxSettings { catch_all, ..InboxSettings::default() };
    let wanted = new_inbox(&test_address(n));
    Inbox { id: InboxId(next_id(now)), team, created_at: now, settings, ..wanted }
}

fn new_watch(team: TeamId, inbox: InboxId, budget: u8, now: Time) -> Watch {
    Watch {
        id: WatchId(next_id(now)),
        team,
        inbox,
        rev: 1,
        started_at: now,
        after_seq: 0,
        deadline: now.plus(HOUR),
        resend_budget: budget.into(),
        resends_used: 0,
        require_auth: false,
    }
}

impl MessageSpec {
    fn new_message(&self) -> NewMessage {
        let message =
            with_artifacts(in_reply_to(new_message(self.message_id, self.content), &self.ancestors), &self.values);
        let message = if self.has_other_sender { from_sender(message, "other@sender.test") } else { message };
        let mut message = match self.author {
            0 => from_own_address(message),
            1 | 2 => automatic_message(message, self.author == 1),
            _ => message,
        };
        if self.skipped {
            message.state = MessageState::Skipped;
        }
        message.answers_email = self.email.map(|n| EmailId(Uuid::from_u128(u128::from(n) + 1)));
        if self.is_authenticated { with_passed_auth(message) } else { message }
    }
}

//! The play's part for mail that comes in: full calls, their answers, and what both ledgers show.

use mailonce_core::{
    id::{ArtifactId, DeliveryId, EmailId, InboxId, NodeId, TeamId, WatchId},
    inbound::delivery::{
        Delivery, DeliveryDetails, DeliveryFormat, DeliveryOutcome, DeliveryQuery, DeliveryState, DeliveryTarget,
        FetchedContent, InboundMail, LeasedDelivery, NewDelivery, ReceiveResult,
    },
    inbox::{
        CreateInboxResult, Inbox, InboxChangeResult, InboxEdit, InboxSettings,
        artifact::{Artifact, ConsumeRequest, ConsumeResult, MarkAppliedResult},
        candidate_addresses,
        message::{FileMessageResult, Message, MessagePage, MessagePosition, MessageQuery, MessageState, NewMessage},
        watch::{SpendResendResult, Watch},
    },
    operation::{IdempotentResult, KeyedOperation},
    time::Time,
};
use uuid::Uuid;

use super::{
    HOUR, TestStore,
    deed::node_id,
    errand::{self, DeliverySpec, InboundCommand, MessageSpec, test_address},
    next_id,
    post::{
        all_messages, consume_request, fetched_mail, from_own_address, from_sender, in_reply_to, keyed_delivery,
        new_message, unread_arrival, with_artifacts, with_passed_auth, written_by_machine,
    },
    turn::OperationSpec,
};

/// A call in full, the same for both ledgers.
#[derive(Clone, Debug)]
pub(super) enum InboundCall {
    Make(Inbox, Option<KeyedOperation>),
    Change(InboxEdit, Option<KeyedOperation>),
    Remove(TeamId, InboxId),
    Find(Vec<String>),
    Receive(InboundMail),
    Read(NodeId, usize),
    File(TeamId, DeliveryId, Box<NewMessage>),
    Settle(TeamId, DeliveryId, DeliveryOutcome),
    Replay(TeamId, DeliveryId),
    Bring(TeamId, DeliveryId, FetchedContent),
    Consume(TeamId, ArtifactId, ConsumeRequest, Option<KeyedOperation>),
    Apply(TeamId, ArtifactId, String),
    Watch(Watch, Option<KeyedOperation>),
    Spend(TeamId, WatchId, Option<KeyedOperation>),
    Nothing,
}

/// What a ledger said.
#[derive(Debug, PartialEq)]
pub(super) enum InboundAnswer {
    Make(IdempotentResult<CreateInboxResult>),
    Change(IdempotentResult<InboxChangeResult>),
    Inbox(Option<Inbox>),
    Receive(Vec<ReceiveResult>),
    Read(Vec<LeasedDelivery>),
    File(FileMessageResult),
    Delivery(Option<Delivery>),
    Consume(IdempotentResult<ConsumeResult>),
    Apply(MarkAppliedResult),
    Watch(IdempotentResult<Option<Watch>>),
    Spend(IdempotentResult<SpendResendResult>),
    Nothing,
}

pub(super) async fn call_store(store: &TestStore, mail: InboundCall, now: Time) -> InboundAnswer {
    match mail {
        InboundCall::Make(inbox, call) => InboundAnswer::Make(store.create_inbox(inbox, call).await.unwrap()),
        InboundCall::Change(edit, call) => InboundAnswer::Change(store.change_inbox(edit, call, now).await.unwrap()),
        InboundCall::Remove(team, id) => InboundAnswer::Inbox(store.remove_inbox(team, id, now).await.unwrap()),
        InboundCall::Find(places) => InboundAnswer::Inbox(store.inbox_by_address(&places).await.unwrap()),
        InboundCall::Receive(arrival) => InboundAnswer::Receive(store.receive(arrival, now).await.unwrap()),
        InboundCall::Read(node, max) => InboundAnswer::Read(store.lease_deliveries(node, max, now).await.unwrap()),
        InboundCall::File(team, id, letter) => {
            InboundAnswer::File(store.file_message(team, id, *letter, now).await.unwrap())
        }
        InboundCall::Settle(team, id, settle) => {
            InboundAnswer::Delivery(store.record_delivery_outcome(team, id, settle, now).await.unwrap())
        }
        InboundCall::Replay(team, id) => InboundAnswer::Delivery(store.replay_delivery(team, id, now).await.unwrap()),
        InboundCall::Bring(team, id, brought) => {
            InboundAnswer::Delivery(store.attach_fetched_content(team, id, brought).await.unwrap())
        }
        InboundCall::Consume(team, id, taking, call) => {
            InboundAnswer::Consume(store.consume_artifact(team, id, taking, call, now).await.unwrap())
        }
        InboundCall::Apply(team, id, purpose) => {
            InboundAnswer::Apply(store.mark_artifact_applied(team, id, &purpose, now).await.unwrap())
        }
        InboundCall::Watch(watch, call) => InboundAnswer::Watch(store.create_watch(watch, call).await.unwrap()),
        InboundCall::Spend(team, id, call) => {
            InboundAnswer::Spend(store.spend_resend(team, id, call, now).await.unwrap())
        }
        InboundCall::Nothing => InboundAnswer::Nothing,
    }
}

/// What has come into being so far, in order.
#[derive(Default)]
pub(super) struct InboundState {
    inboxes: Vec<Inbox>,
    deliveries: Vec<(TeamId, DeliveryId)>,
    artifacts: Vec<ArtifactId>,
    watches: Vec<WatchId>,
    last: Option<InboundMail>,
}

/// By its place, from the latest.
fn by_recency<T: Clone>(all: &[T], place: u8) -> Option<T> {
    all.iter().rev().nth(usize::from(place) % all.len().max(1)).cloned()
}

impl InboundState {
    /// Notes what came of a call.
    pub(super) fn record(&mut self, mail: &InboundCall, said: &InboundAnswer) {
        match said {
            InboundAnswer::Make(IdempotentResult::Done(CreateInboxResult::Created(inbox))) => {
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
        if let InboundCall::Receive(arrival) = mail {
            self.deliveries.extend(arrival.deliveries.iter().map(|parcel| (parcel.team, parcel.id)));
            self.last = Some(arrival.clone());
        }
    }

    /// The call that an errand stands for.
    pub(super) fn call_for(
        &self,
        team: TeamId,
        errand: &InboundCommand,
        operation: impl Fn(OperationSpec) -> KeyedOperation,
        now: Time,
    ) -> InboundCall {
        let call = |call: &Option<OperationSpec>| call.map(&operation);
        self.try_call_for(team, errand, call, now).unwrap_or(InboundCall::Nothing)
    }

    fn try_call_for(
        &self,
        team: TeamId,
        errand: &InboundCommand,
        operation: impl Fn(&Option<OperationSpec>) -> Option<KeyedOperation>,
        now: Time,
    ) -> Option<InboundCall> {
        Some(match errand {
            InboundCommand::Make { address: n, client, catch_all, call } => {
                let client_id = client.map(|n| format!("c{n}"));
                InboundCall::Make(Inbox { client_id, ..random_inbox(team, *n, *catch_all, now) }, operation(call))
            }
            InboundCommand::Change { inbox, address: n, catch_all, seen, call } => {
                let known = by_recency(&self.inboxes, *inbox)?;
                let address = n.map_or(known.address.clone(), test_address);
                let about = InboxSettings { catch_all: *catch_all, ..known.settings };
                let rev = if *seen { known.rev } else { known.rev + 1 };
                InboundCall::Change(InboxEdit { team, id: known.id, rev, address, settings: about }, operation(call))
            }
            InboundCommand::Remove(place) => InboundCall::Remove(team, by_recency(&self.inboxes, *place)?.id),
            InboundCommand::Find(n, tagged) => {
                let address = test_address(*n);
                InboundCall::Find(candidate_addresses(&if *tagged { address.replacen('@', "+x@", 1) } else { address }))
            }
            InboundCommand::Receive { again: true, .. } => InboundCall::Receive(self.last.clone()?),
            InboundCommand::Receive { parcels, reader, .. } => {
                let parcels = parcels.iter().map(|post| self.new_delivery(team, *post, now)).collect();
                InboundCall::Receive(InboundMail { leased_to: reader.map(node_id), ..unread_arrival(parcels) })
            }
            InboundCommand::Read { node: n, max } => InboundCall::Read(node_id(*n), *max),
            InboundCommand::File(place, script) => {
                let (team, id) = by_recency(&self.deliveries, *place)?;
                InboundCall::File(team, id, Box::new(script.new_message()))
            }
            InboundCommand::Settle(place, n) => {
                let (team, id) = by_recency(&self.deliveries, *place)?;
                InboundCall::Settle(team, id, errand::random_settle(*n, now))
            }
            InboundCommand::Replay(place) => InboundCall::Replay(team, by_recency(&self.deliveries, *place)?.1),
            InboundCommand::AttachFetched(place) => {
                let (team, id) = by_recency(&self.deliveries, *place)?;
                InboundCall::Bring(team, id, fetched_mail(now))
            }
            InboundCommand::Consume { artifact, purpose, call } => {
                let id = by_recency(&self.artifacts, *artifact)?;
                InboundCall::Consume(team, id, consume_request(&format!("run-{purpose}")), operation(call))
            }
            InboundCommand::Apply(place, purpose) => {
                InboundCall::Apply(team, by_recency(&self.artifacts, *place)?, format!("run-{purpose}"))
            }
            InboundCommand::Watch { inbox, budget, call } => InboundCall::Watch(
                new_watch(team, by_recency(&self.inboxes, *inbox)?.id, *budget, now),
                operation(call),
            ),
            InboundCommand::Spend(place, call) => {
                InboundCall::Spend(team, by_recency(&self.watches, *place)?, operation(call))
            }
        })
    }

    /// A parcel for an inbox, there or removed, or for nobody.
    fn new_delivery(&self, team: TeamId, post: DeliverySpec, now: Time) -> NewDelivery {
        let known = by_recency(&self.inboxes, post.inbox);
        let target = known.as_ref().map_or(DeliveryTarget::Nobody, |inbox| DeliveryTarget::Inbox(inbox.id));
        let home = known.unwrap_or_else(|| random_inbox(team, 0, false, now));
        let (known_until, refused) = (now.plus(post.known_ms), post.refused);
        let parcel = keyed_delivery(&home, post.key, now);
        let about = DeliveryDetails {
            form: if post.notice { DeliveryFormat::Notice } else { DeliveryFormat::Mime },
            ..parcel.details
        };
        NewDelivery { target, dedup_until: known_until, suppression: refused, details: about, ..parcel }
    }

    /// Everything there is to see of mail that came in.
    pub(super) async fn view_all(&self, store: &TestStore, team: TeamId) -> Vec<InboundView> {
        let mut seen = vec![InboundView::Inboxes(store.inboxes(team, None, 100).await.unwrap())];
        for state in [None, Some(DeliveryState::Waiting), Some(DeliveryState::Duplicate)] {
            let query = DeliveryQuery { state, limit: 1_000, ..DeliveryQuery::default() };
            seen.push(InboundView::Deliveries(store.deliveries(team, query).await.unwrap()));
        }
        for inbox in &self.inboxes {
            seen.push(InboundView::Inbox(store.inbox(team, inbox.id).await.unwrap()));
            let inbox = Inbox { team, ..inbox.clone() };
            let query = MessageQuery { position: MessagePosition::After(0), limit: 7, ..MessageQuery::default() };
            let messages = all_messages(store, &inbox, query).await;
            for message in &messages {
                seen.push(InboundView::Raw(store.raw_message(team, message.id).await.unwrap()));
                seen.push(InboundView::Message(store.message(team, message.id).await.unwrap()));
            }
            seen.push(InboundView::Messages(messages));
            let latest = MessageQuery { limit: 2, only_authenticated: true, ..MessageQuery::default() };
            seen.push(InboundView::Page(store.messages(team, inbox.id, latest).await.unwrap()));
            seen.push(InboundView::Artifacts(store.artifacts(team, inbox.id, None, 0, 100).await.unwrap()));
        }
        for id in &self.watches {
            seen.push(InboundView::Watch(store.watch_of(team, *id).await.unwrap()));
        }
        seen
    }
}

/// One thing that was looked at.
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
    let about = InboxSettings { catch_all, ..InboxSettings::default() };
    let wanted = super::post::new_inbox(&test_address(n));
    Inbox { id: InboxId(next_id(now)), team, created_at: now, settings: about, ..wanted }
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
        let letter =
            with_artifacts(in_reply_to(new_message(self.message_id, self.content), &self.ancestors), &self.values);
        let letter = if self.has_other_sender { from_sender(letter, "other@sender.test") } else { letter };
        let mut letter = match self.author {
            0 => from_own_address(letter),
            1 | 2 => written_by_machine(letter, self.author == 1),
            _ => letter,
        };
        if self.skipped {
            letter.state = MessageState::Skipped;
        }
        letter.answers_email = self.email.map(|n| EmailId(Uuid::from_u128(u128::from(n) + 1)));
        if self.is_authenticated { with_passed_auth(letter) } else { letter }
    }
}

//! The play's part for mail that comes in: full calls, their answers, and what both ledgers show.

use mailonce_core::{
    artifact::{Applied, Artifact, Taken, Taking},
    delivery::{
        AboutDelivery, Arrival, Brought, Delivery, DeliveryQuery, DeliveryState, Form, NewDelivery, Reading, Received,
        Settle, Target,
    },
    id::{ArtifactId, DeliveryId, EmailId, InboxId, NodeId, TeamId, WatchId},
    inbox::{AboutInbox, Inbox, InboxChange, InboxEdit, InboxMade, places},
    message::{Filed, Message, MessagePage, MessagePlace, MessageQuery, MessageState, NewMessage},
    port::store::{Once, Operation},
    time::Time,
    watch::{Spent, Watch},
};
use uuid::Uuid;

use super::{
    HOUR, Ledger,
    deed::node,
    errand::{self, Errand, Post, Script, address},
    next_id,
    post::{
        all_messages, answering, arrival, automatic, fetched, from, holding, keyed_parcel, letter, own, passed, taking,
    },
    turn::Call,
};

/// A call in full, the same for both ledgers.
#[derive(Clone, Debug)]
pub(super) enum Mail {
    Make(Inbox, Option<Operation>),
    Change(InboxEdit, Option<Operation>),
    Remove(TeamId, InboxId),
    Find(Vec<String>),
    Receive(Arrival),
    Read(NodeId, usize),
    File(TeamId, DeliveryId, Box<NewMessage>),
    Settle(TeamId, DeliveryId, Settle),
    Replay(TeamId, DeliveryId),
    Bring(TeamId, DeliveryId, Brought),
    Consume(TeamId, ArtifactId, Taking, Option<Operation>),
    Apply(TeamId, ArtifactId, String),
    Watch(Watch, Option<Operation>),
    Spend(TeamId, WatchId, Option<Operation>),
    Nothing,
}

/// What a ledger said.
#[derive(Debug, PartialEq)]
pub(super) enum Said {
    Make(Once<InboxMade>),
    Change(Once<InboxChange>),
    Inbox(Option<Inbox>),
    Receive(Vec<Received>),
    Read(Vec<Reading>),
    File(Filed),
    Delivery(Option<Delivery>),
    Consume(Once<Taken>),
    Apply(Applied),
    Watch(Once<Option<Watch>>),
    Spend(Once<Spent>),
    Nothing,
}

pub(super) async fn ask(store: &Ledger, mail: Mail, now: Time) -> Said {
    match mail {
        Mail::Make(inbox, call) => Said::Make(store.create_inbox(inbox, call).await.unwrap()),
        Mail::Change(edit, call) => Said::Change(store.change_inbox(edit, call, now).await.unwrap()),
        Mail::Remove(team, id) => Said::Inbox(store.remove_inbox(team, id, now).await.unwrap()),
        Mail::Find(places) => Said::Inbox(store.inbox_at(&places).await.unwrap()),
        Mail::Receive(arrival) => Said::Receive(store.receive(arrival, now).await.unwrap()),
        Mail::Read(node, max) => Said::Read(store.read(node, max, now).await.unwrap()),
        Mail::File(team, id, letter) => Said::File(store.file(team, id, *letter, now).await.unwrap()),
        Mail::Settle(team, id, settle) => Said::Delivery(store.settle_delivery(team, id, settle, now).await.unwrap()),
        Mail::Replay(team, id) => Said::Delivery(store.replay_delivery(team, id, now).await.unwrap()),
        Mail::Bring(team, id, brought) => Said::Delivery(store.bring(team, id, brought).await.unwrap()),
        Mail::Consume(team, id, taking, call) => {
            Said::Consume(store.consume(team, id, taking, call, now).await.unwrap())
        }
        Mail::Apply(team, id, purpose) => Said::Apply(store.apply(team, id, &purpose, now).await.unwrap()),
        Mail::Watch(watch, call) => Said::Watch(store.create_watch(watch, call).await.unwrap()),
        Mail::Spend(team, id, call) => Said::Spend(store.spend(team, id, call, now).await.unwrap()),
        Mail::Nothing => Said::Nothing,
    }
}

/// What has come into being so far, in order.
#[derive(Default)]
pub(super) struct Mailroom {
    inboxes: Vec<Inbox>,
    deliveries: Vec<(TeamId, DeliveryId)>,
    artifacts: Vec<ArtifactId>,
    watches: Vec<WatchId>,
    last: Option<Arrival>,
}

/// By its place, from the latest.
fn named<T: Clone>(all: &[T], place: u8) -> Option<T> {
    all.iter().rev().nth(usize::from(place) % all.len().max(1)).cloned()
}

impl Mailroom {
    /// Notes what came of a call.
    pub(super) fn learn(&mut self, mail: &Mail, said: &Said) {
        match said {
            Said::Make(Once::Done(InboxMade::Made(inbox))) => self.inboxes.push(inbox.clone()),
            Said::Change(Once::Done(InboxChange::Changed(inbox))) => {
                self.inboxes.iter_mut().filter(|known| known.id == inbox.id).for_each(|known| *known = inbox.clone());
            }
            Said::File(Filed::New(_, artifacts)) => self.artifacts.extend(artifacts.iter().map(|artifact| artifact.id)),
            Said::Watch(Once::Done(Some(watch))) => self.watches.push(watch.id),
            _ => {}
        }
        if let Mail::Receive(arrival) = mail {
            self.deliveries.extend(arrival.parcels.iter().map(|parcel| (parcel.team, parcel.id)));
            self.last = Some(arrival.clone());
        }
    }

    /// The call that an errand stands for.
    pub(super) fn mail(&self, team: TeamId, errand: &Errand, operation: impl Fn(Call) -> Operation, now: Time) -> Mail {
        let call = |call: &Option<Call>| call.map(&operation);
        self.try_mail(team, errand, call, now).unwrap_or(Mail::Nothing)
    }

    fn try_mail(
        &self,
        team: TeamId,
        errand: &Errand,
        operation: impl Fn(&Option<Call>) -> Option<Operation>,
        now: Time,
    ) -> Option<Mail> {
        Some(match errand {
            Errand::Make { address: n, client, catch_all, call } => {
                let client_id = client.map(|n| format!("c{n}"));
                Mail::Make(Inbox { client_id, ..inbox(team, *n, *catch_all, now) }, operation(call))
            }
            Errand::Change { inbox, address: n, catch_all, seen, call } => {
                let known = named(&self.inboxes, *inbox)?;
                let address = n.map_or(known.address.clone(), address);
                let about = AboutInbox { catch_all: *catch_all, ..known.about };
                let rev = if *seen { known.rev } else { known.rev + 1 };
                Mail::Change(InboxEdit { team, id: known.id, rev, address, about }, operation(call))
            }
            Errand::Remove(place) => Mail::Remove(team, named(&self.inboxes, *place)?.id),
            Errand::Find(n, tagged) => {
                let address = address(*n);
                Mail::Find(places(&if *tagged { address.replacen('@', "+x@", 1) } else { address }))
            }
            Errand::Receive { again: true, .. } => Mail::Receive(self.last.clone()?),
            Errand::Receive { parcels, reader, .. } => {
                let parcels = parcels.iter().map(|post| self.parcel(team, *post, now)).collect();
                Mail::Receive(Arrival { reader: reader.map(node), ..arrival(parcels) })
            }
            Errand::Read { node: n, max } => Mail::Read(node(*n), *max),
            Errand::File(place, script) => {
                let (team, id) = named(&self.deliveries, *place)?;
                Mail::File(team, id, Box::new(script.letter()))
            }
            Errand::Settle(place, n) => {
                let (team, id) = named(&self.deliveries, *place)?;
                Mail::Settle(team, id, errand::settle(*n, now))
            }
            Errand::Replay(place) => Mail::Replay(team, named(&self.deliveries, *place)?.1),
            Errand::Bring(place) => {
                let (team, id) = named(&self.deliveries, *place)?;
                Mail::Bring(team, id, fetched(now))
            }
            Errand::Consume { artifact, purpose, call } => {
                let id = named(&self.artifacts, *artifact)?;
                Mail::Consume(team, id, taking(&format!("run-{purpose}")), operation(call))
            }
            Errand::Apply(place, purpose) => {
                Mail::Apply(team, named(&self.artifacts, *place)?, format!("run-{purpose}"))
            }
            Errand::Watch { inbox, budget, call } => {
                Mail::Watch(watch(team, named(&self.inboxes, *inbox)?.id, *budget, now), operation(call))
            }
            Errand::Spend(place, call) => Mail::Spend(team, named(&self.watches, *place)?, operation(call)),
        })
    }

    /// A parcel for an inbox, there or removed, or for nobody.
    fn parcel(&self, team: TeamId, post: Post, now: Time) -> NewDelivery {
        let known = named(&self.inboxes, post.inbox);
        let target = known.as_ref().map_or(Target::Nobody, |inbox| Target::Inbox(inbox.id));
        let home = known.unwrap_or_else(|| inbox(team, 0, false, now));
        let (known_until, refused) = (now.plus(post.known_ms), post.refused);
        let parcel = keyed_parcel(&home, post.key, now);
        let about = AboutDelivery { form: if post.notice { Form::Notice } else { Form::Mime }, ..parcel.about };
        NewDelivery { target, known_until, refused, about, ..parcel }
    }

    /// Everything there is to see of mail that came in.
    pub(super) async fn view(&self, store: &Ledger, team: TeamId) -> Vec<Sight> {
        let mut seen = vec![Sight::Inboxes(store.inboxes(team, None, 100).await.unwrap())];
        for state in [None, Some(DeliveryState::Waiting), Some(DeliveryState::Duplicate)] {
            let query = DeliveryQuery { state, limit: 1_000, ..DeliveryQuery::default() };
            seen.push(Sight::Deliveries(store.deliveries(team, query).await.unwrap()));
        }
        for inbox in &self.inboxes {
            seen.push(Sight::Inbox(store.inbox(team, inbox.id).await.unwrap()));
            let inbox = Inbox { team, ..inbox.clone() };
            let query = MessageQuery { place: MessagePlace::After(0), limit: 7, ..MessageQuery::default() };
            let messages = all_messages(store, &inbox, query).await;
            for message in &messages {
                seen.push(Sight::Raw(store.raw(team, message.id).await.unwrap()));
                seen.push(Sight::Message(store.message(team, message.id).await.unwrap()));
            }
            seen.push(Sight::Messages(messages));
            let latest = MessageQuery { limit: 2, authenticated: true, ..MessageQuery::default() };
            seen.push(Sight::Page(store.messages(team, inbox.id, latest).await.unwrap()));
            seen.push(Sight::Artifacts(store.artifacts(team, inbox.id, None, 0, 100).await.unwrap()));
        }
        for id in &self.watches {
            seen.push(Sight::Watch(store.watch_of(team, *id).await.unwrap()));
        }
        seen
    }
}

/// One thing that was looked at.
#[derive(Debug, PartialEq)]
pub(super) enum Sight {
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

fn inbox(team: TeamId, n: u8, catch_all: bool, now: Time) -> Inbox {
    let about = AboutInbox { catch_all, ..AboutInbox::default() };
    let wanted = super::post::inbox(&address(n));
    Inbox { id: InboxId(next_id(now)), team, created_at: now, about, ..wanted }
}

fn watch(team: TeamId, inbox: InboxId, budget: u8, now: Time) -> Watch {
    Watch {
        id: WatchId(next_id(now)),
        team,
        inbox,
        rev: 1,
        started_at: now,
        after: 0,
        deadline: now.plus(HOUR),
        budget: budget.into(),
        spent: 0,
        require_auth: false,
    }
}

impl Script {
    fn letter(&self) -> NewMessage {
        let letter = holding(answering(letter(self.name, self.content), &self.ancestors), &self.values);
        let letter = if self.from { from(letter, "other@sender.test") } else { letter };
        let mut letter = match self.by {
            0 => own(letter),
            1 | 2 => automatic(letter, self.by == 1),
            _ => letter,
        };
        if self.skipped {
            letter.state = MessageState::Skipped;
        }
        letter.email = self.email.map(|n| EmailId(Uuid::from_u128(u128::from(n) + 1)));
        if self.passed { passed(letter) } else { letter }
    }
}

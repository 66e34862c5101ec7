//! Mail that comes in: senders bring it by two doors until it is kept, and agents take the codes in it.

use super::client::{Clients, team_name};
use super::desk;
use super::shared::Shared;
use super::town::Town;
use crate::proof::history::{Artifact, Brought, Desk, Got, Inbound, Kept, Message, Take};
use mailonce_core::{
    artifact::ArtifactKind,
    delivery::{DeliveryQuery, DeliveryState, Form, Intake, Received, Suppression},
    id::{InboxId, SourceId, TeamId},
    inbox::Inbox,
    message::{MessagePlace, MessageQuery},
    port::{arrivals::Arrivals as _, store::StoreError},
    time::Time,
};
use mailonce_engine::{Engine, artifacts::Match, receive::Incoming};
use mailonce_store::memory::Memory;
use std::sync::Arc;
use uuid::Uuid;

/// Rows that are read of one inbox.
const ALL: usize = 1_000;
/// Those who want each code.
const CONSUMERS: u64 = 2;

/// An inbox of a world.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) id: InboxId,
    pub(super) team: TeamId,
    pub(super) number: usize,
    pub(super) address: String,
    /// Whether agents answer from it; else they wait for codes there.
    pub(super) desk: bool,
}

/// Makes one inbox for each team: a desk with these limits, or one for codes.
pub(super) async fn open(store: &Memory, teams: &[TeamId], desk: Option<&Desk>) -> Result<Vec<Place>, StoreError> {
    let mut places = Vec::new();
    for (number, team) in teams.iter().enumerate() {
        // Ids carry their time, and this one is from before all others.
        let (kind, word) = if desk.is_some() { (10, "desk") } else { (9, "agent") };
        let id = InboxId(Uuid::from_u128((kind << 32) | number as u128));
        let address = format!("{word}{number}@inbox.example");
        let inbox = Inbox {
            id,
            team: *team,
            rev: 1,
            address: address.clone(),
            client_id: None,
            created_at: Time(0),
            seq: 0,
            about: desk.map(desk::about).unwrap_or_default(),
        };
        let _made = store.create_inbox(inbox, None).await?;
        places.push(Place { id, team: *team, number, address, desk: desk.is_some() });
    }
    Ok(places)
}

/// A mail.
#[derive(Clone)]
pub(super) struct Mail {
    place: Place,
    number: u64,
}

impl Mail {
    /// Two mails in a row have the same sender and the same code.
    fn sender(&self) -> String {
        format!("no-reply@shop{}.example", self.number / 2)
    }

    fn code(&self) -> String {
        format!("{}", 402_625 + 1_111 * (self.number / 2))
    }

    fn message_id(&self) -> String {
        format!("<mail{}@shop.example>", self.number)
    }

    fn brought(&self, hook: bool) -> Brought {
        Brought {
            way: if hook { "hook" } else { "smtp" }.to_owned(),
            inbox: self.place.address.clone(),
            message_id: self.message_id(),
            sender: self.sender(),
            code: self.code(),
            ..Brought::default()
        }
    }

    fn incoming(&self, hook: bool) -> Incoming {
        let (sender, code, message_id) = (self.sender(), self.code(), self.message_id());
        let raw = format!(
            "From: {sender}\r\nTo: {}\r\nSubject: Your verification code\r\nMessage-ID: {message_id}\r\n\r\n\
             Your verification code is {code}.\r\nIt expires in 10 minutes.\r\n\r\nMail {}.\r\n",
            self.place.address, self.number
        );
        Incoming {
            intake: if hook { Intake::Hook } else { Intake::Smtp },
            source: hook.then(|| (self.place.team, SourceId(Uuid::from_u128(11 + self.place.number as u128)))),
            name: hook.then(|| format!("mail-{}", self.number)),
            ip: None,
            helo: None,
            sender: Some(sender),
            recipients: vec![self.place.address.clone()],
            form: Form::Mime,
            raw: raw.into_bytes(),
        }
    }
}

/// The mails of a world.
pub(super) fn mails(shared: &Shared, places: &[Place]) -> Vec<Mail> {
    let places: Vec<&Place> = places.iter().filter(|place| !place.desk).collect();
    let place = |number: usize| Place::clone(places[number / 2 % places.len()]);
    (0..shared.plan.mails).map(|number| Mail { place: place(number), number: number as u64 }).collect()
}

/// One step: the next mail comes, others come again, and agents want codes.
pub(super) fn come(town: &Town, clients: &Clients, mails: &[Mail], step: usize) {
    let shared = &town.shared;
    let seen = &mails[..mails.len().min(step + 1)];
    let mut turns: Vec<&Mail> = mails.iter().skip(step).take(1).collect();
    while !seen.is_empty() && shared.below(10) < 4 {
        turns.push(&seen[shared.below(seen.len() as u64) as usize]);
    }
    for mail in turns {
        let (Some(engine), hook) = (town.any_engine(), shared.below(2) == 0) else { continue };
        tokio::spawn(bring(Arc::clone(shared), engine, mail.brought(hook), mail.incoming(hook)));
    }
    while !seen.is_empty() && shared.below(10) < 5 {
        let (mail, consumer) = (&seen[shared.below(seen.len() as u64) as usize], shared.below(CONSUMERS));
        let Some(engine) = town.any_engine() else { continue };
        tokio::spawn(take(clients.clone(), engine, mail.clone(), consumer));
    }
}

/// After healing every mail that was brought and never acknowledged comes once more, and every code is wanted.
pub(super) async fn come_again(town: &Town, clients: &Clients, mails: &[Mail]) {
    for mail in mails {
        let Some(engine) = town.any_engine() else { continue };
        if !town.shared.is_kept(&mail.message_id()) {
            bring(Arc::clone(&town.shared), Arc::clone(&engine), mail.brought(false), mail.incoming(false)).await;
        }
        take(clients.clone(), engine, mail.clone(), 0).await;
    }
}

/// Brings a mail, once.
pub(super) async fn bring(shared: Arc<Shared>, engine: Arc<Engine>, brought: Brought, incoming: Incoming) {
    let place = shared.brings(brought);
    let received = engine.take_mail(incoming).await;
    let kept = |received: &[Received]| matches!(received, [Received::Kept(_) | Received::Duplicate { .. }]);
    shared.brought(place, received.is_ok_and(|received| kept(&received)));
}

/// Takes the code of a mail.
async fn take(clients: Clients, engine: Arc<Engine>, mail: Mail, consumer: u64) {
    let (caller, purpose) = (&clients.callers[mail.place.number], format!("run-{consumer}"));
    let place = clients.shared.takes(Take {
        team: team_name(mail.place.number),
        inbox: mail.place.address.clone(),
        sender: mail.sender(),
        purpose: purpose.clone(),
        ..Take::default()
    });
    let wanted = Match { kind: ArtifactKind::Code, from: Some(mail.sender()), subject: None };
    let (got, refused) = match engine.consume_match(caller, mail.place.id, &wanted, (purpose, None), None).await {
        Ok(artifact) => (Some(Got { artifact: artifact.id.to_string(), value: artifact.found.value }), String::new()),
        Err(problem) => (None, problem.code.word().to_owned()),
    };
    clients.shared.took(place, got, refused);
}

/// An operator lets deliveries be read again that were given up: readings whose answers are lost count like readings
/// that bring their reader down.
pub(super) async fn replay_dead(town: &Town, clients: &Clients) -> Result<(), StoreError> {
    for place in &town.places {
        let query = DeliveryQuery { state: Some(DeliveryState::Dead), limit: ALL, ..DeliveryQuery::default() };
        for delivery in town.store.deliveries(place.team, query).await? {
            if let Some(engine) = town.any_engine() {
                // What is not replayed now is still dead in the next round.
                let _later = engine.replay_delivery(&clients.callers[place.number], delivery.id).await;
            }
        }
    }
    Ok(())
}

/// When the next delivery that waits is due, if one waits.
pub(super) async fn due(town: &Town) -> Result<Option<i64>, StoreError> {
    let mut due = None::<i64>;
    for place in &town.places {
        let query = DeliveryQuery { state: Some(DeliveryState::Waiting), limit: ALL, ..DeliveryQuery::default() };
        for delivery in town.store.deliveries(place.team, query).await? {
            due = [due, delivery.due.map(|at| at.0)].into_iter().flatten().min();
        }
    }
    Ok(due)
}

/// What inboxes show in the end.
pub(super) async fn read(town: &Town) -> Result<Inbound, StoreError> {
    let mut shown = Inbound::default();
    for place in &town.places {
        let query = MessageQuery { place: MessagePlace::After(0), limit: ALL, ..MessageQuery::default() };
        for message in town.store.messages(place.team, place.id, query).await?.rows {
            shown.messages.push(Message {
                id: message.id.to_string(),
                team: team_name(place.number),
                inbox: place.address.clone(),
                seq: message.seq,
                message_id: message.head.message_id.clone().unwrap_or_default(),
                state: message.state.word().to_owned(),
                dead: message.marks.turn.dead,
            });
        }
        for artifact in town.store.artifacts(place.team, place.id, None, 0, ALL).await? {
            shown.artifacts.push(Artifact {
                id: artifact.id.to_string(),
                inbox: place.address.clone(),
                sender: artifact.sender,
                value: artifact.found.value,
                found_at: artifact.found_at.0,
                consumed_for: artifact.consumed.map(|consumed| consumed.purpose),
            });
        }
        let query = DeliveryQuery { inbox: Some(place.id), limit: ALL, ..DeliveryQuery::default() };
        for delivery in town.store.deliveries(place.team, query).await? {
            shown.kept.push(Kept {
                id: delivery.id.to_string(),
                state: delivery.state.word().to_owned(),
                way: delivery.about.intake.word().to_owned(),
                reason: delivery.suppressed.map(Suppression::word).unwrap_or_default().to_owned(),
                of: delivery.of.map(|id| id.to_string()),
                message: delivery.message.map(|id| id.to_string()),
            });
        }
    }
    Ok(shown)
}

//! Mail comes in: whom it is for, and that it is kept. Reading comes later. Large mails are hashed and packed on
//! other threads than those of connections.

use mailonce_core::{
    address::Address,
    delivery::{AboutDelivery, Arrival, Form, Intake, NewDelivery, Received, Suppression, Target},
    id::{DeliveryId, SourceId, TeamId},
    inbox::{self, Inbox},
    limits, mutant,
    port::store::StoreError,
    time::Time,
};
use mailonce_mail::return_path::Tag;
use sha2::{Digest as _, Sha256};
use std::{net::IpAddr, sync::Arc};

use crate::{Engine, pack::Packer, read::apart_if};

/// A mail as an intake brings it.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// The way in.
    pub intake: Intake,
    /// The source and its team, when a provider told of it: only that team's inboxes are meant.
    pub source: Option<(TeamId, SourceId)>,
    /// What the provider calls this delivery, whatever it tells again. Without one the bytes decide.
    pub name: Option<String>,
    /// Where it came from.
    pub ip: Option<IpAddr>,
    /// What that host called itself.
    pub helo: Option<String>,
    /// The sender of the envelope; empty for the null return path, `None` when nobody told.
    pub sender: Option<String>,
    /// The recipients of the envelope.
    pub recipients: Vec<String>,
    /// What the bytes are.
    pub form: Form,
    /// The bytes.
    pub raw: Vec<u8>,
}

/// Whom an address belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// An inbox that takes mail.
    Inbox(Box<Inbox>),
    /// One of our own return paths.
    Return(TeamId, Target),
    /// A domain of ours, and nobody there.
    Unknown,
    /// An inbox that has expired.
    Expired(Box<Inbox>),
    /// An inbox that does not want mail from this sender.
    Blocked(Box<Inbox>),
    /// Somebody elsewhere. Nothing is ever relayed.
    Elsewhere,
}

impl Place {
    /// Whose it is, when somebody's.
    fn team(&self) -> Option<TeamId> {
        match self {
            Self::Inbox(inbox) | Self::Expired(inbox) | Self::Blocked(inbox) => Some(inbox.team),
            Self::Return(team, _) => Some(*team),
            Self::Unknown | Self::Elsewhere => None,
        }
    }

    /// What a delivery there is for, and why it makes no message, if so.
    fn target(&self) -> (Target, Option<Suppression>) {
        match self {
            Self::Inbox(inbox) => (Target::Inbox(inbox.id), None),
            Self::Expired(inbox) => (Target::Inbox(inbox.id), Some(Suppression::ExpiredInbox)),
            Self::Blocked(inbox) => (Target::Inbox(inbox.id), Some(Suppression::Blocked)),
            Self::Return(_, target) => (*target, None),
            Self::Unknown | Self::Elsewhere => (Target::Nobody, Some(Suppression::UnknownInbox)),
        }
    }
}

/// The same for the same delivery. By SMTP the bytes and the recipient decide, since a sender that missed our answer
/// brings exactly those again; a provider has a name for each delivery, and may spell the recipient as it likes.
fn delivery_key(mail: &Incoming, recipient: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    let source = mail.source.map(|(_, source)| source.0).unwrap_or_default();
    let parts: [&[u8]; 2] = match &mail.name {
        Some(name) => [b"name", name.as_bytes()],
        None => [b"bytes", &mail.raw],
    };
    let recipient = if mail.name.is_some() { recipient.to_ascii_lowercase() } else { recipient.to_owned() };
    for part in [parts[0], source.as_bytes(), recipient.as_bytes(), parts[1]] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// A mail with its delivery keys and its packed bytes.
struct Prepared {
    mail: Incoming,
    /// The delivery keys, in the order of the recipients that were asked for.
    keys: Vec<[u8; 32]>,
    packed: Arc<[u8]>,
}

/// Hashes a mail for each of these recipients, and packs it.
async fn prepare(mail: Incoming, recipients: Vec<String>, bodies: Arc<Packer>) -> Result<Prepared, StoreError> {
    // Each key is a hash over the whole mail.
    let octets = mail.raw.len().saturating_mul(recipients.len() + 1);
    let work = move || {
        let keys = recipients.iter().map(|recipient| delivery_key(&mail, recipient)).collect();
        let packed = bodies.pack_raw(&mail.raw).into();
        Prepared { mail, keys, packed }
    };
    apart_if(octets, work).await.map_err(|error| StoreError::Unreachable(format!("packing a mail: {error}")))
}

impl Engine {
    /// Whom an address belongs to.
    pub async fn place_of(&self, sender: Option<&str>, recipient: &str) -> Result<Place, StoreError> {
        let Ok(address) = Address::parse(recipient) else { return Ok(Place::Unknown) };
        if let Some(place) = self.return_place(&address).await? {
            return Ok(place);
        }
        let Some(inbox) = self.store.inbox_at(&inbox::places(address.as_str())).await? else {
            let ours = self.inbound.domains.iter().any(|domain| domain == address.domain());
            return Ok(if ours { Place::Unknown } else { Place::Elsewhere });
        };
        self.inbound.inbox_domains.learn(address.domain());
        let inbox = Box::new(inbox);
        if !inbox.is_open(self.now()) {
            return Ok(Place::Expired(inbox));
        }
        if self.is_blocked(&inbox, sender, address.as_str()).await? {
            return Ok(Place::Blocked(inbox));
        }
        Ok(Place::Inbox(inbox))
    }

    /// One of our own return paths, if its mark is ours.
    async fn return_place(&self, address: &Address) -> Result<Option<Place>, StoreError> {
        let Some(tag) = Tag::from_return_path(address.as_str()) else { return Ok(None) };
        if self.outside.bounce_domain.as_deref() != Some(address.domain()) {
            return Ok(None);
        }
        if !self.is_our_mark(&tag) {
            return Ok(Some(Place::Unknown));
        }
        let Some(team) = self.store.team_of(tag.email).await? else { return Ok(Some(Place::Unknown)) };
        let target = Target::Return { email: tag.email, handoff: tag.handoff, attempt: tag.attempt };
        Ok(Some(Place::Return(team, target)))
    }

    /// Keeps a mail for everyone here whom it is for. When this returns, it is durable. A recipient that takes no mail
    /// leaves a refused delivery, of the source's team or of the team whose address it is or was. Only an address that
    /// never was anybody's leaves none, so an intake must count what was taken before it acknowledges the mail.
    pub async fn take_mail(&self, mail: Incoming) -> Result<Vec<Received>, StoreError> {
        let now = self.now();
        let (recipients, places): (Vec<_>, Vec<_>) = self.places_of(&mail).await?.into_iter().unzip();
        if recipients.is_empty() {
            return Ok(Vec::new());
        }
        let Prepared { mail, keys, packed } = prepare(mail, recipients.clone(), Arc::clone(&self.bodies)).await?;
        let parcels = recipients.iter().zip(places).zip(keys);
        let parcels: Vec<_> =
            parcels.map(|((recipient, place), key)| self.delivery_for(&mail, recipient, place, key, now)).collect();
        let permits = self.inbound.room_for(&parcels, mail.raw.len());
        let reader = permits.is_some().then(|| self.holder.current().id);
        let arrival = Arrival { raw: packed, reader, parcels: parcels.clone() };
        crate::failpoint!("mail-before-commit");
        let received = self.store.receive(arrival, now).await?;
        crate::failpoint!("mail-after-commit");
        self.metrics.arrived(mail.intake, &parcels, &received);
        self.inbound.hand_on(permits, parcels, &received, &Arc::new(mail.raw), now);
        Ok(received)
    }

    /// The recipients of a mail that leave a delivery, each with its team and its place.
    async fn places_of(&self, mail: &Incoming) -> Result<Vec<(String, (TeamId, Place))>, StoreError> {
        let mut places = Vec::with_capacity(mail.recipients.len());
        for recipient in &mail.recipients {
            let place = self.place_of(mail.sender.as_deref(), recipient).await?;
            let team = match mail.source.map(|(team, _)| team).or_else(|| place.team()) {
                Some(team) => Some(team),
                None => self.team_that_had(recipient).await?,
            };
            places.extend(team.map(|team| (recipient.clone(), (team, place))));
        }
        Ok(places)
    }

    /// The team whose an address is or was, although it reaches nobody any more.
    async fn team_that_had(&self, recipient: &str) -> Result<Option<TeamId>, StoreError> {
        let Ok(address) = Address::parse(recipient) else { return Ok(None) };
        self.store.team_at(&inbox::places(address.as_str())).await
    }

    fn delivery_for(
        &self,
        mail: &Incoming,
        recipient: &str,
        (team, place): (TeamId, Place),
        key: [u8; 32],
        now: Time,
    ) -> NewDelivery {
        let dropped = mutant!("delivery-key-dropped");
        let key = if dropped { Sha256::digest(self.new_id(now).as_bytes()).into() } else { key };
        // A source speaks for its own team: an inbox of another is nobody's there.
        let place = if place.team().is_some_and(|owner| owner != team) { Place::Unknown } else { place };
        let (target, refused) = place.target();
        let known = if mail.name.is_some() { limits::DELIVERY_KNOWN_MS } else { limits::SAME_BYTES_MS };
        NewDelivery {
            id: DeliveryId(self.new_id(now)),
            team,
            about: AboutDelivery {
                intake: mail.intake,
                source: mail.source.map(|(_, source)| source),
                recipient: recipient.to_owned(),
                sender: mail.sender.clone(),
                ip: mail.ip,
                helo: mail.helo.clone(),
                form: mail.form,
                size: mail.raw.len() as u64,
            },
            target,
            key,
            known_until: now.plus(known),
            refused,
        }
    }
}

//! Mail comes in: whom it is for, and that it is kept. Reading comes later. Large mails are hashed and packed on
//! other threads than those of connections.

use crate::{
    inbound::Inbound,
    runtime::{blocking::run_blocking_if_large, pack::Packer},
};
use mailonce_core::{
    address::Address,
    id::{DeliveryId, SourceId, TeamId},
    inbound::delivery::{
        DeliveryDetails, DeliveryFormat, DeliverySuppression, DeliveryTarget, InboundMail, Intake, NewDelivery,
        ReceiveResult,
    },
    inbox::{self, Inbox},
    limits, mutant,
    ports::store::StoreError,
    time::Time,
};
use mailonce_mail::return_path::AttemptTag;
use sha2::{Digest as _, Sha256};
use std::{net::IpAddr, sync::Arc};

/// A mail as an intake brings it.
#[derive(Clone, Debug)]
pub struct IntakeMail {
    /// The way in.
    pub intake: Intake,
    /// The source and its team, when a provider told of it: only that team's inboxes are meant.
    pub source: Option<(TeamId, SourceId)>,
    /// What the provider calls this delivery, whatever it tells again. Without one the bytes decide.
    pub provider_delivery_id: Option<String>,
    /// Where it came from.
    pub ip: Option<IpAddr>,
    /// What that host called itself.
    pub helo: Option<String>,
    /// The sender of the envelope; empty for the null return path, `None` when nobody told.
    pub sender: Option<String>,
    /// The recipients of the envelope.
    pub recipients: Vec<String>,
    /// What the bytes are.
    pub form: DeliveryFormat,
    /// The bytes.
    pub raw: Vec<u8>,
}

/// Whom an address belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecipientRoute {
    /// An inbox that takes mail.
    Inbox(Box<Inbox>),
    /// One of our own return paths.
    ReturnPath(TeamId, DeliveryTarget),
    /// A domain of ours, and nobody there.
    UnknownInbox,
    /// An inbox that has expired.
    Expired(Box<Inbox>),
    /// An inbox that does not want mail from this sender.
    Blocked(Box<Inbox>),
    /// Somebody elsewhere. Nothing is ever relayed.
    NotLocal,
}

impl RecipientRoute {
    /// Whose it is, when somebody's.
    fn team(&self) -> Option<TeamId> {
        match self {
            Self::Inbox(inbox) | Self::Expired(inbox) | Self::Blocked(inbox) => Some(inbox.team),
            Self::ReturnPath(team, _) => Some(*team),
            Self::UnknownInbox | Self::NotLocal => None,
        }
    }

    /// What a delivery there is for, and why it makes no message, if so.
    fn target(&self) -> (DeliveryTarget, Option<DeliverySuppression>) {
        match self {
            Self::Inbox(inbox) => (DeliveryTarget::Inbox(inbox.id), None),
            Self::Expired(inbox) => (DeliveryTarget::Inbox(inbox.id), Some(DeliverySuppression::ExpiredInbox)),
            Self::Blocked(inbox) => (DeliveryTarget::Inbox(inbox.id), Some(DeliverySuppression::Blocked)),
            Self::ReturnPath(_, target) => (*target, None),
            Self::UnknownInbox | Self::NotLocal => (DeliveryTarget::Nobody, Some(DeliverySuppression::UnknownInbox)),
        }
    }
}

/// The same for the same delivery. By SMTP the bytes and the recipient decide, since a sender that missed our answer
/// brings exactly those again; a provider has a name for each delivery, and may spell the recipient as it likes.
fn delivery_key(mail: &IntakeMail, recipient: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    let source = mail.source.map(|(_, source)| source.0).unwrap_or_default();
    let parts: [&[u8]; 2] = match &mail.provider_delivery_id {
        Some(name) => [b"name", name.as_bytes()],
        None => [b"bytes", &mail.raw],
    };
    let recipient =
        if mail.provider_delivery_id.is_some() { recipient.to_ascii_lowercase() } else { recipient.to_owned() };
    for part in [parts[0], source.as_bytes(), recipient.as_bytes(), parts[1]] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// A mail with its delivery keys and its packed bytes.
struct PreparedMail {
    mail: IntakeMail,
    /// The delivery keys, in the order of the recipients that were asked for.
    keys: Vec<[u8; 32]>,
    packed: Arc<[u8]>,
}

/// Hashes a mail for each of these recipients, and packs it.
async fn prepare(mail: IntakeMail, recipients: Vec<String>, bodies: Arc<Packer>) -> Result<PreparedMail, StoreError> {
    // Each key is a hash over the whole mail.
    let octets = mail.raw.len().saturating_mul(recipients.len() + 1);
    let work = move || {
        let keys = recipients.iter().map(|recipient| delivery_key(&mail, recipient)).collect();
        let packed = bodies.pack_raw(&mail.raw).into();
        PreparedMail { mail, keys, packed }
    };
    run_blocking_if_large(octets, work)
        .await
        .map_err(|error| StoreError::Unreachable(format!("packing a mail: {error}")))
}

impl Inbound {
    /// Whom an address belongs to.
    pub async fn route_recipient(&self, sender: Option<&str>, recipient: &str) -> Result<RecipientRoute, StoreError> {
        let Ok(address) = Address::parse(recipient) else { return Ok(RecipientRoute::UnknownInbox) };
        if let Some(place) = self.route_return_path(&address).await? {
            return Ok(place);
        }
        let Some(inbox) = self.ctx.store.inbox_by_address(&inbox::candidate_addresses(address.as_str())).await? else {
            let ours = self.ctx.inbound.local_domains.iter().any(|domain| domain == address.domain());
            return Ok(if ours { RecipientRoute::UnknownInbox } else { RecipientRoute::NotLocal });
        };
        self.ctx.inbound.inbox_domains.add(address.domain());
        let inbox = Box::new(inbox);
        if !inbox.is_open(self.ctx.now()) {
            return Ok(RecipientRoute::Expired(inbox));
        }
        if self.control.is_sender_blocked(&inbox, sender, address.as_str()).await? {
            return Ok(RecipientRoute::Blocked(inbox));
        }
        Ok(RecipientRoute::Inbox(inbox))
    }

    /// One of our own return paths, if its mark is ours.
    async fn route_return_path(&self, address: &Address) -> Result<Option<RecipientRoute>, StoreError> {
        let Some(tag) = AttemptTag::from_return_path(address.as_str()) else { return Ok(None) };
        if self.ctx.deps.bounce_domain.as_deref() != Some(address.domain()) {
            return Ok(None);
        }
        if !self.is_own_return_path_tag(&tag) {
            return Ok(Some(RecipientRoute::UnknownInbox));
        }
        let Some(team) = self.ctx.store.team_of_email(tag.email).await? else {
            return Ok(Some(RecipientRoute::UnknownInbox));
        };
        let target = DeliveryTarget::Return { email: tag.email, handoff: tag.handoff, attempt: tag.attempt };
        Ok(Some(RecipientRoute::ReturnPath(team, target)))
    }

    /// Keeps a mail for everyone here whom it is for. When this returns, it is durable. A recipient that takes no mail
    /// leaves a refused delivery, of the source's team or of the team whose address it is or was. Only an address that
    /// never was anybody's leaves none, so an intake must count what was taken before it acknowledges the mail.
    pub async fn receive_mail(&self, mail: IntakeMail) -> Result<Vec<ReceiveResult>, StoreError> {
        let now = self.ctx.now();
        let (recipients, places): (Vec<_>, Vec<_>) = self.route_recipients(&mail).await?.into_iter().unzip();
        if recipients.is_empty() {
            return Ok(Vec::new());
        }
        let PreparedMail { mail, keys, packed } =
            prepare(mail, recipients.clone(), Arc::clone(&self.ctx.packer)).await?;
        let parcels = recipients.iter().zip(places).zip(keys);
        let parcels: Vec<_> =
            parcels.map(|((recipient, place), key)| self.new_delivery(&mail, recipient, place, key, now)).collect();
        let permits = self.ctx.inbound.reserve_fast_path(&parcels, mail.raw.len());
        let reader = permits.is_some().then(|| self.ctx.lease_identities.current().id);
        let arrival = InboundMail { raw: packed, leased_to: reader, deliveries: parcels.clone() };
        crate::failpoint!("mail-before-commit");
        let received = self.ctx.store.receive(arrival, now).await?;
        crate::failpoint!("mail-after-commit");
        self.ctx.metrics.record_deliveries(mail.intake, &parcels, &received);
        self.ctx.inbound.send_to_worker(permits, parcels, &received, &Arc::new(mail.raw), now);
        Ok(received)
    }

    /// The recipients of a mail that leave a delivery, each with its team and its place.
    async fn route_recipients(&self, mail: &IntakeMail) -> Result<Vec<(String, (TeamId, RecipientRoute))>, StoreError> {
        let mut places = Vec::with_capacity(mail.recipients.len());
        for recipient in &mail.recipients {
            let place = self.route_recipient(mail.sender.as_deref(), recipient).await?;
            let team = match mail.source.map(|(team, _)| team).or_else(|| place.team()) {
                Some(team) => Some(team),
                None => self.former_team(recipient).await?,
            };
            places.extend(team.map(|team| (recipient.clone(), (team, place))));
        }
        Ok(places)
    }

    /// The team whose an address is or was, although it reaches nobody any more.
    async fn former_team(&self, recipient: &str) -> Result<Option<TeamId>, StoreError> {
        let Ok(address) = Address::parse(recipient) else { return Ok(None) };
        self.ctx.store.team_by_address(&inbox::candidate_addresses(address.as_str())).await
    }

    fn new_delivery(
        &self,
        mail: &IntakeMail,
        recipient: &str,
        (team, place): (TeamId, RecipientRoute),
        key: [u8; 32],
        now: Time,
    ) -> NewDelivery {
        let dropped = mutant!("delivery-key-dropped");
        let key = if dropped { Sha256::digest(self.ctx.new_id(now).as_bytes()).into() } else { key };
        // A source speaks for its own team: an inbox of another is nobody's there.
        let place = if place.team().is_some_and(|owner| owner != team) { RecipientRoute::UnknownInbox } else { place };
        let (target, refused) = place.target();
        let known = if mail.provider_delivery_id.is_some() { limits::PROVIDER_DEDUP_MS } else { limits::SMTP_DEDUP_MS };
        NewDelivery {
            id: DeliveryId(self.ctx.new_id(now)),
            team,
            details: DeliveryDetails {
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
            dedup_key: key,
            dedup_until: now.plus(known),
            suppression: refused,
        }
    }
}

//! Receiving a mail: routes its recipients and stores one delivery for each. Parsing happens later, in the worker.
//! Large mails are hashed and packed on blocking threads, so that they don't stall connections.

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
    limits,
    ports::store::StoreError,
    time::Time,
};
use mailonce_mail::return_path::AttemptTag;
use sha2::{Digest as _, Sha256};
use std::{net::IpAddr, sync::Arc};

/// A mail as an intake received it.
#[derive(Clone, Debug)]
pub struct IntakeMail {
    /// How the mail was received.
    pub intake: Intake,
    /// The source and its team, when a provider reported the mail. It can only reach inboxes of that team.
    pub source: Option<(TeamId, SourceId)>,
    /// The provider's id of this delivery, the same in every repeat. Without one, the bytes identify the delivery.
    pub provider_delivery_id: Option<String>,
    /// The address of the connecting client.
    pub ip: Option<IpAddr>,
    /// The name that the client gave in HELO or EHLO.
    pub helo: Option<String>,
    /// The envelope sender; empty for the null return path, `None` when it is unknown.
    pub sender: Option<String>,
    /// The envelope recipients.
    pub recipients: Vec<String>,
    /// The format of `raw`.
    pub form: DeliveryFormat,
    /// The mail, or the provider's notice of it.
    pub raw: Vec<u8>,
}

/// Where mail for an address goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecipientRoute {
    /// An inbox that accepts mail.
    Inbox(Box<Inbox>),
    /// One of our own return paths.
    ReturnPath(TeamId, DeliveryTarget),
    /// The domain is local, but no inbox has this address.
    UnknownInbox,
    /// An inbox that has expired.
    Expired(Box<Inbox>),
    /// An inbox whose team blocks this sender.
    Blocked(Box<Inbox>),
    /// An address elsewhere. mailonce never relays received mail.
    NotLocal,
}

impl RecipientRoute {
    /// The team that owns the address, if any.
    fn team(&self) -> Option<TeamId> {
        match self {
            Self::Inbox(inbox) | Self::Expired(inbox) | Self::Blocked(inbox) => Some(inbox.team),
            Self::ReturnPath(team, _) => Some(*team),
            Self::UnknownInbox | Self::NotLocal => None,
        }
    }

    /// The target of the delivery, and the reason when the delivery makes no message.
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

/// The deduplication key of a delivery. For SMTP it covers the bytes and the recipient, because a sender that missed
/// our reply retries with exactly those. A provider has an id for each delivery, but may vary the recipient's case.
fn delivery_key(mail: &IntakeMail, recipient: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    let source = mail.source.map(|(_, source)| source.0).unwrap_or_default();
    let parts: [&[u8]; 2] = match &mail.provider_delivery_id {
        Some(id) => [b"name", id.as_bytes()],
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
    /// The delivery keys, in the order of the recipients.
    keys: Vec<[u8; 32]>,
    packed: Arc<[u8]>,
}

/// Computes the delivery key of each recipient and packs the mail.
async fn prepare(mail: IntakeMail, recipients: Vec<String>, packer: Arc<Packer>) -> Result<PreparedMail, StoreError> {
    // Each key is a hash over the whole mail.
    let bytes_hashed = mail.raw.len().saturating_mul(recipients.len() + 1);
    let work = move || {
        let keys = recipients.iter().map(|recipient| delivery_key(&mail, recipient)).collect();
        let packed = packer.pack_raw(&mail.raw).into();
        PreparedMail { mail, keys, packed }
    };
    run_blocking_if_large(bytes_hashed, work)
        .await
        .map_err(|error| StoreError::Unreachable(format!("packing a mail: {error}")))
}

impl Inbound {
    /// Finds where mail for an address goes.
    pub async fn route_recipient(&self, sender: Option<&str>, recipient: &str) -> Result<RecipientRoute, StoreError> {
        let Ok(address) = Address::parse(recipient) else { return Ok(RecipientRoute::UnknownInbox) };
        if let Some(route) = self.route_return_path(&address).await? {
            return Ok(route);
        }
        let Some(inbox) = self.ctx.store.inbox_by_address(&inbox::candidate_addresses(address.as_str())).await? else {
            let is_local = self.ctx.inbound.local_domains.iter().any(|domain| domain == address.domain());
            return Ok(if is_local { RecipientRoute::UnknownInbox } else { RecipientRoute::NotLocal });
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

    /// The route of an address in return-path form at our bounce domain. `UnknownInbox` when its tag is forged.
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

    /// Stores one delivery for each local recipient of a mail. The deliveries are durable when this returns.
    ///
    /// A recipient that accepts no mail gets a refused delivery, owned by the source's team or by the current or former
    /// team of the address. An address that no team ever had gets none. So an intake must check the results before it
    /// acknowledges the mail.
    pub async fn receive_mail(&self, mail: IntakeMail) -> Result<Vec<ReceiveResult>, StoreError> {
        let now = self.ctx.now();
        let (recipients, routes): (Vec<_>, Vec<_>) = self.route_recipients(&mail).await?.into_iter().unzip();
        if recipients.is_empty() {
            return Ok(Vec::new());
        }
        let PreparedMail { mail, keys, packed } =
            prepare(mail, recipients.clone(), Arc::clone(&self.ctx.packer)).await?;
        let deliveries = recipients.iter().zip(routes).zip(keys);
        let deliveries: Vec<_> =
            deliveries.map(|((recipient, route), key)| self.new_delivery(&mail, recipient, route, key, now)).collect();
        let permits = self.ctx.inbound.reserve_fast_path(&deliveries, mail.raw.len());
        let worker = permits.is_some().then(|| self.ctx.lease_identities.current().id);
        let arrival = InboundMail { raw: packed, leased_to: worker, deliveries: deliveries.clone() };
        crate::failpoint!("mail-before-commit");
        let received = self.ctx.store.receive(arrival, now).await?;
        crate::failpoint!("mail-after-commit");
        self.ctx.metrics.record_deliveries(mail.intake, &deliveries, &received);
        self.ctx.inbound.send_to_worker(permits, deliveries, &received, &Arc::new(mail.raw), now);
        Ok(received)
    }

    /// The recipients of a mail that get a delivery, each with its team and route.
    async fn route_recipients(&self, mail: &IntakeMail) -> Result<Vec<(String, (TeamId, RecipientRoute))>, StoreError> {
        let mut routes = Vec::with_capacity(mail.recipients.len());
        for recipient in &mail.recipients {
            let route = self.route_recipient(mail.sender.as_deref(), recipient).await?;
            let team = match mail.source.map(|(team, _)| team).or_else(|| route.team()) {
                Some(team) => Some(team),
                None => self.former_team(recipient).await?,
            };
            routes.extend(team.map(|team| (recipient.clone(), (team, route))));
        }
        Ok(routes)
    }

    /// The current or former team of an address that no longer reaches an inbox.
    async fn former_team(&self, recipient: &str) -> Result<Option<TeamId>, StoreError> {
        let Ok(address) = Address::parse(recipient) else { return Ok(None) };
        self.ctx.store.team_by_address(&inbox::candidate_addresses(address.as_str())).await
    }

    fn new_delivery(
        &self,
        mail: &IntakeMail,
        recipient: &str,
        (team, route): (TeamId, RecipientRoute),
        key: [u8; 32],
        now: Time,
    ) -> NewDelivery {
        // A source can only deliver to its own team. An inbox of another team counts as unknown.
        let route = if route.team().is_some_and(|owner| owner != team) { RecipientRoute::UnknownInbox } else { route };
        let (target, suppression) = route.target();
        let dedup_ms =
            if mail.provider_delivery_id.is_some() { limits::PROVIDER_DEDUP_MS } else { limits::SMTP_DEDUP_MS };
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
            dedup_until: now.plus(dedup_ms),
            suppression,
        }
    }
}

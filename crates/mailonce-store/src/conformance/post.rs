//! Steps of mail that comes in: inboxes, parcels, letters.

use mailonce_core::{
    artifact::{Artifact, ArtifactKind, FoundValue, NewArtifact, Taking},
    delivery::{
        AboutDelivery, Arrival, Brought, Delivery, Form, Intake, NewDelivery, Reading, Received, Settle, Suppression,
        Target,
    },
    id::{ApiKeyId, ArtifactId, DeliveryId, InboxId, MessageId, NodeId, SourceId, TeamId, ThreadId},
    inbox::{AboutInbox, Inbox, InboxChange, InboxEdit, InboxMade},
    limits,
    message::{Filed, Handle, Marks, Message, MessageHead, MessageQuery, MessageState, NewMessage, Party},
    port::{
        authenticate::{Auth, AuthResult},
        store::Once,
    },
    time::Time,
};
use uuid::Uuid;

use super::{Ledger, T0, TEAM, next_id, work::NODE};

/// The bytes of a mail, packed somehow.
pub(super) const RAW: &[u8] = b"Subject: hi\r\n\r\nhi\0\xff";

/// An inbox of our team before it is made.
pub(super) fn inbox(address: &str) -> Inbox {
    Inbox {
        id: InboxId(next_id(T0)),
        team: TEAM,
        rev: 1,
        address: address.into(),
        client_id: None,
        created_at: T0,
        seq: 0,
        about: AboutInbox::default(),
    }
}

/// The same as its domain's catch-all.
pub(super) fn catching(inbox: Inbox) -> Inbox {
    Inbox { about: AboutInbox { catch_all: true, ..inbox.about }, ..inbox }
}

pub(super) async fn make(store: &Ledger, inbox: &Inbox) -> InboxMade {
    match store.create_inbox(inbox.clone(), None).await.unwrap() {
        Once::Done(made) => made,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn made(store: &Ledger, inbox: &Inbox) -> Inbox {
    match make(store, inbox).await {
        InboxMade::Made(made) => made,
        other => panic!("{other:?}"),
    }
}

/// Our team's new inbox at this address.
pub(super) async fn open(store: &Ledger, address: &str) -> Inbox {
    made(store, &inbox(address)).await
}

/// The id of the inbox at the first of these places.
pub(super) async fn at(store: &Ledger, recipient: &str) -> Option<InboxId> {
    let places = mailonce_core::inbox::places(recipient);
    store.inbox_at(&places).await.unwrap().map(|inbox| inbox.id)
}

/// The team whose the first of these places is or was.
pub(super) async fn whose(store: &Ledger, recipient: &str) -> Option<TeamId> {
    store.team_at(&mailonce_core::inbox::places(recipient)).await.unwrap()
}

pub(super) fn edit(inbox: &Inbox, address: &str, about: AboutInbox) -> InboxEdit {
    InboxEdit { team: inbox.team, id: inbox.id, rev: inbox.rev, address: address.into(), about }
}

pub(super) async fn change(store: &Ledger, edit: InboxEdit) -> InboxChange {
    match store.change_inbox(edit, None, T0).await.unwrap() {
        Once::Done(change) => change,
        other => panic!("{other:?}"),
    }
}

/// A hash that stands for some bytes.
pub(super) fn hash(n: u8) -> [u8; 32] {
    let mut hash = [n; 32];
    hash[31] = 0xff;
    hash
}

/// A delivery for an inbox under a key of its own.
pub(super) fn parcel(inbox: &Inbox, now: Time) -> NewDelivery {
    let id = next_id(now);
    let mut key = [0; 32];
    key[..16].copy_from_slice(id.as_bytes());
    NewDelivery {
        id: DeliveryId(id),
        team: inbox.team,
        about: AboutDelivery {
            intake: Intake::Smtp,
            source: Some(SourceId(Uuid::from_u128(0x50))),
            recipient: format!("Tag+{}", inbox.address),
            sender: Some("Ünï@sender.test".into()),
            ip: Some([192, 0, 2, 1].into()),
            helo: Some("mx.sender.test".into()),
            form: Form::Mime,
            size: 19,
        },
        target: Target::Inbox(inbox.id),
        key,
        known_until: now.plus(limits::SAME_BYTES_MS),
        refused: None,
    }
}

/// A delivery for an inbox under this key.
pub(super) fn keyed_parcel(inbox: &Inbox, key: u8, now: Time) -> NewDelivery {
    NewDelivery { key: hash(key), ..parcel(inbox, now) }
}

/// A delivery that is refused as it comes.
pub(super) fn refused_parcel(team: TeamId, why: Suppression, now: Time) -> NewDelivery {
    let nobody = Inbox { team, ..inbox("nobody@d.test") };
    NewDelivery { target: Target::Nobody, refused: Some(why), ..parcel(&nobody, now) }
}

/// An arrival that nobody reads yet.
pub(super) fn arrival(parcels: Vec<NewDelivery>) -> Arrival {
    Arrival { raw: RAW.into(), reader: None, parcels }
}

/// Other bytes, which were fetched.
pub(super) const FETCHED: &[u8] = b"Subject: fetched\r\n\r\nhi";

/// A delivery that only tells of a mail.
pub(super) fn notice(inbox: &Inbox, now: Time) -> NewDelivery {
    let parcel = parcel(inbox, now);
    NewDelivery { about: AboutDelivery { form: Form::Notice, ..parcel.about }, ..parcel }
}

/// A mail that was fetched.
pub(super) fn fetched(now: Time) -> Brought {
    Brought { place: DeliveryId(next_id(now)), form: Form::Mime, size: 23, raw: FETCHED.into() }
}

pub(super) async fn receive(store: &Ledger, parcels: Vec<NewDelivery>, now: Time) -> Vec<Received> {
    store.receive(arrival(parcels), now).await.unwrap()
}

/// A delivery that was kept.
pub(super) async fn kept(store: &Ledger, parcel: NewDelivery, now: Time) -> DeliveryId {
    match receive(store, vec![parcel], now).await[..] {
        [Received::Kept(id)] => id,
        ref other => panic!("{other:?}"),
    }
}

/// Our team's delivery as it is now.
pub(super) async fn delivery(store: &Ledger, id: DeliveryId) -> Delivery {
    store.delivery(TEAM, id).await.unwrap().unwrap()
}

pub(super) async fn settle(store: &Ledger, id: DeliveryId, settle: Settle, now: Time) -> Delivery {
    store.settle_delivery(TEAM, id, settle, now).await.unwrap().unwrap()
}

pub(super) async fn read(store: &Ledger, node: NodeId, max: usize, now: Time) -> Vec<Reading> {
    store.read(node, max, now).await.unwrap()
}

/// The ids of what is due.
pub(super) async fn due(store: &Ledger, max: usize, now: Time) -> Vec<DeliveryId> {
    read(store, NODE, max, now).await.iter().map(|reading| reading.delivery.id).collect()
}

/// A letter under this Message-ID, saying this.
pub(super) fn letter(name: Option<u8>, content: u8) -> NewMessage {
    let party = |address: &str| Party { name: Some("Ünï".into()), address: address.into() };
    let id = MessageId(next_id(T0));
    NewMessage {
        id,
        thread: ThreadId(next_id(T0)),
        name: name.map(hash),
        content: hash(content),
        names: name.map(hash).into_iter().collect(),
        email: None,
        head: MessageHead {
            message_id: name.map(|n| format!("<{n}@sender.test>")),
            from: Some(party("no-reply@sender.test")),
            to: vec![party("a@d.test")],
            recipient: "a+tag@d.test".into(),
            subject: format!("Your Täg {content}"),
            date: Some(T0),
            size: 19,
            attachments: vec![Handle {
                filename: None,
                content_type: "text/plain".into(),
                content_id: None,
                inline: false,
                size: 3,
            }],
            ..MessageHead::default()
        },
        marks: Marks { labels: vec!["new".into()], ..Marks::default() },
        state: MessageState::Unanswered,
        artifacts: Vec::new(),
    }
}

/// The same from this address.
pub(super) fn from(mut letter: NewMessage, address: &str) -> NewMessage {
    letter.head.from = Some(Party { name: None, address: address.into() });
    letter
}

/// The same, from somebody who is who it says.
pub(super) fn passed(mut letter: NewMessage) -> NewMessage {
    letter.head.auth = Auth { verdict: AuthResult::Pass, ..Auth::default() };
    letter
}

/// The same, written by a machine; `hard` when nothing may override that.
pub(super) fn automatic(mut letter: NewMessage, hard: bool) -> NewMessage {
    letter.head.automatic = Some(("auto-submitted".into(), hard));
    letter
}

/// The same, written by one of our own.
pub(super) fn own(mut letter: NewMessage) -> NewMessage {
    letter.head.own = Some("own_address".into());
    letter
}

/// The same as an answer to these, the closest first.
pub(super) fn answering(mut letter: NewMessage, ancestors: &[u8]) -> NewMessage {
    letter.names.extend(ancestors.iter().map(|n| hash(*n)));
    letter
}

/// The same with these values in it.
pub(super) fn holding(mut letter: NewMessage, values: &[(ArtifactKind, u8)]) -> NewMessage {
    letter.artifacts = values.iter().map(|(kind, n)| value(*kind, *n)).collect();
    letter
}

fn value(kind: ArtifactKind, n: u8) -> NewArtifact {
    let found = FoundValue {
        value: format!("{n:06}"),
        masked: "••••".into(),
        confidence: 90 + n % 10,
        reasons: vec!["near".into()],
    };
    NewArtifact { id: ArtifactId(next_id(T0)), kind, found, hash: hash(n) }
}

pub(super) async fn file(store: &Ledger, id: DeliveryId, letter: NewMessage, now: Time) -> Filed {
    store.file(TEAM, id, letter, now).await.unwrap()
}

/// A letter that arrived and was filed.
pub(super) async fn filed(store: &Ledger, inbox: &Inbox, letter: NewMessage, now: Time) -> (Message, Vec<Artifact>) {
    let id = kept(store, parcel(inbox, now), now).await;
    match store.file(inbox.team, id, letter, now).await.unwrap() {
        Filed::New(message, artifacts) => (*message, artifacts),
        other => panic!("{other:?}"),
    }
}

/// A letter that arrived and was known: its delivery, the message it repeats, and why.
pub(super) async fn known(
    store: &Ledger,
    inbox: &Inbox,
    letter: NewMessage,
    now: Time,
) -> (DeliveryId, (MessageId, Suppression)) {
    let id = kept(store, parcel(inbox, now), now).await;
    match file(store, id, letter, now).await {
        Filed::Known(message, why) => (id, (message, why)),
        other => panic!("{other:?}"),
    }
}

/// A wish to take something for this run.
pub(super) fn taking(purpose: &str) -> Taking {
    Taking { purpose: purpose.into(), watch: None, by: ApiKeyId(Uuid::from_u128(0x33)) }
}

/// Every message that a query finds, page by page.
pub(super) async fn all_messages(store: &Ledger, inbox: &Inbox, mut query: MessageQuery) -> Vec<Message> {
    use mailonce_core::message::MessagePlace::{After, Before};
    let mut found = Vec::new();
    loop {
        let page = store.messages(inbox.team, inbox.id, query.clone()).await.unwrap();
        assert!(page.rows.len() <= query.limit);
        found.extend(page.rows);
        let Some(next) = page.next else { return found };
        query.place = match query.place {
            After(_) => After(next),
            Before(_) => Before(next),
        };
    }
}

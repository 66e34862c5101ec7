//! Steps of mail that comes in: inboxes, parcels, letters.

use mailonce_core::{
    id::{ApiKeyId, ArtifactId, DeliveryId, InboxId, MessageId, NodeId, SourceId, TeamId, ThreadId},
    inbound::{
        delivery::{
            Delivery, DeliveryDetails, DeliveryFormat, DeliveryOutcome, DeliverySuppression, DeliveryTarget,
            FetchedContent, InboundMail, Intake, LeasedDelivery, NewDelivery, ReceiveResult,
        },
        sender_auth::{AuthResult, SenderAuth},
    },
    inbox::{
        CreateInboxResult, Inbox, InboxChangeResult, InboxEdit, InboxSettings,
        artifact::{Artifact, ArtifactKind, ConsumeRequest, ExtractedValue, NewArtifact},
        message::{
            AttachmentInfo, FileMessageResult, Message, MessageAnnotations, MessageHead, MessageQuery, MessageState,
            NewMessage, Party,
        },
    },
    limits,
    operation::IdempotentResult,
    time::Time,
};
use uuid::Uuid;

use super::{T0, TEAM, TestStore, next_id, work::NODE};

/// The bytes of a mail, packed somehow.
pub(super) const RAW: &[u8] = b"Subject: hi\r\n\r\nhi\0\xff";

/// An inbox of our team before it is made.
pub(super) fn new_inbox(address: &str) -> Inbox {
    Inbox {
        id: InboxId(next_id(T0)),
        team: TEAM,
        rev: 1,
        address: address.into(),
        client_id: None,
        created_at: T0,
        latest_seq: 0,
        settings: InboxSettings::default(),
    }
}

/// The same as its domain's catch-all.
pub(super) fn as_catch_all(inbox: Inbox) -> Inbox {
    Inbox { settings: InboxSettings { catch_all: true, ..inbox.settings }, ..inbox }
}

pub(super) async fn create_inbox(store: &TestStore, inbox: &Inbox) -> CreateInboxResult {
    match store.create_inbox(inbox.clone(), None).await.unwrap() {
        IdempotentResult::Done(made) => made,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn created_inbox(store: &TestStore, inbox: &Inbox) -> Inbox {
    match create_inbox(store, inbox).await {
        CreateInboxResult::Created(made) => made,
        other => panic!("{other:?}"),
    }
}

/// Our team's new inbox at this address.
pub(super) async fn open_inbox(store: &TestStore, address: &str) -> Inbox {
    created_inbox(store, &new_inbox(address)).await
}

/// The id of the inbox at the first of these places.
pub(super) async fn inbox_id_at(store: &TestStore, recipient: &str) -> Option<InboxId> {
    let places = mailonce_core::inbox::candidate_addresses(recipient);
    store.inbox_by_address(&places).await.unwrap().map(|inbox| inbox.id)
}

/// The team whose the first of these places is or was.
pub(super) async fn team_at(store: &TestStore, recipient: &str) -> Option<TeamId> {
    store.team_by_address(&mailonce_core::inbox::candidate_addresses(recipient)).await.unwrap()
}

pub(super) fn inbox_edit(inbox: &Inbox, address: &str, about: InboxSettings) -> InboxEdit {
    InboxEdit { team: inbox.team, id: inbox.id, rev: inbox.rev, address: address.into(), settings: about }
}

pub(super) async fn change_inbox(store: &TestStore, edit: InboxEdit) -> InboxChangeResult {
    match store.change_inbox(edit, None, T0).await.unwrap() {
        IdempotentResult::Done(change) => change,
        other => panic!("{other:?}"),
    }
}

/// A hash that stands for some bytes.
pub(super) fn hash_of(n: u8) -> [u8; 32] {
    let mut hash = [n; 32];
    hash[31] = 0xff;
    hash
}

/// A delivery for an inbox under a key of its own.
pub(super) fn new_delivery(inbox: &Inbox, now: Time) -> NewDelivery {
    let id = next_id(now);
    let mut key = [0; 32];
    key[..16].copy_from_slice(id.as_bytes());
    NewDelivery {
        id: DeliveryId(id),
        team: inbox.team,
        details: DeliveryDetails {
            intake: Intake::Smtp,
            source: Some(SourceId(Uuid::from_u128(0x50))),
            recipient: format!("Tag+{}", inbox.address),
            sender: Some("Ünï@sender.test".into()),
            ip: Some([192, 0, 2, 1].into()),
            helo: Some("mx.sender.test".into()),
            form: DeliveryFormat::Mime,
            size: 19,
        },
        target: DeliveryTarget::Inbox(inbox.id),
        dedup_key: key,
        dedup_until: now.plus(limits::SMTP_DEDUP_MS),
        suppression: None,
    }
}

/// A delivery for an inbox under this key.
pub(super) fn keyed_delivery(inbox: &Inbox, key: u8, now: Time) -> NewDelivery {
    NewDelivery { dedup_key: hash_of(key), ..new_delivery(inbox, now) }
}

/// A delivery that is refused as it comes.
pub(super) fn refused_delivery(team: TeamId, why: DeliverySuppression, now: Time) -> NewDelivery {
    let nobody = Inbox { team, ..new_inbox("nobody@d.test") };
    NewDelivery { target: DeliveryTarget::Nobody, suppression: Some(why), ..new_delivery(&nobody, now) }
}

/// An arrival that nobody reads yet.
pub(super) fn unread_arrival(parcels: Vec<NewDelivery>) -> InboundMail {
    InboundMail { raw: RAW.into(), leased_to: None, deliveries: parcels }
}

/// Other bytes, which were fetched.
pub(super) const FETCHED: &[u8] = b"Subject: fetched\r\n\r\nhi";

/// A delivery that only tells of a mail.
pub(super) fn mail_notice(inbox: &Inbox, now: Time) -> NewDelivery {
    let parcel = new_delivery(inbox, now);
    NewDelivery { details: DeliveryDetails { form: DeliveryFormat::Notice, ..parcel.details }, ..parcel }
}

/// A mail that was fetched.
pub(super) fn fetched_mail(now: Time) -> FetchedContent {
    FetchedContent { storage_id: DeliveryId(next_id(now)), form: DeliveryFormat::Mime, size: 23, raw: FETCHED.into() }
}

pub(super) async fn receive_all(store: &TestStore, parcels: Vec<NewDelivery>, now: Time) -> Vec<ReceiveResult> {
    store.receive(unread_arrival(parcels), now).await.unwrap()
}

/// A delivery that was kept.
pub(super) async fn receive_one(store: &TestStore, parcel: NewDelivery, now: Time) -> DeliveryId {
    match receive_all(store, vec![parcel], now).await[..] {
        [ReceiveResult::Stored(id)] => id,
        ref other => panic!("{other:?}"),
    }
}

/// Our team's delivery as it is now.
pub(super) async fn load_delivery(store: &TestStore, id: DeliveryId) -> Delivery {
    store.delivery(TEAM, id).await.unwrap().unwrap()
}

pub(super) async fn settle_delivery(store: &TestStore, id: DeliveryId, settle: DeliveryOutcome, now: Time) -> Delivery {
    store.record_delivery_outcome(TEAM, id, settle, now).await.unwrap().unwrap()
}

pub(super) async fn lease_deliveries(store: &TestStore, node: NodeId, max: usize, now: Time) -> Vec<LeasedDelivery> {
    store.lease_deliveries(node, max, now).await.unwrap()
}

/// The ids of what is due.
pub(super) async fn lease_due_ids(store: &TestStore, max: usize, now: Time) -> Vec<DeliveryId> {
    lease_deliveries(store, NODE, max, now).await.iter().map(|reading| reading.delivery.id).collect()
}

/// A letter under this Message-ID, saying this.
pub(super) fn new_message(name: Option<u8>, content: u8) -> NewMessage {
    let party = |address: &str| Party { name: Some("Ünï".into()), address: address.into() };
    let id = MessageId(next_id(T0));
    NewMessage {
        id,
        thread: ThreadId(next_id(T0)),
        message_id_hash: name.map(hash_of),
        content_hash: hash_of(content),
        thread_hashes: name.map(hash_of).into_iter().collect(),
        answers_email: None,
        head: MessageHead {
            message_id: name.map(|n| format!("<{n}@sender.test>")),
            from: Some(party("no-reply@sender.test")),
            to: vec![party("a@d.test")],
            recipient: "a+tag@d.test".into(),
            subject: format!("Your Täg {content}"),
            date: Some(T0),
            size: 19,
            attachments: vec![AttachmentInfo {
                filename: None,
                content_type: "text/plain".into(),
                content_id: None,
                inline: false,
                size: 3,
            }],
            ..MessageHead::default()
        },
        annotations: MessageAnnotations { labels: vec!["new".into()], ..MessageAnnotations::default() },
        state: MessageState::Unanswered,
        artifacts: Vec::new(),
    }
}

/// The same from this address.
pub(super) fn from_sender(mut letter: NewMessage, address: &str) -> NewMessage {
    letter.head.from = Some(Party { name: None, address: address.into() });
    letter
}

/// The same, from somebody who is who it says.
pub(super) fn with_passed_auth(mut letter: NewMessage) -> NewMessage {
    letter.head.auth = SenderAuth { verdict: AuthResult::Pass, ..SenderAuth::default() };
    letter
}

/// The same, written by a machine; `hard` when nothing may override that.
pub(super) fn written_by_machine(mut letter: NewMessage, hard: bool) -> NewMessage {
    letter.head.automatic = Some(("auto-submitted".into(), hard));
    letter
}

/// The same, written by one of our own.
pub(super) fn from_own_address(mut letter: NewMessage) -> NewMessage {
    letter.head.own = Some("own_address".into());
    letter
}

/// The same as an answer to these, the closest first.
pub(super) fn in_reply_to(mut letter: NewMessage, ancestors: &[u8]) -> NewMessage {
    letter.thread_hashes.extend(ancestors.iter().map(|n| hash_of(*n)));
    letter
}

/// The same with these values in it.
pub(super) fn with_artifacts(mut letter: NewMessage, values: &[(ArtifactKind, u8)]) -> NewMessage {
    letter.artifacts = values.iter().map(|(kind, n)| new_artifact(*kind, *n)).collect();
    letter
}

fn new_artifact(kind: ArtifactKind, n: u8) -> NewArtifact {
    let found = ExtractedValue {
        value: format!("{n:06}"),
        masked: "••••".into(),
        confidence: 90 + n % 10,
        reasons: vec!["near".into()],
    };
    NewArtifact { id: ArtifactId(next_id(T0)), kind, extracted: found, hash: hash_of(n) }
}

pub(super) async fn file_delivery(
    store: &TestStore,
    id: DeliveryId,
    letter: NewMessage,
    now: Time,
) -> FileMessageResult {
    store.file_message(TEAM, id, letter, now).await.unwrap()
}

/// A letter that arrived and was filed.
pub(super) async fn file_new(
    store: &TestStore,
    inbox: &Inbox,
    letter: NewMessage,
    now: Time,
) -> (Message, Vec<Artifact>) {
    let id = receive_one(store, new_delivery(inbox, now), now).await;
    match store.file_message(inbox.team, id, letter, now).await.unwrap() {
        FileMessageResult::New(message, artifacts) => (*message, artifacts),
        other => panic!("{other:?}"),
    }
}

/// A letter that arrived and was known: its delivery, the message it repeats, and why.
pub(super) async fn file_known(
    store: &TestStore,
    inbox: &Inbox,
    letter: NewMessage,
    now: Time,
) -> (DeliveryId, (MessageId, DeliverySuppression)) {
    let id = receive_one(store, new_delivery(inbox, now), now).await;
    match file_delivery(store, id, letter, now).await {
        FileMessageResult::Duplicate(message, why) => (id, (message, why)),
        other => panic!("{other:?}"),
    }
}

/// A wish to take something for this run.
pub(super) fn consume_request(purpose: &str) -> ConsumeRequest {
    ConsumeRequest { purpose: purpose.into(), watch: None, by: ApiKeyId(Uuid::from_u128(0x33)) }
}

/// Every message that a query finds, page by page.
pub(super) async fn all_messages(store: &TestStore, inbox: &Inbox, mut query: MessageQuery) -> Vec<Message> {
    use mailonce_core::inbox::message::MessagePosition::{After, Before};
    let mut found = Vec::new();
    loop {
        let page = store.messages(inbox.team, inbox.id, query.clone()).await.unwrap();
        assert!(page.rows.len() <= query.limit);
        found.extend(page.rows);
        let Some(next) = page.next else { return found };
        query.position = match query.position {
            After(_) => After(next),
            Before(_) => Before(next),
        };
    }
}

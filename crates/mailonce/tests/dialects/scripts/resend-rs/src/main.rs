//! Resend's official crate against mailonce: it reads answers by their types, so a wrong shape fails it.

use resend_rs::{
    ConfigBuilder, Error, Resend,
    events::EmailEventType,
    idempotent::IdempotentTrait as _,
    list_opts::ListOptions,
    types::{
        BatchValidation, CreateApiKeyOptions, CreateAttachment, CreateDomainOptions, CreateEmailBaseOptions,
        CreateEmailResponse, CreateInboxOptions, CreateWebhookOptions, EmailEvent, ErrorKind,
        ForwardInboxThreadEmailOptions, ForwardReceivingEmail, GetInboundEmailOptions, ListInboxThreadsOptions,
        ReplyInboxThreadEmailOptions, Tag, UpdateEmailOptions, UpdateInboxOptions, UpdateInboxThreadFolder,
        UpdateInboxThreadOptions, UpdateWebhookOptions, WebhookStatus,
    },
};
use std::{collections::BTreeSet, sync::Mutex, time::Duration};

const INBOX: &str = "agent@mailonce.test";
/// What gave back what was asked for.
static WORKED: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());

/// Notes a method that worked.
#[track_caller]
fn good<T>(name: &'static str, answer: Result<T, Error>) -> T {
    let value = answer.unwrap_or_else(|error| panic!("{name}: {error:?}"));
    WORKED.lock().unwrap().insert(name);
    value
}

fn mail(subject: &str) -> CreateEmailBaseOptions {
    CreateEmailBaseOptions::new("Agent <agent@mailonce.test>", ["ada@example.com"], subject).with_text("Thank you.")
}

fn to_nobody() -> CreateEmailBaseOptions {
    CreateEmailBaseOptions::new("agent@mailonce.test", ["nobody"], "x").with_text("x")
}

/// Fails unless the error is this one, in the crate's own type.
#[track_caller]
fn is<T>(answer: Result<T, Error>, status: u16, kind: ErrorKind) {
    match answer {
        Err(Error::Resend(error)) => assert_eq!((error.status_code, error.kind()), (status, kind), "{error:?}"),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was taken"),
    }
}

async fn sends(resend: &Resend) {
    let send = |subject: &str, key: &str| resend.emails.send(mail(subject).with_idempotency_key(key));
    let first = good("emails.send", send("Order 1", "rs-1").await).id;
    assert_eq!(send("Order 1", "rs-1").await.unwrap().id, first);
    is(send("Order 2", "rs-1").await, 409, ErrorKind::InvalidIdempotentRequest);
    let race = |_| {
        let resend = resend.clone();
        tokio::spawn(async move { resend.emails.send(mail("Race").with_idempotency_key("rs-race")).await.unwrap().id })
    };
    let mut ids = BTreeSet::new();
    for one in (0..50).map(race).collect::<Vec<_>>() {
        ids.insert(one.await.unwrap().to_string());
    }
    assert_eq!(ids.len(), 1);
    let file = CreateAttachment::from_content(b"abc".to_vec()).with_filename("a.txt");
    let filed = resend.emails.send(mail("File").with_attachment(file).with_tag(Tag::new("run", "42"))).await.unwrap().id;
    let files = good("emails.list_attachments", resend.emails.list_attachments(&filed, ListOptions::default()).await);
    let file = good("emails.get_attachment", resend.emails.get_attachment(&filed, &files.data[0].id).await);
    assert_eq!((file.filename.as_deref(), file.size), (Some("a.txt"), 3));
    let later = resend.emails.send(mail("Later").with_scheduled_at("in 1 hour")).await.unwrap().id;
    assert_eq!(good("emails.get", resend.emails.get(&later).await).last_event, EmailEvent::Scheduled);
    let changes = UpdateEmailOptions::new().with_scheduled_at("in 2 hours");
    let _changed = good("emails.update", resend.emails.update(&later, changes).await);
    let _cancelled = good("emails.cancel", resend.emails.cancel(&later).await);
    assert_eq!(resend.emails.get(&later).await.unwrap().last_event, EmailEvent::Canceled);
    let page = good("emails.list", resend.emails.list(ListOptions::default().with_limit(2)).await);
    assert_eq!((page.data.len(), page.has_more), (2, true));
    let batch = || vec![mail("One"), mail("Two")].with_idempotency_key("rs-batch");
    let ids = |sent: Vec<CreateEmailResponse>| sent.into_iter().map(|one| one.id.to_string()).collect::<Vec<_>>();
    let sent = ids(good("batch.send", resend.batch.send(batch()).await));
    assert_eq!(ids(resend.batch.send(batch()).await.unwrap()), sent);
    let mixed = vec![mail("Three"), to_nobody()];
    let some = resend.batch.send_with_batch_validation(mixed, BatchValidation::Permissive).await;
    let some = good("batch.send_with_batch_validation", some);
    assert_eq!((some.data.len(), some.errors.len()), (1, 1));
}

async fn receives(resend: &Resend) {
    let page = good("receiving.list", resend.receiving.list(ListOptions::default()).await);
    let item = page.data.iter().find(|one| one.subject == "With a file").unwrap();
    let got = good("receiving.get", resend.receiving.get(&item.id, GetInboundEmailOptions::default()).await);
    assert!(got.text.unwrap().contains("See the file") && got.raw.is_some());
    let files = resend.receiving.list_attachments(&item.id, ListOptions::default()).await;
    let files = good("receiving.list_attachments", files);
    let _file = good("receiving.get_attachment", resend.receiving.get_attachment(&files.data[0].id, &item.id).await);
    let forward = ForwardReceivingEmail::new(item.id.clone(), INBOX, ["carol@example.com"]).with_passthrough(false);
    let _passed = good("receiving.forward", resend.receiving.forward(forward.with_text("For you")).await);
    let inboxes = &resend.inboxes;
    let new = CreateInboxOptions::new("rs@mailonce.test").with_from_name("Rust");
    let made = good("inboxes.create", inboxes.create(new).await).id;
    assert_eq!(good("inboxes.get", inboxes.get("rs@mailonce.test").await).id, made);
    assert!(good("inboxes.list", inboxes.list(ListOptions::default()).await).data.len() >= 2);
    let _changed = good("inboxes.update", inboxes.update(&made, UpdateInboxOptions::new().with_from_name("Other")).await);
    let _removed = good("inboxes.delete", inboxes.delete(&made).await);
}

async fn answers(resend: &Resend) {
    let inboxes = &resend.inboxes;
    let threads = inboxes.list_threads(INBOX, ListInboxThreadsOptions::default(), ListOptions::default()).await;
    let threads = good("inboxes.list_threads", threads);
    let thread = &threads.data.iter().find(|one| one.subject.as_deref() == Some("A question for rust")).unwrap().id;
    let _thread = good("inboxes.get_thread", inboxes.get_thread(INBOX, thread).await);
    let said = good("inboxes.list_thread_emails", inboxes.list_thread_emails(INBOX, thread, ListOptions::default()).await);
    let question = said.data[0].id.clone();
    let _email = good("inboxes.get_thread_email", inboxes.get_thread_email(INBOX, thread, &question).await);
    let words = |text: &str| ReplyInboxThreadEmailOptions::new().with_text(text);
    let reply = inboxes.reply_thread_email(INBOX, thread, &question, words("An answer")).await;
    let reply = good("inboxes.reply_thread_email", reply).id;
    let again = inboxes.reply_thread_email(INBOX, thread, &question, words("An answer")).await.unwrap().id;
    assert_eq!(reply.to_string(), again.to_string());
    let other = inboxes.reply_thread_email(INBOX, thread, &question, words("In other words")).await.unwrap_err();
    assert!(other.to_string().contains("already answered"), "{other}");
    let forward = ForwardInboxThreadEmailOptions::new(["carol@example.com"]).with_text("Look");
    let forwarded = inboxes.forward_thread_email(INBOX, thread, &question, forward).await;
    let _forwarded = good("inboxes.forward_thread_email", forwarded);
    let archive = UpdateInboxThreadOptions::new().with_folder(UpdateInboxThreadFolder::Archive);
    let _moved = good("inboxes.update_thread", inboxes.update_thread(INBOX, thread, archive).await);
}

async fn webhooks(resend: &Resend) {
    let webhooks = &resend.webhooks;
    // Nobody listens there; what is owed is seen all the same.
    let events = [EmailEventType::EmailSent, EmailEventType::EmailOpened];
    let made = good("webhooks.create", webhooks.create(CreateWebhookOptions::new("http://127.0.0.1:9/in", events)).await);
    assert!(made.signing_secret.starts_with("whsec_"));
    assert_eq!(good("webhooks.get", webhooks.get(&made.id).await).events.len(), 2);
    assert_eq!(good("webhooks.list", webhooks.list(ListOptions::default()).await).data.len(), 1);
    resend.emails.send(mail("Told")).await.unwrap();
    let mut owed = Vec::new();
    for _ in 0..100 {
        owed = good("webhooks.list_events", webhooks.list_events(&made.id, ListOptions::default()).await).data;
        if !owed.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let event = good("webhooks.get_event", webhooks.get_event(&made.id, &owed[0].id).await);
    assert_eq!((event.event_type.as_str(), event.payload["type"].as_str()), ("email.sent", Some("email.sent")));
    let attempts = webhooks.list_event_attempts(&made.id, &event.id, ListOptions::default()).await;
    let _attempts = good("webhooks.list_event_attempts", attempts);
    let _replayed = good("webhooks.replay_event", webhooks.replay_event(&made.id, &event.id).await);
    let rotated = good("webhooks.rotate_signing_secret", webhooks.rotate_signing_secret(&made.id).await);
    assert_ne!(rotated.signing_secret, made.signing_secret);
    let off = UpdateWebhookOptions::default().with_status(WebhookStatus::Disabled);
    let _changed = good("webhooks.update", webhooks.update(&made.id, off).await);
    assert!(good("webhooks.delete", webhooks.delete(&made.id).await));
}

async fn manages(resend: &Resend) {
    let domain = good("domains.create", resend.domains.create(CreateDomainOptions::new("rs.example.com")).await);
    assert!(domain.records.is_some());
    let _domain = good("domains.get", resend.domains.get(&domain.id).await);
    assert_eq!(good("domains.list", resend.domains.list(ListOptions::default()).await).data.len(), 1);
    let _verified = good("domains.verify", resend.domains.verify(&domain.id).await);
    assert!(good("domains.delete", resend.domains.delete(&domain.id).await).deleted);
    let key = good("api_keys.create", resend.api_keys.create(CreateApiKeyOptions::new("rs").with_sending_access()).await);
    assert!(good("api_keys.list", resend.api_keys.list(ListOptions::default()).await).data.len() >= 2);
    good("api_keys.delete", resend.api_keys.delete(&key.id).await);
}

#[tokio::main]
async fn main() {
    let word = |name: &str| std::env::var(name).unwrap();
    let client = |key: &str| Resend::with_config(ConfigBuilder::new(key).base_url(word("URL").parse().unwrap()).build());
    let resend = client(&word("KEY"));
    sends(&resend).await;
    receives(&resend).await;
    answers(&resend).await;
    webhooks(&resend).await;
    manages(&resend).await;
    // The crate has no word of its own for this one.
    is(client("re_wrong").emails.list(ListOptions::default()).await, 403, ErrorKind::Unrecognized);
    is(resend.emails.get("00000000-0000-7000-8000-000000000000").await, 404, ErrorKind::NotFound);
    is(resend.emails.get("x").await, 422, ErrorKind::InvalidParameter);
    is(resend.emails.send(to_nobody()).await, 422, ErrorKind::ValidationError);
    is(resend.emails.send(mail("x").with_idempotency_key(&"k".repeat(257))).await, 400, ErrorKind::InvalidIdempotencyKey);
    println!("{}", serde_json::json!({ "worked": *WORKED.lock().unwrap() }));
}

//! Resend's official crate against mailonce. It parses responses into its own types, so a wrong format fails.

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
/// The methods that returned the expected result.
static WORKED: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());

/// Records a method that worked and returns its value.
#[track_caller]
fn record_success<T>(name: &'static str, answer: Result<T, Error>) -> T {
    let value = answer.unwrap_or_else(|error| panic!("{name}: {error:?}"));
    WORKED.lock().unwrap().insert(name);
    value
}

fn mail(subject: &str) -> CreateEmailBaseOptions {
    CreateEmailBaseOptions::new("Agent <agent@mailonce.test>", ["ada@example.com"], subject).with_text("Thank you.")
}

fn invalid_mail() -> CreateEmailBaseOptions {
    CreateEmailBaseOptions::new("agent@mailonce.test", ["nobody"], "x").with_text("x")
}

/// Fails unless the call returned this error, in the crate's own type.
#[track_caller]
fn expect_error<T>(answer: Result<T, Error>, status: u16, kind: ErrorKind) {
    match answer {
        Err(Error::Resend(error)) => assert_eq!((error.status_code, error.kind()), (status, kind), "{error:?}"),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("the call succeeded"),
    }
}

async fn check_sends(resend: &Resend) {
    let send = |subject: &str, key: &str| resend.emails.send(mail(subject).with_idempotency_key(key));
    let first = record_success("emails.send", send("Order 1", "rs-1").await).id;
    assert_eq!(send("Order 1", "rs-1").await.unwrap().id, first);
    expect_error(send("Order 2", "rs-1").await, 409, ErrorKind::InvalidIdempotentRequest);
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
    let filed =
        resend.emails.send(mail("File").with_attachment(file).with_tag(Tag::new("run", "42"))).await.unwrap().id;
    let files =
        record_success("emails.list_attachments", resend.emails.list_attachments(&filed, ListOptions::default()).await);
    let file = record_success("emails.get_attachment", resend.emails.get_attachment(&filed, &files.data[0].id).await);
    assert_eq!((file.filename.as_deref(), file.size), (Some("a.txt"), 3));
    let later = resend.emails.send(mail("Later").with_scheduled_at("in 1 hour")).await.unwrap().id;
    assert_eq!(record_success("emails.get", resend.emails.get(&later).await).last_event, EmailEvent::Scheduled);
    let changes = UpdateEmailOptions::new().with_scheduled_at("in 2 hours");
    let _changed = record_success("emails.update", resend.emails.update(&later, changes).await);
    let _cancelled = record_success("emails.cancel", resend.emails.cancel(&later).await);
    assert_eq!(resend.emails.get(&later).await.unwrap().last_event, EmailEvent::Canceled);
    let page = record_success("emails.list", resend.emails.list(ListOptions::default().with_limit(2)).await);
    assert_eq!((page.data.len(), page.has_more), (2, true));
    let batch = || vec![mail("One"), mail("Two")].with_idempotency_key("rs-batch");
    let ids = |sent: Vec<CreateEmailResponse>| sent.into_iter().map(|one| one.id.to_string()).collect::<Vec<_>>();
    let sent = ids(record_success("batch.send", resend.batch.send(batch()).await));
    assert_eq!(ids(resend.batch.send(batch()).await.unwrap()), sent);
    let mixed = vec![mail("Three"), invalid_mail()];
    let some = resend.batch.send_with_batch_validation(mixed, BatchValidation::Permissive).await;
    let some = record_success("batch.send_with_batch_validation", some);
    assert_eq!((some.data.len(), some.errors.len()), (1, 1));
}

async fn check_receiving(resend: &Resend) {
    let page = record_success("receiving.list", resend.receiving.list(ListOptions::default()).await);
    let item = page.data.iter().find(|one| one.subject == "With a file").unwrap();
    let received =
        record_success("receiving.get", resend.receiving.get(&item.id, GetInboundEmailOptions::default()).await);
    assert!(received.text.unwrap().contains("See the file") && received.raw.is_some());
    let files = resend.receiving.list_attachments(&item.id, ListOptions::default()).await;
    let files = record_success("receiving.list_attachments", files);
    let _file =
        record_success("receiving.get_attachment", resend.receiving.get_attachment(&files.data[0].id, &item.id).await);
    let forward = ForwardReceivingEmail::new(item.id.clone(), INBOX, ["carol@example.com"]).with_passthrough(false);
    let _passed = record_success("receiving.forward", resend.receiving.forward(forward.with_text("For you")).await);
    let inboxes = &resend.inboxes;
    let new = CreateInboxOptions::new("rs@mailonce.test").with_from_name("Rust");
    let created = record_success("inboxes.create", inboxes.create(new).await).id;
    assert_eq!(record_success("inboxes.get", inboxes.get("rs@mailonce.test").await).id, created);
    assert!(record_success("inboxes.list", inboxes.list(ListOptions::default()).await).data.len() >= 2);
    let _changed = record_success(
        "inboxes.update",
        inboxes.update(&created, UpdateInboxOptions::new().with_from_name("Other")).await,
    );
    let _removed = record_success("inboxes.delete", inboxes.delete(&created).await);
}

async fn check_replies(resend: &Resend) {
    let inboxes = &resend.inboxes;
    let threads = inboxes.list_threads(INBOX, ListInboxThreadsOptions::default(), ListOptions::default()).await;
    let threads = record_success("inboxes.list_threads", threads);
    let thread = &threads.data.iter().find(|one| one.subject.as_deref() == Some("A question for rust")).unwrap().id;
    let _thread = record_success("inboxes.get_thread", inboxes.get_thread(INBOX, thread).await);
    let emails = record_success(
        "inboxes.list_thread_emails",
        inboxes.list_thread_emails(INBOX, thread, ListOptions::default()).await,
    );
    let question = emails.data[0].id.clone();
    let _email = record_success("inboxes.get_thread_email", inboxes.get_thread_email(INBOX, thread, &question).await);
    let reply_with = |text: &str| ReplyInboxThreadEmailOptions::new().with_text(text);
    let reply = inboxes.reply_thread_email(INBOX, thread, &question, reply_with("An answer")).await;
    let reply = record_success("inboxes.reply_thread_email", reply).id;
    let again = inboxes.reply_thread_email(INBOX, thread, &question, reply_with("An answer")).await.unwrap().id;
    assert_eq!(reply.to_string(), again.to_string());
    let other = inboxes.reply_thread_email(INBOX, thread, &question, reply_with("In other words")).await.unwrap_err();
    assert!(other.to_string().contains("already answered"), "{other}");
    let forward = ForwardInboxThreadEmailOptions::new(["carol@example.com"]).with_text("Look");
    let forwarded = inboxes.forward_thread_email(INBOX, thread, &question, forward).await;
    let _forwarded = record_success("inboxes.forward_thread_email", forwarded);
    let archive = UpdateInboxThreadOptions::new().with_folder(UpdateInboxThreadFolder::Archive);
    let _moved = record_success("inboxes.update_thread", inboxes.update_thread(INBOX, thread, archive).await);
}

async fn check_webhooks(resend: &Resend) {
    let webhooks = &resend.webhooks;
    // Nothing listens at this address, but the pending events are listed.
    let events = [EmailEventType::EmailSent, EmailEventType::EmailOpened];
    let created = record_success(
        "webhooks.create",
        webhooks.create(CreateWebhookOptions::new("http://127.0.0.1:9/in", events)).await,
    );
    assert!(created.signing_secret.starts_with("whsec_"));
    assert_eq!(record_success("webhooks.get", webhooks.get(&created.id).await).events.len(), 2);
    assert_eq!(record_success("webhooks.list", webhooks.list(ListOptions::default()).await).data.len(), 1);
    resend.emails.send(mail("Webhook")).await.unwrap();
    let mut pending = Vec::new();
    for _ in 0..100 {
        pending =
            record_success("webhooks.list_events", webhooks.list_events(&created.id, ListOptions::default()).await)
                .data;
        if !pending.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let event = record_success("webhooks.get_event", webhooks.get_event(&created.id, &pending[0].id).await);
    assert_eq!((event.event_type.as_str(), event.payload["type"].as_str()), ("email.sent", Some("email.sent")));
    let attempts = webhooks.list_event_attempts(&created.id, &event.id, ListOptions::default()).await;
    let _attempts = record_success("webhooks.list_event_attempts", attempts);
    let _replayed = record_success("webhooks.replay_event", webhooks.replay_event(&created.id, &event.id).await);
    let rotated = record_success("webhooks.rotate_signing_secret", webhooks.rotate_signing_secret(&created.id).await);
    assert_ne!(rotated.signing_secret, created.signing_secret);
    let off = UpdateWebhookOptions::default().with_status(WebhookStatus::Disabled);
    let _changed = record_success("webhooks.update", webhooks.update(&created.id, off).await);
    assert!(record_success("webhooks.delete", webhooks.delete(&created.id).await));
}

async fn check_management(resend: &Resend) {
    let domain =
        record_success("domains.create", resend.domains.create(CreateDomainOptions::new("rs.example.com")).await);
    assert!(domain.records.is_some());
    let _domain = record_success("domains.get", resend.domains.get(&domain.id).await);
    assert_eq!(record_success("domains.list", resend.domains.list(ListOptions::default()).await).data.len(), 1);
    let _verified = record_success("domains.verify", resend.domains.verify(&domain.id).await);
    assert!(record_success("domains.delete", resend.domains.delete(&domain.id).await).deleted);
    let key = record_success(
        "api_keys.create",
        resend.api_keys.create(CreateApiKeyOptions::new("rs").with_sending_access()).await,
    );
    assert!(record_success("api_keys.list", resend.api_keys.list(ListOptions::default()).await).data.len() >= 2);
    record_success("api_keys.delete", resend.api_keys.delete(&key.id).await);
}

#[tokio::main]
async fn main() {
    let env_var = |name: &str| std::env::var(name).unwrap();
    let client =
        |key: &str| Resend::with_config(ConfigBuilder::new(key).base_url(env_var("URL").parse().unwrap()).build());
    let resend = client(&env_var("KEY"));
    check_sends(&resend).await;
    check_receiving(&resend).await;
    check_replies(&resend).await;
    check_webhooks(&resend).await;
    check_management(&resend).await;
    // The crate has no error kind for this status.
    expect_error(client("re_wrong").emails.list(ListOptions::default()).await, 403, ErrorKind::Unrecognized);
    expect_error(resend.emails.get("00000000-0000-7000-8000-000000000000").await, 404, ErrorKind::NotFound);
    expect_error(resend.emails.get("x").await, 422, ErrorKind::InvalidParameter);
    expect_error(resend.emails.send(invalid_mail()).await, 422, ErrorKind::ValidationError);
    expect_error(
        resend.emails.send(mail("x").with_idempotency_key(&"k".repeat(257))).await,
        400,
        ErrorKind::InvalidIdempotencyKey,
    );
    println!("{}", serde_json::json!({ "worked": *WORKED.lock().unwrap() }));
}

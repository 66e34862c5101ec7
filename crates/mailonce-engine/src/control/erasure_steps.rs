//! The steps of an erasure: each reads one page of rows, finds those that name the person, and erases them.

use crate::{
    control::{
        Erasures,
        suppressions::{SuppressionDetails, SuppressionScope},
    },
    events::message_texts::{remove_fields, strip_artifact_event, strip_message_event},
    runtime::blocking::run_blocking_if_large,
};
use mailonce_core::{
    control::{
        erasure::{AddressEraser, Erasure, ErasureStage, MAX_OPEN_EMAILS, is_alias},
        typed_text::TypedText,
    },
    conversation::caps::recipient_hash,
    events::event::Event,
    id::{ArtifactId, DeliveryId, EmailId, InboxId, MessageId, TeamId, ThreadId},
    inbound::delivery::{Delivery, DeliveryQuery, DeliveryState},
    inbox::message::{Message, MessagePosition, MessageQuery},
    operation::IdempotentResult,
    outbound::{email::Email, email_commands::EmailChangeResult, email_query::EmailQuery},
    ports::{erasure_store::EraseEmailResult, store::StoreError},
    record::{Record, RecordKind},
    time::Time,
};
use mailonce_mail::parse;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use uuid::Uuid;

/// How many rows one step reads.
pub(super) const BATCH: usize = 100;

/// The cursor of an erasure whose freed bytes are overwritten in the file, and not yet in the log.
const FILE_IS_REWRITTEN: &str = "rewritten";

/// The function of each stage returns true when the next step can run at once. It returns false when the erasure has to
/// wait: for an email in doubt, a claim that has not ended, a delivery that is not processed yet, or an inbox whose
/// removal is not finished.
impl Erasures {
    /// Makes one step of an erasure. Returns false when it has to wait before the next one.
    pub(super) async fn erasure_step(&self, team: TeamId, erasure: &mut Erasure) -> Result<bool, StoreError> {
        let Some(address) = erasure.address.clone() else { return self.step_without_address(team, erasure).await };
        let eraser = AddressEraser::new(&self.ctx.secret, team, &address);
        match erasure.stage {
            ErasureStage::Emails => self.erase_emails(&eraser, erasure).await,
            ErasureStage::Deliveries => self.erase_deliveries(&eraser, erasure).await,
            ErasureStage::Messages => self.erase_messages(&eraser, erasure).await,
            ErasureStage::Claims => self.erase_claims(&eraser, erasure).await,
            ErasureStage::Records => self.erase_records(&eraser, erasure).await,
            ErasureStage::Waiting => self.erase_settled_emails(&eraser, erasure).await,
            ErasureStage::Events => self.erase_events(&eraser, erasure).await,
            ErasureStage::Names => self.erase_audit_names(&eraser, erasure).await,
            ErasureStage::Find | ErasureStage::Storage | ErasureStage::Done => {
                self.step_without_address(team, erasure).await
            }
        }
    }

    async fn step_without_address(&self, team: TeamId, erasure: &mut Erasure) -> Result<bool, StoreError> {
        if erasure.stage == ErasureStage::Storage {
            if erasure.cursor.is_none() {
                crate::failpoint!("erasure-before-overwrite");
                self.ctx.store.overwrite_freed_storage().await?;
                crate::failpoint!("erasure-after-overwrite");
                // Saved before the log is truncated, because truncating may fail for long and rewriting is expensive.
                erasure.cursor = Some(FILE_IS_REWRITTEN.into());
            } else {
                self.ctx.store.truncate_log().await?;
                erasure.next_stage(self.ctx.now());
            }
            return Ok(true);
        }
        self.find_erased_address(team, erasure).await?;
        Ok(true)
    }

    /// Continues a stage after a page, or begins the next one.
    pub(super) fn continue_after(&self, erasure: &mut Erasure, cursor: Option<String>) -> bool {
        match cursor {
            Some(cursor) => erasure.cursor = Some(cursor),
            None => erasure.next_stage(self.ctx.now()),
        }
        true
    }

    async fn erase_emails(&self, eraser: &AddressEraser, erasure: &mut Erasure) -> Result<bool, StoreError> {
        let before = cursor_id(erasure).map(EmailId);
        let query = EmailQuery { before, limit: BATCH, ..EmailQuery::default() };
        let page = self.ctx.store.emails(eraser.team, query).await?;
        let until = erasure.requested_at;
        for email in page.rows.iter().filter(|email| email.head.created_at <= until) {
            self.erase_email(eraser, email, erasure).await?;
        }
        Ok(self.continue_after(erasure, page.next.map(|id| id.to_string())))
    }

    /// Erases one email that names the person, or remembers it until it has settled. What waits for the person is
    /// cancelled, with all its recipients: its bytes name the person.
    async fn erase_email(
        &self,
        eraser: &AddressEraser,
        email: &Email,
        erasure: &mut Erasure,
    ) -> Result<(), StoreError> {
        if !self.is_named_in_email(eraser, email).await? {
            return Ok(());
        }
        if !email.state().is_terminal() && email.is_to(eraser) {
            let cancelled = self.ctx.store.cancel(eraser.team, email.id, None, self.ctx.now()).await?;
            if let IdempotentResult::Done(EmailChangeResult::Changed(email)) = cancelled {
                erasure.counts.cancelled += 1;
                self.ctx.close_moot_escalation(&email).await;
            }
        }
        match self.ctx.store.erase_email(eraser, email.id).await? {
            EraseEmailResult::Erased => erasure.counts.emails += 1,
            EraseEmailResult::NotSettled if erasure.open.len() < MAX_OPEN_EMAILS => erasure.open.push(email.id),
            EraseEmailResult::NotSettled => erasure.has_more_open = true,
            EraseEmailResult::Missing => {}
        }
        Ok(())
    }

    async fn is_named_in_email(&self, eraser: &AddressEraser, email: &Email) -> Result<bool, StoreError> {
        if email.is_to(eraser) || eraser.is_in_json_of(&email.head) {
            return Ok(true);
        }
        let detail = self.ctx.store.email_detail(eraser.team, email.id).await?;
        let Some(body) = detail.and_then(|detail| detail.body) else { return Ok(false) };
        let (packer, eraser) = (self.ctx.packer.clone(), eraser.clone());
        let is_named = move || packer.unpack(&body).is_some_and(|content| eraser.is_in_json_of(&content));
        Ok(run_blocking_if_large(usize::MAX, is_named).await.unwrap_or(true))
    }

    /// Erases the emails that have settled by now, and the claims that have ended. Waits while there are others.
    async fn erase_settled_emails(&self, eraser: &AddressEraser, erasure: &mut Erasure) -> Result<bool, StoreError> {
        let has_waited = !erasure.open.is_empty() || !erasure.open_claims.is_empty();
        for id in std::mem::take(&mut erasure.open) {
            if let Some(email) = self.ctx.store.email(eraser.team, id).await? {
                self.erase_email(eraser, &email, erasure).await?;
            }
        }
        self.erase_ended_claims(eraser, erasure).await?;
        if !erasure.open.is_empty() || !erasure.open_claims.is_empty() {
            return Ok(false);
        }
        if std::mem::take(&mut erasure.has_more_open) {
            erasure.stage = ErasureStage::Emails;
            return Ok(true);
        }
        if has_waited {
            // A bounce of what was in doubt may have suppressed the address since, and somebody may have been asked
            // about a claim.
            erasure.stage = ErasureStage::Records;
            return Ok(true);
        }
        Ok(self.continue_after(erasure, None))
    }

    async fn erase_deliveries(&self, eraser: &AddressEraser, erasure: &mut Erasure) -> Result<bool, StoreError> {
        let before = cursor_id(erasure).map(DeliveryId);
        let query = DeliveryQuery { before, limit: BATCH, ..DeliveryQuery::default() };
        let page = self.ctx.store.deliveries(eraser.team, query).await?;
        let until = erasure.requested_at;
        for delivery in page.iter().filter(|delivery| delivery.received_at <= until) {
            if delivery.state == DeliveryState::Waiting {
                // It is not known yet whom it names.
                return Ok(false);
            }
            if self.is_named_in_delivery(eraser, delivery).await?
                && self.ctx.store.remove_delivery(eraser.team, delivery.id).await?
            {
                erasure.counts.deliveries += 1;
            }
        }
        let last = page.last().filter(|_| page.len() == BATCH);
        Ok(self.continue_after(erasure, last.map(|delivery| delivery.id.to_string())))
    }

    /// Whether an arrival without a message of its own names the person.
    async fn is_named_in_delivery(&self, eraser: &AddressEraser, delivery: &Delivery) -> Result<bool, StoreError> {
        if delivery.state == DeliveryState::Done && delivery.message.is_some() {
            return Ok(false);
        }
        if eraser.is_in_json_of(&*delivery.details) || eraser.is_in_json_of(&delivery.last_error) {
            return Ok(true);
        }
        let bytes = self.ctx.store.delivery_bytes(eraser.team, delivery.id).await?;
        self.is_named_in_bytes(eraser, bytes).await
    }

    /// Whether a received mail names the person, in its headers or in its text.
    async fn is_named_in_bytes(&self, eraser: &AddressEraser, packed: Option<Vec<u8>>) -> Result<bool, StoreError> {
        let Some(packed) = packed else { return Ok(false) };
        let (packer, eraser) = (self.ctx.packer.clone(), eraser.clone());
        let is_named = move || {
            let Some(raw) = packer.unpack_raw(&packed) else { return false };
            let parsed = parse::parse(&raw);
            let texts = [parsed.text.as_deref(), parsed.html.as_deref(), Some(parsed.subject.as_str())];
            texts.into_iter().flatten().any(|text| eraser.is_in(text)) || eraser.is_in(&String::from_utf8_lossy(&raw))
        };
        // A mail that cannot be read is erased rather than left.
        Ok(run_blocking_if_large(usize::MAX, is_named).await.unwrap_or(true))
    }

    async fn erase_messages(&self, eraser: &AddressEraser, erasure: &mut Erasure) -> Result<bool, StoreError> {
        let (inbox, before) = match erasure.cursor.as_deref().and_then(parse_message_cursor) {
            Some(place) => place,
            None => match self.ctx.store.inboxes(eraser.team, None, 1).await?.first() {
                Some(inbox) => (inbox.id, u64::MAX),
                None => return self.end_of_messages(eraser, erasure).await,
            },
        };
        let position = MessagePosition::Before(before);
        let query = MessageQuery { position, limit: BATCH, ..MessageQuery::default() };
        let page = self.ctx.store.messages(eraser.team, inbox, query).await?;
        let until = erasure.requested_at;
        let mut threads = BTreeSet::new();
        for message in page.rows.iter().filter(|message| message.received_at <= until) {
            threads.insert(message.thread);
            if self.is_named_in_message(eraser, message).await? {
                let erased = self.ctx.store.erase_message(eraser.team, message.id, self.ctx.now()).await?;
                erasure.counts.messages += u64::from(erased);
            } else {
                self.ctx.store.redact_consumers(eraser, inbox, message.id).await?;
            }
        }
        self.redact_threads(eraser, threads).await?;
        let cursor = if let Some(seq) = page.next {
            Some(format!("{inbox} {seq}"))
        } else {
            let older = self.ctx.store.inboxes(eraser.team, Some(inbox), 1).await?;
            older.first().map(|inbox| format!("{} {}", inbox.id, u64::MAX))
        };
        match cursor {
            Some(cursor) => Ok(self.continue_after(erasure, Some(cursor))),
            None => self.end_of_messages(eraser, erasure).await,
        }
    }

    /// Replaces the address in what others wrote about threads.
    async fn redact_threads(&self, eraser: &AddressEraser, threads: BTreeSet<ThreadId>) -> Result<(), StoreError> {
        for id in threads {
            let thread = self.ctx.store.thread(eraser.team, id).await?;
            if thread.is_some_and(|thread| eraser.is_in_json_of(&thread.details)) {
                self.ctx.store.redact_thread(eraser, id).await?;
            }
        }
        Ok(())
    }

    /// Mail of removed inboxes is found nowhere, so it must be deleted before the erasure can be done.
    async fn end_of_messages(&self, eraser: &AddressEraser, erasure: &mut Erasure) -> Result<bool, StoreError> {
        if self.ctx.store.has_removed_inboxes(eraser.team).await? {
            return Ok(false);
        }
        Ok(self.continue_after(erasure, None))
    }

    async fn is_named_in_message(&self, eraser: &AddressEraser, message: &Message) -> Result<bool, StoreError> {
        if eraser.is_in_json_of(&*message.head) || eraser.is_in_json_of(&message.annotations) {
            return Ok(true);
        }
        let bytes = self.ctx.store.raw_message(eraser.team, message.id).await?;
        self.is_named_in_bytes(eraser, bytes).await
    }

    /// Replaces the address in texts about the installation, such as names of API keys.
    async fn redact_typed_texts(&self, eraser: &AddressEraser, erasure: &mut Erasure) -> Result<(), StoreError> {
        for kind in TypedText::ALL {
            erasure.counts.records += self.ctx.store.redact_typed_texts(eraser, kind).await? as u64;
        }
        self.control.access.clear_credentials();
        self.control.stops.forget_cached_stops();
        Ok(())
    }

    async fn erase_records(&self, eraser: &AddressEraser, erasure: &mut Erasure) -> Result<bool, StoreError> {
        if erasure.cursor.is_none() {
            self.redact_typed_texts(eraser, erasure).await?;
        }
        let (kind, before) = match erasure.cursor.as_deref().and_then(|cursor| cursor.split_once(' ')) {
            Some((kind, id)) => (RecordKind::parse(kind), id.parse().ok()),
            None => (RecordKind::ALL.first().copied(), None),
        };
        let Some(kind) = kind else { return Ok(self.continue_after(erasure, None)) };
        if kind != RecordKind::Erasure {
            let page = self.ctx.store.records(eraser.team, kind, before, BATCH).await?;
            for record in page.rows {
                self.erase_record(eraser, record, erasure).await?;
            }
            if let Some(id) = page.next {
                return Ok(self.continue_after(erasure, Some(format!("{} {id}", kind.as_str()))));
            }
        }
        self.control.forget_cached_records(eraser.team);
        let next = RecordKind::ALL.iter().skip_while(|other| **other != kind).nth(1);
        Ok(self.continue_after(erasure, next.map(|kind| format!("{} -", kind.as_str()))))
    }

    async fn erase_record(
        &self,
        eraser: &AddressEraser,
        record: Record,
        erasure: &mut Erasure,
    ) -> Result<(), StoreError> {
        let (team, kind, id) = (record.team, record.kind, record.id);
        let is_about_erased = self.is_record_about_erased_mail(&record).await?;
        if matches!(kind, RecordKind::Draft | RecordKind::Labels) {
            let json = self.ctx.packer.unpack_text(&record.json).unwrap_or_default();
            let is_named = serde_json::from_str::<Value>(&json).map_or(true, |value| eraser.is_in_value(&value));
            if is_about_erased || is_named {
                self.ctx.store.remove_record(team, kind, id).await?;
                erasure.counts.drafts += u64::from(kind == RecordKind::Draft);
            }
            return Ok(());
        }
        let mut json = serde_json::from_str::<Value>(&record.json).unwrap_or(Value::Null);
        let before = json.clone();
        eraser.redact_value(&mut json);
        if kind == RecordKind::Person && json["address"] != before["address"] {
            self.ctx.store.remove_record(team, kind, id).await?;
            let name = before["name"].as_str().unwrap_or_default();
            erasure.counts.audit_names += self.ctx.store.forget_audit_name(team, name).await? as u64;
            erasure.counts.records += 1;
            return Ok(());
        }
        if is_about_erased {
            strip_escalation(&mut json);
        }
        if kind == RecordKind::Settings {
            drop_erased_addressees(&mut json);
        }
        let name = eraser.redact(&record.name);
        if json == before && name.is_none() {
            return Ok(());
        }
        let name = name.unwrap_or_else(|| record.name.clone());
        let taken = self.ctx.store.record_by_name(team, kind, &name).await?;
        if let Some(taken) = taken.filter(|taken| taken.id != id) {
            // The person was erased before, and an entry for the address was made again since.
            let refuses_all = |json: &str| {
                serde_json::from_str::<SuppressionDetails>(json).is_ok_and(|is| is.scope == SuppressionScope::All)
            };
            let is_wider =
                kind == RecordKind::Suppression && refuses_all(&json.to_string()) && !refuses_all(&taken.json);
            if is_wider && !self.ctx.store.replace_record(&Record { json: json.to_string(), ..taken }).await? {
                return Err(StoreError::Unreachable("a record changed while it was erased".into()));
            }
            self.ctx.store.remove_record(team, kind, id).await?;
        } else {
            let erased = Record { name: name.clone(), json: json.to_string(), ..record };
            if !self.ctx.store.replace_record(&erased).await? {
                // The step is repeated, and sees what another call wrote.
                return Err(StoreError::Unreachable("a record changed while it was erased".into()));
            }
            if kind == RecordKind::Suppression {
                self.control.index_suppression(team, &name);
            }
        }
        erasure.counts.records += 1;
        Ok(())
    }

    /// Whether a question, a draft or labels belong to mail that was erased.
    async fn is_record_about_erased_mail(&self, record: &Record) -> Result<bool, StoreError> {
        let json = match record.kind {
            RecordKind::Labels => json!({ "email": record.name, "message": record.name }),
            RecordKind::Escalation => serde_json::from_str::<Value>(&record.json).unwrap_or_default()["about"].clone(),
            RecordKind::Draft => {
                let json = self.ctx.packer.unpack_text(&record.json).unwrap_or_default();
                let draft = serde_json::from_str::<Value>(&json).unwrap_or_default();
                let answered =
                    if draft["in_reply_to"].is_null() { &draft["forward_of"] } else { &draft["in_reply_to"] };
                json!({ "email": draft["email"], "message": answered })
            }
            _ => return Ok(false),
        };
        let id = |field: &str| json[field].as_str().and_then(|id| id.parse::<Uuid>().ok());
        if let Some(id) = id("claim") {
            return self.is_claim_erased(record.team, id).await;
        }
        let both_are_one = record.kind == RecordKind::Labels;
        let is_email_erased = match id("email") {
            Some(id) => self.is_email_erased(record.team, id).await?,
            None => false,
        };
        if is_email_erased || (both_are_one && self.email_exists(record.team, id("email")).await?) {
            return Ok(is_email_erased);
        }
        match id("message") {
            Some(id) => Ok(self.ctx.store.message(record.team, MessageId(id)).await?.is_none()),
            None => Ok(false),
        }
    }

    async fn email_exists(&self, team: TeamId, id: Option<Uuid>) -> Result<bool, StoreError> {
        match id {
            Some(id) => Ok(self.ctx.store.email(team, EmailId(id)).await?.is_some()),
            None => Ok(false),
        }
    }

    async fn is_email_erased(&self, team: TeamId, id: Uuid) -> Result<bool, StoreError> {
        let email = self.ctx.store.email(team, EmailId(id)).await?;
        Ok(email.is_some_and(|email| email.head.erased.is_some()))
    }

    async fn erase_events(&self, eraser: &AddressEraser, erasure: &mut Erasure) -> Result<bool, StoreError> {
        let after = erasure.cursor.as_deref().and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
        let page = self.ctx.store.events(eraser.team, after, BATCH).await?;
        let mut replaced = Vec::new();
        for event in &page {
            if self.is_about_new_mail(eraser.team, event, erasure.requested_at).await? {
                continue;
            }
            let mut data = event.event.data.clone();
            eraser.redact_value(&mut data);
            self.strip_event(eraser.team, event, &mut data).await?;
            if data != event.event.data {
                replaced.push((event.seq, data));
            }
        }
        erasure.counts.events += replaced.len() as u64;
        if !replaced.is_empty() {
            self.ctx.store.replace_event_data(eraser.team, replaced).await?;
        }
        let last = page.last().filter(|_| page.len() == BATCH);
        Ok(self.continue_after(erasure, last.map(|event| event.seq.to_string())))
    }

    /// Whether an event is about mail from after the request, which stays.
    async fn is_about_new_mail(&self, team: TeamId, event: &Event, requested_at: Time) -> Result<bool, StoreError> {
        let (id, store) = (event.event.subject_id, &self.ctx.store);
        if event.event.at <= requested_at {
            return Ok(false);
        }
        let came_at = match event.event.kind.subject_type() {
            "email" | "key" => store.email(team, EmailId(id)).await?.map(|email| email.head.created_at),
            "claim" => self.claim_without_result(team, id).await?.map(|claim| claim.created_at),
            "message" => store.message(team, MessageId(id)).await?.map(|message| message.received_at),
            "artifact" => match store.artifact(team, ArtifactId(id)).await? {
                Some(artifact) => store.message(team, artifact.message).await?.map(|message| message.received_at),
                None => None,
            },
            _ => None,
        };
        Ok(came_at.is_some_and(|at| at > requested_at))
    }

    /// Removes the texts from the data of an event about mail that was erased.
    async fn strip_event(&self, team: TeamId, event: &Event, data: &mut Value) -> Result<(), StoreError> {
        let id = event.event.subject_id;
        match event.event.kind.subject_type() {
            "email" | "key" => {
                let Some(email) = self.ctx.store.email(team, EmailId(id)).await? else { return Ok(()) };
                if email.head.erased.is_some() {
                    remove_fields(data, &["call", "reason", "detail"]);
                    if let Some(text) = data.pointer_mut("/reply/text") {
                        *text = "".into();
                    }
                    if let (Some(key), Some(shown)) = (email.head.key.as_ref(), data.get_mut("key")) {
                        *shown = key.display_name().into();
                    }
                }
            }
            "message" if self.ctx.store.message(team, MessageId(id)).await?.is_none() => {
                strip_message_event(data);
            }
            "artifact" if self.ctx.store.artifact(team, ArtifactId(id)).await?.is_none() => {
                strip_artifact_event(data);
            }
            "claim" => self.strip_claim_event(team, id, data).await?,
            "escalation" => {
                let email = data.pointer("/about/email").and_then(Value::as_str).and_then(|id| id.parse().ok());
                let message = data.pointer("/about/message").and_then(Value::as_str).and_then(|id| id.parse().ok());
                let claim = data.pointer("/about/claim").and_then(Value::as_str).and_then(|id| id.parse().ok());
                let is_erased = match (claim, email, message) {
                    (Some(id), _, _) => self.is_claim_erased(team, id).await?,
                    (None, Some(id), _) => self.is_email_erased(team, id).await?,
                    (None, None, Some(id)) => self.ctx.store.message(team, MessageId(id)).await?.is_none(),
                    (None, None, None) => false,
                };
                if is_erased && let Some(about) = data.get_mut("about") {
                    remove_fields(about, &["question", "entity"]);
                }
            }
            _ => {}
        }
        Ok(())
    }

    async fn erase_audit_names(&self, eraser: &AddressEraser, erasure: &mut Erasure) -> Result<bool, StoreError> {
        let after = erasure.cursor.clone().unwrap_or_default();
        let page = self.ctx.store.audit_name_page(eraser.team, &after, BATCH).await?;
        for alias in page.iter().filter(|alias| eraser.redact(&alias.name).is_some()) {
            erasure.counts.audit_names += self.ctx.store.forget_audit_name(eraser.team, &alias.name).await? as u64;
        }
        let last = page.last().filter(|_| page.len() == BATCH).map(|alias| alias.id.clone());
        if last.is_none() {
            self.ctx.store.forget_reply_tally(eraser.team, recipient_hash(eraser.address())).await?;
        }
        Ok(self.continue_after(erasure, last))
    }
}

fn cursor_id(erasure: &Erasure) -> Option<Uuid> {
    erasure.cursor.as_deref().and_then(|cursor| cursor.parse().ok())
}

/// The inbox of a message cursor, and the sequence number before which it continues.
pub(super) fn parse_message_cursor(cursor: &str) -> Option<(InboxId, u64)> {
    let (inbox, seq) = cursor.split_once(' ')?;
    Some((inbox.parse().ok()?, seq.parse().ok()?))
}

/// Removes aliases from the addressees of questions: mail to an alias can only fail. Without an addressee left, the
/// setting is removed.
fn drop_erased_addressees(settings: &mut Value) {
    let Some(to) = settings.pointer_mut("/notify/to").and_then(Value::as_array_mut) else { return };
    to.retain(|address| !address.as_str().is_some_and(is_alias));
    if to.is_empty() {
        tracing::warn!("the last addressee of emails about questions was erased; set escalation_email again");
        settings["notify"] = Value::Null;
    }
}

/// Removes the free texts of a question, and the content that a person edited.
fn strip_escalation(json: &mut Value) {
    if let Some(about) = json.get_mut("about") {
        remove_fields(about, &["question", "entity"]);
    }
    if let Some(decision) = json.get_mut("decision") {
        remove_fields(decision, &["reason", "edit", "shown"]);
    }
}

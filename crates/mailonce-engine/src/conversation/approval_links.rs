//! Approval links: a person decides one question from a phone, without signing in.
//!
//! A link belongs to one addressee, and to exactly the content that the addressee was told about. Opening it changes
//! nothing, because mail scanners open links. The token is derived from the id of its record and the install secret, so a
//! notification can be repeated with the same link although the link is stored nowhere.

use mailonce_core::{
    access::{
        call_origin::{AliasKey, CallOrigin, CallSource},
        person::{Person, PersonalAccess, PersonalAccessKind},
        team::{ApiKey, ApiKeyDetails, ApiKeyScope, Team},
    },
    control::audit::act::Act,
    conversation::{
        approval_link::{Addressee, ApprovalLink, Notification},
        escalation::{Escalation, EscalationState},
    },
    id::{ApiKeyId, PersonId, TeamId},
    limits,
    operation::IdempotentResult,
    outbound::{content::Attachment, email::Channel},
    problem::{Code, Problem},
    record::{CreateRecordResult, Record, RecordKind},
    time::Time,
};
use std::{net::IpAddr, sync::Arc};
use uuid::Uuid;

use crate::{
    access::caller::Caller,
    conversation::{
        Notifications,
        escalations::{DecisionRequest, EscalationView},
    },
    outbound::queries::stored_attachment,
    runtime::{
        keyed_call::{KeyedCall, operation},
        problems::{key_mismatch, unavailable},
        records,
    },
};

/// How long a link works, in hours.
pub const APPROVAL_LINK_HOURS: i64 = 72;
pub(super) const APPROVAL_LINK_MS: i64 = APPROVAL_LINK_HOURS * 3_600_000;

/// How long an expired link is kept, in milliseconds, so that its page says what became of the question.
const EXPIRED_LINK_MS: i64 = 7 * 24 * 3_600_000;

/// A link to send to its addressee.
#[derive(Clone, Debug)]
pub struct NewApprovalLink {
    /// The last part of its URL: `/a/TOKEN`.
    pub token: String,
    /// When it expires.
    pub expires_at: Time,
}

/// What can be done with a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// The addressee can decide.
    Open,
    /// The question was decided, or needs no decision any more.
    Decided,
    /// The link has expired, reached an inbox, or its addressee may no longer decide.
    Expired,
    /// Something else would be sent than the addressee was told about.
    Changed,
}

/// The page of a link.
#[derive(Clone, Debug)]
pub struct ApprovalPage {
    /// What can be done.
    pub state: LinkState,
    /// The question, with exactly what will be sent.
    pub view: EscalationView,
    /// The name of the addressee.
    pub addressee: String,
    /// Whether this very call decided.
    pub decided_now: bool,
    /// The tokens of the addressee's other links that wait for a decision. Only for whoever just decided: an old link must
    /// not lead to new ones.
    pub waiting: Vec<String>,
}

/// When a link that is made now expires. A link is never older than its question, whose node may have a faster clock.
pub(super) fn link_expiry(view: &EscalationView, now: Time) -> Time {
    now.max(view.escalation.asked_at(view.created_at)).plus(APPROVAL_LINK_MS)
}

fn unknown_link() -> Problem {
    Problem::new(Code::NotFound, "this link is not one of this server")
}

/// The caller that an addressee is: it may see and decide, and nothing else.
pub(super) fn link_caller(team: Team, link: Uuid, addressee: Addressee, now: Time) -> Caller {
    let access = PersonalAccess {
        kind: PersonalAccessKind::Session,
        person: PersonId(addressee.id()),
        other_teams: Vec::new(),
        signed_in_at: None,
        sign_outs: Vec::new(),
    };
    let details = ApiKeyDetails {
        on_behalf_of: Some(access),
        ..ApiKeyDetails::unrestricted("approval link", vec![ApiKeyScope::Read, ApiKeyScope::Approve])
    };
    let key = ApiKey {
        id: ApiKeyId(link),
        team: team.id,
        hash: [0; 32],
        details,
        created_at: now,
        revoked_at: None,
        last_used_at: None,
    };
    Caller { key: Arc::new(key), team: Arc::new(team), channel: Channel::Http, call: None, inbox_restriction: None }
}

impl Notifications {
    /// Makes the link by which a person of the caller's team decides a question. The same link again while it works.
    pub async fn create_approval_link(
        &self,
        caller: &Caller,
        escalation: Uuid,
        person: PersonId,
        keyed_call: Option<KeyedCall>,
    ) -> Result<NewApprovalLink, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        caller.require_unrestricted_key()?;
        self.ctx.is_repeated_call(caller, keyed_call.as_ref()).await?;
        let view = self.escalations.escalation(caller, escalation).await?;
        if view.escalation.state != EscalationState::Open {
            return Err(self.escalations.not_open(caller.team.id, view.rev, &view.escalation).await?);
        }
        let invalid = |message: &str| Problem::invalid_field("person", message);
        let found = self.access.person_of(caller.team.id, person).await?;
        let found = found.ok_or_else(|| invalid("is not the id of a person of the team"))?;
        if !found.person.scopes().contains(&ApiKeyScope::Approve) {
            return Err(invalid("may not decide: the role must be approver or admin"));
        }
        let (team, about) = (caller.team.id, format!("escalation/{escalation}"));
        let (link, is_new) = self.link_for(team, &view, Addressee::Person(person)).await?;
        // A new link has an entry of its own.
        if !is_new {
            let act = Act::new(Some(team), "approval_link.shown", about);
            self.ctx.store.record_act(act, self.ctx.now()).await.map_err(unavailable)?;
        }
        let now = self.ctx.now();
        // The call returns the same link again by itself. Its key only keeps another call from using it.
        if let Some(operation) = operation(caller, keyed_call.as_ref(), Vec::new(), now)
            && let IdempotentResult::KeyMismatch(bound) =
                self.ctx.store.bind_operation(operation, now).await.map_err(unavailable)?
        {
            return Err(key_mismatch(&bound));
        }
        Ok(link)
    }

    /// The link of an addressee about a question as it is now, and whether it is new.
    async fn link_for(
        &self,
        team: TeamId,
        view: &EscalationView,
        addressee: Addressee,
    ) -> Result<(NewApprovalLink, bool), Problem> {
        let kind = RecordKind::ApprovalLink;
        let name = ApprovalLink::record_name(view.id, addressee);
        if let Some(record) = self.ctx.store.record_by_name(team, kind, &name).await.map_err(unavailable)? {
            let known: ApprovalLink = records::decode(&record)?;
            let has_ended = known.withdrawn || self.addressee_name(&record, &known).await?.is_none();
            if self.ctx.time.later_time() < known.expires_at && known.digest == preview_digest(view) && !has_ended {
                return Ok((self.new_link(&record, &known), false));
            }
            self.ctx.store.remove_record(team, kind, record.id).await.map_err(unavailable)?;
        }
        let record = self.store_link(team, view, addressee, None).await?;
        Ok((self.new_link(&record, &records::decode(&record)?), true))
    }

    /// Stores a new link, or finds the one that another node stored meanwhile.
    pub(super) async fn store_link(
        &self,
        team: TeamId,
        view: &EscalationView,
        addressee: Addressee,
        notification: Option<Notification>,
    ) -> Result<Record, Problem> {
        let (now, escalation) = (self.ctx.now(), view.id);
        let (digest, expires_at) = (preview_digest(view), link_expiry(view, now));
        let sign_outs = self.sign_outs_of(team, addressee).await?;
        let link =
            ApprovalLink { escalation, addressee, digest, expires_at, notification, sign_outs, withdrawn: false };
        let record = Record {
            team,
            kind: RecordKind::ApprovalLink,
            id: self.ctx.new_id(now),
            name: ApprovalLink::record_name(escalation, addressee),
            rev: 1,
            created_at: now,
            json: records::encode(&link)?,
        };
        match self.ctx.store.create_record(record, None).await.map_err(unavailable)? {
            IdempotentResult::Done(CreateRecordResult::Created(record) | CreateRecordResult::NameTaken(record)) => {
                Ok(record)
            }
            // Impossible without an idempotency key.
            IdempotentResult::Replayed(_) | IdempotentResult::KeyMismatch(_) => Err(unknown_link()),
        }
    }

    fn new_link(&self, record: &Record, link: &ApprovalLink) -> NewApprovalLink {
        NewApprovalLink { token: self.link_token(record.id), expires_at: link.expires_at }
    }

    pub(super) fn link_token(&self, id: Uuid) -> String {
        self.ctx.approval_link_token(id)
    }

    /// The id of the link of a token that this server made. It reads nothing, so that forged tokens cost little.
    pub fn check_link_token(&self, token: &str) -> Result<Uuid, Problem> {
        self.ctx.verified_link_id(token).ok_or_else(unknown_link)
    }

    /// The record of a token.
    async fn find_link(&self, token: &str) -> Result<(Record, ApprovalLink), Problem> {
        let id = self.check_link_token(token)?;
        let record = self.ctx.store.record_of_any_team(RecordKind::ApprovalLink, id).await.map_err(unavailable)?;
        let record = record.ok_or_else(unknown_link)?;
        let link = records::decode(&record)?;
        Ok((record, link))
    }

    /// The page of a link. It changes nothing.
    pub async fn approval_page(&self, token: &str) -> Result<ApprovalPage, Problem> {
        let (record, link) = self.find_link(token).await?;
        let caller = self.caller_of(&record, &link).await?;
        self.page_of(&record, &link, &caller).await
    }

    /// An attachment of the email that an open link shows, counted from 0 as in its preview.
    pub async fn approval_attachment(&self, token: &str, number: usize) -> Result<Attachment, Problem> {
        let page = self.approval_page(token).await?;
        let not_shown = || Problem::new(Code::NotFound, "this link shows no such attachment");
        let shown = page.view.email.filter(|_| page.state == LinkState::Open);
        let Some((email, Some(preview))) = shown else { return Err(not_shown()) };
        let file = preview.attachments.get(number).ok_or_else(not_shown)?;
        let attachment = stored_attachment(&self.ctx, email.team, email.id, number).await?;
        // The email may have changed since the preview was rendered.
        attachment.filter(|attachment| file.has_bytes(&attachment.bytes)).ok_or_else(not_shown)
    }

    async fn caller_of(&self, record: &Record, link: &ApprovalLink) -> Result<Caller, Problem> {
        let teams = self.access.teams().await?;
        let team = teams.into_iter().find(|team| team.id == record.team).ok_or_else(unknown_link)?;
        Ok(link_caller(team, record.id, link.addressee, self.ctx.now()))
    }

    async fn page_of(&self, record: &Record, link: &ApprovalLink, caller: &Caller) -> Result<ApprovalPage, Problem> {
        let view = self.escalations.escalation(caller, link.escalation).await?;
        let addressee = self.addressee_name(record, link).await?;
        let state = match (&addressee, view.escalation.state) {
            (_, state) if state != EscalationState::Open => LinkState::Decided,
            (None, _) => LinkState::Expired,
            _ if link.withdrawn || link.expires_at <= self.ctx.time.later_time() => LinkState::Expired,
            _ if preview_digest(&view) != link.digest => LinkState::Changed,
            _ => LinkState::Open,
        };
        let addressee = addressee.unwrap_or_default();
        Ok(ApprovalPage { state, view, addressee, decided_now: false, waiting: Vec::new() })
    }

    /// The name of an addressee who may decide by a link; `None` for one who may not, no longer exists, or signed out
    /// everywhere since the link was made.
    async fn addressee_name(&self, record: &Record, link: &ApprovalLink) -> Result<Option<String>, Problem> {
        match link.addressee {
            Addressee::Person(id) => {
                let found = self.access.person_of(record.team, id).await?.map(|view| view.person);
                let may_decide = |person: &Person| {
                    person.scopes().contains(&ApiKeyScope::Approve)
                        && !person.has_signed_out_since(link.sign_outs, record.created_at)
                };
                Ok(found.filter(may_decide).map(|person| person.name))
            }
            Addressee::Target(id) => {
                let kind = RecordKind::NotificationTarget;
                let target = self.ctx.store.record(record.team, kind, id).await.map_err(unavailable)?;
                Ok(target.map(|target| target.name))
            }
        }
    }

    /// How often an addressee signed out everywhere; 0 for a target.
    async fn sign_outs_of(&self, team: TeamId, addressee: Addressee) -> Result<u32, Problem> {
        let Addressee::Person(id) = addressee else { return Ok(0) };
        Ok(self.access.person_of(team, id).await?.map_or(0, |view| view.person.sign_outs))
    }

    /// The tokens of the addressee's other links whose questions are open, oldest first.
    async fn waiting_links(&self, own: &Record, link: &ApprovalLink) -> Result<Vec<String>, Problem> {
        let (mut tokens, mut before, now) = (Vec::new(), None, self.ctx.time.later_time());
        loop {
            // Most links are those of other people, so that one page would miss some.
            let page = self.ctx.store.records(own.team, own.kind, before, limits::PAGE_ROWS).await;
            let page = page.map_err(unavailable)?;
            for record in page.rows.iter().filter(|record| record.id != own.id) {
                let other: ApprovalLink = records::decode(record)?;
                let has_ended = other.withdrawn || other.expires_at <= now;
                if other.addressee != link.addressee || has_ended || other.escalation == link.escalation {
                    continue;
                }
                if self.is_open(own.team, other.escalation).await?
                    && self.addressee_name(record, &other).await?.is_some()
                {
                    tokens.push(self.link_token(record.id));
                }
            }
            before = page.next;
            if before.is_none() {
                tokens.reverse();
                return Ok(tokens);
            }
        }
    }

    async fn is_open(&self, team: TeamId, escalation: Uuid) -> Result<bool, Problem> {
        let asked = self.ctx.store.record(team, RecordKind::Escalation, escalation).await.map_err(unavailable)?;
        let Some(asked) = asked else { return Ok(false) };
        Ok(records::decode::<Escalation>(&asked)?.state == EscalationState::Open)
    }

    /// Removes the links that expired long ago, at most once an hour. Whoever opens a removed one no longer sees who
    /// decided.
    pub(super) async fn remove_old_links(&self, team: TeamId) -> Result<(), Problem> {
        let (kind, now) = (RecordKind::ApprovalLink, self.ctx.now());
        if !self.progress.begin_cleanup(team, now) {
            return Ok(());
        }
        let mut before = None;
        loop {
            let page = self.ctx.store.records(team, kind, before, limits::PAGE_ROWS).await.map_err(unavailable)?;
            for record in &page.rows {
                if records::decode::<ApprovalLink>(record)?.expires_at.plus(EXPIRED_LINK_MS) <= now {
                    self.ctx.store.remove_record(team, kind, record.id).await.map_err(unavailable)?;
                }
            }
            before = page.next;
            if before.is_none() {
                return Ok(());
            }
        }
    }

    /// Decides a question by its link, if it can still be decided, and returns the page after it. Fails with `stale_rev`
    /// when the question was asked again since the page was shown.
    pub async fn decide_by_link(
        &self,
        token: &str,
        request: DecisionRequest,
        client: Option<IpAddr>,
    ) -> Result<ApprovalPage, Problem> {
        let (record, link) = self.find_link(token).await?;
        let caller = self.caller_of(&record, &link).await?;
        let before = self.page_of(&record, &link, &caller).await?;
        if before.state != LinkState::Open {
            return Ok(before);
        }
        let from = CallSource::of_client(client, AliasKey::of(&self.ctx.secret));
        let (team, now) = (record.team, self.ctx.now());
        match link.addressee {
            Addressee::Person(person) => CallOrigin::of_person(person, team, from, now).set(),
            Addressee::Target(target) => CallOrigin::of_notification_target(target, team, from, now).set(),
        }
        let request = DecisionRequest { preview_digest: link.digest.clone(), ..request };
        match self.escalations.resolve_escalation(&caller, link.escalation, request, None).await {
            Ok(_) => {
                let page = self.page_of(&record, &link, &caller).await?;
                Ok(ApprovalPage { decided_now: true, waiting: self.waiting_links(&record, &link).await?, ..page })
            }
            // Somebody else was faster, or the email changed: the page says so.
            Err(problem) if matches!(problem.code, Code::NotOpen | Code::StaleRev) => {
                let page = self.page_of(&record, &link, &caller).await?;
                if page.state == LinkState::Open {
                    let detail = "the question was asked again since you opened the page, so nothing was decided; look \
                                  again and decide";
                    return Err(Problem::new(Code::StaleRev, detail));
                }
                Ok(page)
            }
            Err(problem) => Err(problem),
        }
    }
}

pub(super) fn preview_digest(view: &EscalationView) -> Option<String> {
    let (email, preview) = view.email.as_ref()?;
    Some(preview.as_ref()?.digest(email.id))
}

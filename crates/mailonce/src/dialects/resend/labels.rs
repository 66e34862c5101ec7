//! The Resend routes for labels, of an inbox and of its threads.
//!
//! A label is a word here, and its id is that word. The labels of an inbox are those that were created for it and those
//! that its threads have.

use axum::{extract::State, http::StatusCode};
use mailonce_core::{
    access::team::ApiKeyScope,
    conversation::thread::{Thread, ThreadEdit},
    inbox::Inbox,
    problem::{Code, Problem},
};
use mailonce_engine::inbox::labels::{LabelOverrides, check_labels};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

use super::{
    DialectError, DialectPath, OnePathParam, ResendDialect, ResendRequest, ResendRequestBody, ResendResult,
    TwoPathSegments, deleted_response,
    inboxes::find_inbox,
    json, object_response,
    threads::{LabelBody, TRASH, all_threads, find_thread, label_bodies},
};
use crate::{
    dialects::{field_problem, resend::errors::missing_field},
    http::app::App,
};

/// A path with an inbox, a thread and a label.
type ThreadLabelPath = DialectPath<(String, String, String), ResendDialect>;

/// The labels of an inbox, and its threads.
struct InboxLabels {
    inbox: Inbox,
    threads: Vec<Thread>,
    names: BTreeSet<String>,
    /// The labels that callers created for the inbox and removed from it.
    overrides: LabelOverrides,
}

impl InboxLabels {
    async fn load(app: &App, auth: &ResendRequest, inbox: &str) -> Result<Self, Problem> {
        auth.caller.require_scope(ApiKeyScope::Read)?;
        let inbox = find_inbox(app, auth, inbox).await?;
        let threads = all_threads(app, auth, inbox.id).await?;
        let overrides = app.engine.inboxes.label_overrides(&auth.caller, inbox.id.0).await?;
        let used = threads.iter().flat_map(|thread| thread.details.labels.iter());
        let names = overrides.added.iter().chain(used).filter(|name| *name != TRASH).cloned().collect();
        Ok(Self { inbox, threads, names, overrides })
    }

    /// Refuses a name that the inbox has already, in any case.
    fn check_new(&self, name: &str) -> Result<(), Problem> {
        check_labels(&[name.to_owned()], "name")?;
        if name.eq_ignore_ascii_case(TRASH) || self.names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            return Err(field_problem("name", "A label with this name already exists."));
        }
        Ok(())
    }

    fn require(&self, label: &str) -> Result<(), Problem> {
        if self.names.contains(label) { Ok(()) } else { Err(Problem::new(Code::NotFound, "Label not found")) }
    }

    /// Whether a rename began: the inbox has the new name in the place of the old one. Some threads may still have the
    /// old one, so a repeat of the call finishes it.
    fn is_renamed(&self, old: &str, new: &str) -> bool {
        let has = |labels: &[String], name: &str| labels.iter().any(|label| label == name);
        has(&self.overrides.removed, old) && has(&self.overrides.added, new)
    }

    /// Replaces a label on every thread that has it, or removes it.
    async fn replace_on_threads(
        &self,
        app: &App,
        auth: &ResendRequest,
        label: &str,
        new: Option<&str>,
    ) -> Result<(), Problem> {
        for thread in self.threads.iter().filter(|thread| thread.details.labels.iter().any(|one| one == label)) {
            // Only this label changes: another call may change others at the same time.
            let add_labels = new.map(str::to_owned).into_iter().collect();
            let edit = ThreadEdit { add_labels, remove_labels: vec![label.to_owned()], ..ThreadEdit::default() };
            app.engine.conversations.change_thread(&auth.caller, thread.id, edit).await?;
        }
        Ok(())
    }
}

#[derive(Serialize)]
struct InboxLabelBody {
    #[serde(flatten)]
    label: LabelBody,
    created_at: String,
}

#[derive(Serialize)]
struct LabelListBody<T> {
    object: &'static str,
    data: Vec<T>,
}

/// `GET /inboxes/{inbox}/labels`.
pub(super) async fn list(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(inbox, ..): OnePathParam,
) -> ResendResult {
    let InboxLabels { inbox, names, .. } = InboxLabels::load(&app, &auth, &inbox).await?;
    let names: Vec<String> = names.into_iter().collect();
    let created_at = inbox.created_at.to_string();
    let body = |label| InboxLabelBody { label, created_at: created_at.clone() };
    let data = label_bodies(&names).into_iter().map(body).collect();
    Ok(json(StatusCode::OK, &LabelListBody { object: "list", data }))
}

/// The body of a request that creates or renames a label. Colors are not kept.
#[derive(Deserialize)]
struct LabelRequestBody {
    #[serde(default)]
    name: Option<String>,
}

/// `POST /inboxes/{inbox}/labels`.
pub(super) async fn create(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(inbox, ..): OnePathParam,
    body: ResendRequestBody,
) -> ResendResult {
    let name = body.parse::<LabelRequestBody>()?.name.ok_or_else(|| missing_field("name"))?;
    let labels = InboxLabels::load(&app, &auth, &inbox).await?;
    labels.check_new(&name)?;
    app.engine.inboxes.change_labels(&auth.caller, labels.inbox.id.0, std::slice::from_ref(&name), &[]).await?;
    Ok(object_response("inbox_label", name))
}

/// `PATCH /inboxes/{inbox}/labels/{label}`. A new name is the new id of the label.
pub(super) async fn change(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath((inbox, label), ..): TwoPathSegments,
    body: ResendRequestBody,
) -> ResendResult {
    auth.caller.require_scope(ApiKeyScope::Reply)?;
    let labels = InboxLabels::load(&app, &auth, &inbox).await?;
    let name = body.parse::<LabelRequestBody>()?.name.unwrap_or_else(|| label.clone());
    let is_repeat = labels.is_renamed(&label, &name);
    if !is_repeat {
        labels.require(&label)?;
    }
    if name == label {
        return Ok(object_response("inbox_label", label));
    }
    if !is_repeat && !name.eq_ignore_ascii_case(&label) {
        labels.check_new(&name)?;
    }
    check_labels(std::slice::from_ref(&name), "name")?;
    let (new, old) = (std::slice::from_ref(&name), std::slice::from_ref(&label));
    app.engine.inboxes.change_labels(&auth.caller, labels.inbox.id.0, new, old).await?;
    labels.replace_on_threads(&app, &auth, &label, Some(&name)).await?;
    Ok(object_response("inbox_label", name))
}

/// `DELETE /inboxes/{inbox}/labels/{label}`. Threads that have the label lose it.
pub(super) async fn remove(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath((inbox, label), ..): TwoPathSegments,
) -> ResendResult {
    auth.caller.require_scope(ApiKeyScope::Reply)?;
    let labels = InboxLabels::load(&app, &auth, &inbox).await?;
    labels.require(&label)?;
    labels.replace_on_threads(&app, &auth, &label, None).await?;
    app.engine.inboxes.change_labels(&auth.caller, labels.inbox.id.0, &[], std::slice::from_ref(&label)).await?;
    Ok(deleted_response("inbox_label", label))
}

#[derive(Deserialize)]
struct ThreadLabelsBody {
    #[serde(default)]
    labels: Option<Vec<String>>,
}

/// Changes the labels of a thread, and responds with them.
async fn set_labels(
    app: &App,
    auth: &ResendRequest,
    (inbox, thread): (&str, &str),
    change: impl FnOnce(&Thread) -> ThreadEdit,
) -> ResendResult {
    auth.caller.require_scope(ApiKeyScope::Reply)?;
    let thread = find_thread(app, auth, inbox, thread).await?.thread;
    let edit = change(&thread);
    let mut after = thread.clone();
    after.edit(edit.clone(), thread.last_activity_at);
    check_labels(&after.details.labels, "labels")?;
    let changed = app.engine.conversations.change_thread(&auth.caller, thread.id, edit).await?.thread;
    let data = label_bodies(&changed.details.labels);
    Ok(json(StatusCode::OK, &LabelListBody { object: "list", data }))
}

/// The labels of a request, which must all exist in the inbox.
async fn known_labels(
    app: &App,
    auth: &ResendRequest,
    inbox: &str,
    body: &ResendRequestBody,
) -> Result<Vec<String>, DialectError<ResendDialect>> {
    let names = body.parse::<ThreadLabelsBody>()?.labels.ok_or_else(|| missing_field("labels"))?;
    let labels = InboxLabels::load(app, auth, inbox).await?;
    names.iter().try_for_each(|name| labels.require(name))?;
    Ok(names)
}

/// `POST /inboxes/{inbox}/threads/{thread}/labels`.
pub(super) async fn add_to_thread(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath((inbox, thread), ..): TwoPathSegments,
    body: ResendRequestBody,
) -> ResendResult {
    let added = known_labels(&app, &auth, &inbox, &body).await?;
    let edit = ThreadEdit { add_labels: added, ..ThreadEdit::default() };
    set_labels(&app, &auth, (&inbox, &thread), |_| edit).await
}

/// `PUT /inboxes/{inbox}/threads/{thread}/labels`.
pub(super) async fn set_on_thread(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath((inbox, thread), ..): TwoPathSegments,
    body: ResendRequestBody,
) -> ResendResult {
    let labels = known_labels(&app, &auth, &inbox, &body).await?;
    let set = |thread: &Thread| {
        let hidden = thread.details.labels.iter().filter(|label| *label == TRASH).cloned();
        ThreadEdit { labels: Some(labels.into_iter().chain(hidden).collect()), ..ThreadEdit::default() }
    };
    set_labels(&app, &auth, (&inbox, &thread), set).await
}

/// `DELETE /inboxes/{inbox}/threads/{thread}/labels/{label}`.
pub(super) async fn remove_from_thread(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath((inbox, thread, label), ..): ThreadLabelPath,
) -> ResendResult {
    InboxLabels::load(&app, &auth, &inbox).await?.require(&label)?;
    let edit = ThreadEdit { remove_labels: vec![label], ..ThreadEdit::default() };
    set_labels(&app, &auth, (&inbox, &thread), |_| edit).await
}

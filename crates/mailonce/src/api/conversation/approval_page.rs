//! The page of an approval link. It works without scripts, on a phone, and shows exactly what will be sent.

use axum::{
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    response::{Html, IntoResponse, Response},
};
use mailonce_core::{
    conversation::escalation::{Decision, EmailEdit, EscalationReason},
    problem::{Code, Problem},
};
use mailonce_engine::conversation::{
    approval_links::{APPROVAL_LINK_HOURS, ApprovalPage, LinkState},
    escalations::DecisionRequest,
    preview::Preview,
};
use std::{borrow::Cow, collections::HashMap, fmt::Write as _};

use crate::{
    client_address::ClientAddress,
    http::{
        app::{ApiResult, App},
        download::attachment_response,
        extract::read_body,
        html::escape_html,
        json::check_text,
        next_page::with_next,
        params::{PathParam, TwoPathParams},
    },
};

const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
/// The largest form: an edited text, percent-encoded.
const MAX_FORM_BYTES: usize = 4 << 20;

/// Shows what waits for a decision. It changes nothing: mail scanners open links.
pub(crate) async fn show(State(app): State<App>, PathParam(token): PathParam) -> ApiResult {
    match app.engine.notifications.approval_page(&token).await {
        Ok(page) => Ok(render(&page, &token, None)),
        Err(problem) => failure(problem),
    }
}

/// An attachment of the email that waits.
pub(crate) async fn attachment(State(app): State<App>, TwoPathParams(token, number): TwoPathParams) -> ApiResult {
    // No email has as many attachments as the largest number.
    let number = number.parse().unwrap_or(usize::MAX);
    let attachment = match app.engine.notifications.approval_attachment(&token, number).await {
        Ok(attachment) => attachment,
        Err(problem) => return failure(problem),
    };
    Ok(attachment_response(attachment.bytes, attachment.filename.as_deref()))
}

/// Decides, once.
pub(crate) async fn decide(State(app): State<App>, PathParam(token): PathParam, request: Request) -> ApiResult {
    let client = ClientAddress::of(request.extensions());
    // Whoever has no link sends no large body.
    if let Err(problem) = app.engine.notifications.check_link_token(&token) {
        return failure(problem);
    }
    let body = read_body(request.into_body(), MAX_FORM_BYTES).await?;
    let form: HashMap<Cow<'_, str>, Cow<'_, str>> = url::form_urlencoded::parse(&body).collect();
    let request = match parse_decision(&form) {
        Ok(request) => request,
        Err(problem) => return show_with_problem(&app, &token, &problem).await,
    };
    match app.engine.notifications.decide_by_link(&token, request, client).await {
        Ok(page) => Ok(render(&page, &token, None)),
        Err(problem) if matches!(problem.code, Code::InvalidField | Code::StaleRev) => {
            show_with_problem(&app, &token, &problem).await
        }
        Err(problem) => failure(problem),
    }
}

/// The page again, with what is wrong with the form.
async fn show_with_problem(app: &App, token: &str, problem: &Problem) -> ApiResult {
    match app.engine.notifications.approval_page(token).await {
        Ok(page) => Ok(render(&page, token, Some(problem))),
        Err(problem) => failure(problem),
    }
}

fn parse_decision(form: &HashMap<Cow<'_, str>, Cow<'_, str>>) -> Result<DecisionRequest, Problem> {
    let field = |name: &str| form.get(name).map(|value| value.replace("\r\n", "\n")).filter(|text| !text.is_empty());
    let decision = field("as").and_then(|word| Decision::parse(&word));
    let decision = decision.ok_or_else(|| Problem::invalid_field("as", "choose one of the buttons"))?;
    let rev = field("rev").and_then(|text| text.parse().ok());
    let rev = rev.ok_or_else(|| Problem::invalid_field("rev", "the form is not complete; open the link again"))?;
    let reason = field("reason");
    check_text("reason", &reason.as_deref().unwrap_or_default().replace('\n', " "))?;
    let edit =
        (decision == Decision::Edit).then(|| EmailEdit { subject: field("subject"), text: field("text"), html: None });
    Ok(DecisionRequest { decision, rev, edit, reason, preview_digest: None })
}

fn failure(problem: Problem) -> ApiResult {
    if problem.code != Code::NotFound {
        return Err(problem.into());
    }
    let content = "<h1>This link does not work.</h1>\n<p>It is not one of this server. Perhaps it was cut: copy the whole link.</p>";
    Ok(html_page(StatusCode::NOT_FOUND, content))
}

fn render(page: &ApprovalPage, token: &str, fault: Option<&Problem>) -> Response {
    let status = match (page.state, fault) {
        _ if page.decided_now => StatusCode::OK,
        (LinkState::Open, None) => StatusCode::OK,
        (LinkState::Open, Some(problem)) if problem.code == Code::StaleRev => StatusCode::CONFLICT,
        (LinkState::Open, Some(_)) => StatusCode::UNPROCESSABLE_ENTITY,
        (LinkState::Changed, _) => StatusCode::CONFLICT,
        (LinkState::Decided | LinkState::Expired, _) => StatusCode::GONE,
    };
    let mut content = String::new();
    // Writing into a string cannot fail.
    write_page(&mut content, page, token, fault.map(|problem| problem.detail.as_str())).unwrap_or_default();
    html_page(status, &content)
}

/// What a button says.
fn button_text(reason: EscalationReason, decision: Decision) -> &'static str {
    match (decision, reason) {
        (Decision::Release, EscalationReason::Asked | EscalationReason::Loop | EscalationReason::Unanswered) => "Yes",
        (Decision::Release, EscalationReason::Orphaned) => "Close",
        (Decision::Reject, EscalationReason::Asked | EscalationReason::Loop | EscalationReason::Unanswered) => "No",
        (Decision::Release, _) => "Approve and send",
        (Decision::Reject, _) => "Reject",
        (Decision::Edit, _) => "Send the edited email",
        (Decision::Sent, _) => "It was sent",
        (Decision::Resend, _) => "Send it again",
        (Decision::Abandon, _) => "Give up",
        (Decision::Done, _) => "It was done",
        (Decision::Retry, _) => "Let it run again",
    }
}

fn write_page(out: &mut String, page: &ApprovalPage, token: &str, fault: Option<&str>) -> std::fmt::Result {
    match page.state {
        LinkState::Open => write_question(out, page, token, fault)?,
        LinkState::Decided => write_decided(out, page)?,
        LinkState::Expired => writeln!(
            out,
            "<h1>This link has expired.</h1>\n<p>Links work for {} hours, only for people who may decide, and no longer once they \
             were forwarded to an inbox of this server. The question is still open: <a href=\"{}\">sign in</a> to decide.</p>",
            APPROVAL_LINK_HOURS,
            sign_in_url(page)
        )?,
        LinkState::Changed => writeln!(
            out,
            "<h1>The email has changed.</h1>\n<p>What would be sent now is not what this link was made for, so it decides \
             nothing. <a href=\"{}\">Sign in</a> to see the new email.</p>",
            sign_in_url(page)
        )?,
    }
    write_waiting(out, page)
}

/// The sign-in that leads to the question.
fn sign_in_url(page: &ApprovalPage) -> String {
    escape_html(&with_next("/sign-in", Some(&format!("/needs-you/{}", page.view.id))))
}

fn write_question(out: &mut String, page: &ApprovalPage, token: &str, fault: Option<&str>) -> std::fmt::Result {
    let escalation = &page.view.escalation;
    writeln!(out, "<h1>{}</h1>", escalation.reason.question())?;
    if let Some(fault) = fault {
        writeln!(out, "<p class=\"fault\" role=\"alert\">{}</p>", escape_html(fault))?;
    }
    if let Some(rule) = &escalation.about.rule {
        writeln!(out, "<p>The rule <strong>{}</strong> wants a person to look at it.</p>", escape_html(&rule.name))?;
    }
    if let Some(question) = &escalation.about.question {
        writeln!(out, "<pre>{}</pre>", escape_html(question))?;
    }
    let preview = page.view.email.as_ref().and_then(|(_, preview)| preview.as_ref());
    if let Some(preview) = preview {
        write_preview(out, preview, token)?;
    }
    if let Some((_, diff)) = &page.view.earlier_email {
        let diff = escape_html(&diff.join("\n"));
        writeln!(out, "<h2>Compared with the earlier email</h2>\n<pre>{diff}</pre>")?;
    }
    write_form(out, page, preview)
}

fn write_preview(out: &mut String, preview: &Preview, token: &str) -> std::fmt::Result {
    for warning in &preview.warnings {
        writeln!(out, "<p class=\"warning\">{}</p>", escape_html(warning))?;
    }
    writeln!(out, "<pre>{}</pre>", escape_html(&preview.to_plain_text()))?;
    if let Some(html) = &preview.html {
        writeln!(out, "<details><summary>HTML source</summary><pre>{}</pre></details>", escape_html(html))?;
    }
    for (number, file) in preview.attachments.iter().enumerate() {
        let (token, name) = (escape_html(token), escape_html(&file.shown_name()));
        writeln!(out, "<p class=\"file\"><a href=\"{token}/attachments/{number}\" download>Download {name}</a></p>")?;
    }
    Ok(())
}

fn write_form(out: &mut String, page: &ApprovalPage, preview: Option<&Preview>) -> std::fmt::Result {
    let (reason, rev) = (page.view.escalation.reason, page.view.rev);
    let choices = reason.allowed_decisions();
    writeln!(out, "<form method=\"post\">\n<input type=\"hidden\" name=\"rev\" value=\"{rev}\">")?;
    writeln!(out, "<p><label for=\"reason\">Reason, or your answer</label>")?;
    writeln!(
        out,
        "<textarea id=\"reason\" name=\"reason\" rows=\"2\" maxlength=\"500\"></textarea></p>\n<p class=\"choices\">"
    )?;
    for choice in choices.iter().filter(|choice| **choice != Decision::Edit) {
        let text = button_text(reason, *choice);
        writeln!(out, "<button name=\"as\" value=\"{}\">{text}</button>", choice.as_str())?;
    }
    writeln!(out, "</p>\n</form>")?;
    if let Some(preview) = preview.filter(|_| choices.contains(&Decision::Edit)) {
        write_edit_form(out, rev, reason, preview)?;
    }
    writeln!(
        out,
        "<p class=\"who\">You decide as <strong>{}</strong>. The first decision counts.</p>",
        escape_html(&page.addressee)
    )
}

fn write_edit_form(out: &mut String, rev: u32, reason: EscalationReason, preview: &Preview) -> std::fmt::Result {
    let (subject, text) = (escape_html(&preview.subject), preview.text.as_deref().or(preview.html_as_text.as_deref()));
    let text = escape_html(text.unwrap_or_default());
    let note = if preview.html.is_some() { "<p>The edited text replaces the HTML part, too.</p>\n" } else { "" };
    let button = button_text(reason, Decision::Edit);
    // A line break after the tag is not part of the text.
    writeln!(
        out,
        "<details><summary>Edit it first</summary>\n<form method=\"post\">\n<input type=\"hidden\" name=\"rev\" value=\"{rev}\">\n{note}\
         <p><label for=\"subject\">Subject</label><input id=\"subject\" name=\"subject\" value=\"{subject}\"></p>\n\
         <p><label for=\"text\">Text</label><textarea id=\"text\" name=\"text\" rows=\"12\">\n{text}</textarea></p>\n\
         <button name=\"as\" value=\"edit\">{button}</button>\n</form></details>"
    )
}

fn write_decided(out: &mut String, page: &ApprovalPage) -> std::fmt::Result {
    let escalation = &page.view.escalation;
    let Some(decision) = &escalation.decision else {
        return writeln!(
            out,
            "<h1>Nothing to decide any more.</h1>\n<p>The question is {}.</p>",
            escalation.state.as_str()
        );
    };
    let who = match (&page.view.decided_by, decision.by) {
        (Some(name), _) => escape_html(name),
        (None, Some(_)) => "A program with an API key".to_owned(),
        (None, None) => "The deadline".to_owned(),
    };
    let (at, chosen) = (decision.at, button_text(escalation.reason, decision.decision));
    writeln!(
        out,
        "<h1>Decided: {chosen}</h1>\n<p><strong>{who}</strong> decided at <time>{at}</time>. The first decision counts.</p>"
    )?;
    if let Some(reason) = &decision.reason {
        writeln!(out, "<pre>{}</pre>", escape_html(reason))?;
    }
    Ok(())
}

fn write_waiting(out: &mut String, page: &ApprovalPage) -> std::fmt::Result {
    match page.waiting.as_slice() {
        [] => Ok(()),
        [next] => writeln!(out, "<p class=\"next\"><a href=\"/a/{next}\">One more waits for you</a></p>"),
        [next, ..] => {
            writeln!(
                out,
                "<p class=\"next\"><a href=\"/a/{next}\">{} more wait for you: see the next</a></p>",
                page.waiting.len()
            )
        }
    }
}

fn html_page(status: StatusCode, content: &str) -> Response {
    let html = include_str!("approval.html").replace("{{content}}", content);
    let mut response = (status, Html(html)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    // Other sites see nothing of the link. Without a referrer, browsers would hide the origin of the form from this server.
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    response
}

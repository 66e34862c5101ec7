//! Settings of a team.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    access::team::{ApiKeyScope, Team},
    control::budget_period::CalendarZone,
    conversation::quiet_hours::QuietHours,
    inbox::message::ReplyToPolicy,
    limits::BODY_RETENTION_MS,
    outbound::content_guard::{ContentGuardMode, IdenticalMode, MAX_IDENTICAL_WINDOW_MS},
    problem::Problem,
    time::{format_span, parse_span},
};
use mailonce_engine::access::{
    compat_settings::CompatSettings,
    settings::{ApprovalEmails, EscalationNotification, SettingsPatch, TeamSettings},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    api::{access::api_keys::TeamRefBody, inbox::inboxes::parse_duration_ms},
    http::{
        app::{ApiResult, App},
        extract::{AuthedRequest, RawBody},
        json::{given, given_object, object_or_null},
    },
};

/// Maximum of `held_expires_after`.
const MAX_HELD_EXPIRY_MS: i64 = 30 * 86_400_000;
const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 86_400_000;
/// Maximum of `retention.audit`, `retention.events` and `retention.raw`.
const MAX_RETENTION_MS: i64 = 3_650 * DAY_MS;

/// Content guard: what to do with an email that looks like one that was just sent.
///
/// Each value is `off`, `flag` (send and mark it) or `hold` (ask a person first).
#[derive(Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ContentGuardBody {
    /// For sends with an idempotency key or an intent, and for replies; `flag` by default.
    #[serde(default)]
    keyed: Option<String>,
    /// For sends without an idempotency key or an intent; `hold` by default.
    #[serde(default)]
    keyless: Option<String>,
    /// For sends through MCP, which always have an intent; `hold` by default. Replies through MCP count as `keyed`.
    #[serde(default)]
    mcp: Option<String>,
}

/// Sender and recipients of the email that announces a new escalation.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NotifySettingsBody {
    from: String,
    to: Vec<String>,
}

/// How people who may decide are told of questions, each with an approval link of their own.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApprovalEmailsBody {
    /// Sender, an address that the team may send from; null means that nobody is told by email, only notification targets.
    #[serde(default)]
    from: Option<String>,
    /// After how long the next person is told, such as `30m`, from 1 minute to 1 day; null means that all are told at once.
    #[serde(default)]
    next_after: Option<String>,
    #[serde(default)]
    quiet_hours: Option<QuietHoursBody>,
}

/// When nobody is told, in the team's time zone.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuietHoursBody {
    /// Time of day, such as `22:00`.
    from: String,
    /// Time of day, such as `07:00`.
    to: String,
}

impl From<&ApprovalEmails> for ApprovalEmailsBody {
    fn from(emails: &ApprovalEmails) -> Self {
        let quiet_hours = emails.quiet_hours.map(QuietHours::to_texts).map(|(from, to)| QuietHoursBody { from, to });
        Self { from: emails.from.clone(), next_after: emails.next_after_ms.map(format_span), quiet_hours }
    }
}

impl ApprovalEmailsBody {
    fn parse(self) -> Result<ApprovalEmails, Problem> {
        let field = "approval_emails.next_after";
        let next_after_ms = self.next_after.map(|text| parse_duration_ms(field, &text, DAY_MS)).transpose()?;
        if next_after_ms.is_some_and(|ms| ms < MINUTE_MS) {
            return Err(Problem::invalid_field(field, "must be at least 1 minute, or null to tell all at once"));
        }
        if next_after_ms.is_some() && self.from.is_none() {
            return Err(Problem::invalid_field(
                field,
                "needs `approval_emails.from`: notification targets are told at once",
            ));
        }
        let quiet_hours = self.quiet_hours.map(|QuietHoursBody { from, to }| {
            QuietHours::parse(&from, &to).ok_or_else(|| {
                let message = "must be two different times of day, such as 22:00 and 07:00";
                Problem::invalid_field("approval_emails.quiet_hours", message)
            })
        });
        Ok(ApprovalEmails { from: self.from, next_after_ms, quiet_hours: quiet_hours.transpose()? })
    }
}

/// A team's settings.
#[derive(Serialize, ToSchema)]
pub(crate) struct SettingsBody {
    team: TeamRefBody,
    content_guard: ContentGuardBody,
    escalation_email: Option<NotifySettingsBody>,
    approval_emails: Option<ApprovalEmailsBody>,
    /// How long a held email waits for a decision before it is rejected, such as `24h`; null means for ever.
    held_expires_after: Option<String>,
    /// Policy for risky replies: `allow`, `flag` or `refuse`.
    ///
    /// A reply is risky when it would go to another organization than the sender's, or when the message failed
    /// authentication.
    reply_to: &'static str,
    /// The time zone in which the days and months of budgets begin, by its IANA name, such as `Europe/Berlin`.
    time_zone: String,
    /// Whether every entry of the audit log is also an event, `audit.recorded`.
    audit_events: bool,
    retention: RetentionBody,
    unsubscribe: UnsubscribeSettingsBody,
    compat: CompatBody,
}

/// Emails without an idempotency key through the Resend, useSend and AgentMail dialects.
#[derive(Serialize, ToSchema)]
pub(crate) struct CompatBody {
    /// What happens to an email that is identical to one just accepted.
    ///
    /// `replay` answers with the first email, `hold` asks a person (also about nearly identical ones), `send` sends it.
    keyless: &'static str,
    /// How long after its acceptance an email is repeated, such as `10m`.
    window: String,
}

/// Emails without an idempotency key through dialects. Absent fields keep their value; `null` restores the default.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CompatPatchBody {
    /// `replay`, `hold` or `send`.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    keyless: Option<Option<String>>,
    /// A duration from 1 minute to 1 hour.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    window: Option<Option<String>>,
}

impl CompatPatchBody {
    fn mode(&self) -> Result<Option<Option<IdenticalMode>>, Problem> {
        let Some(Some(word)) = &self.keyless else { return Ok(self.keyless.as_ref().map(|_null| None)) };
        let mode = IdenticalMode::parse(word);
        mode.map(|mode| Some(Some(mode)))
            .ok_or_else(|| Problem::invalid_field("compat.keyless", "must be replay, hold or send"))
    }

    fn window_ms(&self) -> Result<Option<Option<i64>>, Problem> {
        let Some(Some(text)) = &self.window else { return Ok(self.window.as_ref().map(|_null| None)) };
        let ms = parse_span(text).filter(|ms| (MINUTE_MS..=MAX_IDENTICAL_WINDOW_MS).contains(ms));
        ms.map(|ms| Some(Some(ms)))
            .ok_or_else(|| Problem::invalid_field("compat.window", "must be a duration from 1m to 1h, such as 10m"))
    }
}

/// Which email gets an unsubscribe link (RFC 8058).
#[derive(Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UnsubscribeSettingsBody {
    /// Names of tags, or `name=value`. Email to one recipient with one of these tags gets the link.
    tags: Vec<String>,
}

/// How long data is kept.
#[derive(Serialize, ToSchema)]
pub(crate) struct RetentionBody {
    /// Bodies of emails, counted from the final state, such as `7d`; null means 30 days.
    bodies: Option<String>,
    /// Received mail, with its text and attachments, such as `90d`; null means for ever.
    raw: Option<String>,
    /// Events, with the webhook notices about them, such as `90d`; null means for ever.
    events: Option<String>,
    /// Entries of the audit log, such as `365d`; null means for ever.
    audit: Option<String>,
}

impl SettingsBody {
    fn new(team: &Team, settings: &TeamSettings, installation: CompatSettings) -> Self {
        let (keyless, window_ms) = settings.compat.resolve(installation);
        let name = |mode: ContentGuardMode| Some(mode.as_str().to_owned());
        let notify = settings.notify.clone().map(|EscalationNotification { from, to }| NotifySettingsBody { from, to });
        Self {
            team: team.into(),
            content_guard: ContentGuardBody {
                keyed: name(settings.keyed),
                keyless: name(settings.keyless),
                mcp: name(settings.mcp),
            },
            escalation_email: notify,
            approval_emails: settings.approval_emails.as_ref().map(ApprovalEmailsBody::from),
            held_expires_after: settings.expire_ms.map(format_span),
            reply_to: settings.reply_to.as_str(),
            time_zone: settings.calendar_zone().name().to_owned(),
            audit_events: settings.audit_events,
            retention: RetentionBody {
                bodies: settings.retention.bodies_ms.map(format_span),
                raw: settings.retention.raw_ms.map(format_span),
                events: settings.retention.events_ms.map(format_span),
                audit: settings.retention.audit_ms.map(format_span),
            },
            unsubscribe: UnsubscribeSettingsBody { tags: settings.unsubscribe_tags.clone() },
            compat: CompatBody { keyless: keyless.as_str(), window: format_span(window_ms) },
        }
    }
}

/// Settings to change. Absent fields keep their value; `null` removes a value.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettingsPatchBody {
    #[serde(default, deserialize_with = "object_or_null")]
    content_guard: Option<ContentGuardBody>,
    #[serde(default, deserialize_with = "given_object")]
    #[schema(value_type = Option<NotifySettingsBody>)]
    escalation_email: Option<Option<NotifySettingsBody>>,
    #[serde(default, deserialize_with = "given_object")]
    #[schema(value_type = Option<ApprovalEmailsBody>)]
    approval_emails: Option<Option<ApprovalEmailsBody>>,
    /// A duration such as `24h`, from 1 minute to 30 days; null means for ever.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    held_expires_after: Option<Option<String>>,
    /// Policy for risky replies: `allow`, `flag` or `refuse`.
    #[serde(default)]
    reply_to: Option<String>,
    /// The time zone in which the days and months of budgets begin, by its IANA name, such as `Europe/Berlin`.
    #[serde(default)]
    time_zone: Option<String>,
    /// Whether every entry of the audit log is also an event, `audit.recorded`; false by default.
    #[serde(default)]
    audit_events: Option<bool>,
    #[serde(default, deserialize_with = "object_or_null")]
    retention: Option<RetentionPatchBody>,
    #[serde(default, deserialize_with = "object_or_null")]
    unsubscribe: Option<UnsubscribeSettingsBody>,
    #[serde(default, deserialize_with = "object_or_null")]
    compat: Option<CompatPatchBody>,
}

/// How long data is kept. Absent fields keep their value.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetentionPatchBody {
    /// Bodies of emails, counted from the final state: a duration from 1 hour to 30 days; null means 30 days.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    bodies: Option<Option<String>>,
    /// Received mail, with its text and attachments: a duration from 1 hour to 3,650 days; null means for ever.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    raw: Option<Option<String>>,
    /// Events, with the webhook notices about them: a duration from 1 to 3,650 days; null means for ever.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    events: Option<Option<String>>,
    /// Entries of the audit log: a duration such as `365d`, from 1 to 3,650 days; null means for ever.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    audit: Option<Option<String>>,
}

/// Reads a period of retention. `None` keeps the value, an inner `None` removes it.
fn retention_ms(
    field: &str,
    given: Option<Option<String>>,
    (min, min_text): (i64, &str),
    max: i64,
) -> Result<Option<Option<i64>>, Problem> {
    let Some(Some(text)) = given else { return Ok(given.map(|_null| None)) };
    let ms = parse_duration_ms(field, &text, max)?;
    if ms < min {
        return Err(Problem::invalid_field(field, format!("must be at least {min_text}, or null for no limit")));
    }
    Ok(Some(Some(ms)))
}

impl SettingsPatchBody {
    fn validate(self) -> Result<SettingsPatch, Problem> {
        let mode = |path: &str, word: Option<String>| {
            let read = |word: String| {
                ContentGuardMode::parse(&word).ok_or_else(|| Problem::invalid_field(path, "must be off, flag or hold"))
            };
            word.map(read).transpose()
        };
        let guard = self.content_guard.unwrap_or_default();
        let retention = self.retention.unwrap_or_default();
        let compat = self.compat.unwrap_or_default();
        let expire_ms = match self.held_expires_after {
            None => None,
            Some(None) => Some(None),
            Some(Some(text)) => match parse_duration_ms("held_expires_after", &text, MAX_HELD_EXPIRY_MS)? {
                // A person needs time to see the escalation before it expires.
                ms if ms < MINUTE_MS => {
                    return Err(Problem::invalid_field(
                        "held_expires_after",
                        "must be at least 1 minute, or null for no limit",
                    ));
                }
                ms => Some(Some(ms)),
            },
        };
        let reply_to = self.reply_to.map(|word| {
            ReplyToPolicy::parse(&word)
                .ok_or_else(|| Problem::invalid_field("reply_to", "must be allow, flag or refuse"))
        });
        let is_zone = |name: &String| CalendarZone::parse(name).is_some();
        if self.time_zone.as_ref().is_some_and(|name| !is_zone(name)) {
            let message = "must be the name of a time zone, such as Europe/Berlin, America/New_York or UTC";
            return Err(Problem::invalid_field("time_zone", message));
        }
        Ok(SettingsPatch {
            time_zone: self.time_zone,
            reply_to: reply_to.transpose()?,
            audit_events: self.audit_events,
            audit_retention_ms: retention_ms("retention.audit", retention.audit, (DAY_MS, "1 day"), MAX_RETENTION_MS)?,
            event_retention_ms: retention_ms(
                "retention.events",
                retention.events,
                (DAY_MS, "1 day"),
                MAX_RETENTION_MS,
            )?,
            body_retention_ms: retention_ms(
                "retention.bodies",
                retention.bodies,
                (HOUR_MS, "1 hour"),
                BODY_RETENTION_MS,
            )?,
            raw_retention_ms: retention_ms("retention.raw", retention.raw, (HOUR_MS, "1 hour"), MAX_RETENTION_MS)?,
            compat_keyless: compat.mode()?,
            compat_window_ms: compat.window_ms()?,
            unsubscribe_tags: self.unsubscribe.map(|unsubscribe| unsubscribe.tags),
            keyed: mode("content_guard.keyed", guard.keyed)?,
            keyless: mode("content_guard.keyless", guard.keyless)?,
            mcp: mode("content_guard.mcp", guard.mcp)?,
            notify: self
                .escalation_email
                .map(|notify| notify.map(|NotifySettingsBody { from, to }| EscalationNotification { from, to })),
            approval_emails: self
                .approval_emails
                .map(|emails| emails.map(ApprovalEmailsBody::parse).transpose())
                .transpose()?,
            expire_ms,
        })
    }
}

/// Read the team's settings.
#[utoipa::path(get, path = "/v1/settings", operation_id = "read_settings", tag = "settings", responses((status = 200, description = "The settings", body = SettingsBody)))]
pub(crate) async fn read(State(app): State<App>, auth: AuthedRequest) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let settings = app.engine.access.settings(&auth.caller).await?;
    Ok(Json(SettingsBody::new(&auth.caller.team, &settings, app.engine.access.compat_defaults())).into_response())
}

/// Change the team's settings.
#[utoipa::path(patch, path = "/v1/settings", operation_id = "update_settings", tag = "settings", request_body = SettingsPatchBody,
    responses((status = 200, description = "The new settings", body = SettingsBody)))]
pub(crate) async fn change(State(app): State<App>, auth: AuthedRequest, body: RawBody) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let patch = body.parse::<SettingsPatchBody>()?.validate()?;
    let settings = app.engine.access.change_settings(&auth.caller, patch).await?;
    Ok(Json(SettingsBody::new(&auth.caller.team, &settings, app.engine.access.compat_defaults())).into_response())
}

//! How a team wants things done.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    access::team::ApiKeyScope, inbox::message::ReplyToPolicy, outbound::content_guard::ContentGuardMode,
    problem::Problem, time::format_span,
};
use mailonce_engine::access::settings::{EscalationNotification, SettingsPatch, TeamSettings};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::{
    ApiResult, App,
    door::{AuthedRequest, RawBody},
    inbox::inboxes::{invalid_field, parse_duration_ms},
    wire::{given, given_object, object_or_null},
};

/// The longest that a held email may wait for a person when it is to expire.
const MAX_HELD_EXPIRY_MS: i64 = 30 * 86_400_000;
const MINUTE_MS: i64 = 60_000;

/// What to do about mails that look like one that was just sent: `off`, `flag` or `hold`.
#[derive(Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ContentGuardBody {
    /// Among sends with a key or an intent, and among answers; `flag` by default.
    #[serde(default)]
    keyed: Option<String>,
    /// Among sends without one; `hold` by default.
    #[serde(default)]
    keyless: Option<String>,
    /// Among sends by MCP, which always have an intent; `hold` by default. Answers count as keyed there too.
    #[serde(default)]
    mcp: Option<String>,
}

/// Who is told by mail when a person is asked.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NotifySettingsBody {
    from: String,
    to: Vec<String>,
}

/// A team's settings.
#[derive(Serialize, ToSchema)]
pub(crate) struct SettingsBody {
    content_guard: ContentGuardBody,
    escalation_email: Option<NotifySettingsBody>,
    /// After how long a held email that nobody decided about is rejected, such as `24h`; null: never.
    held_expires_after: Option<String>,
    /// What happens to answers that would go to another organization than the sender's, or to mail that failed
    /// authentication: `allow`, `flag` or `refuse`.
    reply_to: &'static str,
}

impl From<&TeamSettings> for SettingsBody {
    fn from(settings: &TeamSettings) -> Self {
        let word = |mode: ContentGuardMode| Some(mode.as_str().to_owned());
        let notify = settings.notify.clone().map(|EscalationNotification { from, to }| NotifySettingsBody { from, to });
        Self {
            content_guard: ContentGuardBody {
                keyed: word(settings.keyed),
                keyless: word(settings.keyless),
                mcp: word(settings.mcp),
            },
            escalation_email: notify,
            held_expires_after: settings.expire_ms.map(format_span),
            reply_to: settings.reply_to.as_str(),
        }
    }
}

/// What to change. Absent members stay; `null` takes away.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettingsPatchBody {
    #[serde(default, deserialize_with = "object_or_null")]
    content_guard: Option<ContentGuardBody>,
    #[serde(default, deserialize_with = "given_object")]
    #[schema(value_type = Option<NotifySettingsBody>)]
    escalation_email: Option<Option<NotifySettingsBody>>,
    /// A time such as `24h`, from 1 minute to 30 days.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    held_expires_after: Option<Option<String>>,
    /// `allow`, `flag` or `refuse`.
    #[serde(default)]
    reply_to: Option<String>,
}

impl SettingsPatchBody {
    fn validate(self) -> Result<SettingsPatch, Problem> {
        let mode = |path: &str, word: Option<String>| {
            let read = |word: String| {
                ContentGuardMode::parse(&word).ok_or_else(|| invalid_field(path, "is off, flag or hold"))
            };
            word.map(read).transpose()
        };
        let guard = self.content_guard.unwrap_or_default();
        let expire_ms = match self.held_expires_after {
            None => None,
            Some(None) => Some(None),
            Some(Some(text)) => match parse_duration_ms("held_expires_after", &text, MAX_HELD_EXPIRY_MS)? {
                // What a person must look at must be there long enough to be looked at.
                ms if ms < MINUTE_MS => {
                    return Err(invalid_field("held_expires_after", "is at least 1 minute; null: never"));
                }
                ms => Some(Some(ms)),
            },
        };
        let reply_to = self.reply_to.map(|word| {
            ReplyToPolicy::parse(&word).ok_or_else(|| invalid_field("reply_to", "is allow, flag or refuse"))
        });
        Ok(SettingsPatch {
            reply_to: reply_to.transpose()?,
            keyed: mode("content_guard.keyed", guard.keyed)?,
            keyless: mode("content_guard.keyless", guard.keyless)?,
            mcp: mode("content_guard.mcp", guard.mcp)?,
            notify: self
                .escalation_email
                .map(|notify| notify.map(|NotifySettingsBody { from, to }| EscalationNotification { from, to })),
            expire_ms,
        })
    }
}

/// Read the team's settings.
#[utoipa::path(get, path = "/v1/settings", operation_id = "read_settings", tag = "settings", responses((status = 200, description = "The settings", body = SettingsBody)))]
pub(crate) async fn read(State(app): State<App>, door: AuthedRequest) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let settings = app.engine.access.settings(&door.caller).await?;
    Ok(Json(SettingsBody::from(&*settings)).into_response())
}

/// Change the team's settings.
#[utoipa::path(patch, path = "/v1/settings", operation_id = "update_settings", tag = "settings", request_body = SettingsPatchBody,
    responses((status = 200, description = "The settings as they are now", body = SettingsBody)))]
pub(crate) async fn change(State(app): State<App>, door: AuthedRequest, body: RawBody) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Admin)?;
    let patch = body.parse::<SettingsPatchBody>()?.validate()?;
    let settings = app.engine.access.change_settings(&door.caller, patch).await?;
    Ok(Json(SettingsBody::from(&*settings)).into_response())
}

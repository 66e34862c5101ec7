//! How a team wants things done.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    conversation::likeness::Mode, message::ReplyToPolicy, problem::Problem, team::Scope, time::show_span,
};
use mailonce_engine::settings::{Notify, Settings, SettingsPatch};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Answer, App,
    door::{Door, RawBody},
    inboxes::{fault, span},
    wire::{given, given_object, object_or_null},
};

/// The longest that a held email may wait for a person when it is to expire.
const EXPIRE_MS: i64 = 30 * 86_400_000;
const MINUTE_MS: i64 = 60_000;

/// What to do about mails that look like one that was just sent: `off`, `flag` or `hold`.
#[derive(Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ContentGuardBody {
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
pub(super) struct NotifyBody {
    from: String,
    to: Vec<String>,
}

/// A team's settings.
#[derive(Serialize, ToSchema)]
pub(super) struct SettingsBody {
    content_guard: ContentGuardBody,
    notify: Option<NotifyBody>,
    /// After how long a held email that nobody decided about is rejected, such as `24h`; null: never.
    held_expires: Option<String>,
    /// What happens to answers that would go to another organization than the sender's, or to mail that failed
    /// authentication: `allow`, `flag` or `refuse`.
    reply_to: &'static str,
}

impl From<&Settings> for SettingsBody {
    fn from(settings: &Settings) -> Self {
        let word = |mode: Mode| Some(mode.word().to_owned());
        let notify = settings.notify.clone().map(|Notify { from, to }| NotifyBody { from, to });
        Self {
            content_guard: ContentGuardBody {
                keyed: word(settings.keyed),
                keyless: word(settings.keyless),
                mcp: word(settings.mcp),
            },
            notify,
            held_expires: settings.expire_ms.map(show_span),
            reply_to: settings.reply_to.word(),
        }
    }
}

/// What to change. Absent members stay; `null` takes away.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SettingsPatchBody {
    #[serde(default, deserialize_with = "object_or_null")]
    content_guard: Option<ContentGuardBody>,
    #[serde(default, deserialize_with = "given_object")]
    #[schema(value_type = Option<NotifyBody>)]
    notify: Option<Option<NotifyBody>>,
    /// A time such as `24h`, from 1 minute to 30 days.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    held_expires: Option<Option<String>>,
    /// `allow`, `flag` or `refuse`.
    #[serde(default)]
    reply_to: Option<String>,
}

impl SettingsPatchBody {
    fn read(self) -> Result<SettingsPatch, Problem> {
        let mode = |path: &str, word: Option<String>| {
            let read = |word: String| Mode::parse(&word).ok_or_else(|| fault(path, "is off, flag or hold"));
            word.map(read).transpose()
        };
        let guard = self.content_guard.unwrap_or_default();
        let expire_ms = match self.held_expires {
            None => None,
            Some(None) => Some(None),
            Some(Some(text)) => match span("held_expires", &text, EXPIRE_MS)? {
                // What a person must look at must be there long enough to be looked at.
                ms if ms < MINUTE_MS => return Err(fault("held_expires", "is at least 1 minute; null: never")),
                ms => Some(Some(ms)),
            },
        };
        let reply_to = self
            .reply_to
            .map(|word| ReplyToPolicy::parse(&word).ok_or_else(|| fault("reply_to", "is allow, flag or refuse")));
        Ok(SettingsPatch {
            reply_to: reply_to.transpose()?,
            keyed: mode("content_guard.keyed", guard.keyed)?,
            keyless: mode("content_guard.keyless", guard.keyless)?,
            mcp: mode("content_guard.mcp", guard.mcp)?,
            notify: self.notify.map(|notify| notify.map(|NotifyBody { from, to }| Notify { from, to })),
            expire_ms,
        })
    }
}

/// Read the team's settings.
#[utoipa::path(get, path = "/v1/settings", tag = "settings", responses((status = 200, description = "The settings", body = SettingsBody)))]
pub(super) async fn read(State(app): State<App>, door: Door) -> Answer {
    door.caller.need(Scope::Read)?;
    let settings = app.engine.settings(&door.caller).await?;
    Ok(Json(SettingsBody::from(&*settings)).into_response())
}

/// Change the team's settings.
#[utoipa::path(patch, path = "/v1/settings", tag = "settings", request_body = SettingsPatchBody,
    responses((status = 200, description = "The settings as they are now", body = SettingsBody)))]
pub(super) async fn change(State(app): State<App>, door: Door, body: RawBody) -> Answer {
    door.caller.need(Scope::Admin)?;
    let patch = body.parse::<SettingsPatchBody>()?.read()?;
    let settings = app.engine.change_settings(&door.caller, patch).await?;
    Ok(Json(SettingsBody::from(&*settings)).into_response())
}

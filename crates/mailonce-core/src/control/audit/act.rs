//! Acts: what the audit log says about a change.
//!
//! Every kind of change has an allow list. A value that is not on it is left out, and only the name of its field is
//! recorded. So new fields, free texts, addresses, content and secrets never enter the chain by accident.

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{NewAuditEntry, RecordedAct};
use crate::{
    access::{
        call_origin::{Alias, CallOrigin},
        connection::Connection,
        person::{PersonalAccess, PersonalAccessKind, SignInLink},
        team::{ApiKey, Team},
    },
    claims::{Claim, ClaimResolution},
    control::{
        erasure::Erasure,
        stop::{Stop, StopScope},
    },
    conversation::{
        approval_link::ApprovalLink,
        escalation::{Escalation, EscalationState},
    },
    events::endpoint::Endpoint,
    handoff::action::HandoffAction,
    id::{EmailId, TeamId},
    inbox::Inbox,
    outbound::template::Template,
    record::{Record, RecordKind},
    time::Time,
    ttl::Ttl,
};

/// The longest text of an allowed value, in characters.
const MAX_TEXT_CHARS: usize = 200;

/// A change that the audit log records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Act {
    /// The team in whose log it is. `None`: the team of the actor; for the system, every team.
    pub team: Option<TeamId>,
    action: String,
    about: String,
    /// The name of what was changed, stored outside of the chain.
    name: Option<String>,
    before: Option<Value>,
    after: Option<Value>,
    /// Whether workers do this without being asked. Then it is recorded only when somebody asked for it.
    is_routine: bool,
}

impl Act {
    /// An act, such as `team.created` about `team/ID`.
    pub fn new(team: Option<TeamId>, action: impl Into<String>, about: String) -> Self {
        Self { team, action: action.into(), about, name: None, before: None, after: None, is_routine: false }
    }

    fn named(self, name: &str) -> Self {
        // PostgreSQL text has no NUL.
        Self { name: Some(name.replace('\0', "\u{fffd}")), ..self }
    }

    fn with_after(self, after: Value) -> Self {
        Self { after: Some(without_empty(after)), ..self }
    }

    fn with_before(self, before: Value) -> Self {
        Self { before: Some(without_empty(before)), ..self }
    }

    /// The entry of this act when `origin` does it. `None` for routine work of a worker.
    pub fn recorded(&self, origin: Option<&CallOrigin>, now: Time) -> Option<RecordedAct> {
        if origin.is_none() && self.is_routine {
            return None;
        }
        let server = CallOrigin::of_system("server", now);
        let origin = origin.unwrap_or(&server);
        let (from, address) = origin.source();
        let name = self.name.iter().map(|name| Alias { id: self.about.clone(), name: name.clone() });
        let aliases = name.chain(address).collect();
        let entry = NewAuditEntry {
            at: now.max(origin.at),
            actor: origin.actor(),
            from,
            action: self.action.clone(),
            about: self.about.clone(),
            before: self.before.as_ref().map(Value::to_string),
            after: self.after.as_ref().map(Value::to_string),
        };
        Some(RecordedAct { entry, aliases })
    }

    /// Creating, changing or removing something whose fields are allowed by path, such as `list.type`.
    fn of_change(
        team: TeamId,
        (kind, id): (&str, String),
        allowed: &[&str],
        (before, after): (Option<Value>, Option<Value>),
    ) -> Self {
        let verb = match (&before, &after) {
            (None, _) => "created",
            (_, None) => "removed",
            _ => "changed",
        };
        let act = Self::new(Some(team), format!("{kind}.{verb}"), format!("{kind}/{id}"));
        let (before, after) = difference(kind, before.as_ref(), after.as_ref(), allowed);
        Self { before, after, ..act }
    }

    /// A change of a record. `None` for kinds that are no administration.
    pub fn of_record(before: Option<&Record>, after: Option<&Record>) -> Option<Self> {
        let record = after.or(before)?;
        match record.kind {
            RecordKind::Escalation => return Self::of_decision(before?, after?),
            RecordKind::Erasure => return Self::of_erasure(before, after?),
            RecordKind::SignInLink => return Self::of_sign_in_link(before, after),
            RecordKind::ApprovalLink => return Self::of_approval_link(before, after),
            RecordKind::Connection => return Self::of_ended_connection(before?, after?),
            RecordKind::ApiKeyName => {
                return Some(Self::new(Some(record.team), "api_key.renamed", format!("api_key/{}", record.name)));
            }
            _ => {}
        }
        let allowed = allowed_fields(record.kind)?;
        let json = |record: &Record| serde_json::from_str(&record.json).unwrap_or(Value::Null);
        let values = (before.map(json), after.map(json));
        let rerouted = |value: &Option<Value>| value.as_ref().map_or(Value::Null, |value| value["rerouted_at"].clone());
        if record.kind == RecordKind::Transport && rerouted(&values.0) == rerouted(&values.1) {
            return None; // The state of a circuit breaker.
        }
        let subject = (record.kind.as_str(), record.id.to_string());
        // The name of such a record contains more than the address or name, by which an erasure finds it.
        let field = match record.kind {
            RecordKind::ListEntry => Some("entry"),
            RecordKind::Person => Some("name"),
            _ => None,
        };
        let name = field.and_then(|field| json(record)[field].as_str().map(str::to_owned));
        let name = name.unwrap_or_else(|| record.name.clone());
        let mut act = Self::of_change(record.team, subject, allowed, values).named(&name);
        // A bounce suppresses an address, and domains are checked by a worker.
        act.is_routine = matches!(record.kind, RecordKind::Suppression | RecordKind::Domain | RecordKind::Source);
        // Settings exist before their first change, which creates their record.
        match record.kind {
            RecordKind::Transport => act.action = "transport.rerouted".into(),
            RecordKind::Settings => act.action = "settings.changed".into(),
            _ => {}
        }
        Some(act)
    }

    /// A person's decision about a question.
    fn of_decision(before: &Record, after: &Record) -> Option<Self> {
        let parse = |record: &Record| serde_json::from_str::<Escalation>(&record.json).ok();
        let (was, is) = (parse(before)?, parse(after)?);
        let decision = is.decision.as_ref().filter(|_| is.state == EscalationState::Resolved)?;
        if was.state != EscalationState::Open || decision.by.is_none() {
            return None;
        }
        let about = format!("escalation/{}", after.id);
        let subject = is.about.claim.map(|claim| claim.to_string());
        let decided = json!({
            "as": decision.decision, "reason": is.reason, "email": is.about.email, "claim": subject,
        });
        Some(Self::new(Some(after.team), "escalation.decided", about).with_after(decided))
    }

    /// Making a link that signs a person in. Its use is recorded as a new session.
    fn of_sign_in_link(before: Option<&Record>, after: Option<&Record>) -> Option<Self> {
        let (None, Some(record)) = (before, after) else { return None };
        let link = serde_json::from_str::<SignInLink>(&record.json).ok()?;
        let about = format!("person/{}", link.person);
        let act = Self::new(Some(record.team), "sign_in_link.created", about);
        Some(act.with_after(json!({ "expires_at": link.expires_at.to_string(), "loopback_only": link.loopback_only })))
    }

    /// Making a link by which somebody decides a question, and its early end. Those that workers make are routine.
    fn of_approval_link(before: Option<&Record>, after: Option<&Record>) -> Option<Self> {
        let parse = |record: &Record| serde_json::from_str::<ApprovalLink>(&record.json).ok();
        let (team, link) = (after?.team, parse(after?)?);
        let about = format!("escalation/{}", link.escalation);
        let for_whom = json!({ "for": link.addressee });
        let Some(before) = before else {
            let act = Self::new(Some(team), "approval_link.created", about).with_after(for_whom);
            return Some(Self { is_routine: true, ..act });
        };
        let is_withdrawn = link.withdrawn && !parse(before)?.withdrawn;
        is_withdrawn.then(|| Self::new(Some(team), "approval_link.withdrawn", about).with_before(for_whom))
    }

    /// The end of a connection. Its begin is recorded with its credential, and new tokens are no administration.
    fn of_ended_connection(before: &Record, after: &Record) -> Option<Self> {
        let parse = |record: &Record| serde_json::from_str::<Connection>(&record.json).ok();
        let (was, is) = (parse(before)?, parse(after)?);
        let end = is.ended.filter(|_| was.ended.is_none())?;
        let act = Self::new(Some(after.team), "connection.ended", format!("connection/{}", after.id));
        Some(act.named(&is.client_name).with_after(json!({ "person": is.person, "reason": end.reason })))
    }

    /// Requesting an erasure, and its end. `None` for its progress. The entry names the person by the alias alone.
    fn of_erasure(before: Option<&Record>, after: &Record) -> Option<Self> {
        let parse = |record: &Record| serde_json::from_str::<Erasure>(&record.json).ok();
        let is = parse(after)?;
        let was_running = before.and_then(parse).is_some_and(|was| was.is_running());
        let about = format!("erasure/{}", after.id);
        match (was_running, is.is_running()) {
            (false, true) => Some(Self::new(Some(after.team), "erasure.requested", about)),
            (true, false) => {
                Some(Self::new(Some(after.team), "erasure.done", about).with_after(json!({ "counts": is.counts })))
            }
            _ => None,
        }
    }

    /// Deleting a message or a thread.
    pub fn of_deletion(team: TeamId, kind: &str, id: uuid::Uuid) -> Self {
        let act = Self::new(Some(team), format!("{kind}.deleted"), format!("{kind}/{id}"));
        // An erasure has entries of its own.
        Self { is_routine: true, ..act }
    }

    /// Creating a team.
    pub fn of_new_team(team: &Team) -> Self {
        Self::new(Some(team.id), "team.created", format!("team/{}", team.id)).named(&team.name)
    }

    /// Changing whether a team requires idempotency keys.
    pub fn of_require_keys(before: bool, team: &Team) -> Self {
        let act = Self::new(Some(team.id), "team.changed", format!("team/{}", team.id)).named(&team.name);
        act.with_before(json!({ "require_keys": before })).with_after(json!({ "require_keys": team.require_keys }))
    }

    /// A person's consent to the access of a client.
    fn of_approved_connection(key: &ApiKey, access: &PersonalAccess) -> Self {
        let act = Self::new(Some(key.team), "connection.approved", format!("connection/{}", key.id));
        let restricted = !key.details.inboxes.is_empty();
        let values = json!({ "person": access.person, "scopes": key.details.scopes, "inboxes_restricted": restricted });
        act.named(&key.details.name).with_after(values)
    }

    /// Creating or revoking an API key; the begin or end of a person's session; consent to a connection.
    pub fn of_api_key(key: &ApiKey) -> Self {
        let verb = if key.revoked_at.is_some() { "revoked" } else { "created" };
        let details = &key.details;
        let restrictions = [
            ("senders", details.senders.is_empty()),
            ("inboxes", details.inboxes.is_empty()),
            ("allow_ips", details.allow_ips.is_empty()),
        ];
        let restrictions: Vec<&str> =
            restrictions.iter().filter(|(_, is_empty)| !is_empty).map(|(name, _)| *name).collect();
        let values = json!({
            "scopes": details.scopes, "rate_per_s": details.rate_per_s, "restricted_to": restrictions,
            "expires_at": details.expires_at.map(|at| at.to_string()),
        });
        if let Some(access) = &details.on_behalf_of {
            if access.kind == PersonalAccessKind::Connection {
                return Self::of_approved_connection(key, access);
            }
            let verb = if key.revoked_at.is_some() { "ended" } else { "began" };
            let act = format!("{}.{verb}", access.kind.as_str());
            return Self::new(Some(key.team), act, format!("person/{}", access.person));
        }
        let act = Self::new(Some(key.team), format!("api_key.{verb}"), format!("api_key/{}", key.id));
        let act = act.named(&details.name);
        if key.revoked_at.is_some() { act.with_before(values) } else { act.with_after(values) }
    }

    /// Creating or ending a stop.
    pub fn of_stop(verb: &str, stop: &Stop, rate_per_s: Option<u32>) -> Self {
        let scope = match &stop.scope {
            StopScope::Team(_) => "team".to_owned(),
            scope => scope.name(),
        };
        let values = json!({ "scope": scope, "mode": stop.mode, "rate_per_s": rate_per_s });
        Self::new(stop.scope.team(), format!("stop.{verb}"), format!("stop/{}", stop.id)).with_after(values)
    }

    /// Changing how long the key of an email is remembered.
    pub fn of_extended_key(team: TeamId, email: EmailId, ttl: Ttl) -> Self {
        let act = Self::new(Some(team), "key.extended", format!("email/{email}"));
        act.with_after(json!({ "ttl_ms": ttl.0 }))
    }

    /// Forgetting the key of an email.
    pub fn of_forgotten_key(team: TeamId, email: EmailId) -> Self {
        Self::new(Some(team), "key.forgotten", format!("email/{email}"))
    }

    /// A person's action on an email. `None` for the actions of workers.
    pub fn of_email_action(team: TeamId, email: EmailId, action: &HandoffAction) -> Option<Self> {
        let HandoffAction::Resolve { resolution, handoff, .. } = action else { return None };
        let act = Self::new(Some(team), "email.resolved", format!("email/{email}"));
        Some(act.with_after(json!({ "as": resolution, "handoff": handoff })))
    }

    /// A person's decision about an unknown claim.
    pub fn of_resolved_claim(claim: &Claim, resolution: ClaimResolution) -> Self {
        let act = Self::new(Some(claim.team), "claim.resolved", format!("claim/{}", claim.id));
        act.with_after(json!({ "as": resolution }))
    }

    /// Offering a dead letter of an outbox again.
    pub fn of_replayed_row(team: TeamId, outbox: &str, row: Uuid) -> Self {
        let act = Self::new(Some(team), "outbox.row_replayed", format!("outbox_row/{row}"));
        act.with_after(json!({ "outbox": outbox }))
    }

    /// Creating, changing or removing a template. The wording is not recorded, only which parts of it changed.
    pub fn of_template(before: Option<&Template>, after: Option<&Template>) -> Option<Self> {
        let template = after.or(before)?;
        let json = |template: &Template| {
            let mut json = serde_json::to_value(&template.source).unwrap_or(Value::Null);
            json["version"] = template.version.into();
            json
        };
        let values = (before.map(json), after.map(json));
        let subject = ("template", template.id.to_string());
        Some(Self::of_change(template.team, subject, &["version"], values).named(&template.name))
    }

    /// Removing an old version of a template.
    pub fn of_removed_version(template: &Template) -> Self {
        let about = format!("template/{}", template.id);
        let act = Self::new(Some(template.team), "template.version_removed", about).named(&template.name);
        act.with_before(json!({ "version": template.version }))
    }

    /// Creating, changing or removing an endpoint.
    pub fn of_endpoint(before: Option<&Endpoint>, after: Option<&Endpoint>) -> Option<Self> {
        const ALLOWED: [&str; 7] = ["state", "events", "rate_per_s", "version", "bodies", "tongue.dialect", "inboxes"];
        let endpoint = after.or(before)?;
        let json = |endpoint: &Endpoint| {
            let mut json = serde_json::to_value(&endpoint.config).unwrap_or(Value::Null);
            json["state"] = endpoint.state.as_str().into();
            without_times(json)
        };
        let values = (before.map(json), after.map(json));
        let subject = ("endpoint", endpoint.id.to_string());
        let act = Self::of_change(endpoint.team, subject, &ALLOWED, values);
        Some(act.named(host_of(&endpoint.config.url)))
    }

    /// Creating, changing or removing an inbox.
    pub fn of_inbox(before: Option<&Inbox>, after: Option<&Inbox>) -> Option<Self> {
        const ALLOWED: [&str; 5] =
            ["expires_at", "catch_all", "reply_to_likely_automatic", "mark_auto_submitted", "retention.raw_ms"];
        let inbox = after.or(before)?;
        let json = |inbox: &Inbox| {
            let mut json = serde_json::to_value(&inbox.settings).unwrap_or(Value::Null);
            json["address"] = inbox.address.as_str().into();
            without_times(json)
        };
        let values = (before.map(json), after.map(json));
        let subject = ("inbox", inbox.id.to_string());
        let act = Self::of_change(inbox.team, subject, &ALLOWED, values);
        Some(act.named(&inbox.address))
    }
}

/// The fields of a kind of record whose values are recorded. `None` for kinds that are no administration, or have entries
/// of another form.
fn allowed_fields(kind: RecordKind) -> Option<&'static [&'static str]> {
    Some(match kind {
        RecordKind::Domain => &[],
        RecordKind::Suppression => &["email", "source", "scope"],
        RecordKind::Source => &["kind", "transport", "accepts.events", "accepts.inbound", "live"],
        RecordKind::Rule => &["direction", "priority", "enabled", "together", "require_auth", "mode"],
        RecordKind::Settings => &[
            "keyed",
            "keyless",
            "mcp",
            "expire_ms",
            "reply_to",
            "time_zone",
            "audit_events",
            "retention.audit",
            "unsubscribe_tags",
            "retention.bodies",
            "retention.raw",
            "retention.events",
            "compat.keyless",
            "compat.window_ms",
        ],
        RecordKind::ListEntry => &["list.direction", "list.type", "require_auth"],
        RecordKind::Budget => {
            &["scope", "scope.inbox", "scope.api_key", "measure", "per", "limit", "at_limit", "enabled"]
        }
        RecordKind::Transport => &["rerouted_at", "rerouted_to"],
        RecordKind::Person => &["role", "operator", "signed_out_at"],
        RecordKind::NotificationTarget => &["kind"],
        RecordKind::Poll
        | RecordKind::Escalation
        | RecordKind::Draft
        | RecordKind::Labels
        | RecordKind::ApiKeyName
        | RecordKind::Erasure
        | RecordKind::SignInLink
        | RecordKind::ApprovalLink
        | RecordKind::Connection
        | RecordKind::Outbox => return None,
    })
}

/// Leaves out values that say nothing: null and empty lists.
fn without_empty(mut json: Value) -> Value {
    if let Some(fields) = json.as_object_mut() {
        fields.retain(|_, value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty()));
    }
    json
}

/// Leaves out when something was last changed, which the entry says itself.
fn without_times(mut json: Value) -> Value {
    if let Some(fields) = json.as_object_mut() {
        fields.remove("changed_at");
    }
    json
}

/// The host of a URL. Paths and queries often contain secrets.
fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit_once('@').map_or(authority, |(_, host)| host)
}

/// The name that the API has for a stored field. Stored names are older and never change; entries show the API's.
fn api_name<'a>(kind: &str, path: &'a str) -> &'a str {
    match (kind, path) {
        ("endpoint", "bodies") => "include_text",
        ("endpoint", "tongue" | "tongue.dialect") => "dialect",
        ("endpoint", "secrets") => "secret",
        ("list_entry", "list.direction") => "direction",
        ("list_entry", "list.type") => "type",
        ("rule", "together") => "match.operator",
        ("rule", "conditions") => "match.conditions",
        ("rule", "require_auth") => "match.require_auth",
        ("settings", "keyed") => "content_guard.keyed",
        ("settings", "keyless") => "content_guard.keyless",
        ("settings", "mcp") => "content_guard.mcp",
        ("settings", "notify") => "escalation_email",
        ("settings", "expire_ms") => "held_expires_after_ms",
        ("settings", "retention.audit") => "retention.audit_ms",
        ("settings", "retention.bodies") => "retention.bodies_ms",
        ("settings", "retention.raw") => "retention.raw_ms",
        ("settings", "unsubscribe_tags") => "unsubscribe.tags",
        ("source", "live") => "secret_count",
        ("source", "sealed") => "secret",
        (_, path) => path,
    }
}

/// The allowed values before and after a change, where they differ, by their names in the API. `changed` names the
/// other fields that differ.
fn difference(
    kind: &str,
    before: Option<&Value>,
    after: Option<&Value>,
    allowed: &[&str],
) -> (Option<Value>, Option<Value>) {
    let (mut old, mut new) = (Map::new(), Map::new());
    for path in allowed {
        let value = |json: Option<&Value>| json.and_then(|json| allowed_value(json, path));
        let (was, is) = (value(before), value(after));
        if was != is {
            let name = || api_name(kind, path).to_owned();
            old.extend(was.map(|value| (name(), value)));
            new.extend(is.map(|value| (name(), value)));
        }
    }
    if let (Some(before), Some(after)) = (before, after) {
        let hidden = hidden_changes(before, after, allowed);
        let names = hidden.iter().map(|field| api_name(kind, field).to_owned());
        let changed: Vec<String> = names.filter(|name| !new.contains_key(name)).collect();
        if !changed.is_empty() {
            new.insert("changed".into(), changed.into());
        }
    }
    (before.map(|_| old.into()), after.map(|_| new.into()))
}

/// The fields with values that differ and are not recorded.
fn hidden_changes(before: &Value, after: &Value, allowed: &[&str]) -> Vec<String> {
    let fields = |json: &Value| json.as_object().cloned().unwrap_or_default();
    let (before, after) = (fields(before), fields(after));
    let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let is_recorded = |name: &str| {
        let value = |fields: &Map<String, Value>| fields.get(name).is_none_or(|value| recordable(value).is_some());
        allowed.contains(&name) && value(&before) && value(&after)
    };
    let differs = |name: &&&String| before.get(**name) != after.get(**name) && !is_recorded(name);
    names.iter().filter(differs).map(ToString::to_string).collect()
}

/// The value at a path. Objects are never recorded whole.
fn allowed_value(json: &Value, path: &str) -> Option<Value> {
    recordable(path.split('.').try_fold(json, |value, name| value.get(name))?)
}

/// A single value or a list of them. Texts that are long, or may be an address, are not recorded.
fn recordable(value: &Value) -> Option<Value> {
    match value {
        Value::Null | Value::Object(_) => None,
        Value::String(text) => (text.chars().count() <= MAX_TEXT_CHARS && !text.contains('@')).then(|| value.clone()),
        Value::Array(items) => items.iter().map(recordable).collect::<Option<Vec<_>>>().map(Value::from),
        Value::Bool(_) | Value::Number(_) => Some(value.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::call_origin::ActorKind;
    use uuid::Uuid;

    const TEAM: TeamId = TeamId(Uuid::from_u128(7));

    fn record(kind: RecordKind, json: &Value) -> Record {
        let (id, name) = (Uuid::from_u128(9), "ada@canary.test".to_owned());
        Record { team: TEAM, kind, id, name, rev: 1, created_at: Time(1), json: json.to_string() }
    }

    fn entry_of(before: Option<Value>, after: Option<Value>, kind: RecordKind) -> NewAuditEntry {
        let (before, after) = (before.map(|json| record(kind, &json)), after.map(|json| record(kind, &json)));
        let act = Act::of_record(before.as_ref(), after.as_ref()).unwrap();
        let origin = CallOrigin::of_system("cli", Time(5));
        let recorded = act.recorded(Some(&origin), Time(3)).unwrap();
        assert_eq!(recorded.aliases, [Alias { id: recorded.entry.about.clone(), name: "ada@canary.test".into() }]);
        recorded.entry
    }

    #[test]
    fn only_allowed_values_that_differ_are_recorded() {
        let rule = |enabled: bool, value: &str| json!({ "enabled": enabled, "priority": 1, "conditions": [{ "values": [value] }], "novel": value });
        let entry = entry_of(Some(rule(true, "a")), Some(rule(false, "canary")), RecordKind::Rule);
        assert_eq!((entry.action.as_str(), entry.at), ("rule.changed", Time(5)));
        assert_eq!(entry.before.as_deref(), Some(r#"{"enabled":true}"#));
        assert_eq!(entry.after.as_deref(), Some(r#"{"changed":["match.conditions","novel"],"enabled":false}"#));
        let created = entry_of(None, Some(rule(true, "canary")), RecordKind::Rule);
        assert_eq!((created.before, created.after.unwrap()), (None, r#"{"enabled":true,"priority":1}"#.to_owned()));
        let removed = entry_of(Some(rule(true, "canary")), None, RecordKind::Rule);
        assert_eq!((removed.before.unwrap(), removed.after), (r#"{"enabled":true,"priority":1}"#.to_owned(), None));
    }

    #[test]
    fn values_are_recorded_under_the_names_of_the_api() {
        let rule = |operator: &str| json!({ "together": operator, "require_auth": operator == "any" });
        let entry = entry_of(Some(rule("all")), Some(rule("any")), RecordKind::Rule);
        assert_eq!(entry.before.as_deref(), Some(r#"{"match.operator":"all","match.require_auth":false}"#));
        assert_eq!(entry.after.as_deref(), Some(r#"{"match.operator":"any","match.require_auth":true}"#));
        let settings = |ms: i64| json!({ "keyless": "hold", "expire_ms": ms, "retention": { "audit": ms } });
        let entry = entry_of(Some(settings(1)), Some(settings(2)), RecordKind::Settings);
        assert_eq!(entry.before.as_deref(), Some(r#"{"held_expires_after_ms":1,"retention.audit_ms":1}"#));
        let expected = r#"{"changed":["retention"],"held_expires_after_ms":2,"retention.audit_ms":2}"#;
        assert_eq!(entry.after.as_deref(), Some(expected));
        let list = |direction: &str| json!({ "list": { "direction": direction, "type": "block" }, "entry": "ada@canary.test" });
        let entry = entry_of(None, Some(list("send")), RecordKind::ListEntry);
        assert_eq!(entry.after.as_deref(), Some(r#"{"direction":"send","type":"block"}"#));
        let endpoint = |dialect: &str| json!({ "bodies": true, "tongue": { "dialect": dialect } });
        let allowed = ["bodies", "tongue.dialect"];
        let (before, after) = (Some(endpoint("resend")), Some(endpoint("usesend")));
        let act = Act::of_change(TEAM, ("endpoint", "1".into()), &allowed, (before, after.clone()));
        assert_eq!(
            (act.before, act.after),
            (Some(json!({ "dialect": "resend" })), Some(json!({ "dialect": "usesend" })))
        );
        let act = Act::of_change(TEAM, ("endpoint", "1".into()), &allowed, (None, after));
        assert_eq!(act.after, Some(json!({ "dialect": "usesend", "include_text": true })));
    }

    #[test]
    fn an_address_in_an_allowed_field_is_not_recorded() {
        let budget = |scope: Value| json!({ "scope": scope, "limit": 3 });
        let entry = entry_of(None, Some(budget(json!({ "recipient": "ada@canary.test" }))), RecordKind::Budget);
        assert_eq!(entry.after.as_deref(), Some(r#"{"limit":3}"#));
        let entry = entry_of(None, Some(budget(json!({ "inbox": "0197" }))), RecordKind::Budget);
        assert_eq!(entry.after.as_deref(), Some(r#"{"limit":3,"scope.inbox":"0197"}"#));
        let entry = entry_of(Some(budget(json!("team"))), Some(budget(json!("ada@canary.test"))), RecordKind::Budget);
        assert_eq!(entry.after.as_deref(), Some(r#"{"changed":["scope"]}"#));
    }

    #[test]
    fn routine_work_is_recorded_only_when_somebody_asked() {
        let verified = record(RecordKind::Domain, &json!({ "verified_at": 1 }));
        let act = Act::of_record(Some(&record(RecordKind::Domain, &json!({}))), Some(&verified)).unwrap();
        assert_eq!(act.recorded(None, Time(3)), None);
        assert!(act.recorded(Some(&CallOrigin::of_system("cli", Time(5))), Time(3)).is_some());
        let rule = record(RecordKind::Rule, &json!({}));
        let recorded = Act::of_record(None, Some(&rule)).unwrap().recorded(None, Time(3)).unwrap();
        assert_eq!((recorded.entry.actor.kind, recorded.entry.from.as_str()), (ActorKind::System, "server"));
    }

    #[test]
    fn only_the_host_of_a_url_is_a_name() {
        for url in ["https://u:pw@hooks.test:8443/T0/secret", "https://hooks.test:8443?key=secret", "hooks.test:8443"] {
            assert_eq!(host_of(url), "hooks.test:8443");
        }
    }
}

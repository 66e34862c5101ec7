//! AgentMail's permissions of an API key, and the scopes that they stand for.
//!
//! A scope allows more than one permission. A key gets a scope only when every permission of the scope is granted, so
//! that no key may do more than was asked for.

use mailonce_core::{access::team::ApiKeyScope, problem::Problem};
use serde_json::{Map, Value};

/// The permissions of each scope.
const GROUPS: [(ApiKeyScope, &[&str]); 5] = [
    (ApiKeyScope::Read, &["inbox_read", "message_read", "draft_read"]),
    (ApiKeyScope::Send, &["message_send", "draft_create", "draft_update", "draft_delete", "draft_send"]),
    (ApiKeyScope::Reply, &["message_send", "message_update", "message_delete"]),
    (ApiKeyScope::Secrets, &["message_read", "label_unauthenticated_read"]),
    (
        ApiKeyScope::Admin,
        &[
            "inbox_create",
            "inbox_update",
            "inbox_delete",
            "webhook_read",
            "webhook_create",
            "webhook_update",
            "webhook_delete",
            "domain_read",
            "domain_create",
            "domain_update",
            "domain_delete",
            "list_entry_read",
            "list_entry_create",
            "list_entry_delete",
            "metrics_read",
            "api_key_read",
            "api_key_create",
            "api_key_update",
            "api_key_delete",
        ],
    ),
];

/// The scopes of a key with these permissions.
pub(super) fn to_scopes(permissions: &Map<String, Value>) -> Result<Vec<ApiKeyScope>, Problem> {
    let is_granted = |name: &str| permissions.get(name) == Some(&Value::Bool(true));
    let groups = GROUPS.iter().filter(|(_, names)| names.iter().all(|name| is_granted(name)));
    let scopes: Vec<ApiKeyScope> = groups.clone().map(|(scope, _)| *scope).collect();
    let is_covered = |name: &str| groups.clone().any(|(_, names)| names.contains(&name));
    for (name, value) in permissions {
        if !value.is_boolean() && !value.is_null() {
            return Err(Problem::invalid_field(format!("permissions.{name}"), "must be true or false"));
        }
        if is_granted(name) && !is_covered(name) {
            let field = format!("permissions.{name}");
            let together = GROUPS.iter().find(|(_, names)| names.contains(&name.as_str()));
            let text = match together {
                Some((_, names)) => format!("can be granted only together with {}", names.join(", ")),
                None => "does not exist in mailonce; leave it out".to_owned(),
            };
            return Err(Problem::invalid_field(field, text));
        }
    }
    if scopes.is_empty() {
        return Err(Problem::invalid_field("permissions", "grants nothing; leave it out for all permissions"));
    }
    Ok(scopes)
}

/// The permissions of a key with these scopes; `None` when it has all of them.
pub(super) fn to_json(scopes: &[ApiKeyScope]) -> Option<Value> {
    if GROUPS.iter().all(|(scope, _)| scopes.contains(scope)) {
        return None;
    }
    let granted = GROUPS.iter().filter(|(scope, _)| scopes.contains(scope)).flat_map(|(_, names)| names.iter());
    Some(Value::Object(granted.map(|name| ((*name).to_owned(), Value::Bool(true))).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scopes(names: &[&str]) -> Option<Vec<ApiKeyScope>> {
        to_scopes(&names.iter().map(|name| ((*name).to_owned(), Value::Bool(true))).collect()).ok()
    }

    #[test]
    fn no_key_may_do_more_than_was_asked_for() {
        assert_eq!(scopes(&["inbox_read", "message_read", "draft_read"]), Some(vec![ApiKeyScope::Read]));
        assert_eq!(scopes(&["message_read"]), None);
        assert_eq!(scopes(&["inbox_read", "message_read", "draft_read", "webhook_read"]), None);
        assert_eq!(scopes(&[]), None);
        assert_eq!(scopes(&["pod_create"]), None);
        for (scope, names) in GROUPS {
            assert!(scopes(names).is_none_or(|scopes| scopes.contains(&scope)));
        }
    }

    #[test]
    fn permissions_come_back_as_scopes() {
        let names: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let all = scopes(&names).unwrap_or_default();
        assert_eq!(all.len(), GROUPS.len());
        assert_eq!(to_json(&all), None);
        assert_eq!(to_json(&[ApiKeyScope::Read]).map(|value| value["message_read"].clone()), Some(true.into()));
    }
}

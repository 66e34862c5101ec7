//! The properties of the OpenAPI document: their names and their descriptions.

use serde_json::Value;
use std::collections::BTreeSet;

/// Properties whose name says everything, in every schema.
const SELF_EXPLANATORY: [&str; 5] = ["created_at", "enabled", "id", "name", "next_cursor"];

/// Properties that have no description yet, by schema. Describe one and remove it here; never add one.
const UNDESCRIBED: [(&str, &str); 52] = [
    ("ApiKeyBody", "allowed_senders expires_at inboxes rate_per_s revoked_at scopes"),
    ("AuditEntryBody", "at"),
    ("BasicAuthBody", "password username"),
    ("BudgetBody", "at_limit limit measure per rev"),
    ("BudgetPatchBody", "limit"),
    ("BudgetRoomBody", "limit remaining"),
    ("ChainLinkBody", "hash seq"),
    ("ClaimBody", "ended_at fence fingerprint key lease_expires_at rev"),
    ("ClaimReportBody", "at"),
    ("ClaimTokenBody", "token"),
    ("CompleteClaimBody", "token"),
    ("CreatedApiKeyBody", "api_key"),
    ("CreatedTeamBody", "api_key"),
    ("DomainBody", "checked_at rev verified_at"),
    ("EndpointBody", "description events inboxes rate_per_s rev url"),
    ("EndpointPatchBody", "description events inboxes include_text url"),
    ("EndpointTestBody", "latency_ms"),
    ("ErasureBody", "done_at reason requested_at"),
    ("EventBody", "at data type"),
    ("EventSubjectBody", "kind rev"),
    ("FailClaimBody", "token"),
    ("HandoffStatusBody", "ledger_time"),
    ("HeaderFieldBody", "value"),
    ("HealthBody", "status"),
    ("KeyBody", "forgotten_at key state ttl"),
    ("ListEntryBody", "reason"),
    ("NamedSecretBody", "value"),
    ("NoticeAttemptBody", "at latency_ms number"),
    ("NoticeBody", "endpoint rev settled_at type"),
    ("NotificationTargetBody", "kind"),
    ("NotifySettingsBody", "from to"),
    ("ParkedRowBody", "parked_at"),
    ("PersonBody", "address rev role"),
    ("PersonPatchBody", "role"),
    ("RenewClaimBody", "token"),
    ("RotateSourceBody", "allow_sha1 bearer_token secret sns_topics"),
    ("RuleBody", "direction priority rev"),
    ("RulePatchBody", "priority"),
    ("SignInLinkBody", "expires_at"),
    ("SourceBody", "has_secret kind rev rotated_at transport"),
    ("StatsBody", "since until"),
    ("StopBody", "mode reason"),
    ("SuppressionBody", "address rev"),
    ("TemplateBody", "html subject text"),
    ("TemplateErrorBody", "line message variable"),
    ("TemplatePatchBody", "html subject text"),
    ("TemplatePreviewBody", "html subject text version"),
    ("TemplateRefBody", "version"),
    ("TemplateVersionBody", "version"),
    ("ThreadEntryBody", "type"),
    ("ValidateBody", "html subject text"),
    ("WonClaimBody", "key lease_expires_at rev"),
];

/// Words that no property may be called: each had to be explained before it could be understood.
const RIDDLES: [&str; 39] = [
    "answered_by",
    "asked",
    "brought",
    "care",
    "chance",
    "desk",
    "door",
    "found",
    "given",
    "glimpse",
    "got",
    "ground",
    "herald",
    "house",
    "kept",
    "lapses",
    "link_domains",
    "newer",
    "owed",
    "parcel",
    "per_person",
    "place",
    "puzzling",
    "rests",
    "said",
    "spoken",
    "taken",
    "talk",
    "together",
    "told",
    "tongue",
    "trouble",
    "turn",
    "way",
    "ways",
    "weather",
    "whim",
    "whole",
    "wish",
];

/// Every property of every schema, as (schema, name, definition).
fn properties(document: &Value) -> Vec<(String, String, Value)> {
    let mut found = Vec::new();
    for (schema, definition) in document["components"]["schemas"].as_object().unwrap() {
        let parts = ["allOf", "oneOf"].iter().flat_map(|kind| definition[*kind].as_array().into_iter().flatten());
        for part in parts.chain([definition]) {
            let members = part["properties"].as_object().into_iter().flatten();
            found.extend(members.map(|(name, value)| (schema.clone(), name.clone(), value.clone())));
        }
    }
    found
}

#[test]
fn no_property_is_named_by_a_riddle() {
    let document = serde_json::to_value(mailonce::api::openapi()).unwrap();
    let all = properties(&document);
    assert!(all.len() > 1_000, "only {} properties were found", all.len());
    for (schema, name, _) in all {
        assert!(!RIDDLES.contains(&name.as_str()), "{schema}.{name}: choose a name of the field's vocabulary");
    }
}

#[test]
fn every_property_is_described_or_on_the_list_that_shrinks() {
    let document = serde_json::to_value(mailonce::api::openapi()).unwrap();
    let is_described = |value: &Value| value["description"].is_string() || value.to_string().contains("\"$ref\"");
    let undescribed: BTreeSet<(String, String)> = properties(&document)
        .into_iter()
        .filter(|(_, name, value)| !is_described(value) && !SELF_EXPLANATORY.contains(&name.as_str()))
        .map(|(schema, name, _)| (schema, name))
        .collect();
    let listed: BTreeSet<(String, String)> = UNDESCRIBED
        .iter()
        .flat_map(|(schema, names)| names.split(' ').map(|name| ((*schema).to_owned(), name.to_owned())))
        .collect();
    let new: Vec<_> = undescribed.difference(&listed).collect();
    assert!(new.is_empty(), "write a doc comment for the fields of these bodies: {new:?}");
    let stale: Vec<_> = listed.difference(&undescribed).collect();
    assert!(stale.is_empty(), "these have a description by now, so remove them from UNDESCRIBED: {stale:?}");
}

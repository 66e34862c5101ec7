//! The words that a field may have. They come from the enums of the core, so that the document cannot lag behind.

use mailonce_core::{
    access::{call_origin::ActorKind, person::Role, team::ApiKeyScope},
    claims::ClaimState,
    control::{
        budget::{AtLimit, BudgetMeasure},
        budget_period::BudgetPeriod,
        erasure::ErasureStage,
        list::{ListDirection, ListType},
        rule::{ConditionOperator, MatchMode, RuleActionKind, RuleDirection, RuleMode},
        stop::StopMode,
    },
    conversation::{
        approval_link::TargetKind,
        escalation::{Decision, EscalationReason, EscalationState},
    },
    events::{
        endpoint::{EndpointReason, EndpointState},
        event::EventKind,
        notice::{NoticeState, WebhookError},
    },
    handoff::{EvidenceFinding, EvidenceSource, HandoffState, Outcome, reply::AttemptPhase},
    inbound::{
        delivery::{DeliveryState, Intake},
        sender_auth::AuthResult,
    },
    inbox::{
        artifact::ArtifactKind,
        message::{MessageFlag, MessageState, ReplyToPolicy},
    },
    outbound::{
        content_guard::{ContentGuardMode, IdenticalMode},
        email::{Channel, EmailState, Guard, OnUnknown},
        policy_trace::{PolicyKind, PolicyVerdict},
        suppressed_call::SuppressedReason,
    },
    problem::Code,
    retry::RetryAdvice,
    search::SearchKind,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

use super::operations;
use crate::{
    dialects::{ENDPOINT_DIALECTS, EVENT_DIALECTS},
    engine_deps,
};

/// The providers of a source.
const PROVIDER_KINDS: [&str; 9] =
    ["postmark", "mailgun", "sendgrid", "ses", "resend", "usesend", "brevo", "nylas", "standard"];

/// A property, and the words that it may have.
struct FieldWords {
    schema: &'static str,
    property: &'static str,
    words: Vec<&'static str>,
    /// Whether later versions may have words that are not listed.
    may_grow: bool,
}

/// Adds the words to the schemas of their fields. A field that does not exist is an error of this table, and found by
/// a test.
pub(super) fn add_words(schemas: &mut Value) {
    for FieldWords { schema, property, words, may_grow } in all_words() {
        if let Some(found) = find_property(&mut schemas[schema], property) {
            if may_grow {
                set_known_words(found, &words);
            } else {
                set_words(found, &words);
            }
        }
    }
}

/// A property of a schema, also inside `allOf`.
pub(super) fn find_property<'a>(schema: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    let has_it = |part: &Value| part["properties"].get(name).is_some();
    if has_it(schema) {
        return schema["properties"].get_mut(name);
    }
    schema["allOf"].as_array_mut()?.iter_mut().find(|part| has_it(part))?["properties"].get_mut(name)
}

fn is_list(property: &Value) -> bool {
    property["type"] == "array" || property["type"] == json!(["array", "null"])
}

fn set_words(property: &mut Value, words: &[&str]) {
    if is_list(property) {
        property["items"]["enum"] = json!(words);
        return;
    }
    let is_nullable = property["type"].as_array().is_some_and(|types| types.contains(&json!("null")));
    let mut values: Vec<Value> = words.iter().map(|word| json!(word)).collect();
    values.extend(is_nullable.then_some(Value::Null));
    property["enum"] = Value::Array(values);
}

/// Lists words without excluding others. An `enum` would make generated clients fail at those of later versions.
fn set_known_words(property: &mut Value, words: &[&str]) {
    let text = if is_list(property) { &mut property["items"] } else { property };
    text["x-extensible-enum"] = json!(words);
}

fn all_words() -> Vec<FieldWords> {
    let mut all = mail_words();
    all.extend(control_words());
    all.extend(event_and_inbox_words());
    all.extend(growing_words());
    all
}

macro_rules! words {
    ($name:ty) => {
        <$name>::ALL.iter().map(|word| word.as_str()).collect()
    };
}

/// The words of the parameters of operations. `true` and `false` are words, too: parameters are text.
fn parameter_words() -> Vec<(&'static [&'static str], &'static str, Vec<&'static str>)> {
    let flag = || vec!["true", "false"];
    vec![
        (&["list_claims"], "state", words!(ClaimState)),
        (&["list_deliveries"], "state", words!(DeliveryState)),
        (&["list_emails"], "state", words!(EmailState)),
        (&["list_emails", "list_keys"], "duplicates", flag()),
        (&["list_escalations"], "reason", words!(EscalationReason)),
        (&["list_escalations"], "state", words!(EscalationState)),
        (&["list_list_entries", "add_list_entry", "remove_list_entry"], "direction", words!(ListDirection)),
        (&["list_list_entries", "add_list_entry", "remove_list_entry"], "type", words!(ListType)),
        (&["list_messages", "wait_for_message"], "has", words!(ArtifactKind)),
        (&["list_messages"], "state", words!(MessageState)),
        (&["list_notices"], "state", words!(NoticeState)),
        (&["list_notices"], "type", words!(EventKind)),
        (&["list_threads"], "handled", flag()),
        (&["read_message"], "view", vec!["min", "plain", "full"]),
        (&["search_mail"], "in", vec!["emails", "messages", "all"]),
    ]
}

/// Adds the words to the parameters. Returns how many of them have words.
pub(super) fn add_parameter_words(document: &mut Value) -> usize {
    let (table, mut count) = (parameter_words(), 0);
    for operation in operations(document) {
        let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
        for parameter in operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten() {
            let is_it =
                |(ids, name, _): &&(&[&str], &str, Vec<&str>)| ids.contains(&id.as_str()) && parameter["name"] == *name;
            if let Some((_, _, words)) = table.iter().find(is_it) {
                set_words(&mut parameter["schema"], words);
                count += 1;
            }
        }
    }
    count
}

macro_rules! fields {
    ($($schema:literal $property:literal = $words:expr;)+) => {
        vec![$(FieldWords { schema: $schema, property: $property, words: $words, may_grow: false },)+]
    };
}

fn mail_words() -> Vec<FieldWords> {
    fields! {
        "EmailBody" "state" = words!(EmailState);
        "SendReceiptBody" "state" = words!(EmailState);
        "SendBody" "on_unknown" = words!(OnUnknown);
        "SendBody" "on_mismatch" = vec!["reject", "first_wins"];
        "EmailDetailBody" "on_unknown" = words!(OnUnknown);
        "HandoffBody" "state" = words!(HandoffState);
        "AttemptBody" "outcome" = words!(Outcome);
        "AttemptBody" "phase" = words!(AttemptPhase);
        "EvidenceBody" "source" = words!(EvidenceSource);
        "EvidenceBody" "says" = words!(EvidenceFinding);
        "SuppressedCallBody" "channel" = words!(Channel);
        "TtlClass" "class" = vec!["scheduled"];
        "DedupeBody" "outcome" = vec!["first", "replayed"];
        "ResolveEmailBody" "as" = vec!["sent", "resend", "abandon"];
        "KeyBody" "bound_to" = vec!["email", "operation", "forgotten"];
        "KeyBody" "derivation" = vec!["intent", "header"];
        "KeyBody" "state" = words!(EmailState);
        "PolicyStepBody" "kind" = words!(PolicyKind);
        "PolicyStepBody" "verdict" = words!(PolicyVerdict);
        "SimulationBody" "would" = vec!["accept", "replay", "hold", "refuse"];
        "SearchHitBody" "kind" = words!(SearchKind);
        "ProblemBody" "retry" = words!(RetryAdvice);
        "TemplateErrorBody" "part" = vec!["subject", "text", "html"];
        "TransportBody" "kind" = engine_deps::KINDS.to_vec();
        "TransportBody" "breaker" = vec!["closed", "open", "half_open"];
        "TransportBody" "unknown_recovery" = vec!["key", "look_up", "none"];
    }
}

fn control_words() -> Vec<FieldWords> {
    fields! {
        "ActorBody" "kind" = words!(ActorKind);
        "BudgetBody" "at_limit" = words!(AtLimit);
        "BudgetBody" "measure" = words!(BudgetMeasure);
        "BudgetBody" "per" = words!(BudgetPeriod);
        "BudgetPatchBody" "at_limit" = words!(AtLimit);
        "NewBudgetBody" "at_limit" = words!(AtLimit);
        "NewBudgetBody" "measure" = words!(BudgetMeasure);
        "NewBudgetBody" "per" = words!(BudgetPeriod);
        "NewPersonBody" "role" = words!(Role);
        "PersonPatchBody" "role" = words!(Role);
        "PersonBody" "role" = words!(Role);
        "SessionBody" "scopes" = words!(ApiKeyScope);
        "ConnectionBody" "scopes" = words!(ApiKeyScope);
        "NewNotificationTargetBody" "kind" = words!(TargetKind);
        "NotificationTargetBody" "kind" = words!(TargetKind);
        "NewStopBody" "mode" = words!(StopMode);
        "StopBody" "mode" = words!(StopMode);
        "StopBody" "state" = vec!["in_force", "releasing"];
        "NewRuleBody" "direction" = words!(RuleDirection);
        "NewRuleBody" "mode" = words!(RuleMode);
        "RulePatchBody" "mode" = words!(RuleMode);
        "RuleBody" "direction" = words!(RuleDirection);
        "RuleBody" "mode" = words!(RuleMode);
        "RuleMatchBody" "operator" = words!(MatchMode);
        "ConditionBody" "operator" = words!(ConditionOperator);
        "RuleActionBody" "type" = words!(RuleActionKind);
        "RuleHitBody" "actions" = words!(RuleActionKind);
        "ListEntryBody" "direction" = words!(ListDirection);
        "ListEntryBody" "type" = words!(ListType);
        "ErasureBody" "stage" = words!(ErasureStage);
        "ErasureBody" "state" = vec!["running", "done"];
        "ParkedRowBody" "kind" = vec!["email", "claim"];
        "OutboxBody" "state" = vec!["draining", "stopped", "failing"];
        "ClaimBody" "state" = words!(ClaimState);
        "ClaimBody" "on_unknown" = vec!["hold", "retry"];
        "ClaimBody" "resolved_as" = vec!["done", "retry", "abandon"];
        "ClaimReportBody" "says" = vec!["done", "not_found"];
        "ComputedPeriodBody" "every" = vec!["day", "week", "month"];
        "WonClaimBody" "state" = vec!["begun", "claimed"];
        "NewClaimBody" "begin" = vec!["now", "later"];
        "NewClaimBody" "on_unknown" = vec!["hold", "retry"];
        "ClaimEvidenceBody" "says" = vec!["done", "not_found"];
        "ResolveClaimBody" "as" = vec!["done", "retry", "abandon"];
        "SuppressionBody" "scope" = vec!["all", "unsubscribable"];
        "ContentGuardBody" "keyed" = words!(ContentGuardMode);
        "ContentGuardBody" "keyless" = words!(ContentGuardMode);
        "CompatBody" "keyless" = words!(IdenticalMode);
        "CompatPatchBody" "keyless" = words!(IdenticalMode);
        "ContentGuardBody" "mcp" = words!(ContentGuardMode);
        "SettingsBody" "reply_to" = words!(ReplyToPolicy);
        "SettingsPatchBody" "reply_to" = words!(ReplyToPolicy);
        "EscalationBody" "reason" = words!(EscalationReason);
        "EscalationBody" "state" = words!(EscalationState);
        "EscalationBody" "allowed_decisions" = words!(Decision);
        "DecisionBody" "as" = words!(Decision);
        "DecisionRecordBody" "as" = words!(Decision);
        "ApiKeyBody" "scopes" = words!(ApiKeyScope);
        "NewApiKeyBody" "scopes" = words!(ApiKeyScope);
        "DomainBody" "state" = vec!["pending", "verified", "failed"];
        "DnsRecordBody" "purpose" = vec!["ownership", "dkim", "spf", "dmarc"];
        "DnsRecordBody" "status" = vec!["found", "missing", "different", "unknown"];
    }
}

/// What events are about, each once.
fn subject_types() -> Vec<&'static str> {
    let types: BTreeSet<&str> = EventKind::ALL.iter().map(|kind| kind.subject_type()).collect();
    types.into_iter().collect()
}

fn event_and_inbox_words() -> Vec<FieldWords> {
    fields! {
        "NoticeBody" "state" = words!(NoticeState);
        "EndpointBody" "state" = words!(EndpointState);
        "EndpointBody" "reason" = words!(EndpointReason);
        "EndpointBody" "dialect" = ENDPOINT_DIALECTS.to_vec();
        "NewEndpointBody" "dialect" = EVENT_DIALECTS.to_vec();
        "EndpointTestBody" "error" = words!(WebhookError);
        "NoticeAttemptBody" "error" = words!(WebhookError);
        "ClockBody" "confirmed_by" = vec!["operator", "kernel", "database", "boot_clock"];
        "HealthBody" "status" = vec!["ok", "ready"];
        "RecoverBody" "include" = vec!["failed", "all"];
        "ArtifactBody" "type" = words!(ArtifactKind);
        "ConsumeMatchBody" "type" = words!(ArtifactKind);
        "MessageBody" "has" = words!(ArtifactKind);
        "MessageBody" "flags" = words!(MessageFlag);
        "MessageBody" "state" = words!(MessageState);
        "MessageBody" "own_reason" = vec!["address", "loop_mark", "message_id"];
        "ReplyTargetBody" "flags" = vec!["other_domain", "auth_failed"];
        "AuthBody" "spf" = words!(AuthResult);
        "AuthBody" "dkim" = words!(AuthResult);
        "AuthBody" "dmarc" = words!(AuthResult);
        "AuthBody" "verdict" = vec!["pass", "fail", "none", "temperror"];
        "DeliveryBody" "intake" = words!(Intake);
        "DeliveryBody" "state" = words!(DeliveryState);
        "LinkBody" "verdict" = vec!["allowed", "suspicious", "blocked"];
        "RenderedMessageBody" "view" = vec!["min", "plain", "full", "gone"];
        "SourceBody" "accepts" = vec!["events", "inbound"];
        "SourceBody" "kind" = PROVIDER_KINDS.to_vec();
        "NewSourceBody" "accepts" = vec!["events", "inbound"];
        "NewSourceBody" "kind" = PROVIDER_KINDS.to_vec();
        "HandoffStatusBody" "state" = vec!["running", "paused"];
    }
}

/// What answers say about the cause or kind of something. It grows with what mailonce can do, and a client that does not
/// know a word can go on. States and decisions are not among them: a client must handle each.
fn growing_words() -> Vec<FieldWords> {
    let fields = fields! {
        "ProblemBody" "code" = words!(Code);
        "EmailBody" "guard" = words!(Guard);
        "EmailBody" "holds" = words!(Guard);
        "SendReceiptBody" "guard" = words!(Guard);
        "SendReceiptBody" "holds" = words!(Guard);
        "SuppressedCallBody" "reason" = words!(SuppressedReason);
        "EventBody" "type" = words!(EventKind);
        "EventSubjectBody" "kind" = subject_types();
        "NoticeBody" "type" = words!(EventKind);
    };
    fields.into_iter().map(|field| FieldWords { may_grow: true, ..field }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_of_the_table_exists() {
        let expected: usize = parameter_words().iter().map(|(ids, ..)| ids.len()).sum();
        assert_eq!(add_parameter_words(&mut crate::api::openapi::document().clone()), expected);
    }

    #[test]
    fn a_problem_lists_its_codes_and_allows_others() {
        let mut schemas = crate::api::openapi::document()["components"]["schemas"].clone();
        let code = find_property(&mut schemas["ProblemBody"], "code").unwrap();
        assert!(code.get("enum").is_none());
        let listed = code["x-extensible-enum"].as_array().unwrap();
        assert!(listed.len() == Code::ALL.len() && listed.contains(&json!("key_mismatch")), "{listed:?}");
    }

    #[test]
    fn what_may_grow_is_listed_without_excluding_others() {
        let mut schemas = crate::api::openapi::document()["components"]["schemas"].clone();
        for FieldWords { schema, property, words, may_grow } in all_words() {
            let found = find_property(&mut schemas[schema], property).unwrap();
            let text = if is_list(found) { &found["items"] } else { &*found };
            let (member, other) = if may_grow { ("x-extensible-enum", "enum") } else { ("enum", "x-extensible-enum") };
            let listed = text[member].as_array().unwrap_or_else(|| panic!("{schema} {property} has no {member}"));
            assert!(words.iter().all(|word| listed.contains(&json!(word))), "{schema} {property}: {text}");
            assert!(text.get(other).is_none(), "{schema} {property}: {text}");
        }
        let growing: Vec<_> = growing_words().iter().map(|field| (field.schema, field.property)).collect();
        for (schema, property) in [
            ("EventBody", "type"),
            ("NoticeBody", "type"),
            ("EmailBody", "guard"),
            ("SendReceiptBody", "guard"),
            ("SuppressedCallBody", "reason"),
        ] {
            assert!(growing.contains(&(schema, property)), "{schema} {property}");
        }
        // Whoever switches over states knows that there are no others.
        assert!(find_property(&mut schemas["EmailBody"], "state").unwrap()["enum"].is_array());
    }

    #[test]
    fn every_field_of_the_table_exists_and_holds_text() {
        let mut schemas = crate::api::openapi::document()["components"]["schemas"].clone();
        for FieldWords { schema, property, words, .. } in all_words() {
            let found = find_property(&mut schemas[schema], property);
            let found = found.unwrap_or_else(|| panic!("{schema} has no property {property}"));
            let text = if is_list(found) { &found["items"] } else { &*found };
            let is_text = text["type"] == "string" || text["type"] == json!(["string", "null"]);
            assert!(is_text && !words.is_empty(), "{schema} {property}: {text}");
        }
    }
}

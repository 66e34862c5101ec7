//! The words that a field may have. They come from the enums of the core, so that the document cannot lag behind.

use mailonce_core::{
    access::{call_origin::ActorKind, person::Role, team::ApiKeyScope},
    claims::ClaimState,
    control::{
        budget::{AtLimit, BudgetMeasure},
        budget_period::BudgetPeriod,
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
        notice::NoticeState,
    },
    handoff::{EvidenceFinding, EvidenceSource, HandoffState, Outcome, reply::AttemptPhase},
    inbound::delivery::{DeliveryState, Intake},
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
    retry::RetryAdvice,
    search::SearchKind,
};
use serde_json::{Value, json};

/// A property, and the words that it may have.
struct FieldWords {
    schema: &'static str,
    property: &'static str,
    words: Vec<&'static str>,
}

/// Adds the words to the schemas of their fields. A field that does not exist is an error of this table, and found by
/// a test.
pub(super) fn add_words(schemas: &mut Value) {
    for FieldWords { schema, property, words } in all_words() {
        if let Some(found) = find_property(&mut schemas[schema], property) {
            set_words(found, &words);
        }
    }
}

fn find_property<'a>(schema: &'a mut Value, name: &str) -> Option<&'a mut Value> {
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

fn all_words() -> Vec<FieldWords> {
    let mut all = mail_words();
    all.extend(control_words());
    all.extend(event_and_inbox_words());
    all
}

macro_rules! fields {
    ($($schema:literal $property:literal = $words:expr;)+) => {
        vec![$(FieldWords { schema: $schema, property: $property, words: $words },)+]
    };
}

macro_rules! words {
    ($name:ty) => {
        <$name>::ALL.iter().map(|word| word.as_str()).collect()
    };
}

fn mail_words() -> Vec<FieldWords> {
    fields! {
        "EmailBody" "state" = words!(EmailState);
        "EmailBody" "guard" = words!(Guard);
        "SendReceiptBody" "state" = words!(EmailState);
        "SendReceiptBody" "guard" = words!(Guard);
        "SendBody" "on_unknown" = words!(OnUnknown);
        "SendBody" "on_mismatch" = vec!["reject", "first_wins"];
        "EmailDetailBody" "on_unknown" = words!(OnUnknown);
        "HandoffBody" "state" = words!(HandoffState);
        "AttemptBody" "outcome" = words!(Outcome);
        "AttemptBody" "phase" = words!(AttemptPhase);
        "EvidenceBody" "source" = words!(EvidenceSource);
        "EvidenceBody" "says" = words!(EvidenceFinding);
        "SuppressedCallBody" "channel" = words!(Channel);
        "SuppressedCallBody" "reason" = words!(SuppressedReason);
        "DedupeBody" "outcome" = vec!["first", "replayed"];
        "ResolveEmailBody" "as" = vec!["sent", "resend", "abandon"];
        "KeyBody" "bound_to" = vec!["email", "operation", "forgotten"];
        "KeyBody" "derivation" = vec!["intent", "header"];
        "PolicyStepBody" "kind" = words!(PolicyKind);
        "PolicyStepBody" "verdict" = words!(PolicyVerdict);
        "SimulationBody" "would" = vec!["accept", "replay", "hold", "refuse"];
        "SearchHitBody" "kind" = words!(SearchKind);
        "ProblemBody" "retry" = words!(RetryAdvice);
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
        "ErasureBody" "state" = vec!["running", "done"];
        "OutboxBody" "state" = vec!["draining", "stopped", "failing"];
        "ClaimBody" "state" = words!(ClaimState);
        "ClaimBody" "on_unknown" = vec!["hold", "retry"];
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
        "DecisionBody" "as" = words!(Decision);
        "DecisionRecordBody" "as" = words!(Decision);
        "ApiKeyBody" "scopes" = words!(ApiKeyScope);
        "NewApiKeyBody" "scopes" = words!(ApiKeyScope);
        "DomainBody" "state" = vec!["pending", "verified", "failed"];
        "DnsRecordBody" "purpose" = vec!["ownership", "dkim", "spf", "dmarc"];
        "DnsRecordBody" "status" = vec!["found", "missing", "different", "unknown"];
    }
}

fn event_and_inbox_words() -> Vec<FieldWords> {
    fields! {
        "EventBody" "type" = words!(EventKind);
        "NoticeBody" "type" = words!(EventKind);
        "NoticeBody" "state" = words!(NoticeState);
        "EndpointBody" "state" = words!(EndpointState);
        "EndpointBody" "reason" = words!(EndpointReason);
        "NewEndpointBody" "dialect" = vec!["resend", "usesend"];
        "RecoverBody" "include" = vec!["failed", "all"];
        "ArtifactBody" "type" = words!(ArtifactKind);
        "ConsumeMatchBody" "type" = words!(ArtifactKind);
        "MessageBody" "has" = words!(ArtifactKind);
        "MessageBody" "flags" = words!(MessageFlag);
        "MessageBody" "state" = words!(MessageState);
        "MessageBody" "own_reason" = vec!["address", "loop_mark", "message_id"];
        "ReplyTargetBody" "flags" = vec!["other_domain", "auth_failed"];
        "AuthBody" "verdict" = vec!["pass", "fail", "none", "temperror"];
        "DeliveryBody" "intake" = words!(Intake);
        "DeliveryBody" "state" = words!(DeliveryState);
        "LinkBody" "verdict" = vec!["allowed", "suspicious", "blocked"];
        "SourceBody" "accepts" = vec!["events", "inbound"];
        "HandoffStatusBody" "state" = vec!["running", "paused"];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_the_table_exists_and_holds_text() {
        let mut schemas = crate::api::openapi::document()["components"]["schemas"].clone();
        for FieldWords { schema, property, words } in all_words() {
            let found = find_property(&mut schemas[schema], property);
            let found = found.unwrap_or_else(|| panic!("{schema} has no property {property}"));
            let text = if is_list(found) { &found["items"] } else { &*found };
            let is_text = text["type"] == "string" || text["type"] == json!(["string", "null"]);
            assert!(is_text && !words.is_empty(), "{schema} {property}: {text}");
        }
    }
}

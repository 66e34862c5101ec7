//! The policy trace of an email on the wire.

use mailonce_core::outbound::policy_trace::PolicyStep;
use serde::Serialize;
use utoipa::ToSchema;

/// What one check decided about an email.
#[derive(Serialize, ToSchema)]
pub(crate) struct PolicyStepBody {
    /// Name of the rule or budget, or of the check: `request sender stops suppressions lists overlaps looks_duplicate
    /// cap`.
    name: String,
    /// `request sender stop suppression list rule budget guard`
    kind: &'static str,
    /// `pass hold refuse flag observe`; `observe`: the rule only records what it would have done.
    verdict: &'static str,
    /// Reason, in words.
    why: String,
    /// Id of the rule or budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
}

impl From<PolicyStep> for PolicyStepBody {
    fn from(step: PolicyStep) -> Self {
        Self {
            name: step.name,
            kind: step.kind.as_str(),
            verdict: step.verdict.as_str(),
            why: step.reason,
            id: step.id.map(|id| id.to_string()),
        }
    }
}

/// The wire form of a trace.
pub(crate) fn policy_body(steps: Vec<PolicyStep>) -> Vec<PolicyStepBody> {
    steps.into_iter().map(PolicyStepBody::from).collect()
}

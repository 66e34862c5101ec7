//! Policy traces: collects what each check decides about an email before it is accepted, and shows it later.

use crate::{access::caller::Caller, control::Budgets};
use mailonce_core::{
    control::{
        budget::Charge,
        rule::{Rule, RuleActionKind, RuleDirection, RuleEvaluation, RuleMatch, RuleMode},
    },
    id::TeamId,
    outbound::{
        email::Email,
        policy_trace::{PolicyKind, PolicyStep, PolicyTrace, PolicyVerdict},
    },
    problem::Problem,
};
use serde_json::json;
use std::collections::BTreeSet;

/// What each check decided about an email, as far as the caller may see it. Empty if it went through no checks.
pub fn decided_steps(caller: &Caller, email: &Email) -> Vec<PolicyStep> {
    email.head.policy.as_ref().map(|trace| trace.complete(caller.may_see_rules())).unwrap_or_default()
}

/// Adds to a refusal what each check decided, as far as the caller may see it. A check that could not be made decided
/// nothing.
pub(crate) fn problem_with_steps(caller: &Caller, problem: Problem, trace: &PolicyTrace) -> Problem {
    if problem.code.status() >= 500 {
        return problem;
    }
    problem.with_extension("policy", json!(trace.complete(caller.may_see_rules())))
}

/// Records the refusal of a check, and returns its result. A check that could not be made decided nothing.
pub(crate) fn trace_refusal<T>(
    trace: &mut PolicyTrace,
    kind: PolicyKind,
    name: &str,
    result: Result<T, Problem>,
) -> Result<T, Problem> {
    if let Err(problem) = &result
        && problem.code.status() < 500
    {
        trace.record(PolicyStep::new(kind, name, PolicyVerdict::Refuse, problem.detail.clone()));
    }
    result
}

/// The steps of the rules that were asked about an email. `has_new_recipient`: whether the team never mailed one of the
/// recipients.
pub(crate) fn rule_steps(rules: &[Rule], evaluated: &RuleEvaluation, has_new_recipient: bool) -> Vec<PolicyStep> {
    let is_asked = |rule: &&Rule| rule.definition.enabled && rule.definition.direction == RuleDirection::Outbound;
    let find = |hits: &[RuleMatch], rule: &Rule| hits.iter().any(|hit| hit.id == rule.id);
    let step = |rule: &Rule| {
        let is_match = find(&evaluated.matched, rule) || find(&evaluated.observed, rule);
        let consequence = if is_match { rule_consequence(rule, has_new_recipient) } else { None };
        let (verdict, why) = match consequence {
            None if is_match => (PolicyVerdict::Pass, "it matched, but no recipient is new".to_owned()),
            None => (PolicyVerdict::Pass, "it did not match".to_owned()),
            Some((_, effect)) if rule.definition.mode == RuleMode::Observe => {
                (PolicyVerdict::Observe, format!("it matched and would have {effect}"))
            }
            Some((verdict, effect)) => (verdict, format!("it matched and {effect}")),
        };
        PolicyStep { id: Some(rule.id), ..PolicyStep::new(PolicyKind::Rule, &rule.name, verdict, why) }
    };
    rules.iter().filter(is_asked).take(evaluated.evaluated_count).map(step).collect()
}

/// What a rule does to an email that matches; `None` if that is nothing.
fn rule_consequence(rule: &Rule, has_new_recipient: bool) -> Option<(PolicyVerdict, &'static str)> {
    let has = |kind| rule.definition.actions.iter().any(|action| action.kind == kind);
    if has(RuleActionKind::Block) {
        return Some((PolicyVerdict::Refuse, "refused the email"));
    }
    if has(RuleActionKind::Approve) {
        return Some((PolicyVerdict::Hold, "held the email for approval"));
    }
    let holds = has(RuleActionKind::ApproveNewRecipients) && has_new_recipient;
    holds.then_some((PolicyVerdict::Hold, "held the email for approval, because a recipient is new"))
}

impl Budgets {
    /// Adds a step for each budget that an email counts against. The transaction that accepts the email decides whether
    /// they have room.
    pub(crate) async fn trace_budgets(&self, team: TeamId, charges: &[Charge], trace: &mut PolicyTrace) {
        let mut traced = BTreeSet::new();
        for charge in charges.iter().filter(|charge| traced.insert(charge.budget)) {
            let name = self.budget_name(team, charge.budget).await;
            let why = format!("this email counts {} of {}", charge.amount, charge.limit);
            let step = PolicyStep::new(PolicyKind::Budget, &name, PolicyVerdict::Pass, why);
            trace.record(PolicyStep { id: Some(charge.budget), ..step });
        }
    }
}

//! The policy trace of an email: what each check, list, rule, budget and guard decided when the email was accepted.
//!
//! Most emails pass the checks that every email goes through, and nothing else looks at them. Those passes are not
//! stored: [`PolicyTrace::complete`] adds them.

use crate::{
    outbound::{email::Guard, holds::Holds},
    string_enum::string_enum,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// How many rules that did not match are listed by name. A team may have many more.
const LISTED_RULES: usize = 20;

string_enum! {
    /// What made a step of a trace, in the order in which they decide.
    PolicyKind {
        /// The team's requirements for a request, such as an idempotency key.
        Request = "request",
        /// Whether the team and the API key may use the sender.
        Sender = "sender",
        /// The stops.
        Stop = "stop",
        /// The suppressed addresses.
        Suppression = "suppression",
        /// The allow and block lists.
        List = "list",
        /// A rule.
        Rule = "rule",
        /// A budget.
        Budget = "budget",
        /// A guard against a second email or too many replies.
        Guard = "guard",
    }
}

string_enum! {
    /// What a step decided.
    PolicyVerdict {
        /// Nothing against the email.
        Pass = "pass",
        /// The email is held.
        Hold = "hold",
        /// The email is refused.
        Refuse = "refuse",
        /// The email is accepted and flagged. A stop for which it waits flags it too.
        Flag = "flag",
        /// A rule in the mode `observe` matched, and nothing happened.
        Observe = "observe",
    }
}

/// One step of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyStep {
    /// The name of the rule or budget, or of the check.
    pub name: String,
    /// What made the decision.
    pub kind: PolicyKind,
    /// The decision.
    pub verdict: PolicyVerdict,
    /// The reason, in words.
    #[serde(rename = "why")]
    pub reason: String,
    /// The rule or budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
}

impl PolicyStep {
    /// A step of a check or guard that every email goes through.
    pub fn new(kind: PolicyKind, name: &str, verdict: PolicyVerdict, why: impl Into<String>) -> Self {
        Self { name: name.to_owned(), kind, verdict, reason: why.into(), id: None }
    }
}

/// The checks that every email goes through, with what a pass means.
const CHECKS: &[(PolicyKind, &str, &str)] = &[
    (PolicyKind::Sender, "sender", "the team and the API key may send from this address"),
    (PolicyKind::Stop, "stops", "no stop refuses it"),
    (PolicyKind::Suppression, "suppressions", "no recipient is suppressed"),
    (PolicyKind::List, "lists", "no list refuses a recipient"),
    (PolicyKind::Guard, "overlaps", "the same intent goes to none of these recipients yet"),
    (PolicyKind::Guard, "looks_duplicate", "no recent email between the same people is alike"),
];

/// What was decided about an email, except for passes of the checks that every email goes through.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PolicyTrace(Vec<PolicyStep>);

impl PolicyTrace {
    /// Adds a step. Another step of the same kind, name and id is replaced.
    pub fn record(&mut self, step: PolicyStep) {
        let is_same = |other: &&mut PolicyStep| (other.kind, &other.name, other.id) == (step.kind, &step.name, step.id);
        match self.0.iter_mut().find(is_same) {
            Some(other) => *other = step,
            None => self.0.push(step),
        }
    }

    /// Adds the rules that were asked, in order. Of those that passed only the first are listed by name.
    pub fn record_rules(&mut self, steps: Vec<PolicyStep>) {
        let (mut listed, mut others) = (0, 0);
        for step in steps {
            let passed = step.verdict == PolicyVerdict::Pass;
            if passed && listed == LISTED_RULES {
                others += 1;
                continue;
            }
            listed += usize::from(passed);
            self.0.push(step);
        }
        if others > 0 {
            let why = format!("{others} more rules did not match");
            self.0.push(PolicyStep::new(PolicyKind::Rule, "other rules", PolicyVerdict::Pass, why));
        }
    }

    /// Adds what the accepting transaction decided: the steps of budgets without room, the guards that hold the email,
    /// and the guard that flags it, if one does.
    pub fn record_decision(
        &mut self,
        exceeded_budgets: impl IntoIterator<Item = PolicyStep>,
        holds: Holds,
        flagged_by: Option<Guard>,
    ) {
        for step in exceeded_budgets {
            self.record_budget(step);
        }
        let has_approval_rule =
            self.0.iter().any(|step| step.kind == PolicyKind::Rule && step.verdict == PolicyVerdict::Hold);
        // A rule and a budget have steps of their own.
        let is_recorded = |guard: &Guard| *guard == Guard::Budget || (*guard == Guard::Approval && has_approval_rule);
        let held = holds.iter().filter(|guard| !is_recorded(guard)).map(|guard| (guard, PolicyVerdict::Hold));
        let flagged = flagged_by.filter(|guard| !is_recorded(guard)).map(|guard| (guard, PolicyVerdict::Flag));
        // A guard that flagged the email before the transaction may hold it inside.
        for (guard, verdict) in flagged.into_iter().chain(held) {
            self.record(PolicyStep::new(PolicyKind::Guard, guard.as_str(), verdict, guard_reason(guard)));
        }
    }

    /// Records that a budget has no room. A rule may have recorded the same budget under its name.
    pub fn record_budget(&mut self, exceeded: PolicyStep) {
        match self.0.iter_mut().find(|step| step.id == exceeded.id) {
            Some(step) => (step.verdict, step.reason) = (exceeded.verdict, exceeded.reason),
            None => self.0.push(exceeded),
        }
    }

    /// Whether a check refused the email.
    pub fn refuses(&self) -> bool {
        self.0.iter().any(|step| step.verdict == PolicyVerdict::Refuse)
    }

    /// All steps in order, with the checks that passed. Nothing is asked after a refusal. `shows_rules`: whether the
    /// reader may see the rules of the team; others see only those that decided something.
    pub fn complete(&self, shows_rules: bool) -> Vec<PolicyStep> {
        let mut steps = Vec::with_capacity(self.0.len() + CHECKS.len());
        for kind in PolicyKind::ALL {
            let of_kind = || self.0.iter().filter(|step| step.kind == *kind);
            let has_step = |name: &str| of_kind().any(|step| step.name == name);
            // The guards of a reply are asked before those that every email goes through.
            let is_refused = of_kind().any(|step| step.verdict == PolicyVerdict::Refuse);
            let passed = CHECKS.iter().filter(|(of, name, _)| of == kind && !is_refused && !has_step(name));
            steps.extend(passed.map(|(kind, name, why)| PolicyStep::new(*kind, name, PolicyVerdict::Pass, *why)));
            let is_shown = |step: &&PolicyStep| {
                let is_silent = matches!(step.verdict, PolicyVerdict::Pass | PolicyVerdict::Observe);
                shows_rules || step.kind != PolicyKind::Rule || !is_silent
            };
            steps.extend(of_kind().filter(is_shown).cloned());
            if is_refused {
                break;
            }
        }
        steps
    }
}

fn guard_reason(guard: Guard) -> &'static str {
    match guard {
        Guard::Approval => "a person must approve it",
        Guard::Cap => "the limit of replies is reached",
        Guard::Overlaps => "the same intent already goes to some of these recipients",
        Guard::LooksDuplicate => "it looks like a recent email between the same people",
        Guard::ReplyTo => "the message asks for answers to another address",
        _ => "the guard decided so",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(trace: &PolicyTrace) -> Vec<(String, PolicyVerdict)> {
        trace.complete(true).into_iter().map(|step| (step.name, step.verdict)).collect()
    }

    #[test]
    fn an_empty_trace_shows_that_every_check_passed() {
        let names = names(&PolicyTrace::default());
        assert_eq!(names.len(), CHECKS.len());
        assert!(names.iter().all(|(_, verdict)| *verdict == PolicyVerdict::Pass));
    }

    #[test]
    fn nothing_is_shown_after_a_refusal() {
        let mut trace = PolicyTrace::default();
        trace.record(PolicyStep::new(PolicyKind::Suppression, "suppressions", PolicyVerdict::Refuse, "bounced"));
        let names: Vec<_> = names(&trace).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["sender", "stops", "suppressions"]);
    }

    #[test]
    fn a_refusal_by_a_guard_of_replies_shows_no_pass_of_later_guards() {
        let mut trace = PolicyTrace::default();
        trace.record(PolicyStep::new(PolicyKind::Guard, "leased", PolicyVerdict::Refuse, "another agent replies"));
        let names: Vec<_> = names(&trace).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["sender", "stops", "suppressions", "lists", "leased"]);
    }

    #[test]
    fn rules_that_passed_are_counted_beyond_the_first_twenty() {
        let rule = |n: u128, verdict| PolicyStep {
            id: Some(Uuid::from_u128(n)),
            ..PolicyStep::new(PolicyKind::Rule, &format!("rule {n}"), verdict, "")
        };
        let mut trace = PolicyTrace::default();
        let mut rules: Vec<_> = (0..30).map(|n| rule(n, PolicyVerdict::Pass)).collect();
        rules.push(rule(30, PolicyVerdict::Hold));
        trace.record_rules(rules);
        let shown: Vec<_> = trace.complete(true).into_iter().filter(|step| step.kind == PolicyKind::Rule).collect();
        assert_eq!(shown.len(), LISTED_RULES + 2);
        assert_eq!(shown[LISTED_RULES].name, "rule 30");
        assert_eq!(shown[LISTED_RULES + 1].reason, "10 more rules did not match");
    }

    #[test]
    fn a_reader_without_access_to_rules_sees_those_that_decided() {
        let mut trace = PolicyTrace::default();
        for verdict in [PolicyVerdict::Pass, PolicyVerdict::Observe, PolicyVerdict::Hold] {
            trace.record(PolicyStep::new(PolicyKind::Rule, verdict.as_str(), verdict, ""));
        }
        let rules = |shows_rules| {
            let steps = trace.complete(shows_rules).into_iter().filter(|step| step.kind == PolicyKind::Rule);
            steps.map(|step| step.name).collect::<Vec<_>>()
        };
        assert_eq!(rules(true), ["pass", "observe", "hold"]);
        assert_eq!(rules(false), ["hold"]);
    }

    #[test]
    fn a_guard_that_flags_and_holds_holds() {
        let mut trace = PolicyTrace::default();
        trace.record_decision([], Guard::LooksDuplicate.into(), Some(Guard::LooksDuplicate));
        let found = trace.complete(true).into_iter().find(|step| step.name == "looks_duplicate").unwrap();
        assert_eq!(found.verdict, PolicyVerdict::Hold);
    }

    #[test]
    fn the_decision_names_budgets_without_room_and_guards() {
        let budget = Uuid::from_u128(7);
        let mut trace = PolicyTrace::default();
        trace.record(PolicyStep {
            id: Some(budget),
            ..PolicyStep::new(PolicyKind::Budget, "daily", PolicyVerdict::Pass, "there is room")
        });
        let exceeded = |id, verdict| PolicyStep {
            id: Some(id),
            ..PolicyStep::new(PolicyKind::Budget, "from its id", verdict, "20 of 20 are used")
        };
        let exceeded = [exceeded(budget, PolicyVerdict::Hold), exceeded(Uuid::nil(), PolicyVerdict::Flag)];
        let holds = [Guard::Budget, Guard::Overlaps].into_iter().collect();
        trace.record_decision(exceeded, holds, Some(Guard::LooksDuplicate));
        let shown: Vec<_> = names(&trace).into_iter().filter(|(_, verdict)| *verdict != PolicyVerdict::Pass).collect();
        let expected = [
            ("daily", PolicyVerdict::Hold),
            ("from its id", PolicyVerdict::Flag),
            ("looks_duplicate", PolicyVerdict::Flag),
            ("overlaps", PolicyVerdict::Hold),
        ];
        assert_eq!(shown, expected.map(|(name, verdict)| (name.to_owned(), verdict)));
    }
}

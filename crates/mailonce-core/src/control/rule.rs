//! Rules: conditions on mail, and the actions for mail that matches.
//!
//! Rules are evaluated several times for a mail, as more becomes known about it. A condition on something not yet known
//! is neither true nor false. So a rule blocks a mail early, in the SMTP session, only when it would block it in any
//! case.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{problem::FieldError, string_enum::string_enum};

/// The maximum number of rules of a team.
pub const MAX_RULES: usize = 200;
/// The maximum number of conditions of a rule.
pub const MAX_CONDITIONS: usize = 20;
/// The maximum number of actions of a rule.
pub const MAX_ACTIONS: usize = 10;
/// The maximum number of values of a list condition.
pub const MAX_LIST_VALUES: usize = 1000;
/// The maximum length of a value, in characters.
pub const VALUE_CHARS: usize = 512;

string_enum! {
    /// Which mail a rule applies to.
    RuleDirection {
        /// Received mail.
        Inbound = "inbound",
        /// Sent email.
        Outbound = "outbound",
    }
}

string_enum! {
    /// Whether a rule acts.
    RuleMode {
        /// Its actions are carried out.
        Enforce = "enforce",
        /// What its actions would do is recorded, and nothing is done.
        Observe = "observe",
    }
}

string_enum! {
    /// How conditions are combined.
    MatchMode {
        /// All must be true.
        All = "all",
        /// One is enough.
        Any = "any",
    }
}

string_enum! {
    /// How a field is compared.
    ConditionOperator {
        /// Equal, ignoring case.
        Is = "is",
        /// Not equal.
        IsNot = "is_not",
        /// Contains the value, ignoring case.
        Contains = "contains",
        /// Equal to one of several values.
        InList = "in_list",
    }
}

string_enum! {
    /// The type of an action.
    RuleActionKind {
        /// Refuse the mail.
        Block = "block",
        /// Move the message to a folder.
        Folder = "folder",
        /// Label the message.
        Label = "label",
        /// Do not offer the message to agents.
        SkipAgent = "skip_agent",
        /// Mark the message as read.
        MarkRead = "mark_read",
        /// Hold the email until a person approves it.
        Approve = "approve",
        /// Hold the email until a person approves it, if the team never mailed one of its recipients.
        ApproveNewRecipients = "approve_new_recipients",
    }
}

impl RuleDirection {
    /// The error message for a part of a rule that works only in this direction.
    fn wrong_direction_message(self) -> &'static str {
        match self {
            Self::Inbound => "is for mail that comes in, and this rule is about mail that goes out",
            Self::Outbound => "is for mail that goes out, and this rule is about mail that comes in",
        }
    }
}

impl RuleActionKind {
    /// The only direction in which it has an effect; `None` when it has one in both.
    fn required_direction(self) -> Option<RuleDirection> {
        match self {
            Self::Block => None,
            Self::Folder | Self::Label | Self::SkipAgent | Self::MarkRead => Some(RuleDirection::Inbound),
            Self::Approve | Self::ApproveNewRecipients => Some(RuleDirection::Outbound),
        }
    }
}

/// The field that a condition tests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum RuleField {
    /// The sender's address.
    FromAddress,
    /// The sender's domain.
    FromDomain,
    /// The last label of the sender's domain.
    FromTld,
    /// A recipient's address.
    RecipientAddress,
    /// A recipient's domain.
    RecipientDomain,
    /// The subject.
    Subject,
    /// A header field.
    Header(String),
    /// The DMARC result.
    Dmarc,
    /// A boolean property.
    Flag(RuleFlag),
}

string_enum! {
    /// Boolean properties of an outbound email. The value is `true` or `false`.
    RuleFlag {
        /// At least one recipient was never written to before.
        NewRecipient = "recipient.is_new",
        /// At least one recipient is at a domain that is not the team's.
        OutsideRecipient = "recipient.is_outside",
        /// The email has attachments.
        Attachments = "has_attachments",
        /// Nothing was sent from its address before.
        First = "is_first",
    }
}

impl TryFrom<String> for RuleField {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "from.address" => Ok(Self::FromAddress),
            "from.domain" => Ok(Self::FromDomain),
            "from.tld" => Ok(Self::FromTld),
            "recipient.address" => Ok(Self::RecipientAddress),
            "recipient.domain" => Ok(Self::RecipientDomain),
            "subject" => Ok(Self::Subject),
            "auth.dmarc" => Ok(Self::Dmarc),
            other => match (other.strip_prefix("header."), RuleFlag::parse(other)) {
                (Some(name), _) if is_header_name(name) => Ok(Self::Header(name.to_ascii_lowercase())),
                (_, Some(flag)) => Ok(Self::Flag(flag)),
                _ => {
                    Err("is one of from.address, from.domain, from.tld, recipient.address, recipient.domain, subject, \
                     auth.dmarc, header.NAME, recipient.is_new, recipient.is_outside, has_attachments and is_first"
                        .into())
                }
            },
        }
    }
}

impl RuleField {
    /// The only direction in which it is known; `None` when it is known in both.
    fn required_direction(&self) -> Option<RuleDirection> {
        match self {
            Self::Dmarc => Some(RuleDirection::Inbound),
            Self::Flag(_) => Some(RuleDirection::Outbound),
            _ => None,
        }
    }
}

fn is_header_name(name: &str) -> bool {
    (1..=76).contains(&name.len()) && name.bytes().all(|byte| (33..=126).contains(&byte) && byte != b':')
}

impl From<RuleField> for String {
    fn from(field: RuleField) -> Self {
        match field {
            RuleField::FromAddress => "from.address".into(),
            RuleField::FromDomain => "from.domain".into(),
            RuleField::FromTld => "from.tld".into(),
            RuleField::RecipientAddress => "recipient.address".into(),
            RuleField::RecipientDomain => "recipient.domain".into(),
            RuleField::Subject => "subject".into(),
            RuleField::Header(name) => format!("header.{name}"),
            RuleField::Dmarc => "auth.dmarc".into(),
            RuleField::Flag(flag) => flag.as_str().into(),
        }
    }
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleCondition {
    /// The tested field.
    pub field: RuleField,
    /// The comparison.
    pub operator: ConditionOperator,
    /// The values to compare with; exactly one unless the operator takes a list.
    pub values: Vec<String>,
}

/// One action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleAction {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: RuleActionKind,
    /// The folder or label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// The definition of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleDefinition {
    /// Which mail it applies to.
    pub direction: RuleDirection,
    /// The priority. Smaller numbers are evaluated first.
    pub priority: i32,
    /// Whether it is evaluated.
    pub enabled: bool,
    /// Whether it acts on mail that matches.
    #[serde(default = "enforce")]
    pub mode: RuleMode,
    /// How its conditions are combined.
    #[serde(rename = "together")]
    pub match_mode: MatchMode,
    /// Its conditions.
    pub conditions: Vec<RuleCondition>,
    /// The actions when it matches.
    pub actions: Vec<RuleAction>,
    /// Whether it matches only mail from authenticated senders.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub require_auth: bool,
}

fn enforce() -> RuleMode {
    RuleMode::Enforce
}

/// A rule with id and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// Its definition.
    pub definition: RuleDefinition,
}

/// What is known about a mail. `None` means not known yet.
#[derive(Clone, Debug, Default)]
pub struct MailFacts<'a> {
    /// The sender's address, lower-cased.
    pub from: Option<&'a str>,
    /// The recipients' addresses, lower-cased.
    pub recipients: Vec<&'a str>,
    /// The subject.
    pub subject: Option<&'a str>,
    /// The header names and values.
    pub headers: Option<&'a [(String, String)]>,
    /// The DMARC result.
    pub dmarc: Option<&'a str>,
    /// The known boolean properties.
    pub flags: Vec<(RuleFlag, bool)>,
    /// The authentication of the sender, for received mail.
    pub sender: Option<SenderProof>,
}

/// The authentication of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderProof {
    /// Authenticated.
    Authenticated,
    /// Neither authenticated nor failed.
    None,
    /// Authentication failed.
    Forged,
}

/// A reference to a rule, kept with what it did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleRef {
    /// The rule.
    pub id: Uuid,
    /// Its name at that time.
    pub name: String,
}

/// The record of a rule that matched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleMatch {
    /// The rule.
    pub id: Uuid,
    /// Its name at that time.
    pub name: String,
    /// The actions.
    pub actions: Vec<RuleAction>,
}

/// The result of evaluating rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleEvaluation {
    /// The number of rules that were evaluated.
    #[serde(rename = "asked")]
    pub evaluated_count: usize,
    /// The rules that matched, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matched: Vec<RuleMatch>,
    /// The rules in the mode `observe` that matched, in order. Their actions were not carried out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed: Vec<RuleMatch>,
}

impl RuleEvaluation {
    /// All actions of the rules that matched, in order.
    pub fn actions(&self) -> impl Iterator<Item = &RuleAction> {
        self.matched.iter().flat_map(|hit| &hit.actions)
    }

    /// The first rule that requires approval, if there is one. `has_new_recipient`: whether the team never mailed one of
    /// the recipients.
    pub fn approval_rule(&self, has_new_recipient: bool) -> Option<&RuleMatch> {
        let requires_approval = |action: &RuleAction| match action.kind {
            RuleActionKind::Approve => true,
            RuleActionKind::ApproveNewRecipients => has_new_recipient,
            _ => false,
        };
        self.matched.iter().find(|hit| hit.actions.iter().any(requires_approval))
    }

    /// The rule that blocks, if there is one.
    pub fn blocking_rule(&self) -> Option<&RuleMatch> {
        self.first_with(RuleActionKind::Block)
    }

    fn first_with(&self, kind: RuleActionKind) -> Option<&RuleMatch> {
        self.matched.iter().find(|hit| hit.actions.iter().any(|action| action.kind == kind))
    }
}

impl RuleCondition {
    /// Whether it is true; `None` while that is not known.
    fn matches(&self, facts: &MailFacts<'_>, ignore_sender: bool) -> Option<bool> {
        let domain = |address: &str| address.rsplit_once('@').map_or("", |(_, domain)| domain).to_owned();
        let tld = |address: &str| domain(address).rsplit('.').next().unwrap_or_default().to_owned();
        let texts: Vec<String> = match &self.field {
            RuleField::FromAddress | RuleField::FromDomain | RuleField::FromTld if ignore_sender => Vec::new(),
            RuleField::FromAddress => vec![facts.from?.to_owned()],
            RuleField::FromDomain => vec![domain(facts.from?)],
            RuleField::FromTld => vec![tld(facts.from?)],
            RuleField::RecipientAddress => facts.recipients.iter().map(ToString::to_string).collect(),
            RuleField::RecipientDomain => facts.recipients.iter().map(|address| domain(address)).collect(),
            RuleField::Subject => vec![facts.subject?.to_owned()],
            RuleField::Dmarc => vec![facts.dmarc?.to_owned()],
            RuleField::Flag(flag) => {
                let (_, is) = facts.flags.iter().find(|(known, _)| known == flag)?;
                vec![is.to_string()]
            }
            RuleField::Header(name) => {
                let named = facts.headers?.iter().filter(|(field, _)| field.eq_ignore_ascii_case(name));
                named.map(|(_, value)| value.clone()).collect()
            }
        };
        let same = |text: &String| self.values.iter().any(|value| value.to_lowercase() == text.to_lowercase());
        let within = |text: &String| {
            let text = text.to_lowercase();
            self.values.iter().any(|value| text.contains(&value.to_lowercase()))
        };
        Some(match self.operator {
            ConditionOperator::Is | ConditionOperator::InList => texts.iter().any(same),
            ConditionOperator::IsNot => !texts.iter().any(same),
            ConditionOperator::Contains => texts.iter().any(within),
        })
    }
}

impl RuleDefinition {
    /// Whether it matches; `None` while that is not known.
    pub fn matches(&self, facts: &MailFacts<'_>) -> Option<bool> {
        let proven =
            if self.require_auth { facts.sender.map(|is| is == SenderProof::Authenticated) } else { Some(true) };
        match (proven, self.conditions_match(facts)) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        }
    }

    fn conditions_match(&self, facts: &MailFacts<'_>) -> Option<bool> {
        let mut open = false;
        // The address of a forged sender is treated as absent, except in rules that block.
        let blocks = self.actions.iter().any(|action| action.kind == RuleActionKind::Block);
        let ignore_sender = facts.sender == Some(SenderProof::Forged) && !blocks;
        for condition in &self.conditions {
            match (condition.matches(facts, ignore_sender), self.match_mode) {
                (Some(false), MatchMode::All) => return Some(false),
                (Some(true), MatchMode::Any) => return Some(true),
                (None, _) => open = true,
                _ => {}
            }
        }
        // A rule without conditions is about all mail.
        if open { None } else { Some(self.conditions.is_empty() || self.match_mode == MatchMode::All) }
    }

    /// Validates it and returns an error for each invalid field.
    pub fn validate(&self) -> Result<(), Vec<FieldError>> {
        let mut faults = Vec::new();
        let mut fault = |path: String, message: &str| faults.push(FieldError::new(&path, message));
        if self.require_auth && self.direction == RuleDirection::Outbound {
            fault("match.require_auth".into(), "is only for mail that comes in");
        }
        // A rule about new recipients needs no other condition.
        let may_be_empty = self.actions.iter().all(|action| action.kind == RuleActionKind::ApproveNewRecipients);
        if (self.conditions.is_empty() && !may_be_empty) || self.conditions.len() > MAX_CONDITIONS {
            fault("match.conditions".into(), &format!("must have 1 to {MAX_CONDITIONS} conditions"));
        }
        for (at, condition) in self.conditions.iter().enumerate() {
            let one = condition.operator != ConditionOperator::InList;
            let most = if one { 1 } else { MAX_LIST_VALUES };
            if let Some(other) = condition.field.required_direction().filter(|only| *only != self.direction) {
                fault(format!("match.conditions[{at}].field"), other.wrong_direction_message());
            }
            let path = format!("match.conditions[{at}].value");
            if condition.values.is_empty() || condition.values.len() > most {
                fault(path.clone(), if one { "must be one text" } else { "must be a list of 1 to 1000 texts" });
            }
            if condition.values.iter().any(|value| value.is_empty() || value.chars().count() > VALUE_CHARS) {
                fault(path.clone(), "must be 1 to 512 characters");
            }
            let yes_or_no = |value: &String| value == "true" || value == "false";
            if matches!(condition.field, RuleField::Flag(_)) && !condition.values.iter().all(yes_or_no) {
                fault(path, "must be true or false");
            }
        }
        if self.actions.is_empty() || self.actions.len() > MAX_ACTIONS {
            fault("actions".into(), &format!("must have 1 to {MAX_ACTIONS} actions"));
        }
        for (at, action) in self.actions.iter().enumerate() {
            let path = format!("actions[{at}].value");
            let wants = matches!(action.kind, RuleActionKind::Folder | RuleActionKind::Label);
            if let Some(other) = action.kind.required_direction().filter(|only| *only != self.direction) {
                fault(format!("actions[{at}].type"), other.wrong_direction_message());
            }
            match &action.value {
                None if wants => fault(path, "names the folder or label"),
                Some(_) if !wants => fault(path, "is not for this action"),
                Some(value) if value.trim().is_empty() || value.chars().count() > 100 => {
                    fault(path, "must be 1 to 100 characters");
                }
                _ => {}
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }
}

/// Evaluates the rules of a direction, by priority. A rule with an unknown result does not match. A rule that blocks is
/// the last one evaluated.
pub fn evaluate(rules: &[Rule], direction: RuleDirection, facts: &MailFacts<'_>) -> RuleEvaluation {
    let mut evaluated = RuleEvaluation::default();
    for rule in rules.iter().filter(|rule| rule.definition.enabled && rule.definition.direction == direction) {
        evaluated.evaluated_count += 1;
        if rule.definition.matches(facts) == Some(true) {
            let hit = RuleMatch { id: rule.id, name: rule.name.clone(), actions: rule.definition.actions.clone() };
            if rule.definition.mode == RuleMode::Observe {
                evaluated.observed.push(hit);
                continue;
            }
            evaluated.matched.push(hit);
            if evaluated.blocking_rule().is_some() {
                break;
            }
        }
    }
    evaluated
}

/// Sorts rules into the order of evaluation.
pub fn sort_by_priority(rules: &mut [Rule]) {
    rules.sort_by_key(|rule| (rule.definition.priority, rule.id));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(field: &str, operator: ConditionOperator, values: &[&str]) -> RuleCondition {
        let field = RuleField::try_from(field.to_owned()).unwrap();
        RuleCondition { field, operator, values: values.iter().map(ToString::to_string).collect() }
    }

    fn rule(
        id: u128,
        priority: i32,
        together: MatchMode,
        conditions: Vec<RuleCondition>,
        kind: RuleActionKind,
    ) -> Rule {
        let actions = vec![RuleAction { kind, value: None }];
        let about = RuleDefinition {
            direction: RuleDirection::Inbound,
            priority,
            enabled: true,
            mode: RuleMode::Enforce,
            match_mode: together,
            conditions,
            actions,
            require_auth: false,
        };
        Rule { id: Uuid::from_u128(id), name: format!("r{id}"), definition: about }
    }

    fn facts(headers: &[(String, String)]) -> MailFacts<'_> {
        MailFacts {
            from: Some("Ann@mail.shop.example"),
            recipients: vec!["agent@a.test", "b@b.test"],
            subject: Some("Your INVOICE 17"),
            headers: Some(headers),
            dmarc: Some("fail"),
            flags: vec![(RuleFlag::Attachments, true)],
            sender: None,
        }
    }

    #[test]
    fn a_forged_sender_is_nobody_unless_its_mail_is_blocked() {
        let facts = |sender| MailFacts { sender: Some(sender), ..facts(&[]) };
        let from = |operator, kind| {
            let conditions = vec![condition("from.domain", operator, &["mail.shop.example"])];
            rule(1, 1, MatchMode::All, conditions, kind).definition
        };
        let label = from(ConditionOperator::Is, RuleActionKind::MarkRead);
        assert_eq!(label.matches(&facts(SenderProof::None)), Some(true));
        assert_eq!(label.matches(&facts(SenderProof::Forged)), Some(false));
        let others = from(ConditionOperator::IsNot, RuleActionKind::SkipAgent);
        assert_eq!(others.matches(&facts(SenderProof::None)), Some(false));
        assert_eq!(others.matches(&facts(SenderProof::Forged)), Some(true));
        assert_eq!(from(ConditionOperator::Is, RuleActionKind::Block).matches(&facts(SenderProof::Forged)), Some(true));
    }

    #[test]
    fn a_rule_may_want_proof_of_the_sender() {
        let conditions = vec![condition("subject", ConditionOperator::Contains, &["invoice"])];
        let about = RuleDefinition {
            require_auth: true,
            ..rule(1, 1, MatchMode::All, conditions, RuleActionKind::MarkRead).definition
        };
        let facts = |sender| MailFacts { sender, ..facts(&[]) };
        assert_eq!(about.matches(&facts(Some(SenderProof::Authenticated))), Some(true));
        assert_eq!(about.matches(&facts(Some(SenderProof::None))), Some(false));
        assert_eq!(about.matches(&facts(Some(SenderProof::Forged))), Some(false));
        assert_eq!(about.matches(&facts(None)), None, "nobody knows yet");
    }

    #[test]
    fn each_field_and_operator_means_what_it_says() {
        let headers = [("List-Id".to_owned(), "<news.shop.example>".to_owned())];
        let facts = facts(&headers);
        for (field, operator, values, holds) in [
            ("from.address", ConditionOperator::Is, &["ann@mail.shop.example"][..], true),
            ("from.domain", ConditionOperator::Is, &["mail.shop.example"], true),
            ("from.domain", ConditionOperator::Is, &["shop.example"], false),
            ("from.tld", ConditionOperator::InList, &["test", "example"], true),
            ("recipient.address", ConditionOperator::Is, &["b@b.test"], true),
            ("recipient.domain", ConditionOperator::IsNot, &["b.test"], false),
            ("subject", ConditionOperator::Contains, &["invoice"], true),
            ("subject", ConditionOperator::IsNot, &["your invoice 17"], false),
            ("header.list-id", ConditionOperator::Contains, &["NEWS"], true),
            ("header.x-none", ConditionOperator::Contains, &["x"], false),
            ("header.x-none", ConditionOperator::IsNot, &["x"], true),
            ("auth.dmarc", ConditionOperator::Is, &["fail"], true),
            ("has_attachments", ConditionOperator::Is, &["true"], true),
            ("has_attachments", ConditionOperator::Is, &["false"], false),
        ] {
            let condition = condition(field, operator, values);
            assert_eq!(condition.matches(&facts, false), Some(holds), "{field} {operator:?} {values:?}");
        }
    }

    #[test]
    fn what_is_not_known_yet_neither_matches_nor_fails() {
        let from = condition("from.domain", ConditionOperator::Is, &["shop.example"]);
        let subject = condition("subject", ConditionOperator::Contains, &["spam"]);
        let early = MailFacts { from: Some("x@shop.example"), ..MailFacts::default() };
        let other = MailFacts { from: Some("x@else.example"), ..MailFacts::default() };
        let all = rule(1, 0, MatchMode::All, vec![from.clone(), subject.clone()], RuleActionKind::Block);
        assert_eq!((all.definition.matches(&early), all.definition.matches(&other)), (None, Some(false)));
        let any = rule(1, 0, MatchMode::Any, vec![from, subject], RuleActionKind::Block);
        assert_eq!((any.definition.matches(&early), any.definition.matches(&other)), (Some(true), None));
        assert!(evaluate(&[all], RuleDirection::Inbound, &early).matched.is_empty());
    }

    #[test]
    fn rules_are_asked_by_priority_until_one_blocks() {
        let always = || vec![condition("from.tld", ConditionOperator::Is, &["example"])];
        let mut rules = [
            rule(3, 50, MatchMode::All, always(), RuleActionKind::MarkRead),
            rule(2, 20, MatchMode::All, always(), RuleActionKind::Block),
            rule(1, 10, MatchMode::All, always(), RuleActionKind::SkipAgent),
        ];
        sort_by_priority(&mut rules);
        let evaluated = evaluate(&rules, RuleDirection::Inbound, &facts(&[]));
        assert_eq!(evaluated.matched.iter().map(|hit| hit.name.as_str()).collect::<Vec<_>>(), ["r1", "r2"]);
        assert_eq!(evaluated.evaluated_count, 2);
        assert!(evaluate(&rules, RuleDirection::Outbound, &facts(&[])).matched.is_empty());
        rules[1].definition.enabled = false;
        assert_eq!(evaluate(&rules, RuleDirection::Inbound, &facts(&[])).matched.len(), 2);
    }

    #[test]
    fn a_rule_that_makes_no_sense_is_refused_with_its_field() {
        let mut rule = rule(
            1,
            0,
            MatchMode::All,
            vec![condition("subject", ConditionOperator::Is, &["a", "b"])],
            RuleActionKind::Folder,
        );
        rule.definition.actions.push(RuleAction { kind: RuleActionKind::Block, value: Some("x".into()) });
        let faults = rule.definition.validate().unwrap_err();
        let paths: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(paths, ["match.conditions[0].value", "actions[0].value", "actions[1].value"]);
        for bad in ["form.address", "header.", "header.a b", "auth.spf", "has_files"] {
            assert!(RuleField::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }

    #[test]
    fn approval_is_for_mail_that_goes_out() {
        let first = || vec![condition("is_first", ConditionOperator::Is, &["true"])];
        let mut rule = rule(1, 0, MatchMode::All, first(), RuleActionKind::Approve);
        let paths = |rule: &Rule| {
            let faults = rule.definition.validate().err().unwrap_or_default();
            faults.into_iter().map(|fault| fault.path).collect::<Vec<_>>()
        };
        assert_eq!(paths(&rule), ["match.conditions[0].field", "actions[0].type"]);
        rule.definition.direction = RuleDirection::Outbound;
        assert_eq!(rule.definition.validate(), Ok(()));
        let known = MailFacts { flags: vec![(RuleFlag::First, true)], ..MailFacts::default() };
        assert!(evaluate(std::slice::from_ref(&rule), RuleDirection::Outbound, &known).approval_rule(false).is_some());
        // The property was not determined, so its value is unknown.
        assert!(
            evaluate(&[rule.clone()], RuleDirection::Outbound, &MailFacts::default()).approval_rule(false).is_none()
        );
        rule.definition.conditions = vec![condition("is_first", ConditionOperator::Is, &["yes"])];
        assert_eq!(paths(&rule), ["match.conditions[0].value"]);
        rule.definition.conditions = vec![condition("auth.dmarc", ConditionOperator::Is, &["fail"])];
        rule.definition.actions = vec![RuleAction { kind: RuleActionKind::Label, value: Some("x".into()) }];
        assert_eq!(paths(&rule), ["match.conditions[0].field", "actions[0].type"]);
    }
}

//! Rules: what a team wants done with some mail.
//!
//! A rule is asked more than once about a mail, with more and more known about it. Where something is not known yet, the
//! answer is neither yes nor no: a rule blocks at the door only what it would block in any case.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{problem::FieldError, words::words};

/// Rules of one team.
pub const RULES: usize = 200;
/// Conditions of one rule.
pub const CONDITIONS: usize = 20;
/// Actions of one rule.
pub const ACTIONS: usize = 10;
/// Values of one list.
pub const VALUES: usize = 1000;
/// Characters of a value.
pub const VALUE_CHARS: usize = 512;

words! {
    /// Which mail a rule is about.
    Direction {
        /// Mail that comes in.
        Inbound = "inbound",
        /// Mail that goes out.
        Outbound = "outbound",
    }
}

words! {
    /// How conditions come together.
    Together {
        /// Every one must hold.
        All = "all",
        /// One is enough.
        Any = "any",
    }
}

words! {
    /// How a field is compared.
    Operator {
        /// The same, whatever the case.
        Is = "is",
        /// Not the same.
        IsNot = "is_not",
        /// The value is in it somewhere, whatever the case.
        Contains = "contains",
        /// The same as one of several.
        InList = "in_list",
    }
}

words! {
    /// What is done.
    ActionKind {
        /// The mail is refused.
        Block = "block",
        /// The message goes to a folder.
        Folder = "folder",
        /// The message gets a label.
        Label = "label",
        /// No agent is to answer it.
        SkipAgent = "skip_agent",
        /// The message counts as read.
        MarkRead = "mark_read",
        /// A mail that goes out waits for a person.
        Approve = "approve",
    }
}

impl Direction {
    /// What is said of a part of a rule that is only for this one.
    fn for_mail(self) -> &'static str {
        match self {
            Self::Inbound => "is for mail that comes in, and this rule is about mail that goes out",
            Self::Outbound => "is for mail that goes out, and this rule is about mail that comes in",
        }
    }
}

impl ActionKind {
    /// The one direction in which it does something; `None` when it does in both.
    fn only(self) -> Option<Direction> {
        match self {
            Self::Block => None,
            Self::Folder | Self::Label | Self::SkipAgent | Self::MarkRead => Some(Direction::Inbound),
            Self::Approve => Some(Direction::Outbound),
        }
    }
}

/// What a condition looks at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Field {
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
    /// What DMARC says.
    Dmarc,
    /// Something that is so or not.
    Flag(Flag),
}

words! {
    /// What is so or not about a mail that goes out. Its value is `true` or `false`.
    Flag {
        /// Somebody among the recipients was never written to.
        NewRecipient = "recipient.is_new",
        /// Somebody among the recipients is at a domain that is not the team's.
        OutsideRecipient = "recipient.is_outside",
        /// Files go with it.
        Attachments = "has_attachments",
        /// Nothing was ever sent from its address.
        First = "is_first",
    }
}

impl TryFrom<String> for Field {
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
            other => match (other.strip_prefix("header."), Flag::parse(other)) {
                (Some(name), _) if is_field_name(name) => Ok(Self::Header(name.to_ascii_lowercase())),
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

impl Field {
    /// The one direction in which anything is known of it; `None` when it is in both.
    fn only(&self) -> Option<Direction> {
        match self {
            Self::Dmarc => Some(Direction::Inbound),
            Self::Flag(_) => Some(Direction::Outbound),
            _ => None,
        }
    }
}

fn is_field_name(name: &str) -> bool {
    (1..=76).contains(&name.len()) && name.bytes().all(|byte| (33..=126).contains(&byte) && byte != b':')
}

impl From<Field> for String {
    fn from(field: Field) -> Self {
        match field {
            Field::FromAddress => "from.address".into(),
            Field::FromDomain => "from.domain".into(),
            Field::FromTld => "from.tld".into(),
            Field::RecipientAddress => "recipient.address".into(),
            Field::RecipientDomain => "recipient.domain".into(),
            Field::Subject => "subject".into(),
            Field::Header(name) => format!("header.{name}"),
            Field::Dmarc => "auth.dmarc".into(),
            Field::Flag(flag) => flag.word().into(),
        }
    }
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// What it looks at.
    pub field: Field,
    /// How it compares.
    pub operator: Operator,
    /// With what; one unless it is a list.
    pub values: Vec<String>,
}

/// One action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// What is done.
    #[serde(rename = "type")]
    pub kind: ActionKind,
    /// Which folder or label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// What a rule says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AboutRule {
    /// Which mail it is about.
    pub direction: Direction,
    /// Smaller ones come first.
    pub priority: i32,
    /// Whether it is asked at all.
    pub enabled: bool,
    /// How its conditions come together.
    pub together: Together,
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// What is done when it matches.
    pub actions: Vec<Action>,
    /// Whether it matches only mail whose sender proved who it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub require_auth: bool,
}

/// A rule with its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// What it says.
    pub about: AboutRule,
}

/// What is known about a mail. `None` is not known yet.
#[derive(Clone, Debug, Default)]
pub struct Facts<'a> {
    /// The sender's address, lower-cased.
    pub from: Option<&'a str>,
    /// The recipients' addresses, lower-cased.
    pub recipients: Vec<&'a str>,
    /// The subject.
    pub subject: Option<&'a str>,
    /// The header fields, names and values.
    pub headers: Option<&'a [(String, String)]>,
    /// What DMARC says.
    pub dmarc: Option<&'a str>,
    /// What is so or not.
    pub flags: Vec<(Flag, bool)>,
    /// What authentication says of the sender of mail that comes in.
    pub sender: Option<SenderProof>,
}

/// What authentication says of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderProof {
    /// It proved who it is.
    Authenticated,
    /// Nothing is known.
    None,
    /// It is not who it says.
    Forged,
}

/// A rule as it is named beside what it did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleName {
    /// Which rule.
    pub id: Uuid,
    /// Its name at the time.
    pub name: String,
}

/// That a rule matched, as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleHit {
    /// Which rule.
    pub id: Uuid,
    /// Its name at the time.
    pub name: String,
    /// What was done.
    pub actions: Vec<Action>,
}

/// What came of asking rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evaluated {
    /// How many rules were asked.
    pub asked: usize,
    /// Those that matched, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matched: Vec<RuleHit>,
}

impl Evaluated {
    /// Every action of every rule that matched, in order.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        self.matched.iter().flat_map(|hit| &hit.actions)
    }

    /// The first rule that wants a person to look first, if one does.
    pub fn wants_approval(&self) -> Option<&RuleHit> {
        self.first_with(ActionKind::Approve)
    }

    /// The rule that blocks, if one does.
    pub fn blocks(&self) -> Option<&RuleHit> {
        self.first_with(ActionKind::Block)
    }

    fn first_with(&self, kind: ActionKind) -> Option<&RuleHit> {
        self.matched.iter().find(|hit| hit.actions.iter().any(|action| action.kind == kind))
    }
}

impl Condition {
    /// Whether it holds; `None` while nobody knows.
    fn holds(&self, facts: &Facts<'_>, ignore_sender: bool) -> Option<bool> {
        let domain = |address: &str| address.rsplit_once('@').map_or("", |(_, domain)| domain).to_owned();
        let tld = |address: &str| domain(address).rsplit('.').next().unwrap_or_default().to_owned();
        let texts: Vec<String> = match &self.field {
            Field::FromAddress | Field::FromDomain | Field::FromTld if ignore_sender => Vec::new(),
            Field::FromAddress => vec![facts.from?.to_owned()],
            Field::FromDomain => vec![domain(facts.from?)],
            Field::FromTld => vec![tld(facts.from?)],
            Field::RecipientAddress => facts.recipients.iter().map(ToString::to_string).collect(),
            Field::RecipientDomain => facts.recipients.iter().map(|address| domain(address)).collect(),
            Field::Subject => vec![facts.subject?.to_owned()],
            Field::Dmarc => vec![facts.dmarc?.to_owned()],
            Field::Flag(flag) => {
                let (_, is) = facts.flags.iter().find(|(known, _)| known == flag)?;
                vec![is.to_string()]
            }
            Field::Header(name) => {
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
            Operator::Is | Operator::InList => texts.iter().any(same),
            Operator::IsNot => !texts.iter().any(same),
            Operator::Contains => texts.iter().any(within),
        })
    }
}

impl AboutRule {
    /// Whether it matches; `None` while nobody knows.
    pub fn matches(&self, facts: &Facts<'_>) -> Option<bool> {
        let proven =
            if self.require_auth { facts.sender.map(|is| is == SenderProof::Authenticated) } else { Some(true) };
        match (proven, self.conditions_match(facts)) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        }
    }

    fn conditions_match(&self, facts: &Facts<'_>) -> Option<bool> {
        let mut open = false;
        // A forged sender is nobody, except where its mail is to be blocked.
        let blocks = self.actions.iter().any(|action| action.kind == ActionKind::Block);
        let ignore_sender = facts.sender == Some(SenderProof::Forged) && !blocks;
        for condition in &self.conditions {
            match (condition.holds(facts, ignore_sender), self.together) {
                (Some(false), Together::All) => return Some(false),
                (Some(true), Together::Any) => return Some(true),
                (None, _) => open = true,
                _ => {}
            }
        }
        if open { None } else { Some(self.together == Together::All) }
    }

    /// What is wrong with it. `path` is put before each field.
    pub fn check(&self) -> Result<(), Vec<FieldError>> {
        let mut faults = Vec::new();
        let mut fault = |path: String, message: &str| faults.push(FieldError::new(&path, message));
        if self.require_auth && self.direction == Direction::Outbound {
            fault("match.require_auth".into(), "is only for mail that comes in");
        }
        if self.conditions.is_empty() || self.conditions.len() > CONDITIONS {
            fault("match.conditions".into(), &format!("holds 1 to {CONDITIONS} conditions"));
        }
        for (at, condition) in self.conditions.iter().enumerate() {
            let one = condition.operator != Operator::InList;
            let most = if one { 1 } else { VALUES };
            if let Some(other) = condition.field.only().filter(|only| *only != self.direction) {
                fault(format!("match.conditions[{at}].field"), other.for_mail());
            }
            let path = format!("match.conditions[{at}].value");
            if condition.values.is_empty() || condition.values.len() > most {
                fault(path.clone(), if one { "is one text" } else { "is a list of 1 to 1000 texts" });
            }
            if condition.values.iter().any(|value| value.is_empty() || value.chars().count() > VALUE_CHARS) {
                fault(path.clone(), "is 1 to 512 characters");
            }
            let yes_or_no = |value: &String| value == "true" || value == "false";
            if matches!(condition.field, Field::Flag(_)) && !condition.values.iter().all(yes_or_no) {
                fault(path, "is true or false");
            }
        }
        if self.actions.is_empty() || self.actions.len() > ACTIONS {
            fault("actions".into(), &format!("holds 1 to {ACTIONS} actions"));
        }
        for (at, action) in self.actions.iter().enumerate() {
            let path = format!("actions[{at}].value");
            let wants = matches!(action.kind, ActionKind::Folder | ActionKind::Label);
            if let Some(other) = action.kind.only().filter(|only| *only != self.direction) {
                fault(format!("actions[{at}].type"), other.for_mail());
            }
            match &action.value {
                None if wants => fault(path, "names the folder or label"),
                Some(_) if !wants => fault(path, "is not for this action"),
                Some(value) if value.trim().is_empty() || value.chars().count() > 100 => {
                    fault(path, "is 1 to 100 characters");
                }
                _ => {}
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }
}

/// Asks rules of a direction, in the order of their priority. What nobody knows yet does not match. A rule that blocks is
/// the last.
pub fn evaluate(rules: &[Rule], direction: Direction, facts: &Facts<'_>) -> Evaluated {
    let mut evaluated = Evaluated::default();
    for rule in rules.iter().filter(|rule| rule.about.enabled && rule.about.direction == direction) {
        evaluated.asked += 1;
        if rule.about.matches(facts) == Some(true) {
            let hit = RuleHit { id: rule.id, name: rule.name.clone(), actions: rule.about.actions.clone() };
            evaluated.matched.push(hit);
            if evaluated.blocks().is_some() {
                break;
            }
        }
    }
    evaluated
}

/// Puts rules in the order in which they are asked.
pub fn sort(rules: &mut [Rule]) {
    rules.sort_by_key(|rule| (rule.about.priority, rule.id));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(field: &str, operator: Operator, values: &[&str]) -> Condition {
        let field = Field::try_from(field.to_owned()).unwrap();
        Condition { field, operator, values: values.iter().map(ToString::to_string).collect() }
    }

    fn rule(id: u128, priority: i32, together: Together, conditions: Vec<Condition>, kind: ActionKind) -> Rule {
        let actions = vec![Action { kind, value: None }];
        let about = AboutRule {
            direction: Direction::Inbound,
            priority,
            enabled: true,
            together,
            conditions,
            actions,
            require_auth: false,
        };
        Rule { id: Uuid::from_u128(id), name: format!("r{id}"), about }
    }

    fn facts(headers: &[(String, String)]) -> Facts<'_> {
        Facts {
            from: Some("Ann@mail.shop.example"),
            recipients: vec!["agent@a.test", "b@b.test"],
            subject: Some("Your INVOICE 17"),
            headers: Some(headers),
            dmarc: Some("fail"),
            flags: vec![(Flag::Attachments, true)],
            sender: None,
        }
    }

    #[test]
    fn a_forged_sender_is_nobody_unless_its_mail_is_blocked() {
        let facts = |sender| Facts { sender: Some(sender), ..facts(&[]) };
        let from = |operator, kind| {
            let conditions = vec![condition("from.domain", operator, &["mail.shop.example"])];
            rule(1, 1, Together::All, conditions, kind).about
        };
        let label = from(Operator::Is, ActionKind::MarkRead);
        assert_eq!(label.matches(&facts(SenderProof::None)), Some(true));
        assert_eq!(label.matches(&facts(SenderProof::Forged)), Some(false));
        let others = from(Operator::IsNot, ActionKind::SkipAgent);
        assert_eq!(others.matches(&facts(SenderProof::None)), Some(false));
        assert_eq!(others.matches(&facts(SenderProof::Forged)), Some(true));
        assert_eq!(from(Operator::Is, ActionKind::Block).matches(&facts(SenderProof::Forged)), Some(true));
    }

    #[test]
    fn a_rule_may_want_proof_of_the_sender() {
        let conditions = vec![condition("subject", Operator::Contains, &["invoice"])];
        let about =
            AboutRule { require_auth: true, ..rule(1, 1, Together::All, conditions, ActionKind::MarkRead).about };
        let facts = |sender| Facts { sender, ..facts(&[]) };
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
            ("from.address", Operator::Is, &["ann@mail.shop.example"][..], true),
            ("from.domain", Operator::Is, &["mail.shop.example"], true),
            ("from.domain", Operator::Is, &["shop.example"], false),
            ("from.tld", Operator::InList, &["test", "example"], true),
            ("recipient.address", Operator::Is, &["b@b.test"], true),
            ("recipient.domain", Operator::IsNot, &["b.test"], false),
            ("subject", Operator::Contains, &["invoice"], true),
            ("subject", Operator::IsNot, &["your invoice 17"], false),
            ("header.list-id", Operator::Contains, &["NEWS"], true),
            ("header.x-none", Operator::Contains, &["x"], false),
            ("header.x-none", Operator::IsNot, &["x"], true),
            ("auth.dmarc", Operator::Is, &["fail"], true),
            ("has_attachments", Operator::Is, &["true"], true),
            ("has_attachments", Operator::Is, &["false"], false),
        ] {
            let condition = condition(field, operator, values);
            assert_eq!(condition.holds(&facts, false), Some(holds), "{field} {operator:?} {values:?}");
        }
    }

    #[test]
    fn what_is_not_known_yet_neither_matches_nor_fails() {
        let from = condition("from.domain", Operator::Is, &["shop.example"]);
        let subject = condition("subject", Operator::Contains, &["spam"]);
        let early = Facts { from: Some("x@shop.example"), ..Facts::default() };
        let other = Facts { from: Some("x@else.example"), ..Facts::default() };
        let all = rule(1, 0, Together::All, vec![from.clone(), subject.clone()], ActionKind::Block);
        assert_eq!((all.about.matches(&early), all.about.matches(&other)), (None, Some(false)));
        let any = rule(1, 0, Together::Any, vec![from, subject], ActionKind::Block);
        assert_eq!((any.about.matches(&early), any.about.matches(&other)), (Some(true), None));
        assert!(evaluate(&[all], Direction::Inbound, &early).matched.is_empty());
    }

    #[test]
    fn rules_are_asked_by_priority_until_one_blocks() {
        let always = || vec![condition("from.tld", Operator::Is, &["example"])];
        let mut rules = [
            rule(3, 50, Together::All, always(), ActionKind::MarkRead),
            rule(2, 20, Together::All, always(), ActionKind::Block),
            rule(1, 10, Together::All, always(), ActionKind::SkipAgent),
        ];
        sort(&mut rules);
        let evaluated = evaluate(&rules, Direction::Inbound, &facts(&[]));
        assert_eq!(evaluated.matched.iter().map(|hit| hit.name.as_str()).collect::<Vec<_>>(), ["r1", "r2"]);
        assert_eq!(evaluated.asked, 2);
        assert!(evaluate(&rules, Direction::Outbound, &facts(&[])).matched.is_empty());
        rules[1].about.enabled = false;
        assert_eq!(evaluate(&rules, Direction::Inbound, &facts(&[])).matched.len(), 2);
    }

    #[test]
    fn a_rule_that_makes_no_sense_is_refused_with_its_field() {
        let mut rule =
            rule(1, 0, Together::All, vec![condition("subject", Operator::Is, &["a", "b"])], ActionKind::Folder);
        rule.about.actions.push(Action { kind: ActionKind::Block, value: Some("x".into()) });
        let faults = rule.about.check().unwrap_err();
        let paths: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(paths, ["match.conditions[0].value", "actions[0].value", "actions[1].value"]);
        for bad in ["form.address", "header.", "header.a b", "auth.spf", "has_files"] {
            assert!(Field::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }

    #[test]
    fn approval_is_for_mail_that_goes_out() {
        let first = || vec![condition("is_first", Operator::Is, &["true"])];
        let mut rule = rule(1, 0, Together::All, first(), ActionKind::Approve);
        let paths = |rule: &Rule| {
            let faults = rule.about.check().err().unwrap_or_default();
            faults.into_iter().map(|fault| fault.path).collect::<Vec<_>>()
        };
        assert_eq!(paths(&rule), ["match.conditions[0].field", "actions[0].type"]);
        rule.about.direction = Direction::Outbound;
        assert_eq!(rule.about.check(), Ok(()));
        let known = Facts { flags: vec![(Flag::First, true)], ..Facts::default() };
        assert!(evaluate(std::slice::from_ref(&rule), Direction::Outbound, &known).wants_approval().is_some());
        // Nobody looked, so nobody knows.
        assert!(evaluate(&[rule.clone()], Direction::Outbound, &Facts::default()).wants_approval().is_none());
        rule.about.conditions = vec![condition("is_first", Operator::Is, &["yes"])];
        assert_eq!(paths(&rule), ["match.conditions[0].value"]);
        rule.about.conditions = vec![condition("auth.dmarc", Operator::Is, &["fail"])];
        rule.about.actions = vec![Action { kind: ActionKind::Label, value: Some("x".into()) }];
        assert_eq!(paths(&rule), ["match.conditions[0].field", "actions[0].type"]);
    }
}

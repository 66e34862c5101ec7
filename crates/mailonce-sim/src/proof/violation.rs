//! A violation, and the lines of the history that explain it.

use super::history::{
    CallOutcome, CallRecord, ConsumeTry, DeliveryTry, Email, Event, FaultRecord, HandoffTransition, History, HopArrival,
};
use crate::proof::invariants::Rule;
use std::collections::BTreeSet;
use std::fmt;

/// Maximum number of lines: the first and the last ones.
const MAX_STORY_LINES: usize = 60;

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Violation {
    /// The broken rule.
    pub rule: Rule,
    /// The key, recipient, id or number that it is about.
    pub about: String,
    /// What was found.
    pub found: String,
    /// The related lines of the history, in order.
    pub story: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.rule, self.about, self.found)?;
        self.story.iter().try_for_each(|line| write!(f, "\n    {line}"))
    }
}

/// The subject of a violation: emails by id, and a team's keys.
#[derive(Debug, Default)]
pub(super) struct ViolationSubject<'a> {
    pub(super) emails: BTreeSet<&'a str>,
    pub(super) key: Option<(&'a str, &'a str)>,
}

impl<'a> ViolationSubject<'a> {
    pub(super) fn email(email: &'a Email) -> Self {
        let key = Some((email.team.as_str(), email.key.as_str())).filter(|(_, key)| !key.is_empty());
        Self { emails: BTreeSet::from([email.id.as_str()]), key }
    }

    pub(super) fn id(id: &'a str) -> Self {
        Self { emails: BTreeSet::from([id]), key: None }
    }

    pub(super) fn key(team: &'a str, key: &'a str) -> Self {
        Self { emails: BTreeSet::new(), key: Some((team, key)) }
    }

    fn is_about_call(&self, call: &CallRecord) -> bool {
        let named = |id: &String| self.emails.contains(id.as_str());
        let was_answered = matches!(&call.end, CallOutcome::Ok { ids, .. } if ids.iter().any(named));
        let keyed = self.key.is_some_and(|(team, key)| call.team == team && call.key.as_deref() == Some(key));
        was_answered || keyed || call.about.as_ref().is_some_and(named)
    }
}

/// The lines of a history about a subject, in order.
pub(super) fn lines_about(history: &History, subject: &ViolationSubject<'_>) -> Vec<String> {
    let has = |id: &str| subject.emails.contains(id);
    let mut lines: Vec<(u64, String)> = Vec::new();
    for call in history.calls.iter().filter(|call| subject.is_about_call(call)) {
        lines.push((call.at, describe_call(call)));
        lines.extend(call.ended.map(|at| (at, describe_outcome(call))));
    }
    lines.extend(history.arrivals.iter().filter(|a| has(&a.email)).map(|a| (a.at, describe_arrival(a))));
    let touched = |fault: &&FaultRecord| fault.emails.is_empty() || fault.emails.iter().any(|id| has(id));
    lines.extend(history.faults.iter().filter(touched).map(|fault| (fault.at, format!("fault: {}", fault.kind))));
    lines.extend(history.moves.iter().filter(|m| has(&m.email)).map(|m| (m.at, describe_transition(m))));
    lines.extend(history.events.iter().filter(|e| has(&e.about)).map(|e| (e.at, describe_event(e))));
    for delivery_try in history.inbound.delivery_tries.iter().filter(|delivery_try| has(&delivery_try.message_id)) {
        lines.push((delivery_try.at, describe_delivery(delivery_try)));
    }
    let given = |take: &&ConsumeTry| take.consumed.as_ref().is_some_and(|consumed| has(&consumed.artifact));
    lines.extend(history.inbound.consume_tries.iter().filter(given).map(|take| (take.at, describe_consume(take))));
    if let Some((team, key)) = subject.key {
        for call in history.claims.calls.iter().filter(|call| call.team == team && call.key == key) {
            lines.push((call.at, format!("{} asks for {:?}", call.caller, call.kind)));
            lines.extend(call.ended.map(|at| (at, format!("{} gets {:?}", call.caller, call.reply))));
        }
        for effect in history.claims.effects.iter().filter(|effect| effect.team == team && effect.key == key) {
            lines.push((effect.at, format!("{} begins the side effect under fence {}", effect.worker, effect.fence)));
        }
    }
    for email in history.emails.iter().filter(|email| has(&email.id)) {
        lines.push((u64::MAX, describe_email(email)));
    }
    lines.sort_by_key(|(at, _)| *at);
    let mut lines: Vec<String> = lines.into_iter().map(format_line).collect();
    if lines.len() > MAX_STORY_LINES {
        let cut = lines.len() - MAX_STORY_LINES;
        lines.splice(MAX_STORY_LINES / 2..MAX_STORY_LINES / 2 + cut, [format!("… {cut} lines …")]);
    }
    lines
}

fn format_line((at, text): (u64, String)) -> String {
    match at {
        u64::MAX => format!("in the end {text}"),
        0 => text,
        at => format!("{at:>6} {text}"),
    }
}

fn describe_call(call: &CallRecord) -> String {
    let key = call.key.as_ref().map(|key| format!(" under {key}")).unwrap_or_default();
    let about = call.about.as_ref().map(|id| format!(" of {id}")).unwrap_or_default();
    let to: Vec<_> = call.wanted.iter().map(|wanted| format!("{} ({:x})", wanted.to.join("+"), wanted.body)).collect();
    let to = if to.is_empty() { String::new() } else { format!(" to {}", to.join(", ")) };
    format!("{} calls: {:?}{about}{key}{to}", call.team, call.verb)
}

fn describe_outcome(call: &CallRecord) -> String {
    let what = match &call.end {
        CallOutcome::Ok { first: true, ids } => format!("created {}", ids.join(" ")),
        CallOutcome::Ok { first: false, ids } => format!("ok {}", ids.join(" ")),
        CallOutcome::Fail { status, code } => format!("{status} {code}"),
        CallOutcome::Info => "no reply".to_owned(),
    };
    format!("{} gets: {:?} {what}", call.team, call.verb)
}

fn describe_arrival(arrival: &HopArrival) -> String {
    let HopArrival { transport, to, bytes, taken, .. } = arrival;
    let verb = if *taken { "accepts" } else { "sees" };
    let key = arrival.key.as_ref().map(|key| format!(" key {key}")).unwrap_or_default();
    format!("{transport} {verb} a mail to {} ({bytes:x}){key}", to.join("+"))
}

fn describe_delivery(delivery_try: &DeliveryTry) -> String {
    let DeliveryTry { channel, inbox, sender, code, acknowledged, .. } = delivery_try;
    let verb = if *acknowledged { "gets an acknowledgement" } else { "gets none" };
    format!("{sender} delivers it to {inbox} by {channel} with the code `{code}` and {verb}")
}

fn describe_consume(take: &ConsumeTry) -> String {
    format!("{} consumes the code of {} in {} for {}", take.team, take.sender, take.inbox, take.purpose)
}

fn describe_transition(step: &HandoffTransition) -> String {
    let HandoffTransition { handoff, from, to, fence, rev, .. } = step;
    format!("handoff {handoff}: {from} -> {to}, fence {fence}, rev {rev}")
}

fn describe_event(event: &Event) -> String {
    format!("event {} {} rev {}", event.seq, event.kind, event.rev)
}

fn describe_email(email: &Email) -> String {
    let handoffs: Vec<String> = email
        .handoffs
        .iter()
        .map(|handoff| {
            let attempts: Vec<&str> = handoff.attempts.iter().map(|attempt| attempt.outcome.as_str()).collect();
            let evidence: Vec<String> =
                handoff.evidence.iter().map(|fact| format!("{} {}", fact.source, fact.says)).collect();
            format!(
                "{} by {} to {} is {} [{}] [{}]",
                handoff.number,
                handoff.transport,
                handoff.to.join("+"),
                handoff.state,
                attempts.join(", "),
                evidence.join(", ")
            )
        })
        .collect();
    format!("{} is {} rev {}: {}", email.id, email.state, email.rev, handoffs.join("; "))
}

//! Labels that callers add to messages and emails, in addition to the labels that rules set when a message was filed.
//!
//! They are stored in a record of their own, so that sent and received mail is labelled in the same way.

use crate::{
    access::caller::Caller,
    inbox::Inboxes,
    runtime::{problems::unavailable, records},
};
use mailonce_core::{
    access::team::ApiKeyScope,
    limits,
    operation::IdempotentResult,
    problem::{Code, Problem},
    record::{CreateRecordResult, Record, RecordChangeResult, RecordKind},
    time::Time,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// How often a change that conflicts with a concurrent change is tried.
const MAX_CONFLICT_RETRIES: usize = 8;
/// The longest label, in characters.
const MAX_LABEL_CHARS: usize = 128;

/// The changes that callers made to the labels of one mail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelOverrides {
    /// Labels that were added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<String>,
    /// Labels that were removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
    /// Whether the mail is no longer shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
    /// When the labels were last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<Time>,
}

impl LabelOverrides {
    /// Applies the changes to the mail's original labels.
    pub fn apply_to(&self, original: Vec<String>) -> Vec<String> {
        let mut all: Vec<String> = original.into_iter().filter(|label| !self.removed.contains(label)).collect();
        all.extend(self.added.iter().filter(|label| !all.contains(label)).cloned().collect::<Vec<_>>());
        all
    }

    fn update(&mut self, add: &[String], remove: &[String]) {
        self.added.retain(|label| !remove.contains(label));
        self.removed.retain(|label| !add.contains(label) || remove.contains(label));
        for label in add.iter().filter(|label| !remove.contains(label)) {
            if !self.added.contains(label) {
                self.added.push(label.clone());
            }
        }
        for label in remove {
            if !self.removed.contains(label) {
                self.removed.push(label.clone());
            }
        }
    }
}

/// Refuses labels that are empty, too long, too many, or contain control characters.
pub fn check_labels(labels: &[String], field: &str) -> Result<(), Problem> {
    let fault = |text: String| Problem::invalid_field(field, text);
    if labels.len() > limits::MESSAGE_LABELS {
        return Err(fault(format!("has more than {} labels", limits::MESSAGE_LABELS)));
    }
    let is_invalid = |label: &String| {
        label.trim().is_empty() || label.chars().count() > MAX_LABEL_CHARS || label.chars().any(char::is_control)
    };
    if labels.iter().any(is_invalid) {
        return Err(fault(format!(
            "holds a label that is empty, longer than {MAX_LABEL_CHARS} characters or not on one line"
        )));
    }
    Ok(())
}

impl Inboxes {
    /// The changes that callers made to the labels of a message or an email.
    pub async fn label_overrides(&self, caller: &Caller, mail: Uuid) -> Result<LabelOverrides, Problem> {
        let found = self.ctx.store.record_by_name(caller.team.id, RecordKind::Labels, &mail.to_string()).await;
        found.map_err(unavailable)?.map_or_else(|| Ok(LabelOverrides::default()), |record| records::decode(&record))
    }

    /// Adds and removes labels. A label in both lists is removed.
    pub async fn change_labels(
        &self,
        caller: &Caller,
        mail: Uuid,
        add: &[String],
        remove: &[String],
    ) -> Result<LabelOverrides, Problem> {
        check_labels(add, "add_labels")?;
        check_labels(remove, "remove_labels")?;
        self.edit_labels(caller, mail, |labels| labels.update(add, remove)).await
    }

    /// Hides a mail from callers. It stays stored.
    pub async fn hide_mail(&self, caller: &Caller, mail: Uuid) -> Result<LabelOverrides, Problem> {
        self.edit_labels(caller, mail, |labels| labels.hidden = true).await
    }

    async fn edit_labels(
        &self,
        caller: &Caller,
        mail: Uuid,
        change: impl Fn(&mut LabelOverrides),
    ) -> Result<LabelOverrides, Problem> {
        caller.require_scope(ApiKeyScope::Reply)?;
        let (team, kind, name) = (caller.team.id, RecordKind::Labels, mail.to_string());
        for _ in 0..MAX_CONFLICT_RETRIES {
            let found = self.ctx.store.record_by_name(team, kind, &name).await.map_err(unavailable)?;
            let mut labels = found.as_ref().map_or_else(|| Ok(LabelOverrides::default()), records::decode)?;
            let before = labels.clone();
            change(&mut labels);
            // Of several callers that make the same change, only the first has to write it.
            if labels == before {
                return Ok(labels);
            }
            if labels.added.len() + labels.removed.len() > 2 * limits::MESSAGE_LABELS {
                let text = format!("would make more than {} labels", limits::MESSAGE_LABELS);
                return Err(Problem::invalid_field("add_labels", text));
            }
            let now = self.ctx.now();
            labels.changed_at = Some(now);
            let json = records::encode(&labels)?;
            let is_saved = match found {
                None => {
                    let id = self.ctx.new_id(now);
                    let record = Record { team, kind, id, name: name.clone(), rev: 1, created_at: now, json };
                    let created = self.ctx.store.create_record(record, None).await.map_err(unavailable)?;
                    matches!(created, IdempotentResult::Done(CreateRecordResult::Created(_)))
                }
                Some(record) => {
                    let edit = record.edit(json);
                    let changed = self.ctx.store.change_record(edit, None, now).await.map_err(unavailable)?;
                    matches!(changed, IdempotentResult::Done(RecordChangeResult::Changed(_)))
                }
            };
            if is_saved {
                return Ok(labels);
            }
        }
        Err(Problem::new(
            Code::StaleRev,
            "the labels of this mail were changed by other calls at the same time; try again",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_removed_counts_more_than_what_is_added() {
        let own = || words(&["received", "unread"]);
        let mut labels = LabelOverrides::default();
        labels.update(&words(&["todo", "both"]), &words(&["unread", "both"]));
        assert_eq!(labels.apply_to(own()), ["received", "todo"]);
        labels.update(&words(&["unread"]), &[]);
        assert_eq!(labels.apply_to(own()), ["received", "unread", "todo"]);
        labels.update(&[], &words(&["todo"]));
        assert_eq!(labels.apply_to(own()), ["received", "unread"]);
    }

    #[test]
    fn labels_are_short_words_on_one_line() {
        assert!(check_labels(&words(&["todo", "in progress"]), "x").is_ok());
        for bad in ["", " ", "a\nb", &"x".repeat(MAX_LABEL_CHARS + 1)] {
            assert!(check_labels(&words(&[bad]), "x").is_err(), "{bad:?}");
        }
    }
}

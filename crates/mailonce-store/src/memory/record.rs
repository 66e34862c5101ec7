//! Records: small things a team owns that are not mail.

use mailonce_core::{
    id::TeamId,
    port::store::{Once, Operation},
    record::{Created, Record, RecordChange, RecordEdit, RecordKind, RecordPage},
    time::Time,
};
use uuid::Uuid;

use super::World;

impl World {
    pub(super) fn create_record(&mut self, record: Record, operation: Option<&Operation>) -> Once<Created> {
        if let Some(answer) = operation.and_then(|operation| self.repeat_of(operation, record.created_at)) {
            return answer;
        }
        if let Some(taken) = self.record_named(record.team, record.kind, &record.name) {
            // The very same one: this call was made before.
            let again = taken.id == record.id;
            return Once::Done(if again { Created::Made(taken) } else { Created::Taken(taken) });
        }
        if let Some(operation) = operation {
            self.bind_operation(operation);
        }
        self.tell_record(&record, None, record.created_at);
        self.records.insert(record.id, record.clone());
        Once::Done(Created::Made(record))
    }

    fn tell_record(&mut self, record: &Record, before: Option<&Record>, now: Time) {
        self.events.entry(record.team).or_default().extend(record.told(before, now));
    }

    pub(super) fn record(&self, team: TeamId, kind: RecordKind, id: Uuid) -> Option<Record> {
        self.records.get(&id).filter(|record| record.team == team && record.kind == kind).cloned()
    }

    pub(super) fn record_named(&self, team: TeamId, kind: RecordKind, name: &str) -> Option<Record> {
        let named = |record: &&Record| record.team == team && record.kind == kind && record.name == name;
        self.records.values().find(named).cloned()
    }

    pub(super) fn records(&self, team: TeamId, kind: RecordKind, before: Option<Uuid>, limit: usize) -> RecordPage {
        let listed = |record: &&Record| {
            record.team == team && record.kind == kind && before.is_none_or(|before| record.id < before)
        };
        RecordPage::of(self.records.values().rev().filter(listed).take(limit + 1).cloned().collect(), limit)
    }

    pub(super) fn change_record(
        &mut self,
        edit: RecordEdit,
        operation: Option<&Operation>,
        now: Time,
    ) -> Once<RecordChange> {
        if let Some(answer) = operation.and_then(|operation| self.repeat_of(operation, now)) {
            return answer;
        }
        let Some(mut record) = self.record(edit.team, edit.kind, edit.id) else {
            return Once::Done(RecordChange::Missing);
        };
        if record.rev != edit.rev {
            return Once::Done(RecordChange::Stale(record));
        }
        if let Some(operation) = operation {
            self.bind_operation(operation);
        }
        let before = record.clone();
        record.rev += 1;
        record.about = edit.about;
        self.tell_record(&record, Some(&before), now);
        self.records.insert(record.id, record.clone());
        Once::Done(RecordChange::Changed(record))
    }

    pub(super) fn remove_record(&mut self, team: TeamId, kind: RecordKind, id: Uuid) -> Option<Record> {
        self.record(team, kind, id)?;
        self.records.remove(&id)
    }
}

//! Records: small named JSON documents of a team, such as sending domains, suppressed addresses and settings.

use mailonce_core::{
    control::audit::act::Act,
    id::TeamId,
    operation::{IdempotentResult, KeyedOperation},
    record::{CreateRecordResult, Record, RecordChangeResult, RecordEdit, RecordKind, RecordPage},
    time::Time,
};
use uuid::Uuid;

use crate::memory::{Tables, control::ControlTables, events::EventTables};

impl Tables {
    pub(crate) fn create_record(
        &mut self,
        record: Record,
        operation: Option<&KeyedOperation>,
    ) -> IdempotentResult<CreateRecordResult> {
        if let Some(answer) = operation.and_then(|operation| self.outbound.find_replay(operation, record.created_at)) {
            return answer;
        }
        if let Some(taken) = self.control.record_by_name(record.team, record.kind, &record.name) {
            // The same id: this call is a retry.
            let again = taken.id == record.id;
            return IdempotentResult::Done(if again {
                CreateRecordResult::Created(taken)
            } else {
                CreateRecordResult::NameTaken(taken)
            });
        }
        if let Some(operation) = operation {
            self.outbound.bind_operation(operation);
        }
        self.events.emit_record_event(&record, None, record.created_at);
        self.control.records.insert(record.id, record.clone());
        self.record_act(Act::of_record(None, Some(&record)), record.created_at);
        IdempotentResult::Done(CreateRecordResult::Created(record))
    }

    pub(crate) fn change_record(
        &mut self,
        edit: RecordEdit,
        operation: Option<&KeyedOperation>,
        now: Time,
    ) -> IdempotentResult<RecordChangeResult> {
        if let Some(answer) = operation.and_then(|operation| self.outbound.find_replay(operation, now)) {
            return answer;
        }
        let Some(mut record) = self.control.record(edit.team, edit.kind, edit.id) else {
            return IdempotentResult::Done(RecordChangeResult::Missing);
        };
        if record.rev != edit.rev {
            return IdempotentResult::Done(RecordChangeResult::Stale(record));
        }
        if let Some(operation) = operation {
            self.outbound.bind_operation(operation);
        }
        let before = record.clone();
        record.rev += 1;
        record.json = edit.json;
        self.events.emit_record_event(&record, Some(&before), now);
        self.control.records.insert(record.id, record.clone());
        self.record_act(Act::of_record(Some(&before), Some(&record)), now);
        IdempotentResult::Done(RecordChangeResult::Changed(record))
    }

    pub(crate) fn remove_record(&mut self, team: TeamId, kind: RecordKind, id: Uuid, now: Time) -> Option<Record> {
        self.control.record(team, kind, id)?;
        let removed = self.control.records.remove(&id);
        self.record_act(Act::of_record(removed.as_ref(), None), now);
        removed
    }
}

impl EventTables {
    pub(crate) fn emit_record_event(&mut self, record: &Record, before: Option<&Record>, now: Time) {
        self.log.entry(record.team).or_default().extend(record.to_event(before, now));
    }
}

impl ControlTables {
    pub(crate) fn record(&self, team: TeamId, kind: RecordKind, id: Uuid) -> Option<Record> {
        self.records.get(&id).filter(|record| record.team == team && record.kind == kind).cloned()
    }

    pub(crate) fn record_by_name(&self, team: TeamId, kind: RecordKind, name: &str) -> Option<Record> {
        let named = |record: &&Record| record.team == team && record.kind == kind && record.name == name;
        self.records.values().find(named).cloned()
    }

    pub(crate) fn records(&self, team: TeamId, kind: RecordKind, before: Option<Uuid>, limit: usize) -> RecordPage {
        let listed = |record: &&Record| {
            record.team == team && record.kind == kind && before.is_none_or(|before| record.id < before)
        };
        RecordPage::from_rows(self.records.values().rev().filter(listed).take(limit + 1).cloned().collect(), limit)
    }
}

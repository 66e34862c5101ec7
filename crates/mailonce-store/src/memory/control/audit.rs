//! The audit log: one hash chain per team, and the names of the ids in it.

use async_trait::async_trait;
use mailonce_core::{
    access::call_origin::{Alias, CallOrigin},
    control::audit::{
        AuditNameRef, AuditPage, ChainEnds,
        act::Act,
        chain::{self, AuditRow},
        wants_events,
    },
    id::TeamId,
    operation::{IdempotentResult, KeyedOperation},
    ports::{audit_store::AuditStore, store::Result},
    record::{RecordKind, TEAM_SETTINGS},
    time::Time,
};
use std::collections::BTreeMap;
use uuid::Uuid;

use crate::memory::{Memory, Tables};

/// The chains of all teams, and their names by team and id.
#[derive(Default)]
pub(crate) struct AuditTables {
    chains: BTreeMap<TeamId, AuditPage>,
    names: BTreeMap<(TeamId, String), String>,
}

impl Tables {
    /// Records an act of the running call.
    pub(crate) fn record_act(&mut self, act: Option<Act>, now: Time) {
        let origin = CallOrigin::current();
        let Some(act) = act else { return };
        let Some(recorded) = act.recorded(origin.as_deref(), now) else { return };
        let own_team = act.team.or(origin.and_then(|origin| origin.team));
        let teams = own_team.map_or_else(|| self.access.teams.keys().copied().collect(), |team| vec![team]);
        for team in teams {
            let chain = self.control.audit.chains.entry(team).or_default();
            let row = chain::append(chain.ends.head, team, &recorded.entry);
            let event = row.event(team, &recorded.entry);
            chain.ends.head = row.link();
            chain.rows.push(row);
            for Alias { id, name } in &recorded.aliases {
                self.control.audit.names.insert((team, id.clone()), name.clone());
            }
            let settings = self.control.record_by_name(team, RecordKind::Settings, TEAM_SETTINGS);
            if settings.is_some_and(|settings| wants_events(&settings.json)) {
                self.events.log.entry(team).or_default().push(event);
            }
        }
    }
}

impl AuditTables {
    fn page(&self, team: TeamId, after: u64, limit: usize) -> AuditPage {
        let Some(chain) = self.chains.get(&team) else { return AuditPage::default() };
        let rows = chain.rows.iter().filter(|row| row.seq > after).take(limit).cloned().collect();
        AuditPage { ends: chain.ends, rows }
    }

    /// Names ordered by id, after the given one.
    pub(crate) fn name_page(&self, team: TeamId, after: &str, limit: usize) -> Vec<Alias> {
        let ours = self.names.iter().filter(|((of, id), _)| *of == team && id.as_str() > after);
        ours.take(limit).map(|((_, id), name)| Alias { id: id.clone(), name: name.clone() }).collect()
    }

    /// Removes old entries, and the names that no entry uses any more. `has_record` says whether a record exists.
    fn prune(&mut self, team: TeamId, cutoff: Time, max: usize, has_record: impl Fn(Uuid) -> bool) -> usize {
        let Some(chain) = self.chains.get_mut(&team) else { return 0 };
        let is_old = |row: &&AuditRow| row.at().is_some_and(|at| at < cutoff);
        let count = chain.rows.iter().take(max).take_while(is_old).count();
        let old: Vec<AuditRow> = chain.rows.drain(..count).collect();
        if let Some(last) = old.last() {
            chain.ends = ChainEnds { start: last.link(), ..chain.ends };
        }
        for name in AuditNameRef::of_rows(&old) {
            let needle = name.needle().as_bytes();
            let is_used =
                chain.rows.iter().any(|row| row.entry.windows(needle.len().max(1)).any(|part| part == needle));
            if !is_used && !name.actor_record().is_some_and(&has_record) {
                self.names.remove(&(team, name.id));
            }
        }
        count
    }
}

#[async_trait]
impl AuditStore for Memory {
    async fn record_act(&self, act: Act, now: Time) -> Result<()> {
        self.lock_tables().record_act(Some(act), now);
        Ok(())
    }

    async fn record_keyed_act(&self, act: Act, operation: KeyedOperation, now: Time) -> Result<IdempotentResult<()>> {
        let mut tables = self.lock_tables();
        let answer = tables.outbound.bind_operation_once(&operation, now);
        if matches!(answer, IdempotentResult::Done(())) {
            tables.record_act(Some(act), now);
        }
        Ok(answer)
    }

    async fn audit_page(&self, team: TeamId, after: u64, limit: usize) -> Result<AuditPage> {
        Ok(self.lock_tables().control.audit.page(team, after, limit))
    }

    async fn audit_names(&self, team: TeamId, ids: &[String]) -> Result<Vec<Alias>> {
        let tables = self.lock_tables();
        let name = |id: &String| tables.control.audit.names.get(&(team, id.clone())).cloned();
        Ok(ids.iter().filter_map(|id| Some(Alias { id: id.clone(), name: name(id)? })).collect())
    }

    async fn forget_audit_name(&self, team: TeamId, name: &str) -> Result<usize> {
        let names = &mut self.lock_tables().control.audit.names;
        let before = names.len();
        names.retain(|(of, _), known| *of != team || known != name);
        Ok(before - names.len())
    }

    async fn prune_audit(&self, team: TeamId, cutoff: Time, max: usize) -> Result<usize> {
        let mut tables = self.lock_tables();
        let control = &mut tables.control;
        let records = &control.records;
        Ok(control.audit.prune(team, cutoff, max, |id| records.contains_key(&id)))
    }
}

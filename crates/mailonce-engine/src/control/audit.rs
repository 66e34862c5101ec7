//! The audit log of a team: reading it, and removing entries whose retention is over.

use crate::{
    access::{Access, caller::Caller},
    runtime::{context::Context, problems::unavailable, team_round::TeamRound},
};
use mailonce_core::{
    access::{
        call_origin::{ActorKind, AliasKey, CallOrigin, CallSource},
        team::ApiKeyScope,
    },
    control::audit::{
        AuditEntry, ChainEnds, MAX_PAGE,
        act::Act,
        chain::{AuditRow, ChainFault, check_row},
    },
    id::TeamId,
    limits,
    ports::store::StoreError,
    problem::Problem,
};
use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

/// How many entries one commit removes.
const PRUNE_BATCH: usize = 500;

/// Which entries to list.
#[derive(Clone, Debug, Default)]
pub struct AuditSelection {
    /// The id of the actor.
    pub actor: Option<String>,
    /// The action, such as `rule.changed`, or all of a kind, such as `rule.*`.
    pub action: Option<String>,
    /// What was changed, as `kind/id` or as the id alone.
    pub about: Option<String>,
}

impl AuditSelection {
    fn matches_all(&self) -> bool {
        self.actor.is_none() && self.action.is_none() && self.about.is_none()
    }

    fn matches(&self, entry: &AuditEntry) -> bool {
        let content = &entry.content;
        let has_action = |wanted: &String| match wanted.strip_suffix('*') {
            Some(family) => content.action.starts_with(family),
            None => content.action == *wanted,
        };
        let id = content.about.split_once('/').map_or("", |(_, id)| id);
        self.actor.as_ref().is_none_or(|wanted| content.actor.id == *wanted)
            && self.action.as_ref().is_none_or(has_action)
            && self.about.as_ref().is_none_or(|wanted| content.about == *wanted || id == wanted)
    }
}

/// An entry of a list.
#[derive(Clone, Debug)]
pub struct ListedEntry {
    /// The entry as it is stored.
    pub row: AuditRow,
    /// The decoded entry. `None` if that is not possible.
    pub entry: Option<AuditEntry>,
    /// What is wrong with it. The links between entries are not checked here.
    pub fault: Option<ChainFault>,
}

/// A page of the log, oldest first.
#[derive(Clone, Debug)]
pub struct AuditListing {
    /// The entries. Damaged ones are always among them.
    pub entries: Vec<ListedEntry>,
    /// The names of the ids in the entries, as far as they are known.
    pub names: HashMap<String, String>,
    /// The number to continue after; `None` at the end.
    pub next: Option<u64>,
    /// The ends of the chain, as of the last entry.
    pub ends: ChainEnds,
}

/// The audit log.
pub struct AuditLog {
    ctx: Arc<Context>,
    alias_key: AliasKey,
}

impl AuditLog {
    pub(crate) fn new(ctx: Arc<Context>) -> Self {
        let alias_key = AliasKey::of(&ctx.secret);
        Self { ctx, alias_key }
    }

    /// Records the caller as the origin of the running call. Audit entries of the call name it.
    pub fn set_call_origin(&self, caller: &Caller, client: Option<IpAddr>) {
        let from = CallSource::of_client(client, self.alias_key);
        let (team, now) = (caller.team.id, self.ctx.now());
        match caller.person() {
            Some(person) => CallOrigin::of_person(person, team, from, now).set(),
            None => CallOrigin::of_api_key(caller.key.id, team, from, now).set(),
        }
    }

    /// Records the client address of a call without an API key or session as its origin.
    pub fn set_anonymous_origin(&self, client: Option<IpAddr>) {
        let from = CallSource::of_client(client, self.alias_key);
        CallOrigin { from, ..CallOrigin::of_system("server", self.ctx.now()) }.set();
    }

    /// Records that the ledger was restored from a backup, in the log of every team.
    pub async fn record_restore(&self) -> Result<(), StoreError> {
        let act = Act::new(None, "ledger.restored", format!("installation/{}", self.ctx.epoch()));
        self.ctx.store.record_act(act, self.ctx.now()).await
    }

    /// Records that the running call confirms the wall clock. To be called before the clock counts as confirmed.
    pub async fn record_clock_confirmation(&self) -> Result<(), Problem> {
        let act = Act::new(None, "clock.confirmed", "installation/clock".into());
        self.ctx.store.record_act(act, self.ctx.now()).await.map_err(unavailable)
    }

    /// The selected entries after a number, in order.
    pub async fn list(
        &self,
        caller: &Caller,
        after: u64,
        limit: usize,
        selection: &AuditSelection,
    ) -> Result<AuditListing, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        caller.require_unrestricted_key()?;
        let team = caller.team.id;
        let (mut entries, mut last) = (Vec::new(), after);
        let (ends, has_more) = loop {
            let page_size = if selection.matches_all() { limit - entries.len() } else { MAX_PAGE };
            let page = self.ctx.store.audit_page(team, last, page_size).await.map_err(unavailable)?;
            let mut has_more = page.rows.len() == page_size;
            for row in page.rows {
                if entries.len() == limit {
                    has_more = true;
                    break;
                }
                last = row.seq;
                entries.extend(list_entry(team, row, selection));
            }
            if entries.len() == limit || !has_more || last - after >= limits::SCAN_ROWS as u64 {
                break (page.ends, has_more);
            }
        };
        // Not by the head: a reader must also see entries that the head does not know of.
        let next = (has_more && last > after).then_some(last);
        let names = self.names(team, &entries).await.map_err(unavailable)?;
        Ok(AuditListing { entries, names, next, ends })
    }

    async fn names(&self, team: TeamId, entries: &[ListedEntry]) -> Result<HashMap<String, String>, StoreError> {
        let contents = || entries.iter().filter_map(|listed| Some(&listed.entry.as_ref()?.content));
        let ids: BTreeSet<&String> = contents().flat_map(|content| [&content.about, &content.from]).collect();
        let ids: Vec<String> = ids.into_iter().cloned().collect();
        let names = self.ctx.store.audit_names(team, &ids).await?;
        let mut names: HashMap<String, String> = names.into_iter().map(|alias| (alias.id, alias.name)).collect();
        let actors: BTreeSet<&String> = contents().map(|content| &content.actor.id).collect();
        let keys = self.ctx.store.api_keys(team).await?;
        let named = keys.into_iter().map(|key| (key.id.to_string(), key.details.name));
        names.extend(named.filter(|(id, _)| actors.contains(id)));
        // The entries about a person or a target keep the name of one that was removed.
        let has_alias = |kind: ActorKind| matches!(kind, ActorKind::Person | ActorKind::NotificationTarget);
        let people = contents().filter(|content| has_alias(content.actor.kind));
        let people: BTreeSet<&String> = people.map(|content| &content.actor.id).collect();
        // Older entries have a person as the actor where the link of a target was used.
        let aliases = |id: &&String| ["person", "notification_target"].map(|kind| format!("{kind}/{id}"));
        let people: Vec<String> = people.iter().flat_map(aliases).collect();
        let people = self.ctx.store.audit_names(team, &people).await?;
        let bare = |id: &str| id.split_once('/').map_or(id, |(_, bare)| bare).to_owned();
        names.extend(people.into_iter().map(|alias| (bare(&alias.id), alias.name)));
        Ok(names)
    }

    /// Removes the entries of all teams whose retention is over.
    pub(crate) async fn prune(&self, access: &Access) -> Result<(), StoreError> {
        let mut round = TeamRound::default();
        for team in self.ctx.store.teams().await? {
            let result = self.prune_log_of(team.id, access).await;
            round.record(team.id, result);
            if round.must_end() {
                break;
            }
        }
        round.finish(())
    }

    async fn prune_log_of(&self, team: TeamId, access: &Access) -> Result<(), StoreError> {
        let Some(retention) = access.settings_of(team).await?.retention.audit_ms else { return Ok(()) };
        // Nothing expires while the clock is not confirmed.
        let Some(cutoff) = self.ctx.time.expiry_cutoff() else { return Ok(()) };
        while self.ctx.store.prune_audit(team, cutoff.plus(-retention), PRUNE_BATCH).await? == PRUNE_BATCH {}
        Ok(())
    }
}

fn list_entry(team: TeamId, row: AuditRow, selection: &AuditSelection) -> Option<ListedEntry> {
    match check_row(team, &row) {
        Ok(entry) => selection.matches(&entry).then_some(ListedEntry { row, entry: Some(entry), fault: None }),
        Err(fault) => Some(ListedEntry { entry: AuditEntry::decode(&row.entry), row, fault: Some(fault) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mailonce_core::{
        access::call_origin::{Actor, ActorKind},
        control::audit::NewAuditEntry,
        time::Time,
    };

    #[test]
    fn entries_are_selected_by_actor_action_and_subject() {
        let content = NewAuditEntry {
            at: Time(1),
            actor: Actor { kind: ActorKind::ApiKey, id: "key".into() },
            from: "cli".into(),
            action: "rule.changed".into(),
            about: "rule/7".into(),
            before: None,
            after: None,
        };
        let entry = AuditEntry { team: TeamId(uuid::Uuid::nil()), seq: 1, content, prev: [0; 32] };
        let select = |field: &str, text: &str| {
            let text = Some(text.to_owned());
            match field {
                "actor" => AuditSelection { actor: text, ..AuditSelection::default() },
                "action" => AuditSelection { action: text, ..AuditSelection::default() },
                _ => AuditSelection { about: text, ..AuditSelection::default() },
            }
        };
        for (field, text, matches) in [
            ("actor", "key", true),
            ("actor", "ke", false),
            ("action", "rule.changed", true),
            ("action", "rule.*", true),
            ("action", "rule", false),
            ("action", "*", true),
            ("about", "rule/7", true),
            ("about", "7", true),
            ("about", "rule", false),
        ] {
            assert_eq!(select(field, text).matches(&entry), matches, "{field} {text}");
        }
        assert!(AuditSelection::default().matches(&entry));
    }
}

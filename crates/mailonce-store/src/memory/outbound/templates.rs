//! Templates and their versions.

use async_trait::async_trait;
use mailonce_core::{
    control::audit::act::Act,
    id::TeamId,
    limits,
    operation::{IdempotentResult, KeyedOperation},
    outbound::template::{AddVersionResult, CreateTemplateResult, Template, TemplateKey, TemplatePage, TemplateSource},
    ports::{store::Result, template_store::TemplateStore},
    time::Time,
};
use std::collections::BTreeMap;
use uuid::Uuid;

use crate::memory::{Memory, Tables};

/// The versions of each template, oldest first. A template has at least one.
pub(crate) type TemplateTable = BTreeMap<Uuid, Vec<Template>>;

impl Tables {
    /// The newest versions of a team's templates, newest template first.
    fn templates_of(&self, team: TeamId) -> impl Iterator<Item = &Template> {
        let newest = self.outbound.templates.values().rev().filter_map(|versions| versions.last());
        newest.filter(move |template| template.team == team)
    }

    fn versions_of(&mut self, team: TeamId, id: Uuid) -> Option<&mut Vec<Template>> {
        let is_theirs = |versions: &&mut Vec<Template>| versions.iter().any(|template| template.team == team);
        self.outbound.templates.get_mut(&id).filter(is_theirs)
    }

    fn create_template(
        &mut self,
        template: Template,
        operation: Option<&KeyedOperation>,
    ) -> IdempotentResult<CreateTemplateResult> {
        let now = template.created_at;
        if let Some(answer) = operation.and_then(|operation| self.outbound.find_replay(operation, now)) {
            return answer;
        }
        if let Some(taken) = self.templates_of(template.team).find(|taken| taken.name == template.name) {
            // The same id: this call is a retry.
            let again = taken.id == template.id;
            let taken = taken.clone();
            return IdempotentResult::Done(if again {
                CreateTemplateResult::Created(taken)
            } else {
                CreateTemplateResult::NameTaken(taken)
            });
        }
        if self.templates_of(template.team).count() >= limits::TEMPLATES {
            return IdempotentResult::Done(CreateTemplateResult::TooMany);
        }
        if let Some(operation) = operation {
            self.outbound.bind_operation(operation);
        }
        self.outbound.templates.insert(template.id, vec![template.clone()]);
        self.record_act(Act::of_template(None, Some(&template)), now);
        IdempotentResult::Done(CreateTemplateResult::Created(template))
    }

    fn add_template_version(
        &mut self,
        (team, id): (TeamId, Uuid),
        version: (u32, TemplateSource),
        now: Time,
    ) -> AddVersionResult {
        let Some(versions) = self.versions_of(team, id) else { return AddVersionResult::Missing };
        let Some(before) = versions.last().cloned() else { return AddVersionResult::Missing };
        let result = AddVersionResult::decide(before.clone(), versions.len(), version, now);
        if let AddVersionResult::Added(added) = &result
            && added.version != before.version
        {
            versions.push(added.clone());
            self.record_act(Act::of_template(Some(&before), Some(added)), now);
        }
        result
    }

    fn remove_template(&mut self, team: TeamId, id: Uuid, now: Time) -> Option<Template> {
        let removed = self.versions_of(team, id)?.pop()?;
        self.outbound.templates.remove(&id);
        self.record_act(Act::of_template(Some(&removed), None), now);
        Some(removed)
    }

    fn remove_template_version(&mut self, team: TeamId, id: Uuid, version: u32, now: Time) -> Option<Template> {
        let versions = self.versions_of(team, id)?;
        let place = versions.iter().position(|template| template.version == version)?;
        if place + 1 == versions.len() {
            return None;
        }
        let removed = versions.remove(place);
        self.record_act(Some(Act::of_removed_version(&removed)), now);
        Some(removed)
    }
}

#[async_trait]
impl TemplateStore for Memory {
    async fn create_template(
        &self,
        template: Template,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<CreateTemplateResult>> {
        Ok(self.lock_tables().create_template(template, operation.as_ref()))
    }

    async fn add_template_version(
        &self,
        team: TeamId,
        id: Uuid,
        version: (u32, TemplateSource),
        now: Time,
    ) -> Result<AddVersionResult> {
        Ok(self.lock_tables().add_template_version((team, id), version, now))
    }

    async fn template(&self, team: TeamId, key: TemplateKey, version: Option<u32>) -> Result<Option<Template>> {
        let mut tables = self.lock_tables();
        let id = tables.templates_of(team).find(|found| key.matches(&found.name, found.id)).map(|found| found.id);
        let versions = id.and_then(|id| tables.versions_of(team, id));
        let found = versions.and_then(|all| match version {
            None => all.last(),
            Some(number) => all.iter().find(|template| template.version == number),
        });
        Ok(found.cloned())
    }

    async fn templates(&self, team: TeamId, before: Option<Uuid>, limit: usize) -> Result<TemplatePage> {
        let tables = self.lock_tables();
        let older = tables.templates_of(team).filter(|template| before.is_none_or(|before| template.id < before));
        Ok(TemplatePage::from_rows(older.take(limit + 1).cloned().collect(), limit))
    }

    async fn template_versions(&self, team: TeamId, id: Uuid) -> Result<Vec<(u32, Time)>> {
        let mut tables = self.lock_tables();
        let versions = tables.versions_of(team, id).map(|versions| &*versions).into_iter().flatten().rev();
        Ok(versions.map(|template| (template.version, template.updated_at)).collect())
    }

    async fn remove_template(&self, team: TeamId, id: Uuid, now: Time) -> Result<Option<Template>> {
        Ok(self.lock_tables().remove_template(team, id, now))
    }

    async fn remove_template_version(
        &self,
        team: TeamId,
        id: Uuid,
        version: u32,
        now: Time,
    ) -> Result<Option<Template>> {
        Ok(self.lock_tables().remove_template_version(team, id, version, now))
    }
}

//! The templates part of the store, as one process of a node sees it.

use crate::world::store::FaultyStore;
use async_trait::async_trait;
use mailonce_core::{
    id::TeamId,
    operation::{IdempotentResult, KeyedOperation},
    outbound::template::{AddVersionResult, CreateTemplateResult, Template, TemplateKey, TemplatePage, TemplateSource},
    ports::{store::Result, template_store::TemplateStore},
    time::Time,
};
use uuid::Uuid;

/// Each method goes through the faulty network.
#[async_trait]
impl TemplateStore for FaultyStore {
    async fn create_template(
        &self,
        template: Template,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<CreateTemplateResult>> {
        self.call_with_faults("create_template", true, self.inner.create_template(template, operation)).await
    }

    async fn add_template_version(
        &self,
        team: TeamId,
        id: Uuid,
        version: (u32, TemplateSource),
        now: Time,
    ) -> Result<AddVersionResult> {
        let call = self.inner.add_template_version(team, id, version, now);
        self.call_with_faults("add_template_version", true, call).await
    }

    async fn template(&self, team: TeamId, key: TemplateKey, version: Option<u32>) -> Result<Option<Template>> {
        self.call_with_faults("template", false, self.inner.template(team, key, version)).await
    }

    async fn templates(&self, team: TeamId, before: Option<Uuid>, limit: usize) -> Result<TemplatePage> {
        self.call_with_faults("templates", false, self.inner.templates(team, before, limit)).await
    }

    async fn template_versions(&self, team: TeamId, id: Uuid) -> Result<Vec<(u32, Time)>> {
        self.call_with_faults("template_versions", false, self.inner.template_versions(team, id)).await
    }

    async fn remove_template(&self, team: TeamId, id: Uuid, now: Time) -> Result<Option<Template>> {
        self.call_with_faults("remove_template", true, self.inner.remove_template(team, id, now)).await
    }

    async fn remove_template_version(
        &self,
        team: TeamId,
        id: Uuid,
        version: u32,
        now: Time,
    ) -> Result<Option<Template>> {
        let call = self.inner.remove_template_version(team, id, version, now);
        self.call_with_faults("remove_template_version", true, call).await
    }
}

//! The part of the store for templates. It follows the rules of the store: every method is one transaction and
//! idempotent, time and ids are arguments, and every row and every query carries its team.

use async_trait::async_trait;
use uuid::Uuid;

use super::store::Result;
use crate::{
    id::TeamId,
    operation::{IdempotentResult, KeyedOperation},
    outbound::template::{AddVersionResult, CreateTemplateResult, Template, TemplateKey, TemplatePage, TemplateSource},
    time::Time,
};

/// Templates. The module documentation states the rules that every method follows.
#[async_trait]
pub trait TemplateStore: Send + Sync + 'static {
    /// Creates a template with its first version, unless its name is taken or the team has too many. The key of the
    /// operation is bound only when the template was created.
    async fn create_template(
        &self,
        template: Template,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<CreateTemplateResult>>;
    /// Adds a version after the one that the caller read.
    async fn add_template_version(
        &self,
        team: TeamId,
        id: Uuid,
        version: (u32, TemplateSource),
        now: Time,
    ) -> Result<AddVersionResult>;
    /// A version of a template; the newest without a number.
    async fn template(&self, team: TeamId, key: TemplateKey, version: Option<u32>) -> Result<Option<Template>>;
    /// Templates older than `before` in their newest version, newest first.
    async fn templates(&self, team: TeamId, before: Option<Uuid>, limit: usize) -> Result<TemplatePage>;
    /// The versions of a template and when they were created, newest first.
    async fn template_versions(&self, team: TeamId, id: Uuid) -> Result<Vec<(u32, Time)>>;
    /// Removes a template with all versions, and returns the newest. `None` when the team has no such template.
    async fn remove_template(&self, team: TeamId, id: Uuid, now: Time) -> Result<Option<Template>>;
    /// Removes a version that is not the newest, and returns it. `None` when there is no such version.
    async fn remove_template_version(
        &self,
        team: TeamId,
        id: Uuid,
        version: u32,
        now: Time,
    ) -> Result<Option<Template>>;
}

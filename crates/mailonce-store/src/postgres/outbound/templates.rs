//! Templates and their versions.

use async_trait::async_trait;
use deadpool_postgres::{GenericClient, Transaction};
use mailonce_core::{
    control::audit::act::Act,
    id::TeamId,
    limits,
    operation::{IdempotentResult, KeyedOperation},
    outbound::template::{AddVersionResult, CreateTemplateResult, Template, TemplateKey, TemplatePage, TemplateSource},
    ports::{store::Result, template_store::TemplateStore},
    time::Time,
};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::postgres::{
    Postgres, SharedState,
    control::audit_chain,
    error::{TxResult, call_until_final},
    operation_keys::bind_or_replay,
    row::{read_json, write_json},
    statements::{execute, query_rows},
    when_durable,
};

macro_rules! templates {
    ($rest:literal) => {
        concat!(
            "SELECT t.team, t.id, t.name, v.version, t.created_at, v.created_at, v.source
               FROM templates t JOIN template_versions v ON v.template = t.id WHERE t.team = $1 AND ",
            $rest
        )
    };
}

/// Creating templates of a team takes turns, so that two nodes don't exceed the limit together.
const LOCK_TEAM: &str = "SELECT pg_advisory_xact_lock(hashtextextended($1::text, 7883366249))";
const BY_NAME: &str = templates!("t.name = $2 AND v.version = coalesce($3, t.version)");
const BY_ID: &str = templates!("t.id = $2 AND v.version = coalesce($3, t.version)");
const LIST: &str = templates!("t.id < $2 AND v.version = t.version ORDER BY t.id DESC LIMIT $3");
const LOCK: &str = "SELECT FROM templates WHERE team = $1 AND id = $2 FOR UPDATE";
const COUNT: &str = "SELECT count(*) FROM templates WHERE team = $1";
const COUNT_VERSIONS: &str = "SELECT count(*) FROM template_versions WHERE template = $1";
const VERSIONS: &str = "
    SELECT v.version, v.created_at FROM templates t JOIN template_versions v ON v.template = t.id
     WHERE t.team = $1 AND t.id = $2 ORDER BY v.version DESC";
const INSERT: &str = "INSERT INTO templates (id, team, name, version, created_at) VALUES ($1, $2, $3, $4, $5)";
const INSERT_VERSION: &str =
    "INSERT INTO template_versions (template, version, created_at, source) VALUES ($1, $2, $3, $4)";
const SET_NEWEST: &str = "UPDATE templates SET version = $2 WHERE id = $1";
const REMOVE: &str = "DELETE FROM templates WHERE id = $1";
const REMOVE_VERSION: &str = "DELETE FROM template_versions WHERE template = $1 AND version = $2";

fn read_template(row: &Row) -> TxResult<Template> {
    Ok(Template {
        team: TeamId(row.try_get(0)?),
        id: row.try_get(1)?,
        name: row.try_get(2)?,
        version: row.try_get::<_, i32>(3)? as u32,
        created_at: Time(row.try_get(4)?),
        updated_at: Time(row.try_get(5)?),
        source: read_json(row.try_get(6)?, "a template")?,
    })
}

async fn by_key(
    client: &(impl GenericClient + ?Sized),
    team: TeamId,
    key: &TemplateKey,
    version: Option<u32>,
) -> TxResult<Option<Template>> {
    let version = version.map(|version| i32::try_from(version).unwrap_or(i32::MAX));
    let rows = match key {
        TemplateKey::Name(name) => query_rows(client, BY_NAME, &[&team.0, name, &version]).await?,
        TemplateKey::Id(id) => query_rows(client, BY_ID, &[&team.0, id, &version]).await?,
    };
    rows.first().map(read_template).transpose()
}

async fn count(tx: &Transaction<'_>, sql: &str, of: Uuid) -> TxResult<usize> {
    let rows = query_rows(tx, sql, &[&of]).await?;
    Ok(rows.first().map(|row| row.try_get::<_, i64>(0)).transpose()?.unwrap_or_default() as usize)
}

async fn insert_version(tx: &Transaction<'_>, template: &Template) -> TxResult<()> {
    let (version, source) = (template.version as i32, write_json(&template.source)?);
    execute(tx, INSERT_VERSION, &[&template.id, &version, &template.updated_at.0, &source]).await.map(drop)
}

async fn create(
    shared: &SharedState,
    template: &Template,
    operation: Option<&KeyedOperation>,
) -> TxResult<IdempotentResult<CreateTemplateResult>> {
    let (team, now) = (template.team, template.created_at);
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    if let Some(answer) = bind_or_replay(&tx, &shared.time, operation, now).await? {
        tx.rollback().await?;
        return Ok(answer);
    }
    execute(&tx, LOCK_TEAM, &[&team.0.to_string()]).await?;
    let taken = by_key(&tx, team, &TemplateKey::Name(template.name.clone()), None).await?;
    let refused = match taken {
        // The same id: this call is a retry.
        Some(taken) if taken.id == template.id => Some(CreateTemplateResult::Created(taken)),
        Some(taken) => Some(CreateTemplateResult::NameTaken(taken)),
        None if count(&tx, COUNT, team.0).await? >= limits::TEMPLATES => Some(CreateTemplateResult::TooMany),
        None => None,
    };
    if let Some(refused) = refused {
        tx.rollback().await?;
        return Ok(IdempotentResult::Done(refused));
    }
    let version = template.version as i32;
    execute(&tx, INSERT, &[&template.id, &team.0, &template.name, &version, &now.0]).await?;
    insert_version(&tx, template).await?;
    audit_chain::record_act(&tx, Act::of_template(None, Some(template)).as_ref(), now).await?;
    shared.commit(tx, 1).await?;
    Ok(IdempotentResult::Done(CreateTemplateResult::Created(template.clone())))
}

/// The newest version of a template, locked until the transaction ends.
async fn locked_newest(tx: &Transaction<'_>, team: TeamId, id: Uuid) -> TxResult<Option<Template>> {
    // Read after the lock: a version that another node just added must be seen.
    query_rows(tx, LOCK, &[&team.0, &id]).await?;
    by_key(tx, team, &TemplateKey::Id(id), None).await
}

async fn add_version(
    shared: &SharedState,
    (team, id): (TeamId, Uuid),
    (seen, source): &(u32, TemplateSource),
    now: Time,
) -> TxResult<AddVersionResult> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let Some(before) = locked_newest(&tx, team, id).await? else {
        tx.rollback().await?;
        return Ok(AddVersionResult::Missing);
    };
    let versions = count(&tx, COUNT_VERSIONS, id).await?;
    let result = AddVersionResult::decide(before.clone(), versions, (*seen, source.clone()), now);
    match &result {
        AddVersionResult::Added(added) if added.version != before.version => {
            insert_version(&tx, added).await?;
            execute(&tx, SET_NEWEST, &[&id, &(added.version as i32)]).await?;
            audit_chain::record_act(&tx, Act::of_template(Some(&before), Some(added)).as_ref(), now).await?;
            shared.commit(tx, 1).await?;
        }
        _ => tx.rollback().await?,
    }
    Ok(result)
}

async fn list(shared: &SharedState, team: TeamId, before: Option<Uuid>, limit: usize) -> TxResult<TemplatePage> {
    // Above every UUIDv7.
    let (before, more) = (before.unwrap_or(Uuid::max()), limit as i64 + 1);
    let rows = query_rows(&shared.connections.client().await?, LIST, &[&team.0, &before, &more]).await?;
    Ok(TemplatePage::from_rows(rows.iter().map(read_template).collect::<TxResult<_>>()?, limit))
}

async fn list_versions(shared: &SharedState, team: TeamId, id: Uuid) -> TxResult<Vec<(u32, Time)>> {
    let rows = query_rows(&shared.connections.client().await?, VERSIONS, &[&team.0, &id]).await?;
    rows.iter().map(|row| Ok((row.try_get::<_, i32>(0)? as u32, Time(row.try_get(1)?)))).collect()
}

async fn remove(shared: &SharedState, team: TeamId, id: Uuid, now: Time) -> TxResult<Option<Template>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let removed = locked_newest(&tx, team, id).await?;
    if let Some(removed) = &removed {
        execute(&tx, REMOVE, &[&id]).await?;
        audit_chain::record_act(&tx, Act::of_template(Some(removed), None).as_ref(), now).await?;
    }
    shared.commit(tx, 1).await?;
    Ok(removed)
}

async fn remove_version(
    shared: &SharedState,
    (team, id): (TeamId, Uuid),
    version: u32,
    now: Time,
) -> TxResult<Option<Template>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let is_newest = locked_newest(&tx, team, id).await?.is_none_or(|newest| newest.version == version);
    let found = by_key(&tx, team, &TemplateKey::Id(id), Some(version)).await?.filter(|_| !is_newest);
    if let Some(removed) = &found {
        execute(&tx, REMOVE_VERSION, &[&id, &(removed.version as i32)]).await?;
        audit_chain::record_act(&tx, Some(&Act::of_removed_version(removed)), now).await?;
    }
    shared.commit(tx, 1).await?;
    Ok(found)
}

async fn read(
    shared: &SharedState,
    team: TeamId,
    key: &TemplateKey,
    version: Option<u32>,
) -> TxResult<Option<Template>> {
    by_key(&shared.connections.client().await?, team, key, version).await
}

#[async_trait]
impl TemplateStore for Postgres {
    async fn create_template(
        &self,
        template: Template,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<CreateTemplateResult>> {
        when_durable!(self, call_until_final!(create(&self.shared, &template, operation.as_ref())))
    }

    async fn add_template_version(
        &self,
        team: TeamId,
        id: Uuid,
        version: (u32, TemplateSource),
        now: Time,
    ) -> Result<AddVersionResult> {
        when_durable!(self, call_until_final!(add_version(&self.shared, (team, id), &version, now)))
    }

    async fn template(&self, team: TeamId, key: TemplateKey, version: Option<u32>) -> Result<Option<Template>> {
        when_durable!(self, call_until_final!(read(&self.shared, team, &key, version)))
    }

    async fn templates(&self, team: TeamId, before: Option<Uuid>, limit: usize) -> Result<TemplatePage> {
        when_durable!(self, call_until_final!(list(&self.shared, team, before, limit)))
    }

    async fn template_versions(&self, team: TeamId, id: Uuid) -> Result<Vec<(u32, Time)>> {
        when_durable!(self, call_until_final!(list_versions(&self.shared, team, id)))
    }

    async fn remove_template(&self, team: TeamId, id: Uuid, now: Time) -> Result<Option<Template>> {
        when_durable!(self, call_until_final!(remove(&self.shared, team, id, now)))
    }

    async fn remove_template_version(
        &self,
        team: TeamId,
        id: Uuid,
        version: u32,
        now: Time,
    ) -> Result<Option<Template>> {
        when_durable!(self, call_until_final!(remove_version(&self.shared, (team, id), version, now)))
    }
}

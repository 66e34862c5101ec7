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
use rusqlite::{Connection, OptionalExtension as _, Params, Row, params, types::Type};
use uuid::Uuid;

use crate::sqlite::{
    Sqlite,
    control::audit,
    outbound::key_bindings::{self, unknown_team_error},
    rows::corrupt_row,
    schema::store_error,
    write_session::WriteSession,
};

macro_rules! templates {
    ($rest:literal) => {
        concat!(
            "SELECT t.id, t.name, v.version, t.created_at, v.created_at, v.source FROM templates t \
             JOIN template_versions v ON v.template = t.id WHERE t.team = ?1 AND ",
            $rest
        )
    };
}

const BY_NAME: &str = templates!("t.name = ?2 AND v.version = coalesce(?3, t.version)");
const BY_ID: &str = templates!("t.id = ?2 AND v.version = coalesce(?3, t.version)");
const LIST: &str = templates!("t.id < ?2 AND v.version = t.version ORDER BY t.id DESC LIMIT ?3");
const COUNT: &str = "SELECT count(*) FROM templates WHERE team = ?1";
const COUNT_VERSIONS: &str = "SELECT count(*) FROM template_versions WHERE template = ?1";
const VERSIONS: &str = "SELECT v.version, v.created_at FROM templates t JOIN template_versions v ON v.template = t.id \
     WHERE t.team = ?1 AND t.id = ?2 ORDER BY v.version DESC";
const INSERT: &str = "INSERT INTO templates (id, team, name, version, created_at) VALUES (?1, ?2, ?3, ?4, ?5) \
     ON CONFLICT DO NOTHING";
const INSERT_VERSION: &str =
    "INSERT INTO template_versions (template, version, created_at, source) VALUES (?1, ?2, ?3, ?4)";
const SET_NEWEST: &str = "UPDATE templates SET version = ?2 WHERE id = ?1";
const REMOVE: &str = "DELETE FROM templates WHERE id = ?1";
const REMOVE_VERSIONS: &str = "DELETE FROM template_versions WHERE template = ?1";
const REMOVE_VERSION: &str = "DELETE FROM template_versions WHERE template = ?1 AND version = ?2";

/// A team and its number.
type TeamRow = (TeamId, i64);

fn read_template(team: TeamId, row: &Row<'_>) -> rusqlite::Result<Template> {
    let source = serde_json::from_str(row.get_ref(5)?.as_str()?);
    Ok(Template {
        team,
        id: Uuid::from_bytes(row.get(0)?),
        name: row.get(1)?,
        version: row.get(2)?,
        created_at: Time(row.get(3)?),
        updated_at: Time(row.get(4)?),
        source: source.map_err(|error| rusqlite::Error::FromSqlConversionFailure(5, Type::Text, Box::new(error)))?,
    })
}

fn find(conn: &Connection, team: TeamId, sql: &str, asked: impl Params) -> Result<Option<Template>> {
    let mut statement = conn.prepare_cached(sql).map_err(store_error)?;
    statement.query_row(asked, |row| read_template(team, row)).optional().map_err(store_error)
}

fn by_key(
    conn: &Connection,
    (team, number): TeamRow,
    key: &TemplateKey,
    version: Option<u32>,
) -> Result<Option<Template>> {
    match key {
        TemplateKey::Name(name) => find(conn, team, BY_NAME, params![number, name, version]),
        TemplateKey::Id(id) => find(conn, team, BY_ID, params![number, id.as_bytes(), version]),
    }
}

fn list(conn: &Connection, (team, number): TeamRow, before: Option<Uuid>, limit: usize) -> Result<TemplatePage> {
    // Greater than every UUIDv7.
    let before = before.unwrap_or(Uuid::max());
    let mut statement = conn.prepare_cached(LIST).map_err(store_error)?;
    let rows = statement
        .query_map(params![number, before.as_bytes(), limit as i64 + 1], |row| read_template(team, row))
        .and_then(Iterator::collect)
        .map_err(store_error)?;
    Ok(TemplatePage::from_rows(rows, limit))
}

fn list_versions(conn: &Connection, number: i64, id: Uuid) -> Result<Vec<(u32, Time)>> {
    let mut statement = conn.prepare_cached(VERSIONS).map_err(store_error)?;
    let rows = statement.query_map(params![number, id.as_bytes()], |row| Ok((row.get(0)?, Time(row.get(1)?))));
    rows.and_then(Iterator::collect).map_err(store_error)
}

fn count(conn: &Connection, sql: &str, asked: impl Params) -> Result<usize> {
    let mut statement = conn.prepare_cached(sql).map_err(store_error)?;
    statement.query_row(asked, |row| row.get::<_, i64>(0)).map(|count| count as usize).map_err(store_error)
}

fn insert_version(ledger: &WriteSession<'_>, template: &Template) -> Result<()> {
    let source = serde_json::to_string(&template.source).unwrap_or_default();
    let row = params![template.id.as_bytes(), template.version, template.updated_at.0, source];
    ledger.execute(INSERT_VERSION, row).map(drop)
}

fn create(
    ledger: &mut WriteSession<'_>,
    template: Template,
    operation: Option<&KeyedOperation>,
) -> Result<IdempotentResult<CreateTemplateResult>> {
    let (team, now) = (template.team, template.created_at);
    let number = ledger.team_number(team).ok_or_else(|| unknown_team_error(team))?;
    if let Some(operation) = operation
        && let Some(answer) = key_bindings::find_replay(ledger, operation, now)?
    {
        return Ok(answer);
    }
    let name = TemplateKey::Name(template.name.clone());
    if let Some(taken) = by_key(ledger.conn, (team, number), &name, None)? {
        // The same id: this call is a retry.
        let again = taken.id == template.id;
        return Ok(IdempotentResult::Done(if again {
            CreateTemplateResult::Created(taken)
        } else {
            CreateTemplateResult::NameTaken(taken)
        }));
    }
    if count(ledger.conn, COUNT, [number])? >= limits::TEMPLATES {
        return Ok(IdempotentResult::Done(CreateTemplateResult::TooMany));
    }
    let row = params![template.id.as_bytes(), number, template.name, template.version, now.0];
    if ledger.execute(INSERT, row)? != 1 {
        return Err(corrupt_row("the id of a new template is taken"));
    }
    insert_version(ledger, &template)?;
    if let Some(operation) = operation {
        key_bindings::bind_operation(ledger, operation)?;
    }
    audit::record_act(ledger, Act::of_template(None, Some(&template)), now)?;
    Ok(IdempotentResult::Done(CreateTemplateResult::Created(template)))
}

fn add_version(
    ledger: &mut WriteSession<'_>,
    (team, id): (TeamId, Uuid),
    version: (u32, TemplateSource),
    now: Time,
) -> Result<AddVersionResult> {
    let Some(before) = newest(ledger, team, id)? else { return Ok(AddVersionResult::Missing) };
    let versions = count(ledger.conn, COUNT_VERSIONS, [id.as_bytes()])?;
    let result = AddVersionResult::decide(before.clone(), versions, version, now);
    if let AddVersionResult::Added(added) = &result
        && added.version != before.version
    {
        insert_version(ledger, added)?;
        ledger.execute(SET_NEWEST, params![id.as_bytes(), added.version])?;
        audit::record_act(ledger, Act::of_template(Some(&before), Some(added)), now)?;
    }
    Ok(result)
}

fn newest(ledger: &WriteSession<'_>, team: TeamId, id: Uuid) -> Result<Option<Template>> {
    let Some(number) = ledger.team_number(team) else { return Ok(None) };
    by_key(ledger.conn, (team, number), &TemplateKey::Id(id), None)
}

fn remove(ledger: &mut WriteSession<'_>, team: TeamId, id: Uuid, now: Time) -> Result<Option<Template>> {
    let Some(removed) = newest(ledger, team, id)? else { return Ok(None) };
    ledger.execute(REMOVE, [id.as_bytes()])?;
    ledger.execute(REMOVE_VERSIONS, [id.as_bytes()])?;
    audit::record_act(ledger, Act::of_template(Some(&removed), None), now)?;
    Ok(Some(removed))
}

fn remove_version(
    ledger: &mut WriteSession<'_>,
    (team, id): (TeamId, Uuid),
    version: u32,
    now: Time,
) -> Result<Option<Template>> {
    let Some(number) = ledger.team_number(team) else { return Ok(None) };
    let is_newest = newest(ledger, team, id)?.is_none_or(|newest| newest.version == version);
    let found = by_key(ledger.conn, (team, number), &TemplateKey::Id(id), Some(version))?.filter(|_| !is_newest);
    if let Some(removed) = &found {
        ledger.execute(REMOVE_VERSION, params![id.as_bytes(), version])?;
        audit::record_act(ledger, Some(Act::of_removed_version(removed)), now)?;
    }
    Ok(found)
}

#[async_trait]
impl TemplateStore for Sqlite {
    async fn create_template(
        &self,
        template: Template,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<CreateTemplateResult>> {
        self.run_write(move |ledger| create(ledger, template, operation.as_ref())).await
    }

    async fn add_template_version(
        &self,
        team: TeamId,
        id: Uuid,
        version: (u32, TemplateSource),
        now: Time,
    ) -> Result<AddVersionResult> {
        self.run_write(move |ledger| add_version(ledger, (team, id), version, now)).await
    }

    async fn template(&self, team: TeamId, key: TemplateKey, version: Option<u32>) -> Result<Option<Template>> {
        let Some(number) = self.team_number(team) else { return Ok(None) };
        self.run_query(move |conn| by_key(conn, (team, number), &key, version)).await
    }

    async fn templates(&self, team: TeamId, before: Option<Uuid>, limit: usize) -> Result<TemplatePage> {
        let Some(number) = self.team_number(team) else { return Ok(TemplatePage::from_rows(Vec::new(), limit)) };
        self.run_query(move |conn| list(conn, (team, number), before, limit)).await
    }

    async fn template_versions(&self, team: TeamId, id: Uuid) -> Result<Vec<(u32, Time)>> {
        let Some(number) = self.team_number(team) else { return Ok(Vec::new()) };
        self.run_query(move |conn| list_versions(conn, number, id)).await
    }

    async fn remove_template(&self, team: TeamId, id: Uuid, now: Time) -> Result<Option<Template>> {
        self.run_write(move |ledger| remove(ledger, team, id, now)).await
    }

    async fn remove_template_version(
        &self,
        team: TeamId,
        id: Uuid,
        version: u32,
        now: Time,
    ) -> Result<Option<Template>> {
        self.run_write(move |ledger| remove_version(ledger, (team, id), version, now)).await
    }
}

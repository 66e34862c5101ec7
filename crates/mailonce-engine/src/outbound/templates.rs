//! Templates: stored wording of emails. A send that names one is rendered before any guard looks at it, so that guards,
//! approvals and recipients all see the same email.

use crate::{
    access::caller::Caller,
    outbound::keyed_send::KeyedSend,
    runtime::{
        blocking::run_blocking,
        context::Context,
        keyed_call::{KeyedCall, operation},
        problems::{key_mismatch, unavailable},
        records::{CreateOutcome, CursorPage},
    },
};
use mailonce_core::{
    access::team::ApiKeyScope,
    id::TeamId,
    limits,
    operation::IdempotentResult,
    outbound::template::{
        AddVersionResult, CreateTemplateResult, Template, TemplateKey, TemplateRef, TemplateSource, TemplateVariable,
        check_variables, name_error,
    },
    problem::{Code, Problem, shorten},
    time::Time,
};
use mailonce_mail::template;
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, sync::Arc};
use uuid::Uuid;

pub use mailonce_mail::template::{RenderedTemplate, TemplateError};

/// How often a change is repeated when another change was faster.
const MAX_CONFLICT_RETRIES: usize = 8;

/// What a validation found.
#[derive(Clone, Debug)]
pub struct TemplateCheck {
    /// What is wrong, one entry for each part. Empty if the template can be rendered.
    pub errors: Vec<TemplateError>,
    /// The variables that it declares or uses.
    pub variables: BTreeMap<String, TemplateVariable>,
    /// Required variables without a value.
    pub missing: Vec<String>,
    /// Values for variables that it neither declares nor uses.
    pub unused: Vec<String>,
}

fn not_found(name: &str) -> Problem {
    Problem::new(Code::NotFound, format!("there is no template {}", shorten(name)))
}

/// The problem for a template with these errors. The first one is described, and all are listed.
fn template_problem(name: &str, errors: &[TemplateError]) -> Problem {
    let Some(first) = errors.first() else { return Problem::new(Code::Internal, "a template error without a reason") };
    let part = first.part.as_str();
    let line = first.line.map(|line| format!(", line {line}")).unwrap_or_default();
    let detail = format!("template {}, {part}{line}: {}", shorten(name), first.message);
    let mut problem = Problem::for_field(Code::TemplateError, part, detail)
        .with_extension("template", name)
        .with_extension("part", part)
        .with_extension("errors", errors.iter().map(error_json).collect::<Vec<_>>());
    if let Some(line) = first.line {
        problem = problem.with_extension("line", line);
    }
    if let Some(variable) = &first.variable {
        problem = problem.with_extension("variable", variable.clone());
    }
    problem
}

fn error_json(error: &TemplateError) -> Value {
    json!({ "part": error.part.as_str(), "line": error.line, "variable": error.variable, "message": error.message })
}

/// Compiles a template, and adds the variables that it uses to those that it declares.
fn compile(name: &str, mut source: TemplateSource) -> Result<TemplateSource, Problem> {
    source.validate()?;
    let used = template::check(&source).map_err(|errors| template_problem(name, &errors))?;
    // A variable that is neither used nor has a default says nothing, and may be left over from an earlier wording.
    source.variables.retain(|name, variable| variable.default.is_some() || used.contains(name));
    for variable in used {
        source.variables.entry(variable).or_default();
    }
    Ok(source)
}

/// Stored wording of emails, in versions.
pub struct Templates {
    ctx: Arc<Context>,
}

impl Templates {
    pub(super) fn new(ctx: Arc<Context>) -> Self {
        Self { ctx }
    }

    fn require_template_admin(caller: &Caller) -> Result<(), Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        caller.require_unrestricted_key()
    }

    fn require_template_reader(caller: &Caller) -> Result<(), Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        caller.require_unrestricted_key()
    }

    /// Creates a template in its first version.
    pub async fn create_template(
        &self,
        caller: &Caller,
        name: String,
        source: TemplateSource,
        keyed_call: Option<KeyedCall>,
    ) -> Result<CreateOutcome<Template>, Problem> {
        Self::require_template_admin(caller)?;
        if let Some(message) = name_error(&name) {
            return Err(Problem::invalid_field("name", message));
        }
        let source = compile(&name, source)?;
        let (team, now) = (caller.team.id, self.ctx.now());
        let id = self.ctx.new_id(now);
        let template = Template { team, id, name: name.clone(), version: 1, created_at: now, updated_at: now, source };
        let operation = operation(caller, keyed_call.as_ref(), id.as_bytes().to_vec(), now);
        match self.ctx.store.create_template(template, operation).await.map_err(unavailable)? {
            IdempotentResult::Done(CreateTemplateResult::Created(value)) => Ok(CreateOutcome { value, is_new: true }),
            IdempotentResult::Done(CreateTemplateResult::NameTaken(taken)) => {
                let detail = format!("the template {} already exists; change it with PATCH", taken.name);
                let problem = Problem::for_field(Code::NameTaken, "name", detail);
                Err(problem.with_extension("id", taken.id.to_string()))
            }
            IdempotentResult::Done(CreateTemplateResult::TooMany) => {
                let text = format!("is one too many: a team can have at most {} templates", limits::TEMPLATES);
                Err(Problem::invalid_field("name", text))
            }
            IdempotentResult::Replayed(answer) => {
                // Another template may have the name by now.
                let first = Uuid::from_slice(&answer).map_or(name, |id| id.to_string());
                let value = self.find_template(team, &first, None).await?.ok_or_else(|| not_found(&first))?;
                Ok(CreateOutcome { value, is_new: false })
            }
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }

    async fn find_template(&self, team: TeamId, name: &str, version: Option<u32>) -> Result<Option<Template>, Problem> {
        self.ctx.store.template(team, TemplateKey::parse(name), version).await.map_err(unavailable)
    }

    /// A template by its name or id; the newest version without a number.
    pub async fn template(&self, caller: &Caller, name: &str, version: Option<u32>) -> Result<Template, Problem> {
        Self::require_template_reader(caller)?;
        let found = self.find_template(caller.team.id, name, version).await?;
        found.ok_or_else(|| match version {
            None => not_found(name),
            Some(version) => not_found(&format!("{} in version {version}", shorten(name))),
        })
    }

    /// The team's templates in their newest version, newest first.
    pub async fn templates(
        &self,
        caller: &Caller,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<CursorPage<Template>, Problem> {
        Self::require_template_reader(caller)?;
        let page = self.ctx.store.templates(caller.team.id, before, limit).await.map_err(unavailable)?;
        Ok(CursorPage { rows: page.rows, next: page.next })
    }

    /// The versions of a template and when they were created, newest first.
    pub async fn template_versions(&self, caller: &Caller, id: Uuid) -> Result<Vec<(u32, Time)>, Problem> {
        Self::require_template_reader(caller)?;
        self.ctx.store.template_versions(caller.team.id, id).await.map_err(unavailable)
    }

    /// Changes a template, which adds a version. A change that changes nothing adds none. With `seen`, that must still be
    /// the newest version.
    pub async fn change_template(
        &self,
        caller: &Caller,
        name: &str,
        seen: Option<u32>,
        change: impl Fn(&mut TemplateSource),
    ) -> Result<Template, Problem> {
        Self::require_template_admin(caller)?;
        let team = caller.team.id;
        for _ in 0..MAX_CONFLICT_RETRIES {
            let newest = self.find_template(team, name, None).await?.ok_or_else(|| not_found(name))?;
            let mut source = newest.source.clone();
            change(&mut source);
            let source = compile(&newest.name, source)?;
            if source == newest.source {
                return Ok(newest);
            }
            let base = seen.unwrap_or(newest.version);
            let added = self.ctx.store.add_template_version(team, newest.id, (base, source), self.ctx.now()).await;
            match added.map_err(unavailable)? {
                AddVersionResult::Added(template) => return Ok(template),
                AddVersionResult::Missing => return Err(not_found(name)),
                AddVersionResult::TooMany => {
                    let most = limits::TEMPLATE_VERSIONS;
                    let text = format!(
                        "has {most} versions, and cannot have more: remove old ones with DELETE /v1/templates/{}?version=…",
                        newest.name
                    );
                    return Err(Problem::invalid_field("version", text));
                }
                AddVersionResult::Stale(current) => {
                    if let Some(seen) = seen {
                        let (name, version) = (&current.name, current.version);
                        let detail = format!("the template {name} changed since version {seen}; it is at {version}");
                        return Err(Problem::new(Code::StaleRev, detail).with_extension("version", version));
                    }
                }
            }
        }
        Err(Problem::new(Code::Unavailable, "the template is changed by many calls at once; send the same call again"))
    }

    /// Removes a template with all versions, or one old version. Emails that were written with it stay as they are.
    pub async fn remove_template(
        &self,
        caller: &Caller,
        name: &str,
        version: Option<u32>,
    ) -> Result<Template, Problem> {
        Self::require_template_admin(caller)?;
        let (team, now) = (caller.team.id, self.ctx.now());
        let found = self.find_template(team, name, version).await?.ok_or_else(|| not_found(name))?;
        let removed = match version {
            None => self.ctx.store.remove_template(team, found.id, now).await,
            Some(version) => self.ctx.store.remove_template_version(team, found.id, version, now).await,
        };
        removed.map_err(unavailable)?.ok_or_else(|| match version {
            None => not_found(name),
            Some(version) => {
                let detail = format!("version {version} is the newest, which stays; remove the whole template instead");
                Problem::invalid_query("version", detail)
            }
        })
    }

    /// What an email with this template and these variables would say.
    pub async fn preview_template(
        &self,
        caller: &Caller,
        (name, version): (&str, Option<u32>),
        variables: Map<String, Value>,
    ) -> Result<(Template, RenderedTemplate), Problem> {
        let variables = check_values(variables)?;
        let template = self.template(caller, name, version).await?;
        let rendered = render(&template, variables).await?;
        Ok((template, rendered))
    }

    /// Checks a template, with changes that are not stored, and with variables if they are given.
    pub async fn validate_template(
        &self,
        caller: &Caller,
        (name, version): (&str, Option<u32>),
        change: impl FnOnce(&mut TemplateSource),
        values: Option<Map<String, Value>>,
    ) -> Result<TemplateCheck, Problem> {
        let values = values.map(check_values).transpose()?;
        let mut template = self.template(caller, name, version).await?;
        change(&mut template.source);
        template.source.validate()?;
        let checked = run_blocking(move || check_source(template.source, values)).await;
        checked.map_err(|error| Problem::new(Code::Internal, error.to_string()))
    }

    /// Writes subject and bodies of a send that names a template. Any other send is left as it is.
    ///
    /// A retry of an accepted email may come here before its key is looked up: its answer never depends on what is
    /// rendered, because the digest covers only the name of the template and its variables.
    pub(crate) async fn render_send(&self, caller: &Caller, keyed: &mut KeyedSend) -> Result<(), Problem> {
        let content = &mut keyed.request.content;
        let Some(used) = content.template.as_ref().filter(|_| content.text.is_none() && content.html.is_none()) else {
            return Ok(());
        };
        let found = self.find_template(caller.team.id, &used.name, used.version).await?;
        let template = found.ok_or_else(|| {
            let version = used.version.map(|version| format!(" in version {version}")).unwrap_or_default();
            let detail = format!("template.name names no template of the team: {}{version}", shorten(&used.name));
            Problem::for_field(Code::TemplateError, "template.name", detail).with_extension("template", &*used.name)
        })?;
        let RenderedTemplate { subject, text, html } = render(&template, used.variables.clone()).await?;
        content.set_rendered(template.version, (subject, text, html)).map_err(|faults| {
            let problem = Problem::from(faults);
            let detail = format!("template {}: {}", template.name, problem.detail);
            Problem { code: Code::TemplateError, detail, ..problem }.with_extension("template", template.name.clone())
        })?;
        keyed.template = Some(TemplateRef { name: template.name, version: template.version });
        Ok(())
    }
}

/// Checks variables as a send does, so that a preview shows what would be sent.
fn check_values(values: Map<String, Value>) -> Result<Map<String, Value>, Problem> {
    check_variables(values).map_err(|message| Problem::invalid_field("variables", message))
}

async fn render(template: &Template, variables: Map<String, Value>) -> Result<RenderedTemplate, Problem> {
    let source = template.source.clone();
    let rendered = run_blocking(move || template::render(&source, &variables)).await;
    let rendered = rendered.map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    rendered.map_err(|error| template_problem(&template.name, &[error]))
}

fn check_source(mut source: TemplateSource, values: Option<Map<String, Value>>) -> TemplateCheck {
    let mut errors = Vec::new();
    match template::check(&source) {
        Ok(used) => used.into_iter().for_each(|name| {
            source.variables.entry(name).or_default();
        }),
        Err(found) => errors = found,
    }
    let (mut missing, mut unused) = (Vec::new(), Vec::new());
    if let Some(values) = &values {
        let is_missing = |(name, variable): &(&String, &TemplateVariable)| {
            variable.default.is_none() && values.get(*name).is_none_or(Value::is_null)
        };
        missing = source.variables.iter().filter(is_missing).map(|(name, _)| name.clone()).collect();
        unused = values.keys().filter(|name| !source.variables.contains_key(*name)).cloned().collect();
        if errors.is_empty() {
            errors.extend(template::render(&source, values).err());
        }
    }
    TemplateCheck { errors, variables: source.variables, missing, unused }
}

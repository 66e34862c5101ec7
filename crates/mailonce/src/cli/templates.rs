//! `templates`: stored wording of emails.

use anyhow::Context as _;
use clap::{Args, Subcommand};
use hyper::Method;
use mailonce_transport::http::base::percent_encode;
use serde_json::{Map, Value, json};
use std::{path::PathBuf, process::ExitCode};

use super::{
    ServerArgs, UsageError,
    client::{CliClient, ServerProblem},
    inbox::show,
    listing::show_rows,
};
use crate::cli::printer::{Printer, field_text};

#[derive(Debug, Subcommand)]
pub(crate) enum TemplatesVerb {
    /// List the templates in their newest version
    List(ServerArgs),
    /// Show a template, with the variables that it needs
    Show(VersionArgs),
    /// Create a template, or add a version to it
    Set(SetArgs),
    /// Show what an email with a template would say
    Preview(PreviewArgs),
    /// Remove a template with all its versions
    Remove(NameArgs),
}

/// A template.
#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Name of the template
    name: String,
}

/// A version of a template.
#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    #[command(flatten)]
    template: NameArgs,
    /// Number of the version; the newest by default
    #[arg(long, value_name = "N")]
    version: Option<u32>,
}

/// The file with a template.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// File with the JSON of `POST /v1/templates`: name, subject, text, html, variables
    file: PathBuf,
}

/// What to fill in.
#[derive(Debug, Args)]
pub(crate) struct PreviewArgs {
    #[command(flatten)]
    template: VersionArgs,
    /// Values as a JSON object, such as '{"name": "Ada"}'
    #[arg(long, value_name = "JSON", default_value = "{}")]
    variables: String,
}

const TEMPLATE_FIELDS: &[&str] =
    &["id", "name", "version", "subject", "text", "html", "variables", "created_at", "updated_at"];

/// Runs a verb of `templates`.
pub(super) async fn templates(out: &Printer, verb: TemplatesVerb) -> anyhow::Result<ExitCode> {
    match verb {
        TemplatesVerb::List(server) => list(out, &server).await?,
        TemplatesVerb::Show(VersionArgs { template, version }) => {
            let query = version.map(|version| format!("?version={version}")).unwrap_or_default();
            let path = format!("{}{query}", path_of(&template.name));
            show_template(out, CliClient::find(&template.server)?.get(&path).await?);
        }
        TemplatesVerb::Set(args) => set(out, &args).await?,
        TemplatesVerb::Preview(args) => preview(out, &args).await?,
        TemplatesVerb::Remove(NameArgs { server, name }) => {
            let (_, removed) = CliClient::find(&server)?.call(Method::DELETE, &path_of(&name), None, None).await?;
            show_template(out, removed);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn path_of(name: &str) -> String {
    format!("/v1/templates/{}", percent_encode(name))
}

/// Variables are listed by name; those with a default show it.
fn show_template(out: &Printer, mut template: Value) {
    if !out.is_json() {
        let variables = template["variables"].as_object().cloned().unwrap_or_default();
        template["variables"] = variables_text(&variables).into();
    }
    show(out, &template, TEMPLATE_FIELDS);
}

fn variables_text(variables: &Map<String, Value>) -> String {
    let variable = |(name, variable): (&String, &Value)| match &variable["default"] {
        Value::Null => name.clone(),
        default => format!("{name}={default}"),
    };
    variables.iter().map(variable).collect::<Vec<_>>().join(", ")
}

async fn list(out: &Printer, server: &ServerArgs) -> anyhow::Result<()> {
    let page = CliClient::find(server)?.get("/v1/templates?limit=100").await?;
    show_rows(out, &page, &["name", "version", "subject", "variables", "updated_at"], |template| {
        let variables = template["variables"].as_object().map(variables_text).unwrap_or_default();
        let text = |name: &str| field_text(template, name);
        vec![text("name"), text("version"), text("subject"), variables, text("updated_at")]
    });
    Ok(())
}

/// Changes the template if there is one, else creates it. The file is the whole template: a part that it leaves out is
/// removed.
async fn set(out: &Printer, args: &SetArgs) -> anyhow::Result<()> {
    let shown = args.file.display();
    let text = std::fs::read_to_string(&args.file).with_context(|| format!("reading {shown}"))?;
    let parsed = serde_json::from_str::<Value>(&text).map_err(|error| UsageError(format!("{shown}: {error}")))?;
    let name = parsed["name"].as_str().ok_or_else(|| UsageError(format!("{shown} has no \"name\"")))?;
    let client = CliClient::find(&args.server)?;
    let mut patch = json!({ "text": "", "html": "", "variables": {} });
    for (field, value) in parsed.as_object().into_iter().flatten().filter(|(field, _)| *field != "name") {
        patch[field] = value.clone();
    }
    let template = match client.call(Method::PATCH, &path_of(name), None, Some(&patch)).await {
        Err(error) if is_missing(&error) => client.call(Method::POST, "/v1/templates", None, Some(&parsed)).await?.1,
        changed => changed?.1,
    };
    show_template(out, template);
    Ok(())
}

fn is_missing(error: &anyhow::Error) -> bool {
    error.downcast_ref::<ServerProblem>().is_some_and(|problem| problem.0["code"] == "not_found")
}

async fn preview(out: &Printer, args: &PreviewArgs) -> anyhow::Result<()> {
    let VersionArgs { template, version } = &args.template;
    let variables: Value = serde_json::from_str(&args.variables)
        .map_err(|error| UsageError(format!("--variables must be a JSON object: {error}")))?;
    let body = json!({ "variables": variables, "version": version });
    let path = format!("{}/preview", path_of(&template.name));
    let (_, rendered) = CliClient::find(&template.server)?.call(Method::POST, &path, None, Some(&body)).await?;
    show(out, &rendered, &["name", "version", "subject", "text", "html"]);
    Ok(())
}

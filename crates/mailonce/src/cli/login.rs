//! `login`: makes a link that signs a person in.

use clap::Args;
use hyper::Method;
use mailonce_core::{
    access::person::{Person, Role},
    problem::Code,
};
use mailonce_engine::Engine;
use serde_json::{Value, json};
use std::process::ExitCode;

use super::{
    UsageError,
    admin::problem_error,
    api_keys::{Target, TargetArgs, TeamArg, find_team},
    client::{CliClient, ServerProblem},
};
use crate::{
    api::access::people::sign_in_url,
    cli::{
        error::CliError,
        printer::{Printer, display_text, print_stderr},
    },
};

/// A person to sign in.
#[derive(Debug, Args)]
pub(crate) struct LoginArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    team: TeamArg,
    /// Name under which the person was added; a person with a new name is added
    #[arg(long)]
    name: String,
    /// What the person may do: viewer, approver or admin
    #[arg(long)]
    role: String,
    /// Email address of the person, to which notices go
    #[arg(long, value_name = "EMAIL")]
    address: Option<String>,
    /// Let the person manage the installation too: teams, transports and stops; only on the ledger itself
    #[arg(long)]
    operator: bool,
}

/// Makes the link, and prints it.
pub(super) async fn login(out: &Printer, args: &LoginArgs) -> anyhow::Result<ExitCode> {
    let unknown = || UsageError(format!("--role {} is not one of viewer, approver, admin", args.role));
    let role = Role::parse(&args.role).ok_or_else(unknown)?;
    let link = match args.target.open().await? {
        Target::Server(client) => {
            args.team.require_own(&client).await?;
            if args.operator {
                let detail = "--operator works only on the ledger of a stopped server, or on PostgreSQL without --url";
                return Err(UsageError(detail.into()).into());
            }
            ask_server(&client, args, role).await?
        }
        Target::Ledger(engine) => {
            let link = link_in_ledger(&engine, args, role).await;
            engine.ctx.store().close().await;
            link?
        }
    };
    if out.is_json() {
        out.print_json(&link);
    } else {
        out.print_line(&display_text(&link["url"]));
        let expires_at = display_text(&link["expires_at"]);
        print_stderr(&format!("Signs {} in as {}, once, until {expires_at}.", args.name, role.as_str()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Adds the person, or takes the one who was added under the name. Nobody is looked up by the name that is shown, because
/// people whom an identity provider vouches for choose theirs.
async fn ask_server(client: &CliClient, args: &LoginArgs, role: Role) -> anyhow::Result<Value> {
    let body = json!({ "name": args.name, "role": role.as_str(), "address": args.address });
    let person = match client.call(Method::POST, "/v1/people", None, Some(&body)).await {
        Ok((_, person)) => person,
        Err(error) => {
            let id = id_of_taken_name(&error).ok_or(error)?;
            let person = client.get(&format!("/v1/people/{id}")).await?;
            require_same_name(&args.name, &display_text(&person["name"]), &id)?;
            change_person(client, person, args, role).await?
        }
    };
    let path = format!("/v1/people/{}/sign-in-links", display_text(&person["id"]));
    Ok(client.call(Method::POST, &path, None, None).await?.1)
}

/// The id of the person who was added under the name before, if that is why the server refused.
fn id_of_taken_name(error: &anyhow::Error) -> Option<String> {
    let ServerProblem(problem) = error.downcast_ref()?;
    let id = problem["id"].as_str().filter(|_| problem["code"] == Code::NameTaken.as_str());
    id.map(str::to_owned)
}

/// Refuses a person who has another name since: whoever typed the name may mean somebody else.
fn require_same_name(added_as: &str, name: &str, id: &str) -> anyhow::Result<()> {
    if name == added_as.trim() {
        return Ok(());
    }
    let detail = format!("the person who was added as \"{added_as}\" has the name \"{name}\" now");
    let next = format!(
        "make the link in the dashboard under Set-up, People, or with POST /v1/people/{id}/sign-in-links; use another \
         --name to add somebody"
    );
    Err(CliError::new(Code::NameTaken.as_str(), detail, next).into())
}

/// Gives a known person the role and address of the command line.
async fn change_person(client: &CliClient, person: Value, args: &LoginArgs, role: Role) -> anyhow::Result<Value> {
    let has_address = args.address.as_ref().is_none_or(|address| person["address"] == **address);
    if person["role"] == role.as_str() && has_address {
        return Ok(person);
    }
    let mut body = json!({ "rev": person["rev"], "role": role.as_str() });
    if let Some(address) = &args.address {
        body["address"] = json!(address);
    }
    let path = format!("/v1/people/{}", display_text(&person["id"]));
    Ok(client.call(Method::PATCH, &path, None, Some(&body)).await?.1)
}

async fn link_in_ledger(engine: &Engine, args: &LoginArgs, role: Role) -> anyhow::Result<Value> {
    let team = find_team(engine, args.team.name()).await?;
    if let Some(known) = engine.people.find_person_by_initial_name(team, &args.name).await.map_err(problem_error)? {
        require_same_name(&args.name, &known.person.name, &known.id.to_string())?;
    }
    let person = Person {
        name: args.name.clone(),
        address: args.address.clone(),
        role,
        operator: args.operator,
        signed_out_at: None,
        sign_outs: 0,
    };
    let link = engine.people.create_sign_in_link_directly(team, person, false).await.map_err(problem_error)?;
    let url = sign_in_url(&args.target.public_url()?, &link.token);
    Ok(json!({ "url": url, "expires_at": link.expires_at.to_string() }))
}

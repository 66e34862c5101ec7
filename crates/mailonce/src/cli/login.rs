//! `login`: makes a link that signs a person in.

use clap::Args;
use hyper::Method;
use mailonce_core::access::person::{Person, Role};
use mailonce_engine::Engine;
use serde_json::{Value, json};
use std::process::ExitCode;

use super::{
    UsageError,
    admin::problem_error,
    api_keys::{Target, TargetArgs, TeamArg, find_team},
    client::CliClient,
};
use crate::{
    api::access::people::sign_in_url,
    cli::printer::{Printer, display_text, print_stderr},
};

/// A person to sign in.
#[derive(Debug, Args)]
pub(crate) struct LoginArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    team: TeamArg,
    /// Name of the person; one who is unknown is added
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
            args.team.require_own()?;
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

async fn ask_server(client: &CliClient, args: &LoginArgs, role: Role) -> anyhow::Result<Value> {
    let person = if let Some(person) = find_person(client, &args.name).await? {
        change_person(client, person, args, role).await?
    } else {
        let body = json!({ "name": args.name, "role": role.as_str(), "address": args.address });
        client.call(Method::POST, "/v1/people", None, Some(&body)).await?.1
    };
    let path = format!("/v1/people/{}/sign-in-links", display_text(&person["id"]));
    Ok(client.call(Method::POST, &path, None, None).await?.1)
}

async fn find_person(client: &CliClient, name: &str) -> anyhow::Result<Option<Value>> {
    let mut cursor = String::new();
    loop {
        let page = client.get(&format!("/v1/people?limit=100{cursor}")).await?;
        let mut people = page["data"].as_array().into_iter().flatten();
        if let Some(person) = people.find(|person| person["name"] == name) {
            return Ok(Some(person.clone()));
        }
        let Some(next) = page["next_cursor"].as_str() else { return Ok(None) };
        cursor = format!("&cursor={next}");
    }
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
    let person = Person {
        name: args.name.clone(),
        address: args.address.clone(),
        role,
        operator: args.operator,
        signed_out_at: None,
    };
    let link = engine.access.create_sign_in_link_directly(team, person, false).await.map_err(problem_error)?;
    let url = sign_in_url(&args.target.public_url()?, &link.token);
    Ok(json!({ "url": url, "expires_at": link.expires_at.to_string() }))
}

//! The contract of the AgentMail dialect: its base path, its channel and its error format.

use axum::response::Response;
use mailonce_core::{outbound::email::Channel, problem::Problem};

use super::errors;
use crate::dialects::{DialectContract, DialectResult};

/// The base path of the dialect.
pub(crate) const ROOT: &str = "/compat/agentmail/v0";

/// The AgentMail API contract.
pub(crate) struct AgentMail;

/// What a handler returns.
pub(super) type AgentMailResult = DialectResult<AgentMail>;

impl DialectContract for AgentMail {
    const CHANNEL: Channel = Channel::Agentmail;

    fn unauthorized() -> Response {
        errors::unauthorized()
    }

    fn error_response(problem: &Problem) -> Response {
        errors::problem_response(problem)
    }
}

//! useSend's dialect: `/compat/usesend` in the place of `https://app.usesend.com`; its SDKs append `/api/v1`.

mod domains;
mod emails;
mod refuse;
mod send;
pub(crate) mod word;

use axum::{
    Router,
    http::{HeaderMap, StatusCode, header},
    response::Response,
    routing::{get, post, put},
};
use mailonce_core::{
    email::Channel,
    id::ordered_bits,
    problem::{Code, Problem},
};
use uuid::Uuid;

use super::{Contract, Named, Queried, Refusal, Said, Spoken, Visitor, json};
use crate::api::App;

/// The largest number that its SDKs read unchanged.
const NUMBERS: i64 = (1 << 53) - 1;

/// The contract.
pub(crate) struct Usesend;

/// Who calls.
type Guest = Visitor<Usesend>;
/// What the body says.
type Body = Said<Usesend>;
/// What a handler gives back.
type Answer = Spoken<Usesend>;
/// A path with one name.
type One = Named<String, Usesend>;

impl Contract for Usesend {
    const CHANNEL: Channel = Channel::Usesend;

    /// The second word, whatever the first one is.
    fn credential(headers: &HeaderMap) -> Option<&str> {
        let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        text.split(' ').nth(1).filter(|credential| !credential.is_empty())
    }

    fn nobody() -> Response {
        refuse::error(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", "No Authorization header provided")
    }

    fn refused(problem: &Problem) -> Response {
        refuse::refused(problem)
    }
}

/// Every route of the dialect. What is not here is not found, in its own words.
pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/emails", post(send::send).get(emails::list))
        .route("/emails/batch", post(send::batch))
        .route("/emails/{id}", get(emails::read).patch(emails::reschedule))
        .route("/emails/{id}/cancel", post(emails::cancel))
        .route("/domains", get(domains::list).post(domains::create))
        .route("/domains/{id}", get(domains::read).delete(domains::remove))
        .route("/domains/{id}/verify", put(domains::verify))
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
}

/// The body is read to its end, so that who still sends it hears the answer.
async fn no_such_path(_: Guest, _: Body) -> Refusal<Usesend> {
    let detail = "This route is not available here: mailonce sends and receives email, and has no contacts, campaigns or analytics";
    Problem::new(Code::NotFound, detail).into()
}

async fn no_such_method(_: Guest, _: Body) -> Refusal<Usesend> {
    Problem::new(Code::MethodNotAllowed, "This path does not take this method").into()
}

/// A number for an id, where the dialect has numbers.
fn number(id: Uuid) -> i64 {
    ordered_bits(id) & NUMBERS
}

//! Bodies of our own API.

use mailonce_core::{limits, outbound::digest::Digest};

use super::{FuzzResult, InputOutcome, ensure_holds};

/// `POST /v1/emails`.
pub fn send(bytes: &[u8]) -> FuzzResult {
    let request = match mailonce::api::parse_send(bytes) {
        Ok(request) => request,
        Err(problem) => {
            ensure_holds(!problem.detail.is_empty(), "a refusal without a reason")?;
            return Ok(InputOutcome::Rejected);
        }
    };
    let content = &request.content;
    ensure_holds((1..=limits::RECIPIENTS).contains(&content.recipients().len()), "too many recipients, or none")?;
    let lines = content.headers.iter().flat_map(|(name, value)| [name, value]).chain([&content.subject]);
    ensure_holds(!lines.into_iter().any(|line| line.contains(['\r', '\n', '\0'])), "a line that makes another header")?;
    let digest = Digest::of_content(content);
    ensure_holds(Digest::from_bytes(&digest.to_bytes()) == Some(digest), "a digest that is not read again")?;
    Ok(InputOutcome::Accepted)
}

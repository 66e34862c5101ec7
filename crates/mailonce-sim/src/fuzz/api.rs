//! Bodies of our own API.

use mailonce_core::{digest::Digest, limits};

use super::{Came, Check, holds};

/// `POST /v1/emails`.
pub fn send(bytes: &[u8]) -> Check {
    let request = match mailonce::api::read_send(bytes) {
        Ok(request) => request,
        Err(problem) => {
            holds(!problem.detail.is_empty(), "a refusal without a reason")?;
            return Ok(Came::Short);
        }
    };
    let content = &request.content;
    holds((1..=limits::RECIPIENTS).contains(&content.recipients().len()), "too many recipients, or none")?;
    let lines = content.headers.iter().flat_map(|(name, value)| [name, value]).chain([&content.subject]);
    holds(!lines.into_iter().any(|line| line.contains(['\r', '\n', '\0'])), "a line that makes another header")?;
    let digest = Digest::of(content);
    holds(Digest::from_bytes(&digest.to_bytes()) == Some(digest), "a digest that is not read again")?;
    Ok(Came::Through)
}

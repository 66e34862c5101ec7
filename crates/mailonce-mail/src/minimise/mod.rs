//! The view of a mail that is shown to a model: the visible text without quotes and signatures, between two marker
//! lines that outsiders cannot forge.
//!
//! Flags are hints, not a protection. The protection is the limit on what an agent is able to do.
//!
//! | file | contents |
//! |---|---|
//! | `injection` | detects text that addresses a model |

mod injection;

use serde::{Deserialize, Serialize};

use crate::{
    artifact::{self, ExtractedArtifacts},
    html::{self, HtmlPage},
    parse::ParsedMail,
    quote::split_quotes,
    unicode,
};

pub use injection::{Flag, find_injections};

/// Maximum characters of text in a view.
pub const MAX_VIEW_CHARS: usize = 20_000;

/// Maximum bytes of visible text that are scanned for prompt injection.
pub const MAX_SCANNED_BYTES: usize = 256 * 1024;

/// The view of a mail for a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MinimisedView {
    /// The text between its marker lines.
    pub text: String,
    /// Counts of what was removed.
    pub removed: RemovedCounts,
    /// Signs of prompt injection, with the number of occurrences.
    pub flags: Vec<(Flag, usize)>,
    /// Whether the whole mail was processed, with nothing cut off.
    pub whole: bool,
}

/// Counts of what was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedCounts {
    /// Characters of hidden text.
    pub hidden_chars: usize,
    /// HTML comments.
    pub comments: usize,
    /// Tracking pixels.
    pub tracking_pixels: usize,
    /// Zero-width and other invisible characters.
    pub invisible_chars: usize,
    /// Characters that change the text direction. Also counted as invisible.
    pub bidi_chars: usize,
    /// Lines of quoted mails.
    pub quoted_lines: usize,
    /// Lines of signatures.
    pub signature_lines: usize,
    /// Characters beyond the limit.
    pub truncated_chars: usize,
}

/// The visible text of a mail: from its HTML if that has any text, else the plain text.
pub fn visible_text(mail: &ParsedMail, page: Option<&HtmlPage>) -> String {
    let page = page.filter(|page| page.text.chars().filter(|c| c.is_alphanumeric()).count() >= 4);
    let mut text = page.map_or_else(|| mail.text.clone().unwrap_or_default(), html::render);
    text.truncate(text.floor_char_boundary(MAX_SCANNED_BYTES));
    text
}

/// Makes one line of untrusted text safe to show: removes invisible characters and direction controls, and replaces
/// control characters with spaces.
pub fn sanitize_line(text: &str) -> String {
    text.chars().filter(|c| !unicode::is_invisible(*c)).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Builds the view. `nonce` is fresh randomness from the caller: letters and digits that the sender could not know. The
/// values in `artifacts` are masked. Pass an empty value for a reader who may see them.
pub fn build_view(
    mail: &ParsedMail,
    page: Option<&HtmlPage>,
    artifacts: &ExtractedArtifacts,
    nonce: &str,
) -> MinimisedView {
    let text = visible_text(mail, page);
    let mut removed = RemovedCounts::default();
    if let Some(page) = page {
        removed.hidden_chars = page.hidden.chars;
        removed.comments = page.hidden.comments;
        removed.tracking_pixels = page.hidden.tracking_pixels;
    }
    let hidden = page.map(|page| page.hidden_text.as_str()).unwrap_or_default();
    let mut flags = find_injections(&mail.subject, &text, hidden);
    flags.extend(page.map(|page| (Flag::AriaHidden, page.hidden.aria_hidden_chars)).filter(|(_, chars)| *chars > 0));
    // Counts in the text before rendering, because the renderer drops some of these characters.
    let source = page.map_or(text.as_str(), |page| page.text.as_str());
    removed.invisible_chars = source.chars().filter(|c| unicode::is_invisible(*c)).count();
    removed.bidi_chars = source.chars().filter(|c| unicode::is_bidi_control(*c)).count();
    let visible = strip_invisible(&text);
    let split = split_quotes(&visible);
    removed.quoted_lines = split.quoted_lines;
    removed.signature_lines = split.signature_lines;
    // Masks before the cut, so that no half of a secret remains at the end, and because the replacements make the text
    // longer.
    let nonce = sanitize_nonce(nonce);
    let own_text = neutralize_markers(&redact_artifacts(&split.own_text, artifacts), &nonce);
    removed.truncated_chars = own_text.chars().count().saturating_sub(MAX_VIEW_CHARS);
    let own_text: String = own_text.chars().take(MAX_VIEW_CHARS).collect();
    let whole = !mail.cut.is_truncated()
        && page.is_none_or(|page| !page.is_truncated)
        && removed.truncated_chars == 0
        && text.len() < MAX_SCANNED_BYTES - 4;
    MinimisedView { text: add_markers(&own_text, &nonce), removed, flags, whole }
}

fn redact_artifacts(text: &str, artifacts: &ExtractedArtifacts) -> String {
    if artifacts.decided.is_empty() && artifacts.candidates.is_empty() {
        text.to_owned()
    } else {
        artifact::redact_text(text, artifacts)
    }
}

/// Removes invisible and control characters.
fn strip_invisible(text: &str) -> String {
    let is_visible = |c: &char| !unicode::is_invisible(*c) && (!c.is_control() || *c == '\n' || *c == '\t');
    text.chars().filter(is_visible).collect()
}

/// Wraps untrusted text in marker lines with the nonce, and breaks up anything in it that could imitate a marker.
pub fn wrap_untrusted(text: &str, nonce: &str) -> String {
    let nonce = sanitize_nonce(nonce);
    add_markers(&neutralize_markers(text, &nonce), &nonce)
}

fn sanitize_nonce(nonce: &str) -> String {
    nonce.chars().filter(char::is_ascii_alphanumeric).take(64).collect()
}

/// Breaks up runs of angle brackets, which the markers are made of, and removes the nonce.
fn neutralize_markers(text: &str, nonce: &str) -> String {
    let mut broken = String::with_capacity(text.len());
    for c in text.chars() {
        if (c == '<' || c == '>') && broken.ends_with(c) {
            broken.push(' ');
        }
        broken.push(c);
    }
    if nonce.is_empty() { broken } else { broken.replace(nonce, "[nonce]") }
}

fn add_markers(text: &str, nonce: &str) -> String {
    format!("<<<untrusted mail {nonce}\n{text}\nuntrusted mail {nonce}>>>")
}

#[cfg(test)]
mod tests;

//! The view of a mail that a model is shown: what its reader would have seen, without quotes and signatures, between
//! two lines that nobody outside can forge.
//!
//! Flags are hints and never a wall: what holds is what an agent is able to do.
//!
//! | file | what it holds |
//! |---|---|
//! | `quote` | quoted mails and signatures |
//! | `inject` | words that talk to a model |

mod injection;
mod quote;

use serde::{Deserialize, Serialize};

use crate::{
    artifact::{self, ExtractedArtifacts},
    html::{self, HtmlPage},
    parse::ParsedMail,
    unicode,
};

pub use injection::{Flag, find_injections};
pub use quote::{SplitText, split_quotes};

/// Characters of text in a view.
pub const MAX_VIEW_CHARS: usize = 20_000;

/// Bytes of visible text that are searched for tricks.
pub const MAX_SCANNED_BYTES: usize = 256 * 1024;

/// A mail for a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MinimisedView {
    /// The text between its fences.
    pub text: String,
    /// What was taken out.
    pub removed: RemovedCounts,
    /// Signs of somebody talking to the model, and how often.
    pub flags: Vec<(Flag, usize)>,
    /// Whether all of the mail was looked at.
    pub whole: bool,
}

/// What was taken out, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedCounts {
    /// Characters of hidden text.
    pub hidden_chars: usize,
    /// HTML comments.
    pub comments: usize,
    /// Images that only tell that a mail was opened.
    pub pixels: usize,
    /// Zero-width and other characters that show nothing.
    pub invisible_chars: usize,
    /// Characters that turn the direction of text. Also counted as invisible.
    pub bidi_chars: usize,
    /// Lines of quoted mails.
    pub quoted_lines: usize,
    /// Lines of signatures.
    pub signature_lines: usize,
    /// Characters beyond the limit.
    pub cut_chars: usize,
}

/// The visible text of a mail: of its HTML when that says anything, else the plain text.
pub fn visible_text(mail: &ParsedMail, page: Option<&HtmlPage>) -> String {
    let page = page.filter(|page| page.text.chars().filter(|c| c.is_alphanumeric()).count() >= 4);
    let mut text = page.map_or_else(|| mail.text.clone().unwrap_or_default(), html::render);
    text.truncate(text.floor_char_boundary(MAX_SCANNED_BYTES));
    text
}

/// One line of a stranger as it may be shown anywhere: nothing invisible, nothing that turns the direction of text, no
/// control characters.
pub fn sanitize_line(text: &str) -> String {
    text.chars().filter(|c| !unicode::is_invisible(*c)).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Makes the view. `nonce` is fresh chance of the caller: letters and digits that the sender could not know. Values of
/// `found` are made unreadable; for a reader who may see them it is empty.
pub fn build_view(
    mail: &ParsedMail,
    page: Option<&HtmlPage>,
    found: &ExtractedArtifacts,
    nonce: &str,
) -> MinimisedView {
    let text = visible_text(mail, page);
    let mut removed = RemovedCounts::default();
    if let Some(page) = page {
        removed.hidden_chars = page.hidden.chars;
        removed.comments = page.hidden.comments;
        removed.pixels = page.hidden.tracking_pixels;
    }
    let hidden = page.map(|page| page.hidden_text.as_str()).unwrap_or_default();
    let mut flags = find_injections(&mail.subject, &text, hidden);
    flags.extend(page.map(|page| (Flag::AriaHidden, page.hidden.aria_hidden_chars)).filter(|(_, chars)| *chars > 0));
    // Counted where the renderer has not been yet: it drops some of them by itself.
    let source = page.map_or(text.as_str(), |page| page.text.as_str());
    removed.invisible_chars = source.chars().filter(|c| unicode::is_invisible(*c)).count();
    removed.bidi_chars = source.chars().filter(|c| unicode::is_bidi_control(*c)).count();
    let seen = strip_invisible(&text);
    let split = split_quotes(&seen);
    removed.quoted_lines = split.quoted_lines;
    removed.signature_lines = split.signature_lines;
    // Before the cut: no half of a secret is left at the end, and what makes a text harmless makes it longer.
    let nonce = sanitize_nonce(nonce);
    let own = neutralize_markers(&redact_artifacts(&split.own_text, found), &nonce);
    removed.cut_chars = own.chars().count().saturating_sub(MAX_VIEW_CHARS);
    let own: String = own.chars().take(MAX_VIEW_CHARS).collect();
    let whole = !mail.cut.is_truncated()
        && page.is_none_or(|page| !page.is_truncated)
        && removed.cut_chars == 0
        && text.len() < MAX_SCANNED_BYTES - 4;
    MinimisedView { text: add_markers(&own, &nonce), removed, flags, whole }
}

fn redact_artifacts(text: &str, found: &ExtractedArtifacts) -> String {
    if found.decided.is_empty() && found.candidates.is_empty() {
        text.to_owned()
    } else {
        artifact::redact_text(text, found)
    }
}

/// Without characters that nobody sees, and without controls.
fn strip_invisible(text: &str) -> String {
    let shown = |c: &char| !unicode::is_invisible(*c) && (!c.is_control() || *c == '\n' || *c == '\t');
    text.chars().filter(shown).collect()
}

/// The text between lines that carry the nonce, and nothing in it that could end it.
pub fn wrap_untrusted(text: &str, nonce: &str) -> String {
    let nonce = sanitize_nonce(nonce);
    add_markers(&neutralize_markers(text, &nonce), &nonce)
}

fn sanitize_nonce(nonce: &str) -> String {
    nonce.chars().filter(char::is_ascii_alphanumeric).take(64).collect()
}

/// Runs of angle brackets, of which the fences are made, are broken up, and the nonce is taken out.
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

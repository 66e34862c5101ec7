//! Finds what an agent waits for in a mail: one-time codes and links that carry a secret.
//!
//! Deterministic and conservative: a value is decided only if the mail labels it and no other value could be meant. All
//! other values are candidates, with reasons, for a person or an agent to choose from.
//!
//! | file | contents |
//! |---|---|
//! | `search_text` | the text that is searched: folded, with links and addresses replaced |
//! | `cue` | phrases that say what a number is; the list is `cues.txt` |
//! | `shape`, `unit` | what has the form of a code, and what is an amount |
//! | `label` | which phrase labels a number |
//! | `score` | the confidence and its reasons |
//! | `mask` | masks values in text |

mod cue;
mod label;
mod mask;
mod score;
mod search_text;
mod shape;
mod unit;

use serde::{Deserialize, Serialize};

use crate::{
    html::HtmlPage,
    link::{CheckedLink, Verdict},
    parse::ParsedMail,
    quote::split_quotes,
    string_enum::string_enum,
};

pub use mask::{masked_value, redact_text};

/// Minimum confidence of a decided value.
pub const MIN_DECIDED_CONFIDENCE: u8 = 70;
/// Minimum confidence of a candidate.
pub const MIN_CANDIDATE_CONFIDENCE: u8 = 35;
/// The lead that the best value needs over a second value that could also be decided.
const MIN_LEAD: u8 = 20;
/// Maximum candidates kept per mail.
pub const MAX_CANDIDATES: usize = 20;

string_enum! {
    /// The type of an artifact.
    Kind {
        /// A one-time code.
        Code = "code",
        /// A link that carries a secret.
        Link = "link",
    }
}

string_enum! {
    /// A reason for or against a value.
    Reason {
        /// The last line has the form `@host #code`.
        OriginBound = "origin_bound",
        /// A phrase before it calls it a code.
        LabelBefore = "label_before",
        /// A phrase after it calls it a code.
        LabelAfter = "label_after",
        /// A phrase near it is about signing in.
        WeakLabel = "weak_label",
        /// It is adjacent to its label.
        Adjacent = "adjacent",
        /// It is alone on its line.
        OwnLine = "own_line",
        /// It starts its line.
        LineStart = "line_start",
        /// Six digits.
        SixDigits = "six_digits",
        /// The digits are written in groups.
        Grouped = "grouped",
        /// Written with a prefix, such as `G-553201`.
        Prefixed = "prefixed",
        /// Contains letters.
        Letters = "letters",
        /// The subject mentions a code.
        SubjectLabel = "subject_label",
        /// Occurs in both subject and text.
        SubjectAndText = "subject_and_text",
        /// A phrase near it calls it something else.
        OtherLabel = "other_label",
        /// Looks like a year or a date.
        DateLike = "date_like",
        /// A word followed by a number, such as `SAVE20`.
        WordLike = "word_like",
        /// A number sign precedes it.
        NumberSign = "number_sign",
        /// Occurs in a quoted, older mail.
        Quoted = "quoted",
        /// Occurs only in a link.
        InLink = "in_link",
        /// Another value is equally likely.
        Ambiguous = "ambiguous",
        /// The text or URL of the link indicates its purpose.
        Purpose = "purpose",
        /// The link must not be followed.
        BlockedLink = "blocked_link",
        /// The mail has a decided code, and the link only resets a password.
        BesideCode = "beside_code",
    }
}

/// A value with its confidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtractedArtifact {
    /// The type of the artifact.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// A code in ASCII without separators or prefix, or a link as a browser parses it.
    pub value: String,
    /// The confidence, from 0 to 100.
    pub confidence: u8,
    /// The reasons for the confidence.
    pub reasons: Vec<Reason>,
}

/// The artifacts of a mail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtractedArtifacts {
    /// Decided values, most certain first. At most one code and one link.
    pub decided: Vec<ExtractedArtifact>,
    /// Other possible values, most certain first.
    pub candidates: Vec<ExtractedArtifact>,
}

impl ExtractedArtifacts {
    /// The decided value of a type.
    pub fn decided(&self, kind: Kind) -> Option<&ExtractedArtifact> {
        self.decided.iter().find(|artifact| artifact.kind == kind)
    }
}

/// Finds codes and links. `page` is the parsed HTML of the mail, and `links` are its checked links.
pub fn extract(mail: &ParsedMail, page: Option<&HtmlPage>, links: &[CheckedLink]) -> ExtractedArtifacts {
    let mut artifacts = ExtractedArtifacts::default();
    decide(extract_codes(mail, page, links), &mut artifacts);
    let about_code = artifacts.decided(Kind::Code).is_some();
    decide(extract_links(links, about_code), &mut artifacts);
    let by_confidence = |a: &ExtractedArtifact, b: &ExtractedArtifact| b.confidence.cmp(&a.confidence);
    artifacts.decided.sort_by(by_confidence);
    artifacts.candidates.sort_by(by_confidence);
    artifacts.candidates.truncate(MAX_CANDIDATES);
    artifacts
}

fn extract_codes(mail: &ParsedMail, page: Option<&HtmlPage>, links: &[CheckedLink]) -> Vec<ExtractedArtifact> {
    let html =
        page.map(|page| page.text.as_str()).filter(|text| text.chars().filter(|c| c.is_alphanumeric()).count() >= 4);
    let plain = split_quotes(mail.text.as_deref().unwrap_or_default());
    let visible = html.map_or_else(|| plain.clone(), split_quotes);
    let mut found = score::score_codes(&mail.subject, &visible.own_text);
    if !found.iter().any(|code| code.confidence >= MIN_DECIDED_CONFIDENCE) && html.is_some() {
        // The reader sees the HTML, so the plain text counts only if the HTML has no decided code.
        found.extend(score::score_codes(&mail.subject, &plain.own_text));
    }
    if found.iter().all(|code| code.confidence < MIN_CANDIDATE_CONFIDENCE) {
        found.extend(
            score::score_codes("", &visible.quoted_text).into_iter().map(|code| downgrade(code, Reason::Quoted)),
        );
        found.extend(
            links.iter().filter_map(|link| score::code_in_link(&link.url)).map(|code| downgrade(code, Reason::InLink)),
        );
    }
    found
}

fn downgrade(mut code: ExtractedArtifact, reason: Reason) -> ExtractedArtifact {
    code.confidence = code.confidence.min(MIN_DECIDED_CONFIDENCE - 20);
    code.reasons.push(reason);
    code
}

fn extract_links(links: &[CheckedLink], about_code: bool) -> Vec<ExtractedArtifact> {
    let artifact = |link: &CheckedLink| {
        let mut artifact = ExtractedArtifact {
            kind: Kind::Link,
            value: link.url.clone(),
            confidence: link.confidence,
            reasons: vec![Reason::Purpose],
        };
        if link.verdict == Verdict::Blocked {
            artifact.confidence = artifact.confidence.min(MIN_DECIDED_CONFIDENCE - 20);
            artifact.reasons.push(Reason::BlockedLink);
        } else if about_code && link.purpose == Some(crate::link::Purpose::Reset) {
            artifact.confidence = artifact.confidence.min(MIN_DECIDED_CONFIDENCE - 20);
            artifact.reasons.push(Reason::BesideCode);
        }
        artifact
    };
    links.iter().filter(|link| link.purpose.is_some()).map(artifact).collect()
}

/// Decides on at most one value of a type. The others become candidates.
fn decide(mut values: Vec<ExtractedArtifact>, artifacts: &mut ExtractedArtifacts) {
    values.retain(|value| value.confidence >= MIN_CANDIDATE_CONFIDENCE);
    values.sort_by_key(|value| std::cmp::Reverse(value.confidence));
    let mut seen: Vec<String> = Vec::new();
    values.retain(|value| {
        let new = !seen.contains(&value.value);
        seen.push(value.value.clone());
        new
    });
    let best = values.first().map_or(0, |value| value.confidence);
    let next = values.get(1).map_or(0, |value| value.confidence);
    let is_clear = next < MIN_DECIDED_CONFIDENCE || best - next >= MIN_LEAD;
    for (rank, mut value) in values.into_iter().enumerate() {
        if rank == 0 && best >= MIN_DECIDED_CONFIDENCE && is_clear {
            artifacts.decided.push(value);
            continue;
        }
        if value.confidence >= MIN_DECIDED_CONFIDENCE && !is_clear {
            value.reasons.push(Reason::Ambiguous);
        }
        artifacts.candidates.push(value);
    }
}

#[cfg(test)]
mod tests;

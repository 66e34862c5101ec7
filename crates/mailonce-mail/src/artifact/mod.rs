//! What an agent waits for in a mail: one-time codes and links that carry a secret.
//!
//! Deterministic and modest: a value is decided only when the mail names it and nothing else could be meant. All else
//! is a candidate, with the reasons, for somebody to choose from.
//!
//! | file | what it holds |
//! |---|---|
//! | `script` | the text as it is searched: folded, links and addresses taken out |
//! | `cue` | words that say what a number is; the list is `cues.txt` |
//! | `shape`, `unit` | what could be a code by its form, and what is an amount |
//! | `label` | which words name a number |
//! | `score` | how sure, and why |
//! | `mask` | values made unreadable |

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
    minimise,
    parse::ParsedMail,
    string_enum::string_enum,
};

pub use mask::{masked_value, redact_text};

/// From here on a value is decided.
pub const MIN_DECIDED_CONFIDENCE: u8 = 70;
/// Below this a value is not even a candidate.
pub const MIN_CANDIDATE_CONFIDENCE: u8 = 35;
/// By how much the best must lead before another is passed over.
const MIN_LEAD: u8 = 20;
/// Candidates kept of one mail.
pub const MAX_CANDIDATES: usize = 20;

string_enum! {
    /// What it is.
    Kind {
        /// A one-time code.
        Code = "code",
        /// A link that carries a secret.
        Link = "link",
    }
}

string_enum! {
    /// Why it is thought to be one, or not.
    Reason {
        /// A line `@host #code`.
        OriginBound = "origin_bound",
        /// Words before it call it a code.
        LabelBefore = "label_before",
        /// Words behind it call it a code.
        LabelAfter = "label_after",
        /// Words near it speak of signing in.
        WeakLabel = "weak_label",
        /// Nothing stands between it and those words.
        Adjacent = "adjacent",
        /// It stands alone in its line.
        OwnLine = "own_line",
        /// It begins its line.
        LineStart = "line_start",
        /// Six digits.
        SixDigits = "six_digits",
        /// Written in groups.
        Grouped = "grouped",
        /// Written with a prefix.
        Prefixed = "prefixed",
        /// Has letters.
        Letters = "letters",
        /// The subject speaks of a code.
        SubjectLabel = "subject_label",
        /// Stands in subject and text.
        SubjectAndText = "subject_and_text",
        /// Words near it call it something else.
        OtherLabel = "other_label",
        /// Looks like a year or a date.
        DateLike = "date_like",
        /// A word with a number behind it.
        WordLike = "word_like",
        /// A number sign stands before it.
        NumberSign = "number_sign",
        /// Stands in an older mail that is quoted.
        Quoted = "quoted",
        /// Stands only in a link.
        InLink = "in_link",
        /// Another value is as likely.
        Ambiguous = "ambiguous",
        /// What the link says, or where it leads.
        Purpose = "purpose",
        /// The link must not be followed.
        BlockedLink = "blocked_link",
        /// The mail is about a code; the link is beside the point.
        BesideCode = "beside_code",
    }
}

/// A value with how sure it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtractedArtifact {
    /// What it is.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// ASCII without separators or prefixes; a link as a browser would read it.
    pub value: String,
    /// 0 to 100.
    pub confidence: u8,
    /// Why.
    pub reasons: Vec<Reason>,
}

/// What a mail holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtractedArtifacts {
    /// Decided values, best first; at most one code and one link.
    pub decided: Vec<ExtractedArtifact>,
    /// What else it could be, best first.
    pub candidates: Vec<ExtractedArtifact>,
}

impl ExtractedArtifacts {
    /// The decided value of a kind.
    pub fn decided(&self, kind: Kind) -> Option<&ExtractedArtifact> {
        self.decided.iter().find(|artifact| artifact.kind == kind)
    }
}

/// Finds codes and links. `page` is the mail's HTML, read; `links` are the mail's links, judged.
pub fn extract(mail: &ParsedMail, page: Option<&HtmlPage>, links: &[CheckedLink]) -> ExtractedArtifacts {
    let mut found = ExtractedArtifacts::default();
    decide(extract_codes(mail, page, links), &mut found);
    let about_code = found.decided(Kind::Code).is_some();
    decide(extract_links(links, about_code), &mut found);
    let by_confidence = |a: &ExtractedArtifact, b: &ExtractedArtifact| b.confidence.cmp(&a.confidence);
    found.decided.sort_by(by_confidence);
    found.candidates.sort_by(by_confidence);
    found.candidates.truncate(MAX_CANDIDATES);
    found
}

fn extract_codes(mail: &ParsedMail, page: Option<&HtmlPage>, links: &[CheckedLink]) -> Vec<ExtractedArtifact> {
    let html =
        page.map(|page| page.text.as_str()).filter(|text| text.chars().filter(|c| c.is_alphanumeric()).count() >= 4);
    let plain = minimise::split_quotes(mail.text.as_deref().unwrap_or_default());
    let shown = html.map_or_else(|| plain.clone(), minimise::split_quotes);
    let mut found = score::score_codes(&mail.subject, &shown.own_text);
    if !found.iter().any(|code| code.confidence >= MIN_DECIDED_CONFIDENCE) && html.is_some() {
        // What the plain text says is worth less than what the reader sees, so it counts only where that says nothing.
        found.extend(score::score_codes(&mail.subject, &plain.own_text));
    }
    if found.iter().all(|code| code.confidence < MIN_CANDIDATE_CONFIDENCE) {
        found
            .extend(score::score_codes("", &shown.quoted_text).into_iter().map(|code| downgrade(code, Reason::Quoted)));
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

/// Decides on one value of a kind, or on none.
fn decide(mut values: Vec<ExtractedArtifact>, found: &mut ExtractedArtifacts) {
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
    let clear = next < MIN_DECIDED_CONFIDENCE || best - next >= MIN_LEAD;
    for (rank, mut value) in values.into_iter().enumerate() {
        if rank == 0 && best >= MIN_DECIDED_CONFIDENCE && clear {
            found.decided.push(value);
            continue;
        }
        if value.confidence >= MIN_DECIDED_CONFIDENCE && !clear {
            value.reasons.push(Reason::Ambiguous);
        }
        found.candidates.push(value);
    }
}

#[cfg(test)]
mod tests;

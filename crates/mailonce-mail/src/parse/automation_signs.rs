//! What tells a machine's mail from a person's, as the header says it. Judged in [`crate::automatic`].

use serde::{Deserialize, Serialize};

use super::one_line;
use crate::parse::mime_parts::MimeParts;

/// Facts for the rules against loops.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutomationSigns {
    /// The keyword of `Auto-Submitted`, in lower case.
    pub auto_submitted: Option<String>,
    /// `Precedence`, in lower case.
    pub precedence: Option<String>,
    /// The words of `X-Auto-Response-Suppress`, in lower case.
    pub suppress: Vec<String>,
    /// The `Return-Path`, without angle brackets; empty when it is the null one.
    pub return_path: Option<String>,
    /// The first field that only lists have.
    pub list: Option<String>,
    /// The first of the home-made fields of automatic replies that does not say `no`.
    pub auto_reply: Option<String>,
    /// Whether a field says that it went round a loop.
    pub looped: bool,
    /// `type/subtype` of the mail itself.
    pub content_type: String,
    /// `report-type` of a `multipart/report`.
    pub report_type: Option<String>,
    /// Whether it is, or says beside its text, a calendar's answer to an invitation.
    pub calendar_reply: bool,
    /// How many hops it has behind it.
    pub received: usize,
    /// How many ids `References` names.
    pub references: usize,
}

/// Fields that lists add.
const LIST_HEADERS: &[&str] = &[
    "List-Id",
    "List-Unsubscribe",
    "List-Post",
    "List-Help",
    "List-Subscribe",
    "List-Owner",
    "List-Archive",
    "Mailing-List",
    "X-Mailing-List",
];
/// Fields that responders without a standard add.
const AUTO_REPLY_HEADERS: &[&str] = &[
    "X-Autoreply",
    "X-Autorespond",
    "X-Autoresponder",
    "X-Auto-Reply",
    "X-AutoReply-From",
    "X-Mail-Autoreply",
    "Delivered-By-The-Graces-Of",
    "X-FC-MachineGenerated",
];

impl AutomationSigns {
    pub(super) fn collect(found: &MimeParts) -> Self {
        let fields = &found.fields;
        let lower = |name: &str| fields.first(name).map(|value| one_line(value, 200).to_ascii_lowercase());
        let keyword = |value: String| value.split([';', ' ', '(']).next().unwrap_or_default().to_owned();
        let words =
            |value: String| value.split(',').map(|word| word.trim().to_owned()).filter(|w| !w.is_empty()).collect();
        let first = |names: &[&str]| names.iter().find(|name| fields.has(name)).map(|name| (*name).to_owned());
        let denied = |value: &str| matches!(keyword(value.trim().to_ascii_lowercase()).as_str(), "no" | "false");
        let claimed = |name: &&&str| fields.all(name).any(|value| !denied(value));
        Self {
            auto_submitted: lower("auto-submitted").map(keyword),
            precedence: lower("precedence"),
            suppress: lower("x-auto-response-suppress").map(words).unwrap_or_default(),
            return_path: fields.first("return-path").map(|path| one_line(path.trim().trim_matches(['<', '>']), 320)),
            list: first(LIST_HEADERS),
            auto_reply: AUTO_REPLY_HEADERS.iter().find(claimed).map(|name| (*name).to_owned()),
            looped: fields.has("x-loop"),
            content_type: found.content_type.clone(),
            report_type: found.report_type.clone(),
            calendar_reply: found.calendar_reply,
            received: fields.all("received").count(),
            references: fields.first("references").map_or(0, |value| value.matches('<').count()),
        }
    }
}

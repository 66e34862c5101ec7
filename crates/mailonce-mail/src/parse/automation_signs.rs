//! Header fields that show that a machine wrote a mail. [`crate::automatic`] evaluates them.

use serde::{Deserialize, Serialize};

use super::one_line;
use crate::parse::mime_parts::MimeParts;

/// The input of the rules against mail loops.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutomationSigns {
    /// The keyword of `Auto-Submitted`, in lower case.
    pub auto_submitted: Option<String>,
    /// `Precedence`, in lower case.
    pub precedence: Option<String>,
    /// The words of `X-Auto-Response-Suppress`, in lower case.
    pub suppress: Vec<String>,
    /// The `Return-Path` without angle brackets; empty for the null return path.
    pub return_path: Option<String>,
    /// The first header that only mailing lists add.
    pub list: Option<String>,
    /// The first non-standard header of automatic replies whose value is not `no` or `false`.
    pub auto_reply: Option<String>,
    /// Whether the mail has an `X-Loop` header.
    pub looped: bool,
    /// `type/subtype` of the mail itself.
    pub content_type: String,
    /// `report-type` of a `multipart/report`.
    pub report_type: Option<String>,
    /// Whether the mail or one of its inline parts is a calendar reply to an invitation.
    pub calendar_reply: bool,
    /// The number of `Received` headers (hops).
    pub received: usize,
    /// The number of ids in `References`.
    pub references: usize,
}

/// Headers of mailing lists.
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
/// Non-standard headers of automatic replies.
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
    pub(super) fn collect(parts: &MimeParts) -> Self {
        let fields = &parts.fields;
        let lower = |name: &str| fields.first(name).map(|value| one_line(value, 200).to_ascii_lowercase());
        let keyword = |value: String| value.split([';', ' ', '(']).next().unwrap_or_default().to_owned();
        let words =
            |value: String| value.split(',').map(|word| word.trim().to_owned()).filter(|w| !w.is_empty()).collect();
        let first_present = |names: &[&str]| names.iter().find(|name| fields.has(name)).map(|name| (*name).to_owned());
        let is_denied = |value: &str| matches!(keyword(value.trim().to_ascii_lowercase()).as_str(), "no" | "false");
        let is_claimed = |name: &&&str| fields.all(name).any(|value| !is_denied(value));
        Self {
            auto_submitted: lower("auto-submitted").map(keyword),
            precedence: lower("precedence"),
            suppress: lower("x-auto-response-suppress").map(words).unwrap_or_default(),
            return_path: fields.first("return-path").map(|path| one_line(path.trim().trim_matches(['<', '>']), 320)),
            list: first_present(LIST_HEADERS),
            auto_reply: AUTO_REPLY_HEADERS.iter().find(is_claimed).map(|name| (*name).to_owned()),
            looped: fields.has("x-loop"),
            content_type: parts.content_type.clone(),
            report_type: parts.report_type.clone(),
            calendar_reply: parts.calendar_reply,
            received: fields.all("received").count(),
            references: fields.first("references").map_or(0, |value| value.matches('<').count()),
        }
    }
}

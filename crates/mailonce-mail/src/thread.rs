//! Which thread a mail belongs to. Message ids decide; the subject alone never does, because unrelated mails share
//! subjects.

use crate::parse::{MAX_REFERENCES, ParsedMail};

/// The thread of a mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadMatch<T> {
    /// An existing thread.
    Existing {
        /// The thread.
        thread: T,
        /// The message id that matched.
        matched_id: String,
    },
    /// No known thread.
    New,
}

/// The message ids that may identify the thread, nearest first: `In-Reply-To`, then `References` from newest to oldest.
pub fn ancestors(mail: &ParsedMail) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    for id in mail.in_reply_to.iter().chain(mail.references.iter().rev()) {
        // A mail that claims to reply to itself has no parent.
        let is_own_id = mail.message_id.as_ref() == Some(id);
        if !is_own_id && !ids.contains(id) && ids.len() < MAX_REFERENCES {
            ids.push(id.clone());
        }
    }
    ids
}

/// Finds the thread through `lookup`, which maps a message id to its thread. The nearest of the [`ancestors`] wins.
pub fn find_thread<T>(mail: &ParsedMail, lookup: impl Fn(&str) -> Option<T>) -> ThreadMatch<T> {
    for id in ancestors(mail) {
        if let Some(thread) = lookup(&id) {
            return ThreadMatch::Existing { thread, matched_id: id };
        }
    }
    ThreadMatch::New
}

/// Subject prefixes of replies and forwards, in lower case, without the colon.
const SUBJECT_PREFIXES: &[&str] = &[
    "re",
    "aw",
    "antw",
    "antwort",
    "sv",
    "vs",
    "res",
    "resp",
    "rif",
    "r",
    "odp",
    "ynt",
    "cevap",
    "ref",
    "rv",
    "fw",
    "fwd",
    "wg",
    "tr",
    "vb",
    "vl",
    "enc",
    "i",
    "inoltra",
    "pd",
    "ilt",
    "doorst",
    "vá",
    "továbbítás",
    "отв",
    "ответ",
    "на",
    "пересл",
    "fs",
    "回复",
    "回覆",
    "答复",
    "转发",
    "轉寄",
    "返信",
    "転送",
    "답장",
    "회신",
    "전달",
    "رد",
    "إعادة توجيه",
    "automatic reply",
    "automatische antwort",
    "réponse automatique",
];

/// The subject without reply and forward prefixes, in lower case and with single spaces.
pub fn base_subject(subject: &str) -> String {
    let folded: String =
        subject.chars().filter(|c| !crate::unicode::is_invisible(*c)).map(crate::unicode::fold_to_ascii).collect();
    let text = folded.to_lowercase();
    let mut rest = text.trim();
    while let Some(shorter) = strip_one_prefix(rest) {
        rest = shorter;
    }
    let rest = rest.strip_suffix("(fwd)").unwrap_or(rest);
    rest.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Subject prefixes of replies. The other [`SUBJECT_PREFIXES`] belong to forwards.
const REPLY_PREFIXES: &[&str] = &[
    "re",
    "aw",
    "antw",
    "antwort",
    "sv",
    "vs",
    "res",
    "resp",
    "rif",
    "r",
    "odp",
    "ynt",
    "cevap",
    "ref",
    "отв",
    "ответ",
    "回复",
    "回覆",
    "答复",
    "返信",
    "답장",
    "회신",
    "رد",
];
/// Subject prefixes that certainly belong to forwards.
const FORWARD_PREFIXES: &[&str] = &["fw", "fwd", "wg", "tr", "rv", "enc", "doorst", "转发", "轉寄", "転送", "전달"];

/// The subject of a reply: exactly one `Re: `.
pub fn reply_subject(subject: &str) -> String {
    format!("Re: {}", strip_prefixes(subject, REPLY_PREFIXES)).trim_end().to_owned()
}

/// The subject of a forward: exactly one `Fwd: `.
pub fn forward_subject(subject: &str) -> String {
    format!("Fwd: {}", strip_prefixes(subject, FORWARD_PREFIXES)).trim_end().to_owned()
}

/// The subject without these prefixes, otherwise unchanged.
fn strip_prefixes<'a>(subject: &'a str, prefixes: &[&str]) -> &'a str {
    let mut rest = subject.trim();
    while let Some((head, tail)) = rest.split_once([':', '：']) {
        let lower = head.trim_end().to_lowercase();
        let counted = lower.trim_end_matches(|c: char| c.is_ascii_digit() || "[]()^* ".contains(c));
        if !prefixes.contains(&counted) {
            break;
        }
        rest = tail.trim_start();
    }
    rest
}

/// Removes one prefix such as `re: `, `re[2]: `, `re (3): ` or `re^2: `.
fn strip_one_prefix(text: &str) -> Option<&str> {
    let (head, rest) = text.split_once(':')?;
    let head = head.trim_end();
    let counted = head.trim_end_matches(|c: char| c.is_ascii_digit() || "[]()^* ".contains(c));
    SUBJECT_PREFIXES.contains(&counted).then(|| rest.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    const MAIL: &str = "Message-ID: <d@x>\nIn-Reply-To: <c@x>\nReferences: <a@x> <b@x> <c@x> <d@x>\n\n";

    #[test]
    fn the_nearest_known_ancestor_decides() {
        let mail = parse(MAIL.as_bytes());
        assert_eq!(ancestors(&mail), ["<c@x>", "<b@x>", "<a@x>"]);

        let known = |id: &str| match id {
            "<a@x>" => Some(1),
            "<b@x>" => Some(2),
            "<d@x>" => Some(3),
            _ => None,
        };
        assert_eq!(find_thread(&mail, known), ThreadMatch::Existing { thread: 2, matched_id: "<b@x>".to_owned() });
        assert_eq!(find_thread(&mail, |_| None::<u8>), ThreadMatch::New);
        let own = parse(b"Message-ID: <d@x>\nIn-Reply-To: <d@x>\n\n");
        assert_eq!(find_thread(&own, known), ThreadMatch::New);
    }

    #[test]
    fn a_reply_has_one_re_and_a_forward_one_fwd() {
        for (subject, answer, forward) in [
            ("Hello", "Re: Hello", "Fwd: Hello"),
            ("RE: AW: Re[2]: Hello", "Re: Hello", "Fwd: RE: AW: Re[2]: Hello"),
            ("Fwd: Hello", "Re: Fwd: Hello", "Fwd: Hello"),
            ("Reminder: pay", "Re: Reminder: pay", "Fwd: Reminder: pay"),
            ("回复：发票", "Re: 发票", "Fwd: 回复：发票"),
            ("", "Re:", "Fwd:"),
        ] {
            assert_eq!(reply_subject(subject), answer);
            assert_eq!(forward_subject(subject), forward);
            assert_eq!(reply_subject(&reply_subject(subject)), answer);
        }
    }

    #[test]
    fn subjects_lose_their_prefixes_and_nothing_else() {
        for (subject, base) in [
            ("Re: Hello", "hello"),
            ("AW: WG: Re[2]: Hello  World", "hello world"),
            ("RE : FW (3): x", "x"),
            ("回复：转发：发票", "发票"),
            ("返信: 請求書", "請求書"),
            ("رد: مرحبا", "مرحبا"),
            ("Ответ: Привет", "привет"),
            ("Re: Re: (fwd)", ""),
            ("Reminder: pay", "reminder: pay"),
            ("Note: re: x", "note: re: x"),
            ("", ""),
        ] {
            assert_eq!(base_subject(subject), base, "{subject}");
        }
    }
}

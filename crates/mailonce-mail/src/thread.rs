//! Which thread a mail belongs to. Ids decide; a subject alone never does, since strangers share subjects.

use crate::parse::{MAX_REFERENCES, ParsedMail};

/// Where a mail belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadMatch<T> {
    /// To a thread that is known, by this id.
    Existing {
        /// The thread.
        thread: T,
        /// The id that decided.
        matched_id: String,
    },
    /// To none that is known.
    New,
}

/// The ids that may name a mail's thread, nearest first: what it answers, then `References` from the newest back.
pub fn ancestors(mail: &ParsedMail) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    for id in mail.in_reply_to.iter().chain(mail.references.iter().rev()) {
        // A mail that claims to answer itself answers nothing.
        let own = mail.message_id.as_ref() == Some(id);
        if !own && !ids.contains(id) && ids.len() < MAX_REFERENCES {
            ids.push(id.clone());
        }
    }
    ids
}

/// Decides with what is known about the [`ancestors`]. The nearest known one wins.
pub fn find_thread<T>(mail: &ParsedMail, known: impl Fn(&str) -> Option<T>) -> ThreadMatch<T> {
    for by in ancestors(mail) {
        if let Some(thread) = known(&by) {
            return ThreadMatch::Existing { thread, matched_id: by };
        }
    }
    ThreadMatch::New
}

/// What mail programs put before a subject, in lower case, without the colon.
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

/// The subject without what answers and forwards put before it, with single blanks and in lower case.
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

/// What answers put before a subject; the rest of [`PREFIXES`] is of forwards.
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
/// What forwards put before it, where it is sure.
const FORWARD_PREFIXES: &[&str] = &["fw", "fwd", "wg", "tr", "rv", "enc", "doorst", "转发", "轉寄", "転送", "전달"];

/// The subject of an answer: `Re: ` once, whatever stood there before.
pub fn reply_subject(subject: &str) -> String {
    format!("Re: {}", strip_prefixes(subject, REPLY_PREFIXES)).trim_end().to_owned()
}

/// The subject of a mail that is passed on: `Fwd: ` once.
pub fn forward_subject(subject: &str) -> String {
    format!("Fwd: {}", strip_prefixes(subject, FORWARD_PREFIXES)).trim_end().to_owned()
}

/// The subject without these prefixes, as it was written otherwise.
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

/// `re: `, `re[2]: `, `re (3): `, `re^2: `.
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
    fn an_answer_says_re_once_and_a_forward_fwd() {
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

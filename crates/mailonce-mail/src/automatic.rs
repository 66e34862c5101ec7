//! Detects mail that must not be answered automatically: RFC 3834 and common practice.
//!
//! A hard reason means that a machine wrote the mail or that nobody can receive a reply. A soft reason is a sign that
//! policy may override. Whether a mail is our own is not decided here: only the ledger knows what we sent.
//! The headers are read in `parse/automation_signs.rs`.

use crate::{parse::ParsedMail, string_enum::string_enum};

string_enum! {
    /// Why a mail must not be answered automatically.
    Why {
        /// The return path is null, so a reply cannot be delivered (RFC 5321 §4.5.5).
        NullReturnPath = "null_return_path",
        /// `Auto-Submitted` has a value other than `no` (RFC 3834 §5).
        AutoSubmitted = "auto_submitted",
        /// A report about another mail: delivery status, read receipt, abuse report.
        Report = "report",
        /// The sender is a mail system, such as MAILER-DAEMON.
        MailSystem = "mail_system",
        /// It has too many hops, so it is in a mail loop.
        TooManyHops = "too_many_hops",
        /// Its thread is so long that machines must be replying to each other.
        LongThread = "long_thread",
        /// The sender asks for no automatic replies.
        Suppressed = "suppressed",
        /// It comes from a mailing list.
        List = "list",
        /// `Precedence: bulk` or similar.
        Precedence = "precedence",
        /// A non-standard header of automatic replies.
        AutoReply = "auto_reply",
        /// A header that marks a mail loop.
        Loop = "loop",
        /// A calendar reply to an invitation (RFC 5546 §3.2.3).
        CalendarReply = "calendar_reply",
        /// Replies go to a no-reply address.
        NoReply = "no_reply",
        /// Replies go to a mailing list manager.
        Robot = "robot",
        /// The subject looks like an out-of-office notice.
        Absence = "absence",
    }
}

/// A reason, and whether policy may override it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutomaticMatch {
    /// The reason.
    pub reason: Why,
    /// Whether the mail must never be answered, whatever the policy.
    pub is_hard: bool,
}

/// More hops than this mean a mail loop.
const LOOP_HOPS: usize = 50;
/// More ids in `References` than this mean that machines are replying to each other.
const LOOP_REFERENCES: usize = 100;

/// Subject prefixes of automatic replies, in lower case.
const ABSENCE_SUBJECT_PREFIXES: &[&str] = &[
    "automatic reply",
    "auto reply",
    "autoreply",
    "auto-reply",
    "auto:",
    "auto response",
    "auto-response",
    "autoresponse",
    "out of office",
    "out of the office",
    "out-of-office",
    "ooo:",
    "abwesenheit",
    "abwesend",
    "automatische antwort",
    "autoantwort",
    "nicht im büro",
    "réponse automatique",
    "absence du bureau",
    "absent du bureau",
    "message d'absence",
    "respuesta automática",
    "fuera de la oficina",
    "fuera de oficina",
    "ausente de la oficina",
    "resposta automática",
    "fora do escritório",
    "ausência",
    "risposta automatica",
    "fuori sede",
    "fuori ufficio",
    "assente dall'ufficio",
    "automatisch antwoord",
    "automatische beantwoording",
    "afwezig",
    "automatyczna odpowiedź",
    "odpowiedź automatyczna",
    "autoodpowiedź",
    "poza biurem",
    "otomatik yanıt",
    "ofis dışında",
    "автоматический ответ",
    "автоответ",
    "вне офиса",
    "自動応答",
    "自動返信",
    "不在通知",
    "不在のお知らせ",
    "自动回复",
    "自动答复",
    "自動回覆",
    "外出通知",
    "자동 회신",
    "자동회신",
    "자동 응답",
    "자동응답",
    "부재중",
    "رد تلقائي",
    "الرد التلقائي",
    "خارج المكتب",
    "autosvar",
    "automatiskt svar",
    "automatisk svar",
    "automatisk besvarelse",
    "frånvaro",
    "fravær",
    "ikke på kontoret",
    "מענה אוטומטי",
    "תשובה אוטומטית",
    "מחוץ למשרד",
    "automaattinen vastaus",
    "poissa toimistosta",
    "automatická odpověď",
    "automatikus válasz",
];

/// Local parts of no-reply addresses, without separators.
const NO_REPLY_LOCAL_PARTS: &[&str] = &[
    "noreply",
    "donotreply",
    "dontreply",
    "noresponder",
    "nepasrepondre",
    "nichtantworten",
    "naoresponda",
    "nonrispondere",
    "nietbeantwoorden",
];
/// Local parts of mail systems.
const MAIL_SYSTEM_LOCAL_PARTS: &[&str] = &["mailer-daemon", "mailerdaemon", "mail-daemon", "postmaster-bounces"];

/// The strongest reason against an automatic reply. `envelope_sender` is empty for the null sender; if it is `None`,
/// the `Return-Path` header is used instead.
pub fn detect(mail: &ParsedMail, envelope_sender: Option<&str>) -> Option<AutomaticMatch> {
    let hard = |reason| AutomaticMatch { reason, is_hard: true };
    let soft = |reason| AutomaticMatch { reason, is_hard: false };
    hard_reason(mail, envelope_sender).map(hard).or_else(|| soft_reason(mail).map(soft))
}

fn hard_reason(mail: &ParsedMail, envelope_sender: Option<&str>) -> Option<Why> {
    let signs = &mail.signs;
    let return_path =
        envelope_sender.or(signs.return_path.as_deref()).map(|return_path| return_path.trim().trim_matches(['<', '>']));
    let is_report = signs.content_type == "multipart/report"
        || signs.report_type.is_some()
        || matches!(
            signs.content_type.as_str(),
            "message/delivery-status" | "message/disposition-notification" | "message/feedback-report"
        );
    let is_mail_system = |address: &str| MAIL_SYSTEM_LOCAL_PARTS.contains(&local_part(address).as_str());
    if return_path.is_some_and(str::is_empty) {
        Some(Why::NullReturnPath)
    } else if signs.auto_submitted.as_deref().is_some_and(|keyword| keyword != "no" && !keyword.is_empty()) {
        Some(Why::AutoSubmitted)
    } else if is_report {
        Some(Why::Report)
    } else if return_path.is_some_and(is_mail_system)
        || mail.from.iter().chain(&mail.sender).any(|from| is_mail_system(&from.address))
    {
        Some(Why::MailSystem)
    } else if signs.received > LOOP_HOPS {
        Some(Why::TooManyHops)
    } else if signs.references > LOOP_REFERENCES {
        Some(Why::LongThread)
    } else {
        None
    }
}

fn soft_reason(mail: &ParsedMail) -> Option<Why> {
    let signs = &mail.signs;
    let reply_addresses = if mail.reply_to.is_empty() { &mail.from } else { &mail.reply_to };
    let replies_to = |test: fn(&str) -> bool| reply_addresses.iter().any(|mailbox| test(&local_part(&mailbox.address)));
    // The value `None` asks for nothing; `DR` and `RN` concern receipts, not replies.
    let is_suppressed = signs.suppress.iter().any(|word| matches!(word.as_str(), "all" | "autoreply" | "oof"));
    let is_bulk = |word: &str| ["bulk", "junk", "list", "auto_reply"].iter().any(|kind| word.starts_with(kind));
    if is_suppressed {
        Some(Why::Suppressed)
    } else if signs.list.is_some() {
        Some(Why::List)
    } else if signs.precedence.as_deref().is_some_and(is_bulk) {
        Some(Why::Precedence)
    } else if signs.auto_reply.is_some() {
        Some(Why::AutoReply)
    } else if signs.looped {
        Some(Why::Loop)
    } else if signs.calendar_reply {
        Some(Why::CalendarReply)
    } else if replies_to(is_no_reply) {
        Some(Why::NoReply)
    } else if replies_to(is_list_manager) {
        Some(Why::Robot)
    } else {
        let subject = mail.subject.trim_start_matches(['[', ' ']).to_lowercase();
        ABSENCE_SUBJECT_PREFIXES.iter().any(|start| subject.starts_with(start)).then_some(Why::Absence)
    }
}

fn local_part(address: &str) -> String {
    address.rsplit_once('@').map_or(address, |(local, _)| local).to_ascii_lowercase()
}

fn is_no_reply(local: &str) -> bool {
    let parts: Vec<&str> = local.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    // A match at the end must start at a part boundary or lie in the last part: `anno.reply` is a person's name.
    let ends_with_name = |name: &str| {
        parts.last().is_some_and(|last| last.ends_with(name))
            || (0..parts.len()).any(|start| parts[start..].concat() == name)
    };
    let joined = parts.concat();
    NO_REPLY_LOCAL_PARTS.iter().any(|name| joined.starts_with(name) || ends_with_name(name))
}

/// Whether the local part is that of a mailing list manager (RFC 3834 §2).
fn is_list_manager(local: &str) -> bool {
    local.starts_with("owner-")
        || local.ends_with("-request")
        || local.ends_with("-owner")
        || local.ends_with("-bounces")
        || local.starts_with("bounce+")
        || matches!(local, "listserv" | "majordomo" | "mailman" | "bounce" | "bounces")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    #[track_caller]
    fn check(header: &str, envelope_sender: Option<&str>, expected: Option<(Why, bool)>) {
        let mail = parse(format!("{header}\n\nhello").as_bytes());
        assert_eq!(detect(&mail, envelope_sender).map(|reason| (reason.reason, reason.is_hard)), expected, "{header}");
    }

    #[test]
    fn machine_generated_mail_has_a_hard_reason() {
        check("Return-Path: <>", None, Some((Why::NullReturnPath, true)));
        check("From: a@x.example", Some(""), Some((Why::NullReturnPath, true)));
        check("From: a@x.example", Some("<>"), Some((Why::NullReturnPath, true)));
        check("Auto-Submitted: auto-replied (vacation)", None, Some((Why::AutoSubmitted, true)));
        check("Auto-Submitted: auto-generated; owner-email=x", None, Some((Why::AutoSubmitted, true)));
        check(
            "Content-Type: multipart/report; report-type=delivery-status; boundary=x",
            None,
            Some((Why::Report, true)),
        );
        check("Content-Type: multipart/report; report-type=disposition-notification", None, Some((Why::Report, true)));
        check("From: MAILER-DAEMON@x.example", None, Some((Why::MailSystem, true)));
        check(&"Received: x\n".repeat(51), None, Some((Why::TooManyHops, true)));
        check(&format!("References: {}", "<a@b> ".repeat(101)), None, Some((Why::LongThread, true)));
    }

    #[test]
    fn weaker_signs_are_soft_reasons() {
        check("X-Auto-Response-Suppress: DR, OOF, AutoReply", None, Some((Why::Suppressed, false)));
        check("List-Unsubscribe: <mailto:x@y.example>", None, Some((Why::List, false)));
        check("Precedence: bulk", None, Some((Why::Precedence, false)));
        check("X-Autoreply: yes", None, Some((Why::AutoReply, false)));
        check("X-Autoreply: no\nX-Autorespond: Away", None, Some((Why::AutoReply, false)));
        check("X-Loop: me", None, Some((Why::Loop, false)));
        for local in [
            "no-reply",
            "noreply",
            "No_Reply",
            "do-not-reply",
            "noreply+77",
            "no-reply-77",
            "billing-noreply",
            "billing.no-reply",
            "billingnoreply",
            "ne-pas-repondre",
        ] {
            check(&format!("From: {local}@x.example"), None, Some((Why::NoReply, false)));
        }
        check("Content-Type: text/calendar; charset=utf-8; method=REPLY", None, Some((Why::CalendarReply, false)));
        check("Content-Type: text/calendar; METHOD=\"reply\"", None, Some((Why::CalendarReply, false)));
        check(&alternative_mail("text/calendar; method=REPLY"), None, Some((Why::CalendarReply, false)));
        for local in ["owner-list", "list-request", "majordomo", "dev-bounces"] {
            check(&format!("From: {local}@x.example"), None, Some((Why::Robot, false)));
        }
        for subject in [
            "Automatic reply: Hello",
            "Abwesenheitsnotiz",
            "Réponse automatique : x",
            "自動応答: x",
            "Автоответ: x",
            "رد تلقائي: x",
            "Automatisk svar: x",
            "Fravær: x",
            "תשובה אוטומטית: x",
        ] {
            check(&format!("Subject: {subject}"), None, Some((Why::Absence, false)));
        }
    }

    /// The header of a mail with a text part and an alternative part of another type.
    fn alternative_mail(other: &str) -> String {
        format!(
            "Subject: Accepted: Lunch\nContent-Type: multipart/alternative; boundary=b\n\n--b\n\nYes\n--b\nContent-Type: {other}"
        )
    }

    #[test]
    fn mail_of_people_has_no_reason() {
        check("Subject: Accepted: Lunch", None, None);
        check("Content-Type: text/calendar; method=REQUEST", None, None);
        check(&alternative_mail("text/calendar; method=REQUEST"), None, None);
        // A calendar reply as an attachment was forwarded by a person.
        check(&alternative_mail("text/calendar; method=REPLY\nContent-Disposition: attachment"), None, None);
        check("From: ada@x.example\nSubject: Re: Out of office policy", Some("ada@x.example"), None);
        check("Auto-Submitted: no", None, None);
        check("X-Auto-Response-Suppress: None", None, None);
        check("X-Auto-Response-Suppress: DR, RN", None, None);
        check("Precedence: first-class", None, None);
        check("From: no-reply@x.example\nReply-To: ticket+9@x.example", None, None);
        check("From: norepl@x.example", None, None);
        // `noreply` across the parts of a person's name does not count.
        for local in ["anno.reply", "casino-reply", "bruno_reply"] {
            check(&format!("From: {local}@x.example"), None, None);
        }
        check("X-Autoreply: no", None, None);
        check("X-Auto-Reply: No (a person)", None, None);
        check("X-FC-MachineGenerated: false", None, None);
    }
}

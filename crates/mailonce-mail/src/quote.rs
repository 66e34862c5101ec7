//! Splits a text into what its author wrote, older quoted mail, and the signature.

/// A text, split into its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SplitText {
    /// The text that the author wrote.
    pub own_text: String,
    /// The quoted or forwarded text.
    pub quoted_text: String,
    /// Lines of quoted text.
    pub quoted_lines: usize,
    /// Lines of the signature.
    pub signature_lines: usize,
}

/// Lines that are followed by an older mail, in lower case and without dashes.
const QUOTE_HEADINGS: &[&str] = &[
    "original message",
    "forwarded message",
    "begin forwarded message",
    "ursprüngliche nachricht",
    "weitergeleitete nachricht",
    "originalnachricht",
    "message d'origine",
    "message original",
    "message transféré",
    "mensaje original",
    "mensaje reenviado",
    "mensagem original",
    "mensagem encaminhada",
    "messaggio originale",
    "messaggio inoltrato",
    "oorspronkelijk bericht",
    "doorgestuurd bericht",
    "wiadomość oryginalna",
    "oryginalna wiadomość",
    "özgün ileti",
    "orijinal mesaj",
    "исходное сообщение",
    "пересылаемое сообщение",
    "元のメッセージ",
    "転送メッセージ",
    "原始邮件",
    "原始郵件",
    "转发的邮件",
    "원본 메시지",
    "원본 메일",
    "전달된 메시지",
    "الرسالة الأصلية",
];
/// Endings of the line before a quote, in lower case.
const ATTRIBUTION_ENDINGS: &[&str] = &[
    "wrote:",
    "schrieb:",
    "a écrit :",
    "a écrit:",
    "escribió:",
    "escreveu:",
    "ha scritto:",
    "schreef:",
    "napisał:",
    "napisał(a):",
    "napisała:",
    "şunu yazdı:",
    "yazdı:",
    "написал:",
    "написал(а):",
    "пишет:",
    "のメール:",
    "写道:",
    "写道：",
    "寫道:",
    "寫道：",
    "작성:",
    "님이 작성:",
    "كتب:",
    "skrev:",
    "kirjoitti:",
];
/// Labels of the first line of a quoted header.
const QUOTED_FROM_LABELS: &[&str] = &[
    "from:",
    "von:",
    "de:",
    "de :",
    "da:",
    "van:",
    "od:",
    "kimden:",
    "от:",
    "差出人:",
    "发件人:",
    "寄件者:",
    "보낸 사람:",
    "من:",
];
const QUOTED_HEADER_LABELS: &[&str] = &[
    "sent:",
    "date:",
    "gesendet:",
    "datum:",
    "envoyé :",
    "envoyé:",
    "date :",
    "enviado:",
    "fecha:",
    "data:",
    "inviato:",
    "verzonden:",
    "wysłano:",
    "gönderildi:",
    "отправлено:",
    "дата:",
    "送信日時:",
    "发送时间:",
    "傳送時間:",
    "보낸 날짜:",
    "تاريخ:",
    "to:",
    "an:",
    "subject:",
    "betreff:",
];
/// Beginnings of lines that mail clients add, in lower case.
const MAIL_APP_SIGNATURES: &[&str] = &[
    "sent from my ",
    "sent via ",
    "get outlook for ",
    "von meinem ",
    "gesendet von ",
    "envoyé de mon ",
    "enviado desde mi ",
    "enviado do meu ",
    "inviato da ",
    "verzonden vanaf ",
    "отправлено с ",
    "从我的",
];

/// Splits a text. Quotes inside a reply are removed. Everything after the header of an older mail counts as quoted.
pub fn split_quotes(text: &str) -> SplitText {
    let lines: Vec<&str> = text.lines().collect();
    let mut split = SplitText::default();
    let last_marked = lines.iter().rposition(|line| line.trim_start().starts_with('>'));
    let end = (0..lines.len()).find(|at| starts_quoted_mail(&lines, *at, last_marked)).unwrap_or(lines.len());
    let (own_lines, quoted_mail) = lines.split_at(end);
    let mut kept: Vec<&str> = Vec::new();
    for (at, line) in own_lines.iter().enumerate() {
        if is_signature(line) && at + 1 >= own_lines.len().saturating_sub(30) {
            split.signature_lines = own_lines[at..].iter().filter(|line| !line.trim().is_empty()).count();
            break;
        }
        if line.trim_start().starts_with('>') || starts_attributed_quote(own_lines, at) {
            split.quoted_lines += 1;
            push_line(&mut split.quoted_text, line.trim_start_matches(['>', ' ']));
        } else {
            kept.push(line);
        }
    }
    for line in quoted_mail {
        split.quoted_lines += usize::from(!line.trim().is_empty());
        push_line(&mut split.quoted_text, line.trim_start_matches(['>', ' ']));
    }
    kept.join("\n").trim().clone_into(&mut split.own_text);
    split
}

fn push_line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// Whether an older mail starts at this line. `last_marked` is the last line that starts with `>`.
fn starts_quoted_mail(lines: &[&str], at: usize, last_marked: Option<usize>) -> bool {
    let line = lines[at].trim().to_lowercase();
    let bare = line.trim_matches(['-', '_', ' ', '*', ':', '=']);
    if QUOTE_HEADINGS.contains(&bare) {
        return true;
    }
    let plain = line.trim_start_matches('*').replace('*', "");
    let is_from_line = QUOTED_FROM_LABELS.iter().any(|name| plain.starts_with(name));
    let next = lines.get(at + 1).map(|next| next.trim().to_lowercase().replace('*', "")).unwrap_or_default();
    // A mail's own text may begin with `From:`. In a quoted header the date or recipient follows.
    if at > 0 && is_from_line && QUOTED_HEADER_LABELS.iter().any(|name| next.starts_with(name)) {
        return true;
    }
    // A reply above a quote without `>` markers: everything after the attribution line is the quote.
    is_attribution_line(lines, at) && last_marked.is_none_or(|last_marked| last_marked <= at)
}

/// Whether this line names the author of the text that follows.
fn is_attribution_line(lines: &[&str], at: usize) -> bool {
    let line = lines[at].trim().to_lowercase();
    let ends = |line: &str| ATTRIBUTION_ENDINGS.iter().any(|end| line.ends_with(end));
    let dated = |line: &str| line.chars().any(|c| c.is_ascii_digit()) || line.contains('@');
    ends(&line) && (dated(&line) || at > 0 && dated(lines[at - 1])) && at + 1 < lines.len()
}

/// Whether this is an attribution line followed by `>` lines. The search starts only after an attribution line: from
/// every line of a mail of empty lines, it would take quadratic time.
fn starts_attributed_quote(lines: &[&str], at: usize) -> bool {
    let next = || lines.iter().skip(at + 1).find(|line| !line.trim().is_empty());
    is_attribution_line(lines, at) && next().is_some_and(|line| line.trim_start().starts_with('>'))
}

fn is_signature(line: &str) -> bool {
    let lower = line.trim().to_lowercase();
    line == "-- "
        || lower == "--"
        || MAIL_APP_SIGNATURES.iter().any(|start| lower.starts_with(start)) && lower.chars().count() < 60
}

//! What of a text its writer wrote, and what is an older mail or a signature.

/// A text, divided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SplitText {
    /// What the writer wrote.
    pub own_text: String,
    /// What was quoted or forwarded.
    pub quoted_text: String,
    /// Lines of it.
    pub quoted_lines: usize,
    /// Lines of the signature.
    pub signature_lines: usize,
}

/// Lines behind which an older mail stands, in lower case, without dashes.
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
/// How the line before a quote ends, in lower case.
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
/// Names of the first two fields of a quoted header.
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
/// Lines that mail programs add, in lower case.
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

/// Divides a text. A quote inside an answer is taken out; what follows an older mail's head is all of it quoted.
pub fn split_quotes(text: &str) -> SplitText {
    let lines: Vec<&str> = text.lines().collect();
    let mut split = SplitText::default();
    let marked = lines.iter().rposition(|line| line.trim_start().starts_with('>'));
    let end = (0..lines.len()).find(|at| starts_quoted_mail(&lines, *at, marked)).unwrap_or(lines.len());
    let (own, old) = lines.split_at(end);
    let mut kept: Vec<&str> = Vec::new();
    for (at, line) in own.iter().enumerate() {
        if is_signature(line) && at + 1 >= own.len().saturating_sub(30) {
            split.signature_lines = own[at..].iter().filter(|line| !line.trim().is_empty()).count();
            break;
        }
        if line.trim_start().starts_with('>') || introduces_marked_quote(own, at) {
            split.quoted_lines += 1;
            push_line(&mut split.quoted_text, line.trim_start_matches(['>', ' ']));
        } else {
            kept.push(line);
        }
    }
    for line in old {
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

/// Whether an older mail begins at this line. `marked` is the last line with the mark of a quote.
fn starts_quoted_mail(lines: &[&str], at: usize, marked: Option<usize>) -> bool {
    let line = lines[at].trim().to_lowercase();
    let bare = line.trim_matches(['-', '_', ' ', '*', ':', '=']);
    if QUOTE_HEADINGS.contains(&bare) {
        return true;
    }
    let plain = line.trim_start_matches('*').replace('*', "");
    let head = QUOTED_FROM_LABELS.iter().any(|name| plain.starts_with(name));
    let next = lines.get(at + 1).map(|next| next.trim().to_lowercase().replace('*', "")).unwrap_or_default();
    // A letter may begin with `From:`; a header goes on with the date.
    if at > 0 && head && QUOTED_HEADER_LABELS.iter().any(|name| next.starts_with(name)) {
        return true;
    }
    // An answer above a quote whose lines have no mark: everything behind the introduction is the quote.
    is_attribution_line(lines, at) && marked.is_none_or(|marked| marked <= at)
}

/// Whether this line says who wrote what follows.
fn is_attribution_line(lines: &[&str], at: usize) -> bool {
    let line = lines[at].trim().to_lowercase();
    let ends = |line: &str| ATTRIBUTION_ENDINGS.iter().any(|end| line.ends_with(end));
    let dated = |line: &str| line.chars().any(|c| c.is_ascii_digit()) || line.contains('@');
    ends(&line) && (dated(&line) || at > 0 && dated(lines[at - 1])) && at + 1 < lines.len()
}

/// The same, with marked lines behind it. They are looked for behind such a line alone: from every line of a mail that is
/// all empty lines it would be a look at all of them.
fn introduces_marked_quote(lines: &[&str], at: usize) -> bool {
    let next = || lines.iter().skip(at + 1).find(|line| !line.trim().is_empty());
    is_attribution_line(lines, at) && next().is_some_and(|line| line.trim_start().starts_with('>'))
}

fn is_signature(line: &str) -> bool {
    let lower = line.trim().to_lowercase();
    line == "-- "
        || lower == "--"
        || MAIL_APP_SIGNATURES.iter().any(|start| lower.starts_with(start)) && lower.chars().count() < 60
}

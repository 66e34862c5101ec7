//! Character references. An unknown one stays as it is written; one that names no character is nothing.

/// The names that mails use.
const NAMED: &[(&str, &str)] = &[
    ("amp", "&"),
    ("lt", "<"),
    ("gt", ">"),
    ("quot", "\""),
    ("apos", "'"),
    ("nbsp", "\u{a0}"),
    ("shy", "\u{ad}"),
    ("zwnj", "\u{200c}"),
    ("zwj", "\u{200d}"),
    ("lrm", "\u{200e}"),
    ("rlm", "\u{200f}"),
    ("ensp", "\u{2002}"),
    ("emsp", "\u{2003}"),
    ("thinsp", "\u{2009}"),
    ("ndash", "–"),
    ("mdash", "—"),
    ("lsquo", "‘"),
    ("rsquo", "’"),
    ("ldquo", "“"),
    ("rdquo", "”"),
    ("sbquo", "‚"),
    ("bdquo", "„"),
    ("laquo", "«"),
    ("raquo", "»"),
    ("lsaquo", "‹"),
    ("rsaquo", "›"),
    ("hellip", "…"),
    ("bull", "•"),
    ("middot", "·"),
    ("times", "×"),
    ("copy", "©"),
    ("reg", "®"),
    ("trade", "™"),
    ("euro", "€"),
    ("pound", "£"),
    ("yen", "¥"),
    ("cent", "¢"),
    ("sect", "§"),
    ("deg", "°"),
    ("iexcl", "¡"),
    ("iquest", "¿"),
    ("szlig", "ß"),
    ("auml", "ä"),
    ("ouml", "ö"),
    ("uuml", "ü"),
    ("Auml", "Ä"),
    ("Ouml", "Ö"),
    ("Uuml", "Ü"),
    ("agrave", "à"),
    ("aacute", "á"),
    ("acirc", "â"),
    ("atilde", "ã"),
    ("aring", "å"),
    ("aelig", "æ"),
    ("ccedil", "ç"),
    ("egrave", "è"),
    ("eacute", "é"),
    ("ecirc", "ê"),
    ("euml", "ë"),
    ("igrave", "ì"),
    ("iacute", "í"),
    ("icirc", "î"),
    ("iuml", "ï"),
    ("ntilde", "ñ"),
    ("ograve", "ò"),
    ("oacute", "ó"),
    ("ocirc", "ô"),
    ("otilde", "õ"),
    ("oslash", "ø"),
    ("ugrave", "ù"),
    ("uacute", "ú"),
    ("ucirc", "û"),
    ("yacute", "ý"),
    ("Agrave", "À"),
    ("Aacute", "Á"),
    ("Ccedil", "Ç"),
    ("Egrave", "È"),
    ("Eacute", "É"),
    ("Ntilde", "Ñ"),
    ("Oacute", "Ó"),
    ("Uacute", "Ú"),
    ("larr", "←"),
    ("rarr", "→"),
    ("num", "#"),
    ("colon", ":"),
    ("sol", "/"),
    ("period", "."),
    ("commat", "@"),
    ("lowbar", "_"),
    ("Tab", "\t"),
    ("NewLine", "\n"),
];

/// The text with its references replaced.
pub(super) fn decode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        match reference(rest) {
            Some((shown, used)) => {
                out.push_str(&shown);
                rest = &rest[used..];
            }
            None => out.push('&'),
        }
    }
    out.push_str(rest);
    out
}

fn reference(rest: &str) -> Option<(String, usize)> {
    if let Some(number) = rest.strip_prefix('#') {
        let (digits, radix, lead) = match number.strip_prefix(['x', 'X']) {
            Some(hex) => (hex, 16, 2),
            None => (number, 10, 1),
        };
        let count = digits.bytes().take_while(|b| char::from(*b).is_digit(radix)).count();
        if count == 0 {
            return None;
        }
        let semicolon = usize::from(digits[count..].starts_with(';'));
        let shown = u32::from_str_radix(&digits[..count], radix).ok().and_then(char::from_u32);
        // A number beyond all characters would otherwise be left as digits, and look like a code.
        let shown = shown.filter(|&c| c != '\0').map(String::from).unwrap_or_default();
        return Some((shown, lead + count + semicolon));
    }
    let count = rest.bytes().take(10).take_while(u8::is_ascii_alphanumeric).count();
    let name = &rest[..count];
    let closed = rest[count..].starts_with(';');
    let (_, shown) = NAMED.iter().find(|(known, _)| *known == name)?;
    // Browsers take the five old ones without their semicolon too.
    let open = matches!(name, "amp" | "lt" | "gt" | "quot" | "nbsp");
    (closed || open).then(|| ((*shown).to_owned(), count + usize::from(closed)))
}

//! Host names: registrable domains, internal names, and look-alikes.

use unicode_normalization::{UnicodeNormalization as _, char::is_combining_mark};
use unicode_security::skeleton as confusable_skeleton;

/// The registrable domain of a host, such as `example.co.uk` for `a.b.example.co.uk`. `None` for a public suffix.
pub fn registrable_domain(host: &str) -> Option<&str> {
    psl::domain_str(host.trim_end_matches('.'))
}

/// The registrable domain of a host, or the host itself if it has none.
pub fn registrable_or_host(host: &str) -> &str {
    registrable_domain(host).unwrap_or(host)
}

/// Whether `host` is `name` or a subdomain of it. Always false for a public suffix, whose subdomains belong to
/// different owners.
pub(super) fn is_same_or_subdomain(host: &str, name: &str) -> bool {
    let name = name.trim().trim_start_matches("*.").trim_end_matches('.').to_ascii_lowercase();
    registrable_domain(&name).is_some()
        && (host == name || host.strip_suffix(name.as_str()).is_some_and(|front| front.ends_with('.')))
}

/// Whether a name is internal, so that it may resolve to a different machine on every network.
pub(super) fn is_internal(host: &str) -> bool {
    const TOPS: &[&str] = &[
        "local",
        "localhost",
        "internal",
        "intranet",
        "lan",
        "corp",
        "home",
        "localdomain",
        "private",
        "onion",
        "arpa",
        "cluster",
    ];
    let tld = host.rsplit('.').next().unwrap_or_default();
    !host.contains('.')
        || TOPS.contains(&tld)
        || ["nip.io", "sslip.io", "localtest.me", "lvh.me", "xip.io"]
            .iter()
            .any(|name| is_same_or_subdomain(host, name))
}

/// Letters of other scripts that look like ASCII ones.
const CONFUSABLES: &[(char, char)] = &[
    ('а', 'a'),
    ('в', 'b'),
    ('с', 'c'),
    ('ԁ', 'd'),
    ('е', 'e'),
    ('ғ', 'f'),
    ('ɡ', 'g'),
    ('һ', 'h'),
    ('і', 'i'),
    ('ї', 'i'),
    ('ј', 'j'),
    ('к', 'k'),
    ('ӏ', 'l'),
    ('м', 'm'),
    ('н', 'h'),
    ('о', 'o'),
    ('р', 'p'),
    ('ԛ', 'q'),
    ('г', 'r'),
    ('ѕ', 's'),
    ('т', 't'),
    ('ц', 'u'),
    ('ѵ', 'v'),
    ('ԝ', 'w'),
    ('х', 'x'),
    ('у', 'y'),
    ('ʐ', 'z'),
    ('α', 'a'),
    ('β', 'b'),
    ('ε', 'e'),
    ('η', 'n'),
    ('ι', 'i'),
    ('κ', 'k'),
    ('ν', 'v'),
    ('ο', 'o'),
    ('ρ', 'p'),
    ('τ', 't'),
    ('υ', 'u'),
    ('χ', 'x'),
    ('γ', 'y'),
    ('ı', 'i'),
    ('ł', 'l'),
    ('ø', 'o'),
    ('đ', 'd'),
    ('ß', 'b'),
    ('ſ', 's'),
    ('ɑ', 'a'),
    ('ո', 'n'),
    ('ս', 'u'),
    ('օ', 'o'),
    ('ᴀ', 'a'),
    ('ʙ', 'b'),
    ('ᴄ', 'c'),
    ('ᴅ', 'd'),
    ('ᴇ', 'e'),
    ('ꜰ', 'f'),
    ('ɢ', 'g'),
    ('ʜ', 'h'),
    ('ɪ', 'i'),
    ('ᴊ', 'j'),
    ('ᴋ', 'k'),
    ('ʟ', 'l'),
    ('ᴍ', 'm'),
    ('ɴ', 'n'),
    ('ᴏ', 'o'),
    ('ᴘ', 'p'),
    ('ꞯ', 'q'),
    ('ʀ', 'r'),
    ('ꜱ', 's'),
    ('ᴛ', 't'),
    ('ᴜ', 'u'),
    ('ᴠ', 'v'),
    ('ᴡ', 'w'),
    ('ʏ', 'y'),
    ('ᴢ', 'z'),
];

/// The ASCII letter that a character looks like, or the character itself.
fn ascii_lookalike(c: char) -> char {
    let c = crate::unicode::fold_to_ascii(c);
    CONFUSABLES.iter().find(|(lookalike, _)| *lookalike == c).map_or(c, |(_, ascii)| *ascii)
}

/// The name with every letter replaced by the ASCII letter it looks like.
fn skeleton(name: &str) -> String {
    let base: String = name.chars().map(ascii_lookalike).collect();
    base.replace('0', "o").replace(['1', 'i'], "l").replace("rn", "m").replace("vv", "w").replace('5', "s")
}

/// The script of a letter. `None` for digits and dashes, which belong to all scripts.
fn script_of(c: char) -> Option<u8> {
    match c {
        _ if !c.is_alphabetic() => None,
        '\u{0041}'..='\u{024F}' => Some(0),
        '\u{0370}'..='\u{03FF}' => Some(1),
        '\u{0400}'..='\u{052F}' => Some(2),
        '\u{0530}'..='\u{058F}' => Some(3),
        _ => Some(4),
    }
}

/// Whether a Unicode name mixes scripts, or uses another script only to look like ASCII.
pub(super) fn is_confusable(unicode: &str) -> bool {
    unicode.split('.').any(|label| {
        let mut scripts: Vec<u8> = label.chars().filter_map(script_of).collect();
        scripts.sort_unstable();
        scripts.dedup();
        let mixed = scripts.len() > 1;
        let whole = scripts.first().is_some_and(|script| (1..=3).contains(script)) && skeleton(label).is_ascii();
        mixed || whole
    })
}

/// Whether one local part can be mistaken for the other: they differ only in invisible characters, look-alike letters,
/// accents, or punctuation.
pub fn is_lookalike(name: &str, other: &str) -> bool {
    let keys = [SymbolReading::Dropped, SymbolReading::Letter].map(|reading| visible_letters(name, reading));
    let is_same = |reading| {
        let letters = visible_letters(other, reading);
        !letters.is_empty() && keys.contains(&letters)
    };
    name == other || is_same(SymbolReading::Dropped) || is_same(SymbolReading::Letter)
}

/// How `!`, `6` and `8` are compared: each looks like a letter in some names, and is punctuation or a digit in others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SymbolReading {
    Dropped,
    Letter,
}

/// The letter that a character of a local part looks like. Host names are compared with fewer characters, because honest
/// names of other scripts have these letters.
fn local_part_lookalike(c: char, reading: SymbolReading) -> char {
    match c {
        'ʌ' | 'λ' | 'ɐ' => 'a',
        'ь' | 'ƅ' => 'b',
        'п' | 'и' | 'π' => 'n',
        '€' | 'є' | 'э' | 'ǝ' | 'ə' | 'ɘ' => 'e',
        '§' => 's',
        '¡' => 'i',
        '!' if reading == SymbolReading::Letter => 'i',
        '6' | '8' if reading == SymbolReading::Letter => 'b',
        c => c,
    }
}

/// The visible letters and digits of a name, each as the ASCII letter it looks like.
fn visible_letters(name: &str, reading: SymbolReading) -> String {
    // The Unicode confusables map `%` to letters.
    let is_visible = |c: &char| !crate::unicode::is_invisible(*c) && *c != '%';
    let visible = name.chars().filter(is_visible).map(enclosed_letter);
    // The table above comes first: the Unicode confusables map some letters of other scripts to prototypes outside
    // ASCII.
    let plain: String = visible
        .nfkd()
        .flat_map(char::to_lowercase)
        .map(|c| ascii_lookalike(local_part_lookalike(c, reading)))
        .collect();
    let letters = confusable_skeleton(&plain).nfkd().filter(|c| !is_combining_mark(*c)).flat_map(char::to_lowercase);
    let letters = letters.map(|c| match c {
        '3' => 'e',
        '4' => 'a',
        '7' => 't',
        '$' => 's',
        _ => c,
    });
    let letters: String = letters.filter(|c| c.is_alphanumeric()).collect();
    // Host names are not compared by these pairs, because many honest ones have them.
    skeleton(&letters.replace("cl", "d")).replace("nn", "m")
}

/// The letter inside a black circle, a black square or a regional indicator. Unicode does not decompose these.
fn enclosed_letter(c: char) -> char {
    let first = match c {
        '\u{1F150}'..='\u{1F169}' => 0x1F150,
        '\u{1F170}'..='\u{1F189}' => 0x1F170,
        '\u{1F1E6}'..='\u{1F1FF}' => 0x1F1E6,
        _ => return c,
    };
    char::from(b'a' + (u32::from(c) - first) as u8)
}

/// Whether one domain looks like the other without being the same.
pub(super) fn is_lookalike_domain(host: &str, other: &str) -> bool {
    let (Some(host), Some(other)) = (registrable_domain(host), registrable_domain(other)) else { return false };
    host != other && skeleton(host) == skeleton(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_alikes_of_a_name_are_recognized() {
        for (name, disguised) in [
            ("-", "-"),
            ("admin", "𝐚dmin"),
            ("admin", "ⓐdmin"),
            ("admin", "ᵃdmin"),
            ("admin", "ᴀdmin"),
            ("admin", "ᴀᴅᴍɪɴ"),
            ("admin", "🅐dmin"),
            ("admin", "🅰dmin"),
            ("admin", "🇦dmin"),
            ("admin", "àdmin"),
            ("admin", "a\u{300}dmin"),
            ("admin", "admín"),
            ("admin", "ạdmin"),
            ("admin", "ÀDMIN"),
            ("admin", "αdmin"),
            ("admin", "αԁмıո"),
            ("admin", "ａｄｍｉｎ"),
            ("admin", "adm\u{200b}in"),
            ("admin", "admɩn"),
            ("admin", "admǀn"),
            ("admin", "adm|n"),
            ("admin", "adm1n"),
            ("admin", "4dmin"),
            ("admin", "adrnin"),
            ("admin", "ad%min"),
            ("admin", "adm!n"),
            ("admin", "admin!"),
            ("admin", "ʌdmin"),
            ("admin", "Λdmin"),
            ("admin", "ɐdmin"),
            ("admin", "admiп"),
            ("admin", "admiи"),
            ("security", "s€curity"),
            ("security", "§ecurity"),
            ("abuse", "a6use"),
            ("abuse", "a8use"),
            ("abuse", "abuse!"),
            ("abuse", "a\u{42c}use"),
            ("abuse", "a\u{44c}use"),
            ("abuse", "a\u{185}use"),
            ("admin", "adnnin"),
            ("admin", "aclmin"),
            ("admin", "ad․min"),
            ("admin", "_admin"),
            ("admin", "a-d-m-i-n"),
            ("administrator", "administrat0r"),
            ("ssladmin", "ssl-admin"),
            ("postmaster", "ᵖostmaster"),
            ("postmaster", "pöstmaster"),
            ("postmaster", "pøstmaster"),
            ("postmaster", "post-master"),
            ("postmaster", "poſtmaster"),
            ("webmaster", "webmᵃster"),
            ("webmaster", "vvebmaster"),
            ("support", "ˢupport"),
            ("support", "$upport"),
            ("security", "securitý"),
            ("root", "roo7"),
            ("root", "r00t"),
            ("mailer-daemon", "mailer.daemon"),
            ("mailer-daemon", "mailerdaemon"),
            ("mailer-daemon", "MAILER_DAEMON"),
        ] {
            assert!(is_lookalike(name, disguised), "{disguised} is not taken for {name}");
        }
    }

    #[test]
    fn honest_names_are_not_taken_for_others() {
        let names = ["admin", "info", "news", "noc", "postmaster", "root", "sales", "support", "www", "mailer-daemon"];
        for honest in [
            "admission",
            "supporters",
            "post",
            "master",
            "administration",
            "roots",
            "newsletter",
            "new",
            "sale",
            "daemon",
            "mailer",
            "information",
            "admin2",
            "admin6",
            "admin8",
            "nadia",
            "anna",
            "clara",
            "ольга",
            "анна",
            "нина",
            "λένα",
            "badmin",
            "jürgen",
            "иван",
            "γιάννης",
            "山田",
            "محمد",
            "-",
            "7",
            "|",
        ] {
            assert_eq!(names.iter().find(|name| is_lookalike(name, honest)), None, "{honest}");
        }
    }
}

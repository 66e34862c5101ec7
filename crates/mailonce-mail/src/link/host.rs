//! Names of hosts: where a registrable domain begins, what is inside somebody's network, what only looks like a name.

/// The registrable domain of a host, such as `example.co.uk` of `a.b.example.co.uk`. None for a public suffix.
pub fn registrable_domain(host: &str) -> Option<&str> {
    psl::domain_str(host.trim_end_matches('.'))
}

/// Who stands behind a host: its registrable domain, else the host itself.
pub fn registrable_or_host(host: &str) -> &str {
    registrable_domain(host).unwrap_or(host)
}

/// Whether `host` is `name` or below it. A public suffix has nothing below it that could be trusted.
pub(super) fn is_same_or_subdomain(host: &str, name: &str) -> bool {
    let name = name.trim().trim_start_matches("*.").trim_end_matches('.').to_ascii_lowercase();
    registrable_domain(&name).is_some()
        && (host == name || host.strip_suffix(name.as_str()).is_some_and(|front| front.ends_with('.')))
}

/// Names that mean a different machine on every network.
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
    let top = host.rsplit('.').next().unwrap_or_default();
    !host.contains('.')
        || TOPS.contains(&top)
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
];

/// The name with every letter replaced by the ASCII one it looks like.
fn skeleton(name: &str) -> String {
    let plain = |c: char| {
        let c = crate::unicode::fold_to_ascii(c);
        CONFUSABLES.iter().find(|(look, _)| *look == c).map_or(c, |(_, ascii)| *ascii)
    };
    let base: String = name.chars().map(plain).collect();
    base.replace('0', "o").replace(['1', 'i'], "l").replace("rn", "m").replace("vv", "w").replace('5', "s")
}

/// Latin, Cyrillic, Greek, Armenian or something else; digits and dashes belong to all.
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

/// Whether a name in Unicode mixes scripts, or is written in one only to look like ASCII.
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

/// Whether one name can be taken for the other: they differ in characters that nobody sees, or in letters that look alike.
pub fn is_lookalike(name: &str, other: &str) -> bool {
    let seen = |name: &str| skeleton(&name.chars().filter(|c| !crate::unicode::is_invisible(*c)).collect::<String>());
    seen(name) == seen(other)
}

/// Whether one domain was made to be taken for the other.
pub(super) fn is_lookalike_domain(host: &str, other: &str) -> bool {
    let (Some(host), Some(other)) = (registrable_domain(host), registrable_domain(other)) else { return false };
    host != other && skeleton(host) == skeleton(other)
}

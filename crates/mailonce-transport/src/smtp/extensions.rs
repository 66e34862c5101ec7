//! The extensions in a server's reply to EHLO.

use crate::smtp::reply::RelayReply;

/// The extensions that we use.
#[expect(clippy::struct_excessive_bools, reason = "each one is a keyword that was offered or not")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EhloExtensions {
    pub(super) pipelining: bool,
    pub(super) eight_bit_mime: bool,
    pub(super) smtputf8: bool,
    pub(super) dsn: bool,
    pub(super) starttls: bool,
    pub(super) auth_plain: bool,
    pub(super) auth_login: bool,
    /// Whether the server supports the SIZE parameter.
    pub(super) size: bool,
    /// The server's maximum mail size in octets, if it states one.
    pub(super) max_size: Option<u64>,
}

impl EhloExtensions {
    pub(super) fn parse(reply: &RelayReply) -> Self {
        let mut extensions = Self::default();
        // The first line is the server's greeting with its name.
        for line in reply.lines.iter().skip(1) {
            let line = line.to_ascii_uppercase();
            let mut words = line.split_ascii_whitespace();
            let (name, mut words) = (words.next().unwrap_or_default(), words);
            match name {
                "PIPELINING" => extensions.pipelining = true,
                "8BITMIME" => extensions.eight_bit_mime = true,
                "SMTPUTF8" => extensions.smtputf8 = true,
                "DSN" => extensions.dsn = true,
                "STARTTLS" => extensions.starttls = true,
                "SIZE" => {
                    extensions.size = true;
                    extensions.max_size = words.next().and_then(|n| n.parse().ok()).filter(|n| *n > 0);
                }
                "AUTH" => {
                    for mechanism in words {
                        extensions.auth_plain |= mechanism == "PLAIN";
                        extensions.auth_login |= mechanism == "LOGIN";
                    }
                }
                _ => {}
            }
        }
        extensions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> EhloExtensions {
        EhloExtensions::parse(&RelayReply { code: 250, lines: lines.iter().map(ToString::to_string).collect() })
    }

    #[test]
    fn extensions_are_case_insensitive_and_the_first_line_is_skipped() {
        let all = read(&["PIPELINING", "8bitmime", "SMTPUTF8", "DSN", "Size 1000", "auth CRAM-MD5 plain LOGIN"]);
        let expected = EhloExtensions {
            eight_bit_mime: true,
            smtputf8: true,
            dsn: true,
            auth_plain: true,
            auth_login: true,
            size: true,
            ..EhloExtensions::default()
        };
        assert_eq!(all, EhloExtensions { max_size: Some(1000), ..expected });
        assert_eq!(read(&["x", "SIZE 0"]).max_size, None);
        assert_eq!(read(&["x", "SIZE -5"]), EhloExtensions { size: true, ..EhloExtensions::default() });
        assert_eq!(read(&["x", "", "AUTH", "X-STARTTLS"]), EhloExtensions::default());
    }
}

//! What a server offers in its answer to EHLO.

use super::answer::Answer;

/// The extensions we know how to use.
#[expect(clippy::struct_excessive_bools, reason = "each one is a keyword that was offered or not")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Offers {
    pub(super) pipelining: bool,
    pub(super) eight_bit: bool,
    pub(super) utf8: bool,
    pub(super) dsn: bool,
    pub(super) starttls: bool,
    pub(super) plain: bool,
    pub(super) login: bool,
    /// Whether it wants to be told the size.
    pub(super) size: bool,
    /// Octets it takes at the most, when it says so.
    pub(super) limit: Option<u64>,
}

impl Offers {
    pub(super) fn read(answer: &Answer) -> Self {
        let mut offers = Self::default();
        // The first line is the server's name.
        for line in answer.lines.iter().skip(1) {
            let line = line.to_ascii_uppercase();
            let mut words = line.split_ascii_whitespace();
            let (name, mut words) = (words.next().unwrap_or_default(), words);
            match name {
                "PIPELINING" => offers.pipelining = true,
                "8BITMIME" => offers.eight_bit = true,
                "SMTPUTF8" => offers.utf8 = true,
                "DSN" => offers.dsn = true,
                "STARTTLS" => offers.starttls = true,
                "SIZE" => {
                    offers.size = true;
                    offers.limit = words.next().and_then(|n| n.parse().ok()).filter(|n| *n > 0);
                }
                "AUTH" => {
                    for mechanism in words {
                        offers.plain |= mechanism == "PLAIN";
                        offers.login |= mechanism == "LOGIN";
                    }
                }
                _ => {}
            }
        }
        offers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> Offers {
        Offers::read(&Answer { code: 250, lines: lines.iter().map(ToString::to_string).collect() })
    }

    #[test]
    fn offers_are_read_in_any_case_and_the_name_is_none() {
        let all = read(&["PIPELINING", "8bitmime", "SMTPUTF8", "DSN", "Size 1000", "auth CRAM-MD5 plain LOGIN"]);
        let expected = Offers {
            eight_bit: true,
            utf8: true,
            dsn: true,
            plain: true,
            login: true,
            size: true,
            ..Offers::default()
        };
        assert_eq!(all, Offers { limit: Some(1000), ..expected });
        assert_eq!(read(&["x", "SIZE 0"]).limit, None);
        assert_eq!(read(&["x", "SIZE -5"]), Offers { size: true, ..Offers::default() });
        assert_eq!(read(&["x", "", "AUTH", "X-STARTTLS"]), Offers::default());
    }
}

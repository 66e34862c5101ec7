//! The commands of one envelope, with the parameters that the server offers to understand.

use super::{body::Needs, offers::Offers};
use mailonce_core::port::transport::{Meaning, Parcel, Phase, Reply};
use std::fmt::Write as _;

/// Octets of an address on the wire (RFC 5321: a path, without its angle brackets).
const PATH_OCTETS: usize = 254;
/// Octets of an ENVID (RFC 3461).
const ENVID_OCTETS: usize = 100;
/// Octets of an ORCPT (RFC 3461).
const ORCPT_OCTETS: usize = 500;

/// One command, without its CRLF, and what it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) phase: Phase,
    pub(super) line: String,
    /// The answer that lets things go on: a code, or a class of codes.
    pub(super) expected: Expected,
}

/// The answer that lets things go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// Any 2yz.
    Done,
    /// 354.
    GoOn,
}

impl Command {
    pub(super) fn reset() -> Self {
        Self { phase: Phase::Mail, line: "RSET".to_owned(), expected: Expected::Done }
    }
}

fn refuse(phase: Phase, text: &str) -> Reply {
    Reply::new(Meaning::Refused, phase, None, text)
}

/// The recipient of a parcel, when its addresses can stand in a command at all.
pub(super) fn recipient(parcel: &Parcel) -> Result<&str, Reply> {
    if !parcel.return_path.is_empty() && !is_path(&parcel.return_path) {
        return Err(refuse(Phase::Mail, "the return path is not an address"));
    }
    match &parcel.recipients[..] {
        [one] if is_path(one) => Ok(one),
        [_] => Err(refuse(Phase::Rcpt, "the recipient is not an address")),
        _ => Err(refuse(Phase::Rcpt, "an SMTP envelope has one recipient")),
    }
}

/// Whether an address can stand between angle brackets and mean itself.
fn is_path(address: &str) -> bool {
    let plain = |c: char| !c.is_control() && !c.is_whitespace() && !matches!(c, '<' | '>' | '"' | '\\' | ',' | ';');
    let halves = address.rsplit_once('@');
    address.len() <= PATH_OCTETS
        && halves.is_some_and(|(local, domain)| !local.is_empty() && !domain.is_empty())
        && address.chars().all(plain)
}

/// `MAIL`, `RCPT` and `DATA`. A refusal when the server does not offer what the mail needs.
pub(super) fn commands(parcel: &Parcel, needs: Needs, offers: &Offers) -> Result<[Command; 3], Reply> {
    let recipient = recipient(parcel)?;
    let size = parcel.bytes.len() as u64;
    if let Some(limit) = offers.limit.filter(|limit| size > *limit) {
        return Err(refuse(Phase::Mail, &format!("the mail has {size} octets, the server takes {limit}")));
    }
    let utf8 = needs.utf8 || !recipient.is_ascii() || !parcel.return_path.is_ascii();
    if utf8 && !offers.utf8 {
        return Err(refuse(Phase::Mail, "an address or header is not ASCII, and the server does not offer SMTPUTF8"));
    }
    if needs.eight_bit && !offers.eight_bit {
        return Err(refuse(Phase::Mail, "the mail has 8-bit octets, and the server does not offer 8BITMIME"));
    }
    let mut mail = format!("MAIL FROM:<{}>", parcel.return_path);
    let mut rcpt = format!("RCPT TO:<{recipient}>");
    if offers.size {
        add(&mut mail, &format!("SIZE={size}"));
    }
    if needs.eight_bit {
        add(&mut mail, "BODY=8BITMIME");
    }
    if utf8 {
        add(&mut mail, "SMTPUTF8");
    }
    if offers.dsn {
        ask_for_reports(parcel, recipient, &mut mail, &mut rcpt);
    }
    Ok([
        Command { phase: Phase::Mail, line: mail, expected: Expected::Done },
        Command { phase: Phase::Rcpt, line: rcpt, expected: Expected::Done },
        Command { phase: Phase::Data, line: "DATA".to_owned(), expected: Expected::GoOn },
    ])
}

/// Asks for reports about failure and delay that name this very attempt.
fn ask_for_reports(parcel: &Parcel, recipient: &str, mail: &mut String, rcpt: &mut String) {
    add(mail, "RET=HDRS");
    let envid = xtext(&parcel.envelope_id);
    if !envid.is_empty() && envid.len() <= ENVID_OCTETS {
        add(mail, &format!("ENVID={envid}"));
    }
    // Nobody can report to the null sender.
    if !parcel.return_path.is_empty() {
        add(rcpt, "NOTIFY=FAILURE,DELAY");
        let original = format!("ORCPT=rfc822;{}", xtext(recipient));
        // Another form is needed for addresses beyond ASCII, which few servers know.
        if recipient.is_ascii() && original.len() <= ORCPT_OCTETS {
            add(rcpt, &original);
        }
    }
}

fn add(line: &mut String, parameter: &str) {
    line.push(' ');
    line.push_str(parameter);
}

/// RFC 3461 xtext: printable ASCII with `+` and `=` in hex.
fn xtext(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && byte != b'+' && byte != b'=' {
            out.push(char::from(byte));
        } else if write!(out, "+{byte:02X}").is_err() {
            return String::new();
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use mailonce_core::id::{EmailId, TeamId};
    use std::sync::Arc;

    fn parcel(return_path: &str, to: &[&str]) -> Parcel {
        let id = "00000000-0000-0000-0000-000000000001";
        Parcel {
            team: id.parse::<TeamId>().unwrap(),
            email: id.parse::<EmailId>().unwrap(),
            handoff: 0,
            attempt: 1,
            return_path: return_path.to_owned(),
            envelope_id: "h1+a=1".to_owned(),
            recipients: to.iter().map(ToString::to_string).collect(),
            key: id.parse::<EmailId>().unwrap().0,
            bytes: Arc::from(&b"a\r\n"[..]),
        }
    }

    fn lines(parcel: &Parcel, needs: Needs, offers: &Offers) -> Result<[String; 3], Reply> {
        commands(parcel, needs, offers).map(|commands| commands.map(|command| command.line))
    }

    #[test]
    fn nothing_is_asked_that_was_not_offered() {
        let bare = lines(&parcel("b@x.test", &["u@y.test"]), Needs::default(), &Offers::default()).unwrap();
        assert_eq!(bare, ["MAIL FROM:<b@x.test>", "RCPT TO:<u@y.test>", "DATA"]);
    }

    #[test]
    fn everything_that_was_offered_is_used() {
        let all = Offers { size: true, limit: Some(3), dsn: true, eight_bit: true, utf8: true, ..Offers::default() };
        let needs = Needs { eight_bit: true, utf8: true };
        let [mail, rcpt, _] = lines(&parcel("b@x.test", &["u+1@y.test"]), needs, &all).unwrap();
        assert_eq!(mail, "MAIL FROM:<b@x.test> SIZE=3 BODY=8BITMIME SMTPUTF8 RET=HDRS ENVID=h1+2Ba+3D1");
        assert_eq!(rcpt, "RCPT TO:<u+1@y.test> NOTIFY=FAILURE,DELAY ORCPT=rfc822;u+2B1@y.test");
        let [mail, rcpt, _] = lines(&parcel("", &["ü@y.test"]), Needs::default(), &all).unwrap();
        assert_eq!(mail, "MAIL FROM:<> SIZE=3 SMTPUTF8 RET=HDRS ENVID=h1+2Ba+3D1");
        assert_eq!(rcpt, "RCPT TO:<ü@y.test>");
    }

    #[test]
    fn what_the_server_cannot_take_is_refused_with_a_reason() {
        let plain = parcel("b@x.test", &["u@y.test"]);
        let small = Offers { size: true, limit: Some(2), ..Offers::default() };
        let cases = [
            (lines(&plain, Needs::default(), &small), "3 octets"),
            (lines(&plain, Needs { eight_bit: true, utf8: false }, &Offers::default()), "8BITMIME"),
            (lines(&plain, Needs { eight_bit: true, utf8: true }, &Offers::default()), "SMTPUTF8"),
            (lines(&parcel("b@x.test", &["ü@y.test"]), Needs::default(), &Offers::default()), "SMTPUTF8"),
        ];
        for (answer, why) in cases {
            let reply = answer.unwrap_err();
            assert!(reply.meaning == Meaning::Refused && reply.text.contains(why), "{reply:?}");
        }
    }

    #[test]
    fn an_address_never_becomes_a_command() {
        let long = format!("{}@y.test", "u".repeat(PATH_OCTETS));
        for bad in [
            "u@y.test>\r\nDATA\r\n",
            "u@y.test\nRSET",
            "u@y.test> NOTIFY=NEVER",
            "u u@y.test",
            "<u@y.test>",
            "u",
            "@y.test",
            "u@",
            "",
            "u\0@y.test",
            "u\u{2028}@y.test",
            &long,
        ] {
            assert!(recipient(&parcel("b@x.test", &[bad])).is_err(), "{bad:?} passed as a recipient");
            let sent = parcel(bad, &["u@y.test"]);
            assert_eq!(recipient(&sent).is_err(), !bad.is_empty(), "{bad:?} as a return path");
        }
        assert!(recipient(&parcel("b@x.test", &["u@y.test", "v@y.test"])).is_err());
        assert!(recipient(&parcel("b@x.test", &[])).is_err());
    }
}

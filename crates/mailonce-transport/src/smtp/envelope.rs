//! The commands of one envelope, with the parameters that the server offers to understand.

use super::body::BodyRequirements;
use crate::smtp::extensions::EhloExtensions;
use mailonce_core::handoff::{
    reply::{AttemptPhase, ReplyMeaning, TransportReply},
    transport_request::FrozenEnvelope,
};
use std::fmt::Write as _;

/// Octets of an address on the wire (RFC 5321: a path, without its angle brackets).
const MAX_PATH_OCTETS: usize = 254;
/// Octets of an ENVID (RFC 3461).
const MAX_ENVID_OCTETS: usize = 100;
/// Octets of an ORCPT (RFC 3461).
const MAX_ORCPT_OCTETS: usize = 500;

/// One command, without its CRLF, and what it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RelayCommand {
    pub(super) phase: AttemptPhase,
    pub(super) line: String,
    /// The answer that lets things go on: a code, or a class of codes.
    pub(super) expected: ExpectedReply,
}

/// The answer that lets things go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpectedReply {
    /// Any 2yz.
    Success,
    /// 354.
    StartMailInput,
}

impl RelayCommand {
    pub(super) fn reset() -> Self {
        Self { phase: AttemptPhase::Mail, line: "RSET".to_owned(), expected: ExpectedReply::Success }
    }
}

fn refusal(phase: AttemptPhase, text: &str) -> TransportReply {
    TransportReply::new(ReplyMeaning::Refused, phase, None, text)
}

/// The recipient of a parcel, when its addresses can stand in a command at all.
pub(super) fn check_recipient(parcel: &FrozenEnvelope) -> Result<&str, TransportReply> {
    if !parcel.return_path.is_empty() && !is_path(&parcel.return_path) {
        return Err(refusal(AttemptPhase::Mail, "the return path is not an address"));
    }
    match &parcel.recipients[..] {
        [one] if is_path(one) => Ok(one),
        [_] => Err(refusal(AttemptPhase::Rcpt, "the recipient is not an address")),
        _ => Err(refusal(AttemptPhase::Rcpt, "an SMTP envelope has one recipient")),
    }
}

/// Whether an address can stand between angle brackets and mean itself.
fn is_path(address: &str) -> bool {
    let plain = |c: char| !c.is_control() && !c.is_whitespace() && !matches!(c, '<' | '>' | '"' | '\\' | ',' | ';');
    let halves = address.rsplit_once('@');
    address.len() <= MAX_PATH_OCTETS
        && halves.is_some_and(|(local, domain)| !local.is_empty() && !domain.is_empty())
        && address.chars().all(plain)
}

/// `MAIL`, `RCPT` and `DATA`. A refusal when the server does not offer what the mail needs.
pub(super) fn envelope_commands(
    parcel: &FrozenEnvelope,
    needs: BodyRequirements,
    offers: &EhloExtensions,
) -> Result<[RelayCommand; 3], TransportReply> {
    let recipient = check_recipient(parcel)?;
    let size = parcel.bytes.len() as u64;
    if let Some(limit) = offers.max_size.filter(|limit| size > *limit) {
        return Err(refusal(AttemptPhase::Mail, &format!("the mail has {size} octets, the server takes {limit}")));
    }
    let utf8 = needs.smtputf8 || !recipient.is_ascii() || !parcel.return_path.is_ascii();
    if utf8 && !offers.smtputf8 {
        return Err(refusal(
            AttemptPhase::Mail,
            "an address or header is not ASCII, and the server does not offer SMTPUTF8",
        ));
    }
    if needs.eight_bit && !offers.eight_bit_mime {
        return Err(refusal(AttemptPhase::Mail, "the mail has 8-bit octets, and the server does not offer 8BITMIME"));
    }
    let mut mail = format!("MAIL FROM:<{}>", parcel.return_path);
    let mut rcpt = format!("RCPT TO:<{recipient}>");
    if offers.size {
        push_parameter(&mut mail, &format!("SIZE={size}"));
    }
    if needs.eight_bit {
        push_parameter(&mut mail, "BODY=8BITMIME");
    }
    if utf8 {
        push_parameter(&mut mail, "SMTPUTF8");
    }
    if offers.dsn {
        request_dsn(parcel, recipient, &mut mail, &mut rcpt);
    }
    Ok([
        RelayCommand { phase: AttemptPhase::Mail, line: mail, expected: ExpectedReply::Success },
        RelayCommand { phase: AttemptPhase::Rcpt, line: rcpt, expected: ExpectedReply::Success },
        RelayCommand { phase: AttemptPhase::Data, line: "DATA".to_owned(), expected: ExpectedReply::StartMailInput },
    ])
}

/// Asks for reports about failure and delay that name this very attempt.
fn request_dsn(parcel: &FrozenEnvelope, recipient: &str, mail: &mut String, rcpt: &mut String) {
    push_parameter(mail, "RET=HDRS");
    let envid = xtext(&parcel.envelope_id);
    if !envid.is_empty() && envid.len() <= MAX_ENVID_OCTETS {
        push_parameter(mail, &format!("ENVID={envid}"));
    }
    // Nobody can report to the null sender.
    if !parcel.return_path.is_empty() {
        push_parameter(rcpt, "NOTIFY=FAILURE,DELAY");
        let original = format!("ORCPT=rfc822;{}", xtext(recipient));
        // Another form is needed for addresses beyond ASCII, which few servers know.
        if recipient.is_ascii() && original.len() <= MAX_ORCPT_OCTETS {
            push_parameter(rcpt, &original);
        }
    }
}

fn push_parameter(line: &mut String, parameter: &str) {
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

    fn parcel(return_path: &str, to: &[&str]) -> FrozenEnvelope {
        let id = "00000000-0000-0000-0000-000000000001";
        FrozenEnvelope {
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

    fn lines(
        parcel: &FrozenEnvelope,
        needs: BodyRequirements,
        offers: &EhloExtensions,
    ) -> Result<[String; 3], TransportReply> {
        envelope_commands(parcel, needs, offers).map(|commands| commands.map(|command| command.line))
    }

    #[test]
    fn nothing_is_asked_that_was_not_offered() {
        let bare =
            lines(&parcel("b@x.test", &["u@y.test"]), BodyRequirements::default(), &EhloExtensions::default()).unwrap();
        assert_eq!(bare, ["MAIL FROM:<b@x.test>", "RCPT TO:<u@y.test>", "DATA"]);
    }

    #[test]
    fn everything_that_was_offered_is_used() {
        let all = EhloExtensions {
            size: true,
            max_size: Some(3),
            dsn: true,
            eight_bit_mime: true,
            smtputf8: true,
            ..EhloExtensions::default()
        };
        let needs = BodyRequirements { eight_bit: true, smtputf8: true };
        let [mail, rcpt, _] = lines(&parcel("b@x.test", &["u+1@y.test"]), needs, &all).unwrap();
        assert_eq!(mail, "MAIL FROM:<b@x.test> SIZE=3 BODY=8BITMIME SMTPUTF8 RET=HDRS ENVID=h1+2Ba+3D1");
        assert_eq!(rcpt, "RCPT TO:<u+1@y.test> NOTIFY=FAILURE,DELAY ORCPT=rfc822;u+2B1@y.test");
        let [mail, rcpt, _] = lines(&parcel("", &["ü@y.test"]), BodyRequirements::default(), &all).unwrap();
        assert_eq!(mail, "MAIL FROM:<> SIZE=3 SMTPUTF8 RET=HDRS ENVID=h1+2Ba+3D1");
        assert_eq!(rcpt, "RCPT TO:<ü@y.test>");
    }

    #[test]
    fn what_the_server_cannot_take_is_refused_with_a_reason() {
        let plain = parcel("b@x.test", &["u@y.test"]);
        let small = EhloExtensions { size: true, max_size: Some(2), ..EhloExtensions::default() };
        let cases = [
            (lines(&plain, BodyRequirements::default(), &small), "3 octets"),
            (
                lines(&plain, BodyRequirements { eight_bit: true, smtputf8: false }, &EhloExtensions::default()),
                "8BITMIME",
            ),
            (
                lines(&plain, BodyRequirements { eight_bit: true, smtputf8: true }, &EhloExtensions::default()),
                "SMTPUTF8",
            ),
            (
                lines(&parcel("b@x.test", &["ü@y.test"]), BodyRequirements::default(), &EhloExtensions::default()),
                "SMTPUTF8",
            ),
        ];
        for (answer, why) in cases {
            let reply = answer.unwrap_err();
            assert!(reply.meaning == ReplyMeaning::Refused && reply.text.contains(why), "{reply:?}");
        }
    }

    #[test]
    fn an_address_never_becomes_a_command() {
        let long = format!("{}@y.test", "u".repeat(MAX_PATH_OCTETS));
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
            assert!(check_recipient(&parcel("b@x.test", &[bad])).is_err(), "{bad:?} passed as a recipient");
            let sent = parcel(bad, &["u@y.test"]);
            assert_eq!(check_recipient(&sent).is_err(), !bad.is_empty(), "{bad:?} as a return path");
        }
        assert!(check_recipient(&parcel("b@x.test", &["u@y.test", "v@y.test"])).is_err());
        assert!(check_recipient(&parcel("b@x.test", &[])).is_err());
    }
}

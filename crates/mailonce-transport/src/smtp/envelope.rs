//! The commands of one envelope, with the parameters that the server supports.

use super::body::BodyRequirements;
use crate::smtp::extensions::EhloExtensions;
use mailonce_core::handoff::{
    reply::{AttemptPhase, ReplyMeaning, TransportReply},
    transport_request::FrozenEnvelope,
};
use std::fmt::Write as _;

/// Maximum length of an address (RFC 5321: a path without its angle brackets).
const MAX_PATH_OCTETS: usize = 254;
/// Maximum length of an ENVID (RFC 3461).
const MAX_ENVID_OCTETS: usize = 100;
/// Maximum length of an ORCPT (RFC 3461).
const MAX_ORCPT_OCTETS: usize = 500;

/// One command without its CRLF, its phase and the expected reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RelayCommand {
    pub(super) phase: AttemptPhase,
    pub(super) line: String,
    /// The reply that means success.
    pub(super) expected: ExpectedReply,
}

/// The reply that means success.
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

/// The recipient of an envelope. Rejects addresses that cannot be written into a command.
pub(super) fn check_recipient(envelope: &FrozenEnvelope) -> Result<&str, TransportReply> {
    if !envelope.return_path.is_empty() && !is_path(&envelope.return_path) {
        return Err(refusal(AttemptPhase::Mail, "the return path is not an address"));
    }
    match &envelope.recipients[..] {
        [one] if is_path(one) => Ok(one),
        [_] => Err(refusal(AttemptPhase::Rcpt, "the recipient is not an address")),
        _ => Err(refusal(AttemptPhase::Rcpt, "an SMTP envelope has one recipient")),
    }
}

/// Whether an address can be written between angle brackets without quoting or injection.
fn is_path(address: &str) -> bool {
    let plain = |c: char| !c.is_control() && !c.is_whitespace() && !matches!(c, '<' | '>' | '"' | '\\' | ',' | ';');
    let halves = address.rsplit_once('@');
    address.len() <= MAX_PATH_OCTETS
        && halves.is_some_and(|(local, domain)| !local.is_empty() && !domain.is_empty())
        && address.chars().all(plain)
}

/// `MAIL`, `RCPT` and `DATA`. Refuses the mail if the server lacks an extension that it needs.
pub(super) fn envelope_commands(
    envelope: &FrozenEnvelope,
    needs: BodyRequirements,
    extensions: &EhloExtensions,
) -> Result<[RelayCommand; 3], TransportReply> {
    let recipient = check_recipient(envelope)?;
    let size = envelope.bytes.len() as u64;
    if let Some(limit) = extensions.max_size.filter(|limit| size > *limit) {
        return Err(refusal(
            AttemptPhase::Mail,
            &format!("the mail has {size} octets, the server accepts at most {limit}"),
        ));
    }
    let utf8 = needs.smtputf8 || !recipient.is_ascii() || !envelope.return_path.is_ascii();
    if utf8 && !extensions.smtputf8 {
        return Err(refusal(
            AttemptPhase::Mail,
            "an address or header is not ASCII, and the server does not offer SMTPUTF8",
        ));
    }
    if needs.eight_bit && !extensions.eight_bit_mime {
        return Err(refusal(AttemptPhase::Mail, "the mail has 8-bit octets, and the server does not offer 8BITMIME"));
    }
    let mut mail = format!("MAIL FROM:<{}>", envelope.return_path);
    let mut rcpt = format!("RCPT TO:<{recipient}>");
    if extensions.size {
        push_parameter(&mut mail, &format!("SIZE={size}"));
    }
    if needs.eight_bit {
        push_parameter(&mut mail, "BODY=8BITMIME");
    }
    if utf8 {
        push_parameter(&mut mail, "SMTPUTF8");
    }
    if extensions.dsn {
        request_dsn(envelope, recipient, &mut mail, &mut rcpt);
    }
    Ok([
        RelayCommand { phase: AttemptPhase::Mail, line: mail, expected: ExpectedReply::Success },
        RelayCommand { phase: AttemptPhase::Rcpt, line: rcpt, expected: ExpectedReply::Success },
        RelayCommand { phase: AttemptPhase::Data, line: "DATA".to_owned(), expected: ExpectedReply::StartMailInput },
    ])
}

/// Requests failure and delay notifications (DSN) that identify this attempt.
fn request_dsn(envelope: &FrozenEnvelope, recipient: &str, mail: &mut String, rcpt: &mut String) {
    push_parameter(mail, "RET=HDRS");
    let envid = xtext(&envelope.envelope_id);
    if !envid.is_empty() && envid.len() <= MAX_ENVID_OCTETS {
        push_parameter(mail, &format!("ENVID={envid}"));
    }
    // The null sender cannot receive notifications.
    if !envelope.return_path.is_empty() {
        push_parameter(rcpt, "NOTIFY=FAILURE,DELAY");
        let original = format!("ORCPT=rfc822;{}", xtext(recipient));
        // Non-ASCII addresses need another ORCPT form, which few servers support.
        if recipient.is_ascii() && original.len() <= MAX_ORCPT_OCTETS {
            push_parameter(rcpt, &original);
        }
    }
}

fn push_parameter(line: &mut String, parameter: &str) {
    line.push(' ');
    line.push_str(parameter);
}

/// RFC 3461 xtext: printable ASCII except `+` and `=`; everything else as hex.
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

    fn frozen_envelope(return_path: &str, to: &[&str]) -> FrozenEnvelope {
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
        envelope: &FrozenEnvelope,
        needs: BodyRequirements,
        extensions: &EhloExtensions,
    ) -> Result<[String; 3], TransportReply> {
        envelope_commands(envelope, needs, extensions).map(|commands| commands.map(|command| command.line))
    }

    #[test]
    fn parameters_are_sent_only_if_the_extension_is_offered() {
        let bare =
            lines(&frozen_envelope("b@x.test", &["u@y.test"]), BodyRequirements::default(), &EhloExtensions::default())
                .unwrap();
        assert_eq!(bare, ["MAIL FROM:<b@x.test>", "RCPT TO:<u@y.test>", "DATA"]);
    }

    #[test]
    fn all_offered_extensions_are_used() {
        let all = EhloExtensions {
            size: true,
            max_size: Some(3),
            dsn: true,
            eight_bit_mime: true,
            smtputf8: true,
            ..EhloExtensions::default()
        };
        let needs = BodyRequirements { eight_bit: true, smtputf8: true };
        let [mail, rcpt, _] = lines(&frozen_envelope("b@x.test", &["u+1@y.test"]), needs, &all).unwrap();
        assert_eq!(mail, "MAIL FROM:<b@x.test> SIZE=3 BODY=8BITMIME SMTPUTF8 RET=HDRS ENVID=h1+2Ba+3D1");
        assert_eq!(rcpt, "RCPT TO:<u+1@y.test> NOTIFY=FAILURE,DELAY ORCPT=rfc822;u+2B1@y.test");
        let [mail, rcpt, _] = lines(&frozen_envelope("", &["ü@y.test"]), BodyRequirements::default(), &all).unwrap();
        assert_eq!(mail, "MAIL FROM:<> SIZE=3 SMTPUTF8 RET=HDRS ENVID=h1+2Ba+3D1");
        assert_eq!(rcpt, "RCPT TO:<ü@y.test>");
    }

    #[test]
    fn a_mail_that_needs_a_missing_extension_is_refused_with_a_reason() {
        let plain = frozen_envelope("b@x.test", &["u@y.test"]);
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
                lines(
                    &frozen_envelope("b@x.test", &["ü@y.test"]),
                    BodyRequirements::default(),
                    &EhloExtensions::default(),
                ),
                "SMTPUTF8",
            ),
        ];
        for (answer, why) in cases {
            let reply = answer.unwrap_err();
            assert!(reply.meaning == ReplyMeaning::Refused && reply.text.contains(why), "{reply:?}");
        }
    }

    #[test]
    fn an_address_cannot_inject_a_command() {
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
            assert!(check_recipient(&frozen_envelope("b@x.test", &[bad])).is_err(), "{bad:?} passed as a recipient");
            let sent = frozen_envelope(bad, &["u@y.test"]);
            assert_eq!(check_recipient(&sent).is_err(), !bad.is_empty(), "{bad:?} as a return path");
        }
        assert!(check_recipient(&frozen_envelope("b@x.test", &["u@y.test", "v@y.test"])).is_err());
        assert!(check_recipient(&frozen_envelope("b@x.test", &[])).is_err());
    }
}

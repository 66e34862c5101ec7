//! Parses command lines. `smtp-proto` does the grammar; this file also rejects what its parser accepts but RFC 5321
//! does not allow.

use smtp_proto::{Error, MAIL_BODY_7BIT, MAIL_BODY_8BITMIME, MAIL_SMTPUTF8, MailFrom, RcptTo, Request};
use std::borrow::Cow;

use super::reply::{self, SmtpReply};

/// A parsed command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SmtpCommand {
    /// EHLO, or HELO when not `extended`.
    Hello {
        name: String,
        extended: bool,
    },
    /// MAIL. An empty sender is the null return path.
    Mail {
        sender: String,
        size: usize,
        utf8: bool,
    },
    /// RCPT. `None` is `<Postmaster>`, which needs no domain.
    Rcpt {
        address: Option<String>,
    },
    Data,
    /// BDAT, which is not offered. The bytes that follow it are data, not commands.
    Bdat,
    Reset,
    Noop,
    Vrfy,
    Help,
    Quit,
    Starttls,
    /// AUTH.
    Auth,
    /// A command of an extension that is not offered.
    Unsupported,
}

/// HTTP methods (RFC 9110 §9, RFC 5789), and the HTTP/2 preface. None of them is an SMTP command.
const HTTP_METHODS: [&[u8]; 10] =
    [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH", b"PRI"];

/// Whether a line, or its start, is an HTTP request. A web page can make a browser send SMTP commands in a body.
pub(super) fn is_http_request(line: &[u8]) -> bool {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let (Some(method), Some(_), version) = (words.next(), words.next(), words.next()) else { return false };
    HTTP_METHODS.iter().any(|known| method.eq_ignore_ascii_case(known))
        || version.is_some_and(|version| version.starts_with(b"HTTP/"))
}

/// Whether the input starts with a TLS handshake record, as a ClientHello does (RFC 8446 §5.1). No command starts so.
pub(super) fn is_tls_handshake(input: &[u8]) -> bool {
    input.starts_with(&[0x16, 0x03])
}

/// Parses a line that ends in CRLF and contains no other line ending.
pub(super) fn parse(line: &[u8]) -> Result<SmtpCommand, SmtpReply> {
    let bare = line.strip_suffix(b"\r\n").unwrap_or(line);
    let text = std::str::from_utf8(bare).ok().filter(|text| !text.chars().any(char::is_control));
    let text = text.ok_or(reply::NOT_UTF8)?;
    let request = Request::parse(&mut line.iter()).map_err(|error| refusal(&error))?;
    // The parser ignores arguments of these commands.
    let is_alone = matches!(request, Request::Data | Request::Rset | Request::Quit | Request::StartTls);
    if is_alone && text.trim().len() != request.name().len() {
        return Err(reply::UNEXPECTED_ARGUMENTS);
    }
    Ok(match request {
        Request::Ehlo { host } => SmtpCommand::Hello { name: host.into_owned(), extended: true },
        Request::Helo { host } => SmtpCommand::Hello { name: host.into_owned(), extended: false },
        Request::Mail { from } => parse_mail(from, text)?,
        Request::Rcpt { to } => parse_rcpt(to, text)?,
        Request::Data => SmtpCommand::Data,
        Request::Bdat { .. } => SmtpCommand::Bdat,
        Request::Rset => SmtpCommand::Reset,
        Request::Noop { .. } => SmtpCommand::Noop,
        Request::Vrfy { .. } => SmtpCommand::Vrfy,
        Request::Help { .. } => SmtpCommand::Help,
        Request::Quit => SmtpCommand::Quit,
        Request::StartTls => SmtpCommand::Starttls,
        Request::Auth { .. } => SmtpCommand::Auth,
        Request::Lhlo { .. }
        | Request::Expn { .. }
        | Request::Etrn { .. }
        | Request::Atrn { .. }
        | Request::Burl { .. } => SmtpCommand::Unsupported,
    })
}

fn refusal(error: &Error) -> SmtpReply {
    match error {
        Error::UnknownCommand => reply::UNKNOWN_COMMAND,
        Error::InvalidSenderAddress => reply::BAD_SENDER,
        Error::InvalidRecipientAddress => reply::BAD_RECIPIENT,
        Error::UnsupportedParameter { .. } => reply::UNKNOWN_PARAMETER,
        _ => reply::BAD_ARGUMENTS,
    }
}

fn parse_mail(from: MailFrom<Cow<'_, str>>, text: &str) -> Result<SmtpCommand, SmtpReply> {
    let MailFrom { address, flags, size, trans_id, by, env_id, solicit, mtrk, auth, hold_for, hold_until, mt_priority } =
        from;
    let other_texts = trans_id.is_some() || env_id.is_some() || solicit.is_some() || mtrk.is_some() || auth.is_some();
    let other_numbers = by != 0 || hold_for != 0 || hold_until != 0 || mt_priority != 0;
    let offered = MAIL_BODY_7BIT | MAIL_BODY_8BITMIME | MAIL_SMTPUTF8;
    if other_texts || other_numbers || flags & !offered != 0 {
        return Err(reply::UNKNOWN_PARAMETER);
    }
    // The parser returns an empty address for `<>`, `<"">`, `<@a:>` and `<postmaster>`. Only `<>` is the null sender.
    if address.is_empty() && !is_path(text, "<>") {
        return Err(reply::BAD_SENDER);
    }
    Ok(SmtpCommand::Mail { sender: address.into_owned(), size, utf8: flags & MAIL_SMTPUTF8 != 0 })
}

fn parse_rcpt(to: RcptTo<Cow<'_, str>>, text: &str) -> Result<SmtpCommand, SmtpReply> {
    if to.orcpt.is_some() || to.rrvs != 0 || to.flags != 0 {
        return Err(reply::UNKNOWN_PARAMETER);
    }
    let is_postmaster = to.address.is_empty() && is_path(text, "<postmaster>");
    if to.address.is_empty() && !is_postmaster {
        return Err(reply::BAD_RECIPIENT);
    }
    Ok(SmtpCommand::Rcpt { address: (!is_postmaster).then(|| to.address.into_owned()) })
}

/// Whether the first `<…>` path of a line equals this one.
fn is_path(text: &str, path: &str) -> bool {
    let prefix = text.find('<').and_then(|start| text.get(start..start + path.len()));
    prefix.is_some_and(|candidate| candidate.eq_ignore_ascii_case(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_command(line: &str) -> Result<SmtpCommand, &'static str> {
        parse(format!("{line}\r\n").as_bytes()).map_err(|reply| reply.line)
    }

    #[test]
    fn commands_are_read_in_any_case() {
        let mail = |sender: &str, size, utf8| Ok(SmtpCommand::Mail { sender: sender.to_owned(), size, utf8 });
        let rcpt = |address: &str| Ok(SmtpCommand::Rcpt { address: Some(address.to_owned()) });
        let hello = |name: &str, extended| Ok(SmtpCommand::Hello { name: name.to_owned(), extended });
        assert_eq!(parse_command("ehlo mx.example.com"), hello("mx.example.com", true));
        assert_eq!(parse_command("HELO [192.0.2.1]"), hello("[192.0.2.1]", false));
        assert_eq!(parse_command("MAIL FROM:<Ada@out.test>"), mail("Ada@out.test", 0, false));
        assert_eq!(parse_command("mail from:<> size=12 body=8bitmime"), mail("", 12, false));
        assert_eq!(parse_command("MAIL FROM:<ü@out.test> SMTPUTF8 BODY=7BIT"), mail("ü@out.test", 0, true));
        assert_eq!(parse_command("RCPT TO:<@relay.test,@other.test:ada@in.test>"), rcpt("ada@in.test"));
        assert_eq!(parse_command("RCPT TO:<\"ada\"@in.test>"), rcpt("ada@in.test"));
        assert_eq!(parse_command("RCPT TO:<PostMaster>"), Ok(SmtpCommand::Rcpt { address: None }));
        assert_eq!(parse_command("VRFY ada"), Ok(SmtpCommand::Vrfy));
        assert_eq!(parse_command("NOOP and more"), Ok(SmtpCommand::Noop));
        assert_eq!(parse_command("data"), Ok(SmtpCommand::Data));
        assert_eq!(parse_command("QUIT "), Ok(SmtpCommand::Quit));
        assert_eq!(parse_command("BDAT 12 LAST"), Ok(SmtpCommand::Bdat));
        assert_eq!(parse_command("AUTH PLAIN AGEAYg=="), Ok(SmtpCommand::Auth));
        assert_eq!(parse_command("EXPN list"), Ok(SmtpCommand::Unsupported));
    }

    #[test]
    fn invalid_commands_are_refused() {
        for (line, expected) in [
            ("", reply::UNKNOWN_COMMAND),
            ("WHAT", reply::UNKNOWN_COMMAND),
            ("MAILFROM:<a@b.test>", reply::UNKNOWN_COMMAND),
            ("GET / HTTP/1.1", reply::UNKNOWN_COMMAND),
            ("EHLO", reply::BAD_ARGUMENTS),
            ("HELO ", reply::BAD_ARGUMENTS),
            ("MAIL", reply::BAD_ARGUMENTS),
            ("MAIL FROM:a@b.test", reply::BAD_ARGUMENTS),
            ("MAIL FROM:<a@b.test", reply::BAD_ARGUMENTS),
            ("MAIL FROM:<a@b.test> SIZE=many", reply::BAD_ARGUMENTS),
            ("MAIL FROM:<a@b.test> BODY=9BIT", reply::BAD_ARGUMENTS),
            ("MAIL FROM:<a@b.test> >", reply::BAD_ARGUMENTS),
            ("MAIL FROM:<nobody>", reply::BAD_SENDER),
            ("MAIL FROM:<postmaster>", reply::BAD_SENDER),
            ("MAIL FROM:<\"\">", reply::BAD_SENDER),
            ("MAIL FROM:<@a.test:>", reply::BAD_SENDER),
            ("MAIL FROM:< >", reply::BAD_SENDER),
            ("MAIL FROM:<a@b.test> BODY=BINARYMIME", reply::UNKNOWN_PARAMETER),
            ("MAIL FROM:<a@b.test> RET=FULL", reply::UNKNOWN_PARAMETER),
            ("MAIL FROM:<a@b.test> ENVID=x", reply::UNKNOWN_PARAMETER),
            ("MAIL FROM:<a@b.test> AUTH=<>", reply::UNKNOWN_PARAMETER),
            ("MAIL FROM:<a@b.test> REQUIRETLS", reply::UNKNOWN_PARAMETER),
            ("MAIL FROM:<a@b.test> HOLDFOR=9", reply::UNKNOWN_PARAMETER),
            ("MAIL FROM:<a@b.test> X-WHAT=1", reply::UNKNOWN_PARAMETER),
            ("RCPT", reply::BAD_ARGUMENTS),
            ("RCPT TO:ada@in.test", reply::BAD_ARGUMENTS),
            ("RCPT TO:<>", reply::BAD_RECIPIENT),
            ("RCPT TO:<\"\">", reply::BAD_RECIPIENT),
            ("RCPT TO:<ada>", reply::BAD_RECIPIENT),
            ("RCPT TO:<a@b.test@c.test>", reply::BAD_RECIPIENT),
            ("RCPT TO:<ada@in.test> NOTIFY=NEVER", reply::UNKNOWN_PARAMETER),
            ("RCPT TO:<ada@in.test> ORCPT=rfc822;a@b.test", reply::UNKNOWN_PARAMETER),
            ("DATA now", reply::UNEXPECTED_ARGUMENTS),
            ("RSET x", reply::UNEXPECTED_ARGUMENTS),
            ("QUIT x", reply::UNEXPECTED_ARGUMENTS),
            ("STARTTLS x", reply::UNEXPECTED_ARGUMENTS),
            ("NOOP \u{1}", reply::NOT_UTF8),
            ("NO\0OP", reply::NOT_UTF8),
            ("DA\rTA", reply::NOT_UTF8),
        ] {
            assert_eq!(parse_command(line), Err(expected.line), "{line:?}");
        }
        assert_eq!(parse(b"EHLO \xff\r\n"), Err(reply::NOT_UTF8));
    }

    #[test]
    fn no_line_breaks_the_reader() {
        let mut seed = 1_u64;
        let parts = [
            "MAIL",
            " ",
            "FROM",
            ":",
            "<",
            ">",
            "a@b.test",
            "SIZE",
            "=",
            "99999999999999999999",
            "\"",
            "\\",
            "BY=",
            "TRANSID",
            "MTRK",
            ";",
            "+",
            "RCPT",
            "TO",
            "NOTIFY",
            ",",
            "ORCPT=rfc822;",
            "RRVS=",
            "HOLDUNTIL",
            "ü",
            "BDAT",
            "LAST",
            "AUTH",
            "EHLO",
            "@",
            ".",
        ];
        for _ in 0..20_000 {
            let mut line = String::new();
            for _ in 0..12 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                line += parts[(seed >> 33) as usize % parts.len()];
            }
            drop(parse_command(&line));
        }
    }
}

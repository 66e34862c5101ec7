//! Commands: one line in, what it wants out. The grammar is `smtp-proto`'s; what that lets pass and mail does not is
//! refused here.

use smtp_proto::{Error, MAIL_BODY_7BIT, MAIL_BODY_8BITMIME, MAIL_SMTPUTF8, MailFrom, RcptTo, Request};
use std::borrow::Cow;

use super::reply::{self, Reply};

/// What a client wants.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
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
    /// BDAT is not offered, and bytes that are no commands follow it.
    Chunk,
    Reset,
    Nothing,
    Verify,
    Help,
    Quit,
    Starttls,
    /// AUTH.
    LogIn,
    /// A command of some extension that is not offered.
    Foreign,
}

/// Reads a line that ends in CRLF and has no other line end.
pub(super) fn read(line: &[u8]) -> Result<Command, Reply> {
    let bare = line.strip_suffix(b"\r\n").unwrap_or(line);
    let text = std::str::from_utf8(bare).ok().filter(|text| !text.chars().any(char::is_control));
    let text = text.ok_or(reply::NOT_TEXT)?;
    let request = Request::parse(&mut line.iter()).map_err(|error| refusal(&error))?;
    // The parser skips whatever follows these.
    let is_alone = matches!(request, Request::Data | Request::Rset | Request::Quit | Request::StartTls);
    if is_alone && text.trim().len() != request.name().len() {
        return Err(reply::NO_ARGUMENTS);
    }
    Ok(match request {
        Request::Ehlo { host } => Command::Hello { name: host.into_owned(), extended: true },
        Request::Helo { host } => Command::Hello { name: host.into_owned(), extended: false },
        Request::Mail { from } => mail(from, text)?,
        Request::Rcpt { to } => rcpt(to, text)?,
        Request::Data => Command::Data,
        Request::Bdat { .. } => Command::Chunk,
        Request::Rset => Command::Reset,
        Request::Noop { .. } => Command::Nothing,
        Request::Vrfy { .. } => Command::Verify,
        Request::Help { .. } => Command::Help,
        Request::Quit => Command::Quit,
        Request::StartTls => Command::Starttls,
        Request::Auth { .. } => Command::LogIn,
        Request::Lhlo { .. }
        | Request::Expn { .. }
        | Request::Etrn { .. }
        | Request::Atrn { .. }
        | Request::Burl { .. } => Command::Foreign,
    })
}

fn refusal(error: &Error) -> Reply {
    match error {
        Error::UnknownCommand => reply::NO_COMMAND,
        Error::InvalidSenderAddress => reply::BAD_SENDER,
        Error::InvalidRecipientAddress => reply::BAD_RECIPIENT,
        Error::UnsupportedParameter { .. } => reply::NO_PARAMETER,
        _ => reply::BAD_ARGUMENTS,
    }
}

fn mail(from: MailFrom<Cow<'_, str>>, text: &str) -> Result<Command, Reply> {
    let MailFrom { address, flags, size, trans_id, by, env_id, solicit, mtrk, auth, hold_for, hold_until, mt_priority } =
        from;
    let words = trans_id.is_some() || env_id.is_some() || solicit.is_some() || mtrk.is_some() || auth.is_some();
    let numbers = by != 0 || hold_for != 0 || hold_until != 0 || mt_priority != 0;
    let offered = MAIL_BODY_7BIT | MAIL_BODY_8BITMIME | MAIL_SMTPUTF8;
    if words || numbers || flags & !offered != 0 {
        return Err(reply::NO_PARAMETER);
    }
    // To the parser `<>`, `<"">`, `<@a:>` and `<postmaster>` are all the same; only the first is the null return path.
    if address.is_empty() && !is_path(text, "<>") {
        return Err(reply::BAD_SENDER);
    }
    Ok(Command::Mail { sender: address.into_owned(), size, utf8: flags & MAIL_SMTPUTF8 != 0 })
}

fn rcpt(to: RcptTo<Cow<'_, str>>, text: &str) -> Result<Command, Reply> {
    if to.orcpt.is_some() || to.rrvs != 0 || to.flags != 0 {
        return Err(reply::NO_PARAMETER);
    }
    let is_postmaster = to.address.is_empty() && is_path(text, "<postmaster>");
    if to.address.is_empty() && !is_postmaster {
        return Err(reply::BAD_RECIPIENT);
    }
    Ok(Command::Rcpt { address: (!is_postmaster).then(|| to.address.into_owned()) })
}

/// Whether the first path of a line is this one.
fn is_path(text: &str, path: &str) -> bool {
    let at = text.find('<').and_then(|start| text.get(start..start + path.len()));
    at.is_some_and(|found| found.eq_ignore_ascii_case(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(line: &str) -> Result<Command, &'static str> {
        read(format!("{line}\r\n").as_bytes()).map_err(|reply| reply.line)
    }

    #[test]
    fn commands_are_read_in_any_case() {
        let mail = |sender: &str, size, utf8| Ok(Command::Mail { sender: sender.to_owned(), size, utf8 });
        let rcpt = |address: &str| Ok(Command::Rcpt { address: Some(address.to_owned()) });
        let hello = |name: &str, extended| Ok(Command::Hello { name: name.to_owned(), extended });
        assert_eq!(told("ehlo mx.example.com"), hello("mx.example.com", true));
        assert_eq!(told("HELO [192.0.2.1]"), hello("[192.0.2.1]", false));
        assert_eq!(told("MAIL FROM:<Ada@out.test>"), mail("Ada@out.test", 0, false));
        assert_eq!(told("mail from:<> size=12 body=8bitmime"), mail("", 12, false));
        assert_eq!(told("MAIL FROM:<ü@out.test> SMTPUTF8 BODY=7BIT"), mail("ü@out.test", 0, true));
        assert_eq!(told("RCPT TO:<@relay.test,@other.test:ada@in.test>"), rcpt("ada@in.test"));
        assert_eq!(told("RCPT TO:<\"ada\"@in.test>"), rcpt("ada@in.test"));
        assert_eq!(told("RCPT TO:<PostMaster>"), Ok(Command::Rcpt { address: None }));
        assert_eq!(told("VRFY ada"), Ok(Command::Verify));
        assert_eq!(told("NOOP and more"), Ok(Command::Nothing));
        assert_eq!(told("data"), Ok(Command::Data));
        assert_eq!(told("QUIT "), Ok(Command::Quit));
        assert_eq!(told("BDAT 12 LAST"), Ok(Command::Chunk));
        assert_eq!(told("AUTH PLAIN AGEAYg=="), Ok(Command::LogIn));
        assert_eq!(told("EXPN list"), Ok(Command::Foreign));
    }

    #[test]
    fn what_mail_does_not_allow_is_refused() {
        for (line, said) in [
            ("", reply::NO_COMMAND),
            ("WHAT", reply::NO_COMMAND),
            ("MAILFROM:<a@b.test>", reply::NO_COMMAND),
            ("GET / HTTP/1.1", reply::NO_COMMAND),
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
            ("MAIL FROM:<a@b.test> BODY=BINARYMIME", reply::NO_PARAMETER),
            ("MAIL FROM:<a@b.test> RET=FULL", reply::NO_PARAMETER),
            ("MAIL FROM:<a@b.test> ENVID=x", reply::NO_PARAMETER),
            ("MAIL FROM:<a@b.test> AUTH=<>", reply::NO_PARAMETER),
            ("MAIL FROM:<a@b.test> REQUIRETLS", reply::NO_PARAMETER),
            ("MAIL FROM:<a@b.test> HOLDFOR=9", reply::NO_PARAMETER),
            ("MAIL FROM:<a@b.test> X-WHAT=1", reply::NO_PARAMETER),
            ("RCPT", reply::BAD_ARGUMENTS),
            ("RCPT TO:ada@in.test", reply::BAD_ARGUMENTS),
            ("RCPT TO:<>", reply::BAD_RECIPIENT),
            ("RCPT TO:<\"\">", reply::BAD_RECIPIENT),
            ("RCPT TO:<ada>", reply::BAD_RECIPIENT),
            ("RCPT TO:<a@b.test@c.test>", reply::BAD_RECIPIENT),
            ("RCPT TO:<ada@in.test> NOTIFY=NEVER", reply::NO_PARAMETER),
            ("RCPT TO:<ada@in.test> ORCPT=rfc822;a@b.test", reply::NO_PARAMETER),
            ("DATA now", reply::NO_ARGUMENTS),
            ("RSET x", reply::NO_ARGUMENTS),
            ("QUIT x", reply::NO_ARGUMENTS),
            ("STARTTLS x", reply::NO_ARGUMENTS),
            ("NOOP \u{1}", reply::NOT_TEXT),
            ("NO\0OP", reply::NOT_TEXT),
            ("DA\rTA", reply::NOT_TEXT),
        ] {
            assert_eq!(told(line), Err(said.line), "{line:?}");
        }
        assert_eq!(read(b"EHLO \xff\r\n"), Err(reply::NOT_TEXT));
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
            drop(told(&line));
        }
    }
}

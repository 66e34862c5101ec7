//! The script of a sink: what it does wrong, and where.

use std::time::Duration;

/// A step of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SmtpStep {
    /// Before the greeting.
    Greeting,
    /// EHLO or HELO.
    Hello,
    /// STARTTLS.
    Starttls,
    /// AUTH and its continuation lines.
    Login,
    /// `MAIL FROM`.
    Mail,
    /// `RCPT TO`.
    Rcpt,
    /// `DATA`.
    Data,
    /// The first line of the body.
    Body,
    /// The final dot.
    Dot,
    /// `RSET`.
    Reset,
}

/// What the sink does in place of the default.
#[derive(Clone, Debug)]
pub enum SmtpAction {
    /// Sends these bytes and does nothing else.
    Reply(Vec<u8>),
    /// Sends these bytes, and closes when the client has closed or sends no more.
    ReplyAndClose(Vec<u8>),
    /// Sends these bytes one at a time.
    Drip(Vec<u8>, Duration),
    /// Does the default, and sends these bytes directly after it.
    ReplyWithExtra(Vec<u8>),
    /// Does the default after a delay, even if the client has left.
    Late(Duration),
    /// Closes without a reply.
    Close,
    /// Sends nothing any more.
    Stall,
    /// Neither reads nor sends any more, and keeps the connection.
    Freeze,
    /// Accepts the mail, then does this in place of the confirmation. Only at the dot.
    AcceptThen(Box<SmtpAction>),
}

impl SmtpAction {
    /// Sends one line.
    pub fn reply_line(line: &str) -> Self {
        Self::Reply(format!("{line}\r\n").into_bytes())
    }

    /// Sends one line and closes.
    pub fn reply_line_and_close(line: &str) -> Self {
        Self::ReplyAndClose(format!("{line}\r\n").into_bytes())
    }

    /// Does the default and sends one more line.
    pub fn extra_line(line: &str) -> Self {
        Self::ReplyWithExtra(format!("{line}\r\n").into_bytes())
    }

    /// Accepts the mail and then acts.
    pub fn accept_then(then: SmtpAction) -> Self {
        Self::AcceptThen(Box::new(then))
    }
}

/// One instruction.
#[derive(Clone, Debug)]
pub(super) struct ScriptRule {
    pub(super) step: SmtpStep,
    /// Only if the command line contains this.
    pub(super) line_contains: Option<String>,
    /// How often it still applies; `None` for always.
    pub(super) remaining: Option<u32>,
    pub(super) act: SmtpAction,
}

/// All instructions; the first match applies.
#[derive(Debug, Default)]
pub(super) struct SmtpScript(pub(super) Vec<ScriptRule>);

impl SmtpScript {
    /// The action for a step.
    pub(super) fn action_for(&mut self, step: SmtpStep, line: &str) -> Option<SmtpAction> {
        let fits = |rule: &ScriptRule| {
            rule.step == step
                && rule.remaining != Some(0)
                && rule.line_contains.as_ref().is_none_or(|with| line.contains(with))
        };
        let rule = self.0.iter_mut().find(|rule| fits(rule))?;
        rule.remaining = rule.remaining.map(|times| times - 1);
        Some(rule.act.clone())
    }
}

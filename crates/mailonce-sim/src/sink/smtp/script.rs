//! What the sink is told to do wrong, and where.

use std::time::Duration;

/// Where in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SmtpStep {
    /// Before anything was said.
    Greeting,
    /// EHLO or HELO.
    Hello,
    /// STARTTLS.
    Starttls,
    /// AUTH and the lines that belong to it.
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

/// What it does there instead of the usual.
#[derive(Clone, Debug)]
pub enum SmtpAction {
    /// Says these bytes and does nothing else.
    Reply(Vec<u8>),
    /// Says these bytes, and closes when the other side has closed or has been read out.
    ReplyAndClose(Vec<u8>),
    /// Says these bytes one by one.
    Drip(Vec<u8>, Duration),
    /// Does the usual, and says these bytes at once behind it.
    ReplyWithExtra(Vec<u8>),
    /// Does the usual after a while, even when the other side has left.
    Late(Duration),
    /// Closes without a word.
    Close,
    /// Says nothing any more.
    Stall,
    /// Says nothing and reads nothing any more, and keeps the connection.
    Freeze,
    /// Takes the mail, and then does this instead of saying so. Only at the dot.
    AcceptThen(Box<SmtpAction>),
}

impl SmtpAction {
    /// Says one line.
    pub fn reply_line(line: &str) -> Self {
        Self::Reply(format!("{line}\r\n").into_bytes())
    }

    /// Says one line and closes.
    pub fn reply_line_and_close(line: &str) -> Self {
        Self::ReplyAndClose(format!("{line}\r\n").into_bytes())
    }

    /// Does the usual and says one more line.
    pub fn extra_line(line: &str) -> Self {
        Self::ReplyWithExtra(format!("{line}\r\n").into_bytes())
    }

    /// Takes the mail and then acts.
    pub fn accept_then(then: SmtpAction) -> Self {
        Self::AcceptThen(Box::new(then))
    }
}

/// One instruction.
#[derive(Clone, Debug)]
pub(super) struct ScriptRule {
    pub(super) step: SmtpStep,
    /// Only where the command's line has this in it.
    pub(super) line_contains: Option<String>,
    /// How often it still holds, else always.
    pub(super) remaining: Option<u32>,
    pub(super) act: SmtpAction,
}

/// All instructions; the first that fits counts.
#[derive(Debug, Default)]
pub(super) struct SmtpScript(pub(super) Vec<ScriptRule>);

impl SmtpScript {
    /// What to do at a step.
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

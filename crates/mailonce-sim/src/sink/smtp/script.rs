//! What the sink is told to do wrong, and where.

use std::time::Duration;

/// Where in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
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
pub enum Act {
    /// Says these bytes and does nothing else.
    Say(Vec<u8>),
    /// Says these bytes, and closes when the other side has closed or has been read out.
    SayAndClose(Vec<u8>),
    /// Says these bytes one by one.
    Drip(Vec<u8>, Duration),
    /// Does the usual, and says these bytes at once behind it.
    Extra(Vec<u8>),
    /// Does the usual after a while, even when the other side has left.
    Late(Duration),
    /// Closes without a word.
    Cut,
    /// Says nothing any more.
    Stall,
    /// Says nothing and reads nothing any more, and keeps the connection.
    Freeze,
    /// Takes the mail, and then does this instead of saying so. Only at the dot.
    Taken(Box<Act>),
}

impl Act {
    /// Says one line.
    pub fn say(line: &str) -> Self {
        Self::Say(format!("{line}\r\n").into_bytes())
    }

    /// Says one line and closes.
    pub fn say_and_close(line: &str) -> Self {
        Self::SayAndClose(format!("{line}\r\n").into_bytes())
    }

    /// Does the usual and says one more line.
    pub fn extra(line: &str) -> Self {
        Self::Extra(format!("{line}\r\n").into_bytes())
    }

    /// Takes the mail and then acts.
    pub fn taken(then: Act) -> Self {
        Self::Taken(Box::new(then))
    }
}

/// One instruction.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) step: Step,
    /// Only where the command's line has this in it.
    pub(super) with: Option<String>,
    /// How often it still holds, else always.
    pub(super) times: Option<u32>,
    pub(super) act: Act,
}

/// All instructions; the first that fits counts.
#[derive(Debug, Default)]
pub(super) struct Script(pub(super) Vec<Rule>);

impl Script {
    /// What to do at a step.
    pub(super) fn act(&mut self, step: Step, line: &str) -> Option<Act> {
        let fits = |rule: &Rule| {
            rule.step == step && rule.times != Some(0) && rule.with.as_ref().is_none_or(|with| line.contains(with))
        };
        let rule = self.0.iter_mut().find(|rule| fits(rule))?;
        rule.times = rule.times.map(|times| times - 1);
        Some(rule.act.clone())
    }
}

//! One mail on one connection: `MAIL`, `RCPT`, `DATA` and the body, and apart from them the final dot.
//!
//! Before the dot everything is certain, whatever happens: the mail was not handed over. After it only a well-formed
//! answer is certain.

use super::{
    answer::Answer,
    body::{self, Needs},
    config::Patience,
    envelope::{self, Command, Expected},
    session::Session,
    wire::{Lost, Silence},
};
use crate::age::Since;
use mailonce_core::port::transport::{Meaning, Parcel, Phase, Reply};
use std::time::Duration;
use tokio::time::Instant;

/// How long the answers to commands that do not matter any more are waited for.
const REST: Duration = Duration::from_secs(5);

/// Why a mail did not come as far as the dot.
#[derive(Debug)]
pub(super) struct Setback {
    /// What it means for the mail.
    pub(super) reply: Reply,
    /// The connection had died while it rested: another may be tried, as nothing was begun on this one.
    pub(super) stale: bool,
    /// The connection is in step and can be used again.
    pub(super) reusable: bool,
}

impl From<Reply> for Setback {
    fn from(reply: Reply) -> Self {
        Self { reply, stale: false, reusable: false }
    }
}

/// What came of the dot.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) reply: Reply,
    pub(super) reusable: bool,
}

/// The meaning of an answer before the dot, when it is not the one that lets things go on.
fn meaning(answer: &Answer) -> Meaning {
    match answer.code {
        421 | 530 | 534 | 535 | 538 => Meaning::Fault,
        500.. => Meaning::Refused,
        // Something other than the protocol has for this place is not a yes, and later it may be.
        _ => Meaning::Deferred,
    }
}

fn deferred(phase: Phase, text: &str) -> Reply {
    Reply::new(Meaning::Deferred, phase, None, text)
}

fn lost(phase: Phase, lost: &Lost) -> Reply {
    deferred(phase, &lost.to_string())
}

impl Session {
    /// Goes as far as the last byte before the final dot.
    pub(super) async fn begin(&mut self, parcel: &Parcel, needs: Needs, patience: &Patience) -> Result<(), Setback> {
        let commands = envelope::commands(parcel, needs, &self.offers)
            .map_err(|reply| Setback { reusable: true, ..Setback::from(reply) })?;
        let rested = self.mails > 0;
        self.mails += 1;
        let mut flight = Vec::with_capacity(4);
        flight.extend(rested.then(Command::reset));
        flight.extend(commands);
        mailonce_core::failpoint!("smtp-envelope");
        self.fly(&flight, rested, patience.command).await?;
        mailonce_core::failpoint!("smtp-body");
        self.body(&parcel.bytes, patience).await.map_err(Setback::from)
    }

    /// Gives the commands, all at once where the server takes that, and reads their answers in order.
    async fn fly(&mut self, flight: &[Command], rested: bool, patience: Duration) -> Result<(), Setback> {
        let at_once = self.offers.pipelining;
        if at_once {
            let lines: String = flight.iter().flat_map(|command| [command.line.as_str(), "\r\n"]).collect();
            let written = self.wire.write(lines.as_bytes(), Instant::now() + patience).await;
            written.map_err(|error| Setback { stale: rested, ..lost(Phase::Mail, &error).into() })?;
        }
        for (number, command) in flight.iter().enumerate() {
            // On a connection that rested, nothing counts as begun before `MAIL` was taken.
            let unbegun = rested && number < 2;
            let answer = if at_once {
                self.wire.answer(Instant::now() + patience).await
            } else {
                self.give(command, patience).await
            };
            let answer = answer.map_err(|error| Setback { stale: unbegun, ..lost(command.phase, &error).into() })?;
            let goes_on = match command.expected {
                Expected::Done => answer.class() == 2,
                Expected::GoOn => answer.code == 354,
            };
            if !goes_on {
                let unanswered = if at_once { flight.len() - number - 1 } else { 0 };
                let reply = Reply::new(meaning(&answer), command.phase, Some(answer.code), &answer.text());
                let closing = answer.code == 421;
                let stale = unbegun && (closing || number == 0);
                let reusable = !closing && answer.class() >= 4 && self.skip(unanswered).await;
                return Err(Setback { reply, stale, reusable });
            }
        }
        Ok(())
    }

    /// One command by itself.
    async fn give(&mut self, command: &Command, patience: Duration) -> Result<Answer, Lost> {
        let end = Instant::now() + patience;
        if self.wire.silence().await == Silence::Broken {
            return Err(Lost::OutOfTurn);
        }
        self.wire.write(format!("{}\r\n", command.line).as_bytes(), end).await?;
        self.wire.answer(end).await
    }

    /// Reads answers that do not matter any more, and tells whether the connection is in step afterwards. After one
    /// refusal the rest must be refused too: a server that now waits for a body, say, is not in step.
    async fn skip(&mut self, answers: usize) -> bool {
        let end = Instant::now() + REST;
        for _ in 0..answers {
            match self.wire.answer(end).await {
                Ok(answer) if answer.class() >= 4 && answer.code != 421 => {}
                _ => return false,
            }
        }
        self.wire.in_step()
    }

    async fn body(&mut self, bytes: &[u8], patience: &Patience) -> Result<(), Reply> {
        let end = Instant::now() + patience.body;
        match self.wire.write_unless_spoken_to(&body::stuffed(bytes), end).await {
            Ok(Silence::Kept) => Ok(()),
            Ok(Silence::Broken) => Err(self.early_answer(patience.command).await),
            Ok(Silence::Gone) => Err(lost(Phase::Data, &Lost::Closed)),
            Err(error) => Err(lost(Phase::Data, &error)),
        }
    }

    /// What the server said before it was given the dot. It is the answer, and a certain one.
    async fn early_answer(&mut self, patience: Duration) -> Reply {
        match self.wire.answer(Instant::now() + patience).await {
            Ok(answer) if answer.class() >= 4 => {
                Reply::new(meaning(&answer), Phase::Data, Some(answer.code), &answer.text())
            }
            Ok(answer) => {
                let text = format!("the server spoke before the final dot: {} {}", answer.code, answer.text());
                deferred(Phase::Data, &text)
            }
            Err(error) => lost(Phase::Data, &error),
        }
    }

    /// Writes the final dot, unless it is too late or the server spoke first, and waits for the answer.
    pub(super) async fn finish(&mut self, armed: Since, patience: &Patience) -> Settled {
        let not_given = |reply| Settled { reply, reusable: false };
        match self.wire.silence().await {
            Silence::Kept => {}
            Silence::Broken => return not_given(self.early_answer(patience.command).await),
            Silence::Gone => return not_given(lost(Phase::Data, &Lost::Closed)),
        }
        if armed.elapsed() > patience.armed {
            return not_given(deferred(Phase::Data, "too much time passed, so the final dot was not given"));
        }
        mailonce_core::failpoint!("smtp-before-dot");
        let end = Instant::now() + patience.answer;
        // Of a dot that could not be written a part may have left, so that the server may have it all.
        let written = self.wire.write(b".\r\n", end).await;
        mailonce_core::failpoint!("smtp-after-dot");
        let answer = match written {
            Err(error) => Err(error),
            Ok(()) => self.wire.answer(end).await,
        };
        mailonce_core::failpoint!("smtp-after-answer");
        match answer {
            Ok(answer) => self.settle(&answer),
            Err(error) => not_given(Reply::new(Meaning::Unknown, Phase::Final, None, &error.to_string())),
        }
    }

    fn settle(&mut self, answer: &Answer) -> Settled {
        let meaning = match answer.class() {
            2 => Meaning::Accepted,
            4 => Meaning::Deferred,
            5 => Meaning::Refused,
            _ => Meaning::Unknown,
        };
        let reusable = self.wire.in_step() && answer.code != 421 && meaning != Meaning::Unknown;
        // A second answer that says the contrary: nobody can tell which one was meant.
        let contrary = |second: &Answer| second.class() != answer.class() && second.code != 421;
        if let Some(second) = self.wire.second_answer().filter(contrary) {
            let text = format!("two answers: {} {} / {} {}", answer.code, answer.text(), second.code, second.text());
            return Settled { reply: Reply::new(Meaning::Unknown, Phase::Final, None, &text), reusable: false };
        }
        let reply = Reply::new(meaning, Phase::Final, Some(answer.code), &answer.text());
        let remote_id = if meaning == Meaning::Accepted { answer.remote_id() } else { None };
        Settled { reply: reply.named(remote_id), reusable }
    }
}

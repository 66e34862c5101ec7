//! One mail on one connection: `MAIL`, `RCPT`, `DATA` and the body, and apart from them the final dot.
//!
//! Before the dot everything is certain, whatever happens: the mail was not handed over. After it only a well-formed
//! answer is certain.

use super::{
    body::{self, BodyRequirements},
    config::RelayTimeouts,
    envelope::{self, ExpectedReply, RelayCommand},
    session::RelaySession,
};
use crate::{
    boot_instant::BootInstant,
    smtp::{
        connection::{RelayConnectionError, RelayState},
        reply::RelayReply,
    },
};
use mailonce_core::handoff::{
    reply::{AttemptPhase, ReplyMeaning, TransportReply},
    transport_request::FrozenEnvelope,
};
use std::time::Duration;
use tokio::time::Instant;

/// How long the answers to commands that do not matter any more are waited for.
const SKIP_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a mail did not come as far as the dot.
#[derive(Debug)]
pub(super) struct EnvelopeError {
    /// What it means for the mail.
    pub(super) reply: TransportReply,
    /// The connection had died while it rested: another may be tried, as nothing was begun on this one.
    pub(super) is_stale: bool,
    /// The connection is in step and can be used again.
    pub(super) is_reusable: bool,
}

impl From<TransportReply> for EnvelopeError {
    fn from(reply: TransportReply) -> Self {
        Self { reply, is_stale: false, is_reusable: false }
    }
}

/// What came of the dot.
#[derive(Debug)]
pub(super) struct FinalOutcome {
    pub(super) reply: TransportReply,
    pub(super) is_reusable: bool,
}

/// The meaning of an answer before the dot, when it is not the one that lets things go on.
fn reply_meaning(answer: &RelayReply) -> ReplyMeaning {
    match answer.code {
        421 | 530 | 534 | 535 | 538 => ReplyMeaning::Fault,
        500.. => ReplyMeaning::Refused,
        // Something other than the protocol has for this place is not a yes, and later it may be.
        _ => ReplyMeaning::Deferred,
    }
}

fn deferred_reply(phase: AttemptPhase, text: &str) -> TransportReply {
    TransportReply::new(ReplyMeaning::Deferred, phase, None, text)
}

fn deferred_by_error(phase: AttemptPhase, lost: &RelayConnectionError) -> TransportReply {
    deferred_reply(phase, &lost.to_string())
}

impl RelaySession {
    /// Goes as far as the last byte before the final dot.
    pub(super) async fn send_until_dot(
        &mut self,
        parcel: &FrozenEnvelope,
        needs: BodyRequirements,
        patience: &RelayTimeouts,
    ) -> Result<(), EnvelopeError> {
        let commands = envelope::envelope_commands(parcel, needs, &self.extensions)
            .map_err(|reply| EnvelopeError { is_reusable: true, ..EnvelopeError::from(reply) })?;
        let rested = self.mails_started > 0;
        self.mails_started += 1;
        let mut flight = Vec::with_capacity(4);
        flight.extend(rested.then(RelayCommand::reset));
        flight.extend(commands);
        mailonce_core::failpoint!("smtp-envelope");
        self.send_commands(&flight, rested, patience.command).await?;
        mailonce_core::failpoint!("smtp-body");
        self.send_body(&parcel.bytes, patience).await.map_err(EnvelopeError::from)
    }

    /// Gives the commands, all at once where the server takes that, and reads their answers in order.
    async fn send_commands(
        &mut self,
        flight: &[RelayCommand],
        rested: bool,
        patience: Duration,
    ) -> Result<(), EnvelopeError> {
        let at_once = self.extensions.pipelining;
        if at_once {
            let lines: String = flight.iter().flat_map(|command| [command.line.as_str(), "\r\n"]).collect();
            let written = self.connection.write(lines.as_bytes(), Instant::now() + patience).await;
            written.map_err(|error| EnvelopeError {
                is_stale: rested,
                ..deferred_by_error(AttemptPhase::Mail, &error).into()
            })?;
        }
        for (number, command) in flight.iter().enumerate() {
            // On a connection that rested, nothing counts as begun before `MAIL` was taken.
            let unbegun = rested && number < 2;
            let answer = if at_once {
                self.connection.read_reply(Instant::now() + patience).await
            } else {
                self.send_checked(command, patience).await
            };
            let answer = answer.map_err(|error| EnvelopeError {
                is_stale: unbegun,
                ..deferred_by_error(command.phase, &error).into()
            })?;
            let goes_on = match command.expected {
                ExpectedReply::Success => answer.class() == 2,
                ExpectedReply::StartMailInput => answer.code == 354,
            };
            if !goes_on {
                let unanswered = if at_once { flight.len() - number - 1 } else { 0 };
                let reply =
                    TransportReply::new(reply_meaning(&answer), command.phase, Some(answer.code), &answer.text());
                let closing = answer.code == 421;
                let stale = unbegun && (closing || number == 0);
                let reusable = !closing && answer.class() >= 4 && self.skip_replies(unanswered).await;
                return Err(EnvelopeError { reply, is_stale: stale, is_reusable: reusable });
            }
        }
        Ok(())
    }

    /// One command by itself.
    async fn send_checked(
        &mut self,
        command: &RelayCommand,
        patience: Duration,
    ) -> Result<RelayReply, RelayConnectionError> {
        let end = Instant::now() + patience;
        if self.connection.relay_state().await == RelayState::Spoke {
            return Err(RelayConnectionError::UnexpectedReply);
        }
        self.connection.write(format!("{}\r\n", command.line).as_bytes(), end).await?;
        self.connection.read_reply(end).await
    }

    /// Reads answers that do not matter any more, and tells whether the connection is in step afterwards. After one
    /// refusal the rest must be refused too: a server that now waits for a body, say, is not in step.
    async fn skip_replies(&mut self, answers: usize) -> bool {
        let end = Instant::now() + SKIP_TIMEOUT;
        for _ in 0..answers {
            match self.connection.read_reply(end).await {
                Ok(answer) if answer.class() >= 4 && answer.code != 421 => {}
                _ => return false,
            }
        }
        self.connection.is_in_sync()
    }

    async fn send_body(&mut self, bytes: &[u8], patience: &RelayTimeouts) -> Result<(), TransportReply> {
        let end = Instant::now() + patience.body;
        match self.connection.write_while_silent(&body::dot_stuffed(bytes), end).await {
            Ok(RelayState::Silent) => Ok(()),
            Ok(RelayState::Spoke) => Err(self.read_early_reply(patience.command).await),
            Ok(RelayState::Closed) => Err(deferred_by_error(AttemptPhase::Data, &RelayConnectionError::Closed)),
            Err(error) => Err(deferred_by_error(AttemptPhase::Data, &error)),
        }
    }

    /// What the server said before it was given the dot. It is the answer, and a certain one.
    async fn read_early_reply(&mut self, patience: Duration) -> TransportReply {
        match self.connection.read_reply(Instant::now() + patience).await {
            Ok(answer) if answer.class() >= 4 => {
                TransportReply::new(reply_meaning(&answer), AttemptPhase::Data, Some(answer.code), &answer.text())
            }
            Ok(answer) => {
                let text = format!("the server spoke before the final dot: {} {}", answer.code, answer.text());
                deferred_reply(AttemptPhase::Data, &text)
            }
            Err(error) => deferred_by_error(AttemptPhase::Data, &error),
        }
    }

    /// Writes the final dot, unless it is too late or the server spoke first, and waits for the answer.
    pub(super) async fn send_dot(&mut self, armed: BootInstant, patience: &RelayTimeouts) -> FinalOutcome {
        let not_given = |reply| FinalOutcome { reply, is_reusable: false };
        match self.connection.relay_state().await {
            RelayState::Silent => {}
            RelayState::Spoke => return not_given(self.read_early_reply(patience.command).await),
            RelayState::Closed => {
                return not_given(deferred_by_error(AttemptPhase::Data, &RelayConnectionError::Closed));
            }
        }
        if armed.elapsed() > patience.before_dot {
            return not_given(deferred_reply(
                AttemptPhase::Data,
                "too much time passed, so the final dot was not given",
            ));
        }
        mailonce_core::failpoint!("smtp-before-dot");
        let end = Instant::now() + patience.final_reply;
        // Of a dot that could not be written a part may have left, so that the server may have it all.
        let written = self.connection.write(b".\r\n", end).await;
        mailonce_core::failpoint!("smtp-after-dot");
        let answer = match written {
            Err(error) => Err(error),
            Ok(()) => self.connection.read_reply(end).await,
        };
        mailonce_core::failpoint!("smtp-after-answer");
        match answer {
            Ok(answer) => self.interpret_final_reply(&answer),
            Err(error) => {
                not_given(TransportReply::new(ReplyMeaning::Unknown, AttemptPhase::Final, None, &error.to_string()))
            }
        }
    }

    fn interpret_final_reply(&mut self, answer: &RelayReply) -> FinalOutcome {
        let meaning = match answer.class() {
            2 => ReplyMeaning::Accepted,
            4 => ReplyMeaning::Deferred,
            5 => ReplyMeaning::Refused,
            _ => ReplyMeaning::Unknown,
        };
        let reusable = self.connection.is_in_sync() && answer.code != 421 && meaning != ReplyMeaning::Unknown;
        // A second answer that says the contrary: nobody can tell which one was meant.
        let contrary = |second: &RelayReply| second.class() != answer.class() && second.code != 421;
        if let Some(second) = self.connection.buffered_reply().filter(contrary) {
            let text = format!("two answers: {} {} / {} {}", answer.code, answer.text(), second.code, second.text());
            return FinalOutcome {
                reply: TransportReply::new(ReplyMeaning::Unknown, AttemptPhase::Final, None, &text),
                is_reusable: false,
            };
        }
        let reply = TransportReply::new(meaning, AttemptPhase::Final, Some(answer.code), &answer.text());
        let remote_id = if meaning == ReplyMeaning::Accepted { answer.remote_id() } else { None };
        FinalOutcome { reply: reply.with_remote_id(remote_id), is_reusable: reusable }
    }
}

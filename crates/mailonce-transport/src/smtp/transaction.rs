//! One mail on one connection: `MAIL`, `RCPT`, `DATA` and the body, and as a separate step the final dot.
//!
//! Before the dot the outcome is certain whatever happens: the relay has not accepted the mail. After the dot only a
//! well-formed reply makes the outcome certain.

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

/// How long to wait for the outstanding replies of pipelined commands after a failure.
const SKIP_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a mail failed before the final dot.
#[derive(Debug)]
pub(super) struct EnvelopeError {
    /// The meaning for the mail.
    pub(super) reply: TransportReply,
    /// The connection died while idle. Another one may be tried, because this mail was not started on it.
    pub(super) is_stale: bool,
    /// The connection is in sync and can be reused.
    pub(super) is_reusable: bool,
}

impl From<TransportReply> for EnvelopeError {
    fn from(reply: TransportReply) -> Self {
        Self { reply, is_stale: false, is_reusable: false }
    }
}

/// The outcome of the final dot.
#[derive(Debug)]
pub(super) struct FinalOutcome {
    pub(super) reply: TransportReply,
    pub(super) is_reusable: bool,
}

/// The meaning of an unsuccessful reply before the final dot.
fn meaning_before_dot(reply: &RelayReply) -> ReplyMeaning {
    match reply.code {
        421 | 530 | 534 | 535 | 538 => ReplyMeaning::Fault,
        500.. => ReplyMeaning::Refused,
        // A reply that the protocol does not allow here is no success. A later attempt may succeed.
        _ => ReplyMeaning::Deferred,
    }
}

fn deferred_reply(phase: AttemptPhase, text: &str) -> TransportReply {
    TransportReply::new(ReplyMeaning::Deferred, phase, None, text)
}

fn deferred_by_error(phase: AttemptPhase, error: &RelayConnectionError) -> TransportReply {
    deferred_reply(phase, &error.to_string())
}

impl RelaySession {
    /// Sends everything before the final dot.
    pub(super) async fn send_until_dot(
        &mut self,
        envelope: &FrozenEnvelope,
        needs: BodyRequirements,
        timeouts: &RelayTimeouts,
    ) -> Result<(), EnvelopeError> {
        let commands = envelope::envelope_commands(envelope, needs, &self.extensions)
            .map_err(|reply| EnvelopeError { is_reusable: true, ..EnvelopeError::from(reply) })?;
        let is_pooled = self.mails_started > 0;
        self.mails_started += 1;
        let mut batch = Vec::with_capacity(4);
        batch.extend(is_pooled.then(RelayCommand::reset));
        batch.extend(commands);
        mailonce_core::failpoint!("smtp-envelope");
        self.send_commands(&batch, is_pooled, timeouts.command).await?;
        mailonce_core::failpoint!("smtp-body");
        self.send_body(&envelope.bytes, timeouts).await.map_err(EnvelopeError::from)
    }

    /// Sends the commands, pipelined if the server supports that, and reads their replies in order.
    async fn send_commands(
        &mut self,
        batch: &[RelayCommand],
        is_pooled: bool,
        timeout: Duration,
    ) -> Result<(), EnvelopeError> {
        let pipelined = self.extensions.pipelining;
        if pipelined {
            let lines: String = batch.iter().flat_map(|command| [command.line.as_str(), "\r\n"]).collect();
            let written = self.connection.write(lines.as_bytes(), Instant::now() + timeout).await;
            written.map_err(|error| EnvelopeError {
                is_stale: is_pooled,
                ..deferred_by_error(AttemptPhase::Mail, &error).into()
            })?;
        }
        for (number, command) in batch.iter().enumerate() {
            // On a pooled connection the mail counts as started only after `MAIL` was accepted.
            let not_started = is_pooled && number < 2;
            let server_reply = if pipelined {
                self.connection.read_reply(Instant::now() + timeout).await
            } else {
                self.send_checked(command, timeout).await
            };
            let server_reply = server_reply.map_err(|error| EnvelopeError {
                is_stale: not_started,
                ..deferred_by_error(command.phase, &error).into()
            })?;
            let succeeded = match command.expected {
                ExpectedReply::Success => server_reply.class() == 2,
                ExpectedReply::StartMailInput => server_reply.code == 354,
            };
            if !succeeded {
                let unanswered = if pipelined { batch.len() - number - 1 } else { 0 };
                let reply = TransportReply::new(
                    meaning_before_dot(&server_reply),
                    command.phase,
                    Some(server_reply.code),
                    &server_reply.text(),
                );
                let closing = server_reply.code == 421;
                let stale = not_started && (closing || number == 0);
                let reusable = !closing && server_reply.class() >= 4 && self.skip_replies(unanswered).await;
                return Err(EnvelopeError { reply, is_stale: stale, is_reusable: reusable });
            }
        }
        Ok(())
    }

    /// Sends one command and reads its reply. Fails if the server sent something unsolicited before.
    async fn send_checked(
        &mut self,
        command: &RelayCommand,
        timeout: Duration,
    ) -> Result<RelayReply, RelayConnectionError> {
        let deadline = Instant::now() + timeout;
        if self.connection.relay_state().await == RelayState::Spoke {
            return Err(RelayConnectionError::UnexpectedReply);
        }
        self.connection.write(format!("{}\r\n", command.line).as_bytes(), deadline).await?;
        self.connection.read_reply(deadline).await
    }

    /// Reads the outstanding replies and returns whether the connection is in sync afterwards. After one refusal the
    /// rest must be refused too: a server that now waits for a body, for example, is not in sync.
    async fn skip_replies(&mut self, count: usize) -> bool {
        let deadline = Instant::now() + SKIP_TIMEOUT;
        for _ in 0..count {
            match self.connection.read_reply(deadline).await {
                Ok(reply) if reply.class() >= 4 && reply.code != 421 => {}
                _ => return false,
            }
        }
        self.connection.is_in_sync()
    }

    async fn send_body(&mut self, bytes: &[u8], timeouts: &RelayTimeouts) -> Result<(), TransportReply> {
        let deadline = Instant::now() + timeouts.body;
        match self.connection.write_while_silent(&body::dot_stuffed(bytes), deadline).await {
            Ok(RelayState::Silent) => Ok(()),
            Ok(RelayState::Spoke) => Err(self.read_early_reply(timeouts.command).await),
            Ok(RelayState::Closed) => Err(deferred_by_error(AttemptPhase::Data, &RelayConnectionError::Closed)),
            Err(error) => Err(deferred_by_error(AttemptPhase::Data, &error)),
        }
    }

    /// Reads a reply that came before the final dot. It is final: the mail was certainly not accepted.
    async fn read_early_reply(&mut self, timeout: Duration) -> TransportReply {
        match self.connection.read_reply(Instant::now() + timeout).await {
            Ok(reply) if reply.class() >= 4 => {
                TransportReply::new(meaning_before_dot(&reply), AttemptPhase::Data, Some(reply.code), &reply.text())
            }
            Ok(reply) => {
                let text = format!("the server replied before the final dot: {} {}", reply.code, reply.text());
                deferred_reply(AttemptPhase::Data, &text)
            }
            Err(error) => deferred_by_error(AttemptPhase::Data, &error),
        }
    }

    /// Sends the final dot and waits for the reply. Sends nothing if it is too late or the server replied early.
    pub(super) async fn send_dot(&mut self, prepared_at: BootInstant, timeouts: &RelayTimeouts) -> FinalOutcome {
        let not_reusable = |reply| FinalOutcome { reply, is_reusable: false };
        match self.connection.relay_state().await {
            RelayState::Silent => {}
            RelayState::Spoke => return not_reusable(self.read_early_reply(timeouts.command).await),
            RelayState::Closed => {
                return not_reusable(deferred_by_error(AttemptPhase::Data, &RelayConnectionError::Closed));
            }
        }
        if prepared_at.elapsed() > timeouts.before_dot {
            return not_reusable(deferred_reply(
                AttemptPhase::Data,
                "too much time passed since the body, so the final dot was not sent",
            ));
        }
        mailonce_core::failpoint!("smtp-before-dot");
        let deadline = Instant::now() + timeouts.final_reply;
        // After a failed write the server may still have received the dot, so the outcome is unknown.
        let written = self.connection.write(b".\r\n", deadline).await;
        mailonce_core::failpoint!("smtp-after-dot");
        let answer = match written {
            Err(error) => Err(error),
            Ok(()) => self.connection.read_reply(deadline).await,
        };
        mailonce_core::failpoint!("smtp-after-answer");
        match answer {
            Ok(answer) => self.interpret_final_reply(&answer),
            Err(error) => {
                not_reusable(TransportReply::new(ReplyMeaning::Unknown, AttemptPhase::Final, None, &error.to_string()))
            }
        }
    }

    /// What the reply to the final dot says about the mail.
    fn interpret_final_reply(&mut self, answer: &RelayReply) -> FinalOutcome {
        let meaning = match answer.class() {
            2 => ReplyMeaning::Accepted,
            4 => ReplyMeaning::Deferred,
            5 => ReplyMeaning::Refused,
            _ => ReplyMeaning::Unknown,
        };
        let reusable = self.connection.is_in_sync() && answer.code != 421 && meaning != ReplyMeaning::Unknown;
        // A second, contradicting reply makes the outcome unknown.
        let contradicts = |second: &RelayReply| second.class() != answer.class() && second.code != 421;
        if let Some(second) = self.connection.buffered_reply().filter(contradicts) {
            let text = format!(
                "two contradicting replies: {} {} / {} {}",
                answer.code,
                answer.text(),
                second.code,
                second.text()
            );
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

//! The transport port: something that hands mail to a next hop, such as an SMTP relay or a provider's API.
//!
//! An attempt has two halves, with the durable marker between them. [`Transport::prepare`] does everything that can be
//! undone: connecting, TLS, login, and for SMTP everything up to the final dot. The engine then commits `sending`.
//! [`PreparedHandoff::hand_over`] sends the bytes on that same connection.
//!
//! Neither half retries or follows a redirect. A result that is neither proof nor refusal is `ReplyMeaning::Unknown`.

use async_trait::async_trait;
use std::fmt;

use crate::handoff::{
    capabilities::TransportCapabilities,
    reply::TransportReply,
    transport_request::{ConnectionCheck, FrozenEnvelope, LookUpRequest, LookUpResult, OutboundMail, UnsupportedMail},
};

/// An attempt at the point of no return. Everything is prepared and nothing is irrevocable; dropping it undoes it.
#[async_trait]
pub trait PreparedHandoff: Send {
    /// Sends the bytes, once, on the prepared connection, and waits for the reply.
    async fn hand_over(self: Box<Self>) -> TransportReply;
}

/// Hands mail to a next hop.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// Its name in the configuration.
    fn name(&self) -> &str;
    /// Its kind: `smtp`, `resend` …
    fn kind(&self) -> &'static str;
    /// A fingerprint of the provider account. It stays the same when the credentials change.
    fn account(&self) -> &str;
    /// Its capabilities.
    fn capabilities(&self) -> TransportCapabilities;
    /// The bytes to send for an email, identical for all attempts. Pure: the same email gives the same bytes.
    fn freeze(&self, mail: &OutboundMail<'_>) -> Result<Vec<u8>, UnsupportedMail>;
    /// Prepares an attempt, as far as it can be undone. An error never means `accepted` or `unknown`.
    async fn prepare(&self, envelope: FrozenEnvelope) -> Result<Box<dyn PreparedHandoff>, TransportReply>;
    /// Asks whether the next hop has a mail. Called only when the recovery method is `RecoveryMethod::LookUp`.
    async fn look_up(&self, asked: LookUpRequest) -> LookUpResult;
    /// Connects and logs in, as far as that is possible without a mail.
    async fn check_connection(&self) -> ConnectionCheck {
        ConnectionCheck::Reached
    }
}

impl fmt::Debug for dyn Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transport({}, {})", self.name(), self.kind())
    }
}

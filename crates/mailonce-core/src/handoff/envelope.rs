//! Envelopes: which recipients of an email one transport gets together.

/// One envelope of a new email.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The name of the transport.
    pub transport: String,
    /// The recipients, as bare addresses.
    pub recipients: Vec<String>,
}

//! Test addresses of other services. Mail to them is simulated and never reaches a next hop.
//!
//! They count only in sends through the dialect of their service. In every other send they are ordinary addresses.

use super::email::Channel;

/// The domain of Resend's test addresses.
const RESEND_DOMAIN: &str = "resend.dev";

/// What is simulated for a test address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestRecipient {
    /// The mail is delivered.
    Delivered,
    /// The mail is accepted and bounces.
    Bounced,
    /// The mail is delivered and reported as spam.
    Complained,
    /// The address is on the suppression list of the service, so the mail is refused.
    Suppressed,
}

impl TestRecipient {
    /// Parses a test address of any service, such as `bounced+signup@resend.dev`.
    pub fn parse(address: &str) -> Option<Self> {
        let (local, domain) = address.rsplit_once('@')?;
        let name = local.split_once('+').map_or(local, |(name, _)| name);
        match name.to_ascii_lowercase().as_str() {
            _ if !domain.eq_ignore_ascii_case(RESEND_DOMAIN) => None,
            "delivered" => Some(Self::Delivered),
            "bounced" => Some(Self::Bounced),
            "complained" => Some(Self::Complained),
            "suppressed" => Some(Self::Suppressed),
            _ => None,
        }
    }

    /// Whether a call through this channel treats an address as a test address.
    pub fn is_simulated(channel: Channel, address: &str) -> bool {
        channel == Channel::Resend && Self::parse(address).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_addresses_are_those_of_the_dialect_with_any_label() {
        for (address, expected) in [
            ("delivered@resend.dev", Some(TestRecipient::Delivered)),
            ("bounced+signup@resend.dev", Some(TestRecipient::Bounced)),
            ("Complained@RESEND.dev", Some(TestRecipient::Complained)),
            ("suppressed@resend.dev", Some(TestRecipient::Suppressed)),
            ("ada@resend.dev", None),
            ("delivered@example.com", None),
            ("delivered@resend.dev.example.com", None),
            ("delivered", None),
        ] {
            assert_eq!(TestRecipient::parse(address), expected, "{address}");
            assert_eq!(TestRecipient::is_simulated(Channel::Resend, address), expected.is_some(), "{address}");
            assert!(!TestRecipient::is_simulated(Channel::UseSend, address), "{address}");
        }
    }
}

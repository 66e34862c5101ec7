//! Contacts: whom a team mailed before. An address is remembered as a hash under the installation's secret, so that a
//! first contact is recognized for good and no address can be read from the memory.

use crate::{id::TeamId, key::InstallSecret};

/// The hash of an address that a team mailed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContactHash(pub [u8; 16]);

impl ContactHash {
    /// The hash of an address, whatever its case.
    pub fn of(secret: &InstallSecret, team: TeamId, address: &str) -> Self {
        let mac = secret.mac("contact", &[team.0.as_bytes(), address.to_ascii_lowercase().as_bytes()]);
        let mut hash = [0; 16];
        hash.copy_from_slice(&mac[..16]);
        Self(hash)
    }
}

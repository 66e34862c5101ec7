//! The return path and the ENVID of an attempt. Both encode handoff and attempt, and prove that mailonce created them.
//!
//! The proof is a MAC over [`AttemptTag::mac_payload`]. The caller holds the secret and compares the MAC in constant
//! time.

use mailonce_core::id::EmailId;

/// The prefix of the tag in a return path.
const RETURN_PATH_PREFIX: &str = "bounce+";
/// The prefix of the tag in an ENVID. It has no `+` and no `=`, so xtext encoding does not change it (RFC 3461 §4).
const ENVID_PREFIX: &str = "mo1-";
/// Size of the payload: email, handoff, attempt.
const PAYLOAD_BYTES: usize = 16 + 2 + 4;
/// Size of the MAC. Payload and MAC together are exactly 56 base32 characters, so that each tag has one spelling. The
/// local part then has 63 octets; RFC 5321 §4.5.3.1.1 allows 64.
pub const MAC_BYTES: usize = 13;
/// Length of an encoded tag.
const ENCODED_CHARS: usize = (PAYLOAD_BYTES + MAC_BYTES) / 5 * 8;
/// RFC 4648 base32 in lower case, because some hops lower-case local parts.
const BASE32_ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Identifies one attempt of one handoff, with a MAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptTag {
    /// The email.
    pub email: EmailId,
    /// The handoff's number.
    pub handoff: u16,
    /// The attempt's number.
    pub attempt: u32,
    /// The first bytes of the MAC over [`AttemptTag::mac_payload`].
    pub mac: [u8; MAC_BYTES],
}

impl AttemptTag {
    /// The bytes that the MAC covers.
    pub fn mac_payload(email: EmailId, handoff: u16, attempt: u32) -> [u8; PAYLOAD_BYTES] {
        let mut payload = [0; PAYLOAD_BYTES];
        payload[..16].copy_from_slice(email.0.as_bytes());
        payload[16..18].copy_from_slice(&handoff.to_be_bytes());
        payload[18..].copy_from_slice(&attempt.to_be_bytes());
        payload
    }

    /// A tag with the first bytes of an HMAC-SHA-256.
    pub fn new(email: EmailId, handoff: u16, attempt: u32, hmac: &[u8; 32]) -> Self {
        let mut mac = [0; MAC_BYTES];
        mac.copy_from_slice(&hmac[..MAC_BYTES]);
        Self { email, handoff, attempt, mac }
    }

    /// The address that receives the bounces of this attempt.
    pub fn return_path(&self, domain: &str) -> String {
        format!("{RETURN_PATH_PREFIX}{}@{domain}", self.encode())
    }

    /// The ENVID of this attempt. It needs no encoding in `MAIL FROM`.
    pub fn envelope_id(&self) -> String {
        format!("{ENVID_PREFIX}{}", self.encode())
    }

    /// Parses a return path, with any domain and in any case. The caller must verify the MAC.
    pub fn from_return_path(address: &str) -> Option<Self> {
        let (local, _domain) = address.rsplit_once('@')?;
        Self::parse_prefixed(RETURN_PATH_PREFIX, local)
    }

    /// Parses an ENVID as a bounce returns it (`Original-Envelope-Id`).
    pub fn from_envelope_id(text: &str) -> Option<Self> {
        Self::parse_prefixed(ENVID_PREFIX, text.trim())
    }

    fn parse_prefixed(prefix: &str, text: &str) -> Option<Self> {
        let (head, encoded) = text.split_at_checked(prefix.len())?;
        if head.eq_ignore_ascii_case(prefix) { Self::decode(encoded) } else { None }
    }

    fn encode(&self) -> String {
        let mut bytes = [0; PAYLOAD_BYTES + MAC_BYTES];
        bytes[..PAYLOAD_BYTES].copy_from_slice(&Self::mac_payload(self.email, self.handoff, self.attempt));
        bytes[PAYLOAD_BYTES..].copy_from_slice(&self.mac);
        let to_bits = |chunk: &[u8]| chunk.iter().fold(0_u64, |bits, &b| bits << 8 | u64::from(b));
        let letter = |bits: u64, place: u32| char::from(BASE32_ALPHABET[(bits >> (5 * place) & 31) as usize]);
        bytes.chunks(5).map(to_bits).flat_map(|bits| (0..8).rev().map(move |place| letter(bits, place))).collect()
    }

    fn decode(encoded: &str) -> Option<Self> {
        if encoded.len() != ENCODED_CHARS {
            return None;
        }
        let value = |letter: u8| BASE32_ALPHABET.iter().position(|&known| known == letter.to_ascii_lowercase());
        let mut bytes = [0; PAYLOAD_BYTES + MAC_BYTES];
        for (chunk, chars) in bytes.chunks_mut(5).zip(encoded.as_bytes().chunks(8)) {
            let bits = chars.iter().try_fold(0_u64, |bits, &letter| Some(bits << 5 | value(letter)? as u64))?;
            chunk.copy_from_slice(&bits.to_be_bytes()[3..]);
        }
        let (email, rest) = bytes.split_first_chunk::<16>()?;
        let (handoff, rest) = rest.split_first_chunk::<2>()?;
        let (attempt, mac) = rest.split_first_chunk::<4>()?;
        Some(Self {
            email: EmailId(uuid::Uuid::from_bytes(*email)),
            handoff: u16::from_be_bytes(*handoff),
            attempt: u32::from_be_bytes(*attempt),
            mac: mac.try_into().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mailonce_core::{address::Address, limits};
    use proptest::prelude::*;

    fn tag() -> AttemptTag {
        let email: EmailId = "0193a1b2-c3d4-7e5f-8a6b-0c1d2e3f4a5b".parse().unwrap();
        AttemptTag::new(email, 3, 7, &[0xa5; 32])
    }

    #[test]
    fn the_encoding_never_changes() {
        // A bounce may arrive weeks after an upgrade, so the format must stay stable forever.
        let text = "agj2dmwd2r7f7ctlbqos4p2klmaagaaaaad2ljnfuws2ljnfuws2ljnf";
        assert_eq!(tag().return_path("m.example"), format!("bounce+{text}@m.example"));
        assert_eq!(tag().envelope_id(), format!("mo1-{text}"));
    }

    #[test]
    fn invalid_tags_are_rejected() {
        let path = tag().return_path("m.example");
        for text in ["", "@", "bounce+@x", "bounce+ü@x", "user@m.example", &path[..62], &path.replace('+', "-")] {
            assert_eq!(AttemptTag::from_return_path(text), None, "{text}");
        }
        assert_eq!(AttemptTag::from_return_path(&path.replace('@', "a@")), None);
        assert_eq!(AttemptTag::from_return_path(&path.replacen("bounce+a", "bounce+1", 1)), None);
        assert_eq!(AttemptTag::from_envelope_id(&path), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn tags_survive_a_round_trip_in_any_case(email: u128, handoff: u16, attempt: u32, hmac: [u8; 32]) {
            let tag = AttemptTag::new(EmailId(uuid::Uuid::from_u128(email)), handoff, attempt, &hmac);
            let path = tag.return_path("mail.example.com");
            let (local, _) = path.split_once('@').unwrap();
            prop_assert!(local.len() <= limits::LOCAL_PART_OCTETS);
            prop_assert!(Address::parse(&path).is_ok());
            prop_assert_eq!(AttemptTag::from_return_path(&path), Some(tag));
            prop_assert_eq!(AttemptTag::from_return_path(&path.to_uppercase()), Some(tag));
            let envelope = tag.envelope_id();
            prop_assert!(envelope.len() <= 100 && envelope.bytes().all(|b| b.is_ascii_graphic() && b != b'+' && b != b'='));
            prop_assert_eq!(AttemptTag::from_envelope_id(&envelope), Some(tag));
        }
    }
}

//! A minimal DER encoder for keys: integers, sequences, PKCS#8 and public keys.

/// `SEQUENCE { OID rsaEncryption, NULL }`.
const RSA_ALGORITHM_ID: [u8; 15] =
    [0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];
/// The fixed prefix of PKCS#8 with an Ed25519 seed (RFC 8410 §7).
const ED25519_PKCS8_PREFIX: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// An unsigned integer of big-endian bytes.
pub(super) fn integer(bytes: &[u8]) -> Vec<u8> {
    let first = bytes.iter().position(|&b| b != 0).unwrap_or(bytes.len());
    let digits = &bytes[first..];
    // A leading zero keeps the number positive.
    let sign: &[u8] = if digits.first().is_none_or(|&b| b >= 0x80) { &[0] } else { &[] };
    tagged(0x02, &[sign, digits])
}

/// A sequence of encoded values.
pub(super) fn sequence(values: &[&[u8]]) -> Vec<u8> {
    tagged(0x30, values)
}

/// PKCS#8 around an `RSAPrivateKey`.
pub(super) fn rsa_pkcs8(key: &[u8]) -> Vec<u8> {
    sequence(&[&integer(&[0]), &RSA_ALGORITHM_ID, &tagged(0x04, &[key])])
}

/// PKCS#8 around an Ed25519 seed.
pub(super) fn ed25519_pkcs8(seed: &[u8; 32]) -> Vec<u8> {
    [&ED25519_PKCS8_PREFIX[..], seed].concat()
}

/// `SubjectPublicKeyInfo` around an `RSAPublicKey`.
pub(super) fn rsa_public(key: &[u8]) -> Vec<u8> {
    sequence(&[&RSA_ALGORITHM_ID, &tagged(0x03, &[&[0], key])])
}

fn tagged(tag: u8, values: &[&[u8]]) -> Vec<u8> {
    let len: usize = values.iter().map(|value| value.len()).sum();
    let mut out = vec![tag];
    let digits = len.to_be_bytes();
    let digits = &digits[digits.iter().position(|&b| b != 0).unwrap_or(digits.len() - 1)..];
    if len >= 0x80 {
        out.push(0x80 | digits.len() as u8);
    }
    out.extend_from_slice(digits);
    values.iter().for_each(|value| out.extend_from_slice(value));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_minimal_and_never_negative() {
        assert_eq!(integer(&[0]), [2, 1, 0]);
        assert_eq!(integer(&[0, 0, 0x7f]), [2, 1, 0x7f]);
        assert_eq!(integer(&[0x80]), [2, 2, 0, 0x80]);
        assert_eq!(integer(&[1, 0, 1]), [2, 3, 1, 0, 1]);
    }

    #[test]
    fn long_lengths_take_more_bytes() {
        assert_eq!(tagged(4, &[&[0; 0x7f]])[..2], [4, 0x7f]);
        assert_eq!(tagged(4, &[&[0; 0x80]])[..3], [4, 0x81, 0x80]);
        assert_eq!(tagged(4, &[&[0; 0x123]])[..4], [4, 0x82, 0x01, 0x23]);
    }
}

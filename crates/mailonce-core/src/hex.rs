//! Hashes as people see them: 64 hexadecimal digits.

/// A hash as people see it: 64 hexadecimal digits.
pub fn format_hash(hash: &[u8; 32]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or_default();
    hash.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Parses 64 hexadecimal digits. `None` for anything else.
pub fn parse_hash(text: &str) -> Option<[u8; 32]> {
    let digits: Option<Vec<u8>> = text.chars().map(|digit| Some(digit.to_digit(16)? as u8)).collect();
    let digits = digits.filter(|digits| digits.len() == 64)?;
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair.iter().fold(0, |value, digit| value << 4 | digit);
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_written_and_parsed() {
        let hash: [u8; 32] = std::array::from_fn(|at| (at * 37) as u8);
        assert_eq!(parse_hash(&format_hash(&hash)), Some(hash));
        assert_eq!(parse_hash(&format_hash(&hash).to_uppercase()), Some(hash));
        for bad in ["", "00", &"g".repeat(64), &"0".repeat(63), &"0".repeat(66)] {
            assert_eq!(parse_hash(bad), None, "{bad}");
        }
    }
}

//! Upper-case hex digits of a byte.

const DIGITS: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];

/// The first digit.
pub(super) fn high(b: u8) -> char {
    DIGITS[usize::from(b >> 4)]
}

/// The second digit.
pub(super) fn low(b: u8) -> char {
    DIGITS[usize::from(b & 15)]
}

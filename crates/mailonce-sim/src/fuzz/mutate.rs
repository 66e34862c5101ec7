//! Mutates a seed: the same number always gives the same mutation.

use crate::harness::rng::SeededRng;

/// Fragments that are difficult for parsers.
const TOKENS: &[&[u8]] = &[
    b"\0",
    b"\r\n",
    b"\r\n\r\n",
    b"\n.\n",
    b"\r\n.\r\n",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\xf0\x9f\x92\xa9",
    "\u{200b}\u{202e}\u{2066}".as_bytes(),
    b"=?utf-8?b?w7w=?=",
    b"=?utf-8?q?=?=",
    b"=?x?q?",
    b"Content-Type: multipart/mixed; boundary=\"\"\r\n",
    b"Content-Type: message/rfc822\r\n\r\n",
    b"Content-Transfer-Encoding: base64\r\n",
    b"--",
    b"{\"",
    b"[[[[[[[[[[[[[[[[",
    b"\"\":",
    b"null",
    b"-0",
    b"1e999",
    b"18446744073709551616",
    b"-9223372036854775808",
    b"\\ud800",
    b"\\u0000",
    b"<!--",
    b"<a href='//",
    b"<style>",
    b"</",
    b"&#x10ffff;",
    b"&#0;",
    b"javascript:",
    b"https://user@[::1]:0/%00",
    b"xn--",
    b"@",
    b"\"@\"",
    b"<>",
    b"250-",
    b"250 ok\r\n",
    b"HTTP/1.1 200 OK\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Content-Length: 99999999999\r\n",
    b"%s%n",
    b"../../",
];

/// Maximum size of an input.
pub const MAX_INPUT_BYTES: usize = 64 * 1024;

/// Mutates a seed a few times.
pub fn mutate(rng: &mut SeededRng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = pick(rng, seeds).cloned().unwrap_or_default();
    for _ in 0..=rng.below(8) {
        mutate_once(rng, seeds, &mut bytes);
        bytes.truncate(MAX_INPUT_BYTES);
    }
    bytes
}

fn mutate_once(rng: &mut SeededRng, seeds: &[Vec<u8>], bytes: &mut Vec<u8>) {
    let length = bytes.len();
    let at = rng.below(length as u64 + 1) as usize;
    let end = (at + rng.below(1 + length as u64 / 2).min(4_000) as usize).min(length);
    match rng.below(11) {
        0 | 1 if at < length => bytes[at] ^= 1 << rng.below(8),
        2 if at < length => bytes[at] = rng.next() as u8,
        3 | 4 => insert_bytes(bytes, at, pick(rng, TOKENS).copied().unwrap_or_default()),
        5 => drop(bytes.drain(at..end)),
        6 => bytes.truncate(at),
        7 => {
            let piece = bytes[at..end].repeat(1 + rng.below(40) as usize);
            insert_bytes(bytes, at, &piece[..piece.len().min(MAX_INPUT_BYTES)]);
        }
        8 => {
            let byte = rng.next() as u8;
            insert_bytes(bytes, at, &vec![byte; rng.below(3_000) as usize]);
        }
        9 => {
            let other = pick(rng, seeds).cloned().unwrap_or_default();
            let from = rng.below(other.len() as u64 + 1) as usize;
            insert_bytes(bytes, at, &other[from..]);
        }
        _ => replace_number(rng, bytes, at),
    }
}

/// Replaces a number by another.
fn replace_number(rng: &mut SeededRng, bytes: &mut Vec<u8>, from: usize) {
    let Some(start) = bytes.iter().skip(from).position(u8::is_ascii_digit).map(|at| at + from) else { return };
    let digits = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let numbers =
        ["0", "-1", "255", "65536", "2147483648", "4294967296", "9223372036854775807", "99999999999999999999"];
    let other = pick(rng, &numbers).copied().unwrap_or_default();
    drop(bytes.splice(start..start + digits, other.bytes()));
}

fn insert_bytes(bytes: &mut Vec<u8>, at: usize, piece: &[u8]) {
    drop(bytes.splice(at..at, piece.iter().copied()));
}

fn pick<'a, T>(rng: &mut SeededRng, from: &'a [T]) -> Option<&'a T> {
    from.get(rng.below(from.len() as u64) as usize)
}

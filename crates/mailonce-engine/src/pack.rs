//! Bodies as they are kept: JSON, and LZ4 where it is worth it. Packed in the request's own task, so that the writer
//! only copies.

use mailonce_core::content::Content;

/// The first byte says how the rest is packed.
const LZ4_JSON: u8 = 1;
const PLAIN_JSON: u8 = 2;

/// Below this many bytes LZ4 gains a fifth of little and costs more than all else that is done to a body.
const WORTH_IT: usize = 1_500;

/// Packs a mail's content.
pub(crate) fn pack(content: &Content) -> Vec<u8> {
    // Content holds nothing that JSON cannot say: strings, numbers and maps with string keys.
    let mut packed = Vec::with_capacity(about(content));
    packed.push(PLAIN_JSON);
    if serde_json::to_writer(&mut packed, content).is_err() || packed.len() <= WORTH_IT {
        return packed;
    }
    let mut smaller = vec![LZ4_JSON];
    smaller.extend_from_slice(&lz4_flex::block::compress_prepend_size(packed.get(1..).unwrap_or_default()));
    smaller
}

/// How many bytes of JSON a mail is, about: enough for most, so that nothing grows on the way.
fn about(content: &Content) -> usize {
    let words = [&content.text, &content.html].into_iter().flatten().map(String::len).sum::<usize>();
    let files = content.attachments.iter().map(|file| file.bytes.len() / 3 * 4).sum::<usize>();
    words + words / 16 + files + content.subject.len() + 64 * content.to.len() + 256
}

/// Unpacks a mail's content. `None` when it is damaged or of a form that this binary does not know.
pub(crate) fn unpack(packed: &[u8]) -> Option<Content> {
    match packed.split_first()? {
        (&PLAIN_JSON, json) => serde_json::from_slice(json).ok(),
        (&LZ4_JSON, rest) => {
            let json = lz4_flex::block::decompress_size_prepended(rest).ok()?;
            serde_json::from_slice(&json).ok()
        }
        _ => None,
    }
}

/// Bytes as they came.
const PLAIN: u8 = 2;
/// Bytes that LZ4 made smaller.
const LZ4: u8 = 3;

/// Packs a mail that came in.
pub(crate) fn pack_raw(raw: &[u8]) -> Vec<u8> {
    let small = lz4_flex::block::compress_prepend_size(raw);
    let (how, bytes) = if small.len() < raw.len() { (LZ4, small.as_slice()) } else { (PLAIN, raw) };
    let mut packed = Vec::with_capacity(bytes.len() + 1);
    packed.push(how);
    packed.extend_from_slice(bytes);
    packed
}

/// Unpacks a mail that came in. `None` when it is damaged or of a form that this binary does not know.
pub(crate) fn unpack_raw(packed: &[u8]) -> Option<Vec<u8>> {
    match packed.split_first()? {
        (&PLAIN, rest) => Some(rest.to_vec()),
        (&LZ4, rest) => lz4_flex::block::decompress_size_prepended(rest).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_mail_that_came_in_is_unpacked_as_it_was() {
        for raw in [&b"Subject: hello\r\n\r\n".repeat(50)[..], b"", &[0, 255, 13, 7]] {
            assert_eq!(unpack_raw(&pack_raw(raw)).as_deref(), Some(raw));
        }
        assert_eq!(unpack_raw(&[9, 1]), None);
    }

    use super::*;
    use mailonce_core::content::{RawAttachment, RawContent};

    #[test]
    fn what_is_packed_is_unpacked() {
        for (hellos, form) in [(10, PLAIN_JSON), (1_000, LZ4_JSON)] {
            let content = Content::check(RawContent {
                from: "Agent <agent@example.com>".into(),
                to: vec!["Ünal <a@example.com>".into()],
                subject: "Grüße".into(),
                text: Some("hello ".repeat(hellos)),
                attachments: vec![RawAttachment { content: "AAEC/w==".into(), ..RawAttachment::default() }],
                ..RawContent::default()
            })
            .unwrap();
            let packed = pack(&content);
            assert_eq!(packed.first(), Some(&form));
            assert_eq!(unpack(&packed), Some(content));
            assert!(packed.len() < 500);
            assert_eq!(unpack(&packed[..20]), None);
            assert_eq!(unpack(&packed[..packed.len() - 1]), None);
        }
        assert_eq!(unpack(&[]), None);
        assert_eq!(unpack(&[9, b'{', b'}']), None);
    }
}

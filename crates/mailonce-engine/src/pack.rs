//! Bodies as they are kept: JSON, then LZ4. Packed in the request's own task, so that the writer only copies.

use mailonce_core::content::Content;

/// The first byte says how the rest is packed.
const LZ4_JSON: u8 = 1;

/// Packs a mail's content.
pub(crate) fn pack(content: &Content) -> Vec<u8> {
    // Content holds nothing that JSON cannot say: strings, numbers and maps with string keys.
    let json = serde_json::to_vec(content).unwrap_or_default();
    let mut packed = vec![LZ4_JSON];
    packed.extend_from_slice(&lz4_flex::block::compress_prepend_size(&json));
    packed
}

/// Unpacks a mail's content. `None` when it is damaged or of a form that this binary does not know.
pub(crate) fn unpack(packed: &[u8]) -> Option<Content> {
    match packed.split_first()? {
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
        let content = Content::check(RawContent {
            from: "Agent <agent@example.com>".into(),
            to: vec!["Ünal <a@example.com>".into()],
            subject: "Grüße".into(),
            text: Some("hello ".repeat(100)),
            attachments: vec![RawAttachment { content: "AAEC/w==".into(), ..RawAttachment::default() }],
            ..RawContent::default()
        })
        .unwrap();
        let packed = pack(&content);
        assert_eq!(unpack(&packed), Some(content));
        assert!(packed.len() < 500);
        assert_eq!(unpack(&packed[..20]), None);
        assert_eq!(unpack(&[]), None);
    }
}

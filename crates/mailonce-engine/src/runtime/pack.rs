//! The stored form of bodies: JSON, compressed with LZ4 if that pays off, and encrypted if configured. The request's
//! own task packs them, so that the store's writer only copies bytes.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chacha20poly1305::{
    KeyInit as _, XChaCha20Poly1305,
    aead::{Aead as _, Payload},
};
use mailonce_core::{key::InstallSecret, outbound::content::EmailContent, ports::Entropy};
use std::{borrow::Cow, sync::Arc};

/// The prefix of sealed bytes. No packed body and no frozen email begins with a NUL.
const SEALED_PREFIX: [u8; 4] = *b"\0mo1";
/// The prefix of sealed text. JSON, codes and links never begin like this.
const SEALED_TEXT_PREFIX: &str = "sealed:mo1:";
const NONCE_BYTES: usize = 24;

/// What was sealed. It is authenticated, so that bytes sealed for one purpose can't be opened for another.
#[derive(Clone, Copy)]
enum SealPurpose {
    /// The content of an email.
    Content,
    /// A received mail.
    Received,
    /// The bytes that every attempt at a transport sends.
    Frozen,
    /// Text of an email in a record, such as a draft.
    Text,
}

impl SealPurpose {
    fn associated_data(self) -> &'static [u8] {
        match self {
            Self::Content => b"email content",
            Self::Received => b"received mail",
            Self::Frozen => b"frozen mail",
            Self::Text => b"text",
        }
    }
}

/// Packs and unpacks bodies. It opens sealed bodies at any time, and seals new ones only if `is_sealing`.
///
/// The sealing key is derived from the install secret. Sealed bytes are bound to neither a team nor a row, because one
/// received mail may belong to several.
pub(crate) struct Packer {
    cipher: XChaCha20Poly1305,
    entropy: Arc<dyn Entropy>,
    is_sealing: bool,
}

impl Packer {
    pub(crate) fn new(secret: &InstallSecret, entropy: Arc<dyn Entropy>, is_sealing: bool) -> Self {
        Self { cipher: XChaCha20Poly1305::new(&secret.mac("bodies", &[]).into()), entropy, is_sealing }
    }

    /// Packs the content of an email.
    pub(crate) fn pack(&self, content: &EmailContent) -> Vec<u8> {
        self.seal(SealPurpose::Content, pack(content))
    }

    /// Unpacks the content of an email. `None` when it is damaged or in an unknown format.
    pub(crate) fn unpack(&self, packed: &[u8]) -> Option<EmailContent> {
        unpack(&self.open(SealPurpose::Content, packed)?)
    }

    /// Packs a received mail.
    pub(crate) fn pack_raw(&self, raw: &[u8]) -> Vec<u8> {
        self.seal(SealPurpose::Received, pack_raw(raw))
    }

    /// Unpacks a received mail. `None` when it is damaged or in an unknown format.
    pub(crate) fn unpack_raw(&self, packed: &[u8]) -> Option<Vec<u8>> {
        unpack_raw(&self.open(SealPurpose::Received, packed)?)
    }

    /// Frozen bytes as they are stored with the first marker: encrypted if the installation seals, else as they are.
    pub(crate) fn seal_frozen(&self, bytes: &Arc<[u8]>) -> Arc<[u8]> {
        if self.is_sealing { self.seal(SealPurpose::Frozen, bytes.to_vec()).into() } else { Arc::clone(bytes) }
    }

    /// Frozen bytes as they were before [`Self::seal_frozen`]. `None` when they are damaged.
    pub(crate) fn open_frozen<'a>(&self, stored: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        self.open(SealPurpose::Frozen, stored)
    }

    /// Packs text that has a row of its own: a draft, a code or a link.
    pub(crate) fn pack_text(&self, text: String) -> String {
        if !self.is_sealing {
            return text;
        }
        format!("{SEALED_TEXT_PREFIX}{}", STANDARD.encode(self.seal(SealPurpose::Text, text.into_bytes())))
    }

    /// Unpacks such text. `None` when it is damaged.
    pub(crate) fn unpack_text<'a>(&self, stored: &'a str) -> Option<Cow<'a, str>> {
        let Some(sealed) = stored.strip_prefix(SEALED_TEXT_PREFIX) else { return Some(Cow::Borrowed(stored)) };
        let plain = self.open(SealPurpose::Text, &STANDARD.decode(sealed).ok()?)?.into_owned();
        String::from_utf8(plain).ok().map(Cow::Owned)
    }

    /// The preview of a received text as it may be stored beside the mail. Empty when bodies are sealed.
    pub(crate) fn storable_preview(&self, preview: String) -> String {
        if self.is_sealing { String::new() } else { preview }
    }

    /// Whether new bodies are sealed.
    pub(crate) fn is_sealing(&self) -> bool {
        self.is_sealing
    }

    /// Whether stored bytes are sealed.
    pub(crate) fn is_sealed(&self, stored: &[u8]) -> bool {
        stored.starts_with(&SEALED_PREFIX)
    }

    /// Seals bytes if sealing is on. If encryption failed, the bytes would be lost rather than stored in the clear; it
    /// can't fail for bodies within our limits.
    fn seal(&self, purpose: SealPurpose, plain: Vec<u8>) -> Vec<u8> {
        if !self.is_sealing {
            return plain;
        }
        let mut nonce = [0; NONCE_BYTES];
        self.entropy.fill(&mut nonce);
        let payload = Payload { msg: &plain, aad: purpose.associated_data() };
        let sealed = self.cipher.encrypt(&nonce.into(), payload).unwrap_or_default();
        [SEALED_PREFIX.as_slice(), &nonce, &sealed].concat()
    }

    /// Opens sealed bytes. Unsealed bytes are returned as they are.
    fn open<'a>(&self, purpose: SealPurpose, stored: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let Some(sealed) = stored.strip_prefix(&SEALED_PREFIX) else { return Some(Cow::Borrowed(stored)) };
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_BYTES>()?;
        let payload = Payload { msg: sealed, aad: purpose.associated_data() };
        self.cipher.decrypt(&(*nonce).into(), payload).ok().map(Cow::Owned)
    }
}

/// Whether a packed body is sealed.
pub(crate) fn is_sealed(packed: &[u8]) -> bool {
    packed.starts_with(&SEALED_PREFIX)
}

/// The first byte of a packed body is its format.
const LZ4_JSON: u8 = 1;
const PLAIN_JSON: u8 = 2;

/// Up to this size LZ4 saves little and takes longer than all other work on a body.
const COMPRESS_ABOVE_BYTES: usize = 1_500;

/// Packs the content of an email without sealing it.
pub(crate) fn pack(content: &EmailContent) -> Vec<u8> {
    // Serialization can't fail: content has only strings, numbers and maps with string keys.
    let mut packed = Vec::with_capacity(estimated_size(content));
    packed.push(PLAIN_JSON);
    if serde_json::to_writer(&mut packed, content).is_err() || packed.len() <= COMPRESS_ABOVE_BYTES {
        return packed;
    }
    let mut smaller = vec![LZ4_JSON];
    smaller.extend_from_slice(&lz4_flex::block::compress_prepend_size(packed.get(1..).unwrap_or_default()));
    smaller
}

/// An estimate of the JSON size. High enough for most emails, so that the buffer doesn't grow.
fn estimated_size(content: &EmailContent) -> usize {
    let text = [&content.text, &content.html].into_iter().flatten().map(String::len).sum::<usize>();
    let files = content.attachments.iter().map(|file| file.bytes.len() / 3 * 4).sum::<usize>();
    text + text / 16 + files + content.subject.len() + 64 * content.to.len() + 256
}

/// Unpacks content that is not sealed.
pub(crate) fn unpack(packed: &[u8]) -> Option<EmailContent> {
    match packed.split_first()? {
        (&PLAIN_JSON, json) => serde_json::from_slice(json).ok(),
        (&LZ4_JSON, rest) => {
            let json = lz4_flex::block::decompress_size_prepended(rest).ok()?;
            serde_json::from_slice(&json).ok()
        }
        _ => None,
    }
}

/// Uncompressed bytes.
const PLAIN: u8 = 2;
/// Bytes compressed with LZ4.
const LZ4: u8 = 3;

fn pack_raw(raw: &[u8]) -> Vec<u8> {
    let compressed = lz4_flex::block::compress_prepend_size(raw);
    let (format, bytes) = if compressed.len() < raw.len() { (LZ4, compressed.as_slice()) } else { (PLAIN, raw) };
    let mut packed = Vec::with_capacity(bytes.len() + 1);
    packed.push(format);
    packed.extend_from_slice(bytes);
    packed
}

fn unpack_raw(packed: &[u8]) -> Option<Vec<u8>> {
    match packed.split_first()? {
        (&PLAIN, rest) => Some(rest.to_vec()),
        (&LZ4, rest) => lz4_flex::block::decompress_size_prepended(rest).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    struct FixedEntropy;

    impl Entropy for FixedEntropy {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(5);
        }
    }

    fn packer(secret: u8, seals: bool) -> Packer {
        Packer::new(&InstallSecret([secret; 32]), Arc::new(FixedEntropy), seals)
    }

    fn holds(bytes: &[u8], part: &[u8]) -> bool {
        bytes.windows(part.len()).any(|window| window == part)
    }

    #[test]
    fn what_is_sealed_opens_with_its_own_secret_and_for_its_own_use() {
        let (sealing, open) = (packer(1, true), packer(1, false));
        let raw = b"Subject: hello\r\n\r\nmy words";
        let sealed = sealing.pack_raw(raw);
        assert!(is_sealed(&sealed) && !holds(&sealed, b"my words"));
        for reader in [&sealing, &open] {
            assert_eq!(reader.unpack_raw(&sealed).as_deref(), Some(raw.as_slice()), "also after it was turned off");
            assert_eq!(reader.unpack_raw(&open.pack_raw(raw)).as_deref(), Some(raw.as_slice()), "and from before");
        }
        assert_eq!(packer(2, true).unpack_raw(&sealed), None);
        assert_eq!(open.open_frozen(&sealed), None, "a received mail is no frozen one");
        assert_eq!(open.unpack_raw(&sealed[..20]), None);
    }

    #[test]
    fn frozen_bytes_and_text_are_sealed_and_opened() {
        let (sealing, open) = (packer(1, true), packer(1, false));
        let bytes: Arc<[u8]> = b"From: a@example.com\r\n\r\nmy words".as_slice().into();
        let frozen = sealing.seal_frozen(&bytes);
        assert!(!holds(&frozen, b"my words"));
        assert_eq!(open.open_frozen(&frozen).as_deref(), Some(&*bytes));
        assert!(Arc::ptr_eq(&open.seal_frozen(&bytes), &bytes));
        let text = sealing.pack_text("my words".into());
        assert!(!text.contains("my words"));
        assert_eq!(open.unpack_text(&text).as_deref(), Some("my words"));
        assert_eq!(sealing.unpack_text("plain").as_deref(), Some("plain"));
        assert_eq!(packer(2, false).unpack_text(&text), None);
        assert_eq!(
            (sealing.storable_preview("my words".into()), open.storable_preview("my".into())),
            (String::new(), "my".into())
        );
    }

    #[test]
    fn a_mail_that_came_in_is_unpacked_as_it_was() {
        for raw in [&b"Subject: hello\r\n\r\n".repeat(50)[..], b"", &[0, 255, 13, 7]] {
            assert_eq!(unpack_raw(&pack_raw(raw)).as_deref(), Some(raw));
        }
        assert_eq!(unpack_raw(&[9, 1]), None);
    }

    use super::*;
    use mailonce_core::outbound::content::{RawAttachment, RawContent};

    #[test]
    fn what_is_packed_is_unpacked() {
        for (hellos, form) in [(10, PLAIN_JSON), (1_000, LZ4_JSON)] {
            let content = EmailContent::validate(RawContent {
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

//! Generators of compose inputs: some hand-written, any number random.

use mailonce_core::{
    address::NamedAddress,
    id::EmailId,
    outbound::content::{Attachment, EmailContent},
    time::Time,
};
use mailonce_mail::compose::{AutoSubmitted, ComposeError, ComposeInput, compose};
use proptest::{collection::vec, option, prelude::*};
use std::collections::BTreeMap;

/// A compose input that owns its parts.
#[derive(Clone, Debug)]
pub(crate) struct OwnedComposeInput {
    pub(crate) content: EmailContent,
    pub(crate) message_id: String,
    pub(crate) date: Time,
    pub(crate) id: EmailId,
    pub(crate) in_reply_to: Vec<String>,
    pub(crate) references: Vec<String>,
    pub(crate) auto_submitted: bool,
}

impl OwnedComposeInput {
    pub(crate) fn compose(&self) -> Result<Vec<u8>, ComposeError> {
        compose(&ComposeInput {
            content: &self.content,
            message_id: &self.message_id,
            date: self.date,
            id: self.id,
            in_reply_to: &self.in_reply_to,
            references: &self.references,
            auto_submitted: self.auto_submitted.then_some(AutoSubmitted::Generated),
            loop_marker: None,
        })
    }

    /// The expected header names in order, without the `Content-*` headers.
    pub(crate) fn header_names(&self) -> Vec<&str> {
        let content = &self.content;
        let present = [
            ("From", true),
            ("To", !content.to.is_empty()),
            ("Cc", !content.cc.is_empty()),
            ("Reply-To", !content.reply_to.is_empty()),
            ("Subject", true),
            ("Date", true),
            ("Message-ID", true),
            ("In-Reply-To", !self.in_reply_to.is_empty()),
            ("References", !self.references.is_empty()),
            ("Auto-Submitted", self.auto_submitted),
            ("MIME-Version", true),
            ("X-Mailonce-Id", true),
        ];
        let ours = present.into_iter().filter(|(_, present)| *present).map(|(name, _)| name);
        ours.chain(content.headers.iter().map(|(name, _)| name.as_str())).collect()
    }
}

/// Text as a caller may send it past the core's checks: anything but control characters.
fn line(most: usize) -> impl Strategy<Value = String> {
    let visible = any::<char>().prop_filter("control", |c| !c.is_control());
    prop_oneof![
        vec(visible, 0..most.min(60)).prop_map(String::from_iter),
        "[ -~]{0,120}",
        "[a-z =?\"\\\\,;:<>()@._]{0,80}",
        "[äöüé 日本語🎉]{0,80}",
        "[a-z]{1,12}( [a-z]{1,12}){0,20}",
        "x{850,950}",
    ]
    .prop_map(move |text| text.chars().take(most).collect())
}

/// Bodies with all kinds of line ends and lines that hops tend to change.
fn body() -> impl Strategy<Value = String> {
    let lines = prop_oneof![
        line(2_000),
        Just("From here".to_owned()),
        Just(".".to_owned()),
        Just("--=_00".to_owned()),
        Just("-- ".to_owned()),
        Just("\u{7}\u{8}\t".to_owned()),
        (900..3_000_usize).prop_map(|octets| "y".repeat(octets)),
    ];
    (vec(lines, 1..6), prop_oneof![Just("\n"), Just("\r\n"), Just("\r"), Just("\n\n")])
        .prop_map(|(lines, end)| lines.join(end))
}

/// Text, HTML or both: the core rejects a mail without a body.
fn bodies() -> impl Strategy<Value = (Option<String>, Option<String>)> {
    prop_oneof![
        body().prop_map(|text| (Some(text), None)),
        body().prop_map(|html| (None, Some(html))),
        (body(), body()).prop_map(|(text, html)| (Some(text), Some(html))),
    ]
}

fn mailbox() -> impl Strategy<Value = NamedAddress> {
    let local = prop_oneof![8 => "[a-zA-Z0-9!#$%&'*+/=^_`{|}~-]{1,20}(\\.[a-z0-9]{1,10})?", 1 => "[a-zé日ü]{1,10}"];
    let domain = "[a-z0-9]{1,20}(\\.[a-z0-9]{1,20}){0,2}\\.(com|test|xn--p1ai)";
    (option::of(line(256)), local, domain)
        .prop_map(|(name, local, domain)| NamedAddress { name, address: format!("{local}@{domain}") })
}

fn attachment() -> impl Strategy<Value = Attachment> {
    let kind = prop_oneof![
        Just("image/png".to_owned()),
        Just("text/csv; charset=utf-8".to_owned()),
        Just("message/rfc822".to_owned()),
        Just("multipart/mixed; boundary=x".to_owned()),
        line(255),
    ];
    (option::of(line(255)), option::of(kind), option::of("[a-z0-9@.ü ]{0,30}"), vec(any::<u8>(), 0..400)).prop_map(
        |(filename, content_type, content_id, bytes)| Attachment { filename, content_type, content_id, bytes },
    )
}

fn headers() -> impl Strategy<Value = Vec<(String, String)>> {
    // The core trims header values.
    vec(line(998).prop_map(|value| value.trim().to_owned()), 0..4).prop_map(|values| {
        let name = |i: usize| format!("X-Custom-{i}{}", "n".repeat(i * 20));
        values.into_iter().enumerate().map(|(i, value)| (name(i), value)).collect()
    })
}

fn content() -> impl Strategy<Value = EmailContent> {
    let people = (mailbox(), vec(mailbox(), 1..5), vec(mailbox(), 0..3), vec(mailbox(), 0..3));
    let words = (line(998), bodies(), headers(), vec(attachment(), 0..4));
    (people, words).prop_map(|((from, to, cc, reply_to), (subject, (text, html), headers, attachments))| EmailContent {
        from,
        to,
        cc,
        bcc: vec![NamedAddress { name: Some("Hidden".into()), address: "hidden-copy@bcc.invalid".into() }],
        reply_to,
        subject,
        text,
        html,
        headers,
        attachments,
        tags: BTreeMap::new(),
        metadata: BTreeMap::new(),
        scheduled_at: None,
        template: None,
    })
}

/// Inputs that the core accepts.
pub(crate) fn compose_inputs() -> impl Strategy<Value = OwnedComposeInput> {
    let ids = || vec("<[a-zA-Z0-9+/_-]{1,100}@[a-z0-9]{1,30}\\.com>", 0..5);
    let date = 0..4_102_444_800_000_i64;
    (content(), "<[a-zA-Z0-9]{1,60}@[a-z]{1,30}\\.com>", date, any::<u128>(), ids(), ids(), any::<bool>()).prop_map(
        |(content, message_id, date, id, in_reply_to, references, auto_submitted)| OwnedComposeInput {
            content,
            message_id,
            date: Time(date),
            id: id_of(id),
            in_reply_to,
            references,
            auto_submitted,
        },
    )
}

/// Any text, with line ends in harmful places.
fn hostile() -> impl Strategy<Value = String> {
    let evil = "\r\nBcc: evil@example.com\r\nX-Evil: 1\r\n\r\n";
    prop_oneof![any::<String>(), any::<String>().prop_map(move |text| format!("{text}{evil}")), line(100)]
}

/// Inputs that the core would reject.
pub(crate) fn hostile_compose_inputs() -> impl Strategy<Value = OwnedComposeInput> {
    (compose_inputs(), vec(hostile(), 9), 0..512_u32).prop_map(|(mut input, evil, which)| {
        let mut evil = evil.into_iter().enumerate().map(|(i, text)| (which >> i & 1 == 1).then_some(text));
        let mut spoil = |place: &mut String| {
            if let Some(text) = evil.next().flatten() {
                *place = text;
            }
        };
        let content = &mut input.content;
        spoil(&mut content.subject);
        spoil(content.from.name.get_or_insert_default());
        spoil(&mut content.to[0].address);
        spoil(&mut input.message_id);
        let file = Attachment { filename: None, content_type: None, content_id: None, bytes: Vec::new() };
        content.attachments.push(file);
        let file = &mut content.attachments[0];
        spoil(file.filename.get_or_insert_default());
        spoil(file.content_type.get_or_insert_default());
        spoil(file.content_id.get_or_insert_default());
        content.headers.push(("X-Last".into(), String::new()));
        let header = &mut content.headers[0];
        spoil(&mut header.0);
        spoil(&mut header.1);
        input
    })
}

pub(crate) fn id_of(bits: u128) -> EmailId {
    let text = format!("{bits:032x}");
    text.parse().unwrap()
}

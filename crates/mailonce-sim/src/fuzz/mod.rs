//! Hostile bytes for every reader of outside bytes.
//!
//! A [`Target`] takes bytes and says what does not hold. [`TARGETS`] is the one list of them. They are driven in two
//! ways: by [`drive`], which bends seeds on a number and needs nothing but the compiler (`mailonce-fuzz`,
//! `tests/fuzz`), and by libFuzzer, which follows coverage and needs a nightly compiler (`fuzz/`).
//!
//! | file | what it holds |
//! |---|---|
//! | [`words`] | readers of the core: keys, ids, cursors, spans, addresses, digests |
//! | [`mail`] | received mail, from bytes to the view of a model |
//! | [`hook`] | webhooks of providers, and the tags of return paths |
//! | [`wire`] | what next hops say, over a socket of this machine |
//! | [`api`] | bodies of our own API |
//! | [`mcp`] | messages of models' clients |
//! | [`dialect`] | calls of the dialects: paths, queries and bodies |
//! | [`mutate`] | how a seed is bent |
//! | [`drive`] | bending seeds until the time is up |
//! | [`seeds`] | what is bent |
//! | [`layout`] | the files of `fuzz/` |

pub mod api;
pub mod dialect;
pub mod drive;
pub mod hook;
pub mod layout;
pub mod mail;
pub mod mcp;
pub mod mutate;
pub mod seeds;
pub mod wire;
pub mod words;

use mailonce_mail::hook::Kind;

use crate::sink::http::Vendor;

/// What came of an input, or what does not hold.
pub type Check = Result<Came, String>;

/// What came of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// It was read as what the reader looks for. A seed that is not proves little when it is bent.
    Through,
    /// It was refused, or nothing was found in it.
    Short,
}

impl Came {
    fn through(is_through: bool) -> Self {
        if is_through { Self::Through } else { Self::Short }
    }
}

/// A reader of outside bytes, with what must hold of it.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, the same for libFuzzer.
    pub name: &'static str,
    /// Reads the bytes and says what does not hold.
    pub run: fn(&[u8]) -> Check,
    /// What is bent.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Whether it talks over a socket, which takes its time.
    pub slow: bool,
}

const fn quick(name: &'static str, run: fn(&[u8]) -> Check, seeds: fn() -> Vec<Vec<u8>>) -> Target {
    Target { name, run, seeds, slow: false }
}

const fn slow(name: &'static str, run: fn(&[u8]) -> Check, seeds: fn() -> Vec<Vec<u8>>) -> Target {
    Target { name, run, seeds, slow: true }
}

/// Every reader of outside bytes.
pub const TARGETS: &[Target] = &[
    quick("core_key", words::key, seeds::keys),
    quick("core_id", words::id, seeds::ids),
    quick("core_cursor", words::cursor, seeds::cursors),
    quick("core_span", words::span, seeds::spans),
    quick("core_schedule", words::schedule, seeds::spans),
    quick("core_address", words::address, seeds::addresses),
    quick("core_intent", words::intent, seeds::intents),
    quick("core_digest", words::digest, seeds::digests),
    quick("mail_parse", mail::parse, seeds::mails),
    quick("mail_html", mail::html, seeds::pages),
    quick("mail_link", mail::link, seeds::links),
    quick("mail_artifact", mail::artifact, seeds::mails),
    quick("mail_minimise", mail::minimise, seeds::mails),
    quick("mail_thread", mail::thread, seeds::mails),
    quick("mail_automatic", mail::automatic, seeds::mails),
    quick("mail_bounce", mail::bounce, seeds::mails),
    quick("mail_return_path", hook::return_path, seeds::return_paths),
    quick("hook_postmark", |bytes| hook::read(Kind::Postmark, bytes), seeds::hooks),
    quick("hook_mailgun", |bytes| hook::read(Kind::Mailgun, bytes), seeds::hooks),
    quick("hook_sendgrid", |bytes| hook::read(Kind::Sendgrid, bytes), seeds::hooks),
    quick("hook_ses", |bytes| hook::read(Kind::Ses, bytes), seeds::hooks),
    quick("hook_resend", |bytes| hook::read(Kind::Resend, bytes), seeds::hooks),
    quick("hook_usesend", |bytes| hook::read(Kind::Usesend, bytes), seeds::hooks),
    quick("hook_brevo", |bytes| hook::read(Kind::Brevo, bytes), seeds::hooks),
    slow("wire_smtp", wire::smtp, seeds::smtp),
    slow("wire_resend", |bytes| wire::http(Vendor::Resend, bytes), seeds::answers),
    slow("wire_postmark", |bytes| wire::http(Vendor::Postmark, bytes), seeds::answers),
    slow("wire_mailgun", |bytes| wire::http(Vendor::Mailgun, bytes), seeds::answers),
    slow("wire_sendgrid", |bytes| wire::http(Vendor::SendGrid, bytes), seeds::answers),
    slow("wire_ses", |bytes| wire::http(Vendor::Ses, bytes), seeds::answers),
    slow("wire_usesend", |bytes| wire::http(Vendor::UseSend, bytes), seeds::answers),
    slow("wire_brevo", |bytes| wire::http(Vendor::Brevo, bytes), seeds::answers),
    slow("wire_http", |bytes| wire::http(Vendor::Other, bytes), seeds::answers),
    quick("api_send", api::send, seeds::bodies),
    quick("mcp_message", mcp::message, seeds::messages),
    quick("api_dialect", dialect::call, seeds::calls),
];

/// The target of a name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Runs a target by its name.
pub fn run(name: &str, bytes: &[u8]) -> Check {
    target(name).map_or_else(|| Err(format!("there is no target {name}")), |target| (target.run)(bytes))
}

/// Says what does not hold.
fn holds(condition: bool, what: &str) -> Result<(), String> {
    if condition { Ok(()) } else { Err(what.to_owned()) }
}

/// The bytes as text, when they are some.
fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

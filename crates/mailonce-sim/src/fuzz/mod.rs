//! Fuzzing of every parser of outside bytes.
//!
//! A [`FuzzTarget`] parses bytes and reports broken rules. [`TARGETS`] lists all of them. Two drivers run them:
//! [`driver`] mutates seeds and needs nothing but the compiler (`mailonce-fuzz`, `tests/fuzz`); libFuzzer follows
//! coverage and needs a nightly compiler (`fuzz/`).
//!
//! | file | what it holds |
//! |---|---|
//! | [`core_values`] | parsers of the core: keys, ids, cursors, durations, addresses, digests |
//! | [`mail`] | received mail, from bytes to the view for a model |
//! | [`hook`] | webhooks of providers, and the tags of return paths |
//! | [`next_hop_replies`] | replies of next hops, over a local socket |
//! | [`api`] | request bodies of our own API |
//! | [`mcp`] | messages of MCP clients |
//! | [`dialect`] | calls of the dialects: paths, queries and bodies |
//! | [`mutate`] | the mutations |
//! | [`driver`] | runs mutated seeds until the time is up |
//! | [`seeds`] | the seeds |
//! | [`libfuzzer_files`] | the files of `fuzz/` |

pub mod api;
pub mod core_values;
pub mod dialect;
pub mod driver;
pub mod hook;
pub mod libfuzzer_files;
pub mod mail;
pub mod mcp;
pub mod mutate;
pub mod next_hop_replies;
pub mod seeds;

use mailonce_mail::hooks::Kind;

use crate::sink::http::Vendor;

/// The result of an input, or a broken rule.
pub type FuzzResult = Result<InputOutcome, String>;

/// The result of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputOutcome {
    /// It was parsed. A seed that is not parsed is of little use.
    Accepted,
    /// It was refused, or contained nothing.
    Rejected,
}

impl InputOutcome {
    fn accepted_if(is_through: bool) -> Self {
        if is_through { Self::Accepted } else { Self::Rejected }
    }
}

/// A parser of outside bytes, with its rules.
#[derive(Clone, Copy)]
pub struct FuzzTarget {
    /// Its name, also for libFuzzer.
    pub name: &'static str,
    /// Parses the bytes and reports broken rules.
    pub run: fn(&[u8]) -> FuzzResult,
    /// Its seeds.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Whether it uses a socket, which is slow.
    pub slow: bool,
}

const fn in_memory(name: &'static str, run: fn(&[u8]) -> FuzzResult, seeds: fn() -> Vec<Vec<u8>>) -> FuzzTarget {
    FuzzTarget { name, run, seeds, slow: false }
}

const fn over_socket(name: &'static str, run: fn(&[u8]) -> FuzzResult, seeds: fn() -> Vec<Vec<u8>>) -> FuzzTarget {
    FuzzTarget { name, run, seeds, slow: true }
}

/// Every parser of outside bytes.
pub const TARGETS: &[FuzzTarget] = &[
    in_memory("core_key", core_values::key, seeds::keys),
    in_memory("core_id", core_values::id, seeds::ids),
    in_memory("core_cursor", core_values::cursor, seeds::cursors),
    in_memory("core_span", core_values::span, seeds::spans),
    in_memory("core_schedule", core_values::schedule, seeds::spans),
    in_memory("core_address", core_values::address, seeds::addresses),
    in_memory("core_intent", core_values::intent, seeds::intents),
    in_memory("core_digest", core_values::digest, seeds::digests),
    in_memory("mail_parse", mail::parse, seeds::mails),
    in_memory("mail_html", mail::html, seeds::pages),
    in_memory("mail_template", mail::template, seeds::templates),
    in_memory("mail_link", mail::link, seeds::links),
    in_memory("mail_artifact", mail::artifact, seeds::mails),
    in_memory("mail_minimise", mail::minimise, seeds::mails),
    in_memory("mail_thread", mail::thread, seeds::mails),
    in_memory("mail_automatic", mail::automatic, seeds::mails),
    in_memory("mail_bounce", mail::bounce, seeds::mails),
    in_memory("mail_return_path", hook::return_path, seeds::return_paths),
    in_memory("hook_postmark", |bytes| hook::read_webhook(Kind::Postmark, bytes), seeds::hooks),
    in_memory("hook_mailgun", |bytes| hook::read_webhook(Kind::Mailgun, bytes), seeds::hooks),
    in_memory("hook_sendgrid", |bytes| hook::read_webhook(Kind::Sendgrid, bytes), seeds::hooks),
    in_memory("hook_ses", |bytes| hook::read_webhook(Kind::Ses, bytes), seeds::hooks),
    in_memory("hook_resend", |bytes| hook::read_webhook(Kind::Resend, bytes), seeds::hooks),
    in_memory("hook_usesend", |bytes| hook::read_webhook(Kind::UseSend, bytes), seeds::hooks),
    in_memory("hook_brevo", |bytes| hook::read_webhook(Kind::Brevo, bytes), seeds::hooks),
    over_socket("wire_smtp", next_hop_replies::run_smtp, seeds::smtp),
    over_socket("wire_resend", |bytes| next_hop_replies::run_http(Vendor::Resend, bytes), seeds::answers),
    over_socket("wire_postmark", |bytes| next_hop_replies::run_http(Vendor::Postmark, bytes), seeds::answers),
    over_socket("wire_mailgun", |bytes| next_hop_replies::run_http(Vendor::Mailgun, bytes), seeds::answers),
    over_socket("wire_sendgrid", |bytes| next_hop_replies::run_http(Vendor::SendGrid, bytes), seeds::answers),
    over_socket("wire_ses", |bytes| next_hop_replies::run_http(Vendor::Ses, bytes), seeds::answers),
    over_socket("wire_usesend", |bytes| next_hop_replies::run_http(Vendor::UseSend, bytes), seeds::answers),
    over_socket("wire_brevo", |bytes| next_hop_replies::run_http(Vendor::Brevo, bytes), seeds::answers),
    over_socket("wire_http", |bytes| next_hop_replies::run_http(Vendor::Other, bytes), seeds::answers),
    in_memory("api_send", api::send, seeds::bodies),
    in_memory("mcp_message", mcp::message, seeds::messages),
    in_memory("api_dialect", dialect::run_call, seeds::calls),
];

/// The target with this name.
pub fn find_target(name: &str) -> Option<&'static FuzzTarget> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Runs a target by name.
pub fn run(name: &str, bytes: &[u8]) -> FuzzResult {
    find_target(name).map_or_else(|| Err(format!("there is no target {name}")), |target| (target.run)(bytes))
}

/// Reports a broken rule.
fn ensure_holds(condition: bool, what: &str) -> Result<(), String> {
    if condition { Ok(()) } else { Err(what.to_owned()) }
}

/// The bytes as text, if they are UTF-8.
fn as_utf8(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

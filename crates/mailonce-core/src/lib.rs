//! The domain model of mailonce: values, rules and state machines, plus the traits ("ports") of the outside world.
//!
//! Everything here is pure. The current time, random bytes and new ids come in as arguments; no code here reads a
//! clock, a file or a socket. `mailonce` translates the outside world into these types, `mailonce-engine` makes
//! decisions with them, and `mailonce-store` commits them.
//!
//! Domain folders (the other crates use the same names):
//!
//! | module | what it holds |
//! |---|---|
//! | [`outbound`] | an email that a caller sends: content, schedule, digest, content guard, the accepted email |
//! | [`handoff`] | the state machine of one envelope on its way to the next hop; recovery from unknown outcomes |
//! | [`inbound`] | received mail before it is a message: deliveries, deduplication, filing |
//! | [`inbox`] | inboxes, their messages, artifacts (codes and links) and watches |
//! | [`conversation`] | threads and their leases, reply-once and loop guards, caps, escalations to a person |
//! | [`events`] | events, webhook endpoints, and the notices that deliver events to endpoints |
//! | [`claims`] | the once-only right to any other side effect |
//! | [`outbox`] | rows of the user's own database, each an email that is accepted once |
//! | [`control`] | what a team limits: rules, budgets, allow and block lists |
//! | [`access`] | teams and their API keys |
//! | [`search`] | full-text search: documents, queries, results |
//! | [`ports`] | the traits that the engine needs from outside: store, transport, clock, DNS, webhooks |
//!
//! Values that several folders share:
//!
//! | module | what it holds |
//! |---|---|
//! | [`id`], [`time`], [`limits`] | ids, instants and durations, the limit of every input from outside |
//! | [`key`], [`intent`], [`ttl`] | idempotency keys, keys derived from an intent, and how long a key is remembered |
//! | [`header_block`] | where the header of a received mail starts, and whether it is ambiguous |
//! | [`address`], [`cidr`] | email addresses, blocks of IP addresses |
//! | [`hex`] | hashes as hexadecimal digits |
//! | [`record`] | small objects of a team that are stored as JSON, such as rules and lists |
//! | [`problem`], [`json_limits`], [`exact_json`] | errors returned to callers, the limits of a JSON document, JSON whose numbers keep every digit |
//! | [`retry`] | how long to wait before the next attempt |
//! | [`call_trace`] | ids by which a caller finds its own call again |
//! | [`failpoint`] | named points at which the test harness stops a process; compiled out of a normal build |

pub mod access;
pub mod address;
pub mod call_trace;
pub mod cidr;
pub mod claims;
pub mod commit_clock;
pub mod control;
pub mod conversation;
pub mod events;
pub mod exact_json;
pub mod failpoint;
pub mod handoff;
pub mod header_block;
pub mod hex;
pub mod id;
pub mod inbound;
pub mod inbox;
pub mod installation;
pub mod intent;
pub mod json_limits;
pub mod key;
pub mod limits;
#[doc(hidden)]
pub mod mutant;
pub mod operation;
pub mod outbound;
pub mod outbox;
pub mod ports;
pub mod problem;
pub mod record;
pub mod retry;
pub mod search;
mod string_enum;
pub mod time;
pub mod ttl;

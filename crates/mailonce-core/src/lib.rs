//! The words and rules of mailonce.
//!
//! Everything here is pure: time, chance and ids come in as arguments, nothing reads a clock, a file or a
//! socket. The other rooms translate to these words (`mailonce`), decide with them (`mailonce-engine`) and
//! commit them (`mailonce-store`).
//!
//! | file | what it holds |
//! |---|---|
//! | [`id`], [`time`], [`limits`] | ids, instants and spans, the bound of everything that comes from outside |
//! | [`address`], [`content`], [`schedule`] | what a mail says and to whom; validation |
//! | [`key`], [`intent`], [`digest`], [`ttl`] | the name of a wish, its meaning, and how long it is remembered |
//! | [`handoff`], [`email`] | the state machine of one envelope, and the fold over an email |
//! | [`dispatch`], [`doubt`] | what may happen to an email on its way out; what to do about an unknown outcome |
//! | [`inbox`], [`delivery`], [`message`], [`artifact`], [`watch`] | mail that comes in: where, how often, what, and what is taken from it |
//! | [`conversation`] | one answer per message, one agent per thread, no loops; questions for a person |
//! | [`filing`] | what a delivery goes through on its way to being a message |
//! | [`retry`] | what an answer of the next hop means and when to try again |
//! | [`call`] | what a caller calls its own call |
//! | [`cidr`] | blocks of IP addresses |
//! | [`team`], [`event`], [`problem`] | tenants and credentials, facts told outside, errors told to callers |
//! | [`endpoint`], [`notice`] | who is told of events, and what is owed to them |
//! | [`rule`] | what a team wants done with some mail |
//! | [`control`] | what a team limits |
//! | [`record`] | small things a team owns that are not mail |
//! | [`port`] | what the engine needs from the rest of the world |
//! | [`failpoint`] | named points at which the rigs stop a process; nothing in a usual build |

pub mod access;
pub mod address;
pub mod call_trace;
pub mod cidr;
pub mod control;
pub mod conversation;
pub mod events;
pub mod failpoint;
pub mod handoff;
pub mod id;
pub mod inbound;
pub mod inbox;
pub mod intent;
pub mod json_limits;
pub mod key;
pub mod limits;
#[doc(hidden)]
pub mod mutant;
pub mod outbound;
pub mod ports;
pub mod problem;
pub mod record;
pub mod retry;
mod string_enum;
pub mod time;
pub mod ttl;

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
//! | [`header_block`] | where the header of a received mail starts |
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

pub mod address;
pub mod artifact;
pub mod call;
pub mod cidr;
pub mod content;
pub mod control;
pub mod conversation;
pub mod delivery;
pub mod digest;
pub mod dispatch;
pub mod doubt;
pub mod email;
pub mod endpoint;
pub mod event;
pub mod failpoint;
pub mod filing;
pub mod handoff;
pub mod header_block;
pub mod id;
pub mod inbox;
pub mod intent;
pub mod json_limits;
pub mod key;
pub mod limits;
pub mod list;
pub mod message;
#[doc(hidden)]
pub mod mutant;
pub mod notice;
pub mod port;
pub mod problem;
pub mod record;
pub mod retry;
pub mod rule;
pub mod schedule;
mod string_enum;
pub mod team;
pub mod time;
pub mod ttl;
pub mod watch;

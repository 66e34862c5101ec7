//! The SMTP listener: mail comes in, is kept, and only then answered with `250`. No log-in and no relaying, ever.
//!
//! | file | what it holds |
//! |---|---|
//! | `session` | a conversation without a socket: bytes in, replies and wishes out |
//! | `command`, `text`, `reply` | a command line; the text of a mail; what is said |
//! | `connection` | a session with a socket, patience and a reception |
//! | `listen`, `gate` | the door; who may come in, and how often |
//! | `budget`, `spool` | octets in memory and on disk, and a network's share of them; large mails on disk |
//! | `reception` | what is asked of whoever takes the mail |
//! | `configured`, `settings` | the `smtp` part of the configuration; what it comes to |
//! | `tally` | what is counted |

mod command;
mod configured;
mod connection;
mod gate;
mod listen;
mod reception;
mod reply;
mod session;
mod settings;
mod spool;
mod tally;
#[cfg(test)]
mod tests;
mod text;

pub use crate::tls::Tls;
pub use configured::SmtpConfig;
pub(crate) use configured::SmtpFile;
pub use connection::ByteStream;
pub use listen::{SmtpListener, run};
pub use reception::{MailReceiver, NotAccepted, ReceivedMail, RecipientStatus};
pub use settings::{NetworkLimits, SmtpSettings, SmtpTimeouts};
pub use spool::{SpoolDir, SpoolFiles};
pub use tally::{Reason, SmtpMetrics};

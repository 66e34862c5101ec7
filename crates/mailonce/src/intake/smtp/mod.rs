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
mod config;
mod connection;
mod data_reader;
mod listener;
mod mail_receiver;
mod metrics;
mod network_limits;
mod reply;
mod session;
mod settings;
mod spool;
#[cfg(test)]
mod tests;

pub use crate::tls::Tls;
pub use config::SmtpConfig;
pub(crate) use config::SmtpFile;
pub use connection::ByteStream;
pub use listener::{SmtpListener, run};
pub use mail_receiver::{MailReceiver, NotAccepted, ReceivedMail, RecipientStatus};
pub use metrics::{Reason, SmtpMetrics};
pub use settings::{NetworkLimits, SmtpSettings, SmtpTimeouts};
pub use spool::{SpoolDir, SpoolFiles};

//! The SMTP listener: mail comes in, is kept, and only then answered with `250`. No log-in and no relaying, ever.
//!
//! | file | what it holds |
//! |---|---|
//! | `session` | a conversation without a socket: bytes in, replies and wishes out |
//! | `command`, `text`, `reply` | a command line; the text of a mail; what is said |
//! | `connection` | a session with a socket, patience and a reception |
//! | `gate` | who may come in, and how often |
//! | `tls` | the certificate |
//! | `reception` | what is asked of whoever takes the mail |
//! | `settings`, `tally` | what can be said about all of it; what is counted |

mod command;
mod connection;
mod gate;
mod reception;
mod reply;
mod session;
mod settings;
mod tally;
#[cfg(test)]
mod tests;
mod text;
mod tls;

pub use reception::{Mail, Reception, Trouble, Verdict};
pub use settings::{Patience, PerIp, Settings};
pub use tally::{Reason, Tally};
pub use tls::Tls;

use connection::{Connection, House};
use gate::{Gate, Visit};
use reply::Reply;
use std::{future::pending, io::Write as _, net::IpAddr, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// Listens until `stop` says so or nobody can say it any more. Then no connection is let in, those that wait for a
/// command are told so, and mails that are under way get [`Patience::farewell`] to be finished.
pub async fn run(
    listener: TcpListener,
    reception: Arc<dyn Reception>,
    settings: Settings,
    mut stop: watch::Receiver<bool>,
) {
    let house = Arc::new(House::new(settings, reception));
    let gate = Gate::new(house.settings.per_ip, house.settings.per_ip_loopback);
    let mut sessions = JoinSet::new();
    let tls = house.settings.tls.clone();
    let mut fresh = std::pin::pin!(async {
        match tls {
            Some(tls) => tls.keep_fresh().await,
            None => pending().await,
        }
    });
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = sessions.join_next() => continue,
            _ = stop.wait_for(|stop| *stop) => break,
            () = &mut fresh => continue,
        };
        match accepted {
            Ok((stream, peer)) => match let_in(&house, &gate, sessions.len(), peer.ip()) {
                Ok(visit) => {
                    drop(sessions.spawn(serve(Arc::clone(&house), stream, peer.ip(), visit, stop.clone())));
                }
                Err(refusal) => turn_away(&house, stream, refusal),
            },
            Err(error) => {
                // Out of descriptors, most likely: those that are open will end.
                tracing::warn!(%error, "accepting a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listener);
    let ended = async { while sessions.join_next().await.is_some() {} };
    if tokio::time::timeout(house.settings.patience.farewell, ended).await.is_err() {
        tracing::warn!(open = sessions.len(), "some mails were not finished in time; their senders will try again");
    }
    sessions.shutdown().await;
}

/// Whether there is room for another connection, and its network may have one.
fn let_in(house: &House, gate: &Arc<Gate>, open: usize, ip: IpAddr) -> Result<Visit, Reply> {
    house.settings.tally.connected();
    if open >= house.settings.max_connections {
        return Err(reply::FULL);
    }
    gate.enter(ip).ok_or(reply::TOO_CLOSE)
}

async fn serve(house: Arc<House>, stream: TcpStream, ip: IpAddr, visit: Visit, stop: watch::Receiver<bool>) {
    let open = house.settings.tally.opened();
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "setting TCP_NODELAY");
    }
    Connection::serve(house, Box::new(stream), ip, visit, stop).await;
    drop(open);
}

/// Says why and closes, without a task and without waiting: a socket that was never written to has room for a line.
fn turn_away(house: &House, stream: TcpStream, refusal: Reply) {
    if let Some(reason) = refusal.reason {
        house.settings.tally.refuse(reason);
    }
    let said = stream.into_std().and_then(|mut stream| stream.write_all(format!("{}\r\n", refusal.line).as_bytes()));
    if let Err(error) = said {
        tracing::debug!(%error, "turning a connection away");
    }
}

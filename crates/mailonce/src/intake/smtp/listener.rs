//! Accepts or rejects connections, and drains them when the server shuts down.

use std::{future::pending, io::Write as _, net::IpAddr, sync::Arc, time::Duration};
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

use super::{
    connection::{ByteStream, SmtpConnection, SmtpListenerState},
    reply::{self, SmtpReply},
    settings::SmtpSettings,
};
use crate::intake::smtp::{
    mail_receiver::MailReceiver,
    network_limits::{ConnectionPermit, NetworkLimiter},
};

/// Serves connections until `stop` becomes true or its sender is dropped. See [`SmtpListener::serve`].
pub async fn run(
    listener: TcpListener,
    receiver: Arc<dyn MailReceiver>,
    settings: SmtpSettings,
    stop: watch::Receiver<bool>,
) {
    SmtpListener::new(receiver, settings).serve(listener, stop).await;
}

/// A listener, and the state that its connections share.
#[derive(Clone)]
pub struct SmtpListener {
    state: Arc<SmtpListenerState>,
    limiter: Arc<NetworkLimiter>,
}

impl SmtpListener {
    /// Creates a listener without a socket.
    pub fn new(receiver: Arc<dyn MailReceiver>, settings: SmtpSettings) -> Self {
        let limiter = NetworkLimiter::new(settings.per_ip, settings.per_ip_loopback);
        Self { state: Arc::new(SmtpListenerState::new(settings, receiver)), limiter }
    }

    /// Serves connections until `stop` becomes true or its sender is dropped. Then it accepts no more connections,
    /// answers `421` to those that wait for a command, and gives running mails [`super::SmtpTimeouts::drain`] to
    /// finish.
    pub async fn serve(&self, listener: TcpListener, mut stop: watch::Receiver<bool>) {
        let mut sessions = JoinSet::new();
        let mut reload = std::pin::pin!(async {
            match self.state.settings.tls.clone() {
                Some(tls) => tls.reload_on_change().await,
                None => pending().await,
            }
        });
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(ended) = sessions.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "an SMTP session panicked");
                    }
                    continue;
                }
                _ = stop.wait_for(|stop| *stop) => break,
                () = &mut reload => continue,
            };
            match accepted {
                Ok((stream, peer)) => match self.admit(sessions.len(), peer.ip()) {
                    Ok(permit) => {
                        sessions.spawn(Self::serve_tcp(self.clone(), stream, peer.ip(), permit, stop.clone()));
                    }
                    Err(reply) => reject_connection(stream, reply),
                },
                Err(error) => {
                    // Most likely the process is out of file descriptors, and open connections will close.
                    tracing::warn!(%error, "accepting a connection failed");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        drop(listener);
        let ended = async { while sessions.join_next().await.is_some() {} };
        if tokio::time::timeout(self.state.settings.timeouts.drain, ended).await.is_err() {
            tracing::warn!(
                open = sessions.len(),
                "some mails were not received within the drain timeout; their senders will retry"
            );
        }
        sessions.shutdown().await;
    }

    /// Serves one connection over any byte stream.
    pub async fn serve_stream(&self, mut stream: impl ByteStream + 'static, ip: IpAddr, stop: watch::Receiver<bool>) {
        match self.admit(0, ip) {
            Ok(permit) => self.serve_connection(Box::new(stream), ip, permit, stop).await,
            Err(reply) => {
                if let Err(error) = stream.write_all(closing_line(reply).as_bytes()).await {
                    tracing::debug!(%error, "rejecting a connection failed");
                }
            }
        }
    }

    /// Checks the limits of all connections and of the network, and counts the connection.
    fn admit(&self, open: usize, ip: IpAddr) -> Result<ConnectionPermit, SmtpReply> {
        let SmtpSettings { metrics: counters, max_connections, .. } = &self.state.settings;
        counters.record_connection();
        let permit = if open < *max_connections {
            self.limiter.admit(ip).ok_or(reply::NETWORK_CONNECTION_LIMIT)
        } else {
            Err(reply::CONNECTION_LIMIT)
        };
        if let Some(reason) = permit.as_ref().err().and_then(|refusal| refusal.reason) {
            counters.record_refusal(reason);
        }
        permit
    }

    async fn serve_tcp(self, stream: TcpStream, ip: IpAddr, permit: ConnectionPermit, stop: watch::Receiver<bool>) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "setting TCP_NODELAY");
        }
        self.serve_connection(Box::new(stream), ip, permit, stop).await;
    }

    async fn serve_connection(
        &self,
        stream: Box<dyn ByteStream>,
        ip: IpAddr,
        permit: ConnectionPermit,
        stop: watch::Receiver<bool>,
    ) {
        let open = self.state.settings.metrics.track_session();
        SmtpConnection::serve(Arc::clone(&self.state), stream, ip, permit, stop).await;
        drop(open);
    }
}

fn closing_line(refusal: SmtpReply) -> String {
    format!("{}\r\n", refusal.line)
}

/// Writes the reply and closes, without a task and without waiting: the send buffer of a new socket has room for it.
fn reject_connection(stream: TcpStream, refusal: SmtpReply) {
    let written = stream.into_std().and_then(|mut stream| stream.write_all(closing_line(refusal).as_bytes()));
    if let Err(error) = written {
        tracing::debug!(%error, "rejecting a connection failed");
    }
}

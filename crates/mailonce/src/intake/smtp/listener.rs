//! The door: connections are let in, turned away, and seen off when we stop.

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

/// Listens until `stop` says so or nobody can say it any more. See [`Smtp::listen`].
pub async fn run(
    listener: TcpListener,
    reception: Arc<dyn MailReceiver>,
    settings: SmtpSettings,
    stop: watch::Receiver<bool>,
) {
    SmtpListener::new(reception, settings).listen(listener, stop).await;
}

/// A listener, and what its connections share.
#[derive(Clone)]
pub struct SmtpListener {
    state: Arc<SmtpListenerState>,
    limiter: Arc<NetworkLimiter>,
}

impl SmtpListener {
    /// A listener that listens nowhere yet.
    pub fn new(reception: Arc<dyn MailReceiver>, settings: SmtpSettings) -> Self {
        let gate = NetworkLimiter::new(settings.per_ip, settings.per_ip_loopback);
        Self { state: Arc::new(SmtpListenerState::new(settings, reception)), limiter: gate }
    }

    /// Serves connections until `stop` says so or nobody can say it any more. Then no connection is let in, those that
    /// wait for a command are told so, and mails that are under way get [`super::Patience::farewell`] to be finished.
    pub async fn listen(&self, listener: TcpListener, mut stop: watch::Receiver<bool>) {
        let mut sessions = JoinSet::new();
        let mut fresh = std::pin::pin!(async {
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
                        tracing::error!(%error, "a session broke");
                    }
                    continue;
                }
                _ = stop.wait_for(|stop| *stop) => break,
                () = &mut fresh => continue,
            };
            match accepted {
                Ok((stream, peer)) => match self.admit(sessions.len(), peer.ip()) {
                    Ok(visit) => {
                        sessions.spawn(Self::serve_tcp(self.clone(), stream, peer.ip(), visit, stop.clone()));
                    }
                    Err(refusal) => reject_connection(stream, refusal),
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
        if tokio::time::timeout(self.state.settings.timeouts.drain, ended).await.is_err() {
            tracing::warn!(open = sessions.len(), "some mails were not finished in time; their senders will try again");
        }
        sessions.shutdown().await;
    }

    /// Serves one connection over anything that carries bytes both ways.
    pub async fn serve_stream(&self, mut stream: impl ByteStream + 'static, ip: IpAddr, stop: watch::Receiver<bool>) {
        match self.admit(0, ip) {
            Ok(visit) => self.serve(Box::new(stream), ip, visit, stop).await,
            Err(refusal) => {
                if let Err(error) = stream.write_all(closing_line(refusal).as_bytes()).await {
                    tracing::debug!(%error, "turning a connection away");
                }
            }
        }
    }

    /// Whether there is room for another connection, and its network may have one.
    fn admit(&self, open: usize, ip: IpAddr) -> Result<ConnectionPermit, SmtpReply> {
        let SmtpSettings { metrics: tally, max_connections, .. } = &self.state.settings;
        tally.record_connection();
        let visit = if open < *max_connections {
            self.limiter.admit(ip).ok_or(reply::NETWORK_CONNECTION_LIMIT)
        } else {
            Err(reply::CONNECTION_LIMIT)
        };
        if let Some(reason) = visit.as_ref().err().and_then(|refusal| refusal.reason) {
            tally.record_refusal(reason);
        }
        visit
    }

    async fn serve_tcp(self, stream: TcpStream, ip: IpAddr, visit: ConnectionPermit, stop: watch::Receiver<bool>) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "setting TCP_NODELAY");
        }
        self.serve(Box::new(stream), ip, visit, stop).await;
    }

    async fn serve(
        &self,
        stream: Box<dyn ByteStream>,
        ip: IpAddr,
        visit: ConnectionPermit,
        stop: watch::Receiver<bool>,
    ) {
        let open = self.state.settings.metrics.track_session();
        SmtpConnection::serve(Arc::clone(&self.state), stream, ip, visit, stop).await;
        drop(open);
    }
}

fn closing_line(refusal: SmtpReply) -> String {
    format!("{}\r\n", refusal.line)
}

/// Says why and closes, without a task and without waiting: a socket that was never written to has room for a line.
fn reject_connection(stream: TcpStream, refusal: SmtpReply) {
    let said = stream.into_std().and_then(|mut stream| stream.write_all(closing_line(refusal).as_bytes()));
    if let Err(error) = said {
        tracing::debug!(%error, "turning a connection away");
    }
}

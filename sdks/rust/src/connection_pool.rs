//! A pool of idle connections.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    call::{BoxedFuture, StreamOpening, Wire},
    http::{Answer, Connection, Request, RequestError, ServerUrl},
};

/// Most idle connections.
const MAX_IDLE: usize = 8;
/// How long a connection may stay idle. Servers and proxies close idle connections after a while.
const MAX_IDLE_TIME: Duration = Duration::from_secs(20);

/// A server, and open connections to it.
pub(crate) struct ConnectionPool {
    server: ServerUrl,
    idle: Mutex<Vec<(Connection, Instant)>>,
}

impl ConnectionPool {
    pub(crate) fn new(server: ServerUrl) -> Self {
        Self { server, idle: Mutex::new(Vec::new()) }
    }

    fn take(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(_, since)| since.elapsed() < MAX_IDLE_TIME);
        idle.pop().map(|(connection, _)| connection)
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE {
            idle.push((connection, Instant::now()));
        }
    }

    async fn call_pooled(&self, request: &Request, fresh: bool) -> Result<Answer, RequestError> {
        while let Some(mut connection) = if fresh { None } else { self.take() } {
            if let Some(answer) = self.server.try_call_on(&mut connection, request).await? {
                self.keep(connection);
                return Ok(answer);
            }
        }
        let mut connection = self.server.connect().await?;
        let answer = self.server.try_call_on(&mut connection, request).await?;
        let answer = answer.ok_or_else(|| RequestError::Connect(format!("{} hung up at once", self.server.url())))?;
        self.keep(connection);
        Ok(answer)
    }
}

impl Wire for ConnectionPool {
    fn url(&self) -> &str {
        self.server.url()
    }

    fn call<'a>(&'a self, request: &'a Request, fresh: bool) -> BoxedFuture<'a, Result<Answer, RequestError>> {
        Box::pin(self.call_pooled(request, fresh))
    }

    fn open_stream<'a>(&'a self, request: &'a Request) -> BoxedFuture<'a, Result<StreamOpening, RequestError>> {
        Box::pin(async move {
            let opened = self.server.open_stream(request).await?;
            Ok(match opened.status {
                200..300 => StreamOpening::Stream(opened),
                _ => StreamOpening::Refused(opened.read_to_end().await?),
            })
        })
    }
}

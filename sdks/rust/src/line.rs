//! Connections that are kept for the next call.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    call::{Made, Opened, Wire},
    http::{Answer, Line, Place, Request, Trouble},
};

/// Connections that wait at the most.
const IDLE: usize = 8;
/// How long one may wait. Servers and what stands before them close idle ones after a while.
const IDLE_TIME: Duration = Duration::from_secs(20);

/// A place, and open connections to it.
pub(crate) struct Lines {
    place: Place,
    idle: Mutex<Vec<(Line, Instant)>>,
}

impl Lines {
    pub(crate) fn new(place: Place) -> Self {
        Self { place, idle: Mutex::new(Vec::new()) }
    }

    fn take(&self) -> Option<Line> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(_, since)| since.elapsed() < IDLE_TIME);
        idle.pop().map(|(line, _)| line)
    }

    fn keep(&self, line: Line) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE {
            idle.push((line, Instant::now()));
        }
    }

    async fn asked(&self, request: &Request, fresh: bool) -> Result<Answer, Trouble> {
        while let Some(mut line) = if fresh { None } else { self.take() } {
            if let Some(answer) = self.place.ask_again_on(&mut line, request).await? {
                self.keep(line);
                return Ok(answer);
            }
        }
        let mut line = self.place.line().await?;
        let answer = self.place.ask_again_on(&mut line, request).await?;
        let answer = answer.ok_or_else(|| Trouble::Connect(format!("{} hung up at once", self.place.url())))?;
        self.keep(line);
        Ok(answer)
    }
}

impl Wire for Lines {
    fn url(&self) -> &str {
        self.place.url()
    }

    fn ask<'a>(&'a self, request: &'a Request, fresh: bool) -> Made<'a, Result<Answer, Trouble>> {
        Box::pin(self.asked(request, fresh))
    }

    fn follow<'a>(&'a self, request: &'a Request) -> Made<'a, Result<Opened, Trouble>> {
        Box::pin(async move {
            let opened = self.place.follow(request).await?;
            Ok(match opened.status {
                200..300 => Opened::Stream(opened),
                _ => Opened::Refused(opened.whole().await?),
            })
        })
    }
}

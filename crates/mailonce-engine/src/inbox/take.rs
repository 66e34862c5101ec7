//! Taking a new code or link, and waiting for it: in a watch that the consumer named, or in its implicit one. A code that
//! another consumer took is passed over, and never handed out twice.

use crate::{
    access::caller::Caller,
    inbox::{
        Artifacts,
        artifacts::{ArtifactQuery, already_consumed, no_match},
        implicit_watch::{MAX_LOST_RACES, is_free},
        wait::WaitFilter,
    },
    runtime::keyed_call::KeyedCall,
};
use mailonce_core::{
    id::{InboxId, WatchId},
    inbox::artifact::{Artifact, ConsumeRequest},
    problem::{Code, Problem},
};
use std::time::Duration;
use tokio::time::Instant;

/// The pause before the next look, if a message arrived that has nothing to take. It doubles each time, up to the
/// longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What to take, for whom, and how long to wait for it.
#[derive(Clone, Debug)]
pub struct TakeRequest {
    /// Which artifact.
    pub query: ArtifactQuery,
    /// The account, workflow or run that needs it.
    pub purpose: String,
    /// The watch whose mail counts. `None`: the implicit watch of the purpose.
    pub watch: Option<WatchId>,
    /// How long to wait until it arrives; not longer than the watch lasts.
    pub timeout: Duration,
}

impl Artifacts {
    /// Consumes the newest artifact that no other consumer took, and waits for one if there is none.
    pub async fn take_artifact(
        &self,
        caller: &Caller,
        inbox: InboxId,
        request: &TakeRequest,
        keyed_call: Option<KeyedCall>,
    ) -> Result<Artifact, Problem> {
        let (deadline, mut pause) = (Instant::now() + request.timeout, FIRST_PAUSE);
        loop {
            let taken = match request.watch {
                Some(watch) => self.take_in_watch(caller, inbox, (request, watch), keyed_call.clone()).await,
                None => self.take_in_implicit_watch(caller, inbox, request, keyed_call.clone()).await,
            };
            let missing = match taken {
                Err(problem) if matches!(problem.code, Code::NotFound | Code::AlreadyConsumed) => problem,
                taken => return taken,
            };
            let left = deadline.saturating_duration_since(Instant::now());
            let filter = WaitFilter {
                from: request.query.from.clone(),
                subject: request.query.subject.clone(),
                has: Some(request.query.kind),
                watch: request.watch,
                purpose: Some(request.purpose.clone()),
                ..WaitFilter::default()
            };
            if left.is_zero() || Box::pin(self.wait_for_message(caller, inbox, filter, left)).await?.is_none() {
                return Err(missing);
            }
            tokio::time::sleep(pause.min(left)).await;
            pause = LONGEST_PAUSE.min(2 * pause);
        }
    }

    /// Consumes the newest artifact of a watch that no other consumer took, authenticated senders first. A repeat gets
    /// the artifact that it has, unless a newer one arrived: that of a resend.
    async fn take_in_watch(
        &self,
        caller: &Caller,
        inbox: InboxId,
        (TakeRequest { query, purpose, .. }, watch): (&TakeRequest, WatchId),
        keyed_call: Option<KeyedCall>,
    ) -> Result<Artifact, Problem> {
        self.inboxes.inbox(caller, inbox).await?;
        let watch = self.watch_of_inbox(caller, watch, inbox).await?;
        let counts = |artifact: &Artifact| artifact.authenticated || !watch.require_auth;
        let is_own = |artifact: &Artifact| artifact.is_consumed_by(purpose, Some(watch.id));
        let is_enough = |artifact: &Artifact| counts(artifact) && (is_free(artifact) || is_own(artifact));
        for _ in 0..MAX_LOST_RACES {
            let matches = self.matching_artifacts(caller, inbox, query, (watch.after_seq, &is_enough)).await?;
            let mut takeable = matches.iter().filter(|artifact| is_enough(artifact));
            let authenticated = takeable.clone().find(|artifact| artifact.authenticated);
            let Some(best) = authenticated.or_else(|| takeable.next()) else {
                let consumed = matches.iter().find(|artifact| counts(artifact));
                return Err(consumed.map_or_else(|| no_match(query), already_consumed));
            };
            let (purpose, by) = (purpose.clone(), caller.key.id);
            let request = ConsumeRequest { purpose, watch: Some(watch.id), by, held_before: None };
            match self.consume_with_request(caller, best.id, request, keyed_call.clone()).await {
                // Another consumer was faster: look again.
                Err(problem) if problem.code == Code::AlreadyConsumed => {}
                taken => return taken,
            }
        }
        Err(no_match(query))
    }
}

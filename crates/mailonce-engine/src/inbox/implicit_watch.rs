//! New codes and links for a consumer without a watch. Every consumer has an implicit watch at an inbox: it starts two
//! minutes before the consumer's first call, because the mail may arrive before the agent asks, and ends 15 minutes after
//! its last. Codes that were left by an earlier run, or that another consumer took, are passed over.

use crate::{
    access::caller::Caller,
    inbox::{
        Artifacts,
        artifacts::{ArtifactQuery, already_consumed},
        take::TakeRequest,
        wait::WaitFilter,
    },
    runtime::{keyed_call::KeyedCall, problems::unavailable},
};
use mailonce_core::{
    id::InboxId,
    inbox::{
        artifact::{Artifact, ConsumeRequest},
        message::{Message, MessagePosition, MessageQuery},
        watch::{IMPLICIT_WATCH_HEAD_START_MS, IMPLICIT_WATCH_MS, ImplicitWatch, Watch},
    },
    problem::{Code, Problem},
};

/// How often another consumer may be faster before the call is answered as if nothing had arrived.
pub(super) const MAX_LOST_RACES: usize = 8;
/// Messages on one page, when messages are searched from the newest on.
const PAGE_SIZE: usize = 20;
/// How many pages are searched.
const MAX_PAGES: usize = 10;

pub(super) fn is_free(artifact: &Artifact) -> bool {
    artifact.consumption.is_none()
}

/// Whether the consumer took it and has not reported its use: a repeat gets it again.
fn is_unused_own(artifact: &Artifact, purpose: &str) -> bool {
    artifact.is_held_by(purpose) && artifact.applied_at.is_none()
}

impl Artifacts {
    /// Consumes the newest artifact in the implicit watch of the consumer that no other consumer took. A repeat gets the
    /// artifact that it has.
    pub(super) async fn take_in_implicit_watch(
        &self,
        caller: &Caller,
        inbox: InboxId,
        TakeRequest { query, purpose, .. }: &TakeRequest,
        keyed_call: Option<KeyedCall>,
    ) -> Result<Artifact, Problem> {
        let watch = self.touch_implicit_watch(caller, inbox, purpose).await?;
        for _ in 0..MAX_LOST_RACES {
            let wanted = (query, purpose.as_str());
            let (own, held_before) = self.held_match(caller, inbox, wanted, watch.after_seq).await?;
            if let Some(own) = own {
                // A repeat is a repeat in whichever watch the artifact was taken.
                let taken_in = own.consumption.as_ref().and_then(|consumed| consumed.watch);
                let (purpose, by) = (purpose.clone(), caller.key.id);
                let request = ConsumeRequest { purpose, watch: taken_in, by, held_before: None };
                return self.consume_with_request(caller, own.id, request, keyed_call).await;
            }
            let matches = self.matching_artifacts(caller, inbox, query, (watch.after_seq, &is_free)).await?;
            let mut free = matches.iter().filter(|artifact| is_free(artifact));
            let best = match free.clone().find(|artifact| artifact.authenticated) {
                Some(best) => Some(best),
                None => self.first_not_forged(caller, &mut free).await?,
            };
            let Some(best) = best else {
                return Err(match matches.iter().find(|artifact| artifact.consumption.is_some()) {
                    Some(consumed) => already_consumed(consumed),
                    None => self.no_new_artifact_problem(caller, inbox, query).await?,
                });
            };
            let (purpose, by) = (purpose.clone(), caller.key.id);
            let request = ConsumeRequest { purpose, watch: None, by, held_before: Some(held_before) };
            match self.consume_with_request(caller, best.id, request, keyed_call.clone()).await {
                // Another consumer took it, or a concurrent call of this one took another: look again.
                Err(problem) if problem.code == Code::AlreadyConsumed => {}
                taken => return taken,
            }
        }
        Err(self.no_new_artifact_problem(caller, inbox, query).await?)
    }

    /// The first artifact whose message did not fail authentication: anybody can write the others.
    async fn first_not_forged<'a>(
        &self,
        caller: &Caller,
        artifacts: &mut impl Iterator<Item = &'a Artifact>,
    ) -> Result<Option<&'a Artifact>, Problem> {
        for artifact in artifacts {
            let message = self.ctx.store.message(caller.team.id, artifact.message).await.map_err(unavailable)?;
            if message.is_some_and(|message| !message.head.auth.is_fail()) {
                return Ok(Some(artifact));
            }
        }
        Ok(None)
    }

    /// Starts or continues the consumer's implicit watch.
    async fn touch_implicit_watch(
        &self,
        caller: &Caller,
        inbox: InboxId,
        purpose: &str,
    ) -> Result<ImplicitWatch, Problem> {
        let (team, now) = (caller.team.id, self.ctx.now());
        let mac = self.ctx.secret.mac("implicit-watch", &[purpose.as_bytes()]);
        let mut consumer = [0; 16];
        consumer.copy_from_slice(&mac[..16]);
        let after_seq = self.latest_seq_before_head_start(caller, inbox).await?;
        let watch = ImplicitWatch { team, inbox, consumer, after_seq, ends_at: now.plus(IMPLICIT_WATCH_MS) };
        self.ctx.store.touch_implicit_watch(watch, now).await.map_err(unavailable)
    }

    /// The number of the latest message that arrived before an implicit watch that starts now.
    async fn latest_seq_before_head_start(&self, caller: &Caller, inbox: InboxId) -> Result<u64, Problem> {
        let start = self.ctx.now().plus(-IMPLICIT_WATCH_HEAD_START_MS);
        let (mut before, mut latest, mut oldest_new) = (u64::MAX, 0, None);
        for _ in 0..MAX_PAGES {
            let query =
                MessageQuery { position: MessagePosition::Before(before), limit: PAGE_SIZE, ..MessageQuery::default() };
            let page = self.ctx.store.messages(caller.team.id, inbox, query).await.map_err(unavailable)?;
            latest = latest.max(page.rows.first().map_or(0, |message| message.seq));
            // Mail is numbered when it is filed: an old one that waited may have a higher number than a new one.
            let new = page.rows.iter().filter(|message| message.received_at >= start).map(|message| message.seq).min();
            oldest_new = new.or(oldest_new);
            match page.next.filter(|_| new.is_some()) {
                Some(next) => before = next,
                None => break,
            }
        }
        Ok(oldest_new.map_or(latest, |seq| seq - 1))
    }

    /// Why nothing was taken, and how to take an older artifact.
    async fn no_new_artifact_problem(
        &self,
        caller: &Caller,
        inbox: InboxId,
        query: &ArtifactQuery,
    ) -> Result<Problem, Problem> {
        let (kind, older) = (query.kind.as_str(), self.matching_artifacts(caller, inbox, query, (0, &is_free)).await?);
        let detail = match older.iter().find(|artifact| is_free(artifact)) {
            Some(older) => format!(
                "no new {kind} has arrived in this inbox; there is an older one, {}, which can be consumed by its id",
                older.id
            ),
            None => format!("no {kind} in this inbox matches"),
        };
        Ok(Problem::new(Code::NotFound, detail))
    }

    /// The number of the message after which a waiting consumer's messages count: since the start of its watch, explicit
    /// or implicit. 0 without a consumer.
    pub(crate) async fn start_of_new_messages(
        &self,
        caller: &Caller,
        inbox: InboxId,
        (purpose, watch): (Option<&str>, Option<&Watch>),
    ) -> Result<u64, Problem> {
        let Some(purpose) = purpose else { return Ok(0) };
        if let Some(watch) = watch {
            return Ok(watch.after_seq);
        }
        Ok(self.touch_implicit_watch(caller, inbox, purpose).await?.after_seq)
    }

    /// The newest message after a number that has something to take for the consumer that waits, authenticated senders
    /// first.
    pub(crate) async fn newest_untaken_message(
        &self,
        caller: &Caller,
        inbox: InboxId,
        filter: &WaitFilter,
        (after, require_auth): (u64, bool),
    ) -> Result<Option<Message>, Problem> {
        let kinds: &[bool] = if require_auth { &[true] } else { &[true, false] };
        for only_authenticated in kinds.iter().copied() {
            let mut before = u64::MAX;
            for _ in 0..MAX_PAGES {
                let query = filter.query(MessagePosition::Before(before));
                let query = MessageQuery { only_authenticated, limit: PAGE_SIZE, ..query };
                let page = self.ctx.store.messages(caller.team.id, inbox, query).await.map_err(unavailable)?;
                for message in page.rows.iter().take_while(|message| message.seq > after) {
                    if self.has_untaken_artifact(caller, message, filter).await? {
                        return Ok(Some(message.clone()));
                    }
                }
                match page.next.filter(|next| *next > after) {
                    Some(next) => before = next,
                    None => break,
                }
            }
        }
        Ok(None)
    }

    async fn has_untaken_artifact(
        &self,
        caller: &Caller,
        message: &Message,
        filter: &WaitFilter,
    ) -> Result<bool, Problem> {
        let Some(wanted) = filter.has else { return Ok(true) };
        let purpose = filter.purpose.as_deref().unwrap_or_default();
        for (_, id) in message.head.artifacts.iter().filter(|(kind, _)| *kind == wanted) {
            let found = self.ctx.store.artifact(caller.team.id, *id).await.map_err(unavailable)?;
            // What the consumer took in another watch is not what it waits for in this one.
            let is_own = |one: &Artifact| match filter.watch {
                Some(watch) => one.is_consumed_by(purpose, Some(watch)),
                None => is_unused_own(one, purpose),
            };
            if found.is_some_and(|one| is_free(&one) || is_own(&one)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

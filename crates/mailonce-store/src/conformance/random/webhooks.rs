//! Random steps of people, nodes and receivers with webhook endpoints and notices; the calls for them, and what both
//! stores return.

use mailonce_core::{
    events::{
        endpoint::{Endpoint, EndpointChangeResult, EndpointEdit, EndpointGauge, EndpointStart, EndpointState},
        notice::{
            FanOutCounts, LeasedNotice, Notice, NoticeOutcome, NoticeQuery, NoticeRecovery, NoticeRecoveryResult,
            NoticeState, ReplayFrom, WebhookVerdict,
        },
    },
    id::{EndpointId, NodeId, NoticeId, TeamId},
    operation::{IdempotentResult, KeyedOperation},
    time::Time,
};

use crate::conformance::{
    MINUTE, TestStore,
    fixtures::{
        handoffs::node_id,
        webhooks::{attempt_outcome, endpoint_config, new_endpoint},
    },
    random::step::{KeyChoice, OperationSpec, SplitMix64},
};

const FILTERS: [&[&str]; 4] = [&["*"], &["email.*"], &["email.sent", "message.*"], &["endpoint.*", "email.accepted"]];

/// What is done. Everything is named by its recency; 0 is the latest.
#[derive(Clone, Debug)]
pub(super) enum WebhookCommand {
    Create { filter: u8, start: Option<u8>, call: Option<OperationSpec> },
    Change { endpoint: u8, filter: u8, state: EndpointState, is_current_rev: bool, call: Option<OperationSpec> },
    Remove(u8),
    FanOut(usize),
    Lease { endpoint: u8, node: u8, max: usize },
    RecordOutcome(u8, u8),
    Replay(u8, Option<OperationSpec>),
    Recover { endpoint: u8, since: u8, time: bool, everything: bool, call: Option<OperationSpec> },
}

impl WebhookCommand {
    pub(super) fn random(rng: &mut SplitMix64) -> Self {
        let call = |rng: &mut SplitMix64| {
            rng.maybe_one_in(4, |rng| OperationSpec(KeyChoice::for_operation(rng), rng.below(2)))
        };
        match rng.below(40) {
            0..=2 => {
                Self::Create { filter: rng.below(4), start: rng.maybe_one_in(2, |rng| rng.below(20)), call: call(rng) }
            }
            3..=5 => Self::Change {
                endpoint: rng.below(4),
                filter: rng.below(4),
                state: if rng.one_in(2) { EndpointState::Enabled } else { rng.pick(EndpointState::ALL) },
                is_current_rev: !rng.one_in(5),
                call: call(rng),
            },
            6 => Self::Remove(rng.below(6)),
            7..=14 => Self::FanOut(rng.pick(&[1, 3, 10, 1_000])),
            15..=22 => Self::Lease { endpoint: rng.below(4), node: rng.below(3), max: rng.pick(&[1, 2, 100]) },
            23..=34 => Self::RecordOutcome(rng.below(8), rng.below(12)),
            35..=36 => Self::Replay(rng.below(8), call(rng)),
            _ => Self::Recover {
                endpoint: rng.below(4),
                since: rng.below(20),
                time: rng.one_in(2),
                everything: rng.one_in(2),
                call: call(rng),
            },
        }
    }
}

/// A complete call, the same for both stores.
#[derive(Clone, Debug)]
pub(super) enum WebhookCall {
    Create(Box<Endpoint>, EndpointStart, Option<KeyedOperation>),
    Change(Box<EndpointEdit>, Option<KeyedOperation>),
    Remove(TeamId, EndpointId),
    FanOut(usize),
    Lease(TeamId, EndpointId, NodeId, usize),
    RecordOutcome(NoticeOutcome),
    Replay(TeamId, NoticeId, Option<KeyedOperation>),
    Recover(TeamId, EndpointId, NoticeRecovery, Option<KeyedOperation>),
    Nothing,
}

/// The answer of a store.
#[derive(Debug, PartialEq)]
pub(super) enum WebhookAnswer {
    Create(IdempotentResult<Endpoint>),
    Change(IdempotentResult<EndpointChangeResult>),
    Remove(Option<Endpoint>),
    FanOut(FanOutCounts),
    Lease(Vec<LeasedNotice>),
    Notice(Option<Notice>),
    Replay(IdempotentResult<Option<Notice>>),
    Recover(IdempotentResult<Option<NoticeRecoveryResult>>),
    Nothing,
}

pub(super) async fn call_store(store: &TestStore, request: WebhookCall, now: Time) -> WebhookAnswer {
    match request {
        WebhookCall::Create(endpoint, start, call) => {
            WebhookAnswer::Create(store.create_endpoint(*endpoint, start, call).await.unwrap())
        }
        WebhookCall::Change(edit, call) => {
            WebhookAnswer::Change(store.change_endpoint(*edit, call, now).await.unwrap())
        }
        WebhookCall::Remove(team, id) => WebhookAnswer::Remove(store.remove_endpoint(team, id).await.unwrap()),
        WebhookCall::FanOut(max) => WebhookAnswer::FanOut(store.fan_out(max, now).await.unwrap()),
        WebhookCall::Lease(team, id, node, max) => {
            WebhookAnswer::Lease(store.lease_notices(team, id, node, max, now).await.unwrap())
        }
        WebhookCall::RecordOutcome(outcome) => {
            WebhookAnswer::Notice(store.record_notice_outcome(outcome, now).await.unwrap())
        }
        WebhookCall::Replay(team, id, call) => {
            WebhookAnswer::Replay(store.replay_notice(team, id, call, now).await.unwrap())
        }
        WebhookCall::Recover(team, id, recovery, call) => {
            WebhookAnswer::Recover(store.recover_notices(team, id, recovery, call, now).await.unwrap())
        }
        WebhookCall::Nothing => WebhookAnswer::Nothing,
    }
}

/// What was created so far, in order.
#[derive(Default)]
pub(super) struct WebhookState {
    endpoints: Vec<Endpoint>,
    leased_notices: Vec<Notice>,
}

/// An element by its recency; 0 is the latest.
fn by_recency<T: Clone>(all: &[T], recency: u8) -> Option<T> {
    all.iter().rev().nth(usize::from(recency) % all.len().max(1)).cloned()
}

fn random_answer(n: u8) -> WebhookVerdict {
    match n {
        0 => WebhookVerdict::Gone,
        1 => WebhookVerdict::Dropped,
        2..=3 => WebhookVerdict::Retry(None),
        4 => WebhookVerdict::Retry(Some(10 * MINUTE)),
        _ => WebhookVerdict::Delivered,
    }
}

impl WebhookState {
    /// Records the result of a call.
    pub(super) fn record(&mut self, answer: &WebhookAnswer) {
        match answer {
            WebhookAnswer::Create(IdempotentResult::Done(endpoint)) => self.endpoints.push(endpoint.clone()),
            WebhookAnswer::Change(IdempotentResult::Done(
                EndpointChangeResult::Changed(endpoint) | EndpointChangeResult::Stale(endpoint),
            )) => {
                self.endpoints.iter_mut().filter(|known| known.id == endpoint.id).for_each(|known| {
                    known.clone_from(endpoint);
                });
            }
            WebhookAnswer::Lease(leased) => {
                self.leased_notices.extend(leased.iter().map(|leased| leased.notice.clone()))
            }
            _ => {}
        }
    }

    /// Turns a command into a call. Nothing if the command names something that does not exist.
    pub(super) fn call_for(
        &self,
        team: TeamId,
        command: &WebhookCommand,
        operation: impl Fn(OperationSpec) -> KeyedOperation,
        now: Time,
    ) -> WebhookCall {
        self.try_call_for(team, command, |call| call.map(&operation), now).unwrap_or(WebhookCall::Nothing)
    }

    fn try_call_for(
        &self,
        team: TeamId,
        command: &WebhookCommand,
        operation: impl Fn(Option<OperationSpec>) -> Option<KeyedOperation>,
        now: Time,
    ) -> Option<WebhookCall> {
        Some(match command {
            WebhookCommand::Create { filter, start, call } => {
                let mut endpoint = new_endpoint(team, FILTERS[usize::from(*filter)]);
                (endpoint.created_at, endpoint.state_since) = (now, now);
                let start = start.map_or(EndpointStart::NextEvent, |seq| EndpointStart::After(seq.into()));
                WebhookCall::Create(Box::new(endpoint), start, operation(*call))
            }
            WebhookCommand::Change { endpoint, filter, state, is_current_rev, call } => {
                let known = by_recency(&self.endpoints, *endpoint)?;
                let rev = if *is_current_rev { known.rev } else { known.rev + 1 };
                let config = endpoint_config(FILTERS[usize::from(*filter)]);
                let edit = EndpointEdit { team, id: known.id, rev, config, state: *state };
                WebhookCall::Change(Box::new(edit), operation(*call))
            }
            WebhookCommand::Remove(recency) => WebhookCall::Remove(team, by_recency(&self.endpoints, *recency)?.id),
            WebhookCommand::FanOut(max) => WebhookCall::FanOut(*max),
            WebhookCommand::Lease { endpoint, node: n, max } => {
                let known = by_recency(&self.endpoints, *endpoint)?;
                WebhookCall::Lease(known.team, known.id, node_id(*n), *max)
            }
            WebhookCommand::RecordOutcome(recency, n) => WebhookCall::RecordOutcome(attempt_outcome(
                &by_recency(&self.leased_notices, *recency)?,
                random_answer(*n),
                now,
            )),
            WebhookCommand::Replay(recency, call) => {
                WebhookCall::Replay(team, by_recency(&self.leased_notices, *recency)?.id, operation(*call))
            }
            WebhookCommand::Recover { endpoint, since, time, everything, call } => {
                let id = by_recency(&self.endpoints, *endpoint)?.id;
                let ago = now.plus(-i64::from(*since) * 10 * MINUTE);
                let since = if *time { ReplayFrom::Time(ago) } else { ReplayFrom::Event((*since).into()) };
                WebhookCall::Recover(
                    team,
                    id,
                    NoticeRecovery { from: since, include_delivered: *everything },
                    operation(*call),
                )
            }
        })
    }

    /// All endpoints and notices that a team can read.
    pub(super) async fn view_all(&self, store: &TestStore, team: TeamId, now: Time) -> Vec<WebhookView> {
        let mut views = vec![
            WebhookView::Endpoints(store.endpoints(team, None, 100).await.unwrap()),
            WebhookView::Endpoints(store.endpoints_with_due_notices(100, now).await.unwrap()),
            WebhookView::Gauges(store.endpoint_gauges().await.unwrap()),
            WebhookView::Due(store.next_notice_due().await.unwrap()),
        ];
        for endpoint in &self.endpoints {
            for state in [None, Some(NoticeState::Pending), Some(NoticeState::Dead)] {
                let query = NoticeQuery { state, limit: 1_000, ..NoticeQuery::default() };
                let notices = store.notices(team, endpoint.id, query).await.unwrap();
                if let Some(notice) = notices.first() {
                    views.push(WebhookView::Notice(store.notice(team, notice.id).await.unwrap()));
                }
                views.push(WebhookView::Notices(notices));
            }
        }
        views
    }
}

/// One result of a read.
#[derive(Debug, PartialEq)]
pub(super) enum WebhookView {
    Endpoints(Vec<Endpoint>),
    Gauges(Vec<EndpointGauge>),
    Due(Option<Time>),
    Notices(Vec<Notice>),
    Notice(Option<Notice>),
}

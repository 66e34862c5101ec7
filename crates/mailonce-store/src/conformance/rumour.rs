//! The play's part for telling others: what random people, processes and receivers do, the full calls, and what both
//! ledgers show.

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

use super::{
    MINUTE, TestStore,
    deed::node_id,
    herald::{attempt_outcome, endpoint_about, new_endpoint},
    turn::{KeyChoice, OperationSpec, SplitMix64},
};

const FILTERS: [&[&str]; 4] = [&["*"], &["email.*"], &["email.sent", "message.*"], &["endpoint.*", "email.accepted"]];

/// What is done. Things are named by their place, counted from the latest.
#[derive(Clone, Debug)]
pub(super) enum WebhookCommand {
    Make { filter: u8, start: Option<u8>, call: Option<OperationSpec> },
    Change { endpoint: u8, filter: u8, state: EndpointState, seen: bool, call: Option<OperationSpec> },
    Remove(u8),
    FanOut(usize),
    Lease { endpoint: u8, node: u8, max: usize },
    Settle(u8, u8),
    Replay(u8, Option<OperationSpec>),
    Recover { endpoint: u8, since: u8, time: bool, everything: bool, call: Option<OperationSpec> },
}

impl WebhookCommand {
    pub(super) fn random(chance: &mut SplitMix64) -> Self {
        let call = |chance: &mut SplitMix64| {
            chance.maybe_one_in(4, |chance| OperationSpec(KeyChoice::for_operation(chance), chance.below(2)))
        };
        match chance.below(40) {
            0..=2 => Self::Make {
                filter: chance.below(4),
                start: chance.maybe_one_in(2, |chance| chance.below(20)),
                call: call(chance),
            },
            3..=5 => Self::Change {
                endpoint: chance.below(4),
                filter: chance.below(4),
                state: if chance.one_in(2) { EndpointState::Enabled } else { chance.pick(EndpointState::ALL) },
                seen: !chance.one_in(5),
                call: call(chance),
            },
            6 => Self::Remove(chance.below(6)),
            7..=14 => Self::FanOut(chance.pick(&[1, 3, 10, 1_000])),
            15..=22 => Self::Lease { endpoint: chance.below(4), node: chance.below(3), max: chance.pick(&[1, 2, 100]) },
            23..=34 => Self::Settle(chance.below(8), chance.below(12)),
            35..=36 => Self::Replay(chance.below(8), call(chance)),
            _ => Self::Recover {
                endpoint: chance.below(4),
                since: chance.below(20),
                time: chance.one_in(2),
                everything: chance.one_in(2),
                call: call(chance),
            },
        }
    }
}

/// A call in full, the same for both ledgers.
#[derive(Clone, Debug)]
pub(super) enum WebhookCall {
    Make(Box<Endpoint>, EndpointStart, Option<KeyedOperation>),
    Change(Box<EndpointEdit>, Option<KeyedOperation>),
    Remove(TeamId, EndpointId),
    FanOut(usize),
    Lease(TeamId, EndpointId, NodeId, usize),
    Settle(NoticeOutcome),
    Replay(TeamId, NoticeId, Option<KeyedOperation>),
    Recover(TeamId, EndpointId, NoticeRecovery, Option<KeyedOperation>),
    Nothing,
}

/// What a ledger said.
#[derive(Debug, PartialEq)]
pub(super) enum WebhookAnswer {
    Make(IdempotentResult<Endpoint>),
    Change(IdempotentResult<EndpointChangeResult>),
    Remove(Option<Endpoint>),
    FanOut(FanOutCounts),
    Lease(Vec<LeasedNotice>),
    Notice(Option<Notice>),
    Replay(IdempotentResult<Option<Notice>>),
    Recover(IdempotentResult<Option<NoticeRecoveryResult>>),
    Nothing,
}

pub(super) async fn call_store(store: &TestStore, tale: WebhookCall, now: Time) -> WebhookAnswer {
    match tale {
        WebhookCall::Make(endpoint, start, call) => {
            WebhookAnswer::Make(store.create_endpoint(*endpoint, start, call).await.unwrap())
        }
        WebhookCall::Change(edit, call) => {
            WebhookAnswer::Change(store.change_endpoint(*edit, call, now).await.unwrap())
        }
        WebhookCall::Remove(team, id) => WebhookAnswer::Remove(store.remove_endpoint(team, id).await.unwrap()),
        WebhookCall::FanOut(max) => WebhookAnswer::FanOut(store.fan_out(max, now).await.unwrap()),
        WebhookCall::Lease(team, id, node, max) => {
            WebhookAnswer::Lease(store.lease_notices(team, id, node, max, now).await.unwrap())
        }
        WebhookCall::Settle(settle) => WebhookAnswer::Notice(store.record_notice_outcome(settle, now).await.unwrap()),
        WebhookCall::Replay(team, id, call) => {
            WebhookAnswer::Replay(store.replay_notice(team, id, call, now).await.unwrap())
        }
        WebhookCall::Recover(team, id, recovery, call) => {
            WebhookAnswer::Recover(store.recover_notices(team, id, recovery, call, now).await.unwrap())
        }
        WebhookCall::Nothing => WebhookAnswer::Nothing,
    }
}

/// What has come into being so far, in order.
#[derive(Default)]
pub(super) struct WebhookState {
    endpoints: Vec<Endpoint>,
    leased_notices: Vec<Notice>,
}

/// By its place, from the latest.
fn by_recency<T: Clone>(all: &[T], place: u8) -> Option<T> {
    all.iter().rev().nth(usize::from(place) % all.len().max(1)).cloned()
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
    /// Notes what came of a call.
    pub(super) fn record(&mut self, word: &WebhookAnswer) {
        match word {
            WebhookAnswer::Make(IdempotentResult::Done(endpoint)) => self.endpoints.push(endpoint.clone()),
            WebhookAnswer::Change(IdempotentResult::Done(
                EndpointChangeResult::Changed(endpoint) | EndpointChangeResult::Stale(endpoint),
            )) => {
                self.endpoints.iter_mut().filter(|known| known.id == endpoint.id).for_each(|known| {
                    known.clone_from(endpoint);
                });
            }
            WebhookAnswer::Lease(owed) => self.leased_notices.extend(owed.iter().map(|owed| owed.notice.clone())),
            _ => {}
        }
    }

    /// The call that a rumour stands for.
    pub(super) fn call_for(
        &self,
        team: TeamId,
        rumour: &WebhookCommand,
        operation: impl Fn(OperationSpec) -> KeyedOperation,
        now: Time,
    ) -> WebhookCall {
        self.try_call_for(team, rumour, |call| call.map(&operation), now).unwrap_or(WebhookCall::Nothing)
    }

    fn try_call_for(
        &self,
        team: TeamId,
        rumour: &WebhookCommand,
        operation: impl Fn(Option<OperationSpec>) -> Option<KeyedOperation>,
        now: Time,
    ) -> Option<WebhookCall> {
        Some(match rumour {
            WebhookCommand::Make { filter, start, call } => {
                let mut endpoint = new_endpoint(team, FILTERS[usize::from(*filter)]);
                (endpoint.created_at, endpoint.state_since) = (now, now);
                let start = start.map_or(EndpointStart::NextEvent, |seq| EndpointStart::After(seq.into()));
                WebhookCall::Make(Box::new(endpoint), start, operation(*call))
            }
            WebhookCommand::Change { endpoint, filter, state, seen, call } => {
                let known = by_recency(&self.endpoints, *endpoint)?;
                let rev = if *seen { known.rev } else { known.rev + 1 };
                let about = endpoint_about(FILTERS[usize::from(*filter)]);
                let edit = EndpointEdit { team, id: known.id, rev, config: about, state: *state };
                WebhookCall::Change(Box::new(edit), operation(*call))
            }
            WebhookCommand::Remove(place) => WebhookCall::Remove(team, by_recency(&self.endpoints, *place)?.id),
            WebhookCommand::FanOut(max) => WebhookCall::FanOut(*max),
            WebhookCommand::Lease { endpoint, node: n, max } => {
                let known = by_recency(&self.endpoints, *endpoint)?;
                WebhookCall::Lease(known.team, known.id, node_id(*n), *max)
            }
            WebhookCommand::Settle(place, n) => {
                WebhookCall::Settle(attempt_outcome(&by_recency(&self.leased_notices, *place)?, random_answer(*n), now))
            }
            WebhookCommand::Replay(place, call) => {
                WebhookCall::Replay(team, by_recency(&self.leased_notices, *place)?.id, operation(*call))
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

    /// Everything there is to see of telling others.
    pub(super) async fn view_all(&self, store: &TestStore, team: TeamId, now: Time) -> Vec<WebhookView> {
        let mut seen = vec![
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
                    seen.push(WebhookView::Notice(store.notice(team, notice.id).await.unwrap()));
                }
                seen.push(WebhookView::Notices(notices));
            }
        }
        seen
    }
}

/// One thing that was looked at.
#[derive(Debug, PartialEq)]
pub(super) enum WebhookView {
    Endpoints(Vec<Endpoint>),
    Gauges(Vec<EndpointGauge>),
    Due(Option<Time>),
    Notices(Vec<Notice>),
    Notice(Option<Notice>),
}

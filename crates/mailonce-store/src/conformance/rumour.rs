//! The play's part for telling others: what random people, processes and receivers do, the full calls, and what both
//! ledgers show.

use mailonce_core::{
    endpoint::{Endpoint, EndpointChange, EndpointEdit, EndpointGauge, EndpointState, Start},
    id::{EndpointId, NodeId, NoticeId, TeamId},
    notice::{Answer, Notice, NoticeQuery, NoticeSettle, NoticeState, Owed, Recovering, Recovery, Since, Spread},
    port::store::{Once, Operation},
    time::Time,
};

use super::{
    Ledger, MINUTE,
    deed::node,
    herald::{draft, ended, wanting},
    turn::{Call, Chance, Name},
};

const FILTERS: [&[&str]; 4] = [&["*"], &["email.*"], &["email.sent", "message.*"], &["endpoint.*", "email.accepted"]];

/// What is done. Things are named by their place, counted from the latest.
#[derive(Clone, Debug)]
pub(super) enum Rumour {
    Make { filter: u8, start: Option<u8>, call: Option<Call> },
    Change { endpoint: u8, filter: u8, state: EndpointState, seen: bool, call: Option<Call> },
    Remove(u8),
    Spread(usize),
    Lease { endpoint: u8, node: u8, max: usize },
    Settle(u8, u8),
    Replay(u8, Option<Call>),
    Recover { endpoint: u8, since: u8, time: bool, everything: bool, call: Option<Call> },
}

impl Rumour {
    pub(super) fn random(chance: &mut Chance) -> Self {
        let call = |chance: &mut Chance| chance.maybe(4, |chance| Call(Name::of_call(chance), chance.below(2)));
        match chance.below(40) {
            0..=2 => Self::Make {
                filter: chance.below(4),
                start: chance.maybe(2, |chance| chance.below(20)),
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
            7..=14 => Self::Spread(chance.pick(&[1, 3, 10, 1_000])),
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
pub(super) enum Tale {
    Make(Box<Endpoint>, Start, Option<Operation>),
    Change(Box<EndpointEdit>, Option<Operation>),
    Remove(TeamId, EndpointId),
    Spread(usize),
    Lease(TeamId, EndpointId, NodeId, usize),
    Settle(NoticeSettle),
    Replay(TeamId, NoticeId, Option<Operation>),
    Recover(TeamId, EndpointId, Recovery, Option<Operation>),
    Nothing,
}

/// What a ledger said.
#[derive(Debug, PartialEq)]
pub(super) enum Word {
    Make(Once<Endpoint>),
    Change(Once<EndpointChange>),
    Remove(Option<Endpoint>),
    Spread(Spread),
    Lease(Vec<Owed>),
    Notice(Option<Notice>),
    Replay(Once<Option<Notice>>),
    Recover(Once<Option<Recovering>>),
    Nothing,
}

pub(super) async fn ask(store: &Ledger, tale: Tale, now: Time) -> Word {
    match tale {
        Tale::Make(endpoint, start, call) => Word::Make(store.create_endpoint(*endpoint, start, call).await.unwrap()),
        Tale::Change(edit, call) => Word::Change(store.change_endpoint(*edit, call, now).await.unwrap()),
        Tale::Remove(team, id) => Word::Remove(store.remove_endpoint(team, id).await.unwrap()),
        Tale::Spread(max) => Word::Spread(store.spread(max, now).await.unwrap()),
        Tale::Lease(team, id, node, max) => Word::Lease(store.lease_notices(team, id, node, max, now).await.unwrap()),
        Tale::Settle(settle) => Word::Notice(store.settle_notice(settle, now).await.unwrap()),
        Tale::Replay(team, id, call) => Word::Replay(store.replay_notice(team, id, call, now).await.unwrap()),
        Tale::Recover(team, id, recovery, call) => {
            Word::Recover(store.recover_notices(team, id, recovery, call, now).await.unwrap())
        }
        Tale::Nothing => Word::Nothing,
    }
}

/// What has come into being so far, in order.
#[derive(Default)]
pub(super) struct Gossip {
    endpoints: Vec<Endpoint>,
    owed: Vec<Notice>,
}

/// By its place, from the latest.
fn named<T: Clone>(all: &[T], place: u8) -> Option<T> {
    all.iter().rev().nth(usize::from(place) % all.len().max(1)).cloned()
}

fn answer(n: u8) -> Answer {
    match n {
        0 => Answer::Gone,
        1 => Answer::Dropped,
        2..=3 => Answer::Again(None),
        4 => Answer::Again(Some(10 * MINUTE)),
        _ => Answer::Delivered,
    }
}

impl Gossip {
    /// Notes what came of a call.
    pub(super) fn learn(&mut self, word: &Word) {
        match word {
            Word::Make(Once::Done(endpoint)) => self.endpoints.push(endpoint.clone()),
            Word::Change(Once::Done(EndpointChange::Changed(endpoint) | EndpointChange::Stale(endpoint))) => {
                self.endpoints.iter_mut().filter(|known| known.id == endpoint.id).for_each(|known| {
                    known.clone_from(endpoint);
                });
            }
            Word::Lease(owed) => self.owed.extend(owed.iter().map(|owed| owed.notice.clone())),
            _ => {}
        }
    }

    /// The call that a rumour stands for.
    pub(super) fn tale(&self, team: TeamId, rumour: &Rumour, operation: impl Fn(Call) -> Operation, now: Time) -> Tale {
        self.try_tale(team, rumour, |call| call.map(&operation), now).unwrap_or(Tale::Nothing)
    }

    fn try_tale(
        &self,
        team: TeamId,
        rumour: &Rumour,
        operation: impl Fn(Option<Call>) -> Option<Operation>,
        now: Time,
    ) -> Option<Tale> {
        Some(match rumour {
            Rumour::Make { filter, start, call } => {
                let mut endpoint = draft(team, FILTERS[usize::from(*filter)]);
                (endpoint.created_at, endpoint.since) = (now, now);
                let start = start.map_or(Start::End, |seq| Start::After(seq.into()));
                Tale::Make(Box::new(endpoint), start, operation(*call))
            }
            Rumour::Change { endpoint, filter, state, seen, call } => {
                let known = named(&self.endpoints, *endpoint)?;
                let rev = if *seen { known.rev } else { known.rev + 1 };
                let about = wanting(FILTERS[usize::from(*filter)]);
                let edit = EndpointEdit { team, id: known.id, rev, about, state: *state };
                Tale::Change(Box::new(edit), operation(*call))
            }
            Rumour::Remove(place) => Tale::Remove(team, named(&self.endpoints, *place)?.id),
            Rumour::Spread(max) => Tale::Spread(*max),
            Rumour::Lease { endpoint, node: n, max } => {
                let known = named(&self.endpoints, *endpoint)?;
                Tale::Lease(known.team, known.id, node(*n), *max)
            }
            Rumour::Settle(place, n) => Tale::Settle(ended(&named(&self.owed, *place)?, answer(*n), now)),
            Rumour::Replay(place, call) => Tale::Replay(team, named(&self.owed, *place)?.id, operation(*call)),
            Rumour::Recover { endpoint, since, time, everything, call } => {
                let id = named(&self.endpoints, *endpoint)?.id;
                let ago = now.plus(-i64::from(*since) * 10 * MINUTE);
                let since = if *time { Since::Time(ago) } else { Since::Event((*since).into()) };
                Tale::Recover(team, id, Recovery { since, everything: *everything }, operation(*call))
            }
        })
    }

    /// Everything there is to see of telling others.
    pub(super) async fn view(&self, store: &Ledger, team: TeamId, now: Time) -> Vec<Sight> {
        let mut seen = vec![
            Sight::Endpoints(store.endpoints(team, None, 100).await.unwrap()),
            Sight::Endpoints(store.endpoints_due(100, now).await.unwrap()),
            Sight::Gauges(store.endpoint_gauges().await.unwrap()),
            Sight::Due(store.next_notice_due().await.unwrap()),
        ];
        for endpoint in &self.endpoints {
            for state in [None, Some(NoticeState::Pending), Some(NoticeState::Dead)] {
                let query = NoticeQuery { state, limit: 1_000, ..NoticeQuery::default() };
                let notices = store.notices(team, endpoint.id, query).await.unwrap();
                if let Some(notice) = notices.first() {
                    seen.push(Sight::Notice(store.notice(team, notice.id).await.unwrap()));
                }
                seen.push(Sight::Notices(notices));
            }
        }
        seen
    }
}

/// One thing that was looked at.
#[derive(Debug, PartialEq)]
pub(super) enum Sight {
    Endpoints(Vec<Endpoint>),
    Gauges(Vec<EndpointGauge>),
    Due(Option<Time>),
    Notices(Vec<Notice>),
    Notice(Option<Notice>),
}

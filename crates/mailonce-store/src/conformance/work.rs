//! Steps of workers: leasing, marking, answering.

use mailonce_core::{
    dispatch::{Act, Hold, Plan, Verdict},
    email::Email,
    handoff::{Evidence, Handoff, Says, Source},
    id::{EmailId, NodeId},
    port::{
        store::{Acted, LeaseWish, Leased, Once},
        transport::{Meaning, Phase, Reply},
    },
    time::Time,
};
use uuid::Uuid;

use super::{Draft, Ledger, SANDBOX, T0, TEAM, accepted, the};

pub(super) const NODE: NodeId = NodeId(Uuid::from_u128(0xa));
pub(super) const SECOND_NODE: NodeId = NodeId(Uuid::from_u128(0xb));
/// Twelve attempts in a day; `chance` makes each pause as long as the first may be at the most.
pub(super) const PLAN: Plan = Plan { max_attempts: 12, max_age_ms: 86_400_000, chance: 1_000 };
pub(super) const WIRE: &[u8] = b"frozen\r\n\0\xff";

/// A handoff that a worker holds, and the attempt it marked.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) id: EmailId,
    pub(super) hold: Hold,
    pub(super) attempt: Option<u32>,
}

pub(super) fn wish(max: usize) -> LeaseWish {
    LeaseWish { transport: SANDBOX.into(), node: NODE, max, but: Vec::new(), scheduled_by: Some(Time(i64::MAX)) }
}

pub(super) async fn lease(store: &Ledger, max: usize, now: Time) -> Vec<Leased> {
    store.lease(wish(max), now).await.unwrap()
}

/// What a lease gives, as a job at account A.
pub(super) fn job(leased: &Leased) -> Job {
    let handoff = &leased.email.handoffs[usize::from(leased.number)];
    let (number, fence, transport) = (leased.number, handoff.fence, handoff.transport.clone());
    Job { id: leased.email.id, hold: Hold { number, fence, transport, account: "A".into() }, attempt: None }
}

/// The only due handoff there is, leased.
pub(super) async fn take(store: &Ledger, now: Time) -> Job {
    let leased = lease(store, 10, now).await;
    assert_eq!(leased.len(), 1, "{leased:?}");
    job(&leased[0])
}

/// A draft that was accepted and leased.
pub(super) async fn leased(store: &Ledger, draft: &Draft) -> Job {
    let email = accepted(store, draft, T0).await;
    let job = take(store, T0).await;
    assert_eq!(job.id, email.id);
    job
}

/// A draft that was accepted, leased and marked.
pub(super) async fn marked(store: &Ledger, draft: &Draft) -> Job {
    let job = leased(store, draft).await;
    mark(store, job, T0).await
}

/// A draft whose outcome is unknown.
pub(super) async fn lost(store: &Ledger, draft: &Draft) -> Job {
    let job = marked(store, draft).await;
    assert_eq!(answer(store, &job, Meaning::Unknown, T0).await.0, Verdict::Done);
    job
}

pub(super) async fn act(store: &Ledger, id: EmailId, act: Act, now: Time) -> (Verdict, Email) {
    match store.act(TEAM, id, act, None, now).await.unwrap() {
        Once::Done(Acted::Email(verdict, email)) => (verdict, email),
        other => panic!("{other:?}"),
    }
}

pub(super) fn marker(job: &Job, wire: &[u8]) -> Act {
    Act::Mark { hold: job.hold.clone(), wire: Some(wire.into()) }
}

/// Writes the marker, which must stand.
pub(super) async fn mark(store: &Ledger, job: Job, now: Time) -> Job {
    let (verdict, email) = act(store, job.id, marker(&job, WIRE), now).await;
    assert_eq!(verdict, Verdict::Done);
    let attempt = Some(email.handoffs[usize::from(job.hold.number)].attempts);
    Job { attempt, ..job }
}

pub(super) fn reply(meaning: Meaning) -> Reply {
    Reply::new(meaning, Phase::Final, Some(299), &format!("the next hop says {}", meaning.word()))
}

pub(super) fn settle(job: &Job, reply: Reply, now: Time) -> Act {
    let Job { hold, attempt, .. } = job.clone();
    Act::Settle { hold, attempt, began: now, reply, plan: PLAN }
}

/// Writes down what an attempt was answered.
pub(super) async fn answer(store: &Ledger, job: &Job, meaning: Meaning, now: Time) -> (Verdict, Email) {
    act(store, job.id, settle(job, reply(meaning), now), now).await
}

/// Takes an unknown handoff to repeat its attempt, and marks it.
pub(super) async fn repeated(store: &Ledger, job: &Job, now: Time) -> Job {
    let again = Act::Repeat { number: job.hold.number, holder: NODE, account: "A".into() };
    let (verdict, email) = act(store, job.id, again, now).await;
    assert_eq!(verdict, Verdict::Done);
    let fence = email.handoffs[usize::from(job.hold.number)].fence;
    mark(store, Job { hold: Hold { fence, ..job.hold.clone() }, ..job.clone() }, now).await
}

/// A fact from outside about the first handoff.
pub(super) fn fact(says: Says, once: Option<&str>, now: Time) -> Evidence {
    Evidence {
        handoff: 0,
        attempt: None,
        at: now,
        source: Source::ProviderEvent,
        says,
        detail: format!("it was {}", says.word()),
        once: once.map(ToOwned::to_owned),
    }
}

/// A job's handoff as it is now.
pub(super) async fn handoff(store: &Ledger, job: &Job) -> Handoff {
    the(store, job.id).await.handoffs[usize::from(job.hold.number)].clone()
}

//! Who makes the running call, and from where.
//!
//! Stores record acts in the audit log inside the transaction of the act, so they must know the caller. A parameter on
//! every method of the port would reach two dozen methods and hundreds of callers, and forgetting it would be silent.
//! So the origin belongs to the running task: the HTTP layer opens a scope for each request, authentication fills it,
//! and a store reads it where its method was called. Without an origin the actor is the system.

use std::{
    cell::RefCell,
    fmt,
    future::Future,
    mem,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use uuid::Uuid;

use crate::{
    hex::format_hash,
    id::{ApiKeyId, PersonId, TeamId},
    key::{InstallSecret, keyed_hash},
    string_enum::string_enum,
    time::Time,
};

string_enum! {
    /// The kind of an actor.
    ActorKind {
        /// A program with an API key.
        ApiKey = "api_key",
        /// A person who signed in or followed a link.
        Person = "person",
        /// Whoever used the link that was posted to a notification target. The server does not know who that is.
        NotificationTarget = "notification_target",
        /// mailonce itself: a command on the server, the configuration, or a worker.
        System = "system",
    }
}

/// Who acts. The id of a person, a notification target or an API key is resolved to a name outside of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// Its kind.
    pub kind: ActorKind,
    /// Its id. For the system, what acted: `server` or `cli`.
    pub id: String,
}

/// A personal value, and the id that stands for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// The id.
    pub id: String,
    /// The value. Erasing it leaves the id without a meaning.
    pub name: String,
}

/// Who makes the running call, and from where. Every request has one, so it is cheap to make: texts are formatted when
/// an act is recorded.
#[derive(Clone, Debug)]
pub struct CallOrigin {
    /// Who acts.
    pub caller: CallerId,
    /// The caller's team. Its audit log records acts that belong to no team.
    pub team: Option<TeamId>,
    /// From where.
    pub from: CallSource,
    /// When the call began.
    pub at: Time,
}

/// Who acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallerId {
    /// A program with an API key.
    ApiKey(ApiKeyId),
    /// A person.
    Person(PersonId),
    /// Whoever used the link of a notification target.
    NotificationTarget(Uuid),
    /// mailonce itself: `server` or `cli`.
    System(&'static str),
}

/// From where a call comes.
#[derive(Clone, Debug)]
pub enum CallSource {
    /// This machine: `server` or `cli`.
    Local(&'static str),
    /// An IP address, and the key from which its alias is derived.
    Address(IpAddr, AliasKey),
}

impl CallSource {
    /// The client's address; the server itself when it is unknown.
    pub fn of_client(client: Option<IpAddr>, key: AliasKey) -> Self {
        client.map_or(Self::Local("server"), |ip| Self::Address(ip, key))
    }
}

/// The key from which the aliases of an installation are derived. Without it, nobody can find an address by trying all
/// of them.
#[derive(Clone, Copy)]
pub struct AliasKey([u8; 32]);

impl AliasKey {
    /// The key of an installation.
    pub fn of(secret: &InstallSecret) -> Self {
        Self(secret.mac("audit-alias", &[]))
    }

    fn alias(&self, team: Option<TeamId>, ip: IpAddr) -> Alias {
        let (team, name) = (team.map_or(Uuid::nil(), |team| team.0), ip.to_string());
        let mac = keyed_hash(&self.0, "ip", &[team.as_bytes(), name.as_bytes()]);
        // Half of the hash: an alias only distinguishes the addresses of one team.
        let digits = format_hash(&mac);
        Alias { id: format!("ip/{}", digits.get(..32).unwrap_or(&digits)), name }
    }
}

impl fmt::Debug for AliasKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AliasKey")
    }
}

impl CallOrigin {
    /// A call with an API key.
    pub fn of_api_key(key: ApiKeyId, team: TeamId, from: CallSource, at: Time) -> Self {
        Self { caller: CallerId::ApiKey(key), team: Some(team), from, at }
    }

    /// A call of a person.
    pub fn of_person(person: PersonId, team: TeamId, from: CallSource, at: Time) -> Self {
        Self { caller: CallerId::Person(person), team: Some(team), from, at }
    }

    /// A call with the link of a notification target.
    pub fn of_notification_target(target: Uuid, team: TeamId, from: CallSource, at: Time) -> Self {
        Self { caller: CallerId::NotificationTarget(target), team: Some(team), from, at }
    }

    /// mailonce itself, on behalf of nobody who can be named: `server` or `cli`.
    pub fn of_system(what: &'static str, at: Time) -> Self {
        Self { caller: CallerId::System(what), team: None, from: CallSource::Local(what), at }
    }

    /// The actor that the audit log records.
    pub fn actor(&self) -> Actor {
        let (kind, id) = match &self.caller {
            CallerId::ApiKey(id) => (ActorKind::ApiKey, id.to_string()),
            CallerId::Person(id) => (ActorKind::Person, id.to_string()),
            CallerId::NotificationTarget(id) => (ActorKind::NotificationTarget, id.to_string()),
            CallerId::System(what) => (ActorKind::System, (*what).to_owned()),
        };
        Actor { kind, id }
    }

    /// The source that the audit log records, and the address that it stands for.
    pub fn source(&self) -> (String, Option<Alias>) {
        match &self.from {
            CallSource::Local(word) => ((*word).to_owned(), None),
            CallSource::Address(ip, key) => {
                let alias = key.alias(self.team, *ip);
                (alias.id.clone(), Some(alias))
            }
        }
    }

    /// The origin of the running call. `None` outside of a scope, and before authentication.
    pub fn current() -> Option<Arc<Self>> {
        CURRENT.with_borrow(|slot| slot.as_ref().and_then(Clone::clone))
    }

    /// Sets the origin for the rest of the enclosing scope. Does nothing outside of a scope.
    pub fn set(self) {
        CURRENT.with_borrow_mut(|slot| {
            if let Some(slot) = slot {
                *slot = Some(Arc::new(self));
            }
        });
    }

    /// Runs a call in a scope of its own that begins with this origin.
    pub fn scope<F: Future>(origin: Option<Arc<Self>>, call: F) -> OriginScope<F> {
        OriginScope { slot: Some(origin), call: Box::pin(call) }
    }

    /// Runs synchronous work of a call on another thread.
    pub fn run<T>(origin: Option<Arc<Self>>, work: impl FnOnce() -> T) -> T {
        let mut slot = Some(origin);
        let _entered = CallScope::enter(&mut slot);
        work()
    }
}

/// Outside of a scope there is no slot. Inside, the slot is empty until the caller is known.
type Slot = Option<Option<Arc<CallOrigin>>>;

thread_local! {
    static CURRENT: RefCell<Slot> = const { RefCell::new(None) };
}

/// Swaps a slot with that of the thread, and swaps back when dropped, also after a panic.
struct CallScope<'a>(&'a mut Slot);

impl<'a> CallScope<'a> {
    fn enter(slot: &'a mut Slot) -> Self {
        CURRENT.with_borrow_mut(|current| mem::swap(current, slot));
        Self(slot)
    }
}

impl Drop for CallScope<'_> {
    fn drop(&mut self) {
        CURRENT.with_borrow_mut(|current| mem::swap(current, self.0));
    }
}

/// A call in its scope.
pub struct OriginScope<F> {
    slot: Slot,
    call: Pin<Box<F>>,
}

impl<F: Future> Future for OriginScope<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        let _entered = CallScope::enter(&mut this.slot);
        this.call.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{future::poll_fn, task::Waker};

    /// Returns `Pending` once.
    async fn yield_once() {
        let mut yielded = false;
        poll_fn(|_| if mem::replace(&mut yielded, true) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn current_actor() -> Option<String> {
        CallOrigin::current().map(|origin| origin.actor().id)
    }

    #[test]
    fn interleaved_calls_keep_their_own_origin() {
        let call = |what: &'static str| {
            Box::pin(CallOrigin::scope(None, async move {
                assert_eq!(current_actor(), None);
                CallOrigin::of_system(what, Time(1)).set();
                yield_once().await;
                current_actor()
            }))
        };
        let (mut first, mut second) = (call("server"), call("cli"));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(first.as_mut().poll(&mut cx).is_pending() && second.as_mut().poll(&mut cx).is_pending());
        assert_eq!(first.as_mut().poll(&mut cx), Poll::Ready(Some("server".into())));
        assert_eq!(second.as_mut().poll(&mut cx), Poll::Ready(Some("cli".into())));
    }

    #[test]
    fn an_alias_differs_by_address_team_and_installation() {
        let alias = |secret: u8, team: u128, ip: &str| {
            let key = AliasKey::of(&InstallSecret([secret; 32]));
            key.alias(Some(TeamId(Uuid::from_u128(team))), ip.parse().unwrap())
        };
        let ours = alias(1, 1, "192.0.2.7");
        assert_eq!((ours.id.len(), ours.name.as_str()), (3 + 32, "192.0.2.7"));
        assert_eq!(ours, alias(1, 1, "192.0.2.7"));
        for other in [alias(1, 1, "192.0.2.8"), alias(1, 2, "192.0.2.7"), alias(2, 1, "192.0.2.7")] {
            assert_ne!(ours.id, other.id);
        }
    }

    #[test]
    fn nothing_is_set_outside_of_a_scope() {
        CallOrigin::of_system("cli", Time(1)).set();
        assert_eq!(current_actor(), None);
        let origin = Some(Arc::new(CallOrigin::of_system("cli", Time(1))));
        assert_eq!(CallOrigin::run(origin, current_actor), Some("cli".into()));
        assert_eq!(current_actor(), None);
    }
}

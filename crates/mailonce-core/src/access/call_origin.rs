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
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use crate::{
    id::{ApiKeyId, TeamId},
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
        /// mailonce itself: a command on the server, the configuration, or a worker.
        System = "system",
    }
}

/// Who acts. The id of a person or an API key is resolved to a name outside of the audit log.
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

/// Who makes the running call, and from where.
#[derive(Clone, PartialEq, Eq)]
pub struct CallOrigin {
    /// Who acts.
    pub actor: Actor,
    /// The actor's team. Its audit log records acts that belong to no team.
    pub team: Option<TeamId>,
    /// A word such as `cli`, or the alias of an IP address.
    pub from: CallSource,
    /// When the call began.
    pub at: Time,
}

/// From where a call comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallSource {
    /// This machine.
    Local(&'static str),
    /// An IP address, by its alias.
    Address(Alias),
}

impl CallSource {
    /// The text that the audit log records.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Local(word) => word,
            Self::Address(alias) => &alias.id,
        }
    }
}

impl CallOrigin {
    /// A call with an API key.
    pub fn of_api_key(key: ApiKeyId, team: TeamId, from: CallSource, at: Time) -> Self {
        Self { actor: Actor { kind: ActorKind::ApiKey, id: key.to_string() }, team: Some(team), from, at }
    }

    /// mailonce itself, on behalf of nobody who can be named: `server` or `cli`.
    pub fn of_system(what: &'static str, at: Time) -> Self {
        let actor = Actor { kind: ActorKind::System, id: what.to_owned() };
        Self { actor, team: None, from: CallSource::Local(what), at }
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
        let _entered = Entered::enter(&mut slot);
        work()
    }
}

impl fmt::Debug for CallOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CallOrigin({} {} from {})", self.actor.kind.as_str(), self.actor.id, self.from.as_str())
    }
}

/// Outside of a scope there is no slot. Inside, the slot is empty until the caller is known.
type Slot = Option<Option<Arc<CallOrigin>>>;

thread_local! {
    static CURRENT: RefCell<Slot> = const { RefCell::new(None) };
}

/// Swaps a slot with that of the thread, and swaps back when dropped, also after a panic.
struct Entered<'a>(&'a mut Slot);

impl<'a> Entered<'a> {
    fn enter(slot: &'a mut Slot) -> Self {
        CURRENT.with_borrow_mut(|current| mem::swap(current, slot));
        Self(slot)
    }
}

impl Drop for Entered<'_> {
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
        let _entered = Entered::enter(&mut this.slot);
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
        CallOrigin::current().map(|origin| origin.actor.id.clone())
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
    fn nothing_is_set_outside_of_a_scope() {
        CallOrigin::of_system("cli", Time(1)).set();
        assert_eq!(current_actor(), None);
        let origin = Some(Arc::new(CallOrigin::of_system("cli", Time(1))));
        assert_eq!(CallOrigin::run(origin, current_actor), Some("cli".into()));
        assert_eq!(current_actor(), None);
    }
}

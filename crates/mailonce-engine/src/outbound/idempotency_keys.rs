//! Idempotency keys: inspect, extend, forget.

use crate::{access::caller::Caller, outbound::Outbound, runtime::problems::unavailable};
use mailonce_core::{
    key::{EmailKey, Key},
    outbound::{
        email::Email,
        key_binding::{KeyBinding, KeyChangeResult, KeyView},
    },
    problem::{Code, Problem},
    ttl::Ttl,
};

impl Outbound {
    /// The state of a key, forgotten or not.
    pub async fn key(&self, caller: &Caller, key: &Key) -> Result<KeyView, Problem> {
        let hash = EmailKey::Given(key.clone()).hash(caller.team.id);
        let view = self.ctx.store.key(caller.team.id, hash, self.ctx.now()).await.map_err(unavailable)?;
        view.filter(|view| may_see_key(caller, view)).ok_or_else(|| key_not_found(key))
    }

    /// Extends how long a key is remembered. A shorter ttl is refused, because it could forget the key silently;
    /// `forget_key` does that explicitly.
    pub async fn extend_key(&self, caller: &Caller, key: &Key, ttl: Ttl) -> Result<Email, Problem> {
        if let Some(KeyBinding::Email(email)) = self.key(caller, key).await?.binding
            && ttl.0 < email.ttl.0
        {
            let message = "is shorter than the current ttl of the key; to forget the key now, use DELETE";
            return Err(Problem::invalid_field("ttl", message));
        }
        let hash = EmailKey::Given(key.clone()).hash(caller.team.id);
        let change = self.ctx.store.extend_key(caller.team.id, hash, ttl, self.ctx.now()).await.map_err(unavailable)?;
        key_change_result(change, key)
    }

    /// Forgets a key now. The next call with it creates a new email.
    pub async fn forget_key(&self, caller: &Caller, key: &Key) -> Result<Email, Problem> {
        self.key(caller, key).await?;
        let hash = EmailKey::Given(key.clone()).hash(caller.team.id);
        let change = self.ctx.store.forget_key(caller.team.id, hash, self.ctx.now()).await.map_err(unavailable)?;
        key_change_result(change, key)
    }
}

/// Whether the caller may see a key. For operations and forgotten emails the ledger has no inbox, so a restricted API
/// key sees neither.
fn may_see_key(caller: &Caller, view: &KeyView) -> bool {
    match &view.binding {
        Some(KeyBinding::Email(email)) => caller.may_see_sender(&email.head.from),
        Some(KeyBinding::Operation { .. }) | None => caller.inbox_restriction.is_none(),
    }
}

fn key_change_result(change: KeyChangeResult, key: &Key) -> Result<Email, Problem> {
    match change {
        KeyChangeResult::Done(email) => Ok(email),
        KeyChangeResult::NotTerminal(email) => {
            let detail = format!(
                "its email {} is {}; a key is never forgotten before its email is finished",
                email.id,
                email.state().as_str()
            );
            Err(Problem::new(Code::NotTerminal, detail))
        }
        KeyChangeResult::Missing => Err(key_not_found(key)),
    }
}

fn key_not_found(key: &Key) -> Problem {
    Problem::new(Code::NotFound, format!("the key `{key}` is not bound to an email"))
}

//! Looking at the names of wishes: inspect, extend, forget.

use mailonce_core::{
    email::Email,
    key::{Key, KeyName},
    port::store::{Bound, KeyChange, KeyView},
    problem::{Code, FieldError, Problem},
    ttl::Ttl,
};

use crate::{Caller, Engine, unavailable};

impl Engine {
    /// What a key is, forgotten or not.
    pub async fn key(&self, caller: &Caller, key: &Key) -> Result<KeyView, Problem> {
        let hash = KeyName::Given(key.clone()).hash(caller.team.id);
        let view = self.store.key(caller.team.id, hash, self.now()).await.map_err(unavailable)?;
        view.filter(|view| may_see(caller, view)).ok_or_else(|| never_bound(key))
    }

    /// Gives a key a longer memory. A shorter one would forget it without a word, and that has a call of its own.
    pub async fn extend_key(&self, caller: &Caller, key: &Key, ttl: Ttl) -> Result<Email, Problem> {
        if let Some(Bound::Email(email)) = self.key(caller, key).await?.bound
            && ttl.0 < email.ttl.0
        {
            let fault =
                FieldError::new("ttl", "is shorter than the memory that the key has; forgetting it is a DELETE");
            return Err(Problem::from(vec![fault]));
        }
        let hash = KeyName::Given(key.clone()).hash(caller.team.id);
        let change = self.store.extend_key(caller.team.id, hash, ttl, self.now()).await.map_err(unavailable)?;
        told(change, key)
    }

    /// Forgets a key now. The next call with it is a new wish.
    pub async fn forget_key(&self, caller: &Caller, key: &Key) -> Result<Email, Problem> {
        self.key(caller, key).await?;
        let hash = KeyName::Given(key.clone()).hash(caller.team.id);
        let change = self.store.forget_key(caller.team.id, hash, self.now()).await.map_err(unavailable)?;
        told(change, key)
    }
}

/// Whether a key is the caller's to see. Whose operation or forgotten email it was, the ledger does not say.
fn may_see(caller: &Caller, view: &KeyView) -> bool {
    match &view.bound {
        Some(Bound::Email(email)) => caller.may_see_from(&email.head.from),
        Some(Bound::Operation { .. }) | None => caller.ties.is_none(),
    }
}

fn told(change: KeyChange, key: &Key) -> Result<Email, Problem> {
    match change {
        KeyChange::Done(email) => Ok(email),
        KeyChange::NotTerminal(email) => {
            let detail = format!(
                "its email {} is {}; a key is never forgotten before its email is finished",
                email.id,
                email.state().word()
            );
            Err(Problem::new(Code::NotTerminal, detail))
        }
        KeyChange::Missing => Err(never_bound(key)),
    }
}

fn never_bound(key: &Key) -> Problem {
    Problem::new(Code::NotFound, format!("the key `{key}` is not bound to an email"))
}

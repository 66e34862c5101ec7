//! Conversations in a simulated world: the model's verbs behind the same network as the rest of the ledger. What they
//! commit is written down, also when the answer is lost.

use async_trait::async_trait;
use mailonce_core::{
    conversation::{
        answer::{AnswerWish, Answered},
        thread::{LeaseAsk, Leasing, NextAsk, Offer, Settled, Thread, ThreadEdit, ThreadQuery},
        turn::{Held, Settling},
    },
    id::{EmailId, TeamId, ThreadId},
    port::{
        conversations::Conversations,
        store::{Once, Operation, Result},
    },
    time::Time,
};

use super::ledger::Ledger;

macro_rules! conversations {
    (
        writes { $(fn $write:ident($($warg:ident: $wtype:ty),*) -> $wout:ty;)* }
        reads { $(fn $read:ident($($rarg:ident: $rtype:ty),*) -> $rout:ty;)* }
        noted { $($noted:item)* }
    ) => {
        #[async_trait]
        impl Conversations for Ledger {
            $(async fn $write(&self, $($warg: $wtype),*) -> Result<$wout> {
                self.verb(stringify!($write), true, self.inner.$write($($warg),*)).await
            })*
            $(async fn $read(&self, $($rarg: $rtype),*) -> Result<$rout> {
                self.verb(stringify!($read), false, self.inner.$read($($rarg),*)).await
            })*
            $($noted)*
        }
    };
}

conversations! {
    writes {
        fn change_thread(team: TeamId, id: ThreadId, edit: ThreadEdit, now: Time) -> Option<Thread>;
    }
    reads {
        fn thread(team: TeamId, id: ThreadId) -> Option<Thread>;
        fn threads(team: TeamId, query: ThreadQuery) -> Vec<Thread>;
        fn thread_emails(team: TeamId, id: ThreadId, after: Option<EmailId>, limit: usize) -> Vec<EmailId>;
    }
    noted {
        async fn answer(&self, wish: AnswerWish, now: Time) -> Result<Answered> {
            let noted = async {
                let answered = self.inner.answer(wish.clone(), now).await?;
                self.body.shared.answered(&wish, &answered, now);
                Ok(answered)
            };
            self.verb("answer", true, noted).await
        }

        async fn lease_thread(
            &self,
            team: TeamId,
            id: ThreadId,
            ask: LeaseAsk,
            operation: Option<Operation>,
            now: Time,
        ) -> Result<Once<Leasing>> {
            let noted = async {
                let leasing = self.inner.lease_thread(team, id, ask.clone(), operation, now).await?;
                self.body.shared.leased(&ask, &leasing, now);
                Ok(leasing)
            };
            self.verb("lease thread", true, noted).await
        }

        async fn release_thread(&self, team: TeamId, id: ThreadId, token: &str, now: Time) -> Result<Option<Thread>> {
            let noted = async {
                let before = self.inner.thread(team, id).await?;
                let released = self.inner.release_thread(team, id, token, now).await?;
                let changed = released.as_ref().filter(|thread| before.is_some_and(|before| before.rev != thread.rev));
                if let Some(thread) = changed {
                    self.body.shared.released(thread, token, now);
                }
                Ok(released)
            };
            self.verb("release thread", true, noted).await
        }

        async fn next_messages(
            &self,
            team: TeamId,
            ask: NextAsk,
            operation: Option<Operation>,
            now: Time,
        ) -> Result<Once<Vec<Offer>>> {
            let noted = async {
                let offers = self.inner.next_messages(team, ask, operation, now).await?;
                self.body.shared.offered(&offers, now);
                Ok(offers)
            };
            self.verb("next messages", true, noted).await
        }

        async fn settle_message(&self, team: TeamId, held: Held, how: Settling, now: Time) -> Result<Settled> {
            let noted = async {
                let settled = self.inner.settle_message(team, held.clone(), how, now).await?;
                self.body.shared.settled(&held, how, &settled, now);
                Ok(settled)
            };
            self.verb("settle message", true, noted).await
        }
    }
}

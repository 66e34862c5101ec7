//! Conversations in a simulated world: the model's verbs behind the same network as the rest of the ledger.

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
    ) => {
        #[async_trait]
        impl Conversations for Ledger {
            $(async fn $write(&self, $($warg: $wtype),*) -> Result<$wout> {
                self.verb(stringify!($write), true, self.inner.$write($($warg),*)).await
            })*
            $(async fn $read(&self, $($rarg: $rtype),*) -> Result<$rout> {
                self.verb(stringify!($read), false, self.inner.$read($($rarg),*)).await
            })*
        }
    };
}

conversations! {
    writes {
        fn answer(wish: AnswerWish, now: Time) -> Answered;
        fn change_thread(team: TeamId, id: ThreadId, edit: ThreadEdit, now: Time) -> Option<Thread>;
        fn lease_thread(team: TeamId, id: ThreadId, ask: LeaseAsk, operation: Option<Operation>, now: Time) -> Once<Leasing>;
        fn release_thread(team: TeamId, id: ThreadId, token: &str, now: Time) -> Option<Thread>;
        fn next_messages(team: TeamId, ask: NextAsk, operation: Option<Operation>, now: Time) -> Once<Vec<Offer>>;
        fn settle_message(team: TeamId, held: Held, how: Settling, now: Time) -> Settled;
    }
    reads {
        fn thread(team: TeamId, id: ThreadId) -> Option<Thread>;
        fn threads(team: TeamId, query: ThreadQuery) -> Vec<Thread>;
        fn thread_emails(team: TeamId, id: ThreadId, after: Option<EmailId>, limit: usize) -> Vec<EmailId>;
    }
}

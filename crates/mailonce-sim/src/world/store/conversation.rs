//! Conversations in a simulated world: the memory store behind the faulty network. Commits are recorded even if the
//! reply is lost.

use async_trait::async_trait;
use mailonce_core::{
    conversation::{
        message_progress::{Acknowledgement, MessageLeaseRef},
        reply_guards::{NewReply, ReplyResult},
        thread::{
            AcknowledgeResult, MessageLeaseSpec, MessageOffer, Thread, ThreadEdit, ThreadLeaseResult, ThreadLeaseSpec,
            ThreadQuery,
        },
    },
    id::{EmailId, TeamId, ThreadId},
    operation::{IdempotentResult, KeyedOperation},
    ports::{conversation_store::ConversationStore, store::Result},
    time::Time,
};

use crate::world::{mutants::ports, store::FaultyStore};

macro_rules! conversations {
    (
        writes { $(fn $write:ident($($warg:ident: $wtype:ty),*) -> $wout:ty;)* }
        reads { $(fn $read:ident($($rarg:ident: $rtype:ty),*) -> $rout:ty;)* }
        noted { $($noted:item)* }
    ) => {
        #[async_trait]
        impl ConversationStore for FaultyStore {
            $(async fn $write(&self, $($warg: $wtype),*) -> Result<$wout> {
                self.call_with_faults(stringify!($write), true, self.inner.$write($($warg),*)).await
            })*
            $(async fn $read(&self, $($rarg: $rtype),*) -> Result<$rout> {
                self.call_with_faults(stringify!($read), false, self.inner.$read($($rarg),*)).await
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
        async fn accept_reply(&self, request: NewReply, now: Time) -> Result<ReplyResult> {
            let mut altered = request.clone();
            ports::alter_reply(&mut altered);
            let noted = async {
                let answered = self.inner.accept_reply(altered, now).await?;
                self.process.shared.record_reply(&request, &answered, now);
                Ok(answered)
            };
            self.call_with_faults("answer", true, noted).await
        }

        async fn lease_thread(
            &self,
            team: TeamId,
            id: ThreadId,
            spec: ThreadLeaseSpec,
            operation: Option<KeyedOperation>,
            now: Time,
        ) -> Result<IdempotentResult<ThreadLeaseResult>> {
            let noted = async {
                let leasing = self.inner.lease_thread(team, id, spec.clone(), operation, now).await?;
                self.process.shared.record_lease(&spec, &leasing, now);
                Ok(leasing)
            };
            self.call_with_faults("lease thread", true, noted).await
        }

        async fn release_thread(&self, team: TeamId, id: ThreadId, token: &str, now: Time) -> Result<Option<Thread>> {
            let noted = async {
                let before = self.inner.thread(team, id).await?;
                let released = self.inner.release_thread(team, id, token, now).await?;
                let changed = released.as_ref().filter(|thread| before.is_some_and(|before| before.rev != thread.rev));
                if let Some(thread) = changed {
                    self.process.shared.record_release(thread, token, now);
                }
                Ok(released)
            };
            self.call_with_faults("release thread", true, noted).await
        }

        async fn lease_messages(
            &self,
            team: TeamId,
            spec: MessageLeaseSpec,
            operation: Option<KeyedOperation>,
            now: Time,
        ) -> Result<IdempotentResult<Vec<MessageOffer>>> {
            let noted = async {
                let offers = self.inner.lease_messages(team, spec, operation, now).await?;
                self.process.shared.record_offers(&offers, now);
                Ok(offers)
            };
            self.call_with_faults("next messages", true, noted).await
        }

        async fn acknowledge_message(&self, team: TeamId, held: MessageLeaseRef, how: Acknowledgement, now: Time) -> Result<AcknowledgeResult> {
            let noted = async {
                let settled = self.inner.acknowledge_message(team, held.clone(), ports::alter_acknowledgement(how), now).await?;
                self.process.shared.record_settled(&held, how, &settled, now);
                Ok(settled)
            };
            self.call_with_faults("acknowledge message", true, noted).await
        }
    }
}

//! The event part of the store, as one process of a node sees it.

use crate::world::store::FaultyStore;
use async_trait::async_trait;
use mailonce_core::{
    events::{
        endpoint::{Endpoint, EndpointChangeResult, EndpointEdit, EndpointGauge, EndpointStart},
        notice::{
            FanOutCounts, LeasedNotice, Notice, NoticeOutcome, NoticeQuery, NoticeRecovery, NoticeRecoveryResult,
        },
    },
    id::{EndpointId, NodeId, NoticeId, TeamId},
    operation::{IdempotentResult, KeyedOperation},
    ports::{notice_store::NoticeStore, store::Result},
    time::Time,
};

/// Implements the port: each method goes through the faulty network.
macro_rules! notices {
    (
        writes { $(fn $write:ident($($warg:ident: $wtype:ty),*) -> $wout:ty;)* }
        reads { $(fn $read:ident($($rarg:ident: $rtype:ty),*) -> $rout:ty;)* }
    ) => {
        #[async_trait]
        impl NoticeStore for FaultyStore {
            $(async fn $write(&self, $($warg: $wtype),*) -> Result<$wout> {
                self.call_with_faults(stringify!($write), true, self.inner.$write($($warg),*)).await
            })*
            $(async fn $read(&self, $($rarg: $rtype),*) -> Result<$rout> {
                self.call_with_faults(stringify!($read), false, self.inner.$read($($rarg),*)).await
            })*
        }
    };
}

notices! {
    writes {
        fn create_endpoint(endpoint: Endpoint, start: EndpointStart, operation: Option<KeyedOperation>) -> IdempotentResult<Endpoint>;
        fn change_endpoint(edit: EndpointEdit, operation: Option<KeyedOperation>, now: Time) -> IdempotentResult<EndpointChangeResult>;
        fn remove_endpoint(team: TeamId, id: EndpointId) -> Option<Endpoint>;
        fn fan_out(max: usize, now: Time) -> FanOutCounts;
        fn lease_notices(team: TeamId, endpoint: EndpointId, node: NodeId, max: usize, now: Time) -> Vec<LeasedNotice>;
        fn record_notice_outcome(settle: NoticeOutcome, now: Time) -> Option<Notice>;
        fn replay_notice(team: TeamId, id: NoticeId, operation: Option<KeyedOperation>, now: Time) -> IdempotentResult<Option<Notice>>;
        fn recover_notices(team: TeamId, endpoint: EndpointId, recovery: NoticeRecovery, operation: Option<KeyedOperation>, now: Time) -> IdempotentResult<Option<NoticeRecoveryResult>>;
    }
    reads {
        fn endpoint(team: TeamId, id: EndpointId) -> Option<Endpoint>;
        fn endpoints(team: TeamId, before: Option<EndpointId>, limit: usize) -> Vec<Endpoint>;
        fn endpoints_with_due_notices(max: usize, now: Time) -> Vec<Endpoint>;
        fn next_notice_due() -> Option<Time>;
        fn notice(team: TeamId, id: NoticeId) -> Option<Notice>;
        fn notices(team: TeamId, endpoint: EndpointId, query: NoticeQuery) -> Vec<Notice>;
        fn endpoint_gauges() -> Vec<EndpointGauge>;
    }
}

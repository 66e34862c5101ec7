//! The part of the store for telling others, as one life of a node sees it.

use super::ledger::Ledger;
use async_trait::async_trait;
use mailonce_core::{
    endpoint::{Endpoint, EndpointChange, EndpointEdit, EndpointGauge, Start},
    id::{EndpointId, NodeId, NoticeId, TeamId},
    notice::{Notice, NoticeQuery, NoticeSettle, Owed, Recovering, Recovery, Spread},
    port::{
        notices::Notices,
        store::{Once, Operation, Result},
    },
    time::Time,
};

/// Writes the port out: each verb passes through [`Ledger::verb`].
macro_rules! notices {
    (
        writes { $(fn $write:ident($($warg:ident: $wtype:ty),*) -> $wout:ty;)* }
        reads { $(fn $read:ident($($rarg:ident: $rtype:ty),*) -> $rout:ty;)* }
    ) => {
        #[async_trait]
        impl Notices for Ledger {
            $(async fn $write(&self, $($warg: $wtype),*) -> Result<$wout> {
                self.verb(stringify!($write), true, self.inner.$write($($warg),*)).await
            })*
            $(async fn $read(&self, $($rarg: $rtype),*) -> Result<$rout> {
                self.verb(stringify!($read), false, self.inner.$read($($rarg),*)).await
            })*
        }
    };
}

notices! {
    writes {
        fn create_endpoint(endpoint: Endpoint, start: Start, operation: Option<Operation>) -> Once<Endpoint>;
        fn change_endpoint(edit: EndpointEdit, operation: Option<Operation>, now: Time) -> Once<EndpointChange>;
        fn remove_endpoint(team: TeamId, id: EndpointId) -> Option<Endpoint>;
        fn spread(max: usize, now: Time) -> Spread;
        fn lease_notices(team: TeamId, endpoint: EndpointId, node: NodeId, max: usize, now: Time) -> Vec<Owed>;
        fn settle_notice(settle: NoticeSettle, now: Time) -> Option<Notice>;
        fn replay_notice(team: TeamId, id: NoticeId, operation: Option<Operation>, now: Time) -> Once<Option<Notice>>;
        fn recover_notices(team: TeamId, endpoint: EndpointId, recovery: Recovery, operation: Option<Operation>, now: Time) -> Once<Option<Recovering>>;
    }
    reads {
        fn endpoint(team: TeamId, id: EndpointId) -> Option<Endpoint>;
        fn endpoints(team: TeamId, before: Option<EndpointId>, limit: usize) -> Vec<Endpoint>;
        fn endpoints_due(max: usize, now: Time) -> Vec<Endpoint>;
        fn next_notice_due() -> Option<Time>;
        fn notice(team: TeamId, id: NoticeId) -> Option<Notice>;
        fn notices(team: TeamId, endpoint: EndpointId, query: NoticeQuery) -> Vec<Notice>;
        fn endpoint_gauges() -> Vec<EndpointGauge>;
    }
}

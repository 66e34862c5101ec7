//! Promises about OAuth clients: everybody can register one, and what strangers store is bounded.

use mailonce_core::{
    access::oauth_client::{
        OauthClient, OauthClientDetails, REGISTRATION_LIMITS, RegisterClientResult, RegistrationLimits,
    },
    id::OauthClientId,
    time::Time,
};

use crate::conformance::{HOUR, SECOND, T0, TestStore, all_at_once, next_id};

fn client_of(network: u8, at: Time) -> OauthClient {
    OauthClient {
        id: OauthClientId(next_id(at)),
        registered_from: [network; 32],
        details: OauthClientDetails {
            name: "Robot \u{e9}".into(),
            redirect_uris: vec!["https://robot.test/cb".into()],
        },
        created_at: at,
        connected_at: None,
    }
}

async fn register(store: &TestStore, client: &OauthClient, limits: RegistrationLimits) -> RegisterClientResult {
    store.register_oauth_client(client.clone(), limits).await.unwrap()
}

pub(super) async fn a_client_is_registered_once(store: TestStore) {
    let client = client_of(1, T0);
    for _ in 0..50 {
        assert_eq!(register(&store, &client, REGISTRATION_LIMITS).await, RegisterClientResult::Registered);
    }
    assert_eq!(store.oauth_client(client.id).await.unwrap(), Some(client));
    assert_eq!(store.oauth_client(client_of(1, T0).id).await.unwrap(), None);
}

pub(super) async fn a_network_registers_so_many_clients_an_hour(store: TestStore) {
    for n in 0..20 {
        let client = client_of(1, T0.plus(n * SECOND));
        assert_eq!(register(&store, &client, REGISTRATION_LIMITS).await, RegisterClientResult::Registered);
    }
    let late = client_of(1, T0.plus(HOUR - 1));
    let refused = RegisterClientResult::TooMany { retry_at: T0.plus(HOUR) };
    assert_eq!(register(&store, &late, REGISTRATION_LIMITS).await, refused);
    assert_eq!(store.oauth_client(late.id).await.unwrap(), None);
    let other = client_of(2, T0.plus(HOUR - 1));
    assert_eq!(register(&store, &other, REGISTRATION_LIMITS).await, RegisterClientResult::Registered);
    let on_time = client_of(1, T0.plus(HOUR));
    assert_eq!(register(&store, &on_time, REGISTRATION_LIMITS).await, RegisterClientResult::Registered);
    let refused = RegisterClientResult::TooMany { retry_at: T0.plus(HOUR + SECOND) };
    assert_eq!(register(&store, &client_of(1, T0.plus(HOUR)), REGISTRATION_LIMITS).await, refused);
}

pub(super) async fn concurrent_registrations_stay_within_the_limit(store: TestStore) {
    let clients: Vec<OauthClient> = (0..32).map(|_| client_of(1, T0)).collect();
    let register_one = |client: OauthClient| {
        let store = store.clone();
        async move { register(&store, &client, REGISTRATION_LIMITS).await }
    };
    let results = all_at_once(clients.into_iter().map(register_one)).await;
    let registered = results.iter().filter(|result| **result == RegisterClientResult::Registered).count();
    assert_eq!(registered, 20, "{results:?}");
}

pub(super) async fn unconnected_clients_make_room_for_new_ones(store: TestStore) {
    let limits = RegistrationLimits { unconnected: 3, ..REGISTRATION_LIMITS };
    let clients: Vec<OauthClient> = (0..8).map(|n| client_of(n as u8, T0.plus(n))).collect();
    for client in &clients[..2] {
        assert_eq!(register(&store, client, limits).await, RegisterClientResult::Registered);
    }
    assert!(store.mark_oauth_client_connected(clients[0].id, T0.plus(SECOND)).await.unwrap());
    for client in &clients[2..] {
        assert_eq!(register(&store, client, limits).await, RegisterClientResult::Registered);
    }
    let mut left = Vec::new();
    for (n, client) in clients.iter().enumerate() {
        left.extend(store.oauth_client(client.id).await.unwrap().map(|_| n));
    }
    assert_eq!(left, [0, 5, 6, 7]);
}

pub(super) async fn a_client_is_kept_from_its_first_connection(store: TestStore) {
    let client = client_of(1, T0);
    assert!(!store.mark_oauth_client_connected(client.id, T0).await.unwrap());
    assert_eq!(register(&store, &client, REGISTRATION_LIMITS).await, RegisterClientResult::Registered);
    for seconds in [1, 2] {
        assert!(store.mark_oauth_client_connected(client.id, T0.plus(seconds * SECOND)).await.unwrap());
    }
    let kept = store.oauth_client(client.id).await.unwrap().unwrap();
    assert_eq!(kept, OauthClient { connected_at: Some(T0.plus(SECOND)), ..client });
}

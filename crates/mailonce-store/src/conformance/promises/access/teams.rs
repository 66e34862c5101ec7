//! Promises about teams, their API keys, and the isolation between teams.

use mailonce_core::{
    access::team::{ApiKey, ApiKeyDetails, ApiKeyScope, CreateTeamResult, Team},
    id::{ApiKeyId, TeamId},
    operation::{IdempotentResult, KeyedOperation},
    outbound::{
        email_commands::{EmailChangeResult, EmailResendResult, RescheduleRequest},
        email_query::EmailQuery,
        key_binding::{KeyBinding, KeyChangeResult},
        suppressed_call::SuppressedCalls,
    },
    time::Time,
    ttl::Ttl,
};

use crate::conformance::{
    DAY, HOUR, OTHER_TEAM, T0, TEAM, TestStore, accept_and_send, accept_first, all_events, given_key_hash,
    intent_email, keyed_email, list_all, load_detail, load_email, new_operation, next_id, next_version,
};

/// A team besides the two that every promise gets.
fn new_team(name: &str) -> Team {
    Team { id: TeamId(next_id(T0)), name: name.into(), created_at: T0, require_keys: false }
}

fn new_api_key(team: TeamId, hash: u8) -> ApiKey {
    ApiKey {
        id: ApiKeyId(next_id(T0)),
        team,
        hash: [hash; 32],
        details: ApiKeyDetails {
            name: format!("credential {hash}"),
            hint: "mo_abcd".into(),
            scopes: vec![ApiKeyScope::Send, ApiKeyScope::Read],
            senders: vec!["@example.com".into()],
            inboxes: Vec::new(),
            rate_per_s: Some(5),
            expires_at: Some(T0.plus(90 * DAY)),
            allow_ips: vec!["10.0.0.0/8".parse().unwrap()],
            on_behalf_of: None,
        },
        created_at: T0,
        revoked_at: None,
        last_used_at: None,
    }
}

async fn create_api_key(store: &TestStore, key: &ApiKey) {
    assert_eq!(store.create_api_key(key.clone(), None).await.unwrap(), IdempotentResult::Done(()));
}

pub(super) async fn the_same_key_in_two_teams_is_two_emails(store: TestStore) {
    let mine = accept_first(&store, &keyed_email("k"), T0).await;
    let theirs = accept_first(&store, &keyed_email("k").team(OTHER_TEAM), T0).await;

    assert_ne!(mine.id, theirs.id);
    assert_eq!((mine.bind_number, theirs.bind_number), (1, 1));
}

pub(super) async fn nothing_of_another_team_can_be_read(store: TestStore) {
    let mine = accept_and_send(&store, &keyed_email("k"), T0).await;
    let key = given_key_hash(TEAM, "k");

    assert_eq!(store.email(OTHER_TEAM, mine.id).await.unwrap(), None);
    assert_eq!(store.email_detail(OTHER_TEAM, mine.id).await.unwrap(), None);
    assert_eq!(list_all(&store, OTHER_TEAM).await, []);
    let by_key = EmailQuery { key: Some(key), limit: 10, ..EmailQuery::default() };
    assert_eq!(store.emails(OTHER_TEAM, by_key).await.unwrap().rows, []);
    assert_eq!(all_events(&store, OTHER_TEAM).await, []);
    for name in [key, given_key_hash(OTHER_TEAM, "k")] {
        assert_eq!(store.key_binding(OTHER_TEAM, name, T0).await.unwrap(), None);
        assert_eq!(store.key(OTHER_TEAM, name, T0).await.unwrap(), None);
    }
}

pub(super) async fn nothing_of_another_team_can_be_changed(store: TestStore) {
    let ended = accept_and_send(&store, &keyed_email("k"), T0).await;
    let open = accept_first(&store, &keyed_email("open").due(T0.plus(DAY)), T0).await;
    let before = (all_events(&store, TEAM).await, load_detail(&store, ended.id).await);
    let theirs = next_version(&ended).team(OTHER_TEAM).to_new_email(T0);
    let note = SuppressedCalls { team: OTHER_TEAM, email: ended.id, count: 1, latest: vec![] };

    assert_eq!(
        store.cancel(OTHER_TEAM, open.id, None, T0).await.unwrap(),
        IdempotentResult::Done(EmailChangeResult::Missing)
    );
    assert_eq!(
        store.reschedule(OTHER_TEAM, open.id, RescheduleRequest::without_charges(T0.plus(HOUR)), T0).await.unwrap(),
        EmailChangeResult::Missing
    );
    assert_eq!(store.resend(theirs, None, T0).await.unwrap(), IdempotentResult::Done(EmailResendResult::Missing));
    assert_eq!(
        store.extend_key(OTHER_TEAM, given_key_hash(TEAM, "k"), Ttl(1), T0).await.unwrap(),
        KeyChangeResult::Missing
    );
    assert_eq!(store.forget_key(OTHER_TEAM, given_key_hash(TEAM, "k"), T0).await.unwrap(), KeyChangeResult::Missing);
    store.record_suppressed_calls(vec![note], T0).await.unwrap();

    assert_eq!((all_events(&store, TEAM).await, load_detail(&store, ended.id).await), before);
    assert_eq!(load_email(&store, open.id).await, open);
    assert_eq!((all_events(&store, OTHER_TEAM).await, list_all(&store, OTHER_TEAM).await), (vec![], vec![]));
}

pub(super) async fn recipients_of_another_team_do_not_overlap(store: TestStore) {
    let _mine = accept_first(&store, &intent_email("o", &["a@example.com", "b@example.com"]), T0).await;
    let theirs = accept_first(&store, &intent_email("o", &["a@example.com"]).team(OTHER_TEAM), T0).await;
    assert_eq!(theirs.guard, None);
}

pub(super) async fn a_team_is_created_with_its_first_api_key(store: TestStore) {
    let team = new_team("Café ☕");
    let key = new_api_key(team.id, 9);

    assert_eq!(
        store.create_team(team.clone(), key.clone(), None).await.unwrap(),
        IdempotentResult::Done(CreateTeamResult::Created)
    );

    assert!(store.teams().await.unwrap().contains(&team));
    assert_eq!(store.api_keys(team.id).await.unwrap(), std::slice::from_ref(&key));
    assert_eq!(store.api_key_by_hash([9; 32]).await.unwrap(), Some((key, team)));
}

pub(super) async fn creating_a_team_twice_creates_it_once(store: TestStore) {
    let team = new_team("one");
    let key = new_api_key(team.id, 9);
    let _created = store.create_team(team.clone(), key.clone(), None).await.unwrap();

    let renamed = Team { name: "two".into(), ..team.clone() };
    assert_eq!(
        store.create_team(renamed, key.clone(), None).await.unwrap(),
        IdempotentResult::Done(CreateTeamResult::Created)
    );

    assert_eq!(store.api_key_by_hash([9; 32]).await.unwrap(), Some((key, team)));
}

pub(super) async fn replaying_a_team_creation_creates_no_second_team(store: TestStore) {
    let (one, two) = (new_team("one"), new_team("two"));
    let (first_key, second_key) = (new_api_key(one.id, 8), new_api_key(two.id, 9));
    let before = store.teams().await.unwrap().len();
    let done = store.create_team(one, first_key, Some(new_operation("op", 1, T0))).await.unwrap();

    let again = store.create_team(two.clone(), second_key.clone(), Some(new_operation("op", 1, T0))).await.unwrap();
    let other = store.create_team(two, second_key, Some(new_operation("op", 2, T0))).await.unwrap();

    assert_eq!(
        (done, again),
        (IdempotentResult::Done(CreateTeamResult::Created), IdempotentResult::Replayed(b"answer 1".to_vec()))
    );
    assert_eq!(other, IdempotentResult::KeyMismatch(KeyBinding::Operation { digest: [1; 32] }));
    assert_eq!(store.teams().await.unwrap().len(), before + 1);
    assert_eq!(store.api_key_by_hash([9; 32]).await.unwrap(), None);
}

pub(super) async fn a_team_name_belongs_to_one_team(store: TestStore) {
    let (one, two) = (new_team("one"), new_team("one"));
    let (first_key, second_key) = (new_api_key(one.id, 8), new_api_key(two.id, 9));
    let _created = store.create_team(one.clone(), first_key, None).await.unwrap();

    let taken = store.create_team(two.clone(), second_key.clone(), Some(new_operation("op", 1, T0))).await.unwrap();

    assert_eq!(taken, IdempotentResult::Done(CreateTeamResult::NameTaken));
    let named: Vec<Team> = store.teams().await.unwrap().into_iter().filter(|team| team.name == "one").collect();
    assert_eq!(named, [one]);
    assert_eq!(store.api_key_by_hash([9; 32]).await.unwrap(), None);
    let other = Team { name: "two".into(), ..two };
    let free = store.create_team(other, second_key, Some(new_operation("op", 2, T0))).await.unwrap();
    assert_eq!(free, IdempotentResult::Done(CreateTeamResult::Created));
}

pub(super) async fn of_16_concurrent_teams_of_one_name_one_is_created(store: TestStore) {
    let tasks = (0..16).map(|n| {
        let (store, team) = (store.clone(), new_team("one"));
        let key = new_api_key(team.id, 100 + n);
        tokio::spawn(async move { store.create_team(team, key, None).await.unwrap() })
    });
    let tasks: Vec<_> = tasks.collect();
    let mut created = 0;
    for task in tasks {
        created += usize::from(task.await.unwrap() == IdempotentResult::Done(CreateTeamResult::Created));
    }

    assert_eq!(created, 1);
    assert_eq!(store.teams().await.unwrap().iter().filter(|team| team.name == "one").count(), 1);
}

pub(super) async fn a_team_can_require_keys(store: TestStore) {
    let team = store.set_require_keys(TEAM, true).await.unwrap().unwrap();
    assert!(team.require_keys);
    assert!(store.teams().await.unwrap().contains(&team));
    assert!(!store.set_require_keys(TEAM, false).await.unwrap().unwrap().require_keys);
    assert_eq!(store.set_require_keys(TeamId(next_id(T0)), true).await.unwrap(), None);
}

pub(super) async fn api_keys_are_listed_newest_first(store: TestStore) {
    let team = new_team("third");
    let keys = [new_api_key(team.id, 3), new_api_key(team.id, 4), new_api_key(team.id, 5)];
    let _created = store.create_team(team.clone(), keys[0].clone(), None).await.unwrap();
    create_api_key(&store, &keys[1]).await;
    create_api_key(&store, &keys[2]).await;

    let listed = store.api_keys(team.id).await.unwrap();

    assert_eq!(listed, [keys[2].clone(), keys[1].clone(), keys[0].clone()]);
}

pub(super) async fn replaying_an_api_key_creation_creates_no_second_key(store: TestStore) {
    let (one, two) = (new_api_key(TEAM, 8), new_api_key(TEAM, 9));
    let operation = |digest| -> Option<KeyedOperation> { Some(new_operation("op", digest, T0)) };

    assert_eq!(store.create_api_key(one, operation(1)).await.unwrap(), IdempotentResult::Done(()));
    let again = store.create_api_key(two.clone(), operation(1)).await.unwrap();
    let other = store.create_api_key(two, operation(2)).await.unwrap();

    assert_eq!(again, IdempotentResult::Replayed(b"answer 1".to_vec()));
    assert_eq!(other, IdempotentResult::KeyMismatch(KeyBinding::Operation { digest: [1; 32] }));
    assert_eq!(store.api_key_by_hash([9; 32]).await.unwrap(), None);
}

pub(super) async fn an_unknown_api_key_is_not_found(store: TestStore) {
    assert_eq!(store.api_key_by_hash([0xee; 32]).await.unwrap(), None);
}

pub(super) async fn an_api_key_is_revoked_once(store: TestStore) {
    let key = new_api_key(TEAM, 9);
    create_api_key(&store, &key).await;

    let revoked = store.revoke_api_key(TEAM, key.id, T0.plus(5)).await.unwrap().unwrap();
    let again = store.revoke_api_key(TEAM, key.id, T0.plus(9)).await.unwrap().unwrap();

    assert_eq!((revoked.revoked_at, &again), (Some(T0.plus(5)), &revoked));
    assert_eq!(store.api_key_by_hash([9; 32]).await.unwrap().unwrap().0, revoked);
    assert!(!revoked.is_active(T0.plus(5)));
}

pub(super) async fn an_api_key_cannot_be_revoked_by_another_team(store: TestStore) {
    let key = new_api_key(TEAM, 9);
    create_api_key(&store, &key).await;

    assert_eq!(store.revoke_api_key(OTHER_TEAM, key.id, T0).await.unwrap(), None);
    assert_eq!(store.revoke_api_key(TEAM, ApiKeyId(next_id(T0)), T0).await.unwrap(), None);
    assert_eq!(store.api_key_by_hash([9; 32]).await.unwrap().unwrap().0, key);
}

pub(super) async fn the_last_use_of_an_api_key_never_goes_back(store: TestStore) {
    let key = new_api_key(TEAM, 9);
    create_api_key(&store, &key).await;
    let missing = ApiKeyId(next_id(T0));

    store.touch_api_keys(vec![(key.id, T0.plus(7)), (missing, T0)]).await.unwrap();
    store.touch_api_keys(vec![(key.id, Time(T0.0 - HOUR)), (key.id, T0.plus(3))]).await.unwrap();

    let found = store.api_key_by_hash([9; 32]).await.unwrap().unwrap().0;
    assert_eq!(found, ApiKey { last_used_at: Some(T0.plus(7)), ..key });
}

pub(super) async fn the_install_secret_and_epoch_do_not_change(store: TestStore) {
    let one = store.installation().await.unwrap();
    let _email = accept_first(&store, &keyed_email("k"), T0).await;
    let two = store.installation().await.unwrap();

    assert_eq!((one.secret.0, one.epoch), (two.secret.0, two.epoch));
    assert_ne!(one.secret.0, [0; 32]);
    assert!(two.last_id > one.last_id);
}

pub(super) async fn a_fresh_store_is_healthy(store: TestStore) {
    assert!(!store.health().await.unwrap().engine.is_empty());
}

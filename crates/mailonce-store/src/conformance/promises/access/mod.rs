//! Promises about teams, their API keys, the isolation between teams, and OAuth clients.

mod oauth_clients;
mod teams;

promises! {
    /// Teams are isolated, and a team name belongs to one team.
    teams "Teams and API keys" {
        /// The same key in two teams is two emails.
        the_same_key_in_two_teams_is_two_emails,
        /// Emails, keys and events of another team cannot be read.
        nothing_of_another_team_can_be_read,
        /// Emails and keys of another team cannot be changed.
        nothing_of_another_team_can_be_changed,
        /// Emails of another team do not occupy recipients.
        recipients_of_another_team_do_not_overlap,
        /// A team is created together with its first API key.
        a_team_is_created_with_its_first_api_key,
        /// Creating a team with the same id twice creates it once.
        creating_a_team_twice_creates_it_once,
        /// Replaying the creation of a team creates no second one.
        replaying_a_team_creation_creates_no_second_team,
        /// A team name belongs to one team.
        a_team_name_belongs_to_one_team,
        /// Of 16 concurrent creations under one name one team is created.
        of_16_concurrent_teams_of_one_name_one_is_created,
        /// A team can require idempotency keys.
        a_team_can_require_keys,
        /// API keys are listed newest first.
        api_keys_are_listed_newest_first,
        /// Replaying the creation of an API key creates no second one.
        replaying_an_api_key_creation_creates_no_second_key,
        /// An unknown API key is not found.
        an_unknown_api_key_is_not_found,
        /// An API key is revoked once and keeps the time of its revocation.
        an_api_key_is_revoked_once,
        /// An API key cannot be revoked by another team.
        an_api_key_cannot_be_revoked_by_another_team,
        /// The last use of an API key never goes back.
        the_last_use_of_an_api_key_never_goes_back,
        /// The install secret and the epoch do not change.
        the_install_secret_and_epoch_do_not_change,
        /// A new store is healthy.
        a_fresh_store_is_healthy,
    }

    /// Everybody can register an OAuth client, and what strangers store is bounded.
    oauth_clients "OAuth clients" {
        /// A client is stored as it was registered, and a retry registers it once.
        a_client_is_registered_once,
        /// A network registers so many clients in an hour, and then waits. Other networks do not notice.
        a_network_registers_so_many_clients_an_hour,
        /// Of 32 concurrent registrations from one network as many succeed as are allowed.
        concurrent_registrations_stay_within_the_limit,
        /// The oldest clients that nobody connected make room for new ones. Those that a person connected stay.
        unconnected_clients_make_room_for_new_ones,
        /// The first time at which a client was connected stays.
        a_client_is_kept_from_its_first_connection,
    }
}

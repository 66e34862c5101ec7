//! Promises about received mail on its way to an inbox: deliveries, their leases and their deduplication.

mod deliveries;
mod delivery_leases;
mod races;

promises! {
    /// A mail is stored once per delivery key. Every duplicate leaves a row and an event. A mail for an inbox that no
    /// longer exists is refused inside the commit.
    deliveries "Deliveries" {
        /// A delivery is read back unchanged and emits no event before it is processed.
        a_delivery_is_read_back_unchanged,
        /// A delivery is stored once per key, and each duplicate leaves a row and an event.
        a_duplicate_delivery_is_stored_once_and_each_repeat_emits_an_event,
        /// A duplicate names the message that the first delivery became.
        a_duplicate_delivery_names_the_message_of_the_first,
        /// A delivery key finds duplicates within its team until it expires.
        a_delivery_key_deduplicates_within_its_team_until_it_expires,
        /// Equal deliveries of one received mail are stored once.
        equal_deliveries_of_one_mail_are_stored_once,
        /// A mail for several recipients makes one delivery for each, with the same bytes.
        a_mail_for_many_recipients_makes_a_delivery_for_each,
        /// Mails of 300,000 bytes and of zero bytes are stored unchanged.
        large_and_empty_mails_are_stored_unchanged,
        /// A refused delivery leaves a row and an event and binds no delivery key.
        a_refused_delivery_leaves_a_row_and_an_event_and_binds_no_key,
        /// A mail whose inbox was removed after the lookup is refused inside the commit.
        mail_for_a_removed_inbox_is_refused_in_its_commit,
        /// A repeated receive call returns the first results and writes nothing.
        a_repeated_receive_call_returns_the_first_results,
        /// Deliveries are listed newest first and can be filtered.
        deliveries_are_listed_newest_first_and_can_be_filtered,
        /// Deliveries of another team cannot be read or changed.
        deliveries_of_another_team_are_not_found,
        /// Old rows of duplicate and refused deliveries are swept; dead ones and those of messages are kept.
        old_rows_of_suppressed_deliveries_are_swept,
        /// What a removed inbox left is swept in bounded steps; waiting deliveries are refused first.
        a_removed_inbox_is_swept_in_bounded_steps,
        /// The store remembers the highest id of inboxes, deliveries and messages, even after a sweep.
        the_highest_inbound_id_is_remembered,
    }

    /// One worker at a time processes a delivery. A mail that is fetched from a provider replaces its notification
    /// once.
    delivery_leases "Leases of deliveries" {
        /// A delivery that is leased on arrival is leased to no other node until the lease expires.
        a_delivery_leased_on_arrival_is_leased_to_no_other_node,
        /// Due deliveries are leased longest due first, up to the limit.
        due_deliveries_are_leased_longest_due_first,
        /// A finished delivery does not change.
        a_finished_delivery_does_not_change,
        /// A dead delivery is kept with its bytes and can be replayed.
        a_dead_delivery_can_be_replayed,
        /// A mail that was fetched from a provider replaces its notification once.
        a_fetched_mail_replaces_its_notification_once,
        /// Deliveries that a dead node had leased are due at once; retries keep their due time.
        deliveries_of_a_dead_node_are_due_at_once,
        /// A delivery that keeps crashing nodes waits before it is leased again.
        a_delivery_that_keeps_crashing_nodes_is_delayed,
        /// A node with a recent heartbeat keeps its deliveries.
        a_node_with_a_recent_heartbeat_keeps_its_deliveries,
    }

    /// A delivery is filed once, an artifact consumed once and an address given once.
    races "Concurrent mail, workers and consumers" {
        /// Of 16 concurrent workers one files a delivery.
        of_16_concurrent_workers_one_files_a_delivery,
        /// Of 32 equal concurrent deliveries one is stored and 31 are duplicates.
        of_32_equal_concurrent_deliveries_one_is_stored,
        /// Of 16 concurrent deliveries of one message one is filed, with or without a Message-ID.
        of_16_concurrent_deliveries_of_one_message_one_is_filed,
        /// Message numbers of concurrent workers have no gaps, and replies to one message share a thread.
        message_numbers_of_concurrent_workers_have_no_gaps,
        /// Many concurrent nodes lease each delivery once.
        many_nodes_lease_each_delivery_once,
        /// Of 100 concurrent consumers one gets an artifact.
        of_100_concurrent_consumers_one_gets_an_artifact,
        /// Of 16 concurrent takes for one consumer one gets an artifact, and the others are told which.
        of_16_concurrent_takes_for_one_consumer_one_gets_an_artifact,
        /// Of 32 concurrent resend requests only as many succeed as the budget of the watch allows.
        of_32_concurrent_resend_requests_only_the_budget_is_spent,
        /// Of 32 concurrent creations with one client id one inbox is created, and all callers get it.
        of_32_concurrent_inboxes_with_one_client_id_one_is_created,
        /// Of two teams that claim an address at the same moment one gets it.
        of_two_concurrent_teams_one_gets_an_address,
    }
}

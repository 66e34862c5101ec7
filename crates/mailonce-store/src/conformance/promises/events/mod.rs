//! Promises about the event log, webhook endpoints and their notices.

mod endpoints;
mod event_log;
mod event_retention;
mod notice_races;
mod notices;

promises! {
    /// Events have no gaps and appear in order.
    event_log "The event log" {
        /// Every change of an email emits one event with its new revision.
        every_change_emits_one_event,
        /// An event has the state of the email at that moment.
        an_event_has_the_state_of_its_email,
        /// A call that changes nothing emits no event.
        a_call_that_changes_nothing_emits_no_event,
        /// Events are numbered from 1 in each team.
        events_are_numbered_from_1_in_each_team,
        /// Events are read in pages after a given number.
        events_are_read_in_pages,
        /// Events of many concurrent writers have no gaps and keep the order of each email.
        events_of_many_writers_have_no_gaps,
        /// A reader that follows the log during writes misses nothing.
        a_reader_that_follows_the_log_misses_nothing,
        /// A subscriber is notified of each change before its caller gets the answer.
        a_subscriber_is_notified_of_each_change_before_its_caller,
        /// A subscriber is notified of each step of a handoff, but not of a stale one.
        a_subscriber_is_notified_of_each_handoff_step,
        /// A subscriber is not notified of replays.
        a_subscriber_is_not_notified_of_replays,
        /// A subscriber is notified of the changes of an email in order.
        a_subscriber_is_notified_of_an_emails_changes_in_order,
    }

    /// Old events can be deleted. Whoever follows the events still gets each one.
    event_retention "Retention of events" {
        /// Old events are deleted, the others are read as before, and new events go on with the next number.
        old_events_are_deleted_and_numbers_go_on,
        /// The latest event is never deleted.
        the_latest_event_is_never_deleted,
        /// An event stays until every endpoint was looked at for it, also a paused one.
        an_event_stays_until_every_endpoint_was_looked_at_for_it,
        /// An event stays until its notices are settled. Settled notices go with their events.
        an_event_stays_until_its_notices_are_settled,
        /// A notice that is replayed while events are deleted keeps its event, or is gone.
        a_replayed_notice_keeps_its_event,
        /// With search, an event stays until it was read for the index.
        an_event_stays_until_search_has_read_it,
    }

    /// An endpoint has a cursor in the events of its team.
    endpoints "Webhook endpoints" {
        /// An endpoint is read back unchanged, including why it was disabled.
        an_endpoint_is_read_back_unchanged,
        /// Creating an endpoint twice creates it once, with or without an operation key.
        creating_an_endpoint_twice_creates_it_once,
        /// Endpoints are listed newest first, in pages.
        endpoints_are_listed_newest_first_in_pages,
        /// An endpoint is changed only with its current revision.
        an_endpoint_change_needs_the_current_rev,
        /// A new endpoint starts with the next event, or after the event that the caller names.
        a_new_endpoint_starts_at_the_next_event_or_as_requested,
        /// A removed endpoint is not found, and its notices are swept.
        a_removed_endpoint_is_not_found_and_its_notices_are_swept,
        /// Endpoints and notices of another team cannot be read or changed.
        endpoints_and_notices_of_another_team_are_not_found,
        /// A paused or disabled endpoint gets its notices after it is enabled again.
        a_paused_or_disabled_endpoint_gets_its_notices_later,
        /// A `410 Gone` answer disables the endpoint and emits one event.
        a_410_answer_disables_the_endpoint_and_emits_one_event,
        /// Two weeks of failures disable an endpoint, and a success resets the count.
        two_weeks_of_failures_disable_an_endpoint_and_a_success_resets_the_count,
    }

    /// Each event makes one notice per subscribed endpoint, under one id for good. An endpoint receives the events of
    /// one subject in order.
    notices "Notices" {
        /// Every event makes one notice for each endpoint that subscribed to its type.
        every_event_makes_one_notice_for_each_matching_endpoint,
        /// The fan-out is bounded, and no endpoint takes another's share.
        a_fan_out_is_bounded_and_fair_to_all_endpoints,
        /// The fan-out starts with the endpoints that waited longest.
        the_fan_out_starts_with_the_endpoints_that_waited_longest,
        /// Only the earliest open notice of a subject is leased; other subjects are not delayed.
        only_the_earliest_open_notice_of_a_subject_is_leased,
        /// Notices are leased longest due first, up to the limit.
        notices_are_leased_longest_due_first_up_to_the_limit,
        /// A notice is leased again after its lease expired, and a late failure of the first holder changes nothing.
        a_notice_is_leased_again_after_its_lease_expired,
        /// The outcome of an attempt is recorded once and read back unchanged.
        an_attempt_outcome_is_recorded_once_and_read_back_unchanged,
        /// A notice is retried for about a week, then it is dead and the next one of its subject is due.
        a_notice_is_retried_for_a_week_and_then_dead,
        /// Notices are listed newest first and can be filtered.
        notices_are_listed_newest_first_and_can_be_filtered,
        /// A replayed notice is delivered again under its id.
        a_replayed_notice_is_delivered_again_under_its_id,
        /// A recovery of failures requeues dead notices in the order of their subjects.
        a_recovery_requeues_failed_notices_in_order,
        /// A full recovery delivers everything since a time again, under the same ids.
        a_full_recovery_delivers_everything_again_under_the_same_ids,
        /// A recovery recreates swept notices under the same ids.
        a_recovery_recreates_swept_notices_under_the_same_ids,
        /// Notices that a dead node had leased are due at once.
        notices_leased_by_a_dead_node_are_due_at_once,
        /// Gauges report the lag, the pending and the dead notices of each endpoint.
        gauges_report_the_lag_of_each_endpoint,
    }

    /// A notice is leased to one process at a time, and its outcome is recorded once.
    notice_races "Concurrent webhook workers" {
        /// 16 concurrent fan-outs make one notice per event and endpoint.
        of_16_concurrent_fan_outs_each_event_makes_one_notice,
        /// Many concurrent nodes lease each notice once.
        many_nodes_lease_each_notice_once,
        /// Of 16 equal concurrent outcomes one counts.
        of_16_equal_concurrent_outcomes_one_counts,
        /// With concurrent writers, fan-outs and deliveries, every notice is delivered in order and none waits behind a
        /// finished one.
        no_notice_waits_behind_a_finished_one,
    }
}

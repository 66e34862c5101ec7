//! What every engine must do. One function is one promise, and each engine is held to all of them.
//!
//! A promise that is missing in the list below is dead code, and the compiler says so. An engine that cannot be
//! opened fails; none is skipped.

mod accept;
mod alike;
mod answer;
mod artifacts;
mod batch;
mod budgets;
mod caps;
mod capture;
mod change;
mod chat;
mod contest;
mod conversations;
mod crowd;
mod deed;
mod deliveries;
mod doubt;
mod draft;
mod endpoints;
mod errand;
mod events;
mod guards;
mod handoff;
mod herald;
mod inboxes;
mod keys;
mod leases;
mod listing;
mod mailroom;
mod messages;
mod notices;
mod offers;
mod open;
mod operations;
mod orphan;
mod overlap;
mod play;
mod post;
mod questions;
mod race;
mod random;
mod reading;
mod records;
mod replies;
mod rumour;
mod rush;
mod steps;
mod talk;
mod teams;
mod threads;
mod turn;
mod work;

use draft::{
    EmailFixture, IDS, SANDBOX, given_key_hash, intent_email, keyed_email, keyless_email, next_id, next_version,
};
use mailonce_core::{
    access::team::{ApiKey, ApiKeyDetails, CreateTeamResult, Team},
    id::{ApiKeyId, IdGenerator, TeamId},
    operation::IdempotentResult,
    ports::store::Store,
    time::Time,
};
use open::OpenStore;
use std::{cell::RefCell, sync::Arc};
use steps::{
    accept_and_send, accept_batch_items, accept_email, accept_first, accept_replay, all_at_once, all_events,
    cancel_email, capture_due, event_kinds, expect_bound_email, expect_first, keyless_batch, list_all, list_all_pages,
    load_detail, load_email, new_operation,
};
use uuid::Uuid;

macro_rules! engine {
    ($engine:ident, $open:expr) => {
        engine! { @promises $engine, $open,
            accept [
                a_free_key_is_accepted
                an_equal_replay_finds_the_first_and_writes_nothing
                a_changed_replay_finds_the_first_and_its_digest
                wishes_without_a_key_never_collide
                what_was_accepted_is_read_back_whole
                what_a_call_is_called_is_kept_and_told_with_the_acceptance
                each_envelope_becomes_a_handoff_in_order
                a_replay_shows_the_current_state
                a_wish_for_later_is_scheduled
                a_due_time_makes_a_wish_scheduled_whatever_ledger_time_says
                times_keep_their_milliseconds
                a_long_body_and_an_empty_one_are_kept
                an_unknown_id_is_nobody
                an_id_with_other_unordered_bits_is_nobody
                the_highest_id_is_remembered
            ]
            overlap [
                one_then_several_is_held
                several_then_one_is_held_under_its_own_key
                several_that_share_a_recipient_are_held
                several_that_share_nobody_are_not_held
                other_intents_to_the_same_people_are_not_held
                copies_do_not_overlap
                a_recipients_own_key_is_not_bound_by_an_email_to_several
                recipients_are_free_again_after_a_cancel
                recipients_freed_by_a_cancel_are_taken_again
                what_left_with_a_later_version_stands_for_the_earlier
                a_version_that_takes_back_a_held_email_takes_its_recipients
                an_earlier_version_after_a_later_one_is_held
                a_later_version_does_not_overlap_what_it_is_made_of
                a_forgotten_later_version_stands_for_nobody
                recipients_stay_taken_after_sending
                recipients_are_free_again_when_the_key_is_forgotten
                a_held_email_is_never_handed_over
                a_held_email_can_be_cancelled
                items_of_one_batch_overlap_too
                a_key_that_a_caller_gives_is_the_intents_when_it_is_equal
            ]
            batch [
                a_batch_is_answered_in_order
                a_retried_batch_finds_its_items
                a_batch_of_1000_is_accepted_and_found_again
                another_batch_under_the_same_key_writes_nothing
                a_batch_under_an_emails_key_writes_nothing
                items_that_share_a_key_become_one_email
                items_without_a_key_are_always_new
                a_batch_mixes_what_is_new_with_what_is_known
                a_batch_retried_after_its_key_was_forgotten_still_finds_its_items
                no_header_reaches_an_items_key
                a_batch_of_one_and_of_none_are_batches
                a_strict_batch_with_one_contradiction_writes_nothing
                a_strict_batch_forgives_other_words_of_an_intent
            ]
            change [
                a_queued_email_is_cancelled_for_good
                a_second_cancel_changes_nothing
                a_cancelled_email_keeps_its_key
                what_was_sent_cannot_be_cancelled
                what_was_sent_in_part_cannot_be_cancelled
                what_was_refused_in_part_is_cancelled_in_the_rest
                recipients_are_free_again_after_a_cancel_of_the_rest
                what_was_refused_is_not_too_late_to_cancel
                what_takes_another_way_can_be_cancelled
                nobody_cannot_be_changed
                a_scheduled_email_is_moved
                only_a_scheduled_email_is_moved
                a_moved_email_keeps_its_key_and_digest
                ten_resends_make_one_version
                what_is_under_way_is_not_resent
                a_cancelled_email_is_resent
                a_second_resend_within_a_day_is_refused
                a_resend_is_found_again_after_the_first_key_is_forgotten
                a_version_has_a_body_and_a_key_of_its_own
            ]
            capture [
                a_capture_sends_and_leaves_an_attempt
                nothing_is_captured_twice
                only_envelopes_of_the_transport_are_captured
                the_longest_due_are_captured_first_and_at_most_so_many
                envelopes_of_one_email_are_captured_one_by_one
                the_next_due_time_is_the_earliest
                envelopes_of_every_team_are_captured
            ]
            operations [
                a_repeated_operation_gives_the_stored_answer
                another_operation_under_the_same_key_does_nothing
                an_operation_under_an_emails_key_does_nothing
                a_wish_under_an_operations_key_finds_the_operation
                an_operation_is_forgotten_at_its_time
                an_operation_alone_is_bound_once_until_its_time
                the_tombstone_of_an_operation_goes_in_the_end
                a_forgotten_operation_is_done_again
                the_key_of_an_operation_is_no_emails_key
                operations_of_two_teams_never_meet
                an_operation_on_nobody_binds_nothing
                a_resend_under_an_operation_is_done_once
                a_resend_under_the_key_of_an_operation_cancels_nothing
                a_resend_that_finds_its_version_takes_back_the_held_email
                a_refusal_under_an_operation_changes_no_email
            ]
            keys [
                a_key_is_remembered_while_its_email_is_under_way
                memory_counts_from_the_end_of_the_email
                nothing_is_forgotten_at_look_up_before_the_clock_allows_it
                the_end_of_an_email_is_dated_by_its_commit
                a_forgotten_key_names_a_new_wish_before_the_sweep
                a_forgotten_key_names_a_new_wish_after_the_sweep
                a_forgotten_key_leaves_a_tombstone
                a_bound_key_shows_its_email
                every_trace_is_gone_in_the_end
                a_keyless_email_goes_in_the_end_too
                the_old_traces_leave_the_new_binding_alone
                a_tombstone_goes_although_another_email_stands_for_its_recipient
                a_change_does_not_put_off_what_is_due_to_be_forgotten
                the_body_goes_before_the_key
                a_sweep_is_bounded_and_ends
                a_sweep_tells_no_event
                a_key_gets_another_memory
                a_key_gets_another_memory_before_its_email_ends
                a_shorter_memory_counts_at_once
                a_forgotten_or_unknown_key_cannot_be_changed
                a_key_is_forgotten_by_hand_only_when_its_email_ended
                a_key_can_be_bound_many_times
                suppressed_calls_add_up_and_the_latest_are_kept
                suppressed_calls_are_told_with_their_number
                suppressed_calls_survive_a_change_of_their_email
                suppressed_calls_of_nobody_are_dropped
            ]
            events [
                every_change_is_told_once
                an_event_says_what_the_email_was
                what_changes_nothing_is_not_told
                events_are_numbered_from_1_in_each_team
                events_are_read_in_pages
                events_of_many_writers_have_no_gaps
                a_reader_that_follows_misses_nothing
                a_watcher_is_told_of_each_change_before_its_caller
                a_watcher_is_told_of_the_hand_off
                a_watcher_is_not_told_of_replays
                a_watcher_hears_of_each_email_in_the_order_of_its_changes
            ]
            listing [
                emails_are_listed_newest_first
                emails_are_counted_by_their_ids
                pages_cover_everything_once
                a_page_holds_at_most_its_limit
                pages_stand_still_while_emails_come
                emails_are_found_by_state
                an_email_is_listed_in_the_state_of_its_most_open_envelope
                emails_are_found_by_recipient
                the_latest_email_of_a_key_is_found_by_it
                emails_are_found_by_time
                filters_hold_together
            ]
            teams [
                the_same_key_of_two_teams_names_two_wishes
                nothing_of_another_team_is_seen
                nothing_of_another_team_is_changed
                recipients_are_free_in_another_team
                a_team_is_made_with_its_first_credential
                a_team_made_twice_stays_as_it_was
                a_repeated_making_of_a_team_makes_no_other
                a_name_belongs_to_one_team
                of_16_teams_of_one_name_one_is_made
                a_team_can_require_keys
                credentials_are_listed_newest_first
                a_repeated_making_of_a_credential_makes_no_other
                an_unknown_hash_opens_nothing
                a_credential_is_taken_back_once
                another_team_takes_no_credential_back
                the_last_use_of_a_credential_never_falls
                an_installation_stays_what_it_is
                a_fresh_store_is_healthy
            ]
            records [
                a_record_is_read_back_whole
                a_name_is_taken_once_in_its_team_and_kind
                a_record_made_twice_is_the_same_record
                a_repeated_making_of_a_record_makes_no_other
                a_taken_name_binds_no_key
                records_are_listed_newest_first_in_pages
                a_record_is_changed_only_as_it_was_seen
                a_repeated_change_of_a_record_changes_nothing
                a_removed_record_frees_its_name
                records_of_another_team_are_not_there
                of_32_records_of_one_name_one_is_made
                of_32_changes_of_one_record_one_is_done
                of_32_makings_under_one_key_one_is_done
                what_is_told_of_a_change_is_told_once_and_only_when_it_is_done
            ]
            race [
                of_64_equal_wishes_one_is_the_first
                of_1000_equal_wishes_one_is_the_first
                of_64_different_wishes_under_one_key_one_is_the_first
                of_200_keys_each_is_a_first
                of_64_wishes_under_a_forgotten_key_one_is_the_first
                of_one_and_several_at_once_only_one_goes
                of_many_groups_around_one_person_only_one_goes
                batches_that_cross_do_not_block_each_other
                a_batch_and_its_twin_make_its_items_once
                of_32_cancels_one_is_told
                a_cancel_and_a_capture_never_both_win
                many_workers_capture_each_envelope_once
                of_32_resends_one_makes_a_version
                of_32_operations_under_one_key_one_is_done
                notes_of_many_nodes_add_up
                a_sweep_beside_new_wishes_loses_nothing
            ]
            handoff [
                leases_go_to_the_longest_due_first
                each_lease_raises_the_fence
                what_is_leased_is_leased_to_nobody_else
                only_work_of_the_transport_is_leased_of_every_team
                busy_domains_are_passed_over
                a_scheduled_handoff_is_leased_when_due_and_only_if_wished
                a_lease_gives_the_body_and_after_a_marker_the_wire
                bytes_are_frozen_once_for_each_transport
                a_marker_needs_the_right_fence
                handoffs_of_one_email_are_worked_on_apart
                a_cancel_makes_the_marker_of_a_lease_stale
                a_cancel_after_the_marker_is_too_late
                a_parked_handoff_waits_for_its_time
                another_way_is_taken_only_while_nothing_was_begun
                a_whole_email_takes_another_way_in_other_envelopes
                nothing_of_another_team_is_acted_on
                the_backlog_counts_what_waits_and_what_is_unknown
            ]
            answer [
                an_accepted_answer_sends
                attempts_are_read_back_whole_and_in_order
                a_deferred_answer_waits_for_the_backoff_or_as_asked
                a_refusal_fails
                a_fault_is_put_off_and_does_not_count
                tries_end_by_their_number
                an_answer_that_decides_nothing_is_unknown
                an_answer_before_the_marker_leaves_an_attempt
                a_marker_that_its_worker_never_heard_of_is_answered
                a_late_accept_corrects
                a_late_refusal_frees_only_what_is_not_in_doubt_otherwise
                a_stale_worker_starts_nothing_and_puts_nothing_off
                a_repeat_is_held_at_once_and_only_at_its_account
                a_refused_repeat_leaves_the_first_in_doubt
                the_policy_resends_once_and_says_so
                unknown_handoffs_are_looked_at_when_due
            ]
            orphan [
                only_who_has_a_transport_looks_at_its_unknown_handoffs
                an_attempt_in_doubt_at_another_account_is_left_to_who_has_it
                what_waits_for_a_transport_that_nobody_has_is_found
                emails_that_are_open_at_a_transport_are_paged
                an_orphan_is_reported_once_for_each_time_its_transport_is_missing
                an_orphan_is_given_up_in_the_end
                an_operator_moves_what_waits_and_never_what_is_in_doubt
                an_email_that_is_moved_is_divided_as_its_new_transport_asks
            ]
            doubt [
                a_named_fact_counts_once
                a_report_of_delay_proves_that_the_next_hop_has_it
                facts_in_any_order_end_alike
                facts_are_read_back_whole_and_in_order
                a_crash_before_the_marker_queues_again
                a_crash_after_the_marker_is_unknown
                five_crashes_put_it_aside
                a_process_that_was_heard_of_keeps_what_it_holds
                a_process_hears_how_late_it_is_for_others
                a_process_takes_nothing_from_itself
                a_recovery_is_bounded_and_goes_on
                a_person_resolves_with_the_rev_that_was_seen
                a_person_decides_about_one_handoff_or_all
                a_resolve_is_repeatable_under_an_operation
                what_is_in_doubt_is_not_cancelled_and_its_key_is_not_forgotten
                a_remote_id_is_found_only_in_its_team
                the_sweep_takes_the_wire_with_the_body_and_the_facts_last
            ]
            contest [
                many_workers_lease_each_handoff_once
                a_worker_gets_only_what_still_goes_its_way
                of_a_cancel_and_a_marker_one_wins
                an_answer_and_facts_at_once_end_in_sent
                of_32_equal_facts_one_counts
                of_32_operations_under_one_key_one_is_bound
                of_many_recoveries_each_handoff_is_taken_once
            ]
            inboxes [
                an_inbox_is_read_back_whole
                an_inbox_is_found_at_the_closest_of_its_places
                an_address_is_taken_once_in_all_teams
                a_client_id_makes_an_inbox_once_in_its_team
                an_inbox_made_twice_is_the_same_inbox
                a_repeated_making_of_an_inbox_makes_no_other
                an_inbox_that_was_not_made_or_changed_binds_no_key
                inboxes_are_listed_newest_first_in_pages
                an_inbox_is_changed_only_as_it_was_seen
                an_old_address_reaches_nobody_and_stays_taken
                a_catch_all_is_free_again_when_its_inbox_lets_go_of_it
                a_change_to_a_taken_name_changes_nothing
                a_repeated_change_of_an_inbox_changes_nothing
                a_removed_inbox_is_nowhere_and_its_names_stay_taken
                an_address_stays_its_teams_when_it_reaches_nobody
                inboxes_of_another_team_are_not_there
            ]
            deliveries [
                a_delivery_is_read_back_whole
                the_same_delivery_is_kept_once_and_each_repeat_is_told
                a_repeat_names_the_message_of_the_first
                a_delivery_is_known_until_its_time_in_its_team
                equal_parcels_of_one_arrival_are_one_delivery
                an_arrival_for_many_is_read_by_each
                a_large_arrival_is_kept_whole
                a_refused_parcel_leaves_a_row_and_an_event_and_binds_no_key
                mail_for_an_inbox_that_is_gone_is_refused_in_its_commit
                an_arrival_received_twice_is_the_same_arrival
                deliveries_are_listed_newest_first_and_found
                deliveries_of_another_team_are_not_there
                old_rows_of_suppressed_deliveries_are_swept
                a_sweep_takes_what_a_removed_inbox_left_in_pieces
                the_highest_id_of_what_comes_in_is_remembered
            ]
            reading [
                what_a_process_reads_at_once_is_read_by_nobody_else
                due_deliveries_are_read_the_longest_due_first
                a_settled_delivery_stays_as_it_is
                a_dead_delivery_is_kept_and_read_again
                a_mail_takes_the_place_of_its_notice_once
                what_an_ended_process_read_is_due_at_once
                a_delivery_over_which_processes_end_waits_before_the_next
                a_process_that_was_heard_of_keeps_what_it_reads
            ]
            messages [
                a_delivery_becomes_a_message
                messages_are_numbered_in_each_inbox
                the_same_message_is_filed_once_and_each_repeat_is_told
                the_same_content_without_a_name_is_filed_once
                other_content_under_the_same_name_is_another_message
                a_name_that_was_only_answered_is_not_reused
                the_same_mail_in_two_inboxes_is_two_messages
                a_delivery_is_filed_only_while_it_waits_and_by_its_team
                what_waits_for_a_removed_inbox_is_refused
                the_bytes_of_an_arrival_stay_while_one_needs_them
                messages_are_listed_both_ways_in_pages
                messages_are_found_by_what_they_are
                messages_of_another_team_are_not_there
                nothing_of_a_removed_inbox_is_seen_any_more
                hearers_are_told_what_others_may_wait_for
                names_and_contents_do_not_meet
            ]
            threads [
                an_answer_joins_the_thread_of_what_it_answers
                what_was_answered_before_it_came_joins_its_answers
                the_closest_known_name_decides_and_keeps_its_thread
            ]
            artifacts [
                artifacts_are_filed_with_their_message
                the_same_value_within_an_hour_is_the_same_artifact
                another_hour_sender_kind_or_inbox_is_another_artifact
                a_value_that_stands_twice_in_a_message_is_one_artifact
                artifacts_are_listed_by_their_latest_message
                an_artifact_is_taken_by_its_first_consumer
                a_taking_under_an_operation_is_done_once
                only_its_consumer_says_that_it_was_used_and_once
                a_watch_begins_behind_the_latest_message
                a_budget_is_spent_until_nothing_is_left
                a_spending_under_an_operation_is_done_once
                artifacts_and_watches_of_another_team_are_not_there
                a_removed_inbox_ends_what_was_found_and_watched_in_it
            ]
            rush [
                of_16_workers_one_files_a_delivery
                of_32_equal_deliveries_one_is_kept
                of_16_deliveries_of_one_message_one_is_filed
                numbers_of_many_filers_have_no_gaps
                many_readers_read_each_delivery_once
                of_100_consumers_one_takes_an_artifact
                of_32_spenders_only_as_many_as_the_budget_spend
                of_32_inboxes_of_one_client_id_one_is_made
                of_two_teams_one_gets_an_address
            ]
            replies [
                a_message_is_answered_once_and_the_second_gets_the_first
                each_wanted_follow_up_is_made_once
                a_second_answer_sees_what_the_first_became
                a_slot_is_free_again_when_its_answer_surely_never_left
                a_message_is_open_again_when_its_answer_surely_never_left
                a_message_stays_answered_while_one_of_its_answers_stands
                other_words_for_a_held_answer_leave_nobody_between
                an_answer_that_another_replaced_is_not_sent_again
                a_resend_refused_for_another_answer_cancels_nothing
                a_slot_stays_taken_while_its_answer_may_have_left
                a_held_answer_keeps_its_slot
                another_version_keeps_the_slot
                an_answer_that_left_keeps_its_slot_whatever_its_next_version_does
                a_key_is_looked_up_before_any_guard
                a_forward_has_a_slot_for_each_set_of_people
                more_answers_than_a_message_remembers_are_not_made
                nobody_and_another_teams_message_are_not_answered
                an_answer_is_told_to_watchers
                of_32_answers_of_one_message_one_goes
                answers_of_many_messages_at_once_are_each_made_once
                of_32_answers_under_one_key_one_goes
                an_answer_with_the_lease_goes_and_leaves_it
            ]
            guards [
                our_own_mail_is_not_answered
                an_answer_to_nobody_but_ourselves_is_refused
                automatic_mail_is_answered_only_where_soft_signs_are
                a_thread_that_another_holds_is_not_answered
                a_stale_token_is_refused
                a_token_that_was_given_back_is_stale
                a_newer_message_of_a_person_must_be_seen
                guards_speak_in_their_order
                a_refusal_leaves_an_event_and_nothing_else
            ]
            budgets [
                what_exceeds_a_budget_is_refused_and_leaves_nothing
                a_retry_is_never_refused_by_a_budget
                every_budget_must_have_room
                a_strict_batch_that_exceeds_a_budget_is_refused_whole
                a_permissive_batch_is_accepted_as_far_as_the_budget_goes
                a_repeat_in_a_batch_counts_once
                a_resend_counts_and_a_refused_one_takes_nothing_back
                an_answer_counts_and_a_refused_one_leaves_its_slot_free
                teams_count_apart
                an_ended_period_is_swept_after_two_days
                of_64_sends_at_once_only_as_many_go_as_the_budget_allows
                an_email_that_moves_takes_its_charge_along
                a_move_that_exceeds_a_budget_changes_nothing
                a_move_within_a_period_changes_no_counter
                what_was_never_counted_gives_nothing_back
                a_period_that_is_over_gets_nothing_back
                a_copy_that_left_keeps_its_place
                of_32_moves_at_once_only_as_many_go_as_the_budget_allows
            ]
            caps [
                one_answer_too_many_is_held_and_takes_its_slot
                a_held_answer_is_not_counted
                an_answer_that_a_person_lets_go_counts_from_then_on
                an_answer_that_goes_in_other_words_counts_once
                an_answer_that_its_own_sender_may_let_go_counts_at_once
                an_answer_that_is_rejected_is_never_counted
                a_day_has_a_cap_of_its_own
                a_thread_has_a_cap_in_all_that_no_day_opens
                answers_to_one_person_are_counted_over_all_threads_of_the_team
                a_sweep_takes_no_count_that_a_cap_asks_about
                of_16_answers_at_once_only_as_many_as_the_caps_go
                of_16_answers_to_one_person_at_once_only_as_many_as_the_cap_go
            ]
            leases [
                a_free_thread_is_leased_and_a_busy_one_is_not
                a_lease_is_renewed_by_its_token_alone
                a_lapsed_lease_is_taken_over_with_a_higher_fence
                only_ones_own_lease_is_given_back
                a_leasing_under_an_operation_is_done_once
                nobodys_thread_is_not_leased
                of_32_agents_one_takes_a_thread
            ]
            offers [
                the_oldest_are_offered_first_and_one_of_a_thread
                no_more_are_offered_than_wanted
                what_wants_no_answer_is_not_offered
                what_was_put_off_waits_for_its_time
                an_extended_offer_lasts_longer
                an_acked_message_is_skipped_and_frees_its_thread
                an_acked_answer_stays_one
                what_its_holder_lost_is_offered_again_with_a_higher_fence
                what_was_offered_in_vain_too_often_is_skipped_for_good
                an_offering_under_an_operation_is_done_once
                messages_of_another_team_are_not_offered
                many_workers_share_an_inbox_and_no_message_is_given_twice
                messages_of_one_thread_are_worked_on_one_at_a_time
            ]
            conversations [
                a_thread_knows_its_messages
                threads_are_listed_by_their_latest_news
                threads_are_found_by_inbox_label_and_handled
                labels_and_handled_are_changed
                a_message_that_wants_an_answer_takes_handled_back
                emails_of_a_thread_are_listed_oldest_first
                a_removed_inbox_takes_its_threads_along
                threads_of_another_team_are_not_there
            ]
            alike [
                a_look_alike_is_held
                other_marks_words_people_and_teams_are_not_alike
                after_the_window_nothing_is_alike
                what_surely_never_left_has_no_look_alikes
                only_the_latest_are_compared
                a_version_that_was_asked_for_goes_and_what_looks_like_it_is_held
                a_replay_is_no_look_alike
                items_of_one_batch_look_alike_too
                of_16_look_alikes_at_once_one_goes
                an_answer_may_look_alike_too
                what_a_guard_wants_held_is_held
                what_a_guard_only_flags_goes
                of_several_guards_the_strongest_holds
            ]
            questions [
                a_held_email_is_let_go_once
                only_what_is_held_is_let_go
                what_was_wished_for_later_is_let_go_for_later
                stuck_emails_of_all_teams_are_listed_in_order
                a_question_is_told_when_it_opens_and_when_it_ends
                only_questions_are_told
            ]
            endpoints [
                an_endpoint_is_read_back_whole
                an_endpoint_made_twice_is_the_same_endpoint
                endpoints_are_listed_newest_first_in_pages
                an_endpoint_is_changed_only_as_it_was_seen
                a_new_endpoint_begins_at_the_end_or_where_it_is_asked_to
                a_removed_endpoint_is_nowhere_and_what_it_left_is_swept
                endpoints_and_notices_of_another_team_are_not_there
                a_paused_or_disabled_endpoint_is_told_later
                a_receiver_that_is_gone_disables_its_endpoint_and_that_is_told_once
                two_weeks_of_failures_disable_an_endpoint_and_a_success_begins_anew
            ]
            notices [
                every_event_is_owed_once_to_each_endpoint_that_wants_it
                a_spread_is_bounded_and_no_endpoint_takes_anothers_share
                endpoints_that_waited_longest_are_spread_first
                of_each_subject_only_the_earliest_is_leased
                the_longest_due_are_leased_first_and_at_most_so_many
                a_notice_that_a_process_keeps_for_too_long_is_leased_again
                an_attempt_is_settled_once_and_read_back_whole
                a_notice_is_tried_for_a_week_and_then_given_up
                notices_are_listed_and_found
                a_replayed_notice_is_told_again_under_its_id
                what_failed_is_due_again_in_its_order
                everything_is_told_again_under_the_same_ids
                what_was_swept_is_told_again_under_the_same_id
                what_an_ended_process_was_telling_is_due_at_once
                gauges_say_how_far_each_endpoint_is
            ]
            crowd [
                of_16_spreads_each_event_is_owed_once
                many_processes_lease_each_notice_once
                of_16_equal_settles_one_counts
                nobody_stays_in_line_behind_nothing
            ]
        }
    };
    (@promises $engine:ident, $open:expr, $($file:ident [$($promise:ident)*])*) => {
        mod $engine {
            use super::*;

            $($(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                check_promise($open.await, super::$file::$promise).await;
            })*)*

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn random_verbs_agree_with_the_model() {
                random::random_verbs_agree_with_the_model(async || $open.await).await;
            }
        }
    };
}

engine!(memory, async { open::memory() });
engine!(sqlite, async { open::sqlite() });
engine!(postgres, open::postgres());

/// The ledger under test.
type TestStore = Arc<dyn Store>;

const T0: Time = Time(1_731_628_800_000);
const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

const TEAM: TeamId = TeamId(Uuid::from_u128(0x0193_2cfd_6c00_7000_8000_0000_0000_0001));
const OTHER_TEAM: TeamId = TeamId(Uuid::from_u128(0x0193_2cfd_6c00_7000_8000_0000_0000_0002));

/// Holds an engine to a promise.
async fn check_promise<P: Future<Output = ()>>(opened: OpenStore, promise: impl FnOnce(TestStore) -> P) {
    make_teams(&opened.store).await;
    Box::pin(IDS.scope(RefCell::new(IdGenerator::default()), promise(opened.store.clone()))).await;
    opened.store.close().await;
}

/// Makes the two teams that promises are about.
async fn make_teams(store: &TestStore) {
    for (id, name) in [(TEAM, "team"), (OTHER_TEAM, "other")] {
        let team = Team { id, name: name.into(), created_at: T0, require_keys: false };
        let about = ApiKeyDetails {
            name: name.into(),
            hint: "mo_".into(),
            scopes: Vec::new(),
            senders: Vec::new(),
            inboxes: Vec::new(),
            rate_per_s: None,
            expires_at: None,
            allow_ips: Vec::new(),
        };
        let (key, mut hash) = (ApiKeyId(id.0), [0; 32]);
        hash[..16].copy_from_slice(id.0.as_bytes());
        let key =
            ApiKey { id: key, team: id, hash, details: about, created_at: T0, revoked_at: None, last_used_at: None };
        assert_eq!(
            store.create_team(team, key, None).await.unwrap(),
            IdempotentResult::Done(CreateTeamResult::Created)
        );
    }
}

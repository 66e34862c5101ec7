//! Promises about accepting emails: idempotency keys, batches, commands, lists and held duplicates.

mod accept;
mod accept_races;
mod batches;
mod email_commands;
mod email_listing;
mod keys;
mod look_alikes;
mod operations;
mod overlaps;
mod simulated;
mod templates;

promises! {
    /// Each store method is one transaction, and a retry gets the first answer.
    accept "One email" {
        /// A new idempotency key creates one queued email.
        a_new_key_creates_one_queued_email,
        /// A retry with the same key and content returns the first email and writes nothing.
        an_equal_replay_returns_the_first_email_and_writes_nothing,
        /// A retry with the same key and other content returns the first email with its digest, so that the caller can
        /// be told.
        a_changed_replay_returns_the_first_email_and_its_digest,
        /// Two emails without a key are two emails, even if they are equal.
        emails_without_a_key_are_never_duplicates,
        /// An accepted email is read back unchanged, with its body.
        an_accepted_email_is_read_back_unchanged,
        /// The caller's call id is stored with the first email and appears in its `email.accepted` event only.
        the_callers_call_id_is_stored_and_in_the_accepted_event,
        /// Each envelope becomes one handoff, numbered in order.
        each_envelope_becomes_a_handoff_in_order,
        /// A replay returns the email in its current state.
        a_replay_returns_the_current_state,
        /// An email with a later due time is scheduled for that time.
        an_email_with_a_later_due_time_is_scheduled,
        /// An email with a due time is scheduled even if that time is past.
        an_email_with_a_due_time_is_scheduled_even_if_it_is_past,
        /// Times are stored to the millisecond.
        times_are_stored_to_the_millisecond,
        /// Bodies of 3 MiB and of zero bytes are stored unchanged.
        large_and_empty_bodies_are_stored_unchanged,
        /// An unknown email id is not found.
        an_unknown_email_id_is_not_found,
        /// An id that differs from a stored one only in its random bits is not found.
        an_email_id_that_differs_only_in_its_random_bits_is_not_found,
        /// The store remembers the highest email id, so that ids keep growing after a restart.
        the_highest_email_id_is_remembered,
    }

    /// A simulated send is answered as a real one would be.
    simulated "Simulated sends" {
        /// A simulated send writes nothing: no email, no event, no key, no budget.
        a_simulated_send_writes_nothing,
        /// A simulated send gets the answer of the real one: its holds, the email of its key, or the full budget.
        a_simulated_send_is_answered_as_the_real_one,
    }

    /// A template is stored wording, in numbered versions that never change.
    templates "Templates" {
        /// A template is read back unchanged, by its name and by its id.
        a_template_is_read_back_unchanged_by_name_and_id,
        /// A name is used once in a team, and a retry creates nothing.
        a_name_is_used_once_in_a_team,
        /// A creation under a key that created a template creates nothing.
        a_replayed_creation_creates_nothing,
        /// A change adds a version, and the earlier ones stay readable.
        a_change_adds_a_version_and_keeps_the_earlier_ones,
        /// A version is added only after the newest one, and a retry adds nothing.
        a_version_follows_the_one_that_was_read,
        /// Of concurrent changes of a version, one adds the next version.
        of_concurrent_changes_one_adds_a_version,
        /// A template has at most a hundred versions. Removing an old one makes room.
        a_template_has_at_most_a_hundred_versions,
        /// The newest version of a template cannot be removed alone.
        the_newest_version_stays,
        /// A team has at most a thousand templates, also by concurrent calls.
        a_team_has_at_most_a_thousand_templates,
        /// Templates are listed newest first, in their newest version.
        templates_are_listed_newest_first_in_pages,
        /// A removed template is gone with all its versions, and its name is free.
        a_removed_template_is_gone_with_its_versions,
        /// Templates of another team cannot be read, changed or removed.
        templates_of_another_team_are_not_found,
        /// Each change of a template has an entry in the audit log, which does not repeat its wording.
        every_change_of_a_template_is_audited_without_its_wording,
    }

    /// Of overlapping emails with the same intent, only one is sent. The others are held.
    overlaps "Overlapping emails of one intent" {
        /// After an email to A, an email of the same intent to A and B is held.
        an_email_to_several_is_held_after_the_same_intent_went_to_one,
        /// After an email to A and B, an email of the same intent to A is held under its own key.
        an_email_to_one_is_held_after_the_same_intent_went_to_several,
        /// Of two group emails of one intent that share a recipient, the second is held.
        emails_of_one_intent_that_share_a_recipient_are_held,
        /// Group emails of one intent without a shared recipient are both sent.
        emails_of_one_intent_without_a_shared_recipient_are_not_held,
        /// Other intents and plain keys for the same recipients are not held.
        other_intents_to_the_same_recipients_are_not_held,
        /// Only `to` recipients overlap; `cc` recipients do not.
        cc_recipients_do_not_overlap,
        /// An email to several recipients does not bind the key of any single recipient.
        an_email_to_several_does_not_bind_a_recipients_own_key,
        /// Cancelling an email releases its recipients for other emails of the intent.
        recipients_are_released_by_a_cancel,
        /// Recipients that a cancel released are occupied again by the next email of the intent.
        released_recipients_can_be_occupied_again,
        /// A later version occupies the recipients of the cancelled version that it replaces.
        a_later_version_occupies_the_recipients_of_a_cancelled_earlier_one,
        /// An earlier version of an intent that arrives after a later one is held.
        an_earlier_version_after_a_later_one_is_held,
        /// A resend is not held because of the version that it replaces.
        a_later_version_does_not_overlap_the_version_it_replaces,
        /// A later version occupies no recipient once its key has expired, swept or not.
        an_expired_later_version_occupies_no_recipient,
        /// Recipients stay occupied after the email was sent.
        recipients_stay_occupied_after_sending,
        /// Recipients are released when the key expires, swept or not.
        recipients_are_released_when_the_key_expires,
        /// A held email is never handed over, even when its due time has passed.
        a_held_email_is_never_handed_over,
        /// A held email can be cancelled and keeps its key.
        a_held_email_can_be_cancelled,
        /// Overlaps are also found between the items of one batch.
        overlapping_items_of_one_batch_are_held,
        /// A given key that equals the key derived from an intent is treated as that intent.
        a_given_key_that_equals_the_derived_key_counts_as_the_intent,
        /// A resend that cancels a held email takes over its recipients.
        a_version_that_takes_back_a_held_email_takes_its_recipients,
    }

    /// A batch is accepted once, and as a whole.
    batches "Batches" {
        /// Results and events of a batch are in the order of its items.
        batch_results_are_in_the_order_of_the_items,
        /// A retried batch returns the emails of the first call and writes nothing.
        a_retried_batch_returns_its_first_emails,
        /// A batch of 1,000 items is accepted, and a retry returns all of them.
        a_batch_of_1000_items_is_accepted_once,
        /// A different batch under a used batch key is refused as a mismatch and writes nothing.
        another_batch_under_the_same_key_writes_nothing,
        /// A batch under the key of an email is refused as a mismatch and writes nothing.
        a_batch_under_an_emails_key_writes_nothing,
        /// Items of a batch that share a key become one email.
        items_that_share_a_key_become_one_email,
        /// Items without a key are new emails in every call.
        items_without_a_key_are_always_new,
        /// A batch can mix new items with replays of known keys.
        a_batch_can_mix_new_and_replayed_items,
        /// A batch that is retried after its own key expired still returns the first emails by the keys of its items.
        a_batch_retried_after_its_key_expired_still_returns_its_first_emails,
        /// No key that a caller can give collides with the key of a batch item.
        no_given_key_collides_with_a_batch_items_key,
        /// Batches of one item and of no items are accepted and bind their key.
        batches_of_one_and_of_zero_items_are_accepted,
        /// A strict batch with one key mismatch names that item and writes nothing.
        a_strict_batch_with_one_key_mismatch_writes_nothing,
        /// In a strict batch, a reworded replay of an intent is a replay and not a mismatch.
        a_strict_batch_accepts_a_reworded_replay_of_an_intent,
    }

    /// A cancel wins only while nothing has left.
    email_commands "Cancel, reschedule, resend" {
        /// A cancelled email is final and never sent.
        a_cancelled_email_is_never_sent,
        /// A second cancel returns the same email and writes no event.
        a_second_cancel_changes_nothing,
        /// A cancelled email keeps its key.
        a_cancelled_email_keeps_its_key,
        /// A sent email cannot be cancelled.
        a_sent_email_cannot_be_cancelled,
        /// An email that was sent to some recipients cannot be cancelled.
        a_partly_sent_email_cannot_be_cancelled,
        /// When the next hop refused some recipients, a cancel stops the handoffs of the others.
        cancelling_a_partly_refused_email_cancels_the_other_handoffs,
        /// Cancelling a partly refused email releases its recipients and keeps its own key bound.
        cancelling_a_partly_refused_email_releases_its_recipients,
        /// Cancelling a failed email succeeds and changes nothing.
        cancelling_a_failed_email_succeeds_and_changes_nothing,
        /// An email that failed over to another transport can be cancelled.
        an_email_that_failed_over_can_be_cancelled,
        /// Cancel, reschedule and resend of an unknown email return "missing".
        commands_on_an_unknown_email_return_missing,
        /// A scheduled email can be rescheduled and is sent at its new time.
        a_scheduled_email_can_be_rescheduled,
        /// Queued, sent and cancelled emails cannot be rescheduled.
        only_a_scheduled_email_can_be_rescheduled,
        /// A rescheduled email keeps its key and digest, so that a retry still finds it.
        a_rescheduled_email_keeps_its_key_and_digest,
        /// Ten resend calls for one email create one new version.
        ten_resends_create_one_version,
        /// An email that is queued or scheduled cannot be resent.
        an_unfinished_email_cannot_be_resent,
        /// A cancelled email can be resent.
        a_cancelled_email_can_be_resent,
        /// A second resend within a day is refused.
        a_second_resend_within_a_day_is_refused,
        /// A retried resend returns its version even after the key of the first email expired.
        a_resend_is_replayed_after_the_first_key_expired,
        /// A new version has a body and a key of its own.
        a_version_has_a_body_and_a_key_of_its_own,
    }

    /// An idempotent operation is bound once. Operations are keyed calls other than sends, such as a cancel.
    operations "Idempotent operations" {
        /// A repeated operation returns the stored response and does nothing.
        a_repeated_operation_returns_the_stored_response,
        /// Another operation under a used key is refused as a mismatch and does nothing.
        another_operation_under_the_same_key_does_nothing,
        /// An operation under the key of an email is refused as a mismatch and does nothing.
        an_operation_under_an_emails_key_does_nothing,
        /// A send under the key of an operation finds the operation and creates no email.
        a_send_under_an_operations_key_returns_the_operation,
        /// An operation expires at its time, swept or not, and its key can be bound again.
        an_operation_expires_at_its_time,
        /// An operation that changes nothing else binds its key until it expires.
        an_operation_without_effects_binds_its_key_until_it_expires,
        /// The tombstone of an expired operation is swept after its retention.
        the_tombstone_of_an_operation_is_swept,
        /// An expired operation is executed again and binds the key anew.
        an_expired_operation_can_be_done_again,
        /// The key of an operation cannot be extended or deleted like the key of an email.
        an_operations_key_cannot_be_extended_or_deleted,
        /// Equal operation keys of two teams are different keys.
        operations_of_two_teams_do_not_share_keys,
        /// An operation on an unknown email binds no key.
        an_operation_on_an_unknown_email_binds_no_key,
        /// A resend under an operation key creates one version and is replayed afterwards.
        a_resend_under_an_operation_is_done_once,
        /// A resend whose key belongs to another operation is refused and leaves the held email as it was.
        a_resend_under_the_key_of_an_operation_cancels_nothing,
        /// A resend that finds its version already accepted cancels the held email and links the two.
        a_resend_that_finds_its_version_takes_back_the_held_email,
        /// A refused operation changes no email.
        a_refused_operation_changes_no_email,
    }

    /// A key is never forgotten before its email has ended. The end of an email is dated inside its commit.
    keys "Lifetime of keys" {
        /// A key is kept while its email is queued, scheduled or held, however short its TTL.
        a_key_is_kept_while_its_email_is_unfinished,
        /// The TTL of a key starts when its email reaches a final state.
        a_keys_ttl_starts_when_its_email_is_terminal,
        /// A lookup treats no key as expired before the ledger clock allows it.
        a_lookup_expires_no_key_before_the_ledger_clock_allows_it,
        /// The end of an email is the time of its commit, not the time at which the call began.
        an_email_settles_at_the_time_of_its_commit,
        /// An expired key accepts a new email before the sweep.
        an_expired_key_accepts_a_new_email_before_the_sweep,
        /// An expired key accepts a new email after the sweep.
        an_expired_key_accepts_a_new_email_after_the_sweep,
        /// An expired key leaves a tombstone that says when it expired.
        an_expired_key_leaves_a_tombstone,
        /// A bound key shows its email; a key that was never used is not found.
        a_bound_key_shows_its_email,
        /// After the tombstone period the email and its key are deleted.
        an_email_and_its_key_are_deleted_after_the_tombstone_period,
        /// An email without a key is deleted after its retention, too.
        an_email_without_a_key_is_deleted_too,
        /// Sweeping an old email keeps the new email that is bound to the same key.
        sweeping_an_old_email_keeps_the_keys_new_binding,
        /// A tombstone is swept even while another email of the intent occupies the recipient.
        a_tombstone_is_swept_while_another_email_occupies_the_recipient,
        /// Changing an email does not delay a sweep that is due.
        a_change_does_not_delay_a_due_sweep,
        /// The body is swept before the key, and replays still work without it.
        the_body_is_swept_before_the_key,
        /// A sweep takes at most its limit per call, and repeated calls finish.
        a_sweep_is_bounded_and_finishes,
        /// A sweep emits no event.
        a_sweep_emits_no_event,
        /// The TTL of a key can be changed after its email has ended.
        a_keys_ttl_can_be_changed,
        /// The TTL of a key can be changed before its email has ended.
        a_keys_ttl_can_be_changed_before_its_email_is_terminal,
        /// A shorter TTL takes effect at once.
        a_shorter_ttl_takes_effect_at_once,
        /// An expired or unknown key cannot be extended or deleted.
        an_expired_or_unknown_key_cannot_be_changed,
        /// A key can be deleted by hand only when its email has ended.
        a_key_can_be_deleted_only_when_its_email_is_terminal,
        /// A deleted key can be bound again, and each binding is numbered.
        a_key_can_be_bound_many_times,
        /// Suppressed duplicate calls are counted, and the latest of them are stored.
        suppressed_calls_are_counted_and_the_latest_are_stored,
        /// The `email.duplicate` event has the number of suppressed calls.
        the_duplicate_event_counts_suppressed_calls,
        /// Suppressed calls survive a change of their email.
        suppressed_calls_survive_a_change_of_their_email,
        /// Suppressed calls of unknown emails are dropped.
        suppressed_calls_of_unknown_emails_are_dropped,
    }

    /// Lists are newest first, in stable pages.
    email_listing "Lists of emails" {
        /// Emails are listed newest first, for one team.
        emails_are_listed_newest_first,
        /// Emails can be counted by a range of ids.
        emails_are_counted_by_id_range,
        /// Statistics count accepted emails, their duplicate calls and the states of their handoffs.
        statistics_count_emails_duplicates_and_states,
        /// Emails can be filtered by the beginning of their key and by whether they have duplicate calls.
        emails_are_found_by_the_beginning_of_their_key_and_by_duplicates,
        /// Pages of any size show every email once.
        pages_cover_everything_once,
        /// A page holds at most its limit, and the last page has no cursor.
        a_page_holds_at_most_its_limit,
        /// Pages stay stable while new emails arrive.
        pages_are_stable_while_new_emails_arrive,
        /// Emails can be filtered by state.
        emails_are_found_by_state,
        /// An email with several envelopes is listed in the state of the least finished one.
        an_email_is_listed_in_the_state_of_its_least_finished_envelope,
        /// A filter by any state finds the emails that the whole list shows in that state, whatever their handoffs say.
        a_filter_by_state_agrees_with_the_whole_list,
        /// Emails can be filtered by recipient, `to` or `cc`.
        emails_are_found_by_recipient,
        /// Among thousands of emails to others, a filter by recipient finds each email to one address once.
        a_recipient_is_found_among_thousands_of_emails,
        /// A key finds the latest email that was bound to it.
        a_key_finds_its_latest_email,
        /// Emails can be filtered by time.
        emails_are_found_by_time,
        /// Several filters are combined with "and".
        filters_are_combined,
    }

    /// A look-alike is a second email with nearly the same content between the same addresses. It is held in the
    /// transaction that accepts it.
    look_alikes "Look-alikes and holds" {
        /// An email that looks like a recent one is held and not sent.
        a_look_alike_is_held,
        /// Emails with other numbers, words, people or teams are not look-alikes.
        emails_with_other_numbers_words_people_or_teams_are_not_look_alikes,
        /// An email of the same intent in another spelling is held, whatever it says; one of another intent is not.
        another_spelling_of_an_intent_is_held,
        /// Emails are compared only within the time window, swept or not.
        nothing_is_a_look_alike_after_the_window,
        /// An email that certainly was not sent has no look-alikes; one that may have been sent has.
        an_email_that_certainly_was_not_sent_has_no_look_alikes,
        /// Only the latest emails between two addresses are compared.
        only_the_latest_emails_are_compared,
        /// An explicit resend is sent, and later look-alikes of it are held.
        an_explicit_resend_is_sent_and_its_look_alikes_are_held,
        /// A replay is not a look-alike of its own email.
        a_replay_is_no_look_alike,
        /// Look-alikes are also found between the items of one batch.
        look_alike_items_of_one_batch_are_held,
        /// Of 16 concurrent look-alikes one is sent and 15 are held.
        of_16_concurrent_look_alikes_one_is_sent,
        /// An identical email without a key is answered with the first, in a window that counts from its acceptance.
        an_identical_email_is_answered_with_the_first,
        /// Only an email that was or may be sent is repeated, and only in its own team.
        only_an_email_that_may_be_sent_is_repeated,
        /// Identical items of one batch are all sent; a repeated batch sends none.
        identical_items_of_one_batch_are_all_sent_once,
        /// Of 16 concurrent identical emails without a key one is created.
        of_16_concurrent_identical_emails_one_is_created,
        /// A reply that is a look-alike is held and counts against the cap, because its sender may release it.
        a_reply_that_is_a_look_alike_is_held,
        /// An email that a guard holds is not sent and keeps its key and due time.
        an_email_that_a_guard_holds_is_not_sent,
        /// An email that a guard only flags is sent and records the guard.
        a_flagged_email_is_sent,
        /// An email that its look-alikes only flag is sent, and flags later ones.
        an_email_that_its_look_alikes_only_flag_is_sent,
        /// Every guard that applies holds the email, and the most important is shown first.
        every_guard_that_applies_holds_the_email,
    }

    /// However many callers race, a key creates one email.
    accept_races "Concurrent sends" {
        /// Of 64 equal concurrent sends one is accepted, and all callers get the same email.
        of_64_equal_concurrent_sends_one_is_accepted,
        /// Of 1,000 equal concurrent sends one is accepted, and all callers get the same email.
        of_1000_equal_concurrent_sends_one_is_accepted,
        /// Of 64 different concurrent sends under one key one is accepted.
        of_64_different_concurrent_sends_under_one_key_one_is_accepted,
        /// 200 concurrent sends with different keys are all accepted.
        of_200_concurrent_sends_with_own_keys_all_are_accepted,
        /// Of 64 concurrent sends under an expired key one is accepted.
        of_64_concurrent_sends_under_an_expired_key_one_is_accepted,
        /// Of concurrent sends of one intent to A and to A and B, only one is sent.
        of_concurrent_overlapping_sends_to_one_and_to_several_only_one_is_sent,
        /// Of concurrent sends of one intent to groups that share a recipient, only one is sent.
        of_concurrent_sends_to_groups_that_share_a_recipient_only_one_is_sent,
        /// Batches that name the same keys in opposite order do not deadlock.
        batches_with_reversed_keys_do_not_deadlock,
        /// A batch that is sent several times concurrently creates each of its items once.
        a_batch_sent_several_times_concurrently_creates_its_items_once,
        /// Of 32 concurrent cancels all succeed and one emits an event.
        of_32_concurrent_cancels_one_emits_an_event,
        /// A cancel and a capture never both win.
        a_cancel_and_a_capture_never_both_win,
        /// Many concurrent workers capture each envelope once.
        many_workers_capture_each_envelope_once,
        /// Of 32 concurrent resends one creates a version, and all callers get it.
        of_32_concurrent_resends_one_creates_a_version,
        /// Of 32 concurrent operations under one key one is executed, and the others get its response.
        of_32_concurrent_operations_under_one_key_one_is_executed,
        /// Counts of suppressed calls from many nodes add up.
        suppressed_counts_of_many_nodes_add_up,
        /// A sweep that runs beside new sends loses none of them.
        a_sweep_concurrent_with_sends_loses_nothing,
    }
}

//! Promises about inboxes, the messages in them, and the artifacts that agents consume.

mod artifacts;
mod inboxes;
mod messages;

promises! {
    /// An address belongs to the first inbox that had it, for good.
    inboxes "Inboxes and addresses" {
        /// An inbox is read back unchanged.
        an_inbox_is_read_back_unchanged,
        /// A recipient is matched by the exact address, then without its tag, then by the catch-all.
        an_inbox_is_found_by_exact_then_plain_then_catch_all_address,
        /// An address and the catch-all of a domain belong to one inbox across all teams.
        an_address_is_unique_across_teams,
        /// A client id creates one inbox per team and is free again after its removal.
        a_client_id_creates_one_inbox_per_team,
        /// Creating an inbox with the same id twice creates it once.
        creating_an_inbox_twice_creates_it_once,
        /// Replaying the creation of an inbox creates no second one.
        replaying_an_inbox_creation_creates_no_second_inbox,
        /// A refused creation or change of an inbox binds no key.
        a_refused_inbox_creation_or_change_binds_no_key,
        /// Inboxes are listed newest first, in pages.
        inboxes_are_listed_newest_first_in_pages,
        /// An inbox is changed only with its current revision.
        an_inbox_change_needs_the_current_rev,
        /// A former address receives no mail and stays reserved for its inbox.
        a_former_address_receives_nothing_and_stays_reserved,
        /// A catch-all is free again when its inbox drops it.
        a_catch_all_is_free_again_when_its_inbox_drops_it,
        /// A change to a taken address or catch-all changes nothing.
        a_change_to_a_taken_address_changes_nothing,
        /// Replaying a change of an inbox changes nothing.
        replaying_an_inbox_change_changes_nothing,
        /// A removed inbox is not found. Its address stays reserved for good, its catch-all until the sweep.
        a_removed_inbox_is_not_found_and_its_addresses_stay_reserved,
        /// A former address still belongs to its team.
        a_former_address_still_belongs_to_its_team,
        /// Inboxes of another team cannot be read or changed.
        inboxes_of_another_team_are_not_found,
    }

    /// An inbox has one message per mail, numbered without gaps.
    messages "Filing and listing messages" {
        /// Filing a delivery creates one message with its bytes and event, and finishes the delivery.
        a_delivery_becomes_a_message,
        /// Messages are numbered per inbox, and duplicates use no number.
        messages_are_numbered_in_each_inbox,
        /// A message is filed once, and each duplicate leaves a row and an event.
        a_duplicate_message_is_filed_once_and_each_repeat_emits_an_event,
        /// Mails without a Message-ID are deduplicated by content.
        the_same_content_without_a_message_id_is_filed_once,
        /// Other content under a used Message-ID is another message, which is flagged.
        other_content_under_the_same_message_id_is_another_message,
        /// A Message-ID that was only referenced by a reply is not flagged as reused.
        a_message_id_that_was_only_referenced_is_not_flagged_as_reused,
        /// The same mail in two inboxes is two messages.
        the_same_mail_in_two_inboxes_is_two_messages,
        /// A delivery is filed only while it waits, and only by its team.
        a_delivery_is_filed_only_while_it_waits_and_only_by_its_team,
        /// A delivery that waits for a removed inbox is refused, with an event.
        a_delivery_waiting_for_a_removed_inbox_is_refused,
        /// The raw bytes of a mail stay while one of its deliveries needs them.
        raw_bytes_stay_while_one_delivery_needs_them,
        /// Messages are listed oldest or newest first, in pages.
        messages_are_listed_in_both_directions_in_pages,
        /// Messages can be filtered by thread, state, sender, subject, Message-ID, artifact, label and authentication.
        messages_can_be_filtered,
        /// Messages of another team cannot be read.
        messages_of_another_team_are_not_found,
        /// Messages and artifacts of a removed inbox are not found, swept or not.
        nothing_of_a_removed_inbox_is_found,
        /// Subscribers get a hint about each waiting delivery and each filed message.
        subscribers_get_hints_about_new_deliveries_and_messages,
        /// The hash of a Message-ID never collides with the hash of a content.
        message_ids_and_content_hashes_do_not_collide,
    }

    /// An artifact, such as a one-time code, is consumed once.
    artifacts "Artifacts and watches" {
        /// Artifacts are stored with their message, each with an event.
        artifacts_are_stored_with_their_message,
        /// The same value from the same sender within an hour is the same artifact.
        the_same_value_within_an_hour_is_the_same_artifact,
        /// Another hour, sender, kind or inbox makes another artifact.
        another_hour_sender_kind_or_inbox_is_another_artifact,
        /// A value that appears twice in one message is one artifact.
        a_value_twice_in_one_message_is_one_artifact,
        /// Artifacts are listed by their latest message, newest first.
        artifacts_are_listed_by_their_latest_message,
        /// Only the first consumer gets an artifact; the same consumer gets it again on a retry.
        an_artifact_is_consumed_by_its_first_consumer_only,
        /// Consuming under an operation key is done once; a refused attempt binds no key.
        consuming_under_an_operation_is_done_once,
        /// A consumer sees what it holds, in whichever watch it was taken.
        a_consumer_sees_what_it_holds_in_whichever_watch,
        /// A consumer that took an artifact after it chose another one gets no second one.
        a_consumer_that_took_one_meanwhile_gets_no_second_artifact,
        /// Only the consumer can mark an artifact as applied, and once.
        only_the_consumer_can_mark_an_artifact_applied_and_once,
        /// A watch starts after the latest message of its inbox.
        a_watch_starts_after_the_latest_message,
        /// A consumer's implicit watch goes on while it calls, and starts anew after it ended.
        an_implicit_watch_goes_on_while_its_consumer_calls,
        /// The resend budget of a watch can be spent until it is empty or the watch has ended.
        a_watchs_resend_budget_can_be_spent_until_empty,
        /// Spending a resend under an operation key is done once; a refused one binds no key.
        spending_a_resend_under_an_operation_is_done_once,
        /// Artifacts and watches of another team cannot be read or used.
        artifacts_and_watches_of_another_team_are_not_found,
        /// Removing an inbox ends its artifacts and watches.
        removing_an_inbox_ends_its_artifacts_and_watches,
    }
}

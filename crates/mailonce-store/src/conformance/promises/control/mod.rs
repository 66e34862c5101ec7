//! Promises about the audit log, budgets, erasing, records and stops.

mod audit;
mod budgets;
mod erasures;
mod records;
mod stops;

promises! {
    /// The audit log records who changed what, in the transaction of the change. Its entries form one hash chain per
    /// team.
    audit "The audit log" {
        /// Every administrative and human act has its entry, with its actor and without secrets and content.
        every_act_has_its_entry,
        /// An entry shows the allowed values before and after, and names the other fields that changed.
        an_entry_shows_the_values_before_and_after,
        /// An act that was refused, repeated or replayed has no entry.
        a_refused_or_repeated_act_has_no_entry,
        /// Sending leaves no entry.
        sending_leaves_no_entry,
        /// Without a caller the system acts, and the routine of workers is not recorded.
        without_a_caller_the_system_acts,
        /// An act on the installation is in the log of its actor's team, and that of the system in every log.
        an_act_on_no_team_is_in_the_log_of_its_actor_or_in_all,
        /// 32 concurrent acts form one chain without gaps.
        concurrent_acts_form_one_chain,
        /// Pages of a log are read in order, with the ends of the chain.
        pages_of_a_log_are_read_in_order,
        /// Names are resolved outside of the chain, and erasing one leaves the chain valid.
        a_name_is_resolved_outside_of_the_chain,
        /// A log without its expired entries is verified from its start.
        an_expired_log_is_verified_from_its_start,
        /// Names that only expired entries used are removed with them. The name of a person stays as long as the person.
        names_go_with_the_entries_that_used_them,
        /// An entry has an event if the team asks for it.
        an_entry_has_an_event_if_the_team_asks_for_it,
        /// An act with a key has one entry, however often it is repeated, and none when the key is taken.
        an_act_with_a_key_has_one_entry,
        /// The log of a new team begins with its creation, once.
        a_new_team_begins_its_log,
    }

    /// Erasing removes one row with everything that belongs to it, and leaves what "once" needs.
    erasures "Erasing" {
        /// An erased email has no content, addresses or texts of the person, and still answers its retries.
        an_erased_email_keeps_its_key_and_nothing_else,
        /// An email that has not settled is not erased.
        an_email_in_doubt_is_not_erased,
        /// The keys of an erased email are released like those of any other.
        keys_of_an_erased_email_are_released_in_time,
        /// An erased claim has no texts, result or payload of the person, and still answers its retries. One that has not
        /// ended is not erased.
        an_erased_claim_keeps_its_key_and_nothing_else,
        /// An erased message is not found any more, and the same mail makes no second message.
        an_erased_message_is_gone_and_stays_known,
        /// Bodies of settled emails and bytes of messages can be dropped early. The rest stays.
        bodies_and_bytes_are_dropped_before_their_time,
        /// Bodies are dropped early in steps of a bounded size, and none is due twice.
        bodies_are_dropped_in_bounded_steps,
        /// The bytes of dead deliveries can be dropped early, in bounded steps. The rows stay and cannot be replayed.
        the_bytes_of_dead_deliveries_are_dropped,
        /// The address of an erased person is replaced in labels and leases of threads, and in consumers of codes.
        texts_of_others_lose_the_address,
        /// The address of an erased person is replaced in names, descriptions, metadata and reasons that people typed, in
        /// their team alone.
        texts_that_people_typed_lose_the_address,
        /// A thread is removed only when it has no messages left.
        a_thread_is_removed_when_its_messages_are,
        /// A delivery without a message is removed with its bytes, unless it waits.
        a_delivery_without_a_message_is_removed,
        /// A record is replaced at its revision, without event and entry.
        a_replaced_record_has_another_name_and_no_entry,
        /// Replacing the data of an event leaves its number, id and neighbours.
        only_the_data_of_an_event_is_replaced,
        /// Names of the audit log are read page by page.
        names_of_the_log_are_paged,
    }

    /// Budgets are counted in the accept transaction. A refused send leaves nothing behind, and a retry is never
    /// refused. An email records where it was counted, and rescheduling moves its charges in the same transaction.
    budgets "Budgets" {
        /// An email over budget is refused and leaves no email, event, key or count.
        an_email_over_budget_is_refused_and_leaves_nothing,
        /// A retry is never refused by a budget.
        a_retry_is_never_refused_by_a_budget,
        /// Every budget of an email must have room, else none is charged.
        every_budget_must_have_room,
        /// A strict batch over budget is refused as a whole.
        a_strict_batch_that_exceeds_a_budget_is_refused_whole,
        /// A permissive batch is accepted as far as the budget goes, and a retry sends only the rest.
        a_permissive_batch_is_accepted_as_far_as_the_budget_goes,
        /// A repeated item of a batch counts once.
        a_repeated_item_of_a_batch_counts_once,
        /// A resend is charged, and a resend over budget changes nothing.
        a_resend_is_charged_and_one_over_budget_changes_nothing,
        /// A reply is charged, and a reply over budget leaves its slot free.
        a_reply_is_charged_and_one_over_budget_leaves_its_slot_free,
        /// Budgets of teams are counted separately.
        budgets_of_teams_are_separate,
        /// Counters of an ended period are swept after two days.
        an_ended_period_is_swept_after_two_days,
        /// Of 64 concurrent sends only as many are accepted as the budget allows.
        of_64_concurrent_sends_only_as_many_are_accepted_as_the_budget_allows,
        /// Rescheduling an email moves its charge to the new period.
        rescheduling_moves_the_budget_charge,
        /// A reschedule that exceeds a budget changes nothing.
        a_reschedule_that_exceeds_a_budget_changes_nothing,
        /// A reschedule within a period changes no counter.
        a_reschedule_within_a_period_changes_no_counter,
        /// An email that was never charged refunds nothing.
        an_uncharged_email_refunds_nothing,
        /// A period that has ended gets no refund.
        an_ended_period_gets_no_refund,
        /// A partly sent email keeps its charge when the rest is rescheduled.
        a_partly_sent_email_keeps_its_charge_when_rescheduled,
        /// Of 32 concurrent reschedules only as many succeed as the budget allows.
        of_32_concurrent_reschedules_only_as_many_succeed_as_the_budget_allows,
        /// A budget without room holds an email until there is room. It counts when it leaves.
        a_budget_without_room_holds_email_until_there_is_room,
        /// A person may release an email that a budget holds.
        a_person_may_release_what_a_budget_holds,
        /// A budget that flags lets email leave beyond its limit.
        a_budget_that_flags_lets_email_leave,
        /// A held email is charged when it is released, once. A budget without room holds it then.
        a_held_email_is_charged_when_it_is_released,
        /// An email that was surely not sent gives its charge back, once.
        an_email_that_was_surely_not_sent_gives_its_charge_back_once,
        /// A cancelled email gives back the place of its own day, not of today.
        a_cancelled_email_gives_back_the_place_of_its_own_day,
        /// Of 64 concurrent sends, a budget holds all but its limit. Places that are given back are taken once.
        of_64_concurrent_sends_the_budget_holds_all_but_its_limit,
        /// Email that waits for a budget is listed in order, in pages.
        email_that_waits_for_a_budget_is_listed_in_order,
        /// Whom an email leaves to is a contact for good.
        whom_an_email_leaves_to_is_a_contact_for_good,
    }

    /// Records are the small things that a team owns, such as domains, suppressions and sources.
    records "Records" {
        /// A record is read back unchanged, by id and by name.
        a_record_is_read_back_unchanged,
        /// The name of a record is unique within its team and kind.
        a_record_name_is_unique_in_its_team_and_kind,
        /// Creating a record with the same id twice creates it once.
        creating_a_record_twice_creates_it_once,
        /// Replaying the creation of a record creates no second one.
        replaying_a_record_creation_creates_no_second_record,
        /// A refused creation or change of a record binds no key.
        a_refused_record_creation_or_change_binds_no_key,
        /// Records are listed newest first, in pages.
        records_are_listed_newest_first_in_pages,
        /// A record is changed only with its current revision.
        a_record_change_needs_the_current_rev,
        /// Replaying a change of a record changes nothing.
        replaying_a_record_change_changes_nothing,
        /// A removed record is not found, and its name is free again.
        a_removed_record_frees_its_name,
        /// Records of another team cannot be read or changed.
        records_of_another_team_are_not_found,
        /// Of 32 concurrent creations under one name one record is created.
        of_32_concurrent_records_of_one_name_one_is_created,
        /// Of 32 concurrent changes of one record one is applied.
        of_32_concurrent_changes_of_one_record_one_is_applied,
        /// Of 32 concurrent creations under one operation key one is executed.
        of_32_concurrent_creations_under_one_key_one_is_executed,
        /// A change of a record emits its event once, and only when it is applied.
        a_record_change_emits_its_event_once_and_only_when_applied,
    }

    /// A stop keeps email from leaving without changing its state. Its answer is a barrier: no marker in its scope
    /// commits after it.
    stops "Stops" {
        /// A stop is read back unchanged, by its team only.
        a_stop_is_read_back_unchanged,
        /// Every team gets the events of stops of the installation and of transports.
        every_team_gets_the_events_of_a_stop_that_belongs_to_none,
        /// A scope is stopped once, also by concurrent calls.
        the_same_scope_is_stopped_once,
        /// A stop replaces the one of the configuration, and one with another mode.
        a_stop_replaces_that_of_the_configuration_and_one_with_another_mode,
        /// The stop of the journal of erasures replaces no other stop of the installation, and none replaces it.
        the_stop_of_the_journal_of_erasures_stands_beside_others,
        /// A replayed creation does not stop a scope again.
        a_replayed_creation_stops_nothing_again,
        /// A team has at most a thousand stops.
        a_team_has_at_most_a_thousand_stops,
        /// A stop of the installation covers the email of every team.
        a_stop_of_the_installation_covers_everything,
        /// A stop of a transport covers the handoffs of that transport.
        a_stop_of_a_transport_covers_its_handoffs,
        /// A stop of a team covers its email.
        a_stop_of_a_team_covers_its_email,
        /// A stop of an inbox covers its address, plus tags included.
        a_stop_of_an_inbox_covers_its_address,
        /// A stop of an API key covers the email that was sent with it.
        a_stop_of_an_api_key_covers_its_email,
        /// Stops in force are counted by kind, over all teams.
        stops_in_force_are_counted_by_kind,
        /// Email that waits for a stop of the installation or of a transport is counted, of one team or of all.
        email_that_waits_for_a_stop_is_counted,
        /// Email that a stop parked is counted until it is released.
        email_that_a_stop_parked_is_counted,
        /// Stopped email keeps its state and its due time, and counts as waiting.
        a_stop_changes_no_state,
        /// Stopped email does not delay other email.
        stopped_email_does_not_delay_other_email,
        /// A worker that has leased stopped email cannot send it.
        a_stopped_marker_sends_nothing,
        /// An attempt that had its marker before the stop is recorded.
        an_attempt_past_its_marker_is_recorded,
        /// Repeats and policy resends of unknown handoffs wait.
        repeats_and_policy_resends_wait,
        /// A stopped transport does not fail over.
        a_stopped_transport_does_not_fail_over,
        /// Stopped email can be cancelled and rescheduled.
        stopped_email_can_be_cancelled_and_rescheduled,
        /// Email is released in the order in which it was due.
        resume_releases_in_order,
        /// With a rate, no more than that leaves in a second.
        resume_releases_at_a_rate,
        /// A scope that is stopped again while it is released keeps what was parked.
        a_stop_that_returns_keeps_what_it_parked,
        /// Email that two stops cover leaves when both have ended.
        two_stops_must_both_end,
        /// A held email stays held when a stop ends.
        held_email_stays_held_on_resume,
        /// No marker in the scope commits after the answer to a stop.
        no_marker_commits_after_the_answer_to_a_stop,
        /// No handoff stays parked when a stop ends while workers lease.
        ending_a_stop_while_workers_lease_leaves_nothing_parked,
        /// Stops of another team cannot be read or ended.
        stops_of_another_team_are_not_found,
    }
}

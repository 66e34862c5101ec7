//! Promises about threads and replies: one reply per message, guards, caps, leases and escalations.

mod escalations;
mod replies;
mod reply_caps;
mod reply_guards;
mod thread_leases;
mod threading;
mod threads;
mod work_queue;

promises! {
    /// Messages that reply to each other share a thread, in whatever order they arrive.
    threading "Threading" {
        /// A reply joins the thread of any message that it references, within its inbox.
        a_reply_joins_the_thread_of_its_message,
        /// A message that arrives after its reply joins the thread of the reply.
        a_message_that_arrives_after_its_reply_joins_the_replys_thread,
        /// The closest known reference decides the thread, and a known reference keeps its thread.
        the_closest_known_reference_decides_the_thread,
    }

    /// A message gets one reply per `follow_up` number. The slot is free again only when the reply surely was not sent.
    replies "Replies" {
        /// A second reply to a message returns the first one, whatever it says, and binds no key.
        a_second_reply_to_a_message_returns_the_first,
        /// Each numbered follow-up is accepted once.
        each_numbered_follow_up_is_accepted_once,
        /// A second reply returns the first one in its current state.
        a_second_reply_returns_the_current_state_of_the_first,
        /// The slot of a cancelled or failed reply is free again.
        a_reply_slot_is_free_again_when_its_reply_certainly_was_not_sent,
        /// A message whose reply certainly was not sent is unanswered again and offered again.
        a_message_is_unanswered_again_when_its_reply_certainly_was_not_sent,
        /// A message stays answered while one of its replies was or may be sent; forwards do not count.
        a_message_stays_answered_while_one_of_its_replies_may_be_sent,
        /// Editing a held reply never frees its slot in between.
        editing_a_held_reply_never_frees_its_slot,
        /// A reply whose slot another reply took cannot be resent.
        a_replaced_reply_cannot_be_resent,
        /// A resend refused because another reply took the slot leaves the held reply as it was.
        a_resend_refused_for_another_answer_cancels_nothing,
        /// The slot of an unknown or abandoned reply stays taken.
        a_reply_slot_stays_taken_while_its_reply_may_have_been_sent,
        /// A held reply keeps its slot.
        a_held_reply_keeps_its_slot,
        /// A resent reply keeps the slot of the first version.
        a_resent_reply_keeps_its_slot,
        /// A sent reply keeps its slot, whatever happens to its next version.
        a_sent_reply_keeps_its_slot_whatever_its_next_version_does,
        /// The key of a reply is looked up before any guard, so that a retry is never refused.
        a_key_is_looked_up_before_any_guard,
        /// A forward has one slot per set of recipients and does not answer the message.
        a_forward_has_a_slot_for_each_set_of_recipients,
        /// A message accepts no more replies than its limit.
        a_message_accepts_no_more_replies_than_its_limit,
        /// Unknown messages and those of other teams cannot be answered.
        unknown_messages_and_those_of_other_teams_cannot_be_answered,
        /// Email subscribers are notified of a reply.
        subscribers_are_notified_of_a_reply,
        /// Of 32 concurrent replies to one message one is accepted, and all callers get it.
        of_32_concurrent_replies_to_one_message_one_is_accepted,
        /// Concurrent replies to many messages are accepted once per message.
        concurrent_replies_to_many_messages_are_each_accepted_once,
        /// Of 32 concurrent replies under one key one is accepted, even for two messages.
        of_32_concurrent_replies_under_one_key_one_is_accepted,
        /// A reply with the lease of its thread is accepted and leaves the lease as it is.
        a_reply_with_the_lease_is_accepted_and_keeps_the_lease,
    }

    /// Guards run in a fixed order, after the key look-up. A refusal leaves an event and nothing else.
    reply_guards "Reply guards" {
        /// Mail from our own agents is not answered.
        mail_from_our_own_agents_is_not_answered,
        /// A reply that would go only to our own team is refused; a forward is not.
        a_reply_only_to_ourselves_is_refused,
        /// Automatic mail is answered only if it is likely, not certainly, automatic and the inbox allows it.
        likely_automatic_mail_is_answered_only_if_the_inbox_allows_it,
        /// A thread that another agent has leased is not answered.
        a_thread_leased_to_another_agent_is_not_answered,
        /// A lease token that another agent's lease replaced is refused.
        a_stale_lease_token_is_refused,
        /// A released lease token is refused.
        a_released_lease_token_is_stale,
        /// A reply must name the newer messages of people in its thread as seen.
        a_reply_must_have_seen_newer_messages_of_people,
        /// Guards are checked in a fixed order.
        guards_are_checked_in_order,
        /// A refused reply leaves an event and nothing else.
        a_refusal_leaves_an_event_and_nothing_else,
    }

    /// Replies beyond the cap are held in the same transaction.
    reply_caps "Reply caps" {
        /// A reply over the cap is held, takes its slot, and emits `thread.cap_reached`.
        a_reply_over_the_cap_is_held_and_takes_its_slot,
        /// A held reply does not count against the cap.
        a_held_reply_is_not_counted,
        /// A reply that a person releases counts from its release, once.
        a_reply_released_by_a_person_counts_from_its_release,
        /// A held reply that is edited and sent counts once.
        an_edited_held_reply_counts_once,
        /// A reply that is held as a look-alike counts at once, because its sender may release it.
        a_reply_held_as_look_alike_counts_at_once,
        /// A reply with two holds counts once.
        a_reply_with_two_holds_counts_once,
        /// A rejected reply never counts.
        a_rejected_reply_is_never_counted,
        /// The daily cap is separate from the cap of the window.
        the_daily_cap_is_separate_from_the_window_cap,
        /// The total cap of a thread is not reset by a new day.
        a_threads_total_cap_is_not_reset_by_a_new_day,
        /// Replies to one person are counted across all threads of the team.
        replies_to_one_person_are_counted_across_threads,
        /// A sweep keeps the counts that a cap still needs.
        a_sweep_keeps_counts_that_a_cap_needs,
        /// Of 16 concurrent replies in one thread only as many are sent as the cap allows.
        of_16_concurrent_replies_only_as_many_as_the_cap_are_sent,
        /// Of 16 concurrent replies to one person only as many are sent as the cap allows.
        of_16_concurrent_replies_to_one_person_only_as_many_as_the_cap_are_sent,
    }

    /// One agent holds a thread.
    thread_leases "Leases of threads" {
        /// A free thread can be leased, a leased one cannot.
        a_free_thread_is_leased_and_a_leased_one_is_not,
        /// A lease is renewed only with its token, and a renewal emits no event.
        a_lease_is_renewed_only_with_its_token,
        /// An expired lease is taken over with a higher fence; until then its holder may renew it.
        an_expired_lease_is_taken_over_with_a_higher_fence,
        /// A lease is released only by its holder.
        a_lease_is_released_only_by_its_holder,
        /// Leasing under an operation key is done once; a refused lease binds no key.
        leasing_a_thread_under_an_operation_is_done_once,
        /// An unknown thread cannot be leased.
        an_unknown_thread_cannot_be_leased,
        /// Of 32 concurrent agents one leases a thread.
        of_32_concurrent_agents_one_leases_a_thread,
    }

    /// No message is given to two agents at a time, and none is lost.
    work_queue "The work queue" {
        /// The oldest messages are offered first, one per thread.
        the_oldest_messages_are_offered_first_one_per_thread,
        /// No more messages are offered than requested.
        no_more_messages_are_offered_than_requested,
        /// Answered, skipped and leased messages are not offered.
        messages_that_need_no_reply_are_not_offered,
        /// A nacked message is offered again after its delay.
        a_nacked_message_waits_for_its_delay,
        /// An extended offer lasts longer.
        an_extended_offer_lasts_longer,
        /// An acked message without a reply is skipped and frees its thread.
        an_acked_message_is_skipped_and_frees_its_thread,
        /// An acked message with a reply stays answered.
        acking_an_answered_message_keeps_it_answered,
        /// An expired offer is offered again with a higher fence, and the old token is stale.
        an_expired_offer_is_offered_again_with_a_higher_fence,
        /// A message that was offered too often in vain is skipped for good, with an event.
        a_message_offered_too_often_in_vain_is_skipped_for_good,
        /// Leasing messages under an operation key is done once; an empty result binds no key.
        leasing_messages_under_an_operation_is_done_once,
        /// Messages of another team are not offered and cannot be acknowledged.
        messages_of_another_team_are_not_offered,
        /// Many concurrent agents get each message once.
        many_concurrent_agents_get_each_message_once,
        /// Messages of one thread are offered one at a time.
        messages_of_one_thread_are_offered_one_at_a_time,
    }

    /// Threads are listed by their latest activity and removed with their inbox.
    threads "Threads as people see them" {
        /// A thread has the subject of its first message, counts its messages, and lists those of people.
        a_thread_counts_its_messages_and_people,
        /// Threads are listed by their latest activity, in pages.
        threads_are_listed_by_latest_activity,
        /// Threads can be filtered by inbox, label and whether they are handled.
        threads_can_be_filtered_by_inbox_label_and_handled,
        /// Labels and `handled` can be changed without counting as activity.
        labels_and_handled_can_be_changed,
        /// A person can end the lease of any holder, and the holder's token is no longer valid.
        a_person_can_end_the_lease_of_any_holder,
        /// A new message that needs a reply clears `handled`; a skipped one does not.
        a_new_unanswered_message_clears_handled,
        /// Emails of a thread are listed oldest first, including an email that a message replied to.
        emails_of_a_thread_are_listed_oldest_first,
        /// Removing an inbox removes its threads and keeps those of other inboxes.
        removing_an_inbox_removes_its_threads,
        /// Threads of another team cannot be read, changed or leased.
        threads_of_another_team_are_not_found,
    }

    /// An escalation sends one event when it opens and one when it closes.
    escalations "Held emails and escalations" {
        /// A held email is released once.
        a_held_email_is_released_once,
        /// An email with two holds leaves after both are removed, each by its own cause.
        an_email_with_two_holds_leaves_after_both_are_removed,
        /// Only held emails can be released, and only by their team.
        only_held_emails_can_be_released,
        /// A released email keeps its due time.
        a_released_scheduled_email_keeps_its_due_time,
        /// Held and unknown emails of all teams are listed in order, in pages.
        held_and_unknown_emails_of_all_teams_are_listed_in_order,
        /// An escalation emits one event when it opens and one when it is resolved.
        an_escalation_emits_an_event_when_it_opens_and_when_it_is_resolved,
        /// Escalation events come only from escalation records, in their own team.
        escalation_events_come_only_from_escalation_records,
    }
}

//! Promises about handing emails to the next hop: leases, markers, outcomes, evidence and recovery.

mod attempt_outcomes;
mod capture;
mod evidence_and_recovery;
mod leases;
mod missing_transports;
mod races;

promises! {
    /// The sandbox captures each envelope once, and a cancel and a capture never both win.
    capture "The sandbox" {
        /// A capture marks the email as sent and records one attempt.
        a_capture_marks_the_email_sent_and_records_an_attempt,
        /// An envelope is captured once.
        nothing_is_captured_twice,
        /// Only envelopes of the named transport are captured.
        only_envelopes_of_the_transport_are_captured,
        /// Captures take the longest due envelopes first, up to the limit.
        captures_take_the_longest_due_first_up_to_the_limit,
        /// Envelopes of one email are captured separately, and the email is sent with the last one.
        envelopes_of_one_email_are_captured_separately,
        /// The next due time of a transport is the earliest one of its handoffs.
        the_next_due_time_is_the_earliest,
        /// A capture serves all teams.
        envelopes_of_every_team_are_captured,
    }

    /// Each handoff is leased to one worker. A marker needs the current fence. The wire bytes are frozen once per
    /// transport.
    leases "Leases and markers" {
        /// The longest due handoffs are leased first.
        the_longest_due_handoffs_are_leased_first,
        /// Each lease raises the fence of the handoff.
        each_lease_raises_the_fence,
        /// A handoff that is leased, sending or unknown is leased to no other node.
        a_leased_handoff_is_leased_to_no_other_node,
        /// A lease request gets handoffs of its transport only, of all teams.
        a_lease_covers_one_transport_and_all_teams,
        /// Handoffs to excluded recipient domains are skipped.
        handoffs_to_excluded_domains_are_skipped,
        /// A scheduled handoff is leased only when it is due by the clock of the request and scheduled work was
        /// requested.
        a_scheduled_handoff_is_leased_only_when_due_and_requested,
        /// A lease returns the body, and after a marker also the frozen wire bytes.
        a_lease_returns_the_body_and_after_a_marker_the_frozen_bytes,
        /// Wire bytes are frozen by the first marker, once for each transport.
        bytes_are_frozen_once_for_each_transport,
        /// A marker with an old fence is refused as stale, and a lease is marked once.
        a_marker_needs_the_current_fence,
        /// Handoffs of one email proceed independently.
        handoffs_of_one_email_proceed_independently,
        /// After a cancel, the marker of an earlier lease is refused as stale.
        a_cancel_makes_the_marker_of_a_lease_stale,
        /// A cancel after the marker is refused as too late.
        a_cancel_after_the_marker_is_too_late,
        /// A returned lease is not leased before its new due time and uses no attempt.
        a_returned_lease_waits_for_its_new_due_time,
        /// A handoff fails over only while it is queued and no attempt is running or unknown.
        a_handoff_fails_over_only_before_its_first_attempt,
        /// A whole email can fail over to a transport that groups the recipients differently.
        a_whole_email_can_fail_over_with_other_envelopes,
        /// Handoffs of another team cannot be read or changed.
        handoffs_of_another_team_cannot_be_changed,
        /// The backlog counts waiting handoffs per transport, unknown handoffs, and the oldest due time.
        the_backlog_counts_waiting_and_unknown_handoffs,
    }

    /// The reply of the next hop decides the next state of the handoff. A late reply is evidence.
    attempt_outcomes "Outcomes of attempts" {
        /// An accepted attempt marks the handoff as sent.
        an_accepted_attempt_marks_the_handoff_sent,
        /// Attempts are read back unchanged and in order.
        attempts_are_read_back_unchanged_and_in_order,
        /// A deferred attempt waits for the backoff, or for the delay that the next hop asked for.
        a_deferred_attempt_waits_for_the_backoff_or_the_requested_delay,
        /// A refused attempt fails the handoff with the reason.
        a_refused_attempt_fails_the_handoff,
        /// A fault of our own side requeues the handoff without using up an attempt.
        a_transport_fault_requeues_without_using_an_attempt,
        /// A handoff fails after the maximum number of attempts.
        a_handoff_fails_after_the_maximum_number_of_attempts,
        /// A reply that is lost or ambiguous makes the outcome unknown.
        an_ambiguous_reply_makes_the_outcome_unknown,
        /// An outcome before the marker is recorded as an attempt that is certainly not unknown.
        an_outcome_before_the_marker_is_recorded_as_an_attempt,
        /// An outcome settles a marker whose commit its worker never saw confirmed.
        an_outcome_settles_a_marker_whose_commit_its_worker_never_saw,
        /// A late "accepted" moves the handoff to sent and is reported as a correction.
        a_late_accept_corrects_the_outcome,
        /// A late refusal requeues the handoff only when no other attempt is unknown.
        a_late_refusal_requeues_only_when_no_other_attempt_is_unknown,
        /// A worker that lost its lease cannot mark, return or fail the handoff.
        a_stale_worker_cannot_mark_return_or_fail_a_handoff,
        /// An unknown attempt is retried only at the provider account that it used.
        an_unknown_attempt_is_retried_only_at_its_own_account,
        /// A refused or deferred retry leaves the first attempt unknown; a recognised repeat proves that it was sent.
        a_refused_retry_leaves_the_first_attempt_unknown,
        /// The `on_unknown` policy resends once and flags the attempt as a possible duplicate.
        the_resend_policy_resends_once_and_flags_may_duplicate,
        /// Unknown handoffs are returned for a check when they are due, the longest due first.
        unknown_handoffs_are_returned_when_due,
    }

    /// Only a process that has the transport works on its unknown handoffs. Emails for a missing transport are found,
    /// reported once per outage, and rerouted only while no attempt is unknown.
    missing_transports "Missing transports" {
        /// Only a node that has the transport gets its unknown handoffs.
        only_a_node_with_the_transport_resolves_its_unknown_handoffs,
        /// An unknown attempt at another account is left to the node that has this account, if there is one.
        an_unknown_attempt_is_left_to_the_node_with_its_account,
        /// Handoffs that wait for a transport that no node has are found, per team.
        handoffs_of_a_transport_no_node_has_are_found,
        /// Emails with open handoffs at a transport are listed in pages.
        emails_with_open_handoffs_at_a_transport_are_paged,
        /// A handoff without a transport is reported once for each outage.
        an_orphan_is_reported_once_per_outage,
        /// A handoff without a transport fails after its maximum age, but only after it was reported.
        an_orphan_fails_after_its_maximum_age,
        /// An operator can move waiting handoffs to another transport, but never one that is leased, sending or
        /// unknown.
        an_operator_can_move_waiting_handoffs_but_not_unknown_ones,
        /// A moved email is split into the envelopes of its new transport, unless a part of it was sent.
        a_moved_email_is_split_into_the_new_transports_envelopes,
    }

    /// Work of a dead process is recovered once; a live process keeps its leases. Evidence with a deduplication id
    /// counts once, in any order.
    evidence_and_recovery "Evidence, recovery and decisions" {
        /// Evidence with a deduplication id counts once per email; evidence without one always counts.
        evidence_with_a_dedupe_id_counts_once,
        /// A report of a delay proves that the next hop accepted the email.
        a_delay_report_proves_that_the_email_was_sent,
        /// Evidence in any order gives the same final state.
        evidence_in_any_order_gives_the_same_state,
        /// Evidence is read back unchanged and in order.
        evidence_is_read_back_unchanged_and_in_order,
        /// A crash before the marker requeues the handoff.
        a_crash_before_the_marker_requeues_the_handoff,
        /// A crash after the marker makes the outcome unknown, dated at the marker.
        a_crash_after_the_marker_makes_the_outcome_unknown,
        /// A handoff fails after five crashes before the marker.
        a_handoff_fails_after_five_crashes_before_the_marker,
        /// A node with a recent heartbeat keeps its leases.
        a_node_with_a_recent_heartbeat_keeps_its_leases,
        /// A heartbeat returns the latest time of all nodes.
        a_heartbeat_returns_the_latest_time_of_all_nodes,
        /// A node does not reclaim its own leases.
        a_node_does_not_reclaim_its_own_leases,
        /// A recovery takes at most its limit per call and can be continued.
        a_recovery_is_bounded_and_can_be_continued,
        /// A person resolves an unknown handoff only with the current revision, and once.
        resolving_an_unknown_handoff_needs_the_current_rev,
        /// A resolution covers one handoff or all unknown handoffs of the email.
        a_resolution_covers_one_handoff_or_all,
        /// A resolution under an operation key is replayed; a refused one binds no key.
        a_resolution_under_an_operation_is_replayed,
        /// An email with an unknown attempt cannot be cancelled, and its key is kept.
        an_unknown_email_cannot_be_cancelled_and_its_key_is_kept,
        /// A handoff is found by the id of the next hop, only in its team.
        a_remote_id_is_found_only_in_its_team,
        /// The sweep drops frozen bytes with the body, and attempts and evidence last.
        the_sweep_drops_frozen_bytes_with_the_body_and_evidence_last,
    }

    /// Of a cancel and a marker exactly one wins.
    races "Concurrent workers" {
        /// Many concurrent workers lease each handoff once.
        many_workers_lease_each_handoff_once,
        /// A worker leases no handoff that fails over at the same moment.
        a_worker_leases_nothing_that_fails_over_concurrently,
        /// Of a concurrent cancel and marker exactly one wins.
        of_a_concurrent_cancel_and_marker_one_wins,
        /// A concurrent outcome and evidence end in one sent email with one event.
        a_concurrent_outcome_and_evidence_end_in_sent,
        /// Of 32 equal concurrent pieces of evidence one counts.
        of_32_equal_concurrent_pieces_of_evidence_one_counts,
        /// Of 32 concurrent operations under one key one is bound; equal ones get its response, others a mismatch.
        of_32_concurrent_operations_under_one_key_one_is_bound,
        /// Many concurrent recoveries recover each handoff once.
        many_concurrent_recoveries_recover_each_handoff_once,
    }
}

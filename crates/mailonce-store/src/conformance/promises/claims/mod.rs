//! Promises about claims.

mod holders;
mod offers;

promises! {
    /// A claim gives one caller at a time the right to a side effect. Commands need the latest token; facts are always
    /// recorded.
    holders "Claims" {
        /// Of 64 concurrent callers one wins a claim, and the others are told that it is busy.
        of_64_concurrent_callers_one_wins_a_claim,
        /// A claim is read back unchanged, with its result.
        a_claim_is_read_back_unchanged,
        /// A claim that has begun is unknown after its lease, whoever notices first, and never free.
        a_begun_claim_whose_lease_ended_is_unknown,
        /// A claim that has not begun is free after its lease, and its first holder cannot begin.
        an_unbegun_claim_is_free_after_its_lease,
        /// A late completion is recorded, and the next holder cannot begin.
        a_late_completion_is_recorded,
        /// Of a completion and a begin at the same moment, the begin is refused or comes first.
        a_completion_and_a_begin_never_both_win,
        /// The result of a completed claim is answered to every later caller.
        an_ended_claim_answers_with_its_result,
        /// The policy `retry` frees a lost claim once, and not while the time is unconfirmed.
        the_policy_frees_a_lost_claim_once,
        /// A person's decision is applied once, with its audit entry, and its key is bound.
        a_decision_about_a_claim_is_applied_once,
        /// A refused decision binds no key and leaves no audit entry.
        a_refused_decision_about_a_claim_binds_no_key,
        /// After a stop was created, no claim in its scope begins.
        no_claim_begins_after_a_stop,
        /// Claims have a key space of their own, in each team.
        claims_have_a_key_space_of_their_own,
        /// Another team can neither read nor change a claim.
        a_claim_belongs_to_its_team,
        /// A forgotten key is bound again under the next number, and an unknown claim is never forgotten.
        a_forgotten_claim_is_bound_again,
        /// Every change of a claim has its event, and renewing a lease has none.
        changes_of_a_claim_have_events,
        /// Lists show the newest claims first, filtered by state and key.
        claims_are_listed_newest_first,
        /// Ended leases are found in batches, across teams.
        ended_leases_are_found_in_batches,
    }

    /// An offered claim waits for a worker, with the payload that the worker needs.
    offers "Offered claims" {
        /// Of 32 concurrent offers one makes the claim, which nobody has.
        of_32_concurrent_offers_one_makes_the_claim,
        /// Whoever gets an offered claim gets its payload, and so does a later holder.
        the_holder_of_an_offered_claim_gets_its_payload,
        /// Another payload under the same key is a mismatch and changes nothing.
        another_payload_under_the_same_key_is_a_mismatch,
        /// An offer that is repeated changes nothing; after the claim has ended, only how long it is remembered.
        a_repeated_offer_changes_nothing,
        /// A claim that a caller made first gets the payload of a later offer.
        a_claim_without_a_payload_gets_that_of_an_offer,
        /// A stop that refuses refuses an offer; one that waits keeps its worker from beginning.
        a_stop_refuses_an_offer_or_its_worker,
        /// An offered claim is kept until a worker ended it, and for 35 days after its end and its latest offer.
        an_offered_claim_is_kept_for_its_worker_and_its_row,
        /// Offers belong to their team.
        an_offer_belongs_to_its_team,
    }
}

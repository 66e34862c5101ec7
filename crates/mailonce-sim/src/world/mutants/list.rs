//! The list of mutants.

use super::{Mutant, MutantDetector, PlanOverrides};
use crate::world::{FaultKind, HopProfile};

const fn found_by_worlds(name: &'static str, what: &'static str) -> Mutant {
    Mutant {
        name,
        what,
        detector: MutantDetector::Worlds,
        overrides: PlanOverrides {
            faults: &[],
            hops: &[],
            nodes: 0,
            rate: 0,
            mail: false,
            conversations: false,
            claims: false,
            failpoint: None,
        },
    }
}

impl Mutant {
    /// With these faults.
    const fn with_faults(mut self, faults: &'static [FaultKind]) -> Self {
        self.overrides.faults = faults;
        self
    }

    /// With these next hops.
    const fn with_hops(mut self, hops: &'static [HopProfile]) -> Self {
        self.overrides.hops = hops;
        self
    }

    /// With a high probability of faults.
    const fn with_frequent_faults(mut self) -> Self {
        self.overrides.rate = 60;
        self
    }

    /// With a node that pauses or dies at this failpoint.
    const fn with_failpoint(mut self, point: &'static str, time: u64) -> Self {
        self.overrides.failpoint = Some((point, time));
        self
    }

    /// With received mail.
    const fn with_mail(mut self) -> Self {
        self.overrides.mail = true;
        self
    }

    /// With mail that needs a reply.
    const fn with_conversations(mut self) -> Self {
        self.overrides.conversations = true;
        self
    }

    /// With workers that claim side effects.
    const fn with_claims(mut self) -> Self {
        self.overrides.claims = true;
        self
    }

    /// With two nodes.
    const fn with_two_nodes(mut self) -> Self {
        self.overrides.nodes = 2;
        self
    }
}

/// A provider that remembers a key for 15 minutes.
const KEYED: &[HopProfile] = &[HopProfile::Keyed(15 * 60_000)];

/// All mutants.
pub const MUTANTS: &[Mutant] = &[
    // Keys and meanings
    found_by_worlds("key-ignored", "a bound key makes another email"),
    found_by_worlds("key-without-team", "teams share their keys"),
    found_by_worlds("digest-ignored", "another meaning gets the first answer"),
    found_by_worlds("recipients-unsorted", "the order of recipients is part of the meaning"),
    found_by_worlds("batch-items-keyless", "items of a batch have no keys of their own"),
    found_by_worlds("batch-cut-short", "the last item of a batch is forgotten"),
    found_by_worlds("bind-ignored", "a key that is bound again goes downstream under its old name"),
    found_by_worlds("memory-from-acceptance", "a key is forgotten by its age, whatever its email does"),
    found_by_worlds("live-key-swept", "the sweep forgets keys of emails that are under way"),
    found_by_worlds("live-key-forgotten", "a key is forgotten by hand although its email is under way"),
    found_by_worlds("answered-before-commit", "a caller is answered before the commit"),
    // Guards and envelopes
    found_by_worlds("overlap-ignored", "an intent goes to the same people again"),
    found_by_worlds("slots-unbound", "an email to several does not stand for each of them"),
    found_by_worlds("guard-without-hold", "a guard speaks and holds nothing"),
    found_by_worlds("recipient-dropped", "one recipient gets no envelope"),
    found_by_worlds("handoff-doubled", "one recipient gets two envelopes"),
    found_by_worlds("resend-anything", "the next version is made of what is not finished"),
    // Leases and fences
    found_by_worlds("lease-same-fence", "a lease does not raise the fence"),
    found_by_worlds("any-fence", "any fence will do")
        .with_faults(&[FaultKind::Leap, FaultKind::Pause])
        .with_two_nodes()
        .with_frequent_faults(),
    found_by_worlds("lease-unsaved", "a lease is not written down"),
    found_by_worlds("leased-before-due", "work is taken before its time"),
    found_by_worlds("heartbeat-ignored", "a process that was heard of is taken for dead").with_two_nodes(),
    found_by_worlds("nothing-recovered", "what a dead process held stays its own"),
    found_by_worlds("lost-lease-kept", "a lease whose answer was lost is kept by a process that does not know of it")
        .with_faults(&[FaultKind::LostCommit]),
    found_by_worlds("unheard-name", "a process leases under a name that nobody heard of")
        .with_faults(&[FaultKind::LostCommit])
        .with_two_nodes()
        .with_frequent_faults(),
    found_by_worlds(
        "commit-dated-by-its-caller",
        "a caller that slept dates the end of an email by what it saw before",
    )
    .with_faults(&[FaultKind::Leap, FaultKind::Pause])
    .with_two_nodes()
    .with_frequent_faults(),
    found_by_worlds("stale-rev-obeyed", "a decision on an outdated view is obeyed"),
    found_by_worlds("rev-stands", "changes are not counted"),
    // The marker
    found_by_worlds("marker-forgotten", "the marker is not written down"),
    found_by_worlds("sent-on-approach", "the wire comes before the marker"),
    found_by_worlds("stale-worker-goes-on", "a refused marker does not stop the worker")
        .with_faults(&[FaultKind::Leap, FaultKind::Pause])
        .with_two_nodes(),
    found_by_worlds("unconfirmed-marker-goes-on", "a marker that the ledger did not confirm does not stop the worker")
        .with_faults(&[FaultKind::StoreDown]),
    found_by_worlds("crash-requeues-sending", "what was on the wire when its worker died is queued again")
        .with_faults(&[FaultKind::Crash]),
    found_by_worlds("crash-doubts-leased", "what had not left when its worker died is unknown"),
    found_by_worlds("crash-untold", "nobody is told that a crash left an outcome unknown"),
    found_by_worlds("cancel-after-marker", "an email is taken back while it is on the wire")
        .with_faults(&[FaultKind::Stall]),
    found_by_worlds("cancel-in-doubt", "an email is taken back although it may have arrived"),
    found_by_worlds("cancel-needs-all", "a cancel is too late because one recipient was refused before")
        .with_faults(&[FaultKind::Refuse, FaultKind::Defer])
        .with_hops(&[HopProfile::Relay])
        .with_frequent_faults(),
    found_by_worlds("cancel-unsaved", "a cancel is answered and not written down"),
    // Answers
    found_by_worlds("unknown-is-refused", "no answer is taken for a refusal"),
    found_by_worlds("unknown-is-deferred", "no answer is taken for a request to come again: released on any error"),
    found_by_worlds("unknown-is-accepted", "no answer is taken for success"),
    found_by_worlds("refused-is-unknown", "a refusal is taken for no answer").with_faults(&[FaultKind::Refuse]),
    found_by_worlds("refused-is-accepted", "a refusal is taken for success").with_faults(&[FaultKind::Refuse]),
    found_by_worlds("accepted-is-deferred", "success is taken for a request to come again"),
    found_by_worlds("accepted-is-refused", "success is taken for a refusal"),
    found_by_worlds("deferred-is-accepted", "a request to come again is taken for success"),
    found_by_worlds("deferred-is-unknown", "a request to come again is taken for no answer"),
    found_by_worlds("fault-is-unknown", "a transport at fault is taken for no answer"),
    found_by_worlds("concurrent-is-refused", "a provider that is busy with a key is taken to refuse it")
        .with_faults(&[FaultKind::Concurrent])
        .with_hops(KEYED),
    found_by_worlds("mismatch-is-refused", "a key that is known for other bytes is taken for a refusal")
        .with_faults(&[FaultKind::Mismatch])
        .with_hops(KEYED),
    found_by_worlds("repeated-is-refused", "a repeat that is rejected as a repeat is taken for a refusal")
        .with_faults(&[FaultKind::LoseReply])
        .with_hops(KEYED),
    found_by_worlds("waits-for-ever", "a next hop that never answers is waited for").with_faults(&[FaultKind::Stall]),
    found_by_worlds("written-down-once", "an answer that could not be written down is dropped")
        .with_faults(&[FaultKind::StoreDown]),
    found_by_worlds("late-reply-dropped", "the fence refuses facts")
        .with_faults(&[FaultKind::Leap, FaultKind::Pause])
        .with_two_nodes()
        .with_frequent_faults(),
    found_by_worlds("tries-again-by-itself", "a transport repeats what had no answer")
        .with_faults(&[FaultKind::LoseReply])
        .with_hops(&[HopProfile::Keyless]),
    // The node sleeps between the marker of a repeat and the send, until the provider forgot the key.
    found_by_worlds("old-connection-used", "a worker that slept sends all the same")
        .with_faults(&[FaultKind::LoseReply, FaultKind::Leap, FaultKind::Pause])
        .with_hops(KEYED)
        .with_failpoint("after-marker", 2)
        .with_frequent_faults(),
    found_by_worlds("breaker-never-tries", "a way that rested once rests for ever")
        .with_faults(&[FaultKind::Unauthorized]),
    // Bytes
    found_by_worlds("bytes-made-anew", "each attempt is composed anew"),
    found_by_worlds("downstream-key-anew", "each attempt has its own key downstream"),
    found_by_worlds("message-id-anew", "the Message-ID changes with the email"),
    // Unknown outcomes
    found_by_worlds("refusal-ends-doubt", "a refused repeat settles the attempts before it")
        .with_faults(&[FaultKind::LoseReply, FaultKind::Refuse])
        .with_hops(KEYED),
    found_by_worlds("given-up-in-doubt", "giving up forgets that an attempt may have arrived").with_faults(&[
        FaultKind::LoseReply,
        FaultKind::Refuse,
        FaultKind::Leap,
    ]),
    Mutant {
        detector: MutantDetector::Test("one_disproven_attempt_leaves_the_others_unknown"),
        ..found_by_worlds("one-refusal-clears-all", "one disproven attempt disproves all")
    },
    found_by_worlds("window-never-closes", "a repeat goes on after the provider forgot the key")
        .with_faults(&[FaultKind::LoseReply, FaultKind::Leap])
        .with_hops(KEYED),
    found_by_worlds("window-slides", "the window counts from the latest attempt")
        .with_faults(&[FaultKind::LoseReply, FaultKind::LoseRequest, FaultKind::Leap])
        .with_hops(KEYED)
        .with_frequent_faults(),
    found_by_worlds("window-while-unsure", "a window counts as open while time is not sure")
        .with_faults(&[FaultKind::LoseReply, FaultKind::Crash, FaultKind::ClockJump, FaultKind::Leap])
        .with_hops(KEYED)
        .with_frequent_faults(),
    found_by_worlds("window-unmeasured", "a window counts as open although nobody can measure it")
        .with_faults(&[FaultKind::LoseReply, FaultKind::Crash, FaultKind::ClockJump, FaultKind::Leap])
        .with_hops(KEYED)
        .with_frequent_faults(),
    found_by_worlds("any-account", "a repeat goes to another account")
        .with_faults(&[FaultKind::LoseReply, FaultKind::Crash, FaultKind::OtherAccount])
        .with_hops(KEYED)
        .with_frequent_faults(),
    found_by_worlds("never-looked-at-again", "nobody looks after unknown outcomes")
        .with_faults(&[FaultKind::LoseReply])
        .with_hops(KEYED),
    found_by_worlds("not-found-is-proof", "a look-up that finds nothing is believed")
        .with_faults(&[FaultKind::LoseReply, FaultKind::LateAccept, FaultKind::LookUp])
        .with_hops(&[HopProfile::LookUp(5_000)]),
    found_by_worlds("silence-is-proof", "a look-up without an answer is taken for a yes")
        .with_faults(&[FaultKind::LoseRequest, FaultKind::LookUp])
        .with_hops(&[HopProfile::LookUp(5_000)]),
    found_by_worlds("hold-is-resend", "every email is resent when its outcome stays unknown")
        .with_faults(&[FaultKind::LoseReply, FaultKind::Leap])
        .with_hops(&[HopProfile::Keyless]),
    found_by_worlds("policy-twice", "the policy resends again and again")
        .with_faults(&[FaultKind::LoseReply, FaultKind::Leap])
        .with_hops(&[HopProfile::Keyless]),
    found_by_worlds("resend-unflagged", "nothing says that a resend may duplicate")
        .with_faults(&[FaultKind::LoseReply, FaultKind::Leap])
        .with_hops(&[HopProfile::Keyless]),
    found_by_worlds("doubt-rerouted", "what may have arrived takes another way")
        .with_faults(&[FaultKind::LoseReply, FaultKind::Unauthorized])
        .with_hops(&[HopProfile::Keyless, HopProfile::LookUp(5_000)]),
    found_by_worlds("redirect-after-sent", "an email takes another way although some of it was sent")
        .with_faults(&[FaultKind::Unauthorized, FaultKind::Defer])
        .with_hops(&[HopProfile::Relay, HopProfile::Keyless]),
    // Facts and events
    found_by_worlds("proof-only-of-doubts", "proof counts only while the outcome is unknown")
        .with_faults(&[FaultKind::Reports, FaultKind::Crash])
        .with_frequent_faults(),
    found_by_worlds("delay-proves-nothing", "a report of delay is written down and changes nothing")
        .with_faults(&[FaultKind::Reports, FaultKind::LoseReply])
        .with_hops(&[HopProfile::Keyless]),
    found_by_worlds("fact-of-another-handoff", "a fact about one recipient counts for another")
        .with_faults(&[FaultKind::Reports, FaultKind::LoseReply])
        .with_hops(&[HopProfile::Relay]),
    found_by_worlds("facts-count-twice", "a fact that comes twice counts twice").with_faults(&[FaultKind::Reports]),
    found_by_worlds("bounce-undone", "a delivery hides a bounce").with_faults(&[FaultKind::Reports]),
    found_by_worlds("act-of-any-team", "facts of another team count"),
    found_by_worlds("team-ignored", "a team sees the emails of another"),
    found_by_worlds("event-lost", "a change is not told"),
    found_by_worlds("event-twice", "a change is told twice"),
    found_by_worlds("acceptance-untold", "an acceptance is not told"),
    found_by_worlds("event-to-another-team", "a team is told of another's emails"),
    found_by_worlds("attempts-not-updated", "an attempt is written down twice"),
    // Received mail
    found_by_worlds("mail-answered-before-commit", "a sender is answered before the commit")
        .with_faults(&[FaultKind::Crash])
        .with_mail(),
    found_by_worlds("delivery-key-dropped", "a delivery that comes again is kept again").with_mail(),
    found_by_worlds("repeat-unrecorded", "a delivery that comes again leaves no row").with_mail(),
    found_by_worlds("message-unrecognised", "a mail that came by another door is another message").with_mail(),
    found_by_worlds("filed-though-settled", "a delivery that is settled is filed again")
        .with_faults(&[FaultKind::Leap, FaultKind::Pause])
        .with_mail()
        .with_two_nodes()
        .with_frequent_faults(),
    found_by_worlds("reading-never-lapses", "what a dead reader held is never read")
        .with_faults(&[FaultKind::Crash])
        .with_mail()
        .with_frequent_faults(),
    found_by_worlds("message-untold", "a message is not told").with_mail(),
    found_by_worlds("message-told-twice", "a message is told twice").with_mail(),
    found_by_worlds("inbox-number-stands", "two messages of an inbox have one number").with_mail(),
    found_by_worlds("artifact-window-ignored", "the same code of the same sender is another artifact").with_mail(),
    found_by_worlds("consume-unchecked", "a code is given to whoever wants it").with_mail(),
    found_by_worlds("take-unsaved", "a code is given out and that is not written down").with_mail(),
    // Conversations
    found_by_worlds("own-mail-answered", "our own mail is answered").with_conversations(),
    found_by_worlds("automatic-mail-answered", "a machine is answered").with_conversations(),
    found_by_worlds("unsent-answer-stands", "a message whose answer surely never left is not open again")
        .with_conversations(),
    found_by_worlds("answered-twice", "a message that was answered is answered again").with_conversations(),
    found_by_worlds("slot-freed-in-doubt", "a message is answered again while its answer may have arrived")
        .with_faults(&[FaultKind::LoseReply])
        .with_hops(&[HopProfile::Keyless])
        .with_conversations()
        .with_frequent_faults(),
    found_by_worlds("later-version-forgotten", "a message is answered again although its answer was sent again")
        .with_faults(&[FaultKind::Refuse])
        .with_conversations(),
    found_by_worlds(
        "earlier-version-forgotten",
        "a message is answered again because its answer could not be sent twice",
    )
    .with_faults(&[FaultKind::Refuse])
    .with_conversations(),
    found_by_worlds("thread-lease-ignored", "a thread that another holds is answered").with_conversations(),
    found_by_worlds("lost-lease-obeyed", "an agent that lost its lease is obeyed").with_conversations(),
    found_by_worlds("thread-leased-twice", "two agents are given one thread").with_conversations(),
    found_by_worlds("thread-fence-stands", "a lease of a thread does not raise its fence").with_conversations(),
    found_by_worlds("newer-message-ignored", "an answer goes past a newer message").with_conversations(),
    found_by_worlds("cap-ignored", "any number of answers goes").with_conversations(),
    found_by_worlds("tally-uncounted", "answers are not counted").with_conversations(),
    found_by_worlds("day-ignored", "the limit of a day is not asked about").with_conversations(),
    found_by_worlds("total-ignored", "the limit of a thread in all is not asked about").with_conversations(),
    found_by_worlds("person-ignored", "the limit of a person is not asked about").with_conversations(),
    found_by_worlds("held-answer-counted", "an answer that is held counts as sent").with_conversations(),
    found_by_worlds("cap-unasked", "nobody is asked about an answer that is held").with_conversations(),
    found_by_worlds("answered-still-open", "a message that was answered is offered").with_conversations(),
    found_by_worlds("put-off-ignored", "a message that was put off is offered at once").with_conversations(),
    found_by_worlds("offered-for-ever", "a message that nobody answers is offered for ever").with_conversations(),
    found_by_worlds("refusal-untold", "a refused answer is not told").with_conversations(),
    found_by_worlds("answer-untold", "an answer is not told").with_conversations(),
    found_by_worlds("likeness-ignored", "a mail without a key that says the same again is let go"),
    // Claims
    found_by_worlds("claim-taken-while-busy", "a claim that somebody has is given to the next").with_claims(),
    found_by_worlds("claim-holder-ignored", "anybody gets the lease of the first again").with_claims(),
    found_by_worlds("claim-fence-stands", "a lease of a claim does not raise its fence").with_claims(),
    found_by_worlds("claim-fingerprint-ignored", "another content gets the claim or its result").with_claims(),
    found_by_worlds("claim-any-token", "a holder that lost its lease is obeyed").with_claims(),
    found_by_worlds("claim-beginning-unsaved", "a beginning is answered and not written down").with_claims(),
    found_by_worlds("claim-late-completion-refused", "a completion after the lease is refused").with_claims(),
    found_by_worlds("claim-late-completion-dropped", "a completion after the lease is answered and not written down")
        .with_claims(),
    found_by_worlds("claim-result-replaced", "a later result replaces the first").with_claims(),
    found_by_worlds("claim-failure-always-frees", "a final failure lets the next one try").with_claims(),
    found_by_worlds("claim-lease-never-ends", "a holder that was lost keeps its claim").with_claims(),
    found_by_worlds("claim-freed-after-beginning", "a claim that has begun is freed with its lease").with_claims(),
    found_by_worlds("claim-hold-is-retry", "every claim is tried again when its holder is lost").with_claims(),
    found_by_worlds("claim-policy-again-and-again", "the policy frees a claim more than once")
        .with_faults(&[FaultKind::Leap])
        .with_claims()
        .with_frequent_faults(),
    found_by_worlds("claim-policy-without-pause", "the policy frees a claim when its lease ends").with_claims(),
    found_by_worlds("claim-repeat-unflagged", "nothing says that the side effect may be repeated").with_claims(),
    found_by_worlds("claim-loss-untold", "a lost holder is not told").with_claims(),
    found_by_worlds("claim-loss-unasked", "nobody is asked about a claim whose holder was lost").with_claims(),
    Mutant {
        detector: MutantDetector::Test("an_unknown_claim_is_never_forgotten"),
        ..found_by_worlds("claim-unknown-forgotten", "a claim whose holder was lost is forgotten")
    },
    Mutant {
        detector: MutantDetector::Test("no_claim_begins_under_a_stop"),
        ..found_by_worlds("claim-stop-ignored", "a claim begins although a stop covers it")
    },
    Mutant {
        detector: MutantDetector::Test("another_payload_is_another_claim"),
        ..found_by_worlds("claim-payload-ignored", "an offer with another payload counts as the first")
    },
    // Time
    found_by_worlds("jump-followed", "a clock that jumps is followed").with_faults(&[FaultKind::ClockJump]),
    found_by_worlds("time-goes-back", "ledger time goes back")
        .with_faults(&[FaultKind::ClockJump, FaultKind::Crash])
        .with_frequent_faults(),
];

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
    found_by_worlds("key-ignored", "an idempotency key that is in use accepts another email"),
    found_by_worlds("key-without-team", "teams share their idempotency keys"),
    found_by_worlds("digest-ignored", "a different email under a used key gets the first answer"),
    found_by_worlds("recipients-unsorted", "the order of recipients makes a different email"),
    found_by_worlds("batch-items-keyless", "items of a batch have no keys of their own"),
    found_by_worlds("batch-cut-short", "the last item of a batch is dropped"),
    found_by_worlds("bind-ignored", "a key that is bound again uses its old downstream key"),
    found_by_worlds("memory-from-acceptance", "a key expires by its age, whatever state its email is in"),
    found_by_worlds("live-key-swept", "cleanup forgets keys of emails that are not final"),
    found_by_worlds("live-key-forgotten", "a key can be forgotten by hand although its email is not final"),
    found_by_worlds("answered-before-commit", "the caller gets its answer before the commit"),
    // Guards and envelopes
    found_by_worlds("overlap-ignored", "an intent is sent to the same recipients again"),
    found_by_worlds("slots-unbound", "an email to several recipients does not count for each of them"),
    found_by_worlds("guard-without-hold", "a guard reports an email and does not hold it"),
    found_by_worlds("recipient-dropped", "one recipient gets no handoff"),
    found_by_worlds("handoff-doubled", "one recipient gets two handoffs"),
    found_by_worlds("resend-anything", "an email that is not final can be resent"),
    // Leases and fences
    found_by_worlds("lease-same-fence", "a lease does not raise the fence"),
    found_by_worlds("any-fence", "fences are not compared")
        .with_faults(&[FaultKind::Leap, FaultKind::Pause])
        .with_two_nodes()
        .with_frequent_faults(),
    found_by_worlds("lease-unsaved", "a lease is not stored"),
    found_by_worlds("leased-before-due", "work is leased before it is due"),
    found_by_worlds("heartbeat-ignored", "a live process counts as dead").with_two_nodes(),
    found_by_worlds("nothing-recovered", "the work of a dead process is not recovered"),
    found_by_worlds(
        "lost-lease-kept",
        "a lease whose commit was reported as failed stays with a process that does not know of it",
    )
    .with_faults(&[FaultKind::LostCommit]),
    found_by_worlds("unheard-name", "a process leases under a name that has no heartbeat")
        .with_faults(&[FaultKind::LostCommit])
        .with_two_nodes()
        .with_frequent_faults(),
    found_by_worlds(
        "commit-dated-by-its-caller",
        "a process that was suspended dates the end of an email by its old clock reading",
    )
    .with_faults(&[FaultKind::Leap, FaultKind::Pause])
    .with_two_nodes()
    .with_frequent_faults(),
    found_by_worlds("stale-rev-obeyed", "a decision on an outdated view is carried out"),
    found_by_worlds("rev-stands", "the revision does not grow with changes"),
    // The marker
    found_by_worlds("marker-forgotten", "the `sending` marker is not stored"),
    found_by_worlds("sent-on-approach", "the email is sent before the marker"),
    found_by_worlds("stale-worker-goes-on", "a worker sends although its marker was refused")
        .with_faults(&[FaultKind::Leap, FaultKind::Pause])
        .with_two_nodes(),
    found_by_worlds("unconfirmed-marker-goes-on", "a worker sends although its marker was not confirmed")
        .with_faults(&[FaultKind::StoreDown]),
    found_by_worlds("crash-requeues-sending", "what was being sent when its worker died is queued again")
        .with_faults(&[FaultKind::Crash]),
    found_by_worlds("crash-doubts-leased", "what was not being sent when its worker died becomes unknown"),
    found_by_worlds("crash-untold", "an outcome that became unknown by a crash has no event"),
    found_by_worlds("cancel-after-marker", "an email is cancelled while it is being sent")
        .with_faults(&[FaultKind::Stall]),
    found_by_worlds("cancel-in-doubt", "an email is cancelled although it may have been sent"),
    found_by_worlds("cancel-needs-all", "a cancel is too late because one recipient was refused before")
        .with_faults(&[FaultKind::Refuse, FaultKind::Defer])
        .with_hops(&[HopProfile::Relay])
        .with_frequent_faults(),
    found_by_worlds("cancel-unsaved", "a cancel is answered and not stored"),
    // Answers
    found_by_worlds("unknown-is-refused", "a missing reply is taken for a refusal"),
    found_by_worlds(
        "unknown-is-deferred",
        "a missing reply is taken for a temporary refusal, so the email is sent again",
    ),
    found_by_worlds("unknown-is-accepted", "a missing reply is taken for success"),
    found_by_worlds("refused-is-unknown", "a refusal is taken for a missing reply").with_faults(&[FaultKind::Refuse]),
    found_by_worlds("refused-is-accepted", "a refusal is taken for success").with_faults(&[FaultKind::Refuse]),
    found_by_worlds("accepted-is-deferred", "success is taken for a temporary refusal"),
    found_by_worlds("accepted-is-refused", "success is taken for a refusal"),
    found_by_worlds("deferred-is-accepted", "a temporary refusal is taken for success"),
    found_by_worlds("deferred-is-unknown", "a temporary refusal is taken for a missing reply"),
    found_by_worlds("fault-is-unknown", "a broken transport is taken for a missing reply"),
    found_by_worlds(
        "concurrent-is-refused",
        "a provider that is still processing the key is taken to refuse the email",
    )
    .with_faults(&[FaultKind::Concurrent])
    .with_hops(KEYED),
    found_by_worlds("mismatch-is-refused", "a key that the provider knows for other bytes is taken for a refusal")
        .with_faults(&[FaultKind::Mismatch])
        .with_hops(KEYED),
    found_by_worlds("repeated-is-refused", "a rejected duplicate is taken for a refusal")
        .with_faults(&[FaultKind::LoseReply])
        .with_hops(KEYED),
    found_by_worlds("waits-for-ever", "there is no timeout for a next hop that never replies")
        .with_faults(&[FaultKind::Stall]),
    found_by_worlds("written-down-once", "a reply that could not be stored is dropped")
        .with_faults(&[FaultKind::StoreDown]),
    found_by_worlds("late-reply-dropped", "the reply to a worker that lost its lease is dropped")
        .with_faults(&[FaultKind::Leap, FaultKind::Pause])
        .with_two_nodes()
        .with_frequent_faults(),
    found_by_worlds("tries-again-by-itself", "a transport retries by itself after a missing reply")
        .with_faults(&[FaultKind::LoseReply])
        .with_hops(&[HopProfile::Keyless]),
    // The node sleeps between the marker of a repeat and the send, until the provider forgot the key.
    found_by_worlds(
        "old-connection-used",
        "a worker that was suspended sends although the idempotency window has closed",
    )
    .with_faults(&[FaultKind::LoseReply, FaultKind::Leap, FaultKind::Pause])
    .with_hops(KEYED)
    .with_failpoint("after-marker", 2)
    .with_frequent_faults(),
    found_by_worlds("breaker-never-tries", "a circuit breaker that opened never closes again")
        .with_faults(&[FaultKind::Unauthorized]),
    // Bytes
    found_by_worlds("bytes-made-anew", "each attempt composes the email again"),
    found_by_worlds("downstream-key-anew", "each attempt has another idempotency key downstream"),
    found_by_worlds("message-id-anew", "the Message-ID changes between attempts"),
    // Unknown outcomes
    found_by_worlds("refusal-ends-doubt", "a refused retry settles the earlier attempts whose outcome is unknown")
        .with_faults(&[FaultKind::LoseReply, FaultKind::Refuse])
        .with_hops(KEYED),
    found_by_worlds("given-up-in-doubt", "giving up ignores that an attempt may have succeeded").with_faults(&[
        FaultKind::LoseReply,
        FaultKind::Refuse,
        FaultKind::Leap,
    ]),
    Mutant {
        detector: MutantDetector::Test("one_disproven_attempt_leaves_the_others_unknown"),
        ..found_by_worlds("one-refusal-clears-all", "disproving one attempt disproves all")
    },
    found_by_worlds("window-never-closes", "retries go on after the provider forgot the key")
        .with_faults(&[FaultKind::LoseReply, FaultKind::Leap])
        .with_hops(KEYED),
    found_by_worlds("window-slides", "the idempotency window counts from the latest attempt")
        .with_faults(&[FaultKind::LoseReply, FaultKind::LoseRequest, FaultKind::Leap])
        .with_hops(KEYED)
        .with_frequent_faults(),
    found_by_worlds("window-while-unsure", "a window counts as open while the clock is not trusted")
        .with_faults(&[FaultKind::LoseReply, FaultKind::Crash, FaultKind::ClockJump, FaultKind::Leap])
        .with_hops(KEYED)
        .with_frequent_faults(),
    found_by_worlds("window-unmeasured", "a window counts as open although its age cannot be measured")
        .with_faults(&[FaultKind::LoseReply, FaultKind::Crash, FaultKind::ClockJump, FaultKind::Leap])
        .with_hops(KEYED)
        .with_frequent_faults(),
    found_by_worlds("any-account", "a retry goes to another account of the provider")
        .with_faults(&[FaultKind::LoseReply, FaultKind::Crash, FaultKind::OtherAccount])
        .with_hops(KEYED)
        .with_frequent_faults(),
    found_by_worlds("never-looked-at-again", "unknown outcomes are never looked up")
        .with_faults(&[FaultKind::LoseReply])
        .with_hops(KEYED),
    found_by_worlds("not-found-is-proof", "a look-up that finds nothing counts as proof")
        .with_faults(&[FaultKind::LoseReply, FaultKind::LateAccept, FaultKind::LookUp])
        .with_hops(&[HopProfile::LookUp(5_000)]),
    found_by_worlds("silence-is-proof", "a look-up without an answer counts as found")
        .with_faults(&[FaultKind::LoseRequest, FaultKind::LookUp])
        .with_hops(&[HopProfile::LookUp(5_000)]),
    found_by_worlds("hold-is-resend", "every email is resent when its outcome stays unknown")
        .with_faults(&[FaultKind::LoseReply, FaultKind::Leap])
        .with_hops(&[HopProfile::Keyless]),
    found_by_worlds("policy-twice", "the policy `resend` resends more than once")
        .with_faults(&[FaultKind::LoseReply, FaultKind::Leap])
        .with_hops(&[HopProfile::Keyless]),
    found_by_worlds("resend-unflagged", "a resend after an unknown outcome is not flagged as a possible duplicate")
        .with_faults(&[FaultKind::LoseReply, FaultKind::Leap])
        .with_hops(&[HopProfile::Keyless]),
    found_by_worlds("doubt-rerouted", "an email that may have been sent fails over to another transport")
        .with_faults(&[FaultKind::LoseReply, FaultKind::Unauthorized])
        .with_hops(&[HopProfile::Keyless, HopProfile::LookUp(5_000)]),
    found_by_worlds("redirect-after-sent", "an email that was partly sent fails over to another transport")
        .with_faults(&[FaultKind::Unauthorized, FaultKind::Defer])
        .with_hops(&[HopProfile::Relay, HopProfile::Keyless]),
    // Facts and events
    found_by_worlds("proof-only-of-doubts", "proof counts only while the outcome is unknown")
        .with_faults(&[FaultKind::Reports, FaultKind::Crash])
        .with_frequent_faults(),
    found_by_worlds("delay-proves-nothing", "a report of delay is recorded and changes nothing")
        .with_faults(&[FaultKind::Reports, FaultKind::LoseReply])
        .with_hops(&[HopProfile::Keyless]),
    found_by_worlds("fact-of-another-handoff", "evidence about one recipient counts for another")
        .with_faults(&[FaultKind::Reports, FaultKind::LoseReply])
        .with_hops(&[HopProfile::Relay]),
    found_by_worlds("facts-count-twice", "evidence that arrives twice counts twice").with_faults(&[FaultKind::Reports]),
    found_by_worlds("bounce-undone", "a delivery hides a bounce").with_faults(&[FaultKind::Reports]),
    found_by_worlds("act-of-any-team", "evidence of another team counts"),
    found_by_worlds("team-ignored", "a team sees the emails of another team"),
    found_by_worlds("event-lost", "a change has no event"),
    found_by_worlds("event-twice", "a change has two events"),
    found_by_worlds("acceptance-untold", "an accepted email has no event"),
    found_by_worlds("event-to-another-team", "a team gets an event about another team's email"),
    found_by_worlds("attempts-not-updated", "an attempt is stored twice"),
    // Received mail
    found_by_worlds("mail-answered-before-commit", "a sender gets its 250 before the commit")
        .with_faults(&[FaultKind::Crash])
        .with_mail(),
    found_by_worlds("delivery-key-dropped", "a delivery that arrives again is stored again").with_mail(),
    found_by_worlds("repeat-unrecorded", "a delivery that arrives again leaves no row").with_mail(),
    found_by_worlds("message-unrecognised", "a mail that arrives through another intake becomes another message")
        .with_mail(),
    found_by_worlds("filed-though-settled", "a delivery that is already processed is filed again")
        .with_faults(&[FaultKind::Leap, FaultKind::Pause])
        .with_mail()
        .with_two_nodes()
        .with_frequent_faults(),
    found_by_worlds("reading-never-lapses", "the deliveries of a dead worker are never processed")
        .with_faults(&[FaultKind::Crash])
        .with_mail()
        .with_frequent_faults(),
    found_by_worlds("message-untold", "a message has no event").with_mail(),
    found_by_worlds("message-told-twice", "a message has two events").with_mail(),
    found_by_worlds("inbox-number-stands", "two messages of an inbox have the same cursor").with_mail(),
    found_by_worlds("artifact-window-ignored", "the same code from the same sender becomes a second artifact")
        .with_mail(),
    found_by_worlds("consume-unchecked", "a consumed code is given to another caller").with_mail(),
    found_by_worlds("take-unsaved", "consuming a code is not stored").with_mail(),
    // Conversations
    found_by_worlds("own-mail-answered", "an email of our own is answered").with_conversations(),
    found_by_worlds("automatic-mail-answered", "an automatic message is answered").with_conversations(),
    found_by_worlds("unsent-answer-stands", "a message whose reply surely was not sent is not opened again")
        .with_conversations(),
    found_by_worlds("answered-twice", "an answered message is answered again").with_conversations(),
    found_by_worlds("slot-freed-in-doubt", "a message is answered again while the outcome of its reply is unknown")
        .with_faults(&[FaultKind::LoseReply])
        .with_hops(&[HopProfile::Keyless])
        .with_conversations()
        .with_frequent_faults(),
    found_by_worlds("later-version-forgotten", "a message is answered again although its reply was resent")
        .with_faults(&[FaultKind::Refuse])
        .with_conversations(),
    found_by_worlds("earlier-version-forgotten", "a message is answered again because the resend of its reply failed")
        .with_faults(&[FaultKind::Refuse])
        .with_conversations(),
    found_by_worlds("thread-lease-ignored", "a thread that another agent has leased is answered").with_conversations(),
    found_by_worlds("lost-lease-obeyed", "an agent that lost its lease may reply").with_conversations(),
    found_by_worlds("thread-leased-twice", "two agents lease one thread").with_conversations(),
    found_by_worlds("thread-fence-stands", "a lease of a thread does not raise its fence").with_conversations(),
    found_by_worlds("newer-message-ignored", "a reply ignores a newer message").with_conversations(),
    found_by_worlds("cap-ignored", "the limits of replies are ignored").with_conversations(),
    found_by_worlds("tally-uncounted", "replies are not counted").with_conversations(),
    found_by_worlds("day-ignored", "the limit per day is not checked").with_conversations(),
    found_by_worlds("total-ignored", "the total limit of a thread is not checked").with_conversations(),
    found_by_worlds("person-ignored", "the limit per recipient is not checked").with_conversations(),
    found_by_worlds("held-answer-counted", "a held reply counts as sent").with_conversations(),
    found_by_worlds("cap-unasked", "a held reply opens no escalation").with_conversations(),
    found_by_worlds("answered-still-open", "an answered message is offered as work").with_conversations(),
    found_by_worlds("put-off-ignored", "a returned message is offered before its delay has passed")
        .with_conversations(),
    found_by_worlds("offered-for-ever", "a message that nobody answers is offered without end").with_conversations(),
    found_by_worlds("refusal-untold", "a refused reply has no event").with_conversations(),
    found_by_worlds("answer-untold", "a reply has no event").with_conversations(),
    found_by_worlds("likeness-ignored", "a near-duplicate without an idempotency key is sent"),
    // Claims
    found_by_worlds("claim-taken-while-busy", "a claim that is held is given to the next caller").with_claims(),
    found_by_worlds("claim-holder-ignored", "every caller gets the lease of the first holder").with_claims(),
    found_by_worlds("claim-fence-stands", "a lease of a claim does not raise its fence").with_claims(),
    found_by_worlds("claim-fingerprint-ignored", "a call with another fingerprint gets the claim or its result")
        .with_claims(),
    found_by_worlds("claim-any-token", "a holder that lost its lease may act").with_claims(),
    found_by_worlds("claim-beginning-unsaved", "the beginning is answered and not stored").with_claims(),
    found_by_worlds("claim-late-completion-refused", "a completion after the lease is refused").with_claims(),
    found_by_worlds("claim-late-completion-dropped", "a completion after the lease is answered and not stored")
        .with_claims(),
    found_by_worlds("claim-result-replaced", "a later result replaces the first").with_claims(),
    found_by_worlds("claim-failure-always-frees", "a final failure frees the claim").with_claims(),
    found_by_worlds("claim-lease-never-ends", "a lost holder keeps its claim").with_claims(),
    found_by_worlds("claim-freed-after-beginning", "a claim that has begun is freed when its lease ends").with_claims(),
    found_by_worlds("claim-hold-is-retry", "every claim is freed when its holder is lost").with_claims(),
    found_by_worlds("claim-policy-again-and-again", "the policy frees a claim more than once")
        .with_faults(&[FaultKind::Leap])
        .with_claims()
        .with_frequent_faults(),
    found_by_worlds("claim-policy-without-pause", "the policy frees a claim when its lease ends").with_claims(),
    found_by_worlds("claim-repeat-unflagged", "a run that may repeat the side effect is not flagged").with_claims(),
    found_by_worlds("claim-loss-untold", "a lost holder has no event").with_claims(),
    found_by_worlds("claim-loss-unasked", "a lost holder opens no escalation").with_claims(),
    Mutant {
        detector: MutantDetector::Test("an_unknown_claim_is_never_forgotten"),
        ..found_by_worlds("claim-unknown-forgotten", "a claim whose holder was lost is forgotten")
    },
    Mutant {
        detector: MutantDetector::Test("a_negative_look_up_frees_no_claim"),
        ..found_by_worlds("claim-not-found-frees", "a look-up that finds nothing frees an unknown claim")
    },
    Mutant {
        detector: MutantDetector::Test("a_decision_about_an_older_claim_is_refused"),
        ..found_by_worlds("claim-stale-rev-obeyed", "a decision counts although the claim has changed since")
    },
    Mutant {
        detector: MutantDetector::Test("a_failed_repeat_does_not_settle_the_first_run"),
        ..found_by_worlds("claim-failure-hides-doubt", "a failure after the policy `retry` settles the first run, too")
    },
    Mutant {
        detector: MutantDetector::Test("a_claim_is_remembered_from_its_end"),
        ..found_by_worlds("claim-memory-from-creation", "a claim is remembered from its creation, not from its end")
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
    found_by_worlds("jump-followed", "ledger time follows a clock that jumps").with_faults(&[FaultKind::ClockJump]),
    found_by_worlds("time-goes-back", "ledger time goes back")
        .with_faults(&[FaultKind::ClockJump, FaultKind::Crash])
        .with_frequent_faults(),
];

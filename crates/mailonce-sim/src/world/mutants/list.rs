//! The list of wrong turns.

use super::{Mutant, Rig, Weather};
use crate::world::{Class, FaultKind};

const fn worlds(name: &'static str, what: &'static str) -> Mutant {
    Mutant {
        name,
        what,
        rig: Rig::Worlds,
        weather: Weather { faults: &[], hops: &[], nodes: 0, rate: 0, mail: false, talk: false, point: None },
    }
}

impl Mutant {
    /// With these faults besides.
    const fn among(mut self, faults: &'static [FaultKind]) -> Self {
        self.weather.faults = faults;
        self
    }

    /// At these next hops.
    const fn at(mut self, hops: &'static [Class]) -> Self {
        self.weather.hops = hops;
        self
    }

    /// With a fault wherever one may be, more often than not.
    const fn often(mut self) -> Self {
        self.weather.rate = 60;
        self
    }

    /// With a node that stands still or ends there.
    const fn near(mut self, point: &'static str, time: u64) -> Self {
        self.weather.point = Some((point, time));
        self
    }

    /// With mail that comes in.
    const fn with_mail(mut self) -> Self {
        self.weather.mail = true;
        self
    }

    /// With letters that want an answer.
    const fn with_talk(mut self) -> Self {
        self.weather.talk = true;
        self
    }

    /// With two nodes.
    const fn in_two(mut self) -> Self {
        self.weather.nodes = 2;
        self
    }
}

/// A provider that remembers a key for a quarter of an hour.
const KEYED: &[Class] = &[Class::Keyed(15 * 60_000)];

/// All of them.
pub const ALL: &[Mutant] = &[
    // Keys and meanings
    worlds("key-ignored", "a bound key makes another email"),
    worlds("key-without-team", "teams share their keys"),
    worlds("digest-ignored", "another meaning gets the first answer"),
    worlds("recipients-unsorted", "the order of recipients is part of the meaning"),
    worlds("batch-items-keyless", "items of a batch have no keys of their own"),
    worlds("batch-cut-short", "the last item of a batch is forgotten"),
    worlds("bind-ignored", "a key that is bound again goes downstream under its old name"),
    worlds("memory-from-acceptance", "a key is forgotten by its age, whatever its email does"),
    worlds("live-key-swept", "the sweep forgets keys of emails that are under way"),
    worlds("live-key-forgotten", "a key is forgotten by hand although its email is under way"),
    worlds("answered-before-commit", "a caller is answered before the commit"),
    // Guards and envelopes
    worlds("overlap-ignored", "an intent goes to the same people again"),
    worlds("slots-unbound", "an email to several does not stand for each of them"),
    worlds("guard-without-hold", "a guard speaks and holds nothing"),
    worlds("recipient-dropped", "one recipient gets no envelope"),
    worlds("handoff-doubled", "one recipient gets two envelopes"),
    worlds("resend-anything", "the next version is made of what is not finished"),
    // Leases and fences
    worlds("lease-same-fence", "a lease does not raise the fence"),
    worlds("any-fence", "any fence will do").among(&[FaultKind::Leap, FaultKind::Pause]).in_two().often(),
    worlds("lease-unsaved", "a lease is not written down"),
    worlds("leased-before-due", "work is taken before its time"),
    worlds("heartbeat-ignored", "a process that was heard of is taken for dead").in_two(),
    worlds("nothing-recovered", "what a dead process held stays its own"),
    worlds("lost-lease-kept", "a lease whose answer was lost is kept by a process that does not know of it")
        .among(&[FaultKind::LostCommit]),
    worlds("unheard-name", "a process leases under a name that nobody heard of")
        .among(&[FaultKind::LostCommit])
        .in_two()
        .often(),
    worlds("commit-dated-by-its-caller", "a caller that slept dates the end of an email by what it saw before")
        .among(&[FaultKind::Leap, FaultKind::Pause])
        .in_two()
        .often(),
    worlds("stale-rev-obeyed", "a decision on an outdated view is obeyed"),
    worlds("rev-stands", "changes are not counted"),
    // The marker
    worlds("marker-forgotten", "the marker is not written down"),
    worlds("sent-on-approach", "the wire comes before the marker"),
    worlds("stale-worker-goes-on", "a refused marker does not stop the worker")
        .among(&[FaultKind::Leap, FaultKind::Pause])
        .in_two(),
    worlds("unconfirmed-marker-goes-on", "a marker that the ledger did not confirm does not stop the worker")
        .among(&[FaultKind::StoreDown]),
    worlds("crash-requeues-sending", "what was on the wire when its worker died is queued again")
        .among(&[FaultKind::Crash]),
    worlds("crash-doubts-leased", "what had not left when its worker died is unknown"),
    worlds("crash-untold", "nobody is told that a crash left an outcome unknown"),
    worlds("cancel-after-marker", "an email is taken back while it is on the wire").among(&[FaultKind::Stall]),
    worlds("cancel-in-doubt", "an email is taken back although it may have arrived"),
    worlds("cancel-needs-all", "a cancel is too late because one recipient was refused before")
        .among(&[FaultKind::Refuse, FaultKind::Defer])
        .at(&[Class::Relay])
        .often(),
    worlds("cancel-unsaved", "a cancel is answered and not written down"),
    // Answers
    worlds("unknown-is-refused", "no answer is taken for a refusal"),
    worlds("unknown-is-deferred", "no answer is taken for a request to come again: released on any error"),
    worlds("unknown-is-accepted", "no answer is taken for success"),
    worlds("refused-is-unknown", "a refusal is taken for no answer").among(&[FaultKind::Refuse]),
    worlds("refused-is-accepted", "a refusal is taken for success").among(&[FaultKind::Refuse]),
    worlds("accepted-is-deferred", "success is taken for a request to come again"),
    worlds("accepted-is-refused", "success is taken for a refusal"),
    worlds("deferred-is-accepted", "a request to come again is taken for success"),
    worlds("deferred-is-unknown", "a request to come again is taken for no answer"),
    worlds("fault-is-unknown", "a transport at fault is taken for no answer"),
    worlds("concurrent-is-refused", "a provider that is busy with a key is taken to refuse it")
        .among(&[FaultKind::Concurrent])
        .at(KEYED),
    worlds("mismatch-is-refused", "a key that is known for other bytes is taken for a refusal")
        .among(&[FaultKind::Mismatch])
        .at(KEYED),
    worlds("repeated-is-refused", "a repeat that is rejected as a repeat is taken for a refusal")
        .among(&[FaultKind::LoseReply])
        .at(KEYED),
    worlds("waits-for-ever", "a next hop that never answers is waited for").among(&[FaultKind::Stall]),
    worlds("written-down-once", "an answer that could not be written down is dropped").among(&[FaultKind::StoreDown]),
    worlds("late-reply-dropped", "the fence refuses facts")
        .among(&[FaultKind::Leap, FaultKind::Pause])
        .in_two()
        .often(),
    worlds("tries-again-by-itself", "a transport repeats what had no answer")
        .among(&[FaultKind::LoseReply])
        .at(&[Class::Plain]),
    // It sleeps between the marker of a repeat and the wire, until the provider has forgotten the key.
    worlds("old-connection-used", "a worker that slept sends all the same")
        .among(&[FaultKind::LoseReply, FaultKind::Leap, FaultKind::Pause])
        .at(KEYED)
        .near("after-marker", 2)
        .often(),
    worlds("breaker-never-tries", "a way that rested once rests for ever").among(&[FaultKind::Unauthorized]),
    // Bytes
    worlds("bytes-made-anew", "each attempt is composed anew"),
    worlds("downstream-key-anew", "each attempt has its own key downstream"),
    worlds("message-id-anew", "the Message-ID changes with the email"),
    // Doubts
    worlds("refusal-ends-doubt", "a refused repeat settles the attempts before it")
        .among(&[FaultKind::LoseReply, FaultKind::Refuse])
        .at(KEYED),
    worlds("given-up-in-doubt", "giving up forgets that an attempt may have arrived").among(&[
        FaultKind::LoseReply,
        FaultKind::Refuse,
        FaultKind::Leap,
    ]),
    Mutant {
        rig: Rig::Test("one_disproven_attempt_leaves_the_others_in_doubt"),
        ..worlds("one-refusal-clears-all", "one disproven attempt disproves all")
    },
    worlds("window-never-closes", "a repeat goes on after the provider forgot the key")
        .among(&[FaultKind::LoseReply, FaultKind::Leap])
        .at(KEYED),
    worlds("window-slides", "the window counts from the latest attempt")
        .among(&[FaultKind::LoseReply, FaultKind::LoseRequest, FaultKind::Leap])
        .at(KEYED)
        .often(),
    worlds("window-while-unsure", "a window counts as open while time is not sure")
        .among(&[FaultKind::LoseReply, FaultKind::Crash, FaultKind::ClockJump, FaultKind::Leap])
        .at(KEYED)
        .often(),
    worlds("window-unmeasured", "a window counts as open although nobody can measure it")
        .among(&[FaultKind::LoseReply, FaultKind::Crash, FaultKind::ClockJump, FaultKind::Leap])
        .at(KEYED)
        .often(),
    worlds("any-account", "a repeat goes to another account")
        .among(&[FaultKind::LoseReply, FaultKind::Crash, FaultKind::OtherAccount])
        .at(KEYED)
        .often(),
    worlds("never-looked-at-again", "nobody looks after unknown outcomes").among(&[FaultKind::LoseReply]).at(KEYED),
    worlds("not-found-is-proof", "a look-up that finds nothing is believed")
        .among(&[FaultKind::LoseReply, FaultKind::LateAccept, FaultKind::LookUp])
        .at(&[Class::Asked(5_000)]),
    worlds("silence-is-proof", "a look-up without an answer is taken for a yes")
        .among(&[FaultKind::LoseRequest, FaultKind::LookUp])
        .at(&[Class::Asked(5_000)]),
    worlds("hold-is-resend", "every email is resent when its outcome stays unknown")
        .among(&[FaultKind::LoseReply, FaultKind::Leap])
        .at(&[Class::Plain]),
    worlds("policy-twice", "the policy resends again and again")
        .among(&[FaultKind::LoseReply, FaultKind::Leap])
        .at(&[Class::Plain]),
    worlds("resend-unflagged", "nothing says that a resend may duplicate")
        .among(&[FaultKind::LoseReply, FaultKind::Leap])
        .at(&[Class::Plain]),
    worlds("doubt-rerouted", "what may have arrived takes another way")
        .among(&[FaultKind::LoseReply, FaultKind::Unauthorized])
        .at(&[Class::Plain, Class::Asked(5_000)]),
    worlds("redirect-after-sent", "an email takes another way although some of it was sent")
        .among(&[FaultKind::Unauthorized, FaultKind::Defer])
        .at(&[Class::Relay, Class::Plain]),
    // Facts and events
    worlds("proof-only-of-doubts", "proof counts only while the outcome is unknown")
        .among(&[FaultKind::Reports, FaultKind::Crash])
        .often(),
    worlds("delay-proves-nothing", "a report of delay is written down and changes nothing")
        .among(&[FaultKind::Reports, FaultKind::LoseReply])
        .at(&[Class::Plain]),
    worlds("fact-of-another-handoff", "a fact about one recipient counts for another")
        .among(&[FaultKind::Reports, FaultKind::LoseReply])
        .at(&[Class::Relay]),
    worlds("facts-count-twice", "a fact that comes twice counts twice").among(&[FaultKind::Reports]),
    worlds("bounce-undone", "a delivery hides a bounce").among(&[FaultKind::Reports]),
    worlds("act-of-any-team", "facts of another team count"),
    worlds("team-ignored", "a team sees the emails of another"),
    worlds("event-lost", "a change is not told"),
    worlds("event-twice", "a change is told twice"),
    worlds("acceptance-untold", "an acceptance is not told"),
    worlds("event-to-another-team", "a team is told of another's emails"),
    worlds("attempts-not-updated", "an attempt is written down twice"),
    // Mail that comes in
    worlds("mail-answered-before-commit", "a sender is answered before the commit")
        .among(&[FaultKind::Crash])
        .with_mail(),
    worlds("delivery-key-dropped", "a delivery that comes again is kept again").with_mail(),
    worlds("repeat-unrecorded", "a delivery that comes again leaves no row").with_mail(),
    worlds("message-unrecognised", "a mail that came by another door is another message").with_mail(),
    worlds("filed-though-settled", "a delivery that is settled is filed again")
        .among(&[FaultKind::Leap, FaultKind::Pause])
        .with_mail()
        .in_two()
        .often(),
    worlds("reading-never-lapses", "what a dead reader held is never read")
        .among(&[FaultKind::Crash])
        .with_mail()
        .often(),
    worlds("message-untold", "a message is not told").with_mail(),
    worlds("message-told-twice", "a message is told twice").with_mail(),
    worlds("inbox-number-stands", "two messages of an inbox have one number").with_mail(),
    worlds("artifact-window-ignored", "the same code of the same sender is another artifact").with_mail(),
    worlds("consume-unchecked", "a code is given to whoever wants it").with_mail(),
    worlds("take-unsaved", "a code is given out and that is not written down").with_mail(),
    // Conversations
    worlds("own-mail-answered", "our own mail is answered").with_talk(),
    worlds("automatic-mail-answered", "a machine is answered").with_talk(),
    worlds("unsent-answer-stands", "a message whose answer surely never left is not open again").with_talk(),
    worlds("answered-twice", "a message that was answered is answered again").with_talk(),
    worlds("slot-freed-in-doubt", "a message is answered again while its answer may have arrived")
        .among(&[FaultKind::LoseReply])
        .at(&[Class::Plain])
        .with_talk()
        .often(),
    worlds("later-version-forgotten", "a message is answered again although its answer was sent again")
        .among(&[FaultKind::Refuse])
        .with_talk(),
    worlds("earlier-version-forgotten", "a message is answered again because its answer could not be sent twice")
        .among(&[FaultKind::Refuse])
        .with_talk(),
    worlds("thread-lease-ignored", "a thread that another holds is answered").with_talk(),
    worlds("lost-lease-obeyed", "an agent that lost its lease is obeyed").with_talk(),
    worlds("thread-leased-twice", "two agents are given one thread").with_talk(),
    worlds("thread-fence-stands", "a lease of a thread does not raise its fence").with_talk(),
    worlds("newer-message-ignored", "an answer goes past a newer message").with_talk(),
    worlds("cap-ignored", "any number of answers goes").with_talk(),
    worlds("tally-uncounted", "answers are not counted").with_talk(),
    worlds("day-ignored", "the limit of a day is not asked about").with_talk(),
    worlds("total-ignored", "the limit of a thread in all is not asked about").with_talk(),
    worlds("person-ignored", "the limit of a person is not asked about").with_talk(),
    worlds("held-answer-counted", "an answer that is held counts as sent").with_talk(),
    worlds("cap-unasked", "nobody is asked about an answer that is held").with_talk(),
    worlds("answered-still-open", "a message that was answered is offered").with_talk(),
    worlds("put-off-ignored", "a message that was put off is offered at once").with_talk(),
    worlds("offered-for-ever", "a message that nobody answers is offered for ever").with_talk(),
    worlds("refusal-untold", "a refused answer is not told").with_talk(),
    worlds("answer-untold", "an answer is not told").with_talk(),
    worlds("likeness-ignored", "a mail without a key that says the same again is let go"),
    // Time
    worlds("jump-followed", "a clock that jumps is followed").among(&[FaultKind::ClockJump]),
    worlds("time-goes-back", "ledger time goes back").among(&[FaultKind::ClockJump, FaultKind::Crash]).often(),
];

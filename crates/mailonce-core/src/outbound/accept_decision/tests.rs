//! Tables of sends and resends: what the store finds, what it is asked for, and the decision.

use super::{batch::check_batch, *};
use crate::{
    handoff::{HandoffState, envelope::Envelope},
    intent::Intent,
    operation::KeyedOperation,
    outbound::{
        accept::{BatchAcceptResult, GuardInput},
        content::{EmailContent, RawContent},
        email::{Channel, OnUnknown},
    },
    ttl,
};
use std::{cell::RefCell, collections::BTreeMap, convert::Infallible, sync::Arc};
use uuid::Uuid;

const T0: Time = Time(1_731_628_800_000);
const TEAM: TeamId = TeamId(Uuid::from_u128(2));
const OPERATION: KeyBinding = KeyBinding::Operation { digest: [7; 32] };

/// The own key and the keys of two recipients.
const OWN: KeyHash = KeyHash([1; 16]);
const ANN: KeyHash = KeyHash([2; 16]);
const BOB: KeyHash = KeyHash([3; 16]);

fn head(version: u32) -> EmailHead {
    let intent = Intent { kind: "order.confirmation".into(), entity: "o".into(), version, period: None };
    EmailHead {
        from: "agent@example.com".into(),
        to: vec!["ann@example.com".into()],
        cc: Vec::new(),
        bcc: Vec::new(),
        subject: "Hi".into(),
        key: None,
        intent: Some(intent),
        created_at: T0,
        on_unknown: OnUnknown::Hold,
        caller: None,
        channel: Channel::Http,
        version,
        transport: None,
        resend_of: None,
        reason: None,
        answers: None,
        thread: None,
        call: None,
        held_by: None,
        policy: None,
        inbox: None,
        template: None,
        identical_place: None,
        erased: None,
    }
}

fn new_email() -> NewEmail {
    let raw = RawContent { from: "agent@example.com".into(), to: vec!["ann@example.com".into()], ..Default::default() };
    let raw = RawContent { subject: "Hi".into(), text: Some("hello".into()), ..raw };
    NewEmail {
        id: EmailId(Uuid::from_u128(100)),
        team: TEAM,
        head: head(1),
        digest: Digest::of_content(&EmailContent::validate(raw).unwrap()),
        key: Some(OWN),
        shadow_keys: Vec::new(),
        first_wins: true,
        ttl: ttl::DEFAULT,
        envelopes: vec![Envelope { transport: "relay".into(), recipients: vec!["ann@example.com".into()] }],
        due_at: None,
        body: Arc::from([]),
        guard_input: GuardInput::default(),
    }
}

/// An accepted email in this state. A `forgotten` one was sent, and its key has expired.
fn email(state: &str) -> Email {
    let mut email = new_email().into_email(&FirstSend { bind_number: 1, ..FirstSend::default() }, T0).0;
    email.id = EmailId(Uuid::from_u128(1));
    let (handoff, settled_at) = match state {
        "queued" => (HandoffState::Queued, None),
        "held" => (HandoffState::Held, None),
        "unknown" => (HandoffState::Unknown, None),
        "sent" => (HandoffState::Sent, Some(T0)),
        "failed" => (HandoffState::Failed, Some(T0)),
        "cancelled" => (HandoffState::Cancelled, Some(T0)),
        "forgotten" => (HandoffState::Sent, Some(T0.plus(-ttl::DEFAULT.0))),
        other => panic!("{other}"),
    };
    email.handoffs[0].state = handoff;
    email.settled_at = settled_at;
    email
}

static FINGERPRINT: ContentFingerprint =
    ContentFingerprint { correspondents_hash: [0; 16], words: Vec::new(), numbers_hash: [0; 16] };

/// A charge to a budget of 3.
const CHARGE: Charge = Charge {
    budget: Uuid::from_u128(5),
    counter: Uuid::from_u128(5),
    period_start: T0,
    ends_at: Time(T0.0 + 1),
    amount: 1,
    limit: 3,
    at_limit: AtLimit::Refuse,
};

fn exceeded_budget() -> ExceededBudget {
    ExceededBudget { charge: CHARGE, used: 3 }
}

/// What a store has about one key.
#[derive(Clone, Default)]
struct Row {
    bind_number: u32,
    bound: Option<KeyBinding>,
    email_with_shadow_key: Option<Email>,
}

fn bound_to(state: &str) -> Row {
    let bound = KeyBinding::to_email(std::borrow::Cow::Owned(email(state)), T0);
    Row { bind_number: 1, bound, ..Row::default() }
}

fn occupied_by(state: &str) -> Row {
    Row { email_with_shadow_key: Some(email(state)), ..Row::default() }
}

/// A small store for the decision, which notes what it is asked for.
#[derive(Default)]
struct Snapshot {
    rows: BTreeMap<[u8; 16], Row>,
    budget_used: u64,
    is_similar: bool,
    asked: RefCell<Vec<String>>,
}

impl Snapshot {
    fn with(mut self, key: KeyHash, row: Row) -> Self {
        self.rows.insert(key.0, row);
        self
    }

    /// The decision, and what the store was asked for.
    fn decide(&self, facts: SendFacts<'_>, resend: Option<&ResendDecision>) -> (AcceptDecision, String) {
        let Ok(decision) = decide(self, &facts, resend, T0);
        (decision, self.asked.take().join(" "))
    }

    fn note(&self, asked: impl Into<String>) {
        self.asked.borrow_mut().push(asked.into());
    }
}

fn key_name(key: KeyHash) -> &'static str {
    match key {
        OWN => "own",
        ANN => "ann",
        BOB => "bob",
        _ => "earlier",
    }
}

impl AcceptReader for Snapshot {
    type Error = Infallible;

    fn expiry_cutoff(&self, now: Time) -> Time {
        now
    }

    fn key(&self, _team: TeamId, key: KeyHash, _now: Time) -> Result<(u32, Option<KeyBinding>), Infallible> {
        self.note(key_name(key));
        let row = self.rows.get(&key.0).cloned().unwrap_or_default();
        Ok((row.bind_number, row.bound))
    }

    fn email_with_shadow_key(&self, _team: TeamId, key: KeyHash) -> Result<Option<Cow<'_, Email>>, Infallible> {
        self.note(format!("{}?", key_name(key)));
        Ok(self.rows.get(&key.0).and_then(|row| row.email_with_shadow_key.as_ref()).map(Cow::Borrowed))
    }

    fn budget_used(&self, _team: TeamId, _counter: BudgetCounter) -> Result<u64, Infallible> {
        self.note("budget");
        Ok(self.budget_used)
    }

    fn similar_email(&self, _: TeamId, _: Comparison<'_>, _now: Time) -> Result<Option<Cow<'_, Email>>, Infallible> {
        self.note("content");
        Ok(self.is_similar.then(|| Cow::Owned(email("sent"))))
    }
}

fn first(bind_number: u32, occupies: &[KeyHash], held_by: Option<Guard>) -> AcceptDecision {
    held(bind_number, occupies, held_by.as_slice())
}

/// The first email of its key, held by these guards.
fn held(bind_number: u32, occupies: &[KeyHash], guards: &[Guard]) -> AcceptDecision {
    let holds = guards.iter().copied().collect();
    AcceptDecision::First(FirstSend { bind_number, shadow_keys: occupies.to_vec(), holds, ..FirstSend::default() })
}

/// The first email of its key, counted in its budget.
fn counted(bind_number: u32, flagged_by: Option<Guard>, charge: Charge) -> AcceptDecision {
    AcceptDecision::First(FirstSend { bind_number, flagged_by, charges: vec![charge], ..FirstSend::default() })
}

fn bound_email(state: &str) -> AcceptDecision {
    AcceptDecision::KeyBound(KeyBinding::Email(email(state)))
}

/// A send under one key, without shadow keys.
fn check_single(cases: &[(&str, Row, &str, AcceptDecision)]) {
    let (new, head) = (new_email(), head(1));
    for (name, row, asked, decision) in cases {
        let facts = SendFacts { head: &head, ..new.send_facts() };
        let found = Snapshot::default().with(OWN, row.clone()).decide(facts, None);
        assert_eq!(found, (decision.clone(), (*asked).to_owned()), "{name}");
    }
}

#[test]
fn a_bound_key_decides_alone() {
    check_single(&[
        ("never bound", Row::default(), "own own?", first(1, &[], None)),
        ("queued", bound_to("queued"), "own", bound_email("queued")),
        ("sent", bound_to("sent"), "own", bound_email("sent")),
        ("failed", bound_to("failed"), "own", bound_email("failed")),
        ("cancelled", bound_to("cancelled"), "own", bound_email("cancelled")),
        ("held", bound_to("held"), "own", bound_email("held")),
        ("forgotten", bound_to("forgotten"), "own own?", first(2, &[], None)),
        (
            "an operation",
            Row { bind_number: 1, bound: Some(OPERATION), email_with_shadow_key: None },
            "own",
            AcceptDecision::KeyBound(OPERATION),
        ),
        ("bound often before", Row { bind_number: 4, ..Row::default() }, "own own?", first(5, &[], None)),
        (
            "bound and occupied",
            Row { email_with_shadow_key: Some(email("sent")), ..bound_to("sent") },
            "own",
            bound_email("sent"),
        ),
    ]);
}

#[test]
fn a_key_that_an_email_to_several_occupies_overlaps() {
    let overlaps = || first(1, &[], Some(Guard::Overlaps));
    check_single(&[
        ("queued", occupied_by("queued"), "own own?", overlaps()),
        ("held", occupied_by("held"), "own own?", overlaps()),
        ("sent", occupied_by("sent"), "own own?", overlaps()),
        ("unknown", occupied_by("unknown"), "own own?", overlaps()),
        ("failed", occupied_by("failed"), "own own?", first(1, &[], None)),
        ("cancelled", occupied_by("cancelled"), "own own?", first(1, &[], None)),
        ("forgotten", occupied_by("forgotten"), "own own?", first(1, &[], None)),
    ]);
}

#[test]
fn an_email_to_several_takes_the_free_keys_of_its_recipients() {
    let (new, head) = (new_email(), head(1));
    let overlaps = Some(Guard::Overlaps);
    let every_step = "own own? ann? ann bob? bob";
    for (name, ann, bob, asked, decision) in [
        ("both free", Row::default(), Row::default(), every_step, first(1, &[ANN, BOB], None)),
        ("one sent alone", bound_to("sent"), Row::default(), "own own? ann? ann bob?", first(1, &[ANN, BOB], overlaps)),
        ("the other sent alone", Row::default(), bound_to("sent"), every_step, first(1, &[ANN, BOB], overlaps)),
        ("one failed alone", bound_to("failed"), Row::default(), every_step, first(1, &[ANN, BOB], None)),
        ("one forgotten", bound_to("forgotten"), Row::default(), every_step, first(1, &[ANN, BOB], None)),
        ("one occupied", occupied_by("queued"), Row::default(), "own own? ann? bob?", first(1, &[BOB], overlaps)),
        (
            "the other occupied",
            Row::default(),
            occupied_by("held"),
            "own own? ann? ann bob?",
            first(1, &[ANN], overlaps),
        ),
        ("both occupied", occupied_by("sent"), occupied_by("sent"), "own own? ann? bob?", first(1, &[], overlaps)),
        ("one given up", occupied_by("cancelled"), Row::default(), every_step, first(1, &[ANN, BOB], None)),
        (
            "bound to an operation",
            Row { bound: Some(OPERATION), ..Row::default() },
            Row::default(),
            every_step,
            first(1, &[ANN, BOB], None),
        ),
    ] {
        let facts = SendFacts { head: &head, shadow_keys: &[ANN, BOB], ..new.send_facts() };
        let found = Snapshot::default().with(ANN, ann).with(BOB, bob).decide(facts, None);
        assert_eq!(found, (decision, asked.to_owned()), "{name}");
    }
}

#[test]
fn budgets_and_guards_are_asked_in_order_and_only_if_they_can_decide() {
    let (new, head) = (new_email(), head(1));
    let (free, taken) = (Row::default(), occupied_by("sent"));
    let (cap, similar) = (Some(Guard::Cap), Some(Guard::LooksDuplicate));
    let over = AcceptDecision::OverBudget(exceeded_budget());
    // Own key, held before, has charges, exceeds a budget, has a fingerprint, resembles a recent email.
    for (row, held_by, charged, over_budget, compared, is_similar, asked, decision) in [
        (&free, None, true, false, false, false, "own budget own?", counted(1, None, CHARGE)),
        (&free, cap, true, false, false, false, "own budget own?", first(1, &[], cap)),
        (&free, None, true, true, true, true, "own budget", over.clone()),
        (&taken, cap, true, true, true, true, "own budget", over),
        (&free, None, false, true, false, false, "own own?", first(1, &[], None)),
        (&free, None, false, false, true, false, "own own? content", first(1, &[], None)),
        (&free, None, false, false, true, true, "own own? content", first(1, &[], similar)),
        (&free, None, false, false, false, true, "own own?", first(1, &[], None)),
        (&free, cap, false, false, true, true, "own own? content", held(1, &[], &[Guard::Cap, Guard::LooksDuplicate])),
        (&free, similar, false, false, true, true, "own own?", first(1, &[], similar)),
        (
            &taken,
            None,
            false,
            false,
            true,
            true,
            "own own? content",
            held(1, &[], &[Guard::Overlaps, Guard::LooksDuplicate]),
        ),
        (&taken, cap, false, false, false, false, "own own?", held(1, &[], &[Guard::Cap, Guard::Overlaps])),
        (&bound_to("sent"), cap, true, true, true, true, "own", bound_email("sent")),
    ] {
        let (charges, fingerprint) = (&[CHARGE][..usize::from(charged)], compared.then_some(&FINGERPRINT));
        let facts = SendFacts { head: &head, holds: held_by.into(), charges, fingerprint, ..new.send_facts() };
        let budget_used = if over_budget { 3 } else { 2 };
        let snapshot = Snapshot { budget_used, is_similar, ..Snapshot::default() }.with(OWN, row.clone());
        assert_eq!(snapshot.decide(facts, None), (decision, asked.to_owned()), "{asked}");
    }
}

#[test]
fn a_budget_without_room_refuses_holds_or_flags() {
    let new = new_email();
    for (at_limit, is_similar, decision) in [
        (AtLimit::Refuse, false, AcceptDecision::OverBudget(exceeded_budget())),
        (AtLimit::Hold, false, first(1, &[], Some(Guard::Budget))),
        (AtLimit::Hold, true, held(1, &[], &[Guard::Budget, Guard::LooksDuplicate])),
        (AtLimit::Flag, false, counted(1, Some(Guard::Budget), Charge { at_limit: AtLimit::Flag, ..CHARGE })),
        (AtLimit::Flag, true, first(1, &[], Some(Guard::LooksDuplicate))),
    ] {
        let charges = [Charge { at_limit, ..CHARGE }];
        let facts = SendFacts { charges: &charges, fingerprint: Some(&FINGERPRINT), ..new.send_facts() };
        let snapshot = Snapshot { budget_used: 3, is_similar, ..Snapshot::default() };
        let mut expected = decision;
        if let AcceptDecision::First(first) = &mut expected {
            let [charge] = charges.clone();
            first.exceeded_budgets = vec![ExceededBudget { charge, used: 3 }];
        }
        assert_eq!(snapshot.decide(facts, None).0, expected, "{at_limit:?} {is_similar}");
    }
}

#[test]
fn an_email_without_a_key_is_always_first() {
    let new = new_email();
    let facts = SendFacts { key: None, fingerprint: Some(&FINGERPRINT), charges: &[CHARGE], ..new.send_facts() };
    let snapshot = Snapshot::default().with(OWN, bound_to("sent"));
    assert_eq!(snapshot.decide(facts, None), (counted(0, None, CHARGE), "budget content".to_owned()));
    let snapshot = Snapshot { is_similar: true, ..snapshot };
    assert_eq!(snapshot.decide(facts, None).0, first(0, &[], Some(Guard::LooksDuplicate)));
}

#[test]
fn a_similar_email_only_flags_where_it_should() {
    let new = new_email();
    let facts = SendFacts { flag_similar: Some(&FINGERPRINT), ..new.send_facts() };
    let decide = |is_similar, facts| Snapshot { is_similar, ..Snapshot::default() }.decide(facts, None).0;

    let flagged = FirstSend { bind_number: 1, flagged_by: Some(Guard::LooksDuplicate), ..FirstSend::default() };
    assert_eq!(decide(true, facts), AcceptDecision::First(flagged));
    assert_eq!(decide(false, facts), first(1, &[], None));

    let held = SendFacts { holds: Guard::Cap.into(), ..facts };
    assert_eq!(decide(true, held), first(1, &[], Some(Guard::Cap)), "a held email is not flagged");
    let head = EmailHead { resend_of: Some(email("sent").id), ..head(1) };
    assert_eq!(decide(true, SendFacts { head: &head, ..facts }), first(1, &[], None), "a resend is not compared");
}

#[test]
fn an_identical_email_answers_before_every_guard_and_budget() {
    let (new, fingerprint) = (new_email(), ContentFingerprint::of_meaning([7; 16]));
    let identical = IdenticalCheck { fingerprint, window_ms: 1 };
    let facts = SendFacts {
        key: None,
        identical: Some(&identical),
        fingerprint: Some(&FINGERPRINT),
        charges: &[CHARGE],
        ..new.send_facts()
    };
    let snapshot = Snapshot { is_similar: true, budget_used: 3, ..Snapshot::default() };
    assert_eq!(snapshot.decide(facts, None), (AcceptDecision::Identical(email("sent")), "content".to_owned()));
    let snapshot = Snapshot { is_similar: false, ..snapshot };
    assert_eq!(snapshot.decide(facts, None).0, AcceptDecision::OverBudget(exceeded_budget()));
}

#[test]
fn a_later_version_takes_the_free_keys_of_the_earlier_and_never_overlaps_them() {
    let (new, head) = (new_email(), EmailHead { resend_of: Some(email("sent").id), ..head(2) });
    let earlier = head.earlier_shadow_keys(TEAM)[0];
    let facts = SendFacts { head: &head, fingerprint: Some(&FINGERPRINT), ..new.send_facts() };
    for (name, row, occupies) in [
        ("free", Row::default(), vec![earlier]),
        ("the earlier version was sent alone", bound_to("sent"), vec![earlier]),
        ("the earlier version was sent to several", occupied_by("sent"), Vec::new()),
        ("the earlier version was cancelled", occupied_by("cancelled"), vec![earlier]),
        ("the earlier version is held", occupied_by("held"), Vec::new()),
    ] {
        let found = Snapshot::default().with(earlier, row).decide(facts, None);
        assert_eq!(found, (first(1, &occupies, None), "own own? earlier?".to_owned()), "{name}");
    }
}

#[test]
fn a_version_that_takes_back_a_held_email_takes_its_keys() {
    let (new, head) = (new_email(), EmailHead { resend_of: Some(email("held").id), ..head(2) });
    let earlier = head.earlier_shadow_keys(TEAM)[0];
    let facts = SendFacts { head: &head, shadow_keys: &[ANN], ..new.send_facts() };
    let ControlFlow::Continue(resend) = ResendDecision::prepare(email("held"), None, true, T0) else { panic!() };
    let snapshot = || Snapshot::default().with(earlier, occupied_by("held"));
    assert_eq!(snapshot().decide(facts, Some(&resend)).0, first(1, &[ANN, earlier], None));
    assert_eq!(snapshot().with(ANN, bound_to("held")).decide(facts, Some(&resend)).0, first(1, &[ANN, earlier], None));

    let mut other = email("held");
    other.id = EmailId(Uuid::from_u128(9));
    let snapshot = Snapshot::default().with(earlier, Row { email_with_shadow_key: Some(other), ..Row::default() });
    assert_eq!(snapshot.decide(facts, Some(&resend)).0, first(1, &[ANN], None), "another held email stands");
}

#[test]
fn the_previous_version_allows_a_resend_or_answers_it() {
    let refused = |refusal, state| Some(EmailResendResult::Refused(refusal, email(state)));
    for (state, takes_back, answer, is_cancelled) in [
        ("sent", false, None, false),
        ("failed", false, None, false),
        ("cancelled", false, None, false),
        ("queued", false, refused(EmailChangeRefusal::NotTerminal, "queued"), false),
        ("held", false, refused(EmailChangeRefusal::NotTerminal, "held"), false),
        ("unknown", false, refused(EmailChangeRefusal::UseResolve, "unknown"), false),
        ("held", true, None, true),
        ("sent", true, refused(EmailChangeRefusal::TooLate, "sent"), false),
        ("cancelled", true, refused(EmailChangeRefusal::TooLate, "cancelled"), false),
        ("unknown", true, refused(EmailChangeRefusal::TooLate, "unknown"), false),
    ] {
        match ResendDecision::prepare(email(state), None, takes_back, T0) {
            ControlFlow::Continue(mut resend) => {
                assert_eq!((None, resend.before()), (answer, &email(state)), "{state}");
                let cancelled = resend.cancelled().map(|(email, _)| email.handoffs[0].state);
                assert_eq!(cancelled, is_cancelled.then_some(HandoffState::Cancelled), "{state}");
                let (previous, _) = resend.link(EmailId(Uuid::from_u128(100)), T0);
                assert_eq!(previous.resent_as, Some(EmailId(Uuid::from_u128(100))));
                assert_eq!(previous.rev, email(state).rev + 1 + u32::from(is_cancelled), "{state}");
            }
            ControlFlow::Break(refusal) => assert_eq!(Some(refusal), answer, "{state}"),
        }
        let next = email("queued");
        let again = ResendDecision::prepare(email(state), Some(next.clone()), takes_back, T0);
        assert_eq!(again, ControlFlow::Break(EmailResendResult::Replayed(next)), "{state}, resent before");
    }
}

#[test]
fn a_resend_is_refused_in_order_and_shows_the_email_as_it_was() {
    let ControlFlow::Continue(resend) = ResendDecision::prepare(email("held"), None, true, T0) else { panic!() };
    let done = |result| ControlFlow::Break(IdempotentResult::Done(result));
    let over_budget = || done(EmailResendResult::OverBudget(exceeded_budget()));
    let replaced = || done(EmailResendResult::Refused(EmailChangeRefusal::AnsweredByAnother, email("held")));
    let new_version = FirstSend { bind_number: 1, shadow_keys: vec![ANN], ..FirstSend::default() };
    for (decision, is_current_reply, expected) in [
        (first(1, &[ANN], None), true, ControlFlow::Continue(NextVersion::First(new_version))),
        (first(1, &[ANN], None), false, replaced()),
        (bound_email("sent"), true, ControlFlow::Continue(NextVersion::Existing(email("sent")))),
        (bound_email("sent"), false, replaced()),
        (AcceptDecision::KeyBound(OPERATION), true, ControlFlow::Break(IdempotentResult::KeyMismatch(OPERATION))),
        (AcceptDecision::KeyBound(OPERATION), false, replaced()),
        (AcceptDecision::OverBudget(exceeded_budget()), true, over_budget()),
        (AcceptDecision::OverBudget(exceeded_budget()), false, over_budget()),
    ] {
        assert_eq!(resend.decide(decision.clone(), is_current_reply), expected, "{decision:?} {is_current_reply}");
    }
}

/// The answer to a batch of two keyed items and one without a key, which is charged, and what the store was asked for.
fn decide_batch(
    is_strict: bool,
    items: [&KeyBinding; 2],
    batch: Option<Option<&KeyBinding>>,
    budget_used: u64,
) -> (ControlFlow<BatchAcceptResult, bool>, String) {
    let new = [new_email(), NewEmail { key: None, ..new_email() }, NewEmail { key: Some(ANN), ..new_email() }];
    let mut facts = new.each_ref().map(NewEmail::send_facts);
    facts[1].charges = &[CHARGE];
    let operation = KeyedOperation { team: TEAM, key: BOB, digest: [7; 32], response: Vec::new(), expires_at: T0 };
    let row = |bound: Option<&KeyBinding>| Row { bound: bound.cloned(), ..Row::default() };
    let snapshot = Snapshot { budget_used, ..Snapshot::default() }.with(OWN, row(Some(items[0])));
    let snapshot = snapshot.with(ANN, row(Some(items[1]))).with(BOB, row(batch.flatten()));
    let Ok(decision) = check_batch(&snapshot, &facts, batch.map(|_| &operation), is_strict, T0);
    (decision, snapshot.asked.take().join(" "))
}

#[test]
fn a_batch_is_refused_in_order_and_binds_a_free_key() {
    let (same, other) = (&KeyBinding::Email(email("sent")), &KeyBinding::Operation { digest: [8; 32] });
    let accept = |binds_key| ControlFlow::Continue(binds_key);
    let item = |index| ControlFlow::Break(BatchAcceptResult::ItemKeyMismatch(index, other.clone()));
    let batch = |bound: &KeyBinding| ControlFlow::Break(BatchAcceptResult::BatchKeyMismatch(bound.clone()));
    let over = || ControlFlow::Break(BatchAcceptResult::OverBudget(1, exceeded_budget()));
    for (is_strict, items, key, budget_used, asked, expected) in [
        (false, [same, same], None, 2, "", accept(false)),
        (false, [other, other], None, 3, "", accept(false)),
        (false, [same, same], Some(None), 2, "bob", accept(true)),
        (false, [same, same], Some(Some(&OPERATION)), 2, "bob", accept(false)),
        (false, [same, same], Some(Some(other)), 2, "bob", batch(other)),
        (false, [same, same], Some(Some(same)), 2, "bob", batch(same)),
        (true, [same, same], None, 2, "own ann budget", accept(false)),
        (true, [same, same], Some(None), 2, "own ann bob budget", accept(true)),
        (true, [other, other], Some(Some(other)), 3, "own", item(0)),
        (true, [same, other], Some(Some(other)), 3, "own ann", item(2)),
        (true, [same, same], Some(Some(other)), 3, "own ann bob", batch(other)),
        (true, [same, same], Some(None), 3, "own ann bob budget", over()),
        (true, [same, same], Some(Some(&OPERATION)), 3, "own ann bob budget", over()),
    ] {
        let found = decide_batch(is_strict, items, key, budget_used);
        assert_eq!(found, (expected, asked.to_owned()), "strict {is_strict}: {asked}");
    }
}

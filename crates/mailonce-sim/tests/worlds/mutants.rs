//! Every mutant is detected.

use mailonce_core::{
    claims::{
        Claim, ClaimClock, ClaimEvidence, ClaimResolution, ClaimState, ClaimToken, LostHolderPolicy, RETRY_AFTER_MS,
        acquire::{AcquireAnswer, NewClaim},
        action::{ClaimAction, ClaimActionStatus, ClaimRefusal, ReportedResult},
        offer::{NewOffer, OfferAnswer},
    },
    control::stop::{Stop, StopAuthor, StopMode, StopScope, Stops},
    handoff::{
        Evidence, EvidenceFinding, EvidenceSource, Handoff, HandoffState, action::HandoffAction, envelope::Envelope,
    },
    id::{ClaimId, EmailId, StopId, TeamId},
    key::Key,
    mutant,
    outbound::{
        content::{EmailContent, RawContent},
        digest::Digest,
        email::{Channel, Email, EmailHead, OnUnknown},
    },
    time::Time,
    ttl::{self, Ttl},
};
use mailonce_sim::{
    harness::rng::env_number,
    world::mutants::{MUTANTS, detect_all},
};
use std::{collections::BTreeSet, path::Path, sync::Arc};
use uuid::Uuid;

/// Worlds that one mutant may survive.
const MAX_WORLDS: u64 = 3_000;
/// The minimum number of mutants.
const MIN_MUTANTS: usize = 60;
/// The first seed, fixed unless another is set: detection must not depend on luck.
const SEED: u64 = 1;

#[test]
fn every_mutant_is_detected() {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let seed = env_number("MAILONCE_SEED").unwrap_or(SEED);
    let verdicts = detect_all(seed, MAX_WORLDS, jobs, |verdict| println!("{verdict}"));
    let survived: Vec<&str> =
        verdicts.iter().filter(|verdict| verdict.worlds.is_none()).map(|verdict| verdict.mutant.name).collect();
    assert_eq!(survived, [""; 0], "these survived {MAX_WORLDS} worlds from seed {seed}");
    assert!(verdicts.len() >= MIN_MUTANTS, "{} mutants", verdicts.len());
}

/// The names of the mutants in the files of a folder.
fn collect_mutant_names(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_mutant_names(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            for opening in ["mutant!(\"", "is_on(\""] {
                found.extend(text.split(opening).skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
            }
        }
    }
}

#[test]
fn every_mutant_in_the_code_is_listed_and_every_listed_one_is_in_the_code() {
    let (crates, mut found) = (Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap(), BTreeSet::new());
    for name in ["mailonce-core", "mailonce-store", "mailonce-engine", "mailonce-sim"] {
        collect_mutant_names(&crates.join(name).join("src"), &mut found);
    }
    found.remove("name");
    let listed: BTreeSet<String> = MUTANTS.iter().map(|mutant| mutant.name.to_owned()).collect();
    assert_eq!(found, listed);
}

/// An email with two attempts that may have arrived.
fn email_with_two_unknowns() -> Email {
    let content = EmailContent::validate(RawContent {
        from: "agent@example.com".into(),
        to: vec!["ada@example.org".into()],
        text: Some("t".into()),
        ..RawContent::default()
    });
    let envelope = Envelope { transport: "relay".into(), recipients: vec!["ada@example.org".into()] };
    let mut handoff = Handoff::new(0, envelope, HandoffState::Unknown, None);
    (handoff.attempts, handoff.progress.attempts_in_doubt) = (2, vec![1, 2]);
    Email {
        id: EmailId(Uuid::from_u128(1)),
        team: TeamId(Uuid::from_u128(2)),
        rev: 7,
        head: Arc::new(EmailHead {
            from: "agent@example.com".into(),
            to: vec!["ada@example.org".into()],
            cc: Vec::new(),
            bcc: Vec::new(),
            subject: String::new(),
            key: None,
            intent: None,
            created_at: Time(0),
            on_unknown: OnUnknown::Hold,
            caller: None,
            channel: Channel::Http,
            version: 1,
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
        }),
        digest: Digest::of_content(&content.unwrap()),
        bind_number: 0,
        ttl: ttl::DEFAULT,
        settled_at: None,
        guard: None,
        holds: mailonce_core::outbound::holds::Holds::NONE,
        resent_as: None,
        handoffs: vec![handoff],
        suppressed: 0,
    }
}

/// The state of the email after the late reply of a worker that was considered dead: its own attempt did not arrive.
fn state_after_late_refusal() -> HandoffState {
    let mut email = email_with_two_unknowns();
    let fact = Evidence {
        handoff: 0,
        attempt: Some(2),
        at: Time(1),
        source: EvidenceSource::LateReply,
        finding: EvidenceFinding::NotAccepted,
        detail: String::new(),
        dedup_key: None,
    };
    email.apply_action(&HandoffAction::AddEvidence(fact), Time(1));
    email.handoffs[0].state
}

#[test]
fn one_disproven_attempt_leaves_the_others_unknown() {
    assert_eq!(state_after_late_refusal(), HandoffState::Unknown);
    assert_eq!(
        mutant::with(Some("one-refusal-clears-all"), state_after_late_refusal),
        HandoffState::Queued,
        "nobody noticed"
    );
}

const CLOCK: ClaimClock = ClaimClock { now: Time(0), policy: Some(Time(0)) };

fn new_claim(begins_now: bool) -> NewClaim {
    NewClaim {
        id: ClaimId(Uuid::from_u128(1)),
        team: TeamId(Uuid::from_u128(2)),
        key: Key::parse("invoice-7").unwrap(),
        intent: None,
        fingerprint: None,
        holder: None,
        label: None,
        api_key: None,
        lease_ms: 60_000,
        ttl: ttl::DEFAULT,
        begins_now,
        on_unknown: LostHolderPolicy::Hold,
    }
}

/// Whether a claim begins under a stop: when it is claimed, and when its holder begins later.
fn begins_under_a_stop() -> [bool; 2] {
    let stop = Stop {
        id: StopId(Uuid::from_u128(3)),
        scope: StopScope::Installation,
        mode: StopMode::Wait,
        reason: None,
        by: StopAuthor { api_key: None, name: "tests".into() },
        created_at: Time(0),
        release: None,
    };
    let stops = Stops(vec![stop]);
    let at_once = new_claim(true).decide(None, 0, &stops, CLOCK).answer;
    let claimed = new_claim(false).decide(None, 0, &stops, CLOCK);
    let AcquireAnswer::Won(token) = claimed.answer else { panic!("{:?}", claimed.answer) };
    let begun = claimed.claim.unwrap().apply(ClaimAction::Begin { token, by: None }, &stops, CLOCK);
    [matches!(at_once, AcquireAnswer::Won(_)), begun.answer == ClaimActionStatus::Applied]
}

#[test]
fn no_claim_begins_under_a_stop() {
    assert_eq!(begins_under_a_stop(), [false; 2]);
    assert_eq!(mutant::with(Some("claim-stop-ignored"), begins_under_a_stop), [true; 2], "nobody noticed");
}

/// The answer to an offer whose key has a claim with another payload.
fn answer_to_another_payload() -> OfferAnswer {
    let offer = |digest: &str| NewOffer {
        id: ClaimId(Uuid::from_u128(1)),
        team: TeamId(Uuid::from_u128(2)),
        key: Key::parse("invoice-7").unwrap(),
        digest: digest.into(),
        payload: digest.into(),
    };
    let first = offer("99 EUR").decide(None, 0, &Stops::default(), CLOCK).claim;
    offer("100 EUR").decide(first, 1, &Stops::default(), CLOCK).answer
}

#[test]
fn another_payload_is_another_claim() {
    assert_eq!(answer_to_another_payload(), OfferAnswer::Mismatch);
    assert_eq!(
        mutant::with(Some("claim-payload-ignored"), answer_to_another_payload),
        OfferAnswer::Offered,
        "nobody noticed"
    );
}

/// Whether a claim whose holder was lost is ever forgotten.
fn is_forgotten_while_unknown() -> bool {
    let mut claim = new_claim(true).decide(None, 0, &Stops::default(), CLOCK).claim.unwrap();
    claim.apply_deadlines(ClaimClock { now: Time(60_000), policy: None });
    assert_eq!(claim.state, ClaimState::Unknown);
    claim.is_forgotten(Time(i64::MAX))
}

#[test]
fn an_unknown_claim_is_never_forgotten() {
    assert!(!is_forgotten_while_unknown());
    assert!(mutant::with(Some("claim-unknown-forgotten"), is_forgotten_while_unknown), "nobody noticed");
}

fn clock_at(now: i64) -> ClaimClock {
    ClaimClock { now: Time(now), policy: Some(Time(now)) }
}

/// Gives a claim to a caller, and returns its token.
fn win(claim: Option<Claim>, request: &NewClaim, now: i64) -> (Claim, ClaimToken) {
    let won = request.decide(claim, 0, &Stops::default(), clock_at(now));
    let AcquireAnswer::Won(token) = won.answer else { panic!("{:?}", won.answer) };
    (won.claim.unwrap(), token)
}

/// A claim whose holder was lost.
fn lost_claim(on_unknown: LostHolderPolicy) -> Claim {
    let (mut claim, _) = win(None, &NewClaim { on_unknown, ..new_claim(true) }, 0);
    claim.apply_deadlines(clock_at(60_000));
    assert_eq!(claim.state, ClaimState::Unknown);
    claim
}

/// The state of an unknown claim after a look-up that found nothing.
fn state_after_a_negative_look_up() -> ClaimState {
    let looked_up = ClaimAction::Evidence { says: ClaimEvidence::NotFound, result: ReportedResult::None, by: None };
    let change = lost_claim(LostHolderPolicy::Hold).apply(looked_up, &Stops::default(), clock_at(60_001));
    change.claim.unwrap().state
}

#[test]
fn a_negative_look_up_frees_no_claim() {
    assert_eq!(state_after_a_negative_look_up(), ClaimState::Unknown);
    let mutated = mutant::with(Some("claim-not-found-frees"), state_after_a_negative_look_up);
    assert_eq!(mutated, ClaimState::Claimed, "nobody noticed");
}

/// The answer to a decision of somebody who read the claim before it changed.
fn answer_to_a_stale_decision() -> ClaimActionStatus {
    let claim = lost_claim(LostHolderPolicy::Hold);
    let (resolution, rev) = (ClaimResolution::Retry, Some(claim.rev - 1));
    let decision = ClaimAction::Resolve { resolution, rev, result: ReportedResult::None, by: None };
    claim.apply(decision, &Stops::default(), clock_at(60_001)).answer
}

#[test]
fn a_decision_about_an_older_claim_is_refused() {
    assert_eq!(answer_to_a_stale_decision(), ClaimActionStatus::Refused(ClaimRefusal::StaleRev));
    let mutated = mutant::with(Some("claim-stale-rev-obeyed"), answer_to_a_stale_decision);
    assert_eq!(mutated, ClaimActionStatus::Applied, "nobody noticed");
}

/// The state of a claim that the policy freed, after its second holder failed for good. Nobody knows what the first did.
fn state_after_a_failed_repeat() -> ClaimState {
    let mut claim = lost_claim(LostHolderPolicy::Retry);
    let freed_at = 60_000 + RETRY_AFTER_MS;
    claim.apply_deadlines(clock_at(freed_at));
    let (claim, token) = win(Some(claim), &new_claim(true), freed_at);
    let failure = ClaimAction::Fail { token, retryable: false, reason: "no paper".into() };
    claim.apply(failure, &Stops::default(), clock_at(freed_at + 1)).claim.unwrap().state
}

#[test]
fn a_failed_repeat_does_not_settle_the_first_run() {
    assert_eq!(state_after_a_failed_repeat(), ClaimState::Unknown);
    let mutated = mutant::with(Some("claim-failure-hides-doubt"), state_after_a_failed_repeat);
    assert_eq!(mutated, ClaimState::Failed, "nobody noticed");
}

/// When a claim is forgotten that was completed long after its creation.
fn forgotten_at() -> Option<Time> {
    let (claim, token) = win(None, &NewClaim { ttl: Ttl(1_000), lease_ms: 3_600_000, ..new_claim(true) }, 0);
    let completion = ClaimAction::Complete { token, result: ReportedResult::None };
    claim.apply(completion, &Stops::default(), clock_at(3_000_000)).claim.unwrap().forget_at()
}

#[test]
fn a_claim_is_remembered_from_its_end() {
    assert_eq!(forgotten_at(), Some(Time(3_001_000)));
    let mutated = mutant::with(Some("claim-memory-from-creation"), forgotten_at);
    assert_eq!(mutated, Some(Time(1_000)), "nobody noticed");
}

//! Each next hop, each fault, each policy, on two stores: the number of accepted mails, and the reported state once
//! time has passed.

use comfy_table::Table;
use mailonce_core::{
    id::EmailId,
    outbound::email::{EmailState, OnUnknown},
};
use mailonce_sim::sink::http::Vendor;
use std::{collections::BTreeMap, sync::Arc};

use crate::{
    engine_fixture::{EngineStore, EngineStoreKind, HOUR, MINUTE, ManualClock, SECOND, TestEngine},
    hop_faults::{ExpectedResult, HopFault, RETRY_AFTER_S},
    next_hop::{HopKind, HopSink, TestHop},
};

/// One mail being sent.
struct MatrixCell {
    fault: HopFault,
    policy: OnUnknown,
    hop: TestHop,
    id: EmailId,
}

/// Its outcome.
struct MatrixRow {
    next: HopKind,
    fault: HopFault,
    policy: OnUnknown,
    actual: ExpectedResult,
    wrong: Vec<String>,
}

fn all_hop_kinds() -> impl Iterator<Item = HopKind> {
    std::iter::once(HopKind::Relay).chain(Vendor::ALL.map(HopKind::Provider))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_fault_makes_a_second_mail_or_a_false_answer_over_the_model() {
    run_matrix(EngineStoreKind::Memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_fault_makes_a_second_mail_or_a_false_answer_over_sqlite() {
    run_matrix(EngineStoreKind::Sqlite).await;
}

async fn run_matrix(kind: EngineStoreKind) {
    let runs: Vec<_> = all_hop_kinds().map(|next| tokio::spawn(run_column(kind, next))).collect();
    let mut rows = Vec::new();
    for run in runs {
        rows.extend(run.await.unwrap());
    }
    print_matrix(kind, &rows);
    let wrong: Vec<String> = rows
        .iter()
        .flat_map(|row| {
            row.wrong.iter().map(|why| format!("{} {:?} {}: {why}", row.next.name(), row.fault, row.policy.as_str()))
        })
        .collect();
    assert!(wrong.is_empty(), "{} cells are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// All faults of one next hop, in parallel in one engine, each with its own sink.
async fn run_column(kind: EngineStoreKind, next: HopKind) -> Vec<MatrixRow> {
    let (store, clock) = (EngineStore::new(kind), ManualClock::new());
    let mut hops = Vec::new();
    for policy in [OnUnknown::Hold, OnUnknown::Resend] {
        for fault in HopFault::ALL.into_iter().filter(|fault| fault.applies_to(next)) {
            let hop = next.open(&format!("{fault:?}-{}", policy.as_str()), &clock).await;
            fault.inject(&hop);
            hops.push((fault, policy, hop));
        }
    }
    let transports = hops.iter().map(|(_, _, hop)| Arc::clone(&hop.transport)).collect();
    let world = TestEngine::start(&store, transports, &[], clock).await;
    let mut cells = Vec::new();
    for (fault, policy, hop) in hops {
        let name = hop.transport.name().to_owned();
        let id = world.send_sample(&name, Some(&name), policy).await;
        cells.push(MatrixCell { fault, policy, hop, id });
    }
    advance_through_retries(&world, &cells).await;
    let mut rows = Vec::new();
    for cell in &cells {
        rows.push(check_cell(&world, next, cell).await);
    }
    rows
}

/// Runs until everything is settled. A false state in between is a failure too.
async fn advance_through_retries(world: &TestEngine, cells: &[MatrixCell]) {
    let ids: Vec<EmailId> = cells.iter().map(|cell| cell.id).collect();
    for cell in cells {
        world.wait_for_attempts(cell.id, 1).await;
    }
    for step in [0, 2 * SECOND, 6 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE, 5 * MINUTE, 2 * MINUTE] {
        world.advance(&ids, &[step]).await;
        check_no_false_state(world, cells).await;
    }
    for cell in cells.iter().filter(|cell| cell.fault == HopFault::AcceptLate) {
        match &cell.hop.sink {
            HopSink::Http(sink) => sink.release_late_mail().await,
            HopSink::Smtp(sink) => {
                let mails = cell.fault.expected(HopKind::Relay, cell.policy).mails;
                sink.wait_until(|sink| sink.mails().len() >= mails).await.unwrap();
            }
        }
    }
    for step in [5 * MINUTE, 10 * MINUTE, 20 * MINUTE, HOUR, 2 * HOUR, 6 * HOUR, 24 * HOUR, 72 * HOUR] {
        world.advance(&ids, &[step]).await;
        check_no_false_state(world, cells).await;
    }
}

/// No email is `sent` that arrived nowhere, or `failed` that arrived.
async fn check_no_false_state(world: &TestEngine, cells: &[MatrixCell]) {
    for cell in cells {
        let (state, mails) = (world.state(cell.id).await, cell.hop.accepted_mail().len());
        let name = cell.hop.transport.name();
        assert!(state != EmailState::Sent || mails > 0, "{name} is called sent and is nowhere");
        let ended = matches!(state, EmailState::Failed | EmailState::Cancelled);
        assert!(!ended || mails == 0, "{name} is called {} and was taken", state.as_str());
    }
}

async fn check_cell(world: &TestEngine, next: HopKind, cell: &MatrixCell) -> MatrixRow {
    let detail = world.detail(cell.id).await;
    let (taken, handoff) = (cell.hop.accepted_mail(), &detail.email.handoffs[0]);
    let state = detail.email.state().as_str();
    let got = ExpectedResult { mails: taken.len(), state, may_duplicate: handoff.progress.may_duplicate };
    let wanted = cell.fault.expected(next, cell.policy);
    let mut wrong = Vec::new();
    if got != wanted {
        wrong.push(format!("{got:?} instead of {wanted:?}: {:?} {:?}", detail.attempts, detail.evidence));
    }
    if taken.iter().any(|mail| *mail != taken[0]) {
        wrong.push(format!("the copies differ: {taken:?}"));
    }
    if taken.len() > 1 && !detail.attempts.iter().any(|attempt| attempt.details.may_duplicate) {
        wrong.push("no attempt says that the recipient may have it twice".into());
    }
    let in_doubt = detail.email.handoffs.iter().any(mailonce_core::handoff::Handoff::is_in_doubt);
    if in_doubt != (state == "unknown") {
        wrong.push(format!("{state}, but in doubt: {in_doubt}"));
    }
    if cell.fault == HopFault::RateLimited && matches!(next, HopKind::Provider(_)) {
        let pause = detail.attempts[1].at.since(detail.attempts[0].at);
        if pause < i64::from(RETRY_AFTER_S) * SECOND {
            wrong.push(format!("it came again after {pause} ms"));
        }
    }
    MatrixRow { next, fault: cell.fault, policy: cell.policy, actual: got, wrong }
}

fn print_matrix(kind: EngineStoreKind, rows: &[MatrixRow]) {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(std::iter::once(kind.to_string()).chain(all_hop_kinds().map(HopKind::name)));
    let mut lines: BTreeMap<(usize, &str), BTreeMap<String, String>> = BTreeMap::new();
    for row in rows {
        let index = HopFault::ALL.iter().position(|fault| *fault == row.fault).unwrap_or_default();
        let flag = if row.actual.may_duplicate { "*" } else { "" };
        let cell =
            format!("{} {}{flag}{}", row.actual.mails, row.actual.state, if row.wrong.is_empty() { "" } else { " !" });
        lines.entry((index, row.policy.as_str())).or_default().insert(row.next.name(), cell);
    }
    for ((index, policy), cells) in lines {
        let name = format!("{:?} / {policy}", HopFault::ALL[index]);
        let cell = |next: HopKind| cells.get(&next.name()).cloned().unwrap_or_else(|| "-".into());
        table.add_row(std::iter::once(name).chain(all_hop_kinds().map(cell)));
    }
    println!("{table}\n(mails taken and the email's state after four days; * may duplicate)");
}

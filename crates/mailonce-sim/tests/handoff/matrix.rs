//! Each next hop, each fault, each policy, on two stores: how many mails were taken, and what the email says of
//! itself, once time has passed.

use comfy_table::Table;
use mailonce_core::{
    email::{EmailState, OnUnknown},
    id::EmailId,
};
use mailonce_sim::sink::http::Vendor;
use std::{collections::BTreeMap, sync::Arc};

use crate::{
    fault::{Expected, Fault, PAUSE_S},
    hop::{Hop, Next, Oracle},
    world::{HOUR, Hands, Kind, MINUTE, Place, SECOND, World},
};

/// One mail on its way.
struct Cell {
    fault: Fault,
    policy: OnUnknown,
    hop: Hop,
    id: EmailId,
}

/// What became of it.
struct Row {
    next: Next,
    fault: Fault,
    policy: OnUnknown,
    got: Expected,
    wrong: Vec<String>,
}

fn nexts() -> impl Iterator<Item = Next> {
    std::iter::once(Next::Relay).chain(Vendor::ALL.map(Next::Provider))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_fault_makes_a_second_mail_or_a_false_answer_over_the_model() {
    every_cell(Kind::Memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_fault_makes_a_second_mail_or_a_false_answer_over_sqlite() {
    every_cell(Kind::Sqlite).await;
}

async fn every_cell(kind: Kind) {
    let runs: Vec<_> = nexts().map(|next| tokio::spawn(column(kind, next))).collect();
    let mut rows = Vec::new();
    for run in runs {
        rows.extend(run.await.unwrap());
    }
    print(kind, &rows);
    let wrong: Vec<String> = rows
        .iter()
        .flat_map(|row| {
            row.wrong.iter().map(|why| format!("{} {:?} {}: {why}", row.next.name(), row.fault, row.policy.word()))
        })
        .collect();
    assert!(wrong.is_empty(), "{} cells are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// All that can go wrong at one next hop, side by side in one engine, each fault with a sink of its own.
async fn column(kind: Kind, next: Next) -> Vec<Row> {
    let (place, clock) = (Place::new(kind), Hands::new());
    let mut hops = Vec::new();
    for policy in [OnUnknown::Hold, OnUnknown::Resend] {
        for fault in Fault::ALL.into_iter().filter(|fault| fault.fits(next)) {
            let hop = next.open(&format!("{fault:?}-{}", policy.word()), &clock).await;
            fault.plant(&hop);
            hops.push((fault, policy, hop));
        }
    }
    let transports = hops.iter().map(|(_, _, hop)| Arc::clone(&hop.transport)).collect();
    let world = World::at(&place, transports, &[], clock).await;
    let mut cells = Vec::new();
    for (fault, policy, hop) in hops {
        let name = hop.transport.name().to_owned();
        let id = world.send(&name, Some(&name), policy).await;
        cells.push(Cell { fault, policy, hop, id });
    }
    play(&world, &cells).await;
    let mut rows = Vec::new();
    for cell in &cells {
        rows.push(judge(&world, next, cell).await);
    }
    rows
}

/// Lets everything happen that can. What is false at any rest between is a fault too.
async fn play(world: &World, cells: &[Cell]) {
    let ids: Vec<EmailId> = cells.iter().map(|cell| cell.id).collect();
    for cell in cells {
        world.tried(cell.id, 1).await;
    }
    for step in [0, 2 * SECOND, 6 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE, 5 * MINUTE, 2 * MINUTE] {
        world.pass(&ids, &[step]).await;
        look(world, cells).await;
    }
    for cell in cells.iter().filter(|cell| cell.fault == Fault::AcceptLate) {
        match &cell.hop.sink {
            Oracle::Http(sink) => sink.release().await,
            Oracle::Smtp(sink) => {
                let mails = cell.fault.expected(Next::Relay, cell.policy).mails;
                sink.until(|sink| sink.mails().len() >= mails).await.unwrap();
            }
        }
    }
    for step in [5 * MINUTE, 10 * MINUTE, 20 * MINUTE, HOUR, 2 * HOUR, 6 * HOUR, 24 * HOUR, 72 * HOUR] {
        world.pass(&ids, &[step]).await;
        look(world, cells).await;
    }
}

/// Nothing is ever called sent that is nowhere, or failed that is somewhere.
async fn look(world: &World, cells: &[Cell]) {
    for cell in cells {
        let (state, mails) = (world.state(cell.id).await, cell.hop.taken().len());
        let name = cell.hop.transport.name();
        assert!(state != EmailState::Sent || mails > 0, "{name} is called sent and is nowhere");
        let ended = matches!(state, EmailState::Failed | EmailState::Cancelled);
        assert!(!ended || mails == 0, "{name} is called {} and was taken", state.word());
    }
}

async fn judge(world: &World, next: Next, cell: &Cell) -> Row {
    let detail = world.detail(cell.id).await;
    let (taken, handoff) = (cell.hop.taken(), &detail.email.handoffs[0]);
    let state = detail.email.state().word();
    let got = Expected { mails: taken.len(), state, may_duplicate: handoff.work.may_duplicate };
    let wanted = cell.fault.expected(next, cell.policy);
    let mut wrong = Vec::new();
    if got != wanted {
        wrong.push(format!("{got:?} instead of {wanted:?}: {:?} {:?}", detail.attempts, detail.evidence));
    }
    if taken.iter().any(|mail| *mail != taken[0]) {
        wrong.push(format!("the copies differ: {taken:?}"));
    }
    if taken.len() > 1 && !detail.attempts.iter().any(|attempt| attempt.about.may_duplicate) {
        wrong.push("no attempt says that the recipient may have it twice".into());
    }
    let in_doubt = detail.email.handoffs.iter().any(mailonce_core::handoff::Handoff::is_in_doubt);
    if in_doubt != (state == "unknown") {
        wrong.push(format!("{state}, but in doubt: {in_doubt}"));
    }
    if cell.fault == Fault::Busy && matches!(next, Next::Provider(_)) {
        let pause = detail.attempts[1].at.since(detail.attempts[0].at);
        if pause < i64::from(PAUSE_S) * SECOND {
            wrong.push(format!("it came again after {pause} ms"));
        }
    }
    Row { next, fault: cell.fault, policy: cell.policy, got, wrong }
}

fn print(kind: Kind, rows: &[Row]) {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(std::iter::once(kind.to_string()).chain(nexts().map(Next::name)));
    let mut lines: BTreeMap<(usize, &str), BTreeMap<String, String>> = BTreeMap::new();
    for row in rows {
        let place = Fault::ALL.iter().position(|fault| *fault == row.fault).unwrap_or_default();
        let flag = if row.got.may_duplicate { "*" } else { "" };
        let cell = format!("{} {}{flag}{}", row.got.mails, row.got.state, if row.wrong.is_empty() { "" } else { " !" });
        lines.entry((place, row.policy.word())).or_default().insert(row.next.name(), cell);
    }
    for ((place, policy), cells) in lines {
        let name = format!("{:?} / {policy}", Fault::ALL[place]);
        let cell = |next: Next| cells.get(&next.name()).cloned().unwrap_or_else(|| "-".into());
        table.add_row(std::iter::once(name).chain(nexts().map(cell)));
    }
    println!("{table}\n(mails taken and the email's state after four days; * may duplicate)");
}

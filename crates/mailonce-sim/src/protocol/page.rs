//! `docs/protocols.md`, written from what the checker finds. Nobody types a trace.

use std::fmt::{self, Write as _};

use super::{
    catalogue::{MARKER_PROTOCOL, PROTOCOLS, Protocol, ProtocolFailure},
    check::{TraceLine, check_protocol},
};

const PAGE_HEADER: &str = "\
# Protocols that do not hold

Ways of sending a mail once, or of answering one once, as published guides recommend them, and what each of them does
in the worst order of events. The orders were not thought up: a model checker tried all of them, and this page is what it
wrote (`mailonce-model protocols`; a test fails when the page and the checker differ). Each trace is the shortest there is.

Each model has one key, one or two callers, **A** and **B**, that all do the same steps, and only the faults that are named. A caller
that got no answer calls again. Between two steps anything may happen.
";

/// The whole page.
pub fn render_page() -> Result<String, fmt::Error> {
    let mut page = PAGE_HEADER.to_owned();
    for protocol in PROTOCOLS {
        write_section(&mut page, protocol)?;
    }
    let ours = check_protocol(MARKER_PROTOCOL);
    writeln!(page, "\n## {}\n\n{}\n", MARKER_PROTOCOL.name, MARKER_PROTOCOL.about)?;
    write_steps(&mut page, &MARKER_PROTOCOL)?;
    writeln!(page, "\nFaults: {}.\n", describe_faults(&MARKER_PROTOCOL))?;
    let verdict = match ours.breaks {
        ProtocolFailure::None => "no second mail, and none that is lost without somebody's being told",
        ProtocolFailure::Duplicate | ProtocolFailure::LostMail => "it breaks",
    };
    writeln!(page, "Every order was played, {} worlds: {verdict}.", ours.states)?;
    writeln!(
        page,
        "The whole hand-off, with leases, fences, evidence, windows and people, has a model of its own that calls the"
    )?;
    writeln!(page, "code that ships: see `crates/mailonce-sim/src/model` and [handoff.md](handoff.md).")?;
    Ok(page)
}

fn write_section(page: &mut String, protocol: &Protocol) -> fmt::Result {
    let found = check_protocol(*protocol);
    writeln!(page, "\n## {}\n\n{}\n", protocol.name, protocol.about)?;
    write_steps(page, protocol)?;
    let outcome = match found.breaks {
        ProtocolFailure::Duplicate => "a second mail",
        ProtocolFailure::LostMail => "no mail, and everybody believes that all is well",
        ProtocolFailure::None => "nothing",
    };
    writeln!(page, "\nFaults: {}. Ends in: **{outcome}**.\n", describe_faults(protocol))?;
    writeln!(page, "| step | who | does | the world has then |\n|---|---|---|---|")?;
    for (number, TraceLine { who, what, state_after: then }) in (1..).zip(&found.trace) {
        writeln!(page, "| {number} | {who} | {what} | {then} |")?;
    }
    writeln!(page, "\n{}", protocol.lesson)
}

fn write_steps(page: &mut String, protocol: &Protocol) -> fmt::Result {
    for (number, op) in (1..).zip(protocol.program) {
        writeln!(page, "{number}. {}", op.description())?;
    }
    if let Some(op) = protocol.on_error {
        writeln!(page, "\nWhen the hand-over fails: {}.", op.description())?;
    }
    Ok(())
}

fn describe_faults(protocol: &Protocol) -> String {
    let faults = protocol.faults;
    let named = [
        (faults.crashes, "callers die"),
        (faults.lost_replies, "answers of the next hop get lost"),
        (faults.lock_expires, "locks run out"),
    ];
    let named: Vec<&str> = named.into_iter().filter(|(on, _)| *on).map(|(_, words)| words).collect();
    if named.is_empty() { "none".into() } else { named.join(", ") }
}

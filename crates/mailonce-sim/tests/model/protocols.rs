//! The example protocols fail as documented, mailonce's own holds, and the page shows both.

use mailonce_sim::protocol::{MARKER_PROTOCOL, PROTOCOLS, check_protocol, render_page};

#[test]
fn every_recommended_protocol_is_broken_by_some_order_of_events() {
    for protocol in PROTOCOLS {
        let result = check_protocol(*protocol);
        assert_eq!(result.breaks, protocol.breaks, "{}:\n{}", protocol.name, result.trace.join("\n"));
        assert!(result.breaks.is_some() && !result.trace.is_empty());
    }
}

#[test]
fn a_marker_before_the_bytes_holds_under_every_fault() {
    let result = check_protocol(MARKER_PROTOCOL);
    assert_eq!(result.breaks, None, "{}", result.trace.join("\n"));
    assert!(result.states > 100, "the checker explored only {} states", result.states);
}

#[test]
fn the_page_is_what_the_checker_finds() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocols.md");
    let written = std::fs::read_to_string(path).expect("docs/protocols.md");
    assert!(
        written == render_page().expect("a page"),
        "docs/protocols.md is outdated: cargo run -p mailonce-sim --bin mailonce-model -- protocols > docs/protocols.md"
    );
}

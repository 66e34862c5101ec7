//! Protocols that must fail, the one that must hold, and the page that shows both.

use mailonce_sim::protocol::{
    catalogue::{MARKER_PROTOCOL, PROTOCOLS, ProtocolFailure},
    check::check_protocol,
    page::render_page,
};

#[test]
fn every_recommended_protocol_is_broken_by_some_order_of_events() {
    for protocol in PROTOCOLS {
        let found = check_protocol(*protocol);
        println!("{}: {:?}", protocol.name, found.breaks);
        for line in &found.trace {
            println!("  {} {} -> {}", line.who, line.what, line.state_after);
        }
        assert_eq!(found.breaks, protocol.breaks, "{}", protocol.name);
        assert!(!found.trace.is_empty());
    }
}

#[test]
fn a_marker_before_the_bytes_holds_under_every_fault() {
    let found = check_protocol(MARKER_PROTOCOL);
    assert_eq!(found.breaks, ProtocolFailure::None, "{:#?}", found.trace);
    assert!(found.states > 100, "only {} worlds: hardly anything happened", found.states);
}

#[test]
fn the_page_is_what_the_checker_finds() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocols.md");
    let written = std::fs::read_to_string(path).expect("docs/protocols.md");
    let found = render_page().expect("a page");
    assert!(
        written == found,
        "write it again: cargo run -p mailonce-sim --bin mailonce-model -- protocols > docs/protocols.md"
    );
}

//! Properties of every composed mail, however odd the input.

use crate::letters::{OwnedComposeInput, compose_inputs, hostile_compose_inputs};
use mailonce_mail::compose::needs_smtputf8;
use proptest::prelude::*;

/// The header names of a block, parsed independently of the crate.
fn names(block: &str) -> Vec<String> {
    let fields = block.split("\r\n").filter(|line| !line.starts_with([' ', '\t']));
    fields.map(|line| line.split_once(':').unwrap_or((line, "")).0.to_owned()).collect()
}

fn check(input: &OwnedComposeInput, mail: &[u8]) -> Result<(), TestCaseError> {
    let text = std::str::from_utf8(mail).map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert!(text.ends_with("\r\n"));
    for line in text.split("\r\n") {
        prop_assert!(line.len() <= 998, "{} octets", line.len());
        prop_assert!(!line.contains(['\r', '\n', '\0']), "{line:?}");
    }
    if !needs_smtputf8(&input.content) {
        prop_assert!(text.is_ascii());
    }
    prop_assert!(!text.contains("hidden-copy"));
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| TestCaseError::fail("no end of headers"))?;
    let mut expected = input.header_names();
    expected.push("Content-Type");
    if !head.contains("Content-Type: multipart/") {
        expected.push("Content-Transfer-Encoding");
    }
    prop_assert_eq!(names(head), expected);
    // A line exceeds the limit only if it has no place to fold.
    for line in head.split("\r\n").filter(|line| line.len() > 78) {
        let folded = line.strip_prefix(' ');
        let value = folded.unwrap_or_else(|| line.split_once(": ").unwrap_or_default().1);
        prop_assert!(!value.trim_start().contains(' '), "{line:?}");
    }
    check_parts(input, body)
}

/// The parts between boundaries have only `Content-*` headers.
fn check_parts(input: &OwnedComposeInput, body: &str) -> Result<(), TestCaseError> {
    let known = ["Content-Type", "Content-Transfer-Encoding", "Content-Disposition", "Content-ID"];
    let mut leaves = 0;
    for part in body.split("--=_").skip(1).filter(|part| !part[32..].starts_with("--")) {
        let (block, _) = part[32..].split_once("\r\n\r\n").ok_or_else(|| TestCaseError::fail("part without end"))?;
        for name in names(block.trim_start_matches("\r\n")) {
            prop_assert!(known.contains(&name.as_str()), "{name}");
        }
        leaves += usize::from(!block.contains("Content-Type: multipart/"));
    }
    let content = &input.content;
    let asked = content.attachments.len() + usize::from(content.text.is_some()) + usize::from(content.html.is_some());
    // A single body has no boundaries.
    prop_assert_eq!(leaves, if asked == 1 { 0 } else { asked });
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_input_gives_a_well_formed_mail_deterministically(input in compose_inputs()) {
        let mail = input.compose().map_err(|error| TestCaseError::fail(error.to_string()))?;
        check(&input, &mail)?;
        prop_assert_eq!(input.compose(), Ok(mail));
    }

    #[test]
    fn a_hostile_input_is_rejected_or_harmless(input in hostile_compose_inputs()) {
        if let Ok(mail) = input.compose() {
            check(&input, &mail)?;
        }
    }
}

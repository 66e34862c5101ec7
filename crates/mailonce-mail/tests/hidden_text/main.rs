//! Compares the text that Chromium displays of hostile and ordinary mails with the text that we extract.
//!
//! `fixtures.json` has pages with marker words. `judge.mjs` determines by comparing pixels in Chromium which of the
//! words are visible, and stores the results in `verdicts.json`. We must not show a word that Chromium hides. We may
//! hide a few that Chromium shows, because we have no layout engine.

use std::collections::BTreeMap;

use mailonce_mail::html::{self, HtmlPage};
use serde::Deserialize;

/// At most one fixture in this many may hide a word that Chromium shows.
const ONE_IN: usize = 100;

#[derive(Deserialize)]
struct Fixture {
    name: String,
    html: String,
}

/// Ordinary mails with text that is not on paper, on small screens or with dark colours.
const HIDDEN_FROM_SOME: &[&str] =
    &["honest media mobile", "honest media print", "honest dark mode", "honest newsletter"];

type Verdicts = BTreeMap<String, BTreeMap<String, bool>>;

fn read() -> serde_json::Result<(Vec<Fixture>, Verdicts)> {
    let fixtures = serde_json::from_str(include_str!("fixtures.json"))?;
    Ok((fixtures, serde_json::from_str(include_str!("verdicts.json"))?))
}

#[test]
fn no_word_that_chromium_hides_is_shown() {
    let (fixtures, verdicts) = read().unwrap();
    assert!(fixtures.len() >= 200 && fixtures.len() == verdicts.len());
    let (mut leaked, mut lost) = (Vec::new(), Vec::new());
    for fixture in &fixtures {
        let page = HtmlPage::parse(&fixture.html);
        let text = html::render(&page);
        for (word, seen) in &verdicts[&fixture.name] {
            let shown = text.contains(word) || page.text.contains(word);
            match (shown, seen) {
                (true, false) => leaked.push(format!("{}: {word}", fixture.name)),
                (false, true) => lost.push(format!("{}: {word}", fixture.name)),
                _ => {}
            }
        }
    }
    println!("{} fixtures; hidden although Chromium shows it: {lost:#?}", fixtures.len());
    assert!(leaked.is_empty(), "shown although Chromium hides it: {leaked:#?}");
    assert!(lost.len() <= fixtures.len() / ONE_IN, "hidden although Chromium shows it: {lost:#?}");
}

#[test]
fn ordinary_mails_stay_complete() {
    let (fixtures, verdicts) = read().unwrap();
    for fixture in fixtures.iter().filter(|fixture| fixture.name.starts_with("honest")) {
        let page = HtmlPage::parse(&fixture.html);
        for (word, seen) in &verdicts[&fixture.name] {
            assert_eq!(page.text.contains(word), *seen, "{}: {word}", fixture.name);
        }
        assert!(!page.is_truncated, "{}", fixture.name);
        let (_, unrendered) = HtmlPage::parse_for_approval(&fixture.html);
        let expected: &[&str] = match &*fixture.name {
            name if HIDDEN_FROM_SOME.contains(&name) => &["text that is hidden from some readers"],
            "honest remote image" => &["a background image from elsewhere"],
            _ => &[],
        };
        assert_eq!(unrendered, expected, "{}", fixture.name);
    }
}

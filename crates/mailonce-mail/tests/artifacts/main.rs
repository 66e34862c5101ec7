//! Codes and links of a labelled corpus: how often what is decided is right, and how much of what is there is found.
//!
//! `corpus.json` is written by `make.py`: 14 languages, every trap in each, and a list of single traps.

use mailonce_mail::{
    artifact::{self, Kind},
    html::Page,
    link::{self, Policy},
    parse,
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Labelled {
    lang: String,
    trap: String,
    sender: String,
    subject: String,
    text: Option<String>,
    html: Option<String>,
    code: Option<String>,
    link: Option<String>,
}

impl Labelled {
    /// The mail as bytes, so that the whole way is tested.
    fn raw(&self) -> String {
        let part = |kind: &str, body: &str| {
            format!("--b\r\nContent-Type: text/{kind}; charset=utf-8\r\n\r\n{}\r\n", body.replace('\n', "\r\n"))
        };
        let text = self.text.as_deref().map(|text| part("plain", text)).unwrap_or_default();
        let html = self.html.as_deref().map(|html| part("html", html)).unwrap_or_default();
        format!(
            "From: Acme <{}>\r\nSubject: {}\r\nContent-Type: multipart/alternative; boundary=b\r\n\r\n{text}{html}--b--\r\n",
            self.sender, self.subject
        )
    }
}

#[derive(Default)]
struct Tally {
    right: usize,
    wrong: usize,
    there: usize,
    misses: Vec<String>,
}

impl Tally {
    fn count(&mut self, mail: &Labelled, expected: Option<&str>, decided: Option<&str>) {
        self.there += usize::from(expected.is_some());
        match decided {
            Some(value) if Some(value) == expected => self.right += 1,
            Some(_) => self.wrong += 1,
            None => {}
        }
        if decided != expected {
            self.misses.push(format!("{} {}: expected {expected:?}, decided {decided:?}", mail.lang, mail.trap));
        }
    }

    fn precision(&self) -> f64 {
        self.right as f64 / (self.right + self.wrong).max(1) as f64
    }

    fn recall(&self) -> f64 {
        self.right as f64 / self.there.max(1) as f64
    }
}

#[test]
fn what_is_decided_is_right_and_what_is_there_is_found() {
    let corpus: Vec<Labelled> = serde_json::from_str(include_str!("corpus.json")).unwrap();
    assert!(corpus.len() >= 300);
    check(&corpus);
}

/// Mails in the manner of well-known senders, written by hand and not by the templates.
#[test]
fn mails_as_they_are_really_written_are_read_as_well() {
    check(&serde_json::from_str::<Vec<Labelled>>(include_str!("wild.json")).unwrap());
}

#[track_caller]
fn check(corpus: &[Labelled]) {
    let (mut codes, mut links) = (Tally::default(), Tally::default());

    for mail in corpus {
        let parsed = parse::parse(mail.raw().as_bytes());
        let page = parsed.html.as_deref().map(Page::read);
        let policy =
            Policy { allow: Vec::new(), sender: mail.sender.rsplit_once('@').map(|(_, domain)| domain.to_owned()) };
        let judged = link::links(&parsed, page.as_ref(), &policy);
        let found = artifact::find(&parsed, page.as_ref(), &judged);
        codes.count(mail, mail.code.as_deref(), found.decided(Kind::Code).map(|code| code.value.as_str()));
        links.count(mail, mail.link.as_deref(), found.decided(Kind::Link).map(|link| link.value.as_str()));
    }

    for (kind, tally) in [("codes", &codes), ("links", &links)] {
        println!(
            "{kind}: {} in {} mails, precision {:.4}, recall {:.4}",
            tally.there,
            corpus.len(),
            tally.precision(),
            tally.recall()
        );
        tally.misses.iter().for_each(|miss| println!("  {miss}"));
        assert!(tally.precision() >= 0.99 && tally.recall() >= 0.95, "{:?}", tally.misses);
    }
}

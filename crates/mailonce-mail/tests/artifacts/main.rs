//! Codes and links of a labelled corpus: how often what is decided is right, and how much of what is there is found.
//!
//! `corpus.json` is written by `make.py`: 15 languages, every shape and trap in each, and a list of single traps.

#[cfg(test)]
mod table;

use mailonce_mail::{
    artifact::{self, ExtractedArtifacts, Kind},
    html::HtmlPage,
    link::{self, LinkPolicy},
    parse,
};
use serde::Deserialize;
use table::ResultTable;

/// The languages in which everything must be found.
const LANGUAGES: [&str; 14] = ["en", "de", "fr", "es", "pt", "it", "nl", "pl", "sv", "tr", "ru", "ja", "zh", "ko"];

#[derive(Deserialize)]
struct LabelledMail {
    lang: String,
    trap: String,
    sender: String,
    subject: String,
    text: Option<String>,
    html: Option<String>,
    code: Option<String>,
    link: Option<String>,
}

impl LabelledMail {
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

    fn found(&self) -> ExtractedArtifacts {
        let parsed = parse::parse(self.raw().as_bytes());
        let page = parsed.html.as_deref().map(HtmlPage::parse);
        let sender = self.sender.rsplit_once('@').map(|(_, domain)| domain.to_owned());
        let judged = link::check_links(
            &parsed,
            page.as_ref(),
            &LinkPolicy { allowed_domains: Vec::new(), sender_domain: sender },
        );
        artifact::extract(&parsed, page.as_ref(), &judged)
    }

    fn is_trap(&self) -> bool {
        self.code.is_none() && self.link.is_none()
    }
}

/// What is decided about one kind, over many mails.
#[derive(Default)]
struct DecisionCounts {
    right: usize,
    wrong: usize,
    there: usize,
}

impl DecisionCounts {
    fn count(&mut self, expected: Option<&str>, decided: Option<&str>) {
        self.there += usize::from(expected.is_some());
        self.right += usize::from(decided.is_some() && decided == expected);
        self.wrong += usize::from(decided.is_some() && decided != expected);
    }
}

#[test]
fn what_is_decided_is_right_and_what_is_there_is_found() {
    let corpus: Vec<LabelledMail> = serde_json::from_str(include_str!("corpus.json")).unwrap();
    let traps = corpus.iter().filter(|mail| mail.is_trap()).count();
    assert!(traps >= 200 && corpus.len() - traps >= 200, "{traps} traps of {} mails", corpus.len());
    let table = check(&corpus, 99);
    for lang in LANGUAGES {
        for shape in table::SHAPES {
            assert!(table.of(lang, shape).total > 0, "{lang} has no mail of the shape {shape}");
        }
    }
}

/// Mails in the manner of well-known senders, written by hand and not by the templates. One of them ("use 394107 to log
/// in") never calls its number a code, and no such guess is made.
#[test]
fn mails_as_they_are_really_written_are_read_as_well() {
    check(&serde_json::from_str::<Vec<LabelledMail>>(include_str!("wild.json")).unwrap(), 98);
}

/// Of codes and links 99 % are right, and so many of a hundred are found. Where there is none, none is ever made up.
#[track_caller]
fn check(corpus: &[LabelledMail], found_of_hundred: usize) -> ResultTable {
    let (mut codes, mut links, mut table) =
        (DecisionCounts::default(), DecisionCounts::default(), ResultTable::default());
    let (mut misses, mut made_up) = (Vec::new(), Vec::new());
    for mail in corpus {
        let found = mail.found();
        let decided = |kind| found.decided(kind).map(|value| value.value.as_str());
        let (code, link) = (decided(Kind::Code), decided(Kind::Link));
        codes.count(mail.code.as_deref(), code);
        links.count(mail.link.as_deref(), link);
        let right = code == mail.code.as_deref() && link == mail.link.as_deref();
        table.add(mail, right);
        if !right {
            misses.push(format!("{} {} ({}): {code:?} {link:?}", mail.lang, mail.trap, mail.subject));
        }
        if mail.code.is_none() && code.is_some() {
            made_up.push(format!("{} {}: {code:?}", mail.lang, mail.trap));
        }
    }
    println!("{table}");
    for (kind, tally) in [("codes", &codes), ("links", &links)] {
        println!("{kind}: {} right, {} wrong, {} there", tally.right, tally.wrong, tally.there);
        assert!(tally.right * 100 >= 99 * (tally.right + tally.wrong), "{kind} that are wrong: {misses:#?}");
        assert!(tally.right * 100 >= found_of_hundred * tally.there, "{kind} that are not found: {misses:#?}");
    }
    assert_eq!(made_up, Vec::<String>::new(), "codes where there are none");
    table
}

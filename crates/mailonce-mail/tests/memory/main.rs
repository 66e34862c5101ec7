//! Memory use of parsing. This test has its own process, because it counts the memory of the whole process.
//!
//! Our own mails are always parsed. Files of the folder in `MAILONCE_MIME_CORPUS`, or of `shared/corpus/mime` next to
//! this repository, are parsed too if they exist.

#[cfg(test)]
#[path = "../received/hostile.rs"]
mod hostile;

use mailonce_mail::{
    artifact::{self, ExtractedArtifacts},
    html::HtmlPage,
    link::{self, LinkPolicy},
    minimise, parse,
};
use peak_alloc::PeakAlloc;
use std::{
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// The base cost of any mail, because the parser's tables do not depend on its size.
const ALLOWANCE: usize = 64 * 1024;
/// A generous timeout, so that even on a busy machine only endless loops exceed it.
const MAX_DURATION: Duration = Duration::from_secs(20);

#[test]
fn no_mail_needs_more_than_three_times_its_size_or_hangs() {
    let own = hostile::mails();
    assert!(own.len() >= 20);
    let others = corpus_mails().unwrap();
    let mails = own.into_iter().map(|(name, mail)| (name.to_owned(), mail)).chain(others);
    let mut worst = (0, String::new());
    for (name, mail) in mails {
        let start = Instant::now();
        let cost = peak_memory(&mail);
        assert!(cost <= 3 * mail.len() + ALLOWANCE, "{name}: {cost} octets for {}", mail.len());
        process_mail(&mail);
        assert!(start.elapsed() < MAX_DURATION, "{name}: {:?}", start.elapsed());
        worst = worst.max((cost * 100 / (mail.len() + ALLOWANCE / 3), name));
    }
    println!("the dearest: {} at {} % of its size", worst.1, worst.0);
}

/// The peak memory while a mail is parsed, without the mail itself.
fn peak_memory(mail: &[u8]) -> usize {
    // Tables that are built once do not count.
    drop(parse::parse(b"From: a@x.example\r\n\r\nx"));
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    drop(parse::parse(mail));
    MEMORY.peak_usage().saturating_sub(before)
}

/// Runs the steps after parsing.
fn process_mail(mail: &[u8]) {
    let parsed = parse::parse(mail);
    let page = parsed.html.as_deref().map(HtmlPage::parse);
    let links = link::check_links(&parsed, page.as_ref(), &LinkPolicy::default());
    drop(artifact::extract(&parsed, page.as_ref(), &links));
    let view = minimise::build_view(&parsed, page.as_ref(), &ExtractedArtifacts::default(), "n0nce");
    assert_eq!(view.text.matches("<<<").count(), 1);
}

/// The mails of the external corpus, if it exists.
fn corpus_mails() -> io::Result<Vec<(String, Vec<u8>)>> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus/mime");
    let folder = match std::env::var_os("MAILONCE_MIME_CORPUS") {
        Some(named) => PathBuf::from(named),
        None if beside.is_dir() => beside,
        None => {
            println!("no corpus lies beside the repository: only mails of our own are read");
            return Ok(Vec::new());
        }
    };
    let mut mails = Vec::new();
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                mails.push((path.display().to_string(), std::fs::read(&path)?));
            }
        }
    }
    println!("{} mails that nobody here wrote", mails.len());
    assert!(!mails.is_empty(), "the corpus is empty");
    Ok(mails)
}

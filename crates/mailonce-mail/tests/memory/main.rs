//! What a mail costs to read. Alone in its process, since it counts the memory of all of it.
//!
//! Mails of our own are always read. Where a folder of others lies beside this repository (`shared/corpus/mime`), or
//! `MAILONCE_MIME_CORPUS` names one, each of its files is read, too.

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

/// What the smallest mail may cost: tables of a parser do not grow with it.
const ALLOWANCE: usize = 64 * 1024;
/// Far more than any needs, so that only what does not end is found out on a busy machine.
const MAX_DURATION: Duration = Duration::from_secs(20);

#[test]
fn no_mail_costs_more_than_three_times_itself_or_never_ends() {
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

/// The most memory that was in use while a mail was parsed, beyond the mail itself.
fn peak_memory(mail: &[u8]) -> usize {
    // Tables that are made once are nobody's cost.
    drop(parse::parse(b"From: a@x.example\r\n\r\nx"));
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    drop(parse::parse(mail));
    MEMORY.peak_usage().saturating_sub(before)
}

/// The rest of a mail's way.
fn process_mail(mail: &[u8]) {
    let parsed = parse::parse(mail);
    let page = parsed.html.as_deref().map(HtmlPage::parse);
    let links = link::check_links(&parsed, page.as_ref(), &LinkPolicy::default());
    drop(artifact::extract(&parsed, page.as_ref(), &links));
    let view = minimise::build_view(&parsed, page.as_ref(), &ExtractedArtifacts::default(), "n0nce");
    assert_eq!(view.text.matches("<<<").count(), 1);
}

/// Mails that nobody here wrote, when they are there.
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

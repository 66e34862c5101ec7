//! How fast a search is: the first page of frequent, rare and mixed words.
//!
//! The short form runs with the tests, beside others that want the same cores: it asks every query and judges no time.
//! `MAILONCE_SEARCH_MAILS=1000000` selects the long form, which does; run it alone, with `--release` and `--nocapture`.

use std::time::{Duration, Instant};

use mailonce_core::{
    outbound::accept::NewEmail,
    search::{SearchKind, SearchRef, query::SearchQuery},
};

use super::{
    T0, TEAM, TestStore, accept_batch_items, check_promise,
    fixtures::{
        open_store,
        search::{document_of, query, search_page},
    },
    keyless_batch, keyless_email,
};

/// What the first page of a search may take, at the 95th percentile.
const FIRST_PAGE: Duration = Duration::from_millis(100);
/// How often each query runs.
const RUNS: usize = 40;
const MAILS_PER_BATCH: usize = 500;

/// A text of about 1 KB. Every mail has `common`, every second one `half`, every hundredth one `seldom`, every
/// ten-thousandth one `rare`; `early` is in the oldest tenth only.
fn text(number: usize, total: usize) -> String {
    let mut words = vec!["common".to_owned()];
    let marks = [(2, "half"), (100, "seldom"), (10_000, "rare")];
    words.extend(marks.iter().filter(|(every, _)| number.is_multiple_of(*every)).map(|(_, word)| (*word).to_owned()));
    words.extend((number < total / 10).then(|| "early".to_owned()));
    let mut state = number as u64 + 1;
    for _ in 0..150 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Squaring makes low numbers frequent, as in a language.
        let share = (state >> 33) as f64 / f64::from(1_u32 << 31);
        words.push(format!("w{}", (share * share * 20_000.0) as u32));
    }
    words.join(" ")
}

/// Accepts and indexes emails. Returns how long indexing took.
async fn fill(store: &TestStore, total: usize) -> Duration {
    let (mut indexing, mut indexed) = (Duration::ZERO, 0);
    for start in (0..total).step_by(MAILS_PER_BATCH) {
        let numbers = start..(start + MAILS_PER_BATCH).min(total);
        let now = T0.plus(start as i64);
        let items: Vec<NewEmail> =
            numbers.map(|number| keyless_email().text(&text(number, total)).to_new_email(now)).collect();
        let mails = items.iter().map(|item| SearchRef { kind: SearchKind::Email, id: item.id.0 }).collect();
        let count = items.len() as u64;
        accept_batch_items(store, keyless_batch(&items), now).await;
        let sources = store.search_sources(TEAM, mails).await.unwrap();
        let documents = sources.iter().map(document_of).collect();
        let begun = Instant::now();
        assert!(store.index_documents(TEAM, (indexed, indexed + count), documents).await.unwrap());
        (indexing, indexed) = (indexing + begun.elapsed(), indexed + count);
    }
    indexing
}

/// The 95th percentile of the time that the first page of a query takes.
async fn measure(store: &TestStore, query: &SearchQuery, expects_hits: bool) -> Duration {
    let mut times = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let begun = Instant::now();
        let page = search_page(store, TEAM, query.clone()).await;
        times.push(begun.elapsed());
        assert_eq!(!page.hits.is_empty(), expects_hits, "{query:?}");
    }
    times.sort_unstable();
    times[(RUNS - 1) * 95 / 100]
}

async fn check_first_pages(name: &str, store: TestStore) {
    let asked: Option<usize> = std::env::var("MAILONCE_SEARCH_MAILS").ok().map(|text| text.parse().unwrap());
    let total = asked.unwrap_or(2_000);
    let indexing = fill(&store, total).await;
    println!("{name}: {total} mails indexed, {:.0} a second", total as f64 / indexing.as_secs_f64());
    for (text, expects_hits) in [
        ("common", true),
        ("half", true),
        ("seldom", true),
        ("rare", true),
        ("early", true),
        ("early rare", true),
        ("w1 w2 w3", true),
        ("\"w0 w1\"", true),
        ("common -half", true),
        ("missing", false),
        ("from:agent@example.com subject:hello", true),
        ("common before:2024-11-15T00:00:01Z", true),
        ("state:queued common", true),
    ] {
        let took = measure(&store, &SearchQuery { limit: 20, ..query(text) }, expects_hits).await;
        println!("{name}: {:>8.2} ms  {text}", took.as_secs_f64() * 1_000.0);
        assert!(asked.is_none() || took < FIRST_PAGE, "{name}: {text} takes {took:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_pages_on_sqlite_are_found_in_time() {
    check_promise(open_store::sqlite(), |store| check_first_pages("sqlite", store)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_pages_on_postgresql_are_found_in_time() {
    check_promise(open_store::postgres().await, |store| check_first_pages("postgresql", store)).await;
}

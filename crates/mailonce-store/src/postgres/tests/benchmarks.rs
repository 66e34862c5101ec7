//! Benchmarks, to be run by hand:
//! `cargo test --release -p mailonce-store postgres::tests::benchmarks -- --ignored --nocapture`

use mailonce_core::ports::store::Store;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::{NOW, TestDatabase, email_of, new_email};
use crate::postgres::{Options, Postgres};

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

async fn node(fresh: &TestDatabase) -> Arc<Postgres> {
    let options = Options { accept_workers: number("LANES", Options::default().accept_workers), ..Options::default() };
    Arc::new(Postgres::open_with(&fresh.url, [7; 32], options).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures"]
async fn accepts_of_256_callers() {
    let fresh = TestDatabase::create().await;
    let node = node(&fresh).await;
    let (count, took) = (Arc::new(AtomicU64::new(0)), Duration::from_secs(number("SECONDS", 8) as u64));
    let begun = Instant::now();
    let callers: Vec<_> = (0..number("CALLERS", 256))
        .map(|caller| {
            let (node, count) = (node.clone(), count.clone());
            tokio::spawn(async move {
                let mut waited = Vec::new();
                for i in 0.. {
                    if begun.elapsed() > took {
                        break;
                    }
                    let mut email = new_email(Some(&format!("{caller}-{i}")));
                    email.body = vec![(i % 251) as u8; 1000].into();
                    let asked = Instant::now();
                    assert!(email_of(node.accept(email, NOW).await.unwrap()).1);
                    waited.push(asked.elapsed());
                    count.fetch_add(1, Ordering::Relaxed);
                }
                waited
            })
        })
        .collect();
    let mut waited = Vec::new();
    for caller in callers {
        waited.extend(caller.await.unwrap());
    }
    let spent = begun.elapsed();
    waited.sort_unstable();
    let at = |share: f64| waited[((waited.len() - 1) as f64 * share) as usize];
    let gauges = node.gauges();
    println!(
        "{:.0} accepts/s; p50 {:?}, p99 {:?}; {:.1} in a commit of {:.2} ms",
        count.load(Ordering::Relaxed) as f64 / spent.as_secs_f64(),
        at(0.5),
        at(0.99),
        gauges.operations as f64 / gauges.commits as f64,
        gauges.commit_us as f64 / gauges.commits as f64 / 1000.0,
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures"]
async fn a_storm_of_10000_on_one_key() {
    let fresh = TestDatabase::create().await;
    let node = node(&fresh).await;
    let new_emails: Vec<_> = (0..10_000).map(|_| new_email(Some("k"))).collect();
    let begun = Instant::now();
    let callers: Vec<_> = new_emails
        .into_iter()
        .map(|email| {
            let node = node.clone();
            tokio::spawn(async move { email_of(node.accept(email, NOW).await.unwrap()).1 })
        })
        .collect();
    let mut firsts = 0;
    for caller in callers {
        firsts += usize::from(caller.await.unwrap());
    }
    println!("10,000 equal sends in {:?}", begun.elapsed());
    assert_eq!(firsts, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures"]
async fn captures_and_lookups() {
    let fresh = TestDatabase::create().await;
    let node = node(&fresh).await;
    let keys: Vec<_> = (0..5000).map(|i| new_email(Some(&format!("k{i}")))).collect();
    let hashes: Vec<_> = keys.iter().map(|email| email.key.unwrap()).collect();
    let batch =
        mailonce_core::outbound::accept::NewBatch { team: super::TEAM, operation: None, items: keys, strict: false };
    let begun = Instant::now();
    let _items = node.accept_batch(batch, NOW).await.unwrap();
    println!("a batch of 5,000 in {:?}", begun.elapsed());
    let begun = Instant::now();
    let callers: Vec<_> = (0..256)
        .map(|caller| {
            let (node, hashes) = (node.clone(), hashes.clone());
            tokio::spawn(async move {
                for i in 0..200 {
                    let key = hashes[(caller * 200 + i) % hashes.len()];
                    assert!(node.key_binding(super::TEAM, key, NOW).await.unwrap().is_some());
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    println!("{:.0} lookups/s", 256.0 * 200.0 / begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    let mut captured = 0;
    while captured < 5000 {
        captured += node.capture("sandbox", 500, Some(NOW), NOW).await.unwrap();
    }
    println!("{:.0} captures/s", f64::from(5000) / begun.elapsed().as_secs_f64());
}

//! Histories that were tampered with. Each forgery breaks a promise; both judges must say which.

use crate::setting::{judge, tools};
use mailonce_sim::crash::{
    board::Board,
    judge::{Record, second_opinion},
    round::Round,
    table::{Class, Store},
};
use mailonce_sim::proof::history::{End, Verb};
use serde_json::{Value, json};
use std::path::Path;

/// A round short enough to be played for this alone, with some of everything in it.
const CYCLES: usize = 9;
const CLASS: Class = Class::Smtp;

/// What was left by a round that broke nothing and has a mail to tamper with. On a slow machine most mails of a short
/// round meet a mishap, so that a second or third may be needed.
fn honest(root: &Path) -> Record {
    let mut rounds = (11..17).map(|seed| played(root, seed));
    rounds.find(|record| untouched(record).is_some()).expect("a round in which a mail simply arrives")
}

fn played(root: &Path, seed: u64) -> Record {
    let root = &root.join(seed.to_string());
    std::fs::create_dir_all(root).unwrap();
    let round = Round { store: Store::Sqlite, class: CLASS, seed, short: true, cycles: CYCLES };
    let judgement = round.play(&tools(None), &Board::default(), root).unwrap();
    assert!(judgement.violations.is_empty(), "{:?}", judgement.violations);
    Record::read(root).unwrap()
}

/// The emails of the first team.
fn emails(record: &mut Record) -> &mut Vec<Value> {
    record.api["a"]["emails"].as_array_mut().unwrap()
}

/// The one that is tampered with.
fn arrived(record: &mut Record) -> usize {
    untouched(record).expect("a mail that simply arrived")
}

/// An email to one recipient that arrived once, of which nothing strange is known.
fn untouched(record: &Record) -> Option<usize> {
    let lines = &record.lines;
    let mishaps = record.history(CLASS).faults;
    // A key that was forgotten may be bound again, so a twin of its email breaks nothing.
    let forgets = record.calls.iter().filter(|call| call.verb == Verb::Forget);
    let forgotten: Vec<String> = forgets.filter_map(|call| call.key.clone()).collect();
    let plain = |email: &Value| {
        let id = email["id"].as_str().unwrap();
        let taken = lines.iter().filter(|line| line.email == id).count();
        let touched = mishaps.iter().any(|fault| fault.emails.iter().any(|email| email == id));
        let one = email["handoffs"].as_array().unwrap().len() == 1;
        let bound = email["key"].as_str().is_some_and(|key| !forgotten.iter().any(|gone| gone == key));
        one && taken == 1 && !touched && bound && email["evidence"] == json!([])
    };
    record.api["a"]["emails"].as_array()?.iter().position(plain)
}

fn id(email: &Value) -> String {
    email["id"].as_str().unwrap().to_owned()
}

/// One way to tamper with a record.
type Forgery = (&'static str, fn(&mut Record));

const FORGERIES: [Forgery; 14] = [
    ("P1", |record| {
        let at = arrived(record);
        let mut twin = emails(record)[at].clone();
        twin["id"] = "00000000-0000-7000-8000-000000000001".into();
        emails(record).push(twin);
    }),
    ("P1", |record| {
        let call = record.calls.iter().find(|call| matches!(call.end, End::Ok { first: true, .. })).unwrap().clone();
        record.calls.push(call);
    }),
    ("P2", |record| {
        let at = arrived(record);
        emails(record).remove(at);
    }),
    ("P3", |record| {
        let at = arrived(record);
        let id = id(&emails(record)[at]);
        let line = record.lines.iter().find(|line| line.email == id).unwrap().clone();
        record.lines.push(line);
    }),
    ("P4", |record| {
        let at = arrived(record);
        let fact = json!({"at": "2026-11-15T04:00:00Z", "handoff": 0, "attempt": null, "source": "policy",
            "says": "again", "detail": ""});
        let email = &mut emails(record)[at];
        email["on_unknown"] = "hold".into();
        email["evidence"] = json!([fact]);
    }),
    ("P5", |record| {
        let at = arrived(record);
        let id = id(&emails(record)[at]);
        let email = &mut emails(record)[at];
        email["handoffs"][0]["state"] = "unknown".into();
        email["state"] = "unknown".into();
        record.lines.iter_mut().filter(|line| line.email == id).for_each(|line| line.ambiguous = true);
    }),
    ("P6", |record| {
        let at = arrived(record);
        let id = id(&emails(record)[at]);
        emails(record)[at]["handoffs"][0]["state"] = "sent".into();
        record.lines.retain(|line| line.email != id);
    }),
    ("P7", |record| {
        let at = arrived(record);
        emails(record)[at]["handoffs"][0]["state"] = "failed".into();
    }),
    ("P8", |record| {
        let at = arrived(record);
        let attempts = emails(record)[at]["handoffs"][0]["attempts"].as_array_mut().unwrap();
        attempts[0]["outcome"] = "unknown".into();
    }),
    ("P9", |record| {
        let at = arrived(record);
        let id = id(&emails(record)[at]);
        let mut line = record.lines.iter().find(|line| line.email == id).unwrap().clone();
        (line.taken, line.body) = (false, "00".into());
        record.lines.push(line);
    }),
    ("P13", |record| {
        let at = arrived(record);
        emails(record)[at]["handoffs"][0]["state"] = "queued".into();
    }),
    ("P15", |record| {
        let at = arrived(record);
        emails(record)[at]["text"] = "Something that nobody asked for.".into();
    }),
    ("P16", |record| {
        let at = arrived(record);
        let email = emails(record).remove(at);
        record.api["b"]["emails"].as_array_mut().unwrap().push(email);
    }),
    ("P13", |record| {
        let told = |call: &&mut mailonce_sim::proof::history::Call| matches!(call.verb, Verb::Send | Verb::Batch);
        let key = record.calls.iter_mut().find(told).unwrap().key.clone();
        record.calls.iter_mut().filter(|call| call.key == key).for_each(|call| call.end = End::Info);
    }),
];

/// Writes a record where the second judge reads it.
fn lay_out(record: &Record, root: &Path) {
    record.write(root).unwrap();
    let lines = |rows: Vec<String>| rows.into_iter().map(|row| row + "\n").collect::<String>();
    let calls = record.calls.iter().map(|call| serde_json::to_string(call).unwrap()).collect();
    let got = record.lines.iter().map(|line| serde_json::to_string(line).unwrap()).collect();
    std::fs::write(root.join("history.jsonl"), lines(calls)).unwrap();
    std::fs::write(root.join("sink.jsonl"), lines(got)).unwrap();
}

#[test]
fn both_judges_convict_every_forgery_of_the_same() {
    let root = tempfile::Builder::new().prefix("mailonce-forged").tempdir().unwrap();
    let honest = honest(root.path());
    for (n, (promise, tamper)) in FORGERIES.iter().enumerate() {
        let mut forged = honest.clone();
        tamper(&mut forged);
        lay_out(&forged, root.path());
        let here = forged.judge(CLASS);
        let api = format!("--api={}", root.path().join("api.json").display());
        let (there, words) = second_opinion(&judge(), root.path(), &[api]).unwrap();
        let own = here.broken();
        assert!(own.contains(*promise), "forgery {n} of {promise} was not noticed here: {own:?}");
        assert!(there.contains(*promise), "forgery {n} of {promise} was not noticed there: {words}");
        assert_eq!(own, there, "forgery {n} of {promise}: {:?}\n{words}", here.violations);
    }
}

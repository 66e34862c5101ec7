//! Forged histories. Each forgery breaks an invariant, and both checkers must name it.

use crate::fixtures::{crash_tools, second_checker};
use mailonce_core::time::Time;
use mailonce_sim::crash::{
    coverage::CoverageBoard,
    failpoints::{HopClass, StoreKind},
    inbox_snapshot::InboundRecord,
    round::CrashRound,
    verdict::{RoundRecord, SecondVerdict},
};
use mailonce_sim::proof::history::{CallKind, CallOutcome, CallRecord};
use mailonce_sim::sink::oracle::webhook_receiver::WebhookLogLine;
use serde_json::{Value, json};
use std::path::Path;

/// A short round with some of everything.
const CYCLES: usize = 9;
const CLASS: HopClass = HopClass::Smtp;

/// How many rounds are tried until one has what the forgeries need: on a busy machine a crash may affect every mail.
const MAX_ROUNDS: u64 = 5;

/// The record of a round without violations and with at least one undisturbed email.
fn run_clean_round(root: &Path, class: HopClass, went_well: impl Fn(&mut RoundRecord) -> bool) -> RoundRecord {
    for seed in 11..11 + MAX_ROUNDS {
        let folder = root.join(seed.to_string());
        std::fs::create_dir(&folder).unwrap();
        let round = CrashRound { store: StoreKind::Sqlite, class, seed, short: true, cycles: CYCLES };
        let verdict = round.run(&crash_tools(None), &CoverageBoard::default(), &folder).unwrap();
        assert!(verdict.violations.is_empty(), "{:?}", verdict.violations);
        let mut record = RoundRecord::read(&folder).unwrap();
        if went_well(&mut record) {
            return record;
        }
    }
    panic!("in {MAX_ROUNDS} rounds nothing simply went well");
}

/// The emails of the first team.
fn emails(record: &mut RoundRecord) -> &mut Vec<Value> {
    record.api["a"]["emails"].as_array_mut().unwrap()
}

/// The undisturbed email.
fn delivered_email(record: &mut RoundRecord) -> usize {
    find_delivered_email(record).expect("a mail that simply arrived")
}

/// The same, if there is one.
fn find_delivered_email(record: &mut RoundRecord) -> Option<usize> {
    let lines = record.sink_lines.clone();
    let faults = record.history(CLASS).faults;
    // A key that expired may be bound again, so a second email under it breaks nothing.
    let forgets = record.calls.iter().filter(|call| call.verb == CallKind::Forget);
    let forgotten: Vec<String> = forgets.filter_map(|call| call.key.clone()).collect();
    let plain = |email: &Value| {
        let id = email["id"].as_str().unwrap();
        let taken = lines.iter().filter(|line| line.email == id).count();
        let touched = faults.iter().any(|fault| fault.emails.iter().any(|email| email == id));
        let one = email["handoffs"].as_array().unwrap().len() == 1;
        let bound = email["key"].as_str().is_some_and(|key| !forgotten.iter().any(|gone| gone == key));
        let attempts = email["handoffs"][0]["attempts"].as_array().map_or(0, Vec::len);
        one && attempts == 1 && taken == 1 && !touched && bound && email["evidence"] == json!([])
    };
    emails(record).iter().position(plain)
}

fn id(email: &Value) -> String {
    email["id"].as_str().unwrap().to_owned()
}

/// A forgery of a record.
type Forgery = (&'static str, fn(&mut RoundRecord));

/// Rewrites the undisturbed email as one that its next hop refused.
fn rewrite_as_refused(record: &mut RoundRecord) -> usize {
    let at = delivered_email(record);
    let id = id(&emails(record)[at]);
    let email = &mut emails(record)[at];
    (email["state"], email["handoffs"][0]["state"]) = ("failed".into(), "failed".into());
    email["handoffs"][0]["attempts"][0]["outcome"] = "refused".into();
    record.sink_lines.retain(|line| line.email != id);
    let is_match = |event: &&mut Value| event["type"] == "email.sent" && event["about"]["id"] == id.as_str();
    rows(record, "events").iter_mut().find(is_match).unwrap()["type"] = "email.failed".into();
    at
}

/// Evidence about the first handoff, this many milliseconds after its first attempt.
fn add_evidence(email: &mut Value, source: &str, says: &str, after_ms: i64) {
    let began = email["handoffs"][0]["attempts"][0]["at"].as_str().and_then(Time::parse).unwrap();
    let fact = json!({"at": began.plus(after_ms).to_string(), "handoff": 0, "attempt": null, "source": source,
        "says": says, "detail": ""});
    email["evidence"].as_array_mut().unwrap().push(fact);
}

/// The policy resends the undisturbed email this many milliseconds after its outcome became unknown.
fn resend_by_policy(record: &mut RoundRecord, after_ms: i64, forge: impl FnOnce(&mut Value)) {
    let at = delivered_email(record);
    let id = id(&emails(record)[at]);
    record.sink_lines.iter_mut().filter(|line| line.email == id).for_each(|line| line.ambiguous = true);
    let email = &mut emails(record)[at];
    email["on_unknown"] = "resend".into();
    email["handoffs"][0]["may_duplicate"] = true.into();
    email["handoffs"][0]["attempts"][0]["outcome"] = "unknown".into();
    forge(email);
    add_evidence(email, "policy", "again", after_ms);
}

const FORGERIES: [Forgery; 20] = [
    ("P1", |record| {
        let at = delivered_email(record);
        let mut twin = emails(record)[at].clone();
        twin["id"] = "00000000-0000-7000-8000-000000000001".into();
        emails(record).push(twin);
    }),
    ("P1", |record| {
        let call =
            record.calls.iter().find(|call| matches!(call.end, CallOutcome::Ok { first: true, .. })).unwrap().clone();
        record.calls.push(call);
    }),
    ("P2", |record| {
        let at = delivered_email(record);
        emails(record).remove(at);
    }),
    ("P3", |record| {
        let at = delivered_email(record);
        let id = id(&emails(record)[at]);
        let line = record.sink_lines.iter().find(|line| line.email == id).unwrap().clone();
        record.sink_lines.push(line);
    }),
    ("P4", |record| {
        let at = delivered_email(record);
        let fact = json!({"at": "2026-11-15T04:00:00Z", "handoff": 0, "attempt": null, "source": "policy",
            "says": "again", "detail": ""});
        let email = &mut emails(record)[at];
        email["on_unknown"] = "hold".into();
        email["evidence"] = json!([fact]);
    }),
    ("P5", |record| {
        let at = delivered_email(record);
        let id = id(&emails(record)[at]);
        let email = &mut emails(record)[at];
        email["handoffs"][0]["state"] = "unknown".into();
        email["state"] = "unknown".into();
        record.sink_lines.iter_mut().filter(|line| line.email == id).for_each(|line| line.ambiguous = true);
    }),
    ("P6", |record| {
        let at = delivered_email(record);
        let id = id(&emails(record)[at]);
        emails(record)[at]["handoffs"][0]["state"] = "sent".into();
        record.sink_lines.retain(|line| line.email != id);
    }),
    ("P7", |record| {
        let at = delivered_email(record);
        emails(record)[at]["handoffs"][0]["state"] = "failed".into();
    }),
    ("P8", |record| {
        let at = delivered_email(record);
        let attempts = emails(record)[at]["handoffs"][0]["attempts"].as_array_mut().unwrap();
        attempts[0]["outcome"] = "unknown".into();
    }),
    ("P9", |record| {
        let at = delivered_email(record);
        let id = id(&emails(record)[at]);
        let mut line = record.sink_lines.iter().find(|line| line.email == id).unwrap().clone();
        (line.taken, line.body) = (false, "00".into());
        record.sink_lines.push(line);
    }),
    ("P13", |record| {
        let at = delivered_email(record);
        emails(record)[at]["handoffs"][0]["state"] = "queued".into();
    }),
    ("P15", |record| {
        let at = delivered_email(record);
        emails(record)[at]["text"] = "Something that nobody asked for.".into();
    }),
    ("P16", |record| {
        let at = delivered_email(record);
        let email = emails(record).remove(at);
        record.api["b"]["emails"].as_array_mut().unwrap().push(email);
    }),
    // A cancel that was refused although nothing was sent.
    ("P1", |record| {
        let at = rewrite_as_refused(record);
        let id = id(&emails(record)[at]);
        let calm =
            record.injected_faults.iter().map(|fault| fault.until_us).chain(record.calls.iter().map(|call| call.at));
        let at = calm.max().unwrap_or_default() + 60_000_000;
        let mut call =
            CallRecord { about: Some(id), ended: Some(at + 1_000), ..CallRecord::new(at, "a", CallKind::Cancel) };
        (call.may_fail, call.end) =
            (vec!["too_late".into()], CallOutcome::Fail { status: 409, code: "too_late".into() });
        record.calls.push(call);
    }),
    // A resend by policy that was too early.
    ("P4", |record| resend_by_policy(record, 60_000, |_| {})),
    // A resend by policy of an email that a provider had reported.
    ("P4", |record| {
        resend_by_policy(record, 700_000, |email| add_evidence(email, "provider_event", "delayed", 1_000));
    }),
    // Evidence that changed nothing.
    ("P5", |record| {
        let at = delivered_email(record);
        emails(record)[at]["handoffs"][0]["state"] = "sent".into();
        add_evidence(&mut emails(record)[at], "provider_event", "bounced", 1_000);
    }),
    // A failure although its arrival is recorded.
    ("P7", |record| {
        let at = rewrite_as_refused(record);
        add_evidence(&mut emails(record)[at], "provider_event", "delayed", 1_000);
    }),
    // An unknown outcome although a delay is recorded.
    ("P8", |record| {
        let at = delivered_email(record);
        let id = id(&emails(record)[at]);
        record.sink_lines.iter_mut().filter(|line| line.email == id).for_each(|line| line.ambiguous = true);
        let email = &mut emails(record)[at];
        (email["state"], email["handoffs"][0]["state"]) = ("unknown".into(), "unknown".into());
        add_evidence(email, "provider_event", "delayed", 1_000);
        let is_match = |event: &&mut Value| event["type"] == "email.sent" && event["about"]["id"] == id.as_str();
        rows(record, "events").iter_mut().find(is_match).unwrap()["type"] = "email.unknown".into();
    }),
    ("P13", |record| {
        let is_match = |call: &&mut mailonce_sim::proof::history::CallRecord| {
            matches!(call.verb, CallKind::Send | CallKind::Batch)
        };
        let key = record.calls.iter_mut().find(is_match).unwrap().key.clone();
        record.calls.iter_mut().filter(|call| call.key == key).for_each(|call| call.end = CallOutcome::Info);
    }),
];

/// Two webhooks of one subject, each the only one of its event, in order of arrival.
fn two_ordered_webhooks(record: &RoundRecord) -> Option<(usize, usize)> {
    let (received, owed) = (&record.notices, record.api["a"]["owed"].as_u64().unwrap());
    let once = |n: &usize| {
        received.iter().filter(|line| line.event == received[*n].event).count() == 1 && received[*n].seq <= owed
    };
    let next = |n: usize| (n + 1..received.len()).filter(once).find(|m| received[*m].about == received[n].about);
    (0..received.len()).filter(once).find_map(|n| Some((n, next(n)?)))
}

/// Forgeries of received webhooks. Each breaks P11.
const NOTICE_FORGERIES: [fn(&mut RoundRecord); 6] = [
    // An event never arrived.
    |record| {
        let (n, _) = two_ordered_webhooks(record).unwrap();
        record.notices.remove(n);
    },
    // An event arrived again under another id.
    |record| {
        let (n, _) = two_ordered_webhooks(record).unwrap();
        let again = record.notices[n].clone();
        record.notices.push(WebhookLogLine { id: "somebody else's".into(), ..again });
    },
    // Two events arrived under one id.
    |record| {
        let (n, m) = two_ordered_webhooks(record).unwrap();
        record.notices[m].id = record.notices[n].id.clone();
    },
    // Two events of one subject arrived in the wrong order.
    |record| {
        let (n, m) = two_ordered_webhooks(record).unwrap();
        record.notices.swap(n, m);
    },
    // A signature is invalid.
    |record| record.notices[0].signed = false,
    // An event that does not exist.
    |record| {
        let invented = WebhookLogLine {
            event: "invented".into(),
            id: "new".into(),
            about: "x".into(),
            seq: 1,
            ..record.notices[0].clone()
        };
        record.notices.push(invented);
    },
];

/// A row of the first team's inboxes.
fn rows<'a>(record: &'a mut RoundRecord, what: &str) -> &'a mut Vec<Value> {
    record.api["a"][what].as_array_mut().unwrap()
}

/// A copy under another id.
fn twin(row: &Value) -> Value {
    let mut twin = row.clone();
    twin["id"] = "00000000-0000-7000-8000-000000000001".into();
    twin
}

/// Forgeries of inboxes. Each breaks P12.
const MAIL_FORGERIES: [fn(&mut RoundRecord); 9] = [
    // An acknowledged mail is gone.
    |record| drop(rows(record, "messages").pop().unwrap()),
    // A mail is there twice.
    |record| {
        let again = twin(rows(record, "messages").last().unwrap());
        rows(record, "messages").push(again);
    },
    // A message that no sender delivered.
    |record| record.mail.retain(|operation| matches!(operation, InboundRecord::Consume(_))),
    // A repeat without a delivery.
    |record| rows(record, "deliveries").retain(|row| row["state"] != "duplicate"),
    // A delivery that was not parsed.
    |record| rows(record, "deliveries")[0]["state"] = "waiting".into(),
    // A code with two artifacts.
    |record| {
        let again = twin(rows(record, "artifacts").last().unwrap());
        rows(record, "artifacts").push(again);
    },
    // A second consumer.
    |record| {
        let taken = |operation: &InboundRecord| matches!(operation, InboundRecord::Consume(take) if take.team == "a" && take.consumed.is_some());
        let InboundRecord::Consume(mut take) = record.mail.iter().find(|operation| taken(operation)).unwrap().clone()
        else {
            return;
        };
        take.purpose = "somebody else".into();
        record.mail.push(InboundRecord::Consume(take));
    },
    // A consumer that is missing in the ledger.
    |record| {
        rows(record, "artifacts").iter_mut().for_each(|artifact| artifact["consumed_for"] = Value::Null);
    },
    // A repeated event.
    |record| {
        let event = rows(record, "events").iter().find(|event| event["type"] == "message.received").unwrap().clone();
        rows(record, "events").push(event);
    },
];

/// Writes a record for the second checker.
fn write_record(record: &RoundRecord, root: &Path) {
    record.write(root).unwrap();
    let lines = |rows: Vec<String>| rows.into_iter().map(|row| row + "\n").collect::<String>();
    let calls = record.calls.iter().map(|call| serde_json::to_string(call).unwrap()).collect();
    let sink_lines = record.sink_lines.iter().map(|line| serde_json::to_string(line).unwrap()).collect();
    let mail = record.mail.iter().map(|operation| serde_json::to_string(operation).unwrap()).collect();
    let notices = record.notices.iter().map(|line| serde_json::to_string(line).unwrap()).collect();
    std::fs::write(root.join("notices.jsonl"), lines(notices)).unwrap();
    std::fs::write(root.join("mail.jsonl"), lines(mail)).unwrap();
    std::fs::write(root.join("history.jsonl"), lines(calls)).unwrap();
    std::fs::write(root.join("sink.jsonl"), lines(sink_lines)).unwrap();
}

/// Both checkers detect a forgery of this invariant, and report the same invariants.
fn assert_detected(forged: &RoundRecord, class: HopClass, root: &Path, promise: &str, n: usize) {
    write_record(forged, root);
    let here = forged.check(class);
    let api = format!("--api={}", root.join("api.json").display());
    let SecondVerdict { broken: there, output: words, .. } =
        SecondVerdict::run(&second_checker(), root, &[api]).unwrap();
    let own = here.broken_invariants();
    assert!(own.contains(promise), "forgery {n} of {promise} was not noticed here: {own:?}");
    assert!(there.contains(promise), "forgery {n} of {promise} was not noticed there: {words}");
    assert_eq!(own, there, "forgery {n} of {promise}: {:?}\n{words}", here.violations);
}

#[test]
fn both_checkers_detect_every_forged_history() {
    let root = tempfile::Builder::new().prefix("mailonce-forged").tempdir().unwrap();
    let honest = run_clean_round(root.path(), CLASS, |record| {
        find_delivered_email(record).is_some() && two_ordered_webhooks(record).is_some()
    });
    for (n, (promise, tamper)) in FORGERIES.iter().enumerate() {
        let mut forged = honest.clone();
        tamper(&mut forged);
        assert_detected(&forged, CLASS, root.path(), promise, n);
    }
    for (n, tamper) in NOTICE_FORGERIES.iter().enumerate() {
        let mut forged = honest.clone();
        tamper(&mut forged);
        assert_detected(&forged, CLASS, root.path(), "P11", n);
    }
}

#[test]
fn both_checkers_detect_every_forged_inbox() {
    let root = tempfile::Builder::new().prefix("mailonce-forged").tempdir().unwrap();
    let honest = run_clean_round(root.path(), HopClass::Inbound, |record| {
        let taken = |operation: &InboundRecord| matches!(operation, InboundRecord::Consume(take) if take.team == "a" && take.consumed.is_some());
        record.mail.iter().any(taken) && rows(record, "deliveries").iter().any(|row| row["state"] == "duplicate")
    });
    for (n, tamper) in MAIL_FORGERIES.iter().enumerate() {
        let mut forged = honest.clone();
        tamper(&mut forged);
        assert_detected(&forged, HopClass::Inbound, root.path(), "P12", n);
    }
}

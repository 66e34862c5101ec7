//! `once` against a real server: one run, its result for everybody, and what is known after a crash.

use hyper::Method;
use mailonce_sdk::{AfterError, ClaimKey, Client, Error, OnUnknown, OnceRun, Retry};
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinHandle,
    time::sleep,
};

use crate::{run as unique, through};

const LONG: Duration = Duration::from_secs(30);

fn client() -> Client {
    Client::from_env().unwrap()
}

async fn claim_of(mo: &Client, key: &str) -> Value {
    let page = mo.request(Method::GET, format!("/v1/claims?key={key}"), None).await.unwrap();
    page["data"][0].clone()
}

/// A server with these answers in this order, a connection each. Returns a client of it, and the last part of the path and
/// the body of each call once all are answered.
async fn scripted(answers: Vec<(u16, Value)>) -> (Client, JoinHandle<Vec<(String, Value)>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let mut calls = Vec::new();
        for (status, answer) in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            calls.push(loop {
                assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0, "the call is cut off");
                let text = String::from_utf8_lossy(&request);
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let path = head.split(' ').nth(1).unwrap();
                if let Ok(body) = serde_json::from_str(body) {
                    break (path.rsplit('/').next().unwrap().to_owned(), body);
                }
            });
            let (answer, head) = (answer.to_string(), "content-type: application/json\r\nconnection: close");
            let length = answer.len();
            let answer = format!("HTTP/1.1 {status} X\r\n{head}\r\ncontent-length: {length}\r\n\r\n{answer}");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        calls
    });
    (Client::builder().base_url(url).api_key("k").build().unwrap(), serving)
}

#[tokio::test]
async fn a_caller_that_waits_across_a_boundary_keeps_its_period() {
    let busy = json!({
        "code": "busy", "status": 409, "detail": "d", "retry": "later", "retry_after": 1, "period": "2026-11-18",
    });
    let ended = json!({ "id": "c1", "state": "completed", "result": 7 });
    let (mo, serving) = scripted(vec![(409, busy), (200, ended)]).await;
    let intent = json!({ "type": "digest", "entity": "e", "period": { "every": "day" } });
    assert_eq!(mo.once(ClaimKey::intent(intent)).wait(LONG).run(never).await.unwrap(), 7);
    let periods: Vec<Value> = serving.await.unwrap().iter().map(|(_, body)| body["intent"]["period"].clone()).collect();
    assert_eq!(periods, [json!({ "every": "day" }), json!("2026-11-18")]);
}

#[tokio::test]
async fn what_the_server_cannot_read_or_store_does_not_keep_a_completion_from_it() {
    for (status, code) in [(400, "invalid_json"), (413, "too_large"), (422, "invalid_field")] {
        let won = json!({
            "id": "c1", "state": "begun", "token": "ct_1", "key": "k", "fence": 1, "downstream_key": "cl_1",
            "may_repeat": false,
        });
        let refused = json!({ "code": code, "status": status, "detail": "d", "retry": "never" });
        let (mo, serving) = scripted(vec![(201, won), (status, refused), (200, json!({}))]).await;
        assert_eq!(mo.once("k").run(async |_| Ok::<_, Error>(json!("big"))).await.unwrap(), "big");
        let complete = |body: Value| ("complete".to_owned(), body);
        let expected = [json!({ "token": "ct_1", "result": "big" }), json!({ "token": "ct_1" })].map(complete);
        assert_eq!(serving.await.unwrap()[1..], expected);
    }
}

/// A claim whose holder was lost, and which a person freed.
async fn freed(mo: &Client, key: &str) {
    mo.request(Method::POST, "/v1/claims", Some(&json!({ "key": key, "lease_s": 1 }))).await.unwrap();
    loop {
        let claim = claim_of(mo, key).await;
        if claim["state"] == "unknown" {
            let path = format!("/v1/claims/{}/resolve", claim["id"].as_str().unwrap());
            let retry = json!({ "as": "retry", "rev": claim["rev"] });
            mo.request(Method::POST, path, Some(&retry)).await.unwrap();
            return;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_run_that_may_be_a_repeat_is_looked_up_first() {
    let (mo, unique) = (client(), unique());
    let (missing, found) = (format!("rs-repeat-missing-{unique}"), format!("rs-repeat-found-{unique}"));
    tokio::join!(freed(&mo, &missing), freed(&mo, &found));
    let broken = mo.once(missing.clone()).verify(|_| async { Err::<Option<Value>, _>("billing is down") });
    assert_eq!(broken.run(never).await.unwrap_err().code, "unknown");
    let missing = mo.once(missing).verify(|_| async { Ok::<Option<Value>, Error>(None) });
    assert!(missing.run(async |run| Ok::<_, Error>(run.may_repeat)).await.unwrap());
    let look_up = mo.once(found.clone()).verify(|_| async { Ok::<_, Error>(Some(17)) });
    assert_eq!(look_up.run(never).await.unwrap(), 17);
    assert_eq!(mo.once(found).run(never).await.unwrap(), 17);
}

async fn never(_: OnceRun) -> Result<Value, Error> {
    panic!("it ran again")
}

/// An error of a caller.
#[derive(Debug)]
struct Failed(String);

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_concurrent_callers_run_the_function_once() {
    let (key, runs) = (format!("rs-crowd-{}", unique()), Arc::new(AtomicU32::new(0)));
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (key, runs) = (key.clone(), Arc::clone(&runs));
        callers.spawn(async move {
            let work = async |_: OnceRun| {
                sleep(Duration::from_millis(300)).await;
                Ok::<u32, Error>(runs.fetch_add(1, Ordering::Relaxed) + 1)
            };
            client().once(key).wait(LONG).run(work).await.unwrap()
        });
    }
    assert_eq!(callers.join_all().await, [1; 20]);
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_duplicate_gets_the_stored_result() {
    let (mo, key) = (client(), format!("rs-replay-{}", unique()));
    let first: Value = mo
        .once(key.clone())
        .run(async |run| {
            assert_eq!((run.key.as_str(), run.fence, run.may_repeat), (key.as_str(), 1, false));
            assert!(run.downstream_key.starts_with("cl_"));
            Ok::<_, Error>(json!({ "invoice": 17 }))
        })
        .await
        .unwrap();
    assert_eq!(mo.once(key.clone()).run(never).await.unwrap(), first);
    let other = mo.once(key).run(async |_| Ok::<u32, Error>(1)).await.unwrap_err();
    assert_eq!(other.code, "invalid_result");
}

#[tokio::test]
async fn while_another_caller_runs_it_busy_says_when_to_ask_again() {
    let (mo, key) = (client(), format!("rs-busy-{}", unique()));
    let work = async |_: OnceRun| {
        let busy = mo.once(key.clone()).run(never).await.unwrap_err();
        assert_eq!((busy.code.as_str(), busy.retry), ("busy", Retry::Later));
        assert!(busy.details["retry_after"].as_u64().unwrap() > 0);
        let waited = mo.once(key.clone()).wait(Duration::from_secs(1)).run(never);
        assert_eq!(tokio::time::timeout(Duration::from_secs(2), waited).await.unwrap().unwrap_err().code, "busy");
        Ok::<u32, Error>(1)
    };
    assert_eq!(mo.once(key.clone()).run(work).await.unwrap(), 1);
}

/// Not a test: what the next one runs in a process of its own, and kills.
#[tokio::test]
#[ignore = "is run and killed by another test"]
async fn killed_inside_its_function() {
    let work = async |run: OnceRun| {
        println!("\nbegun {}", run.downstream_key);
        sleep(Duration::from_mins(1)).await;
        Ok::<(), Error>(())
    };
    client().once(crate::env("ONCE_KEY")).lease_s(1).run(work).await.unwrap();
}

#[tokio::test]
async fn a_killed_process_leaves_the_claim_unknown_and_verify_settles_it() {
    let (mo, key) = (client(), format!("rs-killed-{}", unique()));
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "once::killed_inside_its_function", "--ignored", "--nocapture"])
        .env("ONCE_KEY", &key)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let passed = lines.find_map(|line| line.unwrap().strip_prefix("begun ").map(str::to_owned)).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let error = mo.once(key.clone()).wait(LONG).run(never).await.unwrap_err();
    assert_eq!(error.code, "unknown");
    assert!(error.next.contains("mailonce claims resolve"), "{}", error.next);
    let expected = passed.clone();
    let missing = mo.once(key.clone()).verify(move |claim| {
        assert_eq!(claim.downstream_key.as_deref(), Some(expected.as_str()));
        async { Ok::<Option<Value>, Error>(None) }
    });
    assert_eq!(missing.run(never).await.unwrap_err().code, "unknown");
    let broken = mo.once(key.clone()).verify(|_| async { Err::<Option<Value>, _>("billing is down") });
    let error = broken.run(never).await.unwrap_err();
    assert_eq!(error.code, "unknown");
    assert!(error.detail.contains("billing is down"));
    let claim = claim_of(&mo, &key).await;
    assert_eq!((&claim["state"], claim["evidence"].as_array().unwrap().len()), (&json!("unknown"), 1));
    let found = mo.once(key.clone()).verify(|_| async { Ok::<_, Error>(Some(json!({ "invoice": 17 }))) });
    assert_eq!(found.run(never).await.unwrap(), json!({ "invoice": 17 }));
    assert_eq!(mo.once(key).run(never).await.unwrap(), json!({ "invoice": 17 }));
}

#[tokio::test]
async fn the_lease_is_renewed_while_the_function_runs() {
    let (mo, key) = (client(), format!("rs-long-{}", unique()));
    let work = async |run: OnceRun| {
        sleep(Duration::from_millis(2600)).await;
        assert_eq!(mo.once(key.clone()).run(never).await.unwrap_err().code, "busy");
        Ok::<bool, Error>(run.is_lost())
    };
    assert!(!mo.once(key.clone()).lease_s(1).run(work).await.unwrap());
    let claim = claim_of(&mo, &key).await;
    assert_eq!((&claim["state"], &claim["corrected"]), (&json!("completed"), &json!(false)));
}

#[tokio::test]
async fn a_decision_about_the_claim_is_told_and_the_end_is_recorded_all_the_same() {
    let (mo, key) = (client(), format!("rs-decided-{}", unique()));
    let work = async |run: OnceRun| {
        let path = format!("/v1/claims/{}/evidence", run.id);
        mo.request(Method::POST, path, Some(&json!({ "says": "done" }))).await?;
        run.lost().await;
        Ok::<Value, Error>(json!(7))
    };
    assert_eq!(mo.once(key.clone()).lease_s(1).run(work).await.unwrap(), 7);
    assert_eq!(mo.once(key).run(never).await.unwrap(), 7);
}

#[tokio::test]
async fn a_repeated_run_does_not_repeat_its_finished_steps() {
    let (mo, key, ran) = (client(), format!("rs-steps-{}", unique()), AtomicU32::new(0));
    let work = async |run: OnceRun| {
        let customer: u32 =
            run.step("customer").run(async |_| Ok::<_, Failed>(ran.fetch_add(1, Ordering::Relaxed))).await?;
        let invoice = run.step("invoice").run_or(
            async |_| match ran.fetch_add(1, Ordering::Relaxed) {
                1 => Err(Failed("not yet".into())),
                number => Ok(number),
            },
            |_, _| AfterError::Retry,
        );
        Ok((customer, invoice.await?))
    };
    let failed: Result<(u32, u32), Failed> = mo.once(key.clone()).run_or(work, |_, _| AfterError::Retry).await;
    assert_eq!(failed.unwrap_err().0, "not yet");
    assert_eq!(mo.once(key).run(work).await.unwrap(), (0, 2));
    assert_eq!(mo.once(format!("rs-other-{}", unique())).run(work).await.unwrap(), (3, 4));
}

#[tokio::test]
async fn a_step_is_not_forgotten_by_the_short_ttl_of_its_run() {
    let won = json!({
        "id": "c1", "state": "begun", "token": "ct_1", "key": "k", "fence": 1, "downstream_key": "cl_1",
        "may_repeat": false,
    });
    let answers = vec![(201, won.clone()), (201, won), (200, json!({})), (200, json!({}))];
    let (mo, serving) = scripted(answers).await;
    let call = mo.once("k").ttl("notification").on_unknown(OnUnknown::Retry);
    let result = call.run(async |run| run.step("customer").run(async |_| Ok::<_, Error>(5)).await).await.unwrap();
    assert_eq!(result, 5);
    let calls = serving.await.unwrap();
    let asked: Vec<_> = calls.iter().filter(|(verb, _)| verb == "claims").map(|(_, body)| &body["ttl"]).collect();
    assert_eq!(asked, [&json!("notification"), &Value::Null]);
    assert_eq!(calls[1].1["on_unknown"], "retry");
}

#[tokio::test]
async fn an_error_is_final_unless_its_caller_says_that_nothing_happened() {
    let (mo, unique) = (client(), unique());
    let boom = async |_: OnceRun| Err::<Value, _>(Failed("card declined".into()));
    mo.once(format!("rs-failed-{unique}")).run(boom).await.unwrap_err();
    let error = mo.once(format!("rs-failed-{unique}")).run(never).await.unwrap_err();
    assert_eq!(error.code, "claim_failed");
    assert!(error.detail.contains("card declined") && error.next.contains("another key"));
    let free = mo.once(format!("rs-free-{unique}"));
    free.clone().run_or(boom, |_, _| AfterError::Retry).await.unwrap_err();
    assert_eq!(free.run(async |run| Ok::<_, Error>(run.fence)).await.unwrap(), 2);
    let lost = mo.once(format!("rs-lost-{unique}")).lease_s(1);
    let nobody = Client::builder().base_url("http://127.0.0.1:1").api_key("k").max_retries(0).build().unwrap();
    let call = async |_: OnceRun| nobody.request(Method::GET, "/v1/emails", None).await;
    assert_eq!(lost.clone().run(call).await.unwrap_err().code, "no_answer");
    assert_eq!(lost.wait(LONG).run(never).await.unwrap_err().code, "unknown");
}

#[tokio::test]
async fn a_claim_that_begins_later_is_free_again_until_then() {
    let (mo, key) = (client(), format!("rs-later-{}", unique()));
    let later = mo.once(key).begin_later();
    let prepare = async |_: OnceRun| Err::<Value, _>(Failed("prepare".into()));
    later.clone().run(prepare).await.unwrap_err();
    let work = async |run: OnceRun| {
        assert!(!run.is_begun());
        run.begin().await?;
        Err::<Value, _>(Failed("effect".into()))
    };
    assert_eq!(later.clone().run(work).await.unwrap_err().0, "effect");
    assert_eq!(later.run(never).await.unwrap_err().code, "claim_failed");
}

#[tokio::test]
async fn another_fingerprint_under_the_key_is_refused_and_periods_come_from_the_server() {
    let (mo, unique) = (client(), unique());
    let key = format!("rs-print-{unique}");
    mo.once(key.clone()).fingerprint("100 EUR").run(async |_| Ok::<_, Error>(json!(1))).await.unwrap();
    let error = mo.once(key).fingerprint("200 EUR").run(never).await.unwrap_err();
    assert_eq!((error.code.as_str(), error.status), ("key_mismatch", 422));
    let claim = json!({ "key": format!("rs-request-{unique}"), "lease_s": 1 });
    assert_eq!(mo.request(Method::POST, "/v1/claims", Some(&claim)).await.unwrap()["key"], claim["key"]);
    let intent = json!({ "type": "digest", "entity": unique, "period": { "every": "day" } });
    let period = mo.once(ClaimKey::intent(intent)).run(async |run| Ok::<_, Error>(run.period.clone())).await.unwrap();
    assert_eq!(period.unwrap().len(), "2026-11-18".len());
}

#[tokio::test]
async fn answers_are_lost_and_the_function_runs_once() {
    let plain = client();
    for fault in ["lose", "cut", "late503"] {
        let (key, runs) = (format!("rs-{fault}-{}", unique()), AtomicU32::new(0));
        let (mo, _) = through(&[fault, fault]).await;
        let work = async |_: OnceRun| Ok::<u32, Error>(runs.fetch_add(1, Ordering::Relaxed));
        mo.once(key.clone()).run(work).await.unwrap();
        let claim = claim_of(&plain, &key).await;
        assert_eq!((&claim["state"], &claim["fence"]), (&json!("completed"), &json!(1)), "{fault}");
        assert_eq!(runs.load(Ordering::Relaxed), 1);
    }
}

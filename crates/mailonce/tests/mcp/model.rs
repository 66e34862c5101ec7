//! A model that repeats itself, rewords, forgets results and calls tools twice, in many seeded conversations. The sink
//! shows what was really sent: one mail for each intent, one reply for each message, one use for each code.
//!
//! `MAILONCE_CONVERSATIONS` and `MAILONCE_SEED` set their number and seed. `MAILONCE_MUTANT` injects a defect into the
//! server, to check that this test fails: `handoff-doubled`, `answered-twice`, `consume-unchecked`.

use serde_json::{Value, json};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::task::JoinSet;

use crate::{fixtures::McpFixture, sink::SmtpMailSink};

/// The number of concurrent conversations.
const MAX_CONCURRENT: usize = 24;

/// Random choices, the same for the same seed.
struct SplitMixRng(u64);

impl SplitMixRng {
    /// SplitMix64.
    fn random_below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut n = self.0;
        n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (n ^ (n >> 31)) % sides
    }

    fn pick<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.random_below(all.len() as u64) as usize]
    }
}

/// How often a model called, repeated itself or was held.
#[derive(Default)]
struct MisbehaviorCounts {
    calls: AtomicU64,
    repeats: AtomicU64,
    held: AtomicU64,
}

/// One conversation of one model with one person.
struct ModelConversation<'a> {
    fixture: &'a McpFixture,
    counts: &'a MisbehaviorCounts,
    rng: SplitMixRng,
    number: u64,
}

impl ModelConversation<'_> {
    fn person_address(&self) -> String {
        format!("person-{}@people.test", self.number)
    }

    fn shop_address(&self) -> String {
        format!("no-reply-{}@shop.test", self.number)
    }

    fn code(&self) -> String {
        format!("{:06}", 100_000 + self.number * 37 % 900_000)
    }

    async fn call(&self, tool: &str, arguments: Value) -> Value {
        self.counts.calls.fetch_add(1, Ordering::Relaxed);
        self.fixture.call_tool(tool, arguments).await
    }

    /// Calls a tool as models do: repeatedly, twice at once, or with a disconnect before the response.
    async fn call_erratically(&mut self, tool: &str, again: impl Fn(&mut SplitMixRng) -> Value) -> Value {
        let arguments = again(&mut self.rng);
        let mut last = match self.rng.random_below(4) {
            0 => {
                let other = again(&mut self.rng);
                let (one, two) = tokio::join!(self.call(tool, arguments), self.call(tool, other));
                assert_eq!(one["email"], two["email"], "{one} {two}");
                two
            }
            1 => {
                self.fixture.call_and_disconnect(tool, &arguments).await;
                self.call(tool, arguments).await
            }
            _ => self.call(tool, arguments).await,
        };
        for _ in 0..self.rng.random_below(4) {
            self.counts.repeats.fetch_add(1, Ordering::Relaxed);
            let arguments = again(&mut self.rng);
            let next = self.call(tool, arguments).await;
            assert_eq!(next["email"], last["email"], "{next}");
            last = next;
        }
        last
    }

    async fn send_parcel_email(&mut self) {
        let (n, to) = (self.number, self.person_address());
        let mail = move |rng: &mut SplitMixRng| {
            let greeting = rng.pick(&["Hello", "Hi", "Dear customer", "Good morning"]);
            let text =
                rng.pick(&["your parcel is on its way.", "we have sent your parcel today.", "the parcel left us."]);
            json!({
                "to": to, "subject": rng.pick(&["Your parcel", "About your parcel"]), "text": format!("{greeting}, {text}"),
                "type": "parcel.sent", "entity": format!("parcel_{n}"),
            })
        };
        self.call_erratically("send_email", mail).await;
        if self.rng.random_below(3) == 0 {
            let intent = json!({ "type": "parcel.sent", "entity": format!("parcel_{n}"), "to": self.person_address() });
            assert!(self.call("get_outcome", intent).await["email"].is_string());
        }
        if self.rng.random_below(3) == 0 {
            self.send_renamed_duplicate().await;
        }
    }

    /// Sends the same mail with another entity and slightly different wording. It is held, and the model gives up.
    async fn send_renamed_duplicate(&mut self) {
        let (n, to) = (self.number, self.person_address());
        let text = |greeting: &str| {
            format!("{greeting} customer, invoice {n} over 70 euros was paid in full, thank you very much for it.")
        };
        let mail = |entity: String, greeting: &str| json!({ "to": to, "subject": "Your invoice", "text": text(greeting), "type": "invoice.paid", "entity": entity });
        assert_eq!(self.call("send_email", mail(format!("invoice_{n}"), "Dear")).await["dedupe"]["outcome"], "first");
        let renamed = mail(format!("INV-{n}"), "Hello");
        assert_eq!(self.call("send_email", renamed).await["status"], "looks_duplicate");
        self.counts.held.fetch_add(1, Ordering::Relaxed);
    }

    async fn answer_question(&mut self) {
        let person = self.person_address();
        self.fixture.receive_text(&person, "A question", "When does my parcel arrive?").await;
        let arrived = self.call("wait_for_message", json!({ "from": person, "timeout_s": 50 })).await;
        assert_eq!(arrived["status"], "arrived", "{arrived}");
        if self.rng.random_below(2) == 0 {
            self.call("read_message", json!({ "message": arrived["message"] })).await;
        }
        let mut message = arrived["message"].clone();
        if self.rng.random_below(8) == 0 {
            // The model forgot the message and searches for it.
            let found = self.call("find_messages", json!({ "from": person })).await;
            message = found["messages"][0]["message"].clone();
            assert_eq!(message, arrived["message"], "{found}");
        }
        if self.rng.random_below(8) == 0 {
            let again = self.call("wait_for_message", json!({ "from": person, "timeout_s": 50 })).await;
            assert_eq!(again["message"], message, "{again}");
        }
        let answer = move |rng: &mut SplitMixRng| {
            let text =
                rng.pick(&["Tomorrow.", "It arrives tomorrow.", "Tomorrow, around noon.", "We expect it tomorrow."]);
            json!({ "message": message, "text": text })
        };
        self.call_erratically("reply_email", answer).await;
    }

    async fn take_code(&mut self) {
        let (shop, code) = (self.shop_address(), self.code());
        let text = format!("Your verification code is {code}. It expires in 10 minutes.");
        self.fixture.receive_text(&shop, "Your code", &text).await;
        let wait = json!({ "from": shop, "has": "code", "timeout_s": 50 });
        let arrived = self.call("wait_for_message", wait).await;
        for _ in 0..=self.rng.random_below(4) {
            // Two workflows at a time, which are sometimes the same one.
            let purposes =
                [self.rng.random_below(3), self.rng.random_below(3)].map(|run| format!("run-{}-{run}", self.number));
            let requests = [&purposes[0], &purposes[1]].map(|purpose| {
                if self.rng.random_below(2) == 0 {
                    json!({ "type": "code", "for": purpose, "message": arrived["message"] })
                } else {
                    json!({ "type": "code", "for": purpose, "from": shop, "timeout_s": 0 })
                }
            });
            let [first, second] = requests;
            let (one, two) = tokio::join!(self.call("take_artifact", first), self.call("take_artifact", second));
            for (purpose, taken) in purposes.iter().zip([one, two]) {
                self.use_code(purpose, &taken, &code).await;
            }
        }
    }

    /// The workflow that got the code uses it by sending a mail that the sink counts.
    async fn use_code(&self, purpose: &str, taken: &Value, code: &str) {
        if taken["status"] == "taken" {
            assert_eq!(taken["value"], json!(code));
            let text = format!("The code is {code}, says {purpose}.");
            let mail = json!({
                "to": format!("desk-{}@shop.test", self.number), "subject": "The code", "text": text, "type": "code.use",
                "entity": purpose, "period": "once",
            });
            self.call("send_email", mail).await;
        } else {
            // A code that is named by its message and was taken is no longer waited for.
            assert!(taken["status"] == "none" || taken["status"] == "already_consumed", "{taken}");
            assert!(!taken.to_string().contains(code), "{taken}");
        }
    }

    async fn run(&mut self) {
        let first = self.rng.random_below(3);
        for step in 0..3 {
            match (first + step) % 3 {
                0 => self.send_parcel_email().await,
                1 => self.answer_question().await,
                _ => self.take_code().await,
            }
        }
    }
}

/// Starts a server with the injected defect, if one is set.
async fn start_fixture() -> McpFixture {
    let mutant = std::env::var("MAILONCE_MUTANT").unwrap_or_default();
    McpFixture::with_sink(SmtpMailSink::start().await, &[("MAILONCE_MUTANT", mutant.as_str())]).await
}

fn env_number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_misbehaving_model_sends_replies_and_consumes_once() {
    let (count, seed) = (env_number("MAILONCE_CONVERSATIONS", 1_000), env_number("MAILONCE_SEED", 7));
    let (fixture, counters) = (Arc::new(start_fixture().await), Arc::new(MisbehaviorCounts::default()));
    let started = std::time::Instant::now();
    let mut conversations = JoinSet::new();
    for n in 0..count {
        while conversations.len() >= MAX_CONCURRENT {
            conversations.join_next().await.unwrap().unwrap();
        }
        let (fixture, counters) = (Arc::clone(&fixture), Arc::clone(&counters));
        let rng = SplitMixRng(seed.wrapping_mul(1_000_003).wrapping_add(n));
        conversations.spawn(async move {
            ModelConversation { fixture: &fixture, counts: &counters, rng, number: n }.run().await
        });
    }
    while let Some(ended) = conversations.join_next().await {
        ended.unwrap();
    }
    let held = counters.held.load(Ordering::Relaxed);
    let expected = 3 * count + held;
    for _ in 0..600 {
        if fixture.sink.all().len() as u64 >= expected {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    // Counts mails by recipient and kind: parcel, invoice, answer, or use of a code.
    let mut counts: HashMap<(String, &str), u64> = HashMap::new();
    for mail in fixture.sink.all() {
        let kind = match mail.header("In-Reply-To") {
            Some(_) => "answer",
            None if mail.raw.contains("nvoice") => "invoice",
            None if mail.raw.contains("The code is") => "code",
            None => "parcel",
        };
        *counts.entry((mail.to, kind)).or_default() += 1;
    }
    let twice: Vec<_> = counts.iter().filter(|(_, count)| **count != 1).collect();
    assert!(twice.is_empty(), "seed {seed}: {twice:?}");
    let of = |kind: &str| counts.keys().filter(|(_, other)| *other == kind).count() as u64;
    assert_eq!([of("parcel"), of("answer"), of("code"), of("invoice")], [count, count, count, held], "seed {seed}");
    let (calls, repeats) = (counters.calls.load(Ordering::Relaxed), counters.repeats.load(Ordering::Relaxed));
    println!(
        "{count} conversations, {calls} calls, {repeats} repeats, {held} renamed retries held, {:?}",
        started.elapsed()
    );
}

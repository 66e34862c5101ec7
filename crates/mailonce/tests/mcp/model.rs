//! A model that repeats itself, words things anew, forgets what it was told and calls tools twice, through many seeded
//! conversations. The sink says what really happened: one mail for each intent, one answer for each message, one use
//! for each code.
//!
//! `MAILONCE_CONVERSATIONS` and `MAILONCE_SEED` play more of them, or others. `MAILONCE_MUTANT` makes the server take a wrong turn,
//! to see that somebody notices: `handoff-doubled`, `answered-twice`, `consume-unchecked`.

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

use crate::{sink::Sink, town::Town};

/// Conversations at a time.
const AT_ONCE: usize = 24;

/// The same choices for the same seed.
struct Dice(u64);

impl Dice {
    /// SplitMix64.
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut n = self.0;
        n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (n ^ (n >> 31)) % sides
    }

    fn pick<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.roll(all.len() as u64) as usize]
    }
}

/// How often a model did what it should not.
#[derive(Default)]
struct Misdeeds {
    calls: AtomicU64,
    repeats: AtomicU64,
    held: AtomicU64,
}

/// One conversation of one model with one person.
struct Talk<'a> {
    town: &'a Town,
    misdeeds: &'a Misdeeds,
    dice: Dice,
    n: u64,
}

impl Talk<'_> {
    fn person(&self) -> String {
        format!("person-{}@people.test", self.n)
    }

    fn shop(&self) -> String {
        format!("no-reply-{}@shop.test", self.n)
    }

    fn code(&self) -> String {
        format!("{:06}", 100_000 + self.n * 37 % 900_000)
    }

    async fn call(&self, tool: &str, arguments: Value) -> Value {
        self.misdeeds.calls.fetch_add(1, Ordering::Relaxed);
        self.town.call(tool, arguments).await
    }

    /// Calls a tool, and does what models do: again, twice at once, broken off, or never minding the answer.
    async fn badly(&mut self, tool: &str, again: impl Fn(&mut Dice) -> Value) -> Value {
        let arguments = again(&mut self.dice);
        let mut last = match self.dice.roll(4) {
            0 => {
                let other = again(&mut self.dice);
                let (one, two) = tokio::join!(self.call(tool, arguments), self.call(tool, other));
                assert_eq!(one["email"], two["email"], "{one} {two}");
                two
            }
            1 => {
                self.town.break_off(tool, &arguments).await;
                self.call(tool, arguments).await
            }
            _ => self.call(tool, arguments).await,
        };
        for _ in 0..self.dice.roll(4) {
            self.misdeeds.repeats.fetch_add(1, Ordering::Relaxed);
            let arguments = again(&mut self.dice);
            let next = self.call(tool, arguments).await;
            assert_eq!(next["email"], last["email"], "{next}");
            last = next;
        }
        last
    }

    async fn sends(&mut self) {
        let (n, to) = (self.n, self.person());
        let mail = move |dice: &mut Dice| {
            let greeting = dice.pick(&["Hello", "Hi", "Dear customer", "Good morning"]);
            let text =
                dice.pick(&["your parcel is on its way.", "we have sent your parcel today.", "the parcel left us."]);
            json!({
                "to": to, "subject": dice.pick(&["Your parcel", "About your parcel"]), "text": format!("{greeting}, {text}"),
                "type": "parcel.sent", "entity": format!("parcel_{n}"),
            })
        };
        self.badly("send_email", mail).await;
        if self.dice.roll(3) == 0 {
            let named = json!({ "type": "parcel.sent", "entity": format!("parcel_{n}"), "to": self.person() });
            assert!(self.call("get_outcome", named).await["email"].is_string());
        }
        if self.dice.roll(3) == 0 {
            self.renames().await;
        }
    }

    /// The model calls the same matter by another name and words it a little otherwise: held, and it leaves it there.
    async fn renames(&mut self) {
        let (n, to) = (self.n, self.person());
        let words = |greeting: &str| {
            format!("{greeting} customer, invoice {n} over 70 euros was paid in full, thank you very much for it.")
        };
        let mail = |entity: String, greeting: &str| json!({ "to": to, "subject": "Your invoice", "text": words(greeting), "type": "invoice.paid", "entity": entity });
        assert_eq!(self.call("send_email", mail(format!("invoice_{n}"), "Dear")).await["dedupe"]["outcome"], "first");
        let renamed = mail(format!("INV-{n}"), "Hello");
        assert_eq!(self.call("send_email", renamed).await["status"], "looks_duplicate");
        self.misdeeds.held.fetch_add(1, Ordering::Relaxed);
    }

    async fn answers(&mut self) {
        let person = self.person();
        self.town.writes(&person, "A question", "When does my parcel arrive?").await;
        let arrived = self.call("wait_for_message", json!({ "from": person, "timeout_s": 50 })).await;
        assert_eq!(arrived["status"], "arrived", "{arrived}");
        if self.dice.roll(2) == 0 {
            self.call("read_message", json!({ "message": arrived["message"] })).await;
        }
        let mut message = arrived["message"].clone();
        if self.dice.roll(8) == 0 {
            // It forgot what came, and looks for it.
            let found = self.call("find_messages", json!({ "from": person })).await;
            message = found["messages"][0]["message"].clone();
            assert_eq!(message, arrived["message"], "{found}");
        }
        if self.dice.roll(8) == 0 {
            let again = self.call("wait_for_message", json!({ "from": person, "timeout_s": 50 })).await;
            assert_eq!(again["message"], message, "{again}");
        }
        let answer = move |dice: &mut Dice| {
            let text =
                dice.pick(&["Tomorrow.", "It arrives tomorrow.", "Tomorrow, around noon.", "We expect it tomorrow."]);
            json!({ "message": message, "text": text })
        };
        self.badly("reply_email", answer).await;
    }

    async fn takes(&mut self) {
        let (shop, code) = (self.shop(), self.code());
        let text = format!("Your verification code is {code}. It expires in 10 minutes.");
        self.town.writes(&shop, "Your code", &text).await;
        let wait = json!({ "from": shop, "has": "code", "timeout_s": 50 });
        let arrived = self.call("wait_for_message", wait).await;
        for _ in 0..=self.dice.roll(4) {
            // Two workflows at a time, and now and then they are the same one.
            let purposes = [self.dice.roll(3), self.dice.roll(3)].map(|run| format!("run-{}-{run}", self.n));
            let takes = [&purposes[0], &purposes[1]].map(|purpose| {
                if self.dice.roll(2) == 0 {
                    json!({ "type": "code", "for": purpose, "message": arrived["message"] })
                } else {
                    json!({ "type": "code", "for": purpose, "from": shop })
                }
            });
            let [first, second] = takes;
            let (one, two) = tokio::join!(self.call("take_artifact", first), self.call("take_artifact", second));
            for (purpose, told) in purposes.iter().zip([one, two]) {
                self.uses(purpose, &told, &code).await;
            }
        }
    }

    /// Whoever was given the code uses it: a mail that the sink counts.
    async fn uses(&self, purpose: &str, told: &Value, code: &str) {
        if told["status"] == "taken" {
            assert_eq!(told["value"], json!(code));
            let text = format!("The code is {code}, says {purpose}.");
            let mail = json!({
                "to": format!("desk-{}@shop.test", self.n), "subject": "The code", "text": text, "type": "code.use",
                "entity": purpose, "period": "once",
            });
            self.call("send_email", mail).await;
        } else {
            assert_eq!(told["status"], "already_consumed");
            assert!(!told.to_string().contains(code), "{told}");
        }
    }

    async fn plays(&mut self) {
        let first = self.dice.roll(3);
        for step in 0..3 {
            match (first + step) % 3 {
                0 => self.sends().await,
                1 => self.answers().await,
                _ => self.takes().await,
            }
        }
    }
}

/// A server, with the wrong turn that the rig wants.
async fn town() -> Town {
    let mutant = std::env::var("MAILONCE_MUTANT").unwrap_or_default();
    Town::over(Sink::open().await, &[("MAILONCE_MUTANT", mutant.as_str())]).await
}

fn told(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_misbehaves_sends_answers_and_takes_once() {
    let (count, seed) = (told("MAILONCE_CONVERSATIONS", 1_000), told("MAILONCE_SEED", 7));
    let (town, misdeeds) = (Arc::new(town().await), Arc::new(Misdeeds::default()));
    let begun = std::time::Instant::now();
    let mut talks = JoinSet::new();
    for n in 0..count {
        while talks.len() >= AT_ONCE {
            talks.join_next().await.unwrap().unwrap();
        }
        let (town, misdeeds) = (Arc::clone(&town), Arc::clone(&misdeeds));
        let dice = Dice(seed.wrapping_mul(1_000_003).wrapping_add(n));
        talks.spawn(async move { Talk { town: &town, misdeeds: &misdeeds, dice, n }.plays().await });
    }
    while let Some(ended) = talks.join_next().await {
        ended.unwrap();
    }
    let held = misdeeds.held.load(Ordering::Relaxed);
    let expected = 3 * count + held;
    for _ in 0..600 {
        if town.sink.all().len() as u64 >= expected {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    // Mails by recipient and by what they are: a parcel, an invoice, an answer, or a code in use.
    let mut counts: HashMap<(String, &str), u64> = HashMap::new();
    for mail in town.sink.all() {
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
    let (calls, repeats) = (misdeeds.calls.load(Ordering::Relaxed), misdeeds.repeats.load(Ordering::Relaxed));
    println!(
        "{count} conversations, {calls} calls, {repeats} repeats, {held} renamed retries held, {:?}",
        begun.elapsed()
    );
}

//! The emails of a large ledger: many senders and recipients, and texts whose words are as uneven as those of a language.

use mailonce_sim::harness::server::API_KEY;
use mailonce_sim::load::{LoadResponse, RequestGenerator};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

/// A word that the last email alone contains.
pub(crate) const MARKER: &str = "lastofall";
/// Words that are in a known share of the emails, with the names of their rows. Every email has `common`, every second
/// `half`, every hundredth `seldom`, every ten-thousandth `rare`; `early` is in the oldest tenth only.
pub(crate) const MARKED_WORDS: [(&str, &str); 4] =
    [("frequent", "common"), ("seldom", "seldom"), ("rare", "rare"), ("old", "early")];

/// Emails of one batch: the most that the API takes.
const BATCH_SIZE: u64 = 1000;
/// The first email of every tenth batch is scheduled, so that it can be cancelled.
const SCHEDULED_BATCHES: u64 = 10;
const SENDERS: u64 = 40;
const RECIPIENTS: u64 = 50_000;
const VOCABULARY: f64 = 20_000.0;
const WORDS_PER_EMAIL: usize = 80;

/// Fills the ledger in batches, and remembers the ids of the first emails of the batches.
pub(crate) struct LargeLedger {
    emails: u64,
    first_ids: Mutex<BTreeMap<u64, String>>,
}

impl LargeLedger {
    /// A ledger with so many emails, or a few more when they do not fill the last batch.
    pub(crate) fn new(emails: u64) -> Self {
        Self { emails: emails.div_ceil(BATCH_SIZE).max(1) * BATCH_SIZE, first_ids: Mutex::default() }
    }

    pub(crate) fn emails(&self) -> u64 {
        self.emails
    }

    pub(crate) fn batches(&self) -> u64 {
        self.emails / BATCH_SIZE
    }

    /// The id of an email in the middle of the list.
    pub(crate) fn middle_id(&self) -> String {
        let ids = self.first_ids.lock().unwrap_or_else(PoisonError::into_inner);
        ids.range(self.batches() / 2..).next().map(|(_, id)| id.clone()).unwrap_or_default()
    }

    /// The ids of the emails that were scheduled.
    pub(crate) fn scheduled_ids(&self) -> Vec<String> {
        let ids = self.first_ids.lock().unwrap_or_else(PoisonError::into_inner);
        ids.iter().filter(|(batch, _)| is_scheduled(**batch)).map(|(_, id)| id.clone()).collect()
    }

    fn email(&self, n: u64) -> Value {
        let mut email = json!({
            "from": format!("agent-{}@example.com", n % SENDERS),
            "to": user_address(n),
            "subject": format!("{} {} {n}", search_word(n), search_word(n + 1)),
            "text": text(n, self.emails),
        });
        if n.is_multiple_of(BATCH_SIZE) && is_scheduled(n / BATCH_SIZE) {
            email["scheduled_at"] = json!("in 1 day");
        }
        email
    }
}

impl RequestGenerator for LargeLedger {
    fn write_request(&self, n: u64, out: &mut Vec<u8>) {
        let first = n * BATCH_SIZE;
        let body = (first..first + BATCH_SIZE).map(|n| self.email(n)).collect::<Value>().to_string();
        // Writing to a `Vec` cannot fail.
        let _infallible = write!(
            out,
            "POST /v1/emails/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Authorization: Bearer {API_KEY}\r\nIdempotency-Key: fill-{n}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
    }

    fn on_response(&self, n: u64, answer: &LoadResponse<'_>) {
        let body: Value = serde_json::from_slice(answer.body).unwrap_or_default();
        if let Some(id) = body["data"][0]["id"].as_str() {
            self.first_ids.lock().unwrap_or_else(PoisonError::into_inner).insert(n, id.to_owned());
        }
    }
}

fn is_scheduled(batch: u64) -> bool {
    batch.is_multiple_of(SCHEDULED_BATCHES)
}

/// One of the recipients. Neighbours in the list have different ones.
pub(crate) fn user_address(n: u64) -> String {
    format!("user-{}@example.org", n.wrapping_mul(7919) % RECIPIENTS)
}

/// A word of the vocabulary, as frequent as the words of the texts.
pub(crate) fn search_word(n: u64) -> String {
    word(&mut (n + 1))
}

fn word(state: &mut u64) -> String {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    // Squaring makes low numbers frequent, as in a language.
    let share = (*state >> 33) as f64 / f64::from(1_u32 << 31);
    format!("w{}", (share * share * VOCABULARY) as u32)
}

/// The text of an email: the marked words, and a few hundred bytes of others.
fn text(n: u64, total: u64) -> String {
    let mut words = vec!["common".to_owned()];
    let marked = [(2, "half"), (100, "seldom"), (10_000, "rare")];
    words.extend(marked.iter().filter(|(every, _)| n.is_multiple_of(*every)).map(|(_, word)| (*word).to_owned()));
    words.extend((n < total / 10).then(|| "early".to_owned()));
    let mut state = n + 1;
    words.extend((0..WORDS_PER_EMAIL).map(|_| word(&mut state)));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::{LargeLedger, text, user_address};
    use mailonce_sim::load::{LoadResponse, RequestGenerator as _};
    use std::collections::BTreeSet;

    #[test]
    fn a_batch_is_json_of_a_thousand_different_emails() {
        let ledger = LargeLedger::new(20_000);
        let mut request = Vec::new();
        ledger.write_request(10, &mut request);
        let request = String::from_utf8(request).unwrap();
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("Content-Length: {}", body.len())));
        let emails: Vec<serde_json::Value> = serde_json::from_str(body).unwrap();
        let people: BTreeSet<&str> = emails.iter().map(|email| email["to"].as_str().unwrap()).collect();
        assert_eq!((emails.len(), people.len()), (1000, 1000));
        assert_eq!(emails.iter().filter(|email| email.get("scheduled_at").is_some()).count(), 1);
    }

    #[test]
    fn the_ids_of_first_emails_are_remembered() {
        let ledger = LargeLedger::new(20_000);
        for batch in 0..ledger.batches() {
            let body = format!(r#"{{"data":[{{"id":"id-{batch}"}},{{"id":"other"}}]}}"#);
            ledger.on_response(batch, &LoadResponse { status: 202, body: body.as_bytes() });
        }
        assert_eq!((ledger.middle_id(), ledger.scheduled_ids()), ("id-10".into(), vec!["id-0".into(), "id-10".into()]));
    }

    #[test]
    fn words_have_their_share_of_the_emails() {
        let count = |word: &str| (0..20_000).filter(|n| text(*n, 20_000).split(' ').any(|other| other == word)).count();
        assert_eq!((count("half"), count("seldom"), count("rare"), count("early")), (10_000, 200, 2, 2000));
        assert!(text(0, 10).len() > 300);
        assert_ne!(user_address(1), user_address(2));
    }
}

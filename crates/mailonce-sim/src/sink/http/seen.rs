//! How an oracle sees requests: whom they are for, what it does with them, and what it writes down.

use super::{
    super::oracle::{
        callback::Where,
        journal::Line,
        mood::{LATE, Whim},
        receiver::NoticeLine,
    },
    Act, Got, Said, Shared, Trouble, Vendor, hash,
    keyed::bare_one,
};
use serde_json::{Value, json};

/// What a request is about, in the dialects that an oracle speaks.
struct About {
    email: String,
    to: Vec<String>,
    message_id: String,
}

impl About {
    fn read(vendor: Vendor, got: &Got) -> Self {
        let body: Value = serde_json::from_slice(&got.body).unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (email, to) = match vendor {
            Vendor::Resend => {
                let tags = body["tags"].as_array().into_iter().flatten();
                (tags.filter(|tag| tag["name"] == "mailonce").map(|tag| text(&tag["value"])).collect(), &body["to"])
            }
            Vendor::Postmark => (text(&body["Metadata"]["mailonce"]), &body["To"]),
            _ => (text(&body["id"]), &body["to"]),
        };
        let to: Vec<String> = match to {
            Value::Array(all) => all.iter().filter_map(Value::as_str).map(bare_one).collect(),
            one => one.as_str().unwrap_or_default().split(',').map(bare_one).collect(),
        };
        let headers = body["Headers"].as_array().into_iter().flatten();
        let message_id = headers.filter(|header| header["Name"] == "Message-ID").map(|header| text(&header["Value"]));
        Self { email, to, message_id: message_id.collect() }
    }
}

/// What the oracle, if there is one, does with a request.
pub(super) fn whim(shared: &Shared, vendor: Vendor, got: &Got) -> Whim {
    let first = |oracle: &super::Oracle| About::read(vendor, got).to.first().map(|to| oracle.mood.next(to));
    shared.oracle.as_deref().and_then(first).unwrap_or(Whim::Honest)
}

/// A whim in the words of the script.
pub(super) fn act(whim: Whim) -> Act {
    match whim {
        Whim::Honest => Act::Honest,
        Whim::TakeThenDrop => Act::TakeThenDrop,
        Whim::TakeThenBreak => Act::TakeThenBreak,
        Whim::TakeThenStall => Act::TakeThenStall,
        Whim::TakeLate => Act::TakeAfter(LATE),
        // A `Retry-After` of no seconds leaves the pause to the sender.
        Whim::Defer | Whim::Rcpt(true) => Act::Trouble(Trouble::Busy(0)),
        Whim::Refuse | Whim::Rcpt(false) => Act::Trouble(Trouble::Refused),
        Whim::Cut => Act::Drop,
    }
}

/// The vendor's honest answer, written down.
pub(super) fn take(shared: &Shared, vendor: Vendor, got: &Got, whim: Whim) -> Said {
    let mut ledger = shared.ledger();
    let before = ledger.taken.len();
    let said = vendor.answer(&mut ledger, got);
    let taken = ledger.taken.len() > before;
    drop(ledger);
    note(shared, vendor, got, whim, taken);
    said
}

/// Writes down what came, where an oracle wants to know.
pub(super) fn note(shared: &Shared, vendor: Vendor, got: &Got, whim: Whim, taken: bool) {
    let Some(oracle) = &shared.oracle else { return };
    let About { email, to, message_id } = About::read(vendor, got);
    let transport = match vendor {
        Vendor::Resend => "keyed",
        Vendor::Postmark => "look_up",
        _ => "keyless",
    };
    oracle.note(Line {
        transport: transport.into(),
        connection: got.connection,
        email,
        message_id,
        key: Some(got.header("idempotency-key").to_owned()).filter(|key| !key.is_empty()),
        to,
        body: hash(&got.body),
        taken,
        did: whim.word().into(),
        ambiguous: whim.is_ambiguous(),
        ..Line::default()
    });
}

/// A webhook for the application beside the sink: `/receiver/` and the team whose endpoint it is.
pub(super) fn webhook(shared: &Shared, got: &Got) -> Option<Said> {
    let team = got.path.strip_prefix("/receiver/")?;
    let oracle = shared.oracle.as_ref()?;
    oracle.told(|| NoticeLine::of(team, &got.body, |name| got.header(name).to_owned()));
    Some(Said::json(200, &json!({})))
}

/// What the one who runs the oracle tells it: `/control/calm`, `/control/rough`, `/control/hooks`, `/control/count`.
pub(super) fn control(shared: &Shared, got: &Got) -> Option<Said> {
    let what = got.path.strip_prefix("/control/")?;
    let oracle = shared.oracle.as_ref()?;
    match what {
        "calm" => oracle.mood.calm(true),
        "rough" => oracle.mood.calm(false),
        "hooks" => match serde_json::from_slice::<Where>(&got.body) {
            Ok(to) => oracle.call_back(to),
            Err(why) => return Some(Said::json(400, &json!({"error": why.to_string()}))),
        },
        "count" => {}
        _ => return None,
    }
    Some(Said::json(200, &json!({"count": oracle.count()})))
}

//! How providers prove themselves, as a source holds it: sealed, and two at a time.

use mailonce_mail::hook::{BadSecret, Kind, Knock, Secrets};
use serde::{Deserialize, Serialize};

/// Secrets that live at a time.
const LIVE: usize = 2;

/// How a provider proves itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// The key of its signatures.
    Key(String),
    /// HTTP basic.
    Basic {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// A bearer token.
    Bearer(String),
    /// A header of its own.
    Header {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// A parameter of the address.
    Query {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// Topics of Amazon SNS.
    Topics {
        /// Their ARNs.
        topics: Vec<String>,
        /// Whether SHA-1 is good enough.
        allow_sha1: bool,
    },
}

/// The proofs in the form in which requests are checked.
pub(crate) fn secrets(kind: Kind, proofs: &[Proof]) -> Result<Secrets, BadSecret> {
    let mut keys = Vec::new();
    let mut knocks = Vec::new();
    for proof in proofs {
        match proof.clone() {
            Proof::Topics { topics, allow_sha1 } if kind == Kind::Ses => return Secrets::topics(topics, allow_sha1),
            Proof::Key(key) => keys.push(key),
            Proof::Basic { user, password } => knocks.push(Knock::Basic { user, password }),
            Proof::Bearer(token) => knocks.push(Knock::Bearer(token)),
            Proof::Header { name, value } => knocks.push(Knock::Header { name, value }),
            Proof::Query { name, value } => knocks.push(Knock::Query { name, value }),
            Proof::Topics { .. } => return Err(BadSecret::Kind(kind)),
        }
    }
    match (keys.is_empty(), knocks.is_empty()) {
        (false, true) => Secrets::keys(kind, &keys.iter().map(String::as_str).collect::<Vec<_>>()),
        (true, false) => Secrets::knocks(kind, knocks),
        _ => Err(BadSecret::Kind(kind)),
    }
}

/// The new proof first, then the one before. The same one again changes nothing, so that a repeat pushes nothing out.
pub(crate) fn rotated(old: Vec<Proof>, new: Proof, keep: bool) -> Vec<Proof> {
    if let (Proof::Topics { topics, allow_sha1 }, Some(Proof::Topics { topics: before, .. })) = (&new, old.first()) {
        let mut all = topics.clone();
        all.extend(before.iter().filter(|topic| keep && !topics.contains(topic)).cloned());
        return vec![Proof::Topics { topics: all, allow_sha1: *allow_sha1 }];
    }
    let before: Vec<Proof> = old.into_iter().filter(|proof| keep && *proof != new).collect();
    std::iter::once(new).chain(before).take(LIVE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Proof {
        Proof::Key(text.into())
    }

    #[test]
    fn two_secrets_live_and_a_repeat_pushes_none_out() {
        let one = rotated(vec![key("a")], key("b"), true);
        assert_eq!(one, [key("b"), key("a")]);
        assert_eq!(rotated(one.clone(), key("b"), true), one);
        assert_eq!(rotated(one.clone(), key("c"), true), [key("c"), key("b")]);
        assert_eq!(rotated(one, key("b"), false), [key("b")]);
    }

    #[test]
    fn topics_are_added_or_replaced() {
        let topics =
            |list: &[&str]| Proof::Topics { topics: list.iter().map(ToString::to_string).collect(), allow_sha1: false };
        assert_eq!(rotated(vec![topics(&["a"])], topics(&["b"]), true), [topics(&["b", "a"])]);
        assert_eq!(rotated(vec![topics(&["a"])], topics(&["b"]), false), [topics(&["b"])]);
    }

    #[test]
    fn each_provider_takes_its_own_proof_and_no_other() {
        let long = "0123456789abcdef";
        let bearer = || [Proof::Bearer(long.into())];
        let topic =
            || [Proof::Topics { topics: vec!["arn:aws:sns:eu-west-1:123456789012:t".into()], allow_sha1: false }];
        assert!(secrets(Kind::Postmark, &bearer()).is_ok());
        assert!(secrets(Kind::Mailgun, &[key(long)]).is_ok());
        assert!(secrets(Kind::Ses, &topic()).is_ok());
        for (kind, proofs) in [(Kind::Mailgun, bearer()), (Kind::Postmark, topic()), (Kind::Ses, [key(long)])] {
            assert!(secrets(kind, &proofs).is_err(), "{kind}");
        }
        assert!(secrets(Kind::Mailgun, &[key("short")]).is_err());
        assert!(secrets(Kind::Postmark, &[key(long), Proof::Bearer(long.into())]).is_err());
    }
}

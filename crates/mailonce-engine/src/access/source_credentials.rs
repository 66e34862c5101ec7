//! Credentials with which providers authenticate their requests to a source. They are sealed, and two can be live at a
//! time.

use mailonce_mail::hooks::{HookSecretError, HookSecrets, Kind, SharedSecret};
use serde::{Deserialize, Serialize};

/// How many credentials can be live at a time.
const MAX_LIVE_CREDENTIALS: usize = 2;

/// How a provider authenticates its requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceCredential {
    /// The key of its signatures.
    Key(String),
    /// HTTP basic authentication.
    Basic {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// A bearer token.
    Bearer(String),
    /// A header with a secret value.
    Header {
        /// The header's name.
        name: String,
        /// The header's value.
        value: String,
    },
    /// A query parameter with a secret value.
    Query {
        /// The parameter's name.
        name: String,
        /// The parameter's value.
        value: String,
    },
    /// Topics of Amazon SNS.
    Topics {
        /// The ARNs of the topics.
        topics: Vec<String>,
        /// Whether signatures with SHA-1 are accepted.
        allow_sha1: bool,
    },
}

/// Converts credentials to the form in which requests are verified.
pub(crate) fn to_secrets(kind: Kind, credentials: &[SourceCredential]) -> Result<HookSecrets, HookSecretError> {
    let mut keys = Vec::new();
    let mut shared_secrets = Vec::new();
    for credential in credentials {
        match credential.clone() {
            SourceCredential::Topics { topics, allow_sha1 } if kind == Kind::Ses => {
                return HookSecrets::from_topics(topics, allow_sha1);
            }
            SourceCredential::Key(key) => keys.push(key),
            SourceCredential::Basic { user, password } => shared_secrets.push(SharedSecret::Basic { user, password }),
            SourceCredential::Bearer(token) => shared_secrets.push(SharedSecret::Bearer(token)),
            SourceCredential::Header { name, value } => shared_secrets.push(SharedSecret::Header { name, value }),
            SourceCredential::Query { name, value } => shared_secrets.push(SharedSecret::Query { name, value }),
            SourceCredential::Topics { .. } => return Err(HookSecretError::WrongScheme(kind)),
        }
    }
    match (keys.is_empty(), shared_secrets.is_empty()) {
        (false, true) => HookSecrets::from_keys(kind, &keys.iter().map(String::as_str).collect::<Vec<_>>()),
        (true, false) => HookSecrets::from_shared_secrets(kind, shared_secrets),
        _ => Err(HookSecretError::WrongScheme(kind)),
    }
}

/// Puts the new credential first, then the previous one. The same credential again changes nothing, so that a repeat
/// doesn't push out the previous one.
pub(crate) fn rotate(old: Vec<SourceCredential>, new: SourceCredential, keep: bool) -> Vec<SourceCredential> {
    if let (SourceCredential::Topics { topics, allow_sha1 }, Some(SourceCredential::Topics { topics: before, .. })) =
        (&new, old.first())
    {
        let mut all = topics.clone();
        all.extend(before.iter().filter(|topic| keep && !topics.contains(topic)).cloned());
        return vec![SourceCredential::Topics { topics: all, allow_sha1: *allow_sha1 }];
    }
    let before: Vec<SourceCredential> = old.into_iter().filter(|credential| keep && *credential != new).collect();
    std::iter::once(new).chain(before).take(MAX_LIVE_CREDENTIALS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> SourceCredential {
        SourceCredential::Key(text.into())
    }

    #[test]
    fn a_rotation_keeps_two_secrets_and_a_repeated_one_keeps_both() {
        let one = rotate(vec![key("a")], key("b"), true);
        assert_eq!(one, [key("b"), key("a")]);
        assert_eq!(rotate(one.clone(), key("b"), true), one);
        assert_eq!(rotate(one.clone(), key("c"), true), [key("c"), key("b")]);
        assert_eq!(rotate(one, key("b"), false), [key("b")]);
    }

    #[test]
    fn topics_are_added_or_replaced() {
        let topics = |list: &[&str]| SourceCredential::Topics {
            topics: list.iter().map(ToString::to_string).collect(),
            allow_sha1: false,
        };
        assert_eq!(rotate(vec![topics(&["a"])], topics(&["b"]), true), [topics(&["b", "a"])]);
        assert_eq!(rotate(vec![topics(&["a"])], topics(&["b"]), false), [topics(&["b"])]);
    }

    #[test]
    fn each_provider_takes_its_own_proof_and_no_other() {
        let long = "0123456789abcdef";
        let bearer = || [SourceCredential::Bearer(long.into())];
        let topic = || {
            [SourceCredential::Topics {
                topics: vec!["arn:aws:sns:eu-west-1:123456789012:t".into()],
                allow_sha1: false,
            }]
        };
        assert!(to_secrets(Kind::Postmark, &bearer()).is_ok());
        assert!(to_secrets(Kind::Mailgun, &[key(long)]).is_ok());
        assert!(to_secrets(Kind::Ses, &topic()).is_ok());
        for (kind, proofs) in [(Kind::Mailgun, bearer()), (Kind::Postmark, topic()), (Kind::Ses, [key(long)])] {
            assert!(to_secrets(kind, &proofs).is_err(), "{kind}");
        }
        assert!(to_secrets(Kind::Mailgun, &[key("short")]).is_err());
        assert!(to_secrets(Kind::Postmark, &[key(long), SourceCredential::Bearer(long.into())]).is_err());
    }
}

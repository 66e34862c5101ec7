//! What a receiver's response to a notice means, and when to retry.

use jiff::fmt::rfc2822::DateTimeParser;

use crate::{limits, string_enum::string_enum, time::Time};

string_enum! {
    /// Why an attempt got no success response.
    WebhookError {
        /// Notices to this address are not allowed.
        Blocked = "blocked",
        /// The host name could not be resolved.
        Name = "name",
        /// The connection failed.
        Connect = "connect",
        /// TLS failed, for example because of an invalid certificate.
        Tls = "tls",
        /// No complete response in time.
        Timeout = "timeout",
        /// The connection broke, or the response is malformed.
        Broken = "broken",
        /// The status is not a success.
        Status = "status",
    }
}

/// What a response means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookVerdict {
    /// The receiver accepted it.
    Delivered,
    /// The receiver does not want this notice.
    Dropped,
    /// The receiver wants no more notices at all.
    Gone,
    /// Retry. When the receiver asked for a delay, not before this many milliseconds.
    Retry(Option<i64>),
}

/// The first pause, in milliseconds.
const FIRST_RETRY_DELAY_MS: i64 = 5_000;
/// The factor by which each pause grows.
const BACKOFF_FACTOR: i64 = 3;
/// The longest pause, even when the receiver asks for more, in milliseconds.
const MAX_RETRY_DELAY_MS: i64 = 86_400_000;

/// Classifies a response. No status means that there was no response. Redirects are not followed: a receiver that moved
/// must be reconfigured by a person.
pub fn classify_response<'a>(
    status: Option<u16>,
    header: impl Fn(&str) -> Option<&'a str>,
    now: Time,
) -> WebhookVerdict {
    let Some(status) = status else { return WebhookVerdict::Retry(None) };
    let aborts = header("webhook-delivery").is_some_and(|said| said.trim().eq_ignore_ascii_case("abort-message"));
    match status {
        200..=299 => WebhookVerdict::Delivered,
        410 => WebhookVerdict::Gone,
        _ if aborts => WebhookVerdict::Dropped,
        _ => WebhookVerdict::Retry(header("retry-after").and_then(|text| parse_retry_after(text, now))),
    }
}

/// Parses `Retry-After`: seconds, or a date.
fn parse_retry_after(text: &str, now: Time) -> Option<i64> {
    let text = text.trim();
    let seconds = text.parse::<i64>().ok().map(|seconds| seconds.saturating_mul(1_000));
    let date = || DateTimeParser::new().parse_timestamp(text).ok();
    let asked = seconds.or_else(|| Some(Time(date()?.as_millisecond()).since(now)))?;
    Some(asked.clamp(0, MAX_RETRY_DELAY_MS))
}

/// The pause after this many failures (from 1). `jitter_seed`, uniformly random over all of `u64`, makes it up to a tenth
/// longer. The receiver can ask for a longer pause, but not for a shorter one, which would use up its retries.
pub fn retry_delay_ms(failures: u32, asked: Option<i64>, jitter_seed: u64) -> i64 {
    let steps = failures.saturating_sub(1).min(20);
    let pause = (0..steps).fold(FIRST_RETRY_DELAY_MS, |pause, _| (pause * BACKOFF_FACTOR).min(MAX_RETRY_DELAY_MS));
    let jitter = (jitter_seed % (pause as u64 / 10 + 1)) as i64;
    (pause + jitter).max(asked.unwrap_or(0).min(MAX_RETRY_DELAY_MS))
}

/// The pause after this many failures, given the sum of earlier pauses. `None` when the retry period is over.
pub fn next_retry_delay_ms(failures: u32, waited_ms: i64, asked: Option<i64>, jitter_seed: u64) -> Option<i64> {
    let pause = retry_delay_ms(failures, asked, jitter_seed);
    (waited_ms.saturating_add(pause) <= limits::NOTICE_RETRY_PERIOD_MS).then_some(pause)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict_of(status: u16, headers: &[(&str, &str)]) -> WebhookVerdict {
        let header = |name: &str| headers.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        classify_response(Some(status), header, Time(1_731_628_800_000))
    }

    #[test]
    fn only_2xx_is_delivered() {
        for status in [200, 201, 204, 299] {
            assert_eq!(verdict_of(status, &[]), WebhookVerdict::Delivered);
        }
        for status in [100, 199, 300, 301, 304, 308, 400, 401, 404, 409, 429, 500, 503, 599] {
            assert_eq!(verdict_of(status, &[]), WebhookVerdict::Retry(None), "{status}");
        }
        assert_eq!(classify_response(None, |_| None, Time(0)), WebhookVerdict::Retry(None));
        assert_eq!(verdict_of(410, &[]), WebhookVerdict::Gone);
    }

    #[test]
    fn a_receiver_can_drop_one_notice() {
        assert_eq!(verdict_of(422, &[("webhook-delivery", "abort-message")]), WebhookVerdict::Dropped);
        assert_eq!(verdict_of(422, &[("webhook-delivery", "abort")]), WebhookVerdict::Retry(None));
        assert_eq!(verdict_of(200, &[("webhook-delivery", "abort-message")]), WebhookVerdict::Delivered);
    }

    #[test]
    fn retry_after_is_read_as_seconds_or_date_and_bounded() {
        for (text, asked) in [
            ("30", Some(30_000)),
            ("-1", Some(0)),
            ("99999999999999", Some(MAX_RETRY_DELAY_MS)),
            ("Fri, 15 Nov 2024 00:01:00 GMT", Some(60_000)),
            ("Thu, 14 Nov 2024 00:01:00 GMT", Some(0)),
            ("soon", None),
        ] {
            assert_eq!(verdict_of(503, &[("retry-after", text)]), WebhookVerdict::Retry(asked), "{text}");
        }
    }

    #[test]
    fn pauses_begin_with_5_seconds_grow_and_stay_within_their_bounds() {
        assert_eq!(retry_delay_ms(1, None, 0), 5_000);
        assert_eq!(retry_delay_ms(1, None, 500), 5_500);
        assert_eq!(retry_delay_ms(2, None, 0), 15_000);
        assert_eq!(retry_delay_ms(1, Some(60_000), 0), 60_000);
        assert_eq!(retry_delay_ms(9, Some(1_000), 0), retry_delay_ms(9, None, 0));
        assert_eq!(retry_delay_ms(1, Some(i64::MAX), 0), MAX_RETRY_DELAY_MS);
        for failures in 1..40 {
            for jitter_seed in [0, 1, 7_919, u64::MAX] {
                assert!(retry_delay_ms(failures, None, jitter_seed) <= MAX_RETRY_DELAY_MS + MAX_RETRY_DELAY_MS / 10);
                assert!(
                    retry_delay_ms(failures, None, jitter_seed)
                        <= retry_delay_ms(failures + 1, None, jitter_seed) + MAX_RETRY_DELAY_MS / 10
                );
            }
        }
    }

    #[test]
    fn all_pauses_together_are_a_week_and_no_more() {
        for jitter_seed in [0, 3, u64::MAX] {
            let (mut failures, mut waited) = (0, 0);
            while let Some(pause) = next_retry_delay_ms(failures + 1, waited, None, jitter_seed) {
                failures += 1;
                waited += pause;
            }
            assert!((12..40).contains(&failures), "{failures}");
            assert!((6 * 86_400_000..=limits::NOTICE_RETRY_PERIOD_MS - 1).contains(&(waited + 1)), "{waited}");
        }
    }
}

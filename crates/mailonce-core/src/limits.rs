//! The bound of everything that comes from outside. One place, so that a limit is never forgotten.

/// Bytes of one HTTP request body.
pub const BODY_BYTES: usize = 40 * 1024 * 1024;
/// Objects and lists of a JSON body inside each other.
pub const JSON_DEPTH: usize = 120;
/// Members of one JSON object.
pub const JSON_MEMBERS: usize = 1_000;
/// Bytes of the name of a JSON member, as it is written.
pub const JSON_NAME_BYTES: usize = 4_096;
/// Values of a JSON body in all.
pub const JSON_VALUES: usize = 500_000;
/// Characters of a wrong name for which a similar one is searched. The search is quadratic.
pub const SUGGESTION_CHARS: usize = 64;
/// Characters of a value that an error message shows.
pub const ERROR_VALUE_CHARS: usize = 200;
/// Characters of a Key given by a caller.
pub const KEY_CHARS: usize = 256;
/// Recipients of one email: to, cc and bcc together.
pub const RECIPIENTS: usize = 50;
/// Items of one batch.
pub const BATCH_ITEMS: usize = 1000;
/// Octets of a local part (RFC 5321).
pub const LOCAL_PART_OCTETS: usize = 64;
/// Octets of a whole address (RFC 5321, path without angle brackets).
pub const ADDRESS_OCTETS: usize = 254;
/// Characters of a display name.
pub const NAME_CHARS: usize = 256;
/// Characters of a subject. A longer one is no subject.
pub const SUBJECT_CHARS: usize = 998;
/// Custom headers of one email.
pub const HEADERS: usize = 50;
/// Characters of a custom header's name.
pub const HEADER_NAME_CHARS: usize = 76;
/// Characters of a custom header's value.
pub const HEADER_VALUE_CHARS: usize = 998;
/// Attachments of one email.
pub const ATTACHMENTS: usize = 100;
/// Decoded bytes of all attachments of one email.
pub const ATTACHMENT_BYTES: usize = 25 * 1024 * 1024;
/// Characters of a file name.
pub const FILENAME_CHARS: usize = 255;
/// Tags of one email.
pub const TAGS: usize = 50;
/// Entries of an email's metadata.
pub const METADATA: usize = 50;
/// Characters of a tag, a metadata name or a metadata value.
pub const LABEL_CHARS: usize = 512;
/// Characters of an intent's `type`, `entity` or `period`.
pub const INTENT_CHARS: usize = 256;
/// The largest integer that every JSON reader gives back unchanged.
pub const SAFE_INTEGER: i64 = 9_007_199_254_740_991;
/// How far ahead a mail may be scheduled, in milliseconds (400 days).
pub const SCHEDULE_AHEAD_MS: i64 = 400 * 86_400_000;
/// How long a tombstone keeps a forgotten key's hash and bind number, in milliseconds (400 days).
pub const TOMBSTONE_MS: i64 = 400 * 86_400_000;
/// How long a body is kept after the terminal state, in milliseconds (30 days).
pub const BODY_RETENTION_MS: i64 = 30 * 86_400_000;
/// How long the answer of a repeatable operation is remembered, in milliseconds (24 hours).
pub const OPERATION_RETENTION_MS: i64 = 86_400_000;
/// How many versions back an email that was sent again stands for their recipients: one a day for as long as bodies live.
pub const EARLIER_VERSIONS: u32 = 30;
/// Suppressed calls remembered one by one for each key.
pub const SUPPRESSED_CALLS_KEPT: usize = 20;
/// Rows of one page.
pub const PAGE_ROWS: usize = 100;
/// Rows of one page of events.
pub const EVENT_ROWS: usize = 1000;
/// Rows one listing may look at before it hands back a cursor, however few of them matched.
pub const SCAN_ROWS: usize = 20_000;
/// Characters of a caller's own id of a call.
pub const CALL_ID_CHARS: usize = 256;
/// Characters of a name, label or reason that a person gives.
pub const FREE_TEXT_CHARS: usize = 500;
/// Characters of a credential at least.
pub const MIN_SECRET_CHARS: usize = 16;
/// How long a process counts as alive after it was last heard of, in milliseconds.
pub const HEARTBEAT_TIMEOUT_MS: i64 = 15_000;
/// How long no live process must have had a transport before what waits for it counts as orphaned, in milliseconds.
/// Only where several processes share a ledger: a rolling restart takes less.
pub const ORPHANED_AFTER_MS: i64 = 5 * 60_000;
/// The largest mail that comes in, in octets.
pub const INBOUND_MAIL_BYTES: usize = 35 * 1024 * 1024;
/// Recipients of one mail that comes in (RFC 5321 asks for 100 at least).
pub const INBOUND_RECIPIENTS: usize = 100;
/// Labels of one message.
pub const MESSAGE_LABELS: usize = 50;
/// Names by which a message finds its thread: its own and its ancestors'.
pub const THREAD_REFERENCES: usize = 24;
/// How long a provider's delivery is known again, in milliseconds.
pub const PROVIDER_DEDUP_MS: i64 = 35 * 86_400_000;
/// How long the same bytes to the same recipient by SMTP are the same delivery, in milliseconds. Longer than a
/// sender's queue retries.
pub const SMTP_DEDUP_MS: i64 = 7 * 86_400_000;
/// How long rows of suppressed deliveries are kept, in milliseconds.
pub const SUPPRESSED_DELIVERY_RETENTION_MS: i64 = 35 * 86_400_000;
/// Within this the same value from the same sender is the same artifact, in milliseconds.
pub const ARTIFACT_DEDUP_MS: i64 = 3_600_000;
/// How long a process may keep a delivery before another takes it, in milliseconds.
pub const DELIVERY_LEASE_MS: i64 = 60_000;
/// How many processes may end while they read a delivery before the next one waits.
pub const CRASHES_BEFORE_RECLAIM_DELAY: u32 = 3;
/// Characters of whom an artifact is taken for.
pub const CONSUME_FOR_CHARS: usize = 256;
/// The longest wait for a message, in milliseconds.
pub const MAX_WAIT_MS: i64 = 60_000;
/// The longest watch, in milliseconds.
pub const MAX_WATCH_MS: i64 = 7 * 86_400_000;
/// Characters of an address that a tenant names, of a webhook say.
pub const URL_CHARS: usize = 2_048;
/// Streams of events that are open at a time, for each team.
pub const EVENT_STREAMS: usize = 2_000;
/// Endpoints of one team.
pub const ENDPOINTS: usize = 50;
/// Filters, inboxes or custom headers of one endpoint.
pub const ENDPOINT_PARTS: usize = 50;
/// Secrets of one endpoint that count at the same time.
pub const ENDPOINT_SECRETS: usize = 5;
/// Endpoints that one call looks at for new events.
pub const FAN_OUT_ENDPOINTS: usize = 64;
/// Bytes of a receiver's answer that are kept.
pub const WEBHOOK_RESPONSE_BYTES: usize = 512;
/// Attempts of a notice that are kept one by one.
pub const NOTICE_ATTEMPTS_KEPT: usize = 20;
/// How long a process may keep a notice before another takes it, in milliseconds.
pub const NOTICE_LEASE_MS: i64 = 60_000;
/// For how long a notice is tried, all pauses together, in milliseconds.
pub const NOTICE_RETRY_PERIOD_MS: i64 = 7 * 86_400_000;
/// How long a notice is kept that reached its receiver or is not wanted, in milliseconds.
pub const NOTICE_RETENTION_MS: i64 = 30 * 86_400_000;
/// How long a notice is kept that was given up, in milliseconds.
pub const DEAD_NOTICE_RETENTION_MS: i64 = 90 * 86_400_000;
/// An endpoint that fails for so long without one success is disabled, in milliseconds.
pub const DISABLE_FAILING_ENDPOINT_AFTER_MS: i64 = 14 * 86_400_000;
/// Failed notices that one call makes due again.
pub const NOTICES_RECOVERED: usize = 5_000;

//! The limits of every input from outside, in one place.

/// Bytes of one HTTP request body.
pub const BODY_BYTES: usize = 40 * 1024 * 1024;
/// The nesting of objects and arrays in a JSON body.
pub const JSON_DEPTH: usize = 120;
/// Members of one JSON object.
pub const JSON_MEMBERS: usize = 1_000;
/// The length of a JSON member's name as written, in bytes.
pub const JSON_NAME_BYTES: usize = 4_096;
/// The total number of values in a JSON body.
pub const JSON_VALUES: usize = 500_000;
/// The longest unknown name for which a similar one is suggested, in characters. The search is quadratic.
pub const SUGGESTION_CHARS: usize = 64;
/// The length of a value in an error message, in characters.
pub const ERROR_VALUE_CHARS: usize = 200;
/// Characters of an idempotency key given by a caller.
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
/// Characters of a subject.
pub const SUBJECT_CHARS: usize = 998;
/// Bytes of one version of a template, and of the variables of one send.
pub const TEMPLATE_BYTES: usize = 256 * 1024;
/// Characters of a template's name.
pub const TEMPLATE_NAME_CHARS: usize = 128;
/// Variables that a template may declare.
pub const TEMPLATE_VARIABLES: usize = 200;
/// Versions of one template.
pub const TEMPLATE_VERSIONS: usize = 100;
/// Templates of one team.
pub const TEMPLATES: usize = 1000;
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
/// The largest integer that every JSON parser keeps exact.
pub const SAFE_INTEGER: i64 = 9_007_199_254_740_991;
/// How far ahead an email may be scheduled, in milliseconds (400 days).
pub const SCHEDULE_AHEAD_MS: i64 = 400 * 86_400_000;
/// How long a tombstone keeps a forgotten key's hash and bind number, in milliseconds (400 days).
pub const TOMBSTONE_MS: i64 = 400 * 86_400_000;
/// How long a body is kept after the terminal state, in milliseconds (30 days).
pub const BODY_RETENTION_MS: i64 = 30 * 86_400_000;
/// How long the response of an idempotent operation is remembered, in milliseconds (24 hours).
pub const OPERATION_RETENTION_MS: i64 = 86_400_000;
/// How many earlier versions of a resent email still occupy the keys of their recipients: one a day for as long as
/// bodies are kept.
pub const EARLIER_VERSIONS: u32 = 30;
/// The latest suppressed calls that are kept individually for each email.
pub const SUPPRESSED_CALLS_KEPT: usize = 20;
/// Rows of one page.
pub const PAGE_ROWS: usize = 100;
/// Rows of one page of events.
pub const EVENT_ROWS: usize = 1000;
/// Rows that one listing may scan before it returns a cursor, however few of them matched.
pub const SCAN_ROWS: usize = 20_000;
/// Characters of a caller's own id for a call.
pub const CALL_ID_CHARS: usize = 256;
/// Characters of a name, label or reason that a person gives.
pub const FREE_TEXT_CHARS: usize = 500;
/// The minimum length of an API key's secret, in characters.
pub const MIN_SECRET_CHARS: usize = 16;
/// How long a process counts as alive after its last heartbeat, in milliseconds.
pub const HEARTBEAT_TIMEOUT_MS: i64 = 15_000;
/// How long no live process has had a transport before its waiting email counts as orphaned, in milliseconds. Only
/// where several processes share a ledger. A rolling restart takes less time.
pub const ORPHANED_AFTER_MS: i64 = 5 * 60_000;
/// The size of a received mail, in bytes.
pub const INBOUND_MAIL_BYTES: usize = 35 * 1024 * 1024;
/// Recipients of one received mail (RFC 5321 requires at least 100).
pub const INBOUND_RECIPIENTS: usize = 100;
/// Labels of one message.
pub const MESSAGE_LABELS: usize = 50;
/// Message-IDs by which a message is assigned to a thread: its own and those of its ancestors.
pub const THREAD_REFERENCES: usize = 24;
/// How long a repeated delivery of a provider is recognized, in milliseconds.
pub const PROVIDER_DEDUP_MS: i64 = 35 * 86_400_000;
/// How long the same bytes to the same recipient by SMTP count as the same delivery, in milliseconds. Longer than
/// senders retry.
pub const SMTP_DEDUP_MS: i64 = 7 * 86_400_000;
/// How long rows of suppressed deliveries are kept, in milliseconds.
pub const SUPPRESSED_DELIVERY_RETENTION_MS: i64 = 35 * 86_400_000;
/// How long the same value from the same sender is the same artifact, in milliseconds.
pub const ARTIFACT_DEDUP_MS: i64 = 3_600_000;
/// The duration of a delivery's lease, in milliseconds.
pub const DELIVERY_LEASE_MS: i64 = 60_000;
/// How many processes may die while they process a delivery before it is delayed.
pub const CRASHES_BEFORE_RECLAIM_DELAY: u32 = 3;
/// Characters of the purpose for which an artifact is consumed.
pub const CONSUME_FOR_CHARS: usize = 256;
/// The longest wait for a message, in milliseconds.
pub const MAX_WAIT_MS: i64 = 60_000;
/// The longest watch, in milliseconds.
pub const MAX_WATCH_MS: i64 = 7 * 86_400_000;
/// Characters of a URL that a team configures, such as that of a webhook.
pub const URL_CHARS: usize = 2_048;
/// Concurrent event streams of one team.
pub const EVENT_STREAMS: usize = 2_000;
/// Endpoints of one team.
pub const ENDPOINTS: usize = 50;
/// Filters, inboxes or custom headers of one endpoint.
pub const ENDPOINT_PARTS: usize = 50;
/// Valid secrets of one endpoint at a time.
pub const ENDPOINT_SECRETS: usize = 5;
/// Endpoints that one fan-out call processes.
pub const FAN_OUT_ENDPOINTS: usize = 64;
/// Bytes of a webhook response that are kept.
pub const WEBHOOK_RESPONSE_BYTES: usize = 512;
/// Attempts of a notice that are kept individually.
pub const NOTICE_ATTEMPTS_KEPT: usize = 20;
/// The duration of a notice's lease, in milliseconds.
pub const NOTICE_LEASE_MS: i64 = 60_000;
/// For how long a notice is retried, as the sum of all pauses, in milliseconds.
pub const NOTICE_RETRY_PERIOD_MS: i64 = 7 * 86_400_000;
/// How long a delivered or dropped notice is kept, in milliseconds.
pub const NOTICE_RETENTION_MS: i64 = 30 * 86_400_000;
/// How long a dead notice is kept, in milliseconds.
pub const DEAD_NOTICE_RETENTION_MS: i64 = 90 * 86_400_000;
/// How long an endpoint may fail without one success before it is disabled, in milliseconds.
pub const DISABLE_FAILING_ENDPOINT_AFTER_MS: i64 = 14 * 86_400_000;
/// Failed notices that one call makes due again.
pub const NOTICES_RECOVERED: usize = 5_000;

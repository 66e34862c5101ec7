// The types of the API, generated from openapi.json by sdks/generate. Do not edit.

/** Acknowledgement of a leased message, for `ack`, `nack` and `extend`. */
export interface Acknowledgement {
  /** For `nack`: seconds until the message is offered again, at most 86400; 0 by default. */
  delay_s?: number | null;
  /** Token of the lease. */
  lease: string;
  /** For `extend`: new duration of the lease from now in seconds, 1 to 600; 30 by default. */
  ttl_s?: number | null;
}

/** The message after an acknowledgement. */
export interface AcknowledgementResult {
  lease?: Lease | null;
  message: Message;
}

/** One address or a list of addresses. */
export type Addresses = string | string[];

/** The consumer that reports the use. */
export interface ArtifactApplied {
  /** The `for` that consumed the artifact. */
  for: string;
}

/** An artifact: a code or link found in a message. */
export interface Artifact {
  applied_at?: string | null;
  /** Confidence of the extraction, 0 to 100. */
  confidence: number;
  consumed_at?: string | null;
  /** The `for` of the call that consumed it. */
  consumed_for?: string | null;
  found_at: string;
  id: string;
  inbox_id: string;
  /** The code or link with its secret part masked. */
  masked: string;
  /** Id of the message. */
  message: string;
  /** Reasons for the confidence. */
  reasons: string[];
  rev: number;
  sender: string;
  /** Whether the sender of the message was authenticated. */
  sender_authenticated: boolean;
  /** `code` or `link`. */
  type: "code" | "link";
  /** The code or link; null unless you consumed it or your API key has the scope `secrets`. */
  value?: string | null;
  /** Id of the watch that it was consumed under. */
  watch?: string | null;
}

/** The artifacts of a message. */
export interface ArtifactPage {
  /** Ambiguous finds. They cannot be consumed. */
  candidates: Record<string, unknown>[];
  /** The artifacts, best first. */
  data: Artifact[];
  next_cursor?: string | null;
}

/** An attachment. */
export interface Attachment {
  /** The file's bytes in Base64. */
  content: string;
  content_id?: string | null;
  content_type?: string | null;
  filename?: string | null;
}

/** An attachment, without its bytes. `GET /v1/messages/{id}/attachments/{n}` returns the bytes. */
export interface AttachmentInfo {
  content_id?: string | null;
  content_type: string;
  filename?: string | null;
  inline: boolean;
  /** Number of the attachment, for `GET /v1/messages/{id}/attachments/{n}`. */
  n: number;
  size: number;
}

/** One attempt to send a handoff. */
export interface Attempt {
  at: string;
  /** SMTP or HTTP status code of the reply. */
  code?: number | null;
  /** When the outcome was recorded; null while the attempt is running. */
  ended_at?: string | null;
  /** Whether an earlier attempt may have succeeded, so that the recipient may get the email twice. */
  may_duplicate: boolean;
  number: number;
  /** `accepted deferred refused unknown`; null while the attempt is running. */
  outcome?: "accepted" | "deferred" | "refused" | "unknown" | null;
  /** The last phase that was reached: `connect tls greet login mail rcpt data final`. */
  phase?: "connect" | "tls" | "greet" | "login" | "mail" | "rcpt" | "data" | "final" | null;
  /** The next hop's own id for the message. */
  remote_id?: string | null;
  /** Text of the next hop's reply. */
  reply: string;
  transport?: string | null;
}

/** Results of the sender authentication. */
export interface Auth {
  dkim: "pass" | "fail" | "softfail" | "neutral" | "none" | "temperror" | "permerror";
  dmarc: "pass" | "fail" | "softfail" | "neutral" | "none" | "temperror" | "permerror";
  /** Domain of the From header. */
  domain?: string | null;
  spf: "pass" | "fail" | "softfail" | "neutral" | "none" | "temperror" | "permerror";
  /** Overall verdict of mailonce: `pass`, `fail`, `none` or `temperror`. */
  verdict: "pass" | "fail" | "none" | "temperror";
}

/** Why a message counts as automatic. */
export interface AutomaticReason {
  /** Whether the inbox setting `reply_to_likely_automatic` can allow a reply anyway. */
  overridable: boolean;
  /** What marks the message as automatic, such as a header. */
  reason: string;
}

/** Why one item of a batch was refused. */
export interface BatchItemError {
  /** Error code, as in a problem. */
  code: string;
  /** The invalid field, if the error is about one. */
  field?: string | null;
  index: number;
  /** What is wrong. */
  message: string;
  /** With `Prefer: policy-trace`, if a check refused the item: what each check decided, in order. */
  policy?: PolicyStep[] | null;
}

/** The response to a batch. */
export interface BatchReceipt {
  /** One entry per item, in order; null for an item that has an entry in `errors`. */
  data: (SendReceipt | null)[];
  errors: BatchItemError[];
}

/** How much room a budget has. */
export interface BudgetRoom {
  id: string;
  limit: number;
  name: string;
  remaining: number;
  /** When the period ends. */
  resets_at: string;
}

/** The caller's own ids of a call. They are stored for correlation only. */
export interface CallTrace {
  id?: string | null;
  /** From `traceparent` (W3C Trace Context). */
  traceparent?: string | null;
}

/** Limits on the number of replies. A reply beyond a limit is held. Absent fields keep their value. The defaults are 3 in 300 seconds and 20 a day in a thread, and 20 a day to one recipient. */
export interface Caps {
  /** Replies to one recipient per day, over all threads. */
  per_recipient_per_day?: number | null;
  /** Replies in a thread per day. */
  per_thread_per_day?: number | null;
  /** Replies in a thread in total; `null` removes the limit. No limit by default. */
  per_thread_total?: number | null;
  /** Replies in a thread within `window_s`. */
  per_window?: number | null;
  /** Length of the window in seconds, 1 to 86400. */
  window_s?: number | null;
}

/** The consumer of an artifact. */
export interface Consume {
  /** The account, workflow or run that consumes the artifact. The same one gets the same response again; another is refused. */
  for: string;
  /** Id of the watch that the call belongs to. */
  watch?: string | null;
}

/** Which artifact of an inbox to consume, and for whom. */
export interface ConsumeMatch {
  /** Cursor of an inbox: the latest match after it, however old. When absent, only new ones count. Not with `watch`. */
  after?: string | null;
  /** Who takes it: an account, workflow or run. The same value gets the same artifact again. */
  for: string;
  match?: MessageMatch | null;
  /** How long to wait for a new one in seconds, at most 60 and until the watch ends; 0 by default. Not with `after`. */
  timeout?: number | null;
  /** `code` or `link`. */
  type: "code" | "link";
  /** Id of a watch: only messages that arrived after its start count. */
  watch?: string | null;
}

/** A consumed artifact. */
export interface ConsumedArtifact {
  artifact: Artifact;
}

/** What the idempotency key of a send did. */
export interface Dedupe {
  /** When the idempotency key expires; null until the email reaches a final state. */
  expires_at?: string | null;
  /** The idempotency key, from the header or derived from the intent; null without one. */
  key?: string | null;
  /** `first` for a new email, `replayed` for a duplicate call. */
  outcome: "first" | "replayed";
  /** Whether the content of this call differs from that of the first call. */
  payload_differs: boolean;
  /** Number of duplicate calls that were answered with this email. */
  suppressed: number;
}

/** An email, without its content. */
export interface Email {
  bcc?: string[];
  call?: CallTrace | null;
  cc?: string[];
  /** Number of handoffs in each state. */
  counts: Record<string, number>;
  created_at: string;
  /** When the idempotency key expires; null until the email reaches a final state. */
  expires_at?: string | null;
  from: string;
  /** The most important guard in `holds`, or the one that held or flagged the email. */
  guard?: "self" | "automatic" | "already_answered" | "leased" | "newer_message" | "cap" | "looks_duplicate" | "overlaps" | "approval" | "budget" | "reply_to" | (string & {}) | null;
  /** The guards that hold the email. It leaves when none is left. */
  holds: ("self" | "automatic" | "already_answered" | "leased" | "newer_message" | "cap" | "looks_duplicate" | "overlaps" | "approval" | "budget" | "reply_to" | (string & {}))[];
  id: string;
  /** Idempotency key; null without one. */
  key?: string | null;
  /** The Message-ID header, with angle brackets. */
  message_id: string;
  /** Id of the message that this email replies to or forwards. */
  reply_to_message?: string | null;
  /** Id of the email that this one resends. */
  resend_of?: string | null;
  /** Id of the next version, if the email was resent. */
  resent_as?: string | null;
  rev: number;
  /** When the email is due, while it is scheduled or held. */
  scheduled_at?: string | null;
  /** When the email reached a final state; null before that. */
  settled_at?: string | null;
  state: "scheduled" | "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed" | "unknown" | "abandoned" | "held" | "cancelled";
  /** Id of the stop that keeps the email from leaving. */
  stopped_by?: string | null;
  subject: string;
  /** Number of duplicate calls that were answered with this email. */
  suppressed: number;
  template?: TemplateRef | null;
  thread_id?: string | null;
  to: string[];
  version: number;
}

/** An email with its content, handoffs, evidence and timeline. */
export interface EmailDetail {
  bcc?: string[];
  call?: CallTrace | null;
  cc?: string[];
  /** Number of handoffs in each state. */
  counts: Record<string, number>;
  created_at: string;
  /** When the idempotency key expires; null until the email reaches a final state. */
  expires_at?: string | null;
  from: string;
  /** The most important guard in `holds`, or the one that held or flagged the email. */
  guard?: "self" | "automatic" | "already_answered" | "leased" | "newer_message" | "cap" | "looks_duplicate" | "overlaps" | "approval" | "budget" | "reply_to" | (string & {}) | null;
  /** The guards that hold the email. It leaves when none is left. */
  holds: ("self" | "automatic" | "already_answered" | "leased" | "newer_message" | "cap" | "looks_duplicate" | "overlaps" | "approval" | "budget" | "reply_to" | (string & {}))[];
  id: string;
  /** Idempotency key; null without one. */
  key?: string | null;
  /** The Message-ID header, with angle brackets. */
  message_id: string;
  /** Id of the message that this email replies to or forwards. */
  reply_to_message?: string | null;
  /** Id of the email that this one resends. */
  resend_of?: string | null;
  /** Id of the next version, if the email was resent. */
  resent_as?: string | null;
  rev: number;
  /** When the email is due, while it is scheduled or held. */
  scheduled_at?: string | null;
  /** When the email reached a final state; null before that. */
  settled_at?: string | null;
  state: "scheduled" | "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed" | "unknown" | "abandoned" | "held" | "cancelled";
  /** Id of the stop that keeps the email from leaving. */
  stopped_by?: string | null;
  subject: string;
  /** Number of duplicate calls that were answered with this email. */
  suppressed: number;
  template?: TemplateRef | null;
  thread_id?: string | null;
  to: string[];
  version: number;
  attachments: SentAttachment[];
  /** Oldest first. */
  evidence: Evidence[];
  handoffs: Handoff[];
  /** Your additional headers. */
  headers: Record<string, string>;
  html?: string | null;
  intent?: Intent | null;
  metadata: Record<string, unknown>;
  /** What happens when the outcome is unknown: `hold` waits for evidence or a person; `resend` sends once more. */
  on_unknown: "hold" | "resend";
  /** What each check decided when the email was accepted, in order. */
  policy: PolicyStep[];
  reply_to: string[];
  /** The latest 20 suppressed duplicate calls, newest first. */
  suppressed_calls: SuppressedCall[];
  tags: Record<string, unknown>;
  /** Plain text body. When the retention period of the content is over, this and `html` are null, and the other parts of the content are empty. */
  text?: string | null;
  timeline: TimelineEntry[];
}

/** A page of emails, newest first. */
export interface EmailPage {
  data: Email[];
  /** Pass it as `cursor` to get the next page; null at the end. A page with few results may still have a next page. */
  next_cursor?: string | null;
}

/** An empty object; the body may be left out. */
export interface Empty {
}

/** A webhook endpoint. */
export interface Endpoint {
  created_at: string;
  /** Cursor of the last event that was processed for this endpoint. */
  cursor: string;
  description: string;
  /** Payload and signature format; null for mailonce's own. */
  dialect?: "resend" | "usesend" | "agentmail" | null;
  events: string[];
  /** When the first failure since the last success happened; null while requests succeed. */
  failing_since?: string | null;
  /** Names of the custom headers. */
  headers: string[];
  id: string;
  inboxes: string[];
  /** Whether `message.received` includes the text of the message. */
  include_text: boolean;
  rate_per_s?: number | null;
  /** Why the endpoint is not enabled: `asked` (by a call), `gone` (it answered 410) or `failing` (for 14 days). */
  reason?: "asked" | "gone" | "failing" | null;
  rev: number;
  /** Signing secret `whsec_…`; only in the response that created or rotated it. */
  secret?: string | null;
  /** Number of secrets that sign requests at the moment. */
  secret_count: number;
  /** `enabled`, `paused` or `disabled`. */
  state: "enabled" | "paused" | "disabled";
  state_since: string;
  url: string;
  version: string;
}

/** A page of endpoints, newest first. */
export interface EndpointPage {
  data: Endpoint[];
  next_cursor?: string | null;
}

/** Settings of an endpoint to change. Absent fields keep their value. */
export interface EndpointPatch {
  description?: string | null;
  events?: string[] | null;
  /** Replaces all custom headers. */
  headers?: Record<string, string> | null;
  inboxes?: string[] | null;
  include_text?: boolean | null;
  /** Rate limit in requests per second; `null` removes it. */
  rate_per_s?: number | null;
  rev?: number | null;
  url?: string | null;
}

/** Result of a test request. */
export interface EndpointTest {
  /** Whether the endpoint answered 2xx. */
  delivered: boolean;
  /** Why there was no response: `blocked name connect tls timeout broken`. */
  error?: "blocked" | "name" | "connect" | "tls" | "timeout" | "broken" | "status" | null;
  id: string;
  latency_ms: number;
  /** Start of the response body, or the error message. */
  response: string;
  status?: number | null;
}

/** An event. */
export interface Event {
  about: EventSubject;
  at: string;
  /** Position of the event, `epoch-seq`; pass it as `after`. */
  cursor: string;
  data: Record<string, unknown>;
  id: string;
  /** Sequence number in the team, from 1 without gaps. */
  seq: number;
  type: "email.accepted" | "email.held" | "email.duplicate" | "email.rescheduled" | "email.sent" | "email.delivered" | "email.bounced" | "email.complained" | "email.failed" | "email.deferred" | "email.unknown" | "email.resolved" | "email.cancelled" | "email.resent" | "handoff.orphaned" | "handoff.rerouted" | "message.received" | "delivery.duplicate" | "delivery.refused" | "delivery.failed" | "artifact.found" | "artifact.consumed" | "artifact.applied" | "email.hold_removed" | "email.released" | "message.answered" | "message.forwarded" | "message.reopened" | "message.skipped" | "reply.refused" | "thread.leased" | "thread.cap_reached" | "escalation.opened" | "escalation.resolved" | "domain.verified" | "domain.failed" | "endpoint.disabled" | "key.extended" | "key.forgotten" | "transport.breaker_opened" | "transport.breaker_closed" | "stop.created" | "stop.ended" | "claim.offered" | "claim.claimed" | "claim.begun" | "claim.completed" | "claim.failed" | "claim.freed" | "claim.unknown" | "claim.evidence" | "claim.resolved" | "outbox.row_parked" | "outbox.stopped" | "outbox.resumed" | "audit.recorded" | (string & {});
}

/** A page of events, oldest first. */
export interface EventPage {
  data: Event[];
  /** Pass it as `after` to read on; null when there are no events after the cursor. With a filter, even an empty page may have a next page. */
  next_cursor?: string | null;
}

/** The object that an event is about. */
export interface EventSubject {
  id: string;
  kind: "artifact" | "audit" | "claim" | "delivery" | "domain" | "email" | "endpoint" | "escalation" | "key" | "message" | "outbox" | "outbox_row" | "stop" | "thread" | "transport" | (string & {});
  rev: number;
}

/** Evidence: a fact about what the next hop did. */
export interface Evidence {
  at: string;
  /** Number of the attempt that the evidence is about; null if it is about the handoff. */
  attempt?: number | null;
  /** What was observed, such as the reply of the provider. */
  detail: string;
  /** Number of the handoff that the evidence is about. */
  handoff: number;
  /** What the evidence states: `accepted not_found silent not_accepted delivered delayed bounced complained again abandoned lost`. `silent`: the next hop could not be asked; `again`: the email is sent again; `lost`: the outcome is unknown. */
  says: "accepted" | "not_found" | "silent" | "not_accepted" | "delivered" | "delayed" | "bounced" | "complained" | "again" | "abandoned" | "lost";
  /** Where the evidence comes from: `late_reply look_up provider_event bounce person policy window crash` */
  source: "late_reply" | "look_up" | "provider_event" | "bounce" | "person" | "policy" | "window" | "crash";
}

/** Recipients and text of a forwarded message. */
export interface Forward {
  cc?: Addresses;
  /** One-time token of a held email that looks like an earlier one: releases the held email. */
  distinct_token?: string | null;
  /** Token of the lease that you hold on the thread. */
  lease?: string | null;
  /** Text above the forwarded message. */
  text?: string | null;
  to: Addresses;
}

/** One handoff: an envelope for one transport. */
export interface Handoff {
  attempts: Attempt[];
  /** When the next attempt is due, or the next check while the outcome is unknown. */
  due_at?: string | null;
  /** Whether some attempt may have succeeded although its outcome is unknown. */
  in_doubt: boolean;
  /** Whether the recipient may get the email twice. */
  may_duplicate: boolean;
  number: number;
  /** Why the handoff waits, or why it failed. */
  reason?: string | null;
  recipients: string[];
  state: "scheduled" | "queued" | "leased" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed" | "unknown" | "abandoned" | "held" | "cancelled";
  transport: string;
}

/** A header field. */
export interface HeaderField {
  name: string;
  value: string;
}

/** An inbox. */
export interface Inbox {
  address: string;
  agent?: string | null;
  /** Registrable domains whose links are allowed. When empty, links are judged by the sender's domain. */
  allowed_link_domains: string[];
  caps: Caps;
  /** Whether the inbox receives mail for every address of its domain without an inbox. */
  catch_all: boolean;
  /** Your own id of the inbox. */
  client_id?: string | null;
  created_at: string;
  /** Cursor of the latest message; pass it as `after`. */
  cursor: string;
  /** When the inbox stops receiving mail; its messages stay readable. Null for a permanent inbox. */
  expires_at?: string | null;
  id: string;
  /** Whether replies have the header `Auto-Submitted`. */
  mark_auto_submitted: boolean;
  message_count: number;
  metadata: Record<string, string>;
  name?: string | null;
  /** Whether agents may reply to mail that is likely, but not certainly, automatic. */
  reply_to_likely_automatic: boolean;
  retention?: InboxRetention | null;
  rev: number;
}

/** A page of inboxes, newest first. */
export interface InboxPage {
  data: Inbox[];
  next_cursor?: string | null;
}

/** Fields of an inbox to change. Absent fields keep their value; `null` removes a value. */
export interface InboxPatch {
  agent?: string | null;
  /** Registrable domains whose links are allowed, at most 50; replaces the list. */
  allowed_link_domains?: string[] | null;
  caps?: Caps | null;
  /** Whether the inbox receives mail for every address of its domain without an inbox; needs the scope `admin`. */
  catch_all?: boolean | null;
  /** Whether replies have the header `Auto-Submitted`. */
  mark_auto_submitted?: boolean | null;
  metadata?: Record<string, string> | null;
  name?: string | null;
  /** Whether agents may reply to mail that is likely, but not certainly, automatic. */
  reply_to_likely_automatic?: boolean | null;
  retention?: InboxRetention | null;
  rev?: number | null;
  /** New lifetime from now, such as `30m` or `24h`. `0s` expires the inbox now; `null` makes it permanent. */
  ttl?: string | null;
}

/** How long an inbox keeps mail. It can be shorter than the team's `retention`, and never longer. */
export interface InboxRetention {
  /** Received mail, with its text and attachments: a duration from 1 hour to 3,650 days; null means as long as the team keeps it. */
  raw?: string | null;
}

/** A sign of prompt injection, and how often it occurs. */
export interface InjectionFlag {
  count: number;
  flag: string;
}

/** What an email is about. The idempotency key is derived from the intent and `to`, so that every retry has the same key. */
export interface Intent {
  /** What the email is about, such as `order_4821`. */
  entity: string;
  /** The day, week or run of a recurring email. */
  period?: string | null;
  /** Type of the email, such as `order.confirmation`. */
  type: string;
  version?: number | null;
}

/** An idempotency key and what it is bound to. */
export interface Key {
  /** How often the key was bound: 1, plus 1 for each time it was used again after it had expired. */
  bind_number: number;
  /** `email`, `operation` (another call) or `forgotten`. */
  bound_to: "email" | "operation" | "forgotten";
  /** Where the key comes from: `intent` or `header`. */
  derivation?: "intent" | "header" | null;
  /** Versioned hash of the canonical email; a retry with another digest is a mismatch. */
  digest?: string | null;
  /** Id of the email that the key is bound to. */
  email?: string | null;
  /** When the key expires; null until the email reaches a final state. */
  expires_at?: string | null;
  forgotten_at?: string | null;
  /** Number of duplicate calls that were answered with the same email. */
  hits: number;
  intent?: Intent | null;
  key: string;
  state?: "scheduled" | "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed" | "unknown" | "abandoned" | "held" | "cancelled" | null;
  /** The latest 20 duplicate calls, newest first. */
  suppressed_calls: SuppressedCall[];
  ttl?: string | null;
}

/** A page of idempotency keys. */
export interface KeyPage {
  data: Key[];
  /** Pass it as `cursor` to get the next page; null on the last page. A page may have fewer keys than `limit`, or none, and still have a next page. */
  next_cursor?: string | null;
}

/** New lifetime of an idempotency key. */
export interface KeyPatch {
  ttl: Ttl;
}

/** A lease of a thread. */
export interface Lease {
  /** When the lease expires unless it is extended. */
  expires_at: string;
  /** Fencing token: grows with each lease of the thread. */
  fence: number;
  holder: string;
  /** Pass it as `lease` when you reply, acknowledge or extend. */
  token: string;
}

/** The current lease of a thread, without its token. */
export interface LeaseHolder {
  /** When the lease expires unless it is extended. */
  expires_at: string;
  holder: string;
  /** Id of the message that the lease was taken with. */
  message?: string | null;
}

/** A link in a message, with a safety verdict. mailonce never opens links. */
export interface Link {
  host?: string | null;
  /** Purpose of the link if it is recognized, such as `verify` or `reset`. */
  purpose?: string | null;
  /** Why the link has this verdict. */
  reasons: string[];
  /** The URL; null without the scope `secrets`, because a link may contain a secret. */
  url?: string | null;
  /** `allowed suspicious blocked`. */
  verdict: "allowed" | "suspicious" | "blocked";
}

/** A message, without its body. */
export interface Message {
  attachments: AttachmentInfo[];
  auth: Auth;
  automatic?: AutomaticReason | null;
  cc: Party[];
  /** Position in the inbox; pass it as `after`. */
  cursor: string;
  date?: string | null;
  /** `message_id_reused no_message_id unreadable cut ambiguous duplicate_header`. */
  flags: ("message_id_reused" | "no_message_id" | "unreadable" | "cut" | "ambiguous" | "duplicate_header")[];
  folder?: string | null;
  from?: Party | null;
  /** Types of the artifacts in the message: `code`, `link`. */
  has: ("code" | "link")[];
  id: string;
  inbox_id: string;
  labels: string[];
  /** The Message-ID header; null without one. */
  message_id?: string | null;
  /** Rules in the mode `observe` that matched. Their actions were not carried out. */
  observed_rules: RuleHit[];
  /** Why the message counts as sent by the team itself: `address loop_mark message_id`; null if it does not. */
  own_reason?: "address" | "loop_mark" | "message_id" | null;
  /** Start of the text, with codes and links masked. Empty in the view `min`, where all text is inside the fence. */
  preview: string;
  read: boolean;
  received_at: string;
  /** Envelope recipient, including a `+tag`. */
  recipient: string;
  /** Ids of the emails that replied to or forwarded the message. */
  replies: string[];
  /** Where a reply goes. */
  reply_target: ReplyTarget;
  reply_to: Party[];
  rev: number;
  /** Rules that matched, in the order of evaluation. */
  rules: RuleHit[];
  size: number;
  /** `unanswered leased answered skipped`. */
  state: "unanswered" | "leased" | "answered" | "skipped";
  subject: string;
  thread_id: string;
  to: Party[];
}

/** Conditions on the message of the artifact. */
export interface MessageMatch {
  from?: string | null;
  subject?: string | null;
}

/** A page of messages. */
export interface MessagePage {
  data: Message[];
  /** Pass it as `cursor` (newest first) or as `after` (oldest first) to get the next page; null at the end. */
  next_cursor?: string | null;
}

/** A webhook endpoint to create. */
export interface NewEndpoint {
  /** Where to start: an event cursor, or `0` for all stored events. When absent, with the next event. */
  after?: string | null;
  /** Description for people. */
  description?: string | null;
  /** Payload and signature format: `resend` or `usesend`; mailonce's own format when absent. Events that the dialect does not have are not sent. */
  dialect?: "resend" | "usesend" | null;
  /** Event types to send: types such as `email.sent`, prefixes such as `email.*`, or `["*"]` for all (default). */
  events?: string[] | null;
  /** Custom headers of every webhook request. The values are not shown again. */
  headers?: Record<string, string> | null;
  /** Send only events of these inboxes, by id; all inboxes when absent. */
  inboxes?: string[] | null;
  /** Whether `message.received` includes the visible text of the message, with codes masked. */
  include_text?: boolean | null;
  /** Rate limit in requests per second; no limit when absent. */
  rate_per_s?: number | null;
  /** Signing secret to use: `whsec_` and Base64 of 24 to 64 bytes. Generated when absent. */
  secret?: string | null;
  /** Webhook URL: `https://…`. In `dev` mode also `http://` and loopback addresses. */
  url: string;
}

/** An inbox to create. Set `address`, or `username` and `domain`, or neither for a random address. */
export interface NewInbox {
  address?: string | null;
  agent?: string | null;
  /** Registrable domains whose links are allowed, at most 50. When empty, links are judged by the sender's domain. */
  allowed_link_domains?: string[];
  caps?: Caps | null;
  /** Whether the inbox receives mail for every address of its domain without an inbox; needs the scope `admin`. */
  catch_all?: boolean;
  /** Your own id of the inbox. Another call with the same `client_id` returns the same inbox. */
  client_id?: string | null;
  /** Domain of the address; the first domain of this installation by default. */
  domain?: string | null;
  /** Whether replies have the header `Auto-Submitted`, which marks them as written by a machine. */
  mark_auto_submitted?: boolean;
  metadata?: Record<string, string>;
  name?: string | null;
  /** Whether agents may reply to mail that is likely, but not certainly, automatic. */
  reply_to_likely_automatic?: boolean;
  retention?: InboxRetention | null;
  /** Lifetime of the inbox, such as `30m`, `24h` or `7d`; permanent when absent. */
  ttl?: string | null;
  /** Part of the address before the @; random by default. */
  username?: string | null;
}

/** A request for the lease of a thread. */
export interface NewLease {
  holder?: string | null;
  /** Token of your current lease, to renew it. */
  token?: string | null;
  /** Duration of the lease in seconds, 1 to 600; 30 by default. */
  ttl_s?: number | null;
}

/** A watch to start. */
export interface NewWatch {
  /** How often the agent may request that the email is sent again, at most 100; 1 by default. */
  budget?: number | null;
  deadline?: string | null;
  /** `true`: only messages with an authenticated sender count. */
  require_auth?: boolean | null;
}

/** A request for messages to work on. */
export interface NextMessages {
  holder?: string | null;
  /** Maximum number of messages, 1 to 10; 1 by default. */
  limit?: number | null;
  /** Duration of each lease in seconds, 1 to 600; 30 by default. */
  ttl_s?: number | null;
  /** How long to wait for a message in seconds, up to 60; 0 by default. */
  wait?: number | null;
}

/** An attempt to send a notice. */
export interface NoticeAttempt {
  at: string;
  /** Why the attempt failed: `blocked name connect tls timeout broken status`. */
  error?: "blocked" | "name" | "connect" | "tls" | "timeout" | "broken" | "status" | null;
  latency_ms: number;
  number: number;
  /** Start of the response body, or the error message. */
  response: string;
  status?: number | null;
}

/** A notice: one event to be sent to one endpoint. */
export interface Notice {
  /** Id of the object that the event is about. */
  about: string;
  /** Number of attempts that were started. */
  attempt_count: number;
  /** The latest finished attempts, oldest first. */
  attempts: NoticeAttempt[];
  created_at: string;
  endpoint: string;
  /** Cursor of the event. */
  event: string;
  id: string;
  /** When the next attempt is due; null while an earlier notice about the same object is pending. */
  next_attempt_at?: string | null;
  rev: number;
  settled_at?: string | null;
  /** `pending delivered dead dropped`. */
  state: "pending" | "delivered" | "dead" | "dropped";
  type: "email.accepted" | "email.held" | "email.duplicate" | "email.rescheduled" | "email.sent" | "email.delivered" | "email.bounced" | "email.complained" | "email.failed" | "email.deferred" | "email.unknown" | "email.resolved" | "email.cancelled" | "email.resent" | "handoff.orphaned" | "handoff.rerouted" | "message.received" | "delivery.duplicate" | "delivery.refused" | "delivery.failed" | "artifact.found" | "artifact.consumed" | "artifact.applied" | "email.hold_removed" | "email.released" | "message.answered" | "message.forwarded" | "message.reopened" | "message.skipped" | "reply.refused" | "thread.leased" | "thread.cap_reached" | "escalation.opened" | "escalation.resolved" | "domain.verified" | "domain.failed" | "endpoint.disabled" | "key.extended" | "key.forgotten" | "transport.breaker_opened" | "transport.breaker_closed" | "stop.created" | "stop.ended" | "claim.offered" | "claim.claimed" | "claim.begun" | "claim.completed" | "claim.failed" | "claim.freed" | "claim.unknown" | "claim.evidence" | "claim.resolved" | "outbox.row_parked" | "outbox.stopped" | "outbox.resumed" | "audit.recorded" | (string & {});
}

/** A page of notices, latest events first. */
export interface NoticePage {
  data: Notice[];
  next_cursor?: string | null;
}

/** A sender or recipient of a message. */
export interface Party {
  address: string;
  name?: string | null;
}

/** What one check decided about an email. */
export interface PolicyStep {
  id?: string | null;
  kind: "request" | "sender" | "stop" | "suppression" | "list" | "rule" | "budget" | "guard";
  name: string;
  /** `pass hold refuse flag observe`; `observe`: the rule only records what it would have done. */
  verdict: "pass" | "hold" | "refuse" | "flag" | "observe";
  why: string;
}

/** An error response (RFC 9457): what went wrong and what to do next. */
export interface Problem {
  /** Error code. Branch on this value; later versions may have codes that are not listed. */
  code: string;
  /** What went wrong in this call. */
  detail: string;
  /** Path of the invalid field, or name of the invalid parameter or header. */
  field?: string | null;
  /** What to do next, in a sentence that a model can act on. */
  next: string;
  /** Whether to retry: `never`, `same` (the same call with the same idempotency key) or `later` (after a pause). */
  retry: "never" | "same" | "later";
  status: number;
  title: string;
  /** Link to the documentation page of this error code. */
  type: string;
}

/** Which notices to send again. Set either `since` or `after`. */
export interface Recover {
  /** Events after this cursor; `0` for all. */
  after?: string | null;
  /** `failed` (default): dead notices, and notices that wait for a retry. `all`: also those that were delivered. */
  include?: "failed" | "all" | null;
  /** Events at or after this time. */
  since?: string | null;
}

/** Result of a recovery. */
export interface Recovery {
  /** Events after this cursor are sent again. Null when the call is a replay. */
  after?: string | null;
  /** Number of failed notices that are due now. At 5000 there may be more: call again with a new idempotency key. */
  requeued?: number | null;
}

/** The lease to release: your own by its token, or anybody's by force. */
export interface ReleaseLease {
  /** End the lease of another agent, to take over. Needs the scope `approve` or `admin` instead of `reply`. */
  force?: boolean;
  /** Token of the lease. Only its holder knows it. */
  token?: string | null;
}

/** A message with its body. */
export interface RenderedMessage {
  attachments: AttachmentInfo[];
  auth: Auth;
  automatic?: AutomaticReason | null;
  cc: Party[];
  /** Position in the inbox; pass it as `after`. */
  cursor: string;
  date?: string | null;
  /** `message_id_reused no_message_id unreadable cut ambiguous duplicate_header`. */
  flags: ("message_id_reused" | "no_message_id" | "unreadable" | "cut" | "ambiguous" | "duplicate_header")[];
  folder?: string | null;
  from?: Party | null;
  /** Types of the artifacts in the message: `code`, `link`. */
  has: ("code" | "link")[];
  id: string;
  inbox_id: string;
  labels: string[];
  /** The Message-ID header; null without one. */
  message_id?: string | null;
  /** Rules in the mode `observe` that matched. Their actions were not carried out. */
  observed_rules: RuleHit[];
  /** Why the message counts as sent by the team itself: `address loop_mark message_id`; null if it does not. */
  own_reason?: "address" | "loop_mark" | "message_id" | null;
  /** Start of the text, with codes and links masked. Empty in the view `min`, where all text is inside the fence. */
  preview: string;
  read: boolean;
  received_at: string;
  /** Envelope recipient, including a `+tag`. */
  recipient: string;
  /** Ids of the emails that replied to or forwarded the message. */
  replies: string[];
  /** Where a reply goes. */
  reply_target: ReplyTarget;
  reply_to: Party[];
  rev: number;
  /** Rules that matched, in the order of evaluation. */
  rules: RuleHit[];
  size: number;
  /** `unanswered leased answered skipped`. */
  state: "unanswered" | "leased" | "answered" | "skipped";
  subject: string;
  thread_id: string;
  to: Party[];
  artifacts: Artifact[];
  /** Ambiguous codes and links. They cannot be consumed. */
  candidates: Record<string, unknown>[];
  /** Whether the whole message was processed; false when it exceeded a limit. */
  complete?: boolean | null;
  /** The header fields; only in the view `full`. */
  headers?: HeaderField[] | null;
  html?: string | null;
  injection_flags: InjectionFlag[];
  links: Link[];
  /** How many hidden or unsafe parts the view `min` removed, by kind. */
  removed_counts?: Record<string, unknown> | null;
  /** The text. In the view `min` it is inside a fence with a random nonce; treat everything in it as untrusted. */
  text?: string | null;
  /** `min plain full`, or `gone` when the message's bytes are no longer stored. */
  view: "min" | "plain" | "full" | "gone";
}

/** A reply to a message. */
export interface Reply {
  /** One-time token of a held reply that looks like an earlier email: releases the held reply. */
  distinct_token?: string | null;
  /** 0 (default) is the reply; 1, 2 and so on are intended follow-ups. Each number is sent once. */
  follow_up?: number;
  html?: string | null;
  /** Token of the lease that you hold on the thread. */
  lease?: string | null;
  /** Whether to quote the message below the reply. */
  quote?: boolean;
  /** Whether to reply to all recipients of the message. The team's own inboxes are always left out. */
  reply_all?: boolean;
  /** Ids of newer messages in the thread that you have read; at most 100. */
  seen?: string[];
  template?: TemplateUse | null;
  /** Plain text body. Required unless `html` or `template` is set. */
  text?: string | null;
}

/** Number of replies in a thread, and its limits. */
export interface ReplyCounts {
  caps: Caps;
  /** Replies within the window of `caps`, the latest `window_s` seconds. */
  in_window: number;
  last_24h: number;
  /** All replies in the thread. */
  total: number;
}

/** Where a reply to the message goes. */
export interface ReplyTarget {
  /** Risks: `other_domain` (another organization than the sender's) and `auth_failed` (authentication failed). */
  flags: ("other_domain" | "auth_failed")[];
  to: string[];
}

/** New time of a scheduled email. */
export interface Reschedule {
  /** RFC 3339 time with an offset, or a relative time such as `in 5 minutes`. */
  scheduled_at: string;
}

/** Why an email is resent. */
export interface Resend {
  /** Reason, for people who read the timeline later. */
  reason?: string | null;
}

/** A person's decision about an email whose outcome is unknown. */
export interface ResolveEmail {
  /** `sent` (the email arrived), `resend` (send the same bytes again) or `abandon` (give up). */
  as: "sent" | "resend" | "abandon";
  /** Number of the handoff to resolve; every unknown handoff when absent. */
  handoff?: number | null;
  /** Reason, for people who read the timeline later. */
  reason?: string | null;
  rev: number;
}

/** Rotation of an endpoint's secret. */
export interface RotateEndpoint {
  /** How long requests are also signed with the previous secrets; `24h` by default, at most `30d`. */
  previous_secret_ttl?: string | null;
  /** New signing secret: `whsec_…`. Generated when absent. */
  secret?: string | null;
}

/** A rule that matched the message. */
export interface RuleHit {
  /** Actions of the rule, such as `folder` and `label`. */
  actions: ("block" | "folder" | "label" | "skip_agent" | "mark_read" | "approve" | "approve_new_recipients")[];
  id: string;
  name: string;
}

/** A string, a number up to 2^53-1 or a boolean. */
export type Scalar = string | number | boolean;

/** An email to send once. */
export interface Send {
  attachments?: Attachment[] | null;
  bcc?: Addresses;
  cc?: Addresses;
  /** One-time token of a held email that looks like an earlier one: confirms that it is a different email. */
  distinct_token?: string | null;
  from: string;
  /** Custom headers, by name. */
  headers?: Record<string, string> | null;
  html?: string | null;
  intent?: Intent | null;
  metadata?: Record<string, Scalar> | null;
  /** What to do when the key was used for a different email. `reject` answers 422; `first_wins` answers with the first email. The default is `reject` for header keys and `first_wins` for intents. */
  on_mismatch?: "reject" | "first_wins" | null;
  /** What to do when the outcome is unknown. `hold` (default) waits for evidence or a person; `resend` sends once more, so the recipient may get it twice. */
  on_unknown?: "hold" | "resend" | null;
  reply_to?: Addresses;
  /** When to send: RFC 3339 time with an offset, or a relative time such as `in 5 minutes`. At once when absent. */
  scheduled_at?: string | null;
  subject?: string | null;
  tags?: Tag[] | null;
  template?: TemplateUse | null;
  /** Plain text body. Required unless `html` or `template` is set. */
  text?: string | null;
  to: Addresses;
  transport?: string | null;
  ttl?: Ttl | null;
}

/** The response to a send. A retry gets the same email with its current state. */
export interface SendReceipt {
  created_at: string;
  dedupe: Dedupe;
  /** One-time token of a held email that looks like an earlier one. If it is a different email, send the same call again with this token: the held email is released. */
  distinct_token?: string | null;
  /** The fence of that thread's latest lease. */
  fence?: number | null;
  /** The most important guard in `holds`, or the one that held or flagged the email, or found a duplicate. */
  guard?: "self" | "automatic" | "already_answered" | "leased" | "newer_message" | "cap" | "looks_duplicate" | "overlaps" | "approval" | "budget" | "reply_to" | (string & {}) | null;
  /** The guards that hold the email. It leaves when none is left. */
  holds?: ("self" | "automatic" | "already_answered" | "leased" | "newer_message" | "cap" | "looks_duplicate" | "overlaps" | "approval" | "budget" | "reply_to" | (string & {}))[];
  id: string;
  /** The Message-ID header, with angle brackets. */
  message_id: string;
  /** What this response means and what to do next, in a sentence. */
  next: string;
  /** With `Prefer: policy-trace`: what each check decided about the email when it was accepted, in order. */
  policy?: PolicyStep[] | null;
  /** Id of the next version, if the email was resent. */
  resent_as?: string | null;
  rev: number;
  state: "scheduled" | "queued" | "sending" | "sent" | "delivered" | "bounced" | "complained" | "failed" | "unknown" | "abandoned" | "held" | "cancelled";
  thread_id?: string | null;
  tightest_budget?: BudgetRoom | null;
}

/** An attachment, without its bytes. `GET /v1/emails/{id}/attachments/{n}` returns the bytes; the first is number 0. */
export interface SentAttachment {
  content_id?: string | null;
  content_type?: string | null;
  filename?: string | null;
  size: number;
}

/** A duplicate call that was answered with an earlier email. */
export interface SuppressedCall {
  at: string;
  call?: CallTrace | null;
  /** Id of the API key of the call. */
  caller?: string | null;
  channel: "http" | "batch" | "cli" | "resend" | "usesend" | "mcp" | "agentmail" | "outbox";
  reason: "key_replay" | "payload_differs" | "mismatch" | "already_answered" | "identical" | (string & {});
}

/** A tag: a name, or a name with a value. */
export type Tag = string | TagPair;

/** A tag with a value. */
export interface TagPair {
  name: string;
  /** Value of the tag. */
  value?: string | null;
}

/** A template and its version. */
export interface TemplateRef {
  name: string;
  version: number;
}

/** The template that writes an email. */
export interface TemplateUse {
  name: string;
  /** Values, by variable. */
  variables?: Record<string, unknown> | null;
  version?: number | null;
}

/** A thread: messages and emails that reply to each other. */
export interface Thread {
  created_at: string;
  email_count: number;
  /** The latest 100 messages and 100 emails, oldest first; only when a single thread is read. */
  entries?: ThreadEntry[] | null;
  /** Fence of the latest lease; grows with each lease. */
  fence: number;
  /** When the thread was marked as handled; null if it is not. A new message clears the mark. */
  handled_at?: string | null;
  id: string;
  inbox_id: string;
  labels: string[];
  /** When the last message or email was added. */
  last_activity_at: string;
  lease?: LeaseHolder | null;
  message_count: number;
  replies?: ReplyCounts | null;
  rev: number;
  subject: string;
}

/** An entry of a thread: a received message or a sent email. */
export interface ThreadEntry {
  /** The message. */
  message?: Message;
  type: "message" | "email";
  /** The email. */
  email?: Email;
}

/** A page of threads, latest activity first. */
export interface ThreadPage {
  data: Thread[];
  next_cursor?: string | null;
}

/** Fields of a thread to change. Absent fields keep their value. */
export interface ThreadPatch {
  /** Whether the thread is handled: nothing is left to do. */
  handled?: boolean | null;
  labels?: string[] | null;
}

/** An entry in the timeline of an email. */
export interface TimelineEntry {
  at: string;
  /** What happened, in a sentence. */
  description: string;
}

/** How long an idempotency key is remembered. */
export type Ttl = string | TtlClass;

/** Key lifetime for a recurring email: twice its interval. */
export interface TtlClass {
  /** Always `scheduled`. */
  class: "scheduled";
  /** How often the email recurs, such as `7d`. */
  interval: string;
}

/** The message that was waited for. */
export interface WaitResult {
  /** Pass it as `after` to wait for the next message. */
  cursor: string;
  message: Message;
}

/** A watch: one run of an agent that waits for mail. */
export interface Watch {
  /** How often the agent may ask for the mail again. */
  budget: number;
  /** Only messages after this cursor count. */
  cursor: string;
  deadline: string;
  id: string;
  inbox_id: string;
  /** Whether only messages with an authenticated sender count. */
  require_auth: boolean;
  /** How often the agent asked for the mail again. */
  resends_used: number;
  rev: number;
  started_at: string;
}

/** A message to work on. */
export interface WorkItem {
  lease: Lease;
  message: Message;
  /** Ids of newer messages from people in the thread. Read them, and list them in `seen` when you reply. */
  newer_messages: string[];
}

/** Messages to work on, each with a lease. */
export interface WorkItemPage {
  data: WorkItem[];
}

// The shapes of the wire, from openapi.json by sdks/generate. Do not edit.

/** What an agent says about a message that it holds. */
export interface Acknowledgement {
  /** For `nack`: others may try after so many seconds; 0 by default. */
  delay_s?: number | null;
  /** The token of the lease. */
  lease: string;
  /** For `extend`: how long from now, 1 to 600 seconds; 30 by default. */
  ttl_s?: number | null;
}

/** A message as it stands. */
export interface AcknowledgementResult {
  lease?: Lease | null;
  message: Message;
}

/** One address or a list of them. */
export type Addresses = string | string[];

/** For whom it was taken. */
export interface ArtifactApplied {
  for: string;
}

/** A code or link. */
export interface Artifact {
  applied_at?: string | null;
  /** 0 to 100. */
  confidence: number;
  consumed_at?: string | null;
  consumed_for?: string | null;
  found_at: string;
  id: string;
  inbox_id: string;
  masked: string;
  /** Our id of the message. */
  message: string;
  reasons: string[];
  rev: number;
  sender: string;
  sender_authenticated: boolean;
  /** `code` or `link`. */
  type: string;
  /** Only for whoever took it, and with the scope `secrets`. */
  value?: string | null;
  watch?: string | null;
}

/** What was found in a message. */
export interface ArtifactPage {
  /** What else it could be; never given out. */
  candidates: Record<string, unknown>[];
  /** Decided ones, best first. */
  data: Artifact[];
  next_cursor?: string | null;
}

/** A file that goes with the mail. */
export interface Attachment {
  /** Base64. */
  content: string;
  /** For inline images. */
  content_id?: string | null;
  /** MIME type. */
  content_type?: string | null;
  /** File name. */
  filename?: string | null;
}

/** An attachment by handle: `GET /v1/messages/{id}/attachments/{n}` has its bytes. */
export interface AttachmentInfo {
  content_id?: string | null;
  content_type: string;
  filename?: string | null;
  inline: boolean;
  n: number;
  size: number;
}

/** One try at an envelope. */
export interface Attempt {
  /** When it was marked, or began when it never came so far. */
  at: string;
  /** The SMTP or HTTP status. */
  code?: number | null;
  /** When its answer was written down; null while it is on the wire. */
  ended_at?: string | null;
  /** Whether an earlier attempt may have succeeded already. */
  may_duplicate: boolean;
  number: number;
  /** `accepted deferred refused unknown`; null while it is on the wire. */
  outcome?: string | null;
  /** How far it came: `connect tls greet login mail rcpt data final`. */
  phase?: string | null;
  /** The next hop's own name for the mail. */
  remote_id?: string | null;
  /** What the next hop said. */
  reply: string;
  /** The way out it took. */
  transport?: string | null;
}

/** Whether a sender is who it says. */
export interface Auth {
  dkim: string;
  dmarc: string;
  domain?: string | null;
  spf: string;
  /** Our own: `pass`, `fail`, `none` or `temperror`. */
  verdict: string;
}

/** Why a message counts as automatic. */
export interface AutomaticReason {
  /** Whether the inbox's setting `reply_to_likely_automatic` allows an answer all the same. */
  overridable: boolean;
  reason: string;
}

/** What was wrong with one item. */
export interface BatchItemError {
  code: string;
  field?: string | null;
  index: number;
  message: string;
}

/** The answer to a batch. */
export interface BatchReceipt {
  /** In order; null where `errors` has a row. */
  data: (SendReceipt | null)[];
  errors: BatchItemError[];
}

/** What a caller calls its own call: for correlation, it decides nothing. */
export interface CallTrace {
  /** From `Mailonce-Call-Id`, or the `_meta` of a model's call. */
  id?: string | null;
  /** From `traceparent` (W3C Trace Context). */
  traceparent?: string | null;
}

/** How many answers are too many. What is absent stays; a new inbox begins with 3 in 300 s and 20 a day in a thread, and 20 a day to a person. */
export interface Caps {
  /** Answers to one person within a day, over all threads. */
  per_recipient_per_day?: number | null;
  /** Answers in a thread within a day. */
  per_thread_per_day?: number | null;
  /** Answers in a thread in all; any number without it, and again after `null`. */
  per_thread_total?: number | null;
  /** Answers in a thread within the window; the next is held. */
  per_window?: number | null;
  /** Seconds, at most a day. */
  window_s?: number | null;
}

/** For whom an artifact is taken. */
export interface Consume {
  /** The account, workflow or run it is for. The same again gets the same answer; another is refused. */
  for: string;
  /** The id of the watch it belongs to. */
  watch?: string | null;
}

/** Which artifact of an inbox is taken, and for whom. */
export interface ConsumeMatch {
  for: string;
  match?: MessageMatch | null;
  /** `code` or `link`. */
  type: string;
  watch?: string | null;
}

/** An artifact that was taken. */
export interface ConsumedArtifact {
  artifact: Artifact;
}

/** What the key of a send did. */
export interface Dedupe {
  /** When the key is forgotten; null until the email is settled. */
  expires_at?: string | null;
  /** The key, given or derived; null without one. */
  key?: string | null;
  /** `first` or `replayed`. */
  outcome: string;
  /** Whether this call said something else than the first one. */
  payload_differs: boolean;
  /** Calls that were answered with this email instead of making another. */
  suppressed: number;
}

/** One email in a list. */
export interface Email {
  bcc?: string[];
  call?: CallTrace | null;
  cc?: string[];
  /** How many envelopes are in which state. */
  counts: Record<string, number>;
  created_at: string;
  /** When the key is forgotten; null until the email is settled. */
  expires_at?: string | null;
  from: string;
  guard?: string | null;
  id: string;
  key?: string | null;
  message_id: string;
  /** The message it answers or passes on. */
  reply_to_message?: string | null;
  resend_of?: string | null;
  resent_as?: string | null;
  rev: number;
  /** When it is due, while it is scheduled, or held for a person and wished for later. */
  scheduled_at?: string | null;
  settled_at?: string | null;
  state: string;
  subject: string;
  suppressed: number;
  thread_id?: string | null;
  to: string[];
  version: number;
}

/** Everything about one email. */
export interface EmailDetail {
  bcc?: string[];
  call?: CallTrace | null;
  cc?: string[];
  /** How many envelopes are in which state. */
  counts: Record<string, number>;
  created_at: string;
  /** When the key is forgotten; null until the email is settled. */
  expires_at?: string | null;
  from: string;
  guard?: string | null;
  id: string;
  key?: string | null;
  message_id: string;
  /** The message it answers or passes on. */
  reply_to_message?: string | null;
  resend_of?: string | null;
  resent_as?: string | null;
  rev: number;
  /** When it is due, while it is scheduled, or held for a person and wished for later. */
  scheduled_at?: string | null;
  settled_at?: string | null;
  state: string;
  subject: string;
  suppressed: number;
  thread_id?: string | null;
  to: string[];
  version: number;
  attachments: SentAttachment[];
  /** In the order it was learnt. */
  evidence: Evidence[];
  handoffs: Handoff[];
  headers: Record<string, string>;
  html?: string | null;
  intent?: Intent | null;
  metadata: Record<string, unknown>;
  on_unknown: string;
  reply_to: string[];
  /** The latest 20, newest first. */
  suppressed_calls: SuppressedCall[];
  tags: Record<string, unknown>;
  /** Null, like the other parts of the content, once the body was dropped. */
  text?: string | null;
  timeline: TimelineEntry[];
}

/** A page of emails, newest first. */
export interface EmailPage {
  data: Email[];
  /** Pass it as `cursor`; null at the end. A page may be short and still have more behind it. */
  next_cursor?: string | null;
}

/** No words are needed. */
export interface Empty {
}

/** An endpoint. */
export interface Endpoint {
  created_at: string;
  /** The last event that was looked at for it. */
  cursor: string;
  description: string;
  /** In whose words it is told, when not in ours. */
  dialect?: string | null;
  events: string[];
  /** When it failed first since it last succeeded. */
  failing_since?: string | null;
  /** The names of its custom headers. */
  headers: string[];
  id: string;
  inboxes: string[];
  /** Whether `message.received` carries the text of the message. */
  include_text: boolean;
  rate_per_s?: number | null;
  /** Why it is not enabled: `asked`, `gone` (it answered 410) or `failing` (nothing reached it for 14 days). */
  reason?: string | null;
  rev: number;
  /** `whsec_…`, when it was just made. */
  secret?: string | null;
  /** How many secrets sign at the moment. */
  secret_count: number;
  /** `enabled`, `paused` or `disabled`. */
  state: string;
  /** Since when its state is what it is. */
  state_since: string;
  url: string;
  /** The wire format that it was made with. */
  version: string;
}

/** Endpoints, newest first. */
export interface EndpointPage {
  data: Endpoint[];
  next_cursor?: string | null;
}

/** What to change. What is left out stays. */
export interface EndpointPatch {
  description?: string | null;
  events?: string[] | null;
  /** All of them: what is not named goes. */
  headers?: Record<string, string> | null;
  inboxes?: string[] | null;
  include_text?: boolean | null;
  /** `null` for no limit. */
  rate_per_s?: number | null;
  /** The rev that was seen, if it must still be that. */
  rev?: number | null;
  url?: string | null;
}

/** How a test went. */
export interface EndpointTest {
  /** Whether the answer was 2xx. */
  delivered: boolean;
  /** Else why not: `blocked name connect tls timeout broken`. */
  error?: string | null;
  /** The `webhook-id` of the test. */
  id: string;
  latency_ms: number;
  /** The beginning of the answer, or what went wrong. */
  response: string;
  /** The status of the answer, if there was one. */
  status?: number | null;
}

/** A fact. */
export interface Event {
  about: EventSubject;
  at: string;
  /** `epoch-seq`. */
  cursor: string;
  data: Record<string, unknown>;
  id: string;
  /** From 1, without gaps. */
  seq: number;
  type: string;
}

/** Events, oldest first. */
export interface EventPage {
  data: Event[];
  /** Pass it as `after`; null when there was nothing to look at. With a filter a page may be short, even empty, and still have more behind it. */
  next_cursor?: string | null;
}

/** What an event is about. */
export interface EventSubject {
  id: string;
  kind: string;
  rev: number;
}

/** A fact about what the next hop did. */
export interface Evidence {
  at: string;
  attempt?: number | null;
  detail: string;
  handoff: number;
  /** `accepted not_found silent not_accepted delivered delayed bounced complained again abandoned lost` */
  says: string;
  /** `late_reply look_up provider_event bounce person policy window crash` */
  source: string;
}

/** A message to be passed on. */
export interface Forward {
  cc?: Addresses;
  /** The one-use token of a held look-alike: that email goes, and never another. */
  distinct_token?: string | null;
  /** The token of the lease that you hold. */
  lease?: string | null;
  /** Words before it. */
  text?: string | null;
  to: Addresses;
}

/** One envelope. */
export interface Handoff {
  attempts: Attempt[];
  /** When it is tried next, or looked at again while it is unknown. */
  due_at?: string | null;
  /** Whether some attempt may have succeeded without our knowing. */
  in_doubt: boolean;
  /** Whether the recipient may have it twice. */
  may_duplicate: boolean;
  number: number;
  /** Why it waits or failed. */
  reason?: string | null;
  recipients: string[];
  /** `scheduled queued leased sending sent delivered bounced complained failed unknown abandoned held cancelled` */
  state: string;
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
  allowed_link_domains: string[];
  caps: Caps;
  catch_all: boolean;
  client_id?: string | null;
  created_at: string;
  /** The place after its latest message, for `after`. */
  cursor: string;
  /** From then on it refuses mail; its history stays. */
  expires_at?: string | null;
  id: string;
  mark_auto_submitted: boolean;
  /** Messages that arrived. */
  message_count: number;
  metadata: Record<string, string>;
  name?: string | null;
  reply_to_likely_automatic: boolean;
  rev: number;
}

/** Inboxes, newest first. */
export interface InboxPage {
  data: Inbox[];
  next_cursor?: string | null;
}

/** What to change. Absent members stay; `null` takes away. */
export interface InboxPatch {
  agent?: string | null;
  allowed_link_domains?: string[] | null;
  caps?: Caps | null;
  catch_all?: boolean | null;
  mark_auto_submitted?: boolean | null;
  metadata?: Record<string, string> | null;
  name?: string | null;
  reply_to_likely_automatic?: boolean | null;
  /** The rev that was seen; a stale one is refused. */
  rev?: number | null;
  /** From now on: `30m`, `24h`; `0s` expires it now, `null` makes it permanent. */
  ttl?: string | null;
}

/** A sign that somebody talks to the model. */
export interface InjectionFlag {
  count: number;
  flag: string;
}

/** What a mail is about. Its key follows from this and from `to`, so that every retry has the same key. */
export interface Intent {
  /** What it is about: `order_4821`. */
  entity: string;
  /** The day, week or run it belongs to, when it recurs. */
  period?: string | null;
  /** What kind of mail it is: `order.confirmation`. */
  type: string;
  /** Rises when the same thing is told again on purpose. */
  version?: number | null;
}

/** A key as it is now. */
export interface Key {
  /** How often it was bound. */
  bind_number: number;
  /** `email`, `operation` or `forgotten`. */
  bound_to: string;
  /** How it came about: `intent` or `header`. */
  derivation?: string | null;
  /** The versioned hash of the email's meaning. */
  digest?: string | null;
  /** The email it is bound to. */
  email?: string | null;
  /** When it is forgotten; null until the email is settled. */
  expires_at?: string | null;
  forgotten_at?: string | null;
  /** Calls answered with the email instead of making another. */
  hits: number;
  intent?: Intent | null;
  key: string;
  state?: string | null;
  /** The latest 20, newest first. */
  suppressed_calls: SuppressedCall[];
  ttl?: string | null;
}

/** Another memory for a key. */
export interface KeyPatch {
  ttl: Ttl;
}

/** A lease. */
export interface Lease {
  expires_at: string;
  /** Grows with each lease of the thread. */
  fence: number;
  holder: string;
  /** Show it as `lease` when you answer. */
  token: string;
}

/** Who works on a thread. */
export interface LeaseHolder {
  expires_at: string;
  holder: string;
  /** The message it was offered with. */
  message?: string | null;
}

/** A link with its verdict. It is never followed. */
export interface Link {
  host?: string | null;
  /** What it is for, when it says so: `verify`, `reset` … */
  purpose?: string | null;
  reasons: string[];
  /** The whole address; only with the scope `secrets`, since a link may be a secret. */
  url?: string | null;
  /** `allowed suspicious blocked`. */
  verdict: string;
}

/** A message, without what it says. */
export interface Message {
  attachments: AttachmentInfo[];
  auth: Auth;
  automatic?: AutomaticReason | null;
  cc: Party[];
  /** Its place in the inbox, for `after`. */
  cursor: string;
  date?: string | null;
  /** `message_id_reused no_message_id unreadable cut ambiguous duplicate_header`. */
  flags: string[];
  folder?: string | null;
  from?: Party | null;
  /** What was found in it: `code`, `link`. */
  has: string[];
  id: string;
  inbox_id: string;
  labels: string[];
  message_id?: string | null;
  /** Why it counts as our own: `address loop_mark message_id`. */
  own_reason?: string | null;
  /** The start of what it says, secrets masked; empty in the view `min`, whose text stands between fences. */
  preview: string;
  read: boolean;
  received_at: string;
  /** The address it was sent to, plus tag and all. */
  recipient: string;
  /** Emails that answered it or passed it on. */
  replies: string[];
  /** Where an answer goes. */
  reply_target: ReplyTarget;
  reply_to: Party[];
  rev: number;
  /** Rules that matched, in the order in which they were asked. */
  rules: RuleHit[];
  size: number;
  /** `unanswered leased answered skipped`. */
  state: string;
  subject: string;
  thread_id: string;
  to: Party[];
}

/** What its message must be like. */
export interface MessageMatch {
  /** An address, or `@domain`. */
  from?: string | null;
  /** Part of the subject. */
  subject?: string | null;
}

/** Messages in the order that was asked for. */
export interface MessagePage {
  data: Message[];
  /** Where to go on, as `cursor` newest first and as `after` oldest first; null at the end. */
  next_cursor?: string | null;
}

/** An endpoint to make. */
export interface NewEndpoint {
  /** Where to begin: a cursor, or `0` for every event there ever was. Left out, with the next event. */
  after?: string | null;
  /** For people. */
  description?: string | null;
  /** In whose words it is told and signed: `resend` or `usesend`. Left out, in ours. Events that the dialect has no word for are not told. */
  dialect?: string | null;
  /** Types such as `email.sent`, families such as `email.*`, or `["*"]`, which is what absence means. */
  events?: string[] | null;
  /** Headers that every request carries. Their values are not shown again. */
  headers?: Record<string, string> | null;
  /** Only what happens at these inboxes, by id. */
  inboxes?: string[] | null;
  /** Whether `message.received` carries the visible text of the message, its codes hidden. */
  include_text?: boolean | null;
  /** Requests a second at the most. */
  rate_per_s?: number | null;
  /** A secret that you already have: `whsec_` and base64 of 24 to 64 bytes. Left out, one is made. */
  secret?: string | null;
  /** Where notices go: `https://…`. In `dev` also `http://` and this machine. */
  url: string;
}

/** An inbox to make: a whole `address`, or `username` and `domain`, or neither for a random one. */
export interface NewInbox {
  address?: string | null;
  /** The agent it is for. */
  agent?: string | null;
  /** Registrable domains whose links are allowed; without any, links are judged by their sender. */
  allowed_link_domains?: string[];
  caps?: Caps | null;
  /** Whether it takes mail for every address of its domain that has no inbox; needs `admin`. */
  catch_all?: boolean;
  /** The same `client_id` again answers with the same inbox. */
  client_id?: string | null;
  /** The first domain of this installation by default. */
  domain?: string | null;
  /** Whether its answers say that a machine wrote them (`Auto-Submitted`). */
  mark_auto_submitted?: boolean;
  metadata?: Record<string, string>;
  /** The name beside its address in mail that it sends. */
  name?: string | null;
  /** Whether mail that only looks automatic may be answered. */
  reply_to_likely_automatic?: boolean;
  /** How long it takes mail: `30m`, `24h`, `7d`. Without one it is permanent. */
  ttl?: string | null;
  username?: string | null;
}

/** A wish for a lease. */
export interface NewLease {
  /** Who asks, as people call it; the name of the API key by default. */
  holder?: string | null;
  /** The token of your lease, to renew it. */
  token?: string | null;
  /** 1 to 600; 30 by default. */
  ttl_s?: number | null;
}

/** A watch to begin. */
export interface NewWatch {
  /** How often its agent may ask for the mail to be sent again; 1 by default. */
  budget?: number | null;
  /** When it ends: an instant, or a time from now such as `5m`; 10 minutes by default. */
  deadline?: string | null;
  /** `true`: only mail whose sender is authenticated counts. */
  require_auth?: boolean | null;
}

/** A wish for work. */
export interface NextMessages {
  /** Who asks, as people call it; the name of the API key by default. */
  holder?: string | null;
  /** At most so many messages, 1 to 10; 1 by default. */
  limit?: number | null;
  /** How long each lease lasts, 1 to 600 seconds; 30 by default. */
  ttl_s?: number | null;
  /** How long to wait for a message, up to 60 seconds; 0 by default. */
  wait?: number | null;
}

/** An attempt to tell. */
export interface NoticeAttempt {
  at: string;
  /** What went wrong: `blocked name connect tls timeout broken status`. */
  error?: string | null;
  latency_ms: number;
  number: number;
  /** The beginning of the answer, or what went wrong. */
  response: string;
  /** The status of the answer, if there was one. */
  status?: number | null;
}

/** One event owed to one endpoint. */
export interface Notice {
  /** The id of what the event is about. */
  about: string;
  /** Attempts that were begun. */
  attempt_count: number;
  /** The latest attempts that ended, oldest first. */
  attempts: NoticeAttempt[];
  created_at: string;
  endpoint: string;
  /** The cursor of its event. */
  event: string;
  /** Its `webhook-id`, the same at every attempt. */
  id: string;
  /** When it is due. Null while it stands behind an earlier one about the same thing. */
  next_attempt_at?: string | null;
  rev: number;
  settled_at?: string | null;
  /** `pending delivered dead dropped`. */
  state: string;
  type: string;
}

/** Notices, those of the latest events first. */
export interface NoticePage {
  data: Notice[];
  next_cursor?: string | null;
}

/** Somebody named in a mail. */
export interface Party {
  address: string;
  name?: string | null;
}

/** Why a call did not do what it asked, and what to do next. */
export interface Problem {
  /** The word to branch on. */
  code: string;
  /** What happened this time. */
  detail: string;
  /** The field or parameter at fault. */
  field?: string | null;
  /** One sentence that a model can act on. */
  next: string;
  /** Whether the same call may be sent again: `never`, `same` (unchanged, with the same key) or `later`. */
  retry: string;
  /** The HTTP status. */
  status: number;
  /** A short name for people. */
  title: string;
  /** A link to the page of this code. */
  type: string;
}

/** From where to tell again: one of `since` and `after`. */
export interface Recover {
  /** Events after this cursor; `0` for all. */
  after?: string | null;
  /** `failed` (default): what was given up or waits for its next try. `all`: everything, also what was delivered. */
  include?: string | null;
  /** Events at or after this time. */
  since?: string | null;
}

/** What is told again. */
export interface Recovery {
  /** The cursor behind which events are told again. Null when this was asked before. */
  after?: string | null;
  /** Failed notices that are due now. At 5000 there may be more: ask again under another key. */
  requeued?: number | null;
}

/** Which lease to give back. */
export interface ReleaseLease {
  /** Its token: only your own is given back. */
  token: string;
}

/** A message with what it says. */
export interface RenderedMessage {
  attachments: AttachmentInfo[];
  auth: Auth;
  automatic?: AutomaticReason | null;
  cc: Party[];
  /** Its place in the inbox, for `after`. */
  cursor: string;
  date?: string | null;
  /** `message_id_reused no_message_id unreadable cut ambiguous duplicate_header`. */
  flags: string[];
  folder?: string | null;
  from?: Party | null;
  /** What was found in it: `code`, `link`. */
  has: string[];
  id: string;
  inbox_id: string;
  labels: string[];
  message_id?: string | null;
  /** Why it counts as our own: `address loop_mark message_id`. */
  own_reason?: string | null;
  /** The start of what it says, secrets masked; empty in the view `min`, whose text stands between fences. */
  preview: string;
  read: boolean;
  received_at: string;
  /** The address it was sent to, plus tag and all. */
  recipient: string;
  /** Emails that answered it or passed it on. */
  replies: string[];
  /** Where an answer goes. */
  reply_target: ReplyTarget;
  reply_to: Party[];
  rev: number;
  /** Rules that matched, in the order in which they were asked. */
  rules: RuleHit[];
  size: number;
  /** `unanswered leased answered skipped`. */
  state: string;
  subject: string;
  thread_id: string;
  to: Party[];
  artifacts: Artifact[];
  /** What else it could hold; never given out. */
  candidates: Record<string, unknown>[];
  /** Whether all of the mail was looked at. */
  complete?: boolean | null;
  /** In `full`. */
  headers?: HeaderField[] | null;
  /** In `full`: without anything that acts or loads. */
  html?: string | null;
  injection_flags: InjectionFlag[];
  links: Link[];
  /** What `min` took out, counted. */
  removed_counts?: Record<string, unknown> | null;
  /** In `min` between fences with a random word: everything in it is untrusted. */
  text?: string | null;
  /** `min plain full`, or `gone` when its bytes are no longer kept. */
  view: string;
}

/** An answer to a message. */
export interface Reply {
  /** The one-use token of a held look-alike: that answer goes, and never another. */
  distinct_token?: string | null;
  /** 0 is the answer, higher numbers are wanted follow-ups; each is sent once. */
  follow_up?: number;
  html?: string | null;
  /** The token of the lease that you hold. */
  lease?: string | null;
  /** Whether the message follows below your words. */
  quote?: boolean;
  /** Whether everybody who got the message gets the answer; our own addresses never do. */
  reply_all?: boolean;
  /** Ids of newer messages in the thread that you have read. */
  seen?: string[];
  /** Plain text. This or `html`, or both. */
  text?: string | null;
}

/** How often a thread was answered, and how often it may be. */
export interface ReplyCounts {
  caps: Caps;
  in_window: number;
  /** Within the last 24 hours. */
  last_24h: number;
  total: number;
}

/** Where an answer to a message goes. */
export interface ReplyTarget {
  /** `other_domain`: not the sender's organization. `auth_failed`: the sender's domain disowns the message. */
  flags: string[];
  /** The addresses: those of Reply-To, else the sender. */
  to: string[];
}

/** Another time for a scheduled email. */
export interface Reschedule {
  /** RFC 3339 with an offset, or `in 5 minutes`. */
  scheduled_at: string;
}

/** Why an email is sent again. */
export interface Resend {
  /** For whoever reads the timeline. */
  reason?: string | null;
}

/** What became of an email whose outcome is unknown, as a person decides. */
export interface ResolveEmail {
  /** `sent` (it arrived), `resend` (send the same bytes again), `abandon` (give it up). */
  as: string;
  /** Only this handoff; every unknown one when it is left out. */
  handoff?: number | null;
  /** For whoever reads the timeline. */
  reason?: string | null;
  /** The email's `rev` as you saw it. */
  rev: number;
}

/** Another secret. */
export interface RotateEndpoint {
  /** How long the secrets before still sign beside it, `24h` by default, at most `30d`. */
  previous_secret_ttl?: string | null;
  /** A secret that you already have. Left out, one is made. */
  secret?: string | null;
}

/** A rule that matched. */
export interface RuleHit {
  /** What was done: `folder`, `label` … */
  actions: string[];
  id: string;
  /** Its name at the time. */
  name: string;
}

/** A string, a number up to 2^53-1 or a boolean. */
export type Scalar = string | number | boolean;

/** An email to send once. */
export interface Send {
  attachments?: Attachment[] | null;
  bcc?: Addresses;
  cc?: Addresses;
  /** The one-use token of a held look-alike. */
  distinct_token?: string | null;
  /** `agent@example.com` or `Name <agent@example.com>`. */
  from: string;
  /** Custom headers. */
  headers?: Record<string, string> | null;
  html?: string | null;
  intent?: Intent | null;
  /** Strings, numbers up to 2^53-1 and booleans. */
  metadata?: Record<string, Scalar> | null;
  /** `reject` or `first_wins`. */
  on_mismatch?: string | null;
  /** `hold` or `resend`. */
  on_unknown?: string | null;
  reply_to?: Addresses;
  /** RFC 3339 with an offset, or `in 5 minutes`. */
  scheduled_at?: string | null;
  subject?: string | null;
  tags?: Tag[] | null;
  /** Plain text body. This or `html`, or both. */
  text?: string | null;
  to: Addresses;
  /** The name of a configured transport. */
  transport?: string | null;
  ttl?: Ttl | null;
}

/** The answer to a send, the first time and every time after. */
export interface SendReceipt {
  created_at: string;
  dedupe: Dedupe;
  /** Post the mail again with it if this held look-alike is meant; it goes, and never another. */
  distinct_token?: string | null;
  /** The fence of that thread's latest lease. */
  fence?: number | null;
  /** The guard that spoke. */
  guard?: string | null;
  id: string;
  /** With angle brackets. */
  message_id: string;
  /** What this answer means, in a sentence. */
  next: string;
  /** The version that followed it, when there is one. */
  resent_as?: string | null;
  rev: number;
  /** `scheduled queued sending sent delivered bounced complained failed unknown abandoned held cancelled` */
  state: string;
  /** The thread that an answer belongs to. */
  thread_id?: string | null;
}

/** An attachment, without its bytes. */
export interface SentAttachment {
  content_id?: string | null;
  content_type?: string | null;
  filename?: string | null;
  size: number;
}

/** A call that was answered with an earlier email. */
export interface SuppressedCall {
  at: string;
  call?: CallTrace | null;
  /** The id of the API key it came with. */
  caller?: string | null;
  channel: string;
  /** `key_replay payload_differs mismatch already_answered` */
  reason: string;
}

/** A tag: a name, or a name with a value. */
export type Tag = string | TagPair;

/** A tag with a value. */
export interface TagPair {
  name: string;
  value?: string | null;
}

/** Messages and emails that answer each other. */
export interface Thread {
  created_at: string;
  email_count: number;
  /** What was said, oldest first, the latest 100 of each direction; only when one thread is read. */
  entries?: ThreadEntry[] | null;
  /** The fence of its latest lease. */
  fence: number;
  /** When somebody said that nothing is left to do; a new message takes that back. */
  handled_at?: string | null;
  id: string;
  inbox_id: string;
  labels: string[];
  /** When something was last added to it. */
  last_activity_at: string;
  lease?: LeaseHolder | null;
  message_count: number;
  replies?: ReplyCounts | null;
  rev: number;
  subject: string;
}

/** Something that was said. */
export interface ThreadEntry {
  /** The message. */
  message?: Message;
  type: "message" | "email";
  /** The email. */
  email?: Email;
}

/** Threads, those with the latest news first. */
export interface ThreadPage {
  data: Thread[];
  next_cursor?: string | null;
}

/** What to change. Absent members stay. */
export interface ThreadPatch {
  /** Whether nothing is left to do. */
  handled?: boolean | null;
  /** All labels from now on. */
  labels?: string[] | null;
}

/** Something that happened to an email. */
export interface TimelineEntry {
  at: string;
  description: string;
}

/** How long a key is remembered. */
export type Ttl = string | TtlClass;

/** The memory of a mail that recurs. */
export interface TtlClass {
  /** `scheduled`. */
  class: string;
  /** How often it recurs: `7d`. */
  interval: string;
}

/** A message that arrived. */
export interface WaitResult {
  /** Pass it as `after` to go on. */
  cursor: string;
  message: Message;
}

/** A watch. */
export interface Watch {
  budget: number;
  /** Only mail after this place counts. */
  cursor: string;
  deadline: string;
  id: string;
  inbox_id: string;
  /** Whether only mail whose sender is authenticated counts. */
  require_auth: boolean;
  resends_used: number;
  rev: number;
  started_at: string;
}

/** A message to work on. */
export interface WorkItem {
  lease: Lease;
  message: Message;
  /** What people wrote in the thread since. Read it, and name it in `seen` when you answer. */
  newer_messages: string[];
}

/** Messages to work on. */
export interface WorkItemPage {
  data: WorkItem[];
}

"""The shapes of the wire, from openapi.json by sdks/generate. Do not edit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypedDict


@dataclass(frozen=True)
class Intent:
    """What a mail is about. Its key follows from this and from `to`, so that every retry has the same key."""

    type: str
    entity: str
    version: int | None = None
    """1 by default; one more when the same thing is told again on purpose."""
    period: str | None = None
    """The day, week or run of a mail that recurs."""


Ttl: TypeAlias = "str | Mapping[str, str]"
"""How long a key is remembered: a class, a duration from `1s` to `400d`, or `{"class": "scheduled", "interval": …}`."""


class _AcknowledgementNeeds(TypedDict):
    lease: str
    """The token of the lease."""


class Acknowledgement(_AcknowledgementNeeds, total=False):
    """What an agent says about a message that it holds."""

    delay_s: int | None
    """For `nack`: others may try after so many seconds; 0 by default."""
    ttl_s: int | None
    """For `extend`: how long from now, 1 to 600 seconds; 30 by default."""


@dataclass(frozen=True, kw_only=True)
class AcknowledgementResult:
    """A message as it stands."""

    message: Message
    lease: Lease | None = None


Addresses: TypeAlias = "str | Sequence[str]"
"""One address or a list of them."""


class _ArtifactAppliedNeeds(TypedDict):
    for_: str


class ArtifactApplied(_ArtifactAppliedNeeds, total=False):
    """For whom it was taken."""



@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A code or link."""

    confidence: int
    """0 to 100."""
    found_at: str
    id: str
    inbox_id: str
    masked: str
    message: str
    """Our id of the message."""
    reasons: list[str]
    rev: int
    sender: str
    sender_authenticated: bool
    type: str
    """`code` or `link`."""
    applied_at: str | None = None
    consumed_at: str | None = None
    consumed_for: str | None = None
    value: str | None = None
    """Only for whoever took it, and with the scope `secrets`."""
    watch: str | None = None


@dataclass(frozen=True, kw_only=True)
class ArtifactPage:
    """What was found in a message."""

    candidates: list[dict[str, Any]]
    """What else it could be; never given out."""
    data: list[Artifact]
    """Decided ones, best first."""
    next_cursor: str | None = None


class _AttachmentNeeds(TypedDict):
    content: str
    """Base64."""


class Attachment(_AttachmentNeeds, total=False):
    """A file that goes with the mail."""

    content_id: str | None
    """For inline images."""
    content_type: str | None
    """MIME type."""
    filename: str | None
    """File name."""


@dataclass(frozen=True, kw_only=True)
class AttachmentInfo:
    """An attachment by handle: `GET /v1/messages/{id}/attachments/{n}` has its bytes."""

    content_type: str
    inline: bool
    n: int
    size: int
    content_id: str | None = None
    filename: str | None = None


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One try at an envelope."""

    at: str
    """When it was marked, or began when it never came so far."""
    may_duplicate: bool
    """Whether an earlier attempt may have succeeded already."""
    number: int
    reply: str
    """What the next hop said."""
    code: int | None = None
    """The SMTP or HTTP status."""
    ended_at: str | None = None
    """When its answer was written down; null while it is on the wire."""
    outcome: str | None = None
    """`accepted deferred refused unknown`; null while it is on the wire."""
    phase: str | None = None
    """How far it came: `connect tls greet login mail rcpt data final`."""
    remote_id: str | None = None
    """The next hop's own name for the mail."""
    transport: str | None = None
    """The way out it took."""


@dataclass(frozen=True, kw_only=True)
class Auth:
    """Whether a sender is who it says."""

    dkim: str
    dmarc: str
    spf: str
    verdict: str
    """Our own: `pass`, `fail`, `none` or `temperror`."""
    domain: str | None = None


@dataclass(frozen=True, kw_only=True)
class AutomaticReason:
    """Why a message counts as automatic."""

    overridable: bool
    """Whether the inbox's setting `reply_to_likely_automatic` allows an answer all the same."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class BatchItemError:
    """What was wrong with one item."""

    code: str
    index: int
    message: str
    field: str | None = None


@dataclass(frozen=True, kw_only=True)
class BatchReceipt:
    """The answer to a batch."""

    data: list[SendReceipt | None]
    """In order; null where `errors` has a row."""
    errors: list[BatchItemError]


@dataclass(frozen=True, kw_only=True)
class CallTrace:
    """What a caller calls its own call: for correlation, it decides nothing."""

    id: str | None = None
    """From `Mailonce-Call-Id`, or the `_meta` of a model's call."""
    traceparent: str | None = None
    """From `traceparent` (W3C Trace Context)."""


@dataclass(frozen=True, kw_only=True)
class Caps:
    """How many answers are too many. What is absent stays; a new inbox begins with 3 in 300 s and 20 a day in a thread, and 20 a day to a person."""

    per_recipient_per_day: int | None = None
    """Answers to one person within a day, over all threads."""
    per_thread_per_day: int | None = None
    """Answers in a thread within a day."""
    per_thread_total: int | None = None
    """Answers in a thread in all; any number without it, and again after `null`."""
    per_window: int | None = None
    """Answers in a thread within the window; the next is held."""
    window_s: int | None = None
    """Seconds, at most a day."""


class _ConsumeNeeds(TypedDict):
    for_: str
    """The account, workflow or run it is for. The same again gets the same answer; another is refused."""


class Consume(_ConsumeNeeds, total=False):
    """For whom an artifact is taken."""

    watch: str | None
    """The id of the watch it belongs to."""


class _ConsumeMatchNeeds(TypedDict):
    for_: str
    type: str
    """`code` or `link`."""


class ConsumeMatch(_ConsumeMatchNeeds, total=False):
    """Which artifact of an inbox is taken, and for whom."""

    match: MessageMatch | None
    watch: str | None


@dataclass(frozen=True, kw_only=True)
class ConsumedArtifact:
    """An artifact that was taken."""

    artifact: Artifact


@dataclass(frozen=True, kw_only=True)
class Dedupe:
    """What the key of a send did."""

    outcome: str
    """`first` or `replayed`."""
    payload_differs: bool
    """Whether this call said something else than the first one."""
    suppressed: int
    """Calls that were answered with this email instead of making another."""
    expires_at: str | None = None
    """When the key is forgotten; null until the email is settled."""
    key: str | None = None
    """The key, given or derived; null without one."""


@dataclass(frozen=True, kw_only=True)
class Email:
    """One email in a list."""

    counts: dict[str, int]
    """How many envelopes are in which state."""
    created_at: str
    from_: str
    id: str
    message_id: str
    rev: int
    state: str
    subject: str
    suppressed: int
    to: list[str]
    version: int
    bcc: list[str] | None = None
    call: CallTrace | None = None
    cc: list[str] | None = None
    expires_at: str | None = None
    """When the key is forgotten; null until the email is settled."""
    guard: str | None = None
    key: str | None = None
    reply_to_message: str | None = None
    """The message it answers or passes on."""
    resend_of: str | None = None
    resent_as: str | None = None
    scheduled_at: str | None = None
    """When it is due, while it is scheduled, or held for a person and wished for later."""
    settled_at: str | None = None
    thread_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class EmailDetail:
    """Everything about one email."""

    counts: dict[str, int]
    """How many envelopes are in which state."""
    created_at: str
    from_: str
    id: str
    message_id: str
    rev: int
    state: str
    subject: str
    suppressed: int
    to: list[str]
    version: int
    attachments: list[SentAttachment]
    evidence: list[Evidence]
    """In the order it was learnt."""
    handoffs: list[Handoff]
    headers: dict[str, str]
    metadata: dict[str, Any]
    on_unknown: str
    reply_to: list[str]
    suppressed_calls: list[SuppressedCall]
    """The latest 20, newest first."""
    tags: dict[str, Any]
    timeline: list[TimelineEntry]
    bcc: list[str] | None = None
    call: CallTrace | None = None
    cc: list[str] | None = None
    expires_at: str | None = None
    """When the key is forgotten; null until the email is settled."""
    guard: str | None = None
    key: str | None = None
    reply_to_message: str | None = None
    """The message it answers or passes on."""
    resend_of: str | None = None
    resent_as: str | None = None
    scheduled_at: str | None = None
    """When it is due, while it is scheduled, or held for a person and wished for later."""
    settled_at: str | None = None
    thread_id: str | None = None
    html: str | None = None
    intent: Intent | None = None
    text: str | None = None
    """Null, like the other parts of the content, once the body was dropped."""


@dataclass(frozen=True, kw_only=True)
class EmailPage:
    """A page of emails, newest first."""

    data: list[Email]
    next_cursor: str | None = None
    """Pass it as `cursor`; null at the end. A page may be short and still have more behind it."""


class Empty(TypedDict, total=False):
    """No words are needed."""



@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """An endpoint."""

    created_at: str
    cursor: str
    """The last event that was looked at for it."""
    description: str
    events: list[str]
    headers: list[str]
    """The names of its custom headers."""
    id: str
    inboxes: list[str]
    include_text: bool
    """Whether `message.received` carries the text of the message."""
    rev: int
    secret_count: int
    """How many secrets sign at the moment."""
    state: str
    """`enabled`, `paused` or `disabled`."""
    state_since: str
    """Since when its state is what it is."""
    url: str
    version: str
    """The wire format that it was made with."""
    dialect: str | None = None
    """In whose words it is told, when not in ours."""
    failing_since: str | None = None
    """When it failed first since it last succeeded."""
    rate_per_s: int | None = None
    reason: str | None = None
    """Why it is not enabled: `asked`, `gone` (it answered 410) or `failing` (nothing reached it for 14 days)."""
    secret: str | None = None
    """`whsec_…`, when it was just made."""


@dataclass(frozen=True, kw_only=True)
class EndpointPage:
    """Endpoints, newest first."""

    data: list[Endpoint]
    next_cursor: str | None = None


class EndpointPatch(TypedDict, total=False):
    """What to change. What is left out stays."""

    description: str | None
    events: Sequence[str] | None
    headers: Mapping[str, str] | None
    """All of them: what is not named goes."""
    inboxes: Sequence[str] | None
    include_text: bool | None
    rate_per_s: int | None
    """`null` for no limit."""
    rev: int | None
    """The rev that was seen, if it must still be that."""
    url: str | None


@dataclass(frozen=True, kw_only=True)
class EndpointTest:
    """How a test went."""

    delivered: bool
    """Whether the answer was 2xx."""
    id: str
    """The `webhook-id` of the test."""
    latency_ms: int
    response: str
    """The beginning of the answer, or what went wrong."""
    error: str | None = None
    """Else why not: `blocked name connect tls timeout broken`."""
    status: int | None = None
    """The status of the answer, if there was one."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """A fact."""

    about: EventSubject
    at: str
    cursor: str
    """`epoch-seq`."""
    data: dict[str, Any]
    id: str
    seq: int
    """From 1, without gaps."""
    type: str


@dataclass(frozen=True, kw_only=True)
class EventPage:
    """Events, oldest first."""

    data: list[Event]
    next_cursor: str | None = None
    """Pass it as `after`; null when there was nothing to look at. With a filter a page may be short, even empty, and still have more behind it."""


@dataclass(frozen=True, kw_only=True)
class EventSubject:
    """What an event is about."""

    id: str
    kind: str
    rev: int


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A fact about what the next hop did."""

    at: str
    detail: str
    handoff: int
    says: str
    """`accepted not_found silent not_accepted delivered delayed bounced complained again abandoned lost`"""
    source: str
    """`late_reply look_up provider_event bounce person policy window crash`"""
    attempt: int | None = None


class _ForwardNeeds(TypedDict):
    to: Addresses


class Forward(_ForwardNeeds, total=False):
    """A message to be passed on."""

    cc: Addresses
    distinct_token: str | None
    """The one-use token of a held look-alike: that email goes, and never another."""
    lease: str | None
    """The token of the lease that you hold."""
    text: str | None
    """Words before it."""


@dataclass(frozen=True, kw_only=True)
class Handoff:
    """One envelope."""

    attempts: list[Attempt]
    in_doubt: bool
    """Whether some attempt may have succeeded without our knowing."""
    may_duplicate: bool
    """Whether the recipient may have it twice."""
    number: int
    recipients: list[str]
    state: str
    """`scheduled queued leased sending sent delivered bounced complained failed unknown abandoned held cancelled`"""
    transport: str
    due_at: str | None = None
    """When it is tried next, or looked at again while it is unknown."""
    reason: str | None = None
    """Why it waits or failed."""


@dataclass(frozen=True, kw_only=True)
class HeaderField:
    """A header field."""

    name: str
    value: str


@dataclass(frozen=True, kw_only=True)
class Inbox:
    """An inbox."""

    address: str
    allowed_link_domains: list[str]
    caps: Caps
    catch_all: bool
    created_at: str
    cursor: str
    """The place after its latest message, for `after`."""
    id: str
    mark_auto_submitted: bool
    message_count: int
    """Messages that arrived."""
    metadata: dict[str, str]
    reply_to_likely_automatic: bool
    rev: int
    agent: str | None = None
    client_id: str | None = None
    expires_at: str | None = None
    """From then on it refuses mail; its history stays."""
    name: str | None = None


@dataclass(frozen=True, kw_only=True)
class InboxPage:
    """Inboxes, newest first."""

    data: list[Inbox]
    next_cursor: str | None = None


class InboxPatch(TypedDict, total=False):
    """What to change. Absent members stay; `null` takes away."""

    agent: str | None
    allowed_link_domains: Sequence[str] | None
    caps: Caps | None
    catch_all: bool | None
    mark_auto_submitted: bool | None
    metadata: Mapping[str, str] | None
    name: str | None
    reply_to_likely_automatic: bool | None
    rev: int | None
    """The rev that was seen; a stale one is refused."""
    ttl: str | None
    """From now on: `30m`, `24h`; `0s` expires it now, `null` makes it permanent."""


@dataclass(frozen=True, kw_only=True)
class InjectionFlag:
    """A sign that somebody talks to the model."""

    count: int
    flag: str


@dataclass(frozen=True, kw_only=True)
class Key:
    """A key as it is now."""

    bind_number: int
    """How often it was bound."""
    bound_to: str
    """`email`, `operation` or `forgotten`."""
    hits: int
    """Calls answered with the email instead of making another."""
    key: str
    suppressed_calls: list[SuppressedCall]
    """The latest 20, newest first."""
    derivation: str | None = None
    """How it came about: `intent` or `header`."""
    digest: str | None = None
    """The versioned hash of the email's meaning."""
    email: str | None = None
    """The email it is bound to."""
    expires_at: str | None = None
    """When it is forgotten; null until the email is settled."""
    forgotten_at: str | None = None
    intent: Intent | None = None
    state: str | None = None
    ttl: str | None = None


class _KeyPatchNeeds(TypedDict):
    ttl: Ttl


class KeyPatch(_KeyPatchNeeds, total=False):
    """Another memory for a key."""



@dataclass(frozen=True, kw_only=True)
class Lease:
    """A lease."""

    expires_at: str
    fence: int
    """Grows with each lease of the thread."""
    holder: str
    token: str
    """Show it as `lease` when you answer."""


@dataclass(frozen=True, kw_only=True)
class LeaseHolder:
    """Who works on a thread."""

    expires_at: str
    holder: str
    message: str | None = None
    """The message it was offered with."""


@dataclass(frozen=True, kw_only=True)
class Link:
    """A link with its verdict. It is never followed."""

    reasons: list[str]
    verdict: str
    """`allowed suspicious blocked`."""
    host: str | None = None
    purpose: str | None = None
    """What it is for, when it says so: `verify`, `reset` …"""
    url: str | None = None
    """The whole address; only with the scope `secrets`, since a link may be a secret."""


@dataclass(frozen=True, kw_only=True)
class Message:
    """A message, without what it says."""

    attachments: list[AttachmentInfo]
    auth: Auth
    cc: list[Party]
    cursor: str
    """Its place in the inbox, for `after`."""
    flags: list[str]
    """`message_id_reused no_message_id unreadable cut ambiguous duplicate_header`."""
    has: list[str]
    """What was found in it: `code`, `link`."""
    id: str
    inbox_id: str
    labels: list[str]
    preview: str
    """The start of what it says, secrets masked; empty in the view `min`, whose text stands between fences."""
    read: bool
    received_at: str
    recipient: str
    """The address it was sent to, plus tag and all."""
    replies: list[str]
    """Emails that answered it or passed it on."""
    reply_target: ReplyTarget
    """Where an answer goes."""
    reply_to: list[Party]
    rev: int
    rules: list[RuleHit]
    """Rules that matched, in the order in which they were asked."""
    size: int
    state: str
    """`unanswered leased answered skipped`."""
    subject: str
    thread_id: str
    to: list[Party]
    automatic: AutomaticReason | None = None
    date: str | None = None
    folder: str | None = None
    from_: Party | None = None
    message_id: str | None = None
    own_reason: str | None = None
    """Why it counts as our own: `address loop_mark message_id`."""


class MessageMatch(TypedDict, total=False):
    """What its message must be like."""

    from_: str | None
    """An address, or `@domain`."""
    subject: str | None
    """Part of the subject."""


@dataclass(frozen=True, kw_only=True)
class MessagePage:
    """Messages in the order that was asked for."""

    data: list[Message]
    next_cursor: str | None = None
    """Where to go on, as `cursor` newest first and as `after` oldest first; null at the end."""


class _NewEndpointNeeds(TypedDict):
    url: str
    """Where notices go: `https://…`. In `dev` also `http://` and this machine."""


class NewEndpoint(_NewEndpointNeeds, total=False):
    """An endpoint to make."""

    after: str | None
    """Where to begin: a cursor, or `0` for every event there ever was. Left out, with the next event."""
    description: str | None
    """For people."""
    dialect: str | None
    """In whose words it is told and signed: `resend` or `usesend`. Left out, in ours. Events that the dialect has no word for are not told."""
    events: Sequence[str] | None
    """Types such as `email.sent`, families such as `email.*`, or `["*"]`, which is what absence means."""
    headers: Mapping[str, str] | None
    """Headers that every request carries. Their values are not shown again."""
    inboxes: Sequence[str] | None
    """Only what happens at these inboxes, by id."""
    include_text: bool | None
    """Whether `message.received` carries the visible text of the message, its codes hidden."""
    rate_per_s: int | None
    """Requests a second at the most."""
    secret: str | None
    """A secret that you already have: `whsec_` and base64 of 24 to 64 bytes. Left out, one is made."""


class NewInbox(TypedDict, total=False):
    """An inbox to make: a whole `address`, or `username` and `domain`, or neither for a random one."""

    address: str | None
    agent: str | None
    """The agent it is for."""
    allowed_link_domains: Sequence[str]
    """Registrable domains whose links are allowed; without any, links are judged by their sender."""
    caps: Caps | None
    catch_all: bool
    """Whether it takes mail for every address of its domain that has no inbox; needs `admin`."""
    client_id: str | None
    """The same `client_id` again answers with the same inbox."""
    domain: str | None
    """The first domain of this installation by default."""
    mark_auto_submitted: bool
    """Whether its answers say that a machine wrote them (`Auto-Submitted`)."""
    metadata: Mapping[str, str]
    name: str | None
    """The name beside its address in mail that it sends."""
    reply_to_likely_automatic: bool
    """Whether mail that only looks automatic may be answered."""
    ttl: str | None
    """How long it takes mail: `30m`, `24h`, `7d`. Without one it is permanent."""
    username: str | None


class NewLease(TypedDict, total=False):
    """A wish for a lease."""

    holder: str | None
    """Who asks, as people call it; the name of the API key by default."""
    token: str | None
    """The token of your lease, to renew it."""
    ttl_s: int | None
    """1 to 600; 30 by default."""


class NewWatch(TypedDict, total=False):
    """A watch to begin."""

    budget: int | None
    """How often its agent may ask for the mail to be sent again; 1 by default."""
    deadline: str | None
    """When it ends: an instant, or a time from now such as `5m`; 10 minutes by default."""
    require_auth: bool | None
    """`true`: only mail whose sender is authenticated counts."""


class NextMessages(TypedDict, total=False):
    """A wish for work."""

    holder: str | None
    """Who asks, as people call it; the name of the API key by default."""
    limit: int | None
    """At most so many messages, 1 to 10; 1 by default."""
    ttl_s: int | None
    """How long each lease lasts, 1 to 600 seconds; 30 by default."""
    wait: int | None
    """How long to wait for a message, up to 60 seconds; 0 by default."""


@dataclass(frozen=True, kw_only=True)
class NoticeAttempt:
    """An attempt to tell."""

    at: str
    latency_ms: int
    number: int
    response: str
    """The beginning of the answer, or what went wrong."""
    error: str | None = None
    """What went wrong: `blocked name connect tls timeout broken status`."""
    status: int | None = None
    """The status of the answer, if there was one."""


@dataclass(frozen=True, kw_only=True)
class Notice:
    """One event owed to one endpoint."""

    about: str
    """The id of what the event is about."""
    attempt_count: int
    """Attempts that were begun."""
    attempts: list[NoticeAttempt]
    """The latest attempts that ended, oldest first."""
    created_at: str
    endpoint: str
    event: str
    """The cursor of its event."""
    id: str
    """Its `webhook-id`, the same at every attempt."""
    rev: int
    state: str
    """`pending delivered dead dropped`."""
    type: str
    next_attempt_at: str | None = None
    """When it is due. Null while it stands behind an earlier one about the same thing."""
    settled_at: str | None = None


@dataclass(frozen=True, kw_only=True)
class NoticePage:
    """Notices, those of the latest events first."""

    data: list[Notice]
    next_cursor: str | None = None


@dataclass(frozen=True, kw_only=True)
class Party:
    """Somebody named in a mail."""

    address: str
    name: str | None = None


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Why a call did not do what it asked, and what to do next."""

    code: str
    """The word to branch on."""
    detail: str
    """What happened this time."""
    next: str
    """One sentence that a model can act on."""
    retry: str
    """Whether the same call may be sent again: `never`, `same` (unchanged, with the same key) or `later`."""
    status: int
    """The HTTP status."""
    title: str
    """A short name for people."""
    type: str
    """A link to the page of this code."""
    field: str | None = None
    """The field or parameter at fault."""


class Recover(TypedDict, total=False):
    """From where to tell again: one of `since` and `after`."""

    after: str | None
    """Events after this cursor; `0` for all."""
    include: str | None
    """`failed` (default): what was given up or waits for its next try. `all`: everything, also what was delivered."""
    since: str | None
    """Events at or after this time."""


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """What is told again."""

    after: str | None = None
    """The cursor behind which events are told again. Null when this was asked before."""
    requeued: int | None = None
    """Failed notices that are due now. At 5000 there may be more: ask again under another key."""


class _ReleaseLeaseNeeds(TypedDict):
    token: str
    """Its token: only your own is given back."""


class ReleaseLease(_ReleaseLeaseNeeds, total=False):
    """Which lease to give back."""



@dataclass(frozen=True, kw_only=True)
class RenderedMessage:
    """A message with what it says."""

    attachments: list[AttachmentInfo]
    auth: Auth
    cc: list[Party]
    cursor: str
    """Its place in the inbox, for `after`."""
    flags: list[str]
    """`message_id_reused no_message_id unreadable cut ambiguous duplicate_header`."""
    has: list[str]
    """What was found in it: `code`, `link`."""
    id: str
    inbox_id: str
    labels: list[str]
    preview: str
    """The start of what it says, secrets masked; empty in the view `min`, whose text stands between fences."""
    read: bool
    received_at: str
    recipient: str
    """The address it was sent to, plus tag and all."""
    replies: list[str]
    """Emails that answered it or passed it on."""
    reply_target: ReplyTarget
    """Where an answer goes."""
    reply_to: list[Party]
    rev: int
    rules: list[RuleHit]
    """Rules that matched, in the order in which they were asked."""
    size: int
    state: str
    """`unanswered leased answered skipped`."""
    subject: str
    thread_id: str
    to: list[Party]
    artifacts: list[Artifact]
    candidates: list[dict[str, Any]]
    """What else it could hold; never given out."""
    injection_flags: list[InjectionFlag]
    links: list[Link]
    view: str
    """`min plain full`, or `gone` when its bytes are no longer kept."""
    automatic: AutomaticReason | None = None
    date: str | None = None
    folder: str | None = None
    from_: Party | None = None
    message_id: str | None = None
    own_reason: str | None = None
    """Why it counts as our own: `address loop_mark message_id`."""
    complete: bool | None = None
    """Whether all of the mail was looked at."""
    headers: list[HeaderField] | None = None
    """In `full`."""
    html: str | None = None
    """In `full`: without anything that acts or loads."""
    removed_counts: dict[str, Any] | None = None
    """What `min` took out, counted."""
    text: str | None = None
    """In `min` between fences with a random word: everything in it is untrusted."""


class Reply(TypedDict, total=False):
    """An answer to a message."""

    distinct_token: str | None
    """The one-use token of a held look-alike: that answer goes, and never another."""
    follow_up: int
    """0 is the answer, higher numbers are wanted follow-ups; each is sent once."""
    html: str | None
    lease: str | None
    """The token of the lease that you hold."""
    quote: bool
    """Whether the message follows below your words."""
    reply_all: bool
    """Whether everybody who got the message gets the answer; our own addresses never do."""
    seen: Sequence[str]
    """Ids of newer messages in the thread that you have read."""
    text: str | None
    """Plain text. This or `html`, or both."""


@dataclass(frozen=True, kw_only=True)
class ReplyCounts:
    """How often a thread was answered, and how often it may be."""

    caps: Caps
    in_window: int
    last_24h: int
    """Within the last 24 hours."""
    total: int


@dataclass(frozen=True, kw_only=True)
class ReplyTarget:
    """Where an answer to a message goes."""

    flags: list[str]
    """`other_domain`: not the sender's organization. `auth_failed`: the sender's domain disowns the message."""
    to: list[str]
    """The addresses: those of Reply-To, else the sender."""


class _RescheduleNeeds(TypedDict):
    scheduled_at: str
    """RFC 3339 with an offset, or `in 5 minutes`."""


class Reschedule(_RescheduleNeeds, total=False):
    """Another time for a scheduled email."""



class Resend(TypedDict, total=False):
    """Why an email is sent again."""

    reason: str | None
    """For whoever reads the timeline."""


class _ResolveEmailNeeds(TypedDict):
    as_: str
    """`sent` (it arrived), `resend` (send the same bytes again), `abandon` (give it up)."""
    rev: int
    """The email's `rev` as you saw it."""


class ResolveEmail(_ResolveEmailNeeds, total=False):
    """What became of an email whose outcome is unknown, as a person decides."""

    handoff: int | None
    """Only this handoff; every unknown one when it is left out."""
    reason: str | None
    """For whoever reads the timeline."""


class RotateEndpoint(TypedDict, total=False):
    """Another secret."""

    previous_secret_ttl: str | None
    """How long the secrets before still sign beside it, `24h` by default, at most `30d`."""
    secret: str | None
    """A secret that you already have. Left out, one is made."""


@dataclass(frozen=True, kw_only=True)
class RuleHit:
    """A rule that matched."""

    actions: list[str]
    """What was done: `folder`, `label` …"""
    id: str
    name: str
    """Its name at the time."""


Scalar: TypeAlias = "str | float | bool"
"""A string, a number up to 2^53-1 or a boolean."""


class _SendNeeds(TypedDict):
    from_: str
    """`agent@example.com` or `Name <agent@example.com>`."""
    to: Addresses


class Send(_SendNeeds, total=False):
    """An email to send once."""

    attachments: Sequence[Attachment] | None
    bcc: Addresses
    cc: Addresses
    distinct_token: str | None
    """The one-use token of a held look-alike."""
    headers: Mapping[str, str] | None
    """Custom headers."""
    html: str | None
    metadata: Mapping[str, Scalar] | None
    """Strings, numbers up to 2^53-1 and booleans."""
    on_mismatch: str | None
    """`reject` or `first_wins`."""
    on_unknown: str | None
    """`hold` or `resend`."""
    reply_to: Addresses
    scheduled_at: str | None
    """RFC 3339 with an offset, or `in 5 minutes`."""
    subject: str | None
    tags: Sequence[Tag] | None
    text: str | None
    """Plain text body. This or `html`, or both."""
    transport: str | None
    """The name of a configured transport."""
    ttl: Ttl | None


@dataclass(frozen=True, kw_only=True)
class SendReceipt:
    """The answer to a send, the first time and every time after."""

    created_at: str
    dedupe: Dedupe
    id: str
    message_id: str
    """With angle brackets."""
    next: str
    """What this answer means, in a sentence."""
    rev: int
    state: str
    """`scheduled queued sending sent delivered bounced complained failed unknown abandoned held cancelled`"""
    distinct_token: str | None = None
    """Post the mail again with it if this held look-alike is meant; it goes, and never another."""
    fence: int | None = None
    """The fence of that thread's latest lease."""
    guard: str | None = None
    """The guard that spoke."""
    resent_as: str | None = None
    """The version that followed it, when there is one."""
    thread_id: str | None = None
    """The thread that an answer belongs to."""


@dataclass(frozen=True, kw_only=True)
class SentAttachment:
    """An attachment, without its bytes."""

    size: int
    content_id: str | None = None
    content_type: str | None = None
    filename: str | None = None


@dataclass(frozen=True, kw_only=True)
class SuppressedCall:
    """A call that was answered with an earlier email."""

    at: str
    channel: str
    reason: str
    """`key_replay payload_differs mismatch already_answered`"""
    call: CallTrace | None = None
    caller: str | None = None
    """The id of the API key it came with."""


Tag: TypeAlias = "str | TagPair"
"""A tag: a name, or a name with a value."""


class _TagPairNeeds(TypedDict):
    name: str


class TagPair(_TagPairNeeds, total=False):
    """A tag with a value."""

    value: str | None


@dataclass(frozen=True, kw_only=True)
class Thread:
    """Messages and emails that answer each other."""

    created_at: str
    email_count: int
    fence: int
    """The fence of its latest lease."""
    id: str
    inbox_id: str
    labels: list[str]
    last_activity_at: str
    """When something was last added to it."""
    message_count: int
    rev: int
    subject: str
    entries: list[ThreadEntry] | None = None
    """What was said, oldest first, the latest 100 of each direction; only when one thread is read."""
    handled_at: str | None = None
    """When somebody said that nothing is left to do; a new message takes that back."""
    lease: LeaseHolder | None = None
    replies: ReplyCounts | None = None


@dataclass(frozen=True, kw_only=True)
class ThreadEntry:
    """Something that was said."""

    type: str
    message: Message | None = None
    """The message."""
    email: Email | None = None
    """The email."""


@dataclass(frozen=True, kw_only=True)
class ThreadPage:
    """Threads, those with the latest news first."""

    data: list[Thread]
    next_cursor: str | None = None


class ThreadPatch(TypedDict, total=False):
    """What to change. Absent members stay."""

    handled: bool | None
    """Whether nothing is left to do."""
    labels: Sequence[str] | None
    """All labels from now on."""


@dataclass(frozen=True, kw_only=True)
class TimelineEntry:
    """Something that happened to an email."""

    at: str
    description: str


@dataclass(frozen=True, kw_only=True)
class WaitResult:
    """A message that arrived."""

    cursor: str
    """Pass it as `after` to go on."""
    message: Message


@dataclass(frozen=True, kw_only=True)
class Watch:
    """A watch."""

    budget: int
    cursor: str
    """Only mail after this place counts."""
    deadline: str
    id: str
    inbox_id: str
    require_auth: bool
    """Whether only mail whose sender is authenticated counts."""
    resends_used: int
    rev: int
    started_at: str


@dataclass(frozen=True, kw_only=True)
class WorkItem:
    """A message to work on."""

    lease: Lease
    message: Message
    newer_messages: list[str]
    """What people wrote in the thread since. Read it, and name it in `seen` when you answer."""


@dataclass(frozen=True, kw_only=True)
class WorkItemPage:
    """Messages to work on."""

    data: list[WorkItem]

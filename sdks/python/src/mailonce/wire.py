"""The types of the API, generated from openapi.json by sdks/generate. Do not edit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypedDict


@dataclass(frozen=True)
class Intent:
    """What an email is about. The key is derived from this and from `to`, so every retry has the same key."""

    type: str
    entity: str
    version: int | None = None
    """1 by default; increase it to send about the same thing again on purpose."""
    period: str | None = None
    """The day, week or run of a recurring email."""


Ttl: TypeAlias = "str | Mapping[str, str]"
"""How long a key is remembered: a class, a duration from `1s` to `400d`, or `{"class": "scheduled", "interval": …}`."""


ArtifactType: TypeAlias = Literal["code", "link"]
EmailState: TypeAlias = Literal["scheduled", "queued", "sending", "sent", "delivered", "bounced", "complained", "failed", "unknown", "abandoned", "held", "cancelled"]
EventType: TypeAlias = Literal["email.accepted", "email.held", "email.duplicate", "email.rescheduled", "email.sent", "email.delivered", "email.bounced", "email.complained", "email.failed", "email.deferred", "email.unknown", "email.resolved", "email.cancelled", "email.resent", "handoff.orphaned", "handoff.rerouted", "message.received", "delivery.duplicate", "delivery.refused", "delivery.failed", "artifact.found", "artifact.consumed", "artifact.applied", "email.hold_removed", "email.released", "message.answered", "message.forwarded", "message.reopened", "message.skipped", "reply.refused", "thread.leased", "thread.cap_reached", "escalation.opened", "escalation.resolved", "domain.verified", "domain.failed", "endpoint.disabled", "key.extended", "key.forgotten", "transport.breaker_opened", "transport.breaker_closed", "stop.created", "stop.ended", "claim.offered", "claim.claimed", "claim.begun", "claim.completed", "claim.failed", "claim.freed", "claim.unknown", "claim.evidence", "claim.resolved", "outbox.row_parked", "outbox.stopped", "outbox.resumed", "audit.recorded"]
MessageState: TypeAlias = Literal["unanswered", "leased", "answered", "skipped"]
NoticeState: TypeAlias = Literal["pending", "delivered", "dead", "dropped"]


class _AcknowledgementNeeds(TypedDict):
    lease: str
    """Token of the lease."""


class Acknowledgement(_AcknowledgementNeeds, total=False):
    """Acknowledgement of a leased message, for `ack`, `nack` and `extend`."""

    delay_s: int | None
    """For `nack`: seconds until the message is offered again, at most 86400; 0 by default."""
    ttl_s: int | None
    """For `extend`: new duration of the lease from now in seconds, 1 to 600; 30 by default."""


@dataclass(frozen=True, kw_only=True)
class AcknowledgementResult:
    """The message after an acknowledgement."""

    message: Message
    lease: Lease | None = None


Addresses: TypeAlias = "str | Sequence[str]"
"""One address or a list of addresses."""


class _ArtifactAppliedNeeds(TypedDict):
    for_: str
    """The `for` that consumed the artifact."""


class ArtifactApplied(_ArtifactAppliedNeeds, total=False):
    """The consumer that reports the use."""



@dataclass(frozen=True, kw_only=True)
class Artifact:
    """An artifact: a code or link found in a message."""

    confidence: int
    """Confidence of the extraction, 0 to 100."""
    found_at: str
    """When it was extracted from the message."""
    id: str
    """Id of the artifact."""
    inbox_id: str
    """Id of the inbox."""
    masked: str
    """The code or link with its secret part masked."""
    message: str
    """Id of the message."""
    reasons: list[str]
    """Reasons for the confidence."""
    rev: int
    """Revision; grows with every change."""
    sender: str
    """Address of the sender of the message."""
    sender_authenticated: bool
    """Whether the sender of the message was authenticated."""
    type: Literal["code", "link"]
    """`code` or `link`."""
    applied_at: str | None = None
    """When its use was reported; null before that."""
    consumed_at: str | None = None
    """When it was consumed; null before that."""
    consumed_for: str | None = None
    """The `for` of the call that consumed it."""
    value: str | None = None
    """The code or link; null unless you consumed it or your API key has the scope `secrets`."""
    watch: str | None = None
    """Id of the watch that it was consumed under."""


@dataclass(frozen=True, kw_only=True)
class ArtifactPage:
    """The artifacts of a message."""

    candidates: list[dict[str, Any]]
    """Ambiguous finds. They cannot be consumed."""
    data: list[Artifact]
    """The artifacts, best first."""
    next_cursor: str | None = None


class _AttachmentNeeds(TypedDict):
    content: str
    """The file's bytes in Base64."""


class Attachment(_AttachmentNeeds, total=False):
    """An attachment."""

    content_id: str | None
    """Content-ID, for inline images."""
    content_type: str | None
    """MIME type."""
    filename: str | None
    """File name."""


@dataclass(frozen=True, kw_only=True)
class AttachmentInfo:
    """An attachment, without its bytes. `GET /v1/messages/{id}/attachments/{n}` returns the bytes."""

    content_type: str
    """Declared content type; do not trust it."""
    inline: bool
    """Whether it is displayed inside the text."""
    n: int
    """Number of the attachment, for `GET /v1/messages/{id}/attachments/{n}`."""
    size: int
    """Size in bytes."""
    content_id: str | None = None
    """Content-ID, if the HTML refers to the attachment."""
    filename: str | None = None
    """Declared file name; do not trust it."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt to send a handoff."""

    at: str
    """When the `sending` marker was committed; the start of the attempt if it never got that far."""
    may_duplicate: bool
    """Whether an earlier attempt may have succeeded, so that the recipient may get the email twice."""
    number: int
    """Number of the attempt within its handoff, from 1."""
    reply: str
    """Text of the next hop's reply."""
    code: int | None = None
    """SMTP or HTTP status code of the reply."""
    ended_at: str | None = None
    """When the outcome was recorded; null while the attempt is running."""
    outcome: Literal["accepted", "deferred", "refused", "unknown"] | None = None
    """`accepted deferred refused unknown`; null while the attempt is running."""
    phase: Literal["connect", "tls", "greet", "login", "mail", "rcpt", "data", "final"] | None = None
    """The last phase that was reached: `connect tls greet login mail rcpt data final`."""
    remote_id: str | None = None
    """The next hop's own id for the message."""
    transport: str | None = None
    """Name of the transport."""


@dataclass(frozen=True, kw_only=True)
class Auth:
    """Results of the sender authentication."""

    dkim: Literal["pass", "fail", "softfail", "neutral", "none", "temperror", "permerror"]
    """Result of DKIM."""
    dmarc: Literal["pass", "fail", "softfail", "neutral", "none", "temperror", "permerror"]
    """Result of DMARC."""
    spf: Literal["pass", "fail", "softfail", "neutral", "none", "temperror", "permerror"]
    """Result of SPF."""
    verdict: Literal["pass", "fail", "none", "temperror"]
    """Overall verdict of mailonce: `pass`, `fail`, `none` or `temperror`."""
    domain: str | None = None
    """Domain of the From header."""


@dataclass(frozen=True, kw_only=True)
class AutomaticReason:
    """Why a message counts as automatic."""

    overridable: bool
    """Whether the inbox setting `reply_to_likely_automatic` can allow a reply anyway."""
    reason: str
    """What marks the message as automatic, such as a header."""


@dataclass(frozen=True, kw_only=True)
class BatchItemError:
    """Why one item of a batch was refused."""

    code: str
    """Error code, as in a problem."""
    index: int
    """Position of the item in the batch, from 0."""
    message: str
    """What is wrong."""
    field: str | None = None
    """The invalid field, if the error is about one."""
    policy: list[PolicyStep] | None = None
    """With `Prefer: policy-trace`, if a check refused the item: what each check decided, in order."""


@dataclass(frozen=True, kw_only=True)
class BatchReceipt:
    """The response to a batch."""

    data: list[SendReceipt | None]
    """One entry per item, in order; null for an item that has an entry in `errors`."""
    errors: list[BatchItemError]


@dataclass(frozen=True, kw_only=True)
class BudgetRoom:
    """How much room a budget has."""

    id: str
    limit: int
    name: str
    remaining: int
    resets_at: str
    """When the period ends."""


@dataclass(frozen=True, kw_only=True)
class CallTrace:
    """The caller's own ids of a call. They are stored for correlation only."""

    id: str | None = None
    """From the `Mailonce-Call-Id` header, or from `_meta` of an MCP call."""
    traceparent: str | None = None
    """From `traceparent` (W3C Trace Context)."""


@dataclass(frozen=True, kw_only=True)
class Caps:
    """Limits on the number of replies. A reply beyond a limit is held. Absent fields keep their value. The defaults are 3 in 300 seconds and 20 a day in a thread, and 20 a day to one recipient."""

    per_recipient_per_day: int | None = None
    """Replies to one recipient per day, over all threads."""
    per_thread_per_day: int | None = None
    """Replies in a thread per day."""
    per_thread_total: int | None = None
    """Replies in a thread in total; `null` removes the limit. No limit by default."""
    per_window: int | None = None
    """Replies in a thread within `window_s`."""
    window_s: int | None = None
    """Length of the window in seconds, 1 to 86400."""


class _ConsumeNeeds(TypedDict):
    for_: str
    """The account, workflow or run that consumes the artifact. The same one gets the same response again; another is refused."""


class Consume(_ConsumeNeeds, total=False):
    """The consumer of an artifact."""

    watch: str | None
    """Id of the watch that the call belongs to."""


class _ConsumeMatchNeeds(TypedDict):
    for_: str
    """Who takes it: an account, workflow or run. The same value gets the same artifact again."""
    type: Literal["code", "link"]
    """`code` or `link`."""


class ConsumeMatch(_ConsumeMatchNeeds, total=False):
    """Which artifact of an inbox to consume, and for whom."""

    after: str | None
    """Cursor of an inbox: the latest match after it, however old. When absent, only new ones count. Not with `watch`."""
    match: MessageMatch | None
    timeout: int | None
    """How long to wait for a new one in seconds, at most 60 and until the watch ends; 0 by default. Not with `after`."""
    watch: str | None
    """Id of a watch: only messages that arrived after its start count."""


@dataclass(frozen=True, kw_only=True)
class ConsumedArtifact:
    """A consumed artifact."""

    artifact: Artifact


@dataclass(frozen=True, kw_only=True)
class Dedupe:
    """What the idempotency key of a send did."""

    outcome: Literal["first", "replayed"]
    """`first` for a new email, `replayed` for a duplicate call."""
    payload_differs: bool
    """Whether the content of this call differs from that of the first call."""
    suppressed: int
    """Number of duplicate calls that were answered with this email."""
    expires_at: str | None = None
    """When the idempotency key expires; null until the email reaches a final state."""
    key: str | None = None
    """The idempotency key, from the header or derived from the intent; null without one."""


@dataclass(frozen=True, kw_only=True)
class Email:
    """An email, without its content."""

    counts: dict[str, int]
    """Number of handoffs in each state."""
    created_at: str
    """When the email was accepted."""
    from_: str
    """Sender."""
    holds: list[Literal["self", "automatic", "already_answered", "leased", "newer_message", "cap", "looks_duplicate", "overlaps", "approval", "budget", "reply_to"] | str]
    """The guards that hold the email. It leaves when none is left."""
    id: str
    """Id of the email."""
    message_id: str
    """The Message-ID header, with angle brackets."""
    rev: int
    """Revision; grows with every change."""
    state: Literal["scheduled", "queued", "sending", "sent", "delivered", "bounced", "complained", "failed", "unknown", "abandoned", "held", "cancelled"]
    """`scheduled queued sending sent delivered bounced complained failed unknown abandoned held cancelled`"""
    subject: str
    """Subject."""
    suppressed: int
    """Number of duplicate calls that were answered with this email."""
    to: list[str]
    """To addresses."""
    version: int
    """Version of the email, from 1. Each resend is one more."""
    bcc: list[str] | None = None
    """Bcc addresses."""
    call: CallTrace | None = None
    cc: list[str] | None = None
    """Cc addresses."""
    expires_at: str | None = None
    """When the idempotency key expires; null until the email reaches a final state."""
    guard: Literal["self", "automatic", "already_answered", "leased", "newer_message", "cap", "looks_duplicate", "overlaps", "approval", "budget", "reply_to"] | str | None = None
    """The most important guard in `holds`, or the one that held or flagged the email."""
    key: str | None = None
    """Idempotency key; null without one."""
    reply_to_message: str | None = None
    """Id of the message that this email replies to or forwards."""
    resend_of: str | None = None
    """Id of the email that this one resends."""
    resent_as: str | None = None
    """Id of the next version, if the email was resent."""
    scheduled_at: str | None = None
    """When the email is due, while it is scheduled or held."""
    settled_at: str | None = None
    """When the email reached a final state; null before that."""
    stopped_by: str | None = None
    """Id of the stop that keeps the email from leaving."""
    template: TemplateRef | None = None
    thread_id: str | None = None
    """Id of the thread that the email is part of."""


@dataclass(frozen=True, kw_only=True)
class EmailDetail:
    """An email with its content, handoffs, evidence and timeline."""

    counts: dict[str, int]
    """Number of handoffs in each state."""
    created_at: str
    """When the email was accepted."""
    from_: str
    """Sender."""
    holds: list[Literal["self", "automatic", "already_answered", "leased", "newer_message", "cap", "looks_duplicate", "overlaps", "approval", "budget", "reply_to"] | str]
    """The guards that hold the email. It leaves when none is left."""
    id: str
    """Id of the email."""
    message_id: str
    """The Message-ID header, with angle brackets."""
    rev: int
    """Revision; grows with every change."""
    state: Literal["scheduled", "queued", "sending", "sent", "delivered", "bounced", "complained", "failed", "unknown", "abandoned", "held", "cancelled"]
    """`scheduled queued sending sent delivered bounced complained failed unknown abandoned held cancelled`"""
    subject: str
    """Subject."""
    suppressed: int
    """Number of duplicate calls that were answered with this email."""
    to: list[str]
    """To addresses."""
    version: int
    """Version of the email, from 1. Each resend is one more."""
    attachments: list[SentAttachment]
    evidence: list[Evidence]
    """Oldest first."""
    handoffs: list[Handoff]
    headers: dict[str, str]
    """Your additional headers."""
    metadata: dict[str, Any]
    """Your own data."""
    on_unknown: Literal["hold", "resend"]
    """What happens when the outcome is unknown: `hold` waits for evidence or a person; `resend` sends once more."""
    policy: list[PolicyStep]
    """What each check decided when the email was accepted, in order."""
    reply_to: list[str]
    """Reply-To addresses."""
    suppressed_calls: list[SuppressedCall]
    """The latest 20 suppressed duplicate calls, newest first."""
    tags: dict[str, Any]
    """Your tags, by name."""
    timeline: list[TimelineEntry]
    bcc: list[str] | None = None
    """Bcc addresses."""
    call: CallTrace | None = None
    cc: list[str] | None = None
    """Cc addresses."""
    expires_at: str | None = None
    """When the idempotency key expires; null until the email reaches a final state."""
    guard: Literal["self", "automatic", "already_answered", "leased", "newer_message", "cap", "looks_duplicate", "overlaps", "approval", "budget", "reply_to"] | str | None = None
    """The most important guard in `holds`, or the one that held or flagged the email."""
    key: str | None = None
    """Idempotency key; null without one."""
    reply_to_message: str | None = None
    """Id of the message that this email replies to or forwards."""
    resend_of: str | None = None
    """Id of the email that this one resends."""
    resent_as: str | None = None
    """Id of the next version, if the email was resent."""
    scheduled_at: str | None = None
    """When the email is due, while it is scheduled or held."""
    settled_at: str | None = None
    """When the email reached a final state; null before that."""
    stopped_by: str | None = None
    """Id of the stop that keeps the email from leaving."""
    template: TemplateRef | None = None
    thread_id: str | None = None
    """Id of the thread that the email is part of."""
    html: str | None = None
    """HTML body; null without one, or when the retention period is over."""
    intent: Intent | None = None
    text: str | None = None
    """Plain text body. When the retention period of the content is over, this and `html` are null, and the other parts of the content are empty."""


@dataclass(frozen=True, kw_only=True)
class EmailPage:
    """A page of emails, newest first."""

    data: list[Email]
    next_cursor: str | None = None
    """Pass it as `cursor` to get the next page; null at the end. A page with few results may still have a next page."""


class Empty(TypedDict, total=False):
    """An empty object; the body may be left out."""



@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A webhook endpoint."""

    created_at: str
    cursor: str
    """Cursor of the last event that was processed for this endpoint."""
    description: str
    events: list[str]
    headers: list[str]
    """Names of the custom headers."""
    id: str
    inboxes: list[str]
    include_text: bool
    """Whether `message.received` includes the text of the message."""
    rev: int
    secret_count: int
    """Number of secrets that sign requests at the moment."""
    state: Literal["enabled", "paused", "disabled"]
    """`enabled`, `paused` or `disabled`."""
    state_since: str
    """When the state last changed."""
    url: str
    version: str
    """API version that the endpoint was created with."""
    dialect: Literal["resend", "usesend", "agentmail"] | None = None
    """Payload and signature format; null for mailonce's own."""
    failing_since: str | None = None
    """When the first failure since the last success happened; null while requests succeed."""
    rate_per_s: int | None = None
    reason: Literal["asked", "gone", "failing"] | None = None
    """Why the endpoint is not enabled: `asked` (by a call), `gone` (it answered 410) or `failing` (for 14 days)."""
    secret: str | None = None
    """Signing secret `whsec_…`; only in the response that created or rotated it."""


@dataclass(frozen=True, kw_only=True)
class EndpointPage:
    """A page of endpoints, newest first."""

    data: list[Endpoint]
    next_cursor: str | None = None


class EndpointPatch(TypedDict, total=False):
    """Settings of an endpoint to change. Absent fields keep their value."""

    description: str | None
    events: Sequence[str] | None
    headers: Mapping[str, str] | None
    """Replaces all custom headers."""
    inboxes: Sequence[str] | None
    include_text: bool | None
    rate_per_s: int | None
    """Rate limit in requests per second; `null` removes it."""
    rev: int | None
    """The `rev` that you read. If it is set, the call is refused when the endpoint has changed since."""
    url: str | None


@dataclass(frozen=True, kw_only=True)
class EndpointTest:
    """Result of a test request."""

    delivered: bool
    """Whether the endpoint answered 2xx."""
    id: str
    """The `webhook-id` of the test request."""
    latency_ms: int
    response: str
    """Start of the response body, or the error message."""
    error: Literal["blocked", "name", "connect", "tls", "timeout", "broken", "status"] | None = None
    """Why there was no response: `blocked name connect tls timeout broken`."""
    status: int | None = None
    """HTTP status of the response, if there was one."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """An event."""

    about: EventSubject
    at: str
    cursor: str
    """Position of the event, `epoch-seq`; pass it as `after`."""
    data: dict[str, Any]
    id: str
    seq: int
    """Sequence number in the team, from 1 without gaps."""
    type: Literal["email.accepted", "email.held", "email.duplicate", "email.rescheduled", "email.sent", "email.delivered", "email.bounced", "email.complained", "email.failed", "email.deferred", "email.unknown", "email.resolved", "email.cancelled", "email.resent", "handoff.orphaned", "handoff.rerouted", "message.received", "delivery.duplicate", "delivery.refused", "delivery.failed", "artifact.found", "artifact.consumed", "artifact.applied", "email.hold_removed", "email.released", "message.answered", "message.forwarded", "message.reopened", "message.skipped", "reply.refused", "thread.leased", "thread.cap_reached", "escalation.opened", "escalation.resolved", "domain.verified", "domain.failed", "endpoint.disabled", "key.extended", "key.forgotten", "transport.breaker_opened", "transport.breaker_closed", "stop.created", "stop.ended", "claim.offered", "claim.claimed", "claim.begun", "claim.completed", "claim.failed", "claim.freed", "claim.unknown", "claim.evidence", "claim.resolved", "outbox.row_parked", "outbox.stopped", "outbox.resumed", "audit.recorded"] | str


@dataclass(frozen=True, kw_only=True)
class EventPage:
    """A page of events, oldest first."""

    data: list[Event]
    next_cursor: str | None = None
    """Pass it as `after` to read on; null when there are no events after the cursor. With a filter, even an empty page may have a next page."""


@dataclass(frozen=True, kw_only=True)
class EventSubject:
    """The object that an event is about."""

    id: str
    kind: Literal["artifact", "audit", "claim", "delivery", "domain", "email", "endpoint", "escalation", "key", "message", "outbox", "outbox_row", "stop", "thread", "transport"] | str
    rev: int


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Evidence: a fact about what the next hop did."""

    at: str
    """When the evidence was recorded."""
    detail: str
    """What was observed, such as the reply of the provider."""
    handoff: int
    """Number of the handoff that the evidence is about."""
    says: Literal["accepted", "not_found", "silent", "not_accepted", "delivered", "delayed", "bounced", "complained", "again", "abandoned", "lost"]
    """What the evidence states: `accepted not_found silent not_accepted delivered delayed bounced complained again abandoned lost`. `silent`: the next hop could not be asked; `again`: the email is sent again; `lost`: the outcome is unknown."""
    source: Literal["late_reply", "look_up", "provider_event", "bounce", "person", "policy", "window", "crash"]
    """Where the evidence comes from: `late_reply look_up provider_event bounce person policy window crash`"""
    attempt: int | None = None
    """Number of the attempt that the evidence is about; null if it is about the handoff."""


class _ForwardNeeds(TypedDict):
    to: Addresses


class Forward(_ForwardNeeds, total=False):
    """Recipients and text of a forwarded message."""

    cc: Addresses
    distinct_token: str | None
    """One-time token of a held email that looks like an earlier one: releases the held email."""
    lease: str | None
    """Token of the lease that you hold on the thread."""
    text: str | None
    """Text above the forwarded message."""


@dataclass(frozen=True, kw_only=True)
class Handoff:
    """One handoff: an envelope for one transport."""

    attempts: list[Attempt]
    in_doubt: bool
    """Whether some attempt may have succeeded although its outcome is unknown."""
    may_duplicate: bool
    """Whether the recipient may get the email twice."""
    number: int
    """Number of the handoff within its email."""
    recipients: list[str]
    """Envelope recipients of this handoff."""
    state: Literal["scheduled", "queued", "leased", "sending", "sent", "delivered", "bounced", "complained", "failed", "unknown", "abandoned", "held", "cancelled"]
    """`scheduled queued leased sending sent delivered bounced complained failed unknown abandoned held cancelled`"""
    transport: str
    """Name of the transport."""
    due_at: str | None = None
    """When the next attempt is due, or the next check while the outcome is unknown."""
    reason: str | None = None
    """Why the handoff waits, or why it failed."""


@dataclass(frozen=True, kw_only=True)
class HeaderField:
    """A header field."""

    name: str
    value: str


@dataclass(frozen=True, kw_only=True)
class Inbox:
    """An inbox."""

    address: str
    """Address of the inbox."""
    allowed_link_domains: list[str]
    """Registrable domains whose links are allowed. When empty, links are judged by the sender's domain."""
    caps: Caps
    catch_all: bool
    """Whether the inbox receives mail for every address of its domain without an inbox."""
    created_at: str
    """When the inbox was created."""
    cursor: str
    """Cursor of the latest message; pass it as `after`."""
    id: str
    """Id of the inbox."""
    mark_auto_submitted: bool
    """Whether replies have the header `Auto-Submitted`."""
    message_count: int
    """Number of messages that were received."""
    metadata: dict[str, str]
    """Your own values."""
    reply_to_likely_automatic: bool
    """Whether agents may reply to mail that is likely, but not certainly, automatic."""
    rev: int
    """Revision; grows with every change."""
    agent: str | None = None
    """Name of the agent that uses the inbox."""
    client_id: str | None = None
    """Your own id of the inbox."""
    expires_at: str | None = None
    """When the inbox stops receiving mail; its messages stay readable. Null for a permanent inbox."""
    name: str | None = None
    """Display name for mail from this inbox."""
    retention: InboxRetention | None = None


@dataclass(frozen=True, kw_only=True)
class InboxPage:
    """A page of inboxes, newest first."""

    data: list[Inbox]
    next_cursor: str | None = None


class InboxPatch(TypedDict, total=False):
    """Fields of an inbox to change. Absent fields keep their value; `null` removes a value."""

    agent: str | None
    """Name of the agent that uses the inbox; `null` removes it."""
    allowed_link_domains: Sequence[str] | None
    """Registrable domains whose links are allowed, at most 50; replaces the list."""
    caps: Caps | None
    catch_all: bool | None
    """Whether the inbox receives mail for every address of its domain without an inbox; needs the scope `admin`."""
    mark_auto_submitted: bool | None
    """Whether replies have the header `Auto-Submitted`."""
    metadata: Mapping[str, str] | None
    """Your own values; replaces all of them."""
    name: str | None
    """Display name for mail from this inbox; `null` removes it."""
    reply_to_likely_automatic: bool | None
    """Whether agents may reply to mail that is likely, but not certainly, automatic."""
    retention: InboxRetention | None
    rev: int | None
    """The `rev` that you read. If it is set, the call is refused when the inbox has changed since."""
    ttl: str | None
    """New lifetime from now, such as `30m` or `24h`. `0s` expires the inbox now; `null` makes it permanent."""


@dataclass(frozen=True, kw_only=True)
class InboxRetention:
    """How long an inbox keeps mail. It can be shorter than the team's `retention`, and never longer."""

    raw: str | None = None
    """Received mail, with its text and attachments: a duration from 1 hour to 3,650 days; null means as long as the team keeps it."""


@dataclass(frozen=True, kw_only=True)
class InjectionFlag:
    """A sign of prompt injection, and how often it occurs."""

    count: int
    """How often it was found."""
    flag: str
    """The pattern that was found."""


@dataclass(frozen=True, kw_only=True)
class Key:
    """An idempotency key and what it is bound to."""

    bind_number: int
    """How often the key was bound: 1, plus 1 for each time it was used again after it had expired."""
    bound_to: Literal["email", "operation", "forgotten"]
    """`email`, `operation` (another call) or `forgotten`."""
    hits: int
    """Number of duplicate calls that were answered with the same email."""
    key: str
    suppressed_calls: list[SuppressedCall]
    """The latest 20 duplicate calls, newest first."""
    derivation: Literal["intent", "header"] | None = None
    """Where the key comes from: `intent` or `header`."""
    digest: str | None = None
    """Versioned hash of the canonical email; a retry with another digest is a mismatch."""
    email: str | None = None
    """Id of the email that the key is bound to."""
    expires_at: str | None = None
    """When the key expires; null until the email reaches a final state."""
    forgotten_at: str | None = None
    intent: Intent | None = None
    state: Literal["scheduled", "queued", "sending", "sent", "delivered", "bounced", "complained", "failed", "unknown", "abandoned", "held", "cancelled"] | None = None
    ttl: str | None = None


@dataclass(frozen=True, kw_only=True)
class KeyPage:
    """A page of idempotency keys."""

    data: list[Key]
    next_cursor: str | None = None
    """Pass it as `cursor` to get the next page; null on the last page. A page may have fewer keys than `limit`, or none, and still have a next page."""


class _KeyPatchNeeds(TypedDict):
    ttl: Ttl


class KeyPatch(_KeyPatchNeeds, total=False):
    """New lifetime of an idempotency key."""



@dataclass(frozen=True, kw_only=True)
class Lease:
    """A lease of a thread."""

    expires_at: str
    """When the lease expires unless it is extended."""
    fence: int
    """Fencing token: grows with each lease of the thread."""
    holder: str
    """Name of the worker that holds the lease."""
    token: str
    """Pass it as `lease` when you reply, acknowledge or extend."""


@dataclass(frozen=True, kw_only=True)
class LeaseHolder:
    """The current lease of a thread, without its token."""

    expires_at: str
    """When the lease expires unless it is extended."""
    holder: str
    """Name of the worker that holds the lease."""
    message: str | None = None
    """Id of the message that the lease was taken with."""


@dataclass(frozen=True, kw_only=True)
class Link:
    """A link in a message, with a safety verdict. mailonce never opens links."""

    reasons: list[str]
    """Why the link has this verdict."""
    verdict: Literal["allowed", "suspicious", "blocked"]
    """`allowed suspicious blocked`."""
    host: str | None = None
    """Host of the URL."""
    purpose: str | None = None
    """Purpose of the link if it is recognized, such as `verify` or `reset`."""
    url: str | None = None
    """The URL; null without the scope `secrets`, because a link may contain a secret."""


@dataclass(frozen=True, kw_only=True)
class Message:
    """A message, without its body."""

    attachments: list[AttachmentInfo]
    auth: Auth
    cc: list[Party]
    cursor: str
    """Position in the inbox; pass it as `after`."""
    flags: list[Literal["message_id_reused", "no_message_id", "unreadable", "cut", "ambiguous", "duplicate_header"]]
    """`message_id_reused no_message_id unreadable cut ambiguous duplicate_header`."""
    has: list[Literal["code", "link"]]
    """Types of the artifacts in the message: `code`, `link`."""
    id: str
    """Id of the message."""
    inbox_id: str
    """Id of the inbox that received it."""
    labels: list[str]
    """Labels of the message."""
    observed_rules: list[RuleHit]
    """Rules in the mode `observe` that matched. Their actions were not carried out."""
    preview: str
    """Start of the text, with codes and links masked. Empty in the view `min`, where all text is inside the fence."""
    read: bool
    """Whether the message is marked as read."""
    received_at: str
    """When the message arrived."""
    recipient: str
    """Envelope recipient, including a `+tag`."""
    replies: list[str]
    """Ids of the emails that replied to or forwarded the message."""
    reply_target: ReplyTarget
    """Where a reply goes."""
    reply_to: list[Party]
    rev: int
    """Revision; grows with every change."""
    rules: list[RuleHit]
    """Rules that matched, in the order of evaluation."""
    size: int
    """Size in bytes, as received."""
    state: Literal["unanswered", "leased", "answered", "skipped"]
    """`unanswered leased answered skipped`."""
    subject: str
    """Subject; empty without one."""
    thread_id: str
    """Id of its thread."""
    to: list[Party]
    automatic: AutomaticReason | None = None
    date: str | None = None
    """The Date header, which the sender chose."""
    folder: str | None = None
    """Folder that the message was moved to; null if it was not."""
    from_: Party | None = None
    message_id: str | None = None
    """The Message-ID header; null without one."""
    own_reason: Literal["address", "loop_mark", "message_id"] | None = None
    """Why the message counts as sent by the team itself: `address loop_mark message_id`; null if it does not."""


class MessageMatch(TypedDict, total=False):
    """Conditions on the message of the artifact."""

    from_: str | None
    """An address, or `@domain`."""
    subject: str | None
    """Part of the subject."""


@dataclass(frozen=True, kw_only=True)
class MessagePage:
    """A page of messages."""

    data: list[Message]
    next_cursor: str | None = None
    """Pass it as `cursor` (newest first) or as `after` (oldest first) to get the next page; null at the end."""


class _NewEndpointNeeds(TypedDict):
    url: str
    """Webhook URL: `https://…`. In `dev` mode also `http://` and loopback addresses."""


class NewEndpoint(_NewEndpointNeeds, total=False):
    """A webhook endpoint to create."""

    after: str | None
    """Where to start: an event cursor, or `0` for all stored events. When absent, with the next event."""
    description: str | None
    """Description for people."""
    dialect: Literal["resend", "usesend"] | None
    """Payload and signature format: `resend` or `usesend`; mailonce's own format when absent. Events that the dialect does not have are not sent."""
    events: Sequence[str] | None
    """Event types to send: types such as `email.sent`, prefixes such as `email.*`, or `["*"]` for all (default)."""
    headers: Mapping[str, str] | None
    """Custom headers of every webhook request. The values are not shown again."""
    inboxes: Sequence[str] | None
    """Send only events of these inboxes, by id; all inboxes when absent."""
    include_text: bool | None
    """Whether `message.received` includes the visible text of the message, with codes masked."""
    rate_per_s: int | None
    """Rate limit in requests per second; no limit when absent."""
    secret: str | None
    """Signing secret to use: `whsec_` and Base64 of 24 to 64 bytes. Generated when absent."""


class NewInbox(TypedDict, total=False):
    """An inbox to create. Set `address`, or `username` and `domain`, or neither for a random address."""

    address: str | None
    """Whole address; a random one by default. Not with `username` or `domain`."""
    agent: str | None
    """Name of the agent that uses the inbox."""
    allowed_link_domains: Sequence[str]
    """Registrable domains whose links are allowed, at most 50. When empty, links are judged by the sender's domain."""
    caps: Caps | None
    catch_all: bool
    """Whether the inbox receives mail for every address of its domain without an inbox; needs the scope `admin`."""
    client_id: str | None
    """Your own id of the inbox. Another call with the same `client_id` returns the same inbox."""
    domain: str | None
    """Domain of the address; the first domain of this installation by default."""
    mark_auto_submitted: bool
    """Whether replies have the header `Auto-Submitted`, which marks them as written by a machine."""
    metadata: Mapping[str, str]
    """Your own values."""
    name: str | None
    """Display name for mail from this inbox."""
    reply_to_likely_automatic: bool
    """Whether agents may reply to mail that is likely, but not certainly, automatic."""
    retention: InboxRetention | None
    ttl: str | None
    """Lifetime of the inbox, such as `30m`, `24h` or `7d`; permanent when absent."""
    username: str | None
    """Part of the address before the @; random by default."""


class NewLease(TypedDict, total=False):
    """A request for the lease of a thread."""

    holder: str | None
    """Name of the agent, shown to others; the name of the API key by default."""
    token: str | None
    """Token of your current lease, to renew it."""
    ttl_s: int | None
    """Duration of the lease in seconds, 1 to 600; 30 by default."""


class NewWatch(TypedDict, total=False):
    """A watch to start."""

    budget: int | None
    """How often the agent may request that the email is sent again, at most 100; 1 by default."""
    deadline: str | None
    """When the watch ends: an RFC 3339 time, or a duration from now such as `5m`. 10 minutes by default, at most 7 days."""
    require_auth: bool | None
    """`true`: only messages with an authenticated sender count."""


class NextMessages(TypedDict, total=False):
    """A request for messages to work on."""

    holder: str | None
    """Name of the agent, shown to others; the name of the API key by default."""
    limit: int | None
    """Maximum number of messages, 1 to 10; 1 by default."""
    ttl_s: int | None
    """Duration of each lease in seconds, 1 to 600; 30 by default."""
    wait: int | None
    """How long to wait for a message in seconds, up to 60; 0 by default."""


@dataclass(frozen=True, kw_only=True)
class NoticeAttempt:
    """An attempt to send a notice."""

    at: str
    latency_ms: int
    number: int
    response: str
    """Start of the response body, or the error message."""
    error: Literal["blocked", "name", "connect", "tls", "timeout", "broken", "status"] | None = None
    """Why the attempt failed: `blocked name connect tls timeout broken status`."""
    status: int | None = None
    """HTTP status of the response, if there was one."""


@dataclass(frozen=True, kw_only=True)
class Notice:
    """A notice: one event to be sent to one endpoint."""

    about: str
    """Id of the object that the event is about."""
    attempt_count: int
    """Number of attempts that were started."""
    attempts: list[NoticeAttempt]
    """The latest finished attempts, oldest first."""
    created_at: str
    endpoint: str
    event: str
    """Cursor of the event."""
    id: str
    """Id of the notice; the `webhook-id` header of every attempt."""
    rev: int
    state: Literal["pending", "delivered", "dead", "dropped"]
    """`pending delivered dead dropped`."""
    type: Literal["email.accepted", "email.held", "email.duplicate", "email.rescheduled", "email.sent", "email.delivered", "email.bounced", "email.complained", "email.failed", "email.deferred", "email.unknown", "email.resolved", "email.cancelled", "email.resent", "handoff.orphaned", "handoff.rerouted", "message.received", "delivery.duplicate", "delivery.refused", "delivery.failed", "artifact.found", "artifact.consumed", "artifact.applied", "email.hold_removed", "email.released", "message.answered", "message.forwarded", "message.reopened", "message.skipped", "reply.refused", "thread.leased", "thread.cap_reached", "escalation.opened", "escalation.resolved", "domain.verified", "domain.failed", "endpoint.disabled", "key.extended", "key.forgotten", "transport.breaker_opened", "transport.breaker_closed", "stop.created", "stop.ended", "claim.offered", "claim.claimed", "claim.begun", "claim.completed", "claim.failed", "claim.freed", "claim.unknown", "claim.evidence", "claim.resolved", "outbox.row_parked", "outbox.stopped", "outbox.resumed", "audit.recorded"] | str
    next_attempt_at: str | None = None
    """When the next attempt is due; null while an earlier notice about the same object is pending."""
    settled_at: str | None = None


@dataclass(frozen=True, kw_only=True)
class NoticePage:
    """A page of notices, latest events first."""

    data: list[Notice]
    next_cursor: str | None = None


@dataclass(frozen=True, kw_only=True)
class Party:
    """A sender or recipient of a message."""

    address: str
    """Address."""
    name: str | None = None
    """Display name; null without one."""


@dataclass(frozen=True, kw_only=True)
class PolicyStep:
    """What one check decided about an email."""

    kind: Literal["request", "sender", "stop", "suppression", "list", "rule", "budget", "guard"]
    """`request sender stop suppression list rule budget guard`"""
    name: str
    """Name of the rule or budget, or of the check: `request sender stops suppressions lists overlaps looks_duplicate cap`."""
    verdict: Literal["pass", "hold", "refuse", "flag", "observe"]
    """`pass hold refuse flag observe`; `observe`: the rule only records what it would have done."""
    why: str
    """Reason, in words."""
    id: str | None = None
    """Id of the rule or budget."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """An error response (RFC 9457): what went wrong and what to do next."""

    code: str
    """Error code. Branch on this value; later versions may have codes that are not listed."""
    detail: str
    """What went wrong in this call."""
    next: str
    """What to do next, in a sentence that a model can act on."""
    retry: Literal["never", "same", "later"]
    """Whether to retry: `never`, `same` (the same call with the same idempotency key) or `later` (after a pause)."""
    status: int
    """The HTTP status."""
    title: str
    """Short title for people."""
    type: str
    """Link to the documentation page of this error code."""
    field: str | None = None
    """Path of the invalid field, or name of the invalid parameter or header."""


class Recover(TypedDict, total=False):
    """Which notices to send again. Set either `since` or `after`."""

    after: str | None
    """Events after this cursor; `0` for all."""
    include: Literal["failed", "all"] | None
    """`failed` (default): dead notices, and notices that wait for a retry. `all`: also those that were delivered."""
    since: str | None
    """Events at or after this time."""


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """Result of a recovery."""

    after: str | None = None
    """Events after this cursor are sent again. Null when the call is a replay."""
    requeued: int | None = None
    """Number of failed notices that are due now. At 5000 there may be more: call again with a new idempotency key."""


class ReleaseLease(TypedDict, total=False):
    """The lease to release: your own by its token, or anybody's by force."""

    force: bool
    """End the lease of another agent, to take over. Needs the scope `approve` or `admin` instead of `reply`."""
    token: str | None
    """Token of the lease. Only its holder knows it."""


@dataclass(frozen=True, kw_only=True)
class RenderedMessage:
    """A message with its body."""

    attachments: list[AttachmentInfo]
    auth: Auth
    cc: list[Party]
    cursor: str
    """Position in the inbox; pass it as `after`."""
    flags: list[Literal["message_id_reused", "no_message_id", "unreadable", "cut", "ambiguous", "duplicate_header"]]
    """`message_id_reused no_message_id unreadable cut ambiguous duplicate_header`."""
    has: list[Literal["code", "link"]]
    """Types of the artifacts in the message: `code`, `link`."""
    id: str
    """Id of the message."""
    inbox_id: str
    """Id of the inbox that received it."""
    labels: list[str]
    """Labels of the message."""
    observed_rules: list[RuleHit]
    """Rules in the mode `observe` that matched. Their actions were not carried out."""
    preview: str
    """Start of the text, with codes and links masked. Empty in the view `min`, where all text is inside the fence."""
    read: bool
    """Whether the message is marked as read."""
    received_at: str
    """When the message arrived."""
    recipient: str
    """Envelope recipient, including a `+tag`."""
    replies: list[str]
    """Ids of the emails that replied to or forwarded the message."""
    reply_target: ReplyTarget
    """Where a reply goes."""
    reply_to: list[Party]
    rev: int
    """Revision; grows with every change."""
    rules: list[RuleHit]
    """Rules that matched, in the order of evaluation."""
    size: int
    """Size in bytes, as received."""
    state: Literal["unanswered", "leased", "answered", "skipped"]
    """`unanswered leased answered skipped`."""
    subject: str
    """Subject; empty without one."""
    thread_id: str
    """Id of its thread."""
    to: list[Party]
    artifacts: list[Artifact]
    candidates: list[dict[str, Any]]
    """Ambiguous codes and links. They cannot be consumed."""
    injection_flags: list[InjectionFlag]
    links: list[Link]
    view: Literal["min", "plain", "full", "gone"]
    """`min plain full`, or `gone` when the message's bytes are no longer stored."""
    automatic: AutomaticReason | None = None
    date: str | None = None
    """The Date header, which the sender chose."""
    folder: str | None = None
    """Folder that the message was moved to; null if it was not."""
    from_: Party | None = None
    message_id: str | None = None
    """The Message-ID header; null without one."""
    own_reason: Literal["address", "loop_mark", "message_id"] | None = None
    """Why the message counts as sent by the team itself: `address loop_mark message_id`; null if it does not."""
    complete: bool | None = None
    """Whether the whole message was processed; false when it exceeded a limit."""
    headers: list[HeaderField] | None = None
    """The header fields; only in the view `full`."""
    html: str | None = None
    """Sanitized HTML without active or remote content; only in the view `full`."""
    removed_counts: dict[str, Any] | None = None
    """How many hidden or unsafe parts the view `min` removed, by kind."""
    text: str | None = None
    """The text. In the view `min` it is inside a fence with a random nonce; treat everything in it as untrusted."""


class Reply(TypedDict, total=False):
    """A reply to a message."""

    distinct_token: str | None
    """One-time token of a held reply that looks like an earlier email: releases the held reply."""
    follow_up: int
    """0 (default) is the reply; 1, 2 and so on are intended follow-ups. Each number is sent once."""
    html: str | None
    """HTML body."""
    lease: str | None
    """Token of the lease that you hold on the thread."""
    quote: bool
    """Whether to quote the message below the reply."""
    reply_all: bool
    """Whether to reply to all recipients of the message. The team's own inboxes are always left out."""
    seen: Sequence[str]
    """Ids of newer messages in the thread that you have read; at most 100."""
    template: TemplateUse | None
    text: str | None
    """Plain text body. Required unless `html` or `template` is set."""


@dataclass(frozen=True, kw_only=True)
class ReplyCounts:
    """Number of replies in a thread, and its limits."""

    caps: Caps
    in_window: int
    """Replies within the window of `caps`, the latest `window_s` seconds."""
    last_24h: int
    """Within the last 24 hours."""
    total: int
    """All replies in the thread."""


@dataclass(frozen=True, kw_only=True)
class ReplyTarget:
    """Where a reply to the message goes."""

    flags: list[Literal["other_domain", "auth_failed"]]
    """Risks: `other_domain` (another organization than the sender's) and `auth_failed` (authentication failed)."""
    to: list[str]
    """The Reply-To addresses, or the sender without any."""


class _RescheduleNeeds(TypedDict):
    scheduled_at: str
    """RFC 3339 time with an offset, or a relative time such as `in 5 minutes`."""


class Reschedule(_RescheduleNeeds, total=False):
    """New time of a scheduled email."""



class Resend(TypedDict, total=False):
    """Why an email is resent."""

    reason: str | None
    """Reason, for people who read the timeline later."""


class _ResolveEmailNeeds(TypedDict):
    as_: Literal["sent", "resend", "abandon"]
    """`sent` (the email arrived), `resend` (send the same bytes again) or `abandon` (give up)."""
    rev: int
    """The `rev` of the email that you read; the call is refused if the email has changed since."""


class ResolveEmail(_ResolveEmailNeeds, total=False):
    """A person's decision about an email whose outcome is unknown."""

    handoff: int | None
    """Number of the handoff to resolve; every unknown handoff when absent."""
    reason: str | None
    """Reason, for people who read the timeline later."""


class RotateEndpoint(TypedDict, total=False):
    """Rotation of an endpoint's secret."""

    previous_secret_ttl: str | None
    """How long requests are also signed with the previous secrets; `24h` by default, at most `30d`."""
    secret: str | None
    """New signing secret: `whsec_…`. Generated when absent."""


@dataclass(frozen=True, kw_only=True)
class RuleHit:
    """A rule that matched the message."""

    actions: list[Literal["block", "folder", "label", "skip_agent", "mark_read", "approve", "approve_new_recipients"]]
    """Actions of the rule, such as `folder` and `label`."""
    id: str
    name: str
    """Name of the rule at that time."""


Scalar: TypeAlias = "str | float | bool"
"""A string, a number up to 2^53-1 or a boolean."""


class _SendNeeds(TypedDict):
    from_: str
    """Sender: `agent@example.com` or `Name <agent@example.com>`."""
    to: Addresses


class Send(_SendNeeds, total=False):
    """An email to send once."""

    attachments: Sequence[Attachment] | None
    bcc: Addresses
    cc: Addresses
    distinct_token: str | None
    """One-time token of a held email that looks like an earlier one: confirms that it is a different email."""
    headers: Mapping[str, str] | None
    """Custom headers, by name."""
    html: str | None
    """HTML body."""
    metadata: Mapping[str, Scalar] | None
    """Your own data: strings, numbers up to 2^53-1 and booleans, by name."""
    on_mismatch: Literal["reject", "first_wins"] | None
    """What to do when the key was used for a different email. `reject` answers 422; `first_wins` answers with the first email. The default is `reject` for header keys and `first_wins` for intents."""
    on_unknown: Literal["hold", "resend"] | None
    """What to do when the outcome is unknown. `hold` (default) waits for evidence or a person; `resend` sends once more, so the recipient may get it twice."""
    reply_to: Addresses
    scheduled_at: str | None
    """When to send: RFC 3339 time with an offset, or a relative time such as `in 5 minutes`. At once when absent."""
    subject: str | None
    """Subject."""
    tags: Sequence[Tag] | None
    template: TemplateUse | None
    text: str | None
    """Plain text body. Required unless `html` or `template` is set."""
    transport: str | None
    """Name of the transport to use; chosen by the server when absent."""
    ttl: Ttl | None


@dataclass(frozen=True, kw_only=True)
class SendReceipt:
    """The response to a send. A retry gets the same email with its current state."""

    created_at: str
    """When the email was accepted."""
    dedupe: Dedupe
    id: str
    """Id of the email."""
    message_id: str
    """The Message-ID header, with angle brackets."""
    next: str
    """What this response means and what to do next, in a sentence."""
    rev: int
    """Revision; grows with every change."""
    state: Literal["scheduled", "queued", "sending", "sent", "delivered", "bounced", "complained", "failed", "unknown", "abandoned", "held", "cancelled"]
    """`scheduled queued sending sent delivered bounced complained failed unknown abandoned held cancelled`"""
    distinct_token: str | None = None
    """One-time token of a held email that looks like an earlier one. If it is a different email, send the same call again with this token: the held email is released."""
    fence: int | None = None
    """The fence of that thread's latest lease."""
    guard: Literal["self", "automatic", "already_answered", "leased", "newer_message", "cap", "looks_duplicate", "overlaps", "approval", "budget", "reply_to"] | str | None = None
    """The most important guard in `holds`, or the one that held or flagged the email, or found a duplicate."""
    holds: list[Literal["self", "automatic", "already_answered", "leased", "newer_message", "cap", "looks_duplicate", "overlaps", "approval", "budget", "reply_to"] | str] | None = None
    """The guards that hold the email. It leaves when none is left."""
    policy: list[PolicyStep] | None = None
    """With `Prefer: policy-trace`: what each check decided about the email when it was accepted, in order."""
    resent_as: str | None = None
    """Id of the next version, if the email was resent."""
    thread_id: str | None = None
    """The thread of a reply."""
    tightest_budget: BudgetRoom | None = None


@dataclass(frozen=True, kw_only=True)
class SentAttachment:
    """An attachment, without its bytes. `GET /v1/emails/{id}/attachments/{n}` returns the bytes; the first is number 0."""

    size: int
    """Size in bytes."""
    content_id: str | None = None
    """Content-ID, if the HTML refers to the attachment."""
    content_type: str | None = None
    """Declared content type."""
    filename: str | None = None
    """File name as sent."""


@dataclass(frozen=True, kw_only=True)
class SuppressedCall:
    """A duplicate call that was answered with an earlier email."""

    at: str
    """When the duplicate call came."""
    channel: Literal["http", "batch", "cli", "resend", "usesend", "mcp", "agentmail", "outbox"]
    """How the call came."""
    reason: Literal["key_replay", "payload_differs", "mismatch", "already_answered", "identical"] | str
    """`key_replay payload_differs mismatch already_answered`"""
    call: CallTrace | None = None
    caller: str | None = None
    """Id of the API key of the call."""


Tag: TypeAlias = "str | TagPair"
"""A tag: a name, or a name with a value."""


class _TagPairNeeds(TypedDict):
    name: str
    """Name of the tag."""


class TagPair(_TagPairNeeds, total=False):
    """A tag with a value."""

    value: str | None
    """Value of the tag."""


@dataclass(frozen=True, kw_only=True)
class TemplateRef:
    """A template and its version."""

    name: str
    version: int


class _TemplateUseNeeds(TypedDict):
    name: str
    """Name of the template."""


class TemplateUse(_TemplateUseNeeds, total=False):
    """The template that writes an email."""

    variables: Mapping[str, Any] | None
    """Values, by variable."""
    version: int | None
    """The version; the newest by default."""


@dataclass(frozen=True, kw_only=True)
class Thread:
    """A thread: messages and emails that reply to each other."""

    created_at: str
    """When the thread began."""
    email_count: int
    """Number of sent emails."""
    fence: int
    """Fence of the latest lease; grows with each lease."""
    id: str
    """Id of the thread."""
    inbox_id: str
    """Id of the inbox."""
    labels: list[str]
    """Labels of the thread."""
    last_activity_at: str
    """When the last message or email was added."""
    message_count: int
    """Number of received messages."""
    rev: int
    """Revision; grows with every change."""
    subject: str
    """Subject of the first message."""
    entries: list[ThreadEntry] | None = None
    """The latest 100 messages and 100 emails, oldest first; only when a single thread is read."""
    handled_at: str | None = None
    """When the thread was marked as handled; null if it is not. A new message clears the mark."""
    lease: LeaseHolder | None = None
    replies: ReplyCounts | None = None


@dataclass(frozen=True, kw_only=True)
class ThreadEntry:
    """An entry of a thread: a received message or a sent email."""

    type: Literal["message", "email"]
    message: Message | None = None
    """The message."""
    email: Email | None = None
    """The email."""


@dataclass(frozen=True, kw_only=True)
class ThreadPage:
    """A page of threads, latest activity first."""

    data: list[Thread]
    next_cursor: str | None = None


class ThreadPatch(TypedDict, total=False):
    """Fields of a thread to change. Absent fields keep their value."""

    handled: bool | None
    """Whether the thread is handled: nothing is left to do."""
    labels: Sequence[str] | None
    """Replaces all labels."""


@dataclass(frozen=True, kw_only=True)
class TimelineEntry:
    """An entry in the timeline of an email."""

    at: str
    """When it happened."""
    description: str
    """What happened, in a sentence."""


@dataclass(frozen=True, kw_only=True)
class WaitResult:
    """The message that was waited for."""

    cursor: str
    """Pass it as `after` to wait for the next message."""
    message: Message


@dataclass(frozen=True, kw_only=True)
class Watch:
    """A watch: one run of an agent that waits for mail."""

    budget: int
    """How often the agent may ask for the mail again."""
    cursor: str
    """Only messages after this cursor count."""
    deadline: str
    """When the watch ends."""
    id: str
    """Id of the watch."""
    inbox_id: str
    """Id of the inbox."""
    require_auth: bool
    """Whether only messages with an authenticated sender count."""
    resends_used: int
    """How often the agent asked for the mail again."""
    rev: int
    """Revision; grows with every change."""
    started_at: str
    """When the watch started."""


@dataclass(frozen=True, kw_only=True)
class WorkItem:
    """A message to work on."""

    lease: Lease
    message: Message
    newer_messages: list[str]
    """Ids of newer messages from people in the thread. Read them, and list them in `seen` when you reply."""


@dataclass(frozen=True, kw_only=True)
class WorkItemPage:
    """Messages to work on, each with a lease."""

    data: list[WorkItem]

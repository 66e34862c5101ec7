"""Arguments that openapi.json has no schema for: queries, and the items of a batch."""

from __future__ import annotations

from typing import TypedDict

from .wire import ArtifactType, EmailState, EventType, Intent, MessageState, NoticeState, Send


class MailWithIntent(Send):
    """An email whose idempotency key is derived from its intent."""

    intent: Intent


class PageQuery(TypedDict, total=False):
    limit: int
    cursor: str | None


class EmailQuery(PageQuery, total=False):
    state: EmailState
    to: str
    key: str
    since: str
    until: str


class MessageQuery(PageQuery, total=False):
    after: str
    from_: str
    subject: str
    has: ArtifactType
    state: MessageState
    label: str
    thread: str


class WaitFor(TypedDict, total=False):
    after: str
    """Only messages after this cursor."""
    from_: str
    """The sender: an address, or `@domain`."""
    subject: str
    has: ArtifactType
    """Only messages with a `code` or a `link`."""
    watch: str
    for_: str
    """As in `consume`: only new messages with a code or link that nobody else consumed."""


class ThreadQuery(PageQuery, total=False):
    inbox: str
    label: str
    handled: bool


class EventQuery(TypedDict, total=False):
    after: str | None
    """Return events after this cursor; `0` returns all stored events."""
    type: str
    """Event types, such as `email.sent,message.*`."""
    about: str
    inbox: str


class EventPageQuery(EventQuery, total=False):
    limit: int


class NoticeQuery(PageQuery, total=False):
    state: NoticeState
    type: EventType
    about: str

"""Arguments that the document has no shape for: queries, and the items of a batch."""

from __future__ import annotations

from typing import TypedDict

from .wire import Intent, Send


class MailWithIntent(Send):
    """A mail whose key follows from what it is about."""

    intent: Intent


class PageQuery(TypedDict, total=False):
    limit: int
    cursor: str | None


class EmailQuery(PageQuery, total=False):
    state: str
    to: str
    key: str
    since: str
    until: str


class MessageQuery(PageQuery, total=False):
    after: str
    from_: str
    subject: str
    has: str
    state: str
    label: str
    thread: str


class WaitFor(TypedDict, total=False):
    after: str
    """A cursor: only mail behind it counts."""
    from_: str
    """An address, or `@domain`."""
    subject: str
    has: str
    """`code` or `link`."""
    watch: str
    for_: str
    """Who takes the code or link, as in `consume`: only new mail counts, with something that nobody else took."""


class ThreadQuery(PageQuery, total=False):
    inbox: str
    label: str
    handled: bool


class EventQuery(TypedDict, total=False):
    after: str | None
    """A cursor, or `0` for everything there ever was."""
    type: str
    """`email.sent,message.*`"""
    about: str
    inbox: str


class EventPageQuery(EventQuery, total=False):
    limit: int


class NoticeQuery(PageQuery, total=False):
    state: str
    type: str
    about: str

"""Inboxes: waiting for messages, consuming codes and links, leasing work."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from .._call import Call, CallOptions, at
from .._keep import RENEWAL
from .._shape import read
from ..wire import (
    Artifact,
    ConsumedArtifact,
    ConsumeMatch,
    Inbox,
    InboxPage,
    InboxPatch,
    Lease,
    Message,
    MessagePage,
    NewInbox,
    NewWatch,
    NextMessages,
    WaitResult,
    Watch,
    WorkItem,
    WorkItemPage,
)
from .caller import AsyncCaller
from .lease import AsyncHeldLease
from .messages import AsyncMessages

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._mail import MessageQuery, PageQuery, WaitFor

MAX_SERVER_WAIT = 50
"""The server waits at most a minute per call; a longer wait takes several calls."""


class AsyncInboxes:
    """Calls for inboxes, by id or address."""

    def __init__(self, call: AsyncCaller, messages: AsyncMessages) -> None:
        self._call = call
        self._messages = messages

    async def create(self, *, options: CallOptions | None = None, **body: Unpack[NewInbox]) -> Inbox:
        return await self._call.read(Inbox, Call("POST", "/v1/inboxes", body=body, mint=True), options)

    async def get(self, inbox: str, *, options: CallOptions | None = None) -> Inbox:
        return await self._call.read(Inbox, Call("GET", f"/v1/inboxes/{at(inbox)}"), options)

    async def list(self, *, options: CallOptions | None = None, **query: Unpack[PageQuery]) -> InboxPage:
        return await self._call.read(InboxPage, Call("GET", "/v1/inboxes", query=query), options)

    async def each(self, *, options: CallOptions | None = None, **query: Unpack[PageQuery]) -> AsyncIterator[Inbox]:
        """All pages of `list`, one inbox after the other."""
        while True:
            page = await self.list(options=options, **query)
            for inbox in page.data:
                yield inbox
            if page.next_cursor is None:
                return
            query["cursor"] = page.next_cursor

    async def update(self, inbox: str, *, options: CallOptions | None = None, **body: Unpack[InboxPatch]) -> Inbox:
        return await self._call.read(Inbox, Call("PATCH", f"/v1/inboxes/{at(inbox)}", body=body), options)

    async def delete(self, inbox: str, *, options: CallOptions | None = None) -> Inbox:
        return await self._call.read(Inbox, Call("DELETE", f"/v1/inboxes/{at(inbox)}"), options)

    async def messages(
        self, inbox: str, *, options: CallOptions | None = None, **query: Unpack[MessageQuery]
    ) -> MessagePage:
        return await self._call.read(
            MessagePage, Call("GET", f"/v1/inboxes/{at(inbox)}/messages", query=query), options
        )

    async def wait(
        self, inbox: str, *, timeout: float = 30, options: CallOptions | None = None, **what: Unpack[WaitFor]
    ) -> WaitResult | None:
        """Waits up to `timeout` seconds for a message; None if none arrived in time."""
        left = math.ceil(timeout)
        while True:
            hold = min(left, MAX_SERVER_WAIT)
            call = Call("GET", f"/v1/inboxes/{at(inbox)}/wait", query={**what, "timeout": hold}, hold=hold)
            arrived = await self._call.json(call, options)
            if arrived is not None:
                return read(WaitResult, arrived)
            left -= hold
            if left <= 0:
                return None

    async def consume(
        self, inbox: str, *, options: CallOptions | None = None, **body: Unpack[ConsumeMatch]
    ) -> Artifact:
        """Consumes the newest matching code or link once, `for_` one account, workflow or run.

        `timeout` waits for it, up to 60 s.
        """
        hold = body.get("timeout") or 0
        call = Call("POST", f"/v1/inboxes/{at(inbox)}/consume", body=body, hold=hold)
        return (await self._call.read(ConsumedArtifact, call, options)).artifact

    async def watch(self, inbox: str, *, options: CallOptions | None = None, **body: Unpack[NewWatch]) -> Watch:
        """Creates a watch: `wait` and `consume` with its id see only messages that arrive from now on."""
        return await self._call.read(
            Watch, Call("POST", f"/v1/inboxes/{at(inbox)}/watches", body=body, mint=True), options
        )

    async def next(
        self, inbox: str, *, options: CallOptions | None = None, **body: Unpack[NextMessages]
    ) -> Sequence[WorkItem]:
        """Leases up to `limit` unanswered messages, each with its thread, that nobody else has leased."""
        hold = body.get("wait") or 0
        call = Call("POST", f"/v1/inboxes/{at(inbox)}/next", body=body, hold=hold, mint=True)
        return (await self._call.read(WorkItemPage, call, options)).data

    async def work(
        self,
        inbox: str,
        work: Callable[[Message, AsyncHeldLease], Awaitable[object]],
        *,
        stop: Callable[[], bool] = lambda: False,
        on_error: Callable[[Exception, Message], None] | None = None,
        ttl_s: int = 60,
        delay_s: int = 30,
        poll_s: int = MAX_SERVER_WAIT,
        holder: str | None = None,
    ) -> None:
        """Works on one message after the other until `stop` returns True.

        The lease is renewed while `work` runs. The message is acked when it returns, and returned when it raises.
        Without `on_error` an error of your work ends the loop and is raised.
        """
        while not stop():
            for offer in await self.next(inbox, limit=1, wait=poll_s, ttl_s=ttl_s, holder=holder):
                try:
                    await self._one(offer, ttl_s, delay_s, work)
                except Exception as error:
                    if on_error is None:
                        raise
                    on_error(error, offer.message)

    async def _one(
        self,
        offer: WorkItem,
        ttl: int,
        delay: int,
        work: Callable[[Message, AsyncHeldLease], Awaitable[object]],
    ) -> None:
        message, token = offer.message, offer.lease.token

        async def take() -> Lease:
            return offer.lease

        async def renew(_: Lease) -> object:
            return await self._messages.extend(message.id, lease=token, ttl_s=ttl, options=RENEWAL)

        async def done(_: Lease) -> object:
            return await self._messages.ack(message.id, lease=token)

        held = AsyncHeldLease(ttl, take, renew, done)
        await held.acquire()
        try:
            await work(message, held)
        except BaseException:
            await held.stop()
            if held.lost is None:
                await self._messages.nack(message.id, lease=token, delay_s=delay)
            raise
        await held.release()

"""Threads, and leases on them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from .._call import Call, CallOptions, at
from ..wire import Thread, ThreadPage, ThreadPatch
from .caller import AsyncCaller
from .lease import AsyncHeldLease

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._mail import ThreadQuery


class AsyncThreads:
    def __init__(self, call: AsyncCaller) -> None:
        self._call = call

    async def get(self, thread: str, *, options: CallOptions | None = None) -> Thread:
        return await self._call.read(Thread, Call("GET", f"/v1/threads/{at(thread)}"), options)

    async def list(self, *, options: CallOptions | None = None, **query: Unpack[ThreadQuery]) -> ThreadPage:
        return await self._call.read(ThreadPage, Call("GET", "/v1/threads", query=query), options)

    async def each(self, *, options: CallOptions | None = None, **query: Unpack[ThreadQuery]) -> AsyncIterator[Thread]:
        """All pages of `list`, one thread after the other."""
        while True:
            page = await self.list(options=options, **query)
            for thread in page.data:
                yield thread
            if page.next_cursor is None:
                return
            query["cursor"] = page.next_cursor

    async def update(self, thread: str, *, options: CallOptions | None = None, **body: Unpack[ThreadPatch]) -> Thread:
        return await self._call.read(Thread, Call("PATCH", f"/v1/threads/{at(thread)}", body=body), options)

    def lease(
        self, thread: str, *, ttl_s: int = 60, holder: str | None = None, options: CallOptions | None = None
    ) -> AsyncHeldLease:
        """Leases a thread for a `with` block: renews the lease meanwhile and releases it at the end, even after an
        error. Raises `leased` while another worker holds it.
        """
        path, caller = f"/v1/threads/{at(thread)}/lease", self._call
        return AsyncHeldLease.of_thread(caller, path, ttl_s, holder, options)

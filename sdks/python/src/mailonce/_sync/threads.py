"""Threads, and leases on them. Generated from `_async` by sdks/generate. Do not edit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .._call import Call, CallOptions, at
from ..wire import Thread, ThreadPage, ThreadPatch
from .caller import Caller
from .lease import HeldLease

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._mail import ThreadQuery


class Threads:
    def __init__(self, call: Caller) -> None:
        self._call = call

    def get(self, thread: str, *, options: CallOptions | None = None) -> Thread:
        return self._call.read(Thread, Call("GET", f"/v1/threads/{at(thread)}"), options)

    def list(self, *, options: CallOptions | None = None, **query: Unpack[ThreadQuery]) -> ThreadPage:
        return self._call.read(ThreadPage, Call("GET", "/v1/threads", query=query), options)

    def each(self, *, options: CallOptions | None = None, **query: Unpack[ThreadQuery]) -> Iterator[Thread]:
        """All pages of `list`, one thread after the other."""
        while True:
            page = self.list(options=options, **query)
            for thread in page.data:
                yield thread
            if page.next_cursor is None:
                return
            query["cursor"] = page.next_cursor

    def update(self, thread: str, *, options: CallOptions | None = None, **body: Unpack[ThreadPatch]) -> Thread:
        return self._call.read(Thread, Call("PATCH", f"/v1/threads/{at(thread)}", body=body), options)

    def lease(
        self, thread: str, *, ttl_s: int = 60, holder: str | None = None, options: CallOptions | None = None
    ) -> HeldLease:
        """Leases a thread for a `with` block: renews the lease meanwhile and releases it at the end, even after an
        error. Raises `leased` while another worker holds it.
        """
        path, caller = f"/v1/threads/{at(thread)}/lease", self._call
        return HeldLease.of_thread(caller, path, ttl_s, holder, options)

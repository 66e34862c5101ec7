"""Renews a lease in the background: in a task, or in a thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

from ._call import CallOptions
from ._error import MailonceError

RENEWAL: CallOptions = {"max_retries": 2}
"""Retries of one renewal. Few, because the loop renews again and must notice a lost lease in time."""


class _Times:
    """When to renew, and whether a failure means that the lease is lost."""

    def __init__(self, ttl: float, outlives_outages: bool) -> None:
        self.ttl = ttl
        self.outlives_outages = outlives_outages
        self.until = time.monotonic() + ttl
        self.lost: MailonceError | None = None
        self.is_failing = False

    def idle(self) -> float:
        if self.outlives_outages:
            # After a failure, retry soon enough before the lease ends.
            return self.ttl / (12 if self.is_failing else 3)
        return max(min(self.ttl / 3, self.until - time.monotonic()), 0)

    def renewed(self, asked: float) -> None:
        self.until = asked + self.ttl
        self.is_failing = False

    def failed(self, error: MailonceError) -> bool:
        self.is_failing = True
        if self.outlives_outages:
            # A holder of a claim that comes back has its claim back, unless the server says otherwise.
            self.lost = error if error.retry == "never" else None
        # Without a response the lease still holds until it expires.
        elif error.retry != "same" or time.monotonic() >= self.until:
            self.lost = error
        return self.lost is not None


class AsyncKeeper:
    def __init__(self, ttl: float, renew: Callable[[], Awaitable[object]], *, outlives_outages: bool = False) -> None:
        self._times = _Times(ttl, outlives_outages)
        self._renew = renew
        self._task = asyncio.create_task(self._run())

    @property
    def lost(self) -> MailonceError | None:
        return self._times.lost

    async def stop(self) -> None:
        self._task.cancel()
        try:
            await self._task
        except asyncio.CancelledError:
            if not self._task.cancelled():
                raise  # it is the caller that was cancelled

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._times.idle())
            asked = time.monotonic()
            try:
                await self._renew()
                self._times.renewed(asked)
            except MailonceError as error:
                if self._times.failed(error):
                    return


class Keeper:
    def __init__(self, ttl: float, renew: Callable[[], object], *, outlives_outages: bool = False) -> None:
        self._times = _Times(ttl, outlives_outages)
        self._renew = renew
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mailonce-lease", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> MailonceError | None:
        return self._times.lost

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._times.idle()):
            asked = time.monotonic()
            try:
                self._renew()
                self._times.renewed(asked)
            except MailonceError as error:
                if self._times.failed(error):
                    return

"""A repeated identical call in one loop of an agent is answered from its first result."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")


def _always(_: object) -> bool:
    return True


class FirstResults:
    """Results of one loop, by tool and arguments: make one for each loop. Works for tools of your own too.

    A call that raised, or whose result `final` denies, is made again. Calls that come at the same time wait for the
    first of them.
    """

    def __init__(self) -> None:
        self._results: dict[str, Any] = {}
        self._guard = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._async_locks: dict[str, asyncio.Lock] = {}

    def run(self, name: str, arguments: Any, call: Callable[[], T], final: Callable[[T], bool] = _always) -> T:
        key = _key(name, arguments)
        with self._guard:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key in self._results:
                known: T = self._results[key]
                return known
            result = call()
            if final(result):
                self._results[key] = result
            return result

    async def arun(
        self, name: str, arguments: Any, call: Callable[[], Awaitable[T]], final: Callable[[T], bool] = _always
    ) -> T:
        key = _key(name, arguments)
        async with self._async_locks.setdefault(key, asyncio.Lock()):
            if key in self._results:
                known: T = self._results[key]
                return known
            result = await call()
            if final(result):
                self._results[key] = result
            return result


def _key(name: str, arguments: Any) -> str:
    return f"{name} {json.dumps(arguments, sort_keys=True, default=str)}"

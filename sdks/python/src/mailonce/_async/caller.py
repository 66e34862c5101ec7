"""One call: retries the same bytes with the same idempotency key until there is a response."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import httpx

from .._call import Call, CallOptions, Download, FailedTry, Settings, judge
from .._error import no_answer
from .._shape import read

T = TypeVar("T")


class AsyncCaller:
    def __init__(self, settings: Settings, transport: httpx.AsyncBaseTransport | None) -> None:
        self.settings = settings
        self.http = httpx.AsyncClient(transport=transport)

    async def read(self, kind: type[T], call: Call, options: CallOptions | None = None) -> T:
        """Makes a call and parses its response."""
        return read(kind, await self.json(call, options))

    async def json(self, call: Call, options: CallOptions | None = None) -> Any:
        """Makes a call and retries it until there is a response; None for 204."""
        options = options or {}
        request = self.http.build_request(**call.request(self.settings, options))
        tries, tried = call.tries(self.settings, options), 0
        while True:
            tried += 1
            result = await self._once(request, call.bytes_)
            if not isinstance(result, FailedTry):
                return result
            if tried >= tries or not result.may_retry:
                raise result.error
            await asyncio.sleep(max(self.settings.pause(tried), result.retry_after))

    async def download(self, path: str, options: CallOptions | None = None) -> Download:
        """Makes a call whose response is bytes."""
        made: Download = await self.json(Call("GET", path, bytes_=True), options)
        return made

    async def _once(self, request: httpx.Request, bytes_: bool) -> Any:
        try:
            return judge(await self.http.send(request, follow_redirects=False), self.settings.base_url, bytes_)
        except httpx.TransportError as error:
            lost = no_answer(str(error) or type(error).__name__, str(request.url))
            lost.__cause__ = error
            return FailedTry(lost, True)

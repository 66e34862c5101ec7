"""One call: the same bytes under the same key until there is an answer, within limits of time and tries. Made from `_async` by sdks/generate. Do not edit."""

from __future__ import annotations

import time
from typing import Any, TypeVar

import httpx

from .._call import Call, CallOptions, Download, Lost, Settings, judge
from .._error import no_answer
from .._shape import read

T = TypeVar("T")


class Caller:
    def __init__(self, settings: Settings, transport: httpx.BaseTransport | None) -> None:
        self.settings = settings
        self.http = httpx.Client(transport=transport)

    def read(self, kind: type[T], call: Call, options: CallOptions | None = None) -> T:
        """Makes a call and reads its answer."""
        return read(kind, self.json(call, options))

    def json(self, call: Call, options: CallOptions | None = None) -> Any:
        """Makes a call until it is answered; None for 204."""
        options = options or {}
        request = self.http.build_request(**call.request(self.settings, options))
        tries, tried = call.tries(self.settings, options), 0
        while True:
            tried += 1
            told = self._once(request, call.bytes_)
            if not isinstance(told, Lost):
                return told
            if tried >= tries or not told.again:
                raise told.error
            time.sleep(self.settings.pause(tried) if told.pause is None else told.pause)

    def download(self, path: str, options: CallOptions | None = None) -> Download:
        """Makes a call whose answer is bytes."""
        made: Download = self.json(Call("GET", path, bytes_=True), options)
        return made

    def _once(self, request: httpx.Request, bytes_: bool) -> Any:
        try:
            return judge(self.http.send(request, follow_redirects=False), self.settings.base_url, bytes_)
        except httpx.TransportError as error:
            lost = no_answer(str(error) or type(error).__name__, str(request.url))
            lost.__cause__ = error
            return Lost(lost, True)

"""Events, as a list and as a stream that resumes where it was cut. Generated from `_async` by sdks/generate. Do not edit."""

from __future__ import annotations

import time
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import httpx

from .._call import Call, CallOptions
from .._error import MailonceError, no_answer, refusal
from .._frames import Frames
from .._shape import read
from ..wire import Event, EventPage
from .caller import Caller

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._mail import EventPageQuery, EventQuery

IDLE_TIMEOUT = 45
"""Idle timeout. The server sends a heartbeat every 15 s."""


class Events:
    def __init__(self, call: Caller) -> None:
        self._call = call

    def list(self, *, options: CallOptions | None = None, **query: Unpack[EventPageQuery]) -> EventPage:
        return self._call.read(EventPage, Call("GET", "/v1/events", query=query), options)

    def stream(self, **query: Unpack[EventQuery]) -> Iterator[Event]:
        """Streams every event from now on, or after `after`, once and in order, and reconnects by itself.

        Store `cursor` to resume in another process. Ends when the loop is left.
        """
        settings, failed = self._call.settings, 0
        while True:
            try:
                for cursor, data in self._open(query):
                    failed = 0
                    if cursor is not None:
                        query["after"] = cursor
                    if data is not None:
                        yield read(Event, json.loads(data))
            except MailonceError as error:
                if error.retry != "same" and error.status != 429 or failed >= settings.max_retries:
                    raise
            failed += 1
            time.sleep(settings.pause(failed))

    def _open(self, query: EventQuery) -> Iterator[tuple[str | None, str | None]]:
        call = Call("GET", "/v1/events/stream", query=query, headers={"Accept": "text/event-stream"})
        request = call.request(self._call.settings, {"timeout": IDLE_TIMEOUT})
        frames = Frames()
        try:
            with self._call.http.stream(**request, follow_redirects=False) as response:
                if not response.is_success:
                    response.read()
                    raise refusal(response.status_code, response.text, str(response.url), self._call.settings.base_url)
                for piece in response.iter_bytes():
                    for frame in frames.feed(piece):
                        yield frame
        except httpx.TransportError as error:
            raise no_answer(f"the stream was cut: {error}", str(request["url"])) from error

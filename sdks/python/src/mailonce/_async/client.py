"""The client: one object, one member for each kind of thing."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import httpx

from .._call import Call, CallOptions, Settings
from .caller import AsyncCaller
from .emails import AsyncEmails
from .events import AsyncEvents
from .inboxes import AsyncInboxes
from .messages import AsyncArtifacts, AsyncMessages
from .threads import AsyncThreads
from .webhooks import AsyncWebhooks


class AsyncMailonce:
    """Without arguments it reads `MAILONCE_URL` and `MAILONCE_API_KEY`.

    A call that was not answered is made again up to `max_retries` times, with the same bytes and the same key; one try
    takes up to `timeout` seconds without a sign of the server. The `backoff` seconds before the first repeat are
    doubled for each further one, with full jitter.
    """

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        max_retries: int = 4,
        timeout: float = 10.0,
        backoff: float = 0.25,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._call = AsyncCaller(Settings.of(base_url, api_key, max_retries, timeout, backoff), transport)
        self.emails = AsyncEmails(self._call)
        self.messages = AsyncMessages(self._call)
        self.inboxes = AsyncInboxes(self._call, self.messages)
        self.threads = AsyncThreads(self._call)
        self.artifacts = AsyncArtifacts(self._call)
        self.events = AsyncEvents(self._call)
        self.webhooks = AsyncWebhooks(self._call)

    async def request(self, method: str, path: str, body: Any = None, *, options: CallOptions | None = None) -> Any:
        """Any other call of the API, with the same repeats and errors."""
        return await self._call.json(Call(method, path, body=body, mint=method == "POST"), options)

    async def close(self) -> None:
        await self._call.http.aclose()

    async def __aenter__(self) -> AsyncMailonce:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

"""The client: one object, with a member for each resource. Generated from `_async` by sdks/generate. Do not edit."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import httpx

from .._call import RETRIES, Call, CallOptions, Settings
from .._mcp import tool_answer, tool_call
from .._once import ClaimKey, Finding, OnceOptions, UnknownClaim
from .caller import Caller
from .emails import Emails
from .events import Events
from .inboxes import Inboxes
from .messages import Artifacts, Messages
from .once import OnceRun, once, runs_once
from .threads import Threads
from .webhooks import Webhooks

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")
P = ParamSpec("P")


class Mailonce:
    """Without arguments it reads `MAILONCE_URL` and `MAILONCE_API_KEY`.

    A call that was not answered is retried up to `max_retries` times, with the same bytes and the same key. One try
    ends after `timeout` seconds without data from the server. The `backoff` seconds before the first retry are
    doubled for each further one up to 8 s, less a random part of up to half. By default the pauses add up to 32 to 64
    seconds, enough for a restart of the server.
    """

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        max_retries: int = RETRIES,
        timeout: float = 10.0,
        backoff: float = 0.25,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._call = Caller(Settings.of(base_url, api_key, max_retries, timeout, backoff), transport)
        self.emails = Emails(self._call)
        self.messages = Messages(self._call)
        self.inboxes = Inboxes(self._call, self.messages)
        self.threads = Threads(self._call)
        self.artifacts = Artifacts(self._call)
        self.events = Events(self._call)
        self.webhooks = Webhooks(self._call)

    def once(
        self,
        key: ClaimKey,
        work: Callable[[OnceRun], T],
        *,
        verify: Callable[[UnknownClaim], Finding] | None = None,
        **options: Unpack[OnceOptions],
    ) -> T:
        """Runs `work` once, no matter who calls and how often, and returns its JSON result to every caller.

        Raises `busy` while another caller runs it (see `wait`), `unknown` after a caller was lost half-way (see
        `verify`), `claim_failed` if it failed for good, and `key_mismatch` for another fingerprint.
        """
        return once(self._call, key, work, verify, options)

    def runs_once(
        self,
        key: ClaimKey | Callable[..., ClaimKey],
        *,
        verify: Callable[[UnknownClaim], Finding] | None = None,
        **options: Unpack[OnceOptions],
    ) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """Decorates a function: its calls with the same key are one run. `key` may be a function of its arguments."""
        return runs_once(self._call, key, verify, options)

    def call_tool(
        self, name: str, arguments: dict[str, Any], *, options: CallOptions | None = None
    ) -> dict[str, Any]:
        """Calls a tool of `/mcp` as a model would. Errors of the tool are results; other failures raise."""
        call, tried = tool_call(name, arguments), 0
        while True:
            tried += 1
            answer, passes = tool_answer(self._call.json(call, options))
            if not passes or tried >= call.tries(self._call.settings, options or {}):
                return answer
            time.sleep(self._call.settings.pause(tried))

    def request(self, method: str, path: str, body: Any = None, *, options: CallOptions | None = None) -> Any:
        """Calls any other route of the API, with the same retries and errors."""
        # On `/v1/claims` the idempotency key of the call would become the key of the claim.
        mint = method == "POST" and path.partition("?")[0] != "/v1/claims"
        return self._call.json(Call(method, path, body=body, mint=mint), options)

    def close(self) -> None:
        self._call.http.close()

    def __enter__(self) -> Mailonce:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

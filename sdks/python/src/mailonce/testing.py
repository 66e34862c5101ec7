"""An in-memory server for your tests.

It accepts emails like mailonce, records what would have been sent, and can lose a response after the commit.
sdks/contract/behaviour.json compares it with the real server.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

import httpx

from ._async.client import AsyncMailonce
from ._double import CallHeaders, FakeServer, Refused
from ._double_tools import use_tool
from ._sync.client import Mailonce

URL = "http://double.mailonce.test"


class Double:
    """An in-memory server for tests."""

    def __init__(self) -> None:
        self._server = FakeServer()
        self._lose = 0.0
        self._refuse = 0
        self.calls = 0
        """Number of calls received."""

    @property
    def mails(self) -> list[dict[str, Any]]:
        """All emails that would have been sent, in order: their fields, and `id`, `key`, `reply_to_message` and `call`,
        where `call["id"]` is the `call_id` that it was sent with.
        """
        return self._server.mails

    def client(self, *, max_retries: int = 4) -> Mailonce:
        """A client for this server, without pauses between tries."""
        transport = httpx.MockTransport(self._handle)
        return Mailonce(base_url=URL, api_key="double", backoff=0, max_retries=max_retries, transport=transport)

    def async_client(self, *, max_retries: int = 4) -> AsyncMailonce:
        transport = httpx.MockTransport(self._handle)
        return AsyncMailonce(base_url=URL, api_key="double", backoff=0, max_retries=max_retries, transport=transport)

    def lose_answers(self, count: int = 1) -> Double:
        """Commits the next `count` calls but loses their responses."""
        self._lose = count
        return self

    def refuse(self, count: int = 1) -> Double:
        """Answers the next `count` calls with 503, before anything is committed."""
        self._refuse = count
        return self

    def crash(self, work: Callable[[], object]) -> None:
        """Runs `work` as if its process died after the commit: it never gets a response.

        Fails if `work` succeeds, because it ignored the missing responses.
        """
        self._lose = float("inf")
        try:
            work()
        except Exception:
            return  # as it should
        finally:
            self._lose = 0
        raise AssertionError("the work ended well although no call was answered")

    def receive(
        self,
        *,
        to: str,
        from_: str = "ann@example.com",
        subject: str = "",
        text: str = "",
        code: str | None = None,
    ) -> str:
        """Delivers a message, with a one-time code if given, and returns its id."""
        return self._server.receive(to, from_, subject, text, code)

    def _handle(self, request: httpx.Request) -> httpx.Response:
        self.calls += 1
        if self._refuse > 0:
            self._refuse -= 1
            problem = {"status": 503, "code": "unavailable", "detail": "the ledger could not answer", "retry": "same"}
            return httpx.Response(503, json={**problem, "next": "Send the same call again with the same key."})
        status, body = self._act(request)
        if self._lose > 0:
            self._lose -= 1
            raise httpx.ReadError("the answer was lost", request=request)
        return httpx.Response(status) if status == 204 else httpx.Response(status, json=body)

    def _act(self, request: httpx.Request) -> tuple[int, Any]:
        try:
            body = json.loads(request.content) if request.content else None
            path = request.url.raw_path.decode().partition("?")[0]
            call_id = unquote(request.headers.get("mailonce-call-id", ""))
            headers = CallHeaders(request.headers.get("idempotency-key"), {"id": call_id} if call_id else None)
            if path == "/mcp":
                return use_tool(self._server, headers, body)
            return self._server.act(request.method, path, dict(request.url.params), headers, body)
        except Refused as refused:
            return refused.status, refused.problem


def expect_sent_once(
    double: Double,
    *,
    key: str | None = None,
    to: str | None = None,
    intent: Mapping[str, Any] | None = None,
    reply_to_message: str | None = None,
) -> None:
    """Fails unless exactly one email that matches was sent. Without filters, every email matches."""

    def fits(mail: dict[str, Any]) -> bool:
        return (
            (key is None or mail["key"] == key)
            and (reply_to_message is None or mail.get("reply_to_message") == reply_to_message)
            and (to is None or to in _many(mail["to"]))
            and all((mail.get("intent") or {}).get(name) == value for name, value in (intent or {}).items())
        )

    found = sum(1 for mail in double.mails if fits(mail))
    if found != 1:
        sent = [f"  {m['key'] or 'no key'}: {m.get('subject')} to {', '.join(_many(m['to']))}" for m in double.mails]
        lines = "\n".join(sent)
        raise AssertionError(
            f"{found} mails went out, wanted 1; {double.calls} calls came, and these went out:\n{lines}"
        )


def _many(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value

"""One call, without the network: its bytes, and what an answer means for another try."""

from __future__ import annotations

import json
import os
import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict
from urllib.parse import quote

import httpx

from ._error import MailonceError, no_answer, refusal
from ._key import check_key
from ._shape import wire

VERSION = "0.1.0"
WIRE = "2026-11-15"
"""The wire format that this SDK was made for."""
LONGEST_PAUSE = 8.0
RETRIES = 12
"""With the usual `backoff` that is 32 to 64 seconds of pauses, enough for a restart of the server."""
LONGEST_TOLD_PAUSE = 60.0
"""A longer Retry-After is for the caller to wait."""


class CallOptions(TypedDict, total=False):
    """What every call takes besides what it says."""

    idempotency_key: str | None
    """The name of this wish. Calls other than sends get one of their own, so that their repeats are safe."""
    timeout: float | None
    """Seconds that one try may take. What the server is asked to hold comes on top."""
    max_retries: int | None
    call_id: str | None
    """The id that a framework gave this call. Told along for correlation; it decides nothing."""


@dataclass(frozen=True)
class Settings:
    """How a client behaves."""

    base_url: str
    api_key: str = field(repr=False)
    max_retries: int
    timeout: float
    backoff: float

    @classmethod
    def of(
        cls, base_url: str | None, api_key: str | None, max_retries: int, timeout: float, backoff: float
    ) -> Settings:
        url = base_url or os.environ.get("MAILONCE_URL") or "http://127.0.0.1:6245"
        key = api_key or os.environ.get("MAILONCE_API_KEY")
        if not key:
            raise MailonceError("unauthorized", "there is no API key", next="Set MAILONCE_API_KEY or pass api_key.")
        return cls(url.rstrip("/"), key, max_retries, timeout, backoff)

    def pause(self, tried: int) -> float:
        """The pause before try `tried + 1`. Its random part keeps callers that failed together apart."""
        return (1 - random.random() / 2) * min(self.backoff * 2.0 ** (tried - 1), LONGEST_PAUSE)


@dataclass(frozen=True)
class Download:
    """Bytes, with what their sender says they are."""

    content_type: str
    """The type that was declared; never trust it."""
    content: bytes


@dataclass(frozen=True)
class Call:
    """What is asked. Its bytes are made once, so that every repeat is the same."""

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    headers: Mapping[str, str | None] = field(default_factory=dict)
    hold: float = 0
    """Seconds that the server may hold the call."""
    mint: bool = False
    """Whether the call gets a key when the caller names none; others are safe to repeat by nature."""
    repeat: bool = True
    """A send that nothing names is made once: a repeat could do it twice."""
    bytes_: bool = False
    """Whether the answer is a `Download`; else it is JSON."""

    def request(self, settings: Settings, options: CallOptions) -> dict[str, Any]:
        """The arguments of httpx."""
        headers = {
            "Authorization": f"Bearer {settings.api_key}",
            "Accept": "*/*" if self.bytes_ else "application/json",
            "Mailonce-Client": f"python/{VERSION}",
            "Mailonce-Version": WIRE,
        }
        key = options.get("idempotency_key")
        if key is not None:
            headers["Idempotency-Key"] = check_key(key)
        elif self.mint:
            headers["Idempotency-Key"] = f"sdk_{uuid.uuid4()}"
        call_id = options.get("call_id")
        if call_id is not None:
            headers["Mailonce-Call-Id"] = quote(call_id, safe="!*'()")[:256]
        headers.update({name: value for name, value in self.headers.items() if value is not None})
        content = None
        if self.body is not None:
            headers["Content-Type"] = "application/json"
            content = json.dumps(wire(self.body), ensure_ascii=False).encode()
        query = {name.rstrip("_"): _text(value) for name, value in self.query.items() if value is not None}
        limit = options.get("timeout") or settings.timeout
        return {
            "method": self.method,
            "url": settings.base_url + self.path,
            "params": query,
            "headers": headers,
            "content": content,
            "timeout": limit + self.hold,
        }

    def tries(self, settings: Settings, options: CallOptions) -> int:
        wanted = options.get("max_retries")
        return 1 + (settings.max_retries if wanted is None else wanted) if self.repeat else 1


@dataclass(frozen=True)
class Lost:
    """A try that gave no success: whether another may follow, and after which pause."""

    error: MailonceError
    again: bool
    pause: float | None = None


def judge(response: httpx.Response, base_url: str, bytes_: bool = False) -> Lost | Any:
    """What an answer says: its JSON, None for 204, its bytes where they are wanted, or that it is no success."""
    if not response.is_success:
        return _refused(response, base_url)
    if bytes_:
        return Download(response.headers.get("content-type", "application/octet-stream"), response.content)
    if response.status_code == 204:
        return None
    try:
        return response.json()
    except ValueError:
        # Cut on its way, or by somebody in between: the same key finds out.
        return Lost(no_answer("the answer is no JSON", str(response.url)), True)


def _refused(response: httpx.Response, base_url: str) -> Lost:
    error = refusal(response.status_code, response.text, str(response.url), base_url)
    try:
        told: float | None = max(float(response.headers["retry-after"]), 0)
    except (KeyError, ValueError):
        told = None
    # "later" is for the caller to decide, save where the server only asks for a slower pace.
    again = error.retry == "same" or error.status == 429
    return Lost(error, again and (told or 0) <= LONGEST_TOLD_PAUSE, told)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def at(name: str) -> str:
    """A part of a path."""
    if not isinstance(name, str) or name in ("", ".", ".."):
        raise MailonceError("invalid_field", "an id is missing", next="Pass the id of the thing.")
    return quote(name, safe="")


def prefer(wait: float | None) -> dict[str, str | None]:
    return {"Prefer": None if wait is None else f"wait={wait:g}"}


def under(key: str | None, options: CallOptions | None) -> CallOptions:
    """The options with the key that stands beside them."""
    if key is None:
        return options or {}
    return {**(options or {}), "idempotency_key": key}


def named(intent: bool, options: CallOptions, without_key: bool) -> bool:
    """Whether a send may be repeated. Callers without a type checker are told what it would have told them."""
    if intent or options.get("idempotency_key") is not None:
        return True
    if without_key:
        return False
    raise MailonceError(
        "key_required",
        "neither an intent nor a key names this mail",
        next="Pass intent=Intent(type, entity), or idempotency_key, or without_key=True if a second mail does no harm.",
    )

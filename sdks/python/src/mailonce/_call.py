"""One call, without the network: its request, and whether a response may be retried."""

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
API_VERSION = "2026-11-15"
"""The API version that this SDK was built for."""
MAX_PAUSE = 8.0
RETRIES = 12
"""With the default `backoff` the pauses add up to 32 to 64 seconds, enough for a restart of the server."""
MAX_RETRY_AFTER = 60.0
"""A longer Retry-After is returned to the caller as an error."""


class CallOptions(TypedDict, total=False):
    """Options that every call takes."""

    idempotency_key: str | None
    """The idempotency key of this call. Calls other than sends get a random one, so that their retries are safe."""
    timeout: float | None
    """Timeout of one try in seconds. The time that the server is asked to wait is added."""
    max_retries: int | None
    call_id: str | None
    """The id that a framework gave this call. Only for correlation; it is not an idempotency key."""


@dataclass(frozen=True)
class Settings:
    """Configuration of a client."""

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
        """The pause before try `tried + 1`, with a random part so that callers do not retry together."""
        return (1 - random.random() / 2) * min(self.backoff * 2.0 ** (tried - 1), MAX_PAUSE)


@dataclass(frozen=True)
class Download:
    """Bytes, with the content type that their sender declared."""

    content_type: str
    """The declared content type; do not trust it."""
    content: bytes


@dataclass(frozen=True)
class Call:
    """A request. It is serialized once, so that every retry has the same bytes."""

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    headers: Mapping[str, str | None] = field(default_factory=dict)
    hold: float = 0
    """Seconds that the server may wait before it responds."""
    mint: bool = False
    """Whether the call gets a random key if the caller passes none. Other calls are idempotent without one."""
    repeat: bool = True
    """False for a send without an intent or a key: a retry could send twice."""
    bytes_: bool = False
    """Whether the response is a `Download`; otherwise it is JSON."""

    def request(self, settings: Settings, options: CallOptions) -> dict[str, Any]:
        """The arguments of httpx."""
        headers = {
            "Authorization": f"Bearer {settings.api_key}",
            "Accept": "*/*" if self.bytes_ else "application/json",
            "Mailonce-Client": f"python/{VERSION}",
            "Mailonce-Version": API_VERSION,
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
class FailedTry:
    """A failed try: whether the call may be retried, and the shortest pause that the server accepts."""

    error: MailonceError
    may_retry: bool
    retry_after: float = 0


def judge(response: httpx.Response, base_url: str, bytes_: bool = False) -> FailedTry | Any:
    """Parses a response: its JSON, None for 204, its bytes if `bytes_`, or `FailedTry` if it is not a success."""
    if not response.is_success:
        return _refused(response, base_url)
    if bytes_:
        return Download(response.headers.get("content-type", "application/octet-stream"), response.content)
    if response.status_code == 204:
        return None
    try:
        return response.json()
    except ValueError:
        # The response was cut off or changed by a proxy. A retry with the same key tells what happened.
        return FailedTry(no_answer("the answer is no JSON", str(response.url)), True)


def _refused(response: httpx.Response, base_url: str) -> FailedTry:
    error = refusal(response.status_code, response.text, str(response.url), base_url)
    try:
        retry_after = float(response.headers["retry-after"])
    except (KeyError, ValueError):
        retry_after = 0.0
    # `later` is for the caller to decide, except for a rate limit.
    may_retry = error.retry == "same" or error.status == 429
    return FailedTry(error, may_retry and retry_after <= MAX_RETRY_AFTER, retry_after)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def at(name: str) -> str:
    """Percent-encodes an id for a path."""
    if not isinstance(name, str) or name in ("", ".", ".."):
        raise MailonceError("invalid_field", "an id is missing", next="Pass the id of the thing.")
    return quote(name, safe="")


def prefer(wait: float | None) -> dict[str, str | None]:
    return {"Prefer": None if wait is None else f"wait={wait:g}"}


def under(key: str | None, options: CallOptions | None) -> CallOptions:
    """The options, with the key that was passed as an argument."""
    if key is None:
        return options or {}
    return {**(options or {}), "idempotency_key": key}


def named(intent: bool, options: CallOptions, without_key: bool) -> bool:
    """Whether a send may be retried. Raises what a type checker would have found."""
    if intent or options.get("idempotency_key") is not None:
        return True
    if without_key:
        return False
    raise MailonceError(
        "key_required",
        "neither an intent nor a key names this mail",
        next="Pass intent=Intent(type, entity), or idempotency_key, or without_key=True if a second mail does no harm.",
    )

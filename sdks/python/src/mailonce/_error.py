"""Errors of calls."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


class MailonceError(Exception):
    """The error of a call. Branch on `code`; `next` is one sentence that a person or a model can act on.

    The codes of the server are documented under `/docs/errors`; the SDK adds `no_answer`: the call may or may not
    have arrived.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        next: str,
        retry: str = "never",
        status: int = 0,
        field: str | None = None,
        details: Mapping[str, Any] | None = None,
        url: str | None = None,
        docs_url: str | None = None,
    ) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.next = next
        self.retry = retry
        """Whether the same call may be retried: `never`, `same` (unchanged, with the same key) or `later`."""
        self.status = status
        """The HTTP status; 0 if there was no response."""
        self.field = field
        """The invalid field, if the error is about one."""
        self.url = url
        """The URL of the call, if there was one."""
        self.docs_url = docs_url
        """The URL of the page about this code, if the server answered."""
        self.details: Mapping[str, Any] = details or {}
        """Further members of the problem, depending on the code: `differing_fields`, `original_email`, `holder` …"""

    def __str__(self) -> str:
        places = ", ".join(place for place in (self.url, self.docs_url and f"see {self.docs_url}") if place)
        where = f" ({places})" if places else ""
        return f"{self.code}: {self.detail}{where}; next: {self.next}"


def refusal(status: int, text: str, url: str | None, base_url: str) -> MailonceError:
    """The error of an unsuccessful response. A proxy in between may not send an RFC 9457 problem."""
    try:
        body = json.loads(text)
    except ValueError:
        body = {}
    if not isinstance(body, dict):
        body = {}
    if isinstance(rpc := body.get("error"), dict):
        # At `/mcp` the problem is in an error of JSON-RPC.
        body = {"detail": rpc.get("message"), **(rpc.get("data") or {})}

    def said(name: str) -> str | None:
        return body[name] if isinstance(body.get(name), str) else None

    again = status in (408, 425, 429) or status >= 500
    advice = (
        "Make the same call again with the same key." if again else "Look at the address and the key of the server."
    )
    retry = said("retry")
    return MailonceError(
        said("code") or "no_problem",
        said("detail") or f"the server answered {status}",
        next=said("next") or advice,
        retry=retry if retry in ("never", "same", "later") else "same" if again else "never",
        status=status,
        field=said("field"),
        details=body,
        url=url,
        docs_url=base_url + kind if (kind := said("type")) and kind.startswith("/") else kind,
    )


def no_answer(detail: str, url: str | None = None) -> MailonceError:
    """No response: the call may or may not have arrived."""
    advice = "Make the same call again with the same key; whatever was accepted before will be found."
    return MailonceError("no_answer", detail, retry="same", next=advice, url=url)

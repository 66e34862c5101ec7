"""Verification of webhook signatures (Standard Webhooks)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import time
from collections.abc import Mapping, Sequence

from ._error import MailonceError
from ._shape import read
from .wire import Event


def verify_webhook(
    body: str | bytes,
    headers: Mapping[str, str],
    secret: str | Sequence[str],
    *,
    tolerance: float = 300,
    now: float | None = None,
) -> Event:
    """Verifies a webhook and returns its event; raises `bad_signature`.

    Pass the body as received, not JSON that was parsed and serialized again. A webhook may arrive twice: deduplicate
    by the header `webhook-id`.
    """
    data = body.encode() if isinstance(body, str) else body
    said = {name.lower(): value for name, value in headers.items()}

    def header(name: str) -> str:
        return said.get(f"webhook-{name}") or said.get(f"svix-{name}") or ""

    notice, at = header("id"), header("timestamp")
    if not notice or not re.fullmatch(r"[0-9]{1,12}", at):
        raise _forged("the headers of a notice are missing")
    if abs((time.time() if now is None else now) - int(at)) > tolerance:
        raise _forged("the timestamp is too far from now")
    theirs = [part.encode() for part in header("signature").split(" ") if part.startswith("v1,")]
    for one in [secret] if isinstance(secret, str) else secret:
        digest = hmac.new(_bytes(one), f"{notice}.{at}.".encode() + data, hashlib.sha256).digest()
        ours = b"v1," + base64.b64encode(digest)
        if any(hmac.compare_digest(their, ours) for their in theirs):
            return read(Event, json.loads(data))
    raise _forged("no signature fits")


def _forged(detail: str) -> MailonceError:
    return MailonceError("bad_signature", detail, next="Answer 401 and do not act on it.", status=401)


def _bytes(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error as error:
        advice = "Pass the secret that was shown when the endpoint was made."
        raise MailonceError(
            "invalid_field", "the secret is not whsec_ and base64", next=advice, field="secret"
        ) from error

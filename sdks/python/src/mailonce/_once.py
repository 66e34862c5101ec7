"""The options of `once`, and what a response or an error means for it."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict, cast

from ._call import Call, CallOptions, at
from ._error import MailonceError
from ._key import check_key
from .wire import Intent, Ttl

AfterError = Literal["failed", "retry", "unknown"]
"""What an error of the function means. `failed`: it is final, and later callers get the same error. `retry`: surely
nothing happened, and the next caller may run it. `unknown`: it may have happened."""

ClaimKey = str | Intent | Mapping[str, Any]
"""A key, or an intent. As a mapping, the `period` of an intent may be `{"every": "day"}`, which the server computes."""


@dataclass(frozen=True)
class UnknownClaim:
    """A claim whose holder was lost after it began."""

    id: str
    downstream_key: str | None
    """The idempotency key that the lost holder passed to the other system."""


@dataclass(frozen=True)
class Found:
    """The side effect happened, and this is its result."""

    result: Any = None


Finding = Found | None
"""What `verify` returns. None: the side effect was not found."""


class OnceOptions(TypedDict, total=False):
    """How a function is run once."""

    lease_s: int
    """Seconds after which this process counts as lost, 1 to 3,600; 60 by default. It is renewed meanwhile."""
    wait: bool | float
    """While another caller runs it, wait for its result: True, or the most seconds to wait."""
    on_error: Callable[[Exception], AfterError]
    """By default an error is `failed`, save for a `MailonceError` whose call may still succeed: that is `unknown`."""
    fingerprint: str
    """A hash of the content of the side effect. Another hash under the same key raises `key_mismatch`."""
    label: str
    """A label that other callers see while it runs."""
    on_unknown: Literal["hold", "retry"]
    """If this process is lost: `hold` waits for evidence or a person, `retry` frees the claim after 10 minutes."""
    begin: Literal["now", "later"]
    """`later`: the side effect begins with `run.begin()`. A run that is lost or fails before that is free again."""
    ttl: Ttl
    """How long the result is remembered; 35 days by default."""


INHERITED = ("lease_s", "wait", "on_error", "on_unknown")
"""Options that a step takes from its run. It has a `ttl` of its own, because it ends before its run."""


def step_key(parent: str, name: str) -> str:
    """The key of a step: the same in every SDK. Vectors: sdks/contract/steps.json."""
    return "s1_" + hashlib.sha256(f"{parent}\0{name}".encode()).hexdigest()


def step_options(parent: str, name: str, inherited: OnceOptions, own: OnceOptions) -> OnceOptions:
    taken = {option: value for option, value in inherited.items() if option in INHERITED}
    options: Any = {**taken, "label": f"{parent} {name}"[:128], **own}
    return cast(OnceOptions, options)


def acquire_call(key: ClaimKey, options: OnceOptions) -> Call:
    """The holder makes repeats of this very call safe. A random idempotency key would be the key of the claim."""
    body: dict[str, Any] = {"key": check_key(key)} if isinstance(key, str) else {"intent": key}
    body.update(holder=uuid.uuid4().hex, lease_s=lease_of(options))
    sent = ("fingerprint", "label", "ttl", "begin", "on_unknown")
    body.update({name: value for name, value in options.items() if name in sent})
    return Call("POST", "/v1/claims", body=body)


def same_period(asked: Call, busy: MailonceError) -> Call:
    """Keeps the period of the first response. Computed again after the period changed, it would be another run."""
    intent, period = asked.body.get("intent"), busy.details.get("period")
    if not isinstance(intent, Mapping) or not isinstance(intent.get("period"), Mapping) or not isinstance(period, str):
        return asked
    return replace(asked, body={**asked.body, "intent": {**intent, "period": period}})


def report_call(claim: str, verb: str, body: Mapping[str, Any]) -> Call:
    return Call("POST", f"/v1/claims/{at(claim)}/{verb}", body=body)


def lease_of(options: OnceOptions) -> int:
    return options.get("lease_s", 60)


def renewal(options: OnceOptions) -> CallOptions:
    """The loop that renews is the retry."""
    return {"max_retries": 0, "timeout": max(lease_of(options) / 3, 1)}


class Patience:
    """How long to wait while another caller has the claim."""

    def __init__(self, options: OnceOptions) -> None:
        wait = options.get("wait", False)
        self._until = float("inf") if wait is True else time.monotonic() + float(wait)
        self._pause = 0.25

    def pause(self, error: MailonceError) -> float:
        """The pause before the next call. Raises what cannot be waited for."""
        pause = min(self._pause, float(error.details.get("retry_after", 2)))
        if error.code != "busy" or time.monotonic() + pause > self._until:
            raise error
        self._pause = min(2 * self._pause, 2)
        return pause


def try_json(value: Any) -> tuple[Any, Exception | None]:
    """A value after a round trip through JSON; or None, and why it is not JSON."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        text.encode()  # half of a character, as cutting a string may leave it, is no text
        return json.loads(text), None
    except Exception as fault:
        return None, fault


def is_unreadable(error: MailonceError) -> bool:
    """Whether the server cannot read or store what a call reports. It happened all the same."""
    return error.status in (400, 413, 422)


def failure(error: BaseException, *, retryable: bool) -> dict[str, Any]:
    reason = str(error).encode(errors="replace").decode()
    return {"retryable": retryable, "reason": reason[:1000] or type(error).__name__}


def meaning(error: Exception, options: OnceOptions, begun: bool) -> AfterError:
    if "on_error" in options:
        return options["on_error"](error)
    if not begun:
        return "retry"
    return "unknown" if isinstance(error, MailonceError) and error.retry != "never" else "failed"


def replayed(claim: Mapping[str, Any]) -> Any:
    """The stored result of a finished claim."""
    number, state, reason = claim["id"], claim["state"], claim.get("reason")
    if state == "completed" and not claim.get("result_omitted"):
        return claim.get("result")
    if state == "completed":
        raise MailonceError(
            "result_omitted",
            f"claim {number} is completed, but its result was too large to store",
            next="Do not run it again: it happened. Read its result from the other system.",
            details={"id": number},
        )
    raise MailonceError(
        f"claim_{state}",
        f"claim {number} is {state}" + (f": {reason}" if reason else ""),
        next="Use another key, or a higher version of the intent, to do it again on purpose.",
        details={"id": number, "reason": reason},
    )


def unknown(claim: str, detail: str, details: Mapping[str, Any] | None = None) -> MailonceError:
    return MailonceError(
        "unknown",
        detail,
        next="Do not do it again: it may have happened. "
        f"Pass verify to look it up, or ask a person: mailonce claims resolve {claim}",
        status=409,
        retry="later",
        details=details or {"id": claim},
    )


def not_recorded(claim: str, result: Any) -> MailonceError:
    return MailonceError(
        "not_recorded",
        f"the function of claim {claim} ended well, but its result could not be stored",
        next="Do not run it again: it happened. "
        "The claim is unknown once its lease has ended; `verify` or a person settles it.",
        details={"id": claim, "result": result},
    )

"""Runs any side effect once: one caller runs it, all others get its result. Uses the claims of the server. Generated from `_async` by sdks/generate. Do not edit."""

from __future__ import annotations

import time
import functools
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from .._error import MailonceError
from .._keep import Keeper
from .._once import (
    ClaimKey,
    Finding,
    OnceOptions,
    Patience,
    UnknownClaim,
    acquire_call,
    failure,
    is_unreadable,
    lease_of,
    meaning,
    not_recorded,
    renewal,
    replayed,
    report_call,
    same_period,
    step_key,
    step_options,
    try_json,
    unknown,
)
from .caller import Caller

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")
P = ParamSpec("P")

_RUN: ContextVar[OnceRun | None] = ContextVar("mailonce_async_once_run", default=None)


class OnceRun:
    """The claim that a function runs under."""

    def __init__(self, call: Caller, won: Mapping[str, Any], options: OnceOptions) -> None:
        self.id: str = won["id"]
        self.key: str = won["key"]
        self.fence: int = won["fence"]
        """Fencing number; grows with each holder of the claim."""
        self.downstream_key: str = won["downstream_key"]
        """Pass it to the other system as its idempotency key: it is the same for every holder of this claim."""
        self.may_repeat: bool = won["may_repeat"]
        """Whether an earlier holder may have performed the side effect."""
        self.period: str | None = won.get("period")
        self.begun: bool = won["state"] != "claimed"
        self._call, self._token, self._options = call, won["token"], options
        self._keeper = Keeper(lease_of(options), self._renew, outlives_outages=True)

    @property
    def lost(self) -> MailonceError | None:
        """Set when the claim is lost: a person resolved it, or another caller holds it."""
        return self._keeper.lost

    @staticmethod
    def current() -> OnceRun:
        """The run of the decorated function that calls this."""
        run = _RUN.get()
        if run is None:
            raise RuntimeError("no function is being run once here")
        return run

    def begin(self) -> None:
        """Begins the side effect of a claim with `begin="later"`. Raises if another caller has it by now."""
        self._report("begin", {})
        self.begun = True

    def step(
        self,
        name: str,
        work: Callable[[OnceRun], T],
        *,
        verify: Callable[[UnknownClaim], Finding] | None = None,
        **options: Unpack[OnceOptions],
    ) -> T:
        """Runs a part of the function once. If the run is repeated, a finished step returns its stored result.

        A step has a `ttl` of its own, 35 days by default, because it ends before its run.
        """
        merged = step_options(self.key, name, self._options, options)
        return once(self._call, step_key(self.key, name), work, verify, merged)

    def _report(self, verb: str, body: Mapping[str, Any]) -> None:
        self._call.json(report_call(self.id, verb, {"token": self._token, **body}))

    def _renew(self) -> object:
        body = {"token": self._token, "lease_s": lease_of(self._options)}
        return self._call.json(report_call(self.id, "renew", body), renewal(self._options))


def once(
    call: Caller,
    key: ClaimKey,
    work: Callable[[OnceRun], T],
    verify: Callable[[UnknownClaim], Finding] | None,
    options: OnceOptions,
) -> T:
    """Runs `work` once for this key, and gives its result to every caller."""
    asked, patience = acquire_call(key, options), Patience(options)
    while True:
        try:
            answer = call.json(asked)
            break
        except MailonceError as error:
            if error.code == "unknown":
                settled: T = _settle(call, error, verify)
                return settled
            time.sleep(patience.pause(error))
            asked = same_period(asked, error)
    if "token" not in answer:
        stored: T = replayed(answer)
        return stored
    run = OnceRun(call, answer, options)
    try:
        return _perform(call, run, work, verify, options)
    finally:
        run._keeper.stop()


def runs_once(
    call: Caller,
    key: ClaimKey | Callable[..., ClaimKey],
    verify: Callable[[UnknownClaim], Finding] | None,
    options: OnceOptions,
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """The decorator: a function whose calls with the same key are one run."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
            def work(run: OnceRun) -> T:
                reset = _RUN.set(run)
                try:
                    return function(*args, **kwargs)
                finally:
                    _RUN.reset(reset)

            return once(call, key(*args, **kwargs) if callable(key) else key, work, verify, options)

        return wrapped

    return decorate


def _perform(
    call: Caller,
    run: OnceRun,
    work: Callable[[OnceRun], T],
    verify: Callable[[UnknownClaim], Finding] | None,
    options: OnceOptions,
) -> T:
    if run.may_repeat and verify is not None:
        try:
            found = _look_up(UnknownClaim(run.id, run.downstream_key), verify)
        except MailonceError as error:
            # This run did not begin, so the next caller may look again.
            _try_report(run, "fail", failure(error, retryable=True))
            raise
        if found is not None:
            known: T = _record_found(call, run.id, found.result)
            return known
    try:
        result = work(run)
    except Exception as error:
        # The caller's own error is the one to raise. A claim whose failure is not recorded becomes unknown.
        after = meaning(error, options, run.begun)
        if after != "unknown":
            _try_report(run, "fail", failure(error, retryable=after == "retry"))
        raise
    return _record(call, run, result)


def _try_report(run: OnceRun, verb: str, body: Mapping[str, Any]) -> None:
    try:
        run._report(verb, body)
    except MailonceError:
        return


def _report_fact(call: Caller, claim: str, verb: str, fact: Mapping[str, Any], result: Any) -> None:
    """Reports that it happened, without the result if the server cannot store it."""
    try:
        call.json(report_call(claim, verb, {**fact, "result": result}))
    except MailonceError as error:
        if not is_unreadable(error):
            raise
        call.json(report_call(claim, verb, fact))


def _record(call: Caller, run: OnceRun, result: T) -> T:
    """Stores the result. Everybody gets what the server stores, the first caller included."""
    stored, fault = try_json(result)
    try:
        _report_fact(call, run.id, "complete", {"token": run._token}, stored)
    except MailonceError as error:
        raise not_recorded(run.id, stored) from error
    if fault is not None:
        raise fault
    returned: T = stored
    return returned


def _settle(
    call: Caller, error: MailonceError, verify: Callable[[UnknownClaim], Finding] | None
) -> Any:
    """Looks up what a lost holder did. Only finding it ends the claim, because not finding it may be too early."""
    claim = UnknownClaim(error.details["id"], error.details.get("downstream_key"))
    if verify is not None:
        found = _look_up(claim, verify)
        if found is not None:
            return _record_found(call, claim.id, found.result)
        call.json(report_call(claim.id, "evidence", {"says": "not_found"}))
    raise unknown(claim.id, error.detail, error.details)


def _look_up(claim: UnknownClaim, verify: Callable[[UnknownClaim], Finding]) -> Finding:
    try:
        return verify(claim)
    except Exception as error:
        raise unknown(claim.id, f"the look-up of claim {claim.id} failed: {error}") from error


def _record_found(call: Caller, claim: str, found: Any) -> Any:
    result, fault = try_json(found)
    _report_fact(call, claim, "evidence", {"says": "done"}, result)
    if fault is not None:
        raise fault
    return result

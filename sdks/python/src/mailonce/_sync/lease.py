"""A lease that is renewed while it is held. Generated from `_async` by sdks/generate. Do not edit."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from .._call import Call, CallOptions
from .._error import MailonceError
from .._keep import RENEWAL, Keeper
from ..wire import Lease
from .caller import Caller


class HeldLease:
    """A lease, renewed while it is held. Check `lost` before you act: if set, another agent may have the thread."""

    def __init__(
        self,
        ttl: float,
        take: Callable[[], Lease],
        renew: Callable[[Lease], object],
        give_back: Callable[[Lease], object],
    ) -> None:
        self._ttl, self._take, self._renew, self._give_back = ttl, take, renew, give_back
        self._lease: Lease | None = None
        self._keeper: Keeper | None = None

    @classmethod
    def of_thread(
        cls, call: Caller, path: str, ttl: int, holder: str | None, options: CallOptions | None
    ) -> HeldLease:
        request = {"ttl_s": ttl, "holder": holder}

        def take() -> Lease:
            return call.read(Lease, Call("POST", path, body=request, mint=True), options)

        def renew(lease: Lease) -> object:
            body = {**request, "token": lease.token}
            return call.json(Call("POST", path, body=body, mint=True), {**(options or {}), **RENEWAL})

        def give_back(lease: Lease) -> object:
            return call.json(Call("DELETE", path, body={"token": lease.token}))

        return cls(ttl, take, renew, give_back)

    @property
    def token(self) -> str:
        return self._held().token

    @property
    def fence(self) -> int:
        return self._held().fence

    @property
    def holder(self) -> str:
        return self._held().holder

    @property
    def lost(self) -> MailonceError | None:
        return self._keeper.lost if self._keeper else None

    def acquire(self) -> HeldLease:
        lease = self._take()
        self._lease = lease

        def renew() -> object:
            return self._renew(lease)

        self._keeper = Keeper(self._ttl, renew)
        return self

    def release(self) -> None:
        """Stops renewing and releases the lease. Releasing a lost lease does nothing."""
        self.stop()
        if self._lease is not None and self.lost is None:
            self._give_back(self._lease)

    def stop(self) -> None:
        """Stops renewing and lets the lease expire."""
        if self._keeper is not None:
            self._keeper.stop()

    def __enter__(self) -> HeldLease:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _held(self) -> Lease:
        if self._lease is None:
            raise RuntimeError("the lease was not taken yet: use it in a with block, or call acquire()")
        return self._lease

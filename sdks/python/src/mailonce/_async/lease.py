"""A lease that is renewed while it is held."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType

from .._call import Call, CallOptions
from .._error import MailonceError
from .._keep import RENEWAL, AsyncKeeper
from ..wire import Lease
from .caller import AsyncCaller


class AsyncHeldLease:
    """A lease, renewed while it is held. Check `lost` before you act: if set, another agent may have the thread."""

    def __init__(
        self,
        ttl: float,
        take: Callable[[], Awaitable[Lease]],
        renew: Callable[[Lease], Awaitable[object]],
        give_back: Callable[[Lease], Awaitable[object]],
    ) -> None:
        self._ttl, self._take, self._renew, self._give_back = ttl, take, renew, give_back
        self._lease: Lease | None = None
        self._keeper: AsyncKeeper | None = None

    @classmethod
    def of_thread(
        cls, call: AsyncCaller, path: str, ttl: int, holder: str | None, options: CallOptions | None
    ) -> AsyncHeldLease:
        request = {"ttl_s": ttl, "holder": holder}

        async def take() -> Lease:
            return await call.read(Lease, Call("POST", path, body=request, mint=True), options)

        async def renew(lease: Lease) -> object:
            body = {**request, "token": lease.token}
            return await call.json(Call("POST", path, body=body, mint=True), {**(options or {}), **RENEWAL})

        async def give_back(lease: Lease) -> object:
            return await call.json(Call("DELETE", path, body={"token": lease.token}))

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

    async def acquire(self) -> AsyncHeldLease:
        lease = await self._take()
        self._lease = lease

        async def renew() -> object:
            return await self._renew(lease)

        self._keeper = AsyncKeeper(self._ttl, renew)
        return self

    async def release(self) -> None:
        """Stops renewing and releases the lease. Releasing a lost lease does nothing."""
        await self.stop()
        if self._lease is not None and self.lost is None:
            await self._give_back(self._lease)

    async def stop(self) -> None:
        """Stops renewing and lets the lease expire."""
        if self._keeper is not None:
            await self._keeper.stop()

    async def __aenter__(self) -> AsyncHeldLease:
        return await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.release()

    def _held(self) -> Lease:
        if self._lease is None:
            raise RuntimeError("the lease was not taken yet: use it in a with block, or call acquire()")
        return self._lease

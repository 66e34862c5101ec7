"""Webhook endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from .._call import Call, CallOptions, at
from .._webhook import verify_webhook
from ..wire import (
    Endpoint,
    EndpointPage,
    EndpointPatch,
    EndpointTest,
    NewEndpoint,
    Notice,
    NoticePage,
    Recover,
    Recovery,
    RotateEndpoint,
)
from .caller import AsyncCaller

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._mail import NoticeQuery, PageQuery

T = TypeVar("T")


class AsyncWebhooks:
    verify = staticmethod(verify_webhook)

    def __init__(self, call: AsyncCaller) -> None:
        self._call = call

    async def create(self, *, options: CallOptions | None = None, **body: Unpack[NewEndpoint]) -> Endpoint:
        """Creates an endpoint. Only this response contains `secret`."""
        return await self._call.read(Endpoint, Call("POST", "/v1/endpoints", body=body, mint=True), options)

    async def get(self, endpoint: str, *, options: CallOptions | None = None) -> Endpoint:
        return await self._call.read(Endpoint, Call("GET", f"/v1/endpoints/{at(endpoint)}"), options)

    async def list(self, *, options: CallOptions | None = None, **query: Unpack[PageQuery]) -> EndpointPage:
        return await self._call.read(EndpointPage, Call("GET", "/v1/endpoints", query=query), options)

    async def update(
        self, endpoint: str, *, options: CallOptions | None = None, **body: Unpack[EndpointPatch]
    ) -> Endpoint:
        return await self._call.read(Endpoint, Call("PATCH", f"/v1/endpoints/{at(endpoint)}", body=body), options)

    async def delete(self, endpoint: str, *, options: CallOptions | None = None) -> Endpoint:
        return await self._call.read(Endpoint, Call("DELETE", f"/v1/endpoints/{at(endpoint)}"), options)

    async def rotate(
        self, endpoint: str, *, options: CallOptions | None = None, **body: Unpack[RotateEndpoint]
    ) -> Endpoint:
        """Creates a new secret. Earlier secrets keep signing for `previous_secret_ttl`."""
        return await self._post(Endpoint, endpoint, "rotate", body, options)

    async def pause(self, endpoint: str, *, options: CallOptions | None = None) -> Endpoint:
        return await self._post(Endpoint, endpoint, "pause", None, options)

    async def resume(self, endpoint: str, *, options: CallOptions | None = None) -> Endpoint:
        return await self._post(Endpoint, endpoint, "resume", None, options)

    async def test(self, endpoint: str, *, options: CallOptions | None = None) -> EndpointTest:
        return await self._post(EndpointTest, endpoint, "test", None, options)

    async def recover(self, endpoint: str, *, options: CallOptions | None = None, **body: Unpack[Recover]) -> Recovery:
        """Resends the notices that failed since a given time."""
        return await self._post(Recovery, endpoint, "recover", body, options)

    async def notices(
        self, endpoint: str, *, options: CallOptions | None = None, **query: Unpack[NoticeQuery]
    ) -> NoticePage:
        return await self._call.read(
            NoticePage, Call("GET", f"/v1/endpoints/{at(endpoint)}/notices", query=query), options
        )

    async def replay(self, notice: str, *, options: CallOptions | None = None) -> Notice:
        return await self._call.read(Notice, Call("POST", f"/v1/notices/{at(notice)}/replay", mint=True), options)

    async def _post(self, kind: type[T], endpoint: str, verb: str, body: Any, options: CallOptions | None) -> T:
        call = Call("POST", f"/v1/endpoints/{at(endpoint)}/{verb}", body=body, mint=True)
        return await self._call.read(kind, call, options)

"""Sending. The types require what identifies the email: an intent, or an idempotency key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from .._call import Call, CallOptions, at, named, prefer, under
from ..wire import BatchReceipt, Email, EmailDetail, EmailPage, Intent, ResolveEmail, Send, SendReceipt
from .caller import AsyncCaller

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._mail import EmailQuery, MailWithIntent


class AsyncEmails:
    def __init__(self, call: AsyncCaller) -> None:
        self._call = call

    @overload
    async def send(
        self,
        *,
        intent: Intent,
        idempotency_key: str | None = None,
        wait: float | None = None,
        options: CallOptions | None = None,
        **mail: Unpack[Send],
    ) -> SendReceipt: ...
    @overload
    async def send(
        self,
        *,
        idempotency_key: str,
        wait: float | None = None,
        options: CallOptions | None = None,
        **mail: Unpack[Send],
    ) -> SendReceipt: ...
    @overload
    async def send(
        self,
        *,
        without_key: Literal[True],
        wait: float | None = None,
        options: CallOptions | None = None,
        **mail: Unpack[Send],
    ) -> SendReceipt: ...
    async def send(
        self,
        *,
        intent: Intent | None = None,
        idempotency_key: str | None = None,
        without_key: bool = False,
        wait: float | None = None,
        options: CallOptions | None = None,
        **mail: Any,
    ) -> SendReceipt:
        """Sends an email once, no matter how often it is called with the same key.

        `wait` waits up to that many seconds for the outcome. Without it the server responds as soon as the email is
        stored. `without_key` sends without an idempotency key: one try, and calling twice sends two emails.
        """
        options = under(idempotency_key, options)
        repeat = named(intent is not None, options, without_key)
        body = mail if intent is None else {**mail, "intent": intent}
        call = Call("POST", "/v1/emails", body=body, repeat=repeat, hold=wait or 0, headers=prefer(wait))
        return await self._call.read(SendReceipt, call, options)

    @overload
    async def batch(
        self,
        mails: Sequence[MailWithIntent],
        *,
        idempotency_key: str | None = None,
        permissive: bool = False,
        options: CallOptions | None = None,
    ) -> BatchReceipt: ...
    @overload
    async def batch(
        self,
        mails: Sequence[Send],
        *,
        idempotency_key: str,
        permissive: bool = False,
        options: CallOptions | None = None,
    ) -> BatchReceipt: ...
    @overload
    async def batch(
        self,
        mails: Sequence[Send],
        *,
        without_key: Literal[True],
        permissive: bool = False,
        options: CallOptions | None = None,
    ) -> BatchReceipt: ...
    async def batch(
        self,
        mails: Sequence[Mapping[str, Any]],
        *,
        idempotency_key: str | None = None,
        without_key: bool = False,
        permissive: bool = False,
        options: CallOptions | None = None,
    ) -> BatchReceipt:
        """Sends up to 1,000 emails under one key; each is sent once, even if the batch is retried."""
        options = under(idempotency_key, options)
        repeat = named(all(mail.get("intent") for mail in mails), options, without_key)
        headers = {"x-batch-validation": "permissive" if permissive else None}
        call = Call("POST", "/v1/emails/batch", body=mails, repeat=repeat, headers=headers)
        return await self._call.read(BatchReceipt, call, options)

    async def get(self, email: str, *, options: CallOptions | None = None) -> EmailDetail:
        return await self._call.read(EmailDetail, Call("GET", f"/v1/emails/{at(email)}"), options)

    async def list(self, *, options: CallOptions | None = None, **query: Unpack[EmailQuery]) -> EmailPage:
        return await self._call.read(EmailPage, Call("GET", "/v1/emails", query=query), options)

    async def each(self, *, options: CallOptions | None = None, **query: Unpack[EmailQuery]) -> AsyncIterator[Email]:
        """All pages of `list`, one email after the other."""
        while True:
            page = await self.list(options=options, **query)
            for email in page.data:
                yield email
            if page.next_cursor is None:
                return
            query["cursor"] = page.next_cursor

    async def cancel(self, email: str, *, options: CallOptions | None = None) -> Email:
        """Cancels an email before it is handed off."""
        return await self._call.read(Email, Call("POST", f"/v1/emails/{at(email)}/cancel", mint=True), options)

    async def resend(self, email: str, *, reason: str | None = None, options: CallOptions | None = None) -> SendReceipt:
        """Sends the email again on purpose, as its next version."""
        call = Call("POST", f"/v1/emails/{at(email)}/resend", body={"reason": reason}, mint=True)
        return await self._call.read(SendReceipt, call, options)

    async def resolve(self, email: str, *, options: CallOptions | None = None, **body: Unpack[ResolveEmail]) -> Email:
        """Records what happened to an email whose outcome is unknown."""
        call = Call("POST", f"/v1/emails/{at(email)}/resolve", body=body, mint=True)
        return await self._call.read(Email, call, options)

    async def reschedule(self, email: str, *, scheduled_at: str, options: CallOptions | None = None) -> Email:
        call = Call("PATCH", f"/v1/emails/{at(email)}", body={"scheduled_at": scheduled_at})
        return await self._call.read(Email, call, options)

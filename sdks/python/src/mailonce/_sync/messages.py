"""Messages, and the codes and links in them: reading, replying once, consuming once. Generated from `_async` by sdks/generate. Do not edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._call import Call, CallOptions, Download, at, prefer, under
from ..wire import (
    Acknowledgement,
    AcknowledgementResult,
    Artifact,
    ArtifactPage,
    Consume,
    ConsumedArtifact,
    Forward,
    RenderedMessage,
    Reply,
    SendReceipt,
)
from .caller import Caller

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Messages:
    def __init__(self, call: Caller) -> None:
        self._call = call

    def get(self, message: str, *, view: str = "min", options: CallOptions | None = None) -> RenderedMessage:
        """`min` is what a model should see; `plain` and `full` have more."""
        return self._call.read(
            RenderedMessage, Call("GET", f"/v1/messages/{at(message)}", query={"view": view}), options
        )

    def raw(self, message: str, *, options: CallOptions | None = None) -> Download:
        """The message as received. Treat the bytes as hostile."""
        return self._call.download(f"/v1/messages/{at(message)}/raw", options)

    def attachment(self, message: str, n: int, *, options: CallOptions | None = None) -> Download:
        """The content of an attachment, by its number `n`. Treat the bytes as hostile."""
        return self._call.download(f"/v1/messages/{at(message)}/attachments/{int(n)}", options)

    def artifacts(self, message: str, *, options: CallOptions | None = None) -> ArtifactPage:
        return self._call.read(ArtifactPage, Call("GET", f"/v1/messages/{at(message)}/artifacts"), options)

    def reply(
        self,
        message: str,
        *,
        idempotency_key: str | None = None,
        wait: float | None = None,
        options: CallOptions | None = None,
        **body: Unpack[Reply],
    ) -> SendReceipt:
        """Replies once, even if a retry has another text. The message identifies the reply, so it needs no key."""
        path = f"/v1/messages/{at(message)}/reply"
        call = Call("POST", path, body=body, hold=wait or 0, headers=prefer(wait))
        return self._call.read(SendReceipt, call, under(idempotency_key, options))

    def forward(
        self, message: str, *, options: CallOptions | None = None, **body: Unpack[Forward]
    ) -> SendReceipt:
        """Forwards a message, once to the same recipients."""
        return self._call.read(
            SendReceipt, Call("POST", f"/v1/messages/{at(message)}/forward", body=body), options
        )

    def ack(
        self, message: str, *, options: CallOptions | None = None, **body: Unpack[Acknowledgement]
    ) -> AcknowledgementResult:
        """Marks a message from `next` as done."""
        return self._settle(message, "ack", body, options)

    def nack(
        self, message: str, *, options: CallOptions | None = None, **body: Unpack[Acknowledgement]
    ) -> AcknowledgementResult:
        """Returns a message from `next`; others may lease it after `delay_s`."""
        return self._settle(message, "nack", body, options)

    def extend(
        self, message: str, *, options: CallOptions | None = None, **body: Unpack[Acknowledgement]
    ) -> AcknowledgementResult:
        """Extends the lease of a message from `next`."""
        return self._settle(message, "extend", body, options)

    def _settle(
        self, message: str, verb: str, body: Acknowledgement, options: CallOptions | None
    ) -> AcknowledgementResult:
        call = Call("POST", f"/v1/messages/{at(message)}/{verb}", body=body, mint=True)
        return self._call.read(AcknowledgementResult, call, options)


class Artifacts:
    def __init__(self, call: Caller) -> None:
        self._call = call

    def get(self, artifact: str, *, options: CallOptions | None = None) -> Artifact:
        return self._call.read(Artifact, Call("GET", f"/v1/artifacts/{at(artifact)}"), options)

    def consume(self, artifact: str, *, options: CallOptions | None = None, **body: Unpack[Consume]) -> Artifact:
        """Consumes a code or link once. The same `for_` gets it again; another one fails with `already_consumed`."""
        call = Call("POST", f"/v1/artifacts/{at(artifact)}/consume", body=body)
        return (self._call.read(ConsumedArtifact, call, options)).artifact

    def applied(self, artifact: str, *, for_: str, options: CallOptions | None = None) -> Artifact:
        """Reports that the code or link was used."""
        call = Call("POST", f"/v1/artifacts/{at(artifact)}/applied", body={"for": for_})
        return (self._call.read(ConsumedArtifact, call, options)).artifact

"""Idempotent email for agents: a send without an intent or a key does not type-check."""

from ._async.client import AsyncMailonce
from ._async.lease import AsyncHeldLease
from ._async.once import AsyncOnceRun
from ._call import VERSION as __version__
from ._call import CallOptions, Download
from ._error import MailonceError
from ._key import bare_address, derive_key
from ._mail import MailWithIntent
from ._once import AfterError, Found, OnceOptions, UnknownClaim, step_key
from ._sync.client import Mailonce
from ._sync.lease import HeldLease
from ._sync.once import OnceRun
from ._tool import once_tool
from ._webhook import verify_webhook
from .wire import Attachment, Event, Intent, Message, Send, SendReceipt

__all__ = [
    "AfterError",
    "AsyncHeldLease",
    "AsyncMailonce",
    "AsyncOnceRun",
    "Attachment",
    "CallOptions",
    "Download",
    "Event",
    "Found",
    "HeldLease",
    "Intent",
    "MailWithIntent",
    "Mailonce",
    "MailonceError",
    "Message",
    "OnceOptions",
    "OnceRun",
    "Send",
    "SendReceipt",
    "UnknownClaim",
    "__version__",
    "bare_address",
    "derive_key",
    "once_tool",
    "step_key",
    "verify_webhook",
]

"""The tools of the server's MCP endpoint, for any framework. The server enforces their guards.

A framework's call id is sent for correlation only; it is not an idempotency key.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from .._definitions import ToolName
from .._error import MailonceError
from .._first import FirstResults
from .._mcp import Answer
from .._tools import Definition, did_something, offered, refused
from .client import AsyncMailonce


class AsyncEmailTools:
    """`from_` is the inbox to send from and to read; `inbox` is the one to read, if it is another one."""

    def __init__(
        self,
        mo: AsyncMailonce,
        *,
        from_: str | None = None,
        inbox: str | None = None,
        tools: Collection[ToolName] | None = None,
        calls: FirstResults | None = None,
    ) -> None:
        self._mo, self._calls = mo, calls
        self.definitions: dict[str, Definition] = offered(from_, inbox, tools)

    async def run(self, name: str, arguments: dict[str, Any], call_id: str | None = None) -> Answer:
        """Returns refusals as results, because many frameworks retry a call that raises."""
        definition = self.definitions[name]

        async def call() -> Answer:
            return await self._mo.call_tool(name, {**arguments, **definition.fixed}, options={"call_id": call_id})

        try:
            if self._calls is not None and definition.acts:
                return await self._calls.arun(name, arguments, call, did_something)
            return await call()
        except MailonceError as error:
            return refused(error)

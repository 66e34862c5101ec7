"""Tools for LangChain and LangGraph: `create_agent(model, tools=email_tools(mo, from_="agent@example.com"))`."""

from __future__ import annotations

import json
from collections.abc import Collection
from contextvars import ContextVar
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool

from ._async.client import AsyncMailonce
from ._async.tools import AsyncEmailTools
from ._definitions import ToolName
from ._first import FirstResults
from ._sync.client import Mailonce
from ._sync.tools import EmailTools
from ._tools import Definition

__all__ = ["FirstResults", "email_tools"]

_CALL_ID: ContextVar[str | None] = ContextVar("mailonce_call_id", default=None)


class _Tool(StructuredTool):
    """A tool that knows the id of the call it answers. LangChain injects it only where a signature asks for it."""

    def run(self, *args: Any, tool_call_id: str | None = None, **kwargs: Any) -> Any:
        reset = _CALL_ID.set(tool_call_id)
        try:
            return super().run(*args, tool_call_id=tool_call_id, **kwargs)
        finally:
            _CALL_ID.reset(reset)

    async def arun(self, *args: Any, tool_call_id: str | None = None, **kwargs: Any) -> Any:
        reset = _CALL_ID.set(tool_call_id)
        try:
            return await super().arun(*args, tool_call_id=tool_call_id, **kwargs)
        finally:
            _CALL_ID.reset(reset)


def email_tools(
    mo: Mailonce | AsyncMailonce,
    *,
    from_: str | None = None,
    inbox: str | None = None,
    tools: Collection[ToolName] | None = None,
    calls: FirstResults | None = None,
) -> list[BaseTool]:
    """The tools of the server, or those named in `tools`. With `Mailonce` they work in `invoke` and `ainvoke`, with
    `AsyncMailonce` in `ainvoke`. `from_` is the inbox that sends and is read, `inbox` the one that is read if it is
    another one; without them, a model with several inboxes names one. Give them one `calls` for each loop, and a
    repeated identical call is answered from its first result.
    """
    offer: EmailTools | AsyncEmailTools
    if isinstance(mo, Mailonce):
        offer = EmailTools(mo, from_=from_, inbox=inbox, tools=tools, calls=calls)
    else:
        offer = AsyncEmailTools(mo, from_=from_, inbox=inbox, tools=tools, calls=calls)
    return [_tool(definition, offer) for definition in offer.definitions.values()]


def _tool(definition: Definition, offer: EmailTools | AsyncEmailTools) -> BaseTool:
    functions: dict[str, Any] = {}
    if isinstance(offer, EmailTools):

        def run(**arguments: Any) -> str:
            return json.dumps(offer.run(definition.name, arguments, _CALL_ID.get()), ensure_ascii=False)

        functions["func"] = run
    else:

        async def arun(**arguments: Any) -> str:
            return json.dumps(await offer.run(definition.name, arguments, _CALL_ID.get()), ensure_ascii=False)

        functions["coroutine"] = arun
    description, schema = definition.description, definition.parameters
    return _Tool(name=definition.name, description=description, args_schema=schema, **functions)

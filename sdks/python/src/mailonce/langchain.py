"""Tools for LangChain and LangGraph: `create_agent(model, tools=email_tools(mo, from_="agent@example.com"))`."""

from __future__ import annotations

import json
from contextvars import ContextVar
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool

from ._async.client import AsyncMailonce
from ._async.tools import AsyncEmailTools
from ._definitions import TOOLS
from ._first import FirstResults
from ._sync.client import Mailonce
from ._sync.tools import EmailTools

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
    mo: Mailonce | AsyncMailonce, *, from_: str, inbox: str | None = None, calls: FirstResults | None = None
) -> list[BaseTool]:
    """Tools whose keys come from the intent. With `Mailonce` they work in `invoke` and `ainvoke`, with `AsyncMailonce`
    in `ainvoke`. Give them one `calls` for each loop, and a repeated identical call is answered from its first result.
    """
    return [_tool(definition, mo, from_, inbox, calls) for definition in TOOLS]


def _tool(
    definition: dict[str, Any],
    mo: Mailonce | AsyncMailonce,
    from_: str,
    inbox: str | None,
    calls: FirstResults | None,
) -> BaseTool:
    name = definition["name"]
    functions: dict[str, Any] = {}
    if isinstance(mo, Mailonce):
        tools = EmailTools(mo, from_=from_, inbox=inbox, calls=calls)

        def run(**arguments: Any) -> str:
            return json.dumps(tools.run(name, arguments, _CALL_ID.get()), ensure_ascii=False)

        functions["func"] = run
    else:
        async_tools = AsyncEmailTools(mo, from_=from_, inbox=inbox, calls=calls)

        async def arun(**arguments: Any) -> str:
            return json.dumps(await async_tools.run(name, arguments, _CALL_ID.get()), ensure_ascii=False)

        functions["coroutine"] = arun
    description, schema = definition["description"], definition["parameters"]
    return _Tool(name=name, description=description, args_schema=schema, **functions)

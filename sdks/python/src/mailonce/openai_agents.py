"""Tools for OpenAI Agents: `Agent(name=…, tools=email_tools(mo, from_="agent@example.com"))`."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from agents import FunctionTool, Tool
from agents.tool_context import ToolContext

from ._async.client import AsyncMailonce
from ._async.tools import AsyncEmailTools
from ._definitions import TOOLS
from ._first import FirstResults
from ._sync.client import Mailonce
from ._sync.tools import EmailTools

__all__ = ["FirstResults", "email_tools"]


def email_tools(
    mo: Mailonce | AsyncMailonce, *, from_: str, inbox: str | None = None, calls: FirstResults | None = None
) -> list[Tool]:
    """Tools whose keys come from the intent. Give them one `calls` for each loop, and a repeated identical call is
    answered from its first result.
    """
    return [_tool(definition, mo, from_, inbox, calls) for definition in TOOLS]


def _tool(
    definition: dict[str, Any],
    mo: Mailonce | AsyncMailonce,
    from_: str,
    inbox: str | None,
    calls: FirstResults | None,
) -> Tool:
    name: str = definition["name"]

    async def invoke(context: ToolContext[Any], arguments: str) -> str:
        given: dict[str, Any] = json.loads(arguments or "{}")
        if isinstance(mo, Mailonce):
            tools = EmailTools(mo, from_=from_, inbox=inbox, calls=calls)
            answer = await asyncio.to_thread(tools.run, name, given, context.tool_call_id)
        else:
            awaiting = AsyncEmailTools(mo, from_=from_, inbox=inbox, calls=calls)
            answer = await awaiting.run(name, given, context.tool_call_id)
        return json.dumps(answer, ensure_ascii=False)

    return FunctionTool(
        name=name,
        description=definition["description"],
        params_json_schema=definition["parameters"],
        on_invoke_tool=invoke,
        # Strict schemas have no optional members.
        strict_json_schema=False,
    )

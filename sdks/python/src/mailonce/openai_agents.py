"""Tools for OpenAI Agents: `Agent(name=…, tools=email_tools(mo, from_="agent@example.com"))`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection
from typing import Any

from agents import FunctionTool, Tool
from agents.tool_context import ToolContext

from ._async.client import AsyncMailonce
from ._async.tools import AsyncEmailTools
from ._definitions import ToolName
from ._first import FirstResults
from ._sync.client import Mailonce
from ._sync.tools import EmailTools
from ._tools import Definition, check_names

__all__ = ["FirstResults", "email_tools"]


def email_tools(
    mo: Mailonce | AsyncMailonce,
    *,
    from_: str | None = None,
    inbox: str | None = None,
    tools: Collection[ToolName] | None = None,
    needs_approval: Collection[ToolName] = (),
    calls: FirstResults | None = None,
) -> list[Tool]:
    """The tools of the server, or those named in `tools`. `from_` is the inbox that sends and is read, `inbox` the one
    that is read if it is another one; without them, a model with several inboxes names one. The framework asks a person
    before the tools in `needs_approval`. Give them one `calls` for each loop, and a repeated identical call is answered
    from its first result.
    """
    check_names(needs_approval)
    offer: EmailTools | AsyncEmailTools
    if isinstance(mo, Mailonce):
        offer = EmailTools(mo, from_=from_, inbox=inbox, tools=tools, calls=calls)
    else:
        offer = AsyncEmailTools(mo, from_=from_, inbox=inbox, tools=tools, calls=calls)
    return [_tool(one, offer, one.name in needs_approval) for one in offer.definitions.values()]


def _tool(definition: Definition, offer: EmailTools | AsyncEmailTools, needs_approval: bool) -> Tool:
    name = definition.name

    async def invoke(context: ToolContext[Any], arguments: str) -> str:
        given: dict[str, Any] = json.loads(arguments or "{}")
        if isinstance(offer, EmailTools):
            answer = await asyncio.to_thread(offer.run, name, given, context.tool_call_id)
        else:
            answer = await offer.run(name, given, context.tool_call_id)
        return json.dumps(answer, ensure_ascii=False)

    # Versions before 0.8 do not know it, and must not pass over it.
    more: dict[str, Any] = {"needs_approval": True} if needs_approval else {}
    return FunctionTool(
        name=name,
        description=definition.description,
        params_json_schema=definition.strict(),
        on_invoke_tool=invoke,
        strict_json_schema=True,
        **more,
    )

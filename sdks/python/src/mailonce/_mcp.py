"""One call of a tool at `/mcp`, without the network."""

from __future__ import annotations

from typing import Any

from ._call import Call
from ._error import MailonceError

Answer = dict[str, Any]
"""The result of a tool: branch on `status`; `next` says what to do, and `detail` and `field` what is wrong."""

_TEMPORARY = ("unavailable", "timeout", "internal")
"""Errors of the server that pass."""
_LONGEST_WAIT, _USUAL_WAIT = 50, 4
"""How many seconds the server waits at most, and unless `timeout_s` says otherwise."""


def tool_call(name: str, arguments: dict[str, Any]) -> Call:
    """Every tool is idempotent, so the call may be made again unchanged."""
    params = {"name": name, "arguments": arguments}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    seconds = arguments.get("timeout_s")
    hold = min(seconds, _LONGEST_WAIT) if isinstance(seconds, int) and seconds > 0 else _USUAL_WAIT
    return Call("POST", "/mcp", body=body, headers={"MCP-Protocol-Version": "2025-11-25"}, hold=hold)


def tool_answer(message: Any) -> tuple[Answer, bool]:
    """The result in a message, and whether it is an error that passes."""
    result = message.get("result")
    if result is None:
        detail = (message.get("error") or {}).get("message", "the answer has no result")
        raise MailonceError("no_problem", detail, next="Update the server: it does not know this tool.")
    answer: Answer = result["structuredContent"]
    return answer, result["isError"] and answer["status"] in _TEMPORARY

"""One call of a tool at `/mcp`, without the network."""

from __future__ import annotations

from typing import Any

from ._call import Call
from ._error import MailonceError

Answer = dict[str, Any]
"""The result of a tool: branch on `status`; `next` says what to do, and `detail` and `field` what is wrong."""

_TEMPORARY = ("unavailable", "timeout", "internal")
"""Errors of the server that are worth a retry."""
_MAX_WAIT_S, _DEFAULT_WAIT_S = 50, 4
"""How many seconds the server waits at most, and unless `timeout_s` says otherwise."""


def tool_call(name: str, arguments: dict[str, Any]) -> Call:
    """Every tool is idempotent, so the call may be retried unchanged."""
    params = {"name": name, "arguments": arguments}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    seconds = arguments.get("timeout_s")
    hold = min(seconds, _MAX_WAIT_S) if isinstance(seconds, int) and seconds > 0 else _DEFAULT_WAIT_S
    return Call("POST", "/mcp", body=body, headers={"MCP-Protocol-Version": "2025-11-25"}, hold=hold)


def tool_answer(message: Any) -> tuple[Answer, bool]:
    """The result in a message, and whether it is an error that is worth a retry."""
    result = message.get("result")
    if result is None:
        detail = (message.get("error") or {}).get("message", "the answer has no result")
        raise MailonceError("no_problem", detail, next="Update the server: it does not know this tool.")
    answer: Answer = result["structuredContent"]
    return answer, result["isError"] and answer["status"] in _TEMPORARY

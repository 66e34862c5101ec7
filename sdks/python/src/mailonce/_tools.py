"""The tools of one agent, and the result that its model gets when a call fails."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ._definitions import TOOLS, ToolName
from ._error import MailonceError
from ._mcp import Answer


@dataclass(frozen=True)
class Definition:
    """One tool. `acts`: it sends or takes something."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON schema."""
    acts: bool
    fixed: dict[str, str]
    """Arguments that are fixed, so the model does not choose them."""

    def strict(self) -> dict[str, Any]:
        """The schema with every argument required, as strict modes demand. Optional ones may be null."""
        return {**self.parameters, "required": list(self.parameters["properties"])}


def offered(from_: str | None, inbox: str | None, tools: Collection[ToolName] | None) -> dict[str, Definition]:
    """The selected tools. A given inbox is removed from the arguments that the model sees."""
    known = [tool["name"] for tool in TOOLS]
    check_names(tools or ())
    wanted = known if tools is None else [name for name in known if name in tools]
    return {tool["name"]: _definition(tool, from_, inbox) for tool in TOOLS if tool["name"] in wanted}


def check_names(names: Collection[str]) -> None:
    for name in names:
        if all(tool["name"] != name for tool in TOOLS):
            raise ValueError(f"there is no tool {name}")


def _definition(tool: dict[str, Any], from_: str | None, inbox: str | None) -> Definition:
    parameters: dict[str, Any] = tool["parameters"]
    own = from_ if tool["name"] == "send_email" else inbox or from_
    fixed: dict[str, str] = {}
    if own is not None and "inbox" in parameters["properties"]:
        rest = {name: schema for name, schema in parameters["properties"].items() if name != "inbox"}
        parameters, fixed = {**parameters, "properties": rest}, {"inbox": own}
    return Definition(tool["name"], tool["description"], parameters, tool["acts"], fixed)


def did_something(answer: Answer) -> bool:
    """Whether a result has the email or the code of the call. Of others, such as `leased`, the next one may differ."""
    return "email" in answer or "value" in answer


def refused(error: MailonceError) -> Answer:
    """An error as a result."""
    status = "no_answer" if error.code == "no_answer" else "refused"
    answer: Answer = {"status": status, "code": error.code, "detail": error.detail, "field": error.field}
    answer |= {"retry": error.retry, "next": error.next}
    return {name: value for name, value in answer.items() if value is not None}

"""Answers in the shape in which models get them: `status`, `next`, and what else helps."""

from __future__ import annotations

from typing import Any

from ._definitions import TOOLS
from ._error import MailonceError
from .wire import SendReceipt

Answer = dict[str, Any]


_PARAMETERS = {tool["name"]: tool["parameters"] for tool in TOOLS}


def check(name: str, given: dict[str, Any]) -> None:
    """Not every framework holds a model to the schema."""
    parameters = _PARAMETERS[name]
    missing = [word for word in parameters.get("required", []) if word not in given]
    unknown = [word for word in given if word not in parameters["properties"]]
    for detail, words in (("is missing", missing), ("is not known", unknown)):
        if words:
            advice = f"Call {name} with {', '.join(parameters['properties'])}."
            raise MailonceError("invalid_field", f"{words[0]} {detail}", next=advice, field=words[0])


def told(sent: SendReceipt) -> Answer:
    status = "replayed" if sent.dedupe.outcome == "replayed" else "held" if sent.state == "held" else "accepted"
    answer: Answer = {"status": status, "id": sent.id, "state": sent.state, "next": sent.next}
    return {**answer, "guard": sent.guard} if sent.guard else answer


def refused(error: MailonceError) -> Answer:
    status = "no_answer" if error.code == "no_answer" else "refused"
    return {"status": status, "code": error.code, "retry": error.retry, "next": error.next}

"""Plays the turns of a model with Pydantic AI."""

import asyncio
import json
import os

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai_tools import tools

turns = json.loads(os.environ["TURNS"])
names = set()


def scripted(_messages, info):
    names.update(tool.name for tool in info.function_tools)
    return ModelResponse([ToolCallPart("send_email", turns.pop(0)) if turns else TextPart("done")])


result = asyncio.run(Agent(FunctionModel(scripted), toolsets=[tools]).run("Go."))
parts = [part for message in result.all_messages() for part in message.parts]
statuses = [part.content["status"] for part in parts if part.part_kind == "tool-return"]
print(json.dumps({"tools": sorted(names), "statuses": statuses}))

"""Plays the turns of a model with LlamaIndex."""

import asyncio
import json
import os

from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult
from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index_tools import tools

turns = json.loads(os.environ["TURNS"])
names = set()


def scripted(_messages, **options):
    names.update(tool.metadata.name for tool in options.get("tools") or [])
    if not turns:
        return ChatMessage(role="assistant", content="done")
    call = ToolCallBlock(tool_call_id=f"call-{len(turns)}", tool_name="send_email", tool_kwargs=turns.pop(0))
    return ChatMessage(role="assistant", blocks=[call])


async def main():
    llm = MockFunctionCallingLLM(response_generator=scripted)
    agent = FunctionAgent(tools=await tools.to_tool_list_async(), llm=llm, streaming=False)
    handler = agent.run("Go.")
    results = [event async for event in handler.stream_events() if isinstance(event, ToolCallResult)]
    await handler
    statuses = [result.tool_output.raw_output.structured_content["status"] for result in results]
    print(json.dumps({"tools": sorted(names), "statuses": statuses}))


asyncio.run(main())

"""Plays the turns of a model with the tools that LlamaIndex makes."""

import asyncio
import json
import os

from llama_index_tools import tools


async def main():
    (send,) = [tool for tool in await tools.to_tool_list_async() if tool.metadata.name == "send_email"]
    outputs = [await send.acall(**turn) for turn in json.loads(os.environ["TURNS"])]
    print(json.dumps([output.raw_output.structured_content["status"] for output in outputs]))


asyncio.run(main())

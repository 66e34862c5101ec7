"""Plays the turns of a model with Google ADK."""

import asyncio
import json
import os

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types
from google_adk_tools import tools

turns = json.loads(os.environ["TURNS"])
names = set()


class Scripted(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        names.update(llm_request.tools_dict)
        call = types.Part.from_function_call(name="send_email", args=turns.pop(0)) if turns else types.Part(text="done")
        yield LlmResponse(content=types.Content(role="model", parts=[call]))


async def main():
    agent = LlmAgent(name="clerk", model=Scripted(model="scripted"), tools=[tools])
    events = await InMemoryRunner(agent).run_debug("Go.", quiet=True)
    answers = [answer.response for event in events for answer in event.get_function_responses()]
    statuses = [answer["structuredContent"]["status"] for answer in answers]
    print(json.dumps({"tools": sorted(names), "statuses": statuses}))
    await tools.close()


asyncio.run(main())

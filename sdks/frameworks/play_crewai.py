"""Plays the turns of a model with CrewAI."""

import json
import os
import sys

# CrewAI prints what it does, also after the end, and keeps files in the home folder.
sys.stdout, os.environ["HOME"] = sys.stderr, os.getcwd()
os.environ["CREWAI_DISABLE_TELEMETRY"] = os.environ["CREWAI_TESTING"] = "true"

from crewai import Agent, BaseLLM
from crewai_mailonce import mailonce

turns = json.loads(os.environ["TURNS"])
statuses = []


class Scripted(BaseLLM):
    """Writes calls as the text that CrewAI asks for when a model has no function calling."""

    def call(self, messages, *_args, **_options):
        if turns:
            return f"Thought: send it\nAction: send_email\nAction Input: {json.dumps(turns.pop(0))}"
        said = [message["content"] for message in messages if message["role"] == "assistant"]
        statuses.extend(json.loads(text.split("Observation: ")[1])["status"] for text in said)
        return "Thought: it is sent\nFinal Answer: done"

    def supports_function_calling(self):
        return False


with mailonce as tools:
    Agent(role="clerk", goal="Send it.", backstory="", tools=tools, llm=Scripted(model="scripted")).kickoff("Go.")
    print(json.dumps({"tools": sorted(tool.name for tool in tools), "statuses": statuses}), file=sys.__stdout__)

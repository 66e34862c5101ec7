# The official PyPI client sends a mail that needs approval by a person. It is elicitations to open the approval page, and its
# own answer decides nothing.
import asyncio, json, sys
import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

config = json.load(sys.stdin)


def over_http():
    client = httpx2.AsyncClient(headers={"Authorization": f"Bearer {config['key']}"}, timeout=60)
    return streamable_http_client(config["url"], http_client=client)


def over_stdio():
    env = {"MAILONCE_URL": config["url"].removesuffix("/mcp"), "MAILONCE_API_KEY": config["key"]}
    return StdioServerParameters(command=config["binary"], args=["mcp"], env=env)


RUNS = {
    "py-http-accept": (over_http, "2026-07-28", "accept", 1),
    "py-stdio-decline": (over_stdio, "2026-07-28", "decline", 1),
    "py-old-http": (over_http, "legacy", "accept", 0),
    "py-old-stdio": (over_stdio, "legacy", "accept", 0),
}


async def main():
    for tag, (server, mode, action, times) in RUNS.items():
        elicitations = []

        async def answer(context, params):
            elicitations.append(params)
            return ElicitResult(action=action)

        mail = {"to": f"ann-{tag}@people.test", "subject": "A refund", "text": f"Refund of {tag}.", "type": "refund", "entity": tag}
        async with Client(server(), mode=mode, elicitation_callback=answer) as client:
            first = (await client.call_tool("send_email", mail)).structured_content
            again = (await client.call_tool("send_email", mail)).structured_content
        assert (first["status"], first["state"], again["email"]) == ("approval", "held", first["email"]), first
        assert len(elicitations) == times, (tag, elicitations)
        assert all(one.mode == "url" and one.url == first["approval_url"] for one in elicitations), elicitations
        print(tag)


asyncio.run(main())

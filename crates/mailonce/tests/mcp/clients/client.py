# The official PyPI client calls every tool, over both transports and in both protocol revisions.
import asyncio, json, sys
import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

config = json.load(sys.stdin)


def over_http():
    client = httpx2.AsyncClient(headers={"Authorization": f"Bearer {config['key']}"}, timeout=60)
    return streamable_http_client(config["url"], http_client=client)


def over_stdio():
    return StdioServerParameters(command=config["binary"], args=["mcp", "--data", config["data"]])


RUNS = {
    "py-http": (over_http, "2026-07-28"),
    "py-stdio": (over_stdio, "auto"),
    "py-old-http": (over_http, "legacy"),
    "py-old-stdio": (over_stdio, "legacy"),
}


async def exercise(client, tag):
    called = set()

    async def call(name, arguments, is_error=False):
        called.add(name)
        result = await client.call_tool(name, arguments)
        assert bool(result.is_error) == is_error, result
        assert json.loads(result.content[0].text) == result.structured_content
        return result.structured_content

    tools = (await client.list_tools()).tools
    assert len(tools) == 10
    for tool in tools:
        hints = tool.annotations
        for hint in (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint, hints.open_world_hint):
            assert isinstance(hint, bool), tool
        assert tool.output_schema and tool.description

    mail = {"to": f"ann-{tag}@people.test", "subject": "Your order", "text": f"Order of {tag}.", "type": "order", "entity": tag}
    first = await call("send_email", mail)
    assert first["dedupe"]["outcome"] == "first"
    both = await asyncio.gather(call("send_email", mail), call("send_email", {**mail, "text": "In other words."}))
    assert {one["email"] for one in both} == {first["email"]}
    await call("send_email", {name: value for name, value in mail.items() if name != "type"}, True)
    for _ in range(100):
        outcome = await call("get_outcome", {"email": first["email"]})
        if outcome["state"] == "sent":
            break
        await asyncio.sleep(0.05)
    assert outcome["status"] == "already_sent", outcome
    assert (await call("resend_email", {"email": first["email"], "reason": "she lost it"}))["email"] != first["email"]

    bob, shop = f"bob-{tag}@people.test", f"no-reply-{tag}@shop.test"
    arrived = await call("wait_for_message", {"from": bob})
    assert len((await call("find_messages", {"from": bob}))["messages"]) == 1
    assert (await call("read_message", {"message": arrived["message"]}))["text"].startswith("<<<untrusted mail ")
    lease = (await call("claim_thread", {"thread": arrived["thread"], "holder": tag}))["lease"]
    answer = {"message": arrived["message"], "text": "At nine.", "lease": lease}
    assert (await call("reply_email", answer))["status"] == "accepted"
    assert (await call("reply_email", {**answer, "text": "Nine!"}))["status"] == "already_answered"
    await call("wait_for_message", {"from": shop, "has": "code"})
    code = {"type": "code", "for": tag, "from": shop}
    assert (await call("take_artifact", code))["value"] == "402625"
    assert (await call("take_artifact", {**code, "for": "another", "timeout_s": 1}))["status"] == "none"
    progress = []

    async def on_progress(value, total, message):
        progress.append(value)

    waiting = {"from": f"nobody-{tag}@people.test", "timeout_s": 3}
    result = await client.call_tool("wait_for_message", waiting, progress_callback=on_progress)
    assert result.structured_content["status"] == "timeout", result
    assert len(progress) >= 2 and progress == sorted(set(progress)), progress
    assert (await call("ask_human", {"entity": tag, "question": "May I?"}))["status"] == "open"
    assert len(called) == 10


async def main():
    for tag in config["tags"]:
        server, mode = RUNS[tag]
        async with Client(server(), mode=mode) as client:
            await exercise(client, tag)
        print(tag)


asyncio.run(main())

"""The adapters, driven by scripted models that repeat, re-word, rename and run tools twice: one mail, one reply.

With the real server the sink behind it counts. Needs MAILONCE_FAULT_PROXY, MAILONCE_URL and a key.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import time
import unittest
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from agents import Agent, Model, ModelResponse, RunConfig, Runner, Tool, Usage, function_tool, set_tracing_disabled
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool as langchain_tool
from langgraph.checkpoint.memory import InMemorySaver
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from mailonce import AsyncMailonce, AsyncOnceRun, Intent, Mailonce, OnceRun, once_tool
from mailonce.langchain import FirstResults
from mailonce.langchain import email_tools as langchain_tools
from mailonce.openai_agents import email_tools as openai_tools
from mailonce.testing import Double, expect_sent_once
from mailonce.wire import EmailDetail

set_tracing_disabled(True)

FROM = "agent@mailonce.test"
MAIL = {
    "to": "ada@example.com",
    "subject": "Order 4821",
    "text": "Thank you.",
    "type": "order.confirmation",
    "entity": "order_4821",
}
REWORDED = {**MAIL, "subject": "Your order", "text": "Thanks so much for your order!"}
OTHER_WORDS = {"subject": "News about what you bought", "text": "The courier has picked it up this morning."}
ALREADY = ("already_accepted", "already_sent")
Turns = list[list[tuple[str, dict[str, Any]]]]
GO: Any = {"messages": [("user", "Go.")]}


class Earnest(Double):
    """The server that runs, in the place of the one in memory."""

    def client(self, *, max_retries: int = 4) -> Mailonce:
        return Mailonce(max_retries=max_retries)

    def async_client(self, *, max_retries: int = 4) -> AsyncMailonce:
        return AsyncMailonce(max_retries=max_retries)


def told(mo: Mailonce, email: str) -> EmailDetail:
    """An email with the call that repeated it: the server may write such calls down a second late."""
    for _ in range(50):
        found = mo.emails.get(email)
        if found.suppressed_calls:
            return found
        time.sleep(0.1)
    raise AssertionError("the repeat was not written down")


class Faulty(Earnest):
    """The server that runs, behind a proxy that plays faults."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__()
        request = {"to": os.environ["MAILONCE_URL"], "faults": faults}
        self.url: str = httpx.post(os.environ["MAILONCE_FAULT_PROXY"] + "/proxy", json=request).json()["url"]

    def client(self, *, max_retries: int = 4) -> Mailonce:
        return Mailonce(base_url=self.url, backoff=0.005, timeout=2, max_retries=max_retries)

    def async_client(self, *, max_retries: int = 4) -> AsyncMailonce:
        return AsyncMailonce(base_url=self.url, backoff=0.005, timeout=2, max_retries=max_retries)


def mails_for(to: str) -> int:
    """How many mails for `to` the sink has, a while after the first."""

    def count() -> int:
        found: int = httpx.get(os.environ["MAILONCE_FAULT_PROXY"] + "/mails", params={"to": to}).json()["count"]
        return found

    for _ in range(100):
        if count():
            break
        time.sleep(0.05)
    time.sleep(0.15)
    return count()


def unique() -> dict[str, Any]:
    """A mail about an order of its own, to a recipient of its own."""
    name = uuid.uuid4().hex
    return {**MAIL, "to": f"ada-{name}@example.com", "entity": f"order_{name}", "text": "Thanks, it is on its way."}


class ScriptedChat(FakeMessagesListChatModel):
    def bind_tools(self, *_: Any, **__: Any) -> ScriptedChat:
        return self


def chat(turns: Turns) -> ScriptedChat:
    number = itertools.count(1)
    messages = [
        AIMessage("", tool_calls=[{"name": n, "args": a, "id": f"call_{next(number)}"} for n, a in turn])
        for turn in turns
    ]
    return ScriptedChat(responses=[*messages, AIMessage("done")])


def answers_of(state: dict[str, Any]) -> list[dict[str, Any]]:
    assert state["messages"][-1].content == "done"
    return [json.loads(str(message.content)) for message in state["messages"] if isinstance(message, ToolMessage)]


def langchain(double: Double, turns: Turns, retries: int, calls: FirstResults | None) -> list[dict[str, Any]]:
    with double.client(max_retries=retries) as mo:
        return answers_of(create_agent(chat(turns), langchain_tools(mo, from_=FROM, calls=calls)).invoke(GO))


def langchain_async(double: Double, turns: Turns, retries: int, calls: FirstResults | None) -> list[dict[str, Any]]:
    async def run() -> Any:
        async with double.async_client(max_retries=retries) as mo:
            return await create_agent(chat(turns), langchain_tools(mo, from_=FROM, calls=calls)).ainvoke(GO)

    return answers_of(asyncio.run(run()))


class ScriptedModel(Model):
    def __init__(self, turns: Turns) -> None:
        self.turns = iter(turns)
        self.number = itertools.count(1)

    async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
        turn = next(self.turns, None)
        if turn is None:
            text = ResponseOutputText(annotations=[], text="done", type="output_text")
            said = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
            return ModelResponse(output=[said], usage=Usage(), response_id=None)
        calls: list[Any] = [
            ResponseFunctionToolCall(
                call_id=f"call_{next(self.number)}", name=name, arguments=json.dumps(given), type="function_call"
            )
            for name, given in turn
        ]
        return ModelResponse(output=calls, usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


async def agents_with(mo: Mailonce | AsyncMailonce, turns: Turns, calls: FirstResults | None) -> list[dict[str, Any]]:
    agent = Agent(name="clerk", tools=openai_tools(mo, from_=FROM, calls=calls), model=ScriptedModel(turns))
    config = RunConfig(tracing_disabled=True)
    result = await Runner.run(agent, "Go.", max_turns=20, run_config=config)
    assert result.final_output == "done"
    return [json.loads(str(item.output)) for item in result.new_items if item.type == "tool_call_output_item"]


def openai_agents(double: Double, turns: Turns, retries: int, calls: FirstResults | None) -> list[dict[str, Any]]:
    with double.client(max_retries=retries) as mo:
        return asyncio.run(agents_with(mo, turns, calls))


def openai_agents_async(double: Double, turns: Turns, retries: int, calls: FirstResults | None) -> list[dict[str, Any]]:
    async def run() -> list[dict[str, Any]]:
        async with double.async_client(max_retries=retries) as mo:
            return await agents_with(mo, turns, calls)

    return asyncio.run(run())


Framework = Callable[[Double, Turns, int, "FirstResults | None"], "list[dict[str, Any]]"]
FRAMEWORKS: list[Framework] = [langchain, langchain_async, openai_agents, openai_agents_async]


class Adapters(unittest.TestCase):
    def test_repeated_reworded_and_doubled_calls_send_one_mail_and_one_reply(self) -> None:
        for run in FRAMEWORKS:
            with self.subTest(framework=run.__name__):
                double = Double()
                message = double.receive(to=FROM, subject="Hours", text="When do you open?")
                turns: Turns = [
                    [("send_email", MAIL)],
                    [("send_email", MAIL)],
                    [("send_email", REWORDED), ("send_email", REWORDED)],
                    [
                        ("reply_email", {"message": message, "text": "At nine."}),
                        ("reply_email", {"message": message, "text": "We open at nine."}),
                    ],
                    [("reply_email", {"message": message, "text": "At nine."})],
                ]
                answers = run(double, turns, 4, None)
                expect_sent_once(double, to="ada@example.com", intent={"entity": "order_4821"})
                expect_sent_once(double, reply_to_message=message)
                self.assertEqual(len(double.mails), 2)
                self.assertEqual(len({answer["email"] for answer in answers[:4]}), 1)
                statuses = sorted(answer["status"] for answer in answers)
                self.assertEqual(statuses, ["accepted"] * 2 + ["already_answered"] * 2 + ["already_sent"] * 3)
                # For correlation; it is no part of the key, nor of what the mail means.
                self.assertEqual(double.mails[0]["call"], {"id": "call_1"})
                self.assertNotIn("metadata", double.mails[0])
                self.assertTrue(double.mails[0]["key"].startswith("i1_"))

    def test_a_repeated_call_under_another_id_is_the_same_call_and_both_ids_are_kept(self) -> None:
        for run, server in itertools.product(FRAMEWORKS, (Double(), Earnest())):
            with self.subTest(framework=run.__name__, server=type(server).__name__):
                mail = unique()
                first, again = run(server, [[("send_email", mail)], [("send_email", mail)]], 4, None)
                self.assertEqual(first["status"], "accepted")
                self.assertIn(again["status"], ALREADY)
                with server.client() as mo:
                    email = told(mo, first["email"])
                    self.assertEqual((email.call and email.call.id), "call_1")
                    (call,) = email.suppressed_calls
                    # Not payload_differs.
                    self.assertEqual((call.reason, call.call and call.call.id), ("key_replay", "call_2"))
                    words: Any = {name: mail[name] for name in ("to", "subject", "text")}
                    intent = Intent(type=mail["type"], entity=mail["entity"])
                    sent = mo.emails.send(from_=FROM, **words, intent=intent, options={"call_id": "call_3"})
                    self.assertEqual((sent.dedupe.outcome, sent.dedupe.payload_differs), ("replayed", False))

    def test_a_lost_answer_and_another_run_with_other_words(self) -> None:
        for run in FRAMEWORKS:
            with self.subTest(framework=run.__name__):
                double = Double().lose_answers(2)
                answers = run(double, [[("send_email", MAIL)], [("send_email", MAIL)]], 1, None)
                self.assertEqual([answer["status"] for answer in answers], ["no_answer", "already_sent"])
                run(double, [[("send_email", REWORDED)]], 4, None)
                expect_sent_once(double)

    def test_an_identical_call_in_one_loop_is_answered_from_its_first_result(self) -> None:
        for run in FRAMEWORKS:
            with self.subTest(framework=run.__name__):
                double = Double()
                turns: Turns = [[("send_email", MAIL), ("send_email", MAIL)], [("send_email", MAIL)]]
                first, second, third = run(double, turns, 4, FirstResults())
                self.assertEqual(double.calls, 1)
                self.assertEqual([second, third], [first, first])

    def test_what_a_model_gets_wrong_is_told_and_not_raised(self) -> None:
        without = {name: value for name, value in MAIL.items() if name != "entity"}
        wrong: Turns = [
            [("send_email", without)],
            [("send_email", {**MAIL, "key": "random"})],
            [("reply_email", {"message": "00000000-0000-7000-8000-000000000404", "text": "t"})],
        ]
        for run, server in itertools.product(FRAMEWORKS, (Double(), Earnest())):
            with self.subTest(framework=run.__name__, server=type(server).__name__):
                answers = run(server, wrong, 4, None)
                told = [(answer["status"], answer.get("field"), answer["detail"]) for answer in answers]
                self.assertEqual(told[0], ("invalid_type", "entity", "missing field `entity`"))
                self.assertEqual(told[1], ("unknown_field", "key", "there is no field `key`"))
                self.assertEqual(told[2][0], "not_found")
                self.assertTrue(all(answer["next"] for answer in answers))
                self.assertEqual(server.mails, [])

    def test_a_model_cannot_send_from_another_inbox(self) -> None:
        for run in FRAMEWORKS:
            with self.subTest(framework=run.__name__):
                double = Double()
                run(double, [[("send_email", {**MAIL, "inbox": "boss@mailonce.test"})]], 4, None)
                self.assertEqual(double.mails[0]["from"], FROM)

    def test_a_refused_key_is_told_with_what_to_do(self) -> None:
        with Mailonce(api_key="mo_wrong") as mo:
            (answer,) = asyncio.run(agents_with(mo, [[("send_email", MAIL)]], None))
        self.assertEqual(
            [answer["status"], answer["code"], answer["retry"]], ["refused", "unauthorized", "never"], answer
        )
        self.assertTrue(answer["detail"] and answer["next"])

    def test_a_temporary_error_of_the_server_is_retried_and_then_told(self) -> None:
        statuses = ["unavailable", "internal", "accepted"]

        def handle(_: httpx.Request) -> httpx.Response:
            status = statuses.pop(0)
            answer = {"structuredContent": {"status": status, "next": "…"}, "isError": status != "accepted"}
            return httpx.Response(200, json={"jsonrpc": "2.0", "id": 1, "result": answer})

        def client(max_retries: int) -> Mailonce:
            return Mailonce(api_key="k", backoff=0, max_retries=max_retries, transport=httpx.MockTransport(handle))

        with client(2) as mo:
            self.assertEqual(mo.call_tool("send_email", MAIL)["status"], "accepted")
        statuses = ["unavailable", "unavailable"]
        with client(1) as mo:
            self.assertEqual(mo.call_tool("send_email", MAIL)["status"], "unavailable")
        self.assertEqual(statuses, [])

    def test_answers_are_lost_on_the_way_and_the_call_is_made_again(self) -> None:
        for run in FRAMEWORKS:
            with self.subTest(framework=run.__name__):
                mail, server = unique(), Faulty(["503", "lose", "cut"])
                first, again = run(server, [[("send_email", mail)], [("send_email", mail)]], 4, None)
                self.assertEqual(first["email"], again["email"])
                self.assertIn(first["status"], ALREADY)
                self.assertEqual(mails_for(mail["to"]), 1)

    def test_other_words_spaces_cases_and_spellings_of_a_name_send_one_mail(self) -> None:
        for run in FRAMEWORKS:
            with self.subTest(framework=run.__name__):
                mail = unique()
                types = ("dup.x", " dup.x", "dup.x ", "Dup.X", "dup_x", "dup-x", "dup x")
                calls = [{**mail, "type": kind} for kind in types]
                calls.append({**mail, "type": "dup.x", "subject": "Your order", "text": "It is on its way to you."})
                calls.append({**mail, "type": "dup.x", "entity": mail["entity"].upper()})
                calls.append({**mail, **OTHER_WORDS, "type": "Dup-X", "entity": mail["entity"].upper()})
                answers = run(Earnest(), [[("send_email", call)] for call in calls], 4, None)
                self.assertEqual(answers[0]["status"], "accepted")
                for number in (1, 2, 7):
                    self.assertIn(answers[number]["status"], ALREADY)
                for number in (3, 4, 5, 6, 8, 9):
                    self.assertEqual((number, answers[number]["status"]), (number, "looks_duplicate"))
                self.assertEqual(mails_for(mail["to"]), 1)

    def test_a_recurring_mail_under_another_spelling_is_sent_once_in_its_period(self) -> None:
        for run in FRAMEWORKS:
            with self.subTest(framework=run.__name__):
                mail = {**unique(), "type": "weekly.report", "period": "2026-W46"}
                respelled = {**mail, "type": "Weekly Report"}
                calls = [mail, {**respelled, **OTHER_WORDS}]
                first, again = run(Earnest(), [[("send_email", call)] for call in calls], 4, None)
                self.assertEqual((first["status"], again["status"]), ("accepted", "looks_duplicate"))
                self.assertEqual(mails_for(mail["to"]), 1)
                (later,) = run(Earnest(), [[("send_email", {**respelled, "period": "2026-W47"})]], 4, None)
                self.assertEqual(later["status"], "accepted")

    def test_empty_values_of_a_strict_schema_say_nothing(self) -> None:
        for run in FRAMEWORKS:
            with self.subTest(framework=run.__name__):
                mail = unique()
                filled = {**mail, "html": "", "version": 0, "period": None, "distinct_token": "", "inbox": None}
                first, again = run(Earnest(), [[("send_email", filled)], [("send_email", mail)]], 4, None)
                self.assertEqual(first["email"], again["email"])
                self.assertEqual(mails_for(mail["to"]), 1)

    def test_a_result_that_may_change_is_not_remembered(self) -> None:
        double = Double()
        with double.client() as mo:
            mo.inboxes.create(address=FROM)
            take = next(tool for tool in langchain_tools(mo, from_=FROM, calls=FirstResults()) if "take" in tool.name)
            self.assertEqual(json.loads(take.invoke({"type": "code", "for": "a"}))["status"], "none")
            double.receive(to=FROM, code="123456")
            self.assertEqual(json.loads(take.invoke({"type": "code", "for": "a"}))["value"], "123456")

    def test_a_model_waits_for_a_mail_reads_it_and_takes_its_code(self) -> None:
        double = Double()
        with double.client() as mo:
            mo.inboxes.create(address=FROM)
            tools = {tool.name: tool for tool in langchain_tools(mo, inbox=FROM)}

            def call(name: str, **given: Any) -> dict[str, Any]:
                answer: dict[str, Any] = json.loads(tools[name].invoke(given))
                return answer

            self.assertEqual(call("wait_for_message", has="code")["status"], "timeout")
            message = double.receive(to=FROM, subject="Your code", text="It is 123456.", code="123456")
            arrived = call("wait_for_message", has="code", timeout_s=None)
            self.assertEqual((arrived["status"], arrived["message"]), ("arrived", message))
            self.assertEqual(call("read_message", message=message)["text"], "It is 123456.")
            for who, status in (("a", "taken"), ("b", "none"), ("a", "taken")):
                self.assertEqual(call("take_artifact", type="code", **{"for": who})["status"], status)
            self.assertEqual(call("ask_human", entity="e", question="?")["status"], "not_in_double")

    def test_a_graph_that_is_taken_back_to_before_the_tool_sends_nothing_again(self) -> None:
        double, model = Double(), chat([[("send_email", MAIL)]])
        model.responses.append(AIMessage("done again"))
        tools = langchain_tools(double.client(), from_=FROM)
        agent = create_agent(model, tools, checkpointer=InMemorySaver())
        config: Any = {"configurable": {"thread_id": "t-1"}}
        agent.invoke(GO, config)
        before = next(state for state in agent.get_state_history(config) if state.next == ("tools",))
        agent.invoke(None, before.config)
        self.assertEqual(double.calls, 2)
        expect_sent_once(double)


def in_order(schema: Any) -> Any:
    """The order of required fields means nothing, and a strict schema has its own."""
    if not isinstance(schema, dict):
        return schema
    return {name: sorted(part) if name == "required" else in_order(part) for name, part in schema.items()}


class Lists(unittest.TestCase):
    """A model gets the tools of the server."""

    LISTED: Any = json.loads(Path(os.environ["MAILONCE_CONTRACT"], "tools.json").read_text())

    def test_langchain(self) -> None:
        tools = langchain_tools(Double().client())
        for tool, listed in zip(tools, self.LISTED, strict=True):
            self.assertEqual((tool.name, tool.description), (listed["name"], listed["description"]))
            self.assertEqual(tool.args_schema, listed["inputSchema"])

    def test_openai_agents_in_strict_mode(self) -> None:
        tools: Any = openai_tools(Double().client())
        for tool, listed in zip(tools, self.LISTED, strict=True):
            self.assertEqual((tool.name, tool.description), (listed["name"], listed["description"]))
            self.assertTrue(tool.strict_json_schema)
            schema, wanted = tool.params_json_schema, listed["inputSchema"]
            self.assertEqual(in_order(schema["properties"]), in_order(wanted["properties"]))
            self.assertEqual(schema["required"], list(wanted["properties"]))
            self.assertIs(schema["additionalProperties"], False)
            for name, field in schema["properties"].items():
                # What the strict mode makes a model fill in may be null.
                self.assertEqual("null" in field["type"], name not in wanted.get("required", []), (tool.name, name))

    def test_a_choice_of_tools_and_an_inbox_that_the_model_does_not_choose(self) -> None:
        wanted: Any = ["get_outcome", "send_email"]
        send, outcome = langchain_tools(Double().client(), from_=FROM, tools=wanted)
        self.assertEqual([send.name, outcome.name], ["send_email", "get_outcome"])
        self.assertNotIn("inbox", send.args)
        unknown: Any = ["send_mail"]
        self.assertRaises(ValueError, langchain_tools, Double().client(), tools=unknown)
        self.assertRaises(ValueError, openai_tools, Double().client(), needs_approval=unknown)

    def test_the_framework_asks_a_person_before_the_tools_that_need_it(self) -> None:
        tools: Any = openai_tools(Double().client(), needs_approval=["send_email"])
        self.assertEqual([tool.needs_approval for tool in tools[:2]], [True, False])


class OwnTools(unittest.TestCase):
    """Tools of your own are safe to repeat, in each framework and in both of its ways."""

    TURNS: Turns = [[("refund", {"order": "7"})], [("refund", {"order": "7"})], [("refund", {"order": "8"})]]

    def setUp(self) -> None:
        self.ran: list[str] = []
        self.unique = uuid.uuid4().hex

    def key(self, order: str) -> str:
        return f"refund-{order}-{self.unique}"

    def blocking(self, mo: Mailonce) -> Callable[[str], dict[str, str]]:
        @once_tool(mo, key=self.key)
        def refund(order: str) -> dict[str, str]:
            """Refunds an order."""
            self.ran.append(OnceRun.current().key)
            return {"refunded": order}

        return refund

    def awaiting(self, mo: AsyncMailonce) -> Any:
        @once_tool(mo, key=self.key)
        async def refund(order: str) -> dict[str, str]:
            """Refunds an order."""
            self.ran.append(AsyncOnceRun.current().key)
            return {"refunded": order}

        return refund

    def check(self, answers: list[Any]) -> None:
        self.assertEqual(answers, [{"refunded": "7"}, {"refunded": "7"}, {"refunded": "8"}])
        self.assertEqual(self.ran, [self.key("7"), self.key("8")])

    def test_langchain(self) -> None:
        with Mailonce() as mo:
            self.check(answers_of(create_agent(chat(self.TURNS), [langchain_tool(self.blocking(mo))]).invoke(GO)))

    def test_a_tool_that_langchain_made(self) -> None:
        def refund(order: str) -> dict[str, str]:
            """Refunds an order."""
            self.ran.append(OnceRun.current().key)
            return {"refunded": order}

        with Mailonce() as mo:
            made = once_tool(mo, key=self.key)(langchain_tool(refund))
            self.check(answers_of(create_agent(chat(self.TURNS), [made]).invoke(GO)))

    def test_langchain_async(self) -> None:
        async def run() -> Any:
            async with AsyncMailonce() as mo:
                return await create_agent(chat(self.TURNS), [langchain_tool(self.awaiting(mo))]).ainvoke(GO)

        self.check(answers_of(asyncio.run(run())))

    def test_openai_agents(self) -> None:
        async def run(tool: Tool) -> list[Any]:
            agent = Agent(name="clerk", tools=[tool], model=ScriptedModel(self.TURNS))
            result = await Runner.run(agent, "Go.", run_config=RunConfig(tracing_disabled=True))
            return [item.output for item in result.new_items if item.type == "tool_call_output_item"]

        async def run_async() -> list[Any]:
            async with AsyncMailonce() as mo:
                return await run(function_tool(self.awaiting(mo)))

        self.check(asyncio.run(run_async()))
        self.setUp()
        with Mailonce() as mo:
            self.check(asyncio.run(run(function_tool(self.blocking(mo)))))


if __name__ == "__main__":
    unittest.main()

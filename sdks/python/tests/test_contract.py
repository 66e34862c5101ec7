"""Plays sdks/contract: the same scenarios as every other SDK, by the client that blocks and by the one that awaits."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import subprocess
import sys
import time
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import httpx

from mailonce import AsyncMailonce, Intent, Mailonce, MailonceError, derive_key, verify_webhook

CONTRACT = Path(os.environ.get("MAILONCE_CONTRACT") or Path(__file__).parents[2] / "contract")
SAFE = {"from": "from_", "for": "for_", "as": "as_"}


def load(name: str) -> Any:
    return json.loads((CONTRACT / f"{name}.json").read_text())


def words(body: dict[str, Any]) -> dict[str, Any]:
    """A body of the wire as keyword arguments."""
    out = {SAFE.get(name, name): value for name, value in body.items()}
    if isinstance(out.get("intent"), dict):
        out["intent"] = Intent(**out["intent"])
    return out


def arguments(call: str, args: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    positional = [args["id"]] if "id" in args else []
    body = args.get("body", args.get("query", {}))
    if call == "emails.batch":
        positional, named = [[words(mail) for mail in body]], {}
    else:
        named = words(body)
    for name in ("wait", "permissive", "without_key"):
        if name in args:
            named[name] = args[name]
    if "idempotency_key" in args:
        if call in ("emails.send", "emails.batch", "messages.reply"):
            named["idempotency_key"] = args["idempotency_key"]
        else:
            named["options"] = {"idempotency_key": args["idempotency_key"]}
    if "call_id" in args:
        named["options"] = {"call_id": args["call_id"]}
    return positional, named


def make(mo: Mailonce, call: str, args: dict[str, Any]) -> Any:
    resource, method = call.split(".")
    positional, named = arguments(call, args)
    made = getattr(getattr(mo, resource), method)(*positional, **named)
    if call == "threads.lease":
        with made as lease:
            time.sleep(args.get("work_ms", 0) / 1000)
            assert (lease.lost is not None) == args.get("lost", False)
            return {"token": lease.token, "fence": lease.fence}
    if inspect.isgenerator(made):
        out = []
        for item in made:
            out.append(item)
            if len(out) == args.get("take"):
                break
        return {"data": out}
    return made


async def make_async(mo: AsyncMailonce, call: str, args: dict[str, Any]) -> Any:
    resource, method = call.split(".")
    positional, named = arguments(call, args)
    made = getattr(getattr(mo, resource), method)(*positional, **named)
    if call == "threads.lease":
        async with made as lease:
            await asyncio.sleep(args.get("work_ms", 0) / 1000)
            assert (lease.lost is not None) == args.get("lost", False)
            return {"token": lease.token, "fence": lease.fence}
    if inspect.isasyncgen(made):
        out = []
        async for item in made:
            out.append(item)
            if len(out) == args.get("take"):
                break
        await made.aclose()
        return {"data": out}
    return await made


def misfits(wanted: Any, found: Any, where: str = "result") -> Iterator[str]:
    """Where `found` lacks something that `wanted` names."""
    if isinstance(wanted, dict):
        for name, value in wanted.items():
            name = SAFE.get(name, name)
            inner = found.get(name) if isinstance(found, dict) else getattr(found, name, None)
            yield from misfits(value, inner, f"{where}.{name}")
    elif isinstance(wanted, list):
        if not isinstance(found, list) or len(found) != len(wanted):
            yield f"{where} is {found!r}"
        else:
            for number, value in enumerate(wanted):
                yield from misfits(value, found[number], f"{where}[{number}]")
    elif wanted != found:
        yield f"{where} is {found!r}, wanted {wanted!r}"


class Contract(unittest.TestCase):
    server: ClassVar[subprocess.Popen[str]]
    url: ClassVar[str]
    http: ClassVar[httpx.Client]

    @classmethod
    def setUpClass(cls) -> None:
        command = [sys.executable, str(CONTRACT / "server.py")]
        cls.server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert cls.server.stdout is not None
        cls.url = cls.server.stdout.readline().strip()
        cls.http = httpx.Client()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.http.close()
        cls.server.communicate()

    def test_scenarios_that_block(self) -> None:
        def play(settings: dict[str, Any], scenario: dict[str, Any]) -> Any:
            # Reading the machine's certificates takes longer than a scenario.
            with Mailonce(**settings, transport=httpx.HTTPTransport(verify=False)) as mo:
                return make(mo, scenario["call"], scenario["args"])

        self.play_all(play)

    def test_scenarios_that_await(self) -> None:
        def play(settings: dict[str, Any], scenario: dict[str, Any]) -> Any:
            async def run() -> Any:
                async with AsyncMailonce(**settings, transport=httpx.AsyncHTTPTransport(verify=False)) as mo:
                    return await make_async(mo, scenario["call"], scenario["args"])

            return asyncio.run(run())

        self.play_all(play)

    def play_all(self, play: Any) -> None:
        played = 0
        for file in ("calls", "retries", "streams"):
            document = load(file)
            for scenario in document["scenarios"]:
                with self.subTest(file=file, name=scenario["name"]):
                    self.play_one(document["answers"], scenario, play)
                    played += 1
        self.assertGreaterEqual(played, 80)

    def play_one(self, answers: Any, scenario: dict[str, Any], play: Any) -> None:
        script = {"answers": answers, "server": scenario["server"]}
        stage = self.http.post(f"{self.url}/play", json=script).json()
        client = scenario.get("client", {})
        settings = {
            "base_url": stage["base"],
            "api_key": "contract-key",
            "backoff": 0.001,
            "max_retries": client.get("max_retries", 4),
            "timeout": client.get("timeout_ms", 5000) / 1000,
        }
        result, error = None, None
        try:
            result = play(settings, scenario)
        except MailonceError as raised:
            error = raised
        seen = self.http.get(stage["seen"]).json()
        if error is not None and "error" not in scenario:
            raise error
        self.assertEqual(seen, {"faults": [], "left": 0})
        if "error" in scenario:
            self.assertIsNotNone(error)
            self.assertEqual(list(misfits(scenario["error"], error, "error")), [])
        else:
            self.assertEqual(list(misfits(scenario["result"], result)), [])

    def test_keys(self) -> None:
        for vector in load("keys"):
            with self.subTest(name=vector["name"]):
                intent = Intent(**{"type": None, "entity": None, **vector["intent"]})
                if "key" in vector:
                    self.assertEqual(derive_key(intent, vector["to"]), vector["key"])
                    continue
                with self.assertRaises(MailonceError) as caught:
                    derive_key(intent, vector["to"])
                self.assertEqual((caught.exception.code, caught.exception.field), ("invalid_field", vector["invalid"]))

    def test_webhooks(self) -> None:
        for vector in load("webhooks"):
            with self.subTest(name=vector["name"]):
                parts = (vector["body"], vector["headers"], vector["secret"])
                if "event" in vector:
                    self.assertEqual(list(misfits(vector["event"], verify_webhook(*parts, now=vector["now"]))), [])
                    continue
                with self.assertRaises(MailonceError) as caught:
                    verify_webhook(*parts, now=vector["now"])
                self.assertEqual(caught.exception.code, vector["error"])

    def test_a_call_can_be_ended_from_outside(self) -> None:
        stage = self.http.post(f"{self.url}/play", json={"server": [{"fault": "hang"}]}).json()

        async def run() -> None:
            async with AsyncMailonce(base_url=stage["base"], api_key="contract-key") as mo:
                await asyncio.wait_for(mo.emails.send(from_="a@x", to="b@x", text="t", idempotency_key="k"), 0.1)

        with self.assertRaises(asyncio.TimeoutError):
            asyncio.run(run())


if __name__ == "__main__":
    unittest.main()

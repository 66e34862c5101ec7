"""Plays sdks/contract: the same scenarios as every other SDK, by the client that blocks and by the one that awaits."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any, ClassVar

import httpx
from play import make, make_async, misfits

from mailonce import AsyncMailonce, Intent, Mailonce, MailonceError, derive_key, step_key, verify_webhook

CONTRACT = Path(os.environ.get("MAILONCE_CONTRACT") or Path(__file__).parents[2] / "contract")


def load(name: str) -> Any:
    return json.loads((CONTRACT / f"{name}.json").read_text())


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
                for intent in (Intent(**{"type": None, "entity": None, **vector["intent"]}), vector["intent"]):
                    if "key" in vector:
                        self.assertEqual(derive_key(intent, vector["to"]), vector["key"])
                        continue
                    with self.assertRaises(MailonceError) as caught:
                        derive_key(intent, vector["to"])
                    told = (caught.exception.code, caught.exception.field)
                    self.assertEqual(told, ("invalid_field", vector["invalid"]))

    def test_steps(self) -> None:
        for vector in load("steps"):
            with self.subTest(name=vector["name"]):
                self.assertEqual(step_key(vector["parent"], vector["step"]), vector["key"])

    def test_what_is_no_intent_is_said(self) -> None:
        wrong: Any = "order_4821"
        with self.assertRaisesRegex(TypeError, "must be an Intent or a mapping with type and entity, not str"):
            derive_key(wrong, "a@example.com")
        with self.assertRaises(MailonceError) as caught:
            derive_key({"type": "t", "entitiy": "e"}, "a@example.com")
        self.assertEqual((caught.exception.code, caught.exception.field), ("invalid_field", "intent.entitiy"))

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

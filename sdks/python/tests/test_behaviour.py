"""Plays sdks/contract/behaviour.json against the server in memory and, where MAILONCE_URL names one, a real one.

What tests see in the double is what they would see in earnest.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import unittest
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from play import SAFE, make, misfits

from mailonce import Mailonce, MailonceError
from mailonce.testing import Double

CONTRACT = Path(os.environ.get("MAILONCE_CONTRACT") or Path(__file__).parents[2] / "contract")
STORIES = json.loads((CONTRACT / "behaviour.json").read_text())


def filled(value: Any, kept: dict[str, str]) -> Any:
    """Puts what was kept into the place of `{name}`."""
    return json.loads(re.sub(r"\{(\w+)\}", lambda found: kept[found[1]], json.dumps(value)))


def picked(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = value[int(name)] if isinstance(value, list) else getattr(value, name)
    return value


def simulate(mail: dict[str, str]) -> None:
    """Lets a mail arrive at the real server, by SMTP."""
    words = ["simulate", "inbound", "--smtp", os.environ["MAILONCE_SMTP_LISTEN"]]
    for name in ("to", "from", "subject", "text", "code"):
        if name in mail:
            words.append(f"--{name}={mail[name]}")
    subprocess.run([os.environ["MAILONCE_BIN"], *words], check=True, stdout=subprocess.DEVNULL)


class Behaviour(unittest.TestCase):
    def tell(self, story: dict[str, Any], mo: Mailonce, receive: Callable[[dict[str, str]], object]) -> None:
        kept = {"run": uuid.uuid4().hex[:8]}
        for raw in story["steps"]:
            step = filled(raw, kept)
            if "receive" in step:
                receive(step["receive"])
                continue
            result = self.step(step, mo)
            for name, path in step.get("keep", {}).items():
                kept[name] = picked(result, path)

    def step(self, step: dict[str, Any], mo: Mailonce) -> Any:
        try:
            result = make(mo, step["call"], step["args"])
        except MailonceError as error:
            if "error" not in step:
                raise
            self.assertEqual(list(misfits(step["error"], error, f"error of {step['call']}")), [])
            return None
        self.assertNotIn("error", step, f"{step['call']} did not fail")
        if "result" in step:
            self.assertEqual(list(misfits(step["result"], result, step["call"])), [])
        return result

    def test_the_double(self) -> None:
        for story in STORIES:
            with self.subTest(name=story["name"]):
                double = Double()

                def receive(mail: dict[str, str], double: Double = double) -> str:
                    return double.receive(**{SAFE.get(name, name): value for name, value in mail.items()})

                self.tell(story, double.client(), receive)

    @unittest.skipUnless(os.environ.get("MAILONCE_URL"), "MAILONCE_URL is not set")
    def test_the_server(self) -> None:
        for story in STORIES:
            with self.subTest(name=story["name"]), Mailonce() as mo:
                self.tell(story, mo, simulate)


if __name__ == "__main__":
    unittest.main()

"""The test kit on the code it is for: the run-twice and crash tests, and that they fail for code that is not safe."""

from __future__ import annotations

import asyncio
import unittest
import uuid
from typing import Any

from mailonce import Intent, Mailonce, MailonceError, SendReceipt, derive_key
from mailonce.testing import Double, expect_sent_once


def follow_up(mo: Mailonce, lead: str) -> None:
    intent = Intent(type="follow-up", entity=lead)
    mo.emails.send(from_="agent@mailonce.test", to=f"{lead}@example.com", subject="Hello", text="…", intent=intent)


def careless(mo: Mailonce, lead: str) -> None:
    key = str(uuid.uuid4())
    mo.emails.send(from_="agent@mailonce.test", to=f"{lead}@example.com", text="…", idempotency_key=key)


class Errors(unittest.TestCase):
    def test_an_error_shows_the_url_and_the_next_step(self) -> None:
        mo = Mailonce(base_url="http://127.0.0.1:1", api_key="nobody", max_retries=0)
        with mo, self.assertRaises(MailonceError) as caught:
            mo.emails.list()
        self.assertEqual(caught.exception.url, "http://127.0.0.1:1/v1/emails")
        self.assertIn("(http://127.0.0.1:1/v1/emails); next: Make the same call again", str(caught.exception))


class Intents(unittest.TestCase):
    def test_an_intent_from_json_has_the_key_of_any_other(self) -> None:
        said: Any = {"type": "follow-up", "entity": "lead_8821"}
        to = "lead@example.com"
        double = Double()

        async def run() -> SendReceipt:
            async with double.async_client() as mo:
                return await mo.emails.send(from_="agent@mailonce.test", to=to, text="…", intent=said)

        first = double.client().emails.send(from_="agent@mailonce.test", to=to, text="…", intent=said)
        again = asyncio.run(run())
        self.assertEqual([first.dedupe.key, again.dedupe.key], [derive_key(said, to)] * 2)
        self.assertEqual(derive_key(said, to), derive_key(Intent(**said), to))
        expect_sent_once(double)


class Kit(unittest.TestCase):
    def setUp(self) -> None:
        self.double = Double()
        self.mo = self.double.client()

    def test_run_twice(self) -> None:
        follow_up(self.mo, "lead_8821")
        follow_up(self.mo, "lead_8821")
        expect_sent_once(self.double)

    def test_a_crash_after_the_commit(self) -> None:
        self.double.crash(lambda: follow_up(self.mo, "lead_8821"))
        follow_up(self.mo, "lead_8821")
        expect_sent_once(self.double, intent={"entity": "lead_8821"})

    def test_a_lost_answer_and_a_refusal_are_tried_again(self) -> None:
        self.double.lose_answers(1).refuse(1)
        follow_up(self.mo, "lead_8821")
        self.assertEqual(self.double.calls, 3)
        expect_sent_once(self.double, to="lead_8821@example.com")

    def test_careless_code_is_found_out(self) -> None:
        careless(self.mo, "lead_8821")
        careless(self.mo, "lead_8821")
        with self.assertRaisesRegex(AssertionError, "2 mails went out, wanted 1"):
            expect_sent_once(self.double)
        with self.assertRaisesRegex(AssertionError, "0 mails went out"):
            expect_sent_once(self.double, to="nobody@example.com")

    def test_work_that_swallows_its_failure_is_found_out(self) -> None:
        with self.assertRaisesRegex(AssertionError, "ended well"):
            self.double.crash(lambda: None)


if __name__ == "__main__":
    unittest.main()

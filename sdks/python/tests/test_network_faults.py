"""Through a proxy that loses answers after the commit, delays, resets and answers 503: one mail at the sink of a real
server, and one success for the caller. Needs MAILONCE_FAULT_PROXY (sdks/contract/network_faults.py), MAILONCE_URL
and a key.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
import unittest
import uuid
from typing import Any

import httpx

from mailonce import AsyncMailonce, HeldLease, Intent, Mailonce, Message

CONTROL = os.environ["MAILONCE_FAULT_PROXY"]
SERVER = os.environ["MAILONCE_URL"]
FAULTS = ["refuse", "503", "lose", "reset", "cut", "delay", "late503"]
RUN = uuid.uuid4().hex[:6]
HTTP = httpx.Client()


def settings(faults: list[str], timeout: float = 0.6) -> dict[str, Any]:
    proxy = HTTP.post(f"{CONTROL}/proxy", json={"to": SERVER, "faults": faults}).json()
    return {"base_url": proxy["url"], "backoff": 0.005, "timeout": timeout, "max_retries": len(faults) + 3}


def through(faults: list[str]) -> Mailonce:
    return Mailonce(**settings(faults), transport=httpx.HTTPTransport(verify=False))


def mails_for(to: str) -> int:
    """Looks until the sink has a mail for `to`, then a while longer whether it gets another."""
    for _ in range(100):
        if HTTP.get(f"{CONTROL}/mails", params={"to": to}).json()["count"]:
            break
        time.sleep(0.05)
    time.sleep(0.1)
    return int(HTTP.get(f"{CONTROL}/mails", params={"to": to}).json()["count"])


def mail(to: str) -> Any:
    return {"from_": "agent@mailonce.test", "to": to, "subject": "Order", "text": "Thank you."}


def arrive(to: str, person: str) -> None:
    words = ["simulate", "inbound", "--to", to, "--from", person, "--text", "When?"]
    smtp = os.environ["MAILONCE_SMTP_LISTEN"]
    subprocess.run([os.environ["MAILONCE_BIN"], *words, "--smtp", smtp], check=True, stdout=subprocess.DEVNULL)


class NetworkFaults(unittest.TestCase):
    @classmethod
    def tearDownClass(cls) -> None:
        HTTP.close()

    def test_an_intent_a_key_and_a_batch(self) -> None:
        for fault in FAULTS:
            with self.subTest(fault=fault):
                one, two, three = (f"py-{name}-{fault}-{RUN}@example.com" for name in "abc")
                with through([fault, fault]) as mo:
                    mo.emails.send(**mail(one), intent=Intent(type="order", entity=f"py-{fault}-{RUN}"))
                with through([fault, fault]) as mo:
                    mo.emails.send(**mail(two), idempotency_key=f"py-{fault}-{RUN}")
                with through([fault, fault]) as mo:
                    mo.emails.batch([mail(three)], idempotency_key=f"py-batch-{fault}-{RUN}")
                self.assertEqual([mails_for(to) for to in (one, two, three)], [1, 1, 1])

    def test_a_message_is_answered_once_and_work_is_taken_once(self) -> None:
        desk, person = f"py-{RUN}@mailonce.test", f"py-person-{RUN}@example.com"
        with through(["lose", "reset", "late503"]) as mo:
            self.assertEqual(mo.inboxes.create(username=f"py-{RUN}").address, desk)
        arrive(desk, person)
        with Mailonce() as mo:
            self.assertIsNotNone(mo.inboxes.wait(desk, timeout=10))
        with through(["lose", "cut"]) as mo:
            (offer,) = mo.inboxes.next(desk, ttl_s=60)
        with through(["lose", "delay", "late503"]) as mo:
            first = mo.messages.reply(offer.message.id, text="At nine.", lease=offer.lease.token)
        with through(["lose", "reset"]) as mo:
            mo.messages.ack(offer.message.id, lease=offer.lease.token)
        with Mailonce() as mo:
            self.assertEqual(mo.messages.reply(offer.message.id, text="At nine o'clock.").id, first.id)
        self.assertEqual(mails_for(person), 1)

    def test_forty_callers_of_one_intent(self) -> None:
        to = f"py-crowd-{RUN}@example.com"

        async def one(n: int) -> str:
            faults = [FAULTS[n % len(FAULTS)], FAULTS[(n * 3 + 1) % len(FAULTS)]]
            transport = httpx.AsyncHTTPTransport(verify=False)
            async with AsyncMailonce(**settings(faults, timeout=2), transport=transport) as mo:
                return (await mo.emails.send(**mail(to), intent=Intent(type="py-crowd", entity=RUN))).id

        async def all_of_them() -> set[str]:
            return set(await asyncio.gather(*(one(n) for n in range(40))))

        self.assertEqual(len(asyncio.run(all_of_them())), 1)
        self.assertEqual(mails_for(to), 1)

    def test_a_loop_of_work_answers_each_message_once(self) -> None:
        desk = f"py-loop-{RUN}@mailonce.test"
        people = [f"py-{name}-{RUN}@example.com" for name in "xyz"]
        done: list[str] = []
        with Mailonce() as mo:
            mo.inboxes.create(username=f"py-loop-{RUN}")
            start = mo.events.list(limit=1000, after="0").next_cursor or "0"
            for person in people:
                arrive(desk, person)

            def work(message: Message, lease: HeldLease) -> None:
                mo.messages.reply(message.id, text="Coming.", lease=lease.token)
                done.append(message.id)

            mo.inboxes.work(desk, work, stop=lambda: len(done) == len(people), poll_s=5)
            self.assertEqual([mails_for(person) for person in people], [1, 1, 1])
            seen: list[str] = []
            for event in mo.events.stream(after=start, type="message.received"):
                seen.append(event.about.id)
                if set(done) <= set(seen):
                    break
            self.assertEqual(len(set(seen)), len(seen))


if __name__ == "__main__":
    unittest.main()

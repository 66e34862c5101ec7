"""`once` against a real server: one run, its result for everybody, and what is known after a crash."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
import unittest
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import httpx

from mailonce import (
    AsyncMailonce,
    AsyncOnceRun,
    Found,
    Mailonce,
    MailonceError,
    OnceRun,
    UnknownClaim,
    once_tool,
)

RUN = uuid.uuid4().hex[:6]


WON = {"id": "c", "state": "begun", "token": "ct_1", "key": "k", "fence": 1, "downstream_key": "d", "may_repeat": False}
"""What a caller gets that has the claim."""


class Scripted:
    """A server with these answers in this order, and the calls that it gets."""

    def __init__(self, *answers: tuple[int, dict[str, Any]]) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self._answers = list(answers)
        self.client = Mailonce(base_url="http://scripted", api_key="k", transport=httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.calls.append((request.url.path.rsplit("/", 1)[-1], json.loads(request.content)))
        status, body = self._answers.pop(0)
        return httpx.Response(status, json=body)


def never(_: OnceRun) -> NoReturn:
    raise AssertionError("it ran again")


def fail(message: str) -> Any:
    def work(_: object) -> NoReturn:
        raise ValueError(message)

    return work


class Once(unittest.TestCase):
    def setUp(self) -> None:
        self.mo = Mailonce()
        self.addCleanup(self.mo.close)

    def claim(self, key: str) -> dict[str, Any]:
        claim: dict[str, Any] = self.mo.request("GET", f"/v1/claims?key={key}")["data"][0]
        return claim

    def refused(self, code: str, call: Any) -> MailonceError:
        with self.assertRaises(MailonceError) as caught:
            call()
        self.assertEqual(caught.exception.code, code)
        return caught.exception

    def freed(self, key: str) -> None:
        """A claim whose holder was lost, and which a person freed."""
        self.mo.request("POST", "/v1/claims", {"key": key, "lease_s": 1})
        while (claim := self.claim(key))["state"] != "unknown":
            time.sleep(0.05)
        self.mo.request("POST", f"/v1/claims/{claim['id']}/resolve", {"as": "retry", "rev": claim["rev"]})

    def test_a_caller_that_waits_across_a_boundary_keeps_its_period(self) -> None:
        busy = {"code": "busy", "status": 409, "detail": "d", "retry": "later", "retry_after": 1, "period": "2026-W47"}
        server = Scripted((409, busy), (200, {"id": "c1", "state": "completed", "result": 7}))
        intent = {"type": "digest", "entity": "e", "period": {"every": "week"}}
        with server.client as mo:
            result: Any = mo.once(intent, never, wait=True)
        self.assertEqual(result, 7)
        self.assertEqual([body["intent"]["period"] for _, body in server.calls], [{"every": "week"}, "2026-W47"])

    def test_what_the_server_cannot_read_or_store_does_not_keep_a_completion_from_it(self) -> None:
        for status, code in ((400, "invalid_json"), (413, "too_large"), (422, "invalid_field")):
            with self.subTest(code=code):
                refused = {"code": code, "status": status, "detail": "d", "retry": "never"}
                server = Scripted((201, WON), (status, refused), (200, {}))
                with server.client as mo:
                    self.assertEqual(mo.once("k", lambda _: "big"), "big")
                expected = [{"token": "ct_1", "result": "big"}, {"token": "ct_1"}]
                self.assertEqual(server.calls[1:], [("complete", body) for body in expected])
        # Half of a character that JSON writes as two.
        with self.assertRaises(UnicodeEncodeError):
            self.mo.once(f"py-half-{RUN}", lambda _: "\ud83d")
        self.assertEqual(self.claim(f"py-half-{RUN}")["state"], "completed")
        with self.assertRaisesRegex(ValueError, "\ud83d"):
            self.mo.once(f"py-half-failed-{RUN}", fail("\ud83d"))
        self.assertEqual(self.claim(f"py-half-failed-{RUN}")["state"], "failed")

    def test_a_run_that_may_be_a_repeat_is_looked_up_first(self) -> None:
        missing, found = f"py-repeat-missing-{RUN}", f"py-repeat-found-{RUN}"
        for key in (missing, found):
            self.freed(key)

        def broken(_: UnknownClaim) -> Found:
            raise OSError("billing is down")

        self.refused("unknown", lambda: self.mo.once(missing, never, verify=broken))
        self.assertTrue(self.mo.once(missing, lambda run: run.may_repeat, verify=lambda _: None))
        result: Any = self.mo.once(found, never, verify=lambda _: Found(17))
        again: Any = self.mo.once(found, never)
        self.assertEqual([result, again], [17, 17])

    def test_twenty_concurrent_callers_run_the_function_once(self) -> None:
        runs: list[int] = []

        def work(_: OnceRun) -> dict[str, int]:
            time.sleep(0.3)
            runs.append(1)
            return {"invoice": len(runs)}

        with ThreadPoolExecutor(20) as pool:
            callers = [pool.submit(self.mo.once, f"py-crowd-{RUN}", work, wait=True) for _ in range(20)]
            self.assertEqual([caller.result() for caller in callers], [{"invoice": 1}] * 20)
        self.assertEqual(len(runs), 1)

    def test_twenty_concurrent_async_callers_run_the_function_once(self) -> None:
        runs: list[int] = []

        async def work(_: AsyncOnceRun) -> int:
            await asyncio.sleep(0.3)
            runs.append(1)
            return len(runs)

        async def all_of_them() -> list[int]:
            async with AsyncMailonce() as mo:
                return await asyncio.gather(*(mo.once(f"py-async-{RUN}", work, wait=30) for _ in range(20)))

        self.assertEqual(asyncio.run(all_of_them()), [1] * 20)
        self.assertEqual(len(runs), 1)

    def test_a_duplicate_gets_the_stored_result_and_the_first_caller_the_same(self) -> None:
        def work(run: OnceRun) -> Any:
            self.assertEqual((run.key, run.fence, run.may_repeat), (f"py-replay-{RUN}", 1, False))
            self.assertRegex(run.downstream_key, "^cl_[0-9a-f]{40}$")
            return {"pair": (1, 2)}

        first = self.mo.once(f"py-replay-{RUN}", work)
        self.assertEqual(first, {"pair": [1, 2]})
        again: Any = self.mo.once(f"py-replay-{RUN}", never)
        self.assertEqual(again, first)

    def test_while_another_caller_runs_it_busy_says_when_to_ask_again(self) -> None:
        begun, end = threading.Event(), threading.Event()

        def work(_: OnceRun) -> int:
            begun.set()
            end.wait(10)
            return 1

        with ThreadPoolExecutor() as pool:
            running = pool.submit(self.mo.once, f"py-busy-{RUN}", work, label="first")
            begun.wait(10)
            error = self.refused("busy", lambda: self.mo.once(f"py-busy-{RUN}", never))
            self.assertEqual((error.retry, error.details["label"]), ("later", "first"))
            self.assertGreater(error.details["retry_after"], 0)
            start = time.monotonic()
            self.refused("busy", lambda: self.mo.once(f"py-busy-{RUN}", never, wait=1))
            self.assertLess(time.monotonic() - start, 1.5)
            end.set()
            self.assertEqual(running.result(), 1)

    def test_a_killed_process_leaves_the_claim_unknown_and_verify_settles_it(self) -> None:
        key, asked = f"py-killed-{RUN}", list[UnknownClaim]()
        command = [sys.executable, str(Path(__file__).with_name("once_child.py")), key]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            passed = child.stdout.readline().strip()
            child.kill()
        error = self.refused("unknown", lambda: self.mo.once(key, never, wait=True))
        self.assertRegex(str(error), "Do not do it again.*verify.*mailonce claims resolve [0-9a-f-]{36}")

        def missing(claim: UnknownClaim) -> None:
            asked.append(claim)

        def broken(_: UnknownClaim) -> Found:
            raise OSError("billing is down")

        def found(claim: UnknownClaim) -> Found:
            return Found({"invoice": 17, "claim": claim.id})

        self.refused("unknown", lambda: self.mo.once(key, never, verify=missing))
        error = self.refused("unknown", lambda: self.mo.once(key, never, verify=broken))
        self.assertIsInstance(error.__cause__, OSError)
        claim = self.claim(key)
        self.assertEqual((claim["state"], [one["says"] for one in claim["evidence"]]), ("unknown", ["not_found"]))
        result: Any = self.mo.once(key, never, verify=found)
        self.assertEqual(result, {"invoice": 17, "claim": claim["id"]})
        again: Any = self.mo.once(key, never)
        self.assertEqual(again, result)
        self.assertEqual(asked, [UnknownClaim(claim["id"], passed)])

    def test_the_lease_is_renewed_while_the_function_runs(self) -> None:
        key = f"py-long-{RUN}"

        def work(run: OnceRun) -> bool:
            time.sleep(2.6)
            self.refused("busy", lambda: self.mo.once(key, never))
            return run.lost is not None

        self.assertFalse(self.mo.once(key, work, lease_s=1))
        claim = self.claim(key)
        self.assertEqual((claim["state"], claim["corrected"], claim["completions"]), ("completed", False, 1))

    def test_a_decision_about_the_claim_is_seen_and_the_end_is_recorded_all_the_same(self) -> None:
        async def work(run: AsyncOnceRun) -> int:
            await self.awaiting.request("POST", f"/v1/claims/{run.id}/evidence", {"says": "done"})
            while run.lost is None:
                await asyncio.sleep(0.05)
            self.assertEqual(run.lost.code, "claim_ended")
            return 7

        async def both() -> list[int]:
            async with AsyncMailonce() as self.awaiting:
                return [await self.awaiting.once(f"py-decided-{RUN}", work, lease_s=1) for _ in range(2)]

        self.assertEqual(asyncio.run(both()), [7, 7])

    def test_a_repeated_run_does_not_repeat_its_finished_steps(self) -> None:
        ran: list[str] = []

        def customer(_: OnceRun) -> dict[str, int]:
            ran.append("customer")
            return {"id": 5}

        def work(run: OnceRun) -> int:
            found = run.step("customer", customer)

            def invoice(step: OnceRun) -> int:
                ran.append("invoice")
                if len(ran) == 2:
                    raise ValueError("not yet")
                return step.step("number", lambda _: found["id"] + 1)

            return run.step("invoice", invoice)

        with self.assertRaisesRegex(ValueError, "not yet"):
            self.mo.once(f"py-steps-{RUN}", work, on_error=lambda _: "retry")
        self.assertEqual(self.mo.once(f"py-steps-{RUN}", work), 6)
        self.assertEqual(ran, ["customer", "invoice", "invoice"])
        self.mo.once(f"py-other-{RUN}", work)
        self.assertEqual(len(ran), 5, "the steps of another key are other steps")

    def test_a_step_is_not_forgotten_by_the_short_ttl_of_its_run(self) -> None:
        server = Scripted((201, WON), (201, WON), (200, {}), (200, {}))
        with server.client as mo:
            result = mo.once("k", lambda run: run.step("s", lambda _: 5), ttl="notification", on_unknown="retry")
        self.assertEqual(result, 5)
        asked = [(body.get("ttl"), body["on_unknown"]) for verb, body in server.calls if verb == "claims"]
        self.assertEqual(asked, [("notification", "retry"), (None, "retry")])

    def test_an_error_is_final_unless_on_error_says_that_nothing_happened(self) -> None:
        mo = self.mo
        with self.assertRaisesRegex(ValueError, "declined"):
            mo.once(f"py-failed-{RUN}", fail("card declined"))
        error = self.refused("claim_failed", lambda: mo.once(f"py-failed-{RUN}", never))
        self.assertRegex(str(error), "card declined.*another key")
        with self.assertRaises(ValueError):
            mo.once(f"py-free-{RUN}", fail("x"), on_error=lambda _: "retry")
        self.assertEqual(mo.once(f"py-free-{RUN}", lambda run: run.fence), 2)

        def lost(_: OnceRun) -> NoReturn:
            raise MailonceError("no_answer", "d", next="n", retry="same")

        self.refused("no_answer", lambda: mo.once(f"py-lost-{RUN}", lost, lease_s=1))
        self.refused("unknown", lambda: mo.once(f"py-lost-{RUN}", never, wait=5))

    def test_a_claim_that_begins_later_is_free_again_until_then(self) -> None:
        key = f"py-later-{RUN}"
        with self.assertRaises(ValueError):
            self.mo.once(key, fail("prepare"), begin="later")

        def work(run: OnceRun) -> NoReturn:
            self.assertFalse(run.begun)
            run.begin()
            raise ValueError("effect")

        with self.assertRaisesRegex(ValueError, "effect"):
            self.mo.once(key, work, begin="later")
        self.refused("claim_failed", lambda: self.mo.once(key, never))

    def test_another_fingerprint_under_the_key_is_refused(self) -> None:
        self.mo.once(f"py-print-{RUN}", lambda _: 1, fingerprint="100 EUR")
        error = self.refused("key_mismatch", lambda: self.mo.once(f"py-print-{RUN}", never, fingerprint="200 EUR"))
        self.assertEqual((error.status, error.retry), (422, "never"))

    def test_a_claim_by_request_has_no_key_but_its_own(self) -> None:
        body = {"key": f"py-request-{RUN}", "lease_s": 1}
        self.assertEqual(self.mo.request("POST", "/v1/claims", body)["key"], body["key"])

    def test_the_period_of_an_intent_comes_from_the_server(self) -> None:
        intent = {"type": "digest", "entity": f"py-{RUN}", "period": {"every": "day", "time_zone": "Europe/Berlin"}}
        self.assertRegex(str(self.mo.once(intent, lambda run: run.period)), r"^\d{4}-\d\d-\d\d$")

    def test_answers_are_lost_and_the_function_runs_once(self) -> None:
        for fault in ("lose", "cut", "late503"):
            with self.subTest(fault=fault):
                body = {"to": os.environ["MAILONCE_URL"], "faults": [fault, fault, None, fault]}
                proxy = httpx.post(os.environ["MAILONCE_FAULT_PROXY"] + "/proxy", json=body).json()
                ran: list[int] = []
                with Mailonce(base_url=proxy["url"], backoff=0.005, timeout=0.6) as mo:
                    mo.once(f"py-{fault}-{RUN}", lambda _, ran=ran: ran.append(1))  # type: ignore[misc]
                claim = self.claim(f"py-{fault}-{RUN}")
                self.assertEqual((claim["state"], claim["fence"], claim["completions"]), ("completed", 1, 1))
                self.assertEqual(ran, [1])

    def test_a_result_that_is_no_json_is_an_error_and_the_function_does_not_run_again(self) -> None:
        with self.assertRaises(TypeError):
            self.mo.once(f"py-set-{RUN}", lambda _: {1, 2})
        self.assertIsNone(self.mo.once(f"py-set-{RUN}", never))

    def test_a_decorated_function_runs_once_for_each_key(self) -> None:
        ran: list[str] = []

        @self.mo.runs_once(lambda order: f"py-invoice-{order}-{RUN}", lease_s=5)
        def invoice(order: str) -> str:
            """Creates an invoice."""
            ran.append(OnceRun.current().key)
            return f"invoice of {order}"

        self.assertEqual([invoice("7"), invoice(order="7"), invoice("8")], ["invoice of 7"] * 2 + ["invoice of 8"])
        self.assertEqual(ran, [f"py-invoice-7-{RUN}", f"py-invoice-8-{RUN}"])
        self.assertEqual((invoice.__name__, invoice.__doc__), ("invoice", "Creates an invoice."))

        async def decorated() -> list[str]:
            async with AsyncMailonce() as mo:

                @mo.runs_once(f"py-fixed-{RUN}")
                async def work() -> str:
                    ran.append(AsyncOnceRun.current().key)
                    return "done"

                return [await work(), await work()]

        self.assertEqual(asyncio.run(decorated()), ["done", "done"])
        self.assertEqual(len(ran), 3)

    def test_a_tool_answers_refusals_as_values(self) -> None:
        @once_tool(self.mo, key=lambda order: f"py-refund-{order}-{RUN}")
        def refund(order: str) -> dict[str, Any]:
            if order == "none":
                raise ValueError("no such order")
            return {"refunded": order}

        self.assertEqual([refund("7"), refund(order="7")], [{"refunded": "7"}] * 2)
        with self.assertRaises(ValueError):
            refund("none")
        answer = refund("none")
        self.assertEqual((answer["status"], answer["code"]), ("refused", "claim_failed"))
        with self.assertRaises(TypeError):
            once_tool(AsyncMailonce(), key=str)(fail)


if __name__ == "__main__":
    unittest.main()

"""What only a real server can show: notices that it signs, and leases that it gives to one at a time."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import queue
import subprocess
import threading
import time
import unittest
import unittest.mock
import uuid
from concurrent.futures import ThreadPoolExecutor

import httpx

from mailonce import Intent, Mailonce, MailonceError, derive_key, verify_webhook

RUN = uuid.uuid4().hex[:6]
Heard = tuple[bytes, dict[str, str]]


def pauses(retry_after: str | None) -> list[float]:
    """The pauses of a call that is never answered, or always with 503 and this Retry-After."""

    def answer(request: httpx.Request) -> httpx.Response:
        if retry_after is None:
            raise httpx.ConnectError("refused", request=request)
        return httpx.Response(503, headers={"Retry-After": retry_after}, json={})

    with (
        Mailonce(api_key="k", transport=httpx.MockTransport(answer)) as mo,
        unittest.mock.patch("time.sleep") as sleep,
        contextlib.suppress(MailonceError),
    ):
        mo.emails.get("e-1")
    return [call.args[0] for call in sleep.call_args_list]


class Server(unittest.TestCase):
    def setUp(self) -> None:
        self.mo = Mailonce()
        self.addCleanup(self.mo.close)

    def test_a_notice_of_the_server_is_believed_and_a_forged_one_is_not(self) -> None:
        heard: queue.Queue[Heard] = queue.Queue()

        class Receiver(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                heard.put((self.rfile.read(int(self.headers["content-length"])), dict(self.headers.items())))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as receiver:
            threading.Thread(target=receiver.serve_forever, daemon=True).start()
            endpoint = self.mo.webhooks.create(url=f"http://127.0.0.1:{receiver.server_port}/")
            self.mo.webhooks.test(endpoint.id)
            body, headers = heard.get(timeout=10)
            self.mo.webhooks.delete(endpoint.id)
            receiver.shutdown()
        assert endpoint.secret is not None
        self.assertEqual(verify_webhook(body, headers, endpoint.secret).type, "endpoint.test")
        with self.assertRaises(MailonceError) as caught:
            self.mo.webhooks.verify(body.replace(b"endpoint", b"endpoInt"), headers, endpoint.secret)
        self.assertEqual(caught.exception.code, "bad_signature")

    def test_a_thread_is_worked_on_by_one_at_a_time_for_longer_than_a_lease_lasts(self) -> None:
        mo, desk = self.mo, f"py-lease-{RUN}@mailonce.test"
        mo.inboxes.create(username=f"py-lease-{RUN}")
        words = ["simulate", "inbound", "--to", desk, "--from", "ann@example.com", "--text", "Hello?"]
        smtp = os.environ["MAILONCE_SMTP_LISTEN"]
        subprocess.run([os.environ["MAILONCE_BIN"], *words, "--smtp", smtp], check=True, stdout=subprocess.DEVNULL)
        arrived = mo.inboxes.wait(desk, timeout=10)
        assert arrived is not None
        message = arrived.message
        with mo.threads.lease(message.thread_id, ttl_s=1, holder="one") as lease:
            time.sleep(1.6)
            self.assertIsNone(lease.lost)
            with self.assertRaises(MailonceError) as caught:
                mo.threads.lease(message.thread_id, holder="two").acquire()
            self.assertEqual((caught.exception.code, caught.exception.retry), ("leased", "later"))
            mo.messages.reply(message.id, text="Hello.", lease=lease.token)
        with mo.threads.lease(message.thread_id, holder="two") as other:
            self.assertGreaterEqual(other.fence, 2)

    def test_the_key_that_is_derived_here_is_the_key_there(self) -> None:
        intent = Intent(type="größe", entity=f"№ py-{RUN}", period="2026-W46")
        to = ["Zoë <ZOE@BÜCHER.example>", "ada@Example.com"]
        sent = self.mo.emails.send(from_="agent@mailonce.test", to=to, subject="s", text="t", intent=intent)
        self.assertEqual(sent.dedupe.key, derive_key(intent, to))
        self.assertEqual(self.mo.request("GET", f"/v1/keys/{sent.dedupe.key}")["key"], sent.dedupe.key)

    def test_a_call_outlasts_a_restart_with_the_same_key_and_the_same_bytes(self) -> None:
        seen: list[tuple[str, bytes]] = []

        class Receiver(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                seen.append((self.headers["idempotency-key"], body))
                if len(seen) == 1:
                    return  # the connection ends without an answer
                answer = json.dumps({"id": "e-1"}).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as probe:
            port = probe.server_port
        with (
            Mailonce(base_url=f"http://127.0.0.1:{port}", api_key="k", backoff=0.025) as mo,
            ThreadPoolExecutor() as pool,
        ):
            answer = pool.submit(mo.request, "POST", "/v1/inboxes", {"username": "größe"})
            time.sleep(3)
            with http.server.ThreadingHTTPServer(("127.0.0.1", port), Receiver) as receiver:
                threading.Thread(target=receiver.serve_forever, daemon=True).start()
                self.assertEqual(answer.result(), {"id": "e-1"})
                receiver.shutdown()
        self.assertEqual(len(seen), 2)
        self.assertEqual(seen[0], seen[1])
        self.assertRegex(seen[0][0], "^sdk_")

    def test_the_usual_pauses_add_up_to_more_than_thirty_seconds(self) -> None:
        # The server says 1 while its database restarts, and a proxy may say 0.
        for retry_after in (None, "0", "1"):
            for share, least, most in ((0.0, 60, 70), (0.999999, 30, 40)):
                with unittest.mock.patch("random.random", return_value=share):
                    total = sum(pauses(retry_after))
                self.assertTrue(least <= total <= most, total)

    def test_a_pause_is_never_shorter_than_retry_after(self) -> None:
        self.assertEqual(pauses("30"), [30] * 12)

    def test_an_error_says_what_is_wrong_what_to_do_and_where_to_read_more(self) -> None:
        with self.assertRaises(MailonceError) as caught:
            self.mo.emails.send(from_="agent@mailonce.test", to="nobody", text="t", idempotency_key=f"w-{RUN}")
        error = caught.exception
        self.assertEqual(error.field, "to[0]")
        self.assertEqual(error.docs_url, f"{os.environ['MAILONCE_URL']}/docs/errors/{error.code}")
        assert error.docs_url is not None
        self.assertEqual(httpx.get(error.docs_url).status_code, 200)
        for part in (error.code, error.detail, error.docs_url, error.next):
            self.assertIn(part, str(error))


if __name__ == "__main__":
    unittest.main()

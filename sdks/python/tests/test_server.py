"""What only a real server can show: notices that it signs, and leases that it gives to one at a time."""

from __future__ import annotations

import http.server
import os
import queue
import subprocess
import threading
import time
import unittest
import uuid

from mailonce import Intent, Mailonce, MailonceError, derive_key, verify_webhook

RUN = uuid.uuid4().hex[:6]
Heard = tuple[bytes, dict[str, str]]


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


if __name__ == "__main__":
    unittest.main()

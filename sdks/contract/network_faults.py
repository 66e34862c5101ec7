#!/usr/bin/env python3
"""Network faults between an SDK and a real server, and an SMTP sink behind that server that counts the emails.

Needs aiosmtpd. Prints {"control": url, "smtp": port} and serves until its input ends.

    POST /proxy {"to": "http://127.0.0.1:…", "faults": ["lose", …]}   ->  {"url": …, "number": 0}
    GET  /proxy/0                                                     ->  {"left": 0, "passed": 3}
    GET  /mails?to=ada@example.com                                    ->  {"count": 1}

A proxy plays one fault for each request and then lets everything through:

    refuse   the connection ends before the server hears of it
    503      somebody in between answers 503, and the server hears nothing
    lose     the server hears it and answers; the connection ends without the answer
    reset    the same, by a reset
    cut      the same, after half of the answer
    delay    the same, and the caller waits until it gives up
    late503  the server hears it; somebody in between answers 503
"""

import http.client
import json
import select
import socket
import struct
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from aiosmtpd.controller import Controller

LOCK = threading.Lock()
MAILS = []
PROXIES = []


class Sink:
    async def handle_DATA(self, server, session, envelope):
        with LOCK:
            MAILS.extend(recipient.lower() for recipient in envelope.rcpt_tos)
        return "250 taken"


class Quiet(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 65536

    def log_message(self, *_):
        pass

    def handle(self):
        try:
            super().handle()
        except OSError:
            pass  # the caller went away

    def finish(self):
        try:
            super().finish()
        except (OSError, ValueError):
            pass  # closed on purpose

    def body(self):
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def answer(self, status, body, headers=(), cut=False):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if status != 204:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self.close_connection = True


class Proxy(Quiet):
    def handle_any(self):
        with LOCK:
            fault = self.server.faults.pop(0) if self.server.faults else None
        body = self.body()
        if fault == "503":
            return self.answer(503, b"no upstream")
        if fault == "refuse":
            self.close_connection = True
            return None
        status, headers, answer = self.forward(body)
        if fault in ("lose", "reset", "delay"):
            return self.lose(fault)
        if fault == "late503":
            return self.answer(503, b"upstream timed out")
        with LOCK:
            self.server.passed += fault is None
        return self.answer(status, answer, headers, cut=fault == "cut")

    do_GET = do_POST = do_PATCH = do_DELETE = handle_any

    def forward(self, body):
        upstream = http.client.HTTPConnection(self.server.upstream, timeout=70)
        try:
            kept = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
            upstream.request(self.command, self.path, body or None, kept)
            response = upstream.getresponse()
            data = response.read()
            headers = [(name, value) for name, value in response.getheaders() if name.lower() in ("content-type", "retry-after")]
            return response.status, headers, data
        finally:
            upstream.close()

    def lose(self, fault):
        self.close_connection = True
        if fault == "delay":
            select.select([self.connection], [], [], 30)
        if fault == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()


class Control(Quiet):
    def do_POST(self):
        request = json.loads(self.body())
        proxy = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
        proxy.daemon_threads = True
        proxy.upstream, proxy.faults, proxy.passed = urlsplit(request["to"]).netloc, list(request["faults"]), 0
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        with LOCK:
            PROXIES.append(proxy)
            number = len(PROXIES) - 1
        self.tell({"url": f"http://127.0.0.1:{proxy.server_port}", "number": number})

    def do_GET(self):
        url = urlsplit(self.path)
        with LOCK:
            if url.path == "/mails":
                told = {"count": MAILS.count(parse_qs(url.query)["to"][0].lower())}
            else:
                proxy = PROXIES[int(url.path.rpartition("/")[2])]
                told = {"left": len(proxy.faults), "passed": proxy.passed}
        self.tell(told)

    def tell(self, body):
        self.answer(200, json.dumps(body).encode(), [("content-type", "application/json")])


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    port = free_port()
    sink = Controller(Sink(), hostname="127.0.0.1", port=port)
    sink.start()
    control = ThreadingHTTPServer(("127.0.0.1", 0), Control)
    control.daemon_threads = True
    threading.Thread(target=control.serve_forever, daemon=True).start()
    print(json.dumps({"control": f"http://127.0.0.1:{control.server_port}", "smtp": port}), flush=True)
    sys.stdin.read()
    sink.stop()


main()

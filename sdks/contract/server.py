#!/usr/bin/env python3
"""The scripted server of the contract suite: plays the answers and faults of a scenario, and remembers where the requests
were not what the scenario says. README.md has the format. Prints its address and serves until its input ends.

    POST /play      {"server": [step…], "answers": {name: answer}}  ->  {"base": "http://127.0.0.1:…/play/7", "seen": …}
    GET  /seen/7    {"faults": ["…"], "left": 0}
"""

import json
import re
import select
import socket
import struct
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

PLAYS = []
LOCK = threading.Lock()


class Play:
    """One scenario under way."""

    def __init__(self, script):
        self.steps = script["server"]
        self.answers = script.get("answers", {})
        self.seen, self.faults = [], []

    def step(self, request):
        """The step that a request meets, or None when there is none left."""
        with LOCK:
            number = len(self.seen)
            self.seen.append(request)
            if number >= len(self.steps):
                self.faults.append(f"request {number + 1} was not expected: {request['method']} {request['path']}")
                return None
            step = self.steps[number]
            for fault in self.differences(step, request, number):
                self.faults.append(f"request {number + 1}: {fault}")
            return step

    def differences(self, step, request, number):
        if step.get("again"):
            first = self.seen[number - 1]
            for part in ("method", "path", "query", "bytes"):
                if request[part] != first[part]:
                    yield f"{part} is not that of the try before: {request[part]!r}, {first[part]!r}"
            if request["headers"].get("idempotency-key") != first["headers"].get("idempotency-key"):
                yield "the key is not that of the try before"
        wanted = step.get("request", {})
        for part in ("method", "path"):
            if part in wanted and wanted[part] != request[part]:
                yield f"{part} is {request[part]}, wanted {wanted[part]}"
        if "method" in wanted and wanted.get("query", {}) != request["query"]:
            yield f"query is {request['query']}, wanted {wanted.get('query', {})}"
        for name, value in wanted.get("headers", {}).items():
            if not fits(value, request["headers"].get(name)):
                yield f"header {name} is {request['headers'].get(name)!r}, wanted {value!r}"
        if "method" in wanted and json_of(request["bytes"]) != wanted.get("body"):
            yield f"body is {request['bytes']!r}, wanted {wanted.get('body')}"


def json_of(data):
    """What a body says; null members are absent ones."""
    if not data:
        return None
    value = json.loads(data)
    return {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value


def fits(wanted, value):
    if isinstance(wanted, dict):
        return value is not None and re.fullmatch(wanted["like"], value) is not None
    return value == wanted


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 65536  # head and body in one packet

    def handle_any(self):
        length = int(self.headers.get("content-length") or 0)
        data = self.rfile.read(length).decode()
        if self.command == "POST" and self.path == "/play":
            return self.begin(json.loads(data))
        found = re.fullmatch(r"/(play|seen)/(\d+)(/.*)?", self.path)
        if not found or int(found[2]) >= len(PLAYS):
            return self.answer({"status": 404, "body": {}})
        play = PLAYS[int(found[2])]
        if found[1] == "seen":
            return self.answer({"status": 200, "body": {"faults": play.faults, "left": len(play.steps) - len(play.seen)}})
        url = urlsplit(found[3])
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = {"method": self.command, "path": url.path, "query": dict(parse_qsl(url.query)), "headers": headers, "bytes": data}
        self.act(play, play.step(request))

    do_GET = do_POST = do_PATCH = do_DELETE = handle_any

    def begin(self, script):
        with LOCK:
            PLAYS.append(Play(script))
            number = len(PLAYS) - 1
        base = f"http://127.0.0.1:{self.server.server_port}"
        self.answer({"status": 200, "body": {"base": f"{base}/play/{number}", "seen": f"{base}/seen/{number}"}})

    def act(self, play, step):
        if step is None:
            return self.answer({"status": 400, "body": {"code": "unexpected", "retry": "never", "detail": "the script is over", "next": ""}})
        fault = step.get("fault")
        if fault in ("close", "reset"):
            if fault == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            # shutdown() in the server's own cleaning up would turn the reset into a polite end.
            self.connection.close() if fault == "reset" else None
            return None
        if fault == "hang":
            # Until the caller gives up: its end of the connection becomes readable.
            select.select([self.connection], [], [], 30)
            self.close_connection = True
            return None
        answer = step.get("answer", {"status": 204})
        answer = dict(play.answers[answer] if isinstance(answer, str) else answer)
        answer["headers"] = {**answer.get("headers", {}), **step.get("headers", {})}
        time.sleep(step.get("pause_ms", 0) / 1000)
        return self.answer(answer, cut=fault == "cut")

    def answer(self, answer, cut=False):
        stream = answer.get("stream")
        text = answer.get("text", "".join(stream) if stream else "")
        if "body" in answer:
            text = json.dumps(answer["body"])
        body = text.encode()
        self.send_response(answer["status"])
        kind = "text/event-stream" if stream else "application/json" if answer["status"] < 400 else "application/problem+json"
        headers = {"content-type": kind, **{name.lower(): value for name, value in answer.get("headers", {}).items()}}
        for name, value in headers.items():
            self.send_header(name, value)
        if stream:
            self.close_connection = True
        elif answer["status"] != 204:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        if cut:
            body, self.close_connection = body[: len(body) // 2], True
        self.wfile.write(body)

    def log_message(self, *_):
        pass

    def handle(self):
        try:
            super().handle()
        except OSError:
            pass  # the caller went away, as many scenarios want

    def finish(self):
        try:
            super().finish()
        except (OSError, ValueError):
            pass  # closed on purpose


def main():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


main()

"""Runs AgentMail's official Python package, unmodified, against a running mailonce. Calls every method that the dialect
covers, then prints the called methods and all methods as JSON."""

import base64, contextlib, datetime, http.server, inspect, json, os, re, smtplib, threading, time, urllib.error, urllib.request
from concurrent.futures import ThreadPoolExecutor

from agentmail import AgentMail
from agentmail.core.api_error import ApiError
from agentmail.environment import AgentMailEnvironment
from agentmail.errors import ConflictError, NotFoundError, UnprocessableError, ValidationError
from agentmail.messages.errors import MessageRejectedError
from svix.webhooks import Webhook, WebhookVerificationError

BASE, KEY, SMTP = os.environ["URL"], os.environ["KEY"], os.environ["SMTP"]
ROOT = BASE + "/compat/agentmail"
called = set()
ENVIRONMENT = AgentMailEnvironment(http=ROOT, websockets=ROOT.replace("http", "ws", 1))
plain = AgentMail(api_key=KEY, environment=ENVIRONMENT)


def is_client(value):
    return type(value).__module__.startswith("agentmail.") and type(value).__name__.endswith("Client")


def camel(path):
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), path)


class Watched:
    """Records which methods of a client are called."""

    def __init__(self, client, path=""):
        self._client, self._path = client, path

    def __getattr__(self, name):
        value = getattr(self._client, name)
        here = f"{self._path}.{name}" if self._path else name
        if is_client(value):
            return Watched(value, here)
        if callable(value):
            called.add(camel(here))
        return value


def methods(client, path=""):
    """Every method of a client, by its path."""
    found = set()
    for owner in type(client).__mro__:
        for name, about in vars(owner).items():
            if name.startswith("_") or name == "with_raw_response":
                continue
            here = f"{path}.{name}" if path else name
            if isinstance(about, property):
                value = getattr(client, name)
                found |= methods(value, here) if is_client(value) else set()
            elif inspect.isfunction(about):
                found.add(camel(here))
    return found


client = Watched(plain)


def same(value, wanted):
    assert value == wanted, f"{value!r} is not {wanted!r}"


def native(path, method="GET", body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(BASE + path, data, headers, method=method)) as answer:
        return json.load(answer)


@contextlib.contextmanager
def badly(status):
    """A client whose first call is forwarded but answered with this status."""
    told = []

    class Between(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            data = self.rfile.read(int(self.headers["Content-Length"]))
            kept = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "accept-encoding", "connection")}
            with urllib.request.urlopen(urllib.request.Request(ROOT + self.path, data, kept, method="POST")) as answer:
                body = answer.read()
            told.append(status)
            self.send_response(status if len(told) == 1 else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Between)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    root = f"http://127.0.0.1:{server.server_port}"
    yield AgentMail(api_key=KEY, environment=AgentMailEnvironment(http=root, websockets=root.replace("http", "ws", 1)))
    server.shutdown()
    same(len(told), 2)


def mails(to):
    return native(f"/v1/emails?limit=100&to={to}")["data"]


def fetch(url):
    with urllib.request.urlopen(url) as answer:
        return answer.read().decode()


def fails(kind, status, call, *given, **named):
    try:
        call(*given, **named)
    except ApiError as error:
        assert isinstance(error, kind), f"{type(error)} {error}"
        same(error.status_code, status)
        return error.body
    raise AssertionError("it was not refused")


def until(what, look):
    for _ in range(100):
        found = look()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{what} did not come")


def arrives(sender, to, message_id, subject, more="", text="Hello, agent."):
    host, port = SMTP.split(":")
    mail = f"From: {sender}\r\nTo: {to}\r\nSubject: {subject}\r\nMessage-ID: {message_id}\r\n{more}\r\n{text}\r\n"
    with smtplib.SMTP(host, int(port)) as server:
        server.sendmail(sender, [to], mail)


def subscribe(inbox):
    """A subscription to the sent mail of an inbox."""
    from agentmail.websockets.types.subscribe import Subscribe

    return Subscribe(event_types=["message.sent"], inbox_ids=[inbox])


def main():
    import python_steps

    python_steps.walk()
    print(json.dumps({"called": sorted(called), "methods": sorted(methods(plain))}))


if __name__ == "__main__":
    main()

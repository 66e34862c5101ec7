"""Calls every covered method of useSend's official Python SDK against mailonce."""

import inspect, json, os, threading, time, urllib.request
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer

from usesend import UseSend
from usesend.usesend import UseSendHTTPError

KEY, URL = os.environ["KEY"], os.environ["URL"]
client = UseSend(KEY, url=URL)
worked, methods = set(), {}
MISMATCH = "Idempotency-Key already used with a different payload"


def watch(room, thing, name, original):
    def called(*args, **kwargs):
        data, error = original(*args, **kwargs)
        assert error is None
        worked.add(f"{room}.{name}")
        return data, error

    setattr(thing, name, called)


for room, thing in vars(client).items():
    # `contactBooks` is another name for `contact_books`.
    if type(thing).__module__.startswith("usesend") and room != "contactBooks":
        for name, method in inspect.getmembers(thing, inspect.ismethod):
            if not name.startswith("_"):
                methods[f"{room}.{name}"] = method
                watch(room, thing, name, method)


def mail(**fields):
    return {"from": "Agent <agent@mailonce.test>", "to": ["ada@example.com"], "subject": "Order 1", "text": "Thank you.", **fields}


def bad(status, code, call, *args):
    try:
        call(*args)
    except UseSendHTTPError as error:
        assert (error.status_code, error.error["code"]) == (status, code), str(error)
        return error.error["message"]
    raise AssertionError("the call succeeded")


def until(what, ask):
    for _ in range(100):
        found = ask()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"never: {what}")


def send(key, **fields):
    return client.emails.send(mail(**fields), {"idempotency_key": key})[0]["emailId"]


first = send("usepy-1")
assert client.emails.create(mail(to="ada@example.com"), {"idempotency_key": "usepy-1"})[0]["emailId"] == first
assert bad(409, "NOT_UNIQUE", client.emails.send, mail(text="Other."), {"idempotency_key": "usepy-1"}) == MISMATCH
with ThreadPoolExecutor(50) as many:
    race = list(many.map(lambda _: UseSend(KEY, url=URL).emails.send(mail(subject="Race"), {"idempotency_key": "usepy-race"})[0]["emailId"], range(50)))
assert len(set(race)) == 1
items = [mail(subject="One"), mail(subject="Two")]
batch = client.emails.batch(items, {"idempotency_key": "usepy-batch"})[0]
assert len(batch["data"]) == 2
assert client.emails.batch(items, {"idempotency_key": "usepy-batch"})[0] == batch
assert bad(409, "NOT_UNIQUE", client.emails.batch, items[:1], {"idempotency_key": "usepy-batch"}) == MISMATCH
until("sent", lambda: client.emails.get(first)[0]["latestStatus"] == "SENT")

later = datetime.now(timezone.utc) + timedelta(hours=1)
scheduled = send("usepy-later", scheduledAt=later)
assert client.emails.get(scheduled)[0]["latestStatus"] == "SCHEDULED"
assert client.emails.update(scheduled, {"scheduledAt": later + timedelta(hours=1)})[0] == {"emailId": scheduled}
assert client.emails.cancel(scheduled)[0] == {"emailId": scheduled}
assert scheduled in bad(409, "NOT_UNIQUE", client.emails.send, mail(scheduledAt=later), {"idempotency_key": "usepy-later"})
assert bad(400, "BAD_REQUEST", client.emails.update, scheduled, {"scheduledAt": later}) == "Email already processed"

domain = client.domains.create({"name": "usepy.example.com", "region": "us-east-1"})[0]
assert any(one["id"] == domain["id"] for one in client.domains.list()[0])
assert client.domains.get(domain["id"])[0]["name"] == "usepy.example.com"
client.domains.verify(domain["id"])
assert client.domains.delete(domain["id"])[0]["success"] is True

# Webhooks.
got = []


class Hall(BaseHTTPRequestHandler):
    def do_POST(self):
        got.append((dict(self.headers), self.rfile.read(int(self.headers["content-length"])).decode()))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


hall = HTTPServer(("127.0.0.1", 0), Hall)
threading.Thread(target=hall.serve_forever, daemon=True).start()
request = urllib.request.Request(
    URL.replace("/compat/usesend", "") + "/v1/endpoints",
    json.dumps({"url": f"http://127.0.0.1:{hall.server_port}/in", "events": ["email.sent"], "dialect": "usesend"}).encode(),
    {"authorization": f"Bearer {KEY}", "content-type": "application/json"},
)
secret = json.load(urllib.request.urlopen(request))["secret"]
sent_id = send("usepy-told", subject="Told")
headers, body = until("webhook", lambda: next(((h, b) for h, b in got if sent_id in b), None))
event = client.webhooks(secret).construct_event(body, headers=headers)
assert (event["type"], event["data"]["id"]) == ("email.sent", sent_id)
assert not client.webhooks(secret).verify(body.replace("SENT", "LOST"), headers=headers)

# Errors.
assert bad(403, "FORBIDDEN", UseSend("us_wrong_wrong", url=URL).emails.get, "xxx") == "Invalid API token"
assert bad(404, "NOT_FOUND", client.emails.get, "xxx") == "Email not found"
bad(400, "BAD_REQUEST", client.emails.send, {})
assert bad(400, "BAD_REQUEST", client.emails.send, mail(), {"idempotency_key": "x" * 257}) == "Invalid Idempotency-Key length"

refused = {}
for name, method in methods.items():
    if name not in worked:
        needed = [p for p in inspect.signature(method).parameters.values() if p.default is p.empty]
        given = {p.name: {"z": 1} if p.name in ("payload", "body") else "x" for p in needed}
        try:
            method(**given)
            refused[name] = "no error"
        except UseSendHTTPError as error:
            refused[name] = f"{error.status_code} {error.error['code']}"
print(json.dumps({"methods": sorted(methods), "worked": sorted(worked), "refused": refused}))

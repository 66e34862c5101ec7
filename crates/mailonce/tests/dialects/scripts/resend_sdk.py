"""Calls every covered method of Resend's official Python SDK against mailonce, synchronous and asynchronous."""

import asyncio, inspect, json, os, threading, time, urllib.request
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer

import resend
from resend.exceptions import InvalidApiKeyError, MissingRequiredFieldsError, ResendError, ValidationError

resend.api_key, resend.api_url = os.environ["KEY"], os.environ["URL"]
# Internal methods of the package.
HIDDEN = ("AsyncHTTPClient", "AsyncRequest", "HTTPClient", "HTTPXClient", "Request", "RequestsClient")
methods, worked = {}, set()


def walk(room):
    """Every class method, by the name it has where it is defined."""
    for name, value in vars(room).items():
        if name.startswith("_"):
            continue
        if isinstance(value, classmethod):
            methods[value.__func__.__qualname__] = getattr(room, name)
        elif inspect.isclass(value) and value.__module__.startswith("resend."):
            walk(value)


for name, value in vars(resend).items():
    if inspect.isclass(value) and value.__module__.startswith("resend.") and name not in HIDDEN:
        walk(value)


class Mode:
    """The same calls, synchronous or asynchronous."""

    def __init__(self, word):
        self.word, self.suffix = word, "" if word == "plain" else "_async"

    def call(self, name, *words):
        name += self.suffix
        answer = methods[name](*words)
        if inspect.iscoroutine(answer):
            answer = asyncio.run(answer)
        worked.add(name)
        if isinstance(answer, dict):
            answer.pop("http_headers", None)
        return answer

    def key(self, name):
        return {"idempotency_key": f"python-{self.word}-{name}"}


def bad(kind, code, error_type, call, *words):
    try:
        call(*words)
    except ResendError as error:
        assert type(error) is kind and (int(error.code), error.error_type) == (code, error_type), (type(error), error.code, error.error_type, error.message)
        return error.message
    raise AssertionError("the call succeeded")


def until(what, ask):
    for _ in range(100):
        found = ask()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"never: {what}")


def mail(**words):
    return {"from": "Agent <agent@mailonce.test>", "to": ["ada@example.com"], "subject": "Order 1", "text": "Thank you.", **words}


def sends(mode):
    call = mode.call
    first = call("Emails.send", mail(), mode.key("1"))["id"]
    assert call("Emails.send", mail(to="ada@example.com"), mode.key("1"))["id"] == first
    message = bad(ResendError, 409, "invalid_idempotent_request", call, "Emails.send", mail(text="Other."), mode.key("1"))
    assert message == "Same idempotency key used with a different request payload."
    with ThreadPoolExecutor(50) as many:
        race = list(many.map(lambda _: call("Emails.send", mail(subject="Race"), mode.key("race"))["id"], range(50)))
    assert len(set(race)) == 1
    file = mail(subject="File", attachments=[{"filename": "a.txt", "content": list(b"abc")}])
    filed = call("Emails.send", file, mode.key("file"))["id"]
    same = mail(subject="File", attachments=[{"filename": "a.txt", "content": "YWJj"}])
    assert call("Emails.send", same, mode.key("file"))["id"] == filed
    [listed] = call("Attachments.list", filed)["data"]
    got = call("Attachments.get", filed, listed["id"])
    assert urllib.request.urlopen(got["download_url"]).read() == b"abc"
    items = [mail(subject="One"), mail(subject="Two")]
    batch = call("Batch.send", items, mode.key("batch"))
    assert len(batch["data"]) == 2
    assert call("Batch.send", items, mode.key("batch")) == batch
    bad(ResendError, 409, "invalid_idempotent_request", call, "Batch.send", items[:1], mode.key("batch"))
    some = call("Batch.send", [items[0], mail(to="nobody")], {"batch_validation": "permissive"})
    assert (len(some["data"]), some["errors"][0]["index"]) == (1, 1)
    until("sent", lambda: call("Emails.get", first)["last_event"] == "sent")
    page = call("Emails.list", {"limit": 2})
    assert (page["object"], page["has_more"], len(page["data"])) == ("list", True, 2)
    assert call("Emails.list", {"limit": 1, "after": page["data"][0]["id"]})["data"][0]["id"] == page["data"][1]["id"]
    later = (datetime.now(timezone.utc) + timedelta(hours=1)).isoformat()
    scheduled = call("Emails.send", mail(subject="Later", scheduled_at="in 1 min"), mode.key("later"))["id"]
    assert call("Emails.get", scheduled)["last_event"] == "scheduled"
    assert call("Emails.update", {"id": scheduled, "scheduled_at": later}) == {"object": "email", "id": scheduled}
    assert call("Emails.cancel", scheduled) == {"object": "email", "id": scheduled}
    assert call("Emails.get", scheduled)["last_event"] == "canceled"
    again = mail(subject="Later", scheduled_at="in 1 min")
    assert scheduled in bad(ValidationError, 422, "validation_error", call, "Emails.send", again, mode.key("later"))


def receives(mode):
    call = mode.call
    page = until("mail", lambda: [one for one in call("Receiving.list", {"limit": 100})["data"] if one["subject"] == "With a file"])
    item = call("Receiving.get", page[0]["id"])
    assert item["from"] == "Bob <bob@example.org>" and b"Subject: With a file" in urllib.request.urlopen(item["raw"]["download_url"]).read()
    [file] = call("Receiving.Attachments.list", item["id"])["data"]
    got = call("Receiving.Attachments.get", item["id"], file["id"])
    assert urllib.request.urlopen(got["download_url"]).read() == b"hello\n"
    address = f"python-{mode.word}@mailonce.test"
    inbox = call("Inboxes.create", {"email_address": address, "from_name": "Python"})["id"]
    assert any(one["id"] == inbox for one in call("Inboxes.list")["data"])
    assert call("Inboxes.get", address)["from_name"] == "Python"
    call("Inboxes.update", {"id": inbox, "from_name": "Other"})
    assert call("Inboxes.remove", inbox)["deleted"] is True
    inbox = "agent@mailonce.test"
    thread = next(one["id"] for one in call("InboxThreads.list", inbox, {"folders": ["inbox", "archive"]})["data"] if one["subject"] == "A question for python")
    assert call("InboxThreads.get", inbox, thread)["object"] == "inbox_thread"
    question = call("InboxThreadEmails.list", inbox, thread)["data"][-1]["id"]
    path = {"inbox_id": inbox, "thread_id": thread, "email_id": question}
    assert call("InboxThreadEmails.get", inbox, thread, question)["direction"] == "inbound"
    reply = call("InboxThreadEmails.reply", {**path, "text": "An answer"})["id"]
    assert call("InboxThreadEmails.reply", {**path, "text": "An answer"})["id"] == reply
    bad(ResendError, 409, "invalid_idempotent_request", call, "InboxThreadEmails.reply", {**path, "text": "In other words"})
    call("InboxThreadEmails.forward", {**path, "to": f"{mode.word}@example.com", "text": "Look"})
    assert call("InboxThreads.update", {"inbox_id": inbox, "id": thread, "folder": "archive"})["folder"] == "archive"


got = []


class Hall(BaseHTTPRequestHandler):
    def do_POST(self):
        got.append((self.headers, self.rfile.read(int(self.headers["content-length"])).decode()))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


hall = HTTPServer(("127.0.0.1", 0), Hall)
threading.Thread(target=hall.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{hall.server_port}/in"


def webhooks(mode):
    call = mode.call
    made = call("Webhooks.create", {"endpoint": url, "events": ["email.sent"]})
    sent = call("Emails.send", mail(subject="Told"), mode.key("told"))["id"]
    headers, body = until("webhook", lambda: next(((h, b) for h, b in got if sent in b), None))
    signed = {"id": headers["svix-id"], "timestamp": headers["svix-timestamp"], "signature": headers["svix-signature"]}
    event = methods["Webhooks.verify"]({"payload": body, "headers": signed, "webhook_secret": made["signing_secret"]})
    worked.add("Webhooks.verify")
    assert json.loads(body)["data"]["email_id"] == sent and event is not False
    try:
        methods["Webhooks.verify"]({"payload": body + " ", "headers": signed, "webhook_secret": made["signing_secret"]})
    except ValueError:
        pass
    else:
        raise AssertionError("a forged webhook was believed")
    webhook = made["id"]
    assert call("Webhooks.get", webhook)["signing_secret"] == made["signing_secret"]
    assert any(one["id"] == webhook for one in call("Webhooks.list")["data"])
    logged = until("log", lambda: next((one for one in call("Webhooks.list_events", webhook)["data"] if one["status"] == "success"), None))
    assert call("Webhooks.get_event", webhook, logged["id"])["payload"] == json.loads(body)
    assert call("Webhooks.list_event_attempts", webhook, logged["id"])["data"][0]["http_status_code"] == 200
    assert call("Webhooks.replay_event", webhook, logged["id"])["id"] == logged["id"]
    assert call("Webhooks.rotate_signing_secret", webhook)["signing_secret"] != made["signing_secret"]
    assert call("Webhooks.update", {"webhook_id": webhook, "status": "disabled"})["id"] == webhook
    assert call("Webhooks.remove", webhook)["deleted"] is True


def manages(mode):
    call = mode.call
    domain = call("Domains.create", {"name": f"{mode.word}.py.example.com"})["id"]
    assert call("Domains.get", domain)["object"] == "domain"
    assert any(one["id"] == domain for one in call("Domains.list")["data"])
    assert call("Domains.verify", domain)["id"] == domain
    key = call("ApiKeys.create", {"name": mode.word, "permission": "sending_access"})
    assert key["token"] and any(one["id"] == key["id"] for one in call("ApiKeys.list")["data"])
    call("ApiKeys.update", {"id": key["id"], "name": "renamed"})
    assert next(one["name"] for one in call("ApiKeys.list")["data"] if one["id"] == key["id"]) == "renamed"
    call("ApiKeys.remove", key["id"])
    assert call("Domains.update", {"id": domain, "open_tracking": False})["id"] == domain
    assert call("Domains.remove", domain)["deleted"] is True


def sorts(mode):
    """Suppressions, labels, search, drafts and figures."""
    call, inbox = mode.call, "agent@mailonce.test"
    gone = f"gone-{mode.word}@example.com"
    entry = call("Suppressions.add", {"email": gone})["id"]
    assert (call("Suppressions.get", gone)["id"], call("Suppressions.list")["data"][0]["email"]) == (entry, gone)
    assert call("Suppressions.remove", entry)["deleted"] is True
    assert len(call("SuppressionsBatch.add", {"emails": [gone]})["data"]) == 1
    assert call("SuppressionsBatch.remove", {"emails": [gone]})["data"][0]["deleted"] is True
    subject = "Another" if mode.word == "plain" else "With a file"
    [found] = call("InboxThreads.search", inbox, {"query": subject})["data"]
    assert found["matched_email_id"]
    thread = found["id"]
    label = call("InboxLabels.create", {"inbox_id": inbox, "name": mode.word})["id"]
    assert any(one["id"] == label for one in call("InboxLabels.list", inbox)["data"])
    path = {"inbox_id": inbox, "thread_id": thread}
    assert call("InboxThreadLabels.add", {**path, "labels": [label]})["data"][0]["id"] == label
    assert call("InboxThreadLabels.set", {**path, "labels": [label]})["data"][0]["id"] == label
    assert call("InboxThreadLabels.remove", inbox, thread, label)["data"] == []
    label = call("InboxLabels.update", {"inbox_id": inbox, "id": label, "name": f"{label}-2"})["id"]
    assert call("InboxLabels.remove", inbox, label)["deleted"] is True
    draft = call("InboxDrafts.create", {"inbox_id": inbox, "to": "ada@example.com", "subject": "Draft", "text": mode.word})["id"]
    assert call("InboxDrafts.get", inbox, draft)["text"] == mode.word
    assert any(one["id"] == draft for one in call("InboxDrafts.list", inbox)["data"])
    call("InboxDrafts.update", {"inbox_id": inbox, "id": draft, "text": f"{mode.word}, changed"})
    sent = call("InboxDrafts.send", inbox, draft)["id"]
    assert call("InboxDrafts.send", inbox, draft)["id"] == sent
    draft = call("InboxDrafts.create", {"inbox_id": inbox, "text": "x"})["id"]
    assert call("InboxDrafts.remove", inbox, draft)["deleted"] is True
    assert call("InboxThreads.remove", inbox, thread)["deleted"] is True
    assert call("Emails.metrics")["totals"]["sent"] > 0


def templates(mode):
    call = mode.call
    variables = [{"key": "NAME", "type": "string"}, {"key": "COUNT", "type": "number", "fallback_value": 1}]
    wording = {"name": f"{mode.word} welcome", "subject": "Hello {{{NAME}}}", "html": "<p>{{{COUNT}}} for {{{NAME}}}</p>", "variables": variables}
    made = call("Templates.create", wording)["id"]
    assert call("Templates.publish", made)["id"] == made
    assert call("Templates.get", f"{mode.word}-welcome")["html"] == wording["html"]
    sent = call("Emails.send", {"from": "agent@mailonce.test", "to": "ada@example.com", "template": {"id": made, "variables": {"NAME": "Ada"}}})["id"]
    assert call("Emails.get", sent)["subject"] == "Hello Ada"
    assert call("Templates.update", {"id": made, "subject": "Bye {{{NAME}}}"})["id"] == made
    copy = call("Templates.duplicate", made)["id"]
    assert any(one["id"] == copy for one in call("Templates.list")["data"])
    for one in (copy, made):
        assert call("Templates.remove", one)["deleted"] is True


def errors(mode):
    call = mode.call
    bad(MissingRequiredFieldsError, 422, "missing_required_field", call, "Emails.send", {})
    bad(ValidationError, 422, "validation_error", call, "Emails.send", mail(to="nobody"))
    bad(ResendError, 400, "invalid_idempotency_key", call, "Emails.send", mail(), {"idempotency_key": "x" * 257})
    bad(ResendError, 400, "invalid_idempotency_key", call, "Emails.send", mail(), {"idempotency_key": ""})
    bad(ResendError, 404, "not_found", call, "Emails.get", "00000000-0000-7000-8000-000000000000")
    resend.api_key = "re_wrong_wrong_wrong"
    assert bad(InvalidApiKeyError, 403, "invalid_api_key", call, "Emails.list") == "API key is invalid."
    resend.api_key = os.environ["KEY"]


for mode in (Mode("plain"), Mode("async")):
    sends(mode)
    receives(mode)
    webhooks(mode)
    manages(mode)
    sorts(mode)
    templates(mode)
    errors(mode)



class PlaceholderArgs(dict):
    """Placeholder arguments for any parameter of a method."""

    def __missing__(self, _):
        return "x"


words = PlaceholderArgs(emails=["x@example.com"], inbox_id="agent@mailonce.test", email="x@example.com", labels=[], topics=[])
refused = {}
for name, method in methods.items():
    if name in worked:
        continue
    # Some methods report only when they are called that they need an id.
    needed = [p for p in inspect.signature(method).parameters.values() if p.default is p.empty or p.name in ("id", "contact_id")]
    try:
        if name.startswith("ContactImports."):
            words["file"] = b"x"
        else:
            words.pop("file", None)
        answer = method(**{p.name: words if p.name in ("params", "options") else "x" for p in needed})
        if inspect.iscoroutine(answer):
            asyncio.run(answer)
        refused[name] = "no error"
    except ResendError as error:
        refused[name] = f"{error.code} {error.error_type}"
print(json.dumps({"methods": sorted(methods), "worked": sorted(worked), "refused": refused}))

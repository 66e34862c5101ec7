"""The steps of the script: inboxes, sends, received mail, drafts, lists, webhooks, the pod."""


from agentmail.api_keys import CreateBearerApiKeyRequest
from agentmail.inboxes.types.create_inbox_request import CreateInboxRequest as new

import __main__ as w

client = w.client


def walk():
    inbox = inboxes()
    sends(inbox)
    received(inbox)
    drafts(inbox)
    lists(inbox)
    told(inbox)
    pods(inbox)
    managing(inbox)


def inboxes():
    made = client.inboxes.create(request=new(username="python", client_id="python-1", display_name="Python", metadata={"seats": 5}))
    w.same((made.inbox_id, made.display_name, made.metadata), ("python@mailonce.test", "Python", {"seats": 5}))
    w.same(client.inboxes.create(request=new(username="python", client_id="python-1")).inbox_id, made.inbox_id)
    w.same(client.inboxes.get(made.inbox_id).email, made.email)
    w.same(client.inboxes.update(made.inbox_id, display_name="Py").display_name, "Py")
    assert made.inbox_id in [one.inbox_id for one in client.inboxes.list(limit=100).inboxes]
    w.same([one.inbox_id for one in client.inboxes.search(q="pyth").inboxes], [made.inbox_id])
    other = client.inboxes.create(request=new(username="python-short"))
    # A paused inbox neither sends nor receives.
    w.same(client.inboxes.update(other.inbox_id, status="paused").status, "paused")
    w.fails(w.MessageRejectedError, 403, client.inboxes.messages.send, other.inbox_id, to="a@example.com", text="x")
    w.same(client.inboxes.update(other.inbox_id, status="active").status, None)
    client.inboxes.delete(other.inbox_id)
    w.fails(w.NotFoundError, 404, client.inboxes.get, other.inbox_id)
    w.same(w.fails(w.UnprocessableError, 422, client.inboxes.create, request=new(username="python")).code, "resource_taken")
    w.fails(w.ValidationError, 400, client.inboxes.create, request=new(username="no way"))
    w.same(client.auth.me().organization_id, client.pods.list().pods[0].pod_id)
    return made


def sends(inbox):
    messages = client.inboxes.messages
    mail = {"to": "uma@example.com", "subject": "Order 17", "text": "Thank you."}
    first = messages.send(inbox.inbox_id, **mail, idempotency_key="python-order-17")
    again = messages.send(inbox.inbox_id, **mail, idempotency_key="python-order-17")
    w.same((again.message_id, again.thread_id), (first.message_id, first.thread_id))
    w.fails(w.ConflictError, 409, messages.send, inbox.inbox_id, **{**mail, "text": "Other."}, idempotency_key="python-order-17")
    w.same(len(w.mails("uma@example.com")), 1)
    with w.ThreadPoolExecutor(50) as pool:
        send = lambda _: messages.send(inbox.inbox_id, to=["race-py@example.com"], text="One", idempotency_key="python-race")
        sent = list(pool.map(send, range(50)))
    w.same(len({one.message_id for one in sent}), 1)
    w.same(len(w.mails("race-py@example.com")), 1)
    # The package retries by itself after 408, 429 and 5xx.
    for status in (408, 429, 500, 503):
        to = f"again-py-{status}@example.com"
        with w.badly(status) as badly:
            sent = badly.inboxes.messages.send(inbox.inbox_id, to=to, text="Once.", idempotency_key=f"python-again-{status}")
        w.same([one["message_id"] for one in w.mails(to)], [sent.message_id])
        w.until("the repeat in the ledger", lambda: w.mails(to)[0]["suppressed"] == 1)
    w.fails(w.ValidationError, 400, messages.send, inbox.inbox_id, to="no address", text="x")
    w.fails(w.ValidationError, 400, messages.send, inbox.inbox_id, text="x")
    w.fails(w.NotFoundError, 404, messages.send, "nobody@mailonce.test", to="x@example.com", text="x")
    w.native("/v1/suppressions", "POST", {"address": "gone-py@example.com"})
    w.fails(w.MessageRejectedError, 403, messages.send, inbox.inbox_id, to="gone-py@example.com", text="x")
    stranger = w.AgentMail(api_key="am_0000000000000000", environment=w.ENVIRONMENT)
    w.fails(w.ApiError, 401, stranger.inboxes.list)


def received(inbox):
    messages = client.inboxes.messages
    # This package leaves slashes in a path as they are.
    name = "<p/q+r@x.test>"
    head = 'MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary="b"\r\n'
    file = '--b\r\nContent-Type: text/plain\r\n\r\nSee it.\r\n--b\r\nContent-Type: text/csv\r\nContent-Disposition: attachment; filename="a.csv"\r\n\r\n1,2\r\n--b--'
    w.arrives("vic@x.test", inbox.inbox_id, name, "A question", head, file)
    found = w.until("the mail", lambda: messages.list(inbox.inbox_id, labels=["received"], from_=["vic@"]).messages)[0]
    w.same((found.message_id, found.labels), (name, ["received", "unread"]))
    seen = messages.get(inbox.inbox_id, name)
    w.same((seen.text.strip(), seen.from_), ("See it.", "vic@x.test"))
    attachment = seen.attachments[0].attachment_id
    w.same(w.fetch(messages.get_attachment(inbox.inbox_id, name, attachment).download_url).strip(), "1,2")
    assert name in w.fetch(messages.get_raw(inbox.inbox_id, name).download_url)
    w.same(messages.update(inbox.inbox_id, name, add_labels=["todo"], remove_labels="unread").labels, ["received", "todo"])
    w.same(messages.batch_update(inbox.inbox_id, message_ids=[name], add_labels=["seen"]).count, 1)
    w.same([one.message_id for one in messages.batch_get(inbox.inbox_id, message_ids=[name]).messages], [name])
    w.same([one.message_id for one in messages.search(inbox.inbox_id, q="see it").messages], [name])
    reply = messages.reply(inbox.inbox_id, name, text="The answer.")
    w.same(messages.reply(inbox.inbox_id, name, text="The answer.").message_id, reply.message_id)
    w.fails(w.ConflictError, 409, messages.reply, inbox.inbox_id, name, text="Another answer.")
    w.same(len(w.mails("vic@x.test")), 1)
    passed = messages.forward(inbox.inbox_id, name, to="wes@example.com", text="Look.", idempotency_key="python-forward")
    w.same(messages.get(inbox.inbox_id, passed.message_id).subject, "Fwd: A question")
    # Message ids that the package would truncate or misread in a path are listed under a safe id.
    for number, odd in enumerate(["<a?b@x.test>", "<a#b@x.test>", "<a%41b@x.test>", "<a/../b@x.test>"]):
        w.arrives("odd@x.test", inbox.inbox_id, odd, f"Odd {number}", "")
        found = w.until("the odd mail", lambda: messages.list(inbox.inbox_id, subject=[f"Odd {number}"]).messages)[0]
        w.same(messages.get(inbox.inbox_id, found.message_id).subject, f"Odd {number}")
    w.arrives("xia@x.test", inbox.inbox_id, "<all-py@x.test>", "To all", "Cc: yan@x.test\r\n")
    w.until("the second", lambda: messages.list(inbox.inbox_id, subject=["To all"]).count)
    everybody = messages.reply_all(inbox.inbox_id, "<all-py@x.test>", text="All of you.")
    w.same(messages.get(inbox.inbox_id, everybody.message_id).cc, ["yan@x.test"])

    threads = client.inboxes.threads
    thread = threads.get(inbox.inbox_id, seen.thread_id)
    assert thread.messages[0].message_id == name and thread.message_count >= 2
    assert seen.thread_id in [one.thread_id for one in threads.list(inbox.inbox_id).threads]
    w.same(len(threads.search(inbox.inbox_id, q="a question").threads), 1)
    assert "case" in threads.update(inbox.inbox_id, seen.thread_id, add_labels=["case"]).labels
    w.same(threads.get_attachment(inbox.inbox_id, seen.thread_id, attachment).filename, "a.csv")
    assert seen.thread_id in [one.thread_id for one in client.threads.list(limit=100).threads]
    w.same(client.threads.get(seen.thread_id).thread_id, seen.thread_id)
    assert client.threads.search(q="a question").count >= 1
    w.same(client.threads.get_attachment(seen.thread_id, attachment).filename, "a.csv")
    assert "own" in client.threads.update(seen.thread_id, add_labels=["own"]).labels
    messages.delete(inbox.inbox_id, name)
    w.fails(w.NotFoundError, 404, messages.get, inbox.inbox_id, name)
    gone = [messages.send(inbox.inbox_id, to="zoe@example.com", text=f"Gone {n}").thread_id for n in range(2)]
    threads.delete(inbox.inbox_id, gone[0])
    client.threads.delete(gone[1])
    w.fails(w.NotFoundError, 404, threads.get, inbox.inbox_id, gone[0])


def drafts(inbox):
    drafts = client.inboxes.drafts
    file = {"filename": "d.txt", "content": w.base64.b64encode(b"draft").decode()}
    made = drafts.create(inbox.inbox_id, client_id="python-draft", to=["abe@example.com"], subject="D", text="One", attachments=[file])
    w.same(drafts.create(inbox.inbox_id, client_id="python-draft").draft_id, made.draft_id)
    w.same(drafts.get(inbox.inbox_id, made.draft_id).text, "One")
    attachment = made.attachments[0].attachment_id
    w.same(w.fetch(drafts.get_attachment(inbox.inbox_id, made.draft_id, attachment).download_url), "draft")
    w.same(client.drafts.get_attachment(made.draft_id, attachment).filename, "d.txt")
    assert made.draft_id in [one.draft_id for one in drafts.list(inbox.inbox_id).drafts]
    assert made.draft_id in [one.draft_id for one in client.drafts.list().drafts]
    w.same(client.drafts.get(made.draft_id).draft_id, made.draft_id)
    w.same(drafts.update(inbox.inbox_id, made.draft_id, text="Two").text, "Two")
    sent = drafts.send(inbox.inbox_id, made.draft_id)
    w.same(drafts.send(inbox.inbox_id, made.draft_id, idempotency_key="python-draft").message_id, sent.message_id)
    w.same(len(w.mails("abe@example.com")), 1)
    w.fails(w.NotFoundError, 404, drafts.delete, inbox.inbox_id, made.draft_id)
    at = w.datetime.datetime.now(w.datetime.timezone.utc) + w.datetime.timedelta(hours=1)
    later = drafts.create(inbox.inbox_id, to=["bea@example.com"], text="Later", send_at=at)
    w.same((later.send_status, [one["state"] for one in w.mails("bea@example.com")]), ("scheduled", ["scheduled"]))
    drafts.delete(inbox.inbox_id, later.draft_id)
    w.same([one["state"] for one in w.mails("bea@example.com")], ["cancelled"])


def lists(inbox):
    for lists, first in ((client.lists, []), (client.inboxes.lists, [inbox.inbox_id])):
        w.same(lists.create(*first, "send", "block", entry="py-blocked.example").entry_type, "domain")
        w.same(lists.get(*first, "send", "block", "py-blocked.example").list_type, "block")
        w.same(lists.list(*first, "send", "block").count, 1)
        w.fails(w.MessageRejectedError, 403, client.inboxes.messages.send, inbox.inbox_id, to="x@py-blocked.example", text="x")
        lists.delete(*first, "send", "block", "py-blocked.example")


def hall():
    requests = []

    class Receiver(w.http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            requests.append((dict(self.headers.items()), body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = w.http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    w.threading.Thread(target=server.serve_forever, daemon=True).start()
    return requests, f"http://127.0.0.1:{server.server_port}/in"


def told(inbox):
    requests, url = hall()
    hooks = client.webhooks
    made = hooks.create(url=url, event_types=["message.received", "message.sent"], client_id="python-hook", headers={"X-A": "1"})
    w.same(hooks.create(url=url, event_types=["message.sent"], client_id="python-hook").webhook_id, made.webhook_id)
    w.same(hooks.get(made.webhook_id).secret, made.secret)
    assert made.webhook_id in [one.webhook_id for one in hooks.list().webhooks]
    hooks.update_headers(made.webhook_id, headers={"X-B": "2"})
    w.same(hooks.get_headers(made.webhook_id).header_names, ["x-a", "x-b"])
    with client.websockets.connect() as socket:
        socket.send_subscribe(w.subscribe(inbox.inbox_id))
        heard = [socket.recv()]
        sent = client.inboxes.messages.send(inbox.inbox_id, to="cal@example.com", text="Told")
        while not any(getattr(one, "event_type", "") == "message.sent" and one.send.message_id == sent.message_id for one in heard):
            heard.append(socket.recv())
        w.same(heard[0].type, "subscribed")
    found = lambda: [body for _, body in requests if w.json.loads(body)["event_type"] == "message.sent" and sent.message_id in w.json.loads(body)["send"]["message_id"]]
    w.until("the webhook", found)
    for headers, body in requests:
        w.Webhook(made.secret).verify(body, {name.lower(): value for name, value in headers.items()})
        try:
            w.Webhook(made.secret).verify(body + " ", {name.lower(): value for name, value in headers.items()})
        except w.WebhookVerificationError:
            continue
        raise AssertionError("a forged delivery was believed")
    w.same(hooks.update(made.webhook_id, event_types=["message.bounced"]).event_types, ["message.bounced"])
    hooks.delete(made.webhook_id)
    hooks, first = client.inboxes.webhooks, inbox.inbox_id
    made = hooks.create(first, url=url, event_types=["message.bounced"])
    w.same((hooks.get(first, made.webhook_id).inbox_ids, hooks.list(first).count), ([first], 1))
    w.same(hooks.update(first, made.webhook_id, enabled=False).enabled, False)
    hooks.update_headers(first, made.webhook_id, headers={"X-A": "1"})
    w.same(hooks.get_headers(first, made.webhook_id).header_names, ["x-a"])
    hooks.delete(first, made.webhook_id)


def pods(inbox):
    pods, pod = client.pods, inbox.pod_id
    w.same(pods.get(pod).pod_id, pod)
    made = pods.inboxes.create(pod, username="python-pod")
    w.same(pods.inboxes.get(pod, made.inbox_id).email, made.email)
    pods.inboxes.update(pod, made.inbox_id, display_name="Pod")
    w.same(pods.inboxes.search(pod, q="python-pod").count, 1)
    assert pods.inboxes.list(pod).count >= 1
    pods.inboxes.delete(pod, made.inbox_id)
    file = {"filename": "x", "content": w.base64.b64encode(b"x").decode()}
    w.arrives("dan@x.test", inbox.inbox_id, "<pod-py@x.test>", "Pod thread", 'Content-Type: text/csv\r\nContent-Disposition: attachment; filename="p.csv"\r\n', "1")
    w.until("the mail", lambda: client.inboxes.messages.list(inbox.inbox_id, subject=["Pod thread"]).count)
    thread = next(one for one in pods.threads.list(pod).threads if one.subject == "Pod thread")
    assert pods.threads.get(pod, thread.thread_id).message_count == 1
    pods.threads.get_attachment(pod, thread.thread_id, thread.attachments[0].attachment_id)
    w.same(pods.threads.search(pod, q="pod thread").count, 1)
    pods.threads.update(pod, thread.thread_id, add_labels=["pod"])
    pods.threads.delete(pod, thread.thread_id)
    draft = client.inboxes.drafts.create(inbox.inbox_id, text="x", attachments=[file])
    assert draft.draft_id in [one.draft_id for one in pods.drafts.list(pod).drafts]
    w.same(pods.drafts.get(pod, draft.draft_id).text, "x")
    pods.drafts.get_attachment(pod, draft.draft_id, draft.attachments[0].attachment_id)
    pods.lists.create(pod, "send", "block", entry="a@py.example")
    w.same(pods.lists.get(pod, "send", "block", "a@py.example").entry_type, "email")
    w.same(pods.lists.list(pod, "send", "block").count, 1)
    pods.lists.delete(pod, "send", "block", "a@py.example")
    _, url = hall()
    hook = pods.webhooks.create(pod, url=url, event_types=["message.sent"])
    w.same(pods.webhooks.get(pod, hook.webhook_id).webhook_id, hook.webhook_id)
    w.same(pods.webhooks.list(pod).count, 1)
    pods.webhooks.update(pod, hook.webhook_id, enabled=False)
    pods.webhooks.update_headers(pod, hook.webhook_id, headers={"X-A": "1"})
    w.same(pods.webhooks.get_headers(pod, hook.webhook_id).header_names, ["x-a"])
    pods.webhooks.delete(pod, hook.webhook_id)


def managing(inbox):
    """API keys, domains and figures, of the team, of its pod and of one inbox."""
    pod = inbox.pod_id
    for keys, first in ((client.api_keys, ()), (client.pods.api_keys, (pod,)), (client.inboxes.api_keys, (inbox.inbox_id,))):
        made = keys.create(*first, request=CreateBearerApiKeyRequest(name="python"))
        assert made.api_key and made.api_key_id in [one.api_key_id for one in keys.list(*first).api_keys]
        w.same(keys.update(*first, made.api_key_id, name="renamed").name, "renamed")
        if not first:
            w.same(keys.get(made.api_key_id).name, "renamed")
        keys.delete(*first, made.api_key_id)
        w.fails(w.NotFoundError, 404, keys.delete, *first, made.api_key_id)
    for domains, first, name in ((client.domains, (), "python.example.com"), (client.pods.domains, (pod,), "python-pod.example.com")):
        w.same(domains.create(*first, domain=name).domain_id, name)
        assert name in [one.domain for one in domains.list(*first).domains]
        w.same((domains.get(*first, name).status, domains.update(*first, name, feedback_enabled=True).domain), ("NOT_STARTED", name))
        assert b" IN TXT " in b"".join(domains.get_zone_file(*first, name))
        if not first:
            w.same(domains.get_setup_link(name).supported, False)
        domains.verify(*first, name)
        domains.delete(*first, name)
    for metrics, first in ((client.metrics, ()), (client.pods.metrics, (pod,)), (client.inboxes.metrics, (inbox.inbox_id,))):
        assert list(metrics.query_events(*first, event_types=["message.sent"])) == ["message.sent"]
        assert list(metrics.query_usage(*first, usage_types=["inbox_count"])) == ["inbox_count"]
    assert client.organizations.get().inbox_count >= 1

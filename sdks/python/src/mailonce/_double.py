"""The in-memory fake server: idempotency keys, replies, codes and work, by the rules of the real server.

It has no loop guards, no limits, no transports and no clock.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable
from typing import Any, NamedTuple
from urllib.parse import unquote

from ._key import bare_address, derive_key
from .wire import Intent

Body = dict[str, Any]
StatusAndBody = tuple[int, Any]

CONTENT_FIELDS = {"subject", "text", "html", "headers", "tags", "metadata"}
"""Fields that `first_wins` allows to differ."""
RECIPIENTS = ("to", "cc", "bcc", "reply_to")
COMPARED_FIELDS = (
    "from",
    *RECIPIENTS,
    "subject",
    "text",
    "html",
    "headers",
    "attachments",
    "tags",
    "metadata",
    "scheduled_at",
)


class CallHeaders(NamedTuple):
    """The idempotency key and the call id of a request."""

    key: str | None
    call: Body | None
    """The `Mailonce-Call-Id`."""


class Refused(Exception):
    def __init__(self, status: int, code: str, detail: str, **more: Any) -> None:
        super().__init__(code)
        self.status = status
        self.problem = {
            "status": status,
            "code": code,
            "detail": detail,
            "retry": "never",
            "next": f"See /docs/errors/{code}.",
            **more,
        }


class FakeServer:
    def __init__(self) -> None:
        self.mails: list[Body] = []
        self._keys: dict[str, Body] = {}
        self._keyed_responses: dict[str, StatusAndBody] = {}
        self._inboxes: dict[str, Body] = {}
        self._messages: list[Body] = []
        self._last = 0

    def act(self, method: str, path: str, query: dict[str, str], headers: CallHeaders, body: Any) -> StatusAndBody:
        _, _, what, name, verb, *_ = [unquote(part) for part in path.split("/")] + ["", "", ""]
        match (method, what, name, verb):
            case ("POST", "emails", "", _):
                return self._send(body, headers)
            case ("POST", "emails", "batch", _):
                return self._batch(body, headers)
            case ("GET", "emails", _, _):
                return self._get_emails(name, query)
            case ("POST", "messages", _, "reply"):
                return self._reply(name, body, headers)
            case ("GET", _, _, _):
                return self._read(what, name, verb, query)
            case _:
                response = self._keyed_responses.get(headers.key or "") or self._keyed_call(
                    method, what, name, verb, body or {}
                )
                if headers.key is not None:
                    self._keyed_responses[headers.key] = response
                return response

    def receive(self, to: str, from_: str, subject: str, text: str, code: str | None) -> str:
        name, inbox = self._id(), bare_address(to) or to
        self._inboxes.setdefault(inbox, self._inbox(inbox))
        number = 1 + sum(1 for one in self._messages if one["inbox"] == inbox)
        artifacts = [] if code is None else [self._artifact(code, name, inbox, from_)]
        blank = (
            "to",
            "cc",
            "reply_to",
            "replies",
            "flags",
            "labels",
            "rules",
            "attachments",
            "links",
            "injection_flags",
        )
        message: Body = {field: [] for field in (*blank, "candidates")}
        message |= {
            "id": name,
            "inbox": inbox,
            "inbox_id": inbox,
            "thread_id": self._id(),
            "cursor": f"1-{number}",
            "rev": 1,
            "recipient": to,
            "subject": subject,
            "text": text,
            "preview": text,
            "from": {"address": from_},
            "reply_target": {"to": [from_], "flags": []},
            "received_at": _now(),
            "state": "unanswered",
            "auth": {"spf": "none", "dkim": "none", "dmarc": "none", "verdict": "none"},
            "read": False,
            "size": 0,
            "has": ["code"] if artifacts else [],
            "view": "min",
            "artifacts": artifacts,
        }
        self._messages.append(message)
        return name

    def _send(self, mail: Body, headers: CallHeaders, child: str | None = None) -> StatusAndBody:
        to = _many(mail.get("to"))
        if not to or any(bare_address(one) is None for one in to):
            raise Refused(422, "invalid_field", "`to` is no address", field="to")
        intent = mail.get("intent")
        derived = derive_key(Intent(**intent), to) if intent else None
        key = derived if derived and child else child or headers.key or derived
        mode = mail.get("on_mismatch") or ("first_wins" if key and key == derived else "reject")
        return self._accept(mode, mail, CallHeaders(key, headers.call))

    def _accept(self, mode: str, mail: Body, headers: CallHeaders) -> StatusAndBody:
        key = headers.key
        bound = self._keys.get(key) if key is not None else None
        if bound is None:
            sent = {**mail, "id": self._id(), "key": key, **({"call": headers.call} if headers.call else {})}
            self.mails.append(sent)
            bound = {"mail": sent, "suppressed": []}
            if key is not None:
                self._keys[key] = bound
            return 202, _receipt(bound, "first", False)
        first = bound["mail"]
        differs = [
            field
            for field in COMPARED_FIELDS
            if _comparable(field, mail.get(field)) != _comparable(field, first.get(field))
        ]
        other = bool(differs) and (mode == "reject" or not CONTENT_FIELDS.issuperset(differs))
        _suppress(bound, "mismatch" if other else "payload_differs" if differs else "key_replay", headers)
        if other:
            detail = f"the key belongs to email {first['id']}, which differs in: {', '.join(differs)}"
            raise Refused(422, "key_mismatch", detail, differing_fields=differs, original_email=first["id"], key=key)
        return 200, _receipt(bound, "replayed", bool(differs))

    def _batch(self, mails: list[Body], headers: CallHeaders) -> StatusAndBody:
        key, own = headers.key, CallHeaders(None, headers.call)
        response = [self._send(mail, own, None if key is None else f"{key}[{n}]") for n, mail in enumerate(mails)]
        status = 200 if all(status == 200 for status, _ in response) else 202
        return status, {"data": [body for _, body in response], "errors": []}

    def _get_emails(self, name: str, query: dict[str, str]) -> StatusAndBody:
        lists: Body = {"handoffs": [], "evidence": [], "timeline": []}
        shown: list[Body] = []
        for mail in self.mails:
            marks = {"state": "sent", "rev": 4, "version": 1, "counts": {"sent": 1}, "created_at": _now()}
            address = f"<{mail['id']}@mailonce.test>"
            calls = self._keys.get(mail["key"], {}).get("suppressed", [])
            lists |= {"suppressed_calls": list(calls), "suppressed": len(calls)}
            shown.append({**mail, "to": _many(mail["to"]), "message_id": address, **marks, **lists})
        if name:
            return 200, _found((mail for mail in shown if mail["id"] == name), f"email {name}")
        key = query.get("key")
        return 200, {"data": [mail for mail in reversed(shown) if key in (None, mail["key"])], "next_cursor": None}

    def _reply(self, name: str, body: Body, headers: CallHeaders) -> StatusAndBody:
        message = self._message(name)
        key = f"reply {name} {body.get('follow_up') or 0}"
        bound = self._keys.get(key)
        if bound is not None:
            _suppress(bound, "already_answered", headers)
            differs = _comparable("text", body.get("text")) != _comparable("text", bound["mail"].get("text"))
            response = _receipt(bound, "replayed", differs)
            return 200, {**response, "guard": "already_answered", "thread_id": message["thread_id"]}
        message["state"] = "answered"
        mail = {"from": message["inbox"], "to": message["from"]["address"], "subject": f"Re: {message['subject']}"}
        mail |= {"text": body.get("text"), "reply_to_message": name}
        status, answer = self._accept("first_wins", mail, CallHeaders(key, headers.call))
        return status, {**answer, "thread_id": message["thread_id"]}

    def _read(self, what: str, name: str, verb: str, query: dict[str, str]) -> StatusAndBody:
        if what == "messages" and not verb:
            return 200, self._message(name)
        if what == "inboxes" and not name:
            return 200, {"data": list(self._inboxes.values()), "next_cursor": None}
        if what != "inboxes" or verb not in ("", "messages", "wait"):
            raise _unsupported(f"GET {what}/{verb}")
        inbox = self._find_inbox(name)
        if not verb:
            return 200, inbox
        after = query.get("after")
        after_number = _cursor_number(after) if after else 0
        data = [one for one in self._of(inbox) if _matches(one, query) and _cursor_number(one["cursor"]) > after_number]
        if verb == "messages":
            return 200, {"data": data if after else data[::-1], "next_cursor": None}
        if not data:
            return 204, None
        message = data[0] if after else data[-1]
        return 200, {"message": message, "cursor": message["cursor"]}

    def _keyed_call(self, method: str, what: str, name: str, verb: str, body: Body) -> StatusAndBody:
        match (method, what, verb):
            case ("POST", "inboxes", "") if not name:
                return self._create(body)
            case ("POST", "inboxes", "consume"):
                query = {"has": "code", **(body.get("match") or {})}
                messages = [one for one in self._of(self._find_inbox(name)) if _matches(one, query)]
                codes = [one["artifacts"][0] for one in reversed(messages)]
                # A repeat gets its own, everybody else the newest that nobody took.
                own = [one for one in codes if one.get("consumed_for") == body["for"]]
                free = [one for one in codes if "consumed_for" not in one]
                return self._consume(_found(own + free + codes, "code"), body)
            case ("POST", "artifacts", "consume"):
                every = (one for message in self._messages for one in message["artifacts"])
                return self._consume(_found((one for one in every if one["id"] == name), f"artifact {name}"), body)
            case ("POST", "inboxes", "next"):
                return self._next(self._find_inbox(name), body)
            case ("POST", "messages", "ack" | "nack" | "extend"):
                message = self._message(name)
                if verb != "extend" and message["state"] == "leased":
                    message["state"] = "skipped" if verb == "ack" else "unanswered"
                return 200, {"message": message, "lease": _lease(message, "double")}
            case _:
                raise _unsupported(f"{method} {what}/{verb}")

    def _create(self, body: Body) -> StatusAndBody:
        username, domain = body.get("username") or f"inbox-{self._id()}", body.get("domain") or "mailonce.test"
        address = bare_address(body.get("address") or f"{username}@{domain}") or ""
        for inbox in self._inboxes.values():
            if body.get("client_id") and inbox.get("client_id") == body["client_id"]:
                return 200, inbox
        if address in self._inboxes:
            raise Refused(409, "name_taken", f"{address} is taken")
        self._inboxes[address] = {**self._inbox(address), **body, "address": address}
        return 201, self._inboxes[address]

    def _consume(self, artifact: Body, body: Body) -> StatusAndBody:
        taken = artifact.setdefault("consumed_for", body["for"])
        if taken != body["for"]:
            raise Refused(409, "already_consumed", f"this code was taken for {taken}", consumed_for=taken)
        artifact.setdefault("consumed_at", _now())
        return 200, {"artifact": artifact}

    def _next(self, inbox: Body, body: Body) -> StatusAndBody:
        free = [one for one in self._of(inbox) if one["state"] == "unanswered"][: body.get("limit") or 1]
        for message in free:
            message["state"] = "leased"
        holder = body.get("holder") or "double"
        return 200, {"data": [{"message": message, "lease": _lease(message, holder)} for message in free]}

    def _artifact(self, code: str, message: str, inbox: str, sender: str) -> Body:
        found = {"id": self._id(), "type": "code", "rev": 1, "value": code, "masked": "******", "confidence": 100}
        about = {
            "message": message,
            "inbox_id": inbox,
            "sender": sender,
            "found_at": _now(),
            "sender_authenticated": False,
        }
        return {**found, **about, "reasons": []}

    def _inbox(self, address: str) -> Body:
        marks: Body = {"id": self._id(), "address": address, "rev": 1, "created_at": _now(), "cursor": "1-0"}
        flags: Body = {"catch_all": False, "reply_to_likely_automatic": False, "mark_auto_submitted": False}
        caps = {"per_window": 3, "window_s": 300, "per_thread_per_day": 20, "per_recipient_per_day": 20}
        return {**marks, **flags, "caps": caps, "allowed_link_domains": [], "metadata": {}, "message_count": 0}

    def _find_inbox(self, name: str) -> Body:
        every = self._inboxes.values()
        return _found((one for one in every if name.lower() in (one["id"], one["address"])), f"inbox {name}")

    def _of(self, inbox: Body) -> list[Body]:
        return [one for one in self._messages if one["inbox"] == inbox["address"]]

    def _message(self, name: str) -> Body:
        return _found((one for one in self._messages if one["id"] == name), f"message {name}")

    def _id(self) -> str:
        self._last += 1
        return f"00000000-0000-7000-8000-{self._last:012}"


def _suppress(bound: Body, reason: str, headers: CallHeaders) -> None:
    bound["suppressed"].append({"at": _now(), "channel": "http", "reason": reason, "call": headers.call})


def _receipt(bound: Body, outcome: str, differs: bool) -> Body:
    mail, first = bound["mail"], outcome == "first"
    accepted, sent = "Accepted; it will be sent once, so do not send it again.", "Already sent; there is nothing to do."
    dedupe = {
        "outcome": outcome,
        "key": mail["key"],
        "suppressed": len(bound["suppressed"]),
        "payload_differs": differs,
    }
    return {
        "id": mail["id"],
        "state": "queued" if first else "sent",
        "rev": 1 if first else 4,
        "message_id": f"<{mail['id']}@mailonce.test>",
        "created_at": _now(),
        "next": accepted if first else sent,
        "dedupe": dedupe,
    }


def _comparable(field: str, value: Any) -> str:
    """What a field means, as text: order and case of recipients, kinds of line ends and empty values do not count."""
    if not value:
        return ""
    if field in RECIPIENTS:
        return ",".join(sorted(bare_address(one) or one for one in _many(value)))
    return json.dumps(value, sort_keys=True).replace("\\r\\n", "\\n")


def _matches(message: Body, query: Body) -> bool:
    wanted, sender = query.get("from"), message["from"]["address"]
    return (
        (wanted is None or (sender.endswith(wanted) if wanted.startswith("@") else sender == wanted))
        and (query.get("has") is None or query["has"] in message["has"])
        and (query.get("subject") or "").lower() in message["subject"].lower()
    )


def _lease(message: Body, holder: str) -> Body:
    return {"token": f"lt_{message['id']}", "fence": 1, "holder": holder, "expires_at": _now()}


def _cursor_number(cursor: str) -> int:
    return int(cursor.partition("-")[2] or 0)


def _many(value: Any) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def _found(items: Iterable[Body], what: str) -> Body:
    for item in items:
        return item
    raise Refused(404, "not_found", f"there is no {what}")


def _unsupported(what: str) -> Refused:
    return Refused(
        501, "not_in_double", f"the double does not know {what}", next="Test this call against mailonce dev."
    )


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat()

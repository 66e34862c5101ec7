#!/usr/bin/env python3
"""Plays the contract with the command line: every scenario that its verbs can say, in their words. What they cannot say is
listed in CANNOT with the reason, and that list is exact: a scenario that is neither said nor listed fails, and so does one
that is both.

    MAILONCE_BIN=target/debug/mailonce sdks/contract/cli.py
"""

import copy
import json
import os
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CONTRACT = Path(__file__).resolve().parent
BIN = os.environ.get("MAILONCE_BIN", str(CONTRACT.parent.parent / "target/debug/mailonce"))
FILES = ("calls", "retries", "streams")
SECONDS = 30

TRIES = "no flag for limits of time and tries"
FIELDS = "no flags for all of these fields"
BATCH = "no verb for batches: a shell has a loop"
STAYS = "a lease that renews itself, and work, need a process that stays"
VERB = "no verb"
CANNOT = {
    "calls: a send with everything": FIELDS,
    "calls: a permissive batch": BATCH,
    "calls: a batch of intents": BATCH,
    "calls: all pages of emails": "a page at a time, by --cursor",
    "calls: all pages of inboxes": VERB,
    "calls: all pages of threads": VERB,
    "calls: cancel": VERB,
    "calls: resend": VERB,
    "calls: resolve": VERB,
    "calls: reschedule": VERB,
    "calls: an inbox of a client's own name": "no flag for the key: --client-id does the same",
    "calls: inboxes": FIELDS,
    "calls: messages of an inbox": FIELDS,
    "calls: a watch": VERB,
    "calls: take work": VERB,
    "calls: a message as it travelled": VERB,
    "calls: an attachment that was cut on its way": VERB,
    "calls: an attachment that is not there": VERB,
    "calls: what was found in it": VERB,
    "calls: a reply with everything": FIELDS,
    "calls: forward": VERB,
    "calls: ack": VERB,
    "calls: nack": VERB,
    "calls: extend": VERB,
    "calls: an artifact": VERB,
    "calls: say that it was used": VERB,
    "calls: a thread that changes": FIELDS,
    "calls: a lease is given back however the work ends": STAYS,
    "calls: a lease is renewed while the work lasts": STAYS,
    "calls: a lease that was lost is said to be, and is not given back": STAYS,
    "calls: work that returns is acked": STAYS,
    "calls: work that fails is given back, and its error is told": STAYS,
    "calls: the lease of a message is extended while the work lasts": STAYS,
    "calls: events": "tail follows, and does not list",
    "calls: an endpoint": VERB,
    "calls: one endpoint": VERB,
    "calls: an endpoint that changes": VERB,
    "calls: an endpoint that goes": VERB,
    "calls: another secret": VERB,
    "calls: pause": VERB,
    "calls: resume": VERB,
    "calls: what is owed": VERB,
    "calls: tell it something now": VERB,
    "calls: tell again what failed": VERB,
    "retries: the answer does not come in time": TRIES,
    "retries: tries have an end, and it is said what to do": TRIES,
    "retries: a mail that nothing names is not sent": "it is sent with a warning: people may send without a key",
    "retries: a batch of which one mail has no name is not sent": BATCH,
    "retries: a read is repeated": VERB,
    "streams: a stream that cannot be opened has an end": TRIES,
}


class Unsaid(Exception):
    """There are no words for this."""


def flags(given, names):
    """`--flag=value` for each field; fields without a flag cannot be said."""
    out = []
    for name, value in given.items():
        if name not in names or isinstance(value, (dict, list)):
            raise Unsaid(name)
        if value is True and names[name] is True:
            out.append(f"--{name.replace('_', '-')}")
        elif value is not True:
            out.append(f"--{name.replace('_', '-') if names[name] is True else names[name]}={value}")
    return out


def same(*names):
    return dict.fromkeys(names, True)


def send(args):
    body = dict(args.pop("body"))
    to = body.pop("to")
    words = ["send", *(f"--to={one}" for one in ([to] if isinstance(to, str) else to))]
    intent = body.pop("intent", {})
    words += flags(intent, {"type": "type", "entity": "entity", "version": "intent-version", "period": "period"})
    words += flags(body, {**same("from", "subject", "text", "html", "ttl"), "scheduled_at": "at"})
    if args.pop("without_key", False) is False and not intent and "idempotency_key" not in args:
        raise Unsaid("no name")
    return words + flags({"key": args.pop("idempotency_key")} if "idempotency_key" in args else {}, same("key"))


def reply(args):
    return ["reply", args.pop("id"), *flags(args.pop("body"), same("text", "html", "lease", "quote", "follow_up"))]


def consume(args):
    body = dict(args.pop("body"))
    body.update(body.pop("match", {}))
    return ["take", args.pop("id"), *flags(body, same("type", "for", "from", "subject", "watch"))]


def expire(args):
    if args.pop("body") != {"ttl": "0s"}:
        raise Unsaid("only the end")
    return ["inbox", "expire", args.pop("id")]


def threads(args):
    query = dict(args.pop("query"))
    opened = ["--open"] if query.pop("handled", None) is False else []
    return ["thread", "list", *opened, *flags(query, same("inbox", "label"))]


def tail(args):
    query = args.pop("query")
    return ["tail", f"--limit={args.pop('take')}", *flags(query, same("type", "after", "about"))]


def with_query(verb, *names):
    return lambda args: [*verb, *([args.pop("id")] if "id" in args else []), *flags(args.pop("query", {}), same(*names))]


VERBS = {
    "emails.send": send,
    "emails.get": with_query(["emails", "show"]),
    "emails.list": with_query(["emails", "list"], "state", "to", "key", "since", "until", "limit", "cursor"),
    "inboxes.create": lambda args: [
        "inbox",
        "create",
        *flags(args.pop("body"), same("address", "username", "domain", "ttl", "client_id", "agent")),
    ],
    "inboxes.get": with_query(["inbox", "show"]),
    "inboxes.list": with_query(["inbox", "list"]),
    "inboxes.delete": with_query(["inbox", "delete"]),
    "inboxes.update": expire,
    "inboxes.messages": with_query(["inbox", "messages"], "limit"),
    "inboxes.wait": with_query(["wait"], "timeout", "after", "from", "subject", "has", "watch"),
    "inboxes.consume": consume,
    "messages.get": with_query(["inbox", "read"], "view"),
    "messages.reply": reply,
    "artifacts.consume": lambda args: ["take", "--artifact", args.pop("id"), *flags(args.pop("body"), same("for", "watch"))],
    "threads.get": with_query(["thread", "show"]),
    "threads.list": threads,
    "webhooks.list": with_query(["webhooks", "list"]),
    "webhooks.replay": with_query(["webhooks", "replay"]),
    "events.stream": tail,
}

# What verbs say besides, because they have defaults of their own.
FULL_REPLY = {"reply_all": False, "follow_up": 0, "seen": [], "quote": False}
LISTED = {"threads.list": "20", "webhooks.list": "20"}


def in_cli_words(call, request):
    """The request that a scenario wants, as the verb words it."""
    request = copy.deepcopy(request)
    body, query = request.get("body"), request.setdefault("query", {})
    if call == "emails.send" and body:
        body["to"] = [body["to"]] if isinstance(body["to"], str) else body["to"]
        body.setdefault("subject", "")
        if "intent" in body:
            body["intent"] = {"version": None, "period": None, **body["intent"]}
    if call == "messages.reply" and body:
        request["body"] = {**FULL_REPLY, **body}
    if call == "inboxes.consume" and body:
        body["match"] = {"from": None, "subject": None, **body.get("match", {})}
    if call in LISTED:
        query["limit"] = LISTED[call]
    return request


def words(scenario):
    """The scenario in words of the command line; raises `Unsaid` where there are none."""
    args = copy.deepcopy(scenario["args"])
    if "client" in scenario or scenario["call"] not in VERBS:
        raise Unsaid(scenario["call"])
    said = VERBS[scenario["call"]](args)
    if args:
        raise Unsaid(", ".join(args))
    return said


def ask(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=SECONDS) as answer:
        return json.load(answer)


def misfits(wanted, found, where="result"):
    """Where `found` lacks something that `wanted` names."""
    if isinstance(wanted, dict):
        for name, value in wanted.items():
            yield from misfits(value, found.get(name) if isinstance(found, dict) else None, f"{where}.{name}")
    elif isinstance(wanted, list):
        if not isinstance(found, list) or len(found) != len(wanted):
            yield f"{where} is {found!r}"
        else:
            for number, value in enumerate(wanted):
                yield from misfits(value, found[number], f"{where}[{number}]")
    elif wanted != found:
        yield f"{where} is {found!r}, wanted {wanted!r}"


def result(call, text):
    values = [json.loads(line) for line in text.split("\n") if line]
    if call == "events.stream":
        return {"data": values}
    value = values[0] if values else None
    return value["artifact"] if call.endswith(".consume") else value


def judge(scenario, done):
    """What is wrong with what the command line said."""
    wanted = scenario.get("error")
    if wanted is None:
        # 2: nothing came in time.
        if done.returncode not in (0, 2 if scenario["result"] is None else 0):
            yield f"ended with {done.returncode}: {done.stderr}"
        else:
            yield from misfits(scenario["result"], result(scenario["call"], done.stdout))
        return
    code, last = wanted["code"], (scenario["server"] or [{}])[-1].get("answer", {})
    status = wanted.get("status", last.get("status", 0) if isinstance(last, dict) else 0)
    # A call that was right and refused is 5; one that was typed wrongly is 64.
    refused = status in (403, 408, 409, 422, 429) and code not in ("invalid_field", "invalid_key")
    exits = 6 if code == "key_mismatch" else 64 if 400 <= status < 500 and not refused or code == "invalid_key" else 5
    if code == "no_problem":
        exits, parts = 5, ["without a reason"]
    elif code == "no_answer":
        parts = ["no answer"]
    elif code == "invalid_key":
        # Found before anything is called, like every wrong argument.
        parts = ["invalid_key: "]
    else:
        # Into a pipe an error is one line of JSON.
        told = {"code": code} | ({"next": wanted["next"]} if status and "next" in wanted else {})
        parts = [f"{json.dumps(name)}:{json.dumps(word, ensure_ascii=False)}" for name, word in told.items()]
    for part in parts:
        if part not in done.stderr:
            yield f"does not say {part!r}: {done.stderr!r}"
    if done.returncode != exits:
        yield f"ended with {done.returncode}, wanted {exits}: {done.stderr!r}"


def play(server, answers, scenario, said):
    steps = copy.deepcopy(scenario["server"])
    for step in steps:
        if "method" in step.get("request", {}):
            step["request"] = in_cli_words(scenario["call"], step["request"])
    begun = ask(f"{server}/play", {"server": steps, "answers": answers})
    env = {"PATH": os.environ["PATH"], "MAILONCE_URL": begun["base"], "MAILONCE_API_KEY": "contract-key"}
    try:
        done = subprocess.run([BIN, "--json", *said], env=env, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired as late:
        return [f"did not end within {SECONDS} s: {late.stderr!r}"]
    seen = ask(begun["seen"])
    return list(judge(scenario, done)) + seen["faults"] + ([f"{seen['left']} requests did not come"] if seen["left"] else [])


def main():
    server = subprocess.Popen([sys.executable, CONTRACT / "server.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    url = server.stdout.readline().strip()
    faults, plays, unsaid = [], [], set()
    for file in FILES:
        contract = json.loads((CONTRACT / f"{file}.json").read_text())
        for scenario in contract["scenarios"]:
            name = f"{file}: {scenario['name']}"
            try:
                plays.append((name, contract["answers"], scenario, words(scenario)))
            except Unsaid:
                unsaid.add(name)
    faults += [f"{name}: there are no words for it, and it is not listed" for name in sorted(unsaid - set(CANNOT))]
    faults += [f"{name}: is listed as what cannot be said, and can be, or is gone" for name in sorted(set(CANNOT) - unsaid)]
    with ThreadPoolExecutor(4) as pool:
        told = pool.map(lambda one: (one[0], play(url, *one[1:])), plays)
        faults += [f"{name}: {fault}" for name, found in told for fault in found]
    server.stdin.close()
    server.wait()
    print("\n".join(faults) or f"{len(plays)} scenarios played, {len(unsaid)} cannot be said")
    sys.exit(1 if faults else 0)


main()

"""What must type-check, and what must not: mypy and pyright complain of the lines marked `wrong` and of no others."""

from __future__ import annotations

from mailonce import AsyncMailonce, Found, Intent, Mailonce, SendReceipt, derive_key, verify_webhook
from mailonce.testing import Double, expect_sent_once

INTENT = Intent(type="order.confirmation", entity="order_4821")


@Mailonce().runs_once(lambda order: f"invoice-{order}")
def invoice(order: str) -> str:
    return order


def checks(mo: Mailonce) -> SendReceipt:
    mo.emails.send(from_="a@x", to="b@x", subject="s", text="t", intent=INTENT)
    mo.emails.send(from_="a@x", to=["b@x"], text="t", intent=INTENT, idempotency_key="k", wait=5)
    mo.emails.send(from_="a@x", to="b@x", text="t", idempotency_key="order-4821")
    mo.emails.send(from_="a@x", to="b@x", text="t", without_key=True)
    mo.emails.batch([{"from_": "a@x", "to": "b@x", "text": "t", "intent": INTENT}])
    mo.emails.batch([{"from_": "a@x", "to": "b@x", "text": "t"}], idempotency_key="digest-46")
    mo.messages.reply("m", text="At nine.")
    mo.emails.list(state="unknown", limit=5)
    mo.inboxes.messages("i", has="code", state="unanswered")
    mo.webhooks.notices("e", state="dead", type="email.sent")
    value: str | None = mo.inboxes.consume("i", type="code", for_="signup-7").value
    for event in mo.events.stream(after="0"):
        print(event.type, event.cursor, value)
    with mo.threads.lease("t", ttl_s=30) as lease:
        print(lease.token, lease.lost)
    key: str = derive_key(INTENT, ["b@x"]) or derive_key({"type": "t", "entity": "e"}, "b@x")
    verify_webhook(b"{}", {}, "whsec_x").about.id.upper()
    expect_sent_once(Double(), key=key)
    fence: int = mo.once("k", lambda run: run.fence, wait=True, verify=lambda claim: Found(claim.id))
    text: str = mo.once(INTENT, lambda run: run.step("a", lambda _: "done"), on_error=lambda _: "retry")
    print(invoice("7").upper(), fence, text)
    sent = mo.emails.send(from_="a@x", to="b@x", text="t", intent=INTENT)
    # Later versions have more guards, so a program that knows one of them type-checks.
    if sent.guard == "a_guard_of_a_later_version":
        print(sent.holds)
    return sent if sent.dedupe.outcome == "first" else sent


async def checks_async(mo: AsyncMailonce) -> SendReceipt:
    async for event in mo.events.stream():
        print(event.seq)
    async with mo.threads.lease("t") as lease:
        print(lease.fence)
    return await mo.emails.send(from_="a@x", to="b@x", text="t", intent=INTENT)


def does_not_check(mo: Mailonce, maybe: str | None) -> None:
    mo.emails.send(from_="a@x", to="b@x", text="t")  # wrong: nothing names this mail
    mo.emails.send(from_="a@x", to="b@x", text="t", wait=5)  # wrong: nothing names this mail
    mo.emails.send(from_="a@x", to="b@x", text="t", idempotency_key=maybe)  # wrong: a key that may be missing is none
    mo.emails.send(from_="a@x", to="b@x", text="t", without_key=False)  # wrong: the way out is said
    mo.emails.send(from_="a@x", to="b@x", text="t", intent=None)  # wrong: an intent that is missing names nothing
    mo.emails.send(to="b@x", text="t", intent=INTENT)  # wrong: a mail has a sender
    mo.emails.send(from_="a@x", to="b@x", body="t", intent=INTENT)  # wrong: a field that does not exist
    mo.emails.batch([{"from_": "a@x", "to": "b@x", "text": "t"}])  # wrong: nothing names this mail
    mo.emails.list(state="sendt")  # wrong: a state that does not exist
    mo.inboxes.messages("i", state="new")  # wrong: a state that does not exist
    mo.inboxes.messages("i", has="codes")  # wrong: only codes and links are found
    mo.inboxes.wait("i", has="codes")  # wrong: only codes and links are found
    mo.webhooks.notices("e", state="failed")  # wrong: a state that does not exist
    mo.webhooks.notices("e", type="email.sendt")  # wrong: an event type that does not exist
    mo.artifacts.consume("a")  # wrong: for whom?
    mo.once(lambda run: run.fence)  # wrong: a side effect has a key
    mo.once("k", lambda run: run.fence, on_error=lambda _: "later")  # wrong: there is no other meaning of an error
    mo.once("k", lambda run: run.fence, verify=lambda _: True)  # wrong: a look-up says more than yes
    invoice(7)  # wrong: the decorated function keeps its types
    Intent(type="t")  # wrong: an intent is about something


async def does_not_check_async(mo: AsyncMailonce) -> None:
    await mo.emails.send(from_="a@x", to="b@x", text="t")  # wrong: nothing names this mail

"""How a scenario's call is made with this SDK, and how its result is compared."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Iterator
from typing import Any

from mailonce import AsyncHeldLease, AsyncMailonce, Download, HeldLease, Intent, Mailonce, Message

SAFE = {"from": "from_", "for": "for_", "as": "as_"}


def words(body: dict[str, Any]) -> dict[str, Any]:
    """A body of the wire as keyword arguments."""
    out = {SAFE.get(name, name): value for name, value in body.items()}
    if isinstance(out.get("intent"), dict):
        out["intent"] = Intent(**out["intent"])
    return out


def arguments(call: str, args: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    positional: list[Any] = [args[name] for name in ("id", "n") if name in args]
    body = args.get("body", args.get("query", {}))
    if call == "emails.batch":
        positional, named = [[words(mail) for mail in body]], {}
    else:
        named = words(body)
    for name in ("wait", "permissive", "without_key"):
        if name in args:
            named[name] = args[name]
    if "idempotency_key" in args:
        if call in ("emails.send", "emails.batch", "messages.reply"):
            named["idempotency_key"] = args["idempotency_key"]
        else:
            named["options"] = {"idempotency_key": args["idempotency_key"]}
    if "call_id" in args:
        named["options"] = {"call_id": args["call_id"]}
    return positional, named


def make_work(mo: Mailonce, args: dict[str, Any]) -> dict[str, Any]:
    worked: list[str] = []

    def work(message: Message, _: HeldLease) -> None:
        worked.append(message.id)
        time.sleep(args.get("work_ms", 0) / 1000)
        if "fail" in args:
            raise RuntimeError(args["fail"])

    try:
        mo.inboxes.work(args["id"], work, stop=lambda: bool(worked), **args["body"])
    except RuntimeError as error:
        return {"worked": worked, "failed": str(error)}
    return {"worked": worked}


async def make_work_async(mo: AsyncMailonce, args: dict[str, Any]) -> dict[str, Any]:
    worked: list[str] = []

    async def work(message: Message, _: AsyncHeldLease) -> None:
        worked.append(message.id)
        await asyncio.sleep(args.get("work_ms", 0) / 1000)
        if "fail" in args:
            raise RuntimeError(args["fail"])

    try:
        await mo.inboxes.work(args["id"], work, stop=lambda: bool(worked), **args["body"])
    except RuntimeError as error:
        return {"worked": worked, "failed": str(error)}
    return {"worked": worked}


def make(mo: Mailonce, call: str, args: dict[str, Any]) -> Any:
    if call == "inboxes.work":
        return make_work(mo, args)
    resource, method = call.split(".")
    positional, named = arguments(call, args)
    made = getattr(getattr(mo, resource), method)(*positional, **named)
    if call == "threads.lease":
        with made as lease:
            time.sleep(args.get("work_ms", 0) / 1000)
            assert (lease.lost is not None) == args.get("lost", False)
            return {"token": lease.token, "fence": lease.fence}
    if inspect.isgenerator(made):
        out = []
        for item in made:
            out.append(item)
            if len(out) == args.get("take"):
                break
        return {"data": out}
    return made


async def make_async(mo: AsyncMailonce, call: str, args: dict[str, Any]) -> Any:
    if call == "inboxes.work":
        return await make_work_async(mo, args)
    resource, method = call.split(".")
    positional, named = arguments(call, args)
    made = getattr(getattr(mo, resource), method)(*positional, **named)
    if call == "threads.lease":
        async with made as lease:
            await asyncio.sleep(args.get("work_ms", 0) / 1000)
            assert (lease.lost is not None) == args.get("lost", False)
            return {"token": lease.token, "fence": lease.fence}
    if inspect.isasyncgen(made):
        out = []
        async for item in made:
            out.append(item)
            if len(out) == args.get("take"):
                break
        await made.aclose()
        return {"data": out}
    return await made


def misfits(wanted: Any, found: Any, where: str = "result") -> Iterator[str]:
    """Where `found` lacks something that `wanted` names."""
    if isinstance(wanted, dict):
        for said, value in wanted.items():
            name = SAFE.get(str(said), str(said))
            inner = found.get(name) if isinstance(found, dict) else getattr(found, name, None)
            if isinstance(found, Download) and name == "text":
                inner = found.content.decode()
            yield from misfits(value, inner, f"{where}.{name}")
    elif isinstance(wanted, list):
        if not isinstance(found, list) or len(found) != len(wanted):
            yield f"{where} is {found!r}"
        else:
            for number, value in enumerate(wanted):
                yield from misfits(value, found[number], f"{where}[{number}]")
    elif wanted != found:
        yield f"{where} is {found!r}, wanted {wanted!r}"

"""Derives the idempotency key of an intent exactly as the server does. Vectors: sdks/contract/keys.json."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import idna

from ._error import MailonceError
from .wire import Intent

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_ATOM = re.compile(r"(?:[a-z0-9!#$%&'*+\-/=?^_`{|}~]|[^\x00-\x7f\s])+")
_UPPER = {letter: letter + 32 for letter in range(ord("A"), ord("Z") + 1)}


def derive_key(intent: Intent | Mapping[str, Any], to: str | Sequence[str]) -> str:
    """`"i1_" + hex(SHA-256(JCS({entity, period?, to, type, v})))`.

    Sends do not need it, because the server derives the same `intent`. It is for looking a key up, and for what else
    should happen once under the same name. An intent may also be a mapping, as it comes from JSON.
    """
    intent = _intent(intent)
    named: dict[str, Any] = {"entity": _word("entity", intent.entity)}
    if intent.period is not None:
        named["period"] = _word("period", intent.period)
    # Written like this, strings are as RFC 8785 wants them, and the members stand in its order already.
    named["to"] = _recipients([to] if isinstance(to, str) else to)
    named["type"] = _word("type", intent.type)
    named["v"] = _version(1 if intent.version is None else intent.version)
    text = json.dumps(named, ensure_ascii=False, separators=(",", ":"))
    return "i1_" + hashlib.sha256(text.encode()).hexdigest()


def _intent(given: Intent | Mapping[str, Any]) -> Intent:
    if isinstance(given, Intent):
        return given
    if not isinstance(given, Mapping):
        raise TypeError(f"intent must be an Intent or a mapping with type and entity, not {type(given).__name__}")
    for name in given:
        if name not in ("type", "entity", "version", "period"):
            raise _invalid(f"intent.{name}", "is not known: an intent has type, entity, version and period")
    members: dict[str, Any] = {"type": None, "entity": None, **given}
    return Intent(**members)


def check_key(key: str) -> str:
    """Keys are 1 to 256 printable ASCII characters; others are refused without a call."""
    if isinstance(key, str) and re.fullmatch(r"[\x20-\x7e]{1,256}", key) and key.strip():
        return key
    raise MailonceError(
        "invalid_key",
        "a key is 1 to 256 printable ASCII characters",
        next="Take the key from your own task: the order, the run, the message you answer.",
        field="Idempotency-Key",
    )


def _invalid(field: str, detail: str) -> MailonceError:
    return MailonceError("invalid_field", f"{field} {detail}", next=f"Mend {field}.", field=field)


def _word(name: str, value: object) -> str:
    field = f"intent.{name}"
    if not isinstance(value, str):
        raise _invalid(field, "must be text")
    if not 1 <= len(value) <= 256:
        raise _invalid(field, "must have 1 to 256 characters")
    if _CONTROL.search(value):
        raise _invalid(field, "must not contain control characters")
    return value


def _version(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 4294967295:
        return value
    raise _invalid("intent.version", "must be a whole number from 1 to 4294967295")


def _recipients(to: Sequence[str]) -> list[str]:
    if not to:
        raise _invalid("to", "must name somebody")
    bare = set()
    for number, text in enumerate(to):
        address = bare_address(text)
        if address is None:
            raise _invalid(f"to[{number}]", "is no address")
        bare.add(address)
    # RFC 8785 orders by UTF-16 code units.
    return sorted(bare, key=lambda address: address.encode("utf-16-be"))


def bare_address(text: str) -> str | None:
    """The address as it is compared: without a display name, in lower case, its domain as A-label."""
    if not isinstance(text, str) or _CONTROL.search(text):
        return None
    text = text.strip()
    if text.endswith(">"):
        name, bracket, text = text[:-1].rpartition("<")
        name = name.strip()
        if not bracket or (name.startswith('"') and (len(name) < 2 or not name.endswith('"'))):
            return None
    elif "<" in text or ">" in text:
        return None
    local, _, host = text.strip().rpartition("@")
    local = local.translate(_UPPER)
    if not all(_ATOM.fullmatch(atom) for atom in local.split(".")):
        return None
    domain = _a_label(host)
    octets = len(local.encode())
    if domain is None or octets > 64 or octets + 1 + len(domain) > 254:
        return None
    return f"{local}@{domain}"


def _a_label(domain: str) -> str | None:
    """The domain in its ASCII form: UTS 46, non-transitional, without the stricter rules of registries."""
    ascii_form = domain.translate(_UPPER)
    if not ascii_form.isascii():
        try:
            # Older tables make two letters of the capital sharp s.
            mapped = idna.uts46_remap(ascii_form.replace("\u1e9e", "\u00df"), std3_rules=True, transitional=False)
            ascii_form = ".".join(_puny(label) for label in re.split("[.。]", unicodedata.normalize("NFC", mapped)))
        except (idna.IDNAError, UnicodeError):
            return None
    if any(label.startswith("xn--") and not _is_puny(label) for label in ascii_form.split(".")):
        return None
    fits = all(_LABEL.fullmatch(label) for label in ascii_form.split("."))
    if not fits or len(ascii_form) > 253 or re.fullmatch(r"[0-9.]+", ascii_form):
        return None
    return ascii_form


def _is_puny(label: str) -> bool:
    """Whether an A-label is what its own U-label would be written as."""
    try:
        text = label[4:].encode().decode("punycode")
        return _puny(idna.uts46_remap(text, std3_rules=True, transitional=False)) == label
    except (idna.IDNAError, UnicodeError):
        return False


def _puny(label: str) -> str:
    return label if label.isascii() else "xn--" + label.encode("punycode").decode()

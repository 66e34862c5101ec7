"""Reads composed mails with Python's own parser and compares them with what was asked for.

Standard input is a JSON array of {"mail": base64, "asked": {...}}. Prints each difference; exits 1 if there is one.
"""

import base64
import datetime
import email
import email.errors
import email.header
import email.policy
import email.utils
import json
import sys
import urllib.parse


def parse(raw):
    """A mail whose headers are UTF-8 (RFC 6532) must be read as text; any other as bytes."""
    if raw.isascii():
        return email.message_from_bytes(raw, policy=email.policy.default)
    return email.message_from_string(raw.decode("utf-8"), policy=email.policy.default)


def people(message, name):
    """Addresses by the new interface, names by the old one.

    The new one leaves a space between two encoded words of a name (python/cpython#92081) and folds two spaces to one.
    """
    field = message[name]
    if field is None:
        return []
    raw = dict(message.raw_items())[name].replace("\r\n", "")
    old = [str(email.header.make_header(email.header.decode_header(n))) for n, _ in email.utils.getaddresses([raw])]
    new = [address.addr_spec for address in field.addresses]
    if len(old) != len(new):
        return [old, new]
    return [[name or None, address] for name, address in zip(old, new)]


def lines(text):
    return None if text is None else text.replace("\r\n", "\n")


def body(message, kind):
    part = message.get_body((kind,))
    # A file is no body, whatever its type.
    if part is None or part.get_content_disposition() is not None:
        return None
    return lines(part.get_content())


def same(message, field, asked, got):
    """A body that is the whole mail ends in a line end, because a mail does."""
    if field in ("text", "html") and asked is not None and not message.is_multipart() and not asked.endswith("\n"):
        return got in (asked, asked + "\n")
    return asked == got


def content_id(part):
    """As a `cid:` link would have it."""
    return None if part["Content-ID"] is None else urllib.parse.unquote(str(part["Content-ID"]).strip("<>"))


def files(message):
    found = []
    for part in message.walk():
        if part.get_content_disposition() is None:
            continue
        found.append(
            {
                "filename": part.get_filename(),
                "bytes": base64.b64encode(part.get_payload(decode=True)).decode(),
                "content_id": content_id(part),
                "inline": part.get_content_disposition() == "inline",
            }
        )
    return found


def defects(message, raw):
    found = []
    for part in message.walk():
        found += part.defects
        for name in part.keys():
            found += getattr(part[name], "defects", [])
    # RFC 6532 allows what the parser, older than that, calls a defect.
    international = () if raw.isascii() else email.errors.NonASCIILocalPartDefect
    return [repr(defect) for defect in found if not isinstance(defect, international)]


def read(message, raw):
    names = [name for name in message.keys() if name not in ("Content-Type", "Content-Transfer-Encoding")]
    return {
        "names": names,
        "from": people(message, "From"),
        "to": people(message, "To"),
        "cc": people(message, "Cc"),
        "reply_to": people(message, "Reply-To"),
        "subject": str(message["Subject"]),
        "date": int(message["Date"].datetime.timestamp()),
        "zone": message["Date"].datetime.utcoffset() == datetime.timedelta(0),
        "message_id": str(message["Message-ID"]),
        "in_reply_to": str(message.get("In-Reply-To", "")).split(),
        "references": str(message.get("References", "")).split(),
        "id": str(message["X-Mailonce-Id"]),
        "custom": [[name, str(message[name])] for name in names if name.startswith("X-Custom-")],
        "text": body(message, "plain"),
        "html": body(message, "html"),
        "files": files(message),
        "defects": defects(message, raw),
    }


def main():
    cases = json.load(sys.stdin)
    wrong = 0
    for number, case in enumerate(cases):
        raw = base64.b64decode(case["mail"])
        message = parse(raw)
        got = read(message, raw)
        for field, asked in case["asked"].items():
            if not same(message, field, asked, got[field]):
                wrong += 1
                print(f"mail {number}: {field}\n  asked {asked!r}\n  got   {got[field]!r}")
    print(f"{len(cases)} mails read, {wrong} differences")
    sys.exit(1 if wrong or not cases else 0)


main()

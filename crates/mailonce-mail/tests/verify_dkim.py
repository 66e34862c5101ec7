"""Verifies DKIM signatures with dkimpy, and that a mail that was touched no longer verifies.

Standard input is JSON: {"mails": [{"mail": base64, "records": {name: value}, "signatures": n}], "rsa": [PKCS#8]}.
"""

import base64
import json
import sys

import dkim
import dkim.crypto


def verdicts(raw, case):
    def lookup(name, timeout=5):
        value = case["records"].get(name.decode().rstrip("."))
        return None if value is None else value.encode()

    verifier = dkim.DKIM(raw)
    found = []
    for index in range(case["signatures"]):
        try:
            found.append(bool(verifier.verify(idx=index, dnsfunc=lookup)))
        except dkim.DKIMException as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


def touched(raw):
    """The mail with each kind of harm done to it."""
    head, body = raw.split(b"\r\n\r\n", 1)
    yield "body", head + b"\r\n\r\n" + body + b"x\r\n"
    yield "subject", raw.replace(b"\r\nSubject: ", b"\r\nSubject: Re: ", 1)
    yield "second From", b"From: evil@example.com\r\n" + raw
    yield "second Subject", b"Subject: evil\r\n" + raw
    yield "added Cc", raw.replace(b"\r\nMIME-Version:", b"\r\nCc: evil@example.com\r\nMIME-Version:", 1)
    yield "id", raw.replace(b"\r\nX-Mailonce-Id: ", b"\r\nX-Mailonce-Id: 0", 1)


def refolded(raw):
    """The mail after a harmless hop: other folding and spaces, and headers of its own in front."""
    head, body = raw.split(b"\r\n\r\n", 1)
    head = head.replace(b"\r\nMIME-Version: 1.0", b"\r\nMIME-Version:\r\n\t1.0  ")
    return b"Received: by relay\r\n" + head + b"\r\n\r\n" + body + b"\r\n\r\n"


def faults(pkcs8):
    """What is wrong with a private key. Our own signing never uses its exponent; another program would."""
    key = dkim.crypto.parse_private_key(base64.b64decode(pkcs8))
    n, e, d = key["modulus"], key["publicExponent"], key["privateExponent"]
    p, q = key["prime1"], key["prime2"]
    checks = {
        "length": n.bit_length() == 2048,
        "modulus": n == p * q and p > q,
        "exponent": pow(pow(4821, e, n), d, n) == 4821,
        "prime": pow(3, p - 1, p) == 1 and pow(3, q - 1, q) == 1,
        "remainders": key["exponent1"] == d % (p - 1) and key["exponent2"] == d % (q - 1),
        "coefficient": key["coefficient"] * q % p == 1,
    }
    return [f"private key: wrong {name}" for name, right in checks.items() if not right]


def main():
    asked = json.load(sys.stdin)
    cases = asked["mails"]
    wrong = [fault for key in asked["rsa"] for fault in faults(key)]
    for number, case in enumerate(cases):
        raw = base64.b64decode(case["mail"])
        for name, mail in (("as sent", raw), ("refolded", refolded(raw))):
            if verdicts(mail, case) != [True] * case["signatures"]:
                wrong.append(f"mail {number}, {name}: {verdicts(mail, case)}")
        for name, mail in touched(raw):
            if mail == raw or any(verdict is True for verdict in verdicts(mail, case)):
                wrong.append(f"mail {number} still verifies with another {name}")
    print("\n".join(wrong))
    print(f"{len(cases)} mails verified, {len(wrong)} wrong")
    sys.exit(1 if wrong or not cases or not asked["rsa"] else 0)


main()

"""Writes signed.json: mails signed by OpenSSL, with the keys to publish and what is to be said about each.

Run it by hand when a case is added; the tests read only what it wrote. The keys are new every time and belong to nobody.
"""

import base64
import hashlib
import json
import pathlib
import re
import subprocess
import tempfile

FROM = "From: Ada <ada@signed.example>\r\n"
HEAD = FROM + "To: bob@there.example\r\nSubject:  Two   spaces \r\nDate: Sun, 15 Nov 2026 10:00:00 +0000\r\n"
BODY = "Hello  Bob,\r\n\r\nall is well.  \r\n\r\n\r\n"
NAMES = "from:to:subject:date"
folder = pathlib.Path(tempfile.mkdtemp())


def openssl(*words, data=None):
    return subprocess.run(["openssl", *words], input=data, capture_output=True, check=True).stdout


def key(name, *words):
    path = folder / name
    path.write_bytes(openssl("genpkey", *words))
    der = openssl("pkey", "-in", str(path), "-pubout", "-outform", "DER")
    # Of an Ed25519 key the record holds the 32 bytes alone (RFC 8463).
    kind, public = ("ed25519", der[-32:]) if "ed25519" in name else ("rsa", der)
    return path, f"v=DKIM1; k={kind}; p={base64.b64encode(public).decode()}"


KEYS = {
    "rsa": key("rsa", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"),
    "short": key("short", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024"),
    "tiny": key("tiny", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:768"),
    "ed25519": key("ed25519", "-algorithm", "ed25519"),
}


def squeeze(text):
    return re.sub(r"[ \t]+", " ", text)


def canonical_body(body, how):
    lines = body.split("\r\n")
    if how == "relaxed":
        lines = [squeeze(line).rstrip(" ") for line in lines]
    while lines and lines[-1] == "":
        lines.pop()
    return "".join(line + "\r\n" for line in lines) or ("\r\n" if how == "simple" else "")


def canonical_field(field, how):
    if how == "simple":
        return field
    name, value = field.split(":", 1)
    return name.lower().strip() + ":" + squeeze(value.replace("\r\n", "")).strip(" ") + "\r\n"


def signed(mail, selector="rsa", how="relaxed/relaxed", domain="signed.example", names=NAMES, more="", algorithm=None, length=None):
    head, body = mail.split("\r\n\r\n", 1)
    fields = [field + "\r\n" for field in re.split(r"\r\n(?![ \t])", head)]
    of_head, of_body = how.split("/")
    algorithm = algorithm or ("ed25519-sha256" if selector == "ed25519" else "rsa-sha256")
    digest = hashlib.sha1 if algorithm.endswith("sha1") else hashlib.sha256
    content = canonical_body(body, of_body).encode()
    if length is not None:
        content, more = content[:length], more + f" l={length};"
    bh = base64.b64encode(digest(content).digest()).decode()
    field = f"DKIM-Signature: v=1; a={algorithm}; c={how}; d={domain}; s={selector};{more}\r\n h={names}; bh={bh};\r\n b="
    covered = ""
    left = list(fields)
    for name in names.split(":"):
        for i in range(len(left) - 1, -1, -1):
            if left[i].split(":", 1)[0].strip().lower() == name.strip().lower():
                covered += canonical_field(left.pop(i), of_head)
                break
    covered = (covered + canonical_field(field + "\r\n", of_head)[:-2]).encode()
    path, _ = KEYS[selector]
    if selector == "ed25519":
        file = folder / "digest"
        file.write_bytes(hashlib.sha256(covered).digest())
        made = openssl("pkeyutl", "-sign", "-rawin", "-inkey", str(path), "-in", str(file))
    else:
        made = openssl("dgst", "-sha1" if digest is hashlib.sha1 else "-sha256", "-sign", str(path), data=covered)
    return field + base64.b64encode(made).decode() + "\r\n" + mail


MAIL = HEAD + "\r\n" + BODY
cases = []


def case(name, mail, dkim, verdict):
    cases.append({"name": name, "mail": mail, "dkim": dkim, "verdict": verdict})


for how in ["simple/simple", "simple/relaxed", "relaxed/simple", "relaxed/relaxed"]:
    case(f"rsa {how}", signed(MAIL, how=how), "pass", "pass")
    case(f"ed25519 {how}", signed(MAIL, "ed25519", how=how), "pass", "pass")
case("rsa of 1024 bits", signed(MAIL, "short"), "pass", "pass")
case("rsa of 768 bits", signed(MAIL, "tiny"), "fail", "none")
case("sha1", signed(MAIL, algorithm="rsa-sha1"), "permerror", "none")
case("not over the sender", signed(MAIL, names="to:subject:date"), "permerror", "none")
case("both kinds", signed(signed(MAIL), "ed25519"), "pass", "pass")
case("a stranger's and the domain's own", signed(signed(MAIL), domain="list.example"), "pass", "pass")
case("a stranger's alone", signed(MAIL, domain="list.example"), "pass", "none")
case("a subdomain's", signed(MAIL, domain="mail.signed.example"), "pass", "pass")
broken = signed(MAIL, "ed25519").replace("\r\n b=", "\r\n b=AAAA", 1)
case("one is broken, another holds", broken[: broken.index("From: Ada")] + signed(MAIL), "pass", "pass")
case("one is broken", broken, "fail", "none")
case("expired", signed(MAIL, more=" t=1000000000; x=1000003600;"), "fail", "none")
case("not yet expired", signed(MAIL, more=" t=1000000000; x=9000000000;"), "pass", "pass")
case("another body", signed(MAIL).replace("all is well", "send money"), "fail", "none")
case("another subject", signed(MAIL).replace("Two   spaces", "Three"), "fail", "none")
case("another sender", signed(MAIL).replace("ada@signed", "eve@signed"), "fail", "none")
case("spaces changed, relaxed", signed(MAIL).replace("Two   spaces", "Two spaces").replace("all is", "all  is"), "pass", "pass")
case("spaces changed, simple", signed(MAIL, how="simple/simple").replace("all is", "all  is"), "fail", "none")
case("spaces of a header changed, simple", signed(MAIL, how="simple/relaxed").replace("Two   spaces", "Two spaces"), "fail", "none")
case("over a part of the body", signed(MAIL, length=5), "neutral", "none")
case("over a part, and more was added", signed(MAIL, length=5) + "Send money to eve.\r\n", "neutral", "none")
listed = signed(MAIL).replace("Subject:  ", "Subject: [list] ") + "-- \r\nlist footer\r\n"
case("a list changed it", listed, "fail", "none")
case("a list changed it and signed anew", signed(listed, domain="list.example"), "pass", "none")
case("another From was put in front", FROM.replace("ada@signed", "eve@evil") + signed(MAIL), "pass", "fail")
case("no signature at all", MAIL, "none", "none")
case("a signature that is none", "DKIM-Signature: hello\r\n" + MAIL, "permerror", "none")
case("no such key", signed(MAIL).replace("s=rsa;", "s=gone;"), "permerror", "none")
case("a key that was taken back", signed(MAIL).replace("s=rsa;", "s=revoked;"), "permerror", "none")
case("ten broken ones hide the one that holds", "DKIM-Signature: hello\r\n" * 10 + signed(MAIL), "permerror", "none")
case("nine broken ones do not", "DKIM-Signature: hello\r\n" * 9 + signed(MAIL), "pass", "pass")

out = {"keys": {name: record for name, (_, record) in KEYS.items()} | {"revoked": "v=DKIM1; k=rsa; p="}, "cases": cases}
here = pathlib.Path(__file__).with_name("signed.json")
here.write_text(json.dumps(out, indent=1) + "\n")
print(len(cases), "mails")

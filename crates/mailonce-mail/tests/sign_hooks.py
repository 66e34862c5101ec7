"""Signs requests with the libraries that providers and their customers use.

Reads {"at": seconds, "body": text, "sns": [SNS messages without a signature]} and writes a list of requests.
"""

import base64
import datetime
import json
import sys

import standardwebhooks.webhooks
import svix.webhooks
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import NameOID

SECRET = "whsec_" + base64.b64encode(b"a secret of 24 letters!!").decode()
NAMES = ["Message", "MessageId", "Subject", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"]


def named(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def certificate(subject, key, issuer, issuer_key, authority):
    day = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
    builder = x509.CertificateBuilder().subject_name(named(subject)).issuer_name(named(issuer))
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(day).not_valid_after(day + datetime.timedelta(days=365 * 30))
    builder = builder.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    return builder.sign(issuer_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def webhooks(at, body):
    moment = datetime.datetime.fromtimestamp(at, tz=datetime.timezone.utc)
    for scheme, library, prefix in [
        ("standardwebhooks", standardwebhooks.webhooks, "webhook"),
        ("svix", svix.webhooks, "svix"),
    ]:
        signature = library.Webhook(SECRET).sign("msg_1", moment, body)
        headers = {f"{prefix}-id": "msg_1", f"{prefix}-timestamp": str(at), f"{prefix}-signature": signature}
        # The library believes itself, or the test would prove nothing about it.
        if abs(datetime.datetime.now(tz=datetime.timezone.utc).timestamp() - at) < 200:
            library.Webhook(SECRET).verify(body, headers)
        yield {"scheme": scheme, "secret": SECRET, "headers": headers, "body": body}


def sendgrid(at, body):
    key = ec.generate_private_key(ec.SECP256R1())
    shown = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    signature = key.sign(f"{at}{body}".encode(), ec.ECDSA(hashes.SHA256()))
    headers = {
        "X-Twilio-Email-Event-Webhook-Signature": base64.b64encode(signature).decode(),
        "X-Twilio-Email-Event-Webhook-Timestamp": str(at),
    }
    yield {"scheme": "sendgrid", "secret": base64.b64encode(shown).decode(), "headers": headers, "body": body}


def sns(messages):
    root, leaf = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
    chain = certificate("sns.amazonaws.com", leaf, "Some Authority", root, False)
    chain += certificate("Some Authority", root, "Some Authority", root, True)
    for message in messages:
        for version, digest in [("1", hashes.SHA1()), ("2", hashes.SHA256())]:
            text = "".join(f"{name}\n{message[name]}\n" for name in NAMES if name in message)
            signature = leaf.sign(text.encode(), padding.PKCS1v15(), digest)
            body = dict(message, SignatureVersion=version, Signature=base64.b64encode(signature).decode())
            yield {"scheme": "sns" + version, "headers": {}, "body": json.dumps(body), "certificate": chain}


def main():
    given = json.load(sys.stdin)
    requests = [*webhooks(given["at"], given["body"]), *sendgrid(given["at"], given["body"]), *sns(given["sns"])]
    json.dump(requests, sys.stdout)


main()

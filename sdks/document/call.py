"""Sends an email with a client generated from openapi.json, and reads it back."""

import os

from mailonce_generated.api.emails import list_emails, read_email, send_email
from mailonce_generated.client import AuthenticatedClient
from mailonce_generated.models import SendBody

client = AuthenticatedClient(base_url=os.environ["MAILONCE_URL"], token=os.environ["MAILONCE_API_KEY"])
body = SendBody.from_dict(
    {"from": "bot@example.com", "to": "ada@example.com", "subject": "Generated client", "text": "It is on its way."}
)
answer = send_email.sync_detailed(client=client, body=body, idempotency_key="generated-python")
assert answer.status_code in (200, 202), answer
email = read_email.sync_detailed(answer.parsed.id, client=client)
assert email.status_code == 200 and email.parsed.subject == "Generated client", email
page = list_emails.sync_detailed(client=client, limit=1)
assert page.status_code == 200 and len(page.parsed.data) == 1, page
print(answer.parsed.id, email.parsed.state)

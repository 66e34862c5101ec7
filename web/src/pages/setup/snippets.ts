// Code to connect with this server. The same snippets are in the quickstarts.

export interface Snippet {
  name: string;
  label: string;
  note: string;
  /** `key` is a new API key, or the place for one. */
  text: (url: string, from: string, key: string) => string;
}

const curl = (url: string, from: string, key: string) => `export MAILONCE_API_KEY=${key}
curl -s ${url}/v1/emails \\
  -H "Authorization: Bearer $MAILONCE_API_KEY" -H 'Content-Type: application/json' -d '
  {"from": "${from}", "to": "ada@example.com", "subject": "Order 1001", "text": "Thank you.",
   "intent": {"type": "order.confirmation", "entity": "order_1001"}}'`;

const typescript = (url: string, from: string, key: string) => `// MAILONCE_URL=${url} MAILONCE_API_KEY=${key} node order.js
import { Mailonce } from "mailonce";

const mo = new Mailonce();
const sent = await mo.emails.send({
  from: "${from}",
  to: "ada@example.com",
  subject: "Order 1002",
  text: "Thank you.",
  intent: { type: "order.confirmation", entity: "order_1002" },
});
console.log(sent.dedupe.outcome, sent.id);`;

const python = (url: string, from: string, key: string) => `# MAILONCE_URL=${url} MAILONCE_API_KEY=${key} python order.py
from mailonce import Intent, Mailonce

with Mailonce() as mo:
    sent = mo.emails.send(
        from_="${from}",
        to="ada@example.com",
        subject="Order 1003",
        text="Thank you.",
        intent=Intent(type="order.confirmation", entity="order_1003"),
    )
    print(sent.dedupe.outcome, sent.id)`;

const mcp = (url: string, _from: string, key: string) => `{ "mcpServers": { "mailonce": {
    "url": "${url}/mcp",
    "headers": { "Authorization": "Bearer ${key}" } } } }`;

const resend = (url: string, from: string) => `import { Resend } from "resend";

const resend = new Resend(process.env.MAILONCE_API_KEY, { baseUrl: "${url}/compat/resend" });
await resend.emails.send(
  { from: "${from}", to: "ada@example.com", subject: "Order 1011", text: "Thank you." },
  { idempotencyKey: "order-1011" },
);`;

export const TRANSPORT_EXAMPLE = `# how email leaves
[[transports]]
name = "relay"
kind = "smtp"
host = "smtp.example.com"
username = "agents"
password_file = "/run/secrets/relay"`;

const smtp = () => `# mailonce.toml
[smtp]
listen = "0.0.0.0:25"
domains = ["agents.example.com"]     # where inboxes can be created; its MX record names this server

${TRANSPORT_EXAMPLE}`;

export const SNIPPETS: Snippet[] = [
  { name: "curl", label: "curl", note: "Run it twice: the second call gets the first email.", text: curl },
  { name: "typescript", label: "TypeScript", note: "The SDK retries by itself. An email without an intent or a key does not compile.", text: typescript },
  { name: "python", label: "Python", note: "The SDK retries by itself. AsyncMailonce is the same with await.", text: python },
  { name: "mcp", label: "MCP", note: "For clients that take an address. `mailonce mcp install` writes the configuration of the clients that it finds.", text: mcp },
  { name: "resend", label: "Resend SDK", note: "Code for Resend works with another base URL. An identical retry within 10 minutes is one mail even without a key.", text: resend },
  { name: "smtp", label: "SMTP", note: "Receive mail for inboxes, and send by your relay. Nothing leaves the machine until a transport is configured.", text: smtp },
];

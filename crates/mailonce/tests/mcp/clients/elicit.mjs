// The official npm clients send a mail that needs approval by a person. Clients that support URL elicitation are elicitations
// to open the approval page. Their own answer decides nothing.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { Client as ClientV1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as HttpV1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { StdioClientTransport as StdioV1 } from "@modelcontextprotocol/sdk/client/stdio.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { Client as ClientV2, StreamableHTTPClientTransport as HttpV2 } from "@modelcontextprotocol/client";
import { StdioClientTransport as StdioV2 } from "@modelcontextprotocol/client/stdio";

const { url, key, person, binary } = JSON.parse(readFileSync(0, "utf8"));
const clientInfo = { name: "mailonce-test", version: "1.0.0" };
const http = { requestInit: { headers: { Authorization: `Bearer ${key}` } } };
const stdio = { command: binary, args: ["mcp"], env: { MAILONCE_URL: new URL(url).origin, MAILONCE_API_KEY: key } };
const stateless = { versionNegotiation: { mode: { pin: "2026-07-28" } } };
const pages = { capabilities: { elicitation: { url: {} } } };
const forms = { capabilities: { elicitation: { form: {} } } };

const resolve = (page, key) =>
  fetch(`${new URL(url).origin}/v1/escalations/${page.split("/").pop()}/resolve`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ as: "release", rev: 1 }),
  });

// Name, client, its answer to the elicitation, how often it is elicitations, and the final status.
const runs = [
  ["http-accept", () => [new ClientV2(clientInfo, { ...stateless, ...pages }), new HttpV2(new URL(url), http)], "accept", 1, "approval"],
  ["http-decline", () => [new ClientV2(clientInfo, { ...stateless, ...pages }), new HttpV2(new URL(url), http)], "decline", 1, "approval"],
  ["http-cancel", () => [new ClientV2(clientInfo, { ...stateless, ...pages }), new HttpV2(new URL(url), http)], "cancel", 1, "approval"],
  ["http-decided", () => [new ClientV2(clientInfo, { ...stateless, ...pages }), new HttpV2(new URL(url), http)], "decide", 1, /^already_(accepted|sent)$/],
  ["stdio-accept", () => [new ClientV2(clientInfo, { ...stateless, ...pages }), new StdioV2(stdio)], "accept", 1, "approval"],
  ["http-forms", () => [new ClientV2(clientInfo, { ...stateless, ...forms }), new HttpV2(new URL(url), http)], "accept", 0, "approval"],
  ["http-nothing", () => [new ClientV2(clientInfo, stateless), new HttpV2(new URL(url), http)], null, 0, "approval"],
  ["http-old", () => [new ClientV1(clientInfo, pages), new HttpV1(new URL(url), http)], "accept", 0, "approval"],
  ["stdio-old", () => [new ClientV1(clientInfo, pages), new StdioV1(stdio)], "accept", 0, "approval"],
];

for (const [tag, create, action, times, status] of runs) {
  const [client, transport] = create();
  const elicitations = [];
  const answer = async request => {
    elicitations.push(request.params);
    if (action !== "decide") return { action };
    assert.equal((await resolve(request.params.url, key)).status, 403, "an agent key resolved the escalation");
    assert.equal((await resolve(request.params.url, person)).status, 200);
    return { action: "accept" };
  };
  const name = client instanceof ClientV1 ? ElicitRequestSchema : "elicitation/create";
  if (action) client.setRequestHandler(name, answer);
  await client.connect(transport);
  await client.listTools();
  const mail = { to: `ann-${tag}@people.test`, subject: "A refund", text: `Refund of ${tag}.`, type: "refund", entity: tag };
  const call = async () => (await client.callTool({ name: "send_email", arguments: mail })).structuredContent;
  const result = await call();
  assert.match(result.status, status instanceof RegExp ? status : new RegExp(`^${status}$`), JSON.stringify(result));
  assert.equal(elicitations.length, times, tag);
  for (const one of elicitations) {
    assert.equal(one.mode, "url");
    assert.match(one.url, /\/needs-you\/[0-9a-f-]{36}$/);
    assert.doesNotMatch(one.message, /ann-|Refund/);
    if (result.approval_url) assert.equal(one.url, result.approval_url);
  }
  if (status === "approval") {
    assert.match(result.next, /approval_url/);
    assert.equal(result.state, "held");
    const again = await call();
    assert.equal(again.email, result.email);
    assert.equal(again.state, "held");
  }
  const question = await client.callTool({ name: "ask_human", arguments: { entity: tag, question: "May I?" } });
  assert.equal(question.structuredContent.status, action === "decide" ? "resolved" : "open");
  // Asking the same question again does not elicit again.
  await client.callTool({ name: "ask_human", arguments: { entity: tag, question: "may I?" } });
  assert.equal(elicitations.length, times * 2, tag);
  await client.close();
  console.log(tag);
}

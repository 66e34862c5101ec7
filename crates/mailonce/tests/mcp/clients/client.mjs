// The official npm clients call every tool, over both transports and in both protocol revisions.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { Client as ClientV1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as HttpV1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { StdioClientTransport as StdioV1 } from "@modelcontextprotocol/sdk/client/stdio.js";
import { Client as ClientV2, StreamableHTTPClientTransport as HttpV2 } from "@modelcontextprotocol/client";
import { StdioClientTransport as StdioV2 } from "@modelcontextprotocol/client/stdio";
import { encode } from "gpt-tokenizer";

const { url, key, binary, data, tags } = JSON.parse(readFileSync(0, "utf8"));
const clientInfo = { name: "mailonce-test", version: "1.0.0" };
const http = { requestInit: { headers: { Authorization: `Bearer ${key}` } } };
const stdio = { command: binary, args: ["mcp", "--data", data] };
const stateless = { versionNegotiation: { mode: { pin: "2026-07-28" } } };

const runs = {
  "v1-http": () => [new ClientV1(clientInfo), new HttpV1(new URL(url), http)],
  "v1-stdio": () => [new ClientV1(clientInfo), new StdioV1(stdio)],
  "v2-http": () => [new ClientV2(clientInfo, stateless), new HttpV2(new URL(url), http)],
  "v2-stdio": () => [new ClientV2(clientInfo, stateless), new StdioV2(stdio)],
  "v2-old-http": () => [new ClientV2(clientInfo), new HttpV2(new URL(url), http)],
};

async function exercise(client, tag) {
  const called = new Set();
  const call = async (name, args, isError = false) => {
    called.add(name);
    const result = await client.callTool({ name, arguments: args });
    assert.equal(result.isError ?? false, isError, JSON.stringify(result));
    assert.deepEqual(JSON.parse(result.content[0].text), result.structuredContent);
    return result.structuredContent;
  };
  const { tools } = await client.listTools();
  assert.equal(tools.length, 10);
  for (const tool of tools) {
    for (const hint of ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"]) {
      assert.equal(typeof tool.annotations[hint], "boolean", `${tool.name} ${hint}`);
    }
    assert.ok(tool.outputSchema && tool.inputSchema && tool.description);
  }
  const tokens = encode(JSON.stringify(tools)).length;
  assert.ok(tokens < 2500, `${tokens} tokens`);

  const mail = { to: `ann-${tag}@people.test`, subject: "Your order", text: `Order of ${tag}.`, type: "order", entity: tag };
  const first = await call("send_email", mail);
  assert.equal(first.dedupe.outcome, "first");
  const again = await call("send_email", { ...mail, text: "In other words." });
  assert.equal(again.email, first.email);
  await call("send_email", { ...mail, type: undefined }, true);
  let outcome;
  for (let n = 0; n < 100 && outcome?.state !== "sent"; n++) {
    outcome = await call("get_outcome", { email: first.email });
    if (outcome.state !== "sent") await new Promise(done => setTimeout(done, 50));
  }
  assert.equal(outcome.status, "already_sent");
  assert.notEqual((await call("resend_email", { email: first.email, reason: "she lost it" })).email, first.email);

  const arrived = await call("wait_for_message", { from: `bob-${tag}@people.test` });
  assert.equal(arrived.status, "arrived");
  assert.equal((await call("find_messages", { from: `bob-${tag}@people.test` })).messages.length, 1);
  const read = await call("read_message", { message: arrived.message });
  assert.match(read.text, /^<<<untrusted mail [0-9a-f]+\n/);
  const { lease } = await call("claim_thread", { thread: arrived.thread, holder: tag });
  const reply = await call("reply_email", { message: arrived.message, text: "At nine.", lease });
  assert.equal(reply.status, "accepted");
  assert.equal((await call("reply_email", { message: arrived.message, text: "Nine!", lease })).status, "already_answered");
  await call("wait_for_message", { from: `no-reply-${tag}@shop.test`, has: "code" });
  const code = { type: "code", for: tag, from: `no-reply-${tag}@shop.test` };
  assert.equal((await call("take_artifact", code)).value, "402625");
  assert.equal((await call("take_artifact", { ...code, for: "another", timeout_s: 1 })).status, "none");
  assert.equal((await call("ask_human", { entity: tag, question: "May I?" })).status, "open");
  assert.equal(called.size, 10);
  return tokens;
}

for (const tag of tags) {
  const [client, transport] = runs[tag]();
  await client.connect(transport);
  const tokens = await exercise(client, tag);
  await client.close();
  console.log(`${tag} ${tokens}`);
}

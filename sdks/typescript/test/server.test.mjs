// What only a real server can show: notices that it signs, and leases that it gives to one at a time.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createServer } from "node:http";
import { test } from "node:test";
import { deriveKey, Mailonce, verifyWebhook } from "mailonce";

const { MAILONCE_BIN, MAILONCE_SMTP_LISTEN } = process.env;
const mo = new Mailonce();
const run = Math.random().toString(36).slice(2, 8);

test("a notice of the server is believed, and a forged one is not", async () => {
  let heard;
  const told = new Promise((resolve) => (heard = resolve));
  const receiver = createServer((request, response) => {
    const pieces = [];
    request.on("data", (piece) => pieces.push(piece));
    request.on("end", () => {
      heard({ body: Buffer.concat(pieces), headers: request.headers });
      response.writeHead(204).end();
    });
  });
  await new Promise((resolve) => receiver.listen(0, "127.0.0.1", resolve));
  const endpoint = await mo.webhooks.create({ url: `http://127.0.0.1:${receiver.address().port}/` });
  await mo.webhooks.test(endpoint.id);
  const { body, headers } = await told;
  assert.equal(verifyWebhook(body, headers, endpoint.secret).type, "endpoint.test");
  assert.equal(mo.webhooks.verify(body, new Headers(headers), ["whsec_AAAA", endpoint.secret]).type, "endpoint.test");
  const forged = Buffer.from(body.toString().replace("endpoint", "endpoInt"));
  assert.throws(() => verifyWebhook(forged, headers, endpoint.secret), { code: "bad_signature" });
  assert.equal((await mo.webhooks.delete(endpoint.id)).id, endpoint.id);
  receiver.close();
  receiver.closeAllConnections();
});

test("a thread is worked on by one at a time, for longer than a lease lasts", async () => {
  const desk = `lease-${run}@mailonce.test`;
  await mo.inboxes.create({ username: `lease-${run}` });
  const words = ["--to", desk, "--from", "ann@example.com", "--text", "Hello?", "--smtp", MAILONCE_SMTP_LISTEN];
  execFileSync(MAILONCE_BIN, ["simulate", "inbound", ...words]);
  const { message } = await mo.inboxes.wait(desk, { timeout: 10 });
  await mo.threads.withLease(message.thread_id, { ttl_s: 1, holder: "one" }, async (lease) => {
    await new Promise((resolve) => setTimeout(resolve, 1600));
    assert.equal(lease.signal.aborted, false);
    await assert.rejects(mo.threads.lease(message.thread_id, { holder: "two" }), { code: "leased", retry: "later" });
    await mo.messages.reply(message.id, { text: "Hello.", lease: lease.token });
  });
  // Without a wish the work comes next, and the lease is given back however it ends.
  const held = await mo.threads.withLease(message.thread_id, async (lease) => lease.holder);
  assert.equal(typeof held, "string");
  const failing = mo.threads.withLease(message.thread_id, () => Promise.reject(new Error("no")), { timeoutMs: 5000 });
  await assert.rejects(failing, /^Error: no$/);
  const other = await mo.threads.lease(message.thread_id, { holder: "two" });
  assert.ok(other.fence >= 2);
  await other.release();
});

test("the key that is derived here is the key there, and other calls are made by request", async () => {
  const intent = { type: "größe", entity: `№ ${run}`, period: "2026-W46" };
  const to = ["Zoë <ZOE@BÜCHER.example>", "ada@Example.com"];
  const sent = await mo.emails.send({ from: "agent@mailonce.test", to, subject: "s", text: "t", intent });
  assert.equal(sent.dedupe.key, deriveKey(intent, to));
  const found = await mo.request("GET", `/v1/keys/${sent.dedupe.key}`);
  assert.equal(found.key, sent.dedupe.key);
});

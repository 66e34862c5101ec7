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
  // Without options the work is the next argument, and the lease is released however it ends.
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

test("a call outlasts a restart, with the same key and the same bytes", async () => {
  const seen = [];
  const server = createServer((request, response) => {
    const pieces = [];
    request.on("data", (piece) => pieces.push(piece));
    request.on("end", () => {
      seen.push([request.headers["idempotency-key"], Buffer.concat(pieces).toString()]);
      if (seen.length === 1) return request.socket.destroy();
      response.writeHead(200, { "content-type": "application/json" }).end('{"id":"i-1"}');
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve)); // down
  const client = new Mailonce({ baseUrl: `http://127.0.0.1:${port}`, apiKey: "k", backoffMs: 15 });
  const created = client.inboxes.create({ username: "größe" });
  await new Promise((resolve) => setTimeout(resolve, 2000));
  await new Promise((resolve) => server.listen(port, "127.0.0.1", resolve)); // up again
  assert.equal((await created).id, "i-1");
  assert.equal(seen.length, 2);
  assert.deepEqual(seen[0], seen[1]);
  assert.match(seen[0][0], /^sdk_/);
  server.close();
  server.closeAllConnections();
});

/** The pauses of a call that is never answered, or always with the response of `fetch`, and its error. */
async function pausesOf(context, random, fetch) {
  const pauses = [];
  context.mock.method(Math, "random", () => random);
  const wait = globalThis.setTimeout;
  const quick = (done, ms, ...more) => {
    // Timers with arguments are those of Node itself, and the time limit of a try is no pause.
    if (more.length > 0 || ms === 10_000) return wait(done, ms, ...more);
    pauses.push(ms);
    return wait(done, 0);
  };
  context.mock.method(globalThis, "setTimeout", quick);
  const mo = new Mailonce({ apiKey: "k", baseUrl: "http://127.0.0.1:9", fetch });
  const error = await mo.emails.get("e-1").then(assert.fail, (thrown) => thrown);
  context.mock.restoreAll();
  return { pauses, sum: pauses.reduce((sum, ms) => sum + ms, 0), error };
}

const unavailable = (retryAfter) => async () =>
  new Response("{}", { status: 503, headers: { "retry-after": retryAfter } });

test("the usual pauses add up to more than thirty seconds, and to less than seventy", async (context) => {
  const refused = () => Promise.reject(new TypeError("connection refused"));
  const url = "http://127.0.0.1:9/v1/emails/e-1";
  // The server says 1 while its database restarts, and a proxy may say 0.
  for (const fetch of [refused, unavailable("0"), unavailable("1")]) {
    for (const [random, least, most] of [
      [0, 60_000, 70_000],
      [0.999999, 30_000, 40_000],
    ]) {
      const { sum, error } = await pausesOf(context, random, fetch);
      assert.ok(sum >= least && sum <= most, `${sum} ms`);
      // The address is told: a forgotten MAILONCE_URL is the commonest reason.
      assert.deepEqual([error.code, error.url], [fetch === refused ? "no_answer" : "no_problem", url]);
      assert.ok(error.message.includes(`(${url}); next: `), error.message);
    }
  }
});

test("a pause is never shorter than Retry-After", async (context) => {
  const { pauses } = await pausesOf(context, 0, unavailable("30"));
  assert.deepEqual(pauses, Array(12).fill(30_000));
});

test("an error says what is wrong, what to do, and where to read more", async () => {
  const wrong = mo.emails.send(
    { from: "agent@mailonce.test", to: "nobody", text: "t" },
    { idempotencyKey: `w-${run}` },
  );
  const error = await wrong.then(assert.fail, (thrown) => thrown);
  assert.equal(error.field, "to[0]");
  assert.equal(error.url, `${process.env.MAILONCE_URL}/v1/emails`);
  assert.equal(error.docsUrl, `${process.env.MAILONCE_URL}/docs/errors/${error.code}`);
  assert.equal((await fetch(error.docsUrl)).status, 200);
  assert.equal(
    error.message,
    `${error.code}: ${error.detail} (${error.url}, see ${error.docsUrl}); next: ${error.next}`,
  );
  assert.ok(error.detail && error.next);
});

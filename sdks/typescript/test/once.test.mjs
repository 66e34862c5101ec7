// `once` against a real server: one run, its result for everybody, and what is known after a crash.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createServer } from "node:http";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Mailonce, MailonceError, onceTool } from "mailonce";

const { MAILONCE_FAULT_PROXY: CONTROL, MAILONCE_URL: SERVER } = process.env;
const mo = new Mailonce();
const run = Math.random().toString(36).slice(2, 8);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const claimOf = async (key) => (await mo.request("GET", `/v1/claims?key=${encodeURIComponent(key)}`)).data[0];

/** A server with these answers in this order, and the calls that it gets. */
async function scripted(t, ...answers) {
  const calls = [];
  const server = createServer(async (request, response) => {
    let text = "";
    for await (const bytes of request) text += bytes;
    calls.push({ verb: request.url.split("/").pop(), body: JSON.parse(text) });
    const [status, body] = answers.shift();
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.closeAllConnections() ?? server.close());
  return { calls, client: new Mailonce({ baseUrl: `http://127.0.0.1:${server.address().port}`, apiKey: "k" }) };
}

/** What a caller gets that has the claim. */
const won = { id: "c1", state: "begun", token: "ct_1", key: "k", fence: 1, downstream_key: "cl_1", may_repeat: false };

/** A claim whose holder was lost, and which a person freed. */
async function freed(key) {
  await mo.request("POST", "/v1/claims", { key, lease_s: 1 });
  for (;;) {
    const claim = await claimOf(key);
    if (claim.state === "unknown") {
      return mo.request("POST", `/v1/claims/${claim.id}/resolve`, { as: "retry", rev: claim.rev });
    }
    await sleep(50);
  }
}

test("a caller that waits across a boundary keeps its period", async (t) => {
  const busy = { code: "busy", status: 409, detail: "d", retry: "later", retry_after: 1, period: "2026-11-18" };
  const { calls, client } = await scripted(t, [409, busy], [200, { id: "c1", state: "completed", result: 7 }]);
  const intent = { type: "digest", entity: "e", period: { every: "day" } };
  assert.equal(await client.once(intent, () => assert.fail("it ran"), { wait: true }), 7);
  const periods = calls.map(({ body }) => body.intent.period);
  assert.deepEqual(periods, [{ every: "day" }, "2026-11-18"]);
});

test("what the server cannot read or store does not keep a completion from it", async (t) => {
  for (const [status, code] of [
    [400, "invalid_json"],
    [413, "too_large"],
    [422, "invalid_field"],
  ]) {
    const refused = [status, { code, status, detail: "d", retry: "never" }];
    const { calls, client } = await scripted(t, [201, won], refused, [200, {}]);
    assert.equal(await client.once("k", async () => "big"), "big");
    assert.deepEqual(calls.slice(1), [
      { verb: "complete", body: { token: "ct_1", result: "big" } },
      { verb: "complete", body: { token: "ct_1" } },
    ]);
  }
  // Half of an emoji, against the real server.
  const half = "😀".slice(0, 1);
  assert.equal(await mo.once(`half-${run}`, async () => half), half);
  assert.equal((await claimOf(`half-${run}`)).state, "completed");
  const failed = mo.once(`half-failed-${run}`, () => Promise.reject(new Error(half)));
  await assert.rejects(failed, { message: half });
  assert.equal((await claimOf(`half-failed-${run}`)).state, "failed");
});

test("a run that may be a repeat is looked up first", async () => {
  await Promise.all(["missing", "found"].map((name) => freed(`repeat-${name}-${run}`)));
  const broken = { verify: () => Promise.reject(new Error("billing is down")) };
  const never = () => assert.fail("it ran");
  await assert.rejects(mo.once(`repeat-missing-${run}`, never, broken), { code: "unknown" });
  const missing = { verify: async () => null };
  assert.equal(await mo.once(`repeat-missing-${run}`, async ({ mayRepeat }) => mayRepeat, missing), true);
  const found = { verify: async () => ({ result: 17 }) };
  assert.equal(await mo.once(`repeat-found-${run}`, never, found), 17);
  assert.equal(await mo.once(`repeat-found-${run}`, never), 17);
});

test("twenty concurrent callers run the function once and get its result", async () => {
  let runs = 0;
  const callers = Array.from({ length: 20 }, () =>
    new Mailonce().once(
      `crowd-${run}`,
      async () => {
        await sleep(300);
        return { invoice: ++runs };
      },
      { wait: true },
    ),
  );
  assert.deepEqual(await Promise.all(callers), Array(20).fill({ invoice: 1 }));
  assert.equal(runs, 1);
});

test("a duplicate gets the stored result, and the first caller the same", async () => {
  const work = async ({ key, fence, downstreamKey, mayRepeat }) => {
    assert.deepEqual([key, fence, mayRepeat], [`replay-${run}`, 1, false]);
    assert.match(downstreamKey, /^cl_[0-9a-f]{40}$/);
    return { at: new Date(0), nothing: undefined };
  };
  const first = await mo.once(`replay-${run}`, work);
  assert.deepEqual(first, { at: "1970-01-01T00:00:00.000Z" });
  const never = () => assert.fail("it ran again");
  assert.deepEqual(await mo.once(`replay-${run}`, never), first);
  assert.equal(await mo.once(`void-${run}`, async () => undefined), null);
  assert.equal(await mo.once(`void-${run}`, never), null);
});

test("while another caller runs it, busy says when to ask again; wait has an end", async () => {
  let end;
  const running = mo.once(`busy-${run}`, () => new Promise((resolve) => (end = resolve)), { label: "first" });
  while (end === undefined) await sleep(20);
  await assert.rejects(
    mo.once(`busy-${run}`, async () => 2),
    (error) => {
      assert.deepEqual([error.code, error.retry, error.details.label], ["busy", "later", "first"]);
      return error.details.retry_after > 0;
    },
  );
  const from = Date.now();
  await assert.rejects(
    mo.once(`busy-${run}`, async () => 2, { wait: 1 }),
    { code: "busy" },
  );
  assert.ok(Date.now() - from < 1500);
  const signal = AbortSignal.timeout(300);
  await assert.rejects(
    mo.once(`busy-${run}`, async () => 2, { wait: true, signal }),
    { code: "aborted" },
  );
  end(1);
  assert.equal(await running, 1);
});

test("a process that is killed inside its function leaves the claim unknown, and verify settles it", async () => {
  const key = `killed-${run}`;
  const child = spawn(process.execPath, [fileURLToPath(new URL("once-child.mjs", import.meta.url)), key]);
  const passed = await new Promise((resolve) => child.stdout.once("data", (bytes) => resolve(String(bytes).trim())));
  child.kill("SIGKILL");
  const never = () => assert.fail("it ran again");
  const says = (error) => {
    assert.equal(error.code, "unknown");
    assert.match(error.next, /Do not do it again.*verify.*mailonce claims resolve [0-9a-f-]{36}/);
    return true;
  };
  await assert.rejects(mo.once(key, never, { wait: true }), says);
  const asked = [];
  const missing = async ({ downstreamKey }) => {
    asked.push(downstreamKey);
    return null;
  };
  await assert.rejects(mo.once(key, never, { verify: missing }), says);
  const cause = new Error("billing is down");
  await assert.rejects(mo.once(key, never, { verify: () => Promise.reject(cause) }), { code: "unknown", cause });
  const claim = await claimOf(key);
  assert.deepEqual([claim.state, claim.evidence.map(({ says }) => says)], ["unknown", ["not_found"]]);
  const verify = async ({ id }) => ({ result: { invoice: 17, claim: id } });
  assert.deepEqual(await mo.once(key, never, { verify }), { invoice: 17, claim: claim.id });
  assert.deepEqual(await mo.once(key, never), { invoice: 17, claim: claim.id });
  assert.deepEqual(asked, [passed]);
});

test("the lease is renewed while the function runs", async () => {
  const key = `long-${run}`;
  const work = async ({ signal }) => {
    await sleep(2600);
    await assert.rejects(
      mo.once(key, async () => 2),
      { code: "busy" },
    );
    return signal.aborted;
  };
  assert.equal(await mo.once(key, work, { leaseS: 1 }), false);
  const claim = await claimOf(key);
  assert.deepEqual([claim.state, claim.corrected, claim.completions], ["completed", false, 1]);
});

test("a decision about the claim fires the signal, and the end is recorded all the same", async () => {
  const key = `decided-${run}`;
  const work = async ({ id, signal }) => {
    await mo.request("POST", `/v1/claims/${id}/evidence`, { says: "done" });
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
    assert.equal(signal.reason.code, "claim_ended");
    return 7;
  };
  assert.equal(await mo.once(key, work, { leaseS: 1 }), 7);
  assert.equal(await mo.once(key, () => assert.fail("it ran again")), 7);
});

test("a repeated run does not repeat its finished steps", async () => {
  const ran = [];
  const work = async (workflow) => {
    const customer = await workflow.step("customer", async () => (ran.push("customer"), { id: 5 }));
    const invoice = await workflow.step("invoice", async (step) => {
      ran.push("invoice");
      if (ran.length === 2) throw new Error("not yet");
      return step.step("number", async () => customer.id + 1);
    });
    return { customer, invoice };
  };
  const options = { onError: () => "retry" };
  await assert.rejects(mo.once(`steps-${run}`, work, options), /^Error: not yet$/);
  assert.deepEqual(await mo.once(`steps-${run}`, work, options), { customer: { id: 5 }, invoice: 6 });
  assert.deepEqual(ran, ["customer", "invoice", "invoice"]);
  await mo.once(`other-${run}`, work, options);
  assert.equal(ran.length, 5, "the steps of another key are other steps");
});

test("a step is not forgotten by the short ttl of its run", async (t) => {
  const { calls, client } = await scripted(t, [201, won], [201, won], [200, {}], [200, {}]);
  const options = { ttl: "notification", onUnknown: "retry" };
  assert.equal(await client.once("k", (workflow) => workflow.step("customer", async () => 5), options), 5);
  const asked = calls.filter(({ verb }) => verb === "claims").map(({ body }) => [body.ttl, body.on_unknown]);
  assert.deepEqual(asked, [
    ["notification", "retry"],
    [undefined, "retry"],
  ]);
});

test("an error is final unless onError says that nothing happened", async () => {
  const boom = async () => {
    throw new Error("card declined");
  };
  await assert.rejects(mo.once(`failed-${run}`, boom), /^Error: card declined$/);
  await assert.rejects(
    mo.once(`failed-${run}`, async () => 1),
    (error) => {
      assert.equal(error.code, "claim_failed");
      assert.match(error.message, /card declined/);
      return /another key/.test(error.next);
    },
  );
  await assert.rejects(mo.once(`free-${run}`, boom, { onError: () => "retry" }), /card declined/);
  assert.equal(await mo.once(`free-${run}`, async ({ fence }) => fence), 2);
  // A call that may still succeed proves nothing.
  const lost = async () => {
    throw new MailonceError({ code: "no_answer", detail: "d", next: "n", retry: "same" });
  };
  await assert.rejects(mo.once(`lost-${run}`, lost, { leaseS: 1 }), { code: "no_answer" });
  await assert.rejects(
    mo.once(`lost-${run}`, async () => 1, { wait: 5 }),
    { code: "unknown" },
  );
});

test("a claim that begins later is free again until then", async () => {
  const later = { begin: "later" };
  await assert.rejects(
    mo.once(`later-${run}`, () => Promise.reject(new Error("prepare")), later),
    /prepare/,
  );
  const work = async (prepared) => {
    assert.equal(prepared.begun, false);
    await prepared.begin();
    throw new Error("effect");
  };
  await assert.rejects(mo.once(`later-${run}`, work, later), /effect/);
  await assert.rejects(
    mo.once(`later-${run}`, async () => 1, later),
    { code: "claim_failed" },
  );
});

test("another fingerprint under the key is refused", async () => {
  await mo.once(`print-${run}`, async () => 1, { fingerprint: "100 EUR" });
  const other = mo.once(`print-${run}`, async () => 2, { fingerprint: "200 EUR" });
  await assert.rejects(other, { code: "key_mismatch", status: 422, retry: "never" });
});

test("a claim by request has no key but its own", async () => {
  const body = { key: `request-${run}`, lease_s: 1 };
  assert.equal((await mo.request("POST", "/v1/claims", body)).key, body.key);
});

test("the period of an intent comes from the server", async () => {
  const intent = { type: "digest", entity: run, period: { every: "day", time_zone: "Europe/Berlin" } };
  assert.match(await mo.once(intent, async ({ period }) => period), /^\d{4}-\d\d-\d\d$/);
});

test("answers are lost, and the function runs once", async () => {
  for (const fault of ["lose", "cut", "late503"]) {
    const body = JSON.stringify({ to: SERVER, faults: [fault, fault, null, fault] });
    const proxy = await (await fetch(`${CONTROL}/proxy`, { method: "POST", body })).json();
    const client = new Mailonce({ baseUrl: proxy.url, backoffMs: 5, timeoutMs: 600 });
    let runs = 0;
    assert.equal(await client.once(`${fault}-${run}`, async () => ++runs), 1);
    const claim = await claimOf(`${fault}-${run}`);
    assert.deepEqual([claim.state, claim.fence, claim.completions], ["completed", 1, 1]);
  }
});

test("a result that is no JSON is an error, and the function does not run again", async () => {
  await assert.rejects(
    mo.once(`bigint-${run}`, async () => 1n),
    TypeError,
  );
  assert.equal(await mo.once(`bigint-${run}`, () => assert.fail("it ran again")), null);
});

test("a tool runs once for each key, and refusals are values", async () => {
  const ran = [];
  const tool = {
    description: "Refunds an order.",
    execute: async ({ order }, { toolCallId, once }) => {
      ran.push([order, toolCallId, once.key]);
      if (order === "none") throw new Error("no such order");
      return { refunded: order };
    },
  };
  const safe = onceTool(mo, tool, { key: ({ order }) => `refund-${order}-${run}` });
  assert.equal(safe.description, tool.description);
  assert.deepEqual(await safe.execute({ order: "7" }, { toolCallId: "call_1" }), { refunded: "7" });
  assert.deepEqual(await safe.execute({ order: "7" }, { toolCallId: "call_2" }), { refunded: "7" });
  assert.deepEqual(ran, [["7", "call_1", `refund-7-${run}`]]);
  await assert.rejects(safe.execute({ order: "none" }, {}), /no such order/);
  const refused = await safe.execute({ order: "none" }, {});
  assert.deepEqual([refused.status, refused.code], ["refused", "claim_failed"]);
  const bare = onceTool(mo, async ({ order }) => ran.push(order), { key: ({ order }) => `bare-${order}-${run}` });
  assert.deepEqual([await bare({ order: "8" }), await bare({ order: "8" })], [3, 3]);
  assert.throws(() => onceTool(mo, {}, { key: () => "k" }), TypeError);
});

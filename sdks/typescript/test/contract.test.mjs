// Plays sdks/contract: the same scenarios as every other SDK.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { deriveKey, Mailonce, MailonceError, stepKey, verifyWebhook } from "mailonce";
import { fits, make } from "./play.mjs";

const CONTRACT = process.env.MAILONCE_CONTRACT ?? new URL("../../contract", import.meta.url).pathname;
const read = (name) => JSON.parse(readFileSync(`${CONTRACT}/${name}.json`, "utf8"));
let server, url;

before(async () => {
  server = spawn("python3", [`${CONTRACT}/server.py`], { stdio: ["pipe", "pipe", "inherit"] });
  url = await new Promise((resolve) => server.stdout.once("data", (data) => resolve(String(data).trim())));
});
after(() => server.stdin.end());

for (const file of ["calls", "retries", "streams"]) {
  const { answers, scenarios } = read(file);
  for (const scenario of scenarios) {
    test(`${file}: ${scenario.name}`, async () => {
      const play = await (
        await fetch(`${url}/play`, { method: "POST", body: JSON.stringify({ answers, server: scenario.server }) })
      ).json();
      const mo = new Mailonce({
        baseUrl: play.base,
        apiKey: "contract-key",
        backoffMs: 1,
        maxRetries: scenario.client?.max_retries ?? 4,
        timeoutMs: scenario.client?.timeout_ms ?? 5000,
      });
      let result, error;
      try {
        result = await make(mo, scenario.call, scenario.args);
      } catch (thrown) {
        error = thrown;
      }
      const seen = await (await fetch(play.seen)).json();
      if (error !== undefined && scenario.error === undefined) throw error;
      assert.deepEqual(seen, { faults: [], left: 0 });
      if (scenario.error === undefined) return fits(scenario.result, result);
      assert.ok(error instanceof MailonceError, `${error} is no MailonceError`);
      fits(scenario.error, error, "error");
    });
  }
}

for (const vector of read("keys")) {
  test(`keys: ${vector.name}`, () => {
    if (vector.key) return assert.equal(deriveKey(vector.intent, vector.to), vector.key);
    assert.throws(() => deriveKey(vector.intent, vector.to), { code: "invalid_field", field: vector.invalid });
  });
}

for (const vector of read("steps")) {
  test(`steps: ${vector.name}`, () => assert.equal(stepKey(vector.parent, vector.step), vector.key));
}

for (const vector of read("webhooks")) {
  test(`webhooks: ${vector.name}`, () => {
    const verify = () =>
      verifyWebhook(vector.body, vector.headers, vector.secret, { now: new Date(vector.now * 1000) });
    if (vector.event) return fits(vector.event, verify());
    assert.throws(verify, { code: vector.error });
  });
}

test("a call can be ended from outside at any time, and says why in the SDK's own error", async () => {
  const busy = { answer: { status: 503, headers: { "retry-after": "30" }, body: {} } };
  const aborting = (reason) => () => {
    const control = new AbortController();
    setTimeout(() => control.abort(reason), 50);
    return control.signal;
  };
  for (const [moment, server, begin, name] of [
    ["before", [], () => AbortSignal.abort(), "AbortError"],
    ["while it waits for the answer", [{ fault: "hang" }], aborting(), "AbortError"],
    ["by a limit of the caller", [{ fault: "hang" }], () => AbortSignal.timeout(50), "TimeoutError"],
    ["for a reason of the caller", [{ fault: "hang" }], aborting(new RangeError("enough")), "RangeError"],
    ["between two tries", [busy], aborting(), "AbortError"],
  ]) {
    const play = await (await fetch(`${url}/play`, { method: "POST", body: JSON.stringify({ server }) })).json();
    const mo = new Mailonce({ baseUrl: play.base, apiKey: "contract-key" });
    const signal = begin();
    const sending = mo.emails.send({ from: "a@x", to: "b@x", text: "t" }, { idempotencyKey: "k", signal });
    const error = await sending.then(assert.fail, (thrown) => thrown);
    assert.ok(error instanceof MailonceError, `${moment}: ${error}`);
    assert.deepEqual([error.code, error.retry, error.cause], ["aborted", "same", signal.reason], moment);
    assert.equal(error.cause.name, name, moment);
    assert.ok(error.message.includes(error.cause.message), moment);
  }
});

test("a limit of time of its own is no answer, and has the cause too", async () => {
  const server = [{ fault: "hang" }];
  const play = await (await fetch(`${url}/play`, { method: "POST", body: JSON.stringify({ server }) })).json();
  const mo = new Mailonce({ baseUrl: play.base, apiKey: "contract-key", timeoutMs: 50, maxRetries: 0 });
  const sending = mo.emails.send({ from: "a@x", to: "b@x", text: "t" }, { idempotencyKey: "k" });
  const error = await sending.then(assert.fail, (thrown) => thrown);
  assert.ok(error instanceof MailonceError);
  assert.deepEqual([error.code, error.retry], ["no_answer", "same"]);
  assert.ok(error.cause instanceof DOMException);
});

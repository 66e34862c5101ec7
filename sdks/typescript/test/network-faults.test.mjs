// Through a proxy that loses answers after the commit, delays, resets and answers 503: one mail at the sink of a real
// server, and one success for the caller. Needs MAILONCE_FAULT_PROXY (sdks/contract/network_faults.py), MAILONCE_URL and a key.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { Mailonce } from "mailonce";

const { MAILONCE_FAULT_PROXY: CONTROL, MAILONCE_URL: SERVER, MAILONCE_BIN, MAILONCE_SMTP_LISTEN } = process.env;
const FAULTS = ["refuse", "503", "lose", "reset", "cut", "delay", "late503"];
const run = Math.random().toString(36).slice(2, 8);

async function told(path, body) {
  return (await fetch(CONTROL + path, body && { method: "POST", body: JSON.stringify(body) })).json();
}

async function through(faults) {
  const proxy = await told("/proxy", { to: SERVER, faults });
  const mo = new Mailonce({ baseUrl: proxy.url, backoffMs: 5, timeoutMs: 600, maxRetries: faults.length + 3 });
  return { mo, state: () => told(`/proxy/${proxy.number}`) };
}

/** Looks until the sink has a mail for `to`, then a while longer whether it gets another. */
async function mailsFor(to) {
  for (let tries = 0; tries < 100; tries++) {
    if ((await told(`/mails?to=${encodeURIComponent(to)}`)).count > 0) break;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  await new Promise((resolve) => setTimeout(resolve, 150));
  return (await told(`/mails?to=${encodeURIComponent(to)}`)).count;
}

const mail = (to) => ({ from: "agent@mailonce.test", to, subject: "Order", text: "Thank you." });

for (const fault of FAULTS) {
  test(`${fault}: an intent, a key and a batch`, async () => {
    const [one, two, three] = ["a", "b", "c"].map((name) => `${name}-${fault}-${run}@example.com`);
    const faults = [fault, fault];
    const intent = await through(faults);
    const sent = await intent.mo.emails.send({ ...mail(one), intent: { type: "order", entity: `${fault}-${run}` } });
    assert.equal((await intent.state()).left, 0);
    const keyed = await through(faults);
    await keyed.mo.emails.send(mail(two), { idempotencyKey: `${fault}-${run}` });
    const batch = await through(faults);
    const { data } = await batch.mo.emails.batch([mail(three)], { idempotencyKey: `batch-${fault}-${run}` });
    assert.deepEqual(await Promise.all([one, two, three].map(mailsFor)), [1, 1, 1]);
    assert.notEqual(sent.id, data[0].id);
  });
}

test("a message is answered once, and work is taken once", async () => {
  const plain = new Mailonce();
  const desk = `ts-${run}@mailonce.test`;
  const person = `person-${run}@example.com`;
  const { mo } = await through(["lose", "reset", "late503"]);
  const inbox = await mo.inboxes.create({ username: `ts-${run}` });
  assert.equal(inbox.address, desk);
  execFileSync(MAILONCE_BIN, [
    "simulate",
    "inbound",
    "--to",
    desk,
    "--from",
    person,
    "--text",
    "When?",
    "--smtp",
    MAILONCE_SMTP_LISTEN,
  ]);
  await plain.inboxes.wait(desk, { timeout: 10 });
  const taking = await through(["lose", "cut"]);
  const [offer] = await taking.mo.inboxes.next(desk, { ttl_s: 60 });
  const answering = await through(["lose", "delay", "late503"]);
  const first = await answering.mo.messages.reply(offer.message.id, { text: "At nine.", lease: offer.lease.token });
  const acking = await through(["lose", "reset"]);
  await acking.mo.messages.ack(offer.message.id, { lease: offer.lease.token });
  const again = await plain.messages.reply(offer.message.id, { text: "At nine o'clock." });
  assert.equal(again.id, first.id);
  assert.equal(await mailsFor(person), 1);
});

test("forty callers of one intent, each with its own network faults", async () => {
  const to = `crowd-${run}@example.com`;
  const sends = Array.from({ length: 40 }, async (_, n) => {
    const { mo } = await through([FAULTS[n % FAULTS.length], FAULTS[(n * 3 + 1) % FAULTS.length]]);
    return mo.emails.send({ ...mail(to), intent: { type: "crowd", entity: run } }, { timeoutMs: 2000 });
  });
  const ids = new Set((await Promise.all(sends)).map((sent) => sent.id));
  assert.equal(ids.size, 1);
  assert.equal(await mailsFor(to), 1);
});

test("a loop of work answers each message once, and the stream tells of each once", async () => {
  const desk = `loop-${run}@mailonce.test`;
  const mo = new Mailonce();
  await mo.inboxes.create({ username: `loop-${run}` });
  const people = ["x", "y", "z"].map((name) => `${name}-${run}@example.com`);
  const control = new AbortController();
  const seen = [];
  const listening = (async () => {
    for await (const event of mo.events.stream({ type: "message.received" }, { signal: control.signal }))
      seen.push(event.cursor);
  })();
  await new Promise((resolve) => setTimeout(resolve, 300));
  for (const person of people)
    execFileSync(MAILONCE_BIN, [
      "simulate",
      "inbound",
      "--to",
      desk,
      "--from",
      person,
      "--text",
      "Help",
      "--smtp",
      MAILONCE_SMTP_LISTEN,
    ]);
  let done = 0;
  await mo.inboxes.work(
    desk,
    async (message, lease) => {
      await mo.messages.reply(message.id, { text: "Coming.", lease: lease.token });
      if (++done === people.length) control.abort();
    },
    { signal: control.signal },
  );
  await listening;
  assert.deepEqual(await Promise.all(people.map(mailsFor)), [1, 1, 1]);
  assert.equal(new Set(seen).size, 3);
  assert.equal((await mo.inboxes.messages(desk, { state: "answered" })).data.length, 3);
});

// The test kit on the code it is for: the run-twice and the crash tests, and that they fail for code that is not safe.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { Double, expectSentOnce } from "mailonce/testing";

const mail = (lead) => ({ from: "agent@mailonce.test", to: `${lead}@example.com`, subject: "Hello", text: "…" });
const followUp = (mo, lead) => mo.emails.send({ ...mail(lead), intent: { type: "follow-up", entity: lead } });
const careless = (mo, lead) => mo.emails.send(mail(lead), { idempotencyKey: randomUUID() });

test("run twice", async () => {
  const double = new Double();
  await followUp(double.client(), "lead_8821");
  await followUp(double.client(), "lead_8821");
  expectSentOnce(double);
});

test("a crash after the commit", async () => {
  const double = new Double();
  await double.crash(() => followUp(double.client(), "lead_8821"));
  await followUp(double.client(), "lead_8821");
  expectSentOnce(double, { intent: { entity: "lead_8821" } });
});

test("a lost answer and a refusal are tried again", async () => {
  const double = new Double().loseAnswers(1).refuse(1);
  await followUp(double.client(), "lead_8821");
  assert.equal(double.calls, 3);
  expectSentOnce(double, { to: "lead_8821@example.com" });
});

test("careless code is found out", async () => {
  const double = new Double();
  await careless(double.client(), "lead_8821");
  await careless(double.client(), "lead_8821");
  assert.throws(() => expectSentOnce(double), /2 mails went out, wanted 1/);
  assert.throws(() => expectSentOnce(double, { to: "nobody@example.com" }), /0 mails went out/);
});

test("work that swallows its failure is found out", async () => {
  await assert.rejects(
    new Double().crash(() => undefined),
    /ended well/,
  );
});

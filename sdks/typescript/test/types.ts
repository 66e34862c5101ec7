// What must compile, and what must not: checked by `tsc --strict` against the packed package. A line that is expected to
// be wrong and compiles is an error.

import { deriveKey, Mailonce, MailonceError, onceTool, verifyWebhook, type SendReceipt } from "mailonce";
import { Double, expectSentOnce } from "mailonce/testing";

declare const mo: Mailonce;
const mail = { from: "a@example.com", to: "b@example.com", subject: "s", text: "t" };
const intent = { type: "order.confirmation", entity: "order_4821" };

export async function compiles(): Promise<SendReceipt> {
  await mo.emails.send({ ...mail, intent });
  await mo.emails.send({ ...mail, intent: { ...intent, version: 2, period: "2026-W46" } }, { wait: 5 });
  await mo.emails.send(mail, { idempotencyKey: "order-4821" });
  await mo.emails.send({ ...mail, intent }, { idempotencyKey: "order-4821" });
  await mo.emails.send(mail, { withoutKey: true });
  await mo.emails.batch([{ ...mail, intent }]);
  await mo.emails.batch([mail], { idempotencyKey: "digest-46" });
  await mo.messages.reply("m", { text: "At nine." });
  await mo.emails.list({ state: "unknown", limit: 5 });
  await mo.inboxes.messages("i", { has: "code", state: "unanswered" });
  await mo.webhooks.notices("e", { state: "dead", type: "email.sent" });
  const code: string | null | undefined = (await mo.inboxes.consume("i", { type: "code", for: "signup-7" })).value;
  for await (const event of mo.events.stream({ after: "0" })) console.log(event.type, event.cursor, code);
  await mo.threads.withLease("t", { ttl_s: 30 }, async (lease) => lease.signal.aborted, { timeoutMs: 1000 });
  const lost: boolean = await mo.threads.withLease("t", async (lease) => lease.signal.aborted, { timeoutMs: 1000 });
  if (lost) throw new Error("lost");
  const fence: number = await mo.once("k", async (run) => run.fence, { verify: async () => ({ result: 1 }), wait: 5 });
  const digest = { type: "digest", entity: "u", period: { every: "day" } } as const;
  const step: string = await mo.once(digest, (run) => run.step("a", async () => `${fence}`), {
    onError: () => "retry",
  });
  const safe = onceTool(mo, async (input: { order: string }) => input.order, { key: ({ order }) => order + step });
  await safe({ order: "7" }).then((order) => order.length);
  const key: string = deriveKey(intent, ["b@example.com"]);
  verifyWebhook("{}", new Headers(), "whsec_x").about.id.concat(key);
  expectSentOnce(new Double(), { key });
  const sent = await mo.emails.send({ ...mail, intent });
  // Later versions have more guards and event types, so a program that knows one of them compiles.
  if (sent.guard === "a_guard_of_a_later_version") console.log(sent.holds?.includes("looks_duplicate"));
  for await (const event of mo.events.stream()) if (event.type === "email.of_a_later_version") break;
  if (sent.dedupe.outcome === "replayed") throw new MailonceError({ code: "c", detail: sent.next, next: sent.state });
  return sent;
}

export function doesNotCompile(): void {
  // @ts-expect-error nothing names this mail
  void mo.emails.send(mail);
  // @ts-expect-error nothing names this mail
  void mo.emails.send(mail, {});
  // @ts-expect-error nothing names this mail
  void mo.emails.send(mail, { wait: 5 });
  // @ts-expect-error a key that may be missing is none
  void mo.emails.send(mail, { idempotencyKey: undefined as string | undefined });
  // @ts-expect-error the way out is said, not computed
  void mo.emails.send(mail, { withoutKey: false });
  // @ts-expect-error an intent is about something
  void mo.emails.send({ ...mail, intent: { type: "t" } });
  // @ts-expect-error an intent that may be missing names nothing
  void mo.emails.send({ ...mail, intent: undefined });
  // @ts-expect-error a mail has a sender
  void mo.emails.send({ to: "b@example.com", text: "t", intent });
  // @ts-expect-error a field that does not exist
  void mo.emails.send({ ...mail, intent, body: "t" });
  // @ts-expect-error one mail of the batch has no name
  void mo.emails.batch([{ ...mail, intent }, mail]);
  // @ts-expect-error a state that does not exist
  void mo.emails.list({ state: "sendt" });
  // @ts-expect-error a state that does not exist
  void mo.inboxes.messages("i", { state: "new" });
  // @ts-expect-error only codes and links are found
  void mo.inboxes.messages("i", { has: "codes" });
  // @ts-expect-error only codes and links are found
  void mo.inboxes.wait("i", { has: "codes" });
  // @ts-expect-error a state that does not exist
  void mo.webhooks.notices("e", { state: "failed" });
  void mo.emails.get("e").then((email) => {
    // @ts-expect-error states are complete: a program that handles each of them compiles
    if (email.state === "a_state_of_a_later_version") throw new Error(email.state);
  });
  // @ts-expect-error a lease is for some work
  void mo.threads.withLease("t", { ttl_s: 30 });
  // @ts-expect-error a side effect has a key
  void mo.once(async () => 1);
  // @ts-expect-error a look-up says more than yes
  void mo.once("k", async () => 1, { verify: async () => true });
  // @ts-expect-error there is no other meaning of an error
  void mo.once("k", async () => 1, { onError: () => "later" });
  // @ts-expect-error what is the tool's call about?
  void onceTool(mo, async () => 1, {});
  // @ts-expect-error for whom?
  void mo.artifacts.consume("a", {});
}

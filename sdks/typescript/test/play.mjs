// How a scenario's call is made with this SDK, and how its result is compared.

import assert from "node:assert/strict";

const options = (args) => ({
  idempotencyKey: args.idempotency_key,
  withoutKey: args.without_key,
  wait: args.wait,
  permissive: args.permissive,
  callId: args.call_id,
});

/** Methods whose arguments are not `(id, body or query, options)` like those of most. */
const SPECIAL = {
  "emails.send": (mo, a) => mo.emails.send(a.body, options(a)),
  "emails.batch": (mo, a) => mo.emails.batch(a.body, options(a)),
  "events.stream": async (mo, a) => ({ data: await taken(mo.events.stream(a.query), a.take) }),
  "messages.raw": async (mo, a) => shown(await mo.messages.raw(a.id, options(a))),
  "messages.attachment": async (mo, a) => shown(await mo.messages.attachment(a.id, a.n, options(a))),
  "inboxes.work": async (mo, a) => {
    const control = new AbortController();
    const worked = [];
    const work = async (message) => {
      worked.push(message.id);
      control.abort();
      await new Promise((resolve) => setTimeout(resolve, a.work_ms ?? 0));
      if (a.fail) throw new Error(a.fail);
    };
    const failed = await mo.inboxes
      .work(a.id, work, { ...a.body, signal: control.signal })
      .catch((error) => error.message);
    return { worked, failed };
  },
  "threads.lease": (mo, a) =>
    mo.threads.withLease(a.id, a.body, async (lease) => {
      await new Promise((resolve) => setTimeout(resolve, a.work_ms ?? 0));
      assert.equal(lease.signal.aborted, a.lost ?? false);
      return { token: lease.token, fence: lease.fence };
    }),
};

const shown = ({ contentType, content }) => ({ content_type: contentType, text: new TextDecoder().decode(content) });

async function taken(items, count) {
  const out = [];
  for await (const item of items) if (out.push(item) >= count) break;
  return out;
}

export function make(mo, call, args) {
  if (SPECIAL[call]) return SPECIAL[call](mo, args);
  const [resource, method] = call.split(".");
  if (method === "each") return taken(mo[resource].each(args.query), Infinity).then((data) => ({ data }));
  const what = [args.id, args.body ?? args.query].filter((value) => value !== undefined);
  return mo[resource][method](...what, options(args));
}

/** Whether `found` has everything that `wanted` names. */
export function fits(wanted, found, where = "result") {
  if (wanted === null) return assert.ok(found === null || found === undefined, `${where} is ${JSON.stringify(found)}`);
  if (typeof wanted !== "object") return assert.deepEqual(found, wanted, where);
  if (Array.isArray(wanted)) assert.equal(found?.length, wanted.length, where);
  for (const [name, value] of Object.entries(wanted)) fits(value, found?.[name], `${where}.${name}`);
}

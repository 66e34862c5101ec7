// Sends: the first, a replay, another body, fifty at once, and a server that accepts the mail and returns an error.
"use strict";
const { AgentMail, AgentMailClient, BASE, KEY, assert, client, environment, fails, http, is, mails, native, until } = require("./walk.cjs");

/// A proxy that forwards every call but answers the first ones with this status.
async function badly(status, times) {
  let left = times;
  const server = http.createServer((request, answer) => {
    const chunks = [];
    request.on("data", (chunk) => chunks.push(chunk));
    request.on("end", async () => {
      const { host, connection, "content-length": _, ...headers } = request.headers;
      const real = await fetch(BASE + request.url, { method: request.method, headers, body: chunks.length ? Buffer.concat(chunks) : undefined });
      const body = await real.text();
      const lies = left-- > 0;
      answer.writeHead(lies ? status : real.status, { "content-type": "application/json" });
      answer.end(lies ? '{"name":"Error","message":"lost"}' : body);
    });
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const url = `http://127.0.0.1:${server.address().port}/compat/agentmail`;
  return { server, client: new AgentMailClient({ apiKey: KEY, environment: { ...environment, http: url } }) };
}

module.exports = async function sends(inbox) {
  const { messages } = client.inboxes;
  const mail = { to: "ada@example.com", subject: "Order 4821", text: "Thank you.", labels: ["orders"] };
  const first = await messages.send(inbox.inboxId, mail, { idempotencyKey: "node-order-4821" });
  assert.ok(/^<.+@mailonce\.test>$/.test(first.messageId) && first.threadId);
  is(await messages.send(inbox.inboxId, mail, { idempotencyKey: "node-order-4821" }), first);
  await fails(messages.send(inbox.inboxId, { ...mail, text: "Other words." }, { idempotencyKey: "node-order-4821" }), AgentMail.ConflictError, 409);
  is((await mails("ada@example.com")).length, 1);
  // One key space with the native API.
  const same = await native("GET", "/v1/keys/node-order-4821");
  assert.ok(JSON.stringify(same).includes((await mails("ada@example.com"))[0].id), JSON.stringify(same));

  const race = await Promise.all(Array.from({ length: 50 }, () =>
    messages.send(inbox.inboxId, { to: ["race@example.com"], subject: "Race", html: "<p>One</p>" }, { idempotencyKey: "node-race" })));
  is(new Set(race.map((sent) => sent.messageId)).size, 1);
  is((await mails("race@example.com")).length, 1);

  // The package retries by itself after 408, 429 and 5xx.
  for (const status of [408, 429, 500, 503]) {
    const to = `again-${status}@example.com`;
    const proxy = await badly(status, 1);
    const sent = await proxy.client.inboxes.messages.send(inbox.inboxId, { to, subject: "Once", text: "Once." }, { idempotencyKey: `node-again-${status}` });
    const found = await mails(to);
    is([found.length, found[0].message_id], [1, sent.messageId]);
    await until("the repeat in the ledger", async () => (await mails(to))[0].suppressed === 1);
    proxy.server.close();
  }

  const whole = await messages.send(inbox.inboxId, {
    to: ["bo@example.com"], cc: "cy@example.com", bcc: ["dee@example.com"], replyTo: "ed@example.com", subject: "All of it",
    text: "Text", html: "<p>Text</p>", headers: { "X-Order": "7" }, trackOpens: false,
    attachments: [{ filename: "a.txt", contentType: "text/plain", content: Buffer.from("file").toString("base64") }],
  });
  const seen = await until("it", async () => {
    const seen = await messages.get(inbox.inboxId, whole.messageId);
    return seen.labels.includes("sent") && seen;
  });
  is([seen.from, seen.to, seen.cc, seen.bcc, seen.replyTo], ["Node <node@mailonce.test>", ["bo@example.com"], ["cy@example.com"], ["dee@example.com"], ["ed@example.com"]]);
  is([seen.text, seen.html, seen.headers["X-Order"], seen.attachments[0].filename], ["Text", "<p>Text</p>", "7", "a.txt"]);
  const file = await messages.getAttachment(inbox.inboxId, whole.messageId, seen.attachments[0].attachmentId);
  is(await (await fetch(file.downloadUrl)).text(), "file");
  const raw = await messages.getRaw(inbox.inboxId, whole.messageId);
  const bytes = await (await fetch(raw.downloadUrl)).text();
  assert.ok(bytes.includes(whole.messageId) && bytes.includes("X-Order: 7"), bytes);
  is((await fetch(raw.downloadUrl.slice(0, -1) + "x")).status, 404);

  await faults(inbox);
};

async function faults(inbox) {
  const { messages } = client.inboxes;
  const { ValidationError, NotFoundError } = AgentMail;
  const { MessageRejectedError } = AgentMail.messages;
  const send = (body, options) => messages.send(inbox.inboxId, { to: "x@example.com", text: "x", ...body }, { maxRetries: 0, ...options });
  is((await fails(send({ to: "no address" }), ValidationError, 400)).errors[0].path, ["to", "0"]);
  await fails(send({ attachments: [{ url: "https://example.com/a" }] }), ValidationError, 400);
  await fails(send({ attachments: [{ content: "!!!" }] }), ValidationError, 400);
  await fails(send({ trackOpens: true }), ValidationError, 400);
  await fails(send({ labels: ["sent"] }), ValidationError, 400);
  await fails(send({}, { idempotencyKey: "x".repeat(257) }), ValidationError, 400);
  await fails(messages.send(inbox.inboxId, { text: "x" }), AgentMail.ValidationError, 400);
  await fails(messages.send("nobody@mailonce.test", { to: "x@example.com", text: "x" }), NotFoundError, 404);
  await native("POST", "/v1/suppressions", { address: "gone@example.com" });
  is((await fails(send({ to: "gone@example.com" }), MessageRejectedError, 403)).code, "message_rejected");
  is((await mails("x@example.com")).length, 0);
}
